/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "session_parts.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "privilege.h"

#define HOME_MAX 8 /* versions of one agent at one place */

struct add_ctx {
	struct session *s;
	struct target_names *names; /* of --name; NULL: none */
	unsigned count;
	int err;
};

/* Kernel first, files second: children made in between are followed by the kernel. 0 or -errno. */
static int add_process(struct session *s, const struct proc_stat *p)
{
	struct proc_key key = {.tgid = (uint32_t)p->pid};
	int err;

	if (targets_has(s->targets, (uint32_t)p->pid))
		return 0;
	if (p->state == 'Z' || p->state == 'X')
		return -ESRCH;
	err = probes_identify(s->probes, p->pid, &key.start_ns, &key.exec_id);
	if (!err && !target_start_matches(p, key.start_ns))
		err = -ESRCH; /* its number is another one's by now */
	if (!err)
		err = probes_add_target(s->probes, p->pid, key.start_ns);
	if (!err)
		err = targets_add(s->targets, (uint32_t)p->pid, key.start_ns);
	if (err) {
		log_verbose("pid %d: %s", p->pid, strerror(-err));
		return err;
	}
	if (!s->first.pid)
		s->first = *p;
	capture_make_proc(p, &key, clock_boot_ns(), session_keep, s);
	session_scan_process(s, p->pid);
	return 0;
}

static void on_tree(void *ctx, const struct proc_stat *p)
{
	struct add_ctx *a = ctx;
	int err;

	if (p->ppid == getpid()) /* a part of us (keeper.h), where who started us is a target */
		return;
	err = add_process(a->s, p);
	a->count += !err;
	if (!err && a->names && target_names_add(a->names, p))
		a->err = -ENOMEM;
	/* Of the process that was asked for; its children may come and go. */
	if (err && !a->count)
		a->err = err;
}

struct root { /* of a tree of processes that is asked for */
	pid_t pid;
	uint64_t start_ns; /* as /proc tells it; 0: whoever has that number */
};

struct matching { /* processes that a name means */
	const struct target_filter *filter;
	struct root *roots; /* owned */
	size_t count, room;
	int err;
};

static bool on_every(void *ctx, const struct proc_stat *p)
{
	struct sv args = {p->args, p->args_len};
	struct matching *m = ctx;

	if (!target_filter_match(m->filter, p->pid, sv_of(p->exe), args))
		return true;
	if (!array_grow(&m->roots, m->count, &m->room, sizeof(*m->roots))) {
		m->err = -ENOMEM;
		return false;
	}
	m->roots[m->count++] = (struct root){p->pid, p->start_ns};
	return true;
}

static const char *why_not(pid_t pid, int err)
{
	switch (err) {
	case 0:
	case -ENOENT:
	case -ESRCH:
		return target_why_none(pid);
	case -EINVAL:
		return "that is perfbpf itself";
	default:
		return strerror(-err);
	}
}

static int add_pid(void *ctx, const struct target_family *f, const struct root *r)
{
	struct session *s = ctx;
	struct add_ctx a = {.s = s};
	int err = target_family_tree(f, r->pid, r->start_ns, on_tree, &a);

	err = err ? err : a.err;
	if (!err && targets_has(s->targets, (uint32_t)r->pid))
		return 0;
	log_error("pid %d: %s", r->pid, why_not(r->pid, err));
	return err ? err : -ESRCH;
}

/* These and what they started: fn is to add the tree of one. Twice, for a child that was made while its parent was not
 * yet followed; by then a target may have ended. 0, or what fn returned. */
static int add_trees(struct root *roots, size_t count,
		     int (*fn)(void *ctx, const struct target_family *f, const struct root *r), void *ctx,
		     struct add_ctx *again)
{
	struct target_family *f = target_family_read();
	int err = f ? 0 : -errno;

	if (err)
		log_error("cannot list the processes of this machine: %s", strerror(-err));
	for (size_t i = 0; i < count && !err; i++) {
		if (!roots[i].start_ns)
			roots[i].start_ns = target_family_start(f, roots[i].pid);
		err = fn(ctx, f, &roots[i]);
	}
	target_family_free(f);
	f = err ? NULL : target_family_read();
	for (size_t i = 0; i < count && f; i++)
		target_family_tree(f, roots[i].pid, roots[i].start_ns, on_tree, again);
	target_family_free(f);
	return err;
}

static int add_pids(struct session *s)
{
	struct discover_result r = discover_system(s->discover);
	struct root *roots = calloc(s->o->pid_count, sizeof(*roots));
	int err;

	if (!roots)
		return -ENOMEM;
	for (size_t i = 0; i < s->o->pid_count; i++)
		roots[i].pid = s->o->pids[i];
	/* A child that a target starts later makes its first call before its own libraries could be looked for. */
	session_count_untraced(s, &r);
	err = add_trees(roots, s->o->pid_count, add_pid, s, &(struct add_ctx){.s = s});
	free(roots);
	return err;
}

/* Where installers put programs that sudo's PATH does not lead to. home: of the invoking user. */
static void look_at_home(struct session *s, const char *home, const char *agent)
{
	static const char *const places[] = {".local/bin", ".opencode/bin", ".bun/bin", ".npm-global/bin",
					     ".nvm/versions/node/*/bin"};
	char pattern[PATH_MAX];
	glob_t found;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if ((size_t)snprintf(pattern, sizeof(pattern), "%s/%s/%s", home, places[i], agent) >= sizeof(pattern) ||
		    glob(pattern, GLOB_NOSORT, NULL, &found))
			continue;
		for (size_t k = 0; k < found.gl_pathc && k < HOME_MAX; k++)
			discover_package(s->discover, found.gl_pathv[k]);
		globfree(&found);
	}
}

