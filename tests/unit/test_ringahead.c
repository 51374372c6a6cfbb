/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <linux/bpf.h>

#include "attach/ringahead.h"

#define LOOK 4

/* A ring from its reader on: headers and records, with nothing of ours behind them. */
struct ring {
	char bytes[256];
	size_t len;
};

static void add(struct ring *r, const char *text, size_t len, uint32_t bits)
{
	uint32_t header[2] = {(uint32_t)len | bits, 7};

	memcpy(r->bytes + r->len, header, sizeof(header));
	memcpy(r->bytes + r->len + sizeof(header), text, len);
	r->len += sizeof(header) + (len + 7) / 8 * 8;
}

/* As the reader of the first record sees it, in memory that ends where the writers are. The texts with commas. */
static void expect(const struct ring *r, size_t left, const char *want)
{
	struct sv out[LOOK];
	char text[256] = "";
	char *copy = malloc(left);
	uint32_t first;
	unsigned count;

	assert_non_null(copy);
	memcpy(copy, r->bytes, left);
	memcpy(&first, copy, sizeof(first));
	count = ringahead_look(copy + BPF_RINGBUF_HDR_SZ, first, left, out, LOOK);
	assert_true(count <= LOOK);
	for (unsigned i = 0; i < count; i++) {
		assert_true(out[i].ptr >= copy && out[i].ptr + out[i].len <= copy + left);
		strncat(text, out[i].ptr, out[i].len);
		strcat(text, ",");
	}
	assert_string_equal(text, want);
	free(copy);
}

static void those_that_follow(void **state)
{
	struct ring r = {0};

	(void)state;
	add(&r, "first", 5, 0);
	expect(&r, r.len, "first,");
	add(&r, "second!!", 8, 0);
	expect(&r, r.len, "first,second!!,");
	add(&r, "dropped", 7, BPF_RINGBUF_DISCARD_BIT);
	add(&r, "third", 5, 0);
	expect(&r, r.len, "first,second!!,third,");
	add(&r, "fourth", 6, 0);
	add(&r, "fifth", 5, 0);
	expect(&r, r.len, "first,second!!,third,fourth,");
}

static void one_that_is_written_ends_it(void **state)
{
	struct ring r = {0};

	(void)state;
	add(&r, "first", 5, 0);
	add(&r, "second", 6, BPF_RINGBUF_BUSY_BIT);
	add(&r, "third", 5, 0);
	expect(&r, r.len, "first,");
}

/* Where the writers are is believed, a length is not. */
static void nothing_behind_the_writers(void **state)
{
	struct ring r = {0};

	(void)state;
	add(&r, "first", 5, 0);
	add(&r, "second", 6, 0);
	for (size_t left = BPF_RINGBUF_HDR_SZ; left < r.len; left += 8)
		expect(&r, left, left >= 16 ? "first," : "");
	r.bytes[16] = 100;
	expect(&r, r.len, "first,");
	memset(r.bytes + 16, 0x3f, 4);
	expect(&r, r.len, "first,");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_that_follow),
		cmocka_unit_test(one_that_is_written_ends_it),
		cmocka_unit_test(nothing_behind_the_writers),
	};

	return cmocka_run_group_tests_name("ringahead", tests, NULL, NULL);
}
