/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "trace_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGV_MAX   64
#define ARGV_BYTES 256

/*
 * X(track, its name, thread id of its first lane, where that one is sorted within a process): all but SPAN_PROCESS. The
 * ids are above the largest pid_max (4194304), so that they are never a real thread's, and have room for EXCHANGE_MAX
 * and MCP_OPEN_MAX (65536) lanes. doc/trace-format.md has all of this.
 */
#define TRACKS(X)                                                                                                      \
	X(SPAN_TURN, "turns", 5300001, 1)                                                                              \
	X(SPAN_LLM, "LLM requests", 5000001, 70000)                                                                    \
	X(SPAN_TOOL, "tools", 5400001, 140000)                                                                         \
	X(SPAN_MCP, "MCP requests", 5100001, 210000)                                                                   \
	X(SPAN_DB, "database commands", 5500001, 245000)                                                               \
	X(SPAN_HTTP, "HTTP requests", 5600001, 262500)                                                                 \
	X(SPAN_FUNCTION, "functions", 5700001, 271000)                                                                 \
	X(SPAN_NETWORK, "connections", 5200001, 280000)

static const struct {
	const char *name;
	uint32_t first_tid, order;
} tracks[] = {
#define X(track, name, first_tid, order) [track] = {name, first_tid, order},
	TRACKS(X)
#undef X
};

#define ONE(track, name, first_tid, order) +1
_Static_assert(TRACKS(ONE) == SPAN_PROCESS, "every track of enum span_track has a line");

uint32_t trace_track_tid(uint8_t track, uint32_t lane, uint32_t pid)
{
	return track == SPAN_PROCESS ? pid : tracks[track].first_tid + lane;
}

uint32_t trace_track_order(uint8_t track)
{
	return tracks[track].order;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

/* Is the life of this process drawn? Those that did something here, were started or known by their command, or ended.
 */
bool trace_draws_life(const struct writing *w, const struct shown *s)
{
	const struct proc *p = s->proc;

	if (!p || (p->end_ns != UNKNOWN_NS && p->end_ns <= w->meta->start_ns))
		return false;
	return s->has_spans || p->args || p->end_ns != UNKNOWN_NS;
}

static void put_process_name(struct writing *w, uint32_t pid, const struct proc *p)
{
	char fallback[32];

	snprintf(fallback, sizeof(fallback), "pid %u", pid);
	trace_begin_event(w);
	trace_put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"", pid);
	trace_put_text(w, sv_of(p && p->agent ? p->agent : p && p->name[0] ? p->name : fallback));
	trace_put(w, "\"}}");
}

static void put_sort_index(struct writing *w, const char *what, uint32_t pid, uint32_t tid, uint32_t index)
{
	trace_begin_event(w);
	trace_put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%u}}",
		  pid, tid, what, index & INT32_MAX);
}

static void put_thread_name(struct writing *w, uint32_t pid, uint32_t tid, const char *name, uint32_t lane)
{
	trace_begin_event(w);
	trace_put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"", pid, tid);
	trace_put_text(w, sv_of(name));
	if (lane)
		trace_put(w, " (%u)", lane + 1);
	trace_put(w, "\"}}");
}

static int by_index(const void *key, const void *name)
{
	unsigned a = *(const unsigned *)key, b = ((const struct trace_agent_name *)name)->index;

	return a < b ? -1 : a > b;
}

static const char *kind_of_agent(const struct trace_meta *meta, unsigned index)
{
	const struct trace_agent_name *found =
		meta->agent_name_count
			? bsearch(&index, meta->agent_names, meta->agent_name_count, sizeof(*found), by_index)
			: NULL;

	return found ? found->name : NULL;
}

/* Sub-agents' lanes say whose they are. */
static void row_name(const struct writing *w, const struct row *r, const char *name, char *out, size_t size)
{
	const char *kind = kind_of_agent(w->meta, r->agent);

	if (!r->agent)
		snprintf(out, size, "%s", name);
	else
		snprintf(out, size, "agent %u%s%.48s: %s", r->agent, kind ? " " : "", kind ? kind : "", name);
}

static void put_row_names(struct writing *w, const struct row *r)
{
	char name[96];

	row_name(w, r, tracks[r->track].name, name, sizeof(name));
	for (uint32_t lane = 0; lane < r->lanes; lane++) {
		uint32_t tid = trace_track_tid(r->track, r->first_lane + lane, r->pid);

		put_thread_name(w, r->pid, tid, name, lane);
		put_sort_index(w, "thread", r->pid, tid, r->order + lane);
	}
}

