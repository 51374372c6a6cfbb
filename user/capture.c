/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "capture.h"

#include <errno.h>
#include <linux/types.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/event.h"
#include "flow/writer.h"
#include "privilege.h"

#define ALIGN8(n)	(((n) + 7) & ~(size_t)7)
#define RECORD_SIZE_MAX (1u << 20) /* far above any record: only broken files say more */

size_t capture_stat_count(void)
{
	return ST_COUNT;
}

static uint32_t bounded(size_t len, size_t max)
{
	return (uint32_t)(len < max ? len : max);
}

void capture_make_proc(const struct proc_stat *p, const struct proc_key *key, uint64_t now_ns, capture_fn fn, void *ctx)
{
	union {
		struct ev_exec ev;
		uint8_t room[sizeof(struct ev_exec) + LIMIT_FILENAME_BYTES + LIMIT_ARGS_BYTES + 8];
	} r;
	size_t len;

	memset(&r, 0, sizeof(r));
	r.ev.h = (struct ev_head){.kind = EV_PROC, .ts_ns = now_ns, .tgid = key->tgid, .tid = key->tgid};
	r.ev.start_ns = key->start_ns;
	r.ev.exec_id = key->exec_id;
	r.ev.ppid = (uint32_t)p->ppid;
	memcpy(r.ev.comm, p->comm, bounded(strlen(p->comm), LIMIT_COMM_BYTES));
	r.ev.filename_len = bounded(strlen(p->exe), LIMIT_FILENAME_BYTES);
	r.ev.args_len = bounded(p->args_len, LIMIT_ARGS_BYTES);
	memcpy(r.room + sizeof(r.ev), p->exe, r.ev.filename_len);
	memcpy(r.room + sizeof(r.ev) + r.ev.filename_len, p->args, r.ev.args_len);
	len = ALIGN8(sizeof(r.ev) + r.ev.filename_len + r.ev.args_len);
	r.ev.h.size = (uint32_t)len;
	fn(ctx, &r, len);
}

void capture_make_lost(const uint64_t *stats, uint64_t untraced, uint64_t now_ns, capture_fn fn, void *ctx)
{
	struct ev_lost ev = {.h = {.size = sizeof(ev), .kind = EV_LOST, .ts_ns = now_ns}};

	memcpy(ev.stats, stats, sizeof(ev.stats));
	ev.stats[ST_UNTRACED] = untraced;
	fn(ctx, &ev, sizeof(ev));
}

void capture_make_tick(uint64_t now_ns, capture_fn fn, void *ctx)
{
	struct ev_head ev = {.size = sizeof(ev), .kind = EV_TICK, .ts_ns = now_ns};

	fn(ctx, &ev, sizeof(ev));
}

void capture_make_files(uint32_t tgid, uint64_t probed_ns, bool refused, bool again, const char *reason,
			uint64_t now_ns, capture_fn fn, void *ctx)
{
	union {
		struct ev_files ev;
		uint8_t room[sizeof(struct ev_files) + CAPTURE_REASON_BYTES];
	} r;
	size_t len;

	memset(&r, 0, sizeof(r));
	r.ev.h = (struct ev_head){.kind = EV_FILES, .ts_ns = now_ns, .tgid = tgid};
	r.ev.probed_ns = probed_ns;
	r.ev.probed = probed_ns != 0;
	r.ev.refused = refused;
	r.ev.again = again;
	r.ev.reason_len = reason ? bounded(strlen(reason), CAPTURE_REASON_BYTES) : 0;
	if (r.ev.reason_len)
		memcpy(r.room + sizeof(r.ev), reason, r.ev.reason_len);
	len = ALIGN8(sizeof(r.ev) + r.ev.reason_len);
	r.ev.h.size = (uint32_t)len;
	fn(ctx, &r, len);
}

void capture_make_tool_call(const struct proc_key *key, const char *id, uint64_t now_ns, capture_fn fn, void *ctx)
{
	union {
		struct ev_tool_call ev;
		uint8_t room[sizeof(struct ev_tool_call) + LIMIT_TOOL_CALL_BYTES];
	} r;
	size_t len;

	memset(&r, 0, sizeof(r));
	r.ev.h = (struct ev_head){.kind = EV_TOOL_CALL, .ts_ns = now_ns, .tgid = key->tgid};
	r.ev.start_ns = key->start_ns;
	r.ev.exec_id = key->exec_id;
	r.ev.len = bounded(strlen(id), LIMIT_TOOL_CALL_BYTES);
	memcpy(r.room + sizeof(r.ev), id, r.ev.len);
	len = ALIGN8(sizeof(r.ev) + r.ev.len);
	r.ev.h.size = (uint32_t)len;
	fn(ctx, &r, len);
}

