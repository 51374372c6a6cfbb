/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A byte of dialect and setting, then a statement. Where it is cut must not show, and what is quoted must be a value.
 */
#include "flow/db/shape.h"
#include "tests/fuzz/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct sv out)
{
	if (out.len > SHAPE_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct shape whole, pieces;
	struct sv a, b;
	uint8_t kind;

	if (!size)
		return 0;
	kind = data[0];
	data++, size--;
	shape_init(&whole, (enum shape_dialect)(kind % 3), (enum shape_backslash)(kind / 3 % 3));
	shape_init(&pieces, (enum shape_dialect)(kind % 3), (enum shape_backslash)(kind / 3 % 3));
	shape_push(&whole, data, size);
	for (size_t i = 0; i < size; i++)
		shape_push(&pieces, data + i, 1);
	a = shape_finish(&whole);
	b = shape_finish(&pieces);
	check(a);
	if (!sv_eq(a, b))
		abort();
	/* In quotes it is a value, and nothing else. */
	if (kind & 0x80 || memchr(data, '\'', size) || memchr(data, '\\', size))
		return 0;
	shape_init(&whole, (enum shape_dialect)(kind % 3), (enum shape_backslash)(kind / 3 % 3));
	shape_push(&whole, "'", 1);
	shape_push(&whole, data, size);
	shape_push(&whole, "'", 1);
	if (!sv_eq(shape_finish(&whole), SV("?")))
		abort();
	return 0;
}
