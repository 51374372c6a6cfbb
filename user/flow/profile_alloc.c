/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What was allocated, by stack. The theory is that of a ratio estimate from clusters (Cochran, Sampling Techniques,
 * chapters 6 and 9A): windows are the clusters, a process's own processor time is what they are compared by.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile_data.h"

#define WINDOWS_MIN 4	 /* fewer tell nothing about each other */
#define NORMAL_95   1.96 /* two-sided */
#define OWN_MIN	    0.05 /* of its processor time in windows a process had for itself at least */
/*
 * How well it is known what traps take of a program: the standard deviation that is taken for granted, by the runs that
 * ALLOC_SPOILS comes from (bpf/event.h). The windows themselves do not tell: the ones that see more functions have more
 * traps for as many allocations, but one right after another spoils less.
 */
#define TRAP_DEVIATION 0.10

static struct allocator *allocator_of(struct profile *p, const struct proc_key *proc)
{
	struct thread_key key = {.start_ns = proc->start_ns, .tgid = proc->tgid};
	struct allocator *a;

	HASH_FIND(hh, p->allocators, &key, sizeof(key), a);
	if (a)
		return a;
	a = HASH_COUNT(p->allocators) < PROFILE_ALLOCATORS_MAX ? calloc(1, sizeof(*a)) : NULL;
	if (a) {
		a->key = key;
		HASH_ADD(hh, p->allocators, key, sizeof(a->key), a);
	}
	if (a && a->hh.tbl)
		return a;
	free(a);
	p->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

const struct allocator *profile_allocator_of(const struct profile *p, const struct stack *s)
{
	struct allocator *a;

	HASH_FIND(hh, p->allocators, &p->thread_list[s->words[WORD_THREAD]]->key, sizeof(a->key), a);
	return a;
}

/* --- samples ----------------------------------------------------------------------------------------------------- */

static void follow(struct profile *p, const struct rec_sample *r, struct stack *s, double bytes, double count)
{
	struct followed *f = HASH_COUNT(p->followed) < PROFILE_FOLLOWED_MAX ? calloc(1, sizeof(*f)) : NULL;

	s->alloc->followed_bytes += bytes;
	s->alloc->followed_count += count;
	if (f) {
		f->key = (struct followed_key){.start_ns = r->proc.start_ns,
					       .addr = r->addr,
					       .tgid = r->proc.tgid,
					       .exec_id = r->proc.exec_id};
		f->stack = s;
		f->bytes = bytes;
		f->count = count;
		HASH_ADD(hh, p->followed, key, sizeof(f->key), f);
	}
	/* One that cannot be followed was not seen freed: what is kept is an upper bound. */
	s->alloc->kept_bytes += bytes;
	s->alloc->kept_count += count;
	if (f && f->hh.tbl)
		return;
	free(f);
	p->lost->n[LOST_NO_MEMORY]++;
}

void profile_alloc_sample(struct profile *p, const struct rec_sample *r)
{
	/* What it stands for: the chance that none of its bytes was drawn is exp(-size / period). */
	double chance = -expm1(-(double)r->size / r->period), bytes, count;
	struct allocator *a = allocator_of(p, &r->proc);
	struct stack *s = a && r->size ? profile_stack_of(p, r, PROFILE_ALLOC) : NULL;

	if (s && !s->alloc) {
		s->alloc = calloc(1, sizeof(*s->alloc));
		if (!s->alloc)
			p->lost->n[LOST_NO_MEMORY]++;
	}
	if (!s || !s->alloc)
		return;
	bytes = (double)r->size / chance;
	count = 1 / chance;
	p->samples[PROFILE_ALLOC]++;
	s->samples++;
	s->alloc->bytes += bytes;
	s->alloc->count += count;
	a->open_all += bytes;
	profile_keep_time(
		&p->alloc_times,
		&(struct timed_alloc){
			.end_ns = r->ts_ns, .stack = s, .bytes = (float)bytes, .count = (float)count, .tid = r->tid});
	if (!s->alloc->open) {
		s->alloc->open = true;
		s->alloc->next_open = p->open_stacks;
		p->open_stacks = s;
	}
	if (r->addr)
		follow(p, r, s, bytes, count);
}

void profile_push_alloc_free(struct profile *p, const struct rec_alloc_free *r)
{
	struct followed_key key = {
		.start_ns = r->proc.start_ns, .addr = r->addr, .tgid = r->proc.tgid, .exec_id = r->proc.exec_id};
	struct followed *f;

	HASH_FIND(hh, p->followed, &key, sizeof(key), f);
	if (!f)
		return;
	f->stack->alloc->kept_bytes -= f->bytes;
	f->stack->alloc->kept_count -= f->count;
	HASH_DEL(p->followed, f);
	free(f);
}

/* --- windows ----------------------------------------------------------------------------------------------------- */

static void close_stacks(struct profile *p, const struct allocator *a, int kind, const double of[OF_COUNT])
{
	struct stack *s;

	while ((s = p->open_stacks)) {
		struct alloc_sums *x = s->alloc;

		p->open_stacks = x->next_open;
		x->open = false;
		/* Of another process: its window was lost. */
		if (profile_allocator_of(p, s) == a) {
			x->sum += x->bytes;
			x->count_sum += x->count;
			x->of[kind].xx += x->bytes * x->bytes;
			for (int i = 0; i < OF_COUNT; i++)
				x->of[kind].x[i] += x->bytes * of[i];
		}
		x->bytes = x->count = 0;
	}
}

/* What it took for itself since it was looked at first. */
static double ran_of(const struct allocator *a)
{
	return (double)a->cpu_ns - (double)a->since_cpu_ns - (double)a->all_traps_ns;
}

double profile_alloc_untimed_ns(const struct allocator *a)
{
	return ran_of(a) - a->timed_ns;
}

static void add_window(struct profile *p, struct allocator *a, const struct rec_alloc_window *r)
{
	const double of[OF_COUNT] = {[OF_ALL] = a->open_all,
				     [OF_EXACT] = (double)r->bytes,
				     [OF_CPU] = (double)r->window_cpu_ns,
				     [OF_TRAPS] = (double)r->window_traps_ns};
	int kind = r->follows ? WINDOWS_MANY : WINDOWS_FEW;
	struct window_sums *sums = &a->of[kind];

	close_stacks(p, a, kind, of);
	a->windows++;
	a->window_ns += r->ts_ns - r->begin_ns;
	a->count += r->count;
	a->unfollowed += r->unfollowed;
	a->follows |= r->follows;
	a->allocators |= r->allocators;
	profile_keep_time(&p->alloc_windows, &(struct timed_window){.end_ns = r->ts_ns,
								    .allocator = a,
								    .cpu_ns = of[OF_CPU],
								    .own_ns = of[OF_CPU] - of[OF_TRAPS],
								    .whole_ns = profile_alloc_untimed_ns(a),
								    .bytes = r->bytes,
								    .count = r->count});
	a->timed_ns = ran_of(a);
	sums->windows++;
	sums->count += r->count;
	for (int i = 0; i < OF_COUNT; i++) {
		sums->sum[i] += of[i];
		for (int j = i; j < OF_COUNT; j++)
			sums->product[i][j] += of[i] * of[j];
	}
	a->open_all = 0;
}

void profile_push_alloc_window(struct profile *p, const struct rec_alloc_window *r)
{
	struct allocator *a = allocator_of(p, &r->proc);

	if (!a)
		return;
	/* Another program: its traps are counted anew. */
	if (a->exec_id != r->proc.exec_id)
		a->traps_before_ns += a->last_traps_ns;
	a->last_traps_ns = r->all_traps_ns;
	a->exec_id = r->proc.exec_id;
	if (!a->windows)
		a->since_cpu_ns = r->since_cpu_ns;
	if (r->cpu_ns > a->cpu_ns)
		a->cpu_ns = r->cpu_ns;
	a->all_traps_ns = a->traps_before_ns + r->all_traps_ns;
	a->last_ns = r->ts_ns;
	if (r->ts_ns > r->begin_ns)
		add_window(p, a, r);
}

void profile_push_exit(struct profile *p, const struct rec_exit *r)
{
	struct thread_key key = {.start_ns = r->proc.start_ns, .tgid = r->proc.tgid};
	struct allocator *a;

	HASH_FIND(hh, p->allocators, &key, sizeof(key), a);
	if (a && r->cpu_ns > a->cpu_ns) {
		a->cpu_ns = r->cpu_ns;
		a->last_ns = r->ts_ns;
	}
}

/* --- estimates --------------------------------------------------------------------------------------------------- */

/* What is told by windows of some kinds. */
struct basis {
	bool timed[WINDOWS_KINDS]; /* by whose time is told how much was allocated; of all what share each stack has */
	struct window_sums w;	   /* sums of these, their products left out */
	double seen, whole;	   /* its own processor time in them, and in all */
	double scale, rate;	   /* whole by seen; bytes by seen */
	double error;		   /* of all bytes */
};

static void add_sums(struct window_sums *to, const struct window_sums *w)
{
	to->windows += w->windows;
	to->count += w->count;
	for (int i = 0; i < OF_COUNT; i++)
		to->sum[i] += w->sum[i];
}

static double own_time(const struct window_sums *w)
{
	double own = w->sum[OF_CPU] - w->sum[OF_TRAPS];

	return fmax(own, OWN_MIN * w->sum[OF_CPU]);
}

/* Student's distribution, two-sided 95 %, by its expansion around the normal one: within 4 % from 3 degrees on. */
static double student_95(double degrees)
{
	return NORMAL_95 + 2.37 / degrees + 2.82 / (degrees * degrees);
}

/* squares: of what windows are off the mean, summed. */
static double error_of(const struct basis *b, double bytes, double squares)
{
	double n = (double)b->w.windows, unseen = 1 - b->seen / b->whole;
	double windows = b->scale * sqrt((squares > 0 ? squares : 0) * n / (n - 1) * unseen);
	double traps = bytes * TRAP_DEVIATION * b->w.sum[OF_TRAPS] / b->seen * unseen;

	return b->w.windows < WINDOWS_MIN ? NAN : hypot(student_95(n - 1) * windows, NORMAL_95 * traps);
}

/* Sum of squares of what windows have of: all times f[OF_ALL], exact times f[OF_EXACT] … */
static double square(const struct window_sums *w, const double f[OF_COUNT])
{
	double sum = 0;

	for (int i = 0; i < OF_COUNT; i++)
		for (int j = 0; j < OF_COUNT; j++)
			sum += f[i] * f[j] * (i < j ? w->product[i][j] : w->product[j][i]);
	return sum;
}

/* False: nothing was seen by windows of this kind, or of both. */
static bool basis_of_kinds(const struct allocator *a, bool few, bool many, struct basis *b)
{
	double squares = 0;

	*b = (struct basis){.timed = {[WINDOWS_FEW] = few, [WINDOWS_MANY] = many}, .whole = ran_of(a)};
	for (int i = 0; i < WINDOWS_KINDS; i++)
		if (b->timed[i])
			add_sums(&b->w, &a->of[i]);
	b->seen = own_time(&b->w);
	if (b->seen <= 0)
		return false;
	b->whole = fmax(b->whole, b->seen);
	b->scale = b->whole / b->seen;
	b->rate = b->w.sum[OF_EXACT] / b->seen;
	for (int i = 0; i < WINDOWS_KINDS; i++) /* exact - rate * own time */
		if (b->timed[i])
			squares += square(
				&a->of[i],
				(const double[OF_COUNT]){[OF_EXACT] = 1, [OF_CPU] = -b->rate, [OF_TRAPS] = b->rate});
	b->error = error_of(b, b->rate * b->whole, squares);
	return true;
}

/*
 * Where traps are what is known least of, the windows with many of them would only make it worse; where the windows
 * differ, all of them are better. False: nothing was seen.
 */
static bool basis_of(const struct allocator *a, struct basis *b)
{
	struct basis few;

	if (!basis_of_kinds(a, true, true, b))
		return false;
	if (basis_of_kinds(a, true, false, &few) && few.error < b->error)
		*b = few;
	return true;
}

double profile_alloc_seen_bytes(const struct allocator *a)
{
	return a->of[WINDOWS_FEW].sum[OF_EXACT] + a->of[WINDOWS_MANY].sum[OF_EXACT];
}

double profile_alloc_share(const struct allocator *a)
{
	struct basis b;

	return basis_of_kinds(a, true, true, &b) ? b.seen / b.whole : 0;
}

struct alloc_estimate profile_alloc_of_process(const struct allocator *a)
{
	struct alloc_estimate e = {NAN, NAN, NAN, NAN, NAN};
	struct basis b;

