/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"

#define LANE_TID	  5000001u /* above the largest pid_max (4194304): never a real thread */
#define LANE_TID_MCP	  5100001u /* room for EXCHANGE_MAX (65536) lanes below */
#define LANE_TID_NETWORK  5200001u /* and for MCP_OPEN_MAX (65536) */
#define LANE_TID_TURN	  5300001u
#define LANE_TID_TOOL	  5400001u
#define LANE_TID_DB	  5500001u
#define LANE_TID_HTTP	  5600001u
#define LANE_TID_FUNCTION 5700001u
#define SELF_PID	  9999999u   /* of events that belong to no process; below the synthetic pids of proc.h */
#define SAMPLE_GAP_NS	  100000000u /* at most ten samples a second of one counter */
#define FLUSH_BYTES	  32768u
#define ARGV_MAX	  64
#define ARGV_BYTES	  256

/* Viewers compute in doubles: 2^42 us is the last power of two where one is still exact to 1 ns (50 days). */
#define TS_MAX_NS 4398046511000000u

/* Names of the tracks, and their order within a process. */
static const struct {
	const char *name;
	uint32_t order;
} tracks[] = {
	[SPAN_TURN] = {"turns", 1},
	[SPAN_LLM] = {"LLM requests", 70000},
	[SPAN_TOOL] = {"tools", 140000},
	[SPAN_MCP] = {"MCP requests", 210000},
	[SPAN_DB] = {"database commands", 245000},
	[SPAN_HTTP] = {"HTTP requests", 262500},
	[SPAN_FUNCTION] = {"functions", 271000},
	[SPAN_NETWORK] = {"connections", 280000},
};
#define SUB_AGENT_ORDER 350000u

/* A span's place, for lanes and counters. */
struct item {
	uint64_t begin, end;	   /* since the trace's start */
	uint64_t first;		   /* first token; == end where there is none */
	int64_t in_rate, out_rate; /* thousandths of a token/s: integers, so that sums come back to exactly 0 */
	uint32_t pid, index, agent;
	uint64_t flow_out, flow_in;
	uint8_t track;
	bool is_call;
};

/* One kind of lane of one agent of one process. */
struct row {
	uint32_t pid, lanes, agent;
	uint32_t first_lane; /* those of the agents before it come first */
	uint32_t order;	     /* thread_sort_index of its first lane */
	uint8_t track;
};

/* Where an arrow begins: one an id. */
struct arrow {
	uint64_t id, at; /* at: since the trace's start */
	uint32_t index;	 /* of the item */
};

/* A process that has anything to show. */
struct shown {
	uint32_t pid;
	const struct proc *proc; /* NULL: forgotten */
	bool has_spans;
};

struct writing {
	const struct trace_meta *meta;
	const struct trace_sink *sink;
	struct buf line;
	int err;	  /* sticky */
	uint64_t timed;	  /* events with a ts */
	uint64_t samples; /* of counters, so far */
	uint64_t skipped; /* so many of the first ones are not written */
	bool comma;
	uint64_t latest; /* latest end, since the trace's start */

	struct item *items;
	size_t item_count, item_size;
	uint32_t *lanes; /* by item index */
	struct row *rows;
	size_t row_count, row_size;
	struct shown *shown;
	size_t shown_count, shown_size;
	struct arrow *arrows; /* sorted; those of which both ends are there */
	size_t arrow_count;
	uint32_t *quiets; /* pids of processes that are not to be shown, sorted */
	size_t quiet_count, quiet_size;
	size_t cursor; /* item index while spans are written */
};

/* --- output ---------------------------------------------------------------------------------------------------------
 */

static void flush(struct writing *w)
{
	if (!w->err && w->line.len)
		w->err = w->sink->write(w->sink->ctx, w->line.ptr, w->line.len);
	buf_clear(&w->line);
}

static void put(struct writing *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writing *w, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		BUG("trace: formatted piece too long"); /* strings of others go through put_text() */
	if (!w->err)
		w->err = buf_push(&w->line, text, (size_t)n);
}

static void put_text(struct writing *w, struct sv text)
{
	if (!w->err)
		w->err = json_escape(&w->line, text);
}

static void put_raw(struct writing *w, struct sv json_text)
{
	if (!w->err)
		w->err = buf_push(&w->line, json_text.ptr, json_text.len);
}

