/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "base/err.h"
#include "flow/http/graphql.h"

struct row {
	const char *body, *name;
};

static void cut_row(void *ctx, size_t cut1, size_t cut2)
{
	const struct row *r = ctx;
	size_t len = strlen(r->body);
	struct graphql *g = graphql_new();
	struct guard guard = {0};

	assert_non_null(g);
	graphql_push(g, guard_copy(&guard, r->body, cut1), cut1);
	graphql_push(g, guard_copy(&guard, r->body + cut1, cut2 - cut1), cut2 - cut1);
	graphql_push(g, guard_copy(&guard, r->body + cut2, len - cut2), len - cut2);
	assert_string_equal(graphql_name(g), r->name);
	graphql_free(g);
	guard_free(&guard);
}

static void bodies_name_their_operation(void **state)
{
	static const struct row rows[] = {
		{"{\"operationName\":\"GetUser\",\"query\":\"query Other { a }\"}", "GetUser"},
		{"{\"query\":\"query Other($x: Int) { a }\",\"operationName\":\"GetUser\"}", "GetUser"},
		{"{\"query\":\"query Other($x: Int) { a }\",\"operationName\":null}", "Other"},
		{"{\"query\":\"# c\\n mutation\\n  Save{a}\",\"variables\":{\"operationName\":\"secret\"}}", "Save"},
		{"{\"query\":\"{ user(id: 42) { name } }\"}", ""},
		{"{\"query\":\"subscription On @live { a }\"}", "On"},
		{"{\"operationName\":\"not a name\"}", ""},
		{"[{\"operationName\":\"GetUser\"}]", ""},
		{"{\"query\":\"fragment F on T { a } query Late { a }\"}", ""},
		{"no json", ""},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		every_cut(strlen(rows[i].body), 24, cut_row, (void *)&rows[i]);
}

static void a_name_at_the_end_may_be_cut(void **state)
{
	(void)state;
	assert_null(graphql_query_name(SV("query GetUs")).ptr);
	assert_null(graphql_query_name(SV("query")).ptr);
	assert_null(graphql_query_name(SV_NONE).ptr);
	assert_true(sv_eq(graphql_query_name(SV("query GetUser ")), SV("GetUser")));
}

static void what_is_missing_names_nothing(void **state)
{
	struct graphql *g = graphql_new();
	char *zeros = calloc(1, GRAPHQL_BODY_MAX);

	(void)state;
	graphql_push(g, (const uint8_t *)"{\"a\":", 5);
	graphql_gap(g);
	graphql_push(g, (const uint8_t *)"1,\"operationName\":\"X\"}", 22);
	assert_string_equal(graphql_name(g), "");
	graphql_free(g);
	g = graphql_new();
	memset(zeros, ' ', GRAPHQL_BODY_MAX);
	graphql_push(g, (const uint8_t *)zeros, GRAPHQL_BODY_MAX);
	graphql_push(g, (const uint8_t *)"{\"operationName\":\"X\"}", 21); /* too far in */
	assert_string_equal(graphql_name(g), "");
	graphql_free(g);
	free(zeros);
}

static void without_memory(void **state)
{
	(void)state;
	for (unsigned n = 1; n < 10; n++) {
		struct graphql *g;

		fail_nth(n);
		g = graphql_new();
		fail_nth(0);
		assert_int_equal(g == NULL, fail_nth_hit());
		graphql_free(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bodies_name_their_operation),
		cmocka_unit_test(a_name_at_the_end_may_be_cut),
		cmocka_unit_test(what_is_missing_names_nothing),
		cmocka_unit_test(without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
