/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goroutines, by functions that keep to Go's register ABI: on x86-64, elsewhere there is nothing to try. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpftest.h"

#ifdef __x86_64__
/*
 * Functions by Go's register ABI: receiver in rax, slice in rbx and rcx, g in r14, n in rax at the one RET. The body is
 * go_body(), whose result in rdx is how far it has moved the stack. When rdi is 1 the function begins twice, as when
 * the runtime had to make room first.
 */
#define GO_FUNCTION(name)                                                                                              \
	__asm__(".text\n.globl " name "\n.globl " name "_ret\n.type " name ", @function\n" name ":\n"                  \
		"	nop\n	test %rdi, %rdi\n	jz 1f\n	xor %edi, %edi\n	jmp " name "\n"                \
		"1:	push %rbp\n	mov %rsp, %rbp\n	push %r14\n	and $-16, %rsp\n	call "                                   \
		"go_body\n"                                                                                            \
		"	add %rdx, %rsp\n	add %rdx, %rbp\n	mov -8(%rbp), %r14\n	mov %rbp, "                                   \
		"%rsp\n	pop %rbp\n" name "_ret:	ret\n")
GO_FUNCTION("fake_go_read");
GO_FUNCTION("fake_go_write");
/* A write whose body is a send(go_fd, slice). */
__asm__(".globl fake_go_send\n.globl fake_go_send_ret\nfake_go_send:\n	nop\n	mov go_fd(%rip), %edi\n"
	"	mov %rbx, %rsi\n	mov %rcx, %rdx\n	xor %r10d, %r10d\n	xor %r8d, %r8d\n	xor "
	"%r9d, %r9d\n"
	"	mov $44, %eax\n	syscall\nfake_go_send_ret:	ret\n");
void fake_go_read(void);
void fake_go_write(void);
void fake_go_send(void);
void fake_go_read_ret(void);
void fake_go_write_ret(void);
void fake_go_send_ret(void);

struct go_result {
	long n, moved;
} go_body(void);
int go_fd;

/* A goroutine: the runtime's g begins with the ends of its stack. */
struct goroutine {
	uint64_t lo, hi;
	uint8_t stack[2][16384] __attribute__((aligned(16)));
	unsigned at; /* which of them */
};
static struct goroutine gs[2];
static struct goroutine *go_moves; /* its stack moves within the next body */

static void go_begin(struct goroutine *g)
{
	g->at = 0;
	g->lo = (uintptr_t)g->stack[0];
	g->hi = g->lo + sizeof(g->stack[0]);
}

/* As the runtime does: everything keeps its distance from the end. */
static long go_move(struct goroutine *g)
{
	uint64_t hi = g->hi;

	memcpy(g->stack[!g->at], g->stack[g->at], sizeof(g->stack[0]));
	memset(g->stack[g->at], 'Z', sizeof(g->stack[0]) / 2); /* below are the frames that still run here */
	g->at = !g->at;
	g->lo = (uintptr_t)g->stack[g->at];
	g->hi = g->lo + sizeof(g->stack[0]);
	return (long)(g->hi - hi);
}

struct go_result go_body(void)
{
	struct goroutine *g = go_moves;
	long n = perform(NULL);

	go_moves = NULL;
	return (struct go_result){n, g ? go_move(g) : 0};
}

