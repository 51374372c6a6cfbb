/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "syscalls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/types.h>

#include "base/log.h"
#include "bpf/event.h"

#define NS_PER_S 1000000000ull

struct syscalls {
	struct syscalls_config cfg;
	struct bpf_link *link;
	uint64_t needed_ns;   /* last time, for pipes */
	uint64_t expected_ns; /* last syscalls_expect() */
	bool refused;
	uint8_t value[]; /* of `stdios` */
};

struct syscalls *syscalls_new(const struct syscalls_config *cfg)
{
	struct syscalls *s = calloc(1, sizeof(*s) + cfg->stdio_size);

	if (s)
		s->cfg = *cfg;
	return s;
}

void syscalls_free(struct syscalls *s)
{
	if (!s)
		return;
	syscalls_detach(s);
	free(s);
}

bool syscalls_attached(const struct syscalls *s)
{
	return s->link != NULL;
}

static void attach(struct syscalls *s)
{
	if (s->link || s->refused)
		return;
	s->link = bpf_program__attach(s->cfg.program);
	if (!s->link) {
		s->refused = true;
		log_warn("system calls cannot be traced (%s): what children say over pipes%s is not seen",
			 strerror(errno), s->cfg.sockets ? ", and plain HTTP," : "");
		return;
	}
	__atomic_store_n(s->cfg.seen, 1, __ATOMIC_SEQ_CST);
	log_verbose("system calls are traced");
}

void syscalls_detach(struct syscalls *s)
{
	if (!s->link)
		return;
	__atomic_store_n(s->cfg.seen, 0, __ATOMIC_SEQ_CST);
	bpf_link__destroy(s->link);
	s->link = NULL;
	log_verbose("system calls are not traced any more");
}

/* Whether a pair needs it. */
static bool needs(struct syscalls *s, const uint64_t *key, uint64_t now_ns)
{
	struct stdio_head head;

	if (bpf_map_lookup_elem(s->cfg.stdios_fd, key, s->value))
		return false;
	memcpy(&head, s->value, sizeof(head));
	if (!(head.flags & STDIO_F_SYSCALLS))
		return false;
	if (head.verdict != STDIO_UNDECIDED)
		return head.verdict == STDIO_JSONRPC;
	return !(head.flags & STDIO_F_FRESH) || now_ns / NS_PER_S < head.noted_s + SYSCALLS_SILENT_S;
}

static bool pipes_need(struct syscalls *s, uint64_t now_ns)
{
	uint64_t key, next;
	bool more = bpf_map_get_next_key(s->cfg.stdios_fd, NULL, &next) == 0;

	for (unsigned i = 0; more && i < LIMIT_STDIO; i++) {
		key = next;
		if (needs(s, &key, now_ns))
			return true;
		more = bpf_map_get_next_key(s->cfg.stdios_fd, &key, &next) == 0;
	}
	return false;
}

static bool sockets_need(const struct syscalls *s, uint64_t now_ns)
{
	uint64_t reason_ns = __atomic_load_n(s->cfg.sockets_ns, __ATOMIC_RELAXED);

	if (!s->cfg.sockets)
		return false;
	if (reason_ns < s->expected_ns)
		reason_ns = s->expected_ns;
	return (reason_ns && now_ns < reason_ns + SYSCALLS_SOCKETS_LINGER_NS) ||
	       (int32_t)__atomic_load_n(s->cfg.sockets_open, __ATOMIC_RELAXED) > 0;
}

void syscalls_update(struct syscalls *s, uint64_t now_ns)
{
	if (pipes_need(s, now_ns))
		s->needed_ns = now_ns;
	if ((s->needed_ns && now_ns < s->needed_ns + SYSCALLS_LINGER_NS) || sockets_need(s, now_ns))
		attach(s);
	else
		syscalls_detach(s);
}

void syscalls_expect(struct syscalls *s, uint64_t now_ns)
{
	s->expected_ns = now_ns;
}

uint64_t *syscalls_pairs(struct syscalls *s, size_t *count)
{
	uint64_t next, *keys = NULL;
	bool more = bpf_map_get_next_key(s->cfg.stdios_fd, NULL, &next) == 0;

	*count = 0;
	if (more)
		keys = malloc(LIMIT_STDIO * sizeof(*keys));
	while (keys && more && *count < LIMIT_STDIO) {
		keys[*count] = next;
		more = bpf_map_get_next_key(s->cfg.stdios_fd, &keys[*count], &next) == 0;
		++*count;
	}
	return keys;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void syscalls_forget(struct syscalls *s, const uint64_t *pairs, size_t count, const uint64_t *held, size_t held_count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t in = pairs[i] >> 32, out = (uint32_t)pairs[i], own;
		struct stdio_head head = {0};

		if (held_count && bsearch(&pairs[i], held, held_count, sizeof(*held), compare_u64))
			continue;
		bpf_map_delete_elem(s->cfg.ends_fd, &in);
		bpf_map_delete_elem(s->cfg.ends_fd, &out);
		if (!bpf_map_lookup_elem(s->cfg.stdios_fd, &pairs[i], s->value))
			memcpy(&head, s->value, sizeof(head));
		own = head.child_ino;
		if (own)
			bpf_map_delete_elem(s->cfg.ends_fd, &own);
		bpf_map_delete_elem(s->cfg.stdios_fd, &pairs[i]);
	}
}