/* Agents that are installed, and may be started any time: their programs are larger than their first call is far. They
 * wait for a quiet moment (discover_next()). */
static void look_at_installed(struct session *s)
{
	static const char *const agents[] = {"codex", "claude", "copilot", "opencode"};
	const struct passwd *user;
	uid_t uid;
	gid_t gid;

	privilege_user(&uid, &gid);
	user = getpwuid(uid);
	discover_haste(s->discover, true);
	for (size_t i = 0; i < ARRAY_SIZE(agents); i++) {
		if (s->o->name && !target_filter_match_text(&s->filter, sv_of(agents[i]), sv_of(agents[i])))
			continue;
		discover_package(s->discover, agents[i]);
		if (user && *user->pw_dir)
			look_at_home(s, user->pw_dir, agents[i]);
	}
	discover_haste(s->discover, false);
}

/* One that has ended by now is no error. */
static int add_named(void *ctx, const struct target_family *f, const struct root *r)
{
	target_family_tree(f, r->pid, r->start_ns, on_tree, ctx);
	return 0;
}

static int add_names(struct session *s)
{
	struct target_names names;
	struct matching m = {.filter = &s->filter};
	struct add_ctx a = {.s = s, .names = &names};
	struct discover_result r = discover_system(s->discover);
	int err;

	target_names_init(&names, &s->filter);
	err = target_each(on_every, &m);
	err = err ? err : m.err;
	if (!err && m.count)
		err = add_trees(m.roots, m.count, add_named, &a, &a);
	free(m.roots);
	session_count_untraced(s, &r);
	if (!err && a.count == 0)
		log_info("no process matches '%s' yet: waiting for one", s->o->name);
	look_at_installed(s);
	target_names_solve(&names);
	meant_tell(&names, &s->first);
	target_names_release(&names);
	return err;
}

static void add_listed(void *ctx, pid_t tgid, uint64_t start_ns, uint32_t exec_id)
{
	struct proc_key key = {.tgid = (uint32_t)tgid, .start_ns = start_ns, .exec_id = exec_id};
	struct session *s = ctx;
	struct proc_stat p;

	if (target_read(tgid, &p) || !target_start_matches(&p, start_ns) || targets_add(s->targets, key.tgid, start_ns))
		return;
	capture_make_proc(&p, &key, clock_boot_ns(), session_keep, s);
}

/* Kernel first, files second: what starts in between is a target too, and its mappings are told. */
static int add_all(struct session *s)
{
	struct discover_result r = discover_system(s->discover);
	int err = probes_add_all(s->probes, add_listed, s);

	session_count_untraced(s, &r);
	if (err) {
		log_error("cannot list the processes of this machine: %s", strerror(-err));
		return err;
	}
	discover_keep(s->discover); /* any process may map any of them tomorrow */
	discover_haste(s->discover, true);
	session_scan_all(s, clock_boot_ns());
	discover_haste(s->discover, false);
	look_at_installed(s);
	return 0;
}

static void on_cmd_end(void *ctx)
{
	struct session *s = ctx;

	if (!spawn_reap(&s->cmd, &s->cmd_status))
		return;
	loop_remove_fd(s->loop, s->cmd.pidfd);
	s->cmd_running = false;
	s->cmd_ended = true;
	s->cmd_ended_ns = clock_boot_ns();
}

static void probe_word(void *ctx, const char *word)
{
	discover_package(((struct session *)ctx)->discover, word);
}

static int follow_command(struct session *s)
{
	struct discover_result r;
	struct proc_stat p;
	int err;

	r = discover_command(s->discover, s->o->argv[0]);
	session_count_untraced(s, &r);
	discover_package(s->discover, s->o->argv[0]);
	target_words(s->o->argv, probe_word, s);
	r = discover_system(s->discover);
	session_count_untraced(s, &r);
	err = target_read(s->cmd.pid, &p);
	if (!err)
		err = add_process(s, &p);
	if (err)
		log_error("cannot follow %s: %s", s->o->argv[0], strerror(-err));
	return err;
}

/* CMD stands in its exec: what the kernel mapped is probed, and what ld.so will map, before it runs. */
static void probe_held(struct session *s)
{
	struct discover_result r;
	char exe[32];

	probes_consume(s->probes); /* its exec: the files it maps */
	if (s->mapwatch)
		mapwatch_read(s->mapwatch);
	snprintf(exe, sizeof(exe), "/proc/%d/exe", s->cmd.pid);
	r = discover_command(s->discover, exe);
	session_count_untraced(s, &r);
	spawn_let_go(&s->cmd);
}

/* 0, or the exit status that an exec failure has by convention. */
int session_release_command(struct session *s)
{
	int err = spawn_go(&s->cmd);

	if (err) {
		log_error("%s: %s", s->o->argv[0], strerror(-err));
		return err == -ENOENT ? 127 : 126;
	}
	if (s->cmd.held)
		probe_held(s);
	else if (s->cmd.hold_err)
		log_info("%s is not held in its exec (%s): a call that it makes at once may be missed", s->o->argv[0],
			 strerror(-s->cmd.hold_err));
	s->cmd_running = true;
	if (s->cmd.ended)
		on_cmd_end(s);
	else if (s->cmd.pidfd >= 0)
		err = loop_add_fd(s->loop, s->cmd.pidfd, on_cmd_end, s);
	return err ? 1 : 0;
}

int session_add_targets(struct session *s)
{
	if (s->o->pid_count)
		return add_pids(s);
	if (s->o->name)
		return add_names(s);
	return s->o->all ? add_all(s) : follow_command(s);
}
