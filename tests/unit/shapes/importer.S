/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Uses a TLS library and is none. */
	.include "shape.inc"
	FUNC use_tls
	pushq %rbx
	call SSL_read@PLT
	call SSL_write@PLT
	popq %rbx
	ret
	END use_tls
