/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OpenSSL 3.0 without CET: slow public functions over two internal ones; SSL_peek has a third. */
	.include "shape.inc"
	INTERNAL ssl_read_internal
	INTERNAL ssl_write_internal
	INTERNAL ssl_peek_internal
	PLAIN SSL_read, ssl_read_internal
	EX SSL_read_ex, ssl_read_internal
	PLAIN SSL_peek, ssl_peek_internal
	EX SSL_peek_ex, ssl_peek_internal
	PLAIN SSL_write, ssl_write_internal
	EX SSL_write_ex, ssl_write_internal
	LIFE