static void begin_event(struct writing *w)
{
	if (w->line.len >= FLUSH_BYTES)
		flush(w);
	put(w, "%s\n", w->comma ? "," : "");
	w->comma = true;
}

/* Nanoseconds as microseconds with exactly three decimals. */
#define US_FORMAT "%" PRIu64 ".%03u"
#define US(ns)	  (uint64_t)(ns) / 1000, (unsigned)((ns) % 1000)

static uint64_t relative(const struct writing *w, uint64_t ns)
{
	uint64_t since = ns > w->meta->start_ns ? ns - w->meta->start_ns : 0;

	return since < TS_MAX_NS ? since : TS_MAX_NS;
}

/* pid 0 is the idle task to a viewer, and viewers keep 31 bits. Only a forged capture has such pids. */
static uint32_t viewer_pid(uint32_t pid)
{
	pid &= INT32_MAX;
	return pid ? pid : SELF_PID;
}

static uint32_t track_tid(uint8_t track, uint32_t lane, uint32_t pid)
{
	static const uint32_t first[] = {[SPAN_LLM] = LANE_TID,	      [SPAN_MCP] = LANE_TID_MCP,
					 [SPAN_DB] = LANE_TID_DB,     [SPAN_NETWORK] = LANE_TID_NETWORK,
					 [SPAN_TURN] = LANE_TID_TURN, [SPAN_TOOL] = LANE_TID_TOOL,
					 [SPAN_HTTP] = LANE_TID_HTTP, [SPAN_FUNCTION] = LANE_TID_FUNCTION};

	return track == SPAN_PROCESS ? pid : first[track] + lane;
}

static void put_slice(struct writing *w, uint32_t pid, uint32_t tid, struct sv name, const char *cat, uint64_t begin,
		      uint64_t end)
{
	begin_event(w);
	put(w, "{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":" US_FORMAT ",\"dur\":" US_FORMAT ",\"name\":\"", pid, tid,
	    US(begin), US(end - begin));
	put_text(w, name);
	put(w, "\",\"cat\":\"%s\"", cat);
	w->timed++;
}

/* Room for one more of w->WHATs. 0 or -ENOMEM. */
#define MORE(w, what)                                                                                                  \
	(array_grow(&(w)->what##s, (w)->what##_count, &(w)->what##_size, sizeof(*(w)->what##s)) ? 0 : -ENOMEM)

/* --- collecting
 * ------------------------------------------------------------------------------------------------------- */

static int64_t milli_rate(double per_s)
{
	return isfinite(per_s) && per_s > 0 && per_s < 1e12 ? (int64_t)(per_s * 1000) : 0;
}

static int compare_pids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static bool is_quiet(const struct writing *w, const struct span *s)
{
	uint32_t pid = viewer_pid(s->pid);

	return w->quiet_count && bsearch(&pid, w->quiets, w->quiet_count, sizeof(pid), compare_pids);
}

static void collect_span(void *ctx, const struct span *s)
{
	struct writing *w = ctx;
	struct item *i;

	if (w->err || is_quiet(w, s))
		return;
	w->err = MORE(w, item);
	if (w->err)
		return;
	i = &w->items[w->item_count];
	*i = (struct item){
		.begin = relative(w, s->begin_ns),
		.end = relative(w, s->end_ns),
		.pid = viewer_pid(s->pid),
		.index = (uint32_t)w->item_count,
		.agent = s->agent,
		.flow_out = s->flow_out,
		.flow_in = s->flow_in,
		.track = (uint8_t)s->track,
		.is_call = s->is_call,
	};
	w->item_count++;
	if (i->end < i->begin)
		i->end = i->begin;
	i->first = i->end;
	if (s->first_token_ns != UNKNOWN_NS) {
		uint64_t first = relative(w, s->first_token_ns);

		if (first > i->begin && first <= i->end) {
			i->first = first;
			i->in_rate = milli_rate(s->input_tok_s);
			i->out_rate = milli_rate(s->output_tok_s);
		}
	}
	if (i->end > w->latest)
		w->latest = i->end;
}

static void collect_proc(void *ctx, const struct proc *p)
{
	struct writing *w = ctx;

	if (w->err)
		return;
	if (w->meta->callers_only && !p->shown) {
		w->err = MORE(w, quiet);
		if (!w->err)
			w->quiets[w->quiet_count++] = viewer_pid(p->shown_pid);
		return;
	}
	w->err = array_grow(&w->shown, w->shown_count, &w->shown_size, sizeof(*w->shown)) ? 0 : -ENOMEM;
	if (w->err)
		return;
	w->shown[w->shown_count++] = (struct shown){.pid = viewer_pid(p->shown_pid), .proc = p};
	if (p->end_ns != UNKNOWN_NS && relative(w, p->end_ns) > w->latest)
		w->latest = relative(w, p->end_ns);
}

static int compare_shown(const void *a, const void *b)
{
	const struct shown *x = a, *y = b;

	return x->pid != y->pid ? (x->pid < y->pid ? -1 : 1) : (x->proc != NULL) < (y->proc != NULL) ? 1 : -1;
}

/* Among the first `count`, which are sorted. */
static struct shown *find_shown(const struct writing *w, size_t count, uint32_t pid)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (w->shown[mid].pid < pid)
			low = mid + 1;
		else
			high = mid;
	}
	return low < count && w->shown[low].pid == pid ? &w->shown[low] : NULL;
}

