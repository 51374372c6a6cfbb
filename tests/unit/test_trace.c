/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <time.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/err.h"
#include "flow/trace.h"
#include "make_call.h"

#define START (5000 * MS)
#define S     (1000 * MS)

/* --- a run ------------------------------------------------------------------------------------------------------- */

struct run {
	struct lost lost;
	struct spans *spans, *extra;
	struct procs *procs;
	struct trace_meta meta;
	struct buf out;
	cJSON *doc;
};

static void run_init(struct run *r, uint64_t max_events)
{
	const struct proc_sink sink = {0};

	*r = (struct run){0};
	r->spans = spans_new(max_events, &r->lost);
	r->procs = procs_new(&r->lost, &sink);
	assert_non_null(r->spans);
	assert_non_null(r->procs);
	r->meta = (struct trace_meta){
		.start_ns = START,
		.now_ns = START + 10 * S,
		.boot_to_unix_ns = 1700000000000000000,
		.version = "0.1.0",
		.host = "testhost",
		.kernel = "6.1.0",
		.command = "perfbpf -p 42",
		.call_count = 7,
		.agent_count = 1,
		.lost = &r->lost,
	};
	buf_init(&r->out, 0);
}

static int append(void *ctx, const void *ptr, size_t len)
{
	return buf_push(ctx, ptr, len);
}

/* With PERFBPF_TEST_KEEP=DIR the file is kept there, for a checker of trace files. */
static void keep(const struct buf *out)
{
	const char *dir = getenv("PERFBPF_TEST_KEEP");
	static int n;
	char path[256];
	FILE *f;

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/trace-%03d.json", dir, n++);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(out->ptr, 1, out->len, f), out->len);
	assert_int_equal(fclose(f), 0);
}

static void run_write(struct run *r)
{
	struct trace_sink sink = {.ctx = &r->out, .write = append};

	buf_clear(&r->out);
	assert_int_equal(trace_write(r->spans, r->extra, r->procs, &r->meta, &sink), 0);
	keep(&r->out);
	cJSON_Delete(r->doc);
	r->doc = cJSON_ParseWithLength(r->out.ptr, r->out.len);
	assert_non_null(r->doc);
}

static void run_release(struct run *r)
{
	cJSON_Delete(r->doc);
	buf_release(&r->out);
	spans_free(r->spans);
	spans_free(r->extra);
	procs_free(r->procs);
}

static void push_call(struct run *r, struct call *c)
{
	const struct proc *p = procs_get(r->procs, &c->conn);
	struct span s;

	assert_non_null(p);
	assert_int_equal(span_from_call(&s, c, p->shown_pid, NULL, 0), 0);
	assert_int_equal(spans_push(r->spans, &s), 0);
	call_release(c);
}

static void push_exec(struct run *r, uint32_t pid, uint64_t start_ns, const char *comm, struct sv args)
{
	struct rec_exec e = {.proc = {.tgid = pid, .start_ns = start_ns, .exec_id = 1},
			     .ts_ns = start_ns,
			     .ppid = 1,
			     .comm = sv_of(comm),
			     .args = args};

	procs_push_exec(r->procs, &e);
}

/* --- what the file says ------------------------------------------------------------------------------------------ */

struct slice {
	uint32_t pid, tid;
	int64_t begin, end; /* ns */
	double ts, dur;
	const char *name;
	const cJSON *args;
};

static int64_t to_ns(double us)
{
	return llround(us * 1000);
}

static double member(const cJSON *e, const char *key)
{
	const cJSON *v = json_get(e, key);

	assert_true(cJSON_IsNumber(v));
	return v->valuedouble;
}

static int compare_slices(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end > y->end ? -1 : x->end < y->end;
}

static struct slice *slices_of(const struct run *r, size_t *count)
{
	const cJSON *events = json_get(r->doc, "traceEvents"), *e;
	struct slice *s = calloc((size_t)cJSON_GetArraySize(events) + 1, sizeof(*s));
	size_t n = 0;

	cJSON_ArrayForEach (e, events) {
		if (strcmp(json_get(e, "ph")->valuestring, "X"))
			continue;
		s[n] = (struct slice){.pid = (uint32_t)member(e, "pid"),
				      .tid = (uint32_t)member(e, "tid"),
				      .ts = member(e, "ts"),
				      .dur = member(e, "dur"),
				      .name = json_get(e, "name")->valuestring,
				      .args = json_get(e, "args")};
		s[n].begin = to_ns(s[n].ts);
		s[n].end = s[n].begin + to_ns(s[n].dur);
		n++;
	}
	if (n)
		qsort(s, n, sizeof(*s), compare_slices);
	*count = n;
	return s;
}

/* On every (pid, tid): slices nest, in ns and in doubles, at most two deep, and a child is a phase. Returns how many.
 */
static size_t assert_nested(const struct run *r)
{
	size_t n, depth = 0;
	struct slice *s = slices_of(r, &n), *stack[3];

	for (size_t i = 0; i < n; i++) {
		if (i && (s[i].pid != s[i - 1].pid || s[i].tid != s[i - 1].tid))
			depth = 0;
		while (depth && stack[depth - 1]->end <= s[i].begin)
			depth--;
		assert_true(depth < 2);
		if (depth) {
			const struct slice *parent = stack[depth - 1];

			assert_true(s[i].end < parent->end);
			assert_true(s[i].ts + s[i].dur <= parent->ts + parent->dur);
			assert_true(!strncmp(parent->name, "LLM ", 4) || !strcmp(parent->name, "connection"));
			assert_null(s[i].args);
		}
		stack[depth++] = &s[i];
	}
	free(s);
	return n;
}

