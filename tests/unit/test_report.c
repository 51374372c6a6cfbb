/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reports and comparisons of small traces, and of what is none. */
#include <errno.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/err.h"
#include "harness.h"

#include "flow/profile.h"
#include "view/report.h"

#define BEGIN "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
#define CALL(ms)                                                                                                       \
	"{\"ph\":\"X\",\"pid\":1,\"tid\":5000001,\"ts\":0.000,\"dur\":" #ms                                            \
	"000.000,\"name\":\"LLM m1\",\"cat\":\"llm\",\"args\":{\"host\":\"api\",\"ttft_ms\":10.000,"                   \
	"\"input_tokens\":100,\"output_tokens\":7,\"parts_ms\":{\"first_token\":30.0,\"generation\":10.0}}},\n"
#define NAME "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"agent\"}},\n"
#define OTHERS                                                                                                         \
	"{\"ph\":\"X\",\"pid\":1,\"tid\":5000001,\"ts\":0.000,\"dur\":9.000,\"name\":\"send\",\"cat\":\"llm,phase\"}," \
	"\n"                                                                                                           \
	"{\"ph\":\"X\",\"pid\":1,\"tid\":5400001,\"ts\":0.000,\"dur\":9000.000,\"name\":\"tool: "                      \
	"Bash\",\"cat\":\"tool\","                                                                                     \
	"\"args\":{\"duration_ms\":4.0,\"is_error\":true}},\n"                                                         \
	"{\"ph\":\"X\",\"pid\":1,\"tid\":5100001,\"ts\":0.000,\"dur\":2000.000,\"name\":\"tools/call t\","             \
	"\"cat\":\"mcp\",\"args\":{\"server\":\"s\"}}\n"
#define PROFILE(cpu, header)                                                                                           \
	"],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000," header                                  \
	"\"samples_without_stack\":0,\"lost_samples\":0,\"threads\":[\n[7,7,\"prog\",\"prog\"],\n[7,8,\"prog\","       \
	"\"worker\"]\n],\"frames\":[\n[\"hot\",\"prog\"],\n[\"main\",\"prog\"],\n[\"\",\"libc.so.6\"],\n"              \
	"[\"do_futex\",\"[kernel]\"]\n],\"stacks\":[\n[\"cpu\",0," #cpu "000000,40,\"whole\",[0,1]],\n"                \
	"[\"cpu\",1,60000000,60,\"broken\",[2]],\n[\"futex\",1,5000000,2,\"whole\",[3,1]]\n]}},\"metadata\":"
#define CPU	 "\"cpu\":{\"period_ns\":1000000,\"samples\":100,\"broken_ns\":60000000},"
#define OFF	 "\"off_cpu\":{\"min_ns\":1000000},"
#define METADATA "{\"duration_ms\":1000.0,\"lost\":{\"a\":0},\"verdict\":{\"verdict\":\"slow\"}}}\n"
#define WHOLE	 BEGIN NAME CALL(40) CALL(60) OTHERS PROFILE(40, CPU OFF) METADATA

static int read_text(struct report *r, const char *text, size_t len)
{
	struct sv rest = {text, len};
	int err = 0;

	while (rest.len && !err)
		err = report_line(r, sv_cut(rest, '\n', &rest));
	return err ? err : report_end(r);
}

static struct report *report_of(const char *text)
{
	struct report *r = report_new();

	assert_non_null(r);
	assert_int_equal(read_text(r, text, strlen(text)), 0);
	return r;
}

static void rendered(const char *text, struct report_view v, struct buf *out)
{
	struct report *r = report_of(text);

	buf_init(out, 0);
	v.top = v.top ? v.top : 25;
	assert_int_equal(report_render(r, &v, out), 0);
	report_free(r);
}

static void assert_render(const char *text, struct report_view v, const char *golden)
{
	struct buf out;

	rendered(text, v, &out);
	assert_string_equal(buf_cstr(&out), golden);
	buf_release(&out);
}

static void assert_holds(const char *text, struct report_view v, const char *part)
{
	struct buf out;

	rendered(text, v, &out);
	assert_non_null(strstr(buf_cstr(&out), part));
	buf_release(&out);
}

#define HEAD                                                                                                           \
	"slow\n100 samples on a processor, one every 1.00ms; 60% of their time has a broken stack, 0 samples are "     \
	"deeper than is kept; 0 lost\n"

