/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_OVERHEAD_H
#define PERFBPF_OVERHEAD_H

/*
 * What TLS adds to plaintext, for both sides: wire = plain + n * o, with o the overhead of one record (21, 22 or 29
 * bytes: RFC 8446 section 5.2, RFC 5288, RFC 7905; header included) and n the fewest records that can carry it or up to
 * OVERHEAD_MORE_RECORDS more. The first send of a connection may also carry the end of a TLS 1.3 handshake: a Finished
 * record, 58 bytes with SHA-256 or 74 with SHA-384 (5 header + 4 + 32 or 48 + 1 + 16: RFC 8446 sections 4.4.4 and 5.2;
 * then o is 22), and a change_cipher_spec record of 6 (appendix D.4) before it.
 */

#define OVERHEAD_MORE_RECORDS 4
#define OVERHEAD_RECORD_BYTES 16384u

/* `more` is the overhead of so many records as may carry the plaintext, `least` at the least. */
static inline _Bool overhead_is(unsigned int more, unsigned int of_one, unsigned int least)
{
	unsigned int n = more / of_one;

	return n * of_one == more && n >= least && n - least <= OVERHEAD_MORE_RECORDS;
}

static inline unsigned int overhead_least(unsigned int plain)
{
	return plain / OVERHEAD_RECORD_BYTES + (plain % OVERHEAD_RECORD_BYTES != 0);
}

/* The records of this plaintext and nothing else make so many bytes. */
static inline _Bool overhead_matches(unsigned int wire, unsigned int plain)
{
	unsigned int more = wire - plain, least = overhead_least(plain);

	return plain && wire > plain &&
	       (overhead_is(more, 22, least) || overhead_is(more, 29, least) || overhead_is(more, 21, least));
}

/* So do they after the end of a handshake. */
static inline _Bool overhead_matches_finished(unsigned int wire, unsigned int plain)
{
	unsigned int more = wire - plain, least = overhead_least(plain);

	return plain && wire > plain &&
	       ((more > 58 && overhead_is(more - 58, 22, least)) || (more > 74 && overhead_is(more - 74, 22, least)) ||
		(more > 64 && overhead_is(more - 64, 22, least)) || (more > 80 && overhead_is(more - 80, 22, least)));
}

#endif
