/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind.h"

#include "base/err.h"
#include "base/sigbus.h"
#include "tlsfind_anchor.h"

/* Methods that look for the same functions. Different families are different code, and each counts its own bytes. */
enum family { FAMILY_LIBRARY, FAMILY_AEAD, FAMILY_GO, FAMILIES };
_Static_assert(FAMILIES <= TLSFIND_STACKS_MAX, "a family gives one stack at most");

/* Best evidence first: one file each, tlsfind_NAME.c. A method that finds no TLS at all lets the next one of its family
 * try; one that refuses has the last word there, since a weaker method must not overrule it. */
static const struct method {
	enum family family;
	int (*find)(const struct elf *e, struct tls_find *out);
	int (*find_by_anchor)(struct anchors *a, struct tls_find *out);
} methods[] = {
	{FAMILY_LIBRARY, tlsfind_symbols, NULL}, {FAMILY_LIBRARY, NULL, tlsfind_boringssl},
	{FAMILY_LIBRARY, NULL, tlsfind_openssl}, {FAMILY_AEAD, NULL, tlsfind_awslc},
	{FAMILY_GO, tlsfind_go, NULL},
};

struct search {
	const struct elf *e;
	struct tls_finds *out;
	struct anchors anchors; /* read when the first method asks for them */
	bool found;
};

/* The methods over a file. 0 or -ENOMEM. */
static int try_all(void *ctx)
{
	struct search *s = ctx;
	bool said[FAMILIES] = {false}, read = false;

	for (unsigned i = 0; i < ARRAY_SIZE(methods); i++) {
		const struct method *m = &methods[i];
		struct tls_find *stack = &s->out->stacks[s->out->count];
		int err = 0;

		if (said[m->family])
			continue;
		if (m->find_by_anchor && !read)
			err = anchors_read(&s->anchors, s->e);
		read |= m->find_by_anchor != NULL;
		if (!err)
			err = m->find ? m->find(s->e, stack) : m->find_by_anchor(&s->anchors, stack);
		if (err == -ENOMEM)
			return err;
		if (err == -ENOENT)
			continue;
		said[m->family] = true;
		s->found |= !err;
		s->out->count++;
	}
	return 0;
}

int tlsfind(const struct elf *e, struct tls_finds *out)
{
	struct search s = {.e = e, .out = out};
	int err;

	out->count = 0;
	err = sigbus_guard(try_all, &s);
	if (err != -EIO) /* else it is not known what they were in the middle of */
		anchors_release(&s.anchors);
	if (err) {
		out->count = 0;
		return err;
	}
	return s.found ? 0 : out->count ? -EINVAL : -ENOENT;
}
