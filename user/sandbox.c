/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANDBOX_OFF "this build has a sanitizer, which makes calls of its own"
#elif defined(__x86_64__)
#define SANDBOX_ARCH	  AUDIT_ARCH_X86_64
#define RETURNED(context) (context)->uc_mcontext.gregs[REG_RAX]
#elif defined(__aarch64__)
#define SANDBOX_ARCH	  AUDIT_ARCH_AARCH64
#define RETURNED(context) (context)->uc_mcontext.regs[0]
#else
#define SANDBOX_OFF "it is not made for this machine"
#endif

#ifdef SANDBOX_OFF

void sandbox_enter(void)
{
	log_verbose("system calls are not restricted: %s", SANDBOX_OFF);
}

void sandbox_enter_keeper(void)
{
}

#else

/* Newer than some distributions' headers; the same number everywhere. */
#define CALL_faccessat2		 439
#define CALL_openat2		 437

/* Whatever their arguments. */
/* clang-format off */
static const int calls[] = {
	/* files */
	SYS_read, SYS_write, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_lseek, SYS_close, SYS_openat,
	CALL_openat2, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_faccessat, CALL_faccessat2,
	SYS_readlinkat, SYS_getdents64, SYS_fcntl, SYS_flock, SYS_ftruncate, SYS_fsync, SYS_renameat, SYS_unlinkat,
	SYS_dup, SYS_dup3, SYS_fadvise64, SYS_setfsuid, SYS_setfsgid,
	/* waiting */
	SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_ppoll, SYS_timerfd_create, SYS_timerfd_settime,
	SYS_signalfd4, SYS_eventfd2, SYS_nanosleep, SYS_clock_nanosleep, SYS_futex, SYS_restart_syscall,
	/* memory */
	SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk,
	/* the kernel side */
	SYS_bpf, SYS_perf_event_open,
	/* what a process asks and says of itself and others */
	SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid,
	SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getrandom, SYS_getrusage, SYS_prlimit64, SYS_sysinfo, SYS_uname,
	SYS_sched_yield, SYS_sched_getaffinity, SYS_getcpu, SYS_getcwd, SYS_capget, SYS_capset, SYS_prctl,
	SYS_seccomp, SYS_wait4, SYS_waitid, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigpending, SYS_rt_sigreturn,
	SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_exit, SYS_exit_group,
	/* of the keeper's descriptor (keeper.h) */
	SYS_recvmsg,
#ifdef __x86_64__
	/* the same by older names */
	SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_rename, SYS_unlink, SYS_dup2, SYS_epoll_wait,
	SYS_poll, SYS_select, SYS_pselect6, SYS_getdents, SYS_getrlimit, SYS_setrlimit, SYS_time, SYS_arch_prctl,
#endif
};
/* clang-format on */

/* With arguments of a kind only. */
enum rule_kind { RULE_CLEAR, RULE_EQUAL, RULE_TYPE };
struct rule {
	int call;
	unsigned argument;
	enum rule_kind kind; /* CLEAR: no bit of `value`; EQUAL; TYPE: of an ioctl(2) */
	uint32_t value;
};
static const struct rule rules[] = {
	/* nothing becomes code */
	{SYS_mmap, 2, RULE_CLEAR, PROT_EXEC},
	{SYS_mprotect, 2, RULE_CLEAR, PROT_EXEC},
	/* of perf events, and what isatty(3) asks; no typing into the user's terminal (TIOCSTI) */
	{SYS_ioctl, 1, RULE_TYPE, '$' << 8},
	{SYS_ioctl, 1, RULE_EQUAL, TCGETS},
	/* abort(3); the value is our own number */
	{SYS_tgkill, 0, RULE_EQUAL, 0},
};

/* Of the keeper (keeper.h). */
static const int keeper_calls[] = {SYS_read, SYS_sendmsg, SYS_close, SYS_rt_sigreturn, SYS_exit_group};
static const struct rule keeper_rules[] = {{SYS_bpf, 0, RULE_EQUAL, BPF_ENABLE_STATS}};

