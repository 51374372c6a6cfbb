/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP_RUN_H
#define TEST_HTTP_RUN_H

/* One script through an HTTP parser, under the contract of http.h: whole, in pieces, cut twice, with a range of bytes
 * missing, with every allocation failing. */

#include "flow/proto/http_parser.h"
#include "http_script.h"

struct http_run {
	const struct http_parser *parser;
	void *(*open)(struct http_run *r, const struct http_sink *sink); /* NULL: no memory */
	void (*check)(struct http_run *r, void *parser);		 /* after its end; NULL: nothing more */
	const void *scenario;						 /* for open() and check() */
	const char *name, *golden;
	unsigned want_errors;
	const struct script_step *steps;
	size_t count;
	enum http_abort why; /* how it ends */
	uint64_t end_ms;
	bool lacking;	   /* see struct contract */
	size_t full, near; /* see every_cut(), http_run_near_cuts() */
	size_t cut1, cut2; /* of all bytes of the script */
	size_t piece;	   /* not 0: everything in pieces of that size */
	struct guard guard;
	struct hlog log;
	struct contract contract;
	unsigned errors;
	int err;
	bool finishing; /* no allocation had failed before the end */
};

static inline size_t http_run_cut_after(const struct http_run *r, size_t from)
{
	if (r->piece)
		return from + r->piece;
	return from < r->cut1 ? r->cut1 : from < r->cut2 ? r->cut2 : SIZE_MAX;
}

/* Whatever state it is in, all of what it looks at is there. */
static inline void http_run_warm(struct http_run *r, const void *parser)
{
	struct warm w = {0};

	r->parser->warm(parser, &w);
	assert_true(w.count >= 2);
}

/* Time does nothing to one that does not wait for it. */
static inline void http_run_idle(struct http_run *r, void *parser, uint64_t ts_ns)
{
	if (!r->parser->waits(parser))
		r->parser->tick(parser, ts_ns + MS(86400000));
}

static inline int http_run_push(struct http_run *r, void *parser, const struct script_step *s, size_t base)
{
	struct stamp at = step_stamp(s);
	size_t len = step_len(s), done = 0;
	int err = 0;

	while (done < len && !err) {
		size_t n = http_run_cut_after(r, base + done) - base - done;

		if (n > len - done)
			n = len - done;
		err = r->parser->push(parser, s->dir, guard_copy(&r->guard, s->text + done, n), n, &at);
		done += n;
		http_run_idle(r, parser, at.ts_ns);
		http_run_warm(r, parser);
	}
	return err;
}

static inline int http_run_steps(struct http_run *r, void *parser)
{
	size_t base = 0;
	int err = 0;

	for (size_t i = 0; i < r->count && !err; i++) {
		const struct script_step *s = &r->steps[i];
		struct stamp at = step_stamp(s);

		if (s->text)
			err = http_run_push(r, parser, s, base);
		else if (s->gap)
			err = r->parser->gap(parser, s->dir, s->gap, s->why, &at);
		else
			r->parser->tick(parser, MS(s->ts_ms));
		http_run_idle(r, parser, at.ts_ns);
		base += step_len(s);
	}
	/* what a tick ran into */
	return err ? err : r->parser->push(parser, DIR_TX, NULL, 0, &(struct stamp){0});
}

/* What it told is in r->log, how it went in the fields behind it. */
static inline void http_run_once(struct http_run *r)
{
	struct http_sink sink;
	void *parser;

	r->contract = (struct contract){.next = hlog_sink(&r->log), .lacking = r->lacking};
	sink = contract_sink(&r->contract);
	parser = r->open(r, &sink);
	r->err = parser ? http_run_steps(r, parser) : -ENOMEM;
	r->finishing = !fail_nth_hit();
	if (parser) {
		r->parser->finish(parser, r->why, MS(r->end_ms));
		r->parser->finish(parser, r->why, MS(r->end_ms));
		r->errors = r->parser->errors(parser);
		assert_int_equal(r->parser->requests(parser), r->contract.requests);
		if (r->check)
			r->check(r, parser);
		r->parser->release(parser);
	}
	hlog_flush(&r->log);
	assert_int_equal(r->contract.open_count, 0);
}

static inline void http_run_clear(struct http_run *r)
{
	r->log.log.len = 0;
	if (r->log.log.text)
		r->log.log.text[0] = '\0';
}

static inline void http_run_release(struct http_run *r)
{
	hlog_free(&r->log);
	guard_free(&r->guard);
}

static inline void http_run_check(struct http_run *r)
{
	http_run_once(r);
	if (strcmp(r->log.log.text ? r->log.log.text : "", r->golden) || r->errors != r->want_errors) {
		print_error("%s, cuts %zu %zu, pieces of %zu, errors %u:\n%s--- is not\n%s", r->name, r->cut1, r->cut2,
			    r->piece, r->errors, r->log.log.text, r->golden);
		fail();
	}
	http_run_clear(r);
}

static inline void http_run_cut(void *ctx, size_t cut1, size_t cut2)
{
	struct http_run *r = ctx;

	r->cut1 = cut1;
	r->cut2 = cut2;
	http_run_check(r);
}

/* Whole, and in pieces of 1 to 11 bytes. */
static inline void http_run_pieces(struct http_run *r)
{
	r->cut1 = r->cut2 = SIZE_MAX;
	for (r->piece = 0; r->piece < 12; r->piece++)
		http_run_check(r);
	r->piece = 0;
}

/* Every pair of cuts of a script of at most r->full bytes, of a longer one some. */
static inline void http_run_cuts(struct http_run *r)
{
	every_cut(script_len(r->steps, r->count), r->full, http_run_cut, r);
}

/* Every pair of cuts that are less than r->near bytes apart: where line ends and frame headers are. */
static inline void http_run_near_cuts(struct http_run *r)
{
	size_t len = script_len(r->steps, r->count);

	for (size_t a = 0; a <= len; a++)
		for (size_t b = a; b <= len && b < a + r->near; b++)
			http_run_cut(r, a, b);
}

/* Every allocation fails once: no crash, no leak, the contract holds, and it is told. */
static inline void http_run_no_memory(struct http_run *r)
{
	bool hit = true;

	r->check = NULL;
	r->piece = 7;
	for (unsigned n = 1; hit; n++) {
		guard_free(&r->guard);
		fail_nth(n);
		http_run_once(r);
		hit = fail_nth_hit();
		fail_nth(0);
		if (hit && !r->finishing)
			assert_int_equal(r->err, -ENOMEM);
		http_run_clear(r);
	}
}

/* The steps with a gap instead of [from, to) of one of them. `out` has room for two more. Returns how many there are.
 */
static inline size_t script_with_gap(const struct script_step *steps, size_t count, size_t victim, size_t from,
				     size_t to, bool known, struct script_step *out)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		struct script_step a = steps[i], gap = a, b = a;

		if (i != victim) {
			out[n++] = a;
			continue;
		}
		a.len = from;
		gap.text = NULL;
		gap.len = 0;
		gap.gap = known ? to - from : UINT64_MAX;
		gap.why = HTTP_GAP_LOST;
		b.text += to;
		b.len = step_len(&steps[i]) - to;
		if (from)
			out[n++] = a;
		out[n++] = gap;
		if (b.len)
			out[n++] = b;
	}
	return n;
}

#endif
