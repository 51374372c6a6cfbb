/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_EVENT_H
#define PERFBPF_EVENT_H

/*
 * THE ABI: every record that leaves the kernel, and every record of a capture file. Included by the BPF programs (after
 * vmlinux.h) and by user/flow/record.c, user/attach/probes_parts.h and tests (after <linux/types.h>).
 *
 * Rules. Numbers are explicit and append-only; 0 is invalid; a reader skips and counts kinds it does not know. No
 * packed structs: holes are named and zero. Records are 8-aligned, `size` is a multiple of 8 and covers the variable
 * part, which comes last. All times are CLOCK_BOOTTIME nanoseconds. Native byte order.
 */

#include "limits.h"

#define EV_ABI_VERSION 1

enum ev_kind {
	EV_INVALID = 0,
	EV_DATA = 1,	   /* struct ev_data: plaintext of one direction of a connection */
	EV_GAP = 2,	   /* struct ev_gap: bytes were lost here, how many is unknown */
	EV_CONN_OPEN = 3,  /* struct ev_conn_open: kernel state for a connection generation was made */
	EV_CONN_CLOSE = 4, /* struct ev_conn_close: the library's object is going away (a hint) */
	EV_HANDSHAKE = 5,  /* struct ev_handshake: the TLS handshake of a connection is done */
	EV_CONN_SOCK = 6,  /* struct ev_conn_sock: evidence that a connection uses a socket */
	EV_SOCK = 7,	   /* struct ev_sock: something happened on a TCP socket of a target */
	EV_EXEC = 8,	   /* struct ev_exec: a process runs a new program */
	EV_FORK = 9,	   /* struct ev_fork: a process made a process (threads are not reported) */
	EV_EXIT = 10,	   /* struct ev_exit: a process (its last thread) begins to end */
	EV_PROC = 11,	   /* struct ev_exec, made in user space: a process that already ran at the start */
	EV_LOST = 12,	   /* struct ev_lost, made in user space: snapshot of the kernel's counters */
	EV_TICK = 13,	   /* struct ev_head alone, made in user space: time has passed */
	EV_CONN_POS = 14,  /* struct ev_conn_close, made in user space: how far a connection has come; not its end */
	EV_WIRE = 15,	   /* struct ev_wire: what TCP alone tells of a TLS connection */
	EV_HELLO = 16,	   /* struct ev_hello: the greetings of a TLS connection that a target opened */
	EV_FILES = 17,	   /* struct ev_files, made in user space: what a process maps of what can be probed */
	EV_TOOL_CALL = 18, /* struct ev_tool_call, made in user space: which tool call a program was started for */
	EV_SAMPLE = 19,	   /* struct ev_sample: where a thread of a target ran, or waited */
	EV_FRAME = 20,	   /* struct ev_frame, made in user space: which function an address of a sample is in */
	EV_SAMPLING = 21,  /* struct ev_sampling, made in user space: that there are samples, and what one stands for */
	EV_DNS = 22,	   /* struct ev_dns: a target asked a name server, or was answered */
	EV_CPU = 23,	   /* struct ev_cpu, made in user space: processor time of a process that makes calls */
	EV_SQLITE_TEXT = 24, /* struct ev_sqlite_text: a statement of SQLite was prepared, or could not be */
	EV_SQLITE_RUN = 25,  /* struct ev_sqlite_run: a statement of SQLite has run */
	EV_FUNC_CALL = 26,   /* struct ev_func_call: a function that is traced by name was called, and has ended */
	EV_FUNC = 27, /* struct ev_func, made in user space: which function that is, and how often it was called */
	EV_ALLOC_FREE = 28,   /* struct ev_alloc_free: what a sample of allocation told of was freed */
	EV_ALLOC_WINDOW = 29, /* struct ev_alloc_window, made in user space: allocations of a process were looked at */
	EV_GONE = 30,	      /* struct ev_gone: nothing is left of it, and its parent is told */
	EV_TUNNEL = 31,	      /* struct ev_tunnel: a proxy was asked for a tunnel (CONNECT), or answered */
	EV_KIND_MAX = 31,
};

/* ev_head.flags; 32 was never set by any program */
#define EV_F_CAPPED  1	 /* DATA: orig_len > len because of LIMIT_REQUEST_BYTES: a choice, not a loss */
#define EV_F_FAULT   2	 /* DATA: user memory could not be read, or holds other bytes by now: len is 0 */
#define EV_F_FRESH   4	 /* CONN_OPEN: seen from its first byte (SSL_new or first handshake was seen); DATA: it was */
#define EV_F_APPROX  8	 /* HANDSHAKE: end taken from the reads and writes around it */
#define EV_F_LOCAL   16	 /* CONN_CLOSE: the traced program closed first (else: unknown by whom) */
#define EV_F_PLAIN   64	 /* CONN_OPEN: a socket without TLS; ev_conn.obj is its cookie */
#define EV_F_IGNORED 128 /* DATA: orig_len > len because user space ignores the connection: a choice */
#define EV_F_STDIO   256 /* CONN_OPEN, with EV_F_PLAIN: JSON-RPC with a child over its standard input and output */

/*
 * All records of a connection: it is half of one. Where the probes see a cipher at work and no TLS object, `obj` is the
 * cipher's: one direction of a connection, and only until its next key. Which connection that is, its socket tells
 * (EV_SOCK_RECORDS).
 */
