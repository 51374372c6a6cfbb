/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mysql.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "names.h"
#include "shape.h"

#define HEAD_BYTES   4	       /* length in 3, number */
#define PACKET_MAX   0xffffffu /* a packet this long goes on in the next one */
#define GREETING     0x0a      /* protocol version 10 */
#define GREETING_MAX 512       /* bytes: a version of up to 60, a name of a method */
#define KEEP_BYTES   96	       /* of a packet */
#define ERRORS_MAX   16	       /* times that it made no sense: then it is something else */
#define EOF_BYTES    5
#define ALL_IDS	     0xffffffffu /* MariaDB: the statement prepared last */

/* Capabilities of a client */
#define CAP_MYSQL	0x00000001u /* not set: MariaDB's own */
#define CAP_COMPRESS	0x00000020u
#define CAP_PROTOCOL_41 0x00000200u
#define CAP_TLS		0x00000800u
#define CAP_ZSTD	0x04000000u

/* Status of the server */
#define STATUS_MORE_RESULTS	    0x0008u
#define STATUS_CURSOR		    0x0040u
#define STATUS_NO_BACKSLASH_ESCAPES 0x0200u

enum command {
	COM_QUIT = 0x01,
	COM_INIT_DB = 0x02,
	COM_QUERY = 0x03,
	COM_FIELD_LIST = 0x04,
	COM_STATISTICS = 0x09,
	COM_PROCESS_INFO = 0x0a,
	COM_PING = 0x0e,
	COM_CHANGE_USER = 0x11,
	COM_BINLOG_DUMP = 0x12,
	COM_TABLE_DUMP = 0x13,
	COM_CONNECT_OUT = 0x14,
	COM_REGISTER_SLAVE = 0x15,
	COM_STMT_PREPARE = 0x16,
	COM_STMT_EXECUTE = 0x17,
	COM_STMT_SEND_LONG_DATA = 0x18,
	COM_STMT_CLOSE = 0x19,
	COM_STMT_RESET = 0x1a,
	COM_SET_OPTION = 0x1b,
	COM_STMT_FETCH = 0x1c,
	COM_DAEMON = 0x1d,
	COM_BINLOG_DUMP_GTID = 0x1e,
	COM_RESET_CONNECTION = 0x1f,
	COM_STMT_BULK_EXECUTE = 0xfa, /* MariaDB */
};

enum phase { AUTH, COMMANDS, LOST, OVER };

/* Where in the answer to the oldest command. */
enum answer { ANSWER_FIRST, ANSWER_COLUMNS, ANSWER_ROWS, ANSWER_PREPARED };

struct op {
	uint8_t command;
	uint8_t number;		 /* of its last packet */
	struct shape_ref *shape; /* owned, NULL: unknown */
	struct stamp start;
};

/* A packet, or several that are one. */
struct packet {
	uint8_t kept[KEEP_BYTES];
	size_t kept_len;
	uint64_t len;
	bool more; /* the next one goes on with it */
	bool lost; /* bytes are missing */
	struct stamp first;
};

struct mysql {
	struct db_sink sink;
	const char *system;
	enum phase phase;
	int err;
	unsigned errors, dropped;
	bool trial;    /* in step by guess: the next answer tells */
	bool heard;    /* LOST: the server spoke since the client did */
	bool greeting; /* comes next */
	bool shaken;   /* the client answered it */
	bool compressed;
	struct frame_reader tx, rx;
	struct packet out, in;
	struct names statements;    /* by id */
	struct shape_ref *prepared; /* the latest that the client asked for; NULL: unknown */
	struct shape shape;
	bool attributes; /* the query has parameters before its text */
	enum shape_backslash backslash;
	struct op ops[MYSQL_PENDING_MAX];
	unsigned op_first, op_count;
	/* The answer at hand. */
	enum answer answer;
	bool begun;	 /* a packet of it came */
	uint8_t number;	 /* of the latest packet, of this answer or the one before */
	bool tail;	 /* the packet at hand is the end of a statement's definitions */
	bool maybe_tail; /* it may follow the answer before */
	bool infile;	 /* the client sends a file */
	bool maybe_end;	 /* of the columns: it may come now */
	uint64_t left;	 /* columns, or definitions */
	int64_t rows;
	bool cursor;
};

