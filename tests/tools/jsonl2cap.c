/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Event lines on standard input, a capture for `perfbpf replay` on standard output.
 *
 * One JSON object a line, in the order of delivery:
 *   data               t_ns, pid, tid, comm, ssl, dir c2s|s2c, seq, len, b64; maybe t_call_ns, deliver_at_ns
 *   ssl_new, ssl_free, ssl_shutdown_by_local     t_ns, pid, ssl; of ssl_new maybe stdio: true, JSON-RPC with a child
 *   handshake          t_ns, pid, ssl; maybe t_call_ns: when it began
 *   connected          t_ns, pid, ssl: it has a socket from here on; maybe t_call_ns: when connect() began, srtt_us
 *   retransmit         t_ns, pid, ssl; maybe srtt_us
 *   exec               t_ns, pid, comm; maybe start_boottime_ns, argv, exe, ppid
 *   exit               t_ns, pid, code, signal
 * All lines are read first. Then, by the time of the events: an object begins a new generation (epoch) after ssl_free,
 * a pid becomes another process after exit, and a process another program at exec. The position of a data event is the
 * sum of the lengths of the lower sequence numbers of its pid, ssl, epoch and direction; a number that is missing
 * becomes a gap record just before the next higher one that is delivered.
 */

#include <cjson/cJSON.h>
#include <errno.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpf/event.h"

enum kind { DATA, NEW, FREE, SHUTDOWN, HANDSHAKE, CONNECTED, RETRANSMIT, EXEC, EXIT };

/* One process: from its first event to its exit. */
struct process {
	uint32_t pid;
	uint64_t start_ns;
	uint32_t exec_id; /* of the latest exec, while epochs are given out */
	bool ended;
	bool told;	  /* a PROC or EXEC record was written */
	const char *comm; /* of its first program */
	bool leader_named;
};

struct connection {
	struct process *process;
	uint32_t exec_id;
	uint64_t obj;
	uint32_t gen;
	bool freed;
	size_t *order[2]; /* indices of its data events, sorted by seq */
	size_t count[2];
	size_t told[2];	 /* how many of them, or of the gaps before them, need no gap record any more */
	uint64_t end[2]; /* final positions */
};

struct line {
	enum kind kind;
	uint64_t t_ns, call_ns, deliver_ns;
	uint64_t start_ns;
	uint32_t pid, tid, ppid;
	uint64_t obj, seq, pos;
	uint32_t len;
	int dir;
	int32_t code, signal;
	uint32_t srtt_us;
	bool stdio;
	uint8_t *bytes;
	size_t captured;
	const char *comm, *exe;
	const cJSON *argv;
	cJSON *json; /* owner of the strings */
	struct process *process;
	uint32_t exec_id;
	struct connection *connection;
};

static struct line *lines;
static size_t line_count;
static struct process **processes;
static size_t process_count;
static struct connection **connections;
static size_t connection_count;

static void __attribute__((format(printf, 1, 2), noreturn)) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("jsonl2cap: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void *must(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* Times have 13 to 19 digits: a double holds only 15, so the text is read, not cJSON's number. */
static bool raw_number(const char *text, const char *key, uint64_t *out)
{
	char quoted[40];
	const char *p;

	snprintf(quoted, sizeof(quoted), "\"%s\"", key);
	p = strstr(text, quoted);
	if (!p)
		return false;
	p += strlen(quoted);
	p += strspn(p, " \t:");
	if (*p < '0' || *p > '9')
		return false;
	*out = strtoull(p, NULL, 10);
	return true;
}

static uint64_t number(const cJSON *o, const char *key, uint64_t missing)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsNumber(v) && v->valuedouble >= 0 ? (uint64_t)v->valuedouble : missing;
}

static const char *string(const cJSON *o, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
}

static int base64_digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = c ? strchr(digits, c) : NULL;

	return p ? (int)(p - digits) : -1;
}

static void decode(struct line *l, const char *text)
{
	unsigned acc = 0, bits = 0;

	l->bytes = must(malloc(strlen(text) + 1));
	for (; *text && *text != '='; text++) {
		int d = base64_digit(*text);

		if (d < 0)
			die("bad base64");
		acc = acc << 6 | (unsigned)d;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			l->bytes[l->captured++] = (uint8_t)(acc >> bits);
		}
	}
}

