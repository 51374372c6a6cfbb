/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples added up, and as text of the trace file. */
#include "harness.h"

#include <math.h>

#include <cjson/cJSON.h>

#include "base/err.h"
#include "flow/profile.h"
#include "flow/profile_wait.h"

static const struct proc_key process = {.tgid = 42, .exec_id = 1, .start_ns = 5};

static const char *name(void *ctx, const struct proc_key *key, uint32_t *shown_pid)
{
	(void)ctx;
	*shown_pid = key->tgid;
	return "prog";
}

static void frame(struct profile *p, uint64_t addr, enum rec_frame_source source, const char *text, const char *module)
{
	struct rec_frame f = {.proc = source == REC_FRAME_KERNEL ? (struct proc_key){0} : process,
			      .addr = addr,
			      .source = source,
			      .name = sv_of(text),
			      .module = sv_of(module)};

	profile_push_frame(p, &f);
}

static struct rec_sample sample_of(enum rec_sample_what what, uint64_t weight_ns, const uint64_t *frames,
				   unsigned kernel_frames, unsigned user_frames)
{
	return (struct rec_sample){.proc = process,
				   .tid = 43,
				   .comm = SV("worker"),
				   .what = what,
				   .weight_ns = weight_ns,
				   .syscall = -1,
				   .frames = frames,
				   .kernel_frames = kernel_frames,
				   .user_frames = user_frames};
}

static void push(struct profile *p, enum rec_sample_what what, uint64_t weight_ns, const uint64_t *frames,
		 unsigned kernel_frames, unsigned user_frames)
{
	struct rec_sample s = sample_of(what, weight_ns, frames, kernel_frames, user_frames);

	profile_push_sample(p, &s);
}

/* Without the timeline, which has tests of its own. */
static void assert_json(const struct profile *p, const char *golden)
{
	const struct profile_namer namer = {NULL, name};
	struct buf out;
	char *timeline;

	buf_init(&out, 0);
	assert_int_equal(profile_json(p, &out, &namer, 0), 0);
	timeline = strstr(buf_cstr(&out), "],\"timeline\":[");
	assert_int_equal(timeline != NULL, *golden != 0);
	if (timeline)
		strcpy(timeline, "]}");
	assert_string_equal(buf_cstr(&out), golden);
	buf_release(&out);
}

static void assert_timeline(const struct profile *p, uint64_t start_ns, const char *header, const char *golden)
{
	const struct profile_namer namer = {NULL, name};
	struct buf out;
	char *timeline;

	buf_init(&out, 0);
	assert_int_equal(profile_json(p, &out, &namer, start_ns), 0);
	timeline = strstr(buf_cstr(&out), "],\"timeline\":[");
	assert_non_null(timeline);
	assert_string_equal(timeline + strlen("],\"timeline\":["), golden);
	assert_non_null(strstr(buf_cstr(&out), header));
	buf_release(&out);
}

static void begin(struct profile *p, uint64_t period_ns, uint64_t off_cpu_min_ns)
{
	profile_push_sampling(
		p, &(struct rec_sampling){.ts_ns = 100, .period_ns = period_ns, .off_cpu_min_ns = off_cpu_min_ns});
	profile_push_sampling(
		p, &(struct rec_sampling){.ts_ns = 1100, .period_ns = period_ns, .off_cpu_min_ns = off_cpu_min_ns});
}

static void nothing_asked(void **state)
{
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	assert_json(p, "");
	profile_free(p);
}

/* Two addresses of one function are one; a stack that ends outside of code is broken there; a return address is looked
 * for one byte before. */
