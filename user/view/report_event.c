/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The events of a trace file: rows of tables, single calls, processes. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "report_data.h"

static struct sv text(const cJSON *item)
{
	return cJSON_IsString(item) ? sv_of(item->valuestring) : SV_NONE;
}

/* NULL where the text is absent, or there is no memory. */
static char *copy(struct sv s)
{
	return s.ptr ? strndup(s.ptr, s.len) : NULL;
}

/* --- values ------------------------------------------------------------------------------------------------------ */

/* xorshift64: no security is asked of it. */
static uint64_t next_random(struct report *r)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return r->random;
}

int report_add_value(struct report *r, struct report_values *v, double ms)
{
	uint64_t at = v->seen++;

	v->largest = at && v->largest > ms ? v->largest : ms;
	if (at >= REPORT_VALUES_MAX)
		at = next_random(r) % v->seen;
	if (at >= REPORT_VALUES_MAX)
		return 0;
	if (at == v->count) {
		if (!array_grow(&v->v, v->count, &v->room, sizeof(*v->v)))
			return -ENOMEM;
		v->count++;
	}
	v->v[at] = (float)ms;
	return 0;
}

/* Adds what is known to what may not be known yet. */
static void add_known(double *sum, double n)
{
	if (!isnan(n))
		*sum = isnan(*sum) ? n : *sum + n;
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

static void row_free(struct report_row *row)
{
	free(row->name);
	free(row->ms.v);
	free(row->ttft_ms.v);
	free(row);
}

static struct report_row *row_new(struct report *r, enum report_table table, struct sv name, size_t what_len)
{
	struct report_row *row = NULL;

	if (array_grow(&r->row_list[table], HASH_COUNT(r->rows[table]), &r->row_room[table], sizeof(row)))
		row = calloc(1, sizeof(*row));
	if (!row)
		return NULL;
	row->name = copy(name);
	row->what_len = what_len;
	row->at = HASH_COUNT(r->rows[table]);
	row->in_tokens = row->out_tokens = NAN;
	if (row->name)
		HASH_ADD_KEYPTR(hh, r->rows[table], row->name, name.len, row);
	if (row->name && row->hh.tbl) {
		r->row_list[table][row->at] = row;
		return row;
	}
	row_free(row);
	return NULL;
}

static struct report_row *row_of(struct report *r, enum report_table table, struct sv name, size_t what_len)
{
	struct report_row *row;

	HASH_FIND(hh, r->rows[table], name.ptr, name.len, row);
	if (!row && HASH_COUNT(r->rows[table]) >= REPORT_ROWS_MAX) {
		name = SV("(others)");
		what_len = name.len;
		HASH_FIND(hh, r->rows[table], name.ptr, name.len, row);
	}
	return row ? row : row_new(r, table, name, what_len);
}

/* --- processes --------------------------------------------------------------------------------------------------- */

struct report_process *report_process_of(struct report *r, uint32_t pid)
{
	struct report_process *p;

	HASH_FIND(hh, r->processes, &pid, sizeof(pid), p);
	if (p || r->process_count == REPORT_PIDS_MAX)
		return p;
	if (!array_grow(&r->process_list, r->process_count, &r->process_room, sizeof(p)))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	p->at = r->process_count;
	p->in_tokens = p->out_tokens = p->exit_cpu_ms = NAN;
	HASH_ADD(hh, r->processes, pid, sizeof(pid), p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	r->process_list[r->process_count++] = p;
	return p;
}

/* NULL: it has no pid, or it is one too many (*err 0); or no memory. */
static struct report_process *process_of_event(struct report *r, const cJSON *e, int *err)
{
	double pid = report_member(e, "pid", -1);
	struct report_process *p;

	*err = 0;
	if (pid < 0 || pid > UINT32_MAX)
		return NULL;
	p = report_process_of(r, (uint32_t)pid);
	if (!p && r->process_count < REPORT_PIDS_MAX)
		*err = -ENOMEM;
	return p;
}

static bool is_one_too_many(const struct report *r, const struct report_process *p)
{
	return !p && r->process_count == REPORT_PIDS_MAX;
}

/* --- single calls ------------------------------------------------------------------------------------------------ */

static bool faster(const struct report_call *a, const struct report_call *b)
{
	return a->ms != b->ms ? a->ms < b->ms : a->start_ms > b->start_ms;
}

static void swap(struct report_call *a, struct report_call *b)
{
	struct report_call t = *a;

	*a = *b;
	*b = t;
}

static void sift_up(struct report_call *heap, size_t at)
{
	for (; at && faster(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
		swap(&heap[at], &heap[(at - 1) / 2]);
}

static void sift_down(struct report_call *heap, size_t count)
{
	for (size_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
		child += child + 1 < count && faster(&heap[child + 1], &heap[child]);
		if (!faster(&heap[child], &heap[at]))
			return;
		swap(&heap[child], &heap[at]);
	}
}

/* Takes over what the call owns. */
static int keep_call(struct report *r, struct report_call *c)
{
	if (r->call_count == REPORT_CALLS_MAX) {
		if (!faster(&r->calls[0], c)) {
			free(c->end);
			return 0;
		}
		free(r->calls[0].end);
		r->calls[0] = *c;
		sift_down(r->calls, r->call_count);
		return 0;
	}
	if (!array_grow(&r->calls, r->call_count, &r->call_room, sizeof(*r->calls))) {
		free(c->end);
		return -ENOMEM;
	}
	r->calls[r->call_count] = *c;
	sift_up(r->calls, r->call_count++);
	return 0;
}

/* What went wrong, or why it stopped; absent: not told. */
static struct sv ending_of(const cJSON *args, char status[32])
{
	double code = report_member(args, "status", 0);
	struct sv s = text(json_get(args, "error"));

	if (!s.len && code >= 400) {
		snprintf(status, 32, "status %.0f", code);
		return sv_of(status);
	}
	s = s.len ? s : text(json_get(args, "stop_reason"));
	s = s.len ? s : text(json_get(args, "end_reason"));
	return s.len ? s : SV_NONE;
}

/* As call_output_total(). */
static double output_tokens(const cJSON *args)
{
	bool partial = sv_eq(text(json_get(args, "usage_source")), SV("partial"));

	return partial && !json_get_true(args, "counts_left_out") ? NAN : report_member(args, "output_tokens", NAN);
}

static int add_call(struct report *r, const struct report_row *row, const cJSON *e, bool failed, bool partial)
{
	const cJSON *args = json_get(e, "args");
	double pid = report_member(e, "pid", 0);
	struct report_call c = {
		.pid = pid <= UINT32_MAX ? (uint32_t)pid : 0,
		.id = report_member(args, "call_id", NAN),
		.start_ms = report_member(e, "ts", NAN) / 1000,
		.ms = report_member(e, "dur", NAN) / 1000,
		.setup_ms = report_member(args, "setup_ms", NAN),
		.ttft_ms = report_member(args, "ttft_ms", NAN),
		.in_tokens = report_member(args, "input_tokens", NAN),
		.cached_tokens = report_member(args, "cache_read_tokens", NAN),
		.out_tokens = output_tokens(args),
		.status = report_member(args, "status", NAN),
		.row = row,
		.failed = failed,
		.partial = partial,
	};
	char status[32];
	struct sv end = ending_of(args, status);

	for (int i = 0; i < PARTS; i++)
		c.parts_ms[i] = report_member(json_get(args, "parts_ms"), report_part_names[i], 0);
	c.end = copy(end);
	return end.ptr && !c.end ? -ENOMEM : keep_call(r, &c);
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static bool is_error(const cJSON *args)
{
	const cJSON *code = json_get(args, "db.response.status_code");

	return text(json_get(args, "error")).len || text(code).len || cJSON_IsNumber(code) ||
	       report_member(args, "status", 0) >= 400 || json_get_true(args, "is_error");
}

/* As the summary counts them. Embeddings have no output, so that theirs is not missing. */
static bool is_uncounted(const cJSON *args, double in, double out)
{
	return isnan(in) || (isnan(out) && !sv_eq(text(json_get(args, "usage_source")), SV("reported")));
}

static int add_model(struct report *r, struct report_row *row, const cJSON *e, bool failed, bool partial)
{
	const cJSON *args = json_get(e, "args"), *parts = json_get(args, "parts_ms");
	double ttft = report_member(args, "ttft_ms", NAN), in = report_member(args, "input_tokens", NAN),
	       out = output_tokens(args);
	struct report_process *p;
	int err;

	add_known(&row->in_tokens, in);
	add_known(&row->out_tokens, out);
	row->uncounted += is_uncounted(args, in, out);
	for (int i = 0; i < PARTS; i++)
		row->parts_ms[i] += report_member(parts, report_part_names[i], 0);
	p = process_of_event(r, e, &err);
	r->unlisted += is_one_too_many(r, p);
	if (p) {
		p->calls++;
		p->timed += !partial;
		p->call_ms += partial ? 0 : report_member(e, "dur", 0) / 1000;
		add_known(&p->in_tokens, in);
		add_known(&p->out_tokens, out);
	}
	if (!err && !isnan(ttft))
		err = report_add_value(r, &row->ttft_ms, ttft);
	return err ? err : add_call(r, row, e, failed, partial);
}

#define NAME_BYTES 512

/* Which table a slice belongs to, and its name there, the first *what_len bytes of which say what it is; TABLES: none.
 */
static enum report_table table_of(const cJSON *e, const cJSON *args, char name[NAME_BYTES], size_t *what_len)
{
	struct sv cat = text(json_get(e, "cat")), what = text(json_get(e, "name")), of = SV_NONE;
	enum report_table table;

	if (sv_eq(cat, SV("llm"))) {
		table = TABLE_MODEL;
		what = sv_starts(what, SV("LLM ")) ? (struct sv){what.ptr + 4, what.len - 4} : what;
		of = text(json_get(args, "host"));
	} else if (sv_eq(cat, SV("tool"))) {
		table = TABLE_TOOL;
		what = sv_starts(what, SV("tool: ")) ? (struct sv){what.ptr + 6, what.len - 6} : what;
	} else if (sv_eq(cat, SV("mcp"))) {
		table = TABLE_MCP;
		of = text(json_get(args, "server"));
	} else if (sv_eq(cat, SV("db"))) {
		struct sv shape = text(json_get(args, "db.query.text"));

		table = TABLE_DB;
		what = shape.len ? shape : what;
		of = text(json_get(args, "db.system.name"));
	} else if (sv_eq(cat, SV("http"))) {
		table = TABLE_HTTP;
		of = sv_eq(text(json_get(args, "side")), SV("server")) ? SV("served") : text(json_get(args, "host"));
	} else if (sv_eq(cat, SV("net")) && sv_eq(what, SV("connection not made"))) {
		struct sv error = text(json_get(args, "error"));

		table = TABLE_CONNECT;
		what = error.len ? error : json_get_true(args, "unfinished") ? SV("unanswered") : SV("given up");
		of = text(json_get(args, "peer"));
	} else if (sv_eq(cat, SV("function"))) {
		table = TABLE_FUNC;
		of = text(json_get(args, "binary"));
	} else {
		return TABLES;
	}
	what = what.len ? what : SV("(unnamed)");
	*what_len = what.len < 240 ? what.len : 240;
	snprintf(name, NAME_BYTES, "%.*s%s%.*s", (int)*what_len, what.ptr, of.len ? " @ " : "",
		 (int)(of.len < 240 ? of.len : 240), of.len ? of.ptr : "");
	return table;
}

/* An end that tracing set, or a begin: nobody knows how long it took. */
static bool is_partial(enum report_table table, const cJSON *args)
{
	static const struct sv set[] = {{"evicted", 7}, {"capture_loss", 12}, {"capture_end", 11}};
	struct sv end = text(json_get(args, "end_reason"));

	if (table == TABLE_TOOL && cJSON_IsNumber(json_get(args, "duration_ms")))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(set); i++)
		if (sv_eq(end, set[i]))
			return true;
	return json_get_true(args, "unfinished") || json_get_true(args, "mid_attach");
}

/* Those of HTTP that were left before their end, too. */
static bool is_failed(enum report_table table, const cJSON *args)
{
	return is_error(args) || (table == TABLE_CONNECT && !is_partial(table, args)) ||
	       (table == TABLE_HTTP && text(json_get(args, "end_reason")).len && !is_partial(table, args));
}

static int add_row(struct report *r, const cJSON *e, double ms)
{
	const cJSON *args = json_get(e, "args");
	struct report_row *row;
	enum report_table table;
	char name[NAME_BYTES];
	size_t what_len;
	bool failed, partial;
	int err = 0;

	table = table_of(e, args, name, &what_len);
	if (table == TABLES)
		return 0;
	row = row_of(r, table, sv_of(name), what_len);
	if (!row)
		return -ENOMEM;
	/* What ran is known better than the window that it was seen in. */
	ms = table == TABLE_TOOL ? report_member(args, "duration_ms", ms) : ms;
	failed = is_failed(table, args);
	partial = is_partial(table, args);
	row->count++;
	row->errors += failed;
	if (partial) {
		row->partial++;
	} else {
		row->total_ms += ms;
		err = report_add_value(r, &row->ms, ms);
	}
	return err || table != TABLE_MODEL ? err : add_model(r, row, e, failed, partial);
}

/* A process gets its name; one that ended, its processor time. */
static int add_process(struct report *r, const cJSON *e, bool named)
{
	const cJSON *args = json_get(e, "args");
	struct sv name = named ? text(json_get(args, "name")) : SV_NONE;
	struct report_process *p;
	int err;

	p = process_of_event(r, e, &err);
	r->unlisted += !named && is_one_too_many(r, p);
	if (!p)
		return err;
	if (!named)
		add_known(&p->exit_cpu_ms, report_member(args, "cpu_ms", NAN));
	if (!name.ptr || p->name)
		return 0;
	p->name = copy(name);
	return p->name ? 0 : -ENOMEM;
}

int report_event(struct report *r, const cJSON *e)
{
	struct sv ph = text(json_get(e, "ph"));
	double ms = report_member(e, "dur", NAN) / 1000;

	if (sv_eq(ph, SV("M")))
		return sv_eq(text(json_get(e, "name")), SV("process_name")) ? add_process(r, e, true) : 0;
	if (!sv_eq(ph, SV("X")) || isnan(ms) || report_member(e, "ts", 0) / 1000 + ms < r->from_ms)
		return 0;
	if (sv_eq(text(json_get(e, "cat")), SV("process")))
		return add_process(r, e, false);
	return add_row(r, e, ms);
}

void report_events_release(struct report *r)
{
	struct report_process *p, *next_process;
	struct report_row *row, *next;

	for (int t = 0; t < TABLES; t++) {
		HASH_ITER (hh, r->rows[t], row, next) {
			HASH_DEL(r->rows[t], row);
			row_free(row);
		}
		free(r->row_list[t]);
	}
	HASH_ITER (hh, r->processes, p, next_process) {
		HASH_DEL(r->processes, p);
		free(p->name);
		free(p);
	}
	free(r->process_list);
	for (size_t i = 0; i < r->call_count; i++)
		free(r->calls[i].end);
	free(r->calls);
}
