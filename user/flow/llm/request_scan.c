/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "request_scan.h"

#include "base/err.h"
#include "text.h"

static bool key_in(const struct jsonscan_value *v, unsigned level, const struct sv *keys, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (jsonscan_key_is(v, level, keys[i]))
			return true;
	}
	return false;
}

static int64_t count_of(struct sv number)
{
	int64_t n = 0;

	if (!number.len || number.len > 15)
		return -1;
	for (size_t i = 0; i < number.len; i++) {
		if (number.ptr[i] < '0' || number.ptr[i] > '9')
			return -1;
		n = n * 10 + (number.ptr[i] - '0');
	}
	return n;
}

static bool is_gemini(const struct request_scan *s)
{
	return s->dialect && s->dialect->request == DIALECT_REQUEST_GEMINI;
}

/* metadata.user_id of Claude Code: a JSON text with session_id, in older versions user_…_session_UUID. Else it names a
 * user, which is nobody's business. */
static void session_of_user_id(struct request_facts *f, struct sv user_id)
{
	struct sv id = text_json_member(user_id, "session_id");
	static const char mark[] = "_session_";
	const char *at;

	if (!id.len && user_id.len) {
		at = memmem(user_id.ptr, user_id.len, mark, sizeof(mark) - 1);
		if (at)
			id = (struct sv){at + sizeof(mark) - 1,
					 user_id.len - (size_t)(at + sizeof(mark) - 1 - user_id.ptr)};
	}
	if (id.len)
		text_copy(f->session, sizeof(f->session), id);
}

/* Of Gemini Live; `request` is Code Assist's. What is inside of them is what others have at the top. */
static const struct sv live_members[] = {SV("setup"), SV("clientContent"), SV("realtimeInput"), SV("toolResponse")};

/* --- marks ------------------------------------------------------------------------------------------------------- */

/* Members of the top-level object, by name and kind. */
static const struct mark_row {
	struct sv key;
	unsigned types; /* 1 << enum json_type */
	unsigned mark;
} mark_rows[] = {
	{SV("messages"), 1 << JSON_ARRAY, MARK_MESSAGES},
	{SV("contents"), 1 << JSON_ARRAY, MARK_CONTENTS},
	{SV("model"), 1 << JSON_STRING, MARK_MODEL},
	{SV("input"), 1 << JSON_ARRAY | 1 << JSON_STRING | 1 << JSON_OBJECT, MARK_INPUT},
	{SV("instructions"), 1 << JSON_STRING, MARK_RESPONSES},
	{SV("previous_response_id"), 1 << JSON_STRING, MARK_RESPONSES},
	{SV("prompt_cache_key"), 1 << JSON_STRING, MARK_RESPONSES},
	{SV("include"), 1 << JSON_ARRAY, MARK_RESPONSES},
	{SV("prompt"), 1 << JSON_ARRAY | 1 << JSON_STRING, MARK_PROMPT},
	{SV("input_prefix"), 1 << JSON_STRING, MARK_PROMPT},
	{SV("inputs"), 1 << JSON_STRING | 1 << JSON_ARRAY, MARK_INPUTS},
	{SV("system"), 1 << JSON_STRING | 1 << JSON_ARRAY, MARK_SYSTEM},
	{SV("anthropic_version"), 1 << JSON_STRING, MARK_ANTHROPIC},
	{SV("max_tokens"), 1 << JSON_NUMBER, MARK_LIMIT},
	{SV("max_completion_tokens"), 1 << JSON_NUMBER, MARK_LIMIT},
	{SV("max_output_tokens"), 1 << JSON_NUMBER, MARK_LIMIT},
	{SV("temperature"), 1 << JSON_NUMBER, MARK_LIMIT},
	{SV("stream"), 1 << JSON_TRUE | 1 << JSON_FALSE, MARK_LIMIT},
	{SV("tools"), 1 << JSON_ARRAY, MARK_LIMIT},
	{SV("jsonrpc"), 1 << JSON_STRING, MARK_JSONRPC},
};

static void mark(struct request_scan *s, const struct jsonscan_value *v)
{
	for (size_t i = 0; i < ARRAY_SIZE(mark_rows); i++) {
		if (mark_rows[i].types >> v->type & 1 && jsonscan_key_is(v, 0, mark_rows[i].key))
			s->facts.marks |= mark_rows[i].mark;
	}
}

/* --- members of the top-level object ----------------------------------------------------------------------------- */

