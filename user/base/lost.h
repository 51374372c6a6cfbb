/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_LOST_H
#define BASE_LOST_H

/*
 * Loss is data: every way in which bytes or spans can be missing has one counter here, is named once, and ends in
 * metadata.lost and in the summary. EV_STATS in bpf/event.h says which of them the kernel counts, and a capture holds.
 * A line may be put anywhere: whoever reads goes by name.
 */

#include <stdint.h>

/* X(ID, json name, what a user reads in the summary) */
#define LOST_COUNTERS(X)                                                                                               \
	X(LOST_RING_RECORDS, "ring_records", "records dropped: ring buffer full")                                      \
	X(LOST_RING_BYTES, "ring_bytes", "bytes dropped: ring buffer full")                                            \
	X(LOST_STATE_FULL, "state_full", "kernel state map full")                                                      \
	X(LOST_NEST_OVERFLOW, "nest_overflow", "nested TLS calls over the limit")                                      \
	X(LOST_MISSED_RETURNS, "missed_returns", "calls whose return was not seen (TLS, -f)")                          \
	X(LOST_FAULTS, "faults", "unreadable user memory")                                                             \
	X(LOST_UNSEEN_BYTES, "unseen_bytes", "bytes moved where no probe looks")                                       \
	X(LOST_BAD_RECORDS, "bad_records", "malformed records")                                                        \
	X(LOST_UNKNOWN_RECORDS, "unknown_records", "records of a kind this version does not know")                     \
	X(LOST_EVENTS, "lost_events", "gaps in a connection's bytes")                                                  \
	X(LOST_BYTES, "lost_bytes", "bytes known to be missing in connections")                                        \
	X(LOST_UNPAIRED_BYTES, "unpaired_bytes", "bytes of TLS records whose connection could not be learned")         \
	X(LOST_PARSE_ERRORS, "parse_errors", "streams given up: not valid HTTP, or a database's protocol")             \
	X(LOST_COMMANDS, "db_commands", "database commands not told: their connection made no sense then")             \
	X(LOST_DECODE_ERRORS, "decode_errors", "bodies given up: corrupt, over a limit, or unknown coding")            \
	X(LOST_SPANS, "spans_dropped", "oldest spans dropped: --max-events")                                           \
	X(LOST_SPAN_EVENTS, "events_dropped", "trace events in them")                                                  \
	X(LOST_LATE, "late_attach", "requests made before they could be seen")                                         \
	X(LOST_TARGETS, "untraced_targets", "targets or functions that could not be traced")                           \
	X(LOST_OVERLOAD, "overload_bytes", "bytes not copied: more came than was drained")                             \
	X(LOST_SAMPLES, "samples", "samples of CPU or waiting dropped: ring buffer full")                              \
	X(LOST_NO_MEMORY, "no_memory", "pieces of state given up: out of memory or over a table limit")

enum lost_id {
#define X(id, name, text) id,
	LOST_COUNTERS(X)
#undef X
		LOST_COUNT,
};

/* One per run, owned by the session or replay; stages get a pointer at init. */
struct lost {
	uint64_t n[LOST_COUNT];
	/* Not losses, shown beside them. */
	uint64_t late_bytes;	/* bytes of calls that were evicted before */
	uint64_t evicted_calls; /* stale calls closed */
	uint64_t capped_bytes;	/* of what a target wrote (requests, served answers) over the capture cap: a choice */
	uint64_t ignored_bytes; /* of connections that carry no model calls: a choice */
};

const char *lost_name(enum lost_id id); /* json name */
const char *lost_text(enum lost_id id);
uint64_t lost_total(const struct lost *l); /* 0: nothing was lost */

#endif
