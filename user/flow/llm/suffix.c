/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "suffix.h"

#include <stdlib.h>

#include "base/err.h"
#include "exchange.h"
#include "text.h"

#define HASHED_TEXT_BYTES 256 /* of a system prompt or message: what follows may hold the date */
#define HASHED_TOOLS	  4   /* later ones may come and go (MCP servers) */

static void drop_results(struct suffix *s, size_t from)
{
	while (s->result_count > from) {
		struct tool_result *r = &s->results[--s->result_count];

		free(r->id);
		free(r->name);
	}
}

void suffix_release(struct suffix *s)
{
	drop_results(s, 0);
	free(s->results);
	*s = (struct suffix){0};
}

static uint64_t hash_of(struct sv text)
{
	return text_hash(0, text.ptr, text.len < HASHED_TEXT_BYTES ? text.len : HASHED_TEXT_BYTES);
}

static bool is_list(const struct jsonscan_value *v)
{
	return jsonscan_key_is(v, 0, SV("messages")) || jsonscan_key_is(v, 0, SV("input")) ||
	       jsonscan_key_is(v, 0, SV("contents"));
}

/* --- results ----------------------------------------------------------------------------------------------------- */

/* The result at hand: the block's, else the item's; made when there is none yet. NULL: too many, or no memory. */
static struct tool_result *result_at_hand(struct suffix *s, bool of_block)
{
	struct tool_result *more;

	if (of_block ? s->item.block_is_result : s->item.has_result)
		return s->result_count ? &s->results[s->result_count - 1] : NULL;
	if (s->result_count == CALL_RESULTS_MAX)
		return NULL;
	more = realloc(s->results, (s->result_count + 1) * sizeof(*more));
	if (!more) {
		s->no_memory = true;
		return NULL;
	}
	s->results = more;
	s->item.has_result = true;
	s->item.own_result = !of_block;
	s->item.block_is_result = of_block;
	more += s->result_count++;
	*more = (struct tool_result){.bytes = UNKNOWN_COUNT, .is_error = -1};
	return more;
}

static void set_text(struct suffix *s, bool of_block, bool name, struct sv text)
{
	struct tool_result *r = result_at_hand(s, of_block);
	char **field = !r ? NULL : name ? &r->name : &r->id;

	if (!field || *field || !text.len)
		return;
	*field = text_dup(text, EXCHANGE_ID_MAX);
	s->no_memory |= !*field;
}

static void set_error(struct suffix *s, bool is_error)
{
	struct tool_result *r = result_at_hand(s, true);

	if (r)
		r->is_error = is_error;
}

/* --- text -------------------------------------------------------------------------------------------------------- */

/* What clients write in the person's place begins with one of these. */
static bool is_notice(struct sv text)
{
	static const struct sv marks[] = {
		SV("<system-reminder>"),   SV("<task-notification"), SV("<environment_context>"),
		SV("<user_instructions>"), SV("<turn_aborted>"),
	};

	while (text.len && (*text.ptr == ' ' || *text.ptr == '\n' || *text.ptr == '\t'))
		text.ptr++, text.len--;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (sv_starts(text, marks[i]))
			return true;
	return false;
}

static void item_text(struct suffix *s, const struct jsonscan_value *v)
{
	if (!v->text.len)
		return;
	if (is_notice(v->text)) {
		s->item.notice = true;
	} else {
		s->item.human = true;
		if (s->item.mark_count < CALL_OPENINGS)
			s->item.marks[s->item.mark_count++] = text_mark(v->text, v->bytes);
	}
	if (!s->item.text_hash)
		s->item.text_hash = hash_of(v->text);
}

/* --- an item's own members: messages[i].KEY ---------------------------------------------------------------------- */

static enum suffix_role role_of(struct sv role)
{
	if (sv_eq(role, SV("assistant")) || sv_eq(role, SV("model")) || sv_eq(role, SV("CHATBOT")))
		return SUFFIX_ROLE_MODEL;
	if (sv_eq(role, SV("tool")) || sv_eq(role, SV("function")))
		return SUFFIX_ROLE_TOOL;
	if (sv_eq(role, SV("system")) || sv_eq(role, SV("developer")))
		return SUFFIX_ROLE_SYSTEM;
	return SUFFIX_ROLE_USER;
}

/* Items of the Responses API: a call and its output share call_id; all else but messages is the model's. */
static void item_type(struct suffix *s, struct sv type)
{
	if (sv_ends(type, SV("_call_output")))
		s->item.role = SUFFIX_ROLE_TOOL;
	else if (sv_ends(type, SV("_call")) || sv_eq(type, SV("reasoning")))
		s->item.role = SUFFIX_ROLE_MODEL;
}

