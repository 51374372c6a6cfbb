/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The BPF side, for real: loads the object in one flavour, probes functions of this very program (whose return values
 * are scripted) and of libssl, lets child processes call them, and compares the records with golden texts.
 *
 *   bpftest session|multi|perf [no-dynptr] [no-sock-length]
 *
 * Speaks TAP. Needs root and BPF; says SKIP where there is none, or where the kernel has no such flavour.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <link.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <linux/io_uring.h>
#include <linux/types.h>

#include "attach/probes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "bpf/event.h"

#define PAGE 4096
#define BIG  (2u << 20)

static const char *flavour;
static unsigned test_number, failures;

/* --- what the probed functions do -------------------------------------------------------------------------------- */

#define PROBED __attribute__((noinline, noipa, noclone))

static __thread struct {
	int ret;
	size_t out;
	void (*inside)(void); /* called before it returns, once */
} script;

static int perform(size_t *out)
{
	void (*inside)(void) = script.inside;
	int ret = script.ret;
	size_t n = script.out;

	script.inside = NULL;
	if (inside)
		inside();
	if (out)
		*out = n;
	return ret;
}

int fake_read(void *obj, void *buf, int n);
int fake_read_ex(void *obj, void *buf, size_t n, size_t *out);
int fake_write(void *obj, const void *buf, int n);
int fake_write_ex(void *obj, const void *buf, size_t n, size_t *out);
int fake_write_ex2(void *obj, const void *buf, size_t n, unsigned long flags, size_t *out);
int fake_write_all(void *obj, const void *buf, int n);
int fake_peek(void *obj, void *buf, int n);
int fake_handshake(void *obj);
int fake_handshake_zero(void *obj);
void *fake_new(void *result);
void fake_free(void *obj);

PROBED int fake_read(void *obj, void *buf, int n)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(NULL);
}

PROBED int fake_read_ex(void *obj, void *buf, size_t n, size_t *out)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(out);
}

PROBED int fake_write(void *obj, const void *buf, int n)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(NULL);
}

PROBED int fake_write_ex2(void *obj, const void *buf, size_t n, unsigned long flags, size_t *out)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n), "r"(flags) : "memory");
	return perform(out);
}

/* A tail call, as in OpenSSL 3.3 and later. */
PROBED __attribute__((optimize("O2"))) int fake_write_ex(void *obj, const void *buf, size_t n, size_t *out)
{
	return fake_write_ex2(obj, buf, n, 0, out);
}

/* A loop around partial writes: its own bytes were all told by the calls inside. */
PROBED int fake_write_all(void *obj, const void *buf, int n)
{
	int done = 0;

	while (done < n) {
		script.ret = n - done < 4 ? n - done : 4;
		done += fake_write(obj, (const char *)buf + done, n - done);
	}
	return done;
}

PROBED int fake_peek(void *obj, void *buf, int n)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(NULL);
}

PROBED int fake_handshake(void *obj)
{
	__asm__ volatile("" : : "r"(obj) : "memory");
	return perform(NULL);
}

PROBED int fake_handshake_zero(void *obj)
{
	__asm__ volatile("" : : "r"(obj) : "memory");
	return perform(NULL);
}

PROBED void *fake_new(void *result)
{
	__asm__ volatile("" : "+r"(result) : : "memory");
	return result;
}

PROBED void fake_free(void *obj)
{
	__asm__ volatile("" : : "r"(obj) : "memory");
}

int fake_seal(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len, const void *in,
	      size_t in_len, const void *ad, size_t ad_len);
int fake_open(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len, const void *in,
	      size_t in_len, const void *ad, size_t ad_len);

/* As a cipher in place does: what was plain is not any more. */
PROBED int fake_seal(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len,
		     const void *in, size_t in_len, const void *ad, size_t ad_len)
{
	__asm__ volatile(""
			 :
			 : "r"(ctx), "r"(max), "r"(nonce), "r"(nonce_len), "r"(in), "r"(ad), "r"(ad_len)
			 : "memory");
	memset(out, 'X', in_len);
	return perform(out_len);
}

PROBED int fake_open(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len,
		     const void *in, size_t in_len, const void *ad, size_t ad_len)
{
	__asm__ volatile(""
			 :
			 : "r"(ctx), "r"(out), "r"(max), "r"(nonce), "r"(nonce_len), "r"(in), "r"(in_len)
			 : "memory");
	__asm__ volatile("" : : "r"(ad), "r"(ad_len) : "memory");
	return perform(out_len);
}

/* Calls with a scripted result. */
static int do_read(void *obj, void *buf, int ret)
{
	script.ret = ret;
	return fake_read(obj, buf, 4096);
}

static void do_read_ex(void *obj, void *buf, int ret, size_t out)
{
	size_t got = 0;

	script.ret = ret;
	script.out = out;
	fake_read_ex(obj, buf, 16384, &got);
}

static int do_write(void *obj, const void *buf, int ret)
{
	script.ret = ret;
	return fake_write(obj, buf, 1 << 30);
}

static void do_write_ex(void *obj, const void *buf, int ret, size_t out)
{
	size_t got = 0;

	script.ret = ret;
	script.out = out;
	fake_write_ex(obj, buf, 1 << 20, &got);
}

static void do_handshake(void *obj, int ret)
{
	script.ret = ret;
	fake_handshake(obj);
}

/* Objects, and bytes whose value follows from their place. */
static char objects[4][16];
#define A (&objects[0])
#define B (&objects[1])
#define C (&objects[2])
static uint8_t *big;
static uint8_t *wire; /* headers of HTTP/2's frames, and the pattern between them */
static char text[4096];

static uint8_t pattern(uint64_t at)
{
	return (uint8_t)(at * 7 + (at >> 8) * 13 + 1);
}

/* --- records as text --------------------------------------------------------------------------------------------- */

static char *got;
static size_t got_len, got_size;
static pid_t child_pid;
static uint32_t gens[64];
static unsigned gen_count;
static uint64_t data_bytes, records_seen;
static bool quiet_data;
static const uint8_t *expected; /* what a stream holds; NULL: the pattern */
static void (*on_data_hook)(const struct ev_data *d);
static uint64_t exec_ids[8];
static unsigned exec_count;

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
	va_list ap;

	if (got_size - got_len < 8192) {
		got_size = got_size ? 2 * got_size : 65536;
		got = realloc(got, got_size);
		if (!got)
			abort();
	}
	va_start(ap, fmt);
	got_len += (size_t)vsnprintf(got + got_len, got_size - got_len, fmt, ap);
	va_end(ap);
}

static unsigned gen_number(uint32_t gen)
{
	unsigned i;

	for (i = 0; i < gen_count; i++)
		if (gens[i] == gen)
			return i + 1;
	if (gen_count < ARRAY_SIZE(gens))
		gens[gen_count++] = gen;
	return gen_count;
}

static void note_conn(const char *what, const struct ev_head *h, const struct ev_conn *c)
{
	char object = c->obj == (uintptr_t)A ? 'A' : c->obj == (uintptr_t)B ? 'B' : c->obj == (uintptr_t)C ? 'C' : 'x';

	note("%s%s %c%u%s", h->flags & EV_F_HALF ? "half " : "", what, object, gen_number(c->gen),
	     h->tgid == (uint32_t)child_pid ? "" : " child");
	if (!c->start_ns || c->start_ns > h->ts_ns)
		note(" BADSTART");
}

static const char *dir_name(uint8_t dir)
{
	return dir == EV_DIR_TX ? "tx" : dir == EV_DIR_RX ? "rx" : "BADDIR";
}

static void note_bytes(const struct ev_data *d)
{
	uint32_t i;

	if (!d->len)
		return;
	for (i = 0; i < d->len; i++)
		if (d->bytes[i] != (expected ? expected[d->pos + i] : pattern(d->pos + i)))
			break;
	if (i == d->len)
		note(" pattern");
	else if (d->len <= 64)
		note(" '%.*s'", (int)d->len, (const char *)d->bytes);
	else
		note(" BADBYTES");
}

static uint64_t handshake_ns; /* end of the last one */
static bool note_gone;	      /* of grandchildren: their parent is told beside other things, in any order */
static uint32_t fresh_gens[1024];

static bool is_fresh_gen(uint32_t gen)
{
	return fresh_gens[gen % ARRAY_SIZE(fresh_gens)] == gen;
}

static void note_data(const struct ev_data *d, size_t len)
{
	data_bytes += d->len;
	if (quiet_data)
		return;
	note_conn("data", &d->h, &d->conn);
	note(" %s %llu+%u", dir_name(d->dir), d->pos, d->len);
	if (d->orig_len != d->len)
		note("/%u", d->orig_len);
	if (sizeof(*d) + d->len > d->h.size)
		note(" BADSIZE");
	else
		note_bytes(d);
	if (!(d->h.flags & EV_F_FRESH) != !is_fresh_gen(d->conn.gen))
		note(" BADFRESH");
	if (d->entry_ns == handshake_ns)
		note(" after the handshake");
	if (d->entry_ns > d->h.ts_ns || d->entry_ns < d->conn.start_ns)
		note(" BADTIME");
	note("%s%s%s\n", d->h.flags & EV_F_CAPPED ? " capped" : "", d->h.flags & EV_F_IGNORED ? " ignored" : "",
	     d->h.flags & EV_F_FAULT ? " fault" : "");
	(void)len;
	if (on_data_hook)
		on_data_hook(d);
}

static void note_exec(const struct ev_exec *e)
{
	const char *s = (const char *)e->bytes;
	uint32_t i;

	note("exec %.*s", (int)e->filename_len, s);
	for (i = 0; i < e->args_len; i++) {
		char c = s[e->filename_len + i];

		note("%s%c", i ? "" : " ", c ? c : '|');
	}
	if (exec_count < ARRAY_SIZE(exec_ids))
		exec_ids[exec_count++] = e->exec_id;
	note("%s\n", sizeof(*e) + e->filename_len + e->args_len > e->h.size ? " BADSIZE" : "");
}

static const char *const sock_names[] = {"?",	   "connected",	 "connect-failed", "close-local",    "close-remote",
					 "closed", "retransmit", "reset-sent",	   "reset-received", "rtt"};

static void note_addr(const struct ev_addr *a)
{
	char local[INET6_ADDRSTRLEN] = "", remote[INET6_ADDRSTRLEN] = "";

	inet_ntop(a->family, a->laddr, local, sizeof(local));
	inet_ntop(a->family, a->raddr, remote, sizeof(remote));
	note(" %s:%s>%s:%s", local, a->lport ? "L" : "0", remote, a->rport ? "R" : "0");
}

static bool show_rtt;

static void note_sock(const struct ev_sock *s)
{
	if ((s->what == EV_SK_RTT || s->what == EV_SK_RTT_MIN) && !show_rtt)
		return;
	/* Delays are what they are, and what is slow is sent again: an emulated machine has them anywhere. */
	if (s->what == EV_SK_RETRANSMIT || s->what == EV_SK_LATE || s->what == EV_SK_RESENT || s->what == EV_SK_HOLE ||
	    s->what == EV_SK_RTT_MIN)
		return;
	note("sock %s%s", s->what < ARRAY_SIZE(sock_names) ? sock_names[s->what] : "?",
	     s->h.tgid == (uint32_t)child_pid ? "" : " WRONGOWNER");
	note_addr(&s->addr);
	if (s->what <= EV_SK_CONNECT_FAILED && (!s->begin_ns || s->begin_ns > s->h.ts_ns))
		note(" BADBEGIN");
	if (s->what == EV_SK_CONNECTED && !s->srtt_us)
		note(" NORTT");
	note("%s\n", s->cookie ? "" : " NOCOOKIE");
}

static void note_conn_sock(const struct ev_conn_sock *s)
{
	static const char *const how[] = {"?", "inside", "after", "before", "itself", "records"};

	note_conn(s->how < ARRAY_SIZE(how) ? how[s->how] : "?", &s->h, &s->conn);
	note(" %s wire=%u plain=%u", dir_name(s->dir), s->wire_len, s->plain_len);
	note_addr(&s->addr);
	note("%s%s\n", s->h.flags & EV_F_FRESH ? " fresh" : "", s->cookie ? "" : " NOCOOKIE");
}

static void on_record(void *ctx, const void *bytes, size_t len)
{
	const struct ev_head *h = bytes;

	(void)ctx;
	records_seen++;
	if (len < sizeof(*h) || h->size < sizeof(*h) || h->size > len || h->size % 8) {
		note("BADRECORD kind %u size %u of %zu\n", h->kind, h->size, len);
		return;
	}
	if (h->kind == EV_DATA) {
		note_data(bytes, len);
	} else if (h->kind == EV_GAP) {
		const struct ev_gap *g = bytes;

		note_conn("gap", h, &g->conn);
		note(" %s at %llu\n", dir_name(g->dir), g->pos);
	} else if (h->kind == EV_CONN_OPEN) {
		const struct ev_conn *c = &((const struct ev_conn_open *)bytes)->conn;

		note_conn("open", h, c);
		if (h->flags & EV_F_FRESH)
			fresh_gens[c->gen % ARRAY_SIZE(fresh_gens)] = c->gen;
		note("%s%s\n", h->flags & EV_F_FRESH ? " fresh" : "",
		     h->flags & EV_F_STDIO   ? " stdio"
		     : h->flags & EV_F_PLAIN ? " plain"
					     : "");
	} else if (h->kind == EV_CONN_CLOSE) {
		const struct ev_conn_close *c = bytes;

		note_conn("close", h, &c->conn);
		note(" tx=%llu rx=%llu\n", c->pos[0], c->pos[1]);
	} else if (h->kind == EV_CONN_POS) {
		const struct ev_conn_close *c = bytes;

		note_conn("reached", h, &c->conn);
		note(" tx=%llu rx=%llu\n", c->pos[0], c->pos[1]);
	} else if (h->kind == EV_HANDSHAKE) {
		const struct ev_handshake *s = bytes;

		note_conn("handshake", h, &s->conn);
		handshake_ns = h->ts_ns;
		note("%s%s\n", h->flags & EV_F_APPROX ? " approx" : "",
		     s->begin_ns && s->begin_ns <= h->ts_ns ? "" : " BADTIME");
	} else if (h->kind == EV_CONN_SOCK) {
		note_conn_sock(bytes);
	} else if (h->kind == EV_SOCK) {
		note_sock(bytes);
	} else if (h->kind == EV_EXEC) {
		note_exec(bytes);
	} else if (h->kind == EV_FORK) {
		const struct ev_fork *f = bytes;

		note("fork%s\n", f->child_tgid && f->child_start_ns ? "" : " BAD");
	} else if (h->kind == EV_EXIT) {
		const struct ev_exit *x = bytes;

		note("exit%s %d signal %d\n", h->tgid == (uint32_t)child_pid ? "" : " child", x->code, x->signal);
	} else if (h->kind == EV_GONE) {
		const struct ev_gone *g = bytes;

		if (note_gone && h->tgid != (uint32_t)child_pid)
			note("gone%s\n", g->start_ns && g->cpu_ns ? "" : " BAD");
	} else if (h->kind != EV_WIRE &&
		   h->kind != EV_HELLO) { /* their bytes are those of TLS: tests/unit, tests/e2e */
		note("kind %u\n", h->kind);
	}
}

/* --- running a child --------------------------------------------------------------------------------------------- */

static struct probes *probes;
static bool consume_while_running = true;

static void forget_records(void)
{
	got_len = 0;
	gen_count = 0;
	data_bytes = records_seen = 0;
	exec_count = 0;
	if (got)
		got[0] = 0;
}

