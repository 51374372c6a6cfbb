/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/writefd.h"
#include "flow/writer.h"
#include "privilege.h"
#include "view/views.h"

struct output {
	struct output_config cfg;
	struct writer calls;
	bool calls_open;
	struct summary *summary;
	struct buf line; /* scratch */
	int err;	 /* first failure */
};

static int open_writer(struct writer *w, const char *path)
{
	const char *why = NULL;
	uid_t uid;
	gid_t gid;
	int err;

	privilege_user(&uid, &gid);
	err = writer_open(w, path, uid, gid, &why);
	if (err == -EACCES && privilege_override())
		err = writer_open(w, path, uid, gid, &why);
	if (err)
		log_error("cannot write %s: %s", path, why ? why : strerror(-err));
	return err;
}

/* Only making a file tells whether one can be made (read-only and odd file systems): the temp files come and go. All
 * are open together, so that two names of one file meet. */
int output_check(const struct options *o, const char *trace_path)
{
	const char *const paths[] = {trace_path, o->calls, o->record};
	struct writer w[ARRAY_SIZE(paths)];
	size_t open = 0;
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(paths) && !err; i++) {
		if (!paths[i])
			continue;
		err = open_writer(&w[open], paths[i]);
		open += !err;
	}
	while (open)
		writer_abort(&w[--open]);
	return err;
}

struct output *output_new(const struct output_config *cfg)
{
	struct output *out = calloc(1, sizeof(*out));
	int err = -ENOMEM;

	if (!out)
		goto fail;
	out->cfg = *cfg;
	buf_init(&out->line, 0);
	out->summary = summary_new();
	if (!out->summary)
		goto fail;
	if (cfg->options->calls) {
		err = open_writer(&out->calls, cfg->options->calls);
		if (err)
			goto fail;
		out->calls_open = true;
	}
	return out;
fail:
	output_free(out);
	errno = -err;
	return NULL;
}

int output_begin(struct output *out)
{
	int err = out->calls_open ? writer_publish(&out->calls) : 0;

	if (err)
		log_error("cannot write %s: %s", out->cfg.options->calls, strerror(-err));
	return err;
}

void output_free(struct output *out)
{
	if (!out)
		return;
	if (out->calls_open)
		writer_abort(&out->calls);
	summary_free(out->summary);
	buf_release(&out->line);
	free(out);
}

static void failed(struct output *out, const char *path, int err)
{
	log_error("cannot write %s: %s", strcmp(path, "-") ? path : "standard output",
		  err == -EINTR ? "nobody read it, and a second signal came" : strerror(-err));
	if (!out->err)
		out->err = err;
}

/* The line at hand; err: it could not be made. */
static void write_record(struct output *out, int err)
{
	if (!err)
		err = writer_write(&out->calls, out->line.ptr, out->line.len);
	if (!err)
		err = writer_flush(&out->calls);
	if (err) {
		failed(out, out->cfg.options->calls, err);
		writer_abort(&out->calls);
		out->calls_open = false;
	}
}

/* A terminal that went away is nobody's problem: the trace is what was asked for. */
static void show_line(const struct output *out)
{
	writefd_all(STDERR_FILENO, out->line.ptr, out->line.len);
}

static bool is_live(const struct output *out)
{
	return !out->cfg.options->quiet && out->cfg.options->command == COMMAND_RECORD;
}

void output_call(void *ctx, const struct call *c, const struct proc *p, const struct agent_place *place)
{
	struct output *out = ctx;
	const struct capture_info *info = out->cfg.info;

	if (out->calls_open) {
		buf_clear(&out->line);
		write_record(out, view_call_json(&out->line, c, p, place, info->start_ns, info->boot_to_unix_ns,
						 out->cfg.options->content));
	}
	summary_push(out->summary, c);
	if (!is_live(out))
		return;
	buf_clear(&out->line);
	if (!view_call_line(&out->line, c, p, out->cfg.info->start_ns))
		show_line(out);
}

void output_turn(void *ctx, const struct turn *t)
{
	struct output *out = ctx;

	if (!is_live(out))
		return;
	buf_clear(&out->line);
	if (!view_turn_line(&out->line, t, out->cfg.info->start_ns))
		show_line(out);
}

void output_mcp(void *ctx, const struct mcp_call *c)
{
	struct output *out = ctx;

	summary_push_mcp(out->summary, c);
}

void output_attempt(void *ctx, const struct attempt *a, const char *host)
{
	struct output *out = ctx;

	summary_push_attempt(out->summary, a, host);
}

void output_lookup(void *ctx, const struct dns_lookup *l)
{
	struct output *out = ctx;

	summary_push_lookup(out->summary, l);
}

void output_db(void *ctx, const struct db_command *c, const struct proc *p)
{
	struct output *out = ctx;

	if (out->calls_open) {
		buf_clear(&out->line);
		write_record(out, view_db_json(&out->line, c, p, out->cfg.info->start_ns));
	}
	summary_push_db(out->summary, c);
}

void output_http(void *ctx, const struct http_operation *o, const struct proc *p)
{
	struct output *out = ctx;

	if (out->calls_open) {
		buf_clear(&out->line);
		write_record(out,
			     view_http_json(&out->line, o, p, out->cfg.info->start_ns, out->cfg.info->boot_to_unix_ns));
	}
	summary_push_http(out->summary, o);
}

static int write_piece(void *ctx, const void *ptr, size_t len)
{
	return writer_write(ctx, ptr, len);
}

int output_trace(struct output *out, struct pipeline *p, uint64_t now_ns, struct sv attach, struct sv self)
{
	const struct capture_info *info = out->cfg.info;
	struct trace_meta meta = {
		.start_ns = info->start_ns,
		.boot_to_unix_ns = info->boot_to_unix_ns,
		.version = PERFBPF_VERSION,
		.host = info->host,
		.kernel = info->kernel,
		.command = out->cfg.command,
		.attach_json = attach,
		.self_json = self,
	};
	struct writer w;
	struct trace_sink sink = {.ctx = &w, .write = write_piece};
	int err;

	if (!out->cfg.trace_path)
		return 0;
	err = open_writer(&w, out->cfg.trace_path);
	if (err) {
		out->err = out->err ? out->err : err;
		return err;
	}
	err = pipeline_write_trace(p, &meta, now_ns, &sink);
	if (!err)
		err = writer_commit(&w);
	if (err)
		failed(out, out->cfg.trace_path, err);
	writer_abort(&w);
	return err;
}

static int put_verdict(struct output *out, struct pipeline *p, uint64_t now_ns)
{
	struct buf text;
	int err;

	buf_init(&text, 0); /* a sentence */
	err = pipeline_verdict(p, now_ns, &text);
	if (!err && text.len)
		err = view_verdict_line(&out->line, (struct sv){text.ptr, text.len});
	buf_release(&text);
	return err;
}

int output_finish(struct output *out, struct pipeline *p, uint64_t now_ns)
{
	uint64_t start_ns = out->cfg.info->start_ns;
	int err;

	if (out->calls_open) {
		err = writer_commit(&out->calls);
		if (err)
			failed(out, out->cfg.options->calls, err);
		out->calls_open = false;
	}
	buf_clear(&out->line);
	if (!put_verdict(out, p, now_ns) &&
	    !summary_render(out->summary, &out->line, pipeline_lost(p), pipeline_coverage(p),
			    now_ns > start_ns ? now_ns - start_ns : 0))
		show_line(out);
	return out->err;
}