static void top_string(struct request_scan *s, const struct jsonscan_value *v)
{
	static const struct sv efforts[] = {SV("reasoning_effort"), SV("think"), SV("reasoning")};
	static const struct sv systems[] = {SV("system"), SV("instructions"), SV("system_instruction"),
					    SV("system_prompt")};
	struct request_facts *f = &s->facts;

	if (jsonscan_key_is(v, 0, SV("model"))) {
		text_copy(f->model, sizeof(f->model), v->text);
	} else if (jsonscan_key_is(v, 0, SV("input"))) {
		f->counts.messages = 1;
	} else if (key_in(v, 0, systems, ARRAY_SIZE(systems))) {
		s->system_bytes += (int64_t)v->bytes;
		s->system_ended = true;
	} else if (key_in(v, 0, efforts, ARRAY_SIZE(efforts))) {
		f->counts.thinking = !sv_eq(v->text, SV("none")) && !sv_eq(v->text, SV("off"));
	} else if (jsonscan_key_is(v, 0, SV("text")) && is_gemini(s)) {
		f->turn_ended = true; /* Live: realtimeInput.text */
	} else if (jsonscan_key_is(v, 0, SV("prompt_cache_key"))) {
		text_copy(s->cache_key, sizeof(s->cache_key), v->text);
	} else if (jsonscan_key_is(v, 0, SV("type"))) {
		text_copy(f->type, sizeof(f->type), v->text);
	} else if (jsonscan_key_is(v, 0, SV("stream_id"))) {
		text_copy(f->lane, sizeof(f->lane), v->text);
	} else if (jsonscan_key_is(v, 0, SV("format"))) {
		f->json_schema = sv_eq(v->text, SV("json")); /* Ollama */
	}
}

static void top_number(struct request_scan *s, const struct jsonscan_value *v)
{
	static const struct sv limits[] = {SV("max_tokens"), SV("max_completion_tokens"), SV("max_output_tokens"),
					   SV("n_predict")};

	if (key_in(v, 0, limits, ARRAY_SIZE(limits)))
		s->facts.counts.max_tokens = count_of(v->text);
}

static void top_bool(struct request_scan *s, const struct jsonscan_value *v)
{
	struct request_facts *f = &s->facts;

	if (jsonscan_key_is(v, 0, SV("stream")))
		f->stream = v->type == JSON_TRUE;
	else if (jsonscan_key_is(v, 0, SV("turnComplete")) || jsonscan_key_is(v, 0, SV("audioStreamEnd")))
		f->turn_ended = v->type == JSON_TRUE;
	else if (jsonscan_key_is(v, 0, SV("generate")))
		f->no_generate = v->type == JSON_FALSE;
	else if (jsonscan_key_is(v, 0, SV("think")))
		f->counts.thinking = v->type == JSON_TRUE;
}

/* Live's messages, by the name of their one member. */
static void live_member(struct request_scan *s, const struct jsonscan_value *v)
{
	if (is_gemini(s) && key_in(v, 0, live_members, ARRAY_SIZE(live_members)))
		text_copy(s->facts.type, sizeof(s->facts.type), v->path[0].key);
	else if (is_gemini(s) && jsonscan_key_is(v, 0, SV("activityEnd")))
		s->facts.turn_ended = true;
}

static void top_value(struct request_scan *s, const struct jsonscan_value *v)
{
	mark(s, v);
	switch (v->type) {
	case JSON_STRING:
		top_string(s, v);
		break;
	case JSON_NUMBER:
		top_number(s, v);
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		top_bool(s, v);
		break;
	case JSON_OBJECT:
		if (jsonscan_key_is(v, 0, SV("client_metadata")))
			s->codex = true;
		else if (jsonscan_key_is(v, 0, SV("reasoning")))
			s->facts.counts.thinking = 1;
		else if (jsonscan_key_is(v, 0, SV("format")))
			s->facts.json_schema = true; /* Ollama */
		else
			live_member(s, v);
		break;
	default:
		break;
	}
}

/* --- one level deeper -------------------------------------------------------------------------------------------- */

/* thinking.type, reasoning.effort, metadata.user_id … */
static void member_string(struct request_scan *s, const struct jsonscan_value *v)
{
	struct request_facts *f = &s->facts;

	if (jsonscan_key_is(v, 0, SV("thinking")) && jsonscan_key_is(v, 1, SV("type"))) {
		f->counts.thinking = !sv_eq(v->text, SV("disabled"));
	} else if (jsonscan_key_is(v, 0, SV("reasoning")) && jsonscan_key_is(v, 1, SV("effort"))) {
		f->counts.thinking = !sv_eq(v->text, SV("none"));
	} else if (jsonscan_key_is(v, 0, SV("metadata")) && jsonscan_key_is(v, 1, SV("user_id"))) {
		session_of_user_id(f, v->text);
	} else if (jsonscan_key_is(v, 0, SV("client_metadata")) && jsonscan_key_is(v, 1, SV("session_id"))) {
		text_copy(f->session, sizeof(f->session), v->text);
	} else if (jsonscan_key_is(v, 0, SV("client_metadata")) && jsonscan_key_is(v, 1, SV("x-codex-turn-metadata"))) {
		text_copy(f->kind, sizeof(f->kind), text_json_member(v->text, "request_kind"));
		text_copy(f->turn, sizeof(f->turn), text_json_member(v->text, "turn_id"));
	} else if ((jsonscan_key_is(v, 0, SV("response_format")) || jsonscan_key_is(v, 0, SV("output_format"))) &&
		   jsonscan_key_is(v, 1, SV("type"))) {
		f->json_schema = sv_starts(v->text, SV("json_"));
	} else if (jsonscan_key_is(v, 0, SV("generationConfig")) && jsonscan_key_is(v, 1, SV("responseMimeType"))) {
		f->json_schema = sv_eq(v->text, SV("application/json"));
	} else if (v->path[0].key.ptr == NULL && jsonscan_key_is(v, 1, SV("jsonrpc"))) {
		f->marks |= MARK_JSONRPC; /* a batch */
	}
}

