/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_SOCKADDR_H
#define BASE_SOCKADDR_H

/* Addresses as text: "192.0.2.1:443", "[2001:db8::1]:443". */

#include "types.h"

#define SOCK_ADDR_TEXT_BYTES 64

/* "" where it is not known. Returns out. */
const char *sock_addr_text(char out[SOCK_ADDR_TEXT_BYTES], const struct sock_addr *a);

#endif
