/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ciphers of TLS records, each half a connection: what of their work is TLS data, and which socket it is on. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpftest.h"

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

/* In a proxy's tunnel TLS begins when that has answered. */
static void case_cipher_tunnel(void)
{
	static const char ask[] = "CONNECT host:443 HTTP/1.1", records[6 + RECORD(9)] = "\x14\x03\x03";
	char buf[sizeof(ask)];
	int fd = connect_to(port);

	need(write(fd, ask, strlen(ask)), (ssize_t)strlen(ask));
	need(read(fd, buf, sizeof(buf)), (ssize_t)strlen(ask));
	seal13(A, "finished\x16", 9);
	need(write(fd, records, 6), 6); /* change_cipher_spec by itself: some write record by record */
	need(write(fd, records + 6, RECORD(9)), RECORD(9));
	recv_bytes(fd, sizeof(records));
	close_and_settle(fd);
}

static const char golden_cipher_tunnel[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					   "tunnel tx 127.0.0.1:L>127.0.0.1:R 'CONNECT host:443 HTTP/1.1'\n"
					   "sock proxy 127.0.0.1:L>127.0.0.1:R\n"
					   "tunnel rx 127.0.0.1:L>127.0.0.1:R 'CONNECT host:443 HTTP/1.1'\n"
					   "half open A1\n"
					   "half records A1 tx wire=30 plain=30 127.0.0.1:L>127.0.0.1:R fresh\n"
					   "half handshake A1 approx from the proxy's answer on\n"
					   "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					   "sock closed 127.0.0.1:L>127.0.0.1:R\n"
					   "exit 0 signal 0\n";

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

void cipher_tests(void)
{
	check("ciphers: what of their work is TLS data", golden_ciphers, case_ciphers);
	check("ciphers: other users stay unseen", "exit 0 signal 0\n", case_no_records);
	test_many_requests();
	test_reclaim_sockets();
	check_served("ciphers: the records are what the socket moved", golden_cipher_sockets, case_cipher_sockets,
		     serve_echo, 1);
	check_served("ciphers: TLS in a tunnel begins with it", golden_cipher_tunnel, case_cipher_tunnel, serve_echo,
		     1);
}

void cipher_tests_unstored(void)
{
	check("unstored: ciphers: what of their work is TLS data", golden_ciphers, case_ciphers);
}
