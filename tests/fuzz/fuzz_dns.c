/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A message of a stranger; and the same bytes as messages of a few sockets, each with a length and a time before it. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "flow/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void on_lookup(void *ctx, const struct dns_lookup *l)
{
	(void)ctx;
	if ((l->end_ns != UNKNOWN_NS && l->end_ns < l->begin_ns) || !l->queries || l->addr_count > DNS_ADDRS_MAX)
		abort();
}

static void on_attempt(void *ctx, const struct attempt *a)
{
	(void)ctx;
	if (a->end_ns < a->begin_ns || a->unfinished)
		abort();
}

static void parse(const uint8_t *bytes, size_t len)
{
	struct dns_message m;

	if (!dns_parse(&m, bytes, len) && (!m.name[0] || strlen(m.name) > DNS_NAME_MAX || m.addr_count > DNS_ADDRS_MAX))
		abort();
	if (!m.response && m.addr_count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lost lost = {0};
	struct attempts *attempts = attempts_new(&(struct attempts_sink){NULL, on_attempt});
	struct dns *t = dns_new(&lost, &(struct dns_sink){NULL, on_lookup}, attempts);
	uint64_t now_ns = 1000000000;

	parse(bytes, len);
	while (t && attempts && len > 3) {
		size_t n = bytes[0] < len - 3 ? bytes[0] : len - 3;
		struct rec_dns r = {.proc = {.tgid = bytes[1] % 2u},
				    .ts_ns = now_ns,
				    .cookie = bytes[1] % 3u,
				    .dir = bytes[1] & 0x80 ? DIR_RX : DIR_TX,
				    .bytes = bytes + 3,
				    .len = n};
		struct sock_addr to = {.family = 2, .ip = {n > 4 ? bytes[3 + n - 4] : 0, 1, 1, 1}};
		struct dns_setup s;

		now_ns += bytes[2] * 1000000ull;
		dns_push(t, &r);
		if (bytes[1] & 0x40)
			attempts_push_sock(attempts, &(struct rec_sock){.ts_ns = now_ns,
									.begin_ns = now_ns - bytes[0] * 1000000ull,
									.tgid = r.proc.tgid,
									.remote = to,
									.what = SOCK_CONNECT_FAILED});
		s = dns_find(t, r.proc.tgid, &to, now_ns);
		if (s.connect_begin_ns > now_ns || (s.dns_end_ns != UNKNOWN_NS && s.dns_begin_ns > s.dns_end_ns))
			abort();
		bytes += 3 + n;
		len -= 3 + n;
	}
	if (t)
		dns_finish(t);
	dns_free(t);
	attempts_free(attempts);
	return 0;
}
