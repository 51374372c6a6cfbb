/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "exchange_rig.h"

#include "flow/agent/agents.h"
#include "flow/llm/beside.h"

/* From HTTP to turns: exchanges, those that wait for their class, agents. */
struct house {
	struct rig rig;
	struct beside *beside;
	struct agents *agents;
	struct tlog log; /* classes in the order in which they are told, then turns */
};

static void on_settled(void *ctx, const struct call *c)
{
	struct house *h = ctx;
	struct agent_place place;

	tlog_printf(&h->log, "%s %s\n", c->path, call_class_name(c->class));
	agents_push_call(h->agents, c, NULL, &place);
}

static void on_load(void *ctx, const struct proc_key *process, const struct interval *at, uint64_t busy_ns)
{
	tlog_printf(&((struct house *)ctx)->log, "%u busy %llu of %llu\n", process->tgid, (unsigned long long)busy_ns,
		    (unsigned long long)(at->end_ns - at->begin_ns));
}

static void on_ended(void *ctx, const struct call *c)
{
	beside_push(((struct house *)ctx)->beside, c);
}

static void on_main(void *ctx, const struct proc_key *process)
{
	beside_main(((struct house *)ctx)->beside, process);
}

static void on_turn(void *ctx, const struct turn *t)
{
	tlog_printf(&((struct house *)ctx)->log, "turn of %u steps\n", t->steps);
}

static bool house_try(struct house *h)
{
	const struct exchange_sink sink = {h, on_ended, on_main};
	const struct beside_sink settled = {h, on_settled, on_load};
	const struct agents_sink agents = {.ctx = h, .on_turn = on_turn};

	*h = (struct house){.rig = {.conn = conn_default()}};
	h->rig.table = exchanges_new(&default_config, &h->rig.lost, &sink);
	h->beside = beside_new(&h->rig.lost, &settled);
	h->agents = agents_new(&h->rig.lost, &agents);
	if (!h->rig.table || !h->beside || !h->agents)
		return false;
	h->rig.flow = exchanges_conn_new(h->rig.table, &h->rig.conn);
	if (!h->rig.flow)
		return false;
	h->rig.http = exchanges_http_sink(h->rig.flow);
	return true;
}

static void house_open(struct house *h)
{
	assert_true(house_try(h));
}

static void house_finish(struct house *h)
{
	beside_finish(h->beside);
	agents_finish(h->agents, AT(60000).ts_ns);
}

static void house_close(struct house *h)
{
	rig_close(&h->rig);
	beside_free(h->beside);
	agents_free(h->agents);
	tlog_free(&h->log);
}

#define TITLE  "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Name this.\"}]}"
#define MAIN   "{\"model\":\"m\",\"tools\":[{}],\"messages\":[{\"role\":\"user\",\"content\":\"Do it.\"}]}"
#define PARTS  4
#define TITLES "/v1/chat/completions?alt=title"
#define MAINS  "/v1/chat/completions?alt=main"

/* One of the four parts of an exchange: head, rest of the request, head of the answer, end. */
static void play(struct house *h, uint64_t xid, const char *target, const char *body, unsigned part, uint64_t ms)
{
	struct rig *r = &h->rig;

	if (part == 0) {
		req_head(r, xid, "POST", target, HOST, ms);
	} else if (part == 1) {
		req_body(r, xid, body, ms);
		req_end(r, xid, 100, ms);
	} else if (part == 2) {
		resp_head(r, xid, 200, JSON, ms);
		resp(r, xid, "{\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"content\":\"x\"}}]}", ms);
	} else {
		resp_end(r, xid, 100, ms);
	}
	beside_tick(h->beside, AT(ms).ts_ns);
}

static void expect_log(struct house *h, const char *want)
{
	if (strcmp(h->log.text ? h->log.text : "", want))
		fail_msg("is:\n%s\nnot:\n%s", h->log.text, want);
}

/* In whichever order the parts of a title's call and of the conversation's first call come: one turn of one step. */
static void test_every_order(void **state)
{
	unsigned orders = 0;

	(void)state;
	for (unsigned order = 0; order < 1u << 2 * PARTS; order++) {
		struct house h;
		unsigned title = 0, main = 0;
		const char *first;

		if (__builtin_popcount(order) != PARTS) /* which parts are the title's */
			continue;
		house_open(&h);
		for (unsigned i = 0; i < 2 * PARTS; i++) {
			uint64_t ms = 10 * (i + 1);

			if (order >> i & 1)
				play(&h, 1, TITLES, TITLE, title++, ms);
			else
				play(&h, 2, MAINS, MAIN, main++, ms);
		}
		house_finish(&h);
		first = order >> (2 * PARTS - 1) & 1 ? "m" : "t";
		expect_log(&h, *first == 't' ? TITLES " aux\n" MAINS " main\nturn of 1 steps\n"
					     : MAINS " main\n" TITLES " aux\nturn of 1 steps\n");
		house_close(&h);
		orders++;
	}
	assert_int_equal(orders, 70);
}

