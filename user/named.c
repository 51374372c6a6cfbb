/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "named.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define NS_PER_SEC 1000000000ull

struct one {
	enum func_state state;
	bool slow;
	uint64_t window_ns, window_calls; /* since when, and what the count was then */
};

struct named {
	const struct func_spec *specs;
	unsigned count;
	struct probes *probes;
	capture_fn fn;
	void *ctx;
	struct one all[RECORD_FUNCS_MAX];
};

static void tell(struct named *n, unsigned i, uint64_t now_ns)
{
	struct rec_func r = {.ts_ns = now_ns, .func = i, .state = n->all[i].state, .name = sv_of(n->specs[i].text)};

	probes_function_calls(n->probes, i, &r.calls, &r.untold);
	capture_make_func(&r, n->fn, n->ctx);
}

struct named *named_new(const struct func_spec *specs, unsigned count, struct probes *probes, capture_fn fn, void *ctx)
{
	struct named *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	*n = (struct named){.specs = specs, .count = count, .probes = probes, .fn = fn, .ctx = ctx};
	for (unsigned i = 0; i < count; i++)
		n->all[i].state = FUNC_NOWHERE;
	return n;
}

void named_free(struct named *n)
{
	free(n);
}

/* A function in one of the files that match. What is traced once stays so. */
static void on_function(void *ctx, unsigned i, const char *path, bool slow, const char *why)
{
	struct named *n = ctx;
	struct one *one = &n->all[i];
	char text[256];

	log_safe(text, sizeof(text), sv_of(path));
	if (why && one->state != FUNC_TRACED)
		one->state = FUNC_REFUSED;
	if (why) {
		log_warn("-f %s: not traced in %s: %s", n->specs[i].text, text, why);
	} else {
		one->slow |= slow;
		one->state = FUNC_TRACED;
		one->window_ns = 0;
		log_verbose("-f %s: traced in %s", n->specs[i].text, text);
	}
	tell(n, i, clock_boot_ns());
}

void named_discover(struct named *n, struct discover *d)
{
	discover_functions(d, n->specs, n->count, on_function, n);
	for (unsigned i = 0; i < n->count; i++)
		tell(n, i, clock_boot_ns());
}

static void guard(struct named *n, unsigned i, uint64_t now_ns)
{
	struct one *one = &n->all[i];
	uint64_t calls, untold, limit = one->slow ? NAMED_SLOW_CALLS_PER_S : NAMED_CALLS_PER_S;

	probes_function_calls(n->probes, i, &calls, &untold);
	if (calls - one->window_calls > limit && one->window_ns) {
		probes_stop_function(n->probes, n->specs[i].text);
		one->state = FUNC_STOPPED;
		log_warn("-f %s: called more than %llu times a second: it is not traced any more, that would slow its "
			 "program",
			 n->specs[i].text, (unsigned long long)limit);
		tell(n, i, now_ns);
		return;
	}
	if (now_ns - one->window_ns < NS_PER_SEC)
		return;
	one->window_ns = now_ns;
	one->window_calls = calls;
}

void named_tick(struct named *n, uint64_t now_ns)
{
	for (unsigned i = 0; i < n->count; i++)
		if (n->all[i].state == FUNC_TRACED)
			guard(n, i, now_ns);
}

unsigned named_finish(struct named *n, uint64_t now_ns)
{
	unsigned missing = 0;

	for (unsigned i = 0; i < n->count; i++) {
		if (n->all[i].state == FUNC_NOWHERE)
			log_warn("-f %s: no traced process maps a file of that name", n->specs[i].text);
		missing += n->all[i].state != FUNC_TRACED;
		tell(n, i, now_ns);
	}
	return missing;
}
