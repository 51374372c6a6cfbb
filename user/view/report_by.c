/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <string.h>

#include "report.h"

#define WORD(id, word) word,
static const char *const words[REPORT_BYS] = {"all", REPORT_TABLES(WORD)};

enum report_by report_by_of(const char *word)
{
	for (int i = 0; i < REPORT_BYS; i++)
		if (!strcmp(word, words[i]))
			return (enum report_by)i;
	return REPORT_BYS;
}

const char *report_by_word(enum report_by by)
{
	return words[by];
}

bool report_has_stacks(enum report_by by)
{
	switch (by) {
	case REPORT_FUNCTION:
	case REPORT_STACK:
	case REPORT_WAIT:
	case REPORT_WAIT_STACK:
	case REPORT_ALLOC:
	case REPORT_FAULT:
		return true;
	default:
		return false;
	}
}
