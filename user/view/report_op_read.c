/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Operations and calls out of a trace's events. */
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "flow/op/op.h"
#include "report_op.h"

#define LANE_MAIN 1u /* of an agent itself; sub-agent N is LANE_MAIN + N */

struct text {
	uint32_t id;
	struct report_values ms; /* of an operation's name */
	UT_hash_handle hh;
	char text[]; /* hash key: whether it was chosen, and the text */
};

/* Of a process (tid 0) its name, of a track whose it is. */
struct track {
	uint64_t key; /* pid, tid */
	uint32_t name, lane;
	UT_hash_handle hh;
};

struct report_ops {
	struct report *r;
	struct ops *engine;
	regex_t regex;
	bool has_regex;
	struct text *by_text, **texts;
	uint32_t text_count;
	struct track *tracks;
	/* What servers of MCP were asked for: operations where no request of HTTP is one. */
	struct op_operation *asked;
	size_t asked_count, asked_room;
	bool has_requests;
	const struct op_group *expensive; /* the most expensive one that was sampled; NULL: none */
	struct report_sums sums;	  /* of its samples */
	struct report_op_allocs allocs;
};

/* --- texts ------------------------------------------------------------------------------------------------------- */

static struct text *text_new(struct report_ops *o, const char *key, size_t len)
{
	struct text *t = calloc(1, sizeof(*t) + len + 1);

	if (!t)
		return NULL;
	memcpy(t->text, key, len);
	t->id = o->text_count;
	HASH_ADD_KEYPTR(hh, o->by_text, t->text, len, t);
	if (!t->hh.tbl) {
		free(t);
		return NULL;
	}
	o->texts[o->text_count++] = t;
	return t;
}

/* 0: no memory. */
static uint32_t text_id(struct report_ops *o, bool chosen, const char *text)
{
	char key[REPORT_LABEL_BYTES + 1];
	struct text *t;
	size_t len;

	snprintf(key, sizeof(key), "%c%s", chosen ? '+' : '-', text);
	len = strlen(key);
	HASH_FIND(hh, o->by_text, key, len, t);
	if (!t && o->text_count >= REPORT_LABELS_MAX - 2) { /* room for both of these */
		len = (size_t)snprintf(key, sizeof(key), "%c(others)", chosen ? '+' : '-');
		HASH_FIND(hh, o->by_text, key, len, t);
	}
	if (!t)
		t = text_new(o, key, len);
	return t ? t->id : 0;
}

const char *report_ops_text(const struct report_ops *o, uint32_t text)
{
	return o->texts[text]->text + 1;
}

bool report_ops_chosen(const struct report_ops *o, uint32_t name)
{
	return o->texts[name]->text[0] == '+';
}

struct report_values *report_ops_values(const struct report_ops *o, uint32_t name)
{
	return &o->texts[name]->ms;
}

/* --- processes and tracks ---------------------------------------------------------------------------------------- */

static struct track *track_of(struct report_ops *o, uint32_t pid, uint32_t tid, bool make)
{
	uint64_t key = (uint64_t)pid << 32 | tid;
	struct track *t;

	HASH_FIND(hh, o->tracks, &key, sizeof(key), t);
	if (t || !make)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->key = key;
	HASH_ADD(hh, o->tracks, key, sizeof(key), t);
	if (t->hh.tbl)
		return t;
	free(t);
	return NULL;
}

/* "agent 3 Explore: turns": whose the track is. */
static uint32_t lane_of_name(struct sv name)
{
	unsigned n = 0, digits = 0;

	if (!sv_starts(name, SV("agent ")))
		return LANE_MAIN;
	for (size_t i = 6; i < name.len && name.ptr[i] >= '0' && name.ptr[i] <= '9' && digits < 9; i++, digits++)
		n = 10 * n + (unsigned)(name.ptr[i] - '0');
	return LANE_MAIN + n;
}

