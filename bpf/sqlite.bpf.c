/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SQLite's C API (sqlite.org/c3ref): what is prepared, and runs of statements. A run begins with the first
 * sqlite3_step(), and ends when one returns anything but a row, or with sqlite3_reset() or sqlite3_finalize(). Calls of
 * a thread nest: SQLite runs statements of its own (it reads its schema, searches for words), and functions of the
 * program may. What begins inside of another statement is a part of that, and not told.
 *
 * User space tells where the functions are, and attaches this only with --db. Runs of processes that ended are deleted
 * there, too.
 */
#include "conn.bpf.h"

#define SQLITE_OK  0
#define SQLITE_ROW 100

#if defined(__TARGET_ARCH_x86)
#define CALL_PARM6(ctx) ((ctx)->r9)
#else
#define CALL_PARM6(ctx) (((struct user_pt_regs *)(ctx))->regs[5])
#endif

struct sqlite_call {
	__u64 sp; /* that the return will see */
	__u64 entry_ns;
	__u64 stmt;		     /* STEP */
	__u64 sql, stmt_at, tail_at; /* PREPARE: text, where the statement and the end of its text will be */
	__s32 bytes;		     /* of the text; < 0: up to its NUL */
	__u32 role;
};

struct sqlite_calls {
	struct sqlite_call calls[LIMIT_NEST];
	__u32 depth;
	__u32 exec_id; /* of the program whose calls these are */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sqlite_calls);
} sqlite_threads SEC(".maps");

/* A statement that runs. */
struct sqlite_run {
	__u64 begin_ns;
	__u64 rows;
	__u32 tid;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_CONNS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct conn_map_key); /* obj: the statement */
	__type(value, struct sqlite_run);
} sqlite_runs SEC(".maps");

static __always_inline struct sqlite_call *sqlite_call_at(struct sqlite_calls *c, __u64 i)
{
	asm volatile("" : "+r"(i)); /* the mask stays right before its use */
	return &c->calls[i & (LIMIT_NEST - 1)];
}

/* --- runs -------------------------------------------------------------------------------------------------------- */

static __always_inline void run_starts(const struct conn_map_key *key, __u64 now)
{
	struct sqlite_run run = {.begin_ns = now, .tid = conn_tid()};

	if (bpf_map_lookup_elem(&sqlite_runs, key))
		return;
	if (bpf_map_update_elem(&sqlite_runs, key, &run, BPF_NOEXIST))
		stat_add(ST_STATE_FULL, 1);
}

static __noinline int run_ends(const struct conn_map_key *key, __s32 result, __u64 now)
{
	struct sqlite_run *run = bpf_map_lookup_elem(&sqlite_runs, key);
	struct ev_sqlite_run *r;

	if (!run)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (r) {
		emit_head(&r->h, sizeof(*r), EV_SQLITE_RUN, 0, now, key->tgid, run->tid);
		r->start_ns = key->start_ns;
		r->exec_id = key->exec_id;
		r->stmt = key->obj;
		r->begin_ns = run->begin_ns;
		r->rows = run->rows;
		r->result = result;
		emit_submit(r, sizeof(*r));
	}
	bpf_map_delete_elem(&sqlite_runs, key);
	return 0;
}

static __always_inline void stepped(const struct conn_map_key *key, __s32 result)
{
	struct sqlite_run *run;

	if (result != SQLITE_ROW) {
		run_ends(key, result, bpf_ktime_get_boot_ns());
		return;
	}
	run = bpf_map_lookup_elem(&sqlite_runs, key);
	if (run)
		__sync_fetch_and_add(&run->rows, 1);
}

/* --- texts ------------------------------------------------------------------------------------------------------- */

/* How long the text is, as far as the call tells; < 0: up to its NUL. After an error the tail is where that is. */
static __always_inline __s64 text_len(const struct sqlite_call *call, __s32 result)
{
	__u64 tail = 0;

	if (result == SQLITE_OK && call->tail_at &&
	    !bpf_probe_read_user(&tail, sizeof(tail), (const void *)call->tail_at) && tail > call->sql)
		return tail - call->sql;
	return call->bytes;
}

static __noinline int text_emit(const struct sqlite_call *call, const struct conn_map_key *key, __s32 result)
{
	struct ev_sqlite_text *r = bpf_ringbuf_reserve(&rb, sizeof(*r) + LIMIT_SQL_BYTES, 0);
	__s64 len = text_len(call, result), got;
	__u64 size;

	if (!r) {
		stat_add(ST_RING_RECORDS, 1);
		return 0;
	}
	emit_head(&r->h, sizeof(*r), EV_SQLITE_TEXT, 0, bpf_ktime_get_boot_ns(), key->tgid, conn_tid());
	r->start_ns = key->start_ns;
	r->exec_id = key->exec_id;
	r->stmt = key->obj;
	r->entry_ns = call->entry_ns;
	r->result = result;
	r->cut = 0;
	if (len < 0) {
		got = bpf_probe_read_user_str(r->bytes, LIMIT_SQL_BYTES, (const void *)call->sql);
		size = got > 0 ? got - 1 : 0;
		r->cut = got == LIMIT_SQL_BYTES;
	} else {
		size = len < LIMIT_SQL_BYTES ? len : LIMIT_SQL_BYTES;
		r->cut = len > LIMIT_SQL_BYTES;
		asm volatile("" : "+r"(size));
		if (size > LIMIT_SQL_BYTES)
			size = LIMIT_SQL_BYTES;
		got = bpf_probe_read_user(r->bytes, size, (const void *)call->sql);
	}
	if (got < 0) {
		stat_add(ST_FAULT, 1);
		size = 0;
		r->cut = 1; /* nothing of it is known */
	}
	r->len = size;
	r->h.size = sizeof(*r) + ((size + 7) & ~7ull);
	emit_submit(r, sizeof(*r) + LIMIT_SQL_BYTES);
	return 0;
}

