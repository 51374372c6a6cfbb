/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "base/err.h"
#include "flow/agent/agents.h"
#include "make_call.h"

/* Times in the logs are milliseconds. make_call(): first token after 200, end after 1210. */
struct world {
	struct tlog log;
	struct lost lost;
	struct agents *t;
	unsigned spawned[16]; /* by the digit in the tool's id: the agent that it started */
	char model[80];	      /* of the turn told last */
	int64_t output_tokens;
};

static unsigned long long ms(uint64_t ns)
{
	return ns / MS;
}

static void log_wall(struct tlog *log, const struct walltime_report *r)
{
	uint64_t sum = 0;

	for (unsigned p = 0; p < PART_COUNT; p++) {
		sum += r->part_ns[p];
		if (r->part_ns[p])
			tlog_printf(log, " %s=%llu", time_part_name(p), ms(r->part_ns[p]));
	}
	assert_int_equal(sum, r->total_ns);
}

static void on_agent(void *ctx, const struct agent *a)
{
	struct world *w = ctx;

	tlog_printf(&w->log, "agent %u parent %d%s %s by call %llu\n", a->index, a->parent,
		    a->by_time ? " by time" : "", a->name ? a->name : "-", (unsigned long long)a->spawned_by_call);
}

static void on_tool(void *ctx, const struct agent_tool *t)
{
	struct world *w = ctx;

	if (t->id && t->id[0] == 'p')
		w->spawned[t->id[1] - '0'] = t->spawned;
	tlog_printf(&w->log, "tool %s of %llu for %llu: %s%s %llu-%llu %s x%u code %d%s %lld bytes\n",
		    t->name ? t->name : "-", (unsigned long long)t->call_id, (unsigned long long)t->result_call_id,
		    tool_join_name(t->join), t->ambiguous ? "?" : "", ms(t->at.begin_ns), ms(t->at.end_ns),
		    t->program ? t->program : "-", t->processes, t->code, t->running ? " running" : "",
		    (long long)t->result_bytes);
}

static void on_turn(void *ctx, const struct turn *t)
{
	struct world *w = ctx;

	snprintf(w->model, sizeof(w->model), "%.0f %% %s", 100 * t->model_share, t->model ? t->model : "-");
	w->output_tokens = t->output_tokens;

	tlog_printf(&w->log, "turn %llu of %u %llu-%llu%s%s steps %u tools %u:", (unsigned long long)t->id, t->agent,
		    ms(t->at.begin_ns), ms(t->at.end_ns), t->complete ? " complete" : "", t->partial ? " partial" : "",
		    t->steps, t->tools);
	log_wall(&w->log, &t->wall);
	tlog_printf(&w->log, "\n");
}

static void open_world(struct world *w)
{
	const struct agents_sink sink = {w, on_agent, on_tool, on_turn};

	*w = (struct world){0};
	w->t = agents_new(&w->lost, &sink);
	assert_non_null(w->t);
}

static void close_world(struct world *w, const char *golden)
{
	agents_free(w->t);
	if (strcmp(w->log.text ? w->log.text : "", golden)) {
		print_error("is:\n%s\nnot:\n%s\n", w->log.text, golden);
		fail();
	}
	assert_int_equal(w->lost.n[LOST_NO_MEMORY], 0);
	tlog_free(&w->log);
}

static void begin_call(struct call *c, uint64_t id, uint64_t begin_ms)
{
	make_call(c, id, 100, begin_ms * MS);
	c->srtt_us = c->rtt_min_us = UNKNOWN_COUNT;
	c->trigger = CALL_TRIGGER_HUMAN;
	c->interactive = 1;
}

static void add_result(struct call *c, const char *id, const char *name, int64_t bytes)
{
	c->results = realloc(c->results, (c->result_count + 1) * sizeof(*c->results));
	assert_non_null(c->results);
	c->results[c->result_count++] =
		(struct tool_result){id ? strdup(id) : NULL, name ? strdup(name) : NULL, bytes, -1};
	c->trigger = CALL_TRIGGER_TOOL_RESULTS;
}

static struct agent_place push_call(struct world *w, struct call *c)
{
	struct agent_place place;

	agents_push_call(w->t, c, NULL, &place);
	call_release(c);
	return place;
}

static void push_proc(struct world *w, uint32_t pid, uint32_t ppid, const char *name, const char *tool,
		      uint64_t begin_ms, uint64_t end_ms, int code)
{
	struct proc p = {
		.key = {.tgid = pid, .start_ns = begin_ms ? begin_ms * MS : 1},
		.ppid = ppid,
		.shown_pid = pid,
		.begin_ns = begin_ms ? begin_ms * MS : 1,
		.end_ns = UNKNOWN_NS,
		.tool_call_id = (char *)tool,
	};

	snprintf(p.name, sizeof(p.name), "%s", name);
	agents_push_proc(w->t, &p);
	if (end_ms) {
		p.end_ns = end_ms * MS;
		p.code = code;
		p.cpu_ns = 7 * MS;
		agents_push_proc(w->t, &p);
	}
}

static void test_turn_with_a_tool(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Bash");
	push_call(&w, &c);
	push_proc(&w, 101, 100, "bash", NULL, 2300, 4300, 3);
	push_proc(&w, 102, 101, "npm", NULL, 2400, 4200, 0); /* inside the life of the shell */
	begin_call(&c, 2, 5000);
	add_result(&c, "t1", NULL, 99);
	assert_int_equal(push_call(&w, &c).turn, 1);
	begin_call(&c, 3, 9000);
	assert_int_equal(push_call(&w, &c).turn, 2);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Bash of 1 for 2: time 2300-4300 bash x1 code 3 99 bytes\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 1: first_token=400 generation=2020 tool=2000 "
			"agent_gap=790\n"
			"turn 2 of 0 9000-10210 complete steps 1 tools 0: first_token=200 generation=1010\n");
}

/* A tool of 48 s between two answers of 100 tokens/s: neither the rate of the calls nor the time of the model has it.
 */
static void test_long_tool(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Bash");
	assert_int_equal((int)(call_decode_tok_s(&c) + 0.5), 100);
	push_call(&w, &c);
	push_proc(&w, 101, 100, "make", NULL, 2210, 50210, 0);
	begin_call(&c, 2, 50210);
	add_result(&c, "t1", NULL, 99);
	assert_int_equal((int)(call_decode_tok_s(&c) + 0.5), 100);
	push_call(&w, &c);
	agents_finish(w.t, 60000 * MS);
	assert_int_equal(w.output_tokens, 202);
	close_world(&w,
		    "agent 0 parent -1 - by call 0\n"
		    "tool Bash of 1 for 2: time 2210-50210 make x1 code 0 99 bytes\n"
		    "turn 1 of 0 1000-51420 complete steps 2 tools 1: first_token=400 generation=2020 tool=48000\n");
}

