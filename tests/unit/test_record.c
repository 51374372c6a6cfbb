/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"
#include "flow/record.h"

struct world {
	struct tlog log;
	struct guard guard;
	struct lost lost;
	struct record r;
};

#define PRINT(fmt, ...) tlog_printf(&((struct world *)ctx)->log, fmt, __VA_ARGS__)

static void print_conn(struct world *ctx, const struct conn_key *k)
{
	PRINT("%u/%u/%llu/%llx/%u ", k->tgid, k->exec_id, (unsigned long long)k->start_ns, (unsigned long long)k->obj,
	      k->gen);
	assert_int_equal(k->zero, 0);
}

static void on_data(void *ctx, const struct rec_data *r)
{
	PRINT("%s ", "data");
	print_conn(ctx, &r->conn);
	PRINT("%d %llu-%llu tid %u pos %llu %u/%u%s ", r->dir, (unsigned long long)r->at.entry_ns,
	      (unsigned long long)r->at.ts_ns, r->at.tid, (unsigned long long)r->pos, r->len, r->orig_len,
	      r->capped	 ? " capped"
	      : r->fresh ? " fresh"
			 : "");
	tlog_escaped(&((struct world *)ctx)->log, r->ptr, r->len);
	PRINT("%s", "\n");
}

static void on_gap(void *ctx, const struct rec_gap *r)
{
	PRINT("%s ", "gap");
	print_conn(ctx, &r->conn);
	PRINT("%d %llu at %llu\n", r->dir, (unsigned long long)r->pos, (unsigned long long)r->ts_ns);
}

static void on_open(void *ctx, const struct rec_open *r)
{
	PRINT("%s ", "open");
	print_conn(ctx, &r->conn);
	PRINT("%llu%s%s%s\n", (unsigned long long)r->ts_ns, r->fresh ? " fresh" : "", r->plain ? " plain" : "",
	      r->stdio ? " stdio" : "");
}

static void on_close(void *ctx, const struct rec_close *r)
{
	PRINT("%s ", "close");
	print_conn(ctx, &r->conn);
	PRINT("%llu %llu,%llu%s\n", (unsigned long long)r->ts_ns, (unsigned long long)r->pos[0],
	      (unsigned long long)r->pos[1], r->local ? " local" : "");
}

static void on_handshake(void *ctx, const struct rec_handshake *r)
{
	PRINT("%s ", "handshake");
	print_conn(ctx, &r->conn);
	PRINT("%llu-%llu%s\n", (unsigned long long)r->begin_ns, (unsigned long long)r->end_ns,
	      r->approximate ? " approximate" : "");
}

static void print_addr(struct world *ctx, const struct sock_addr *a)
{
	PRINT("%u:%u.%u.%u.%u..%u:%u ", a->family, a->ip[0], a->ip[1], a->ip[2], a->ip[3], a->ip[15], a->port);
}

static void on_conn_sock(void *ctx, const struct rec_conn_sock *r)
{
	PRINT("%s ", "conn_sock");
	print_conn(ctx, &r->conn);
	print_addr(ctx, &r->local);
	print_addr(ctx, &r->remote);
	PRINT("%llu how %d dir %d cookie %llu %u/%u\n", (unsigned long long)r->ts_ns, r->how, r->dir,
	      (unsigned long long)r->cookie, r->plain_len, r->wire_len);
}

static void on_sock(void *ctx, const struct rec_sock *r)
{
	PRINT("sock %u ", r->tgid);
	print_addr(ctx, &r->local);
	print_addr(ctx, &r->remote);
	PRINT("%llu-%llu what %d cookie %llu srtt %u", (unsigned long long)r->begin_ns, (unsigned long long)r->ts_ns,
	      r->what, (unsigned long long)r->cookie, r->srtt_us);
	if (r->error)
		PRINT(" error %d", r->error);
	PRINT("%s", "\n");
}

static void print_sv(struct world *ctx, struct sv s)
{
	PRINT("%s", "[");
	tlog_escaped(&ctx->log, s.ptr, s.len);
	PRINT("%s", "] ");
}

static void on_exec(void *ctx, const struct rec_exec *r)
{
	PRINT("%s %u/%u/%llu ppid %u at %llu ", r->already_running ? "proc" : "exec", r->proc.tgid, r->proc.exec_id,
	      (unsigned long long)r->proc.start_ns, r->ppid, (unsigned long long)r->ts_ns);
	print_sv(ctx, r->comm);
	print_sv(ctx, r->filename);
	print_sv(ctx, r->args);
	PRINT("%s", "\n");
}

static void on_fork(void *ctx, const struct rec_fork *r)
{
	PRINT("fork %u -> %u/%llu at %llu\n", r->parent_tgid, r->child_tgid, (unsigned long long)r->child_start_ns,
	      (unsigned long long)r->ts_ns);
}

static void on_exit_(void *ctx, const struct rec_exit *r)
{
	PRINT("exit %u/%u/%llu code %d signal %d cpu %llu at %llu\n", r->proc.tgid, r->proc.exec_id,
	      (unsigned long long)r->proc.start_ns, r->code, r->signal, (unsigned long long)r->cpu_ns,
	      (unsigned long long)r->ts_ns);
}

static void on_gone(void *ctx, const struct rec_gone *r)
{
	PRINT("gone %u/%llu cpu %llu at %llu\n", r->proc.tgid, (unsigned long long)r->proc.start_ns,
	      (unsigned long long)r->cpu_ns, (unsigned long long)r->ts_ns);
}

static void on_pos(void *ctx, const struct rec_pos *r)
{
	PRINT("%s ", "pos");
	print_conn(ctx, &r->conn);
	PRINT("%llu %llu,%llu\n", (unsigned long long)r->ts_ns, (unsigned long long)r->pos[0],
	      (unsigned long long)r->pos[1]);
}

