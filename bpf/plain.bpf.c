/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Plain HTTP on sockets, without a probe on any system call: the tracepoints at the end of a socket's send and receive
 * run in the caller, where the registers it entered the kernel with say what it called and where its buffers are. What
 * is no socket call pays nothing.
 *
 * Whose registers do not say it (sendfile, splice, io_uring, kernel threads, 32-bit programs) moves unseen bytes: a
 * hole in the connection, counted. A splice from a TCP socket has no tracepoint; it is
 * noticed at the next read.
 */
#include "run.bpf.h"
#include "callregs.bpf.h"
#include "database.bpf.h"
#include "plain.bpf.h"
#include "wire.bpf.h"

/* --- where the bytes are ----------------------------------------------------------------------------------------- */

static __always_inline void found_buffer(struct plain_move *m, __u64 buf)
{
	m->buf = buf;
	m->part_len = m->len;
	m->found = 1;
}

int found_iovec(struct plain_move *m, __u64 iov, __u64 count);

/* Goes to the first element that is not empty. Global, so that the verifier looks at it once. */
__noinline int found_iovec(struct plain_move *m, __u64 iov, __u64 count)
{
	struct iovec v;
	int i;

	if (!m)
		return 0;
	m->iov_count = count < LIMIT_IOVECS ? count : LIMIT_IOVECS;
	m->iov = iov;
	for (i = 0; i < 16; i++) {
		if (!m->iov_count || bpf_probe_read_user(&v, sizeof(v), (const void *)m->iov))
			return 0;
		m->iov += sizeof(v);
		m->iov_count--;
		if (!v.len)
			continue;
		m->buf = v.base;
		m->part_len = v.len;
		m->found = 1;
		return 0;
	}
	return 0;
}

static __noinline int found_message(struct plain_move *m, __u64 at)
{
	struct user_msghdr h;

	if (bpf_probe_read_user(&h, sizeof(h), (const void *)at))
		return 0;
	return found_iovec(m, h.iov, h.iov_count);
}

/*
 * Which of the messages this is: the one after the last, if the same thread has just moved one of the same array over
 * the same socket. A call that ends early says so (plain_call_ended()), or moved less than its message.
 */
static __noinline int found_messages(struct plain_move *m, __u64 array, __u32 count)
{
	struct thread *t = thread_of(bpf_get_current_task_btf(), BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u32 i = 0;

	if (!t) {
		stat_add(ST_STATE_FULL, 1);
		return 0;
	}
	if (t->mmsg.array == array && t->mmsg.cookie == m->cookie && t->mmsg.next < count)
		i = t->mmsg.next;
	t->mmsg.array = array;
	t->mmsg.cookie = m->cookie;
	t->mmsg.next = i + 1;
	return found_message(m, array + (__u64)i * sizeof(struct mmsghdr));
}

int plain_find(struct plain_move *m)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 nr;
	bool tx;

	if (!m || (!m->returned && !in_call(task, regs)))
		return 0;
	nr = call_number(regs);
	tx = m->dir == EV_DIR_TX;
	if (nr == (tx ? NR_WRITE : NR_READ) || nr == (tx ? NR_SENDTO : NR_RECVFROM))
		found_buffer(m, CALL_ARG2(regs));
	else if (nr == (tx ? NR_WRITEV : NR_READV) || nr == (tx ? NR_PWRITEV2 : NR_PREADV2))
		found_iovec(m, CALL_ARG2(regs), CALL_ARG3(regs));
	else if (nr == (tx ? NR_SENDMSG : NR_RECVMSG))
		found_message(m, CALL_ARG2(regs));
	else if (nr == (tx ? NR_SENDMMSG : NR_RECVMMSG) && CALL_ARG3(regs) == 1)
		found_message(m, CALL_ARG2(regs));
	/* With a timeout it may end at any message, and nobody tells. */
	else if (nr == (tx ? NR_SENDMMSG : NR_RECVMMSG) && (tx || !CALL_ARG5(regs)))
		found_messages(m, CALL_ARG2(regs), CALL_ARG3(regs));
	return 0;
}

int plain_call_ended(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 nr = call_number(regs);
	struct thread *t;

	if (nr != NR_SENDMMSG && nr != NR_RECVMMSG)
		return 0;
	t = thread_of(task, 0);
	if (t)
		t->mmsg.array = 0;
	return 0;
}

/* --- what they look like ----------------------------------------------------------------------------------------- */

#define LOOK_BYTES 8

/* The first bytes, as a little-endian number; how many of them there are. */
static __noinline __u32 first_bytes(const struct plain_move *m, __u64 *word)
{
	__u64 n = m->len < m->part_len ? m->len : m->part_len;

	*word = 0;
	if (n >= LOOK_BYTES)
		return bpf_probe_read_user(word, LOOK_BYTES, (const void *)m->buf) ? 0 : LOOK_BYTES;
	if (n < 3)
		return 0;
	return bpf_probe_read_user(word, 3, (const void *)m->buf) ? 0 : 3;
}

