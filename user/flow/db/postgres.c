/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "postgres.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "names.h"
#include "shape.h"

#define STARTUP_3_0    0x00030000u
#define STARTUP_3_2    0x00030002u
#define REQUEST_CANCEL 80877102u
#define REQUEST_TLS    80877103u
#define REQUEST_GSS    80877104u
#define STARTUP_MAX    10000u /* bytes: MAX_STARTUP_PACKET_LENGTH of the server */
#define LENGTH_MAX     0x40000000u

#define KEEP_BYTES  512	    /* of an answer: severity and code of an error come first */
#define ERRORS_MAX  16	    /* times that it made no sense: then it is something else */
#define NAME_TAKEN  "42P05" /* of a statement: it stays that of the one before */
#define READY_BYTES 6	    /* of a ReadyForQuery */

enum phase {
	STARTUP, /* the next message of the client has no type */
	ANSWER,	 /* one byte of the server says whether TLS follows */
	MESSAGES,
	LOST, /* out of step: see READY_BYTES */
	OVER, /* nothing more can be read */
};

enum op_kind { OP_STARTUP, OP_QUERY, OP_FUNCTION, OP_PARSE, OP_BIND, OP_DESCRIBE, OP_EXECUTE, OP_CLOSE, OP_SYNC };

/* A message that waits for its answer. */
struct op {
	enum op_kind kind;
	struct shape_ref *shape; /* owned, NULL: unknown */
	struct stamp start;
	struct stamp done; /* latest completion; ts_ns 0: none */
	int64_t rows;	   /* of the statements so far that have a count */
	bool rows_lost;
	uint64_t data_rows;
	char error[DB_ERROR_MAX];
};

/* The strings that a client's message begins with. */
struct text {
	char bytes[POSTGRES_NAME_MAX];
	size_t len;
};

struct postgres {
	struct db_sink sink;
	enum phase phase;
	int err; /* -ENOMEM */
	unsigned errors, dropped;
	struct frame_reader tx, rx;
	bool tx_lost; /* only the client's bytes are out of step: what it asked before is still answered */
	bool ready;   /* the server's latest message was ReadyForQuery */
	struct names statements, portals;
	/* The client's message at hand. */
	char target;   /* of Close and Describe: 'S' or 'P'; 0: not there yet */
	unsigned part; /* strings that have ended */
	struct text names[2];
	struct shape shape;
	enum shape_backslash backslash;
	struct stamp group; /* first message of the round trip; ts_ns 0: none yet */
	/* The server's message at hand. */
	uint8_t kept[KEEP_BYTES];
	size_t kept_len;
	/* Out of step: the latest bytes of the server, since the client said something. */
	uint8_t latest[READY_BYTES];
	size_t latest_len;
	/* Ring. */
	struct op *ops;
	size_t op_first, op_count, op_size;
};

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_startup(uint32_t code)
{
	return code == STARTUP_3_0 || code == STARTUP_3_2 || code == REQUEST_TLS || code == REQUEST_GSS ||
	       code == REQUEST_CANCEL;
}

/* Type and length of a client's message. */
static bool is_client_head(const uint8_t *head)
{
	uint32_t len = be32(head + 1);

	switch (head[0]) {
	case 'S':
	case 'H':
	case 'c':
	case 'X':
		return len == 4;
	case 'Q':
	case 'P':
	case 'B':
	case 'E':
	case 'D':
	case 'C':
	case 'F':
	case 'd':
	case 'f':
	case 'p':
		return len > 4 && len <= LENGTH_MAX;
	default:
		return false;
	}
}

int postgres_look(const uint8_t *ptr, size_t len)
{
	if (len && ptr[0] && !strchr("QPBEDCSH", ptr[0]))
		return 0;
	if (len && ptr[0]) {
		if (len >= 2 && ptr[1]) /* nothing that begins is that long */
			return 0;
		return len < 5 ? -1 : is_client_head(ptr) ? 2 : 0;
	}
	if (len < 8)
		return len >= 2 && ptr[1] ? 0 : -1;
	return be32(ptr) >= 8 && be32(ptr) <= STARTUP_MAX && is_startup(be32(ptr + 4));
}

/* --- what waits for an answer ------------------------------------------------------------------------------------ */

static struct op *front(struct postgres *p)
{
	return p->op_count ? &p->ops[p->op_first] : NULL;
}