static void on_wire(void *ctx, const struct rec_wire *r)
{
	PRINT("wire %u/%u/%llu cookie %llu ", r->proc.tgid, r->proc.exec_id, (unsigned long long)r->proc.start_ns,
	      (unsigned long long)r->cookie);
	print_addr(ctx, &r->remote);
	PRINT("from %llu turn %u type %u %llu-%llu %llu-%llu gap %llu %llu/%llu of %llu/%llu%s%s%s%s%s\n",
	      (unsigned long long)r->began_ns, r->turn, r->first_type, (unsigned long long)r->tx_begin_ns,
	      (unsigned long long)r->tx_end_ns, (unsigned long long)r->rx_begin_ns, (unsigned long long)r->rx_end_ns,
	      (unsigned long long)r->gap_ns, (unsigned long long)r->turn_bytes[0], (unsigned long long)r->turn_bytes[1],
	      (unsigned long long)r->bytes[0], (unsigned long long)r->bytes[1], r->hello ? " hello" : "",
	      r->server ? " server" : "", r->merged ? " merged" : "", r->ended ? " ended" : "",
	      r->closed ? " closed" : "");
}

static void print_sv(struct world *ctx, struct sv s);

static void on_hello(void *ctx, const struct rec_hello *r)
{
	PRINT("hello %u dir %d cookie %llu ", r->tgid, r->dir, (unsigned long long)r->cookie);
	print_sv(ctx, r->bytes);
	PRINT("%s", "\n");
}

static void on_tunnel(void *ctx, const struct rec_tunnel *r)
{
	PRINT("tunnel %u dir %d cookie %llu :%u %llu-%llu ", r->tgid, r->dir, (unsigned long long)r->cookie,
	      r->remote.port, (unsigned long long)r->begin_ns, (unsigned long long)r->ts_ns);
	print_sv(ctx, r->bytes);
	PRINT("%s", "\n");
}

static void on_files(void *ctx, const struct rec_files *r)
{
	PRINT("files %u %llu%s%s%s ", r->tgid, (unsigned long long)r->probed_ns, r->probed ? " probed" : "",
	      r->refused ? " refused" : "", r->again ? " again" : "");
	print_sv(ctx, r->reason);
	PRINT("%s", "\n");
}

static void on_cpu(void *ctx, const struct rec_cpu *r)
{
	PRINT("cpu %u/%llu %llu wait %llu at %llu\n", r->proc.tgid, (unsigned long long)r->proc.start_ns,
	      (unsigned long long)r->cpu_ns, (unsigned long long)r->wait_ns, (unsigned long long)r->ts_ns);
}

static void on_dns(void *ctx, const struct rec_dns *r)
{
	PRINT("dns %u/%u/%llu tid %u cookie %llu dir %d ", r->proc.tgid, r->proc.exec_id,
	      (unsigned long long)r->proc.start_ns, r->tid, (unsigned long long)r->cookie, r->dir);
	print_sv(ctx, (struct sv){(const char *)r->bytes, r->len});
	PRINT("%s", "\n");
}

static void on_sqlite_text(void *ctx, const struct rec_sqlite_text *r)
{
	PRINT("sqlite text %u/%u/%llu %llx %llu-%llu tid %u result %d%s ", r->proc.tgid, r->proc.exec_id,
	      (unsigned long long)r->proc.start_ns, (unsigned long long)r->stmt, (unsigned long long)r->entry_ns,
	      (unsigned long long)r->ts_ns, r->tid, r->result, r->cut ? " cut" : "");
	print_sv(ctx, r->text);
	PRINT("%s", "\n");
}

static void on_sqlite_run(void *ctx, const struct rec_sqlite_run *r)
{
	PRINT("sqlite run %u/%u/%llu %llx %llu-%llu tid %u rows %llu result %d\n", r->proc.tgid, r->proc.exec_id,
	      (unsigned long long)r->proc.start_ns, (unsigned long long)r->stmt, (unsigned long long)r->begin_ns,
	      (unsigned long long)r->ts_ns, r->tid, (unsigned long long)r->rows, r->result);
}

static void on_func_call(void *ctx, const struct rec_func_call *r)
{
	PRINT("call of %u in %u/%u/%llu %llu-%llu tid %u depth %u\n", r->func, r->proc.tgid, r->proc.exec_id,
	      (unsigned long long)r->proc.start_ns, (unsigned long long)r->begin_ns, (unsigned long long)r->ts_ns,
	      r->tid, r->depth);
}

static void on_func(void *ctx, const struct rec_func *r)
{
	PRINT("function %u state %d calls %llu untold %llu ", r->func, r->state, (unsigned long long)r->calls,
	      (unsigned long long)r->untold);
	print_sv(ctx, r->name);
	PRINT("%s", "\n");
}

static void on_tool_call(void *ctx, const struct rec_tool_call *r)
{
	PRINT("tool call of %u/%u/%llu ", r->proc.tgid, r->proc.exec_id, (unsigned long long)r->proc.start_ns);
	print_sv(ctx, r->id);
	PRINT("%s", "\n");
}

static void on_sample(void *ctx, const struct rec_sample *r)
{
	PRINT("sample %u/%u/%llu tid %u ", r->proc.tgid, r->proc.exec_id, (unsigned long long)r->proc.start_ns, r->tid);
	print_sv(ctx, r->comm);
	PRINT("what %d at %llu weight %llu queue %llu call %d%s%s%s", r->what, (unsigned long long)r->ts_ns,
	      (unsigned long long)r->weight_ns, (unsigned long long)r->queue_ns, r->syscall, r->deep ? " deep" : "",
	      r->iowait ? " iowait" : "", r->disk ? " disk" : "");
	for (unsigned i = 0; i < r->kernel_frames + r->user_frames; i++)
		PRINT(" %llx", (unsigned long long)rec_sample_addr(r, i));
	PRINT("%s", "\n");
}

static void on_frame(void *ctx, const struct rec_frame *r)
{
	PRINT("frame %u/%u/%llu %llx source %d ", r->proc.tgid, r->proc.exec_id, (unsigned long long)r->proc.start_ns,
	      (unsigned long long)r->addr, r->source);
	print_sv(ctx, r->name);
	print_sv(ctx, r->module);
	PRINT("%s", "\n");
}

static void on_sampling(void *ctx, const struct rec_sampling *r)
{
	PRINT("sampling %llu %llu %llu %llu\n", (unsigned long long)r->period_ns, (unsigned long long)r->off_cpu_min_ns,
	      (unsigned long long)r->alloc_bytes, (unsigned long long)r->fault_period);
}

