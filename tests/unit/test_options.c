/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "options.h"

#define ARGS_MAX 64

/* Splits at blanks; the words live in `room`. */
static int words(char *room, char **argv)
{
	int n = 0;

	for (char *w = strtok(room, " "); w; w = strtok(NULL, " "))
		argv[n++] = w;
	argv[n] = NULL;
	return n;
}

/* Parses in a child, since argp exits by itself on usage errors: the exit status, 100 when parsing succeeded. */
static int status_with(const char *line, int out_fd)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		char room[512], *argv[ARGS_MAX];
		struct options o;
		int null = open("/dev/null", O_WRONLY);

		snprintf(room, sizeof(room), "%s", line);
		dup2(null, STDERR_FILENO);
		dup2(out_fd < 0 ? null : out_fd, STDOUT_FILENO);
		_exit(options_parse(&o, words(room, argv), argv, &status) ? status : 100);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int status_of(const char *line)
{
	return status_with(line, -1);
}

static void parse(struct options *o, char *room, const char *line)
{
	static char *argv[ARGS_MAX];
	int status = -1;

	strcpy(room, line);
	assert_int_equal(options_parse(o, words(room, argv), argv, &status), 0);
	assert_int_equal(status, 0);
	assert_non_null(argv[0]);
}

static void defaults(void **state)
{
	struct options o;
	char room[512];

	(void)state;
	parse(&o, room, "perfbpf -p 12");
	assert_int_equal(o.command, COMMAND_RECORD);
	assert_int_equal(o.pid_count, 1);
	assert_int_equal(o.pids[0], 12);
	assert_int_equal(o.ring_bytes, 8 << 20);
	assert_int_equal(o.max_events, 100000);
	assert_true(o.stale_s == 1800 && o.sweep_s == 60 && o.write_interval_s == 0 && o.duration_s == 0);
	assert_false(o.content || o.strict || o.quiet || o.all);
	assert_null(o.output);
	options_release(&o);
}

static void everything(void **state)
{
	struct options o;
	char room[512];

	(void)state;
	parse(&o, room,
	      "perfbpf record -p 1,22 --pid=333 -o t.json -c - --ring-bytes 65536 -d 2.5 --max-events 7 --stale 2 "
	      "--sweep .5 --write-interval 3 --content --record r.cap -q -vv --strict");
	assert_int_equal(o.pid_count, 3);
	assert_int_equal(o.pids[2], 333);
	assert_string_equal(o.output, "t.json");
	assert_string_equal(o.calls, "-");
	assert_string_equal(o.record, "r.cap");
	assert_int_equal(o.ring_bytes, 65536);
	assert_int_equal(o.max_events, 7);
	assert_true(o.duration_s == 2.5 && o.stale_s == 2 && o.sweep_s == .5 && o.write_interval_s == 3);
	assert_true(o.content && o.quiet && o.strict && o.verbose == 2);
	options_release(&o);
}

static void program_behind_dashes(void **state)
{
	struct options o;
	char room[512];

	(void)state;
	parse(&o, room, "perfbpf -o x -- curl -p 80 -- --help");
	assert_string_equal(o.argv[0], "curl");
	assert_string_equal(o.argv[1], "-p");
	assert_string_equal(o.argv[4], "--help");
	assert_null(o.argv[5]);
	assert_int_equal(o.pid_count, 0);
	options_release(&o);
}

static void other_commands(void **state)
{
	struct options o;
	char room[512];

	(void)state;
	parse(&o, room, "perfbpf report x.json --op ^/users");
	assert_string_equal(o.op, "^/users");
	options_release(&o);
	parse(&o, room, "perfbpf replay x.cap -c - --content");
	assert_int_equal(o.command, COMMAND_REPLAY);
	assert_false(o.db);
	options_release(&o);
	parse(&o, room, "perfbpf -p 1 --db");
	assert_true(o.db);
	options_release(&o);
	parse(&o, room, "perfbpf -p 1 -f libc.so.6:malloc --func=/bin/x:a::b -f libc.so.6:malloc");
	assert_int_equal(o.function_count, 2);
	assert_string_equal(o.functions[0].binary, "libc.so.6");
	assert_string_equal(o.functions[1].symbol, "a::b");
	options_release(&o);
	parse(&o, room, "perfbpf replay x.cap --db");
	assert_true(o.db);
	assert_string_equal(o.capture, "x.cap");
	options_release(&o);
	parse(&o, room, "perfbpf check -n node");
	assert_int_equal(o.command, COMMAND_CHECK);
	assert_string_equal(o.name, "node");
	options_release(&o);
	parse(&o, room, "perfbpf check");
	options_release(&o);
	parse(&o, room, "perfbpf check -- node x.js");
	assert_string_equal(o.argv[1], "x.js");
	options_release(&o);
}

/* Not in step with the kernel's ticks, of which there are 100, 250, 300 or 1000 a second. */
static void samples_are_out_of_step(void **state)
{
	static const struct {
		unsigned asked, taken;
	} all[] = {{99, 99},   {199, 199}, {499, 499}, {999, 999},  {100, 99},	  {125, 124}, {150, 149}, {250, 249},
		   {300, 299}, {500, 499}, {600, 599}, {1000, 999}, {4000, 3999}, {12, 11},   {10, 10},	  {1, 1}};
	struct options o;
	char room[512], line[64];

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(line, sizeof(line), "perfbpf -p 1 --cpu=%u", all[i].asked);
		parse(&o, room, line);
		assert_int_equal(o.cpu_hz, all[i].taken);
		options_release(&o);
	}
	parse(&o, room, "perfbpf -p 1 --cpu");
	assert_int_equal(o.cpu_hz, 99);
	options_release(&o);
}

