/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_HTTP_GRAPHQL_H
#define FLOW_HTTP_GRAPHQL_H

/*
 * The operation that a GraphQL request names (graphql.github.io/graphql-over-http, "Request Parameters"): operationName
 * of its JSON body, else the name in the text of its query. Nothing else of the body is kept. Batches name none.
 */

#include "route.h"

#define GRAPHQL_BODY_MAX (256u << 10) /* so much of a body is looked at */

struct graphql;

struct graphql *graphql_new(void); /* NULL: ENOMEM */
void graphql_free(struct graphql *g);
void graphql_push(struct graphql *g, const uint8_t *ptr, size_t len);
void graphql_gap(struct graphql *g);
const char *graphql_name(const struct graphql *g); /* "" none (yet) */

/* The name in a query's text (a beginning of it): `query Name(…) {`; SV_NONE: it has none. Borrowed. */
struct sv graphql_query_name(struct sv text);

#endif
