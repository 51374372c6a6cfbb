/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_EMIT_BPF_H
#define PERFBPF_EMIT_BPF_H

/*
 * What every program shares: the maps (defined in emit.bpf.c), who is a target, and the way of a record into the ring.
 *
 * A record is reserved, filled, and submitted. A reserve that fails is counted here; whoever owns a position has moved
 * it already, so that user space sees the hole. Wake-ups cost the traced thread up to 20 us each: there are none,
 * except for urgent records and when the ring crosses a mark (emit_wake); user space drains on a timer.
 */

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "event.h"

#pragma clang diagnostic ignored "-Wunused-parameter" /* BPF_PROG() declares a ctx that few use */
#pragma clang diagnostic ignored "-Wunused-function"  /* headers define what not every object needs */

struct ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024); /* the loader sets the size */
};

struct targets_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_TARGETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* tgid */
	__type(value, struct target);
};

struct conns_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_CONNS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct conn_map_key);
	__type(value, struct conn_state);
};

struct tails_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_TAILS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* TAIL_KEY() */
	__type(value, struct lost_tail);
};

/* A TLS call that has not returned. */
struct tls_call {
	__u64 sp; /* stack pointer that the return will see */
	__u64 ip; /* of the probe: tells a tail call from a stale entry */
	__u64 obj;
	__u64 buf;
	__u64 len_ptr; /* where the moved length will be, unless it is the return value; Go: length of the buffer */
	__u64 entry_ns;
	__u64 inner;   /* first bytes of buf that calls inside this one reported already */
	__u64 recv_ns; /* last receive inside, 0 none */
	__u32 role;
	__u32 inside; /* bit per direction: a socket call ran inside */
	__u32 file;   /* TLS_COOKIE_FILE() */
	__u32 flags;  /* CALL_* */
	union {
		__u32 salt;  /* TLS_ABI_AEAD: see struct conn_state */
		__u32 bound; /* others, with `inside`: lowest bits of the cookie of the socket */
	};
	union {
		struct {	    /* TLS_ABI_AEAD: */
			__u16 wire; /* length of the record, framing included */
			__u16 type; /* of the record; CALL_INNER: not known yet */
		};
		__u32 mark; /* Go: go_mark() of a write's buffer */
	};
};
#define CALL_UNFREED	 1
#define CALL_GO		 2
#define CALL_ON_STACK	 4 /* Go: buf is the distance from the end of the goroutine's stack, which may move */
#define CALL_INNER	 8 /* TLS 1.3: the plaintext ends with its type */
#define CALL_HALF	 16
#define CALL_CALM	 32 /* a read of a connection that is ignored: see calm.bpf.h */
#define CALL_OVERWRITTEN 64 /* Go: what was written is not in the buffer any more */

/* Calls that have not returned, innermost last: of a thread, or of a goroutine. */
struct open_calls {
	__u32 depth;
	__u32 pad;
	struct tls_call calls[LIMIT_NEST];
};

struct go_calls_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_GOROUTINES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct go_key);
	__type(value, struct open_calls);
};

/* Plaintext of a connection whose library writes to memory, waiting for the send that carries it. */
struct waiting_write {
	__u64 obj;
	__u64 ts_ns; /* of the last of it */
	__u32 gen;
	__u32 last_len; /* of the last piece: an earlier one may have been sent, nobody can tell */
	__u64 len;	/* of all pieces */
};

/* The last bytes received by this thread outside TLS calls, waiting for the read that decrypts them. */
struct last_recv {
	__u64 cookie; /* 0: none */
	struct ev_addr addr;
	__u32 wire_len;			/* since the last vote */
	__u32 fresh;			/* 1: no vote since */
	__u64 begin_ns, established_ns; /* of the socket, as in sock_info */
};

/*
 * TLS records that a thread seals, against what it sends; or what it receives, against the records that it opens
 * (TLS_ABI_AEAD). `old` counts the records of TLS 1.2 among them: with AES-GCM each carries 8 bytes more on the wire
 * (RFC 5288 section 3), with ChaCha20-Poly1305 none (RFC 7905 section 2), which the cipher's caller does not tell.
 */
struct record_sum {
	__u64 wire;  /* by the socket */
	__u64 bytes; /* by the cipher */
	__u32 old;
	__u32 pad;
};

struct sealed {
	__u64 obj; /* the last cipher; 0: nothing waits */
	struct record_sum sum;
	__u32 gen;
	__u32 file;
};

