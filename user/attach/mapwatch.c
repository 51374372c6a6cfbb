/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mapwatch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DATA_PAGES 16 /* a power of two; some 600 events */

/* The fixed part of PERF_RECORD_MMAP2 (include/uapi/linux/perf_event.h); the file name follows, NUL-terminated and
 * padded. */
struct mmap2 {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	uint32_t major, minor;
	uint64_t ino, ino_generation;
	uint32_t prot, flags;
};

struct cpu {
	int fd;
	struct perf_event_mmap_page *page;
};

struct mapwatch {
	struct mapwatch_sink sink;
	int epoll_fd;
	size_t page_size, cpu_count;
	uint8_t record[65536]; /* one, unwrapped: its size is a u16 */
	struct cpu cpus[];
};

static int open_cpu(struct mapwatch *w, struct cpu *c, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.mmap = 1,
		.mmap2 = 1,
		/* wakeup_events would count samples only, and this event takes none. */
		.watermark = 1,
		.wakeup_watermark = 1,
	};
	struct epoll_event ev = {.events = EPOLLIN};

	c->page = MAP_FAILED;
	c->fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (c->fd < 0)
		return -errno;
	c->page = mmap(NULL, (DATA_PAGES + 1) * w->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
	if (c->page == MAP_FAILED)
		return -errno;
	return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) ? -errno : 0;
}

struct mapwatch *mapwatch_new(const struct mapwatch_sink *sink)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct mapwatch *w = calloc(1, sizeof(*w) + (cpus > 0 ? (size_t)cpus : 0) * sizeof(w->cpus[0]));
	int err = -ENOMEM;

	if (!w)
		goto fail;
	w->sink = *sink;
	w->page_size = (size_t)sysconf(_SC_PAGESIZE);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll_fd < 0) {
		err = -errno;
		goto fail;
	}
	for (int i = 0; i < cpus; i++) {
		err = open_cpu(w, &w->cpus[w->cpu_count], i);
		if (err == -ENODEV) /* that processor is off line */
			continue;
		w->cpu_count++;
		if (err)
			goto fail;
	}
	if (w->cpu_count)
		return w;
	err = -ENODEV;
fail:
	mapwatch_free(w);
	errno = -err;
	return NULL;
}

void mapwatch_free(struct mapwatch *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->cpu_count; i++) {
		if (w->cpus[i].page != MAP_FAILED)
			munmap(w->cpus[i].page, (DATA_PAGES + 1) * w->page_size);
		if (w->cpus[i].fd >= 0)
			close(w->cpus[i].fd);
	}
	if (w->epoll_fd >= 0)
		close(w->epoll_fd);
	free(w);
}

int mapwatch_fd(const struct mapwatch *w)
{
	return w->epoll_fd;
}

/* size: of the whole record. Mappings without a file have inode 0. */
static void tell(struct mapwatch *w, size_t size)
{
	struct mmap2 m;
	struct map_entry e;
	size_t len;

	memcpy(&m, w->record, sizeof(m));
	if (!m.ino || !(m.prot & PROT_EXEC))
		return;
	e.begin = m.addr;
	e.end = m.addr + m.len;
	e.offset = m.pgoff;
	e.dev_major = m.major;
	e.dev_minor = m.minor;
	e.ino = m.ino;
	e.deleted = false;
	len = strnlen((const char *)w->record + sizeof(m), size - sizeof(m));
	len = len < sizeof(e.path) ? len : sizeof(e.path) - 1;
	memcpy(e.path, w->record + sizeof(m), len);
	e.path[len] = '\0';
	w->sink.on_map(w->sink.ctx, (pid_t)m.pid, &e);
}

static void copy_out(const struct mapwatch *w, const struct cpu *c, uint64_t at, void *out, size_t len)
{
	const uint8_t *data = (const uint8_t *)c->page + w->page_size;
	size_t size = DATA_PAGES * w->page_size, begin = at & (size - 1), first = size - begin;

	first = first < len ? first : len;
	memcpy(out, data + begin, first);
	memcpy((uint8_t *)out + first, data, len - first);
}

static void read_cpu(struct mapwatch *w, struct cpu *c)
{
	uint64_t head = __atomic_load_n(&c->page->data_head, __ATOMIC_ACQUIRE), tail = c->page->data_tail;

	while (head - tail >= sizeof(struct perf_event_header)) {
		struct perf_event_header h;

		copy_out(w, c, tail, &h, sizeof(h));
		if (h.size < sizeof(h) || h.size > head - tail)
			break;
		copy_out(w, c, tail, w->record, h.size);
		if (h.type == PERF_RECORD_MMAP2 && h.size >= sizeof(struct mmap2))
			tell(w, h.size);
		else if (h.type == PERF_RECORD_LOST)
			w->sink.on_lost(w->sink.ctx);
		tail += h.size;
	}
	__atomic_store_n(&c->page->data_tail, head, __ATOMIC_RELEASE);
}

void mapwatch_read(struct mapwatch *w)
{
	for (size_t i = 0; i < w->cpu_count; i++)
		read_cpu(w, &w->cpus[i]);
}