static void member_number(struct request_scan *s, const struct jsonscan_value *v)
{
	static const struct {
		struct sv object, key;
	} limits[] = {
		{SV("generationConfig"), SV("maxOutputTokens")},    /* Gemini */
		{SV("inferenceConfig"), SV("maxTokens")},	    /* Converse */
		{SV("options"), SV("num_predict")},		    /* Ollama; -1: without a limit */
		{SV("parameters"), SV("max_new_tokens")},	    /* TGI */
		{SV("generation_config"), SV("max_output_tokens")}, /* Interactions */
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (jsonscan_key_is(v, 0, limits[i].object) && jsonscan_key_is(v, 1, limits[i].key))
			s->facts.counts.max_tokens = count_of(v->text);
	}
}

static bool is_message_list(const struct jsonscan_value *v)
{
	return jsonscan_key_is(v, 0, SV("messages")) || jsonscan_key_is(v, 0, SV("input"));
}

static void member_value(struct request_scan *s, const struct jsonscan_value *v)
{
	if (v->type == JSON_OBJECT && is_message_list(v)) {
		s->message_bytes = 0;
		s->message_is_system = false;
	} else if (v->type == JSON_OBJECT && jsonscan_key_is(v, 0, SV("tools"))) {
		s->tool_is_list = false;
	} else if (v->type == JSON_STRING) {
		member_string(s, v);
	} else if (v->type == JSON_NUMBER) {
		member_number(s, v);
	}
}

/* --- deeper ------------------------------------------------------------------------------------------------------ */

static bool is_gemini_system(const struct jsonscan_value *v)
{
	return jsonscan_key_is(v, 0, SV("systemInstruction")) || jsonscan_key_is(v, 0, SV("system_instruction"));
}

/* Text of system prompts: system[].text, and of messages with a system role, whose role may come last. */
static void deep_string(struct request_scan *s, const struct jsonscan_value *v)
{
	if (v->depth == 3 && jsonscan_key_is(v, 0, SV("system")) && jsonscan_key_is(v, 2, SV("text"))) {
		s->system_bytes += (int64_t)v->bytes;
	} else if (v->depth == 4 && is_gemini_system(v) && jsonscan_key_is(v, 1, SV("parts")) &&
		   jsonscan_key_is(v, 3, SV("text"))) {
		s->system_bytes += (int64_t)v->bytes;
	} else if (v->depth == 3 && (jsonscan_key_is(v, 0, SV("output_config")) || jsonscan_key_is(v, 0, SV("text"))) &&
		   jsonscan_key_is(v, 1, SV("format")) && jsonscan_key_is(v, 2, SV("type"))) {
		s->facts.json_schema = sv_starts(v->text, SV("json_"));
	} else if (v->depth == 3 && is_message_list(v) && jsonscan_key_is(v, 2, SV("role"))) {
		s->facts.marks |= MARK_ROLE;
		s->message_is_system = sv_eq(v->text, SV("system")) || sv_eq(v->text, SV("developer"));
	} else if (is_message_list(v) && jsonscan_key_is(v, 2, SV("content")) &&
		   (v->depth == 3 || (v->depth == 5 && jsonscan_key_is(v, 4, SV("text"))))) {
		s->message_bytes += (int64_t)v->bytes;
	}
}

/* generationConfig.thinkingConfig.{includeThoughts,thinkingBudget,thinkingLevel} */
static void thinking_config(struct request_scan *s, const struct jsonscan_value *v)
{
	if (v->depth != 3 || !jsonscan_key_is(v, 0, SV("generationConfig")) ||
	    !jsonscan_key_is(v, 1, SV("thinkingConfig")))
		return;
	if (jsonscan_key_is(v, 2, SV("thinkingBudget")) && v->type == JSON_NUMBER)
		s->facts.counts.thinking = !sv_eq(v->text, SV("0"));
	else if (s->facts.counts.thinking < 0 && (v->type == JSON_TRUE || jsonscan_key_is(v, 2, SV("thinkingLevel"))))
		s->facts.counts.thinking = 1;
}

