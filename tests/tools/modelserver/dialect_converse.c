/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bedrock's Converse: frames that say their kind, payload plain JSON. */

#include "server.h"

bool bedrock_model(struct sv path, struct request *r)
{
	const char *id = path.len ? memmem(path.ptr, path.len, "/model/", 7) : NULL;
	const char *end = id ? memrchr(path.ptr, '/', path.len) : NULL;

	if (!id || end < id + 7 || (size_t)(end - id - 7) >= sizeof(r->path_model))
		return false;
	memcpy(r->path_model, id + 7, (size_t)(end - id - 7));
	return true;
}

static bool match(struct sv path, struct request *r)
{
	r->stream = sv_ends(path, SV("/converse-stream"));
	return (r->stream || sv_ends(path, SV("/converse"))) && bedrock_model(path, r);
}

static void push_usage(struct buf *b, const struct knobs *k)
{
	buf_printf(b,
		   "{\"inputTokens\":%.0f,\"outputTokens\":%lld,\"totalTokens\":%.0f,\"cacheReadInputTokens\":%.0f,"
		   "\"cacheWriteInputTokens\":%.0f}",
		   k->input_tokens - k->cache_read - k->cache_write, (long long)generated(k),
		   k->input_tokens + (double)generated(k), k->cache_read, k->cache_write);
}

/* before, after: what is around the text in the delta. */
static void delta(struct reply *r, unsigned block, const char *kind, const char *before, const char *text,
		  const char *after)
{
	emit(r, "contentBlockDelta", kind, "{\"contentBlockIndex\":%u,\"delta\":{%s\"%s\"%s},\"p\":\"abcd\"}", block,
	     before, text, after);
}

static void end_block(struct reply *r, unsigned block)
{
	emit(r, "contentBlockStop", NULL, "{\"contentBlockIndex\":%u}", block);
}

static void stream_tools(struct reply *r, unsigned block, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char piece[ARGUMENTS_MAX];

	for (t = 0; t < r->knobs->tool; t++, block++) {
		emit(r, "contentBlockStart", NULL,
		     "{\"contentBlockIndex\":%u,\"start\":{\"toolUse\":{\"toolUseId\":\"tooluse_%02u\",\"name\":\"get_"
		     "weather\"}}}",
		     block, t + 1);
		for (i = 0; i < pieces && pace(r, token++); i++)
			delta(r, block, "tool", "\"toolUse\":{\"input\":", argument_piece(r, t, i, pieces, piece), "}");
		end_block(r, block);
	}
}

static void stream(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0, block = 0;
	char text[256];
	struct buf usage;

	emit(r, "messageStart", NULL, "{\"role\":\"assistant\",\"p\":\"abcdefgh\"}");
	for (i = 0; i < k->reasoning && pace(r, token++); i++)
		delta(r, block, "reasoning", "\"reasoningContent\":{\"text\":", "hm ", "}");
	if (k->reasoning > 0)
		end_block(r, block++);
	for (i = 0; i < k->tokens && pace(r, token++); i++)
		delta(r, block, "text", "\"text\":", token_text(r, i, text), "");
	end_block(r, block++);
	stream_tools(r, block, token);
	emit(r, "messageStop", NULL, "{\"stopReason\":\"%s\"}", reply_stop_reason(r));
	buf_init(&usage, 0);
	if (wants_usage(r)) {
		buf_puts(&usage, "\"usage\":");
		push_usage(&usage, k);
		buf_puts(&usage, ",");
	}
	emit(r, "metadata", NULL, "{%s\"metrics\":{\"latencyMs\":5}}", buf_cstr(&usage));
	buf_release(&usage);
	flush_events(r);
}

static void document(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	unsigned i;

	buf_puts(out, "{\"output\":{\"message\":{\"role\":\"assistant\",\"content\":[");
	if (k->reasoning > 0)
		buf_puts(out, "{\"reasoningContent\":{\"reasoningText\":{\"text\":\"hm\"}}},");
	buf_puts(out, "{\"text\":\"");
	push_tokens(r, out);
	buf_puts(out, "\"}");
	for (i = 0; i < k->tool; i++)
		buf_printf(out,
			   ",{\"toolUse\":{\"toolUseId\":\"tooluse_%02u\",\"name\":\"get_weather\",\"input\":{\"n\":[0]"
			   "}}}",
			   i + 1);
	buf_printf(out, "]}},\"stopReason\":\"%s\"", reply_stop_reason(r));
	if (wants_usage(r)) {
		buf_puts(out, ",\"usage\":");
		push_usage(out, k);
	}
	buf_puts(out, ",\"metrics\":{\"latencyMs\":5}}");
}

static void error_document(struct reply *r, struct buf *out, const char *message)
{
	r->error = r->knobs->error_type[0] ? r->knobs->error_type : "ThrottlingException";
	buf_printf(out, "{\"__type\":\"%s\",\"message\":\"%s\"}", r->error, message);
}

static void error_event(struct reply *r)
{
	r->error = r->knobs->error_type[0] ? r->knobs->error_type : "modelStreamErrorException";
	emit(r, r->error, NULL, "{\"message\":\"on demand\"}");
}

static void usage(const struct reply *r, struct truth_usage *u)
{
	const struct knobs *k = r->knobs;

	u->cache_read = (int64_t)k->cache_read;
	u->cache_write = (int64_t)k->cache_write;
	u->input_total = (int64_t)k->input_tokens;
	u->input_uncached = u->input_total - u->cache_read - u->cache_write;
	u->output_total = generated(k);
}

const struct dialect dialect_converse = {
	.name = "bedrock.converse",
	.match = match,
	.messages = "messages",
	.model_in_path = true,
	.stream_in_path = true,
	.names_no_model = true,
	.framing = FRAMING_FRAMES,
	.stop = "end_turn",
	.stop_tool = "tool_use",
	.stream = stream,
	.document = document,
	.error_document = error_document,
	.error_event = error_event,
	.usage = usage,
};
