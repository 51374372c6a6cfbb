/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>

#include "base/err.h"
#include "flow/dns.h"

#define MS   1000000ull
#define A    1
#define AAAA 28

/* --- messages ---------------------------------------------------------------------------------------------------- */

struct wire {
	uint8_t bytes[2048];
	size_t len;
};

static void put16(struct wire *w, unsigned v)
{
	w->bytes[w->len++] = (uint8_t)(v >> 8);
	w->bytes[w->len++] = (uint8_t)v;
}

static void put_name(struct wire *w, const char *name)
{
	while (*name) {
		size_t label = strcspn(name, ".");

		w->bytes[w->len++] = (uint8_t)label;
		memcpy(w->bytes + w->len, name, label);
		w->len += label;
		name += label + (name[label] == '.');
	}
	w->bytes[w->len++] = 0;
}

static void put_head(struct wire *w, unsigned id, bool response, const char *name, unsigned type, unsigned answers)
{
	w->len = 0;
	put16(w, id);
	put16(w, response ? 0x8180 : 0x0100);
	put16(w, 1);
	put16(w, answers);
	put16(w, 0);
	put16(w, 0);
	put_name(w, name);
	put16(w, type);
	put16(w, 1);
}

static void put_record(struct wire *w, unsigned type, const void *data, size_t len)
{
	put16(w, 0xc00c); /* the name of the question */
	put16(w, type);
	put16(w, 1);
	put16(w, 0);
	put16(w, 60);
	put16(w, (unsigned)len);
	memcpy(w->bytes + w->len, data, len);
	w->len += len;
}

static void put_address(struct wire *w, const char *ip)
{
	uint8_t a[16];
	bool six = strchr(ip, ':') != NULL;

	assert_int_equal(inet_pton(six ? AF_INET6 : AF_INET, ip, a), 1);
	put_record(w, six ? AAAA : A, a, six ? 16 : 4);
}

static void print(struct tlog *l, const struct dns_message *m)
{
	tlog_printf(l, "%u %s %s", m->id, m->response ? "answers" : "asks", m->name);
	for (size_t i = 0; i < m->addr_count; i++) {
		char ip[64];

		inet_ntop(m->addrs[i].family, m->addrs[i].ip, ip, sizeof(ip));
		tlog_printf(l, " %s", ip);
	}
	tlog_printf(l, "\n");
}

static void sample(struct wire *w)
{
	put_head(w, 0x1234, true, "API.Example-1.com", A, 4);
	put_record(w, 5, "\4edge\xc0\x10", 7); /* CNAME */
	put_address(w, "10.1.2.3");
	put_record(w, A, "abc", 3); /* no address */
	put_address(w, "fe80::1");
}

static void messages(void **state)
{
	struct tlog log = {0};
	struct dns_message m;
	struct wire w;

	(void)state;
	sample(&w);
	assert_int_equal(dns_parse(&m, w.bytes, w.len), 0);
	print(&log, &m);
	put_head(&w, 7, false, "a_b.c", AAAA, 0);
	assert_int_equal(dns_parse(&m, w.bytes, w.len), 0);
	print(&log, &m);
	put_head(&w, 7, false, "x \n\xff.y", A, 0);
	assert_int_equal(dns_parse(&m, w.bytes, w.len), 0);
	print(&log, &m);
	assert_log(&log, "4660 answers api.example-1.com 10.1.2.3 fe80::1\n7 asks a_b.c\n7 asks x???.y\n");
	tlog_free(&log);
}

