/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/ldcache.h"
#include "attach/target.h"

static struct proc_stat proc; /* large */

/* --- /proc/PID/stat ---------------------------------------------------------------------------------------------- */

static void show_stat(struct tlog *log, const char *text, size_t len)
{
	struct guard g = {0};
	struct proc_stat p = {0};
	int err = target_parse_stat((struct sv){(const char *)guard_copy(&g, text, len), len}, &p);

	if (err) {
		tlog_printf(log, "%s\n", err == -EBADMSG ? "bad" : "?");
	} else {
		tlog_printf(log, "%d %d %llu ", (int)p.pid, (int)p.ppid, (unsigned long long)p.start_ns);
		tlog_escaped(log, p.comm, strlen(p.comm));
		tlog_printf(log, "\n");
	}
	guard_free(&g);
}

#define REST "S 41 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 123456 1000 200 18446744073709551615\n"

static void stat_lines(void **state)
{
	static const char *const lines[] = {
		"42 (node) " REST,
		"42 (a) R 7 (b)) " REST, /* what looks like the end of the name is not */
		"42 (x (y) z) " REST,
		"42 (\xff\n\x01) " REST,
		"42 () " REST,
		"42 (node " REST,
		"42 node) " REST,
		"42 (node) S",
		"42 (node) S 41 42",
		"42 (node) S x1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 123456 1000",
		"",
	};
	struct tlog log = {0};

	(void)state;
	assert_int_equal(sysconf(_SC_CLK_TCK), 100);
	for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		show_stat(&log, lines[i], strlen(lines[i]));
	assert_log(&log, "42 41 1234560000000 node\n"
			 "42 41 1234560000000 a) R 7 (b)\n"
			 "42 41 1234560000000 x (y) z\n"
			 "42 41 1234560000000 \\xff\\x0a\\x01\n"
			 "42 41 1234560000000 \n"
			 "bad\nbad\nbad\nbad\nbad\nbad\n");
	tlog_free(&log);
}

static void a_stat_line_cut_anywhere(void **state)
{
	static const char line[] = "42 (a) b) " REST;
	struct tlog log = {0};

	(void)state;
	for (size_t len = 0; len < sizeof(line); len++)
		show_stat(&log, line, len);
	assert_null(strchr(log.text, '?'));
	tlog_free(&log);
}

/* --- processes --------------------------------------------------------------------------------------------------- */