static bool reader_is_woken(void)
{
	struct pollfd fd = {.fd = probes_fd(probes), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static bool woken_before_reading;

/* fn in a new process, as a target or not; its records are in `got` afterwards. */
static void run_child(void (*fn)(void), bool target)
{
	int go[2], status;
	char c = 0;

	if (pipe(go))
		abort();
	forget_records();
	child_pid = fork();
	if (child_pid < 0)
		abort();
	if (child_pid == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) != 1)
			_exit(99);
		fn();
		_exit(0);
	}
	close(go[0]);
	if (target && probes_add_target(probes, child_pid, 0))
		note("ADD TARGET FAILED\n");
	if (write(go[1], "g", 1) != 1)
		abort();
	close(go[1]);
	while (waitpid(child_pid, &status, consume_while_running ? WNOHANG : 0) == 0) {
		probes_consume(probes);
		usleep(2000);
	}
	usleep(20000); /* softirq events of its sockets */
	woken_before_reading = reader_is_woken();
	probes_consume(probes);
}

static int to_child[2], to_parent[2];

static void go_on(const int way[2])
{
	if (write(way[1], "g", 1) != 1)
		abort();
}

static void wait_for_word(const int way[2])
{
	char c;

	if (read(way[0], &c, 1) != 1)
		_exit(99);
}

/* Of a child of start_child(): what it did so far is looked at. */
static void rest(void)
{
	go_on(to_parent);
	wait_for_word(to_child);
}

/* A target that rests once; at return it does. */
static void start_child(void (*fn)(void))
{
	if (pipe(to_child) || pipe(to_parent))
		abort();
	forget_records();
	child_pid = fork();
	if (child_pid < 0)
		abort();
	if (child_pid == 0) {
		wait_for_word(to_child);
		fn();
		_exit(0);
	}
	if (probes_add_target(probes, child_pid, 0))
		note("ADD TARGET FAILED\n");
	go_on(to_child);
	wait_for_word(to_parent);
}

static void end_child(void)
{
	go_on(to_child);
	waitpid(child_pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

static void verdict(bool ok, const char *name)
{
	test_number++;
	printf("%s %u - %s: %s\n", ok ? "ok" : "not ok", test_number, flavour, name);
	if (!ok)
		failures++;
}

static void print_lines(const char *title, const char *lines)
{
	printf("# %s\n", title);
	while (*lines) {
		int len = (int)strcspn(lines, "\n");

		printf("#   %.*s\n", len, lines);
		lines += len + (lines[len] == '\n');
	}
}

static void expect(const char *name, const char *golden)
{
	bool ok = strcmp(got ? got : "", golden) == 0;

	verdict(ok, name);
	if (!ok) {
		print_lines("expected", golden);
		print_lines("got", got ? got : "");
	}
	fflush(stdout);
}

static void check(const char *name, const char *golden, void (*fn)(void))
{
	run_child(fn, true);
	expect(name, golden);
}

static uint64_t stat_of(enum ev_stat id)
{
	uint64_t stats[ST_COUNT];

	probes_stats(probes, stats);
	return stats[id];
}

/* --- cases: data ------------------------------------------------------------------------------------------------- */

/* BR-024: what the functions return, and where the length is. */
static void case_lengths(void)
{
	do_read(A, text, 5);
	do_read(A, text, -1);
	do_read(A, text, 0);
	do_read_ex(A, text, 1, 33);
	do_read_ex(A, text, 0, 777);
	do_read_ex(A, text, 1, 0);
	script.ret = 40;
	fake_peek(A, text, 40);
	do_write(A, text, 7);
	do_write_ex(A, text, 1, 12);
	do_write_ex(A, text, -1, 12);
	do_handshake(A, 1);
}

static const char golden_lengths[] = "open A1\n"
				     "data A1 rx 0+5 'abcde'\n"
				     "data A1 rx 5+33 'abcdefghijklmnopqrstuvwxyzabcdefg'\n"
				     "data A1 tx 0+7 'abcdefg'\n"
				     "data A1 tx 7+12 'abcdefghijkl'\n"
				     "exit 0 signal 0\n";

static void write_inside(void)
{
	do_write(A, text + 1, 3);
	script.ret = 6; /* of the call around */
}

/* BR-040, and node: a write in a read on the same object; a read in a read into another buffer. */
static void read_inside(void)
{
	do_read(A, text + 10, 2);
}

static void case_nested(void)
{
	script.inside = write_inside;
	do_read(A, text, 6);
	script.inside = read_inside;
	do_read(A, text, 4);
}

static const char golden_nested[] = "open A1\n"
				    "data A1 tx 0+3 'bcd'\n"
				    "data A1 rx 0+6 'abcdef'\n"
				    "data A1 rx 6+2 'kl'\n"
				    "data A1 rx 8+4 'abcd'\n"
				    "exit 0 signal 0\n";

static void case_wrapper(void)
{
	fake_write_all(A, text, 10);
	do_write_ex(A, text, 1, 5); /* a tail call: both probes, one record */
	do_write(A, text, 2);
}

static const char golden_wrapper[] = "open A1\n"
				     "data A1 tx 0+4 'abcd'\n"
				     "data A1 tx 4+4 'efgh'\n"
				     "data A1 tx 8+2 'ij'\n"
				     "data A1 tx 10+5 'abcde'\n"
				     "data A1 tx 15+2 'ab'\n"
				     "exit 0 signal 0\n";

static jmp_buf jump;

static void jump_out(void)
{
	longjmp(jump, 1);
}

static void case_missed(void)
{
	do_read(A, text, 5);
	script.inside = jump_out;
	if (setjmp(jump) == 0)
		do_read(A, text, 9);
	do_read(A, text, 3);
	/* and below another call, which finds it at its return */
	do_write(B, text, 1);
}

static const char golden_missed[] = "open A1\n"
				    "data A1 rx 0+5 'abcde'\n"
				    "gap A1 rx at 5\n"
				    "data A1 rx 5+3 'abc'\n"
				    "open B2\n"
				    "data B2 tx 0+1 'a'\n"
				    "exit 0 signal 0\n";

static int deep;

static void deeper(void)
{
	if (deep++ < LIMIT_NEST) {
		script.inside = deeper;
		do_write(A, text + 26 * deep, 1); /* another buffer each: no wrappers */
	}
}

static void case_overflow(void)
{
	script.inside = deeper;
	do_write(A, text, 1); /* LIMIT_NEST + 1 deep: the last is refused */
	do_write(A, text, 2);
}

static void case_chunks(void)
{
	do_write(A, big, 300 * 1024);
	do_read(A, big, 16384 * 2 + 5);
}

static void golden_chunks(char *out, size_t size)
{
	size_t len = (size_t)snprintf(out, size, "open A1\n");
	unsigned at, n;

	for (at = 0; at < 300 * 1024; at += n) {
		n = 300 * 1024 - at < LIMIT_CHUNK_BYTES ? 300 * 1024 - at : LIMIT_CHUNK_BYTES;
		len += (size_t)snprintf(out + len, size - len, "data A1 tx %u+%u pattern\n", at, n);
	}
	snprintf(out + len, size - len,
		 "data A1 rx 0+16384 pattern\ndata A1 rx 16384+16384 pattern\ndata A1 rx 32768+5 pattern\n"
		 "exit 0 signal 0\n");
}

/* Every class of record sizes and its edges. */
static void case_sizes(void)
{
	static const int sizes[] = {1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 16383, 16384};
	size_t i, at = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		do_read(A, big + at, sizes[i]);
		at += (size_t)sizes[i];
	}
}

static void golden_sizes(char *out, size_t size)
{
	static const unsigned sizes[] = {1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 16383, 16384};
	size_t i, len = (size_t)snprintf(out, size, "open A1\n");
	unsigned at = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		len += (size_t)snprintf(out + len, size - len, "data A1 rx %u+%u pattern\n", at, sizes[i]);
		at += sizes[i];
	}
	snprintf(out + len, size - len, "exit 0 signal 0\n");
}

static void case_capped(void)
{
	do_write(A, big, BIG);
	do_write(A, big, 100);
	do_read(A, text, 1);
	do_write(A, text, 3);
}

static void case_fault(void)
{
	do_read(A, (void *)128, 5);
	do_read(A, text, 2);
}

static const char golden_fault[] = "open A1\n"
				   "data A1 rx 0+0/5 fault\n"
				   "data A1 rx 5+2 'ab'\n"
				   "exit 0 signal 0\n";

static void case_len_fault(void)
{
	do_read(A, text, 2);
	script.ret = 1;
	fake_read_ex(A, text, 9, NULL); /* perform() writes nothing, the program reads address 0 */
	do_read(A, text, 2);
}

static const char golden_len_fault[] = "open A1\n"
				       "data A1 rx 0+2 'ab'\n"
				       "gap A1 rx at 2\n"
				       "data A1 rx 2+2 'ab'\n"
				       "exit 0 signal 0\n";

/* --- cases: connections ------------------------------------------------------------------------------------------ */

static void case_generations(void)
{
	fake_new(A);
	do_handshake(A, -1);
	do_handshake(A, 1);
	do_handshake(A, 1); /* some programs ask before every read */
	do_write(A, text, 4);
	do_read(A, text, 3);
	do_handshake(A, 1);
	fake_free(A);
	fake_free(A);	     /* the second reference */
	do_read(A, text, 1); /* late: freeing is only a hint */
	fake_new(A);	     /* the same memory */
	do_handshake(A, 1);
	do_write(A, text, 2);
	fake_free(A);
	do_handshake(A, -1); /* the same memory, and nobody saw SSL_new */
	do_handshake(A, 1);
	do_write(A, text, 1);
	fake_new(NULL);
}

static const char golden_generations[] = "open A1 fresh\n"
					 "handshake A1\n"
					 "data A1 tx 0+4 'abcd'\n"
					 "data A1 rx 0+3 'abc'\n"
					 "close A1 tx=4 rx=3\n"
					 "data A1 rx 3+1 'a'\n"
					 "open A2 fresh\n"
					 "handshake A2\n"
					 "data A2 tx 0+2 'ab'\n"
					 "close A2 tx=2 rx=0\n"
					 "open A3 fresh\n"
					 "handshake A3\n"
					 "data A3 tx 0+1 'a'\n"
					 "exit 0 signal 0\n";

static void case_handshakes(void)
{
	/* never calls it: the last failure before the first success */
	fake_new(A);
	do_read(A, text, -1);
	do_read(A, text, -1);
	do_write(A, text, 2);
	do_read(A, text, -1);
	do_read(A, text, 1);
	/* GnuTLS: 0 is success */
	script.ret = -28;
	fake_handshake_zero(B);
	script.ret = 0;
	fake_handshake_zero(B);
	do_read(B, text, 1);
	/* Asked before every read, on a connection that is older than the tracer: no handshake, not fresh. */
	do_handshake(C, 1);
	do_read(C, text, 1);
	do_handshake(C, 1);
}

static const char golden_handshakes[] = "open A1 fresh\n"
					"handshake A1 approx\n"
					"data A1 tx 0+2 'ab'\n"
					"data A1 rx 0+1 'a'\n"
					"open B2 fresh\n"
					"handshake B2\n"
					"data B2 rx 0+1 'a'\n"
					"open C3\n"
					"data C3 rx 0+1 'a'\n"
					"exit 0 signal 0\n";

/* As node does: the read that finished it has not returned yet when the program writes. */
static void write_after_handshake(void)
{
	usleep(2000);
	do_write(A, text, 4);
}

static void case_handshake_in_read(void)
{
	fake_new(A);
	do_read(A, text, -1);
	usleep(2000);
	script.inside = write_after_handshake;
	do_read(A, text, -1);
	do_write(A, text, 2);
}

static const char golden_handshake_in_read[] = "open A1 fresh\n"
					       "handshake A1 approx\n"
					       "data A1 tx 0+4 'abcd' after the handshake\n"
					       "data A1 tx 4+2 'ab'\n"
					       "exit 0 signal 0\n";

/* --- cases: processes -------------------------------------------------------------------------------------------- */

static void case_processes(void)
{
	char *const args[] = {"/bin/sh", "-c", "exit 7", "one two", NULL};
	pid_t pid = fork();

	if (pid == 0) {
		do_write(B, text, 2);
		execv("/bin/sh", args);
		_exit(98);
	}
	waitpid(pid, NULL, 0);
	pid = fork();
	if (pid == 0) {
		kill(getpid(), SIGKILL);
		pause();
	}
	waitpid(pid, NULL, 0);
	do_write(A, text, 1);
	_exit(3);
}

static const char golden_processes[] = "fork\n"
				       "open B1 child\n"
				       "data B1 child tx 0+2 'ab'\n"
				       "exec /bin/sh /bin/sh|-c|exit 7|one two\n"
				       "exit child 7 signal 0\n"
				       "gone\n"
				       "fork\n"
				       "exit child 0 signal 9\n"
				       "gone\n"
				       "open A2\n"
				       "data A2 tx 0+1 'a'\n"
				       "exit 3 signal 0\n";

static void *thread_writes(void *ctx)
{
	(void)ctx;
	do_write(A, text, 3);
	return NULL;
}

static void case_threads(void)
{
	pthread_t t;

	do_write(A, text, 1);
	pthread_create(&t, NULL, thread_writes, NULL);
	pthread_join(t, NULL);
	do_write(A, text, 2);
}

static const char golden_threads[] = "open A1\n"
				     "data A1 tx 0+1 'a'\n"
				     "data A1 tx 1+3 'abc'\n"
				     "data A1 tx 4+2 'ab'\n"
				     "exit 0 signal 0\n";

/* BR-039: many threads wait inside a read, then all return. */
#define CROWD	    200
#define CROWD_CALLS 20

static void doze(void)
{
	usleep(2000);
}

static void *crowd_member(void *ctx)
{
	int i;

	(void)ctx;
	for (i = 0; i < CROWD_CALLS; i++) {
		script.inside = doze;
		do_read(A, text, 100);
	}
	return NULL;
}

static void case_crowd(void)
{
	pthread_t threads[CROWD];
	int i;

	fake_new(A);
	for (i = 0; i < CROWD; i++)
		if (pthread_create(&threads[i], NULL, crowd_member, NULL))
			_exit(97);
	for (i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	fake_free(A);
}

static void test_crowd(const char *name)
{
	char golden[128];

	snprintf(golden, sizeof(golden), "open A1 fresh\nclose A1 tx=0 rx=%u\nexit 0 signal 0\n",
		 CROWD * CROWD_CALLS * 100);
	quiet_data = true;
	run_child(case_crowd, true);
	quiet_data = false;
	if (data_bytes + 100 * (stat_of(ST_MISSED_RETURN) + stat_of(ST_STATE_FULL)) < CROWD * CROWD_CALLS * 100)
		note("UNCOUNTED LOSS: %llu bytes\n", (unsigned long long)data_bytes);
	expect(name, golden);
}

/* BR-038: thousands of connections lie idle, and the state of the one that goes on stays. */
#define IDLE	   10000
#define IDLE_STEPS 100

static void case_idle_crowd(void)
{
	static char idle[IDLE][16];
	int i;

	fake_new(A);
	for (i = 0; i < IDLE; i++) {
		do_read(idle[i], text, 1);
		if (i % (IDLE / IDLE_STEPS) == 0)
			do_write(A, text, 10);
	}
	do_write(A, text, 7);
	fake_free(A);
}

static void test_idle_crowd(void)
{
	uint64_t full = stat_of(ST_STATE_FULL), lost = stat_of(ST_RING_RECORDS);
	char closed[64];
	bool ok;

	snprintf(closed, sizeof(closed), "close A1 tx=%u rx=0\n", 10 * IDLE_STEPS + 7);
	quiet_data = true;
	run_child(case_idle_crowd, true);
	quiet_data = false;
	ok = data_bytes == IDLE + 10 * IDLE_STEPS + 7 && strstr(got, closed) && !strstr(got, "gap") &&
	     stat_of(ST_STATE_FULL) == full && stat_of(ST_RING_RECORDS) == lost;
	verdict(ok, "10,000 idle connections cost the busy one nothing (BR-038)");
	if (!ok)
		printf("# %llu bytes, %llu without state, %llu lost\n", (unsigned long long)data_bytes,
		       (unsigned long long)(stat_of(ST_STATE_FULL) - full),
		       (unsigned long long)(stat_of(ST_RING_RECORDS) - lost));
}

/* --- cases: sockets ---------------------------------------------------------------------------------------------- */

static int listener;
static uint16_t port;

static void listen_somewhere(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (void *)&a, sizeof(a)) || listen(listener, 64) ||
	    getsockname(listener, (void *)&a, &len))
		abort();
	port = ntohs(a.sin_port);
}

