/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What /proc says of a process, and the cache of ld.so: any bytes. By the first byte: /proc/PID/stat; ld.so.cache, as
 * it is in a container; or processes, a line each of "executable\1argument\1…", of which those that are meant are
 * looked for.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach/ldcache.h"
#include "attach/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void read_stat(struct sv text)
{
	static struct proc_stat p;
	int err;

	memset(&p, 0, sizeof(p));
	err = target_parse_stat(text, &p);
	check(!err || err == -EBADMSG);
	check(err || (p.pid >= 0 && p.ppid >= 0 && strlen(p.comm) < sizeof(p.comm)));
}

static int count_library(void *ctx, const char *soname, const char *path)
{
	*(size_t *)ctx += strlen(soname) + strlen(path);
	return 0;
}

static void read_cache(struct sv text)
{
	size_t n = 0;
	int err = ldcache_each(text.ptr, text.len, EM_X86_64, count_library, &n);

	check(!err || err == -EBADMSG);
}

static void set_process(struct proc_stat *p, struct sv line, pid_t pid)
{
	struct sv args, exe = sv_cut(line, 1, &args);
	size_t len = exe.len < sizeof(p->exe) - 1 ? exe.len : sizeof(p->exe) - 1;

	memset(p, 0, sizeof(*p));
	p->pid = pid;
	/* mostly a chain; a pid and its parent come from /proc at different times, so that anything can be seen */
	p->ppid = exe.len % 4 ? pid - 1 : (pid_t)(args.len % 8);
	memcpy(p->exe, exe.ptr, len);
	p->args_len = args.len < sizeof(p->args) ? args.len : sizeof(p->args);
	for (size_t i = 0; i < p->args_len; i++)
		p->args[i] = args.ptr[i] == 1 ? '\0' : args.ptr[i];
}

static void choose(struct sv text)
{
	static struct target_filter f;
	static struct proc_stat p;
	struct target_names names;
	char why[128];

	check(!target_filter_init(&f, "claude|x.js", why, sizeof(why)));
	target_names_init(&names, &f);
	for (pid_t pid = 1; text.ptr && pid < 64; pid++) {
		set_process(&p, sv_cut(text, '\n', &text), pid);
		if (target_names_add(&names, &p))
			break;
	}
	target_names_solve(&names);
	for (size_t i = 0; i < names.count; i++) {
		const struct target_named *t = &names.list[i];

		check(t->real > 0 && strlen(t->name) < sizeof(t->name) && *target_by_text(t->by));
		check(target_starter_text(t->starter) && target_starter_text(t->wraps));
	}
	target_names_release(&names);
	target_filter_release(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sv text = {(const char *)data + 1, size - 1};

	if (!size)
		return 0;
	if (data[0] == 's')
		read_stat(text);
	else if (data[0] == 'c')
		read_cache(text);
	else
		choose(text);
	return 0;
}
