/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http1_state.h"

#include <stdlib.h>
#include <utlist.h>

/* --- responses --------------------------------------------------------------------------------------------------- */

static enum message_next on_response_head(void *ctx, struct message *m, uint64_t *length)
{
	struct http1 *h = ctx;
	int status = (m->head.ptr[9] - '0') * 100 + (m->head.ptr[10] - '0') * 10 + (m->head.ptr[11] - '0');

	if (status == 100 && h->asking)
		h->asking->expect = false; /* its body comes, whatever the final response is */
	if (status / 100 == 1 && status != 101)
		return NEXT_INTERIM;
	if (h->answering)
		http1_exchange_lose(h, h->answering);
	http1_before_tell(h);
	h->middle = false;
	m->carried = 0;
	return http1_pair(h, length, false);
}

static void on_response_body(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (!h->answering)
		return;
	http1_exchange_saw(h->answering, at);
	if (h->response.lost)
		h->passed_ns = at->ts_ns;
	h->sink.on_body(h->sink.ctx, h->answering->xid, HTTP_RESPONSE, ptr, len, at);
}

static void on_response_gap(void *ctx, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (!h->answering)
		return;
	if (h->response.state == MESSAGE_UNTIL_CLOSE && (why == HTTP_GAP_LOST || len == UINT64_MAX))
		h->answering->lost = true; /* perhaps more of it, at the end */
	http1_body_gap(h, h->answering, HTTP_RESPONSE, len, why, at);
}

static void on_response_end(void *ctx, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x = h->answering, *next;

	if (!x)
		return;
	h->answering = NULL;
	next = http1_unanswered(h);
	if (next && !next->unsure && !h->response.lost && !h->doubt && next->since_ns < x->last_ns)
		h->pipelined = true;
	x->response_done = true;
	x->carried = h->response.carried;
	x->end = *at;
	http1_exchange_settle(h, x);
}

/* A hole may hold the responses of all that was asked by then; not of those whose head is seen after it. */
static void hole_hides(struct http1 *h, const struct stamp *at)
{
	struct exchange *x;

	DL_FOREACH (h->list, x)
		if (!x->begun && x->since_ns <= at->ts_ns)
			x->lost = true;
}

/* Bytes in which the next response began, at the latest, are missing or are no head. */
static void head_lost(struct http1 *h, enum http_gap why, const struct stamp *at)
{
	struct exchange *x = http1_eligible(h, at);

	if (!x || x->gap_told)
		return;
	x->lost = x->gap_told = true;
	http1_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
}

/* Bytes of a response whose head is missing. Where clients wait for one before they ask again it is the latest's. */
static void headless_bytes(struct http1 *h, const struct stamp *at)
{
	struct exchange *x, *latest = NULL;

	head_lost(h, HTTP_GAP_LOST, at);
	DL_FOREACH (h->list, x) {
		if (x->begun || x->since_ns > at->ts_ns)
			continue;
		if (latest && h->pipelined)
			return;
		latest = x;
	}
	http1_exchange_saw(latest, at);
}

/* The next response cannot be read, so that the exchange it belongs to ends here. */
static void head_unreadable(struct http1 *h, const struct stamp *at)
{
	struct exchange *x = http1_eligible(h, message_first(&h->response));

	if (x)
		http1_exchange_abort(h, x, HTTP_ABORT_PARSE, at->ts_ns);
}

static bool on_response_lost(void *ctx, enum message_loss loss, enum http_gap why, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x = h->answering;

	if ((loss == LOSS_PARSE || loss == LOSS_HEAD) && !h->response.lost)
		h->errors++;
	h->doubt = true;
	if (loss == LOSS_GAP)
		h->response_hole_ns = at->ts_ns;
	if (!x && loss == LOSS_HEAD && !h->response.lost)
		head_unreadable(h, at);
	if (x && loss == LOSS_PARSE && h->response.state != MESSAGE_HEAD) {
		http1_exchange_abort(h, x, HTTP_ABORT_PARSE, at->ts_ns);
		return false;
	}
	if (x) {
		x->lost = true;
		if (loss == LOSS_GAP)
			hole_hides(h, at);
		if (loss != LOSS_PARSE)
			http1_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
		return h->response.chunked || x->orphan;
	}
	if (loss == LOSS_GAP) {
		head_lost(h, why, at);
		hole_hides(h, at);
	}
	return h->middle && loss == LOSS_GAP;
}

