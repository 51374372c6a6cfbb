/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "feed.h"

#include <zlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "flow/proto/eventstream.h"

/* --- messages are made here, from the format's own words --------------------------------------------------------- */

static void put(struct buf *b, uint64_t v, unsigned bytes)
{
	while (bytes--)
		assert_int_equal(buf_putc(b, (char)(v >> 8 * bytes)), 0);
}

static void put_name(struct buf *b, const char *name, uint8_t type)
{
	put(b, strlen(name), 1);
	buf_puts(b, name);
	put(b, type, 1);
}

static void put_string(struct buf *b, const char *name, const char *value)
{
	put_name(b, name, 7);
	put(b, strlen(value), 2);
	buf_puts(b, value);
}

static void put_message(struct buf *b, const struct buf *headers, const void *payload, size_t len)
{
	size_t from = b->len;

	put(b, 16 + headers->len + len, 4);
	put(b, headers->len, 4);
	put(b, crc32(0, (Bytef *)b->ptr + from, 8), 4);
	buf_push(b, headers->ptr, headers->len);
	buf_push(b, payload, len);
	put(b, crc32(0, (Bytef *)b->ptr + from, (uInt)(b->len - from)), 4);
}

static void put_event(struct buf *b, const char *type, const char *payload)
{
	struct buf headers;

	buf_init(&headers, 0);
	put_string(&headers, ":event-type", type);
	put_string(&headers, ":content-type", "application/json");
	put_string(&headers, ":message-type", "event");
	put_message(b, &headers, payload, strlen(payload));
	buf_release(&headers);
}

/* --- the log ----------------------------------------------------------------------------------------------------- */

static void log_sv(struct tlog *l, const char *name, struct sv value)
{
	if (!value.ptr)
		return;
	tlog_printf(l, " %s=", name);
	tlog_escaped(l, value.ptr, value.len);
}

static void on_event(void *ctx, const struct eventstream_event *e)
{
	tlog_printf(ctx, "%llu-%llu", (unsigned long long)e->first.ts_ns, (unsigned long long)e->at.ts_ns);
	log_sv(ctx, "message", e->message_type);
	log_sv(ctx, "event", e->event_type);
	log_sv(ctx, "exception", e->exception_type);
	log_sv(ctx, "code", e->error_code);
	log_sv(ctx, "text", e->error_message);
	log_sv(ctx, "content", e->content_type);
	for (size_t i = 0; i < e->header_count; i++) {
		const struct eventstream_header *h = &e->headers[i];

		if (h->type == EVENTSTREAM_STRING && h->name.ptr[0] == ':')
			continue;
		tlog_printf(ctx, " (");
		tlog_escaped(ctx, h->name.ptr, h->name.len);
		tlog_printf(ctx, " %d %lld", h->type, (long long)h->number);
		log_sv(ctx, "bytes", h->bytes);
		tlog_printf(ctx, ")");
	}
	tlog_printf(ctx, " <");
	tlog_escaped(ctx, e->payload.ptr, e->payload.len < 200 ? e->payload.len : 200);
	tlog_printf(ctx, ">\n");
}

static void *open_parser(struct tlog *log, const void *arg)
{
	(void)arg;
	return eventstream_new(&(struct eventstream_sink){log, on_event});
}

static int push(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	(void)dir;
	return eventstream_push(parser, ptr, len, at);
}

static void gap(void *parser, enum dir dir, uint64_t len, const struct stamp *at)
{
	(void)dir, (void)at;
	eventstream_gap(parser, len);
}

static void close_parser(void *parser, struct tlog *log)
{
	tlog_printf(log, "%s", eventstream_at_end(parser) ? "at end" : "open");
	if (eventstream_errors(parser))
		tlog_printf(log, ", errors %u", eventstream_errors(parser));
	if (eventstream_lost(parser))
		tlog_printf(log, ", lost %u", eventstream_lost(parser));
	if (eventstream_oversize(parser))
		tlog_printf(log, ", oversize %u", eventstream_oversize(parser));
	tlog_printf(log, "\n");
	eventstream_free(parser);
}

static struct feed feed_of(const struct feed_segment *segments, size_t count)
{
	return (struct feed){.segments = segments,
			     .count = count,
			     .open = open_parser,
			     .push = push,
			     .gap = gap,
			     .close = close_parser};
}

