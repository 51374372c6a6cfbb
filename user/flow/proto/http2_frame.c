/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2_frame.h"
#include "http2.h"

#include "base/err.h"

#define SEARCH_LENGTH_MAX  16384
#define SEARCH_STREAM_MAX  (1u << 24)
#define SETTLE_CANDIDATES  16 /* calls looked at behind a chain that is not complete */
#define SETTINGS_BYTES_MAX 384
#define ERROR_CODE_MAX	   255

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
_Static_assert(sizeof(preface) - 1 == FRAMES_PREFACE_BYTES, "the preface");

/* --- headers ----------------------------------------------------------------------------------------------------- */

static void read_header(const uint8_t h[FRAME_HEADER_BYTES], struct frame *f)
{
	f->length = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2];
	f->type = h[3];
	f->flags = h[4];
	f->stream = (uint32_t)(h[5] & 0x7f) << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8];
}

/* Bytes before the content. */
static uint32_t front_bytes(const struct frame *f)
{
	bool may_pad = f->type == FRAME_DATA || f->type == FRAME_HEADERS || f->type == FRAME_PUSH_PROMISE;
	uint32_t n = may_pad && f->flags & FRAME_PADDED ? 1 : 0;

	if (f->type == FRAME_HEADERS && f->flags & FRAME_PRIORITISED)
		n += 5;
	if (f->type == FRAME_PUSH_PROMISE)
		n += 4;
	return n;
}

/* Can it be, behind a frame that left the header block of stream `block` open? */
static bool is_valid(const struct frame *f, uint32_t block)
{
	if (block || f->type == FRAME_CONTINUATION)
		return f->type == FRAME_CONTINUATION && f->stream == block && block;
	switch (f->type) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
		return f->stream && f->length >= front_bytes(f);
	case FRAME_PRIORITY:
		return f->stream;
	case FRAME_RST_STREAM:
		return f->stream && f->length == 4;
	case FRAME_SETTINGS:
		return !f->stream && f->length % 6 == 0 && !(f->flags & FRAME_END_STREAM && f->length);
	case FRAME_PING:
		return !f->stream && f->length == 8;
	case FRAME_GOAWAY:
		return !f->stream && f->length >= 8;
	case FRAME_WINDOW_UPDATE:
		return f->length == 4;
	default:
		return true; /* extensions are ignored */
	}
}

/* Is it what one would expect to see? For frames that are searched for. */
static bool is_plausible(const uint8_t h[FRAME_HEADER_BYTES], const struct frame *f, uint32_t block)
{
	static const uint8_t flags[] = {
		[FRAME_DATA] = FRAME_END_STREAM | FRAME_PADDED,
		[FRAME_HEADERS] = FRAME_END_STREAM | FRAME_END_HEADERS | FRAME_PADDED | FRAME_PRIORITISED,
		[FRAME_SETTINGS] = FRAME_END_STREAM,
		[FRAME_PUSH_PROMISE] = FRAME_END_HEADERS | FRAME_PADDED,
		[FRAME_PING] = FRAME_END_STREAM,
		[FRAME_CONTINUATION] = FRAME_END_HEADERS,
	};

	if (f->type >= ARRAY_SIZE(flags) || f->flags & ~flags[f->type] || h[5] & 0x80)
		return false;
	if (f->length > SEARCH_LENGTH_MAX || f->stream >= SEARCH_STREAM_MAX || !is_valid(f, block))
		return false;
	if (f->stream && !(f->stream & 1)) /* pushed ones: hardly ever seen */
		return false;
	switch (f->type) {
	case FRAME_DATA:
		return f->length > front_bytes(f) || f->flags & FRAME_END_STREAM;
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
		return f->length > front_bytes(f);
	case FRAME_CONTINUATION:
		return f->length;
	case FRAME_SETTINGS:
		return f->length <= SETTINGS_BYTES_MAX;
	case FRAME_PRIORITY:
		return f->length == 5;
	default:
		return true;
	}
}

static uint32_t read_number(const uint8_t *ptr)
{
	return (uint32_t)ptr[0] << 24 | (uint32_t)ptr[1] << 16 | (uint32_t)ptr[2] << 8 | ptr[3];
}

/* How much of a frame's payload is looked at. Small frames are mostly zeros, and so is what lies across two of them. */
static uint32_t telling_bytes(const struct frame *f)
{
	switch (f->type) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
		return f->flags & FRAME_PADDED ? 1 : 0;
	case FRAME_PRIORITY:
	case FRAME_RST_STREAM:
	case FRAME_WINDOW_UPDATE:
		return 4;
	case FRAME_SETTINGS:
		return f->length;
	case FRAME_GOAWAY:
		return 8;
	default:
		return 0;
	}
}

