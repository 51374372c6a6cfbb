/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_LINKS_H
#define ATTACH_LINKS_H

/* Links of many uprobes at once, as libbpf 1.1 does not make them: bpf(2), BPF_LINK_CREATE. */

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>

/* Newer than the headers of Debian 12. */
#define ATTACH_UPROBE_MULTI   48 /* Linux 6.6 */
#define ATTACH_UPROBE_SESSION 57 /* Linux 6.13 */
#define UPROBE_MULTI_RETURN   1

struct link_create { /* union bpf_attr.link_create with uprobe_multi, as of Linux 6.6 */
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t count, multi_flags, pid, zero;
};

/* Its descriptor, or -errno. */
static inline int link_create(struct link_create *attr)
{
	/* The kernel takes a size without the padding at the end as well as one with it: it is zero. */
	int fd = (int)syscall(__NR_bpf, BPF_LINK_CREATE, attr, sizeof(*attr));

	return fd < 0 ? -errno : fd;
}

#endif
