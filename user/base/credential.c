/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "credential.h"

#include "err.h"

bool credential_is_token(struct sv s)
{
	static const char *const prefix[] = {"sk-",	    "sk_",    "pk-",   "ghp_",	"gho_",	 "ghs_", "ghu_",
					     "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA",	 "AIza", "hf_",
					     "gsk_",	    "eyJ",    "ya29.", "xai-",	"nvapi-"};

	for (size_t i = 0; i < ARRAY_SIZE(prefix); i++) {
		size_t n = strlen(prefix[i]);

		if (s.len >= n + 8 && memcmp(s.ptr, prefix[i], n) == 0)
			return true;
	}
	return false;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Telegram's: bot123456:AA… */
static bool is_bot_token(struct sv s)
{
	size_t i = 3;

	if (!sv_starts(s, SV("bot")))
		return false;
	while (i < s.len && is_digit(s.ptr[i]))
		i++;
	return i > 3 && i < s.len && (s.ptr[i] == ':' || s.ptr[i] == '%');
}

static bool has_random_run(struct sv s)
{
	size_t run = 0, small = 0, capital = 0, places = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = s.ptr[i];
		bool is_small = c >= 'a' && c <= 'z', is_capital = c >= 'A' && c <= 'Z';

		if (!is_small && !is_capital && !is_digit(c)) {
			run = small = capital = places = 0;
			continue;
		}
		places += is_digit(c) && (!run || !is_digit(s.ptr[i - 1]));
		small += is_small;
		capital += is_capital;
		if (++run >= CREDENTIAL_RANDOM && small && capital && places > 1)
			return true;
	}
	return false;
}

bool credential_is_segment(struct sv s)
{
	/* A short JSON web token has "." between its parts. */
	return credential_is_token(s) || is_bot_token(s) || has_random_run(s) ||
	       (sv_starts(s, SV("eyJ")) && memchr(s.ptr, '.', s.len));
}
