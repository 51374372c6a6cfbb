/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ws.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "ws_inflate.h"

#define CHUNK_BYTES 4096  /* unmasked at once */
#define KEEP_BYTES  65536 /* memory kept between messages */

enum side_state { SIDE_HEAD, SIDE_PAYLOAD, SIDE_SEARCH, SIDE_CLOSED, SIDE_GIVEN_UP };

/* What is known of the message under way. */
enum content {
	CONTENT_GOOD,
	CONTENT_PREFIX,	 /* what is in `data` is right, the rest is missing or too much */
	CONTENT_UNKNOWN, /* compressed, and not inflated */
};

/* One direction. */
struct side {
	enum dir dir;
	bool client; /* its frames are masked */
	bool no_context_takeover;
	enum side_state state;
	/* frame */
	struct ws_frame_head head;
	struct stamp head_first;
	uint64_t left, offset; /* of its payload */
	uint8_t control[WS_FRAME_CONTROL_MAX];
	unsigned control_len;
	bool control_hit; /* a gap is in it */
	/* message */
	bool open;
	struct ws_message message;
	enum content content;
	bool over;	 /* `data` is full */
	bool broken;	 /* a gap is in it: what follows cannot be inflated */
	bool unproven;	 /* compressed, and it may refer to what was not seen */
	struct buf data; /* decoded so far */
	struct ws_inflate *inflate;
	/* direction */
	bool window_lost; /* messages may refer to what was not seen */
	bool undecoded;	  /* told */
	/* Step is. In SIDE_SEARCH bytes are passed over to where a frame may begin, else what is read is a trial. */
	bool lost;
	bool may_begin;	 /* the next byte is behind a gap */
	struct stamp at; /* of the latest bytes */
	struct ws_counts counts;
};

struct ws {
	struct ws_sink sink;
	struct ws_params params;
	struct side sides[2];
};

/* --- handshake --------------------------------------------------------------------------------------------------- */

static int window_bits(struct sv value)
{
	int bits = 0;

	if (value.len >= 2 && value.ptr[0] == '"')
		value.ptr++, value.len -= 2;
	for (size_t i = 0; i < value.len && i < 3; i++)
		bits = value.ptr[i] >= '0' && value.ptr[i] <= '9' ? bits * 10 + value.ptr[i] - '0' : 100;
	return bits >= 8 && bits <= 15 ? bits : 0;
}

static void add_deflate(struct ws_params *p, struct sv rest)
{
	p->deflate = true;
	while (rest.ptr) {
		struct sv value, name = sv_trim(sv_cut(sv_cut(rest, ';', &rest), '=', &value));

		if (sv_ieq(name, SV("client_no_context_takeover")))
			p->client_no_context_takeover = true;
		else if (sv_ieq(name, SV("server_no_context_takeover")))
			p->server_no_context_takeover = true;
		else if (sv_ieq(name, SV("client_max_window_bits")))
			p->client_max_window_bits = window_bits(sv_trim(value));
		else if (sv_ieq(name, SV("server_max_window_bits")))
			p->server_max_window_bits = window_bits(sv_trim(value));
	}
}

void ws_params_add(struct ws_params *p, struct sv extensions)
{
	struct sv rest = extensions;

	p->known = true;
	while (rest.ptr) {
		struct sv options, name = sv_trim(sv_cut(sv_cut(rest, ',', &rest), ';', &options));

		if (sv_ieq(name, SV("permessage-deflate")))
			add_deflate(p, options);
		else if (name.len)
			p->other = true;
	}
}

/* --- life -------------------------------------------------------------------------------------------------------- */

struct ws *ws_new(enum dir client_dir, const struct ws_params *params, const struct ws_sink *sink)
{
	struct ws *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->sink = *sink;
	if (params)
		w->params = *params;
	for (int i = 0; i < 2; i++) {
		struct side *s = &w->sides[i];

		s->dir = (enum dir)i;
		s->client = s->dir == client_dir;
		s->no_context_takeover =
			s->client ? w->params.client_no_context_takeover : w->params.server_no_context_takeover;
		s->window_lost = !w->params.known || w->params.other;
		ws_frame_clear(&s->head);
		buf_init(&s->data, WS_MESSAGE_MAX);
	}
	return w;
}

void ws_free(struct ws *w)
{
	if (!w)
		return;
	for (int i = 0; i < 2; i++) {
		struct side *s = &w->sides[i];

		buf_release(&s->data);
		if (s->inflate)
			ws_inflate_release(s->inflate);
		free(s->inflate);
	}
	free(w);
}

