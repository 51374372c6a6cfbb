/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Gemini Live (BidiGenerateContent): a conversation with turns. A call is a turn of the model: from the message that
 * ends the user's, or from the results of tools, to turnComplete. Of what is only spoken nobody says when it ended:
 * such a call has no start. Messages name themselves by their one member: setup, clientContent, realtimeInput,
 * toolResponse; serverContent, toolCall.
 */

#include "exchange_ws.h"

#include "text.h"

/* setup.model: models/NAME, publishers/google/models/NAME */
static void keep_setup(struct ws_session *s, const struct request_facts *facts)
{
	struct sv model = sv_of(facts->model);

	s->setup = *facts;
	for (size_t i = model.len; i > 0; i--) {
		if (model.ptr[i - 1] != '/')
			continue;
		model = (struct sv){model.ptr + i, model.len - i};
		break;
	}
	text_copy(s->model, sizeof(s->model), model);
}

/* The turn that has been asked for and not begun: what is added belongs to it. */
static struct ws_call *asked_call(struct ws_session *s)
{
	struct ws_call *c = s->calls ? s->calls->prev : NULL;

	return c && !c->created && c->entry->pending ? c : NULL;
}

static void ask(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m,
		const struct request_facts *facts)
{
	struct request_facts all = s->setup;
	struct ws_call *c = asked_call(s);

	if (!c && !ws_call_came_before(s, m, &c))
		c = ws_call_begin(f, s, &m->first);
	if (!c)
		return;
	all.counts.messages = facts->counts.messages;
	all.model[0] = '\0'; /* it is the session's */
	ws_call_asked(c, m, &all, true);
	s->turn_ns = UNKNOWN_NS;
}

void ws_live_from_client(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m,
			 const struct request_facts *facts)
{
	struct ws_call *c = s->calls;

	s->understood = true;
	if (strcmp(facts->type, "setup") == 0) {
		keep_setup(s, facts);
	} else if (strcmp(facts->type, "toolResponse") == 0) {
		if (c && c->tools_asked)
			ws_call_end(f, s, c, END_COMPLETE, c->last_ns);
		ask(f, s, m, facts);
	} else if (strcmp(facts->type, "clientContent") == 0) {
		if (facts->turn_ended)
			ask(f, s, m, facts);
	} else if (facts->turn_ended) {
		s->turn_ns = m->first.entry_ns;
	}
}

static bool begins_answer(const cJSON *doc)
{
	const cJSON *content = json_get(doc, "serverContent");

	return cJSON_IsObject(json_get(content, "modelTurn")) ||
	       cJSON_IsObject(json_get(content, "outputTranscription")) || cJSON_IsObject(json_get(doc, "toolCall"));
}

bool ws_live_is_answer(const cJSON *doc)
{
	const cJSON *content = json_get(doc, "serverContent");

	return begins_answer(doc) || json_get(doc, "usageMetadata") || json_get(content, "turnComplete") ||
	       json_get(content, "generationComplete") || json_get(content, "interrupted") ||
	       json_get(content, "groundingMetadata");
}

void ws_live_from_server(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m, const cJSON *doc)
{
	bool begins = begins_answer(doc);
	struct ws_call *c = s->calls && ws_call_could_get(s->calls, &m->first) ? s->calls : NULL;

	if (!c && begins)
		c = ws_call_begin_unasked(f, s, m);
	if (!c)
		return;
	if (begins)
		s->turn_ns = UNKNOWN_NS;
	c->created |= begins;
	c->tools_asked |= cJSON_IsObject(json_get(doc, "toolCall"));
	c->last_ns = m->last.ts_ns;
	ws_call_answer(f, c, m, SV_NONE, doc, 200);
	if (json_get_true(json_get(doc, "serverContent"), "turnComplete"))
		ws_call_end(f, s, c, END_COMPLETE, m->last.ts_ns);
}
