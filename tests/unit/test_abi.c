/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ABI as this compiler sees it, and as clang saw it when it built the BPF object: the same sizes and offsets. */
#include "harness.h"

#include <unistd.h>

#include <bpf/btf.h>
#include <linux/types.h>

#include "bpf/event.h"

#define OBJECT_ENV "PERFBPF_BPF_OBJECT"

static void test_offsets(void **state)
{
	(void)state;
	assert_int_equal(offsetof(struct ev_head, ts_ns), 8);
	assert_int_equal(offsetof(struct ev_head, tid), 20);
	assert_int_equal(offsetof(struct ev_conn, gen), 20);
	assert_int_equal(offsetof(struct ev_data, conn), 24);
	assert_int_equal(offsetof(struct ev_data, pos), 48);
	assert_int_equal(offsetof(struct ev_data, entry_ns), 56);
	assert_int_equal(offsetof(struct ev_data, len), 64);
	assert_int_equal(offsetof(struct ev_data, dir), 72);
	assert_int_equal(offsetof(struct ev_data, bytes), sizeof(struct ev_data));
	assert_int_equal(offsetof(struct ev_gap, dir), 56);
	assert_int_equal(offsetof(struct ev_conn_close, pos), 48);
	assert_int_equal(offsetof(struct ev_handshake, begin_ns), 48);
	assert_int_equal(offsetof(struct ev_conn_sock, addr), 56);
	assert_int_equal(offsetof(struct ev_conn_sock, how), 104);
	assert_int_equal(offsetof(struct ev_sock, addr), 40);
	assert_int_equal(offsetof(struct ev_sock, srtt_us), 84);
	assert_int_equal(offsetof(struct ev_exec, comm), 40);
	assert_int_equal(offsetof(struct ev_exec, bytes), sizeof(struct ev_exec));
	assert_int_equal(offsetof(struct ev_exit, cpu_ns), 48);
	assert_int_equal(offsetof(struct capture_header, kernel), 96);
	assert_int_equal(offsetof(struct capture_header, axes), CAPTURE_HEADER_MIN);
	assert_int_equal(sizeof(struct ev_lost), sizeof(struct ev_head) + 8 * ST_COUNT);
}

/* Append-only numbers: a capture of yesterday reads the same tomorrow. */
static void test_numbers(void **state)
{
	(void)state;
	assert_int_equal(EV_DATA, 1);
	assert_int_equal(EV_GAP, 2);
	assert_int_equal(EV_CONN_OPEN, 3);
	assert_int_equal(EV_CONN_CLOSE, 4);
	assert_int_equal(EV_HANDSHAKE, 5);
	assert_int_equal(EV_CONN_SOCK, 6);
	assert_int_equal(EV_SOCK, 7);
	assert_int_equal(EV_EXEC, 8);
	assert_int_equal(EV_FORK, 9);
	assert_int_equal(EV_EXIT, 10);
	assert_int_equal(EV_PROC, 11);
	assert_int_equal(EV_LOST, 12);
	assert_int_equal(EV_TICK, 13);
	assert_int_equal(EV_CONN_POS, 14);
	assert_int_equal(EV_WIRE, 15);
	assert_int_equal(EV_HELLO, 16);
	assert_int_equal(EV_FILES, 17);
	assert_int_equal(EV_TOOL_CALL, 18);
	assert_int_equal(EV_SAMPLE, 19);
	assert_int_equal(EV_FRAME, 20);
	assert_int_equal(EV_SAMPLING, 21);
	assert_int_equal(EV_DNS, 22);
	assert_int_equal(EV_CPU, 23);
	assert_int_equal(EV_SQLITE_TEXT, 24);
	assert_int_equal(EV_SQLITE_RUN, 25);
	assert_int_equal(EV_FUNC_CALL, 26);
	assert_int_equal(EV_FUNC, 27);
	assert_int_equal(EV_ALLOC_FREE, 28);
	assert_int_equal(EV_ALLOC_WINDOW, 29);
	assert_int_equal(EV_GONE, 30);
	assert_int_equal(EV_TUNNEL, 31);
	assert_int_equal(EV_F_PLAIN, 64);
	assert_int_equal(EV_F_IGNORED, 128);
	assert_int_equal(EV_F_STDIO, 256);
	assert_int_equal(EV_SOCK_ITSELF, 4);
	assert_int_equal(EV_SOCK_RECORDS, 5);
	assert_int_equal(EV_F_HALF, 512);
	assert_int_equal(ST_RING_RECORDS, 0);
	assert_int_equal(ST_UNSEEN, 6);
	assert_int_equal(ST_IGNORED_BYTES, 9);
	assert_int_equal(ST_UNTRACED, 10);
}