/* Every process and thread that has events has exactly one name; every event is on a line of its own. */
static void assert_named(const struct run *r)
{
	const cJSON *events = json_get(r->doc, "traceEvents"), *e, *m;
	size_t lines = 0;

	for (size_t i = 0; i < r->out.len; i++)
		lines += r->out.ptr[i] == '\n';
	assert_int_equal(lines, cJSON_GetArraySize(events) + 2);
	cJSON_ArrayForEach (e, events) {
		const char *ph = json_get(e, "ph")->valuestring;
		bool thread = !strcmp(ph, "X") || (!strcmp(ph, "i") && !strcmp(json_get(e, "s")->valuestring, "t"));
		int names = 0, threads = 0;

		if (!strcmp(ph, "M"))
			continue;
		assert_true(member(e, "ts") >= 0);
		cJSON_ArrayForEach (m, events) {
			const char *what = json_get(m, "name")->valuestring;

			if (strcmp(json_get(m, "ph")->valuestring, "M"))
				break; /* names come first */
			if (member(m, "pid") != member(e, "pid"))
				continue;
			names += !strcmp(what, "process_name");
			threads += thread && !strcmp(what, "thread_name") && member(m, "tid") == member(e, "tid");
			if (strstr(what, "_name"))
				assert_true(json_get_string(json_get(m, "args"), "name").len > 0);
		}
		assert_int_equal(names, 1);
		assert_int_equal(threads, thread);
	}
}