static void what_ran(void **state)
{
	static const uint64_t one[] = {0x100, 0x201, 0x301}, two[] = {0x108, 0x201, 0x301},
			      bad[] = {0x100, 0x999, 0x201};
	struct lost lost = {.n = {[LOST_SAMPLES] = 3}};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	begin(p, 10, 0);
	frame(p, 0x100, REC_FRAME_NATIVE, "hot", "prog");
	frame(p, 0x108, REC_FRAME_NATIVE, "hot", "prog");
	frame(p, 0x200, REC_FRAME_NATIVE, "main", "prog");
	frame(p, 0x300, REC_FRAME_NATIVE, "", "libc.so.6");
	frame(p, 0x998, REC_FRAME_NOWHERE, "", "");
	push(p, REC_SAMPLE_CPU, 10, one, 0, 3);
	push(p, REC_SAMPLE_CPU, 10, two, 0, 3);
	push(p, REC_SAMPLE_CPU, 10, bad, 0, 3);
	assert_json(p, "{\"format\":1,\"window_ns\":1000,\"cpu\":{\"period_ns\":10,\"samples\":3,\"total_ns\":30,"
		       "\"deep_samples\":0,\"broken_samples\":1,\"broken_ns\":10},\"samples_without_stack\":0,"
		       "\"lost_samples\":3,\"threads\":[\n[42,43,\"prog\",\"worker\"]\n],\"frames\":[\n"
		       "[\"hot\",\"prog\"],\n[\"main\",\"prog\"],\n[\"\",\"libc.so.6\"]\n],\"stacks\":[\n"
		       "[\"cpu\",0,20,2,\"whole\",[0,1,2]],\n[\"cpu\",0,10,1,\"broken\",[0]]\n]}");
	profile_free(p);
}

/* One frame is not a stack: where the code has no frame pointers nobody knows who called it. */
static void broken_stacks(void **state)
{
	static const uint64_t leaf[] = {0x100}, start[] = {0x200};
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	begin(p, 10, 0);
	frame(p, 0x100, REC_FRAME_NATIVE, "leaf", "prog");
	frame(p, 0x200, REC_FRAME_NATIVE, "_start", "prog");
	push(p, REC_SAMPLE_CPU, 10, leaf, 0, 1);
	push(p, REC_SAMPLE_CPU, 20, start, 0, 1);
	assert_json(p, "{\"format\":1,\"window_ns\":1000,\"cpu\":{\"period_ns\":10,\"samples\":2,\"total_ns\":30,"
		       "\"deep_samples\":0,\"broken_samples\":1,\"broken_ns\":10},\"samples_without_stack\":0,"
		       "\"lost_samples\":0,\"threads\":[\n[42,43,\"prog\",\"worker\"]\n],\"frames\":[\n"
		       "[\"_start\",\"prog\"],\n[\"leaf\",\"prog\"]\n],\"stacks\":[\n"
		       "[\"cpu\",0,20,1,\"whole\",[0]],\n[\"cpu\",0,10,1,\"broken\",[1]]\n]}");
	profile_free(p);
}

/* Code of a runtime gets its name when its map has it, also for samples that came before. */
static void named_later(void **state)
{
	static const uint64_t one[] = {0x100}, two[] = {0x110};
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	begin(p, 10, 0);
	frame(p, 0x100, REC_FRAME_PENDING, "", "[jit]");
	frame(p, 0x110, REC_FRAME_PENDING, "", "[jit]");
	push(p, REC_SAMPLE_CPU, 10, one, 0, 1);
	push(p, REC_SAMPLE_CPU, 20, two, 0, 1);
	frame(p, 0x100, REC_FRAME_JIT, "work", "[jit]");
	assert_json(p, "{\"format\":1,\"window_ns\":1000,\"cpu\":{\"period_ns\":10,\"samples\":2,\"total_ns\":30,"
		       "\"deep_samples\":0,\"broken_samples\":2,\"broken_ns\":30},\"samples_without_stack\":0,"
		       "\"lost_samples\":0,\"threads\":[\n[42,43,\"prog\",\"worker\"]\n],\"frames\":[\n"
		       "[\"\",\"[jit]\"],\n[\"work\",\"[jit]\"]\n],\"stacks\":[\n"
		       "[\"cpu\",0,20,1,\"broken\",[0]],\n[\"cpu\",0,10,1,\"broken\",[1]]\n]}");
	profile_free(p);
}

