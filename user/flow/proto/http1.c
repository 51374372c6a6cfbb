/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http1.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "http1_message.h"

/*
 * How a response finds its request
 *
 * In step, responses answer requests in order: the next response is the next unanswered request's. But no response is
 * older than its request: one whose first byte was read before the request's first byte was written belongs to a
 * request that was not seen.
 *
 * After a loss order proves nothing, so time decides. A client that does not pipeline sends a request only when it has
 * the response before it; so when bytes of a response come after a later request began, the earlier exchange is over:
 *  - bytes lost in the responses: the response at hand ends (LOSS) when a byte comes that is younger than the next
 * request; a head that is found then answers the youngest request that is older than it, those before it end (LOSS).
 *  - bytes lost in the requests: requests may be hidden. Their responses find no request that is old enough: exchanges
 *    without a request. A request found by searching may be text that only looks like one: if a younger request is old
 *    enough too, the response is that one's.
 *  - bytes lost in both: a response found then may be that of a hidden request. It is taken for the request's before
 *    it, which has lost bytes of its response all the same. A request that turns up later, and is older than that
 *    response, has lost its own (LOSS).
 *  - whether bytes of requests are missing, too, shows when the next request comes. Until then the end of a response
 * that was found behind a hole is not told; when none comes for HTTP1_PROOF_NS, it is said to be lossy.
 * Until a request comes when nothing is outstanding, behind the last response, nothing tells that a client pipelines.
 * A connection seen to pipeline (a request began before the last byte of the response before it) gives time no meaning:
 * there, all that is outstanding ends at a loss of responses; after a loss of requests no further ones are read, and
 * what comes behind the responses of those that are outstanding are exchanges without a request.
 */

#define PARK_RUNS_MAX 1024

struct exchange {
	struct exchange *prev, *next;
	uint64_t xid;
	uint64_t since_ns; /* a response cannot be older */
	uint64_t last_ns;  /* of its youngest byte */
	bool head_method, connect, upgrade;
	bool orphan;	    /* its request was not seen */
	bool unsure;	    /* its request was found by searching */
	bool request_done;  /* or given up */
	bool begun;	    /* response head seen, or never to be */
	bool lost;	    /* response bytes are missing, so that its end may not be seen */
	bool gap_told;	    /* ... and that was said */
	bool response_done; /* waits for the request's end, or while: */
	bool unproven;	    /* a hole in the responses may have held its own, and another request may be missing */
	uint64_t carried;   /* response_done: what on_response_end will say */
	struct stamp end;
};

/* Response bytes behind a head that waits for its request; a gap is a run with gap != 0. */
struct park_run {
	struct stamp at;
	size_t len;
	uint64_t gap;
	enum http_gap why;
};

struct park {
	struct buf bytes;
	size_t used; /* bytes taken from the front */
	struct park_run *runs;
	size_t run_count, run_used, run_size;
};

struct http1 {
	/* First what each piece of bytes looks at. */
	struct exchange *list;	    /* oldest first */
	struct exchange *answering; /* whose response is at hand */
	enum dir client_dir;
	enum http1_upgrade upgrade;
	int err;
	bool finished;
	unsigned errors, requests;
	struct http_sink sink;
	struct message response, request;
	struct message_sink request_sink, response_sink;
	struct park park;
	unsigned count;		 /* in list */
	struct exchange *asking; /* whose request is at hand */
	bool middle;		 /* no response message was seen to begin yet, on a connection met in the middle */
	bool pipelined;
	bool doubt; /* something was lost, and requests and responses were not seen to be in step since */
	struct stamp before_first, before_last; /* bytes at the front that are in no message */
	uint64_t before_bytes;
	struct stamp request_end;		    /* of the last complete request */
	uint64_t response_hole_ns, request_hole_ns; /* when bytes behind the latest hole moved; 0: none */
	uint64_t orphan_ns; /* when the last response began that was given up waiting for its request; 0: none */
	uint64_t paired_ns; /* when the last response began that was paired in doubt; 0: none */
	uint64_t passed_ns; /* of the latest response bytes that were read out of step; 0: none */
	uint64_t next_xid;
	void *raw_ctx;
	void (*raw)(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	void *h2c_ctx;
	int (*h2c)(void *ctx, uint64_t xid);
};

/* --- exchanges --------------------------------------------------------------------------------------------------- */

static struct exchange *exchange_new(struct http1 *h, uint64_t since_ns)
{
	struct exchange *x = calloc(1, sizeof(*x));