static void on_alloc_window(void *ctx, const struct rec_alloc_window *r)
{
	PRINT("window %u/%u/%llu %llu-%llu cpu %llu-%llu, %llu of it, traps %llu of %llu, bytes %llu in %llu, not "
	      "%llu%s, by %x\n",
	      r->proc.tgid, r->proc.exec_id, (unsigned long long)r->proc.start_ns, (unsigned long long)r->begin_ns,
	      (unsigned long long)r->ts_ns, (unsigned long long)r->since_cpu_ns, (unsigned long long)r->cpu_ns,
	      (unsigned long long)r->window_cpu_ns, (unsigned long long)r->window_traps_ns,
	      (unsigned long long)r->all_traps_ns, (unsigned long long)r->bytes, (unsigned long long)r->count,
	      (unsigned long long)r->unfollowed, r->follows ? " follows" : "", r->allocators);
}

static void on_alloc_free(void *ctx, const struct rec_alloc_free *r)
{
	PRINT("freed %u/%u/%llu %llx\n", r->proc.tgid, r->proc.exec_id, (unsigned long long)r->proc.start_ns,
	      (unsigned long long)r->addr);
}

static void on_tick(void *ctx, uint64_t now_ns)
{
	PRINT("tick %llu\n", (unsigned long long)now_ns);
}

static void open_world(struct world *w)
{
	*w = (struct world){0};
	record_init(&w->r, &w->lost,
		    &(struct record_sink){w,
					  on_data,
					  on_gap,
					  on_open,
					  on_close,
					  on_handshake,
					  on_conn_sock,
					  on_sock,
					  on_exec,
					  on_fork,
					  on_exit_,
					  on_gone,
					  on_tick,
					  on_pos,
					  on_wire,
					  on_hello,
					  on_tunnel,
					  on_files,
					  on_cpu,
					  on_dns,
					  on_tool_call,
					  on_sample,
					  on_frame,
					  on_sampling,
					  on_alloc_window,
					  on_alloc_free,
					  on_sqlite_text,
					  on_sqlite_run,
					  on_func_call,
					  on_func});
}

static void close_world(struct world *w)
{
	guard_free(&w->guard);
	tlog_free(&w->log);
}

/* One record: fixed part, variable part, padding. */
struct packet {
	uint8_t bytes[512];
	size_t len;
};

static struct packet packet(unsigned kind, unsigned flags, const void *fixed, size_t size, const char *more,
			    size_t more_len)
{
	struct packet p = {.len = size + (more_len + 7) / 8 * 8};
	struct ev_head h = {
		.size = (__u32)p.len, .kind = (__u16)kind, .flags = (__u16)flags, .ts_ns = 777, .tgid = 42, .tid = 43};

	memcpy(p.bytes, fixed, size);
	memcpy(p.bytes, &h, sizeof(h));
	if (more_len)
		memcpy(p.bytes + size, more, more_len);
	return p;
}

static const struct ev_conn conn = {.obj = 0x7f00, .start_ns = 5, .exec_id = 2, .gen = 9};
static const struct ev_addr addr = {
	.family = 2, .lport = 4000, .rport = 443, .laddr = {127, 0, 0, 1}, .raddr = {1, 2, 3, 4}};

