/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A capture's records, as replay reads them: sizes from record_size(), then record_push(). Every delivered byte is
 * read. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static volatile uint8_t sum;

static void read_all(const void *ptr, size_t len)
{
	const uint8_t *p = ptr;

	for (size_t i = 0; i < len; i++)
		sum ^= p[i];
}

static void on_data(void *ctx, const struct rec_data *r)
{
	(void)ctx;
	if (r->len > r->orig_len || r->dir > DIR_RX)
		abort();
	read_all(r->ptr, r->len);
}

static void on_exec(void *ctx, const struct rec_exec *r)
{
	(void)ctx;
	read_all(r->comm.ptr, r->comm.len);
	read_all(r->filename.ptr, r->filename.len);
	read_all(r->args.ptr, r->args.len);
}

static void on_hello(void *ctx, const struct rec_hello *r)
{
	(void)ctx;
	read_all(r->bytes.ptr, r->bytes.len);
}

static void on_tunnel(void *ctx, const struct rec_tunnel *r)
{
	(void)ctx;
	read_all(r->bytes.ptr, r->bytes.len);
}

static void on_files(void *ctx, const struct rec_files *r)
{
	(void)ctx;
	read_all(r->reason.ptr, r->reason.len);
}

static void on_sqlite_text(void *ctx, const struct rec_sqlite_text *r)
{
	(void)ctx;
	read_all(r->text.ptr, r->text.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lost lost = {0};
	struct record r;

	record_init(&r, &lost,
		    &(struct record_sink){.on_data = on_data,
					  .on_exec = on_exec,
					  .on_hello = on_hello,
					  .on_tunnel = on_tunnel,
					  .on_files = on_files,
					  .on_sqlite_text = on_sqlite_text});
	while (len) {
		long size = record_size(bytes, len);
		uint8_t *copy;

		if (size <= 0 || (size_t)size > len)
			size = (long)len; /* cut short: the door must say so itself */
		copy = malloc((size_t)size);
		if (!copy)
			return 0;
		memcpy(copy, bytes, (size_t)size);
		record_push(&r, copy, (size_t)size);
		free(copy);
		bytes += size;
		len -= (size_t)size;
	}
	return 0;
}
