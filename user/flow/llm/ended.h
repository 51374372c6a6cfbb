/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_ENDED_H
#define FLOW_LLM_ENDED_H

/* Why an exchange ended, in the words of the records. An upgrade ends it as it was meant to. */

#include "call.h"
#include "flow/proto/http.h"

enum end_reason end_of_abort(enum http_abort why);

#endif
