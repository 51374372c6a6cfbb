/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The profile as text of the trace file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "profile_data.h"

#define NO_ROW	    UINT32_MAX
#define TIMES_A_ROW 1000

struct writing {
	const struct profile *p;
	struct buf *out;
	const struct profile_namer *namer;
	struct stack **stacks; /* of time, heaviest first; behind them those of memory */
	size_t stack_count;
	struct stack **memory; /* the others of that list */
	size_t memory_count;
	uint32_t *shown; /* by symbol: its row in the file + 1; 0: in no stack that is written */
	uint32_t shown_count;
	uint64_t *cut; /* by thread and kind: weight and samples of stacks that are not written */
	uint64_t start_ns;
	uint64_t state_samples[PROFILE_BROKEN + 1], state_ns[PROFILE_BROKEN + 1]; /* on a processor */
};

static int compare_stacks(const void *a, const void *b)
{
	const struct stack *x = *(const struct stack *const *)a, *y = *(const struct stack *const *)b;
	size_t len = x->len < y->len ? x->len : y->len;
	bool memory = x->words[WORD_KIND] >= PROFILE_MEMORY;
	int order;

	if (memory != (y->words[WORD_KIND] >= PROFILE_MEMORY))
		return memory ? 1 : -1;
	if (x->words[WORD_KIND] != y->words[WORD_KIND] && memory)
		return x->words[WORD_KIND] < y->words[WORD_KIND] ? -1 : 1;
	if (x->alloc && y->alloc && x->alloc->sum != y->alloc->sum)
		return x->alloc->sum > y->alloc->sum ? -1 : 1;
	if (x->weight_ns != y->weight_ns)
		return x->weight_ns > y->weight_ns ? -1 : 1;
	order = memcmp(x->words, y->words, len * sizeof(x->words[0])); /* the same file for the same samples */
	return order ? order : x->len < y->len ? -1 : x->len > y->len;
}

static const struct symbol *symbol_at(const struct profile *p, const struct stack *s, uint32_t i)
{
	return p->symbols[p->frames[s->words[i]]];
}

static struct sv name_of(const struct symbol *s)
{
	return (struct sv){s->text, s->name_len};
}

static struct sv module_of(const struct symbol *s)
{
	return (struct sv){s->text + s->name_len + 1, s->module_len};
}

/* --- broken stacks ----------------------------------------------------------------------------------------------- */

/*
 * Where threads begin: what a whole stack ends with. In a C library without symbols of its own (Debian's) they have no
 * name, but are not alone.
 */
static bool is_beginning(const struct symbol *s, bool alone)
{
	static const struct sv names[] = {
		{"_start", 6},
		{"__libc_start_main", 17},
		{"__libc_start_main_impl", 22},
		{"__libc_start_call_main", 22},
		{"_dl_start", 9},
		{"_dl_start_user", 14},
		{"start_thread", 12},
		{"clone", 5},
		{"__clone", 7},
		{"clone3", 6},
		{"__clone3", 8},
		{"thread_start", 12},
		{"runtime.goexit", 14},
		{"runtime.goexit.abi0", 19},
		{"runtime.mstart", 14},
		{"runtime.mstart.abi0", 19},
		{"runtime.rt0_go.abi0", 19},
		{"main", 4},
	};
	struct sv name = name_of(s), module = module_of(s);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (sv_eq(name, names[i]))
			return true;
	return !name.len && !alone &&
	       (sv_starts(module, SV("libc.")) || sv_starts(module, SV("libc-")) || sv_starts(module, SV("ld-")));
}

/* The words of a stack up to where it is broken: what lies outside of code may be known later than the sample. */
static uint32_t length_of(const struct profile *p, const struct stack *s)
{
	for (uint32_t i = WORDS + s->words[WORD_KERNEL] + 1; i < s->len; i++)
		if (symbol_at(p, s, i)->source == REC_FRAME_NOWHERE)
			return i;
	return s->len;
}

