/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "allocwindow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/perf_event.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fdname.h"
#include "bpf/event.h"
#include "links.h"

#define CLOSERS		 2
#define STACK_BYTES	 (256u << 10) /* of a thread */
#define LOOK_NS		 500000u      /* how often an open window is looked at */
#define MEASURE_ROUNDS	 5	      /* the middle one counts */
#define MEASURE_HITS	 400
#define MEASURE_SLOW	 20
#define MEASURE_WORK	 500 /* steps of four cycles */
#define MEASURE_SAMPLES	 20
#define MOMENT_TRIES	 20
#define MOMENT_NS	 20000u /* reading the sums and one clock takes less, unless somebody else runs in between */
#define MOMENT_THREAD_NS 5000u
#define COST_WEIGHT	 8 /* of what was measured before, against a new measurement */
#define NEVER		 (1ll << 62)

enum state { IDLE, WANTED, RUNNING, OVER, ENDED };

struct allocwindow {
	struct allocwindow_kernel kernel;
	pthread_t threads[1 + CLOSERS]; /* who looks on, and who helps it to close links */
	unsigned thread_count;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum state state; /* under the lock, with job and result */
	struct allocwindow_job job;
	struct allocwindow_result result;
	int closing[ALLOCWINDOW_FILES]; /* links that are to be closed; under the lock */
	unsigned closing_count, busy;	/* and how many are being closed */
	bool stop;			/* atomic */
	/* The thread's own. */
	struct alloc_costs costs[2]; /* of a window that does not follow, of one that does */
	uint64_t random;
	uint32_t number; /* of the last window */
};

/* --- the kernel's variables -------------------------------------------------------------------------------------- */

static struct allocwindow_sums read_sums(const struct allocwindow *w)
{
	struct allocwindow_sums sum = {0};

	for (unsigned i = 0; i < LIMIT_ALLOC_SLOTS; i++) {
		const volatile struct alloc_sums *s = &w->kernel.sums[i];

		sum.hits += s->hits;
		sum.slow_hits += s->slow_hits;
		sum.count += s->count;
		sum.bytes += s->bytes;
		sum.samples += s->samples;
		sum.unfollowed += s->unfollowed;
		sum.takes += s->takes;
	}
	return sum;
}

static struct allocwindow_sums between(struct allocwindow_sums a, struct allocwindow_sums b)
{
	return (struct allocwindow_sums){
		.hits = b.hits - a.hits,
		.slow_hits = b.slow_hits - a.slow_hits,
		.count = b.count - a.count,
		.bytes = b.bytes - a.bytes,
		.samples = b.samples - a.samples,
		.unfollowed = b.unfollowed - a.unfollowed,
		.takes = b.takes - a.takes,
	};
}

uint64_t allocwindow_cost(const struct alloc_costs *c, const struct allocwindow_sums *s)
{
	return s->hits * c->hit + s->slow_hits * c->slow + s->samples * c->sample + s->takes * c->take +
	       (uint64_t)(ALLOC_SPOILS * (double)(s->count * c->hit));
}

static void set(uint32_t *variable, uint32_t value)
{
	__atomic_store_n(variable, value, __ATOMIC_SEQ_CST);
}

/* xorshift64, as a share: more than 0, at most 1. */
static double draw(struct allocwindow *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return ((double)(w->random >> 11) + 1) / 9007199254740992.0;
}

static uint32_t read_libraries(const struct allocwindow *w)
{
	uint64_t libraries = 0;

	for (unsigned i = 0; i < LIMIT_ALLOC_SLOTS; i++)
		libraries |= ((const volatile struct alloc_sums *)w->kernel.sums)[i].libraries;
	return (uint32_t)libraries;
}

/* left: bytes up to the first sample of each processor; < 0: drawn. */
static void prepare_sums(struct allocwindow *w, uint32_t period, int64_t left)
{
	set(w->kernel.period, period);
	for (unsigned i = 0; i < LIMIT_ALLOC_SLOTS; i++)
		w->kernel.sums[i].left = left < 0 ? (int64_t)(-log(draw(w)) * period) : left;
}

/* --- probes ------------------------------------------------------------------------------------------------------ */

