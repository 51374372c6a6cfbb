/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "toolwait.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

void toolwait_release(struct toolwait *w)
{
	for (size_t i = 0; i < w->count; i++) {
		free(w->tools[i].id);
		free(w->tools[i].name);
	}
	free(w->tools);
	*w = (struct toolwait){0};
}

static char *copy(const char *s, bool *failed)
{
	char *c = s ? strdup(s) : NULL;

	*failed |= s && !c;
	return c;
}

int toolwait_begin(struct toolwait *w, const struct call *c, uint64_t end_ns)
{
	bool failed = false;

	toolwait_release(w);
	w->tools = calloc(c->tool_count, sizeof(*w->tools));
	if (!w->tools)
		return -ENOMEM;
	w->call_id = c->id;
	w->begin_ns = end_ns;
	for (; w->count < c->tool_count; w->count++) {
		const struct tool_call *tool = &c->tools[w->count];
		struct tool_pending *p = &w->tools[w->count];

		p->id = copy(tool->id, &failed);
		p->name = copy(tool->name, &failed);
		p->asks = tool->asks;
		p->begin_ns = tool->end_ns != UNKNOWN_NS && tool->end_ns < end_ns ? tool->end_ns : end_ns;
		if (p->begin_ns < w->begin_ns)
			w->begin_ns = p->begin_ns;
	}
	if (failed)
		toolwait_release(w);
	return failed ? -ENOMEM : 0;
}

/* By the id; where the API has none, by the name, in order: the n-th of a name answers the n-th call of it. */
static const struct tool_result *result_of(const struct toolwait *w, size_t tool, const struct call *c)
{
	const struct tool_pending *p = &w->tools[tool];
	size_t nth = 0;

	if (!c)
		return NULL;
	for (size_t i = 0; p->id && i < c->result_count; i++)
		if (c->results[i].id && !strcmp(c->results[i].id, p->id))
			return &c->results[i];
	if (p->id || !p->name)
		return NULL;
	for (size_t i = 0; i < tool; i++)
		nth += w->tools[i].name && !strcmp(w->tools[i].name, p->name);
	for (size_t i = 0; i < c->result_count; i++)
		if (c->results[i].name && !strcmp(c->results[i].name, p->name) && !nth--)
			return &c->results[i];
	return NULL;
}

bool toolwait_answered_by(const struct toolwait *w, const struct call *c)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->tools[i].id && result_of(w, i, c))
			return true;
	return false;
}

/* One of these words is in the name, in any case. */
static bool named_like(const char *name, const char *const *words, size_t count)
{
	for (size_t i = 0; name && i < count; i++)
		for (const char *at = name; *at; at++)
			if (!strncasecmp(at, words[i], strlen(words[i])))
				return true;
	return false;
}

/* Names under which agents offer a sub-agent, and a shell or another program. */
static const char *const agent_words[] = {"agent", "task", "delegate", "spawn"};
static const char *const shell_words[] = {"bash", "shell",  "exec", "command", "terminal",
					  "run",  "python", "test", "cmd"};

bool toolwait_names_agent(const char *tool)
{
	return named_like(tool, agent_words, ARRAY_SIZE(agent_words));
}

bool toolwait_asked_for(uint64_t asks, const struct call *c)
{
	for (size_t i = 0; asks && i < ARRAY_SIZE(c->opening); i++)
		if (c->opening[i] == asks)
			return true;
	return false;
}

bool toolwait_may_spawn(const struct toolwait *w, const struct tool_pending *p, uint64_t begin_ns)
{
	if (p->begin_ns > begin_ns || toolwait_names_agent(p->name))
		return p->begin_ns <= begin_ns;
	for (size_t i = 0; i < w->count; i++)
		if (w->tools[i].begin_ns <= begin_ns && toolwait_names_agent(w->tools[i].name))
			return false;
	return true;
}

/* Its processes may be this tool's: they are not those of a sub-agent beside it. */
static bool may_run(const struct tool_pending *p)
{
	return !p->inside;
}