static void no_messages(void **state)
{
	struct dns_message m;
	struct wire w;

	(void)state;
	put_head(&w, 7, false, "", A, 0); /* the root */
	assert_int_equal(dns_parse(&m, w.bytes, w.len), -EBADMSG);
	put_head(&w, 7, false, "a.b", A, 0);
	w.bytes[5] = 2;
	assert_int_equal(dns_parse(&m, w.bytes, w.len), -EBADMSG);
	w.bytes[5] = 0;
	assert_int_equal(dns_parse(&m, w.bytes, w.len), -EBADMSG);
	w.bytes[5] = 1;
	w.bytes[12] = 0xc0; /* points, where nothing was before */
	assert_int_equal(dns_parse(&m, w.bytes, w.len), -EBADMSG);
	w.bytes[12] = 64;
	assert_int_equal(dns_parse(&m, w.bytes, w.len), -EBADMSG);
	w.len = 12;
	for (int i = 0; i < 30; i++)
		put_name(&w, "abcdefghijkl"), w.len--; /* 390 bytes without an end */
	put16(&w, 0);
	assert_int_equal(dns_parse(&m, w.bytes, w.len), -EBADMSG);
}

static void cut_anywhere(void **state)
{
	struct dns_message whole, m;
	struct guard g = {0};
	struct wire w;

	(void)state;
	sample(&w);
	assert_int_equal(dns_parse(&whole, w.bytes, w.len), 0);
	for (size_t len = 0; len <= w.len; len++) {
		int err = dns_parse(&m, guard_copy(&g, w.bytes, len), len);

		assert_int_equal(err, len < 12 + 19 + 4 ? -EBADMSG : 0);
		if (err)
			continue;
		assert_string_equal(m.name, whole.name);
		assert_true(m.addr_count <= whole.addr_count);
		assert_memory_equal(m.addrs, whole.addrs, m.addr_count * sizeof(m.addrs[0]));
	}
	assert_int_equal(m.addr_count, 2);
	guard_free(&g);
}

static void any_byte_changed(void **state)
{
	struct dns_message m;
	struct guard g = {0};
	struct wire w;

	(void)state;
	sample(&w);
	for (size_t i = 0; i < w.len; i++) {
		for (unsigned v = 0; v < 256; v += 5) {
			uint8_t was = w.bytes[i];

			w.bytes[i] = (uint8_t)v;
			dns_parse(&m, guard_copy(&g, w.bytes, w.len), w.len);
			assert_true(m.addr_count <= DNS_ADDRS_MAX && strlen(m.name) <= DNS_NAME_MAX);
			w.bytes[i] = was;
		}
	}
	guard_free(&g);
}

static void many_addresses(void **state)
{
	struct dns_message m;
	struct wire w;

	(void)state;
	put_head(&w, 7, true, "a.b", A, 60);
	for (int i = 0; i < 60; i++)
		put_address(&w, "10.1.2.3");
	assert_int_equal(dns_parse(&m, w.bytes, w.len), 0);
	assert_int_equal(m.addr_count, DNS_ADDRS_MAX);
}

/* --- what belongs together --------------------------------------------------------------------------------------- */

struct world {
	struct tlog log;
	struct lost lost;
	struct attempts *attempts;
	struct dns *t;
};

static void on_lookup(void *ctx, const struct dns_lookup *l)
{
	struct tlog *log = &((struct world *)ctx)->log;

	tlog_printf(log, "%u %s from %llu", l->proc.tgid, l->name, (unsigned long long)(l->begin_ns / MS));
	if (l->end_ns != UNKNOWN_NS)
		tlog_printf(log, " to %llu", (unsigned long long)(l->end_ns / MS));
	tlog_printf(log, " %u queries %zu addresses", l->queries, l->addr_count);
	if (l->unanswered && l->end_ns != UNKNOWN_NS)
		tlog_printf(log, " %u unanswered", l->unanswered);
	tlog_printf(log, "\n");
}

static void on_attempt(void *ctx, const struct attempt *a)
{
	(void)ctx;
	(void)a;
}

static void open_world(struct world *w)
{
	*w = (struct world){0};
	w->attempts = attempts_new(&(struct attempts_sink){w, on_attempt});
	assert_non_null(w->attempts);
	w->t = dns_new(&w->lost, &(struct dns_sink){w, on_lookup}, w->attempts);
	assert_non_null(w->t);
}

