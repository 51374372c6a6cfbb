/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "shape.h"

#include "base/err.h"

enum state {
	NONE, /* between tokens */
	WORD, /* keyword or name */
	NUMBER,
	PARAMETER,  /* $1, ?1 */
	STRING,	    /* in quotes, a literal */
	STRING_END, /* behind its closing quote, which may have been the first of two */
	NAME,	    /* in quotes, a name */
	NAME_END,
	DASH,	/* a dash: two of them begin a comment */
	DASHES, /* ... in MySQL only when white space follows */
	SLASH,
	LINE, /* comment to the end of the line */
	BLOCK,
	DOLLAR, /* a dollar: parameter, or the beginning of a tag */
	TAG,
	DOLLAR_TEXT, /* inside $tag$ */
};

void shape_init(struct shape *s, enum shape_dialect dialect, enum shape_backslash backslash)
{
	s->dialect = dialect;
	s->backslash = dialect == SHAPE_SQLITE ? SHAPE_BACKSLASH_PLAIN : backslash;
	s->state = NONE;
	s->space = s->cut = s->list = s->doubt = false;
	s->latest = 0;
	s->last = s->last2 = 0;
	s->maybe_at = SIZE_MAX;
	s->word_len = 0;
	s->depth = s->quiet = 0;
	s->values = SHAPE_VALUES_NONE;
	s->announce = (struct announce){0};
	s->mask = SHAPE_MASK_NONE;
	s->len = 0;
}

static bool is_one_of(char c, const char *set)
{
	return c && strchr(set, c);
}

/* --- bytes that are told ----------------------------------------------------------------------------------------- */

/* Without the character that lacks its end. */
static size_t whole(const char *text, size_t len)
{
	size_t lead = len;
	unsigned char c;

	while (lead && len - lead < 4 && (text[lead - 1] & 0xc0) == 0x80)
		lead--;
	if (!lead)
		return len;
	c = (unsigned char)text[lead - 1];
	return c >= 0xc0 && len - lead + 1 < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? lead - 1 : len;
}

static void cut(struct shape *s)
{
	static const char mark[] = "...";

	if (s->cut)
		return;
	s->cut = true;
	if (s->len > SHAPE_MAX - (sizeof(mark) - 1))
		s->len = SHAPE_MAX - (sizeof(mark) - 1);
	s->len = whole(s->out, s->len);
	memcpy(s->out + s->len, mark, sizeof(mark) - 1);
	s->len += sizeof(mark) - 1;
}

/* Nothing is told now. */
static bool is_silent(const struct shape *s)
{
	return s->cut || s->quiet || s->mask == SHAPE_MASK_ONE_ON || s->mask == SHAPE_MASK_REST_ON;
}

static void put(struct shape *s, char c)
{
	if (is_silent(s))
		return;
	if (s->len >= SHAPE_MAX - 3)
		cut(s);
	else
		s->out[s->len++] = c;
}

/* A quoted name that stood where a value may: it is one, unless a dot shows that it names a table. */
static void settle_maybe(struct shape *s, bool dot)
{
	if (s->maybe_at == SIZE_MAX)
		return;
	if (!dot && !is_silent(s)) {
		s->len = s->maybe_at;
		s->last = 'v';
		put(s, '?');
	}
	s->maybe_at = SIZE_MAX;
}

static void mask_begin(struct shape *s, enum shape_mask on)
{
	if (s->space && s->len)
		put(s, ' ');
	s->space = false;
	put(s, '?');
	s->mask = on;
}

/* What was announced begins with this token, or is over. */
static void mask_token(struct shape *s, char kind)
{
	if (s->mask == SHAPE_MASK_ONE_ON)
		s->mask = SHAPE_MASK_NONE;
	if (s->mask == SHAPE_MASK_ONE && is_one_of(kind, "wnvp"))
		mask_begin(s, SHAPE_MASK_ONE_ON);
	else if (s->mask == SHAPE_MASK_ONE && kind != '=')
		s->mask = SHAPE_MASK_NONE;
	if (s->mask == SHAPE_MASK_REST && !is_one_of(kind, "=:;"))
		mask_begin(s, SHAPE_MASK_REST_ON);
}

static void announced(struct shape *s, enum announced what)
{
	if (s->mask == SHAPE_MASK_REST_ON || what == ANNOUNCED_NOTHING)
		return;
	s->mask = what == ANNOUNCED_ONE ? SHAPE_MASK_ONE : SHAPE_MASK_REST;
	s->mask_depth = s->depth;
}

