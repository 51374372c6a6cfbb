/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fuzz/db_steps.h"

#define PROC (&(struct proc_key){.tgid = 1})
DB_FUZZ(db, db, db_new(data[0] & 1, PROC, &sink))
