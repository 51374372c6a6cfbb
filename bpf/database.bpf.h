/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_DATABASE_BPF_H
#define PERFBPF_DATABASE_BPF_H

/*
 * With --db: whether the first bytes of a plain socket may be a database client's, or its server's. A first sieve: what
 * gets through that is none costs some copying, until user space says so (user/flow/db/db.h has the whole rule).
 */

#include "emit.bpf.h"

static __always_inline bool is_digit(__u8 c)
{
	return c >= '0' && c <= '9';
}

/* PostgreSQL: a startup message or request for encryption, with its length before it; or any message of a client, which
 * has a type and a length. */
static __always_inline bool is_postgres(__u64 word, bool fresh)
{
	__u8 type = word, b1 = word >> 8, b2 = word >> 16, b3 = word >> 24, b4 = word >> 32;
	__u32 code = word >> 32;

	if (!type && !b1 && (code == 0x00000300 || code == 0x02000300 || code == 0x2f16d204 || code == 0x3016d204))
		return true;
	if (fresh || b1 || b2 > 0x10)
		return false;
	if (type == 'S' || type == 'H')
		return !b2 && !b3 && b4 == 4;
	return type == 'Q' || type == 'P' || type == 'B' || type == 'E' || type == 'D' || type == 'C';
}

/* MySQL: a command, behind its length and the number 0. */
static __always_inline bool is_mysql_command(__u64 word)
{
	__u8 b2 = word >> 16, b3 = word >> 24, command = word >> 32;

	return !b2 && !b3 && (command == 0x03 || command == 0x16 || command == 0x17);
}

/* Its greeting: a length, the number 0, the version of the protocol and, as text, of the server. Some clients read the
 * length by itself. */
static __always_inline bool is_mysql_greeting(__u64 word, __u32 n, __u64 len)
{
	__u8 b1 = word >> 8, b2 = word >> 16, b3 = word >> 24, b4 = word >> 32, b5 = word >> 40;

	if (b1 > 2 || b2)
		return false;
	return n < 8 ? len == 4 : !b3 && b4 == 0x0a && is_digit(b5);
}

/* Redis: an array of strings, or PING. */
static __always_inline bool is_redis(__u64 word, __u32 n)
{
	__u8 b0 = word, b1 = word >> 8, b2 = word >> 16;

	if (b0 == '*')
		return is_digit(b1) && (is_digit(b2) || b2 == '\r');
	return (b0 | 0x20) == 'p' && (b1 | 0x20) == 'i' && (b2 | 0x20) == 'n' &&
	       (n < 8 || ((word >> 24) & 0xdf) == 'G');
}

/* The first bytes that moved in a direction: `n` of them in `word`, 3 or 8. fresh: of the whole connection. */
static __always_inline bool is_database(__u64 word, __u32 n, __u64 len, __u32 dir, bool fresh)
{
	if (dir == EV_DIR_RX)
		return is_mysql_greeting(word, n, len);
	if (is_redis(word, n))
		return true;
	return n == 8 && (is_postgres(word, fresh) || (!fresh && is_mysql_command(word)));
}

#endif
