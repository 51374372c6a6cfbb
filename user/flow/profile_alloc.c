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
 * What a trap takes of a program, whose caches and predictors it spoils, times what perfbpf's own traps take
 * (attach/allocwindow.c): in 31 runs with five allocators, at 0.1 to 3 million allocations a second on a crowded
 * machine, 0.98 to 1.25, and once 1.33. Its mean, and the standard deviation that is taken for granted. The windows
 * themselves do not tell: those that also see what is freed have more traps for as many allocations, but a free() right
 * before a malloc() makes that one's trap cheaper.
 */
#define TRAP_FACTOR    1.08
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

static void close_stacks(struct profile *p, const struct allocator *a, const double of[OF_COUNT])
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
			x->xx += x->bytes * x->bytes;
			x->x_all += x->bytes * of[OF_ALL];
			x->x_exact += x->bytes * of[OF_EXACT];
			x->x_cpu += x->bytes * of[OF_CPU];
			x->x_traps += x->bytes * of[OF_TRAPS];
		}
		x->bytes = x->count = 0;
	}
}

/* What it took for itself since it was looked at first. */
static double ran_of(const struct allocator *a)
{
	return (double)a->cpu_ns - (double)a->since_cpu_ns - TRAP_FACTOR * (double)a->all_traps_ns;
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

	close_stacks(p, a, of);
	a->windows++;
	a->window_ns += r->ts_ns - r->begin_ns;
	a->count += r->count;
	a->unfollowed += r->unfollowed;
	a->follows |= r->follows;
	a->allocators |= r->allocators;
	profile_keep_time(&p->alloc_windows, &(struct timed_window){.end_ns = r->ts_ns,
								    .allocator = a,
								    .cpu_ns = of[OF_CPU],
								    .own_ns = of[OF_CPU] - TRAP_FACTOR * of[OF_TRAPS],
								    .whole_ns = profile_alloc_untimed_ns(a),
								    .bytes = r->bytes,
								    .count = r->count});
	a->timed_ns = ran_of(a);
	for (int i = 0; i < OF_COUNT; i++) {
		a->sum[i] += of[i];
		for (int j = i; j < OF_COUNT; j++)
			a->product[i][j] += of[i] * of[j];
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

/* What the estimates of a process have in common. */
struct basis {
	double seen, whole; /* its own processor time in windows, and in all */
	double scale, rate; /* whole by seen; bytes by seen */
};

/* False: nothing was seen. */
static bool basis_of(const struct allocator *a, struct basis *b)
{
	double least = OWN_MIN * a->sum[OF_CPU];

	b->seen = a->sum[OF_CPU] - TRAP_FACTOR * a->sum[OF_TRAPS];
	b->seen = b->seen > least ? b->seen : least;
	b->whole = ran_of(a);
	b->whole = b->whole > b->seen ? b->whole : b->seen;
	if (b->seen <= 0)
		return false;
	b->scale = b->whole / b->seen;
	b->rate = a->sum[OF_EXACT] / b->seen;
	return true;
}

double profile_alloc_share(const struct allocator *a)
{
	struct basis b;

	return basis_of(a, &b) ? b.seen / b.whole : 0;
}

/* Student's distribution, two-sided 95 %, by its expansion around the normal one: within 4 % from 3 degrees on. */
static double student_95(double degrees)
{
	return NORMAL_95 + 2.37 / degrees + 2.82 / (degrees * degrees);
}

/* squares: of what windows are off the mean, summed. */
static double error_of(const struct allocator *a, const struct basis *b, double bytes, double squares)
{
	double n = (double)a->windows, unseen = 1 - b->seen / b->whole;
	double windows = b->scale * sqrt((squares > 0 ? squares : 0) * n / (n - 1) * unseen);
	double traps = bytes * TRAP_DEVIATION * a->sum[OF_TRAPS] / b->seen * unseen;

	return a->windows < WINDOWS_MIN ? NAN : hypot(student_95(n - 1) * windows, NORMAL_95 * traps);
}

static double product(const struct allocator *a, int i, int j)
{
	return i < j ? a->product[i][j] : a->product[j][i];
}

/* Sum of squares of what windows have of: all times f[OF_ALL], exact times f[OF_EXACT] … */
static double square(const struct allocator *a, const double f[OF_COUNT])
{
	double sum = 0;

	for (int i = 0; i < OF_COUNT; i++)
		for (int j = 0; j < OF_COUNT; j++)
			sum += f[i] * f[j] * product(a, i, j);
	return sum;
}

struct alloc_estimate profile_alloc_of_process(const struct allocator *a)
{
	struct alloc_estimate e = {NAN, NAN, NAN, NAN, NAN};
	struct basis b;

	if (!basis_of(a, &b))
		return e;
	e.bytes = b.rate * b.whole;
	e.count = (double)a->count * b.scale;
	/* exact - rate * own time */
	e.error = error_of(a, &b, e.bytes,
			   square(a, (const double[OF_COUNT]){
					     [OF_EXACT] = 1, [OF_CPU] = -b.rate, [OF_TRAPS] = b.rate * TRAP_FACTOR}));
	return e;
}

/*
 * How much the windows differ in what is told of a stack, whose share of all samples is s: in x - s * all (its share of
 * the samples there), and in s * (exact - rate * own time) (what was allocated).
 */
static double squares_of(const struct allocator *a, const struct basis *b, const struct alloc_sums *x)
{
	double s = x->sum / a->sum[OF_ALL], r = b->rate;
	const double f[OF_COUNT] = {[OF_ALL] = -s, [OF_EXACT] = s, [OF_CPU] = -s * r, [OF_TRAPS] = s * r * TRAP_FACTOR};

	return x->xx + square(a, f) +
	       2 * (f[OF_ALL] * x->x_all + f[OF_EXACT] * x->x_exact + f[OF_CPU] * x->x_cpu + f[OF_TRAPS] * x->x_traps);
}

struct alloc_estimate profile_alloc_of_stack(const struct profile *p, const struct stack *s)
{
	struct alloc_estimate e = {NAN, NAN, NAN, NAN, NAN};
	const struct allocator *a = profile_allocator_of(p, s);
	const struct alloc_sums *x = s->alloc;
	struct basis b;

	if (!a || !x || a->sum[OF_ALL] <= 0 || x->sum <= 0 || !basis_of(a, &b))
		return e;
	e.bytes = b.scale * a->sum[OF_EXACT] * x->sum / a->sum[OF_ALL];
	e.count = e.bytes * x->count_sum / x->sum;
	e.error = error_of(a, &b, e.bytes, squares_of(a, &b, x));
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
