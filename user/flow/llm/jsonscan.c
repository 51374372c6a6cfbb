/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "jsonscan.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum lex {
	LEX_VALUE,     /* a value must begin */
	LEX_FIRST,     /* a value, or the end of an empty array */
	LEX_FIRST_KEY, /* a key, or the end of an empty object */
	LEX_KEY,       /* a key must begin */
	LEX_COLON,
	LEX_NEXT,   /* comma or end of the container */
	LEX_STRING, /* inside a string (key or value) */
	LEX_ESCAPE, /* after its backslash */
	LEX_HEX,    /* inside \uXXXX */
	LEX_NUMBER,
	LEX_LITERAL,
	LEX_SKIP, /* inside a container below the deepest level */
	LEX_SKIP_STRING,
	LEX_SKIP_ESCAPE,
	LEX_DONE,
};

/* Grammar of numbers (RFC 8259 section 6), one state per character kind seen last. */
enum number { NUM_MINUS, NUM_ZERO, NUM_INT, NUM_DOT, NUM_FRAC, NUM_E, NUM_E_SIGN, NUM_E_DIGIT, NUM_BAD };

struct frame {
	bool object;
	uint64_t count; /* members or elements begun */
	uint8_t key_len;
	char key[JSONSCAN_KEY_BYTES];
};

/* A string's kept prefix: whole characters only, so that a cut never leaves half of one. */
struct text {
	char *ptr;
	size_t len, size;
	bool full;
};

struct jsonscan {
	struct jsonscan_sink sink;
	enum lex lex;
	bool dead;
	bool in_key;
	unsigned depth; /* open containers = frames in use */
	struct text text;
	uint64_t bytes; /* decoded length of the string at hand */
	uint32_t hex;
	unsigned hex_left;
	uint32_t high; /* high surrogate waiting for its low one, 0 none */
	enum number number;
	const char *literal; /* rest to come */
	enum json_type literal_type;
	uint64_t skip_depth; /* containers open inside the skipped one, itself included */
	uint64_t skip_commas;
	bool skip_any;
	bool skip_object;
	struct jsonscan_step path[JSONSCAN_DEPTH + 1];
	struct frame frames[JSONSCAN_DEPTH];
	char value[JSONSCAN_VALUE_BYTES];
};

struct jsonscan *jsonscan_new(const struct jsonscan_sink *sink)
{
	struct jsonscan *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	/* The big arrays are written before they are read: not worth clearing for every request. */
	memset(s, 0, offsetof(struct jsonscan, path));
	s->sink = *sink;
	return s;
}

void jsonscan_free(struct jsonscan *s)
{
	free(s);
}

void jsonscan_gap(struct jsonscan *s)
{
	s->dead = true;
}

/* --- reports ----------------------------------------------------------------------------------------------------- */

static struct jsonscan_value value_here(struct jsonscan *s, enum json_type type)
{
	for (unsigned i = 0; i < s->depth; i++) {
		struct frame *f = &s->frames[i];

		s->path[i].key = f->object ? (struct sv){f->key, f->key_len} : SV_NONE;
		s->path[i].index = f->count ? f->count - 1 : 0;
	}
	return (struct jsonscan_value){.path = s->path, .depth = s->depth, .type = type, .text = SV_NONE};
}

/* After a value: what may follow. */
static void after_value(struct jsonscan *s)
{
	s->lex = s->depth ? LEX_NEXT : LEX_DONE;
}

static void report_scalar(struct jsonscan *s, enum json_type type, struct sv text, uint64_t bytes)
{
	struct jsonscan_value v = value_here(s, type);

	v.text = text;
	v.bytes = bytes;
	s->sink.on_value(s->sink.ctx, &v);
	after_value(s);
}

static void report_end(struct jsonscan *s, enum json_type type, uint64_t count)
{
	struct jsonscan_value v = value_here(s, type);

	v.bytes = count;
	if (s->sink.on_end)
		s->sink.on_end(s->sink.ctx, &v);
	after_value(s);
}

/* --- strings ----------------------------------------------------------------------------------------------------- */

