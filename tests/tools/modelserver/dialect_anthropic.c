/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Anthropic Messages, and the same inside of Bedrock's InvokeModel. */

#include "server.h"

static bool match(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/v1/messages"));
}

static void push_usage(struct buf *b, const struct knobs *k, bool final)
{
	buf_printf(b,
		   "{\"input_tokens\":%.0f,\"cache_creation_input_tokens\":%.0f,\"cache_read_input_tokens\":%.0f,"
		   "\"output_tokens\":%lld",
		   k->input_tokens - k->cache_read - k->cache_write, k->cache_write, k->cache_read,
		   final ? (long long)generated(k) : 1ll);
	if (final && reasoned(k))
		buf_printf(b, ",\"output_tokens_details\":{\"thinking_tokens\":%lld}", (long long)reasoned(k));
	buf_puts(b, ",\"service_tier\":\"standard\"}");
}

static void start_block(struct reply *r, unsigned block, const char *start)
{
	emit(r, "content_block_start", NULL, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":%s}",
	     block, start);
}

static void delta(struct reply *r, unsigned block, const char *kind, const char *type, const char *field,
		  const char *text)
{
	emit(r, "content_block_delta", kind,
	     "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":\"%s\"}}", block, type,
	     field, text);
}

static void end_block(struct reply *r, unsigned block)
{
	emit(r, "content_block_stop", NULL, "{\"type\":\"content_block_stop\",\"index\":%u}", block);
}

static void stream_tools(struct reply *r, unsigned block, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char start[512], piece[ARGUMENTS_MAX];

	for (t = 0; t < r->knobs->tool; t++, block++) {
		struct tool_words w = tool_words(r, t, "toolu");

		snprintf(start, sizeof(start), "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":\"%s\",\"input\":{}}",
			 w.id, w.name);
		start_block(r, block, start);
		delta(r, block, NULL, "input_json_delta", "partial_json", "");
		for (i = 0; i < pieces && pace(r, token++); i++)
			delta(r, block, "tool", "input_json_delta", "partial_json",
			      argument_piece(r, t, i, pieces, piece));
		end_block(r, block);
	}
}

static void stream_content(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0, block = 0;
	char text[256];

	if (k->reasoning > 0) {
		start_block(r, block, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
		for (i = 0; i < k->reasoning && pace(r, token++); i++)
			delta(r, block, "reasoning", "thinking_delta", "thinking", "hm ");
		delta(r, block, NULL, "signature_delta", "signature", "c2lnbmF0dXJl");
		end_block(r, block++);
	}
	if (k->tokens > 0) {
		start_block(r, block, "{\"type\":\"text\",\"text\":\"\"}");
		for (i = 0; i < k->tokens && pace(r, token++); i++)
			delta(r, block, "text", "text_delta", "text", token_text(r, i, text));
		end_block(r, block++);
	}
	stream_tools(r, block, token);
}

static void ping(struct reply *r)
{
	emit(r, "ping", NULL, "{\"type\": \"ping\"}");
}

static void stream(struct reply *r)
{
	struct buf usage;

	buf_init(&usage, 0);
	if (wants_usage(r)) {
		buf_puts(&usage, ",\"usage\":");
		push_usage(&usage, r->knobs, false);
		r->usage_sent = true;
	}
	emit(r, "message_start", NULL,
	     "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\","
	     "\"model\":\"%s\","
	     "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null%s}}",
	     r->model_escaped, buf_cstr(&usage));
	ping(r);
	stream_content(r);
	buf_clear(&usage);
	if (wants_usage(r)) {
		buf_puts(&usage, ",\"usage\":");
		push_usage(&usage, r->knobs, true);
	}
	emit(r, "message_delta", NULL,
	     "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"%s\",\"stop_sequence\":null}%s}",
	     reply_stop_reason(r), buf_cstr(&usage));
	emit(r, "message_stop", NULL, "{\"type\":\"message_stop\"}");
	flush_events(r);
	buf_release(&usage);
}

static void document(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	unsigned i;

	buf_printf(out, "{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"%s\",\"content\":[",
		   r->model_escaped);
	if (k->reasoning > 0)
		buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"c2ln\"},");
	buf_puts(out, "{\"type\":\"text\",\"text\":\"");
	push_tokens(r, out);
	buf_puts(out, "\"}");
	for (i = 0; i < k->tool; i++) {
		struct tool_words w = tool_words(r, i, "toolu");

		buf_printf(out, ",{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":\"%s\",\"input\":{\"n\":[0]}}", w.id,
			   w.name);
	}
	buf_printf(out, "],\"stop_reason\":\"%s\",\"stop_sequence\":null", reply_stop_reason(r));
	if (wants_usage(r)) {
		buf_puts(out, ",\"usage\":");
		push_usage(out, k, true);
	}
	buf_puts(out, "}");
}

static void error_document(struct reply *r, struct buf *out, const char *message)
{
	buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"%s\"},\"request_id\":\"req_1\"}",
		   r->error, message);
}

static void error_event(struct reply *r)
{
	emit(r, "error", NULL, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"on demand\"}}", r->error);
}

static void usage(const struct reply *r, struct truth_usage *u)
{
	const struct knobs *k = r->knobs;

	u->cache_read = (int64_t)k->cache_read;
	u->cache_write = (int64_t)k->cache_write;
	u->input_total = (int64_t)k->input_tokens;
	u->input_uncached = u->input_total - u->cache_read - u->cache_write;
	u->output_total = generated(k);
	u->reasoning = reasoned(k) ? reasoned(k) : -1;
}

const struct dialect dialect_anthropic = {
	.name = "anthropic",
	.match = match,
	.messages = "messages",
	.stop = "end_turn",
	.stop_tool = "tool_use",
	.stream = stream,
	.document = document,
	.error_document = error_document,
	.error_event = error_event,
	.ping = ping,
	.usage = usage,
};

/* --- Bedrock's InvokeModel --------------------------------------------------------------------------------------- */

static bool match_invoke(struct sv path, struct request *r)
{
	r->stream = sv_ends(path, SV("/invoke-with-response-stream"));
	if (!r->stream && !sv_ends(path, SV("/invoke")))
		return false;
	return bedrock_model(path, r);
}

static void error_document_invoke(struct reply *r, struct buf *out, const char *message)
{
	buf_printf(out, "{\"__type\":\"%s\",\"message\":\"%s\"}", r->error, message);
}

static void error_event_invoke(struct reply *r)
{
	r->error = r->knobs->error_type[0] ? r->knobs->error_type : "throttlingException";
	emit(r, r->error, NULL, "{\"message\":\"on demand\"}");
}

const struct dialect dialect_invoke = {
	.name = "bedrock.invoke",
	.match = match_invoke,
	.messages = "messages",
	.model_in_path = true,
	.stream_in_path = true,
	.framing = FRAMING_CHUNKS,
	.stop = "end_turn",
	.stop_tool = "tool_use",
	.stream = stream,
	.document = document,
	.error_document = error_document_invoke,
	.error_event = error_event_invoke,
	.usage = usage,
};