static void close_world(struct world *w)
{
	dns_free(w->t);
	attempts_free(w->attempts);
	tlog_free(&w->log);
}

static void push(struct world *w, const struct wire *m, uint32_t tid, uint64_t cookie, enum dir dir, uint64_t ms)
{
	dns_push(w->t, &(struct rec_dns){.proc = {.tgid = 10, .start_ns = 5},
					 .ts_ns = ms * MS,
					 .cookie = cookie,
					 .tid = tid,
					 .dir = dir,
					 .bytes = m->bytes,
					 .len = m->len});
}

static void ask(struct world *w, const char *name, unsigned type, uint64_t cookie, unsigned id, uint64_t ms)
{
	struct wire m;

	put_head(&m, id, false, name, type, 0);
	push(w, &m, 11, cookie, DIR_TX, ms);
}

static void answer(struct world *w, const char *name, const char *ip, uint64_t cookie, unsigned id, uint64_t ms)
{
	struct wire m;

	put_head(&m, id, true, name, A, ip ? 1 : 0);
	if (ip)
		put_address(&m, ip);
	push(w, &m, 11, cookie, DIR_RX, ms);
}

static struct sock_addr address(const char *ip)
{
	struct sock_addr a = {.family = strchr(ip, ':') ? AF_INET6 : AF_INET, .port = 443};

	assert_int_equal(inet_pton(a.family, ip, a.ip), 1);
	return a;
}

static void failed(struct world *w, uint32_t tgid, const char *ip, uint64_t begin_ms, uint64_t ms)
{
	attempts_push_sock(w->attempts, &(struct rec_sock){.ts_ns = ms * MS,
							   .begin_ns = begin_ms * MS,
							   .tgid = tgid,
							   .remote = address(ip),
							   .what = SOCK_CONNECT_FAILED});
}

static void find(struct world *w, const char *ip, uint64_t ms)
{
	struct sock_addr a = address(ip);
	struct dns_setup s = dns_find(w->t, 10, &a, ms * MS);

	if (s.dns_begin_ns != UNKNOWN_NS)
		tlog_printf(&w->log, "dns %llu-%llu ", (unsigned long long)(s.dns_begin_ns / MS),
			    (unsigned long long)(s.dns_end_ns / MS));
	tlog_printf(&w->log, "connect %llu\n", (unsigned long long)(s.connect_begin_ns / MS));
}

static void both_families(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "api.a.com", A, 1, 5, 100);
	ask(&w, "api.a.com", AAAA, 1, 6, 101);
	answer(&w, "api.a.com", "10.0.0.1", 1, 5, 110);
	answer(&w, "api.a.com", "fd00::1", 2, 6, 115); /* another socket's */
	answer(&w, "api.b.com", "fd00::1", 1, 6, 116); /* of another question */
	answer(&w, "api.a.com", "fd00::2", 1, 6, 120);
	find(&w, "10.0.0.1", 121);
	find(&w, "fd00::2", 125); /* a second connection of the same look-up */
	find(&w, "10.0.0.9", 121);
	find(&w, "10.0.0.1", 105); /* before the answer */
	find(&w, "10.0.0.1", 175); /* it was known long since */
	dns_finish(w.t);
	assert_log(&w.log, "dns 100-120 connect 121\ndns 100-120 connect 125\nconnect 121\nconnect 105\nconnect 175\n");
	close_world(&w);
}