static void test_cookie(void **state)
{
	uint64_t cookie = TLS_COOKIE(TLS_ROLE_WRITE, 5, TLS_ABI_C);

	(void)state;
	assert_int_equal(TLS_COOKIE_ROLE(cookie), TLS_ROLE_WRITE);
	assert_int_equal(TLS_COOKIE_LEN_ARG(cookie), 5);
	assert_int_equal(TLS_COOKIE_LEN_ARG(TLS_COOKIE(TLS_ROLE_READ, TLS_LEN_RET, TLS_ABI_C)), TLS_LEN_RET);
	cookie = TLS_COOKIE(TLS_ROLE_READ, 3, TLS_ABI_AEAD) | TLS_COOKIE_PLACE(LIMIT_PROBED_FILES - 1, 1);
	assert_int_equal(TLS_COOKIE_ROLE(cookie), TLS_ROLE_READ);
	assert_int_equal(TLS_COOKIE_ABI(cookie), TLS_ABI_AEAD);
	assert_int_equal(TLS_COOKIE_FILE(cookie), LIMIT_PROBED_FILES - 1);
	assert_int_equal(TLS_COOKIE_UNFREED(cookie), 1);
	assert_int_equal(TLS_COOKIE_UNFREED(TLS_COOKIE_PLACE(0xffff, 0)), 0);
}

static const char *find_object(void)
{
	static char path[4096];
	const char *env = getenv(OBJECT_ENV), *slash;
	ssize_t len;

	if (env)
		return env;
	/* BUILD/tests/unit/abi and BUILD/san/tests/unit/abi */
	len = readlink("/proc/self/exe", path, sizeof(path) - 64);
	if (len < 0)
		return NULL;
	path[len] = 0;
	slash = strstr(path, "/san/tests/unit/");
	if (!slash)
		slash = strstr(path, "/tests/unit/");
	if (!slash)
		return NULL;
	strcpy(path + (slash - path), "/perfbpf.bpf.o");
	return path;
}

static void same_size(const struct btf *btf, const char *name, size_t size)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT);

	if (id < 0)
		fail_msg("struct %s is not in the object's BTF", name);
	if ((size_t)btf__type_by_id(btf, (uint32_t)id)->size != size)
		fail_msg("struct %s: %u bytes in the object, %zu here", name, btf__type_by_id(btf, (uint32_t)id)->size,
			 size);
}

static void same_offset(const struct btf *btf, const char *name, const char *member, size_t offset)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT), i;
	const struct btf_type *t;

	assert_true(id > 0);
	t = btf__type_by_id(btf, (uint32_t)id);
	for (i = 0; i < btf_vlen(t); i++) {
		if (strcmp(btf__name_by_offset(btf, btf_members(t)[i].name_off), member) != 0)
			continue;
		assert_int_equal(btf_member_bit_offset(t, (uint32_t)i), 8 * offset);
		return;
	}
	fail_msg("struct %s has no %s", name, member);
}

#define SAME_SIZE(s)	  same_size(btf, #s, sizeof(struct s))
#define SAME_OFFSET(s, m) same_offset(btf, #s, #m, offsetof(struct s, m))

static void test_object(void **state)
{
	const char *path = find_object();
	struct btf *btf;

	(void)state;
	if (!path || access(path, R_OK))
		skip();
	btf = btf__parse_elf(path, NULL);
	assert_non_null(btf);
	SAME_SIZE(ev_head);
	SAME_SIZE(ev_conn);
	SAME_SIZE(ev_data);
	SAME_SIZE(ev_gap);
	SAME_SIZE(ev_conn_open);
	SAME_SIZE(ev_conn_close);
	SAME_SIZE(ev_handshake);
	SAME_SIZE(ev_addr);
	SAME_SIZE(ev_conn_sock);
	SAME_SIZE(ev_sock);
	SAME_SIZE(ev_exec);
	SAME_SIZE(ev_fork);
	SAME_SIZE(ev_exit);
	SAME_SIZE(ev_gone);
	SAME_SIZE(ev_sample);
	SAME_SIZE(ev_sqlite_text);
	SAME_SIZE(ev_sqlite_run);
	SAME_SIZE(ev_func_call);
	SAME_SIZE(func_rate);
	SAME_SIZE(config);
	SAME_SIZE(target);
	SAME_SIZE(conn_map_key);
	SAME_SIZE(conn_state);
	SAME_SIZE(proc_identity);
	SAME_OFFSET(ev_head, tid);
	SAME_OFFSET(ev_data, pos);
	SAME_OFFSET(ev_data, dir);
	SAME_OFFSET(ev_data, bytes);
	SAME_OFFSET(ev_conn_sock, how);
	SAME_OFFSET(ev_sock, srtt_us);
	SAME_OFFSET(ev_exec, bytes);
	SAME_OFFSET(ev_exit, cpu_ns);
	SAME_OFFSET(ev_sample, syscall);
	SAME_OFFSET(ev_sample, frames);
	SAME_OFFSET(ev_sqlite_text, bytes);
	SAME_OFFSET(ev_sqlite_run, result);
	SAME_OFFSET(ev_func_call, depth);
	SAME_OFFSET(conn_state, flags);
	SAME_OFFSET(conn_state, skip_ns);
	SAME_OFFSET(conn_map_key, exec_id);
	SAME_OFFSET(config, request_bytes);
	btf__free(btf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_cookie),
		cmocka_unit_test(test_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
