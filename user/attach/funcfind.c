/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "funcfind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <linux/types.h>

#include "base/sigbus.h"
#include "bpf/event.h"
#include "debugdata.h"
#include "gotable.h"
#include "insn.h"
#include "symbol/demangle.h"

#define FUNCTION_BYTES_MAX (1u << 20)

int func_spec_parse(struct func_spec *spec, const char *text)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;

	*spec = (struct func_spec){.text = text};
	if (!len || len >= sizeof(spec->binary) || !colon[1] || text[len - 1] == '/')
		return -EINVAL;
	memcpy(spec->binary, text, len);
	spec->symbol = colon + 1;
	return 0;
}

bool func_spec_matches(const struct func_spec *spec, const struct elf *e, const char *shown_path)
{
	const char *name = strrchr(shown_path, '/') ? strrchr(shown_path, '/') + 1 : shown_path;
	struct stat meant, here;

	if (!strchr(spec->binary, '/'))
		return !strcmp(spec->binary, name);
	if (!strcmp(spec->binary, shown_path))
		return true;
	return !stat(spec->binary, &meant) && !fstat(e->fd, &here) && meant.st_dev == here.st_dev &&
	       meant.st_ino == here.st_ino;
}

/* --- by name ----------------------------------------------------------------------------------------------------- */

struct range {
	uint64_t off, size;
};

struct search {
	const struct elf *e;
	const struct func_spec *spec;
	unsigned number;
	struct tls_find *out;
	struct sv wanted, last; /* the whole name, and its last part: every mangled form holds that */
	bool exact;		/* a symbol has this very name */
	bool several;
	struct range main, cold; /* size 0: none */
	char cold_name[512];
	char why[160];
};

static bool holds(struct sv text, struct sv part)
{
	return part.len && memmem(text.ptr, text.len, part.ptr, part.len);
}

/* What the compiler adds to the name of a copy of a function; not the part that is seldom needed, which is none. */
static bool is_copy(struct sv name, struct sv wanted)
{
	return name.len > wanted.len && sv_starts(name, wanted) && name.ptr[wanted.len] == '.' &&
	       !holds(name, SV(".cold"));
}

static bool is_meant(const struct search *s, struct sv name)
{
	char text[DEMANGLE_OUT_BYTES];
	size_t len;

	if (is_copy(name, s->wanted))
		return true;
	if (!holds(name, s->last) || holds(name, SV(".cold")))
		return false;
	len = demangle(text, name);
	return sv_eq((struct sv){text, len}, s->wanted);
}

static bool note_symbol(void *ctx, const struct elf_symbol *sym)
{
	struct search *s = ctx;
	bool exact = sv_eq(sym->name, s->wanted);

	if (!exact && (s->exact || !is_meant(s, sym->name)))
		return true;
	if (exact && !s->exact)
		s->main.size = s->main.off = s->several = 0;
	s->exact |= exact;
	s->several |= s->main.off && s->main.off != sym->off;
	if (s->main.off != sym->off || sym->size > s->main.size)
		s->main = (struct range){sym->off, sym->size};
	snprintf(s->cold_name, sizeof(s->cold_name), "%.*s.cold", (int)(sym->name.len < 500 ? sym->name.len : 500),
		 sym->name.ptr);
	return true;
}

static bool note_cold(void *ctx, const struct elf_symbol *sym)
{
	struct search *s = ctx;

	if (!sv_eq(sym->name, sv_of(s->cold_name)))
		return true;
	s->cold = (struct range){sym->off, sym->size};
	return false;
}

static void each_function(struct search *s, bool (*fn)(void *ctx, const struct elf_symbol *sym))
{
	struct debugdata mini;

	elf_each_function(s->e, fn, s);
	if (debugdata_open(&mini, s->e))
		return;
	elf_each_function_by(s->e, &mini.elf, fn, s);
	debugdata_close(&mini);
}

/* --- by code ----------------------------------------------------------------------------------------------------- */

static int refuse(struct search *s, const char *why)
{
	s->out->count = 0;
	snprintf(s->out->reason, sizeof(s->out->reason), "%s", why);
	return -EINVAL;
}

static bool inside(const struct range *r, int64_t off)
{
	return off >= (int64_t)r->off && (uint64_t)off - r->off < r->size;
}

static int add(struct search *s, uint32_t role, const struct site *site)
{
	struct tls_func *f = &s->out->funcs[s->out->count];

	if (s->out->count == TLSFIND_MAX)
		return refuse(s, "it returns in too many places");
	*f = (struct tls_func){.role = role, .len_arg = s->number, .abi = TLS_ABI_FUNC, .site = *site};
	snprintf(f->name, sizeof(f->name), "%.40s%s", s->spec->symbol, role == FUNC_ROLE_END ? " (end)" : "");
	s->out->count++;
	return 0;
}

