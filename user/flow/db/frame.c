/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "frame.h"

#include <errno.h>
#include <string.h>

void frame_init(struct frame_reader *r, unsigned head_len)
{
	memset(r, 0, sizeof(*r));
	r->head_len = head_len;
}

static int end(struct frame_reader *r, const struct frame_sink *sink, const struct stamp *at)
{
	int err;

	if (r->have < r->head_len || r->left)
		return 0;
	err = sink->on_end(sink->ctx, r, at);
	r->have = 0;
	r->lost = false;
	return err;
}

static int head(struct frame_reader *r, const struct frame_sink *sink)
{
	int64_t len;

	if (r->have < r->head_len)
		return 0;
	len = sink->on_head(sink->ctx, r);
	if (len < 0)
		return -EBADMSG;
	r->left = (uint64_t)len;
	return 0;
}

int frame_push(struct frame_reader *r, const struct frame_sink *sink, const uint8_t *ptr, size_t len,
	       const struct stamp *at, size_t *used)
{
	size_t i = 0;
	int err = 0;

	while (i < len && !err) {
		if (r->have < r->head_len) {
			if (!r->have)
				r->first = *at;
			r->head[r->have++] = ptr[i++];
			err = head(r, sink);
		} else {
			size_t n = len - i < r->left ? len - i : (size_t)r->left;

			r->left -= n;
			sink->on_body(sink->ctx, r, ptr + i, n);
			i += n;
		}
		if (!err)
			err = end(r, sink, at);
	}
	*used = i;
	return err;
}

int frame_gap(struct frame_reader *r, const struct frame_sink *sink, uint64_t len, const struct stamp *at)
{
	if (r->have < r->head_len || len > r->left)
		return -EBADMSG;
	r->left -= len;
	r->lost = true;
	return end(r, sink, at);
}
