/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http1_message.h"

#define CHUNK_EXT_MAX  16384 /* of one chunk's extensions; longer is a parse error */
#define TRAILER_MAX    65536 /* of all trailer lines; longer is a parse error */
#define START_LOOK_MAX 33    /* bytes of a start line that are checked before it is complete */
#define HEAD_KEEP_MAX  4096  /* memory kept between heads */

void message_init(struct message *m, enum http_side side, bool in_step, const struct message_sink *sink)
{
	*m = (struct message){.sink = sink, .side = side, .state = in_step ? MESSAGE_START : MESSAGE_SEARCH};
	m->chunks = !in_step && side == HTTP_RESPONSE;
	buf_init(&m->head, HTTP_HEAD_BYTES_MAX);
}

void message_release(struct message *m)
{
	buf_release(&m->head);
}

static void head_clear(struct message *m)
{
	buf_clear(&m->head);
	if (m->head.size > HEAD_KEEP_MAX)
		buf_release(&m->head);
	m->run_count = 0;
	m->lines = 0;
	m->line_at = 0;
	m->line_match = (struct line_match){0};
}

static int head_push(struct message *m, const void *ptr, size_t len, const struct stamp *at)
{
	bool same = m->run_count && memcmp(&m->runs[m->run_count - 1].stamp, at, sizeof(*at)) == 0;

	if (!same && m->run_count < MESSAGE_RUNS)
		m->runs[m->run_count++] = (struct message_run){m->head.len, *at};
	return buf_push(&m->head, ptr, len);
}

static void head_drop_front(struct message *m, size_t n)
{
	unsigned keep = 0;

	if (n == m->head.len) {
		head_clear(m);
		return;
	}
	while (keep + 1 < m->run_count && m->runs[keep + 1].at <= n)
		keep++;
	m->run_count -= keep;
	memmove(m->runs, m->runs + keep, m->run_count * sizeof(m->runs[0]));
	for (unsigned i = 0; i < m->run_count; i++)
		m->runs[i].at = m->runs[i].at > n ? m->runs[i].at - n : 0;
	buf_drop_front(&m->head, n);
}

static void skip(struct message *m, size_t n, const struct stamp *at)
{
	if (!n)
		return;
	m->skipped += n;
	m->carried += n;
	m->last = *at;
	m->sink->on_skip(m->sink->ctx, n, at);
}

void message_search(struct message *m, bool chunks)
{
	head_clear(m);
	m->state = MESSAGE_SEARCH;
	m->chunks = chunks;
	m->chunk_match = (struct chunk_match){0};
}

void message_stop(struct message *m)
{
	head_clear(m);
	m->state = MESSAGE_STOP;
}

bool message_at_body(const struct message *m)
{
	return (m->state == MESSAGE_LENGTH || m->state == MESSAGE_CHUNK_SIZE) && m->carried == m->head_len;
}

/* Keeps `head`: the caller decides what of it is looked at again. */
static void lose(struct message *m, enum message_loss loss, enum http_gap why, const struct stamp *at)
{
	bool chunks = m->sink->on_lost(m->sink->ctx, loss, why, at);

	m->lost = true;
	if (m->state == MESSAGE_STOP)
		return;
	m->state = MESSAGE_SEARCH;
	m->chunks = chunks;
	m->chunk_match = (struct chunk_match){0};
}

static void end(struct message *m, const struct stamp *at)
{
	m->state = MESSAGE_START;
	m->last = *at;
	m->sink->on_end(m->sink->ctx, at);
	m->carried = 0;
	m->chunked = false;
}

void message_begin(struct message *m, enum message_next next, uint64_t length, const struct stamp *at)
{
	if (m->state == MESSAGE_STOP) /* the connection was given up meanwhile */
		return;
	if (next == NEXT_WAIT) {
		m->state = MESSAGE_WAIT;
		return;
	}
	if (next == NEXT_INTERIM) {
		head_clear(m);
		m->state = m->lost ? MESSAGE_SEARCH : MESSAGE_START;
		return;
	}
	m->carried = m->head_len = m->head.len;
	m->last = *at;
	m->chunked = next == NEXT_CHUNKED;
	m->left = next == NEXT_LENGTH ? length : 0;
	m->digits = 0;
	m->skipped = 0;
	m->lost = m->unsure = false;
	m->state = MESSAGE_SEARCH; /* where it is when the framing is invalid */
	head_clear(m);
	if (next == NEXT_STOP)
		message_stop(m);
	else if (next == NEXT_INVALID)
		lose(m, LOSS_PARSE, HTTP_GAP_LOST, at);
	else if (next == NEXT_NO_BODY || (next == NEXT_LENGTH && !length))
		end(m, at);
	else
		m->state = next == NEXT_LENGTH	  ? MESSAGE_LENGTH
			   : next == NEXT_CHUNKED ? MESSAGE_CHUNK_SIZE
						  : MESSAGE_UNTIL_CLOSE;
}