/* Before each token. kind: see `last`. */
static void begin(struct shape *s, char kind)
{
	settle_maybe(s, kind == '.');
	mask_token(s, kind);
	if (s->values == SHAPE_VALUES_COMMA && kind != '(' && kind != ',') {
		put(s, ',');
		s->space = true;
	}
	if (s->values == SHAPE_VALUES_WAIT && kind != '(')
		s->values = SHAPE_VALUES_NONE;
	if ((s->values == SHAPE_VALUES_AFTER || s->values == SHAPE_VALUES_COMMA) && kind != '(' && kind != ',' &&
	    s->depth < s->values_depth)
		s->values = SHAPE_VALUES_NONE;
	if (s->space && s->len)
		put(s, ' ');
	s->space = false;
	s->last2 = s->last;
	s->last = kind;
	if (!is_silent(s))
		s->last_at = s->len;
}

/* A literal has ended. */
static void value(struct shape *s)
{
	bool sign = is_one_of(s->last, "+-") && (!s->last2 || is_one_of(s->last2, "=<>(,*/%+-|!"));

	if (sign && !is_silent(s) && s->len) {
		s->len = s->last_at;
		s->space = false;
	}
	begin(s, 'v');
	put(s, '?');
}

/* --- lists ------------------------------------------------------------------------------------------------------- */

static bool is_word(const struct shape *s, const char *text)
{
	return strlen(text) == s->word_len && !memcmp(s->word, text, s->word_len);
}

static void open_paren(struct shape *s)
{
	bool list = s->list, row = s->values == SHAPE_VALUES_WAIT, more = s->values == SHAPE_VALUES_COMMA;
	enum announced inside = announce_sign(&s->announce, '(', s->depth + 1);

	s->depth++;
	if (s->depth < SHAPE_DEPTH_MAX)
		s->lists[s->depth] = list;
	if (row) {
		s->values = SHAPE_VALUES_ROW;
		s->values_depth = s->depth;
	}
	if (more && !s->quiet) { /* another row */
		s->values = SHAPE_VALUES_ROW;
		settle_maybe(s, false);
		s->space = false;
		s->quiet = s->depth;
	}
	begin(s, '(');
	put(s, '(');
	announced(s, inside);
}

static void close_paren(struct shape *s)
{
	bool row = s->values == SHAPE_VALUES_ROW && s->depth == s->values_depth, told = true;

	if (s->mask == SHAPE_MASK_REST_ON && s->mask_depth && s->mask_depth == s->depth)
		s->mask = SHAPE_MASK_NONE;
	if (s->quiet && s->quiet == s->depth) {
		told = s->depth < SHAPE_DEPTH_MAX && s->lists[s->depth];
		s->quiet = 0;
		s->space = false;
	}
	if (told) {
		begin(s, ')');
		put(s, ')');
	}
	s->depth -= s->depth > 0;
	if (row)
		s->values = SHAPE_VALUES_AFTER;
}

static void comma(struct shape *s)
{
	/* Only MySQL has several assignments in one SET; elsewhere it is a list of values. */
	if (s->mask == SHAPE_MASK_REST_ON && s->dialect == SHAPE_MYSQL && s->depth == s->mask_depth)
		s->mask = SHAPE_MASK_NONE;
	if (s->values == SHAPE_VALUES_AFTER && s->depth + 1 == s->values_depth && !s->quiet) {
		settle_maybe(s, false);
		s->values = SHAPE_VALUES_COMMA;
		s->space = false;
		return;
	}
	begin(s, ',');
	if (!s->quiet && s->depth && s->depth < SHAPE_DEPTH_MAX && s->lists[s->depth])
		s->quiet = s->depth;
	put(s, ',');
}

/* --- tokens ------------------------------------------------------------------------------------------------------ */

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

static bool in_word(char c)
{
	return is_letter(c) || is_digit(c) || c == '$';
}

/* A bare quoted text here may be a string, as SQLite sees it. */
static bool may_be_value(const struct shape *s)
{
	static const char *const words[] = {"LIKE", "GLOB", "REGEXP", "MATCH", "BETWEEN", "THEN", "ELSE", "LIMIT"};

	if (s->last == '.')
		return false;
	if (s->values == SHAPE_VALUES_ROW || (s->depth && s->depth < SHAPE_DEPTH_MAX && s->lists[s->depth]))
		return true;
	for (size_t i = 0; s->last == 'w' && i < ARRAY_SIZE(words); i++)
		if (is_word(s, words[i]))
			return true;
	return is_one_of(s->last, "=<>!|+-*/%~&");
}

