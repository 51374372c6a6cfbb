/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>

#include "base/err.h"
#include "flow/proc.h"

struct world {
	struct tlog log;
	struct lost lost;
	struct procs *t;
};

static void on_change(void *ctx, const struct proc *p)
{
	struct tlog *log = &((struct world *)ctx)->log;

	if (p->end_ns == UNKNOWN_NS)
		tlog_printf(log, "%u of %u is %s\n", p->shown_pid, p->ppid, p->name);
	else
		tlog_printf(log, "exit %u %s %d/%d\n", p->shown_pid, p->name, p->code, p->signal);
}

static void open_world(struct world *w)
{
	*w = (struct world){0};
	w->t = procs_new(&w->lost, &(struct proc_sink){w, on_change, NULL});
	assert_non_null(w->t);
}

static void close_world(struct world *w)
{
	procs_free(w->t);
	tlog_free(&w->log);
}

static void exec(struct world *w, uint32_t tgid, uint64_t start, uint32_t exec_id, const char *comm, const char *file)
{
	struct rec_exec r = {
		.proc = {.tgid = tgid, .exec_id = exec_id, .start_ns = start},
		.ts_ns = start + 1,
		.ppid = 1,
		.comm = sv_of(comm),
		.filename = sv_of(file),
	};

	procs_push_exec(w->t, &r);
}

static void leave(struct world *w, uint32_t tgid, uint64_t start, int32_t code)
{
	procs_push_exit(
		w->t, &(struct rec_exit){.proc = {.tgid = tgid, .start_ns = start}, .ts_ns = start + 9, .code = code});
}

static const struct proc *get(struct world *w, uint32_t tgid, uint64_t start)
{
	return procs_get(w->t, &(struct conn_key){.tgid = tgid, .start_ns = start});
}

