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
#define REPORT_STACKS_MAX  262144 /* whatever flow/profile.h lets a run write, likewise of the other tables */
#define REPORT_SAMPLES_MAX (1u << 20)
#define REPORT_DEPTH_MAX   510	 /* frames of a stack */
#define REPORT_CALLS_MAX   65536 /* single calls kept: the slowest */
#define REPORT_PIDS_MAX	   16384 /* processes; how much is of those beyond is said */

/*
 * The tables, in the order of the default report, by their words of --by. One more is its line here, a struct
 * report_axis in a file of its own (report_axis.h), and its line in report_axes[].
 */
#define REPORT_TABLES(X)                                                                                               \
	X(OP, "op")		      /* operations */                                                                 \
	X(OP_FUNCTION, "op-function") /* of the most expensive one */                                                  \
	X(OP_ALLOC, "op-alloc")	      /* what it asked for, by stack */                                                \
	X(MODEL, "model")                                                                                              \
	X(CALL, "call")                                                                                                \
	X(TOOL, "tool")                                                                                                \
	X(MCP, "mcp")                                                                                                  \
	X(HTTP, "http")                                                                                                \
	X(CONNECT, "connect") /* that came to nothing */                                                               \
	X(FUNC, "func")	      /* traced by name: -f */                                                                 \
	X(DB, "db")                                                                                                    \
	X(PROCESS, "process")                                                                                          \
	X(FUNCTION, "function") /* on a processor: self and total */                                                   \
	X(STACK, "stack")                                                                                              \
	X(WAIT, "wait")		    /* off it, by reason */                                                            \
	X(WAIT_STACK, "wait-stack") /* and by reason and stack */                                                      \
	X(ALLOC, "alloc")	    /* what was asked for, by stack */                                                 \
	X(FAULT, "fault")	    /* memory that was touched first, by stack */

enum report_by {
	REPORT_ALL,
#define REPORT_ID(id, word) REPORT_##id,
	REPORT_TABLES(REPORT_ID)
#undef REPORT_ID
		REPORT_BYS,
};
#define REPORT_WORD(id, word) " " word
#define REPORT_WORDS	      REPORT_TABLES(REPORT_WORD) /* of --by, each behind a blank */
/* The word of --by ("all": REPORT_ALL); REPORT_BYS: none such. */
enum report_by report_by_of(const char *word);
const char *report_by_word(enum report_by by);
bool report_has_stacks(enum report_by by); /* it can be folded */

struct report;

struct report *report_new(void); /* NULL: ENOMEM */
/* Before the first line: only what ended that late after the trace's start. */
void report_since(struct report *r, double from_ms);
/* Before the first line: only operations of this name or path are told, and other spans of it become operations too
 * (POSIX extended regular expression). 0; -EINVAL: it is none. */
int report_choose_operations(struct report *r, const char *regex);
void report_free(struct report *r);
/* A line without its newline. 0; -EBADMSG: no trace of perfbpf, see report_why(); -ENOMEM. */
int report_line(struct report *r, struct sv line);
int report_end(struct report *r); /* after the last line: 0, or -EBADMSG where the file is cut */
const char *report_why(const struct report *r);
double report_duration_ms(const struct report *r); /* of the trace, after the last line; 0: not known */

struct report_view {
	enum report_by by;
	unsigned top;	 /* rows of a table */
	bool total;	 /* functions by total, not by self */
	bool json;	 /* instead of text: doc/report-format.md */
	bool operations; /* of the default report only what is about them */
};

/* Each: 0, or -errno of the buffer, -ENOMEM. Text is fit for a terminal. */
int report_render(const struct report *r, const struct report_view *v, struct buf *out);
/* Input of flame graphs: "process;outermost;…;innermost NS" a line; of what waited (WAIT, WAIT_STACK), of memory
 * (ALLOC, FAULT: bytes), else of what ran. -ENODATA: the trace has no such samples, see report_no_samples(). */
int report_folded(const struct report *r, enum report_by by, struct buf *out);
/* What the trace was taken without: static text; NULL: nothing. */
const char *report_no_samples(const struct report *r, enum report_by by);

/* Two traces, side by side. -EINVAL: their knobs differ, *why says which. *regressed: something is worse by more than
 * fail_percent (negative: never), and not by chance. */
int report_diff(const struct report *before, const struct report *after, const struct report_view *v,
		double fail_percent, struct buf *out, bool *regressed, char why[160]);

#endif