static __always_inline __u64 word_of(const char *text, __u32 len)
{
	__u64 word = 0;
	__u32 i;

#pragma unroll
	for (i = 0; i < LOOK_BYTES; i++)
		if (i < len)
			word |= (__u64)(__u8)text[i] << (8 * i);
	return word;
}

/* Whether the text begins so, as far as there are bytes. */
#define BEGINS(text) is_begin(word, n, word_of(text, sizeof(text) - 1), sizeof(text) - 1)
static __always_inline bool is_begin(__u64 word, __u32 n, __u64 want, __u32 len)
{
	__u32 bits = 8 * (n < len ? n : len);
	__u64 mask = bits >= 64 ? ~0ull : (1ull << bits) - 1;

	return ((word ^ want) & mask) == 0;
}

static __always_inline bool is_http(__u64 word, __u32 n)
{
	return BEGINS("POST ") || BEGINS("GET ") || BEGINS("HTTP/1.") || BEGINS("PUT ") || BEGINS("HEAD ") ||
	       BEGINS("DELETE ") || BEGINS("PATCH ") || BEGINS("OPTIONS ") || BEGINS("TRACE ") || BEGINS("PRI * HT");
}

/* Content type, and the major version, of a record: RFC 8446 section 5.1. */
static __always_inline bool is_tls(__u64 word, __u32 n)
{
	__u8 type = word, major = word >> 8, minor = word >> 16;

	return n >= 3 && type >= 0x14 && type <= 0x17 && major == 3 && minor <= 4;
}

/* A client's greeting of a SOCKS proxy: RFC 1928 section 3 (version 5, a count of methods, those); version 4 asks at
 * once. */
static __always_inline bool is_socks(__u64 word, __u64 len)
{
	__u8 version = word, second = word >> 8;

	return (version == 5 && len == 2u + second) ||
	       (version == 4 && second == 1 && len >= 9 && len <= LIMIT_SOCKS_BYTES);
}

int plain_is_tls(const struct plain_move *m)
{
	__u64 word;
	__u32 n;

	if (!m || !m->found)
		return 0;
	n = first_bytes(m, &word);
	return is_tls(word, n);
}

int plain_is_data(struct plain_move *m, int finished)
{
	__u64 word;
	__u32 n;
	__u8 type;

	if (!m)
		return 0;
	if (!m->found)
		plain_find(m);
	if (!m->found)
		return 0;
	n = first_bytes(m, &word);
	type = word;
	return is_tls(word, n) && (type == 0x17 || (finished && type == 0x14));
}

int plain_look(struct sock_info *info, const struct plain_move *m, int fresh)
{
	__u32 dir, n = 0;
	__u64 word = 0;

	if (!info || !m)
		return 0;
	dir = m->dir & 1;
	/* The proxy's answer: the program speaks first in its tunnel. */
	if (info->tls == TLS_TUNNEL && dir == EV_DIR_RX) {
		if (info->looks[dir] < LIMIT_PLAIN_LOOKS)
			info->looks[dir]++;
		return info->looks[EV_DIR_TX] < LIMIT_PLAIN_LOOKS &&
				       info->look_bytes[EV_DIR_TX] < LIMIT_PLAIN_LOOK_BYTES
			       ? PLAIN_UNDECIDED
			       : PLAIN_NEVER;
	}
	if (info->looks[dir] >= LIMIT_PLAIN_LOOKS || info->look_bytes[dir] >= LIMIT_PLAIN_LOOK_BYTES)
		return PLAIN_UNDECIDED;
	if (m->found)
		n = first_bytes(m, &word);
	if (n) {
		if (is_tls(word, n)) {
			info->tls = TLS_YES;
			return PLAIN_NEVER;
		}
		/* A tunnel: what it carries has its own beginning, TLS or not. */
		if (n == LOOK_BYTES && BEGINS("CONNECT ")) {
			info->tls = TLS_TUNNEL;
			return PLAIN_UNDECIDED;
		}
		if (is_http(word, n)) {
			info->tls = 0;
			return PLAIN_HTTP;
		}
		if (cfg.db && is_database(word, n, m->len, dir, fresh))
			return PLAIN_HTTP;
		/* The first bytes of all; but a proxy may put a line before them, or be asked for what follows. */
		if (fresh && !BEGINS("CONNECT ") && !BEGINS("PROXY ") && !is_socks(word, m->len))
			return PLAIN_NEVER;
	}
	info->looks[dir]++;
	info->look_bytes[dir] += m->len < LIMIT_PLAIN_LOOK_BYTES ? m->len : LIMIT_PLAIN_LOOK_BYTES;
	if ((info->looks[0] >= LIMIT_PLAIN_LOOKS || info->look_bytes[0] >= LIMIT_PLAIN_LOOK_BYTES) &&
	    (info->looks[1] >= LIMIT_PLAIN_LOOKS || info->look_bytes[1] >= LIMIT_PLAIN_LOOK_BYTES))
		return PLAIN_NEVER;
	return PLAIN_UNDECIDED;
}

