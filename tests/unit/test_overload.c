/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "attach/overload.h"

#define MS   1000000ull
#define SIZE 1024
#define FULL OVERLOAD_FULL(SIZE)

/* Looks every 10 ms. */
static unsigned look(struct overload *o, uint64_t *now, uint64_t used, uint32_t last_gen, unsigned times)
{
	unsigned changes = 0;

	for (unsigned i = 0; i < times; i++) {
		*now += 10 * MS;
		changes += overload_look(o, used, SIZE, false, last_gen, *now);
	}
	return changes;
}

static void steps_in_order(void **state)
{
	struct overload o = {0};
	uint64_t now = 1000 * MS;

	(void)state;
	assert_int_equal(look(&o, &now, FULL - 1, 9, 100), 0);
	assert_int_equal(look(&o, &now, FULL, 9, 2), 0); /* a burst */
	assert_int_equal(look(&o, &now, SIZE / 4, 9, 1), 0);
	assert_int_equal(look(&o, &now, FULL, 9, 3), 1);
	assert_int_equal(o.level, OVERLOAD_PAYLOAD);
	assert_int_equal(look(&o, &now, SIZE, 9, 2), 1);
	assert_int_equal(o.level, OVERLOAD_HEADS);
	assert_int_equal(o.dropped, 0);
	assert_int_equal(look(&o, &now, SIZE, 9, 2), 1);
	assert_int_equal(o.level, OVERLOAD_CONNECTIONS);
	assert_int_equal(o.dropped, 5);
	/* Half of the rest each time, and then the newest. */
	assert_int_equal(look(&o, &now, SIZE, 9, 2), 1);
	assert_int_equal(o.dropped, 7);
	assert_int_equal(look(&o, &now, SIZE, 9, 20), 2);
	assert_int_equal(o.dropped, 9);
	assert_int_equal(o.highest, OVERLOAD_CONNECTIONS);
}

static void recovers_by_itself(void **state)
{
	struct overload o = {0};
	uint64_t now = 1000 * MS, began;

	(void)state;
	look(&o, &now, SIZE, 9, 7);
	assert_int_equal(o.level, OVERLOAD_CONNECTIONS);
	/* Neither full nor calm: it stays. */
	assert_int_equal(look(&o, &now, SIZE / 4, 9, 500), 0);
	assert_int_equal(look(&o, &now, 0, 9, 99), 0);
	assert_int_equal(look(&o, &now, 0, 9, 2), 1);
	assert_int_equal(o.level, OVERLOAD_HEADS);
	assert_int_equal(o.dropped, 0);
	assert_int_equal(look(&o, &now, 0, 9, 200), 2);
	assert_int_equal(o.level, OVERLOAD_NONE);
	assert_int_equal(o.highest, OVERLOAD_CONNECTIONS);
	began = overload_spent_ns(&o, now);
	assert_true(began > 8000 * MS && began < 8500 * MS);
	assert_int_equal(look(&o, &now, 0, 9, 1000), 0);
	assert_true(overload_spent_ns(&o, now) == began);
	/* And it can happen again. */
	assert_int_equal(look(&o, &now, SIZE, 9, 3), 1);
	assert_int_equal(o.level, OVERLOAD_PAYLOAD);
	assert_true(overload_spent_ns(&o, now + 7 * MS) == began + 7 * MS);
}

/* A drain empties it, and that is no calm; one that cannot is full. */
static void while_draining(void **state)
{
	struct overload o = {0};
	uint64_t now = 1000 * MS;

	(void)state;
	assert_false(overload_look(&o, SIZE, SIZE, false, 9, now));
	assert_false(overload_look(&o, 0, SIZE, true, 9, now + 30 * MS));
	assert_true(overload_look(&o, FULL, SIZE, false, 9, now + 300 * MS));
	assert_int_equal(o.level, OVERLOAD_PAYLOAD);
	assert_true(overload_look(&o, SIZE, SIZE, true, 9, now + 330 * MS));
	assert_int_equal(o.level, OVERLOAD_HEADS);
}

static void every_level_has_a_text(void **state)
{
	(void)state;
	for (uint32_t i = OVERLOAD_NONE; i <= OVERLOAD_CONNECTIONS; i++)
		assert_non_null(overload_text(i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_in_order),
		cmocka_unit_test(recovers_by_itself),
		cmocka_unit_test(while_draining),
		cmocka_unit_test(every_level_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
