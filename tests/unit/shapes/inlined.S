/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The internal functions inlined (node 24's way, without its cheap prologues): the first call of all four is the same, and no
 * TLS function at all; the work is done through a pointer. */
	.include "shape.inc"
	HIDDEN check_finish_init
	pushq %rbx
	movl $1, %eax
	popq %rbx
	ret
	END check_finish_init

	.macro INLINED name, sending, plain
	FUNC \name
	subq $40, %rsp
	movq %rdi, 16(%rsp)
	movq %rsi, 24(%rsp)
	movq %rdx, 32(%rsp)
	movq %rcx, (%rsp)
	movl $\sending, %esi
	call check_finish_init
	movq 16(%rsp), %rdi
	movq 24(%rsp), %rsi
	movq 32(%rsp), %rdx
	.if \plain
	leaq 8(%rsp), %rcx
	.else
	movq (%rsp), %rcx
	.endif
	movq 24(%rdi), %rax
	call *56(%rax)
	addq $40, %rsp
	ret
	END \name
	.endm
	INLINED SSL_read, 0, 1
	INLINED SSL_read_ex, 0, 0
	INLINED SSL_write, 1, 1
	INLINED SSL_write_ex, 1, 0
	LIFE