/* What lay outside of code, too. */
static void broken_later(void **state)
{
	static const uint64_t one[] = {0x100, 0x901, 0x201};
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	begin(p, 10, 0);
	frame(p, 0x100, REC_FRAME_NATIVE, "leaf", "prog");
	frame(p, 0x200, REC_FRAME_NATIVE, "main", "prog");
	frame(p, 0x900, REC_FRAME_PENDING, "", "[unknown]");
	push(p, REC_SAMPLE_CPU, 10, one, 0, 3);
	frame(p, 0x900, REC_FRAME_NOWHERE, "", "");
	assert_json(p, "{\"format\":1,\"window_ns\":1000,\"cpu\":{\"period_ns\":10,\"samples\":1,\"total_ns\":10,"
		       "\"deep_samples\":0,\"broken_samples\":1,\"broken_ns\":10},\"samples_without_stack\":0,"
		       "\"lost_samples\":0,\"threads\":[\n[42,43,\"prog\",\"worker\"]\n],\"frames\":[\n"
		       "[\"leaf\",\"prog\"]\n],\"stacks\":[\n[\"cpu\",0,10,1,\"broken\",[0]]\n]}");
	profile_free(p);
}

static void what_waited(void **state)
{
	static const uint64_t lock[] = {0x1000, 0x1010, 0x100}, call[] = {0x100};
	struct rec_sample queued = sample_of(REC_SAMPLE_QUEUED, 0, NULL, 0, 0), sleeps;
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	begin(p, 0, 7);
	frame(p, 0x1000, REC_FRAME_KERNEL, "__schedule", "[kernel]");
	frame(p, 0x100f, REC_FRAME_KERNEL, "futex_wait", "[kernel]");
	frame(p, 0x100, REC_FRAME_NATIVE, "main", "prog");
	push(p, REC_SAMPLE_OFF, 50, lock, 2, 1);
	queued.queue_ns = 9;
	profile_push_sample(p, &queued);
	sleeps = sample_of(REC_SAMPLE_OFF, 8, call, 0, 1);
	sleeps.queue_ns = 1;
	sleeps.disk = true; /* no function tells: the way of waiting does */
	profile_push_sample(p, &sleeps);
	assert_json(p, "{\"format\":1,\"window_ns\":1000,\"off_cpu\":{\"min_ns\":7,\"samples\":4,\"total_ns\":68},"
		       "\"samples_without_stack\":0,\"lost_samples\":0,\"threads\":[\n[42,43,\"prog\",\"worker\"]\n],"
		       "\"frames\":[\n[\"futex_wait\",\"[kernel]\"],\n[\"main\",\"prog\"]\n],\"stacks\":[\n"
		       "[\"futex\",0,50,1,\"whole\",[0,1]],\n[\"run queue\",0,10,2,\"whole\",[]],\n"
		       "[\"disk\",0,8,1,\"whole\",[1]]\n]}");
	profile_free(p);
}

