/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program with planted allocations, for the tests and the benchmark of --alloc. Prints its pid, waits for a line, and
 * works for the given processor time; then says how often it went round.
 *
 *   allocload SECONDS [SPIN [THREADS]]
 *
 * Each round: storm() 8 times 800 bytes, which are freed at once; steady() 2 calloc() of 1,600 bytes, freed a round
 * later; grow() a realloc() of 400 to 1,200 bytes; made() 800 bytes by operator new; and every 64th, keep() 6,400 bytes
 * that stay. SPIN: work between allocations. By LD_PRELOAD, countalloc tells what really was allocated.
 *
 * Operator new is that of libstdc++, as it is found when the program runs; with LINKED_NEW, the one that it is linked
 * with. Without either, made() calls malloc().
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 16

static double seconds;
static unsigned spin = 100;
static void *(*new_bytes)(size_t size);
static void (*delete_bytes)(void *p);
static void *volatile sink;

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void work(void)
{
	uint64_t x = spin;

	for (unsigned i = 0; i < spin; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	__asm__ volatile("" : : "r"(x));
}

#define PLANTED __attribute__((noinline))
#ifdef LINKED_NEW
void *_Znwm(size_t size);
void _ZdlPv(void *p);
#endif
void storm(void);
void steady(void *kept[2]);
void *grow(void *p, uint64_t round);
void made(void);
void keep(void);

PLANTED void storm(void)
{
	for (int i = 0; i < 8; i++) {
		sink = malloc(800);
		work();
		free(sink);
	}
}

PLANTED void steady(void *kept[2])
{
	for (int i = 0; i < 2; i++) {
		free(kept[i]);
		kept[i] = calloc(4, 400);
		work();
	}
}

PLANTED void *grow(void *p, uint64_t round)
{
	p = realloc(p, 400 + round % 3 * 400);
	work();
	return p;
}

PLANTED void made(void)
{
	sink = new_bytes(800);
	work();
	delete_bytes(sink);
}

PLANTED void keep(void)
{
	memset(sink = malloc(6400), 1, 6400);
	work();
}

static void find_new(void)
{
#ifdef LINKED_NEW
	new_bytes = _Znwm;
	delete_bytes = _ZdlPv;
#else
	void *cxx = dlopen("libstdc++.so.6", RTLD_NOW);

	*(void **)&new_bytes = cxx ? dlsym(cxx, "_Znwm") : NULL;
	*(void **)&delete_bytes = cxx ? dlsym(cxx, "_ZdlPv") : NULL;
	if (!new_bytes || !delete_bytes) {
		new_bytes = malloc;
		delete_bytes = free;
	}
#endif
}

static void *run(void *arg)
{
	uint64_t end = cpu_ns() + (uint64_t)(seconds * 1e9), round = 0;
	void *kept[2] = {NULL}, *grown = NULL;

	for (; round % 64 || cpu_ns() < end; round++) {
		storm();
		steady(kept);
		grown = grow(grown, round);
		made();
		if (round % 64 == 0)
			keep();
	}
	free(kept[0]);
	free(kept[1]);
	free(grown);
	*(uint64_t *)arg = round;
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
	uint64_t rounds[THREADS_MAX], all = 0;
	pthread_t list[THREADS_MAX];
	char line[8];

	seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
	if (argc > 2)
		spin = (unsigned)atoi(argv[2]);
	if (threads > THREADS_MAX)
		return 2;
	find_new();
	printf("pid %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&list[i], NULL, run, &rounds[i]))
			return 1;
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(list[i], NULL);
		all += rounds[i];
	}
	printf("rounds %" PRIu64 "\n", all);
	return 0;
}
