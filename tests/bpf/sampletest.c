/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples of children that do something known: who is sampled, how often, with which stack. TAP, without a plan. */
#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "attach/probes.h"
#include "bpf/event.h"

#define PERIOD_NS 4100000u /* out of step with the kernel's ticks; an emulated machine misses shorter ones */
#define MIN_NS	  5000000u
#define BUSY_NS	  300000000ull
#define NAP_MS	  20
#define NAPS	  10
#define SIZE	  512 /* of a function that is looked for in stacks: less than this many bytes */

/* EMULATED=1 in the environment: processor and clock are an emulator's, and their sums say nothing. */
static bool emulated;
static unsigned test_number, failures;
static struct probes *probes;
static pid_t child;

static struct {
	uint64_t cpu, cpu_ns, in_busy, off, off_ns, off_kernel, queue_ns, other, bad;
	int32_t call;
} seen;

static void verdict(bool ok, const char *name)
{
	printf("%s %u - %s\n", ok ? "ok" : "not ok", ++test_number, name);
	failures += !ok;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

__attribute__((noinline)) static void busy(void)
{
	static volatile uint64_t sum;
	uint64_t end = now_ns(CLOCK_PROCESS_CPUTIME_ID) + BUSY_NS;

	do {
		for (unsigned i = 0; i < 1000000; i++)
			sum += i;
	} while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < end);
}

__attribute__((noinline)) static void nap(void)
{
	struct timespec ts = {.tv_nsec = NAP_MS * 1000000};

	for (int i = 0; i < NAPS; i++)
		nanosleep(&ts, NULL);
}

static bool is_in(uint64_t addr, void (*fn)(void))
{
	return addr - (uint64_t)(uintptr_t)fn < SIZE;
}

static void note_sample(const struct ev_sample *s)
{
	const __u64 *user = s->frames + s->kernel_frames;

	if (s->h.size != sizeof(*s) + (s->kernel_frames + s->user_frames) * sizeof(__u64) || !s->start_ns ||
	    strncmp(s->comm, "sampled", sizeof(s->comm)))
		seen.bad++;
	if (s->what == EV_SAMPLE_CPU) {
		seen.cpu++;
		seen.cpu_ns += s->weight_ns;
		seen.in_busy += s->user_frames && is_in(user[0], busy);
	} else if (s->what == EV_SAMPLE_OFF) {
		seen.off++;
		seen.off_ns += s->weight_ns;
		seen.off_kernel += s->kernel_frames > 2;
		seen.call = s->syscall;
	}
	seen.queue_ns += s->queue_ns;
}

static void on_record(void *ctx, const void *bytes, size_t len)
{
	const struct ev_head *h = bytes;

	(void)ctx;
	if (len < sizeof(*h) || h->kind != EV_SAMPLE)
		return;
	if (h->tgid == (uint32_t)child)
		note_sample(bytes);
	else
		seen.other++;
}

static void run(void (*fn)(void), bool target)
{
	int go[2], status;
	char c = 0;

	memset(&seen, 0, sizeof(seen));
	if (pipe(go))
		abort();
	child = fork();
	if (child == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) == 1)
			fn();
		_exit(0);
	}
	close(go[0]);
	if (target && probes_add_target(probes, child, 0))
		abort();
	if (write(go[1], "g", 1) != 1)
		abort();
	close(go[1]);
	while (waitpid(child, &status, WNOHANG) == 0) {
		probes_consume(probes);
		usleep(2000);
	}
	probes_consume(probes);
}

static void test_on_cpu(void)
{
	run(busy, true);
	printf("# %llu samples, %.1f ms of %.1f, %llu in busy()\n", (unsigned long long)seen.cpu,
	       (double)seen.cpu_ns / 1e6, (double)BUSY_NS / 1e6, (unsigned long long)seen.in_busy);
	/* A virtual processor that is taken away misses ticks; one that is not gets all. */
	verdict(seen.cpu_ns && (emulated || (seen.cpu_ns > BUSY_NS / 2 && seen.cpu_ns < BUSY_NS * 5 / 4)),
		"samples add up to the processor time");
	printf("# %llu bad, %llu of others\n", (unsigned long long)seen.bad, (unsigned long long)seen.other);
	/* ticks that an emulated clock misses are missed there; fork and exit have theirs all the same */
	verdict(seen.in_busy * 10 >= seen.cpu * (emulated ? 5u : 9u), "nine of ten are where the child was busy");
	verdict(!seen.bad && !seen.other, "whole records, of the target alone");
}

