/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * The house as a whole over a capture, or over records without a capture's header, of any bytes: what it writes is a
 * trace that `report` reads, every line is text, and nothing that a terminal gets can drive it.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "pipeline.h"
#include "view/report.h"
#include "view/views.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct house {
	struct pipeline *pipeline;
	struct summary *summary;
	struct report *report;
	struct buf line, text; /* for a person; the trace's last, unfinished line */
};

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* A piece of JSON is text, and a terminal gets no control character of any kind. */
static void check_text(const struct buf *b, bool terminal)
{
	for (size_t i = 0; i < b->len; i++) {
		unsigned char c = (unsigned char)b->ptr[i], next = i + 1 < b->len ? (unsigned char)b->ptr[i + 1] : 0;

		check((c >= ' ' || c == '\n') && (!terminal || c != 0x7f));
		check(!terminal || c != 0xc2 || next >= 0xa0);
	}
}

/* One more line for a person or a program, which has been put into `line`. */
static void told(struct house *h, int err, bool terminal)
{
	check(!err || err == -ENOMEM);
	check_text(&h->line, terminal);
	buf_clear(&h->line);
}

static void on_call(void *ctx, const struct call *c, const struct proc *p, const struct agent_place *place)
{
	struct house *h = ctx;

	told(h, view_call_json(&h->line, c, p, place, 0, 0, true), false);
	told(h, view_call_line(&h->line, c, p, 0), true);
	summary_push(h->summary, c);
}

static void on_turn(void *ctx, const struct turn *t)
{
	struct house *h = ctx;

	told(h, view_turn_line(&h->line, t, 0), true);
}

static void on_mcp(void *ctx, const struct mcp_call *c)
{
	summary_push_mcp(((struct house *)ctx)->summary, c);
}

static void on_db(void *ctx, const struct db_command *c, const struct proc *p)
{
	struct house *h = ctx;

	told(h, view_db_json(&h->line, c, p, 0), false);
	summary_push_db(h->summary, c);
}

static void on_http(void *ctx, const struct http_operation *o, const struct proc *p)
{
	struct house *h = ctx;

	told(h, view_http_json(&h->line, o, p, 0, 0), false);
	summary_push_http(h->summary, o);
}

static void on_record(void *ctx, const void *record, size_t len)
{
	struct house *h = ctx;

	pipeline_soon(h->pipeline, &(struct sv){record, len}, 1);
	pipeline_push(h->pipeline, record, len);
}

/* For trace_sink.write: what replay writes can be reported. */
static int on_trace(void *ctx, const void *ptr, size_t len)
{
	struct house *h = ctx;
	struct sv rest = {ptr, len};

	while (rest.ptr) {
		struct sv line = sv_cut(rest, '\n', &rest);
		int err = buf_push(&h->text, line.ptr, line.len);

		if (!err && rest.ptr) {
			check_text(&h->text, false);
			err = report_line(h->report, (struct sv){h->text.ptr, h->text.len});
			buf_clear(&h->text);
		}
		check(!err || err == -ENOMEM);
		if (err)
			return err;
	}
	return 0;
}

static void write_all(struct house *h, const struct capture_info *info, uint64_t last_ns)
{
	struct trace_sink sink = {h, on_trace};
	struct trace_meta meta = {
		.start_ns = info->start_ns,
		.boot_to_unix_ns = info->boot_to_unix_ns,
		.host = info->host,
		.kernel = info->kernel,
		.version = "1",
		.command = "",
	};
	struct report_view view = {.top = 10};
	int err = pipeline_write_trace(h->pipeline, &meta, last_ns, &sink);

	check(!err || err == -ENOMEM);
	if (!err && h->text.len)
		err = report_line(h->report, (struct sv){h->text.ptr, h->text.len});
	if (!err)
		err = report_end(h->report);
	if (!err)
		told(h, report_render(h->report, &view, &h->line), true);
	check(!err || err == -ENOMEM);
	told(h, summary_render(h->summary, &h->line, pipeline_lost(h->pipeline), pipeline_coverage(h->pipeline), 1),
	     true);
}

static void play(struct house *h, FILE *f, const struct capture_info *info, bool content)
{
	struct pipeline_config cfg = {
		.stale_ns = 1800000000000,
		.sweep_ns = 60000000000,
		.max_events = 1000,
		.content = content,
		.db = info->db,
		.http = info->http,
		.ctx = h,
		.on_call = on_call,
		.on_turn = on_turn,
		.on_mcp = on_mcp,
		.on_db = on_db,
		.on_http = on_http,
	};
	uint64_t last_ns;
	const char *why;

	h->pipeline = pipeline_new(&cfg);
	h->summary = summary_new();
	h->report = report_new();
	if (h->pipeline && h->summary && h->report) {
		capture_read_records(f, on_record, h, &last_ns, &why);
		pipeline_finish(h->pipeline, last_ns);
		write_all(h, info, last_ns);
	}
	pipeline_free(h->pipeline);
	summary_free(h->summary);
	report_free(h->report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct capture_info info = {.db = true, .http = true};
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct house h = {0};
	const char *why;

	if (!f)
		return 0;
	buf_init(&h.line, 0);
	buf_init(&h.text, 0);
	if (capture_read_header(f, &info, &why))
		rewind(f);
	play(&h, f, &info, size % 16 != 0); /* a capture is a multiple of 8 long */
	buf_release(&h.line);
	buf_release(&h.text);
	fclose(f);
	return 0;
}
