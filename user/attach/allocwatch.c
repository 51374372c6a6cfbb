/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "allocwatch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/types.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "bpf/event.h"

#define FIRST_SHARE	 32 /* of its bytes, a process is thought to be looked at before that is known: one in so many */
#define PERIOD_MIN_SIZES 128 /* at most one allocation of so many is sampled */
#define FOLLOW_WINDOWS	 3   /* one window of so many sees what is freed, and every function */
#define LAYER_WINDOWS	 2   /* so do as many at first */
/* Calls of a function: where they all were handed on to it, one in 300 is not, at most (95 %). */
#define HANDED_MIN 1000
/* Of so many, by number and by bytes, one may look otherwise: a stack that could not be read. */
#define HANDED_SHARE 1000
#define RETRY_NS     10000000000ull /* after a window that failed */

struct file {
	int fd;
	struct alloc_find found;
};

/* How the functions of a file are called, as the windows that see all of them tell. */
struct callers {
	struct {
		uint64_t handed, direct, handed_bytes, direct_bytes; /* as in struct alloc_site */
	} of[ALLOCFIND_MAX];
};

struct process {
	pid_t pid;
	bool known; /* start_ns, exec_id, since_cpu_ns */
	bool gone;  /* forgotten while its window is open */
	uint64_t start_ns;
	uint32_t exec_id;
	uint64_t since_cpu_ns;
	int files[ALLOCWINDOW_FILES];
	struct callers *callers; /* of each of files; NULL: nobody hands on here, as far as is known */
	unsigned file_count;
	unsigned windows;
	uint64_t due_ns;       /* no window before */
	uint64_t windowed_cpu; /* its processor time at the last one */
	uint64_t length_ns;    /* of the next one */
	uint64_t own_ns;       /* of its processor time, without traps, that was in windows */
	uint64_t traps_ns;     /* what all traps took */
	uint64_t mean;	       /* bytes of an allocation, in the last window */
	UT_hash_handle hh;
};

struct allocwatch {
	struct allocwatch_config cfg;
	struct allocwindow *window;
	struct file *files[ALLOCWATCH_FILES_MAX];
	int file_count;
	struct process *processes;
	struct process *at; /* whose window is open; NULL: none is */
	uint32_t period;    /* of its samples */
	bool follows;	    /* it sees what is freed, and */
	bool layers;	    /* every function */
	bool over;	    /* and was collected */
	struct allocwindow_result result;
	bool stopped, told;
	uint64_t look_ns; /* not before: nobody was busy */
	unsigned refused;
};

/* --- who --------------------------------------------------------------------------------------------------------- */

static struct process *find(const struct allocwatch *w, pid_t pid)
{
	struct process *p;

	HASH_FIND(hh, w->processes, &pid, sizeof(pid), p);
	return p;
}

/* NULL: no room, counted. */
static struct process *process_of(struct allocwatch *w, pid_t pid)
{
	struct process *p = find(w, pid);

	if (p)
		return p;
	p = HASH_COUNT(w->processes) < ALLOCWATCH_PROCESSES_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (p) {
		p->pid = pid;
		p->length_ns = ALLOCWATCH_LENGTH_MIN_NS;
		HASH_ADD(hh, w->processes, pid, sizeof(pid), p);
	}
	if (p && p->hh.tbl)
		return p;
	free(p);
	w->refused++;
	return NULL;
}

/* Its identity, and its clock from now on. False: it is gone. */
static bool identify(struct allocwatch *w, struct process *p)
{
	if (!p->known && !w->cfg.identify(w->cfg.ctx, p->pid, &p->start_ns, &p->exec_id) &&
	    !clock_cpu_ns(p->pid, &p->since_cpu_ns)) {
		p->known = true;
		p->windowed_cpu = p->since_cpu_ns;
	}
	return p->known;
}

int allocwatch_file(struct allocwatch *w, const char *path, const struct elf *e)
{
	struct file *f = calloc(1, sizeof(*f));
	int err = f ? allocfind(e, &f->found) : -ENOMEM;

	if (!err && w->file_count == ALLOCWATCH_FILES_MAX)
		err = -ENOSPC;
	if (!err) {
		f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		err = f->fd < 0 ? -errno : 0;
	}
	if (err) {
		w->refused += err != -ENOENT;
		free(f);
		return err;
	}
	w->files[w->file_count] = f;
	return w->file_count++;
}

void allocwatch_map(struct allocwatch *w, pid_t pid, int file)
{
	struct process *p = process_of(w, pid);

	if (!p)
		return;
	for (unsigned i = 0; i < p->file_count; i++)
		if (p->files[i] == file)
			return;
	if (p->file_count == ALLOCWINDOW_FILES) {
		w->refused++;
		return;
	}
	p->files[p->file_count++] = file;
	identify(w, p);
}

static void free_process(struct process *p)
{
	if (p)
		free(p->callers);
	free(p);
}

void allocwatch_fork(struct allocwatch *w, pid_t parent, pid_t child)
{
	const struct process *from = find(w, parent);

	for (unsigned i = 0; from && i < from->file_count; i++)
		allocwatch_map(w, child, from->files[i]);
}

