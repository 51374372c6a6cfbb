/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "flow/agent/verdict.h"

static void assert_verdict(const struct verdict_facts *f, const char *golden)
{
	struct buf text;

	buf_init(&text, 0);
	assert_int_equal(verdict_text(&text, f), 0);
	assert_string_equal(buf_cstr(&text), golden);
	buf_release(&text);
}

#define S 1000000000ull

static void test_sentence(void **state)
{
	struct walltime_report wall = {.total_ns = 58200000000ull};
	struct verdict_facts f = {.wall = &wall};

	(void)state;
	wall.part_ns[PART_FIRST_TOKEN] = 41904000000ull;
	wall.part_ns[PART_TOOL] = 10476000000ull;
	wall.part_ns[PART_NETWORK] = 582000000ull;
	wall.part_ns[PART_CONNECT] = 58200000ull;
	wall.part_ns[PART_UNKNOWN] = wall.total_ns - 41904000000ull - 10476000000ull - 582000000ull - 58200000ull;
	assert_verdict(&f, "72 % of 58.2 s was waiting for the first token; tools 18 %, unknown 9 %, network 1 %; "
			   "confidence medium");
	f.model = "claude-x";
	f.ttft_p50_ns = 1900000000ull;
	f.tool = "Bash";
	f.program = "npm";
	f.model_share = 1;
	f.tool_share = 0.51;
	assert_verdict(&f,
		       "72 % of 58.2 s was waiting for the first token of claude-x (p50 1.90 s); tools 18 % (mostly "
		       "Bash, last npm), unknown 9 %, network 1 %; confidence medium");
	wall.part_ns[PART_GENERATION] = wall.part_ns[PART_UNKNOWN];
	wall.part_ns[PART_UNKNOWN] = 0;
	f.writer = "gpt-y";
	f.model_share = f.writer_share = 0.9;
	assert_verdict(
		&f,
		"72 % of 58.2 s was waiting for the first token mostly of claude-x (p50 1.90 s); tools 18 % (mostly "
		"Bash, last npm), generation 9 % mostly by gpt-y, network 1 %; confidence high");
	/* Half is not most. */
	f.model_share = 0.5;
	f.writer_share = 0.34;
	f.tool_share = 0.41;
	assert_verdict(&f, "72 % of 58.2 s was waiting for the first token (largest part claude-x, 50 %) (p50 1.90 s); "
			   "tools 18 % (largest part Bash, 41 %, last npm), generation 9 % (largest part gpt-y, 34 %), "
			   "network 1 %; confidence high");
	f.tool_share = 1;
	f.program = NULL;
	f.model_share = f.writer_share = 1;
	assert_verdict(&f,
		       "72 % of 58.2 s was waiting for the first token of claude-x (p50 1.90 s); tools 18 % (Bash), "
		       "generation 9 % by gpt-y, network 1 %; confidence high");
	wall.part_ns[PART_UNKNOWN] = wall.part_ns[PART_GENERATION];
	wall.part_ns[PART_GENERATION] = 0;
	wall.part_ns[PART_USER] = wall.part_ns[PART_UNKNOWN];
	wall.part_ns[PART_UNKNOWN] = 0;
	assert_int_equal(verdict_confidence(&f), VERDICT_HIGH);
	f.lossy = true;
	assert_int_equal(verdict_confidence(&f), VERDICT_MEDIUM);
	wall.part_ns[PART_AGENT_GAP] = wall.part_ns[PART_FIRST_TOKEN];
	wall.part_ns[PART_FIRST_TOKEN] = 0;
	assert_int_equal(verdict_confidence(&f), VERDICT_LOW);
}

static void test_nothing(void **state)
{
	struct walltime_report wall = {0};
	struct verdict_facts f = {.wall = &wall};

	(void)state;
	assert_verdict(&f, "");
	wall.total_ns = 800000000;
	wall.part_ns[PART_GENERATION] = wall.total_ns;
	assert_verdict(&f, "100 % of 800 ms was generation; confidence high");
}

/* Not "1000 ms" beside "1.00 s". */
static void test_units(void **state)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} all[] = {{S - 600000, "999 ms"},	 {S - 400000, "1.00 s"},	{10 * S - 6000000, "9.99 s"},
		   {10 * S - 4000000, "10.0 s"}, {60 * S - 40000000, "60.0 s"}, {400000, "0 ms"}};
	char golden[96];

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct walltime_report wall = {.total_ns = all[i].ns};
		struct verdict_facts f = {.wall = &wall};

		wall.part_ns[PART_GENERATION] = wall.total_ns;
		snprintf(golden, sizeof(golden), "100 %% of %s was generation; confidence high", all[i].text);
		assert_verdict(&f, golden);
	}
}

/* The members in an object of their own. */
static void put_object(struct buf *text, const struct verdict_facts *f)
{
	struct json j;

	buf_init(text, 0);
	json_init(&j, text);
	json_object(&j, NULL);
	verdict_json(&j, f);
	json_end_object(&j);
	assert_int_equal(j.err, 0);
}

/* Where no time went by there is nothing to say, and no member says so. */
static void test_nothing_to_say(void **state)
{
	struct walltime_report wall = {0};
	struct verdict_facts f = {.wall = &wall};
	struct buf text;

	(void)state;
	put_object(&text, &f);
	assert_string_equal(buf_cstr(&text), "{}");
	buf_release(&text);
}

/* Every part has words of its own, and a name in the JSON. */
static void test_every_part(void **state)
{
	struct tlog seen = {0};

	(void)state;
	for (unsigned p = 0; p < PART_COUNT; p++) {
		struct walltime_report wall = {.total_ns = 2 * S};
		struct verdict_facts f = {.wall = &wall};
		struct buf text;
		cJSON *o;

		wall.part_ns[p] = 2 * S;
		put_object(&text, &f);
		o = cJSON_Parse(buf_cstr(&text));
		assert_non_null(o);
		assert_float_equal(
			cJSON_GetObjectItem(cJSON_GetObjectItem(o, "parts_ms"), time_part_name(p))->valuedouble, 2000,
			0.001);
		assert_null(seen.text ? strstr(seen.text, cJSON_GetObjectItem(o, "verdict")->valuestring) : NULL);
		tlog_printf(&seen, "%s\n", cJSON_GetObjectItem(o, "verdict")->valuestring);
		cJSON_Delete(o);
		buf_release(&text);
	}
	tlog_free(&seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sentence),       cmocka_unit_test(test_nothing),	  cmocka_unit_test(test_units),
		cmocka_unit_test(test_nothing_to_say), cmocka_unit_test(test_every_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