static void pop(struct postgres *p)
{
	shape_ref_drop(front(p)->shape);
	p->op_first = (p->op_first + 1) % p->op_size;
	p->op_count--;
}

static void pop_all(struct postgres *p)
{
	while (p->op_count)
		pop(p);
}

static void tell(struct postgres *p, const struct op *op, int64_t rows, const char *error, uint64_t end_ns)
{
	struct db_command c = {
		.system = "postgresql",
		.shape = shape_ref_text(op->shape),
		.start_ns = op->start.entry_ns,
		.end_ns = end_ns,
		.rows = rows,
		.tid = op->start.tid,
		.unfinished = !error,
	};

	strncpy(c.error, error ? error : "", sizeof(c.error) - 1);
	p->sink.on_command(p->sink.ctx, &c);
}

static bool is_told(const struct op *op)
{
	return op->kind == OP_QUERY || op->kind == OP_EXECUTE;
}

/* An Execute that waits for what becomes of its Sync. */
static bool is_complete(const struct op *op)
{
	return op->kind == OP_EXECUTE && op->done.ts_ns;
}

static void tell_complete(struct postgres *p)
{
	const struct op *op = front(p);

	tell(p, op, *op->error ? UNKNOWN_COUNT : op->rows, op->error, op->done.ts_ns);
	pop(p);
}

/* No end will be seen of what waits for an answer; but that of what is complete, or has failed, was. */
static void tell_waiting(struct postgres *p, uint64_t ts_ns)
{
	while (p->op_count && !p->err) {
		const struct op *op = front(p);

		if (*op->error || is_complete(op)) {
			tell_complete(p);
			continue;
		}
		if (is_told(op))
			tell(p, op, UNKNOWN_COUNT, NULL, ts_ns > op->start.entry_ns ? ts_ns : op->start.entry_ns);
		pop(p);
	}
	pop_all(p);
}

/* Where the next message begins is not known any more, in either direction. */
static void lose(struct postgres *p)
{
	pop_all(p);
	names_clear(&p->statements);
	names_clear(&p->portals);
	p->latest_len = 0;
	p->tx_lost = false;
	p->phase = p->errors > ERRORS_MAX ? OVER : LOST;
}

/* What was read may be none of it: nothing of what waits is told, but how much that is. */
static void make_no_sense(struct postgres *p)
{
	p->errors++;
	if (p->op_count && is_complete(front(p)))
		tell_complete(p);
	for (size_t i = 0; i < p->op_count; i++)
		p->dropped += is_told(&p->ops[(p->op_first + i) % p->op_size]);
	lose(p);
}

/* What the client says from here on is not known; a COPY of more than is captured of a request is the usual case. */
static void lose_client(struct postgres *p)
{
	names_clear(&p->statements);
	names_clear(&p->portals);
	p->tx_lost = true;
	p->ready = false;
}

static int grow(struct postgres *p)
{
	size_t size = p->op_size ? p->op_size * 2 : 8;
	struct op *ops = malloc(size * sizeof(*ops));

	if (!ops)
		return -ENOMEM;
	for (size_t i = 0; i < p->op_count; i++)
		ops[i] = p->ops[(p->op_first + i) % p->op_size];
	free(p->ops);
	p->ops = ops;
	p->op_first = 0;
	p->op_size = size;
	return 0;
}

/* Takes over the shape. */
static void add(struct postgres *p, enum op_kind kind, struct shape_ref *shape, const struct stamp *start)
{
	if (p->op_count == POSTGRES_PENDING_MAX) {
		shape_ref_drop(shape);
		make_no_sense(p);
		return;
	}
	if (p->op_count == p->op_size && grow(p)) {
		shape_ref_drop(shape);
		p->err = -ENOMEM;
		return;
	}
	p->ops[(p->op_first + p->op_count++) % p->op_size] =
		(struct op){.kind = kind, .shape = shape, .start = *start, .rows = UNKNOWN_COUNT};
}

/* --- the client -------------------------------------------------------------------------------------------------- */

static int64_t on_client_head(void *ctx, const struct frame_reader *r)
{
	struct postgres *p = ctx;

	p->part = 0;
	p->target = 0;
	p->names[0].len = p->names[1].len = 0;
	if (p->phase == STARTUP) {
		uint32_t len = be32(r->head);

		return len >= 8 && len <= STARTUP_MAX && is_startup(be32(r->head + 4)) ? (int64_t)len - 8 : -1;
	}
	if (!is_client_head(r->head))
		return -1;
	if (r->head[0] == 'Q' || r->head[0] == 'P')
		shape_init(&p->shape, SHAPE_POSTGRES, p->backslash);
	return (int64_t)be32(r->head + 1) - 4;
}

