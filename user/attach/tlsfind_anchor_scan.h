/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TLSFIND_ANCHOR_SCAN_H
#define ATTACH_TLSFIND_ANCHOR_SCAN_H

/*
 * What the bytes of a file look like, before any of them is decoded: its strings, what may refer to them, and what may
 * call the functions that do. Private child of tlsfind_anchor.c.
 */

#include "tlsfind_anchor.h"

#define FUNCTION_BYTES_MAX 0x4000 /* from an entry to a reference */

/* Fills strings, refs (the array is there) and calls; sorted. 0 or -ENOMEM. */
int anchors_scan(struct anchors *a);
void anchors_scan_strings(struct anchors *a); /* these only */
/* The references cannot be told apart: the first reason stays. Static text. */
void anchors_refuse_file(struct anchors *a, const char *reason);

#endif