	if (!basis_of(a, &b))
		return e;
	e.bytes = b.rate * b.whole;
	e.count = (double)b.w.count * b.scale;
	e.error = b.error;
	return e;
}

/*
 * How much the windows differ in what is told of a stack, whose share of all samples is s: in x - s * all (its share of
 * the samples there, of all windows), and in s * (exact - rate * own time) (what was allocated, of those that tell it).
 * The former counts as much as the windows that tell the latter are of all.
 */
static double squares_of(const struct allocator *a, const struct basis *b, const struct alloc_sums *x, double all)
{
	double s = x->sum / all, k = b->w.sum[OF_EXACT] / all, squares = 0;

	for (int kind = 0; kind < WINDOWS_KINDS; kind++) {
		double t = b->timed[kind] ? s : 0;
		const double f[OF_COUNT] = {
			[OF_ALL] = -k * s, [OF_EXACT] = t, [OF_CPU] = -t * b->rate, [OF_TRAPS] = t * b->rate};

		squares += k * k * x->of[kind].xx + square(&a->of[kind], f);
		for (int i = 0; i < OF_COUNT; i++)
			squares += 2 * k * f[i] * x->of[kind].x[i];
	}
	return squares;
}

struct alloc_estimate profile_alloc_of_stack(const struct profile *p, const struct stack *s)
{
	struct alloc_estimate e = {NAN, NAN, NAN, NAN, NAN};
	const struct allocator *a = profile_allocator_of(p, s);
	const struct alloc_sums *x = s->alloc;
	double all = a ? a->of[WINDOWS_FEW].sum[OF_ALL] + a->of[WINDOWS_MANY].sum[OF_ALL] : 0;
	struct basis b;

	if (!x || all <= 0 || x->sum <= 0 || !basis_of(a, &b))
		return e;
	e.bytes = b.scale * b.w.sum[OF_EXACT] * x->sum / all;
	e.count = e.bytes * x->count_sum / x->sum;
	e.error = error_of(&b, e.bytes, squares_of(a, &b, x, all));
	if (x->followed_bytes > 0) {
		e.kept_bytes = e.bytes * fmax(x->kept_bytes, 0) / x->followed_bytes;
		e.kept_count = e.count * fmax(x->kept_count, 0) / x->followed_count;
	}
	return e;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

void profile_alloc_release(struct profile *p)
{
	struct allocator *a, *next_allocator;
	struct followed *f, *next;

	HASH_ITER (hh, p->followed, f, next) {
		HASH_DEL(p->followed, f);
		free(f);
	}
	HASH_ITER (hh, p->allocators, a, next_allocator) {
		HASH_DEL(p->allocators, a);
		free(a);
	}
}
