/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HTTP/2 by nghttp2's session: ALPN, prior knowledge, or h2c's upgrade. The connection's thread reads; each stream has
 * a thread whose reply blocks. Session and descriptor are under one lock, which nobody holds while waiting.
 */

#include <errno.h>
#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "server.h"

#define IDLE_MS	    600000
#define STREAMS_MAX 512

struct h2 {
	struct conn *c;
	nghttp2_session *session;
	pthread_mutex_t lock;
	pthread_cond_t idle; /* the last thread ended */
	unsigned threads;
	struct buf out;
	bool dead;
	struct stream *streams; /* that have a thread */
	bool upgraded;		/* stream 1 was HTTP/1.1 */
};

struct stream {
	struct stream *next;
	struct h2 *h;
	int32_t id;
	struct request q;
	char path[8192];
	bool gone, eof, trailers_sent;
	pthread_cond_t changed;
	struct buf pending; /* body bytes that no frame has taken yet */
	uint64_t sent_ns;   /* when the last of them was taken */
};

static void init_cond(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

static struct stream *stream_new(struct h2 *h, int32_t id)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->h = h;
	s->id = id;
	init_cond(&s->changed);
	buf_init(&s->pending, 0);
	request_init(&s->q);
	return s;
}

static void stream_free(struct stream *s)
{
	pthread_cond_destroy(&s->changed);
	buf_release(&s->pending);
	request_release(&s->q);
	free(s);
}

static void set_gone(struct stream *s)
{
	s->gone = true;
	pthread_cond_broadcast(&s->changed);
}

/* Everything that the session has to say, in one write. The lock is held. */
static void flush(struct h2 *h)
{
	const uint8_t *bytes;
	ssize_t n;

	buf_clear(&h->out);
	while ((n = nghttp2_session_mem_send(h->session, &bytes)) > 0)
		buf_push(&h->out, bytes, (size_t)n);
	if (!h->dead && h->out.len && conn_write(h->c, h->out.ptr, h->out.len))
		h->dead = true;
}

/* --- the wire of replies ----------------------------------------------------------------------------------------- */

static ssize_t take_pending(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
			    nghttp2_data_source *source, void *arg)
{
	struct stream *s = nghttp2_session_get_stream_user_data(session, id);
	nghttp2_nv trailer = {(uint8_t *)(uintptr_t) "x-checksum", (uint8_t *)(uintptr_t) "none", 10, 4, 0};
	size_t n;

	(void)source, (void)arg;
	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	n = s->pending.len < room ? s->pending.len : room;
	if (!n && !s->eof)
		return NGHTTP2_ERR_DEFERRED;
	if (n) {
		memcpy(to, s->pending.ptr, n);
		buf_drop_front(&s->pending, n);
		s->sent_ns = clock_boot_ns();
	}
	if (!s->pending.len && s->eof) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (s->q.knobs.trailers > 0 && !s->trailers_sent) {
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			nghttp2_submit_trailer(session, id, &trailer, 1);
			s->trailers_sent = true;
		}
	}
	if (!s->pending.len)
		pthread_cond_broadcast(&s->changed);
	return (ssize_t)n;
}

static void add(nghttp2_nv *nv, size_t *n, const char *name, const char *value)
{
	nv[(*n)++] = (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
				  NGHTTP2_NV_FLAG_NONE};
}

static void submit_interim(struct stream *s)
{
	nghttp2_nv nv[2];
	size_t n = 0;
	int i;

	add(nv, &n, ":status", "103");
	add(nv, &n, "link", "</style.css>; rel=preload");
	for (i = 0; i < s->q.knobs.interim && i < 100; i++)
		nghttp2_submit_headers(s->h->session, NGHTTP2_FLAG_NONE, s->id, NULL, nv, n, NULL);
}

