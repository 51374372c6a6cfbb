/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An HTTP exchange as a span. */
#include "span_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void put_request(struct json *j, const struct http_operation *o)
{
	span_put_text(j, "side", o->server ? "server" : "client", 16);
	span_put_text(j, "method", o->method, 32);
	span_put_text(j, "path", o->path, 512);
	span_put_text(j, "route", o->route, 256);
	span_put_text(j, "operation", o->label, 64);
	span_put_text(j, "protocol", o->protocol, 16);
	span_put_text(j, "host", o->host, 256);
	span_put_peer(j, &o->peer);
}

static void put_response(struct json *j, const struct http_operation *o)
{
	if (o->status > 0)
		json_int(j, "status", o->status);
	if (!o->mid_attach && known(o->ttfb_ns) && o->ttfb_ns >= o->start_ns)
		span_put_number(j, "ttfb_ms", (double)(o->ttfb_ns - o->start_ns) / 1e6, 3);
	span_put_count(j, "request_bytes", o->request_bytes);
	span_put_count(j, "response_bytes", o->response_bytes);
	span_put_text(j, "end_reason", end_reason_name(o->end), 32);
	span_put_true(j, "evicted", o->end == END_EVICTED);
	span_put_true(j, "unfinished", o->unfinished);
	span_put_true(j, "mid_attach", o->mid_attach);
	span_put_true(j, "lossy", o->lossy);
}

static int http_args(struct span *out, const struct http_operation *o)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	put_request(&j, o);
	put_response(&j, o);
	json_uint(&j, "http_id", o->id);
	json_uint(&j, "connection_id", o->conn_id);
	if (o->tid)
		json_uint(&j, "os_tid", o->tid);
	if (o->response_tid)
		json_uint(&j, "response_tid", o->response_tid);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

/* "GET /users/:id", and what the request says that it does. A shape has only printable ASCII. */
static char *http_name(const struct http_operation *o)
{
	char text[SPAN_NAME_BYTES];

	snprintf(text, sizeof(text), "%.16s%s%.80s%s%.60s", o->method ? o->method : "request", o->route ? " " : "",
		 o->route ? o->route : "", o->label ? " " : "", o->label ? o->label : "");
	return strdup(text);
}

int span_from_http(struct span *out, const struct http_operation *o, uint32_t shown_pid)
{
	int err;

	*out = (struct span){.pid = shown_pid,
			     .track = SPAN_HTTP,
			     .cat = "http",
			     .begin_ns = o->start_ns,
			     .end_ns = o->end_ns > o->start_ns ? o->end_ns : o->start_ns,
			     .first_token_ns = UNKNOWN_NS};
	out->name = http_name(o);
	err = out->name ? http_args(out, o) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}
