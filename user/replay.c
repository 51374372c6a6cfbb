/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/lost.h"
#include "base/log.h"
#include "capture.h"
#include "command.h"
#include "output.h"
#include "pipeline.h"
#include "privilege.h"

static void on_record(void *ctx, const void *record, size_t len)
{
	pipeline_push(ctx, record, len);
}

/* Through the pipeline into the outputs. Exit status. */
static int run(const struct options *o, FILE *f, const struct output_config *cfg)
{
	struct output *out = output_new(cfg);
	struct pipeline_config pipeline_cfg = {
		.stale_ns = (uint64_t)(o->stale_s * 1e9),
		.sweep_ns = (uint64_t)(o->sweep_s * 1e9),
		.max_events = o->max_events,
		.no_trace = !o->output,
		.content = o->content,
		.db = o->db,
		.http = o->http,
		.ctx = out,
		.on_call = output_call,
		.on_turn = output_turn,
		.on_mcp = output_mcp,
		.on_db = output_db,
		.on_attempt = output_attempt,
		.on_lookup = output_lookup,
		.on_http = output_http,
	};
	struct pipeline *p = out ? pipeline_new(&pipeline_cfg) : NULL;
	const char *why = NULL;
	uint64_t last_ns = 0;
	int status = 1, read_err, err;

	if (!p || output_begin(out))
		goto out;
	read_err = capture_read_records(f, on_record, p, &last_ns, &why);
	if (read_err)
		log_error("%s: %s", o->capture, read_err == -EBADMSG ? why : strerror(-read_err));
	pipeline_finish(p, last_ns);
	output_trace(out, p, last_ns, SV_NONE, SV_NONE);
	err = output_finish(out, p, last_ns);
	status = read_err || err ? 1 : o->strict && lost_total(pipeline_lost(p)) ? 3 : 0;
out:
	pipeline_free(p);
	output_free(out);
	return status;
}

int replay_run(const struct options *o, int argc, char **argv)
{
	struct capture_info info;
	struct output_config cfg = {.options = o, .trace_path = o->output, .info = &info};
	char command[COMMAND_TEXT_BYTES];
	const char *why = NULL;
	int status = 1, err;
	FILE *f;

	if (output_check(o, o->output))
		return 1;
	f = fopen(o->capture, "re");
	if (!f) {
		log_error("%s: %s", o->capture, strerror(errno));
		return 1;
	}
	privilege_write();
	err = capture_read_header(f, &info, &why);
	if (err) {
		log_error("%s: %s", o->capture, err == -EBADMSG ? why : strerror(-err));
	} else {
		if ((o->db && !info.db) || (o->http && !info.http))
			log_warn("%s was recorded without %s: little of that is in it", o->capture,
				 o->db && !info.db ? "--db" : "--http");
		cfg.command = command_text(command, argc, argv, o->content);
		status = run(o, f, &cfg);
	}
	fclose(f);
	return status;
}