static int send_head(struct reply *r, const char *type, ssize_t length)
{
	nghttp2_data_provider body = {.read_callback = take_pending};
	char status[8], id[32], size[32], retry[32];
	struct stream *s = r->wire_data;
	nghttp2_nv nv[8];
	size_t n = 0;
	int err;

	snprintf(status, sizeof(status), "%d", r->status);
	snprintf(id, sizeof(id), "req_%06u", r->sequence);
	snprintf(size, sizeof(size), "%zd", length);
	snprintf(retry, sizeof(retry), "%.0f", r->knobs->retry_after);
	add(nv, &n, ":status", status);
	add(nv, &n, "content-type", type);
	add(nv, &n, "request-id", id);
	if (r->knobs->retry_after >= 0)
		add(nv, &n, "retry-after", retry);
	if (r->coding.count)
		add(nv, &n, "content-encoding", r->coding.name);
	if (length >= 0)
		add(nv, &n, "content-length", size);
	pthread_mutex_lock(&s->h->lock);
	if (!s->gone) {
		submit_interim(s);
		nghttp2_submit_response(s->h->session, s->id, nv, n, &body);
		flush(s->h);
		if (r->knobs->goaway > 0)
			nghttp2_submit_goaway(s->h->session, NGHTTP2_FLAG_NONE,
					      nghttp2_session_get_last_proc_stream_id(s->h->session), NGHTTP2_NO_ERROR,
					      NULL, 0);
		flush(s->h);
	}
	err = s->gone ? -1 : 0;
	pthread_mutex_unlock(&s->h->lock);
	return err;
}

static void push_bytes(struct reply *r, const char *ptr, size_t len)
{
	buf_push(&r->wire, ptr, len);
}

static int write_some(struct reply *r, const char *ptr, size_t len, uint64_t *at_ns)
{
	struct stream *s = r->wire_data;
	int err;

	pthread_mutex_lock(&s->h->lock);
	if (!s->gone) {
		buf_push(&s->pending, ptr, len);
		nghttp2_session_resume_data(s->h->session, s->id);
		flush(s->h);
		while (s->pending.len && !s->gone)
			pthread_cond_wait(&s->changed, &s->h->lock);
	}
	*at_ns = s->sent_ns;
	err = s->gone ? -1 : 0;
	pthread_mutex_unlock(&s->h->lock);
	return err;
}

static int wait_some(struct reply *r, double ms)
{
	struct stream *s = r->wire_data;
	struct timespec until;
	int64_t ns;
	bool gone;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns = until.tv_nsec + (int64_t)(ms * 1e6);
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	pthread_mutex_lock(&s->h->lock);
	while (!s->gone)
		if (pthread_cond_timedwait(&s->changed, &s->h->lock, &until) == ETIMEDOUT)
			break;
	gone = s->gone;
	pthread_mutex_unlock(&s->h->lock);
	return gone ? -1 : 0;
}

static int send_end(struct reply *r)
{
	struct stream *s = r->wire_data;

	pthread_mutex_lock(&s->h->lock);
	if (!s->gone) {
		s->eof = true;
		nghttp2_session_resume_data(s->h->session, s->id);
		flush(s->h);
	}
	pthread_mutex_unlock(&s->h->lock);
	return 0;
}

static const struct wire http2_wire = {
	.protocol = "http/2",
	.head = send_head,
	.frame = push_bytes,
	.write = write_some,
	.wait = wait_some,
	.end = send_end,
};

/* --- streams ----------------------------------------------------------------------------------------------------- */

