/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ollama's own API: JSON texts, a line each; streams unless told not to. */

#include "server.h"

static bool match_chat(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/api/chat"));
}

static bool match_generate(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/api/generate"));
}

/* What is said: {"message":{…}}, or "response" and the like at the top. tools: from number `first` on. */
static void push_said(struct reply *r, struct buf *out, const char *content, const char *thinking, unsigned first,
		      unsigned tools)
{
	bool chat = r->dialect == &dialect_ollama_chat;
	unsigned i;

	if (chat)
		buf_printf(out, "\"message\":{\"role\":\"assistant\",\"content\":\"%s\"", content);
	else
		buf_printf(out, "\"response\":\"%s\"", content);
	if (thinking)
		buf_printf(out, ",\"thinking\":\"%s\"", thinking);
	if (chat && tools) {
		for (i = 0; i < tools; i++)
			buf_printf(out,
				   "%s{\"id\":\"call_%02u\",\"function\":{\"index\":%u,\"name\":\"get_weather\","
				   "\"arguments\":{\"n\":[0]}}}",
				   i ? "," : ",\"tool_calls\":[", first + i + 1, first + i);
		buf_puts(out, "]");
	}
	if (chat)
		buf_puts(out, "}");
}

static void push_start(struct reply *r, struct buf *out)
{
	buf_printf(out, "{\"model\":\"%s\",\"created_at\":\"2026-11-29T00:00:00.000000000Z\",", r->model_escaped);
}

/* Durations are the server's own, in nanoseconds. */
static void push_done(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;

	buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"", reply_stop_reason(r));
	if (wants_usage(r))
		buf_printf(out,
			   ",\"total_duration\":5000000,\"load_duration\":1000000,\"prompt_eval_count\":%.0f,\"prompt_"
			   "eval_duration\":2000000,\"eval_count\":%lld,\"eval_duration\":2000000",
			   k->input_tokens - k->cache_read, (long long)generated(k));
	buf_puts(out, "}");
}

/* kind NULL: the last one. tool: with this number, where the kind is that. */
static void line(struct reply *r, const char *kind, const char *content, const char *thinking, unsigned tool)
{
	struct buf doc;

	buf_init(&doc, 0);
	push_start(r, &doc);
	push_said(r, &doc, content, thinking, tool, kind && !strcmp(kind, "tool"));
	if (kind)
		buf_puts(&doc, ",\"done\":false}");
	else
		push_done(r, &doc);
	emit(r, NULL, kind, "%s", buf_cstr(&doc));
	buf_release(&doc);
}

static void stream(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0;
	char text[256];

	for (i = 0; i < k->reasoning && pace(r, token++); i++)
		line(r, "reasoning", "", "hm ", 0);
	for (i = 0; i < k->tokens && pace(r, token++); i++)
		line(r, "text", token_text(r, i, text), NULL, 0);
	if (r->dialect == &dialect_ollama_chat)
		for (i = 0; i < k->tool && pace(r, token++); i++)
			line(r, "tool", "", NULL, i); /* arguments come whole */
	line(r, NULL, "", NULL, 0);
	flush_events(r);
}

static void document(struct reply *r, struct buf *out)
{
	struct buf text;

	buf_init(&text, 0);
	push_tokens(r, &text);
	push_start(r, out);
	push_said(r, out, buf_cstr(&text), r->knobs->reasoning > 0 ? "hm" : NULL, 0, (unsigned)r->knobs->tool);
	push_done(r, out);
	buf_release(&text);
}

static void error_document(struct reply *r, struct buf *out, const char *message)
{
	r->error = "error"; /* it gives no types */
	buf_printf(out, "{\"error\":\"%s\"}", message);
}

static void error_event(struct reply *r)
{
	r->error = "error";
	emit(r, NULL, NULL, "{\"error\":\"on demand\"}");
}

/* What went into the model is all it says, which is less than the input where there is a cache. */
static void usage(const struct reply *r, struct truth_usage *u)
{
	u->output_total = generated(r->knobs);
}

const struct dialect dialect_ollama_chat = {
	.name = "ollama",
	.match = match_chat,
	.messages = "messages",
	.stream_default = true,
	.framing = FRAMING_LINES,
	.stop = "stop",
	.stop_tool = "stop",
	.stream = stream,
	.document = document,
	.error_document = error_document,
	.error_event = error_event,
	.usage = usage,
};

const struct dialect dialect_ollama_generate = {
	.name = "ollama",
	.match = match_generate,
	.messages = "prompt",
	.stream_default = true,
	.framing = FRAMING_LINES,
	.stop = "stop",
	.stop_tool = "stop",
	.stream = stream,
	.document = document,
	.error_document = error_document,
	.error_event = error_event,
	.usage = usage,
};
