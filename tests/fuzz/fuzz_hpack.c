/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * A byte that says with which block the late one begins, then blocks: two bytes of length, of which the highest bit
 * says that the late one does not see it, and the block. Whatever the bytes are, the late one's fields are among those
 * of the one that saw all; and that one's are those of libnghttp2 fed with whole blocks.
 */

#include <stdio.h>
#include <stdlib.h>

#include <nghttp2/nghttp2.h>

#include "flow/proto/hpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK_MAX  0x7fff
#define TABLE_MOST (1u << 28) /* the largest integer that hpack.c reads */

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "hpack: %s\n", what);
	abort();
}

static bool same_field(const struct http_header *a, const struct http_header *b)
{
	return sv_eq(a->name, b->name) && sv_eq(a->value, b->value);
}

static bool is_whole(const struct hpack_head *head)
{
	return !head->too_long && head->header_count < HTTP_HEADERS_MAX;
}

/* --- libnghttp2 by itself ---------------------------------------------------------------------------------------- */

/* Whether hpack.h keeps it as a header. */
static bool is_header(const nghttp2_nv *nv)
{
	for (size_t i = 0; i < nv->valuelen; i++)
		if (nv->value[i] == '\0' || nv->value[i] == '\r' || nv->value[i] == '\n')
			return false;
	return http_is_token((struct sv){(const char *)nv->name, nv->namelen});
}

static void check_field(const struct hpack_head *head, size_t *next, const nghttp2_nv *nv)
{
	const struct http_header want = {{(const char *)nv->name, nv->namelen},
					 {(const char *)nv->value, nv->valuelen}};

	if (!is_header(nv) || (*next == head->header_count && !is_whole(head)))
		return;
	check(*next < head->header_count, "a header is missing");
	check(same_field(&want, &head->headers[(*next)++]), "a header is not that of the library");
}

static void check_library(nghttp2_hd_inflater *inflater, const uint8_t *block, size_t len,
			  const struct hpack_head *head)
{
	size_t next = 0;
	int flags = 0;

	while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
		nghttp2_nv nv;
		ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, block, len, 1);

		check(n >= 0, "the library refuses the block");
		block += n;
		len -= (size_t)n;
		if (flags & NGHTTP2_HD_INFLATE_EMIT)
			check_field(head, &next, &nv);
	}
	nghttp2_hd_inflate_end_headers(inflater);
	check(next == head->header_count, "a header too many");
}

/* --- the late one ------------------------------------------------------------------------------------------------ */

static void check_late(const struct hpack_head *all, const struct hpack_head *late)
{
	size_t next = 0;

	if (!is_whole(all))
		return;
	for (size_t i = 0; i < late->header_count; i++) {
		while (next < all->header_count && !same_field(&all->headers[next], &late->headers[i]))
			next++;
		check(next++ < all->header_count, "a late one has a header that was not sent");
	}
	check(all->header_count <= late->header_count + late->unknown, "a header is missing, and not counted");
	if (late->unknown)
		return;
	check(sv_eq(all->method, late->method) && sv_eq(all->path, late->path) && all->status == late->status &&
		      sv_eq(all->authority, late->authority) && sv_eq(all->protocol, late->protocol),
	      "a late one knows all and says something else");
}

/* False: nothing more can be compared. */
static bool step(struct hpack *p, struct hpack *late, nghttp2_hd_inflater *inflater, const uint8_t *block, size_t len)
{
	struct hpack_head head, late_head;
	bool ok = hpack_decode(p, block, len, &head) == 0 && hpack_is_known(p) && !head.unknown;

	if (late)
		check(hpack_decode(late, block, len, &late_head) == 0 || !ok, "a late one refuses a good block");
	if (ok)
		check_library(inflater, block, len, &head);
	if (ok && late)
		check_late(&head, &late_head);
	if (late)
		hpack_head_release(&late_head);
	hpack_head_release(&head);
	return ok;
}

/* Nothing to compare with, but it must not break. */
static void rest(struct hpack *p, const uint8_t *block, size_t len)
{
	struct hpack_head head;

	hpack_decode(p, block, len, &head);
	check(head.header_count <= HTTP_HEADERS_MAX && head.text.len <= HTTP_HEAD_BYTES_MAX, "a head over its caps");
	hpack_head_release(&head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hpack *p = hpack_new(true), *late = hpack_new(false);
	nghttp2_hd_inflater *inflater;
	bool comparable = true;
	unsigned begin = size ? data[0] % 16 : 0;

	/* A larger table than ours makes ours unknown, up to the next one of size 0: the library must not refuse it. */
	if (nghttp2_hd_inflate_new(&inflater) || nghttp2_hd_inflate_change_table_size(inflater, TABLE_MOST))
		abort();
	for (size_t i = 1, n = 0; i + 2 <= size; n++) {
		size_t len = (size_t)(data[i] | data[i + 1] << 8), left = size - i - 2;
		bool seen = n >= begin && !(len > BLOCK_MAX);

		len = (len & BLOCK_MAX) < left ? (len & BLOCK_MAX) : left;
		if (n >= begin && !seen)
			hpack_lose(late);
		if (comparable) {
			comparable = step(p, seen ? late : NULL, inflater, data + i + 2, len);
		} else {
			rest(p, data + i + 2, len);
			rest(late, data + i + 2, len);
		}
		i += 2 + len;
	}
	nghttp2_hd_inflate_del(inflater);
	hpack_free(p);
	hpack_free(late);
	return 0;
}
