/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The system's libssl as the finder finds it, over a socket and over memory. */
#include <dlfcn.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpftest.h"

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

void libssl_tests(void)
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
