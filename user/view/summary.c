/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "views.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "base/quantile.h"
#include "base/sockaddr.h"
#include "format.h"

#define COVERAGE_ROWS 20   /* more processes: one row for all of a name */
#define SAMPLES_MAX   8192 /* of one quantity: exact up to there, a fair sample of all above */

struct quantity {
	float value[SAMPLES_MAX];
	uint64_t seen; /* ever */
	bool sorted;
};

enum { CLASSES = CALL_COUNT + 1 };

struct summary {
	uint64_t calls[CLASSES];
	uint64_t failed, incomplete, lossy, mid_attach, undecoded, evicted;
	uint64_t to_callers;
	uint64_t input, output, reasoning, with_input, with_output, without_usage;
	uint64_t cache_read, cache_of; /* sums over the calls that report both */
	uint64_t random;	       /* state of the sampler: the same calls give the same summary */
	struct quantity ttft_ms, decode_tok_s, total_ms;
	uint64_t mcp, mcp_failed, mcp_incomplete;
	struct quantity tool_ms;
	struct shape_table *db, *served, *called, *attempts, *lookups;
};

struct summary *summary_new(void)
{
	struct summary *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->random = 88172645463325252u;
	s->db = shape_table_new();
	s->served = shape_table_new();
	s->called = shape_table_new();
	s->attempts = shape_table_new();
	s->lookups = shape_table_new();
	if (s->db && s->served && s->called && s->attempts && s->lookups)
		return s;
	summary_free(s);
	return NULL;
}

void summary_free(struct summary *s)
{
	if (!s)
		return;
	shape_table_free(s->db);
	shape_table_free(s->served);
	shape_table_free(s->called);
	shape_table_free(s->attempts);
	shape_table_free(s->lookups);
	free(s);
}

/* --- collecting -------------------------------------------------------------------------------------------------- */

/* xorshift64: no security is asked of it. */
static uint64_t next_random(struct summary *s)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random;
}

static void add(struct summary *s, struct quantity *q, double value)
{
	uint64_t at;

	if (!isfinite(value))
		return;
	q->sorted = false;
	at = q->seen++;
	if (at >= SAMPLES_MAX)
		at = next_random(s) % q->seen;
	if (at < SAMPLES_MAX)
		q->value[at] = (float)value;
}

static bool failed(const struct call *c)
{
	return c->error || c->status >= 400;
}

/* Failed, cut and helper calls would make the percentiles of the real ones look better or worse than they are. */
static bool counts_for_percentiles(const struct call *c)
{
	return !failed(c) && (c->end == END_COMPLETE || c->whole) && !c->unfinished && !c->lossy &&
	       (c->class == CALL_MAIN || c->class == CALL_SUBAGENT);
}

static void add_tokens(struct summary *s, const struct call *c)
{
	/* Embeddings have no output, so that theirs is not missing. */
	bool embeddings = sv_eq(sv_of(c->operation), SV("embeddings"));
	const struct usage *u = &c->usage;
	int64_t output = call_output_total(c);

	if (u->source == USAGE_NONE) {
		s->without_usage++;
		return;
	}
	s->with_input += u->input_total >= 0;
	s->with_output += output >= 0;
	s->without_usage += u->input_total < 0 || (output < 0 && !embeddings);
	if (u->input_total > 0)
		s->input += (uint64_t)u->input_total;
	if (output > 0)
		s->output += (uint64_t)output;
	if (u->reasoning > 0 && output >= 0)
		s->reasoning += (uint64_t)u->reasoning;
	if (u->cache_read >= 0 && u->input_total > 0) {
		s->cache_read += (uint64_t)u->cache_read;
		s->cache_of += (uint64_t)u->input_total;
	}
}

void summary_push(struct summary *s, const struct call *c)
{
	s->calls[(unsigned)c->class < CLASSES ? c->class : CALL_MAIN]++;
	s->failed += failed(c);
	s->incomplete += (c->end != END_COMPLETE && !c->whole) || c->unfinished;
	s->evicted += c->end == END_EVICTED;
	s->lossy += c->lossy;
	s->mid_attach += c->mid_attach;
	s->undecoded += c->undecoded != NULL;
	s->to_callers += c->to_caller;
	add_tokens(s, c);
	if (!counts_for_percentiles(c))
		return;
	add(s, &s->ttft_ms, call_ms(c, c->first_token_ns));
	add(s, &s->decode_tok_s, call_decode_tok_s(c));
	add(s, &s->total_ms, call_ms(c, c->end_ns));
}