static void log_events(struct tlog *l, const struct run *r, const char *phases)
{
	const cJSON *e;

	cJSON_ArrayForEach (e, json_get(r->doc, "traceEvents")) {
		const char *ph = json_get(e, "ph")->valuestring;
		const cJSON *args = json_get(e, "args");
		char *text = NULL;

		if (!strchr(phases, *ph))
			continue;
		if (args && *ph != 'X')
			text = cJSON_PrintUnformatted(args);
		tlog_printf(l, "%s %s", ph, json_get(e, "name")->valuestring);
		if (*ph != 'M')
			tlog_printf(l, " @%lld", (long long)to_ns(member(e, "ts")));
		if (*ph == 'X')
			tlog_printf(l, "+%lld", (long long)to_ns(member(e, "dur")));
		tlog_printf(l, " %g", member(e, "pid"));
		if (json_get(e, "tid"))
			tlog_printf(l, ".%.0f", member(e, "tid"));
		tlog_printf(l, "%s%s\n", text ? " " : "", text ? text : "");
		free(text);
	}
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

/* Requests of MCP have tracks of their own, beside those of calls and connections. */
static void mcp_tracks(void **state)
{
	struct mcp_call c = {.method = (char *)"tools/call", .target = (char *)"a"};
	struct tlog l = {0};
	struct span span;
	struct run r;

	(void)state;
	run_init(&r, 1000);
	for (unsigned i = 0; i < 3; i++) {
		c.start_ns = START + (1 + i) * S;
		c.end_ns = c.start_ns + (i ? 1 : 2) * S - 1;
		assert_int_equal(span_from_mcp(&span, &c, 42), 0);
		assert_int_equal(spans_push(r.spans, &span), 0);
	}
	run_write(&r);
	log_events(&l, &r, "MX");
	assert_log(&l, "M process_name 42.0 {\"name\":\"pid 42\"}\n"
		       "M process_sort_index 42.0 {\"sort_index\":2147483647}\n"
		       "M thread_name 42.5100001 {\"name\":\"MCP requests\"}\n"
		       "M thread_sort_index 42.5100001 {\"sort_index\":210000}\n"
		       "M thread_name 42.5100002 {\"name\":\"MCP requests (2)\"}\n"
		       "M thread_sort_index 42.5100002 {\"sort_index\":210001}\n"
		       "X tools/call a @1000000000+1999999999 42.5100001\n"
		       "X tools/call a @2000000000+999999999 42.5100002\n"
		       "X tools/call a @3000000000+999999999 42.5100001\n");
	assert_nested(&r);
	assert_named(&r);
	run_release(&r);
	tlog_free(&l);
}

static void one_call(void **state)
{
	struct tlog l = {0};
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	push_exec(&r, 42, START + S, "agent", SV("agent\0--flag\0"));
	make_call(&c, 1, 42, START + 2 * S);
	c.conn.start_ns = START + S;
	push_call(&r, &c);
	run_write(&r);
	log_events(&l, &r, "MX");
	assert_log(&l, "M process_name 42.0 {\"name\":\"agent\"}\n"
		       "M process_sort_index 42.0 {\"sort_index\":0}\n"
		       "M thread_name 42.42 {\"name\":\"process\"}\n"
		       "M thread_sort_index 42.42 {\"sort_index\":0}\n"
		       "M thread_name 42.5000001 {\"name\":\"LLM requests\"}\n"
		       "M thread_sort_index 42.5000001 {\"sort_index\":70000}\n"
		       "X exec agent @1000000000+9000000000 42.42\n"
		       "X LLM claude-test-1 @2000000000+1210000000 42.5000001\n"
		       "X send @2000000000+1999999 42.5000001\n"
		       "X wait @2002000000+197999999 42.5000001\n"
		       "X stream @2200000000+1009999999 42.5000001\n");
	assert_nested(&r);
	assert_named(&r);
	/* The head is what viewers sniff, the numbers have exactly three decimals. */
	assert_memory_equal(r.out.ptr, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{", 41);
	assert_non_null(strstr(buf_cstr(&r.out), "\"ts\":2200000.000,\"dur\":1009999.999,"));
	assert_string_equal(buf_cstr(&r.out) + r.out.len - 3, "}}\n");
	tlog_free(&l);
	run_release(&r);
}

static void process_life_says_how_it_ended(void **state)
{
	struct rec_exit exit = {.proc = {.tgid = 42, .start_ns = START - S, .exec_id = 1},
				.ts_ns = START + 3 * S,
				.code = 0,
				.signal = 9,
				.cpu_ns = 1500000};
	struct slice *s;
	char *args;
	size_t n;
	struct run r;

	(void)state;
	run_init(&r, 1000);
	procs_set_content(r.procs, true); /* else such an argument is not shown at all */
	push_exec(&r, 42, START - S, "agent", SV("agent\0\0x\x1b[8m"));
	procs_push_exit(r.procs, &exit);
	run_write(&r);
	s = slices_of(&r, &n);
	assert_int_equal(n, 1);
	assert_int_equal(s[0].begin, 0); /* began before the trace */
	assert_int_equal(s[0].end, 3 * S);
	args = cJSON_PrintUnformatted(cJSON_GetObjectItem(s[0].args, "argv"));
	assert_string_equal(args, "[\"agent\",\"\",\"x\\u001b[8m\"]");
	assert_true(json_get_true(s[0].args, "began_before_trace"));
	assert_true(member(s[0].args, "signal") == 9 && member(s[0].args, "exit_code") == 0);
	assert_true(member(s[0].args, "cpu_ms") == 1.5);
	assert_null(json_get(s[0].args, "unfinished"));
	free(args);
	free(s);
	run_release(&r);
}

/* Two programs that had the same pid, one after the other, are two processes. */
static void reused_pid_is_another_process(void **state)
{
	struct rec_exit exit = {.proc = {.tgid = 42, .start_ns = START, .exec_id = 1}, .ts_ns = START + 2 * S};
	struct tlog l = {0};
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	push_exec(&r, 42, START, "agent", SV("agent"));
	make_call(&c, 1, 42, START);
	c.conn.start_ns = START;
	push_call(&r, &c);
	procs_push_exit(r.procs, &exit);
	push_exec(&r, 42, START + 3 * S, "other", SV("other"));
	make_call(&c, 2, 42, START + 3 * S);
	c.conn.start_ns = START + 3 * S;
	push_call(&r, &c);
	run_write(&r);
	log_events(&l, &r, "M");
	assert_non_null(strstr(l.text, "process_name 42.0 {\"name\":\"agent\"}"));
	assert_non_null(strstr(l.text, "process_name 1e+07.0 {\"name\":\"other\"}"));
	assert_int_equal(assert_nested(&r), 10);
	assert_named(&r);
	tlog_free(&l);
	run_release(&r);
}

/* Half-open lanes: a call that begins where another ends takes its lane; the lowest free one is taken. */
static void lowest_free_lane(void **state)
{
	static const struct {
		uint64_t begin, end;
		double tid;
	} wanted[] = {{0, 100, 5000001},   {50, 150, 5000002},	{90, 400, 5000003}, {101, 120, 5000001},
		      {121, 160, 5000001}, {150, 170, 5000004}, {151, 151, 5000002}};
	struct slice *s;
	struct run r;
	size_t n;

	(void)state;
	run_init(&r, 1000);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		struct span span = {.begin_ns = START + wanted[i].begin,
				    .end_ns = START + wanted[i].end,
				    .pid = 9,
				    .cat = "llm",
				    .first_token_ns = UNKNOWN_NS,
				    .is_call = true};
		char name[32];

		snprintf(name, sizeof(name), "LLM %zu", i);
		span.name = strdup(name);
		assert_int_equal(spans_push(r.spans, &span), 0);
	}
	run_write(&r);
	s = slices_of(&r, &n);
	assert_int_equal(n, sizeof(wanted) / sizeof(wanted[0]));
	for (size_t i = 0; i < n; i++) {
		int tag = atoi(s[i].name + 4);

		assert_true(s[i].tid == wanted[tag].tid);
		assert_int_equal(s[i].begin, wanted[tag].begin);
		assert_int_equal(s[i].end, wanted[tag].end);
	}
	assert_named(&r); /* pid 9 is in no process table: "pid 9" */
	assert_non_null(strstr(buf_cstr(&r.out), "\"name\":\"pid 9\""));
	assert_non_null(strstr(buf_cstr(&r.out), "\"name\":\"LLM requests (4)\""));
	free(s);
	run_release(&r);
}

static void network_spans_have_their_own_lanes(void **state)
{
	struct span_setup setup = {.shown_pid = 9,
				   .dns_begin_ns = UNKNOWN_NS,
				   .dns_end_ns = UNKNOWN_NS,
				   .connect_begin_ns = START + 10,
				   .connect_end_ns = START + 30,
				   .tls_begin_ns = START + 30,
				   .tls_end_ns = START + 50};
	struct tlog l = {0};
	struct span s;
	struct run r;

	(void)state;
	run_init(&r, 1000);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(span_from_setup(&s, &setup), 0);
		assert_int_equal(spans_push(r.spans, &s), 0);
	}
	run_write(&r);
	log_events(&l, &r, "XC");
	assert_log(&l, "X connection @10+40 9.5200001\nX connect @10+19 9.5200001\nX tls @30+19 9.5200001\n"
		       "X connection @10+40 9.5200002\nX connect @10+19 9.5200002\nX tls @30+19 9.5200002\n");
	assert_nested(&r);
	assert_named(&r);
	tlog_free(&l);
	run_release(&r);
}

/* Whoever made no call leaves nothing, and takes no lane of the others'. */
static void only_callers_are_shown(void **state)
{
	struct span_setup setup = {.dns_begin_ns = UNKNOWN_NS,
				   .dns_end_ns = UNKNOWN_NS,
				   .connect_begin_ns = START + 10,
				   .connect_end_ns = START + 30,
				   .tls_begin_ns = UNKNOWN_NS,
				   .tls_end_ns = UNKNOWN_NS};
	struct tlog l = {0};
	struct span s;
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	r.meta.callers_only = true;
	push_exec(&r, 9, START, "silent", SV("silent"));
	push_exec(&r, 42, START, "agent", SV("agent"));
	make_call(&c, 1, 42, START);
	c.conn.start_ns = START;
	procs_call_made(r.procs, &c.conn);
	for (int i = 0; i < 2; i++) {
		setup.shown_pid = i ? 42 : 9;
		assert_int_equal(span_from_setup(&s, &setup), 0);
		assert_int_equal(spans_push(r.spans, &s), 0);
	}
	push_call(&r, &c);
	run_write(&r);
	log_events(&l, &r, "MX");
	assert_null(strstr(l.text, "silent"));
	assert_null(strstr(l.text, " 9."));
	assert_non_null(strstr(l.text, "process_name 42.0 {\"name\":\"agent\"}"));
	assert_non_null(strstr(l.text, "X connection @10+20 42.5200001\n"));
	assert_nested(&r);
	assert_named(&r);
	tlog_free(&l);
	run_release(&r);
}

static void retransmits_lie_in_the_slice(void **state)
{
	uint64_t at[] = {START + 1500 * MS, START, START + 9 * S};
	struct tlog l = {0};
	struct run r;
	struct call c;
	struct span s;

	(void)state;
	run_init(&r, 1000);
	make_call(&c, 1, 42, START + S);
	assert_int_equal(span_from_call(&s, &c, 42, at, 3), 0);
	assert_int_equal(spans_push(r.spans, &s), 0);
	run_write(&r);
	log_events(&l, &r, "i");
	assert_log(&l, "i retransmit @1500000000 42.5000001\ni retransmit @1000000000 42.5000001\n"
		       "i retransmit @2209999999 42.5000001\n");
	assert_named(&r);
	tlog_free(&l);
	call_release(&c);
	run_release(&r);
}

/* Times before the start are drawn at 0, times beyond what a double holds at the last one; nesting survives both. */
static void times_outside_are_clamped(void **state)
{
	static const uint64_t begins[] = {0,	 START - 1205 * MS,  START - 100 * MS,
					  START, UINT64_MAX - 2 * S, UINT64_MAX / 2};
	struct run r;

	(void)state;
	run_init(&r, 1000);
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		struct call c;

		make_call(&c, i, 42, begins[i]);
		push_call(&r, &c);
	}
	run_write(&r);
	assert_true(assert_nested(&r) > 6);
	assert_named(&r);
	run_release(&r);
}

