/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns and tools of a conversation: they begin, they end, and are told once no call can change them. */
#include "agents_parts.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#define TOOL_NAMES_MAX 256 /* names whose times are added up; later ones are not */

/* --- what is told later ------------------------------------------------------------------------------------------ */

static void tell_first_turn(struct agents *t, bool loud)
{
	struct held_turn *h = t->turns;
	struct turn turn;

	DL_DELETE(t->turns, h);
	t->turn_count--;
	if (loud && held_turn_report(h, &turn))
		t->lost->n[LOST_NO_MEMORY]++;
	if (loud && t->sink.on_turn)
		t->sink.on_turn(t->sink.ctx, &turn);
	held_turn_free(h);
}

static void tell_first_tool(struct agents *t, bool loud)
{
	struct held_tool *h = t->tools;

	DL_DELETE(t->tools, h);
	t->tool_count--;
	if (loud && t->sink.on_tool)
		t->sink.on_tool(t->sink.ctx, &h->tool);
	free(h);
}

void agents_tell_held(struct agents *t, uint64_t past_ns, bool loud)
{
	while (t->turns && t->turns->turn.at.end_ns <= past_ns)
		tell_first_turn(t, loud);
	while (t->tools && t->tools->tool.at.end_ns + HELD_SPAWN_LATE_NS <= past_ns)
		tell_first_tool(t, loud);
}

/* --- tools ------------------------------------------------------------------------------------------------------- */

static void add_tool_name(struct agents *t, const struct agent_tool *tool)
{
	struct tool_name *n;
	char name[sizeof(n->sum.name)];

	t->tools_ns += tool->took_ns;
	snprintf(name, sizeof(name), "%s", tool->name ? tool->name : "(unnamed)");
	HASH_FIND_STR(t->tool_names, name, n);
	if (!n && HASH_COUNT(t->tool_names) < TOOL_NAMES_MAX) {
		n = calloc(1, sizeof(*n));
		if (n) {
			memcpy(n->sum.name, name, sizeof(name));
			HASH_ADD_STR(t->tool_names, sum.name, n);
			if (!n->hh.tbl) {
				free(n);
				n = NULL;
			}
		}
		t->lost->n[LOST_NO_MEMORY] += !n;
	}
	if (!n)
		return;
	n->sum.count++;
	n->sum.total_ns += tool->took_ns;
	if (tool->program)
		snprintf(n->sum.program, sizeof(n->sum.program), "%s", tool->program);
	if (n->sum.total_ns > t->run.top_tool.total_ns)
		t->run.top_tool = n->sum;
}

void agents_push_wall(struct agents *t, struct walltime *w, unsigned rank, enum time_part part, uint64_t begin_ns,
		      uint64_t end_ns)
{
	if (w && walltime_push(w, rank, part, begin_ns, end_ns))
		t->lost->n[LOST_NO_MEMORY]++;
}

/* To the lane's open turn and to the run. */
static void push_both(struct agents *t, struct lane *l, unsigned rank, enum time_part part, uint64_t begin_ns,
		      uint64_t end_ns)
{
	if (l->turn)
		agents_push_wall(t, l->turn->wall, rank, part, begin_ns, end_ns);
	agents_push_wall(t, t->run_wall, rank, part, begin_ns, end_ns);
}

void agents_each_turn_above(struct agents *t, const struct lane *l, uint64_t begin_ns,
			    void (*fn)(struct agents *t, struct held_turn *h, const void *what), const void *what)
{
	for (const struct agent_entry *a = l->of; a->up; a = a->up) {
		struct held_turn *h;
		struct lane *p;

		DL_FOREACH (t->oldest, p)
			if (p->number == a->up_lane && p->turn)
				fn(t, p->turn, what);
		DL_FOREACH (t->turns, h)
			if (h->lane == a->up_lane && h->turn.at.end_ns > begin_ns)
				fn(t, h, what);
	}
}

static void push_tool_time(struct agents *t, struct held_turn *h, const void *what)
{
	const struct interval *at = what;

	agents_push_wall(t, h->wall, RANK_TOOL, PART_TOOL, at->begin_ns, at->end_ns);
}

static void push_above(struct agents *t, const struct lane *l, uint64_t begin_ns, uint64_t end_ns)
{
	const struct interval at = {begin_ns, end_ns};

	agents_each_turn_above(t, l, begin_ns, push_tool_time, &at);
}

/* False: no memory, it has to be told now. */
static bool hold_tool(struct agents *t, const struct agent_tool *tool)
{
	struct held_tool *h = held_tool_new(tool);

	if (!h) {
		t->lost->n[LOST_NO_MEMORY]++;
		return false;
	}
	DL_APPEND(t->tools, h);
	if (++t->tool_count > HELD_MAX)
		tell_first_tool(t, true);
	return true;
}