static void reasons(void **state)
{
	static const struct {
		const char *function;
		enum profile_kind kind;
	} all[] = {
		{"futex_do_wait", PROFILE_FUTEX},
		{"ep_poll", PROFILE_POLL},
		{"tcp_recvmsg", PROFILE_SOCKET},
		{"unix_stream_read_generic", PROFILE_SOCKET},
		{"pipe_read", PROFILE_PIPE},
		{"io_schedule", PROFILE_DISK},
		{"do_user_addr_fault", PROFILE_OTHER},
		{"do_nanosleep", PROFILE_SLEEP},
		{"do_wait", PROFILE_CHILD},
		{"schedule_timeout", PROFILE_KINDS},
		{"", PROFILE_KINDS},
		{"kernel_clone", PROFILE_CHILD},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		assert_int_equal(profile_wait_of_function(sv_of(all[i].function)), all[i].kind);
}

/* More stacks than are kept: all of their time is, under their thread. */
static void too_many(void **state)
{
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);
	const struct profile_namer namer = {NULL, name};
	uint64_t frames[2];
	struct buf out;
	char text[64];

	(void)state;
	begin(p, 1, 0);
	for (unsigned i = 0; i < 300; i++) {
		snprintf(text, sizeof(text), "f%u", i);
		frame(p, 1000 + i, REC_FRAME_NATIVE, text, "prog");
		frame(p, 1999 + i, REC_FRAME_NATIVE, text, "prog");
	}
	for (unsigned i = 0; i < PROFILE_STACKS_MAX + 1000; i++) {
		frames[0] = 1000 + i % 300;
		frames[1] = 2000 + i / 300;
		push(p, REC_SAMPLE_CPU, 1, frames, 0, 2);
	}
	buf_init(&out, 0);
	assert_int_equal(profile_json(p, &out, &namer, 0), 0);
	snprintf(text, sizeof(text), "\"total_ns\":%u", PROFILE_STACKS_MAX + 1000);
	assert_non_null(strstr(buf_cstr(&out), text));
	assert_non_null(strstr(buf_cstr(&out), "\"samples_without_stack\":1000"));
	/* What is not written: those that were not kept, and those past the heaviest. */
	snprintf(text, sizeof(text), "[\"cpu\",0,%u,%u,\"whole\",[]]", PROFILE_STACKS_MAX - PROFILE_WRITTEN_MAX + 1,
		 PROFILE_STACKS_MAX - PROFILE_WRITTEN_MAX + 1);
	assert_non_null(strstr(buf_cstr(&out), "[\"cpu\",0,1000,1000,\"whole\",[]]"));
	assert_non_null(strstr(buf_cstr(&out), text));
	buf_release(&out);
	profile_free(p);
}

static void push_at(struct profile *p, enum rec_sample_what what, uint64_t us, uint64_t weight_us, uint64_t queue_us,
		    uint64_t frame_at)
{
	const uint64_t frames[] = {frame_at, frame_at + 1};
	struct rec_sample s = sample_of(what, weight_us * 1000, frames, 0, 2);

	s.ts_ns = us * 1000;
	s.queue_ns = queue_us * 1000;
	profile_push_sample(p, &s);
}

/* When each was, in order of their begin, from the trace's start on; a wait that began before begins there. */
static void timeline(void **state)
{
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100);

	(void)state;
	begin(p, 10, 10);
	push_at(p, REC_SAMPLE_CPU, 500, 10, 0, 0x100);
	push_at(p, REC_SAMPLE_OFF, 700, 300, 50, 0x100); /* waits from 350, is woken at 650 */
	push_at(p, REC_SAMPLE_OFF, 400, 350, 0, 0x200);
	push_at(p, REC_SAMPLE_CPU, 800, 10, 0, 0x100);
	/* Rows of stacks, heaviest first: the waits (of no known function), the queue, the processor. */
	assert_timeline(p, 100 * 1000, "\"lost_samples\":0,\"threads\"",
			"\n[0,300,0,250,300,0,150,10,2,150,50,1,150,10,2]\n]}");
	profile_free(p);
}

/* The newest are kept; what begins after the last one that is not, is whole. Those of stacks that are not written have
 * the row of their thread and kind. */
static void timeline_limit(void **state)
{
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 2);

	(void)state;
	begin(p, 10, 10);
	for (unsigned i = 0; i < 5; i++)
		push_at(p, REC_SAMPLE_OFF, 100 * (i + 1), 20, 0, 0x100);
	assert_timeline(p, 0, "\"samples_without_time\":3,\"timeline_from_us\":301,", "\n[380,20,0,100,20,0]\n]}");
	profile_free(p);
	p = profile_new(&lost, 0);
	begin(p, 10, 10);
	push_at(p, REC_SAMPLE_CPU, 100, 20, 0, 0x100);
	assert_timeline(p, 0, "\"samples_without_time\":1,\"timeline_from_us\":101,", "\n]}");
	profile_free(p);
}

