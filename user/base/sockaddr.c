/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sockaddr.h"

#include <arpa/inet.h>
#include <stdio.h>

const char *sock_addr_text(char out[SOCK_ADDR_TEXT_BYTES], const struct sock_addr *a)
{
	char ip[INET6_ADDRSTRLEN];

	out[0] = 0;
	if ((a->family == AF_INET || a->family == AF_INET6) && inet_ntop(a->family, a->ip, ip, sizeof(ip)))
		snprintf(out, SOCK_ADDR_TEXT_BYTES, a->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, a->port);
	return out;
}
