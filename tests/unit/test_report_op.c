/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Operations of a small trace: which events are what, and the tables. */
#include <errno.h>

#include <cjson/cJSON.h>

#include "harness.h"

#include "view/report.h"

/* Two threads of a service (pid 7), an event loop (pid 8), an agent with a sub-agent (pid 9). Times in ms. */
struct maker {
	struct buf text;
	const char *comma;
};

static void put(struct maker *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct maker *m, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	assert_int_equal(buf_printf(&m->text, "%s\n%s", m->comma, line), 0);
	m->comma = ",";
}

static void process(struct maker *m, unsigned pid, const char *name)
{
	put(m, "{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", pid, name);
}

static void slice(struct maker *m, unsigned pid, unsigned track, unsigned from, unsigned to, const char *cat,
		  const char *name, const char *args)
{
	put(m,
	    "{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%u.000,\"dur\":%u.000,\"name\":\"%s\",\"cat\":\"%s\",\"args\":{"
	    "%s}}",
	    pid, track, 1000 * from, 1000 * (to - from), name, cat, args);
}

#define SERVED(tid, answer, path)                                                                                      \
	"\"side\":\"server\",\"path\":\"" path "\",\"os_tid\":" #tid ",\"response_tid\":" #answer
#define QUERY(tid) "\"db.system.name\":\"postgresql\",\"db.query.text\":\"SELECT ?\",\"os_tid\":" #tid

static void put_service(struct maker *m)
{
	process(m, 7, "api");
	slice(m, 7, 5600001, 0, 100, "http", "GET /users/:id", SERVED(71, 71, "/users/1"));
	slice(m, 7, 5600002, 50, 250, "http", "GET /users/:id", SERVED(72, 72, "/users/2"));
	for (unsigned i = 0; i < 10; i++)
		slice(m, 7, 5500001, 10 + 2 * i, 11 + 2 * i, "db", "postgresql SELECT", QUERY(71));
	slice(m, 7, 5000001, 100, 200, "llm", "LLM m1", "\"host\":\"api\",\"os_tid\":72");
	slice(m, 7, 5000001, 100, 150, "llm,phase", "send", "");
	slice(m, 7, 5600003, 190, 220, "http", "POST /x", "\"side\":\"client\",\"host\":\"up\",\"os_tid\":72");
	slice(m, 7, 5200001, 220, 223, "net", "connection", "\"peer\":\"10.0.0.1:80\",\"os_tid\":72");
	slice(m, 7, 5200001, 221, 222, "net,phase", "connect", "");
	slice(m, 7, 5100001, 225, 235, "mcp", "tools/call t", "\"server\":\"s\",\"os_tid\":72");
	slice(m, 70, 70, 236, 246, "process", "exec sh", "\"ppid\":7,\"parent_tid\":72");
	slice(m, 71, 71, 60, 400, "process", "exec daemon", "\"ppid\":7,\"parent_tid\":72");
	slice(m, 7, 5600004, 300, 400, "http", "GET /users/:id", SERVED(71, 71, "/users/3") ",\"unfinished\":true");
}

static void put_loop(struct maker *m)
{
	process(m, 8, "node");
	slice(m, 8, 5600001, 0, 100, "http", "POST /graphql Get", SERVED(81, 81, "/graphql"));
	slice(m, 8, 5600002, 50, 150, "http", "POST /graphql Get", SERVED(81, 81, "/graphql"));
	slice(m, 8, 5500001, 60, 70, "db", "postgresql SELECT", QUERY(81));
}

