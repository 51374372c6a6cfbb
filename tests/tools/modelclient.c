/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * modelclient: a plain C client of a model API over TLS, made to be traced. Threads each make calls one after the other
 * on a connection of their own; every call prints a JSON line with the client's own stamps (CLOCK_BOOTTIME).
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"

#define THREADS_MAX 1024
#define ANSWER_MAX  (256u << 20)
#define HEADERS_MAX 32

enum dialect { DIALECT_ANTHROPIC, DIALECT_CHAT, DIALECT_RESPONSES, DIALECT_MIXED };
static const char *const dialect_names[] = {"anthropic", "chat", "responses", "mixed"};
static const char *const dialect_paths[] = {"/v1/messages", "/v1/chat/completions", "/v1/responses"};
/* What an event with generated content looks like in each dialect's stream. */
static const char *const token_marks[] = {"_delta\",\"", "\"delta\":{\"", ".delta\",\""};

struct settings {
	unsigned port, calls, threads;
	enum dialect dialect;
	bool plain, ex, unary, new_connections, wait, open_first, partial, quiet;
	size_t body_bytes, stop_after;
	double pause_ms;
	const char *ca, *knobs, *model, *prompt, *id;
	const char *headers[HEADERS_MAX];
	unsigned header_count;
};
static struct settings set = {
	.calls = 1, .threads = 1, .model = "test-model-1", .prompt = "hello", .knobs = "", .id = "call"};

struct conn {
	int fd;
	SSL *ssl; /* NULL: plain */
	uint16_t local_port;
	bool fresh;
};

/* One answer as it comes in: framing only, and how much of what was seen when. */
struct answer {
	struct buf head, body; /* body: chunk framing removed */
	int status;
	bool keep_alive, has_length, chunked, done;
	uint64_t length, left;
	enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER } chunk_state;
	char line[64];
	size_t line_len;
	uint64_t first_byte_ns, first_token_ns, end_ns;
	size_t scanned;
};

static SSL_CTX *tls;
static pthread_barrier_t opened, released;
static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint call_count;
static atomic_int failures;

/* --- connection -------------------------------------------------------------------------------------------------- */

static void conn_close(struct conn *c)
{
	if (c->ssl) {
		SSL_shutdown(c->ssl);
		SSL_free(c->ssl);
	}
	if (c->fd >= 0)
		close(c->fd);
	c->ssl = NULL;
	c->fd = -1;
}

static int tls_open(struct conn *c)
{
	c->ssl = SSL_new(tls);
	if (!c->ssl || SSL_set_fd(c->ssl, c->fd) != 1)
		return -1;
	SSL_set_tlsext_host_name(c->ssl, "localhost");
	return SSL_connect(c->ssl) == 1 ? 0 : -1;
}

/* Small socket buffers and no waiting in the kernel: most writes of a large body are then partial. */
static void make_partial(struct conn *c)
{
	int small = 4096;

	setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
	if (c->ssl)
		SSL_set_mode(c->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

static int conn_open(struct conn *c)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)set.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int one = 1;

	c->ssl = NULL;
	c->fresh = true;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return -1;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(c->fd, (struct sockaddr *)&at, sizeof(at)) || (!set.plain && tls_open(c)) ||
	    getsockname(c->fd, (struct sockaddr *)&at, &len)) {
		if (!set.plain)
			ERR_print_errors_fp(stderr);
		conn_close(c);
		return -1;
	}
	c->local_port = ntohs(at.sin_port);
	if (set.partial)
		make_partial(c);
	return 0;
}

static int write_once(struct conn *c, const char *ptr, size_t len)
{
	size_t done;
	int step = len > (1u << 30) ? 1 << 30 : (int)len;

	if (!c->ssl)
		return (int)send(c->fd, ptr, (size_t)step, MSG_NOSIGNAL);
	if (set.ex)
		return SSL_write_ex(c->ssl, ptr, (size_t)step, &done) ? (int)done : 0;
	return SSL_write(c->ssl, ptr, step);
}