/* --- heads ------------------------------------------------------------------------------------------------------- */

/*
 * What is in `head` is no start line, but one may begin further on in it. Each byte is looked at a bounded number of
 * times: a start line holds two blanks, what lies between two of them cannot be part of more than one candidate.
 */
static enum match shift(struct message *m, const struct stamp *at)
{
	size_t len = m->head.len;

	for (size_t k = 1; k < len; k++) {
		struct line_match lm = {0};
		enum match r = MATCH_MORE;

		for (size_t j = k; j < len && r == MATCH_MORE; j++)
			r = line_match(&lm, m->side, m->head.ptr + k, j - k + 1);
		if (r == MATCH_NO)
			continue;
		head_drop_front(m, k);
		m->line_match = lm;
		skip(m, k, at);
		return r;
	}
	head_clear(m);
	skip(m, len, at);
	return MATCH_NO;
}

static void start_line_found(struct message *m)
{
	m->state = MESSAGE_HEAD;
	m->lines = 1;
	m->line_at = m->head.len;
	m->unsure = m->lost || m->skipped;
}

static void start_line_bad(struct message *m, const struct stamp *at)
{
	lose(m, LOSS_PARSE, HTTP_GAP_LOST, at);
	m->chunks = false; /* it was in step: no body is at hand */
	if (m->state == MESSAGE_SEARCH && shift(m, at) == MATCH_YES)
		start_line_found(m);
}

/* A head that began well is not looked at again: it could be made to look like a head from each of its lines. */
static void head_bad(struct message *m, size_t more, const struct stamp *at)
{
	size_t n = m->head.len + more;

	lose(m, LOSS_HEAD, HTTP_GAP_LOST, at);
	head_clear(m);
	skip(m, n, at);
}

static bool start_plausible(const struct message *m)
{
	struct sv text = {m->head.ptr, m->head.len < START_LOOK_MAX ? m->head.len : START_LOOK_MAX}, rest;

	if (m->side == HTTP_RESPONSE)
		return memcmp(text.ptr, "HTTP/1.", text.len < 7 ? text.len : 7) == 0;
	text = sv_cut(text, ' ', &rest);
	return http_is_token(text) && (rest.ptr || text.len < START_LOOK_MAX);
}

static void head_complete(struct message *m, const struct stamp *at)
{
	uint64_t length = 0;
	enum message_next next;

	m->head_end = *at;
	next = m->sink->on_head(m->sink->ctx, m, &length);
	message_begin(m, next, length, at);
}

static void line_complete(struct message *m, const struct stamp *at)
{
	struct sv line = {m->head.ptr + m->line_at, m->head.len - m->line_at - 1}, method, target;
	int status;

	if (line.len && line.ptr[line.len - 1] == '\r')
		line.len--;
	if (m->lines == 0) {
		bool good = m->side == HTTP_REQUEST ? head_request_line(line, &method, &target)
						    : head_status_line(line, &status);

		if (!good) {
			start_line_bad(m, at);
			return;
		}
		m->unsure = m->lost;
	} else if (line.len == 0) {
		head_complete(m, at);
		return;
	} else if (!head_header_line(line)) {
		head_bad(m, 0, at);
		return;
	}
	m->lines++;
	m->line_at = m->head.len;
}

static long step_start(struct message *m, const uint8_t *ptr, size_t len)
{
	size_t n = 0;

	while (n < len && (ptr[n] == '\r' || ptr[n] == '\n'))
		n++;
	if (n < len) {
		head_clear(m);
		m->state = MESSAGE_HEAD;
	}
	return (long)n;
}

static long step_head(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t before = m->head.len, n;
	const uint8_t *lf;
	int err;

	/* What cannot be a start line is none, however much of it comes at once. */
	if (m->lines == 0 && before < START_LOOK_MAX && len > START_LOOK_MAX - before)
		len = START_LOOK_MAX - before;
	lf = memchr(ptr, '\n', len);
	n = lf ? (size_t)(lf - ptr) + 1 : len;
	if (n > HTTP_HEAD_BYTES_MAX - before) {
		n = HTTP_HEAD_BYTES_MAX - before;
		head_bad(m, n, at);
		return (long)n;
	}
	err = head_push(m, ptr, n, at);
	if (err)
		return err;
	if (m->lines == 0 && before < START_LOOK_MAX && !start_plausible(m))
		start_line_bad(m, at);
	else if (lf)
		line_complete(m, at);
	return (long)n;
}

/* --- bodies ------------------------------------------------------------------------------------------------------ */

static void chunk_bad(struct message *m, const struct stamp *at)
{
	lose(m, m->lost ? LOSS_GUESS : LOSS_PARSE, HTTP_GAP_LOST, at);
}

