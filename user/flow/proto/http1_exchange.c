/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Exchanges, and which response answers which request. */
#include "http1_state.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

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
 *    it, which has lost bytes of its response all the same, and is said to be in doubt (HTTP_GAP_DOUBT): half of these
 *    are another's. A request that turns up later, and is older than that response, has lost its own (LOSS).
 *  - whether bytes of requests are missing, too, shows when the next request comes. Until then the end of a response
 * that was found behind a hole is not told; when none comes for HTTP1_PROOF_NS, it is said to be lossy. The same holds
 * of chunks behind a hole: it may have held the end of one response, a request, and the head of another.
 * Until a request comes when nothing is outstanding, behind the last response, nothing tells that a client pipelines.
 * A connection seen to pipeline (a request began before the last byte of the response before it) gives time no meaning:
 * there, all that is outstanding ends at a loss of responses; after a loss of requests no further ones are read, and
 * what comes behind the responses of those that are outstanding are exchanges without a request.
 */

/* --- exchanges --------------------------------------------------------------------------------------------------- */

struct exchange *http1_exchange_new(struct http1 *h, uint64_t since_ns)
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
	if (h->refused == x)
		h->refused = NULL;
	DL_DELETE(h->list, x);
	h->count--;
	free(x);
}

void http1_exchange_abort(struct http1 *h, struct exchange *x, enum http_abort why, uint64_t ts_ns)
{
	uint64_t carried = h->answering == x ? h->response.carried : x->carried;

	h->sink.on_abort(h->sink.ctx, x->xid, why, carried, ts_ns);
	exchange_remove(h, x);
}

void http1_exchange_lose(struct http1 *h, struct exchange *x)
{
	http1_exchange_abort(h, x, HTTP_ABORT_LOSS, x->last_ns);
}

void http1_exchange_settle(struct http1 *h, struct exchange *x)
{
	if (!x->response_done || !x->request_done || x->unproven)
		return;
	h->sink.on_response_end(h->sink.ctx, x->xid, x->carried, &x->end);
	exchange_remove(h, x);
}

void http1_body_gap(struct http1 *h, struct exchange *x, enum http_side side, uint64_t len, enum http_gap why,
		    const struct stamp *at)
{
	h->sink.on_body_gap(h->sink.ctx, x->xid, side, len, why, at);
}

struct exchange *http1_unanswered(const struct http1 *h)
{
	struct exchange *x;

	DL_FOREACH (h->list, x) {
		if (!x->begun)
			return x;
	}
	return NULL;
}

struct exchange *http1_eligible(const struct http1 *h, const struct stamp *at)
{
	struct exchange *x = http1_unanswered(h);

	return x && x->since_ns <= at->ts_ns ? x : NULL;
}

static bool next_eligible(const struct exchange *x, const struct stamp *at)
{
	return x->next && !x->next->begun && x->next->since_ns <= at->ts_ns;
}

struct exchange *http1_orphan_new(struct http1 *h, const struct stamp *first)
{
	struct exchange *x = http1_exchange_new(h, first->ts_ns);

	if (!x)
		return NULL;
	x->orphan = x->request_done = x->begun = true;
	h->sink.on_request(h->sink.ctx, x->xid, NULL, first);
	return x;
}

void http1_stop(struct http1 *h)
{
	message_stop(&h->request);
	message_stop(&h->response);
}

void http1_give_up(struct http1 *h)
{
	h->errors++;
	while (h->list)
		http1_exchange_abort(h, h->list, HTTP_ABORT_PARSE, h->list->last_ns);
	http1_stop(h);
}

/* --- bytes at the front of a connection met in the middle -------------------------------------------------------- */

void http1_before_tell(struct http1 *h)
{
	struct exchange *x;

	if (!h->middle || !h->before_bytes)
		return;
	h->middle = false;
	x = http1_orphan_new(h, &h->before_first);
	if (x) {
		http1_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, &h->before_first);
		h->sink.on_abort(h->sink.ctx, x->xid, HTTP_ABORT_LOSS, h->before_bytes, h->before_last.ts_ns);
		exchange_remove(h, x);
	}
}

/* --- pairing ----------------------------------------------------------------------------------------------------- */