static int read_once(struct conn *c, char *ptr, size_t len)
{
	size_t done;

	if (!c->ssl)
		return (int)recv(c->fd, ptr, len, 0);
	if (set.ex)
		return SSL_read_ex(c->ssl, ptr, len, &done) ? (int)done : 0;
	return SSL_read(c->ssl, ptr, (int)len);
}

/* After a call that returned n <= 0: 0 when it is worth another try, -1 when not. */
static int wait_ready(struct conn *c, int n, short events)
{
	struct pollfd p = {.fd = c->fd, .events = events};

	if (c->ssl) {
		int err = SSL_get_error(c->ssl, n);

		if (err != SSL_ERROR_WANT_READ && err != SSL_ERROR_WANT_WRITE)
			return -1;
		p.events = err == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		return -1;
	}
	return poll(&p, 1, 60000) > 0 ? 0 : -1;
}

static int conn_write(struct conn *c, const char *ptr, size_t len)
{
	while (len) {
		int n = write_once(c, ptr, len);

		if (n > 0) {
			ptr += n;
			len -= (size_t)n;
		} else if (wait_ready(c, n, POLLOUT)) {
			return -1;
		}
	}
	return 0;
}

/* --- request ----------------------------------------------------------------------------------------------------- */

static void push_body(struct buf *b, enum dialect d)
{
	const char *streaming = set.unary ? "false" : "true";
	size_t i;

	buf_printf(b, "{\"model\":\"%s\",\"stream\":%s,\"%s\":256,", set.model, streaming,
		   d == DIALECT_RESPONSES ? "max_output_tokens" : "max_tokens");
	if (d == DIALECT_CHAT && !set.unary)
		buf_puts(b, "\"stream_options\":{\"include_usage\":true},");
	if (d == DIALECT_ANTHROPIC)
		buf_puts(b, "\"system\":\"be brief\",");
	buf_printf(b, "\"%s\":[{\"role\":\"user\",\"content\":\"%s", d == DIALECT_RESPONSES ? "input" : "messages",
		   set.prompt);
	for (i = b->len; i < set.body_bytes; i++)
		buf_putc(b, (char)('a' + i % 26));
	buf_puts(b, "\"}]}");
}

static void push_request(struct buf *out, enum dialect d, unsigned number)
{
	struct buf body;
	unsigned i;

	buf_init(&body, 0);
	push_body(&body, d);
	buf_printf(out,
		   "POST /%s-%u%s%s%s HTTP/1.1\r\nhost: 127.0.0.1:%u\r\nuser-agent: modelclient\r\ncontent-type: "
		   "application/json\r\n"
		   "accept: */*\r\n",
		   set.id, number, dialect_paths[d], set.knobs[0] ? "?" : "", set.knobs, set.port);
	for (i = 0; i < set.header_count; i++)
		buf_printf(out, "%s\r\n", set.headers[i]);
	if (set.new_connections)
		buf_puts(out, "connection: close\r\n");
	buf_printf(out, "content-length: %zu\r\n\r\n", body.len);
	buf_push(out, body.ptr, body.len);
	buf_release(&body);
}

/* --- answer ------------------------------------------------------------------------------------------------------ */

static struct sv header_of(struct buf *head, const char *name)
{
	struct sv rest = {head->ptr, head->len};

	while (rest.ptr && rest.len) {
		struct sv value, line = sv_cut(rest, '\n', &rest), key = sv_cut(line, ':', &value);

		if (sv_ieq(key, sv_of(name)) && value.len)
			return sv_trim((struct sv){value.ptr, value.len - 1});
	}
	return SV_NONE;
}

static int parse_head(struct answer *a)
{
	struct sv length;
	size_t i;

	if (a->head.len < 16 || memcmp(a->head.ptr, "HTTP/1.1 ", 9))
		return -1;
	a->status = atoi(a->head.ptr + 9);
	if (a->status < 200) {
		buf_clear(&a->head);
		a->status = 0;
		return 0;
	}
	a->keep_alive = !sv_ieq(header_of(&a->head, "connection"), SV("close"));
	a->chunked = sv_ieq(header_of(&a->head, "transfer-encoding"), SV("chunked"));
	length = header_of(&a->head, "content-length");
	a->has_length = length.ptr != NULL;
	for (i = 0; i < length.len && isdigit((unsigned char)length.ptr[i]); i++)
		a->length = a->length * 10 + (uint64_t)(length.ptr[i] - '0');
	a->left = a->length;
	a->done = a->has_length && !a->length;
	return 0;
}

