/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * modelserver: a small model API on loopback whose every answer is known to the nanosecond. Eleven dialects by path,
 * streaming or unary, over HTTP/1.1, HTTP/2 (ALPN, prior knowledge, h2c) or, for …/responses, a WebSocket; over TLS
 * with a certificate made at start or, with --plain, without. What it does is asked for per request by knobs, in the
 * query
 * (?tokens=20&gap_ms=5) or in headers (x-test-gap-ms: 5); --truth FILE gets a JSON line a request with the stamps of
 * what was really sent.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server.h"
#include "tests/tools/testcert.h"

#define CONNECTIONS_MAX 4096
#define IDLE_SECONDS	7200 /* longer than a soak */

static SSL_CTX *tls;
static bool http1_only;
static atomic_uint connection_count;
static atomic_int connections_open;

static void set_timeouts(int fd, int receive, int transmit)
{
	struct timeval r = {.tv_sec = receive}, t = {.tv_sec = transmit};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &r, sizeof(r));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* After a refused request the rest of it may still be on its way: closing now would reset the answer away. */
static void drain(struct conn *c)
{
	char rest[16384];
	int i;

	shutdown(c->fd, SHUT_WR);
	set_timeouts(c->fd, 1, 1);
	for (i = 0; i < 1024 && recv(c->fd, rest, sizeof(rest), 0) > 0; i++)
		;
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	struct linger linger = {0};
	socklen_t len = sizeof(linger);
	int one = 1, begins;

	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	set_timeouts(c->fd, 20, 20);
	buf_init(&c->in, BODY_MAX + HEAD_MAX);
	if (tls) {
		c->ssl = SSL_new(tls);
		if (!c->ssl || SSL_set_fd(c->ssl, c->fd) != 1 || SSL_accept(c->ssl) != 1)
			goto out;
	}
	c->established_ns = clock_boot_ns();
	set_timeouts(c->fd, IDLE_SECONDS, 60);
	begins = http1_only ? 0 : http2_begins(c);
	if (begins > 0)
		http2_serve(c, NULL);
	while (!begins && http1_serve_one(c))
		;
	getsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, &len);
	if (!linger.l_onoff)
		drain(c);
out:
	ERR_clear_error();
	SSL_free(c->ssl);
	close(c->fd);
	buf_release(&c->in);
	free(c);
	atomic_fetch_sub(&connections_open, 1);
	return NULL;
}

/* --- start ------------------------------------------------------------------------------------------------------- */

static int start_connection(int fd, uint64_t accept_ns, const struct sockaddr_in *peer)
{
	struct conn *c = calloc(1, sizeof(*c));
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (!c)
		return -ENOMEM;
	c->fd = fd;
	c->accept_ns = accept_ns;
	c->id = atomic_fetch_add(&connection_count, 1) + 1;
	c->peer_port = ntohs(peer->sin_port);
	atomic_fetch_add(&connections_open, 1);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 512 << 10);
	err = pthread_create(&thread, &attr, serve, c);
	pthread_attr_destroy(&attr);
	if (err) {
		atomic_fetch_sub(&connections_open, 1);
		free(c);
	}
	return -err;
}

static void accept_loop(int listener)
{
	for (;;) {
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);
		int fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
		uint64_t now = clock_boot_ns();

		if (fd < 0) {
			usleep(10000); /* out of descriptors: some connection ends sooner or later */
			continue;
		}
		if (atomic_load(&connections_open) >= CONNECTIONS_MAX || start_connection(fd, now, &peer))
			close(fd);
	}
}

static int select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
			   unsigned in_len, void *arg)
{
	static const unsigned char both[] = "\x02h2\x08http/1.1";
	const unsigned char *ours = http1_only ? both + 3 : both;

	(void)ssl, (void)arg;
	if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, ours,
				  (unsigned)(both + sizeof(both) - 1 - ours), in, in_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	return SSL_TLSEXT_ERR_OK;
}

static int start_tls(const char *cert_path, bool old)
{
	tls = SSL_CTX_new(TLS_server_method());
	if (!tls || testcert_use(tls, cert_path)) {
		ERR_print_errors_fp(stderr);
		return -1;
	}
	SSL_CTX_set_alpn_select_cb(tls, select_protocol, NULL);
	SSL_CTX_set_mode(tls, SSL_MODE_AUTO_RETRY);
	if (old)
		SSL_CTX_set_max_proto_version(tls, TLS1_2_VERSION);
	return 0;
}

static int listen_on(struct in_addr address, unsigned port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = address};
	socklen_t len = sizeof(at);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1024) ||
	    getsockname(fd, (struct sockaddr *)&at, &len)) {
		close(fd);
		return -1;
	}
	printf("listening %u\n", ntohs(at.sin_port));
	fflush(stdout);
	return fd;
}

static void usage(FILE *out)
{
	fprintf(out, "usage: modelserver [--address A] [--port N] [--plain] [--http1] [--tls12] [--cert-out FILE] "
		     "[--truth FILE]\n"
		     "prints \"listening PORT\" when ready; loopback unless told otherwise. Knobs, as ?NAME=VALUE or "
		     "header x-test-NAME:\n");
	knobs_print(out);
}

struct settings {
	struct in_addr address;
	unsigned port;
	bool plain, tls12;
	const char *cert, *truth;
};

static int parse_arguments(struct settings *s, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--plain"))
			s->plain = true;
		else if (!strcmp(argv[i], "--http1"))
			http1_only = true;
		else if (!strcmp(argv[i], "--tls12"))
			s->tls12 = true;
		else if (!value)
			return -1;
		else if (!strcmp(argv[i], "--port") && i++)
			s->port = (unsigned)atoi(value);
		else if (!strcmp(argv[i], "--address") && i++ && inet_aton(value, &s->address))
			;
		else if (!strcmp(argv[i], "--cert-out") && i++)
			s->cert = value;
		else if (!strcmp(argv[i], "--truth") && i++)
			s->truth = value;
		else
			return -1;
	}
	return s->port > 65535 ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct settings s = {.address.s_addr = htonl(INADDR_LOOPBACK)};
	int listener;

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return 0;
	}
	if (parse_arguments(&s, argc, argv)) {
		usage(stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (s.truth && truth_open(s.truth)) {
		perror(s.truth);
		return 1;
	}
	if (!s.plain && start_tls(s.cert, s.tls12)) {
		fprintf(stderr, "modelserver: cannot make or write the certificate\n");
		return 1;
	}
	listener = listen_on(s.address, s.port);
	if (listener < 0) {
		perror("modelserver: listen");
		return 1;
	}
	accept_loop(listener);
}
