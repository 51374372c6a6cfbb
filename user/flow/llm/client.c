/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "client.h"

#include "base/buf.h"
#include "base/credential.h"
#include "base/err.h"
#include "text.h"

#define PATH_MAX_BYTES 1024

/* --- identity ---------------------------------------------------------------------------------------------------- */

/* The first of these headers that is there. Later rows are other clients' names for the same thing. */
static const char *const session_headers[] = {
	"x-claude-code-session-id",
	"session-id",		 /* Codex */
	"x-opencode-session-id", /* opencode */
	"x-session-id",
};
static const char *const agent_headers[] = {
	"x-claude-code-agent-id", "thread-id", /* Codex */
};
static const char *const parent_headers[] = {
	"x-claude-code-parent-agent-id",
	"x-codex-parent-thread-id",
	"x-parent-session-id", /* opencode */
	"x-opencode-parent-session-id",
};

static const char *const turn_headers[] = {
	"x-claude-code-prompt-id",
};
static const char *const agent_name_headers[] = {
	"x-claude-code-agent-type", "x-openai-subagent", /* Codex */
};

/* User agents that say who drives them; the first prefix that fits, else nobody knows. */
static int interactive(struct sv user_agent)
{
	static const struct {
		struct sv prefix, mark; /* mark: also in it */
		int value;
	} rows[] = {
		{SV("claude-cli/"), SV("(external, cli"), 1},
		{SV("claude-cli/"), SV("sdk-"), 0},
		{SV("codex_exec/"), SV(""), 0},
		{SV("codex_cli_rs/"), SV(""), 1},
		{SV("codex-tui/"), SV(""), 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (sv_starts(user_agent, rows[i].prefix) &&
		    memmem(user_agent.ptr, user_agent.len, rows[i].mark.ptr, rows[i].mark.len))
			return rows[i].value;
	return -1;
}

/*
 * opencode (1.18) asks for a title, and Gemini CLI (0.61, where it chooses the model) for a route, before the
 * conversation's first call: no session with tools is there yet, beside which the call would be an auxiliary one. What
 * their agents themselves ask always offers tools. Not so Claude Code's, which has an option for none.
 */
static bool brings_tools(struct sv user_agent)
{
	return sv_starts(user_agent, SV("opencode/")) || sv_starts(user_agent, SV("GeminiCLI"));
}

/* Claude Code's titles follow a JSON schema; where its agents' answers have to (--json-schema), a tool takes them. */
static bool asks_for_no_schema(struct sv user_agent)
{
	return sv_starts(user_agent, SV("claude-cli/"));
}

/* Copilot CLI marks the first call of a turn. All of a sub-agent's calls are marked as the agent's. */
static enum call_trigger stated_trigger(struct sv initiator, bool of_subagent)
{
	if (of_subagent)
		return CALL_TRIGGER_UNKNOWN;
	if (sv_eq(initiator, SV("user")))
		return CALL_TRIGGER_HUMAN;
	return sv_eq(initiator, SV("agent")) ? CALL_TRIGGER_TOOL_RESULTS : CALL_TRIGGER_UNKNOWN;
}

static void copy_first(const struct http_head *h, const char *const *names, size_t count, char *out)
{
	for (size_t i = 0; i < count && !out[0]; i++)
		text_copy(out, CLIENT_ID_BYTES, http_header_get(h, names[i]));
}

static void identify_turn(const struct http_head *h, struct client *out)
{
	struct sv metadata = http_header_get(h, "x-codex-turn-metadata");

	copy_first(h, turn_headers, ARRAY_SIZE(turn_headers), out->turn);
	copy_first(h, agent_name_headers, ARRAY_SIZE(agent_name_headers), out->agent_name);
	if (!out->turn[0])
		text_copy(out->turn, sizeof(out->turn), text_json_member(metadata, "turn_id"));
	if (!out->agent_name[0])
		text_copy(out->agent_name, sizeof(out->agent_name), text_json_member(metadata, "agent_name"));
	if (!out->agent_name[0])
		text_copy(out->agent_name, sizeof(out->agent_name), text_json_member(metadata, "subagent_kind"));
	text_copy(out->tool_durations, sizeof(out->tool_durations),
		  http_header_get(h, "x-claude-code-prev-tool-durations"));
	out->interactive = interactive(http_header_get(h, "user-agent"));
	out->trigger = stated_trigger(http_header_get(h, "x-initiator"),
				      sv_eq(http_header_get(h, "x-interaction-type"), SV("conversation-subagent")));
}

bool client_class_of_kind(struct sv kind, enum call_class *class)
{
	if (sv_eq(kind, SV("prewarm")))
		*class = CALL_PREWARM;
	else if (sv_eq(kind, SV("compaction")) || sv_eq(kind, SV("memory")))
		*class = CALL_AUX;
	else
		return false;
	return true;
}

/* x-claude-code-request-class, x-openai-subagent, x-interaction-type, x-codex-turn-metadata */
static bool stated_class(const struct http_head *h, enum call_class *class)
{
	struct sv v = http_header_get(h, "x-claude-code-request-class");

	if (v.len) {
		*class = sv_eq(v, SV("auxiliary")) ? CALL_AUX : sv_eq(v, SV("subagent")) ? CALL_SUBAGENT : CALL_MAIN;
		return true;
	}
	v = http_header_get(h, "x-openai-subagent");
	if (v.len) {
		*class = sv_eq(v, SV("compact")) || sv_eq(v, SV("memory_consolidation")) ? CALL_AUX : CALL_SUBAGENT;
		return true;
	}
	v = http_header_get(h, "x-interaction-type");
	if (sv_eq(v, SV("conversation-subagent"))) {
		*class = CALL_SUBAGENT;
		return true;
	}
	v = http_header_get(h, "x-codex-turn-metadata");
	return client_class_of_kind(text_json_member(v, "request_kind"), class);
}

void client_identify(const struct http_head *h, struct client *out)
{
	struct sv retries = http_header_get(h, "x-stainless-retry-count");

	*out = (struct client){.retry_count = -1, .interactive = -1};
	copy_first(h, session_headers, ARRAY_SIZE(session_headers), out->session);
	copy_first(h, agent_headers, ARRAY_SIZE(agent_headers), out->agent);
	copy_first(h, parent_headers, ARRAY_SIZE(parent_headers), out->parent_agent);
	identify_turn(h, out);
	out->class_stated = stated_class(h, &out->class);
	out->brings_tools = brings_tools(http_header_get(h, "user-agent"));
	out->asks_for_no_schema = asks_for_no_schema(http_header_get(h, "user-agent"));
	out->class_of_turn = client_class_of_kind(
		text_json_member(http_header_get(h, "x-codex-turn-metadata"), "request_kind"), &(enum call_class){0});
	/* Main agents send no agent id, or (Codex) one that equals the session's. */
	out->subagent = out->parent_agent[0] ||
			(out->agent[0] && out->session[0] && strcmp(out->agent, out->session) != 0) ||
			(out->agent[0] && http_header_get(h, "x-claude-code-agent-id").len && !out->session[0]);
	if (retries.len == 1 && retries.ptr[0] >= '0' && retries.ptr[0] <= '9')
		out->retry_count = retries.ptr[0] - '0';
}

/* --- path -------------------------------------------------------------------------------------------------------- */

/* Without scheme and authority (absolute form), and without fragment. */
struct sv client_origin_form(struct sv target)
{
	struct sv rest;
	const char *at = target.len ? memmem(target.ptr, target.len, "://", 3) : NULL;
	const char *slash;

	target = sv_cut(target, '#', &rest);
	if (!at || target.ptr[0] == '/' || at >= target.ptr + target.len)
		return target;
	at += 3;
	slash = memchr(at, '/', (size_t)(target.ptr + target.len - at));
	return slash ? (struct sv){slash, (size_t)(target.ptr + target.len - slash)} : SV("/");
}

struct sv client_plain_path(struct sv target)
{
	struct sv rest;

	return sv_cut(client_origin_form(target), '?', &rest);
}

static bool is_plain(struct sv s, bool digits_only)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = s.ptr[i];

		if (c >= '0' && c <= '9')
			continue;
		if (digits_only ||
		    !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.'))
			return false;
	}
	return true;
}

static bool shows_value(struct sv key, struct sv value)
{
	static const struct sv keys[] = {SV("beta"), SV("alt"), SV("api-version"), SV("model"), SV("stream")};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (sv_eq(key, keys[i]))
			return true;
	}
	return value.len <= 4 && is_plain(value, true) && !sv_ieq(key, SV("key")) && !sv_ieq(key, SV("pin")) &&
	       !sv_ieq(key, SV("code"));
}

