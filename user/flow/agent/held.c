/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "held.h"

#include <stdio.h>
#include <stdlib.h>

struct held_turn *held_turn_new(const struct turn *t, uint64_t lane, const char *turn_id)
{
	struct held_turn *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->turn = *t;
	h->lane = lane;
	snprintf(h->session_id, sizeof(h->session_id), "%s", t->session_id ? t->session_id : "");
	snprintf(h->turn_id, sizeof(h->turn_id), "%s", turn_id ? turn_id : "");
	h->turn.session_id = t->session_id ? h->session_id : NULL;
	h->turn.turn_id = h->turn_id[0] ? h->turn_id : NULL;
	h->wall = walltime_new(t->at.begin_ns);
	if (h->wall)
		return h;
	free(h);
	return NULL;
}

void held_turn_free(struct held_turn *h)
{
	if (!h)
		return;
	walltime_free(h->wall);
	free(h);
}

int held_turn_report(const struct held_turn *h, struct turn *out)
{
	int err;

	*out = h->turn;
	out->model = models_waited(&h->models, &out->model_share);
	out->writer = models_wrote(&h->models, &out->writer_share);
	err = walltime_report(h->wall, out->at.end_ns, &out->wall);
	if (err)
		out->wall = (struct walltime_report){0};
	return err;
}

struct held_tool *held_tool_new(const struct agent_tool *t)
{
	struct held_tool *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->tool = *t;
	snprintf(h->id, sizeof(h->id), "%s", t->id ? t->id : "");
	snprintf(h->name, sizeof(h->name), "%s", t->name ? t->name : "");
	h->tool.id = t->id ? h->id : NULL;
	h->tool.name = t->name ? h->name : NULL;
	h->tool.program = NULL;
	return h;
}