bool ws_given_up(const struct ws *w, enum dir dir)
{
	return w->sides[dir].state == SIDE_GIVEN_UP || w->sides[dir].lost;
}

const struct ws_counts *ws_counts(const struct ws *w, enum dir dir)
{
	return &w->sides[dir].counts;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void undecoded(struct ws *w, struct side *s, const char *reason, const struct stamp *at)
{
	if (!s->undecoded)
		w->sink.on_undecoded(w->sink.ctx, s->dir, reason, at);
	s->undecoded = true;
}

/* What is kept of a message that cannot be told as a whole. */
static void cut_data(struct side *s)
{
	s->data.len = s->data.len < WS_PREFIX_MAX ? s->data.len : WS_PREFIX_MAX;
}

static void only_prefix(struct side *s)
{
	if (s->content == CONTENT_GOOD)
		s->content = CONTENT_PREFIX;
	cut_data(s);
}

static void content_unknown(struct side *s)
{
	s->content = CONTENT_UNKNOWN;
	buf_clear(&s->data);
}

static void forget_window(struct side *s)
{
	if (s->inflate)
		ws_inflate_forget(s->inflate);
	s->window_lost |= !s->no_context_takeover;
}

/* What was read out of step are no frames. */
static void deny(struct side *s)
{
	s->state = SIDE_SEARCH;
	s->open = false;
	ws_frame_clear(&s->head);
	forget_window(s);
	buf_release(&s->data);
}

/* A message that was read out of step, to its end. Is it one? */
static bool is_found(struct ws *w, struct side *s)
{
	s->message.data = (struct sv){s->data.ptr, s->data.len};
	s->message.complete = true;
	if (s->content != CONTENT_GOOD || !s->data.len || !w->sink.on_found(w->sink.ctx, s->dir, &s->message))
		return false;
	s->lost = s->undecoded = false;
	s->counts.frames++;
	return true;
}

static void close_message(struct ws *w, struct side *s, bool complete)
{
	bool whole = complete && s->content == CONTENT_GOOD;
	struct ws_message *m = &s->message;

	if (!whole && s->unproven)
		content_unknown(s);
	if (!whole)
		only_prefix(s);
	m->complete = complete;
	m->data = (struct sv){s->data.len ? s->data.ptr : "", s->data.len};
	s->open = false;
	s->counts.messages += whole;
	s->counts.opaque += !whole;
	if (whole)
		w->sink.on_message(w->sink.ctx, s->dir, m);
	else
		w->sink.on_opaque(w->sink.ctx, s->dir, m);
	buf_clear(&s->data);
	if (s->data.size > KEEP_BYTES)
		buf_release(&s->data);
}

/* Return: 0 or -ENOMEM. */
static int open_message(struct side *s, bool compressed)
{
	s->open = true;
	s->over = s->broken = false;
	s->unproven = compressed && s->window_lost;
	s->content = CONTENT_GOOD;
	s->message = (struct ws_message){
		.opcode = (enum ws_opcode)(s->head.bytes[0] & 0x0f),
		.compressed = compressed,
		.first = s->head_first,
		.last = s->head_first,
	};
	if (!compressed)
		return 0;
	if (!s->inflate)
		s->inflate = calloc(1, sizeof(*s->inflate));
	if (!s->inflate)
		return -ENOMEM;
	if (s->no_context_takeover)
		ws_inflate_forget(s->inflate);
	ws_inflate_begin(s->inflate);
	return 0;
}

/* The compressed message did not come out. The window that later ones refer to is gone with it. */
static int inflate_failed(struct ws *w, struct side *s, enum ws_inflate_status status, const struct stamp *at)
{
	const char *reason = status == WS_INFLATE_LIMIT ? "permessage-deflate over the limit"
			     : s->window_lost		? "permessage-deflate"
							: "corrupt permessage-deflate";

	if (status == WS_INFLATE_NO_MEMORY)
		return -ENOMEM;
	content_unknown(s);
	forget_window(s);
	undecoded(w, s, reason, at);
	return 0;
}

/* For the sake of the window inflating goes on when the message itself is too long. */
static bool inflates(const struct side *s)
{
	return s->message.compressed && s->content != CONTENT_UNKNOWN && !s->broken;
}

/* Payload of the message, unmasked. */
static int message_bytes(struct ws *w, struct side *s, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	enum ws_inflate_status status = WS_INFLATE_OK;
	int err = 0;

	if (inflates(s))
		status = ws_inflate_push(s->inflate, ptr, len, &s->data, &s->over);
	else if (!s->message.compressed && s->content == CONTENT_GOOD)
		err = buf_push(&s->data, ptr, len);
	if (err == -ENOMEM)
		return err;
	if (err || s->over)
		only_prefix(s);
	return status == WS_INFLATE_OK ? 0 : inflate_failed(w, s, status, at);
}

static bool is_utf8(const uint8_t *ptr, size_t len)
{
	while (len) {
		uint32_t cp;
		size_t n = utf8_next(ptr, len, &cp);

		if (!n)
			return false;
		ptr += n, len -= n;
	}
	return true;
}

/* The last frame of the message is complete. */
static int end_message(struct ws *w, struct side *s, const struct stamp *at)
{
	if (inflates(s)) {
		enum ws_inflate_status status = ws_inflate_end(s->inflate, &s->data, &s->over);

		/* Chance is unlikely to end where a block ends, and more so to be text. */
		if (status == WS_INFLATE_OK && s->unproven && s->message.opcode == WS_TEXT && !s->over &&
		    !is_utf8((const uint8_t *)s->data.ptr, s->data.len))
			status = WS_INFLATE_CORRUPT;
		if (s->over)
			only_prefix(s);
		if (status != WS_INFLATE_OK && inflate_failed(w, s, status, at))
			return -ENOMEM;
	}
	if (s->lost && !is_found(w, s))
		deny(s);
	else
		close_message(w, s, true);
	return 0;
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

static void give_up(struct ws *w, struct side *s, const char *reason, const struct stamp *at)
{
	if (s->lost) {
		deny(s);
		return;
	}
	if (s->open)
		close_message(w, s, false);
	s->state = SIDE_GIVEN_UP;
	buf_release(&s->data);
	undecoded(w, s, reason, at);
}

static void lose_step(struct ws *w, struct side *s, const struct stamp *at)
{
	give_up(w, s, "WebSocket: lost step", at);
	if (!w->sink.on_found)
		return;
	deny(s);
	s->lost = s->may_begin = true;
}

/* The first two bytes, against section 5.2. */
static bool head_valid(const struct ws *w, const struct side *s)
{
	uint8_t first = s->head.bytes[0], opcode = first & 0x0f, length = s->head.bytes[1] & 0x7f;
	bool deflate = (w->params.deflate || !w->params.known) && (opcode == WS_TEXT || opcode == WS_BINARY);

	if (s->client != ws_frame_is_masked(&s->head))
		return false;
	if ((first & (deflate ? WS_RSV2_3 : WS_RSV1 | WS_RSV2_3)) && !w->params.other)
		return false;
	if (ws_frame_is_control(&s->head))
		return opcode <= WS_PONG && (first & WS_FIN) && length <= WS_FRAME_CONTROL_MAX;
	return opcode == WS_CONTINUATION ? s->open : opcode <= WS_BINARY && !s->open;
}

static int close_code(const struct side *s)
{
	return s->control_hit || s->control_len < 2 ? WS_CLOSE_UNKNOWN : s->control[0] << 8 | s->control[1];
}

static int frame_end(struct ws *w, struct side *s, const struct stamp *at)
{
	s->state = SIDE_HEAD;
	ws_frame_clear(&s->head);
	s->counts.frames += !s->lost;
	if (!ws_frame_is_control(&s->head)) {
		s->message.last = *at;
		return s->head.bytes[0] & WS_FIN ? end_message(w, s, at) : 0;
	}
	s->counts.control += !s->lost;
	if ((s->head.bytes[0] & 0x0f) != WS_CLOSE)
		return 0;
	if (s->lost) { /* nothing follows that could prove it */
		deny(s);
		return 0;
	}
	if (s->open)
		close_message(w, s, false);
	s->state = SIDE_CLOSED;
	w->sink.on_close(w->sink.ctx, s->dir, close_code(s), at);
	return 0;
}

/* Reserved bits of an extension that is not known here. */
static void extended(struct ws *w, struct side *s, const struct stamp *at)
{
	if (s->message.compressed)
		forget_window(s);
	content_unknown(s);
	undecoded(w, s, "WebSocket extension", at);
}

/* The whole head is there. */
static int frame_begin(struct ws *w, struct side *s, const struct stamp *at)
{
	bool begins = (s->head.bytes[0] & 0x0f) != WS_CONTINUATION;
	int err;

	s->left = ws_frame_length(&s->head);
	s->offset = 0;
	s->control_len = 0;
	s->control_hit = false;
	if (s->left >> 63 || (s->lost && (s->left > WS_MESSAGE_MAX || !ws_frame_is_shortest(&s->head)))) {
		give_up(w, s, "no valid WebSocket frame", at);
		return 0;
	}
	s->state = SIDE_PAYLOAD;
	if (!ws_frame_is_control(&s->head)) {
		err = begins ? open_message(s, s->head.bytes[0] & WS_RSV1) : 0;
		if (err)
			return err;
		if (s->head.bytes[0] & (begins ? WS_RSV2_3 : WS_RSV1 | WS_RSV2_3))
			extended(w, s, at);
		s->message.last = *at;
	}
	return s->left ? 0 : frame_end(w, s, at);
}

static int push_head(struct ws *w, struct side *s, uint8_t c, const struct stamp *at)
{
	bool whole;

	if (!s->head.len)
		s->head_first = *at;
	whole = ws_frame_push(&s->head, c);
	if (s->head.len == 2 && !head_valid(w, s)) {
		give_up(w, s, "no valid WebSocket frame", at);
		return 0;
	}
	return whole ? frame_begin(w, s, at) : 0;
}

/* Out of step: it is no message, as far as it came, that anybody could be sure of. */
static bool is_hopeless(const struct side *s)
{
	return s->lost && (s->content != CONTENT_GOOD || (s->data.len && s->data.ptr[0] != '{'));
}

static int payload_chunk(struct ws *w, struct side *s, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	int err;

	if (!ws_frame_is_control(&s->head)) {
		s->message.carried += len;
		s->message.last = *at;
		err = message_bytes(w, s, ptr, len, at);
		if (is_hopeless(s))
			deny(s);
		return err;
	}
	memcpy(s->control + s->control_len, ptr, len);
	s->control_len += (unsigned)len;
	return 0;
}

static int push_payload(struct ws *w, struct side *s, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	uint8_t chunk[CHUNK_BYTES];
	int err;

	if (s->client) {
		ws_frame_unmask(&s->head, s->offset, chunk, ptr, len);
		ptr = chunk;
	}
	err = payload_chunk(w, s, ptr, len, at);
	s->offset += len;
	s->left -= len;
	if (!err && !s->left && s->state == SIDE_PAYLOAD)
		err = frame_end(w, s, at);
	return err;
}

static bool is_read(const struct side *s)
{
	return s->state == SIDE_HEAD || s->state == SIDE_PAYLOAD;
}

/* Programs call with whole frames, above all with one message each. */
static void try_begin(struct side *s, const struct stamp *at)
{
	bool begins = s->may_begin || memcmp(&s->at, at, sizeof(*at)) != 0;

	s->at = *at;
	s->may_begin = false;
	if (s->state == SIDE_SEARCH && begins)
		s->state = SIDE_HEAD;
}

int ws_push(struct ws *w, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct side *s = &w->sides[dir];

	if (!len)
		return 0;
	s->counts.bytes += len;
	try_begin(s, at);
	while (len && is_read(s)) {
		size_t n = 1;
		int err;

		if (s->state == SIDE_HEAD) {
			err = push_head(w, s, *ptr, at);
		} else {
			n = len < s->left ? len : (size_t)s->left;
			n = n < CHUNK_BYTES ? n : CHUNK_BYTES;
			err = push_payload(w, s, ptr, n, at);
		}
		if (err)
			return err;
		ptr += n;
		len -= n;
	}
	return 0;
}

/* --- gaps and the end -------------------------------------------------------------------------------------------- */

bool ws_gap_loses_step(const struct ws *w, enum dir dir, uint64_t len)
{
	const struct side *s = &w->sides[dir];

	return s->state != SIDE_CLOSED && (s->lost || !(s->state == SIDE_PAYLOAD && len <= s->left));
}

void ws_gap(struct ws *w, enum dir dir, uint64_t len, const struct stamp *at)
{
	struct side *s = &w->sides[dir];

	if (!len || s->state == SIDE_CLOSED || s->state == SIDE_GIVEN_UP)
		return;
	s->counts.gaps++;
	s->counts.hidden += len == UINT64_MAX ? 0 : len;
	if (ws_gap_loses_step(w, dir, len)) {
		lose_step(w, s, at);
		return;
	}
	if (ws_frame_is_control(&s->head)) {
		s->control_hit = true;
	} else {
		s->message.carried += len;
		s->message.last = *at;
		s->broken = true;
		only_prefix(s);
		if (s->message.compressed)
			forget_window(s);
	}
	s->offset += len;
	s->left -= len;
	if (!s->left)
		frame_end(w, s, at); /* nothing is inflated any more: no memory is asked for */
}

void ws_finish(struct ws *w)
{
	for (int i = 0; i < 2; i++) {
		struct side *s = &w->sides[i];

		if (!s->open || s->lost)
			continue;
		s->message.ended = s->content == CONTENT_GOOD && !s->broken && !s->unproven;
		close_message(w, s, false);
	}
}