static void end_stream(struct stream *s, enum stop stop)
{
	struct h2 *h = s->h;
	struct stream **at;

	pthread_mutex_lock(&h->lock);
	if (!s->gone && stop == STOP_RST)
		nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
	if (!s->gone && stop == STOP_FIN) {
		s->eof = true;
		nghttp2_session_resume_data(h->session, s->id);
	}
	flush(h);
	nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
	for (at = &h->streams; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	if (!--h->threads)
		pthread_cond_broadcast(&h->idle);
	pthread_mutex_unlock(&h->lock);
	stream_free(s);
}

static void *serve_stream(void *arg)
{
	struct stream *s = arg;
	enum stop stop;

	request_parse(&s->q);
	if (!s->h->upgraded || s->id != 1)
		s->q.carried = 0; /* head_len is of the frames */
	reply_serve(s->h->c, &s->q, &http2_wire, s, &stop);
	end_stream(s, stop);
	return NULL;
}

static void start_stream(struct h2 *h, struct stream *s)
{
	pthread_attr_t attr;
	pthread_t thread;

	s->q.complete_ns = h->c->read_ns;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 << 10);
	s->next = h->streams;
	h->streams = s;
	h->threads++;
	if (pthread_create(&thread, &attr, serve_stream, s)) {
		h->streams = s->next;
		h->threads--;
		nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
		nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_REFUSED_STREAM);
		stream_free(s);
	}
	pthread_attr_destroy(&attr);
}

/* --- what comes in ----------------------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2 *h = arg;
	struct stream *s;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	s = stream_new(h, frame->hd.stream_id);
	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	s->q.first_byte_ns = h->c->read_ns;
	nghttp2_session_set_stream_user_data(session, s->id, s);
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
		     const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
	struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct sv n = {(const char *)name, name_len}, v = {(const char *)value, value_len};

	(void)flags, (void)arg;
	if (!s || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (sv_eq(n, SV(":method")) && v.len < sizeof(s->q.method))
		memcpy(s->q.method, v.ptr, v.len);
	else if (sv_eq(n, SV(":path")) && v.len < sizeof(s->path))
		memcpy(s->path, v.ptr, v.len);
	else if (n.len && n.ptr[0] != ':')
		request_header(&s->q, n, v);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *arg)
{
	struct stream *s = nghttp2_session_get_stream_user_data(session, id);

	(void)flags, (void)arg;
	if (s && buf_push(&s->q.body, bytes, len))
		request_refuse(&s->q, 413, "body too large");
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	char method[16];

	if (!s || s->gone)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)
		s->q.head_len += 9 + frame->hd.length;
	if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
		memcpy(method, s->q.method, sizeof(method));
		request_set_target(&s->q, sv_of(method), sv_of(s->path));
		if (s->q.expect)
			nghttp2_submit_headers(
				session, NGHTTP2_FLAG_NONE, s->id, NULL,
				&(nghttp2_nv){(uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t) "100", 7, 3, 0},
				1, NULL);
	}
	if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		start_stream(arg, s);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t why, void *arg)
{
	struct stream *s = nghttp2_session_get_stream_user_data(session, id), *started;
	struct h2 *h = arg;

	(void)why;
	if (!s)
		return 0;
	for (started = h->streams; started && started != s; started = started->next)
		;
	if (started)
		set_gone(s);
	else
		stream_free(s);
	nghttp2_session_set_stream_user_data(session, id, NULL);
	return 0;
}

static ssize_t pad(nghttp2_session *session, const nghttp2_frame *frame, size_t max, void *arg)
{
	struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	size_t want = frame->hd.length + (s && s->q.knobs.padding > 0 ? (size_t)s->q.knobs.padding % 256 : 0);

	(void)arg;
	return (ssize_t)(want < max ? want : max);
}

/* --- the connection ---------------------------------------------------------------------------------------------- */

static int start_session(struct h2 *h)
{
	nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
					     {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20}};
	nghttp2_session_callbacks *calls;
	int err;

	if (nghttp2_session_callbacks_new(&calls))
		return -1;
	nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
	nghttp2_session_callbacks_set_select_padding_callback(calls, pad);
	err = nghttp2_session_server_new(&h->session, calls, h);
	nghttp2_session_callbacks_del(calls);
	if (err)
		return -1;
	nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, 2);
	nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, 16 << 20);
	return 0;
}

