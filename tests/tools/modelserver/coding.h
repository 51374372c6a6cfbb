/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef MODELSERVER_CODING_H
#define MODELSERVER_CODING_H

/* Content codings: stacked and flushed at every event on the way out, undone on the way in. */

#include <stdbool.h>

#include "base/buf.h"
#include "base/sv.h"
#include "knobs.h"

#define CODINGS_MAX 4

struct coder;

struct coding {
	struct coder *coders[CODINGS_MAX]; /* in order of application */
	unsigned count;
	char name[64]; /* for content-encoding */
};

/* What the knobs ask for. 0 or -ENOMEM. */
int coding_init(struct coding *c, const struct knobs *k);
void coding_release(struct coding *c);
/* Appends to *out what these bytes become; all of them can be decoded from it. last: and the end. 0 or -EIO. */
int coding_push(struct coding *c, const char *ptr, size_t len, bool last, struct buf *out);

/* Replaces *body by what it was before `names` ("gzip, zstd") were applied. 0, -EINVAL, -ENOTSUP. */
int coding_undo(struct sv names, struct buf *body);

#endif