void capture_make_frame(const struct rec_frame *f, uint64_t now_ns, capture_fn fn, void *ctx)
{
	union {
		struct ev_frame ev;
		uint8_t room[sizeof(struct ev_frame) + 2 * CAPTURE_NAME_BYTES];
	} r;
	size_t len;

	memset(&r.ev, 0, sizeof(r.ev));
	r.ev.h = (struct ev_head){.kind = EV_FRAME, .ts_ns = now_ns, .tgid = f->proc.tgid};
	r.ev.start_ns = f->proc.start_ns;
	r.ev.exec_id = f->proc.exec_id;
	r.ev.addr = f->addr;
	r.ev.source = f->source;
	r.ev.name_len = (uint16_t)bounded(f->name.len, CAPTURE_NAME_BYTES);
	r.ev.module_len = (uint16_t)bounded(f->module.len, CAPTURE_NAME_BYTES);
	len = sizeof(r.ev) + r.ev.name_len + r.ev.module_len;
	memcpy(r.room + sizeof(r.ev), f->name.len ? f->name.ptr : "", r.ev.name_len);
	memcpy(r.room + sizeof(r.ev) + r.ev.name_len, f->module.len ? f->module.ptr : "", r.ev.module_len);
	memset(r.room + len, 0, ALIGN8(len) - len);
	len = ALIGN8(len);
	r.ev.h.size = (uint32_t)len;
	fn(ctx, &r, len);
}

void capture_make_sampling(const struct rec_sampling *r, capture_fn fn, void *ctx)
{
	struct ev_sampling ev = {
		.h = {.size = sizeof(ev), .kind = EV_SAMPLING, .ts_ns = r->ts_ns},
		.period_ns = r->period_ns,
		.off_cpu_min_ns = r->off_cpu_min_ns,
		.alloc_bytes = r->alloc_bytes,
		.fault_period = r->fault_period,
	};

	fn(ctx, &ev, sizeof(ev));
}

void capture_make_func(const struct rec_func *f, capture_fn fn, void *ctx)
{
	union {
		struct ev_func ev;
		uint8_t room[sizeof(struct ev_func) + CAPTURE_FUNC_BYTES];
	} r;
	size_t len;

	memset(&r, 0, sizeof(r));
	r.ev.h = (struct ev_head){.kind = EV_FUNC, .ts_ns = f->ts_ns};
	r.ev.calls = f->calls;
	r.ev.untold = f->untold;
	r.ev.func = f->func;
	r.ev.state = f->state;
	r.ev.name_len = (uint32_t)bounded(f->name.len, CAPTURE_FUNC_BYTES);
	memcpy(r.room + sizeof(r.ev), f->name.ptr, r.ev.name_len);
	len = ALIGN8(sizeof(r.ev) + r.ev.name_len);
	r.ev.h.size = (uint32_t)len;
	fn(ctx, &r, len);
}

void capture_make_cpu(const struct proc_key *key, uint64_t cpu_ns, uint64_t wait_ns, uint64_t now_ns, capture_fn fn,
		      void *ctx)
{
	struct ev_cpu ev = {.h = {.size = sizeof(ev), .kind = EV_CPU, .ts_ns = now_ns, .tgid = key->tgid},
			    .start_ns = key->start_ns,
			    .cpu_ns = cpu_ns,
			    .wait_ns = wait_ns};

	fn(ctx, &ev, sizeof(ev));
}

void capture_make_exit(const struct proc_key *key, uint64_t now_ns, capture_fn fn, void *ctx)
{
	struct ev_exit ev = {.h = {.size = sizeof(ev), .kind = EV_EXIT, .ts_ns = now_ns, .tgid = key->tgid},
			     .start_ns = key->start_ns,
			     .exec_id = key->exec_id,
			     .code = EXIT_CODE_UNKNOWN};

	fn(ctx, &ev, sizeof(ev));
}

struct capture_file {
	struct writer w;
};