static void text_begin(struct jsonscan *s, bool key)
{
	struct frame *f = s->depth ? &s->frames[s->depth - 1] : NULL;

	s->in_key = key;
	s->bytes = 0;
	s->high = 0;
	s->text = key ? (struct text){f->key, 0, sizeof(f->key), false}
		      : (struct text){s->value, 0, sizeof(s->value), false};
	s->lex = LEX_STRING;
}

/* Length without an incomplete UTF-8 character at its end: a multi-byte one that the cap cut. */
static size_t whole_chars(const char *ptr, size_t len)
{
	size_t back = 0;

	while (back < 3 && back < len && ((uint8_t)ptr[len - 1 - back] & 0xc0) == 0x80)
		back++;
	if (back < len) {
		uint8_t lead = (uint8_t)ptr[len - 1 - back];
		size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

		if (need > 1 && need > back + 1)
			return len - back - 1;
	}
	return len;
}

static void text_push(struct jsonscan *s, const void *ptr, size_t len)
{
	struct text *t = &s->text;

	s->bytes += len;
	if (t->full)
		return;
	if (len > t->size - t->len) {
		len = t->size - t->len;
		t->full = true;
	}
	memcpy(t->ptr + t->len, ptr, len);
	t->len += len;
	if (t->full)
		t->len = whole_chars(t->ptr, t->len);
}

static void text_code_point(struct jsonscan *s, uint32_t cp)
{
	char out[4];
	size_t n;

	if (cp < 0x80) {
		out[0] = (char)cp;
		n = 1;
	} else if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		n = 2;
	} else if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		n = 3;
	} else {
		out[0] = (char)(0xf0 | cp >> 18);
		out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
		out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[3] = (char)(0x80 | (cp & 0x3f));
		n = 4;
	}
	text_push(s, out, n);
}

/* A high surrogate that no low one follows. */
static void flush_surrogate(struct jsonscan *s)
{
	if (s->high)
		text_code_point(s, 0xfffd);
	s->high = 0;
}

static void text_unicode(struct jsonscan *s, uint32_t unit)
{
	if (unit >= 0xdc00 && unit <= 0xdfff) {
		text_code_point(s, s->high ? 0x10000 + ((s->high - 0xd800) << 10) + (unit - 0xdc00) : 0xfffd);
		s->high = 0;
		return;
	}
	flush_surrogate(s);
	if (unit >= 0xd800 && unit <= 0xdbff)
		s->high = unit;
	else
		text_code_point(s, unit);
}

static void string_end(struct jsonscan *s)
{
	flush_surrogate(s);
	if (s->in_key) {
		s->frames[s->depth - 1].key_len = (uint8_t)s->text.len;
		s->lex = LEX_COLON;
	} else {
		report_scalar(s, JSON_STRING, (struct sv){s->value, s->text.len}, s->bytes);
	}
}

static int push_escape(struct jsonscan *s, uint8_t c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = c ? strchr(from, c) : NULL;

	if (c == 'u') {
		s->hex = 0;
		s->hex_left = 4;
		s->lex = LEX_HEX;
		return 0;
	}
	if (!at)
		return -EBADMSG;
	flush_surrogate(s);
	text_push(s, &to[at - from], 1);
	s->lex = LEX_STRING;
	return 0;
}

static int push_hex(struct jsonscan *s, uint8_t c)
{
	uint32_t digit;

	if (c >= '0' && c <= '9')
		digit = c - '0';
	else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
		digit = (c | 0x20) - 'a' + 10u;
	else
		return -EBADMSG;
	s->hex = s->hex << 4 | digit;
	if (--s->hex_left == 0) {
		text_unicode(s, s->hex);
		s->lex = LEX_STRING;
	}
	return 0;
}

/* A run of plain characters, then a quote or a backslash. Returns bytes taken. */
static long push_string(struct jsonscan *s, const uint8_t *ptr, size_t len)
{
	size_t n = 0;

	while (n < len && ptr[n] != '"' && ptr[n] != '\\' && ptr[n] >= 0x20)
		n++;
	if (n) {
		flush_surrogate(s);
		text_push(s, ptr, n);
	}
	if (n == len)
		return (long)n;
	if (ptr[n] == '"')
		string_end(s);
	else if (ptr[n] == '\\')
		s->lex = LEX_ESCAPE;
	else
		return -EBADMSG;
	return (long)n + 1;
}

