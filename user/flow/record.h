/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_RECORD_H
#define FLOW_RECORD_H

/*
 * The record door: bytes of the ring buffer or of a capture file become plain data. The only stage that knows
 * bpf/event.h. Live and replay push the same bytes here.
 */

#include "base/lost.h"
#include "base/sv.h"
#include "base/types.h"
#include "bpf/limits.h"

struct rec_data {
	struct conn_key conn;
	enum dir dir;
	struct stamp at;
	uint64_t pos;	    /* place of the first byte in its direction */
	const uint8_t *ptr; /* borrowed for the call */
	uint32_t len;
	uint32_t orig_len; /* > len: the rest is missing */
	bool fresh;	   /* the connection was seen from its first byte: CONN_OPEN may be lost */
	bool capped;	   /* missing by choice (request cap, or the connection is ignored), not lost */
	bool half;	   /* of half a connection: to be put together by the halves stage */
};

struct rec_gap {
	struct conn_key conn;
	enum dir dir;
	uint64_t pos;
	uint64_t ts_ns;
	bool half;
};

struct rec_open {
	struct conn_key conn;
	uint64_t ts_ns;
	bool fresh; /* seen from its first byte */
	bool plain; /* no TLS: a socket that carries plain HTTP, conn.obj is its cookie; or stdio */
	bool stdio; /* JSON-RPC with a child over its standard input (TX) and output (RX) */
	bool half;  /* put together of halves, or one of them */
};

struct rec_close {
	struct conn_key conn;
	uint64_t ts_ns;
	uint64_t pos[2]; /* final positions by direction */
	bool local;	 /* the traced program closed it */
};

struct rec_handshake {
	struct conn_key conn;
	uint64_t begin_ns, end_ns;
	bool approximate;
	bool half;
};

/* How far a connection has come, where the last bytes were lost. Not its end. */
struct rec_pos {
	struct conn_key conn;
	uint64_t ts_ns;
	uint64_t pos[2];
	bool half;
};

/* ITSELF: the connection is this socket. RECORDS: half a connection, by the lengths of its records; proof. */
enum sock_how { SOCK_INSIDE = 1, SOCK_AFTER_WRITE = 2, SOCK_BEFORE_READ = 3, SOCK_ITSELF = 4, SOCK_RECORDS = 5 };

struct rec_conn_sock {
	struct conn_key conn;
	uint64_t ts_ns;
	uint64_t cookie;
	struct sock_addr local, remote;
	uint32_t wire_len, plain_len;
	enum sock_how how;
	enum dir dir;
	bool half;
	bool fresh; /* RECORDS: the socket was seen from its first byte */
};

enum sock_what {
	SOCK_CONNECTED = 1,
	SOCK_CONNECT_FAILED,
	SOCK_CLOSE_LOCAL,
	SOCK_CLOSE_REMOTE,
	SOCK_CLOSED,
	SOCK_RETRANSMIT,
	SOCK_RESET_SENT,
	SOCK_RESET_RECEIVED,
	SOCK_RTT,
	/* From begin_ns to ts_ns: */
	SOCK_LATE,    /* received bytes lay in the kernel, until the program read */
	SOCK_RESENT,  /* sent bytes were on the way, some of them again, for a round trip after that */
	SOCK_HOLE,    /* bytes had been received behind others that were missing, until those came */
	SOCK_RTT_MIN, /* srtt_us is the shortest round trip of late */
	SOCK_PROXY,   /* a proxy answered, that was asked for a way on */
	SOCK_CONNECTING,
	SOCK_QUEUED, /* sent bytes lay in the kernel, until the last of them was sent and had arrived */
};

enum sock_closer { SOCK_CLOSER_NONE, SOCK_CLOSER_LOCAL, SOCK_CLOSER_REMOTE };

/* Who closes, or resets, as this is told. */
static inline enum sock_closer sock_closer_of(enum sock_what what)
{
	if (what == SOCK_CLOSE_LOCAL || what == SOCK_RESET_SENT)
		return SOCK_CLOSER_LOCAL;
	return what == SOCK_CLOSE_REMOTE || what == SOCK_RESET_RECEIVED ? SOCK_CLOSER_REMOTE : SOCK_CLOSER_NONE;
}

struct rec_sock {
	uint64_t ts_ns, begin_ns;
	uint64_t cookie;
	uint32_t tgid;
	uint32_t tid; /* that called connect(); 0: not seen */
	struct sock_addr local, remote;
	enum sock_what what;
	int error;	  /* SOCK_CONNECT_FAILED: errno; 0: the program left it */
	uint32_t srtt_us; /* 0: unknown */
};

