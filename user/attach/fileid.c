/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "fileid.h"

#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "base/err.h"
#include "bpf/event.h"

#define KERNEL_MINOR_BITS 20 /* of its dev_t, include/linux/kdev_t.h */

static bool is_mapping(const struct file_identity *id, const struct elf *e)
{
	uintptr_t at = (uintptr_t)e->map;

	return id->begin <= at && at < id->end;
}

static int read_list(int fd, const struct elf *e, struct file_identity *found)
{
	struct file_identity ids[64];
	size_t have = 0;
	ssize_t got;

	while ((got = read(fd, (char *)ids + have, sizeof(ids) - have)) > 0) {
		size_t count;

		have += (size_t)got;
		count = have / sizeof(ids[0]);
		for (size_t i = 0; i < count; i++)
			if (is_mapping(&ids[i], e)) {
				*found = ids[i];
				return 0;
			}
		have -= count * sizeof(ids[0]);
		memmove(ids, ids + count, have);
	}
	return got < 0 ? -errno : -ENOENT;
}

int fileid_read(const struct bpf_program *file_list, const struct elf *e, uint64_t *dev, uint64_t *ino)
{
	union bpf_iter_link_info info = {.task = {.tid = (uint32_t)getpid()}};
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = &info, .link_info_len = sizeof(info));
	struct bpf_link *link = bpf_program__attach_iter(file_list, &opts);
	struct file_identity id;
	int fd, err;

	if (!link) /* before 6.1 there is no filter: the mappings of all processes are looked through */
		link = bpf_program__attach_iter(file_list, NULL);
	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	err = fd < 0 ? -errno : read_list(fd, e, &id);
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	if (err)
		return err;
	*dev = makedev(id.dev >> KERNEL_MINOR_BITS, id.dev & ((1u << KERNEL_MINOR_BITS) - 1));
	*ino = id.ino;
	return 0;
}
