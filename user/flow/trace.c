/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "trace_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FLUSH_BYTES 32768u

/* Viewers compute in doubles: 2^42 us is the last power of two where one is still exact to 1 ns (50 days). */
#define TS_MAX_NS 4398046511000000u

/* --- output ------------------------------------------------------------------------------------------------------ */

static void flush(struct writing *w)
{
	if (!w->err && w->line.len)
		w->err = w->sink->write(w->sink->ctx, w->line.ptr, w->line.len);
	buf_clear(&w->line);
}

void trace_put(struct writing *w, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		BUG("trace: formatted piece too long"); /* strings of others go through trace_put_text() */
	if (!w->err)
		w->err = buf_push(&w->line, text, (size_t)n);
}

void trace_put_text(struct writing *w, struct sv text)
{
	if (!w->err)
		w->err = json_escape(&w->line, text);
}

static void put_raw(struct writing *w, struct sv json_text)
{
	if (!w->err)
		w->err = buf_push(&w->line, json_text.ptr, json_text.len);
}

void trace_begin_event(struct writing *w)
{
	if (w->line.len >= FLUSH_BYTES)
		flush(w);
	trace_put(w, "%s\n", w->comma ? "," : "");
	w->comma = true;
}

uint64_t trace_relative(const struct writing *w, uint64_t ns)
{
	uint64_t since = ns > w->meta->start_ns ? ns - w->meta->start_ns : 0;

	return since < TS_MAX_NS ? since : TS_MAX_NS;
}

/* pid 0 is the idle task to a viewer, and viewers keep 31 bits. Only a forged capture has such pids. */
uint32_t trace_viewer_pid(uint32_t pid)
{
	pid &= INT32_MAX;
	return pid ? pid : SELF_PID;
}

void trace_put_slice(struct writing *w, uint32_t pid, uint32_t tid, struct sv name, const char *cat, uint64_t begin,
		     uint64_t end)
{
	trace_begin_event(w);
	trace_put(w, "{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":" US_FORMAT ",\"dur\":" US_FORMAT ",\"name\":\"", pid,
		  tid, US(begin), US(end - begin));
	trace_put_text(w, name);
	trace_put(w, "\",\"cat\":\"%s\"", cat);
	w->timed++;
}

/* --- spans ------------------------------------------------------------------------------------------------------- */

static void put_flow(struct writing *w, char ph, uint64_t id, uint32_t pid, uint32_t tid, uint64_t at)
{
	trace_begin_event(w);
	trace_put(w,
		  "{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u,\"ts\":" US_FORMAT ",\"id\":%" PRIu64
		  ",\"cat\":\"spawn\",\"name\":\"spawn\"%s}",
		  ph, pid, tid, US(at), id, ph == 'f' ? ",\"bp\":\"e\"" : "");
}

/* In the slice that begins at `begin`, but not before the arrow does: its target may have been set up earlier. */
void trace_put_arrow_end(struct writing *w, uint64_t id, uint32_t pid, uint32_t tid, uint64_t begin)
{
	const struct arrow *from = id ? trace_find_arrow(w->arrows, w->arrow_count, id) : NULL;

	if (from)
		put_flow(w, 'f', id, pid, tid, begin > from->at ? begin : from->at);
}

/* A viewer adds ts and dur as doubles, and what ends in them past the next one's begin lies inside of that: between
 * neighbours is 1 ns, as before the end of what is around them. */
static void put_phases(struct writing *w, const struct span *s, uint32_t pid, uint32_t tid, uint64_t begin,
		       uint64_t end)
{
	const char *cat = s->track == SPAN_NETWORK ? "net,phase" : "llm,phase";
	uint64_t at = begin;

	for (unsigned i = 0; i < s->phase_count; i++) {
		uint64_t from = trace_relative(w, s->phases[i].begin_ns), to = trace_relative(w, s->phases[i].end_ns);

		if (from < at)
			from = at;
		if (to >= end) /* 1 ns inside the parent, see span.c: clamping must not undo it */
			to = end ? end - 1 : 0;
		if (to <= from)
			continue;
		at = to;
		if (i + 1 < s->phase_count && trace_relative(w, s->phases[i + 1].begin_ns) <= to)
			to--;
		trace_put_slice(w, pid, tid, sv_of(s->phases[i].name), cat, from, to);
		trace_put(w, "}");
	}
}

