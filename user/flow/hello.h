/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_HELLO_H
#define FLOW_HELLO_H

/*
 * The greetings of a TLS connection, each cut anywhere: the client's (ClientHello, RFC 8446 section 4.1.2) and the
 * server's (ServerHello, section 4.1.3).
 */

#include <stdint.h>

#include "base/sv.h"

#define WIRE_HOST_MAX 253 /* of a DNS name */

/* The host that the client wants to talk to (server_name, RFC 6066 section 3). Borrowed from `bytes`. Absent: none, not
 * a name, behind the cut or the first record; or the name may be that of a front (encrypted_client_hello, RFC 9849):
 * some clients send that extension, filled with anything, to hosts that know nothing of it, and the two look alike. */
struct sv hello_host(struct sv bytes);

/* How long the first record is that a client greets with, header and all. 0: no ClientHello, or cut before it says. */
uint32_t hello_record_bytes(struct sv bytes);

/* The session that a client would go on with, or an arbitrary text in its place (TLS 1.3). Borrowed, HELLO_SESSION_MAX
 * bytes at most. Absent: no ClientHello, or not whole. */
#define HELLO_SESSION_MAX 32
struct sv hello_session(struct sv bytes);

/*
 * Whether a server goes on with a session: TLS 1.3 by its choice of a key (pre_shared_key, RFC 8446 section 4.2.11),
 * before that by the client's session in its greeting (RFC 5246 section 7.4.1.3, with tickets RFC 5077 section 3.4).
 * `bytes`: its first record, or what follows the record's header, which many read by itself. 1 yes, 0 no, -1 not known:
 * no ServerHello, cut, or it asks to be greeted anew.
 */
int hello_resumed(struct sv bytes, struct sv client_session);

#endif
