/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records of samples, of any bytes, added up and written. */
#include "flow/profile.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void on_sample(void *ctx, const struct rec_sample *r)
{
	profile_push_sample(ctx, r);
}

static void on_frame(void *ctx, const struct rec_frame *r)
{
	profile_push_frame(ctx, r);
}

static void on_sampling(void *ctx, const struct rec_sampling *r)
{
	profile_push_sampling(ctx, r);
}

static void on_alloc_window(void *ctx, const struct rec_alloc_window *r)
{
	profile_push_alloc_window(ctx, r);
}

static void on_alloc_free(void *ctx, const struct rec_alloc_free *r)
{
	profile_push_alloc_free(ctx, r);
}

static void on_exit_record(void *ctx, const struct rec_exit *r)
{
	profile_push_exit(ctx, r);
}

static const char *name(void *ctx, const struct proc_key *key, uint32_t *shown_pid)
{
	(void)ctx;
	*shown_pid = key->tgid;
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 5);
	struct record r;
	struct buf out;

	if (!p)
		return 0;
	record_init(&r, &lost,
		    &(struct record_sink){.ctx = p,
					  .on_exit = on_exit_record,
					  .on_sample = on_sample,
					  .on_frame = on_frame,
					  .on_sampling = on_sampling,
					  .on_alloc_window = on_alloc_window,
					  .on_alloc_free = on_alloc_free});
	while (len) {
		long size = record_size(bytes, len);

		if (size <= 0 || (size_t)size > len)
			break;
		record_push(&r, bytes, (size_t)size);
		bytes += size;
		len -= (size_t)size;
	}
	buf_init(&out, 0);
	if (profile_json(p, &out, &(struct profile_namer){NULL, name}, 7))
		__builtin_trap();
	buf_release(&out);
	profile_free(p);
	return 0;
}
