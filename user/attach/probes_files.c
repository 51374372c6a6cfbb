/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Probes of a file: set, removed, set again. */
#include "probes_parts.h"

#include "base/clock.h"
#include "base/log.h"
#include "fileid.h"
#include "links.h"
#include "perfbpf.skel.h"
#include "syscalls.h"

void probes_file_detach(struct file *f)
{
	unsigned i;

	for (i = 0; i < f->fd_count; i++)
		close(f->fds[i]);
	for (i = 0; i < f->link_count; i++)
		bpf_link__destroy(f->links[i]);
	f->fd_count = f->link_count = 0;
}

void probes_file_free(struct file *f)
{
	probes_file_detach(f);
	free(f->shown_path);
	free(f);
}

static bool has_role(const struct tls_find *found, uint32_t role)
{
	for (unsigned i = 0; i < found->count; i++)
		if (found->funcs[i].role == role)
			return true;
	return false;
}

static uint64_t cookie_of(const struct file *f, const struct tls_func *func)
{
	const struct tls_find *found = &f->found;
	uint32_t len_arg = func->len_arg;

	if (func->role == TLS_ROLE_HANDSHAKE && func->abi == TLS_ABI_C)
		len_arg = found->stack && strncmp(found->stack, "gnutls", 6) == 0 ? TLS_HANDSHAKE_ZERO : 0;
	return TLS_COOKIE(func->role, len_arg, func->abi) | TLS_COOKIE_PLACE(f->slot, !has_role(found, TLS_ROLE_FREE));
}

static bool is_go(const struct tls_func *func)
{
	return func->abi == TLS_ABI_GO_ENTRY || func->abi == TLS_ABI_GO_RETURN;
}

static bool is_sqlite(const struct tls_func *func)
{
	return func->abi == TLS_ABI_SQLITE;
}

static bool is_named(const struct tls_func *func)
{
	return func->abi == TLS_ABI_FUNC;
}

/* Where a program looks at a function: at the entry and at the return of C's, at all probes of Go's as entries. In the
 * order in which they are set, returns first: a return without its entry is ignored, an entry without its return would
 * be counted as missed. */
enum where { AT_RETURN, AT_ENTRY, AT_GO, AT_SQLITE_RETURN, AT_SQLITE, AT_NAMED_RETURN, AT_NAMED_END, AT_NAMED, WHERES };

static bool is_return(enum where where)
{
	return where == AT_RETURN || where == AT_SQLITE_RETURN || where == AT_NAMED_RETURN;
}

static bool looks_at(const struct tls_func *func, enum where where)
{
	switch (where) {
	case AT_ENTRY:
		return !is_go(func) && !is_sqlite(func) && !is_named(func);
	case AT_RETURN: /* a record is read before it is sealed */
		return !is_go(func) && !is_sqlite(func) && !is_named(func) && func->role != TLS_ROLE_FREE &&
		       !(func->abi == TLS_ABI_AEAD && func->role == TLS_ROLE_WRITE);
	case AT_GO:
		return is_go(func);
	case AT_SQLITE:
		return is_sqlite(func);
	case AT_SQLITE_RETURN:
		return is_sqlite(func) && func->role != SQLITE_ROLE_RESET;
	case AT_NAMED:
		return is_named(func) && func->role != FUNC_ROLE_END;
	case AT_NAMED_END:
		return is_named(func) && func->role == FUNC_ROLE_END;
	case AT_NAMED_RETURN:
		return is_named(func) && func->role == FUNC_ROLE_CALL;
	case WHERES:
		break;
	}
	return false;
}

/* NULL: a session's program at the entry sees the return too. */
static const struct bpf_program *program_at(const struct probes *p, enum where where)
{
	const struct perfbpf_bpf *skel = p->skel;
	bool session = p->features.mode == PROBES_SESSION;

	switch (where) {
	case AT_RETURN:
		return session ? NULL : skel->progs.tls_return;
	case AT_ENTRY:
		return session ? skel->progs.tls_session : skel->progs.tls_entry;
	case AT_GO:
		return skel->progs.tls_go;
	case AT_SQLITE_RETURN:
		return skel->progs.sqlite_return;
	case AT_SQLITE:
		return skel->progs.sqlite_entry;
	case AT_NAMED_RETURN:
	case AT_NAMED_END:
		return skel->progs.func_exit;
	case AT_NAMED:
		return skel->progs.func_entry;
	case WHERES:
		break;
	}
	return NULL;
}

