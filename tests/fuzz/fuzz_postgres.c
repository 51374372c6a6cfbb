/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "flow/db/postgres.h"
#include "tests/fuzz/db_steps.h"

DB_FUZZ(postgres, postgres, postgres_new(data[0] & 1, &sink))