/* On the goroutine's stack; `used` bytes of it are above the call. */
static long go_call(void (*fn)(void), struct goroutine *g, void *obj, const void *buf, size_t len, size_t used,
		    bool twice)
{
	register struct goroutine *r14 __asm__("r14") = g;
	long n = (long)(uintptr_t)obj;
	uint64_t sp = g->hi - used;
	long again = twice;

	__asm__ volatile("mov %%rsp, %%r12\n\tmov %[sp], %%rsp\n\tcall *%[fn]\n\tmov %%r12, %%rsp"
			 : "+a"(n), "+b"(buf), "+c"(len), "+D"(again)
			 : [fn] "r"(fn), [sp] "r"(sp), "r"(r14)
			 : "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
	return n;
}

static void go_read(struct goroutine *g, void *obj, void *buf, long n)
{
	script.ret = (int)n;
	go_call(fake_go_read, g, obj, buf, 4096, 4096, false);
}

static void write_of_other(void)
{
	script.ret = 3;
	go_call(fake_go_write, &gs[1], B, text + 3, 3, 4096, false);
}

static void read_of_inner(void)
{
	script.ret = 2;
	go_call(fake_go_read, &gs[0], B, text + 10, 100, 8192, false);
}

static char overwritten[200];

static void overwrite_begin(void)
{
	memset(overwritten, 'x', 5);
}

static void overwrite_end(void)
{
	memset(overwritten + sizeof(overwritten) - 5, 'x', 5);
}

static void go_write(void (*inside)(void), void *buf, size_t len)
{
	script.ret = (int)len;
	script.inside = inside;
	go_call(fake_go_write, &gs[0], A, buf, len, 4096, false);
}

/* The collector gives a buffer to somebody else before the write returns. */
static void case_overwritten(void)
{
	go_begin(&gs[0]);
	memset(overwritten, 'a', sizeof(overwritten));
	go_write(NULL, overwritten, 5);
	go_write(overwrite_begin, overwritten, 8);
	go_write(NULL, overwritten, 6);
	go_write(overwrite_begin, overwritten, 6); /* the same bytes as before */
	go_write(overwrite_end, overwritten, sizeof(overwritten));
	go_write(NULL, overwritten + 3, 4);
}

static const char golden_overwritten[] = "open A1\n"
					 "data A1 tx 0+5 'aaaaa'\n"
					 "data A1 tx 5+0/8 fault\n"
					 "data A1 tx 13+6 'xxxxxa'\n"
					 "data A1 tx 19+6 'xxxxxa'\n"
					 "data A1 tx 25+0/200 fault\n"
					 "data A1 tx 225+4 'xxaa'\n"
					 "exit 0 signal 0\n";

static void case_goroutines(void)
{
	go_begin(&gs[0]);
	go_begin(&gs[1]);
	go_read(&gs[0], A, text, 5);
	go_read(&gs[0], A, text, -1);
	go_read(&gs[0], A, text, 0);
	script.ret = 7;
	go_call(fake_go_write, &gs[0], A, text, 7, 4096, true); /* begins twice */
	/* The stack moves during the call; a buffer on it moves along, one on the heap does not. */
	memcpy((void *)(uintptr_t)(gs[0].hi - 2048), "on the stack", 12);
	go_moves = &gs[0];
	go_read(&gs[0], A, (void *)(uintptr_t)(gs[0].hi - 2048), 12);
	go_moves = &gs[0];
	go_read(&gs[0], A, text, 3);
	/* Another goroutine on the same thread, and TLS inside TLS on the same goroutine. */
	script.inside = write_of_other;
	go_read(&gs[0], A, text, 4);
	script.inside = read_of_inner;
	go_read(&gs[0], A, text, 5);
}

static void leave(void)
{
	_exit(0);
}

/* As goroutines that wait for an answer do when their process ends. */
static void case_goroutine_left(void)
{
	go_begin(&gs[0]);
	script.inside = leave;
	go_read(&gs[0], A, text, 1);
}

static const char golden_goroutines[] = "open A1\n"
					"data A1 rx 0+5 'abcde'\n"
					"data A1 tx 0+7 'abcdefg'\n"
					"data A1 rx 5+12 'on the stack'\n"
					"data A1 rx 17+3 'abc'\n"
					"open B2\n"
					"data B2 tx 0+3 'def'\n"
					"data A1 rx 20+4 'abcd'\n"
					"data B2 rx 0+2 'kl'\n"
					"data A1 rx 24+5 'abcde'\n"
					"exit 0 signal 0\n";

static void case_go_sockets(void)
{
	char buf[64];

	go_begin(&gs[0]);
	go_fd = connect_to(port);
	if (send(go_fd, "hello", 5, 0) != 5 ||
	    recv(go_fd, buf, 5, MSG_WAITALL) != 5) /* a handshake that no probe sees */
		_exit(97);
	go_call(fake_go_send, &gs[0], A, text, 6, 4096, false);
	recv_bytes(go_fd, 6);
	close_and_settle(go_fd);
	/* The collector gave the memory to another connection. */
	go_fd = connect_to(port);
	go_call(fake_go_send, &gs[0], A, text, 2, 4096, false);
	recv_bytes(go_fd, 2);
	close_and_settle(go_fd);
}

static const char golden_go_sockets[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					"open A1 fresh\n"
					"handshake A1 approx\n"
					"inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
					"data A1 tx 0+6 'abcdef'\n"
					"sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					"sock closed 127.0.0.1:L>127.0.0.1:R\n"
					"sock connected 127.0.0.1:L>127.0.0.1:R\n"
					"open A2 fresh\n"
					"inside A2 tx wire=2 plain=0 127.0.0.1:L>127.0.0.1:R\n"
					"data A2 tx 0+2 'ab'\n"
					"sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					"sock closed 127.0.0.1:L>127.0.0.1:R\n"
					"exit 0 signal 0\n";

static void test_goroutine_left(void)
{
	uint64_t now_ns = clock_boot_ns();
	unsigned before = entries_of("go_calls"), left;

	run_child(case_goroutine_left, true);
	left = entries_of("go_calls");
	probes_tick(probes, now_ns + 60 * 1000000000ull);
	probes_tick(probes, now_ns + 120 * 1000000000ull);
	verdict(before == 0 && left == 1 && entries_of("go_calls") == 0, "goroutines end with their process");
}

int attach_go(void)
{
	struct tls_find go = {.stack = "go"};
	struct elf e = {.fd = -1, .dev = 1, .ino = 2};

	add_probe(&go, TLS_ROLE_READ, TLS_ABI_GO_ENTRY, fake_go_read);
	add_probe(&go, TLS_ROLE_READ, TLS_ABI_GO_RETURN, fake_go_read_ret);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_ENTRY, fake_go_write);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_RETURN, fake_go_write_ret);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_ENTRY, fake_go_send);
	add_probe(&go, TLS_ROLE_WRITE, TLS_ABI_GO_RETURN, fake_go_send_ret);
	return probes_attach_file(probes, "/proc/self/exe", "go", &e, &go);
}

void go_tests(void)
{
	check("goroutines: stacks that move, other goroutines, TLS in TLS", golden_goroutines, case_goroutines);
	test_stats("goroutines: a buffer that is another one's when the write returns", case_overwritten,
		   golden_overwritten, ST_FAULT, 2);
	test_goroutine_left();
	check_served("goroutines: their sockets", golden_go_sockets, case_go_sockets, serve_echo, 2);
}
#else
int attach_go(void)
{
	return 0;
}

void go_tests(void)
{
}
#endif