/* At least one of each kind. */
#define SAMPLES_MAX (EV_KIND_MAX + 8)
static unsigned samples(struct packet out[SAMPLES_MAX])
{
	struct ev_data d = {.conn = conn, .pos = 100, .entry_ns = 770, .len = 5, .orig_len = 5, .dir = EV_DIR_RX};
	struct ev_gap g = {.conn = conn, .pos = 12, .dir = EV_DIR_TX};
	struct ev_sqlite_text text = {
		.start_ns = 5, .stmt = 0x9f0, .entry_ns = 770, .exec_id = 2, .result = 1, .len = 8, .cut = 1};
	struct ev_sqlite_run run = {
		.start_ns = 5, .stmt = 0x9f0, .begin_ns = 771, .rows = 4, .exec_id = 2, .result = 101};
	struct ev_func_call func_call = {.start_ns = 5, .begin_ns = 771, .exec_id = 2, .func = 3, .depth = 1};
	struct ev_func func = {.calls = 70, .untold = 60, .func = 3, .state = EV_FUNC_STOPPED, .name_len = 3};
	struct ev_conn_open o = {.conn = conn};
	struct ev_conn_close c = {.conn = conn, .pos = {7, 8}};
	struct ev_handshake s = {.conn = conn, .begin_ns = 700};
	struct ev_conn_sock cs = {
		.conn = conn, .cookie = 99, .addr = addr, .wire_len = 122, .plain_len = 100, .how = EV_SOCK_AFTER};
	struct ev_sock k = {.cookie = 99, .begin_ns = 600, .addr = addr, .what = EV_SK_CONNECTED, .srtt_us = 50};
	struct ev_sock vain = {
		.cookie = 98, .begin_ns = 600, .addr = addr, .what = EV_SK_CONNECT_FAILED, .srtt_us = 111};
	struct ev_exec x = {
		.start_ns = 5, .exec_id = 2, .ppid = 1, .comm = "python3", .filename_len = 8, .args_len = 11};
	struct ev_fork f = {.child_start_ns = 6, .child_tgid = 44};
	struct ev_exit e = {.start_ns = 5, .exec_id = 2, .code = 3, .signal = 9, .cpu_ns = 1000};
	struct ev_gone gone = {.start_ns = 5, .cpu_ns = 1001};
	struct ev_lost l = {.stats = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
	struct ev_head t = {0};
	struct ev_wire w = {.cookie = 99,
			    .start_ns = 5,
			    .began_ns = 10,
			    .tx_begin_ns = 11,
			    .tx_end_ns = 12,
			    .rx_begin_ns = 13,
			    .rx_end_ns = 14,
			    .gap_ns = 1,
			    .turn_bytes = {1, 2},
			    .bytes = {3, 4},
			    .addr = addr,
			    .exec_id = 2,
			    .turn = 6,
			    .flags = EV_WIRE_HELLO | EV_WIRE_ENDED,
			    .first_type = 23};
	struct ev_hello hello = {.cookie = 99, .len = 5, .dir = EV_DIR_RX};
	struct ev_files files = {.probed_ns = 4, .probed = 1, .reason_len = 6};
	struct ev_cpu cpu = {.start_ns = 5, .cpu_ns = 1234, .wait_ns = 99};
	struct ev_dns dns = {.start_ns = 5, .cookie = 99, .exec_id = 2, .len = 5, .dir = EV_DIR_RX};
	struct ev_tool_call tool_call = {.start_ns = 5, .exec_id = 2, .len = 6};
	struct ev_sample sample = {.start_ns = 5,
				   .weight_ns = 2000,
				   .queue_ns = 300,
				   .exec_id = 2,
				   .syscall = 202,
				   .what = EV_SAMPLE_OFF,
				   .state = EV_SAMPLE_DEEP | EV_SAMPLE_DISK,
				   .kernel_frames = 1,
				   .user_frames = 2,
				   .comm = "worker"};
	const __u64 addresses[] = {0xffff0010, 0x400010, 0x400020};
	struct ev_frame frame = {.start_ns = 5,
				 .addr = 0x40001f,
				 .exec_id = 2,
				 .source = EV_FRAME_NATIVE,
				 .name_len = 4,
				 .module_len = 3};
	struct ev_sampling sampling = {
		.period_ns = 10101010, .off_cpu_min_ns = 1000000, .alloc_bytes = 524288, .fault_period = 128};
	struct ev_alloc_window window = {.start_ns = 5,
					 .begin_ns = 700,
					 .since_cpu_ns = 100,
					 .cpu_ns = 900,
					 .window_cpu_ns = 77,
					 .bytes = 4096,
					 .count = 4,
					 .hits = 8,
					 .slow_hits = 2,
					 .samples = 1,
					 .all_traps_ns = 50,
					 .hit_ns = 3,
					 .slow_ns = 4,
					 .sample_ns = 5,
					 .period = 1000,
					 .unfollowed = 6,
					 .exec_id = 2,
					 .follows = 1,
					 .takes = 2,
					 .take_ns = 10,
					 .libraries = 1 << ALLOC_JEMALLOC};
	struct ev_tunnel tunnel = {.cookie = 99, .begin_ns = 600, .addr = addr, .len = 7, .dir = EV_DIR_TX};
	struct ev_alloc_free freed = {.start_ns = 5, .addr = 0x7f10, .exec_id = 2};
	unsigned n = 0;

	out[n++] = packet(EV_DATA, EV_F_FRESH, &d, sizeof(d), "hello", 5);
	out[n++] = packet(EV_GAP, 0, &g, sizeof(g), NULL, 0);
	out[n++] = packet(EV_CONN_OPEN, EV_F_FRESH, &o, sizeof(o), NULL, 0);
	out[n++] = packet(EV_CONN_CLOSE, EV_F_LOCAL, &c, sizeof(c), NULL, 0);
	out[n++] = packet(EV_HANDSHAKE, EV_F_APPROX, &s, sizeof(s), NULL, 0);
	out[n++] = packet(EV_CONN_SOCK, 0, &cs, sizeof(cs), NULL, 0);
	out[n++] = packet(EV_SOCK, 0, &k, sizeof(k), NULL, 0);
	out[n++] = packet(EV_SOCK, 0, &vain, sizeof(vain), NULL, 0);
	out[n++] = packet(EV_EXEC, 0, &x, sizeof(x), "/bin/pypython\0-c x", 19);
	out[n++] = packet(EV_PROC, 0, &x, sizeof(x), "/bin/pypython\0-c x", 19);
	out[n++] = packet(EV_FORK, 0, &f, sizeof(f), NULL, 0);
	out[n++] = packet(EV_EXIT, 0, &e, sizeof(e), NULL, 0);
	out[n++] = packet(EV_GONE, 0, &gone, sizeof(gone), NULL, 0);
	out[n++] = packet(EV_LOST, 0, &l, sizeof(l), NULL, 0);
	out[n++] = packet(EV_TICK, 0, &t, sizeof(t), NULL, 0);
	out[n++] = packet(EV_CONN_POS, 0, &c, sizeof(c), NULL, 0);
	out[n++] = packet(EV_WIRE, 0, &w, sizeof(w), NULL, 0);
	out[n++] = packet(EV_HELLO, 0, &hello, sizeof(hello), "hello", 5);
	out[n++] = packet(EV_TUNNEL, 0, &tunnel, sizeof(tunnel), "CONNECT", 7);
	out[n++] = packet(EV_FILES, 0, &files, sizeof(files), "reason", 6);
	out[n++] = packet(EV_TOOL_CALL, 0, &tool_call, sizeof(tool_call), "call_1", 6);
	out[n++] = packet(EV_SAMPLE, 0, &sample, sizeof(sample), (const char *)addresses, sizeof(addresses));
	out[n++] = packet(EV_FRAME, 0, &frame, sizeof(frame), "mainexe", 7);
	out[n++] = packet(EV_SAMPLING, 0, &sampling, sizeof(sampling), NULL, 0);
	out[n++] = packet(EV_DNS, 0, &dns, sizeof(dns), "query", 5);
	out[n++] = packet(EV_CPU, 0, &cpu, sizeof(cpu), NULL, 0);
	out[n++] = packet(EV_SQLITE_TEXT, 0, &text, sizeof(text), "SELECT 1", 8);
	out[n++] = packet(EV_SQLITE_RUN, 0, &run, sizeof(run), NULL, 0);
	out[n++] = packet(EV_FUNC_CALL, 0, &func_call, sizeof(func_call), NULL, 0);
	out[n++] = packet(EV_FUNC, 0, &func, sizeof(func), "a:f", 3);
	out[n++] = packet(EV_ALLOC_WINDOW, 0, &window, sizeof(window), NULL, 0);
	out[n++] = packet(EV_ALLOC_FREE, 0, &freed, sizeof(freed), NULL, 0);
	return n;
}

static void push(struct world *w, const struct packet *p)
{
	record_push(&w->r, guard_copy(&w->guard, p->bytes, p->len), p->len);
}

static const char golden[] =
	"data 42/2/5/7f00/9 1 770-777 tid 43 pos 100 5/5 fresh hello\n"
	"gap 42/2/5/7f00/9 0 12 at 777\n"
	"open 42/2/5/7f00/9 777 fresh\n"
	"close 42/2/5/7f00/9 777 7,8 local\n"
	"handshake 42/2/5/7f00/9 700-777 approximate\n"
	"conn_sock 42/2/5/7f00/9 2:127.0.0.1..0:4000 2:1.2.3.4..0:443 777 how 2 dir 0 cookie 99 100/122\n"
	"sock 42 2:127.0.0.1..0:4000 2:1.2.3.4..0:443 600-777 what 1 cookie 99 srtt 50\n"
	"sock 42 2:127.0.0.1..0:4000 2:1.2.3.4..0:443 600-777 what 2 cookie 98 srtt 0 error 111\n"
	"exec 42/2/5 ppid 1 at 777 [python3] [/bin/pyp] [ython\\x00-c x\\x00] \n"
	"proc 42/2/5 ppid 1 at 777 [python3] [/bin/pyp] [ython\\x00-c x\\x00] \n"
	"fork 42 -> 44/6 at 777\n"
	"exit 42/2/5 code 3 signal 9 cpu 1000 at 777\n"
	"gone 42/5 cpu 1001 at 777\n"
	"tick 777\n"
	"pos 42/2/5/7f00/9 777 7,8\n"
	"wire 42/2/5 cookie 99 2:1.2.3.4..0:443 from 10 turn 6 type 23 11-12 13-14 gap 1 1/2 of 3/4 hello ended\n"
	"hello 42 dir 1 cookie 99 [hello] \n"
	"tunnel 42 dir 0 cookie 99 :443 600-777 [CONNECT] \n"
	"files 42 4 probed [reason] \n"
	"tool call of 42/2/5 [call_1] \n"
	"sample 42/2/5 tid 43 [worker] what 2 at 777 weight 2000 queue 300 call 202 deep disk ffff0010 400010 40001f\n"
	"frame 42/2/5 40001f source 1 [main] [exe] \n"
	"sampling 10101010 1000000 524288 128\n"
	"dns 42/2/5 tid 43 cookie 99 dir 1 [query] \n"
	"cpu 42/5 1234 wait 99 at 777\n"
	"sqlite text 42/2/5 9f0 770-777 tid 43 result 1 cut [SELECT 1] \n"
	"sqlite run 42/2/5 9f0 771-777 tid 43 rows 4 result 101\n"
	"call of 3 in 42/2/5 771-777 tid 43 depth 1\n"
	"function 3 state 4 calls 70 untold 60 [a:f] \n"
	"window 42/2/5 700-777 cpu 100-900, 77 of it, traps 58 of 50, bytes 4096 in 4, not 6 follows, by 8\n"
	"freed 42/2/5 7f10\n";

static void every_kind(void **state)
{
	struct packet all[SAMPLES_MAX];
	unsigned n = samples(all);
	struct ev_head h;
	uint64_t seen = 0;
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < n; i++) {
		memcpy(&h, all[i].bytes, sizeof(h));
		seen |= 1ull << h.kind;
		push(&w, &all[i]);
	}
	assert_int_equal(seen, (1ull << (EV_KIND_MAX + 1)) - 2);
	assert_log(&w.log, golden);
	assert_int_equal(w.lost.n[LOST_UNKNOWN_RECORDS], 0);
	assert_int_equal(w.lost.n[LOST_RING_RECORDS], 1);
	assert_int_equal(w.lost.n[LOST_RING_BYTES], 2);
	assert_int_equal(w.lost.n[LOST_STATE_FULL], 3);
	assert_int_equal(w.lost.n[LOST_NEST_OVERFLOW], 4);
	assert_int_equal(w.lost.n[LOST_MISSED_RETURNS], 5);
	assert_int_equal(w.lost.n[LOST_FAULTS], 6);
	assert_int_equal(w.lost.n[LOST_UNSEEN_BYTES], 7);
	assert_int_equal(w.lost.n[LOST_SAMPLES], 8);
	assert_int_equal(w.lost.n[LOST_OVERLOAD], 9);
	assert_int_equal(w.lost.n[LOST_BAD_RECORDS], 0);
	close_world(&w);
}