/* What is said before there is a tunnel that a proxy was asked for. */
struct rec_tunnel {
	uint64_t ts_ns, cookie;
	uint64_t begin_ns; /* connect(); UNKNOWN_NS: not seen */
	uint32_t tgid;
	struct sock_addr remote;
	enum dir dir;	 /* TX: by the program; RX: by the proxy */
	struct sv bytes; /* of one call, cut; borrowed */
};

/* A turn of a TLS connection as TCP saw it, so far: what went out, and what came back until something went out again.
 */
struct rec_wire {
	struct proc_key proc; /* who used the socket first */
	uint64_t ts_ns;	      /* latest bytes */
	uint64_t cookie;
	uint64_t began_ns; /* first TLS bytes seen */
	/* Of the turn; UNKNOWN_NS: nothing moved, or it was not seen. */
	uint64_t tx_begin_ns, tx_end_ns, rx_begin_ns, rx_end_ns;
	uint64_t gap_ns;	/* longest silence before bytes came in */
	uint64_t turn_bytes[2]; /* by direction, as on the wire */
	uint64_t bytes[2];	/* of all turns */
	struct sock_addr local, remote;
	uint32_t turn;	    /* from 1 */
	uint8_t first_type; /* of its first record (RFC 8446 section 5.1), 0 not known */
	bool hello;	    /* the process greeted: seen from the first TLS byte */
	bool server;	    /* the other side did */
	bool merged;	    /* many turns in one */
	bool ended, closed; /* the turn; the socket */
};

struct rec_hello {
	uint64_t ts_ns, cookie;
	uint32_t tgid;
	enum dir dir;
	struct sv bytes; /* TX: of a ClientHello; RX: of a ServerHello, perhaps without its record's header; cut;
			    borrowed */
};

/* What a process maps of what can be probed, since its exec. */
struct rec_files {
	uint64_t ts_ns;
	uint32_t tgid;
	uint64_t probed_ns;   /* when the probes of the last of them were set; 0: none */
	bool probed, refused; /* there are files with TLS functions that are probed, that could not be */
	bool again;	      /* probed a second time, because nothing came */
	struct sv reason;     /* of the latest refusal; borrowed */
};

struct rec_exec {
	struct proc_key proc;
	uint64_t ts_ns;
	uint32_t ppid;
	bool already_running; /* known at the start of tracing, not an exec now */
	struct sv comm;	      /* borrowed */
	struct sv filename;
	struct sv args; /* NUL-separated, may be cut */
};

/* Processor time of a process since its start. */
struct rec_cpu {
	struct proc_key proc;
	uint64_t ts_ns, cpu_ns;
	uint64_t wait_ns; /* its first thread could have run, and waited for a processor */
};

/* What a process sent to a name server, or got from one, over UDP. */
struct rec_dns {
	struct proc_key proc;
	uint64_t ts_ns;
	uint64_t cookie;
	uint32_t tid;
	enum dir dir;
	const uint8_t *bytes; /* borrowed, may be cut */
	size_t len;
};

/* SQLite prepared a statement, or could not; and one has run. As in ev_sqlite_text and ev_sqlite_run. */
struct rec_sqlite_text {
	struct proc_key proc;
	uint64_t stmt; /* 0: it failed */
	uint64_t entry_ns, ts_ns;
	uint32_t tid;
	int32_t result;
	bool cut;
	struct sv text; /* borrowed */
};

struct rec_sqlite_run {
	struct proc_key proc;
	uint64_t stmt;
	uint64_t begin_ns, ts_ns;
	uint64_t rows;
	uint32_t tid;
	int32_t result;
};

/* A function that is traced by name was called, and has ended; and which function that is, as in ev_func. */
#define RECORD_FUNCS_MAX LIMIT_FUNCS
struct rec_func_call {
	struct proc_key proc;
	uint64_t begin_ns, ts_ns;
	uint32_t tid;
	uint32_t func;	/* below RECORD_FUNCS_MAX */
	uint32_t depth; /* calls that are open around it, of any traced function */
};

enum func_state { FUNC_UNKNOWN, FUNC_TRACED, FUNC_NOWHERE, FUNC_REFUSED, FUNC_STOPPED };
struct rec_func {
	uint64_t ts_ns;
	uint64_t calls, untold;
	uint32_t func;	       /* below RECORD_FUNCS_MAX */
	enum func_state state; /* not FUNC_UNKNOWN */
	struct sv name;	       /* borrowed, never empty */
};

