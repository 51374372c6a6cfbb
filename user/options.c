/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "flow/record.h"
#include "view/report.h"

#define EXIT_USAGE	    2
#define RING_BYTES_DEFAULT  (8u << 20)
#define RING_BYTES_MAX	    (1u << 30)
#define CPU_HZ_DEFAULT	    99 /* no multiple of the periods that programs and kernels like */
#define CPU_HZ_MAX	    4000
#define IN_STEP_PLACES	    8
#define ALLOC_BYTES_DEFAULT (512u << 10)
#define ALLOC_BYTES_MAX	    (1u << 30)
#define TOP_DEFAULT	    25

enum {
	KEY_RECORD = 256,
	KEY_RING_BYTES,
	KEY_MAX_EVENTS,
	KEY_STALE,
	KEY_SWEEP,
	KEY_WRITE_INTERVAL,
	KEY_CONTENT,
	KEY_STRICT,
	KEY_ATTACH,
	KEY_NO_DYNPTR,
	KEY_NO_SOCK_LENGTH,
	KEY_VERSION,
	KEY_CPU,
	KEY_BY,
	KEY_TOP,
	KEY_SELF,
	KEY_TOTAL,
	KEY_FOLDED,
	KEY_LAST,
	KEY_OP,
	KEY_JSON,
	KEY_FAIL_ON,
	KEY_OFF_CPU,
	KEY_ALLOC,
	KEY_DB,
	KEY_HTTP,
	KEY_NO_SANDBOX,
};

static const struct argp_option target_options[] = {
	{"pid", 'p', "PID[,PID…]", 0, "trace these processes and every process they start from now on", 1},
	{"name", 'n', "REGEX", 0, "trace processes whose program or command line matches, also those started later", 1},
	{"all", 'a', NULL, 0, "every process of this machine that makes model calls; so it is without a target", 1},
	{0},
};

static const struct argp_option live_options[] = {
	{"record", KEY_RECORD, "FILE", 0, "also keep the raw capture for replay (credentials too): needs --content", 2},
	{"ring-bytes", KEY_RING_BYTES, "N", 0, "ring buffer size, a power of two (8 MiB)", 2},
	{"duration", 'd', "SEC", 0, "stop by itself", 2},
	{"write-interval", KEY_WRITE_INTERVAL, "SEC", 0, "also rewrite the trace file this often (0: on exit only)", 2},
	{"attach", KEY_ATTACH, "MODE", OPTION_HIDDEN, "session, multi or perf: the best attach mode to try", 2},
	{"no-sock-length", KEY_NO_SOCK_LENGTH, NULL, OPTION_HIDDEN, "as on kernels without sock_send_length", 2},
	{"no-dynptr", KEY_NO_DYNPTR, NULL, OPTION_HIDDEN, "as on kernels without bpf_probe_read_user_dynptr", 2},
	{0},
};

/* Of a replay: for what the capture holds. */
static const struct argp_option axis_options[] = {
	{"cpu", KEY_CPU, "HZ", OPTION_ARG_OPTIONAL, "sample what runs, by stack, so often a second (99)", 2},
	{"off-cpu", KEY_OFF_CPU, NULL, 0,
	 "what blocks for 1 ms or more, by reason and stack; and waits for a processor", 2},
	{"alloc", KEY_ALLOC, "BYTES", OPTION_ARG_OPTIONAL,
	 "what allocates memory, by stack, one sample in so many bytes (512 KiB)", 2},
	{"db", KEY_DB, NULL, 0, "commands to PostgreSQL, MySQL, MariaDB, Redis and SQLite, by shape, never by value",
	 2},
	{"http", KEY_HTTP, NULL, 0, "every HTTP request that is served or called, by route", 2},
	{"func", 'f', "BINARY:SYMBOL", 0, "a span for every call of a function, again and again for more of them", 2},
	{0},
};