static enum profile_state state_of(const struct profile *p, const struct stack *s)
{
	uint32_t user = WORDS + s->words[WORD_KERNEL];

	if (length_of(p, s) < s->len)
		return PROFILE_BROKEN;
	if (s->words[WORD_STATE] != PROFILE_WHOLE || s->len <= user)
		return (enum profile_state)s->words[WORD_STATE];
	return is_beginning(symbol_at(p, s, s->len - 1), s->len == user + 1) ? PROFILE_WHOLE : PROFILE_BROKEN;
}

/* --- what is written --------------------------------------------------------------------------------------------- */

static void show_symbols(struct writing *w, const struct stack *s)
{
	uint32_t len = length_of(w->p, s);

	for (uint32_t i = WORDS; i < len; i++) {
		uint32_t id = symbol_at(w->p, s, i)->id;

		if (!w->shown[id])
			w->shown[id] = ++w->shown_count;
	}
}

/* 0 or -ENOMEM. */
static int choose(struct writing *w)
{
	const struct profile *p = w->p;
	struct stack *s, *tmp;
	size_t n = 0, times;

	w->stacks = calloc(HASH_COUNT(p->stacks) + 1, sizeof(*w->stacks));
	w->shown = calloc(p->symbol_count, sizeof(*w->shown));
	w->cut = calloc((size_t)(p->thread_count + 1) * PROFILE_KINDS * 2, sizeof(*w->cut));
	if (!w->stacks || !w->shown || !w->cut)
		return -ENOMEM;
	HASH_ITER (hh, p->stacks, s, tmp)
		w->stacks[n++] = s;
	qsort(w->stacks, n, sizeof(*w->stacks), compare_stacks);
	for (times = 0; times < n && w->stacks[times]->words[WORD_KIND] < PROFILE_MEMORY; times++)
		;
	w->stack_count = times < PROFILE_WRITTEN_MAX ? times : PROFILE_WRITTEN_MAX;
	w->memory = w->stacks + times;
	w->memory_count = n - times < PROFILE_WRITTEN_MAX ? n - times : PROFILE_WRITTEN_MAX;
	for (size_t i = 0; i < n - times; i++)
		w->memory[i]->row = i < w->memory_count ? (uint32_t)i : NO_ROW;
	for (size_t i = 0; i < w->memory_count; i++)
		show_symbols(w, w->memory[i]);
	for (size_t i = 0; i < times; i++) {
		const struct stack *at = w->stacks[i];
		size_t row = (at->words[WORD_THREAD] * (size_t)PROFILE_KINDS + at->words[WORD_KIND]) * 2;
		enum profile_state state = state_of(p, at);

		if (at->words[WORD_KIND] == PROFILE_CPU) {
			w->state_samples[state] += at->samples;
			w->state_ns[state] += at->weight_ns;
		}
		w->stacks[i]->row = i < w->stack_count ? (uint32_t)i : NO_ROW;
		if (i < w->stack_count) {
			show_symbols(w, at);
			continue;
		}
		w->cut[row] += at->weight_ns;
		w->cut[row + 1] += at->samples;
	}
	return 0;
}

static void put_axis(struct json *j, const struct writing *w, enum profile_kind from, enum profile_kind to)
{
	uint64_t samples = 0, weight_ns = 0;

	for (int k = from; k < (int)to; k++) {
		samples += w->p->samples[k];
		weight_ns += w->p->weight_ns[k];
	}
	json_uint(j, "samples", samples);
	json_uint(j, "total_ns", weight_ns);
}

static uint64_t micros(const struct writing *w, uint64_t ns)
{
	return ns > w->start_ns ? (ns - w->start_ns) / 1000 : 0;
}

/* Bytes or a count; null where it is not known. */
static void put_number(struct json *j, const char *key, double n)
{
	if (isnan(n))
		json_null(j, key);
	else
		json_uint(j, key, n < 0 ? 0 : n > 9e15 ? (uint64_t)9e15 : (uint64_t)(n + 0.5));
}