static void tables(void **state)
{
	static const struct {
		struct report_view v;
		const char *golden;
	} all[] = {
		{{.by = REPORT_FUNCTION},
		 HEAD "functions on a processor\n      self share    total share\n"
		      "    60.0ms   60%   60.0ms   60%  [libc.so.6]\n    40.0ms   40%   40.0ms   40%  hot [prog]\n"},
		{{.by = REPORT_FUNCTION, .total = true, .top = 1},
		 HEAD "functions on a processor\n      self share    total share\n"
		      "    60.0ms   60%   60.0ms   60%  [libc.so.6]\n  … and 2 more (--top)\n"},
		{{.by = REPORT_PROCESS},
		 HEAD "processes\n       cpu share  blocked run queue cpu in all  calls in calls\n"
		      "     100ms  100%   5.00ms    0.00ms          -      0        -  prog[7]\n"
		      "    0.00ms    0%   0.00ms    0.00ms          -      2    100ms  agent[1]\n"},
		{{.by = REPORT_STACK},
		 HEAD "stacks on a processor\n      time share samples\n"
		      "    60.0ms   60%      60  prog[7]: [libc.so.6] (broken)\n"
		      "    40.0ms   40%      40  prog[7]: hot [prog] < main [prog]\n"},
		{{.by = REPORT_WAIT},
		 HEAD "waiting, summed over threads\n      time share samples\n    5.00ms  100%       2  futex\n"},
		{{.by = REPORT_WAIT_STACK},
		 HEAD "stacks that waited, summed over threads\n      time share samples\n"
		      "    5.00ms  100%       2  futex prog[7]: main [prog]\n"},
		{{.by = REPORT_MODEL},
		 HEAD "model calls\n   count errors    total      p50      p95      max ttft p50     in    out\n"
		      "       2      0    100ms   50.0ms        -   60.0ms   10.0ms    200     14  m1 @ api\n"
		      "                            time: first_token 75% generation 25%\n"},
		{{.by = REPORT_CALL, .top = 1},
		 HEAD "calls of models, slowest first\n      took       at     ttft     in cached    out\n"
		      "    60.0ms   0.00ms   10.0ms    100      -      7  m1 @ api, agent[1]\n"
		      "                            time: first_token 75% generation 25%\n  … and 1 more (--top)\n"},
		{{.by = REPORT_TOOL},
		 HEAD "tools\n   count errors    total      p50      p95      max\n"
		      "       1      1   4.00ms   4.00ms        -   4.00ms  Bash\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		assert_render(WHOLE, all[i].v, all[i].golden);
	assert_render(BEGIN "{\"ph\":\"X\",\"dur\":2000.0,\"name\":\"postgresql SELECT\",\"cat\":\"db\",\"args\":{"
			    "\"db.system.name\":\"postgresql\",\"db.query.text\":\"select ?\","
			    "\"db.response.status_code\":\"42P01\"}}\n],\"metadata\":{}}\n",
		      (struct report_view){.by = REPORT_DB},
		      "database commands\n   count errors    total      p50      p95      max\n"
		      "       1      1   2.00ms   2.00ms        -   2.00ms  select ? @ postgresql\n");
	assert_render(BEGIN "{\"ph\":\"X\",\"dur\":2000.0,\"name\":\"GET /users/:id\",\"cat\":\"http\",\"args\":{"
			    "\"side\":\"server\",\"host\":\"me\",\"status\":500}},\n{\"ph\":\"X\",\"dur\":1000.0,"
			    "\"name\":\"GET /\",\"cat\":\"http\",\"args\":{\"side\":\"client\",\"host\":\"you\"}}\n"
			    "],\"metadata\":{}}\n",
		      (struct report_view){.by = REPORT_HTTP},
		      "HTTP requests\n   count errors    total      p50      p95      max\n"
		      "       1      1   2.00ms   2.00ms        -   2.00ms  GET /users/:id @ served\n"
		      "       1      0   1.00ms   1.00ms        -   1.00ms  GET / @ you\n");
	assert_render(
		BEGIN
		"{\"ph\":\"X\",\"dur\":0.5,\"name\":\"connection not made\",\"cat\":\"net\",\"args\":{"
		"\"peer\":\"[::1]:9\",\"error\":\"ECONNREFUSED\"}},\n{\"ph\":\"X\",\"dur\":1000000.0,"
		"\"name\":\"connection not made\",\"cat\":\"net\",\"args\":{\"peer\":\"1.2.3.4:5\"}},\n{\"ph\":\"X\","
		"\"dur\":2000000.0,\"name\":\"connection not made\",\"cat\":\"net\",\"args\":{\"peer\":\"1.2.3.4:5\","
		"\"unfinished\":true}},\n{\"ph\":\"X\",\"dur\":3.0,\"name\":\"connection\",\"cat\":\"net\"}\n"
		"],\"metadata\":{}}\n",
		(struct report_view){.by = REPORT_CONNECT},
		"connections not made\n   count errors    total      p50      p95      max\n"
		"       1      1    1.00s    1.00s        -    1.00s  given up @ 1.2.3.4:5\n"
		"       1      1   0.00ms   0.00ms        -   0.00ms  ECONNREFUSED @ [::1]:9\n"
		"       1      0        -        -        -        -  unanswered @ 1.2.3.4:5\n");
	assert_render(BEGIN "{\"ph\":\"X\",\"dur\":3000.0,\"name\":\"work\",\"cat\":\"function\",\"args\":{"
			    "\"binary\":\"/bin/x\"}}\n],\"metadata\":{}}\n",
		      (struct report_view){.by = REPORT_FUNC},
		      "functions traced by name\n   count errors    total      p50      p95      max\n"
		      "       1      0   3.00ms   3.00ms        -   3.00ms  work @ /bin/x\n");
	assert_render(BEGIN OTHERS "],\"metadata\":{}}\n", (struct report_view){.by = REPORT_FUNCTION},
		      "this trace was taken without --cpu\n");
	assert_render(BEGIN OTHERS "],\"metadata\":{}}\n", (struct report_view){.by = REPORT_CALL},
		      "there is none in this trace\n");
	assert_render(BEGIN "],\"metadata\":{}}\n", (struct report_view){.by = REPORT_ALL},
		      "there is nothing to report in this trace\n");
	assert_render(BEGIN "],\"metadata\":{}}\n", (struct report_view){.by = REPORT_ALL, .operations = true},
		      "there is nothing to report in this trace: no operation of that name\n");
}

#define SERVED(us, args)                                                                                               \
	"{\"ph\":\"X\",\"dur\":" us ",\"name\":\"GET /\",\"cat\":\"http\",\"args\":{\"side\":\"server\"," args "}}"
#define HTTP_HEAD "HTTP requests\n   count errors    total      p50      p95      max\n"

/* What was not seen whole counts, and has no time; what was left is an error of HTTP. */
static void partial_rows(void **state)
{
	static const char open[] = BEGIN SERVED("9000.0", "\"unfinished\":true") "\n],\"metadata\":{}}\n";
	static const char mixed[] = BEGIN SERVED("4000.0", "\"status\":200") ",\n" /* whole */
		SERVED("9000.0", "\"end_reason\":\"capture_end\"") ",\n"	   /* not */
		SERVED("9000.0", "\"mid_attach\":true,\"status\":200") ",\n"	   /* not */
		SERVED("2000.0", "\"end_reason\":\"client_abort\"") "\n],\"metadata\":{}}\n";

	(void)state;
	assert_render(mixed, (struct report_view){.by = REPORT_HTTP},
		      HTTP_HEAD "       4      1   6.00ms   3.00ms        -   4.00ms  GET / @ served\n");
	assert_render(open, (struct report_view){.by = REPORT_HTTP},
		      HTTP_HEAD "       1      0        -        -        -        -  GET / @ served\n");
}

#define CALL_ROW(ms, first, generation)                                                                                \
	"{\"name\":\"m1\",\"host\":\"api\",\"pid\":1,\"process\":\"agent\",\"failed\":false,\"partial\":false,"        \
	"\"ending\":null,"                                                                                             \
	"\"parts_ms\":{\"first_token\":" first ",\"generation\":" generation "},\"duration_ms\":" ms ","               \
	"\"start_ms\":0.000,\"setup_ms\":null,\"ttft_ms\":10.000,\"input_tokens\":100,\"cache_read_tokens\":null,"     \
	"\"output_tokens\":7,\"status\":null,\"call_id\":null}"

/* What a stream that was cut had reported by then is not its output; a good count beside bad ones is. */
static void partial_counts(void **state)
{
#define COUNTED(more)                                                                                                  \
	BEGIN "{\"ph\":\"X\",\"pid\":1,\"dur\":40000.0,\"name\":\"LLM "                                                \
	      "m1\",\"cat\":\"llm\",\"args\":{\"output_tokens\":7,"                                                    \
	      "\"usage_source\":\"partial\"" more "}}\n],\"metadata\":{}}\n"
	static const struct {
		const char *trace, *want;
	} rows[] = {{COUNTED(""), "\"output_tokens\":null"},
		    {COUNTED(",\"counts_left_out\":true"), "\"output_tokens\":7"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_holds(rows[i].trace, (struct report_view){.by = REPORT_MODEL, .json = true}, rows[i].want);
		assert_holds(rows[i].trace, (struct report_view){.by = REPORT_CALL, .json = true}, rows[i].want);
	}
#undef COUNTED
}

/* Unknown is null, a table that the trace cannot have too. */
static void as_json(void **state)
{
	static const char cut[] = BEGIN NAME CALL(40) CALL(60) OTHERS "],\"metadata\":{\"duration_ms\":70.0}}\n";
	static const char without[] =
		"{\"format\":1,\"trace\":{\"duration_ms\":70.000,\"from_ms\":0.000,\"lost\":0,\"verdict\":null,"
		"\"sampling_ms\":null,\"cpu_period_ms\":null,\"cpu_samples\":null,\"cpu_broken_ms\":null,"
		"\"cpu_deep_samples\":null,\"off_cpu_min_ms\":null,\"alloc_bytes_per_sample\":null,\"lost_samples\":"
		"null},\"tables\":{";
	char golden[2048];

	(void)state;
	snprintf(golden, sizeof(golden), "%s\"call\":{\"row_count\":2,\"rows\":[%s,%s]}}}\n", without,
		 CALL_ROW("60.000", "30.000", "10.000"), CALL_ROW("40.000", "30.000", "10.000"));
	assert_render(cut, (struct report_view){.by = REPORT_CALL, .json = true}, golden);
	snprintf(golden, sizeof(golden), "%s\"function\":null}}\n", without);
	assert_render(cut, (struct report_view){.by = REPORT_FUNCTION, .json = true}, golden);
	snprintf(golden, sizeof(golden), "%s\"db\":{\"row_count\":0,\"rows\":[]}}}\n", without);
	assert_render(cut, (struct report_view){.by = REPORT_DB, .json = true}, golden);
}

/* Every table, of a whole trace: JSON that can be parsed, with as many rows as it says. */
static void json_of_all(void **state)
{
	struct report *r = report_of(WHOLE);
	struct report_view v = {.top = 1, .json = true};
	const cJSON *tables, *stack;
	struct buf out;
	cJSON *doc;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	doc = cJSON_Parse(buf_cstr(&out));
	assert_non_null(doc);
	tables = cJSON_GetObjectItem(doc, "tables");
	assert_int_equal(cJSON_GetArraySize(tables), REPORT_BYS - 1);
	for (int by = REPORT_ALL + 1; by < REPORT_BYS; by++)
		assert_non_null(cJSON_GetObjectItem(tables, report_by_word((enum report_by)by)));
	stack = cJSON_GetObjectItem(tables, "stack");
	assert_int_equal((int)cJSON_GetObjectItem(stack, "row_count")->valuedouble, 2);
	stack = cJSON_GetArrayItem(cJSON_GetObjectItem(stack, "rows"), 0);
	assert_string_equal(cJSON_GetObjectItem(stack, "state")->valuestring, "broken");
	stack = cJSON_GetArrayItem(cJSON_GetObjectItem(stack, "frames"), 0);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(stack, "function")));
	assert_string_equal(cJSON_GetObjectItem(stack, "file")->valuestring, "libc.so.6");
	cJSON_Delete(doc);
	buf_release(&out);
	report_free(r);
}

/* Only what ended in time; samples have none. */
static void late_ones(void **state)
{
	struct report *r = report_new();
	struct report_view v = {.by = REPORT_CALL, .top = 5};
	struct buf out;

	(void)state;
	report_since(r, 50);
	assert_int_equal(read_text(r, WHOLE, sizeof(WHOLE) - 1), 0);
	assert_true(report_duration_ms(r) == 1000);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_non_null(strstr(buf_cstr(&out), "60.0ms"));
	assert_null(strstr(buf_cstr(&out), "40.0ms"));
	assert_null(strstr(buf_cstr(&out), "slow\n")); /* the verdict is of all of it */
	buf_clear(&out);
	v.by = REPORT_FUNCTION;
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_string_equal(buf_cstr(&out), "this trace was taken without times of samples (--last)\n");
	buf_release(&out);
	report_free(r);
}

/* hot ran at 100 and at 900 ms, something broken at 950; a wait from 850 to 855. */
#define TIMELINE "],\"timeline\":[\n[100000,1000,0,750000,5000,2],\n[900000,1000,0,50000,1000,1]\n]}},\"metadata\":"
#define TIMED(header, timeline)                                                                                        \
	BEGIN NAME CALL(                                                                                               \
		40) "],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000," header CPU OFF              \
		    "\"threads\":[\n[7,7,\"prog\",\"prog\"]\n],\"frames\":[\n[\"hot\",\"prog\"]\n],\"stacks\":[\n"     \
		    "[\"cpu\",0,2000000,2,\"whole\",[0]],\n[\"cpu\",0,1000000,1,\"broken\",[]],\n"                     \
		    "[\"futex\",0,5000000,1,\"whole\",[0]]\n" timeline METADATA

static void assert_late(const char *text, double from_ms, struct report_view v, const char *golden)
{
	struct report *r = report_new();
	struct buf out;

	report_since(r, from_ms);
	assert_int_equal(read_text(r, text, strlen(text)), 0);
	buf_init(&out, 0);
	v.top = 5;
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_string_equal(buf_cstr(&out), golden);
	buf_release(&out);
	report_free(r);
}

static void late_samples(void **state)
{
	static const char late[] =
		"2 samples on a processor, one every 1.00ms; 50% of their time has a broken stack, 0 "
		"samples are deeper than is kept; 0 lost\n";
	static const char unknown[] = "this trace was taken without times of samples (--last)\n";
	char golden[512];

	(void)state;
	snprintf(golden, sizeof(golden),
		 "%sfunctions on a processor\n      self share    total share\n    1.00ms   50%%   1.00ms   50%%  hot "
		 "[prog]\n",
		 late);
	assert_late(TIMED("", TIMELINE), 852, (struct report_view){.by = REPORT_FUNCTION}, golden);
	snprintf(golden, sizeof(golden),
		 "%swaiting, summed over threads\n      time share samples\n    3.00ms  100%%       1  futex\n", late);
	assert_late(TIMED("", TIMELINE), 852, (struct report_view){.by = REPORT_WAIT}, golden);
	/* only times after 860 ms are known */
	assert_late(TIMED("\"timeline_from_us\":860000,", TIMELINE), 852, (struct report_view){.by = REPORT_FUNCTION},
		    unknown);
	assert_late(TIMED("", "]}},\"metadata\":"), 852, (struct report_view){.by = REPORT_FUNCTION}, unknown);
}

static void folded(void **state)
{
	struct report *r = report_of(WHOLE);
	struct buf out;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(report_folded(r, REPORT_ALL, &out), 0);
	assert_string_equal(buf_cstr(&out),
			    "prog;main [prog];hot [prog] 40000000\nprog;[broken stack];[libc.so.6] 60000000\n");
	buf_clear(&out);
	assert_int_equal(report_folded(r, REPORT_WAIT, &out), 0);
	assert_string_equal(buf_cstr(&out), "prog;[futex];main [prog];do_futex [kernel] 5000000\n");
	report_free(r);
	r = report_of(BEGIN OTHERS "],\"metadata\":{}}\n");
	assert_int_equal(report_folded(r, REPORT_WAIT, &out), -ENODATA);
	assert_string_equal(report_no_samples(r, REPORT_WAIT), "--off-cpu");
	report_free(r);
	r = report_new(); /* what ran before is not there, not even as nothing */
	report_since(r, 852);
	assert_int_equal(read_text(r, TIMED("", TIMELINE), strlen(TIMED("", TIMELINE))), 0);
	buf_clear(&out);
	assert_int_equal(report_folded(r, REPORT_WAIT, &out), 0);
	assert_string_equal(buf_cstr(&out), "prog;[futex];hot [prog] 3000000\n");
	buf_clear(&out);
	assert_int_equal(report_folded(r, REPORT_ALL, &out), 0);
	assert_string_equal(buf_cstr(&out), "prog;hot [prog] 1000000\nprog;[broken stack];[stack not kept] 1000000\n");
	buf_release(&out);
	report_free(r);
}

static void hostile_times(void **state)
{
	static const char *const rows[] = {
		"[1,2]",       "[1,2,3]",     "[1,2,0.5]", "[-1,2,0]",	"[1,-2,0]",
		"[1,2,\"0\"]", "[1,1e999,0]", "{}",	   "[1,2,0,1]", "[6e14,2,0,6e14,2,0]"};
	char text[2048];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct report *r = report_new();

		snprintf(text, sizeof(text), TIMED("", "],\"timeline\":[\n%s\n]}},\"metadata\":"), rows[i]);
		assert_int_equal(read_text(r, text, strlen(text)), -EBADMSG);
		report_free(r);
	}
}

