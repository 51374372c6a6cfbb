/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "charge.h"

static bool known(uint64_t ns)
{
	return ns != UNKNOWN_NS;
}

static int push(struct walltime *w, unsigned rank, enum time_part part, uint64_t begin_ns, uint64_t end_ns)
{
	return known(begin_ns) && known(end_ns) ? walltime_push(w, rank, part, begin_ns, end_ns) : 0;
}

static int push_setup(struct walltime *w, unsigned lane, const struct call *c)
{
	int err = push(w, lane + RANK_CALL_CONNECT, PART_CONNECT, c->dns_begin_ns, c->dns_end_ns);

	if (!err)
		err = push(w, lane + RANK_CALL_CONNECT, PART_CONNECT, c->connect_begin_ns, c->connect_end_ns);
	return err ? err : push(w, lane + RANK_CALL_CONNECT, PART_CONNECT, c->tls_begin_ns, c->tls_end_ns);
}

/* The request and the first byte of its answer cross the network once each: a round trip that is not the server's. The
 * shortest one: in the smoothed one is what the server took to acknowledge, which may be as long as its answer. */
static int push_round_trip(struct walltime *w, unsigned lane, const struct call *c, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t sent_ns = known(c->send_end_ns) ? c->send_end_ns : begin_ns;
	int64_t trip_us = c->rtt_min_us > 0 ? c->rtt_min_us : c->srtt_us;
	uint64_t back_ns = sent_ns + (uint64_t)trip_us * 1000;

	if (trip_us <= 0)
		return 0;
	return push(w, lane + RANK_CALL_NETWORK, PART_NETWORK, sent_ns, back_ns < end_ns ? back_ns : end_ns);
}

static int push_list(struct walltime *w, unsigned rank, enum time_part part, const struct interval *at, size_t count)
{
	int err = 0;

	for (size_t i = 0; i < count && !err; i++)
		err = walltime_push(w, rank, part, at[i].begin_ns, at[i].end_ns);
	return err;
}

/* Which phase it was in nobody knows, but that tokens came between these two. */
static int push_unknown(struct walltime *w, unsigned rank, const struct call *c, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t from_ns = end_ns, to_ns = end_ns;
	int err;

	if (known(c->seen_token_ns) && known(c->last_token_ns) && c->last_token_ns > begin_ns && begin_ns < end_ns) {
		from_ns = c->seen_token_ns > begin_ns ? c->seen_token_ns : begin_ns;
		to_ns = c->last_token_ns;
	}
	err = push(w, rank, PART_UNKNOWN, begin_ns, from_ns);
	if (!err)
		err = push(w, rank, PART_GENERATION, from_ns, to_ns);
	return err ? err : push(w, rank, PART_UNKNOWN, to_ns, end_ns);
}

/* Where the beginning was not seen, or the first token may be among what is missing, nobody knows which of both it was.
 */
static int push_phases(struct walltime *w, unsigned lane, const struct call *c, uint64_t begin_ns, uint64_t end_ns)
{
	unsigned rank = lane + RANK_CALL_PHASE;
	bool missing = !known(c->first_token_ns) && (c->lossy || c->undecoded);
	uint64_t unknown_ns = !call_has_start(c)  ? begin_ns
			      : !missing	  ? end_ns
			      : known(c->ttfb_ns) ? c->ttfb_ns
						  : begin_ns;
	uint64_t token_ns = known(c->first_token_ns) && c->first_token_ns < unknown_ns ? c->first_token_ns : unknown_ns;
	int err = push(w, rank, PART_FIRST_TOKEN, begin_ns, token_ns);

	if (!err)
		err = push(w, rank, PART_GENERATION, token_ns, unknown_ns);
	if (!err)
		err = push_unknown(w, rank, c, unknown_ns, end_ns);
	return err ? err : push_round_trip(w, lane, c, begin_ns, token_ns);
}

int charge_push(struct walltime *w, const struct call *c, bool main_lane)
{
	unsigned lane = main_lane ? 0 : RANK_CALLS;
	uint64_t begin_ns, end_ns;
	int err = push_setup(w, lane, c);

	call_bounds(c, &begin_ns, &end_ns);
	if (known(c->start_ns) && c->start_ns > begin_ns)
		begin_ns = c->start_ns;
	if (!err)
		err = push_phases(w, lane, c, begin_ns, end_ns);
	if (!err)
		err = push_list(w, lane + RANK_CALL_STALL, PART_STALL, c->stall_at, c->stall_count);
	if (!err)
		err = push_list(w, lane + RANK_CALL_NETWORK, PART_NETWORK, c->network_at, c->network_count);
	if (!err)
		err = push_list(w, lane + RANK_CALL_LATE, PART_CLIENT, c->late_at, c->late_count);
	if (!err && c->retry_wait_ns > 0 && known(c->start_ns))
		err = push(w, RANK_RETRY_WAIT, PART_RETRY_WAIT, c->start_ns - (uint64_t)c->retry_wait_ns, c->start_ns);
	return err;
}
