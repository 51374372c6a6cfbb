/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Cohere v2: events that say their kind in `type`. */

#include "server.h"

static bool match(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/v2/chat"));
}

static void push_usage(struct buf *b, const struct knobs *k)
{
	buf_printf(b,
		   "{\"billed_units\":{\"input_tokens\":3,\"output_tokens\":3},\"tokens\":{\"input_tokens\":%.0f,"
		   "\"output_tokens\":%lld},\"cached_tokens\":%.0f}",
		   k->input_tokens, (long long)generated(k), k->cache_read);
}

static void content_start(struct reply *r, unsigned index, const char *type)
{
	emit(r, "content-start", NULL,
	     "{\"type\":\"content-start\",\"index\":%u,\"delta\":{\"message\":{\"content\":{\"type\":\"%s\",\"%s\":"
	     "\"\"}"
	     "}}}",
	     index, type, type);
}

static void content_delta(struct reply *r, unsigned index, const char *kind, const char *type, const char *text)
{
	emit(r, "content-delta", kind,
	     "{\"type\":\"content-delta\",\"index\":%u,\"delta\":{\"message\":{\"content\":{\"%s\":\"%s\"}}}}", index,
	     type, text);
}

static void content_end(struct reply *r, unsigned index)
{
	emit(r, "content-end", NULL, "{\"type\":\"content-end\",\"index\":%u}", index);
}

static void stream_tools(struct reply *r, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char piece[ARGUMENTS_MAX];

	for (t = 0; t < r->knobs->tool && pace(r, token++); t++) {
		emit(r, "tool-call-start", "tool",
		     "{\"type\":\"tool-call-start\",\"index\":%u,\"delta\":{\"message\":{\"tool_calls\":{\"id\":\"call_"
		     "%02u\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":\"\"}}}}}",
		     t, t + 1);
		for (i = 0; i < pieces && pace(r, token++); i++)
			emit(r, "tool-call-delta", "tool",
			     "{\"type\":\"tool-call-delta\",\"index\":%u,\"delta\":{\"message\":{\"tool_calls\":{"
			     "\"function\":{\"arguments\":\"%s\"}}}}}",
			     t, argument_piece(r, t, i, pieces, piece));
		emit(r, "tool-call-end", NULL, "{\"type\":\"tool-call-end\",\"index\":%u}", t);
	}
}

static void stream_end(struct reply *r)
{
	struct buf usage;

	buf_init(&usage, 0);
	if (wants_usage(r)) {
		buf_puts(&usage, ",\"usage\":");
		push_usage(&usage, r->knobs);
	}
	emit(r, "message-end", NULL, "{\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"%s\"%s}}",
	     reply_stop_reason(r), buf_cstr(&usage));
	buf_release(&usage);
	flush_events(r);
}

static void stream(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0, index = 0;
	char text[256];

	emit(r, "message-start", NULL,
	     "{\"type\":\"message-start\",\"id\":\"m-%06u\",\"delta\":{\"message\":{\"role\":\"assistant\",\"content\":"
	     "[],"
	     "\"tool_plan\":\"\",\"tool_calls\":[],\"citations\":[]}}}",
	     r->sequence);
	if (k->reasoning > 0) {
		content_start(r, index, "thinking");
		for (i = 0; i < k->reasoning && pace(r, token++); i++)
			content_delta(r, index, "reasoning", "thinking", "hm ");
		content_end(r, index++);
	}
	content_start(r, index, "text");
	for (i = 0; i < k->tokens && pace(r, token++); i++)
		content_delta(r, index, "text", "text", token_text(r, i, text));
	content_end(r, index++);
	stream_tools(r, token);
	stream_end(r);
}

static void document(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	unsigned i;

	buf_printf(out, "{\"id\":\"m-%06u\",\"finish_reason\":\"%s\",\"message\":{\"role\":\"assistant\",\"content\":[",
		   r->sequence, reply_stop_reason(r));
	if (k->reasoning > 0)
		buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"hm\"},");
	buf_puts(out, "{\"type\":\"text\",\"text\":\"");
	push_tokens(r, out);
	buf_puts(out, "\"}]");
	for (i = 0; i < k->tool; i++)
		buf_printf(out,
			   "%s{\"id\":\"call_%02u\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
			   "\"arguments\":\"{}\"}}",
			   i ? "," : ",\"tool_calls\":[", i + 1);
	buf_printf(out, "%s}", i ? "]" : "");
	if (wants_usage(r)) {
		buf_puts(out, ",\"usage\":");
		push_usage(out, k);
	}
	buf_puts(out, "}");
}

/* Text without a type. */
static void error_document(struct reply *r, struct buf *out, const char *message)
{
	r->error = "error";
	buf_printf(out, "{\"id\":\"m-1\",\"message\":\"%s\"}", message);
}

static void error_event(struct reply *r)
{
	r->error = "ERROR";
	emit(r, "message-end", NULL,
	     "{\"type\":\"message-end\",\"delta\":{\"error\":\"on demand\",\"finish_reason\":\"ERROR\"}}");
}

static void usage(const struct reply *r, struct truth_usage *u)
{
	const struct knobs *k = r->knobs;

	u->cache_read = (int64_t)k->cache_read;
	u->cache_write = 0;
	u->input_total = (int64_t)k->input_tokens;
	u->input_uncached = u->input_total - u->cache_read;
	u->output_total = generated(k);
}

const struct dialect dialect_cohere = {
	.name = "cohere.v2",
	.match = match,
	.messages = "messages",
	.names_no_model = true,
	.stop = "COMPLETE",
	.stop_tool = "TOOL_CALL",
	.stream = stream,
	.document = document,
	.error_document = error_document,
	.error_event = error_event,
	.usage = usage,
};
