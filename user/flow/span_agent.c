/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns and tool calls as spans. */
#include "span_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "flow/agent/verdict.h"

static int turn_args(struct span *s, const struct turn *t)
{
	const struct verdict_facts facts = {
		.wall = &t->wall,
		.model = t->model,
		.writer = t->writer,
		.model_share = t->model_share,
		.writer_share = t->writer_share,
	};
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	json_uint(&j, "turn", t->id);
	json_uint(&j, "agent_index", t->agent);
	span_put_text(&j, "session_id", t->session_id, 128);
	span_put_text(&j, "turn_id", t->turn_id, 128);
	span_put_text(&j, "trigger", call_trigger_name(t->trigger), 32);
	json_uint(&j, "steps", t->steps);
	json_uint(&j, "tools", t->tools);
	span_put_count(&j, "output_tokens", t->output_tokens);
	span_put_true(&j, "partial", t->partial);
	span_put_true(&j, "unfinished", !t->complete);
	verdict_json(&j, &facts);
	json_end_object(&j);
	return span_take_args(s, &j, &text);
}

int span_from_turn(struct span *out, const struct turn *t)
{
	int err;

	*out = (struct span){
		.pid = t->shown_pid,
		.track = SPAN_TURN,
		.cat = "turn",
		.begin_ns = t->at.begin_ns,
		.end_ns = t->at.end_ns,
		.first_token_ns = UNKNOWN_NS,
		.agent = t->sub ? t->agent : 0,
	};
	out->name = strdup("turn");
	err = out->name ? turn_args(out, t) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}

static int tool_args(struct span *s, const struct agent_tool *t)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "tool", t->name, 128);
	span_put_text(&j, "tool_call_id", t->id, 128);
	span_put_text(&j, "joined", tool_join_name(t->join), 32);
	span_put_true(&j, "ambiguous", t->ambiguous);
	json_double(&j, "duration_ms", (double)(t->at.end_ns - t->at.begin_ns) / 1e6, 3);
	span_put_duration(&j, "client_duration_ms", t->client_ns);
	if (t->at.begin_ns > t->asked_ns)
		span_put_duration(&j, "start_delay_ms", (int64_t)(t->at.begin_ns - t->asked_ns));
	if (t->spawned)
		json_uint(&j, "spawned_agent_index", t->spawned);
	if (t->processes) {
		json_uint(&j, "processes", t->processes);
		span_put_text(&j, "program", t->program, 64);
		json_uint(&j, "child_pid", t->child_pid);
		if (!t->running) {
			if (t->code != EXIT_CODE_UNKNOWN)
				json_int(&j, "exit_code", t->code);
			if (t->signal)
				json_int(&j, "signal", t->signal);
		}
		span_put_true(&j, "running", t->running);
		if (t->cpu_ns)
			span_put_duration(&j, "cpu_ms", (int64_t)t->cpu_ns);
	}
	span_put_count(&j, "result_bytes", t->result_bytes);
	if (t->is_error >= 0)
		json_bool(&j, "is_error", t->is_error > 0);
	json_uint(&j, "call_id", t->call_id);
	if (t->result_call_id)
		json_uint(&j, "result_call_id", t->result_call_id);
	json_end_object(&j);
	return span_take_args(s, &j, &text);
}

int span_from_tool(struct span *out, const struct agent_tool *t)
{
	char name[SPAN_NAME_BYTES];
	int err;

	*out = (struct span){
		.pid = t->shown_pid,
		.track = SPAN_TOOL,
		.cat = "tool",
		.begin_ns = t->at.begin_ns,
		.end_ns = t->at.end_ns,
		.first_token_ns = UNKNOWN_NS,
		.agent = t->sub ? t->agent : 0,
		.flow_out = t->spawned	   ? SPAN_FLOW_AGENT(t->spawned)
			    : t->child_pid ? SPAN_FLOW_PROCESS(t->child_pid)
					   : SPAN_FLOW_NONE,
	};
	/* Names are ASCII in every API; one that is cut inside of a character gets U+FFFD. */
	snprintf(name, sizeof(name), "tool: %.128s", t->name && *t->name ? t->name : "?");
	out->name = strdup(name);
	err = out->name ? tool_args(out, t) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}
