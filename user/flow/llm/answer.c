/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "answer.h"

#include <stdlib.h>

#include "base/buf.h"
#include "body.h"
#include "exchange.h"
#include "jsonscan.h"
#include "pace.h"
#include "text.h"

/* Documents looked at before an unknown response is no model's answer. */
#define IDENTIFY_MAX 32

struct answer {
	struct answer_config cfg;
	const struct dialect *dialect;
	struct lost *lost;
	struct body *body; /* NULL with cfg.messages */
	struct llm_sink sink;
	unsigned unidentified; /* documents that told no dialect */
	bool tentative;	       /* the dialect is a guess so far */
	bool confirmed, rejected;

	/* tokens; times of reads */
	const struct stamp *at; /* of the event at hand, NULL in a unary document */
	bool event_has_token;
	uint64_t first_ns, visible_ns, last_ns;
	uint64_t seen_ns; /* as first_ns, whatever is missing before it */
	enum token_kind first_kind;
	struct pace pace;
	bool broken;	   /* parts of the body are missing: counts and silences are not known */
	bool broken_first; /* ... before the first token */
	bool broken_visible;
	bool stale; /* ... since usage was said: a later word of it may be among them */
	bool reasoning_shown, reasoning_begun, sealed_first;
	bool terminal;	   /* the message is whole */
	uint64_t ended_ns; /* the event came that says so; UNKNOWN_NS: none did */

	struct usage_part usage;
	struct call_server server;
	const char *provider; /* static; NULL: not told */
	char *model, *stop_reason, *error;
	char undecoded[64];
	struct tool_call *tools;
	size_t tool_count;
	struct {
		struct jsonscan *scan; /* NULL: of none */
		size_t tool;	       /* index */
		uint64_t longest;
	} arguments; /* that are being read; of them only the mark of a text is kept */
	struct buf text;
};

/* --- what the dialect says --------------------------------------------------------------------------------------- */

static bool keep(struct answer *a, char **field, struct sv text)
{
	char *copy = text_dup(text, EXCHANGE_ID_MAX);

	if (!copy) {
		a->lost->n[LOST_NO_MEMORY] += text.len && text.ptr[0];
		return false;
	}
	free(*field);
	*field = copy;
	return true;
}

