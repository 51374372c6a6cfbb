/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind.h"

#include "base/err.h"

/* The methods, best evidence first: one file each, tlsfind_NAME.c. A method that finds no TLS at all lets the next one
 * try; one that refuses has the last word, since a weaker method must not overrule it. */
static int (*const methods[])(const struct elf *e, struct tls_find *out) = {
	tlsfind_symbols,
};

int tlsfind(const struct elf *e, struct tls_find *out)
{
	int err = -ENOENT;

	for (unsigned i = 0; i < ARRAY_SIZE(methods) && err == -ENOENT; i++)
		err = methods[i](e, out);
	return err;
}