static void put_agent(struct maker *m)
{
	process(m, 9, "Claude Code");
	put(m, "{\"ph\":\"M\",\"pid\":9,\"tid\":5300002,\"name\":\"thread_name\",\"args\":{\"name\":\"agent 3 Explore: "
	       "turns\"}}");
	put(m, "{\"ph\":\"M\",\"pid\":9,\"tid\":5300001,\"name\":\"thread_name\",\"args\":{\"name\":\"turns\"}}");
	put(m, "{\"ph\":\"M\",\"pid\":9,\"tid\":5000002,\"name\":\"thread_name\",\"args\":{\"name\":\"agent 3 Explore: "
	       "LLM requests\"}}");
	put(m,
	    "{\"ph\":\"M\",\"pid\":9,\"tid\":5000001,\"name\":\"thread_name\",\"args\":{\"name\":\"LLM requests\"}}");
	put(m, "{\"ph\":\"M\",\"pid\":9,\"tid\":5400001,\"name\":\"thread_name\",\"args\":{\"name\":\"tools\"}}");
	slice(m, 9, 5300001, 0, 1000, "turn", "turn", "");
	slice(m, 9, 5300002, 300, 700, "turn", "turn", "");
	slice(m, 9, 5000001, 0, 200, "llm", "LLM m1", "\"os_tid\":91");
	slice(m, 9, 5400001, 250, 750, "tool", "tool: Task", "");
	slice(m, 9, 5000002, 300, 600, "llm", "LLM m1", "\"os_tid\":91");
}

/* At 10 ms a sample: what thread 71 and 72 did. */
static const char *const profile =
	"\n],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000,\"cpu\":{\"period_ns\":10000000,"
	"\"samples\":5,"
	"\"broken_ns\":0},\"off_cpu\":{\"min_ns\":1000000},\"lost_samples\":0,\"threads\":[\n[7,71,\"api\",\"api\"],\n"
	"[7,72,\"api\",\"api\"]\n],\"frames\":[\n[\"hot\",\"api\"],\n[\"main\",\"api\"]\n],\"stacks\":[\n"
	"[\"cpu\",0,20000000,2,\"whole\",[0,1]],\n[\"cpu\",1,30000000,3,\"whole\",[1]],\n"
	"[\"futex\",0,20000000,1,\"whole\",[1]],\n[\"run queue\",0,5000000,1,\"whole\",[]],\n"
	"[\"socket\",1,100000000,1,\"whole\",[1]]\n],\"timeline\":[\n"
	"[15000,10000,0,25000,20000,2,20000,5000,3,5000,10000,0,5000,10000,1,30000,100000,4],\n[205000,10000,1,295000,"
	"10000,1]"
	"\n]}},\"metadata\":{\"duration_ms\":1000.0}}\n";

static struct maker maker_new(void)
{
	struct maker m = {.comma = ""};

