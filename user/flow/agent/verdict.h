/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_VERDICT_H
#define FLOW_AGENT_VERDICT_H

/*
 * Why was it slow, in one sentence: where wall time went, the largest part first, with its evidence, and how sure that
 * is. Every part of 1 % or more is named, unknown time too. What makes up more than half of a part is "mostly" so; less
 * is told with its share.
 */

#include "base/buf.h"
#include "base/json.h"
#include "walltime.h"

struct verdict_facts {
	const struct walltime_report *wall;
	const char *model;   /* with the longest waits for first tokens; NULL unknown. Captured text */
	const char *writer;  /* model that generated longest; NULL unknown. Captured text */
	const char *tool;    /* that ran longest; NULL none. Captured text */
	const char *program; /* that it ran last; NULL none. Captured text */
	/* Of all waits, of all generation, of all time of tools; 0: unknown, then the name is not told. */
	double model_share, writer_share, tool_share;
	uint64_t ttft_p50_ns; /* of the model; 0 unknown */
	bool lossy;	      /* something was lost, or a call was not decoded */
};

enum verdict_confidence { VERDICT_LOW, VERDICT_MEDIUM, VERDICT_HIGH };
/* high: at most 5 % of the time unknown or an upper bound, and nothing was lost; medium: at most 25 %; else low. */
enum verdict_confidence verdict_confidence(const struct verdict_facts *f);

/* "72 % of 58.2 s was waiting for the first token of claude-x (p50 1.90 s); tools 18 % (mostly Bash, last npm),
 * unknown 10 %; confidence medium". Nothing is written when no time went by. 0 or -errno of the buffer. Not fit for a
 * terminal as it is: names are captured text. */
int verdict_text(struct buf *out, const struct verdict_facts *f);
/* Members "verdict", "confidence", "wall_ms", "parts_ms" {… what is not 0} and "overlap_ms" of the object that is open
 * in j; none of them when no time went by. */
void verdict_json(struct json *j, const struct verdict_facts *f);

#endif