/* The kernel's counters are sums: told twice they are not twice as many. */
static void counters_are_absolute(void **state)
{
	struct ev_lost l = {.stats = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}};
	struct packet p = packet(EV_LOST, 0, &l, sizeof(l), NULL, 0), shorter = p;
	struct ev_head h;
	struct world w;

	(void)state;
	open_world(&w);
	w.lost.ignored_bytes = 1; /* records told of some */
	push(&w, &p);
	push(&w, &p);
	assert_int_equal(w.lost.ignored_bytes, 101);
	assert_int_equal(w.lost.n[LOST_RING_RECORDS], 10);
	assert_int_equal(w.lost.n[LOST_UNSEEN_BYTES], 70);
	assert_int_equal(w.lost.n[LOST_TARGETS], 110);
	memcpy(&h, shorter.bytes, sizeof(h)); /* of a version with one counter only */
	h.size = sizeof(h) + 8;
	memcpy(shorter.bytes, &h, sizeof(h));
	shorter.len = h.size;
	shorter.bytes[sizeof(h)] = 11;
	push(&w, &shorter);
	assert_int_equal(w.lost.n[LOST_RING_RECORDS], 11);
	assert_int_equal(w.lost.n[LOST_RING_BYTES], 20);
	assert_int_equal(w.lost.n[LOST_BAD_RECORDS], 0);
	close_world(&w);
}

