/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Operations: whose a call is, where the time went, and what nobody can tell. */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "flow/op/op.h"

#define MS 1000000ull

struct rig {
	struct ops *o;
};

static struct rig rig_new(void)
{
	struct rig r = {ops_new()};

	assert_non_null(r.o);
	return r;
}

/* A request in ms, on a thread of process 1. */
static void request(struct rig *r, uint32_t name, uint32_t tid, unsigned from, unsigned to)
{
	assert_int_equal(ops_push_operation(r->o, &(struct op_operation){.begin_ns = from * MS,
									 .end_ns = to * MS,
									 .pid = 1,
									 .tid = tid,
									 .answer_tid = tid,
									 .name = name}),
			 0);
}

static void call(struct rig *r, enum op_kind kind, uint32_t shape, uint32_t tid, unsigned from, unsigned to)
{
	assert_int_equal(ops_push_call(r->o, &(struct op_call){.begin_ns = from * MS,
							       .end_ns = to * MS,
							       .pid = 1,
							       .tid = tid,
							       .shape = shape,
							       .kind = kind}),
			 0);
}

static void state(struct rig *r, enum op_what what, uint32_t tid, unsigned from, unsigned to)
{
	assert_int_equal(
		ops_push_state(r->o, &(struct op_state){.begin_ns = from * MS,
							.end_ns = to * MS,
							.weight_ns = what == OP_CPU || what == OP_ALLOC ? 10 * MS : 0,
							.pid = 1,
							.tid = tid,
							.stack = 7,
							.what = what}),
		0);
}

static const struct op_group *solve(struct rig *r, size_t wanted)
{
	const struct op_group *g;
	size_t count;

	assert_int_equal(ops_solve(r->o), 0);
	g = ops_groups(r->o, &count);
	assert_int_equal(count, wanted);
	return g;
}

#define assert_ms(ns, ms) assert_int_equal((uint64_t)(ns), (ms)*MS)

/* Two threads at once: each call is its thread's. */
static void by_thread(void **unused)
{
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	request(&r, 1, 11, 0, 100);
	request(&r, 2, 12, 10, 90);
	call(&r, OP_DB, 5, 11, 20, 30);
	call(&r, OP_DB, 5, 11, 25, 40); /* time is their union */
	call(&r, OP_LLM, 6, 12, 20, 80);
	call(&r, OP_HTTP, 7, 12, 70, 95); /* as far as the operation goes */
	call(&r, OP_HTTP, 7, 13, 20, 30); /* of a thread that serves nobody: either's */
	call(&r, OP_HTTP, 7, 13, 92, 99); /* then only one goes on */
	call(&r, OP_HTTP, 7, 12, 92, 99); /* of one that serves, but nothing just then */
	g = solve(&r, 2);
	assert_int_equal(g[0].name, 1);
	assert_int_equal(g[0].kinds[OP_DB].count, 2);
	assert_ms(g[0].kinds[OP_DB].union_ns, 20);
	assert_ms(g[0].in_proc_ns, 73);
	assert_int_equal(g[1].kinds[OP_HTTP].count, 1);
	assert_ms(g[1].kinds[OP_LLM].union_ns, 60);
	assert_ms(g[1].kinds[OP_HTTP].union_ns, 20);
	assert_ms(g[1].in_proc_ns, 10);
	assert_ms(g[1].overlap_ns, 10);
	assert_int_equal(g[0].refused + g[1].refused, 0);
	assert_int_equal(g[0].clouded + g[1].clouded, 2);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->by_thread, 4);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->by_time, 1);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->unclear, 1);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->outside, 1);
	ops_free(r.o);
}

