/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_TESTCERT_H
#define TEST_TESTCERT_H

/* A self-signed certificate for loopback, made anew at each start: no key is ever stored. */

#include <openssl/ssl.h>

/* Make a P-256 key and a certificate for localhost, 127.0.0.1 and ::1 that clients with strict X.509 rules accept as
 * their own trust anchor, and use both in ctx. cert_path: also write the certificate there (PEM), by rename; NULL: do
 * not. 0 or -1. */
int testcert_use(SSL_CTX *ctx, const char *cert_path);

#endif