static void data_flags(void **state)
{
	struct ev_data d = {.conn = conn, .pos = 1, .entry_ns = 770, .len = 5, .orig_len = 50};
	struct packet capped = packet(EV_DATA, EV_F_CAPPED, &d, sizeof(d), "hello", 5);
	struct packet lost = packet(EV_DATA, 0, &d, sizeof(d), "hello", 5);
	struct packet fault = packet(EV_DATA, EV_F_FAULT, &d, sizeof(d), "?????", 5);
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, &capped);
	push(&w, &lost);
	push(&w, &fault);
	assert_log(&w.log, "data 42/2/5/7f00/9 0 770-777 tid 43 pos 1 5/50 capped hello\n"
			   "data 42/2/5/7f00/9 0 770-777 tid 43 pos 1 5/50 hello\n"
			   "data 42/2/5/7f00/9 0 770-777 tid 43 pos 1 0/50 \n");
	assert_int_equal(w.lost.capped_bytes, 45);
	close_world(&w);
}

static void whose_data(void **state)
{
	struct ev_data d = {.conn = conn, .len = 5, .orig_len = 5};
	struct packet whole = packet(EV_DATA, 0, &d, sizeof(d), "hello", 5);
	struct packet half = packet(EV_DATA, EV_F_HALF, &d, sizeof(d), "hello", 5);
	struct packet gap = packet(EV_GAP, 0, &d, sizeof(d), NULL, 0);
	struct world w;
	struct conn_key key;

	(void)state;
	open_world(&w);
	assert_true(record_conn(guard_copy(&w.guard, whole.bytes, whole.len), whole.len, &key));
	print_conn(&w, &key);
	assert_log(&w.log, "42/2/5/7f00/9 ");
	assert_false(record_conn(half.bytes, half.len, &key));
	assert_false(record_conn(gap.bytes, gap.len, &key));
	for (size_t len = 0; len < sizeof(d); len++)
		assert_false(record_conn(guard_copy(&w.guard, whole.bytes, len), len, &key));
	close_world(&w);
}

/* What user space did not want is no loss either, and counted by itself. */
static void ignored_flag(void **state)
{
	struct ev_data d = {.conn = conn, .pos = 1, .entry_ns = 770, .len = 5, .orig_len = 50};
	struct packet part = packet(EV_DATA, EV_F_IGNORED, &d, sizeof(d), "hello", 5);
	struct packet fault = packet(EV_DATA, EV_F_IGNORED | EV_F_FAULT, &d, sizeof(d), "?????", 5);
	struct packet none;
	struct world w;

	(void)state;
	d.len = 0;
	none = packet(EV_DATA, EV_F_IGNORED, &d, sizeof(d), NULL, 0);
	open_world(&w);
	push(&w, &part);
	push(&w, &none);
	push(&w, &fault);
	assert_log(&w.log, "data 42/2/5/7f00/9 0 770-777 tid 43 pos 1 5/50 capped hello\n"
			   "data 42/2/5/7f00/9 0 770-777 tid 43 pos 1 0/50 capped \n"
			   "data 42/2/5/7f00/9 0 770-777 tid 43 pos 1 0/50 \n");
	assert_int_equal(w.lost.ignored_bytes, 95);
	assert_int_equal(w.lost.capped_bytes, 0);
	close_world(&w);
}

static void plain_connection(void **state)
{
	struct ev_conn_open o = {.conn = conn};
	struct ev_conn_sock s = {.conn = conn, .cookie = 99, .how = EV_SOCK_ITSELF};
	struct packet open = packet(EV_CONN_OPEN, EV_F_PLAIN | EV_F_FRESH, &o, sizeof(o), NULL, 0);
	struct packet sock = packet(EV_CONN_SOCK, 0, &s, sizeof(s), NULL, 0);
	struct packet stdio = packet(EV_CONN_OPEN, EV_F_PLAIN | EV_F_STDIO, &o, sizeof(o), NULL, 0);
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, &open);
	push(&w, &sock);
	push(&w, &stdio);
	assert_log(&w.log, "open 42/2/5/7f00/9 777 fresh plain\n"
			   "conn_sock 42/2/5/7f00/9 0:0.0.0.0..0:0 0:0.0.0.0..0:0 777 how 4 dir 0 cookie 99 0/0\n"
			   "open 42/2/5/7f00/9 777 plain stdio\n");
	close_world(&w);
}

static unsigned halves_seen;

static void count_half_data(void *ctx, const struct rec_data *r)
{
	(void)ctx;
	halves_seen += r->half;
}

static void count_half_gap(void *ctx, const struct rec_gap *r)
{
	(void)ctx;
	halves_seen += r->half;
}

static void count_half_open(void *ctx, const struct rec_open *r)
{
	(void)ctx;
	halves_seen += r->half;
}

static void count_half_pos(void *ctx, const struct rec_pos *r)
{
	(void)ctx;
	halves_seen += r->half;
}

static void count_half_handshake(void *ctx, const struct rec_handshake *r)
{
	(void)ctx;
	halves_seen += r->half;
}

static void count_half_sock(void *ctx, const struct rec_conn_sock *r)
{
	(void)ctx;
	halves_seen += r->half;
	assert_int_equal(r->how, SOCK_RECORDS);
	assert_int_equal(r->fresh, r->half);
}

/* Each kind of record says whether it is of half a connection, and no other flag is taken for that. */
static void half_connection(void **state)
{
	const struct record_sink sink = {
		.on_data = count_half_data,
		.on_gap = count_half_gap,
		.on_open = count_half_open,
		.on_pos = count_half_pos,
		.on_handshake = count_half_handshake,
		.on_conn_sock = count_half_sock,
	};
	struct ev_data d = {.conn = conn};
	struct ev_gap g = {.conn = conn};
	struct ev_conn_open o = {.conn = conn};
	struct ev_conn_close c = {.conn = conn};
	struct ev_handshake h = {.conn = conn};
	struct ev_conn_sock s = {.conn = conn, .cookie = 99, .how = EV_SOCK_RECORDS};
	struct lost lost = {.n = {0}};
	struct record r;

	(void)state;
	record_init(&r, &lost, &sink);
	for (int half = 0; half <= 1; half++) {
		uint16_t flags = half ? EV_F_HALF : (uint16_t) ~(EV_F_HALF | EV_F_FRESH);
		uint16_t tied = half ? EV_F_HALF | EV_F_FRESH : 0;
		struct packet all[] = {
			packet(EV_DATA, flags, &d, sizeof(d), NULL, 0),
			packet(EV_GAP, flags, &g, sizeof(g), NULL, 0),
			packet(EV_CONN_OPEN, flags, &o, sizeof(o), NULL, 0),
			packet(EV_CONN_POS, flags, &c, sizeof(c), NULL, 0),
			packet(EV_HANDSHAKE, flags, &h, sizeof(h), NULL, 0),
			packet(EV_CONN_SOCK, tied, &s, sizeof(s), NULL, 0),
		};

		halves_seen = 0;
		for (size_t i = 0; i < ARRAY_SIZE(all); i++)
			record_push(&r, all[i].bytes, all[i].len);
		assert_int_equal(halves_seen, half ? ARRAY_SIZE(all) : 0);
	}
	assert_int_equal(lost.n[LOST_BAD_RECORDS], 0);
}

