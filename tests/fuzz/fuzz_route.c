/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any target: its route is short, plain, has no long number, and is its own route. A label is a part of the target. */
#include <stdlib.h>

#include "flow/http/graphql.h"
#include "flow/http/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sv target = {(const char *)data, size}, label;
	char route[ROUTE_MAX + 1], again[ROUTE_MAX + 1];
	size_t len = route_of_path(route, target), digits = 0;

	check(len <= ROUTE_MAX && !route[len] && strlen(route) == len);
	for (size_t i = 0; i < len; i++) {
		digits = route[i] >= '0' && route[i] <= '9' ? digits + 1 : 0;
		check(digits < ROUTE_DIGITS && route[i] > ' ' && route[i] <= '~');
	}
	check(route_of_path(again, (struct sv){route, len}) == len && !memcmp(route, again, len));
	label = route_label_of_target(target);
	check(!label.ptr || (label.ptr >= target.ptr && label.ptr + label.len <= target.ptr + target.len));
	check(!label.ptr || route_is_label(label));
	route_is_graphql(target);
	label = graphql_query_name(target);
	check(!label.ptr || (label.ptr >= target.ptr && label.ptr + label.len < target.ptr + target.len));
	return 0;
}
