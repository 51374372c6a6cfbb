/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_SYSCALLS_H
#define ATTACH_SYSCALLS_H

/*
 * The one program at the end of every system call (bpf/syscall.bpf.c): attached while something needs it, and not
 * longer, because every program of the machine pays for it. Needed
 *   - while a target and a child of it are joined by a pipe over which JSON-RPC is spoken, or nothing yet (for
 *     SYSCALLS_SILENT_S; a child that was there before us may be silent for longer);
 *   - where the kernel does not tell what sockets send and receive (before 6.3): while a target has a stream socket
 *     that carries plain HTTP or has not shown what it carries, and for a while after a start, an exec, a connect,
 *     bytes over such a socket, or TLS of Go or of ciphers, whose connections only sockets tell apart. What moved
 *     before is not seen.
 * Private child of probes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSCALLS_LINGER_NS	   1000000000ull /* how long it stays attached after it was needed for pipes */
#define SYSCALLS_SILENT_S	   60 /* a child that was started so long ago and has not been spoken to is no server */
#define SYSCALLS_SOCKETS_LINGER_NS 30000000000ull /* and for sockets */

struct bpf_program;

struct syscalls_config {
	struct bpf_program *program;
	int stdios_fd, ends_fd; /* maps, borrowed */
	uint32_t stdio_size;	/* bytes of a value of `stdios` */
	bool sockets;		/* it must show what sockets carry too */
	/* The kernel's variables of these names. */
	uint32_t *seen; /* syscalls_seen */
	const uint32_t *sockets_open;
	const unsigned long long *sockets_ns;
};

struct syscalls;

struct syscalls *syscalls_new(const struct syscalls_config *cfg); /* NULL: no memory */
void syscalls_free(struct syscalls *s);				  /* detaches; NULL is fine */

/* Attaches or detaches. Cheap: after every exec, and now and then. */
void syscalls_update(struct syscalls *s, uint64_t now_ns);
/* A process is new to us, or runs a new program: its sockets are to be seen from now on. */
void syscalls_expect(struct syscalls *s, uint64_t now_ns);
void syscalls_detach(struct syscalls *s);
bool syscalls_attached(const struct syscalls *s);

/* Pairs that the kernel knows now: keys of `stdios`, allocated; NULL: none, or no memory. */
uint64_t *syscalls_pairs(struct syscalls *s, size_t *count);
/* Forgets those of `pairs` that are not among `held` (sorted): nobody can speak over them any more. */
void syscalls_forget(struct syscalls *s, const uint64_t *pairs, size_t count, const uint64_t *held, size_t held_count);

#endif