/* An event loop: what overlaps is refused, what does not is told by time. */
static void refused(void **unused)
{
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	request(&r, 1, 11, 0, 100);
	request(&r, 1, 11, 50, 150);
	request(&r, 1, 11, 200, 300);
	call(&r, OP_DB, 5, 11, 10, 20); /* only one was going on, which is refused all the same */
	call(&r, OP_DB, 5, 11, 60, 70);
	call(&r, OP_DB, 5, 11, 210, 220);
	call(&r, OP_DB, 5, 11, 290, 310); /* longer than what it would be for */
	call(&r, OP_DB, 5, 11, 400, 410);
	g = solve(&r, 1);
	assert_int_equal(g->calls, 3);
	assert_int_equal(g->refused, 2);
	assert_ms(g->wall_ns, 300);
	assert_ms(g->told_ns, 100);
	assert_ms(g->in_proc_ns, 90);
	assert_int_equal(g->kinds[OP_DB].count, 1);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->by_time, 1);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->unclear, 1);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->overlapped, 1);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->outside, 2);
	ops_free(r.o);
}

/* Answered on another thread: no thread of the process proves anything. */
static void threads_that_move(void **unused)
{
	struct op_operation moved = {
		.begin_ns = 0, .end_ns = 10 * MS, .pid = 1, .tid = 13, .answer_tid = 14, .name = 1};
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	assert_int_equal(ops_push_operation(r.o, &moved), 0);
	request(&r, 1, 11, 100, 200);
	request(&r, 1, 12, 150, 250);
	call(&r, OP_DB, 5, 12, 160, 170);
	g = solve(&r, 1);
	assert_int_equal(g->refused, 2);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->unclear, 1);
	ops_free(r.o);
}

/* One whose end was not seen hides what ran on its thread meanwhile, and the others go on. */
static void partial(void **unused)
{
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	assert_int_equal(
		ops_push_operation(
			r.o,
			&(struct op_operation){.end_ns = 1000 * MS, .pid = 1, .tid = 11, .name = 1, .partial = true}),
		0);
	request(&r, 1, 11, 10, 20);
	request(&r, 1, 12, 10, 30);
	call(&r, OP_DB, 5, 12, 12, 22);
	call(&r, OP_DB, 5, 11, 12, 15);
	g = solve(&r, 1);
	assert_int_equal(g->partial, 1);
	assert_int_equal(g->calls, 2);
	assert_int_equal(g->refused, 1);
	assert_ms(g->told_ns, 20);
	assert_ms(g->kinds[OP_DB].union_ns, 10);
	ops_free(r.o);
}

static void turn(struct rig *r, unsigned from, unsigned to)
{
	assert_int_equal(ops_push_operation(r->o, &(struct op_operation){.begin_ns = from * MS,
									 .end_ns = to * MS,
									 .pid = 1,
									 .lane = 1,
									 .name = 9,
									 .family = OP_TURN}),
			 0);
}

/* A turn that is alone among turns, while requests are served: only what one request is about may be its own. */
static void other_families(void **unused)
{
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	ops_states(r.o, true, true, 0);
	request(&r, 1, 11, 0, 100); /* around the first one */
	turn(&r, 10, 60);
	call(&r, OP_DB, 5, 11, 20, 30);
	state(&r, OP_CPU, 11, 15, 15);
	request(&r, 1, 11, 200, 300); /* beside the second one */
	request(&r, 1, 12, 210, 310);
	turn(&r, 250, 280);
	call(&r, OP_DB, 5, 11, 255, 260);
	state(&r, OP_CPU, 11, 270, 270);
	turn(&r, 390, 410); /* more than the third one */
	request(&r, 1, 11, 400, 500);
	call(&r, OP_DB, 5, 13, 405, 407); /* of a thread that serves nobody */
	g = solve(&r, 2);
	assert_int_equal(g[0].family, OP_REQUEST);
	assert_int_equal(g[0].kinds[OP_DB].count, 3);
	assert_int_equal(g[0].refused, 0);
	assert_int_equal(g[0].clouded, 0);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->by_thread, 2);
	assert_int_equal(ops_totals(r.o, OP_REQUEST)->by_time, 1);
	assert_int_equal(g[1].family, OP_TURN);
	assert_int_equal(g[1].kinds[OP_DB].count, 1);
	assert_int_equal(g[1].clouded, 2);
	assert_int_equal(g[1].samples, 1);
	assert_int_equal(ops_totals(r.o, OP_TURN)->by_time, 1);
	assert_int_equal(ops_totals(r.o, OP_TURN)->unclear, 2);
	ops_free(r.o);
}