	buf_init(&m.text, 0);
	assert_int_equal(buf_puts(&m.text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["), 0);
	return m;
}

static struct maker trace_of(bool service, bool loop, bool agent)
{
	struct maker m = maker_new();

	if (service)
		put_service(&m);
	if (loop)
		put_loop(&m);
	if (agent)
		put_agent(&m);
	assert_int_equal(buf_puts(&m.text, service ? profile : "\n],\"metadata\":{\"duration_ms\":1000.0}}\n"), 0);
	return m;
}

/* So many samples of 100 bytes each, of threads 71, 72 and another; one byte in 8 was seen. told: of the process. */
static struct maker trace_of_allocations_told(unsigned first, unsigned second, const char *told)
{
	struct maker m = maker_new();
	unsigned all = first + second + 6;

	put_service(&m);
	buf_printf(&m.text,
		   "\n],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000,\"alloc\":{"
		   "\"bytes_per_sample\":100,\"processes\":[{\"pid\":7%s}]}",
		   told);
	buf_puts(&m.text,
		 ",\"threads\":[\n[7,0,\"api\",\"\"]\n],\"frames\":[\n[\"hot\",\"api\"],\n[\"main\",\"api\"]\n],"
		 "\"stacks\":[\n],\"timeline\":[\n],"
		 "\"memory\":[\n[\"alloc\",0,1,1,1,1,1,1,\"whole\",[0,1]],\n[\"alloc\",0,1,1,1,1,1,1,\"whole\","
		 "[1]]\n],\"allocations\":[\n");
	for (unsigned i = 0; i < all; i++) {
		unsigned tid = i < first ? 71 : i < first + second ? 72 : 73;

		buf_printf(&m.text, "[%u,%u,%u,100,1]%s\n", 60000 + i, tid, tid == 71 ? 0 : 1, i + 1 < all ? "," : "");
	}
	buf_printf(&m.text,
		   "],\"alloc_windows\":[\n[100000,0,10000,10000,40000,%u,60]\n]}},\"metadata\":{\"duration_ms\":1000."
		   "0}}\n",
		   200 * all);
	return m;
}

static struct maker trace_of_allocations(unsigned first, unsigned second)
{
	return trace_of_allocations_told(first, second, "");
}

static int read_text(struct report *r, struct sv rest)
{
	int err = 0;

	while (rest.len && !err)
		err = report_line(r, sv_cut(rest, '\n', &rest));
	return err ? err : report_end(r);
}

static void assert_render(struct maker m, const char *op, double from_ms, struct report_view v, const char *golden)
{
	struct report *r = report_new();
	struct buf out;

	assert_non_null(r);
	if (op)
		assert_int_equal(report_choose_operations(r, op), 0);
	report_since(r, from_ms);
	assert_int_equal(read_text(r, (struct sv){m.text.ptr, m.text.len}), 0);
	buf_init(&out, 0);
	v.top = v.top ? v.top : 25;
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_string_equal(buf_cstr(&out), golden);
	buf_release(&out);
	report_free(r);
	buf_release(&m.text);
}

#define HEAD                                                                                                           \
	"5 samples on a processor, one every 10.0ms; 0% of their time has a broken stack, 0 samples are deeper than "  \
	"is kept; 0 lost\n"
#define COLUMNS "   calls refused    total      p50      p95      p99 in-proc\n"

/* Each thread's calls are its own; a process that outlives the request is none of its calls. */
static void by_thread(void **state)
{
	(void)state;
	assert_render(
		trace_of(true, false, false), NULL, 0, (struct report_view){.by = REPORT_OP},
		HEAD
		"operations\n" COLUMNS
		"       2       0    300ms    150ms        -        -     49%  GET /users/:id @ api\n"
		"          calls: model 33% (1 call, 100ms), http 10% (1 call, 30.0ms), db 3% (10 calls, 10.0ms), "
		"tool 3% (1 call, 10.0ms), mcp 3% (1 call, 10.0ms), connect 1% (1 call, 3.00ms); 3% at the same "
		"time\n"
		"          in-proc 49%: on a processor 10% (4 samples), blocked 7%, run queue 2%, not seen 31%\n"
		"          N+1: db, 10 times each, 10 at most, in 1 call, 3%: SELECT ? @ postgresql\n"
		"          1 more was not seen whole\n"
		"  calls of requests: told by thread 15, by agent 0, by time 0; may be of several, charged to none: "
		"0\n");
	assert_render(trace_of(true, false, false), NULL, 0, (struct report_view){.by = REPORT_OP_FUNCTION},
		      HEAD "functions of the most expensive operation: GET /users/:id @ api\n"
			   "      self share    total share\n"
			   "    20.0ms   50%   20.0ms   50%  hot [api]\n"
			   "    20.0ms   50%   40.0ms  100%  main [api]\n");
}

static void refused(void **state)
{
	(void)state;
	assert_render(trace_of(false, true, false), NULL, 0, (struct report_view){.by = REPORT_OP},
		      "operations\n" COLUMNS
		      "       2       2    200ms    100ms        -        -       -  POST /graphql Get @ node\n"
		      "          2 of 2 overlapped others, and nobody can tell whose time it was: not in these shares\n"
		      "  calls of requests: told by thread 0, by agent 0, by time 0; may be of several, charged to "
		      "none: 1\n");
}

static void turns(void **state)
{
	(void)state;
	assert_render(
		trace_of(false, false, true), NULL, 0, (struct report_view){.by = REPORT_OP},
		"operations\n" COLUMNS
		"       1       0    1.00s    1.00s        -        -     30%  turn @ Claude Code\n"
		"          calls: tool 50% (1 call, 500ms), model 20% (1 call, 200ms)\n"
		"          in-proc 30%\n"
		"       1       0    400ms    400ms        -        -     25%  turn of a sub-agent @ Claude Code\n"
		"          calls: model 75% (1 call, 300ms)\n"
		"          in-proc 25%\n"
		"  calls of turns: told by thread 0, by agent 3, by time 0; may be of several, charged to none: 0\n");
}

/* By path, of one request of several; by name, of what is no operation by itself; and only the late ones. */
static void chosen(void **state)
{
	struct report *r = report_new();

	(void)state;
	assert_render(
		trace_of(true, true, false), "^/users/1$", 0,
		(struct report_view){.by = REPORT_ALL, .operations = true},
		HEAD
		"operations\n" COLUMNS
		"       1       0    100ms    100ms        -        -     90%  GET /users/:id @ api\n"
		"          calls: db 10% (10 calls, 10.0ms)\n"
		"          in-proc 90%: on a processor 20% (2 samples), blocked 20%, run queue 5%, not seen 45%\n"
		"          N+1: db, 10 times each, 10 at most, in 1 call, 10%: SELECT ? @ postgresql\n"
		"  calls of requests: told by thread 15, by agent 0, by time 0; may be of several, charged to none: 1\n"
		"functions of the most expensive operation: GET /users/:id @ api\n"
		"      self share    total share\n"
		"    20.0ms  100%   20.0ms  100%  hot [api]\n");
	assert_render(
		trace_of(false, false, true), "Task", 0, (struct report_view){.by = REPORT_OP},
		"operations\n" COLUMNS
		"       1       0    500ms    500ms        -        -    100%  tool: Task @ Claude Code\n"
		"          in-proc 100%\n"
		"          1 of them may have made more calls, which are charged to none: in-proc is at most that\n"
		"  calls of what --op names: told by thread 0, by agent 0, by time 0; may be of several, charged to "
		"none: 1\n");
	assert_render(
		trace_of(false, false, true), NULL, 800, (struct report_view){.by = REPORT_OP},
		"operations\n" COLUMNS
		"       1       0    1.00s    1.00s        -        -     30%  turn @ Claude Code\n"
		"          calls: tool 50% (1 call, 500ms), model 20% (1 call, 200ms)\n"
		"          in-proc 30%\n"
		"  calls of turns: told by thread 0, by agent 3, by time 0; may be of several, charged to none: 0\n");
	assert_int_equal(report_choose_operations(r, "("), -EINVAL);
	report_free(r);
}

/* Servers of MCP are asked over HTTP: where that is not told, by MCP. */
static void servers_of_mcp(void **state)
{
	struct maker m = maker_new();

	(void)state;
	process(&m, 7, "tools");
	slice(&m, 7, 5100001, 0, 100, "mcp", "tools/call t", "\"kind\":\"server\",\"os_tid\":71");
	slice(&m, 7, 5500001, 10, 60, "db", "sqlite SELECT", QUERY(71));
	buf_puts(&m.text, "\n],\"metadata\":{}}\n");
	assert_render(m, NULL, 0, (struct report_view){.by = REPORT_OP},
		      "operations\n" COLUMNS
		      "       1       0    100ms    100ms        -        -     50%  tools/call t @ tools\n"
		      "          calls: db 50% (1 call, 50.0ms)\n"
		      "          in-proc 50%\n"
		      "  calls of requests: told by thread 1, by agent 0, by time 0; may be of several, charged to "
		      "none: 0\n");
}

/* A command that both its socket and the library's function show counts once; a function that is no call is the
 * process's own time, and an operation if somebody asks. */
static void functions(void **state)
{
	for (int named = 0; named < 2; named++) {
		struct maker m = maker_new();

		(void)state;
		process(&m, 7, "api");
		slice(&m, 7, 5600001, 0, 100, "http", "GET /a", SERVED(71, 71, "/a"));
		slice(&m, 7, 5500001, 11, 29, "db", "postgresql SELECT", QUERY(71));
		slice(&m, 7, 5700001, 5, 55, "function", "handle", "\"binary\":\"api\",\"os_tid\":71");
		slice(&m, 7, 5700002, 10, 30, "function", "PQexec", "\"binary\":\"libpq\",\"os_tid\":71");
		buf_puts(&m.text, "\n],\"metadata\":{}}\n");
		assert_render(m, named ? "^handle$" : NULL, 0, (struct report_view){.by = REPORT_OP},
			      named ? "operations\n" COLUMNS
				      "       1       0   50.0ms   50.0ms        -        -     60%  handle @ api\n"
				      "          calls: db 40% (1 call, 20.0ms)\n"
				      "          in-proc 60%\n"
				      "  calls of what --op names: told by thread 2, by agent 0, by time 0; may be of "
				      "several, charged to none: 0\n"
				    : "operations\n" COLUMNS
				      "       1       0    100ms    100ms        -        -     80%  GET /a @ api\n"
				      "          calls: db 20% (1 call, 20.0ms)\n"
				      "          in-proc 80%\n"
				      "  calls of requests: told by thread 2, by agent 0, by time 0; may be of "
				      "several, charged to none: 0\n");
	}
}

/* Of the operation's threads only; from few samples nothing is said. */
static void allocated(void **state)
{
	static const char title[] =
		"memory that the most expensive operation asked for, estimated: GET /users/:id @ api\n";
	char golden[512];

	(void)state;
	snprintf(golden, sizeof(golden),
		 "%s    bytes share  count samples\n"
		 "    12.0k   62%%    120      15  api[7]: hot [api] < main [api]\n"
		 "    7.20k   38%%     72       9  api[7]: main [api]\n",
		 title);
	assert_render(trace_of_allocations(15, 9), NULL, 0, (struct report_view){.by = REPORT_OP_ALLOC}, golden);
	snprintf(golden, sizeof(golden), "%s  19 samples in its time: too few to tell\n", title);
	assert_render(trace_of_allocations(10, 9), NULL, 0, (struct report_view){.by = REPORT_OP_ALLOC}, golden);
	assert_render(trace_of(true, false, false), NULL, 0, (struct report_view){.by = REPORT_OP_ALLOC},
		      HEAD "this trace was taken without --alloc\n");
	assert_render(trace_of_allocations(15, 9), "^none$", 0, (struct report_view){.by = REPORT_OP_ALLOC},
		      "there is none in this trace\n");
}

static cJSON *allocated_json(struct maker m)
{
	const struct report_view v = {.by = REPORT_OP_ALLOC, .json = true, .top = 5};
	struct report *r = report_new();
	struct buf out;
	cJSON *doc;

	assert_int_equal(read_text(r, (struct sv){m.text.ptr, m.text.len}), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	doc = cJSON_Parse(buf_cstr(&out));
	assert_non_null(doc);
	buf_release(&out);
	buf_release(&m.text);
	report_free(r);
	return doc;
}

static void allocated_as_json(void **state)
{
	(void)state;
	for (unsigned few = 0; few < 2; few++) {
		cJSON *doc = allocated_json(trace_of_allocations(few ? 1 : 15, 9));
		const cJSON *table = cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "tables"), "op-alloc"), *row;

		assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(table, "operation")),
				    "GET /users/:id @ api");
		assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(table, "too_few")), few);
		assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(table, "operation_samples")) == (few ? 10 : 24));
		row = cJSON_GetArrayItem(cJSON_GetObjectItem(table, "rows"), 0);
		assert_int_equal(row == NULL, few);
		assert_true(!row || cJSON_GetNumberValue(cJSON_GetObjectItem(row, "bytes")) == 12000);
		cJSON_Delete(doc);
	}
}