/* One link over functions [first, first + count) of the file; 0 or -errno. */
static int attach_multi(const struct probes *p, struct file *f, const char *path, enum where where, unsigned first,
			unsigned count)
{
	const struct bpf_program *program = program_at(p, where);
	bool session = p->features.mode == PROBES_SESSION && where == AT_ENTRY;
	uint64_t offsets[TLSFIND_MAX], cookies[TLSFIND_MAX];
	struct link_create attr = {
		.attach_type = session ? ATTACH_UPROBE_SESSION : ATTACH_UPROBE_MULTI,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.multi_flags = is_return(where) ? UPROBE_MULTI_RETURN : 0,
	};
	unsigned i;
	int fd;

	/* The kernel sets them in this order, and a function's returns stand behind its entry (Go): a call that is seen
	 * to begin is seen to end. */
	for (i = first + count; i-- > first;) {
		const struct tls_func *func = &f->found.funcs[i];

		if (!looks_at(func, where))
			continue;
		offsets[attr.count] = func->site.off;
		cookies[attr.count++] = cookie_of(f, func);
	}
	if (!program || !attr.count)
		return 0;
	attr.prog_fd = (uint32_t)bpf_program__fd(program);
	fd = link_create(&attr);
	if (fd < 0)
		return fd;
	f->fds[f->fd_count++] = fd;
	return 0;
}

/* Entries and returns of functions [first, first + count), by session or multi links. All of them, or none. */
static int attach_links(const struct probes *p, struct file *f, const char *path, unsigned first, unsigned count)
{
	unsigned before = f->fd_count;
	int err = 0;

	for (enum where where = 0; where < WHERES && !err; where++)
		err = attach_multi(p, f, path, where, first, count);
	while (err && f->fd_count > before)
		close(f->fds[--f->fd_count]);
	return err;
}

static int attach_perf(const struct probes *p, struct file *f, const char *path, enum where where, unsigned i)
{
	const struct tls_func *func = &f->found.funcs[i];
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = cookie_of(f, func), .retprobe = is_return(where));
	struct bpf_link *link;

	if (!looks_at(func, where))
		return 0;
	link = bpf_program__attach_uprobe_opts(program_at(p, where), -1, path, func->site.off, &opts);
	if (!link)
		return -errno;
	f->links[f->link_count++] = link;
	return 0;
}

static int attach_one(const struct probes *p, struct file *f, const char *path, unsigned i)
{
	int err = 0;

	if (p->features.mode != PROBES_PERF)
		return attach_links(p, f, path, i, 1);
	for (enum where where = 0; where < WHERES && !err; where++)
		err = attach_perf(p, f, path, where, i);
	return err;
}

/* Reading and writing both; or that statements run; or all of a function. */
static bool is_useful(const struct file *f)
{
	bool reads = false, writes = false, steps = false, named = false, whole = true;

	for (unsigned i = 0; i < f->found.count; i++) {
		const struct tls_func *func = &f->found.funcs[i];

		named |= is_named(func);
		whole &= !f->pub.status[i];
		if (f->pub.status[i])
			continue;
		reads |= !is_sqlite(func) && func->role == TLS_ROLE_READ;
		writes |= !is_sqlite(func) && func->role == TLS_ROLE_WRITE;
		steps |= is_sqlite(func) && func->role == SQLITE_ROLE_STEP;
	}
	return named ? whole : steps || (reads && writes);
}

static int attach_all(struct probes *p, struct file *f, const char *path)
{
	unsigned i;
	int err = 0;

	/* One link for the whole file: detaching costs tens of milliseconds a link. */
	if (p->features.mode == PROBES_PERF || attach_links(p, f, path, 0, f->found.count)) {
		for (i = 0; i < f->found.count; i++) {
			f->pub.status[i] = attach_one(p, f, path, i);
			if (f->pub.status[i])
				err = f->pub.status[i];
		}
	}
	if (!err)
		p->skel->bss->attached_ns[f->slot] = f->slot ? clock_boot_ns() : 0;
	if (is_useful(f))
		return 0;
	return err ? err : -ENOENT;
}

static struct file *file_of_stack(const struct probes *p, const struct elf *e, const char *stack)
{
	struct file *f;

	for (f = p->files; f; f = f->next)
		if (f->pub.dev == e->dev && f->pub.ino == e->ino && !strcmp(f->found.stack, stack))
			return f;
	return NULL;
}

static unsigned probed_files(const struct probes *p)
{
	unsigned n = 0;

	for (const struct file *f = p->files; f; f = f->next)
		n += !f->removed;
	return n;
}

/* A slot of attached_ns[] that no file has; 0: none. */
static uint32_t free_slot(const struct probes *p)
{
	bool taken[LIMIT_PROBED_FILES] = {true};

	for (const struct file *f = p->files; f; f = f->next)
		taken[f->slot] = true;
	for (uint32_t i = 1; i < LIMIT_PROBED_FILES; i++)
		if (!taken[i])
			return i;
	return 0;
}