/* Times that no part of the sampling is near. */
static void far_times(void **state)
{
	static const char *const headers[] = {"", "\"timeline_from_us\":1.7e19,"};
	static const char *const rows[] = {"[999999999999999,1000,0]", "[0,999999999999999,2]"};
	struct report_view v = {.top = 25};
	struct buf out;
	bool regressed;
	char text[2048], why[160];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(headers) * ARRAY_SIZE(rows); i++) {
		struct report *r;

		snprintf(text, sizeof(text), TIMED("%s", "],\"timeline\":[\n%s\n]}},\"metadata\":"),
			 headers[i / ARRAY_SIZE(rows)], rows[i % ARRAY_SIZE(rows)]);
		r = report_of(text);
		buf_init(&out, 0);
		assert_int_equal(report_diff(r, r, &v, 1, &out, &regressed, why), 0);
		assert_false(regressed);
		buf_release(&out);
		report_free(r);
	}
}

/* Of very many calls the slowest are kept, and the failed say why. */
static void many_calls(void **state)
{
	struct report *r = report_new();
	struct report_view v = {.by = REPORT_CALL, .top = 3};
	struct buf out;
	char line[256];

	(void)state;
	assert_int_equal(report_line(r, SV("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")), 0);
	for (unsigned i = 0; i < REPORT_CALLS_MAX + 1000; i++) {
		unsigned ms = i * 7919 % 100003; /* each once */

		snprintf(line, sizeof(line),
			 "{\"ph\":\"X\",\"pid\":3,\"ts\":0,\"dur\":%u000,\"name\":\"LLM m\",\"cat\":\"llm\",\"args\":{"
			 "\"status\":%u}},",
			 ms, i % 2 ? 200 : 529);
		assert_int_equal(report_line(r, sv_of(line)), 0);
	}
	assert_int_equal(report_line(r, SV("],\"metadata\":{}}")), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_non_null(strstr(buf_cstr(&out), "and 65533 more"));
	assert_non_null(strstr(buf_cstr(&out), "m, [3]: status 529\n"));
	assert_non_null(strstr(buf_cstr(&out), "  1m40s   0.00ms "));
	buf_release(&out);
	report_free(r);
}

/* A hundred threads that wait for more than a day: more nanoseconds than a number of JSON holds. */
static void large_waits(void **state)
{
	(void)state;
	assert_render(
		BEGIN "],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000," OFF
		      "\"threads\":[\n[7,7,\"prog\",\"prog\"]\n],\"frames\":[\n],\"stacks\":[\n"
		      "[\"futex\",0,\"9007200000000000000\",2,\"whole\",[]]\n]}},\"metadata\":" METADATA,
		(struct report_view){.by = REPORT_WAIT, .top = 5},
		"slow\nwaiting, summed over threads\n      time share samples\n  2502000h00m  100%       2  futex\n");
}

#define MEMORY_ROWS(rows)                                                                                              \
	BEGIN "],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000,\"alloc\":{\"bytes_per_sample\":"   \
	      "524288,\"processes\":[{\"pid\":7,\"name\":\"prog\",\"windows\":9,\"share\":0.25,\"bytes\":5000000,"     \
	      "\"allocators\":[\"operator new\",7,\"one that is far too long\",\"mi\\u0007\"],"                        \
	      "\"error_bytes\":400000,\"count\":5000}]},\"lost_samples\":0,\"threads\":[\n[7,0,\"prog\",\"\"]\n],"     \
	      "\"frames\":[\n[\"storm\",\"prog\"],\n[\"main\",\"prog\"],\n[\"do_fault\",\"[kernel]\"]\n],\"stacks\":[" \
	      "\n],\"timeline\":[\n],\"memory\":[\n" rows
#define MEMORY(rows) MEMORY_ROWS(rows) "\n]}},\"metadata\":" METADATA
#define ALLOCS                                                                                                         \
	"[\"alloc\",0,1000000,null,1000,40,null,null,\"broken\",[1]],\n"                                               \
	"[\"alloc\",0,4000000,300000,4000,160,1000000,1000,\"whole\",[0,1]],\n"                                        \
	"[\"fault\",0,524288,1027604,128,1,null,null,\"whole\",[2,0,1]]"

static void allocations(void **state)
{
	(void)state;
	assert_render(MEMORY(ALLOCS), (struct report_view){.by = REPORT_ALLOC, .top = 25},
		      "slow\nmemory asked for, estimated\n"
		      "    bytes   error share  count kept max samples\n"
		      "    4.00M    300k   80%  4.00k    1.00M     160  prog[7]: storm [prog] < main [prog]\n"
		      "    1.00M       -   20%  1.00k        -      40  prog[7]: main [prog] (broken)\n"
		      "  prog[7]: 5.00M bytes ± 400k (95 %) in 5.00k allocations of operator new, mi�, by 9 windows on "
		      "25% of "
		      "its own processor time\n"
		      "  kept: not seen freed in a window; what is freed outside of them is not known. Only native "
		      "allocators: memory that\n"
		      "  V8, the JVM, Go, and Python for its small objects, manage themselves shows as page faults "
		      "(--by fault)\n");
	assert_render(MEMORY("[\"fault\",0,524288,1027604,128,1,null,null,\"whole\",[2,0,1]]"),
		      (struct report_view){.by = REPORT_ALLOC, .top = 25},
		      "slow\nmemory asked for: none was seen, by 9 windows on 1 process\n");
	assert_render(MEMORY(ALLOCS), (struct report_view){.by = REPORT_FAULT, .top = 25},
		      "slow\nmemory touched first (page faults, 4 KiB each)\n"
		      "    bytes   error share faults samples\n"
		      "     524k   1.03M  100%    128       1  prog[7]: storm [prog] < main [prog]\n");
}

/* In the last 300 ms: a third of the time of the second window, of whose own one in 24 parts was looked at. */
#define TIMES                                                                                                          \
	"\n],\"allocations\":[\n[100000,7,1,1000,2,800000,7,0,500,1.5,10000,8,1,1500,3]\n],\"alloc_windows\":[\n"      \
	"[200000,0,10000,10000,200000,5000,10],\n[950000,0,10000,10000,600000,8000,16],\n[990000,0,0,-5,40000,0,0]"

/* Of very many processes the report takes no longer a line; what is not known of one is no number. */
static void allocations_of_many(void **state)
{
	const unsigned processes = 70000, threads = 16000, rows = 100000;
	struct report_view v = {.by = REPORT_ALLOC, .top = 1};
	clock_t begin = clock();
	struct buf text, out;
	struct report *r;

	(void)state;
	buf_init(&text, 0);
	buf_init(&out, 0);
	buf_puts(&text, BEGIN "],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000,\"alloc\":{"
			      "\"bytes_per_sample\":524288,\"processes\":[");
	for (unsigned i = 0; i < processes; i++)
		buf_printf(&text, "%s{\"pid\":%u}", i ? "," : "", i + 1);
	buf_puts(&text, "]},\"threads\":[\n");
	for (unsigned i = 0; i < threads; i++)
		buf_printf(&text, "[%u,%u,\"p\",\"t\"]%s\n", processes - i, i + 1, i + 1 < threads ? "," : "");
	buf_puts(&text, "],\"frames\":[\n[\"f\",\"m\"]\n],\"stacks\":[\n],\"timeline\":[\n],\"memory\":[\n");
	for (unsigned i = 0; i < rows; i++)
		buf_printf(&text, "[\"alloc\",%u,1000,1,1,1,null,null,\"whole\",[0]]%s\n", i % threads,
			   i + 1 < rows ? "," : "");
	assert_int_equal(buf_puts(&text, "],\"allocations\":[\n],\"alloc_windows\":[\n]}},\"metadata\":{}}\n"), 0);
	r = report_of(buf_cstr(&text));
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_true(clock() - begin < 15 * CLOCKS_PER_SEC); /* it took a minute */
	assert_non_null(strstr(buf_cstr(&out),
			       "  [1]: - bytes ± - (95 %) in - allocations, by - windows on - of its own "
			       "processor time\n  … and 69999 more processes (--top)\n"));
	report_free(r);
	buf_release(&out);
	buf_release(&text);
}

/* Of a call whose begin or end was not seen nobody knows how long it took, nor of one that does not say its tokens. */
static void calls_seen_in_part(void **state)
{
#define SLICE(dur, args)                                                                                               \
	"{\"ph\":\"X\",\"pid\":1,\"tid\":5000001,\"ts\":0.000,\"dur\":" dur                                            \
	"000.000,\"name\":\"LLM m\",\"cat\":\"llm\",\"args\":{" args "}}"
#define SEEN "\"input_tokens\":7,\"output_tokens\":3,\"usage_source\":\"reported\""
	static const char trace[] =
		BEGIN NAME SLICE("20", SEEN) ",\n" SLICE("50", SEEN ",\"unfinished\":true") ",\n" SLICE(
			"900",
			"\"mid_attach\":true,\"stop_reason\":\"end_turn\"") ",\n" SLICE("30",
											"\"input_tokens\":5,\"usage_"
											"source\":\"reported\"") "\n],"
														 "\"met"
														 "adata"
														 "\":{}"
														 "}\n";

	(void)state;
	assert_render(trace, (struct report_view){.by = REPORT_MODEL, .top = 9},
		      "model calls\n"
		      "   count errors    total      p50      p95      max ttft p50     in    out\n"
		      "       4      0   50.0ms   25.0ms        -   30.0ms        -     19      6  m\n"
		      "                            tokens: 1 call without a count\n");
	assert_render(trace, (struct report_view){.by = REPORT_PROCESS, .top = 9},
		      "processes\n"
		      "       cpu share  blocked run queue cpu in all  calls in calls\n"
		      "         -     -        -         -          -      4   50.0ms  agent[1]\n");
	assert_render(trace, (struct report_view){.by = REPORT_CALL, .top = 2},
		      "calls of models, slowest first\n"
		      "      took       at     ttft     in cached    out\n"
		      "     900ms   0.00ms        -      -      -      -  m, agent[1]: end_turn (it took longer)\n"
		      "    50.0ms   0.00ms        -      7      -      3  m, agent[1] (it took longer)\n"
		      "  … and 2 more (--top)\n");
#undef SLICE
#undef SEEN
}

/* What was lost, each by its name: a sum of events and bytes says nothing. */
static void losses(void **state)
{
	(void)state;
	assert_render(BEGIN NAME "],\"metadata\":{\"lost\":{\"ring_records\":0,\"lost_events\":1,\"lost_bytes\":4096,"
				 "\"\\u001b[2J\":3}}}\n",
		      (struct report_view){.by = REPORT_MODEL},
		      "this trace is not whole (metadata.lost): lost_events 1, lost_bytes 4096, \xef\xbf\xbd[2J 3\n"
		      "there is none in this trace\n");
}

/* More processes than there is room for: how much is theirs is said. */
static void processes_of_many(void **state)
{
	const struct report_view v = {.by = REPORT_PROCESS, .top = 1},
				 as_json = {.by = REPORT_PROCESS, .json = true, .top = 1};
	struct buf text, out;
	struct report *r;

	(void)state;
	buf_init(&text, 0);
	buf_init(&out, 0);
	buf_puts(&text, BEGIN);
	for (unsigned i = 0; i < REPORT_PIDS_MAX + 3; i++)
		buf_printf(&text,
			   "{\"ph\":\"X\",\"pid\":%u,\"tid\":5000001,\"ts\":0.000,\"dur\":1000.000,\"name\":\"LLM m\","
			   "\"cat\":\"llm\",\"args\":{}}%s\n",
			   i + 1, i < REPORT_PIDS_MAX + 2 ? "," : "");
	assert_int_equal(buf_puts(&text, "],\"metadata\":{}}\n"), 0);
	r = report_of(buf_cstr(&text));
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_non_null(strstr(buf_cstr(&out), "  … and 16383 more (--top)\n"
					       "  without room for 3 calls, ends and samples of processes that are not "
					       "listed\n"));
	buf_clear(&out);
	assert_int_equal(report_render(r, &as_json, &out), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"dropped\":3"));
	report_free(r);
	buf_release(&out);
	buf_release(&text);
}

