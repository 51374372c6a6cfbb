/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_FUNCTIONS_H
#define FLOW_FUNCTIONS_H

/* The functions that are traced by name (-f): what they are called, and how often they were. */

#include "base/json.h"
#include "record.h"

struct functions;

struct functions *functions_new(void); /* NULL: ENOMEM */
void functions_free(struct functions *f);
/* A name, and counts so far; a later one replaces an earlier one. 0 or -ENOMEM. */
int functions_push(struct functions *f, const struct rec_func *r);
/* BINARY:SYMBOL as the user gave it; NULL: nobody told. */
const char *functions_name(const struct functions *f, uint32_t func);
/* The array "functions" of doc/trace-format.md into an open object; nothing when there are none. */
void functions_json(const struct functions *f, struct json *j);
#endif