static bool is_telling(const struct frame *f, const uint8_t *ptr)
{
	switch (f->type) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
		return !(f->flags & FRAME_PADDED) || ptr[0] <= f->length - front_bytes(f);
	case FRAME_PRIORITY:
		return (read_number(ptr) & 0x7fffffff) < SEARCH_STREAM_MAX;
	case FRAME_RST_STREAM:
		return read_number(ptr) <= ERROR_CODE_MAX;
	case FRAME_WINDOW_UPDATE:
		return read_number(ptr) - 1 < 0x7fffffff;
	case FRAME_SETTINGS:
		for (uint32_t i = 0; i < f->length; i += 6)
			if (ptr[i] || !ptr[i + 1])
				return false;
		return true;
	case FRAME_GOAWAY:
		return ptr[0] < 0x80 && read_number(ptr + 4) <= ERROR_CODE_MAX;
	default:
		return true;
	}
}

static uint32_t block_after(const struct frame *f, uint32_t block)
{
	if (f->type == FRAME_HEADERS || f->type == FRAME_PUSH_PROMISE || f->type == FRAME_CONTINUATION)
		return f->flags & FRAME_END_HEADERS ? 0 : f->stream;
	return block;
}

/* --- in step ----------------------------------------------------------------------------------------------------- */

static void search(struct frames *f)
{
	f->state = FRAMES_SEARCH;
	f->chain = (struct chain){0, 0, 0};
	f->block = 0;
	f->matched = 0;
}

static void lose(struct frames *f, enum frames_loss loss, enum http_gap why, const struct stamp *at)
{
	search(f);
	f->sink->on_lost(f->sink->ctx, loss, why, at);
}

/* What follows is over: on to the next part of the frame that is there. */
static void advance(struct frames *f, const struct stamp *at)
{
	if (f->state == FRAMES_FRONT && !f->left) {
		f->state = FRAMES_CONTENT;
		f->left = f->content;
	}
	if (f->state == FRAMES_CONTENT && !f->left) {
		f->state = FRAMES_PADDING;
		f->left = f->padding;
	}
	if (f->state != FRAMES_PADDING || f->left)
		return;
	f->state = FRAMES_HEADER;
	f->matched = 0;
	f->sink->on_end(f->sink->ctx, at);
}

/* The header at hand is complete, or asked about again. */
static void begin(struct frames *f)
{
	uint32_t front = front_bytes(&f->frame);

	f->state = FRAMES_FRONT;
	f->left = front;
	f->content = f->frame.length - front;
	f->padding = 0;
	if (!f->sink->on_frame(f->sink->ctx, &f->frame)) {
		f->state = FRAMES_WAIT;
		return;
	}
	if (f->state != FRAMES_FRONT)
		return;
	f->block = block_after(&f->frame, f->block);
	advance(f, &f->header_end);
}

static size_t parse_header(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t n = FRAME_HEADER_BYTES - f->matched;

	n = n < len ? n : len;
	if (!f->matched)
		f->frame.first = *at;
	memcpy(f->header + f->matched, ptr, n);
	f->matched += (unsigned)n;
	if (f->matched < FRAME_HEADER_BYTES)
		return n;
	read_header(f->header, &f->frame);
	f->header_end = *at;
	if (is_valid(&f->frame, f->block))
		begin(f);
	else
		lose(f, FRAMES_LOSS_PARSE, HTTP_GAP_LOST, at);
	return n;
}

/* Only the pad length, which comes first, is of interest. */
static size_t parse_front(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t n = f->left < len ? f->left : len;

	if (f->left == front_bytes(&f->frame) && f->frame.flags & FRAME_PADDED) {
		f->padding = ptr[0];
		if (f->padding > f->content) {
			lose(f, FRAMES_LOSS_PARSE, HTTP_GAP_LOST, at);
			return 1;
		}
		f->content -= f->padding;
	}
	f->left -= (uint32_t)n;
	advance(f, at);
	return n;
}

static size_t parse_payload(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t n = f->left < len ? f->left : len;

	f->left -= (uint32_t)n;
	if (f->state == FRAMES_CONTENT)
		f->sink->on_content(f->sink->ctx, ptr, n, at);
	if (f->state == FRAMES_CONTENT || f->state == FRAMES_PADDING)
		advance(f, at);
	return n;
}

/* The preface and what looks like its beginning is text: no frame begins in it. */
static size_t parse_preface(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t n = 0;

	while (n < len && f->matched < FRAMES_PREFACE_BYTES && ptr[n] == (uint8_t)preface[f->matched]) {
		f->matched++;
		n++;
	}
	if (f->matched == FRAMES_PREFACE_BYTES) {
		f->state = FRAMES_HEADER;
		f->matched = 0;
		f->sink->on_preface(f->sink->ctx);
	} else if (n < len && f->start == FRAMES_START_PREFACE) {
		lose(f, FRAMES_LOSS_PARSE, HTTP_GAP_LOST, at);
	} else if (n < len) {
		search(f);
	}
	return n;
}