static int connect_to(uint16_t to)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(to)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (void *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The other end answers the closing in its own time, in a softirq: later records shall not overtake that. */
static void close_and_settle(int fd)
{
	close(fd);
	usleep(100000);
}

static int inside_fd;

static void send_inside(void)
{
	if (send(inside_fd, "123456", 6, 0) != 6)
		_exit(97);
}

static void recv_inside(void)
{
	char buf[64];

	if (recv(inside_fd, buf, sizeof(buf), 0) < 0)
		_exit(97);
}

/* An untraced process is the other end. */
static void serve_echo(unsigned connections)
{
	char buf[4096];

	while (connections--) {
		int fd = accept(listener, NULL, NULL);
		ssize_t n;

		while ((n = read(fd, buf, sizeof(buf))) > 0)
			if (write(fd, buf, (size_t)n) != n)
				break;
		close(fd);
	}
}

static void case_inside(void)
{
	int first = connect_to(port), second;
	char buf[64];

	fake_new(A);
	inside_fd = first;
	script.inside = send_inside;
	do_handshake(A, 1);
	script.inside = recv_inside;
	do_read(A, text, 1);
	script.inside = send_inside;
	do_write(A, text, 2);
	if (recv(first, buf, sizeof(buf), 0) < 0)
		_exit(97);
	close_and_settle(first);
	/* SSL_clear: the same object, another socket */
	second = connect_to(port);
	inside_fd = second;
	script.inside = send_inside;
	do_handshake(A, 1);
	script.inside = recv_inside;
	do_read(A, text, 3);
	close_and_settle(second);
}

static const char golden_inside[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open A1 fresh\n"
				    "inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				    "handshake A1\n"
				    "data A1 rx 0+1 'a'\n"
				    "data A1 tx 0+2 'ab'\n"
				    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				    "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open A2 fresh\n"
				    "inside A2 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				    "handshake A2\n"
				    "data A2 rx 0+3 'abc'\n"
				    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				    "exit 0 signal 0\n";

/* --- cases: ciphers ---------------------------------------------------------------------------------------------- */

#define TAG 16

static uint8_t nonce[12] = "saltseqseqs";
static uint8_t record_ad[13];

/* The additional data of a record of so many bytes: `len` is what TLS puts there. */
static size_t additional(bool old, uint8_t type, size_t len)
{
	uint8_t header[5] = {type, 3, 3, (uint8_t)(len >> 8), (uint8_t)len};

	memcpy(record_ad + (old ? 8 : 0), header, sizeof(header));
	return old ? 13 : 5;
}

static void seal_with(void *ctx, const char *plain, size_t len, size_t ad_len)
{
	static uint8_t buf[20000];
	size_t out;

	memcpy(buf, plain, len);
	script.ret = 1;
	script.out = len + TAG;
	nonce[11]++;
	fake_seal(ctx, buf, &out, sizeof(buf), nonce, sizeof(nonce), buf, len, record_ad, ad_len);
}

static void open_with(void *ctx, const char *plain, size_t len, size_t ad_len, int ret)
{
	static uint8_t buf[20000];
	size_t out;

	memcpy(buf, plain, len);
	script.ret = ret;
	script.out = len;
	nonce[11]++;
	fake_open(ctx, buf, &out, sizeof(buf), nonce, sizeof(nonce), buf, len + TAG, record_ad, ad_len);
}

/* TLS 1.3: the plaintext with its type; the record is 5 + len + TAG bytes. */
static void seal13(void *ctx, const char *plain, size_t len)
{
	seal_with(ctx, plain, len, additional(false, 0x17, len + TAG));
}

static void open13(void *ctx, const char *plain, size_t len)
{
	open_with(ctx, plain, len, additional(false, 0x17, len + TAG), 1);
}

static void case_ciphers(void)
{
	static char padded[3000] = "hello\x17";

	seal13(A, "finished\x16", 9);
	seal13(A, "hello\x17", 6);
	seal13(A, padded, sizeof(padded));
	seal13(A, "\1\0\x15", 3); /* an alert */
	seal13(A, "\x17", 1);	  /* nothing */
	seal13(A, "\0\0\0", 3);	  /* no type at all */
	open13(B, "world\x17", 6);
	open_with(B, "forged\x17", 7, additional(false, 0x17, 7 + TAG), 0);
	open13(B, "ticket\x16", 7);
	open13(B, padded, sizeof(padded));
	nonce[0]++; /* another key in the same memory */
	open13(B, "new key\x17", 8);
	seal_with(C, "old one", 7, additional(true, 0x17, 7));
	seal_with(C, "alert", 5, additional(true, 0x15, 5));
}

static const char golden_ciphers[] = "half open A1\n"
				     "half data A1 tx 0+5 'hello'\n"
				     "half data A1 tx 5+5 'hello'\n"
				     "half open B2\n"
				     "half data B2 rx 0+5 'world'\n"
				     "half data B2 rx 5+5 'hello'\n"
				     "half open B3\n"
				     "half data B3 rx 0+7 'new key'\n"
				     "half open C4\n"
				     "half data C4 tx 0+7 'old one'\n"
				     "exit 0 signal 0\n";

/* The same cipher, used for other things. */
static void case_no_records(void)
{
	static const uint8_t quic[13] = {0x43, 1, 2, 3};

	memcpy(record_ad, quic, sizeof(quic));
	seal_with(A, "quic\x17", 5, 13);
	seal_with(A, "quic\x17", 5, 5);
	seal_with(A, "token\x17", 6, 0);
	open_with(A, "token\x17", 6, 9, 1);
	additional(false, 0x17, 100);
	seal_with(A, "other length\x17", 13, 5);
	open_with(A, "other length\x17", 13, 5, 1);
	seal_with(A, "handshake header", 16, additional(false, 0x16, 16 + TAG));
	seal_with(A, "other length", 12, additional(true, 0x17, 13));
	seal_with(A, "no type", 7, additional(true, 0x50, 7));
}

/* All writes of a connection together are more than a request may be, but each comes after an answer. */
static void case_many_requests(void)
{
	int i;

	for (i = 0; i < 2 * LIMIT_CHUNKS_PER_CALL; i++) {
		seal_with(A, (const char *)big, 10000, additional(true, 0x17, 10000));
		open_with(B, "ok", 2, additional(true, 0x17, 2), 1);
	}
}

static void test_many_requests(void)
{
	char golden[128];

	snprintf(golden, sizeof(golden), "half open A1\nhalf open B2\nexit 0 signal 0\n");
	quiet_data = true;
	run_child(case_many_requests, true);
	quiet_data = false;
	if (data_bytes != 2ull * LIMIT_CHUNKS_PER_CALL * 10002)
		note("%llu bytes\n", (unsigned long long)data_bytes);
	expect("requests are capped one by one", golden);
}

static void send_bytes(int fd, size_t len)
{
	if (send(fd, big, len, 0) != (ssize_t)len)
		_exit(97);
}

static void recv_bytes(int fd, size_t len)
{
	static char buf[20000];

	if (recv(fd, buf, len, MSG_WAITALL) != (ssize_t)len)
		_exit(97);
}

#define RECORD(plain) (5 + (plain) + TAG)

static void case_cipher_sockets(void)
{
	int fd = connect_to(port);

	seal13(A, "finished\x16", 9);
	send_bytes(fd, 6 + RECORD(9)); /* change_cipher_spec before it */
	seal13(B, "one\x17", 4);
	seal13(B, "two\x17", 4);
	send_bytes(fd, 2 * RECORD(4));
	seal13(B, "three\x17", 6);
	send_bytes(fd, 1); /* not what was sealed */
	send_bytes(fd, RECORD(6) - 1);
	recv_bytes(fd, 6 + RECORD(9) + 2 * RECORD(4)); /* 120: of which a part was no record */
	open13(C, "tick\x16", 5);		       /* 26 */
	recv_bytes(fd, 10);
	recv_bytes(fd, RECORD(6) - 10);
	open13(C, "answer", 6); /* no type that counts */
	seal_with(A, "tls 1.2", 7, additional(true, 0x17, 7));
	send_bytes(fd, RECORD(7) + 8);
	recv_bytes(fd, RECORD(7) + 8);
	close_and_settle(fd);
}

static const char golden_cipher_sockets[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					    "half open A1\n"
					    "half records A1 tx wire=36 plain=30 127.0.0.1:L>127.0.0.1:R fresh\n"
					    "half handshake A1 approx\n"
					    "half open B2\n"
					    "half data B2 tx 0+3 'one'\n"
					    "half data B2 tx 3+3 'two'\n"
					    "half records B2 tx wire=50 plain=50 127.0.0.1:L>127.0.0.1:R fresh\n"
					    "half data B2 tx 6+5 'three'\n"
					    "half open C3\n"
					    "half records C3 rx wire=27 plain=27 127.0.0.1:L>127.0.0.1:R fresh\n"
					    "half data A1 tx 0+7 'tls 1.2'\n"
					    "half records A1 tx wire=36 plain=28 127.0.0.1:L>127.0.0.1:R fresh\n"
					    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
					    "exit 0 signal 0\n";

/* --- cases: goroutines ------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
/*
 * Functions by Go's register ABI: receiver in rax, slice in rbx and rcx, g in r14, n in rax at the one RET. The body is
 * go_body(), whose result in rdx is how far it has moved the stack. When rdi is 1 the function begins twice, as when
 * the runtime had to make room first.
 */
#define GO_FUNCTION(name)                                                                                              \
	__asm__(".text\n.globl " name "\n.globl " name "_ret\n.type " name ", @function\n" name ":\n"                  \
		"	nop\n	test %rdi, %rdi\n	jz 1f\n	xor %edi, %edi\n	jmp " name "\n"                \
		"1:	push %rbp\n	mov %rsp, %rbp\n	push %r14\n	and $-16, %rsp\n	call "                                   \
		"go_body\n"                                                                                            \
		"	add %rdx, %rsp\n	add %rdx, %rbp\n	mov -8(%rbp), %r14\n	mov %rbp, "                                   \
		"%rsp\n	pop %rbp\n" name "_ret:	ret\n")
GO_FUNCTION("fake_go_read");
GO_FUNCTION("fake_go_write");
/* A write whose body is a send(go_fd, slice). */
__asm__(".globl fake_go_send\n.globl fake_go_send_ret\nfake_go_send:\n	nop\n	mov go_fd(%rip), %edi\n"
	"	mov %rbx, %rsi\n	mov %rcx, %rdx\n	xor %r10d, %r10d\n	xor %r8d, %r8d\n	xor "
	"%r9d, %r9d\n"
	"	mov $44, %eax\n	syscall\nfake_go_send_ret:	ret\n");
void fake_go_read(void);
void fake_go_write(void);
void fake_go_send(void);
void fake_go_read_ret(void);
void fake_go_write_ret(void);
void fake_go_send_ret(void);

struct go_result {
	long n, moved;
} go_body(void);
int go_fd;

/* A goroutine: the runtime's g begins with the ends of its stack. */
struct goroutine {
	uint64_t lo, hi;
	uint8_t stack[2][16384] __attribute__((aligned(16)));
	unsigned at; /* which of them */
};
static struct goroutine gs[2];
static struct goroutine *go_moves; /* its stack moves within the next body */

static void go_begin(struct goroutine *g)
{
	g->at = 0;
	g->lo = (uintptr_t)g->stack[0];
	g->hi = g->lo + sizeof(g->stack[0]);
}

/* As the runtime does: everything keeps its distance from the end. */
static long go_move(struct goroutine *g)
{
	uint64_t hi = g->hi;

	memcpy(g->stack[!g->at], g->stack[g->at], sizeof(g->stack[0]));
	memset(g->stack[g->at], 'Z', sizeof(g->stack[0]) / 2); /* below are the frames that still run here */
	g->at = !g->at;
	g->lo = (uintptr_t)g->stack[g->at];
	g->hi = g->lo + sizeof(g->stack[0]);
	return (long)(g->hi - hi);
}

struct go_result go_body(void)
{
	struct goroutine *g = go_moves;
	long n = perform(NULL);

	go_moves = NULL;
	return (struct go_result){n, g ? go_move(g) : 0};
}

/* On the goroutine's stack; `used` bytes of it are above the call. */
static long go_call(void (*fn)(void), struct goroutine *g, void *obj, const void *buf, size_t len, size_t used,
		    bool twice)
{
	register struct goroutine *r14 __asm__("r14") = g;
	long n = (long)(uintptr_t)obj;
	uint64_t sp = g->hi - used;
	long again = twice;

	__asm__ volatile("mov %%rsp, %%r12\n\tmov %[sp], %%rsp\n\tcall *%[fn]\n\tmov %%r12, %%rsp"
			 : "+a"(n), "+b"(buf), "+c"(len), "+D"(again)
			 : [fn] "r"(fn), [sp] "r"(sp), "r"(r14)
			 : "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
	return n;
}

static void go_read(struct goroutine *g, void *obj, void *buf, long n)
{
	script.ret = (int)n;
	go_call(fake_go_read, g, obj, buf, 4096, 4096, false);
}

static void write_of_other(void)
{
	script.ret = 3;
	go_call(fake_go_write, &gs[1], B, text + 3, 3, 4096, false);
}

static void read_of_inner(void)
{
	script.ret = 2;
	go_call(fake_go_read, &gs[0], B, text + 10, 100, 8192, false);
}

static void case_goroutines(void)
{
	go_begin(&gs[0]);
	go_begin(&gs[1]);
	go_read(&gs[0], A, text, 5);
	go_read(&gs[0], A, text, -1);
	go_read(&gs[0], A, text, 0);
	script.ret = 7;
	go_call(fake_go_write, &gs[0], A, text, 7, 4096, true); /* begins twice */
	/* The stack moves during the call; a buffer on it moves along, one on the heap does not. */
	memcpy((void *)(uintptr_t)(gs[0].hi - 2048), "on the stack", 12);
	go_moves = &gs[0];
	go_read(&gs[0], A, (void *)(uintptr_t)(gs[0].hi - 2048), 12);
	go_moves = &gs[0];
	go_read(&gs[0], A, text, 3);
	/* Another goroutine on the same thread, and TLS inside TLS on the same goroutine. */
	script.inside = write_of_other;
	go_read(&gs[0], A, text, 4);
	script.inside = read_of_inner;
	go_read(&gs[0], A, text, 5);
}

static void leave(void)
{
	_exit(0);
}

/* As goroutines that wait for an answer do when their process ends. */
static void case_goroutine_left(void)
{
	go_begin(&gs[0]);
	script.inside = leave;
	go_read(&gs[0], A, text, 1);
}

static const char golden_goroutines[] = "open A1\n"
					"data A1 rx 0+5 'abcde'\n"
					"data A1 tx 0+7 'abcdefg'\n"
					"data A1 rx 5+12 'on the stack'\n"
					"data A1 rx 17+3 'abc'\n"
					"open B2\n"
					"data B2 tx 0+3 'def'\n"
					"data A1 rx 20+4 'abcd'\n"
					"data B2 rx 0+2 'kl'\n"
					"data A1 rx 24+5 'abcde'\n"
					"exit 0 signal 0\n";

static void case_go_sockets(void)
{
	char buf[64];

	go_begin(&gs[0]);
	go_fd = connect_to(port);
	if (send(go_fd, "hello", 5, 0) != 5 ||
	    recv(go_fd, buf, 5, MSG_WAITALL) != 5) /* a handshake that no probe sees */
		_exit(97);
	go_call(fake_go_send, &gs[0], A, text, 6, 4096, false);
	recv_bytes(go_fd, 6);
	close_and_settle(go_fd);
	/* The collector gave the memory to another connection. */
	go_fd = connect_to(port);
	go_call(fake_go_send, &gs[0], A, text, 2, 4096, false);
	recv_bytes(go_fd, 2);
	close_and_settle(go_fd);
}

static const char golden_go_sockets[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					"open A1 fresh\n"
					"handshake A1 approx\n"
					"inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
					"data A1 tx 0+6 'abcdef'\n"
					"sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					"sock closed 127.0.0.1:L>127.0.0.1:R\n"
					"sock connected 127.0.0.1:L>127.0.0.1:R\n"
					"open A2 fresh\n"
					"inside A2 tx wire=2 plain=0 127.0.0.1:L>127.0.0.1:R\n"
					"data A2 tx 0+2 'ab'\n"
					"sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					"sock closed 127.0.0.1:L>127.0.0.1:R\n"
					"exit 0 signal 0\n";
#endif

/* --- cases: votes ------------------------------------------------------------------------------------------------ */

static void case_votes(void)
{
	char buf[64];
	int fd = connect_to(port), i;

	do_write(A, text, 2);
	do_write(A, text, 3);
	if (send(fd, "1234567", 7, 0) != 7 || recv(fd, buf, sizeof(buf), 0) != 7)
		_exit(97);
	do_read(A, text, -1);
	do_read(A, text, 4);
	do_read(A, text, 1); /* no new receive: no vote */
	/* two connections wait for one send: nobody knows whose it is */
	do_write(A, text, 1);
	do_write(B, text, 1);
	if (send(fd, "12", 2, 0) != 2)
		_exit(97);
	quiet_data = true;
	for (i = 0; i < 2 * LIMIT_SOCK_VOTES; i++) {
		do_write(A, text, 1);
		if (send(fd, "1", 1, 0) != 1)
			_exit(97);
	}
	close_and_settle(fd);
}

/* node: inside a call on one connection, a callback writes to another one in memory and sends. */
static void write_and_send(void)
{
	do_write(B, text, 2);
	send_inside();
}

static void case_callback_sends(void)
{
	inside_fd = connect_to(port);
	script.inside = write_and_send;
	do_read(A, text, 1);
	recv_inside();
	close_and_settle(inside_fd);
}

static const char golden_callback_sends[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					    "open B1\n"
					    "data B1 tx 0+2 'ab'\n"
					    "after B1 tx wire=6 plain=2 127.0.0.1:L>127.0.0.1:R\n"
					    "open A2\n"
					    "data A2 rx 0+1 'a'\n"
					    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
					    "exit 0 signal 0\n";

static void case_sockets(void)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	char buf[64];
	int fd;

	/* refused: a port that nobody listens on */
	fd = connect_to(1);
	if (fd >= 0)
		_exit(97);
	/* the peer closes first */
	fd = connect_to(port);
	if (send(fd, "bye", 3, 0) != 3 || recv(fd, buf, 3, MSG_WAITALL) != 3)
		_exit(97);
	if (recv(fd, buf, 1, 0) != 0)
		_exit(96);
	close_and_settle(fd);
	/* we reset */
	fd = connect_to(port);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close_and_settle(fd);
	/* the peer resets */
	fd = connect_to(port);
	if (send(fd, "rst", 3, 0) != 3)
		_exit(97);
	while (recv(fd, buf, 1, 0) > 0)
		;
	close_and_settle(fd);
}

static const char golden_sockets[] = "sock reset-received 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connect-failed 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "sock close-remote 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "sock reset-sent 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "sock reset-received 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "exit 0 signal 0\n";

/* The other end of case_sockets: answers, closes first; resets when it is told to. */
static void serve_sockets(unsigned connections)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	char buf[4] = "";

	while (connections--) {
		int fd = accept(listener, NULL, NULL);
		ssize_t n = read(fd, buf, 3);

		if (n == 3 && memcmp(buf, "rst", 3) == 0)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		else if (n == 3 && write(fd, buf, 3) != 3)
			break;
		close(fd);
	}
}

/* BR-121: the peer closes, in softirqs, while a stranger keeps the CPUs busy. */
#define MANY_SOCKETS 300

static void case_many_sockets(void)
{
	char buf[4];
	int i;

	for (i = 0; i < MANY_SOCKETS; i++) {
		int fd = connect_to(port);

		if (send(fd, "bye", 3, 0) != 3 || recv(fd, buf, 3, MSG_WAITALL) != 3 || recv(fd, buf, 1, 0) != 0)
			_exit(97);
		close(fd);
	}
	usleep(100000);
}

static unsigned count_of(const char *line)
{
	unsigned count = 0;
	char *p;

	for (p = got; p && (p = strstr(p, line)); p++)
		count++;
	return count;
}

static void serve_sockets(unsigned connections);

static void test_owners(void)
{
	pid_t server = fork(), stranger;
	bool ok;

	if (server == 0) {
		serve_sockets(MANY_SOCKETS);
		_exit(0);
	}
	stranger = fork();
	if (stranger == 0)
		for (;;)
			getppid();
	run_child(case_many_sockets, true);
	kill(server, SIGKILL);
	kill(stranger, SIGKILL);
	waitpid(server, NULL, 0);
	waitpid(stranger, NULL, 0);
	ok = count_of("sock connected ") == MANY_SOCKETS && count_of("sock close-remote ") == MANY_SOCKETS &&
	     count_of("sock closed ") == MANY_SOCKETS && count_of("WRONGOWNER") == 0;
	verdict(ok, "sockets that the peer closes keep their owner (BR-121)");
	if (!ok)
		printf("# %u connected, %u closed by the peer, %u closed, %u of a wrong owner\n",
		       count_of("sock connected "), count_of("sock close-remote "), count_of("sock closed "),
		       count_of("WRONGOWNER"));
}

static void check_served(const char *name, const char *golden, void (*fn)(void), void (*serve)(unsigned), unsigned n)
{
	pid_t server = fork();

	if (server == 0) {
		serve(n);
		_exit(0);
	}
	run_child(fn, true);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	expect(name, golden);
}

/* --- case: plain HTTP -------------------------------------------------------------------------------------------- */

static void need(ssize_t got_bytes, ssize_t want)
{
	if (got_bytes != want) {
		fprintf(stderr, "# moved %zd, not %zd (%m)\n", got_bytes, want);
		_exit(97);
	}
}

#define IOV(text_at, n) ((struct iovec){.iov_base = (char *)(uintptr_t)(text_at), .iov_len = (n)})
#define PEER		" 127.0.0.1:L>127.0.0.1:R\n"
#define PLAIN_OPEN	"sock connected" PEER "open x1 fresh plain\nitself x1 tx wire=0 plain=0" PEER
#define PLAIN_CLOSE	"sock close-local" PEER "sock closed" PEER

/* Every system call that moves bytes over a socket; the other end answers each with the same bytes. */
static void case_plain_calls(void)
{
	char buf[64], more[64];
	struct iovec out[3] = {IOV("POST", 4), IOV("", 0), IOV(" /3 ", 4)}, in[2] = {IOV(buf, 3), IOV(more, 60)};
	struct msghdr m = {.msg_iov = out, .msg_iovlen = 3}, r = {.msg_iov = in, .msg_iovlen = 2};
	int fd = connect_to(port);

	need(write(fd, "POST /1 ", 8), 8);
	need(recv(fd, buf, 4, MSG_PEEK), 4);
	need(read(fd, buf, sizeof(buf)), 8);
	need(send(fd, "POST /2 ", 8, 0), 8);
	need(recv(fd, buf, sizeof(buf), 0), 8);
	need(sendto(fd, "POST /2b ", 9, 0, NULL, 0), 9);
	need(recvfrom(fd, buf, sizeof(buf), 0, NULL, NULL), 9);
	need(writev(fd, out, 3), 8);
	need(readv(fd, in, 2), 8);
	need(sendmsg(fd, &m, 0), 8);
	need(recvmsg(fd, &r, 0), 8);
	close_and_settle(fd);
}

static const char golden_plain_calls[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
						    "data x1 rx 0+8 'POST /1 '\n"
						    "data x1 tx 8+8 'POST /2 '\n"
						    "data x1 rx 8+8 'POST /2 '\n"
						    "data x1 tx 16+9 'POST /2b '\n"
						    "data x1 rx 16+9 'POST /2b '\n"
						    "data x1 tx 25+4 'POST'\n" /* writev */
						    "data x1 tx 29+4 ' /3 '\n"
						    "data x1 rx 25+3 'POS'\n"
						    "data x1 rx 28+5 'T /3 '\n"
						    "data x1 tx 33+4 'POST'\n" /* sendmsg */
						    "data x1 tx 37+4 ' /3 '\n"
						    "data x1 rx 33+3 'POS'\n"
						    "data x1 rx 36+5 'T /3 '\n" PLAIN_CLOSE "close x1 tx=41 rx=41\n"
						    "exit 0 signal 0\n";

/* Those that only the tracepoints of sockets show. */
static void case_newer_calls(void)
{
	char buf[64], more[64];
	struct iovec out[3] = {IOV("POST", 4), IOV("", 0), IOV(" /3 ", 4)}, in[2] = {IOV(buf, 3), IOV(more, 60)};
	struct msghdr m = {.msg_iov = out, .msg_iovlen = 3}, r = {.msg_iov = in, .msg_iovlen = 2};
	struct mmsghdr many[2] = {{.msg_hdr = m}, {.msg_hdr = m}};
	int fd = connect_to(port);

	need(pwritev2(fd, out, 3, -1, 0), 8);
	need(preadv2(fd, in, 2, -1, 0), 8);
	/* two messages twice, one message of two; then one more, which must not be taken for the second */
	need(sendmmsg(fd, many, 2, 0), 2);
	usleep(50000);
	in[1].iov_len = 5;
	many[0].msg_hdr = many[1].msg_hdr = r;
	need(recvmmsg(fd, many, 2, 0, NULL), 2);
	need(write(fd, "abc", 3), 3);
	usleep(50000);
	need(recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL), 1); /* the second one finds nothing */
	need(write(fd, "ABCDEF", 6), 6);
	usleep(50000);
	need(recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL), 1);
	close_and_settle(fd);
}

static const char golden_newer_calls[] = PLAIN_OPEN "data x1 tx 0+4 'POST'\n"
						    "data x1 tx 4+4 ' /3 '\n"
						    "data x1 rx 0+3 'POS'\n"
						    "data x1 rx 3+5 'T /3 '\n"
						    "data x1 tx 8+4 'POST'\n" /* sendmmsg */
						    "data x1 tx 12+4 ' /3 '\n"
						    "data x1 tx 16+4 'POST'\n"
						    "data x1 tx 20+4 ' /3 '\n"
						    "data x1 rx 8+3 'POS'\n"
						    "data x1 rx 11+5 'T /3 '\n"
						    "data x1 rx 16+3 'POS'\n"
						    "data x1 rx 19+5 'T /3 '\n"
						    "data x1 tx 24+3 'abc'\n"
						    "data x1 rx 24+3 'abc'\n"
						    "data x1 tx 27+6 'ABCDEF'\n"
						    "data x1 rx 27+3 'ABC'\n"
						    "data x1 rx 30+3 'DEF'\n" PLAIN_CLOSE "close x1 tx=33 rx=33\n"
						    "exit 0 signal 0\n";

/* Bytes that no register speaks of. */
static void case_unseen(void)
{
	int fd = connect_to(port), file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), p[2];
	char buf[256];

	need(write(fd, "POST /1 ", 8), 8);
	need(sendfile(fd, file, NULL, 100), 100);
	need(pipe2(p, O_CLOEXEC), 0);
	need(write(p[1], "12345", 5), 5);
	need(splice(p[0], NULL, fd, NULL, 5, 0), 5);
	need(recv(fd, buf, 113, MSG_WAITALL | MSG_TRUNC), 113); /* thrown away by the kernel */
	need(write(fd, "abcdef", 6), 6);
	usleep(50000);
	need(splice(fd, NULL, p[1], NULL, 4, 0), 4); /* no tracepoint: the next read tells */
	need(read(fd, buf, sizeof(buf)), 2);
	close_and_settle(fd);
}

static const char golden_unseen[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
					       "data x1 tx 8+0/100\n"
					       "data x1 tx 108+0/5\n"
					       "data x1 rx 0+0/113\n"
					       "data x1 tx 113+6 'abcdef'\n"
					       "data x1 rx 117+2 'ef'\n" PLAIN_CLOSE "close x1 tx=119 rx=119\n"
					       "exit 0 signal 0\n";

/* A ring of one request at a time, by hand: liburing is not everywhere. */
static int uring_fd;
static uint8_t *uring_sq, *uring_cq;
static struct io_uring_params uring;
static struct io_uring_sqe *uring_sqes;

static bool uring_open(void)
{
	size_t sq_size, cq_size;

	memset(&uring, 0, sizeof(uring));
	uring_fd = (int)syscall(__NR_io_uring_setup, 1, &uring);
	if (uring_fd < 0)
		return false;
	sq_size = uring.sq_off.array + uring.sq_entries * sizeof(uint32_t);
	cq_size = uring.cq_off.cqes + uring.cq_entries * sizeof(struct io_uring_cqe);
	uring_sq = mmap(NULL, sq_size, PROT_READ | PROT_WRITE, MAP_SHARED, uring_fd, IORING_OFF_SQ_RING);
	uring_cq = mmap(NULL, cq_size, PROT_READ | PROT_WRITE, MAP_SHARED, uring_fd, IORING_OFF_CQ_RING);
	uring_sqes = mmap(NULL, sizeof(*uring_sqes), PROT_READ | PROT_WRITE, MAP_SHARED, uring_fd, IORING_OFF_SQES);
	return uring_sq != MAP_FAILED && uring_cq != MAP_FAILED && uring_sqes != MAP_FAILED;
}

/* flags: IOSQE_ASYNC has a kernel thread do it. */
static ssize_t uring_do(uint8_t op, uint8_t flags, int fd, void *buf, uint32_t len)
{
	uint32_t *tail = (uint32_t *)(void *)(uring_sq + uring.sq_off.tail);
	uint32_t *head = (uint32_t *)(void *)(uring_cq + uring.cq_off.head);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(void *)(uring_cq + uring.cq_off.cqes);
	ssize_t result;

	uring_sqes[0] =
		(struct io_uring_sqe){.opcode = op, .flags = flags, .fd = fd, .addr = (uintptr_t)buf, .len = len};
	((uint32_t *)(void *)(uring_sq + uring.sq_off.array))[0] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(__NR_io_uring_enter, uring_fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -1;
	result = cqes[*head & (uring.cq_entries - 1)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return result;
}

static void case_io_uring(void)
{
	int fd = connect_to(port);
	char buf[64], text_of[] = "0123456789";

	if (!uring_open())
		_exit(96);
	need(write(fd, "POST /1 ", 8), 8);
	need(read(fd, buf, sizeof(buf)), 8);
	need(uring_do(IORING_OP_SEND, 0, fd, text_of, 10), 10);
	usleep(50000);
	need(uring_do(IORING_OP_RECV, 0, fd, buf, sizeof(buf)), 10); /* at once: inside io_uring_enter() */
	need(uring_do(IORING_OP_WRITE, IOSQE_ASYNC, fd, text_of, 5), 5);
	need(uring_do(IORING_OP_RECV, 0, fd, buf, sizeof(buf)), 5); /* waits: on the way back to the user */
	need(uring_do(IORING_OP_SEND, IOSQE_ASYNC, fd, text_of, 3), 3);
	need(uring_do(IORING_OP_READ, IOSQE_ASYNC, fd, buf, sizeof(buf)), 3);
	need(write(fd, "abc", 3), 3);
	need(read(fd, buf, sizeof(buf)), 3);
	close_and_settle(fd);
}

static const char golden_io_uring[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
						 "data x1 rx 0+8 'POST /1 '\n"
						 "data x1 tx 8+0/10\n"
						 "data x1 rx 8+0/10\n"
						 "data x1 tx 18+0/5\n"
						 "data x1 rx 18+0/5\n"
						 "data x1 tx 23+0/3\n"
						 "data x1 rx 23+0/3\n"
						 "data x1 tx 26+3 'abc'\n"
						 "data x1 rx 26+3 'abc'\n" PLAIN_CLOSE "close x1 tx=29 rx=29\n"
						 "exit 0 signal 0\n";

static bool has_io_uring(void)
{
	bool has = uring_open();

	if (uring_fd >= 0)
		close(uring_fd);
	return has;
}

/* What is no HTTP, or will be none, is not touched. */
static void case_not_plain(void)
{
	static const char *const begins[] = {"hello there", "\x16\x03\x01 client hello", "CONNECT host:443 HTTP/1.1",
					     "EHLO GET "};
	char buf[64];

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
		ssize_t n = (ssize_t)strlen(begins[i]);
		int fd = connect_to(port);

		need(write(fd, begins[i], (size_t)n), n);
		need(read(fd, buf, sizeof(buf)), n);
		need(write(fd, "POST /1 HTTP/1.1", 16), 16);
		need(read(fd, buf, sizeof(buf)), 16);
		close_and_settle(fd);
	}
}

static const char golden_not_plain[] =
	"sock connected" PEER PLAIN_CLOSE "sock connected" PEER PLAIN_CLOSE "sock connected" PEER PLAIN_CLOSE
	"sock connected" PEER PLAIN_CLOSE "exit 0 signal 0\n";

/* A connection met in the middle: made, and used, before its process was a target. */
static int old_fd;

static void case_in_the_middle(void)
{
	char buf[64];

	need(read(old_fd, buf, 5), 5); /* "rest " */
	need(read(old_fd, buf, 7), 7); /* "of body" */
	need(write(old_fd, "GET /2 ", 7), 7);
	need(read(old_fd, buf, sizeof(buf)), 7);
}

static const char golden_in_the_middle[] =
	"open x1 plain\nitself x1 tx wire=0 plain=0" PEER "data x1 tx 0+7 'GET /2 '\n"
	"data x1 rx 0+7 'GET /2 '\n"
	"exit 0 signal 0\n";

/* So many bodies that it is given up. */
static void case_given_up(void)
{
	char buf[64];
	int i;

	for (i = 0; i < LIMIT_PLAIN_LOOKS; i++) {
		need(write(old_fd, "{json}", 6), 6);
		need(recv(old_fd, buf, 6, MSG_WAITALL), 6);
	}
	need(write(old_fd, "GET /2 ", 7), 7);
}

/* What its end does to the sockets of a target is not the next test's. */
static void end_server(pid_t server)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	usleep(100000);
	probes_consume(probes);
}

static void test_old_connection(const char *name, const char *golden, void (*fn)(void))
{
	pid_t server = fork();

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	old_fd = connect_to(port);
	need(write(old_fd, "rest of body", 12), 12);
	usleep(20000);
	run_child(fn, true);
	expect(name, golden);
	close(old_fd);
	end_server(server);
}

/* The socket goes down to a child, and outlives its owner. */
static void case_inherited(void)
{
	int fd = connect_to(port), go[2];
	char c;

	need(pipe(go), 0);
	need(write(fd, "GET /1 ", 7), 7);
	if (fork() == 0) {
		need(write(fd, "GET /2 ", 7), 7);
		close(go[1]);
		need(read(go[0], &c, 1), 0); /* the parent has ended */
		usleep(20000);
		need(write(fd, "GET /3 ", 7), 7);
		close_and_settle(fd);
		_exit(0);
	}
	usleep(50000);
}

static void test_inherited(void)
{
	static const char want[] =
		PLAIN_OPEN "data x1 tx 0+7 'GET /1 '\n"
			   "fork\n"
			   "data x1 tx 7+7 'GET /2 '\n"
			   "exit 0 signal 0\n"
			   "open x2 child plain\n"
			   "itself x2 child tx wire=0 plain=0" PEER "data x2 child tx 0+7 'GET /3 '\n";
	pid_t server = fork();
	bool ok;

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	run_child(case_inherited, true);
	usleep(200000);
	probes_consume(probes);
	ok = got && strncmp(got, want, sizeof(want) - 1) == 0;
	verdict(ok, "a shared socket stays its first owner's until that one ends");
	if (!ok)
		print_lines("got", got);
	end_server(server);
}

/* Shared with children. */
static uint64_t *moved_by_child;
static volatile int *ignore_step; /* 1: the connection is ignored; or, in general, go on */

/* --- case: Unix sockets ------------------------------------------------------------------------------------------ */

static int unix_listener;
static struct sockaddr_un unix_at = {.sun_family = AF_UNIX};

static void case_unix(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), other;
	char buf[64];

	need(connect(fd, (void *)&unix_at, sizeof(unix_at)), 0);
	need(write(fd, "GET /1 ", 7), 7);
	need(read(fd, buf, sizeof(buf)), 7);
	need(write(fd, "close", 5), 5);
	need(read(fd, buf, sizeof(buf)), 0);
	close(fd);
	/* what is no stream, and what is no HTTP */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	need(bind(fd, (void *)&unix_at, sizeof(sa_family_t)), 0); /* any name */
	other = (int)sizeof(unix_at);
	need(getsockname(fd, (void *)&unix_at, (socklen_t *)&other), 0);
	need(sendto(fd, "GET /1 ", 7, 0, (void *)&unix_at, (socklen_t)other), 7);
	need(recv(fd, buf, sizeof(buf), 0), 7);
	close(fd);
}

static const char golden_unix[] = "open x1 plain\n"
				  "itself x1 tx wire=0 plain=0 :0>:0\n"
				  "data x1 tx 0+7 'GET /1 '\n"
				  "data x1 rx 0+7 'GET /1 '\n"
				  "data x1 tx 7+5 'close'\n"
				  "close x1 tx=12 rx=7\n"
				  "exit 0 signal 0\n";

/* Echoes, until it is told to close. */
static void serve_unix(unsigned connections)
{
	while (connections--) {
		int fd = accept(unix_listener, NULL, NULL);
		char buf[64];
		ssize_t n;

		while ((n = read(fd, buf, sizeof(buf))) > 0 && memcmp(buf, "close", 5) != 0)
			if (write(fd, buf, (size_t)n) != n)
				break;
		close(fd);
	}
}

static void listen_unix(void)
{
	snprintf(unix_at.sun_path + 1, sizeof(unix_at.sun_path) - 1, "perfbpf-bpftest-%d", getpid());
	unix_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (unix_listener < 0 || bind(unix_listener, (void *)&unix_at, sizeof(unix_at)) || listen(unix_listener, 8))
		abort();
}

/* Many connections that the program closes itself: nothing tells, but they do not stay for ever. */
static void case_unix_closed(void)
{
	int fd[3], i;
	char buf[64];

	for (i = 0; i < 3; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		need(connect(fd[i], (void *)&unix_at, sizeof(unix_at)), 0);
		need(write(fd[i], "GET /1 ", 7), 7);
		need(read(fd[i], buf, sizeof(buf)), 7);
		if (i < 2)
			close(fd[i]);
	}
	rest();
	need(write(fd[2], "GET /2 ", 7), 7);
	need(read(fd[2], buf, sizeof(buf)), 7);
}

static void test_unix_closed(void)
{
	pid_t server = fork();
	uint64_t now_ns;
	bool ok;

	if (server == 0) {
		serve_unix(3);
		_exit(0);
	}
	start_child(case_unix_closed);
	probes_consume(probes);
	now_ns = clock_boot_ns() + 10000000000ull; /* its time has come */
	probes_tick(probes, now_ns);
	ok = count_of("open x") == 3 && count_of("close x1 tx=0 rx=0") == 1 && count_of("close x2 tx=0 rx=0") == 1 &&
	     count_of("close x3") == 0;
	end_child();
	probes_consume(probes);
	ok = ok && count_of("data x3 tx 7+7 'GET /2 '") == 1 && count_of("data x3 rx 7+7 'GET /2 '") == 1;
	verdict(ok, "Unix sockets that a program closed itself are found");
	if (!ok)
		print_lines("got", got);
	end_server(server);
}

/* --- case: large and partial writes ------------------------------------------------------------------------------ */

static void case_partial(void)
{
	int fd = connect_to(port), small = 65536;
	struct iovec v[3] = {IOV("POST ", 5), IOV(big, 300000), IOV(big, 300000)};
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	n = writev(fd, v, 3);
	if (n < 5 || n >= 600005)
		_exit(97);
	*moved_by_child = (uint64_t)n;
	close_and_settle(fd);
}

/* Nobody reads at the other end. */
static void serve_nothing(unsigned connections)
{
	while (connections--)
		accept(listener, NULL, NULL);
	pause();
}

static void test_partial(void)
{
	pid_t server = fork();
	bool ok;

	if (server == 0) {
		serve_nothing(1);
		_exit(0);
	}
	quiet_data = true;
	run_child(case_partial, true);
	quiet_data = false;
	ok = *moved_by_child > 5 && data_bytes == *moved_by_child;
	verdict(ok, "of a partial write what was moved is seen");
	if (!ok)
		printf("# %llu moved, %llu seen\n", (unsigned long long)*moved_by_child,
		       (unsigned long long)data_bytes);
	end_server(server);
}

/* --- case: connections that are ignored -------------------------------------------------------------------------- */

static void ignore_this(const struct ev_data *d)
{
	if (d->len >= 6 && memcmp(d->bytes, "GET /n", 6) == 0 && !*ignore_step) {
		if (probes_ignore(probes, d->conn.gen, 0, true, true))
			note("IGNORE FAILED\n");
		*ignore_step = 1;
	}
	if (d->len < 6 || memcmp(d->bytes, "GET /i", 6) != 0 || *ignore_step)
		return;
	if (probes_ignore(probes, d->conn.gen, 0, true, false) || probes_ignore(probes, d->conn.gen, 0, true, false))
		note("IGNORE FAILED\n");
	if (probes_ignore(probes, d->conn.gen + LIMIT_IGNORED, 0, true, false) != -EBUSY)
		note("TWO IN ONE PLACE\n");
	if (probes_ignore(probes, d->conn.gen + LIMIT_IGNORED, 0, false, false))
		note("NOT ITS OWN\n");
	*ignore_step = 1;
}

static void wait_until_ignored(void)
{
	int i;

	for (i = 0; !*ignore_step && i < 5000; i++)
		usleep(1000);
}

static void case_ignored_plain(void)
{
	struct iovec v[2] = {IOV("GET /b ", 7), IOV(big, 8185)};
	char *buf = malloc(8192);
	int fd = connect_to(port);

	need(write(fd, "GET /i ", 7), 7);
	wait_until_ignored();
	need(recv(fd, buf, 7, MSG_WAITALL), 7);
	need(writev(fd, v, 2), 8192);
	need(recv(fd, buf, 4000, MSG_WAITALL), 4000);
	need(recv(fd, buf, 4192, MSG_WAITALL), 4192);
	need(write(fd, "GET /c ", 7), 7);
	need(recv(fd, buf, 7, MSG_WAITALL), 7);
	need(write(fd, "POST /d ", 8), 8);
	need(recv(fd, buf, 8, MSG_WAITALL), 8);
	close_and_settle(fd);
}

static const char golden_ignored_plain[] =
	PLAIN_OPEN "data x1 tx 0+7 'GET /i '\n"
		   "data x1 rx 0+0/7 ignored\n"
		   "data x1 tx 7+7 'GET /b '\n"
		   "data x1 tx 14+4089 BADBYTES\n" /* right, at another place */
		   "data x1 tx 4103+0/4096 ignored\n"
		   "data x1 rx 7+0/8192 ignored\n"
		   "data x1 tx 8199+7 'GET /c '\n"
		   "data x1 rx 8199+0/7 ignored\n"
		   "data x1 tx 8206+8 'POST /d '\n"
		   "data x1 rx 8206+8 'POST /d '\n" PLAIN_CLOSE "close x1 tx=8214 rx=8214\n"
		   "exit 0 signal 0\n";

static void case_ignored_tls(void)
{
	char request[] = "GET /i ", other[] = "GET /x ", post[] = "POST /y ";
	int i;

	do_write(A, request, 7);
	wait_until_ignored();
	do_read(A, text, 100);
	do_read(A, text, 100);
	do_write(A, other, 7);
	for (i = 0; i < 3; i++) /* more than LIMIT_IGNORED_READ_BYTES */
		do_read(A, big, 500000);
	do_read(A, big, 1);
	fake_free(A);
	do_write(A, post, 8);
	do_read(A, text, 5);
}

static const char golden_ignored_tls[] = "open A1\n"
					 "data A1 tx 0+7 'GET /i '\n"
					 "data A1 rx 0+0/200 ignored\n"
					 "data A1 tx 7+7 'GET /x '\n"
					 "data A1 rx 200+0/1500000 ignored\n"
					 "data A1 rx 1500200+0/1 ignored\n"
					 "close A1 tx=14 rx=1500201\n"
					 "data A1 tx 14+8 'POST /y '\n"
					 "data A1 rx 1500201+5 'abcde'\n"
					 "exit 0 signal 0\n";

static char post_y[] = "POST /y ", get_x[] = "GET /x ";

static void get_inside(void)
{
	script.inside = send_inside;
	do_write(A, get_x, 7);
	recv_inside();
}

static void post_inside(void)
{
	script.inside = send_inside;
	do_write(A, post_y, 8);
	recv_inside();
}

/* Both directions on one socket, so that threads remember the connection. */
static void bind_ignored(char *request)
{
	inside_fd = connect_to(port);
	fake_new(A);
	script.inside = send_inside;
	do_write(A, request, 7);
	wait_until_ignored();
	script.inside = recv_inside;
	do_read(A, text, 10);
}

/* Calls around and inside of reads that are let go; one of them asks for what the read brings. */
static void case_calm(void)
{
	char request[] = "GET /i ";
	int i;

	bind_ignored(request);
	for (i = 0; i < 3; i++)
		do_read(A, big, 500000);
	do_read(A, text, -1);
	do_read_ex(A, text, 1, 20);
	script.inside = get_inside;
	do_read(A, text, 3);
	do_read(A, text, 7);
	script.inside = post_inside;
	do_read(A, text, 5);
	do_read(A, text, 2);
	fake_free(A);
	fake_new(A);
	do_read(A, text, 3);
	close_and_settle(inside_fd);
}

static const char golden_calm[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				  "open A1 fresh\n"
				  "inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				  "data A1 tx 0+7 'GET /i '\n"
				  "data A1 rx 0+0/1500010 ignored\n"
				  "data A1 rx 1500010+0/20 ignored\n"
				  "data A1 tx 7+7 'GET /x '\n"
				  "data A1 rx 1500030+0/10 ignored\n"
				  "data A1 tx 14+8 'POST /y '\n"
				  "data A1 rx 1500040+5 'abcde'\n"
				  "data A1 rx 1500045+2 'ab'\n"
				  "close A1 tx=22 rx=1500047\n"
				  "open A2 fresh\n"
				  "data A2 rx 0+3 'abc'\n"
				  "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				  "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				  "exit 0 signal 0\n";

/* Nothing is seen of it any more, until the object is another connection's. */
static void case_never(void)
{
	char request[] = "GET /n ";
	int i;

	bind_ignored(request);
	for (i = 0; i < 3; i++) {
		script.inside = send_inside;
		do_write(A, post_y, 8);
		script.inside = recv_inside;
		do_read(A, text, 9);
	}
	do_write(B, text, 4);
	do_write(A, post_y, 8);
	close_and_settle(inside_fd);
	inside_fd = connect_to(port);
	script.inside = send_inside;
	do_handshake(A, 1); /* SSL_clear, another socket */
	script.inside = recv_inside;
	do_read(A, text, 1);
	fake_free(A);
	fake_new(A);
	do_write(A, text, 2);
	close_and_settle(inside_fd);
}

static const char golden_never[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				   "open A1 fresh\n"
				   "inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				   "data A1 tx 0+7 'GET /n '\n"
				   "open B2\n"
				   "data B2 tx 0+4 'abcd'\n"
				   "data A1 rx 0+0/10 ignored\n"
				   "data A1 tx 7+0/8 ignored\n"
				   "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				   "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				   "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				   "open A3 fresh\n"
				   "inside A3 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				   "handshake A3\n"
				   "data A3 rx 0+1 'a'\n"
				   "close A3 tx=0 rx=1\n"
				   "open A4 fresh\n"
				   "data A4 tx 0+2 'ab'\n"
				   "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				   "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				   "exit 0 signal 0\n";

static void test_never(void)
{
	uint64_t before = stat_of(ST_IGNORED_BYTES);

	check_served("a connection that is ignored for good", golden_never, case_never, serve_echo, 2);
	verdict(stat_of(ST_IGNORED_BYTES) - before == 36, "its bytes are counted on the wire");
}

/* HEADERS with END_STREAM ask for something; those without, here behind a WINDOW_UPDATE, may call a model. */
static void case_ignored_http2(void)
{
	char request[] = "GET /i ", get[] = "\0\0\1\1\5\0\0\0\1\x82",
	     post[] = "\0\0\4\x08\0\0\0\0\0\0\0\1\0\0\0\1\1\4\0\0\0\3\x83";

	do_write(A, request, 7);
	wait_until_ignored();
	do_write(A, get, sizeof(get) - 1);
	do_read(A, text, 100);
	do_write(A, post, sizeof(post) - 1);
	do_read(A, text, 5);
}

static const char golden_ignored_http2[] = "open A1\n"
					   "data A1 tx 0+7 'GET /i '\n"
					   "data A1 tx 7+10 ''\n"
					   "data A1 rx 0+0/100 ignored\n"
					   "data A1 tx 17+23 ''\n"
					   "data A1 rx 100+5 'abcde'\n"
					   "exit 0 signal 0\n";

static void share_memory(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		abort();
	moved_by_child = page;
	ignore_step = (volatile int *)page + 8;
}

/* --- case: 32-bit system calls ----------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static long call32(long nr, long a, long b, long c)
{
	long ret;

	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(nr), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

static bool has_call32(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(call32(20, 0, 0, 0) == getpid() ? 0 : 1); /* getpid */
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static void case_32_bit(void)
{
	char *low = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	int fd = connect_to(port);

	if (low == MAP_FAILED)
		_exit(97);
	memcpy(low, "GET /2 ", 7);
	need(write(fd, "GET /1 ", 7), 7);
	need(call32(4, fd, (long)low, 7), 7); /* write, where 4 is stat */
	need(recv(fd, low, 14, MSG_WAITALL), 14);
	close_and_settle(fd);
}
#else
static bool has_call32(void)
{
	return false;
}

static void case_32_bit(void)
{
}
#endif

static const char golden_32_bit[] = PLAIN_OPEN "data x1 tx 0+7 'GET /1 '\n"
					       "data x1 tx 7+0/7\n"
					       "data x1 rx 0+14 'GET /1 GET /2 '\n" PLAIN_CLOSE "close x1 tx=14 rx=14\n"
					       "exit 0 signal 0\n";

/* --- case: libssl ------------------------------------------------------------------------------------------------ */

static EVP_PKEY *tls_key;
static X509 *tls_cert;

static void make_certificate(void)
{
	X509_NAME *name;

	tls_key = EVP_EC_gen("P-256");
	tls_cert = X509_new();
	X509_set_version(tls_cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(tls_cert), 1);
	X509_gmtime_adj(X509_getm_notBefore(tls_cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(tls_cert), 3600);
	X509_set_pubkey(tls_cert, tls_key);
	name = X509_get_subject_name(tls_cert);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
	X509_set_issuer_name(tls_cert, name);
	X509_sign(tls_cert, tls_key, EVP_sha256());
}

static void serve_tls(unsigned connections)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	char buf[16384];

	SSL_CTX_use_certificate(ctx, tls_cert);
	SSL_CTX_use_PrivateKey(ctx, tls_key);
	while (connections--) {
		int fd = accept(listener, NULL, NULL), n;
		SSL *ssl = SSL_new(ctx);

		SSL_set_fd(ssl, fd);
		if (SSL_accept(ssl) == 1)
			while ((n = SSL_read(ssl, buf, sizeof(buf))) > 0)
				SSL_write(ssl, buf, n);
		while (read(fd, buf, sizeof(buf)) > 0) /* the client closes first */
			;
		SSL_free(ssl);
		close(fd);
	}
}

static void case_libssl(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	int fd = connect_to(port);
	SSL *ssl = SSL_new(ctx);
	size_t len = 0;
	char buf[64];

	SSL_set_fd(ssl, fd);
	if (SSL_connect(ssl) != 1 || SSL_write(ssl, "hello", 5) != 5 || SSL_read(ssl, buf, sizeof(buf)) != 5)
		_exit(97);
	if (SSL_write_ex(ssl, "hi", 2, &len) != 1 || SSL_peek(ssl, buf, sizeof(buf)) != 2 ||
	    SSL_read_ex(ssl, buf, sizeof(buf), &len) != 1)
		_exit(97);
	SSL_shutdown(ssl);
	SSL_free(ssl);
	close_and_settle(fd);
}

static const char golden_libssl[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open x1 fresh\n"
				    "inside x1 tx wire=W plain=0 127.0.0.1:L>127.0.0.1:R\n"
				    "handshake x1\n"
				    "data x1 tx 0+5 'hello'\n"
				    "data x1 rx 0+5 'hello'\n"
				    "data x1 tx 5+2 'hi'\n"
				    "data x1 rx 5+2 'hi'\n"
				    "close x1 tx=7 rx=7\n"
				    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				    "exit 0 signal 0\n";

/* Memory BIO: what the library wants to send, and what it shall read. */
static void flush_bio(SSL *ssl, int fd)
{
	char buf[32768];
	int n;

	while ((n = BIO_read(SSL_get_wbio(ssl), buf, sizeof(buf))) > 0)
		if (send(fd, buf, (size_t)n, 0) != n)
			_exit(97);
}

static void fill_bio(SSL *ssl, int fd)
{
	char buf[32768];
	ssize_t n = recv(fd, buf, sizeof(buf), 0);

	if (n <= 0)
		_exit(97);
	BIO_write(SSL_get_rbio(ssl), buf, (int)n);
}

static void case_memory_bio(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	int fd = connect_to(port), n;
	SSL *ssl = SSL_new(ctx);
	char buf[64];

	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	SSL_set_connect_state(ssl);
	while ((n = SSL_write(ssl, "hello", 5)) <= 0) { /* handshakes without being asked to, as node does */
		flush_bio(ssl, fd);
		fill_bio(ssl, fd);
	}
	flush_bio(ssl, fd);
	while ((n = SSL_read(ssl, buf, sizeof(buf))) <= 0)
		fill_bio(ssl, fd);
	SSL_shutdown(ssl);
	flush_bio(ssl, fd);
	SSL_free(ssl);
	close_and_settle(fd);
}

/* Lengths on the wire are the library's business: out of the text. */
static void hide_wire(void)
{
	char *p = got;

	while ((p = strstr(p, "wire="))) {
		size_t digits = strspn(p + 5, "0123456789");

		if (digits && strncmp(p + 5, "0 ", 2) != 0) {
			memmove(p + 6, p + 5 + digits, strlen(p + 5 + digits) + 1);
			p[5] = 'W';
		}
		p += 5;
	}
	got_len = strlen(got);
}

static const char golden_memory_bio[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					"open x1 fresh\n"
					"handshake x1 approx\n"
					"data x1 tx 0+5 'hello'\n"
					"after x1 tx wire=W plain=5 127.0.0.1:L>127.0.0.1:R\n"
					"data x1 rx 0+5 'hello'\n"
					"before x1 rx wire=W plain=5 127.0.0.1:L>127.0.0.1:R\n"
					"close x1 tx=5 rx=5\n"
					"sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					"sock closed 127.0.0.1:L>127.0.0.1:R\n"
					"exit 0 signal 0\n";

/* --- attaching --------------------------------------------------------------------------------------------------- */

static int find_offset(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint64_t *address = ctx; /* in: address; out: file offset */
	int i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uint64_t begin = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD && *address >= begin && *address < begin + ph->p_filesz) {
			*address = *address - begin + ph->p_offset;
			return 1;
		}
	}
	return 0;
}

static void add_function(struct tls_find *found, uint32_t role, uint32_t len_arg, void *function)
{
	struct tls_func *f = &found->funcs[found->count];
	uint64_t at = (uintptr_t)function;

	if (!function || !dl_iterate_phdr(find_offset, &at))
		return;
	found->count++;
	f->role = role;
	f->len_arg = len_arg;
	f->site.off = f->site.func_off = at;
}

static int attach(const char *path, const struct tls_find *found)
{
	struct elf e = {.fd = -1};
	struct stat st;

	if (stat(path, &st))
		return -errno;
	e.dev = st.st_dev;
	e.ino = st.st_ino;
	return probes_attach_file(probes, path, path, &e, found);
}

static void add_probe(struct tls_find *found, uint32_t role, uint32_t abi, void *function)
{
	add_function(found, role, 0, function);
	found->funcs[found->count - 1].abi = abi;
}

/* Those that are not f(object, buffer, length), as further "files". */
static int attach_stacks(void)
{
	struct tls_find ciphers = {.stack = "ciphers"};
	struct elf e = {.fd = -1, .dev = 1, .ino = 2};
	int err;

	add_probe(&ciphers, TLS_ROLE_READ, TLS_ABI_AEAD, fake_open);
	add_probe(&ciphers, TLS_ROLE_WRITE, TLS_ABI_AEAD, fake_seal);
	err = probes_attach_file(probes, "/proc/self/exe", "ciphers", &e, &ciphers);
#ifdef __x86_64__
	struct tls_find go = {.stack = "go"};

	add_probe(&go, TLS_ROLE_READ, TLS_ABI_GO_ENTRY, fake_go_read);
	add_probe(&go, TLS_ROLE_READ, TLS_ABI_GO_RETURN, fake_go_read_ret);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_ENTRY, fake_go_write);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_RETURN, fake_go_write_ret);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_ENTRY, fake_go_send);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_RETURN, fake_go_send_ret);
	if (!err)
		err = probes_attach_file(probes, "/proc/self/exe", "go", &e, &go);
#endif
	return err;
}

static int attach_self(void)
{
	struct tls_find found = {.stack = "test"};
	struct tls_find zero = {.stack = "gnutls"};
	int err;

	add_function(&found, TLS_ROLE_READ, 0, fake_read);
	add_function(&found, TLS_ROLE_READ, 4, fake_read_ex);
	add_function(&found, TLS_ROLE_WRITE, 0, fake_write);
	add_function(&found, TLS_ROLE_WRITE, 0, fake_write_all);
	add_function(&found, TLS_ROLE_WRITE, 4, fake_write_ex);
	add_function(&found, TLS_ROLE_WRITE, 5, fake_write_ex2);
	add_function(&found, TLS_ROLE_HANDSHAKE, 0, fake_handshake);
	add_function(&found, TLS_ROLE_NEW, 0, fake_new);
	add_function(&found, TLS_ROLE_FREE, 0, fake_free);
	err = attach("/proc/self/exe", &found);
	if (err)
		return err;
	/* GnuTLS's convention, as a second "file" */
	add_function(&zero, TLS_ROLE_HANDSHAKE, 0, fake_handshake_zero);
	{
		struct elf e = {.fd = -1, .dev = 1, .ino = 1};

		probes_attach_file(probes, "/proc/self/exe", "gnutls", &e, &zero); /* -ENOENT: no read, no write */
	}
	return attach_stacks();
}

/* As the finder finds it: cheap sites, internal functions. */
static int attach_libssl(void)
{
	void *read_function = dlsym(RTLD_DEFAULT, "SSL_read");
	struct tls_finds found;
	struct elf e;
	Dl_info info;
	int err;

	if (!read_function || !dladdr(read_function, &info))
		return -ENOENT;
	err = elf_map(&e, info.dli_fname);
	if (err)
		return err;
	err = tlsfind(&e, &found);
	if (!err)
		err = probes_attach_file(probes, info.dli_fname, info.dli_fname, &e, &found.stacks[0]);
	else if (found.count)
		printf("# %s\n", found.stacks[0].reason);
	elf_unmap(&e);
	return err;
}

/* The kernel's numbers of a file are those of stat(2) where no file system puts a view over another one. */
static void test_real_file(void)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = memfd_create("bpftest", MFD_CLOEXEC);
	char path[64];
	struct stat st;
	struct elf e;
	bool ok;

	if (from < 0 || to < 0 || fstat(from, &st) || sendfile(to, from, NULL, (size_t)st.st_size) != st.st_size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	if (elf_map(&e, path) || stat(path, &st))
		abort();
	e.dev = e.ino = 0;
	probes_real_file(probes, &e);
	ok = e.dev == st.st_dev && e.ino == st.st_ino;
	if (!ok)
		printf("# %llx %llu, not %llx %llu\n", (unsigned long long)e.dev, (unsigned long long)e.ino,
		       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	verdict(ok, "the inode of a mapped file");
	elf_unmap(&e);
	close(from);
	close(to);
}

/* --- the runs ---------------------------------------------------------------------------------------------------- */

static struct probes_config config = {.ring_bytes = 8 << 20, .on_record = on_record};

static bool open_probes(void)
{
	int err;

	memset(fresh_gens, 0, sizeof(fresh_gens)); /* they are counted from 1 again */
	probes = probes_open(&config);
	if (!probes) {
		printf("# %s (%s)\n", probes_why(), probes_hint() ? probes_hint() : "no hint");
		return false;
	}
	err = attach_self();
	if (err) {
		printf("# attach: %s\n", strerror(-err));
		return false;
	}
	return true;
}

/* Entries of our own map of this name: other tracers may run on this machine. */
static unsigned entries_of(const char *map)
{
	unsigned count = 0;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		struct bpf_map_info info = {0};
		uint64_t key[8], *at = NULL;
		uint32_t len = sizeof(info);
		char path[64], target[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0 || !strstr(target, "bpf-map"))
			continue;
		if (bpf_obj_get_info_by_fd(fd, &info, &len) || strcmp(info.name, map) != 0)
			continue;
		for (; bpf_map_get_next_key(fd, at, key) == 0; at = key)
			count++;
	}
	return count;
}

static unsigned conns_in_kernel(void)
{
	return entries_of("conns");
}

static void case_closing(void)
{
	fake_new(A);
	do_write(A, text, 1);
	fake_new(B);
	do_write(B, text, 1);
	fake_free(A);
	rest();
}

/* State of closed connections goes 1 s later, of ended processes at once. fn leaves `with` of them when it rests. */
static void test_reclaim(const char *name, void (*fn)(void), unsigned with)
{
	unsigned before = conns_in_kernel(), resting, after;

	start_child(fn);
	usleep(20000); /* softirq events of its sockets */
	probes_consume(probes);
	probes_tick(probes, clock_boot_ns() + 1200000000ull);
	resting = conns_in_kernel();
	end_child();
	probes_consume(probes);
	probes_tick(probes, clock_boot_ns());
	after = conns_in_kernel();
	verdict(before == 0 && resting == with && after == 0, name);
	if (before || resting != with || after)
		printf("# %u before, %u after the close, %u after the exit\n", before, resting, after);
}

/* What no function frees goes with its socket: one is closed, the other one is not. */
static void case_closing_sockets(void)
{
	int fd[2] = {connect_to(port), connect_to(port)};

	for (int i = 0; i < 2; i++) {
		seal13(i ? B : A, "one\x17", 4);
		send_bytes(fd[i], RECORD(4));
		recv_bytes(fd[i], RECORD(4));
	}
	close(fd[0]);
	rest();
	close_and_settle(fd[1]);
}

static void test_reclaim_sockets(void)
{
	pid_t server = fork();

	if (server == 0) {
		if (fork() == 0)
			serve_echo(1);
		else
			serve_echo(1);
		_exit(0);
	}
	test_reclaim("what nobody frees goes with its socket", case_closing_sockets, 1);
	usleep(20000); /* softirq events of the other one */
	probes_consume(probes);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

static void test_identity(void)
{
	uint64_t start_ns = 0, self_ns = 0;
	uint32_t exec_id = 0, self_exec_id = 0;
	int self = probes_identify(probes, getpid(), &self_ns, &self_exec_id);
	int parent = probes_identify(probes, getppid(), &start_ns, &exec_id);
	int nobody = probes_identify(probes, 0x3fffff, &start_ns, &exec_id);
	int add_self = probes_add_target(probes, getpid(), 0);
	int add_other = probes_add_target(probes, getppid(), self_ns + 1000000000); /* another process by now */
	bool ok = !self && self_ns && self_ns < clock_boot_ns() && self_exec_id > 0 && !parent && start_ns < self_ns &&
		  nobody == -ESRCH && add_self == -EINVAL && add_other == -ESRCH;

	verdict(ok, "processes are identified");
	if (!ok)
		printf("# %d %d %d %d %d, start %llu, exec %u\n", self, parent, nobody, add_self, add_other,
		       (unsigned long long)self_ns, self_exec_id);
}

/* --- case: standard input and output of a child ------------------------------------------------------------------ */

static bool stdio_sockets; /* which kind of ends */
static const char *stdio_first;

#define PING   "{\"method\":\"ping\",\"jsonrpc\":\"2.0\"}"
#define RESULT "{\"jsonrpc\":\"2.0\",\"result\":{}}"

/* A server that a shell could be: a program that reads its input and answers each piece. */
static int serve_stdio(void)
{
	char buf[4096];
	ssize_t n;

	usleep(20000); /* as real ones need to start: this test looks for their exec every 2 ms */
	while ((n = read(0, buf, sizeof(buf))) > 0)
		if (write(1, buf[0] == '{' ? RESULT : "words", buf[0] == '{' ? sizeof(RESULT) - 1 : 5) < 0)
			return 1;
	return 0;
}

static void stdio_pair(int ends[2], bool child_reads)
{
	int sv[2];

	if (!stdio_sockets) {
		need(pipe2(ends, O_CLOEXEC), 0);
		return;
	}
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	ends[0] = sv[!child_reads];
	ends[1] = sv[child_reads];
}

/* in and out are the parent's ends. It may speak before the child runs its program. */
static pid_t start_server(int *in, int *out)
{
	int to[2], from[2];
	pid_t pid;

	stdio_pair(to, true);
	stdio_pair(from, false);
	pid = fork();
	if (pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl("/proc/self/exe", "bpftest", "serve-stdio", (char *)NULL);
		_exit(99);
	}
	close(to[0]);
	close(from[1]);
	*in = to[1];
	*out = from[0];
	return pid;
}

static void ask(int in, int out, const char *what, const char *answer)
{
	char buf[64];

	need(write(in, what, strlen(what)), (ssize_t)strlen(what));
	need(read(out, buf, sizeof(buf)), (ssize_t)strlen(answer));
}

static void case_stdio(void)
{
	struct iovec parts[2] = {IOV(PING, sizeof(PING) - 1), IOV("\n", 1)};
	int in, out, status;
	pid_t pid = start_server(&in, &out);
	char buf[64];

	ask(in, out, stdio_first, *stdio_first == '{' ? RESULT : "words");
	usleep(50000);
	ask(in, out, PING "\n", RESULT);
	need(writev(in, parts, 2), sizeof(PING));
	need(read(out, buf, 10), 10);
	need(read(out, buf, sizeof(buf)), sizeof(RESULT) - 11);
	fcntl(out, F_SETFL, O_NONBLOCK);
	need(read(out, buf, sizeof(buf)), -1);
	fcntl(out, F_SETFL, 0);
	close(in);
	need(read(out, buf, sizeof(buf)), 0);
	close(out);
	waitpid(pid, &status, 0);
}

static void case_silent(void)
{
	int in, out;

	start_server(&in, &out);
	usleep(50000);
}

#define STDIO_BEGIN "fork\nexec /proc/self/exe bpftest|serve-stdio\n"
#define STDIO_END   "exit child 0 signal 0\nexit 0 signal 0\n"

static const char golden_stdio[] = STDIO_BEGIN "open x1 fresh stdio\n"
					       "data x1 tx 0+33 '" PING "'\n"
					       "data x1 rx 0+29 '" RESULT "'\n"
					       "data x1 tx 33+34 '" PING "\n'\n"
					       "data x1 rx 29+29 '" RESULT "'\n"
					       "data x1 tx 67+33 '" PING "'\n"
					       "data x1 tx 100+1 '\n'\n"
					       "data x1 rx 58+10 '{\"jsonrpc\"'\n"
					       "data x1 rx 68+19 ':\"2.0\",\"result\":{}}'\n"
					       "close x1 tx=101 rx=87\n" STDIO_END;

/* The exit of the child and the end of the file are told in either order. */
static void sort_end(void)
{
	char *exit_at = got ? strstr(got, "exit child 0 signal 0\nclose x1") : NULL, *close_at;
	char line[64];
	size_t len;

	if (!exit_at)
		return;
	close_at = strstr(exit_at, "close");
	len = strcspn(close_at, "\n") + 1;
	if (len >= sizeof(line))
		return;
	memcpy(line, close_at, len);
	memmove(exit_at + len, exit_at, (size_t)(close_at - exit_at));
	memcpy(exit_at, line, len);
}

/* A parent that writes at once may do so before its child's exec is through. */
static void sort_begin(void)
{
	static const char exec_line[] = "exec /proc/self/exe bpftest|serve-stdio\n", fork_line[] = "fork\n";
	char *at = got && !strncmp(got, fork_line, strlen(fork_line)) ? strstr(got, exec_line) : NULL;
	char *to = got ? got + strlen(fork_line) : NULL;

	if (!at)
		return;
	memmove(to + strlen(exec_line), to, (size_t)(at - to));
	memcpy(to, exec_line, strlen(exec_line));
}

static void test_stdio(void)
{
	const bool with_syscalls = !probes_features(probes)->sock_length;

	for (int sockets = 0; sockets <= 1; sockets++) {
		stdio_sockets = sockets;
		stdio_first = PING;
		run_child(case_stdio, true);
		sort_begin();
		sort_end();
		expect(sockets ? "JSON-RPC with a child over Unix sockets" : "JSON-RPC with a child over pipes",
		       golden_stdio);
		stdio_first = "hello";
		run_child(case_stdio, true);
		expect(sockets ? "other words over Unix sockets stay unseen" : "other words over pipes stay unseen",
		       STDIO_BEGIN STDIO_END);
	}
	if (with_syscalls)
		return;
	probes_tick(probes, clock_boot_ns() + 10000000000ull);
	verdict(!probes_sees_syscalls(probes), "and system calls cost nothing any more");
	stdio_sockets = false;
	run_child(case_silent, true);
	probes_tick(probes, clock_boot_ns());
	verdict(probes_sees_syscalls(probes), "a child that is not spoken to is waited for");
	probes_tick(probes, clock_boot_ns() + 65000000000ull);
	verdict(!probes_sees_syscalls(probes), "but not for ever");
	/* It outlives its parent: its end is not the next case's. */
	for (int i = 0; i < 1000 && !count_of("exit child"); i++) {
		usleep(2000);
		probes_consume(probes);
	}
}

static void check_unseen(const char *name, const char *golden, void (*fn)(void), uint64_t add)
{
	uint64_t before = stat_of(ST_UNSEEN);

	check_served(name, golden, fn, serve_echo, 1);
	if (stat_of(ST_UNSEEN) - before == add)
		return;
	verdict(false, name);
	printf("# %llu unseen bytes counted, not %llu\n", (unsigned long long)(stat_of(ST_UNSEEN) - before),
	       (unsigned long long)add);
}

static void test_stats(const char *name, void (*fn)(void), const char *golden, enum ev_stat id, uint64_t add)
{
	uint64_t before = stat_of(id);

	run_child(fn, true);
	if (stat_of(id) - before != add)
		note("COUNTED %llu, not %llu\n", (unsigned long long)(stat_of(id) - before), (unsigned long long)add);
	expect(name, golden);
}

/* --- with --http: what is told of a call past its limit ---------------------------------------------------------- */

#define WIRE_BYTES (BIG + 4096)
#define PREFACE	   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FRAMES_LEN 1700175

static size_t put_frame(size_t at, unsigned type, unsigned flags, unsigned stream, size_t len)
{
	const uint8_t head[9] = {
		(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type, (uint8_t)flags, 0, 0, 0,
		(uint8_t)stream};

	memcpy(wire + at, head, sizeof(head));
	return at + sizeof(head) + len;
}

static void make_wire(void)
{
	wire = wire ? wire : malloc(WIRE_BYTES);
	if (!wire)
		abort();
	for (size_t i = 0; i < WIRE_BYTES; i++)
		wire[i] = pattern(i);
	expected = wire;
}

/* The third frame goes across the limit; the last one is not whole. */
static void put_frames(size_t at)
{
	for (int i = 0; i < 3; i++)
		at = put_frame(at, 0, 0, 1, 400000);
	at = put_frame(at, 1, 4, 3, 30);
	at = put_frame(at, 0, 9, 3, 500000); /* padded */
	put_frame(at, 0, 0, 1, 400000);
}

static size_t golden_from(char *out, size_t size, const char *what, unsigned from, unsigned to)
{
	size_t len = 0;

	for (unsigned n; from < to; from += n) {
		n = to - from < LIMIT_CHUNK_BYTES ? to - from : LIMIT_CHUNK_BYTES;
		len += (size_t)snprintf(out + len, size - len, "data %s %u+%u pattern\n", what, from, n);
	}
	return len;
}

static size_t golden_frames(char *out, size_t size, const char *what, unsigned at)
{
	size_t len = golden_from(out, size, what, at, at + LIMIT_REQUEST_BYTES);

	return len + (size_t)snprintf(out + len, size - len,
				      "data %s %u+0/151451 capped\ndata %s %u+39 pattern capped\n"
				      "data %s %u+10/500009 pattern capped\ndata %s %u+9/100 pattern capped\n",
				      what, at + LIMIT_REQUEST_BYTES, what, at + 1200027, what, at + 1200066, what,
				      at + 1700075);
}

static void case_frames(void)
{
	do_write(A, wire, FRAMES_LEN);
	do_write(A, wire + FRAMES_LEN, 3);
}

static void test_frames(void)
{
	static char golden[16384];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	put_frames(0);
	len += golden_frames(golden + len, sizeof(golden) - len, "A1 tx", 0);
	snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+3 pattern\nexit 0 signal 0\n", FRAMES_LEN);
	check("past the limit of a call headers of frames are copied", golden, case_frames);
}

static void case_frames_cut(void)
{
	do_write(A, wire, 1048572 + 30009);
}

static void test_frames_cut(void)
{
	static char golden[16384];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	put_frame(put_frame(0, 0, 0, 1, 1048572 - 9), 0, 1, 1, 30000);
	len += golden_from(golden + len, sizeof(golden) - len, "A1 tx", 0, LIMIT_REQUEST_BYTES);
	snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+5/30005 pattern capped\nexit 0 signal 0\n",
		 LIMIT_REQUEST_BYTES);
	check("the limit may lie in a frame's header", golden, case_frames_cut);
}

/* Where the limit is of a request: each call past it. */
static void case_request_frames(void)
{
	do_write(A, big, LIMIT_REQUEST_BYTES);
	do_write(A, wire + LIMIT_REQUEST_BYTES, 60000);
}

static void test_request_frames(void)
{
	static char golden[16384];
	unsigned at = LIMIT_REQUEST_BYTES;
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	put_frame(put_frame(put_frame(at, 0, 0, 1, 20000), 8, 0, 0, 4), 0, 1, 1, 50000);
	len += golden_from(golden + len, sizeof(golden) - len, "A1 tx", 0, LIMIT_REQUEST_BYTES);
	snprintf(golden + len, sizeof(golden) - len,
		 "data A1 tx %u+16 pattern\ndata A1 tx %u+0/19993 capped\ndata A1 tx %u+13 pattern capped\n"
		 "data A1 tx %u+9/39978 pattern capped\nexit 0 signal 0\n",
		 at, at + 16, at + 20009, at + 20022);
	check("past the limit of a request headers of frames are copied", golden, case_request_frames);
	expected = NULL;
}

static void run_data_tests(void)
{
	static char golden[65536];
	size_t len;
	unsigned i;

	check("lengths are what was moved (BR-024, BR-025, BR-026)", golden_lengths, case_lengths);
	check("calls nest (BR-040)", golden_nested, case_nested);
	check("a wrapper's bytes are told once", golden_wrapper, case_wrapper);
	test_stats("a missed return is counted and marked (BR-039)", case_missed, golden_missed, ST_MISSED_RETURN, 1);
	len = (size_t)snprintf(golden, sizeof(golden), "open A1\ngap A1 tx at 0\n");
	for (i = 0; i < LIMIT_NEST; i++)
		len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+1 'a'\n", i);
	snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+2 'ab'\nexit 0 signal 0\n", i);
	test_stats("too deep nesting is counted and marked", case_overflow, golden, ST_NEST_OVERFLOW, 1);
	golden_sizes(golden, sizeof(golden));
	check("records of every size", golden, case_sizes);
	golden_chunks(golden, sizeof(golden));
	check("a large write comes in chunks", golden, case_chunks);
	len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");
	for (i = 0; i < LIMIT_CHUNKS_PER_CALL; i++)
		len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+%u pattern\n",
					i * LIMIT_CHUNK_BYTES, LIMIT_CHUNK_BYTES);
	snprintf(golden + len, sizeof(golden) - len,
		 "data A1 tx %u+0/%u capped\ndata A1 tx %u+16 pattern\ndata A1 tx %u+16 pattern\ndata A1 tx %u+0/68 "
		 "capped\n"
		 "data A1 tx %u+16 pattern\ndata A1 rx 0+1 'a'\ndata A1 tx %u+3 'abc'\nexit 0 signal 0\n",
		 LIMIT_REQUEST_BYTES, BIG - LIMIT_REQUEST_BYTES - 16, BIG - 16, BIG, BIG + 16, BIG + 84, BIG + 100);
	check("a huge request is capped", golden, case_capped);
	test_request_frames();
	test_stats("unreadable bytes are counted and marked", case_fault, golden_fault, ST_FAULT, 1);
	test_stats("an unreadable length is counted and marked", case_len_fault, golden_len_fault, ST_FAULT, 1);
	run_child(case_lengths, false);
	expect("a process that is no target stays unseen", "");
	check("threads share a connection", golden_threads, case_threads);
}

#ifdef __x86_64__
static void test_goroutine_left(void)
{
	uint64_t now_ns = clock_boot_ns();
	unsigned before = entries_of("go_calls"), left;

	run_child(case_goroutine_left, true);
	left = entries_of("go_calls");
	probes_tick(probes, now_ns + 60 * 1000000000ull);
	probes_tick(probes, now_ns + 120 * 1000000000ull);
	verdict(before == 0 && left == 1 && entries_of("go_calls") == 0, "goroutines end with their process");
}
#endif

static void run_stack_tests(void)
{
	check("ciphers: what of their work is TLS data", golden_ciphers, case_ciphers);
	check("ciphers: other users stay unseen", "exit 0 signal 0\n", case_no_records);
	test_many_requests();
#ifdef __x86_64__
	check("goroutines: stacks that move, other goroutines, TLS in TLS", golden_goroutines, case_goroutines);
	test_goroutine_left();
#endif
}

static void run_conn_tests(void)
{
	check("generations (BR-106)", golden_generations, case_generations);
	check("handshakes", golden_handshakes, case_handshakes);
	check("a handshake that a read finished before its callback wrote", golden_handshake_in_read,
	      case_handshake_in_read);
	note_gone = true;
	check("fork, exec, exit", golden_processes, case_processes);
	note_gone = false;
	test_crowd("200 threads wait in one connection (BR-039)");
	test_idle_crowd();
	test_identity();
	test_reclaim("kernel state is reclaimed", case_closing, 1);
}

static void run_sock_tests(void)
{
	listen_somewhere();
	check_served("socket calls inside TLS calls bind", golden_inside, case_inside, serve_echo, 2);
	check_served("a callback's send is not the call's around it", golden_callback_sends, case_callback_sends,
		     serve_echo, 1);
	test_reclaim_sockets();
	check_served("ciphers: the records are what the socket moved", golden_cipher_sockets, case_cipher_sockets,
		     serve_echo, 1);
#ifdef __x86_64__
	check_served("goroutines: their sockets", golden_go_sockets, case_go_sockets, serve_echo, 2);
#endif
	check_served("a socket's life has one owner (BR-121)", golden_sockets, case_sockets, serve_sockets, 3);
}

static void run_plain_tests(void)
{
	share_memory();
	listen_unix();
	check_served("plain HTTP over every system call", golden_plain_calls, case_plain_calls, serve_echo, 1);
	if (probes_features(probes)->sock_length) {
		check_served("and over newer ones", golden_newer_calls, case_newer_calls, serve_echo, 1);
		check_unseen("bytes that no register speaks of are counted", golden_unseen, case_unseen, 222);
		if (has_io_uring())
			check_unseen("and those of io_uring", golden_io_uring, case_io_uring, 36);
		if (has_call32())
			check_unseen("and those of 32-bit callers", golden_32_bit, case_32_bit, 7);
	}
	check_served("what is no HTTP stays unseen", golden_not_plain, case_not_plain, serve_echo, 4);
	test_old_connection("a connection met in the middle", golden_in_the_middle, case_in_the_middle);
	test_old_connection("is given up after some looks", "exit 0 signal 0\n", case_given_up);
	test_inherited();
	check_served("Unix stream sockets", golden_unix, case_unix, serve_unix, 1);
	test_unix_closed();
	test_partial();
	test_stdio();
	on_data_hook = ignore_this;
	*ignore_step = 0;
	check_served("an ignored plain connection", golden_ignored_plain, case_ignored_plain, serve_echo, 1);
	*ignore_step = 0;
	check("an ignored TLS connection", golden_ignored_tls, case_ignored_tls);
	*ignore_step = 0;
	check("an ignored HTTP/2 connection", golden_ignored_http2, case_ignored_http2);
	*ignore_step = 0;
	check_served("reads of an ignored connection that are let go", golden_calm, case_calm, serve_echo, 1);
	*ignore_step = 0;
	if (probes_features(probes)->sock_length) /* elsewhere nobody would count its bytes */
		test_never();
	on_data_hook = NULL;
}

/* A ring of 64 KiB and nobody who reads. */
static void case_flood(void)
{
	int i;

	for (i = 0; i < 40; i++)
		do_write(A, big + i * 8192, 8192);
	do_read(A, big, 8192);
	fake_free(A);
}

static void test_full_ring(void)
{
	uint64_t lost_records, lost_bytes;
	bool ok;

	consume_while_running = false;
	quiet_data = true;
	run_child(case_flood, true);
	consume_while_running = true;
	quiet_data = false;
	lost_records = stat_of(ST_RING_RECORDS);
	lost_bytes = stat_of(ST_RING_BYTES);
	ok = lost_records > 30 && lost_bytes + data_bytes == 41 * 8192 && lost_bytes % 8192 == 0;
	verdict(ok, "a full ring loses and counts: bytes seen + bytes lost = bytes moved");
	if (!ok)
		printf("# %llu records, %llu bytes lost, %llu seen\n", (unsigned long long)lost_records,
		       (unsigned long long)lost_bytes, (unsigned long long)data_bytes);
	ok = strstr(got, "reached A1 tx=327680 rx=0\n") && strstr(got, "reached A1 tx=0 rx=8192\n");
	verdict(ok, "how far a connection came is known, also when its last records were lost");
	if (!ok)
		printf("# %s\n", got);
	check("and afterwards all is well", golden_lengths, case_lengths);
}

/* BR-114: records wait for the timer; only a ring that fills wakes the reader. A few are less than an eighth of the
 * ring, in classes of length too. */
#define FEW 15
static void case_few(void)
{
	int i;

	for (i = 0; i < FEW; i++)
		do_write(A, text, 100);
}

static bool run_unread(void (*fn)(void))
{
	consume_while_running = false;
	run_child(fn, true);
	consume_while_running = true;
	return woken_before_reading;
}

static void test_wakeups(void)
{
	bool woken;

	quiet_data = true;
	/* What comes late of what was before keeps the reader woken, until the ring is found empty. */
	do
		probes_consume(probes);
	while (reader_is_woken());
	woken = run_unread(case_few);
	verdict(!woken && data_bytes == FEW * 100, "some records wake nobody (BR-114)");
	woken = run_unread(case_flood);
	verdict(woken, "a ring half full wakes the reader");
	quiet_data = false;
}

static void case_exec(void)
{
	char *const args[] = {"/bin/true", "argument", NULL};

	execv("/bin/true", args);
	_exit(98);
}

static bool exec_was_told(void)
{
	const char *exec = got ? strstr(got, "exec /bin/true /bin/true|argument\n") : NULL;

	return exec && strstr(exec, "exit 0 signal 0\n");
}

static void test_follow_exec(void)
{
	bool good;

	run_child(case_exec, false);
	/* Other programs of this machine start and end meanwhile; a record that one of them is at holds up those behind
	 * it. */
	for (int i = 0; i < 500 && !exec_was_told(); i++) {
		usleep(20000);
		probes_consume(probes);
	}
	good = exec_was_told();
	verdict(good, "with follow_exec every exec is reported and provisionally traced");
	if (!good)
		print_lines("got", got);
}

static void run_libssl_tests(void)
{
	int err = attach_libssl();
	pid_t server;

	if (err) {
		verdict(false, "attach to libssl");
		printf("# %s\n", strerror(-err));
		return;
	}
	make_certificate();
	server = fork();
	if (server == 0) {
		serve_tls(2);
		_exit(0);
	}
	run_child(case_libssl, true);
	hide_wire();
	expect("libssl over a socket", golden_libssl);
	run_child(case_memory_bio, true);
	hide_wire();
	expect("libssl over memory (BR-034)", golden_memory_bio);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

static void test_votes(void)
{
	unsigned votes;
	static const char begin[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open A1\n"
				    "data A1 tx 0+2 'ab'\n"
				    "data A1 tx 2+3 'abc'\n"
				    "after A1 tx wire=7 plain=5 127.0.0.1:L>127.0.0.1:R\n"
				    "data A1 rx 0+4 'abcd'\n"
				    "before A1 rx wire=7 plain=4 127.0.0.1:L>127.0.0.1:R\n"
				    "data A1 rx 4+1 'a'\n"
				    "data A1 tx 5+1 'a'\n"
				    "open B2\n"
				    "data B2 tx 0+1 'a'\n"
				    "data A1 tx 6+1 'a'\n"
				    "after A1 tx wire=1 plain=1 127.0.0.1:L>127.0.0.1:R\n";
	pid_t server = fork();

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	run_child(case_votes, true);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	votes = count_of("after A1") + count_of("before A1");
	verdict(strncmp(got, begin, sizeof(begin) - 1) == 0, "socket calls next to TLS calls vote");
	if (strncmp(got, begin, sizeof(begin) - 1) != 0)
		print_lines("got", got);
	verdict(votes == LIMIT_SOCK_VOTES, "at most LIMIT_SOCK_VOTES times");
	if (votes != LIMIT_SOCK_VOTES)
		printf("# %u votes\n", votes);
}

static void skip_all(const char *why)
{
	printf("ok 1 - %s # SKIP %s\n1..1\n", flavour, why);
	exit(0);
}

static enum probes_mode parse_flavour(int argc, char **argv)
{
	static char name[64];

	for (int i = 2; i < argc; i++) {
		config.force_no_dynptr |= strcmp(argv[i], "no-dynptr") == 0;
		config.force_no_sock_length |= strcmp(argv[i], "no-sock-length") == 0;
	}
	snprintf(name, sizeof(name), "%s%s%s", argc > 1 ? argv[1] : "session",
		 config.force_no_dynptr ? " without dynptr" : "",
		 config.force_no_sock_length ? " without sock_send_length" : "");
	flavour = name;
	if (argc > 1 && strcmp(argv[1], "multi") == 0)
		return PROBES_MULTI;
	if (argc > 1 && strcmp(argv[1], "perf") == 0)
		return PROBES_PERF;
	return PROBES_SESSION;
}

static void make_bytes(void)
{
	size_t i;

	big = malloc(BIG);
	if (!big)
		abort();
	for (i = 0; i < BIG; i++)
		big[i] = pattern(i);
	for (i = 0; i < sizeof(text); i++)
		text[i] = (char)('a' + i % 26);
}

/* --- with --http ------------------------------------------------------------------------------------------------- */

static void case_tail(void)
{
	do_read(A, wire, BIG);
}

static void test_tail(void)
{
	static char golden[16384];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	len += golden_from(golden + len, sizeof(golden) - len, "A1 rx", 0, LIMIT_REQUEST_BYTES);
	len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data A1 rx %u+0/%u capped\n", LIMIT_REQUEST_BYTES,
				BIG - LIMIT_REQUEST_BYTES - LIMIT_CAPPED_TAIL_BYTES);
	len += golden_from(golden + len, sizeof(golden) - len, "A1 rx", BIG - LIMIT_CAPPED_TAIL_BYTES, BIG);
	snprintf(golden + len, sizeof(golden) - len, "exit 0 signal 0\n");
	check("where there are no frames the end of a call is copied", golden, case_tail);
}

/* To somebody who does not read: the kernel takes it all at once. */
static int connect_with_room(void)
{
	int fd = connect_to(port), room = 4 * BIG;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	need(write(fd, wire, sizeof(PREFACE) - 1), sizeof(PREFACE) - 1);
	return fd;
}

static void case_plain_frames(void)
{
	int fd = connect_with_room();

	need(write(fd, wire + sizeof(PREFACE) - 1, FRAMES_LEN), FRAMES_LEN);
	_exit(0);
}

#define SCATTERED 700000
static void case_plain_tail(void)
{
	uint8_t *at = wire + sizeof(PREFACE) - 1;
	struct iovec v[3] = {IOV(at, 5), IOV(at + 5, SCATTERED), IOV(at + 5 + SCATTERED, SCATTERED)};
	int fd = connect_with_room();

	need(writev(fd, v, 3), 5 + 2 * SCATTERED);
	_exit(0);
}

/* How its socket ends is another test's. */
static void check_unread(const char *name, const char *golden, void (*fn)(void))
{
	static const char last[] = "exit 0 signal 0\n";
	pid_t server = fork();
	char *end;

	if (server == 0) {
		serve_nothing(1);
		_exit(0);
	}
	run_child(fn, true);
	end_server(server);
	end = got ? strstr(got, last) : NULL;
	if (end)
		end[sizeof(last) - 1] = '\0';
	expect(name, golden);
}

static void test_plain_past_limit(void)
{
	static char golden[16384];
	const unsigned begin = sizeof(PREFACE) - 1, second = begin + 5 + SCATTERED, limit = begin + LIMIT_REQUEST_BYTES,
		       tail = begin + 5 + 2 * SCATTERED - LIMIT_CAPPED_TAIL_BYTES;
	size_t head, len;

	make_wire();
	memcpy(wire, PREFACE, begin);
	head = (size_t)snprintf(golden, sizeof(golden), PLAIN_OPEN "data x1 tx 0+%u pattern\n", begin);
	len = head + golden_from(golden + head, sizeof(golden) - head, "x1 tx", begin, begin + 5);
	len += golden_from(golden + len, sizeof(golden) - len, "x1 tx", begin + 5, second);
	len += golden_from(golden + len, sizeof(golden) - len, "x1 tx", second, limit);
	len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data x1 tx %u+0/%u capped\n", limit, tail - limit);
	len += golden_from(golden + len, sizeof(golden) - len, "x1 tx", tail, tail + LIMIT_CAPPED_TAIL_BYTES);
	snprintf(golden + len, sizeof(golden) - len, "exit 0 signal 0\n");
	check_unread("a plain socket: the end of many pieces", golden, case_plain_tail);
	put_frames(begin);
	len = head + golden_frames(golden + head, sizeof(golden) - head, "x1 tx", begin);
	snprintf(golden + len, sizeof(golden) - len, "exit 0 signal 0\n");
	check_unread("a plain socket: headers of frames in one piece", golden, case_plain_frames);
}

/* What one in some hundred threads meets where a kernel preempts itself. */
static void run_unstored_tests(void)
{
	check("unstored: lengths are what was moved", golden_lengths, case_lengths);
	check("unstored: calls nest", golden_nested, case_nested);
	check("unstored: a wrapper's bytes are told once", golden_wrapper, case_wrapper);
	test_stats("unstored: a missed return is counted and marked", case_missed, golden_missed, ST_MISSED_RETURN, 1);
	check("unstored: threads share a connection", golden_threads, case_threads);
	test_crowd("unstored: 200 threads wait in one connection");
	check("unstored: ciphers: what of their work is TLS data", golden_ciphers, case_ciphers);
	listen_somewhere();
	check_served("unstored: socket calls inside TLS calls bind", golden_inside, case_inside, serve_echo, 2);
	expected = NULL;
	verdict(entries_of("unstored") == 0, "unstored: nothing of them is left");
}

static void run_http_tests(void)
{
	test_frames();
	test_frames_cut();
	test_tail();
	listen_somewhere();
	test_plain_past_limit();
	expected = NULL;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "serve-stdio") == 0)
		return serve_stdio();
	setvbuf(stdout, NULL, _IOLBF, 0);
	config.mode_max = parse_flavour(argc, argv);
	if (getenv("BPFTEST_VERBOSE"))
		log_set_level(LOG_VERBOSE);
	if (geteuid() != 0)
		skip_all("needs root");
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		skip_all("this kernel has no BTF");
	make_bytes();
	if (!open_probes()) {
		if (probes)
			probes_close(probes);
		verdict(false, "load and attach");
		return 1;
	}
	if (probes_features(probes)->mode != config.mode_max)
		skip_all("this kernel does not have it");
	verdict(probes_features(probes)->read_dynptr || config.force_no_dynptr || config.mode_max != PROBES_SESSION,
		"load and attach");
	if (probes_features(probes)->degraded[0])
		printf("# degraded: %s\n", probes_features(probes)->degraded);
	run_data_tests();
	run_conn_tests();
	run_stack_tests();
	run_sock_tests();
	run_plain_tests();
	test_votes();
	test_owners();
	run_libssl_tests();
	test_real_file();
	probes_close(probes);
	config.ring_bytes = 65536;
	verdict(open_probes(), "load again, with a small ring");
	test_full_ring();
	test_wakeups();
	probes_close(probes);
	config.ring_bytes = 1 << 20;
	config.follow_exec = true;
	verdict(open_probes(), "load again, to follow every exec");
	test_follow_exec();
	probes_close(probes);
	config.ring_bytes = 8 << 20;
	config.follow_exec = false;
	config.http = true;
	verdict(open_probes(), "load again, for all HTTP");
	run_http_tests();
	probes_close(probes);
	config.http = false;
	config.force_no_storage = true;
	verdict(open_probes(), "load again, as if no thread were given storage");
	if (probes_features(probes)->finds_thread)
		run_unstored_tests();
	probes_close(probes);
	printf("1..%u\n", test_number);
	free(big);
	free(wire);
	free(got);
	return failures ? 1 : 0;
}