static void timeline_of_many(void **state)
{
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 100000);
	const struct profile_namer namer = {NULL, name};
	const char *line;
	struct buf out;
	char text[64];

	(void)state;
	begin(p, 10, 0);
	for (unsigned i = 0; i <= PROFILE_WRITTEN_MAX; i++) {
		snprintf(text, sizeof(text), "f%u", i);
		frame(p, 0x1000 + 2 * i, REC_FRAME_NATIVE, text, "prog");
		push_at(p, REC_SAMPLE_CPU, 10 + i, i ? 5 : 1, 0, 0x1000 + 2 * i); /* the first one is the lightest */
	}
	buf_init(&out, 0);
	assert_int_equal(profile_json(p, &out, &namer, 0), 0);
	line = strstr(buf_cstr(&out), "],\"timeline\":[\n");
	assert_non_null(line);
	snprintf(text, sizeof(text), "[10,1,%u,1,5,", PROFILE_WRITTEN_MAX);
	line = strchr(line, '\n') + 1;
	assert_memory_equal(line, text, strlen(text));
	line = strchr(line, '\n') + 1; /* the second row counts from the trace's beginning */
	assert_memory_equal(line, "[1010,5,", 8);
	buf_release(&out);
	profile_free(p);
}

/* --- allocations ------------------------------------------------------------------------------------------------- */

#define MS 1000000.0

struct sim { /* a process with two places that allocate: 1,000 bytes at 0x100, 100 at 0x110 */
	struct profile *p;
	uint64_t random, now_ns, cpu_ns, traps_ns, addr;
	unsigned windows;
	unsigned only_new; /* of as many windows, all but the last do not see what is freed, for a third of the traps */
};

static double chance(struct sim *s)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	return (double)(s->random >> 11) / 9007199254740992.0;
}

static void push_alloc(struct sim *s, const uint64_t *frames, uint64_t size, uint32_t period, uint64_t addr)
{
	struct rec_sample r = sample_of(REC_SAMPLE_ALLOC, 0, frames, 0, 2);

	r.size = size;
	r.period = period;
	r.addr = addr;
	profile_push_sample(s->p, &r);
}

/* `own_ms` of the process's own time, in which it allocates `times` of each; each call traps for 600 ns by perfbpf's
 * measure, for `trap` times as much in truth. */
static void push_window(struct sim *s, double own_ms, unsigned times, double trap)
{
	static const uint64_t big[] = {0x100, 0x201}, small[] = {0x110, 0x201};
	bool follows = !s->only_new || ++s->windows % s->only_new == 0;
	uint64_t traps_ns = 2u * times * (follows ? 600 : 200);
	struct rec_alloc_window w = {.proc = process,
				     .begin_ns = s->now_ns,
				     .ts_ns = s->now_ns + 20000000,
				     .window_traps_ns = traps_ns,
				     .window_cpu_ns = (uint64_t)(own_ms * MS + trap * (double)traps_ns),
				     .bytes = times * 1100ull,
				     .count = times * 2ull,
				     .follows = follows,
				     .allocators = 1u << REC_ALLOCATOR_NEW | 1u << REC_ALLOCATOR_MUSL | 1u << 31};

	for (unsigned i = 0; i < times; i++) {
		if (chance(s) < 1 - exp(-1000.0 / 20000)) {
			push_alloc(s, big, 1000, 20000, ++s->addr);
			profile_push_alloc_free(s->p, &(struct rec_alloc_free){process, s->addr});
		}
		if (chance(s) < 1 - exp(-100.0 / 20000))
			push_alloc(s, small, 100, 20000, ++s->addr); /* stays */
	}
	s->now_ns += 100000000;
	/* Outside it has four times as much, without traps. */
	s->cpu_ns += w.window_cpu_ns + (uint64_t)(4 * own_ms * MS);
	s->traps_ns += traps_ns;
	w.cpu_ns = s->cpu_ns;
	w.all_traps_ns = s->traps_ns;
	profile_push_alloc_window(s->p, &w);
}

