/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_TESTCERT_H
#define TEST_TESTCERT_H

/* A certificate for loopback and an authority that signed it, made anew at each start: no key is ever stored. Two,
 * because rustls refuses an authority's certificate as a server's. */

#include <openssl/ssl.h>

/* Make P-256 keys, an authority's certificate, and one for localhost, 127.0.0.1 and ::1 that clients with strict X.509
 * rules accept below it; use the latter in ctx. ca_path: write the authority's there (PEM), by rename; NULL: do not. 0
 * or -1. */
int testcert_use(SSL_CTX *ctx, const char *ca_path);

#endif