static uint32_t le(const uint8_t *p, unsigned bytes)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint32_t)p[i] << (8 * i);
	return v;
}

/* Lengths that a command can have. */
static bool is_command(uint8_t command, uint64_t len)
{
	switch (command) {
	case COM_QUERY:
	case COM_STMT_PREPARE:
	case COM_INIT_DB:
		return len >= 2;
	case COM_STMT_EXECUTE:
		return len >= 10;
	case COM_STMT_CLOSE:
	case COM_STMT_RESET:
		return len == 5;
	case COM_STMT_FETCH:
		return len == 9;
	case COM_SET_OPTION:
		return len == 3;
	case COM_PING:
	case COM_RESET_CONNECTION:
		return len == 1;
	default:
		return false;
	}
}

int mysql_look_at_client(const uint8_t *ptr, size_t len)
{
	uint32_t size;

	if (len >= 3 && ptr[2]) /* nothing that begins is that long */
		return 0;
	if (len < 5)
		return len == 4 && ptr[3] > 2 ? 0 : -1;
	size = le(ptr, 3);
	if (ptr[3] == 0)
		return is_command(ptr[4], size) ? 2 : 0;
	if (ptr[3] > 2 || size < 32)
		return 0;
	if (len < MYSQL_LOOK_BYTES)
		return -1;
	/* Behind the capabilities: a limit, a character set, and 23 bytes of which the first 19 are zero. */
	return (le(ptr + 4, 4) & CAP_PROTOCOL_41) && !ptr[13] && !ptr[14] && !ptr[15];
}

int mysql_look_at_server(const uint8_t *ptr, size_t len)
{
	if ((len >= 2 && ptr[1] > GREETING_MAX >> 8) || (len >= 3 && ptr[2]) || (len >= 4 && ptr[3]) ||
	    (len >= 5 && ptr[4] != GREETING))
		return 0;
	if (len < 6)
		return -1;
	return ptr[5] >= '0' && ptr[5] <= '9' && le(ptr, 3) > 30;
}

/* --- what waits for an answer ------------------------------------------------------------------------------------ */

static struct op *front(struct mysql *m)
{
	return m->op_count ? &m->ops[m->op_first] : NULL;
}

static void answer_begins(struct mysql *m)
{
	m->answer = ANSWER_FIRST;
	m->begun = m->infile = m->cursor = false;
	m->rows = UNKNOWN_COUNT;
}

static void pop(struct mysql *m)
{
	shape_ref_drop(front(m)->shape);
	m->op_first = (m->op_first + 1) % MYSQL_PENDING_MAX;
	m->op_count--;
	answer_begins(m);
}

static void forget(struct mysql *m)
{
	names_clear(&m->statements);
	shape_ref_drop(m->prepared);
	m->prepared = NULL;
}

static bool is_told(uint8_t command)
{
	return command == COM_QUERY || command == COM_STMT_EXECUTE || command == COM_STMT_BULK_EXECUTE;
}

static void tell(struct mysql *m, const char *error, uint64_t end_ns)
{
	const struct op *op = front(m);
	struct db_command c = {
		.system = m->system,
		.shape = shape_ref_text(op->shape),
		.start_ns = op->start.entry_ns,
		.end_ns = end_ns,
		.rows = error && !*error && !m->cursor ? m->rows : UNKNOWN_COUNT,
		.tid = op->start.tid,
		.unfinished = !error,
	};

	if (!is_told(op->command) && !(op->command == COM_STMT_PREPARE && error && *error))
		return;
	strncpy(c.error, error ? error : "", sizeof(c.error) - 1);
	m->sink.on_command(m->sink.ctx, &c);
}

