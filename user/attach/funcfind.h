/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_FUNCFIND_H
#define ATTACH_FUNCFIND_H

/*
 * Functions that the user named (-f BINARY:SYMBOL): where their calls begin and end.
 *
 * BINARY is a file's name, or its path. SYMBOL is a name of the symbol tables, or what C++ and Rust names are for
 * people, without parameters; what the compiler adds to a copy (.isra.0, .constprop.0) may be left out. It must mean
 * one function.
 *
 * The end is seen by a return probe, which puts another address in the place of the return address. Code that unwinds
 * its stack (exceptions of C++, panics of Rust, cancelled threads) would end the program there, so in a file with
 * unwind handlers (.gcc_except_table) every RET, and every jump into another function, is probed instead.
 */

#include "tlsfind.h"

struct func_spec {
	const char *text; /* BINARY:SYMBOL as given; borrowed */
	char binary[512];
	const char *symbol; /* in text */
};

/* 0; -EINVAL: it is no BINARY:SYMBOL. `text` is borrowed. */
int func_spec_parse(struct func_spec *spec, const char *text);

/* Whether the file is the one that is meant: by its name, or where a path was given by that or by being the same file.
 */
bool func_spec_matches(const struct func_spec *spec, const struct elf *e, const char *shown_path);

/*
 * The function in a file that matches. The result has the form of a TLS stack, because it is probed the same way:
 * named spec->text, functions of TLS_ABI_FUNC with `number` as len_arg. 0; -EINVAL: refused, see reason; -ENOMEM; -EIO.
 */
int funcfind(const struct elf *e, const struct func_spec *spec, unsigned number, struct tls_find *out);

#endif