struct opened {
	__u64 cookie;
	struct record_sum turn;	 /* from a receive after an open up to here */
	struct record_sum total; /* since they last agreed */
	__u32 opening;		 /* 1: a record was opened since the last receive */
	__u32 pad;
};

/* sendmmsg and recvmmsg: which message comes next. The call does not say, it has one tracepoint a message. */
struct last_mmsg {
	__u64 array; /* of the caller, 0: none */
	__u64 cookie;
	__u32 next;
	__u32 pad;
};

/* The connection of the thread's last call, if it is ignored and its socket is known: see calm.bpf.h. */
struct calm {
	__u64 obj; /* 0: none */
	__u32 gen;
	__u32 exec_id;
	__u32 epoch;  /* calm_epoch, when that was so */
	__u32 closed; /* 1: an SSL_free will tell that the object is gone */
};

/* What each call looks at comes first. */
struct thread {
	__u32 target_epoch; /* what the variable was when the thread's process was a target; 0: it was not */
	__u32 waiting;	    /* bit per slot of `writes` that is in use */
	__u64 wrote_ns;	    /* latest write to one of them; 0: a send was since */
	struct calm calm;
	struct open_calls open;
	struct last_recv recv;
	struct last_mmsg mmsg;
	struct sealed sealed;
	struct opened opened;
	struct waiting_write writes[LIMIT_WRITES];
};
EV_ASSERT(LIMIT_WRITES <= 32 && (LIMIT_WRITES & (LIMIT_WRITES - 1)) == 0);

struct threads_map {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
};

/* Threads without storage: see thread.bpf.h. */
struct unstored_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_UNSTORED);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* address of struct task_struct */
	__type(value, struct thread);
};

/* sock_info.plain: whether the bytes of the socket are plain HTTP. */
#define PLAIN_UNDECIDED 0
#define PLAIN_HTTP	1 /* it has an entry in `plains` */
#define PLAIN_NEVER	2
#define PLAIN_STDIO	3 /* parent's end of standard input or output of a child: sock_info.stdio */
#define PLAIN_CHILD	4 /* the child's own end of it */

/* What is known of a socket of a target. Softirq events find their owner here, never in the current task. */
struct sock_info {
	/* What each call and each packet looks at comes first: a line of memory that is not at hand costs more than
	 * what is done with it. */
	__u64 cookie;
	__u32 tls;  /* TLS_*: see wire.bpf.h */
	__u32 tied; /* 1: a TLS call was */
	__u32 gen;  /* of the connection whose calls use it in both directions; 0: not known */
	__u32 calm; /* 1: its latest bytes were those of an ignored connection, nothing is told of such */
	/* calm_epoch, when it was known to carry that connection and no other, in both directions: what moves over it
	 * is of calls that tell themselves what there is to tell. 0: not known. */
	__u32 steady;
	__u32 tgid;
	__u32 srtt_us;	  /* as reported, 0 never */
	__u32 rtt_min_us; /* as reported, 0 never */
	/* See delay.bpf.c; 0: no such thing at the moment. */
	__u64 unread_us; /* since then (of the socket's clock) bytes lie in the kernel */
	__u64 hole_ns;	 /* since then some lie behind others that are missing */
	__u64 resent_ns; /* when bytes were sent that were sent again */
	/* Less often looked at. */
	__u64 queued_us;  /* since when sent bytes wait for the network to take them (by the socket's clock); 0: none */
	__u64 sent_us;	  /* when bytes were sent (by the socket's clock), with none on the way before */
	__u64 again_ns;	  /* when they were sent again, last */
	__u32 unread_seq; /* how far it was read at unread_us */
	__u32 resent_una; /* how far was acknowledged when they were sent again first */
	__u32 dsack_dups; /* as it was then */
	__u32 ca_state;	  /* enum tcp_ca_state */
	__u64 rtt_ns;	  /* when srtt_us was reported */
	__u64 begin_ns;	  /* connect(), 0 not seen */
	__u64 established_ns; /* or a proxy's answer; 0: not seen, or other things than TLS came first */
	__u64 moved_ns;	      /* last bytes before a TLS call was tied to it, 0 none */
	__u32 plain;
	__u32 looks[2];	     /* calls of each direction that did not decide `plain` */
	__u32 look_bytes[2]; /* and what they moved */
	__u32 dns;	     /* 1: a name server was asked over it */
	__u32 connector;     /* thread that called connect(), 0 not seen */
	__u32 pad;
	__u64 stdio;	     /* key of `stdios` */
	struct ev_addr addr; /* family 0: not complete yet */
	/* What moved while it was calm, or steady, and is to be added up. Far from what packets look at on another
	 * processor. */
	__u64 calm_bytes[2];
	__u64 unread_bytes; /* of them those that no probe counted: not in ST_IGNORED_BYTES yet */
	__u64 steady_us;    /* when the latest of them moved while it was steady (of the socket's clock); 0: not */
};