/* --- numbers and literals ---------------------------------------------------------------------------------------- */

static enum number number_step(enum number n, uint8_t c)
{
	bool digit = c >= '0' && c <= '9';

	switch (n) {
	case NUM_MINUS:
		return c == '0' ? NUM_ZERO : digit ? NUM_INT : NUM_BAD;
	case NUM_ZERO:
		return c == '.' ? NUM_DOT : (c | 0x20) == 'e' ? NUM_E : NUM_BAD;
	case NUM_INT:
		return digit ? NUM_INT : c == '.' ? NUM_DOT : (c | 0x20) == 'e' ? NUM_E : NUM_BAD;
	case NUM_DOT:
		return digit ? NUM_FRAC : NUM_BAD;
	case NUM_FRAC:
		return digit ? NUM_FRAC : (c | 0x20) == 'e' ? NUM_E : NUM_BAD;
	case NUM_E:
		return digit ? NUM_E_DIGIT : c == '+' || c == '-' ? NUM_E_SIGN : NUM_BAD;
	case NUM_E_SIGN:
	case NUM_E_DIGIT:
		return digit ? NUM_E_DIGIT : NUM_BAD;
	default:
		return NUM_BAD;
	}
}

static void number_begin(struct jsonscan *s, uint8_t c)
{
	s->text = (struct text){s->value, 0, sizeof(s->value), false};
	s->bytes = 0;
	s->number = c == '-' ? NUM_MINUS : c == '0' ? NUM_ZERO : NUM_INT;
	text_push(s, &c, 1);
	s->lex = LEX_NUMBER;
}

/* Returns bytes taken: 0 where the number ended before ptr (its delimiter is looked at again). */
static long push_number(struct jsonscan *s, const uint8_t *ptr, size_t len)
{
	size_t n = 0;

	while (n < len && ((ptr[n] >= '0' && ptr[n] <= '9') || ptr[n] == '.' || (ptr[n] | 0x20) == 'e' ||
			   ptr[n] == '+' || ptr[n] == '-')) {
		s->number = number_step(s->number, ptr[n]);
		if (s->number == NUM_BAD)
			return -EBADMSG;
		n++;
	}
	text_push(s, ptr, n);
	if (n == len)
		return (long)n;
	if (s->number != NUM_ZERO && s->number != NUM_INT && s->number != NUM_FRAC && s->number != NUM_E_DIGIT)
		return -EBADMSG;
	/* A cut number would be another number. */
	report_scalar(s, JSON_NUMBER, s->text.full ? SV_NONE : (struct sv){s->value, s->text.len}, 0);
	return (long)n;
}

static void literal_begin(struct jsonscan *s, const char *rest, enum json_type type)
{
	s->literal = rest;
	s->literal_type = type;
	s->lex = LEX_LITERAL;
}

static int push_literal(struct jsonscan *s, uint8_t c)
{
	if (c != (uint8_t)*s->literal)
		return -EBADMSG;
	if (*++s->literal == '\0')
		report_scalar(s, s->literal_type, SV_NONE, 0);
	return 0;
}

/* --- containers -------------------------------------------------------------------------------------------------- */

static void open_container(struct jsonscan *s, bool object)
{
	struct jsonscan_value v = value_here(s, object ? JSON_OBJECT : JSON_ARRAY);

	s->sink.on_value(s->sink.ctx, &v);
	if (s->depth == JSONSCAN_DEPTH) {
		s->skip_depth = 1;
		s->skip_commas = 0;
		s->skip_any = false;
		s->skip_object = object;
		s->lex = LEX_SKIP;
		return;
	}
	/* Not a struct assignment: the key's 64 bytes need no clearing. */
	s->frames[s->depth].object = object;
	s->frames[s->depth].count = 0;
	s->frames[s->depth].key_len = 0;
	s->depth++;
	s->lex = object ? LEX_FIRST_KEY : LEX_FIRST;
}

static int close_container(struct jsonscan *s, bool object)
{
	struct frame *f = s->depth ? &s->frames[s->depth - 1] : NULL;

	if (!f || f->object != object)
		return -EBADMSG;
	s->depth--;
	report_end(s, object ? JSON_OBJECT : JSON_ARRAY, f->count);
	return 0;
}