static void usage_errors(void **state)
{
	static const char *const bad[] = {
		"perfbpf frob",
		"perfbpf -p",
		"perfbpf -p 0",
		"perfbpf -p -1",
		"perfbpf -p 1x",
		"perfbpf -p ,",
		"perfbpf -p 1,,2",
		"perfbpf -p 1 --stale 0x10",
		"perfbpf -p 1 -o F -c F",
		"perfbpf -p 1 -c F --record F --content",
		"perfbpf -p 99999999999",
		"perfbpf -a -p 1",
		"perfbpf -p 1 -n x",
		"perfbpf -n (",
		"perfbpf -n claude -n codex",
		"perfbpf -n [",
		"perfbpf -p 1 -- true",
		"perfbpf --",
		"perfbpf -p 1 extra",
		"perfbpf -p 1 -f malloc",
		"perfbpf -p 1 -f libc.so.6:",
		"perfbpf -p 1 --ring-bytes 5000",
		"perfbpf -p 1 --ring-bytes 0",
		"perfbpf -p 1 --ring-bytes -8",
		"perfbpf -p 1 --stale 0",
		"perfbpf -p 1 --stale nan",
		"perfbpf -p 1 --stale 1s",
		"perfbpf -p 1 --sweep 0",
		"perfbpf -p 1 --max-events 0",
		"perfbpf -p 1 -d inf",
		"perfbpf -p 1 -o - -c -",
		"perfbpf -p 1 -o - --write-interval 1",
		"perfbpf -p 1 --record f",
		"perfbpf -p 1 --record - --content",
		"perfbpf -p 1 --cpu=0",
		"perfbpf -p 1 --cpu=4001",
		"perfbpf -p 1 --cpu=x",
		"perfbpf -p 1 --off-cpu=1",
		"perfbpf -p 1 --db=x",
		"perfbpf -p 1 --frob",
		"perfbpf replay",
		"perfbpf replay a b",
		"perfbpf replay a -p 1",
		"perfbpf replay -- true",
		"perfbpf check x",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int status = status_of(bad[i]);

		if (status != 2)
			fail_msg("'%s' gave %d", bad[i], status);
	}
}

/* PERFBPF_TRACE is the trace of what is traced, where nothing else is said, and no more than -o may it be another
 * output. */
static void trace_of_the_environment(void **state)
{
	struct options o;
	char room[512];

	(void)state;
	setenv("PERFBPF_TRACE", "-", 1);
	assert_int_equal(status_of("perfbpf -p 12 -c -"), 2);
	assert_int_equal(status_of("perfbpf -p 12 -c x"), 100);
	assert_int_equal(status_of("perfbpf replay x.cap -c -"), 100);
	parse(&o, room, "perfbpf -p 12");
	assert_string_equal(o.output, "-");
	options_release(&o);
	parse(&o, room, "perfbpf -p 12 -o x");
	assert_string_equal(o.output, "x");
	options_release(&o);
	setenv("PERFBPF_TRACE", "", 1);
	parse(&o, room, "perfbpf -p 12");
	assert_null(o.output);
	options_release(&o);
	unsetenv("PERFBPF_TRACE");
}

/* Help promises live lines where there are some, and nowhere else. */
static void quiet(void **state)
{
	static const struct {
		const char *words;
		bool live;
	} rows[] = {{"record", true}, {"replay x", false}, {"report x", false}, {"diff x y", false}, {"check", false}};
	char line[64], text[8192];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct options o;
		ssize_t len;
		int fds[2];

		assert_int_equal(pipe(fds), 0);
		snprintf(line, sizeof(line), "perfbpf %s --help", rows[i].words);
		assert_int_equal(status_with(line, fds[1]), 0);
		close(fds[1]);
		len = read(fds[0], text, sizeof(text) - 1);
		close(fds[0]);
		assert_true(len > 0);
		text[len] = '\0';
		assert_non_null(strstr(text, "-q, --quiet "));
		assert_int_equal(!!strstr(text, "live lines"), rows[i].live);
		snprintf(line, sizeof(line), "perfbpf %s -q", rows[i].words);
		parse(&o, text, line);
		assert_true(o.quiet);
		options_release(&o);
	}
}

static void help_and_version(void **state)
{
	(void)state;
	assert_int_equal(status_of("perfbpf --help"), 0);
	assert_int_equal(status_of("perfbpf replay --help"), 0);
	assert_int_equal(status_of("perfbpf check --help"), 0);
	assert_int_equal(status_of("perfbpf --version"), 0);
	assert_int_equal(status_of("perfbpf report x.json --op ("), 2);
	assert_int_equal(status_of("perfbpf report x.json --folded --by db"), 2);
	assert_int_equal(status_of("perfbpf report x.json --folded --by fault"), 100);
	assert_int_equal(status_of("perfbpf -p 1"), 100);
	assert_int_equal(status_of("perfbpf -a"), 100);
	assert_int_equal(status_of("perfbpf"), 100);
	assert_int_equal(status_of("perfbpf record -d 1"), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(everything),
		cmocka_unit_test(program_behind_dashes),
		cmocka_unit_test(other_commands),
		cmocka_unit_test(samples_are_out_of_step),
		cmocka_unit_test(usage_errors),
		cmocka_unit_test(trace_of_the_environment),
		cmocka_unit_test(help_and_version),
		cmocka_unit_test(quiet),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