/* 80 calls beside 33 steps of a conversation: three turns of 11 steps, and what the helpers took is no turn's. */
static void test_many_helpers(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;
	uint64_t at = 1000, helpers = 0;

	(void)state;
	open_world(&w);
	for (uint64_t i = 0; i < 33; i++, at += 2000) {
		begin_call(&c, 1 + i, at);
		if (i % 11)
			add_result(&c, "t", NULL, 1);
		if (i % 11 != 10)
			add_tool(&c, "t", "Read");
		push_call(&w, &c);
		for (; helpers < (i + 1) * 80 / 33; helpers++) {
			begin_call(&c, 100 + helpers, at + 1300);
			c.class = CALL_AUX;
			assert_int_equal(push_call(&w, &c).turn, 0);
		}
	}
	agents_finish(w.t, at * MS);
	assert_int_equal(helpers, 80);
	assert_int_equal(agents_run(w.t, at * MS, &run), 0);
	assert_int_equal(run.turns, 3);
	assert_int_equal(run.steps, 33);
	assert_int_equal(agents_count(w.t), 1);
	tlog_free(&w.log);
	close_world(&w, "");
}

static void test_parallel_tools(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	push_proc(&w, 90, 100, "shell that stays", NULL, 10, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Read");
	add_tool(&c, "t2", "Bash");
	add_tool(&c, "t3", "Bash");
	add_tool(&c, "t4", "exec");
	push_call(&w, &c);
	push_proc(&w, 101, 100, "ls", NULL, 2300, 2400, 0);
	push_proc(&w, 102, 90, "make", NULL, 2301, 3000, 2);
	push_proc(&w, 103, 100, "server", "t4", 2302, 0, 0);
	begin_call(&c, 2, 5000);
	add_result(&c, "t1", NULL, 10);
	add_result(&c, "t2", NULL, 20);
	add_result(&c, "t3", NULL, 30);
	add_result(&c, "t4", NULL, 40);
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Read of 1 for 2: upper bound 2210-5000 - x0 code 0 10 bytes\n"
			"tool Bash of 1 for 2: upper bound? 2210-5000 - x0 code 0 20 bytes\n"
			"tool Bash of 1 for 2: upper bound? 2210-5000 - x0 code 0 30 bytes\n"
			"tool exec of 1 for 2: id 2302-5000 server x1 code 0 running 40 bytes\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 4: first_token=400 generation=2020 tool=2700 "
			"agent_gap=90\n");
}

static void set(char **field, const char *value)
{
	free(*field);
	*field = value ? strdup(value) : NULL;
}

/* A plain SDK: no ids at all. */
static void begin_plain(struct call *c, uint64_t id, uint64_t begin_ms, uint64_t conversation)
{
	begin_call(c, id, begin_ms);
	set(&c->session_id, NULL);
	c->conversation = conversation;
	c->interactive = -1;
}

/* One after the other, as many as were asked for: in the order of the calls. */
static void test_tools_in_a_row(void **state)
{
	struct agents_run run;
	struct world w;
	struct call c;

	(void)state;
	for (int overlap = 0; overlap < 2; overlap++) {
		open_world(&w);
		push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
		begin_call(&c, 1, 1000);
		add_tool(&c, "t1", "Bash");
		add_tool(&c, "t2", "Bash");
		push_call(&w, &c);
		push_proc(&w, 101, 100, "ls", NULL, 2300, 2400, 0);
		push_proc(&w, 102, 100, "make", NULL, overlap ? 2399 : 2400, 3000, 2);
		begin_call(&c, 2, 5000);
		add_result(&c, "t1", NULL, 10);
		add_result(&c, "t2", NULL, 20);
		push_call(&w, &c);
		assert_int_equal(agents_run(w.t, 6000 * MS, &run), 0);
		assert_int_equal(run.tool_window_ns, (overlap ? 701 : 700) * MS / 2 * 2);
		agents_finish(w.t, 20000 * MS);
		if (overlap)
			assert_non_null(strstr(w.log.text,
					       "tool Bash of 1 for 2: upper bound? 2210-5000 - x0 code 0 20 bytes\n"));
		else
			assert_non_null(strstr(w.log.text,
					       "tool Bash of 1 for 2: time 2300-2400 ls x1 code 0 10 bytes\n"
					       "tool Bash of 1 for 2: time 2400-3000 make x1 code 2 20 bytes\n"));
		agents_free(w.t);
		tlog_free(&w.log);
	}
}

/* Two conversations of one process wait for a shell each. Whoever has one that runs does not start another one; when
 * both had asked before the first was born, nobody knows whose it is, and both say so, whichever ends first. */
static void test_whose_shell(void **state)
{
	static const struct {
		uint64_t asked[2], born[2]; /* of the processes: in this order */
		bool known;
	} rows[] = {
		{{2300, 2400}, {2310, 2410}, true},
		{{2300, 2400}, {2310, 2900}, true},
		{{2300, 2400}, {2401, 2410}, false},
		{{2300, 2300}, {2310, 2311}, false},
	};

	(void)state;
	for (size_t row = 0; row < ARRAY_SIZE(rows); row++)
		for (unsigned first = 0; first < 2; first++) { /* which one ends first */
			struct world w;
			struct call c;

			open_world(&w);
			push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
			for (unsigned i = 0; i < 2; i++) {
				begin_plain(&c, 1 + i, rows[row].asked[i] - 1210, 11 + i);
				add_tool(&c, i ? "b" : "a", "Bash");
				push_call(&w, &c);
			}
			push_proc(&w, 101, 100, "one", NULL, rows[row].born[0], first == 0 ? 4000 : 4500, 0);
			push_proc(&w, 102, 100, "two", NULL, rows[row].born[1], first == 1 ? 4000 : 4500, 0);
			for (unsigned i = 0; i < 2; i++) {
				unsigned lane = i ? !first : first;

				begin_plain(&c, 3 + i, i ? 4600 : 4100, 11 + lane);
				add_result(&c, lane ? "b" : "a", NULL, 1);
				push_call(&w, &c);
			}
			agents_finish(w.t, 20000 * MS);
			if (!rows[row].known) {
				assert_null(strstr(w.log.text, " time"));
				assert_non_null(strstr(w.log.text, "tool Bash of 1 for 3: upper bound? ")
							? ""
							: strstr(w.log.text, "tool Bash of 1 for 4: upper bound? "));
				assert_non_null(strstr(w.log.text, "tool Bash of 2 for 3: upper bound? ")
							? ""
							: strstr(w.log.text, "tool Bash of 2 for 4: upper bound? "));
			} else {
				assert_non_null(strstr(w.log.text, first ? "of 1 for 4: time 2310-4500 one x1"
									 : "of 1 for 3: time 2310-4000 one x1"));
				assert_non_null(strstr(w.log.text, first ? " two x1" : " two x1"));
				assert_null(strstr(w.log.text, "upper bound"));
			}
			agents_free(w.t);
			tlog_free(&w.log);
		}
}