static bool names_shell(const char *tool)
{
	return named_like(tool, shell_words, ARRAY_SIZE(shell_words));
}

struct toolwait_rival toolwait_rival(const struct toolwait *w)
{
	struct toolwait_rival r = {.from_ns = UNKNOWN_NS};

	for (size_t i = 0; i < w->count; i++)
		r.shell |= may_run(&w->tools[i]) && names_shell(w->tools[i].name);
	for (size_t i = 0; i < w->count; i++) {
		const struct tool_pending *p = &w->tools[i];

		if (!may_run(p) || (r.shell && !names_shell(p->name)))
			continue;
		r.capacity++;
		if (p->begin_ns < r.from_ns)
			r.from_ns = p->begin_ns;
	}
	return r;
}

/* --- MCP --------------------------------------------------------------------------------------------------------- */

void toolwait_note_rpc(struct toolwait_rpcs *t, const struct agent_rpc *r)
{
	struct toolwait_rpc *slot = &t->ring[t->next++ % AGENTS_RPCS_MAX];

	*slot = (struct toolwait_rpc){.proc = r->proc, .at = r->at, .is_error = r->is_error};
	snprintf(slot->name, sizeof(slot->name), "%s", r->name ? r->name : "");
}

/* Agents offer a server's tool under its own name, or behind a prefix: mcp__SERVER__NAME, SERVER_NAME, SERVER.NAME. */
static bool names_rpc(const char *tool, const char *rpc)
{
	size_t tool_len = tool ? strlen(tool) : 0, len = strlen(rpc);
	const char *tail;

	if (!len || tool_len < len)
		return false;
	tail = tool + (tool_len - len);
	return !strcmp(tail, rpc) && (tool_len == len || !isalnum((unsigned char)tail[-1]));
}

/* The first request of that name by the agent's process while the tool was waited for. It is used up. */
static const struct toolwait_rpc *take_rpc(const struct toolwait_end *end, const struct tool_pending *p,
					   struct toolwait_rpc *copy)
{
	struct toolwait_rpc *found = NULL;

	for (size_t i = 0; end->rpcs && i < AGENTS_RPCS_MAX; i++) {
		struct toolwait_rpc *r = &end->rpcs->ring[i];
		bool ours = proc_key_same_process(&r->proc, end->agent);

		if (ours && r->at.begin_ns >= p->begin_ns && r->at.begin_ns < end->end_ns &&
		    names_rpc(p->name, r->name) && (!found || r->at.begin_ns < found->at.begin_ns))
			found = r;
	}
	if (!found)
		return NULL;
	*copy = *found;
	found->name[0] = '\0';
	return copy;
}

/* --- joining ----------------------------------------------------------------------------------------------------- */

struct join {
	const struct family_member *born[TOOL_CHILDREN_MAX];
	size_t born_count;
	size_t owner[TOOL_CHILDREN_MAX];		     /* index of a tool; SIZE_MAX: none yet */
	bool *by_id;					     /* of each tool */
	bool *may_run;					     /* of each tool: a process without an id may be its */
	bool contested;					     /* one of the processes may be another conversation's */
	bool refused;					     /* ... or those of the candidates are whose nobody knows */
	const struct family_member *ours[TOOL_CHILDREN_MAX]; /* without an id: this conversation's */
	size_t our_at[TOOL_CHILDREN_MAX];		     /* their place in `born` */
	size_t our_count;
	struct toolwait_rival rivals[TOOLWAIT_RIVALS_MAX + 1]; /* the first one is this conversation */
	size_t rival_count;
	size_t may_count;
};

static void join_by_id(const struct toolwait *w, struct join *j)
{
	for (size_t b = 0; b < j->born_count; b++) {
		j->owner[b] = SIZE_MAX;
		for (size_t i = 0; i < w->count && j->born[b]->tool_id[0]; i++) {
			if (!w->tools[i].id || strcmp(w->tools[i].id, j->born[b]->tool_id))
				continue;
			j->owner[b] = i;
			j->by_id[i] = true;
		}
	}
}

