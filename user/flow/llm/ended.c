/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ended.h"

enum end_reason end_of_abort(enum http_abort why)
{
	switch (why) {
	case HTTP_ABORT_CLIENT:
		return END_CLIENT_ABORT;
	case HTTP_ABORT_SERVER:
		return END_SERVER_ABORT;
	case HTTP_ABORT_EXIT:
		return END_PROCESS_EXIT;
	case HTTP_ABORT_LOSS:
	case HTTP_ABORT_PARSE:
		return END_CAPTURE_LOSS;
	case HTTP_ABORT_CAPTURE_END:
		return END_CAPTURE_END;
	case HTTP_ABORT_UPGRADE:
		return END_COMPLETE;
	default:
		return END_CONNECTION_CLOSED;
	}
}
