/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "record.h"

#include <errno.h>
#include <linux/types.h>
#include <string.h>

#include "base/err.h"
#include "bpf/event.h"

static const enum lost_id stat_lost[ST_COUNT] = {
#define X(id, lost) [id] = lost,
	EV_STATS(X)
#undef X
};

_Static_assert(SOCK_INSIDE == EV_SOCK_INSIDE && SOCK_RECORDS == EV_SOCK_RECORDS, "enum sock_how follows the ABI");
_Static_assert(SOCK_CONNECTED == EV_SK_CONNECTED && SOCK_QUEUED == EV_SK_QUEUED, "enum sock_what follows the ABI");
_Static_assert(REC_SAMPLE_CPU == EV_SAMPLE_CPU && REC_SAMPLE_FAULT == EV_SAMPLE_FAULT,
	       "enum rec_sample_what follows the ABI");
_Static_assert(REC_FRAME_NATIVE == EV_FRAME_NATIVE && REC_FRAME_NOWHERE == EV_FRAME_NOWHERE,
	       "enum rec_frame_source follows the ABI");
_Static_assert((int)REC_ALLOCATOR_NEW == ALLOC_NEW && (int)REC_ALLOCATORS == ALLOC_LIBRARIES,
	       "enum rec_allocator follows the ABI");
_Static_assert(DIR_TX == EV_DIR_TX && DIR_RX == EV_DIR_RX, "enum dir follows the ABI");

void record_init(struct record *r, struct lost *lost, const struct record_sink *sink)
{
	*r = (struct record){.sink = *sink, .lost = lost};
}

