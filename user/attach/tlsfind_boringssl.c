/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BoringSSL, static and stripped. Its error macro leaves library, reason, file and line in the code: the reasons that a
 * function reports tell which one it is (include/openssl/err.h and ssl.h; the numbers are part of its interface).
 */
#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"
#include "tlsfind_anchor.h"

#define LIBRARY_SSL 16

enum reason {
	SHOULD_NOT_HAVE_BEEN_CALLED = 66, /* SSL_read, SSL_peek and SSL_write over QUIC */
	BAD_LENGTH = 111,		  /* SSL_write */
	CONNECTION_TYPE_NOT_SET = 134,	  /* SSL_do_handshake */
	NULL_SSL_CTX = 185,		  /* SSL_new */
	HANDSHAKE_FAILURE = 215,	  /* what both directions report before a handshake is done */
	UNINITIALIZED = 226,
};

static bool reports(const struct anchors *a, unsigned f, enum reason reason)
{
	return anchors_reports(a, f, ANCHOR_BORINGSSL_FILE, LIBRARY_SSL, reason);
}

static bool is_write(const struct anchors *a, unsigned f)
{
	return reports(a, f, BAD_LENGTH) && reports(a, f, HANDSHAKE_FAILURE) && reports(a, f, UNINITIALIZED);
}

/* What SSL_read and SSL_peek have in common (ssl_read_impl). */
static bool is_read_body(const struct anchors *a, unsigned f)
{
	return !reports(a, f, BAD_LENGTH) && reports(a, f, HANDSHAKE_FAILURE) && reports(a, f, UNINITIALIZED);
}

static bool is_handshake(const struct anchors *a, unsigned f)
{
	return reports(a, f, CONNECTION_TYPE_NOT_SET);
}

static bool is_new(const struct anchors *a, unsigned f)
{
	return reports(a, f, NULL_SSL_CTX);
}

/* The one function of a kind: number of them, *which the first. */
static unsigned pick(const struct anchors *a, bool (*is)(const struct anchors *a, unsigned f), unsigned *which)
{
	unsigned count = 0;

	for (unsigned f = 0; f < a->function_count; f++)
		if (is(a, f) && !count++)
			*which = f;
	return count;
}

/* SSL_read takes what it hands out from the buffer: it writes to memory that is not its frame. SSL_peek does not. */
static bool takes(void *ctx, struct decoder *d)
{
	const cs_x86 *x = &d->insn->detail->x86;
	const cs_x86_op *to = &x->operands[0];
	bool *found = ctx;

	*found = x->op_count == 2 && to->type == X86_OP_MEM && to->mem.disp &&
		 (d->insn->id == X86_INS_MOV || d->insn->id == X86_INS_ADD) && to->mem.base != X86_REG_RSP &&
		 to->mem.base != X86_REG_RBP && to->mem.base != X86_REG_RIP;
	return !*found;
}

/* 0 and the position of SSL_read; -EINVAL refused; -ENOMEM. */
static int pick_read(struct anchors *a, unsigned body, unsigned *read, struct tls_find *out)
{
	unsigned candidates = 0, reads = 0;

	for (unsigned f = 0; f < a->function_count; f++) {
		bool found = false;
		int calls;

		if (f == body || !reports(a, f, SHOULD_NOT_HAVE_BEEN_CALLED))
			continue;
		calls = anchors_calls(a, a->functions[f].off, a->functions[body].off);
		if (calls < 0)
			return calls;
		if (!calls)
			continue;
		candidates++;
		if (anchors_each_insn(a, a->functions[f].off, takes, &found))
			return -ENOMEM;
		if (found && !reads++)
			*read = f;
	}
	if (reads == 1 && candidates <= 2)
		return 0;
	if (!candidates)
		return anchors_refuse(out, "no SSL_read around its read body was found");
	return anchors_refuse(out, "ambiguous: SSL_read cannot be told from SSL_peek");
}

static int pick_roles(struct anchors *a, unsigned *read, unsigned *write, struct tls_find *out)
{
	unsigned bodies, writes, body = 0;

	bodies = pick(a, is_read_body, &body);
	writes = pick(a, is_write, write);
	if (a->reason)
		return anchors_refuse(out, "%s", a->reason);
	if (bodies > 1 || writes > 1)
		return anchors_refuse(out, "ambiguous: %u functions look like SSL_%s", bodies > 1 ? bodies : writes,
				      bodies > 1 ? "read" : "write");
	if (anchors_stray_reports(a, ANCHOR_BORINGSSL_FILE, LIBRARY_SSL, BAD_LENGTH) ||
	    anchors_stray_reports(a, ANCHOR_BORINGSSL_FILE, LIBRARY_SSL, HANDSHAKE_FAILURE))
		return anchors_refuse(out,
				      "ambiguous: code in no known function reports what SSL_write or SSL_read do");
	if (!bodies || !writes)
		return anchors_refuse(out, "no function looks like SSL_%s", bodies ? "write" : "read");
	if (anchors_crowded(a, body))
		return anchors_refuse(out, "what looks like SSL_read is several functions");
	return pick_read(a, body, read, out);
}

/* Not needed for the bytes: without it, or with two of them, it is left out. 0 or -ENOMEM. */
static int add_optional(struct anchors *a, bool (*is)(const struct anchors *a, unsigned f), const struct tls_func *like,
			struct tls_find *out)
{
	unsigned f = 0, count = pick(a, is, &f), kept = out->count;
	int err = count == 1 ? anchors_add(a, f, like, out) : -EINVAL;

	if (err != -EINVAL)
		return err;
	out->count = kept;
	snprintf(out->reason, sizeof(out->reason), "handshakes are not seen: %s functions look like %s",
		 count > 1 ? "several" : "no proven", like->name);
	return 0;
}

int tlsfind_boringssl(struct anchors *a, struct tls_find *out)
{
	unsigned read = 0, write = 0;
	int err;

	*out = (struct tls_find){.method = "boringssl strings", .stack = "boringssl", .confidence = TLS_INFERRED};
	if (!anchors_used(a, ANCHOR_BORINGSSL_FILE))
		return -ENOENT;
	err = pick_roles(a, &read, &write, out);
	if (!err)
		err = anchors_add(a, read, &(struct tls_func){.role = TLS_ROLE_READ, .name = "SSL_read"}, out);
	if (!err)
		err = anchors_add(a, write, &(struct tls_func){.role = TLS_ROLE_WRITE, .name = "SSL_write"}, out);
	if (!err)
		err = add_optional(a, is_handshake,
				   &(struct tls_func){.role = TLS_ROLE_HANDSHAKE, .name = "SSL_do_handshake"}, out);
	if (!err && pick(a, is_new, &read) == 1)
		err = add_optional(a, is_new, &(struct tls_func){.role = TLS_ROLE_NEW, .name = "SSL_new"}, out);
	return err;
}
