/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The internal functions are called through wrappers: one that only jumps on, and the library's own PLT. And a path on which
 * the buffer is exchanged for another one. */
	.include "shape.inc"
	INTERNAL ssl_read_internal
	FUNC ssl_write_internal
	pushq %r12
	movl $1, %eax
	popq %r12
	ret
	END ssl_write_internal
	HIDDEN read_wrapper
	nop
	jmp ssl_read_internal
	END read_wrapper
	PLAIN SSL_read, read_wrapper
	EX SSL_read_ex, ssl_read_internal
	PLAIN SSL_write, ssl_write_internal@PLT
	EX SSL_write_ex, ssl_write_internal@PLT
	LIFE
