/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TLSFIND_H
#define ATTACH_TLSFIND_H

/*
 * The finder: which functions of a file carry TLS plaintext, and where to probe them. One file a method
 * (tlsfind_NAME.c), one result type. Ambiguous roles are refused with a reason. A file can hold several stacks (a Rust
 * program with OpenSSL and rustls); each is found, or refused, for itself.
 */

#include "site.h"

#define TLSFIND_MAX	   48 /* Go: entry and up to 20 RETs, for Read and Write */
#define TLSFIND_STACKS_MAX 3  /* of one file: SSL_* or GnuTLS functions, AEAD functions, Go */

/* How the roles were told apart. */
enum tls_confidence {
	TLS_NAMED,    /* symbols of the file itself, or Go's function table */
	TLS_INFERRED, /* by the constants and calls in the code, each role by one function only */
};

struct tls_func {
	uint32_t role;	  /* enum tls_role of bpf/event.h */
	uint32_t len_arg; /* TLS_LEN_RET or argument number */
	uint32_t abi;	  /* enum tls_abi of bpf/event.h */
	struct site site;
	char name[48]; /* "SSL_read", "ssl_read_internal (SSL_read, SSL_read_ex)" */
};

struct tls_find { /* one stack; count 0: refused, see reason */
	struct tls_func funcs[TLSFIND_MAX];
	unsigned count;
	const char *stack; /* "openssl 3", "openssl 1.1", "gnutls"; static; NULL: no TLS here */
	const char
		*method; /* "symbols", "boringssl strings", "openssl strings", "aws-lc strings", "gopclntab"; static */
	enum tls_confidence confidence;
	char reason[160]; /* why nothing (or not all) can be probed; "" otherwise */
};

struct tls_finds {
	struct tls_find stacks[TLSFIND_STACKS_MAX];
	unsigned count;
};

/* Each method. 0: probes found (reading and writing both); -ENOENT: no TLS functions in this file; -EINVAL: refused,
 * see reason; -ENOMEM. */
int tlsfind_symbols(const struct elf *e, struct tls_find *out);
/*
 * Go: each function has an entry (TLS_ABI_GO_ENTRY) and one for every RET (TLS_ABI_GO_RETURN). At both, R14 is g and
 * RSP is what it was at the call, but Go moves stacks, also between an entry and its RET: a call of a g is known by
 * (g->stack.hi - RSP), word 1 of g, which a move keeps. The entry is hit again each time the stack has to grow: the
 * second hit means the same call and overwrites the first (same g, same distance). Calls of one g nest where TLS runs
 * inside TLS (a proxy). HANDSHAKE is clientHandshake: RAX is the receiver at the entry, 0 at a RET when it went well.
 */
int tlsfind_go(const struct elf *e, struct tls_find *out);

/* All methods. 0: a stack can be probed (another may have been refused); -ENOENT: no TLS functions in this file;
 * -EINVAL: what there is was refused; -ENOMEM, or -EIO (the file became shorter meanwhile): nothing is known,
 * out->count is 0. */
int tlsfind(const struct elf *e, struct tls_finds *out);

#endif