/* The request that asked for h2c becomes stream 1. */
static int start_upgraded(struct h2 *h, struct request *q)
{
	static const char switching[] =
		"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n";
	unsigned char settings[sizeof(q->h2c_settings)];
	size_t i, len = strlen(q->h2c_settings), missing = (4 - len % 4) % 4;
	struct stream *s = stream_new(h, 1);
	int n;

	for (i = 0; i < len; i++)
		q->h2c_settings[i] = q->h2c_settings[i] == '-'	 ? '+'
				     : q->h2c_settings[i] == '_' ? '/'
								 : q->h2c_settings[i];
	if (!s || len + missing >= sizeof(q->h2c_settings))
		return -1;
	memcpy(q->h2c_settings + len, "===", missing);
	q->h2c_settings[len + missing] = '\0';
	n = EVP_DecodeBlock(settings, (unsigned char *)q->h2c_settings, (int)(len + missing));
	if (n < 0 || nghttp2_session_upgrade2(h->session, settings, (size_t)n - missing, 0, s) ||
	    conn_write(h->c, switching, sizeof(switching) - 1)) {
		stream_free(s);
		return -1;
	}
	nghttp2_session_set_stream_user_data(h->session, 1, s); /* a server's upgrade does not */
	request_release(&s->q);
	s->q = *q;
	request_init(q); /* moved */
	h->upgraded = true;
	start_stream(h, s);
	return 0;
}

/* What can be read without waiting. False: the connection is over. */
static bool take_input(struct h2 *h)
{
	struct conn *c = h->c;
	int n = 1;

	while (n > 0 || c->in.len) {
		ssize_t used = c->in.len ? nghttp2_session_mem_recv(h->session, (uint8_t *)c->in.ptr, c->in.len) : 0;

		if (used < 0)
			return false;
		buf_drop_front(&c->in, (size_t)used);
		n = conn_read(c);
	}
	return n == -EAGAIN;
}

static void run(struct h2 *h)
{
	struct pollfd p = {.fd = h->c->fd, .events = POLLIN};
	bool more;

	do {
		pthread_mutex_lock(&h->lock);
		more = take_input(h);
		flush(h);
		more = more && !h->dead &&
		       (nghttp2_session_want_read(h->session) || nghttp2_session_want_write(h->session));
		pthread_mutex_unlock(&h->lock);
	} while (more && poll(&p, 1, IDLE_MS) > 0);
}

static void end_connection(struct h2 *h)
{
	struct stream *s;

	pthread_mutex_lock(&h->lock);
	h->dead = true;
	for (s = h->streams; s; s = s->next)
		set_gone(s);
	while (h->threads)
		pthread_cond_wait(&h->idle, &h->lock);
	pthread_mutex_unlock(&h->lock);
	if (h->c->ssl)
		SSL_shutdown(h->c->ssl);
}

int http2_begins(struct conn *c)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	const unsigned char *alpn = NULL;
	unsigned len = 0;

	if (c->ssl) {
		SSL_get0_alpn_selected(c->ssl, &alpn, &len);
		return len == 2 && !memcmp(alpn, "h2", 2);
	}
	for (;;) {
		size_t n = c->in.len < sizeof(preface) - 1 ? c->in.len : sizeof(preface) - 1;

		if (n && memcmp(c->in.ptr, preface, n))
			return 0;
		if (n == sizeof(preface) - 1)
			return 1;
		if (conn_read(c) <= 0)
			return -1;
	}
}

void http2_serve(struct conn *c, struct request *upgraded)
{
	struct h2 h = {.c = c};

	pthread_mutex_init(&h.lock, NULL);
	pthread_cond_init(&h.idle, NULL);
	buf_init(&h.out, 0);
	fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
	if (!start_session(&h)) {
		pthread_mutex_lock(&h.lock);
		h.dead = upgraded && start_upgraded(&h, upgraded);
		flush(&h);
		pthread_mutex_unlock(&h.lock);
		run(&h);
		end_connection(&h);
		nghttp2_session_del(h.session);
	}
	fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) & ~O_NONBLOCK);
	buf_release(&h.out);
	pthread_cond_destroy(&h.idle);
	pthread_mutex_destroy(&h.lock);
}