static int add_name(struct report_ops *o, const cJSON *e, uint32_t pid, uint32_t tid)
{
	struct sv what = json_get_string(e, "name"), name = json_get_string(json_get(e, "args"), "name");
	bool process = sv_eq(what, SV("process_name"));
	struct track *t;

	if ((!process && !sv_eq(what, SV("thread_name"))) || !name.len || HASH_COUNT(o->tracks) >= REPORT_TRACKS_MAX)
		return 0;
	t = track_of(o, pid, process ? 0 : tid, true);
	if (!t)
		return -ENOMEM;
	if (!process) {
		t->lane = lane_of_name(name);
		return 0;
	}
	t->name = text_id(o, true, name.ptr);
	return t->name ? 0 : -ENOMEM;
}

/* --- spans ------------------------------------------------------------------------------------------------------- */

struct span {
	const cJSON *args;
	struct sv cat, name;
	uint64_t begin_ns, end_ns;
	uint32_t pid, tid, os_tid, lane;
	bool chosen; /* by the regular expression */
	bool partial;
};

/* A number of a process or thread; 0: none. */
static uint32_t id_of(const cJSON *object, const char *key)
{
	double n = json_get_number(object, key);

	return n > 0 && n < UINT32_MAX ? (uint32_t)n : 0;
}

static bool time_of(const cJSON *e, const char *key, uint64_t *ns)
{
	double us = json_get_number(e, key);

	if (!(us >= 0 && us < (double)OP_TIME_MAX / 1000))
		return false;
	*ns = (uint64_t)llround(us * 1000);
	return true;
}

static bool is_partial(const cJSON *args)
{
	static const struct sv ends[] = {{"evicted", 7}, {"capture_loss", 12}, {"capture_end", 11}};
	struct sv end = json_get_string(args, "end_reason");

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (sv_eq(end, ends[i]))
			return true;
	return json_get_true(args, "unfinished") || json_get_true(args, "mid_attach") || json_get_true(args, "lossy") ||
	       json_get_true(args, "partial");
}

static bool matches(const struct report_ops *o, struct sv text)
{
	return text.len && !regexec(&o->regex, text.ptr, 0, NULL, 0);
}

static bool read_span(struct report_ops *o, const cJSON *e, struct span *s)
{
	const struct track *t;

	*s = (struct span){.args = json_get(e, "args"),
			   .cat = json_get_string(e, "cat"),
			   .name = json_get_string(e, "name"),
			   .pid = id_of(e, "pid"),
			   .tid = id_of(e, "tid")};
	if (!sv_eq(json_get_string(e, "ph"), SV("X")) || !s->name.len || !time_of(e, "ts", &s->begin_ns) ||
	    !time_of(e, "dur", &s->end_ns))
		return false;
	s->end_ns += s->begin_ns;
	s->os_tid = id_of(s->args, "os_tid");
	t = track_of(o, s->pid, s->tid, false);
	s->lane = t ? t->lane : 0;
	s->partial = is_partial(s->args);
	s->chosen = o->has_regex && (matches(o, s->name) || matches(o, json_get_string(s->args, "path")) ||
				     matches(o, json_get_string(s->args, "db.query.text")));
	return true;
}

/* "NAME @ WHERE"; each fits. 0: no memory. */
static uint32_t label(struct report_ops *o, bool chosen, struct sv name, const char *more, struct sv where)
{
	char text[REPORT_LABEL_BYTES];

	snprintf(text, sizeof(text), "%.*s%s%s%.*s", (int)(name.len < 240 ? name.len : 240), name.len ? name.ptr : "",
		 more, where.len ? " @ " : "", (int)(where.len < 200 ? where.len : 200), where.len ? where.ptr : "");
	return text_id(o, chosen, text);
}

/* --- operations -------------------------------------------------------------------------------------------------- */

/* What the engine has no room for it counts. */
static int pushed(int err)
{
	return err == -ENOSPC ? 0 : err;
}

/* Others are of use all the same: they may overlap these. */
static bool is_shown(const struct report_ops *o, const struct span *s)
{
	return (!o->has_regex || s->chosen) && (double)s->end_ns >= 1e6 * o->r->from_ms;
}

