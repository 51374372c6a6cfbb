/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loads the programs in two parts at once: nearly all of a start is the kernel's verifier, which looks at one program
 * for each thread that asks. Each part is the same object, opened once more; maps and variables are made once, before.
 */
#include "probes_parts.h"

#include <malloc.h>
#include <sched.h>

#include "perfbpf.skel.h"

struct part {
	struct perfbpf_bpf *skel;
	const struct perfbpf_bpf *whole;
	struct aside loading;
};

/* Those that copy what sockets move. The verifier takes as long for them as for all the others. */
static bool copies_sockets(const struct perfbpf_bpf *skel, const struct bpf_program *program)
{
	return program == skel->progs.sock_sent || program == skel->progs.sock_received ||
	       program == skel->progs.call_returned;
}

/* NULL and errno. */
static struct perfbpf_bpf *part_open(const struct perfbpf_bpf *whole, bool sockets)
{
	struct perfbpf_bpf *part = perfbpf_bpf__open();

	for (int i = 0; part && i < part->skeleton->prog_cnt; i++) {
		const struct bpf_program *like = *whole->skeleton->progs[i].prog;
		struct bpf_program *program = *part->skeleton->progs[i].prog;

		bpf_program__set_autoload(program,
					  bpf_program__autoload(like) && copies_sockets(part, program) == sockets);
		bpf_program__set_expected_attach_type(program, bpf_program__expected_attach_type(like));
	}
	return part;
}

/* 0 or -errno. */
static int part_load(void *ctx)
{
	struct part *part = ctx;

	for (int i = 0; i < part->skel->skeleton->map_cnt; i++) {
		int err = bpf_map__reuse_fd(*part->skel->skeleton->maps[i].map,
					    bpf_map__fd(*part->whole->skeleton->maps[i].map));

		if (err)
			return err;
	}
	return perfbpf_bpf__load(part->skel);
}

/* What the part loaded the whole has from now on. */
static void part_hand_over(const struct part *part, struct perfbpf_bpf *whole)
{
	for (int i = 0; i < whole->skeleton->prog_cnt; i++) {
		struct bpf_program *program = *part->skel->skeleton->progs[i].prog;

		if (bpf_program__autoload(program))
			*whole->skeleton->progs[i].prog = program;
	}
}

static int load_parts(struct perfbpf_bpf *whole, struct perfbpf_bpf *skels[PROBES_PARTS])
{
	struct part parts[PROBES_PARTS] = {0};
	int err, aside_err;

	for (unsigned i = 0; i < PROBES_PARTS; i++) {
		skels[i] = part_open(whole, i != 0);
		if (!skels[i])
			return -errno;
		parts[i].skel = skels[i];
		parts[i].whole = whole;
	}
	for (int i = 0; i < whole->skeleton->prog_cnt; i++)
		bpf_program__set_autoload(*whole->skeleton->progs[i].prog, false);
	err = perfbpf_bpf__load(whole);
	if (err)
		return err;
	aside_begin(&parts[1].loading, part_load, &parts[1]);
	err = part_load(&parts[0]);
	aside_err = aside_end(&parts[1].loading);
	if (err || aside_err)
		return err ? err : aside_err;
	for (unsigned i = 0; i < PROBES_PARTS; i++)
		part_hand_over(&parts[i], whole);
	malloc_trim(0); /* all types of the kernel were in memory three times */
	return 0;
}

int probes_load(struct probes *p)
{
	cpu_set_t processors;

	if (!sched_getaffinity(0, sizeof(processors), &processors) && CPU_COUNT(&processors) == 1)
		return perfbpf_bpf__load(p->skel);
	return load_parts(p->skel, p->parts);
}

void probes_unload(struct probes *p)
{
	perfbpf_bpf__destroy(p->skel);
	for (unsigned i = 0; i < PROBES_PARTS; i++)
		perfbpf_bpf__destroy(p->parts[i]);
}
