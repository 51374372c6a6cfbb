/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program with planted costs, for the tests of --cpu and --off-cpu. Prints its pid, waits for a line, works for the
 * given processor time, and prints what it spent where, by its own clocks:
 *
 *   hotspot SECONDS       hot() 40 %, warm() 30 %, cold() 30 % of the main thread's processor time; other threads wait
 *                         for a lock, for a socket, and sleep
 *   hotspot SECONDS jit   one thread in code that it made itself, named in /tmp/perf-PID.map
 *   hotspot SECONDS many  one thread, by turns in each of 32,768 stacks: leaf() below fifteen of left() and right()
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HOLD_MS 100

static volatile uint64_t sum;
static volatile bool ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sockets[2];

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void sleep_ms(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

/* --- on a processor ---------------------------------------------------------------------------------------------- */

#define WORK(name, times)                                                                                              \
	__attribute__((noinline)) static uint64_t name(void)                                                           \
	{                                                                                                              \
		uint64_t began = now_ns(CLOCK_THREAD_CPUTIME_ID);                                                      \
                                                                                                                       \
		for (unsigned i = 0; i < (times)*100000u; i++)                                                         \
			sum += i;                                                                                      \
		return now_ns(CLOCK_THREAD_CPUTIME_ID) - began;                                                        \
	}

WORK(hot, 40)
WORK(warm, 30)
WORK(cold, 30)

static void work(double seconds)
{
	uint64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + (uint64_t)(seconds * 1e9), spent[3] = {0};

	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end) {
		spent[0] += hot();
		spent[1] += warm();
		spent[2] += cold();
	}
	printf("hot %" PRIu64 "\nwarm %" PRIu64 "\ncold %" PRIu64 "\n", spent[0], spent[1], spent[2]);
}

/* --- in many places ---------------------------------------------------------------------------------------------- */

#define FORKS 15

static uint64_t leaf(void);
static uint64_t left(unsigned path, unsigned forks);
static uint64_t right(unsigned path, unsigned forks);

static inline __attribute__((always_inline)) uint64_t fork_in_path(unsigned path, unsigned forks)
{
	/* no tail call: the caller still has to add */
	return 1 + (!forks ? leaf() : path & 1 ? right(path >> 1, forks - 1) : left(path >> 1, forks - 1));
}

__attribute__((noinline)) static uint64_t leaf(void)
{
	for (unsigned i = 0; i < 20000; i++)
		sum += i;
	return sum + now_ns(CLOCK_MONOTONIC); /* what calls nothing gets no frame */
}

__attribute__((noinline)) static uint64_t left(unsigned path, unsigned forks)
{
	return fork_in_path(path, forks);
}

__attribute__((noinline)) static uint64_t right(unsigned path, unsigned forks)
{
	return fork_in_path(path, forks);
}

__attribute__((noinline)) static int work_in_many_stacks(double seconds)
{
	uint64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + (uint64_t)(seconds * 1e9);

	for (unsigned i = 0; now_ns(CLOCK_THREAD_CPUTIME_ID) < end; i++) {
		unsigned path = i * 12345 % (1u << FORKS); /* odd: each once */

		sum += path & 1 ? right(path >> 1, FORKS - 1) : left(path >> 1, FORKS - 1);
	}
	return 0;
}

/* --- off it ------------------------------------------------------------------------------------------------------ */

static void *hold_lock(void *arg)
{
	while (!ended) {
		pthread_mutex_lock(&lock);
		sleep_ms(HOLD_MS);
		pthread_mutex_unlock(&lock);
		sleep_ms(HOLD_MS);
		if (write(sockets[1], "x", 1) != 1)
			break;
	}
	shutdown(sockets[1], SHUT_WR);
	return arg;
}

static void *wait_for_lock(void *arg)
{
	uint64_t waited = 0;

	pthread_setname_np(pthread_self(), "for-lock");
	while (!ended) {
		uint64_t began = now_ns(CLOCK_MONOTONIC);

		pthread_mutex_lock(&lock);
		waited += now_ns(CLOCK_MONOTONIC) - began;
		pthread_mutex_unlock(&lock);
		sleep_ms(5);
	}
	*(uint64_t *)arg = waited;
	return NULL;
}

static void *wait_for_socket(void *arg)
{
	uint64_t waited = 0, began = now_ns(CLOCK_MONOTONIC);
	char c;

	pthread_setname_np(pthread_self(), "for-socket");
	while (recv(sockets[0], &c, 1, 0) == 1) {
		waited += now_ns(CLOCK_MONOTONIC) - began;
		began = now_ns(CLOCK_MONOTONIC);
	}
	*(uint64_t *)arg = waited;
	return NULL;
}

static int work_and_wait(double seconds)
{
	uint64_t for_lock = 0, for_socket = 0;
	pthread_t threads[3];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || pthread_create(&threads[0], NULL, hold_lock, NULL) ||
	    pthread_create(&threads[1], NULL, wait_for_lock, &for_lock) ||
	    pthread_create(&threads[2], NULL, wait_for_socket, &for_socket))
		return 1;
	work(seconds);
	ended = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("futex %" PRIu64 "\nsocket %" PRIu64 "\n", for_lock, for_socket);
	return 0;
}

/* --- code that it made itself ------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
/* push %rbp; mov %rsp,%rbp; 1: sub $1,%rdi; jnz 1b; pop %rbp; ret */
static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xef, 0x01, 0x75, 0xfa, 0x5d, 0xc3};
#elif defined(__aarch64__)
/* 1: subs x0, x0, #1; b.ne 1b; ret */
static const uint8_t code[] = {0x00, 0x04, 0x00, 0xf1, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6};
#endif

static int work_in_made_code(double seconds)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
	uint8_t *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*made)(uint64_t n);
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	f = fopen(path, "we");
	if (at == MAP_FAILED || !f)
		return 1;
	memcpy(at, code, sizeof(code));
	if (mprotect(at, 4096, PROT_READ | PROT_EXEC))
		return 1;
	__builtin___clear_cache((char *)at, (char *)at + sizeof(code));
	fprintf(f, "%" PRIxPTR " %zx made_function\n", (uintptr_t)at, sizeof(code));
	fclose(f);
	made = (void (*)(uint64_t))(uintptr_t)at;
	while (now_ns(CLOCK_MONOTONIC) < end)
		made(10000000);
	unlink(path);
	return 0;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
	char line[8];

	printf("pid %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (argc > 2 && !strcmp(argv[2], "many"))
		return work_in_many_stacks(seconds);
	return argc > 2 && !strcmp(argv[2], "jit") ? work_in_made_code(seconds) : work_and_wait(seconds);
}