static void item_string(struct suffix *s, const struct jsonscan_value *v)
{
	if (jsonscan_key_is(v, 2, SV("role"))) {
		s->item.role = role_of(v->text);
	} else if (jsonscan_key_is(v, 2, SV("type"))) {
		item_type(s, v->text);
	} else if (jsonscan_key_is(v, 2, SV("tool_call_id")) || jsonscan_key_is(v, 2, SV("call_id"))) {
		set_text(s, false, false, v->text);
	} else if (jsonscan_key_is(v, 2, SV("tool_name")) || jsonscan_key_is(v, 2, SV("name"))) {
		set_text(s, false, true, v->text);
	} else if (jsonscan_key_is(v, 2, SV("content"))) {
		s->item.bytes += (int64_t)v->bytes;
		item_text(s, v);
	} else if (jsonscan_key_is(v, 2, SV("output"))) {
		s->item.bytes += (int64_t)v->bytes;
	}
}

/* --- a block's members: messages[i].content[j].KEY, contents[i].parts[j].KEY ------------------------------------- */

static void block_type(struct suffix *s, struct sv type)
{
	if (sv_eq(type, SV("tool_result")))
		result_at_hand(s, true);
	else if (sv_starts(type, SV("image")) || sv_starts(type, SV("input_image")) || sv_eq(type, SV("document")) ||
		 sv_eq(type, SV("input_file")) || sv_eq(type, SV("input_audio")))
		s->item.human = true;
}

static void block_string(struct suffix *s, const struct jsonscan_value *v)
{
	if (jsonscan_key_is(v, 4, SV("type"))) {
		block_type(s, v->text);
	} else if (jsonscan_key_is(v, 4, SV("tool_use_id"))) {
		set_text(s, true, false, v->text);
	} else if (jsonscan_key_is(v, 4, SV("text"))) {
		s->item.bytes += (int64_t)v->bytes;
		item_text(s, v);
	} else if (jsonscan_key_is(v, 4, SV("content"))) {
		s->item.block_bytes += (int64_t)v->bytes;
	}
}

/* functionResponse.{id,name,response} of Gemini, toolResult.{toolUseId,status,content} of Converse, content[].text of
 * Anthropic's tool_result, and whatever hangs below. */
static void deep_string(struct suffix *s, const struct jsonscan_value *v)
{
	bool gemini = jsonscan_key_is(v, 4, SV("functionResponse")) || jsonscan_key_is(v, 4, SV("function_response"));
	bool converse = jsonscan_key_is(v, 4, SV("toolResult"));

	if (v->depth == 6 && gemini && jsonscan_key_is(v, 5, SV("id")))
		set_text(s, true, false, v->text);
	else if (v->depth == 6 && gemini && jsonscan_key_is(v, 5, SV("name")))
		set_text(s, true, true, v->text);
	else if (v->depth == 6 && converse && jsonscan_key_is(v, 5, SV("toolUseId")))
		set_text(s, true, false, v->text);
	else if (v->depth == 6 && converse && jsonscan_key_is(v, 5, SV("status")))
		set_error(s, sv_eq(v->text, SV("error")));
	else if (!jsonscan_key_is(v, v->depth - 1, SV("type")) &&
		 (gemini || converse || jsonscan_key_is(v, 4, SV("content"))))
		s->item.block_bytes += (int64_t)v->bytes;
}

