/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "agents_parts.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/err.h"
#include "charge.h"

#define RETRY_HELD_NS 600000000000ull /* a failed step waits that long for the retry that may follow */
#define MODELS_MAX    64	      /* models whose waits are added up; later ones are not */

struct agents *agents_new(struct lost *lost, const struct agents_sink *sink)
{
	struct agents *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->lost = lost;
	t->sink = *sink;
	t->run.begin_ns = UNKNOWN_NS;
	t->family = family_new();
	if (!t->family) {
		free(t);
		return NULL;
	}
	return t;
}

void agents_free(struct agents *t)
{
	struct agent_entry *a, *next_agent;
	struct tool_name *n, *next_name;
	struct model_waits *m, *next_model;

	if (!t)
		return;
	while (t->oldest)
		agents_lane_free(t, t->oldest);
	agents_tell_held(t, UNKNOWN_NS, false);
	HASH_ITER (hh, t->agents, a, next_agent) {
		HASH_DEL(t->agents, a);
		free(a);
	}
	HASH_ITER (hh, t->tool_names, n, next_name) {
		HASH_DEL(t->tool_names, n);
		free(n);
	}
	HASH_ITER (hh, t->models, m, next_model) {
		HASH_DEL(t->models, m);
		free(m);
	}
	family_free(t->family);
	walltime_free(t->run_wall);
	free(t);
}

void agents_push_proc(struct agents *t, const struct proc *p)
{
	if (family_push(t->family, p))
		t->lost->n[LOST_NO_MEMORY]++;
}

