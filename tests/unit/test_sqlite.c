/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "flow/db/shape.h"
#include "flow/db/sqlite.h"

static const struct proc_key one = {.tgid = 1, .exec_id = 1, .start_ns = 5},
			     two = {.tgid = 2, .exec_id = 1, .start_ns = 6};

static void on_command(void *ctx, const struct db_command *c)
{
	tlog_printf(ctx, "%u %s %llu+%llu rows %lld error '%s' ", c->proc.tgid, c->system,
		    (unsigned long long)c->start_ns, (unsigned long long)(c->end_ns - c->start_ns), (long long)c->rows,
		    c->error);
	if (c->shape.ptr)
		tlog_escaped(ctx, c->shape.ptr, c->shape.len);
	tlog_printf(ctx, "\n");
}

static void text(struct sqlite *t, const struct proc_key *proc, uint64_t stmt, const char *sql, bool cut)
{
	sqlite_push_text(t, &(struct sqlite_text){.proc = *proc,
						  .stmt = stmt,
						  .entry_ns = 10,
						  .ts_ns = 12,
						  .tid = 7,
						  .result = stmt ? 0 : 1,
						  .cut = cut,
						  .text = sv_of(sql)});
}

static void run(struct sqlite *t, const struct proc_key *proc, uint64_t stmt, int32_t result)
{
	sqlite_push_run(t, &(struct sqlite_run){.proc = *proc,
						.stmt = stmt,
						.begin_ns = 20,
						.end_ns = 25,
						.rows = 3,
						.tid = 7,
						.result = result});
}

static void script(struct sqlite *t)
{
	text(t, &one, 0x10, "SELECT 'secret'", false);
	text(t, &two, 0x10, "SELECT x, 1", false);
	run(t, &one, 0x10, 101);
	run(t, &two, 0x10, 0);
	run(t, &one, 0x20, 101); /* prepared before it was seen */
	run(t, &one, 0x10, 5);
	text(t, &one, 0, "SELEC 'secret'", false);
	text(t, &one, 0x10, "SELECT a, 'sec", true); /* the address is used again */
	run(t, &one, 0x10, 101);
	text(t, &one, 0x10, "", true); /* unreadable */
	run(t, &one, 0x10, 101);
	sqlite_forget(t, 2);
	run(t, &two, 0x10, 101);
}

static const char golden[] = "1 sqlite 20+5 rows 3 error '' SELECT ?\n"
			     "2 sqlite 20+5 rows 3 error '' SELECT x, ?\n"
			     "1 sqlite 20+5 rows 3 error '' \n"
			     "1 sqlite 20+5 rows -1 error '5' SELECT ?\n"
			     "1 sqlite 10+2 rows -1 error '1' SELEC ?\n"
			     "1 sqlite 20+5 rows 3 error '' SELECT a, ?...\n"
			     "1 sqlite 20+5 rows 3 error '' \n"
			     "2 sqlite 20+5 rows 3 error '' \n";

static void test_statements(void **state)
{
	struct lost lost = {0};
	struct tlog log = {0};
	struct sqlite *t = sqlite_new(&lost, &(struct db_sink){&log, on_command});

	(void)state;
	script(t);
	assert_log(&log, golden);
	assert_int_equal(lost_total(&lost), 0);
	sqlite_free(t);
	tlog_free(&log);
}

/* Another program of the same process, and more processes than are remembered. */
static void test_processes(void **state)
{
	struct proc_key other = one;
	struct lost lost = {0};
	struct tlog log = {0};
	struct sqlite *t = sqlite_new(&lost, &(struct db_sink){&log, on_command});

	(void)state;
	text(t, &one, 0x10, "SELECT x", false);
	other.exec_id = 2;
	run(t, &other, 0x10, 101);
	for (uint32_t i = 0; i < SQLITE_PROCESSES_MAX; i++)
		text(t, &(struct proc_key){.tgid = 10 + i}, 0x10, "SELECT y", false);
	run(t, &one, 0x10, 101);
	assert_log(&log, "1 sqlite 20+5 rows 3 error '' \n1 sqlite 20+5 rows 3 error '' \n");
	sqlite_free(t);
	tlog_free(&log);
}

static void test_no_memory(void **state)
{
	bool hit = true;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		struct lost lost = {0};
		struct tlog log = {0};
		struct sqlite *t;

		fail_nth(n);
		t = sqlite_new(&lost, &(struct db_sink){&log, on_command});
		if (t)
			script(t);
		hit = fail_nth_hit();
		fail_nth(0);
		if (t)
			assert_int_equal(lost.n[LOST_NO_MEMORY] != 0, hit);
		sqlite_free(t);
		tlog_free(&log);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statements),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