/* Whether the statement's text is string number `part` of the message. */
static bool is_statement(char type, unsigned part)
{
	return (type == 'Q' && part == 0) || (type == 'P' && part == 1);
}

static void on_client_body(void *ctx, const struct frame_reader *r, const uint8_t *ptr, size_t len)
{
	struct postgres *p = ctx;
	char type = (char)r->head[0];
	unsigned parts = type == 'Q' || type == 'E' || type == 'C' ? 1 : type == 'P' || type == 'B' ? 2 : 0;

	if (p->phase == STARTUP || r->lost)
		return;
	if ((type == 'C' || type == 'D') && !p->target && len) {
		p->target = *ptr ? (char)*ptr : '?';
		ptr++, len--;
	}
	while (len && p->part < parts) {
		const uint8_t *nul = memchr(ptr, 0, len);
		size_t n = nul ? (size_t)(nul - ptr) : len;
		struct text *t = &p->names[p->part];

		if (is_statement(type, p->part)) {
			shape_push(&p->shape, ptr, n);
		} else {
			size_t room = sizeof(t->bytes) - t->len, keep = n < room ? n : room;

			memcpy(t->bytes + t->len, ptr, keep);
			t->len += keep;
		}
		p->part += nul != NULL;
		n += nul != NULL;
		ptr += n;
		len -= n;
	}
}

/* A name that is not whole, or too long, is none. */
static bool is_known(const struct postgres *p, unsigned i)
{
	return p->part > i && p->names[i].len < sizeof(p->names[i].bytes);
}

static struct shape_ref *take_shape(struct postgres *p, unsigned part)
{
	struct shape_ref *shape;

	if (p->part <= part) /* not whole */
		return NULL;
	shape = shape_ref_new(shape_finish(&p->shape));
	if (!shape)
		p->err = -ENOMEM;
	return shape;
}

static void name_set(struct postgres *p, struct names *table, unsigned i, struct shape_ref *shape)
{
	if (!is_known(p, i))
		names_clear(table); /* any may be meant */
	else if (names_set(table, p->names[i].bytes, p->names[i].len, shape))
		p->err = -ENOMEM;
}

static struct shape_ref *name_get(const struct postgres *p, const struct names *table, unsigned i)
{
	return is_known(p, i) ? names_get(table, p->names[i].bytes, p->names[i].len) : NULL;
}

static void on_startup(struct postgres *p, const struct frame_reader *r)
{
	uint32_t code = be32(r->head + 4);

	if (code == REQUEST_CANCEL) {
		p->phase = OVER;
	} else if (code == REQUEST_TLS || code == REQUEST_GSS) {
		p->phase = ANSWER;
	} else {
		p->phase = MESSAGES;
		frame_init(&p->tx, 5);
		add(p, OP_STARTUP, NULL, &r->first);
	}
}

static void on_parse(struct postgres *p, const struct stamp *start)
{
	struct shape_ref *shape = take_shape(p, 1);

	name_set(p, &p->statements, 0, shape);
	add(p, OP_PARSE, shape, start);
}

static void on_bind(struct postgres *p, const struct stamp *start)
{
	struct shape_ref *shape = name_get(p, &p->statements, 1);

	name_set(p, &p->portals, 0, shape);
	add(p, OP_BIND, shape_ref_keep(shape), start);
}

/*
 * The client's data ends. A Sync that it sent before them, along with the Execute, was passed over while the server
 * copied: it waits for no answer, the one that follows does.
 */
static void on_copy_end(struct postgres *p)
{
	if (p->op_count && p->ops[(p->op_first + p->op_count - 1) % p->op_size].kind == OP_SYNC)
		p->op_count--;
}

/* Its name may be gone from now on; what it was executed as before has taken its shape. */
static void on_close(struct postgres *p, const struct stamp *start)
{
	struct names *table = p->target == 'S' ? &p->statements : &p->portals;

	if (is_known(p, 0))
		names_set(table, p->names[0].bytes, p->names[0].len, NULL);
	add(p, OP_CLOSE, NULL, start);
}