/* What nests: each ends 1 ns before the slice around it does, or before the next one may begin. */
static void put_details(struct writing *w, const struct span *s, uint32_t pid, uint32_t tid)
{
	const struct span_phase *around = s->phase_count ? &s->phases[s->phase_count - 1] : NULL;
	uint64_t ends[8], floor_ns, end;
	unsigned depth = 1;

	if (!around || !s->detail_count)
		return;
	ends[0] = trace_relative(w, around->end_ns < s->end_ns ? around->end_ns : s->end_ns - 1);
	floor_ns = trace_relative(w, around->begin_ns);
	for (unsigned i = 0; i < s->detail_count; i++) {
		uint64_t from = trace_relative(w, s->details[i].begin_ns), to = trace_relative(w, s->details[i].end_ns);

		if (from < floor_ns)
			from = floor_ns;
		while (depth > 1 && ends[depth - 1] <= from)
			depth--;
		end = ends[depth - 1];
		to = to < end ? to : end;
		to -= to > 0;
		if (to <= from || depth == ARRAY_SIZE(ends))
			continue;
		trace_put_slice(w, pid, tid, sv_of(s->details[i].name), "llm,content", from, to);
		trace_put(w, "}");
		floor_ns = from;
		ends[depth++] = to;
	}
}

static void put_instants(struct writing *w, const struct span *s, uint32_t pid, uint32_t tid, uint64_t begin,
			 uint64_t end)
{
	for (unsigned i = 0; i < s->instant_count; i++) {
		uint64_t at = trace_relative(w, s->instants[i].ts_ns);

		/* inside the slice, so that a viewer draws it there */
		at = at < begin ? begin : at >= end && end > begin ? end - 1 : at > end ? end : at;
		trace_begin_event(w);
		trace_put(w,
			  "{\"ph\":\"i\",\"s\":\"t\",\"pid\":%u,\"tid\":%u,\"ts\":" US_FORMAT
			  ",\"cat\":\"net\",\"name\":\"%.32s\"}",
			  pid, tid, US(at), s->instants[i].name);
		w->timed++;
	}
}

/* Of the spans one after the other, as spans_each() has them. */
static uint32_t next_tid(struct writing *w, const struct span *s)
{
	return trace_track_tid((uint8_t)s->track, w->lanes[w->cursor++], trace_viewer_pid(s->pid));
}

/* Before any end of one: among equal times viewers go by the order of the file. */
static void put_arrow_begin(void *ctx, const struct span *s)
{
	struct writing *w = ctx;
	const struct arrow *a = s->flow_out ? trace_find_arrow(w->arrows, w->arrow_count, s->flow_out) : NULL;
	uint32_t index = (uint32_t)w->cursor, tid;

	if (w->err || trace_is_quiet(w, s))
		return;
	tid = next_tid(w, s);
	if (a && a->index == index)
		put_flow(w, 's', a->id, trace_viewer_pid(s->pid), tid, a->at);
}

static void put_span(void *ctx, const struct span *s)
{
	struct writing *w = ctx;
	uint64_t begin = trace_relative(w, s->begin_ns), end = trace_relative(w, s->end_ns);
	uint32_t pid = trace_viewer_pid(s->pid), tid;

	if (w->err || trace_is_quiet(w, s))
		return;
	tid = next_tid(w, s);
	if (end < begin)
		end = begin;
	trace_put_slice(w, pid, tid, s->name && *s->name ? sv_of(s->name) : SV("span"), s->cat ? s->cat : "llm", begin,
			end);
	if (s->args) {
		trace_put(w, ",\"args\":");
		put_raw(w, sv_of(s->args));
	}
	trace_put(w, "}");
	trace_put_arrow_end(w, s->flow_in, pid, tid, begin);
	put_phases(w, s, pid, tid, begin, end);
	put_details(w, s, pid, tid);
	put_instants(w, s, pid, tid, begin, end);
}

void trace_put_own_name(struct writing *w)
{
	trace_begin_event(w);
	trace_put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"perfbpf\"}}",
		  SELF_PID);
}

/* --- metadata ---------------------------------------------------------------------------------------------------- */

static void put_meta_text(struct json *j, const char *key, const char *text)
{
	json_string(j, key, text && *text ? trace_cut_text(sv_of(text), TRACE_COMMAND_BYTES) : SV("unknown"));
}

static void put_lost(struct json *j, const struct lost *l)
{
	json_object(j, "lost");
	for (int i = 0; i < LOST_COUNT; i++)
		json_uint(j, lost_name((enum lost_id)i), l ? l->n[i] : 0);
	json_end_object(j);
	json_uint(j, "late_bytes", l ? l->late_bytes : 0);
	json_uint(j, "evicted_calls", l ? l->evicted_calls : 0);
	json_uint(j, "capped_bytes", l ? l->capped_bytes : 0);
	json_uint(j, "ignored_bytes", l ? l->ignored_bytes : 0);
}