#define EV_F_HALF 512

struct ev_head {
	__u32 size; /* whole record, multiple of 8 */
	__u16 kind;
	__u16 flags;
	__u64 ts_ns; /* when it happened; for a call: when it returned */
	__u32 tgid;  /* process; 0 where the event is attributed by socket cookie only */
	__u32 tid;
};

/*
 * A connection generation: of a TLS library's object, or of a socket that carries plain HTTP (EV_F_PLAIN). The latter
 * belongs to the process that made the first call seen on it, also when another one shares it, until that one ends. Its
 * calls have no entry probe: entry_ns is ts_ns, the time at which the system call had moved the bytes. Together with
 * ev_head.tgid it is unique in a run; `gen` alone is too (live).
 *
 * Standard input and output of a child that speaks JSON-RPC (EV_F_STDIO) are one connection of the process that started
 * it: what that one writes to the child's input is TX, what it reads from the child's output is RX. `obj` are the inode
 * numbers of both (STDIO_OBJ), which may be pipes or, as some runtimes have it, the parent's ends of Unix sockets.
 */
struct ev_conn {
	__u64 obj;	/* the library's object (SSL *), only an address; or a socket cookie */
	__u64 start_ns; /* start time of the process (task->start_boottime of the leader) */
	__u32 exec_id;	/* rises with each exec of the process (task->self_exec_id) */
	__u32 gen;	/* generation of `obj`: SSL_new, handshake on an established connection, new socket */
};

#define STDIO_OBJ(in, out) ((__u64)(__u32)(in) << 32 | (__u32)(out))

#define EV_DIR_TX 0 /* written by the traced program */
#define EV_DIR_RX 1 /* read by the traced program */

struct ev_data {
	struct ev_head h;
	struct ev_conn conn;
	__u64 pos;	/* place of the first byte in this direction, one atomic add in the kernel */
	__u64 entry_ns; /* when the call began (h.ts_ns: when it returned) */
	__u32 len;	/* bytes here */
	__u32 orig_len; /* bytes that the program moved; > len is a gap */
	__u8 dir;
	__u8 pad[7];
	__u8 bytes[];
};

struct ev_gap {
	struct ev_head h;
	struct ev_conn conn;
	__u64 pos; /* the gap lies just before this position; positions go on without it */
	__u8 dir;
	__u8 pad[7];
};

struct ev_conn_open {
	struct ev_head h;
	struct ev_conn conn;
};

struct ev_conn_close {
	struct ev_head h;
	struct ev_conn conn;
	__u64 pos[2]; /* final positions: what is missing up to here was lost */
};

struct ev_handshake {
	struct ev_head h; /* ts_ns: end of the handshake */
	struct ev_conn conn;
	__u64 begin_ns; /* entry of the first TLS call on the object */
};

/* How a socket was tied to a TLS connection. */
#define EV_SOCK_INSIDE 1 /* the socket call ran inside the TLS call: proof */
#define EV_SOCK_AFTER  2 /* first send on the thread after a TLS write: vote */
#define EV_SOCK_BEFORE 3 /* last receive on the thread before a TLS read: vote */
#define EV_SOCK_ITSELF 4 /* the connection is this socket (EV_F_PLAIN): proof */
/* EV_F_HALF: the records that the thread sealed before it sent, or opened after it received, are exactly as long as
 * what the socket call moved: proof. EV_F_FRESH: nothing of the socket's TLS was missed, every probe was there before
 * its connect(). plain_len: those records, framing included. */
#define EV_SOCK_RECORDS 5

struct ev_addr {
	__u16 family; /* AF_INET or AF_INET6, 0 unknown */
	__u16 lport;  /* host byte order */
	__u16 rport;
	__u16 pad;
	__u8 laddr[16]; /* AF_INET: first 4 bytes */
	__u8 raddr[16];
};

struct ev_conn_sock {
	struct ev_head h;
	struct ev_conn conn;
	__u64 cookie; /* bpf_get_socket_cookie */
	struct ev_addr addr;
	__u32 wire_len;	 /* bytes the socket call moved */
	__u32 plain_len; /* plaintext bytes of the TLS calls it is held against */
	__u8 how;
	__u8 dir;
	__u8 pad[6];
};

/* ev_sock.what */
#define EV_SK_CONNECTED	     1 /* SYN_SENT -> ESTABLISHED; begin_ns: when connect() began */
#define EV_SK_CONNECT_FAILED 2 /* SYN_SENT -> CLOSE; begin_ns as above, srtt_us: see there */
#define EV_SK_CLOSE_LOCAL    3 /* the program closed first (ESTABLISHED -> FIN_WAIT1) */
#define EV_SK_CLOSE_REMOTE   4 /* the peer closed first (ESTABLISHED -> CLOSE_WAIT) */
#define EV_SK_CLOSED	     5 /* -> CLOSE */
#define EV_SK_RETRANSMIT     6
#define EV_SK_RESET_SENT     7
#define EV_SK_RESET_RECEIVED 8
#define EV_SK_RTT	     9 /* srtt_us changed noticeably */
/* From begin_ns to h.ts_ns, at least LIMIT_DELAY_NS: */
#define EV_SK_LATE   10 /* received bytes lay in the kernel, until the program read */
#define EV_SK_RESENT 11 /* sent bytes were on the way, some of them again, for a round trip after that */
#define EV_SK_HOLE   12 /* bytes had been received behind others that were missing, until those came */
/* The shortest round trip of late changed noticeably: srtt_us is that one here. The first is that of EV_SK_CONNECTED.
 */
