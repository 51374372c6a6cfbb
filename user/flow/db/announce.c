/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "announce.h"

#include "base/err.h"

enum kind {
	BEGINS,
	OTHER,
	ASSIGNS, /* SET, and ALTER … SET */
	PRAGMA,
	ATTACH,
	DEFINES,  /* ALTER or CREATE: of what is not known yet */
	ACCOUNT,  /* … of a user or role; GRANT */
	SETTINGS, /* … of something that has settings */
};

static bool is_one_of(struct sv word, const struct sv *set, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (sv_eq(word, set[i]))
			return true;
	return false;
}

static enum kind kind_of_statement(struct sv word)
{
	static const struct {
		struct sv word;
		enum kind kind;
	} rows[] = {
		{SV("SET"), ASSIGNS},	{SV("PRAGMA"), PRAGMA},	 {SV("ATTACH"), ATTACH},
		{SV("ALTER"), DEFINES}, {SV("CREATE"), DEFINES}, {SV("GRANT"), ACCOUNT},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (sv_eq(word, rows[i].word))
			return rows[i].kind;
	return OTHER;
}

static enum kind kind_of_thing(struct sv word)
{
	static const struct sv accounts[] = {SV("USER"), SV("ROLE"), SV("GROUP")};
	static const struct sv settings[] = {SV("DATABASE"), SV("SYSTEM"), SV("FUNCTION"), SV("PROCEDURE"),
					     SV("ROUTINE")};
	static const struct sv before[] = {SV("OR"), SV("REPLACE")};

	if (is_one_of(word, accounts, ARRAY_SIZE(accounts)))
		return ACCOUNT;
	if (is_one_of(word, settings, ARRAY_SIZE(settings)))
		return SETTINGS;
	return is_one_of(word, before, ARRAY_SIZE(before)) ? DEFINES : OTHER;
}

/* Words of SET behind which there is no sign. */
static enum announced assigned(struct announce *a, struct sv word)
{
	static const struct sv words[] = {SV("TO"),   SV("NAMES"),	   SV("CHARSET"), SV("ZONE"),
					  SV("ROLE"), SV("AUTHORIZATION"), SV("SET")}; /* SET CHARACTER SET */

	a->statement |= a->words == 2 && sv_eq(word, SV("STATEMENT"));
	return is_one_of(word, words, ARRAY_SIZE(words)) ? ANNOUNCED_REST : ANNOUNCED_NOTHING;
}

enum announced announce_word(struct announce *a, struct sv word, bool behind_dot)
{
	static const struct sv secrets[] = {SV("PASSWORD"), SV("BY")};
	static const struct sv attached[] = {SV("DATABASE"), SV("KEY")};

	if (behind_dot)
		return ANNOUNCED_NOTHING;
	a->words += a->words < 2;
	switch ((enum kind)a->kind) {
	case BEGINS:
		a->kind = kind_of_statement(word);
		a->words = 1;
		return ANNOUNCED_NOTHING;
	case DEFINES:
		a->kind = kind_of_thing(word);
		return ANNOUNCED_NOTHING;
	case ASSIGNS:
		return assigned(a, word);
	case ATTACH:
		return is_one_of(word, attached, ARRAY_SIZE(attached)) ? ANNOUNCED_ONE : ANNOUNCED_NOTHING;
	case ACCOUNT:
	case SETTINGS:
		if (sv_eq(word, SV("SET")))
			a->kind = ASSIGNS;
		return a->kind == ACCOUNT && is_one_of(word, secrets, ARRAY_SIZE(secrets)) ? ANNOUNCED_ONE
											   : ANNOUNCED_NOTHING;
	default:
		return ANNOUNCED_NOTHING;
	}
}

enum announced announce_sign(struct announce *a, char c, unsigned depth)
{
	if (c == ';' && depth == 0) {
		*a = (struct announce){0};
		return ANNOUNCED_NOTHING;
	}
	if (a->kind == BEGINS && c != '(')
		a->kind = OTHER;
	if (c == '=' && depth == 0 && (a->kind == ASSIGNS || a->kind == PRAGMA))
		return ANNOUNCED_REST;
	return c == '(' && depth == 1 && a->kind == PRAGMA ? ANNOUNCED_REST : ANNOUNCED_NOTHING;
}

bool announce_ended_by(const struct announce *a, struct sv word)
{
	return a->statement && sv_eq(word, SV("FOR"));
}