static void late_allocations(void **state)
{
	(void)state;
	assert_late(
		MEMORY(ALLOCS TIMES), 700, (struct report_view){.by = REPORT_ALLOC},
		"memory asked for, estimated\n"
		"    bytes   error share  count kept max samples\n"
		"     144k       -   75%    288        -       1  prog[7]: storm [prog] < main [prog]\n"
		"    48.0k       -   25%    144        -       1  prog[7]: main [prog] (broken)\n"
		"  prog[7]: 192k bytes ± - (95 %) in 384 allocations of operator new, mi�, by 1 window on 4% of its "
		"own processor time\n"
		"  kept: not seen freed in a window; what is freed outside of them is not known. Only native "
		"allocators: memory that\n"
		"  V8, the JVM, Go, and Python for its small objects, manage themselves shows as page faults "
		"(--by fault)\n");
	/* After the last sample nobody looked, which is not nothing. */
	assert_late(MEMORY(ALLOCS TIMES), 955, (struct report_view){.by = REPORT_ALLOC},
		    "memory asked for: none was seen, by 0 windows on 1 process\n");
	assert_late(MEMORY(ALLOCS TIMES), 700, (struct report_view){.by = REPORT_FAULT},
		    "this trace was taken without times of page faults (--last)\n");
	assert_late(MEMORY(ALLOCS), 700, (struct report_view){.by = REPORT_ALLOC},
		    "this trace was taken without times of allocations (--last)\n");
}