static void unaligned(void **state)
{
	struct packet all[SAMPLES_MAX];
	unsigned n = samples(all);
	uint8_t shifted[sizeof(all[0].bytes) + 8];
	struct world w;

	(void)state;
	for (unsigned by = 1; by < 8; by++) {
		open_world(&w);
		for (unsigned i = 0; i < n; i++) {
			memcpy(shifted + by, all[i].bytes, all[i].len);
			record_push(&w.r, shifted + by, all[i].len);
		}
		assert_log(&w.log, golden);
		close_world(&w);
	}
}

/* Cut anywhere, every record is bad and nothing beyond its end is read. */
static void cut_short(void **state)
{
	struct packet all[SAMPLES_MAX];
	unsigned n = samples(all);

	(void)state;
	for (unsigned i = 0; i < n; i++) {
		struct world w;

		open_world(&w);
		for (size_t len = 0; len < all[i].len; len++) {
			record_push(&w.r, guard_copy(&w.guard, all[i].bytes, len), len);
			assert_int_equal(w.lost.n[LOST_BAD_RECORDS], len + 1);
		}
		assert_log(&w.log, "");
		close_world(&w);
	}
}

/* As above with a head that says so: `size` is that of the cut. The counters may be fewer, the rest may not. */
static void shrunk(void **state)
{
	struct packet all[SAMPLES_MAX];
	unsigned n = samples(all);

	(void)state;
	for (unsigned i = 0; i < n; i++) {
		struct ev_head h;
		struct world w;

		memcpy(&h, all[i].bytes, sizeof(h));
		if (h.kind == EV_SAMPLING || h.kind == EV_ALLOC_WINDOW) /* grew: see earlier() */
			continue;
		open_world(&w);
		for (h.size = sizeof(h); h.size < all[i].len; h.size += 8) {
			memcpy(all[i].bytes, &h, sizeof(h));
			record_push(&w.r, guard_copy(&w.guard, all[i].bytes, h.size), h.size);
		}
		assert_log(&w.log, "");
		assert_int_equal(w.lost.n[LOST_BAD_RECORDS], h.kind == EV_LOST ? 0 : (all[i].len - sizeof(h)) / 8);
		close_world(&w);
	}
}

/* As it was before there was --alloc, and before it was told what functions that free take, and whose they are. */
static void earlier(void **state)
{
	struct ev_sampling sampling = {.period_ns = 7, .off_cpu_min_ns = 8, .alloc_bytes = 9};
	struct ev_alloc_window window = {.hits = 2, .hit_ns = 3, .takes = 5, .take_ns = 7, .libraries = 9};
	struct packet p = packet(EV_SAMPLING, 0, &sampling, offsetof(struct ev_sampling, alloc_bytes), NULL, 0);
	struct packet less = packet(EV_SAMPLING, 0, &sampling, offsetof(struct ev_sampling, off_cpu_min_ns), NULL, 0);
	struct packet alloc = packet(EV_ALLOC_WINDOW, 0, &window, offsetof(struct ev_alloc_window, takes), NULL, 0);
	struct packet cut = packet(EV_ALLOC_WINDOW, 0, &window, offsetof(struct ev_alloc_window, exec_id), NULL, 0);
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, &p);
	push(&w, &less);
	push(&w, &alloc);
	push(&w, &cut);
	assert_log(&w.log, "sampling 7 8 0 0\n"
			   "window 42/0/0 0-777 cpu 0-0, 0 of it, traps 6 of 0, bytes 0 in 0, not 0, by 0\n");
	assert_int_equal(w.lost.n[LOST_BAD_RECORDS], 2);
	close_world(&w);
}

static void expect_bad(unsigned kind, const void *fixed, size_t size)
{
	struct packet p = packet(kind, 0, fixed, size, "hello", 5);
	struct world w;

	open_world(&w);
	push(&w, &p);
	assert_log(&w.log, "");
	assert_int_equal(w.lost.n[LOST_BAD_RECORDS], 1);
	close_world(&w);
}

