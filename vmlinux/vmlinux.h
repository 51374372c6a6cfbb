/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

/* The kernel's types that the BPF programs read, and no others. See README.md before adding one. */

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };
#define NULL ((void *)0)

/* --- linux/bpf.h ------------------------------------------------------------------------------------------------- */

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1, BPF_SK_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };
enum { BPF_F_USER_STACK = 1 << 8 };

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

/* --- the user's structures, which are for ever ------------------------------------------------------------------- */

struct iovec {
	__u64 base;
	__u64 len;
};

struct user_msghdr {
	__u64 name;
	__u64 name_len; /* an int and a hole */
	__u64 iov;
	__u64 iov_count;
	__u64 control;
	__u64 control_len;
	__u64 flags; /* an unsigned int and a hole */
};

struct mmsghdr {
	struct user_msghdr hdr;
	__u32 len;
	__u32 pad;
};

/* --- sockets ----------------------------------------------------------------------------------------------------- */

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10 };
enum { SOCK_STREAM = 1 };
enum { RCV_SHUTDOWN = 1, SHUTDOWN_MASK = 3 };
enum { IPPROTO_TCP = 6, IPPROTO_UDP = 17 };
enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_FIN_WAIT1 = 4,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	atomic64_t skc_cookie; /* 0: nobody asked for it yet */
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	volatile unsigned char skc_state;
};

struct socket;

struct sk_buff_head {
	u32 qlen;
};

typedef struct {
	int owned; /* 1: a system call works on it, softirqs leave their packets in its backlog */
} socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	struct sk_buff_head sk_receive_queue;
	struct socket *sk_socket;
	int sk_err;
	u8 sk_shutdown;
	u16 sk_type;
	u16 sk_protocol;
};

struct rb_node;

struct rb_root {
	struct rb_node *rb_node; /* NULL: empty */
};

struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3]; /* the first one counts */
};

struct tcp_rack {   /* of what the other side acknowledged (with SACK), the latest that was sent */
	u64 mstamp; /* as tcp_mstamp, when it was */
	u32 end_seq;
};

struct tcp_sock {
	u32 srtt_us; /* smoothed round trip << 3 */
	struct minmax rtt_min;
	u32 dsack_dups; /* segments that the other side says it had already */
	u32 rcv_nxt;
	u32 copied_seq;
	u32 write_seq;
	u32 snd_una;
	u32 snd_nxt;
	u64 tcp_mstamp; /* CLOCK_MONOTONIC in us, as of the latest packet that came or went, or bytes that were read */
	struct rb_root out_of_order_queue;
	u64 bytes_received;
	u64 bytes_acked;
	u32 lsndtime;	   /* in jiffies, when data was sent last */
	u64 tcp_wstamp_ns; /* CLOCK_MONOTONIC, the same: also where it was sent again */
	struct tcp_rack rack;
};

struct inet_connection_sock {
	struct {
		u32 lrcvtime; /* in jiffies, when data came last */
	} icsk_ack;
};

struct unix_sock {
	struct sock *peer;
};

struct file;

struct socket {
	struct sock *sk;
	struct file *file;
};

struct sk_buff {
	char cb[48]; /* TCP: struct tcp_skb_cb, which begins with the sequence number */
};

/* --- files ------------------------------------------------------------------------------------------------------- */

enum { S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFIFO = 0010000 };
enum { FMODE_READ = 1, FMODE_WRITE = 2 };
enum { PIPEFS_MAGIC = 0x50495045 };

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct file {
	unsigned int f_mode;
	struct inode *f_inode;
	void *private_data;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct file *vm_file;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct pipe_inode_info { /* since 6.14 both are inside a union */
	unsigned int head;
	unsigned int tail;
};

/* --- processes --------------------------------------------------------------------------------------------------- */

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live; /* threads left */
	unsigned int flags;
	int group_exit_code;
	unsigned long long sum_sched_runtime; /* of threads that are gone */
	unsigned long maxrss;		      /* pages; complete once the last thread exits */
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

#if defined(__TARGET_ARCH_x86)
struct thread_info {
	u32 status; /* TS_COMPAT: in a 32-bit system call */
};
#endif

struct task_struct {
#if defined(__TARGET_ARCH_x86)
	struct thread_info thread_info;
#endif
	unsigned int flags;
	unsigned int __state;
	unsigned int in_iowait : 1;
	int pid;
	int tgid;
	int exit_code;
	u64 start_boottime;
	u64 self_exec_id;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct mm_struct *mm;
	struct files_struct *files;
	struct signal_struct *signal;
	struct sched_entity se;
	char comm[16];
};

struct linux_binprm {
	const char *filename;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_map;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

/* --- registers --------------------------------------------------------------------------------------------------- */

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
struct pt_regs { /* the kernel's: user_pt_regs and more */
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0;
	__s32 syscallno;
};
#else
#error "no registers for this machine"
#endif

#pragma clang attribute pop

#endif