	if (!x) {
		h->err = -ENOMEM;
		return NULL;
	}
	x->xid = ++h->next_xid;
	x->since_ns = x->last_ns = since_ns;
	DL_APPEND(h->list, x);
	h->count++;
	h->requests++;
	return x;
}

static void exchange_remove(struct http1 *h, struct exchange *x)
{
	if (h->asking == x)
		h->asking = NULL;
	if (h->answering == x)
		h->answering = NULL;
	DL_DELETE(h->list, x);
	h->count--;
	free(x);
}

static void exchange_abort(struct http1 *h, struct exchange *x, enum http_abort why, uint64_t ts_ns)
{
	uint64_t carried = h->answering == x ? h->response.carried : x->carried;

	h->sink.on_abort(h->sink.ctx, x->xid, why, carried, ts_ns);
	exchange_remove(h, x);
}

/* Its end was not seen: it lasted at least to its youngest byte. */
static void exchange_lose(struct http1 *h, struct exchange *x)
{
	exchange_abort(h, x, HTTP_ABORT_LOSS, x->last_ns);
}

/* Says on_response_end when both halves are over. */
static void exchange_settle(struct http1 *h, struct exchange *x)
{
	if (!x->response_done || !x->request_done || x->unproven)
		return;
	h->sink.on_response_end(h->sink.ctx, x->xid, x->carried, &x->end);
	exchange_remove(h, x);
}

static void exchange_saw(struct exchange *x, const struct stamp *at)
{
	if (x && at->ts_ns > x->last_ns)
		x->last_ns = at->ts_ns;
}

static void body_gap(struct http1 *h, struct exchange *x, enum http_side side, uint64_t len, enum http_gap why,
		     const struct stamp *at)
{
	h->sink.on_body_gap(h->sink.ctx, x->xid, side, len, why, at);
}

static struct exchange *unanswered(const struct http1 *h)
{
	struct exchange *x;

	DL_FOREACH (h->list, x) {
		if (!x->begun)
			return x;
	}
	return NULL;
}

/* The next unanswered request, if a response byte of that time can be its. */
static struct exchange *eligible(const struct http1 *h, const struct stamp *at)
{
	struct exchange *x = unanswered(h);

	return x && x->since_ns <= at->ts_ns ? x : NULL;
}

static bool next_eligible(const struct exchange *x, const struct stamp *at)
{
	return x->next && !x->next->begun && x->next->since_ns <= at->ts_ns;
}

static struct exchange *orphan_new(struct http1 *h, const struct stamp *first)
{
	struct exchange *x = exchange_new(h, first->ts_ns);

	if (!x)
		return NULL;
	x->orphan = x->request_done = x->begun = true;
	h->sink.on_request(h->sink.ctx, x->xid, NULL, first);
	return x;
}

/* Nothing more is read of this connection. */
static void stop(struct http1 *h)
{
	message_stop(&h->request);
	message_stop(&h->response);
}

static void give_up(struct http1 *h)
{
	h->errors++;
	while (h->list)
		exchange_abort(h, h->list, HTTP_ABORT_PARSE, h->list->last_ns);
	stop(h);
}

/* --- bytes at the front of a connection met in the middle -------------------------------------------------------- */

/* A message proves that this is HTTP, so what came before it was an exchange too. */
static void before_tell(struct http1 *h)
{
	struct exchange *x;

	if (!h->middle || !h->before_bytes)
		return;
	h->middle = false;
	x = orphan_new(h, &h->before_first);
	if (x) {
		body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, &h->before_first);
		h->sink.on_abort(h->sink.ctx, x->xid, HTTP_ABORT_LOSS, h->before_bytes, h->before_last.ts_ns);
		exchange_remove(h, x);
	}
}