void summary_push_mcp(struct summary *s, const struct mcp_call *c)
{
	bool complete = c->end == END_COMPLETE && !c->unfinished;

	s->mcp++;
	s->mcp_failed += c->error != NULL;
	s->mcp_incomplete += !complete;
	if (complete && !c->error && !c->lossy && c->method && !strcmp(c->method, "tools/call"))
		add(s, &s->tool_ms, (double)(c->end_ns - c->start_ns) / 1e6);
}

static uint64_t between(uint64_t begin_ns, uint64_t end_ns)
{
	return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

/* "redis GET ?" */
void summary_push_db(struct summary *s, const struct db_command *c)
{
	struct buf text;

	buf_init(&text, 0); /* bounded by the limit of a shape */
	if (!buf_printf(&text, "%s ", c->system) &&
	    !buf_push(&text, c->shape.len ? c->shape.ptr : "-", c->shape.len ? c->shape.len : 1))
		shape_table_push(s->db, (struct sv){text.ptr, text.len},
				 c->unfinished ? UNKNOWN_NS : between(c->start_ns, c->end_ns), c->rows, *c->error != 0);
	buf_release(&text);
}

/* "ECONNREFUSED localhost 127.0.0.1:443" */
void summary_push_attempt(struct summary *s, const struct attempt *a, const char *host)
{
	char words[ATTEMPT_ERROR_BYTES];
	const char *error = attempt_error(a, words);
	char peer[SOCK_ADDR_TEXT_BYTES];
	struct buf text;

	buf_init(&text, 0); /* bounded by the length of names */
	if (!buf_printf(&text, "%s %s%s%s",
			error		? error
			: a->unfinished ? "unanswered"
					: "given up",
			host, *host ? " " : "", sock_addr_text(peer, &a->remote)))
		shape_table_push(s->attempts, (struct sv){text.ptr, text.len}, between(a->begin_ns, a->end_ns),
				 UNKNOWN_COUNT, !a->unfinished);
	buf_release(&text);
}

/* "unanswered api.example.com". A resolver waits for every kind of address, and may fail for want of one. */
void summary_push_lookup(struct summary *s, const struct dns_lookup *l)
{
	bool answered = l->end_ns != UNKNOWN_NS && !(l->addr_count && l->unanswered);
	const char *what = answered ? "no address" : l->addr_count ? "unanswered in part" : "unanswered";
	struct buf text;

	if (answered && l->addr_count)
		return;
	buf_init(&text, 0); /* bounded by the length of names */
	if (!buf_printf(&text, "%s %s", what, l->name))
		shape_table_push(s->lookups, (struct sv){text.ptr, text.len},
				 answered ? between(l->begin_ns, l->end_ns) : UNKNOWN_NS, UNKNOWN_COUNT, true);
	buf_release(&text);
}

/* "GET /users/:id Show". One that was met in the middle, or whose end was not seen, has no duration. */
void summary_push_http(struct summary *s, const struct http_operation *o)
{
	bool open = o->unfinished || o->end == END_EVICTED || o->end == END_CAPTURE_LOSS || o->end == END_CAPTURE_END;
	struct buf text;

	if (o->mid_attach)
		return;
	buf_init(&text, 0); /* bounded by the limit of each text */
	if (!buf_printf(&text, "%s %s%s%s", o->method ? o->method : "-", o->route ? o->route : "-", o->label ? " " : "",
			o->label ? o->label : ""))
		shape_table_push(o->server ? s->served : s->called, (struct sv){text.ptr, text.len},
				 open ? UNKNOWN_NS : between(o->start_ns, o->end_ns), UNKNOWN_COUNT,
				 o->status >= 400 || (o->end != END_COMPLETE && !open));
	buf_release(&text);
}

/* --- percentiles ------------------------------------------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static size_t kept(const struct quantity *q)
{
	return q->seen < SAMPLES_MAX ? (size_t)q->seen : SAMPLES_MAX;
}

static double percentile(struct quantity *q, double share)
{
	if (!q->sorted && kept(q))
		qsort(q->value, kept(q), sizeof(q->value[0]), compare_floats);
	q->sorted = true;
	return quantile_of_floats(q->value, kept(q), share);
}

typedef const char *format_fn(char out[FORMAT_BYTES], double value);

static int render_quantity(struct buf *out, const char *name, struct quantity *q, format_fn *format)
{
	static const double at[] = {0.5, 0.9, 0.95, 0.99};
	char text[ARRAY_SIZE(at)][FORMAT_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		format(text[i], percentile(q, at[i]));
	return buf_printf(out, "  %-14s p50 %7s  p90 %7s  p95 %7s  p99 %7s  (%s%" PRIu64 " call%s)\n", name, text[0],
			  text[1], text[2], text[3], q->seen > SAMPLES_MAX ? "sampled from " : "", q->seen,
			  q->seen == 1 ? "" : "s");
}

/* --- text -------------------------------------------------------------------------------------------------------- */

static int render_flag(struct buf *out, const char *name, uint64_t n)
{
	return n ? buf_printf(out, ", %" PRIu64 " %s", n, name) : 0;
}

static int render_calls(const struct summary *s, struct buf *out, uint64_t duration_ns)
{
	char duration[FORMAT_BYTES];
	uint64_t total = 0;
	int err;

	for (int i = 0; i < CLASSES; i++)
		total += s->calls[i];
	err = buf_printf(out, "%" PRIu64 " model call%s in %s", total, total == 1 ? "" : "s",
			 format_ms(duration, (double)duration_ns / 1e6));
	for (int i = 0; i < CLASSES && !err && s->calls[CALL_MAIN] != total; i++)
		err = s->calls[i]
			      ? buf_printf(out, ", %" PRIu64 " %s", s->calls[i], call_class_name((enum call_class)i))
			      : 0;
	if (!err)
		err = render_flag(out, "failed", s->failed);
	if (!err)
		err = render_flag(out, "not finished", s->incomplete);
	if (!err)
		err = render_flag(out, "evicted", s->evicted);
	if (!err)
		err = render_flag(out, "lossy", s->lossy);
	if (!err)
		err = render_flag(out, "already running", s->mid_attach);
	if (!err)
		err = render_flag(out, "undecoded", s->undecoded);
	return err ? err : buf_putc(out, '\n');
}

/* "in 141k (85% cached)", or where some calls do not say what was cached, "in 141k (85% of 120k cached)". */
static int render_input(const struct summary *s, struct buf *out)
{
	char in[FORMAT_BYTES], hit[FORMAT_BYTES], of[FORMAT_BYTES];
	bool all = !s->cache_of || s->cache_of == s->input;

	format_count(in, s->with_input ? (int64_t)s->input : UNKNOWN_COUNT);
	format_percent(hit, s->cache_of ? (double)s->cache_read / (double)s->cache_of : NAN);
	format_count(of, (int64_t)s->cache_of);
	return buf_printf(out, "  %-14s in %s (%s%s%s cached)", "tokens", in, hit, all ? "" : " of ", all ? "" : of);
}

static int render_tokens(const struct summary *s, struct buf *out)
{
	char output[FORMAT_BYTES], reasoning[FORMAT_BYTES];
	int err = render_input(s, out);

	format_count(output, s->with_output ? (int64_t)s->output : UNKNOWN_COUNT);
	format_count(reasoning, (int64_t)s->reasoning);
	if (!err)
		err = buf_printf(out, "  out %s", output);
	if (!err && s->reasoning)
		err = buf_printf(out, " (%s reasoning)", reasoning);
	if (!err && s->without_usage)
		err = buf_printf(out, "  (%" PRIu64 " call%s without a count)", s->without_usage,
				 s->without_usage == 1 ? "" : "s");
	return err ? err : buf_putc(out, '\n');
}

static int render_twice(const struct summary *s, struct buf *out)
{
	if (!s->to_callers)
		return 0;
	return buf_printf(out,
			  "  %" PRIu64
			  " of the calls went to a process that is traced too and makes calls itself: those that "
			  "it passed on are counted twice\n",
			  s->to_callers);
}

static int render_mcp(struct summary *s, struct buf *out)
{
	int err;

	if (!s->mcp)
		return 0;
	err = buf_printf(out, "%" PRIu64 " MCP request%s", s->mcp, s->mcp == 1 ? "" : "s");
	if (!err)
		err = render_flag(out, "failed", s->mcp_failed);
	if (!err)
		err = render_flag(out, "not finished", s->mcp_incomplete);
	if (!err)
		err = buf_putc(out, '\n');
	return err || !s->tool_ms.seen ? err : render_quantity(out, "tool call", &s->tool_ms, format_ms);
}

static int render_lost(struct buf *out, const struct lost *l)
{
	int err = 0;

	if (!lost_total(l))
		err = buf_puts(out, "nothing lost\n");
	else
		err = buf_puts(out, "lost:\n");
	for (int i = 0; i < LOST_COUNT && !err; i++) {
		if (l->n[i])
			err = buf_printf(out, "  %12" PRIu64 "  %s\n", l->n[i], lost_text((enum lost_id)i));
	}
	if (!err && l->evicted_calls)
		err = buf_printf(out, "%" PRIu64 " stale call%s closed (%" PRIu64 " byte%s came after)\n",
				 l->evicted_calls, format_plural((double)l->evicted_calls), l->late_bytes,
				 format_plural((double)l->late_bytes));
	if (!err && l->capped_bytes)
		err = buf_printf(
			out,
			"%" PRIu64
			" byte%s not copied: over the limit of a request, or of an answer that was served; no loss\n",
			l->capped_bytes, format_plural((double)l->capped_bytes));
	if (!err && l->ignored_bytes)
		err = buf_printf(out, "not copied: %" PRIu64 " byte%s of connections that carry no model calls\n",
				 l->ignored_bytes, format_plural((double)l->ignored_bytes));
	return err;
}

struct table {
	struct buf *out;
	uint64_t rows;
	int err;
};

static void render_row(void *ctx, const struct coverage_row *r)
{
	char name[40], who[80], reason[96];
	struct table *t = ctx;

	if (t->err)
		return;
	if (!t->rows++)
		t->err = buf_printf(t->out, "%-24s %6s %8s %10s %7s %6s %6s\n", "coverage", "conns", "decoded",
				    "undecoded", "served", "empty", "calls");
	log_safe(name, sizeof(name), r->process[0] ? sv_of(r->process) : SV_NONE);
	if (r->processes > 1)
		snprintf(who, sizeof(who), "%s (%" PRIu64 " processes)", name, r->processes);
	else if (r->processes == 1 && r->pid)
		snprintf(who, sizeof(who), "%s[%u]", name, r->pid);
	else
		snprintf(who, sizeof(who), "%s", name);
	if (!t->err)
		t->err = buf_printf(
			t->out, "  %-22s %6" PRIu64 " %8" PRIu64 " %10" PRIu64 " %7" PRIu64 " %6" PRIu64 " %6" PRIu64,
			who, r->connections, r->kinds[COVERAGE_DECODED], r->kinds[COVERAGE_UNDECODED],
			r->kinds[COVERAGE_SERVED], r->kinds[COVERAGE_EMPTY], r->calls);
	if (!t->err && r->reason[0])
		t->err = buf_printf(t->out, "  undecoded: %s", log_safe(reason, sizeof(reason), sv_of(r->reason)));
	if (!t->err)
		t->err = buf_putc(t->out, '\n');
}

#define VERDICT_BYTES 1024 /* of its line; a usual one has 200 */

int view_verdict_line(struct buf *out, struct sv verdict)
{
	char safe[VERDICT_BYTES];

	return buf_printf(out, "verdict: %s\n", log_safe(safe, sizeof(safe), verdict));
}

static const struct shape_words served_words = {"HTTP request", " served", "route", false};
static const struct shape_words called_words = {"HTTP request", " made", "route", false};
static const struct shape_words attempt_words = {"connection", " not made", "peer", false};
static const struct shape_words lookup_words = {"name", " not found", "name", false};
static const struct shape_words db_words = {"database command", "", "shape", true};

int summary_render(struct summary *s, struct buf *out, const struct lost *lost, const struct coverage *coverage,
		   uint64_t duration_ns)
{
	struct table table = {.out = out};
	int err = render_calls(s, out, duration_ns);

	if (!err)
		err = render_tokens(s, out);
	if (!err)
		err = render_twice(s, out);
	if (!err)
		err = render_quantity(out, "ttft", &s->ttft_ms, format_ms);
	if (!err)
		err = render_quantity(out, "decode tok/s", &s->decode_tok_s, format_rate);
	if (!err)
		err = render_quantity(out, "total", &s->total_ms, format_ms);
	if (!err)
		err = render_mcp(s, out);
	if (!err)
		err = shape_table_render(s->lookups, out, &lookup_words);
	if (!err)
		err = shape_table_render(s->attempts, out, &attempt_words);
	if (!err)
		err = shape_table_render(s->served, out, &served_words);
	if (!err)
		err = shape_table_render(s->called, out, &called_words);
	if (!err)
		err = shape_table_render(s->db, out, &db_words);
	if (!err)
		err = render_lost(out, lost);
	if (err)
		return err;
	err = coverage_each_grouped(coverage, COVERAGE_ROWS, render_row, &table);
	if (err)
		return err;
	if (!table.err && !table.rows)
		table.err = buf_puts(out, "coverage: no TLS or HTTP connection carried anything\n");
	return table.err;
}