/*
 * Behind such a byte a backslash, or a backtick of MySQL, may be half of a character: Big5, GBK and Shift JIS have
 * some, and PostgreSQL's clients may speak them.
 */
static bool may_be_half(const struct shape *s)
{
	return s->dialect == SHAPE_MYSQL && (s->latest & 0x80);
}

static void quote(struct shape *s, char c)
{
	bool string = c == '\'' || (c == '"' && s->dialect == SHAPE_MYSQL);

	if (s->doubt || (c == '`' && may_be_half(s))) {
		cut(s);
		return;
	}
	s->quote = c == '[' ? ']' : c;
	s->escaped = s->high = false;
	s->escaping = c == '\'' || s->dialect == SHAPE_MYSQL ? s->backslash : SHAPE_BACKSLASH_PLAIN;
	if (string) {
		s->state = STRING;
		return;
	}
	s->escaping = SHAPE_BACKSLASH_PLAIN;
	s->value_here = s->dialect == SHAPE_SQLITE && c == '"' && may_be_value(s);
	s->odd = false;
	begin(s, 'n');
	s->state = NAME;
	put(s, c);
}

static void word_begin(struct shape *s, char c)
{
	begin(s, 'w');
	s->state = WORD;
	s->word_len = 0;
	s->list = false;
	put(s, c);
}

static void word_note(struct shape *s, char c)
{
	if (s->word_len < sizeof(s->word))
		s->word[s->word_len] = c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
	s->word_len++;
}

/* SET STATEMENT … FOR: what follows is told. */
static void mask_end(struct shape *s)
{
	static const char text[] = " FOR";

	s->mask = SHAPE_MASK_NONE;
	s->announce = (struct announce){0};
	for (size_t i = 0; text[i]; i++)
		put(s, text[i]);
}

static void word_announces(struct shape *s)
{
	const struct sv word = {s->word, s->word_len};

	if (s->mask == SHAPE_MASK_REST_ON) {
		if (announce_ended_by(&s->announce, word) && s->depth == s->mask_depth)
			mask_end(s);
		return;
	}
	announced(s, announce_word(&s->announce, word, s->last2 == '.'));
}

static void word_end(struct shape *s)
{
	s->state = NONE;
	if (s->word_len > sizeof(s->word))
		s->word_len = 0;
	word_announces(s);
	s->list = is_word(s, "IN") && s->last2 != '.';
	if ((is_word(s, "TRUE") || is_word(s, "FALSE")) && s->last2 != '.' && !is_silent(s)) {
		s->len = s->last_at;
		s->last = 'v';
		put(s, '?');
	}
	if (is_word(s, "VALUES") || is_word(s, "VALUE"))
		s->values = s->quiet || s->last2 == '.' ? s->values : SHAPE_VALUES_WAIT;
	/* A query in the parentheses is no list. */
	if ((is_word(s, "SELECT") || is_word(s, "WITH")) && s->last2 == '(' && s->depth < SHAPE_DEPTH_MAX)
		s->lists[s->depth] = false;
}

/* A quote right behind a word: E'', N'', _utf8''. */
static void word_quoted(struct shape *s, char c)
{
	bool escape = s->word_len == 1 && s->word[0] == 'E' && s->dialect == SHAPE_POSTGRES;
	bool prefix = s->word_len == 1 || s->word[0] == '_';

	if (prefix && !is_silent(s)) {
		s->len = s->last_at;
		s->last = s->last2;
		s->last2 = 0;
	}
	s->state = NONE;
	quote(s, c);
	if (escape)
		s->escaping = SHAPE_BACKSLASH_ESCAPES;
}

static void statement_end(struct shape *s)
{
	announce_sign(&s->announce, ';', 0);
	s->mask = SHAPE_MASK_NONE;
	begin(s, ';');
	put(s, ';');
}

static void punctuation(struct shape *s, char c)
{
	s->state = NONE;
	if (c == '(')
		open_paren(s);
	else if (c == ')')
		close_paren(s);
	else if (c == ',')
		comma(s);
	else if (c == ';' && !s->depth)
		statement_end(s);
	else {
		begin(s, c);
		put(s, c);
		announced(s, announce_sign(&s->announce, c, s->depth));
	}
	if (c != ' ')
		s->list = false;
}

