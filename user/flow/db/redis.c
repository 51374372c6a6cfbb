/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

#define ERRORS_MAX	   16		/* times that it made no sense: then it is something else */
#define BULK_MAX	   (1ull << 40) /* bytes of a string: more than any server takes */
#define SHAPE_BYTES	   (2 * REDIS_WORD_MAX + 4)
#define UNKNOWN_COMMAND	   "ERR unknown command"
#define UNKNOWN_SUBCOMMAND "ERR unknown subcommand"

enum phase { COMMANDS, LOST, OVER };

/* Where in a command. */
enum client { C_BEGIN, C_COUNT, C_BULK, C_LENGTH, C_DATA, C_DATA_END, C_LINE };
/* Where in an answer. */
enum server { S_BEGIN, S_LINE, S_DATA, S_DATA_END };

struct word {
	char text[REDIS_WORD_MAX];
	size_t len; /* may be more than there is room for */
};

/* Which version of the protocol is spoken. */
enum changes { CHANGES_NOTHING, CHANGES_AS_ANSWERED, CHANGES_TO_2 };

struct op {
	char shape[SHAPE_BYTES]; /* "" unknown */
	struct stamp start;
	bool told;	      /* unless it is not known that the answer is its own */
	enum changes changes; /* if it does not fail */
	uint64_t confirms;    /* subscribes (RESP3): what is pushed for it; only a failure is an answer */
};

/* A nested answer: how many elements it lacks. */
struct level {
	uint64_t left;
	bool attribute; /* stands before the answer that it describes */
};

struct redis {
	struct db_sink sink;
	enum phase phase;
	int err;
	unsigned errors, dropped;
	bool trusted; /* answers and commands are known to belong together */
	bool settled; /* every command had its answer, and no other one came */
	bool heard;   /* LOST: the server spoke since the client did */
	bool resp3;
	bool leaving; /* the client's next commands are not read, what it asked before is still answered */
	/* The client's command at hand. */
	enum client client;
	struct stamp first;
	uint64_t args, arg; /* of the array; being read */
	struct word words[2];
	bool words_lost;
	char number[24];
	size_t number_len;
	uint64_t data_left;
	size_t line_len;
	/* The server's answer at hand. */
	enum server server;
	char type;     /* of the element at hand */
	char top;      /* of the answer */
	char line[64]; /* its beginning */
	size_t server_line_len;
	uint64_t server_left;
	struct level levels[REDIS_DEPTH_MAX];
	unsigned depth;
	char error[64]; /* first line of the answer, when it is an error */
	size_t error_len;
	/* Ring. */
	struct op *ops;
	size_t op_first, op_count, op_size;
};

int redis_look(const uint8_t *ptr, size_t len)
{
	static const char ping[] = "PING\r\n";
	size_t n = len < sizeof(ping) - 1 ? len : sizeof(ping) - 1, i;

	if (!len)
		return -1;
	if (!strncasecmp((const char *)ptr, ping, n))
		return n == sizeof(ping) - 1 ? 1 : -1;
	if (ptr[0] != '*')
		return 0;
	for (i = 1; i < len && ptr[i] >= '0' && ptr[i] <= '9'; i++)
		;
	if (i > 7 || (i < len && i == 1))
		return 0;
	for (const char *rest = "\r\n$"; *rest; rest++, i++) {
		if (i >= len)
			return -1;
		if (ptr[i] != *rest)
			return 0;
	}
	return 1;
}

/* --- what waits for an answer ------------------------------------------------------------------------------------ */

static void tell(struct redis *r, const struct op *op, const char *error, uint64_t end_ns)
{
	struct db_command c = {
		.system = "redis",
		.shape = *op->shape ? sv_of(op->shape) : SV_NONE,
		.start_ns = op->start.entry_ns,
		.end_ns = end_ns,
		.rows = UNKNOWN_COUNT,
		.tid = op->start.tid,
		.unfinished = !error,
	};

	if (!op->told)
		return;
	snprintf(c.error, sizeof(c.error), "%s", error ? error : "");
	r->sink.on_command(r->sink.ctx, &c);
}

/* No end will be seen of what waits for an answer. */
static void tell_waiting(struct redis *r, uint64_t ts_ns)
{
	for (size_t i = 0; i < r->op_count && !r->err; i++) {
		const struct op *op = &r->ops[(r->op_first + i) % r->op_size];

		tell(r, op, NULL, ts_ns > op->start.entry_ns ? ts_ns : op->start.entry_ns);
	}
	r->op_count = 0;
}