static void names(void **state)
{
	static const struct {
		const char *comm, *file, *name;
	} rows[] = {
		{"claude", "/usr/local/bin/claude", "claude"},
		{"MainThread", "/usr/bin/python3.11", "python3.11"},
		{"HTTP Client", "/opt/my app/agent", "agent"},
		{"node", "/usr/bin/node (deleted)", "node"},
		{"script.sh", "./script.sh", "script.sh"},
		{"busybox", "busybox", "busybox"},
		{"tool", "/proc/self/fd/7", "tool"},
		{"tool", "/dev/fd/7", "tool"},
		{"onlycomm", "", "onlycomm"},
		{"x", "/ends/with/", "x"},
		{"", "", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;

		open_world(&w);
		exec(&w, 10, 100, 1, rows[i].comm, rows[i].file);
		assert_string_equal(get(&w, 10, 100)->name, rows[i].name);
		assert_string_equal(get(&w, 10, 100)->exe, rows[i].file);
		close_world(&w);
	}
}

static void long_names_are_cut(void **state)
{
	char path[600];
	struct world w;

	(void)state;
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	open_world(&w);
	exec(&w, 10, 100, 1, "c", path);
	assert_int_equal(strlen(get(&w, 10, 100)->name), 63);
	assert_int_equal(strlen(get(&w, 10, 100)->exe), 255);
	close_world(&w);
}

static void chain_of(struct tlog *log, const struct proc *p)
{
	for (size_t i = 0; i < p->chain_len; i += strlen(p->chain + i) + 1)
		tlog_printf(log, "%s > ", p->chain + i);
	tlog_printf(log, "%s\n", p->name);
}

/* What a process was before; the parent's program, that a child is until its first exec, is none of it. */
static void exec_chains(void **state)
{
	struct tlog log = {0};
	struct world w;

	(void)state;
	open_world(&w);
	exec(&w, 10, 100, 1, "bash", "/bin/bash");
	chain_of(&log, get(&w, 10, 100));
	procs_push_fork(w.t,
			&(struct rec_fork){.ts_ns = 150, .parent_tgid = 10, .child_tgid = 11, .child_start_ns = 150});
	exec(&w, 11, 150, 2, "env", "/usr/bin/env");
	chain_of(&log, get(&w, 11, 150));
	exec(&w, 11, 150, 3, "node", "/usr/bin/node");
	exec(&w, 11, 150, 3, "node", "/usr/bin/node"); /* told twice */
	exec(&w, 11, 150, 2, "env", "/usr/bin/env");   /* late news */
	chain_of(&log, get(&w, 11, 150));
	for (uint32_t i = 4; i < 4 + PROC_CHAIN_MAX; i++) {
		char name[8];

		snprintf(name, sizeof(name), "p%u", i);
		exec(&w, 11, 150, i, name, name);
	}
	chain_of(&log, get(&w, 11, 150));
	assert_log(&log, "bash\nenv\nenv > node\nnode > p4 > p5 > p6 > p7 > p8 > p9 > p10 > p11\n");
	tlog_free(&log);
	close_world(&w);
}

static void tool_call(struct world *w, uint32_t exec_id, const char *id)
{
	procs_push_tool_call(w->t, &(struct rec_tool_call){.proc = {.tgid = 10, .exec_id = exec_id, .start_ns = 100},
							   .ts_ns = 200,
							   .id = sv_of(id)});
}

static void tool_calls(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	tool_call(&w, 1, "call_0"); /* of nobody */
	exec(&w, 10, 100, 1, "bash", "/bin/bash");
	assert_null(get(&w, 10, 100)->tool_call_id);
	tool_call(&w, 1, "call_1");
	assert_string_equal(get(&w, 10, 100)->tool_call_id, "call_1");
	exec(&w, 10, 100, 2, "npm", "/usr/bin/npm");
	tool_call(&w, 1, "call_2"); /* it is another program by now */
	assert_string_equal(get(&w, 10, 100)->tool_call_id, "call_1");
	tool_call(&w, 2, "call_3");
	assert_string_equal(get(&w, 10, 100)->tool_call_id, "call_3");
	assert_log(&w.log, "10 of 1 is bash\n10 of 1 is bash\n10 of 1 is npm\n10 of 1 is npm\n");
	close_world(&w);
}

static void on_load(void *ctx, const struct proc *p, const struct interval *at, uint64_t cpu_ns, uint64_t wait_ns)
{
	tlog_printf(&((struct world *)ctx)->log, "%u %llu-%llu %llu wait %llu\n", p->key.tgid,
		    (unsigned long long)at->begin_ns, (unsigned long long)at->end_ns, (unsigned long long)cpu_ns,
		    (unsigned long long)wait_ns);
}

static void processor_time(void **state)
{
	static const struct {
		uint32_t tgid;
		uint64_t ts_ns, cpu_ns;
	} asked[] = {
		{11, 1000, 50},	 {10, 1000, 50},  {10, 1250, 150},
		{10, 1250, 160}, {10, 1500, 140}, /* less than before: another process's */
		{10, 1750, 150},
	};
	struct world w = {0};

	(void)state;
	w.t = procs_new(&w.lost, &(struct proc_sink){&w, NULL, on_load});
	exec(&w, 10, 100, 1, "agent", "");
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
		procs_push_cpu(w.t, &(struct rec_cpu){.proc = {.tgid = asked[i].tgid, .start_ns = 100},
						      .ts_ns = asked[i].ts_ns,
						      .cpu_ns = asked[i].cpu_ns,
						      .wait_ns = asked[i].ts_ns / 10});
	assert_log(&w.log, "10 1000-1250 100 wait 25\n10 1250-1750 0 wait 50\n");
	close_world(&w);
}

/* Between the exit and the parent's news of it lies what the kernel takes away: that time is the process's, too. */
static void gone(void **state)
{
	struct rec_gone r = {.proc = {.tgid = 10, .start_ns = 100}, .ts_ns = 150, .cpu_ns = 7};
	struct world w;

	(void)state;
	open_world(&w);
	exec(&w, 10, 100, 1, "agent", "");
	procs_push_gone(w.t, &r); /* its exit was lost: nobody knows how it ended */
	assert_int_equal(get(&w, 10, 100)->end_ns, UNKNOWN_NS);
	leave(&w, 10, 100, 3);
	assert_int_equal(get(&w, 10, 100)->end_ns, 109);
	procs_push_gone(w.t, &r);
	assert_int_equal(get(&w, 10, 100)->end_ns, 150);
	assert_int_equal(get(&w, 10, 100)->cpu_ns, 7);
	r.ts_ns = 140;
	procs_push_gone(w.t, &r);
	r.proc.start_ns = 99; /* another one */
	r.ts_ns = 160;
	procs_push_gone(w.t, &r);
	assert_int_equal(get(&w, 10, 100)->end_ns, 150);
	assert_log(&w.log, "10 of 1 is agent\nexit 10 agent 3/0\nexit 10 agent 3/0\n");
	close_world(&w);
}

/* A pid that is used again is another process, and shown as such. */
static void pid_reuse(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	exec(&w, 4242, 100, 1, "agent", "");
	leave(&w, 4242, 100, 3);
	leave(&w, 4242, 100, 4); /* told twice */
	exec(&w, 4242, 200, 1, "other", "");
	exec(&w, 4242, 300, 1, "third", "");
	assert_string_equal(get(&w, 4242, 100)->name, "agent");
	assert_string_equal(get(&w, 4242, 200)->name, "other");
	assert_int_equal(get(&w, 4242, 100)->shown_pid, 4242);
	assert_int_equal(get(&w, 4242, 200)->shown_pid, 10000000);
	assert_int_equal(get(&w, 4242, 300)->shown_pid, 10000001);
	assert_int_equal(get(&w, 4242, 100)->end_ns, 109);
	assert_int_equal(get(&w, 4242, 200)->end_ns, UNKNOWN_NS);
	assert_log(&w.log, "4242 of 1 is agent\nexit 4242 agent 3/0\n10000000 of 1 is other\n10000001 of 1 is third\n");
	close_world(&w);
}

static void exec_and_fork(void **state)
{
	struct world w;
	struct rec_exec args = {
		.proc = {.tgid = 10, .exec_id = 2, .start_ns = 100}, .comm = SV("bash"), .args = SV("bash\0-l\0")};

	(void)state;
	open_world(&w);
	exec(&w, 10, 100, 1, "sh", "/bin/sh");
	procs_push_exec(w.t, &args);
	exec(&w, 10, 100, 1, "sh", "/bin/sh"); /* old news */
	assert_string_equal(get(&w, 10, 100)->name, "bash");
	assert_string_equal(get(&w, 10, 100)->exe, "");
	assert_int_equal(get(&w, 10, 100)->key.exec_id, 2);
	procs_push_fork(w.t,
			&(struct rec_fork){.ts_ns = 150, .parent_tgid = 10, .child_tgid = 11, .child_start_ns = 149});
	assert_string_equal(get(&w, 11, 149)->name, "bash");
	assert_int_equal(get(&w, 11, 149)->ppid, 10);
	assert_int_equal(get(&w, 11, 149)->begin_ns, 149);
	assert_int_equal(get(&w, 11, 149)->args_len, 7);
	assert_memory_equal(get(&w, 11, 149)->args, "bash\0-l", 7);
	exec(&w, 11, 149, 1, "curl", "/usr/bin/curl");
	assert_string_equal(get(&w, 11, 149)->name, "curl");
	assert_null(get(&w, 11, 149)->args);
	/* The child's exec was told before the fork: the fork only adds the parent. */
	exec(&w, 12, 160, 1, "python3", "");
	procs_push_fork(w.t,
			&(struct rec_fork){.ts_ns = 160, .parent_tgid = 10, .child_tgid = 12, .child_start_ns = 160});
	assert_string_equal(get(&w, 12, 160)->name, "python3");
	/* Of an unknown parent. */
	procs_push_fork(w.t,
			&(struct rec_fork){.ts_ns = 160, .parent_tgid = 99, .child_tgid = 13, .child_start_ns = 160});
	assert_int_equal(get(&w, 13, 160)->ppid, 99);
	assert_string_equal(get(&w, 13, 160)->name, "");
	close_world(&w);
}

static void count(void *ctx, const struct proc *p)
{
	unsigned *n = ctx;

	assert_true(p->order >= *n);
	++*n;
}

static void unknown_process_is_made(void **state)
{
	struct world w;
	unsigned n = 0;

	(void)state;
	open_world(&w);
	leave(&w, 77, 5, 0); /* of a process nobody spoke of */
	procs_each(w.t, count, &n);
	assert_int_equal(n, 0);
	assert_int_equal(get(&w, 77, 5)->shown_pid, 77);
	assert_string_equal(get(&w, 77, 5)->name, "");
	assert_ptr_equal(get(&w, 77, 5), get(&w, 77, 5));
	procs_each(w.t, count, &n);
	assert_int_equal(n, 1);
	assert_log(&w.log, "");
	close_world(&w);
}

static void table_is_bounded(void **state)
{
	struct world w;
	unsigned n = 0;

	(void)state;
	open_world(&w);
	exec(&w, 1, 1, 1, "kept", "");
	get(&w, 1, 1);
	leave(&w, 1, 1, 0);
	for (uint32_t i = 2; i < PROC_MAX + 100;
	     i++) { /* one pid, again and again: the chain of its users is cut at the end */
		exec(&w, 5, i, 1, "short", "");
		leave(&w, 5, i, 0);
	}
	procs_each(w.t, count, &n);
	assert_int_equal(n, PROC_MAX);
	assert_string_equal(get(&w, 1, 1)->name, "kept"); /* it had a connection: the others go first */
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 0);
	close_world(&w);

	open_world(&w);
	for (uint32_t i = 1; i <= PROC_MAX; i++)
		exec(&w, i, 1, 1, "alive", "");
	assert_null(get(&w, PROC_MAX + 1, 1));
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 1);
	leave(&w, 7, 1, 0);
	assert_non_null(get(&w, PROC_MAX + 1, 1));
	close_world(&w);
}

