/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "view/report.h"

#define EXIT_REGRESSION 4

/* NULL, said why. Opened without waiting: a FIFO has nothing to say to us. */
static FILE *open_trace(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *f = NULL;

	if (fd < 0 || fstat(fd, &st)) {
		log_error("%s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		log_error("%s: no regular file", path);
	} else if ((unsigned long long)st.st_size > REPORT_FILE_BYTES) {
		log_error("%s: larger than 1 GiB", path);
	} else {
		f = fdopen(fd, "r");
		if (!f)
			log_error("%s: %s", path, strerror(errno));
	}
	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* Lines of at most REPORT_LINE_BYTES; a longer one is handed on one byte too long, to be refused. 0 or -errno. */
static int read_lines(FILE *f, struct report *r)
{
	size_t len = 0;
	char *line = malloc(REPORT_LINE_BYTES + 1);
	int err = line ? 0 : -ENOMEM, c = 0;

	while (!err && (c = getc_unlocked(f)) != EOF) {
		if (c != '\n')
			line[len++] = (char)c;
		if (c != '\n' && len <= REPORT_LINE_BYTES)
			continue;
		err = report_line(r, (struct sv){line, len});
		len = 0;
	}
	if (!err && ferror(f))
		err = -EIO;
	if (!err && len)
		err = report_line(r, (struct sv){line, len});
	free(line);
	return err ? err : report_end(r);
}

/* NULL, said why. */
static struct report *read_trace(const char *path)
{
	FILE *f = open_trace(path);
	struct report *r;
	int err;

	if (!f)
		return NULL;
	r = report_new();
	err = r ? read_lines(f, r) : -ENOMEM;
	fclose(f);
	if (!err)
		return r;
	log_error("%s: %s", path, err == -EBADMSG ? report_why(r) : strerror(-err));
	report_free(r);
	return NULL;
}

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
	return (struct report_view){.by = (enum report_by)o->by, .top = o->top, .total = o->total};
}

int report_run(const struct options *o)
{
	struct report *r = read_trace(o->traces[0]);
	struct report_view view = view_of(o);
	struct buf out;
	int err;

	if (!r)
		return 1;
	buf_init(&out, 0); /* bounded by what is kept of the trace */
	if (o->folded)
		err = report_folded(r, view.by == REPORT_WAIT, &out);
	else
		err = report_render(r, &view, &out);
	err = print(&out, err);
	buf_release(&out);
	report_free(r);
	return err;
}

int diff_run(const struct options *o)
{
	struct report *before = read_trace(o->traces[0]);
	struct report *after = before ? read_trace(o->traces[1]) : NULL;
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