/* What comes behind the last token (counts, the end of the stream) brings none. */
static void rate_ends_with_the_last_token(void **state)
{
	struct tlog l = {0};
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	make_call(&c, 1, 42, START + S);
	c.end_ns = c.last_token_ns + S;
	push_call(&r, &c);
	run_write(&r);
	log_events(&l, &r, "C");
	assert_log(&l, "C tokens/s @1000000000 42 {\"in\":500,\"out\":0}\n"
		       "C calls in flight @1000000000 42 {\"n\":1}\n"
		       "C tokens/s @1200000000 42 {\"in\":0,\"out\":100}\n"
		       "C tokens/s @2200000000 42 {\"in\":0,\"out\":0}\n"
		       "C calls in flight @3200000000 42 {\"n\":0}\n");
	tlog_free(&l);
	run_release(&r);
}

static void counters_of_two_calls(void **state)
{
	struct tlog l = {0};
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	make_call(&c, 1, 42, START + S);
	push_call(&r, &c);
	make_call(&c, 2, 42, START + S + 50 * MS);
	push_call(&r, &c);
	run_write(&r);
	log_events(&l, &r, "C");
	/* 100 input tokens over 200 ms, 100 tokens after the first one over 1 s. Samples are at least 100 ms apart. */
	assert_log(&l, "C tokens/s @1000000000 42 {\"in\":500,\"out\":0}\n"
		       "C calls in flight @1000000000 42 {\"n\":1}\n"
		       "C tokens/s @1100000000 42 {\"in\":1000,\"out\":0}\n"
		       "C tokens/s @1200000000 42 {\"in\":500,\"out\":100}\n"
		       "C calls in flight @1100000000 42 {\"n\":2}\n" /* file order is free */
		       "C tokens/s @1300000000 42 {\"in\":0,\"out\":200}\n"
		       "C tokens/s @2200000000 42 {\"in\":0,\"out\":100}\n"
		       "C calls in flight @2210000000 42 {\"n\":1}\n"
		       "C tokens/s @2260000000 42 {\"in\":0,\"out\":0}\n"
		       "C calls in flight @2260000000 42 {\"n\":0}\n");
	tlog_free(&l);
	/* Past the limit of events the newest samples are kept: they need none of the others. */
	r.meta.max_events = spans_events(r.spans) + 1 + 3; /* the life of the process, too */
	run_write(&r);
	log_events(&l, &r, "C");
	assert_log(&l, "C calls in flight @2210000000 42 {\"n\":1}\n"
		       "C tokens/s @2260000000 42 {\"in\":0,\"out\":0}\n"
		       "C calls in flight @2260000000 42 {\"n\":0}\n");
	tlog_free(&l);
	r.meta.max_events = 1;
	run_write(&r);
	log_events(&l, &r, "C");
	assert_log(&l, "");
	tlog_free(&l);
	run_release(&r);
}

