/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HPACK_H
#define FLOW_PROTO_HPACK_H

/*
 * Header blocks of one direction of an HTTP/2 connection (RFC 7541), by libnghttp2's inflater, also where the dynamic
 * table is not known: attached in the middle of the connection, or after lost bytes.
 *
 * Why it is never wrong. The inflater's table then starts empty, and a block is given to it instruction by instruction.
 * Index 62 + i means the i-th newest entry; which one that is depends on what was inserted last, not on what was there
 * before or on evictions. So an index within our table means the same entry in the peer's table, and one beyond it is
 * an entry from before: unknown. Such an instruction is not given to the inflater: its field is left out; when it
 * inserts an entry (unknown name, new value) it is given with a placeholder for the name, so that the order stays. Our
 * table may keep entries longer than the peer's (its size is not known, so ours is the largest one): a valid peer does
 * not refer to those. It may keep them shorter (the peer uses more than HPACK_TABLE_MAX): then they are unknown.
 *
 * SETTINGS_HEADER_TABLE_SIZE is not followed: the two directions are not ordered against each other, and it takes
 * effect only with the size update inside a block (RFC 7541 section 4.2), which is followed.
 */

#include "base/buf.h"
#include "http.h"

#define HPACK_TABLE_MAX 65536 /* of our copy of a dynamic table; a peer that uses more has unknown fields */
#define HPACK_BLOCK_MAX 65536 /* encoded; the caller does not give longer ones */

/* One decoded block. Text is owned by the head: hpack_head_release(). What is unknown or malformed is absent. */
struct hpack_head {
	struct sv method, path, scheme, authority, protocol; /* pseudo-header fields */
	int status;					     /* :status, 0 when absent */
	struct http_header headers[HTTP_HEADERS_MAX];	     /* the first ones */
	size_t header_count;
	unsigned unknown; /* fields left out because their table entry is unknown */
	bool too_long;	  /* over HTTP_HEAD_BYTES_MAX decoded; what is past it is left out */
	struct buf text;
};

struct hpack;

/* known: the connection's first block is the first one given. NULL: ENOMEM. */
struct hpack *hpack_new(bool known);
void hpack_free(struct hpack *p);

/*
 * A whole block. 0; -EPROTO: malformed, and the table unknown from here; -ENOMEM: the same. The head is initialized in
 * any case, and empty after an error.
 */
int hpack_decode(struct hpack *p, const uint8_t *block, size_t len, struct hpack_head *head);
void hpack_head_release(struct hpack_head *head);
void hpack_lose(struct hpack *p);	    /* a block was not seen: the table is unknown from here */
bool hpack_is_known(const struct hpack *p); /* for tests */

#endif
