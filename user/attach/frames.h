/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_FRAMES_H
#define ATTACH_FRAMES_H

/*
 * Where functions begin, by the unwind tables that a stripped file keeps: .eh_frame_hdr is a table of all descriptions
 * of .eh_frame, sorted by address (Linux Standard Base, Core, "Exception Frames"). Some programs have none. Private to
 * the finder.
 */

#include "elf.h"

struct frames {
	const struct elf *e;
	uint64_t table_off; /* file offset of the entries */
	uint64_t vaddr;	    /* that they are relative to */
	uint32_t count;	    /* 0: no table that can be read */
};

void frames_open(struct frames *f, const struct elf *e);

/*
 * The last function that begins at or before a file offset, and not more than `reach` bytes before it: its entry. What
 * is described but is only a part of a function (its frame is already set up there, or it is not aligned as functions
 * are) does not count. False: none.
 */
bool frames_function_before(const struct frames *f, uint64_t off, uint64_t reach, uint64_t *entry);

#endif
