/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mcp_call.h"

#include <stdlib.h>

void mcp_call_release(struct mcp_call *c)
{
	free(c->method);
	free(c->target);
	free(c->id);
	free(c->server);
	free(c->server_version);
	free(c->protocol_version);
	free(c->host);
	free(c->error);
	free(c->error_message);
	free(c->undecoded);
	*c = (struct mcp_call){0};
}

const char *mcp_transport_name(enum mcp_transport t)
{
	return t == MCP_HTTP ? "http" : "stdio";
}