/* A child that waits; `how` prepares it. */
static pid_t start(void (*how)(void))
{
	int ready[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		if (how)
			how();
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void odd_name(void)
{
	prctl(PR_SET_NAME, "a) (b \n\xfe");
}

static void reading_a_process(void **state)
{
	char self[512];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	pid_t pid = start(odd_name);

	(void)state;
	assert_true(len > 0);
	self[len] = '\0';
	assert_int_equal(target_read(pid, &proc), 0);
	assert_int_equal(proc.pid, pid);
	assert_int_equal(proc.ppid, getpid());
	assert_string_equal(proc.comm, "a) (b \n\xfe");
	assert_string_equal(proc.exe, self);
	assert_true(proc.args_len > 0 && proc.args[proc.args_len - 1] != '\0');
	assert_true(proc.start_ns > 0);
	assert_true(target_start_matches(&proc, proc.start_ns));
	assert_true(target_start_matches(&proc, proc.start_ns + 9999999));
	assert_false(target_start_matches(&proc, proc.start_ns + 10000000));
	assert_false(target_start_matches(&proc, proc.start_ns - 1));
	stop(pid);
	assert_int_equal(target_read(pid, &proc), -ENOENT);
	assert_int_equal(target_read(INT_MAX, &proc), -ENOENT);
	assert_int_equal(target_read(2147483, &proc) == 0, access("/proc/2147483", F_OK) == 0);
}

/* A program with this environment, whose parent has this name. Its pid comes through `to`. */
static void start_codex(const char *name, char *const env[], int to)
{
	char *argv[] = {"sleep", "60", NULL};
	pid_t pid;

	prctl(PR_SET_NAME, name);
	pid = fork();
	if (!pid) {
		execve("/bin/sleep", argv, env);
		_exit(127);
	}
	if (write(to, &pid, sizeof(pid)) != sizeof(pid))
		_exit(1);
	waitpid(pid, NULL, 0);
	_exit(0);
}

/* Once it sleeps: its environment is another one before its exec, and none at all in it. */
static int tool_call_of(const char *name, char *const env[], int64_t off_ns, char *out, size_t size)
{
	int to[2], err = -ENOENT;
	pid_t parent, pid = 0;

	assert_int_equal(pipe(to), 0);
	parent = fork();
	if (!parent)
		start_codex(name, env, to[1]);
	assert_int_equal(read(to[0], &pid, sizeof(pid)), sizeof(pid));
	for (int i = 0; i < 5000 && (target_read(pid, &proc) || strcmp(proc.comm, "sleep") || proc.state != 'S'); i++)
		usleep(1000);
	assert_string_equal(proc.comm, "sleep");
	err = target_tool_call(pid, proc.start_ns + (uint64_t)off_ns, out, size);
	kill(pid, SIGKILL);
	waitpid(parent, NULL, 0);
	close(to[0]);
	close(to[1]);
	return err;
}

/* Of children of Codex; that one variable and nothing else. */
static void tool_call_ids(void **state)
{
	static char filler[9000];
	char *plain[] = {"PATH=/bin", "CODEX_TOOL_CALL_ID=call_1", "LATER=x", NULL};
	char *behind[] = {filler, "CODEX_TOOL_CALL_IDS=no", "XCODEX_TOOL_CALL_ID=no", "CODEX_TOOL_CALL_ID=call_2",
			  NULL};
	char *none[] = {"CODEX_TOOL_CALL=no", "CODEX_TOOL_CALL_ID", NULL};
	char *empty[] = {"CODEX_TOOL_CALL_ID=", NULL};
	char *nothing[] = {NULL};
	char id[16];

	(void)state;
	memset(filler, 'f', sizeof(filler) - 1);
	assert_int_equal(tool_call_of("codex", plain, 0, id, sizeof(id)), 0);
	assert_string_equal(id, "call_1");
	for (size_t cut = 1; cut < 40; cut++) { /* the variable at the end of a piece that is read */
		filler[4096 - cut] = '\0';
		assert_int_equal(tool_call_of("codex-exec", behind, 0, id, sizeof(id)), 0);
		assert_string_equal(id, "call_2");
		filler[4096 - cut] = 'f';
	}
	assert_int_equal(tool_call_of("codex", plain, 0, id, 6), -E2BIG);
	assert_string_equal(id, "");
	assert_int_equal(tool_call_of("bash", plain, 0, id, sizeof(id)), -ENOENT);
	assert_int_equal(tool_call_of("codex", plain, -1000000000, id, sizeof(id)), -ENOENT);
	assert_int_equal(tool_call_of("codex", none, 0, id, sizeof(id)), -ENOENT);
	assert_int_equal(tool_call_of("codex", empty, 0, id, sizeof(id)), -ENOENT);
	assert_int_equal(tool_call_of("codex", nothing, 0, id, sizeof(id)), -ENOENT);
	assert_int_equal(target_tool_call(INT_MAX, 0, id, sizeof(id)), -ENOENT);
}

static pid_t grandchild;
static int grandchild_pipe[2];

static void make_child(void)
{
	grandchild = start(NULL);
	if (write(grandchild_pipe[1], &grandchild, sizeof(grandchild)) != sizeof(grandchild))
		_exit(1);
}

struct seen {
	pid_t pids[64];
	unsigned count;
	pid_t stop_at;
};

static void see_tree(void *ctx, const struct proc_stat *p)
{
	struct seen *s = ctx;

	if (s->count < 64)
		s->pids[s->count++] = p->pid;
}

static bool see_each(void *ctx, const struct proc_stat *p)
{
	struct seen *s = ctx;

	s->count++;
	return p->pid != s->stop_at;
}

static void a_tree_parents_first(void **state)
{
	struct target_family *family;
	struct seen s = {0};
	bool hit = true;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(grandchild_pipe), 0);
	pid = start(make_child);
	assert_int_equal(read(grandchild_pipe[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	assert_int_equal(target_tree(pid, see_tree, &s), 0);
	assert_int_equal(s.count, 2);
	assert_int_equal(s.pids[0], pid);
	assert_int_equal(s.pids[1], grandchild);
	for (unsigned n = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = target_tree(pid, see_tree, &s);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
	}
	family = target_family_read();
	assert_non_null(family);
	s = (struct seen){0};
	assert_int_equal(target_family_tree(family, grandchild, 0, see_tree, &s), 0);
	assert_int_equal(target_family_tree(family, pid, 0, see_tree, &s), 0);
	assert_int_equal(s.count, 3);
	assert_true(s.pids[0] == grandchild && s.pids[1] == pid && s.pids[2] == grandchild);
	kill(grandchild, SIGKILL);
	stop(pid);
	assert_int_equal(target_tree(pid, see_tree, &s), -ENOENT);
	assert_int_equal(target_family_tree(family, pid, 0, see_tree, &s), -ENOENT);
	target_family_free(family);
	s = (struct seen){.stop_at = getpid()};
	assert_int_equal(target_each(see_each, &s), 0);
	assert_true(s.count >= 1);
}

/* A child that has this number; 0: one may not choose. */
static pid_t start_as(pid_t pid)
{
	struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
	long child = syscall(SYS_clone3, &args, sizeof(args));

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child > 0 ? (pid_t)child : 0;
}

static void a_tree_without_numbers_used_again(void **state)
{
	struct target_family *family, *later;
	struct seen s = {0};
	pid_t pid = start(NULL), again;
	uint64_t start_ns;

	(void)state;
	family = target_family_read();
	assert_non_null(family);
	start_ns = target_family_start(family, pid);
	assert_true(start_ns != 0);
	stop(pid);
	usleep(50000); /* start times are told in clock ticks */
	again = start_as(pid);
	if (again) {
		assert_int_equal(target_family_tree(family, again, 0, see_tree, &s), -ENOENT);
		assert_int_equal(target_family_tree(family, getpid(), 0, see_tree, &s), 0);
		assert_true(s.count == 1 && s.pids[0] == getpid());
		/* Who was chosen before is not who is there in a later list. */
		later = target_family_read();
		assert_non_null(later);
		assert_int_equal(target_family_tree(later, again, start_ns, see_tree, &s), -ENOENT);
		assert_int_equal(target_family_tree(later, again, 0, see_tree, &s), 0);
		target_family_free(later);
		stop(again);
	}
	target_family_free(family);
	if (!again) {
		print_message("# numbers cannot be chosen here\n");
		skip();
	}
}

/* --- by name ----------------------------------------------------------------------------------------------------- */

#define ARGS(text) ((struct sv){text, sizeof(text) - 1})

static void names(void **state)
{
	static const struct {
		const char *pattern;
		struct sv exe, args;
		bool match;
	} cases[] = {
		{"^node$", SV("/usr/bin/node"), ARGS("node\0/srv/app.js"), true},
		{"^node$", SV("/usr/lib/node/bin/other"), ARGS("other"), false}, /* a directory is not the name */
		{"node", SV("/usr/bin/python3"), ARGS("python3\0node.py"), true},
		{"^claude$", SV("/usr/bin/node"), ARGS("node\0/usr/local/bin/claude\0--print"), true},
		{"^claude$", SV("/usr/bin/node"), ARGS("node\0--max-old-space-size=4096\0/opt/claude"), true},
		{"^claude$", SV("/usr/bin/python3.11"), ARGS("/usr/bin/python3\0/opt/claude"), true},
		{"^claude$", SV("/usr/bin/grep"), ARGS("grep\0/opt/claude"), false}, /* no interpreter */
		{"app\\.js --port 80", SV("/usr/bin/node"), ARGS("node\0app.js\0--port\00080"), true},
		{"codex|gemini", SV("/opt/gemini"), ARGS("/opt/gemini"), true},
		{"codex|gemini", SV("/opt/claude"), ARGS("/opt/claude"), false},
		{"x", SV_NONE, SV_NONE, false},
		{".*", SV_NONE, SV_NONE, false}, /* a kernel thread: nothing to match */
		{"^kworker", SV_NONE, ARGS(""), false},
	};
	char why[128];

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct target_filter f;

		assert_int_equal(target_filter_init(&f, cases[i].pattern, why, sizeof(why)), 0);
		if (target_filter_match_text(&f, cases[i].exe, cases[i].args) != cases[i].match)
			fail_msg("case %u: %s", i, cases[i].pattern);
		target_filter_release(&f);
	}
}

/* --- who is meant ------------------------------------------------------------------------------------------------ */

struct told {
	pid_t pid, ppid;
	uint64_t start_s;
	struct sv exe, args;
};

static void put(struct target_names *n, const struct told *t)
{
	static struct proc_stat p;

	memset(&p, 0, sizeof(p));
	p.pid = t->pid;
	p.ppid = t->ppid;
	p.start_ns = t->start_s * 1000000000;
	memcpy(p.exe, t->exe.ptr, t->exe.len);
	memcpy(p.args, t->args.ptr, t->args.len);
	p.args_len = t->args.len;
	assert_int_equal(target_names_add(n, &p), 0);
	assert_int_equal(target_names_add(n, &p), 0); /* once */
}

#define SH	  SV("/usr/bin/dash")
#define NODE	  SV("/usr/bin/node")
#define PROCESSES 5

static void wrappers(void **state)
{
	static const struct {
		const char *pattern, *log; /* PID=REAL of wrappers, those that are meant with their reason */
		struct told all[PROCESSES];
	} cases[] = {
		{"agent",
		 "1=2 2:its program's name", /* a shell that carries the name in its command line */
		 {{1, 0, 1, SH, ARGS("sh\0-c\0agent --fast; true")},
		  {2, 1, 1, SV("/opt/agent"), ARGS("agent\0--fast")}}},
		{"agent",
		 "1=3 2=3 3:its program's name", /* npx, its shell, the program */
		 {{1, 0, 1, NODE, ARGS("node\0/usr/bin/npx\0agent")},
		  {2, 1, 9, SH, ARGS("sh\0-c\0agent")},
		  {3, 2, 9, SV("/opt/agent"), ARGS("/opt/agent")}}},
		{"codex",
		 "1=2 2:its program's name", /* a script that starts a native program */
		 {{1, 0, 1, NODE, ARGS("node\0/usr/bin/codex")},
		  {2, 1, 2, SV("/lib/codex-x86_64/codex"), ARGS("/lib/codex-x86_64/codex")}}},
		{"MyApp",
		 "1=2 2:its program's name",
		 {{1, 0, 1, SV("/usr/bin/dotnet"), ARGS("dotnet\0run\0--project\0MyApp")},
		  {2, 1, 30, SV("/src/bin/MyApp"), ARGS("/src/bin/MyApp")}}},
		{"^dotnet$",
		 "1=2 2:the program that starts it", /* what is run has another name */
		 {{1, 0, 1, SV("/usr/bin/dotnet"), ARGS("dotnet\0run")},
		  {2, 1, 30, SV("/src/MyApp"), ARGS("/src/MyApp")}}},
		{"^dotnet$", "1:its program's name", {{1, 0, 1, SV("/usr/bin/dotnet"), ARGS("dotnet\0app.dll")}}},
		{"claude",
		 "1:its script's name 2:its script's name", /* a sub-agent of its own kind */
		 {{1, 0, 1, NODE, ARGS("node\0/usr/bin/claude")}, {2, 1, 5, NODE, ARGS("node\0/usr/bin/claude\0-p")}}},
		{"agent",
		 "1:its script's name 2:its script's name 4:its command line",
		 /* several; a child that it does not name */
		 {{1, 0, 1, NODE, ARGS("node\0agent.js")},
		  {2, 0, 1, SV("/usr/bin/python3"), ARGS("python3\0agent.py")},
		  {3, 1, 2, SV("/usr/bin/git"), ARGS("git\0status")},
		  {4, 0, 2, SV("/usr/bin/tail"), ARGS("tail\0-f\0agent.log")}}},
		{"agent",
		 "1:its script's name", /* a script's work is not what it wraps */
		 {{1, 0, 1, SH, ARGS("sh\0/opt/agent.sh")},
		  {2, 1, 60, SV("/usr/bin/curl"), ARGS("curl\0https://api")}}},
		{"agent",
		 "1=2 2:the program that starts it", /* a script that ends in a program of another name */
		 {{1, 0, 1, SH, ARGS("sh\0/usr/bin/agent")}, {2, 1, 1, NODE, ARGS("node\0main.js")}}},
		{"^bash$",
		 "1:its program's name",
		 {{1, 0, 1, SV("/bin/bash"), ARGS("bash")}, {2, 1, 1, SV("/bin/ls"), ARGS("ls")}}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct target_filter f;
		struct target_names n;
		char log[256] = "", why[64];
		size_t len = 0;

		assert_int_equal(target_filter_init(&f, cases[i].pattern, why, sizeof(why)), 0);
		target_names_init(&n, &f);
		for (size_t k = 0; k < PROCESSES && cases[i].all[k].pid; k++)
			put(&n, &cases[i].all[k]);
		target_names_solve(&n);
		for (size_t k = 0; k < n.count; k++) {
			const struct target_named *t = &n.list[k];

			if (t->wraps)
				len += (size_t)snprintf(log + len, sizeof(log) - len, " %d=%d", t->pid, t->real);
			else if (t->meant)
				len += (size_t)snprintf(log + len, sizeof(log) - len, " %d:%s", t->pid,
							target_by_text(t->by));
		}
		if (strcmp(log + 1, cases[i].log))
			fail_msg("case %zu: '%s' is not '%s'", i, log + 1, cases[i].log);
		target_names_release(&n);
		target_filter_release(&f);
	}
}

/* What /proc shows while processes change: a circle. */
static void wrappers_in_a_circle(void **state)
{
	static const struct told all[] = {{1, 2, 1, SH, ARGS("sh\0-c\0agent")}, {2, 1, 1, SH, ARGS("sh\0-c\0agent")}};
	struct target_filter f;
	struct target_names n;
	char why[64];

	(void)state;
	assert_int_equal(target_filter_init(&f, "agent", why, sizeof(why)), 0);
	target_names_init(&n, &f);
	put(&n, &all[0]);
	put(&n, &all[1]);
	target_names_solve(&n);
	assert_true(n.list[0].meant || n.list[1].meant);
	target_names_release(&n);
	memset(&proc, 0, sizeof(proc));
	fail_nth(1);
	assert_int_equal(target_names_add(&n, &proc), -ENOMEM);
	fail_nth(0);
	target_names_release(&n);
	target_filter_release(&f);
}

static void bad_patterns(void **state)
{
	struct target_filter f;
	char why[128], tall[TARGET_PATTERN_MAX + 1];

	(void)state;
	assert_int_equal(target_filter_init(&f, "(", why, sizeof(why)), -EINVAL);
	assert_true(why[0] != '\0');
	target_filter_release(&f);
	assert_int_equal(target_filter_init(&f, "", why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "the pattern is empty");
	memset(tall, 'a', sizeof(tall) - 1);
	tall[sizeof(tall) - 1] = '\0';
	assert_int_equal(target_filter_init(&f, tall, why, sizeof(why)), -EINVAL);
}

/* A shell runs this program as `… starters PATTERN`; it says which of its ancestors the filter would take. */
static int report_starters(const char *pattern)
{
	struct target_filter f;
	pid_t pid = getpid();
	char why[64];

	if (target_filter_init(&f, pattern, why, sizeof(why)))
		return 99;
	for (unsigned i = 0; i < 3 && pid > 1 && !target_read(pid, &proc); i++) {
		printf("%d", target_filter_match(&f, pid, sv_of(proc.exe), (struct sv){proc.args, proc.args_len}));
		pid = proc.ppid;
	}
	printf("\n");
	target_filter_release(&f);
	return 0;
}

/* The command finds this program in $SELF and the pattern in $PATTERN, so that neither is in its own text. */
static void run_starters(const char *command, const char *pattern, char *out, size_t size)
{
	char self[512];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	FILE *p;

	assert_true(len > 0);
	self[len] = '\0';
	setenv("SELF", self, 1);
	setenv("PATTERN", pattern, 1);
	setenv("INNER", "\"$SELF\" starters \"$PATTERN\"; true", 1);
	p = popen(command, "re");
	assert_non_null(p);
	out[0] = '\0';
	assert_non_null(fgets(out, (int)size, p));
	out[strcspn(out, "\n")] = '\0';
	assert_int_equal(pclose(p), 0);
}

static void never_its_own_starters(void **state)
{
	char out[16];

	(void)state;
	if (access("/bin/bash", X_OK))
		skip();
	/* the program itself, though its name matches; and the test above, which started it, is a target like any other
	 */
	run_starters("exec \"$SELF\" starters \"$PATTERN\"", "^target$", out, sizeof(out));
	assert_true(out[0] == '0' && out[1] == '1');
	/* the shell right above is never meant, though its name matches */
	run_starters("exec /bin/bash -c '\"$SELF\" starters \"$PATTERN\"; true'", "^bash$", out, sizeof(out));
	assert_true(out[0] == '0' && out[1] == '0');
	/* but one further up is */
	run_starters("exec /bin/bash -c 'sh -c \"$INNER\"; true'", "^bash$", out, sizeof(out));
	assert_memory_equal(out, "001", 3);
	/* unless its command line carries the invocation, as that of sudo and of `bash -c` does */
	run_starters("exec /bin/bash -c 'sh -c \"$INNER\"; true; : target -n zzqq.*'", "zzqq.*", out, sizeof(out));
	assert_memory_equal(out, "000", 3);
}

/* --- ld.so.cache ------------------------------------------------------------------------------------------------- */

struct cache {
	uint8_t bytes[1024];
	size_t len, strings;
};

/* As ldconfig writes it; `skip` bytes of the older table before. */
static void cache_begin(struct cache *c, size_t skip, uint32_t count)
{
	memset(c, 0, sizeof(*c));
	if (skip) {
		uint32_t old = 1;

		memcpy(c->bytes, "ld.so-1.7.0", 12);
		memcpy(c->bytes + 12, &old, 4);
	}
	memcpy(c->bytes + skip, "glibc-ld.so.cache1.1", 20);
	memcpy(c->bytes + skip + 20, &count, 4);
	c->strings = 48 + count * 24;
	c->len = skip + c->strings;
}

static void cache_add(struct cache *c, size_t skip, unsigned i, int32_t flags, const char *soname, const char *path)
{
	uint8_t *entry = c->bytes + skip + 48 + i * 24;
	uint32_t key = (uint32_t)(c->len - skip), value;

	memcpy(c->bytes + c->len, soname, strlen(soname) + 1);
	c->len += strlen(soname) + 1;
	value = (uint32_t)(c->len - skip);
	memcpy(c->bytes + c->len, path, strlen(path) + 1);
	c->len += strlen(path) + 1;
	memcpy(entry, &flags, 4);
	memcpy(entry + 4, &key, 4);
	memcpy(entry + 8, &value, 4);
}

static int log_library(void *ctx, const char *soname, const char *path)
{
	tlog_printf(ctx, "%s %s\n", soname, path);
	return 0;
}

static int stop_here(void *ctx, const char *soname, const char *path)
{
	(void)ctx, (void)soname, (void)path;
	return 7;
}

static void make_cache(struct cache *c, size_t skip)
{
	cache_begin(c, skip, 4);
	cache_add(c, skip, 0, 0x0303, "libssl.so.3", "/lib/x/libssl.so.3");
	cache_add(c, skip, 1, 0x0003, "libssl.so.3", "/lib/i386/libssl.so.3"); /* 32-bit */
	cache_add(c, skip, 2, 0x0a03, "libssl.so.3", "/lib/arm/libssl.so.3");
	cache_add(c, skip, 3, 0x0303, "libz.so.1", "/lib/x/libz.so.1");
}

static void cache_files(void **state)
{
	static struct cache c;
	uint32_t out_of_file = 5000;

	(void)state;
	for (size_t skip = 0; skip <= 32; skip += 32) {
		struct tlog log = {0};

		make_cache(&c, skip);
		assert_int_equal(ldcache_each(c.bytes, c.len, EM_X86_64, log_library, &log), 0);
		assert_log(&log, "libssl.so.3 /lib/x/libssl.so.3\nlibz.so.1 /lib/x/libz.so.1\n");
		tlog_free(&log);
		assert_int_equal(ldcache_each(c.bytes, c.len, EM_AARCH64, log_library, &log), 0);
		assert_log(&log, "libssl.so.3 /lib/arm/libssl.so.3\n");
		tlog_free(&log);
		assert_int_equal(ldcache_each(c.bytes, c.len, EM_X86_64, stop_here, NULL), 7);
	}
	make_cache(&c, 0);
	memcpy(c.bytes + 48 + 4, &out_of_file, 4);
	{
		struct tlog log = {0};

		assert_int_equal(ldcache_each(c.bytes, c.len, EM_X86_64, log_library, &log), -EBADMSG);
		assert_log(&log, "libz.so.1 /lib/x/libz.so.1\n"); /* the others are still read */
		tlog_free(&log);
	}
}

static void a_cache_cut_or_changed_anywhere(void **state)
{
	static struct cache c;
	struct guard g = {0};

	(void)state;
	make_cache(&c, 32);
	for (size_t len = 0; len <= c.len; len++) {
		struct tlog log = {0};

		ldcache_each(guard_copy(&g, c.bytes, len), len, EM_X86_64, log_library, &log);
		tlog_free(&log);
	}
	for (size_t at = 0; at < c.len; at++)
		for (unsigned v = 0; v < 4; v++) {
			struct tlog log = {0};
			uint8_t *p = (uint8_t *)(uintptr_t)guard_copy(&g, c.bytes, c.len);

			p[at] = (uint8_t[]){0, 1, 0x80, 0xff}[v];
			ldcache_each(p, c.len, EM_X86_64, log_library, &log);
			tlog_free(&log);
		}
	guard_free(&g);
}

/* --- files of a command ------------------------------------------------------------------------------------------ */

static void log_path(void *ctx, const char *path)
{
	tlog_printf(ctx, "%s\n", path);
}

static bool has_line(const struct tlog *log, const char *part)
{
	return log->text && strstr(log->text, part);
}

static unsigned repeated_lines(const struct tlog *log)
{
	unsigned repeated = 0;
	char *copy = strdup(log->text), *rest = copy, *line;

	assert_non_null(copy);
	while ((line = strsep(&rest, "\n")))
		for (char *at = line[0] && rest ? strstr(rest, line) : NULL; at; at = strstr(at + 1, line))
			repeated += (at == rest || at[-1] == '\n') && at[strlen(line)] == '\n';
	free(copy);
	return repeated;
}

static void files(struct tlog *log, const char *program, int expect)
{
	tlog_free(log);
	*log = (struct tlog){0};
	assert_int_equal(target_files_of_command(program, log_path, log), expect);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

struct shortened {
	const char *path;
	unsigned calls;
};

/* What is told second is what the program needs: it is being read. */
static void shorten(void *ctx, const char *path)
{
	struct shortened *s = ctx;

	(void)path;
	if (++s->calls == 2)
		assert_int_equal(truncate(s->path, 0), 0);
}

static void a_program_that_becomes_shorter(void **state)
{
	char dir[] = "/tmp/perfbpf-target-XXXXXX", path[256], command[512];
	struct shortened s = {.path = path};

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/program", dir);
	snprintf(command, sizeof(command), "cp -L /bin/sh %s", path);
	assert_int_equal(system(command), 0);
	assert_int_equal(target_files_of_command(path, shorten, &s), 0);
	assert_true(s.calls >= 2);
	unlink(path);
	rmdir(dir);
}

static void files_of_programs(void **state)
{
	char dir[] = "/tmp/perfbpf-target-XXXXXX", path[256], inner[256], text[512];
	struct tlog log = {0};

	(void)state;
	assert_non_null(mkdtemp(dir));
	files(&log, "sh", 0);
	assert_true(has_line(&log, "/libc.so.6\n"));
	assert_true(has_line(&log, "/ld-linux")); /* the program interpreter */
	assert_int_equal(repeated_lines(&log), 0);

	/* a script of a script, by way of env */
	snprintf(path, sizeof(path), "%s/script", dir);
	write_file(path, "#!/usr/bin/env -S X=1 sh -e\ntrue\n", 0755);
	files(&log, path, 0);
	assert_true(has_line(&log, "/libc.so.6\n"));
	assert_false(has_line(&log, "script\n"));
	snprintf(inner, sizeof(inner), "%s/outer", dir);
	snprintf(text, sizeof(text), "#! %s\n", path);
	write_file(inner, text, 0755);
	files(&log, inner, 0);
	assert_true(has_line(&log, "/libc.so.6\n"));

	/* what execvp() would say */
	snprintf(path, sizeof(path), "%s/plain", dir);
	write_file(path, "#!/bin/sh\n", 0644);
	files(&log, path, -EACCES);
	files(&log, dir, -EACCES);
	files(&log, "perfbpf-no-such-program", -ENOENT);
	files(&log, "/perfbpf/no/such/program", -ENOENT);
	files(&log, "", -ENOENT);

	/* an interpreter that is not there: nothing to find, nothing to say */
	write_file(path, "#!/perfbpf/none\n", 0755);
	files(&log, path, 0);
	write_file(path, "#!", 0755);
	files(&log, path, 0);
	tlog_free(&log);
	snprintf(text, sizeof(text), "rm -rf %s", dir);
	assert_int_equal(system(text), 0);
}

/* A library in a directory of its own, found by $ORIGIN as ld.so does. */
static void run_paths(void **state)
{
	char dir[] = "/tmp/perfbpf-target-XXXXXX", text[2048], path[256];
	struct tlog log = {0};

	(void)state;
	if (system("cc --version > /dev/null 2>&1")) {
		print_message("# no cc\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(
		text, sizeof(text),
		"cd %s && mkdir lib && echo 'int one(void); int one(void) { return 1; }' > one.c && "
		"cc -shared -fPIC -o lib/libperfbpfone.so one.c && "
		"echo 'int one(void); int main(void) { return one(); }' > main.c && "
		"cc -o runpath main.c -Llib -lperfbpfone -Wl,--enable-new-dtags,-rpath,'$ORIGIN/none:${ORIGIN}/lib' && "
		"cc -o rpath main.c -Llib -lperfbpfone -Wl,--disable-new-dtags,-rpath,'$ORIGIN/lib' && "
		"cc -o bare main.c -Llib -lperfbpfone",
		dir);
	assert_int_equal(system(text), 0);
	snprintf(path, sizeof(path), "%s/runpath", dir);
	files(&log, path, 0);
	assert_true(has_line(&log, "/lib/libperfbpfone.so\n"));
	snprintf(path, sizeof(path), "%s/rpath", dir);
	files(&log, path, 0);
	assert_true(has_line(&log, "/lib/libperfbpfone.so\n"));
	snprintf(path, sizeof(path), "%s/bare", dir);
	files(&log, path, 0);
	assert_false(has_line(&log, "libperfbpfone"));
	snprintf(text, sizeof(text), "%s/lib", dir);
	setenv("LD_LIBRARY_PATH", text, 1);
	files(&log, path, 0);
	assert_true(has_line(&log, "/lib/libperfbpfone.so\n"));
	unsetenv("LD_LIBRARY_PATH");
	tlog_free(&log);
	snprintf(text, sizeof(text), "rm -rf %s", dir);
	assert_int_equal(system(text), 0);
}

/* A file that says that it is a program, `size` bytes long. */
static void write_native(const char *dir, const char *name, unsigned machine, off_t size, mode_t mode)
{
	Elf64_Ehdr head = {.e_ident = ELFMAG, .e_machine = (Elf64_Half)machine};
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(&head, sizeof(head), 1, f), 1);
	fclose(f);
	assert_int_equal(truncate(path, size), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void package(struct tlog *log, const char *dir, const char *program, int expect)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, program);
	tlog_free(log);
	*log = (struct tlog){0};
	assert_int_equal(target_files_of_package(path, log_path, log), expect);
}

#ifdef __aarch64__
#define OUR_MACHINE   EM_AARCH64
#define OTHER_MACHINE EM_X86_64
#else
#define OUR_MACHINE   EM_X86_64
#define OTHER_MACHINE EM_AARCH64
#endif

/* Wrappers as npm installs them: a script in .bin that is a link, and the program in a package beside or below. */
static void files_of_packages(void **state)
{
	char dir[] = "/tmp/perfbpf-target-XXXXXX", text[1024];
	struct tlog log = {0};

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(
		text, sizeof(text),
		"cd %s && mkdir -p m/node_modules/.bin m/node_modules/@s/agent/bin m/node_modules/@s/agent-linux/a/b "
		"m/node_modules/@s/other m/node_modules/plain/node_modules/plain-linux m/node_modules/plain-win && "
		"echo '#!/bin/sh' > m/node_modules/@s/agent/bin/agent.js && "
		"echo '#!/bin/sh' > m/node_modules/plain/run && echo '#!/bin/sh' > m/alone && "
		"ln -s ../@s/agent/bin/agent.js m/node_modules/.bin/agent && ln -s ../.. m/node_modules/@s/agent/up && "
		"chmod +x m/alone m/node_modules/plain/run m/node_modules/@s/agent/bin/agent.js",
		dir);
	assert_int_equal(system(text), 0);
	write_native(dir, "m/node_modules/@s/agent-linux/a/b/program", OUR_MACHINE, 2 << 20, 0755);
	write_native(dir, "m/node_modules/@s/agent-linux/a/agent", OUR_MACHINE, 2 << 20, 0755);
	write_native(dir, "m/node_modules/@s/agent-linux/a/small", OUR_MACHINE, 4096, 0755);
	write_native(dir, "m/node_modules/@s/agent-linux/a/foreign", OTHER_MACHINE, 2 << 20, 0755);
	write_native(dir, "m/node_modules/@s/agent-linux/a/data", OUR_MACHINE, 2 << 20, 0644);
	write_native(dir, "m/node_modules/@s/agent/addon.node", OUR_MACHINE, 2 << 20, 0644);
	write_native(dir, "m/node_modules/@s/other/program", OUR_MACHINE, 2 << 20, 0755);
	write_native(dir, "m/node_modules/plain/node_modules/plain-linux/inner", OUR_MACHINE, 2 << 20, 0755);
	write_native(dir, "m/node_modules/plain-win/outer", OUR_MACHINE, 2 << 20, 0755);

	package(&log, dir, "m/node_modules/.bin/agent", 0);
	assert_true(has_line(&log, "/m/node_modules/@s/agent-linux/a/b/program\n"));
	assert_true(has_line(&log, "/m/node_modules/@s/agent/addon.node\n"));
	/* the one that is named as the package comes first */
	assert_memory_equal(strchr(log.text, '\n') - 8, "/a/agent\n", 9);
	fail_nth(1);
	snprintf(text, sizeof(text), "%s/m/node_modules/.bin/agent", dir);
	assert_int_equal(target_files_of_package(text, log_path, &(struct tlog){0}), -ENOMEM);
	assert_true(fail_nth_hit());
	fail_nth(0);
	for (unsigned i = 0; i < 4; i++)
		assert_false(has_line(&log, (const char *[]){"small", "foreign", "data", "other"}[i]));
	package(&log, dir, "m/node_modules/plain/run", 0);
	assert_true(has_line(&log, "/plain/node_modules/plain-linux/inner\n"));
	assert_true(has_line(&log, "/m/node_modules/plain-win/outer\n"));
	assert_false(has_line(&log, "agent"));
	assert_int_equal(repeated_lines(&log), 0);

	/* a program itself, if it is large; what no package has */
	package(&log, dir, "m/node_modules/@s/agent-linux/a/b/program", 0);
	assert_true(has_line(&log, "/m/node_modules/@s/agent-linux/a/b/program\n"));
	package(&log, dir, "m/node_modules/@s/agent-linux/a/small", 0);
	assert_null(log.text);
	package(&log, dir, "m/alone", 0);
	assert_null(log.text);
	package(&log, dir, "m/none", -ENOENT);

	/* no more than a few */
	for (unsigned i = 0; i < 12; i++) {
		snprintf(text, sizeof(text), "m/node_modules/plain-win/%u", i);
		write_native(dir, text, OUR_MACHINE, 2 << 20, 0755);
	}
	package(&log, dir, "m/node_modules/plain/run", 0);
	unsigned lines = 0;
	for (const char *c = log.text; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 8);
	tlog_free(&log);
	snprintf(text, sizeof(text), "rm -rf %s", dir);
	assert_int_equal(system(text), 0);
}

static void on_word(void *ctx, const char *word)
{
	tlog_printf(ctx, "%s ", word);
}

static void words(void **state)
{
	static const struct {
		const char *argv[8], *golden;
	} all[] = {
		{{"env"}, ""},
		{{"timeout", "-k", "5", "20", "codex", "exec"}, "5 20 codex exec "},
		{{"sh", "-c", "cd /x && exec \"/opt/a b/claude\" -p hi;codex"}, "cd /x exec /opt/a b/claude hi codex "},
		{{"bash", "-lc", "codex"}, "codex "},
		{{"tool", "--exec", "a b"}, "a b "}, /* one word */
		{{"env", "run.py", "codex"}, "run.py import subprocess subprocess.run claude codex "},
		{{"./start", "x"}, "/bin/sh codex x "},
		{{"tool", "binary", "fifo", ".", "none"}, "binary fifo . none "},
	};
	char dir[] = "/tmp/perfbpf-words-XXXXXX", text[8 * TARGET_WORDS_MAX] = "#!/bin/sh\n";
	char *argv[] = {(char *)"sh", (char *)"many", NULL};
	struct tlog log = {0};
	unsigned count = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	write_file("run.py", "import subprocess\nsubprocess.run(['claude', '-p'])\n", 0644);
	write_file("start", "#!/bin/sh\ncodex\n", 0755);
	write_native(".", "binary", OUR_MACHINE, 4096, 0755);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		target_words((char *const *)all[i].argv, on_word, &log);
		assert_string_equal(log.text ? log.text : "", all[i].golden);
		tlog_free(&log);
		log = (struct tlog){0};
	}
	for (unsigned i = 0; i < 2 * TARGET_WORDS_MAX; i++)
		strcat(text, "a\n");
	write_file("many", text, 0644);
	target_words(argv, on_word, &log);
	for (const char *c = log.text; *c; c++)
		count += *c == ' ';
	assert_int_equal(count, TARGET_WORDS_MAX);
	tlog_free(&log);
	assert_int_equal(chdir("/"), 0);
	snprintf(text, sizeof(text), "rm -rf %s", dir);
	assert_int_equal(system(text), 0);
}

static void tls_libraries_of_the_system(void **state)
{
	struct tlog tls = {0}, log = {0};

	(void)state;
	target_system_tls(log_path, &tls);
	if (!access("/usr/lib/x86_64-linux-gnu/libssl.so.3", R_OK))
		assert_true(has_line(&tls, "/libssl.so.3"));
	if (!tls.text)
		skip();
	assert_int_equal(repeated_lines(&tls), 0);
	/* an interpreter may load any of them later */
	files(&log, "sh", 0);
	for (char *line = strtok(tls.text, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(has_line(&log, line));
	tlog_free(&tls);
	tlog_free(&log);
}

static void no_memory(void **state)
{
	bool hit = true;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		struct tlog log = {0};
		int err;

		fail_nth(n);
		err = target_files_of_command("sh", log_path, &log);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		tlog_free(&log);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stat_lines),
		cmocka_unit_test(a_stat_line_cut_anywhere),
		cmocka_unit_test(reading_a_process),
		cmocka_unit_test(tool_call_ids),
		cmocka_unit_test(a_tree_parents_first),
		cmocka_unit_test(a_tree_without_numbers_used_again),
		cmocka_unit_test(names),
		cmocka_unit_test(bad_patterns),
		cmocka_unit_test(wrappers),
		cmocka_unit_test(wrappers_in_a_circle),
		cmocka_unit_test(never_its_own_starters),
		cmocka_unit_test(cache_files),
		cmocka_unit_test(a_cache_cut_or_changed_anywhere),
		cmocka_unit_test(files_of_programs),
		cmocka_unit_test(a_program_that_becomes_shorter),
		cmocka_unit_test(run_paths),
		cmocka_unit_test(files_of_packages),
		cmocka_unit_test(words),
		cmocka_unit_test(tls_libraries_of_the_system),
		cmocka_unit_test(no_memory),
	};

	if (argc == 3 && !strcmp(argv[1], "starters"))
		return report_starters(argv[2]);
	return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