static void parse_data(struct line *l, const cJSON *o, size_t at)
{
	const char *dir = string(o, "dir"), *b64 = string(o, "b64");

	if (!dir || (strcmp(dir, "c2s") && strcmp(dir, "s2c")))
		die("line %zu: dir is neither c2s nor s2c", at);
	l->dir = strcmp(dir, "c2s") ? EV_DIR_RX : EV_DIR_TX;
	l->seq = number(o, "seq", 0);
	if (b64)
		decode(l, b64);
	l->len = (uint32_t)number(o, "len", l->captured);
	if (l->len < l->captured)
		die("line %zu: more bytes than len", at);
}

static void parse_line(struct line *l, const char *text, size_t at)
{
	static const char *const names[] = {"data",	 "ssl_new",   "ssl_free",   "ssl_shutdown_by_local",
					    "handshake", "connected", "retransmit", "exec",
					    "exit"};
	cJSON *o = cJSON_Parse(text);
	const char *ev = string(o, "ev"), *ssl = string(o, "ssl");
	size_t k = 0;

	if (!ev)
		die("line %zu: no object with \"ev\"", at);
	while (k < sizeof(names) / sizeof(names[0]) && strcmp(names[k], ev))
		k++;
	if (k == sizeof(names) / sizeof(names[0]))
		die("line %zu: unknown event %s", at, ev);
	*l = (struct line){.kind = (enum kind)k, .json = o};
	if (!raw_number(text, "t_ns", &l->t_ns))
		die("line %zu: no t_ns", at);
	l->call_ns = l->t_ns;
	raw_number(text, "t_call_ns", &l->call_ns);
	raw_number(text, "deliver_at_ns", &l->deliver_ns);
	raw_number(text, "start_boottime_ns", &l->start_ns);
	l->pid = (uint32_t)number(o, "pid", 0);
	l->tid = (uint32_t)number(o, "tid", l->pid);
	l->ppid = (uint32_t)number(o, "ppid", 0);
	l->obj = ssl ? strtoull(ssl, NULL, 0) : number(o, "ssl", 0);
	l->code = (int32_t)number(o, "code", 0);
	l->signal = (int32_t)number(o, "signal", 0);
	l->srtt_us = (uint32_t)number(o, "srtt_us", 0);
	l->stdio = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "stdio"));
	l->comm = string(o, "comm");
	l->exe = string(o, "exe");
	l->argv = cJSON_GetObjectItemCaseSensitive(o, "argv");
	if (l->kind == DATA)
		parse_data(l, o, at);
}

static void read_lines(void)
{
	char *text = NULL;
	size_t size = 0, at = 0, room = 0;

	while (getline(&text, &size, stdin) >= 0) {
		at++;
		if (!text[strspn(text, " \t\r\n")])
			continue;
		if (line_count == room) {
			room = room ? room * 2 : 64;
			lines = must(realloc(lines, room * sizeof(*lines)));
		}
		parse_line(&lines[line_count++], text, at);
	}
	free(text);
	if (!line_count)
		die("no events");
}

/* --- what belongs together --------------------------------------------------------------------------------------- */

static struct process *process_of(struct line *l)
{
	struct process *p;

	for (size_t i = process_count; i > 0; i--) {
		p = processes[i - 1];
		if (p->pid == l->pid && !p->ended)
			return p;
	}
	p = must(calloc(1, sizeof(*p)));
	p->pid = l->pid;
	p->start_ns = l->start_ns ? l->start_ns : l->call_ns;
	processes = must(realloc(processes, (process_count + 1) * sizeof(*processes)));
	processes[process_count++] = p;
	return p;
}

static struct connection *connection_of(const struct line *l)
{
	struct connection *c;

	for (size_t i = connection_count; i > 0; i--) {
		c = connections[i - 1];
		if (c->process == l->process && c->exec_id == l->exec_id && c->obj == l->obj && !c->freed)
			return c;
	}
	c = must(calloc(1, sizeof(*c)));
	c->process = l->process;
	c->exec_id = l->exec_id;
	c->obj = l->obj;
	connections = must(realloc(connections, (connection_count + 1) * sizeof(*connections)));
	connections[connection_count++] = c;
	c->gen = (uint32_t)connection_count;
	return c;
}

