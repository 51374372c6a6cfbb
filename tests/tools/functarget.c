/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions to be traced by name. Waits for a line on standard input, then does what the arguments say, and writes how
 * often each function was called, and how long `work` took, as a line of JSON.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS	 4
#define AGAIN	 "FUNCTARGET_AGAIN" /* in the environment: it was told to go before */
#define NOINLINE __attribute__((noinline, noclone))

NOINLINE int recurse(int n);
NOINLINE void work(int ms);
NOINLINE int inner(int ms);
NOINLINE int outer(int ms);
NOINLINE unsigned hot(unsigned x);
NOINLINE void leave(void);
NOINLINE void unwound(int *left);
NOINLINE void again(char **argv);

static unsigned long long work_ns;
static volatile int leaves = 1; /* the compiler must not know that some do not return */

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec;
}

int recurse(int n)
{
	int below = n > 1 ? recurse(n - 1) : 0;

	__asm__ volatile("" : "+r"(below)); /* no tail call */
	return below + 1;
}

void work(int ms)
{
	struct timespec ts = {.tv_nsec = ms * 1000000l};
	unsigned long long before = now_ns();

	while (nanosleep(&ts, &ts))
		;
	__atomic_fetch_add(&work_ns, now_ns() - before, __ATOMIC_RELAXED);
}

int inner(int ms)
{
	work(ms);
	__asm__ volatile("" : "+r"(ms));
	return ms;
}

/* Ends with a jump. */
int outer(int ms)
{
	__asm__ volatile("" : "+r"(ms));
	return inner(ms + 1);
}

unsigned hot(unsigned x)
{
	__asm__ volatile("" : "+r"(x));
	return x * 2654435761u + 1;
}

/* A canceled thread unwinds its stack, as an exception does. */
void leave(void)
{
	if (leaves)
		pthread_exit(NULL);
}

/* Another program in this one's place, which does the rest. */
void again(char **argv)
{
	setenv(AGAIN, "1", 1);
	execv("/proc/self/exe", argv);
}

static void clean(int **left)
{
	++**left;
}

void unwound(int *left)
{
	int *at __attribute__((cleanup(clean))) = left;

	leave();
	++*at;
}

static void *work_some(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10; i++)
		work(3);
	return NULL;
}

static void *be_unwound(void *arg)
{
	unwound(arg);
	return NULL;
}

int main(int argc, char **argv)
{
	int recursions = 0, left = 0;
	unsigned sum = 0;
	pthread_t threads[THREADS];

	printf("pid %d\n", getpid());
	fflush(stdout);
	if (!getenv(AGAIN) && getchar() == EOF)
		return 1;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "again"))
			again(argv + i);
		if (!strcmp(argv[i], "recurse"))
			recursions += recurse(20);
		if (!strcmp(argv[i], "tail"))
			sum += (unsigned)outer(4);
		if (!strcmp(argv[i], "hot"))
			for (unsigned k = 0; k < 200000; k++)
				sum = hot(sum);
		for (int k = 0; k < THREADS && !strcmp(argv[i], "threads"); k++)
			pthread_create(&threads[k], NULL, work_some, NULL);
		for (int k = 0; k < THREADS && !strcmp(argv[i], "threads"); k++)
			pthread_join(threads[k], NULL);
		for (int k = 0; k < 10 && !strcmp(argv[i], "unwind"); k++) {
			pthread_create(&threads[0], NULL, be_unwound, &left);
			pthread_join(threads[0], NULL);
		}
	}
	printf("{\"recursions\": %d, \"left\": %d, \"work_ms\": %.3f, \"sum\": %u}\n", recursions, left,
	       (double)work_ns / 1e6, sum);
	return 0;
}
