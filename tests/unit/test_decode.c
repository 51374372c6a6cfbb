/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <brotli/encode.h>
#include <sys/resource.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "flow/proto/decode.h"

enum wrap { GZIP = 31, ZLIB = 15, RAW = -15, BROTLI = 100, ZSTD = 101 };

struct bytes {
	uint8_t *ptr;
	size_t len;
};

static size_t brotli_some(BrotliEncoderState *e, BrotliEncoderOperation op, const uint8_t *ptr, size_t len,
			  uint8_t *out, size_t room)
{
	size_t left = room;

	do
		assert_true(BrotliEncoderCompressStream(e, op, &len, &ptr, &left, &out, NULL));
	while (len || BrotliEncoderHasMoreOutput(e));
	return room - left;
}

static struct bytes pack_brotli(const uint8_t *text, size_t len, size_t flush)
{
	size_t room = len + len / 2 + 4096, done = 0;
	struct bytes out = {malloc(room), 0};
	BrotliEncoderState *e = BrotliEncoderCreateInstance(NULL, NULL, NULL);

	BrotliEncoderSetParameter(e, BROTLI_PARAM_QUALITY, 5);
	for (; flush && len - done > flush; done += flush)
		out.len +=
			brotli_some(e, BROTLI_OPERATION_FLUSH, text + done, flush, out.ptr + out.len, room - out.len);
	out.len += brotli_some(e, BROTLI_OPERATION_FINISH, text + done, len - done, out.ptr + out.len, room - out.len);
	assert_true(BrotliEncoderIsFinished(e));
	BrotliEncoderDestroyInstance(e);
	return out;
}

static struct bytes pack_zstd(const uint8_t *text, size_t len, size_t flush, int window_log)
{
	size_t room = len + len / 2 + 4096, done = 0;
	ZSTD_outBuffer out = {malloc(room), room, 0};
	ZSTD_CCtx *c = ZSTD_createCCtx();

	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
	for (; flush && len - done > flush; done += flush)
		assert_int_equal(ZSTD_compressStream2(c, &out, &(ZSTD_inBuffer){text + done, flush, 0}, ZSTD_e_flush),
				 0);
	assert_int_equal(ZSTD_compressStream2(c, &out, &(ZSTD_inBuffer){text + done, len - done, 0}, ZSTD_e_end), 0);
	ZSTD_freeCCtx(c);
	return (struct bytes){out.dst, out.pos};
}

static struct bytes pack_zlib(const void *text, size_t len, enum wrap wrap, size_t flush)
{
	struct bytes out = {malloc(len + len / 2 + 4096), 0};
	size_t room = len + len / 2 + 4096, done = 0;
	z_stream z = {0};

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, wrap, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_out = out.ptr;
	z.avail_out = (uInt)room;
	while (flush && len - done > flush) {
		z.next_in = (Bytef *)text + done;
		z.avail_in = (uInt)flush;
		assert_int_equal(deflate(&z, Z_SYNC_FLUSH), Z_OK);
		done += flush;
	}
	z.next_in = (Bytef *)text + done;
	z.avail_in = (uInt)(len - done);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	out.len = room - z.avail_out;
	deflateEnd(&z);
	return out;
}

/* Compresses, with a flush after every `flush` bytes (0: none). */
static struct bytes pack(const void *text, size_t len, enum wrap wrap, size_t flush)
{
	if (wrap == BROTLI)
		return pack_brotli(text, len, flush);
	if (wrap == ZSTD)
		return pack_zstd(text, len, flush, 0);
	return pack_zlib(text, len, wrap, flush);
}

static struct bytes join(struct bytes a, struct bytes b)
{
	a.ptr = realloc(a.ptr, a.len + b.len);
	memcpy(a.ptr + a.len, b.ptr, b.len);
	a.len += b.len;
	free(b.ptr);
	return a;
}

static struct bytes literal(const char *text, size_t len)
{
	struct bytes b = {malloc(len + 1), len};

	memcpy(b.ptr, text, len);
	return b;
}

struct run {
	const char *coding;
	struct bytes in;
	enum decode_status want;
	const char *golden;
	struct guard guard;
	struct tlog log;
	size_t total;
	enum decode_status status, end; /* before and after it was said to be all */
	char undecoded[64];
	bool made;
};