/* A table full of processes that were asked for: the next one is known when its calls are told, after its end. */
static void late_is_not_forgotten(void **state)
{
	struct world w;
	unsigned n = 0;

	(void)state;
	open_world(&w);
	for (uint32_t i = 1; i <= 2 * PROC_MAX; i++) {
		exec(&w, i, 1, 1, "called", "");
		leave(&w, i, 1, 0);
		if (i > 100) {
			assert_string_equal(get(&w, i - 100, 1)->name, "called");
			assert_true(get(&w, i - 100, 1)->end_ns != UNKNOWN_NS);
		}
	}
	procs_each(w.t, count, &n);
	assert_int_equal(n, PROC_MAX);
	/* And one that nobody asks for stays so long. */
	exec(&w, 7, 2, 1, "quiet", "");
	leave(&w, 7, 2, 0);
	for (uint32_t i = 1; i < PROC_LATE; i++) {
		exec(&w, i, 3, 1, "other", "");
		leave(&w, i, 3, 0);
	}
	assert_string_equal(get(&w, 7, 2)->name, "quiet");
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 0);
	close_world(&w);
}

static void secrets(void **state)
{
	static const struct {
		struct sv in;
		struct sv out;
	} rows[] = {
#define ROW(a, b) {SV(a), SV(b)}
		ROW("curl\0https://x/", "curl\0https://x/"),
		ROW("curl\0-s\0", "curl\0-s"),
		ROW("a\0--api-key=abc\0z", "a\0--api-key=***\0z"),
		ROW("a\0--api-key\0abc\0z", "a\0--api-key\0***\0z"),
		ROW("a\0--token\0--verbose", "a\0--token\0--verbose"),
		ROW("a\0--max-tokens\0"
		    "4096",
		    "a\0--max-tokens\0"
		    "4096"),
		ROW("a\0--max_tokens=4096", "a\0--max_tokens=4096"),
		ROW("env\0OPENAI_API_KEY=sk-1\0x", "env\0OPENAI_API_KEY=***\0x"),
		ROW("DB_PASSWORD=a b c", "DB_PASSWORD=***"),
		ROW("--Secret=", "--Secret="),
		ROW("x\0sk-ant-REDACTED", "x\0***"),
		ROW("x\0key is sk-abcdefghijk.", "x\0key is ***"),
		ROW("x\0sk-short", "x\0sk-short"),
		ROW("task-abcdefghijklmnop", "task-abcdefghijklmnop"),
		ROW("-H\0Authorization: Bearer abc.def", "-H\0Authorization: ***"),
		ROW("-H\0x-api-key: 123", "-H\0x-api-key: ***"),
		ROW("say Bearer abc here", "say Bearer *** here"),
		ROW("https://user:pw@host/p", "https://***@host/p"),
		ROW("https://host/p?key=abc&x=1", "https://host/p?key=***&x=1"),
		ROW("https://host/a@b", "https://host/a@b"),
		ROW("sh\0-c\0API_KEY=abc run --token xyz now", "sh\0-c\0API_KEY=***"),
		ROW("sh\0-c\0cd /; API_KEY=abc run --token xyz now", "sh\0-c\0cd /; API_KEY=*** run --token *** now"),
		ROW("sh\0-c\0cd / && PASSWORD='a b' x", "sh\0-c\0cd / && PASSWORD='***' x"),
		ROW("{\"api_key\": \"abc\", \"n\": 1}", "{\"api_key\": \"***\", \"n\": 1}"),
		ROW("curl -H 'authorization: bearer abc' u", "curl -H 'authorization: bearer ***' u"),
		ROW("curl\0-u\0me:pw\0h", "curl\0-u\0***\0h"),
		ROW("curl\0-ume:pw\0h", "curl\0-u***\0h"),
		ROW("/usr/bin/curl\0-sSume:pw\0-d\0x:y", "/usr/bin/curl\0-sSu***\0-d\0x:y"),
		ROW("curl\0-sSu\0me:pw\0h", "curl\0-sSu\0***\0h"),
		ROW("curl\0--user=me:pw\0--proxy-user=p:q\0--cert=f:pw",
		    "curl\0--user=***\0--proxy-user=***\0--cert=***"),
		ROW("curl\0-HAuthorization: Bearer abc.def", "curl\0-HAuthorization: ***"),
		ROW("wget\0-Uagent\0-Dmute:x", "wget\0-Uagent\0-Dmute:x"),
		ROW("python3\0-u\0agent.py", "python3\0-u\0agent.py"),
		ROW("--auth-token\0", "--auth-token"),
		ROW("a\0\0b", "a\0\0b"),
		ROW("", ""),
		ROW("key", "key"),
		ROW("key=", "key="),
		ROW("the key to it", "the key to it"),
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tlog want = {0}, have = {0};
		struct guard g = {0};
		struct buf out;

		buf_init(&out, PROC_ARGS_BYTES);
		assert_int_equal(
			proc_redact_args(&out, (struct sv){(const char *)guard_copy(&g, rows[i].in.ptr, rows[i].in.len),
							   rows[i].in.len}),
			0);
		tlog_escaped(&want, rows[i].out.ptr, rows[i].out.len);
		tlog_escaped(&have, out.ptr, out.len);
		assert_string_equal(have.text ? have.text : "", want.text ? want.text : "");
		tlog_free(&want);
		tlog_free(&have);
		buf_release(&out);
		guard_free(&g);
	}
}