static void on_message(struct postgres *p, const struct frame_reader *r)
{
	char type = (char)r->head[0];
	struct stamp start;

	if (!p->group.ts_ns && strchr("QPBEDCF", type))
		p->group = r->first;
	start = p->group;
	if (type == 'P')
		on_parse(p, &start);
	else if (type == 'B')
		on_bind(p, &start);
	else if (type == 'E')
		add(p, OP_EXECUTE, shape_ref_keep(name_get(p, &p->portals, 0)), &start);
	else if (type == 'Q')
		add(p, OP_QUERY, take_shape(p, 0), &r->first);
	else if (type == 'D')
		add(p, OP_DESCRIBE, NULL, &start);
	else if (type == 'C')
		on_close(p, &start);
	else if (type == 'F')
		add(p, OP_FUNCTION, NULL, &start);
	else if (type == 'S')
		add(p, OP_SYNC, NULL, &r->first);
	else if (type == 'c' || type == 'f')
		on_copy_end(p);
	else if (type == 'X')
		p->phase = OVER;
	if (strchr("EQFSHX", type))
		p->group.ts_ns = 0;
}

/* Stops when what follows is read in another way. */
static int on_client_end(void *ctx, const struct frame_reader *r, const struct stamp *at)
{
	struct postgres *p = ctx;
	enum phase before = p->phase;

	(void)at;
	if (p->phase == STARTUP)
		on_startup(p, r);
	else
		on_message(p, r);
	return p->err || p->phase != before ? 1 : 0;
}

/* --- the server -------------------------------------------------------------------------------------------------- */

static int64_t on_server_head(void *ctx, const struct frame_reader *r)
{
	struct postgres *p = ctx;
	uint32_t len = be32(r->head + 1);

	p->kept_len = 0;
	p->ready = false;
	if (len < 4 || len > LENGTH_MAX || !r->head[0] || !strchr("RSKZTtDCE123nsINAGHWVdcv", r->head[0]))
		return -1;
	if ((strchr("123nsIc", r->head[0]) && len != 4) || (r->head[0] == 'Z' && len != 5))
		return -1;
	return (int64_t)len - 4;
}

static void on_server_body(void *ctx, const struct frame_reader *r, const uint8_t *ptr, size_t len)
{
	struct postgres *p = ctx;
	size_t room = sizeof(p->kept) - p->kept_len;

	if (r->lost || !strchr("CESZ", r->head[0]))
		return;
	len = len < room ? len : room;
	memcpy(p->kept + p->kept_len, ptr, len);
	p->kept_len += len;
}

/* The number at the end of a command's tag: "INSERT 0 5", "SELECT 5". */
static int64_t tag_rows(const struct postgres *p, bool lost)
{
	size_t len = p->kept_len, at;
	int64_t rows = 0;

	if (lost || !len || p->kept[len - 1] || len > 64)
		return UNKNOWN_COUNT;
	for (at = len - 1; at && p->kept[at - 1] >= '0' && p->kept[at - 1] <= '9'; at--)
		;
	if (!at || p->kept[at - 1] != ' ' || at == len - 1 || len - 1 - at > 18)
		return UNKNOWN_COUNT;
	for (; at < len - 1; at++)
		rows = rows * 10 + (p->kept[at] - '0');
	return rows;
}