static void on_response_skip(void *ctx, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	http1_exchange_saw(h->answering, at);
	h->passed_ns = at->ts_ns;
	if (h->answering)
		return;
	if (h->response.lost)
		headless_bytes(h, at);
	if (!h->middle)
		return;
	if (http1_eligible(h, at)) { /* after a request: not the rest of something older */
		http1_before_tell(h);
		h->middle = h->response.chunks = false;
		return;
	}
	if (!h->before_bytes)
		h->before_first = *at;
	h->before_last = *at;
	h->before_bytes += len;
}

static bool on_response_chunk(void *ctx, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x;

	if (h->answering) {
		http1_weigh_rest(h, h->answering);
		return true;
	}
	if (!h->middle || !h->before_bytes)
		return false;
	x = http1_orphan_new(h, &h->before_first);
	if (!x)
		return false;
	x->lost = true;
	http1_exchange_saw(x, at);
	h->answering = x;
	h->middle = false;
	http1_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	return true;
}

static void tell_unseen(struct http1 *h, const struct stamp *at)
{
	if (h->unseen)
		http1_raw_gap(h, dir_other(h->client_dir), UINT64_MAX, HTTP_GAP_LOST, at);
	h->unseen = false;
}

static void on_response_raw(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	tell_unseen(h, at);
	if (h->upgrade && h->raw)
		h->raw(h->raw_ctx, dir_other(h->client_dir), ptr, len, at);
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static enum message_next request_body(struct exchange *x, const struct head_info *info, uint64_t *length)
{
	*length = info->length;
	switch (info->body) {
	case HEAD_BODY_UNSTATED:
		return NEXT_NO_BODY;
	case HEAD_BODY_LENGTH:
		return x->connect ? NEXT_NO_BODY : NEXT_LENGTH;
	case HEAD_BODY_CHUNKED:
		return x->connect ? NEXT_NO_BODY : NEXT_CHUNKED;
	default:
		return NEXT_INVALID; /* a request that lasts until close has no response (RFC 9112 section 6.3) */
	}
}

/* The exchange of a request that begins at `first`. */
static struct exchange *request_new(struct http1 *h, const struct stamp *first)
{
	/* The traced client's request is under way when the write begins; to a server it is there when the read
	 * returns. */
	struct exchange *x = http1_exchange_new(h, h->client_dir == DIR_TX ? first->entry_ns : first->ts_ns);

	/* It is told late: a hole in the responses may hold its own. Not so when that one's head is seen. */
	if (x && h->response_hole_ns && x->since_ns <= h->response_hole_ns)
		x->lost = true;
	return x;
}

/* Its response was taken for that of an older request, or for nobody's. */
static bool has_gone_by(const struct http1 *h, const struct exchange *x)
{
	return (h->orphan_ns && x->since_ns <= h->orphan_ns) || (h->paired_ns && x->since_ns <= h->paired_ns);
}

/* A request behind a whole response, and nothing else is outstanding: what was lost is behind both ways. */
static bool is_in_step(const struct http1 *h, const struct message *m)
{
	return !h->list && !m->unsure && h->response.state == MESSAGE_START && !h->response.lost &&
	       message_first(m)->entry_ns >= h->response.last.ts_ns;
}

/* It was answered instead of let go on, and no body came: its head is all of it. */
static void end_refused(struct http1 *h, struct exchange *x)
{
	if (!x || x != h->asking || !message_at_body(&h->request))
		return;
	h->asking = NULL;
	x->request_done = true;
	h->sink.on_request_end(h->sink.ctx, x->xid, h->request.carried, &h->request.last);
}

/* What came next is a request, right behind the head of one whose body was refused, or after other bytes. */
static void settle_refused(struct http1 *h)
{
	struct exchange *x = h->refused;

	if (!x)
		return;
	h->refused = NULL;
	x->request_done = true;
	if (!h->request.unsure)
		h->sink.on_request_end(h->sink.ctx, x->xid, h->refused_bytes, &h->refused_last);
	http1_exchange_settle(h, x);
}

static enum message_next on_request_head(void *ctx, struct message *m, uint64_t *length)
{
	struct http1 *h = ctx;
	const struct stamp *first = message_first(m);
	struct exchange *x, *before;
	struct head_info info;
	enum message_next next;

	settle_refused(h);
	before = http1_unanswered(h);
	http1_before_tell(h);
	http1_prove(h, !m->unsure, first);
	if (h->count >= HTTP1_PIPELINE_MAX) {
		http1_give_up(h);
		return NEXT_STOP;
	}
	if (is_in_step(h, m))
		h->doubt = false;
	x = request_new(h, first);
	if (!x) {
		http1_stop(h);
		return NEXT_STOP;
	}
	if (before && !m->unsure && memcmp(&h->request_end, first, sizeof(*first)) == 0)
		h->pipelined = true;
	head_parse(m->head.ptr, m->head.len, HTTP_REQUEST, &info);
	x->head_method = sv_eq(info.head.method, SV("HEAD"));
	x->connect = sv_eq(info.head.method, SV("CONNECT"));
	x->upgrade = info.upgrade;
	x->websocket = info.websocket;
	x->expect = info.expect;
	x->unsure = m->unsure;
	http1_exchange_saw(x, first);
	h->asking = x;
	h->sink.on_request(h->sink.ctx, x->xid, &info.head, first);
	next = request_body(x, &info, length);
	/* It comes so late that its response has gone by as nobody's: a younger one must not be taken for it. */
	if (!h->pipelined && has_gone_by(h, x))
		http1_exchange_lose(h, x);
	http1_unpark(h, false); /* may end x, and with an upgrade all: message_begin() minds that */
	return next;
}

static void on_request_body(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (!h->asking)
		return;
	http1_exchange_saw(h->asking, at);
	h->sink.on_body(h->sink.ctx, h->asking->xid, HTTP_REQUEST, ptr, len, at);
}

static void on_request_gap(void *ctx, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (h->asking)
		http1_body_gap(h, h->asking, HTTP_REQUEST, len, why, at);
}

static void on_request_end(void *ctx, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x = h->asking;

	h->request_end = *at;
	if (!x)
		return;
	h->asking = NULL;
	x->request_done = true;
	http1_exchange_saw(x, at);
	h->sink.on_request_end(h->sink.ctx, x->xid, h->request.carried, at);
	http1_exchange_settle(h, x);
}

/* What is known of a head that does not come to its end: its first line. */
static struct http_head begun_head(const struct message *m)
{
	struct http_head head = {.protocol = "http/1.1", .unreadable = true};
	const char *end = m->lines ? memchr(m->head.ptr, '\n', m->head.len) : NULL;
	struct sv line = {m->head.ptr, end ? (size_t)(end - m->head.ptr) : 0};

	if (line.len && line.ptr[line.len - 1] == '\r')
		line.len--;
	if (!line.len || !head_request_line(line, &head.method, &head.target))
		head.method = head.target = SV_NONE;
	return head;
}

/* NULL: too many, or no memory. */
static struct exchange *begun_request(struct http1 *h)
{
	const struct stamp *first = message_first(&h->request);
	struct http_head head = begun_head(&h->request);
	struct exchange *x;

	if (h->count >= HTTP1_PIPELINE_MAX) {
		http1_give_up(h);
		return NULL;
	}
	x = request_new(h, first);
	if (!x)
		return NULL;
	x->request_done = true;
	http1_exchange_saw(x, first);
	h->sink.on_request(h->sink.ctx, x->xid, &head, first);
	return x;
}

/* Its response can be read all the same. Where its body ends is not known. */
static void request_unreadable(struct http1 *h)
{
	settle_refused(h);
	http1_before_tell(h);
	if (begun_request(h))
		http1_unpark(h, false);
}

struct exchange *http1_unended_request(struct http1 *h, const struct stamp *answered)
{
	const struct message *m = &h->request;
	struct exchange *x;

	if (h->client_dir == DIR_TX || m->state != MESSAGE_HEAD || !m->lines || m->unsure || h->doubt ||
	    message_first(m)->ts_ns > answered->ts_ns)
		return NULL;
	x = begun_request(h);
	if (x)
		message_search(&h->request, false); /* more of it is no request */
	return x;
}

static bool on_request_lost(void *ctx, enum message_loss loss, enum http_gap why, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x = h->asking, *open = http1_unanswered(h);

	if ((loss == LOSS_PARSE || loss == LOSS_HEAD) && !h->request.lost && !(open && open->upgrade))
		h->errors++;
	h->doubt = true;
	if (loss == LOSS_GAP && why == HTTP_GAP_LOST) {
		h->request_hole_ns = at->ts_ns;
		http1_prove(h, false, at);
		x = h->asking;
	}
	if (h->pipelined && h->list)
		message_stop(&h->request);
	if (!x && loss == LOSS_HEAD && !h->request.lost)
		request_unreadable(h);
	if (!x)
		return false;
	if (h->request.state != MESSAGE_HEAD)
		http1_body_gap(h, x, HTTP_REQUEST, UINT64_MAX, why, at);
	x->request_done = true; /* so that its response may end it */
	http1_exchange_settle(h, x);
	return h->asking && h->request.chunked;
}

static void on_request_skip(void *ctx, size_t len, const struct stamp *at)
{
	(void)ctx;
	(void)len;
	(void)at;
}

static bool on_request_chunk(void *ctx, const struct stamp *at)
{
	const struct http1 *h = ctx;

	(void)at;
	return h->asking;
}

static void on_request_raw(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (h->upgrade && h->raw)
		h->raw(h->raw_ctx, h->client_dir, ptr, len, at);
}

/* --- the connection ---------------------------------------------------------------------------------------------- */

struct http1 *http1_new(bool fresh, enum dir client_dir, const struct http_sink *sink)
{
	struct http1 *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->sink = *sink;
	h->client_dir = client_dir;
	h->middle = !fresh;
	h->request_sink = (struct message_sink){h,
						on_request_head,
						on_request_body,
						on_request_gap,
						on_request_end,
						on_request_lost,
						on_request_skip,
						on_request_chunk,
						on_request_raw};
	h->response_sink = (struct message_sink){h,
						 on_response_head,
						 on_response_body,
						 on_response_gap,
						 on_response_end,
						 on_response_lost,
						 on_response_skip,
						 on_response_chunk,
						 on_response_raw};
	message_init(&h->request, HTTP_REQUEST, fresh, &h->request_sink);
	message_init(&h->response, HTTP_RESPONSE, fresh, &h->response_sink);
	queue_init(&h->park, HTTP1_PARK_BYTES, HTTP1_PARK_RUNS);
	queue_init(&h->early, HTTP1_EARLY_BYTES, HTTP1_PARK_RUNS);
	return h;
}

void http1_free(struct http1 *h)
{
	struct exchange *x, *tmp;

	if (!h)
		return;
	DL_FOREACH_SAFE (h->list, x, tmp) {
		free(x);
	}
	message_release(&h->request);
	message_release(&h->response);
	queue_release(&h->park);
	queue_release(&h->early);
	free(h);
}

static bool waited_long(const struct http1 *h, uint64_t now_ns)
{
	uint64_t since = message_first(&h->response)->ts_ns;

	return h->response.state == MESSAGE_WAIT && now_ns > since && now_ns - since >= HTTP1_PARK_NS;
}

static int push_response(struct http1 *h, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len) {
		long n;
		int err;

		if (h->response.state == MESSAGE_WAIT) {
			if (http1_park_takes(h, len, at) && !waited_long(h, at->ts_ns))
				return queue_add(&h->park, ptr, len, at, false);
			err = http1_unpark(h, true);
			if (err)
				return err;
			continue;
		}
		http1_advance(h, at);
		n = message_push(&h->response, ptr, len, at);
		if (n < 0)
			return (int)n;
		if (h->err)
			return h->err;
		ptr += n;
		len -= (size_t)n;
	}
	return 0;
}