/* --- pairing ----------------------------------------------------------------------------------------------------- */

/*
 * The response at hand lost its framing, or was found again by a guess, and a request that came after it is old enough:
 * the response is over, wherever it ended.
 */
static void advance(struct http1 *h, const struct stamp *at)
{
	struct exchange *x = h->answering;

	if (!x || !h->response.lost || h->response.state == MESSAGE_HEAD || !eligible(h, at))
		return;
	exchange_lose(h, x);
	h->response.carried = 0;
	if (h->response.state != MESSAGE_SEARCH)
		message_search(&h->response, false);
	h->response.chunks = false;
}

/* Whose response begins at `first`; NULL: nobody's that is outstanding, and then *orphan: nobody's that will come. */
static struct exchange *pick(struct http1 *h, const struct stamp *first, bool *orphan)
{
	bool unsure = h->response.unsure;
	struct exchange *x;

	*orphan = false;
	while ((x = eligible(h, first))) {
		bool more = next_eligible(x, first);

		if (unsure && h->response.lost && h->pipelined && more) {
			while ((x = eligible(h, first)))
				exchange_lose(h, x);
			break;
		}
		if (!more || h->pipelined || (!unsure && !x->unsure && !x->lost))
			return x;
		exchange_lose(h, x);
	}
	if (unanswered(h)) /* younger than the response; and so will be all that follow */
		*orphan = true;
	return NULL;
}

static void upgraded(struct http1 *h, struct exchange *x, bool websocket)
{
	uint64_t ts_ns = h->response.head_end.ts_ns;

	h->upgrade = websocket ? HTTP1_WEBSOCKET : HTTP1_OTHER_PROTOCOL;
	h->sink.on_abort(h->sink.ctx, x->xid, HTTP_ABORT_UPGRADE, h->response.head.len, ts_ns);
	exchange_remove(h, x);
	while (h->list)
		exchange_abort(h, h->list, HTTP_ABORT_UPGRADE, ts_ns);
	message_stop(&h->request);
}

/* The response comes in another protocol, by somebody else. */
static bool handed_over(struct http1 *h, struct exchange *x, const struct head_info *info)
{
	if (!h->h2c || !info->h2c || info->head.status != 101 || !x->request_done || x->orphan || x->next)
		return false;
	h->err = h->h2c(h->h2c_ctx, x->xid);
	if (h->err)
		return false;
	h->upgrade = HTTP1_OTHER_PROTOCOL;
	exchange_remove(h, x);
	message_stop(&h->request);
	return true;
}

static bool is_since(const struct exchange *x, uint64_t ns)
{
	return ns && ns >= x->since_ns;
}

/* Its response may have been another one. */
static void say_doubtful(struct http1 *h, struct exchange *x, const struct stamp *at)
{
	if (!x->gap_told)
		body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	x->gap_told = true;
}

/* Bytes of responses are missing since x began, or were read out of step: this may be the response to a request that
 * is hidden, and x's was lost. So it is when requests lost bytes too, which may be known only when the next one comes.
 */
static void weigh(struct http1 *h, struct exchange *x)
{
	if (x->orphan)
		return;
	if (is_since(x, h->passed_ns) || (is_since(x, h->response_hole_ns) && is_since(x, h->request_hole_ns)))
		say_doubtful(h, x, message_first(&h->response));
	else
		x->unproven = is_since(x, h->response_hole_ns) && !h->pipelined;
}

