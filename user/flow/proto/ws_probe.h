/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_WS_PROBE_H
#define FLOW_PROTO_WS_PROBE_H

/*
 * Is one direction of a connection that was met in the middle a WebSocket's (RFC 6455), its messages perhaps compressed
 * (RFC 7692)? It is where frames follow each other as that allows, and a message proves it:
 *
 *   compressed    its payload is deflate to its last bit. That can be told without the window that it refers to: what
 *                 is not known is taken as zeros, and only the form is looked at. WS_PROBE_ENOUGH bytes of form will do
 *   text          a JSON object, framed to its end
 *
 * A short compressed message alone may be chance (one of two thousand random ones is well-formed): it takes two, or one
 * in each direction. Private child of proto.
 */

#include "base/types.h"

#define WS_PROBE_ENOUGH 1024 /* compressed bytes that are deflate prove it, before their message's end */
#define WS_PROBE_SHORT	256  /* fewer in all are proof as parts of two messages only */
#define WS_PROBE_LEAST	16   /* ... and even fewer are none */

enum ws_probe_status { WS_PROBE_OPEN, WS_PROBE_DENIED, WS_PROBE_CLIENT, WS_PROBE_SERVER, WS_PROBE_NO_MEMORY };

struct ws_probe;

struct ws_probe *ws_probe_new(void); /* NULL: ENOMEM */
void ws_probe_free(struct ws_probe *p);
/* More bytes of that direction, from its first one on. A verdict is final: CLIENT: masked frames. */
enum ws_probe_status ws_probe_push(struct ws_probe *p, const uint8_t *ptr, size_t len);
/* While it is open: a message had the form. *client: it was masked. */
bool ws_probe_likely(const struct ws_probe *p, bool *client);
/* Could its first byte begin a frame that proves something? */
bool ws_probe_begins(uint8_t first);

#endif