/* Tools that may own a process that names no id: those named like a shell, or all when none is. */
static void find_candidates(const struct toolwait *w, struct join *j)
{
	for (int named = 1; named >= 0 && !j->may_count; named--)
		for (size_t i = 0; i < w->count; i++) {
			bool shell = names_shell(w->tools[i].name);

			j->may_run[i] = !j->by_id[i] && may_run(&w->tools[i]) && (shell || !named);
			j->may_count += j->may_run[i];
		}
}

static unsigned running(const struct toolwait_rival *r, uint64_t at_ns)
{
	unsigned n = 0;

	for (size_t i = 0; i < TOOLWAIT_RUNS_MAX; i++)
		n += r->until_ns[i] > at_ns;
	return n;
}

/* It started one that ends then: in the place of the one that ended first. */
static void note_running(struct toolwait_rival *r, uint64_t until_ns)
{
	size_t first = 0;

	for (size_t i = 1; i < TOOLWAIT_RUNS_MAX; i++)
		if (r->until_ns[i] < r->until_ns[first])
			first = i;
	r->until_ns[first] = until_ns;
}

#define NOBODY	SIZE_MAX
#define SEVERAL (SIZE_MAX - 1)

/* Who started a process that was born then: the only one that waits for a shell (else for anything), or of several the
 * only one of which less runs than it asked for. `ours`: the first one is among those that it may be. */
static size_t starter(const struct toolwait_rival *r, size_t count, uint64_t born_ns, bool *ours)
{
	size_t waiting = NOBODY, idle = NOBODY;
	bool shell = false;

	*ours = false;
	for (size_t i = 0; i < count; i++)
		shell |= r[i].from_ns <= born_ns && r[i].shell;
	for (size_t i = 0; i < count; i++) {
		if (r[i].from_ns > born_ns || r[i].shell != shell)
			continue;
		*ours |= i == 0;
		waiting = waiting == NOBODY ? i : SEVERAL;
		if (running(&r[i], born_ns) < r[i].capacity)
			idle = idle == NOBODY ? i : SEVERAL;
	}
	return waiting == SEVERAL && idle < SEVERAL ? idle : waiting;
}

/* In the order of births; those from before this conversation's tools say what of the others runs already. */
static void settle(struct join *j, const struct toolwait_end *end, const struct family_member *m, size_t at)
{
	bool own = at != NOBODY, ours;
	size_t who;

	if (m->claimed || m->tool_id[0])
		return;
	who = starter(j->rivals, j->rival_count, m->at.begin_ns, &ours);
	if (own && ours && (m->disputed || who == SEVERAL)) {
		j->contested = true;
		family_claim(end->family, m, true);
		end->on_ran(end->ctx,
			    &(struct interval){m->at.begin_ns, m->at.end_ns < end->end_ns ? m->at.end_ns : end->end_ns},
			    false);
	} else if (!m->disputed && who < SEVERAL) {
		note_running(&j->rivals[who], m->at.end_ns);
		if (own && who == 0) {
			j->ours[j->our_count] = m;
			j->our_at[j->our_count++] = at;
		}
	}
}

static void find_ours(const struct toolwait *w, struct join *j, const struct toolwait_end *end)
{
	const struct family_member **before = malloc(TOOL_CHILDREN_MAX * sizeof(*before));
	uint64_t from_ns = w->begin_ns;
	size_t n = 0;

	j->rivals[0] = toolwait_rival(w);
	j->rival_count = 1;
	for (size_t i = 0; i < end->rival_count && i < TOOLWAIT_RIVALS_MAX; i++) {
		j->rivals[j->rival_count++] = end->rivals[i];
		from_ns = end->rivals[i].from_ns < from_ns ? end->rivals[i].from_ns : from_ns;
	}
	if (before && from_ns < w->begin_ns)
		n = family_born(end->family, end->agent, from_ns, w->begin_ns, before, TOOL_CHILDREN_MAX);
	for (size_t i = 0; i < n; i++)
		settle(j, end, before[i], NOBODY);
	free(before);
	for (size_t b = 0; b < j->born_count; b++)
		if (j->owner[b] == SIZE_MAX)
			settle(j, end, j->born[b], b);
}