/* An answer that never comes is waited for, by the first connection; what comes after the connection is not. */
static void open_questions(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	ask(&w, "a.b", AAAA, 1, 6, 100);
	answer(&w, "a.b", "10.0.0.1", 1, 5, 110);
	ask(&w, "a.b", AAAA, 1, 6, 3100); /* again */
	find(&w, "10.0.0.1", 5100);
	find(&w, "10.0.0.1", 7100);
	ask(&w, "c.d", A, 1, 7, 9000);
	ask(&w, "c.d", AAAA, 1, 8, 9000);
	answer(&w, "c.d", "10.0.0.2", 1, 7, 9010);
	answer(&w, "c.d", NULL, 1, 8, 9300);
	find(&w, "10.0.0.2", 9060);
	assert_log(&w.log, "dns 100-5100 connect 5100\nconnect 7100\ndns 9000-9060 connect 9060\n");
	close_world(&w);
}

/* What was asked again, of another server, is answered by its answer; by an error, or before it, it is not. */
static void asked_again(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	ask(&w, "a.b", A, 2, 6, 1100);
	answer(&w, "a.b", "10.0.0.1", 2, 6, 1110);
	find(&w, "10.0.0.1", 1140);
	ask(&w, "c.d", A, 3, 5, 3000);
	ask(&w, "c.d", A, 4, 6, 4000);
	answer(&w, "c.d", "10.0.0.2", 4, 6, 4010);
	find(&w, "10.0.0.2", 6000); /* it was known long since */
	ask(&w, "e.f", A, 5, 5, 7000);
	ask(&w, "e.f", AAAA, 5, 6, 7000);
	answer(&w, "e.f", "10.0.0.3", 5, 6, 7010); /* of the other kind */
	find(&w, "10.0.0.3", 7500);
	assert_log(&w.log, "dns 100-1110 connect 1140\nconnect 6000\ndns 7000-7500 connect 7500\n");
	close_world(&w);
}

static void refused_then_answered(void **state)
{
	struct world w;
	struct wire m;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	ask(&w, "a.b", A, 2, 6, 1100);
	put_head(&m, 6, true, "a.b", A, 0);
	m.bytes[3] |= 2; /* the server failed */
	push(&w, &m, 11, 2, DIR_RX, 1110);
	answer(&w, "a.b", "10.0.0.1", 1, 5, 1500);
	find(&w, "10.0.0.1", 1510);
	ask(&w, "c.d", A, 3, 5, 3000);
	ask(&w, "c.d", A, 4, 6, 4000);
	put_head(&m, 6, true, "c.d", A, 0);
	m.bytes[2] |= 2; /* truncated */
	push(&w, &m, 11, 4, DIR_RX, 4010);
	answer(&w, "c.d", "10.0.0.2", 3, 5, 4500);
	find(&w, "10.0.0.2", 4510);
	assert_log(&w.log, "dns 100-1500 connect 1510\ndns 3000-4500 connect 4510\n");
	close_world(&w);
}

static void tcp(struct world *w, uint32_t tid, uint64_t cookie, enum sock_what what, uint64_t ms)
{
	struct sock_addr server = address("10.0.0.53");

	server.port = 53;
	dns_push_sock(w->t, &(struct rec_sock){.ts_ns = ms * MS,
					       .begin_ns = ms * MS,
					       .cookie = cookie,
					       .tgid = 10,
					       .tid = tid,
					       .remote = server,
					       .what = what});
}

static void cut_answer(struct world *w, const char *name, const char *ip, uint64_t cookie, unsigned id, uint64_t ms)
{
	struct wire m;

	put_head(&m, id, true, name, A, 1);
	m.bytes[2] |= 2;
	put_address(&m, ip);
	push(w, &m, 11, cookie, DIR_RX, ms);
}

