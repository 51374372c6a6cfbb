/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"

#define STAT_FIELDS 22 /* up to starttime */

/* --- /proc/PID --------------------------------------------------------------------------------------------------- */

static uint64_t tick_ns(void)
{
	long hz = sysconf(_SC_CLK_TCK);

	return 1000000000ull / (uint64_t)(hz > 0 ? hz : 100);
}

/* What /proc/PID/stat tells this process of a time, in ns of the kernel's clock. */
static uint64_t to_tick(uint64_t ns)
{
	uint64_t shift = (uint64_t)clock_boot_shift_ns();

	return (ns + shift) / tick_ns() * tick_ns() - shift;
}

bool target_start_matches(const struct proc_stat *p, uint64_t exact_start_ns)
{
	return to_tick(exact_start_ns) == p->start_ns;
}

static bool take_field(struct sv *rest, uint64_t *out)
{
	struct sv field = sv_cut(*rest, ' ', rest);
	uint64_t n = 0;

	if (!field.len)
		return false;
	for (size_t i = field.ptr[0] == '-'; i < field.len; i++) {
		if (!isdigit((unsigned char)field.ptr[i]) || n > (UINT64_MAX - 9) / 10)
			return false;
		n = n * 10 + (uint64_t)(field.ptr[i] - '0');
	}
	*out = n;
	return true;
}

/* "pid (comm) state ppid … starttime …": comm holds any byte, so it ends at the last parenthesis. */
int target_parse_stat(struct sv text, struct proc_stat *out)
{
	const char *open, *close;
	struct sv rest;
	uint64_t n;
	size_t len;

	open = text.len ? memchr(text.ptr, '(', text.len) : NULL;
	close = text.len ? memrchr(text.ptr, ')', text.len) : NULL;
	if (!open || !close || close < open || text.ptr + text.len - close < 4 || close[1] != ' ' || close[3] != ' ')
		return -EBADMSG;
	rest = text;
	if (!take_field(&rest, &n) || n > INT32_MAX)
		return -EBADMSG;
	out->pid = (pid_t)n;
	len = (size_t)(close - open - 1);
	len = len < sizeof(out->comm) - 1 ? len : sizeof(out->comm) - 1;
	memcpy(out->comm, open + 1, len);
	out->comm[len] = '\0';
	out->state = close[2];
	rest = (struct sv){close + 4, (size_t)(text.ptr + text.len - close - 4)};
	for (unsigned field = 4; field <= STAT_FIELDS; field++) {
		if (!take_field(&rest, &n) || (field == 4 && n > INT32_MAX))
			return -EBADMSG;
		if (field == 4)
			out->ppid = (pid_t)n;
	}
	out->start_ns = n * tick_ns() - (uint64_t)clock_boot_shift_ns();
	return 0;
}

/* Bytes read, or -errno. */
static ssize_t read_proc(pid_t pid, const char *name, char *out, size_t size)
{
	char path[64];
	size_t len = 0;
	ssize_t n = 0;
	int fd, err = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (len < size && ((n = read(fd, out + len, size - len)) > 0 || (n < 0 && errno == EINTR)))
		len += n > 0 ? (size_t)n : 0;
	if (n < 0)
		err = -errno;
	close(fd);
	return err ? err : (ssize_t)len;
}

static int read_stat(pid_t pid, struct proc_stat *out)
{
	char text[1024];
	ssize_t len = read_proc(pid, "stat", text, sizeof(text));

	if (len == -ESRCH)
		return -ENOENT;
	if (len < 0)
		return len == -EPERM ? -EACCES : (int)len;
	return target_parse_stat((struct sv){text, (size_t)len}, out);
}

static void read_exe(pid_t pid, struct proc_stat *out)
{
	static const char deleted[] = " (deleted)";
	char path[64];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	len = readlink(path, out->exe, sizeof(out->exe) - 1);
	if (len < 0 || (size_t)len == sizeof(out->exe) - 1)
		len = 0; /* not readable, or too long to be whole */
	out->exe[len] = '\0';
	/* an updater replaced the file: the name is still the name */
	if ((size_t)len >= sizeof(deleted) && !strcmp(out->exe + len - (sizeof(deleted) - 1), deleted) &&
	    access(out->exe, F_OK))
		out->exe[(size_t)len - (sizeof(deleted) - 1)] = '\0';
}

