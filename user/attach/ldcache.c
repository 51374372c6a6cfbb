/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ldcache.h"

#include <elf.h>
#include <string.h>

#include "base/err.h"

#define NEW_MAGIC "glibc-ld.so.cache1.1"
#define OLD_MAGIC "ld.so-1.7.0"

#define NAME_BYTES_MAX 4096
#define KIND_MASK      0xff00 /* of an entry's flags */
#define KIND_X86_64    0x0300
#define KIND_AARCH64   0x0a00

struct header { /* struct cache_file_new of glibc's dl-cache.h */
	char magic[20];
	uint32_t count;
	uint32_t strings_bytes;
	uint8_t flags, pad[3];
	uint32_t extension_off;
	uint32_t unused[3];
};
struct entry { /* struct file_entry_new; key and value are offsets from the header */
	int32_t flags;
	uint32_t key, value, os_version;
	uint64_t hwcap;
};
_Static_assert(sizeof(struct header) == 48 && sizeof(struct entry) == 24, "as on disk");

/* The older table (12-byte entries behind a 16-byte header) may come first; the new one follows 8-aligned. */
static size_t new_table(const uint8_t *bytes, size_t len)
{
	uint32_t count;
	uint64_t at;

	if (len < 16 || memcmp(bytes, OLD_MAGIC, sizeof(OLD_MAGIC) - 1))
		return 0;
	memcpy(&count, bytes + 12, sizeof(count));
	at = (16 + 12ull * count + 7) & ~7ull;
	return at < len ? (size_t)at : len;
}

static const char *string_at(const uint8_t *bytes, size_t len, uint32_t off)
{
	size_t room;

	if (off >= len)
		return NULL;
	room = len - off < NAME_BYTES_MAX ? len - off : NAME_BYTES_MAX;
	return memchr(bytes + off, '\0', room) ? (const char *)bytes + off : NULL;
}

int ldcache_each(const void *bytes, size_t len, uint16_t machine,
		 int (*fn)(void *ctx, const char *soname, const char *path), void *ctx)
{
	int32_t kind = machine == EM_AARCH64 ? KIND_AARCH64 : KIND_X86_64;
	const uint8_t *p = bytes;
	struct header h;
	size_t skip = new_table(p, len);
	int err = 0;

	p += skip;
	len -= skip;
	if (len < sizeof(h))
		return -EBADMSG;
	memcpy(&h, p, sizeof(h));
	if (memcmp(h.magic, NEW_MAGIC, sizeof(h.magic)) || h.count > (len - sizeof(h)) / sizeof(struct entry))
		return -EBADMSG;
	for (uint32_t i = 0; i < h.count; i++) {
		const char *soname, *path;
		struct entry e;
		int stop;

		memcpy(&e, p + sizeof(h) + i * sizeof(e), sizeof(e));
		if ((e.flags & KIND_MASK) != kind)
			continue;
		soname = string_at(p, len, e.key);
		path = string_at(p, len, e.value);
		if (!soname || !path) {
			err = -EBADMSG;
			continue;
		}
		stop = fn(ctx, soname, path);
		if (stop)
			return stop;
	}
	return err;
}