/* Jumps reach 255 instructions. */
_Static_assert(ARRAY_SIZE(calls) < 255, "one chain");
#define RULE_LENGTH		 5
#define FILTER_MAX		 (ARRAY_SIZE(calls) + ARRAY_SIZE(rules) * (RULE_LENGTH + 1) + 8)
#define LOAD(field)		 BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(what)		 BPF_STMT(BPF_RET | BPF_K, what)
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define IF_SET(bits, yes, no)	 BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no)

static void refused(int signal, siginfo_t *info, void *context)
{
	static const char text[] = "perfbpf: warning: system call       was refused by perfbpf's own filter\n";
	static uint32_t told[32]; /* of numbers below 1024 */
	unsigned number = (unsigned)info->si_syscall, word = number / 32 % 32, bit = 1u << number % 32;
	char line[sizeof(text)];
	char *digit = line + sizeof("perfbpf: warning: system call     ") - 1;

	RETURNED((ucontext_t *)context) = -ENOSYS;
	if (signal != SIGSYS || told[word] & bit)
		return;
	told[word] |= bit;
	memcpy(line, text, sizeof(line));
	for (; number && *digit == ' '; number /= 10)
		*digit-- = (char)('0' + number % 10);
	/* Nothing else may be called where any call may have been interrupted. */
	if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
		return;
}

/* RULE_LENGTH and one: allowed, or on to the next with the number loaded again. */
static size_t build_rule(struct sock_filter *f, const struct rule *r)
{
	uint32_t value = r->call == SYS_tgkill ? (uint32_t)getpid() : r->value;
	size_t n = 0;

	f[n++] = (struct sock_filter)IF_EQUAL((uint32_t)r->call, 0, RULE_LENGTH);
	/* the lower half: these are little-endian machines */
	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					      offsetof(struct seccomp_data, args) + 8 * r->argument);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, r->kind == RULE_TYPE ? 0xff00 : ~0u);
	f[n++] = r->kind == RULE_CLEAR ? (struct sock_filter)IF_SET(value, 1, 0)
				       : (struct sock_filter)IF_EQUAL(value, 0, 1);
	f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
	f[n++] = (struct sock_filter)LOAD(nr);
	return n;
}

static size_t build(struct sock_filter *f, const int *listed, size_t count, const struct rule *rule, size_t rule_count)
{
	size_t n = 0;

	f[n++] = (struct sock_filter)LOAD(arch);
	f[n++] = (struct sock_filter)IF_EQUAL(SANDBOX_ARCH, 1, 0);
	f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_KILL_PROCESS); /* numbers mean other calls there */
	f[n++] = (struct sock_filter)LOAD(nr);
	for (size_t i = 0; i < count; i++)
		f[n++] = (struct sock_filter)IF_EQUAL((uint32_t)listed[i], (uint8_t)(count - i), 0);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 1);
	f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < rule_count; i++)
		n += build_rule(f + n, &rule[i]);
	f[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_TRAP);
	return n;
}

static void enter(const struct sock_fprog *program)
{
	struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};

	sigemptyset(&action.sa_mask);
	if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program))
		log_verbose("system calls are not restricted: %s", strerror(errno));
	else
		log_verbose("system calls are restricted");
}

void sandbox_enter(void)
{
	struct sock_filter filter[FILTER_MAX];
	struct sock_fprog program = {.filter = filter};
	static bool entered;

	if (entered)
		return;
	entered = true;
	program.len = (unsigned short)build(filter, calls, ARRAY_SIZE(calls), rules, ARRAY_SIZE(rules));
	enter(&program);
}

void sandbox_enter_keeper(void)
{
	struct sock_filter filter[FILTER_MAX];
	struct sock_fprog program = {.filter = filter};

	program.len = (unsigned short)build(filter, keeper_calls, ARRAY_SIZE(keeper_calls), keeper_rules,
					    ARRAY_SIZE(keeper_rules));
	enter(&program);
}

#endif
