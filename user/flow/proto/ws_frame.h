/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_WS_FRAME_H
#define FLOW_PROTO_WS_FRAME_H

/* The head of a WebSocket frame (RFC 6455 section 5.2), byte by byte, and what tells one. */

#include "base/types.h"

#define WS_FRAME_HEAD_MAX    14
#define WS_FRAME_CONTROL_MAX 125 /* longest payload of a control frame */

enum ws_opcode { WS_CONTINUATION = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

/* Bits of the first byte, beside the opcode. */
#define WS_FIN	  0x80
#define WS_RSV1	  0x40 /* permessage-deflate: the message is compressed */
#define WS_RSV2_3 0x30

struct ws_frame_head {
	uint8_t bytes[WS_FRAME_HEAD_MAX];
	unsigned len, need; /* need: once two bytes are there */
};

void ws_frame_clear(struct ws_frame_head *h);
/* One more byte. True: the head is whole. After two the flags, the opcode and the mask bit can be looked at. */
bool ws_frame_push(struct ws_frame_head *h, uint8_t c);
bool ws_frame_is_control(const struct ws_frame_head *h);
bool ws_frame_is_masked(const struct ws_frame_head *h);
/* Of a whole head: bytes of its payload; is that written as short as it can be? */
uint64_t ws_frame_length(const struct ws_frame_head *h);
bool ws_frame_is_shortest(const struct ws_frame_head *h);
/* Payload from `offset` on of a masked frame. out and ptr may be the same. */
void ws_frame_unmask(const struct ws_frame_head *h, uint64_t offset, uint8_t *out, const uint8_t *ptr, size_t len);

/* Could a WebSocket whose handshake was missed begin like this, with a client's text frame? 1: yes; 0: no; -1: too
 * short to tell. The first WS_DETECT_BYTES, or the whole frame, tell: more bytes do not change the answer. */
#define WS_DETECT_BYTES 24
int ws_detect(const uint8_t *ptr, size_t len);

#endif