struct socks_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sock_info);
};

/* A socket that carries plain HTTP: its connection, and whose it is. */
struct plain {
	struct conn_state conn;
	struct conn_map_key key;
	__u32 copied_seq; /* of TCP: how far the socket had been read after the last read that was seen */
	__u32 copied;	  /* 1: that is known */
};

/* A socket of a target where only system calls show its bytes, which do not hand over the socket itself: no storage of
 * its own, but this. */
struct called {
	__u64 ino;     /* of the socket: an address is used again */
	__u64 counted; /* 1: in sockets_open */
	struct sock_info info;
	struct plain plain;
};

struct called_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_CONNS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* address of struct sock */
	__type(value, struct called);
};

/* Standard input and output of a child: see stdio.bpf.h. */
struct stdio {
	struct stdio_head head;
	__u64 in;	    /* the child's input: struct pipe_inode_info, or struct sock */
	struct plain plain; /* the connection; plain.key: of the parent */
};

struct stdios_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_STDIO);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* STDIO_OBJ() */
	__type(value, struct stdio);
};

/* Which of them an inode belongs to: a pipe, or an end of a Unix socket. */
#define STDIO_IN    0 /* the child's input; a socket may be its output too */
#define STDIO_OUT   1
#define STDIO_CHILD 2 /* the child's own end of its input, where its reads count */
struct stdio_end {
	__u64 obj;
	__u64 which;
};

struct stdio_ends_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 3 * LIMIT_STDIO);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* inode number */
	__type(value, struct stdio_end);
};

struct plains_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct plain);
};

#define GREETED_NOT    0
#define GREETED_HEADER 1
#define GREETED_ALL    2
/* A socket that carries TLS: what is told of it. */
struct wire {
	struct ev_wire ev; /* as it will be told */
	__u32 credit;	   /* turns that may follow each other at once */
	__u32 quiet;	   /* 1: turns are not told, only what user space asks for */
	__u32 greeted;	   /* GREETED_*: how much of the server's greeting was read */
	__u32 pad;
};

struct wires_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wire);
};

struct stats_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ST_COUNT);
	__type(key, __u32);
	__type(value, __u64);
};

extern const volatile struct config cfg;
extern __u32 last_gen;
extern __u64 wire_since_ns;
extern __u32 ignored[LIMIT_IGNORED];
extern __u32 calm_epoch;
extern __u32 target_epoch;
extern __u32 ignored_answers[LIMIT_IGNORED];
extern struct passed passed[LIMIT_PASSED];
extern __u32 target_hints[LIMIT_TARGET_HINTS];
extern __u64 attached_ns[LIMIT_PROBED_FILES];
extern const __u8 no_calls[sizeof(struct open_calls)];
extern __u64 ring_peak;
extern __u64 tails_noted;
extern struct overload_level overload;
extern struct ring_map rb SEC(".maps");
extern struct targets_map targets SEC(".maps");
extern struct conns_map conns SEC(".maps");
extern struct threads_map threads SEC(".maps");
extern struct unstored_map unstored SEC(".maps");
extern struct go_calls_map go_calls SEC(".maps");
extern struct socks_map socks SEC(".maps");
extern struct plains_map plains SEC(".maps");
extern struct stdios_map stdios SEC(".maps");
extern struct stdio_ends_map stdio_ends SEC(".maps");
extern struct called_map called SEC(".maps");
extern const __u8 no_called[sizeof(struct called)];
extern const __u8 no_thread[sizeof(struct thread)];
extern __u32 stdio_any;
extern __u64 sockets_ns;
extern __u32 sockets_open;
extern __u32 syscalls_seen;
extern struct wires_map wires SEC(".maps");
extern struct stats_map stats SEC(".maps");
extern struct tails_map tails SEC(".maps");

/* In a session: 1: this is the return; 0: the entry. (libbpf 1.1 links no kfunc that two objects name.) */
extern int session_returns(void);

/*
 * For what was compared before a call of a function that is not inlined, and is asked again after it. Linux before 6.4
 * may forget, while it verifies such a function, which registers of the caller matter; then what held on one path holds
 * on all for it, and the code of the others is removed as dead. Memory that was written in part is not known to it.
 */