static void on_bytes(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct run *r = ctx;

	(void)at;
	assert_true(len > 0);
	r->total += len;
	if (r->golden)
		tlog_escaped(&r->log, ptr, len);
}

static void run_pieces(struct run *r, size_t cut1, size_t cut2, size_t piece)
{
	struct decode_sink sink = {r, on_bytes};
	struct decode *d = decode_new(sv_of(r->coding), &sink);
	struct stamp at = {0};
	size_t done = 0;

	r->total = 0;
	r->log.len = 0;
	if (r->log.text)
		r->log.text[0] = '\0';
	r->made = d;
	if (!d)
		return;
	while (done < r->in.len) {
		size_t cut = piece ? done + piece : done < cut1 ? cut1 : done < cut2 ? cut2 : r->in.len;
		size_t n = (cut < r->in.len ? cut : r->in.len) - done;

		decode_push(d, guard_copy(&r->guard, r->in.ptr + done, n), n, &at);
		done += n;
	}
	r->status = decode_status(d);
	assert_true(r->status == DECODE_OK || !decode_held(d));
	assert_int_equal(*decode_undecoded(d) != '\0', r->status != DECODE_OK);
	r->end = decode_finish(d);
	assert_true(r->status == DECODE_OK || r->end == r->status);
	assert_true(r->end == DECODE_OK || !decode_held(d));
	snprintf(r->undecoded, sizeof(r->undecoded), "%s", decode_undecoded(d));
	decode_free(d);
}

static void run_cut(void *ctx, size_t cut1, size_t cut2)
{
	struct run *r = ctx;

	run_pieces(r, cut1, cut2, 0);
	assert_int_equal(r->end, r->want);
	assert_log(&r->log, r->golden);
}

static void run_all(const char *coding, struct bytes in, enum decode_status want, const char *golden)
{
	struct run r = {.coding = coding, .in = in, .want = want, .golden = golden};

	run_pieces(&r, 0, 0, 1);
	assert_int_equal(r.end, want);
	assert_log(&r.log, golden);
	every_cut(in.len, in.len, run_cut, &r);
	free(in.ptr);
	tlog_free(&r.log);
	guard_free(&r.guard);
}

#define TEXT "data: one one one and two two two, data: one"

static struct bytes pack_text(enum wrap wrap)
{
	return pack(TEXT, strlen(TEXT), wrap, 9);
}

static struct bytes repack(struct bytes in, enum wrap wrap)
{
	struct bytes out = pack(in.ptr, in.len, wrap, 13);

	free(in.ptr);
	return out;
}

static void test_codings(void **state)
{
	(void)state;
	run_all(NULL, literal(TEXT, strlen(TEXT)), DECODE_OK, TEXT);
	run_all("", literal(TEXT, strlen(TEXT)), DECODE_OK, TEXT);
	run_all("identity", literal(TEXT, strlen(TEXT)), DECODE_OK, TEXT);
	run_all("gzip", pack_text(GZIP), DECODE_OK, TEXT);
	run_all(" X-GZIP ", pack_text(GZIP), DECODE_OK, TEXT);
	run_all("deflate", pack_text(ZLIB), DECODE_OK, TEXT);
	run_all("deflate", pack_text(RAW), DECODE_OK, TEXT);
	run_all("gzip, deflate", repack(pack_text(GZIP), ZLIB), DECODE_OK, TEXT);
	run_all("deflate,identity , gzip", repack(pack_text(RAW), GZIP), DECODE_OK, TEXT);
	run_all("br", pack_text(BROTLI), DECODE_OK, TEXT);
	run_all("zstd", pack_text(ZSTD), DECODE_OK, TEXT);
	run_all("Br , zstd", repack(pack_text(BROTLI), ZSTD), DECODE_OK, TEXT);
	run_all("zstd, gzip", repack(pack_text(ZSTD), GZIP), DECODE_OK, TEXT);
	run_all("gzip, br", repack(pack_text(GZIP), BROTLI), DECODE_OK, TEXT);
	run_all("gzip", (struct bytes){NULL, 0}, DECODE_OK, "");
	run_all("br", pack("", 0, BROTLI, 0), DECODE_OK, "");
	run_all("zstd", pack("", 0, ZSTD, 0), DECODE_OK, "");
	run_all("deflate", literal("\x03\x00", 2), DECODE_OK, "");
}

