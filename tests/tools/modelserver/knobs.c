/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

#include "knobs.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KNOB_MAX 1e9

static int set_text(char field[128], const char *value)
{
	size_t i;

	for (i = 0; value[i]; i++)
		if (i >= 127 || !(isalnum((unsigned char)value[i]) || strchr("-_.:/# ", value[i])))
			return -EINVAL;
	memcpy(field, value, i + 1);
	return 0;
}

void knobs_init(struct knobs *k)
{
	const char *word = getenv("MODELSERVER_WORD");

	memset(k, 0, sizeof(*k));
#define X(name, value, text) k->name = (value);
	NUMBER_KNOBS(X)
#undef X
	if (!word || set_text(k->word, word))
		strcpy(k->word, "tok");
	strcpy(k->tool_name, "get_weather");
}

static int set_number(double *field, const char *value)
{
	char *end;
	double number = strtod(value, &end);

	if (end == value || *end || !isfinite(number) || number < -1 || number > KNOB_MAX)
		return -EINVAL;
	*field = number;
	return 0;
}

int knob_set(struct knobs *k, struct sv name, struct sv value)
{
	char key[64], text[256];
	size_t i;

	if (name.len >= sizeof(key) || value.len >= sizeof(text))
		return -ENOENT;
	for (i = 0; i < name.len; i++)
		key[i] = name.ptr[i] == '-' ? '_' : (char)tolower((unsigned char)name.ptr[i]);
	key[i] = '\0';
	if (value.len)
		memcpy(text, value.ptr, value.len);
	text[value.len] = '\0';
#define X(knob, initial, what)                                                                                         \
	if (!strcmp(key, #knob))                                                                                       \
		return set_number(&k->knob, text);
	NUMBER_KNOBS(X)
#undef X
#define X(knob, what)                                                                                                  \
	if (!strcmp(key, #knob))                                                                                       \
		return set_text(k->knob, text);
	TEXT_KNOBS(X)
#undef X
	return -ENOENT;
}

int knobs_from_query(struct knobs *k, struct sv query)
{
	while (query.ptr) {
		struct sv value, name = sv_cut(sv_cut(query, '&', &query), '=', &value);

		if (knob_set(k, name, value) == -EINVAL)
			return -EINVAL;
	}
	return 0;
}

void knobs_print(FILE *out)
{
#define X(name, value, text) fprintf(out, "  %-18s %s (%g)\n", #name, text, (double)(value));
	NUMBER_KNOBS(X)
#undef X
#define X(name, text) fprintf(out, "  %-18s %s\n", #name, text);
	TEXT_KNOBS(X)
#undef X
}
