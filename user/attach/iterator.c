/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "iterator.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <linux/bpf.h>

/* The kernel cuts what it writes where the room ends, not where a record does. */
static int read_records(int fd, size_t size, bool (*fn)(void *ctx, const void *record), void *ctx)
{
	uint64_t room[ITERATOR_RECORD_MAX / sizeof(uint64_t)];
	char *bytes = (char *)room;
	size_t have = 0;
	ssize_t got;

	while ((got = read(fd, bytes + have, sizeof(room) - have)) > 0) {
		size_t at;

		have += (size_t)got;
		for (at = 0; have - at >= size; at += size)
			if (fn(ctx, bytes + at))
				return 0;
		have -= at;
		memmove(bytes, bytes + at, have);
	}
	return got < 0 ? -errno : 0;
}

int iterator_read(const struct bpf_program *program, const union bpf_iter_link_info *over, size_t size,
		  bool (*fn)(void *ctx, const void *record), void *ctx)
{
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = (union bpf_iter_link_info *)over,
		    .link_info_len = sizeof(*over));
	struct bpf_link *link = bpf_program__attach_iter(program, over ? &opts : NULL);
	int fd, err;

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	err = fd < 0 ? -errno : read_records(fd, size, fn, ctx);
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return err;
}