/* Lines of a head are one list; transfer codings are around it. */
static void test_of_a_head(void **state)
{
	static const struct http_header headers[] = {{SV("Transfer-Encoding"), SV("deflate, chunked")},
						     {SV("Content-Encoding"), SV("gzip")},
						     {SV("content-encoding"), SV("identity, zstd-of-tomorrow")}};
	static const struct {
		size_t from, count;
		enum decode_status want;
	} rows[] = {{1, 1, DECODE_OK}, {0, 2, DECODE_OK}, {0, 3, DECODE_UNKNOWN}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_head h = {.headers = headers + rows[i].from, .header_count = rows[i].count};
		struct run r = {.in = pack_text(GZIP), .golden = TEXT};
		struct decode_sink sink = {&r, on_bytes};
		struct decode *d = decode_new_of(&h, &sink);
		struct stamp at = {0};

		if (rows[i].count > 1)
			r.in = repack(r.in, ZLIB);
		assert_int_equal(decode_push(d, r.in.ptr, r.in.len, &at), rows[i].want);
		if (rows[i].want == DECODE_OK)
			assert_log(&r.log, TEXT);
		else
			assert_string_equal(decode_undecoded(d), "zstd-of-tomorrow");
		decode_free(d);
		free(r.in.ptr);
		tlog_free(&r.log);
	}
}

static void test_members_and_padding(void **state)
{
	(void)state;
	run_all("gzip", join(pack_text(GZIP), pack("!", 1, GZIP, 0)), DECODE_OK, TEXT "!");
	run_all("gzip", join(pack("a", 1, GZIP, 0), literal("\0\0\0\0", 4)), DECODE_OK, "a");
	run_all("gzip", join(pack("a", 1, GZIP, 0), literal("\0\0x", 3)), DECODE_CORRUPT, "a");
	run_all("gzip", join(pack("a", 1, GZIP, 0), literal("junk", 4)), DECODE_CORRUPT, "a");
	run_all("gzip", join(pack("a", 1, GZIP, 0), literal("\x1fjunk", 5)), DECODE_CORRUPT, "a");
	run_all("deflate", join(pack("a", 1, ZLIB, 0), literal("\0", 1)), DECODE_OK, "a");
	run_all("deflate", join(pack("a", 1, ZLIB, 0), literal("b", 1)), DECODE_CORRUPT, "a");
	run_all("br", join(pack("a", 1, BROTLI, 0), literal("b", 1)), DECODE_CORRUPT, "a");
	/* Frames, one that is to be skipped between them, and one without a size or a checksum. */
	run_all("zstd", join(pack_text(ZSTD), pack("!", 1, ZSTD, 0)), DECODE_OK, TEXT "!");
	run_all("zstd",
		join(join(pack("a", 1, ZSTD, 0), literal("\x51\x2a\x4d\x18\x05\0\0\0junk\0", 13)), pack_text(ZSTD)),
		DECODE_OK, "a" TEXT);
	run_all("zstd", literal("\x28\xb5\x2f\xfd\x00\x58\x08\0\0a\x11\0\0bb", 15), DECODE_OK, "abb");
	run_all("zstd", join(pack("a", 1, ZSTD, 0), literal("\0\0\0\0", 4)), DECODE_CORRUPT, "a");
	run_all("zstd", join(pack("a", 1, ZSTD, 0), literal("junk", 4)), DECODE_CORRUPT, "a");
}

/* What a body of `in` comes to when it is all there is. */
static void run_end(const char *coding, struct bytes in, enum decode_status want, const char *cut)
{
	struct run r = {.coding = coding, .in = in};

	for (size_t piece = 1; piece < 8; piece += 6) {
		run_pieces(&r, 0, 0, piece);
		assert_int_equal(r.status, DECODE_OK);
		assert_int_equal(r.end, want);
		assert_string_equal(r.undecoded, cut);
	}
	guard_free(&r.guard);
}

