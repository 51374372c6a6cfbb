/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "testcert.h"

static int add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *extension;
	int ok;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	if (!extension)
		return -1;
	ok = X509_add_ext(cert, extension, -1);
	X509_EXTENSION_free(extension);
	return ok == 1 ? 0 : -1;
}

/* Python 3.13 verifies strictly: it wants the key usage, and both key identifiers in their order. */
static int add_ca_extensions(X509 *cert)
{
	return add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE") ||
			       add_extension(cert, cert, NID_key_usage, "critical,keyCertSign") ||
			       add_extension(cert, cert, NID_subject_key_identifier, "hash") ||
			       add_extension(cert, cert, NID_authority_key_identifier, "keyid:always")
		       ? -1
		       : 0;
}

static int add_server_extensions(X509 *cert, X509 *issuer)
{
	return add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
			       add_extension(cert, issuer, NID_key_usage, "critical,digitalSignature") ||
			       add_extension(cert, issuer, NID_ext_key_usage, "serverAuth") ||
			       add_extension(cert, issuer, NID_subject_key_identifier, "hash") ||
			       add_extension(cert, issuer, NID_authority_key_identifier, "keyid:always") ||
			       add_extension(cert, issuer, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1")
		       ? -1
		       : 0;
}

/* issuer NULL: an authority, signed by itself. */
static X509 *make_cert(EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key)
{
	const char *common = issuer ? "perfbpf test server" : "perfbpf test authority";
	X509 *cert = X509_new();
	X509_NAME *name;
	unsigned serial = 1;

	if (!cert)
		return NULL;
	/* Another serial each time: clients that remember a certificate by issuer and serial refuse the second one. */
	RAND_bytes((unsigned char *)&serial, sizeof(serial));
	ASN1_INTEGER_set(X509_get_serialNumber(cert), (long)(serial >> 1) + 1);
	X509_set_version(cert, X509_VERSION_3);
	X509_gmtime_adj(X509_getm_notBefore(cert), -2l * 86400); /* tests set the clock a day back */
	X509_gmtime_adj(X509_getm_notAfter(cert), 30l * 86400);
	X509_set_pubkey(cert, key);
	name = X509_get_subject_name(cert);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common, -1, -1, 0);
	X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer) : name);
	if ((issuer ? add_server_extensions(cert, issuer) : add_ca_extensions(cert)) ||
	    !X509_sign(cert, issuer_key, EVP_sha256())) {
		X509_free(cert);
		return NULL;
	}
	return cert;
}

static int write_cert(X509 *cert, const char *path)
{
	char temp[4096];
	FILE *f;
	int ok;

	if ((size_t)snprintf(temp, sizeof(temp), "%s.tmp", path) >= sizeof(temp))
		return -1;
	f = fopen(temp, "we");
	if (!f)
		return -1;
	ok = PEM_write_X509(f, cert);
	if (fclose(f) || !ok || rename(temp, path)) {
		remove(temp);
		return -1;
	}
	return 0;
}

int testcert_use(SSL_CTX *ctx, const char *ca_path)
{
	EVP_PKEY *ca_key = EVP_EC_gen("P-256"), *key = EVP_EC_gen("P-256");
	X509 *ca = ca_key ? make_cert(ca_key, NULL, ca_key) : NULL;
	X509 *cert = ca && key ? make_cert(key, ca, ca_key) : NULL;
	int err = -1;

	if (cert && SSL_CTX_use_certificate(ctx, cert) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1 &&
	    (!ca_path || !write_cert(ca, ca_path)))
		err = 0;
	X509_free(cert);
	X509_free(ca);
	EVP_PKEY_free(key);
	EVP_PKEY_free(ca_key);
	return err;
}