int target_read(pid_t pid, struct proc_stat *out)
{
	struct proc_stat again;
	ssize_t len;
	int err;

	memset(out, 0, sizeof(*out));
	err = read_stat(pid, out);
	if (err)
		return err;
	read_exe(pid, out);
	len = read_proc(pid, "cmdline", out->args, sizeof(out->args));
	out->args_len = len > 0 ? (size_t)len : 0;
	if (out->args_len && !out->args[out->args_len - 1])
		out->args_len--;
	/* what was read belongs together only if the pid is still the same process */
	err = read_stat(pid, &again);
	return err ? err : again.start_ns == out->start_ns ? 0 : -ENOENT;
}

static bool is_codex(pid_t pid)
{
	char comm[64];
	ssize_t len = read_proc(pid, "comm", comm, sizeof(comm));

	return len > 0 && sv_starts((struct sv){comm, (size_t)len}, SV("codex"));
}

/* The value of one variable of NUL-terminated assignments that come in pieces. */
struct variable {
	struct sv name; /* with its '=' */
	char *out;
	size_t size, len; /* len: of the value so far */
	size_t matched;	  /* of the name */
	bool other;	  /* this assignment is another one's */
	bool done;
};

static int look_for(struct variable *v, const char *ptr, size_t n)
{
	for (size_t i = 0; i < n && !v->done; i++) {
		if (!ptr[i]) {
			v->done = !v->other && v->matched == v->name.len;
			v->matched = 0;
			v->other = false;
		} else if (v->other) {
			continue;
		} else if (v->matched < v->name.len) {
			v->other = ptr[i] != v->name.ptr[v->matched++];
		} else if (v->len + 1 < v->size) {
			v->out[v->len++] = ptr[i];
		} else {
			return -E2BIG;
		}
	}
	return 0;
}

static int read_variable(pid_t pid, struct variable *v)
{
	char path[64], piece[4096];
	ssize_t n = 0;
	int fd, err = 0;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (!err && !v->done && ((n = read(fd, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR)))
		err = n > 0 ? look_for(v, piece, (size_t)n) : 0;
	if (n < 0)
		err = -errno;
	close(fd);
	explicit_bzero(piece, sizeof(piece));
	return err;
}

int target_tool_call(pid_t pid, uint64_t start_ns, char *out, size_t size)
{
	struct variable v = {.name = SV("CODEX_TOOL_CALL_ID="), .out = out, .size = size};
	struct proc_stat p = {0};
	int err = read_stat(pid, &p);

	if (!err)
		err = is_codex(p.ppid) ? read_variable(pid, &v) : -ENOENT;
	if (!err)
		err = read_stat(pid, &p);
	if (!err && (!v.done || !v.len || !target_start_matches(&p, start_ns)))
		err = -ENOENT;
	out[err ? 0 : v.len] = '\0';
	return err;
}

/* Documentation/scheduler/sched-stats.rst: time on a processor, time on a run queue, times that it ran. */
uint64_t target_wait_ns(pid_t pid)
{
	char text[128];
	ssize_t len = read_proc(pid, "schedstat", text, sizeof(text));
	struct sv rest = {text, len > 0 ? (size_t)len : 0};
	uint64_t ran, waited;

	return take_field(&rest, &ran) && take_field(&rest, &waited) ? waited : 0;
}

bool target_alive(pid_t pid, uint64_t start_ns)
{
	struct proc_stat p;

	return !read_stat(pid, &p) && p.state != 'Z' && p.state != 'X' &&
	       (!start_ns || target_start_matches(&p, start_ns));
}

/* What /proc was told to hide (its mount option hidepid) has limits nevertheless, or one may not ask for them. */
static bool is_hidden(pid_t pid)
{
	return !syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, NULL, NULL) || errno == EPERM;
}

const char *target_why_none(pid_t pid)
{
	char status[4096];
	ssize_t len = read_proc(pid, "status", status, sizeof(status) - 1);
	const char *tgid, *memory;

	if (len <= 0)
		return is_hidden(pid) ? "it is there, but /proc does not show it (hidepid)" : "no such process";
	status[len] = '\0';
	/* The first line holds a name that the process chose, but no newline of it (proc(5)). */
	tgid = strstr(status, "\nTgid:\t");
	memory = strstr(status, "\nVmSize:");
	if (tgid && atoi(tgid + 7) != (int)pid)
		return "that is a thread, not a process";
	if (!target_alive(pid, 0))
		return "it has ended";
	return memory ? "no such process" : "that is a kernel thread";
}

static pid_t pid_of_name(const char *name)
{
	char *end;
	long n;

	if (!isdigit((unsigned char)name[0]))
		return 0;
	n = strtol(name, &end, 10);
	return *end || n <= 0 || n > INT32_MAX ? 0 : (pid_t)n;
}