/* A service calls a model for what it is asked: the request is the operation. An agent that is asked works a turn. */
static void turns_in_requests(void **unused)
{
	struct op_operation turn = {.pid = 1, .name = 9, .family = OP_TURN, .single = true};
	struct op_call c = {.pid = 1, .tid = 11, .kind = OP_LLM, .shape = 3};
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	request(&r, 1, 11, 0, 100);
	request(&r, 1, 12, 20, 40); /* ends before the turns in the other one do */
	for (uint32_t lane = 1; lane <= 5; lane++) {
		turn.lane = c.lane = lane;
		turn.begin_ns = c.begin_ns = lane * 10 * MS;
		turn.end_ns = c.end_ns = turn.begin_ns + 30 * MS;
		if (lane == 4)
			turn.end_ns = c.end_ns = 110 * MS; /* goes on after it */
		turn.single = lane != 5;
		assert_int_equal(ops_push_operation(r.o, &turn), 0);
		assert_int_equal(ops_push_call(r.o, &c), 0);
	}
	g = solve(&r, 2);
	assert_int_equal(g[0].family, OP_REQUEST);
	assert_int_equal(g[0].kinds[OP_LLM].count, 5);
	assert_int_equal(g[1].family, OP_TURN);
	assert_int_equal(g[1].calls, 2);
	assert_int_equal(g[1].kinds[OP_LLM].count, 2);
	assert_int_equal(ops_totals(r.o, OP_TURN)->by_lane, 2);
	assert_int_equal(ops_totals(r.o, OP_TURN)->unclear, 0);
	ops_free(r.o);
}

static void lanes(void **unused)
{
	struct op_operation turn = {.begin_ns = 0, .end_ns = 100 * MS, .pid = 1, .name = 1, .family = OP_TURN};
	struct op_call c = {.begin_ns = 10 * MS, .end_ns = 20 * MS, .pid = 1, .tid = 5, .kind = OP_LLM, .shape = 3};
	struct rig r = rig_new();
	const struct op_group *g;

	(void)unused;
	for (uint32_t lane = 1; lane <= 2; lane++) {
		turn.lane = c.lane = lane;
		turn.name = lane;
		assert_int_equal(ops_push_operation(r.o, &turn), 0);
		for (unsigned i = 0; i < 10 + lane; i++)
			assert_int_equal(ops_push_call(r.o, &c), 0);
	}
	c.lane = 0;
	c.kind = OP_DB;
	assert_int_equal(ops_push_call(r.o, &c), 0);
	c.no_turn = true;
	assert_int_equal(ops_push_call(r.o, &c), 0);
	g = solve(&r, 2);
	assert_int_equal(g[0].kinds[OP_LLM].count + g[1].kinds[OP_LLM].count, 23);
	assert_ms(g[0].kinds[OP_LLM].union_ns, 10);
	assert_int_equal(g[0].patterns, 0); /* what a turn is */
	assert_int_equal(ops_totals(r.o, OP_TURN)->by_lane, 23);
	assert_int_equal(ops_totals(r.o, OP_TURN)->unclear, 1);
	ops_free(r.o);
}