/* Where the next command or answer begins is not known any more. */
static void lose(struct redis *r)
{
	r->op_count = 0;
	r->trusted = r->settled = r->heard = false;
	r->phase = r->errors > ERRORS_MAX || r->leaving ? OVER : LOST;
}

static void lose_step(struct redis *r, uint64_t ts_ns)
{
	tell_waiting(r, ts_ns);
	lose(r);
}

/* What was read may be none of it: nothing of what waits is told, but how much that is. */
static void make_no_sense(struct redis *r)
{
	r->errors++;
	for (size_t i = 0; i < r->op_count; i++)
		r->dropped += r->ops[(r->op_first + i) % r->op_size].told;
	lose(r);
}

static int grow(struct redis *r)
{
	size_t size = r->op_size ? r->op_size * 2 : 8;
	struct op *ops = malloc(size * sizeof(*ops));

	if (!ops)
		return -ENOMEM;
	for (size_t i = 0; i < r->op_count; i++)
		ops[i] = r->ops[(r->op_first + i) % r->op_size];
	free(r->ops);
	r->ops = ops;
	r->op_first = 0;
	r->op_size = size;
	return 0;
}

static void add(struct redis *r, const struct op *op)
{
	if (r->op_count == REDIS_PENDING_MAX) {
		make_no_sense(r);
		return;
	}
	if (r->op_count == r->op_size && grow(r)) {
		r->err = -ENOMEM;
		return;
	}
	if (r->settled)
		r->trusted = true;
	r->ops[(r->op_first + r->op_count) % r->op_size] = *op;
	r->ops[(r->op_first + r->op_count++) % r->op_size].told = r->trusted;
}

/* --- a command --------------------------------------------------------------------------------------------------- */

static bool is_name(const struct word *w)
{
	if (!w->len || w->len > sizeof(w->text))
		return false;
	for (size_t i = 0; i < w->len; i++) {
		char c = w->text[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		if (!letter && (!i || !strchr("0123456789._-", c) || !c))
			return false;
	}
	return true;
}

static bool is_word(const struct word *w, const char *text)
{
	return w->len == strlen(text) && !strncasecmp(w->text, text, w->len);
}

static bool is_among(const struct word *w, const char *const *texts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_word(w, texts[i]))
			return true;
	return false;
}

/* Their second word is part of the name. */
static bool has_subcommands(const struct word *w)
{
	static const char *const names[] = {"ACL",	"CLIENT",  "CLUSTER", "COMMAND", "CONFIG", "DEBUG",
					    "FUNCTION", "LATENCY", "MEMORY",  "MODULE",	 "OBJECT", "PUBSUB",
					    "SCRIPT",	"SLOWLOG", "XGROUP",  "XINFO"};

	return is_among(w, names, ARRAY_SIZE(names));
}

static size_t put_word(char *out, size_t at, const struct word *w)
{
	for (size_t i = 0; i < w->len; i++) {
		char c = w->text[i];

		out[at++] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
	}
	return at;
}

static void shape_of(const struct redis *r, uint64_t args, char out[SHAPE_BYTES])
{
	const struct word *name = &r->words[0], *sub = &r->words[1];
	uint64_t named = 1;
	size_t at;

	out[0] = '\0';
	if (r->words_lost || !is_name(name))
		return;
	at = put_word(out, 0, name);
	if (args > 1 && has_subcommands(name) && is_name(sub)) {
		out[at++] = ' ';
		at = put_word(out, at, sub);
		named++;
	}
	if (args > named) {
		out[at++] = ' ';
		out[at++] = '?';
	}
	out[at] = '\0';
}

/* After these nothing is answered, or not in order. */
static bool ends_order(const struct redis *r, uint64_t args)
{
	static const char *const names[] = {"MONITOR", "SYNC", "PSYNC", "REPLCONF"};

	return is_among(&r->words[0], names, ARRAY_SIZE(names)) ||
	       (args > 1 && is_word(&r->words[0], "CLIENT") && is_word(&r->words[1], "REPLY"));
}

static bool subscribes(const struct redis *r)
{
	static const char *const names[] = {"SUBSCRIBE",   "PSUBSCRIBE",   "SSUBSCRIBE",
					    "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"};

	return is_among(&r->words[0], names, ARRAY_SIZE(names));
}

