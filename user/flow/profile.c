/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile.h"

#include <stdlib.h>
#include <string.h>

#include "profile_data.h"
#include "profile_wait.h"

const char *profile_kind_name(enum profile_kind kind)
{
	static const char *const names[PROFILE_KINDS] = {
		[PROFILE_CPU] = "cpu",	     [PROFILE_QUEUE] = "run queue", [PROFILE_FUTEX] = "futex",
		[PROFILE_SOCKET] = "socket", [PROFILE_POLL] = "poll",	    [PROFILE_PIPE] = "pipe",
		[PROFILE_DISK] = "disk",     [PROFILE_SLEEP] = "sleep",	    [PROFILE_CHILD] = "child",
		[PROFILE_OTHER] = "other",   [PROFILE_ALLOC] = "alloc",	    [PROFILE_FAULT] = "fault",
	};

	return names[kind];
}

/* --- symbols and frames ------------------------------------------------------------------------------------------ */

/* Room for one more of `size` bytes. */
static void *grow(void *list, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 1024;
	void *p = list;

	if (count < *room)
		return list;
	p = realloc(list, more * size);
	if (p)
		*room = more;
	return p;
}

/* NO_FRAME without memory, counted. */
static uint32_t frame_add(struct profile *p, uint32_t symbol)
{
	uint32_t *list = grow(p->frames, p->frame_count, &p->frame_room, sizeof(*list));

	if (!list) {
		p->lost->n[LOST_NO_MEMORY]++;
		return NO_FRAME;
	}
	p->frames = list;
	p->frames[p->frame_count] = symbol;
	return p->frame_count++;
}

static struct symbol *symbol_new(struct profile *p, enum rec_frame_source source, struct sv name, struct sv module)
{
	size_t len = name.len + 1 + module.len;
	struct symbol **list = grow(p->symbols, p->symbol_count, &p->symbol_room, sizeof(*list));
	struct symbol *s = calloc(1, sizeof(*s) + len);

	if (list)
		p->symbols = list;
	if (!list || !s)
		goto fail;
	s->source = source;
	s->frame = NO_FRAME;
	s->name_len = name.len;
	s->module_len = module.len;
	s->scheduler = source == REC_FRAME_KERNEL && profile_is_scheduler(name);
	s->wait = source == REC_FRAME_KERNEL ? profile_wait_of_function(name) : PROFILE_KINDS;
	if (name.len)
		memcpy(s->text, name.ptr, name.len);
	if (module.len)
		memcpy(s->text + name.len + 1, module.ptr, module.len);
	HASH_ADD_KEYPTR(hh, p->by_text, s->text, len, s);
	if (!s->hh.tbl)
		goto fail;
	s->id = p->symbol_count;
	p->symbols[p->symbol_count++] = s;
	return s;
fail:
	free(s);
	return NULL;
}

/* NULL: no memory, or too many. */
static struct symbol *symbol_of(struct profile *p, enum rec_frame_source source, struct sv name, struct sv module)
{
	char key[2 * 1024 + 1];
	struct symbol *s;
	size_t len;

	if (name.len > 1024)
		name.len = 1024;
	if (module.len > 1024)
		module.len = 1024;
	len = name.len + 1 + module.len;
	if (name.len)
		memcpy(key, name.ptr, name.len);
	key[name.len] = 0;
	if (module.len)
		memcpy(key + name.len + 1, module.ptr, module.len);
	HASH_FIND(hh, p->by_text, key, len, s);
	if (s || p->symbol_count == PROFILE_SYMBOLS_MAX)
		return s;
	s = symbol_new(p, source, name, module);
	if (!s)
		p->lost->n[LOST_NO_MEMORY]++;
	return s;
}

static struct address *address_find(struct profile *p, const struct proc_key *proc, uint64_t addr)
{
	struct address_key key = {
		.start_ns = proc->start_ns, .addr = addr, .tgid = proc->tgid, .exec_id = proc->exec_id};
	struct address *a;

	HASH_FIND(hh, p->addresses, &key, sizeof(key), a);
	return a;
}

static void address_add(struct profile *p, const struct rec_frame *r, uint32_t frame)
{
	struct address *a = calloc(1, sizeof(*a));

	if (a) {
		a->key = (struct address_key){.start_ns = r->proc.start_ns,
					      .addr = r->addr,
					      .tgid = r->proc.tgid,
					      .exec_id = r->proc.exec_id};
		a->frame = frame;
		HASH_ADD(hh, p->addresses, key, sizeof(a->key), a);
	}
	if (a && a->hh.tbl)
		return;
	free(a);
	p->lost->n[LOST_NO_MEMORY]++;
}

/* Of a symbol: the one that its addresses share, made when it is needed. */
static uint32_t frame_of_symbol(struct profile *p, struct symbol *s)
{
	if (!s)
		return NO_SYMBOL;
	if (s->source == REC_FRAME_PENDING)
		return frame_add(p, s->id);
	if (s->frame == NO_FRAME)
		s->frame = frame_add(p, s->id);
	return s->frame;
}

