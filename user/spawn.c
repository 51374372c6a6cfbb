/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "privilege.h"

extern char **environ;

static int drop_environment(void)
{
	for (char **e = environ; *e;) {
		char name[256];
		size_t len = strcspn(*e, "=");

		if (strncmp(*e, "PERFBPF_", 8) || len >= sizeof(name)) {
			e++;
			continue;
		}
		memcpy(name, *e, len);
		name[len] = '\0';
		if (unsetenv(name))
			return -errno;
		e = environ;
	}
	return 0;
}

#define GIVEN_MAX 1024 /* descriptors from here on are not handed on */
static bool given[GIVEN_MAX];

void spawn_note_descriptors(void)
{
	for (int fd = STDERR_FILENO + 1; fd < GIVEN_MAX; fd++) {
		int flags = fcntl(fd, F_GETFD);

		given[fd] = flags >= 0 && !(flags & FD_CLOEXEC);
	}
}

/* All of ours are O_CLOEXEC; this is for what a library forgot. */
static void close_at_exec(bool all)
{
	unsigned from = STDERR_FILENO + 1;

	for (unsigned fd = from; fd < GIVEN_MAX && !all; fd++) {
		if (!given[fd])
			continue;
		if (from < fd)
			syscall(SYS_close_range, from, fd - 1, 4u /* CLOSE_RANGE_CLOEXEC */);
		from = fd + 1;
	}
	syscall(SYS_close_range, from, ~0u, 4u);
}

static struct rlimit own_files; /* RLIMIT_NOFILE as it was given to us; rlim_max 0: never changed */

void spawn_raise_limits(void)
{
	struct rlimit more;

	if (getrlimit(RLIMIT_NOFILE, &own_files))
		return;
	more = own_files;
	more.rlim_cur = more.rlim_max;
	setrlimit(RLIMIT_NOFILE, &more);
}

static int become(uid_t uid, gid_t gid)
{
	struct passwd *pw;
	int err;

	if (uid == getuid() && gid == getgid())
		return 0;
	err = privilege_groups(uid, gid, &pw);
	if (err)
		return err;
	if (setgid(gid) || setuid(uid))
		return -errno;
	if (pw &&
	    (setenv("HOME", pw->pw_dir, 1) || setenv("USER", pw->pw_name, 1) || setenv("LOGNAME", pw->pw_name, 1)))
		return -errno;
	return 0;
}

/* In the child. Never returns. */
static void child(char **argv, int hold_fd, int err_fd)
{
	bool same_user;
	sigset_t none;
	uid_t uid;
	gid_t gid;
	char go;
	int err;

	if (read(hold_fd, &go, 1) != 1)
		_exit(0);
	privilege_user(&uid, &gid);
	same_user = uid == getuid() && gid == getgid();
	err = privilege_own();
	if (!err)
		err = become(uid, gid);
	if (!err)
		err = drop_environment();
	if (!err) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		signal(SIGPIPE, SIG_DFL);
		signal(SIGXFSZ, SIG_DFL);
		if (own_files.rlim_max)
			setrlimit(RLIMIT_NOFILE, &own_files);
		close_at_exec(!same_user);
		execvp(argv[0], argv);
		err = -errno;
	}
	if (write(err_fd, &err, sizeof(err)) < 0)
		_exit(126);
	_exit(127);
}

int spawn_hold(struct spawn *s, char **argv)
{
	int hold[2], fail[2], err;

	*s = (struct spawn){.pid = -1, .hold_fd = -1, .err_fd = -1, .pidfd = -1};
	if (pipe2(hold, O_CLOEXEC))
		return -errno;
	if (pipe2(fail, O_CLOEXEC)) {
		err = -errno;
		close(hold[0]);
		close(hold[1]);
		return err;
	}
	fflush(NULL);
	s->pid = fork();
	err = -errno;
	if (s->pid == 0) {
		close(hold[1]);
		close(fail[0]);
		child(argv, hold[0], fail[1]);
	}
	close(hold[0]);
	close(fail[1]);
	s->hold_fd = hold[1];
	s->err_fd = fail[0];
	if (s->pid < 0) {
		spawn_release(s);
		return err;
	}
	s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	if (s->pidfd >= 0)
		fcntl(s->pidfd, F_SETFD, FD_CLOEXEC);
	return 0;
}

/* The errno of a failed exec; 0: end of file, because an exec (or the end) closed the other end. */
static int read_exec_error(struct spawn *s)
{
	int err = 0;
	ssize_t n;

	do
		n = read(s->err_fd, &err, sizeof(err));
	while (n < 0 && errno == EINTR);
	close(s->err_fd);
	s->err_fd = -1;
	return n == sizeof(err) ? err : 0;
}

/* 0 or -errno. Of the stops that it may come to only the one in the exec was asked for. */
static int watch_exec(const struct spawn *s)
{
	if (!privilege_has(CAP_SYS_PTRACE)) /* else a set-user-ID program would be none under our eyes */
		return -EPERM;
	return ptrace(PTRACE_SEIZE, s->pid, NULL, (void *)(uintptr_t)PTRACE_O_TRACEEXEC) ? -errno : 0;
}

/* Any other stop on the way there: a signal is delivered, a job-control stop is one (ptrace(2), group-stop). */
static void pass_stop(const struct spawn *s, int status)
{
	int signal = WSTOPSIG(status), event = status >> 16;
	bool job = event == PTRACE_EVENT_STOP &&
		   (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU);

	if (job)
		ptrace(PTRACE_LISTEN, s->pid, NULL, NULL);
	else
		ptrace(PTRACE_CONT, s->pid, NULL, (void *)(uintptr_t)(event ? 0 : signal));
}

static void await_exec(struct spawn *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(s->pid, &status, 0)) == s->pid || (pid < 0 && errno == EINTR)) {
		if (pid < 0)
			continue;
		if (!WIFSTOPPED(status)) {
			s->ended = true;
			s->status = status;
			return;
		}
		if (status >> 16 == PTRACE_EVENT_EXEC) {
			s->held = true;
			s->stopped_ns = clock_boot_ns();
			return;
		}
		pass_stop(s, status);
	}
}

int spawn_go(struct spawn *s)
{
	s->hold_err = watch_exec(s);
	if (write(s->hold_fd, "g", 1) != 1)
		return -errno;
	close(s->hold_fd);
	s->hold_fd = -1;
	if (!s->hold_err)
		await_exec(s);
	return read_exec_error(s);
}

void spawn_let_go(struct spawn *s)
{
	if (!s->held)
		return;
	ptrace(PTRACE_DETACH, s->pid, NULL, NULL);
	s->held = false;
	s->held_ns = clock_boot_ns() - s->stopped_ns;
}

bool spawn_reap(struct spawn *s, int *status)
{
	if (!s->ended && (s->pid <= 0 || waitpid(s->pid, &s->status, WNOHANG) != s->pid))
		return false;
	*status = s->status;
	s->ended = false;
	s->pid = -1;
	return true;
}

void spawn_release(struct spawn *s)
{
	int *fds[] = {&s->hold_fd, &s->err_fd, &s->pidfd};

	spawn_let_go(s);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
