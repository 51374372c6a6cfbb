/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TLSFIND_ANCHOR_H
#define ATTACH_TLSFIND_ANCHOR_H

/*
 * What a stripped file still says about its functions: their error reports name a source file or the function itself.
 * From such a string to the code that refers to it, the constants around, and the function that it is in. Private to
 * the methods of the finder that go by strings; x86-64 only: of other machines' files only the strings are looked for,
 * so that they are refused with that reason. One read of the file serves them all.
 *
 * A reference counts only when decoding from a function's entry arrives at it, and an entry is what direct calls lead
 * to (or whose address is taken), behind the end of other code.
 */

#include "frames.h"
#include "insn.h"
#include "tlsfind.h"

enum anchor {
	ANCHOR_BORINGSSL_FILE, /* a path that ends in /ssl/ssl_lib.cc */
	ANCHOR_AEAD_FILE,      /* … fipsmodule/cipher/aead.c */
	ANCHOR_OPENSSL_FILE,   /* … ssl/ssl_lib.c: only whether there are references */
	ANCHOR_READ_INTERNAL,  /* the rest: the very string */
	ANCHOR_WRITE_INTERNAL,
	ANCHOR_READ,
	ANCHOR_WRITE,
	ANCHOR_DO_HANDSHAKE,
	ANCHOR_NEW,
	ANCHORS,
};

#define ANCHOR_STRINGS_MAX   32		/* in a file; more: anchors.reason */
#define ANCHOR_REFS_MAX	     512	/* in its code; likewise */
#define ANCHOR_FUNCTIONS_MAX 1024	/* looked at */
#define ANCHOR_CONSTANTS_MAX 24		/* around a reference; the first ones count */
#define ANCHOR_INSNS_MAX     (1u << 18) /* decoded in all; real files take some thousands */
#define ANCHOR_SITES_MAX     6		/* error reports in a function that gets a role: more are several functions */

struct anchor_string {
	enum anchor what;
	uint64_t first, last; /* address of the string's first byte; of a path: any place before the needle */
	struct sv path;	      /* the string as far back as it has no NUL, at most ANCHOR_PATH_MAX bytes; borrowed */
};

struct anchor_ref {
	uint64_t off; /* file offset of the instruction */
	enum anchor what;
	int function; /* position, -1: none reaches it */
	uint32_t constants[ANCHOR_CONSTANTS_MAX];
	unsigned constant_count;
	bool reached; /* is an instruction of a function */
};

struct anchor_call {
	uint64_t target, site; /* file offsets */
};

struct anchor_function {
	uint64_t off;
	uint64_t reaches[ANCHOR_REFS_MAX / 64]; /* bit n: refs[n] is an instruction of it */
	bool refers;				/* some reference is its own */
};

struct anchors {
	struct decoder d;
	struct frames frames;
	struct anchor_string strings[ANCHOR_STRINGS_MAX];
	unsigned string_count;
	struct anchor_ref *refs; /* by offset */
	unsigned ref_count;
	struct anchor_call *calls; /* by target: direct calls to where a reference may belong, and addresses taken */
	size_t call_count, call_max;
	struct anchor_function *functions;
	unsigned function_count;
	unsigned budget; /* instructions that may still be decoded: a file can be made so that there is no end */
	bool openssl_file_used;
	const char *reason; /* why the references cannot be told apart, static; NULL: they can */
};

/* Reads the file; e is borrowed until anchors_release(), which is due in any case. 0 or -ENOMEM. */
int anchors_read(struct anchors *a, const struct elf *e);
void anchors_release(struct anchors *a);

/* The string is in the file and code refers to it: the string alone may be anything, a table of such names say. */
bool anchors_used(const struct anchors *a, enum anchor what);
/* Of the function at a position: */
bool anchors_refers(const struct anchors *a, unsigned function, enum anchor what);
/* a report of this library with this reason: both constants around one reference to `what` */
bool anchors_reports(const struct anchors *a, unsigned function, enum anchor what, uint32_t library, uint32_t reason);
/* The same of code that is in no known function: what is called through pointers only, or a copy of something else. */
bool anchors_stray(const struct anchors *a, enum anchor what);
bool anchors_stray_reports(const struct anchors *a, enum anchor what, uint32_t library, uint32_t reason);
bool anchors_crowded(const struct anchors *a, unsigned function); /* more than ANCHOR_SITES_MAX references */
/* Every instruction of a function. fn returns false to stop. 0 or -ENOMEM. */
int anchors_each_insn(struct anchors *a, uint64_t func_off, bool (*fn)(void *ctx, struct decoder *d), void *ctx);
/* Whether the function at func_off calls the one at target_off directly. 1, 0 or -ENOMEM. */
int anchors_calls(struct anchors *a, uint64_t func_off, uint64_t target_off);
/* The function that an instruction is in: file offset of its entry. 0; -ENOENT; -ENOMEM. */
int anchors_function_of(struct anchors *a, uint64_t off, uint64_t *func_off);
/* Whether it is an entry by the unwind tables, or an instruction somewhere really calls it or takes its address: bytes
 * that look like one are no proof. */
bool anchors_proven(struct anchors *a, uint64_t func_off);

/* For the methods: refuse() gives -EINVAL with the reason, add() a proven function with its site. */
__attribute__((format(printf, 2, 3))) int anchors_refuse(struct tls_find *out, const char *fmt, ...);
/* 0; -EINVAL refused: not called by anything, crowded, not to be decoded; -ENOMEM. */
int anchors_add(struct anchors *a, unsigned function, const struct tls_func *like, struct tls_find *out);

/* The methods. As in tlsfind.h. */
int tlsfind_boringssl(struct anchors *a, struct tls_find *out);
int tlsfind_openssl(struct anchors *a, struct tls_find *out);
int tlsfind_awslc(struct anchors *a, struct tls_find *out);

#endif
