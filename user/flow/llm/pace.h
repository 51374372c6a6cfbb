/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_PACE_H
#define FLOW_LLM_PACE_H

/* How an answer came: chunks of content, the silences between them, and its stretches by content kind. Private child of
 * answer. */

#include "base/quantile.h"
#include "base/warm.h"
#include "call.h"

struct pace { /* zero: nothing came */
	int64_t chunks, stalls, max_gap_ns;
	uint64_t last_ns;
	struct quantile *gaps;	       /* owned; from the second chunk on */
	struct interval *stall_at;     /* owned; has room for one more, but past CALL_STALLS_MAX */
	struct call_segment *segments; /* owned */
	size_t stall_count, stall_room, segment_count;
	int64_t segments_left_out;
	enum token_kind kind; /* of the latest content */
	bool missing;	      /* something is, since then */
};

void pace_warm(const struct pace *p, struct warm *w); /* adds what pace_push() looks at, beside *p */
void pace_release(struct pace *p);
/* Content of that kind came at ts_ns; several kinds at once are several pushes. Without memory the details are left
 * out: -ENOMEM. */
int pace_push(struct pace *p, enum token_kind kind, uint64_t ts_ns, bool new_chunk);
/* Bytes are missing: the silence before the next chunk may be none, and all counts are too small. */
void pace_missing(struct pace *p);
/* Then: the stalls that were seen, which are stalls all the same. */
void pace_report_stalls(const struct pace *p, struct call *c);
/* Fills chunks, stalls, gaps and segments of c. Arrays stay owned by p. */
void pace_report(const struct pace *p, struct call *c);
/* The silence behind the last chunk of an answer that was not finished, up to c->end_ns, where it is a stall: what
 * hangs may never send another one. It is no gap between chunks. After pace_report(). */
void pace_report_end(const struct pace *p, struct call *c);

#endif