static void sort_shown(struct writing *w)
{
	size_t kept = 0;

	if (w->shown_count)
		qsort(w->shown, w->shown_count, sizeof(*w->shown), compare_shown);
	for (size_t i = 0; i < w->shown_count; i++) {
		if (!kept || w->shown[kept - 1].pid != w->shown[i].pid)
			w->shown[kept++] = w->shown[i];
	}
	w->shown_count = kept;
}

/* Marks the processes that have spans. Those that the table no longer knows still get a row: their calls were made. */
static void mark_shown(struct writing *w)
{
	size_t known = w->shown_count;

	for (size_t i = 0; i < w->row_count && !w->err; i++) {
		struct shown *s = find_shown(w, known, w->rows[i].pid);

		if (s) {
			s->has_spans = true;
			continue;
		}
		if (i && w->rows[i - 1].pid == w->rows[i].pid)
			continue;
		w->err = array_grow(&w->shown, w->shown_count, &w->shown_size, sizeof(*w->shown)) ? 0 : -ENOMEM;
		if (!w->err)
			w->shown[w->shown_count++] = (struct shown){.pid = w->rows[i].pid, .has_spans = true};
	}
	sort_shown(w);
}

/* --- lanes
 * ------------------------------------------------------------------------------------------------------------ */

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->track != y->track)
		return x->track < y->track ? -1 : 1;
	if (x->agent != y->agent)
		return x->agent < y->agent ? -1 : 1;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end > y->end ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

/* A binary heap of (key, lane), smallest first: busy lanes by their end, free lanes by their number. */
struct heap {
	struct heap_node {
		uint64_t key;
		uint32_t lane;
	} * nodes; /* room for every lane that can be */
	size_t count;
};