static void list_value(struct suffix *s, const struct jsonscan_value *v)
{
	if (v->depth == 2 && v->type == JSON_OBJECT) {
		memset(&s->item, 0, sizeof(s->item));
		s->item.first_result = s->result_count;
	} else if (v->depth == 4 && v->type == JSON_OBJECT) {
		s->item.block_is_result = false;
		s->item.block_bytes = 0;
	} else if (v->depth == 5 && jsonscan_key_is(v, 4, SV("is_error"))) {
		set_error(s, v->type == JSON_TRUE);
	} else if (v->type == JSON_STRING) {
		if (v->depth == 3)
			item_string(s, v);
		else if (v->depth == 5)
			block_string(s, v);
		else if (v->depth > 5)
			deep_string(s, v);
	}
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

static void hash_system(struct suffix *s, uint64_t hash)
{
	if (!s->system_hash)
		s->system_hash = hash;
}

static void tool_string(struct suffix *s, const struct jsonscan_value *v)
{
	bool named = jsonscan_key_is(v, v->depth - 1, SV("name"));
	bool plain = v->depth == 3, function = v->depth == 4 && jsonscan_key_is(v, 2, SV("function"));
	bool gemini = v->depth == 5 && (jsonscan_key_is(v, 2, SV("functionDeclarations")) ||
					jsonscan_key_is(v, 2, SV("function_declarations")));

	if (!named || !(plain || function || gemini) || s->tools_hashed++ >= HASHED_TOOLS)
		return;
	s->tools_hash = text_hash(s->tools_hash, v->text.ptr, v->text.len);
}

static void top_string(struct suffix *s, const struct jsonscan_value *v)
{
	if (jsonscan_key_is(v, 0, SV("input")) || jsonscan_key_is(v, 0, SV("prompt"))) {
		s->human = true;
		if (v->text.len && !s->first_hash) {
			s->first_hash = hash_of(v->text);
			s->opening[0] = text_mark(v->text, v->bytes);
		}
	} else if (jsonscan_key_is(v, 0, SV("system")) || jsonscan_key_is(v, 0, SV("instructions"))) {
		if (v->text.len)
			hash_system(s, hash_of(v->text));
	} else if (jsonscan_key_is(v, 0, SV("previous_response_id"))) {
		s->continued = true;
	}
}

void suffix_value(struct suffix *s, const struct jsonscan_value *v)
{
	if (v->depth >= 2 && is_list(v)) {
		list_value(s, v);
		return;
	}
	if (v->type != JSON_STRING)
		return;
	if (v->depth == 1)
		top_string(s, v);
	else if (v->depth >= 3 && jsonscan_key_is(v, 0, SV("tools")))
		tool_string(s, v);
	else if (v->text.len && jsonscan_key_is(v, v->depth - 1, SV("text")) &&
		 (jsonscan_key_is(v, 0, SV("system")) || jsonscan_key_is(v, 0, SV("systemInstruction")) ||
		  jsonscan_key_is(v, 0, SV("system_instruction"))))
		hash_system(s, hash_of(v->text));
}

/* The item is whole: its role is known. */
static void commit_item(struct suffix *s)
{
	switch (s->item.role) {
	case SUFFIX_ROLE_MODEL:
		drop_results(s, 0);
		s->human = s->notice = false;
		s->model_last = true;
		return;
	case SUFFIX_ROLE_SYSTEM:
		drop_results(s, s->item.first_result);
		if (s->item.text_hash)
			hash_system(s, s->item.text_hash);
		return;
	case SUFFIX_ROLE_TOOL:
		if (!s->item.has_result)
			result_at_hand(s, false);
		if (s->result_count > s->item.first_result && s->results[s->result_count - 1].bytes < 0)
			s->results[s->result_count - 1].bytes = s->item.bytes;
		break;
	case SUFFIX_ROLE_USER:
		if (s->item.own_result) /* only a name: of a person */
			drop_results(s, s->item.first_result);
		s->human |= s->item.human;
		s->notice |= s->item.notice;
		if (!s->first_hash && s->item.human) {
			s->first_hash = s->item.text_hash;
			memcpy(s->opening, s->item.marks, sizeof(s->opening));
		}
		break;
	}
	s->model_last = false;
}

void suffix_end(struct suffix *s, const struct jsonscan_value *v)
{
	if (v->depth < 2 || !is_list(v) || v->type != JSON_OBJECT)
		return;
	if (v->depth == 2)
		commit_item(s);
	else if (v->depth == 4 && s->item.block_is_result && s->result_count)
		s->results[s->result_count - 1].bytes = s->item.block_bytes;
}

enum call_trigger suffix_trigger(const struct suffix *s)
{
	if (s->result_count)
		return CALL_TRIGGER_TOOL_RESULTS;
	if (s->human)
		return CALL_TRIGGER_HUMAN;
	if (s->notice)
		return CALL_TRIGGER_NOTICE;
	return s->model_last ? CALL_TRIGGER_CONTINUE : CALL_TRIGGER_UNKNOWN;
}

/* Nothing, where what is sent is not the beginning. */
void suffix_opening(const struct suffix *s, uint64_t out[CALL_OPENINGS])
{
	for (size_t i = 0; i < CALL_OPENINGS; i++)
		out[i] = s->continued ? 0 : s->opening[i];
}

uint64_t suffix_conversation(const struct suffix *s)
{
	const uint64_t marks[] = {s->system_hash, s->tools_hash, s->continued ? 0 : s->first_hash};

	if (!marks[0] && !marks[1] && !marks[2])
		return 0;
	return text_hash(0, marks, sizeof(marks));
}
