/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of a run as text, in `got`: bpftest.h. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bpftest.h"

char *got;
size_t got_len;
pid_t child_pid;
uint64_t data_bytes;
bool quiet_data, note_gone, note_wires;
const uint8_t *expected;
void (*on_data_hook)(const struct ev_data *d);

static size_t got_size;
static uint32_t gens[64];
static unsigned gen_count;
static uint64_t handshake_ns; /* end of the last one */
static uint64_t proxy_ns;     /* its last answer */
static uint32_t fresh_gens[1024];

__attribute__((format(printf, 1, 2))) void note(const char *fmt, ...)
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

static bool is_fresh_gen(uint32_t gen)
{
	return fresh_gens[gen % ARRAY_SIZE(fresh_gens)] == gen;
}

static void note_data(const struct ev_data *d)
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
	note("%s\n", sizeof(*e) + e->filename_len + e->args_len > e->h.size ? " BADSIZE" : "");
}

static const char *const sock_names[] = {
	"?",	      "connected",  "connect-failed", "close-local", "close-remote",	     "closed",
	"retransmit", "reset-sent", "reset-received", "rtt",	     [EV_SK_PROXY] = "proxy"};

static void note_addr(const struct ev_addr *a)
{
	char local[INET6_ADDRSTRLEN] = "", remote[INET6_ADDRSTRLEN] = "";

	inet_ntop(a->family, a->laddr, local, sizeof(local));
	inet_ntop(a->family, a->raddr, remote, sizeof(remote));
	note(" %s:%s>%s:%s", local, a->lport ? "L" : "0", remote, a->rport ? "R" : "0");
}

/* The latest sockets that began to connect. */
static uint64_t connecting[8192];
static unsigned connecting_count; /* ever */

static bool has_begun(uint64_t cookie)
{
	for (unsigned i = 0; i < ARRAY_SIZE(connecting); i++)
		if (connecting[i] == cookie)
			return true;
	return false;
}

static void note_sock(const struct ev_sock *s)
{
	/* Who connects is told at once, before it is known from where: held against what comes of it. */
	if (s->what == EV_SK_CONNECTING) {
		connecting[connecting_count++ % ARRAY_SIZE(connecting)] = s->cookie;
		return;
	}
	/* Delays are what they are, and what is slow is sent again: an emulated machine has them anywhere. */
	if (s->what == EV_SK_RETRANSMIT || s->what == EV_SK_LATE || s->what == EV_SK_RESENT || s->what == EV_SK_HOLE ||
	    s->what == EV_SK_RTT || s->what == EV_SK_RTT_MIN || s->what == EV_SK_QUEUED)
		return;
	if (s->what == EV_SK_PROXY)
		proxy_ns = s->h.ts_ns;
	note("sock %s%s", s->what < ARRAY_SIZE(sock_names) ? sock_names[s->what] : "?",
	     s->h.tgid == (uint32_t)child_pid ? "" : " WRONGOWNER");
	note_addr(&s->addr);
	if (s->what <= EV_SK_CONNECT_FAILED && (!s->begin_ns || s->begin_ns > s->h.ts_ns))
		note(" BADBEGIN");
	if (s->what <= EV_SK_CONNECT_FAILED && !has_begun(s->cookie))
		note(" NOTBEGUN");
	if (s->what == EV_SK_CONNECT_FAILED)
		note(" %s", s->srtt_us ? strerrorname_np((int)s->srtt_us) : "left");
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

void on_record(void *ctx, const void *bytes, size_t len)
{
	const struct ev_head *h = bytes;

	(void)ctx;
	if (len < sizeof(*h) || h->size < sizeof(*h) || h->size > len || h->size % 8) {
		note("BADRECORD kind %u size %u of %zu\n", h->kind, h->size, len);
		return;
	}
	if (h->kind == EV_DATA) {
		note_data(bytes);
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
		note("%s%s%s\n", h->flags & EV_F_APPROX ? " approx" : "",
		     s->begin_ns && s->begin_ns == proxy_ns ? " from the proxy's answer on" : "",
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
	} else if (h->kind == EV_WIRE && note_wires) {
		const struct ev_wire *w = bytes;

		if (w->flags & EV_WIRE_CLOSED)
			note("wire closed%s tx=%llu rx=%llu\n", h->tgid == (uint32_t)child_pid ? "" : " child",
			     w->bytes[0], w->bytes[1]);
	} else if (h->kind == EV_TUNNEL) {
		const struct ev_tunnel *u = bytes;

		note("tunnel %s%s", dir_name((__u8)u->dir), h->tgid == (uint32_t)child_pid ? "" : " WRONGOWNER");
		note_addr(&u->addr);
		note(" '%.*s'%s%s\n", (int)u->len, (const char *)u->bytes, u->cookie ? "" : " NOCOOKIE",
		     u->begin_ns && u->begin_ns < h->ts_ns ? "" : " BADBEGIN");
	} else if (h->kind != EV_WIRE &&
		   h->kind != EV_HELLO) { /* their bytes are those of TLS: tests/unit, tests/e2e */
		note("kind %u\n", h->kind);
	}
}

void forget_records(void)
{
	got_len = 0;
	gen_count = 0;
	data_bytes = 0;
	if (got)
		got[0] = 0;
}

void forget_generations(void)
{
	memset(fresh_gens, 0, sizeof(fresh_gens));
}