/* A truncated answer is asked for again over TCP, until that is closed; or it is good enough. */
static void goes_on_over_tcp(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	cut_answer(&w, "a.b", "10.0.0.1", 1, 5, 110);
	tcp(&w, 11, 70, SOCK_CONNECTED, 112);
	tcp(&w, 11, 70, SOCK_CLOSE_LOCAL, 150);
	tcp(&w, 11, 70, SOCK_CLOSED, 151);
	find(&w, "10.0.0.1", 160);
	ask(&w, "c.d", A, 2, 6, 1000);
	cut_answer(&w, "c.d", "10.0.0.2", 2, 6, 1010);
	tcp(&w, 12, 71, SOCK_CONNECTED, 1012); /* another thread's */
	tcp(&w, 12, 71, SOCK_CLOSED, 1020);
	find(&w, "10.0.0.2", 1030);
	ask(&w, "e.f", A, 3, 7, 2000);
	cut_answer(&w, "e.f", "10.0.0.3", 3, 7, 2010);
	tcp(&w, 11, 72, SOCK_CONNECTED, 2012); /* goes on being open */
	find(&w, "10.0.0.3", 2100);
	assert_log(&w.log, "dns 100-150 connect 160\ndns 1000-1010 connect 1030\ndns 2000-2100 connect 2100\n");
	close_world(&w);
}

static void search_domains(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "api.a.com.ns.svc.local", A, 1, 1, 100);
	answer(&w, "api.a.com.ns.svc.local", NULL, 1, 1, 110);
	ask(&w, "api.a.com.svc.local", A, 2, 2, 111);
	answer(&w, "api.a.com.svc.local", NULL, 2, 2, 120);
	ask(&w, "api.a.com", A, 3, 3, 121);
	answer(&w, "api.a.com", "10.0.0.1", 3, 3, 130);
	find(&w, "10.0.0.1", 131);
	/* Not these: another name, or too late. */
	ask(&w, "x.y", A, 1, 1, 200);
	answer(&w, "x.y", NULL, 1, 1, 210);
	ask(&w, "z.y", A, 1, 2, 211);
	answer(&w, "z.y", "10.0.0.2", 1, 2, 220);
	find(&w, "10.0.0.2", 221);
	ask(&w, "p.q.r", A, 1, 1, 300);
	answer(&w, "p.q.r", NULL, 1, 1, 310);
	ask(&w, "p.q", A, 1, 2, 330);
	answer(&w, "p.q", "10.0.0.3", 1, 2, 340);
	find(&w, "10.0.0.3", 341);
	dns_finish(w.t);
	assert_log(&w.log, "dns 100-130 connect 131\ndns 211-220 connect 221\ndns 330-340 connect 341\n"
			   "10 x.y from 200 to 210 1 queries 0 addresses\n"
			   "10 p.q.r from 300 to 310 1 queries 0 addresses\n");
	close_world(&w);
}

static void attempts_before(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	answer(&w, "a.b", "10.0.0.1", 1, 5, 110);
	ask(&w, "a.b", AAAA, 1, 6, 111);
	answer(&w, "a.b", "fd00::1", 1, 6, 120);
	failed(&w, 10, "fd00::1", 121, 421);
	failed(&w, 10, "10.9.9.9", 300, 420); /* of another name */
	failed(&w, 99, "fd00::1", 121, 421);  /* another process's */
	find(&w, "10.0.0.1", 500);
	for (unsigned i = 0; i < 2 * ATTEMPTS_MAX; i++)
		failed(&w, 10, "127.0.0.3", 2000 + i, 2000 + i);
	find(&w, "10.0.0.1", 130); /* forgotten by now */
	assert_log(&w.log, "dns 100-120 connect 121\ndns 100-120 connect 130\n");
	close_world(&w);
}

static void told_in_the_end(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "slow.a", A, 1, 1, 1000);
	ask(&w, "used.a", A, 1, 2, 2000);
	answer(&w, "used.a", "10.0.0.1", 1, 2, 2010);
	find(&w, "10.0.0.1", 2011);
	dns_tick(w.t, 10999 * MS);
	assert_log(&w.log, "dns 2000-2010 connect 2011\n");
	dns_tick(w.t, 11000 * MS);
	dns_tick(w.t, 20000 * MS);
	assert_log(&w.log, "dns 2000-2010 connect 2011\n10 slow.a from 1000 1 queries 0 addresses\n");
	close_world(&w);
	open_world(&w);
	for (unsigned i = 0; i <= DNS_LOOKUPS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u.a", i);
		ask(&w, name, A, 1, i, 1000 + i);
	}
	for (unsigned i = 0; i < 2 * DNS_QUERIES_MAX; i++)
		ask(&w, "n9.a", A, 2, i, 2000);
	assert_log(&w.log, "10 n0.a from 1000 1 queries 0 addresses\n");
	close_world(&w);
}