struct tool_ctx {
	struct agents *t;
	struct lane *l;
};

static void on_tool(void *ctx, const struct agent_tool *tool)
{
	struct tool_ctx *c = ctx;

	if (tool->join != TOOL_JOIN_GAP) {
		push_both(c->t, c->l, RANK_TOOL, PART_TOOL, tool->at.begin_ns, tool->at.end_ns);
		push_above(c->t, c->l, tool->at.begin_ns, tool->at.end_ns);
	}
	if (c->l->turn)
		c->l->turn->turn.tools++;
	c->t->run.tools++;
	c->t->run.tool_window_ns += tool->took_ns;
	if (!tool->at_most)
		add_tool_name(c->t, tool);
	if (tool->join == TOOL_JOIN_GAP && !tool->spawned && toolwait_names_agent(tool->name) && hold_tool(c->t, tool))
		return;
	if (c->t->sink.on_tool)
		c->t->sink.on_tool(c->t->sink.ctx, tool);
}

/* Whose tool it was is not known: of the run it is one, and of the turns that wait for this conversation. */
static void on_ran(void *ctx, const struct interval *at, bool ours)
{
	struct tool_ctx *c = ctx;

	c->t->tools_ns += at->end_ns - at->begin_ns;
	if (ours)
		push_both(c->t, c->l, RANK_TOOL, PART_TOOL, at->begin_ns, at->end_ns);
	else
		agents_push_wall(c->t, c->t->run_wall, RANK_TOOL, PART_TOOL, at->begin_ns, at->end_ns);
	push_above(c->t, c->l, at->begin_ns, at->end_ns);
}

/* Other conversations of the same process that wait for tools too. Returns their number. */
static size_t find_rivals(const struct agents *t, const struct lane *of,
			  struct toolwait_rival rivals[TOOLWAIT_RIVALS_MAX])
{
	const struct lane *l;
	size_t n = 0;

	DL_FOREACH (t->oldest, l) {
		bool near = proc_key_same_process(&l->proc, &of->proc);

		if (l == of || !near || !l->wait.count || n == TOOLWAIT_RIVALS_MAX)
			continue;
		rivals[n++] = toolwait_rival(&l->wait);
	}
	return n;
}

void agents_end_tools(struct agents *t, struct lane *l, const struct call *c, uint64_t end_ns)
{
	struct tool_ctx ctx = {t, l};
	struct toolwait_rival rivals[TOOLWAIT_RIVALS_MAX];
	struct toolwait_end end = {
		.family = t->family,
		.rpcs = &t->rpcs,
		.agent = &l->of->proc,
		.agent_index = l->of->agent.index,
		.sub = l->of->agent.parent >= 0,
		.shown_pid = l->of->agent.shown_pid,
		.next = c,
		.end_ns = end_ns,
		.ctx = &ctx,
		.on_tool = on_tool,
		.on_ran = on_ran,
		.rivals = rivals,
	};

	if (!l->wait.count)
		return;
	end.rival_count = find_rivals(t, l, rivals);
	push_both(t, l, RANK_AGENT_GAP, PART_AGENT_GAP, l->last_end_ns, end_ns);
	if (toolwait_end(&l->wait, &end))
		t->lost->n[LOST_NO_MEMORY]++;
}

/* --- turns ------------------------------------------------------------------------------------------------------- */

void agents_end_turn(struct agents *t, struct lane *l)
{
	if (!l->turn)
		return;
	DL_APPEND(t->turns, l->turn);
	l->turn = NULL;
	if (++t->turn_count > HELD_MAX)
		tell_first_turn(t, true);
}

void agents_begin_turn(struct agents *t, struct lane *l, const struct call *c, uint64_t begin_ns)
{
	const struct turn turn = {
		.id = ++t->last_turn,
		.agent = l->of->agent.index,
		.sub = l->of->agent.parent >= 0,
		.session_id = l->of->agent.session_id,
		.shown_pid = l->of->agent.shown_pid,
		.at = {begin_ns, begin_ns},
		.trigger = c->trigger,
		.partial = (c->mid_attach && !c->start_known) || c->request_lost ||
			   c->trigger == CALL_TRIGGER_TOOL_RESULTS || c->trigger == CALL_TRIGGER_CONTINUE,
	};

	l->turn = held_turn_new(&turn, l->number, c->turn_id);
	if (!l->turn) {
		t->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	agents_text(l->turn_id, sizeof(l->turn_id), c->turn_id);
	t->run.turns++;
}