static void heap_push(struct heap *h, uint64_t key, uint32_t lane)
{
	size_t i = h->count++;

	while (i && h->nodes[(i - 1) / 2].key > key) {
		h->nodes[i] = h->nodes[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h->nodes[i] = (struct heap_node){key, lane};
}

static uint32_t heap_pop(struct heap *h)
{
	uint32_t lane = h->nodes[0].lane;
	struct heap_node last = h->nodes[--h->count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < h->count) {
		if (child + 1 < h->count && h->nodes[child + 1].key < h->nodes[child].key)
			child++;
		if (h->nodes[child].key >= last.key)
			break;
		h->nodes[i] = h->nodes[child];
		i = child;
	}
	h->nodes[i] = last;
	return lane;
}

/* Lanes of one agent of a process and track, from `first` on, whose items lie at [from, to) in order of their begin.
 * Returns how many. */
static uint32_t give_lanes(struct writing *w, size_t from, size_t to, uint32_t first, struct heap *busy,
			   struct heap *free_lanes)
{
	uint32_t lanes = 0;

	busy->count = free_lanes->count = 0;
	for (size_t i = from; i < to; i++) {
		const struct item *it = &w->items[i];
		/* A slice without length still has its place for itself. */
		uint64_t end = it->end > it->begin ? it->end : it->begin + 1;
		uint32_t lane;

		while (busy->count && busy->nodes[0].key <= it->begin) {
			uint32_t done = heap_pop(busy);

			heap_push(free_lanes, done, done);
		}
		lane = free_lanes->count ? heap_pop(free_lanes) : lanes++;
		heap_push(busy, end + 1, lane); /* see put_phases() */
		w->lanes[it->index] = first + lane;
	}
	return lanes;
}

static void lay_out(struct writing *w)
{
	struct heap busy = {0}, free_lanes = {0};
	size_t n = w->item_count, from = 0;

	if (w->err || !n)
		return;
	w->lanes = calloc(n, sizeof(*w->lanes));
	busy.nodes = calloc(n, sizeof(*busy.nodes));
	free_lanes.nodes = calloc(n, sizeof(*free_lanes.nodes));
	if (!w->lanes || !busy.nodes || !free_lanes.nodes)
		w->err = -ENOMEM;
	else
		qsort(w->items, n, sizeof(*w->items), compare_items);
	while (from < n && !w->err) {
		const struct item *first = &w->items[from];
		size_t to = from + 1;

		while (to < n && w->items[to].pid == first->pid && w->items[to].track == first->track &&
		       w->items[to].agent == first->agent)
			to++;
		w->err = MORE(w, row);
		if (!w->err) {
			struct row *r = &w->rows[w->row_count];
			const struct row *before = w->row_count ? r - 1 : NULL;

			*r = (struct row){.pid = first->pid, .track = first->track, .agent = first->agent};
			if (before && before->pid == r->pid && before->track == r->track)
				r->first_lane = before->first_lane + before->lanes;
			r->lanes = give_lanes(w, from, to, r->first_lane, &busy, &free_lanes);
			w->row_count++;
		}
		from = to;
	}
	free(busy.nodes);
	free(free_lanes.nodes);
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->agent != y->agent)
		return x->agent < y->agent ? -1 : 1;
	return (int)tracks[x->track].order - (int)tracks[y->track].order;
}

/* What belongs to one agent stands together: the rows of the process itself, then those of each sub-agent. */
static void order_rows(struct writing *w)
{
	uint32_t next = 0;

	if (w->row_count)
		qsort(w->rows, w->row_count, sizeof(*w->rows), compare_rows);
	for (size_t i = 0; i < w->row_count; i++) {
		struct row *r = &w->rows[i];

		if (!i || r[-1].pid != r->pid)
			next = SUB_AGENT_ORDER;
		r->order = tracks[r->track].order;
		if (r->agent) {
			r->order = next;
			next += r->lanes;
		}
	}
}

/* --- arrows
 * ----------------------------------------------------------------------------------------------------------- */

static int compare_arrows(const void *a, const void *b)
{
	const struct arrow *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* The first one of that id; NULL: none. */
static const struct arrow *find_arrow(const struct arrow *arrows, size_t count, uint64_t id)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (arrows[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < count && arrows[low].id == id ? &arrows[low] : NULL;
}

static bool draws_life(const struct writing *w, const struct shown *s);
static uint64_t life_end(const struct writing *w, const struct proc *p);

/* Whether the slice that an arrow goes to will be drawn, and does not end before the arrow begins. */
static bool has_target(const struct writing *w, const struct arrow *ends, size_t count, const struct arrow *from)
{
	const struct arrow *end = find_arrow(ends, count, from->id);
	const struct shown *s;

	if (end)
		return end->at >= from->at;
	if (from->id >> 40 != SPAN_FLOW_PROCESS(0) >> 40)
		return false;
	s = find_shown(w, w->shown_count, viewer_pid((uint32_t)from->id));
	return s && draws_life(w, s) && life_end(w, s->proc) >= from->at;
}

/* An arrow with one end only is an error to viewers, and so is one with two beginnings: the earliest has it. */
static void collect_arrows(struct writing *w)
{
	struct arrow *ends;
	size_t n = 0, kept = 0;

	if (w->err || !w->item_count)
		return;
	ends = calloc(w->item_count, sizeof(*ends));
	w->arrows = calloc(w->item_count, sizeof(*w->arrows));
	if (!ends || !w->arrows) {
		w->err = -ENOMEM;
		free(ends);
		return;
	}
	for (size_t i = 0; i < w->item_count; i++)
		if (w->items[i].flow_in)
			ends[n++] = (struct arrow){w->items[i].flow_in, w->items[i].end, w->items[i].index};
	qsort(ends, n, sizeof(*ends), compare_arrows);
	for (size_t i = 0; i < w->item_count; i++) {
		const struct item *it = &w->items[i];
		const struct arrow from = {it->flow_out, it->begin, it->index};

		if (from.id && has_target(w, ends, n, &from))
			w->arrows[w->arrow_count++] = from;
	}
	qsort(w->arrows, w->arrow_count, sizeof(*w->arrows), compare_arrows);
	for (size_t i = 0; i < w->arrow_count; i++)
		if (!kept || w->arrows[kept - 1].id != w->arrows[i].id)
			w->arrows[kept++] = w->arrows[i];
	w->arrow_count = kept;
	free(ends);
}

static void put_flow(struct writing *w, char ph, uint64_t id, uint32_t pid, uint32_t tid, uint64_t at)
{
	begin_event(w);
	put(w,
	    "{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u,\"ts\":" US_FORMAT ",\"id\":%" PRIu64
	    ",\"cat\":\"spawn\",\"name\":\"spawn\"%s}",
	    ph, pid, tid, US(at), id, ph == 'f' ? ",\"bp\":\"e\"" : "");
}

/* In the slice that begins at `begin`, but not before the arrow does: its target may have been set up earlier. */
static void put_arrow_end(struct writing *w, uint64_t id, uint32_t pid, uint32_t tid, uint64_t begin)
{
	const struct arrow *from = id ? find_arrow(w->arrows, w->arrow_count, id) : NULL;

	if (from)
		put_flow(w, 'f', id, pid, tid, begin > from->at ? begin : from->at);
}

/* --- names
 * ------------------------------------------------------------------------------------------------------------ */

/* Is the life of this process drawn? Those that did something here, were started or known by their command, or ended.
 */
static bool draws_life(const struct writing *w, const struct shown *s)
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
	begin_event(w);
	put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"", pid);
	put_text(w, sv_of(p && p->agent ? p->agent : p && p->name[0] ? p->name : fallback));
	put(w, "\"}}");
}

static void put_sort_index(struct writing *w, const char *what, uint32_t pid, uint32_t tid, uint32_t index)
{
	begin_event(w);
	put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%u}}", pid, tid,
	    what, index & INT32_MAX);
}

