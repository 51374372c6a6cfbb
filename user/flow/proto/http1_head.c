/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http1_head.h"

#define METHOD_BYTES_MAX 32	     /* of a method we do not know; known ones are shorter */
#define TARGET_BYTES_MAX 8192	     /* of a request line that is searched for */
#define REASON_BYTES_MAX 48	     /* of a status line that is searched for */
#define CHUNK_FOUND_MAX	 (16u << 20) /* a larger chunk is not believed when it is searched for */

int hex_digit(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* NUL and a bare CR are no text (RFC 9110 section 5.5). Other control bytes are wrong too, but peers take them, so the
 * call exists: who shows them makes them harmless. */
static bool has_control(struct sv s)
{
	return s.len && (memchr(s.ptr, '\0', s.len) || memchr(s.ptr, '\r', s.len));
}

static bool is_version(struct sv s)
{
	return s.len == 8 && memcmp(s.ptr, "HTTP/1.", 7) == 0 && is_digit(s.ptr[7]);
}

bool head_request_line(struct sv line, struct sv *method, struct sv *target)
{
	struct sv rest, version;

	*method = sv_cut(line, ' ', &rest);
	*target = sv_cut(rest, ' ', &version);
	return method->len <= METHOD_BYTES_MAX && http_is_token(*method) && target->len && !has_control(*target) &&
	       is_version(version);
}

bool head_status_line(struct sv line, int *status)
{
	if (line.len < 12 || !is_version((struct sv){line.ptr, 8}) || line.ptr[8] != ' ')
		return false;
	if (line.ptr[9] < '1' || line.ptr[9] > '9' || !is_digit(line.ptr[10]) || !is_digit(line.ptr[11]))
		return false;
	if (line.len > 12 && line.ptr[12] != ' ')
		return false;
	*status = (line.ptr[9] - '0') * 100 + (line.ptr[10] - '0') * 10 + (line.ptr[11] - '0');
	return !has_control(line);
}

bool head_header_line(struct sv line)
{
	struct sv rest, name;

	if (has_control(line))
		return false;
	if (line.len && (line.ptr[0] == ' ' || line.ptr[0] == '\t'))
		return true;
	name = sv_cut(line, ':', &rest);
	return rest.ptr && http_is_token(sv_trim(name));
}

/* A list of equal numbers is one number (RFC 9110 section 8.6). */
static void parse_length(struct head_info *info, struct sv value)
{
	struct sv rest = value;

	while (rest.ptr) {
		struct sv one = sv_trim(sv_cut(rest, ',', &rest));
		uint64_t n = 0;
		bool bad = one.len == 0 || one.len > 18; /* 18 digits fit without overflow */

		for (size_t i = 0; i < one.len && !bad; i++) {
			bad = !is_digit(one.ptr[i]);
			n = n * 10 + (uint64_t)(one.ptr[i] - '0');
		}
		if (bad || (info->body == HEAD_BODY_LENGTH && n != info->length)) {
			info->body = HEAD_BODY_INVALID;
			return;
		}
		if (info->body == HEAD_BODY_UNSTATED) {
			info->body = HEAD_BODY_LENGTH;
			info->length = n;
		}
	}
}

/* Coding wins over length, wherever it stands, and the last coding of the last header decides. */
static void parse_coding(struct head_info *info, struct sv value, bool *coded)
{
	struct sv rest = value;

	while (rest.ptr) {
		struct sv one = sv_trim(sv_cut(rest, ',', &rest));

		if (one.len == 0 || sv_ieq(one, SV("identity")))
			continue;
		*coded = true;
		info->body = sv_ieq(one, SV("chunked")) ? HEAD_BODY_CHUNKED : HEAD_BODY_UNTIL_CLOSE;
	}
}

static bool list_names(struct sv value, struct sv name)
{
	struct sv rest = value;

	while (rest.ptr) {
		struct sv version, one = sv_trim(sv_cut(rest, ',', &rest));

		if (sv_ieq(sv_trim(sv_cut(one, '/', &version)), name))
			return true;
	}
	return false;
}

static void parse_header(struct head_info *info, struct http_header header, bool *coded)
{
	if (sv_ieq(header.name, SV("content-length"))) {
		if (!*coded && info->body != HEAD_BODY_INVALID)
			parse_length(info, header.value);
	} else if (sv_ieq(header.name, SV("transfer-encoding"))) {
		parse_coding(info, header.value, coded);
	} else if (sv_ieq(header.name, SV("upgrade"))) {
		info->upgrade = true;
		info->websocket |= list_names(header.value, SV("websocket"));
		info->h2c |= list_names(header.value, SV("h2c"));
	} else if (sv_ieq(header.name, SV("expect"))) {
		info->expect |= list_names(header.value, SV("100-continue"));
	} else if (sv_ieq(header.name, SV("host")) && !info->head.host.ptr) {
		info->head.host = http_without_userinfo(header.value);
	}
	if (info->head.header_count < HTTP_HEADERS_MAX)
		info->headers[info->head.header_count++] = header;
}

/* The line that begins at *at, without its end; *at moves behind it. */
static struct sv next_line(char *text, size_t len, size_t *at)
{
	char *line = text + *at, *lf = memchr(line, '\n', len - *at);
	size_t n = lf ? (size_t)(lf - line) : len - *at;

	*at += lf ? n + 1 : n;
	if (n && line[n - 1] == '\r')
		n--;
	return (struct sv){line, n};
}

/* Overwrites the ends of folded lines by spaces, so that each field is one line. */
static void unfold(char *text, size_t len)
{
	for (size_t i = 0; i + 1 < len; i++) {
		if (text[i] != '\n' || (text[i + 1] != ' ' && text[i + 1] != '\t'))
			continue;
		text[i] = ' ';
		if (i && text[i - 1] == '\r')
			text[i - 1] = ' ';
	}
}

void head_parse(char *text, size_t len, enum http_side side, struct head_info *info)
{
	bool coded = false;
	struct sv line;
	size_t at = 0;

	info->head = (struct http_head){.headers = info->headers, .protocol = "http/1.1"};
	info->body = HEAD_BODY_UNSTATED;
	info->length = 0;
	info->upgrade = info->websocket = info->h2c = info->expect = false;
	line = next_line(text, len, &at);
	if (side == HTTP_REQUEST)
		head_request_line(line, &info->head.method, &info->head.target);
	else
		head_status_line(line, &info->head.status);
	unfold(text + at, len - at);
	while (at < len) {
		struct http_header header;

		line = next_line(text, len, &at);
		header.name = sv_trim(sv_cut(line, ':', &header.value));
		header.value = sv_trim(header.value);
		if (header.name.len && header.value.ptr)
			parse_header(info, header, &coded);
	}
}

enum { REQ_METHOD, REQ_TARGET, REQ_VERSION, REQ_LF };

static enum match request_match(struct line_match *m, const char *text, size_t len)
{
	char c = text[len - 1];
	int n;

	switch (m->phase) {
	case REQ_METHOD:
		n = http_method_prefix((struct sv){text, len});
		if (n > 0)
			*m = (struct line_match){.phase = REQ_TARGET};
		return n ? MATCH_MORE : MATCH_NO;
	case REQ_TARGET:
		if (c == ' ' && m->n) {
			*m = (struct line_match){.phase = REQ_VERSION};
			return MATCH_MORE;
		}
		/* What peers take: see has_control(). The version and the line's end behind it tell a request line. */
		if (!c || strchr(" \r\n", c))
			return MATCH_NO;
		return m->n++ < TARGET_BYTES_MAX ? MATCH_MORE : MATCH_NO;
	case REQ_VERSION:
		if (m->n < 7)
			return c == "HTTP/1."[m->n++] ? MATCH_MORE : MATCH_NO;
		if (m->n++ == 7)
			return is_digit(c) ? MATCH_MORE : MATCH_NO;
		m->phase = REQ_LF;
		return c == '\n' ? MATCH_YES : c == '\r' ? MATCH_MORE : MATCH_NO;
	default:
		return c == '\n' ? MATCH_YES : MATCH_NO;
	}
}

enum { RES_VERSION, RES_STATUS, RES_REASON, RES_LF };

static enum match status_match(struct line_match *m, const char *text, size_t len)
{
	char c = text[len - 1];

	switch (m->phase) {
	case RES_VERSION:
		if (m->n < 7)
			return c == "HTTP/1."[m->n++] ? MATCH_MORE : MATCH_NO;
		if (m->n++ == 7)
			return is_digit(c) ? MATCH_MORE : MATCH_NO;
		*m = (struct line_match){.phase = RES_STATUS};
		return c == ' ' ? MATCH_MORE : MATCH_NO;
	case RES_STATUS:
		if (m->n < 3)
			return is_digit(c) && (m->n++ || (c >= '1' && c <= '5')) ? MATCH_MORE : MATCH_NO;
		*m = (struct line_match){.phase = c == '\r' ? RES_LF : RES_REASON};
		return c == '\n' ? MATCH_YES : c == ' ' || c == '\r' ? MATCH_MORE : MATCH_NO;
	case RES_REASON:
		if (c == '\n')
			return MATCH_YES;
		if (c == '\r')
			m->phase = RES_LF;
		else if (!c || m->n++ >= REASON_BYTES_MAX)
			return MATCH_NO;
		return MATCH_MORE;
	default:
		return c == '\n' ? MATCH_YES : MATCH_NO;
	}
}

enum match line_match(struct line_match *m, enum http_side side, const char *text, size_t len)
{
	return side == HTTP_REQUEST ? request_match(m, text, len) : status_match(m, text, len);
}

/* CR and LF are both demanded: without them any number in a text would look like a chunk. */
bool chunk_match(struct chunk_match *m, unsigned char c)
{
	int digit = hex_digit(c);

	switch (m->phase) {
	case CHUNK_AT_LINE:
		if (digit >= 0)
			*m = (struct chunk_match){.phase = CHUNK_IN_SIZE, .digits = 1, .size = (uint64_t)digit};
		else
			m->phase = c == '\r' ? CHUNK_TEXT_CR : CHUNK_IN_TEXT;
		return false;
	case CHUNK_IN_SIZE:
		if (digit >= 0 && m->digits++ < 8)
			m->size = m->size << 4 | (uint64_t)digit;
		else if (c == ';' || c == ' ')
			m->phase = CHUNK_IN_EXT;
		else
			m->phase = c == '\r' ? CHUNK_AT_LF : CHUNK_IN_TEXT;
		return false;
	case CHUNK_IN_EXT:
		if (c == '\r')
			m->phase = CHUNK_AT_LF;
		else if (c < ' ' || c > '~' || m->digits++ > 256)
			m->phase = CHUNK_IN_TEXT;
		return false;
	case CHUNK_AT_LF:
		m->phase = c == '\n' ? CHUNK_AT_LINE : c == '\r' ? CHUNK_TEXT_CR : CHUNK_IN_TEXT;
		return c == '\n' && m->size <= CHUNK_FOUND_MAX;
	case CHUNK_TEXT_CR:
		m->phase = c == '\n' ? CHUNK_AT_LINE : c == '\r' ? CHUNK_TEXT_CR : CHUNK_IN_TEXT;
		return false;
	default:
		if (c == '\r')
			m->phase = CHUNK_TEXT_CR;
		return false;
	}
}