void profile_push_frame(struct profile *p, const struct rec_frame *r)
{
	struct address *known = address_find(p, &r->proc, r->addr);
	struct symbol *s = symbol_of(p, r->source, r->name, r->module);
	uint32_t frame;

	if (known) {
		if (s && p->symbols[p->frames[known->frame]]->source == REC_FRAME_PENDING)
			p->frames[known->frame] = s->id;
		return;
	}
	if (HASH_COUNT(p->addresses) >= PROFILE_ADDRESSES_MAX)
		return;
	frame = frame_of_symbol(p, s);
	if (frame != NO_FRAME)
		address_add(p, r, frame);
}

/* --- samples ----------------------------------------------------------------------------------------------------- */

static struct thread *thread_new(struct profile *p, const struct thread_key *key)
{
	struct thread *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->key = *key;
	HASH_ADD(hh, p->threads, key, sizeof(t->key), t);
	if (!t->hh.tbl) {
		free(t);
		return NULL;
	}
	t->id = p->thread_count;
	p->thread_list[p->thread_count++] = t;
	return t;
}

/* NULL: no memory. */
static struct thread *thread_of(struct profile *p, const struct rec_sample *r)
{
	struct thread_key key = {.start_ns = r->proc.start_ns, .tgid = r->proc.tgid, .tid = r->tid};
	struct thread *t;

	HASH_FIND(hh, p->threads, &key, sizeof(key), t);
	if (!t && p->thread_count == PROFILE_THREADS_MAX - 1) {
		key = (struct thread_key){0};
		HASH_FIND(hh, p->threads, &key, sizeof(key), t);
	}
	if (!t)
		t = thread_new(p, &key);
	if (!t || !t->key.tgid)
		return t;
	t->exec_id = r->proc.exec_id;
	memcpy(t->comm, r->comm.ptr, r->comm.len < COMM_BYTES ? r->comm.len : COMM_BYTES);
	t->comm[r->comm.len < COMM_BYTES ? r->comm.len : COMM_BYTES] = 0;
	return t;
}

/* Adjacent addresses of one function are what recursion looks like, so they stay. */
static uint32_t frame_of(struct profile *p, const struct rec_sample *r, unsigned i)
{
	static const struct proc_key kernel;
	const struct address *a = address_find(p, i < r->kernel_frames ? &kernel : &r->proc, rec_sample_addr(r, i));

	return a ? a->frame : NO_SYMBOL;
}

/* NULL: no memory, counted. */
static struct stack *stack_of(struct profile *p, const uint32_t *words, uint32_t len)
{
	struct stack *s;

	HASH_FIND(hh, p->stacks, words, len * sizeof(*words), s);
	if (s)
		return s;
	if (HASH_COUNT(p->stacks) >= PROFILE_STACKS_MAX && len > WORDS) {
		p->unkept++;
		return stack_of(p, words, WORDS);
	}
	s = calloc(1, sizeof(*s) + len * sizeof(*words));
	if (s) {
		s->len = len;
		memcpy(s->words, words, len * sizeof(*words));
		HASH_ADD_KEYPTR(hh, p->stacks, s->words, len * sizeof(*words), s);
	}
	if (s && s->hh.tbl)
		return s;
	p->lost->n[LOST_NO_MEMORY]++;
	free(s);
	return NULL;
}

/* NULL: no memory, counted. */
static struct stack *add_stack(struct profile *p, const uint32_t *words, uint32_t len, uint64_t weight_ns)
{
	struct stack *s = stack_of(p, words, len);

	if (!s)
		return NULL;
	s->weight_ns += weight_ns;
	s->samples++;
	return s;
}

static const struct symbol *symbol_at(const struct profile *p, uint32_t frame)
{
	return p->symbols[p->frames[frame]];
}

/* The frames of a sample, as words; how many. Outside of code lies what no frame pointer led to: the stack is broken
 * there. */
static uint32_t put_frames(struct profile *p, const struct rec_sample *r, uint32_t *words)
{
	uint32_t *out = words + WORDS, n = 0;

	for (unsigned i = 0; i < r->kernel_frames; i++) {
		out[n] = frame_of(p, r, i);
		if (n || r->what != REC_SAMPLE_OFF || !symbol_at(p, out[n])->scheduler)
			n++;
	}
	words[WORD_KERNEL] = n;
	words[WORD_STATE] = r->deep ? PROFILE_DEEP : PROFILE_WHOLE;
	for (unsigned i = 0; i < r->user_frames; i++) {
		uint32_t frame = frame_of(p, r, r->kernel_frames + i);

		if (i && symbol_at(p, frame)->source == REC_FRAME_NOWHERE) {
			words[WORD_STATE] = PROFILE_BROKEN;
			break;
		}
		out[n++] = frame;
	}
	return n;
}