/* The requests come to this place without a hole, or they do not. */
static void prove(struct http1 *h, bool whole, const struct stamp *at)
{
	struct exchange *x, *tmp;

	DL_FOREACH_SAFE (h->list, x, tmp) {
		if (!x->unproven)
			continue;
		x->unproven = false;
		if (!whole)
			say_doubtful(h, x, at);
		exchange_settle(h, x);
	}
}

/* The head in h->response is x's final one. */
static enum message_next answer(struct http1 *h, struct exchange *x, uint64_t *length)
{
	struct head_info info;
	int status;

	head_parse(h->response.head.ptr, h->response.head.len, HTTP_RESPONSE, &info);
	status = info.head.status;
	x->begun = true;
	x->lost = false;
	h->answering = x;
	if (h->doubt)
		h->paired_ns = message_first(&h->response)->ts_ns;
	weigh(h, x);
	exchange_saw(x, &h->response.head_end);
	if (handed_over(h, x, &info))
		return NEXT_STOP;
	h->sink.on_response(h->sink.ctx, x->xid, &info.head, message_first(&h->response));
	if (status == 101 || (x->connect && status / 100 == 2)) {
		upgraded(h, x, status == 101 && info.websocket);
		return NEXT_STOP;
	}
	if (x->head_method || status == 204 || status == 304)
		return NEXT_NO_BODY;
	*length = info.length;
	switch (info.body) {
	case HEAD_BODY_LENGTH:
		return NEXT_LENGTH;
	case HEAD_BODY_CHUNKED:
		return NEXT_CHUNKED;
	case HEAD_BODY_INVALID:
		return NEXT_INVALID;
	default:
		return NEXT_UNTIL_CLOSE;
	}
}

/* Pairs the head in h->response. `force`: it does not wait for a request any more. */
static enum message_next pair(struct http1 *h, uint64_t *length, bool force)
{
	bool orphan;
	struct exchange *x = pick(h, message_first(&h->response), &orphan);

	if (!x && !orphan && !force)
		return NEXT_WAIT;
	if (!x) {
		x = orphan_new(h, message_first(&h->response));
		h->orphan_ns = message_first(&h->response)->ts_ns;
	}
	if (!x) {
		stop(h);
		return NEXT_STOP;
	}
	return answer(h, x, length);
}

static enum message_next on_response_head(void *ctx, struct message *m, uint64_t *length)
{
	struct http1 *h = ctx;
	int status = (m->head.ptr[9] - '0') * 100 + (m->head.ptr[10] - '0') * 10 + (m->head.ptr[11] - '0');

	if (status / 100 == 1 && status != 101)
		return NEXT_INTERIM;
	if (h->answering)
		exchange_lose(h, h->answering);
	before_tell(h);
	h->middle = false;
	m->carried = 0;
	return pair(h, length, false);
}

/* --- parked response bytes --------------------------------------------------------------------------------------- */

static void park_release(struct park *p)
{
	buf_release(&p->bytes);
	free(p->runs);
	p->runs = NULL;
	p->used = p->run_count = p->run_used = p->run_size = 0;
}

/* Gives back what was taken from the front; seldom enough that all moves together are linear in the bytes. */
static void park_compact(struct park *p)
{
	if (p->used > HTTP1_PARK_BYTES / 2) {
		buf_drop_front(&p->bytes, p->used);
		p->used = 0;
	}
	if (p->run_used > PARK_RUNS_MAX / 2) {
		p->run_count -= p->run_used;
		memmove(p->runs, p->runs + p->run_used, p->run_count * sizeof(p->runs[0]));
		p->run_used = 0;
	}
}

