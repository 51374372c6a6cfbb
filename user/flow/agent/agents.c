/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "agents.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/quantile.h"
#include "charge.h"
#include "held.h"
#include "load.h"
#include "toolwait.h"

#define KEY_BYTES	448
#define TOOL_NAMES_MAX	256		/* names whose times are added up; later ones are not */
#define RETRY_HELD_NS	600000000000ull /* a failed step waits that long for the retry that may follow */
#define TWINS_MAX	8		/* conversations that look alike and are told apart */
#define TWIN_OVERLAP_NS 250000000ull	/* a call that began so long before the last one ended is no step after it */
#define MODELS_MAX	64		/* models whose waits are added up; later ones are not */

/* How little it is missed. */
enum need { NEED_ENDED, NEED_SUB, NEED_MAIN, NEED_BUSY };

/* One agent: a session of a process, or a sub-agent of it. */
struct agent_entry {
	char key[KEY_BYTES];
	struct agent agent;
	char name[AGENT_TEXT_BYTES], session[AGENT_TEXT_BYTES];
	struct proc_key proc;
	uint64_t gone_ns;	/* the process ended; UNKNOWN_NS: not as far as was looked */
	struct agent_entry *up; /* whose sub-agent it is; NULL: a main agent */
	uint64_t up_lane;	/* number of the conversation that waits for it */
	enum need need;		/* for least_needed() */
	UT_hash_handle hh;
};

/* One conversation. */
struct lane {
	char key[KEY_BYTES];
	uint64_t number; /* unique, from 1 */
	struct agent_entry *of;
	struct proc_key proc;
	struct toolwait wait; /* tools that its last answer asked for */
	uint64_t last_end_ns, last_call_id;
	bool last_failed, last_broken_off;
	int64_t last_messages;		/* of its request; UNKNOWN_COUNT */
	struct held_turn *turn;		/* the open one; NULL none */
	char turn_id[AGENT_TEXT_BYTES]; /* the client's name of the latest one */
	struct load load[2];		/* the latest stretches of its process's time */
	/* User time is told while it goes on, so that a lane that nobody talks to does not hold the watermark. */
	uint64_t idle_from_ns;	  /* UNKNOWN_NS: not idle */
	struct lane *prev, *next; /* the one silent longest first */
	UT_hash_handle hh;
};

struct tool_name {
	struct agents_tool_name sum;
	UT_hash_handle hh;
};

struct model_waits {
	char name[AGENT_TEXT_BYTES];
	uint64_t total_ns, wrote_ns;
	struct quantile ttft;
	UT_hash_handle hh;
};

struct agents {
	struct lost *lost;
	struct agents_sink sink;
	struct family *family;
	struct agent_entry *agents; /* by index */
	uint64_t agent_count;	    /* ever */
	uint64_t forgotten_end_ns;  /* the latest end of a process of those that are not remembered; 0: none is */
	struct lane *lanes, *oldest;
	struct tool_name *tool_names;
	struct model_waits *models;
	struct toolwait_rpcs rpcs;
	struct held_turn *turns; /* over, not told yet; oldest end first */
	struct held_tool *tools;
	size_t turn_count, tool_count;
	struct walltime *run_wall;
	struct agents_run run;
	uint64_t last_turn, last_lane;
};

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

static void lane_free(struct agents *t, struct lane *l)
{
	HASH_DEL(t->lanes, l);
	DL_DELETE(t->oldest, l);
	toolwait_release(&l->wait);
	held_turn_free(l->turn);
	free(l);
}

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

/* What was over before: no call that began inside of it can come any more. */
static void tell_held(struct agents *t, uint64_t past_ns, bool loud)
{
	while (t->turns && t->turns->turn.at.end_ns <= past_ns)
		tell_first_turn(t, loud);
	while (t->tools && t->tools->tool.at.end_ns + HELD_SPAWN_LATE_NS <= past_ns)
		tell_first_tool(t, loud);
}

