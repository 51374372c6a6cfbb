/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* On one path SSL_read hands on another buffer than its own: the paths meet before the call. SSL_write_ex has no other half. */
	.include "shape.inc"
	INTERNAL ssl_read_internal
	INTERNAL ssl_write_internal
	FUNC SSL_read
	subq $24, %rsp
	movslq %edx, %rdx
	leaq 8(%rsp), %rcx
	cmpl $0, (%rdi)
	je 1f
	movq 16(%rdi), %rsi
1:	call ssl_read_internal
	addq $24, %rsp
	ret
	END SSL_read
	EX SSL_read_ex, ssl_read_internal
	EX SSL_write_ex, ssl_write_internal
	LIFE