/* Its program was started for this tool call of a model's answer. */
struct rec_tool_call {
	struct proc_key proc;
	uint64_t ts_ns;
	struct sv id; /* borrowed, never empty */
};

struct rec_fork {
	uint64_t ts_ns;
	uint32_t parent_tgid, parent_tid; /* the thread that made it */
	uint32_t child_tgid;
	uint64_t child_start_ns;
};

struct rec_exit {
	struct proc_key proc;
	uint64_t ts_ns;
	int32_t code, signal; /* code: EXIT_CODE_UNKNOWN when its end was not told, and is known to lie before */
	uint64_t cpu_ns;
	uint64_t max_rss_bytes; /* 0: unknown */
};

/* After its exit: nothing is left of it, and its parent is told. */
struct rec_gone {
	struct proc_key proc; /* exec_id 0 */
	uint64_t ts_ns;
	uint64_t cpu_ns;
};

/* CPU: it ran for weight_ns, the period of sampling. OFF: blocked for weight_ns, then waited for a processor for
 * queue_ns. QUEUED: pushed off its processor, waited for one; no stack. ALLOC: it allocated `size` bytes; of every byte
 * one in `period` is sampled. FAULT: the last one of `size` page faults. */
enum rec_sample_what { REC_SAMPLE_CPU = 1, REC_SAMPLE_OFF, REC_SAMPLE_QUEUED, REC_SAMPLE_ALLOC, REC_SAMPLE_FAULT };

struct rec_sample {
	struct proc_key proc;
	uint64_t ts_ns;
	uint32_t tid;
	struct sv comm; /* of the thread; borrowed */
	enum rec_sample_what what;
	uint64_t weight_ns, queue_ns; /* of CPU, OFF, QUEUED */
	uint64_t size;		      /* of ALLOC, FAULT */
	uint64_t addr;		      /* of ALLOC: where; 0: not known, and its end is not told */
	uint32_t period;	      /* of ALLOC */
	int32_t syscall;	      /* -1: none, or not known */
	bool deep;		      /* the user stack goes on */
	bool iowait, disk;
	const uint64_t *frames; /* the kernel's, then the program's, each innermost first; borrowed */
	unsigned kernel_frames, user_frames;
};

/* What rec_frame names for a frame of a sample: all but the innermost of each part are return addresses. */
static inline uint64_t rec_sample_addr(const struct rec_sample *s, unsigned i)
{
	return s->frames[i] - (i != 0 && i != s->kernel_frames);
}

/* NATIVE: of a file. JIT: code that a runtime made, by its map; PENDING: not named (yet). NOWHERE: no code is there. */
enum rec_frame_source {
	REC_FRAME_NATIVE = 1,
	REC_FRAME_KERNEL,
	REC_FRAME_JIT,
	REC_FRAME_PENDING,
	REC_FRAME_NOWHERE,
};

struct rec_frame {
	struct proc_key proc; /* tgid 0: the kernel */
	uint64_t addr;	      /* see rec_sample_addr() */
	enum rec_frame_source source;
	struct sv name;	  /* demangled; empty: not known; borrowed */
	struct sv module; /* name of the file; empty: not known */
};

/* Whose functions handed out memory. */
enum rec_allocator {
	REC_ALLOCATOR_OTHER,
	REC_ALLOCATOR_GLIBC,
	REC_ALLOCATOR_MUSL,
	REC_ALLOCATOR_JEMALLOC,
	REC_ALLOCATOR_MIMALLOC,
	REC_ALLOCATOR_TCMALLOC,
	REC_ALLOCATOR_NEW, /* a C++ library's operator new, which hands on */
	REC_ALLOCATORS,
};

/* Allocations of a process were looked at from begin_ns to ts_ns; its samples came before. Without a window the two are
 * the same: how much processor time the process has taken. */
struct rec_alloc_window {
	struct proc_key proc;
	uint64_t begin_ns, ts_ns;
	uint64_t since_cpu_ns, cpu_ns; /* processor time of the process when it was looked at first, and now */
	uint64_t window_cpu_ns;	       /* in the window */
	uint64_t window_traps_ns;      /* of which traps took so much */
	uint64_t all_traps_ns;	       /* and of all that it took since it was looked at first */
	uint64_t bytes, count;	       /* all that was asked for */
	uint64_t unfollowed;	       /* samples whose end is not told */
	bool follows;		       /* the end of samples is told */
	uint32_t allocators;	       /* bit n: enum rec_allocator n handed out memory */
};

