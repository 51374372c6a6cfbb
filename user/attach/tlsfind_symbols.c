/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind.h"

#include <stdio.h>

#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"
#include "debugdata.h"

/* --- the names --------------------------------------------------------------------------------------------------- */

enum name {
	SSL_READ,
	SSL_READ_EX,
	SSL_WRITE,
	SSL_WRITE_EX,
	SSL_WRITE_EX2,
	SSL_PEEK,
	SSL_PEEK_EX,
	SSL_DO_HANDSHAKE,
	SSL_NEW,
	SSL_FREE,
	GNUTLS_RECV,
	GNUTLS_SEND,
	GNUTLS_SEND2,
	GNUTLS_HANDSHAKE,
	GNUTLS_DEINIT,
	MARK_OPENSSL3,
	MARK_OPENSSL11,
	MARK_BORINGSSL,
	NAMES,
};

/* Arguments are (object, buffer, length, …); len_arg: where the moved length is, or what success is: see enum tls_role.
 */
static const struct {
	const char *name;
	uint32_t role, len_arg;
} wanted[NAMES] = {
	[SSL_READ] = {"SSL_read", TLS_ROLE_READ, TLS_LEN_RET},
	[SSL_READ_EX] = {"SSL_read_ex", TLS_ROLE_READ, 4},
	[SSL_WRITE] = {"SSL_write", TLS_ROLE_WRITE, TLS_LEN_RET},
	[SSL_WRITE_EX] = {"SSL_write_ex", TLS_ROLE_WRITE, 4},
	[SSL_WRITE_EX2] = {"SSL_write_ex2", TLS_ROLE_WRITE, 5}, /* (s, buf, num, flags, *written), since 3.3 */
	[SSL_PEEK] = {"SSL_peek", TLS_ROLE_NONE, 0},
	[SSL_PEEK_EX] = {"SSL_peek_ex", TLS_ROLE_NONE, 0},
	[SSL_DO_HANDSHAKE] = {"SSL_do_handshake", TLS_ROLE_HANDSHAKE, 0},
	[SSL_NEW] = {"SSL_new", TLS_ROLE_NEW, 0},
	[SSL_FREE] = {"SSL_free", TLS_ROLE_FREE, 0},
	[GNUTLS_RECV] = {"gnutls_record_recv", TLS_ROLE_READ, TLS_LEN_RET},
	[GNUTLS_SEND] = {"gnutls_record_send", TLS_ROLE_WRITE, TLS_LEN_RET},
	[GNUTLS_SEND2] = {"gnutls_record_send2", TLS_ROLE_WRITE,
			  TLS_LEN_RET}, /* (session, data, n, pad, flags), 3.6.3 */
	[GNUTLS_HANDSHAKE] = {"gnutls_handshake", TLS_ROLE_HANDSHAKE, TLS_HANDSHAKE_ZERO},
	[GNUTLS_DEINIT] = {"gnutls_deinit", TLS_ROLE_FREE, 0},
	/* only to tell what library this is */
	[MARK_OPENSSL3] = {"SSL_get1_peer_certificate", TLS_ROLE_NONE, 0},
	[MARK_OPENSSL11] = {"OPENSSL_init_ssl", TLS_ROLE_NONE, 0},
	[MARK_BORINGSSL] = {"SSL_CTX_set_grease_enabled", TLS_ROLE_NONE, 0},
};

struct function {
	bool defined, twice; /* twice: the name stands for two functions */
	uint64_t off, size;
};

struct finder {
	const struct elf *e;
	struct tls_find *out;
	struct function f[NAMES];
	bool no_memory; /* then nothing is known of who calls whom */
};

static bool note_symbol(void *ctx, const struct elf_symbol *s)
{
	struct finder *find = ctx;

	if (!sv_starts(s->name, SV("SSL_")) && !sv_starts(s->name, SV("gnutls_")) &&
	    !sv_starts(s->name, SV("OPENSSL_init_ssl")))
		return true;
	for (unsigned i = 0; i < NAMES; i++) {
		struct function *f = &find->f[i];

		if (!sv_eq(s->name, sv_of(wanted[i].name)))
			continue;
		if (f->defined && f->off != s->off)
			f->twice = true;
		if (!f->defined)
			*f = (struct function){.defined = true, .off = s->off, .size = s->size};
		break;
	}
	return true;
}

static const char *openssl_label(const struct finder *find)
{
	static const char *const labels[][2] = {
		{"libssl.so.4", "openssl 4"},
		{"libssl.so.3", "openssl 3"},
		{"libssl.so.1.1", "openssl 1.1"},
		{"libssl.so.1.0", "openssl 1.0"},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(labels); i++)
		if (sv_eq(find->e->soname, sv_of(labels[i][0])))
			return labels[i][1];
	if (find->f[MARK_BORINGSSL].defined)
		return "boringssl";
	if (find->f[MARK_OPENSSL3].defined)
		return "openssl 3";
	return find->f[MARK_OPENSSL11].defined ? "openssl 1.1" : "openssl";
}

/* --- sites ------------------------------------------------------------------------------------------------------- */