/*
 * A client that waits for 100 Continue and gets a final response sends no body: what comes next, if it keeps the
 * connection, is its next request (curl, after a 417). A body that comes all the same is passed over.
 */
static void body_refused(struct http1 *h, const struct stamp *at)
{
	struct exchange *x = h->asking;
	bool refused = h->refused_ns && at->entry_ns >= h->refused_ns;

	h->refused_ns = 0;
	if (!refused || !message_at_body(&h->request))
		return;
	h->asking = NULL;
	h->refused = x;
	h->refused_bytes = h->request.carried;
	h->refused_last = h->request.last;
	message_search(&h->request, false);
}

static int push_request(struct http1 *h, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	int err = http1_early_release(h);

	if (err)
		return err;
	if (!http1_early_takes(h, ptr[0], at))
		body_refused(h, at);
	return http1_early_push(h, ptr, len, at);
}

/* Out of memory: what is outstanding is ended by http1_finish(), nothing more is read. */
static int failed(struct http1 *h, int err)
{
	if (err) {
		h->err = err;
		http1_stop(h);
	}
	return err;
}

int http1_push(struct http1 *h, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (h->finished || h->err || !len)
		return h->err;
	return failed(h, dir == h->client_dir ? push_request(h, ptr, len, at) : push_response(h, ptr, len, at));
}