int target_each(bool (*fn)(void *ctx, const struct proc_stat *p), void *ctx)
{
	struct proc_stat *p = malloc(sizeof(*p));
	struct dirent *entry;
	bool more = true;
	DIR *dir;
	int err = 0;

	if (!p)
		return -ENOMEM;
	dir = opendir("/proc");
	if (!dir) {
		err = -errno;
		goto out;
	}
	while (more && (errno = 0, entry = readdir(dir))) {
		pid_t pid = pid_of_name(entry->d_name);

		if (pid && !target_read(pid, p))
			more = fn(ctx, p);
	}
	if (more && errno)
		err = -errno;
	closedir(dir);
out:
	free(p);
	return err;
}

/* --- a process and what it started ------------------------------------------------------------------------------- */

struct target_family { /* every process, sorted by ppid */
	struct link {
		pid_t ppid, pid;
		uint64_t start_ns;
	} * links;
	size_t count, room;
};

static int by_parent(const void *a, const void *b)
{
	const struct link *x = a, *y = b;

	if (x->ppid != y->ppid)
		return x->ppid < y->ppid ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int read_links(struct target_family *f, DIR *dir)
{
	struct dirent *entry;
	struct proc_stat p;

	while ((entry = readdir(dir))) {
		pid_t pid = pid_of_name(entry->d_name);

		if (!pid || read_stat(pid, &p))
			continue;
		if (!array_grow(&f->links, f->count, &f->room, sizeof(*f->links)))
			return -ENOMEM;
		f->links[f->count++] = (struct link){p.ppid, pid, p.start_ns};
	}
	if (f->count)
		qsort(f->links, f->count, sizeof(*f->links), by_parent);
	return 0;
}

struct target_family *target_family_read(void)
{
	struct target_family *f = calloc(1, sizeof(*f));
	DIR *dir = f ? opendir("/proc") : NULL;
	int err = dir ? read_links(f, dir) : -errno;

	if (dir)
		closedir(dir);
	if (!err)
		return f;
	target_family_free(f);
	errno = -err;
	return NULL;
}

void target_family_free(struct target_family *f)
{
	if (!f)
		return;
	free(f->links);
	free(f);
}

/* Index of the first child, or where it would be. */
static size_t first_child(const struct target_family *f, pid_t ppid)
{
	size_t low = 0, high = f->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (f->links[mid].ppid < ppid)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static const struct link *find_link(const struct target_family *f, pid_t pid)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->links[i].pid == pid)
			return &f->links[i];
	return NULL;
}

/* The process that was there then: by now its number may be another one's. */
static int read_linked(const struct link *l, struct proc_stat *out)
{
	int err = l ? target_read(l->pid, out) : -ENOENT;

	return err ? err : out->start_ns == l->start_ns ? 0 : -ENOENT;
}

uint64_t target_family_start(const struct target_family *f, pid_t pid)
{
	const struct link *l = find_link(f, pid);

	return l ? l->start_ns : 0;
}

int target_family_tree(const struct target_family *f, pid_t pid, uint64_t start_ns,
		       void (*fn)(void *ctx, const struct proc_stat *p), void *ctx)
{
	struct proc_stat *p = malloc(sizeof(*p));
	pid_t *queue = malloc((f->count + 1) * sizeof(*queue));
	size_t len = 0;
	int err = p && queue ? read_linked(find_link(f, pid), p) : -ENOMEM;

	if (!err && start_ns && p->start_ns != start_ns)
		err = -ENOENT;

	if (err)
		goto out;
	fn(ctx, p);
	queue[len++] = pid;
	/* each process has one parent, so that each is queued at most once; reading was not atomic, so `len` is checked
	 * too */
	for (size_t at = 0; at < len; at++)
		for (size_t i = first_child(f, queue[at]); i < f->count && f->links[i].ppid == queue[at]; i++) {
			if (len > f->count || f->links[i].pid == pid || read_linked(&f->links[i], p))
				continue;
			fn(ctx, p);
			queue[len++] = f->links[i].pid;
		}
out:
	free(queue);
	free(p);
	return err;
}

int target_tree(pid_t pid, void (*fn)(void *ctx, const struct proc_stat *p), void *ctx)
{
	struct target_family *f = target_family_read();
	int err = f ? target_family_tree(f, pid, 0, fn, ctx) : -errno;

	target_family_free(f);
	return err;
}
