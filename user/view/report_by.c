/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <string.h>

#include "report.h"

enum report_by report_by_of(const char *word)
{
	static const char *const words[REPORT_BYS] = {"all",   "process", "function", "stack", "wait",
						      "model", "tool",	  "mcp",      "db"};

	for (int i = 0; i < REPORT_BYS; i++)
		if (!strcmp(word, words[i]))
			return (enum report_by)i;
	return REPORT_BYS;
}