static int chunk_line(struct answer *a)
{
	unsigned long size;

	if (a->chunk_state == CHUNK_TRAILER) {
		a->done = !a->line_len;
		a->line_len = 0;
		return 0;
	}
	a->line[a->line_len] = '\0';
	size = strtoul(a->line, NULL, 16);
	a->line_len = 0;
	a->left = size;
	a->chunk_state = size ? CHUNK_DATA : CHUNK_TRAILER;
	return size > ANSWER_MAX ? -1 : 0;
}

/* One byte of framing. */
static int chunk_byte(struct answer *a, char c)
{
	if (a->chunk_state == CHUNK_END) {
		if (c == '\n')
			a->chunk_state = CHUNK_SIZE;
		return 0;
	}
	if (c == '\n')
		return chunk_line(a);
	if (c != '\r' && a->line_len + 1 < sizeof(a->line))
		a->line[a->line_len++] = c;
	return 0;
}

static size_t body_run(const struct answer *a, size_t len)
{
	if (a->chunked && a->chunk_state != CHUNK_DATA)
		return 0;
	return (a->chunked || a->has_length) && a->left < len ? (size_t)a->left : len;
}

static int push_answer(struct answer *a, const char *ptr, size_t len)
{
	while (len && !a->done) {
		size_t run;

		if (!a->status) {
			if (buf_putc(&a->head, *ptr++))
				return -1;
			len--;
			if (a->head.len > 4 && !memcmp(a->head.ptr + a->head.len - 4, "\r\n\r\n", 4) && parse_head(a))
				return -1;
			continue;
		}
		run = body_run(a, len);
		if (!run && chunk_byte(a, *ptr))
			return -1;
		if (run && buf_push(&a->body, ptr, run))
			return -1;
		a->left -= run && (a->chunked || a->has_length) ? run : 0;
		if (run && a->chunked && !a->left)
			a->chunk_state = CHUNK_END;
		if (run && a->has_length && !a->left)
			a->done = true;
		ptr += run ? run : 1;
		len -= run ? run : 1;
	}
	return 0;
}

/* The first token: the first event that has the dialect's mark and a text behind it that is not empty. */
static void look_for_token(struct answer *a, enum dialect d, uint64_t now)
{
	const char *mark = token_marks[d], *at, *end;

	while (!a->first_token_ns && a->scanned < a->body.len &&
	       (end = memmem(a->body.ptr + a->scanned, a->body.len - a->scanned, "\n\n", 2))) {
		size_t len = (size_t)(end - (a->body.ptr + a->scanned));

		at = memmem(a->body.ptr + a->scanned, len, mark, strlen(mark));
		if (at && !memmem(a->body.ptr + a->scanned, len, "\"\"", 2))
			a->first_token_ns = now;
		a->scanned += len + 2;
	}
}