static void add(struct finder *find, uint32_t role, uint32_t len_arg, const struct site *site, const char *name)
{
	struct tls_func *t;

	if (find->out->count == TLSFIND_MAX)
		BUG("more TLS functions than TLSFIND_MAX");
	t = &find->out->funcs[find->out->count++];
	*t = (struct tls_func){.role = role, .len_arg = len_arg, .site = *site};
	t->site.len_arg = (uint8_t)len_arg;
	snprintf(t->name, sizeof(t->name), "%s", name);
}

static void note(struct finder *find, const char *what, const char *name)
{
	if (!find->out->reason[0])
		snprintf(find->out->reason, sizeof(find->out->reason), "%s%s", what, name);
}

/* A function of its own; an undefined one is no error. */
static void add_function(struct finder *find, enum name n)
{
	struct site site;

	if (!find->f[n].defined)
		return;
	if (site_resolve(find->e, find->f[n].off, wanted[n].role != TLS_ROLE_FREE, &site))
		note(find, "no instruction can be decoded at ", wanted[n].name);
	else
		add(find, wanted[n].role, wanted[n].len_arg, &site, wanted[n].name);
}

/* The functions of one direction: the plain one, and those that return 1 and the length behind a pointer. */
#define DIRECTION_MAX 3
struct direction {
	const char *internal; /* name of the function that all of them call, NULL: no rule 2 for this library */
	unsigned internal_at; /* its argument number of the length pointer */
	enum name names[DIRECTION_MAX];
	unsigned count;
	uint64_t target; /* rule 2 */
	struct site site[DIRECTION_MAX], target_site;
	bool use_target;
};

/* What a function hands on as its length pointer: its own argument, or (plain) a local. */
static unsigned length_handed_on(enum name n)
{
	return wanted[n].len_arg == TLS_LEN_RET ? SITE_LOCAL : wanted[n].len_arg;
}

/* SSL_write_ex that is only a way into SSL_write_ex2 (gnutls_record_send into _send2): probing both would count each
 * call twice. */
static bool is_way_into(struct finder *find, enum name n, enum name other)
{
	const struct function *f = &find->f[n];
	uint64_t target = 0;
	struct sv plt;

	if (!find->f[other].defined || n == other)
		return false;
	if (site_tail_target(find->e, f->off, &target, &plt) && target == find->f[other].off)
		return true;
	for (unsigned at = 4; at <= 5; at++) {
		int err = site_forward(find->e, f->off, f->size, at, length_handed_on(n), &target);

		if (!err && target == find->f[other].off)
			return true;
		find->no_memory |= err == -ENOMEM;
	}
	return false;
}

static void collect(struct finder *find, struct direction *d, const enum name *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		bool way = false;

		for (unsigned k = 0; k < count; k++)
			way |= find->f[names[i]].defined && is_way_into(find, names[i], names[k]);
		if (find->f[names[i]].defined && !way)
			d->names[d->count++] = names[i];
	}
}

/* Rule 1 or 3 for each; those that cannot be decoded fall out. */
static void resolve_public(struct finder *find, struct direction *d)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < d->count; i++) {
		enum name n = d->names[i];

		if (site_resolve(find->e, find->f[n].off, true, &d->site[kept]))
			note(find, "no instruction can be decoded at ", wanted[n].name);
		else
			d->names[kept++] = n;
	}
	d->count = kept;
}

/*
 * Rule 2, when a public function is slow to probe: all functions of the direction, a plain one and another among them,
 * must agree on one internal function, whose own site is cheap, that no SSL_peek reaches and that is no public
 * function.
 */
static void resolve_internal(const struct finder *find, struct direction *d)
{
	bool slow = false, plain = false;

	for (unsigned i = 0; i < d->count; i++) {
		slow |= d->site[i].class == SITE_STEPPED;
		plain |= wanted[d->names[i]].len_arg == TLS_LEN_RET;
	}
	if (!d->internal || !slow || !plain || d->count < 2)
		return;
	for (unsigned i = 0; i < d->count; i++) {
		const struct function *f = &find->f[d->names[i]];
		uint64_t target;

		if (site_forward(find->e, f->off, f->size, d->internal_at, length_handed_on(d->names[i]), &target) ||
		    (i && target != d->target))
			return;
		d->target = target;
	}
	for (unsigned i = 0; i < NAMES; i++)
		if (find->f[i].defined && find->f[i].off == d->target)
			return;
	for (unsigned i = SSL_PEEK; i <= SSL_PEEK_EX; i++)
		if (find->f[i].defined && site_reaches(find->e, find->f[i].off, d->target))
			return;
	d->use_target = !site_resolve(find->e, d->target, true, &d->target_site) && d->target_site.rule == 1;
	d->target_site.rule = 2;
}

