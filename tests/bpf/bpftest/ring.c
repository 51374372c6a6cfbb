/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A small ring: what is lost is counted, and only a ring that fills wakes its reader. */
#include <stdio.h>
#include <string.h>

#include "bpftest.h"

/* A ring of 64 KiB and nobody who reads. */
static void case_flood(void)
{
	int i;

	for (i = 0; i < 40; i++)
		do_write(A, big + i * 8192, 8192);
	do_read(A, big, 8192);
	fake_free(A);
}

static void test_full_ring(void)
{
	uint64_t lost_records, lost_bytes;
	bool ok;

	consume_while_running = false;
	quiet_data = true;
	run_child(case_flood, true);
	consume_while_running = true;
	quiet_data = false;
	lost_records = stat_of(ST_RING_RECORDS);
	lost_bytes = stat_of(ST_RING_BYTES);
	ok = lost_records > 30 && lost_bytes + data_bytes == 41 * 8192 && lost_bytes % 8192 == 0;
	verdict(ok, "a full ring loses and counts: bytes seen + bytes lost = bytes moved");
	if (!ok)
		printf("# %llu records, %llu bytes lost, %llu seen\n", (unsigned long long)lost_records,
		       (unsigned long long)lost_bytes, (unsigned long long)data_bytes);
	ok = strstr(got, "reached A1 tx=327680 rx=0\n") && strstr(got, "reached A1 tx=0 rx=8192\n");
	verdict(ok, "how far a connection came is known, also when its last records were lost");
	if (!ok)
		printf("# %s\n", got);
	check_lengths("and afterwards all is well");
}

/* BR-114: records wait for the timer; only a ring that fills wakes the reader. A few are less than an eighth of the
 * ring, in classes of length too. */
#define FEW 15
static void case_few(void)
{
	int i;

	for (i = 0; i < FEW; i++)
		do_write(A, text, 100);
}

static bool run_unread(void (*fn)(void))
{
	consume_while_running = false;
	run_child(fn, true);
	consume_while_running = true;
	return woken_before_reading;
}

static void test_wakeups(void)
{
	bool woken;

	quiet_data = true;
	/* What comes late of what was before keeps the reader woken, until the ring is found empty. */
	do
		probes_consume(probes);
	while (reader_is_woken());
	woken = run_unread(case_few);
	verdict(!woken && data_bytes == FEW * 100, "some records wake nobody (BR-114)");
	woken = run_unread(case_flood);
	verdict(woken, "a ring half full wakes the reader");
	quiet_data = false;
}

void ring_tests(void)
{
	test_full_ring();
	test_wakeups();
}