/* One after the other, as many as candidates. */
static bool in_order(const struct join *j)
{
	for (size_t i = 1; i < j->our_count; i++)
		if (j->ours[i - 1]->at.end_ns > j->ours[i]->at.begin_ns)
			return false;
	return j->our_count == j->may_count;
}

/* The processes that nothing names are the only candidate's; of several, each one's in their order; or nobody knows. */
static void join_by_time(const struct toolwait *w, struct join *j, const struct toolwait_end *end)
{
	size_t tool = 0;

	if (!j->may_count)
		return;
	find_ours(w, j, end);
	j->refused = j->our_count && j->may_count > 1 && !in_order(j);
	for (size_t i = 0; i < j->our_count; i++) {
		const struct family_member *m = j->ours[i];

		if (j->refused) {
			family_claim(end->family, m, false);
			end->on_ran(end->ctx,
				    &(struct interval){m->at.begin_ns,
						       m->at.end_ns < end->end_ns ? m->at.end_ns : end->end_ns},
				    true);
			continue;
		}
		while (tool < w->count && !j->may_run[tool])
			tool++;
		j->owner[j->our_at[i]] = tool;
		tool += j->may_count > 1;
	}
}

/* Of candidates with one name all that they ran is known, though not which ran what. */
static bool shares_time(const struct toolwait *w, const struct join *j, size_t tool)
{
	const char *name = w->tools[tool].name;

	if (!j || !j->refused || !j->may_run[tool] || j->contested)
		return false;
	for (size_t i = 0; i < w->count; i++)
		if (j->may_run[i] && (!w->tools[i].name || !name || strcmp(w->tools[i].name, name)))
			return false;
	return true;
}

/* The time that is added up by name. */
static uint64_t time_taken(const struct join *j, const struct agent_tool *t, bool shares, uint64_t end_ns)
{
	uint64_t sum_ns = 0;

	if (!shares)
		return t->at.end_ns - t->at.begin_ns;
	for (size_t i = 0; i < j->our_count; i++) {
		const struct interval *at = &j->ours[i]->at;

		sum_ns += (at->end_ns < end_ns ? at->end_ns : end_ns) - at->begin_ns;
	}
	return sum_ns / j->may_count;
}

/* The one that ran longest is the tool's: before it Claude Code asks for the environment and takes a snapshot of the
 * shell, where it is the session's first tool, and hooks come before and after. */
static void add_process(struct agent_tool *t, const struct family_member *m, uint64_t end_ns, uint64_t *longest_ns)
{
	uint64_t ended_ns = m->at.end_ns < end_ns ? m->at.end_ns : end_ns;
	uint64_t lived_ns = ended_ns > m->at.begin_ns ? ended_ns - m->at.begin_ns : 0;

	if (!t->processes++)
		t->at = (struct interval){m->at.begin_ns, ended_ns};
	if (t->processes == 1 || lived_ns > *longest_ns) {
		*longest_ns = lived_ns;
		t->program = m->program[0] ? m->program : NULL;
		t->child_pid = m->shown_pid;
		t->code = m->code;
		t->signal = m->signal;
	}
	if (ended_ns > t->at.end_ns)
		t->at.end_ns = ended_ns;
	t->running |= m->at.end_ns > end_ns;
	if (m->at.end_ns <= end_ns)
		t->cpu_ns += m->cpu_ns;
}

