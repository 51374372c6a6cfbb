/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Gemini: …/models/MODEL:generateContent and :streamGenerateContent, by SSE (alt=sse) or as one JSON array. */

#include "server.h"

static bool match(struct sv path, struct request *r)
{
	struct sv verb, last = path;
	size_t i;

	for (i = path.len; i && path.ptr[i - 1] != '/'; i--)
		;
	last = (struct sv){path.ptr + i, path.len - i};
	last = sv_cut(last, ':', &verb);
	r->stream = sv_eq(verb, SV("streamGenerateContent"));
	if ((!r->stream && !sv_eq(verb, SV("generateContent"))) || last.len >= sizeof(r->path_model))
		return false;
	memcpy(r->path_model, last.ptr, last.len);
	return true;
}

/* Zeros are left out, as the API does. Thoughts are beside the candidates. */
static void push_usage(struct buf *b, const struct knobs *k, long long candidates, long long thoughts)
{
	buf_printf(b, "{\"promptTokenCount\":%.0f", k->input_tokens);
	if (candidates)
		buf_printf(b, ",\"candidatesTokenCount\":%lld", candidates);
	if (thoughts)
		buf_printf(b, ",\"thoughtsTokenCount\":%lld", thoughts);
	if (k->cache_read > 0)
		buf_printf(b, ",\"cachedContentTokenCount\":%.0f", k->cache_read);
	buf_printf(b, ",\"totalTokenCount\":%lld}", (long long)k->input_tokens + candidates + thoughts);
}

/* parts: the elements; last: with the finish reason. */
static void push_chunk(struct reply *r, struct buf *out, const char *parts, long long candidates, long long thoughts,
		       bool last)
{
	buf_printf(out, "{\"candidates\":[{\"content\":{\"parts\":[%s],\"role\":\"model\"}", parts);
	if (last)
		buf_printf(out, ",\"finishReason\":\"%s\"", reply_stop_reason(r));
	buf_puts(out, ",\"index\":0}]");
	if (wants_usage(r)) {
		buf_puts(out, ",\"usageMetadata\":");
		push_usage(out, r->knobs, candidates, thoughts);
	}
	buf_printf(out, ",\"modelVersion\":\"%s\",\"responseId\":\"r-%06u\"}", r->model_escaped, r->sequence);
}

static void chunk(struct reply *r, const char *kind, const char *parts, long long candidates, long long thoughts,
		  bool last)
{
	struct buf doc;

	buf_init(&doc, 0);
	push_chunk(r, &doc, parts, candidates, thoughts, last);
	emit(r, NULL, kind, "%s", buf_cstr(&doc));
	buf_release(&doc);
}

static long long candidates_of(const struct knobs *k)
{
	return generated(k) > reasoned(k) ? (long long)(generated(k) - reasoned(k)) : 0;
}

static void stream(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0;
	char part[1024], text[256], arguments[ARGUMENTS_MAX];

	for (i = 0; i < k->reasoning && pace(r, token++); i++)
		chunk(r, "reasoning", "{\"text\":\"hm \",\"thought\":true}", 0, i + 1, false);
	for (i = 0; i < k->tokens && pace(r, token++); i++) {
		snprintf(part, sizeof(part), "{\"text\":\"%s\"}", token_text(r, i, text));
		chunk(r, "text", part, i + 1, (long long)k->reasoning, false);
	}
	/* arguments come whole */
	for (i = 0; i < k->tool && pace(r, token++); i++) {
		struct tool_words w = tool_words(r, i, "fn");

		snprintf(part, sizeof(part), "{\"functionCall\":{%s%s%s\"name\":\"%s\",\"args\":%s}}",
			 k->tool_ids > 0 ? "\"id\":\"" : "", k->tool_ids > 0 ? w.id : "", k->tool_ids > 0 ? "\"," : "",
			 w.name, arguments_text(r, i, false, arguments));
		chunk(r, "tool", part, (long long)k->tokens + i, (long long)k->reasoning, false);
	}
	chunk(r, NULL, "{\"text\":\"\"}", candidates_of(k), reasoned(k), true);
	flush_events(r);
}

static void document(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	struct buf parts;
	unsigned i;

	buf_init(&parts, 0);
	if (k->reasoning > 0)
		buf_puts(&parts, "{\"text\":\"hm\",\"thought\":true},");
	buf_puts(&parts, "{\"text\":\"");
	push_tokens(r, &parts);
	buf_puts(&parts, "\"}");
	for (i = 0; i < k->tool; i++)
		buf_printf(&parts, ",{\"functionCall\":{\"name\":\"%s\",\"args\":{\"n\":[0]}}}",
			   tool_words(r, i, "fn").name);
	push_chunk(r, out, buf_cstr(&parts), candidates_of(k), reasoned(k), true);
	buf_release(&parts);
}

static void error_document(struct reply *r, struct buf *out, const char *message)
{
	r->error = r->knobs->error_type[0] ? r->knobs->error_type
		   : r->status == 429	   ? "RESOURCE_EXHAUSTED"
					   : "INVALID_ARGUMENT";
	buf_printf(out, "{\"error\":{\"code\":%d,\"message\":\"%s\",\"status\":\"%s\"}}", r->status, message, r->error);
}

static void error_event(struct reply *r)
{
	r->error = r->knobs->error_type[0] ? r->knobs->error_type : "UNAVAILABLE";
	emit(r, NULL, NULL, "{\"error\":{\"code\":503,\"message\":\"on demand\",\"status\":\"%s\"}}", r->error);
}

static void usage(const struct reply *r, struct truth_usage *u)
{
	const struct knobs *k = r->knobs;

	u->cache_read = (int64_t)k->cache_read;
	u->cache_write = 0;
	u->input_total = (int64_t)k->input_tokens;
	u->input_uncached = u->input_total - u->cache_read;
	u->output_total = candidates_of(k) + reasoned(k);
	u->reasoning = reasoned(k) ? reasoned(k) : -1;
}

const struct dialect dialect_gemini = {
	.name = "gemini",
	.match = match,
	.messages = "contents",
	.model_in_path = true,
	.stream_in_path = true,
	.stop = "STOP",
	.stop_tool = "STOP",
	.stream = stream,
	.document = document,
	.error_document = error_document,
	.error_event = error_event,
	.usage = usage,
};
