/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A trace file: any bytes. What is accepted can be shown, and compared with itself. */
#include "view/report.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report_view v = {.top = 10}, json = {.top = 10, .json = true};
	struct sv rest = {(const char *)data, size};
	struct report *r = report_new();
	bool regressed;
	struct buf out;
	char why[160];
	int err = 0;

	if (!r)
		return 0;
	if (size % 2 && report_choose_operations(r, "m|T"))
		__builtin_trap();
	if (size % 3 == 1)
		report_since(r, 500);
	while (rest.len && !err)
		err = report_line(r, sv_cut(rest, '\n', &rest));
	if (!err)
		err = report_end(r);
	if (err && err != -EBADMSG && err != -ENOMEM)
		__builtin_trap();
	buf_init(&out, 0);
	if (!err && (report_render(r, &v, &out) || report_render(r, &json, &out)))
		__builtin_trap();
	for (enum report_by by = REPORT_ALL; by < REPORT_BYS && !err; by++) {
		int folded = report_folded(r, by, &out);

		if (folded && (folded != -ENODATA || !report_no_samples(r, by)))
			__builtin_trap();
	}
	if (!err && !report_diff(r, r, size % 5 ? &v : &json, 0, &out, &regressed, why) && regressed)
		__builtin_trap();
	buf_release(&out);
	report_free(r);
	return 0;
}
