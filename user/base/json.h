/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_JSON_H
#define BASE_JSON_H

/*
 * Writing JSON that every trace viewer accepts: raw UTF-8 and never \u surrogate escapes, controls, DEL and what
 * misleads a reader (base/utf8.h) escaped, NUL dropped, invalid UTF-8 replaced by U+FFFD, no NaN or Infinity (written
 * as null), integers above 2^53-1 as strings. Commas are placed by the writer. And small readers for cJSON trees.
 */

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "sv.h"

struct json {
	struct buf *out; /* borrowed */
	bool comma;
	int err; /* sticky: first -errno of the buffer */
};

void json_init(struct json *j, struct buf *out);
void json_object(struct json *j, const char *key); /* key NULL: array element or top level */
void json_array(struct json *j, const char *key);
void json_end_object(struct json *j);
void json_end_array(struct json *j);
/* Ends the outermost object, and its line; where anything of it failed, what is behind `before` is taken back: no half
 * lines. 0 or -errno. */
int json_end_line(struct json *j, size_t before);
void json_string(struct json *j, const char *key, struct sv value); /* absent view: null */
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
void json_double(struct json *j, const char *key, double value, int decimals); /* not finite: null */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
void json_raw(struct json *j, const char *key, struct sv json_text);

/* Only the escaped text, without quotes. Return: 0 or -errno of the buffer. */
int json_escape(struct buf *out, struct sv value);

/* Readers. Absent or of another type: NULL, SV_NONE, UNKNOWN_COUNT (-1), false. Negative and non-integral numbers count
 * as absent in json_get_count; numbers above 2^53 too. */
const cJSON *json_get(const cJSON *object, const char *key); /* case-sensitive */
struct sv json_get_string(const cJSON *object, const char *key);
int64_t json_get_count(const cJSON *object, const char *key);
double json_get_number(const cJSON *object, const char *key); /* NAN; never an infinity */
bool json_get_true(const cJSON *object, const char *key);
/* What json_uint() wrote, the large ones as strings: NAN where it is no number, and never an infinity. */
double json_number(const cJSON *item);

#endif