/* Bytes taken. */
static size_t parse(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	switch (f->state) {
	case FRAMES_PREFACE:
		return parse_preface(f, ptr, len, at);
	case FRAMES_HEADER:
		return parse_header(f, ptr, len, at);
	case FRAMES_FRONT:
		return parse_front(f, ptr, len, at);
	case FRAMES_CONTENT:
	case FRAMES_PADDING:
		return parse_payload(f, ptr, len, at);
	default:
		return len; /* stopped */
	}
}

/* A gap inside the payload of the frame at hand. */
static void gap_inside(struct frames *f, uint32_t len, enum http_gap why, const struct stamp *at)
{
	uint32_t n;

	if (f->state == FRAMES_FRONT) { /* perhaps with the pad length: the rest cannot be told apart */
		f->padding += f->left + f->content - len;
		f->left = f->content = 0;
		f->sink->on_gap(f->sink->ctx, UINT64_MAX, why, at);
		advance(f, at);
		return;
	}
	n = f->left < len ? f->left : len;
	if (f->state == FRAMES_CONTENT) {
		f->left -= n;
		len -= n;
		f->sink->on_gap(f->sink->ctx, n, why, at);
		advance(f, at);
	}
	if (len && f->state == FRAMES_PADDING) {
		f->left -= len;
		advance(f, at);
	}
}

static uint64_t payload_left(const struct frames *f)
{
	switch (f->state) {
	case FRAMES_FRONT:
		return (uint64_t)f->left + f->content + f->padding;
	case FRAMES_CONTENT:
		return (uint64_t)f->left + f->padding;
	case FRAMES_PADDING:
		return f->left;
	default:
		return 0;
	}
}

static void gap_now(struct frames *f, uint64_t len, enum http_gap why, const struct stamp *at)
{
	if (f->state == FRAMES_SEARCH || f->state == FRAMES_STOP)
		return;
	if (f->state == FRAMES_PREFACE && f->start == FRAMES_START_ANYWHERE)
		search(f);
	else if (len <= payload_left(f))
		gap_inside(f, (uint32_t)len, why, at);
	else
		lose(f, FRAMES_LOSS_GAP, why, at);
}

/* --- out of step ------------------------------------------------------------------------------------------------- */

enum verdict { CHAIN_NO, CHAIN_MORE, CHAIN_YES };

/* Goes on with the chain that began at offset `from`. `settled`: a call ends behind the last byte. */
static enum verdict chain_walk(const struct queue *q, struct chain *c, size_t from, size_t plain, bool settled)
{
	bool start = queue_starts_at(q, from);
	unsigned enough = start ? 2 : 3;

	for (;;) {
		const uint8_t *h;
		bool ends = c->next > from && ((settled && c->next == plain) || queue_starts_at(q, c->next));
		struct frame frame;

		if (ends && !c->block && c->frames + 1 >= enough)
			return CHAIN_YES;
		if (c->next > plain || plain - c->next < FRAME_HEADER_BYTES)
			return CHAIN_MORE;
		h = queue_bytes(q) + c->next;
		read_header(h, &frame);
		if (!is_plausible(h, &frame, c->block))
			return CHAIN_NO;
		if (plain - c->next < FRAME_HEADER_BYTES + telling_bytes(&frame))
			return CHAIN_MORE;
		if (!is_telling(&frame, h + FRAME_HEADER_BYTES))
			return CHAIN_NO;
		c->block = block_after(&frame, c->block);
		c->next += FRAME_HEADER_BYTES + frame.length;
		if (++c->frames == enough)
			return CHAIN_YES;
	}
}

static void drop_candidates(struct frames *f, size_t n)
{
	queue_drop(&f->queue, n);
	f->chain = (struct chain){0, 0, 0};
}

static void found(struct frames *f)
{
	f->state = FRAMES_HEADER;
	f->matched = 0;
	f->sink->on_found(f->sink->ctx);
}

/* A chain that begins with a later call, and ends with the last byte. */
static bool settle_later(struct frames *f, size_t plain)
{
	struct queue *q = &f->queue;
	size_t at = 0;
	unsigned tried = 0;

	for (size_t i = q->run_used; i < q->run_count && !q->runs[i].gap && tried < SETTLE_CANDIDATES; i++) {
		struct chain c = {at, 0, 0};

		if (at && q->runs[i].start) {
			tried++;
			if (chain_walk(q, &c, at, plain, true) == CHAIN_YES) {
				drop_candidates(f, at);
				return true;
			}
		}
		at += q->runs[i].len;
	}
	return false;
}