/* The client's own measure: of the n-th tool of a name the n-th one. UNKNOWN_COUNT where it says nothing. */
static int64_t client_measure(const struct toolwait *w, size_t tool, const struct call *c)
{
	const char *name = w->tools[tool].name;
	struct sv item, rest = sv_of(c ? c->tool_durations : NULL);
	size_t nth = 0;

	for (size_t i = 0; name && i < tool; i++)
		nth += w->tools[i].name && !strcmp(w->tools[i].name, name);
	while (name && rest.ptr) {
		struct sv value, key;
		uint64_t ms = 0;

		item = sv_cut(rest, ',', &rest);
		key = sv_trim(sv_cut(item, '=', &value));
		if (!sv_eq(key, sv_of(name)) || nth--)
			continue;
		value = sv_trim(value);
		for (size_t i = 0; i < value.len; i++) {
			if (value.ptr[i] < '0' || value.ptr[i] > '9' || value.len > 9)
				return UNKNOWN_COUNT;
			ms = ms * 10 + (uint64_t)(value.ptr[i] - '0');
		}
		return value.len ? (int64_t)ms * 1000000 : UNKNOWN_COUNT;
	}
	return UNKNOWN_COUNT;
}

static void tell(const struct toolwait *w, const struct join *j, const struct toolwait_end *end, size_t i)
{
	const struct tool_result *result = result_of(w, i, end->next);
	const struct toolwait_rpc *rpc = NULL;
	bool shares = shares_time(w, j, i);
	struct toolwait_rpc copy;
	uint64_t longest_ns = 0;
	struct agent_tool t = {
		.agent = end->agent_index,
		.sub = end->sub,
		.shown_pid = end->shown_pid,
		.call_id = w->call_id,
		.result_call_id = result ? end->next->id : 0,
		.id = w->tools[i].id,
		.name = w->tools[i].name,
		.spawned = w->tools[i].spawned,
		.asks = w->tools[i].asks,
		.asked_ns = w->tools[i].begin_ns,
		.at = {w->tools[i].begin_ns, end->end_ns},
		.client_ns = client_measure(w, i, end->next),
		.result_bytes = result ? result->bytes : UNKNOWN_COUNT,
		.is_error = result ? result->is_error : -1,
	};

	if (t.at.end_ns < t.at.begin_ns)
		t.at.end_ns = t.at.begin_ns;
	for (size_t b = 0; j && b < j->born_count; b++)
		if (j->owner[b] == i) {
			add_process(&t, j->born[b], end->end_ns, &longest_ns);
			family_claim(end->family, j->born[b], false);
		}
	if (!j || !j->by_id[i])
		rpc = take_rpc(end, &w->tools[i], &copy);
	if (rpc) {
		t.join = TOOL_JOIN_RPC;
		t.at = (struct interval){rpc->at.begin_ns, rpc->at.end_ns < end->end_ns ? rpc->at.end_ns : end->end_ns};
		t.is_error = t.is_error < 0 ? rpc->is_error : t.is_error;
	} else if (t.processes) {
		t.join = j->by_id[i] ? TOOL_JOIN_ID : TOOL_JOIN_TIME;
	} else if (t.client_ns >= 0 && t.at.begin_ns + (uint64_t)t.client_ns <= t.at.end_ns) {
		t.join = TOOL_JOIN_CLIENT;
		t.at.end_ns = t.at.begin_ns + (uint64_t)t.client_ns;
	}
	t.ambiguous = t.join == TOOL_JOIN_GAP && j && j->may_run[i] && (j->refused || j->contested);
	t.took_ns = time_taken(j, &t, shares, end->end_ns);
	t.at_most = t.join == TOOL_JOIN_GAP && !shares;
	end->on_tool(end->ctx, &t);
}

int toolwait_end(struct toolwait *w, const struct toolwait_end *end)
{
	struct join *j = calloc(1, sizeof(*j));
	bool *flags = calloc(2 * w->count + 1, sizeof(*flags));
	int err = j && flags ? 0 : -ENOMEM;

	if (!err) {
		j->by_id = flags;
		j->may_run = flags + w->count;
		j->born_count =
			family_born(end->family, end->agent, w->begin_ns, end->end_ns, j->born, TOOL_CHILDREN_MAX);
		join_by_id(w, j);
		find_candidates(w, j);
		join_by_time(w, j, end);
	}
	for (size_t i = 0; i < w->count; i++)
		tell(w, err ? NULL : j, end, i);
	free(j);
	free(flags);
	toolwait_release(w);
	return err;
}
