/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_SHAPE_H
#define FLOW_DB_SHAPE_H

/*
 * The shape of an SQL statement: what stays the same when only its values change, made while the text comes in, of
 * which nothing is kept.
 *
 *   - Literals (strings of every notation, numbers, TRUE, FALSE) become `?`, with a sign that can only be theirs.
 *   - So does what is assigned by SET, PRAGMA and the like, whatever it is: all of it one `?`.
 *   - Of a list behind IN, and of the rows behind VALUES, the first member is kept.
 *   - Comments are dropped, white space becomes one space. Case, names, and parameters ($1, ?, :name) are kept.
 *
 * Privacy comes first: what may be a value is `?`. In MySQL text in double quotes is a string (ANSI_QUOTES is not
 * known); in SQLite, which takes an unknown name for a string, where a value may stand. Whether a backslash escapes a
 * quote is the server's setting, and one of the character set, as is whether a backtick of MySQL ends a name: where it
 * is not known and decides what is a literal, the shape ends there, with "...".
 */

#include "announce.h"

#define SHAPE_MAX	2048 /* bytes of a shape; a longer one is cut and ends with "..." */
#define SHAPE_DEPTH_MAX 32   /* parentheses in each other that lists are looked for in */
#define SHAPE_TAG_MAX	64   /* of a dollar quote (a name: NAMEDATALEN of PostgreSQL); a longer one ends the shape */

enum shape_dialect { SHAPE_POSTGRES, SHAPE_MYSQL, SHAPE_SQLITE };
enum shape_backslash { SHAPE_BACKSLASH_UNKNOWN, SHAPE_BACKSLASH_PLAIN, SHAPE_BACKSLASH_ESCAPES };

/* Private to shape.c from here on. */
enum shape_mask { SHAPE_MASK_NONE, SHAPE_MASK_ONE, SHAPE_MASK_ONE_ON, SHAPE_MASK_REST, SHAPE_MASK_REST_ON };
enum shape_values { SHAPE_VALUES_NONE, SHAPE_VALUES_WAIT, SHAPE_VALUES_ROW, SHAPE_VALUES_AFTER, SHAPE_VALUES_COMMA };

struct shape {
	enum shape_dialect dialect;
	enum shape_backslash backslash;
	int state;
	char quote;		       /* that ends the string or name */
	enum shape_backslash escaping; /* in it */
	bool escaped;		       /* the byte before was a backslash that escapes */
	bool high;		       /* the one before (that) is none of ASCII */
	bool doubt;		       /* a name may go on behind what was taken for its end */
	char latest;		       /* byte */
	bool odd;		       /* a quoted name with other bytes than names have */
	bool value_here;	       /* it stands where a value may */
	bool space;		       /* white space since the last token */
	unsigned nest;		       /* block comments in each other */
	char before;		       /* the byte before, in a block comment or a number */
	char tag[SHAPE_TAG_MAX];       /* of a dollar quote, both dollars included */
	size_t tag_len, tag_at;
	char last, last2; /* what the latest tokens were: 'w' word, 'n' name, 'v' value, 'p' parameter, or the byte */
	size_t last_at;	  /* where the latest token begins in `out` */
	size_t maybe_at;  /* a name of SQLite that is a value unless a dot follows; SIZE_MAX: none */
	size_t word_len;
	char word[ANNOUNCE_WORD_MAX]; /* its beginning, in upper case */
	bool list;		      /* the latest word was IN */
	unsigned depth;
	bool lists[SHAPE_DEPTH_MAX]; /* parentheses that hold a list */
	unsigned quiet;		     /* depth of the parentheses that are passed over, 0: none */
	struct announce announce;
	enum shape_mask mask; /* _ON: one `?` stands for it, and nothing of it is told */
	unsigned mask_depth;
	enum shape_values values;
	unsigned values_depth;
	bool cut;
	size_t len;
	char out[SHAPE_MAX];
};

void shape_init(struct shape *s, enum shape_dialect dialect, enum shape_backslash backslash);
void shape_push(struct shape *s, const void *ptr, size_t len);
/* The statement has ended. Borrowed, valid until the next shape_init(). */
struct sv shape_finish(struct shape *s);

#endif