/* What was seen twice counts once. */
static void twins(void **unused)
{
	struct rig r = rig_new();
	struct op_call f = {.pid = 1, .tid = 11, .kind = OP_DB, .shape = 9, .function = true};
	const struct op_group *g;

	(void)unused;
	request(&r, 1, 11, 0, 100);
	call(&r, OP_DB, 5, 11, 11, 19);
	call(&r, OP_DB, 5, 11, 30, 40);
	f.begin_ns = 10 * MS, f.end_ns = 20 * MS; /* around a command */
	assert_int_equal(ops_push_call(r.o, &f), 0);
	f.begin_ns = 32 * MS, f.end_ns = 33 * MS; /* a part of one */
	assert_int_equal(ops_push_call(r.o, &f), 0);
	f.begin_ns = 50 * MS, f.end_ns = 55 * MS; /* by itself */
	assert_int_equal(ops_push_call(r.o, &f), 0);
	call(&r, OP_HTTP, 5, 11, 60, 70);
	call(&r, OP_MCP, 5, 11, 60, 69);
	call(&r, OP_HTTP, 5, 11, 80, 81);
	g = solve(&r, 1);
	assert_int_equal(g->kinds[OP_DB].count, 3);
	assert_ms(g->kinds[OP_DB].union_ns, 25);
	assert_int_equal(g->kinds[OP_MCP].count, 1);
	assert_ms(g->kinds[OP_MCP].union_ns, 10);
	assert_int_equal(g->kinds[OP_HTTP].count, 1);
	assert_ms(g->in_proc_ns, 64);
	assert_int_equal((uint64_t)g->overlap_ns, 0);
	ops_free(r.o);
}

/* A process that goes on after the operation is not what it waited for. */
static void children(void **unused)
{
	struct rig r = rig_new();
	struct op_call c = {
		.begin_ns = 10 * MS, .end_ns = 20 * MS, .pid = 1, .tid = 11, .kind = OP_TOOL, .inside = true};
	const struct op_group *g;

	(void)unused;
	request(&r, 1, 11, 0, 100);
	assert_int_equal(ops_push_call(r.o, &c), 0);
	c.end_ns = 200 * MS;
	assert_int_equal(ops_push_call(r.o, &c), 0);
	g = solve(&r, 1);
	assert_int_equal(g->kinds[OP_TOOL].count, 1);
	assert_ms(g->in_proc_ns, 90);
	ops_free(r.o);
}

static void repeats(void **unused)
{
	struct rig r = rig_new();
	const struct op_pattern *p;
	const struct op_group *g;
	size_t count;

	(void)unused;
	for (unsigned i = 0; i < 3; i++) {
		request(&r, 1, 11, i * 100, i * 100 + 50);
		for (unsigned k = 0; k < 9 + i; k++) /* 9, 10, 11 */
			call(&r, OP_DB, 5, 11, i * 100 + 2 * k, i * 100 + 2 * k + 1);
		call(&r, OP_DB, 6, 11, i * 100 + 40, i * 100 + 41);
		call(&r, OP_DB, 0, 11, i * 100 + 41, i * 100 + 42); /* of unknown shapes nobody knows */
	}
	g = solve(&r, 1);
	p = ops_patterns(r.o, &count);
	assert_int_equal(count, 1);
	assert_int_equal(g->pattern, 0);
	assert_int_equal(g->patterns, 1);
	assert_int_equal(p->shape, 5);
	assert_int_equal(p->operations, 2);
	assert_int_equal(p->most, 11);
	assert_int_equal(p->usage.count, 21);
	assert_ms(p->usage.union_ns, 21);
	ops_free(r.o);
}

static void add(void *ctx, uint32_t stack, uint64_t weight_ns)
{
	assert_int_equal(stack, 7);
	*(uint64_t *)ctx += weight_ns;
}