static void allocations_folded(void **state)
{
	struct report *r = report_of(MEMORY(ALLOCS));
	struct buf out;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(report_folded(r, REPORT_ALLOC, &out), 0);
	assert_string_equal(buf_cstr(&out), "prog;[broken stack];main [prog] 1000000\n"
					    "prog;main [prog];storm [prog] 4000000\n");
	buf_clear(&out);
	assert_int_equal(report_folded(r, REPORT_FAULT, &out), 0);
	assert_string_equal(buf_cstr(&out), "prog;main [prog];storm [prog];do_fault [kernel] 524288\n");
	buf_release(&out);
	report_free(r);
}

/* Rows that are none. */
static void allocations_refused(void **state)
{
	static const char *const bad[] = {
		MEMORY("[\"cpu\",0,1,1,1,1,1,1,\"whole\",[0]]"),    MEMORY("[\"alloc\",1,1,1,1,1,1,1,\"whole\",[0]]"),
		MEMORY("[\"alloc\",0,1,1,1,-1,1,1,\"whole\",[0]]"), MEMORY("[\"alloc\",0,1,1,1,1,1,1,\"whole\",[3]]"),
		MEMORY("[\"alloc\",0,1,1,1,1,1,1,\"whole\",0]"),    MEMORY("[\"alloc\",0,1,1,1,1,1,1,\"whole\"]"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct report *r = report_new();

		assert_int_equal(read_text(r, bad[i], strlen(bad[i])), -EBADMSG);
		assert_non_null(strstr(report_why(r), "memory"));
		report_free(r);
	}
}

static void allocation_times_refused(void **state)
{
	static const char *const times[] = {"[1,7,0,1]",    "[1,7,3,1,1]",    "[1,7,2,1,1]",   "[-1,7,0,1,1]",
					    "[1,-7,0,1,1]", "[1,7,0,1e99,1]", "[1,7,0,1,\"\"]"};
	static const char *const windows[] = {"[1,0,1,1,1,1]",	  "[1,0,1,1,1,1,1,1]", "[1,1,1,1,1,1,1]",
					      "[1,0,-1,1,1,1,1]", "[1,0,1,1,1,1,[]]",  "[1,0.5,1,1,1,1,1]"};
	char text[4096];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(times) + ARRAY_SIZE(windows); i++) {
		bool is_time = i < ARRAY_SIZE(times);
		struct report *r = report_new();

		snprintf(text, sizeof(text), "%s%s\n]}},\"metadata\":" METADATA,
			 is_time ? MEMORY_ROWS(ALLOCS "\n],\"allocations\":[\n")
				 : MEMORY_ROWS(ALLOCS "\n],\"allocations\":[\n],\"alloc_windows\":[\n"),
			 is_time ? times[i] : windows[i - ARRAY_SIZE(times)]);
		assert_int_equal(read_text(r, text, strlen(text)), -EBADMSG);
		assert_non_null(strstr(report_why(r), "times"));
		report_free(r);
	}
}

