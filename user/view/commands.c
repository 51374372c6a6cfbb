/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Database commands: their records, and the table of shapes. */
#include "views.h"

#include <inttypes.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "base/json.h"
#include "base/log.h"
#include "base/quantile.h"
#include "format.h"

#define SHAPE_SHOWN_BYTES 100

int view_db_json(struct buf *out, const struct db_command *c, const struct proc *p, uint64_t start_ns)
{
	size_t before = out->len;
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "type", SV("db"));
	json_uint(&j, "pid", c->proc.tgid);
	json_uint(&j, "tid", c->tid);
	json_string(&j, "process", p && p->name[0] ? sv_of(p->name) : SV_NONE);
	json_double(&j, "start_ms", ((double)c->start_ns - (double)start_ns) / 1e6, 6);
	json_string(&j, "system", sv_of(c->system));
	json_string(&j, "shape", c->shape.len ? c->shape : SV_NONE);
	json_double(&j, "dur_ms", (double)(c->end_ns > c->start_ns ? c->end_ns - c->start_ns : 0) / 1e6, 6);
	if (c->rows < 0)
		json_null(&j, "rows");
	else
		json_int(&j, "rows", c->rows);
	json_string(&j, "error", *c->error ? sv_of(c->error) : SV_NONE);
	json_bool(&j, "complete", !c->unfinished);
	json_end_object(&j);
	if (!j.err)
		j.err = buf_putc(out, '\n');
	if (j.err)
		out->len = before; /* no half records */
	return j.err;
}

/* --- the table -----------------------------------------------------------------------------------------------------
 */

struct db_row {
	uint64_t total_ns, errors;
	uint64_t rows; /* of those that tell */
	bool has_rows;
	struct quantile times;
	UT_hash_handle hh;
	size_t len;
	char text[]; /* the system, a space, the shape */
};

struct db_table {
	struct db_row *rows;
};

struct db_table *db_table_new(void)
{
	return calloc(1, sizeof(struct db_table));
}

void db_table_free(struct db_table *t)
{
	struct db_row *r, *next;

	if (!t)
		return;
	HASH_ITER (hh, t->rows, r, next) {
		HASH_DEL(t->rows, r);
		free(r);
	}
	free(t);
}

static struct db_row *find(struct db_table *t, const char *text, size_t len)
{
	struct db_row *r;

	HASH_FIND(hh, t->rows, text, len, r);
	if (r)
		return r;
	r = calloc(1, sizeof(*r) + len);
	if (!r)
		return NULL;
	memcpy(r->text, text, len);
	r->len = len;
	HASH_ADD_KEYPTR(hh, t->rows, r->text, len, r);
	if (r->hh.tbl)
		return r;
	free(r);
	return NULL;
}

void db_table_push(struct db_table *t, const struct db_command *c)
{
	bool full = HASH_COUNT(t->rows) >= DB_TABLE_SHAPES;
	struct db_row *r;
	struct buf text;

	buf_init(&text, 0); /* bounded by the limit of a shape */
	if (buf_printf(&text, "%s ", c->system) ||
	    buf_push(&text, c->shape.len ? c->shape.ptr : "-", c->shape.len ? c->shape.len : 1))
		return;
	if (full)
		HASH_FIND(hh, t->rows, text.ptr, text.len, r);
	r = full && !r ? find(t, "other", 5) : find(t, text.ptr, text.len);
	buf_release(&text);
	if (!r)
		return;
	quantile_add(&r->times, c->end_ns > c->start_ns ? c->end_ns - c->start_ns : 0);
	r->total_ns += c->end_ns > c->start_ns ? c->end_ns - c->start_ns : 0;
	r->errors += *c->error != 0;
	r->has_rows |= c->rows >= 0;
	r->rows += c->rows > 0 ? (uint64_t)c->rows : 0;
}

static int by_total(const struct db_row *a, const struct db_row *b)
{
	return a->total_ns > b->total_ns ? -1 : a->total_ns < b->total_ns;
}

static int render_row(const struct db_row *r, struct buf *out)
{
	char p50[FORMAT_BYTES], total[FORMAT_BYTES], rows[FORMAT_BYTES], safe[SHAPE_SHOWN_BYTES + 8];
	struct sv text = {r->text, r->len < SHAPE_SHOWN_BYTES ? r->len : SHAPE_SHOWN_BYTES};

	format_ms(p50, (double)quantile_ns(&r->times, 0.5) / 1e6);
	format_ms(total, (double)r->total_ns / 1e6);
	format_count(rows, r->has_rows ? (int64_t)r->rows : UNKNOWN_COUNT);
	return buf_printf(out, "  %8" PRIu64 " %8s %8s %8s %7" PRIu64 "  %s\n", r->times.count, p50, total, rows,
			  r->errors, log_safe(safe, sizeof(safe), text));
}

int db_table_render(struct db_table *t, struct buf *out)
{
	unsigned count = HASH_COUNT(t->rows), shown = 0;
	uint64_t commands = 0;
	struct db_row *r;
	int err;

	if (!count)
		return 0;
	for (r = t->rows; r; r = r->hh.next)
		commands += r->times.count;
	HASH_SORT(t->rows, by_total);
	err = buf_printf(out, "%" PRIu64 " database command%s\n  %8s %8s %8s %8s %7s  shape\n", commands,
			 commands == 1 ? "" : "s", "count", "p50", "total", "rows", "errors");
	for (r = t->rows; r && !err && shown < DB_TABLE_ROWS; r = r->hh.next, shown++)
		err = render_row(r, out);
	if (!err && count > shown)
		err = buf_printf(out, "  and %u more shapes\n", count - shown);
	return err;
}
