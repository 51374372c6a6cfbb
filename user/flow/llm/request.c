/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>

#include "flow/proto/decode.h"
#include "request_scan.h"
#include "text.h"

struct request {
	struct lost *lost;
	struct decode *decode;
	struct jsonscan *scan;
	struct request_scan scanned;
};

static void on_decoded(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct request *r = ctx;

	(void)at;
	r->scanned.facts.identity = text_sum(r->scanned.facts.identity, ptr, len);
	jsonscan_push(r->scan, ptr, len);
}

struct request *request_new(const struct dialect *d, const struct http_head *h, struct lost *lost)
{
	struct decode_sink decode_sink = {.on_bytes = on_decoded};
	struct request *r = calloc(1, sizeof(*r));
	struct jsonscan_sink scan_sink;

	if (!r)
		return NULL;
	r->lost = lost;
	request_scan_init(&r->scanned, d);
	scan_sink = request_scan_sink(&r->scanned);
	decode_sink.ctx = r;
	r->scan = jsonscan_new(&scan_sink);
	r->decode = r->scan ? decode_new_of(h, &decode_sink) : NULL;
	if (!r->decode) {
		request_free(r);
		return NULL;
	}
	return r;
}

void request_set_dialect(struct request *r, const struct dialect *d)
{
	r->scanned.dialect = d;
}

void request_free(struct request *r)
{
	if (!r)
		return;
	decode_free(r->decode);
	jsonscan_free(r->scan);
	request_scan_release(&r->scanned);
	free(r);
}

static void note_decode_failure(struct request *r)
{
	struct request_facts *f = &r->scanned.facts;

	if (f->undecoded[0] || f->truncated || f->lossy)
		return; /* after a gap a compressed body is cut, not undecodable */
	text_copy(f->undecoded, sizeof(f->undecoded), sv_of(decode_undecoded(r->decode)));
	if (!f->undecoded[0])
		snprintf(f->undecoded, sizeof(f->undecoded), "request body");
	r->lost->n[LOST_DECODE_ERRORS]++;
}

void request_push(struct request *r, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (decode_push(r->decode, ptr, len, at) != DECODE_OK)
		note_decode_failure(r);
}

void request_gap(struct request *r, uint64_t len, bool capped)
{
	struct request_facts *f = &r->scanned.facts;

	f->truncated |= capped;
	f->lossy |= !capped;
	/* Bodies of which different parts are missing cannot be told to be the same. */
	f->identity += text_hash(0, &len, sizeof(len));
	decode_gap(r->decode);
	jsonscan_gap(r->scan);
}

size_t request_held(const struct request *r)
{
	return decode_held(r->decode);
}

static enum dialect_request family(const struct request *r)
{
	return r->scanned.dialect ? r->scanned.dialect->request : DIALECT_REQUEST_OPENAI;
}

/* System prompts: beside the messages, or among them; a body that ends has no more of them. */
static void report_system(const struct request *r, struct request_facts *out)
{
	const struct request_scan *s = &r->scanned;
	bool beside = family(r) != DIALECT_REQUEST_OPENAI;

	if (out->complete || (beside && s->system_ended))
		out->counts.system_bytes = s->system_bytes + (beside ? 0 : s->message_system_bytes);
}

/* What a body that was read to its end does not say. */
static void report_defaults(const struct request *r, struct request_facts *out)
{
	const struct request_scan *s = &r->scanned;

	if (!s->has_tools)
		out->counts.tools = 0;
	if (out->stream < 0)
		out->stream = s->dialect && s->dialect->stream_default;
	/* Anthropic's default; OpenAI's depends on the model. */
	if (out->counts.thinking < 0 && family(r) == DIALECT_REQUEST_ANTHROPIC)
		out->counts.thinking = 0;
}

void request_take_suffix(struct request *r, struct call *c)
{
	struct suffix *s = &r->scanned.suffix;
	struct request_facts *f = &r->scanned.facts;

	if (!f->complete || c->results)
		return;
	r->lost->n[LOST_NO_MEMORY] += s->no_memory;
	c->trigger = suffix_trigger(s);
	c->conversation = suffix_conversation(s);
	suffix_opening(s, c->opening);
	c->results = s->results;
	c->result_count = s->result_count;
	s->results = NULL;
	s->result_count = 0;
}

void request_report(struct request *r, bool ended, struct request_facts *out)
{
	struct request_facts *f = &r->scanned.facts;

	f->complete = ended && jsonscan_done(r->scan) && !f->truncated && !f->lossy && !f->undecoded[0];
	*out = *f;
	if (f->lossy || f->undecoded[0])
		out->identity = 0;
	report_system(r, out);
	if (!out->session[0] && r->scanned.codex)
		text_copy(out->session, sizeof(out->session), sv_of(r->scanned.cache_key));
	if (f->complete)
		report_defaults(r, out);
	if (family(r) == DIALECT_REQUEST_INPUT)
		out->counts.messages = out->counts.tools = out->counts.system_bytes = UNKNOWN_COUNT;
}
