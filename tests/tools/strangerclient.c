/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * strangerclient: a client of a model API whose TLS no tracer knows (Mbed TLS, linked in and stripped). It makes calls
 * one after the other over one connection, --pause-ms apart. With --decoy it also maps libssl and never uses it. What
 * it saw of each call goes to standard output: "call N send_ns NS first_ns NS last_ns NS", CLOCK_BOOTTIME.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>

struct client {
	mbedtls_net_context net;
	mbedtls_ssl_context ssl;
	mbedtls_ssl_config conf;
	mbedtls_entropy_context entropy;
	mbedtls_ctr_drbg_context random;
};

static void fail(const char *what, int err)
{
	fprintf(stderr, "strangerclient: %s: -0x%x\n", what, (unsigned)-err);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void open_connection(struct client *c, const char *port, const char *host)
{
	int err;

	mbedtls_net_init(&c->net);
	mbedtls_ssl_init(&c->ssl);
	mbedtls_ssl_config_init(&c->conf);
	mbedtls_entropy_init(&c->entropy);
	mbedtls_ctr_drbg_init(&c->random);
	err = mbedtls_ctr_drbg_seed(&c->random, mbedtls_entropy_func, &c->entropy, NULL, 0);
	if (!err)
		err = mbedtls_net_connect(&c->net, "127.0.0.1", port, MBEDTLS_NET_PROTO_TCP);
	if (!err)
		err = mbedtls_ssl_config_defaults(&c->conf, MBEDTLS_SSL_IS_CLIENT, MBEDTLS_SSL_TRANSPORT_STREAM,
						  MBEDTLS_SSL_PRESET_DEFAULT);
	if (err)
		fail("connect", err);
	mbedtls_ssl_conf_authmode(&c->conf, MBEDTLS_SSL_VERIFY_NONE);
	mbedtls_ssl_conf_max_version(&c->conf, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
	mbedtls_ssl_conf_rng(&c->conf, mbedtls_ctr_drbg_random, &c->random);
	err = mbedtls_ssl_setup(&c->ssl, &c->conf);
	if (!err)
		err = mbedtls_ssl_set_hostname(&c->ssl, host);
	mbedtls_ssl_set_bio(&c->ssl, &c->net, mbedtls_net_send, mbedtls_net_recv, NULL);
	while (!err && (err = mbedtls_ssl_handshake(&c->ssl)) == MBEDTLS_ERR_SSL_WANT_READ)
		err = 0;
	if (err)
		fail("handshake", err);
}

static void call(struct client *c, unsigned number, const char *knobs)
{
	static const char body[] = "{\"model\":\"claude-test-1\",\"stream\":true,\"max_tokens\":100,\"messages\":"
				   "[{\"role\":\"user\",\"content\":\"hello\"}]}";
	char request[1024], answer[16384];
	uint64_t send_ns, first_ns = 0;
	int n, len = snprintf(request, sizeof(request),
			      "POST /stranger-%u/v1/messages?%s HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
			      "application/json\r\ncontent-length: %zu\r\n\r\n%s",
			      number, knobs, sizeof(body) - 1, body);

	send_ns = now_ns();
	if (mbedtls_ssl_write(&c->ssl, (const unsigned char *)request, (size_t)len) != len)
		fail("write", 0);
	for (;;) {
		n = mbedtls_ssl_read(&c->ssl, (unsigned char *)answer, sizeof(answer) - 1);
		if (n <= 0)
			fail("read", n);
		if (!first_ns)
			first_ns = now_ns();
		answer[n] = '\0';
		if (strstr(answer, "\r\n0\r\n\r\n") || !strcmp(answer, "0\r\n\r\n"))
			break;
	}
	printf("call %u send_ns %llu first_ns %llu last_ns %llu\n", number, (unsigned long long)send_ns,
	       (unsigned long long)first_ns, (unsigned long long)now_ns());
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *port = NULL, *host = "localhost", *knobs = "";
	unsigned calls = 1, pause_ms = 0;
	bool decoy = false;
	static struct client c;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--decoy")) {
			decoy = true;
			continue;
		}
		if (!strcmp(argv[i], "--port"))
			port = value;
		else if (!strcmp(argv[i], "--host"))
			host = value;
		else if (!strcmp(argv[i], "--knobs"))
			knobs = value;
		else if (!strcmp(argv[i], "-n"))
			calls = (unsigned)atoi(value);
		else if (!strcmp(argv[i], "--pause-ms"))
			pause_ms = (unsigned)atoi(value);
		else
			port = NULL;
		i++;
	}
	if (!port) {
		fprintf(stderr, "usage: strangerclient --port N [--host NAME] [--knobs K] [-n CALLS] [--pause-ms N] "
				"[--decoy]\n");
		return 2;
	}
	if (decoy && !dlopen("libssl.so.3", RTLD_NOW))
		fail(dlerror(), 0);
	open_connection(&c, port, host);
	for (unsigned i = 0; i < calls; i++) {
		if (i)
			usleep(pause_ms * 1000);
		call(&c, i, knobs);
	}
	mbedtls_ssl_close_notify(&c.ssl);
	mbedtls_net_free(&c.net);
	return 0;
}