/* A request of MCP by the agent itself is what ran, whatever prefix the tool is offered under. */
static void test_mcp_tool(void **state)
{
	struct world w;
	struct call c;
	struct agent_rpc rpc = {
		.proc = {.tgid = 100, .start_ns = 1}, .name = "search", .at = {2400 * MS, 2900 * MS}, .is_error = true};

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "mcp__docs__search");
	add_tool(&c, "t2", "research"); /* another tool, that ends in the same letters */
	push_call(&w, &c);
	agents_push_rpc(w.t, &rpc);
	rpc.proc.tgid = 7;
	agents_push_rpc(w.t, &rpc); /* somebody else's */
	begin_call(&c, 2, 5000);
	add_result(&c, "t1", NULL, 10);
	add_result(&c, "t2", NULL, 20);
	set(&c.tool_durations, "mcp__docs__search=600, research=1500");
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool mcp__docs__search of 1 for 2: mcp 2400-2900 - x0 code 0 10 bytes\n"
			"tool research of 1 for 2: client 2210-3710 - x0 code 0 20 bytes\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 2: first_token=400 generation=2020 tool=1500 "
			"agent_gap=1290\n");
}

static void test_sub_agent_by_id(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t0", "Read");
	add_tool(&c, "t1", "Agent");
	push_call(&w, &c);
	begin_call(&c, 2, 2300);
	c.class = CALL_SUBAGENT;
	set(&c.agent_id, "sub-1");
	set(&c.agent_name, "Explore");
	assert_int_equal(push_call(&w, &c).agent, 1);
	begin_call(&c, 3, 5000);
	add_result(&c, "t1", NULL, 9);
	assert_int_equal(push_call(&w, &c).agent, 0);
	assert_int_equal(agents_count(w.t), 2);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"agent 1 parent 0 Explore by call 1\n"
			"tool Read of 1 for 0: upper bound 2210-5000 - x0 code 0 -1 bytes\n"
			"tool Agent of 1 for 3: upper bound 2210-5000 - x0 code 0 9 bytes\n"
			"turn 2 of 1 2300-3510 complete steps 1 tools 0: first_token=200 generation=1010\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 2: first_token=600 generation=3030 "
			"agent_gap=1580\n");
}

static void add_task(struct call *c, const char *id, uint64_t asks)
{
	add_tool(c, id, "Task");
	c->tools[c->tool_count - 1].asks = asks;
}

static void test_sub_agent_by_time(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_plain(&c, 1, 1000, 11);
	add_tool(&c, NULL, "research");
	push_call(&w, &c);
	begin_plain(&c, 2, 2300, 22);
	assert_int_equal(push_call(&w, &c).agent, 1);
	begin_plain(&c, 3, 5000, 11);
	add_result(&c, NULL, "research", 5);
	assert_int_equal(push_call(&w, &c).agent, 0);
	begin_plain(&c, 4, 7000, 33); /* nobody waits: another conversation of the same agent */
	assert_int_equal(push_call(&w, &c).agent, 0);
	agents_finish(w.t, 20000 * MS);
	close_world(&w,
		    "agent 0 parent -1 - by call 0\n"
		    "agent 1 parent 0 by time - by call 1\n"
		    "tool research of 1 for 3: upper bound 2210-5000 - x0 code 0 5 bytes\n"
		    "turn 2 of 1 2300-3510 complete steps 1 tools 0: first_token=200 generation=1010\n"
		    "turn 1 of 0 1000-6210 complete steps 2 tools 1: first_token=600 generation=3030 agent_gap=1580\n"
		    "turn 3 of 0 7000-8210 complete steps 1 tools 0: first_token=200 generation=1010\n");
}

/* The tool returns at once; the sub-agent's first call ends after the next step of its parent, and its work goes on
 * beyond the turn. */
static void test_sub_agent_that_goes_on(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Agent");
	push_call(&w, &c);
	begin_call(&c, 2, 2260);
	add_result(&c, "t1", NULL, 9);
	push_call(&w, &c);
	agents_tick(w.t, 3480 * MS, 2300 * MS);
	begin_call(&c, 3, 2300);
	c.class = CALL_SUBAGENT;
	set(&c.agent_id, "sub-1");
	push_call(&w, &c);
	agents_tick(w.t, 9000 * MS, UNKNOWN_NS);
	tlog_printf(&w.log, "past\n");
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"agent 1 parent 0 - by call 1\n"
			"turn 1 of 0 1000-3470 complete steps 2 tools 1: first_token=400 generation=2020 agent_gap=50\n"
			"turn 2 of 1 2300-3510 complete steps 1 tools 0: first_token=200 generation=1010\n"
			"tool Agent of 1 for 2: upper bound 2210-2260 - x0 code 0 9 bytes\n"
			"past\n");
}

/* Three sub-agents at once, whose first calls overlap and come in any order. Whose is whose their prompts say; what
 * they do not say is not told, unless nothing else is left. */
static void test_whose_prompt(void **state)
{
	static const struct {
		uint64_t asks[3], opens[3];
		unsigned by[3]; /* number of the tool, from 1; 0: not told */
	} rows[] = {
		{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}, {{1, 2, 3}, {3, 1, 2}, {3, 1, 2}},
		{{1, 2, 2}, {1, 2, 2}, {1, 0, 0}}, /* the same prompt twice */
		{{0, 0, 0}, {1, 2, 3}, {0, 0, 0}}, /* the arguments were lost */
		{{1, 2, 3}, {0, 0, 0}, {0, 0, 0}}, /* the first messages are not known */
		{{1, 2, 3}, {7, 8, 9}, {0, 0, 0}}, /* the client wraps them */
	};
	static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

	(void)state;
	for (size_t row = 0; row < ARRAY_SIZE(rows); row++)
		for (size_t order = 0; order < ARRAY_SIZE(orders); order++)
			for (int named = 0; named < 2; named++) {
				struct world w;
				struct call c;

				open_world(&w);
				w.spawned[1] = w.spawned[2] = w.spawned[3] = 0;
				begin_plain(&c, 1, 1000, 11);
				for (unsigned i = 0; i < 3; i++)
					add_task(&c, i == 0 ? "p1" : i == 1 ? "p2" : "p3", rows[row].asks[i]);
				push_call(&w, &c);
				for (unsigned i = 0; i < 3; i++) {
					unsigned sub = orders[order][i];

					begin_plain(&c, 2 + i, 2300 + sub, 100 + sub);
					c.opening[1] = rows[row].opens[sub];
					c.opening[0] = 55; /* another text of the first message */
					if (named) {
						c.class = CALL_SUBAGENT;
						set(&c.agent_id, sub == 0 ? "s1" : sub == 1 ? "s2" : "s3");
					}
					assert_int_equal(push_call(&w, &c).agent, i + 1);
				}
				begin_plain(&c, 9, 6000, 11);
				add_result(&c, "p1", NULL, 1);
				push_call(&w, &c);
				agents_finish(w.t, 20000 * MS);
				for (unsigned i = 0; i < 3; i++) {
					unsigned sub = orders[order][i], by = rows[row].by[sub];

					for (unsigned tool = 1; tool <= 3; tool++)
						assert_true((w.spawned[tool] == i + 1) == (tool == by));
				}
				/* Which answer asked for them is known all the same. */
				assert_non_null(strstr(w.log.text, "agent 3 parent 0"));
				assert_non_null(strstr(w.log.text, "agent 2 parent 0"));
				assert_null(strstr(w.log.text, "by call 0\nagent 3"));
				agents_free(w.t);
				tlog_free(&w.log);
			}
}

