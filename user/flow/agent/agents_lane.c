/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose call it is: which agent's, and which conversation of it. */
#include "agents_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#define TWINS_MAX	8	     /* conversations that look alike and are told apart */
#define TWIN_OVERLAP_NS 250000000ull /* a call that began so long before the last one ended is no step after it */

void agents_lane_free(struct agents *t, struct lane *l)
{
	HASH_DEL(t->lanes, l);
	DL_DELETE(t->oldest, l);
	toolwait_release(&l->wait);
	held_turn_free(l->turn);
	free(l);
}

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
	uint64_t call_id; /* that asked; 0: of several ones it is not known which */
};

static void spawn_add(struct spawn *s, struct tool_pending *pending, struct held_tool *told, uint64_t call_id)
{
	s->call_id = s->candidates && s->call_id != call_id ? 0 : call_id;
	s->candidates++;
	s->pending = pending;
	s->told = told;
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
	}
	if (s.pending)
		s.pending->proven |= proven;
	if (s.candidates)
		keep_inside(parent, c, &s, begin_ns);
	return s;
}

void agents_close_lane(struct agents *t, struct lane *l, uint64_t end_ns)
{
	agents_end_tools(t, l, NULL, end_ns);
	agents_end_turn(t, l);
	agents_lane_free(t, l);
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
			agents_close_lane(t, l, l->last_end_ns);
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
	struct spawn spawn = {0};

	if (HASH_COUNT(t->agents) >= AGENTS_MAX && !forget_agent(t, parent ? parent->of : NULL))
		return last_agent(t);
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	if (parent)
		spawn = find_spawn(t, parent, c, begin_ns);
	agents_text(a->key, sizeof(a->key), key);
	agents_text(a->name, sizeof(a->name), c->agent_name);
	agents_text(a->session, sizeof(a->session), c->session_id);
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
	agents_text(l->key, sizeof(l->key), key);
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
	if (HASH_COUNT(t->lanes) > AGENTS_LANES_MAX) {
		t->lost->n[LOST_NO_MEMORY] += t->oldest->turn || t->oldest->wait.count;
		agents_close_lane(t, t->oldest, t->oldest->last_end_ns);
	}
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

struct lane *agents_lane_of(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns)
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

struct agent_entry *agents_of_helper(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns)
{
	struct agent_entry *a;
	char key[KEY_BYTES];

	agent_key(key, c, c->agent_id);
	HASH_FIND_STR(t->agents, key, a);
	return a ? a : make_agent(t, key, c, p, NULL, false, begin_ns);
}