/* Measured ones, of processes that are shown and of the run; the newest, where there is no room for all. */
static void measured_counters(void **state)
{
	struct counters *counters = counters_new(1000);
	struct tlog l = {0};
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	make_call(&c, 1, 42, START + S);
	push_call(&r, &c);
	counters_push(counters, COUNTER_CPU, 42, START + S, 853);
	counters_push(counters, COUNTER_CPU, 43, START + S, 1); /* not shown */
	counters_push(counters, COUNTER_SRTT, 42, START + S, 1500);
	counters_push(counters, COUNTER_LOST, 0, START + 2 * S, 7);
	r.meta.counters = counters;
	r.meta.max_events = spans_events(r.spans) + 1 + 6 + 2;
	run_write(&r);
	log_events(&l, &r, "C");
	assert_non_null(strstr(l.text, "C srtt @1000000000 42 {\"us\":1500}\n"));
	assert_non_null(strstr(l.text, "C lost events @2000000000 1e+07 {\"n\":7}\n"));
	assert_null(strstr(l.text, "C cpu"));
	tlog_free(&l);
	r.meta.max_events = 1000;
	run_write(&r);
	log_events(&l, &r, "C");
	assert_non_null(strstr(l.text, "C cpu @1000000000 42 {\"percent\":85.3}\n"));
	assert_null(strstr(l.text, " 43 "));
	tlog_free(&l);
	run_release(&r);
	counters_free(counters);
}

static void assert_counters(const struct run *r)
{
	const cJSON *e;
	struct series {
		double pid, ts, value[2], prev_ts;
		char name[32];
	} series[64];
	size_t n = 0, i;

	cJSON_ArrayForEach (e, json_get(r->doc, "traceEvents")) {
		const cJSON *args = json_get(e, "args");
		const char *name = json_get(e, "name")->valuestring;
		bool rate = json_get(args, "in");

		if (strcmp(json_get(e, "ph")->valuestring, "C"))
			continue;
		assert_int_equal(cJSON_GetArraySize(args), rate ? 2 : 1);
		for (i = 0; i < n && (series[i].pid != member(e, "pid") || strcmp(series[i].name, name)); i++)
			;
		assert_true(i < 64);
		if (i == n) {
			series[n++] = (struct series){.pid = member(e, "pid"), .prev_ts = -2e9, .ts = -1e9};
			snprintf(series[i].name, sizeof(series[i].name), "%s", name);
		}
		/* Only the last one may be sooner than 100 ms after the one before. */
		assert_true(series[i].ts - series[i].prev_ts > 99999.9);
		assert_true(member(e, "ts") > series[i].ts);
		series[i].prev_ts = series[i].ts;
		series[i].ts = member(e, "ts");
		series[i].value[0] = member(args, rate ? "in" : "n");
		series[i].value[1] = rate ? member(args, "out") : 0;
		assert_true(series[i].value[0] >= 0 && series[i].value[1] >= 0);
	}
	for (i = 0; i < n; i++)
		assert_true(series[i].value[0] == 0 && series[i].value[1] == 0);
}

/* Hundreds of calls at random times in a few processes, some open, some set-ups: always nested, named, back to 0. */
static void random_calls_nest(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		uint64_t random = seed * 7919, big = seed % 3 ? 0 : 40ull * 24 * 3600 * S;
		struct run r;

		run_init(&r, seed % 2 ? 500 : 100000);
		r.extra = spans_new(1000, &r.lost);
		for (unsigned i = 0; i < 300; i++) {
			struct call c;
			struct span s;
			/* odd ns, so that sums of doubles are not exact */
			uint64_t begin = START + big + test_random(&random) % (3 * S), len = test_random(&random) % S;

			make_call(&c, i, 40 + (uint32_t)(test_random(&random) % 4), begin);
			c.send_end_ns = begin + len / 10;
			c.ttfb_ns = begin + len / 3;
			c.first_token_ns =
				test_random(&random) % 5 ? begin + len / 3 + test_random(&random) % 3 : UNKNOWN_NS;
			c.last_token_ns = begin + len - len / 7;
			c.end_ns = begin + len;
			if (test_random(&random) % 4 == 0)
				add_setup(&c);
			if (i % 10 == 0) {
				c.unfinished = true;
				assert_int_equal(span_from_call(&s, &c, c.conn.tgid, NULL, 0), 0);
				assert_int_equal(spans_push(r.extra, &s), 0);
				call_release(&c);
			} else {
				push_call(&r, &c);
			}
		}
		run_write(&r);
		assert_true(assert_nested(&r) > 100);
		assert_counters(&r);
		if (seed < 3)
			assert_named(&r);
		run_release(&r);
	}
}