static cJSON *profile_doc(const struct profile *p)
{
	const struct profile_namer namer = {NULL, name};
	struct buf out;
	cJSON *doc;

	buf_init(&out, 0);
	assert_int_equal(profile_json(p, &out, &namer, 0), 0);
	doc = cJSON_Parse(buf_cstr(&out));
	assert_non_null(doc);
	buf_release(&out);
	return doc;
}

static double cell(const cJSON *doc, int row, int at)
{
	return cJSON_GetArrayItem(cJSON_GetArrayItem(cJSON_GetObjectItem(doc, "memory"), row), at)->valuedouble;
}

static void simulate_kinds(struct sim *s, struct lost *lost, unsigned windows, double trap, unsigned only_new)
{
	*s = (struct sim){.p = profile_new(lost, 100000), .random = 5, .now_ns = 1000, .only_new = only_new};
	profile_push_sampling(s->p, &(struct rec_sampling){.ts_ns = 100, .alloc_bytes = 524288, .fault_period = 128});
	frame(s->p, 0x100, REC_FRAME_NATIVE, "big", "prog");
	frame(s->p, 0x110, REC_FRAME_NATIVE, "small", "prog");
	frame(s->p, 0x200, REC_FRAME_NATIVE, "main", "prog");
	for (unsigned i = 0; i < windows; i++) {
		unsigned times = 2000 + (unsigned)(chance(s) * 1000); /* 2,500 in the mean, in 10 ms */

		push_window(s, times / 250.0, times, trap);
	}
}

static void simulate(struct sim *s, struct lost *lost, unsigned windows, double trap)
{
	simulate_kinds(s, lost, windows, trap, 0);
}

/* What was not seen is told from what was, whatever the traps cost, and so is how sure that is. */
static void allocated(void **state)
{
	static const double traps[] = {0.9, 1, 1.1};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(traps); i++) {
		struct lost lost = {0};
		double big, small;
		struct sim s;
		cJSON *doc;

		simulate(&s, &lost, 60, traps[i]);
		doc = profile_doc(s.p);
		/* Own time of 1 ms has 250 of each: all of it is the sum of both kinds of time. */
		big = 250 * ((double)s.cpu_ns - traps[i] * (double)s.traps_ns) / MS * 1000;
		small = big / 10;
		assert_true(fabs(cell(doc, 0, 2) - big) <= cell(doc, 0, 3));
		assert_true(fabs(cell(doc, 1, 2) - small) <= cell(doc, 1, 3));
		assert_true(cell(doc, 0, 3) < 0.15 * big);
		assert_true(fabs(cell(doc, 0, 4) * 1000 / cell(doc, 0, 2) - 1) < 0.1); /* how many */
		assert_true(cell(doc, 0, 6) == 0);				       /* all were freed */
		assert_true(cell(doc, 1, 6) == cell(doc, 1, 2));		       /* none was */
		assert_int_equal(lost.n[LOST_NO_MEMORY], 0);
		cJSON_Delete(doc);
		profile_free(s.p);
	}
}

/* Where traps are what is not known, the windows with few of them tell how much it was, and all of them whose. */
static void allocated_kinds(void **state)
{
	double got[2][3]; /* of 0x100: bytes, error, share of both */
	struct lost lost = {0};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		double big, bytes;
		struct sim s;
		cJSON *doc;

		simulate_kinds(&s, &lost, 60, 1.1, i ? 3 : 0);
		doc = profile_doc(s.p);
		big = 250 * ((double)s.cpu_ns - 1.1 * (double)s.traps_ns) / MS * 1000;
		bytes = cell(doc, 0, 2) + cell(doc, 1, 2);
		got[i][0] = cell(doc, 0, 2) / big;
		got[i][1] = cell(doc, 0, 3) / big;
		got[i][2] = cell(doc, 0, 2) / bytes;
		assert_true(fabs(got[i][0] - 1) <= got[i][1]);
		assert_true(fabs(got[i][2] - 1000.0 / 1100) < 0.01);
		cJSON_Delete(doc);
		profile_free(s.p);
	}
	assert_true(got[1][1] < 0.6 * got[0][1]);
	assert_true(fabs(got[1][0] - 1) < fabs(got[0][0] - 1));
}

