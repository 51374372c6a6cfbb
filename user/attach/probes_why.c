/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What went wrong, for the user: of probes_open() alone. */
#include "probes_parts.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

#define LOCKDOWN_FILE "/sys/kernel/security/lockdown"
#define BTF_FILE      "/sys/kernel/btf/vmlinux"

static char why_text[256];
static char hint_text[256];
static char first_warning[160];				     /* libbpf's, since probes_open() began */
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER; /* two threads load programs */

const char *probes_why(void)
{
	return why_text;
}

const char *probes_hint(void)
{
	return hint_text[0] ? hint_text : NULL;
}

__attribute__((format(printf, 2, 3))) static void say(char text[256], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, 256, fmt, ap);
	va_end(ap);
}

/* libbpf's messages, one level down: what it calls a warning is often tried on purpose. */
static void print_line(enum libbpf_print_level level, char *line)
{
	char safe[1024];

	for (char *tab = line; (tab = strchr(tab, '\t')); *tab = ' ')
		;
	log_safe(safe, sizeof(safe), sv_of(line)); /* it may name a traced program's file */
	if (level == LIBBPF_WARN && !first_warning[0])
		snprintf(first_warning, sizeof(first_warning), "%.150s", safe);
	if (level == LIBBPF_WARN)
		log_verbose("%s", safe);
	else
		log_debug("%s", safe);
}

__attribute__((format(printf, 2, 0))) static int on_libbpf_print(enum libbpf_print_level level, const char *fmt,
								 va_list ap)
{
	char *text, *line, *rest;

	if (log_get_level() < LOG_DEBUG && level == LIBBPF_DEBUG)
		return 0;
	if (vasprintf(&text, fmt, ap) < 0)
		return 0;
	rest = text; /* many lines: a verifier's log */
	pthread_mutex_lock(&printing);
	while ((log_get_level() >= LOG_VERBOSE || !first_warning[0]) && (line = strsep(&rest, "\n")))
		if (*line)
			print_line(level, line);
	pthread_mutex_unlock(&printing);
	free(text);
	return 0;
}

void probes_explain_begin(void)
{
	why_text[0] = hint_text[0] = first_warning[0] = 0;
	libbpf_set_print(on_libbpf_print);
}

void probes_explain(const char *why, const char *hint)
{
	say(why_text, "%s", why);
	say(hint_text, "%s", hint);
}

int probes_explain_limit(void)
{
	long processors = sysconf(_SC_NPROCESSORS_CONF);
	unsigned long needed =
		PROBES_DESCRIPTORS + PROBES_DESCRIPTORS_PROCESSOR * (processors > 0 ? (unsigned long)processors : 1);
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
		return 0;
	say(why_text, "RLIMIT_NOFILE allows %lu open files: perfbpf needs %lu, and more for each file that is probed",
	    (unsigned long)limit.rlim_cur, needed);
	say(hint_text, "raise the hard limit (ulimit -Hn, LimitNOFILE= of a service)");
	return -EMFILE;
}

static bool lockdown_confidentiality(void)
{
	char text[128] = "";
	int fd = open(LOCKDOWN_FILE, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	return len > 0 && strstr(text, "[confidentiality]");
}

int probes_explain_load(int err)
{
	hint_text[0] = 0;
	if (access(BTF_FILE, F_OK) && errno == ENOENT) {
		say(why_text, "this kernel has no type information (%s)", BTF_FILE);
		say(hint_text, "run a kernel built with CONFIG_DEBUG_INFO_BTF=y");
		return ENOENT;
	}
	if (lockdown_confidentiality()) {
		say(why_text, "kernel lockdown is in mode 'confidentiality': BPF programs must not read memory");
		say(hint_text, "boot with lockdown=integrity or none");
		return EPERM;
	}
	if (err == EPERM) { /* EACCES is the verifier's word */
		if (geteuid() != 0)
			say(hint_text, "run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
		else
			say(hint_text, "root without CAP_BPF or CAP_SYS_ADMIN, as in a container? add --privileged");
		say(why_text, "not permitted to load BPF programs");
		return EPERM;
	}
	say(why_text, "the kernel refused the BPF programs: %s%s%s", strerror(err), first_warning[0] ? ": " : "",
	    first_warning);
	if (err == ENOMEM)
		say(hint_text, "a smaller ring buffer, or a higher memory limit (memlock on kernels before 5.11)");
	return err;
}
