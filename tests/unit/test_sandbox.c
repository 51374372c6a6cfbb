/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "sandbox.h"

/* What fn returns in a process that entered the sandbox: 0 is well. What it said goes to `said`. */
static int inside(int (*fn)(void), char *said, size_t size)
{
	int ends[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		log_set_level(LOG_WARN);
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		sandbox_enter();
		sandbox_enter();
		_exit(fn());
	}
	close(ends[1]);
	while (len + 1 < size && (n = read(ends[0], said + len, size - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int is_there(void)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2;
}

#define REFUSED(call)                                                                                                  \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		if ((call) != -1 || errno != ENOSYS)                                                                   \
			return __LINE__ % 100 + 1;                                                                     \
	} while (0)

static int attack(void)
{
	char *const argv[] = {"/bin/true", NULL};
	char c = 'x';
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REFUSED(execve(argv[0], argv, argv + 1));
	REFUSED(syscall(SYS_execveat, AT_FDCWD, argv[0], argv, argv + 1, 0));
	REFUSED(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	REFUSED(socket(AF_INET, SOCK_STREAM, 0));
	REFUSED(kill(getppid(), SIGKILL));
	REFUSED(syscall(SYS_tgkill, getppid(), getppid(), SIGKILL));
	REFUSED(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
	REFUSED(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0));
	REFUSED(syscall(SYS_setresuid, 0, 0, 0));
	REFUSED(syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL));
	REFUSED(syscall(SYS_init_module, NULL, 0, ""));
	REFUSED(ioctl(STDERR_FILENO, TIOCSTI, &c));
	REFUSED(code == MAP_FAILED ? 0 : mprotect(code, 4096, PROT_READ | PROT_EXEC));
	REFUSED((long)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	return 0;
}

static int twice(void)
{
	REFUSED(socket(AF_INET, SOCK_STREAM, 0));
	REFUSED(socket(AF_INET, SOCK_STREAM, 0));
	REFUSED(kill(getppid(), 0));
	return 0;
}

static int work(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[64];
	void *more;

	if (!f || !fgets(line, sizeof(line), f) || fclose(f))
		return 1;
	if (isatty(STDERR_FILENO) || errno != ENOTTY)
		return 2;
	more = malloc(64 << 20); /* mmap */
	if (!more)
		return 3;
	free(more);
	if (open("/nowhere/at/all", O_RDONLY) != -1 || errno != ENOENT)
		return 4;
	if (syscall(SYS_tgkill, getpid(), getpid(), 0))
		return 5;
	return 0;
}

static int gives_up(void)
{
	abort();
}

/* In builds with a sanitizer, and on kernels without filters. */
static void need_sandbox(void)
{
	char said[256];

	if (inside(is_there, said, sizeof(said)) != 1)
		skip();
}

static void what_an_attacker_wants_does_not_happen(void **state)
{
	char said[8192];

	(void)state;
	need_sandbox();
	assert_int_equal(inside(attack, said, sizeof(said)), 0);
	assert_non_null(strstr(said, "was refused by perfbpf's own filter"));
}

static void each_call_is_told_once(void **state)
{
	char said[8192], want[256];

	(void)state;
	need_sandbox();
	assert_int_equal(inside(twice, said, sizeof(said)), 0);
	snprintf(want, sizeof(want),
		 "perfbpf: warning: system call %5d was refused by perfbpf's own filter\n"
		 "perfbpf: warning: system call %5d was refused by perfbpf's own filter\n",
		 SYS_socket, SYS_kill);
	assert_string_equal(said, want);
}

static void what_tracing_does_goes_on(void **state)
{
	char said[8192];

	(void)state;
	need_sandbox();
	assert_int_equal(inside(work, said, sizeof(said)), 0);
	assert_string_equal(said, "");
	assert_int_equal(inside(gives_up, said, sizeof(said)), 128 + SIGABRT);
	assert_string_equal(said, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_an_attacker_wants_does_not_happen),
		cmocka_unit_test(each_call_is_told_once),
		cmocka_unit_test(what_tracing_does_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