/* Whose functions handed out memory. */
static void put_allocators(struct json *j, uint32_t allocators)
{
	static const char *const names[REC_ALLOCATORS] = {"other",    "glibc",	  "musl",	 "jemalloc",
							  "mimalloc", "tcmalloc", "operator new"};

	json_array(j, "allocators");
	for (int i = REC_ALLOCATORS - 1; i >= 0; i--)
		if (allocators & 1u << i)
			json_string(j, NULL, sv_of(names[i]));
	json_end_array(j);
}

static void put_allocator(struct writing *w, struct json *j, const struct allocator *a)
{
	struct proc_key key = {.tgid = a->key.tgid, .start_ns = a->key.start_ns, .exec_id = a->exec_id};
	struct alloc_estimate e = profile_alloc_of_process(a);
	uint32_t shown = a->key.tgid;
	const char *name = w->namer->name(w->namer->ctx, &key, &shown);

	json_object(j, NULL);
	json_uint(j, "pid", shown);
	json_string(j, "name", sv_of(name ? name : ""));
	json_uint(j, "windows", a->windows);
	json_uint(j, "window_ns", a->window_ns);
	json_double(j, "share", profile_alloc_share(a), 6);
	put_allocators(j, a->allocators);
	put_number(j, "seen_bytes", profile_alloc_seen_bytes(a));
	put_number(j, "seen_count", (double)a->count);
	put_number(j, "bytes", e.bytes);
	put_number(j, "error_bytes", e.error);
	put_number(j, "count", e.count);
	put_number(j, "unfollowed_samples", a->follows ? (double)a->unfollowed : NAN);
	json_uint(j, "traps_ns", a->all_traps_ns);
	json_end_object(j);
}

/* Samples of allocations without a place in the file's times, and where these begin. */
static void put_alloc_times_header(const struct writing *w, struct json *j)
{
	const struct timeline *t = &w->p->alloc_times, *windows = &w->p->alloc_windows;
	uint64_t from_ns = t->from_ns > windows->from_ns ? t->from_ns : windows->from_ns, without = t->dropped;
	const struct timed_alloc *ring = t->ring;

	for (size_t i = 0; i < t->count; i++)
		without += ring[i].stack->row == NO_ROW;
	if (without)
		json_uint(j, "samples_without_time", without);
	if (t->dropped || windows->dropped)
		json_uint(j, "timeline_from_us", micros(w, from_ns) + 1);
}

static void put_memory_header(struct writing *w, struct json *j)
{
	const struct profile *p = w->p;
	struct allocator *a, *next;
	uint32_t rows = 0;

	json_object(j, "alloc");
	json_uint(j, "bytes_per_sample", p->sampling.alloc_bytes);
	json_uint(j, "samples", p->samples[PROFILE_ALLOC]);
	json_uint(j, "fault_period", p->sampling.fault_period);
	json_uint(j, "fault_samples", p->samples[PROFILE_FAULT]);
	json_uint(j, "faults", p->weight_ns[PROFILE_FAULT]);
	json_array(j, "processes");
	HASH_ITER (hh, p->allocators, a, next)
		if (a->windows) {
			a->row = rows++;
			put_allocator(w, j, a);
		}
	json_end_array(j);
	put_alloc_times_header(w, j);
	json_end_object(j);
}