static double sum_of(const cJSON *table, int every, int at, int of, double is)
{
	const cJSON *row;
	double sum = 0;

	cJSON_ArrayForEach (row, table)
		for (int i = 0; i < cJSON_GetArraySize(row); i += every)
			if (of < 0 || cJSON_GetArrayItem(row, i + of)->valuedouble == is)
				sum += cJSON_GetArrayItem(row, i + at)->valuedouble;
	return sum;
}

/* The times say the same as the sums: what samples stand for, by what windows counted. */
static void allocated_when(void **state)
{
	struct lost lost = {0};
	const cJSON *times, *windows, *alloc, *names;
	double factor, own;
	struct sim s;
	cJSON *doc;

	(void)state;
	simulate(&s, &lost, 20, 1);
	doc = profile_doc(s.p);
	times = cJSON_GetObjectItem(doc, "allocations");
	windows = cJSON_GetObjectItem(doc, "alloc_windows");
	assert_true(cJSON_GetArraySize(windows) >= 20);
	own = sum_of(windows, 7, 3, -1, 0);
	factor = sum_of(windows, 7, 5, -1, 0) / sum_of(times, 5, 3, -1, 0) * sum_of(windows, 7, 4, -1, 0) / own;
	for (int row = 0; row < 2; row++) {
		assert_true(fabs(factor * sum_of(times, 5, 3, 2, row) / cell(doc, row, 2) - 1) < 0.001);
		assert_true(fabs(factor * sum_of(times, 5, 4, 2, row) / cell(doc, row, 4) - 1) < 0.001);
	}
	alloc = cJSON_GetObjectItem(doc, "alloc");
	names = cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(alloc, "processes"), 0), "allocators");
	assert_int_equal(cJSON_GetArraySize(names), 2);
	assert_string_equal(cJSON_GetArrayItem(names, 0)->valuestring, "operator new");
	assert_string_equal(cJSON_GetArrayItem(names, 1)->valuestring, "musl");
	assert_null(cJSON_GetObjectItem(alloc, "samples_without_time"));
	assert_null(cJSON_GetObjectItem(alloc, "timeline_from_us"));
	cJSON_Delete(doc);
	profile_free(s.p);
}

/* The newest are kept, in their order, whatever there was of other samples. */
static void allocated_limit(void **state)
{
	static const uint64_t frames[] = {0x100, 0x201};
	const struct profile_namer namer = {NULL, name};
	struct lost lost = {0};
	struct profile *p = profile_new(&lost, 2);
	struct buf out;

	(void)state;
	profile_push_sampling(p, &(struct rec_sampling){.ts_ns = 100, .period_ns = 10, .alloc_bytes = 1000});
	for (unsigned i = 5; i > 0; i--) {
		struct rec_sample r = sample_of(REC_SAMPLE_ALLOC, 0, frames, 0, 2);

		r.ts_ns = 1000000 * (i == 1 ? 9 : 6 - i);
		r.size = 1000000 * i;
		r.period = 1000;
		profile_push_sample(p, &r);
		push_at(p, REC_SAMPLE_CPU, 100, 10, 0, 0x100);
	}
	buf_init(&out, 0);
	assert_int_equal(profile_json(p, &out, &namer, 0), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"samples_without_time\":3,\"timeline_from_us\":3001}"));
	assert_non_null(
		strstr(buf_cstr(&out), "\"allocations\":[\n[4000,43,0,2000000,1.000,5000,43,0,1000000,1.000]\n]"));
	buf_release(&out);
	profile_free(p);
}

