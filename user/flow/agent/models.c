/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "models.h"

#include <stdio.h>
#include <string.h>

static struct models_entry *entry_of(struct models *m, const char *model)
{
	char name[AGENT_TEXT_BYTES];

	snprintf(name, sizeof(name), "%s", model);
	for (unsigned i = 0; i < m->count; i++)
		if (!strcmp(m->of[i].name, name))
			return &m->of[i];
	if (m->count == MODELS_OF_TURN)
		return NULL;
	memcpy(m->of[m->count].name, name, sizeof(name));
	return &m->of[m->count++];
}

void models_add(struct models *m, const struct call *c)
{
	const char *model = c->model ? c->model : c->request_model;
	struct models_entry *e = model && *model ? entry_of(m, model) : NULL;

	uint64_t waited_ns, wrote_ns;

	if (!models_times(c, &waited_ns, &wrote_ns))
		return;
	m->waited_ns += waited_ns;
	m->wrote_ns += wrote_ns;
	if (!e)
		return;
	e->waited_ns += waited_ns;
	e->wrote_ns += wrote_ns;
}

bool models_times(const struct call *c, uint64_t *waited_ns, uint64_t *wrote_ns)
{
	if (!call_has_start(c) || c->first_token_ns == UNKNOWN_NS || c->first_token_ns < c->start_ns)
		return false;
	*waited_ns = c->first_token_ns - c->start_ns;
	*wrote_ns = c->end_ns != UNKNOWN_NS && c->end_ns > c->first_token_ns ? c->end_ns - c->first_token_ns : 0;
	return true;
}

double models_share(uint64_t ns, uint64_t all_ns)
{
	return all_ns ? (double)ns / (double)all_ns : 0;
}

const char *models_waited(const struct models *m, double *share)
{
	const struct models_entry *top = m->of;

	for (unsigned i = 1; i < m->count; i++)
		top = m->of[i].waited_ns > top->waited_ns ? &m->of[i] : top;
	*share = models_share(m->count ? top->waited_ns : 0, m->waited_ns);
	return m->count ? top->name : NULL;
}

const char *models_wrote(const struct models *m, double *share)
{
	const struct models_entry *top = m->of;

	for (unsigned i = 1; i < m->count; i++)
		top = m->of[i].wrote_ns > top->wrote_ns ? &m->of[i] : top;
	*share = models_share(m->count ? top->wrote_ns : 0, m->wrote_ns);
	return m->count ? top->name : NULL;
}