void agents_push_rpc(struct agents *t, const struct agent_rpc *r)
{
	toolwait_note_rpc(&t->rpcs, r);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* Who resets a stream after its last event (Codex may, over HTTP/2) has its answer. */
static bool failed(const struct call *c)
{
	return c->error || c->status >= 400 || (c->end != END_COMPLETE && !c->whole);
}

/* Stop reasons of the APIs for an answer that is to be continued by the next request. */
static bool goes_on(const struct call *c)
{
	static const char *const words[] = {"pause_turn", "tool_use", "tool_calls", "function_call", "TOOL_CALL"};

	if (c->tool_count)
		return true;
	for (size_t i = 0; c->stop_reason && i < ARRAY_SIZE(words); i++)
		if (!strcmp(c->stop_reason, words[i]))
			return true;
	return false;
}

/* Whether the step begins a new turn, given the lane as it was left. */
static bool begins_turn(const struct lane *l, const struct call *c, bool answers_tools)
{
	bool same = c->turn_id && l->turn_id[0] && !strncmp(c->turn_id, l->turn_id, sizeof(l->turn_id) - 1);

	if (!l->turn)
		return true;
	if (c->retry_of || answers_tools || same)
		return false;
	if (c->turn_id && l->turn_id[0])
		return true;
	/* Asked again, maybe in other words or of another model. */
	if (l->last_failed && c->request.messages >= 0 && c->request.messages == l->last_messages)
		return false;
	return c->trigger == CALL_TRIGGER_HUMAN || c->trigger == CALL_TRIGGER_NOTICE ||
	       (c->trigger == CALL_TRIGGER_UNKNOWN && !l->wait.count);
}

static void begin_run(struct agents *t, uint64_t begin_ns)
{
	if (t->run_wall)
		return;
	t->run_wall = walltime_new(begin_ns);
	if (!t->run_wall)
		t->lost->n[LOST_NO_MEMORY]++;
	else
		t->run.begin_ns = begin_ns;
}

static void charge_call(struct agents *t, struct walltime *w, const struct call *c, bool main_lane)
{
	if (w && charge_push(w, c, main_lane))
		t->lost->n[LOST_NO_MEMORY]++;
}

static void charge_other(struct agents *t, struct held_turn *h, const void *what)
{
	models_add(&h->models, what);
	charge_call(t, h->wall, what, false);
}

static void tell_idle(struct agents *t, struct lane *l, uint64_t until_ns)
{
	if (l->idle_from_ns == UNKNOWN_NS || until_ns <= l->idle_from_ns)
		return;
	agents_push_wall(t, t->run_wall, RANK_USER, PART_USER, l->idle_from_ns, until_ns);
	l->idle_from_ns = until_ns;
}

static void count_step(struct turn *turn, const struct call *c)
{
	int64_t output = call_output_total(c);

	turn->steps++;
	if (output < 0)
		turn->output_tokens = UNKNOWN_COUNT;
	else if (turn->output_tokens >= 0)
		turn->output_tokens += output;
}

static struct model_waits *waits_of(struct agents *t, const char *model)
{
	struct model_waits *m;
	char name[AGENT_TEXT_BYTES];

	agents_text(name, sizeof(name), model);
	HASH_FIND_STR(t->models, name, m);
	if (m || HASH_COUNT(t->models) >= MODELS_MAX)
		return m;
	m = calloc(1, sizeof(*m));
	if (m) {
		memcpy(m->name, name, sizeof(name));
		HASH_ADD_STR(t->models, name, m);
		if (!m->hh.tbl) {
			free(m);
			m = NULL;
		}
	}
	t->lost->n[LOST_NO_MEMORY] += !m;
	return m;
}

static void count_wait(struct agents *t, const struct call *c)
{
	uint64_t waited_ns, wrote_ns;
	struct model_waits *m;

	if (!models_times(c, &waited_ns, &wrote_ns))
		return;
	t->waited_ns += waited_ns;
	t->wrote_ns += wrote_ns;
	m = waits_of(t, c->model ? c->model : c->request_model);
	if (!m)
		return;
	m->total_ns += waited_ns;
	m->wrote_ns += wrote_ns;
	quantile_add(&m->ttft, waited_ns);
}

static void push_step(struct agents *t, struct lane *l, const struct call *c, uint64_t begin_ns, uint64_t end_ns)
{
	bool answers_tools = c->trigger == CALL_TRIGGER_TOOL_RESULTS || toolwait_answered_by(&l->wait, c);
	bool begins = begins_turn(l, c, answers_tools);

	/* A person broke the last answer off, and has asked something new now. */
	if (begins && l->last_broken_off && c->trigger == CALL_TRIGGER_HUMAN)
		l->idle_from_ns = l->last_end_ns;
	tell_idle(t, l, begin_ns);
	l->idle_from_ns = UNKNOWN_NS;
	agents_end_tools(t, l, c, begin_ns);
	if (begins) {
		agents_end_turn(t, l);
		agents_begin_turn(t, l, c, begin_ns);
	}
	charge_call(t, t->run_wall, c, l->of->agent.parent < 0);
	agents_each_turn_above(t, l, begin_ns, charge_other, c);
	if (l->turn) {
		models_add(&l->turn->models, c);
		charge_call(t, l->turn->wall, c, true);
		count_step(&l->turn->turn, c);
		if (end_ns > l->turn->turn.at.end_ns)
			l->turn->turn.at.end_ns = end_ns;
	}
	l->last_failed = failed(c);
	l->last_broken_off = c->end == END_CLIENT_ABORT && !c->whole && c->interactive != 0 && l->of->agent.parent < 0;
	l->last_messages = c->request.messages;
	l->last_end_ns = end_ns;
	l->last_call_id = c->id;
	t->run.steps++;
	count_wait(t, c);
}

/* What the answer leaves behind: tools to wait for, or the end of the turn. */
static void leave_step(struct agents *t, struct lane *l, const struct call *c, uint64_t end_ns)
{
	if (c->tool_count && toolwait_begin(&l->wait, c, end_ns))
		t->lost->n[LOST_NO_MEMORY]++;
	if (failed(c) || goes_on(c))
		return;
	if (l->turn)
		l->turn->turn.complete = true;
	agents_end_turn(t, l);
	if (c->interactive != 0 && l->of->agent.parent < 0)
		l->idle_from_ns = end_ns;
}

/* No step: what a client asks beside the conversation. */
static void push_helper(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns,
			struct agent_place *place)
{
	struct agent_entry *a = agents_of_helper(t, c, p, begin_ns);

	if (a)
		place->agent = a->agent.index;
	else
		t->lost->n[LOST_NO_MEMORY]++;
	charge_call(t, t->run_wall, c, false);
	if (c->model || c->request_model)
		waits_of(t, c->model ? c->model : c->request_model);
}

void agents_push_call(struct agents *t, const struct call *c, const struct proc *p, struct agent_place *place)
{
	uint64_t begin_ns, end_ns;
	struct lane *l;

	*place = (struct agent_place){0};
	call_bounds(c, &begin_ns, &end_ns);
	begin_run(t, begin_ns);
	if (p)
		agents_push_proc(t, p);
	if (c->class != CALL_MAIN && c->class != CALL_SUBAGENT) {
		push_helper(t, c, p, begin_ns, place);
		return;
	}
	l = agents_lane_of(t, c, p, begin_ns);
	if (!l) {
		t->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	push_step(t, l, c, begin_ns, end_ns);
	*place = (struct agent_place){
		.agent = l->of->agent.index,
		.sub = l->of->agent.parent >= 0,
		.first = l->of->agent.first_call == c->id,
		.turn = l->turn ? l->turn->turn.id : 0,
	};
	leave_step(t, l, c, end_ns);
}

/* --- time goes on ------------------------------------------------------------------------------------------------ */

static void push_busy(struct agents *t, struct lane *l, const struct interval *at)
{
	struct held_turn *h;

	if (l->turn)
		agents_push_wall(t, l->turn->wall, RANK_CLIENT, PART_CLIENT, at->begin_ns, at->end_ns);
	DL_FOREACH (t->turns, h)
		if (h->lane == l->number && h->turn.at.end_ns > at->begin_ns)
			agents_push_wall(t, h->wall, RANK_CLIENT, PART_CLIENT, at->begin_ns, at->end_ns);
}

/* A conversation is over at `until_ns`, or with its process. */
static void finish_lane(struct agents *t, struct lane *l, uint64_t until_ns)
{
	uint64_t gone_ns = family_end(t->family, &l->proc);
	uint64_t end_ns = gone_ns < until_ns ? gone_ns : until_ns;
	struct interval busy;

	tell_idle(t, l, end_ns);
	busy = load_busy(&l->load[0], &l->load[1], &(struct load){0});
	push_busy(t, l, &busy);
	agents_push_wall(t, t->run_wall, RANK_CLIENT, PART_CLIENT, busy.begin_ns, busy.end_ns);
	agents_close_lane(t, l, end_ns > l->last_end_ns ? end_ns : l->last_end_ns);
}

static void note_ends(struct agents *t)
{
	for (struct agent_entry *a = t->agents; a; a = a->hh.next)
		if (a->gone_ns == UNKNOWN_NS)
			a->gone_ns = family_end(t->family, &a->proc);
}

/* What follows the end of the last agent's process is nobody's time. */
static uint64_t run_end(const struct agents *t, uint64_t end_ns)
{
	uint64_t last_ns = t->agents ? t->forgotten_end_ns : end_ns;

	for (const struct agent_entry *a = t->agents; a; a = a->hh.next) {
		uint64_t gone_ns = a->gone_ns != UNKNOWN_NS ? a->gone_ns : family_end(t->family, &a->proc);

		if (gone_ns > last_ns)
			last_ns = gone_ns;
	}
	return last_ns < end_ns ? last_ns : end_ns;
}

void agents_push_cpu(struct agents *t, const struct proc_key *p, const struct interval *at, uint64_t busy_ns)
{
	const struct load now = {*at, busy_ns};
	struct interval busy = {0}, at_last;
	struct lane *l;

	if (at->end_ns - at->begin_ns > AGENTS_LOAD_NS / 2)
		return;
	DL_FOREACH (t->oldest, l) {
		if (l->proc.tgid != p->tgid || l->proc.start_ns != p->start_ns)
			continue;
		at_last = load_busy(&l->load[0], &l->load[1], &now);
		push_busy(t, l, &at_last);
		if (at_last.end_ns - at_last.begin_ns > busy.end_ns - busy.begin_ns)
			busy = at_last;
		l->load[0] = l->load[1];
		l->load[1] = now;
	}
	agents_push_wall(t, t->run_wall, RANK_CLIENT, PART_CLIENT, busy.begin_ns, busy.end_ns);
}

void agents_tick(struct agents *t, uint64_t now_ns, uint64_t open_ns)
{
	uint64_t mark_ns = open_ns < now_ns ? open_ns : now_ns, past_ns = mark_ns;
	/* What its processes took is told late. */
	uint64_t settled_ns = now_ns > AGENTS_LOAD_NS ? now_ns - AGENTS_LOAD_NS : 0;
	struct lane *l, *next;

	if (!t->run_wall)
		return;
	DL_FOREACH_SAFE (t->oldest, l, next) {
		if (family_end(t->family, &l->proc) < past_ns) {
			finish_lane(t, l, past_ns);
			continue;
		}
		tell_idle(t, l, mark_ns);
		if (l->wait.count && l->wait.begin_ns < mark_ns)
			mark_ns = l->wait.begin_ns;
		/* A retry tells how long it waited when it ends. */
		if (l->turn && l->last_failed && l->last_end_ns < mark_ns && past_ns - l->last_end_ns < RETRY_HELD_NS)
			mark_ns = l->last_end_ns;
	}
	note_ends(t);
	agents_tell_held(t, past_ns < settled_ns ? past_ns : settled_ns, true);
	if (mark_ns > settled_ns)
		mark_ns = settled_ns;
	walltime_advance(t->run_wall, run_end(t, mark_ns));
}

void agents_finish(struct agents *t, uint64_t now_ns)
{
	note_ends(t);
	while (t->oldest)
		finish_lane(t, t->oldest, now_ns);
	agents_tell_held(t, UNKNOWN_NS, true);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

uint64_t agents_count(const struct agents *t)
{
	return t->agent_count;
}

void agents_each(const struct agents *t, void (*fn)(void *ctx, const struct agent *a), void *ctx)
{
	for (const struct agent_entry *a = t->agents; a; a = a->hh.next)
		fn(ctx, &a->agent);
}

static void each_turn(struct agents *t, struct held_turn *h, uint64_t until_ns, void (*fn)(void *, const struct turn *),
		      void *ctx)
{
	struct turn turn;

	if (held_turn_report(h, &turn))
		t->lost->n[LOST_NO_MEMORY]++;
	if (until_ns > turn.at.end_ns)
		turn.at.end_ns = until_ns;
	fn(ctx, &turn);
}

void agents_each_open_turn(struct agents *t, uint64_t now_ns, void (*fn)(void *ctx, const struct turn *turn), void *ctx)
{
	struct held_turn *h;
	struct lane *l;

	DL_FOREACH (t->turns, h)
		each_turn(t, h, 0, fn, ctx);
	DL_FOREACH (t->oldest, l)
		if (l->turn)
			each_turn(t, l->turn, l->wait.count ? now_ns : 0, fn, ctx);
}

int agents_run(const struct agents *t, uint64_t end_ns, struct agents_run *out)
{
	const struct model_waits *top = t->models, *writer = t->models;

	*out = t->run;
	for (const struct model_waits *m = t->models; m; m = m->hh.next) {
		top = m->total_ns > top->total_ns ? m : top;
		writer = m->wrote_ns > writer->wrote_ns ? m : writer;
	}
	out->tool_share = models_share(t->run.top_tool.total_ns, t->tools_ns);
	if (top) {
		out->model_share = models_share(top->total_ns, t->waited_ns);
		out->writer_share = models_share(writer->wrote_ns, t->wrote_ns);
		agents_text(out->top_model, sizeof(out->top_model), top->name);
		agents_text(out->top_writer, sizeof(out->top_writer), writer->name);
		out->ttft_p50_ns = quantile_ns(&top->ttft, 0.5);
	}
	return t->run_wall ? walltime_report(t->run_wall, run_end(t, end_ns), &out->wall) : 0;
}

const char *tool_join_name(enum tool_join j)
{
	static const char *const names[] = {"upper bound", "time", "client", "mcp", "id"};

	return names[j];
}