/* Two conversations of one process wait: whose sub-agent a third one is its prompt says, or nobody. */
static void test_whose_sub_agent(void **state)
{
	(void)state;
	for (int proof = 0; proof < 2; proof++)
		for (int first = 0; first < 2; first++) {
			struct world w;
			struct call c;

			open_world(&w);
			for (unsigned i = 0; i < 2; i++) {
				begin_plain(&c, 1 + i, 1000 + i, 11 + i);
				set(&c.session_id, (int)i == first ? "one" : "two");
				add_task(&c, (int)i == first ? "p1" : "p2", (int)i == first ? 1001 : 1002);
				push_call(&w, &c);
			}
			begin_plain(&c, 3, 2400, 33);
			c.opening[0] = proof ? 1001 : 7;
			push_call(&w, &c);
			if (proof)
				assert_non_null(strstr(w.log.text, first ? "agent 2 parent 1 by time"
									 : "agent 2 parent 0 by time"));
			else
				assert_non_null(strstr(w.log.text, "agent 2 parent -1 "));
			agents_free(w.t);
			tlog_free(&w.log);
		}
}

/* Processes of a sub-agent's tools are not its parent's; those of another conversation go to the one that asked last.
 */
static void test_whose_processes(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_plain(&c, 1, 1000, 11);
	add_task(&c, "p1", 1001);
	add_task(&c, "p2", 1002);
	push_call(&w, &c);
	begin_plain(&c, 2, 2300, 22);
	c.opening[0] = 1001;
	add_tool(&c, "a", "Bash");
	push_call(&w, &c); /* ends at 3510 */
	begin_plain(&c, 3, 2400, 33);
	c.opening[0] = 1002;
	add_tool(&c, "b", "Bash");
	push_call(&w, &c); /* ends at 3610 */
	push_proc(&w, 101, 100, "first", NULL, 3520, 4000, 0);
	push_proc(&w, 102, 100, "second", NULL, 3620, 4300, 0);
	begin_plain(&c, 4, 4100, 22);
	add_result(&c, "a", NULL, 1);
	push_call(&w, &c);
	begin_plain(&c, 5, 4400, 33);
	add_result(&c, "b", NULL, 1);
	push_call(&w, &c);
	begin_plain(&c, 6, 6000, 11);
	add_result(&c, "p1", NULL, 1);
	add_result(&c, "p2", NULL, 1);
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"agent 1 parent 0 by time - by call 1\n"
			"agent 2 parent 0 by time - by call 1\n"
			"tool Bash of 2 for 4: time 3520-4000 first x1 code 0 1 bytes\n"
			"tool Bash of 3 for 5: time 3620-4300 second x1 code 0 1 bytes\n"
			"tool Task of 1 for 6: upper bound 2210-6000 - x0 code 0 1 bytes\n"
			"tool Task of 1 for 6: upper bound 2210-6000 - x0 code 0 1 bytes\n"
			"turn 2 of 1 2300-5310 complete steps 2 tools 1: first_token=400 generation=2020 tool=480 "
			"agent_gap=110\n"
			"turn 3 of 2 2400-5610 complete steps 2 tools 1: first_token=400 generation=2020 tool=680 "
			"agent_gap=110\n"
			"turn 1 of 0 1000-7210 complete steps 2 tools 2: first_token=1100 generation=4140 tool=490 "
			"agent_gap=480\n");
}

/* Claude Code's first shell: the environment, a snapshot of the shell, and then what was asked for. */
static void test_longest_process(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "a", "Bash");
	push_call(&w, &c); /* ends at 2210 */
	push_proc(&w, 101, 100, "env", NULL, 2220, 2235, 0);
	push_proc(&w, 102, 100, "bash", NULL, 2240, 2290, 0);
	push_proc(&w, 103, 100, "make", NULL, 2310, 2740, 2);
	push_proc(&w, 104, 100, "hook", NULL, 2750, 2760, 0);
	begin_call(&c, 2, 2800);
	add_result(&c, "a", NULL, 1);
	push_call(&w, &c);
	agents_finish(w.t, 5000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Bash of 1 for 2: time 2220-2760 make x4 code 2 1 bytes\n"
			"turn 1 of 0 1000-4010 complete steps 2 tools 1: first_token=400 generation=2020 tool=540 "
			"agent_gap=50\n");
}

/* opencode: a sub-agent is a session of its own that names its parent's. */
static void test_sub_agent_by_session(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	set(&c.session_id, "ses-1");
	add_tool(&c, "t1", "task");
	push_call(&w, &c);
	begin_call(&c, 2, 2300);
	c.class = CALL_SUBAGENT;
	set(&c.session_id, "ses-2");
	set(&c.parent_agent_id, "ses-1");
	push_call(&w, &c);
	agents_finish(w.t, 4000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"agent 1 parent 0 - by call 1\n"
			"tool task of 1 for 0: upper bound 2210-4000 - x0 code 0 -1 bytes\n"
			"turn 2 of 1 2300-3510 complete steps 1 tools 0: first_token=200 generation=1010\n"
			"turn 1 of 0 1000-2210 steps 1 tools 1: first_token=200 generation=1010\n");
}

