/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "run.bpf.h"
#include "stdio.bpf.h"

/* --- who has what as standard input and output ------------------------------------------------------------------- */

struct end {
	__u64 ino; /* of the pipe, or of the parent's end of the Unix socket; 0: neither */
	__u64 pipe;
	__u64 sock;    /* the child's own end */
	__u64 own_ino; /* and its inode */
	__u64 waiting; /* not 0: bytes were written and not read yet */
};

static __always_inline bool pipe_holds_bytes(__u64 pipe)
{
	struct pipe_inode_info *p = (struct pipe_inode_info *)pipe;

	return BPF_CORE_READ(p, head) != BPF_CORE_READ(p, tail);
}

static __always_inline bool sock_holds_bytes(__u64 sk)
{
	return BPF_CORE_READ((struct sock *)sk, sk_receive_queue.qlen) != 0;
}

static __always_inline __u64 socket_ino(struct sock *sk)
{
	return sk ? BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino) : 0;
}

static __noinline int end_of_socket(struct end *e, __u64 file)
{
	struct socket *socket = BPF_CORE_READ((struct file *)file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);

	if (BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX || BPF_CORE_READ(sk, sk_type) != SOCK_STREAM)
		return 0;
	if (bpf_core_field_exists(struct unix_sock, peer)) /* else Unix sockets are a module */
		e->ino = socket_ino(BPF_CORE_READ((struct unix_sock *)sk, peer));
	e->sock = (__u64)sk;
	e->own_ino = BPF_CORE_READ((struct file *)file, f_inode, i_ino);
	e->waiting = sock_holds_bytes(e->sock);
	return 0;
}