static void metadata_says_it_all(void **state)
{
	char *long_command = calloc(1, 100001);
	const cJSON *m, *lost;
	struct run r;

	(void)state;
	run_init(&r, 1000);
	r.lost.n[LOST_BYTES] = 12;
	r.lost.late_bytes = 3;
	r.lost.evicted_calls = 4;
	r.lost.capped_bytes = 5;
	r.meta.attach_json = SV("[{\"class\":\"entry\"}]");
	r.meta.self_json = SV("{\"cpu_ms\":1}");
	memset(long_command, 0x7f, 100000);
	r.meta.command = long_command;
	r.meta.axes[0] = "db";
	run_write(&r);
	m = json_get(r.doc, "metadata");
	lost = json_get(m, "lost");
	assert_true(member(m, "agent_count") == 1 && member(m, "call_count") == 7);
	assert_string_equal(json_get_string(m, "start_time").ptr, "2023-11-14T22:13:25.000000000Z");
	assert_string_equal(json_get_string(m, "boot_to_unix_ns").ptr, "1700000000000000000");
	assert_string_equal(json_get_string(m, "clock").ptr, "boottime");
	assert_string_equal(json_get_string(m, "host").ptr, "testhost");
	assert_int_equal(cJSON_GetArraySize(json_get(m, "axes")), 1);
	assert_string_equal(cJSON_GetArrayItem(json_get(m, "axes"), 0)->valuestring, "db");
	assert_int_equal(json_get_string(m, "command").len, TRACE_COMMAND_BYTES);
	assert_int_equal(cJSON_GetArraySize(lost), LOST_COUNT);
	for (int i = 0; i < LOST_COUNT; i++)
		assert_true(member(lost, lost_name((enum lost_id)i)) == (i == LOST_BYTES ? 12 : 0));
	assert_true(member(m, "late_bytes") == 3 && member(m, "evicted_calls") == 4 && member(m, "capped_bytes") == 5);
	assert_true(cJSON_IsArray(json_get(m, "attach")) && cJSON_IsObject(json_get(m, "self")));
	free(long_command);
	run_release(&r);
}

/* No null anywhere, and an event even where nothing happened: viewers refuse the file otherwise. */
static void empty_trace_is_valid(void **state)
{
	struct tlog l = {0};
	struct run r;

	(void)state;
	run_init(&r, 1000);
	r.meta = (struct trace_meta){.lost = &r.lost};
	run_write(&r);
	log_events(&l, &r, "MXiC");
	assert_log(&l, "M process_name 1e+07.0 {\"name\":\"perfbpf\"}\ni perfbpf start @0 1e+07.9999999\n");
	assert_null(strstr(buf_cstr(&r.out), "null"));
	assert_string_equal(json_get_string(json_get(r.doc, "metadata"), "start_time").ptr, "unknown");
	tlog_free(&l);
	run_release(&r);
}

/* A name that is no text, a pid that no viewer takes. */
static void forged_names_and_pids(void **state)
{
	struct run r;
	struct call c;

	(void)state;
	run_init(&r, 1000);
	push_exec(&r, 7, START, "\xff\xfe\x1b[31m\x7f\"", SV("\xff"));
	make_call(&c, 1, 7, START);
	c.conn.start_ns = START;
	push_call(&r, &c);
	make_call(&c, 2, 0, START);
	push_call(&r, &c);
	make_call(&c, 3, UINT32_MAX, START);
	push_call(&r, &c);
	run_write(&r);
	assert_nested(&r);
	assert_named(&r);
	for (size_t i = 0; i < r.out.len; i++)
		assert_true((uint8_t)r.out.ptr[i] == '\n' || ((uint8_t)r.out.ptr[i] >= 0x20 && r.out.ptr[i] != 0x7f));
	run_release(&r);
}

/* Of a processor: what a busy machine does meanwhile is not counted. */
static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int swallow(void *ctx, const void *ptr, size_t len)
{
	size_t *largest = ctx;

	(void)ptr;
	if (len > *largest)
		*largest = len;
	return 0;
}

static void many_events_are_quick(void **state)
{
	size_t largest = 0;
	struct trace_sink sink = {.ctx = &largest, .write = swallow};
	double took;
	struct run r;

	(void)state;
	run_init(&r, 100000);
	for (unsigned i = 0; i < 25000; i++) {
		struct call c;

		make_call(&c, i, 42 + i % 3, START + i * 7 * MS);
		push_call(&r, &c);
	}
	assert_int_equal(spans_events(r.spans), 100000);
	took = seconds();
	assert_int_equal(trace_write(r.spans, NULL, r.procs, &r.meta, &sink), 0);
	took = seconds() - took;
	print_message("100000 events in %.0f ms\n", took * 1000);
#ifndef __SANITIZE_ADDRESS__
	assert_true(took < 2); /* 0.2 s */
#endif
	assert_true(largest < 65536); /* in pieces */
	run_release(&r);
}

static int refuse(void *ctx, const void *ptr, size_t len)
{
	(void)ptr;
	(void)len;
	return (*(int *)ctx)-- > 0 ? 0 : -ENOSPC;
}