static int make_operation(struct report_ops *o, const struct span *s, enum op_family family, struct op_operation *out)
{
	const struct track *process = track_of(o, s->pid, 0, false);
	struct sv where = process ? sv_of(report_ops_text(o, process->name)) : SV_NONE;
	bool sub = family == OP_TURN && s->lane > LANE_MAIN;

	*out = (struct op_operation){.begin_ns = s->begin_ns,
				     .end_ns = s->end_ns,
				     .pid = s->pid,
				     .tid = s->os_tid,
				     .answer_tid = id_of(s->args, "response_tid"),
				     .lane = family == OP_TURN ? s->lane : 0,
				     .name = label(o, is_shown(o, s), s->name, sub ? " of a sub-agent" : "", where),
				     .family = family,
				     .partial = s->partial,
				     .single = family == OP_TURN && json_get_number(s->args, "steps") == 1 &&
					       !(json_get_number(s->args, "tools") > 0)};
	if (!out->name)
		return -ENOMEM;
	return s->partial ? 0
			  : report_add_value(o->r, report_ops_values(o, out->name),
					     (double)(s->end_ns - s->begin_ns) / 1e6);
}

static int add_operation(struct report_ops *o, const struct span *s, enum op_family family)
{
	struct op_operation p;
	int err = make_operation(o, s, family, &p);

	o->has_requests |= family == OP_REQUEST;
	return err ? err : pushed(ops_push_operation(o->engine, &p));
}