static int push_parameter(struct buf *out, struct sv parameter)
{
	struct sv value, key = sv_cut(parameter, '=', &value);
	/* A long or odd key can be a secret without a name. */
	bool show_key = key.len <= (value.ptr ? 32u : 8u) && is_plain(key, false);
	int err = buf_push(out, show_key ? key.ptr : "*", show_key ? key.len : 1);

	if (err || !value.ptr)
		return err;
	err = buf_putc(out, '=');
	if (err)
		return err;
	return show_key && shows_value(key, value) ? buf_push(out, value.ptr, value.len) : buf_putc(out, '*');
}

static int push_segment(struct buf *out, struct sv segment)
{
	struct sv parameters, name = sv_cut(segment, ';', &parameters);
	int err = credential_is_segment(name) ? buf_putc(out, '*') : buf_push(out, name.ptr, name.len);

	while (!err && parameters.ptr) {
		struct sv parameter = sv_cut(parameters, ';', &parameters);

		err = buf_putc(out, ';');
		if (!err && parameter.len)
			err = push_parameter(out, parameter);
	}
	return err;
}

static int push_path(struct buf *out, struct sv path)
{
	int err = push_segment(out, sv_cut(path, '/', &path));

	while (!err && path.ptr) {
		err = buf_putc(out, '/');
		if (!err)
			err = push_segment(out, sv_cut(path, '/', &path));
	}
	return err;
}

char *client_path(struct sv target)
{
	struct sv query, path = sv_cut(client_origin_form(target), '?', &query), parameter;
	struct buf out;
	char *text;
	int err;

	buf_init(&out, PATH_MAX_BYTES + 16);
	err = push_path(&out, (struct sv){path.ptr, text_cut(path, PATH_MAX_BYTES)});
	for (char sep = '?'; !err && query.ptr; sep = '&') {
		parameter = sv_cut(query, '&', &query);
		err = buf_putc(&out, sep);
		if (!err)
			err = push_parameter(&out, parameter);
	}
	/* at the cap the rest is left out */
	text = err == -ENOMEM ? NULL : text_dup((struct sv){out.ptr, out.len}, PATH_MAX_BYTES);
	buf_release(&out);
	return text;
}
