/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROFILE_DATA_H
#define FLOW_PROFILE_DATA_H

/* What the profile stage keeps. Private to it. */

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "profile.h"

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

struct stack {
	uint64_t weight_ns, samples;
	uint32_t len; /* of words */
	uint32_t row; /* in the file that is being written */
	UT_hash_handle hh;
	uint32_t words[]; /* hash key: thread, kind, state, number of kernel frames, frames */
};
enum { WORD_THREAD, WORD_KIND, WORD_STATE, WORD_KERNEL, WORDS };

/* When a sample was: from end_ns - ns, or (of a processor) at end_ns. */
struct timed {
	uint64_t end_ns, ns;
	struct stack *stack;
};

/* The newest ones, in the order in which they came. */
struct timeline {
	struct timed *ring; /* owned */
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
	uint64_t unkept; /* samples whose stack did not fit */
	struct timeline timeline;
};

/* profile_time.c. One that there is no memory for is dropped. */
void profile_keep_time(struct timeline *t, struct stack *s, uint64_t end_ns, uint64_t ns);
/* Those that are kept, by their begin; NULL: no memory. Freed by the caller. */
struct timed *profile_by_time(const struct timeline *t);
uint64_t profile_begin_of(const struct timed *t);

#endif
