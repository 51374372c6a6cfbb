/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "graphql.h"

#include <stdlib.h>

#include "base/err.h"
#include "flow/llm/jsonscan.h"
#include "flow/llm/text.h"

struct graphql {
	struct jsonscan *scan;
	uint64_t bytes;
	char stated[ROUTE_LABEL_MAX + 1]; /* operationName */
	char named[ROUTE_LABEL_MAX + 1];  /* in the query's text */
};

/* --- the text of a query ----------------------------------------------------------------------------------------- */

static bool is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Without what GraphQL ignores at the beginning (spec section 2.1): white space, commas, comments. */
static struct sv skip_ignored(struct sv s)
{
	static const char blanks[] = {' ', '\t', '\r', '\n', ','};

	while (s.len) {
		if (*s.ptr == '#') {
			while (s.len && *s.ptr != '\n' && *s.ptr != '\r')
				s.ptr++, s.len--;
		} else if (memchr(blanks, *s.ptr, sizeof(blanks))) {
			s.ptr++, s.len--;
		} else {
			break;
		}
	}
	return s;
}

static struct sv take_name(struct sv *s)
{
	struct sv name = {s->ptr, 0};

	while (name.len < s->len && is_name_byte(s->ptr[name.len]))
		name.len++;
	s->ptr += name.len;
	s->len -= name.len;
	return name;
}

struct sv graphql_query_name(struct sv text)
{
	static const struct sv kinds[] = {SV("query"), SV("mutation"), SV("subscription")};
	struct sv kind, name;

	text = skip_ignored(text);
	kind = take_name(&text);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!sv_eq(kind, kinds[i]))
			continue;
		text = skip_ignored(text);
		name = take_name(&text);
		return name.len && text.len ? name : SV_NONE; /* at the end it may be cut */
	}
	return SV_NONE;
}

/* --- the body ---------------------------------------------------------------------------------------------------- */

static void on_value(void *ctx, const struct jsonscan_value *v)
{
	struct graphql *g = ctx;
	struct sv name;

	if (v->depth != 1 || v->type != JSON_STRING)
		return;
	if (jsonscan_key_is(v, 0, SV("operationName")) && route_is_label(v->text))
		text_copy(g->stated, sizeof(g->stated), v->text);
	if (!jsonscan_key_is(v, 0, SV("query")))
		return;
	name = graphql_query_name(v->text);
	if (route_is_label(name))
		text_copy(g->named, sizeof(g->named), name);
}

struct graphql *graphql_new(void)
{
	struct graphql *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->scan = jsonscan_new(&(struct jsonscan_sink){.ctx = g, .on_value = on_value});
	if (g->scan)
		return g;
	free(g);
	return NULL;
}

void graphql_free(struct graphql *g)
{
	if (!g)
		return;
	jsonscan_free(g->scan);
	free(g);
}

void graphql_push(struct graphql *g, const uint8_t *ptr, size_t len)
{
	if (g->bytes + len > GRAPHQL_BODY_MAX)
		len = (size_t)(GRAPHQL_BODY_MAX - g->bytes);
	g->bytes += len;
	if (len)
		jsonscan_push(g->scan, ptr, len);
}

void graphql_gap(struct graphql *g)
{
	jsonscan_gap(g->scan);
}

const char *graphql_name(const struct graphql *g)
{
	return g->stated[0] ? g->stated : g->named;
}
