/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Plain HTTP: every way to move bytes over a TCP socket, and sockets that are older, shared or no HTTP at all. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/net_tstamp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "bpftest.h"

/* Every system call that moves bytes over a socket; the other end answers each with the same bytes. */
static void case_plain_calls(void)
{
	char buf[64], more[64];
	struct iovec out[3] = {IOV("POST", 4), IOV("", 0), IOV(" /3 ", 4)}, in[2] = {IOV(buf, 3), IOV(more, 60)};
	struct msghdr m = {.msg_iov = out, .msg_iovlen = 3}, r = {.msg_iov = in, .msg_iovlen = 2};
	int fd = connect_to(port);

	need(write(fd, "POST /1 ", 8), 8);
	need(recv(fd, buf, 4, MSG_PEEK), 4);
	need(read(fd, buf, sizeof(buf)), 8);
	need(send(fd, "POST /2 ", 8, 0), 8);
	need(recv(fd, buf, sizeof(buf), 0), 8);
	need(sendto(fd, "POST /2b ", 9, 0, NULL, 0), 9);
	need(recvfrom(fd, buf, sizeof(buf), 0, NULL, NULL), 9);
	need(writev(fd, out, 3), 8);
	need(readv(fd, in, 2), 8);
	need(sendmsg(fd, &m, 0), 8);
	need(recvmsg(fd, &r, 0), 8);
	close_and_settle(fd);
}

static const char golden_plain_calls[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
						    "data x1 rx 0+8 'POST /1 '\n"
						    "data x1 tx 8+8 'POST /2 '\n"
						    "data x1 rx 8+8 'POST /2 '\n"
						    "data x1 tx 16+9 'POST /2b '\n"
						    "data x1 rx 16+9 'POST /2b '\n"
						    "data x1 tx 25+4 'POST'\n" /* writev */
						    "data x1 tx 29+4 ' /3 '\n"
						    "data x1 rx 25+3 'POS'\n"
						    "data x1 rx 28+5 'T /3 '\n"
						    "data x1 tx 33+4 'POST'\n" /* sendmsg */
						    "data x1 tx 37+4 ' /3 '\n"
						    "data x1 rx 33+3 'POS'\n"
						    "data x1 rx 36+5 'T /3 '\n" PLAIN_CLOSE "close x1 tx=41 rx=41\n"
						    "exit 0 signal 0\n";

/* Time stamps of what was sent come back with those bytes: nobody sent them to this program. */
static void case_error_queue(void)
{
	int fd = connect_to(port), on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	char buf[256], control[256];
	struct iovec in = IOV(buf, sizeof(buf));
	struct msghdr m = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

	need(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof(on)), 0);
	need(write(fd, "POST /1 ", 8), 8);
	usleep(50000);
	if (recvmsg(fd, &m, MSG_ERRQUEUE) < 8)
		_exit(97);
	need(read(fd, buf, sizeof(buf)), 8);
	close_and_settle(fd);
}

static const char golden_error_queue[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
						    "data x1 rx 0+8 'POST /1 '\n" PLAIN_CLOSE "close x1 tx=8 rx=8\n"
						    "exit 0 signal 0\n";

/* Those that only the tracepoints of sockets show. */
static void case_newer_calls(void)
{
	char buf[64], more[64];
	struct iovec out[3] = {IOV("POST", 4), IOV("", 0), IOV(" /3 ", 4)}, in[2] = {IOV(buf, 3), IOV(more, 60)};
	struct msghdr m = {.msg_iov = out, .msg_iovlen = 3}, r = {.msg_iov = in, .msg_iovlen = 2};
	struct mmsghdr many[2] = {{.msg_hdr = m}, {.msg_hdr = m}};
	int fd = connect_to(port);

	need(pwritev2(fd, out, 3, -1, 0), 8);
	need(preadv2(fd, in, 2, -1, 0), 8);
	/* two messages twice, one message of two; then one more, which must not be taken for the second */
	need(sendmmsg(fd, many, 2, 0), 2);
	usleep(50000);
	in[1].iov_len = 5;
	many[0].msg_hdr = many[1].msg_hdr = r;
	need(recvmmsg(fd, many, 2, 0, NULL), 2);
	need(write(fd, "abc", 3), 3);
	usleep(50000);
	need(recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL), 1); /* the second one finds nothing */
	need(write(fd, "ABCDEF", 6), 6);
	usleep(50000);
	need(recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL), 1);
	close_and_settle(fd);
}

