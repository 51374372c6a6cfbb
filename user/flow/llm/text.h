/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_TEXT_H
#define FLOW_LLM_TEXT_H

/* Small helpers for strangers' text. Private to exchange and its children. */

#include "base/sv.h"

/* Into a fixed field, NUL-terminated, cut at a UTF-8 character; stops at a NUL. */
void text_copy(char *out, size_t size, struct sv text);
/* The same of percent-coded text; what is no code stays as it is. */
void text_percent_decode(char *out, size_t size, struct sv text);
/* Owned copy of at most max bytes, cut likewise. NULL for an absent or empty text, and without memory (errno ENOMEM).
 */
char *text_dup(struct sv text, size_t max);
/* Length of at most max bytes without an incomplete UTF-8 character where it was cut. */
size_t text_cut(struct sv text, size_t max);
/* FNV-1a over more bytes; begin with 0. Never 0 after at least one byte. */
uint64_t text_hash(uint64_t hash, const void *ptr, size_t len);
/* More bytes, whatever their order: texts have the same sum where they are made of the same bytes. Begin with 0. */
uint64_t text_sum(uint64_t sum, const uint8_t *ptr, size_t len);
/* By which a text is known again: hash of its first bytes, at most JSONSCAN_VALUE_BYTES, and of its whole length. Not
 * 0. */
uint64_t text_mark(struct sv prefix, uint64_t bytes);
/* String member of a small JSON text, found by its name alone; SV_NONE when it is not there. Escapes stay as they are.
 */
struct sv text_json_member(struct sv json, const char *name);

#endif