/* What an agent waits for ends with it, and so does the run with its last agent. */
static void test_agent_ends(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	push_call(&w, &c);
	begin_call(&c, 2, 5000);
	add_tool(&c, "t1", "Bash");
	push_call(&w, &c);
	push_proc(&w, 101, 100, "server", NULL, 6300, 0, 0);
	push_proc(&w, 100, 1, "agent", NULL, 0, 7000, 0);
	agents_tick(w.t, 9000 * MS, UNKNOWN_NS);
	agents_tick(w.t, 60000 * MS, UNKNOWN_NS);
	assert_int_equal(agents_run(w.t, 90000 * MS, &run), 0);
	log_wall(&w.log, &run.wall);
	assert_int_equal(run.wall.total_ns, 6000 * MS);
	tlog_printf(&w.log, "\n");
	begin_call(&c, 3, 100000); /* the session goes on in another process */
	c.conn.tgid = 200;
	push_call(&w, &c);
	assert_int_equal(agents_run(w.t, 101210 * MS, &run), 0);
	log_wall(&w.log, &run.wall);
	agents_finish(w.t, 101210 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Bash of 2 for 0: time 6300-7000 server x1 code 0 running -1 bytes\n"
			"turn 1 of 0 1000-2210 complete steps 1 tools 0: first_token=200 generation=1010\n"
			"turn 2 of 0 5000-6210 steps 1 tools 1: first_token=200 generation=1010\n"
			" first_token=400 generation=2020 tool=700 agent_gap=90 user=2790\n"
			" first_token=600 generation=3030 tool=700 agent_gap=90 user=2790 unknown=93000"
			"turn 3 of 0 100000-101210 complete steps 1 tools 0: first_token=200 generation=1010\n");
}

/* The tool itself is an agent: a process that makes calls while its ancestor waits for it. */
static void test_sub_agent_in_a_child(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Bash");
	push_call(&w, &c);
	push_proc(&w, 101, 100, "bash", NULL, 2250, 0, 0);
	push_proc(&w, 102, 101, "helper", NULL, 2260, 0, 0);
	begin_plain(&c, 2, 2300, 5);
	set(&c.model, "slow-model");
	c.first_token_ns = 3000 * MS;
	c.conn.tgid = 102;
	c.conn.start_ns = 2260 * MS;
	push_call(&w, &c);
	push_proc(&w, 101, 100, "bash", NULL, 2250, 4000, 0);
	begin_call(&c, 3, 5000);
	add_result(&c, "t1", NULL, 9);
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	assert_string_equal(w.model, "64 % slow-model"); /* that its child waited for */
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"agent 1 parent 0 by time - by call 1\n"
			"tool Bash of 1 for 3: time 2250-4000 bash x1 code 0 9 bytes\n"
			"turn 2 of 1 2300-3510 complete steps 1 tools 0: first_token=700 generation=510\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 1: first_token=1100 generation=2530 tool=540 "
			"agent_gap=1040\n");
}

static void test_retry_and_helpers(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.status = 529;
	set(&c.error, "overloaded_error");
	c.first_token_ns = UNKNOWN_NS;
	push_call(&w, &c);
	begin_call(&c, 2, 1100);
	c.class = CALL_AUX;
	assert_int_equal(push_call(&w, &c).turn, 0);
	begin_call(&c, 3, 3000);
	c.retry_of = 1;
	c.retry_wait_ns = 790 * (int64_t)MS;
	assert_int_equal(push_call(&w, &c).turn, 1);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"turn 1 of 0 1000-4210 complete steps 2 tools 0: first_token=1410 generation=1010 "
			"retry_wait=790\n");
}

/* Two conversations with the same prompts at the same time, without any id. */
static void test_twins(void **state)
{
	static const struct {
		uint64_t begin_ms;
		int64_t messages;
		bool results, tools;
	} steps[] = {{1000, 2, false, true}, {1100, 2, false, true}, {3000, 4, true, true},  {3300, 4, true, true},
		     {5000, 6, true, false}, {5200, 6, true, false}, {9000, 2, false, false}};
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		begin_plain(&c, 1 + i, steps[i].begin_ms, 11);
		c.request.messages = steps[i].messages;
		if (steps[i].results)
			add_result(&c, NULL, "Read", 1);
		if (steps[i].tools)
			add_tool(&c, NULL, "Read");
		push_call(&w, &c);
	}
	agents_finish(w.t, 12000 * MS);
	close_world(&w,
		    "agent 0 parent -1 - by call 0\n"
		    "tool Read of 1 for 3: upper bound 2210-3000 - x0 code 0 1 bytes\n"
		    "tool Read of 2 for 4: upper bound 2310-3300 - x0 code 0 1 bytes\n"
		    "tool Read of 3 for 5: upper bound 4210-5000 - x0 code 0 1 bytes\n"
		    "tool Read of 4 for 6: upper bound 4510-5200 - x0 code 0 1 bytes\n"
		    "turn 1 of 0 1000-6210 complete steps 3 tools 2: first_token=600 generation=3030 agent_gap=1580\n"
		    "turn 2 of 0 1100-6410 complete steps 3 tools 2: first_token=600 generation=3030 agent_gap=1680\n"
		    "turn 3 of 0 9000-10210 complete steps 1 tools 0: first_token=200 generation=1010\n");
}

/* A person breaks off, and asks something else later; a request too long to be read to its end goes on with the turn.
 */
static void test_broken_off(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.request.messages = 3;
	add_tool(&c, "t1", "Read");
	push_call(&w, &c);
	begin_call(&c, 2, 3000);
	c.trigger = CALL_TRIGGER_UNKNOWN;
	c.end = END_CLIENT_ABORT;
	c.request.messages = 5;
	assert_int_equal(push_call(&w, &c).turn, 1);
	agents_tick(w.t, 9000 * MS, UNKNOWN_NS);
	begin_call(&c, 3, 10000);
	c.request.messages = 7;
	assert_int_equal(push_call(&w, &c).turn, 2);
	agents_finish(w.t, 11210 * MS);
	assert_int_equal(agents_run(w.t, 11210 * MS, &run), 0);
	log_wall(&w.log, &run.wall);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Read of 1 for 0: upper bound 2210-3000 - x0 code 0 -1 bytes\n"
			"turn 1 of 0 1000-4210 steps 2 tools 1: first_token=400 generation=2020 agent_gap=790\n"
			"turn 2 of 0 10000-11210 complete steps 1 tools 0: first_token=200 generation=1010\n"
			" first_token=600 generation=3030 agent_gap=790 user=5790");
}

