/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_WIRE_HELLO_H
#define FLOW_WIRE_HELLO_H

/*
 * The greeting of a TLS client (ClientHello, RFC 8446 section 4.1.2), cut anywhere: the host that it wants to talk to
 * (server_name, RFC 6066 section 3). Private child of wire.c.
 */

#include "base/sv.h"

#define WIRE_HOST_MAX 253 /* of a DNS name */

/* Borrowed from `bytes`. Absent: none, not a name, or behind the cut. */
struct sv hello_host(struct sv bytes);

#endif
