/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OpenSSL 1.0: no _ex function, no handshake function that is known. */
	.include "shape.inc"
	FUNC SSL_read
	pushq %rbx
	popq %rbx
	ret
	END SSL_read
	FUNC SSL_write
	testl %edx, %edx
	js 1f
	jmp *32(%rdi)
1:	ret
	END SSL_write
	FUNC SSL_free
	pushq %rbx
	popq %rbx
	ret
	END SSL_free