/* Who got one kind of address, and waited for the other one in vain. */
static void answered_in_part(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	ask(&w, "a.b", AAAA, 1, 6, 100);
	answer(&w, "a.b", "10.0.0.1", 1, 5, 110);
	ask(&w, "a.b", AAAA, 1, 6, 2600); /* again */
	dns_finish(w.t);
	assert_log(&w.log, "10 a.b from 100 to 110 3 queries 1 addresses 2 unanswered\n");
	close_world(&w);
}

static void trying(struct world *w, uint64_t cookie, const char *ip, enum sock_what what, uint64_t begin_ms,
		   uint64_t ms)
{
	attempts_push_sock(w->attempts, &(struct rec_sock){.ts_ns = ms * MS,
							   .begin_ns = begin_ms * MS,
							   .cookie = cookie,
							   .tgid = 10,
							   .remote = address(ip),
							   .what = what});
}

/* An address that is silent for minutes, then the next one: the look-up is the connection's, and the name known. */
static void first_address_is_silent(void **state)
{
	struct sock_addr dead = address("10.0.0.1");
	struct world w;

	(void)state;
	open_world(&w);
	ask(&w, "a.b", A, 1, 5, 100);
	answer(&w, "a.b", "10.0.0.1", 1, 5, 110);
	ask(&w, "a.b", AAAA, 1, 6, 110);
	answer(&w, "a.b", "10.0.0.2", 1, 6, 120);
	trying(&w, 70, "10.0.0.1", SOCK_CONNECTING, 121, 121);
	for (uint64_t ms = 1000; ms <= 127000; ms += 1000)
		dns_tick(w.t, ms * MS);
	trying(&w, 70, "10.0.0.1", SOCK_CONNECT_FAILED, 121, 127121);
	dns_tick(w.t, 127122 * MS);
	assert_string_equal(dns_name(w.t, 10, &dead, 121 * MS), "a.b");
	find(&w, "10.0.0.2", 127122);
	attempts_tick(w.attempts, 129000 * MS);
	dns_tick(w.t, 137122 * MS);
	assert_string_equal(dns_name(w.t, 10, &dead, 121 * MS), "");
	assert_log(&w.log, "dns 100-120 connect 121\n");
	close_world(&w);
}

static void without_memory(void **state)
{
	struct world w;

	(void)state;
	fail_nth(1);
	assert_null(dns_new(&w.lost, NULL, NULL));
	fail_nth(0);
	open_world(&w);
	fail_nth(1);
	ask(&w, "a.b", A, 1, 5, 100);
	fail_nth(0);
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 1);
	answer(&w, "a.b", "10.0.0.1", 1, 5, 110);
	find(&w, "10.0.0.1", 111);
	assert_log(&w.log, "connect 111\n");
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages),	    cmocka_unit_test(no_messages),
		cmocka_unit_test(cut_anywhere),	    cmocka_unit_test(any_byte_changed),
		cmocka_unit_test(many_addresses),   cmocka_unit_test(both_families),
		cmocka_unit_test(asked_again),	    cmocka_unit_test(refused_then_answered),
		cmocka_unit_test(open_questions),   cmocka_unit_test(search_domains),
		cmocka_unit_test(attempts_before),  cmocka_unit_test(told_in_the_end),
		cmocka_unit_test(goes_on_over_tcp), cmocka_unit_test(without_memory),
		cmocka_unit_test(answered_in_part), cmocka_unit_test(first_address_is_silent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
