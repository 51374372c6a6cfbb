/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What was seen often, by shape: a table of counts and times. */
#include "views.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/quantile.h"
#include "base/types.h"
#include "format.h"

#define SHAPE_SHOWN_BYTES 100

struct shape_row {
	uint64_t count, total_ns, errors;
	uint64_t rows; /* of those that tell */
	bool has_rows;
	struct quantile times;
	UT_hash_handle hh;
	size_t len;
	char text[];
};

struct shape_table {
	struct shape_row *rows;
};

struct shape_table *shape_table_new(void)
{
	return calloc(1, sizeof(struct shape_table));
}

void shape_table_free(struct shape_table *t)
{
	struct shape_row *r, *next;

	if (!t)
		return;
	HASH_ITER (hh, t->rows, r, next) {
		HASH_DEL(t->rows, r);
		free(r);
	}
	free(t);
}

static struct shape_row *find(struct shape_table *t, const char *text, size_t len)
{
	struct shape_row *r;

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

void shape_table_push(struct shape_table *t, struct sv shape, uint64_t ns, int64_t rows, bool failed)
{
	bool full = HASH_COUNT(t->rows) >= SHAPE_TABLE_SHAPES;
	struct shape_row *r;

	if (full)
		HASH_FIND(hh, t->rows, shape.ptr, shape.len, r);
	r = full && !r ? find(t, "other", 5) : find(t, shape.ptr, shape.len);
	if (!r)
		return;
	r->count++;
	if (ns != UNKNOWN_NS) {
		quantile_add(&r->times, ns);
		r->total_ns += ns;
	}
	r->errors += failed;
	r->has_rows |= rows >= 0;
	r->rows += rows > 0 ? (uint64_t)rows : 0;
}

static int by_total(const struct shape_row *a, const struct shape_row *b)
{
	return a->total_ns > b->total_ns ? -1 : a->total_ns < b->total_ns;
}

static int render_row(const struct shape_row *r, struct buf *out, bool with_rows)
{
	char p50[FORMAT_BYTES], total[FORMAT_BYTES], rows[FORMAT_BYTES], safe[SHAPE_SHOWN_BYTES + 8];
	struct sv text = {r->text, r->len < SHAPE_SHOWN_BYTES ? r->len : SHAPE_SHOWN_BYTES};
	int err;

	format_ms(p50, r->times.count ? (double)quantile_ns(&r->times, 0.5) / 1e6 : NAN);
	format_ms(total, r->times.count ? (double)r->total_ns / 1e6 : NAN);
	format_count(rows, r->has_rows ? (int64_t)r->rows : UNKNOWN_COUNT);
	err = buf_printf(out, "  %8" PRIu64 " %8s %8s", r->count, p50, total);
	if (!err && with_rows)
		err = buf_printf(out, " %8s", rows);
	return err ? err : buf_printf(out, " %7" PRIu64 "  %s\n", r->errors, log_safe(safe, sizeof(safe), text));
}

int shape_table_render(struct shape_table *t, struct buf *out, const struct shape_words *words)
{
	unsigned count = HASH_COUNT(t->rows), shown = 0;
	uint64_t all = 0;
	struct shape_row *r;
	int err;

	if (!count)
		return 0;
	for (r = t->rows; r; r = r->hh.next)
		all += r->count;
	HASH_SORT(t->rows, by_total);
	err = buf_printf(out, "%" PRIu64 " %s%s%s\n  %8s %8s %8s%s %7s  %s\n", all, words->what, all == 1 ? "" : "s",
			 words->how, "count", "p50", "total", words->rows ? "     rows" : "", "errors", words->shape);
	for (r = t->rows; r && !err && shown < SHAPE_TABLE_ROWS; r = r->hh.next, shown++)
		err = render_row(r, out, words->rows);
	if (!err && count > shown)
		err = buf_printf(out, "  and %u more %s%s\n", count - shown, words->shape,
				 count - shown == 1 ? "" : "s");
	return err;
}