/* What is probed of a file. */
struct probed {
	const struct alloc_func *funcs;
	unsigned count, first_site; /* their numbers for the kernel; 0: none */
	uint64_t without;
	bool follows;
	bool takes; /* also what takes memory back */
};

/* A link, or -errno; -ENOENT: there is nothing to be probed. */
static int attach(const struct allocwindow *w, int file_fd, const struct probed *p, pid_t pid)
{
	const struct allocwindow_program *program = p->follows ? &w->kernel.returns : &w->kernel.entries;
	uint64_t offsets[ALLOCFIND_MAX], cookies[ALLOCFIND_MAX];
	char path[FDNAME_BYTES];
	struct link_create attr = {
		.prog_fd = (uint32_t)program->fd,
		.attach_type = program->type,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.pid = w->kernel.by_process ? (uint32_t)pid : 0,
	};

	fdname(file_fd, path);
	for (unsigned i = 0; i < p->count; i++) {
		bool takes = ALLOC_COOKIE_ROLE(p->funcs[i].cookie) == ALLOC_ROLE_FREE;

		if ((takes && !p->takes) || p->without >> i & 1)
			continue;
		offsets[attr.count] = p->funcs[i].off;
		cookies[attr.count++] = p->funcs[i].cookie | ALLOC_COOKIE_PLACE(p->first_site ? p->first_site + i : 0);
	}
	return attr.count ? link_create(&attr) : -ENOENT;
}

/* Closes what is to be closed; with the lock held, which it lets go meanwhile. */
static void close_links(struct allocwindow *w)
{
	while (w->closing_count) {
		int link = w->closing[--w->closing_count];

		w->busy++;
		pthread_mutex_unlock(&w->lock);
		close(link);
		pthread_mutex_lock(&w->lock);
		if (!--w->busy)
			pthread_cond_broadcast(&w->changed);
	}
}

/* All at once: closing a link removes its probes at once, and waits then until nobody can be in one. */
static void detach(struct allocwindow *w, const int *links, unsigned count)
{
	pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < count; i++)
		w->closing[w->closing_count++] = links[i];
	pthread_cond_broadcast(&w->changed);
	close_links(w);
	while (w->busy)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

/* --- what a trap costs ------------------------------------------------------------------------------------------- */

/* Functions of our own that do nothing; the first instruction is one that the kernel emulates, or one that it does not
 * (attach/site.h). */
void allocwindow_fast(uint64_t size);
void allocwindow_slow(uint64_t size);
void allocwindow_take(uint64_t address);
#if defined(__x86_64__)
__asm__(".text\n.globl allocwindow_fast\n.type allocwindow_fast,@function\nallocwindow_fast: push %rbp\npop %rbp\nret\n"
	".globl allocwindow_slow\n.type allocwindow_slow,@function\nallocwindow_slow: sub $8,%rsp\nadd $8,%rsp\nret\n"
	".globl allocwindow_take\n.type allocwindow_take,@function\nallocwindow_take: push %rbp\npop %rbp\nret\n");
#define FIRST_REGISTER (1 + 7) /* %rdi, see ALLOC_COOKIE() */
#else
__asm__(".text\n.globl allocwindow_fast\n.type allocwindow_fast,@function\nallocwindow_fast: nop\nret\n"
	".globl allocwindow_slow\n.type allocwindow_slow,@function\nallocwindow_slow: add x1, x1, #1\nret\n"
	".globl allocwindow_take\n.type allocwindow_take,@function\nallocwindow_take: nop\nret\n");
#define FIRST_REGISTER 1
#endif

/* Where in its file code of ours is; the program itself comes first. */
static int on_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint64_t *at = ctx;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uint64_t begin = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || *at < begin || *at >= begin + ph->p_filesz)
			continue;
		*at = *at - begin + ph->p_offset;
		return 1;
	}
	return -1;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* What a program does in between, about an instruction a cycle: what of it is on its way has to end before a trap can
 * begin, which is a good part of what a trap takes. */
