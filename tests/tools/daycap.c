/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * daycap CALLS PROCESSES > day.cap 2> truth.json: an agent that works for 24 hours. So many model calls one after the
 * other on one connection; each asks for a tool that starts PROCESSES short programs, but for every hundredth, which
 * ends a turn. The truth, one JSON object: what was made, and where the time went.
 */
#include <inttypes.h>
#include <linux/types.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpf/event.h"

#define DAY_NS	      86400000000000ull
#define BEGIN_NS      3600000000000ull
#define AGENT	      1000u
#define AGENT_BORN_NS 3599000000000ull
#define STEPS_A_TURN  100u
#define FIRST_PID     2000u
#define PIDS	      30000u /* in use again after so many */

/* Of one step, in thousandths of its time. */
enum { TOKEN = 200, END = 400, TOOLS = 420, SLOTS = 500, LIFE = 400 };

struct day {
	uint64_t calls, per_call, step_ns;
	uint64_t pos[2];
	uint64_t born; /* processes so far */
	uint64_t turns, tools;
};

static void put(const void *fixed, size_t size, const void *more, size_t more_len)
{
	static const char zero[8];
	size_t pad = (8 - more_len % 8) % 8;

	if (fwrite(fixed, 1, size, stdout) != size || fwrite(more, 1, more_len, stdout) != more_len ||
	    fwrite(zero, 1, pad, stdout) != pad) {
		perror("daycap");
		exit(1);
	}
}

static struct ev_head head(unsigned kind, uint32_t pid, uint64_t ts_ns, size_t size, size_t more)
{
	return (struct ev_head){.size = (__u32)(size + (more + 7) / 8 * 8),
				.kind = (__u16)kind,
				.ts_ns = ts_ns,
				.tgid = pid,
				.tid = pid};
}

static struct ev_conn connection(void)
{
	return (struct ev_conn){.obj = 0x5500, .start_ns = AGENT_BORN_NS, .exec_id = 1, .gen = 1};
}

static void put_program(unsigned kind, uint32_t pid, uint64_t born_ns, uint64_t ts_ns, uint32_t ppid, const char *path,
			const char *comm)
{
	struct ev_exec e = {.start_ns = born_ns, .exec_id = 1, .ppid = ppid, .filename_len = (__u32)strlen(path)};

	strncpy(e.comm, comm, sizeof(e.comm) - 1);
	e.h = head(kind, pid, ts_ns, sizeof(e), e.filename_len);
	put(&e, sizeof(e), path, e.filename_len);
}

static void put_data(struct day *d, unsigned dir, uint64_t ts_ns, const struct buf *bytes)
{
	struct ev_data e = {.conn = connection(),
			    .pos = d->pos[dir],
			    .entry_ns = ts_ns,
			    .len = (__u32)bytes->len,
			    .orig_len = (__u32)bytes->len,
			    .dir = (__u8)dir};

	e.h = head(EV_DATA, AGENT, ts_ns, sizeof(e), bytes->len);
	put(&e, sizeof(e), bytes->ptr, bytes->len);
	d->pos[dir] += bytes->len;
}

static void put_request(struct day *d, uint64_t step, uint64_t ts_ns)
{
	struct buf body, all;

	buf_init(&body, 0);
	buf_init(&all, 0);
	buf_puts(&body,
		 "{\"model\":\"claude-day-1\",\"max_tokens\":100,\"stream\":true,\"tools\":[{\"name\":\"Bash\"}],"
		 "\"messages\":[{\"role\":\"user\",\"content\":\"go on\"}");
	if (step % STEPS_A_TURN)
		buf_printf(&body,
			   ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_%08" PRIu64
			   "\",\"name\":\"Bash\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_"
			   "result\","
			   "\"tool_use_id\":\"toolu_%08" PRIu64 "\",\"content\":\"done\"}]}",
			   step - 1, step - 1);
	buf_puts(&body, "]}");
	buf_printf(&all,
		   "POST /v1/messages HTTP/1.1\r\nhost: api.anthropic.com\r\nuser-agent: claude-cli/2.1.332 (external, "
		   "cli)\r\nx-claude-code-session-id: day\r\ncontent-length: %zu\r\n\r\n",
		   body.len);
	buf_push(&all, body.ptr, body.len);
	put_data(d, EV_DIR_TX, ts_ns, &all);
	buf_release(&body);
	buf_release(&all);
}