static const char golden_newer_calls[] = PLAIN_OPEN "data x1 tx 0+4 'POST'\n"
						    "data x1 tx 4+4 ' /3 '\n"
						    "data x1 rx 0+3 'POS'\n"
						    "data x1 rx 3+5 'T /3 '\n"
						    "data x1 tx 8+4 'POST'\n" /* sendmmsg */
						    "data x1 tx 12+4 ' /3 '\n"
						    "data x1 tx 16+4 'POST'\n"
						    "data x1 tx 20+4 ' /3 '\n"
						    "data x1 rx 8+3 'POS'\n"
						    "data x1 rx 11+5 'T /3 '\n"
						    "data x1 rx 16+3 'POS'\n"
						    "data x1 rx 19+5 'T /3 '\n"
						    "data x1 tx 24+3 'abc'\n"
						    "data x1 rx 24+3 'abc'\n"
						    "data x1 tx 27+6 'ABCDEF'\n"
						    "data x1 rx 27+3 'ABC'\n"
						    "data x1 rx 30+3 'DEF'\n" PLAIN_CLOSE "close x1 tx=33 rx=33\n"
						    "exit 0 signal 0\n";

/* Bytes that no register speaks of. */
static void case_unseen(void)
{
	int fd = connect_to(port), file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), p[2];
	char buf[256];

	need(write(fd, "POST /1 ", 8), 8);
	need(sendfile(fd, file, NULL, 100), 100);
	need(pipe2(p, O_CLOEXEC), 0);
	need(write(p[1], "12345", 5), 5);
	need(splice(p[0], NULL, fd, NULL, 5, 0), 5);
	need(recv(fd, buf, 113, MSG_WAITALL | MSG_TRUNC), 113); /* thrown away by the kernel */
	need(write(fd, "abcdef", 6), 6);
	usleep(50000);
	need(splice(fd, NULL, p[1], NULL, 4, 0), 4); /* no tracepoint: the next read tells */
	need(read(fd, buf, sizeof(buf)), 2);
	close_and_settle(fd);
}