static void sink_failure_ends_the_writing(void **state)
{
	struct run r;

	(void)state;
	run_init(&r, 100000);
	for (unsigned i = 0; i < 500; i++) {
		struct call c;

		make_call(&c, i, 42, START + i * MS);
		push_call(&r, &c);
	}
	for (int n = 0; n < 3; n++) {
		int left = n;
		struct trace_sink sink = {.ctx = &left, .write = refuse};

		assert_int_equal(trace_write(r.spans, NULL, r.procs, &r.meta, &sink), -ENOSPC);
		assert_int_equal(left, -1); /* not asked again */
	}
	run_release(&r);
}

static void no_memory_is_reported(void **state)
{
	struct run r;
	bool done = false;

	(void)state;
	run_init(&r, 100000);
	push_exec(&r, 42, START, "agent", SV("agent"));
	for (unsigned i = 0; i < 70; i++) {
		struct call c;

		make_call(&c, i, 42 + i, START + i * MS);
		push_call(&r, &c);
	}
	for (unsigned n = 1; !done; n++) {
		size_t largest = 0;
		struct trace_sink sink = {.ctx = &largest, .write = swallow};
		int err;

		fail_nth(n);
		err = trace_write(r.spans, NULL, r.procs, &r.meta, &sink);
		done = !fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, done ? 0 : -ENOMEM);
		assert_true(n < 1000);
	}
	run_release(&r);
}

/* A turn, the tool that it ran, and a sub-agent that the tool started: their lanes, names and arrows. */
static void agents_and_arrows(void **state)
{
	struct run r;
	struct call c;
	struct span s;
	struct tlog log = {0};
	const struct turn turn = {
		.id = 1, .shown_pid = 42, .at = {START + S, START + 9 * S}, .steps = 2, .complete = true};
	struct agent_tool tool = {.shown_pid = 42,
				  .name = "Task",
				  .call_id = 1,
				  .at = {START + 3 * S, START + 8 * S},
				  .spawned = 1,
				  .result_bytes = 7,
				  .is_error = -1};
	static const struct trace_agent_name names[] = {{1, "Explore"}, {70000, "Plan"}};

	(void)state;
	run_init(&r, 1000);
	push_exec(&r, 42, START, "agent", SV_NONE);
	push_exec(&r, 43, START + 4 * S, "npm", SV("npm\0test\0"));
	assert_int_equal(span_from_turn(&s, &turn), 0);
	assert_int_equal(spans_push(r.spans, &s), 0);
	assert_int_equal(span_from_tool(&s, &tool), 0);
	assert_int_equal(spans_push(r.spans, &s), 0);
	tool.spawned = 0;
	tool.name = "Bash";
	tool.join = TOOL_JOIN_TIME;
	tool.processes = 1;
	tool.child_pid = 43;
	assert_int_equal(span_from_tool(&s, &tool), 0);
	assert_int_equal(spans_push(r.spans, &s), 0);
	tool.child_pid = 4444; /* not drawn: no arrow */
	assert_int_equal(span_from_tool(&s, &tool), 0);
	assert_int_equal(spans_push(r.spans, &s), 0);
	make_call(&c, 2, 42, START + 4 * S);
	assert_int_equal(span_from_call(&s, &c, 42, NULL, 0), 0);
	s.agent = 1;
	s.flow_in = SPAN_FLOW_AGENT(1);
	assert_int_equal(spans_push(r.spans, &s), 0);
	call_release(&c);
	r.meta.agent_names = names;
	r.meta.agent_name_count = 2;
	run_write(&r);
	assert_named(&r);
	log_events(&log, &r, "sf");
	assert_string_equal(log.text, "s spawn @3000000000 42.5400001\n"
				      "s spawn @3000000000 42.5400002\n"
				      "f spawn @4000000000 43.43\n"
				      "f spawn @4000000000 42.5000001\n");
	tlog_free(&log);
	log_events(&log, &r, "M");
	assert_non_null(strstr(log.text, "thread_name 42.5000001 {\"name\":\"agent 1 Explore: LLM requests\"}"));
	assert_non_null(strstr(log.text, "thread_name 42.5300001 {\"name\":\"turns\"}"));
	assert_non_null(strstr(log.text, "thread_name 42.5400003 {\"name\":\"tools (3)\"}"));
	tlog_free(&log);
	run_release(&r);
}

static void push_tool(struct run *r, uint64_t begin_ns, unsigned agent, uint32_t child_pid, unsigned spawned)
{
	struct agent_tool tool = {.agent = agent,
				  .sub = agent != 0,
				  .shown_pid = 42,
				  .name = "Task",
				  .at = {begin_ns, begin_ns + S},
				  .processes = child_pid != 0,
				  .child_pid = child_pid,
				  .spawned = spawned};
	struct span s;

	assert_int_equal(span_from_tool(&s, &tool), 0);
	assert_int_equal(spans_push(r->spans, &s), 0);
}

/* Two tools may own a process: the earlier one has its arrow. It ends where it begins at the earliest, and nowhere when
 * what it goes to was over by then. In the file beginnings come first. */