void allocwatch_forget(struct allocwatch *w, pid_t pid)
{
	struct process *p = find(w, pid);

	if (!p)
		return;
	HASH_DEL(w->processes, p);
	p->gone = true;
	if (w->at != p) /* else when its window has been told */
		free_process(p);
}

/* --- what is told ------------------------------------------------------------------------------------------------ */

static void tell(struct allocwatch *w, const struct process *p, const struct allocwindow_result *r, uint64_t cpu_ns)
{
	struct ev_alloc_window ev = {
		.h = {.size = sizeof(ev), .kind = EV_ALLOC_WINDOW, .ts_ns = r->end_ns, .tgid = (uint32_t)p->pid},
		.start_ns = p->start_ns,
		.begin_ns = r->begin_ns,
		.since_cpu_ns = p->since_cpu_ns,
		.cpu_ns = cpu_ns,
		.window_cpu_ns = r->cpu_ns,
		.bytes = r->in.bytes,
		.count = r->in.count,
		.hits = r->in.hits,
		.slow_hits = r->in.slow_hits,
		.samples = r->in.samples,
		.all_traps_ns = p->traps_ns,
		.hit_ns = r->costs.hit,
		.slow_ns = r->costs.slow,
		.sample_ns = r->costs.sample,
		.period = w->period,
		.unfollowed = r->in.unfollowed,
		.exec_id = p->exec_id,
		.follows = w->follows,
		.takes = r->in.takes,
		.take_ns = r->costs.take,
		.libraries = r->libraries,
	};

	w->cfg.on_record(w->cfg.ctx, &ev, sizeof(ev));
}

/* How long the next window is, and when, by what this one cost. */
static void plan(struct process *p, const struct allocwindow_result *r, uint64_t now_ns)
{
	uint64_t in_ns = allocwindow_cost(&r->costs, &r->in), all_ns = allocwindow_cost(&r->costs, &r->all);
	uint64_t length_ns = r->end_ns - r->begin_ns, next_ns = 4 * length_ns;

	if (in_ns && length_ns * ALLOCWATCH_WINDOW_COST_NS / in_ns < next_ns)
		next_ns = length_ns * ALLOCWATCH_WINDOW_COST_NS / in_ns;
	if (next_ns > ALLOCWATCH_LENGTH_MAX_NS)
		next_ns = ALLOCWATCH_LENGTH_MAX_NS;
	p->length_ns = next_ns < ALLOCWATCH_LENGTH_MIN_NS ? ALLOCWATCH_LENGTH_MIN_NS : next_ns;
	p->traps_ns += all_ns;
	p->own_ns += r->cpu_ns > in_ns ? r->cpu_ns - in_ns : 0;
	if (r->in.count)
		p->mean = r->in.bytes / r->in.count;
	p->due_ns = now_ns + ALLOCWATCH_GAP_NS;
	if ((double)all_ns / ALLOCWATCH_BUDGET > ALLOCWATCH_GAP_NS)
		p->due_ns = now_ns + (uint64_t)((double)all_ns / ALLOCWATCH_BUDGET);
}

/* --- functions that others hand on to ---------------------------------------------------------------------------- */

/* Without memory, all of them go on being probed. */
static void note_callers(struct process *p, const struct allocwindow_result *r)
{
	for (unsigned i = 0; i < p->file_count; i++)
		for (unsigned j = 0; j < ALLOCFIND_MAX; j++) {
			const struct alloc_site *site = &r->sites[i][j];

			if (site->handed && !p->callers)
				p->callers = calloc(ALLOCWINDOW_FILES, sizeof(p->callers[0]));
			if (!p->callers)
				continue;
			p->callers[i].of[j].handed += site->handed;
			p->callers[i].of[j].direct += site->direct;
			p->callers[i].of[j].handed_bytes += site->handed_bytes;
			p->callers[i].of[j].direct_bytes += site->direct_bytes;
		}
}

/* Of its file number i: bit n, whoever calls function n was seen already. */
static uint64_t seen_before(const struct process *p, unsigned i)
{
	uint64_t mask = 0;

	for (unsigned j = 0; p->callers && j < ALLOCFIND_MAX; j++)
		if (p->callers[i].of[j].handed >= HANDED_MIN &&
		    p->callers[i].of[j].direct <= p->callers[i].of[j].handed / HANDED_SHARE &&
		    p->callers[i].of[j].direct_bytes <= p->callers[i].of[j].handed_bytes / HANDED_SHARE)
			mask |= 1ull << j;
	return mask;
}

static void tell_window(struct allocwatch *w)
{
	uint64_t cpu_ns, now_ns = clock_boot_ns();
	struct process *p = w->at;

	w->at = NULL;
	w->over = false;
	if (p->gone || clock_cpu_ns(p->pid, &cpu_ns))
		cpu_ns = p->windowed_cpu + w->result.cpu_ns; /* at least; its EXIT tells */
	p->windowed_cpu = cpu_ns;
	if (w->result.err) {
		log_verbose("pid %d: its allocators cannot be probed: %s", p->pid, strerror(-w->result.err));
		p->due_ns = now_ns + RETRY_NS;
	} else {
		plan(p, &w->result, now_ns);
		if (w->layers)
			note_callers(p, &w->result);
		tell(w, p, &w->result, cpu_ns);
	}
	if (p->gone)
		free_process(p);
}

