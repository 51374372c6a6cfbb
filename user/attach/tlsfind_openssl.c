/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * OpenSSL 3, static and stripped. Its error macro leaves the reporting function's name in the code (ERR_set_debug,
 * since 3.0), so ssl_read_internal and ssl_write_internal, which every public function ends in, name themselves. The
 * reasons are those of include/openssl/sslerr.h.
 */
#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"
#include "tlsfind_anchor.h"

#define LIBRARY_SSL	    20
#define CALLERS_MAX	    8	 /* looked at, to see how a function is called */
#define CALLER_BYTES_MAX    1024 /* a jump further than this leaves a calling function */
#define CALLED_WITH(number) (1u << (number))

enum reason {
	CONNECTION_TYPE_NOT_SET = 144, /* SSL_do_handshake */
	NULL_SSL_CTX = 195,	       /* SSL_new */
	UNINITIALIZED = 276,	       /* both internal functions */
};

/* --- which functions --------------------------------------------------------------------------------------------- */

struct constants {
	uint32_t reason;
	bool library, found;
};

static bool note_constant(void *ctx, struct decoder *d)
{
	const cs_x86 *x = &d->insn->detail->x86;
	struct constants *c = ctx;

	if ((d->insn->id == X86_INS_MOV && x->op_count == 2 && x->operands[1].type == X86_OP_IMM) ||
	    (d->insn->id == X86_INS_PUSH && x->operands[0].type == X86_OP_IMM)) {
		c->library |= x->operands[x->op_count - 1].imm == LIBRARY_SSL;
		c->found |= (uint32_t)x->operands[x->op_count - 1].imm == c->reason;
	}
	return !(c->library && c->found);
}

/* The functions that refer to a name, and report this reason: number of them, *which the first; -ENOMEM. */
static int pick(struct anchors *a, enum anchor name, enum reason reason, unsigned *which)
{
	int count = 0;

	for (unsigned f = 0; f < a->function_count; f++) {
		struct constants c = {.reason = reason};

		if (!anchors_refers(a, f, name))
			continue;
		if (anchors_each_insn(a, a->functions[f].off, note_constant, &c))
			return -ENOMEM;
		if (c.library && c.found && !count++)
			*which = f;
	}
	return count;
}

/* --- how they are called ----------------------------------------------------------------------------------------- */

/* Asks one caller at which argument it hands the length pointer on: of a local, or its own fourth moved to the fifth.
 * (A fourth or fifth that it leaves alone says nothing: there may be none.) 0 or -ENOMEM. */
static int ask_caller(const struct elf *e, uint64_t caller, uint64_t callee, unsigned *with)
{
	static const struct {
		unsigned at, what;
	} ways[] = {{4, SITE_LOCAL}, {5, SITE_LOCAL}, {5, 4}};

	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		uint64_t target;
		int err = site_forward(e, caller, CALLER_BYTES_MAX, ways[i].at, ways[i].what, &target);

		if (err == -ENOMEM)
			return err;
		if (!err && target == callee)
			*with |= CALLED_WITH(ways[i].at);
	}
	return 0;
}

/*
 * The argument number of the length pointer: (s, buf, num, *done), or (s, buf, num, flags, *done) for a write
 * since 3.3. All callers that hand their own (s, buf, num) on must agree. 0: not proven; -ENOMEM.
 */
static int length_argument(struct anchors *a, uint64_t callee)
{
	unsigned with = 0, asked = 0;
	uint64_t last = UINT64_MAX;

	for (size_t i = 0; i < a->call_count && asked < CALLERS_MAX && a->budget; i++) {
		uint64_t caller;
		int err;

		if (a->calls[i].target != callee)
			continue;
		err = anchors_function_of(a, a->calls[i].site, &caller);
		if (err == -ENOMEM)
			return err;
		if (err || caller == last)
			continue;
		asked++;
		last = caller;
		err = ask_caller(a->d.e, caller, callee, &with);
		if (err)
			return err;
	}
	return with == CALLED_WITH(4) ? 4 : with == CALLED_WITH(5) ? 5 : 0;
}

/* --- the directions ---------------------------------------------------------------------------------------------- */

struct direction {
	uint32_t role;
	enum anchor internal, plain;
	const char *name;
	bool may_have_flags;
};

static int add_direction(struct anchors *a, const struct direction *d, struct tls_find *out)
{
	struct tls_func like = {.role = d->role};
	unsigned which = 0;
	int count = pick(a, d->internal, UNINITIALIZED, &which), at;

	if (count < 0)
		return count;
	if (!count)
		return anchors_refuse(out, "no code refers to %s: OpenSSL before 3.0, or without its error strings",
				      d->name);
	if (count > 1)
		return anchors_refuse(out, "ambiguous: %s is part of %d functions", d->name, count);
	if (anchors_stray(a, d->internal))
		return anchors_refuse(out, "ambiguous: code in no known function refers to %s", d->name);
	if (anchors_refers(a, which, d->plain))
		return anchors_refuse(out, "%s is only found inside another function", d->name);
	at = length_argument(a, a->functions[which].off);
	if (at < 0)
		return at;
	if (!at || (at == 5 && !d->may_have_flags))
		return anchors_refuse(out, "how %s is called cannot be told", d->name);
	like.len_arg = (uint32_t)at;
	snprintf(like.name, sizeof(like.name), "%s", d->name);
	return anchors_add(a, which, &like, out);
}

/* Not needed for the bytes. 0 or -ENOMEM. */
static int add_optional(struct anchors *a, enum anchor name, enum reason reason, const struct tls_func *like,
			struct tls_find *out)
{
	unsigned which = 0, kept = out->count;
	int count = pick(a, name, reason, &which);
	int err = count < 0 ? count : count == 1 ? anchors_add(a, which, like, out) : -EINVAL;

	if (err != -EINVAL)
		return err;
	out->count = kept;
	snprintf(out->reason, sizeof(out->reason), "%s is not seen: %s function is known to be it", like->name,
		 count > 1 ? "more than one" : "no");
	return 0;
}

int tlsfind_openssl(struct anchors *a, struct tls_find *out)
{
	static const struct direction directions[] = {
		{TLS_ROLE_READ, ANCHOR_READ_INTERNAL, ANCHOR_READ, "ssl_read_internal", false},
		{TLS_ROLE_WRITE, ANCHOR_WRITE_INTERNAL, ANCHOR_WRITE, "ssl_write_internal", true},
	};
	int err = 0;

	*out = (struct tls_find){.method = "openssl strings", .stack = "openssl 3", .confidence = TLS_INFERRED};
	if (!anchors_used(a, ANCHOR_OPENSSL_FILE))
		return -ENOENT;
	if (a->reason)
		return anchors_refuse(out, "%s", a->reason);
	for (unsigned i = 0; i < ARRAY_SIZE(directions) && !err; i++)
		err = add_direction(a, &directions[i], out);
	if (!err)
		err = add_optional(a, ANCHOR_NEW, NULL_SSL_CTX,
				   &(struct tls_func){.role = TLS_ROLE_NEW, .name = "SSL_new"}, out);
	if (!err)
		err = add_optional(a, ANCHOR_DO_HANDSHAKE, CONNECTION_TYPE_NOT_SET,
				   &(struct tls_func){.role = TLS_ROLE_HANDSHAKE, .name = "SSL_do_handshake"}, out);
	return err;
}
