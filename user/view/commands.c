/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records of database commands. */
#include "views.h"

#include "base/json.h"

int view_db_json(struct buf *out, const struct db_command *c, const struct proc *p, uint64_t start_ns)
{
	size_t before = out->len;
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "type", SV("db"));
	json_uint(&j, "pid", c->proc.tgid);
	json_uint(&j, "tid", c->tid);
	json_string(&j, "process", p && p->name[0] ? sv_of(p->name) : SV_NONE);
	json_double(&j, "start_ms", ((double)c->start_ns - (double)start_ns) / 1e6, 6);
	json_string(&j, "system", sv_of(c->system));
	json_string(&j, "shape", c->shape.len ? c->shape : SV_NONE);
	json_double(&j, "dur_ms", (double)(c->end_ns > c->start_ns ? c->end_ns - c->start_ns : 0) / 1e6, 6);
	if (c->rows < 0)
		json_null(&j, "rows");
	else
		json_int(&j, "rows", c->rows);
	json_string(&j, "error", *c->error ? sv_of(c->error) : SV_NONE);
	json_bool(&j, "complete", !c->unfinished);
	return json_end_line(&j, before);
}
