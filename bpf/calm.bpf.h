/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_CALM_BPF_H
#define PERFBPF_CALM_BPF_H

/*
 * Connections that carry nothing of interest, as user space found (flow/interest.h): downloads, most of them, whose
 * program should hardly feel that it is traced. There are two kinds:
 *
 *   - for good (IGNORED_FOR_GOOD): a protocol that is not read, or one that this program serves. No byte will ever be
 *     wanted: its calls are let go at their entry, without the return probe, and TCP counts the bytes.
 *   - until a request comes: positions go on, for which each read's length is needed; and writes are looked at.
 *
 * A thread remembers the connection of its last call if that is ignored (struct thread), so that its next call needs
 * none of the look-ups. Whatever may give the object's address to another connection makes all threads forget.
 */

#include "emit.bpf.h"

/* The entry of `ignored` if it is this generation's, else 0. */
static __always_inline __u32 ignored_entry(__u32 gen)
{
	__u32 entry = ignored[gen & (LIMIT_IGNORED - 1)];

	return (entry & ~IGNORED_FOR_GOOD) == gen ? entry : 0;
}
EV_ASSERT((LIMIT_IGNORED & (LIMIT_IGNORED - 1)) == 0);

static __always_inline bool conn_ignored(__u32 gen)
{
	return ignored_entry(gen) != 0;
}

/* An object is made or freed, or begins a new life. */
static __always_inline void calm_forget(void)
{
	__sync_fetch_and_add(&calm_epoch, 1);
}

#endif