static int park_add(struct park *p, const uint8_t *ptr, struct park_run run)
{
	struct park_run *last;
	int err;

	park_compact(p);
	last = p->run_count > p->run_used ? &p->runs[p->run_count - 1] : NULL;
	err = ptr ? buf_push(&p->bytes, ptr, run.len) : 0;
	if (err)
		return err;
	if (ptr && last && !last->gap && memcmp(&last->at, &run.at, sizeof(run.at)) == 0) {
		last->len += run.len;
		return 0;
	}
	if (p->run_count == p->run_size) {
		size_t size = p->run_size ? p->run_size * 2 : 8;
		struct park_run *runs = realloc(p->runs, size * sizeof(*runs));

		if (!runs)
			return -ENOMEM;
		p->runs = runs;
		p->run_size = size;
	}
	p->runs[p->run_count++] = run;
	return 0;
}

static bool park_full(const struct http1 *h, size_t more)
{
	return h->response.head.len + h->park.bytes.len - h->park.used + more > HTTP1_PARK_BYTES ||
	       h->park.run_count - h->park.run_used >= PARK_RUNS_MAX;
}

/* Feeds parked bytes on, until a head waits again. */
static int park_drain(struct http1 *h)
{
	struct park *p = &h->park;

	while (p->run_used < p->run_count && h->response.state != MESSAGE_WAIT && !h->err) {
		struct park_run *run = &p->runs[p->run_used];
		long n;

		advance(h, &run->at);
		if (run->gap) {
			message_gap(&h->response, run->gap, run->why, &run->at);
			p->run_used++;
			continue;
		}
		n = message_push(&h->response, (const uint8_t *)p->bytes.ptr + p->used, run->len, &run->at);
		if (n < 0)
			return (int)n;
		p->used += (size_t)n;
		run->len -= (size_t)n;
		if (!run->len)
			p->run_used++;
	}
	if (p->run_used == p->run_count)
		park_release(p);
	return h->err;
}

/* A head waits: tries again to pair it, now that there is a request, or by force. Heads behind it are not forced. */
static int unpark(struct http1 *h, bool force)
{
	while (h->response.state == MESSAGE_WAIT && !h->err) {
		struct message *m = &h->response;
		uint64_t length = 0;
		enum message_next next = pair(h, &length, force);
		int err;

		if (next == NEXT_WAIT)
			break;
		force = false;
		message_begin(m, next, length, &m->head_end);
		err = park_drain(h);
		if (err)
			return err;
	}
	return h->err;
}

/* --- responses --------------------------------------------------------------------------------------------------- */

static void on_response_body(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (!h->answering)
		return;
	exchange_saw(h->answering, at);
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
	body_gap(h, h->answering, HTTP_RESPONSE, len, why, at);
}

static void on_response_end(void *ctx, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x = h->answering, *next;

	if (!x)
		return;
	h->answering = NULL;
	next = unanswered(h);
	if (next && !next->unsure && !h->response.lost && !h->doubt && next->since_ns < x->last_ns)
		h->pipelined = true;
	x->response_done = true;
	x->carried = h->response.carried;
	x->end = *at;
	exchange_settle(h, x);
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
	struct exchange *x = eligible(h, at);

	if (!x || x->gap_told)
		return;
	x->lost = x->gap_told = true;
	body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
}

