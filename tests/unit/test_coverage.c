/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>

#include "flow/coverage.h"

static struct proc process(uint32_t tgid, uint64_t start_ns, const char *name)
{
	struct proc p = {.key = {.tgid = tgid, .start_ns = start_ns}};

	snprintf(p.name, sizeof(p.name), "%s", name);
	return p;
}

static void print_row(void *ctx, const struct coverage_row *r)
{
	tlog_printf(ctx, "%s %u conns=%d d=%d u=%d s=%d e=%d calls=%d reason=%s\n", r->process, r->pid,
		    (int)r->connections, (int)r->kinds[COVERAGE_DECODED], (int)r->kinds[COVERAGE_UNDECODED],
		    (int)r->kinds[COVERAGE_SERVED], (int)r->kinds[COVERAGE_EMPTY], (int)r->calls, r->reason);
}

static void rows_add_up(void **state)
{
	struct lost lost = {0};
	struct coverage *t = coverage_new(&lost);
	struct proc a = process(7, 100, "agent"), reused = process(7, 200, "other");
	struct tlog log = {0};

	(void)state;
	coverage_push_conn(t, &a, COVERAGE_DECODED, NULL);
	coverage_push_conn(t, &a, COVERAGE_UNDECODED, "http/2");
	coverage_push_conn(t, &a, COVERAGE_EMPTY, NULL);
	coverage_push_call(t, &a);
	coverage_push_call(t, &a);
	coverage_push_conn(t, &reused, COVERAGE_SERVED, NULL);
	snprintf(a.name, sizeof(a.name), "renamed");
	coverage_push_conn(t, &a, COVERAGE_DECODED, NULL);
	coverage_each(t, print_row, &log);
	assert_log(&log, "renamed 7 conns=4 d=2 u=1 s=0 e=1 calls=2 reason=http/2\n"
			 "other 7 conns=1 d=0 u=0 s=1 e=0 calls=0 reason=\n");
	assert_int_equal(lost_total(&lost), 0);
	tlog_free(&log);
	coverage_free(t);
}

static void only_callers_have_rows(void **state)
{
	struct proc a = process(7, 100, "agent"), b = process(8, 100, "wget"), c = process(9, 100, "git");
	struct lost lost = {0};
	struct coverage *t = coverage_new(&lost);
	struct tlog log = {0};

	(void)state;
	coverage_set_callers_only(t, true);
	coverage_push_conn(t, &b, COVERAGE_UNDECODED, "secret of b");
	coverage_push_conn(t, &a, COVERAGE_DECODED, NULL);
	coverage_push_conn(t, &c, COVERAGE_DECODED, NULL);
	coverage_push_call(t, &a);
	coverage_each(t, print_row, &log);
	assert_log(&log, "agent 7 conns=1 d=1 u=0 s=0 e=0 calls=1 reason=\n"
			 "(others) 0 conns=2 d=1 u=1 s=0 e=0 calls=0 reason=\n");
	tlog_free(&log);
	assert_int_equal(coverage_each_grouped(t, 1, print_row, &log), 0);
	assert_log(&log, "agent 7 conns=1 d=1 u=0 s=0 e=0 calls=1 reason=\n"
			 "(others) 0 conns=2 d=1 u=1 s=0 e=0 calls=0 reason=\n");
	tlog_free(&log);
	coverage_free(t);
}

static void count_rows(void *ctx, const struct coverage_row *r)
{
	uint64_t *n = ctx;

	n[0]++;
	n[1] += r->connections;
	if (!strcmp(r->process, "(others)"))
		n[2] = r->connections;
}

