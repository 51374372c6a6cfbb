/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "views.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "flow/agent/verdict.h"
#include "format.h"

/* Every text of a traced program or its peer passes through here: at most 79 bytes, nothing that drives a terminal. */
static int put_captured(struct buf *out, const char *prefix, const char *text)
{
	char safe[80];

	if (!text || !*text)
		return 0;
	return buf_printf(out, "%s%s", prefix, log_safe(safe, sizeof(safe), sv_of(text)));
}

static int put_who(struct buf *out, const struct call *c, const struct proc *p)
{
	char name[40], who[64], model[64], status[16] = "-";
	const char *what = c->model && *c->model		   ? c->model
			   : c->request_model && *c->request_model ? c->request_model
								   : c->api;

	log_safe(name, sizeof(name), p && p->agent ? sv_of(p->agent) : p && p->name[0] ? sv_of(p->name) : SV_NONE);
	snprintf(who, sizeof(who), "%s[%u]", name, c->conn.tgid);
	log_safe(model, sizeof(model), sv_of(what));
	if (c->status > 0)
		snprintf(status, sizeof(status), "%d", c->status);
	return buf_printf(out, "%-16s %-20s %3s", who, model, status);
}

static int put_numbers(struct buf *out, const struct call *c)
{
	char ttft[FORMAT_BYTES], total[FORMAT_BYTES], in[FORMAT_BYTES], cached[FORMAT_BYTES], tokens[FORMAT_BYTES],
		rate[FORMAT_BYTES];
	bool usage = c->usage.source != USAGE_NONE;

	format_ms(ttft, call_ms(c, c->first_token_ns));
	format_ms(total, call_ms(c, c->end_ns));
	format_count(in, usage ? c->usage.input_total : UNKNOWN_COUNT);
	format_percent(cached, call_cache_hit_rate(c));
	format_count(tokens, call_output_total(c));
	format_rate(rate, call_decode_tok_s(c));
	return buf_printf(out, "  ttft %6s  total %6s  in %5s (%s cached)  out %5s  %4s tok/s", ttft, total, in, cached,
			  tokens, rate);
}

/* What a reader must know before believing the numbers. */
static int put_flags(struct buf *out, const struct call *c)
{
	char attempt[32] = "";
	int err = put_captured(out, "  ", c->stop_reason);

	if (!err && c->class != CALL_MAIN)
		err = put_captured(out, "  class=", call_class_name(c->class));
	if (c->attempt > 1)
		snprintf(attempt, sizeof(attempt), "%d", c->attempt);
	if (!err)
		err = put_captured(out, "  attempt=", attempt);
	if (!err)
		err = put_captured(out, "  error=", c->error);
	if (!err && !c->whole)
		err = put_captured(out, "  ", end_reason_name(c->end));
	if (!err && c->unfinished)
		err = buf_puts(out, "  unfinished");
	if (!err && c->lossy)
		err = buf_puts(out, "  lossy");
	if (!err && c->mid_attach)
		err = buf_puts(out, "  mid-attach");
	if (!err)
		err = put_captured(out, "  undecoded ", c->undecoded);
	return err;
}

int view_call_line(struct buf *out, const struct call *c, const struct proc *p, uint64_t start_ns)
{
	size_t before = out->len;
	char when[FORMAT_BYTES] = "-";
	int err;

	if (c->start_ns != UNKNOWN_NS && c->start_ns >= start_ns)
		snprintf(when, sizeof(when), "%.3fs", (double)(c->start_ns - start_ns) / 1e9);
	err = buf_printf(out, "%9s ", when);
	if (!err)
		err = put_who(out, c, p);
	if (!err)
		err = put_numbers(out, c);
	if (!err)
		err = put_flags(out, c);
	if (!err)
		err = buf_putc(out, '\n');
	if (err)
		out->len = before;
	return err;
}

int view_turn_line(struct buf *out, const struct turn *t, uint64_t start_ns)
{
	const struct verdict_facts facts = {
		.wall = &t->wall,
		.model = t->model,
		.writer = t->writer,
		.model_share = t->model_share,
		.writer_share = t->writer_share,
	};
	size_t before = out->len;
	char who[32], safe[1024];
	struct buf text;
	int err;

	snprintf(who, sizeof(who), "turn[%u]", t->shown_pid);
	if (t->steps < 2 || !t->wall.total_ns || t->at.begin_ns < start_ns)
		return 0;
	buf_init(&text, 0); /* bounded by the texts' limits */
	err = verdict_text(&text, &facts);
	if (!err)
		err = buf_printf(out, "%8.3fs %-16s steps %u, tools %u: %s\n",
				 (double)(t->at.begin_ns - start_ns) / 1e9, who, t->steps, t->tools,
				 log_safe(safe, sizeof(safe), (struct sv){text.ptr, text.len}));
	if (err)
		out->len = before;
	buf_release(&text);
	return err;
}