/* A file takes up to some 200 ms to be looked through and probed, in which the ring waits. A new child and its parent
 * do not: they may speak over pipes by then. (What was needed and is not any more has time.) */
static void keep_up(struct probes *p)
{
	if (!syscalls_attached(p->syscalls))
		syscalls_update(p->syscalls, clock_boot_ns());
}

void probes_real_file(struct probes *p, struct elf *e)
{
	uint64_t dev, ino;
	int err = fileid_read(p->skel->progs.file_list, e, &dev, &ino);

	keep_up(p);
	if (err) {
		log_debug("the kernel does not tell which file is mapped: %s", strerror(-err));
		return;
	}
	e->dev = dev;
	e->ino = ino;
}

int probes_attach_file(struct probes *p, const char *path, const char *shown_path, const struct elf *e,
		       const struct tls_find *found)
{
	struct file *f;

	keep_up(p);
	f = file_of_stack(p, e, found->stack);
	if (f && (f->removed || f->stopped || is_useful(f)))
		return 0;
	if (f) { /* it failed, and what was missing may be there now */
		probes_file_detach(f);
		memset(f->pub.status, 0, sizeof(f->pub.status));
		return attach_all(p, f, path);
	}
	if (found->count > TLSFIND_MAX)
		return -EINVAL;
	if (probed_files(p) >= PROBES_FILES_MAX)
		return -EMFILE;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->found = *found;
	f->shown_path = strdup(shown_path);
	if (!f->shown_path) {
		free(f);
		return -ENOMEM;
	}
	f->pub.shown_path = f->shown_path;
	f->pub.dev = e->dev;
	f->pub.ino = e->ino;
	f->pub.found = &f->found;
	f->slot = free_slot(p);
	p->skel->bss->attached_ns[f->slot] = 0;
	f->next = p->files;
	p->files = f;
	return attach_all(p, f, path);
}

void probes_detach_file(struct probes *p, uint64_t dev, uint64_t ino)
{
	char text[256];

	for (struct file *f = p->files; f; f = f->next) {
		if (f->pub.dev != dev || f->pub.ino != ino)
			continue;
		probes_file_detach(f);
		f->removed = true;
		p->skel->bss->attached_ns[f->slot] = 0;
		log_verbose("%s: no traced process maps it any more: its probes are removed",
			    log_safe(text, sizeof(text), sv_of(f->shown_path)));
	}
}

void probes_forget_file(struct probes *p, uint64_t dev, uint64_t ino)
{
	struct file **at = &p->files, *f;

	while ((f = *at)) {
		if (!f->removed || f->stopped || f->pub.dev != dev || f->pub.ino != ino) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		probes_file_free(f);
	}
}

void probes_stop_function(struct probes *p, const char *stack)
{
	for (struct file *f = p->files; f; f = f->next)
		if (f->found.stack == stack) {
			/* Probes go one by one: an entry that is still there must not open what nobody ends. */
			for (unsigned i = 0; i < f->found.count; i++)
				p->skel->bss->func_rates[f->found.funcs[i].len_arg % LIMIT_FUNCS].stopped = 1;
			probes_file_detach(f);
			f->stopped = true;
		}
}

void probes_function_calls(const struct probes *p, unsigned number, uint64_t *calls, uint64_t *untold)
{
	const struct func_rate *rate = &p->skel->bss->func_rates[number % LIMIT_FUNCS];

	*calls = __atomic_load_n(&rate->calls, __ATOMIC_RELAXED);
	*untold = __atomic_load_n(&rate->untold, __ATOMIC_RELAXED);
}

int probes_attach_again(struct probes *p, const char *path, uint64_t dev, uint64_t ino)
{
	int err = 0;

	for (struct file *f = p->files; f; f = f->next) {
		int now = 0;

		if (f->pub.dev == dev && f->pub.ino == ino && !f->fd_count && !f->link_count && !f->stopped) {
			f->removed = false;
			memset(f->pub.status, 0, sizeof(f->pub.status));
			now = attach_all(p, f, path);
		}
		err = now ? now : err;
	}
	return err;
}

int probes_renew_file(struct probes *p, const char *path, uint64_t dev, uint64_t ino)
{
	for (struct file *f = p->files; f; f = f->next) {
		if (f->pub.dev != dev || f->pub.ino != ino)
			continue;
		if (f->renewed)
			return -EALREADY;
		f->renewed = true;
		/* The old ones first: with both, everything would be told twice. */
		probes_file_detach(f);
	}
	return probes_attach_again(p, path, dev, ino);
}

void probes_each_file(const struct probes *p, void (*fn)(void *ctx, const struct probes_file *f), void *ctx)
{
	const struct file *f;

	for (f = p->files; f; f = f->next)
		fn(ctx, &f->pub);
}