static const char golden_unseen[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
					       "data x1 tx 8+0/100\n"
					       "data x1 tx 108+0/5\n"
					       "data x1 rx 0+0/113\n"
					       "data x1 tx 113+6 'abcdef'\n"
					       "data x1 rx 117+2 'ef'\n" PLAIN_CLOSE "close x1 tx=119 rx=119\n"
					       "exit 0 signal 0\n";

/* An answer of which nothing is read but by splices: the next read tells, though no other one came before. */
static void case_spliced_first(void)
{
	int fd = connect_to(port), p[2];
	char buf[16];

	need(pipe2(p, O_CLOEXEC), 0);
	need(write(fd, "POST /1 ", 8), 8);
	usleep(50000);
	need(splice(fd, NULL, p[1], NULL, 8, 0), 8);
	need(write(fd, "POST /2 ", 8), 8);
	usleep(50000);
	need(read(fd, buf, sizeof(buf)), 8);
	close_and_settle(fd);
}

static const char golden_spliced_first[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
						      "data x1 tx 8+8 'POST /2 '\n"
						      "data x1 rx 8+8 'POST /2 '\n" PLAIN_CLOSE "close x1 tx=16 rx=16\n"
						      "exit 0 signal 0\n";

/* A ring of one request at a time, by hand: liburing is not everywhere. */
static int uring_fd;
static uint8_t *uring_sq, *uring_cq;
static struct io_uring_params uring;
static struct io_uring_sqe *uring_sqes;

static bool uring_open(void)
{
	size_t sq_size, cq_size;

	memset(&uring, 0, sizeof(uring));
	uring_fd = (int)syscall(__NR_io_uring_setup, 1, &uring);
	if (uring_fd < 0)
		return false;
	sq_size = uring.sq_off.array + uring.sq_entries * sizeof(uint32_t);
	cq_size = uring.cq_off.cqes + uring.cq_entries * sizeof(struct io_uring_cqe);
	uring_sq = mmap(NULL, sq_size, PROT_READ | PROT_WRITE, MAP_SHARED, uring_fd, IORING_OFF_SQ_RING);
	uring_cq = mmap(NULL, cq_size, PROT_READ | PROT_WRITE, MAP_SHARED, uring_fd, IORING_OFF_CQ_RING);
	uring_sqes = mmap(NULL, sizeof(*uring_sqes), PROT_READ | PROT_WRITE, MAP_SHARED, uring_fd, IORING_OFF_SQES);
	return uring_sq != MAP_FAILED && uring_cq != MAP_FAILED && uring_sqes != MAP_FAILED;
}

/* flags: IOSQE_ASYNC has a kernel thread do it. */
static ssize_t uring_do(uint8_t op, uint8_t flags, int fd, void *buf, uint32_t len)
{
	uint32_t *tail = (uint32_t *)(void *)(uring_sq + uring.sq_off.tail);
	uint32_t *head = (uint32_t *)(void *)(uring_cq + uring.cq_off.head);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(void *)(uring_cq + uring.cq_off.cqes);
	ssize_t result;

	uring_sqes[0] =
		(struct io_uring_sqe){.opcode = op, .flags = flags, .fd = fd, .addr = (uintptr_t)buf, .len = len};
	((uint32_t *)(void *)(uring_sq + uring.sq_off.array))[0] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(__NR_io_uring_enter, uring_fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -1;
	result = cqes[*head & (uring.cq_entries - 1)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return result;
}

static void case_io_uring(void)
{
	int fd = connect_to(port);
	char buf[64], text_of[] = "0123456789";

	if (!uring_open())
		_exit(96);
	need(write(fd, "POST /1 ", 8), 8);
	need(read(fd, buf, sizeof(buf)), 8);
	need(uring_do(IORING_OP_SEND, 0, fd, text_of, 10), 10);
	usleep(50000);
	need(uring_do(IORING_OP_RECV, 0, fd, buf, sizeof(buf)), 10); /* at once: inside io_uring_enter() */
	need(uring_do(IORING_OP_WRITE, IOSQE_ASYNC, fd, text_of, 5), 5);
	need(uring_do(IORING_OP_RECV, 0, fd, buf, sizeof(buf)), 5); /* waits: on the way back to the user */
	need(uring_do(IORING_OP_SEND, IOSQE_ASYNC, fd, text_of, 3), 3);
	need(uring_do(IORING_OP_READ, IOSQE_ASYNC, fd, buf, sizeof(buf)), 3);
	need(write(fd, "abc", 3), 3);
	need(read(fd, buf, sizeof(buf)), 3);
	close_and_settle(fd);
}

static const char golden_io_uring[] = PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
						 "data x1 rx 0+8 'POST /1 '\n"
						 "data x1 tx 8+0/10\n"
						 "data x1 rx 8+0/10\n"
						 "data x1 tx 18+0/5\n"
						 "data x1 rx 18+0/5\n"
						 "data x1 tx 23+0/3\n"
						 "data x1 rx 23+0/3\n"
						 "data x1 tx 26+3 'abc'\n"
						 "data x1 rx 26+3 'abc'\n" PLAIN_CLOSE "close x1 tx=29 rx=29\n"
						 "exit 0 signal 0\n";

static bool has_io_uring(void)
{
	bool has = uring_open();

	if (uring_fd >= 0)
		close(uring_fd);
	return has;
}

#if defined(__x86_64__)
static long call32(long nr, long a, long b, long c)
{
	long ret;

	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(nr), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

static bool has_call32(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(call32(20, 0, 0, 0) == getpid() ? 0 : 1); /* getpid */
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static void case_32_bit(void)
{
	char *low = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	int fd = connect_to(port);

	if (low == MAP_FAILED)
		_exit(97);
	memcpy(low, "GET /2 ", 7);
	need(write(fd, "GET /1 ", 7), 7);
	need(call32(4, fd, (long)low, 7), 7); /* write, where 4 is stat */
	need(recv(fd, low, 14, MSG_WAITALL), 14);
	close_and_settle(fd);
}
#else
static bool has_call32(void)
{
	return false;
}

static void case_32_bit(void)
{
}
#endif

static const char golden_32_bit[] = PLAIN_OPEN "data x1 tx 0+7 'GET /1 '\n"
					       "data x1 tx 7+0/7\n"
					       "data x1 rx 0+14 'GET /1 GET /2 '\n" PLAIN_CLOSE "close x1 tx=14 rx=14\n"
					       "exit 0 signal 0\n";

static void check_unseen(const char *name, const char *golden, void (*fn)(void), uint64_t add)
{
	uint64_t before = stat_of(ST_UNSEEN);

	check_served(name, golden, fn, serve_echo, 1);
	if (stat_of(ST_UNSEEN) - before == add)
		return;
	verdict(false, name);
	printf("# %llu unseen bytes counted, not %llu\n", (unsigned long long)(stat_of(ST_UNSEEN) - before),
	       (unsigned long long)add);
}

/* What is no HTTP, or will be none, is not touched. */
static void case_not_plain(void)
{
	static const char *const begins[] = {"hello there", "\x16\x03\x01 client hello", "EHLO GET "};
	char buf[64];

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
		ssize_t n = (ssize_t)strlen(begins[i]);
		int fd = connect_to(port);

		need(write(fd, begins[i], (size_t)n), n);
		need(read(fd, buf, sizeof(buf)), n);
		need(write(fd, "POST /1 HTTP/1.1", 16), 16);
		need(read(fd, buf, sizeof(buf)), 16);
		close_and_settle(fd);
	}
}

static const char golden_not_plain[] = "sock connected" PEER PLAIN_CLOSE "sock connected" PEER PLAIN_CLOSE
				       "sock connected" PEER PLAIN_CLOSE "exit 0 signal 0\n";

/* What is said in a proxy's tunnel has its own beginning: here HTTP, there TLS. */
static void case_tunnel(void)
{
	static const char *const inside[] = {"POST /1 HTTP/1.1", "\x16\x03\x01 client hello"};
	char buf[64];

	for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
		ssize_t n = (ssize_t)strlen(inside[i]);
		int fd = connect_to(port);

		need(write(fd, "CONNECT host:443 HTTP/1.1", 25), 25);
		need(read(fd, buf, sizeof(buf)), 25);
		need(write(fd, inside[i], (size_t)n), n);
		need(read(fd, buf, sizeof(buf)), n);
		close_and_settle(fd);
	}
}

#define ASKED	 "tunnel tx 127.0.0.1:L>127.0.0.1:R 'CONNECT host:443 HTTP/1.1'\n"
#define ANSWERED "tunnel rx 127.0.0.1:L>127.0.0.1:R 'CONNECT host:443 HTTP/1.1'\n"
static const char golden_tunnel[] =
	"sock connected" PEER ASKED "sock proxy" PEER ANSWERED "open x1 plain\nitself x1 tx wire=0 plain=0" PEER
	"data x1 tx 0+16 'POST /1 HTTP/1.1'\n"
	"data x1 rx 0+16 'POST /1 HTTP/1.1'\n" PLAIN_CLOSE "close x1 tx=16 rx=16\n"
	"sock connected" PEER ASKED "sock proxy" PEER ANSWERED PLAIN_CLOSE "exit 0 signal 0\n";

/* One socket for connections one after the other: what it carried before is not what it carries. */
static void say_again(int fd, const char *text_of)
{
	ssize_t n = (ssize_t)strlen(text_of);
	char buf[64];

	need(write(fd, text_of, (size_t)n), n);
	need(read(fd, buf, sizeof(buf)), n);
}

static void case_connected_again(void)
{
	int fd = connect_to(port);

	say_again(fd, "POST /1 ");
	connect_again(fd, port);
	say_again(fd, "GET /2 ");
	connect_again(fd, port);
	say_again(fd, "\x16\x03\x01 client hello");
	connect_again(fd, port);
	say_again(fd, "POST /3 ");
	close_and_settle(fd);
}

#define DISCONNECTED "sock closed" PEER
static const char golden_connected_again[] =
	PLAIN_OPEN "data x1 tx 0+8 'POST /1 '\n"
		   "data x1 rx 0+8 'POST /1 '\n" DISCONNECTED "close x1 tx=8 rx=8\n"
		   "sock reset-sent" PEER "sock connected" PEER "open x2 fresh plain\n"
		   "itself x2 tx wire=0 plain=0" PEER "data x2 tx 0+7 'GET /2 '\n"
		   "data x2 rx 0+7 'GET /2 '\n" DISCONNECTED "close x2 tx=7 rx=7\n"
		   "sock reset-sent" PEER "sock connected" PEER DISCONNECTED "sock reset-sent" PEER
		   "sock connected" PEER "open x3 fresh plain\n"
		   "itself x3 tx wire=0 plain=0" PEER "data x3 tx 0+8 'POST /3 '\n"
		   "data x3 rx 0+8 'POST /3 '\n" PLAIN_CLOSE "close x3 tx=8 rx=8\n"
		   "exit 0 signal 0\n";

/* A connection met in the middle: made, and used, before its process was a target. */
static int old_fd;

static void case_in_the_middle(void)
{
	char buf[64];

	need(read(old_fd, buf, 5), 5); /* "rest " */
	need(read(old_fd, buf, 7), 7); /* "of body" */
	need(write(old_fd, "GET /2 ", 7), 7);
	need(read(old_fd, buf, sizeof(buf)), 7);
}

static const char golden_in_the_middle[] =
	"open x1 plain\nitself x1 tx wire=0 plain=0" PEER "data x1 tx 0+7 'GET /2 '\n"
	"data x1 rx 0+7 'GET /2 '\n"
	"exit 0 signal 0\n";

/* So many bodies that it is given up. */
static void case_given_up(void)
{
	char buf[64];
	int i;

	for (i = 0; i < LIMIT_PLAIN_LOOKS; i++) {
		need(write(old_fd, "{json}", 6), 6);
		need(recv(old_fd, buf, 6, MSG_WAITALL), 6);
	}
	need(write(old_fd, "GET /2 ", 7), 7);
}

static void test_old_connection(const char *name, const char *golden, void (*fn)(void))
{
	pid_t server = fork();

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	old_fd = connect_to(port);
	need(write(old_fd, "rest of body", 12), 12);
	usleep(20000);
	run_child(fn, true);
	expect(name, golden);
	close(old_fd);
	end_server(server);
}

/* The socket goes down to a child, and outlives its owner. */
static void case_inherited(void)
{
	int fd = connect_to(port), go[2];
	char c;

	need(pipe(go), 0);
	need(write(fd, "GET /1 ", 7), 7);
	if (fork() == 0) {
		need(write(fd, "GET /2 ", 7), 7);
		close(go[1]);
		need(read(go[0], &c, 1), 0); /* the parent has ended */
		usleep(20000);
		need(write(fd, "GET /3 ", 7), 7);
		close_and_settle(fd);
		_exit(0);
	}
	usleep(50000);
}

static void test_inherited(void)
{
	static const char want[] =
		PLAIN_OPEN "data x1 tx 0+7 'GET /1 '\n"
			   "fork\n"
			   "data x1 tx 7+7 'GET /2 '\n"
			   "exit 0 signal 0\n"
			   "open x2 child plain\n"
			   "itself x2 child tx wire=0 plain=0" PEER "data x2 child tx 0+7 'GET /3 '\n";
	pid_t server = fork();
	bool ok;

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	run_child(case_inherited, true);
	usleep(200000);
	probes_consume(probes);
	ok = got && strncmp(got, want, sizeof(want) - 1) == 0;
	verdict(ok, "a shared socket stays its first owner's until that one ends");
	if (!ok)
		print_lines("got", got);
	end_server(server);
}

static uint64_t *moved_by_child;

static void case_partial(void)
{
	int fd = connect_to(port), small = 65536;
	struct iovec v[3] = {IOV("POST ", 5), IOV(big, 300000), IOV(big, 300000)};
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	n = writev(fd, v, 3);
	if (n < 5 || n >= 600005)
		_exit(97);
	*moved_by_child = (uint64_t)n;
	close_and_settle(fd);
}

static void test_partial(void)
{
	pid_t server;
	bool ok;

	moved_by_child = shared_page();
	server = fork();
	if (server == 0) {
		serve_nothing(1);
		_exit(0);
	}
	quiet_data = true;
	run_child(case_partial, true);
	quiet_data = false;
	ok = *moved_by_child > 5 && data_bytes == *moved_by_child;
	verdict(ok, "of a partial write what was moved is seen");
	if (!ok)
		printf("# %llu moved, %llu seen\n", (unsigned long long)*moved_by_child,
		       (unsigned long long)data_bytes);
	end_server(server);
}

void plain_tests(void)
{
	check_served("plain HTTP over every system call", golden_plain_calls, case_plain_calls, serve_echo, 1);
	check_served("and not of what comes from the error queue", golden_error_queue, case_error_queue, serve_echo, 1);
	if (probes_features(probes)->sock_length) {
		check_served("and over newer ones", golden_newer_calls, case_newer_calls, serve_echo, 1);
		check_unseen("bytes that no register speaks of are counted", golden_unseen, case_unseen, 222);
		check_unseen("an answer that was spliced before any other read is counted", golden_spliced_first,
			     case_spliced_first, 8);
		if (has_io_uring())
			check_unseen("and those of io_uring", golden_io_uring, case_io_uring, 36);
		if (has_call32())
			check_unseen("and those of 32-bit callers", golden_32_bit, case_32_bit, 7);
	}
	check_served("what is no HTTP stays unseen", golden_not_plain, case_not_plain, serve_echo, 3);
	check_served("a proxy's tunnel", golden_tunnel, case_tunnel, serve_echo, 2);
	check_served("a socket that is connected again", golden_connected_again, case_connected_again, serve_echo, 4);
	test_old_connection("a connection met in the middle", golden_in_the_middle, case_in_the_middle);
	test_old_connection("is given up after some looks", "exit 0 signal 0\n", case_given_up);
	test_inherited();
	test_partial();
}