/* Descriptor n of a child. */
static __noinline int end_of(struct end *e, __u64 files, __u32 n, __u32 mode)
{
	struct fdtable *table = BPF_CORE_READ((struct files_struct *)files, fdt);
	struct file **fds = BPF_CORE_READ(table, fd), *file = NULL;
	struct inode *inode;
	__u32 type;

	e->ino = 0;
	e->pipe = 0;
	e->sock = 0;
	e->own_ino = 0;
	e->waiting = 0;
	if (BPF_CORE_READ(table, max_fds) <= n || bpf_probe_read_kernel(&file, sizeof(file), fds + n) || !file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	type = BPF_CORE_READ(inode, i_mode) & S_IFMT;
	if (type == S_IFSOCK)
		return end_of_socket(e, (__u64)file);
	if (type != S_IFIFO || !(BPF_CORE_READ(file, f_mode) & mode) ||
	    BPF_CORE_READ(inode, i_sb, s_magic) != PIPEFS_MAGIC)
		return 0;
	e->ino = BPF_CORE_READ(inode, i_ino);
	e->pipe = (__u64)BPF_CORE_READ(file, private_data);
	e->waiting = pipe_holds_bytes(e->pipe);
	return 0;
}

struct search {
	__u64 fds;
	__u32 max;
	__u32 found; /* bit 0: writes the input, bit 1: reads the output */
	__u64 in, out;
};

static __noinline long search_step(__u32 index, struct search *s)
{
	struct file *file = NULL;
	__u64 ino;
	__u32 mode;

	if (index >= s->max || bpf_probe_read_kernel(&file, sizeof(file), (struct file **)s->fds + index))
		return 1;
	if (!file)
		return 0;
	ino = BPF_CORE_READ(file, f_inode, i_ino);
	if (ino != s->in && ino != s->out)
		return 0;
	mode = BPF_CORE_READ(file, f_mode);
	if (ino == s->in && (mode & FMODE_WRITE))
		s->found |= 1;
	if (ino == s->out && (mode & FMODE_READ))
		s->found |= 2;
	return s->found == 3;
}

static __noinline bool holds_others(__u64 files, __u64 in, __u64 out)
{
	struct fdtable *table = BPF_CORE_READ((struct files_struct *)files, fdt);
	struct search s = {.in = in, .out = out};

	s.fds = (__u64)BPF_CORE_READ(table, fd);
	s.max = BPF_CORE_READ(table, max_fds);
	bpf_loop(LIMIT_STDIO_FDS, search_step, &s, 0);
	return s.found == 3;
}

static __noinline int add_end(__u64 ino, __u64 obj, __u64 which)
{
	struct stdio_end e = {.obj = obj, .which = which};

	return bpf_map_update_elem(&stdio_ends, &ino, &e, BPF_NOEXIST);
}

static __noinline int add_pair(const struct conn_map_key *parent, const struct end *in, const struct end *out,
			       __u32 running)
{
	__u64 obj = STDIO_OBJ(in->ino, out->ino);
	struct stdio init = {}, *known;

	init.in = in->pipe ? in->pipe : in->sock;
	init.plain.key = *parent;
	init.plain.key.obj = obj;
	init.head.tgid = parent->tgid;
	init.head.noted_s = bpf_ktime_get_boot_ns() / 1000000000;
	if (in->pipe || out->pipe || !cfg.sock_length)
		init.head.flags |= STDIO_F_SYSCALLS;
	if (!running)
		init.head.flags |= STDIO_F_FRESH;
	if (!running && (in->waiting || (in->pipe && !syscalls_seen)))
		init.head.flags |= STDIO_F_BY_READER;
	if (in->sock && (init.head.flags & STDIO_F_BY_READER))
		init.head.child_ino = in->own_ino;
	/* Known already: from the preparation of this exec, or a wrapper that passes its own on to the real program. */
	known = bpf_map_lookup_elem(&stdios, &obj);
	if (known)
		return known->head.flags & STDIO_F_SYSCALLS;
	if (bpf_map_update_elem(&stdios, &obj, &init, BPF_NOEXIST)) {
		stat_add(ST_STATE_FULL, 1);
		return 0;
	}
	stdio_any = 1;
	add_end(in->ino, obj, STDIO_IN);
	if (in->ino != out->ino)
		add_end(out->ino, obj, STDIO_OUT);
	if (init.head.child_ino)
		add_end(init.head.child_ino, obj, STDIO_CHILD);
	return init.head.flags & STDIO_F_SYSCALLS;
}

int stdio_note(__u64 files, __u64 parent_files, const struct conn_map_key *parent, __u32 running)
{
	struct end in, out;

	if (!parent)
		return 0;
	end_of(&in, files, 0, FMODE_READ);
	if (!in.ino)
		return 0;
	end_of(&out, files, 1, FMODE_WRITE);
	if (!out.ino || !holds_others(parent_files, in.ino, out.ino) || !add_pair(parent, &in, &out, running))
		return 0;
	hint(parent->tgid, HINT_PARENT);
	if (!running)
		hint(bpf_get_current_pid_tgid() >> 32, HINT_CHILD);
	return 1;
}

/* --- what they say ----------------------------------------------------------------------------------------------- */

#define STEP_BYTES   64
#define JSONRPC_WORD 0x226a736f6e727063ull /* "jsonrpc, the quote with it */

struct text_search {
	__u64 buf, left;
	__u64 word; /* the last eight bytes */
	__u64 found;
};

int text_look(struct text_search *s);

/* The next bytes; 1 at the end. Global, so that the verifier looks at it once and not in every turn of the loop. */
__noinline int text_look(struct text_search *s)
{
	__u8 bytes[STEP_BYTES] = {};
	__u64 n, word, other, found = 0;
	int i;

	if (!s)
		return 1;
	n = s->left;
	word = s->word;
	if (n > sizeof(bytes))
		n = sizeof(bytes);
	s->left -= n;
	asm volatile("" : "+r"(n));
	if (n > sizeof(bytes))
		n = sizeof(bytes);
	if (!n || bpf_probe_read_user(bytes, n, (const void *)s->buf))
		return 1;
	s->buf += n;
	/* Zeros behind the end do no harm. No branches: the verifier would follow each way of each turn. */
	for (i = 0; i < STEP_BYTES; i++) {
		word = word << 8 | bytes[i];
		other = word ^ JSONRPC_WORD;
		asm volatile("" : "+r"(other));
		found |= ~(other | -other) >> 63;
	}
	s->word = word;
	s->found = found;
	return found || !s->left;
}

static __noinline long text_step(__u32 index, struct text_search *s)
{
	long end;

	(void)index;
	end = text_look(s);
	asm volatile("" : "+r"(end)); /* what a compiler knows of a global function's result, the verifier does not */
	return end ? 1 : 0;
}

int is_jsonrpc(const struct plain_move *m);

/* Whether a JSON-RPC message begins here. Global, so that the verifier looks at it once. */
__noinline int is_jsonrpc(const struct plain_move *m)
{
	struct text_search s = {};
	__u8 first = 0;

	if (!m)
		return 0;
	s.buf = m->buf;
	s.left = m->len < m->part_len ? m->len : m->part_len;
	if (!m->found || bpf_probe_read_user(&first, 1, (const void *)m->buf) || first != '{')
		return 0;
	bpf_loop(LIMIT_JSONRPC_BYTES / STEP_BYTES, text_step, &s, 0);
	return s.found != 0;
}

/* The parent speaks first: an answer before that means that the child read before its reads were seen.
 * Only the first message of all can say no; and a look or two of those at something met in the middle. */
static __noinline int decide(struct stdio *s, const struct plain_move *m)
{
	bool fresh = (s->head.flags & STDIO_F_FRESH) && !s->head.looks && m->dir == EV_DIR_TX;

	if (is_jsonrpc(m)) {
		if (__sync_val_compare_and_swap(&s->head.verdict, STDIO_UNDECIDED, STDIO_JSONRPC) != STDIO_UNDECIDED)
			return 0;
		s->plain.conn.flags = fresh ? CONN_F_FRESH : 0;
		s->plain.conn.gen = __sync_fetch_and_add(&last_gen, 1) + 1;
		return conn_emit_open(&s->plain.key, s->plain.conn.gen, m->now,
				      EV_F_PLAIN | EV_F_STDIO | (fresh ? EV_F_FRESH : 0));
	}
	s->head.looks++;
	if (!fresh && s->head.looks < LIMIT_JSONRPC_LOOKS)
		return 0;
	__sync_val_compare_and_swap(&s->head.verdict, STDIO_UNDECIDED, STDIO_NEVER);
	return 0;
}

static __always_inline bool is_parent(const struct stdio *s, struct task_struct *task)
{
	struct conn_map_key now;

	conn_key(&now, 0);
	return now.tgid == s->plain.key.tgid && now.start_ns == s->plain.key.start_ns &&
	       now.exec_id == s->plain.key.exec_id;
}

static __noinline int look(struct stdio *s, struct plain_move *m)
{
	m->now = bpf_ktime_get_boot_ns();
	if (s->head.verdict == STDIO_UNDECIDED)
		decide(s, m);
	m->cookie = s->head.verdict == STDIO_JSONRPC ? s->plain.key.obj : 0;
	return 0;
}

static __always_inline bool holds_bytes(const struct stdio *s)
{
	return s->head.child_ino ? sock_holds_bytes(s->in) : pipe_holds_bytes(s->in);
}

/* An answer was read: from here on the parent's own writes are told. */
static __always_inline void answered(struct stdio *s)
{
	if ((s->head.flags & STDIO_F_BY_READER) && s->plain.conn.pos[EV_DIR_TX] && !holds_bytes(s))
		__sync_fetch_and_and(&s->head.flags, ~STDIO_F_BY_READER);
}

/* The child read its input, while that counts. */
static __noinline int child_read(struct stdio *s, struct plain_move *m)
{
	if (!(s->head.flags & STDIO_F_BY_READER) || m->dir != EV_DIR_RX || !m->len)
		return 0;
	m->dir = EV_DIR_TX;
	m->tid = s->plain.key.tgid;
	return look(s, m);
}

/* The parent moved bytes. */
static __noinline int parent_moved(struct stdio *s, struct plain_move *m)
{
	if ((s->head.flags & STDIO_F_BY_READER) && m->dir == EV_DIR_TX)
		return 0;
	look(s, m);
	if (m->dir == EV_DIR_RX)
		answered(s);
	return 0;
}

int stdio_moved(__u64 obj, struct plain_move *m, __u32 by_child)
{
	struct stdio *s = bpf_map_lookup_elem(&stdios, &obj);

	if (!m)
		return 0;
	m->cookie = 0;
	if (!s)
		return STDIO_ENDED;
	if (by_child)
		child_read(s, m);
	else if (is_parent(s, bpf_get_current_task_btf()))
		parent_moved(s, m);
	if (by_child && !(s->head.flags & STDIO_F_BY_READER))
		return STDIO_NEVER;
	return s->head.verdict;
}

int stdio_ended(__u64 obj)
{
	struct stdio *s = bpf_map_lookup_elem(&stdios, &obj);
	__u32 before;

	if (!s)
		return 0;
	before = __sync_lock_test_and_set(&s->head.verdict, STDIO_ENDED);
	if (before == STDIO_JSONRPC) {
		skip_tell(&s->plain.conn, &s->plain.key);
		conn_emit_close(&s->plain.conn, &s->plain.key, bpf_ktime_get_boot_ns());
	}
	return 0;
}

/* --- pipes ------------------------------------------------------------------------------------------------------- */

int stdio_pipe_moved(__u64 ino, struct plain_move *m)
{
	struct stdio_end *e = bpf_map_lookup_elem(&stdio_ends, &ino);
	struct stdio *s;
	bool parent;

	if (!e || !m)
		return 0;
	s = bpf_map_lookup_elem(&stdios, &e->obj);
	if (!s)
		return 0;
	parent = is_parent(s, bpf_get_current_task_btf());
	if (e->which == STDIO_IN && !parent)
		return child_read(s, m);
	if (!parent || m->dir != (e->which == STDIO_IN ? EV_DIR_TX : EV_DIR_RX))
		return 0;
	if (!m->len)
		return m->dir == EV_DIR_RX ? stdio_ended(s->plain.key.obj) : 0;
	return parent_moved(s, m);
}