static void work(void)
{
	uint64_t x = 1;

	for (unsigned i = 0; i < MEASURE_WORK; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
}

static void nothing(uint64_t unused)
{
	(void)unused;
}

/* ns a call, with work before each or not. */
static uint32_t measure(void (*fn)(uint64_t size), bool works, unsigned hits)
{
	uint32_t rounds[MEASURE_ROUNDS];

	for (unsigned r = 0; r < MEASURE_ROUNDS; r++) {
		uint64_t began = thread_cpu_ns();

		for (unsigned i = 0; i < hits; i++) {
			if (works)
				work();
			fn(64);
		}
		rounds[r] = (uint32_t)((thread_cpu_ns() - began) / hits);
	}
	qsort(rounds, MEASURE_ROUNDS, sizeof(rounds[0]), compare_u32);
	return rounds[MEASURE_ROUNDS / 2];
}

static uint32_t more(uint32_t a, uint32_t b)
{
	return a > b ? a - b : 0;
}

/* A probe on functions of our own: a link, or -errno. */
static int attach_own(const struct allocwindow *w, bool follows)
{
	uint64_t fast = (uintptr_t)allocwindow_fast, slow = (uintptr_t)allocwindow_slow,
		 take_back = (uintptr_t)allocwindow_take;
	struct alloc_func funcs[3];
	int fd, link;

	if (dl_iterate_phdr(on_object, &fast) != 1 || dl_iterate_phdr(on_object, &slow) != 1 ||
	    dl_iterate_phdr(on_object, &take_back) != 1)
		return -ENOENT;
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	funcs[0] = (struct alloc_func){fast, ALLOC_COOKIE(ALLOC_ROLE_NEW, FIRST_REGISTER, 0, 0, ALLOC_OTHER, 0)};
	funcs[1] = (struct alloc_func){slow, ALLOC_COOKIE(ALLOC_ROLE_NEW, FIRST_REGISTER, 0, 0, ALLOC_OTHER, 1)};
	funcs[2] = (struct alloc_func){take_back, ALLOC_COOKIE(ALLOC_ROLE_FREE, 0, 0, FIRST_REGISTER, ALLOC_OTHER, 0)};
	link = attach(w, fd, &(struct probed){.funcs = funcs, .count = 3, .follows = follows, .takes = true}, getpid());
	close(fd);
	return link;
}

/* Measurements scatter more than what they measure. */
static void average(uint32_t *cost, uint32_t measured)
{
	*cost = *cost ? (COST_WEIGHT * *cost + measured) / (COST_WEIGHT + 1) : measured;
}

/* With probes on them. */
static void measure_costs(struct allocwindow *w, bool follows)
{
	uint32_t hit, working = measure(nothing, true, MEASURE_HITS);
	struct alloc_costs *costs = &w->costs[follows];

	set(w->kernel.process, (uint32_t)getpid());
	set(w->kernel.follows, follows);
	prepare_sums(w, 1, NEVER);
	set(w->kernel.open, 1);
	average(&costs->hit, more(measure(allocwindow_fast, true, MEASURE_HITS), working));
	average(&costs->slow, measure(allocwindow_slow, false, MEASURE_SLOW));
	/* Programs often free right before they allocate: nothing is on its way then. */
	average(&costs->take, measure(allocwindow_take, false, MEASURE_HITS));
	hit = measure(allocwindow_fast, false, MEASURE_HITS);
	prepare_sums(w, 1, 0);
	average(&costs->sample, more(measure(allocwindow_fast, false, MEASURE_SAMPLES), hit));
	set(w->kernel.open, 0);
	set(w->kernel.process, 0);
}

/* --- the process's own clock ------------------------------------------------------------------------------------- */

struct clocks {
	pid_t pid;
	unsigned count; /* 0: of all threads together, as the kernel has them */
	int fds[ALLOCWINDOW_THREADS];
};

static int open_clock(pid_t tid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.inherit = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void close_clocks(struct clocks *c)
{
	while (c->count)
		close(c->fds[--c->count]);
}

static void open_clocks(struct clocks *c, pid_t pid)
{
	struct dirent *entry;
	char path[32];
	DIR *dir;

	*c = (struct clocks){.pid = pid};
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		int tid = atoi(entry->d_name), fd;

		if (!tid)
			continue;
		fd = c->count < ALLOCWINDOW_THREADS ? open_clock(tid) : -1;
		if (fd < 0 && (c->count == ALLOCWINDOW_THREADS || errno != ESRCH)) {
			close_clocks(c);
			break;
		}
		if (fd >= 0)
			c->fds[c->count++] = fd;
	}
	if (dir)
		closedir(dir);
}

static uint64_t read_clocks(const struct clocks *c)
{
	uint64_t sum = 0, ns;

	if (!c->count)
		return clock_cpu_ns(c->pid, &ns) ? 0 : ns;
	for (unsigned i = 0; i < c->count; i++)
		if (read(c->fds[i], &ns, sizeof(ns)) == sizeof(ns))
			sum += ns;
	return sum;
}

/* --- a window ---------------------------------------------------------------------------------------------------- */

static bool is_stopped(const struct allocwindow *w)
{
	return __atomic_load_n(&w->stop, __ATOMIC_SEQ_CST);
}

/* Of one moment: what was counted, and the clock. */
struct moment {
	uint64_t ns, cpu_ns;
	struct allocwindow_sums sums;
};

/* Read anew while something came in between: the two would not fit together. */
static struct moment read_moment(const struct allocwindow *w, const struct clocks *c)
{
	struct moment best = {0}, now;
	uint64_t took_ns = UINT64_MAX, began_ns;

	for (unsigned i = 0; i < MOMENT_TRIES && took_ns > MOMENT_NS + c->count * MOMENT_THREAD_NS; i++) {
		now.ns = began_ns = clock_boot_ns();
		now.sums = read_sums(w);
		now.cpu_ns = read_clocks(c);
		if (clock_boot_ns() - began_ns >= took_ns)
			continue;
		took_ns = clock_boot_ns() - began_ns;
		best = now;
	}
	return best;
}

/* Takes the probes away. */
static void look_on(struct allocwindow *w, const struct allocwindow_job *job, const int *links, unsigned count,
		    struct allocwindow_result *r)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};
	struct allocwindow_sums start = read_sums(w), in;
	struct moment begin, end;
	struct clocks clocks;
	int link;

	open_clocks(&clocks, job->pid);
	prepare_sums(w, job->period, -1);
	for (unsigned i = 0; i < LIMIT_ALLOC_SLOTS; i++)
		w->kernel.sums[i].libraries = 0;
	set(w->kernel.open, ++w->number ? w->number : ++w->number);
	begin = read_moment(w, &clocks);
	do {
		nanosleep(&nap, NULL);
		in = between(begin.sums, read_sums(w));
	} while (!is_stopped(w) && clock_boot_ns() - begin.ns < job->length_ns &&
		 allocwindow_cost(&w->costs[job->follows], &in) < job->cost_ns);
	link = attach_own(w, job->follows); /* see the header: the next change of probes does not wait */
	end = read_moment(w, &clocks);
	set(w->kernel.open, 0);
	detach(w, links, count);
	close_clocks(&clocks);
	r->begin_ns = begin.ns;
	r->end_ns = end.ns;
	r->cpu_ns = end.cpu_ns - begin.cpu_ns;
	if (end.cpu_ns < begin.cpu_ns) /* it ended, and its clock with it */
		r->err = -ESRCH;
	r->in = between(begin.sums, end.sums);
	r->libraries = read_libraries(w);
	r->all = between(start, read_sums(w));
	/* What a trap costs now is what it cost then, on a machine whose load changes. */
	if (link < 0)
		return;
	measure_costs(w, job->follows);
	close(link);
}