static const struct argp_option table_options[] = {
	{"by", KEY_BY, "WHAT", 0, "only one table:" REPORT_WORDS, 2},
	{"top", KEY_TOP, "N", 0, "rows of a table (25)", 2},
	{"last", KEY_LAST, "SEC", 0, "only what ended in the last SEC seconds", 2},
	{"op", KEY_OP, "REGEX", 0, "only operations of this name or path; other spans of it become operations", 2},
	{"self", KEY_SELF, NULL, 0, "functions by what they took themselves (the default)", 2},
	{"total", KEY_TOTAL, NULL, 0, "functions by what they and their callees took", 2},
	{"json", KEY_JSON, NULL, 0, "one JSON object instead of text", 2},
	{0},
};

static const struct argp_option report_options[] = {
	{"folded", KEY_FOLDED, NULL, 0, "stacks as input of flame graphs; with --by wait those that waited", 2},
	{0},
};

static const struct argp_option diff_options[] = {
	{"fail-on", KEY_FAIL_ON, "PERCENT", 0, "exit 4 when something is worse by more, and not by chance", 2},
	{0},
};

static const struct argp_option output_options[] = {
	{"output", 'o', "FILE", 0, "Chrome Trace JSON; - = standard output", 3},
	{"calls", 'c', "FILE", 0, "one JSON object a finished call; - = standard output", 3},
	{"max-events", KEY_MAX_EVENTS, "N", 0, "trace events kept (100000)", 3},
	{"stale", KEY_STALE, "SEC", 0, "a span open this long without a byte is closed as evicted (1800)", 3},
	{"sweep", KEY_SWEEP, "SEC", 0, "how often stale spans and unused probes are looked for (60)", 3},
	{"content", KEY_CONTENT, NULL, 0, "keep prompt and answer text in the outputs", 3},
	{"strict", KEY_STRICT, NULL, 0, "exit 3 when anything was lost or a target could not be traced", 3},
	{0},
};

static const struct argp_option quiet_live_options[] = {
	{"quiet", 'q', NULL, 0, "no live lines, and no notes", 4},
	{0},
};

/* What has no live lines. */
static const struct argp_option quiet_options[] = {
	{"quiet", 'q', NULL, 0, "no notes: beside the output only warnings and errors", 4},
	{0},
};

static const struct argp_option talk_options[] = {
	{"verbose", 'v', NULL, 0, "more diagnostics (-vv: even more)", 4},
	{"version", KEY_VERSION, NULL, 0, "print the version", -1},
	{"no-sandbox", KEY_NO_SANDBOX, NULL, OPTION_HIDDEN, "system calls are not restricted (valgrind makes its own)",
	 4},
	{0},
};

/* A whole non-negative decimal number, nothing around it. */
static bool parse_uint(const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	*out = 0;
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return !errno && !*end && *out <= max;
}

static bool parse_seconds(const char *text, bool zero_ok, double *out)
{
	char *end;

	if (!*text || strspn(text, "0123456789.") != strlen(text))
		return false;
	errno = 0;
	*out = strtod(text, &end);
	return !errno && !*end && *out <= 1e9 && (*out > 0 || (zero_ok && *out == 0));
}

static void add_pids(struct options *o, char *arg, struct argp_state *state)
{
	char *word;
	uint64_t pid;
	pid_t *pids;

	while ((word = strsep(&arg, ","))) {
		if (!parse_uint(word, INT_MAX, &pid) || pid == 0)
			argp_error(state, "'%s' is not a process id", word);
		pids = realloc(o->pids, (o->pid_count + 1) * sizeof(*pids));
		if (!pids)
			argp_failure(state, 1, ENOMEM, "-p");
		o->pids = pids;
		o->pids[o->pid_count++] = (pid_t)pid;
	}
}

/* An empty expression matches everything, which nobody means. */
static void check_name(const char *pattern, struct argp_state *state)
{
	char why[128] = "it is empty";
	regex_t re;
	int err = *pattern ? regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) : REG_BADPAT;

	if (!err) {
		regfree(&re);
		return;
	}
	if (*pattern)
		regerror(err, NULL, why, sizeof(why));
	argp_error(state, "-n wants a POSIX extended regular expression: %s", why);
}

