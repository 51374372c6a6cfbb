/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_HTTP_ROUTE_H
#define FLOW_HTTP_ROUTE_H

/*
 * The shape of a request's path, by which requests are grouped: what looks like a value becomes ":id", so that the same
 * code has the same shape. The query is no part of it. Pure functions.
 *
 * A segment is a value when it
 *   - has digits only (with "-", "." and "_" between them: dates, versions), or a run of ROUTE_DIGITS digits
 *   - is a UUID, or ROUTE_HEX or more hexadecimal digits with a decimal one among them
 *   - has ROUTE_TOKEN or more letters and digits, a fifth of which are digits: keys and tokens
 *   - is a word of small letters, "_" or "-", and ROUTE_TAIL or more letters of both cases and digits behind it
 *     (msg_01XFDUDYJgAACzvnptvVoYEL), what looks like a credential (base/credential.h), or 0x and hexadecimal digits
 *   - is longer than ROUTE_SEGMENT_MAX, percent-coded, holds "@" behind its first byte, or is no printable ASCII
 * An ending of up to five letters (42.json) and a method behind a colon (42:cancel) stay. Parameters of a segment (from
 * ";" on) are dropped.
 *
 * A label is what a request itself says that it does: operationName of GraphQL, or op of any query. Only a plain word
 * is one, never what looks like a value.
 */

#include "base/sv.h"

#define ROUTE_MAX	  256 /* bytes; longer: cut at a segment, and "/..." at the end */
#define ROUTE_DIGITS	  5
#define ROUTE_HEX	  8
#define ROUTE_TOKEN	  16
#define ROUTE_TAIL	  12
#define ROUTE_SEGMENT_MAX 64
#define ROUTE_LABEL_MAX	  64

/* path: a request target in origin form; what follows "?" is left out. NUL-terminated; returns its length, 0: none. */
size_t route_of_path(char out[ROUTE_MAX + 1], struct sv path);
/* From the query of a target: the value of op or operationName, borrowed; SV_NONE: none. */
struct sv route_label_of_target(struct sv target);
bool route_is_label(struct sv text);
/* The path is one that GraphQL is asked at: a segment of that name at its end. */
bool route_is_graphql(struct sv path);

#endif