static void put_header(struct writing *w, struct json *j)
{
	const struct rec_sampling *r = &w->p->sampling;

	json_uint(j, "format", 1);
	if (r->ts_ns > w->p->begin_ns)
		json_uint(j, "window_ns", r->ts_ns - w->p->begin_ns);
	if (r->period_ns) {
		json_object(j, "cpu");
		json_uint(j, "period_ns", r->period_ns);
		put_axis(j, w, PROFILE_CPU, PROFILE_QUEUE);
		json_uint(j, "deep_samples", w->state_samples[PROFILE_DEEP]);
		json_uint(j, "broken_samples", w->state_samples[PROFILE_BROKEN]);
		json_uint(j, "broken_ns", w->state_ns[PROFILE_BROKEN]);
		json_end_object(j);
	}
	if (r->off_cpu_min_ns) {
		json_object(j, "off_cpu");
		json_uint(j, "min_ns", r->off_cpu_min_ns);
		put_axis(j, w, PROFILE_QUEUE, PROFILE_MEMORY);
		json_end_object(j);
	}
	if (r->alloc_bytes)
		put_memory_header(w, j);
	json_uint(j, "samples_without_stack", w->p->unkept);
	json_uint(j, "lost_samples", w->p->lost->n[LOST_SAMPLES]);
	if (w->p->timeline.dropped) {
		json_uint(j, "samples_without_time", w->p->timeline.dropped);
		json_uint(j, "timeline_from_us", micros(w, w->p->timeline.from_ns) + 1);
	}
}

/* A row of a table: its own line. */
static void row(struct writing *w, struct json *j)
{
	(void)w;
	if (!j->err)
		j->err = buf_puts(j->out, j->comma ? ",\n" : "\n");
	j->comma = false;
	json_array(j, NULL);
}

static void end_table(struct json *j)
{
	if (!j->err)
		j->err = buf_putc(j->out, '\n');
	json_end_array(j);
}

static void put_threads(struct writing *w, struct json *j)
{
	json_array(j, "threads");
	for (uint32_t i = 0; i < w->p->thread_count; i++) {
		const struct thread *t = w->p->thread_list[i];
		struct proc_key key = {.tgid = t->key.tgid, .start_ns = t->key.start_ns, .exec_id = t->exec_id};
		uint32_t shown = t->key.tgid;
		const char *name = t->key.tgid ? w->namer->name(w->namer->ctx, &key, &shown) : "(others)";

		row(w, j);
		json_uint(j, NULL, shown);
		json_uint(j, NULL, t->key.tid);
		json_string(j, NULL, sv_of(name ? name : ""));
		json_string(j, NULL, sv_of(t->comm));
		json_end_array(j);
	}
	end_table(j);
}

static int put_frames(struct writing *w, struct json *j)
{
	const struct symbol **rows = calloc(w->shown_count + 1, sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->p->symbol_count; i++)
		if (w->shown[i])
			rows[w->shown[i] - 1] = w->p->symbols[i];
	json_array(j, "frames");
	for (uint32_t i = 0; i < w->shown_count; i++) {
		row(w, j);
		json_string(j, NULL, name_of(rows[i]));
		json_string(j, NULL, rows[i]->source == REC_FRAME_NOWHERE ? SV("[nowhere]") : module_of(rows[i]));
		json_end_array(j);
	}
	end_table(j);
	free(rows);
	return 0;
}

/* Its state and frames; NULL: without frames. */
static void put_frames_of(struct writing *w, struct json *j, const struct stack *s)
{
	static const char *const states[] = {"whole", "deep", "broken"};
	uint32_t len = s ? length_of(w->p, s) : 0;

	json_string(j, NULL, sv_of(s ? states[state_of(w->p, s)] : states[PROFILE_WHOLE]));
	json_array(j, NULL);
	for (uint32_t i = WORDS; i < len; i++)
		json_uint(j, NULL, w->shown[symbol_at(w->p, s, i)->id] - 1);
	json_end_array(j);
}

static void put_stack(struct writing *w, struct json *j, uint32_t kind, uint32_t thread, uint64_t weight_ns,
		      uint64_t samples, const struct stack *s)
{
	row(w, j);
	json_string(j, NULL, sv_of(profile_kind_name((enum profile_kind)kind)));
	json_uint(j, NULL, thread);
	json_uint(j, NULL, weight_ns);
	json_uint(j, NULL, samples);
	put_frames_of(w, j, s);
	json_end_array(j);
}