/* Every part of it from its beginning on. One that ends where a member, or frame, does (whole) may be all. */
static void run_short(const char *coding, struct bytes in, size_t whole, const char *cut)
{
	for (size_t len = 0; len <= in.len; len++) {
		bool ends = !len || len == in.len || len == whole;

		run_end(coding, (struct bytes){in.ptr, len}, ends ? DECODE_OK : DECODE_CUT, ends ? "" : cut);
	}
	free(in.ptr);
}

static void test_short(void **state)
{
	static const struct {
		const char *coding;
		enum wrap wrap;
		bool many;
	} rows[] = {{"gzip", GZIP, true},
		    {"deflate", ZLIB, false},
		    {"deflate", RAW, false},
		    {"br", BROTLI, false},
		    {"zstd", ZSTD, true}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct bytes one = pack_text(rows[i].wrap);
		size_t whole = one.len;

		run_short(rows[i].coding, pack("", 0, rows[i].wrap, 0), 0, rows[i].coding);
		if (rows[i].many)
			one = join(one, pack_text(rows[i].wrap));
		run_short(rows[i].coding, one, whole, rows[i].coding);
	}
	run_end("identity", (struct bytes){(uint8_t *)TEXT, 3}, DECODE_OK, "");
}

static void test_short_inside(void **state)
{
	struct bytes in = pack_text(GZIP);

	(void)state;
	in.len -= 3;
	in = repack(in, ZLIB);
	run_end("gzip, deflate", in, DECODE_CUT, "gzip");
	in.len--;
	run_end("gzip, deflate", in, DECODE_CUT, "deflate");
	free(in.ptr);
}

static void test_corrupt(void **state)
{
	struct bytes bad = pack_text(GZIP);

	(void)state;
	run_all("gzip", literal("no gzip at all", 14), DECODE_CORRUPT, "");
	run_all("deflate", literal("\xff\xff\xff", 3), DECODE_CORRUPT, "");
	bad.ptr[bad.len - 6] ^= 1; /* its checksum: all was told by then, and it is not believed */
	run_all("gzip", bad, DECODE_CORRUPT, TEXT);
	run_all("br", literal("\x91no brotli", 10), DECODE_CORRUPT, "");
	run_all("zstd", literal("no zstd at all", 14), DECODE_CORRUPT, "");
	bad = pack_text(ZSTD);
	bad.ptr[bad.len - 1] ^= 1;
	run_all("zstd", bad, DECODE_CORRUPT, TEXT);
	/* what came before it stopped is told */
	bad = pack_text(GZIP);
	bad.len -= 8;
	run_all("gzip", bad, DECODE_CUT, TEXT);
}

/* What a flush released comes out with the stamp of the piece that held it. */
static void on_stamped(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct tlog *l = ctx;

	for (size_t i = 0; i < len; i++)
		tlog_printf(l, "%d%c", (int)at->ts_ns, ptr[i]);
}

/* What one more flush adds is pushed in one piece. */
static void check_flushes(const char *coding, enum wrap wrap)
{
	struct tlog l = {0};
	struct decode_sink sink = {&l, on_stamped};
	struct decode *d = decode_new(sv_of(coding), &sink);
	struct bytes all = pack("aaaabbbbcccc", 12, wrap, 4);
	size_t from = 0;

	for (size_t n = 1; n <= 3; n++) {
		/* The flushed ones are a prefix of all; before the last block, of 1 byte, another flush is made. */
		struct bytes part = pack("aaaabbbbccccd", 4 * n + 1, wrap, 4);
		struct stamp at = {0, n, 1, 0};
		size_t to = part.len;

		while (n < 3 && memcmp(part.ptr, all.ptr, to))
			to--;
		to = n < 3 ? to : all.len;
		assert_int_equal(decode_push(d, all.ptr + from, to - from, &at), DECODE_OK);
		from = to;
		free(part.ptr);
	}
	assert_log(&l, "1a1a1a1a2b2b2b2b3c3c3c3c");
	decode_free(d);
	free(all.ptr);
	tlog_free(&l);
}