void trace_put_names(struct writing *w)
{
	for (size_t i = 0; i < w->shown_count; i++) {
		const struct shown *s = &w->shown[i];

		if (!s->has_spans && !trace_draws_life(w, s))
			continue;
		put_process_name(w, s->pid, s->proc);
		put_sort_index(w, "process", s->pid, 0, s->proc ? s->proc->order : INT32_MAX);
		if (trace_draws_life(w, s)) {
			put_thread_name(w, s->pid, s->pid, "process", 0);
			put_sort_index(w, "thread", s->pid, s->pid, 0);
		}
	}
	for (size_t i = 0; i < w->row_count; i++)
		put_row_names(w, &w->rows[i]);
}

/* --- processes --------------------------------------------------------------------------------------------------- */

struct sv trace_cut_text(struct sv text, size_t max)
{
	if (text.len <= max)
		return text;
	text.len = max;
	while (text.len && ((unsigned char)text.ptr[text.len] & 0xc0) == 0x80)
		text.len--;
	return text;
}

static void put_argv(struct json *j, const struct proc *p)
{
	struct sv rest = {p->args, p->args_len};

	if (!p->args || !p->args_len)
		return;
	json_array(j, "argv");
	for (unsigned n = 0; rest.ptr && n < ARGV_MAX; n++) {
		struct sv arg = sv_cut(rest, '\0', &rest);

		json_string(j, NULL, trace_cut_text(arg, ARGV_BYTES));
		if (rest.ptr && !rest.len) /* the last one's own terminator */
			break;
	}
	json_end_array(j);
}

/* All programs that it was, its last one too. */
static void put_chain(struct json *j, const struct proc *p)
{
	if (!p->chain_len)
		return;
	json_array(j, "exec_chain");
	for (size_t i = 0; i < p->chain_len; i += strlen(p->chain + i) + 1)
		json_string(j, NULL, sv_of(p->chain + i));
	json_string(j, NULL, sv_of(p->name));
	json_end_array(j);
}

static void put_process_args(struct writing *w, const struct proc *p)
{
	struct json j;

	trace_put(w, ",\"args\":");
	json_init(&j, &w->line);
	json_object(&j, NULL);
	put_argv(&j, p);
	if (p->exe[0])
		json_string(&j, "exe", sv_of(p->exe));
	put_chain(&j, p);
	if (p->tool_call_id)
		json_string(&j, "tool_call_id", sv_of(p->tool_call_id));
	if (p->ppid)
		json_uint(&j, "ppid", p->ppid);
	if (p->parent_tid)
		json_uint(&j, "parent_tid", p->parent_tid);
	if (trace_viewer_pid(p->shown_pid) != p->key.tgid)
		json_uint(&j, "os_pid", p->key.tgid);
	if (p->begin_ns < w->meta->start_ns)
		json_bool(&j, "began_before_trace", true);
	if (p->end_ns == UNKNOWN_NS) {
		json_bool(&j, "unfinished", true);
	} else {
		if (p->code != EXIT_CODE_UNKNOWN)
			json_int(&j, "exit_code", p->code);
		if (p->signal)
			json_int(&j, "signal", p->signal);
		if (p->cpu_ns)
			json_double(&j, "cpu_ms", (double)p->cpu_ns / 1e6, 3);
		if (p->max_rss_bytes)
			json_uint(&j, "max_rss_bytes", p->max_rss_bytes);
	}
	json_end_object(&j);
	if (!w->err)
		w->err = j.err;
}

uint64_t trace_life_end(const struct writing *w, const struct proc *p)
{
	if (p->end_ns != UNKNOWN_NS)
		return trace_relative(w, p->end_ns);
	return w->meta->now_ns ? trace_relative(w, w->meta->now_ns) : w->latest;
}

void trace_put_lives(struct writing *w)
{
	for (size_t i = 0; i < w->shown_count && !w->err; i++) {
		const struct shown *s = &w->shown[i];
		char name[sizeof(s->proc->name) + 8];
		uint64_t begin, end;

		if (!trace_draws_life(w, s))
			continue;
		begin = trace_relative(w, s->proc->begin_ns);
		end = trace_life_end(w, s->proc);
		snprintf(name, sizeof(name), "exec %s", s->proc->name[0] ? s->proc->name : "?");
		trace_put_slice(w, s->pid, s->pid, sv_of(name), "process", begin, end > begin ? end : begin);
		put_process_args(w, s->proc);
		trace_put(w, "}");
		trace_put_arrow_end(w, SPAN_FLOW_PROCESS(s->proc->shown_pid), s->pid, s->pid, begin);
	}
}
