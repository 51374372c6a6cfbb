/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SEC   1000000000ll
#define OFFSETS_FILE "/proc/self/timens_offsets"

static int64_t shift_ns;

static int64_t now_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * NS_PER_SEC + ts.tv_nsec;
}

int64_t clock_parse_shift(struct sv text)
{
	char copy[256];
	int64_t s, ns;

	while (text.len) {
		struct sv line = sv_cut(text, '\n', &text);

		snprintf(copy, sizeof(copy), "%.*s", (int)line.len, line.ptr);
		if (sscanf(copy, "boottime %" SCNd64 " %" SCNd64, &s, &ns) == 2)
			return s * NS_PER_SEC + ns;
	}
	return 0;
}

static void read_shift(void)
{
	int fd = open(OFFSETS_FILE, O_RDONLY | O_CLOEXEC);
	char text[256];
	ssize_t len;

	if (fd < 0)
		return;
	len = read(fd, text, sizeof(text));
	close(fd);
	if (len > 0)
		shift_ns = clock_parse_shift((struct sv){text, (size_t)len});
}

int64_t clock_boot_shift_ns(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_shift); /* a process changes its namespace by exec alone */
	return shift_ns;
}

uint64_t clock_boot_ns(void)
{
	return (uint64_t)(now_ns(CLOCK_BOOTTIME) - clock_boot_shift_ns());
}

/* The reading whose two boot stamps lie closest together has the least scheduling noise in it. */
int64_t clock_boot_to_unix_ns(void)
{
	int64_t best = INT64_MAX, offset = 0;

	for (int i = 0; i < 16; i++) {
		int64_t a = (int64_t)clock_boot_ns();
		int64_t wall = now_ns(CLOCK_REALTIME);
		int64_t b = (int64_t)clock_boot_ns();

		if (b - a < best) {
			best = b - a;
			offset = wall - (a + (b - a) / 2);
		}
	}
	return offset;
}

int clock_cpu_ns(int32_t pid, uint64_t *out)
{
	struct timespec at;
	clockid_t clock;
	int err = clock_getcpuclockid(pid, &clock);

	if (err)
		return -err;
	if (clock_gettime(clock, &at))
		return -ESRCH;
	*out = (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
	return 0;
}

const char *clock_rfc3339(char out[CLOCK_RFC3339_BYTES], uint64_t boot_ns, int64_t boot_to_unix_ns)
{
	int64_t unix_ns, ns;
	time_t s;
	struct tm tm;
	size_t n;

	if (!boot_to_unix_ns || __builtin_add_overflow(boot_ns, boot_to_unix_ns, &unix_ns))
		return NULL;
	ns = unix_ns % NS_PER_SEC;
	s = (time_t)(unix_ns / NS_PER_SEC - (ns < 0));
	if (ns < 0)
		ns += NS_PER_SEC;
	gmtime_r(&s, &tm);
	n = strftime(out, CLOCK_RFC3339_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_RFC3339_BYTES - n, ".%09" PRId64 "Z", ns);
	return out;
}