static void test_flushes_come_out_at_once(void **state)
{
	static const enum wrap wraps[] = {GZIP, ZLIB, RAW};

	(void)state;
	check_flushes("br", BROTLI);
	check_flushes("zstd", ZSTD);
	for (size_t i = 0; i < ARRAY_SIZE(wraps); i++) {
		struct tlog l = {0};
		struct decode_sink sink = {&l, on_stamped};
		struct decode *d = decode_new(sv_of(wraps[i] == GZIP ? "gzip" : "deflate"), &sink);
		struct bytes all = pack("aaaabbbbcccc", 12, wraps[i], 4);
		static const uint8_t mark[] = {0, 0, 0xff, 0xff};
		size_t from = 0;
		int stamp = 0;

		for (size_t to = 4; to <= all.len; to++) {
			struct stamp at = {0, (uint64_t)++stamp, 1, 0};

			if (to < all.len && memcmp(all.ptr + to - 4, mark, 4)) {
				stamp--;
				continue;
			}
			assert_int_equal(decode_push(d, all.ptr + from, to - from, &at), DECODE_OK);
			from = to;
		}
		assert_log(&l, "1a1a1a1a2b2b2b2b3c3c3c3c");
		decode_free(d);
		free(all.ptr);
		tlog_free(&l);
	}
}

static void check_unknown(const char *coding, const char *name)
{
	struct run r = {.coding = coding, .golden = ""};
	struct decode_sink sink = {&r, on_bytes};
	struct decode *d = decode_new(sv_of(coding), &sink);
	struct stamp at = {0};

	assert_int_equal(decode_status(d), DECODE_UNKNOWN);
	assert_string_equal(decode_undecoded(d), name);
	assert_int_equal(decode_push(d, (const uint8_t *)"abc", 3, &at), DECODE_UNKNOWN);
	assert_false(decode_is_identity(d));
	assert_int_equal(r.total, 0);
	decode_free(d);
}

static void test_unknown(void **state)
{
	(void)state;
	check_unknown("compress", "compress");
	check_unknown("dcz", "dcz");
	check_unknown("X-Unknown", "X-Unknown");
	check_unknown("gzip, compress", "compress");
	check_unknown("compress, br", "compress");
	check_unknown("gzip,gzip,gzip,gzip,gzip", "gzip");
	check_unknown("0123456789012345678901234567890123456789012345678901234567890123456789",
		      "012345678901234567890123456789012345678901234567890123456789012");
}

static void test_gap(void **state)
{
	struct run r = {.golden = ""};
	struct decode_sink sink = {&r, on_bytes};
	struct decode *d = decode_new(SV("gzip"), &sink), *plain = decode_new(SV_NONE, &sink);
	struct stamp at = {0};
	struct bytes all = pack_text(GZIP);

	(void)state;
	decode_push(d, all.ptr, all.len / 2, &at);
	r.total = 0;
	decode_gap(d);
	assert_int_equal(decode_push(d, all.ptr + all.len / 2, all.len - all.len / 2, &at), DECODE_GAP);
	assert_string_equal(decode_undecoded(d), "gzip");
	assert_int_equal(r.total, 0);
	decode_gap(plain);
	assert_int_equal(decode_push(plain, (const uint8_t *)"abc", 3, &at), DECODE_OK);
	assert_int_equal(r.total, 3);
	assert_true(decode_is_identity(plain));
	decode_free(d);
	decode_free(plain);
	free(all.ptr);
	tlog_free(&r.log);
}

/* [from, to) is missing: what came before it was told, nothing after it is, and nothing is held. */
static void run_gap(struct run *r, size_t from, size_t to)
{
	struct decode_sink sink = {r, on_bytes};
	struct decode *d = decode_new(sv_of(r->coding), &sink);
	struct stamp at = {0};
	size_t told;

	r->log.len = 0;
	decode_push(d, guard_copy(&r->guard, r->in.ptr, from), from, &at);
	assert_int_equal(decode_status(d), DECODE_OK);
	assert_true(decode_held(d) > 0);
	told = r->log.len;
	decode_gap(d);
	decode_push(d, guard_copy(&r->guard, r->in.ptr + to, r->in.len - to), r->in.len - to, &at);
	assert_int_equal(decode_status(d), DECODE_GAP);
	assert_int_equal(r->log.len, told);
	assert_int_equal(decode_held(d), 0);
	assert_true(told <= strlen(r->golden) && (!told || memcmp(r->log.text, r->golden, told) == 0));
	decode_free(d);
}