uint32_t record_tgid(const void *bytes, size_t len)
{
	struct ev_head h;

	if (len < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	return h.tgid;
}

bool record_is_late(const void *bytes, size_t len)
{
	struct ev_head h;

	if (len < sizeof(h))
		return false;
	memcpy(&h, bytes, sizeof(h));
	return h.kind == EV_GONE || h.kind == EV_WIRE || h.kind == EV_SOCK || h.kind == EV_ALLOC_WINDOW ||
	       h.kind == EV_ALLOC_FREE;
}

long record_size(const void *bytes, size_t len)
{
	__u32 size;

	if (len < sizeof(size))
		return 0;
	memcpy(&size, bytes, sizeof(size));
	if (size < sizeof(struct ev_head) || size % 8)
		return -EINVAL;
	return (long)size;
}

static struct conn_key key_of(const struct ev_head *h, const struct ev_conn *c)
{
	return (struct conn_key){
		.tgid = h->tgid, .exec_id = c->exec_id, .start_ns = c->start_ns, .obj = c->obj, .gen = c->gen};
}

static struct sock_addr addr_of(const struct ev_addr *a, const __u8 *ip, __u16 port)
{
	struct sock_addr s = {.family = a->family, .port = port};

	memcpy(s.ip, ip, sizeof(s.ip));
	return s;
}

/* No connection carries so much (64 PiB): sums of positions and lengths stay numbers that mean something. */
#define ERRNO_MAX 4095 /* of the kernel: MAX_ERRNO */
#define POS_MAX	  (1ull << 56)
#define TIME_MAX  (1ull << 59) /* 18 years since the machine was started: times can be added */

/* Each push_X: false when the record contradicts itself. `p` holds at least the fixed part, `len` is the whole record.
 */

static bool push_data(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_data e;
	struct rec_data d;

	memcpy(&e, p, sizeof(e));
	if (e.len > len - sizeof(e) || e.orig_len < e.len || e.dir > EV_DIR_RX || e.pos > POS_MAX)
		return false;
	if (e.h.flags & EV_F_FAULT)
		e.len = 0;
	d = (struct rec_data){
		.conn = key_of(&e.h, &e.conn),
		.dir = (enum dir)e.dir,
		.at = {.entry_ns = e.entry_ns, .ts_ns = e.h.ts_ns, .tid = e.h.tid},
		.pos = e.pos,
		.ptr = p + sizeof(e),
		.len = e.len,
		.orig_len = e.orig_len,
		.fresh = (e.h.flags & EV_F_FRESH) != 0,
		.capped = (e.h.flags & (EV_F_CAPPED | EV_F_IGNORED)) && !(e.h.flags & EV_F_FAULT),
		.half = (e.h.flags & EV_F_HALF) != 0,
	};
	if (d.capped && (e.h.flags & EV_F_IGNORED))
		r->lost->ignored_bytes += d.orig_len - d.len;
	else if (d.capped)
		r->lost->capped_bytes += d.orig_len - d.len;
	if (r->sink.on_data)
		r->sink.on_data(r->sink.ctx, &d);
	return true;
}

bool record_conn(const void *bytes, size_t len, struct conn_key *key)
{
	struct ev_data e;

	if (len < sizeof(e))
		return false;
	memcpy(&e, bytes, sizeof(e));
	*key = key_of(&e.h, &e.conn);
	return e.h.kind == EV_DATA && !(e.h.flags & EV_F_HALF);
}

static bool push_gap(struct record *r, const uint8_t *p)
{
	struct ev_gap e;
	struct rec_gap g;

	memcpy(&e, p, sizeof(e));
	if (e.dir > EV_DIR_RX || e.pos > POS_MAX)
		return false;
	g = (struct rec_gap){
		.conn = key_of(&e.h, &e.conn),
		.dir = (enum dir)e.dir,
		.pos = e.pos,
		.ts_ns = e.h.ts_ns,
		.half = (e.h.flags & EV_F_HALF) != 0,
	};
	if (r->sink.on_gap)
		r->sink.on_gap(r->sink.ctx, &g);
	return true;
}

static bool push_open(struct record *r, const uint8_t *p)
{
	struct ev_conn_open e;
	struct rec_open o;

	memcpy(&e, p, sizeof(e));
	o = (struct rec_open){
		.conn = key_of(&e.h, &e.conn),
		.ts_ns = e.h.ts_ns,
		.fresh = (e.h.flags & EV_F_FRESH) != 0,
		.plain = (e.h.flags & EV_F_PLAIN) != 0,
		.half = (e.h.flags & EV_F_HALF) != 0,
		.stdio = (e.h.flags & EV_F_STDIO) != 0,
	};
	if (r->sink.on_open)
		r->sink.on_open(r->sink.ctx, &o);
	return true;
}

static bool push_close(struct record *r, const uint8_t *p)
{
	struct ev_conn_close e;
	struct rec_close c;

	memcpy(&e, p, sizeof(e));
	if (e.pos[0] > POS_MAX || e.pos[1] > POS_MAX)
		return false;
	c = (struct rec_close){
		.conn = key_of(&e.h, &e.conn),
		.ts_ns = e.h.ts_ns,
		.pos = {e.pos[0], e.pos[1]},
		.local = (e.h.flags & EV_F_LOCAL) != 0,
	};
	if (r->sink.on_close)
		r->sink.on_close(r->sink.ctx, &c);
	return true;
}

static bool push_pos(struct record *r, const uint8_t *p)
{
	struct ev_conn_close e;
	struct rec_pos s;

	memcpy(&e, p, sizeof(e));
	if (e.pos[0] > POS_MAX || e.pos[1] > POS_MAX)
		return false;
	s = (struct rec_pos){
		.conn = key_of(&e.h, &e.conn),
		.ts_ns = e.h.ts_ns,
		.pos = {e.pos[0], e.pos[1]},
		.half = (e.h.flags & EV_F_HALF) != 0,
	};
	if (r->sink.on_pos)
		r->sink.on_pos(r->sink.ctx, &s);
	return true;
}

static bool push_handshake(struct record *r, const uint8_t *p)
{
	struct ev_handshake e;
	struct rec_handshake s;

	memcpy(&e, p, sizeof(e));
	if (e.begin_ns > e.h.ts_ns)
		return false;
	s = (struct rec_handshake){
		.conn = key_of(&e.h, &e.conn),
		.begin_ns = e.begin_ns,
		.end_ns = e.h.ts_ns,
		.approximate = (e.h.flags & EV_F_APPROX) != 0,
		.half = (e.h.flags & EV_F_HALF) != 0,
	};
	if (r->sink.on_handshake)
		r->sink.on_handshake(r->sink.ctx, &s);
	return true;
}

static bool push_conn_sock(struct record *r, const uint8_t *p)
{
	struct ev_conn_sock e;
	struct rec_conn_sock s;

	memcpy(&e, p, sizeof(e));
	if (e.how < EV_SOCK_INSIDE || e.how > EV_SOCK_RECORDS || e.dir > EV_DIR_RX)
		return false;
	s = (struct rec_conn_sock){
		.conn = key_of(&e.h, &e.conn),
		.ts_ns = e.h.ts_ns,
		.cookie = e.cookie,
		.local = addr_of(&e.addr, e.addr.laddr, e.addr.lport),
		.remote = addr_of(&e.addr, e.addr.raddr, e.addr.rport),
		.wire_len = e.wire_len,
		.plain_len = e.plain_len,
		.how = (enum sock_how)e.how,
		.dir = (enum dir)e.dir,
		.half = (e.h.flags & EV_F_HALF) != 0,
		.fresh = (e.h.flags & EV_F_FRESH) != 0,
	};
	if (r->sink.on_conn_sock)
		r->sink.on_conn_sock(r->sink.ctx, &s);
	return true;
}

static bool push_sock(struct record *r, const uint8_t *p)
{
	struct ev_sock e;
	struct rec_sock s;
	bool failed;

	memcpy(&e, p, sizeof(e));
	failed = e.what == EV_SK_CONNECT_FAILED;
	if (e.what < EV_SK_CONNECTED || e.what > EV_SK_QUEUED || (failed && e.srtt_us > ERRNO_MAX))
		return false;
	s = (struct rec_sock){
		.ts_ns = e.h.ts_ns,
		.begin_ns = e.begin_ns,
		.cookie = e.cookie,
		.tgid = e.h.tgid,
		.tid = e.h.tid,
		.local = addr_of(&e.addr, e.addr.laddr, e.addr.lport),
		.remote = addr_of(&e.addr, e.addr.raddr, e.addr.rport),
		.what = (enum sock_what)e.what,
		.error = failed ? (int)e.srtt_us : 0,
		.srtt_us = failed ? 0 : e.srtt_us,
	};
	if (r->sink.on_sock)
		r->sink.on_sock(r->sink.ctx, &s);
	return true;
}

static uint64_t known_ns(__u64 ns)
{
	return ns ? ns : UNKNOWN_NS;
}

static bool push_wire(struct record *r, const uint8_t *p)
{
	struct ev_wire e;
	struct rec_wire w;

	memcpy(&e, p, sizeof(e));
	if (!e.turn || e.first_type > UINT8_MAX)
		return false;
	for (int i = 0; i < 2; i++)
		if (e.bytes[i] > POS_MAX || e.turn_bytes[i] > e.bytes[i])
			return false;
	w = (struct rec_wire){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.cookie = e.cookie,
		.began_ns = e.began_ns,
		.tx_begin_ns = known_ns(e.tx_begin_ns),
		.tx_end_ns = known_ns(e.tx_end_ns),
		.rx_begin_ns = known_ns(e.rx_begin_ns),
		.rx_end_ns = known_ns(e.rx_end_ns),
		.gap_ns = e.gap_ns,
		.turn_bytes = {e.turn_bytes[0], e.turn_bytes[1]},
		.bytes = {e.bytes[0], e.bytes[1]},
		.local = addr_of(&e.addr, e.addr.laddr, e.addr.lport),
		.remote = addr_of(&e.addr, e.addr.raddr, e.addr.rport),
		.turn = e.turn,
		.first_type = (uint8_t)e.first_type,
		.hello = (e.flags & EV_WIRE_HELLO) != 0,
		.server = (e.flags & EV_WIRE_SERVER) != 0,
		.merged = (e.flags & EV_WIRE_MERGED) != 0,
		.ended = (e.flags & EV_WIRE_ENDED) != 0,
		.closed = (e.flags & EV_WIRE_CLOSED) != 0,
	};
	if (r->sink.on_wire)
		r->sink.on_wire(r->sink.ctx, &w);
	return true;
}

static bool push_hello(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_hello e;
	struct rec_hello h;

	memcpy(&e, p, sizeof(e));
	if (e.len > len - sizeof(e) || e.dir > EV_DIR_RX)
		return false;
	h = (struct rec_hello){
		.ts_ns = e.h.ts_ns,
		.cookie = e.cookie,
		.tgid = e.h.tgid,
		.dir = (enum dir)e.dir,
		.bytes = {(const char *)p + sizeof(e), e.len},
	};
	if (r->sink.on_hello)
		r->sink.on_hello(r->sink.ctx, &h);
	return true;
}

static bool push_tunnel(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_tunnel e;
	struct rec_tunnel t;

	memcpy(&e, p, sizeof(e));
	if (e.len > len - sizeof(e) || e.dir > EV_DIR_RX)
		return false;
	t = (struct rec_tunnel){
		.ts_ns = e.h.ts_ns,
		.cookie = e.cookie,
		.begin_ns = known_ns(e.begin_ns),
		.tgid = e.h.tgid,
		.remote = addr_of(&e.addr, e.addr.raddr, e.addr.rport),
		.dir = (enum dir)e.dir,
		.bytes = {(const char *)p + sizeof(e), e.len},
	};
	if (r->sink.on_tunnel)
		r->sink.on_tunnel(r->sink.ctx, &t);
	return true;
}

static bool push_files(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_files e;
	struct rec_files f;

	memcpy(&e, p, sizeof(e));
	if (e.reason_len > len - sizeof(e))
		return false;
	f = (struct rec_files){
		.ts_ns = e.h.ts_ns,
		.tgid = e.h.tgid,
		.probed_ns = e.probed_ns,
		.probed = e.probed != 0,
		.refused = e.refused != 0,
		.again = e.again != 0,
		.reason = {(const char *)p + sizeof(e), e.reason_len},
	};
	if (r->sink.on_files)
		r->sink.on_files(r->sink.ctx, &f);
	return true;
}

static bool push_exec(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_exec e;
	struct rec_exec x;
	const char *bytes = (const char *)p + sizeof(e);

	memcpy(&e, p, sizeof(e));
	if (e.filename_len > len - sizeof(e) || e.args_len > len - sizeof(e) - e.filename_len)
		return false;
	x = (struct rec_exec){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.ppid = e.ppid,
		.already_running = e.h.kind == EV_PROC,
		.comm = {e.comm, strnlen(e.comm, sizeof(e.comm))},
		.filename = {bytes, e.filename_len},
		.args = {bytes + e.filename_len, e.args_len},
	};
	if (r->sink.on_exec)
		r->sink.on_exec(r->sink.ctx, &x);
	return true;
}

static bool push_cpu(struct record *r, const uint8_t *p)
{
	struct ev_cpu e;
	struct rec_cpu c;

	memcpy(&e, p, sizeof(e));
	c = (struct rec_cpu){
		.proc = {.tgid = e.h.tgid, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.cpu_ns = e.cpu_ns,
		.wait_ns = e.wait_ns,
	};
	if (r->sink.on_cpu)
		r->sink.on_cpu(r->sink.ctx, &c);
	return true;
}

static bool push_dns(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_dns e;
	struct rec_dns d;

	memcpy(&e, p, sizeof(e));
	if (e.len > len - sizeof(e) || e.dir > EV_DIR_RX)
		return false;
	d = (struct rec_dns){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.cookie = e.cookie,
		.tid = e.h.tid,
		.dir = (enum dir)e.dir,
		.bytes = p + sizeof(e),
		.len = e.len,
	};
	if (r->sink.on_dns)
		r->sink.on_dns(r->sink.ctx, &d);
	return true;
}

static bool push_sqlite_text(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_sqlite_text e;
	struct rec_sqlite_text t;

	memcpy(&e, p, sizeof(e));
	if (e.len > len - sizeof(e) || e.entry_ns > e.h.ts_ns || (!e.stmt && !e.result))
		return false;
	t = (struct rec_sqlite_text){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.stmt = e.stmt,
		.entry_ns = e.entry_ns,
		.ts_ns = e.h.ts_ns,
		.tid = e.h.tid,
		.result = e.result,
		.cut = e.cut != 0,
		.text = {(const char *)p + sizeof(e), e.len},
	};
	if (r->sink.on_sqlite_text)
		r->sink.on_sqlite_text(r->sink.ctx, &t);
	return true;
}

static bool push_sqlite_run(struct record *r, const uint8_t *p)
{
	struct ev_sqlite_run e;
	struct rec_sqlite_run run;

	memcpy(&e, p, sizeof(e));
	if (e.begin_ns > e.h.ts_ns)
		return false;
	run = (struct rec_sqlite_run){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.stmt = e.stmt,
		.begin_ns = e.begin_ns,
		.ts_ns = e.h.ts_ns,
		.rows = e.rows,
		.tid = e.h.tid,
		.result = e.result,
	};
	if (r->sink.on_sqlite_run)
		r->sink.on_sqlite_run(r->sink.ctx, &run);
	return true;
}

static bool push_func_call(struct record *r, const uint8_t *p)
{
	struct ev_func_call e;
	struct rec_func_call call;

	memcpy(&e, p, sizeof(e));
	if (e.begin_ns > e.h.ts_ns || e.func >= RECORD_FUNCS_MAX)
		return false;
	call = (struct rec_func_call){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.begin_ns = e.begin_ns,
		.ts_ns = e.h.ts_ns,
		.tid = e.h.tid,
		.func = e.func,
		.depth = e.depth,
	};
	if (r->sink.on_func_call)
		r->sink.on_func_call(r->sink.ctx, &call);
	return true;
}

static bool push_func(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_func e;
	struct rec_func func;

	memcpy(&e, p, sizeof(e));
	if (e.name_len > len - sizeof(e) || !e.name_len || e.func >= RECORD_FUNCS_MAX || e.state < EV_FUNC_TRACED ||
	    e.state > EV_FUNC_STOPPED)
		return false;
	func = (struct rec_func){
		.ts_ns = e.h.ts_ns,
		.calls = e.calls,
		.untold = e.untold,
		.func = e.func,
		.state = (enum func_state)e.state,
		.name = {(const char *)p + sizeof(e), e.name_len},
	};
	if (r->sink.on_func)
		r->sink.on_func(r->sink.ctx, &func);
	return true;
}
_Static_assert(FUNC_TRACED == EV_FUNC_TRACED && FUNC_STOPPED == EV_FUNC_STOPPED, "states are those of the ABI");

static bool push_tool_call(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_tool_call e;
	struct rec_tool_call t;

	memcpy(&e, p, sizeof(e));
	if (!e.len || e.len > len - sizeof(e))
		return false;
	t = (struct rec_tool_call){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.id = {(const char *)p + sizeof(e), e.len},
	};
	if (r->sink.on_tool_call)
		r->sink.on_tool_call(r->sink.ctx, &t);
	return true;
}

static bool push_fork(struct record *r, const uint8_t *p)
{
	struct ev_fork e;
	struct rec_fork f;

	memcpy(&e, p, sizeof(e));
	f = (struct rec_fork){
		.ts_ns = e.h.ts_ns,
		.parent_tgid = e.h.tgid,
		.parent_tid = e.h.tid,
		.child_tgid = e.child_tgid,
		.child_start_ns = e.child_start_ns,
	};
	if (r->sink.on_fork)
		r->sink.on_fork(r->sink.ctx, &f);
	return true;
}

static bool push_exit(struct record *r, const uint8_t *p)
{
	struct ev_exit e;
	struct rec_exit x;

	memcpy(&e, p, sizeof(e));
	x = (struct rec_exit){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.code = e.code,
		.signal = e.signal,
		.cpu_ns = e.cpu_ns,
		.max_rss_bytes = (uint64_t)e.max_rss_kib * 1024,
	};
	if (r->sink.on_exit)
		r->sink.on_exit(r->sink.ctx, &x);
	return true;
}

static bool push_gone(struct record *r, const uint8_t *p)
{
	struct ev_gone e;
	struct rec_gone g;

	memcpy(&e, p, sizeof(e));
	g = (struct rec_gone){
		.proc = {.tgid = e.h.tgid, .start_ns = e.start_ns}, .ts_ns = e.h.ts_ns, .cpu_ns = e.cpu_ns};
	if (r->sink.on_gone)
		r->sink.on_gone(r->sink.ctx, &g);
	return true;
}

static bool push_sample(struct record *r, const uint8_t *p, size_t len)
{
	uint64_t frames[2 * UINT8_MAX];
	struct ev_sample e;
	struct rec_sample s;
	size_t count;
	bool memory;

	memcpy(&e, p, sizeof(e));
	count = (size_t)e.kernel_frames + e.user_frames;
	if (e.what < EV_SAMPLE_CPU || e.what > EV_SAMPLE_FAULT || count * sizeof(__u64) != len - sizeof(e) ||
	    e.weight_ns > POS_MAX || (e.what != EV_SAMPLE_ALLOC && e.queue_ns > POS_MAX) ||
	    (e.what == EV_SAMPLE_ALLOC && !e.period))
		return false;
	memory = e.what == EV_SAMPLE_ALLOC || e.what == EV_SAMPLE_FAULT;
	memcpy(frames, p + sizeof(e), count * sizeof(__u64));
	s = (struct rec_sample){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.ts_ns = e.h.ts_ns,
		.tid = e.h.tid,
		.comm = {e.comm, strnlen(e.comm, sizeof(e.comm))},
		.what = (enum rec_sample_what)e.what,
		.weight_ns = memory ? 0 : e.weight_ns,
		.queue_ns = memory ? 0 : e.queue_ns,
		.size = memory ? e.weight_ns : 0,
		.addr = memory ? e.queue_ns : 0,
		.period = e.period,
		.syscall = e.syscall,
		.deep = (e.state & EV_SAMPLE_DEEP) != 0,
		.iowait = (e.state & EV_SAMPLE_IOWAIT) != 0,
		.disk = (e.state & EV_SAMPLE_DISK) != 0,
		.frames = frames,
		.kernel_frames = e.kernel_frames,
		.user_frames = e.user_frames,
	};
	if (r->sink.on_sample)
		r->sink.on_sample(r->sink.ctx, &s);
	return true;
}

static bool push_frame(struct record *r, const uint8_t *p, size_t len)
{
	const char *bytes = (const char *)p + sizeof(struct ev_frame);
	struct ev_frame e;
	struct rec_frame f;

	memcpy(&e, p, sizeof(e));
	if ((size_t)e.name_len + e.module_len > len - sizeof(e) || e.source < EV_FRAME_NATIVE ||
	    e.source > EV_FRAME_NOWHERE)
		return false;
	f = (struct rec_frame){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.addr = e.addr,
		.source = (enum rec_frame_source)e.source,
		.name = {bytes, e.name_len},
		.module = {bytes + e.name_len, e.module_len},
	};
	if (r->sink.on_frame)
		r->sink.on_frame(r->sink.ctx, &f);
	return true;
}

/* Up to off_cpu_min_ns, as an earlier version wrote it. */
#define SAMPLING_BYTES_MIN offsetof(struct ev_sampling, alloc_bytes)

static bool push_sampling(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_sampling e = {0};
	struct rec_sampling s;

	memcpy(&e, p, len < sizeof(e) ? len : sizeof(e));
	s = (struct rec_sampling){.ts_ns = e.h.ts_ns,
				  .period_ns = e.period_ns,
				  .off_cpu_min_ns = e.off_cpu_min_ns,
				  .alloc_bytes = e.alloc_bytes,
				  .fault_period = e.fault_period};
	if (r->sink.on_sampling)
		r->sink.on_sampling(r->sink.ctx, &s);
	return true;
}

/* Up to follows, as an earlier version wrote it. */
#define ALLOC_WINDOW_BYTES_MIN offsetof(struct ev_alloc_window, takes)

static bool push_alloc_window(struct record *r, const uint8_t *p, size_t len)
{
	struct ev_alloc_window e = {0};
	struct rec_alloc_window w;
	double traps;

	memcpy(&e, p, len < sizeof(e) ? len : sizeof(e));
	if (e.h.ts_ns < e.begin_ns || e.cpu_ns < e.since_cpu_ns || e.cpu_ns > POS_MAX || e.window_cpu_ns > POS_MAX ||
	    e.bytes > POS_MAX || e.count > UINT32_MAX || e.hits > UINT32_MAX || e.slow_hits > UINT32_MAX ||
	    e.samples > UINT32_MAX || e.takes > UINT32_MAX || e.all_traps_ns > POS_MAX)
		return false;
	w = (struct rec_alloc_window){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.begin_ns = e.begin_ns,
		.ts_ns = e.h.ts_ns,
		.since_cpu_ns = e.since_cpu_ns,
		.cpu_ns = e.cpu_ns,
		.window_cpu_ns = e.window_cpu_ns,
		.all_traps_ns = e.all_traps_ns,
		.bytes = e.bytes,
		.count = e.count,
		.unfollowed = e.unfollowed,
		.follows = e.follows != 0,
		.allocators = e.libraries,
	};
	traps = (double)e.hits * e.hit_ns + (double)e.slow_hits * e.slow_ns + (double)e.samples * e.sample_ns +
		(double)e.takes * e.take_ns + ALLOC_SPOILS * (double)e.count * e.hit_ns;
	w.window_traps_ns = traps < (double)POS_MAX ? (uint64_t)traps : POS_MAX;
	if (r->sink.on_alloc_window)
		r->sink.on_alloc_window(r->sink.ctx, &w);
	return true;
}

static bool push_alloc_free(struct record *r, const uint8_t *p)
{
	struct ev_alloc_free e;
	struct rec_alloc_free f;

	memcpy(&e, p, sizeof(e));
	f = (struct rec_alloc_free){
		.proc = {.tgid = e.h.tgid, .exec_id = e.exec_id, .start_ns = e.start_ns},
		.addr = e.addr,
	};
	if (r->sink.on_alloc_free)
		r->sink.on_alloc_free(r->sink.ctx, &f);
	return true;
}

/* A snapshot of sums, not an increment: the last one tells. A later version may append counters; an earlier one has
 * fewer. */
static bool push_lost(struct record *r, const uint8_t *p, size_t len)
{
	size_t count = (len - sizeof(struct ev_head)) / sizeof(__u64);

	for (size_t i = 0; i < count && i < ST_COUNT; i++) {
		__u64 v;

		memcpy(&v, p + sizeof(struct ev_head) + i * sizeof(v), sizeof(v));
		if (i == ST_IGNORED_BYTES) { /* no loss */
			r->lost->ignored_bytes += v - r->ignored_bytes;
			r->ignored_bytes = v;
		} else if (stat_lost[i] != LOST_COUNT) {
			r->lost->n[stat_lost[i]] = v;
		}
	}
	return true;
}

static bool push_tick(struct record *r, const uint8_t *p)
{
	struct ev_head h;

	memcpy(&h, p, sizeof(h));
	if (r->sink.on_tick)
		r->sink.on_tick(r->sink.ctx, h.ts_ns);
	return true;
}

/* What a kind of record is: bytes of its fixed part (0: no such kind), and where it goes: by its fixed part, or all of
 * it. */
static const struct kind {
	size_t size;
	bool (*push)(struct record *r, const uint8_t *p);
	bool (*push_all)(struct record *r, const uint8_t *p, size_t len);
} kinds[EV_KIND_MAX + 1] = {
	[EV_DATA] = {sizeof(struct ev_data), .push_all = push_data},
	[EV_GAP] = {sizeof(struct ev_gap), .push = push_gap},
	[EV_CONN_OPEN] = {sizeof(struct ev_conn_open), .push = push_open},
	[EV_CONN_CLOSE] = {sizeof(struct ev_conn_close), .push = push_close},
	[EV_HANDSHAKE] = {sizeof(struct ev_handshake), .push = push_handshake},
	[EV_CONN_SOCK] = {sizeof(struct ev_conn_sock), .push = push_conn_sock},
	[EV_SOCK] = {sizeof(struct ev_sock), .push = push_sock},
	[EV_EXEC] = {sizeof(struct ev_exec), .push_all = push_exec},
	[EV_FORK] = {sizeof(struct ev_fork), .push = push_fork},
	[EV_EXIT] = {sizeof(struct ev_exit), .push = push_exit},
	[EV_GONE] = {sizeof(struct ev_gone), .push = push_gone},
	[EV_PROC] = {sizeof(struct ev_exec), .push_all = push_exec},
	[EV_LOST] = {sizeof(struct ev_head), .push_all = push_lost},
	[EV_TICK] = {sizeof(struct ev_head), .push = push_tick},
	[EV_CONN_POS] = {sizeof(struct ev_conn_close), .push = push_pos},
	[EV_WIRE] = {sizeof(struct ev_wire), .push = push_wire},
	[EV_HELLO] = {sizeof(struct ev_hello), .push_all = push_hello},
	[EV_TUNNEL] = {sizeof(struct ev_tunnel), .push_all = push_tunnel},
	[EV_FILES] = {sizeof(struct ev_files), .push_all = push_files},
	[EV_TOOL_CALL] = {sizeof(struct ev_tool_call), .push_all = push_tool_call},
	[EV_SAMPLE] = {sizeof(struct ev_sample), .push_all = push_sample},
	[EV_FRAME] = {sizeof(struct ev_frame), .push_all = push_frame},
	[EV_SAMPLING] = {SAMPLING_BYTES_MIN, .push_all = push_sampling},
	[EV_ALLOC_FREE] = {sizeof(struct ev_alloc_free), .push = push_alloc_free},
	[EV_ALLOC_WINDOW] = {ALLOC_WINDOW_BYTES_MIN, .push_all = push_alloc_window},
	[EV_DNS] = {sizeof(struct ev_dns), .push_all = push_dns},
	[EV_CPU] = {sizeof(struct ev_cpu), .push = push_cpu},
	[EV_SQLITE_TEXT] = {sizeof(struct ev_sqlite_text), .push_all = push_sqlite_text},
	[EV_SQLITE_RUN] = {sizeof(struct ev_sqlite_run), .push = push_sqlite_run},
	[EV_FUNC_CALL] = {sizeof(struct ev_func_call), .push = push_func_call},
	[EV_FUNC] = {sizeof(struct ev_func), .push_all = push_func},
};

void record_push(struct record *r, const void *bytes, size_t len)
{
	const struct kind *kind;
	struct ev_head h;

	if (len < sizeof(h))
		goto bad;
	memcpy(&h, bytes, sizeof(h));
	/* The ring rounds nothing and a capture is read by record_size(): more bytes than `size` cannot be right
	 * either. */
	if (h.size < sizeof(h) || h.size % 8 || h.size != len || h.kind == EV_INVALID || h.ts_ns > TIME_MAX)
		goto bad;
	kind = h.kind <= EV_KIND_MAX ? &kinds[h.kind] : NULL;
	if (!kind || !kind->size) {
		r->lost->n[LOST_UNKNOWN_RECORDS]++;
		return;
	}
	if (h.size < kind->size || !(kind->push ? kind->push(r, bytes) : kind->push_all(r, bytes, len)))
		goto bad;
	return;
bad:
	r->lost->n[LOST_BAD_RECORDS]++;
}
