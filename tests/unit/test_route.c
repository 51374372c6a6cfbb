/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "base/err.h"
#include "flow/http/route.h"

static const char *shape(const char *path)
{
	static char out[ROUTE_MAX + 1];
	struct guard guard = {0};
	size_t len = strlen(path), n;

	n = route_of_path(out, (struct sv){(const char *)guard_copy(&guard, path, len), len});
	assert_int_equal(n, strlen(out));
	guard_free(&guard);
	return out;
}

static void paths_have_shapes(void **state)
{
	static const struct {
		const char *path, *route;
	} rows[] = {
		{"/", "/"},
		{"", ""},
		{"*", "*"},
		{"/users/42", "/users/:id"},
		{"/users/42/", "/users/:id/"},
		{"//users//42", "//users//:id"},
		{"/users/42?x=secret/1", "/users/:id"},
		{"/users/42#part", "/users/:id"},
		{"/users/42.json", "/users/:id.json"},
		{"/users/42:cancel", "/users/:id:cancel"},
		{"/users/42;jsessionid=secret/posts", "/users/:id/posts"},
		{"/users/bob@example.com/posts", "/users/:id/posts"},
		{"/@scope/pkg", "/@scope/pkg"},
		{"/files/my%20secret.txt", "/files/:id.txt"},
		{"/files/caf\xc3\xa9", "/files/:id"},
		{"/o/6ba7b810-9dad-11d1-80b4-00c04fd430c8", "/o/:id"},
		{"/o/6BA7B810-9DAD-11D1-80B4-00C04FD430C8/x", "/o/:id/x"},
		{"/commit/9878875", "/commit/:id"},
		{"/commit/9ab8c75e", "/commit/:id"},
		{"/commit/deadbeef", "/commit/deadbeef"},
		{"/blob/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "/blob/:id"},
		{"/order-12345/items", "/:id/items"},
		{"/order-1234/items", "/order-1234/items"},
		{"/2024-05-01/report", "/:id/report"},
		{"/api/v1/k8s/oauth2/utf-8", "/api/v1/k8s/oauth2/utf-8"},
		{"/v2.0/me", "/v2.0/me"},
		{"/customers/cus_9s6XKzkNRiz8i3", "/customers/:id"},
		{"/t/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/t/:id"},
		{"/v1/threads/thread_aBcdEFghijk1/runs", "/v1/threads/:id/runs"},
		{"/batches/msgbatch_HkcTjaqVouppfREADDqVoYE1", "/batches/:id"},
		{"/customers/cus_NffrFeUfNV2Hib", "/customers/:id"},
		{"/get-OAuth2Token/x_1/a-BCD", "/get-OAuth2Token/x_1/a-BCD"},
		{"/verify/eyJhbGciOiJIUzI1NiJ9.e30.abc", "/verify/:id.abc"},
		{"/sk-proj-abcdefgh/models", "/:id/models"},
		{"/services/XbKmQ9zLrTnVw8YhJcFpDabc", "/services/:id"},
		{"/tx/0x1f/0x/0xyz", "/tx/:id/0x/0xyz"},
		{"/getUserByEmailAddress2", "/getUserByEmailAddress2"},
		{"/v1beta/models/gemini-2.0-flash:generateContent", "/v1beta/models/gemini-2.0-flash:generateContent"},
		{"/report.v2.pdf", "/report.v2.pdf"},
		{"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "/:id"},
		{"host.example:443", "host.example:443"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(shape(rows[i].path), rows[i].route);
}

static void long_paths_are_cut_at_a_segment(void **state)
{
	char path[2048] = "";
	const char *route;

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		strcat(path, "/segment");
	route = shape(path);
	assert_int_equal(strlen(route), 8 * 31 + 4);
	assert_string_equal(route + 8 * 31, "/...");
	for (size_t fill = 220; fill < 262; fill++) {
		memset(path, 0, sizeof(path));
		for (size_t i = 0; i < fill; i++)
			path[i] = i % 16 ? 'a' : '/';
		assert_true(strlen(shape(path)) <= ROUTE_MAX);
		strcat(path, "/42");
		assert_true(strlen(shape(path)) <= ROUTE_MAX);
	}
}

static void labels_are_plain_words(void **state)
{
	static const struct {
		const char *target, *label;
	} rows[] = {
		{"/x?op=GetUser", "GetUser"},
		{"/x?a=1&op=user.get&b=2", "user.get"},
		{"/graphql?query=%7B&operationName=Feed", "Feed"},
		{"/x?op=", NULL},
		{"/x?op", NULL},
		{"/x?op=42", NULL},
		{"/x?op=a%20b", NULL},
		{"/x?op=secret@example.com", NULL},
		{"/x?op=9s6XKzkNRiz8i3Qq77", NULL},
		{"/x?op=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL},
		{"/x?shop=Get", NULL},
		{"/op=Get", NULL},
		{"/x#?op=Get", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sv label = route_label_of_target(sv_of(rows[i].target));

		assert_true(sv_eq(label, sv_of(rows[i].label)));
	}
}

static void graphql_has_a_path(void **state)
{
	(void)state;
	assert_true(route_is_graphql(SV("/graphql")));
	assert_true(route_is_graphql(SV("/api/GraphQL/?x")));
	assert_true(route_is_graphql(SV("graphql")));
	assert_false(route_is_graphql(SV("/notgraphql")));
	assert_false(route_is_graphql(SV("/graphql/x")));
	assert_false(route_is_graphql(SV("/")));
	assert_false(route_is_graphql(SV_NONE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_have_shapes),
		cmocka_unit_test(long_paths_are_cut_at_a_segment),
		cmocka_unit_test(labels_are_plain_words),
		cmocka_unit_test(graphql_has_a_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