static void gap_everywhere(const char *coding, struct bytes in)
{
	struct run r = {.coding = coding, .in = in, .golden = TEXT};

	for (size_t from = 0; from < in.len; from++)
		for (size_t to = from + 1; to <= in.len; to++)
			run_gap(&r, from, to);
	free(in.ptr);
	tlog_free(&r.log);
	guard_free(&r.guard);
}

static void test_every_gap(void **state)
{
	(void)state;
	gap_everywhere("gzip", pack_text(GZIP));
	gap_everywhere("deflate", pack_text(ZLIB));
	gap_everywhere("deflate", pack_text(RAW));
	gap_everywhere("br", pack_text(BROTLI));
	gap_everywhere("zstd", pack_text(ZSTD));
	gap_everywhere("gzip, deflate", repack(pack_text(GZIP), ZLIB));
	gap_everywhere("br, zstd", repack(pack_text(BROTLI), ZSTD));
	gap_everywhere("zstd, br", repack(pack_text(ZSTD), BROTLI));
}

static long resident_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static struct bytes pack_zeros(size_t len, enum wrap wrap)
{
	char *zeros = calloc(1, len);
	struct bytes b = pack(zeros, len, wrap, 0);

	free(zeros);
	return b;
}

/* 64 MiB in 64 KiB: given up soon after the first MiB, at the same place however it is cut. */
static void check_bomb(const char *coding, enum wrap wrap)
{
	struct run whole = {.coding = coding, .in = pack_zeros(64u << 20, wrap)}, piecewise = whole, bytewise = whole;
	long before = resident_kib();
	clock_t began = clock();

	run_pieces(&whole, 0, 0, 0);
	assert_int_equal(whole.status, DECODE_LIMIT);
	assert_in_range(whole.total, DECODE_RATIO_MIN, DECODE_RATIO_MIN + 16384);
	assert_in_range(resident_kib() - before, 0, 16384);
	assert_in_range((clock() - began) * 1000 / CLOCKS_PER_SEC, 0, 1000);
	run_pieces(&piecewise, 0, 0, 1000);
	run_pieces(&bytewise, 0, 0, 1);
	assert_int_equal(piecewise.total, whole.total);
	assert_int_equal(bytewise.total, whole.total);
	assert_int_equal(bytewise.status, DECODE_LIMIT);
	guard_free(&whole.guard);
	guard_free(&piecewise.guard);
	guard_free(&bytewise.guard);
	free(whole.in.ptr);
}

static void test_bomb(void **state)
{
	(void)state;
	check_bomb("gzip", GZIP);
	check_bomb("deflate", RAW);
	check_bomb("br", BROTLI);
	check_bomb("zstd", ZSTD);
}

static void check_stacked_bomb(const char *coding, enum wrap inner, enum wrap outer)
{
	struct run r = {.coding = coding, .in = repack(pack_zeros(64u << 20, inner), outer)};
	size_t total;

	run_pieces(&r, 0, 0, 0);
	total = r.total;
	assert_int_equal(r.status, DECODE_LIMIT);
	assert_in_range(r.total, 1, DECODE_RATIO_MIN + 16384);
	run_pieces(&r, 0, 0, 1);
	assert_int_equal(r.total, total);
	free(r.in.ptr);
	guard_free(&r.guard);
}

static void test_stacked_bomb(void **state)
{
	(void)state;
	check_stacked_bomb("gzip, gzip", GZIP, GZIP);
	check_stacked_bomb("br, zstd", BROTLI, ZSTD);
	check_stacked_bomb("zstd, br", ZSTD, BROTLI);
	check_stacked_bomb("gzip, br", GZIP, BROTLI);
}