static void run_window(struct allocwindow *w, const struct allocwindow_job *job, struct allocwindow_result *r)
{
	int links[ALLOCWINDOW_FILES];
	unsigned count = 0, done = 0;

	*r = (struct allocwindow_result){.err = -ENOENT};
	memset(w->kernel.sites, 0, LIMIT_ALLOC_SITES * sizeof(w->kernel.sites[0]));
	set(w->kernel.follows, job->follows);
	set(w->kernel.layers, job->layers);
	set(w->kernel.process, (uint32_t)job->pid);
	for (unsigned i = 0; i < job->count && !is_stopped(w); i++) {
		const struct allocwindow_file *file = &job->files[i];
		const struct probed probed = {.funcs = file->found->funcs,
					      .count = file->found->count,
					      .first_site = 1 + i * ALLOCFIND_MAX,
					      .without = file->without,
					      .follows = job->follows,
					      .takes = job->follows};
		int link = attach(w, file->fd, &probed, job->pid);

		done += link >= 0 || link == -ENOENT;
		if (link >= 0)
			links[count++] = link;
		else if (link != -ENOENT)
			r->err = link;
	}
	/* All of its allocators, or what is seen is no share of anything. */
	if (done == job->count && count) {
		r->err = 0;
		look_on(w, job, links, count, r);
		memcpy(r->sites, w->kernel.sites, sizeof(r->sites));
	} else {
		detach(w, links, count);
	}
	set(w->kernel.process, 0);
	set(w->kernel.layers, 0);
	r->costs = w->costs[job->follows];
}

