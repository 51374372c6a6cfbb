/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_REPORT_OP_H
#define VIEW_REPORT_OP_H

/* Operations of a trace: what of its events they are made from. Private to report*.c. */

#include "report_data.h"

#define REPORT_LABELS_MAX  65536 /* names of operations and shapes of calls; later ones are one, "(others)" */
#define REPORT_LABEL_BYTES 512
#define REPORT_TRACKS_MAX  65536 /* names of processes, and lanes of agents */

struct report_ops *report_ops_new(struct report *r); /* NULL: ENOMEM; r is borrowed */
void report_ops_free(struct report_ops *o);
/* As report_choose_operations(). */
int report_ops_choose(struct report_ops *o, const char *regex);
/* Any event of the trace. 0 or -ENOMEM. */
int report_ops_event(struct report_ops *o, const cJSON *e);
/* After the last line of the trace. 0 or -ENOMEM. */
int report_ops_solve(struct report *r);

struct op_group;

/* For the tables. */
struct ops *report_ops_engine(const struct report_ops *o);
const char *report_ops_text(const struct report_ops *o, uint32_t text); /* of a name or shape */
bool report_ops_chosen(const struct report_ops *o, uint32_t name);
struct report_values *report_ops_values(const struct report_ops *o, uint32_t name); /* durations */
/* What an operation allocated. */
struct report_op_allocs {
	const struct op_group *group;  /* NULL: none */
	struct report_alloc_sum *sums; /* by row of memory; owned; NULL: not known */
	uint64_t samples;
};
/* Of the most expensive one: the same that functions are told of, or where none was sampled of all. */
const struct report_op_allocs *report_ops_allocs(const struct report_ops *o);
int report_op_allocs_sum(const struct report *r, const struct op_group *g, struct report_op_allocs *out);
/* The most expensive operation that was sampled on a processor, and its samples; NULL: none. */
const struct op_group *report_ops_expensive(const struct report_ops *o, const struct report_sums **sums);

#endif
