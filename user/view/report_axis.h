/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_REPORT_AXIS_H
#define VIEW_REPORT_AXIS_H

/*
 * What a table of a report is: where its rows come from, and what they say. How they look (text, JSON, side by side) is
 * the same for all and made elsewhere: report_render.c, report_diff.c. Private to report*.c.
 */

#include "base/json.h"
#include "format.h"
#include "report_data.h"

enum report_unit { REPORT_MS, REPORT_COUNT, REPORT_SHARE, REPORT_BYTES };

struct report_column {
	const char *head; /* on a terminal; NULL: only in JSON */
	const char *key;  /* in JSON, with its unit; NULL: ends the list */
	enum report_unit unit;
};

#define REPORT_COLUMNS_MAX 16
#define REPORT_TEXT_BYTES  640

struct report_context {
	const struct report *r;
	const struct report_view *v;
	const struct report_axis *axis;
	struct report_sums sums;
	bool *of_stack; /* scratch, by stack */
};

/* What two traces are compared by: a value, and the first of these that says how sure it is. */
struct report_measure {
	double value;		      /* NAN: unknown */
	struct report_values *values; /* durations, sorted: the value is their median; NULL: none */
	struct report_values slices;  /* of report_slices(); released by the caller */
	double samples;		      /* how many there were: the value is for each second */
};

#define REPORT_CHANCE 0.01 /* of one false find or more in a whole diff of equal traces */

struct report_compared {
	const char *text; /* the first one's follows the table's title, others' stand for the row's name */
	const char *key;  /* in JSON; NULL: ends the list */
	enum report_unit unit;
	bool nothing_is_0; /* a trace without the row: 0, not unknown */
	bool untested;	   /* only shown: more is not worse */
};

struct report_axis {
	const char *title;
	enum report_table table; /* of axes that show rows of one */
	const char *of;		 /* of those: the key of what stands behind " @ " in a row's name; NULL: nothing does */
	const struct report_column *columns;
	bool on_request; /* not part of the default report */
	bool operations; /* about operations */
	/* NULL: the trace can have it; else what the trace was taken without. */
	const char *(*missing)(const struct report *r);
	/* All rows, in any order: the heaviest are shown. NULL: no memory. Freed by the caller. */
	struct report_entry *(*list)(const struct report_context *c, size_t *count);
	/* Of one row; `at` as in its entry. A cell a column; NAN: unknown. */
	void (*cells)(const struct report_context *c, size_t at, double cells[REPORT_COLUMNS_MAX]);
	/* What it is, on a terminal: may hold captured text. Unique in the table: traces are compared by it. */
	void (*name)(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES]);
	/* The same, and whatever more there is, as members. */
	void (*json)(const struct report_context *c, size_t at, struct json *j);
	/* NULL, or lines below it, text for a terminal. 0 or -errno of the buffer. */
	int (*more)(const struct report_context *c, size_t at, struct buf *out);
	/* NULL, or what is said, also among all tables, where it has no rows. 0 or -errno of the buffer. */
	int (*empty)(const struct report_context *c, struct buf *out);
	/* NULL, or what follows the title, and lines and members below the table. 0 or -errno of the buffer. */
	int (*heading)(const struct report_context *c, struct buf *out);
	int (*foot)(const struct report_context *c, struct buf *out);
	void (*foot_json)(const struct report_context *c, struct json *j);
	/* NULL: as name(); else what rows of two traces are joined by: those of one trace that have it too are one. */
	void (*compared_name)(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES]);
	/* NULL: not compared. */
	const struct report_compared *compared;
	/* 0 or -ENOMEM. */
	int (*measure)(const struct report_context *c, size_t at, size_t which, struct report_measure *m);
};

extern const struct report_axis *const report_axes[REPORT_BYS]; /* by enum report_by; [REPORT_ALL] is NULL */

extern const struct report_axis report_axis_op, report_axis_op_function, report_axis_op_alloc, report_axis_model,
	report_axis_tool, report_axis_mcp, report_axis_db, report_axis_http, report_axis_connect, report_axis_func,
	report_axis_call, report_axis_process, report_axis_function, report_axis_stack, report_axis_wait,
	report_axis_wait_stack, report_axis_alloc, report_axis_fault;

/* 0 or -ENOMEM. */
int report_context_init(struct report_context *c, const struct report *r, const struct report_view *v);
void report_context_release(struct report_context *c);
/* Rows of the axis, heaviest first; NULL: no memory. Freed by the caller. */
struct report_entry *report_list(const struct report_context *c, size_t *count);
/* A value as a cell of its unit, "-" when unknown. Returns out. */
const char *report_format(char out[FORMAT_BYTES], enum report_unit unit, double n);
struct op_group;
/* Behind a title ": " and its name, as a member "operation"; of NULL nothing, and null. */
int report_put_operation(const struct report *r, const struct op_group *g, struct buf *out);
void report_json_operation(const struct report *r, const struct op_group *g, struct json *j);
/* A stack on a terminal, innermost first; before: what stands before the process. And as members. */
void report_stack_name(const struct report *r, const struct report_stack *s, const char *before,
		       char out[REPORT_TEXT_BYTES]);
/* The same without the process's pid: what two runs of a program have in common. */
void report_stack_code(const struct report *r, const struct report_stack *s, char out[REPORT_TEXT_BYTES]);
/* That of two stacks of a trace is the same. */
bool report_stacks_alike(const struct report *r, const struct report_stack *a, const struct report_stack *b);
void report_stack_json(const struct report *r, const struct report_stack *s, struct json *j);
/* Members that say how the trace was taken. */
void report_json_trace(struct json *j, const struct report *r);
/* "name" and, of what stands behind " @ ", `of_key` (NULL: not told). */
void report_json_row_name(struct json *j, const struct report_row *row, const char *of_key);
/* Where time went, a line of shares, nothing where nobody knows; and as an object of milliseconds. */
int report_put_parts_line(const double parts_ms[PARTS], struct buf *out);
void report_json_parts(struct json *j, const double parts_ms[PARTS]);

#endif