/* --- copying ----------------------------------------------------------------------------------------------------- */

/* A run over the elements of an iovec. */
struct scatter {
	__u64 part_len; /* left of the element at hand */
	__u64 copy;	/* left of what is to be copied */
	__u64 iov;
	__u32 iov_count;
	__u32 hole; /* bytes that come before those */
	struct run run;
};

static __always_inline bool next_element(struct scatter *s)
{
	struct iovec v;

	if (!s->iov_count)
		return false;
	if (bpf_probe_read_user(&v, sizeof(v), (const void *)s->iov)) {
		stat_add(ST_FAULT, 1);
		s->iov_count = 0;
		return false;
	}
	s->iov += sizeof(v);
	s->iov_count--;
	s->run.buf = v.base;
	s->part_len = v.len;
	return true;
}

int scatter_step(struct scatter *s);

/* One record, or one step to the next element; 1 at the end. A global function, so that the verifier looks at it once
 * and not in every turn of the loop. */
__noinline int scatter_step(struct scatter *s)
{
	__u64 n;

	if (!s || !s->copy)
		return 1;
	if (!s->part_len)
		return next_element(s) ? 0 : 1;
	if (s->hole) {
		n = s->hole < s->part_len ? s->hole : s->part_len;
		s->part_len -= n;
		s->run.buf += n;
		s->hole -= n;
		return 0;
	}
	n = s->copy < s->part_len ? s->copy : s->part_len;
	if (n > LIMIT_CHUNK_BYTES)
		n = LIMIT_CHUNK_BYTES;
	s->run.left = n;
	run_turn(&s->run); /* inline: calls nest eight deep at most */
	s->part_len -= n;
	s->copy -= n;
	return s->copy == 0;
}

static __noinline long scatter_turn(__u32 index, struct scatter *s)
{
	long end;

	(void)index;
	end = scatter_step(s);
	asm volatile("" : "+r"(end)); /* what a compiler knows of a global function's result, the verifier does not */
	return end ? 1 : 0;
}

/* Of each element one step to it, and of its bytes those that a chunk holds at most. */
#define SCATTER_TURNS (LIMIT_CHUNKS_PER_CALL + 2 * LIMIT_IOVECS)

static __noinline long frame_step(__u32 index, struct scatter *s)
{
	(void)index;
	return frame_turn(&s->run);
}

/* What comes behind the bytes that were copied. Frames are looked for where all bytes of the call lie in one piece. */
static __always_inline void scatter_behind(struct scatter *s, __u64 copied, __u64 rest, bool one_piece)
{
	__u64 tail;

	if (one_piece && frames_begin(&s->run, copied, rest)) {
		bpf_loop(LIMIT_CAPPED_FRAMES, frame_step, s, 0);
		s->part_len -= rest - s->run.left;
		rest = frames_end(&s->run);
	}
	tail = run_tail(&s->run, rest);
	run_rest(&s->run, rest - tail);
	s->hole = rest - tail;
	s->copy = tail;
	if (tail)
		bpf_loop(SCATTER_TURNS, scatter_turn, s, 0);
}

static __always_inline void scatter_lost(struct scatter *s)
{
	s->run.head.orig_len = s->copy < 0x80000000 ? s->copy : 0x80000000;
	run_put_head(&s->run);
	s->run.head.pos += s->copy;
	s->run.framed = 0;
}

int plain_copy(struct plain *plain, const struct plain_move *m)
{
	struct scatter s = {};
	__u64 copy;

	if (!plain || !m)
		return 0;
	emit_head(&s.run.head.h, 0, EV_DATA, 0, m->now, plain->key.tgid, m->tid ? m->tid : conn_tid());
	conn_fill(&s.run.head.conn, &plain->key, plain->conn.gen);
	s.run.head.entry_ns = m->now; /* there is no earlier probe */
	s.run.head.dir = m->dir & 1;
	s.run.buf = m->found ? m->buf : 0;
	s.part_len = m->part_len;
	s.iov = m->iov;
	s.iov_count = m->iov_count;
	copy = run_begin(&plain->conn, &plain->key, &s.run, m->len);
	if (!m->found && s.run.rest_flags == EV_F_IGNORED)
		copy = 0;
	s.copy = copy;
	if (copy && (!m->found || (m->flags & MSG_TRUNC))) { /* nobody knows where, or the kernel threw them away */
		stat_add(ST_UNSEEN, copy);
	} else if (copy) {
		scatter_step(&s);
		if (s.copy)
			bpf_loop(SCATTER_TURNS, scatter_turn, &s, 0);
	}
	if (s.copy)
		scatter_lost(&s); /* not left out by choice */
	scatter_behind(&s, copy, m->len - copy, m->part_len >= m->len);
	if (s.copy)
		scatter_lost(&s);
	return 0;
}