/* No end will be seen of what waits for an answer. */
static void tell_waiting(struct mysql *m, uint64_t ts_ns)
{
	for (; m->op_count; pop(m)) {
		uint64_t start_ns = front(m)->start.entry_ns;

		if (!m->err)
			tell(m, NULL, ts_ns > start_ns ? ts_ns : start_ns);
	}
}

/* Where the next packet begins is not known any more. */
static void lose(struct mysql *m)
{
	while (m->op_count)
		pop(m);
	forget(m);
	m->heard = false;
	m->phase = m->errors > ERRORS_MAX || m->phase == AUTH ? OVER : LOST;
}

static void lose_step(struct mysql *m, uint64_t ts_ns)
{
	tell_waiting(m, ts_ns);
	lose(m);
}

/* What was read may be none of it: nothing of what waits is told, but how much that is. */
static void make_no_sense(struct mysql *m)
{
	m->errors += !m->trial;
	for (unsigned i = 0; i < m->op_count && !m->trial; i++)
		m->dropped += is_told(m->ops[(m->op_first + i) % MYSQL_PENDING_MAX].command);
	lose(m);
}

/* Takes over the shape. */
static void add(struct mysql *m, uint8_t command, struct shape_ref *shape)
{
	if (m->op_count == MYSQL_PENDING_MAX) {
		shape_ref_drop(shape);
		make_no_sense(m);
		return;
	}
	m->ops[(m->op_first + m->op_count++) % MYSQL_PENDING_MAX] =
		(struct op){command, m->tx.head[3], shape, m->out.first};
}

/* --- packets ----------------------------------------------------------------------------------------------------- */

static void packet_head(struct packet *k, const struct frame_reader *r)
{
	uint32_t len = le(r->head, 3);

	if (!k->more) {
		k->kept_len = 0;
		k->len = 0;
		k->lost = false;
		k->first = r->first;
	}
	k->len += len;
	k->more = len == PACKET_MAX;
}

static void packet_body(struct packet *k, const struct frame_reader *r, const uint8_t *ptr, size_t len)
{
	size_t room = sizeof(k->kept) - k->kept_len;

	k->lost |= r->lost;
	if (k->lost)
		return;
	len = len < room ? len : room;
	memcpy(k->kept + k->kept_len, ptr, len);
	k->kept_len += len;
}

/* --- the client -------------------------------------------------------------------------------------------------- */

static int64_t on_client_head(void *ctx, const struct frame_reader *r)
{
	struct mysql *m = ctx;
	bool goes_on = m->out.more;

	if (m->phase == COMMANDS && !goes_on && r->head[3] && !m->infile)
		return -1;
	packet_head(&m->out, r);
	if (m->infile)
		m->number = r->head[3];
	if (m->phase == COMMANDS && !goes_on && !m->infile && !m->out.len)
		return -1;
	if (!goes_on) {
		shape_init(&m->shape, SHAPE_MYSQL, m->backslash);
		m->attributes = false;
	}
	return le(r->head, 3);
}

/* The text begins behind the command; or behind "no attributes, one set of them" (MySQL 8). */
static void push_text(struct mysql *m, const uint8_t *ptr, size_t len, uint64_t at)
{
	for (; len && at < 3; ptr++, len--, at++) {
		if (at == 1 && *ptr < '\t')
			m->attributes = true;
		if (!at || (m->attributes && at < 3))
			continue;
		shape_push(&m->shape, ptr, 1);
	}
	if (len && (!m->attributes || !m->out.kept[1]))
		shape_push(&m->shape, ptr, len);
}

