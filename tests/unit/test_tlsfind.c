/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "attach/tlsfind.h"
#include "shapes/chain.h"
#include "shapes/shape.h"

#define LIB "/usr/lib/x86_64-linux-gnu/"

static void show_stack(struct tlog *log, const struct elf *e, const struct tls_find *found)
{
	static const char *const roles[] = {"none", "read", "write", "handshake", "new", "free"};

	tlog_printf(log, "%s%s%s%s%s\n", found->count ? "found" : "refused", found->stack ? " " : "",
		    found->stack ? found->stack : "", found->reason[0] ? ": " : "", found->reason);
	for (unsigned i = 0; i < found->count; i++) {
		const struct tls_func *f = &found->funcs[i];

		tlog_printf(log, "%s", roles[f->role]);
		if (f->len_arg)
			tlog_printf(log, " *%u", f->len_arg);
		tlog_printf(log, " %u %s +%d %s\n", f->site.rule, site_class_name(f->site.class),
			    (int)(f->site.off - f->site.func_off), f->name);
		assert_int_equal(f->site.len_arg, f->len_arg);
		/* never an offset that decoding from the function's start does not arrive at */
		assert_true(on_decode_chain(e, f->site.func_off, f->site.off));
	}
}

/* One line a stack and one a function: role, where the length is, rule, class, bytes behind the function's start, name.
 */
static void show(struct tlog *log, const char *path)
{
	struct tls_finds found;
	bool probed = false;
	struct elf e;
	int err = elf_map(&e, path);

	if (err) {
		tlog_printf(log, "open: %s\n", strerror(-err));
		return;
	}
	err = tlsfind(&e, &found);
	if (!found.count)
		tlog_printf(log, "%s\n", err == -ENOENT ? "none" : "?");
	for (unsigned i = 0; i < found.count; i++) {
		show_stack(log, &e, &found.stacks[i]);
		probed |= found.stacks[i].count > 0;
	}
	assert_int_equal(err, probed ? 0 : found.count ? -EINVAL : -ENOENT);
	elf_unmap(&e);
}

#define LIFE                                                                                                           \
	"handshake 1 emulated +0 SSL_do_handshake\n"                                                                   \
	"new 1 emulated +0 SSL_new\n"                                                                                  \
	"free 1 emulated +3 SSL_free\n"

static void shapes(void **state)
{
	static const struct {
		const char *name, *expect;
	} cases[] = {
		{"internal", "found openssl\n"
			     "read *4 2 emulated +0 ssl_read_internal (SSL_read, SSL_read_ex)\n"
			     "write *4 2 emulated +0 ssl_write_internal (SSL_write, SSL_write_ex)\n" LIFE},
		{"minidebug", "found openssl\n"
			      "read *4 2 emulated +0 ssl_read_internal (SSL_read, SSL_read_ex)\n"
			      "write *4 2 emulated +0 ssl_write_internal (SSL_write, SSL_write_ex)\n" LIFE},
		{"cet", "found openssl 3\n"
			"read *4 2 emulated +4 ssl_read_internal (SSL_read, SSL_read_ex)\n"
			"write *5 2 emulated +4 ssl_write_internal (SSL_write, SSL_write_ex2)\n"
			"handshake 1 emulated +4 SSL_do_handshake\n"},
		/* wrappers are left out: their callee counts the call */
		{"tail", "found openssl\n"
			 "read *4 1 emulated +0 SSL_read_ex\n"
			 "write 1 emulated +0 SSL_write\n"
			 "write *5 1 emulated +0 SSL_write_ex2\n" LIFE},
		{"hop", "found openssl\n"
			"read *4 2 emulated +0 ssl_read_internal (SSL_read, SSL_read_ex)\n"
			"write *4 2 emulated +0 ssl_write_internal (SSL_write, SSL_write_ex)\n" LIFE},
		/* what is not certain stays at the public functions */
		{"inlined", "found openssl\n"
			    "read 3 single-stepped +0 SSL_read\n"
			    "read *4 3 single-stepped +0 SSL_read_ex\n"
			    "write 3 single-stepped +0 SSL_write\n"
			    "write *4 3 single-stepped +0 SSL_write_ex\n" LIFE},
		{"ambiguous", "found openssl\n"
			      "read 3 single-stepped +0 SSL_read\n"
			      "read *4 3 single-stepped +0 SSL_read_ex\n"
			      "write *4 2 emulated +0 ssl_write_internal (SSL_write, SSL_write_ex)\n" LIFE},
		{"swapped", "found openssl\n"
			    "read 3 single-stepped +0 SSL_read\n"
			    "read *4 3 single-stepped +0 SSL_read_ex\n"
			    "write *4 3 single-stepped +0 SSL_write_ex\n" LIFE},
		{"peek", "found openssl\n"
			 "read 3 single-stepped +0 SSL_read\n"
			 "read *4 3 single-stepped +0 SSL_read_ex\n"
			 "write *4 2 emulated +0 ssl_write_internal (SSL_write, SSL_write_ex)\n" LIFE},
		{"shared_io", "found openssl\n"
			      "read 3 single-stepped +0 SSL_read\n"
			      "read *4 3 single-stepped +0 SSL_read_ex\n"
			      "write 3 single-stepped +0 SSL_write\n"
			      "write *4 3 single-stepped +0 SSL_write_ex\n" LIFE},
		/* a missing optional function cancels nothing */
		{"old", "found openssl: handshakes are not seen: there is no SSL_do_handshake\n"
			"read 1 emulated +0 SSL_read\n"
			"write 1 emulated +2 SSL_write\n"
			"free 1 emulated +0 SSL_free\n"},
		{"half", "refused openssl: no function that writes\n"},
		{"importer", "none\n"},
		{"sites", "none\n"},
	};

	(void)state;
	if (access(shape_path("internal"), R_OK))
		skip(); /* built on x86-64 only */
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tlog log = {0};

		show(&log, shape_path(cases[i].name));
		assert_log(&log, cases[i].expect);
		tlog_free(&log);
	}
}

