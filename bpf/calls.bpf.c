/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls that are lost: see calls.bpf.h. */
#include "calls.bpf.h"

static __always_inline void call_lost(const struct tls_call *call, __u32 stat, __u64 now)
{
	__u32 dir = role_dir(call->role);
	struct conn_map_key key;
	struct conn_state *state;

	stat_add(stat, 1);
	if (dir == NO_DIR)
		return;
	conn_key(&key, call->obj);
	state = conn_of_call(&key, call, false);
	if (state)
		conn_emit_gap(state, &key, dir, now);
}

int call_missed(const struct tls_call *call)
{
	if (call)
		call_lost(call, ST_MISSED_RETURN, bpf_ktime_get_boot_ns());
	return 0;
}

int call_refused(const struct tls_call *call, __u32 stat)
{
	if (call)
		call_lost(call, stat, call->entry_ns);
	return 0;
}
