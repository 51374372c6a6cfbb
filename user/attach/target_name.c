/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes by name, and which of those that carry it is meant. */
#include "target.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"

#define ANCESTORS_MAX	   64
#define COMMAND_LINE_BYTES (sizeof(((struct proc_stat *)0)->args) + 1)
#define SOON_NS		   1000000000ull /* a shell that starts its program does so at once */

int target_filter_init(struct target_filter *f, const char *pattern, char *why, size_t why_size)
{
	int err;

	memset(f, 0, sizeof(*f));
	f->self = getpid();
	if (why_size)
		why[0] = '\0';
	if (!pattern[0] || strlen(pattern) >= sizeof(f->pattern)) {
		snprintf(why, why_size, "%s", pattern[0] ? "the pattern is too long" : "the pattern is empty");
		return -EINVAL;
	}
	snprintf(f->pattern, sizeof(f->pattern), "%s", pattern);
	err = regcomp(&f->re, pattern, REG_EXTENDED | REG_NOSUB);
	if (!err)
		return 0;
	if (why_size)
		regerror(err, &f->re, why, why_size);
	return -EINVAL;
}

void target_filter_release(struct target_filter *f)
{
	if (f->pattern[0])
		regfree(&f->re);
	memset(f, 0, sizeof(*f));
}

static struct sv basename_of(struct sv path)
{
	const char *slash = path.len ? memrchr(path.ptr, '/', path.len) : NULL;

	return slash ? (struct sv){slash + 1, path.len - (size_t)(slash + 1 - path.ptr)} : path;
}

/* NUL-separated arguments as one line; regexec wants a NUL at the end. */
static void join(char *out, size_t size, struct sv args)
{
	size_t len = args.len < size - 1 ? args.len : size - 1;

	for (size_t i = 0; i < len; i++)
		out[i] = args.ptr[i] ? args.ptr[i] : ' ';
	out[len] = '\0';
}

static bool matches(const struct target_filter *f, struct sv text)
{
	char line[COMMAND_LINE_BYTES];

	if (!text.len)
		return false;
	join(line, sizeof(line), text);
	return regexec(&f->re, line, 0, NULL, 0) == 0;
}

static bool one_of(struct sv name, const char *const *names, unsigned count)
{
	if (name.len && name.ptr[0] == '-')
		name.ptr++, name.len--; /* a login shell */
	for (unsigned i = 0; i < count; i++)
		if (sv_eq(name, sv_of(names[i])))
			return true;
	return false;
}

/* python3.11 -> python */
static struct sv without_version(struct sv name)
{
	while (name.len && (isdigit((unsigned char)name.ptr[name.len - 1]) || name.ptr[name.len - 1] == '.'))
		name.len--;
	return name;
}

static bool is_interpreter(struct sv program)
{
	static const char *const interpreters[] = {"node", "nodejs", "bun",  "deno", "python", "pypy", "ruby", "perl",
						   "php",  "lua",    "bash", "sh",   "dash",   "zsh",  "ksh",  "fish"};

	return one_of(without_version(program), interpreters, ARRAY_SIZE(interpreters));
}

/* The script that an interpreter runs: its first argument that is no option. */
static struct sv script_of(struct sv exe, struct sv args)
{
	struct sv rest, arg = sv_cut(args, '\0', &rest);

	if (!is_interpreter(basename_of(exe.len ? exe : arg)))
		return SV_NONE;
	while (rest.ptr) {
		arg = sv_cut(rest, '\0', &rest);
		if (arg.len && arg.ptr[0] != '-')
			return arg;
	}
	return SV_NONE;
}

bool target_filter_match_text(const struct target_filter *f, struct sv exe, struct sv args)
{
	return matches(f, basename_of(exe)) || matches(f, args) || matches(f, basename_of(script_of(exe, args)));
}

static const char *const elevators[] = {"sudo", "su",	"doas", "pkexec",  "runuser",
					"env",	"nice", "time", "timeout", "setsid"};
static const char *const shells[] = {"sh",   "bash", "dash",	"zsh", "ksh", "mksh",
				     "fish", "ash",  "busybox", "csh", "tcsh"};

