/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "report_input.h"

#define EXIT_REGRESSION 4

/* 0, or 1, said why. A reader that went away has what it wanted. */
static int print(const struct buf *out, int err)
{
	if (err) {
		log_error("%s", strerror(-err));
		return 1;
	}
	if (out->len && fwrite(out->ptr, 1, out->len, stdout) != out->len && errno != EPIPE)
		err = errno;
	if (fflush(stdout) && errno != EPIPE)
		err = errno;
	if (err)
		log_error("cannot write standard output: %s", strerror(err));
	return err ? 1 : 0;
}

static struct report_view view_of(const struct options *o)
{
	return (struct report_view){.by = (enum report_by)o->by,
				    .top = o->top,
				    .total = o->total,
				    .json = o->json,
				    .operations = o->op != NULL};
}

int report_run(const struct options *o)
{
	struct report *r = report_input_read(o->traces[0], o->last_s, o->op);
	struct report_view view = view_of(o);
	struct buf out;
	int err;

	if (!r)
		return 1;
	buf_init(&out, 0); /* bounded by what is kept of the trace */
	err = o->folded ? report_folded(r, view.by, &out) : report_render(r, &view, &out);
	if (err == -ENODATA)
		log_error("%s: this trace was taken without %s", o->traces[0], report_no_samples(r, view.by));
	err = err == -ENODATA ? 1 : print(&out, err);
	buf_release(&out);
	report_free(r);
	return err;
}

int diff_run(const struct options *o)
{
	struct report *before = report_input_read(o->traces[0], o->last_s, o->op);
	struct report *after = before ? report_input_read(o->traces[1], o->last_s, o->op) : NULL;
	struct report_view view = view_of(o);
	bool regressed = false;
	int status = 1, err;
	char why[160];
	struct buf out;

	buf_init(&out, 0); /* bounded by what is kept of the traces */
	if (after) {
		err = report_diff(before, after, &view, o->fail_on ? o->fail_percent : -1, &out, &regressed, why);
		if (err == -EINVAL)
			log_error("%s", why);
		else
			status = print(&out, err);
	}
	buf_release(&out);
	report_free(before);
	report_free(after);
	return status ? status : regressed ? EXIT_REGRESSION : 0;
}