static void on_client_body(void *ctx, const struct frame_reader *r, const uint8_t *ptr, size_t len)
{
	struct mysql *m = ctx;
	uint64_t at = m->out.len - le(r->head, 3) + (le(r->head, 3) - r->left) - len; /* r->left is behind these */

	packet_body(&m->out, r, ptr, len);
	if (m->phase != COMMANDS || m->infile || m->out.lost || !m->out.kept_len)
		return;
	if (m->out.kept[0] == COM_QUERY || m->out.kept[0] == COM_STMT_PREPARE)
		push_text(m, ptr, len, at);
}

static void on_handshake(struct mysql *m)
{
	const struct packet *k = &m->out;
	uint32_t caps;

	if (k->lost || k->kept_len < 4 || m->shaken)
		return;
	m->shaken = true;
	caps = le(k->kept, 4);
	if ((caps & CAP_TLS) && k->len == 32)
		m->phase = OVER; /* TLS follows */
	m->compressed = caps & (CAP_COMPRESS | CAP_ZSTD);
	if (!m->system)
		m->system = caps & CAP_MYSQL ? "mysql" : "mariadb";
}

static struct shape_ref *take_shape(struct mysql *m)
{
	struct shape_ref *shape;

	if (m->out.lost || (m->attributes && m->out.kept[1]))
		return NULL;
	shape = shape_ref_new(shape_finish(&m->shape));
	if (!shape)
		m->err = -ENOMEM;
	return shape;
}

static struct shape_ref *shape_of_id(const struct mysql *m)
{
	const struct packet *k = &m->out;

	if (k->kept_len < 5)
		return NULL;
	if (le(k->kept + 1, 4) == ALL_IDS)
		return m->prepared;
	return names_get(&m->statements, k->kept + 1, 4);
}

/* What the client executes as the latest one, before it has the answer, is this one. */
static void on_prepare(struct mysql *m)
{
	struct shape_ref *shape = take_shape(m);

	shape_ref_drop(m->prepared);
	m->prepared = shape_ref_keep(shape);
	add(m, COM_STMT_PREPARE, shape);
}

static void on_command(struct mysql *m)
{
	const struct packet *k = &m->out;
	uint8_t command = k->kept_len ? k->kept[0] : 0;

	switch (command) {
	case COM_QUERY:
		add(m, command, take_shape(m));
		return;
	case COM_STMT_PREPARE:
		on_prepare(m);
		return;
	case COM_STMT_EXECUTE:
	case COM_STMT_BULK_EXECUTE:
		add(m, command, shape_ref_keep(shape_of_id(m)));
		return;
	case COM_STMT_CLOSE:
		if (k->kept_len >= 5)
			names_set(&m->statements, k->kept + 1, 4, NULL);
		return;
	case COM_STMT_SEND_LONG_DATA:
		return;
	case COM_INIT_DB:
	case COM_FIELD_LIST:
	case COM_STATISTICS:
	case COM_PROCESS_INFO:
	case COM_PING:
	case COM_STMT_RESET:
	case COM_SET_OPTION:
	case COM_STMT_FETCH:
		add(m, command, NULL);
		return;
	case COM_RESET_CONNECTION:
		forget(m);
		add(m, command, NULL);
		return;
	case COM_CHANGE_USER:
		forget(m);
		m->phase = AUTH;
		return;
	default:
		if (command >= COM_QUIT && command <= COM_RESET_CONNECTION) /* leaving, replication, administration */
			m->phase = OVER;
		else
			make_no_sense(m);
	}
}

static int on_client_end(void *ctx, const struct frame_reader *r, const struct stamp *at)
{
	struct mysql *m = ctx;
	enum phase before = m->phase;

	(void)at;
	m->out.lost |= r->lost;
	if (m->out.more)
		return 0;
	if (m->phase == AUTH)
		on_handshake(m);
	else if (!m->infile)
		on_command(m);
	return m->err || m->phase != before;
}

/* --- the server -------------------------------------------------------------------------------------------------- */