static void comment(struct shape *s)
{
	if (s->doubt)
		cut(s);
}

static void token(struct shape *s, char c)
{
	s->state = NONE;
	if (is_space(c) || !c) {
		s->space = true;
	} else if (is_letter(c)) {
		word_begin(s, c);
		word_note(s, c);
	} else if (is_digit(c)) {
		s->state = NUMBER;
		s->before = c;
	} else if (c == '\'' || c == '"' || (c == '`' && s->dialect != SHAPE_POSTGRES) ||
		   (c == '[' && s->dialect == SHAPE_SQLITE)) {
		quote(s, c);
	} else if (c == '-') {
		s->state = DASH;
	} else if (c == '/') {
		s->state = SLASH;
	} else if (c == '#' && s->dialect == SHAPE_MYSQL) {
		comment(s);
		s->state = LINE;
	} else if (c == '$') {
		s->state = DOLLAR;
	} else if (c == '?') {
		begin(s, 'p');
		put(s, c);
		s->state = PARAMETER;
	} else {
		punctuation(s, c);
	}
}

/* --- what may be a comment, or a dollar quote -------------------------------------------------------------------- */

static void dash(struct shape *s, char c)
{
	if (c == '-' && s->dialect == SHAPE_MYSQL) {
		s->state = DASHES;
	} else if (c == '-') {
		s->state = LINE;
	} else {
		punctuation(s, '-');
		token(s, c);
	}
}

static void dashes(struct shape *s, char c)
{
	if (is_space(c) || !c) {
		comment(s);
		s->state = c == '\n' ? NONE : LINE;
		s->space = true;
		return;
	}
	punctuation(s, '-');
	s->state = DASH; /* "---" */
	dash(s, c);
}

static void slash(struct shape *s, char c)
{
	if (c == '*') {
		comment(s);
		s->state = BLOCK;
		s->nest = 1;
		s->before = 0;
		return;
	}
	punctuation(s, '/');
	token(s, c);
}

static void block(struct shape *s, char c)
{
	if (s->before == '*' && c == '/') {
		s->before = 0;
		if (--s->nest == 0) {
			s->state = NONE;
			s->space = true;
		}
	} else if (s->before == '/' && c == '*' && s->dialect == SHAPE_POSTGRES) {
		s->before = 0;
		s->nest++;
	} else {
		s->before = c;
	}
}

static void dollar(struct shape *s, char c)
{
	s->tag_len = 0;
	if (s->dialect == SHAPE_POSTGRES && (c == '$' || is_letter(c))) {
		s->tag[s->tag_len++] = '$';
		s->tag[s->tag_len++] = c;
		s->tag_at = 0;
		s->state = c == '$' ? DOLLAR_TEXT : TAG;
		return;
	}
	begin(s, 'p');
	put(s, '$');
	s->state = PARAMETER;
	if (in_word(c))
		put(s, c);
	else
		token(s, c);
}

/* "$tag" is a quote's beginning only when a dollar ends it. */
static void tag(struct shape *s, char c)
{
	if (c != '$' && !is_letter(c) && !is_digit(c)) { /* nothing that PostgreSQL reads */
		value(s);
		cut(s);
		return;
	}
	if (s->tag_len == SHAPE_TAG_MAX) {
		value(s);
		cut(s);
		return;
	}
	s->tag[s->tag_len++] = c;
	s->tag_at = 0;
	if (c == '$')
		s->state = DOLLAR_TEXT;
}

/* A tag has no dollar inside, so that a mismatch can only begin again with this byte. */
static void dollar_text(struct shape *s, char c)
{
	if (c == s->tag[s->tag_at])
		s->tag_at++;
	else
		s->tag_at = c == '$' ? 1 : 0;
	if (s->tag_at < s->tag_len)
		return;
	s->state = NONE;
	value(s);
}

/* Whether the byte behind a backslash is escaped by it. */
static bool is_doubtful(const struct shape *s)
{
	return s->escaping == SHAPE_BACKSLASH_UNKNOWN || s->high;
}

