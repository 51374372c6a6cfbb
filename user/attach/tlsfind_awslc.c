/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * aws-lc under rustls, static and stripped: rustls has no function where plaintext passes and whose name or constants
 * survive, so the cipher's own entry points are taken, told by the reasons that they report (as in
 * tlsfind_boringssl.c).
 */
#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"
#include "tlsfind_anchor.h"

#define LIBRARY_CIPHER 30

enum reason {
	BAD_DECRYPT = 101,
	BUFFER_TOO_SMALL = 103,
	OUTPUT_ALIASES_INPUT = 115,
	TOO_LARGE = 117,
};

static bool reports(const struct anchors *a, unsigned f, enum reason reason)
{
	return anchors_reports(a, f, ANCHOR_AEAD_FILE, LIBRARY_CIPHER, reason);
}

static bool is_seal(const struct anchors *a, unsigned f)
{
	return reports(a, f, TOO_LARGE) && reports(a, f, BUFFER_TOO_SMALL) && reports(a, f, OUTPUT_ALIASES_INPUT);
}

static bool is_open(const struct anchors *a, unsigned f)
{
	return reports(a, f, BAD_DECRYPT) && reports(a, f, BUFFER_TOO_SMALL) && reports(a, f, OUTPUT_ALIASES_INPUT);
}

/* The directory that a path is relative to: "aws-lc" of "/x/aws-lc/ssl/ssl_lib.cc" and "ssl/ssl_lib.cc". */
static struct sv library_of(struct sv path, size_t file_len)
{
	struct sv dir = {path.ptr, path.len - file_len};
	size_t len = 0;

	if (dir.len && dir.ptr[dir.len - 1] == '/')
		dir.len--;
	while (len < dir.len && dir.ptr[dir.len - 1 - len] != '/')
		len++;
	return (struct sv){dir.ptr + dir.len - len, len};
}

/* BoringSSL, and aws-lc's own libssl, call the same functions below SSL_read: their bytes would count twice. */
static bool is_below_ssl(const struct anchors *a)
{
	const struct sv file = SV("ssl/ssl_lib.cc"), aead = SV("crypto/fipsmodule/cipher/aead.c");

	for (unsigned i = 0; i < a->string_count; i++) {
		const struct anchor_string *s = &a->strings[i];

		if (s->what != ANCHOR_AEAD_FILE || !sv_ends(s->path, aead))
			continue;
		for (unsigned k = 0; k < a->string_count; k++)
			if (a->strings[k].what == ANCHOR_BORINGSSL_FILE &&
			    sv_eq(library_of(s->path, aead.len), library_of(a->strings[k].path, file.len)))
				return true;
	}
	return false;
}

/* Adds the one function of a kind. 0, -EINVAL, -ENOMEM. */
static int add(struct anchors *a, bool (*is)(const struct anchors *a, unsigned f), const struct tls_func *like,
	       struct tls_find *out)
{
	unsigned count = 0, which = 0;

	for (unsigned f = 0; f < a->function_count; f++)
		if (is(a, f) && !count++)
			which = f;
	if (count > 1)
		return anchors_refuse(out, "ambiguous: %u functions look like %s", count, like->name);
	if (!count)
		return anchors_refuse(out, "no function looks like %s", like->name);
	return anchors_add(a, which, like, out);
}

int tlsfind_awslc(struct anchors *a, struct tls_find *out)
{
	int err;

	*out = (struct tls_find){.method = "aws-lc strings", .stack = "aws-lc", .confidence = TLS_INFERRED};
	if (!anchors_used(a, ANCHOR_AEAD_FILE) || is_below_ssl(a))
		return -ENOENT;
	if (a->reason)
		return anchors_refuse(out, "%s", a->reason);
	if (anchors_stray_reports(a, ANCHOR_AEAD_FILE, LIBRARY_CIPHER, BAD_DECRYPT) ||
	    anchors_stray_reports(a, ANCHOR_AEAD_FILE, LIBRARY_CIPHER, TOO_LARGE))
		return anchors_refuse(out, "ambiguous: code in no known function reports what the AEAD functions do");
	err = add(a, is_open,
		  &(struct tls_func){.role = TLS_ROLE_READ, .abi = TLS_ABI_AEAD, .name = "EVP_AEAD_CTX_open"}, out);
	if (!err)
		err = add(a, is_seal,
			  &(struct tls_func){.role = TLS_ROLE_WRITE, .abi = TLS_ABI_AEAD, .name = "EVP_AEAD_CTX_seal"},
			  out);
	return err;
}