#define EV_SK_RTT_MIN 13
/* A proxy that was asked for a way on (CONNECT, SOCKS) answered; nothing of the connection itself moved before. */
#define EV_SK_PROXY	 14
#define EV_SK_CONNECTING 15 /* CLOSE -> SYN_SENT */
/* As EV_SK_LATE: sent bytes lay in the kernel, until the last of them was sent and had arrived. */
#define EV_SK_QUEUED 16

struct ev_sock {
	struct ev_head h; /* tgid: owner as recorded at connect or first send (the next user's, once
			   * that has ended), never "current" of a softirq */
	__u64 cookie;
	__u64 begin_ns; /* 0: `what` is a moment */
	struct ev_addr addr;
	__u32 what;
	__u32 srtt_us; /* smoothed round trip, 0 unknown; of CONNECT_FAILED the errno, 0: the program left it */
};

/* ev_wire.flags */
#define EV_WIRE_HELLO  1  /* a target greeted: the connection was seen from its first TLS byte */
#define EV_WIRE_SERVER 2  /* the other side greeted */
#define EV_WIRE_MERGED 4  /* turns came too fast: this one is many */
#define EV_WIRE_ENDED  8  /* the turn is over: another one begins */
#define EV_WIRE_CLOSED 16 /* the socket is closed */

/*
 * A turn of a TLS connection, as TCP sees it: what went out, and what came back until something went out again. Bytes
 * are those of the wire, TLS records and all. Told when a turn ends, when the socket closes, and on demand; each tells
 * all of its turn so far. Times are those at which the system calls had moved the bytes.
 */
struct ev_wire {
	struct ev_head h; /* ts_ns: latest bytes; tgid: who used the socket first, and has not ended; tid 0 */
	__u64 cookie;
	__u64 start_ns;					      /* of that process */
	__u64 began_ns;					      /* first TLS bytes seen */
	__u64 tx_begin_ns, tx_end_ns, rx_begin_ns, rx_end_ns; /* of the turn; 0: nothing moved (or was not seen) */
	__u64 gap_ns;					      /* longest silence before bytes came in */
	__u64 turn_bytes[2];				      /* by direction */
	__u64 bytes[2];					      /* of all turns */
	struct ev_addr addr;
	__u32 exec_id;
	__u32 turn; /* from 1 */
	__u32 flags;
	__u32 first_type; /* of the first record of the turn, 0 not known */
};

struct ev_hello {
	struct ev_head h;
	__u64 cookie;
	__u32 len;
	__u32 dir; /* TX: a ClientHello; RX: a ServerHello, perhaps without the header of its record */
	__u8 bytes[];
};

struct ev_tunnel {
	struct ev_head h; /* tgid: owner as in ev_sock */
	__u64 cookie;
	__u64 begin_ns; /* connect(), 0 not seen */
	struct ev_addr addr;
	__u32 len;
	__u32 dir;    /* TX: what the program says; RX: what the proxy does */
	__u8 bytes[]; /* the first LIMIT_TUNNEL_BYTES of the call */
};

/* Counts since the exec; a later one replaces an earlier one. The reason of the latest refusal follows, without a NUL.
 */
struct ev_files {
	struct ev_head h; /* tgid: the process */
	__u64 probed_ns;  /* when the probes of the last of them were set, 0: there is none */
	__u32 probed;	  /* 1: it maps files with TLS functions that are probed */
	__u32 refused;	  /* 1: ... that could not be probed */
	__u32 again;	  /* 1: they were probed a second time, because nothing came */
	__u32 reason_len;
	__u8 bytes[];
};

/* ev_sample.what */
#define EV_SAMPLE_CPU	 1 /* it ran: weight_ns is the period of sampling */
#define EV_SAMPLE_OFF	 2 /* it was blocked for weight_ns, and waited for a processor for queue_ns then */
#define EV_SAMPLE_QUEUED 3 /* it was pushed off its processor, and waited for one for queue_ns; no stack */
#define EV_SAMPLE_ALLOC	 4 /* it asked for weight_ns bytes and got them at queue_ns (0: not known); the caller first */
#define EV_SAMPLE_FAULT	 5 /* the last one of weight_ns page faults of its processor */
/* ev_sample.state */
#define EV_SAMPLE_DEEP	 1 /* the user stack goes on: LIMIT_USER_FRAMES */
#define EV_SAMPLE_IOWAIT 2 /* OFF: the kernel calls it waiting for a block device */
#define EV_SAMPLE_DISK	 4 /* OFF: uninterruptible */

/*
 * A stack of a thread, by frame pointers: `kernel_frames` addresses of the kernel, then `user_frames` of the program,
 * each innermost first. Every record carries its own stack: no table in the kernel in which two could collide.
 */
struct ev_sample {
	struct ev_head h; /* ts_ns: when it was taken; of OFF and QUEUED: when the thread ran again */
	__u64 start_ns;	  /* of the process */
	__u64 weight_ns;
	__u64 queue_ns;
	__u32 exec_id;
	__s32 syscall; /* the system call that it was in, by the machine's numbers; -1: none, or not known */
	__u8 what, state;
	__u8 kernel_frames, user_frames;
	__u32 period;		     /* ALLOC: bytes between two samples, in the mean */
	char comm[LIMIT_COMM_BYTES]; /* of the thread */
	__u64 frames[];
};

