/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SSL_peek goes through the read function, behind a helper: what it sees must not be counted as read. */
	.include "shape.inc"
	INTERNAL ssl_read_internal
	INTERNAL ssl_write_internal
	EX peek_helper, ssl_read_internal
	PLAIN SSL_read, ssl_read_internal
	EX SSL_read_ex, ssl_read_internal
	PLAIN SSL_peek, peek_helper
	PLAIN SSL_write, ssl_write_internal
	EX SSL_write_ex, ssl_write_internal
	LIFE
