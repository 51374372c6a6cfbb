/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OpenAI Chat Completions, Completions and Embeddings. */

#include "server.h"

/* --- what they share --------------------------------------------------------------------------------------------- */

void push_openai_usage(struct buf *b, const struct knobs *k, const char *in, const char *out)
{
	buf_printf(b,
		   "{\"%s_tokens\":%.0f,\"%s_tokens\":%lld,\"total_tokens\":%.0f,\"%s_tokens_details\":{\"cached_"
		   "tokens\":%.0f",
		   in, k->input_tokens, out, (long long)generated(k), k->input_tokens + (double)generated(k), in,
		   k->cache_read);
	if (k->cache_write > 0)
		buf_printf(b, ",\"cache_write_tokens\":%.0f", k->cache_write);
	buf_printf(b, "},\"%s_tokens_details\":{\"reasoning_tokens\":%lld}}", out, (long long)reasoned(k));
}

void openai_error_document(struct reply *r, struct buf *out, const char *message)
{
	buf_printf(out, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null}}", message,
		   r->error);
}

void openai_truth_usage(const struct reply *r, struct truth_usage *u)
{
	const struct knobs *k = r->knobs;

	u->cache_read = (int64_t)k->cache_read;
	u->cache_write = (int64_t)k->cache_write;
	u->input_total = (int64_t)k->input_tokens;
	u->input_uncached = u->input_total - u->cache_read - u->cache_write;
	u->output_total = generated(k);
	u->reasoning = reasoned(k);
}

static void error_event(struct reply *r)
{
	emit(r, NULL, NULL, "{\"error\":{\"message\":\"on demand\",\"type\":\"%s\",\"param\":null,\"code\":null}}",
	     r->error);
}

static void push_usage_member(struct reply *r, struct buf *out)
{
	if (!wants_usage(r))
		return;
	buf_puts(out, ",\"usage\":");
	push_openai_usage(out, r->knobs, "prompt", "completion");
}

/* choices: the whole array; usage: NULL or an object. */
static void chunk(struct reply *r, const char *kind, const char *choices, const char *usage)
{
	bool chat = r->dialect == &dialect_chat;

	emit(r, NULL, kind,
	     "{\"id\":\"%s-01\",\"object\":\"%s\",\"created\":1764400000,\"model\":\"%s\",\"choices\":%s%s%s}",
	     chat ? "chatcmpl" : "cmpl", chat ? "chat.completion.chunk" : "text_completion", r->model_escaped, choices,
	     usage ? ",\"usage\":" : "", usage ? usage : "");
}

static void end_stream(struct reply *r)
{
	struct buf usage;

	if (wants_usage(r)) {
		buf_init(&usage, 0);
		push_openai_usage(&usage, r->knobs, "prompt", "completion");
		chunk(r, NULL, "[]", buf_cstr(&usage));
		buf_release(&usage);
	}
	emit(r, NULL, NULL, "[DONE]");
	flush_events(r);
}

/* --- chat -------------------------------------------------------------------------------------------------------- */

static bool match_chat(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/chat/completions"));
}

static void chat_delta(struct reply *r, const char *kind, const char *delta)
{
	char choices[2048];

	snprintf(choices, sizeof(choices), "[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]", delta);
	chunk(r, kind, choices, wants_usage(r) ? "null" : NULL);
}

static void chat_tools(struct reply *r, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char delta[1024], piece[ARGUMENTS_MAX];

	for (t = 0; t < r->knobs->tool && pace(r, token++); t++) {
		struct tool_words w = tool_words(r, t, "call");

		snprintf(delta, sizeof(delta),
			 "{\"tool_calls\":[{\"index\":%u,\"id\":\"%s\",\"type\":\"function\",\"function\":{"
			 "\"name\":\"%s\",\"arguments\":\"\"}}]}",
			 t, w.id, w.name);
		chat_delta(r, "tool", delta);
		for (i = 0; i < pieces && pace(r, token++); i++) {
			snprintf(delta, sizeof(delta),
				 "{\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":\"%s\"}}]}", t,
				 argument_piece(r, t, i, pieces, piece));
			chat_delta(r, "tool", delta);
		}
	}
}