/* Ids of tool calls that are the same in every answer: the client's own ids say whose the result is. */
static void test_same_tool_ids(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	set(&c.session_id, "s");
	add_tool(&c, "call_1", "Task");
	push_call(&w, &c);
	begin_call(&c, 2, 2300);
	c.class = CALL_SUBAGENT;
	set(&c.session_id, "s");
	set(&c.agent_id, "x");
	add_tool(&c, "call_1", "Read");
	assert_int_equal(push_call(&w, &c).agent, 1);
	begin_call(&c, 3, 3700);
	c.class = CALL_SUBAGENT;
	set(&c.session_id, "s");
	set(&c.agent_id, "x");
	add_result(&c, "call_1", NULL, 1);
	assert_int_equal(push_call(&w, &c).agent, 1);
	begin_call(&c, 4, 5000);
	set(&c.session_id, "s");
	add_result(&c, "call_1", NULL, 1);
	assert_int_equal(push_call(&w, &c).agent, 0);
	agents_finish(w.t, 7000 * MS);
	agents_free(w.t);
	tlog_free(&w.log);
}

/* A stream that is reset after its last event: the answer is whole, and nothing was broken off. */
static void test_reset_when_whole(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.end = END_CLIENT_ABORT;
	c.whole = true;
	add_tool(&c, "t1", "Read");
	push_call(&w, &c);
	begin_call(&c, 2, 3000);
	add_result(&c, "t1", NULL, 1);
	c.end = END_CLIENT_ABORT;
	c.whole = true;
	assert_int_equal(push_call(&w, &c).turn, 1);
	agents_finish(w.t, 5000 * MS);
	close_world(&w,
		    "agent 0 parent -1 - by call 0\n"
		    "tool Read of 1 for 2: upper bound 2210-3000 - x0 code 0 1 bytes\n"
		    "turn 1 of 0 1000-4210 complete steps 2 tools 1: first_token=400 generation=2020 agent_gap=790\n");
}

/* Asked again with another body, of which nothing says that it is a retry. */
static void test_asked_again(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.request.messages = 3;
	c.status = 529;
	push_call(&w, &c);
	begin_call(&c, 2, 4000);
	c.request.messages = 3;
	assert_int_equal(push_call(&w, &c).turn, 1);
	begin_call(&c, 3, 7000);
	c.request.messages = 5;
	assert_int_equal(push_call(&w, &c).turn, 2);
	agents_finish(w.t, 9000 * MS);
	tlog_free(&w.log);
	close_world(&w, "");
}

static void test_two_sessions(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	for (uint64_t i = 0; i < 2; i++) {
		begin_call(&c, 1 + i, 1000 + i);
		set(&c.session_id, i ? "b" : "a");
		add_tool(&c, i ? "tb" : "ta", "Bash");
		push_call(&w, &c);
	}
	begin_call(&c, 3, 3000);
	set(&c.session_id, "b");
	add_result(&c, "tb", NULL, 1);
	push_call(&w, &c);
	begin_call(&c, 4, 4000);
	set(&c.session_id, "a"); /* the person went on without the tool */
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	close_world(&w,
		    "agent 0 parent -1 - by call 0\n"
		    "agent 1 parent -1 - by call 0\n"
		    "tool Bash of 2 for 3: upper bound 2211-3000 - x0 code 0 1 bytes\n"
		    "tool Bash of 1 for 0: upper bound 2210-4000 - x0 code 0 -1 bytes\n"
		    "turn 2 of 1 1001-4210 complete steps 2 tools 1: first_token=400 generation=2020 agent_gap=789\n"
		    "turn 1 of 0 1000-2210 steps 1 tools 1: first_token=200 generation=1010\n"
		    "turn 3 of 0 4000-5210 complete steps 1 tools 0: first_token=200 generation=1010\n");
}

static void test_run(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.srtt_us = 90000; /* with a late acknowledgement */
	c.rtt_min_us = 50000;
	c.stall_at = calloc(1, sizeof(*c.stall_at));
	c.stall_at[c.stall_count++] = (struct interval){1500 * MS, 1800 * MS};
	c.late_at = calloc(1, sizeof(*c.late_at));
	c.late_at[c.late_count++] = (struct interval){1900 * MS, 1950 * MS};
	add_setup(&c);
	push_call(&w, &c);
	for (uint64_t now = 2500; now <= 60000; now += 500)
		agents_tick(w.t, now * MS, UNKNOWN_NS);
	assert_int_equal(agents_run(w.t, 61000 * MS, &run), 0);
	log_wall(&w.log, &run.wall);
	tlog_printf(&w.log, "\n");
	begin_call(&c, 2, 61000);
	push_call(&w, &c);
	agents_finish(w.t, 65000 * MS);
	assert_int_equal(agents_run(w.t, 65000 * MS, &run), 0);
	assert_int_equal(run.wall.total_ns, (65000 - 954) * MS);
	log_wall(&w.log, &run.wall);
	tlog_printf(&w.log, "\n");
	close_world(
		&w,
		"agent 0 parent -1 - by call 0\n"
		"turn 1 of 0 954-2210 complete steps 1 tools 0: connect=45 network=50 first_token=150 "
		"generation=660 stall=300 client=50 unknown=1\n"
		" connect=45 network=50 first_token=150 generation=660 stall=300 client=50 user=57790 "
		"unknown=1001\n"
		"turn 2 of 0 61000-62210 complete steps 1 tools 0: first_token=200 generation=1010\n"
		" connect=45 network=50 first_token=350 generation=1670 stall=300 client=50 user=61580 unknown=1\n");
}

/* Attached to in its middle, or with holes: which phase of a call took how long nobody knows, and says so. */
static void test_phases_not_seen(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.mid_attach = true;
	c.first_token_ns = c.first_visible_ns = c.ttfb_ns = UNKNOWN_NS;
	c.seen_token_ns = 1210 * MS; /* from then on it wrote, to the last one */
	c.last_token_ns = 2110 * MS;
	push_call(&w, &c);
	begin_call(&c, 2, 3000);
	c.lossy = true; /* the head came after 100 ms, then bytes are missing */
	c.first_token_ns = c.first_visible_ns = UNKNOWN_NS;
	c.seen_token_ns = 3310 * MS;
	c.last_token_ns = 4010 * MS;
	push_call(&w, &c);
	begin_call(&c, 3, 5000);
	c.undecoded = strdup("br");
	c.first_token_ns = c.first_visible_ns = c.ttfb_ns = UNKNOWN_NS;
	push_call(&w, &c);
	begin_call(&c, 4, 7000); /* one that failed was waited for to its end */
	c.first_token_ns = c.first_visible_ns = UNKNOWN_NS;
	push_call(&w, &c);
	agents_finish(w.t, 9000 * MS);
	assert_int_equal(agents_run(w.t, 9000 * MS, &run), 0);
	assert_int_equal(run.wall.part_ns[PART_FIRST_TOKEN], 100 * MS + 1210 * MS);
	assert_int_equal(run.wall.part_ns[PART_GENERATION], (900 + 700) * MS);
	assert_in_range(run.wall.part_ns[PART_UNKNOWN], (310 + 410 + 1210) * MS, (310 + 410 + 1210 + 10) * MS);
	agents_free(w.t);
	tlog_free(&w.log);
}