static void refused(void **state)
{
	static const char *const bad[] = {
		"",
		"[]\n",
		"{\"traceEvents\":[]}\n",
		BEGIN,
		BEGIN CALL(1),
		BEGIN "nonsense\n],\"metadata\":{}}\n",
		BEGIN "[1]\n],\"metadata\":{}}\n",
		BEGIN CALL(1) "],\"metadata\":{}\n",
		BEGIN CALL(1) "],\"metadata\":[]}\n",
		BEGIN CALL(1) "],\"metadata\":{}}\nmore\n",
		BEGIN CALL(1) "],\"stacks\":[\n",
		BEGIN CALL(1) "],\"otherData\":{\"profile\":{\"format\":2,\"threads\":[\n",
		BEGIN PROFILE(1, "") "{}\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct report *r = report_new();

		assert_int_equal(read_text(r, bad[i], strlen(bad[i])), -EBADMSG);
		assert_string_not_equal(report_why(r), "");
		report_free(r);
	}
}

/* Rows that point outside of the tables, and numbers that are none. */
/* Whatever a run can write. */
_Static_assert(REPORT_STACKS_MAX >= PROFILE_WRITTEN_MAX + PROFILE_THREADS_MAX * PROFILE_MEMORY, "rows of stacks");
_Static_assert(REPORT_THREADS_MAX >= PROFILE_THREADS_MAX && REPORT_FRAMES_MAX >= PROFILE_SYMBOLS_MAX &&
		       REPORT_SAMPLES_MAX >= PROFILE_TIMED_MAX &&
		       REPORT_SAMPLES_MAX >= PROFILE_WINDOWS_MAX + PROFILE_ALLOCATORS_MAX,
	       "rows of the other tables");

/* All rows that a profile can be written with: of the stacks that are not written one a thread and kind. */
static void as_many_as_written(void **state)
{
	const unsigned stacks = PROFILE_WRITTEN_MAX + PROFILE_THREADS_MAX * PROFILE_MEMORY;
	struct report *r = report_new();
	struct report_view v = {.by = REPORT_WAIT, .top = 3, .json = true};
	struct buf out;
	char line[64];

	(void)state;
	assert_int_equal(report_line(r, SV("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")), 0);
	assert_int_equal(report_line(r, SV("],\"otherData\":{\"profile\":{\"format\":1," OFF "\"threads\":[")), 0);
	for (unsigned i = 0; i < PROFILE_THREADS_MAX; i++) {
		snprintf(line, sizeof(line), "[7,%u,\"p\",\"t\"],", i);
		assert_int_equal(report_line(r, sv_of(line)), 0);
	}
	assert_int_equal(report_line(r, SV("],\"frames\":[")), 0);
	for (unsigned i = 0; i < PROFILE_SYMBOLS_MAX; i++)
		assert_int_equal(report_line(r, SV("[\"f\",\"m\"],")), 0);
	assert_int_equal(report_line(r, SV("],\"stacks\":[")), 0);
	for (unsigned i = 0; i < stacks; i++) {
		snprintf(line, sizeof(line), "[\"futex\",%u,1000,1,\"whole\",[]],", i % PROFILE_THREADS_MAX);
		assert_int_equal(report_line(r, sv_of(line)), 0);
	}
	assert_int_equal(report_line(r, SV("]}},\"metadata\":{}}")), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	snprintf(line, sizeof(line), "\"samples\":%u}", stacks);
	assert_non_null(strstr(buf_cstr(&out), line));
	buf_release(&out);
	report_free(r);
}

static void hostile_rows(void **state)
{
	static const char *const rows[] = {
		"[\"cpu\",1,1,1,\"whole\",[0]]",
		"[\"cpu\",0,1,1,\"whole\",[1]]",
		"[\"cpu\",0,1,1,\"whole\",[-1]]",
		"[\"cpu\",0,1,1,\"whole\",[0.5]]",
		"[\"cpu\",-1,1,1,\"whole\",[0]]",
		"[\"what\",0,1,1,\"whole\",[0]]",
		"[\"cpu\",0,-1,1,\"whole\",[0]]",
		"[\"cpu\",0,1e999,1,\"whole\",[]]",
		"[\"cpu\",0,1,1,\"whole\",7]",
		"[\"cpu\",0,1,1,\"whole\"]",
		"[]",
		"{}",
		"[\"cpu\",0,\"1\",1,\"whole\",[0]]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct report *r = report_new();
		char text[1024];

		snprintf(text, sizeof(text),
			 BEGIN CALL(1) "],\"otherData\":{\"profile\":{\"format\":1,\"threads\":[\n[1,1,\"p\",\"t\"]\n],"
				       "\"frames\":[\n[\"f\",\"m\"]\n],\"stacks\":[\n%s\n]}},\"metadata\":{}}\n",
			 rows[i]);
		assert_int_equal(read_text(r, text, strlen(text)), -EBADMSG);
		report_free(r);
	}
}

/* Of very many durations a sample is kept; the longest of all is none of those that may be left out. */
static void longest_of_many(void **state)
{
	struct report *r = report_new();
	struct report_view v = {.by = REPORT_DB, .top = 3, .json = true};
	struct buf out;
	char line[256];

	(void)state;
	assert_int_equal(report_line(r, SV("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")), 0);
	for (unsigned i = 0; i < 10 * REPORT_VALUES_MAX; i++) {
		snprintf(line, sizeof(line),
			 "{\"ph\":\"X\",\"pid\":3,\"ts\":0,\"dur\":%u.125,\"name\":\"redis GET\",\"cat\":\"db\"},",
			 i == 3 ? 5000000 : 1000);
		assert_int_equal(report_line(r, sv_of(line)), 0);
	}
	assert_int_equal(report_line(r, SV("],\"metadata\":{}}")), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"p50_ms\":1.000,"));
	assert_non_null(strstr(buf_cstr(&out), "\"max_ms\":5000.000"));
	buf_release(&out);
	report_free(r);
}

static void too_long(void **state)
{
	char *line = malloc(REPORT_LINE_BYTES + 1);
	struct report *r = report_new();

	(void)state;
	assert_non_null(line);
	memset(line, '[', REPORT_LINE_BYTES + 1);
	assert_int_equal(report_line(r, SV("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")), 0);
	assert_int_equal(report_line(r, (struct sv){line, REPORT_LINE_BYTES}), -EBADMSG); /* nested too deep */
	assert_int_equal(report_line(r, (struct sv){line, REPORT_LINE_BYTES + 1}), -EBADMSG);
	report_free(r);
	free(line);
}

/* Names of terminals' commands, and of more rows than are kept. */
static void names(void **state)
{
	struct report *r = report_new();
	struct report_view v = {.by = REPORT_DB, .top = 3};
	struct buf out;
	char line[256];

	(void)state;
	assert_int_equal(report_line(r, SV("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")), 0);
	for (int i = 0; i < REPORT_ROWS_MAX + 10; i++) {
		snprintf(line, sizeof(line), "{\"ph\":\"X\",\"dur\":%d.0,\"name\":\"\\u001b[2J%d\",\"cat\":\"db\"},", i,
			 i);
		assert_int_equal(report_line(r, sv_of(line)), 0);
	}
	assert_int_equal(report_line(r, SV("],\"metadata\":{}}")), 0);
	buf_init(&out, 0);
	assert_int_equal(report_render(r, &v, &out), 0);
	assert_null(strchr(buf_cstr(&out), 27));
	assert_non_null(strstr(buf_cstr(&out), "(others)"));
	assert_non_null(strstr(buf_cstr(&out), "and 2046 more"));
	buf_release(&out);
	report_free(r);
}