static void keep_text(struct answer *a, struct sv text)
{
	size_t room = EXCHANGE_TEXT_MAX - a->text.len;
	size_t n = text_cut(text, room);

	if (!n)
		return;
	/* one more for a NUL that readers may rely on */
	if (buf_reserve(&a->text, n + 1) || buf_push(&a->text, text.ptr, n)) {
		a->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	a->text.ptr[a->text.len] = '\0';
	if (n < text.len)
		a->cfg.content = false; /* cut: what follows would not follow it */
}

static void note_token(struct answer *a, enum token_kind kind, struct sv text)
{
	bool visible = (kind == TOKEN_TEXT || kind == TOKEN_REFUSAL) && text.len;

	a->confirmed = true;
	if (visible && a->cfg.content)
		keep_text(a, text);
	if (!a->at)
		return;
	if (pace_push(&a->pace, kind, a->at->ts_ns, !a->event_has_token))
		a->lost->n[LOST_NO_MEMORY]++;
	a->event_has_token = true;
	a->last_ns = a->at->ts_ns;
	if (kind == TOKEN_TOOL && a->tool_count)
		a->tools[a->tool_count - 1].end_ns = a->at->ts_ns;
	if (a->seen_ns == UNKNOWN_NS)
		a->seen_ns = a->at->ts_ns;
	if (a->first_ns == UNKNOWN_NS && !a->broken_first) {
		a->first_ns = a->at->ts_ns;
		a->first_kind = kind;
	}
	if (visible && a->visible_ns == UNKNOWN_NS && !a->broken_visible)
		a->visible_ns = a->at->ts_ns;
}

static void on_token(void *ctx, enum token_kind kind, struct sv text)
{
	struct answer *a = ctx;

	a->reasoning_shown |= kind == TOKEN_REASONING;
	note_token(a, kind, text);
}

/* Before the first token the time that it took is not in the window of the decode rate, whatever is shown later. */
static void on_sealed(void *ctx)
{
	struct answer *a = ctx;

	a->reasoning_begun = true;
	a->sealed_first |= a->first_ns == UNKNOWN_NS;
	note_token(a, TOKEN_REASONING, SV_NONE);
}

/* Last value wins, also one that cannot be read, but 0 never replaces a positive one. */
static void merge(int64_t *field, int64_t value)
{
	if (value > 0 || value == USAGE_UNREADABLE || (value == 0 && *field <= 0))
		*field = value;
}

static void on_usage(void *ctx, const struct usage_part *u)
{
	struct answer *a = ctx;

	a->confirmed = true;
	merge(&a->usage.input_uncached, u->input_uncached);
	merge(&a->usage.input_total, u->input_total);
	merge(&a->usage.cache_read, u->cache_read);
	merge(&a->usage.cache_write, u->cache_write);
	merge(&a->usage.output_total, u->output_total);
	merge(&a->usage.reasoning, u->reasoning);
	a->usage.no_cache_write |= u->no_cache_write;
	a->stale = a->stale && u->output_total == UNKNOWN_COUNT;
}

static void on_model(void *ctx, struct sv model)
{
	struct answer *a = ctx;

	a->confirmed = true;
	if (!a->model)
		keep(a, &a->model, model);
}

static void on_reasoning(void *ctx)
{
	struct answer *a = ctx;

	a->confirmed = true;
	a->reasoning_begun = true;
}

/* Index of the tool; SIZE_MAX: none that is known. */
static size_t tool_of(const struct answer *a, struct sv id)
{
	for (size_t i = 0; id.len && i < a->tool_count; i++)
		if (a->tools[i].id && sv_eq(sv_of(a->tools[i].id), (struct sv){id.ptr, text_cut(id, EXCHANGE_ID_MAX)}))
			return i;
	return id.len || !a->tool_count ? SIZE_MAX : a->tool_count - 1;
}

static void on_tool(void *ctx, struct sv id, struct sv name)
{
	struct answer *a = ctx;
	uint64_t at_ns = a->at ? a->at->ts_ns : UNKNOWN_NS;
	struct tool_call *tools;

	a->confirmed = true;
	if (a->tool_count == CALL_TOOLS_MAX || (id.len && tool_of(a, id) != SIZE_MAX))
		return;
	tools = realloc(a->tools, (a->tool_count + 1) * sizeof(*tools));
	if (!tools) {
		a->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	a->tools = tools;
	tools[a->tool_count] = (struct tool_call){.begin_ns = at_ns, .end_ns = at_ns};
	keep(a, &tools[a->tool_count].id, id);
	keep(a, &tools[a->tool_count].name, name);
	a->tool_count++;
}

/* What a sub-agent is asked for is the longest of the texts. */
static void on_argument(void *ctx, const struct jsonscan_value *v)
{
	struct answer *a = ctx;

	if (v->depth != 1 || v->type != JSON_STRING || v->bytes <= a->arguments.longest)
		return;
	a->arguments.longest = v->bytes;
	a->tools[a->arguments.tool].asks = text_mark(v->text, v->bytes);
}

static void arguments_end(struct answer *a)
{
	jsonscan_free(a->arguments.scan);
	a->arguments.scan = NULL;
	a->arguments.longest = 0;
}

static void on_arguments(void *ctx, struct sv id, struct sv json)
{
	const struct jsonscan_sink sink = {.ctx = ctx, .on_value = on_argument};
	struct answer *a = ctx;
	size_t tool = tool_of(a, id);

	if (tool == SIZE_MAX || a->broken || (id.len && a->tools[tool].asks) || !json.len)
		return;
	if (id.len || a->arguments.tool != tool)
		arguments_end(a);
	a->arguments.tool = tool;
	if (!a->arguments.scan)
		a->arguments.scan = jsonscan_new(&sink);
	if (!a->arguments.scan) {
		a->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	jsonscan_push(a->arguments.scan, (const uint8_t *)json.ptr, json.len);
}

static void on_stop(void *ctx, struct sv reason)
{
	struct answer *a = ctx;

	a->confirmed = true;
	if (!a->stop_reason || !sv_eq(sv_of(a->stop_reason), reason))
		keep(a, &a->stop_reason, reason);
}

static void on_error(void *ctx, struct sv type)
{
	struct answer *a = ctx;

	/* where others have such paths, anybody's error would look like this */
	a->confirmed |= a->dialect && !a->dialect->required && !a->tentative;
	if (!a->error)
		keep(a, &a->error, type);
}

static void on_end(void *ctx)
{
	struct answer *a = ctx;

	a->confirmed = true;
	if (!a->terminal && a->at)
		a->ended_ns = a->at->ts_ns;
	a->terminal = true;
}

static void keep_known(int64_t *field, int64_t value)
{
	if (value >= 0)
		*field = value;
}

static void on_server(void *ctx, const struct call_server *s)
{
	struct call_server *known = &((struct answer *)ctx)->server;

	keep_known(&known->queue_ns, s->queue_ns);
	keep_known(&known->load_ns, s->load_ns);
	keep_known(&known->prefill_ns, s->prefill_ns);
	keep_known(&known->decode_ns, s->decode_ns);
	keep_known(&known->first_token_ns, s->first_token_ns);
	keep_known(&known->total_ns, s->total_ns);
}

static void on_provider(void *ctx, const char *provider)
{
	struct answer *a = ctx;

	if (!a->provider)
		a->provider = provider;
}

/* --- documents --------------------------------------------------------------------------------------------------- */

/* True: the dialect is known, or guessed. */
static bool identify(struct answer *a, struct sv type, const cJSON *doc)
{
	const struct dialect *found;

	if (a->dialect && !a->tentative)
		return true;
	found = dialect_by_document(type, doc);
	if (found) {
		a->dialect = found;
		a->tentative = false;
	} else if (++a->unidentified >= IDENTIFY_MAX && !a->dialect) {
		a->rejected = true;
		if (a->body)
			body_ignore(a->body);
	}
	return a->dialect != NULL;
}

void answer_event(struct answer *a, struct sv type, const cJSON *doc, struct sv raw, const struct stamp *at)
{
	if (!identify(a, type, doc))
		return;
	a->at = at;
	a->event_has_token = false;
	a->dialect->on_event(type, doc, raw, &a->sink);
	a->at = NULL;
}

static cJSON *parse(struct answer *a, struct sv text)
{
	bool too_many;
	cJSON *doc = dialect_parse(text, &too_many);

	if (too_many) {
		answer_undecoded(a, SV("json of over 1048576 values"));
		a->lost->n[LOST_DECODE_ERRORS]++;
	}
	return doc;
}

static void on_body_event(void *ctx, struct sv type, struct sv text, const struct stamp *at)
{
	struct answer *a = ctx;
	cJSON *doc = parse(a, text);

	answer_event(a, type, doc, text, at);
	cJSON_Delete(doc);
}

static void on_body_document(void *ctx, struct sv text)
{
	struct answer *a = ctx;
	cJSON *doc = parse(a, text);

	if (doc && identify(a, SV_NONE, doc))
		a->dialect->on_document(doc, &a->sink);
	cJSON_Delete(doc);
}

static void on_body_error(void *ctx, struct sv type)
{
	on_error(ctx, type);
}

/* What is missing hides tokens from here on, and those that were not seen before. */
static void note_missing(void *ctx)
{
	struct answer *a = ctx;

	if (a->terminal)
		return;
	a->broken = a->stale = true;
	a->broken_first |= a->first_ns == UNKNOWN_NS;
	a->broken_visible |= a->visible_ns == UNKNOWN_NS;
	a->last_ns = UNKNOWN_NS; /* until a later token is seen */
	pace_missing(&a->pace);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static struct body *new_body(struct answer *a, const struct http_head *h)
{
	struct body_config cfg = {.stream_asked = a->cfg.stream_asked, .lines = a->dialect && a->dialect->lines};
	struct body_sink sink = {a, on_body_event, on_body_document, on_body_error, note_missing};

	return body_new(&cfg, h, &sink, a->lost);
}

struct answer *answer_new(const struct answer_config *cfg, const struct http_head *h, struct lost *lost)
{
	struct answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->cfg = *cfg;
	a->dialect = cfg->dialect;
	a->tentative = cfg->dialect && cfg->guessed;
	a->lost = lost;
	a->first_ns = a->seen_ns = a->visible_ns = a->last_ns = a->ended_ns = UNKNOWN_NS;
	a->usage = USAGE_PART_NONE;
	a->server = CALL_SERVER_NONE;
	buf_init(&a->text, EXCHANGE_TEXT_MAX + 1);
	a->sink = (struct llm_sink){a,	     on_token, on_usage, on_model,  on_reasoning, on_sealed,   on_tool,
				    on_stop, on_error, on_end,	 on_server, on_provider,  on_arguments};
	if (!cfg->messages) {
		a->body = new_body(a, h);
		if (!a->body) {
			answer_free(a);
			return NULL;
		}
	}
	if (h && a->dialect && a->dialect->on_head)
		a->dialect->on_head(h, &a->sink);
	return a;
}

void answer_free(struct answer *a)
{
	if (!a)
		return;
	body_free(a->body);
	pace_release(&a->pace);
	buf_release(&a->text);
	free(a->model);
	free(a->stop_reason);
	free(a->error);
	for (size_t i = 0; i < a->tool_count; i++) {
		free(a->tools[i].id);
		free(a->tools[i].name);
	}
	free(a->tools);
	jsonscan_free(a->arguments.scan);
	free(a);
}

void answer_push(struct answer *a, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	body_push(a->body, ptr, len, at);
}

void answer_gap(struct answer *a, uint64_t len)
{
	if (a->body)
		body_gap(a->body, len);
	else
		note_missing(a);
}

void answer_undecoded(struct answer *a, struct sv why)
{
	note_missing(a);
	text_copy(a->undecoded, sizeof(a->undecoded), why);
}

void answer_give_up(struct answer *a, struct sv why)
{
	if (a->body)
		body_give_up(a->body, why);
	a->cfg.content = false;
	buf_release(&a->text);
}

void answer_warm(const struct answer *a, struct warm *w)
{
	warm_add(w, a, offsetof(struct answer, usage));
	pace_warm(&a->pace, w);
	if (a->body)
		body_warm(a->body, w);
}

size_t answer_held(const struct answer *a)
{
	return a->text.size + (a->body ? body_held(a->body) : 0);
}

void answer_finish(struct answer *a)
{
	bool whole = !a->body || body_finish(a->body);

	/* Some servers never end a coding: nothing is missing behind the last word. */
	if (!whole && !a->terminal && !a->error)
		body_cut(a->body);
	if (!whole || !a->dialect || a->error)
		return;
	if ((a->dialect->end_optional && a->stop_reason) || (a->dialect->end_is_body && a->confirmed))
		a->terminal = true;
}

const struct dialect *answer_dialect(const struct answer *a)
{
	return a->dialect;
}

const char *answer_provider(const struct answer *a)
{
	return a->provider;
}

bool answer_rejected(const struct answer *a)
{
	return !a->dialect && (a->rejected || (a->body && body_given_up(a->body)));
}

bool answer_confirmed(const struct answer *a)
{
	return a->confirmed;
}

bool answer_contradicts(const struct answer *a)
{
	return a->unidentified || (a->body && body_given_up(a->body));
}

bool answer_ended(const struct answer *a)
{
	return a->terminal;
}

uint64_t answer_ended_ns(const struct answer *a)
{
	return a->ended_ns;
}

/* --- report ------------------------------------------------------------------------------------------------------ */

static int64_t known(int64_t n)
{
	return n > 0 ? n : 0;
}

static int64_t readable(int64_t n)
{
	return n >= 0 ? n : UNKNOWN_COUNT;
}

static bool any_count(const struct usage_part *u, bool (*is)(int64_t n))
{
	return is(u->input_uncached) || is(u->input_total) || is(u->cache_read) || is(u->cache_write) ||
	       is(u->output_total) || is(u->reasoning);
}

static bool is_known(int64_t n)
{
	return n >= 0;
}

static bool is_unreadable(int64_t n)
{
	return n == USAGE_UNREADABLE;
}

/* A part cannot be more than the whole that it is said to be inside of: a server that says so counts otherwise, and
 * which of the two means something else is not known. */
static struct usage_part without_contradictions(const struct usage_part *from)
{
	struct usage_part u = *from;

	if (u.input_total >= 0 && known(u.cache_read) + known(u.cache_write) > u.input_total)
		u.input_total = u.cache_read = u.cache_write = USAGE_UNREADABLE;
	if (u.output_total >= 0 && u.reasoning > u.output_total)
		u.output_total = u.reasoning = USAGE_UNREADABLE;
	return u;
}

static void report_usage(const struct answer *a, struct usage *out)
{
	const struct usage_part normal = without_contradictions(&a->usage), *u = &normal;

	if (!any_count(u, is_known))
		return;
	out->unfinished = !a->terminal || a->stale;
	out->source = out->unfinished || any_count(u, is_unreadable) ? USAGE_PARTIAL : USAGE_REPORTED;
	out->cache_read = readable(u->cache_read);
	out->cache_write = u->cache_write == UNKNOWN_COUNT && u->no_cache_write ? 0 : readable(u->cache_write);
	out->output_total = readable(u->output_total);
	out->reasoning = readable(u->reasoning);
	out->input_uncached = readable(u->input_uncached);
	out->input_total = readable(u->input_total);
	if (u->input_uncached >= 0 && u->cache_read != USAGE_UNREADABLE && u->cache_write != USAGE_UNREADABLE) {
		/* Counts beside the cache's: such an API leaves out a cache that was not used. */
		out->cache_read = known(u->cache_read);
		out->cache_write = known(u->cache_write);
		out->input_total = u->input_uncached + out->cache_read + out->cache_write;
	} else if (u->input_total >= 0 && out->cache_read >= 0 && out->cache_write >= 0 &&
		   u->input_total - out->cache_read >= out->cache_write) {
		out->input_uncached = u->input_total - out->cache_read - out->cache_write;
	}
}

static void report_tokens(const struct answer *a, struct call *c)
{
	c->first_token_ns = a->first_ns;
	c->first_visible_ns = a->visible_ns;
	c->last_token_ns = a->last_ns;
	c->seen_token_ns = a->seen_ns;
	c->first_kind = a->first_ns == UNKNOWN_NS ? TOKEN_NONE : a->first_kind;
	c->hidden_reasoning =
		a->sealed_first || ((a->usage.reasoning > 0 || a->reasoning_begun) && !a->reasoning_shown);
	if (a->broken)
		pace_report_stalls(&a->pace, c);
	else
		pace_report(&a->pace, c);
}

void answer_report(const struct answer *a, struct call *c)
{
	bool streams = a->body ? body_streams(a->body) : true;
	const char *undecoded = a->undecoded;

	report_usage(a, &c->usage);
	if (streams)
		report_tokens(a, c);
	if (streams || (c->stream < 0 && (!a->body || body_begun(a->body))))
		c->stream = streams;
	c->server = a->server;
	if (a->model)
		c->model = a->model;
	c->stop_reason = a->stop_reason;
	c->error = a->error;
	if (!undecoded[0] && a->body)
		undecoded = body_undecoded(a->body);
	/* a gateway's page, say, where an answer was to be */
	if (!undecoded[0] && a->body && c->status >= 200 && c->status < 300)
		undecoded = body_other_type(a->body);
	if (undecoded[0])
		c->undecoded = (char *)undecoded;
	if (streams && !a->terminal && !a->stop_reason && !a->broken && !c->lossy && !c->undecoded)
		pace_report_end(&a->pace, c);
	c->tools = a->tools;
	c->tool_count = a->tool_count;
	if (a->text.len) {
		c->text = a->text.ptr;
		c->text_len = a->text.len;
	}
}