/* Which tool took longest is told of what was seen to run: a question to the user, or a tool inside the agent, may have
 * waited for anything, and its time is no tool's. */
static void test_longest_tool(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "a", "AskUserQuestion");
	push_call(&w, &c);
	begin_call(&c, 2, 60000);
	add_result(&c, "a", NULL, 1);
	add_tool(&c, "b", "Bash");
	push_call(&w, &c);
	assert_int_equal(agents_run(w.t, 61500 * MS, &run), 0);
	assert_int_equal(run.tools, 1);
	assert_string_equal(run.top_tool.name, "");
	push_proc(&w, 200, 100, "npm", NULL, 61300, 62300, 0);
	begin_call(&c, 3, 62500);
	add_result(&c, "b", NULL, 1);
	push_call(&w, &c);
	agents_finish(w.t, 64000 * MS);
	assert_int_equal(agents_run(w.t, 64000 * MS, &run), 0);
	assert_int_equal(run.tools, 2);
	assert_int_equal(run.wall.part_ns[PART_TOOL], 1000 * MS);
	assert_string_equal(run.top_tool.name, "Bash");
	assert_string_equal(run.top_tool.program, "npm");
	assert_true(run.tool_share == 1);
	tlog_free(&w.log);
	close_world(&w, "");
}

/* More conversations than are told apart: the oldest makes room; where it was not over, that is counted. */
static void test_too_many(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	for (uint64_t i = 0; i <= AGENTS_LANES_MAX + 1; i++) {
		begin_plain(&c, 1 + i, 1000 + i, 1 + i);
		if (i != 1)
			add_tool(&c, "t", "Bash");
		push_call(&w, &c);
		assert_int_equal(w.lost.n[LOST_NO_MEMORY], i >= AGENTS_LANES_MAX);
	}
	w.lost.n[LOST_NO_MEMORY] = 0;
	tlog_free(&w.log);
	close_world(&w, "");
}

/* A day: bounded memory, and the parts still add up. */
static void test_day(void **state)
{
	struct world w;
	struct call c;
	struct agents_run run;
	uint64_t at = 1000;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	for (uint64_t i = 0; i < 5000; i++, at += 5000) {
		begin_call(&c, 1 + i, at);
		if (i)
			add_result(&c, "t", NULL, 1);
		add_tool(&c, "t", "Bash");
		push_call(&w, &c);
		for (uint32_t k = 0; k < 4; k++)
			push_proc(&w, 1000 + (uint32_t)(i * 4 + k) % 30000, 100, "sh", NULL, at + 1300 + k * 500,
				  at + 1800 + k * 500, 0);
		agents_tick(w.t, (at + 4000) * MS, UNKNOWN_NS);
	}
	agents_finish(w.t, at * MS);
	assert_int_equal(agents_run(w.t, at * MS, &run), 0);
	assert_int_equal(run.steps, 5000);
	assert_int_equal(run.tools, 5000);
	assert_int_equal(run.wall.total_ns, (at - 1000) * MS);
	assert_int_equal(run.wall.part_ns[PART_TOOL], 5000ull * 2000 * MS);
	assert_int_equal(run.wall.part_ns[PART_FIRST_TOKEN], 5000ull * 200 * MS);
	assert_int_equal(run.wall.pushed_late_ns, 0);
	assert_string_equal(run.top_tool.name, "Bash");
	tlog_free(&w.log);
	close_world(&w, "");
}

static void push_everything(struct world *w, const struct call calls[2])
{
	struct agent_place place;

	push_proc(w, 100, 1, "agent", NULL, 0, 0, 0);
	agents_push_call(w->t, &calls[0], NULL, &place);
	push_proc(w, 101, 100, "bash", NULL, 2300, 4300, 3);
	agents_push_call(w->t, &calls[1], NULL, &place);
	agents_tick(w->t, 7000 * MS, UNKNOWN_NS);
	agents_finish(w->t, 8000 * MS);
}

/* Its own processor time between two calls is the client's; not another process's, and not where it mostly waited. */
static void test_busy_agent(void **state)
{
	const struct proc_key agent = {.tgid = 100, .start_ns = 1}, other = {.tgid = 101, .start_ns = 1};
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	c.conn.start_ns = 1;
	add_tool(&c, "t1", "Edit");
	push_call(&w, &c);
	for (uint64_t ms = 2000; ms < 5000; ms += 250) {
		const struct interval at = {ms * MS, (ms + 250) * MS};

		agents_tick(w.t, (ms + 240) * MS, UNKNOWN_NS);
		agents_push_cpu(w.t, &agent, &at, ms < 3000 ? 125 * MS : ms < 4000 ? 124 * MS : 400 * MS);
		agents_push_cpu(w.t, &other, &at, 250 * MS);
	}
	agents_push_cpu(w.t, &agent, &(const struct interval){2000 * MS, 5000 * MS}, 3000 * MS); /* too long ago */
	begin_call(&c, 2, 5000);
	c.conn.start_ns = 1;
	add_result(&c, "t1", NULL, 99);
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	/* The first call is over at 2210. */
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Edit of 1 for 2: upper bound 2210-5000 - x0 code 0 99 bytes\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 1: first_token=400 generation=2020 client=1499 "
			"agent_gap=1291\n");
}

/* Work begins and ends inside of the stretches that are told. */
static void test_busy_from_to(void **state)
{
	static const struct {
		uint64_t end_ms, busy_ms;
	} loads[] = {{2250, 0}, {2500, 190}, {2750, 250}, {3000, 249}, {3250, 251}, {3500, 130}, {3750, 20}, {4000, 0}};
	const struct proc_key agent = {.tgid = 100, .start_ns = 1};
	uint64_t begin_ms = 2000;
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	c.conn.start_ns = 1;
	add_tool(&c, "t1", "Edit");
	push_call(&w, &c);
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		agents_push_cpu(w.t, &agent, &(const struct interval){begin_ms * MS, loads[i].end_ms * MS},
				loads[i].busy_ms * MS);
		begin_ms = loads[i].end_ms;
	}
	begin_call(&c, 2, 5000);
	c.conn.start_ns = 1;
	add_result(&c, "t1", NULL, 99);
	push_call(&w, &c);
	agents_finish(w.t, 20000 * MS);
	close_world(&w, "agent 0 parent -1 - by call 0\n"
			"tool Edit of 1 for 2: upper bound 2210-5000 - x0 code 0 99 bytes\n"
			"turn 1 of 0 1000-6210 complete steps 2 tools 1: first_token=400 generation=2020 client=1070 "
			"agent_gap=1720\n");
}