/* A window larger than what RFC 9659 has receivers grant, and one just as large. */
static void test_zstd_window(void **state)
{
	size_t len = 9u << 20;
	uint8_t *noise = malloc(len);

	(void)state;
	for (size_t i = 0, x = 1; i < len; i++, x = x * 6364136223846793005u + 1442695040888963407u)
		noise[i] = (uint8_t)(x >> 56);
	for (int window_log = 23; window_log < 25; window_log++) {
		struct run r = {.coding = "zstd", .in = pack_zstd(noise, len, 1u << 20, window_log)};

		run_pieces(&r, 0, 0, 0);
		assert_int_equal(r.status, window_log == 23 ? DECODE_OK : DECODE_LIMIT);
		assert_int_equal(r.total, window_log == 23 ? len : 0);
		free(r.in.ptr);
		guard_free(&r.guard);
	}
	free(noise);
}

/* A long stream that compresses well, but not like a bomb, comes out whole. */
static void check_good_ratio(const char *coding, enum wrap wrap)
{
	size_t len = 8u << 20, at = 0;
	char *text = malloc(len + 128);
	struct run r = {.coding = coding};

	for (unsigned i = 0; at < len; i++)
		at += (size_t)sprintf(text + at, "data: {\"type\":\"delta\",\"index\":%u,\"text\":\"w%u\"}\n\n", i,
				      i * 7919 % 10007);
	r.in = pack(text, at, wrap, 65536);
	run_pieces(&r, 0, 0, 4096);
	assert_int_equal(r.status, DECODE_OK);
	assert_int_equal(r.total, at);
	free(text);
	free(r.in.ptr);
	guard_free(&r.guard);
}

static void test_good_ratio(void **state)
{
	(void)state;
	check_good_ratio("gzip", GZIP);
	check_good_ratio("br", BROTLI);
	check_good_ratio("zstd", ZSTD);
}

/* Each byte wrong in turn: what is told, and how it ends, is the same for all cuts. */
static void test_damage(void **state)
{
	static const enum wrap wraps[] = {GZIP, RAW, BROTLI, ZSTD};
	static const char *const codings[] = {"gzip", "deflate", "br", "zstd"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wraps); i++) {
		struct run whole = {.coding = codings[i], .in = pack_text(wraps[i]), .golden = ""}, pieces = whole;

		for (size_t bit = 0; bit < 8 * whole.in.len; bit++) {
			whole.in.ptr[bit / 8] ^= 1 << bit % 8;
			run_pieces(&whole, 0, 0, 0);
			for (size_t piece = 1; piece < 8; piece++) {
				run_pieces(&pieces, 0, 0, piece);
				assert_int_equal(pieces.status, whole.status);
				assert_string_equal(pieces.log.text ? pieces.log.text : "",
						    whole.log.text ? whole.log.text : "");
			}
			whole.in.ptr[bit / 8] ^= 1 << bit % 8;
		}
		free(whole.in.ptr);
		tlog_free(&whole.log);
		tlog_free(&pieces.log);
		guard_free(&whole.guard);
		guard_free(&pieces.guard);
	}
}

static void check_no_memory(const char *coding, struct bytes in)
{
	bool hit = true;

	for (unsigned n = 1; hit; n++) {
		struct run r = {.coding = coding, .in = in, .golden = ""};

		fail_nth(n);
		run_pieces(&r, 0, 0, 5);
		hit = fail_nth_hit();
		fail_nth(0);
		if (hit)
			assert_true(!r.made || r.status == DECODE_NO_MEMORY);
		else
			assert_int_equal(r.status, DECODE_OK);
		tlog_free(&r.log);
		guard_free(&r.guard);
	}
	free(in.ptr);
}

static void test_no_memory(void **state)
{
	(void)state;
	check_no_memory("gzip, deflate", repack(pack_text(GZIP), RAW));
	check_no_memory("br", pack_text(BROTLI));
	check_no_memory("zstd", pack_text(ZSTD));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codings),
		cmocka_unit_test(test_of_a_head),
		cmocka_unit_test(test_members_and_padding),
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_short_inside),
		cmocka_unit_test(test_corrupt),
		cmocka_unit_test(test_flushes_come_out_at_once),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_gap),
		cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_stacked_bomb),
		cmocka_unit_test(test_good_ratio),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_zstd_window),
		cmocka_unit_test(test_every_gap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