/* True: something changed, go on. */
static bool search_step(struct frames *f, bool settled)
{
	struct queue *q = &f->queue;
	size_t plain = queue_plain(q);
	const uint8_t *zero;

	settled = settled || q->gaps;
	if (!plain) {
		if (queue_is_empty(q))
			return false;
		queue_drop_gap(q);
		return true;
	}
	/* No length that is looked for has a first byte that is not 0. */
	zero = memchr(queue_bytes(q), 0, plain);
	if (zero != queue_bytes(q)) {
		drop_candidates(f, zero ? (size_t)(zero - queue_bytes(q)) : plain);
		return true;
	}
	switch (chain_walk(q, &f->chain, 0, plain, settled)) {
	case CHAIN_NO:
		drop_candidates(f, 1);
		return true;
	case CHAIN_YES:
		found(f);
		return true;
	default:
		break;
	}
	if (settled && settle_later(f, plain)) {
		found(f);
		return true;
	}
	if (!q->gaps)
		return false;
	drop_candidates(f, plain); /* no chain goes across a gap */
	return true;
}

/* Uses what is in the queue as far as that is possible. */
static void run_queue(struct frames *f, bool settled)
{
	struct queue *q = &f->queue;

	while (f->state != FRAMES_WAIT && f->state != FRAMES_STOP) {
		struct queue_run run;

		if (f->state == FRAMES_SEARCH) {
			if (!search_step(f, settled))
				return;
			continue;
		}
		if (queue_is_empty(q))
			break;
		run = *queue_front(q);
		if (run.gap) {
			queue_drop_gap(q);
			gap_now(f, run.gap, run.why, &run.at);
		} else {
			queue_drop(q, parse(f, queue_bytes(q), run.len, &run.at));
		}
	}
	if (queue_is_empty(q) || f->state == FRAMES_STOP)
		queue_release(q);
}

/* --- the direction ----------------------------------------------------------------------------------------------- */

void frames_init(struct frames *f, enum frames_start start, const struct frames_sink *sink)
{
	*f = (struct frames){.sink = sink, .start = start};
	f->state = start == FRAMES_START_FRAME ? FRAMES_HEADER : FRAMES_PREFACE;
	queue_init(&f->queue, HTTP2_QUEUE_BYTES, HTTP2_QUEUE_RUNS);
}

void frames_release(struct frames *f)
{
	queue_release(&f->queue);
}

void frames_stop(struct frames *f)
{
	f->state = FRAMES_STOP;
}

/* There is no room: the byte at hand must be got rid of, or out of its wait. */
static void make_room(struct frames *f, void (*force)(void *ctx))
{
	if (f->state == FRAMES_WAIT) {
		force(f->sink->ctx);
		frames_resume(f);
	} else if (f->state == FRAMES_SEARCH) {
		drop_candidates(f, 1);
		run_queue(f, false);
	}
}

int frames_push(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at, void (*force)(void *ctx))
{
	bool start = !f->has_last || memcmp(&f->last, at, sizeof(*at)) != 0;

	f->last = *at;
	f->has_last = true;
	while (len && f->state != FRAMES_STOP) {
		size_t n;
		int err;

		if (f->state != FRAMES_SEARCH && f->state != FRAMES_WAIT && queue_is_empty(&f->queue)) {
			n = parse(f, ptr, len, at);
			start = start && !n;
		} else {
			n = queue_room(&f->queue, at, start);
			n = n < len ? n : len;
			if (!n) {
				make_room(f, force);
				continue;
			}
			err = queue_add(&f->queue, ptr, n, at, start);
			if (err)
				return err;
			f->unsettled = true;
			start = false;
			run_queue(f, false);
		}
		ptr += n;
		len -= n;
	}
	return 0;
}

int frames_gap(struct frames *f, uint64_t len, enum http_gap why, const struct stamp *at, void (*force)(void *ctx))
{
	frames_settle(f);
	f->last = *at;
	f->has_last = true;
	while (f->state == FRAMES_WAIT && !queue_takes_gap(&f->queue))
		make_room(f, force);
	if (f->state == FRAMES_WAIT)
		return queue_add_gap(&f->queue, len, why, at);
	if (f->state == FRAMES_SEARCH) { /* no chain goes across it */
		queue_release(&f->queue);
		search(f);
	}
	gap_now(f, len, why, at);
	return 0;
}

void frames_resume(struct frames *f)
{
	if (f->state == FRAMES_WAIT) {
		begin(f);
		run_queue(f, false);
	}
}

void frames_settle(struct frames *f)
{
	if (f->state == FRAMES_SEARCH && f->unsettled && !queue_is_empty(&f->queue))
		run_queue(f, true);
	f->unsettled = false;
}