/* What a sample told of was freed, or is known to have been. */
struct rec_alloc_free {
	struct proc_key proc;
	uint64_t addr;
};

struct rec_sampling { /* told at the beginning and at the end */
	uint64_t ts_ns;
	uint64_t period_ns;	 /* 0: what runs is not sampled */
	uint64_t off_cpu_min_ns; /* shorter waits are not told; 0: none is */
	uint64_t alloc_bytes;	 /* of everything that is allocated, one sample in so many; 0: not sampled */
	uint64_t fault_period;	 /* page faults between samples; 0: not sampled */
};

/* Called while record_push() runs, once a record. Every pointer is borrowed for the call. NULL members are skipped. */
struct record_sink {
	void *ctx;
	void (*on_data)(void *ctx, const struct rec_data *r);
	void (*on_gap)(void *ctx, const struct rec_gap *r);
	void (*on_open)(void *ctx, const struct rec_open *r);
	void (*on_close)(void *ctx, const struct rec_close *r);
	void (*on_handshake)(void *ctx, const struct rec_handshake *r);
	void (*on_conn_sock)(void *ctx, const struct rec_conn_sock *r);
	void (*on_sock)(void *ctx, const struct rec_sock *r);
	void (*on_exec)(void *ctx, const struct rec_exec *r); /* EXEC and PROC */
	void (*on_fork)(void *ctx, const struct rec_fork *r);
	void (*on_exit)(void *ctx, const struct rec_exit *r);
	void (*on_gone)(void *ctx, const struct rec_gone *r);
	void (*on_tick)(void *ctx, uint64_t now_ns);
	void (*on_pos)(void *ctx, const struct rec_pos *r);
	void (*on_wire)(void *ctx, const struct rec_wire *r);
	void (*on_hello)(void *ctx, const struct rec_hello *r);
	void (*on_tunnel)(void *ctx, const struct rec_tunnel *r);
	void (*on_files)(void *ctx, const struct rec_files *r);
	void (*on_cpu)(void *ctx, const struct rec_cpu *r);
	void (*on_dns)(void *ctx, const struct rec_dns *r);
	void (*on_tool_call)(void *ctx, const struct rec_tool_call *r);
	void (*on_sample)(void *ctx, const struct rec_sample *r);
	void (*on_frame)(void *ctx, const struct rec_frame *r);
	void (*on_sampling)(void *ctx, const struct rec_sampling *r);
	void (*on_alloc_window)(void *ctx, const struct rec_alloc_window *r);
	void (*on_alloc_free)(void *ctx, const struct rec_alloc_free *r);
	void (*on_sqlite_text)(void *ctx, const struct rec_sqlite_text *r);
	void (*on_sqlite_run)(void *ctx, const struct rec_sqlite_run *r);
	void (*on_func_call)(void *ctx, const struct rec_func_call *r);
	void (*on_func)(void *ctx, const struct rec_func *r);
};

struct record {
	struct record_sink sink;
	struct lost *lost;	/* borrowed; LOST records set the kernel counters in it (absolute values) */
	uint64_t ignored_bytes; /* the kernel's counter of them, as it is in lost->ignored_bytes */
};

void record_init(struct record *r, struct lost *lost, const struct record_sink *sink);

/* One record, exactly. A malformed or unknown one is counted in lost (LOST_BAD_RECORDS, LOST_UNKNOWN_RECORDS) and
 * otherwise ignored. `bytes` need not be aligned and is never written. A DATA record with EV_F_FAULT is delivered with
 * len 0 (a gap of orig_len). */
void record_push(struct record *r, const void *bytes, size_t len);

/* The process that a record is about; 0: told by its socket alone, or no whole record. */
uint32_t record_tgid(const void *bytes, size_t len);

/* Of a DATA record of a whole connection: which one. Its bytes may be anything. */
bool record_conn(const void *bytes, size_t len, struct conn_key *key);

/* It may come when that process has ended: what is left of it, its sockets, its allocations. */
bool record_is_late(const void *bytes, size_t len);
/* Size of the record that begins at `bytes`: 0 when len is too short to tell, -EINVAL when it cannot be one. */
long record_size(const void *bytes, size_t len);

#endif
