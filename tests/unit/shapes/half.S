/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads and never writes. */
	.include "shape.inc"
	INTERNAL ssl_read_internal
	EX SSL_read_ex, ssl_read_internal
	LIFE