static void took(struct message *m, size_t n, const struct stamp *at)
{
	m->carried += n;
	m->last = *at;
}

static long step_body(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t n = m->state == MESSAGE_UNTIL_CLOSE || len < m->left ? len : (size_t)m->left;

	took(m, n, at);
	m->sink->on_body(m->sink->ctx, ptr, n, at);
	if (m->state == MESSAGE_UNTIL_CLOSE)
		return (long)n;
	m->left -= n;
	if (m->left == 0 && m->state == MESSAGE_LENGTH)
		end(m, at);
	else if (m->left == 0)
		m->state = MESSAGE_CHUNK_END;
	return (long)n;
}

static void chunk_size_known(struct message *m)
{
	m->state = m->left ? MESSAGE_CHUNK_DATA : MESSAGE_TRAILER;
	m->digits = 0;
	m->extra = m->line_len = 0;
}

static long step_chunk_size(struct message *m, uint8_t c, const struct stamp *at)
{
	int digit = hex_digit(c);

	if (digit >= 0) {
		if (m->left >> 58 || ++m->digits > 64) {
			chunk_bad(m, at);
			return 0;
		}
		m->left = m->left << 4 | (uint64_t)digit;
	} else if (m->digits && (c == ';' || c == ' ' || c == '\t')) {
		m->state = MESSAGE_CHUNK_EXT;
		m->extra = 0;
	} else if (m->digits && c == '\r') {
		m->state = MESSAGE_CHUNK_LF;
	} else if (m->digits && c == '\n') {
		chunk_size_known(m);
	} else {
		chunk_bad(m, at);
		return 0;
	}
	took(m, 1, at);
	return 1;
}

static long step_chunk_ext(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	const uint8_t *lf = memchr(ptr, '\n', len);
	size_t n = lf ? (size_t)(lf - ptr) + 1 : len;

	if (n > CHUNK_EXT_MAX - m->extra) {
		n = CHUNK_EXT_MAX - m->extra;
		took(m, n, at);
		chunk_bad(m, at);
		return (long)n;
	}
	took(m, n, at);
	m->extra += n;
	if (lf)
		chunk_size_known(m);
	return (long)n;
}

/* One byte that must be LF, or may be the CR before it. */
static long step_chunk_line_end(struct message *m, uint8_t c, const struct stamp *at)
{
	bool data = m->state != MESSAGE_CHUNK_LF;

	if (c == '\r' && m->state == MESSAGE_CHUNK_END) {
		m->state = MESSAGE_CHUNK_END_LF;
	} else if (c == '\n' && data) {
		m->state = MESSAGE_CHUNK_SIZE;
		m->left = 0;
		m->digits = 0;
	} else if (c == '\n') {
		chunk_size_known(m);
	} else {
		chunk_bad(m, at);
		return 0;
	}
	took(m, 1, at);
	return 1;
}

static bool may_begin_trailer(uint8_t c)
{
	char name = (char)c;

	return c == '\r' || c == '\n' || c == ' ' || c == '\t' || http_is_token((struct sv){&name, 1});
}

static long step_trailer(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	const uint8_t *lf = memchr(ptr, '\n', len);
	size_t n = lf ? (size_t)(lf - ptr) + 1 : len, room = TRAILER_MAX - m->extra;

	if (m->line_len == 0) {
		if (!may_begin_trailer(ptr[0])) {
			chunk_bad(m, at);
			return 0;
		}
		m->line_cr = ptr[0] == '\r';
	}
	if (n > room) {
		took(m, room, at);
		chunk_bad(m, at);
		return (long)room;
	}
	took(m, n, at);
	m->extra += n;
	m->line_len += n;
	if (lf && (m->line_len == 1 || (m->line_len == 2 && m->line_cr)))
		end(m, at);
	else if (lf)
		m->line_len = 0;
	return (long)n;
}

/* --- out of step ------------------------------------------------------------------------------------------------- */

static bool chunk_found(struct message *m, const struct stamp *at)
{
	if (!m->sink->on_chunk_found(m->sink->ctx, at))
		return false;
	head_clear(m);
	m->lost = true;
	m->chunked = true;
	m->left = m->chunk_match.size;
	chunk_size_known(m);
	return true;
}

/* One byte of a start line that may be. Return as line_match(), -ENOMEM. */
static int candidate(struct message *m, uint8_t c, const struct stamp *at)
{
	enum match r;
	int err = head_push(m, &c, 1, at);

	if (err)
		return err;
	r = line_match(&m->line_match, m->side, m->head.ptr, m->head.len);
	return (int)(r == MATCH_NO ? shift(m, at) : r);
}

