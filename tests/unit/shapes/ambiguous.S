/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two internal functions take the same arguments on two paths of SSL_read; writing is as in internal.S. */
	.include "shape.inc"
	INTERNAL first_internal
	INTERNAL second_internal
	INTERNAL ssl_write_internal
	FUNC SSL_read
	subq $24, %rsp
	movslq %edx, %rdx
	leaq 8(%rsp), %rcx
	cmpl $0, (%rdi)
	je 1f
	call first_internal
	addq $24, %rsp
	ret
1:	call second_internal
	addq $24, %rsp
	ret
	END SSL_read
	EX SSL_read_ex, first_internal
	PLAIN SSL_write, ssl_write_internal
	EX SSL_write_ex, ssl_write_internal
	LIFE