static int64_t on_server_head(void *ctx, const struct frame_reader *r)
{
	struct mysql *m = ctx;
	uint8_t number = r->head[3];

	/* Nothing is answered that was not asked, and in order; but a statement's definitions may have an end. */
	if (m->phase == COMMANDS) {
		const struct op *op = front(m);
		uint8_t next = (uint8_t)(m->number + 1), first = (uint8_t)(op ? op->number + 1 : 1);

		m->tail =
			m->maybe_tail && !m->begun && number == next && number != first && le(r->head, 3) == EOF_BYTES;
		if (!m->tail && (!m->op_count || number != (m->begun ? next : first)))
			return -1;
		m->begun |= !m->tail;
		m->maybe_tail = false;
	}
	m->number = number;
	packet_head(&m->in, r);
	return le(r->head, 3);
}

static void on_server_body(void *ctx, const struct frame_reader *r, const uint8_t *ptr, size_t len)
{
	struct mysql *m = ctx;

	packet_body(&m->in, r, ptr, len);
}

/* A length-encoded number. False: it is not whole. */
static bool read_number(const struct packet *k, size_t *at, uint64_t *out)
{
	static const unsigned more[] = {2, 3, 8};
	unsigned n;

	if (*at >= k->kept_len)
		return false;
	*out = k->kept[(*at)++];
	if (*out <= 0xfa)
		return true;
	if (*out < 0xfc || *out > 0xfe)
		return false;
	n = more[*out - 0xfc];
	if (k->kept_len - *at < n)
		return false;
	*out = le(k->kept + *at, n > 4 ? 4 : n);
	if (n == 8)
		*out |= (uint64_t)le(k->kept + *at + 4, 4) << 32;
	*at += n;
	return true;
}

/* Rows that were changed, and the status, of an OK. */
static bool read_ok(const struct packet *k, uint64_t *rows, uint32_t *status)
{
	uint64_t id;
	size_t at = 1;

	if (!read_number(k, &at, rows) || !read_number(k, &at, &id) || k->kept_len - at < 2)
		return false;
	*status = le(k->kept + at, 2);
	return true;
}

static void done(struct mysql *m, const char *error, const struct stamp *at)
{
	m->trial = false;
	tell(m, error, at->ts_ns);
	m->maybe_tail = m->answer == ANSWER_PREPARED;
	pop(m);
}

/* A result is whole. */
static void result_end(struct mysql *m, uint32_t status, const struct stamp *at)
{
	m->backslash = status & STATUS_NO_BACKSLASH_ESCAPES ? SHAPE_BACKSLASH_PLAIN : SHAPE_BACKSLASH_ESCAPES;
	m->cursor |= (status & STATUS_CURSOR) != 0;
	m->answer = ANSWER_FIRST;
	if (!(status & STATUS_MORE_RESULTS))
		done(m, "", at);
}

static void add_rows(struct mysql *m, uint64_t rows)
{
	m->rows = (m->rows < 0 ? 0 : m->rows) + (int64_t)(rows & INT64_MAX);
}

static void on_error(struct mysql *m, const struct stamp *at)
{
	char error[DB_ERROR_MAX] = "_OTHER";
	uint32_t code = m->in.kept_len >= 3 ? le(m->in.kept + 1, 2) : 0;

	if (code == 0xffff) /* MariaDB: how far it is */
		return;
	if (code)
		snprintf(error, sizeof(error), "%u", code);
	done(m, error, at);
}

static void on_ok(struct mysql *m, const struct stamp *at)
{
	uint32_t status;
	uint64_t rows;

	if (!read_ok(&m->in, &rows, &status)) {
		make_no_sense(m);
		return;
	}
	add_rows(m, rows);
	result_end(m, status, at);
}

static void on_prepared(struct mysql *m, const struct stamp *at)
{
	const struct packet *k = &m->in;
	struct op *op = front(m);

	if (k->kept_len < 9) {
		make_no_sense(m);
		return;
	}
	if (names_set(&m->statements, k->kept + 1, 4, op->shape))
		m->err = -ENOMEM;
	m->left = le(k->kept + 5, 2) + le(k->kept + 7, 2);
	m->answer = ANSWER_PREPARED;
	if (!m->left)
		done(m, "", at);
}