static bool begins_line(const struct message *m, uint8_t c)
{
	return m->side == HTTP_RESPONSE ? c == 'H' : c >= 'C' && c <= 'U';
}

/*
 * From i on: where the next byte is that can begin a start line or move the chunk matcher. A connection that is no
 * HTTP, or a long body, is passed over at the speed of memchr(). *cr: the next CR, looked for again only once it was
 * passed.
 */
static size_t next_sign(const struct message *m, const uint8_t *ptr, size_t len, size_t i, size_t *cr)
{
	const uint8_t *found;

	if (m->head.len || (m->chunks && m->chunk_match.phase != CHUNK_IN_TEXT))
		return i;
	if (m->chunks) {
		if (*cr < i || !*cr) {
			found = memchr(ptr + i, '\r', len - i);
			*cr = found ? (size_t)(found - ptr) : len;
		}
		len = *cr;
	}
	if (m->side == HTTP_RESPONSE) {
		found = memchr(ptr + i, 'H', len - i);
		return found ? (size_t)(found - ptr) : len;
	}
	while (i < len && !begins_line(m, ptr[i]))
		i++;
	return i;
}

static long step_search(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t i = 0, plain = 0, next, cr = 0;

	while (i < len) {
		uint8_t c = ptr[i];
		int r;

		next = next_sign(m, ptr, len, i, &cr);
		if (next > i) {
			plain += next - i;
			i = next;
			continue;
		}
		i++;
		if (m->chunks && chunk_match(&m->chunk_match, c)) {
			skip(m, plain + 1 + m->head.len, at);
			plain = 0;
			if (chunk_found(m, at))
				return (long)i;
			head_clear(m);
			continue;
		}
		if (!m->head.len && !begins_line(m, c)) {
			plain++;
			continue;
		}
		skip(m, plain, at);
		plain = 0;
		r = candidate(m, c, at);
		if (r < 0)
			return r;
		if (r == MATCH_YES) {
			start_line_found(m);
			return (long)i;
		}
	}
	skip(m, plain, at);
	return (long)i;
}

static long step(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	switch (m->state) {
	case MESSAGE_START:
		return step_start(m, ptr, len);
	case MESSAGE_HEAD:
		return step_head(m, ptr, len, at);
	case MESSAGE_LENGTH:
	case MESSAGE_CHUNK_DATA:
	case MESSAGE_UNTIL_CLOSE:
		return step_body(m, ptr, len, at);
	case MESSAGE_CHUNK_SIZE:
		return step_chunk_size(m, ptr[0], at);
	case MESSAGE_CHUNK_EXT:
		return step_chunk_ext(m, ptr, len, at);
	case MESSAGE_CHUNK_LF:
	case MESSAGE_CHUNK_END:
	case MESSAGE_CHUNK_END_LF:
		return step_chunk_line_end(m, ptr[0], at);
	case MESSAGE_TRAILER:
		return step_trailer(m, ptr, len, at);
	case MESSAGE_SEARCH:
		return step_search(m, ptr, len, at);
	default:
		m->sink->on_raw(m->sink->ctx, ptr, len, at);
		return (long)len;
	}
}

long message_push(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t done = 0;

	while (done < len && m->state != MESSAGE_WAIT) {
		enum message_state before = m->state;
		long n = step(m, ptr + done, len - done, at);

		if (n < 0)
			return n;
		done += (size_t)n;
		if (m->lost && m->state != before)
			break;
	}
	return (long)done;
}

/* --- gaps -------------------------------------------------------------------------------------------------------- */

static void gap_kept(struct message *m, uint64_t len, enum http_gap why, const struct stamp *at)
{
	if (len != UINT64_MAX)
		m->carried += len;
	m->sink->on_gap(m->sink->ctx, len, why, at);
}

void message_gap(struct message *m, uint64_t len, enum http_gap why, const struct stamp *at)
{
	bool known = len != UINT64_MAX;
	struct stamp seen = m->last;
	uint64_t here;

	if (!len || m->state == MESSAGE_STOP)
		return;
	if (m->state == MESSAGE_UNTIL_CLOSE) {
		gap_kept(m, len, why, at);
		return;
	}
	if (known && (m->state == MESSAGE_LENGTH || (m->state == MESSAGE_CHUNK_DATA && len <= m->left))) {
		here = len < m->left ? len : m->left;
		gap_kept(m, here, why, at);
		m->left -= here;
		if (m->left == 0 && m->state == MESSAGE_CHUNK_DATA)
			m->state = MESSAGE_CHUNK_END;
		else if (m->left == 0)
			end(m, why == HTTP_GAP_CAPPED ? at : &seen); /* when lost bytes moved is not known */
		message_gap(m, len - here, why, at);		     /* the next message's: once more at most */
		return;
	}
	head_clear(m);
	lose(m, LOSS_GAP, why, at);
}