static void too_many_processes_share_a_row(void **state)
{
	struct lost lost = {0};
	struct coverage *t = coverage_new(&lost);
	uint64_t n[3] = {0};

	(void)state;
	for (uint32_t i = 1; i <= 5000; i++) {
		struct proc p = process(i, i, "p");

		coverage_push_conn(t, &p, COVERAGE_DECODED, NULL);
	}
	coverage_each(t, count_rows, n);
	assert_int_equal(n[0], COVERAGE_ROWS_MAX + 1);
	assert_int_equal(n[1], 5000);
	assert_int_equal(n[2], 0); /* it has their name */
	for (uint32_t i = 1; i <= 1000; i++) {
		struct proc p = process(5000 + i, i, "");

		snprintf(p.name, sizeof(p.name), "p%u", i);
		coverage_push_conn(t, &p, COVERAGE_DECODED, NULL);
	}
	memset(n, 0, sizeof(n));
	coverage_each(t, count_rows, n);
	assert_int_equal(n[0], COVERAGE_ROWS_MAX + COVERAGE_NAMES_MAX + 1);
	assert_int_equal(n[1], 6000);
	assert_int_equal(n[2], 1000 - (COVERAGE_NAMES_MAX - 1));
	memset(n, 0, sizeof(n));
	assert_int_equal(coverage_each_grouped(t, 20, count_rows, n), 0);
	assert_int_equal(n[0], COVERAGE_NAMES_MAX + 1); /* the first ones have the first name of those */
	assert_int_equal(n[1], 6000);
	coverage_free(t);
}

static void without_memory_it_counts(void **state)
{
	struct proc a = process(7, 100, "agent");

	(void)state;
	for (unsigned n = 1;; n++) {
		struct lost lost = {0};
		struct coverage *t;

		fail_nth(n);
		t = coverage_new(&lost);
		if (t)
			coverage_push_conn(t, &a, COVERAGE_DECODED, NULL);
		fail_nth(0);
		if (!fail_nth_hit()) {
			assert_int_equal(lost_total(&lost), 0);
			coverage_free(t);
			break;
		}
		if (t)
			assert_int_equal(lost.n[LOST_NO_MEMORY], 1);
		coverage_free(t);
	}
}

static void print_group(void *ctx, const struct coverage_row *r)
{
	tlog_printf(ctx, "%s[%u] x%llu: %llu conns, %llu calls, %llu undecoded (%s)\n", r->process, r->pid,
		    (unsigned long long)r->processes, (unsigned long long)r->connections, (unsigned long long)r->calls,
		    (unsigned long long)r->kinds[COVERAGE_UNDECODED], r->reason);
}

static void many_processes_share_rows(void **state)
{
	struct lost lost = {0};
	struct coverage *t = coverage_new(&lost);
	struct tlog l = {0};

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct proc p = {.key = {.tgid = 10 + i, .start_ns = 1}};

		snprintf(p.name, sizeof(p.name), "%s", i == 1 ? "node" : "curl");
		coverage_push_conn(t, &p, i == 2 ? COVERAGE_UNDECODED : COVERAGE_DECODED, i == 2 ? "ws" : NULL);
		coverage_push_call(t, &p);
	}
	assert_int_equal(coverage_each_grouped(t, 5, print_group, &l), 0);
	assert_log(&l, "curl[10] x1: 1 conns, 1 calls, 0 undecoded ()\n"
		       "node[11] x1: 1 conns, 1 calls, 0 undecoded ()\n"
		       "curl[12] x1: 1 conns, 1 calls, 1 undecoded (ws)\n"
		       "curl[13] x1: 1 conns, 1 calls, 0 undecoded ()\n"
		       "curl[14] x1: 1 conns, 1 calls, 0 undecoded ()\n");
	tlog_free(&l);
	assert_int_equal(coverage_each_grouped(t, 4, print_group, &l), 0);
	assert_log(&l, "curl[10] x4: 4 conns, 4 calls, 1 undecoded (ws)\n"
		       "node[11] x1: 1 conns, 1 calls, 0 undecoded ()\n");
	tlog_free(&l);
	for (int n = 1; n <= 3; n++) {
		fail_nth(n);
		assert_int_equal(coverage_each_grouped(t, 4, print_group, &l), -ENOMEM);
		fail_nth(0);
	}
	tlog_free(&l);
	coverage_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_processes_share_rows), cmocka_unit_test(rows_add_up),
		cmocka_unit_test(only_callers_have_rows),    cmocka_unit_test(too_many_processes_share_a_row),
		cmocka_unit_test(without_memory_it_counts),
	};

	return cmocka_run_group_tests_name("coverage", tests, NULL, NULL);
}