static void put_thread_name(struct writing *w, uint32_t pid, uint32_t tid, const char *name, uint32_t lane)
{
	begin_event(w);
	put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"", pid, tid);
	put_text(w, sv_of(name));
	if (lane)
		put(w, " (%u)", lane + 1);
	put(w, "\"}}");
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
		uint32_t tid = track_tid(r->track, r->first_lane + lane, r->pid);

		put_thread_name(w, r->pid, tid, name, lane);
		put_sort_index(w, "thread", r->pid, tid, r->order + lane);
	}
}

static void put_names(struct writing *w)
{
	for (size_t i = 0; i < w->shown_count; i++) {
		const struct shown *s = &w->shown[i];

		if (!s->has_spans && !draws_life(w, s))
			continue;
		put_process_name(w, s->pid, s->proc);
		put_sort_index(w, "process", s->pid, 0, s->proc ? s->proc->order : INT32_MAX);
		if (draws_life(w, s)) {
			put_thread_name(w, s->pid, s->pid, "process", 0);
			put_sort_index(w, "thread", s->pid, s->pid, 0);
		}
	}
	for (size_t i = 0; i < w->row_count; i++)
		put_row_names(w, &w->rows[i]);
}

/* --- processes
 * ---------------------------------------------------------------------------------------------------------- */

static struct sv cut_text(struct sv text, size_t max)
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

		json_string(j, NULL, cut_text(arg, ARGV_BYTES));
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

	put(w, ",\"args\":");
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
	if (viewer_pid(p->shown_pid) != p->key.tgid)
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

static uint64_t life_end(const struct writing *w, const struct proc *p)
{
	if (p->end_ns != UNKNOWN_NS)
		return relative(w, p->end_ns);
	return w->meta->now_ns ? relative(w, w->meta->now_ns) : w->latest;
}

static void put_lives(struct writing *w)
{
	for (size_t i = 0; i < w->shown_count && !w->err; i++) {
		const struct shown *s = &w->shown[i];
		char name[sizeof(s->proc->name) + 8];
		uint64_t begin, end;

		if (!draws_life(w, s))
			continue;
		begin = relative(w, s->proc->begin_ns);
		end = life_end(w, s->proc);
		snprintf(name, sizeof(name), "exec %s", s->proc->name[0] ? s->proc->name : "?");
		put_slice(w, s->pid, s->pid, sv_of(name), "process", begin, end > begin ? end : begin);
		put_process_args(w, s->proc);
		put(w, "}");
		put_arrow_end(w, SPAN_FLOW_PROCESS(s->proc->shown_pid), s->pid, s->pid, begin);
	}
}

