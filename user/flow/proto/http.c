/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http.h"

#include "base/err.h"

/* Longest first where one is the end of another: a search takes the first that fits. */
static const struct sv methods[] = {
	{"GET", 3},	{"POST", 4},  {"PUT", 3},      {"DELETE", 6},	 {"HEAD", 4},  {"OPTIONS", 7}, {"PATCH", 5},
	{"CONNECT", 7}, {"TRACE", 5}, {"PROPFIND", 8}, {"PROPPATCH", 9}, {"MKCOL", 5}, {"COPY", 4},    {"MOVE", 4},
	{"UNLOCK", 6},	{"LOCK", 4},  {"REPORT", 6},   {"SEARCH", 6},	 {"QUERY", 5},
};

int http_method_prefix(struct sv text)
{
	bool open = false;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		struct sv m = methods[i];

		if (text.len > m.len) {
			if (text.ptr[m.len] == ' ' && sv_starts(text, m))
				return (int)m.len + 1;
		} else if (memcmp(m.ptr, text.ptr, text.len) == 0) {
			open = true;
		}
	}
	return open ? -1 : 0;
}

static bool is_token_char(unsigned char c)
{
	if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
		return true;
	return c && strchr("!#$%&'*+-.^_`|~", c);
}

bool http_is_token(struct sv s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!is_token_char((unsigned char)s.ptr[i]))
			return false;
	return s.len > 0;
}

struct sv http_header_get(const struct http_head *h, const char *name)
{
	struct sv want = sv_of(name);

	for (size_t i = 0; i < h->header_count; i++)
		if (sv_ieq(h->headers[i].name, want))
			return h->headers[i].value;
	return SV_NONE;
}

struct sv http_without_userinfo(struct sv authority)
{
	for (size_t i = authority.len; i > 0; i--)
		if (authority.ptr[i - 1] == '@')
			return (struct sv){authority.ptr + i, authority.len - i};
	return authority;
}