static void contradictions(void **state)
{
	struct ev_data data[] = {
		{.conn = conn, .len = 9, .orig_len = 9}, /* more than there is */
		{.conn = conn, .len = UINT32_MAX, .orig_len = UINT32_MAX},
		{.conn = conn, .len = 5, .orig_len = 4}, /* more than was moved */
		{.conn = conn, .len = 5, .orig_len = 5, .dir = 2},
		{.conn = conn, .len = 5, .orig_len = 5, .pos = (1ull << 56) + 1},
	};
	struct ev_exec exec[] = {
		{.filename_len = 9},
		{.filename_len = 5, .args_len = 4},
		{.filename_len = 8, .args_len = UINT32_MAX},
		{.filename_len = UINT32_MAX, .args_len = 2},
	};
	struct ev_hello hello[] = {{.len = 9}, {.len = 5, .dir = 2}};
	struct ev_dns dns[] = {{.len = 9}, {.len = UINT32_MAX}, {.len = 5, .dir = 2}};
	struct ev_tool_call tool_call[] = {{.len = 0}, {.len = 9}, {.len = UINT32_MAX}};
	struct ev_sqlite_text text[] = {{.stmt = 1, .len = 9}, {.stmt = 1, .entry_ns = 778}, {.stmt = 0}};
	struct ev_sqlite_run run = {.begin_ns = 778};
	struct ev_func_call func_call[] = {{.begin_ns = 778}, {.func = LIMIT_FUNCS}};
	struct ev_func func[] = {{.state = 1},
				 {.name_len = 1},
				 {.state = 5, .name_len = 1},
				 {.state = 1, .name_len = 9},
				 {.state = 1, .name_len = 1, .func = LIMIT_FUNCS}};
	struct ev_alloc_window window[] = {{.begin_ns = 778},	    {.since_cpu_ns = 2, .cpu_ns = 1},
					   {.cpu_ns = UINT64_MAX},  {.window_cpu_ns = UINT64_MAX},
					   {.bytes = UINT64_MAX},   {.count = UINT64_MAX},
					   {.hits = UINT64_MAX},    {.slow_hits = UINT64_MAX},
					   {.samples = UINT64_MAX}, {.all_traps_ns = UINT64_MAX},
					   {.takes = UINT64_MAX}};
	struct ev_sample sample[] = {{.what = 0},
				     {.what = EV_SAMPLE_FAULT + 1},
				     {.what = EV_SAMPLE_ALLOC}, /* no period */
				     {.what = EV_SAMPLE_FAULT, .weight_ns = UINT64_MAX}};
	struct ev_tunnel tunnel[] = {{.dir = 2}, {.len = 9}, {.len = UINT32_MAX}};
	struct ev_gap gap[] = {{.dir = 2}, {.pos = UINT64_MAX}};
	struct ev_conn_close closed = {.pos = {0, UINT64_MAX}};
	struct ev_handshake handshake = {.begin_ns = 778};
	struct ev_conn_sock conn_sock[] = {{.how = 0}, {.how = 6}, {.how = 1, .dir = 2}};
	struct ev_sock sock[] = {
		{.what = 0}, {.what = EV_SK_QUEUED + 1}, {.what = EV_SK_CONNECT_FAILED, .srtt_us = 4096}};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(data); i++)
		expect_bad(EV_DATA, &data[i], sizeof(data[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(exec); i++) {
		expect_bad(EV_EXEC, &exec[i], sizeof(exec[i]));
		expect_bad(EV_PROC, &exec[i], sizeof(exec[i]));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(conn_sock); i++)
		expect_bad(EV_CONN_SOCK, &conn_sock[i], sizeof(conn_sock[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(sock); i++)
		expect_bad(EV_SOCK, &sock[i], sizeof(sock[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(hello); i++)
		expect_bad(EV_HELLO, &hello[i], sizeof(hello[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(tunnel); i++)
		expect_bad(EV_TUNNEL, &tunnel[i], sizeof(tunnel[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(dns); i++)
		expect_bad(EV_DNS, &dns[i], sizeof(dns[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(tool_call); i++)
		expect_bad(EV_TOOL_CALL, &tool_call[i], sizeof(tool_call[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(text); i++)
		expect_bad(EV_SQLITE_TEXT, &text[i], sizeof(text[i]));
	expect_bad(EV_SQLITE_RUN, &run, sizeof(run));
	for (unsigned i = 0; i < ARRAY_SIZE(func_call); i++)
		expect_bad(EV_FUNC_CALL, &func_call[i], sizeof(func_call[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(func); i++)
		expect_bad(EV_FUNC, &func[i], sizeof(func[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(window); i++)
		expect_bad(EV_ALLOC_WINDOW, &window[i], sizeof(window[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(sample); i++)
		expect_bad(EV_SAMPLE, &sample[i], sizeof(sample[i]));
	expect_bad(EV_GAP, &gap[0], sizeof(gap[0]));
	expect_bad(EV_GAP, &gap[1], sizeof(gap[1]));
	expect_bad(EV_CONN_CLOSE, &closed, sizeof(closed));
	expect_bad(EV_HANDSHAKE, &handshake, sizeof(handshake));
	expect_bad(EV_INVALID, &closed, sizeof(closed));
}

static void unknown_kinds(void **state)
{
	struct ev_head h = {0};
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned kind = EV_KIND_MAX + 1; kind < 70; kind++) {
		struct packet p = packet(kind, 0, &h, sizeof(h), "from tomorrow", 13);

		push(&w, &p);
	}
	assert_log(&w.log, "");
	assert_int_equal(w.lost.n[LOST_UNKNOWN_RECORDS], 70 - EV_KIND_MAX - 1);
	assert_int_equal(w.lost.n[LOST_BAD_RECORDS], 0);
	close_world(&w);
}

static void sizes(void **state)
{
	__u32 size = 80;

	(void)state;
	assert_int_equal(record_size(&size, 3), 0);
	assert_int_equal(record_size(&size, 4), 80);
	size = 81;
	assert_int_equal(record_size(&size, 4), -EINVAL);
	size = 16;
	assert_int_equal(record_size(&size, 100), -EINVAL);
	size = 0;
	assert_int_equal(record_size(&size, 100), -EINVAL);
	size = 0xfffffff8u;
	assert_int_equal(record_size(&size, 100), 0xfffffff8l);
}

static void no_sink(void **state)
{
	struct packet all[SAMPLES_MAX];
	unsigned n = samples(all);
	struct world w;

	(void)state;
	open_world(&w);
	record_init(&w.r, &w.lost, &(struct record_sink){0});
	for (unsigned i = 0; i < n; i++)
		push(&w, &all[i]);
	assert_int_equal(w.lost.n[LOST_BAD_RECORDS], 0);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind),	   cmocka_unit_test(counters_are_absolute),
		cmocka_unit_test(data_flags),	   cmocka_unit_test(whose_data),
		cmocka_unit_test(ignored_flag),	   cmocka_unit_test(plain_connection),
		cmocka_unit_test(half_connection), cmocka_unit_test(unaligned),
		cmocka_unit_test(cut_short),	   cmocka_unit_test(shrunk),
		cmocka_unit_test(earlier),	   cmocka_unit_test(contradictions),
		cmocka_unit_test(unknown_kinds),   cmocka_unit_test(sizes),
		cmocka_unit_test(no_sink),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
