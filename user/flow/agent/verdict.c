/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verdict.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

#define ALL_SHARE     0.995 /* more of a part is all of it */
#define PERCENT_SHOWN 1.0   /* parts below are left out of the sentence; they are in parts_ms */

static double percent(const struct walltime_report *w, enum time_part p)
{
	return w->total_ns ? 100.0 * (double)w->part_ns[p] / (double)w->total_ns : 0;
}

enum verdict_confidence verdict_confidence(const struct verdict_facts *f)
{
	double unsure = percent(f->wall, PART_UNKNOWN) + percent(f->wall, PART_AGENT_GAP) +
			(f->wall->total_ns ? 100.0 * (double)f->wall->pushed_late_ns / (double)f->wall->total_ns : 0);

	if (unsure <= 5 && !f->lossy)
		return VERDICT_HIGH;
	return unsure <= 25 ? VERDICT_MEDIUM : VERDICT_LOW;
}

static const char *confidence_name(enum verdict_confidence c)
{
	static const char *const names[] = {"low", "medium", "high"};

	return names[c];
}

/* What each part is to a person: as the subject of the sentence, and in the list behind it. */
static const struct {
	const char *subject, *listed;
} words[PART_COUNT] = {
	[PART_CONNECT] = {"connecting", "connect"},
	[PART_NETWORK] = {"the network", "network"},
	[PART_FIRST_TOKEN] = {"waiting for the first token", "first token"},
	[PART_GENERATION] = {"generation", "generation"},
	[PART_STALL] = {"stalls inside answers", "stalls"},
	[PART_TOOL] = {"tools", "tools"},
	[PART_RETRY_WAIT] = {"waiting before retries", "retry waits"},
	[PART_CLIENT] = {"the client reading late or busy", "client"},
	[PART_AGENT_GAP] =
		{"the agent between an answer and its next request (tools inside it, approval, its own work)",
		 "agent gap (upper bound of tools)"},
	[PART_USER] = {"idle (user or scheduler)", "user"},
	[PART_UNKNOWN] = {"unknown", "unknown"},
};

/* The limits are where rounding would make a digit more. */
static int put_seconds(struct buf *out, uint64_t ns)
{
	double s = (double)ns / 1e9;

	return s < 0.9995 ? buf_printf(out, "%.0f ms", s * 1e3) : buf_printf(out, s < 9.995 ? "%.2f s" : "%.1f s", s);
}

/* " of m", " mostly of m", " (largest part m, 41 %)" */
static int name_model(struct buf *out, const char *word, const char *model, double share)
{
	if (share > 0.5)
		return buf_printf(out, " %s%s %.64s", share > ALL_SHARE ? "" : "mostly ", word, model);
	return buf_printf(out, " (largest part %.64s, %.0f %%)", model, 100 * share);
}

static int put_tool(struct buf *out, const struct verdict_facts *f)
{
	int err = buf_puts(out, " (");

	if (!err && f->tool_share > 0.5)
		err = buf_printf(out, "%s%.64s", f->tool_share > ALL_SHARE ? "" : "mostly ", f->tool);
	else if (!err)
		err = buf_printf(out, "largest part %.64s, %.0f %%", f->tool, 100 * f->tool_share);
	if (!err && f->program)
		err = buf_printf(out, ", last %.64s", f->program);
	return err ? err : buf_putc(out, ')');
}

static int put_evidence(struct buf *out, const struct verdict_facts *f, enum time_part p)
{
	int err = 0;

	if (p == PART_FIRST_TOKEN && f->model && f->model_share > 0)
		err = name_model(out, "of", f->model, f->model_share);
	if (p == PART_GENERATION && f->writer && f->writer_share > 0)
		err = name_model(out, "by", f->writer, f->writer_share);
	if (p == PART_FIRST_TOKEN && f->ttft_p50_ns && !err) {
		err = buf_puts(out, " (p50 ");
		err = err ? err : put_seconds(out, f->ttft_p50_ns);
		err = err ? err : buf_putc(out, ')');
	}
	if (p == PART_TOOL && f->tool && f->tool_share > 0 && !err)
		err = put_tool(out, f);
	return err;
}

struct share {
	enum time_part part;
	double percent;
};

static int larger_first(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	if (x->percent != y->percent)
		return x->percent < y->percent ? 1 : -1;
	return (int)x->part - (int)y->part;
}

static void sort_parts(const struct walltime_report *w, struct share out[PART_COUNT])
{
	for (unsigned p = 0; p < PART_COUNT; p++)
		out[p] = (struct share){p, percent(w, p)};
	qsort(out, PART_COUNT, sizeof(out[0]), larger_first);
}

int verdict_text(struct buf *out, const struct verdict_facts *f)
{
	struct share shares[PART_COUNT];
	int err;

	if (!f->wall->total_ns)
		return 0;
	sort_parts(f->wall, shares);
	err = buf_printf(out, "%.0f %% of ", shares[0].percent);
	err = err ? err : put_seconds(out, f->wall->total_ns);
	err = err ? err : buf_printf(out, " was %s", words[shares[0].part].subject);
	err = err ? err : put_evidence(out, f, shares[0].part);
	for (unsigned i = 1; i < PART_COUNT && !err && shares[i].percent >= PERCENT_SHOWN; i++) {
		err = buf_printf(out, "%s%s %.0f %%", i == 1 ? "; " : ", ", words[shares[i].part].listed,
				 shares[i].percent);
		err = err ? err : put_evidence(out, f, shares[i].part);
	}
	return err ? err : buf_printf(out, "; confidence %s", confidence_name(verdict_confidence(f)));
}

void verdict_json(struct json *j, const struct verdict_facts *f)
{
	struct buf text;

	if (!f->wall->total_ns)
		return;
	buf_init(&text, 0); /* bounded by the texts' limits */
	if (verdict_text(&text, f) && !j->err)
		j->err = -ENOMEM;
	json_string(j, "verdict", (struct sv){text.ptr, text.len});
	buf_release(&text);
	json_string(j, "confidence", sv_of(confidence_name(verdict_confidence(f))));
	json_double(j, "wall_ms", (double)f->wall->total_ns / 1e6, 3);
	json_object(j, "parts_ms");
	for (unsigned p = 0; p < PART_COUNT; p++)
		if (f->wall->part_ns[p])
			json_double(j, time_part_name(p), (double)f->wall->part_ns[p] / 1e6, 3);
	json_end_object(j);
	json_double(j, "overlap_ms", (double)f->wall->overlap_ns / 1e6, 3);
}
