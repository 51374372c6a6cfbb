/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_REPORT_H
#define VIEW_REPORT_H

/*
 * Who is responsible: tables from a trace file. The file is read line by line, as perfbpf writes it
 * (doc/trace-format.md, "The file"), so that a large or hostile one costs no more memory than its longest line and what
 * is kept of it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sv.h"

#define REPORT_LINE_BYTES  (1u << 20) /* a longer line: not a trace of ours */
#define REPORT_FILE_BYTES  (1ull << 30)
#define REPORT_ROWS_MAX	   2048 /* of one table; later names share "(others)" */
#define REPORT_VALUES_MAX  2048 /* durations kept of a row: exact up to there, a fair sample of all above */
#define REPORT_THREADS_MAX 16384
#define REPORT_FRAMES_MAX  131072
#define REPORT_STACKS_MAX  65536
#define REPORT_DEPTH_MAX   510 /* frames of a stack */

enum report_by {
	REPORT_ALL,
	REPORT_PROCESS,
	REPORT_FUNCTION, /* on a processor: self and total */
	REPORT_STACK,
	REPORT_WAIT, /* off it: by reason and stack */
	REPORT_MODEL,
	REPORT_TOOL,
	REPORT_MCP,
	REPORT_DB,
	REPORT_BYS,
};
/* The word of --by; REPORT_BYS: none such. */
enum report_by report_by_of(const char *word);

struct report;

struct report *report_new(void); /* NULL: ENOMEM */
void report_free(struct report *r);
/* A line without its newline. 0; -EBADMSG: no trace of perfbpf, see report_why(); -ENOMEM. */
int report_line(struct report *r, struct sv line);
int report_end(struct report *r); /* after the last line: 0, or -EBADMSG where the file is cut */
const char *report_why(const struct report *r);

struct report_view {
	enum report_by by;
	unsigned top; /* rows of a table */
	bool total;   /* functions by total, not by self */
};

/* Each: 0, or -errno of the buffer, -ENOMEM. Text is fit for a terminal. */
int report_render(const struct report *r, const struct report_view *v, struct buf *out);
/* Input of flame graphs: "process;outermost;…;innermost NS" a line; of what ran, or (wait) of what waited. */
int report_folded(const struct report *r, bool wait, struct buf *out);

/* Two traces, side by side. -EINVAL: their knobs differ, *why says which. *regressed: something is worse by more than
 * fail_percent (negative: never), and not by chance. */
int report_diff(const struct report *before, const struct report *after, const struct report_view *v,
		double fail_percent, struct buf *out, bool *regressed, char why[160]);

#endif
