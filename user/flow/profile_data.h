/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROFILE_DATA_H
#define FLOW_PROFILE_DATA_H

/* What the profile stage keeps. Private to it. */

#include "profile.h"

#include "base/hash.h"

#define FRAMES_MAX 510 /* what a record can carry */
#define COMM_BYTES 16

#define NO_SYMBOL 0u /* "(not kept)", and its frame */
#define NO_FRAME  UINT32_MAX

struct symbol {
	uint32_t id; /* place in profile.symbols */
	enum rec_frame_source source;
	uint32_t frame;		/* that all of its addresses share; those of PENDING have one each */
	bool scheduler;		/* how a thread leaves its processor, and how it is watched: says nothing */
	enum profile_kind wait; /* of a kernel's function: what who is in it waits for */
	size_t name_len, module_len;
	UT_hash_handle hh;
	char text[]; /* hash key: name, 0, module */
};

struct address_key { /* compared with memcmp: no holes */
	uint64_t start_ns, addr;
	uint32_t tgid, exec_id;
};

struct address {
	struct address_key key;
	uint32_t frame; /* place in profile.frames */
	UT_hash_handle hh;
};

struct thread_key { /* likewise */
	uint64_t start_ns;
	uint32_t tgid, tid;
};

struct thread {
	struct thread_key key;
	uint32_t id, exec_id;
	char comm[COMM_BYTES + 1];
	UT_hash_handle hh;
};

/*
 * What is added up of a window of a process: `all` what its samples stand for, `exact` what was counted; processor
 * time, and what the traps took of that as perfbpf measured it.
 */
enum { OF_ALL, OF_EXACT, OF_CPU, OF_TRAPS, OF_COUNT };

/* Windows with few traps, and those that also see what is freed: what is known of the traps is known better of the
 * former. */
enum { WINDOWS_FEW, WINDOWS_MANY, WINDOWS_KINDS };

/* Of a stack that allocates; x of a window: what its samples stand for there. */
struct alloc_sums {
	double bytes, count;   /* of the window that is open */
	double sum, count_sum; /* of all */
	struct {
		double xx, x[OF_COUNT]; /* sums of x times x, and times what its process has there */
	} of[WINDOWS_KINDS];
	double followed_bytes, followed_count; /* of samples whose end is told */
	double kept_bytes, kept_count;	       /* and was not */
	bool open;			       /* in profile.open_stacks */
	struct stack *next_open;
};

struct window_sums {
	uint64_t windows, count;
	double sum[OF_COUNT], product[OF_COUNT][OF_COUNT]; /* product: [i][j] with i <= j */
};

/* A process that allocates. */
struct allocator {
	struct thread_key key; /* tid 0 */
	uint32_t exec_id;
	uint64_t windows, window_ns, count, unfollowed;
	struct window_sums of[WINDOWS_KINDS];
	uint64_t since_cpu_ns, cpu_ns, all_traps_ns;
	uint64_t traps_before_ns, last_traps_ns; /* of the programs before this one, and of this one */
	uint64_t last_ns;			 /* when that was told last */
	double timed_ns;			 /* of its own processor time: before its last window's end */
	double open_all;			 /* of the window that is open */
	bool follows;
	uint32_t allocators; /* bit n: enum rec_allocator n handed out memory */
	uint32_t row;	     /* in the file that is being written */
	UT_hash_handle hh;
};

struct followed_key { /* compared with memcmp: no holes */
	uint64_t start_ns, addr;
	uint32_t tgid, exec_id;
};

struct followed {
	struct followed_key key;
	struct stack *stack;
	double bytes, count;
	UT_hash_handle hh;
};

struct stack {
	uint64_t weight_ns, samples; /* of FAULT: pages */
	struct alloc_sums *alloc;    /* owned; NULL: no ALLOC */
	uint32_t len;		     /* of words */
	uint32_t row;		     /* in the file that is being written */
	UT_hash_handle hh;
	uint32_t words[]; /* hash key: thread, kind, state, number of kernel frames, frames */
};
enum { WORD_THREAD, WORD_KIND, WORD_STATE, WORD_KERNEL, WORDS };