/* Compilers differ, so what they made is not compared line by line: both directions, and each call once. */
static void compiled_shapes(void **state)
{
	static const char *const names[] = {"compiled_O0", "compiled_O2", "compiled_Os", "compiled_cet",
					    "compiled_frame"};

	(void)state;
	if (access(shape_path(names[0]), R_OK))
		skip();
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct tlog log = {0};

		show(&log, shape_path(names[i]));
		assert_true(strncmp(log.text, "found openssl\n", 14) == 0);
		assert_non_null(strstr(log.text, "SSL_read_ex"));
		assert_non_null(strstr(log.text, "SSL_write_ex2"));
		/* SSL_write_ex itself always ends in SSL_write_ex2 */
		assert_null(strstr(log.text, "SSL_write_ex)"));
		assert_null(strstr(log.text, "SSL_write_ex\n"));
		tlog_free(&log);
	}
}

/* --- real files -------------------------------------------------------------------------------------------------- */

/* Debian 12: OpenSSL 3.0 without CET. Later releases have other code: there only the property holds. */
static void libssl(void **state)
{
	struct tlog log = {0};

	(void)state;
	if (access(LIB "libssl.so.3", R_OK))
		skip();
	show(&log, LIB "libssl.so.3");
	assert_true(strncmp(log.text, "found openssl 3\n", 16) == 0);
	assert_null(strstr(log.text, "single-stepped"));
	if (!access("/etc/debian_version", R_OK) && !strstr(log.text, "ex2") && !strstr(log.text, "+4"))
		assert_log(&log, "found openssl 3\n"
				 "read *4 2 emulated +0 ssl_read_internal (SSL_read, SSL_read_ex)\n"
				 "write *4 2 emulated +0 ssl_write_internal (SSL_write, SSL_write_ex)\n" LIFE);
	tlog_free(&log);
}

static void libgnutls(void **state)
{
	struct tlog log = {0};

	(void)state;
	if (access(LIB "libgnutls.so.30", R_OK))
		skip();
	show(&log, LIB "libgnutls.so.30");
	assert_true(strncmp(log.text, "found gnutls\n", 13) == 0);
	assert_non_null(strstr(log.text, "gnutls_record_recv\n"));
	/* gnutls_record_send jumps on to it */
	assert_non_null(strstr(log.text, "gnutls_record_send2\n"));
	assert_null(strstr(log.text, "gnutls_record_send\n"));
	assert_non_null(strstr(log.text, "handshake *1 ")); /* success is 0 */
	assert_non_null(strstr(log.text, "free"));
	tlog_free(&log);
}