static uint64_t lost_samples(void)
{
	uint64_t stats[ST_COUNT];

	probes_stats(probes, stats);
	return stats[ST_SAMPLES];
}

/* The first wait of a thread wants memory, of which the kernel has little at hand where it switches: what it has not is
 * counted. */
static void test_off_cpu(void)
{
	uint64_t naps_ns, lost = lost_samples();

	run(nap, true);
	lost = lost_samples() - lost;
	naps_ns = NAP_MS * 1000000ull * (NAPS - (lost < NAPS ? lost : NAPS));
	printf("# %llu waits, %llu lost, %.1f ms of %.1f, call %d\n", (unsigned long long)seen.off,
	       (unsigned long long)lost, (double)seen.off_ns / 1e6, (double)naps_ns / 1e6, seen.call);
	verdict(lost <= 1 && seen.off + lost >= NAPS && seen.off + lost <= NAPS + 2, "each wait is told, or counted");
	verdict(seen.off_ns >= naps_ns && (emulated || seen.off_ns < naps_ns * 5 / 4),
		"waits add up to the time asleep");
	verdict(seen.off_kernel == seen.off, "with the kernel's stack");
	verdict(seen.call == SYS_clock_nanosleep || seen.call == SYS_nanosleep, "and the system call");
	verdict(!seen.bad && !seen.other, "whole records, of the target alone");
}

/* Entries of the map that keeps who waits. */
static unsigned kept_waits(void)
{
	unsigned count = 0;

	for (int fd = 3; fd < 256; fd++) {
		struct bpf_map_info info = {0};
		uint32_t len = sizeof(info), key, *at = NULL;
		char path[64], target[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0 || !strstr(target, "bpf-map") ||
		    bpf_obj_get_info_by_fd(fd, &info, &len) || strcmp(info.name, "waits"))
			continue;
		for (; !bpf_map_get_next_key(fd, at, &key); at = &key)
			count++;
		break; /* others are of the same map */
	}
	return count;
}

/* The last thread of a process leaves the processor when that is no target any more. */
static void test_ends(void)
{
	unsigned left;

	for (int i = 0; i < 10; i++)
		run(nap, true);
	usleep(100000);
	left = kept_waits();
	printf("# %u waits of processes that have ended\n", left);
	verdict(!left, "nothing is kept of who has ended");
}

static void test_others(void)
{
	run(busy, false);
	verdict(!seen.cpu && !seen.other, "who is no target is not sampled");
	run(nap, false);
	verdict(!seen.off && !seen.other, "nor are its waits");
}

static void test_stopped(void)
{
	probes_detach(probes);
	probes_consume(probes);
	run(busy, false);
	verdict(!seen.cpu && !seen.other, "after the probes are detached nothing comes");
}

int main(void)
{
	struct probes_config config = {
		.ring_bytes = 4 << 20, .on_record = on_record, .period_ns = PERIOD_NS, .off_cpu_min_ns = MIN_NS};

	emulated = getenv("EMULATED");
	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_NAME, "sampled"); /* the children too */
	if (geteuid() != 0 || access("/sys/kernel/btf/vmlinux", R_OK)) {
		printf("ok 1 - samples # SKIP needs root and BTF\n");
		return 0;
	}
	probes = probes_open(&config);
	if (!probes) {
		printf("# %s\n", probes_why());
		verdict(false, "load and attach");
		return 1;
	}
	test_on_cpu();
	test_off_cpu();
	test_ends();
	test_others();
	test_stopped();
	probes_close(probes);
	return failures ? 1 : 0;
}