/* "sudo perfbpf -n PATTERN", "bash -c '… perfbpf -n PATTERN …'" */
static bool carries_invocation(const struct target_filter *f, const struct proc_stat *self, const struct proc_stat *p)
{
	struct sv rest, name = basename_of(sv_cut((struct sv){self->args, self->args_len}, '\0', &rest));
	char line[COMMAND_LINE_BYTES];

	join(line, sizeof(line), (struct sv){p->args, p->args_len});
	return name.len && memmem(line, strlen(line), name.ptr, name.len) && strstr(line, f->pattern);
}

/* Ourselves, a part of us (keeper.h), or one of those that started us and are no target for it: the sudo-like ones and
 * the shell right above, and anyone whose command line holds ours. An agent that runs perfbpf on itself is none of
 * these. */
static bool is_our_starter(const struct target_filter *f, pid_t pid)
{
	struct proc_stat self, p;
	bool direct = true; /* nothing but elevators between it and us */

	if (pid == f->self || (!target_read(pid, &p) && p.ppid == f->self))
		return true;
	if (target_read(f->self, &self))
		return false;
	p = self;
	for (unsigned i = 0; i < ANCESTORS_MAX && p.ppid > 0; i++) {
		bool shell, elevator;
		struct sv rest, name;

		if (target_read(p.ppid, &p))
			return false;
		name = basename_of(p.exe[0] ? sv_of(p.exe) : sv_cut((struct sv){p.args, p.args_len}, '\0', &rest));
		shell = one_of(name, shells, ARRAY_SIZE(shells));
		elevator = one_of(name, elevators, ARRAY_SIZE(elevators));
		if (p.pid == pid)
			return (direct && (shell || elevator)) || carries_invocation(f, &self, &p);
		direct = direct && elevator;
	}
	return false;
}

bool target_filter_match(const struct target_filter *f, pid_t pid, struct sv exe, struct sv args)
{
	return target_filter_match_text(f, exe, args) && !is_our_starter(f, pid);
}

/* --- the one that is meant --------------------------------------------------------------------------------------- */

static struct sv args_of(const struct proc_stat *p)
{
	return (struct sv){p->args, p->args_len};
}

static struct sv program_of(const struct proc_stat *p)
{
	struct sv rest;

	return basename_of(p->exe[0] ? sv_of(p->exe) : sv_cut(args_of(p), '\0', &rest));
}

const char *target_by_text(enum target_by by)
{
	static const char *const texts[] = {"the program that starts it", "its program's name", "its script's name",
					    "its command line"};

	return texts[by];
}

const char *target_starter_text(enum target_starter starter)
{
	static const char *const texts[] = {"", "a shell", "starts another program", "a package runner",
					    "its script starts a native program"};

	return texts[starter];
}

static enum target_by match_of(const struct target_filter *f, const struct proc_stat *p)
{
	if (matches(f, basename_of(sv_of(p->exe))))
		return TARGET_BY_PROGRAM;
	if (matches(f, basename_of(script_of(sv_of(p->exe), args_of(p)))))
		return TARGET_BY_SCRIPT;
	return matches(f, args_of(p)) ? TARGET_BY_COMMAND_LINE : TARGET_BY_NOTHING;
}

/* "dotnet run", "cargo run": programs that start others when they are told so. */
static bool is_told_to_run(struct sv program, struct sv args)
{
	static const char *const programs[] = {"dotnet", "cargo", "go", "uv", "poetry", "pipx", "bun", "deno"};
	static const char *const words[] = {"run", "watch", "exec", "x", "task"};
	struct sv rest;

	sv_cut(args, '\0', &rest);
	return one_of(program, programs, ARRAY_SIZE(programs)) && rest.ptr &&
	       one_of(sv_cut(rest, '\0', &rest), words, ARRAY_SIZE(words));
}

static enum target_starter starter_of(const struct proc_stat *p)
{
	static const char *const runners[] = {"npx",	  "npm",      "pnpm",	    "yarn",
					      "bunx",	  "uvx",      "npx-cli.js", "npm-cli.js",
					      "pnpm.cjs", "pnpx.cjs", "yarn.js",    "corepack"};
	struct sv program = program_of(p), script = basename_of(script_of(sv_of(p->exe), args_of(p)));