void http1_advance(struct http1 *h, const struct stamp *at)
{
	struct exchange *x = h->answering;

	if (!x || !h->response.lost || h->response.state == MESSAGE_HEAD || !http1_eligible(h, at))
		return;
	http1_exchange_lose(h, x);
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
	while ((x = http1_eligible(h, first))) {
		bool more = next_eligible(x, first);

		if (unsure && h->response.lost && h->pipelined && more) {
			while ((x = http1_eligible(h, first)))
				http1_exchange_lose(h, x);
			break;
		}
		if (!more || h->pipelined || (!unsure && !x->unsure && !x->lost))
			return x;
		http1_exchange_lose(h, x);
	}
	if (http1_unanswered(h)) /* younger than the response; and so will be all that follow */
		*orphan = true;
	return NULL;
}

static void upgraded(struct http1 *h, struct exchange *x, bool websocket)
{
	uint64_t ts_ns = h->response.head_end.ts_ns;
	bool asks_now = h->asking == x && h->request.state == MESSAGE_HEAD; /* its answer was there before */

	h->upgrade = websocket ? HTTP1_WEBSOCKET : HTTP1_OTHER_PROTOCOL;
	h->sink.on_abort(h->sink.ctx, x->xid, HTTP_ABORT_UPGRADE, h->response.head.len, ts_ns);
	exchange_remove(h, x);
	while (h->list)
		http1_exchange_abort(h, h->list, HTTP_ABORT_UPGRADE, ts_ns);
	http1_early_tell(h, asks_now, &h->response.head_end);
	message_stop(&h->request);
}

void http1_raw_gap(struct http1 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	if (h->raw_gap)
		h->raw_gap(h->raw_ctx, dir, len, why, at);
}

void http1_upgrade_unseen(struct http1 *h, struct exchange *x, const struct stamp *at)
{
	const struct http_head none = {.protocol = "http/1.1"};

	h->upgrade = HTTP1_WEBSOCKET;
	h->sink.on_response(h->sink.ctx, x->xid, &none, at);
	http1_exchange_abort(h, x, HTTP_ABORT_UPGRADE, at->ts_ns);
	while (h->list)
		http1_exchange_lose(h, h->list);
	http1_early_tell(h, false, at);
	h->unseen = true;
	h->unseen_at = *at;
	http1_stop(h);
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

void http1_say_doubtful(struct http1 *h, struct exchange *x, enum http_gap why, const struct stamp *at)
{
	if (!x->gap_told || why == HTTP_GAP_DOUBT)
		http1_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
	x->gap_told = true;
}

/* Bytes of responses are missing since x began, or were read out of step: this may be the response to a request that
 * is hidden, and x's was lost. So it is when requests lost bytes too, which may be known only when the next one comes.
 */
static void weigh(struct http1 *h, struct exchange *x)
{
	if (x->orphan)
		return;
	if (is_since(x, h->response_hole_ns) && is_since(x, h->request_hole_ns)) {
		http1_say_doubtful(h, x, HTTP_GAP_DOUBT, message_first(&h->response));
		return;
	}
	if (is_since(x, h->passed_ns))
		http1_say_doubtful(h, x, HTTP_GAP_LOST, message_first(&h->response));
	x->unproven = is_since(x, h->response_hole_ns) && !h->pipelined;
}

void http1_weigh_rest(struct http1 *h, struct exchange *x)
{
	if (x->orphan || h->pipelined)
		return;
	if (is_since(x, h->request_hole_ns))
		http1_say_doubtful(h, x, HTTP_GAP_DOUBT, &h->response.last);
	else
		x->unproven = true;
}

void http1_prove(struct http1 *h, bool whole, const struct stamp *at)
{
	struct exchange *x, *tmp;

	DL_FOREACH_SAFE (h->list, x, tmp) {
		if (!x->unproven)
			continue;
		x->unproven = false;
		if (!whole)
			http1_say_doubtful(h, x, HTTP_GAP_DOUBT, at);
		http1_exchange_settle(h, x);
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
	if (x->expect && x == h->asking && message_at_body(&h->request))
		h->refused_ns = h->response.head_end.ts_ns;
	if (h->doubt)
		h->paired_ns = message_first(&h->response)->ts_ns;
	weigh(h, x);
	http1_exchange_saw(x, &h->response.head_end);
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

enum message_next http1_pair(struct http1 *h, uint64_t *length, bool force)
{
	bool orphan;
	struct exchange *x = pick(h, message_first(&h->response), &orphan);

	if (!x && !orphan && !force)
		return NEXT_WAIT;
	if (!x && !orphan)
		x = http1_unended_request(h, message_first(&h->response));
	if (!x) {
		x = http1_orphan_new(h, message_first(&h->response));
		h->orphan_ns = message_first(&h->response)->ts_ns;
	}
	if (!x) {
		http1_stop(h);
		return NEXT_STOP;
	}
	return answer(h, x, length);
}
