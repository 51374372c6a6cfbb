/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DNS_MESSAGE_H
#define FLOW_DNS_MESSAGE_H

/* A message of DNS over UDP (RFC 1035 section 4, AAAA: RFC 3596). Private child of dns.c. */

#include "base/types.h"

#define DNS_NAME_MAX  255 /* RFC 1035 section 2.3.4: of a name on the wire, which is longer than its text */
#define DNS_ADDRS_MAX 32  /* of one answer; later ones are left out */

struct dns_message {
	uint16_t id, type; /* of what is asked for */
	bool response;
	bool truncated; /* it is to be asked for again, over TCP */
	bool settles;	/* nobody asks again: it has all there is, or there is no such name */
	/* What is asked for: lower case, without the last dot. Bytes that no host name has (but '_') are '?'. */
	char name[DNS_NAME_MAX + 1];
	struct sock_addr addrs[DNS_ADDRS_MAX]; /* port 0 */
	size_t addr_count;
};

/* `ptr` may be cut: what is whole counts. 0; -EBADMSG: it asks for no name, or for several. */
int dns_parse(struct dns_message *out, const uint8_t *ptr, size_t len);

#endif
