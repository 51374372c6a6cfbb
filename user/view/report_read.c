/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A trace file, line by line. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "report_op.h"

const char *const report_part_names[PARTS] = {"connect",    "network", "first_token", "generation", "stall",  "tool",
					      "retry_wait", "client",  "agent_gap",   "user",	    "unknown"};
const char *const report_kind_names[KINDS] = {"cpu",  "run queue", "futex", "socket", "poll",
					      "pipe", "disk",	   "sleep", "child",  "other"};

__attribute__((format(printf, 2, 3))) static int refuse(struct report *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

const char *report_why(const struct report *r)
{
	return r->why;
}

/* --- values of a document ---------------------------------------------------------------------------------------- */

/* A number that means something; else `otherwise`. */
static double number(const cJSON *item, double otherwise)
{
	double n = json_number(item);

	return n >= 0 && n <= REPORT_NUMBER_MAX ? n : otherwise;
}

double report_member(const cJSON *object, const char *key, double otherwise)
{
	return number(json_get(object, key), otherwise);
}

/* false: not a whole number below the limit. */
static bool place(const cJSON *item, double limit, uint32_t *out)
{
	double n = number(item, -1);

	if (n < 0 || n >= limit || n != floor(n))
		return false;
	*out = (uint32_t)n;
	return true;
}

static char *copy(struct sv s)
{
	return strndup(s.len ? s.ptr : "", s.len);
}

static struct sv text(const cJSON *item)
{
	return cJSON_IsString(item) ? sv_of(item->valuestring) : SV_NONE;
}

/* NULL: no JSON document of this type. */
static cJSON *parse(struct sv line, cJSON_bool (*is)(const cJSON *item))
{
	const char *end = NULL;
	cJSON *doc = line.len ? cJSON_ParseWithLengthOpts(line.ptr, line.len, &end, 0) : NULL;

	if (doc && end == line.ptr + line.len && is(doc))
		return doc;
	cJSON_Delete(doc);
	return NULL;
}

/* --- the profile ------------------------------------------------------------------------------------------------- */

static void read_libraries(struct report_allocator *a, const cJSON *list)
{
	const cJSON *item;
	unsigned count = 0;

	cJSON_ArrayForEach (item, list) {
		struct sv name = text(item);

		if (count < REPORT_LIBRARIES_MAX && name.len && name.len < sizeof(a->libraries[0]))
			memcpy(a->libraries[count++], name.ptr, name.len);
	}
}

static int add_allocators(struct report *r, const cJSON *list)
{
	const cJSON *item;

	cJSON_ArrayForEach (item, list) {
		struct sv name = text(json_get(item, "name"));
		struct report_allocator a = {
			.share = report_member(item, "share", NAN),
			.bytes = report_member(item, "bytes", NAN),
			.error = report_member(item, "error_bytes", NAN),
			.count = report_member(item, "count", NAN),
			.windows = report_member(item, "windows", NAN),
		};

		if (!place(json_get(item, "pid"), 4294967296.0, &a.pid))
			return refuse(r, "its profile names a process that is none");
		/* Nothing was seen, and nobody knows how little that is. */
		if (isnan(a.error) && !(a.bytes > 0))
			a.bytes = a.count = NAN;
		if (name.len)
			snprintf(a.name, sizeof(a.name), "%.*s", (int)(name.len < 63 ? name.len : 63), name.ptr);
		read_libraries(&a, json_get(item, "allocators"));
		if (!array_grow(&r->allocators, r->allocator_count, &r->allocator_room, sizeof(a)))
			return -ENOMEM;
		r->allocators[r->allocator_count++] = a;
	}
	return 0;
}

static int take_header(struct report *r, const cJSON *doc)
{
	const cJSON *cpu = json_get(doc, "cpu"), *off = json_get(doc, "off_cpu"), *alloc = json_get(doc, "alloc");

	r->window_ns = report_member(doc, "window_ns", 0);
	r->period_ns = report_member(cpu, "period_ns", 0);
	r->cpu_samples = report_member(cpu, "samples", 0);
	r->deep_samples = report_member(cpu, "deep_samples", 0);
	r->broken_ns = report_member(cpu, "broken_ns", 0);
	r->off_cpu_min_ns = report_member(off, "min_ns", 0);
	r->lost_samples = report_member(doc, "lost_samples", 0);
	r->timeline_from_us = report_member(doc, "timeline_from_us", 0);
	r->alloc_bytes = report_member(alloc, "bytes_per_sample", 0);
	r->alloc_from_us = report_member(alloc, "timeline_from_us", 0);
	return add_allocators(r, json_get(alloc, "processes"));
}

static int add_thread(struct report *r, const cJSON *row)
{
	struct report_thread t = {0};

	if (cJSON_GetArraySize(row) != 4 || !place(cJSON_GetArrayItem(row, 0), 4294967296.0, &t.pid) ||
	    !place(cJSON_GetArrayItem(row, 1), 4294967296.0, &t.tid) || r->thread_count == REPORT_THREADS_MAX)
		return refuse(r, "row %zu of the profile's threads is none", r->thread_count + 1);
	t.process = copy(text(cJSON_GetArrayItem(row, 2)));
	if (!t.process || !array_grow(&r->threads, r->thread_count, &r->thread_room, sizeof(*r->threads))) {
		free(t.process);
		return -ENOMEM;
	}
	r->threads[r->thread_count++] = t;
	return 0;
}

static int add_frame(struct report *r, const cJSON *row)
{
	struct sv name = text(cJSON_GetArrayItem(row, 0)), module = text(cJSON_GetArrayItem(row, 1));
	struct report_frame f = {.first = (uint32_t)r->frame_count};

	if (cJSON_GetArraySize(row) != 2 || !name.ptr || !module.ptr || r->frame_count == REPORT_FRAMES_MAX)
		return refuse(r, "row %zu of the profile's frames is none", r->frame_count + 1);
	f.name = copy(name);
	f.module = copy(module);
	if (!f.name || !f.module || !array_grow(&r->frames, r->frame_count, &r->frame_room, sizeof(*r->frames))) {
		free(f.name);
		free(f.module);
		return -ENOMEM;
	}
	r->frames[r->frame_count++] = f;
	return 0;
}

/* Its thread, and from member `at` on its state and frames. */
static bool read_frames(const struct report *r, const cJSON *row, int at, struct report_stack *s)
{
	struct sv state = text(cJSON_GetArrayItem(row, at));
	const cJSON *frames = cJSON_GetArrayItem(row, at + 1), *item;

	s->broken = sv_eq(state, SV("broken"));
	s->deep = sv_eq(state, SV("deep"));
	if (!cJSON_IsArray(frames) || !place(cJSON_GetArrayItem(row, 1), (double)r->thread_count, &s->thread))
		return false;
	cJSON_ArrayForEach (item, frames) {
		uint32_t frame;

		if (s->depth == REPORT_DEPTH_MAX || !place(item, (double)r->frame_count, &frame))
			return false;
		s->frames[s->depth++] = frame;
	}
	return true;
}

static bool read_stack(const struct report *r, const cJSON *row, struct report_stack *s)
{
	struct sv kind = text(cJSON_GetArrayItem(row, 0));
	double samples = number(cJSON_GetArrayItem(row, 3), -1);

	for (s->kind = 0; s->kind < KINDS && !sv_eq(kind, sv_of(report_kind_names[s->kind])); s->kind++)
		;
	s->ns = number(cJSON_GetArrayItem(row, 2), -1);
	s->samples = samples < 0 ? 0 : (uint64_t)samples;
	return s->kind < KINDS && s->ns >= 0 && samples >= 0 && read_frames(r, row, 4, s);
}

/* Frames of its own in the place of borrowed ones. False: no memory. */
static bool keep_frames(struct report_stack *s)
{
	uint32_t *frames = malloc((s->depth + 1) * sizeof(*frames));

	if (!frames)
		return false;
	memcpy(frames, s->frames, s->depth * sizeof(*frames));
	s->frames = frames;
	return true;
}

static int add_stack(struct report *r, const cJSON *row)
{
	uint32_t frames[REPORT_DEPTH_MAX];
	struct report_stack s = {.frames = frames};

	if (cJSON_GetArraySize(row) != 6 || r->stack_count == REPORT_STACKS_MAX || !read_stack(r, row, &s))
		return refuse(r, "row %zu of the profile's stacks is none", r->stack_count + 1);
	if (!keep_frames(&s) || !array_grow(&r->stacks, r->stack_count, &r->stack_room, sizeof(*r->stacks))) {
		free(s.frames == frames ? NULL : s.frames);
		return -ENOMEM;
	}
	r->stacks[r->stack_count++] = s;
	return 0;
}

static bool read_memory(const struct report *r, const cJSON *row, struct report_memory *m)
{
	struct sv kind = text(cJSON_GetArrayItem(row, 0));
	double samples = number(cJSON_GetArrayItem(row, 5), -1);

	m->fault = sv_eq(kind, SV("fault"));
	m->bytes = number(cJSON_GetArrayItem(row, 2), NAN);
	m->error = number(cJSON_GetArrayItem(row, 3), NAN);
	m->count = number(cJSON_GetArrayItem(row, 4), NAN);
	m->stack.samples = samples < 0 ? 0 : (uint64_t)samples;
	m->stack.kind = m->fault ? KIND_QUEUE : KIND_CPU; /* the kernel's part says nothing */
	m->kept_bytes = number(cJSON_GetArrayItem(row, 6), NAN);
	m->kept_count = number(cJSON_GetArrayItem(row, 7), NAN);
	return (m->fault || sv_eq(kind, SV("alloc"))) && samples >= 0 && read_frames(r, row, 8, &m->stack);
}

static int add_memory(struct report *r, const cJSON *row)
{
	uint32_t frames[REPORT_DEPTH_MAX];
	struct report_memory m = {.stack = {.frames = frames}};

	if (cJSON_GetArraySize(row) != 10 || r->memory_count == REPORT_STACKS_MAX || !read_memory(r, row, &m))
		return refuse(r, "row %zu of the profile's memory is none", r->memory_count + 1);
	if (!keep_frames(&m.stack) || !array_grow(&r->memory, r->memory_count, &r->memory_room, sizeof(m))) {
		free(m.stack.frames == frames ? NULL : m.stack.frames);
		return -ENOMEM;
	}
	r->memory[r->memory_count++] = m;
	return 0;
}

static int compare_frames(const void *a, const void *b)
{
	const struct report_frame *x = *(const struct report_frame *const *)a,
				  *y = *(const struct report_frame *const *)b;
	int order = strcmp(x->name, y->name);

	order = order ? order : strcmp(x->module, y->module);
	return order ? order : x->first < y->first ? -1 : x->first > y->first;
}

/* Code of a runtime that was named late may have the same name twice. */
static int join_frames(struct report *r)
{
	struct report_frame **sorted = calloc(r->frame_count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < r->frame_count; i++)
		sorted[i] = &r->frames[i];
	qsort(sorted, r->frame_count, sizeof(*sorted), compare_frames);
	for (size_t i = 1; i < r->frame_count; i++)
		if (!strcmp(sorted[i]->name, sorted[i - 1]->name) && !strcmp(sorted[i]->module, sorted[i - 1]->module))
			sorted[i]->first = sorted[i - 1]->first;
	free(sorted);
	return 0;
}

static int compare_threads(const void *a, const void *b)
{
	const struct report_thread *x = *(const struct report_thread *const *)a;
	const struct report_thread *y = *(const struct report_thread *const *)b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static int join_threads(struct report *r)
{
	struct report_thread **sorted = calloc(r->thread_count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < r->thread_count; i++) {
		r->threads[i].first = (uint32_t)i;
		sorted[i] = &r->threads[i];
	}
	qsort(sorted, r->thread_count, sizeof(*sorted), compare_threads);
	for (size_t i = 1; i < r->thread_count; i++)
		if (sorted[i]->pid == sorted[i - 1]->pid)
			sorted[i]->first = sorted[i - 1]->first;
	free(sorted);
	return 0;
}

/* What ran, and waited, of the process whose stack it is. */
static int sum_process(struct report *r, const struct report_stack *s)
{
	const struct report_thread *t = &r->threads[s->thread];
	struct report_process *p = report_process_of(r, t->pid);

	if (!p && r->process_count == REPORT_PIDS_MAX) {
		r->unlisted += s->samples;
		return 0;
	}
	if (!p)
		return -ENOMEM;
	p->sampled = true;
	p->cpu_ns += s->kind == KIND_CPU ? s->ns : 0;
	p->queue_ns += s->kind == KIND_QUEUE ? s->ns : 0;
	p->blocked_ns += s->kind > KIND_QUEUE ? s->ns : 0;
	if (!p->name)
		p->name = copy(sv_of(t->process));
	return p->name ? 0 : -ENOMEM;
}

static int finish_profile(struct report *r)
{
	int err = join_frames(r);

	if (!err)
		err = join_threads(r);
	if (!err) {
		report_cut_to_window(r);
		err = report_join_allocators(r);
		err = err ? err : report_cut_allocations(r);
	}
	for (size_t i = 0; i < r->stack_count && !err; i++)
		err = sum_process(r, &r->stacks[i]);
	return err;
}

/* --- lines ------------------------------------------------------------------------------------------------------- */

static void add_axis(struct report *r, const char *name)
{
	size_t len = strlen(r->axes);

	snprintf(r->axes + len, sizeof(r->axes) - len, "%s%s", len ? " " : "", name);
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#define FUNCTIONS_MAX 32 /* of -f; a file that says more is none of ours */

static void take_axes(struct report *r, const cJSON *doc)
{
	const cJSON *axes = json_get(doc, "axes"), *item;
	const char *names[FUNCTIONS_MAX];
	size_t count = 0;

	r->axes_told = cJSON_IsArray(axes);
	cJSON_ArrayForEach (item, axes)
		add_axis(r, cJSON_IsString(item) ? item->valuestring : "");
	/* In whatever order they were given. */
	cJSON_ArrayForEach (item, json_get(doc, "functions"))
		if (count < ARRAY_SIZE(names))
			names[count++] =
				text(json_get(item, "function")).len ? json_get(item, "function")->valuestring : "-f";
	qsort(names, count, sizeof(names[0]), compare_texts);
	for (size_t i = 0; i < count; i++)
		add_axis(r, names[i]);
}

static void add_loss(struct report *r, const char *name, double count)
{
	size_t len = strlen(r->losses);

	r->lost += count;
	if (count > 0)
		snprintf(r->losses + len, sizeof(r->losses) - len, "%s%s %.0f", len ? ", " : "", name ? name : "",
			 count);
}

static int take_metadata(struct report *r, struct sv line)
{
	struct sv body = {line.ptr, line.len ? line.len - 1 : 0};
	const cJSON *lost, *item;
	cJSON *doc;
	int err;

	if (!sv_ends(line, SV("}")))
		return refuse(r, "its metadata is cut");
	doc = parse(body, cJSON_IsObject);
	if (!doc)
		return refuse(r, "its metadata is no JSON object");
	r->duration_ms = report_member(doc, "duration_ms", 0);
	take_axes(r, doc);
	lost = json_get(doc, "lost");
	cJSON_ArrayForEach (item, lost)
		add_loss(r, item->string, number(item, 0));
	if (text(json_get(json_get(doc, "verdict"), "verdict")).len)
		r->verdict = copy(text(json_get(json_get(doc, "verdict"), "verdict")));
	cJSON_Delete(doc);
	r->section = SECTION_END;
	err = finish_profile(r);
	return err ? err : report_ops_solve(r);
}

static int take_profile(struct report *r, struct sv line)
{
	static const struct sv end = {",\"threads\":[", 12};
	struct buf header;
	cJSON *doc;
	int err;

	if (!sv_ends(line, end))
		return refuse(r, "its profile is of another version");
	buf_init(&header, REPORT_LINE_BYTES + 1);
	buf_push(&header, line.ptr, line.len - end.len);
	buf_putc(&header, '}');
	doc = parse((struct sv){header.ptr, header.len}, cJSON_IsObject);
	buf_release(&header);
	if (!doc || report_member(doc, "format", 0) != 1) {
		cJSON_Delete(doc);
		return refuse(r, "its profile is of another version");
	}
	err = take_header(r, doc);
	cJSON_Delete(doc);
	r->section = SECTION_THREADS;
	return err;
}

static struct sv after(struct sv line, struct sv prefix)
{
	return sv_starts(line, prefix) ? (struct sv){line.ptr + prefix.len, line.len - prefix.len} : SV_NONE;
}

/* A line that ends a table. */
static int take_mark(struct report *r, struct sv line)
{
	static const struct {
		enum report_section from, to;
		struct sv line;
	} tables[] = {
		{SECTION_THREADS, SECTION_FRAMES, {"],\"frames\":[", 12}},
		{SECTION_FRAMES, SECTION_STACKS, {"],\"stacks\":[", 12}},
		{SECTION_STACKS, SECTION_TIMELINE, {"],\"timeline\":[", 14}},
		{SECTION_TIMELINE, SECTION_MEMORY, {"],\"memory\":[", 12}},
		{SECTION_MEMORY, SECTION_ALLOCATIONS, {"],\"allocations\":[", 17}},
		{SECTION_ALLOCATIONS, SECTION_WINDOWS, {"],\"alloc_windows\":[", 19}},
	};
	bool last = r->section >= SECTION_STACKS && r->section < SECTION_END;
	struct sv metadata = after(line, last ? SV("]}},\"metadata\":") : SV("],\"metadata\":"));
	struct sv profile = after(line, SV("],\"otherData\":{\"profile\":"));

	if (metadata.ptr && (last || r->section == SECTION_EVENTS))
		return take_metadata(r, metadata);
	if (profile.ptr && r->section == SECTION_EVENTS)
		return take_profile(r, profile);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		if (r->section != tables[i].from || !sv_eq(line, tables[i].line))
			continue;
		r->section = tables[i].to;
		r->timed |= r->section == SECTION_TIMELINE;
		r->alloc_timed |= r->section == SECTION_WINDOWS;
		return 0;
	}
	return refuse(r, "it is not laid out as perfbpf writes it");
}

static int add_times(struct report *r, const cJSON *row)
{
	int err = r->section == SECTION_ALLOCATIONS ? report_allocations_row(r, row)
		  : r->section == SECTION_WINDOWS   ? report_window_row(r, row)
						    : report_timeline_row(r, row);

	return err == -EBADMSG ? refuse(r, "a row of the profile's times is none") : err;
}

static int take_row(struct report *r, struct sv line)
{
	bool event = r->section == SECTION_EVENTS;
	cJSON *doc;
	int err;

	if (sv_ends(line, SV(",")))
		line.len--;
	doc = parse(line, event ? cJSON_IsObject : cJSON_IsArray);
	if (!doc)
		return refuse(r, "a line of it is no %s: cut, or changed", event ? "event" : "row of a profile");
	err = event			      ? report_event(r, doc)
	      : r->section == SECTION_THREADS ? add_thread(r, doc)
	      : r->section == SECTION_FRAMES  ? add_frame(r, doc)
	      : r->section == SECTION_STACKS  ? add_stack(r, doc)
	      : r->section == SECTION_MEMORY  ? add_memory(r, doc)
					      : add_times(r, doc);
	if (event && !err)
		err = report_ops_event(r->ops, doc);
	cJSON_Delete(doc);
	return err;
}

int report_line(struct report *r, struct sv line)
{
	if (line.len > REPORT_LINE_BYTES)
		return refuse(r, "a line of it is longer than 1 MiB");
	switch (r->section) {
	case SECTION_START:
		if (!sv_eq(line, SV("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")))
			return refuse(r, "not a trace of perfbpf");
		r->section = SECTION_EVENTS;
		return 0;
	case SECTION_END:
		return line.len ? refuse(r, "something follows its end") : 0;
	default:
		return sv_starts(line, SV("]")) ? take_mark(r, line) : take_row(r, line);
	}
}

int report_end(struct report *r)
{
	return r->section == SECTION_END ? 0 : refuse(r, r->section == SECTION_START ? "it is empty" : "it is cut");
}

struct report *report_new(void)
{
	struct report *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->random = 88172645463325252u;
	r->ops = report_ops_new(r);
	if (r->ops)
		return r;
	free(r);
	return NULL;
}

int report_choose_operations(struct report *r, const char *regex)
{
	return report_ops_choose(r->ops, regex);
}

void report_since(struct report *r, double from_ms)
{
	r->from_ms = from_ms;
}

double report_duration_ms(const struct report *r)
{
	return r->duration_ms;
}

void report_free(struct report *r)
{
	if (!r)
		return;
	report_events_release(r);
	for (size_t i = 0; i < r->thread_count; i++)
		free(r->threads[i].process);
	for (size_t i = 0; i < r->frame_count; i++) {
		free(r->frames[i].name);
		free(r->frames[i].module);
	}
	for (size_t i = 0; i < r->stack_count; i++)
		free(r->stacks[i].frames);
	for (size_t i = 0; i < r->memory_count; i++)
		free(r->memory[i].stack.frames);
	free(r->memory);
	free(r->allocators);
	free(r->threads);
	free(r->frames);
	free(r->stacks);
	free(r->samples);
	free(r->allocations);
	free(r->windows);
	free(r->verdict);
	report_ops_free(r->ops);
	free(r);
}