void agents_free(struct agents *t)
{
	struct agent_entry *a, *next_agent;
	struct tool_name *n, *next_name;
	struct model_waits *m, *next_model;

	if (!t)
		return;
	while (t->oldest)
		lane_free(t, t->oldest);
	tell_held(t, UNKNOWN_NS, false);
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

static void text(char *out, size_t size, const char *s)
{
	snprintf(out, size, "%s", s ? s : "");
}

void agents_push_rpc(struct agents *t, const struct agent_rpc *r)
{
	toolwait_note_rpc(&t->rpcs, r);
}

/* --- tools ------------------------------------------------------------------------------------------------------- */

static void add_tool_name(struct agents *t, const struct agent_tool *tool)
{
	struct tool_name *n;
	char name[sizeof(n->sum.name)];

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

static void push_wall(struct agents *t, struct walltime *w, unsigned rank, enum time_part part, uint64_t begin_ns,
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
		push_wall(t, l->turn->wall, rank, part, begin_ns, end_ns);
	push_wall(t, t->run_wall, rank, part, begin_ns, end_ns);
}

/* The turns that wait for this conversation of a sub-agent: those of its parent, and so on. */
static void each_turn_above(struct agents *t, const struct lane *l, uint64_t begin_ns,
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

	push_wall(t, h->wall, RANK_TOOL, PART_TOOL, at->begin_ns, at->end_ns);
}

static void push_above(struct agents *t, const struct lane *l, uint64_t begin_ns, uint64_t end_ns)
{
	const struct interval at = {begin_ns, end_ns};

	each_turn_above(t, l, begin_ns, push_tool_time, &at);
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

	if (ours)
		push_both(c->t, c->l, RANK_TOOL, PART_TOOL, at->begin_ns, at->end_ns);
	else
		push_wall(c->t, c->t->run_wall, RANK_TOOL, PART_TOOL, at->begin_ns, at->end_ns);
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

/* The lane goes on at end_ns: with `c`, or without (NULL). */
static void end_tools(struct agents *t, struct lane *l, const struct call *c, uint64_t end_ns)
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

static void end_turn(struct agents *t, struct lane *l)
{
	if (!l->turn)
		return;
	DL_APPEND(t->turns, l->turn);
	l->turn = NULL;
	if (++t->turn_count > HELD_MAX)
		tell_first_turn(t, true);
}

static void begin_turn(struct agents *t, struct lane *l, const struct call *c, uint64_t begin_ns)
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
	text(l->turn_id, sizeof(l->turn_id), c->turn_id);
	t->run.turns++;
}

/* Who resets a stream after its last event (Codex may, over HTTP/2) has its answer. */
static bool failed(const struct call *c)
{
	return c->error || c->status >= 400 || (c->end != END_COMPLETE && !c->whole);
}

/* Words of the APIs for an answer that is to be continued by the next request (llm-wire.md section on stop reasons). */
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

/* --- agents and lanes -------------------------------------------------------------------------------------------- */

/* A session is the same agent in whichever process it goes on; without one it is the process. */
static void agent_key(char out[KEY_BYTES], const struct call *c, const char *agent_id)
{
	if (c->session_id)
		snprintf(out, KEY_BYTES, "s%.128s a%.128s", c->session_id, agent_id ? agent_id : "");
	else
		snprintf(out, KEY_BYTES, "p%" PRIu32 " %" PRIu64 " a%.128s", c->conn.tgid, c->conn.start_ns,
			 agent_id ? agent_id : "");
}

static void lane_key(char out[KEY_BYTES], const struct call *c, const char *agent)
{
	if (c->session_id || c->agent_id)
		snprintf(out, KEY_BYTES, "%s", agent);
	else
		snprintf(out, KEY_BYTES, "%.300s %.32s %016" PRIx64, agent, c->provider ? c->provider : "",
			 c->conversation);
}

static struct lane *find_lane(struct agents *t, const char *key)
{
	struct lane *l;

	HASH_FIND_STR(t->lanes, key, l);
	return l;
}

/* The lane of this process (or session) that waits for a tool call which the request answers. Some servers (of local
 * models) count the calls of each answer from one: of several lanes it is the one that the client's ids name. */
static struct lane *lane_of_result(struct agents *t, const struct call *c)
{
	struct lane *l, *found = NULL;
	char key[KEY_BYTES];

	if (!c->result_count)
		return NULL;
	agent_key(key, c, c->agent_id);
	DL_FOREACH (t->oldest, l) {
		bool near = l->proc.tgid == c->conn.tgid && l->proc.start_ns == c->conn.start_ns;

		if (!near || !toolwait_answered_by(&l->wait, c))
			continue;
		if ((c->session_id || c->agent_id) && !strcmp(l->key, key))
			return l;
		found = found ? found : l;
	}
	return found;
}

static bool same_process(const struct proc_key *k, const struct call *c)
{
	return k->tgid == c->conn.tgid && k->start_ns == c->conn.start_ns;
}

static bool is_waiting(const struct lane *l, uint64_t at_ns)
{
	return l->wait.count && l->wait.begin_ns <= at_ns;
}

/* How well a conversation that waits may have asked for the one that `c` begins. */
enum claim { CLAIM_NONE, CLAIM_WAITS, CLAIM_SPAWNS, CLAIM_PROVEN };

static enum claim claim_of(const struct lane *l, const struct call *c, uint64_t at_ns)
{
	enum claim best = is_waiting(l, at_ns) ? CLAIM_WAITS : CLAIM_NONE;

	for (size_t i = 0; best && i < l->wait.count; i++) {
		const struct tool_pending *p = &l->wait.tools[i];

		if (p->begin_ns <= at_ns && toolwait_asked_for(p->asks, c))
			return CLAIM_PROVEN;
		if (p->begin_ns <= at_ns && !p->spawned && toolwait_names_agent(p->name))
			best = CLAIM_SPAWNS;
	}
	return best;
}

struct ancestry {
	struct agents *t;
	const struct call *c;
	struct lane *found; /* NULL: none, or several alike */
	enum claim claim;   /* of it, or of them */
	uint64_t at_ns;
};

/* The one of the process with the best claim. True: there are such with any. */
static bool waits_for_child(void *ctx, const struct proc_key *k)
{
	struct ancestry *a = ctx;
	struct lane *l;

	DL_FOREACH (a->t->oldest, l) {
		enum claim claim = proc_key_same_process(&l->proc, k) ? claim_of(l, a->c, a->at_ns) : CLAIM_NONE;

		if (claim == CLAIM_NONE || claim < a->claim)
			continue;
		a->found = claim > a->claim ? l : NULL;
		a->claim = claim;
	}
	return a->claim != CLAIM_NONE;
}

/* The lane that waits for tools while this call of the same process, or of a descendant of it, begins. NULL: none does,
 * or which one is not known. */
static struct lane *waiting_lane(struct agents *t, const struct call *c, uint64_t begin_ns)
{
	struct ancestry a = {.t = t, .c = c, .at_ns = begin_ns};
	struct proc_key self = {.tgid = c->conn.tgid, .start_ns = c->conn.start_ns}, parent;

	if (!waits_for_child(&a, &self))
		family_ancestor(t->family, &self, waits_for_child, &a, &parent);
	return a.found;
}

/* The lane of the parent that the client names, else of the session's main agent. */
static struct lane *parent_lane(struct agents *t, const struct call *c)
{
	struct lane *l = NULL, *found = NULL;
	char key[KEY_BYTES];

	agent_key(key, c, c->parent_agent_id);
	if (c->parent_agent_id)
		found = find_lane(t, key);
	if (!found && c->parent_agent_id) { /* opencode: a sub-agent is a session of its own, and names its parent's */
		snprintf(key, sizeof(key), "s%.128s a", c->parent_agent_id);
		found = find_lane(t, key);
	}
	if (found)
		return found;
	DL_FOREACH (t->oldest, l) {
		const char *session = l->of->agent.session_id;
		bool same = c->session_id ? session && !strcmp(session, c->session_id) : same_process(&l->proc, c);

		if (same && l->of->agent.parent < 0)
			found = l;
	}
	return found;
}

static struct agent_entry *last_agent(struct agents *t)
{
	struct agent_entry *a = t->agents;

	while (a && a->hh.next)
		a = a->hh.next;
	return a;
}

/* The tool call that asked for a sub-agent: one that is waited for, or that returned before its first call was known.
 */
struct spawn {
	struct tool_pending *pending;
	struct held_tool *told;
	unsigned candidates;
	uint64_t call_id;  /* that asked; 0: of several ones it is not known which */
	uint64_t begin_ns; /* of the tool call; UNKNOWN_NS: which one it was is not known */
};

static void spawn_add(struct spawn *s, struct tool_pending *pending, struct held_tool *told, uint64_t call_id)
{
	s->call_id = s->candidates && s->call_id != call_id ? 0 : call_id;
	s->candidates++;
	s->pending = pending;
	s->told = told;
	s->begin_ns = pending ? pending->begin_ns : told->tool.at.begin_ns;
}

/* proof: by what they asked for, whatever is known of them; else those that started none yet, or (used) that did. */
static struct spawn find_candidates(struct agents *t, struct lane *parent, const struct call *c, uint64_t begin_ns,
				    bool proof, bool used)
{
	struct spawn s = {0};
	struct held_tool *h;

	DL_FOREACH (t->tools, h)
		if (h->tool.agent == parent->of->agent.index && h->tool.at.begin_ns <= begin_ns &&
		    begin_ns < h->tool.at.end_ns + HELD_SPAWN_LATE_NS && !h->tool.spawned &&
		    (!proof || toolwait_asked_for(h->tool.asks, c)))
			spawn_add(&s, NULL, h, h->tool.call_id);
	for (size_t i = 0; i < parent->wait.count; i++) {
		struct tool_pending *p = &parent->wait.tools[i];

		if (proof ? p->begin_ns <= begin_ns && toolwait_asked_for(p->asks, c) && !p->proven
			  : toolwait_may_spawn(&parent->wait, p, begin_ns) && (used || !p->spawned))
			spawn_add(&s, p, NULL, parent->last_call_id);
	}
	return s;
}

/* A sub-agent of the process itself: what runs below is its own, whichever of the tools it is. */
static void keep_inside(struct lane *parent, const struct call *c, const struct spawn *s, uint64_t begin_ns)
{
	for (size_t i = 0; same_process(&parent->proc, c) && i < parent->wait.count; i++) {
		struct tool_pending *p = &parent->wait.tools[i];

		if (p == s->pending || (!s->pending && toolwait_names_agent(p->name) && p->begin_ns <= begin_ns))
			p->inside = true;
	}
}

static struct spawn find_spawn(struct agents *t, struct lane *parent, const struct call *c, uint64_t begin_ns)
{
	struct spawn s = find_candidates(t, parent, c, begin_ns, true, false);
	bool proven = s.candidates == 1;

	if (!s.candidates)
		s = find_candidates(t, parent, c, begin_ns, false, false);
	if (!s.candidates)
		s = find_candidates(t, parent, c, begin_ns, false, true);
	if (s.candidates != 1) {
		s.pending = NULL;
		s.told = NULL;
		s.begin_ns = UNKNOWN_NS;
	}
	if (s.pending)
		s.pending->proven |= proven;
	if (s.candidates)
		keep_inside(parent, c, &s, begin_ns);
	return s;
}

static void close_lane(struct agents *t, struct lane *l, uint64_t end_ns)
{
	end_tools(t, l, NULL, end_ns);
	end_turn(t, l);
	lane_free(t, l);
}

/* NULL: all are busy. */
static struct agent_entry *least_needed(const struct agents *t, const struct agent_entry *keep)
{
	struct agent_entry *best = NULL;
	enum need least = NEED_BUSY;
	const struct lane *l;

	for (struct agent_entry *a = t->agents; a; a = a->hh.next)
		a->need = a->gone_ns != UNKNOWN_NS ? NEED_ENDED : a->agent.parent >= 0 ? NEED_SUB : NEED_MAIN;
	DL_FOREACH (t->oldest, l)
		if (l->turn || l->wait.count)
			l->of->need = NEED_BUSY;
	for (struct agent_entry *a = t->agents; a; a = a->hh.next) {
		if (a == keep || a->need >= least)
			continue;
		best = a;
		least = a->need;
	}
	return best;
}

/* Makes room for one; false: there is none to be had. */
static bool forget_agent(struct agents *t, const struct agent_entry *keep)
{
	struct agent_entry *a = least_needed(t, keep);
	struct lane *l, *next;

	if (!a)
		return false;
	DL_FOREACH_SAFE (t->oldest, l, next)
		if (l->of == a)
			close_lane(t, l, l->last_end_ns);
	for (struct agent_entry *other = t->agents; other; other = other->hh.next)
		if (other->up == a)
			other->up = NULL;
	if (a->gone_ns > t->forgotten_end_ns)
		t->forgotten_end_ns = a->gone_ns;
	HASH_DEL(t->agents, a);
	free(a);
	return true;
}

static struct agent_entry *make_agent(struct agents *t, const char *key, const struct call *c, const struct proc *p,
				      struct lane *parent, bool by_time, uint64_t begin_ns)
{
	struct agent_entry *a;
	struct spawn spawn = {.begin_ns = UNKNOWN_NS};

	if (HASH_COUNT(t->agents) >= AGENTS_MAX && !forget_agent(t, parent ? parent->of : NULL))
		return last_agent(t);
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	if (parent)
		spawn = find_spawn(t, parent, c, begin_ns);
	text(a->key, sizeof(a->key), key);
	text(a->name, sizeof(a->name), c->agent_name);
	text(a->session, sizeof(a->session), c->session_id);
	a->proc = (struct proc_key){.tgid = c->conn.tgid, .start_ns = c->conn.start_ns};
	a->gone_ns = UNKNOWN_NS;
	a->agent = (struct agent){
		.index = (unsigned)t->agent_count,
		.parent = parent ? (int)parent->of->agent.index : -1,
		.by_time = by_time,
		.name = a->name[0] ? a->name : NULL,
		.session_id = a->session[0] ? a->session : NULL,
		.shown_pid = p ? p->shown_pid : c->conn.tgid,
		.first_call = c->id,
		.begin_ns = begin_ns,
		.spawned_by_call = spawn.call_id,
		.spawn_ns = spawn.begin_ns,
	};
	a->up = parent ? parent->of : NULL;
	a->up_lane = parent ? parent->number : 0;
	HASH_ADD_STR(t->agents, key, a);
	if (!a->hh.tbl) {
		free(a);
		return NULL;
	}
	t->agent_count++;
	if (spawn.told)
		spawn.told->tool.spawned = a->agent.index;
	if (spawn.pending && (!spawn.pending->spawned || spawn.pending->proven))
		spawn.pending->spawned = a->agent.index;
	if (t->sink.on_agent)
		t->sink.on_agent(t->sink.ctx, &a->agent);
	return a;
}

/* Nothing is stated, and there is no session: another conversation that begins while a lane waits for its tools is a
 * sub-agent's. */
static struct agent_entry *agent_by_time(struct agents *t, const struct call *c, const struct proc *p, const char *key,
					 struct agent_entry *main_agent, uint64_t begin_ns)
{
	struct lane *parent;
	struct agent_entry *a;
	char sub[KEY_BYTES];

	lane_key(sub, c, key);
	if (!main_agent || !c->conversation || find_lane(t, sub))
		return main_agent;
	HASH_FIND_STR(t->agents, sub, a);
	if (a)
		return a;
	parent = waiting_lane(t, c, begin_ns);
	return parent ? make_agent(t, sub, c, p, parent, true, begin_ns) : main_agent;
}

/* Whose call it is, made when it is the first one. NULL without memory. */
static struct agent_entry *agent_of(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns)
{
	bool sub = c->class == CALL_SUBAGENT;
	struct lane *parent = NULL;
	struct agent_entry *a;
	char key[KEY_BYTES];

	agent_key(key, c, sub && !c->agent_id ? "(subagent)" : c->agent_id);
	HASH_FIND_STR(t->agents, key, a);
	if (!sub && !c->agent_id && !c->session_id)
		a = agent_by_time(t, c, p, key, a, begin_ns);
	if (a)
		return a;
	parent = sub ? parent_lane(t, c) : waiting_lane(t, c, begin_ns);
	return make_agent(t, key, c, p, parent, !sub && parent, begin_ns);
}

static struct lane *make_lane(struct agents *t, const char *key, struct agent_entry *of, const struct call *c)
{
	struct lane *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	text(l->key, sizeof(l->key), key);
	l->of = of;
	l->proc = (struct proc_key){.tgid = c->conn.tgid, .start_ns = c->conn.start_ns};
	l->idle_from_ns = UNKNOWN_NS;
	l->number = ++t->last_lane;
	HASH_ADD_STR(t->lanes, key, l);
	if (!l->hh.tbl) {
		free(l);
		return NULL;
	}
	DL_APPEND(t->oldest, l);
	if (HASH_COUNT(t->lanes) > AGENTS_LANES_MAX)
		close_lane(t, t->oldest, t->oldest->last_end_ns);
	return l;
}

/* A session may go on in another process. */
static void move_lane(struct lane *l, const struct call *c, const struct proc *p)
{
	if (same_process(&l->proc, c) && same_process(&l->of->proc, c))
		return;
	l->proc = l->of->proc = (struct proc_key){.tgid = c->conn.tgid, .start_ns = c->conn.start_ns};
	l->of->gone_ns = UNKNOWN_NS;
	l->of->agent.shown_pid = p ? p->shown_pid : c->conn.tgid;
}

/* Steps of one conversation follow each other: of several that look alike (the same prompts at the same time) it is one
 * that was not busy, and of these the one that is longer by the least. */
static struct lane *lane_of_conversation(struct agents *t, const struct call *c, struct agent_entry *a,
					 uint64_t begin_ns)
{
	int64_t messages = c->request.messages, least = INT64_MAX;
	struct lane *best = NULL;
	char key[KEY_BYTES];
	size_t len;

	lane_key(key, c, a->key);
	len = strlen(key);
	for (unsigned twin = 0; twin < TWINS_MAX; twin++) {
		struct lane *l;
		int64_t more;

		if (twin)
			snprintf(key + len, sizeof(key) - len, " #%u", twin);
		l = find_lane(t, key);
		if (!l)
			return best ? best : make_lane(t, key, a, c);
		if (c->session_id || c->agent_id)
			return l;
		if (l->last_end_ns > begin_ns + TWIN_OVERLAP_NS)
			continue;
		more = messages >= 0 && messages > l->last_messages ? messages - l->last_messages : INT64_MAX - 1;
		if (more < least) {
			best = l;
			least = more;
		}
	}
	return best ? best : find_lane(t, key);
}

static struct lane *lane_of(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns)
{
	struct lane *l = lane_of_result(t, c);
	struct agent_entry *a;

	if (!l) {
		a = agent_of(t, c, p, begin_ns);
		if (!a)
			return NULL;
		l = lane_of_conversation(t, c, a, begin_ns);
		if (!l)
			return NULL;
	}
	move_lane(l, c, p);
	/* The latest in use is the last one to be closed. */
	DL_DELETE(t->oldest, l);
	DL_APPEND(t->oldest, l);
	return l;
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

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
	push_wall(t, t->run_wall, RANK_USER, PART_USER, l->idle_from_ns, until_ns);
	l->idle_from_ns = until_ns;
}

static void count_step(struct turn *turn, const struct call *c)
{
	turn->steps++;
	if (c->usage.source == USAGE_NONE || c->usage.output_total < 0)
		turn->output_tokens = UNKNOWN_COUNT;
	else if (turn->output_tokens >= 0)
		turn->output_tokens += c->usage.output_total;
}

static struct model_waits *waits_of(struct agents *t, const char *model)
{
	struct model_waits *m;
	char name[AGENT_TEXT_BYTES];

	text(name, sizeof(name), model);
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
	struct model_waits *m;

	if (!call_has_start(c) || c->first_token_ns == UNKNOWN_NS || c->first_token_ns < c->start_ns)
		return;
	m = waits_of(t, c->model ? c->model : c->request_model);
	if (!m)
		return;
	m->total_ns += c->first_token_ns - c->start_ns;
	if (c->end_ns != UNKNOWN_NS && c->end_ns > c->first_token_ns)
		m->wrote_ns += c->end_ns - c->first_token_ns;
	quantile_add(&m->ttft, c->first_token_ns - c->start_ns);
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
	end_tools(t, l, c, begin_ns);
	if (begins) {
		end_turn(t, l);
		begin_turn(t, l, c, begin_ns);
	}
	charge_call(t, t->run_wall, c, l->of->agent.parent < 0);
	each_turn_above(t, l, begin_ns, charge_other, c);
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
	end_turn(t, l);
	if (c->interactive != 0 && l->of->agent.parent < 0)
		l->idle_from_ns = end_ns;
}

/* No step: what a client asks beside the conversation. */
static void push_helper(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns,
			struct agent_place *place)
{
	struct agent_entry *a;
	char key[KEY_BYTES];

	agent_key(key, c, c->agent_id);
	HASH_FIND_STR(t->agents, key, a);
	if (!a)
		a = make_agent(t, key, c, p, NULL, false, begin_ns);
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
	l = lane_of(t, c, p, begin_ns);
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
		push_wall(t, l->turn->wall, RANK_CLIENT, PART_CLIENT, at->begin_ns, at->end_ns);
	DL_FOREACH (t->turns, h)
		if (h->lane == l->number && h->turn.at.end_ns > at->begin_ns)
			push_wall(t, h->wall, RANK_CLIENT, PART_CLIENT, at->begin_ns, at->end_ns);
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
	push_wall(t, t->run_wall, RANK_CLIENT, PART_CLIENT, busy.begin_ns, busy.end_ns);
	close_lane(t, l, end_ns > l->last_end_ns ? end_ns : l->last_end_ns);
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
	push_wall(t, t->run_wall, RANK_CLIENT, PART_CLIENT, busy.begin_ns, busy.end_ns);
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
	tell_held(t, past_ns < settled_ns ? past_ns : settled_ns, true);
	if (mark_ns > settled_ns)
		mark_ns = settled_ns;
	walltime_advance(t->run_wall, run_end(t, mark_ns));
}

void agents_finish(struct agents *t, uint64_t now_ns)
{
	note_ends(t);
	while (t->oldest)
		finish_lane(t, t->oldest, now_ns);
	tell_held(t, UNKNOWN_NS, true);
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
	out->several_models = HASH_COUNT(t->models) > 1;
	if (top) {
		text(out->top_model, sizeof(out->top_model), top->name);
		text(out->top_writer, sizeof(out->top_writer), writer->name);
		out->ttft_p50_ns = quantile_ns(&top->ttft, 0.5);
	}
	return t->run_wall ? walltime_report(t->run_wall, run_end(t, end_ns), &out->wall) : 0;
}

const char *tool_join_name(enum tool_join j)
{
	static const char *const names[] = {"upper bound", "time", "client", "mcp", "id"};

	return names[j];
}