static error_t parse_target(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'p':
		add_pids(o, arg, state);
		return 0;
	case 'n':
		check_name(arg, state);
		if (o->name)
			argp_error(state,
				   "-n is there twice: one expression can mean several names, as 'claude|codex'");
		o->name = arg;
		return 0;
	case 'a':
		o->all = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void parse_ring_bytes(struct options *o, const char *arg, struct argp_state *state)
{
	uint64_t n;

	if (!parse_uint(arg, RING_BYTES_MAX, &n) || n < 4096 || (n & (n - 1)))
		argp_error(state, "--ring-bytes wants a power of two from 4096 to %u, not '%s'", RING_BYTES_MAX, arg);
	o->ring_bytes = (uint32_t)n;
}

static void parse_attach(struct options *o, const char *arg, struct argp_state *state)
{
	static const char *const modes[] = {"session", "multi", "perf"};

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (!strcmp(arg, modes[i])) {
			o->attach_mode = (int)i;
			return;
		}
	argp_error(state, "--attach wants session, multi or perf, not '%s'", arg);
}

static error_t parse_live(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_RECORD:
		o->record = arg;
		return 0;
	case KEY_RING_BYTES:
		parse_ring_bytes(o, arg, state);
		return 0;
	case 'd':
		if (!parse_seconds(arg, false, &o->duration_s))
			argp_error(state, "--duration wants seconds, not '%s'", arg);
		return 0;
	case KEY_WRITE_INTERVAL:
		if (!parse_seconds(arg, true, &o->write_interval_s))
			argp_error(state, "--write-interval wants seconds, not '%s'", arg);
		return 0;
	case KEY_ATTACH:
		parse_attach(o, arg, state);
		return 0;
	case KEY_NO_DYNPTR:
		o->no_dynptr = true;
		return 0;
	case KEY_NO_SOCK_LENGTH:
		o->no_sock_length = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void add_function(struct options *o, const char *arg, struct argp_state *state)
{
	struct func_spec *more = realloc(o->functions, (o->function_count + 1) * sizeof(*more));

	if (!more)
		argp_failure(state, 1, ENOMEM, "-f");
	o->functions = more;
	if (func_spec_parse(&more[o->function_count], arg))
		argp_error(state, "-f wants BINARY:SYMBOL, not '%s'", arg);
	for (unsigned i = 0; i < o->function_count; i++)
		if (!strcmp(more[i].text, arg))
			return;
	if (o->function_count == RECORD_FUNCS_MAX)
		argp_error(state, "at most %d functions can be traced", RECORD_FUNCS_MAX);
	o->function_count++;
}

/* Whether samples meet the kernel's ticks (CONFIG_HZ) in a few places only, where programs take turns. */
static bool in_step(uint64_t hz)
{
	static const uint64_t ticks[] = {100, 250, 300, 1000};
	uint64_t a, b, rest;

	for (size_t i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++) {
		for (a = ticks[i], b = hz; b; a = b, b = rest)
			rest = a % b;
		if (hz / a < IN_STEP_PLACES)
			return true;
	}
	return false;
}

/* Where others want the processor, who is met in step with the ticks is chance, and the same for as long as it is
 * sampled: the sum was seen to be up to a third off. So few samples that no better frequency is near stay as they are.
 */
static uint64_t out_of_step(uint64_t hz)
{
	uint64_t best = hz;

	while (best > IN_STEP_PLACES && in_step(best))
		best--;
	return best > IN_STEP_PLACES ? best : hz;
}

static error_t parse_axis(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	uint64_t hz = CPU_HZ_DEFAULT, bytes = ALLOC_BYTES_DEFAULT;

	switch (key) {
	case KEY_CPU:
		if (arg && (!parse_uint(arg, CPU_HZ_MAX, &hz) || hz == 0))
			argp_error(state, "--cpu wants samples a second, from 1 to %d, not '%s'", CPU_HZ_MAX, arg);
		o->cpu_hz = (uint32_t)out_of_step(hz);
		return 0;
	case KEY_OFF_CPU:
		o->off_cpu = true;
		return 0;
	case KEY_ALLOC:
		if (arg && (!parse_uint(arg, ALLOC_BYTES_MAX, &bytes) || bytes == 0))
			argp_error(state, "--alloc wants bytes, from 1 to %u, not '%s'", ALLOC_BYTES_MAX, arg);
		o->alloc_bytes = (uint32_t)bytes;
		return 0;
	case KEY_DB:
		o->db = true;
		return 0;
	case KEY_HTTP:
		o->http = true;
		return 0;
	case 'f':
		add_function(o, arg, state);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t parse_table(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	uint64_t n;
	regex_t regex;

	switch (key) {
	case KEY_BY:
		o->by = (int)report_by_of(arg);
		if (o->by == REPORT_BYS)
			argp_error(state, "--by wants one of%s, not '%s'", REPORT_WORDS, arg);
		return 0;
	case KEY_TOP:
		if (!parse_uint(arg, 1000000, &n) || n == 0)
			argp_error(state, "--top wants a number from 1 to 1000000, not '%s'", arg);
		o->top = (unsigned)n;
		return 0;
	case KEY_LAST:
		if (!parse_seconds(arg, false, &o->last_s))
			argp_error(state, "--last wants seconds, not '%s'", arg);
		return 0;
	case KEY_OP:
		if (regcomp(&regex, arg, REG_EXTENDED | REG_NOSUB))
			argp_error(state, "--op wants a POSIX extended regular expression, not '%s'", arg);
		else
			regfree(&regex);
		o->op = arg;
		return 0;
	case KEY_SELF:
	case KEY_TOTAL:
		o->total = key == KEY_TOTAL;
		return 0;
	case KEY_JSON:
		o->json = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t parse_report(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	(void)arg;
	if (key != KEY_FOLDED)
		return ARGP_ERR_UNKNOWN;
	o->folded = true;
	return 0;
}

static error_t parse_diff(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	if (key != KEY_FAIL_ON)
		return ARGP_ERR_UNKNOWN;
	if (arg[0] && arg[strlen(arg) - 1] == '%')
		arg[strlen(arg) - 1] = '\0';
	if (!parse_seconds(arg, true, &o->fail_percent))
		argp_error(state, "--fail-on wants a percentage, not '%s'", arg);
	o->fail_on = true;
	return 0;
}

static error_t parse_output(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'o':
		o->output = arg;
		return 0;
	case 'c':
		o->calls = arg;
		return 0;
	case KEY_MAX_EVENTS:
		if (!parse_uint(arg, 100000000, &o->max_events) || o->max_events == 0)
			argp_error(state, "--max-events wants a number from 1 to 100000000, not '%s'", arg);
		return 0;
	case KEY_STALE:
		if (!parse_seconds(arg, false, &o->stale_s))
			argp_error(state, "--stale wants seconds, not '%s'", arg);
		return 0;
	case KEY_SWEEP:
		if (!parse_seconds(arg, false, &o->sweep_s))
			argp_error(state, "--sweep wants seconds, not '%s'", arg);
		return 0;
	case KEY_CONTENT:
		o->content = true;
		return 0;
	case KEY_STRICT:
		o->strict = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t parse_talk(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	(void)arg;
	switch (key) {
	case 'q':
		o->quiet = true;
		return 0;
	case 'v':
		o->verbose++;
		return 0;
	case KEY_NO_SANDBOX:
		o->no_sandbox = true;
		return 0;
	case KEY_VERSION:
		printf("perfbpf %s\n", PERFBPF_VERSION);
		exit(0);
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp_target = {.options = target_options, .parser = parse_target};
static const struct argp argp_live = {.options = live_options, .parser = parse_live};
static const struct argp argp_axis = {.options = axis_options, .parser = parse_axis};
static const struct argp argp_table = {.options = table_options, .parser = parse_table};
static const struct argp argp_report = {.options = report_options, .parser = parse_report};
static const struct argp argp_diff = {.options = diff_options, .parser = parse_diff};
static const struct argp argp_output = {.options = output_options, .parser = parse_output};
static const struct argp argp_quiet_live = {.options = quiet_live_options, .parser = parse_talk};
static const struct argp argp_quiet = {.options = quiet_options, .parser = parse_talk};
static const struct argp argp_talk = {.options = talk_options, .parser = parse_talk};

static void check_target(struct options *o, struct argp_state *state)
{
	int kinds = (o->pid_count > 0) + (o->name != NULL) + (o->argv != NULL) + o->all;

	if (kinds > 1)
		argp_error(state, "name one kind of target: -p, -n, -a or -- CMD");
	if (kinds == 0 && o->command == COMMAND_RECORD)
		o->all = true;
}

static bool same(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

static void check_outputs(struct options *o, struct argp_state *state)
{
	const char *usual = getenv("PERFBPF_TRACE");

	if ((o->output && !*o->output) || (o->calls && !*o->calls) || (o->record && !*o->record))
		argp_error(state, "an output wants a name");
	if (o->command == COMMAND_RECORD && !o->output && usual && *usual)
		o->output = usual;
	if (same(o->output, "-") && same(o->calls, "-"))
		argp_error(state, "only one of -o and -c can be standard output");
	if (same(o->output, o->calls) || same(o->output, o->record) || same(o->calls, o->record))
		argp_error(state, "two outputs in one file");
	if (o->record && !o->content)
		argp_error(state, "--record keeps what was on the wire, credentials too: it needs --content");
	if (same(o->record, "-"))
		argp_error(state, "--record wants a file");
	if (same(o->output, "-") && o->write_interval_s > 0)
		argp_error(state, "--write-interval wants a file (-o FILE): what was written to standard output stays");
}

static const struct argp_child *children_of(enum command command);

static bool reads_trace(const struct options *o)
{
	return o->command == COMMAND_REPORT || o->command == COMMAND_DIFF;
}

/* The input of report and diff. */
static bool take_trace(struct options *o, const char *arg)
{
	if (!reads_trace(o) || o->traces[o->command == COMMAND_DIFF])
		return false;
	o->traces[o->traces[0] != NULL] = arg;
	return true;
}

/* The command's own arguments; every child parser gets the same struct options. (state->root_argp is argp's own
 * wrapper.) */
static error_t parse_command(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		for (int i = 0; children_of(o->command)[i].argp; i++)
			state->child_inputs[i] = o;
		return 0;
	case ARGP_KEY_ARG:
		if (take_trace(o, arg))
			return 0;
		if (o->command != COMMAND_REPLAY || o->capture)
			argp_error(state, "'%s' is not expected here%s", arg,
				   o->command == COMMAND_RECORD ? " (a program to trace goes behind --)" : "");
		o->capture = arg;
		return 0;
	case ARGP_KEY_END:
		if (o->command == COMMAND_REPLAY && !o->capture)
			argp_error(state, "which capture?");
		if (reads_trace(o) && !o->traces[o->command == COMMAND_DIFF])
			argp_error(state,
				   o->command == COMMAND_DIFF ? "which traces? Two, before and after" : "which trace?");
		if (o->command != COMMAND_REPLAY && !reads_trace(o))
			check_target(o, state);
		if (o->folded && o->json)
			argp_error(state, "--folded and --json are two forms of output");
		if (o->folded && o->by && !report_has_stacks((enum report_by)o->by))
			argp_error(state,
				   "--folded wants stacks: --by function, stack, wait, wait-stack, alloc or fault");
		check_outputs(o, state);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_child record_children[] = {{.argp = &argp_target, .header = "Target:"},
						    {.argp = &argp_live, .header = "Tracing:"},
						    {.argp = &argp_axis},
						    {.argp = &argp_output, .header = "Output:"},
						    {.argp = &argp_quiet_live},
						    {.argp = &argp_talk},
						    {0}};
static const struct argp_child replay_children[] = {{.argp = &argp_axis},
						    {.argp = &argp_output, .header = "Output:"},
						    {.argp = &argp_quiet},
						    {.argp = &argp_talk},
						    {0}};
static const struct argp_child check_children[] = {
	{.argp = &argp_target, .header = "Target:"}, {.argp = &argp_quiet}, {.argp = &argp_talk}, {0}};

static const struct argp_child report_children[] = {{.argp = &argp_table, .header = "Tables:"},
						    {.argp = &argp_report},
						    {.argp = &argp_quiet},
						    {.argp = &argp_talk},
						    {0}};
static const struct argp_child diff_children[] = {{.argp = &argp_table, .header = "Tables:"},
						  {.argp = &argp_diff},
						  {.argp = &argp_quiet},
						  {.argp = &argp_talk},
						  {0}};

static const struct command_row {
	const char *word;
	enum command command;
	struct argp argp;
} commands[] = {
	{"record",
	 COMMAND_RECORD,
	 {.parser = parse_command,
	  .children = record_children,
	  .args_doc = "[-- CMD [ARG…]]",
	  .doc = "Why is my AI agent slow? Traces the model calls of running programs, without touching them.\v"
		 "Commands: record (implied), replay CAPTURE, report TRACE, diff BEFORE AFTER, check; perfbpf COMMAND "
		 "--help."}},
	{"replay",
	 COMMAND_REPLAY,
	 {.parser = parse_command,
	  .children = replay_children,
	  .args_doc = "CAPTURE",
	  .doc = "The same analysis over a recorded capture; needs no privileges."}},
	{"check",
	 COMMAND_CHECK,
	 {.parser = parse_command,
	  .children = check_children,
	  .args_doc = "",
	  .doc = "What this kernel, these privileges and these targets allow, and why not."}},
	{"report",
	 COMMAND_REPORT,
	 {.parser = parse_command,
	  .children = report_children,
	  .args_doc = "TRACE",
	  .doc = "Who is responsible: tables from a trace file; needs no privileges."}},
	{"diff",
	 COMMAND_DIFF,
	 {.parser = parse_command,
	  .children = diff_children,
	  .args_doc = "BEFORE AFTER",
	  .doc = "Two traces taken with the same knobs, side by side; needs no privileges."}},
};

static const struct argp_child *children_of(enum command command)
{
	size_t i = 0;

	while (commands[i].command != command)
		i++;
	return commands[i].argp.children;
}

static const struct command_row *find_command(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(word, commands[i].word))
			return &commands[i];
	return NULL;
}

int options_parse(struct options *o, int argc, char **argv, int *status)
{
	const struct command_row *row = &commands[0];
	static char name[32]; /* argp keeps a pointer for its messages */
	char *word;
	int own;

	*o = (struct options){
		.ring_bytes = RING_BYTES_DEFAULT,
		.max_events = OPTIONS_MAX_EVENTS,
		.stale_s = OPTIONS_STALE_S,
		.sweep_s = OPTIONS_SWEEP_S,
		.attach_mode = 0,
		.top = TOP_DEFAULT,
	};
	*status = EXIT_USAGE;
	snprintf(name, sizeof(name), "perfbpf");
	if (argc > 1 && argv[1][0] != '-') {
		row = find_command(argv[1]);
		if (!row) {
			fprintf(stderr, "perfbpf: no command '%s' (record, replay, report, diff, check)\n", argv[1]);
			return -EINVAL;
		}
		snprintf(name, sizeof(name), "perfbpf %s", row->word);
		argv++;
		argc--;
	}
	own = argc;
	o->command = row->command;
	/* What stands behind -- belongs to CMD, options included. */
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--")) {
			own = i;
			o->argv = argv + i + 1;
			break;
		}
	argp_err_exit_status = EXIT_USAGE;
	if (o->argv && (row->command == COMMAND_REPLAY || reads_trace(o) || !o->argv[0])) {
		if (o->argv[0])
			fprintf(stderr, "perfbpf: %s has no -- CMD\n", row->word);
		else
			fprintf(stderr, "perfbpf: which program? Nothing stands behind --\n");
		return -EINVAL;
	}
	/* argp names itself by argv[0]; the caller's array stays as it was. */
	word = argv[0];
	argv[0] = name;
	own = argp_parse(&row->argp, own, argv, 0, NULL, o);
	argv[0] = word;
	if (own)
		return -EINVAL;
	*status = 0;
	return 0;
}

void options_release(struct options *o)
{
	free(o->pids);
	free(o->functions);
	o->pids = NULL;
	o->functions = NULL;
}