static void check_once(const struct feed_segment *segments, size_t count, const char *golden)
{
	struct feed f = feed_of(segments, count);

	feed_golden(&f, 100, golden);
	feed_release(&f);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

#define EVENT_1 "1-1 message=event event=messageStart content=application/json <{\"role\":\"assistant\"}>\n"
#define EVENT_2 "1-2 message=event event=metadata content=application/json <{}>\n"
#define EVENT_3 "2-2 message=exception exception=throttlingException <>\n"

static void make_stream(struct buf *b)
{
	struct buf headers;

	buf_init(b, 0);
	buf_init(&headers, 0);
	put_event(b, "messageStart", "{\"role\":\"assistant\"}");
	put_event(b, "metadata", "{}");
	put_string(&headers, ":exception-type", "throttlingException");
	put_string(&headers, ":message-type", "exception");
	put_message(b, &headers, "", 0);
	buf_release(&headers);
}

static void test_stream(void **state)
{
	struct buf b;

	(void)state;
	make_stream(&b);
	struct feed_segment segments[] = {{b.ptr, 150, 1, DIR_RX}, {b.ptr + 150, b.len - 150, 2, DIR_RX}};
	struct feed f = feed_of(segments, 2);

	feed_golden(&f, 150, EVENT_1 EVENT_2 EVENT_3 "at end\n");
	feed_no_memory(&f);
	segments[1].len--;
	feed_golden(&f, 20, EVENT_1 EVENT_2 "open\n");
	feed_release(&f);
	buf_release(&b);
}

/* What the specification's own test vectors look like: an empty message, and one header of each type. */
static void test_headers(void **state)
{
	static const uint8_t empty[] = {0, 0, 0, 16, 0, 0, 0, 0, 0x05, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff};
	struct buf b, headers;

	(void)state;
	buf_init(&b, 0);
	buf_init(&headers, 0);
	buf_push(&b, empty, sizeof(empty));
	put_name(&headers, "t", 0);
	put_name(&headers, "f", 1);
	put_name(&headers, "b", 2), put(&headers, 0xff, 1);
	put_name(&headers, "s", 3), put(&headers, 0x8000, 2);
	put_name(&headers, "i", 4), put(&headers, 0x7fffffff, 4);
	put_name(&headers, "l", 5), put(&headers, UINT64_MAX, 8);
	put_name(&headers, "y", 6), put(&headers, 3, 2), buf_push(&headers, "a\0b", 3);
	put_name(&headers, "at", 8), put(&headers, 1700000000000, 8);
	put_name(&headers, "u", 9), buf_push(&headers, "0123456789abcdef", 16);
	put_string(&headers, ":message-type", "error");
	put_string(&headers, ":error-code", "500");
	put_string(&headers, ":error-message", "");
	put_name(&headers, ":event-type", 6), put(&headers, 0, 2); /* of a type that it never has */
	put_message(&b, &headers, "p", 1);
	struct feed_segment s = {b.ptr, b.len, 7, DIR_RX};

	check_once(&s, 1,
		   "7-7 <>\n"
		   "7-7 message=error code=500 text= (t 0 1) (f 1 0) (b 2 -1) (s 3 -32768) (i 4 2147483647) (l 5 -1)"
		   " (y 6 0 bytes=a\\x00b) (at 8 1700000000000) (u 9 0 bytes=0123456789abcdef) (:event-type 6 0 bytes=)"
		   " <p>\nat end\n");
	buf_release(&headers);
	buf_release(&b);
}

/* Many headers are parsed over; broken ones cost the message, not the stream. */
static void test_hostile_headers(void **state)
{
	static const char *const broken[] = {"\x03"
					     "ab",
					     "\x02"
					     "ab",
					     "\x01"
					     "a\x07",
					     "\x01"
					     "a\x07\x01\x01zz",
					     "\x01"
					     "a\x0a",
					     "\x01"
					     "a\x05"
					     "1234567",
					     "\x01"
					     "a\x09"
					     "123456789abcdef"};
	struct buf b, headers;

	(void)state;
	buf_init(&b, 0);
	buf_init(&headers, 0);
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		buf_clear(&headers);
		buf_puts(&headers, broken[i]);
		put_message(&b, &headers, "{}", 2);
	}
	buf_clear(&headers);
	buf_push(&headers, "\0\0", 2); /* a name of no length */
	put_message(&b, &headers, "{}", 2);
	buf_clear(&headers);
	for (int i = 0; i < 40; i++)
		put_name(&headers, ":", 0);
	put_string(&headers, ":message-type", "event");
	put_message(&b, &headers, "{}", 2);
	struct feed_segment s = {b.ptr, b.len, 7, DIR_RX};
	struct feed f = feed_of(&s, 1);
	struct feed_run r = FEED_WHOLE;

	assert_int_equal(feed_play(&f, &r), 0);
	assert_non_null(strstr(f.log.text, "7-7 message=event (: 0 1)"));
	assert_non_null(strstr(f.log.text, "<{}>\nat end, errors 8\n"));
	feed_release(&f);
	buf_release(&headers);
	buf_release(&b);
}