static void deep_value(struct request_scan *s, const struct jsonscan_value *v)
{
	thinking_config(s, v);
	if (v->type == JSON_STRING)
		deep_string(s, v);
	else if (v->depth == 3 && v->type == JSON_ARRAY && jsonscan_key_is(v, 0, SV("contents")) &&
		 jsonscan_key_is(v, 2, SV("parts")))
		s->facts.marks |= MARK_PARTS;
	else if (v->depth == 3 && v->type == JSON_OBJECT && jsonscan_key_is(v, 0, SV("additionalModelRequestFields")))
		s->facts.counts.thinking = jsonscan_key_is(v, 1, SV("thinking")) ? 1 : s->facts.counts.thinking;
}

/* --- scan -------------------------------------------------------------------------------------------------------- */

/* Code Assist keeps the request in a member of that name, and the model beside it. */
static bool unwrap(const struct request_scan *s, const struct jsonscan_value *v, struct jsonscan_value *out)
{
	if (!is_gemini(s) || v->depth < 2 ||
	    (!jsonscan_key_is(v, 0, SV("request")) && !key_in(v, 0, live_members, ARRAY_SIZE(live_members))))
		return false;
	*out = *v;
	out->path++;
	out->depth--;
	return true;
}

static void on_value(void *ctx, const struct jsonscan_value *v)
{
	struct request_scan *s = ctx;
	struct jsonscan_value inner;

	if (unwrap(s, v, &inner)) {
		v = &inner;
		if (v->depth == 1 && v->type == JSON_STRING && jsonscan_key_is(v, 0, SV("session_id")))
			text_copy(s->facts.session, sizeof(s->facts.session), v->text);
	}
	suffix_value(&s->suffix, v);
	if (v->depth == 1)
		top_value(s, v);
	else if (v->depth == 2)
		member_value(s, v);
	else if (v->depth >= 3)
		deep_value(s, v);
}

/* Gemini's tools are lists of declarations; one without counts as one. */
static void gemini_tool_end(struct request_scan *s, const struct jsonscan_value *v)
{
	bool list = v->depth == 3 && (jsonscan_key_is(v, 2, SV("functionDeclarations")) ||
				      jsonscan_key_is(v, 2, SV("function_declarations")));

	if (list)
		s->declarations += (int64_t)v->bytes;
	else if (v->depth == 2 && !s->tool_is_list)
		s->declarations++;
	s->tool_is_list |= list;
}

static void on_end(void *ctx, const struct jsonscan_value *v)
{
	struct request_scan *s = ctx;
	struct jsonscan_value inner;

	if (unwrap(s, v, &inner))
		v = &inner;
	suffix_end(&s->suffix, v);
	if (v->depth == 1 && v->type == JSON_ARRAY) {
		s->has_tools |= jsonscan_key_is(v, 0, SV("tools"));
		if (is_message_list(v) || jsonscan_key_is(v, 0, SV("contents")) || jsonscan_key_is(v, 0, SV("turns")))
			s->facts.counts.messages = (int64_t)v->bytes;
		else if (jsonscan_key_is(v, 0, SV("tools")))
			s->facts.counts.tools = is_gemini(s) ? s->declarations : (int64_t)v->bytes;
		else if (jsonscan_key_is(v, 0, SV("system")))
			s->system_ended = true;
	} else if (v->depth == 1 && is_gemini_system(v)) {
		s->system_ended = true;
	} else if (v->depth >= 2 && is_gemini(s) && jsonscan_key_is(v, 0, SV("tools"))) {
		gemini_tool_end(s, v);
	} else if (v->depth == 2 && v->type == JSON_ARRAY && jsonscan_key_is(v, 0, SV("toolConfig")) &&
		   jsonscan_key_is(v, 1, SV("tools"))) {
		s->facts.counts.tools = (int64_t)v->bytes; /* Converse */
		s->has_tools = true;
	} else if (v->depth == 2 && v->type == JSON_OBJECT && is_message_list(v) && s->message_is_system) {
		s->message_system_bytes += s->message_bytes;
	}
}

void request_scan_init(struct request_scan *s, const struct dialect *d)
{
	*s = (struct request_scan){.dialect = d};
	s->facts.counts = (struct call_request){-1, -1, -1, -1, -1};
	s->facts.stream = -1;
}

void request_scan_release(struct request_scan *s)
{
	suffix_release(&s->suffix);
}

struct jsonscan_sink request_scan_sink(struct request_scan *s)
{
	return (struct jsonscan_sink){.ctx = s, .on_value = on_value, .on_end = on_end};
}