static void in_proc(void **unused)
{
	struct rig r = rig_new();
	const struct op_group *g;
	uint64_t sampled = 0;

	(void)unused;
	ops_states(r.o, true, true, 50 * MS);
	request(&r, 1, 11, 0, 40); /* of before what is kept */
	request(&r, 1, 11, 100, 200);
	request(&r, 2, 12, 100, 200);
	call(&r, OP_DB, 5, 11, 120, 140);
	state(&r, OP_CPU, 11, 10, 10);
	state(&r, OP_CPU, 11, 110, 110);
	state(&r, OP_CPU, 11, 125, 125); /* in the call */
	state(&r, OP_CPU, 11, 150, 150);
	state(&r, OP_CPU, 11, 200, 200); /* after its end */
	state(&r, OP_BLOCKED, 11, 41, 105);
	state(&r, OP_BLOCKED, 11, 115, 145);
	state(&r, OP_QUEUE, 11, 145, 147);
	state(&r, OP_BLOCKED, 11, 190, 300);
	state(&r, OP_BLOCKED, 12, 100, 200);
	state(&r, OP_ALLOC, 11, 10, 10);
	state(&r, OP_ALLOC, 11, 125, 125); /* in the call */
	state(&r, OP_ALLOC, 11, 201, 201); /* after its end */
	state(&r, OP_ALLOC, 12, 150, 150); /* of another one */
	g = solve(&r, 2);
	assert_int_equal(g[0].name, 1);
	assert_ms(g[0].in_proc_ns, 120);
	assert_ms(g[0].split_ns, 80);
	assert_ms(g[0].waits_ns, 80);
	assert_ms(g[0].state_ns[OP_BLOCKED], 5 + 5 + 5 + 10);
	assert_ms(g[0].state_ns[OP_QUEUE], 2);
	assert_ms(g[0].state_ns[OP_CPU], 20);
	assert_int_equal(g[0].samples, 3);
	ops_each_sample(r.o, 0, OP_CPU, add, &sampled);
	assert_ms(sampled, 30);
	sampled = 0;
	ops_each_sample(r.o, 0, OP_ALLOC, add, &sampled);
	assert_ms(sampled, 20);
	assert_true(g[0].state_ns[OP_ALLOC] == 0);
	assert_ms(g[1].state_ns[OP_BLOCKED], 100);
	ops_free(r.o);
}

/* --- anything ---------------------------------------------------------------------------------------------------- */

static uint64_t seed;

static unsigned any(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % below);
}

struct pushed {
	struct op_operation operations[60];
	struct op_call calls[200];
	struct op_state states[200];
};

static void make_any(struct pushed *p)
{
	unsigned threads = 1 + any(4), span = 1 + any(300);

	for (size_t i = 0; i < 60; i++) {
		uint64_t begin = any(1000);

		p->operations[i] = (struct op_operation){.begin_ns = begin,
							 .end_ns = begin + any(span),
							 .pid = 1 + any(2),
							 .tid = any(threads + 1),
							 .lane = any(3),
							 .name = any(4),
							 .family = (enum op_family)any(OP_FAMILIES),
							 .partial = !any(20),
							 .single = !any(6)};
		p->operations[i].answer_tid = any(40) ? p->operations[i].tid : any(threads + 1);
	}
	for (size_t i = 0; i < 200; i++) {
		uint64_t begin = any(1000);

		p->calls[i] = (struct op_call){.begin_ns = begin,
					       .end_ns = begin + any(60),
					       .pid = 1 + any(2),
					       .tid = any(threads + 1),
					       .lane = any(3),
					       .shape = any(3),
					       .kind = (enum op_kind)any(OP_KINDS),
					       .function = !any(4),
					       .inside = !any(4),
					       .named = !any(8),
					       .no_turn = !any(8)};
		begin = any(1000);
		p->states[i] = (struct op_state){.begin_ns = begin,
						 .end_ns = begin + any(100),
						 .weight_ns = any(20),
						 .pid = 1 + any(2),
						 .tid = any(threads + 1),
						 .what = (enum op_what)any(OP_WHATS)};
	}
}

/* Pushed in another order each time. */
static struct ops *solve_any(struct pushed *p)
{
	struct ops *o = ops_new();

	assert_non_null(o);
	for (size_t n = 60; n; n--) {
		size_t at = any((unsigned)n);
		struct op_operation chosen = p->operations[at];

		p->operations[at] = p->operations[n - 1];
		p->operations[n - 1] = chosen;
		assert_int_equal(ops_push_operation(o, &chosen), 0);
	}
	for (size_t n = 200; n; n--) {
		size_t at = any((unsigned)n);
		struct op_call chosen = p->calls[at];
		struct op_state s = p->states[at];

		p->calls[at] = p->calls[n - 1];
		p->calls[n - 1] = chosen;
		p->states[at] = p->states[n - 1];
		p->states[n - 1] = s;
		assert_int_equal(ops_push_call(o, &chosen), 0);
		assert_int_equal(ops_push_state(o, &s), 0);
	}
	ops_states(o, true, true, 100);
	assert_int_equal(ops_solve(o), 0);
	return o;
}