static void on_command(struct redis *r, uint64_t args)
{
	struct op op = {.start = r->first};

	r->client = C_BEGIN;
	if (!args)
		return;
	if (r->words_lost) { /* it may be one that has no answer */
		add(r, &op);
		lose_step(r, r->first.ts_ns);
		return;
	}
	if (ends_order(r, args) || (subscribes(r) && !r->resp3)) {
		r->leaving = true;
		r->phase = r->op_count ? COMMANDS : OVER;
		return;
	}
	if (subscribes(r))
		op.confirms = args > 1 ? args - 1 : 1;
	shape_of(r, args, op.shape);
	op.changes = is_word(&r->words[0], "HELLO")   ? CHANGES_AS_ANSWERED
		     : is_word(&r->words[0], "RESET") ? CHANGES_TO_2
						      : CHANGES_NOTHING;
	add(r, &op);
}

static void word_add(struct word *w, const uint8_t *ptr, size_t len)
{
	size_t room = w->len < sizeof(w->text) ? sizeof(w->text) - w->len : 0;

	memcpy(w->text + (room ? w->len : 0), ptr, len < room ? len : room);
	w->len += len;
}

static void command_begin(struct redis *r, const struct stamp *at)
{
	r->first = *at;
	r->words[0].len = r->words[1].len = 0;
	r->words_lost = false;
	r->args = r->arg = 0;
	r->number_len = r->line_len = 0;
}

/* A number and CRLF, byte by byte. 1: it is whole; 0: not yet; -1: it is none. */
static int number_push(struct redis *r, uint8_t c, int64_t *out)
{
	if (c != '\n') {
		if (r->number_len == sizeof(r->number) - 1)
			return -1;
		r->number[r->number_len++] = (char)c;
		return 0;
	}
	if (r->number_len < 2 || r->number[r->number_len - 1] != '\r')
		return -1;
	r->number[r->number_len - 1] = '\0';
	if (strspn(r->number, "-0123456789") != r->number_len - 1 || r->number_len > 19)
		return -1;
	*out = strtoll(r->number, NULL, 10);
	r->number_len = 0;
	return 1;
}

/* The bytes of a line, without its end: words by white space. */
static void line_push(struct redis *r, const uint8_t *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool space = ptr[i] == ' ' || ptr[i] == '\t' || ptr[i] == '\r';

		if (!space) {
			r->args += !r->arg;
			if (r->args <= 2)
				word_add(&r->words[r->args - 1], ptr + i, 1);
		}
		r->arg = !space; /* inside of a word */
	}
	r->line_len += len;
}

/* One byte where structure is expected. 0, or -1: it makes no sense. */
static int client_byte(struct redis *r, uint8_t c, const struct stamp *at)
{
	int64_t n = 0;
	int is;

	switch (r->client) {
	case C_BEGIN:
		command_begin(r, at);
		if (c == '*')
			r->client = C_COUNT;
		else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
			r->client = C_LINE;
			line_push(r, &c, 1);
		} else if (c != '\r' && c != '\n')
			return -1;
		return 0;
	case C_COUNT:
		is = number_push(r, c, &n);
		if (is > 0 && n > 1 << 20)
			return -1;
		r->args = n > 0 ? (uint64_t)n : 0;
		if (is > 0)
			r->client = n > 0 ? C_BULK : C_BEGIN;
		return is;
	case C_BULK:
		r->client = C_LENGTH;
		return c == '$' ? 0 : -1;
	case C_LENGTH:
		is = number_push(r, c, &n);
		if (is > 0 && (n < 0 || (uint64_t)n > BULK_MAX))
			return -1;
		r->data_left = is > 0 ? (uint64_t)n : 0;
		if (is > 0)
			r->client = n ? C_DATA : C_DATA_END;
		return is;
	case C_DATA_END:
		if (c != (r->number_len ? '\n' : '\r'))
			return -1;
		r->number_len = !r->number_len;
		if (r->number_len)
			return 0;
		r->client = C_BULK;
		if (++r->arg == r->args)
			on_command(r, r->args);
		return 0;
	case C_DATA:
	case C_LINE:
		break;
	}
	return 0;
}

static size_t client_run(struct redis *r, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	size_t n;

	if (r->client == C_DATA) {
		n = len < r->data_left ? len : (size_t)r->data_left;
		if (r->arg < 2)
			word_add(&r->words[r->arg], ptr, n);
		r->data_left -= n;
		if (!r->data_left)
			r->client = C_DATA_END;
		return n;
	}
	if (r->client == C_LINE) {
		const uint8_t *lf = memchr(ptr, '\n', len);

		n = lf ? (size_t)(lf - ptr) : len;
		if (r->line_len + n > REDIS_LINE_MAX) {
			make_no_sense(r);
			return len;
		}
		line_push(r, ptr, n);
		if (lf)
			on_command(r, r->args);
		return n + (lf != NULL);
	}
	if (client_byte(r, *ptr, at) < 0)
		make_no_sense(r);
	return 1;
}