/* How many columns the rows have; MariaDB may add that it does not describe them again. */
static void on_columns(struct mysql *m)
{
	const struct packet *k = &m->in;
	size_t at = 0;

	if (!read_number(k, &at, &m->left) || !m->left || k->len > at + 1) {
		make_no_sense(m);
		return;
	}
	m->answer = k->len == at + 1 && !k->kept[at] ? ANSWER_ROWS : ANSWER_COLUMNS;
	m->maybe_end = true;
	add_rows(m, 0);
}

static void on_first(struct mysql *m, const struct stamp *at)
{
	const struct packet *k = &m->in;
	uint8_t command = front(m)->command, first = k->kept[0];

	m->infile = false;
	if (first == 0xff)
		on_error(m, at);
	else if (command == COM_STATISTICS)
		done(m, "", at);
	else if (command == COM_FIELD_LIST && first != 0xfe)
		return;
	else if (first == 0x00 && command == COM_STMT_PREPARE)
		on_prepared(m, at);
	else if (first == 0xfe && k->len == EOF_BYTES && k->kept_len == EOF_BYTES)
		result_end(m, le(k->kept + 3, 2), at);
	else if (command == COM_STMT_FETCH && first == 0x00)
		return; /* a row */
	else if (first == 0x00 || first == 0xfe)
		on_ok(m, at);
	else if (first == 0xfb)
		m->infile = true;
	else
		on_columns(m);
}

static void on_row(struct mysql *m, const struct stamp *at)
{
	const struct packet *k = &m->in;
	bool end = k->kept_len && k->kept[0] == 0xfe && k->len < PACKET_MAX,
	     columns_end = m->maybe_end && k->len == EOF_BYTES;
	uint64_t rows;
	uint32_t status;

	m->maybe_end = false;
	if (!k->kept_len) {
		m->rows++;
	} else if (k->kept[0] == 0xff) {
		on_error(m, at);
	} else if (end && k->len == EOF_BYTES && k->kept_len == EOF_BYTES) {
		status = le(k->kept + 3, 2);
		if (!columns_end || (status & STATUS_CURSOR))
			result_end(m, status, at);
	} else if (end) {
		if (read_ok(k, &rows, &status))
			result_end(m, status, at);
		else
			make_no_sense(m);
	} else {
		m->rows++;
	}
}

static void on_definition(struct mysql *m, const struct stamp *at)
{
	if (m->in.kept_len && m->in.kept[0] == 0xfe && m->in.len == EOF_BYTES)
		return;
	if (--m->left)
		return;
	if (m->answer == ANSWER_PREPARED)
		done(m, "", at);
	else
		m->answer = ANSWER_ROWS;
}

/* Missing bytes may hide the end of an answer, unless it is too long for one. */
static bool hides(const struct mysql *m)
{
	const struct packet *k = &m->in;

	if (!k->lost)
		return false;
	return m->answer == ANSWER_FIRST || k->len < (m->answer == ANSWER_ROWS ? KEEP_BYTES : EOF_BYTES + 1);
}

static void on_answer(struct mysql *m, const struct stamp *at)
{
	if (m->tail)
		return;
	if (hides(m) || !m->in.len) {
		if (m->in.lost)
			lose_step(m, at->ts_ns);
		else
			make_no_sense(m);
		return;
	}
	switch (m->answer) {
	case ANSWER_FIRST:
		on_first(m, at);
		return;
	case ANSWER_COLUMNS:
	case ANSWER_PREPARED:
		on_definition(m, at);
		return;
	case ANSWER_ROWS:
		on_row(m, at);
		return;
	}
}

