/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_LDCACHE_H
#define ATTACH_LDCACHE_H

/* /etc/ld.so.cache as glibc writes it since 2.2 ("glibc-ld.so.cache1.1", alone or behind the older table). */

#include <stddef.h>
#include <stdint.h>

/* Every library of this machine's own kind: its soname and its path, NUL-terminated and borrowed from bytes. fn returns
 * 0, or what stops the walk and becomes the result. 0; -EBADMSG for a broken file (what is readable was reported). */
int ldcache_each(const void *bytes, size_t len, uint16_t machine,
		 int (*fn)(void *ctx, const char *soname, const char *path), void *ctx);

#endif
