/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* First byte: size of the pieces (0: whole). The same verdict as bytewise, and it is final. */

#include <stdlib.h>

#include "flow/proto/ws_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum ws_probe_status play(const uint8_t *data, size_t size, size_t piece)
{
	enum ws_probe_status status = WS_PROBE_OPEN;
	struct ws_probe *p = ws_probe_new();
	bool client;

	if (!p)
		return status;
	for (size_t i = 0, n; i < size; i += n) {
		enum ws_probe_status before = status;

		n = piece && piece < size - i ? piece : size - i;
		status = ws_probe_push(p, data + i, n);
		if (before != WS_PROBE_OPEN && status != before)
			abort();
	}
	ws_probe_likely(p, &client);
	ws_probe_free(p);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && play(data + 1, size - 1, data[0]) != play(data + 1, size - 1, 1))
		abort();
	return 0;
}
