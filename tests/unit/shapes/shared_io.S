/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading and writing end in one function: nothing there tells the directions apart. */
	.include "shape.inc"
	INTERNAL ssl_io_internal
	PLAIN SSL_read, ssl_io_internal
	EX SSL_read_ex, ssl_io_internal
	PLAIN SSL_write, ssl_io_internal
	EX SSL_write_ex, ssl_io_internal
	LIFE