static void push_chunk(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void push_chunk(struct buf *out, const char *fmt, ...)
{
	char text[2048];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_printf(out, "%x\r\n%s\r\n", n, text);
}

static void put_answer(struct day *d, uint64_t step, uint64_t at_ns, bool last_of_turn)
{
	struct buf bytes;

	buf_init(&bytes, 0);
	buf_puts(&bytes, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
	push_chunk(
		&bytes,
		"data: "
		"{\"type\":\"message_start\",\"message\":{\"id\":\"msg\",\"type\":\"message\",\"role\":\"assistant\","
		"\"model\":\"claude-day-1\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":10,"
		"\"output_tokens\":1}}}\n\n"
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":"
		"\"\"}}\n\n"
		"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"
		"\"well\"}}\n\n");
	put_data(d, EV_DIR_RX, at_ns + d->step_ns * TOKEN / 1000, &bytes);
	buf_clear(&bytes);
	push_chunk(&bytes, "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n");
	if (!last_of_turn)
		push_chunk(
			&bytes,
			"data: "
			"{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":"
			"\"toolu_%08" PRIu64 "\",\"name\":\"Bash\",\"input\":{}}}\n\n"
			"data: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
			step);
	push_chunk(
		&bytes,
		"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"%s\",\"stop_sequence\":null},\"usage\":"
		"{\"output_tokens\":5}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
		last_of_turn ? "end_turn" : "tool_use");
	buf_puts(&bytes, "0\r\n\r\n");
	put_data(d, EV_DIR_RX, at_ns + d->step_ns * END / 1000, &bytes);
	buf_release(&bytes);
}

static void put_tool(struct day *d, uint64_t at_ns)
{
	for (uint64_t i = 0; i < d->per_call; i++, d->born++) {
		uint64_t born_ns = at_ns + d->step_ns * (TOOLS * d->per_call + SLOTS * i) / (1000 * d->per_call);
		uint64_t gone_ns = born_ns + d->step_ns * LIFE / (1000 * d->per_call);
		uint32_t pid = FIRST_PID + (uint32_t)(d->born % PIDS);
		struct ev_fork fork = {.child_start_ns = born_ns, .child_tgid = pid};
		struct ev_exit end = {.start_ns = born_ns, .exec_id = 1, .cpu_ns = 1000000};

		fork.h = head(EV_FORK, AGENT, born_ns, sizeof(fork), 0);
		put(&fork, sizeof(fork), "", 0);
		put_program(EV_EXEC, pid, born_ns, born_ns + 1000, AGENT, "/bin/true", "true");
		end.h = head(EV_EXIT, pid, gone_ns, sizeof(end), 0);
		put(&end, sizeof(end), "", 0);
	}
}

static void put_step(struct day *d, uint64_t step)
{
	uint64_t at_ns = BEGIN_NS + step * d->step_ns;
	bool last_of_turn = step % STEPS_A_TURN == STEPS_A_TURN - 1 || step + 1 == d->calls;
	struct ev_head tick = head(EV_TICK, 0, at_ns, sizeof(tick), 0);

	put(&tick, sizeof(tick), "", 0);
	put_request(d, step, at_ns);
	put_answer(d, step, at_ns, last_of_turn);
	d->turns += last_of_turn;
	d->tools += !last_of_turn;
	if (!last_of_turn)
		put_tool(d, at_ns);
}

static void put_begin(void)
{
	struct capture_header h = {
		.abi_version = EV_ABI_VERSION, .header_size = sizeof(h), .start_ns = BEGIN_NS, .host = "day"};
	struct ev_conn_open open = {.conn = connection()};

	memcpy(h.magic, CAPTURE_MAGIC, sizeof(h.magic));
	put(&h, sizeof(h), "", 0);
	put_program(EV_EXEC, AGENT, AGENT_BORN_NS, AGENT_BORN_NS, 1, "/usr/bin/claude", "claude");
	open.h = head(EV_CONN_OPEN, AGENT, BEGIN_NS, sizeof(open), 0);
	open.h.flags = EV_F_FRESH;
	put(&open, sizeof(open), "", 0);
}

static void put_end(const struct day *d)
{
	uint64_t end_ns = BEGIN_NS + d->calls * d->step_ns;
	struct ev_exit end = {.start_ns = AGENT_BORN_NS, .exec_id = 1, .cpu_ns = 1000000};

	end.h = head(EV_EXIT, AGENT, end_ns, sizeof(end), 0);
	put(&end, sizeof(end), "", 0);
}

static void tell_truth(const struct day *d)
{
	double step_ms = (double)d->step_ns / 1e6, calls = (double)d->calls, tools = (double)d->tools;
	double whole = calls * step_ms, user = (calls - tools) * step_ms * (1000 - END) / 1000;
	double first = calls * step_ms * TOKEN / 1000, generation = calls * step_ms * (END - TOKEN) / 1000;
	double per = (double)d->per_call;
	double tool = tools * step_ms * (SLOTS * (per - 1) + LIFE) / per / 1000; /* first birth to last end */

	fprintf(stderr,
		"{\"calls\":%" PRIu64 ",\"turns\":%" PRIu64 ",\"tools\":%" PRIu64 ",\"processes\":%" PRIu64
		",\"wall_ms\":%.3f,\"parts_ms\":{\"first_token\":%.3f,\"generation\":%.3f,\"tool\":%.3f,\"user\":%.3f,"
		"\"agent_gap\":%.3f}}\n",
		d->calls, d->turns, d->tools, d->born, whole, first, generation, tool, user,
		whole - first - generation - tool - user);
}

int main(int argc, char **argv)
{
	struct day d = {.calls = argc == 3 ? strtoull(argv[1], NULL, 10) : 0};

	d.per_call = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	if (!d.calls || d.calls > 1000000 || !d.per_call || d.per_call > 100) {
		fprintf(stderr, "usage: daycap CALLS PROCESSES > day.cap 2> truth.json\n");
		return 2;
	}
	d.step_ns = DAY_NS / d.calls / 1000 * 1000;
	put_begin();
	for (uint64_t step = 0; step < d.calls; step++)
		put_step(&d, step);
	put_end(&d);
	tell_truth(&d);
	return fflush(stdout) ? 1 : 0;
}