/* A jump through a pointer that another file fills in (code compiled without a PLT). */
static bool is_import(const struct decoder *d)
{
	const cs_x86 *x = &d->insn->detail->x86;

	return x->op_count == 1 && x->operands[0].type == X86_OP_MEM && x->operands[0].mem.base == X86_REG_RIP;
}

/* One instruction of the function. `ends`: its ends are probed. */
static int look_at(struct search *s, struct decoder *d, const struct site *entry, bool ends)
{
	int64_t target;
	enum flow flow = flow_of(d, &target);
	bool leaves = !inside(&s->main, target) && !inside(&s->cold, target);
	bool end = cs_insn_group(d->handle, d->insn, X86_GRP_RET) || (flow == FLOW_JUMP && leaves) ||
		   (flow == FLOW_JUMP_INDIRECT && is_import(d));
	struct site site;
	int err;

	if ((flow == FLOW_JUMP || flow == FLOW_BRANCH) && target >= (int64_t)s->main.off &&
	    target <= (int64_t)entry->off)
		return refuse(s, "it begins again inside of a call (a loop, or a call of itself in the end)");
	if (!ends)
		return 0;
	if (flow == FLOW_BRANCH && leaves)
		return refuse(s, "a conditional jump leaves it");
	if (!end)
		return 0;
	err = site_at(s->e, s->main.off, d->off, &site);
	return err == -ENOMEM ? err : err ? refuse(s, "its end cannot be decoded") : add(s, FUNC_ROLE_END, &site);
}

static int walk(struct search *s, struct decoder *d, const struct range *r, const struct site *entry, bool ends)
{
	uint64_t at = 0;
	int err = 0;

	while (at < r->size && !err) {
		if (!decode_insn(d, r->off + at) || d->insn->size > r->size - at)
			return ends ? refuse(s, "its code cannot be decoded") : 0;
		at += d->insn->size;
		err = look_at(s, d, entry, ends);
	}
	return err;
}

static int read_code(struct search *s, const struct site *entry, bool ends)
{
	struct decoder d;
	int err;

	if (s->main.size > FUNCTION_BYTES_MAX || s->cold.size > FUNCTION_BYTES_MAX)
		return refuse(s, "it is too large");
	err = decoder_open(&d, s->e);
	if (err)
		return err;
	err = walk(s, &d, &s->main, entry, ends);
	if (!err)
		err = walk(s, &d, &s->cold, entry, ends);
	decoder_close(&d);
	return err;
}

/* Whether stacks may be unwound through functions of this file. */
static bool unwinds(const struct elf *e)
{
	struct elf_section section;

	return !e->sections.count || elf_section(e, SV(".gcc_except_table"), &section);
}

static int probe(struct search *s)
{
	bool ends = unwinds(s->e);
	struct site entry;
	int err = site_resolve(s->e, s->main.off, true, &entry);

	if (err)
		return err == -ENOMEM ? err : refuse(s, "no instruction can be decoded there");
	if (ends && (!s->main.size || entry.class == SITE_ENTRY))
		return refuse(s, !s->main.size ? "how long it is, is not known"
					       : "code that may be unwound cannot be decoded on this machine");
	err = add(s, ends ? FUNC_ROLE_ENTRY : FUNC_ROLE_CALL, &entry);
	if (!err && s->main.size && entry.class != SITE_ENTRY)
		err = read_code(s, &entry, ends);
	if (!err && ends && s->out->count == 1)
		return refuse(s, "it does not return");
	return err;
}

static bool is_go(const struct elf *e)
{
	struct go_table t;
	int err = go_table_open(&t, e);

	return !err || err == -EPROTONOSUPPORT;
}

static int search(void *ctx)
{
	struct search *s = ctx;

	if (is_go(s->e))
		return refuse(s, "it is a Go program, whose stacks move: its functions are not traced");
	each_function(s, note_symbol);
	if (!s->main.off)
		return refuse(s, "no symbol of the file has that name");
	if (s->several)
		return refuse(s, "several functions have that name: give the mangled one");
	each_function(s, note_cold);
	return probe(s);
}

/* The last part of a name like a::b<c>::d: every mangled form of it holds that as it stands. */
static struct sv last_part(struct sv name)
{
	size_t end = name.len, begin;

	while (end && !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", name.ptr[end - 1]))
		end--;
	for (begin = end; begin; begin--)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", name.ptr[begin - 1]))
			break;
	return (struct sv){name.ptr + begin, end - begin};
}

int funcfind(const struct elf *e, const struct func_spec *spec, unsigned number, struct tls_find *out)
{
	struct sv wanted = sv_of(spec->symbol);
	struct search s = {
		.e = e, .spec = spec, .number = number, .out = out, .wanted = wanted, .last = last_part(wanted)};
	int err;

	*out = (struct tls_find){.stack = spec->text, .method = "symbols", .confidence = TLS_NAMED};
	err = sigbus_guard(search, &s);
	if (err)
		out->count = 0;
	return err;
}
