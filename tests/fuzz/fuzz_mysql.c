/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "flow/db/mysql.h"
#include "tests/fuzz/db_steps.h"

DB_FUZZ(mysql, mysql, mysql_new((enum mysql_begin)(data[0] % 3), &sink))