static void node20(void **state)
{
	struct tlog log = {0};

	(void)state;
	show(&log, "/usr/bin/node");
	if (strncmp(log.text, "found", 5)) { /* absent, or over a shared libssl */
		tlog_free(&log);
		skip();
	}
	assert_null(strstr(log.text, "single-stepped"));
	assert_null(strstr(log.text, "internal"));
	assert_non_null(strstr(log.text, "read 1 emulated +0 SSL_read\n"));
	assert_non_null(strstr(log.text, "read *4 1 emulated +0 SSL_read_ex\n"));
	assert_non_null(strstr(log.text, "write 1 emulated +0 SSL_write\n"));
	assert_non_null(strstr(log.text, "write *4 1 emulated +0 SSL_write_ex\n"));
	tlog_free(&log);
}

/* OpenSSL 3.5 with its internal functions inlined. */
static void node24(void **state)
{
	const char *path = built_path("../clients", "node-24");
	struct tlog log = {0};

	(void)state;
	if (access(path, R_OK)) {
		print_message("# no node 24: 'make clients' could not fetch it\n");
		skip();
	}
	show(&log, path);
	assert_log(&log, "found openssl 3\n"
			 "read 1 emulated +0 SSL_read\n"
			 "read *4 1 emulated +3 SSL_read_ex\n"
			 "write 1 emulated +0 SSL_write\n"
			 "write *4 1 emulated +3 SSL_write_ex\n"
			 "write *5 1 emulated +3 SSL_write_ex2\n"
			 "handshake 1 emulated +3 SSL_do_handshake\n"
			 "new 1 emulated +0 SSL_new\n"
			 "free 1 emulated +3 SSL_free\n");
	tlog_free(&log);
}

/* Programs that only call a TLS library. */
static void users_of_tls(void **state)
{
	static const char *const paths[] = {"/usr/bin/curl", "/usr/bin/wget", "/proc/self/exe", LIB "libcurl.so.4",
					    LIB "libcrypto.so.3"};

	(void)state;
	for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct tlog log = {0};

		if (access(paths[i], R_OK))
			continue;
		show(&log, paths[i]);
		assert_log(&log, "none\n");
		tlog_free(&log);
	}
}

/* Cut while it is mapped, anywhere: an answer or -EIO, and the run goes on. */
static void shrinking(void **state)
{
	char path[] = "/tmp/perfbpf-shrink.XXXXXX", whole[1 << 16];
	FILE *shape = fopen(shape_path("internal"), "rb");
	size_t size, gone = 0;
	int fd;

	(void)state;
	if (!shape)
		skip();
	size = fread(whole, 1, sizeof(whole), shape);
	fclose(shape);
	assert_true(size > 4096 && size < sizeof(whole));
	fd = mkstemp(path);
	assert_true(fd >= 0);
	for (size_t left = 0; left < size; left += 4096) {
		struct tls_finds found;
		struct elf e;
		int err;

		assert_int_equal(pwrite(fd, whole, size, 0), size);
		assert_int_equal(elf_map(&e, path), 0);
		assert_int_equal(ftruncate(fd, (off_t)left), 0);
		err = tlsfind(&e, &found);
		gone += err == -EIO;
		assert_true(err == 0 || ((err == -EIO || err == -ENOENT) && !found.count) || err == -EINVAL);
		elf_unmap(&e);
	}
	assert_true(gone > 0);
	close(fd);
	unlink(path);
}

static void no_memory(void **state)
{
	struct tls_finds found;
	bool hit = true;
	struct elf e;

	(void)state;
	if (elf_map(&e, shape_path("internal")))
		skip();
	for (unsigned n = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = tlsfind(&e, &found);
		hit = fail_nth_hit();
		fail_nth(0);
		/* what could not be looked at may cost the cheaper site, never give a wrong one or a call counted twice
		 */
		assert_true((err == 0 && found.count == 1) || (hit && err == -ENOMEM && !found.count));
		for (unsigned i = 0; found.count && i < found.stacks[0].count; i++)
			assert_true(on_decode_chain(&e, found.stacks[0].funcs[i].site.func_off,
						    found.stacks[0].funcs[i].site.off));
	}
	assert_int_equal(found.stacks[0].count, 5);
	elf_unmap(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes),	cmocka_unit_test(compiled_shapes), cmocka_unit_test(libssl),
		cmocka_unit_test(libgnutls),	cmocka_unit_test(node20),	   cmocka_unit_test(node24),
		cmocka_unit_test(users_of_tls), cmocka_unit_test(shrinking),	   cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests_name("tlsfind", tests, NULL, NULL);
}
