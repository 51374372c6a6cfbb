/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* --truth FILE: what was really sent, a JSON line a request. */

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "server.h"

static const char *const stop_names[] = {"complete", "client_gone", "rst", "fin", "error"};
static int truth_fd = -1;
static pthread_mutex_t truth_lock = PTHREAD_MUTEX_INITIALIZER;

int truth_open(const char *path)
{
	truth_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	return truth_fd < 0 ? -1 : 0;
}

static void put_count(struct json *j, const char *key, int64_t n)
{
	if (n < 0)
		json_null(j, key);
	else
		json_int(j, key, n);
}

static void put_usage(struct json *j, const struct reply *r)
{
	struct truth_usage u = {-1, -1, -1, -1, -1, -1};

	if (!r->usage_sent) {
		json_null(j, "usage");
		return;
	}
	r->dialect->usage(r, &u);
	json_object(j, "usage");
	put_count(j, "input_uncached", u.input_uncached);
	put_count(j, "cache_read", u.cache_read);
	put_count(j, "cache_write", u.cache_write);
	put_count(j, "input_total", u.input_total);
	put_count(j, "output_total", r->final_usage_sent ? u.output_total : -1);
	put_count(j, "reasoning", r->final_usage_sent ? u.reasoning : -1);
	json_bool(j, "final", r->final_usage_sent);
	json_end_object(j);
}

static void put_stamp(struct json *j, const char *key, uint64_t ns)
{
	if (ns)
		json_uint(j, key, ns);
	else
		json_null(j, key);
}

static void put_times(struct json *j, const struct reply *r)
{
	struct timespec mono;
	size_t i;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	json_int(j, "mono_minus_boot_ns", mono.tv_sec * 1000000000ll + mono.tv_nsec - (int64_t)clock_boot_ns());
	put_stamp(j, "accept_ns", r->conn->accept_ns);
	put_stamp(j, "established_ns", r->conn->established_ns);
	put_stamp(j, "first_byte_ns", r->req->first_byte_ns);
	put_stamp(j, "complete_ns", r->req->complete_ns);
	put_stamp(j, "head_ns", r->head_ns);
	put_stamp(j, "first_token_ns", r->tokens ? r->tokens_ns[0] : 0);
	put_stamp(j, "last_token_ns", r->tokens ? r->tokens_ns[r->tokens - 1] : 0);
	put_stamp(j, "end_ns", r->end_ns);
	json_array(j, "tokens_ns");
	for (i = 0; i < r->tokens; i++)
		json_uint(j, NULL, r->tokens_ns[i]);
	json_end_array(j);
}

static void put_text(struct json *j, const char *key, const char *text)
{
	json_string(j, key, text && text[0] ? sv_of(text) : SV_NONE);
}

static void put_request(struct json *j, const struct reply *r)
{
	const struct request *q = r->req;

	put_text(j, "id", r->knobs->id);
	json_uint(j, "conn", r->conn->id);
	json_uint(j, "conn_seq", atomic_load(&r->conn->requests));
	json_uint(j, "peer_port", r->conn->peer_port);
	put_text(j, "protocol", r->via->protocol);
	json_string(j, "api", sv_of(q->dialect ? q->dialect->name : "none"));
	put_text(j, "method", q->method);
	put_text(j, "path", q->target);
	json_bool(j, "stream", q->stream);
	put_text(j, "request_model", q->request_model);
	json_int(j, "messages", q->messages);
	/* head and body; HTTP/2: HEADERS and DATA frames; WebSocket: see ws.c */
	json_uint(j, "request_bytes", q->head_len + q->carried);
}

/* Stamps are CLOCK_BOOTTIME; mono_minus_boot_ns added to one makes it CLOCK_MONOTONIC. */
void truth_write(struct reply *r)
{
	const struct request *q = r->req;
	struct buf line;
	struct json j;

	if (truth_fd < 0)
		return;
	buf_init(&line, 0);
	json_init(&j, &line);
	json_object(&j, NULL);
	json_uint(&j, "seq", r->sequence);
	put_request(&j, r);
	json_int(&j, "status", r->head_ns ? r->status : 0);
	put_text(&j, "model", q->refuse || r->status >= 400 ? NULL : r->model);
	put_text(&j, "stop_reason", r->stop_reason);
	put_text(&j, "error", r->error);
	json_string(&j, "outcome", sv_of(stop_names[r->stop]));
	put_text(&j, "kind", r->kind);
	json_uint(&j, "body_bytes", r->body_bytes);
	json_int(&j, "tools", (int64_t)(r->stop_reason ? r->knobs->tool : 0));
	put_usage(&j, r);
	json_string(&j, "text", (struct sv){r->text.len ? r->text.ptr : "", r->text.len});
	put_times(&j, r);
	json_end_object(&j);
	buf_putc(&line, '\n');
	pthread_mutex_lock(&truth_lock);
	if (write(truth_fd, line.ptr, line.len) < 0)
		perror("modelserver: truth");
	pthread_mutex_unlock(&truth_lock);
	buf_release(&line);
}