/* ev_frame.source */
#define EV_FRAME_NATIVE	 1 /* by the symbols of a file */
#define EV_FRAME_KERNEL	 2
#define EV_FRAME_JIT	 3 /* by the map that a runtime wrote */
#define EV_FRAME_PENDING 4 /* code that a runtime made: a later record may name it */
#define EV_FRAME_NOWHERE 5 /* in no executable mapping: a broken stack */

/*
 * The function that an address is in, told before the first sample that has it, and again when more is known. All but
 * the innermost address of a stack are return addresses: `addr` is one less then, inside of the call. The name follows,
 * demangled (none: not known), then that of the file, both without a NUL.
 */
struct ev_frame {
	struct ev_head h; /* tgid: the process; 0: the kernel */
	__u64 start_ns;
	__u64 addr;
	__u32 exec_id;
	__u32 source;
	__u16 name_len, module_len;
	__u32 pad;
	__u8 bytes[];
};

/* Told when sampling begins and when it ends. */
struct ev_sampling {
	struct ev_head h;
	__u64 period_ns;      /* of EV_SAMPLE_CPU; 0: not sampled */
	__u64 off_cpu_min_ns; /* shorter waits are not told; 0: none is */
	__u64 alloc_bytes;    /* of everything that is allocated, one sample in so many; 0: not sampled */
	__u64 fault_period;   /* page faults between two samples of a processor; 0: not sampled */
};

/*
 * What is worse in a program, whose caches and predictors a trap spoils, than in perfbpf's own loop: so much of a hit,
 * once an allocation, whether it meets one trap or four. Measured against programs that say what they allocate, with
 * six allocators: from nothing to 0.4, more on crowded processors and where traps are rare. With this mean, runs at 0.4
 * million allocations a second on two idle processors tell 1.00 to 1.05 of the truth, with bounds of 6 to 7 %.
 */
#define ALLOC_SPOILS 0.16

/*
 * Allocations of a process were looked at for a while, and everything that was seen of them. Samples of it come before
 * it. Processor time is that of the process; what traps took of it is hits * hit_ns + slow_hits * slow_ns + samples *
 * sample_ns + takes * take_ns, as perfbpf measured its own, and ALLOC_SPOILS * count * hit_ns. Without a window
 * (h.ts_ns is begin_ns): how much processor time it has taken by now, or at its end.
 */
struct ev_alloc_window {
	struct ev_head h; /* ts_ns: its end */
	__u64 start_ns;	  /* of the process */
	__u64 begin_ns;
	__u64 since_cpu_ns; /* of the process when it was looked at first */
	__u64 cpu_ns;	    /* and now */
	__u64 window_cpu_ns;
	__u64 bytes, count; /* asked for, by the functions that were probed */
	__u64 hits, slow_hits, samples;
	__u64 all_traps_ns; /* what all traps of the process took up to now, those outside of windows too */
	__u32 hit_ns, slow_ns, sample_ns;
	__u32 period;	  /* of its samples */
	__u64 unfollowed; /* samples whose end could not be looked for: no room */
	__u32 exec_id;
	__u32 follows; /* 1: addresses of its samples are known, and their end */
	/* Not in what an earlier version wrote. */
	__u64 takes; /* functions that take memory back were called; not in hits */
	__u32 take_ns;
	__u32 libraries; /* bit n: enum alloc_library n handed out memory */
};

struct ev_alloc_free {
	struct ev_head h;
	__u64 start_ns; /* of the process */
	__u64 addr;
	__u32 exec_id;
	__u32 pad;
};

/* Also EV_PROC. `filename` then `args` follow, each without a terminating NUL; args are NUL-separated. */
struct ev_exec {
	struct ev_head h;
	__u64 start_ns;
	__u32 exec_id;
	__u32 ppid;
	char comm[LIMIT_COMM_BYTES];
	__u32 filename_len;
	__u32 args_len;
	__u8 bytes[];
};

struct ev_cpu {
	struct ev_head h; /* tgid: the process */
	__u64 start_ns;
	__u64 cpu_ns;  /* user + system, since its start */
	__u64 wait_ns; /* its first thread could have run, and waited for a processor */
};

struct ev_dns {
	struct ev_head h;
	__u64 start_ns; /* of the process */
	__u64 cookie;	/* of the socket */
	__u32 exec_id;
	__u32 len;
	__u8 dir;
	__u8 pad[7];
	__u8 bytes[];
};

struct ev_sqlite_text {
	struct ev_head h;
	__u64 start_ns; /* of the process */
	__u64 stmt;	/* its address; 0: it could not be prepared */
	__u64 entry_ns; /* when the call began */
	__u32 exec_id;
	__s32 result; /* of the call */
	__u32 len;
	__u32 cut; /* 1: the text went on */
	__u8 bytes[];
};

struct ev_sqlite_run {
	struct ev_head h; /* ts_ns: its end; tid: of its first step */
	__u64 start_ns;	  /* of the process */
	__u64 stmt;
	__u64 begin_ns; /* its first step was entered */
	__u64 rows;
	__u32 exec_id;
	__s32 result; /* of the last step; SQLITE_OK: it was reset */
};

