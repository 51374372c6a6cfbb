/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ws_probe.h"

#include <stdlib.h>

#include "ws.h"
#include "ws_inflate.h"

#define FRAME_MAX (16u << 20) /* of a payload; a longer one is more likely chance */
#define CHUNK	  512	      /* unmasked at once */

struct ws_probe {
	enum ws_probe_status status;
	struct ws_frame_head head;
	uint64_t left, offset; /* of the payload */
	bool payload;	       /* the head is complete */
	bool masked;	       /* told by the first frame, and so of all */
	bool began;	       /* a frame was seen */
	bool open;	       /* a message is under way */
	bool compressed;       /* ... it is */
	uint64_t evidence;     /* payload bytes of the messages so far, that had the right form */
	unsigned messages;     /* ... and the number of these */
	char first, last;      /* of the text under way */
	struct ws_inflate *inflate;
};

struct ws_probe *ws_probe_new(void)
{
	struct ws_probe *p = calloc(1, sizeof(*p));

	if (p)
		ws_frame_clear(&p->head);
	return p;
}

void ws_probe_free(struct ws_probe *p)
{
	if (!p)
		return;
	if (p->inflate)
		ws_inflate_release(p->inflate);
	free(p->inflate);
	free(p);
}

bool ws_probe_begins(uint8_t first)
{
	uint8_t opcode = first & 0x0f;

	if (first & (WS_RSV2_3))
		return false;
	if (opcode == WS_PING || opcode == WS_PONG)
		return (first & WS_FIN) && !(first & WS_RSV1);
	return opcode == WS_TEXT || (opcode == WS_BINARY && (first & WS_RSV1));
}

static enum ws_probe_status proven(const struct ws_probe *p)
{
	return p->masked ? WS_PROBE_CLIENT : WS_PROBE_SERVER;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static enum ws_probe_status of_inflate(enum ws_inflate_status status)
{
	return status == WS_INFLATE_OK		? WS_PROBE_OPEN
	       : status == WS_INFLATE_NO_MEMORY ? WS_PROBE_NO_MEMORY
						: WS_PROBE_DENIED;
}

static enum ws_probe_status begin_message(struct ws_probe *p)
{
	p->open = true;
	p->compressed = p->head.bytes[0] & WS_RSV1;
	p->first = p->last = 0;
	if (!p->compressed)
		return WS_PROBE_OPEN;
	if (p->inflate) {
		ws_inflate_begin(p->inflate);
		return WS_PROBE_OPEN;
	}
	p->inflate = calloc(1, sizeof(*p->inflate));
	if (!p->inflate)
		return WS_PROBE_NO_MEMORY;
	ws_inflate_begin(p->inflate);
	return of_inflate(ws_inflate_assume(p->inflate));
}

static enum ws_probe_status message_bytes(struct ws_probe *p, const uint8_t *ptr, size_t len)
{
	enum ws_probe_status status;
	bool over = true; /* the output is of no interest */

	if (p->compressed) {
		status = of_inflate(ws_inflate_push(p->inflate, ptr, len, NULL, &over));
		p->evidence += len;
		return status == WS_PROBE_OPEN && p->evidence >= WS_PROBE_ENOUGH ? proven(p) : status;
	}
	for (size_t i = 0; i < len; i++) {
		if (ptr[i] < 0x20 && ptr[i] != '\t' && ptr[i] != '\n' && ptr[i] != '\r')
			return WS_PROBE_DENIED;
	}
	if (!p->first)
		p->first = (char)ptr[0];
	p->last = (char)ptr[len - 1];
	p->evidence += len;
	return p->first == '{' ? WS_PROBE_OPEN : WS_PROBE_DENIED;
}

static enum ws_probe_status end_message(struct ws_probe *p)
{
	enum ws_probe_status status;
	bool over = true, enough;

	p->open = false;
	if (p->compressed)
		status = of_inflate(ws_inflate_end(p->inflate, NULL, &over));
	else
		status = p->last == '}' ? WS_PROBE_OPEN : WS_PROBE_DENIED;
	if (status != WS_PROBE_OPEN)
		return status;
	p->messages++;
	enough = p->evidence >= (p->compressed && p->messages < 2 ? WS_PROBE_SHORT : WS_PROBE_LEAST);
	return enough ? proven(p) : WS_PROBE_OPEN;
}

bool ws_probe_likely(const struct ws_probe *p, bool *client)
{
	*client = p->masked;
	return p->messages && p->evidence >= WS_PROBE_LEAST;
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

/* Its first two bytes. After a close frame nothing comes: that begins nothing. */
static bool head_valid(const struct ws_probe *p)
{
	uint8_t first = p->head.bytes[0], opcode = first & 0x0f;

	if (p->began && p->masked != ws_frame_is_masked(&p->head))
		return false;
	if (ws_frame_is_control(&p->head) && (p->head.bytes[1] & 0x7f) > WS_FRAME_CONTROL_MAX)
		return false;
	if (!p->open || ws_frame_is_control(&p->head))
		return ws_probe_begins(first);
	return opcode == WS_CONTINUATION && !(first & (WS_RSV1 | WS_RSV2_3));
}

static enum ws_probe_status frame_end(struct ws_probe *p)
{
	bool ends = !ws_frame_is_control(&p->head) && (p->head.bytes[0] & WS_FIN);

	p->payload = false;
	ws_frame_clear(&p->head);
	return ends ? end_message(p) : WS_PROBE_OPEN;
}

static enum ws_probe_status frame_begin(struct ws_probe *p)
{
	enum ws_probe_status status = WS_PROBE_OPEN;

	p->left = ws_frame_length(&p->head);
	p->offset = 0;
	p->payload = true;
	if (p->left > FRAME_MAX || !ws_frame_is_shortest(&p->head))
		return WS_PROBE_DENIED;
	if (!ws_frame_is_control(&p->head) && !p->open)
		status = begin_message(p);
	return status != WS_PROBE_OPEN || p->left ? status : frame_end(p);
}

static enum ws_probe_status push_head(struct ws_probe *p, uint8_t c)
{
	bool whole = ws_frame_push(&p->head, c);

	if (p->head.len == 1 && !p->open && !ws_probe_begins(c))
		return WS_PROBE_DENIED;
	if (p->head.len == 2 && !head_valid(p))
		return WS_PROBE_DENIED;
	if (!whole)
		return WS_PROBE_OPEN;
	p->masked = ws_frame_is_masked(&p->head);
	p->began = true;
	return frame_begin(p);
}

static enum ws_probe_status push_payload(struct ws_probe *p, const uint8_t *ptr, size_t len)
{
	enum ws_probe_status status = WS_PROBE_OPEN;
	uint8_t chunk[CHUNK];

	if (!ws_frame_is_control(&p->head)) {
		if (p->masked) {
			ws_frame_unmask(&p->head, p->offset, chunk, ptr, len);
			ptr = chunk;
		}
		status = message_bytes(p, ptr, len);
	}
	p->offset += len;
	p->left -= len;
	return status != WS_PROBE_OPEN || p->left ? status : frame_end(p);
}

enum ws_probe_status ws_probe_push(struct ws_probe *p, const uint8_t *ptr, size_t len)
{
	while (len && p->status == WS_PROBE_OPEN) {
		size_t n = 1;

		if (p->payload) {
			n = len < p->left ? len : (size_t)p->left;
			n = n < CHUNK ? n : CHUNK;
			p->status = push_payload(p, ptr, n);
		} else {
			p->status = push_head(p, *ptr);
		}
		ptr += n;
		len -= n;
	}
	return p->status;
}