static int by_time(const void *a, const void *b)
{
	const struct line *x = &lines[*(const size_t *)a], *y = &lines[*(const size_t *)b];

	if (x->t_ns != y->t_ns)
		return x->t_ns < y->t_ns ? -1 : 1;
	return x < y ? -1 : 1;
}

static int by_seq(const void *a, const void *b)
{
	const struct line *x = &lines[*(const size_t *)a], *y = &lines[*(const size_t *)b];

	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return x < y ? -1 : 1;
}

/* The first name of the leader if it is heard of: other threads are named after what they do. */
static void note_comm(const struct line *l)
{
	struct process *p = l->process;
	bool leader = l->tid == l->pid;

	if (l->kind != DATA || !l->comm || p->exec_id || p->leader_named || (p->comm && !leader))
		return;
	p->comm = l->comm;
	p->leader_named = leader;
}

static size_t *indices(void)
{
	size_t *order = must(malloc(line_count * sizeof(*order)));

	for (size_t i = 0; i < line_count; i++)
		order[i] = i;
	return order;
}

static void join(void)
{
	size_t *order = indices();

	qsort(order, line_count, sizeof(*order), by_time);
	for (size_t i = 0; i < line_count; i++) {
		struct line *l = &lines[order[i]];

		l->process = process_of(l);
		if (l->kind == EXEC)
			l->process->exec_id++;
		l->exec_id = l->process->exec_id;
		note_comm(l);
		if (l->kind == EXIT)
			l->process->ended = true;
		if (l->kind > RETRANSMIT)
			continue;
		l->connection = connection_of(l);
		if (l->kind == FREE)
			l->connection->freed = true;
		if (l->kind == DATA) {
			struct connection *c = l->connection;
			size_t n = ++c->count[l->dir];

			c->order[l->dir] = must(realloc(c->order[l->dir], n * sizeof(size_t)));
			c->order[l->dir][n - 1] = order[i];
		}
	}
	free(order);
}