struct capture_file *capture_file_open(const char *path, const struct capture_info *info, int *err)
{
	struct capture_header h = {
		.abi_version = EV_ABI_VERSION,
		.header_size = sizeof(h),
		.start_ns = info->start_ns,
		.boot_to_unix_ns = info->boot_to_unix_ns,
		.axes = (info->db ? CAPTURE_DB : 0) | (info->http ? CAPTURE_HTTP : 0),
	};
	struct capture_file *c = calloc(1, sizeof(*c));
	const char *why;
	uid_t uid;
	gid_t gid;

	*err = -ENOMEM;
	if (!c)
		return NULL;
	privilege_user(&uid, &gid);
	*err = writer_open(&c->w, path, uid, gid, &why);
	if (*err) {
		free(c);
		return NULL;
	}
	memcpy(h.magic, CAPTURE_MAGIC, sizeof(h.magic));
	memcpy(h.host, info->host, sizeof(h.host));
	memcpy(h.kernel, info->kernel, sizeof(h.kernel));
	writer_write(&c->w, &h, sizeof(h));
	return c;
}

void capture_file_push(struct capture_file *c, const void *record, size_t len)
{
	writer_write(&c->w, record, len);
}

int capture_file_close(struct capture_file *c)
{
	int err = writer_commit(&c->w);

	writer_abort(&c->w);
	free(c);
	return err;
}

int capture_read_header(FILE *f, struct capture_info *info, const char **why)
{
	struct capture_header h = {.axes = UINT32_MAX};
	uint32_t rest;

	*why = "not a perfbpf capture";
	if (fread(&h, 1, CAPTURE_HEADER_MIN, f) != CAPTURE_HEADER_MIN)
		return ferror(f) ? -errno : -EBADMSG;
	if (memcmp(h.magic, CAPTURE_MAGIC, sizeof(h.magic)))
		return -EBADMSG;
	if (h.abi_version != EV_ABI_VERSION) {
		*why = "a capture of another version";
		return -EBADMSG;
	}
	*why = "the capture's header is broken";
	if (h.header_size < CAPTURE_HEADER_MIN || h.header_size > 65536)
		return -EBADMSG;
	rest = h.header_size - CAPTURE_HEADER_MIN;
	if (rest >= sizeof(h) - CAPTURE_HEADER_MIN) {
		rest -= sizeof(h) - CAPTURE_HEADER_MIN;
		if (fread(&h.axes, 1, sizeof(h) - CAPTURE_HEADER_MIN, f) != sizeof(h) - CAPTURE_HEADER_MIN)
			return ferror(f) ? -errno : -EBADMSG;
	}
	for (; rest > 0; rest--)
		if (fgetc(f) == EOF)
			return -EBADMSG;
	*info = (struct capture_info){.start_ns = h.start_ns,
				      .boot_to_unix_ns = h.boot_to_unix_ns,
				      .db = h.axes & CAPTURE_DB,
				      .http = h.axes & CAPTURE_HTTP};
	memcpy(info->host, h.host, sizeof(h.host));
	memcpy(info->kernel, h.kernel, sizeof(h.kernel));
	return 0;
}

/* One record into *buf (grown as needed). 1: read; 0: end; -errno. */
static int read_record(FILE *f, uint8_t **buf, size_t *size)
{
	struct ev_head h;
	size_t n = fread(&h, 1, sizeof(h), f);

	if (n == 0 && !ferror(f))
		return 0;
	if (n != sizeof(h) || h.size < sizeof(h) || h.size > RECORD_SIZE_MAX || h.size % 8)
		return ferror(f) ? -EIO : -EBADMSG;
	if (h.size > *size) {
		uint8_t *p = realloc(*buf, h.size);

		if (!p)
			return -ENOMEM;
		*buf = p;
		*size = h.size;
	}
	memcpy(*buf, &h, sizeof(h));
	n = h.size - sizeof(h);
	if (fread(*buf + sizeof(h), 1, n, f) != n)
		return ferror(f) ? -EIO : -EBADMSG;
	return 1;
}

int capture_read_records(FILE *f, capture_fn fn, void *ctx, uint64_t *last_ns, const char **why)
{
	uint8_t *buf = NULL;
	size_t size = 0;
	int err;

	*last_ns = 0;
	*why = "the capture is cut or broken";
	while ((err = read_record(f, &buf, &size)) == 1) {
		struct ev_head h;

		memcpy(&h, buf, sizeof(h));
		if (h.ts_ns > *last_ns)
			*last_ns = h.ts_ns;
		fn(ctx, buf, h.size);
	}
	free(buf);
	return err;
}