struct ev_func_call {
	struct ev_head h; /* ts_ns: its end */
	__u64 start_ns;	  /* of the process */
	__u64 begin_ns;
	__u32 exec_id;
	__u32 func;  /* as in ev_func */
	__u32 depth; /* calls that are open around it, of any traced function */
	__u32 pad;
};

/* ev_func.state */
#define EV_FUNC_TRACED	1
#define EV_FUNC_NOWHERE 2 /* no target maps it */
#define EV_FUNC_REFUSED 3 /* it cannot be probed */
#define EV_FUNC_STOPPED 4 /* it was called too often: the probes were taken away */

/* A later record replaces an earlier one. The name as the user gave it follows (BINARY:SYMBOL), without a NUL. */
struct ev_func {
	struct ev_head h; /* tgid 0 */
	__u64 calls;	  /* counted, also those without a span */
	__u64 untold;	  /* ended ones without a span: past LIMIT_FUNC_SPANS */
	__u32 func;
	__u32 state;
	__u32 name_len;
	__u32 pad;
	__u8 bytes[];
};

/* The value of CODEX_TOOL_CALL_ID in its environment follows, without a NUL. */
struct ev_tool_call {
	struct ev_head h; /* tgid: the process */
	__u64 start_ns;
	__u32 exec_id;
	__u32 len;
	__u8 bytes[];
};

struct ev_fork {
	struct ev_head h; /* tgid: the parent */
	__u64 child_start_ns;
	__u32 child_tgid;
	__u32 pad;
};

struct ev_exit {
	struct ev_head h;
	__u64 start_ns;
	__u32 exec_id;
	__s32 code;	   /* exit status, 0..255; -1: made in user space, it is gone and nobody told its end */
	__s32 signal;	   /* 0: exited */
	__u32 max_rss_kib; /* most memory that was resident at once, its earlier programs included; 0 unknown */
	__u64 cpu_ns;	   /* user + system time of the whole process, 0 unknown */
};

/*
 * After EV_EXIT, when the parent gets its SIGCHLD: what a shell, or an agent, that waits for a child waits for. Memory
 * is given back in between (since Linux 6.16; before, ahead of EV_EXIT): 0.4 s for a GiB in small pages. None where the
 * parent ignores SIGCHLD.
 */
struct ev_gone {
	struct ev_head h;
	__u64 start_ns;
	__u64 cpu_ns; /* as in ev_exit */
};

/* Counters of the kernel side, per CPU, index = id (but one): append-only, a capture holds them in this order. X(ID,
 * which of base/lost.h it is shown as; LOST_COUNT: as none): only user space looks at the second. */
#define EV_STATS(X)                                                                                                    \
	X(ST_RING_RECORDS, LOST_RING_RECORDS)	 /* records that found no room in the ring */                          \
	X(ST_RING_BYTES, LOST_RING_BYTES)	 /* plaintext bytes in them */                                         \
	X(ST_STATE_FULL, LOST_STATE_FULL)	 /* a map was full, or thread storage was refused */                   \
	X(ST_NEST_OVERFLOW, LOST_NEST_OVERFLOW)	 /* more than LIMIT_NEST TLS calls open on one thread */               \
	X(ST_MISSED_RETURN, LOST_MISSED_RETURNS) /* a call was entered and its return never seen */                    \
	X(ST_FAULT, LOST_FAULTS)		 /* user memory that could not be read */                              \
	X(ST_UNSEEN, LOST_UNSEEN_BYTES)		 /* bytes moved where no probe looks (sendfile and the like) */        \
	X(ST_SAMPLES, LOST_SAMPLES)		 /* samples that found no room in the ring, or no end */               \
	X(ST_OVERLOAD, LOST_OVERLOAD)		 /* plaintext that was not copied: more came than was drained */       \
	X(ST_IGNORED_BYTES, LOST_COUNT)		 /* no loss: bytes on the wire of connections ignored for good */      \
	X(ST_UNTRACED, LOST_TARGETS)		 /* counted in user space: targets, functions that are not traced */

enum ev_stat {
#define X(id, lost) id,
	EV_STATS(X)
#undef X
		ST_COUNT,
};

struct ev_lost {
	struct ev_head h;
	__u64 stats[ST_COUNT]; /* sums over CPUs since the start */
};

/* What a thread does that the kernel makes no storage for, see thread.bpf.h: */
#define UNSTORED_LOST 0 /* is lost and counted: what is stored may not be found either (before Linux 6.2) */
#define UNSTORED_KEPT 1
#define UNSTORED_ALL  2 /* is kept, and no storage is made for any: for tests */

/* Set by the loader before load: `const volatile struct config cfg` in emit.bpf.c. */
struct config {
	__u32 self_tgid;      /* perfbpf itself: never a target */
	__u8 follow_exec;     /* 1: every exec of the machine becomes a provisional target and is reported (-n) */
	__u8 read_dynptr;     /* 1: bpf_probe_read_user_dynptr exists here */
	__u8 sock_length;     /* 1: sock_send_length and sock_recv_length exist here */
	__u8 all;	      /* 1: every process is a target, from its fork or exec on (-a); then follow_exec is 0 */
	__u32 request_bytes;  /* LIMIT_REQUEST_BYTES, or less */
	__u32 page_kib;	      /* size of a page */
	__u32 period_ns;      /* --cpu: time between samples */
	__u32 off_cpu_min_ns; /* --off-cpu: the shortest wait that is told */
	__u8 db;	      /* 1: sockets that may be a database's are read too (--db) */
	__u8 http;	      /* 1: the heads of all HTTP are wanted (--http) */
	__u8 unstored;	      /* UNSTORED_* */
	__u8 pad;
	__u32 fault_period; /* --alloc: page faults between samples */
	__u32 ring_bytes;
	__u32 pad2;
};