/* A container below the deepest level: only strings and nesting matter. */
static void push_skip(struct jsonscan *s, uint8_t c)
{
	switch (c) {
	case '"':
		s->lex = LEX_SKIP_STRING;
		s->skip_any = true;
		break;
	case '{':
	case '[':
		s->skip_depth++;
		s->skip_any = true;
		break;
	case '}':
	case ']':
		if (--s->skip_depth == 0)
			report_end(s, s->skip_object ? JSON_OBJECT : JSON_ARRAY, s->skip_any ? s->skip_commas + 1 : 0);
		break;
	case ',':
		s->skip_commas += s->skip_depth == 1;
		break;
	case ' ':
	case '\t':
	case '\n':
	case '\r':
		break;
	default:
		s->skip_any = true;
	}
}

static int push_value(struct jsonscan *s, uint8_t c)
{
	if (s->lex == LEX_FIRST && c == ']')
		return close_container(s, false);
	if (s->depth)
		/* An object's member was counted at its key. */
		s->frames[s->depth - 1].count += !s->frames[s->depth - 1].object;
	if (c == '"')
		text_begin(s, false);
	else if (c == '{' || c == '[')
		open_container(s, c == '{');
	else if (c == '-' || (c >= '0' && c <= '9'))
		number_begin(s, c);
	else if (c == 't')
		literal_begin(s, "rue", JSON_TRUE);
	else if (c == 'f')
		literal_begin(s, "alse", JSON_FALSE);
	else if (c == 'n')
		literal_begin(s, "ull", JSON_NULL);
	else
		return -EBADMSG;
	return 0;
}

static int push_key(struct jsonscan *s, uint8_t c)
{
	if (s->lex == LEX_FIRST_KEY && c == '}')
		return close_container(s, true);
	if (c != '"')
		return -EBADMSG;
	s->frames[s->depth - 1].count++;
	text_begin(s, true);
	return 0;
}

static int push_next(struct jsonscan *s, uint8_t c)
{
	if (c == ',') {
		s->lex = s->frames[s->depth - 1].object ? LEX_KEY : LEX_VALUE;
		return 0;
	}
	if (c == '}' || c == ']')
		return close_container(s, c == '}');
	return -EBADMSG;
}

/* One structural byte; white space between tokens is skipped. */
static int push_byte(struct jsonscan *s, uint8_t c)
{
	switch (s->lex) {
	case LEX_ESCAPE:
		return push_escape(s, c);
	case LEX_HEX:
		return push_hex(s, c);
	case LEX_LITERAL:
		return push_literal(s, c);
	case LEX_SKIP:
		push_skip(s, c);
		return 0;
	case LEX_SKIP_ESCAPE:
		s->lex = LEX_SKIP_STRING;
		return 0;
	case LEX_SKIP_STRING:
		s->lex = c == '"' ? LEX_SKIP : c == '\\' ? LEX_SKIP_ESCAPE : LEX_SKIP_STRING;
		return 0;
	default:
		break;
	}
	if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
		return 0;
	switch (s->lex) {
	case LEX_VALUE:
	case LEX_FIRST:
		return push_value(s, c);
	case LEX_KEY:
	case LEX_FIRST_KEY:
		return push_key(s, c);
	case LEX_COLON:
		s->lex = LEX_VALUE;
		return c == ':' ? 0 : -EBADMSG;
	case LEX_NEXT:
		return push_next(s, c);
	default:
		return -EBADMSG;
	}
}

int jsonscan_push(struct jsonscan *s, const uint8_t *ptr, size_t len)
{
	size_t i = 0;

	while (i < len && !s->dead && s->lex != LEX_DONE) {
		long n;

		if (s->lex == LEX_STRING)
			n = push_string(s, ptr + i, len - i);
		else if (s->lex == LEX_NUMBER)
			n = push_number(s, ptr + i, len - i);
		else
			n = push_byte(s, ptr[i]) ? -EBADMSG : 1;
		if (n < 0)
			s->dead = true;
		else
			i += (size_t)n;
	}
	return s->dead ? -EBADMSG : 0;
}

bool jsonscan_done(const struct jsonscan *s)
{
	return s->lex == LEX_DONE && !s->dead;
}