/* When a sample was: from end_ns - ns, or (of a processor) at end_ns. */
struct timed {
	uint64_t end_ns, ns;
	struct stack *stack;
};

/* Of an allocation, and what it stands for in its window. */
struct timed_alloc {
	uint64_t end_ns;
	struct stack *stack;
	float bytes, count;
	uint32_t tid;
};

/* A window; own_ns, whole_ns: its process's own processor time in it, and since the one before. */
struct timed_window {
	uint64_t end_ns;
	const struct allocator *allocator;
	double cpu_ns, own_ns, whole_ns;
	uint64_t bytes, count;
};

/* The newest ones of one of these, in the order in which they came. */
struct timeline {
	void *ring;  /* owned */
	size_t size; /* of each */
	size_t count, room, max;
	size_t next;	  /* place of the oldest one, once the ring is full */
	uint64_t dropped; /* older ones */
	uint64_t from_ns; /* the latest end of these: what begins later is whole */
};

/*
 * A stack is of frames, and a frame is of a symbol. Addresses in one function are one frame; one that has no name yet
 * is a frame by itself, whose symbol may come later.
 */
struct profile {
	struct lost *lost;
	struct rec_sampling sampling;
	uint64_t begin_ns; /* of sampling; its end is sampling.ts_ns, the same until it is told */
	struct symbol *by_text, **symbols;
	uint32_t symbol_count, symbol_room;
	uint32_t *frames; /* symbol of each */
	uint32_t frame_count, frame_room;
	struct address *addresses;
	struct thread *threads, **thread_list;
	uint32_t thread_count;
	struct stack *stacks;
	uint64_t samples[PROFILE_KINDS], weight_ns[PROFILE_KINDS];
	struct allocator *allocators;
	struct followed *followed;
	struct stack *open_stacks;			      /* of the window that is open */
	uint64_t unkept;				      /* samples whose stack did not fit */
	struct timeline timeline, alloc_times, alloc_windows; /* of timed, timed_alloc, timed_window */
};

/* profile_time.c. Keeps any of the timed ones; one that there is no memory for is dropped. */
void profile_keep_time(struct timeline *t, const void *timed);
/* Those that are kept, in an order for qsort(); NULL: no memory. Freed by the caller. */
void *profile_by_time(const struct timeline *t, int (*compare)(const void *a, const void *b));
/* By their begin, once the stacks have their rows. */
int profile_compare_timed(const void *a, const void *b);
int profile_compare_allocs(const void *a, const void *b);
int profile_compare_windows(const void *a, const void *b);
uint64_t profile_begin_of(const struct timed *t);

/* What a process, or a stack of it, allocated in all. error: 95 of 100 such estimates are not farther off; NAN: not
 * known, there were too few windows. */
struct alloc_estimate {
	double bytes, error, count;
	double kept_bytes, kept_count; /* at most; NAN: not known */
};
struct alloc_estimate profile_alloc_of_process(const struct allocator *a);
struct alloc_estimate profile_alloc_of_stack(const struct profile *p, const struct stack *s);
double profile_alloc_seen_bytes(const struct allocator *a); /* counted in windows */
double profile_alloc_share(const struct allocator *a);	    /* of its own processor time that was in windows */
double profile_alloc_untimed_ns(const struct allocator *a); /* of its own processor time: what followed its windows */
const struct allocator *profile_allocator_of(const struct profile *p, const struct stack *s);

/* For profile_alloc.c: the stack of a sample, made when it is new, without its weight; NULL: no room. */
struct stack *profile_stack_of(struct profile *p, const struct rec_sample *r, enum profile_kind kind);
void profile_alloc_sample(struct profile *p, const struct rec_sample *r);
void profile_alloc_release(struct profile *p);

#endif