static int read_answer(struct conn *c, struct answer *a, enum dialect d)
{
	char bytes[16384];

	while (!a->done) {
		int n = read_once(c, bytes, sizeof(bytes));
		uint64_t now = clock_boot_ns();

		if (n <= 0) {
			if (wait_ready(c, n, POLLIN) == 0)
				continue;
			a->end_ns = now;
			a->keep_alive = false;
			return a->status && !a->chunked && !a->has_length ? 0 : -1;
		}
		if (!a->first_byte_ns)
			a->first_byte_ns = now;
		if (push_answer(a, bytes, (size_t)n))
			return -1;
		look_for_token(a, d, now);
		a->end_ns = now;
		if (set.stop_after && a->body.len >= set.stop_after)
			return -1;
	}
	return 0;
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static void stamp_ms(struct json *j, const char *key, uint64_t ns, uint64_t start_ns)
{
	if (ns)
		json_double(j, key, (double)(ns - start_ns) / 1e6, 6);
	else
		json_null(j, key);
}

static void print_call(const struct answer *a, const struct conn *c, enum dialect d, unsigned number, unsigned thread,
		       uint64_t start_ns, bool ok)
{
	struct buf line;
	struct json j;

	if (set.quiet)
		return;
	buf_init(&line, 0);
	json_init(&j, &line);
	json_object(&j, NULL);
	json_uint(&j, "call", number);
	json_uint(&j, "thread", thread);
	json_string(&j, "dialect", sv_of(dialect_names[d]));
	json_bool(&j, "ok", ok);
	json_int(&j, "status", a->status);
	json_uint(&j, "port", c->local_port);
	json_bool(&j, "fresh", c->fresh);
	json_uint(&j, "body_bytes", a->body.len);
	json_uint(&j, "start_ns", start_ns);
	stamp_ms(&j, "first_byte_ms", a->first_byte_ns, start_ns);
	stamp_ms(&j, "first_token_ms", a->first_token_ns, start_ns);
	stamp_ms(&j, "end_ms", a->end_ns, start_ns);
	json_end_object(&j);
	buf_putc(&line, '\n');
	pthread_mutex_lock(&print_lock);
	fwrite(line.ptr, 1, line.len, stdout);
	fflush(stdout);
	pthread_mutex_unlock(&print_lock);
	buf_release(&line);
}

static int one_call(struct conn *c, unsigned thread)
{
	unsigned number = atomic_fetch_add(&call_count, 1);
	enum dialect d = set.dialect == DIALECT_MIXED ? (enum dialect)(number % 3) : set.dialect;
	struct answer a = {0};
	struct buf request;
	uint64_t start_ns;
	bool ok = false;

	buf_init(&request, 0);
	buf_init(&a.head, 64u << 10);
	buf_init(&a.body, ANSWER_MAX);
	push_request(&request, d, number);
	if (c->fd < 0 && conn_open(c)) {
		fprintf(stderr, "modelclient: cannot connect\n");
		atomic_fetch_add(&failures, 1);
		goto out;
	}
	start_ns = clock_boot_ns();
	ok = !conn_write(c, request.ptr, request.len) && !read_answer(c, &a, d);
	print_call(&a, c, d, number, thread, start_ns, ok);
	if (!ok)
		atomic_fetch_add(&failures, 1);
	c->fresh = false;
	if (!ok || !a.keep_alive || set.new_connections)
		conn_close(c);
out:
	buf_release(&request);
	buf_release(&a.head);
	buf_release(&a.body);
	return ok ? 0 : -1;
}

static void *run_thread(void *arg)
{
	unsigned thread = (unsigned)(uintptr_t)arg, i;
	struct conn c = {.fd = -1};

	if (set.open_first)
		one_call(&c, thread);
	if (set.wait || set.open_first) {
		pthread_barrier_wait(&opened);
		pthread_barrier_wait(&released);
	}
	for (i = 0; i < set.calls; i++) {
		one_call(&c, thread);
		if (set.pause_ms > 0)
			usleep((useconds_t)(set.pause_ms * 1000));
	}
	conn_close(&c);
	return NULL;
}

static void wait_for_line(void)
{
	char line[256];

	pthread_barrier_wait(&opened);
	printf("pid %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		_exit(3);
	pthread_barrier_wait(&released);
}

static int run(void)
{
	pthread_t threads[THREADS_MAX];
	unsigned i;

	pthread_barrier_init(&opened, NULL, set.threads + 1);
	pthread_barrier_init(&released, NULL, set.threads + 1);
	for (i = 0; i < set.threads; i++)
		if (pthread_create(&threads[i], NULL, run_thread, (void *)(uintptr_t)i)) {
			fprintf(stderr, "modelclient: cannot start thread %u\n", i);
			_exit(1);
		}
	if (set.wait || set.open_first)
		wait_for_line();
	for (i = 0; i < set.threads; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

/* --- start ------------------------------------------------------------------------------------------------------- */

static const char usage_text[] =
	"usage: modelclient --port N [OPTIONS]\n"
	"  --cacert FILE        trust this certificate (without: verify nothing)\n"
	"  --plain              no TLS\n"
	"  --ex                 SSL_read_ex and SSL_write_ex instead of SSL_read and SSL_write\n"
	"  --dialect NAME       anthropic, chat, responses, mixed\n"
	"  -n N                 calls a thread (1)\n"
	"  --threads N          threads, a connection each (1)\n"
	"  --new-connections    a connection a call\n"
	"  --unary              stream: false\n"
	"  --id WORD --model NAME --prompt TEXT --body-bytes N --knobs QUERY --header 'NAME: VALUE'\n"
	"  --wait               print \"pid N\" and wait for a line on stdin before the first connection\n"
	"  --open-first         the same, after a first call on each connection\n"
	"  --partial            non-blocking, small buffers, partial writes\n"
	"  --stop-after N       leave after N bytes of a body\n"
	"  --pause-ms N         wait after each call\n"
	"  --quiet              no call lines\n";

static int parse_flag(const char *arg)
{
	const struct {
		const char *name;
		bool *flag;
	} flags[] = {
		{"--plain", &set.plain},	   {"--ex", &set.ex},
		{"--unary", &set.unary},	   {"--wait", &set.wait},
		{"--open-first", &set.open_first}, {"--new-connections", &set.new_connections},
		{"--partial", &set.partial},	   {"--quiet", &set.quiet},
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(flags); i++)
		if (!strcmp(arg, flags[i].name)) {
			*flags[i].flag = true;
			return 0;
		}
	return -1;
}

static int parse_dialect(const char *value)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(dialect_names); i++)
		if (!strcmp(value, dialect_names[i])) {
			set.dialect = (enum dialect)i;
			return 0;
		}
	return -1;
}

static int parse_value(const char *arg, const char *value)
{
	if (!strcmp(arg, "--port"))
		set.port = (unsigned)atoi(value);
	else if (!strcmp(arg, "-n"))
		set.calls = (unsigned)atoi(value);
	else if (!strcmp(arg, "--threads"))
		set.threads = (unsigned)atoi(value);
	else if (!strcmp(arg, "--cacert"))
		set.ca = value;
	else if (!strcmp(arg, "--knobs"))
		set.knobs = value;
	else if (!strcmp(arg, "--model"))
		set.model = value;
	else if (!strcmp(arg, "--id"))
		set.id = value;
	else if (!strcmp(arg, "--prompt"))
		set.prompt = value;
	else if (!strcmp(arg, "--body-bytes"))
		set.body_bytes = (size_t)atoll(value);
	else if (!strcmp(arg, "--stop-after"))
		set.stop_after = (size_t)atoll(value);
	else if (!strcmp(arg, "--pause-ms"))
		set.pause_ms = atof(value);
	else if (!strcmp(arg, "--dialect"))
		return parse_dialect(value);
	else if (!strcmp(arg, "--header") && set.header_count < HEADERS_MAX)
		set.headers[set.header_count++] = value;
	else
		return -1;
	return 0;
}

static int parse_arguments(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (!parse_flag(argv[i]))
			continue;
		if (i + 1 >= argc || parse_value(argv[i], argv[i + 1]))
			return -1;
		i++;
	}
	return !set.port || set.port > 65535 || !set.threads || set.threads > THREADS_MAX ? -1 : 0;
}

/* For the live tests: what must not come out is in every call, as its prompt and as its credential. */
static void plant_secrets(void)
{
	static char header[128];
	const char *prompt = getenv("MODELCLIENT_PROMPT"), *credential = getenv("MODELCLIENT_CREDENTIAL");

	if (prompt)
		set.prompt = prompt;
	if (!credential)
		return;
	snprintf(header, sizeof(header), "authorization: Bearer %s", credential);
	set.headers[set.header_count++] = header;
}

int main(int argc, char **argv)
{
	plant_secrets();
	if (parse_arguments(argc, argv)) {
		fputs(usage_text, stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!set.plain) {
		tls = SSL_CTX_new(TLS_client_method());
		if (!tls || (set.ca && SSL_CTX_load_verify_locations(tls, set.ca, NULL) != 1)) {
			fprintf(stderr, "modelclient: cannot read %s\n", set.ca);
			return 1;
		}
		SSL_CTX_set_verify(tls, set.ca ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
	}
	run();
	return atomic_load(&failures) ? 1 : 0;
}