struct shown_agents {
	unsigned count, first, last;
};

static void show_agent(void *ctx, const struct agent *a)
{
	struct shown_agents *shown = ctx;

	assert_true(!shown->count || a->index > shown->last);
	shown->first = shown->count++ ? shown->first : a->index;
	shown->last = a->index;
}

/* Of a day's short-lived processes only the latest are remembered; who is at work keeps its place. */
static void test_many_agents(void **state)
{
	const unsigned ended = 3 * AGENTS_MAX;
	struct shown_agents shown = {0};
	struct agents_run run;
	struct agent_place place;
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	push_proc(&w, 100, 1, "agent", NULL, 0, 0, 0);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Bash");
	assert_int_equal(push_call(&w, &c).agent, 0);
	for (unsigned i = 1; i <= ended; i++) {
		begin_plain(&c, 1 + i, 10000 * i, 5);
		c.conn.tgid = 1000 + i;
		c.conn.start_ns = 10000 * i * MS;
		place = push_call(&w, &c);
		assert_int_equal(place.agent, i);
		assert_true(place.first);
		push_proc(&w, 1000 + i, 1, "curl", NULL, 10000 * i, 10000 * i + 3000, 0);
		agents_tick(w.t, (10000 * i + 5000) * MS, UNKNOWN_NS);
	}
	assert_int_equal(agents_count(w.t), ended + 1);
	agents_each(w.t, show_agent, &shown);
	assert_int_equal(shown.count, AGENTS_MAX);
	assert_int_equal(shown.first, 0);
	assert_int_equal(shown.last, ended);
	tlog_free(&w.log);
	begin_call(&c, ended + 2, 10000 * (ended + 1));
	add_result(&c, "t1", NULL, 99);
	place = push_call(&w, &c);
	assert_int_equal(place.agent, 0);
	assert_int_equal(place.turn, 1);
	agents_finish(w.t, 10000 * (ended + 2) * MS);
	assert_non_null(strstr(w.log.text, "turn 1 of 0 1000-"));
	assert_int_equal(agents_run(w.t, 10000 * (ended + 2) * MS, &run), 0);
	assert_int_equal(run.turns, ended + 1);
	tlog_free(&w.log);
	close_world(&w, "");
}

/* Sub-agents of a process that goes on: those with nothing open make room, and the turn that waits for one is told. */
static void test_many_sub_agents(void **state)
{
	const unsigned subs = AGENTS_MAX + 10;
	struct shown_agents shown = {0};
	struct world w;
	struct call c;
	char id[16];

	(void)state;
	open_world(&w);
	begin_call(&c, 1, 1000);
	add_tool(&c, "t1", "Agent");
	push_call(&w, &c);
	for (unsigned i = 1; i <= subs; i++) {
		begin_call(&c, 1 + i, 2000 * i + 2000);
		c.class = CALL_SUBAGENT;
		snprintf(id, sizeof(id), "sub-%u", i);
		set(&c.agent_id, id);
		assert_int_equal(push_call(&w, &c).agent, i);
	}
	agents_each(w.t, show_agent, &shown);
	assert_int_equal(shown.count, AGENTS_MAX);
	assert_int_equal(shown.first, 0);
	begin_call(&c, subs + 2, 2000 * subs + 5000);
	add_result(&c, "t1", NULL, 9);
	assert_int_equal(push_call(&w, &c).turn, 1);
	agents_finish(w.t, 2000 * subs * MS + 20000 * MS);
	tlog_free(&w.log);
	close_world(&w, "");
}

/* All of them wait for their tools: there is no room, and who comes later counts with the last one. */
static void test_busy_agents(void **state)
{
	struct world w;
	struct call c;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < AGENTS_MAX + 2; i++) {
		begin_plain(&c, 1 + i, 1000, 5);
		c.conn.tgid = 1000 + i;
		add_tool(&c, "t", "Bash");
		assert_int_equal(push_call(&w, &c).agent, i < AGENTS_MAX ? i : AGENTS_MAX - 1);
	}
	assert_int_equal(agents_count(w.t), AGENTS_MAX);
	agents_finish(w.t, 20000 * MS);
	tlog_free(&w.log);
	close_world(&w, "");
}

static void test_no_memory(void **state)
{
	const struct agents_sink sink = {0};
	struct call calls[2];
	bool hit = true;

	(void)state;
	begin_call(&calls[0], 1, 1000);
	add_tool(&calls[0], "t1", "Bash");
	begin_call(&calls[1], 2, 5000);
	add_result(&calls[1], "t1", NULL, 99);
	for (unsigned n = 1; hit && n < 200; n++) {
		struct world w = {0};

		fail_nth(n);
		w.t = agents_new(&w.lost, &sink);
		if (w.t)
			push_everything(&w, calls);
		hit = fail_nth_hit();
		fail_nth(0);
		agents_free(w.t);
	}
	assert_false(hit);
	call_release(&calls[0]);
	call_release(&calls[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turn_with_a_tool),
		cmocka_unit_test(test_long_tool),
		cmocka_unit_test(test_many_helpers),
		cmocka_unit_test(test_parallel_tools),
		cmocka_unit_test(test_tools_in_a_row),
		cmocka_unit_test(test_whose_shell),
		cmocka_unit_test(test_mcp_tool),
		cmocka_unit_test(test_sub_agent_by_id),
		cmocka_unit_test(test_sub_agent_by_time),
		cmocka_unit_test(test_sub_agent_that_goes_on),
		cmocka_unit_test(test_sub_agent_by_session),
		cmocka_unit_test(test_whose_processes),
		cmocka_unit_test(test_whose_prompt),
		cmocka_unit_test(test_whose_sub_agent),
		cmocka_unit_test(test_longest_process),
		cmocka_unit_test(test_agent_ends),
		cmocka_unit_test(test_sub_agent_in_a_child),
		cmocka_unit_test(test_retry_and_helpers),
		cmocka_unit_test(test_twins),
		cmocka_unit_test(test_broken_off),
		cmocka_unit_test(test_reset_when_whole),
		cmocka_unit_test(test_same_tool_ids),
		cmocka_unit_test(test_asked_again),
		cmocka_unit_test(test_two_sessions),
		cmocka_unit_test(test_run),
		cmocka_unit_test(test_phases_not_seen),
		cmocka_unit_test(test_longest_tool),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_day),
		cmocka_unit_test(test_busy_agent),
		cmocka_unit_test(test_busy_from_to),
		cmocka_unit_test(test_many_agents),
		cmocka_unit_test(test_many_sub_agents),
		cmocka_unit_test(test_busy_agents),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