/* --- an answer --------------------------------------------------------------------------------------------------- */

/* "WRONGTYPE Operation …": its first word. */
static void error_word(const struct redis *r, char out[DB_ERROR_MAX])
{
	size_t n = 0;

	while (n < r->error_len && n < DB_ERROR_MAX - 1 &&
	       ((r->error[n] >= 'A' && r->error[n] <= 'Z') || (n && r->error[n] == '_')))
		n++;
	memcpy(out, r->error, n);
	out[n] = '\0';
	if (!n || (n < r->error_len && r->error[n] != ' '))
		strcpy(out, "_OTHER");
}

static bool error_begins(const struct redis *r, const char *text)
{
	return r->error_len >= strlen(text) && !strncasecmp(r->error, text, strlen(text));
}

/* What the server does not know is no name: then it is anything. */
static void take_back_names(const struct redis *r, struct op *op)
{
	char *sub = strchr(op->shape, ' ');

	if (error_begins(r, UNKNOWN_COMMAND))
		op->shape[0] = '\0';
	else if (error_begins(r, UNKNOWN_SUBCOMMAND) && sub)
		strcpy(sub, " ?");
}

static struct op *front(struct redis *r)
{
	return r->op_count ? &r->ops[r->op_first] : NULL;
}

static void pop(struct redis *r)
{
	r->op_first = (r->op_first + 1) % r->op_size;
	r->op_count--;
	r->settled |= !r->op_count;
	if (r->leaving && !r->op_count)
		r->phase = OVER;
}

/* Of those that are no messages the last element is a number: of channels. */
static void on_pushed(struct redis *r)
{
	struct op *op = front(r);

	r->resp3 = true;
	if (r->type == ':' && op && op->confirms && !--op->confirms)
		pop(r);
}

static void on_answer(struct redis *r, const struct stamp *at)
{
	bool failed = r->top == '-' || r->top == '!';
	char error[DB_ERROR_MAX] = "";
	struct op *op;

	if (r->top == '>') {
		on_pushed(r);
		return;
	}
	while (!failed && r->op_count && front(r)->confirms)
		pop(r);
	if (!r->op_count) {
		/* Nobody asked: it is for what was asked before. */
		r->settled = false;
		if (r->trusted)
			make_no_sense(r);
		return;
	}
	op = front(r);
	if (failed) {
		error_word(r, error);
		take_back_names(r, op);
	}
	if (op->changes && !failed)
		r->resp3 = op->changes == CHANGES_AS_ANSWERED && r->top == '%';
	tell(r, op, error, at->ts_ns);
	pop(r);
}

/* An element is whole: so may be what it is in. */
static void element_end(struct redis *r, const struct stamp *at)
{
	r->server = S_BEGIN;
	while (r->depth) {
		struct level *l = &r->levels[r->depth - 1];

		if (--l->left)
			return;
		r->depth--;
		if (l->attribute) /* what it describes follows */
			return;
	}
	on_answer(r, at);
}

static void nest(struct redis *r, int64_t count, const struct stamp *at)
{
	bool pairs = r->type == '%' || r->type == '|';

	r->server = S_BEGIN;
	if (count <= 0 && r->type != '|') {
		element_end(r, at);
		return;
	}
	if (count <= 0)
		return;
	if (r->depth == REDIS_DEPTH_MAX) {
		make_no_sense(r);
		return;
	}
	r->levels[r->depth++] = (struct level){(uint64_t)count << pairs, r->type == '|'};
}

/* A line of an answer, without its type and end. */
static void on_line(struct redis *r, const struct stamp *at)
{
	size_t len = r->server_line_len;
	int64_t n;

	if (!r->depth && r->type == '-') {
		r->error_len = len < sizeof(r->error) ? len : sizeof(r->error);
		memcpy(r->error, r->line, r->error_len);
	}
	if (!strchr("$=!*~>%|", r->type)) {
		element_end(r, at);
		return;
	}
	if (!len || len > 18 || strspn(r->line, "-0123456789") < len) {
		make_no_sense(r); /* also streamed ones, which no server sends */
		return;
	}
	r->line[len] = '\0';
	n = strtoll(r->line, NULL, 10);
	if (strchr("*~>%|", r->type)) {
		nest(r, n, at);
	} else if (n < 0) {
		element_end(r, at);
	} else {
		r->server_left = (uint64_t)n;
		r->server = n ? S_DATA : S_DATA_END;
		r->error_len = r->depth ? r->error_len : 0;
		r->server_line_len = 0;
	}
}