/* Windows that tell best how much it was need not be all: what an operation asked for is a share of what is told. */
static void allocated_of_what_is_told(void **state)
{
	const char *told = ",\"bytes\":30000,\"error_bytes\":100,\"count\":300,\"windows\":5";
	cJSON *doc = allocated_json(trace_of_allocations_told(15, 9, told));
	const cJSON *table = cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "tables"), "op-alloc"), *row;
	double bytes[] = {15000, 9000};

	(void)state;
	for (int i = 0; i < 2; i++) {
		row = cJSON_GetArrayItem(cJSON_GetObjectItem(table, "rows"), i);
		assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "bytes")) == bytes[i]);
	}
	cJSON_Delete(doc);
}

static void as_json(void **state)
{
	struct maker m = trace_of(true, false, false);
	const struct report_view v = {.by = REPORT_OP, .json = true, .top = 5};
	const cJSON *row, *table;
	struct report *r = report_new();
	struct buf out;
	cJSON *doc;

	(void)state;
	assert_int_equal(read_text(r, (struct sv){m.text.ptr, m.text.len}), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	doc = cJSON_Parse(buf_cstr(&out));
	assert_non_null(doc);
	table = cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "tables"), "op");
	row = cJSON_GetArrayItem(cJSON_GetObjectItem(table, "rows"), 0);
	assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(row, "kind")), "request");
	assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "in_proc_ms")) == 147);
	assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "on_cpu_ms")) == 30);
	assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "blocked_ms")) == 20);
	row = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "n_plus_1"), 0);
	assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "most")) == 10);
	row = cJSON_GetObjectItem(cJSON_GetObjectItem(table, "charged"), "request");
	assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "outside")) == 1);
	cJSON_Delete(doc);
	buf_release(&out);
	buf_release(&m.text);
	report_free(r);
}