/*
 * What a uprobe's attach cookie says, so that one program serves every function of every library:
 * how to find the object, the buffer and the moved length.
 */
enum tls_role {
	TLS_ROLE_NONE = 0,
	TLS_ROLE_READ = 1,
	TLS_ROLE_WRITE = 2,
	TLS_ROLE_HANDSHAKE = 3,
	TLS_ROLE_NEW = 4, /* the object is the return value */
	TLS_ROLE_FREE = 5,
};
/* Length from: the return value (> 0), or *(size_t *)argument N when the function returned > 0. N counts from 1. */
#define TLS_LEN_RET 0
/* HANDSHAKE: success is 1 (OpenSSL); with this in the place of the argument number it is 0 (GnuTLS). */
#define TLS_HANDSHAKE_ZERO 1
/* How the function is called, and what of it the probe stands on. */
enum tls_abi {
	TLS_ABI_C = 0, /* f(object, buffer, length, …), entry and return seen by one link */
	/* aws-lc, BoringSSL: EVP_AEAD_CTX_open (READ) and _seal (WRITE); 1 is success. Argument 1 is the object, `in`
	 * and `in_len` are arguments 7 and 8 (on the stack), `out` 2, `*out_len` 3. One object a direction and key
	 * epoch. */
	TLS_ABI_AEAD = 1,
	/* Go's register ABI: receiver RAX, slice RBX and RCX; n in RAX at a RET. Keyed by g (R14). Entry-only probes.
	 */
	TLS_ABI_GO_ENTRY = 2,
	TLS_ABI_GO_RETURN = 3,
	/* Functions of SQLite; their roles are SQLITE_ROLE_*. PREPARE: the length's argument number is that of **stmt.
	 */
	TLS_ABI_SQLITE = 4,
	/* A function by name (-f). Its role is FUNC_ROLE_*, the place of the length's argument is its number. */
	TLS_ABI_FUNC = 5,
};
#define FUNC_ROLE_CALL	1 /* its entry, and a return probe */
#define FUNC_ROLE_ENTRY 2 /* its entry; it has FUNC_ROLE_END too */
#define FUNC_ROLE_END	3 /* a RET of it, or a jump into another function */
/*
 * Attach cookies of alloc.bpf.c: the function's role; which registers say how much (their product), and the address
 * (that it takes back, of ALLOC_ROLE_AT where it will put it): 1 + its number in the instruction set, of x86-64 one
 * that calls do not keep, of others one that arguments are in; 0: none. Then which allocator it belongs to, and whether
 * a hit is single-stepped.
 */
enum alloc_role { ALLOC_ROLE_NEW = 1, ALLOC_ROLE_RENEW = 2, ALLOC_ROLE_AT = 3, ALLOC_ROLE_FREE = 4 };
enum alloc_library {
	ALLOC_OTHER,
	ALLOC_GLIBC,
	ALLOC_MUSL,
	ALLOC_JEMALLOC,
	ALLOC_MIMALLOC,
	ALLOC_TCMALLOC,
	ALLOC_NEW, /* operator new of a C++ library that hands on */
	ALLOC_LIBRARIES,
};
#define ALLOC_COOKIE(role, size, times, address, library, slow)                                                        \
	((__u64)(role) | ((__u64)(size) << 8) | ((__u64)(times) << 16) | ((__u64)(address) << 24) |                    \
	 ((__u64)(library) << 32) | ((__u64)(slow) << 40))
/* Its number of LIMIT_ALLOC_SITES, from 1; 0: how it is called is not counted. */
#define ALLOC_COOKIE_PLACE(site) ((__u64)(site) << 48)
#define ALLOC_COOKIE_ROLE(c)	 ((__u32)((c)&0xff))
#define ALLOC_COOKIE_SIZE(c)	 ((__u32)(((c) >> 8) & 0xff))
#define ALLOC_COOKIE_TIMES(c)	 ((__u32)(((c) >> 16) & 0xff))
#define ALLOC_COOKIE_ADDRESS(c)	 ((__u32)(((c) >> 24) & 0xff))
#define ALLOC_COOKIE_LIBRARY(c)	 ((__u32)(((c) >> 32) & 0xff))
#define ALLOC_COOKIE_SLOW(c)	 ((__u32)(((c) >> 40) & 1))
#define ALLOC_COOKIE_SITE(c)	 ((__u32)(((c) >> 48) & 0xffff))

/* What alloc.bpf.c counts: sums that only grow, in the slot of the processor. */
struct alloc_sums {
	__u64 hits, slow_hits; /* of its process, also just outside of the window; see takes */
	__u64 count, bytes;
	__u64 samples, unfollowed;
	__s64 left;	 /* bytes up to the next sample: user space draws the first of a window */
	__u64 takes;	 /* hits that are not slow, of functions that take memory back */
	__u64 libraries; /* bit n: enum alloc_library n handed out memory */
	__u64 pad[7];
};

/* How a function is called, as far as somebody wanted to know. A count may get lost when two processors count at once.
 */