static void put_axes(struct json *j, const struct trace_meta *m)
{
	json_array(j, "axes");
	for (size_t i = 0; i < TRACE_AXES_MAX && m->axes[i]; i++)
		json_string(j, NULL, sv_of(m->axes[i]));
	json_end_array(j);
}

static void put_metadata(struct writing *w)
{
	const struct trace_meta *m = w->meta;
	char time[CLOCK_RFC3339_BYTES], offset[32];
	struct json j;

	json_init(&j, &w->line);
	json_object(&j, NULL);
	json_uint(&j, "agent_count", m->agent_count);
	json_uint(&j, "call_count", m->call_count);
	put_meta_text(&j, "version", m->version);
	put_meta_text(&j, "start_time", clock_rfc3339(time, m->start_ns, m->boot_to_unix_ns));
	if (m->now_ns > m->start_ns)
		json_double(&j, "duration_ms", (double)(m->now_ns - m->start_ns) / 1e6, 3);
	put_meta_text(&j, "host", m->host);
	put_meta_text(&j, "kernel", m->kernel);
	put_meta_text(&j, "command", m->command);
	put_axes(&j, m);
	json_string(&j, "clock", SV("boottime"));
	snprintf(offset, sizeof(offset), "%" PRId64, m->boot_to_unix_ns);
	put_meta_text(&j, "boot_to_unix_ns", m->boot_to_unix_ns ? offset : NULL);
	snprintf(offset, sizeof(offset), "%" PRIu64, m->start_ns);
	json_string(&j, "start_boot_ns", sv_of(offset));
	put_lost(&j, m->lost);
	if (m->attach_json.ptr)
		json_raw(&j, "attach", m->attach_json);
	if (m->verdict_json.ptr)
		json_raw(&j, "verdict", m->verdict_json);
	if (m->functions)
		functions_json(m->functions, &j);
	if (m->self_json.ptr)
		json_raw(&j, "self", m->self_json);
	json_end_object(&j);
	if (!w->err)
		w->err = j.err;
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

/* A trace in which nothing happened must still load: viewers refuse a file without an event. */
static void put_something(struct writing *w)
{
	if (w->timed)
		return;
	trace_put_own_name(w);
	trace_begin_event(w);
	trace_put(w,
		  "{\"ph\":\"i\",\"s\":\"g\",\"pid\":%u,\"tid\":%u,\"ts\":0.000,\"cat\":\"perfbpf\",\"name\":\"perfbpf "
		  "start\"}",
		  SELF_PID, SELF_PID);
	w->timed++;
}

static void each_span(struct writing *w, const struct spans *spans, const struct spans *extra,
		      void (*fn)(void *ctx, const struct span *s))
{
	w->cursor = 0;
	spans_each(spans, fn, w);
	if (extra)
		spans_each(extra, fn, w);
}

/* As text of its own: megabytes. Viewers take no notice of this key. */
static void put_profile(struct writing *w)
{
	const struct sv *profile = &w->meta->profile_json;

	if (!profile->len)
		return;
	trace_put(w, "\"otherData\":{\"profile\":");
	flush(w);
	if (!w->err)
		w->err = w->sink->write(w->sink->ctx, profile->ptr, profile->len);
	trace_put(w, "},");
}

static void write_all(struct writing *w, const struct spans *spans, const struct spans *extra)
{
	trace_put(w, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
	trace_put_names(w);
	each_span(w, spans, extra, put_arrow_begin);
	trace_put_lives(w);
	each_span(w, spans, extra, put_span);
	trace_put_newest_counters(w);
	trace_put_measured(w);
	put_something(w);
	trace_put(w, "\n],");
	put_profile(w);
	trace_put(w, "\"metadata\":");
	put_metadata(w);
	trace_put(w, "}\n");
	flush(w);
}

int trace_write(const struct spans *spans, const struct spans *extra, struct procs *procs,
		const struct trace_meta *meta, const struct trace_sink *sink)
{
	struct writing w = {.meta = meta, .sink = sink};

	buf_init(&w.line, 0);
	trace_lay_out(&w, spans, extra, procs);
	if (!w.err)
		write_all(&w, spans, extra);
	buf_release(&w.line);
	free(w.items);
	free(w.lanes);
	free(w.rows);
	free(w.shown);
	free(w.arrows);
	free(w.quiets);
	return w.err;
}
