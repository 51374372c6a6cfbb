/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "fileid.h"

#include <errno.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/bpf.h>

#include "bpf/event.h"
#include "iterator.h"

#define KERNEL_MINOR_BITS 20 /* of its dev_t, include/linux/kdev_t.h */

struct search {
	uintptr_t at; /* mapped there, by us */
	struct file_identity found;
	bool is_found;
};

static bool is_mapping(void *ctx, const void *record)
{
	const struct file_identity *id = record;
	struct search *s = ctx;

	s->is_found = id->begin <= s->at && s->at < id->end;
	if (s->is_found)
		s->found = *id;
	return s->is_found;
}

int fileid_read(const struct bpf_program *file_list, const struct elf *e, uint64_t *dev, uint64_t *ino)
{
	union bpf_iter_link_info over = {.task = {.tid = (uint32_t)getpid()}};
	struct search s = {.at = (uintptr_t)e->map};
	int err = iterator_read(file_list, &over, sizeof(s.found), is_mapping, &s);

	if (err) /* before 6.1 there is no filter: the mappings of all processes are looked through */
		err = iterator_read(file_list, NULL, sizeof(s.found), is_mapping, &s);
	if (err)
		return err;
	if (!s.is_found)
		return -ENOENT;
	*dev = makedev(s.found.dev >> KERNEL_MINOR_BITS, s.found.dev & ((1u << KERNEL_MINOR_BITS) - 1));
	*ino = s.found.ino;
	return 0;
}
