/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct function {
	char *name; /* NULL: nobody told */
	uint64_t calls, untold;
	enum func_state state;
};

struct functions {
	struct function all[RECORD_FUNCS_MAX];
};

static const char *const states[] = {[FUNC_TRACED] = "traced",
				     [FUNC_NOWHERE] = "not_mapped",
				     [FUNC_REFUSED] = "refused",
				     [FUNC_STOPPED] = "stopped"};

struct functions *functions_new(void)
{
	return calloc(1, sizeof(struct functions));
}

void functions_free(struct functions *f)
{
	if (!f)
		return;
	for (unsigned i = 0; i < RECORD_FUNCS_MAX; i++)
		free(f->all[i].name);
	free(f);
}

int functions_push(struct functions *f, const struct rec_func *r)
{
	struct function *one = &f->all[r->func];
	char *name = strndup(r->name.ptr, r->name.len);

	if (!name)
		return -ENOMEM;
	free(one->name);
	*one = (struct function){name, r->calls, r->untold, r->state};
	return 0;
}

const char *functions_name(const struct functions *f, uint32_t func)
{
	return func < RECORD_FUNCS_MAX ? f->all[func].name : NULL;
}

void functions_json(const struct functions *f, struct json *j)
{
	bool any = false;

	for (unsigned i = 0; i < RECORD_FUNCS_MAX; i++) {
		const struct function *one = &f->all[i];

		if (!one->name)
			continue;
		if (!any)
			json_array(j, "functions");
		any = true;
		json_object(j, NULL);
		json_string(j, "function", sv_of(one->name));
		json_string(j, "state", sv_of(states[one->state]));
		json_uint(j, "calls", one->calls);
		json_uint(j, "calls_without_span", one->untold);
		json_end_object(j);
	}
	if (any)
		json_end_array(j);
}