/* Whatever the bytes: in bounds, and in linear time. */
static void hostile_arguments(void **state)
{
	static const char *const unit[] = {"://",     "://a", "key ",	"key=", "--key ",
					   "Bearer ", "sk-",  "key:\"", "a",	"\0"};
	static char text[64 * 1024];
	struct guard g = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(unit); i++) {
		size_t n = strlen(unit[i]) ? strlen(unit[i]) : 1;
		struct buf out;

		for (size_t k = 0; k < sizeof(text); k++)
			text[k] = unit[i][k % n];
		buf_init(&out, 0);
		assert_int_equal(proc_redact_args(&out, (struct sv){(const char *)guard_copy(&g, text, sizeof(text)),
								    sizeof(text)}),
				 0);
		buf_release(&out);
	}
	guard_free(&g);
}

static void args_are_capped(void **state)
{
	static char args[PROC_ARGS_BYTES + 1];
	struct world w;
	struct rec_exec r = {.proc = {.tgid = 10, .start_ns = 100}, .comm = SV("a"), .args = {args, sizeof(args)}};

	(void)state;
	memset(args, 'x', sizeof(args));
	for (size_t i = 49; i < sizeof(args); i += 50) /* words that are short enough to be shown */
		args[i] = '\0';
	open_world(&w);
	procs_push_exec(w.t, &r);
	assert_null(get(&w, 10, 100)->args);
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 1);
	close_world(&w);
}