static void put_stacks(struct writing *w, struct json *j)
{
	uint32_t next = (uint32_t)w->stack_count;

	json_array(j, "stacks");
	for (size_t i = 0; i < w->stack_count; i++) {
		const struct stack *s = w->stacks[i];

		put_stack(w, j, s->words[WORD_KIND], s->words[WORD_THREAD], s->weight_ns, s->samples, s);
	}
	for (uint32_t i = 0; i < w->p->thread_count * PROFILE_KINDS; i++) {
		if (!w->cut[2 * i + 1])
			continue;
		put_stack(w, j, i % PROFILE_KINDS, i / PROFILE_KINDS, w->cut[2 * i], w->cut[2 * i + 1], NULL);
		w->cut[2 * i] = next++;
	}
	end_table(j);
}

/* Those of stacks that are not written, once put_stacks() ran. */
static uint32_t row_of(const struct writing *w, const struct stack *s)
{
	if (s->row != NO_ROW)
		return s->row;
	return (uint32_t)w->cut[(s->words[WORD_THREAD] * (size_t)PROFILE_KINDS + s->words[WORD_KIND]) * 2];
}

/* Each sample is three numbers: how long after the one before it began, its length or weight, and its stack's row. The
 * first of a row of the table counts from the trace's beginning, so that a row is of use without the others. */
static int put_timeline(struct writing *w, struct json *j)
{
	const struct timeline *t = &w->p->timeline;
	struct timed *sorted = profile_by_time(t, profile_compare_timed);
	uint64_t before = 0;

	if (!sorted)
		return -ENOMEM;
	json_array(j, "timeline");
	for (size_t i = 0; i < t->count; i++) {
		const struct timed *s = &sorted[i];
		uint64_t begin = micros(w, profile_begin_of(s));

		if (i % TIMES_A_ROW == 0)
			row(w, j);
		json_uint(j, NULL, i % TIMES_A_ROW ? begin - before : begin);
		json_uint(j, NULL,
			  s->stack->words[WORD_KIND] == PROFILE_CPU ? s->ns / 1000 : micros(w, s->end_ns) - begin);
		json_uint(j, NULL, row_of(w, s->stack));
		if (i % TIMES_A_ROW == TIMES_A_ROW - 1 || i + 1 == t->count)
			json_end_array(j);
		before = begin;
	}
	end_table(j);
	free(sorted);
	return 0;
}

/* Of page faults that were sampled one in so many: how far off their sum may be. */
static struct alloc_estimate faults_of(const struct writing *w, const struct stack *s)
{
	double period = (double)w->p->sampling.fault_period;

	return (struct alloc_estimate){.bytes = (double)s->weight_ns * PROFILE_FAULT_BYTES,
				       .error = 1.96 * period * sqrt((double)s->samples) * PROFILE_FAULT_BYTES,
				       .count = (double)s->weight_ns,
				       .kept_bytes = NAN,
				       .kept_count = NAN};
}

static void put_memory_row(struct writing *w, struct json *j, const struct stack *s)
{
	struct alloc_estimate e = s->alloc ? profile_alloc_of_stack(w->p, s) : faults_of(w, s);

	row(w, j);
	json_string(j, NULL, sv_of(profile_kind_name((enum profile_kind)s->words[WORD_KIND])));
	json_uint(j, NULL, s->words[WORD_THREAD]);
	put_number(j, NULL, e.bytes);
	put_number(j, NULL, e.error);
	put_number(j, NULL, e.count);
	json_uint(j, NULL, s->samples);
	put_number(j, NULL, e.kept_bytes);
	put_number(j, NULL, e.kept_count);
	put_frames_of(w, j, s);
	json_end_array(j);
}

