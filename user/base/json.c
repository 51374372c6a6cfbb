/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "utf8.h"

#define JSON_INT_MAX 9007199254740991 /* 2^53 - 1: what a double holds exactly */
#define DIGITS_MAX   20		      /* of a u64 */

void json_init(struct json *j, struct buf *out)
{
	*j = (struct json){.out = out};
}

static void put(struct json *j, const char *ptr, size_t len)
{
	if (!j->err)
		j->err = buf_push(j->out, ptr, len);
}

/* Nearly all characters are these: nothing more is to be known of them. */
static bool is_plain(uint8_t c)
{
	return c >= ' ' && c < 0x7f && c != '"' && c != '\\';
}

/* Characters that need no care are copied in runs. */
int json_escape(struct buf *out, struct sv value)
{
	const uint8_t *p = (const uint8_t *)value.ptr;
	size_t run = 0, i = 0;
	int err = 0;

	while (i < value.len && !err) {
		char esc[8];
		uint32_t cp = 0;
		size_t n;
		int len = -1;

		if (is_plain(p[i])) {
			i++;
			continue;
		}
		n = utf8_next(p + i, value.len - i, &cp);
		if (n == 0) {
			n = 1;
			len = snprintf(esc, sizeof(esc), "\xef\xbf\xbd");
		} else if (cp == 0) {
			len = 0;
		} else if (cp == '"' || cp == '\\') {
			len = snprintf(esc, sizeof(esc), "\\%c", (char)cp);
		} else if (cp == '\n') {
			len = snprintf(esc, sizeof(esc), "\\n");
		} else if (utf8_unsafe(cp) && cp < 0x10000) { /* standard output may be a terminal */
			len = snprintf(esc, sizeof(esc), "\\u%04x", cp);
		}
		if (len >= 0) {
			err = buf_push(out, p + run, i - run);
			if (!err)
				err = buf_push(out, esc, (size_t)len);
			run = i + n;
		}
		i += n;
	}
	return err ? err : buf_push(out, p + run, value.len - run);
}

static void put_text(struct json *j, struct sv value)
{
	put(j, "\"", 1);
	if (!j->err)
		j->err = json_escape(j->out, value);
	put(j, "\"", 1);
}

/* What comes before a value: comma, key. */
static void begin(struct json *j, const char *key)
{
	if (j->comma)
		put(j, ",", 1);
	j->comma = true;
	if (key) {
		put_text(j, sv_of(key));
		put(j, ":", 1);
	}
}

static void open_group(struct json *j, const char *key, const char *bracket)
{
	begin(j, key);
	put(j, bracket, 1);
	j->comma = false;
}

static void close_group(struct json *j, const char *bracket)
{
	put(j, bracket, 1);
	j->comma = true;
}

void json_object(struct json *j, const char *key)
{
	open_group(j, key, "{");
}

void json_array(struct json *j, const char *key)
{
	open_group(j, key, "[");
}

void json_end_object(struct json *j)
{
	close_group(j, "}");
}

int json_end_line(struct json *j, size_t before)
{
	json_end_object(j);
	if (!j->err)
		j->err = buf_putc(j->out, '\n');
	if (j->err)
		j->out->len = before;
	return j->err;
}

void json_end_array(struct json *j)
{
	close_group(j, "]");
}

void json_raw(struct json *j, const char *key, struct sv json_text)
{
	begin(j, key);
	put(j, json_text.ptr, json_text.len);
}

void json_string(struct json *j, const char *key, struct sv value)
{
	if (!value.ptr) {
		json_null(j, key);
		return;
	}
	begin(j, key);
	put_text(j, value);
}

static void number(struct json *j, const char *key, const char *digits, bool quoted)
{
	begin(j, key);
	if (quoted)
		put(j, "\"", 1);
	put(j, digits, strlen(digits));
	if (quoted)
		put(j, "\"", 1);
}

void json_int(struct json *j, const char *key, int64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRId64, value);
	number(j, key, text, value > JSON_INT_MAX || value < -JSON_INT_MAX);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	number(j, key, text, value > JSON_INT_MAX);
}

void json_double(struct json *j, const char *key, double value, int decimals)
{
	char text[64];

	if (!isfinite(value) || fabs(value) > 1e18) {
		json_null(j, key);
		return;
	}
	snprintf(text, sizeof(text), "%.*f", decimals, value);
	number(j, key, text, false);
}

void json_bool(struct json *j, const char *key, bool value)
{
	json_raw(j, key, value ? SV("true") : SV("false"));
}

void json_null(struct json *j, const char *key)
{
	json_raw(j, key, SV("null"));
}

const cJSON *json_get(const cJSON *object, const char *key)
{
	return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

struct sv json_get_string(const cJSON *object, const char *key)
{
	const cJSON *v = json_get(object, key);

	return cJSON_IsString(v) ? sv_of(v->valuestring) : SV_NONE;
}

int64_t json_get_count(const cJSON *object, const char *key)
{
	const cJSON *v = json_get(object, key);

	if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || v->valuedouble > (double)JSON_INT_MAX ||
	    v->valuedouble != floor(v->valuedouble))
		return -1;
	return (int64_t)v->valuedouble;
}

double json_get_number(const cJSON *object, const char *key)
{
	const cJSON *v = json_get(object, key);

	return cJSON_IsNumber(v) && isfinite(v->valuedouble) ? v->valuedouble : NAN;
}

double json_number(const cJSON *item)
{
	const char *digits = cJSON_IsString(item) ? item->valuestring : "";
	size_t len = strspn(digits, "0123456789");
	double n;

	if (cJSON_IsNumber(item))
		return isfinite(item->valuedouble) ? item->valuedouble : NAN;
	n = len <= DIGITS_MAX && !digits[len] ? strtod(digits, NULL) : 0;
	return n > (double)JSON_INT_MAX ? n : NAN;
}

bool json_get_true(const cJSON *object, const char *key)
{
	return cJSON_IsTrue(json_get(object, key));
}