static void element_begin(struct redis *r, uint8_t c)
{
	r->type = (char)c;
	if (!c || !strchr("+-:$*_#,(!=%~>|", c)) {
		make_no_sense(r);
		return;
	}
	if (!r->depth && c != '|') {
		r->top = (char)c;
		r->error_len = 0;
	}
	r->server_line_len = 0;
	r->server = S_LINE;
}

static size_t server_line(struct redis *r, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	const uint8_t *lf = memchr(ptr, '\n', len);
	size_t n = lf ? (size_t)(lf - ptr) : len, room = sizeof(r->line) - 1;

	for (size_t i = 0; i < n; i++) {
		if (ptr[i] == '\r')
			continue;
		if (r->server_line_len < room)
			r->line[r->server_line_len++] = (char)ptr[i];
	}
	r->line[r->server_line_len] = '\0';
	if (lf)
		on_line(r, at);
	return n + (lf != NULL);
}

static size_t server_data(struct redis *r, const uint8_t *ptr, size_t len)
{
	size_t n = len < r->server_left ? len : (size_t)r->server_left;

	if (!r->depth && r->type == '!') {
		size_t room = sizeof(r->error) - r->error_len, keep = n < room ? n : room;

		memcpy(r->error + r->error_len, ptr, keep);
		r->error_len += keep;
	}
	r->server_left -= n;
	if (!r->server_left)
		r->server = S_DATA_END;
	return n;
}

static size_t server_run(struct redis *r, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	switch (r->server) {
	case S_BEGIN:
		element_begin(r, *ptr);
		return 1;
	case S_LINE:
		return server_line(r, ptr, len, at);
	case S_DATA:
		return server_data(r, ptr, len);
	case S_DATA_END:
		break;
	}
	if (*ptr != (r->server_line_len ? '\n' : '\r')) {
		make_no_sense(r);
		return 1;
	}
	if (r->server_line_len++)
		element_end(r, at);
	return 1;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

struct redis *redis_new(bool fresh, const struct db_sink *sink)
{
	struct redis *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->sink = *sink;
	r->trusted = fresh;
	return r;
}

void redis_free(struct redis *r)
{
	if (!r)
		return;
	free(r->ops);
	free(r);
}

static size_t push_some(struct redis *r, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (r->phase == LOST && dir == DIR_TX && r->heard && *ptr == '*') {
		r->phase = COMMANDS;
		r->client = C_BEGIN;
		r->server = S_BEGIN;
		r->depth = 0;
	}
	if (r->phase == LOST)
		r->heard = dir == DIR_RX;
	if (r->phase != COMMANDS || (r->leaving && dir == DIR_TX))
		return len;
	return dir == DIR_TX ? client_run(r, ptr, len, at) : server_run(r, ptr, len, at);
}

int redis_push(struct redis *r, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len && !r->err) {
		size_t used = push_some(r, dir, ptr, len, at);

		ptr += used;
		len -= used;
	}
	return r->err;
}

void redis_gap(struct redis *r, enum dir dir, uint64_t len, const struct stamp *at)
{
	if (r->err || r->phase == OVER || (r->leaving && dir == DIR_TX))
		return;
	if (r->phase == COMMANDS && dir == DIR_TX && r->client == C_DATA && len <= r->data_left) {
		r->words_lost |= !r->arg || (r->arg == 1 && has_subcommands(&r->words[0]));
		r->data_left -= len;
		if (!r->data_left)
			r->client = C_DATA_END;
	} else if (r->phase == COMMANDS && dir == DIR_RX && r->server == S_DATA && len <= r->server_left) {
		r->server_left -= len;
		if (!r->server_left)
			r->server = S_DATA_END;
	} else {
		lose_step(r, at->ts_ns);
	}
}

void redis_finish(struct redis *r, uint64_t ts_ns)
{
	tell_waiting(r, ts_ns);
}

unsigned redis_errors(const struct redis *r)
{
	return r->errors;
}

unsigned redis_dropped(const struct redis *r)
{
	return r->dropped;
}

unsigned redis_open(const struct redis *r)
{
	return (unsigned)r->op_count;
}