/* The next response cannot be read, so that the exchange it belongs to ends here. */
static void head_unreadable(struct http1 *h, const struct stamp *at)
{
	struct exchange *x = eligible(h, message_first(&h->response));

	if (x)
		exchange_abort(h, x, HTTP_ABORT_PARSE, at->ts_ns);
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
		exchange_abort(h, x, HTTP_ABORT_PARSE, at->ts_ns);
		return false;
	}
	if (x) {
		x->lost = true;
		if (loss == LOSS_GAP)
			hole_hides(h, at);
		if (loss != LOSS_PARSE)
			body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
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

	exchange_saw(h->answering, at);
	h->passed_ns = at->ts_ns;
	if (h->answering)
		return;
	if (h->response.lost)
		head_lost(h, HTTP_GAP_LOST, at);
	if (!h->middle)
		return;
	if (eligible(h, at)) { /* after a request: not the rest of something older */
		before_tell(h);
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

	if (h->answering)
		return true;
	if (!h->middle || !h->before_bytes)
		return false;
	x = orphan_new(h, &h->before_first);
	if (!x)
		return false;
	x->lost = true;
	exchange_saw(x, at);
	h->answering = x;
	h->middle = false;
	body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	return true;
}

static void on_response_raw(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (h->upgrade && h->raw)
		h->raw(h->raw_ctx, h->client_dir == DIR_TX ? DIR_RX : DIR_TX, ptr, len, at);
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
	struct exchange *x = exchange_new(h, h->client_dir == DIR_TX ? first->entry_ns : first->ts_ns);

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

static enum message_next on_request_head(void *ctx, struct message *m, uint64_t *length)
{
	struct http1 *h = ctx;
	const struct stamp *first = message_first(m);
	struct exchange *x, *before = unanswered(h);
	struct head_info info;
	enum message_next next;

	before_tell(h);
	prove(h, !m->unsure, first);
	if (h->count >= HTTP1_PIPELINE_MAX) {
		give_up(h);
		return NEXT_STOP;
	}
	if (is_in_step(h, m))
		h->doubt = false;
	x = request_new(h, first);
	if (!x) {
		stop(h);
		return NEXT_STOP;
	}
	if (before && !m->unsure && memcmp(&h->request_end, first, sizeof(*first)) == 0)
		h->pipelined = true;
	head_parse(m->head.ptr, m->head.len, HTTP_REQUEST, &info);
	x->head_method = sv_eq(info.head.method, SV("HEAD"));
	x->connect = sv_eq(info.head.method, SV("CONNECT"));
	x->upgrade = info.upgrade;
	x->unsure = m->unsure;
	exchange_saw(x, first);
	h->asking = x;
	h->sink.on_request(h->sink.ctx, x->xid, &info.head, first);
	next = request_body(x, &info, length);
	/* It comes so late that its response has gone by as nobody's: a younger one must not be taken for it. */
	if (!h->pipelined && has_gone_by(h, x))
		exchange_lose(h, x);
	unpark(h, false); /* may end x, and with an upgrade all: message_begin() minds that */
	return next;
}

static void on_request_body(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (!h->asking)
		return;
	exchange_saw(h->asking, at);
	h->sink.on_body(h->sink.ctx, h->asking->xid, HTTP_REQUEST, ptr, len, at);
}

static void on_request_gap(void *ctx, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct http1 *h = ctx;

	if (h->asking)
		body_gap(h, h->asking, HTTP_REQUEST, len, why, at);
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
	exchange_saw(x, at);
	h->sink.on_request_end(h->sink.ctx, x->xid, h->request.carried, at);
	exchange_settle(h, x);
}

/* Its response can be read all the same. Where its body ends is not known. */
static void request_unreadable(struct http1 *h)
{
	const struct stamp *first = message_first(&h->request);
	struct http_head head = {.protocol = "http/1.1", .unreadable = true};
	struct exchange *x;

	before_tell(h);
	if (h->count >= HTTP1_PIPELINE_MAX) {
		give_up(h);
		return;
	}
	x = request_new(h, first);
	if (!x)
		return;
	x->request_done = true;
	exchange_saw(x, first);
	h->sink.on_request(h->sink.ctx, x->xid, &head, first);
	unpark(h, false);
}

static bool on_request_lost(void *ctx, enum message_loss loss, enum http_gap why, const struct stamp *at)
{
	struct http1 *h = ctx;
	struct exchange *x = h->asking, *open = unanswered(h);

	if ((loss == LOSS_PARSE || loss == LOSS_HEAD) && !h->request.lost && !(open && open->upgrade))
		h->errors++;
	h->doubt = true;
	if (loss == LOSS_GAP && why == HTTP_GAP_LOST) {
		h->request_hole_ns = at->ts_ns;
		prove(h, false, at);
		x = h->asking;
	}
	if (h->pipelined && h->list)
		message_stop(&h->request);
	if (!x && loss == LOSS_HEAD && !h->request.lost)
		request_unreadable(h);
	if (!x)
		return false;
	if (h->request.state != MESSAGE_HEAD)
		body_gap(h, x, HTTP_REQUEST, UINT64_MAX, why, at);
	x->request_done = true; /* so that its response may end it */
	exchange_settle(h, x);
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
	buf_init(&h->park.bytes, HTTP1_PARK_BYTES * 2);
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
	park_release(&h->park);
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
			if (!park_full(h, len) && !waited_long(h, at->ts_ns))
				return park_add(&h->park, ptr, (struct park_run){*at, len, 0, HTTP_GAP_LOST});
			err = unpark(h, true);
			if (err)
				return err;
			continue;
		}
		advance(h, at);
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

/* Out of memory: what is outstanding is ended by http1_finish(), nothing more is read. */
static int failed(struct http1 *h, int err)
{
	if (err) {
		h->err = err;
		stop(h);
	}
	return err;
}

int http1_push(struct http1 *h, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	long n;

	if (h->finished || h->err || !len)
		return h->err;
	if (dir != h->client_dir)
		return failed(h, push_response(h, ptr, len, at));
	n = message_push(&h->request, ptr, len, at);
	return failed(h, n < 0 ? (int)n : h->err);
}

int http1_gap(struct http1 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	int err = 0;

	if (h->finished || h->err || !len)
		return h->err;
	if (dir == h->client_dir) {
		message_gap(&h->request, len, why, at);
		return 0;
	}
	if (h->response.state == MESSAGE_WAIT && park_full(h, 0))
		err = unpark(h, true);
	if (err)
		return failed(h, err);
	if (h->response.state == MESSAGE_WAIT)
		return failed(h, park_add(&h->park, NULL, (struct park_run){*at, 0, len, why}));
	message_gap(&h->response, len, why, at);
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
		failed(h, unpark(h, true));
	DL_FOREACH_SAFE (h->list, x, tmp) {
		if (!x->response_done || now_ns < x->end.ts_ns || now_ns - x->end.ts_ns < HTTP1_PARK_NS)
			continue;
		if (x->unproven && now_ns - x->end.ts_ns < HTTP1_PROOF_NS)
			continue;
		if (x->unproven)
			say_doubtful(h, x, &x->end);
		x->unproven = false;
		x->request_done = true;
		exchange_settle(h, x);
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
	x->request_done = true;
	x->unproven = false; /* nothing more was asked */
	if (x->response_done)
		exchange_settle(h, x);
	else if (x->lost && !x->orphan)
		exchange_lose(h, x);
	else
		exchange_abort(h, x, why, ts_ns);
}

void http1_finish(struct http1 *h, enum http_abort why, uint64_t ts_ns)
{
	if (h->finished)
		return;
	while (h->response.state == MESSAGE_WAIT && !h->err)
		failed(h, unpark(h, true));
	h->finished = true;
	while (h->list)
		finish_exchange(h, h->list, why, ts_ns);
	stop(h);
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
	return !h->finished && !h->err && !m->lost && (m->state == MESSAGE_LENGTH || m->state == MESSAGE_CHUNK_DATA)
		       ? m->left
		       : 0;
}

enum http1_upgrade http1_upgraded(const struct http1 *h)
{
	return h->upgrade;
}

void http1_set_raw(struct http1 *h, void *ctx,
		   void (*raw)(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at))
{
	h->raw_ctx = ctx;
	h->raw = raw;
}

void http1_set_h2c(struct http1 *h, void *ctx, int (*h2c)(void *ctx, uint64_t xid))
{
	h->h2c_ctx = ctx;
	h->h2c = h2c;
}