/* From few windows nothing can be said of how sure it is. */
static void allocated_unsure(void **state)
{
	struct lost lost = {0};
	struct sim s;
	cJSON *doc;

	(void)state;
	simulate(&s, &lost, 2, 1);
	doc = profile_doc(s.p);
	assert_true(cell(doc, 0, 2) > 0);
	assert_true(cJSON_IsNull(cJSON_GetArrayItem(cJSON_GetArrayItem(cJSON_GetObjectItem(doc, "memory"), 0), 3)));
	cJSON_Delete(doc);
	profile_free(s.p);
}

/* A window that never was told; sizes and periods that mean nothing; page faults. */
static void allocated_oddly(void **state)
{
	static const uint64_t frames[] = {0x100, 0x201};
	const struct profile_namer namer = {NULL, name};
	struct lost lost = {0};
	struct rec_sample fault;
	struct buf out;
	struct sim s;

	(void)state;
	simulate(&s, &lost, 0, 1);
	push_alloc(&s, frames, 0, 1, 7);
	push_alloc(&s, frames, UINT64_MAX >> 9, 1, 8);
	push_alloc(&s, frames, 5, UINT32_MAX, 0);
	profile_push_alloc_free(s.p, &(struct rec_alloc_free){process, 99});
	fault = sample_of(REC_SAMPLE_FAULT, 0, frames, 0, 2);
	fault.size = 128;
	profile_push_sample(s.p, &fault);
	buf_init(&out, 0);
	assert_int_equal(profile_json(s.p, &out, &namer, 0), 0);
	assert_non_null(strstr(buf_cstr(&out),
			       "\"alloc\":{\"bytes_per_sample\":524288,\"samples\":2,\"fault_period\":128,"
			       "\"fault_samples\":1,\"faults\":128,\"processes\":[]}"));
	assert_string_equal(strstr(buf_cstr(&out), "\"memory\":["),
			    "\"memory\":[\n[\"alloc\",0,null,null,null,2,null,null,\"whole\",[0,1]],\n"
			    "[\"fault\",0,524288,1027604,128,1,null,null,\"whole\",[0,1]]\n],\"allocations\":[\n"
			    "[0,43,0,4294967296,858993472.000,0,43,0,36028797018963968,1.000]\n],\"alloc_windows\":["
			    "\n]}");
	buf_release(&out);
	profile_free(s.p);
}

static void without_memory(void **state)
{
	static const uint64_t one[] = {0x100, 0x201};
	const struct profile_namer namer = {NULL, name};
	unsigned n = 0;
	bool hit;

	(void)state;
	do {
		struct lost lost = {0};
		struct profile *p;
		struct buf out;

		buf_init(&out, 0);
		fail_nth(++n);
		p = profile_new(&lost, 100);
		if (p) {
			begin(p, 10, 0);
			frame(p, 0x100, REC_FRAME_NATIVE, "hot", "prog");
			frame(p, 0x200, REC_FRAME_PENDING, "", "[jit]");
			push(p, REC_SAMPLE_CPU, 10, one, 0, 2);
			profile_push_sampling(p, &(struct rec_sampling){.ts_ns = 1100, .alloc_bytes = 1});
			push_window(&(struct sim){.p = p, .random = 5}, 1, 100, 1);
			profile_json(p, &out, &namer, 0);
		}
		hit = fail_nth_hit();
		buf_release(&out);
		profile_free(p);
	} while (hit);
	fail_nth(0);
	assert_true(n > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_asked),    cmocka_unit_test(what_ran),
		cmocka_unit_test(broken_stacks),    cmocka_unit_test(named_later),
		cmocka_unit_test(broken_later),	    cmocka_unit_test(what_waited),
		cmocka_unit_test(reasons),	    cmocka_unit_test(too_many),
		cmocka_unit_test(timeline),	    cmocka_unit_test(timeline_limit),
		cmocka_unit_test(timeline_of_many), cmocka_unit_test(without_memory),
		cmocka_unit_test(allocated_kinds),  cmocka_unit_test(allocated_when),
		cmocka_unit_test(allocated_limit),  cmocka_unit_test(allocated),
		cmocka_unit_test(allocated_unsure), cmocka_unit_test(allocated_oddly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