	if (one_of(program, shells, ARRAY_SIZE(shells)))
		return TARGET_SHELL;
	if (one_of(program, elevators, ARRAY_SIZE(elevators)))
		return TARGET_ELEVATOR;
	if (one_of(program, runners, ARRAY_SIZE(runners)) || one_of(script, runners, ARRAY_SIZE(runners)) ||
	    is_told_to_run(program, args_of(p)))
		return TARGET_RUNNER;
	return TARGET_NO_STARTER;
}

void target_names_init(struct target_names *n, const struct target_filter *f)
{
	*n = (struct target_names){.filter = f};
}

void target_names_release(struct target_names *n)
{
	free(n->list);
	*n = (struct target_names){.filter = n->filter};
}

/* Room for one more; NULL with *err: 0 when it is there already, or -ENOMEM. */
static struct target_named *add_named(struct target_names *n, pid_t pid, int *err)
{
	*err = 0;
	for (size_t i = 0; i < n->count; i++)
		if (n->list[i].pid == pid)
			return NULL;
	if (!array_grow(&n->list, n->count, &n->room, sizeof(*n->list))) {
		*err = -ENOMEM;
		return NULL;
	}
	return &n->list[n->count++];
}

int target_names_add(struct target_names *n, const struct proc_stat *p)
{
	struct sv program = program_of(p), script = script_of(sv_of(p->exe), args_of(p)), name;
	int err;
	struct target_named *t = add_named(n, p->pid, &err);

	if (!t)
		return err;
	*t = (struct target_named){.pid = p->pid,
				   .ppid = p->ppid,
				   .start_ns = p->start_ns,
				   .by = match_of(n->filter, p),
				   .starter = starter_of(p),
				   .interpreter = is_interpreter(program)};
	name = t->by == TARGET_BY_SCRIPT ? basename_of(script) : program.len ? program : sv_of(p->comm);
	snprintf(t->name, sizeof(t->name), "%.*s", (int)(name.len < 63 ? name.len : 63), name.len ? name.ptr : "");
	return 0;
}

int target_names_keep(struct target_names *n, const struct target_named *gone)
{
	int err;
	struct target_named *t = add_named(n, gone->pid, &err);

	if (t)
		*t = *gone;
	return err;
}

/* The program that this one is there to start; NULL: it is no wrapper. */
static const struct target_named *started_by(const struct target_names *n, const struct target_named *t)
{
	const struct target_named *child = NULL, *matching = NULL;
	unsigned children = 0;

	for (size_t i = 0; i < n->count; i++) {
		const struct target_named *c = &n->list[i];

		if (c->ppid != t->pid || c->pid == t->pid)
			continue;
		children++;
		child = c;
		/* An interpreter's child of its own kind is its worker. */
		if (!matching && c->by && (t->starter || (!c->interpreter && !c->starter)))
			matching = c;
	}
	if (matching)
		return t->starter || t->interpreter ? matching : NULL;
	if (!t->starter || children != 1)
		return NULL;
	if (t->starter == TARGET_RUNNER)
		return child;
	/* One whose own name was given is meant; what a script starts later is its work. */
	return t->by != TARGET_BY_PROGRAM && child->start_ns - t->start_ns <= SOON_NS ? child : NULL;
}

static struct target_named *find_named(const struct target_names *n, pid_t pid)
{
	for (size_t i = 0; i < n->count; i++)
		if (n->list[i].pid == pid)
			return &n->list[i];
	return NULL;
}

void target_names_solve(struct target_names *n)
{
	for (size_t i = 0; i < n->count; i++) {
		struct target_named *t = &n->list[i];
		const struct target_named *child = started_by(n, t);

		t->real = child ? child->pid : t->pid;
		t->wraps = !child ? TARGET_NO_STARTER : t->starter ? t->starter : TARGET_LAUNCHER;
	}
	/* Along the chain to its end; as many steps as there are processes, should /proc have shown a circle. */
	for (size_t i = 0; i < n->count; i++) {
		struct target_named *t = &n->list[i], *real = t;

		for (size_t k = 0; k < n->count && real && real->wraps; k++)
			real = find_named(n, real->real);
		t->real = real ? real->pid : t->pid;
		if (t->by && real)
			real->meant = true;
	}
}