/* An SQLSTATE: five digits and capitals. */
static void error_code(const struct postgres *p, char out[DB_ERROR_MAX])
{
	const uint8_t *at = p->kept, *end = p->kept + p->kept_len, *nul;

	strcpy(out, "_OTHER");
	for (; at < end && *at; at = nul + 1) {
		nul = memchr(at, 0, (size_t)(end - at));
		if (!nul)
			return;
		if (*at != 'C')
			continue;
		if (nul - at != 6 || strspn((const char *)at + 1, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5)
			return;
		memcpy(out, at + 1, 6);
		return;
	}
}

/* The server passes over everything up to the next Sync. */
static void on_failed_group(struct postgres *p, const char *error, const struct stamp *at)
{
	bool told = false;

	while (p->op_count && front(p)->kind > OP_FUNCTION && front(p)->kind != OP_SYNC) {
		struct op *op = front(p), first = *op;

		/* What was to be executed stands for the round trip: an error of Parse or Bind is its error. */
		for (size_t i = 0; !told && i < p->op_count; i++) {
			const struct op *later = &p->ops[(p->op_first + i) % p->op_size];

			if (later->kind == OP_SYNC || later->kind <= OP_FUNCTION)
				break;
			if (later->kind == OP_EXECUTE) {
				first = *later;
				break;
			}
		}
		if (!told && first.kind != OP_CLOSE && first.kind != OP_DESCRIBE)
			tell(p, &first, UNKNOWN_COUNT, error, at->ts_ns);
		told = true;
		pop(p);
	}
}

/*
 * What is behind the last Execute is committed at its Sync, and may fail there, as where a constraint is deferred: that
 * is the Execute's error, as it is the query's in the simple protocol. Where none waits it is told by itself.
 */
static void on_error(struct postgres *p, const struct stamp *at)
{
	struct op *op = front(p);
	char error[DB_ERROR_MAX];

	error_code(p, error);
	if (!strcmp(error, NAME_TAKEN))
		names_clear(&p->statements);
	if (!op)
		return;
	if (op->kind == OP_QUERY || is_complete(op)) {
		memcpy(op->error, error, sizeof(error));
		op->done = *at;
	} else if (op->kind == OP_SYNC) {
		tell(p, op, UNKNOWN_COUNT, error, at->ts_ns);
	} else {
		on_failed_group(p, error, at);
	}
}

static void add_rows(struct op *op, int64_t rows, bool lost)
{
	if (rows >= 0)
		op->rows = op->rows < 0 ? rows : op->rows + rows;
	op->rows_lost |= lost;
}

static void on_complete(struct postgres *p, int64_t rows, bool lost, const struct stamp *at)
{
	struct op *op = front(p);

	if (op && op->kind == OP_EXECUTE) {
		op->rows = rows;
		op->done = *at;
		if (p->op_count < 2 || p->ops[(p->op_first + 1) % p->op_size].kind != OP_SYNC)
			tell_complete(p);
	} else if (op && op->kind == OP_QUERY) {
		add_rows(op, rows, lost);
		op->done = *at;
	} else if (op || !p->tx_lost) {
		make_no_sense(p);
	}
}

static void on_ready(struct postgres *p, const struct stamp *at)
{
	while (p->op_count) {
		struct op *op = front(p);
		enum op_kind kind = op->kind;

		if (kind == OP_QUERY)
			tell(p, op, *op->error || op->rows_lost ? UNKNOWN_COUNT : op->rows, op->error,
			     op->done.ts_ns ? op->done.ts_ns : at->ts_ns);
		if (is_complete(op)) {
			tell_complete(p);
			continue;
		}
		p->dropped += kind == OP_EXECUTE;
		pop(p);
		if (kind == OP_SYNC || kind <= OP_FUNCTION)
			return;
	}
}

/* An answer that only one kind of message has. */
static void answered(struct postgres *p, enum op_kind kind)
{
	if (p->op_count && front(p)->kind == kind)
		pop(p);
	else if (p->op_count || !p->tx_lost)
		make_no_sense(p);
}

static void on_parameter(struct postgres *p)
{
	static const char name[] = "standard_conforming_strings";

	if (p->kept_len > sizeof(name) && !memcmp(p->kept, name, sizeof(name)))
		p->backslash = p->kept[sizeof(name) + 1] == 'n' ? SHAPE_BACKSLASH_PLAIN : SHAPE_BACKSLASH_ESCAPES;
}

static void on_answer(struct postgres *p, const struct frame_reader *r, const struct stamp *at)
{
	struct op *op = front(p);

	if (op && is_complete(op) && !strchr("EZNAS", r->head[0])) {
		tell_complete(p);
		op = front(p);
	}
	switch (r->head[0]) {
	case '1':
		answered(p, OP_PARSE);
		return;
	case '2':
		answered(p, OP_BIND);
		return;
	case '3':
		answered(p, OP_CLOSE);
		return;
	case 'T':
	case 'n': /* of a simple query a T needs no Describe */
		if (!op || op->kind != OP_QUERY)
			answered(p, OP_DESCRIBE);
		return;
	case 'D':
		if (op)
			op->data_rows++;
		return;
	case 'C':
		on_complete(p, tag_rows(p, r->lost), r->lost, at);
		return;
	case 's':
		on_complete(p, op ? (int64_t)op->data_rows : 0, false, at);
		return;
	case 'I':
		on_complete(p, UNKNOWN_COUNT, false, at);
		return;
	case 'E':
		on_error(p, at);
		return;
	case 'S':
		on_parameter(p);
		return;
	case 'Z':
		p->ready = true;
		on_ready(p, at);
		return;
	}
}

static int on_server_end(void *ctx, const struct frame_reader *r, const struct stamp *at)
{
	struct postgres *p = ctx;

	on_answer(p, r, at);
	return p->phase != MESSAGES ? 1 : 0;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

struct postgres *postgres_new(bool startup, const struct db_sink *sink)
{
	struct postgres *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sink = *sink;
	p->phase = startup ? STARTUP : MESSAGES;
	frame_init(&p->tx, startup ? 8 : 5);
	frame_init(&p->rx, 5);
	return p;
}

void postgres_free(struct postgres *p)
{
	if (!p)
		return;
	pop_all(p);
	free(p->ops);
	names_clear(&p->statements);
	names_clear(&p->portals);
	free(p);
}

/* The client speaks right behind a ReadyForQuery: a message begins. */
static bool is_in_step(const struct postgres *p)
{
	return p->latest_len == READY_BYTES && !memcmp(p->latest, "Z\0\0\0\5", 5) && p->latest[5] &&
	       strchr("ITE", p->latest[5]);
}

static void push_lost(struct postgres *p, enum dir dir, const uint8_t *ptr, size_t len)
{
	if (dir == DIR_TX) {
		p->latest_len = 0;
		return;
	}
	for (size_t i = 0; i < len; i++) {
		if (p->latest_len == READY_BYTES)
			memmove(p->latest, p->latest + 1, --p->latest_len);
		p->latest[p->latest_len++] = ptr[i];
	}
}

static void push_answer(struct postgres *p, uint8_t answer)
{
	if (answer == 'N')
		p->phase = STARTUP;
	else
		p->phase = OVER; /* TLS, or a refusal */
	frame_init(&p->tx, 8);
}

static size_t push_some(struct postgres *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	const struct frame_sink client = {p, on_client_head, on_client_body, on_client_end},
				server = {p, on_server_head, on_server_body, on_server_end};
	size_t used = len;
	int err;

	if (p->phase == LOST && dir == DIR_TX && is_in_step(p)) {
		p->phase = MESSAGES;
		p->group.ts_ns = 0;
		frame_init(&p->tx, 5);
		frame_init(&p->rx, 5);
	}
	if (p->phase == LOST) {
		push_lost(p, dir, ptr, len);
		return len;
	}
	if (p->tx_lost && dir == DIR_TX) {
		p->tx_lost = !p->ready || p->op_count;
		p->ready = false;
		p->group.ts_ns = 0;
		frame_init(&p->tx, 5);
		if (p->tx_lost)
			return len;
	}
	if (p->phase == OVER || (p->phase == ANSWER && dir == DIR_TX) || (p->phase == STARTUP && dir == DIR_RX))
		return len;
	if (p->phase == ANSWER) {
		push_answer(p, *ptr);
		return 1;
	}
	if (dir == DIR_TX)
		err = frame_push(&p->tx, &client, ptr, len, at, &used);
	else
		err = frame_push(&p->rx, &server, ptr, len, at, &used);
	if (err == -EBADMSG)
		make_no_sense(p);
	return used;
}

int postgres_push(struct postgres *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len && !p->err) {
		size_t used = push_some(p, dir, ptr, len, at);

		ptr += used;
		len -= used;
	}
	return p->err;
}

void postgres_gap(struct postgres *p, enum dir dir, uint64_t len, const struct stamp *at)
{
	const struct frame_sink client = {p, on_client_head, on_client_body, on_client_end},
				server = {p, on_server_head, on_server_body, on_server_end};
	int err;

	if (p->err || p->phase == OVER)
		return;
	if (p->phase != MESSAGES)
		err = -EBADMSG;
	else if (dir == DIR_TX)
		err = p->tx_lost ? -EBADMSG : frame_gap(&p->tx, &client, len, at);
	else
		err = frame_gap(&p->rx, &server, len, at);
	if (err == -EBADMSG && dir == DIR_TX && p->phase == MESSAGES)
		lose_client(p);
	else if (err == -EBADMSG) {
		tell_waiting(p, at->ts_ns);
		lose(p);
	}
}

void postgres_finish(struct postgres *p, uint64_t ts_ns)
{
	tell_waiting(p, ts_ns);
}

unsigned postgres_errors(const struct postgres *p)
{
	return p->errors;
}

unsigned postgres_dropped(const struct postgres *p)
{
	return p->dropped;
}

unsigned postgres_open(const struct postgres *p)
{
	return (unsigned)p->op_count;
}