/* --- spans
 * -------------------------------------------------------------------------------------------------------------- */

/* A viewer adds ts and dur as doubles, and what ends in them past the next one's begin lies inside of that: between
 * neighbours is 1 ns, as before the end of what is around them. */
static void put_phases(struct writing *w, const struct span *s, uint32_t pid, uint32_t tid, uint64_t begin,
		       uint64_t end)
{
	const char *cat = s->track == SPAN_NETWORK ? "net,phase" : "llm,phase";
	uint64_t at = begin;

	for (unsigned i = 0; i < s->phase_count; i++) {
		uint64_t from = relative(w, s->phases[i].begin_ns), to = relative(w, s->phases[i].end_ns);

		if (from < at)
			from = at;
		if (to >= end) /* 1 ns inside the parent, see span.c: clamping must not undo it */
			to = end ? end - 1 : 0;
		if (to <= from)
			continue;
		at = to;
		if (i + 1 < s->phase_count && relative(w, s->phases[i + 1].begin_ns) <= to)
			to--;
		put_slice(w, pid, tid, sv_of(s->phases[i].name), cat, from, to);
		put(w, "}");
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
	ends[0] = relative(w, around->end_ns < s->end_ns ? around->end_ns : s->end_ns - 1);
	floor_ns = relative(w, around->begin_ns);
	for (unsigned i = 0; i < s->detail_count; i++) {
		uint64_t from = relative(w, s->details[i].begin_ns), to = relative(w, s->details[i].end_ns);

		if (from < floor_ns)
			from = floor_ns;
		while (depth > 1 && ends[depth - 1] <= from)
			depth--;
		end = ends[depth - 1];
		to = to < end ? to : end;
		to -= to > 0;
		if (to <= from || depth == ARRAY_SIZE(ends))
			continue;
		put_slice(w, pid, tid, sv_of(s->details[i].name), "llm,content", from, to);
		put(w, "}");
		floor_ns = from;
		ends[depth++] = to;
	}
}

static void put_instants(struct writing *w, const struct span *s, uint32_t pid, uint32_t tid, uint64_t begin,
			 uint64_t end)
{
	for (unsigned i = 0; i < s->instant_count; i++) {
		uint64_t at = relative(w, s->instants[i].ts_ns);

		/* inside the slice, so that a viewer draws it there */
		at = at < begin ? begin : at >= end && end > begin ? end - 1 : at > end ? end : at;
		begin_event(w);
		put(w,
		    "{\"ph\":\"i\",\"s\":\"t\",\"pid\":%u,\"tid\":%u,\"ts\":" US_FORMAT
		    ",\"cat\":\"net\",\"name\":\"%.32s\"}",
		    pid, tid, US(at), s->instants[i].name);
		w->timed++;
	}
}

/* Of the spans one after the other, as spans_each() has them. */
static uint32_t next_tid(struct writing *w, const struct span *s)
{
	return track_tid((uint8_t)s->track, w->lanes[w->cursor++], viewer_pid(s->pid));
}

/* Before any end of one: among equal times viewers go by the order of the file. */
static void put_arrow_begin(void *ctx, const struct span *s)
{
	struct writing *w = ctx;
	const struct arrow *a = s->flow_out ? find_arrow(w->arrows, w->arrow_count, s->flow_out) : NULL;
	uint32_t index = (uint32_t)w->cursor, tid;

	if (w->err || is_quiet(w, s))
		return;
	tid = next_tid(w, s);
	if (a && a->index == index)
		put_flow(w, 's', a->id, viewer_pid(s->pid), tid, a->at);
}

static void put_span(void *ctx, const struct span *s)
{
	struct writing *w = ctx;
	uint64_t begin = relative(w, s->begin_ns), end = relative(w, s->end_ns);
	uint32_t pid = viewer_pid(s->pid), tid;

	if (w->err || is_quiet(w, s))
		return;
	tid = next_tid(w, s);
	if (end < begin)
		end = begin;
	put_slice(w, pid, tid, s->name && *s->name ? sv_of(s->name) : SV("span"), s->cat ? s->cat : "llm", begin, end);
	if (s->args) {
		put(w, ",\"args\":");
		put_raw(w, sv_of(s->args));
	}
	put(w, "}");
	put_arrow_end(w, s->flow_in, pid, tid, begin);
	put_phases(w, s, pid, tid, begin, end);
	put_details(w, s, pid, tid);
	put_instants(w, s, pid, tid, begin, end);
}

static void put_own_name(struct writing *w)
{
	begin_event(w);
	put(w, "{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"perfbpf\"}}",
	    SELF_PID);
}

/* --- counters
 * ------------------------------------------------------------------------------------------------------------ */

struct change {
	uint64_t ts;
	int64_t in, out, calls;
};

/* One counter of one process: a sample at a change, but not sooner than SAMPLE_GAP_NS after the last one. */
struct sampler {
	struct writing *w;
	const char *name;
	bool rates; /* keys in and out, else n */
	uint32_t pid;
	bool any;
	uint64_t last_ts;
	int64_t last[2]; /* as written */
};

static int compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	return x->ts < y->ts ? -1 : x->ts > y->ts;
}

