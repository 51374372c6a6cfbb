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

uint64_t toolwait_runs_from(const struct toolwait *w)
{
	uint64_t from_ns = UNKNOWN_NS;

	for (size_t i = 0; i < w->count; i++)
		if (may_run(&w->tools[i]) && w->tools[i].begin_ns < from_ns)
			from_ns = w->tools[i].begin_ns;
	return from_ns;
}

/* --- MCP ------------------------------------------------------------------------------------------------------------
 */

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
	const char *tail = tool + (tool_len - len);

	if (!len || tool_len < len || strcmp(tail, rpc))
		return false;
	return tool_len == len || !isalnum((unsigned char)tail[-1]);
}

/* The first request of that name by the agent's process while the tool was waited for. It is used up. */
static const struct toolwait_rpc *take_rpc(const struct toolwait_end *end, const struct tool_pending *p,
					   struct toolwait_rpc *copy)
{
	struct toolwait_rpc *found = NULL;

	for (size_t i = 0; end->rpcs && i < AGENTS_RPCS_MAX; i++) {
		struct toolwait_rpc *r = &end->rpcs->ring[i];
		bool ours = r->proc.tgid == end->agent->tgid && r->proc.start_ns == end->agent->start_ns;

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

/* --- joining --------------------------------------------------------------------------------------------------------
 */

struct join {
	const struct family_member *born[TOOL_CHILDREN_MAX];
	size_t born_count;
	size_t owner[TOOL_CHILDREN_MAX]; /* index of a tool; SIZE_MAX: none yet */
	bool *by_id;			 /* of each tool */
	bool *may_run;			 /* of each tool: a process without an id may be its */
	bool *contested;		 /* of each tool: one of its processes may be another conversation's */
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
			bool shell = named_like(w->tools[i].name, shell_words, ARRAY_SIZE(shell_words));

			j->may_run[i] = !j->by_id[i] && may_run(&w->tools[i]) && (shell || !named);
			j->may_count += j->may_run[i];
		}
}

enum rival {
	RIVAL_NONE,
	RIVAL_LIKELY, /* of another conversation, which asked before */
	RIVAL_NEARER, /* which asked later, and so shortly before the birth */
};

static enum rival rival_for(const struct toolwait_end *end, uint64_t born_ns, uint64_t tool_begin_ns)
{
	enum rival found = RIVAL_NONE;

	for (size_t i = 0; i < end->rival_count; i++) {
		if (end->rivals[i] > born_ns)
			continue;
		if (end->rivals[i] > tool_begin_ns)
			return RIVAL_NEARER;
		found = RIVAL_LIKELY;
	}
	return found;
}

/* The processes that nothing names go to the candidates in order: one each, the rest to the last one. */
static void join_by_time(const struct toolwait *w, struct join *j, const struct toolwait_end *end)
{
	size_t at = 0;

	for (size_t b = 0; b < j->born_count && j->may_count; b++) {
		enum rival rival;
		size_t next;

		if (j->owner[b] != SIZE_MAX || j->born[b]->claimed)
			continue;
		while (!j->may_run[at])
			at++;
		rival = rival_for(end, j->born[b]->at.begin_ns, w->tools[at].begin_ns);
		if (rival == RIVAL_NEARER)
			continue;
		j->contested[at] |= rival == RIVAL_LIKELY;
		j->owner[b] = at;
		for (next = at + 1; next < w->count && !j->may_run[next]; next++)
			;
		if (next < w->count && j->born[b]->at.begin_ns >= w->tools[next].begin_ns)
			at = next;
	}
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
			family_claim(end->family, j->born[b]);
		}
	if (!j || !j->by_id[i])
		rpc = take_rpc(end, &w->tools[i], &copy);
	if (rpc) {
		t.join = TOOL_JOIN_RPC;
		t.at = (struct interval){rpc->at.begin_ns, rpc->at.end_ns < end->end_ns ? rpc->at.end_ns : end->end_ns};
		t.is_error = t.is_error < 0 ? rpc->is_error : t.is_error;
	} else if (t.processes) {
		t.join = j->by_id[i] ? TOOL_JOIN_ID : TOOL_JOIN_TIME;
		t.ambiguous = t.join == TOOL_JOIN_TIME && (j->may_count > 1 || j->contested[i]);
	} else if (t.client_ns >= 0 && t.at.begin_ns + (uint64_t)t.client_ns <= t.at.end_ns) {
		t.join = TOOL_JOIN_CLIENT;
		t.at.end_ns = t.at.begin_ns + (uint64_t)t.client_ns;
	}
	end->on_tool(end->ctx, &t);
}

int toolwait_end(struct toolwait *w, const struct toolwait_end *end)
{
	struct join *j = calloc(1, sizeof(*j));
	bool *flags = calloc(3 * w->count + 1, sizeof(*flags));
	int err = j && flags ? 0 : -ENOMEM;

	if (!err) {
		j->by_id = flags;
		j->may_run = flags + w->count;
		j->contested = flags + 2 * w->count;
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