struct alloc_site {
	__u32 handed; /* by another one that was probed, which handed on to it */
	__u32 direct;
	__u64 handed_bytes, direct_bytes; /* that were asked for */
};

#define SQLITE_ROLE_PREPARE	       1
#define SQLITE_ROLE_STEP	       2
#define SQLITE_ROLE_RESET	       3 /* and finalize: entry only */
#define TLS_COOKIE(role, len_arg, abi) ((__u64)(role) | ((__u64)(len_arg) << 8) | ((__u64)(abi) << 16))
#define TLS_COOKIE_ROLE(c)	       ((__u32)((c)&0xff))
#define TLS_COOKIE_LEN_ARG(c)	       ((__u32)(((c) >> 8) & 0xff))
#define TLS_COOKIE_ABI(c)	       ((__u32)(((c) >> 16) & 0xff))
/* Which of the probed files it is (a slot of attached_ns[], 0: none), and whether no function of it frees an object:
 * kernel state then goes with the socket. */
#define TLS_COOKIE_PLACE(file, unfreed) ((__u64)(file) << 24 | (__u64)(unfreed) << 40)
#define TLS_COOKIE_FILE(c)		((__u32)(((c) >> 24) & 0xffff))
#define TLS_COOKIE_UNFREED(c)		((__u32)(((c) >> 40) & 1))

/*
 * Beginning of a value of the `stdios` map, key STDIO_OBJ: see bpf/stdio.bpf.h. User space deletes it, and its one or
 * two entries of `stdio_ends`, when the parent holds no end any more.
 */
struct stdio_head {
	__u32 verdict;
	__u32 flags;
	__u32 looks;
	__u32 tgid;	 /* the parent */
	__u32 child_ino; /* the child's own end, if that is in `stdio_ends` too; else 0 */
	__u32 noted_s;	 /* when it was met, in seconds */
};
#define STDIO_F_SYSCALLS  1 /* its bytes are seen in system calls only: one of both is a pipe */
#define STDIO_F_FRESH	  2 /* nothing moved before it was known */
#define STDIO_F_BY_READER 4 /* bytes for the child are told when it reads them: system calls were not seen before */
#define STDIO_UNDECIDED	  0
#define STDIO_JSONRPC	  1
#define STDIO_NEVER	  2
#define STDIO_ENDED	  3

/* What target_hints[] says of a process: it was a target once; a Go function of it was probed; it holds the parent's
 * ends of pipes to a child, or is such a child (or its child, which may read in its place); a thread of it had no
 * storage. */
#define HINT_TARGET   1
#define HINT_GO	      2
#define HINT_PARENT   4
#define HINT_CHILD    8
#define HINT_UNSTORED 16

/* Value of the `targets` map (key: tgid). */
struct target {
	__u64 start_ns;
	__u32 provisional; /* 1: user space has not decided yet (follow_exec) */
	__u32 pad;
	__u64 opened_ns; /* when it last opened a TLS record with data (TLS_ABI_AEAD) */
};

/* Key of the `go_calls` map: a goroutine that is inside a TLS call. Only its g stays the same, thread and stack may
 * change. User space deletes those that ended inside one, with their process. */
struct go_key {
	__u64 g;
	__u32 tgid;
	__u32 run; /* tells programs with one process id apart: most have their goroutines at the same addresses */
};

/* func_rates[]: user space reads the counts. */
struct func_rate {
	__u64 window;	 /* of FUNC_WINDOW_NS */
	__u64 in_window; /* spans told in it */
	__u64 calls;
	__u64 untold;
	__u64 stopped; /* user space writes: its probes are being taken away */
};

/* User space writes: see user/attach/overload.h. */
struct overload_level {
	__u32 level;   /* OVERLOAD_* */
	__u32 dropped; /* CONNECTIONS: generations up to this one are not looked at */
};

/* What the proc_list iterator writes for each process. */
struct proc_identity {
	__u64 start_ns;
	__u32 exec_id;
	__u32 tgid;
};

/* What the file_list iterator writes for each mapping of a file. */
struct file_identity {
	__u64 begin, end; /* addresses */
	__u64 ino;
	__u32 dev; /* the kernel's dev_t */
	__u32 pad;
};

/* Key of the `conns` map. User space deletes: 1 s after CONN_CLOSE (CONN_F_UNFREED: after its
 * socket was closed) if unused since, and at EXIT. */
struct conn_map_key {
	__u64 obj;
	__u64 start_ns;
	__u32 tgid;
	__u32 exec_id;
};

/* Value of the `conns` map: the generation of an object that lives now. */
#define CONN_F_FRESH	1	       /* seen from its first byte */
#define CONN_F_SHAKEN	2	       /* HANDSHAKE was reported, or can no longer be */
#define CONN_F_FREED	4	       /* SSL_free was seen and no call since */
#define CONN_F_INSIDE	8	       /* a socket call ran inside a TLS call: no votes are needed */
#define CONN_F_GAP(dir) (16u << (dir)) /* a GAP record is owed: the ring was full */
#define CONN_F_HALF	64	       /* EV_F_HALF */
#define CONN_F_UNFREED	128	       /* no call will tell that the object is gone */
struct conn_state {
	__u64 pos[2];
	__u64 request_bytes; /* written since the last successful read */
	__u64 answer_bytes;  /* copied of reads since the last write, while there is an overload */
	__u64 first_call_ns; /* entry of the first TLS call, 0 none yet */
	__u64 last_fail_ns;  /* return of the last TLS call that moved nothing */
	__u64 used_ns;	     /* last call or SSL_free */
	__u64 cookie[2];     /* socket of calls inside TLS calls, by direction; 0 not seen */
	__u32 gen;
	__u32 flags;
	__u32 votes;
	__u32 salt; /* CONN_F_HALF: first 4 bytes of the nonce, one value a key */
	/* Reads that were not copied because the connection is ignored: [skip_from, skip_end) of direction RX is not
	 * told yet. The reader moves both, skip_end last; whoever tells takes with compare-and-swap on skip_from. */
	__u64 skip_from, skip_end;
	__u64 skip_ns; /* when the last of them was */
};