static __always_inline void prepared(const struct sqlite_call *call, struct task_struct *task, __s32 result)
{
	struct conn_map_key key;
	__u64 stmt = 0;

	if (result == SQLITE_OK && bpf_probe_read_user(&stmt, sizeof(stmt), (const void *)call->stmt_at))
		stat_add(ST_FAULT, 1);
	if (result == SQLITE_OK && !stmt) /* white space, or a comment */
		return;
	conn_key(&key, stmt);
	text_emit(call, &key, result);
}

/* --- the programs ------------------------------------------------------------------------------------------------ */

/* The calls that this one is inside of. */
static __always_inline __u32 call_begin(struct pt_regs *ctx, struct task_struct *task, __u64 cookie)
{
	struct sqlite_calls *open = bpf_task_storage_get(&sqlite_threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 fourth = PT_REGS_PARM4(ctx), fifth = PT_REGS_PARM5(ctx), sixth = CALL_PARM6(ctx);
	__u64 sp = PT_REGS_SP(ctx) + RETURN_SP_SHIFT;
	struct sqlite_call call = {};
	__u32 depth, exec_id;
	int i;

	if (!open) {
		stat_add(ST_STATE_FULL, 1);
		return 1; /* nobody will see it return: a run that it began would not end */
	}
	exec_id = own_exec_id();
	if (open->exec_id != exec_id) { /* the thread lives on, its calls do not */
		open->exec_id = exec_id;
		open->depth = 0;
	}
	depth = open->depth;
	for (i = 0; i < LIMIT_NEST && depth && sqlite_call_at(open, depth - 1)->sp <= sp; i++)
		depth--; /* left by longjmp: no caller is deeper than this */
	if (depth >= LIMIT_NEST) {
		stat_add(ST_NEST_OVERFLOW, 1);
		return depth;
	}
	/* Or clang computes an address inside ctx, which the verifier refuses. */
	asm volatile("" : "+r"(fourth), "+r"(fifth), "+r"(sixth));
	call.sp = sp;
	call.entry_ns = bpf_ktime_get_boot_ns();
	call.role = TLS_COOKIE_ROLE(cookie);
	if (call.role == SQLITE_ROLE_STEP) {
		call.stmt = PT_REGS_PARM1(ctx);
	} else {
		call.sql = PT_REGS_PARM2(ctx);
		call.bytes = (__s32)PT_REGS_PARM3(ctx);
		call.stmt_at = TLS_COOKIE_LEN_ARG(cookie) == 4 ? fourth : fifth;
		call.tail_at = TLS_COOKIE_LEN_ARG(cookie) == 4 ? fifth : sixth;
	}
	*sqlite_call_at(open, depth) = call;
	open->depth = depth + 1;
	return depth;
}

SEC("uprobe")
int sqlite_entry(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 cookie, now = bpf_ktime_get_boot_ns();
	struct conn_map_key key;

	if (!target_current())
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	if (TLS_COOKIE_ROLE(cookie) == SQLITE_ROLE_PREPARE) {
		call_begin(ctx, task, cookie);
		return 0;
	}
	conn_key(&key, PT_REGS_PARM1(ctx));
	if (TLS_COOKIE_ROLE(cookie) == SQLITE_ROLE_RESET) {
		run_ends(&key, SQLITE_OK, now);
		return 0;
	}
	if (!call_begin(ctx, task, cookie))
		run_starts(&key, now);
	return 0;
}

SEC("uretprobe")
int sqlite_return(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct sqlite_calls *open = bpf_task_storage_get(&sqlite_threads, task, NULL, 0);
	__u64 sp = PT_REGS_SP(ctx);
	struct conn_map_key key;
	struct sqlite_call call;
	__u32 depth;
	int i;

	if (!open || !target_current())
		return 0;
	depth = open->depth;
	for (i = 0; i < LIMIT_NEST && depth && sqlite_call_at(open, depth - 1)->sp < sp; i++)
		depth--;
	if (!depth || sqlite_call_at(open, depth - 1)->sp != sp)
		return 0; /* it was entered before it was probed */
	call = *sqlite_call_at(open, depth - 1);
	open->depth = depth - 1;
	if (call.role == SQLITE_ROLE_PREPARE) {
		prepared(&call, task, (__s32)PT_REGS_RC(ctx));
		return 0;
	}
	conn_key(&key, call.stmt);
	stepped(&key, (__s32)PT_REGS_RC(ctx));
	return 0;
}
