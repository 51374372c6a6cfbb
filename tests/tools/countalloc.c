/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For LD_PRELOAD: counts what a program asks its allocator for, and what it frees; at its end says so, a line each, in
 * the file that COUNTALLOC names. Exact: the measure that --alloc is held against.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t asked_bytes, asked_count, freed_count;
static char early[4096]; /* dlsym() allocates before there is anything to allocate with */
static size_t early_used;

static void *(*real_malloc)(size_t size);
static void *(*real_calloc)(size_t n, size_t size);
static void *(*real_realloc)(void *p, size_t size);
static void *(*real_aligned_alloc)(size_t alignment, size_t size);
static int (*real_posix_memalign)(void **p, size_t alignment, size_t size);
static void (*real_free)(void *p);

static void find(void)
{
	static _Atomic int begun;

	if (atomic_exchange(&begun, 1))
		return;
	*(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
	*(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
	*(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
	*(void **)&real_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
	*(void **)&real_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
	*(void **)&real_free = dlsym(RTLD_NEXT, "free");
}

static void count(size_t size)
{
	asked_bytes += size;
	asked_count++;
}

static void *give_early(size_t size)
{
	void *p = early + early_used;

	early_used += (size + 15) & ~(size_t)15;
	return early_used <= sizeof(early) ? p : NULL;
}

void *malloc(size_t size)
{
	if (!real_malloc)
		find();
	if (!real_malloc)
		return give_early(size);
	count(size);
	return real_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	if (!real_calloc)
		find();
	if (!real_calloc)
		return give_early(n * size);
	count(n * size);
	return real_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	if (!real_realloc)
		find();
	count(size);
	return real_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	if (!real_aligned_alloc)
		find();
	count(size);
	return real_aligned_alloc(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
	if (!real_posix_memalign)
		find();
	count(size);
	return real_posix_memalign(p, alignment, size);
}

void free(void *p)
{
	if ((char *)p >= early && (char *)p < early + sizeof(early))
		return;
	if (!real_free)
		find();
	freed_count += p != NULL;
	real_free(p);
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("COUNTALLOC");
	uint64_t bytes = asked_bytes, n = asked_count, freed = freed_count;
	FILE *f = path ? fopen(path, "we") : NULL;

	if (!f)
		return;
	fprintf(f, "bytes %" PRIu64 "\ncount %" PRIu64 "\nfreed %" PRIu64 "\n", bytes, n, freed);
	fclose(f);
}
