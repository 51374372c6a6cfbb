/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>

#include "flow/proto/decode.h"
#include "jsonscan.h"
#include "text.h"

struct request {
	const struct dialect *dialect;
	struct lost *lost;
	struct decode *decode;
	struct jsonscan *scan;
	struct request_facts facts;
	bool system_ended; /* Anthropic: the system prompt was read to its end */
	int64_t system_bytes;
	int64_t message_bytes; /* text of the message at hand */
	bool message_is_system;
	bool has_tools;
	bool codex; /* has client_metadata */
	char cache_key[REQUEST_NAME_BYTES];
};

/* --- fields
 * ----------------------------------------------------------------------------------------------------------- */

static bool key_is(const struct jsonscan_value *v, unsigned level, struct sv key)
{
	return level < v->depth && v->path[level].key.ptr && sv_eq(v->path[level].key, key);
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

/* metadata.user_id of Claude Code: a JSON text with session_id, in older versions user_…_session_UUID. Else it names a
 * user, which is nobody's business. */
static void session_of_user_id(struct request *r, struct sv user_id)
{
	static const char mark[] = "_session_";
	struct sv id = text_json_member(user_id, "session_id");
	const char *at;

	if (!id.len && user_id.len) {
		at = memmem(user_id.ptr, user_id.len, mark, sizeof(mark) - 1);
		if (at)
			id = (struct sv){at + sizeof(mark) - 1,
					 user_id.len - (size_t)(at + sizeof(mark) - 1 - user_id.ptr)};
	}
	if (id.len)
		text_copy(r->facts.session, sizeof(r->facts.session), id);
}

static void top_string(struct request *r, const struct jsonscan_value *v)
{
	struct request_facts *f = &r->facts;

	if (key_is(v, 0, SV("model"))) {
		text_copy(f->model, sizeof(f->model), v->text);
	} else if (key_is(v, 0, SV("input"))) {
		f->counts.messages = 1;
		f->marks = true;
	} else if (key_is(v, 0, SV("system")) || key_is(v, 0, SV("instructions"))) {
		r->system_bytes += (int64_t)v->bytes;
		r->system_ended = true;
	} else if (key_is(v, 0, SV("reasoning_effort"))) {
		f->counts.thinking = !sv_eq(v->text, SV("none"));
	} else if (key_is(v, 0, SV("prompt_cache_key"))) {
		text_copy(r->cache_key, sizeof(r->cache_key), v->text);
	} else if (key_is(v, 0, SV("previous_response_id"))) {
		f->marks = true;
	}
}

static void top_value(struct request *r, const struct jsonscan_value *v)
{
	struct request_facts *f = &r->facts;

	switch (v->type) {
	case JSON_STRING:
		top_string(r, v);
		break;
	case JSON_NUMBER:
		if (key_is(v, 0, SV("max_tokens")) || key_is(v, 0, SV("max_completion_tokens")) ||
		    key_is(v, 0, SV("max_output_tokens")))
			f->counts.max_tokens = count_of(v->text);
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		if (key_is(v, 0, SV("stream")))
			f->stream = v->type == JSON_TRUE;
		else if (key_is(v, 0, SV("generate")))
			f->no_generate = v->type == JSON_FALSE;
		break;
	case JSON_ARRAY:
		if (key_is(v, 0, SV("messages")) || key_is(v, 0, SV("input")))
			f->marks = true;
		break;
	case JSON_OBJECT:
		if (key_is(v, 0, SV("client_metadata")))
			r->codex = true;
		else if (key_is(v, 0, SV("reasoning")))
			f->counts.thinking = 1;
		break;
	default:
		break;
	}
}

/* Strings of objects at the top: thinking.type, reasoning.effort, metadata.user_id … */
static void member_string(struct request *r, const struct jsonscan_value *v)
{
	struct request_facts *f = &r->facts;

	if (key_is(v, 0, SV("thinking")) && key_is(v, 1, SV("type"))) {
		f->counts.thinking = !sv_eq(v->text, SV("disabled"));
	} else if (key_is(v, 0, SV("reasoning")) && key_is(v, 1, SV("effort"))) {
		f->counts.thinking = !sv_eq(v->text, SV("none"));
	} else if (key_is(v, 0, SV("metadata")) && key_is(v, 1, SV("user_id"))) {
		session_of_user_id(r, v->text);
	} else if (key_is(v, 0, SV("client_metadata")) && key_is(v, 1, SV("session_id"))) {
		text_copy(f->session, sizeof(f->session), v->text);
	} else if (key_is(v, 0, SV("client_metadata")) && key_is(v, 1, SV("x-codex-turn-metadata"))) {
		text_copy(f->kind, sizeof(f->kind), text_json_member(v->text, "request_kind"));
	} else if ((key_is(v, 0, SV("response_format")) || key_is(v, 0, SV("output_format"))) &&
		   key_is(v, 1, SV("type"))) {
		f->json_schema = sv_starts(v->text, SV("json_"));
	}
}

static bool is_message_list(const struct jsonscan_value *v)
{
	return key_is(v, 0, SV("messages")) || key_is(v, 0, SV("input"));
}

/* Text of system prompts: system[].text, and of messages with a system role, whose role may come last. */
static void deep_string(struct request *r, const struct jsonscan_value *v)
{
	if (v->depth == 3 && key_is(v, 0, SV("system")) && key_is(v, 2, SV("text"))) {
		r->system_bytes += (int64_t)v->bytes;
	} else if (v->depth == 3 && (key_is(v, 0, SV("output_config")) || key_is(v, 0, SV("text"))) &&
		   key_is(v, 1, SV("format")) && key_is(v, 2, SV("type"))) {
		r->facts.json_schema = sv_starts(v->text, SV("json_"));
	} else if (v->depth == 3 && is_message_list(v) && key_is(v, 2, SV("role"))) {
		r->message_is_system = sv_eq(v->text, SV("system")) || sv_eq(v->text, SV("developer"));
	} else if (is_message_list(v) && key_is(v, 2, SV("content")) &&
		   (v->depth == 3 || (v->depth == 5 && key_is(v, 4, SV("text"))))) {
		r->message_bytes += (int64_t)v->bytes;
	}
}

static void on_value(void *ctx, const struct jsonscan_value *v)
{
	struct request *r = ctx;

	if (v->depth == 1) {
		top_value(r, v);
	} else if (v->depth == 2 && v->type == JSON_OBJECT && is_message_list(v)) {
		r->message_bytes = 0;
		r->message_is_system = false;
	} else if (v->depth == 2 && v->type == JSON_STRING) {
		member_string(r, v);
	} else if (v->depth >= 3 && v->type == JSON_STRING) {
		deep_string(r, v);
	}
}

static void on_end(void *ctx, const struct jsonscan_value *v)
{
	struct request *r = ctx;

	if (v->depth == 1 && v->type == JSON_ARRAY) {
		if (is_message_list(v)) {
			r->facts.counts.messages = (int64_t)v->bytes;
		} else if (key_is(v, 0, SV("tools"))) {
			r->facts.counts.tools = (int64_t)v->bytes;
			r->has_tools = true;
		} else if (key_is(v, 0, SV("system"))) {
			r->system_ended = true;
		}
	} else if (v->depth == 2 && v->type == JSON_OBJECT && is_message_list(v) && r->message_is_system &&
		   r->dialect != &dialect_anthropic) {
		r->system_bytes += r->message_bytes;
	}
}

/* --- body
 * ------------------------------------------------------------------------------------------------------------- */

static void on_decoded(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct request *r = ctx;

	(void)at;
	jsonscan_push(r->scan, ptr, len);
}

struct request *request_new(const struct dialect *d, struct sv content_encoding, struct lost *lost)
{
	const struct jsonscan_sink scan_sink = {.on_value = on_value, .on_end = on_end};
	struct decode_sink decode_sink = {.on_bytes = on_decoded};
	struct jsonscan_sink sink = scan_sink;
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->dialect = d;
	r->lost = lost;
	r->facts.counts = (struct call_request){-1, -1, -1, -1, -1};
	r->facts.stream = -1;
	sink.ctx = r;
	decode_sink.ctx = r;
	r->scan = jsonscan_new(&sink);
	r->decode = r->scan ? decode_new(content_encoding, &decode_sink) : NULL;
	if (!r->decode) {
		request_free(r);
		return NULL;
	}
	return r;
}

void request_free(struct request *r)
{
	if (!r)
		return;
	decode_free(r->decode);
	jsonscan_free(r->scan);
	free(r);
}

static void note_decode_failure(struct request *r)
{
	if (r->facts.undecoded[0] || r->facts.truncated || r->facts.lossy)
		return; /* after a gap a compressed body is cut, not undecodable */
	text_copy(r->facts.undecoded, sizeof(r->facts.undecoded), sv_of(decode_undecoded(r->decode)));
	if (!r->facts.undecoded[0])
		snprintf(r->facts.undecoded, sizeof(r->facts.undecoded), "request body");
	r->lost->n[LOST_DECODE_ERRORS]++;
}

void request_push(struct request *r, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (!r->facts.lossy)
		r->facts.hash = text_hash(r->facts.hash, ptr, len);
	if (decode_push(r->decode, ptr, len, at) != DECODE_OK)
		note_decode_failure(r);
}

void request_gap(struct request *r, uint64_t len, bool capped)
{
	r->facts.truncated |= capped;
	r->facts.lossy |= !capped;
	/* Bodies of which different parts are missing cannot be told to be the same. */
	r->facts.hash = r->facts.lossy ? 0 : text_hash(r->facts.hash, &len, sizeof(len));
	decode_gap(r->decode);
	jsonscan_gap(r->scan);
}

void request_report(struct request *r, bool ended, struct request_facts *out)
{
	struct request_facts *f = &r->facts;

	f->complete = ended && jsonscan_done(r->scan) && !f->truncated && !f->lossy && !f->undecoded[0];
	*out = *f;
	if (f->complete || (r->dialect == &dialect_anthropic && r->system_ended))
		out->counts.system_bytes = r->system_bytes;
	if (!out->session[0] && r->codex)
		text_copy(out->session, sizeof(out->session), sv_of(r->cache_key));
	if (!f->complete)
		return;
	if (!r->has_tools)
		out->counts.tools = 0;
	if (out->stream < 0)
		out->stream = 0;
	/* Anthropic's default; OpenAI's depends on the model. */
	if (out->counts.thinking < 0 && r->dialect == &dialect_anthropic)
		out->counts.thinking = 0;
}
