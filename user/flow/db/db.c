/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mysql.h"
#include "postgres.h"
#include "redis.h"

/* First bytes that are looked at, of each direction, and held until they tell. */
#define FIRST_BYTES 16
#define HOLD_BYTES  (2 * FIRST_BYTES) /* what is dropped is looked at anew */

_Static_assert(POSTGRES_LOOK_BYTES <= FIRST_BYTES && MYSQL_LOOK_BYTES <= FIRST_BYTES && REDIS_LOOK_BYTES <= FIRST_BYTES,
	       "the first bytes tell");

struct parser {
	int (*push)(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	void (*gap)(void *parser, enum dir dir, uint64_t len, const struct stamp *at);
	void (*finish)(void *parser, uint64_t ts_ns);
	void (*release)(void *parser);
	unsigned (*errors)(const void *parser);
	unsigned (*dropped)(const void *parser);
	unsigned (*open)(const void *parser);
};

#define ADAPT(name)                                                                                                    \
	static int name##_push_any(void *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)      \
	{                                                                                                              \
		return name##_push(p, dir, ptr, len, at);                                                              \
	}                                                                                                              \
	static void name##_gap_any(void *p, enum dir dir, uint64_t len, const struct stamp *at)                        \
	{                                                                                                              \
		name##_gap(p, dir, len, at);                                                                           \
	}                                                                                                              \
	static void name##_finish_any(void *p, uint64_t ts_ns)                                                         \
	{                                                                                                              \
		name##_finish(p, ts_ns);                                                                               \
	}                                                                                                              \
	static void name##_free_any(void *p)                                                                           \
	{                                                                                                              \
		name##_free(p);                                                                                        \
	}                                                                                                              \
	static unsigned name##_errors_any(const void *p)                                                               \
	{                                                                                                              \
		return name##_errors(p);                                                                               \
	}                                                                                                              \
	static unsigned name##_dropped_any(const void *p)                                                              \
	{                                                                                                              \
		return name##_dropped(p);                                                                              \
	}                                                                                                              \
	static unsigned name##_open_any(const void *p)                                                                 \
	{                                                                                                              \
		return name##_open(p);                                                                                 \
	}                                                                                                              \
	static const struct parser name##_parser = {name##_push_any, name##_gap_any,	name##_finish_any,             \
						    name##_free_any, name##_errors_any, name##_dropped_any,            \
						    name##_open_any}

ADAPT(postgres);
ADAPT(mysql);
ADAPT(redis);

struct held_byte {
	struct stamp at;
	enum dir dir;
	uint8_t byte;
};

struct db {
	struct db_sink sink, own;
	struct proc_key proc;
	bool fresh;
	enum db_status status;
	const struct parser *parser;
	void *state;
	uint8_t first[2][FIRST_BYTES];
	size_t first_len[2];
	struct held_byte held[HOLD_BYTES]; /* in the order in which they came */
	size_t held_count;
};

static void on_command(void *ctx, const struct db_command *c)
{
	struct db *d = ctx;
	struct db_command whose = *c;

	whose.proc = d->proc;
	d->sink.on_command(d->sink.ctx, &whose);
}

struct db *db_new(bool fresh, const struct proc_key *proc, const struct db_sink *sink)
{
	struct db *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->sink = *sink;
	d->own = (struct db_sink){d, on_command};
	d->proc = *proc;
	d->fresh = fresh;
	return d;
}

void db_free(struct db *d)
{
	if (!d)
		return;
	if (d->parser)
		d->parser->release(d->state);
	free(d);
}

/* --- which protocol ---------------------------------------------------------------------------------------------- */

/* What a client says first, on any connection or on one met in the middle. 1: that it is; -1: too short to tell. */
static int look_at_client(struct db *d, enum dir dir, const struct parser **parser, bool *greets)
{
	const uint8_t *ptr = d->first[dir];
	size_t len = d->first_len[dir];
	int pg = postgres_look(ptr, len), my = mysql_look_at_client(ptr, len), re = redis_look(ptr, len);

	if (pg < 0 || my < 0 || re < 0)
		return -1;
	if (d->fresh && (pg == 2 || my == 2))
		return 0;
	*greets = pg == 1 || my == 1;
	*parser = pg > 0 ? &postgres_parser : my > 0 ? &mysql_parser : &redis_parser;
	return pg > 0 || my > 0 || re > 0;
}

static void *parser_new(struct db *d, const struct parser *parser, bool greets)
{
	if (parser == &postgres_parser)
		return postgres_new(greets, &d->own);
	if (parser == &mysql_parser)
		return mysql_new(greets				    ? MYSQL_ANSWER
				 : d->first_len[DIR_RX] && d->fresh ? MYSQL_GREETING
								    : MYSQL_COMMAND,
				 &d->own);
	return redis_new(d->fresh, &d->own);
}

static int start(struct db *d, const struct parser *parser, bool greets)
{
	int err = 0;

	d->status = DB_READ;
	d->state = parser_new(d, parser, greets);
	if (!d->state) {
		d->status = DB_NONE;
		return -ENOMEM;
	}
	d->parser = parser;
	for (size_t i = 0; i < d->held_count && !err; i++)
		err = parser->push(d->state, d->held[i].dir, &d->held[i].byte, 1, &d->held[i].at);
	return err;
}

static void drop_held(struct db *d)
{
	d->held_count = 0;
	d->first_len[DIR_TX] = d->first_len[DIR_RX] = 0;
}

static int decide_by_client(struct db *d)
{
	const struct parser *parser = NULL;
	bool greets = false;
	int is = look_at_client(d, DIR_TX, &parser, &greets), server;

	if (is > 0)
		return start(d, parser, greets);
	server = is == 0 ? mysql_look_at_server(d->first[DIR_TX], d->first_len[DIR_TX]) : -1;
	if (server >= 0)
		d->status = server ? DB_SERVED : DB_NONE;
	return 0;
}

/* Only the other side spoke yet. PostgreSQL's server never says Q, P or B. */
static int decide_by_server(struct db *d)
{
	int is = mysql_look_at_server(d->first[DIR_RX], d->first_len[DIR_RX]), client;
	const struct parser *parser = NULL;
	bool greets = false;

	if (is > 0)
		return start(d, &mysql_parser, false);
	if (is < 0)
		return 0;
	client = look_at_client(d, DIR_RX, &parser, &greets);
	if (client < 0)
		return 0;
	if (client > 0 && (greets || d->fresh || (parser == &postgres_parser && strchr("QPB", d->first[DIR_RX][0]))))
		d->status = DB_SERVED;
	else if (d->fresh)
		d->status = DB_NONE;
	else
		drop_held(d); /* the end of something that was asked before */
	return 0;
}

/* One byte: how the input was cut must not decide what it is. */
static int push_first(struct db *d, enum dir dir, uint8_t byte, const struct stamp *at)
{
	/* What the server said before, on a connection met in the middle, is no beginning. */
	if (dir == DIR_TX && !d->first_len[DIR_TX] && d->first_len[DIR_RX] && !d->fresh)
		drop_held(d);
	d->first[dir][d->first_len[dir]++] = byte;
	d->held[d->held_count++] = (struct held_byte){*at, dir, byte};
	return d->first_len[DIR_TX] ? decide_by_client(d) : decide_by_server(d);
}

int db_push(struct db *d, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len && d->status == DB_UNDECIDED) {
		int err;

		if (d->first_len[dir] == FIRST_BYTES) { /* the other side has to speak first, and does not */
			d->status = DB_NONE;
			break;
		}
		err = push_first(d, dir, *ptr, at);
		if (err)
			return err;
		ptr++;
		len--;
	}
	return d->status == DB_READ && len ? d->parser->push(d->state, dir, ptr, len, at) : 0;
}

void db_gap(struct db *d, enum dir dir, uint64_t len, const struct stamp *at)
{
	if (d->status == DB_READ)
		d->parser->gap(d->state, dir, len, at);
	if (d->status != DB_UNDECIDED)
		return;
	d->fresh = false;
	drop_held(d);
}

void db_finish(struct db *d, uint64_t ts_ns)
{
	if (d->parser)
		d->parser->finish(d->state, ts_ns);
}

enum db_status db_status(const struct db *d)
{
	return d->status;
}

unsigned db_errors(const struct db *d)
{
	return d->parser ? d->parser->errors(d->state) : 0;
}

unsigned db_dropped(const struct db *d)
{
	return d->parser ? d->parser->dropped(d->state) : 0;
}

unsigned db_open(const struct db *d)
{
	return d->parser ? d->parser->open(d->state) : 0;
}
