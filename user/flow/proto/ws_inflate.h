/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_WS_INFLATE_H
#define FLOW_PROTO_WS_INFLATE_H

/* One direction's permessage-deflate (RFC 7692 section 7.2.2). Private to the WebSocket parsers. */

#include <zlib.h>

#include "base/buf.h"
#include "base/types.h"

/* Limits are looked at where the output reaches a multiple of this, so that they do not depend on the cuts. */
#define WS_INFLATE_STEP 16384

enum ws_inflate_status { WS_INFLATE_OK, WS_INFLATE_CORRUPT, WS_INFLATE_LIMIT, WS_INFLATE_NO_MEMORY };

struct ws_inflate {
	z_stream z;
	bool open;
	bool ended;	  /* the bytes so far end with a final block */
	uint64_t in, out; /* of the message */
	uint8_t step[WS_INFLATE_STEP];
};

void ws_inflate_release(struct ws_inflate *i);
/* A message begins. */
void ws_inflate_begin(struct ws_inflate *i);
/* Before its first message: all that may be referred to is there, as zeros. The form can be looked at, not the text. */
enum ws_inflate_status ws_inflate_assume(struct ws_inflate *i);
/* Compressed bytes of the message; output goes to `out` until that is full: *over says that it was. */
enum ws_inflate_status ws_inflate_push(struct ws_inflate *i, const uint8_t *ptr, size_t len, struct buf *out,
				       bool *over);
/* The message ends; WS_INFLATE_CORRUPT too when its compressed bytes do not end where a block does. */
enum ws_inflate_status ws_inflate_end(struct ws_inflate *i, struct buf *out, bool *over);
/* The window is not known any more, or is not to be used (no_context_takeover): what follows refers to nothing. */
void ws_inflate_forget(struct ws_inflate *i);

#endif
