/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "route.h"

#include "base/credential.h"

#define EXTENSION_MAX 5
#define METHOD_MAX    32
#define REST	      "/..."
#define UUID_LENGTH   36

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* --- what is a value --------------------------------------------------------------------------------------------- */

struct tally {
	size_t digits, letters, hex, marks, others, run; /* marks: "-", "." and "_"; run: longest one of digits */
};

static struct tally tally_of(struct sv s)
{
	struct tally t = {0};
	size_t run = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = s.ptr[i];

		run = is_digit(c) ? run + 1 : 0;
		t.run = run > t.run ? run : t.run;
		t.digits += is_digit(c);
		t.letters += is_letter(c);
		t.hex += is_hex(c);
		t.marks += c == '-' || c == '.' || c == '_';
	}
	t.others = s.len - t.digits - t.letters - t.marks;
	return t;
}

/* RFC 9562 section 4 */
static bool is_uuid(struct sv s)
{
	if (s.len != UUID_LENGTH)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? s.ptr[i] != '-' : !is_hex(s.ptr[i]))
			return false;
	}
	return true;
}

static bool is_odd(struct sv s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = s.ptr[i];

		if (c <= ' ' || c > '~' || c == '%' || (c == '@' && i))
			return true;
	}
	return s.len > ROUTE_SEGMENT_MAX;
}

/* Identifiers that say what they are of: msg_01XFDUDYJgAACzvnptvVoYEL */
static bool is_prefixed_id(struct sv s)
{
	size_t i = 0, digits = 0, small = 0, from;

	while (i < s.len && s.ptr[i] >= 'a' && s.ptr[i] <= 'z')
		i++;
	if (!i || i == s.len || (s.ptr[i] != '_' && s.ptr[i] != '-'))
		return false;
	from = ++i;
	for (; i < s.len; i++) {
		if (!is_digit(s.ptr[i]) && !is_letter(s.ptr[i]))
			return false;
		digits += is_digit(s.ptr[i]);
		small += s.ptr[i] >= 'a' && s.ptr[i] <= 'z';
	}
	return s.len - from >= ROUTE_TAIL && digits && small && digits + small < s.len - from;
}

static bool is_number_of_hex(struct sv s)
{
	if (s.len < 3 || s.ptr[0] != '0' || s.ptr[1] != 'x')
		return false;
	for (size_t i = 2; i < s.len; i++)
		if (!is_hex(s.ptr[i]))
			return false;
	return true;
}

static bool is_value(struct sv s)
{
	struct tally t = tally_of(s);

	if (is_odd(s) || is_uuid(s) || is_prefixed_id(s) || is_number_of_hex(s) || credential_is_segment(s))
		return true;
	if (!t.digits || t.others)
		return t.run >= ROUTE_DIGITS;
	if (!t.letters || t.run >= ROUTE_DIGITS)
		return true;
	if (t.hex == s.len && s.len >= ROUTE_HEX)
		return true;
	return t.digits + t.letters >= ROUTE_TOKEN && t.digits * 5 >= t.digits + t.letters;
}

/* Of "42.json" and "42:cancel" what follows the value: ".json", ":cancel"; else nothing. */
static struct sv ending_of(struct sv s)
{
	size_t i = s.len, letters = 0;

	while (i && is_letter(s.ptr[i - 1]))
		i--;
	letters = s.len - i;
	if (i < 2 || !letters || memchr(s.ptr + 1, '@', s.len - 1))
		return SV_NONE;
	if ((s.ptr[i - 1] == ':' && letters <= METHOD_MAX) || (s.ptr[i - 1] == '.' && letters <= EXTENSION_MAX))
		return (struct sv){s.ptr + i - 1, letters + 1};
	return SV_NONE;
}

/* --- the path ---------------------------------------------------------------------------------------------------- */

struct route {
	char *out;
	size_t len;
	bool full;
};

static void put(struct route *r, struct sv s)
{
	if (r->full || s.len > ROUTE_MAX - sizeof(REST) + 1 - r->len) {
		r->full = true;
		return;
	}
	if (s.len)
		memcpy(r->out + r->len, s.ptr, s.len);
	r->len += s.len;
}

static void put_segment(struct route *r, struct sv s)
{
	struct sv parameters, ending, stem;
	size_t before = r->len;

	s = sv_cut(s, ';', &parameters);
	ending = ending_of(s);
	stem = (struct sv){s.ptr, s.len - ending.len};
	if (!is_value(stem)) {
		ending = SV_NONE;
		stem = s;
	}
	if (s.len && is_value(stem))
		stem = SV(":id");
	put(r, stem);
	put(r, ending);
	if (r->full)
		r->len = before; /* no half segments */
}

size_t route_of_path(char out[ROUTE_MAX + 1], struct sv path)
{
	struct route r = {.out = out};
	struct sv rest, segment;

	path = sv_cut(sv_cut(path, '#', &rest), '?', &rest);
	segment = sv_cut(path, '/', &path);
	put_segment(&r, segment);
	while (path.ptr && !r.full) {
		size_t before = r.len;

		segment = sv_cut(path, '/', &path);
		put(&r, SV("/"));
		put_segment(&r, segment);
		if (r.full)
			r.len = before;
	}
	if (r.full) {
		memcpy(out + r.len, REST, sizeof(REST) - 1);
		r.len += sizeof(REST) - 1;
	}
	out[r.len] = '\0';
	return r.len;
}

/* --- labels ------------------------------------------------------------------------------------------------------ */

bool route_is_label(struct sv text)
{
	struct tally t = tally_of(text);

	if (!text.len || text.len > ROUTE_LABEL_MAX || !t.letters || is_value(text))
		return false;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.ptr[i];

		if (!is_letter(c) && !is_digit(c) && !memchr("_-.:/", c, 5))
			return false;
	}
	return true;
}

struct sv route_label_of_target(struct sv target)
{
	struct sv query, key, value, parameter, fragment;

	sv_cut(sv_cut(target, '#', &fragment), '?', &query);
	while (query.ptr) {
		parameter = sv_cut(query, '&', &query);
		key = sv_cut(parameter, '=', &value);
		if ((sv_eq(key, SV("op")) || sv_eq(key, SV("operationName"))) && route_is_label(value))
			return value;
	}
	return SV_NONE;
}

bool route_is_graphql(struct sv path)
{
	const struct sv name = SV("graphql");
	struct sv rest;

	path = sv_cut(path, '?', &rest);
	while (path.len && path.ptr[path.len - 1] == '/')
		path.len--;
	if (path.len < name.len || !sv_ieq((struct sv){path.ptr + path.len - name.len, name.len}, name))
		return false;
	return path.len == name.len || path.ptr[path.len - name.len - 1] == '/';
}
