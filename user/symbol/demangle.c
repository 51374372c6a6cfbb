/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "demangle.h"

#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#include <libiberty/demangle.h>

struct text {
	char *out;
	size_t len;
	jmp_buf full;
};

/* libiberty cannot be asked to stop, and a name of a few hundred bytes can stand for gigabytes of text. */
static void append(const char *s, size_t len, void *ctx)
{
	struct text *t = ctx;
	size_t room = DEMANGLE_OUT_BYTES - 1 - t->len;
	bool fits = len <= room;

	len = fits ? len : room;
	if (len)
		memcpy(t->out + t->len, s, len);
	t->len += len;
	if (!fits)
		longjmp(t->full, 1);
}

static bool is_rust(struct sv name)
{
	/* "_R": v0. "_ZN…17h<16 hex digits>E": before it. */
	return sv_starts(name, SV("_R")) ||
	       (name.len > 20 && sv_starts(name, SV("_ZN")) && !memcmp(name.ptr + name.len - 20, "17h", 3));
}

static size_t as_is(char *out, struct sv name)
{
	size_t len = name.len < DEMANGLE_OUT_BYTES ? name.len : DEMANGLE_OUT_BYTES - 1;

	memcpy(out, name.ptr, len);
	out[len] = '\0';
	if (len < name.len)
		memcpy(out + len - 3, "...", 3);
	return len;
}

size_t demangle(char out[DEMANGLE_OUT_BYTES], struct sv name)
{
	char mangled[DEMANGLE_IN_BYTES + 1];
	struct text t = {.out = out};
	volatile int known = 0;

	if (name.len > DEMANGLE_IN_BYTES || !(sv_starts(name, SV("_Z")) || sv_starts(name, SV("_R"))))
		return as_is(out, name);
	memcpy(mangled, name.ptr, name.len);
	mangled[name.len] = '\0';
	if (setjmp(t.full)) {
		memcpy(out + t.len - 3, "...", 3);
		out[t.len] = '\0';
		return t.len;
	}
	if (is_rust(name))
		known = rust_demangle_callback(mangled, DMGL_NO_OPTS, append, &t);
	if (!known) {
		t.len = 0;
		known = cplus_demangle_v3_callback(mangled, DMGL_NO_OPTS, append, &t);
	}
	if (!known || !t.len)
		return as_is(out, name);
	out[t.len] = '\0';
	return t.len;
}