/* How much processor time each of them has taken. */
static void tell_clocks(struct allocwatch *w)
{
	uint64_t cpu_ns, now_ns = clock_boot_ns();
	struct allocwindow_result none = {.begin_ns = now_ns, .end_ns = now_ns};
	struct process *p, *next;

	HASH_ITER (hh, w->processes, p, next)
		if (p->known && !clock_cpu_ns(p->pid, &cpu_ns))
			tell(w, p, &none, cpu_ns);
}

void allocwatch_collect(struct allocwatch *w)
{
	if (!w->over && w->at && !w->stopped)
		w->over = allocwindow_over(w->window, &w->result);
}

void allocwatch_tell(struct allocwatch *w)
{
	if (w->over)
		tell_window(w);
	if (!w->stopped || w->told || w->at)
		return;
	w->told = true;
	tell_clocks(w);
}

/* --- when -------------------------------------------------------------------------------------------------------- */

/* Bytes between samples of a window, so that of all bytes of the process one in cfg.bytes is sampled. */
static uint32_t period_of(const struct allocwatch *w, const struct process *p, uint64_t cpu_ns)
{
	uint64_t ran_ns = cpu_ns - p->since_cpu_ns;
	double share = p->own_ns && ran_ns > p->traps_ns ? (double)p->own_ns / (double)(ran_ns - p->traps_ns) : 0;
	double period;

	if (share <= 0)
		share = 1.0 / FIRST_SHARE;
	period = w->cfg.bytes * (share < 1 ? share : 1);
	if (period < (double)(p->mean * PERIOD_MIN_SIZES))
		period = (double)(p->mean * PERIOD_MIN_SIZES);
	if (period > w->cfg.bytes)
		period = w->cfg.bytes;
	return period < 1 ? 1 : (uint32_t)period;
}

/* The one that ran most since its last window. NULL: none did. */
static struct process *next_process(struct allocwatch *w, uint64_t now_ns, uint64_t *cpu_ns)
{
	struct process *p, *next, *best = NULL;
	uint64_t most = ALLOCWATCH_RAN_NS, ns;

	HASH_ITER (hh, w->processes, p, next) {
		if (now_ns < p->due_ns || !identify(w, p) || clock_cpu_ns(p->pid, &ns) || ns < p->windowed_cpu + most)
			continue;
		most = ns - p->windowed_cpu;
		*cpu_ns = ns;
		best = p;
	}
	return best;
}

void allocwatch_update(struct allocwatch *w, uint64_t now_ns)
{
	struct allocwindow_job job = {.cost_ns = ALLOCWATCH_WINDOW_COST_NS};
	struct process *p;
	uint64_t cpu_ns = 0;

	if (w->at || w->stopped || now_ns < w->look_ns)
		return;
	p = next_process(w, now_ns, &cpu_ns);
	if (!p) { /* looking costs a system call for each process */
		w->look_ns = now_ns + ALLOCWATCH_GAP_NS / 2;
		return;
	}
	job.pid = p->pid;
	job.length_ns = p->length_ns;
	job.layers = w->layers = p->windows < LAYER_WINDOWS || p->windows % FOLLOW_WINDOWS == 0;
	job.follows = w->follows = w->cfg.follows && p->windows % FOLLOW_WINDOWS == 0;
	p->windows++;
	job.period = w->period = period_of(w, p, cpu_ns);
	for (unsigned i = 0; i < p->file_count; i++) {
		const struct file *f = w->files[p->files[i]];

		job.files[job.count++] =
			(struct allocwindow_file){f->fd, &f->found, job.layers ? 0 : seen_before(p, i)};
	}
	if (allocwindow_start(w->window, &job))
		w->at = p;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

struct allocwatch *allocwatch_new(const struct allocwatch_config *cfg)
{
	struct allocwatch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->cfg = *cfg;
	w->window = allocwindow_new(&cfg->kernel);
	if (w->window)
		return w;
	free(w);
	return NULL;
}

void allocwatch_stop(struct allocwatch *w)
{
	struct allocwindow_result result;

	if (w->stopped)
		return;
	w->stopped = true;
	w->over |= allocwindow_stop(w->window, &result);
	if (w->over && w->at)
		w->result = result;
}

void allocwatch_free(struct allocwatch *w)
{
	struct process *p, *next;

	if (!w)
		return;
	allocwindow_free(w->window);
	if (w->at && w->at->gone)
		free_process(w->at);
	HASH_ITER (hh, w->processes, p, next) {
		HASH_DEL(w->processes, p);
		free_process(p);
	}
	for (int i = 0; i < w->file_count; i++) {
		close(w->files[i]->fd);
		free(w->files[i]);
	}
	free(w);
}

unsigned allocwatch_refused(const struct allocwatch *w)
{
	return w->refused;
}