static enum profile_kind kind_of(const struct profile *p, const struct rec_sample *r, const uint32_t *words)
{
	if (r->what == REC_SAMPLE_CPU)
		return PROFILE_CPU;
	for (uint32_t i = 0; i < words[WORD_KERNEL]; i++) {
		enum profile_kind kind = symbol_at(p, words[WORDS + i])->wait;

		if (kind != PROFILE_KINDS)
			return kind;
	}
	return profile_wait_of_call(r);
}

static void count(struct profile *p, enum profile_kind kind, uint64_t weight_ns)
{
	p->samples[kind]++;
	p->weight_ns[kind] += weight_ns;
}

struct stack *profile_stack_of(struct profile *p, const struct rec_sample *r, enum profile_kind kind)
{
	uint32_t words[WORDS + FRAMES_MAX] = {0}, len;
	struct rec_sample all = *r;
	struct thread *t;

	/* Of all threads together. */
	all.tid = 0;
	all.comm = SV("");
	t = thread_of(p, &all);
	if (!t) {
		p->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	words[WORD_THREAD] = t->id;
	words[WORD_KIND] = kind;
	len = WORDS + put_frames(p, r, words);
	return stack_of(p, words, len);
}

static void push_fault(struct profile *p, const struct rec_sample *r)
{
	struct stack *s = profile_stack_of(p, r, PROFILE_FAULT);

	count(p, PROFILE_FAULT, r->size);
	if (!s)
		return;
	s->weight_ns += r->size;
	s->samples++;
}

static void keep_time(struct profile *p, struct stack *s, uint64_t end_ns, uint64_t ns)
{
	if (s)
		profile_keep_time(&p->timeline, &(struct timed){end_ns, ns, s});
}

void profile_push_sample(struct profile *p, const struct rec_sample *r)
{
	uint32_t words[WORDS + FRAMES_MAX] = {0}, len;
	enum profile_kind kind;
	struct thread *t;

	if (r->what == REC_SAMPLE_ALLOC || r->what == REC_SAMPLE_FAULT) {
		if (r->what == REC_SAMPLE_ALLOC)
			profile_alloc_sample(p, r);
		else
			push_fault(p, r);
		return;
	}
	t = thread_of(p, r);
	if (!t) {
		p->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	words[WORD_THREAD] = t->id;
	if (r->queue_ns) {
		words[WORD_KIND] = PROFILE_QUEUE;
		count(p, PROFILE_QUEUE, r->queue_ns);
		keep_time(p, add_stack(p, words, WORDS, r->queue_ns), r->ts_ns, r->queue_ns);
	}
	if (r->what == REC_SAMPLE_QUEUED)
		return;
	len = WORDS + put_frames(p, r, words);
	kind = kind_of(p, r, words);
	words[WORD_KIND] = kind;
	count(p, kind, r->weight_ns);
	keep_time(p, add_stack(p, words, len, r->weight_ns), r->ts_ns > r->queue_ns ? r->ts_ns - r->queue_ns : 0,
		  r->weight_ns);
}

void profile_push_sampling(struct profile *p, const struct rec_sampling *r)
{
	if (!p->begin_ns)
		p->begin_ns = r->ts_ns;
	p->sampling = *r;
}

const struct rec_sampling *profile_sampling(const struct profile *p)
{
	return &p->sampling;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

struct profile *profile_new(struct lost *lost, uint64_t timed)
{
	struct profile *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->lost = lost;
	timed = timed < PROFILE_TIMED_MAX ? timed : PROFILE_TIMED_MAX;
	p->timeline = (struct timeline){.size = sizeof(struct timed), .max = (size_t)timed};
	p->alloc_times = (struct timeline){.size = sizeof(struct timed_alloc), .max = (size_t)timed};
	p->alloc_windows = (struct timeline){.size = sizeof(struct timed_window), .max = PROFILE_WINDOWS_MAX};
	p->thread_list = calloc(PROFILE_THREADS_MAX, sizeof(*p->thread_list));
	if (p->thread_list && symbol_new(p, REC_FRAME_NATIVE, SV("(not kept)"), SV("")) &&
	    frame_add(p, NO_SYMBOL) == NO_SYMBOL)
		return p;
	profile_free(p);
	return NULL;
}

void profile_free(struct profile *p)
{
	struct address *a, *next_address;
	struct stack *s, *next_stack;

	if (!p)
		return;
	profile_alloc_release(p);
	HASH_ITER (hh, p->addresses, a, next_address) {
		HASH_DEL(p->addresses, a);
		free(a);
	}
	HASH_ITER (hh, p->stacks, s, next_stack) {
		HASH_DEL(p->stacks, s);
		free(s->alloc);
		free(s);
	}
	HASH_CLEAR(hh, p->threads);
	for (uint32_t i = 0; i < p->thread_count; i++)
		free(p->thread_list[i]);
	HASH_CLEAR(hh, p->by_text);
	for (uint32_t i = 0; i < p->symbol_count; i++)
		free(p->symbols[i]);
	free(p->timeline.ring);
	free(p->alloc_times.ring);
	free(p->alloc_windows.ring);
	free(p->thread_list);
	free(p->symbols);
	free(p->frames);
	free(p);
}