static int gap_request(struct http1 *h, uint64_t len, enum http_gap why, const struct stamp *at)
{
	int err = http1_early_release(h);

	if (err)
		return err;
	if (!http1_early_takes_gap(h))
		body_refused(h, at);
	return http1_early_gap(h, len, why, at);
}

int http1_gap(struct http1 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	int err = 0;

	if (h->finished || h->err || !len)
		return h->err;
	if (h->upgrade) {
		if (dir != h->client_dir)
			tell_unseen(h, at);
		http1_raw_gap(h, dir, len, why, at);
		return 0;
	}
	if (dir == h->client_dir)
		return failed(h, gap_request(h, len, why, at));
	if (h->response.state == MESSAGE_WAIT && !queue_takes_gap(&h->park))
		err = http1_unpark(h, true);
	if (err)
		return failed(h, err);
	if (h->response.state == MESSAGE_WAIT)
		return failed(h, queue_add_gap(&h->park, len, why, at));
	message_gap(&h->response, len, why, at);
	http1_early_look(h, at);
	return failed(h, h->err);
}

void http1_warm(const struct http1 *h, struct warm *w)
{
	warm_add(w, h, offsetof(struct http1, response.runs));
	warm_add(w, &h->response_sink, sizeof(h->response_sink));
	if (h->answering)
		warm_add(w, h->answering, sizeof(*h->answering));
}