static void string(struct shape *s, char c)
{
	if (s->escaped) {
		/* Where it decides and nobody knows: the end. */
		if (is_doubtful(s) && c == s->quote) {
			s->state = NONE;
			value(s);
			cut(s);
			return;
		}
		s->escaped = is_doubtful(s) && c == '\\';
		s->high = s->escaped ? s->high : (unsigned char)c >= 0x80;
		return;
	}
	if (c == '\\' && s->escaping != SHAPE_BACKSLASH_PLAIN) {
		s->escaped = true;
		return;
	}
	s->high = (unsigned char)c >= 0x80;
	if (c == s->quote)
		s->state = STRING_END;
}

static void name(struct shape *s, char c)
{
	if (c == s->quote) {
		s->state = NAME_END;
		s->doubt |= may_be_half(s);
		put(s, c);
		return;
	}
	s->odd |= !in_word(c);
	if (c && (unsigned char)c >= ' ')
		put(s, c);
}

static void name_end(struct shape *s, char c)
{
	if (c == s->quote && c != ']') { /* the first of two */
		s->state = NAME;
		s->odd = true;
		put(s, c);
		if (s->doubt)
			cut(s);
		return;
	}
	if (s->dialect == SHAPE_SQLITE && s->quote == '"' && (s->value_here || s->odd) && !is_silent(s))
		s->maybe_at = s->last_at;
	s->state = NONE;
	token(s, c);
}

/* --- what a byte does in each state ------------------------------------------------------------------------------ */

static void word(struct shape *s, char c)
{
	if (in_word(c)) {
		word_note(s, c);
		put(s, c);
	} else if (c == '\'') {
		word_quoted(s, c);
	} else {
		word_end(s);
		token(s, c);
	}
}

static void number(struct shape *s, char c)
{
	if (in_word(c) || c == '.' || (is_one_of(c, "+-") && is_one_of(s->before, "eE"))) {
		s->before = c;
		return;
	}
	value(s);
	token(s, c);
}

static void parameter(struct shape *s, char c)
{
	if (in_word(c))
		put(s, c);
	else
		token(s, c);
}

static void string_end(struct shape *s, char c)
{
	if (c == s->quote) {
		s->state = STRING;
		return;
	}
	value(s);
	token(s, c);
}

/* Only PostgreSQL takes a carriage return for the end of a line. */
static void line(struct shape *s, char c)
{
	if (c == '\n' || (c == '\r' && s->dialect == SHAPE_POSTGRES)) {
		s->state = NONE;
		s->space = true;
	}
}

static void (*const steps[])(struct shape *s, char c) = {
	[NONE] = token,	   [WORD] = word,
	[NUMBER] = number, [PARAMETER] = parameter,
	[STRING] = string, [STRING_END] = string_end,
	[NAME] = name,	   [NAME_END] = name_end,
	[DASH] = dash,	   [DASHES] = dashes,
	[SLASH] = slash,   [LINE] = line,
	[BLOCK] = block,   [DOLLAR] = dollar,
	[TAG] = tag,	   [DOLLAR_TEXT] = dollar_text,
};

void shape_push(struct shape *s, const void *ptr, size_t len)
{
	const char *text = ptr;

	for (size_t i = 0; i < len && !s->cut; i++) {
		steps[s->state](s, text[i]);
		s->latest = text[i];
	}
}

struct sv shape_finish(struct shape *s)
{
	switch ((enum state)s->state) {
	case NONE:
	case PARAMETER:
	case LINE:
	case BLOCK:
		break;
	case WORD:
		word_end(s);
		break;
	case NAME:
		if (!is_silent(s)) { /* no end: nobody knows what it is */
			s->len = s->last_at;
			put(s, '?');
		}
		break;
	case NAME_END:
		name_end(s, ' ');
		break;
	case DASH:
		punctuation(s, '-');
		break;
	case DASHES:
		punctuation(s, '-');
		punctuation(s, '-');
		break;
	case SLASH:
		punctuation(s, '/');
		break;
	case DOLLAR:
		punctuation(s, '$');
		break;
	case NUMBER:
	case STRING:
	case STRING_END:
	case TAG:
	case DOLLAR_TEXT:
		value(s);
		break;
	}
	s->state = NONE;
	settle_maybe(s, false);
	if (s->values == SHAPE_VALUES_COMMA)
		put(s, ',');
	while (s->len && (s->out[s->len - 1] == ' ' || s->out[s->len - 1] == ';') && !s->cut)
		s->len--;
	return (struct sv){s->out, s->len};
}
