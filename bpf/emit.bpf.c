/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "emit.bpf.h"

/* The kernel lends its helpers only to GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct config cfg = {};
__u64 wire_since_ns = 0; /* wire_list leaves out what has not moved since then: written by user space */
__u32 last_gen = 0;	 /* generations are numbered from 1, over all processes */

/*
 * Generations that carry nothing of interest, each in the slot of its lowest bits. User space writes here, and nothing
 * else of a connection, so that it cannot undo what a program does to a connection's state at the same time.
 */
__u32 ignored[LIMIT_IGNORED] = {};
__u32 calm_epoch = 1;	/* what remembers another one remembers nothing: struct calm, sock_info.steady */
__u32 target_epoch = 1; /* the same of being a target. User space adds to it when it has taken a target away */
/* In the same slot: the generation that its answers come on, if it is half a connection; 0: its own. */
__u32 ignored_answers[LIMIT_IGNORED] = {};

/* Written by user space alone. A slot that another generation takes is a body that is copied. */
struct passed passed[LIMIT_PASSED] = {};

/*
 * HINT_* of processes with these lowest bits of their number, set once and never taken back. Most programs of the
 * machine have none, and pay for a load instead of a look into a hash table.
 */
__u32 target_hints[LIMIT_TARGET_HINTS] = {};

/* When the last probe of a file was set; 0: not all of them are. User space writes. */
__u64 attached_ns[LIMIT_PROBED_FILES] = {};

/* Of a goroutine that begins its first: too large for the stack of a program. */
const __u8 no_calls[sizeof(struct open_calls)] = {};

/* The same of a socket that is met, and of a thread that is given no storage. */
const __u8 no_called[sizeof(struct called)] = {};
const __u8 no_thread[sizeof(struct thread)] = {};

/* Not 0: `stdio_ends` is not empty, or was not once. */
__u32 stdio_any = 0;

/* Not 0: syscall.bpf.c is attached. User space writes it, after it attached and before it detaches. */
__u32 syscalls_seen = 0;

/* Where system calls are needed to see sockets: when there was a reason last, and how many TCP sockets of targets are
 * open that carry plain HTTP or have not shown what they carry. User space reads them. */
__u64 sockets_ns = 0;
__u32 sockets_open = 0;

/* Bytes that waited in the ring at most. A race may lose the very highest of two at once. */
__u64 ring_peak = 0;
/* How often something was put into `tails`: user space need not look through what is empty. */
__u64 tails_noted = 0;

struct overload_level overload = {};

struct ring_map rb SEC(".maps");
struct targets_map targets SEC(".maps");
struct conns_map conns SEC(".maps");
struct threads_map threads SEC(".maps");
struct unstored_map unstored SEC(".maps");
struct go_calls_map go_calls SEC(".maps");
struct socks_map socks SEC(".maps");
struct plains_map plains SEC(".maps");
struct called_map called SEC(".maps");
struct stdios_map stdios SEC(".maps");
struct stdio_ends_map stdio_ends SEC(".maps");
struct wires_map wires SEC(".maps");
struct stats_map stats SEC(".maps");
struct tails_map tails SEC(".maps");

extern void *bpf_rdonly_cast(const void *obj, __u32 type) __ksym __weak;

/* Linux 6.2: as a pointer that nobody vouches for, the verifier looks for no names. */
static __always_inline struct task_struct *own_leader(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (bpf_rdonly_cast)
		task = bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));
	return task->group_leader;
}

int own_key(struct conn_map_key *key)
{
	struct task_struct *leader = own_leader();

	if (!key)
		return 0;
	key->start_ns = leader->start_boottime;
	key->exec_id = leader->self_exec_id;
	key->tgid = leader->tgid;
	return 0;
}

__u64 own_start_ns(void)
{
	return own_leader()->start_boottime;
}

__u32 own_exec_id(void)
{
	return own_leader()->self_exec_id;
}

/* Puts the record types into the object's BTF, where tests/unit/test_abi.c compares them with the other compiler's. */
#define ABI(type) struct type *abi_##type __attribute__((unused))
ABI(ev_data);
ABI(ev_gap);
ABI(ev_conn_open);
ABI(ev_conn_close);
ABI(ev_handshake);
ABI(ev_conn_sock);
ABI(ev_sock);
ABI(ev_wire);
ABI(ev_hello);
ABI(ev_tunnel);
ABI(ev_dns);
ABI(ev_exec);
ABI(ev_fork);
ABI(ev_exit);
ABI(ev_gone);
ABI(ev_sample);
ABI(ev_alloc_free);
ABI(alloc_sums);
ABI(ev_sqlite_text);
ABI(ev_sqlite_run);
ABI(ev_func_call);
ABI(proc_identity);
