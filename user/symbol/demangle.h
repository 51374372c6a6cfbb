/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_DEMANGLE_H
#define SYMBOL_DEMANGLE_H

/*
 * Names of C++ and Rust (the older mangling and v0) as people wrote them, by GNU libiberty: without parameters, without
 * the hash of Rust. Any other name stays as it is.
 */

#include <stddef.h>

#include "base/sv.h"

#define DEMANGLE_IN_BYTES  1024 /* longer ones are left as they are */
#define DEMANGLE_OUT_BYTES 512	/* what is behind is cut, and ends with "..." */

/* Into out, NUL-terminated; its length. */
size_t demangle(char out[DEMANGLE_OUT_BYTES], struct sv name);

#endif