static void on_auth(struct mysql *m)
{
	const struct packet *k = &m->in;
	uint32_t status;
	uint64_t rows;

	if (m->greeting) {
		m->greeting = false;
		if (memmem(k->kept, k->kept_len, "MariaDB", 7))
			m->system = "mariadb";
		return;
	}
	if (k->lost || !k->kept_len || k->kept[0] == 0xff || (k->kept[0] == 0x00 && m->compressed)) {
		m->phase = OVER;
	} else if (k->kept[0] == 0x00) {
		m->phase = COMMANDS;
		if (!m->system)
			m->system = "mysql";
		if (read_ok(k, &rows, &status))
			m->backslash =
				status & STATUS_NO_BACKSLASH_ESCAPES ? SHAPE_BACKSLASH_PLAIN : SHAPE_BACKSLASH_ESCAPES;
		answer_begins(m);
	}
}

static int on_server_end(void *ctx, const struct frame_reader *r, const struct stamp *at)
{
	struct mysql *m = ctx;
	enum phase before = m->phase;

	m->in.lost |= r->lost;
	if (m->in.more)
		return 0;
	if (m->phase == AUTH)
		on_auth(m);
	else
		on_answer(m, at);
	return m->err || m->phase != before;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

static void begin_packets(struct mysql *m)
{
	frame_init(&m->tx, HEAD_BYTES);
	frame_init(&m->rx, HEAD_BYTES);
	m->out.more = m->in.more = false;
	answer_begins(m);
}

struct mysql *mysql_new(enum mysql_begin begin, const struct db_sink *sink)
{
	struct mysql *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->sink = *sink;
	m->phase = begin == MYSQL_COMMAND ? COMMANDS : AUTH;
	m->greeting = begin == MYSQL_GREETING;
	m->trial = m->shaken = begin == MYSQL_COMMAND;
	m->system = begin == MYSQL_COMMAND ? "mysql" : NULL;
	begin_packets(m);
	return m;
}

void mysql_free(struct mysql *m)
{
	if (!m)
		return;
	while (m->op_count)
		pop(m);
	forget(m);
	free(m);
}

static size_t push_some(struct mysql *m, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	const struct frame_sink client = {m, on_client_head, on_client_body, on_client_end},
				server = {m, on_server_head, on_server_body, on_server_end};
	size_t used = len;
	int err;

	if (m->phase == LOST && dir == DIR_TX && m->heard) {
		m->phase = COMMANDS;
		m->trial = true;
		begin_packets(m);
	}
	if (m->phase == LOST) {
		m->heard = dir == DIR_RX;
		return len;
	}
	if (m->phase == OVER)
		return len;
	if (dir == DIR_TX)
		err = frame_push(&m->tx, &client, ptr, len, at, &used);
	else
		err = frame_push(&m->rx, &server, ptr, len, at, &used);
	if (err == -EBADMSG)
		make_no_sense(m);
	return used;
}

int mysql_push(struct mysql *m, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len && !m->err) {
		size_t used = push_some(m, dir, ptr, len, at);

		ptr += used;
		len -= used;
	}
	return m->err;
}

void mysql_gap(struct mysql *m, enum dir dir, uint64_t len, const struct stamp *at)
{
	const struct frame_sink client = {m, on_client_head, on_client_body, on_client_end},
				server = {m, on_server_head, on_server_body, on_server_end};
	int err;

	if (m->err || m->phase == OVER)
		return;
	if (m->phase == LOST)
		err = -EBADMSG;
	else if (dir == DIR_TX)
		err = frame_gap(&m->tx, &client, len, at);
	else
		err = frame_gap(&m->rx, &server, len, at);
	if (err == -EBADMSG)
		lose_step(m, at->ts_ns);
}

void mysql_finish(struct mysql *m, uint64_t ts_ns)
{
	tell_waiting(m, ts_ns);
}

unsigned mysql_errors(const struct mysql *m)
{
	return m->errors;
}

unsigned mysql_dropped(const struct mysql *m)
{
	return m->dropped;
}

unsigned mysql_open(const struct mysql *m)
{
	return m->op_count;
}
