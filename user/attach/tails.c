/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tails.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <linux/types.h>

#include "bpf/event.h"

struct tails {
	int map_fd;
	const uint64_t *noted;
	uint64_t seen;	      /* of it, when the map was found empty */
	uint64_t advanced_ns; /* event time */
	size_t count;
	struct lost_tail list[LIMIT_TAILS];
};

struct tails *tails_new(int map_fd, const uint64_t *noted)
{
	struct tails *t = malloc(sizeof(*t));

	if (!t)
		return NULL;
	t->map_fd = map_fd;
	t->noted = noted;
	t->seen = t->advanced_ns = 0;
	t->count = 0;
	return t;
}

void tails_free(struct tails *t)
{
	free(t);
}

/* What finds no room stays in the map until the next time. To find that a map is empty the kernel looks at all of its
 * buckets, 64 KiB: not a hundred times a second. */
void tails_collect(struct tails *t)
{
	uint64_t noted = __atomic_load_n(t->noted, __ATOMIC_ACQUIRE);
	__u64 key;

	if (noted == t->seen)
		return;
	while (t->count < LIMIT_TAILS) {
		if (bpf_map_get_next_key(t->map_fd, NULL, &key)) {
			t->seen = noted;
			return;
		}
		if (!bpf_map_lookup_and_delete_elem(t->map_fd, &key, &t->list[t->count]))
			t->count++;
	}
}

static void tell(const struct lost_tail *tail, void (*on_record)(void *ctx, const void *bytes, size_t len), void *ctx)
{
	struct ev_conn_close r = {
		.h = {.size = sizeof(r),
		      .kind = EV_CONN_POS,
		      .ts_ns = tail->ts_ns,
		      .tgid = tail->tgid,
		      .flags = tail->flags},
		.conn = tail->conn,
	};

	r.pos[tail->dir & 1] = tail->pos;
	on_record(ctx, &r, sizeof(r));
}

void tails_tell(struct tails *t, uint32_t tgid, void (*on_record)(void *ctx, const void *bytes, size_t len), void *ctx)
{
	size_t kept = 0;

	for (size_t i = 0; i < t->count; i++) {
		const struct lost_tail tail = t->list[i];

		if (tgid && tail.tgid != tgid)
			t->list[kept++] = tail;
		else
			tell(&tail, on_record, ctx);
	}
	t->count = kept;
}

void tails_advance(struct tails *t, uint64_t ts_ns, void (*on_record)(void *ctx, const void *bytes, size_t len),
		   void *ctx)
{
	size_t kept = 0;

	if (ts_ns < t->advanced_ns + TAILS_EVERY_NS)
		return;
	t->advanced_ns = ts_ns;
	tails_collect(t);
	for (size_t i = 0; i < t->count; i++) {
		const struct lost_tail tail = t->list[i];

		if (tail.ts_ns > ts_ns)
			t->list[kept++] = tail;
		else
			tell(&tail, on_record, ctx);
	}
	t->count = kept;
}