#define READ_AGAIN(part) (*(const volatile typeof(part) *)&(part))

/* A call pushes the return address on x86: when the function has returned, the stack pointer is that much higher. */
#if defined(__TARGET_ARCH_x86)
#define RETURN_SP_SHIFT 8
#else
#define RETURN_SP_SHIFT 0
#endif

/* Atomic although per CPU: a program on a user thread can be preempted by another one on its CPU. */
static __always_inline void stat_add(__u32 id, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(&stats, &id);

	if (value)
		__sync_fetch_and_add(value, n);
}

static __always_inline bool is_hinted(__u32 tgid, __u32 hints)
{
	return target_hints[tgid & (LIMIT_TARGET_HINTS - 1)] & hints;
}

static __always_inline void hint(__u32 tgid, __u32 hints)
{
	if ((target_hints[tgid & (LIMIT_TARGET_HINTS - 1)] & hints) != hints)
		__sync_fetch_and_or(&target_hints[tgid & (LIMIT_TARGET_HINTS - 1)], hints);
}

/*
 * Of the current process. Out of line: each time that the verifier comes by a read through task->group_leader it may
 * look twice or thrice for a name in all types of the kernel, for 0.2 ms.
 */
int own_key(struct conn_map_key *key); /* all but obj */
__u64 own_start_ns(void);
__u32 own_exec_id(void);

/* The entry under this number: perhaps of an earlier process that had it. */
static __always_inline struct target *target_find(__u32 tgid)
{
	if (!is_hinted(tgid, HINT_TARGET) || tgid == cfg.self_tgid)
		return NULL;
	return bpf_map_lookup_elem(&targets, &tgid);
}

/* The entry of a traced process, NULL for all others. The start time guards against a reused pid. */
static __always_inline struct target *target_of(struct task_struct *task)
{
	struct target *t = target_find(task->tgid);

	return t && t->start_ns == task->group_leader->start_boottime ? t : NULL;
}

/* The same of the current process. */
static __always_inline struct target *target_current(void)
{
	struct target *t = target_find(bpf_get_current_task_btf()->tgid);

	return t && t->start_ns == own_start_ns() ? t : NULL;
}

/* The same of the current thread, which remembers that it was so. t: NULL where nothing is kept of it. */
static __always_inline bool thread_is_target(struct thread *t)
{
	__u32 epoch = READ_AGAIN(target_epoch);

	if (t && t->target_epoch == epoch)
		return true;
	if (!target_current())
		return false;
	if (t)
		t->target_epoch = epoch;
	return true;
}

/* Children of targets, and programs that may become ones. 0 or -errno. */
static __always_inline long target_add(__u32 tgid, const struct target *t)
{
	hint(tgid, HINT_TARGET);
	return bpf_map_update_elem(&targets, &tgid, t, BPF_ANY);
}
EV_ASSERT((LIMIT_TARGET_HINTS & (LIMIT_TARGET_HINTS - 1)) == 0);

/* Room for a record of a constant size; NULL (counted) when the ring is full. */
static __always_inline void *emit_reserve(__u64 size)
{
	void *record = bpf_ringbuf_reserve(&rb, size, 0);

	if (!record)
		stat_add(ST_RING_RECORDS, 1);
	return record;
}

static __always_inline void emit_head(struct ev_head *h, __u32 size, __u16 kind, __u16 flags, __u64 ts_ns, __u32 tgid,
				      __u32 tid)
{
	h->size = size;
	h->kind = kind;
	h->flags = flags;
	h->ts_ns = ts_ns;
	h->tgid = tgid;
	h->tid = tid;
}

/* Flags for submitting a record of this size: wakes user space when the record takes the ring over a mark. The first is
 * low: what comes this fast is most often a download, of which nothing is copied as soon as user space has seen it. But
 * not so low that an answer of a megabyte at once has us on its processor before the program has read it. */
static __always_inline __u64 emit_wake(__u64 size)
{
	__u64 quarter = cfg.ring_bytes / 4; /* a power of two */
	__u64 used = bpf_ringbuf_query(&rb, BPF_RB_AVAIL_DATA);
	__u64 before = used - ((size + 8 + 7) & ~7ull); /* 8: the ring's own header */

	if (used > ring_peak)
		ring_peak = used;
	if (before < used && ((before ^ used) & ~(quarter - 1)))
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void emit_submit(void *record, __u64 size)
{
	bpf_ringbuf_submit(record, emit_wake(size));
}

#endif