/* An instant lies in it. */
static uint64_t end_of(const struct op_operation *p)
{
	return p->end_ns > p->begin_ns ? p->end_ns : p->begin_ns + 1;
}

/* By comparing each with each. */
static size_t parts_of_requests(const struct pushed *p)
{
	size_t parts = 0;

	for (size_t i = 0; i < 60; i++) {
		const struct op_operation *turn = &p->operations[i];
		bool found = false;

		for (size_t k = 0; k < 60 && turn->family == OP_TURN && turn->single; k++) {
			const struct op_operation *q = &p->operations[k];

			found |= q->family == OP_REQUEST && q->pid == turn->pid && q->begin_ns <= turn->begin_ns &&
				 end_of(q) >= end_of(turn);
		}
		parts += found;
	}
	return parts;
}

static void assert_sound(const struct ops *o, const struct pushed *p)
{
	size_t count, calls = 0, operations = 0, named = 0, of_turns = 0;
	const struct op_group *g = ops_groups(o, &count);

	for (size_t i = 0; i < count; i++, g++) {
		double sum = g->in_proc_ns - g->overlap_ns, states = 0;

		assert_true(g->refused + g->clouded <= g->calls);
		assert_true(g->told_ns <= g->wall_ns);
		assert_true(g->refused || g->told_ns == g->wall_ns);
		assert_true(!(g->p50_ns > g->p95_ns) && !(g->p95_ns > g->p99_ns) && !(g->p99_ns > g->max_ns));
		assert_true(!g->calls == isnan(g->p50_ns) && !g->calls == isnan(g->max_ns));
		assert_true((g->calls < 20) == isnan(g->p95_ns) && (g->calls < 100) == isnan(g->p99_ns));
		for (int k = 0; k < OP_KINDS; k++) {
			assert_true(g->kinds[k].union_ns <= g->told_ns);
			sum += g->kinds[k].union_ns;
		}
		assert_true(sum == g->told_ns); /* whole numbers */
		assert_true(g->overlap_ns >= 0 && g->in_proc_ns >= 0 && g->in_proc_ns <= g->told_ns);
		for (int w = 0; w < OP_WHATS; w++)
			states += g->state_ns[w];
		assert_true(states <= g->split_ns && g->split_ns <= g->in_proc_ns && g->waits_ns <= g->split_ns);
		operations += g->calls + g->partial;
	}
	assert_int_equal(operations, 60 - parts_of_requests(p));
	for (size_t i = 0; i < 200; i++) {
		named += p->calls[i].named;
		of_turns += p->calls[i].no_turn;
	}
	for (int f = 0; f < OP_FAMILIES; f++) {
		const struct op_totals *t = ops_totals(o, (enum op_family)f);

		calls = t->by_thread + t->by_lane + t->by_time + t->unclear + t->outside + t->overlapped;
		if (f == OP_TURN)
			assert_true(calls <= 200 - of_turns); /* and those of turns that are parts */
		else
			assert_int_equal(calls, 200 - (f == OP_NAMED ? named : 0));
	}
}

/* Parts add up, nothing is more than the whole, and the order does not matter. */
static void anything(void **unused)
{
	(void)unused;
	for (unsigned round = 1; round <= 400; round++) {
		struct pushed p;
		struct ops *a, *b;
		size_t n, m;

		seed = 88172645463325252u + round;
		make_any(&p);
		a = solve_any(&p);
		b = solve_any(&p);
		assert_sound(a, &p);
		ops_groups(a, &n);
		ops_groups(b, &m);
		assert_int_equal(n, m);
		assert_memory_equal(ops_groups(a, &n), ops_groups(b, &m), n * sizeof(struct op_group));
		ops_patterns(a, &n);
		ops_patterns(b, &m);
		assert_int_equal(n, m);
		if (n)
			assert_memory_equal(ops_patterns(a, &n), ops_patterns(b, &m), n * sizeof(struct op_pattern));
		ops_free(a);
		ops_free(b);
	}
}

