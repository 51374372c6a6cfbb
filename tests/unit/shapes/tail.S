/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Cheap public functions, and an SSL_write_ex that jumps on to SSL_write_ex2 without a PLT (-fno-plt). SSL_read calls
 * SSL_read_ex through the PLT, frame pointer and all: it would be counted twice. */
	.include "shape.inc"
	FUNC SSL_read
	pushq %rbp
	movq %rsp, %rbp
	subq $48, %rsp
	movq %rdi, -24(%rbp)
	movq %rsi, -32(%rbp)
	movl %edx, -36(%rbp)
	cmpl $0, -36(%rbp)
	jns 1f
	movl $-1, %eax
	jmp 2f
1:	movl -36(%rbp), %eax
	movslq %eax, %rdx
	leaq -16(%rbp), %rcx
	movq -32(%rbp), %rsi
	movq -24(%rbp), %rax
	movq %rax, %rdi
	call SSL_read_ex@PLT
	movl -16(%rbp), %eax
2:	leave
	ret
	END SSL_read
	FUNC SSL_read_ex
	pushq %rbx
	movq $0, (%rcx)
	popq %rbx
	ret
	END SSL_read_ex
	FUNC SSL_write
	pushq %rbx
	popq %rbx
	ret
	END SSL_write
	FUNC SSL_write_ex
	movq %rcx, %r8
	xorl %ecx, %ecx
	jmp *SSL_write_ex2@GOTPCREL(%rip)
	END SSL_write_ex
	FUNC SSL_write_ex2
	pushq %rbx
	popq %rbx
	ret
	END SSL_write_ex2
	LIFE
