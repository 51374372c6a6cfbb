/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_CREDENTIAL_H
#define BASE_CREDENTIAL_H

/* What is a credential by its looks, without a name that says so. Rather one too many than one too few. */

#include "sv.h"

#define CREDENTIAL_RANDOM 20 /* letters and digits in a row, as random as a credential */

/* Tokens that say themselves what they are: sk-…, ghp_…, eyJ… */
bool credential_is_token(struct sv s);
/* A segment of a path: such a token, a bot's (bot123:…), or one with CREDENTIAL_RANDOM letters of both cases and digits
 * in a row, the digits in more than one place (secrets of webhooks). */
bool credential_is_segment(struct sv s);

#endif
