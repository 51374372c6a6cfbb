/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OpenAI Responses: the same events by SSE and over a WebSocket. */

#include "server.h"

static bool match(struct sv path, struct request *r)
{
	(void)r;
	return sv_ends(path, SV("/responses"));
}

static void push_response(struct reply *r, struct buf *out, const char *status, const char *output, bool final)
{
	bool incomplete = !strcmp(status, "incomplete");

	buf_printf(
		out,
		"{\"id\":\"resp_%06u\",\"object\":\"response\",\"created_at\":1764400000,\"status\":\"%s\",\"model\":"
		"\"%s\",\"error\":null,",
		r->sequence, status, r->model_escaped);
	if (incomplete)
		buf_printf(out, "\"incomplete_details\":{\"reason\":\"%s\"},", r->knobs->stop);
	else
		buf_puts(out, "\"incomplete_details\":null,");
	buf_printf(out, "\"output\":%s,\"usage\":", output);
	if (final && wants_usage(r))
		push_openai_usage(out, r->knobs, "input", "output");
	else
		buf_puts(out, "null");
	buf_puts(out, "}");
}

static void response_event(struct reply *r, const char *type, const char *status, const char *output, bool final)
{
	struct buf doc;

	buf_init(&doc, 0);
	push_response(r, &doc, status, output, final);
	emit(r, type, NULL, "{\"type\":\"%s\",\"sequence_number\":0,\"response\":%s}", type, buf_cstr(&doc));
	buf_release(&doc);
}

static void item_event(struct reply *r, const char *type, unsigned index, const char *item)
{
	emit(r, type, NULL, "{\"type\":\"%s\",\"sequence_number\":1,\"output_index\":%u,\"item\":%s}", type, index,
	     item);
}

static void delta(struct reply *r, const char *type, const char *kind, unsigned index, const char *text)
{
	emit(r, type, kind,
	     "{\"type\":\"%s\",\"sequence_number\":2,\"item_id\":\"item_%02u\",\"output_index\":%u,\"content_index\":0,"
	     "\"delta\":\"%s\"}",
	     type, index, index, text);
}

static void stream_tools(struct reply *r, unsigned index, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char item[1024], piece[ARGUMENTS_MAX];

	for (t = 0; t < r->knobs->tool; t++, index++) {
		struct tool_words w = tool_words(r, t, "call");

		snprintf(item, sizeof(item),
			 "{\"type\":\"function_call\",\"id\":\"fc_%02u\",\"call_id\":\"%s\",\"name\":\"%s\","
			 "\"arguments\":\"\"}",
			 t + 1, w.id, w.name);
		item_event(r, "response.output_item.added", index, item);
		for (i = 0; i < pieces && pace(r, token++); i++)
			delta(r, "response.function_call_arguments.delta", "tool", index,
			      argument_piece(r, t, i, pieces, piece));
		/* Clients take what was said from here, not from the deltas. */
		snprintf(item, sizeof(item),
			 "{\"type\":\"function_call\",\"id\":\"fc_%02u\",\"call_id\":\"%s\",\"name\":\"%s\","
			 "\"arguments\":\"%s\"}",
			 t + 1, w.id, w.name, arguments_text(r, t, true, piece));
		item_event(r, "response.output_item.done", index, item);
	}
}

/* All items that are said. */
static void push_output(struct reply *r, struct buf *out)
{
	char arguments[ARGUMENTS_MAX];
	unsigned i;

	buf_puts(out,
		 "[{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"");
	push_tokens(r, out);
	buf_puts(out, "\"}]}");
	for (i = 0; i < r->knobs->tool; i++) {
		struct tool_words w = tool_words(r, i, "call");

		buf_printf(out, ",{\"type\":\"function_call\",\"call_id\":\"%s\",\"name\":\"%s\",\"arguments\":\"%s\"}",
			   w.id, w.name, arguments_text(r, i, true, arguments));
	}
	buf_puts(out, "]");
}

/* The last event has all of it once more. */
static void end_stream(struct reply *r)
{
	const bool cut = r->knobs->stop[0];
	size_t said = r->text.len;
	struct buf output;

	buf_init(&output, 0);
	push_output(r, &output);
	r->text.len = said;
	response_event(r, cut ? "response.incomplete" : "response.completed", cut ? "incomplete" : "completed",
		       buf_cstr(&output), true);
	buf_release(&output);
	flush_events(r);
}

static void stream(struct reply *r)
{
	static const char message[] = "{\"type\":\"message\",\"id\":\"msg_01\",\"role\":\"assistant\",\"content\":[]}";
	static const char thought[] = "{\"type\":\"reasoning\",\"id\":\"rs_01\",\"summary\":[]}";
	const struct knobs *k = r->knobs;
	unsigned i, token = 0, index = 0;
	char text[256];

	response_event(r, "response.created", "in_progress", "[]", false);
	response_event(r, "response.in_progress", "in_progress", "[]", false);
	if (k->reasoning > 0) {
		item_event(r, "response.output_item.added", index, thought);
		for (i = 0; i < k->reasoning && pace(r, token++); i++)
			delta(r, "response.reasoning_summary_text.delta", "reasoning", index, "hm ");
		item_event(r, "response.output_item.done", index++, thought);
	}
	item_event(r, "response.output_item.added", index, message);
	for (i = 0; i < k->tokens && pace(r, token++); i++)
		delta(r, "response.output_text.delta", "text", index, token_text(r, i, text));
	item_event(r, "response.output_item.done", index++, message);
	stream_tools(r, index, token);
	end_stream(r);
}

static void document(struct reply *r, struct buf *out)
{
	struct buf output;

	buf_init(&output, 0);
	push_output(r, &output);
	push_response(r, out, r->knobs->stop[0] ? "incomplete" : "completed", buf_cstr(&output), true);
	buf_release(&output);
}

static void error_event(struct reply *r)
{
	if (r->framing == FRAMING_MESSAGES && r->status < 400)
		r->status = 500;
	if (r->framing == FRAMING_MESSAGES)
		emit(r, NULL, NULL,
		     "{\"type\":\"error\",\"status\":%d,\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"message\":\"on "
		     "demand\"}}",
		     r->status, r->error, r->error);
	else
		emit(r, "error", NULL,
		     "{\"type\":\"error\",\"code\":\"%s\",\"message\":\"on "
		     "demand\",\"param\":null,\"sequence_number\":9}",
		     r->error);
}

const struct dialect dialect_responses = {
	.name = "openai.responses",
	.match = match,
	.messages = "input",
	.stop = "completed",
	.stop_tool = "completed",
	.stream = stream,
	.document = document,
	.error_document = openai_error_document,
	.error_event = error_event,
	.usage = openai_truth_usage,
};