static void test_wrong_checksums(void **state)
{
	size_t first;
	struct buf b;

	(void)state;
	buf_init(&b, 0);
	put_event(&b, "a", "{}");
	first = b.len;
	put_event(&b, "b", "{}");
	struct feed_segment s = {b.ptr, b.len, 1, DIR_RX};

	b.ptr[first - 6] ^= 1; /* payload */
	check_once(&s, 1, "1-1 message=event event=b content=application/json <{}>\nat end, errors 1\n");
	b.ptr[first - 6] ^= 1;
	b.ptr[3] ^= 1; /* length: found again at the next message */
	check_once(&s, 1, "1-1 message=event event=b content=application/json <{}>\nat end, errors 1\n");
	b.ptr[3] ^= 1;
	s.ptr = b.ptr + 5; /* met in the middle without saying so */
	s.len = b.len - 5;
	check_once(&s, 1, "1-1 message=event event=b content=application/json <{}>\nat end, errors 1\n");
	struct feed_segment middle[] = {{NULL, UINT64_MAX, 1, DIR_RX}, s};
	check_once(middle, 2, "1-1 message=event event=b content=application/json <{}>\nat end\n");
	struct feed_segment text = {"HTTP/1.1 502 Bad Gateway\r\n\r\n", 28, 1, DIR_RX};
	check_once(&text, 1, "open, errors 1\n");
	buf_release(&b);
}

static size_t second_end, stream_len;

/* What is told was sent. A gap inside one message costs that one; one of unknown length at most the next one too. */
static void check_events(struct feed *f, const struct feed_run *r)
{
	static const char *const events[] = {EVENT_1, EVENT_2, EVENT_3};
	size_t ends[] = {0, 0, stream_len};
	const char *p = f->log.text;

	ends[1] = second_end;
	ends[0] = (size_t)((const char *)f->arg - (const char *)f->segments[0].ptr);
	for (size_t i = 0, begin = 0; i < 3; begin = ends[i++]) {
		bool told = !strncmp(p, events[i], strlen(events[i]));
		bool hit = r->gap_from < ends[i] && r->gap_to > begin;

		p += told ? strlen(events[i]) : 0;
		assert_false(told && hit);
		assert_true(told || hit); /* all else is found again */
	}
	assert_true(*p == 'a' || *p == 'o');
	assert_null(strchr(p, '\n')[1] ? p : NULL);
	assert_null(strstr(p, "errors"));
}

static void test_every_gap(void **state)
{
	struct buf b;

	(void)state;
	make_stream(&b);
	struct feed_segment segments[] = {{b.ptr, 150, 1, DIR_RX}, {b.ptr + 150, b.len - 150, 2, DIR_RX}};
	struct feed f = feed_of(segments, 2);

	stream_len = b.len;
	f.arg = b.ptr + (b.ptr[2] << 8 | (uint8_t)b.ptr[3]);
	second_end = (size_t)((const char *)f.arg - b.ptr);
	second_end += (size_t)((uint8_t)((const char *)f.arg)[3]);
	feed_gaps(&f, 3, check_events);
	feed_release(&f);
	buf_release(&b);
}

static void test_counts_of_gaps(void **state)
{
	struct buf b;

	(void)state;
	make_stream(&b);
	struct feed_segment s[] = {{b.ptr, 20, 1, DIR_RX},
				   {NULL, 5, 1, DIR_RX},
				   {NULL, 5, 1, DIR_RX},
				   {b.ptr + 30, b.len - 30, 2, DIR_RX}};

	check_once(s, 4, "2-2 message=event event=metadata content=application/json <{}>\n" EVENT_3 "at end, lost 1\n");
	buf_release(&b);
}

static void test_long_messages(void **state)
{
	struct buf b, headers;
	size_t most = EVENTSTREAM_MESSAGE_MAX - 16;
	char *payload = malloc(most + 1);

	(void)state;
	memset(payload, 'x', most + 1);
	buf_init(&b, 0);
	buf_init(&headers, 0);
	put_message(&b, &headers, payload, most);
	put_message(&b, &headers, payload, most + 1);
	put_message(&b, &headers, "{}", 2);
	/* Lengths that no message has, with the right checksum. */
	for (int i = 0; i < 3; i++) {
		static const uint32_t lengths[][2] = {
			{EVENTSTREAM_TOTAL_MAX + 1, 0}, {15, 0}, {1 << 20, EVENTSTREAM_HEADERS_MAX + 1}};
		size_t from = b.len;

		put(&b, lengths[i][0], 4);
		put(&b, lengths[i][1], 4);
		put(&b, crc32(0, (Bytef *)b.ptr + from, 8), 4);
	}
	put_message(&b, &headers, "[]", 2);
	struct feed_segment s = {b.ptr, b.len, 1, DIR_RX};
	struct feed f = feed_of(&s, 1);
	struct feed_run r = FEED_WHOLE;

	for (; r.cut2; r.cut1 = 9, r.cut2 = r.cut2 == SIZE_MAX ? most + 3 : 0) {
		assert_int_equal(feed_play(&f, &r), 0);
		assert_int_equal(f.log.len, 5 + 200 + 2 + 2 * 9 + strlen("at end, errors 1, oversize 1\n"));
		assert_non_null(strstr(f.log.text, ">\n1-1 <{}>\n1-1 <[]>\nat end, errors 1, oversize 1\n"));
	}
	feed_release(&f);
	free(payload);
	buf_release(&headers);
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_hostile_headers), cmocka_unit_test(test_wrong_checksums),
		cmocka_unit_test(test_every_gap),	cmocka_unit_test(test_counts_of_gaps),
		cmocka_unit_test(test_long_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