/* --- the threads ------------------------------------------------------------------------------------------------- */

static void *help(void *arg)
{
	struct allocwindow *w = arg;

	if (w->kernel.thread_begins)
		w->kernel.thread_begins();
	pthread_mutex_lock(&w->lock);
	while (w->state != ENDED) {
		close_links(w);
		pthread_cond_wait(&w->changed, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void first_costs(struct allocwindow *w, bool follows)
{
	int link = attach_own(w, follows);

	if (link < 0)
		return;
	measure_costs(w, follows);
	close(link);
}

static void *run(void *arg)
{
	struct allocwindow *w = arg;
	struct allocwindow_result result;
	struct allocwindow_job job;

	if (w->kernel.thread_begins)
		w->kernel.thread_begins();
	first_costs(w, false);
	if (w->kernel.returns.fd >= 0)
		first_costs(w, true);
	pthread_mutex_lock(&w->lock);
	while (w->state != ENDED) {
		if (w->state != WANTED) {
			pthread_cond_wait(&w->changed, &w->lock);
			continue;
		}
		job = w->job;
		w->state = RUNNING;
		pthread_mutex_unlock(&w->lock);
		run_window(w, &job, &result);
		pthread_mutex_lock(&w->lock);
		w->result = result;
		w->state = OVER;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* 0 or -errno. Signals are the main thread's, but for the one of its system call filter, which kills where it is
 * blocked. */
static int start_threads(struct allocwindow *w)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err = 0;

	sigfillset(&all);
	sigdelset(&all, SIGSYS);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!err && w->thread_count < ARRAY_SIZE(w->threads)) {
		err = pthread_create(&w->threads[w->thread_count], &attr, w->thread_count ? help : run, w);
		w->thread_count += !err;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static void end_threads(struct allocwindow *w)
{
	pthread_mutex_lock(&w->lock);
	w->state = ENDED;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	while (w->thread_count)
		pthread_join(w->threads[--w->thread_count], NULL);
}

struct allocwindow *allocwindow_new(const struct allocwindow_kernel *kernel)
{
	struct allocwindow *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return NULL;
	w->kernel = *kernel;
	w->random = clock_boot_ns() | 1;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	err = start_threads(w);
	if (!err)
		return w;
	allocwindow_free(w);
	errno = -err;
	return NULL;
}

bool allocwindow_start(struct allocwindow *w, const struct allocwindow_job *job)
{
	bool idle;

	pthread_mutex_lock(&w->lock);
	idle = w->state == IDLE;
	if (idle) {
		w->job = *job;
		w->state = WANTED;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return idle;
}

bool allocwindow_over(struct allocwindow *w, struct allocwindow_result *out)
{
	bool over;

	pthread_mutex_lock(&w->lock);
	over = w->state == OVER;
	if (over) {
		*out = w->result;
		w->state = IDLE;
	}
	pthread_mutex_unlock(&w->lock);
	return over;
}

bool allocwindow_stop(struct allocwindow *w, struct allocwindow_result *out)
{
	bool over;

	__atomic_store_n(&w->stop, true, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&w->lock);
	while (w->state == WANTED || w->state == RUNNING)
		pthread_cond_wait(&w->changed, &w->lock);
	over = w->state == OVER;
	*out = w->result;
	pthread_mutex_unlock(&w->lock);
	end_threads(w);
	return over;
}

void allocwindow_free(struct allocwindow *w)
{
	struct allocwindow_result result;

	if (!w)
		return;
	if (w->thread_count)
		allocwindow_stop(w, &result);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