#define CALLS(ms) CALL(ms) CALL(ms) CALL(ms) CALL(ms) CALL(ms) CALL(ms) CALL(ms) CALL(ms) CALL(ms)
#define TRACE(ms, c)                                                                                                   \
	BEGIN CALLS(ms)                                                                                                \
	OTHERS PROFILE(c, CPU)                                                                                         \
	METADATA

static void assert_diff(const char *a, const char *b, double fail, bool regressed, const char *has)
{
	struct report *before = report_of(a), *after = report_of(b);
	struct report_view v = {.top = 25};
	char why[160];
	struct buf out;
	bool got;

	buf_init(&out, 0);
	assert_int_equal(report_diff(before, after, &v, fail, &out, &got, why), 0);
	assert_int_equal(got, regressed);
	if (!strstr(buf_cstr(&out), has))
		fail_msg("no '%s' in:\n%s", has, buf_cstr(&out));
	buf_release(&out);
	report_free(before);
	report_free(after);
}

static void side_by_side(void **state)
{
	(void)state;
	assert_diff(TRACE(40, 40), TRACE(40, 40), 10, false, "  40.0ms   40.0ms  +0.0% ~      m1 @ api\n");
	assert_diff(TRACE(40, 40), TRACE(60, 40), 10, true, "  40.0ms   60.0ms  +50.0% !     m1 @ api\n");
	assert_diff(TRACE(40, 40), TRACE(60, 40), 60, false, "+50.0%  ");
	assert_diff(TRACE(40, 40), TRACE(60, 40), -1, false, "+50.0%  ");
	assert_diff(TRACE(60, 40), TRACE(40, 40), 10, false, "-33.3%  "); /* better is no regression */
	assert_diff(BEGIN CALL(1) OTHERS PROFILE(40, CPU) METADATA, BEGIN CALL(2) OTHERS PROFILE(40, CPU) METADATA, 10,
		    false, "+100.0% ~"); /* one call of each is no proof */
}

/* A second of sampling every ms: so many samples of hot() in each fiftieth of a second. */
static struct report *timed_of(const unsigned samples[20])
{
	struct report *r = report_new();
	unsigned all = 0;
	struct buf text;

	for (int k = 0; k < 20; k++)
		all += samples[k];
	buf_init(&text, 0);
	buf_printf(&text,
		   BEGIN "],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000," CPU
			 "\"threads\":[\n[7,7,\"prog\",\"prog\"]\n],\"frames\":[\n[\"hot\",\"prog\"]\n],\"stacks\":[\n"
			 "[\"cpu\",0,%u000000,%u,\"whole\",[0]]\n],\"timeline\":[\n",
		   all, all);
	for (unsigned k = 0; k < 20; k++)
		for (unsigned i = 0; i < samples[k]; i++)
			buf_printf(&text, "[%u,1000,0]%s\n", k * 50000 + 1000 * i, --all ? "," : "");
	buf_puts(&text, "]}},\"metadata\":" METADATA);
	assert_int_equal(read_text(r, text.ptr, text.len), 0);
	buf_release(&text);
	return r;
}

/* Time is judged by how it is spread: a burst is one event, however many samples it has. */
static void spread_in_time(void **state)
{
	static const struct {
		unsigned before[20], after[20];
		bool regressed;
	} all[] = {
		{{10, 12, 9, 11, 10, 8, 13, 10, 11, 9, 12, 10, 9, 11, 10, 12, 8, 10, 11, 9},
		 {20, 19, 22, 21, 18, 20, 23, 20, 19, 21, 20, 22, 18, 20, 21, 19, 20, 22, 20, 18},
		 true},
		{{5, 0, 7, 2, 9, 1, 8, 3, 6, 0, 9, 2, 5, 1, 7, 4, 8, 0, 6, 3},
		 {6, 1, 9, 0, 8, 3, 9, 2, 7, 1, 9, 4, 6, 0, 8, 5, 9, 2, 7, 1},
		 false},
		{{1, 0, 1, 0, 2, 0, 1, 0, 0, 1, 1, 0, 1, 0, 2, 0, 1, 0, 0, 1},
		 {1, 0, 1, 0, 2, 0, 1, 0, 50, 1, 1, 0, 1, 0, 2, 0, 1, 0, 0, 1},
		 false}, /* 12 samples, and 62 */
	};
	struct report_view v = {.top = 25};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct report *a = timed_of(all[i].before), *b = timed_of(all[i].after);
		struct buf out;
		bool regressed;
		char why[160];

		buf_init(&out, 0);
		assert_int_equal(report_diff(a, b, &v, 5, &out, &regressed, why), 0);
		if (regressed != all[i].regressed)
			fail_msg("case %zu:\n%s", i, buf_cstr(&out));
		assert_non_null(strstr(buf_cstr(&out), "hot [prog]"));
		buf_release(&out);
		report_free(a);
		report_free(b);
	}
}

/* Names of C++ and Rust that only differ far behind: each is compared with itself. */
static void long_names(void **state)
{
	struct report_view v = {.by = REPORT_FUNCTION, .top = 25};
	char text[2048], name[256], why[160];
	struct report *r[2];
	struct buf out;
	bool regressed;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		snprintf(text, sizeof(text),
			 BEGIN "],\"otherData\":{\"profile\":{\"format\":1,\"window_ns\":1000000000," CPU
			       "\"threads\":[\n[7,7,\"prog\",\"prog\"]\n],\"frames\":[\n[\"%s::a\",\"prog\"],\n"
			       "[\"%s::b\",\"prog\"]\n],\"stacks\":[\n[\"cpu\",0,%u000000,40,\"whole\",[0]],\n"
			       "[\"cpu\",0,%u000000,40,\"whole\",[1]]\n]}},\"metadata\":" METADATA,
			 name, name, i ? 10 : 40, i ? 40 : 10);
		r[i] = report_of(text);
	}
	buf_init(&out, 0);
	assert_int_equal(report_diff(r[0], r[1], &v, 1, &out, &regressed, why), 0);
	assert_non_null(strstr(buf_cstr(&out), "  40.0ms   10.0ms  -75.0% "));
	assert_non_null(strstr(buf_cstr(&out), "nn::a [prog]\n"));
	assert_non_null(strstr(buf_cstr(&out), "  10.0ms   40.0ms  +300.0% "));
	assert_non_null(strstr(buf_cstr(&out), "nn::b [prog]\n"));
	buf_clear(&out);
	assert_int_equal(report_folded(r[0], REPORT_ALL, &out), 0);
	assert_non_null(strstr(buf_cstr(&out), "nn::a [prog] 40000000\n"));
	buf_release(&out);
	report_free(r[0]);
	report_free(r[1]);
}

/* A table that one of the traces cannot have of the time that is looked at is none, whichever of them it is. */
static void known_of_one(void **state)
{
	static const char *const texts[] = {TIMED("", TIMELINE), TIMED("\"timeline_from_us\":860000,", TIMELINE)};
	struct report_view v = {.top = 25, .json = true};
	struct report *r[2];
	struct buf out;
	bool regressed;
	char why[160];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		r[i] = report_new();
		report_since(r[i], 852);
		assert_int_equal(read_text(r[i], texts[i], strlen(texts[i])), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		buf_init(&out, 0);
		assert_int_equal(report_diff(r[i], r[!i], &v, 1, &out, &regressed, why), 0);
		assert_non_null(strstr(buf_cstr(&out), "\"function\":null,\"wait\":null"));
		buf_release(&out);
	}
	buf_init(&out, 0);
	assert_int_equal(report_diff(r[0], r[0], &v, 1, &out, &regressed, why), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"function\":[{"));
	buf_release(&out);
	report_free(r[0]);
	report_free(r[1]);
}