/* None begins: it is a step, told when that is sure; later ones do not wait any more. */
static void test_no_session(void **state)
{
	struct house h;

	(void)state;
	house_open(&h);
	for (unsigned part = 0; part < PARTS; part++)
		play(&h, 1, TITLES, TITLE, part, 100 + part);
	expect_log(&h, "");
	assert_int_equal(beside_first_ns(h.beside), AT(100).ts_ns);
	beside_tick(h.beside, AT(2099).ts_ns);
	expect_log(&h, "");
	beside_tick(h.beside, AT(2100).ts_ns);
	expect_log(&h, TITLES " main\n");
	assert_true(beside_first_ns(h.beside) == UNKNOWN_NS);
	for (unsigned part = 0; part < PARTS; part++)
		play(&h, 2, TITLES, TITLE, part, 2200 + part);
	expect_log(&h, TITLES " main\n" TITLES " main\n");
	/* what was told stays told */
	play(&h, 3, MAINS, MAIN, 0, 2300);
	play(&h, 3, MAINS, MAIN, 1, 2300);
	house_close(&h);
}

static void make(struct call *c, uint64_t id, uint32_t pid, uint64_t open_ms)
{
	call_init(c);
	c->id = id;
	c->conn = (struct conn_key){.tgid = pid, .start_ns = 1};
	c->path = strdup(id % 2 ? "odd" : "even");
	c->start_ns = AT(id).ts_ns;
	c->end_ns = AT(id + 1).ts_ns;
	c->class_open_ns = open_ms ? AT(open_ms).ts_ns : 0;
}

/* The calls of a process keep their order, others pass; a process that ends has no session any more. */
static void test_order(void **state)
{
	const struct proc_key gone = {.tgid = 7, .start_ns = 1};
	struct house h;
	struct call c;

	(void)state;
	house_open(&h);
	for (uint64_t id = 1; id <= 3; id++) {
		make(&c, id, id == 3 ? 8 : 7, id == 1 ? 1000 : 0);
		beside_push(h.beside, &c);
		call_release(&c);
	}
	for (unsigned tgid = 7; tgid <= 8; tgid++)
		beside_push_load(h.beside, &(struct proc_key){.tgid = tgid, .start_ns = 1},
				 &(struct interval){100, 350}, 200);
	expect_log(&h, "odd main\n8 busy 200 of 250\n"); /* of the other process */
	assert_int_equal(beside_first_ns(h.beside), AT(1).ts_ns);
	beside_gone(h.beside, &gone);
	expect_log(&h, "odd main\n8 busy 200 of 250\nodd main\neven main\n7 busy 200 of 250\n");
	house_close(&h);
}

static void push(struct house *h, uint64_t id, uint32_t pid, uint64_t open_ms)
{
	struct call c;

	make(&c, id, pid, open_ms);
	beside_push(h->beside, &c);
	call_release(&c);
}

/* Each is told when its own time is up, or that of one of its process before it, whichever came first. */
static void test_times(void **state)
{
	struct house h;

	(void)state;
	house_open(&h);
	push(&h, 1, 7, 300);
	push(&h, 2, 8, 100);
	beside_tick(h.beside, AT(99).ts_ns);
	expect_log(&h, "");
	beside_tick(h.beside, AT(100).ts_ns);
	expect_log(&h, "even main\n");
	push(&h, 4, 9, 200);
	push(&h, 3, 7, 250); /* behind the first of its process */
	beside_tick(h.beside, AT(299).ts_ns);
	expect_log(&h, "even main\neven main\n");
	beside_tick(h.beside, AT(300).ts_ns);
	expect_log(&h, "even main\neven main\nodd main\nodd main\n");
	push(&h, 5, 7, 400);
	beside_tick(h.beside, AT(400).ts_ns);
	expect_log(&h, "even main\neven main\nodd main\nodd main\nodd main\n");
	house_close(&h);
}

static void test_too_many(void **state)
{
	struct house h;
	struct call c;

	(void)state;
	house_open(&h);
	for (uint64_t id = 0; id < BESIDE_MAX; id++) {
		make(&c, id, 7, 5000);
		beside_push(h.beside, &c);
		call_release(&c);
	}
	expect_log(&h, "");
	make(&c, 9, 7, 5000);
	beside_push(h.beside, &c);
	call_release(&c);
	expect_log(&h, "even main\n");
	house_close(&h);
}

/* All that a call has is copied. */
static void push_full(struct house *h)
{
	struct call c;

	make(&c, 1, 7, 1000);
	c.text = strdup("words");
	c.text_len = 5;
	c.tools = calloc(1, sizeof(*c.tools));
	c.results = calloc(1, sizeof(*c.results));
	c.stall_at = calloc(1, sizeof(*c.stall_at));
	c.retransmit_at = calloc(1, sizeof(*c.retransmit_at));
	if (c.path && c.text && c.tools && c.results && c.stall_at && c.retransmit_at) {
		c.tool_count = c.result_count = c.stall_count = c.retransmit_count = 1;
		c.tools[0].name = strdup("Bash");
		c.results[0].id = strdup("t1");
		beside_push(h->beside, &c);
	}
	call_release(&c);
}

static void test_no_memory(void **state)
{
	bool hit = true;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		struct house h = {0};

		fail_nth(n);
		if (house_try(&h)) {
			push_full(&h);
			beside_finish(h.beside);
		}
		hit = fail_nth_hit();
		fail_nth(0);
		house_close(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_order), cmocka_unit_test(test_no_session), cmocka_unit_test(test_order),
		cmocka_unit_test(test_times),	    cmocka_unit_test(test_too_many),   cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