static void put_sample(struct sampler *s, uint64_t ts, const int64_t value[2])
{
	struct writing *w = s->w;

	s->any = true;
	s->last_ts = ts;
	s->last[0] = value[0];
	s->last[1] = value[1];
	if (w->samples++ < w->skipped)
		return;
	begin_event(w);
	put(w, "{\"ph\":\"C\",\"pid\":%u,\"ts\":" US_FORMAT ",\"cat\":\"llm\",\"name\":\"%s\",\"args\":{", s->pid,
	    US(ts), s->name);
	if (s->rates)
		put(w, "\"in\":%" PRId64 ".%03d,\"out\":%" PRId64 ".%03d}}", value[0] / 1000, (int)(value[0] % 1000),
		    value[1] / 1000, (int)(value[1] % 1000));
	else
		put(w, "\"n\":%" PRId64 "}}", value[0]);
	w->timed++;
}

static bool same(const struct sampler *s, const int64_t value[2])
{
	return s->any ? s->last[0] == value[0] && s->last[1] == value[1] : !value[0] && !value[1];
}

/* The value was `before` until `ts`, where it becomes `now`. */
static void sample(struct sampler *s, uint64_t ts, const int64_t before[2], const int64_t now[2], bool final)
{
	uint64_t due = s->last_ts + SAMPLE_GAP_NS;

	if (s->any && due < ts && !same(s, before))
		put_sample(s, due, before);
	due = s->last_ts + SAMPLE_GAP_NS;
	if (same(s, now) || (s->any && ts < due && !final) || (s->any && ts == s->last_ts))
		return;
	put_sample(s, ts, now);
}

static void put_counters_of(struct writing *w, uint32_t pid, const struct change *changes, size_t count)
{
	struct sampler rate = {.w = w, .name = "tokens/s", .rates = true, .pid = pid};
	struct sampler flight = {.w = w, .name = "calls in flight", .pid = pid};
	int64_t rates[2] = {0}, calls[2] = {0};

	for (size_t i = 0; i < count && !w->err;) {
		int64_t rates_before[2] = {rates[0], rates[1]}, calls_before[2] = {calls[0]};
		uint64_t ts = changes[i].ts;

		for (; i < count && changes[i].ts == ts; i++) {
			rates[0] += changes[i].in;
			rates[1] += changes[i].out;
			calls[0] += changes[i].calls;
		}
		sample(&rate, ts, rates_before, rates, i == count);
		sample(&flight, ts, calls_before, calls, i == count);
	}
}

static size_t changes_of(const struct item *it, struct change out[3])
{
	uint64_t end = it->end > it->begin ? it->end : it->begin + 1;
	uint64_t first = it->first < end ? it->first : end;

	out[0] = (struct change){it->begin, it->in_rate, 0, 1};
	out[1] = (struct change){first, -it->in_rate, it->out_rate, 0};
	out[2] = (struct change){end, 0, -it->out_rate, -1};
	return 3;
}

static void put_counters(struct writing *w)
{
	struct change *changes;
	size_t from = 0;

	if (w->err || !w->item_count)
		return;
	changes = calloc(w->item_count, 3 * sizeof(*changes));
	if (!changes) {
		w->err = -ENOMEM;
		return;
	}
	while (from < w->item_count && !w->err) {
		uint32_t pid = w->items[from].pid;
		size_t n = 0;

		for (; from < w->item_count && w->items[from].pid == pid; from++) {
			if (w->items[from].is_call)
				n += changes_of(&w->items[from], changes + n);
		}
		if (n)
			qsort(changes, n, sizeof(*changes), compare_changes);
		put_counters_of(w, pid, changes, n);
	}
	free(changes);
}

