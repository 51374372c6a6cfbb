/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "span_args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/sockaddr.h"

void span_put_text(struct json *j, const char *key, const char *text, size_t max)
{
	struct sv v = sv_of(text);

	if (!v.len)
		return;
	if (v.len > max) {
		v.len = max;
		while (v.len && ((unsigned char)v.ptr[v.len] & 0xc0) == 0x80)
			v.len--;
	}
	json_string(j, key, v);
}

void span_put_number(struct json *j, const char *key, double value, int decimals)
{
	if (isfinite(value) && fabs(value) < 1e15)
		json_double(j, key, value, decimals);
}

void span_put_count(struct json *j, const char *key, int64_t value)
{
	if (value >= 0)
		json_int(j, key, value);
}

void span_put_true(struct json *j, const char *key, bool value)
{
	if (value)
		json_bool(j, key, true);
}

void span_put_peer(struct json *j, const struct sock_addr *a)
{
	char text[SOCK_ADDR_TEXT_BYTES];

	if (*sock_addr_text(text, a))
		json_string(j, "peer", sv_of(text));
}

void span_put_duration(struct json *j, const char *key, int64_t ns)
{
	if (ns >= 0)
		span_put_number(j, key, (double)ns / 1e6, 3);
}

void span_add_phase(struct span *s, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t floor_ns = s->phase_count ? s->phases[s->phase_count - 1].end_ns : s->begin_ns;
	/* 1 ns before the parent: a viewer that adds in doubles must not see the child end after it. */
	uint64_t ceil_ns = s->end_ns - 1;

	if (!known(begin_ns) || !known(end_ns) || s->phase_count == SPAN_PHASES_MAX || s->end_ns <= s->begin_ns)
		return;
	if (begin_ns < floor_ns)
		begin_ns = floor_ns;
	if (end_ns > ceil_ns)
		end_ns = ceil_ns;
	if (end_ns <= begin_ns)
		return;
	s->phases[s->phase_count++] = (struct span_phase){name, begin_ns, end_ns};
}

int span_take_args(struct span *s, const struct json *j, struct buf *text)
{
	int err = j->err ? -ENOMEM : 0;

	if (!err && text->len > strlen("{}")) {
		s->args = strndup(text->ptr, text->len);
		err = s->args ? 0 : -ENOMEM;
	}
	buf_release(text);
	return err;
}

int span_put_retransmits(struct span *s, const uint64_t *retransmit_ns, unsigned count)
{
	if (count > SPAN_INSTANTS_MAX)
		count = SPAN_INSTANTS_MAX;
	if (!count)
		return 0;
	s->instants = calloc(count, sizeof(s->instants[0]));
	if (!s->instants)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++)
		s->instants[i] = (struct span_instant){"retransmit", retransmit_ns[i]};
	s->instant_count = count;
	return 0;
}

int span_put_instant(struct span *s, const char *name, uint64_t ts_ns)
{
	struct span_instant *more = realloc(s->instants, (s->instant_count + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	s->instants = more;
	s->instants[s->instant_count++] = (struct span_instant){name, ts_ns};
	return 0;
}