static void add_direction(struct finder *find, const struct direction *d)
{
	char name[sizeof(find->out->funcs[0].name)];
	int len;

	if (!d->use_target) {
		for (unsigned i = 0; i < d->count; i++)
			add(find, wanted[d->names[i]].role, wanted[d->names[i]].len_arg, &d->site[i],
			    wanted[d->names[i]].name);
		return;
	}
	len = snprintf(name, sizeof(name), "%s (", d->internal);
	for (unsigned i = 0; i < d->count && len < (int)sizeof(name); i++)
		len += snprintf(name + len, sizeof(name) - (size_t)len, "%s%s", i ? ", " : "",
				wanted[d->names[i]].name);
	if (len + 1 < (int)sizeof(name))
		snprintf(name + len, sizeof(name) - (size_t)len, ")");
	add(find, wanted[d->names[0]].role, d->internal_at, &d->target_site, name);
}

/* --- libraries --------------------------------------------------------------------------------------------------- */

static int add_both(struct finder *find, struct direction *read, struct direction *write)
{
	if (find->no_memory)
		return -ENOMEM;
	resolve_public(find, read);
	resolve_public(find, write);
	if (!read->count || !write->count) {
		note(find, "no function that ", read->count ? "writes" : "reads");
		return -EINVAL;
	}
	resolve_internal(find, read);
	resolve_internal(find, write);
	if (read->use_target && write->use_target && read->target == write->target)
		read->use_target = write->use_target = false;
	add_direction(find, read);
	add_direction(find, write);
	return 0;
}

/* libgnutls-openssl and its like: their calls end in a library that is probed itself. */
static void note_gnutls_needed(void *ctx, struct sv soname)
{
	if (sv_starts(soname, SV("libgnutls.so")))
		*(bool *)ctx = true;
}

static int find_openssl(struct finder *find)
{
	static const enum name reads[] = {SSL_READ, SSL_READ_EX};
	static const enum name writes[] = {SSL_WRITE, SSL_WRITE_EX, SSL_WRITE_EX2};
	struct direction read = {.internal = "ssl_read_internal", .internal_at = 4};
	struct direction write = {.internal = "ssl_write_internal",
				  .internal_at = find->f[SSL_WRITE_EX2].defined ? 5 : 4};
	bool wrapper = false;
	int err;

	elf_each_needed(find->e, note_gnutls_needed, &wrapper);
	if (wrapper)
		return -ENOENT;
	find->out->stack = openssl_label(find);
	collect(find, &read, reads, ARRAY_SIZE(reads));
	collect(find, &write, writes, ARRAY_SIZE(writes));
	err = add_both(find, &read, &write);
	if (err)
		return err;
	add_function(find, SSL_DO_HANDSHAKE);
	add_function(find, SSL_NEW);
	add_function(find, SSL_FREE);
	if (!find->f[SSL_DO_HANDSHAKE].defined)
		note(find, "handshakes are not seen: there is no ", wanted[SSL_DO_HANDSHAKE].name);
	return 0;
}

static int find_gnutls(struct finder *find)
{
	static const enum name reads[] = {GNUTLS_RECV};
	static const enum name writes[] = {GNUTLS_SEND, GNUTLS_SEND2};
	struct direction read = {0}, write = {0};
	int err;

	find->out->stack = "gnutls";
	collect(find, &read, reads, ARRAY_SIZE(reads));
	collect(find, &write, writes, ARRAY_SIZE(writes));
	err = add_both(find, &read, &write);
	if (err)
		return err;
	add_function(find, GNUTLS_HANDSHAKE);
	add_function(find, GNUTLS_DEINIT);
	return 0;
}

static bool any_defined(const struct finder *find, enum name first, enum name last)
{
	for (unsigned i = first; i <= last; i++)
		if (find->f[i].defined)
			return true;
	return false;
}

static bool any_tls(const struct finder *find)
{
	return any_defined(find, SSL_READ, SSL_WRITE_EX2) || any_defined(find, GNUTLS_RECV, GNUTLS_SEND2);
}

/* Symbol tables, else mini debug info. Broken ones: what is readable counts. 0 or -ENOMEM. */
static int collect_symbols(struct finder *find)
{
	struct debugdata mini;
	int err;

	elf_each_function(find->e, note_symbol, find);
	if (any_tls(find))
		return 0;
	err = debugdata_open(&mini, find->e);
	if (!err) {
		elf_each_function_by(find->e, &mini.elf, note_symbol, find);
		debugdata_close(&mini);
		find->out->method = "symbols of .gnu_debugdata";
	}
	return err == -ENOMEM ? err : 0;
}

int tlsfind_symbols(const struct elf *e, struct tls_find *out)
{
	struct finder find = {.e = e, .out = out};
	int err;

	*out = (struct tls_find){.method = "symbols"};
	err = collect_symbols(&find);
	if (err)
		return err;
	for (unsigned i = 0; i < MARK_OPENSSL3; i++)
		if (find.f[i].twice) {
			snprintf(out->reason, sizeof(out->reason), "ambiguous: two functions are called %s",
				 wanted[i].name);
			return -EINVAL;
		}
	if (any_defined(&find, SSL_READ, SSL_WRITE_EX2))
		err = find_openssl(&find);
	else if (any_defined(&find, GNUTLS_RECV, GNUTLS_SEND2))
		err = find_gnutls(&find);
	else
		err = -ENOENT;
	if (err)
		out->count = 0;
	if (err == -ENOENT)
		*out = (struct tls_find){.method = "symbols"};
	return err;
}