/* Of no samples there is no number of them. */
static void as_json_without_samples(void **state)
{
	struct maker m = maker_new();
	const struct report_view v = {.by = REPORT_OP, .json = true, .top = 5};
	struct report *r = report_new();
	const cJSON *row;
	struct buf out;
	cJSON *doc;

	(void)state;
	put_service(&m);
	buf_puts(&m.text, "\n],\"metadata\":{\"duration_ms\":1000.0}}\n");
	assert_int_equal(read_text(r, (struct sv){m.text.ptr, m.text.len}), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	doc = cJSON_Parse(buf_cstr(&out));
	assert_non_null(doc);
	row = cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "tables"), "op");
	row = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "rows"), 0);
	assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "in_proc_ms")) == 147);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(row, "on_cpu_ms")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(row, "samples")));
	cJSON_Delete(doc);
	buf_release(&out);
	buf_release(&m.text);
	report_free(r);
}

static void assert_fails_well(struct maker m)
{
	unsigned n = 0;
	bool hit;

	do {
		struct report_view v = {.top = 5};
		struct report *r;
		struct buf out;
		int err = -ENOMEM;

		buf_init(&out, 0);
		fail_nth(++n);
		r = report_new();
		if (r)
			err = report_choose_operations(r, "Task|users");
		if (!err)
			err = read_text(r, (struct sv){m.text.ptr, m.text.len});
		if (!err)
			err = report_render(r, &v, &out);
		hit = fail_nth_hit();
		assert_true(!err || hit);
		buf_release(&out);
		report_free(r);
	} while (hit);
	fail_nth(0);
	assert_true(n > 100);
	buf_release(&m.text);
}

static void without_memory(void **state)
{
	(void)state;
	assert_fails_well(trace_of(true, true, true));
	assert_fails_well(trace_of_allocations(15, 9));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_thread),
		cmocka_unit_test(refused),
		cmocka_unit_test(turns),
		cmocka_unit_test(chosen),
		cmocka_unit_test(servers_of_mcp),
		cmocka_unit_test(as_json),
		cmocka_unit_test(as_json_without_samples),
		cmocka_unit_test(functions),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(allocated),
		cmocka_unit_test(allocated_as_json),
		cmocka_unit_test(allocated_of_what_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
