/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OpenSSL 3.5 with CET: endbr64 everywhere, a write function with flags, SSL_write_ex only jumps on through the PLT. */
	.include "shape.inc"
	INTERNAL ssl_read_internal, 1
	HIDDEN ssl_write_internal
	endbr64
	pushq %r12
	movq %rdx, (%r8)
	movl $1, %eax
	popq %r12
	ret
	END ssl_write_internal
	PLAIN SSL_read, ssl_read_internal, 1
	EX SSL_read_ex, ssl_read_internal, 1

	FUNC SSL_write
	endbr64
	subq $24, %rsp
	testl %edx, %edx
	js 1f
	movslq %edx, %rdx
	leaq 8(%rsp), %r8
	xorl %ecx, %ecx
	call ssl_write_internal
	testl %eax, %eax
	cmovg 8(%rsp), %eax
2:	addq $24, %rsp
	ret
1:	movl $-1, %eax
	jmp 2b
	END SSL_write

	EX SSL_write_ex2, ssl_write_internal, 1

	FUNC SSL_write_ex
	endbr64
	movq %rcx, %r8
	xorl %ecx, %ecx
	jmp SSL_write_ex2@PLT
	END SSL_write_ex

	FUNC SSL_do_handshake
	endbr64
	pushq %rbx
	movl $1, %eax
	popq %rbx
	ret
	END SSL_do_handshake
	FUNC SSL_get1_peer_certificate
	endbr64
	ret
	END SSL_get1_peer_certificate