bool http1_waits(const struct http1 *h)
{
	const struct exchange *x;

	if (h->finished || h->err)
		return false;
	if (h->response.state == MESSAGE_WAIT)
		return true;
	DL_FOREACH (h->list, x)
		if (x->response_done)
			return true;
	return false;
}

void http1_tick(struct http1 *h, uint64_t now_ns)
{
	struct exchange *x, *tmp;

	if (h->finished || h->err)
		return;
	while (waited_long(h, now_ns) && !h->err)
		failed(h, http1_unpark(h, true));
	DL_FOREACH_SAFE (h->list, x, tmp) {
		if (!x->response_done || now_ns < x->end.ts_ns || now_ns - x->end.ts_ns < HTTP1_PARK_NS)
			continue;
		if (x->unproven && now_ns - x->end.ts_ns < HTTP1_PROOF_NS)
			continue;
		if (x->unproven)
			http1_say_doubtful(h, x, HTTP_GAP_LOST, &x->end);
		x->unproven = false;
		if (h->refused_ns)
			end_refused(h, x);
		x->request_done = true;
		http1_exchange_settle(h, x);
	}
}

static void finish_exchange(struct http1 *h, struct exchange *x, enum http_abort why, uint64_t ts_ns)
{
	bool until_close = h->answering == x && h->response.state == MESSAGE_UNTIL_CLOSE && !x->lost;
	enum http_abort by_server = h->client_dir == DIR_TX ? HTTP_ABORT_SERVER : HTTP_ABORT_CLIENT;

	if (until_close && (why == by_server || why == HTTP_ABORT_CLOSED)) {
		x->response_done = true;
		x->carried = h->response.carried;
		x->end = h->response.last;
	}
	if (h->refused_ns)
		end_refused(h, x);
	x->request_done = true;
	x->unproven = false; /* nothing more was asked */
	if (x->response_done)
		http1_exchange_settle(h, x);
	else if (x->lost && !x->orphan)
		http1_exchange_lose(h, x);
	else
		http1_exchange_abort(h, x, why, ts_ns);
}

void http1_finish(struct http1 *h, enum http_abort why, uint64_t ts_ns)
{
	if (h->finished)
		return;
	while (h->response.state == MESSAGE_WAIT && !h->err)
		failed(h, http1_unpark(h, true));
	tell_unseen(h, &h->unseen_at);
	h->finished = true;
	while (h->list)
		finish_exchange(h, h->list, why, ts_ns);
	http1_stop(h);
}

unsigned http1_errors(const struct http1 *h)
{
	return h->errors;
}

unsigned http1_requests(const struct http1 *h)
{
	return h->requests;
}

uint64_t http1_body_left(const struct http1 *h, enum dir dir)
{
	const struct message *m = dir == h->client_dir ? &h->request : &h->response;

	/* What is parked was not read: a message that waits has no body yet. */
	return !h->finished && !h->err && !m->lost && (m != &h->request || !h->refused_ns) &&
			       (m->state == MESSAGE_LENGTH || m->state == MESSAGE_CHUNK_DATA)
		       ? m->left
		       : 0;
}

enum http1_upgrade http1_upgraded(const struct http1 *h)
{
	return h->upgrade;
}

void http1_set_raw(struct http1 *h, void *ctx,
		   void (*raw)(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at),
		   void (*raw_gap)(void *ctx, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at))
{
	h->raw_ctx = ctx;
	h->raw = raw;
	h->raw_gap = raw_gap;
}

void http1_set_h2c(struct http1 *h, void *ctx, int (*h2c)(void *ctx, uint64_t xid))
{
	h->h2c_ctx = ctx;
	h->h2c = h2c;
}