static int keep_asked(struct report_ops *o, const struct span *s)
{
	struct op_operation p;
	int err = make_operation(o, s, OP_REQUEST, &p);

	if (err || o->asked_count == OP_SPANS_MAX)
		return err;
	if (!array_grow(&o->asked, o->asked_count, &o->asked_room, sizeof(p)))
		return -ENOMEM;
	o->asked[o->asked_count++] = p;
	return 0;
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static struct sv without(struct sv name, struct sv prefix)
{
	return sv_starts(name, prefix) ? (struct sv){name.ptr + prefix.len, name.len - prefix.len} : name;
}

/* A function of a client library that asks a database: what it asks may be told by itself, too. */
static bool asks_database(struct sv function)
{
	static const char *const names[] = {
		"PQexec",	    "PQexecParams",	"PQexecPrepared",     "PQprepare",
		"mysql_query",	    "mysql_real_query", "mysql_stmt_execute", "redisCommand",
		"redisCommandArgv", "sqlite3_exec",	"sqlite3_step",	      "sqlite3_prepare_v2"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (sv_eq(function, sv_of(names[i])))
			return true;
	return false;
}

/* What a slice tells of what was waited for; false: nothing. */
static bool read_call(const struct span *s, struct op_call *c, struct sv *name, struct sv *where)
{
	*c = (struct op_call){
		.begin_ns = s->begin_ns, .end_ns = s->end_ns, .pid = s->pid, .tid = s->os_tid, .named = s->chosen};
	*name = s->name;
	*where = json_get_string(s->args, "host");
	if (sv_eq(s->cat, SV("llm"))) {
		c->kind = OP_LLM;
		c->lane = s->lane;
		*name = without(s->name, SV("LLM "));
	} else if (sv_eq(s->cat, SV("http"))) {
		c->kind = OP_HTTP;
	} else if (sv_eq(s->cat, SV("net")) && json_get_string(s->args, "undecoded").len) {
		c->kind = OP_HTTP; /* what else it was nobody knows */
	} else if (sv_eq(s->cat, SV("net"))) {
		c->kind = OP_CONNECT; /* and names that were looked up in vain */
		*where = json_get_string(s->args, "peer");
	} else if (sv_eq(s->cat, SV("db"))) {
		struct sv shape = json_get_string(s->args, "db.query.text");

		c->kind = OP_DB;
		*name = shape.len ? shape : s->name;
		*where = json_get_string(s->args, "db.system.name");
	} else if (sv_eq(s->cat, SV("tool"))) {
		c->kind = OP_TOOL;
		c->lane = s->lane;
	} else if (sv_eq(s->cat, SV("mcp"))) {
		c->kind = OP_MCP;
		*where = json_get_string(s->args, "server");
	} else if (sv_eq(s->cat, SV("function")) && asks_database(s->name)) {
		c->kind = OP_DB;
		c->function = true;
		*where = json_get_string(s->args, "binary");
	} else if (sv_eq(s->cat, SV("process"))) {
		/* Started meanwhile, by its parent. What agents run is told as tools. */
		c->kind = OP_TOOL;
		c->pid = id_of(s->args, "ppid");
		c->tid = id_of(s->args, "parent_tid");
		c->inside = c->no_turn = true;
		return c->pid && !s->partial && !json_get_true(s->args, "began_before_trace");
	} else {
		return false;
	}
	return !json_get_true(s->args, "mid_attach");
}

static int add_call(struct report_ops *o, const struct span *s)
{
	struct sv name, where;
	struct op_call c;

	if (!read_call(s, &c, &name, &where))
		return 0;
	c.shape = label(o, true, name, "", where);
	return c.shape ? pushed(ops_push_call(o->engine, &c)) : -ENOMEM;
}

/* Asked for, or asking? */
static bool is_server(const struct span *s)
{
	return (sv_eq(s->cat, SV("http")) && sv_eq(json_get_string(s->args, "side"), SV("server"))) ||
	       (sv_eq(s->cat, SV("mcp")) && sv_eq(json_get_string(s->args, "kind"), SV("server")));
}

/* Phases and the like have two categories. */
static bool is_whole(const struct span *s)
{
	return !s->cat.len || !memchr(s->cat.ptr, ',', s->cat.len);
}

static int add_span(struct report_ops *o, const struct span *s)
{
	int err = 0;

	if (sv_eq(s->cat, SV("turn")))
		return add_operation(o, s, OP_TURN);
	if (is_server(s))
		return sv_eq(s->cat, SV("mcp")) ? keep_asked(o, s) : add_operation(o, s, OP_REQUEST);
	if (s->chosen)
		err = add_operation(o, s, OP_NAMED);
	return err ? err : add_call(o, s);
}

int report_ops_event(struct report_ops *o, const cJSON *e)
{
	struct span s;

	if (sv_eq(json_get_string(e, "ph"), SV("M")))
		return add_name(o, e, id_of(e, "pid"), id_of(e, "tid"));
	return read_span(o, e, &s) && is_whole(&s) ? add_span(o, &s) : 0;
}

/* --- samples ----------------------------------------------------------------------------------------------------- */

static int push_sample(struct report *r, const struct report_sample *sample)
{
	const struct report_stack *s = &r->stacks[sample->stack];
	const struct report_thread *t = &r->threads[s->thread];
	struct op_state state = {.begin_ns = (uint64_t)(sample->at_us * 1000),
				 .weight_ns = (uint64_t)r->period_ns,
				 .pid = t->pid,
				 .tid = t->tid,
				 .stack = sample->stack,
				 .what = OP_CPU};

	state.end_ns = state.begin_ns;
	if (s->kind != KIND_CPU) {
		state.end_ns += (uint64_t)((double)sample->us * 1000);
		state.what = s->kind == KIND_QUEUE ? OP_QUEUE : OP_BLOCKED;
	}
	return pushed(ops_push_state(r->ops->engine, &state));
}

static int push_allocation(struct report *r, size_t at)
{
	const struct report_allocation *a = &r->allocations[at];
	const struct op_state state = {.begin_ns = (uint64_t)(a->at_us * 1000),
				       .pid = r->threads[r->memory[a->memory].stack.thread].pid,
				       .tid = a->tid,
				       .stack = (uint32_t)at,
				       .what = OP_ALLOC};

	return pushed(ops_push_state(r->ops->engine, &state));
}

/* --- functions of one -------------------------------------------------------------------------------------------- */

static void add_sample(void *ctx, uint32_t stack, uint64_t weight_ns)
{
	struct report_stack *stacks = ctx;

	stacks[stack].ns += (double)weight_ns;
	stacks[stack].samples++;
}

/* Of all families the one that took longest, as far as operations can be told apart. */
static const struct op_group *most_expensive(const struct report_ops *o, bool sampled)
{
	const struct op_group *g, *most = NULL;
	size_t count;

	g = ops_groups(o->engine, &count);
	for (size_t i = 0; i < count; i++)
		if ((!sampled || g[i].samples) && g[i].told_ns > 0 && report_ops_chosen(o, g[i].name) &&
		    (!most || g[i].told_ns > most->told_ns))
			most = &g[i];
	return most;
}

/* The report, as if it had no samples but these. */
static int sum_most_expensive(struct report *r)
{
	struct report_ops *o = r->ops;
	struct report only = *r;
	size_t count;
	int err;

	o->expensive = most_expensive(o, true);
	if (!o->expensive)
		return 0;
	only.stacks = calloc(r->stack_count + 1, sizeof(*only.stacks));
	if (!only.stacks)
		return -ENOMEM;
	if (r->stack_count)
		memcpy(only.stacks, r->stacks, r->stack_count * sizeof(*only.stacks));
	for (size_t i = 0; i < r->stack_count; i++)
		only.stacks[i].ns = 0, only.stacks[i].samples = 0;
	ops_each_sample(o->engine, (size_t)(o->expensive - ops_groups(o->engine, &count)), OP_CPU, add_sample,
			only.stacks);
	err = report_sum(&only, &o->sums);
	free(only.stacks);
	return err;
}

const struct op_group *report_ops_expensive(const struct report_ops *o, const struct report_sums **sums)
{
	*sums = &o->sums;
	return o->expensive;
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

int report_ops_solve(struct report *r)
{
	struct report_ops *o = r->ops;
	int err = 0;

	for (size_t i = 0; i < o->asked_count && !o->has_requests && !err; i++)
		err = pushed(ops_push_operation(o->engine, &o->asked[i]));
	for (size_t i = 0; i < r->sample_count && !err; i++)
		err = push_sample(r, &r->samples[i]);
	for (size_t i = 0; i < r->allocation_count && !err; i++)
		err = push_allocation(r, i);
	ops_states(o->engine, r->timed && r->period_ns > 0, r->timed && r->off_cpu_min_ns > 0,
		   (uint64_t)fmin(r->timeline_from_us * 1000, (double)OP_TIME_MAX));
	if (!err)
		err = ops_solve(o->engine);
	if (!err)
		err = sum_most_expensive(r);
	return err ? err : report_op_allocs_sum(r, o->expensive ? o->expensive : most_expensive(o, false), &o->allocs);
}

const struct report_op_allocs *report_ops_allocs(const struct report_ops *o)
{
	return &o->allocs;
}

struct ops *report_ops_engine(const struct report_ops *o)
{
	return o->engine;
}

int report_ops_choose(struct report_ops *o, const char *regex)
{
	if (!regex)
		return 0;
	if (regcomp(&o->regex, regex, REG_EXTENDED | REG_NOSUB))
		return -EINVAL;
	o->has_regex = true;
	return 0;
}

struct report_ops *report_ops_new(struct report *r)
{
	struct report_ops *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->r = r;
	o->engine = ops_new();
	o->texts = calloc(REPORT_LABELS_MAX, sizeof(struct text *));
	/* The first one is no name: 0 is none. */
	if (o->engine && o->texts && text_new(o, "-", 1))
		return o;
	report_ops_free(o);
	return NULL;
}

void report_ops_free(struct report_ops *o)
{
	struct track *t, *next;

	if (!o)
		return;
	HASH_ITER (hh, o->tracks, t, next) {
		HASH_DEL(o->tracks, t);
		free(t);
	}
	HASH_CLEAR(hh, o->by_text);
	for (uint32_t i = 0; i < o->text_count; i++) {
		free(o->texts[i]->ms.v);
		free(o->texts[i]);
	}
	free(o->texts);
	free(o->asked);
	report_sums_release(&o->sums);
	free(o->allocs.sums);
	if (o->has_regex)
		regfree(&o->regex);
	ops_free(o->engine);
	free(o);
}