/* A sample tells all by itself, so that those that are kept stay true. */
static void put_newest_counters(struct writing *w)
{
	uint64_t max = w->meta->max_events, room = max > w->timed ? max - w->timed : 0;

	if (max) {
		w->skipped = UINT64_MAX; /* only counted */
		put_counters(w);
		w->skipped = w->samples > room ? w->samples - room : 0;
		w->samples = 0;
	}
	put_counters(w);
}

/* --- measured counters
 * ------------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *name, *key;
	unsigned scale; /* what is kept of one of the key's unit */
} measured[COUNTER_KINDS] = {
	[COUNTER_CPU] = {"cpu", "percent", 10},
	[COUNTER_SRTT] = {"srtt", "us", 1},
	[COUNTER_LOST] = {"lost events", "n", 1},
};

static bool is_measured(const struct writing *w, const struct counter_sample *s)
{
	return !s->pid || find_shown(w, w->shown_count, viewer_pid(s->pid));
}

static void put_measured_sample(struct writing *w, const struct counter_sample *s)
{
	uint32_t pid = s->pid ? viewer_pid(s->pid) : SELF_PID;

	begin_event(w);
	put(w,
	    "{\"ph\":\"C\",\"pid\":%u,\"ts\":" US_FORMAT
	    ",\"cat\":\"perfbpf\",\"name\":\"%s\",\"args\":{\"%s\":%" PRIu64,
	    pid, US(relative(w, s->ts_ns)), measured[s->kind].name, measured[s->kind].key,
	    s->value / measured[s->kind].scale);
	if (measured[s->kind].scale > 1)
		put(w, ".%" PRIu64, s->value % measured[s->kind].scale);
	put(w, "}}");
	w->timed++;
}

/* The newest that there is room for. */
static void put_measured(struct writing *w)
{
	uint64_t max = w->meta->max_events, room = max > w->timed ? max - w->timed : 0;
	size_t count = w->meta->counters ? counters_count(w->meta->counters) : 0;
	size_t from = max && count > room ? count - (size_t)room : 0;
	bool named = false;

	for (size_t i = from; i < count && !w->err; i++) {
		const struct counter_sample *s = counters_at(w->meta->counters, i);

		if (!is_measured(w, s))
			continue;
		if (!s->pid && !named)
			put_own_name(w);
		named |= !s->pid;
		put_measured_sample(w, s);
	}
}

/* --- metadata
 * ------------------------------------------------------------------------------------------------------------ */

static void put_meta_text(struct json *j, const char *key, const char *text)
{
	json_string(j, key, text && *text ? cut_text(sv_of(text), TRACE_COMMAND_BYTES) : SV("unknown"));
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

/* --- the whole
 * ----------------------------------------------------------------------------------------------------------- */

/* A trace in which nothing happened must still load: viewers refuse a file without an event. */
static void put_something(struct writing *w)
{
	if (w->timed)
		return;
	put_own_name(w);
	begin_event(w);
	put(w,
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
	put(w, "\"otherData\":{\"profile\":");
	flush(w);
	if (!w->err)
		w->err = w->sink->write(w->sink->ctx, profile->ptr, profile->len);
	put(w, "},");
}

static void write_all(struct writing *w, const struct spans *spans, const struct spans *extra)
{
	put(w, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
	put_names(w);
	each_span(w, spans, extra, put_arrow_begin);
	put_lives(w);
	each_span(w, spans, extra, put_span);
	put_newest_counters(w);
	put_measured(w);
	put_something(w);
	put(w, "\n],");
	put_profile(w);
	put(w, "\"metadata\":");
	put_metadata(w);
	put(w, "}\n");
	flush(w);
}

int trace_write(const struct spans *spans, const struct spans *extra, struct procs *procs,
		const struct trace_meta *meta, const struct trace_sink *sink)
{
	struct writing w = {.meta = meta, .sink = sink};

	buf_init(&w.line, 0);
	if (procs)
		procs_each(procs, collect_proc, &w);
	if (w.quiet_count)
		qsort(w.quiets, w.quiet_count, sizeof(*w.quiets), compare_pids);
	spans_each(spans, collect_span, &w);
	if (extra)
		spans_each(extra, collect_span, &w);
	lay_out(&w);
	order_rows(&w);
	sort_shown(&w);
	mark_shown(&w);
	collect_arrows(&w);
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
