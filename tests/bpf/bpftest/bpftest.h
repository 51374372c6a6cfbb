/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BPFTEST_H
#define BPFTEST_H

/*
 * What the parts of bpftest share: a child that calls probed functions (targets.c) and sockets (peer.c) is run
 * (child.c), and its records, as text (records.c), are held against a golden one. All else are tests, a file a subject;
 * main.c says in which order.
 */

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/probes.h"
#include "bpf/event.h"

#define PAGE 4096
#define BIG  (2u << 20)

/* --- targets.c: what the probed functions do ---------------------------------------------------------------------- */

/* Of the thread's next call. */
extern __thread struct script {
	int ret;
	size_t out;
	void (*inside)(void); /* called before it returns, once */
} script;

/* Does what `script` says; returns its ret. *out, if there is one, is its out. */
int perform(size_t *out);

int fake_read(void *obj, void *buf, int n);
int fake_read_ex(void *obj, void *buf, size_t n, size_t *out);
int fake_write(void *obj, const void *buf, int n);
int fake_write_ex(void *obj, const void *buf, size_t n, size_t *out);
int fake_write_ex2(void *obj, const void *buf, size_t n, unsigned long flags, size_t *out);
int fake_write_all(void *obj, const void *buf, int n);
int fake_peek(void *obj, void *buf, int n);
int fake_handshake(void *obj);
int fake_handshake_zero(void *obj);
void *fake_new(void *result);
void fake_free(void *obj);
int fake_seal(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len, const void *in,
	      size_t in_len, const void *ad, size_t ad_len);
int fake_open(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len, const void *in,
	      size_t in_len, const void *ad, size_t ad_len);

/* Calls with a scripted result. */
int do_read(void *obj, void *buf, int ret);
void do_read_ex(void *obj, void *buf, int ret, size_t out);
int do_write(void *obj, const void *buf, int ret);
void do_write_ex(void *obj, const void *buf, int ret, size_t out);
void do_handshake(void *obj, int ret);

/* Objects, and bytes whose value follows from their place. */
extern char objects[4][16];
#define A (&objects[0])
#define B (&objects[1])
#define C (&objects[2])
extern uint8_t *big;	/* BIG bytes of the pattern; free() */
extern char text[4096]; /* the alphabet, again and again */
uint8_t pattern(uint64_t at);
void make_bytes(void);

/* --- attach.c ----------------------------------------------------------------------------------------------------- */

/* `probes`, of this configuration, with all of the functions above and of go.c probed. False: says why. */
bool open_probes(const struct probes_config *config);
void add_probe(struct tls_find *found, uint32_t role, uint32_t abi, void *function);
int attach_go(void); /* go.c. 0 or -errno */

/* --- records.c: records as text ----------------------------------------------------------------------------------- */

extern char *got; /* a line a record; free() */
extern size_t got_len;
extern pid_t child_pid;
extern uint64_t data_bytes;
extern bool quiet_data;		/* bytes are added up, and that is all */
extern bool note_gone;		/* of grandchildren: their parent is told beside other things, in any order */
extern bool note_wires;		/* what TCP alone tells of TLS, at its end */
extern const uint8_t *expected; /* what a stream holds; NULL: the pattern */
extern void (*on_data_hook)(const struct ev_data *d);

__attribute__((format(printf, 1, 2))) void note(const char *fmt, ...);
void on_record(void *ctx, const void *bytes, size_t len); /* probes_config's */
void forget_records(void);
void forget_generations(void);

/* --- child.c: running one, and what came of it -------------------------------------------------------------------- */

extern const char *flavour; /* of the probes, for the names of tests */
extern struct probes *probes;
extern bool consume_while_running;    /* the child */
extern void (*after_consuming)(void); /* while it runs; may be NULL */
extern bool woken_before_reading;     /* whether the last run_child() had been woken by its ring */

bool reader_is_woken(void);

/* fn in a new process, as a target or not; its records are in `got` afterwards. */
void run_child(void (*fn)(void), bool target);

/* A target that rests once; at return it does. */
void start_child(void (*fn)(void));
/* Of a child of start_child(): what it did so far is looked at. */
void rest(void);
void end_child(void);

void *shared_page(void); /* with children */

/* Speak TAP. */
void verdict(bool ok, const char *name);
void print_lines(const char *title, const char *lines);
int print_plan(void); /* 1 if a test failed */

/* `got` is `golden`. */
void expect(const char *name, const char *golden);
/* That of a child which is a target. */
void check(const char *name, const char *golden, void (*fn)(void));
/* The same while serve(n) runs in an untraced process. */
void check_served(const char *name, const char *golden, void (*fn)(void), void (*serve)(unsigned), unsigned n);
/* The same as check(), and the counter has grown by `add`. */
void test_stats(const char *name, void (*fn)(void), const char *golden, enum ev_stat id, uint64_t add);
/* What its end does to the sockets of a target is not the next test's. */
void end_server(pid_t server);

uint64_t stat_of(enum ev_stat id);
unsigned count_of(const char *line); /* in `got` */
/* Entries of our own map of this name: other tracers may run on this machine. */
unsigned entries_of(const char *map);

/* --- peer.c: sockets, and the untraced process at their other end ------------------------------------------------- */

extern int listener;
extern uint16_t port;

void listen_somewhere(void);		 /* anew: nothing waits there from servers that were ended */
int connect_to(uint16_t to);		 /* on this machine; -1 */
void connect_again(int fd, uint16_t to); /* the same socket, after its connection was given up */
/* The other end answers the closing in its own time, in a softirq: later records shall not overtake that. */
void close_and_settle(int fd);

void serve_echo(unsigned connections);
void serve_nothing(unsigned connections); /* nobody reads */

/* What is not moved as it should be ends the child. */
void need(ssize_t got_bytes, ssize_t want);
void send_bytes(int fd, size_t len);
void recv_bytes(int fd, size_t len);

/* For script.inside. */
extern int inside_fd;
void send_inside(void);
void recv_inside(void);

#define IOV(text_at, n) ((struct iovec){.iov_base = (char *)(uintptr_t)(text_at), .iov_len = (n)})
#define PEER		" 127.0.0.1:L>127.0.0.1:R\n"
#define PLAIN_OPEN	"sock connected" PEER "open x1 fresh plain\nitself x1 tx wire=0 plain=0" PEER
#define PLAIN_CLOSE	"sock close-local" PEER "sock closed" PEER

/* --- the tests ---------------------------------------------------------------------------------------------------- */

/* From cipher_tests() on they need listen_somewhere(). */
void data_tests(void);
void limit_tests(void);
void connection_tests(void);
void process_tests(void);
void cipher_tests(void);
void go_tests(void);
void socket_tests(void);
void plain_tests(void);
void unix_tests(void);
void stdio_tests(void);
void ignored_tests(void);
void libssl_tests(void);

/* Of probes that are opened in another way: with a small ring, to follow every exec, for all HTTP, without storage for
 * threads. */
void ring_tests(void);
void follow_exec_tests(void);
void limit_tests_with_http(void);
void data_tests_unstored(void);
void process_tests_unstored(void);
void cipher_tests_unstored(void);
void socket_tests_unstored(void);

/* What several of them try. */
void check_lengths(const char *name); /* data.c */
/* connections.c: state of closed connections goes 1 s later, of ended processes at once. fn leaves `with` of them when
 * it rests. */
void test_reclaim(const char *name, void (*fn)(void), unsigned with);

/* stdio.c: the program that a child runs, `bpftest serve-stdio`: a server that a shell could be. */
int serve_stdio(void);

#endif
