/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind.h"

#include "base/err.h"

/* Methods that look for the same functions. Different families are different code, and each counts its own bytes. */
enum family { FAMILY_LIBRARY, FAMILY_AEAD, FAMILY_GO, FAMILIES };
_Static_assert(FAMILIES <= TLSFIND_STACKS_MAX, "a family gives one stack at most");

/* Best evidence first: one file each, tlsfind_NAME.c. A method that finds no TLS at all lets the next one of its family
 * try; one that refuses has the last word there, since a weaker method must not overrule it. */
static const struct {
	enum family family;
	int (*find)(const struct elf *e, struct tls_find *out);
} methods[] = {
	{FAMILY_LIBRARY, tlsfind_symbols},
	{FAMILY_GO, tlsfind_go},
};

int tlsfind(const struct elf *e, struct tls_finds *out)
{
	bool said[FAMILIES] = {false}, found = false;

	out->count = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(methods); i++) {
		struct tls_find *stack = &out->stacks[out->count];
		int err;

		if (said[methods[i].family])
			continue;
		err = methods[i].find(e, stack);
		if (err == -ENOMEM) {
			out->count = 0;
			return err;
		}
		if (err == -ENOENT)
			continue;
		said[methods[i].family] = true;
		found |= !err;
		out->count++;
	}
	return found ? 0 : out->count ? -EINVAL : -ENOENT;
}