static void stream_chat(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0;
	char delta[512], text[256];

	chat_delta(r, NULL, "{\"role\":\"assistant\",\"content\":\"\"}");
	for (i = 0; i < k->reasoning && pace(r, token++); i++)
		chat_delta(r, "reasoning", "{\"reasoning_content\":\"hm \"}");
	for (i = 0; i < k->tokens && pace(r, token++); i++) {
		snprintf(delta, sizeof(delta), "{\"content\":\"%s\"}", token_text(r, i, text));
		chat_delta(r, "text", delta);
	}
	chat_tools(r, token);
	snprintf(delta, sizeof(delta), "[{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}]", reply_stop_reason(r));
	chunk(r, NULL, delta, wants_usage(r) ? "null" : NULL);
	end_stream(r);
}

static void document_chat(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	unsigned i;

	buf_printf(out,
		   "{\"id\":\"chatcmpl-01\",\"object\":\"chat.completion\",\"created\":1764400000,\"model\":\"%s\","
		   "\"choices\":[{\"index\":0,"
		   "\"message\":{\"role\":\"assistant\",\"content\":\"",
		   r->model_escaped);
	push_tokens(r, out);
	buf_puts(out, "\"");
	for (i = 0; i < k->tool; i++) {
		struct tool_words w = tool_words(r, i, "call");

		buf_printf(
			out,
			"%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\",\"arguments\":\"{}\"}}",
			i ? "," : ",\"tool_calls\":[", w.id, w.name);
	}
	buf_printf(out, "%s},\"finish_reason\":\"%s\"}]", i ? "]" : "", reply_stop_reason(r));
	push_usage_member(r, out);
	buf_puts(out, "}");
}

const struct dialect dialect_chat = {
	.name = "openai.chat",
	.match = match_chat,
	.messages = "messages",
	.stop = "stop",
	.stop_tool = "tool_calls",
	.stream = stream_chat,
	.document = document_chat,
	.error_document = openai_error_document,
	.error_event = error_event,
	.usage = openai_truth_usage,
};

/* --- completions: text alone ------------------------------------------------------------------------------------- */

static bool match_completions(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/v1/completions"));
}

static void stream_completions(struct reply *r)
{
	char choices[512], text[256];
	unsigned i;

	for (i = 0; i < r->knobs->tokens && pace(r, i); i++) {
		snprintf(choices, sizeof(choices), "[{\"index\":0,\"text\":\"%s\",\"finish_reason\":null}]",
			 token_text(r, i, text));
		chunk(r, "text", choices, NULL);
	}
	snprintf(choices, sizeof(choices), "[{\"index\":0,\"text\":\"\",\"finish_reason\":\"%s\"}]",
		 reply_stop_reason(r));
	chunk(r, NULL, choices, NULL);
	end_stream(r);
}

static void document_completions(struct reply *r, struct buf *out)
{
	buf_printf(out,
		   "{\"id\":\"cmpl-01\",\"object\":\"text_completion\",\"created\":1764400000,\"model\":\"%s\","
		   "\"choices\":[{\"index\":0,\"text\":\"",
		   r->model_escaped);
	push_tokens(r, out);
	buf_printf(out, "\",\"finish_reason\":\"%s\"}]", reply_stop_reason(r));
	push_usage_member(r, out);
	buf_puts(out, "}");
}

const struct dialect dialect_completions = {
	.name = "openai.completions",
	.match = match_completions,
	.messages = "prompt",
	.stop = "stop",
	.stop_tool = "stop",
	.stream = stream_completions,
	.document = document_completions,
	.error_document = openai_error_document,
	.error_event = error_event,
	.usage = openai_truth_usage,
};

/* --- embeddings: nothing is generated ---------------------------------------------------------------------------- */

static bool match_embeddings(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/v1/embeddings"));
}

static void document_embeddings(struct reply *r, struct buf *out)
{
	buf_printf(out,
		   "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.25,-0.5]}],"
		   "\"model\":\"%s\"",
		   r->model_escaped);
	if (wants_usage(r))
		buf_printf(out, ",\"usage\":{\"prompt_tokens\":%.0f,\"total_tokens\":%.0f}", r->knobs->input_tokens,
			   r->knobs->input_tokens);
	buf_puts(out, "}");
}

static void usage_embeddings(const struct reply *r, struct truth_usage *u)
{
	/* nothing is generated, and there is no cache to write to */
	u->input_total = (int64_t)r->knobs->input_tokens;
	u->cache_write = 0;
}

const struct dialect dialect_embeddings = {
	.name = "openai.embeddings",
	.match = match_embeddings,
	.messages = "input",
	.document = document_embeddings,
	.error_document = openai_error_document,
	.usage = usage_embeddings,
};
