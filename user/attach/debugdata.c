/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "debugdata.h"

#include <lzma.h>
#include <stdlib.h>

#include "base/err.h"

#define UNPACKED_BYTES_FIRST (256u << 10)
#define DECODER_BYTES_MAX    (34u << 20) /* xz -8 takes 33 MiB; the default is -6 */

/* Room for more. 0, -EFBIG, -ENOMEM. */
static int grow(struct debugdata *d, size_t *size)
{
	size_t more = *size ? 2 * *size : UNPACKED_BYTES_FIRST;
	uint8_t *bytes;

	if (more > DEBUGDATA_BYTES_MAX)
		return -EFBIG;
	bytes = realloc(d->bytes, more);
	if (!bytes)
		return -ENOMEM;
	d->bytes = bytes;
	*size = more;
	return 0;
}

static int error_of(lzma_ret ret)
{
	return ret == LZMA_MEM_ERROR ? -ENOMEM : ret == LZMA_MEMLIMIT_ERROR ? -EFBIG : -EBADMSG;
}

/* Bytes unpacked, or -errno. */
static int64_t unpack(struct debugdata *d, lzma_stream *xz)
{
	lzma_ret ret = lzma_stream_decoder(xz, DECODER_BYTES_MAX, 0);
	size_t size = 0;

	while (ret == LZMA_OK) {
		size_t used = xz->total_out;
		int err = used == size ? grow(d, &size) : 0;

		if (err)
			return err;
		xz->next_out = d->bytes + used;
		xz->avail_out = size - used;
		ret = lzma_code(xz, LZMA_FINISH);
	}
	return ret == LZMA_STREAM_END ? (int64_t)xz->total_out : error_of(ret);
}

int debugdata_open(struct debugdata *d, const struct elf *e)
{
	lzma_stream xz = LZMA_STREAM_INIT;
	struct elf_section s;
	int64_t len;

	*d = (struct debugdata){.elf = {.fd = -1}};
	if (!elf_section(e, SV(".gnu_debugdata"), &s))
		return -ENOENT;
	xz.next_in = elf_at(e, s.off, s.size);
	xz.avail_in = s.size;
	len = unpack(d, &xz);
	lzma_end(&xz);
	if (len >= 0 && !elf_from_bytes(&d->elf, d->bytes, (size_t)len))
		return 0;
	debugdata_close(d);
	return len < 0 ? (int)len : -EBADMSG;
}

void debugdata_close(struct debugdata *d)
{
	elf_unmap(&d->elf);
	free(d->bytes);
	d->bytes = NULL;
}