/* Memory is compared by the code that asked, whatever its process's number is, with its bound, and not judged. */
static void memory_compared(void **state)
{
	struct report *a = report_of(MEMORY("[\"alloc\",0,1000000,30000,1000,40,null,null,\"whole\",[0,1]],\n"
					    "[\"alloc\",0,500000,40000,1000,40,null,null,\"whole\",[0,1]]"));
	struct report *b = report_of(MEMORY("[\"alloc\",0,3000000,60000,1000,40,null,null,\"whole\",[0,1]]"));
	struct report_view v = {.by = REPORT_ALLOC, .top = 25};
	struct buf out;
	bool regressed;
	char why[160];

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(report_diff(a, b, &v, 1, &out, &regressed, why), 0);
	assert_string_equal(buf_cstr(&out),
			    "    before    after  change       (~: may be chance; !: worse than allowed)\n"
			    "memory asked for, estimated, a second\n"
			    "     1.50M    3.00M  +100.0%      prog: storm [prog] < main [prog]\n"
			    "     50.0k    60.0k  +20.0%         ± (95 %)\n");
	assert_false(regressed);
	buf_clear(&out);
	v.by = REPORT_FAULT;
	assert_int_equal(report_diff(a, b, &v, 1, &out, &regressed, why), 0);
	assert_string_equal(buf_cstr(&out), "there is nothing to compare in these traces\n");
	buf_release(&out);
	report_free(a);
	report_free(b);
}

#define FUNCTIONS(a, b)                                                                                                \
	BEGIN OTHERS "],\"metadata\":{\"duration_ms\":1000,\"axes\":[],\"functions\":[{\"function\":\"" a              \
		     "\"},{\"function\":\"" b "\"}]}}\n"

static void functions_in_any_order(void **state)
{
	struct report *a = report_of(FUNCTIONS("libc.so.6:free", "x:y")),
		      *b = report_of(FUNCTIONS("x:y", "libc.so.6:free"));
	struct report_view v = {.top = 25};
	struct buf out;
	bool regressed;
	char why[160];

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(report_diff(a, b, &v, 1, &out, &regressed, why), 0);
	buf_release(&out);
	report_free(a);
	report_free(b);
}

static void not_compared(void **state)
{
	struct report *a = report_of(WHOLE), *b = report_of(WHOLE);
	struct report_view v = {.by = REPORT_CALL, .top = 25};
	struct buf out;
	bool regressed;
	char why[160];

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(report_diff(a, b, &v, 1, &out, &regressed, why), -EINVAL);
	assert_string_equal(why, "--by call: that table cannot be compared");
	buf_release(&out);
	report_free(a);
	report_free(b);
}

static void other_knobs(void **state)
{
	static const struct {
		const char *a, *b, *why;
	} all[] = {
		{BEGIN OTHERS PROFILE(1, CPU) METADATA, BEGIN OTHERS "],\"metadata\":" METADATA, "--cpu"},
		{BEGIN OTHERS PROFILE(1, CPU) METADATA, BEGIN OTHERS PROFILE(1, CPU OFF) METADATA, "--off-cpu"},
		{BEGIN OTHERS "],\"metadata\":" METADATA, BEGIN OTHERS "],\"metadata\":{\"duration_ms\":3000}}\n",
		 "duration"},
		{BEGIN OTHERS "],\"metadata\":{}}\n", BEGIN OTHERS "],\"metadata\":{}}\n", "not told"},
		{BEGIN OTHERS "],\"metadata\":{\"axes\":[\"db\"]}}\n", BEGIN OTHERS "],\"metadata\":{\"axes\":[]}}\n",
		 "taken with db and calls only"},
		{BEGIN OTHERS "],\"metadata\":{\"axes\":[\"alloc=1024\",\"db\"]}}\n",
		 BEGIN OTHERS "],\"metadata\":{\"axes\":[\"alloc=4096\",\"db\"]}}\n",
		 "taken with alloc=1024 db and alloc=4096 db"},
		{BEGIN OTHERS "],\"metadata\":{\"axes\":[],\"functions\":[{\"function\":\"a:b\"}]}}\n",
		 BEGIN OTHERS "],\"metadata\":{\"axes\":[]}}\n", "taken with a:b and calls only"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct report *a = report_of(all[i].a), *b = report_of(all[i].b);
		struct report_view v = {.top = 25};
		struct buf out;
		bool regressed;
		char why[160];

		buf_init(&out, 0);
		assert_int_equal(report_diff(a, b, &v, 1, &out, &regressed, why), -EINVAL);
		assert_non_null(strstr(why, all[i].why));
		buf_release(&out);
		report_free(a);
		report_free(b);
	}
}

static void assert_fails_well(const char *text, double from_ms)
{
	unsigned n = 0;
	bool hit, regressed;
	char why[160];

	do {
		struct report_view v = {.top = 5}, json = {.top = 5, .json = true};
		struct report *r;
		struct buf out;

		buf_init(&out, 0);
		fail_nth(++n);
		r = report_new();
		if (r)
			report_since(r, from_ms);
		if (r && !read_text(r, text, strlen(text))) {
			report_render(r, &v, &out);
			report_folded(r, REPORT_ALL, &out);
			report_render(r, &json, &out);
			report_diff(r, r, &v, 1, &out, &regressed, why);
			report_diff(r, r, &json, 1, &out, &regressed, why);
		}
		hit = fail_nth_hit();
		buf_release(&out);
		report_free(r);
	} while (hit);
	fail_nth(0);
	assert_true(n > 20);
}

static void without_memory(void **state)
{
	(void)state;
	assert_fails_well(TIMED("", TIMELINE), 0);
	assert_fails_well(MEMORY(ALLOCS TIMES), 0);
	assert_fails_well(MEMORY(ALLOCS TIMES), 700);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables),
		cmocka_unit_test(partial_rows),
		cmocka_unit_test(partial_counts),
		cmocka_unit_test(large_waits),
		cmocka_unit_test(allocations),
		cmocka_unit_test(calls_seen_in_part),
		cmocka_unit_test(losses),
		cmocka_unit_test(allocations_of_many),
		cmocka_unit_test(processes_of_many),
		cmocka_unit_test(allocations_folded),
		cmocka_unit_test(allocations_refused),
		cmocka_unit_test(late_allocations),
		cmocka_unit_test(allocation_times_refused),
		cmocka_unit_test(folded),
		cmocka_unit_test(refused),
		cmocka_unit_test(as_json),
		cmocka_unit_test(json_of_all),
		cmocka_unit_test(late_ones),
		cmocka_unit_test(late_samples),
		cmocka_unit_test(hostile_times),
		cmocka_unit_test(far_times),
		cmocka_unit_test(many_calls),
		cmocka_unit_test(longest_of_many),
		cmocka_unit_test(too_long),
		cmocka_unit_test(as_many_as_written),
		cmocka_unit_test(hostile_rows),
		cmocka_unit_test(names),
		cmocka_unit_test(side_by_side),
		cmocka_unit_test(spread_in_time),
		cmocka_unit_test(long_names),
		cmocka_unit_test(known_of_one),
		cmocka_unit_test(memory_compared),
		cmocka_unit_test(functions_in_any_order),
		cmocka_unit_test(not_compared),
		cmocka_unit_test(other_knobs),
		cmocka_unit_test(without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