static void arrows_run_forwards(void **state)
{
	struct rec_exit exit = {.proc = {.tgid = 45, .start_ns = START + S, .exec_id = 1}, .ts_ns = START + 2 * S};
	struct tlog log = {0};
	struct run r;

	(void)state;
	run_init(&r, 1000);
	r.meta.now_ns = START + 20 * S;
	push_exec(&r, 42, START, "agent", SV_NONE);
	push_exec(&r, 43, START + 4 * S, "npm", SV("npm\0"));
	push_exec(&r, 44, START + 1 * S, "git", SV("git\0"));
	push_exec(&r, 45, START + 1 * S, "cat", SV("cat\0"));
	procs_push_exit(r.procs, &exit);
	push_tool(&r, START + 5 * S, 0, 43, 0);
	push_tool(&r, START + 4 * S, 0, 43, 0);
	push_tool(&r, START + 3 * S, 0, 44, 0);
	push_tool(&r, START + 3 * S, 0, 45, 0);
	run_write(&r);
	log_events(&log, &r, "sf");
	assert_string_equal(log.text, "s spawn @4000000000 42.5400003\n"
				      "s spawn @3000000000 42.5400001\n"
				      "f spawn @4000000000 43.43\n"
				      "f spawn @3000000000 44.44\n");
	tlog_free(&log);
	run_release(&r);
}

/* Sub-agents' tracks lie below those of the agent, each agent's together. */
static void tracks_lie_by_agent(void **state)
{
	static const char *const lines[] = {"42.5400001 {\"sort_index\":140000}", "42.5300001 {\"sort_index\":350000}",
					    "42.5400002 {\"sort_index\":350001}", "42.5400003 {\"sort_index\":350002}",
					    "42.5300002 {\"sort_index\":350003}", "42.5400004 {\"sort_index\":350004}"};
	struct tlog log = {0};
	struct span s;
	struct run r;

	(void)state;
	run_init(&r, 1000);
	push_exec(&r, 42, START, "agent", SV_NONE);
	for (unsigned agent = 0; agent < 3; agent++) {
		const struct turn turn = {
			.shown_pid = 42, .agent = agent, .sub = true, .at = {START + S, START + 2 * S}};

		push_tool(&r, START + S, agent, 0, 0);
		if (!agent)
			continue;
		assert_int_equal(span_from_turn(&s, &turn), 0);
		assert_int_equal(spans_push(r.spans, &s), 0);
	}
	push_tool(&r, START + S, 1, 0, 0);
	run_write(&r);
	assert_named(&r);
	log_events(&log, &r, "M");
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_non_null(strstr(log.text, lines[i]));
	tlog_free(&log);
	run_release(&r);
}

/* Content kinds and silences nest inside of the stream, each ending before what is around it. */
static void details_nest(void **state)
{
	struct run r;
	struct call c;
	struct span s;
	struct tlog log = {0};
	struct call_segment segments[] = {{TOKEN_REASONING, {START + 1200 * MS, START + 1500 * MS}, 9},
					  {TOKEN_TEXT, {START + 1600 * MS, START + 2200 * MS}, 20}};
	struct interval stalls[] = {{START + 1300 * MS, START + 1500 * MS}, {START + 1500 * MS, START + 1600 * MS}};
	struct interval late[] = {{START + 1510 * MS, START + 1600 * MS}};
	uint64_t retransmit = START + 1400 * MS;

	(void)state;
	run_init(&r, 1000);
	push_exec(&r, 42, START, "agent", SV_NONE);
	make_call(&c, 2, 42, START + S);
	c.segments = segments;
	c.segment_count = 2;
	c.stall_at = stalls;
	c.stall_count = 2;
	c.late_at = late;
	c.late_count = 1;
	assert_int_equal(span_from_call(&s, &c, 42, &retransmit, 1), 0);
	assert_int_equal(spans_push(r.spans, &s), 0);
	assert_int_equal(spans_events(r.spans), 1 + 3 + 4 + 1);
	run_write(&r);
	log_events(&log, &r, "X");
	assert_non_null(strstr(log.text, "X stream @1200000000+1009999999 42.5000001\n"
					 "X thinking @1200000000+299999999 42.5000001\n"
					 "X stall: network @1300000000+199999998 42.5000001\n"
					 "X stall: client @1500000000+99999999 42.5000001\n"
					 "X text @1600000000+599999999 42.5000001\n"));
	tlog_free(&log);
	c.segments = NULL;
	c.stall_at = c.late_at = NULL;
	call_release(&c);
	run_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agents_and_arrows),
		cmocka_unit_test(arrows_run_forwards),
		cmocka_unit_test(tracks_lie_by_agent),
		cmocka_unit_test(details_nest),
		cmocka_unit_test(mcp_tracks),
		cmocka_unit_test(one_call),
		cmocka_unit_test(process_life_says_how_it_ended),
		cmocka_unit_test(reused_pid_is_another_process),
		cmocka_unit_test(lowest_free_lane),
		cmocka_unit_test(network_spans_have_their_own_lanes),
		cmocka_unit_test(only_callers_are_shown),
		cmocka_unit_test(retransmits_lie_in_the_slice),
		cmocka_unit_test(times_outside_are_clamped),
		cmocka_unit_test(rate_ends_with_the_last_token),
		cmocka_unit_test(counters_of_two_calls),
		cmocka_unit_test(measured_counters),
		cmocka_unit_test(random_calls_nest),
		cmocka_unit_test(metadata_says_it_all),
		cmocka_unit_test(empty_trace_is_valid),
		cmocka_unit_test(forged_names_and_pids),
		cmocka_unit_test(many_events_are_quick),
		cmocka_unit_test(sink_failure_ends_the_writing),
		cmocka_unit_test(no_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