static void put_memory(struct writing *w, struct json *j)
{
	json_array(j, "memory");
	for (size_t i = 0; i < w->memory_count; i++)
		put_memory_row(w, j, w->memory[i]);
	end_table(j);
}

/* As the timeline, but five numbers: when, its thread, the row of `memory`, and what it stands for in its window. */
static int put_alloc_times(struct writing *w, struct json *j)
{
	const struct timeline *t = &w->p->alloc_times;
	struct timed_alloc *sorted = profile_by_time(t, profile_compare_allocs);
	uint64_t before = 0;
	size_t at = 0;

	if (!sorted)
		return -ENOMEM;
	json_array(j, "allocations");
	for (size_t i = 0; i < t->count; i++) {
		const struct timed_alloc *s = &sorted[i];
		uint64_t when = micros(w, s->end_ns);

		if (s->stack->row == NO_ROW)
			continue;
		if (at % TIMES_A_ROW == 0) {
			if (at)
				json_end_array(j);
			row(w, j);
		}
		json_uint(j, NULL, at % TIMES_A_ROW ? when - before : when);
		json_uint(j, NULL, s->tid);
		json_uint(j, NULL, s->stack->row);
		json_double(j, NULL, (double)s->bytes, 0);
		json_double(j, NULL, (double)s->count, 3);
		before = when;
		at++;
	}
	if (at)
		json_end_array(j);
	end_table(j);
	free(sorted);
	return 0;
}

static void put_window(struct writing *w, struct json *j, const struct timed_window *t)
{
	row(w, j);
	json_uint(j, NULL, micros(w, t->end_ns));
	json_uint(j, NULL, t->allocator->row);
	json_double(j, NULL, t->cpu_ns, 0);
	json_double(j, NULL, t->own_ns, 0);
	json_double(j, NULL, t->whole_ns, 0);
	json_uint(j, NULL, t->bytes);
	json_uint(j, NULL, t->count);
	json_end_array(j);
}

/* And of each process what it took after its last one. */
static int put_windows(struct writing *w, struct json *j)
{
	const struct timeline *t = &w->p->alloc_windows;
	struct timed_window *sorted = profile_by_time(t, profile_compare_windows);
	struct allocator *a, *next;

	if (!sorted)
		return -ENOMEM;
	json_array(j, "alloc_windows");
	for (size_t i = 0; i < t->count; i++)
		put_window(w, j, &sorted[i]);
	HASH_ITER (hh, w->p->allocators, a, next)
		if (a->windows && profile_alloc_untimed_ns(a) > 0)
			put_window(w, j,
				   &(struct timed_window){.end_ns = a->last_ns,
							  .allocator = a,
							  .whole_ns = profile_alloc_untimed_ns(a)});
	end_table(j);
	free(sorted);
	return 0;
}

/* The tables of --alloc. 0 or -ENOMEM. */
static int put_allocations(struct writing *w, struct json *j)
{
	int err;

	put_memory(w, j);
	err = put_alloc_times(w, j);
	return err ? err : put_windows(w, j);
}

int profile_json(const struct profile *p, struct buf *out, const struct profile_namer *namer, uint64_t start_ns)
{
	struct writing w = {.p = p, .out = out, .namer = namer, .start_ns = start_ns};
	struct json j;
	int err;

	if (!p->sampling.period_ns && !p->sampling.off_cpu_min_ns && !p->sampling.alloc_bytes)
		return 0;
	json_init(&j, out);
	err = choose(&w);
	if (!err) {
		json_object(&j, NULL);
		put_header(&w, &j);
		put_threads(&w, &j);
		err = put_frames(&w, &j);
		put_stacks(&w, &j);
		if (!err)
			err = put_timeline(&w, &j);
		if (!err && p->sampling.alloc_bytes)
			err = put_allocations(&w, &j);
		json_end_object(&j);
	}
	free(w.stacks);
	free(w.shown);
	free(w.cut);
	return err ? err : j.err;
}
