/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "report_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "bpf/event.h"
#include "capture.h"
#include "options.h"
#include "pipeline.h"

/* NULL, said why. Opened without waiting: a FIFO has nothing to say to us. */
static FILE *open_input(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *f = NULL;

	if (fd < 0 || fstat(fd, &st)) {
		log_error("%s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		log_error("%s: no regular file", path);
	} else {
		f = fdopen(fd, "r");
		if (!f)
			log_error("%s: %s", path, strerror(errno));
	}
	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* --- lines ------------------------------------------------------------------------------------------------------- */

/* Text in pieces, as lines of at most REPORT_LINE_BYTES; a longer one is handed on one byte too long, to be refused. */
struct lines {
	struct report *r;
	char *line; /* REPORT_LINE_BYTES + 1 */
	size_t len;
};

static int hand_on(struct lines *l)
{
	size_t len = l->len;

	l->len = 0;
	return report_line(l->r, (struct sv){l->line, len});
}

/* For trace_sink.write. */
static int push_text(void *ctx, const void *text, size_t len)
{
	struct lines *l = ctx;
	int err = 0;

	for (const char *at = text, *end = at + len; at < end && !err;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t more = (size_t)((newline ? newline : end) - at), room = REPORT_LINE_BYTES + 1 - l->len;

		more = more < room ? more : room;
		memcpy(l->line + l->len, at, more);
		l->len += more;
		at += more;
		if (at == newline || l->len > REPORT_LINE_BYTES) {
			at += at == newline;
			err = hand_on(l);
		}
	}
	return err;
}

static int finish_lines(struct lines *l, int err)
{
	if (!err && l->len)
		err = hand_on(l);
	return err ? err : report_end(l->r);
}

/* --- a trace ----------------------------------------------------------------------------------------------------- */

static int read_text(FILE *f, struct lines *l)
{
	char piece[65536];
	int err = 0;
	size_t n;

	while (!err && (n = fread(piece, 1, sizeof(piece), f)) > 0)
		err = push_text(l, piece, n);
	return finish_lines(l, !err && ferror(f) ? -EIO : err);
}

/* --- a capture --------------------------------------------------------------------------------------------------- */

static void on_record(void *ctx, const void *record, size_t len)
{
	pipeline_push(ctx, record, len);
}

/* The trace that replay would write. */
static int read_capture(FILE *f, struct lines *l, const char **why)
{
	struct pipeline_config cfg = {
		.stale_ns = OPTIONS_STALE_S * 1000000000ull,
		.sweep_ns = OPTIONS_SWEEP_S * 1000000000ull,
		.max_events = OPTIONS_MAX_EVENTS,
	};
	struct trace_sink sink = {.ctx = l, .write = push_text};
	struct trace_meta meta = {.version = PERFBPF_VERSION, .command = ""};
	struct capture_info info;
	struct pipeline *p;
	uint64_t last_ns = 0;
	int err = capture_read_header(f, &info, why);

	if (err)
		return err;
	cfg.db = info.db;
	cfg.http = info.http;
	p = pipeline_new(&cfg);
	if (!p)
		return -ENOMEM;
	err = capture_read_records(f, on_record, p, &last_ns, why);
	pipeline_finish(p, last_ns);
	meta.start_ns = info.start_ns;
	meta.boot_to_unix_ns = info.boot_to_unix_ns;
	meta.host = info.host;
	meta.kernel = info.kernel;
	if (!err)
		err = pipeline_write_trace(p, &meta, last_ns, &sink);
	pipeline_free(p);
	return err ? err : finish_lines(l, 0);
}

/* --- which of the two it is -------------------------------------------------------------------------------------- */

enum input { INPUT_TRACE, INPUT_CAPTURE, INPUT_PACKED, INPUT_ALIEN };

/* By how it begins; a piece of a capture is refused as one. */
static enum input input_kind(FILE *f)
{
	static const struct sv packed[] = {SV("\x1f\x8b"), SV("\x28\xb5\x2f\xfd"),
					   SV("\xfd"
					      "7zXZ"),
					   SV("BZh")};
	char text[sizeof(CAPTURE_MAGIC) - 1];
	struct sv begin = {text, fread(text, 1, sizeof(text), f)};

	rewind(f);
	if (!begin.len || text[0] == '{')
		return INPUT_TRACE;
	if (sv_starts(SV(CAPTURE_MAGIC), begin))
		return INPUT_CAPTURE;
	for (size_t i = 0; i < ARRAY_SIZE(packed); i++) {
		if (sv_starts(begin, packed[i]))
			return INPUT_PACKED;
	}
	return INPUT_ALIEN;
}

static int read_input(FILE *f, struct lines *l, const char **why)
{
	struct stat st;

	switch (input_kind(f)) {
	case INPUT_CAPTURE:
		return read_capture(f, l, why);
	case INPUT_PACKED:
		*why = "it is compressed: unpack it first";
		return -EBADMSG;
	case INPUT_ALIEN:
		*why = "neither a trace nor a capture of perfbpf";
		return -EBADMSG;
	default:
		if (!fstat(fileno(f), &st) && (unsigned long long)st.st_size > REPORT_FILE_BYTES)
			return -EFBIG;
		return read_text(f, l);
	}
}

/* NULL, said why. */
static struct report *read_from(FILE *f, const char *path, double from_ms, const char *op)
{
	struct report *r = report_new();
	struct lines l = {.r = r, .line = malloc(REPORT_LINE_BYTES + 1)};
	const char *why = NULL;
	int err = r && l.line ? 0 : -ENOMEM;

	rewind(f);
	if (!err)
		err = report_choose_operations(r, op);
	if (!err) {
		report_since(r, from_ms);
		err = read_input(f, &l, &why);
	}
	free(l.line);
	if (!err)
		return r;
	log_error("%s: %s", path,
		  err == -EFBIG	    ? "larger than 1 GiB"
		  : err == -EBADMSG ? why ? why : report_why(r)
				    : strerror(-err));
	report_free(r);
	return NULL;
}

/* How long it took stands at the end of a trace: with --last it is read twice. */
struct report *report_input_read(const char *path, double last_s, const char *op)
{
	FILE *f = open_input(path);
	struct report *r = f ? read_from(f, path, 0, op) : NULL;
	double duration_ms = r ? report_duration_ms(r) : 0;

	if (r && last_s > 0 && duration_ms > 1000 * last_s) {
		report_free(r);
		r = read_from(f, path, duration_ms - 1000 * last_s, op);
	}
	if (f)
		fclose(f);
	return r;
}