static void without_memory(void **state)
{
	(void)state;
	for (unsigned n = 1;; n++) {
		struct rec_exec r = {
			.proc = {.tgid = 10, .exec_id = 1, .start_ns = 100}, .comm = SV("a"), .args = SV("a\0b")};
		struct world w;
		bool hit;

		open_world(&w);
		fail_nth(n);
		procs_push_exec(w.t, &r);
		procs_push_fork(w.t, &(struct rec_fork){.parent_tgid = 10, .child_tgid = 11, .child_start_ns = 149});
		exec(&w, 10, 200, 1, "again", "");
		leave(&w, 10, 100, 0);
		get(&w, 12, 5);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(w.lost.n[LOST_NO_MEMORY], hit ? 1 : 0);
		assert_non_null(get(&w, 10, 100));
		close_world(&w);
		if (!hit)
			break;
	}
	fail_nth(1);
	assert_null(procs_new(NULL, NULL));
	assert_int_equal(errno, ENOMEM);
	fail_nth(0);
}

static void prompts_are_hidden(void **state)
{
	static const struct {
		struct sv in, out;
	} rows[] = {
		{SV("claude\0-p\0write me a poem\0"), SV("claude\0-p\0<15 bytes>")},
		{SV("claude\0-p\0hi\0"), SV("claude\0-p\0<2 bytes>")},
		{SV("codex\0exec\0fix the bug"), SV("codex\0exec\0<11 bytes>")},
		{SV("x\0--prompt=hi\0--model\0m-1"), SV("x\0--prompt=<2 bytes>\0--model\0m-1")},
		{SV("curl\0-p\08080\0-x"), SV("curl\0-p\08080\0-x")},
		{SV("npm\0test"), SV("npm\0test")},
		/* a program may write what it likes over its own name, and another may be started under any */
		{SV("worker: on word\0a"), SV("<15 bytes>\0a")},
		{SV("-bash\0\0a"), SV("-bash\0\0a")},
		{SV("/usr/bin/x\0a"), SV("/usr/bin/x\0a")},
		{SV("x\0--prompt\0--verbose"), SV("x\0--prompt\0--verbose")},
		{SV("x\0--api-key=sk-abc def"), SV("x\0--api-key=***")},
		/* what is no plain word */
		{SV("x\0{\"a\":1}\0a\nb\0caf\xc3\xa9\0why?\0it's\0\x01"),
		 SV("x\0<7 bytes>\0<3 bytes>\0<5 bytes>\0<4 bytes>\0<4 bytes>\0<1 bytes>")},
		{SV("x\0abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm"), SV("x\0<65 bytes>")},
		{SV("x\0/bcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm"),
		 SV("x\0/bcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm")},
		{SV("x\0/a?b=c\0./a/b.py\0../x\0~/y\0a.json"), SV("x\0<6 bytes>\0./a/b.py\0../x\0~/y\0a.json")},
		{SV("x\0\0-v\0--level=3\0--name=word\0--name=two words\0mode=value\0--no.such-thing"),
		 SV("x\0\0-v\0--level=3\0--name=word\0--name=<9 bytes>\0mode=value\0--no.such-thing")},
		{SV("env\0HOME=/root\0LEVEL=3\0WORD=hello\0make\0V=1"),
		 SV("env\0HOME=<5 bytes>\0LEVEL=<1 bytes>\0WORD=<5 bytes>\0make\0V=1")},
		/* values of options that take text */
		{SV("curl\0-d\0word\0--data-raw\0word\0--json={}\0-F\0a=b\0--form\0a=@b\0-dword\0-Fa=b\0-sS"),
		 SV("curl\0-d\0<4 bytes>\0--data-raw\0<4 bytes>\0--json=<2 bytes>\0-F\0<3 bytes>\0--form\0<4 bytes>\0"
		    "-d<4 bytes>\0-F<3 bytes>\0-s<1 bytes>")},
		{SV("curl\0-\xc3\xa9t\xc3\xa9\0- a"), SV("curl\0<6 bytes>\0<3 bytes>")},
		{SV("perfbpf\0-d\0"
		    "5\0-n\0claude|node\0-o\0out.json\0-c\0-"),
		 SV("perfbpf\0-d\0"
		    "5\0-n\0claude|node\0-o\0out.json\0-c\0-")},
		/* secrets whose option only their program knows, or that follow their name */
		{SV("curl\0-b\0s=word\0-U\0u:word\0--proxy-user\0u:word\0--oauth2-bearer\0word\0-E\0c:word"),
		 SV("curl\0-b\0<6 bytes>\0-U\0***\0--proxy-user\0***\0--oauth2-bearer\0***\0-E\0***")},
		{SV("/usr/bin/mysql\0-pword\0db"), SV("/usr/bin/mysql\0-p<4 bytes>\0db")},
		{SV("redis-cli\0-a\0word"), SV("redis-cli\0-a\0<4 bytes>")},
		{SV("aws\0configure\0set\0aws_secret_access_key\0word"),
		 SV("aws\0configure\0set\0aws_secret_access_key\0***")},
		{SV("x\0Bearer\0word\0--bearer=word"), SV("x\0Bearer\0***\0--bearer=***")},
		{SV("docker\0run\0-eLEVEL=3\0--env=LEVEL=3\0-e\0LEVEL=3"),
		 SV("docker\0run\0-eLEVEL=<1 bytes>\0--env=LEVEL=<1 bytes>\0-e\0LEVEL=<1 bytes>")},
		/* what is run is text too */
		{SV("bash\0-lc\0word"), SV("bash\0-lc\0<4 bytes>")},
		{SV("node\0-e\0word\0--eval\0word"), SV("node\0-e\0<4 bytes>\0--eval\0<4 bytes>")},
		{SV("ollama\0run\0m-1\0word"), SV("ollama\0run\0<3 bytes>\0<4 bytes>")},
		/* URLs */
		{SV("curl\0https://u:pw@h.test:8/v1/x?model=m-1&q=secret&n=12&code=1234&averylongkeyalone#frag"),
		 SV("curl\0https://***@h.test:8/v1/x?model=m-1&q=*&n=12&code=*&*#*")},
		{SV("x\0--base-url=http://h/a?b=c\0URL=http://u@h/\0url=http://h/?k=v\0http://h w/\0http://h/a b"),
		 SV("x\0--base-url=http://h/a?b=*\0URL=<11 bytes>\0url=http://h/?k=*\0http://<3 bytes>/\0http://h<4 "
		    "bytes>")},
		{SV("x\0see:http://u:p@h/\0see:http://h/?a=b"), SV("x\0see:http://***@h/\0<17 bytes>")},
		/* agents: any word may be the prompt */
		{SV("codex\0exec\0--model\0gpt-x\0hello"), SV("codex\0exec\0--model\0gpt-x\0<5 bytes>")},
		{SV("claude\0hello"), SV("claude\0<5 bytes>")},
		{SV("/usr/bin/claude\0--verbose\0hello\0--max-turns=3\0--note=hello\0/tmp/x"),
		 SV("/usr/bin/claude\0--verbose\0<5 bytes>\0--max-turns=3\0--note=<5 bytes>\0/tmp/x")},
		{SV("claude\0-phello\0--\0--hello"), SV("claude\0-p<5 bytes>\0--\0<7 bytes>")},
		{SV("node\0/opt/claude-code/cli.js\0hello\0mcp"),
		 SV("node\0/opt/claude-code/cli.js\0<5 bytes>\0<3 bytes>")},
		{SV("npx\0-y\0@google/gemini-cli\0run\0hello"), SV("npx\0-y\0@google/gemini-cli\0run\0<5 bytes>")},
		{SV("python3\0-m\0aider\0hello"), SV("python3\0-m\0aider\0<5 bytes>")},
		{SV("perfbpf\0-o\0x\0--\0goose\0run\0-t\0hello"), SV("perfbpf\0-o\0x\0--\0goose\0run\0-t\0<5 bytes>")},
		{SV("x\0--\0some text\0more"), SV("x\0--\0<9 bytes>\0more")},
	};
	struct tlog shown = {0};
	struct buf out;

	(void)state;
	buf_init(&out, 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		buf_clear(&out);
		assert_int_equal(proc_public_args(&out, rows[i].in, false), 0);
		if (out.len != rows[i].out.len || memcmp(out.ptr, rows[i].out.ptr, out.len)) {
			tlog_escaped(&shown, out.ptr, out.len);
			fail_msg("row %zu: %s", i, shown.text);
		}
		buf_clear(&out);
		assert_int_equal(proc_public_args(&out, rows[i].in, true), 0);
	}
	buf_clear(&out);
	assert_int_equal(proc_public_args(&out, SV("a\0b c"), true), 0);
	assert_memory_equal(out.ptr, "a\0b c", 5);
	buf_release(&out);
}