static void place(void)
{
	for (size_t i = 0; i < connection_count; i++) {
		struct connection *c = connections[i];

		for (int d = 0; d < 2; d++) {
			qsort(c->order[d], c->count[d], sizeof(size_t), by_seq);
			for (size_t k = 0; k < c->count[d]; k++) {
				lines[c->order[d][k]].pos = c->end[d];
				c->end[d] += lines[c->order[d][k]].len;
			}
		}
	}
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static void put(const void *fixed, size_t size, const void *more, size_t more_len)
{
	static const char zero[8];
	size_t pad = (8 - more_len % 8) % 8;

	if (fwrite(fixed, 1, size, stdout) != size || fwrite(more, 1, more_len, stdout) != more_len ||
	    fwrite(zero, 1, pad, stdout) != pad)
		die("%s", strerror(errno));
}

static struct ev_head head(const struct line *l, unsigned kind, unsigned flags, size_t size, size_t more)
{
	return (struct ev_head){
		.size = (__u32)(size + (more + 7) / 8 * 8),
		.kind = (__u16)kind,
		.flags = (__u16)flags,
		.ts_ns = l->t_ns,
		.tgid = l->pid,
		.tid = l->tid,
	};
}

static struct ev_conn conn_of(const struct connection *c)
{
	return (struct ev_conn){.obj = c->obj, .start_ns = c->process->start_ns, .exec_id = c->exec_id, .gen = c->gen};
}

static void put_exec(const struct line *l, unsigned kind, const char *comm)
{
	struct ev_exec e = {.start_ns = l->process->start_ns, .ppid = l->ppid};
	struct buf more;
	const cJSON *arg;

	buf_init(&more, 0);
	e.exec_id = kind == EV_EXEC ? l->exec_id : 0;
	if (comm)
		strncpy(e.comm, comm, sizeof(e.comm) - 1);
	if (kind == EV_EXEC && l->exe) {
		buf_puts(&more, l->exe);
		e.filename_len = (__u32)more.len;
	}
	if (kind == EV_EXEC) {
		cJSON_ArrayForEach (arg, l->argv) {
			if (!cJSON_IsString(arg))
				continue;
			buf_push(&more, arg->valuestring, strlen(arg->valuestring) + 1);
		}
		e.args_len = (__u32)(more.len - e.filename_len);
	}
	e.h = head(l, kind, 0, sizeof(e), more.len);
	put(&e, sizeof(e), more.len ? more.ptr : "", more.len);
	buf_release(&more);
	l->process->told = true;
}

static uint64_t first_missing(const struct connection *c, int dir, size_t k)
{
	return k ? lines[c->order[dir][k - 1]].seq + 1 : 0;
}

/* Gap records for the numbers that are missing before the data of l, unless they were written already. */
static void put_gaps(const struct line *l)
{
	struct connection *c = l->connection;
	struct ev_gap e = {.h = head(l, EV_GAP, 0, sizeof(e), 0), .conn = conn_of(c), .dir = (__u8)l->dir};

	for (size_t *k = &c->told[l->dir]; *k < c->count[l->dir]; ++*k) {
		const struct line *next = &lines[c->order[l->dir][*k]];

		if (next->seq > l->seq)
			break;
		e.pos = next->pos;
		for (uint64_t seq = first_missing(c, l->dir, *k); seq < next->seq; seq++)
			put(&e, sizeof(e), "", 0);
	}
}

/* In chunks, as the kernel side does it. */
static void put_data(const struct line *l)
{
	struct ev_data e = {.conn = conn_of(l->connection), .pos = l->pos, .entry_ns = l->call_ns, .dir = (__u8)l->dir};
	size_t done = 0;

	put_gaps(l);
	if (!l->len) /* a call that moved nothing is no data */
		return;
	do {
		size_t n = l->captured - done < LIMIT_CHUNK_BYTES ? l->captured - done : LIMIT_CHUNK_BYTES;
		bool last = done + n == l->captured;

		e.pos = l->pos + done;
		e.len = (__u32)n;
		e.orig_len = last ? l->len - (__u32)done : e.len;
		e.h = head(l, EV_DATA, e.orig_len > e.len ? EV_F_CAPPED : 0, sizeof(e), n);
		put(&e, sizeof(e), n ? (const void *)(l->bytes + done) : "", n);
		done += n;
	} while (done < l->captured);
}

/* A shutdown is told with what had moved by then. */
static uint64_t moved_until(const struct connection *c, int dir, uint64_t t_ns)
{
	uint64_t end = 0;

	for (size_t k = 0; k < c->count[dir]; k++) {
		const struct line *d = &lines[c->order[dir][k]];

		if (d->t_ns <= t_ns && d->pos + d->len > end)
			end = d->pos + d->len;
	}
	return end;
}

static void put_conn(const struct line *l)
{
	const struct connection *c = l->connection;

	if (l->kind == NEW) {
		__u16 flags = EV_F_FRESH | (l->stdio ? EV_F_PLAIN | EV_F_STDIO : 0);
		struct ev_conn_open e = {.h = head(l, EV_CONN_OPEN, flags, sizeof(e), 0), .conn = conn_of(c)};

		put(&e, sizeof(e), "", 0);
	} else {
		struct ev_conn_close e = {
			.h = head(l, EV_CONN_CLOSE, l->kind == SHUTDOWN ? EV_F_LOCAL : 0, sizeof(e), 0),
			.conn = conn_of(c),
			.pos = {moved_until(c, 0, l->t_ns), moved_until(c, 1, l->t_ns)},
		};

		put(&e, sizeof(e), "", 0);
	}
}

static void put_handshake(const struct line *l)
{
	struct ev_handshake e = {
		.h = head(l, EV_HANDSHAKE, 0, sizeof(e), 0),
		.conn = conn_of(l->connection),
		.begin_ns = l->call_ns,
	};

	put(&e, sizeof(e), "", 0);
}

/* The socket of a connection: its cookie is the generation. 203.0.113.1 is an address of documentation. */
static void put_socket(const struct line *l)
{
	struct ev_addr addr = {.family = 2, .lport = 40000, .rport = 443, .raddr = {203, 0, 113, 1}};
	struct ev_sock e = {
		.h = head(l, EV_SOCK, 0, sizeof(e), 0),
		.cookie = l->connection->gen,
		.begin_ns = l->call_ns,
		.addr = addr,
		.what = l->kind == CONNECTED ? EV_SK_CONNECTED : EV_SK_RETRANSMIT,
		.srtt_us = l->srtt_us,
	};
	struct ev_conn_sock tie = {
		.h = head(l, EV_CONN_SOCK, 0, sizeof(tie), 0),
		.conn = conn_of(l->connection),
		.cookie = l->connection->gen,
		.addr = addr,
		.how = EV_SOCK_INSIDE,
	};

	put(&e, sizeof(e), "", 0);
	if (l->kind == CONNECTED)
		put(&tie, sizeof(tie), "", 0);
}

static void put_exit(const struct line *l)
{
	struct ev_exit e = {
		.h = head(l, EV_EXIT, 0, sizeof(e), 0),
		.start_ns = l->process->start_ns,
		.exec_id = l->exec_id,
		.code = l->code,
		.signal = l->signal,
	};

	put(&e, sizeof(e), "", 0);
}

static void put_line(const struct line *l)
{
	if (!l->process->told && l->kind != EXEC)
		put_exec(l, EV_PROC, l->process->comm);
	switch (l->kind) {
	case DATA:
		put_data(l);
		break;
	case NEW:
	case FREE:
	case SHUTDOWN:
		put_conn(l);
		break;
	case HANDSHAKE:
		put_handshake(l);
		break;
	case CONNECTED:
	case RETRANSMIT:
		put_socket(l);
		break;
	case EXEC:
		put_exec(l, EV_EXEC, l->comm);
		break;
	case EXIT:
		put_exit(l);
		break;
	}
}

static void put_header(void)
{
	struct capture_header h = {.abi_version = EV_ABI_VERSION,
				   .header_size = sizeof(h),
				   .start_ns = UINT64_MAX,
				   .host = "replay",
				   .axes = CAPTURE_DB | CAPTURE_HTTP};

	memcpy(h.magic, CAPTURE_MAGIC, sizeof(h.magic));
	for (size_t i = 0; i < line_count; i++) {
		if (lines[i].call_ns < h.start_ns)
			h.start_ns = lines[i].call_ns;
		if (lines[i].t_ns < h.start_ns)
			h.start_ns = lines[i].t_ns;
	}
	put(&h, sizeof(h), "", 0);
}

static int by_delivery(const void *a, const void *b)
{
	const struct line *x = &lines[*(const size_t *)a], *y = &lines[*(const size_t *)b];

	if (x->deliver_ns != y->deliver_ns)
		return x->deliver_ns < y->deliver_ns ? -1 : 1;
	return x < y ? -1 : 1;
}

/* The order of the file, but for lines that say that they came later than others that follow. */
static size_t *delivery_order(void)
{
	size_t *order = indices();
	uint64_t now = 0;

	for (size_t i = 0; i < line_count; i++) {
		if (lines[i].deliver_ns)
			continue;
		now = lines[i].t_ns > now ? lines[i].t_ns : now;
		lines[i].deliver_ns = now;
	}
	qsort(order, line_count, sizeof(*order), by_delivery);
	return order;
}

static void release(void)
{
	for (size_t i = 0; i < line_count; i++) {
		free(lines[i].bytes);
		cJSON_Delete(lines[i].json);
	}
	for (size_t i = 0; i < process_count; i++)
		free(processes[i]);
	for (size_t i = 0; i < connection_count; i++) {
		free(connections[i]->order[0]);
		free(connections[i]->order[1]);
		free(connections[i]);
	}
	free(lines);
	free(processes);
	free(connections);
}

int main(void)
{
	size_t *order;

	read_lines();
	join();
	place();
	order = delivery_order();
	put_header();
	for (size_t i = 0; i < line_count; i++)
		put_line(&lines[order[i]]);
	free(order);
	release();
	if (fflush(stdout))
		die("%s", strerror(errno));
	return 0;
}
