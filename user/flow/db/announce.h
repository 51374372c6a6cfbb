/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_ANNOUNCE_H
#define FLOW_DB_ANNOUNCE_H

/*
 * What in an SQL statement announces a value that need not be a literal: `SET x TO word`, `SET NAMES word`, `PRAGMA key
 * = word`, `ALTER USER u PASSWORD word` (refused by the server, and a password all the same). Private child of shape.
 *
 * Not told apart from a column's name: a word that stands in an expression without its quotes (`WHERE name = bob`).
 */

#include "base/sv.h"

#define ANNOUNCE_WORD_MAX 16 /* bytes of a word that are looked at; no longer one announces anything */

enum announced {
	ANNOUNCED_NOTHING,
	ANNOUNCED_ONE,	/* the next token, unless it is punctuation */
	ANNOUNCED_REST, /* all up to the end of the assignment, or of the statement; the assignment's own sign is none
			 */
};

struct announce { /* zero: a statement begins */
	int kind;
	unsigned words; /* so far, not more than 2 are counted */
	bool statement; /* SET STATEMENT ... FOR (MariaDB) */
};

/* A bare word has ended; upper case. behind_dot: it is a part of a longer name. */
enum announced announce_word(struct announce *a, struct sv word, bool behind_dot);
/* depth: of the parentheses that it stands in, or opens. */
enum announced announce_sign(struct announce *a, char c, unsigned depth);
/* That word ends what was announced: what follows is a statement. */
bool announce_ended_by(const struct announce *a, struct sv word);

#endif