static void known_agents(void **state)
{
	static const struct {
		const char *agent, *exe;
		struct sv args;
	} rows[] = {
		{"Claude Code", "/home/u/.local/bin/claude", SV("claude")},
		{"Claude Code", "/home/u/.local/share/claude/versions/2.1.4", SV("claude\0-p\0hi")},
		{"Claude Code", "/usr/bin/node", SV("node\0/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js")},
		{"Gemini CLI", "/usr/bin/node", SV("node\0--no-warnings\0/usr/local/bin/gemini\0-p\0x")},
		{"Aider", "/usr/bin/python3.11", SV("python3\0-m\0aider")},
		{"vLLM", "/usr/bin/python3.11", SV("python3\0-m\0vllm.entrypoints.openai.api_server")},
		{"Ollama", "/usr/local/bin/ollama", SV("ollama\0serve")},
		{NULL, "/usr/bin/node", SV("node\0/srv/app.js\0/usr/local/bin/gemini")},
		{NULL, "/usr/bin/grep", SV("grep\0claude")},
		{NULL, "/usr/bin/vim", SV("vim\0codex")},
		{NULL, "", SV("")},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rec_exec r = {
			.proc = {.tgid = 9, .start_ns = 1}, .filename = sv_of(rows[i].exe), .args = rows[i].args};
		struct conn_key k = {.tgid = 9, .start_ns = 1};
		struct lost lost = {0};
		struct procs *t = procs_new(&lost, NULL);

		procs_push_exec(t, &r);
		if (rows[i].agent)
			assert_string_equal(procs_get(t, &k)->agent, rows[i].agent);
		else
			assert_null(procs_get(t, &k)->agent);
		procs_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prompts_are_hidden),
		cmocka_unit_test(names),
		cmocka_unit_test(long_names_are_cut),
		cmocka_unit_test(gone),
		cmocka_unit_test(pid_reuse),
		cmocka_unit_test(processor_time),
		cmocka_unit_test(exec_chains),
		cmocka_unit_test(tool_calls),
		cmocka_unit_test(known_agents),
		cmocka_unit_test(exec_and_fork),
		cmocka_unit_test(unknown_process_is_made),
		cmocka_unit_test(table_is_bounded),
		cmocka_unit_test(late_is_not_forgotten),
		cmocka_unit_test(secrets),
		cmocka_unit_test(hostile_arguments),
		cmocka_unit_test(args_are_capped),
		cmocka_unit_test(without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