static void bounded(void **unused)
{
	struct ops *o = ops_new();
	const struct op_state s = {.begin_ns = UINT64_MAX, .end_ns = UINT64_MAX, .pid = 1};
	const struct op_operation p = {.begin_ns = UINT64_MAX, .pid = 1};
	const struct op_call c = {.begin_ns = 5, .end_ns = UINT64_MAX, .pid = 1};
	int err = 0;

	(void)unused;
	for (size_t i = 0; i < OP_STATES_MAX && !err; i++)
		err = ops_push_state(o, &s);
	for (size_t i = 0; i < OP_SPANS_MAX && !err; i++)
		err = ops_push_call(o, &c) ?: ops_push_operation(o, &p);
	assert_int_equal(err, 0);
	assert_int_equal(ops_push_state(o, &s), -ENOSPC);
	assert_int_equal(ops_push_call(o, &c), -ENOSPC);
	assert_int_equal(ops_push_operation(o, &p), -ENOSPC);
	assert_int_equal(ops_dropped(o), 3);
	ops_free(o);
}

/* Everything at once on one thread, everything nested: the processor time of eight times as much. */
static double cost(unsigned count)
{
	struct ops *o = ops_new();
	clock_t begin = clock();

	for (unsigned i = 0; i < count; i++) {
		struct op_operation p = {.begin_ns = i, .end_ns = 2 * count - i, .pid = 1, .tid = i % 2, .name = i};
		struct op_call c = {
			.begin_ns = 1000, .end_ns = 2000 + i, .pid = 2, .tid = 1, .shape = i, .kind = OP_DB};
		struct op_state s = {.begin_ns = i % 7, .end_ns = count, .pid = 2, .tid = 1, .what = OP_BLOCKED};

		assert_int_equal(ops_push_operation(o, &p) ?: ops_push_call(o, &c) ?: ops_push_state(o, &s), 0);
		p = (struct op_operation){.begin_ns = 4 * i, .end_ns = 4 * i + 4, .pid = 2, .tid = 1};
		assert_int_equal(ops_push_operation(o, &p), 0);
	}
	ops_states(o, true, true, 0);
	assert_int_equal(ops_solve(o), 0);
	ops_free(o);
	return (double)(clock() - begin);
}

static void no_worse_than_n_log_n(void **unused)
{
	double few = cost(1 << 14), many = cost(1 << 17);

	(void)unused;
	assert_true(many < 32 * (few + CLOCKS_PER_SEC / 1000.0)); /* squared: 64 */
}

static void no_memory(void **unused)
{
	struct pushed p;

	(void)unused;
	seed = 5;
	make_any(&p);
	for (unsigned n = 1;; n++) {
		struct ops *o = ops_new();
		int err = 0;

		assert_non_null(o);
		fail_nth(n);
		for (size_t i = 0; i < 60 && !err; i++)
			err = ops_push_operation(o, &p.operations[i]);
		for (size_t i = 0; i < 200 && !err; i++)
			err = ops_push_call(o, &p.calls[i]) ?: ops_push_state(o, &p.states[i]);
		err = err ? err : ops_solve(o);
		fail_nth(0);
		ops_free(o);
		assert_int_equal(err, fail_nth_hit() ? -ENOMEM : 0);
		if (!err)
			break;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_thread),	     cmocka_unit_test(refused),
		cmocka_unit_test(threads_that_move), cmocka_unit_test(partial),
		cmocka_unit_test(turns_in_requests), cmocka_unit_test(lanes),
		cmocka_unit_test(other_families),    cmocka_unit_test(twins),
		cmocka_unit_test(children),	     cmocka_unit_test(repeats),
		cmocka_unit_test(in_proc),	     cmocka_unit_test(anything),
		cmocka_unit_test(bounded),	     cmocka_unit_test(no_worse_than_n_log_n),
		cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