/* Bytes of a generation before these positions, by direction, are bodies that nobody wants. A slot of `passed`. */
struct passed {
	__u32 gen;
	__u32 pad;
	__u64 until[2];
};

/* Entry of `ignored`, beside the generation: no byte of it will ever be wanted. */
#define IGNORED_FOR_GOOD 0x80000000u

/*
 * Entry of the `tails` map: the latest bytes of this direction that found no room in the ring. If more of them move,
 * their position tells that something is missing; if these were the last ones, only this does. User space takes it out,
 * and pushes it on as EV_CONN_POS.
 */
#define TAIL_KEY(gen, dir) ((__u64)(gen) << 1 | (dir))
struct lost_tail {
	struct ev_conn conn;
	__u64 pos;   /* behind the lost bytes */
	__u64 ts_ns; /* when they moved */
	__u32 tgid;
	__u16 dir;
	__u16 flags; /* EV_F_HALF */
};

#define EV_ASSERT(e) _Static_assert(e, #e)
EV_ASSERT(sizeof(struct ev_head) == 24);
EV_ASSERT(sizeof(struct ev_conn) == 24);
EV_ASSERT(sizeof(struct ev_data) == 80);
EV_ASSERT(sizeof(struct ev_gap) == 64);
EV_ASSERT(sizeof(struct ev_conn_open) == 48);
EV_ASSERT(sizeof(struct ev_conn_close) == 64);
EV_ASSERT(sizeof(struct ev_handshake) == 56);
EV_ASSERT(sizeof(struct ev_addr) == 40);
EV_ASSERT(sizeof(struct ev_conn_sock) == 112);
EV_ASSERT(sizeof(struct ev_sock) == 88);
EV_ASSERT(sizeof(struct ev_wire) == 176);
EV_ASSERT(sizeof(struct ev_hello) == 40);
EV_ASSERT(sizeof(struct ev_tunnel) == 88);
EV_ASSERT(sizeof(struct ev_files) == 48);
EV_ASSERT(sizeof(struct ev_exec) == 64);
EV_ASSERT(sizeof(struct ev_cpu) == 48);
EV_ASSERT(sizeof(struct ev_dns) == 56);
EV_ASSERT(sizeof(struct ev_tool_call) == 40);
EV_ASSERT(sizeof(struct ev_sqlite_text) == 64);
EV_ASSERT(sizeof(struct ev_sqlite_run) == 64);
EV_ASSERT(sizeof(struct ev_func_call) == 56);
EV_ASSERT(sizeof(struct ev_func) == 56);
EV_ASSERT(sizeof(struct ev_fork) == 40);
EV_ASSERT(sizeof(struct ev_exit) == 56);
EV_ASSERT(sizeof(struct ev_gone) == 40);
EV_ASSERT(sizeof(struct ev_sample) == 80);
EV_ASSERT(sizeof(struct ev_frame) == 56);
EV_ASSERT(sizeof(struct ev_sampling) == 56);
EV_ASSERT(sizeof(struct ev_alloc_window) == 160);
EV_ASSERT(sizeof(struct ev_alloc_free) == 48);
EV_ASSERT(sizeof(struct alloc_sums) == 128);
EV_ASSERT(sizeof(struct alloc_site) == 24);
EV_ASSERT(sizeof(struct config) == 40);
EV_ASSERT(sizeof(struct target) == 24);
EV_ASSERT(sizeof(struct go_key) == 16);
EV_ASSERT(sizeof(struct stdio_head) == 24);
EV_ASSERT(sizeof(struct file_identity) == 32);
EV_ASSERT(sizeof(struct conn_map_key) == 24);
EV_ASSERT(sizeof(struct conn_state) == 112);
EV_ASSERT(sizeof(struct lost_tail) == 48);
EV_ASSERT(sizeof(struct passed) == 24);

/* Capture file: this header, then records as above, back to back. */
#define CAPTURE_MAGIC "perfbpf\n"
struct capture_header {
	char magic[8];
	__u32 abi_version;
	__u32 header_size;     /* where the first record begins */
	__u64 start_ns;	       /* CLOCK_BOOTTIME at the start of tracing: zero of start_ms */
	__s64 boot_to_unix_ns; /* add to a boot time to get Unix time; 0: unknown */
	char host[64];
	char kernel[64];
	__u32 axes; /* CAPTURE_DB …: what was asked for beside calls of models; a header that ends before does not say
		     */
	__u32 unused;
};
EV_ASSERT(sizeof(struct capture_header) == 168);
#define CAPTURE_HEADER_MIN 160
#define CAPTURE_DB	   1u
#define CAPTURE_HTTP	   2u

#endif
