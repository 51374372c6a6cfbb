/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc_args.h"

#include <string.h>

#include "base/err.h"

/* What the arguments before say of the next one. */
struct reader {
	struct buf *out;
	struct sv program; /* its name, until the next one */
	bool first;	   /* it is a program */
	bool wrapper;	   /* the program runs another one, which may be an agent */
	bool agent;	   /* of an agent, until the next program */
	bool attached;	   /* its short options may have their value attached: -dTEXT */
	bool free_text;	   /* after "--" of an agent: nothing is an option any more */
	bool subcommand;   /* right behind the agent's name: its subcommand, perhaps */
	enum { VALUE_NONE, VALUE_PROMPT, VALUE_PLAIN } value;
};

/* --- words ------------------------------------------------------------------------------------------------------- */

static bool in_list(struct sv s, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (sv_ieq(s, sv_of(list[i])))
			return true;
	return false;
}

static bool only_of(struct sv s, const char *set)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = s.ptr[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
			continue;
		if (!c || !strchr(set, c))
			return false;
	}
	return true;
}

/* Ports, pids, durations. */
static bool is_number(struct sv s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!s.ptr[i] || !strchr("0123456789.,:-", s.ptr[i]))
			return false;
	return s.len != 0 && s.len <= ARGS_PLAIN_BYTES;
}

static bool is_path(struct sv s)
{
	static const struct sv begin[] = {SV("/"), SV("./"), SV("../"), SV("~/")};

	if (!only_of(s, "/._-+@~,=:%"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(begin); i++)
		if (sv_starts(s, begin[i]))
			return true;
	return false;
}

static bool is_plain_word(struct sv s)
{
	return s.len <= ARGS_PLAIN_BYTES && only_of(s, "/._-+@~,=:%|*^$");
}

static bool is_option_name(struct sv s)
{
	return s.len <= ARGS_PLAIN_BYTES && sv_starts(s, SV("-")) && only_of(s, "-_.");
}

/* API_KEY=…: an environment variable's value shows in no file. */
static bool is_environment_name(struct sv s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!((s.ptr[i] >= 'A' && s.ptr[i] <= 'Z') || (s.ptr[i] >= '0' && s.ptr[i] <= '9') || s.ptr[i] == '_'))
			return false;
	return s.len > 1;
}

static struct sv file_name(struct sv path)
{
	for (size_t i = path.len; i > 0; i--)
		if (path.ptr[i - 1] == '/')
			return (struct sv){path.ptr + i, path.len - i};
	return path;
}

/* --- programs ---------------------------------------------------------------------------------------------------- */

/* claude, claude-code, codex.js, aider@latest */
static bool is_agent_name(struct sv name)
{
	static const char *const agents[] = {
		"claude", "codex",  "gemini", "copilot", "opencode", "aider",	"goose", "cursor-agent",
		"llm",	  "aichat", "amp",    "qwen",	 "crush",    "sgpt",	"mods",	 "openhands",
		"ollama", "kimi",   "droid",  "auggie",	 "cline",    "plandex", "tgpt",	 "interpreter"};

	for (size_t i = 0; i < ARRAY_SIZE(agents); i++) {
		size_t n = strlen(agents[i]);

		if (name.len >= n && memcmp(name.ptr, agents[i], n) == 0 &&
		    (name.len == n || strchr("-.@", name.ptr[n])))
			return true;
	}
	return false;
}

/* A script or a module of one: any part of its path tells. */
static bool is_agent_path(struct sv path)
{
	struct sv rest = path;

	while (rest.ptr) {
		struct sv part = sv_cut(rest, '/', &rest);

		if (is_agent_name(part))
			return true;
	}
	return false;
}

static bool is_wrapper(struct sv name)
{
	static const char *const names[] = {"node",   "nodejs", "bun",	"bunx", "deno",	  "npx",  "npm",
					    "pnpm",   "yarn",	"uv",	"uvx",	"pipx",	  "env",  "sudo",
					    "sh",     "bash",	"dash", "zsh",	"nice",	  "time", "timeout",
					    "setsid", "xvfb",	"gh",	"exec", "stdbuf", "nohup"};

	return in_list(name, names, ARRAY_SIZE(names)) || sv_starts(name, SV("python"));
}

/* Their short options may have a text attached: curl -dTEXT, mysql -pPASSWORD */
static bool attaches_values(struct sv name)
{
	return sv_eq(name, SV("curl")) || sv_eq(name, SV("sshpass")) || sv_starts(name, SV("mysql")) ||
	       sv_starts(name, SV("mariadb"));
}

/* Programs that run the text behind -c or -e (bash -lc, node -e). */
static bool runs_text(struct sv name)
{
	static const char *const names[] = {"sh",     "bash", "dash", "zsh",  "fish", "ksh", "node",
					    "nodejs", "deno", "bun",  "perl", "ruby", "php", "lua"};

	return in_list(name, names, ARRAY_SIZE(names)) || sv_starts(name, SV("python"));
}

/* --- options ----------------------------------------------------------------------------------------------------- */

/* What follows is, or holds, text that somebody wrote. */
static bool takes_prompt(struct sv option)
{
	static const char *const names[] = {
		"-p",
		"--print",
		"--prompt",
		"-m",
		"--message",
		"--system-prompt",
		"-d",
		"--data",
		"--json",
		"--form",
		"-F",
		"--append-system-prompt",
		"--query",
		"--instructions",
		"--task",
		"--question",
		"--text",
		"--input",
		"--description",
		"--title",
		"--body",
		"--content",
		"--form-string",
		"--system",
	};

	return in_list(option, names, ARRAY_SIZE(names)) || sv_starts(option, SV("--data"));
}

/* The next argument is a program's text: what an agent's tool was asked to run. */
static bool takes_program(struct sv program, struct sv option)
{
	char last = option.ptr[option.len - 1];

	if (!runs_text(program))
		return false;
	return sv_eq(option, SV("--eval")) || ((last == 'c' || last == 'e') && option.len <= 4 && option.ptr[1] != '-');
}

/* Short options that only their own program says to be secrets. */
static bool takes_secret(struct sv program, struct sv option)
{
	static const struct {
		struct sv program, option;
	} rows[] = {{SV("curl"), SV("-b")},
		    {SV("redis-cli"), SV("-a")},
		    {SV("openssl"), SV("-k")},
		    {SV("openssl"), SV("-K")}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (sv_eq(program, rows[i].program) && sv_eq(option, rows[i].option))
			return true;
	return false;
}

/* Of an agent. */
static bool takes_plain(struct sv option)
{
	static const char *const names[] = {"--model",	       "--provider",	    "--output-format", "--input-format",
					    "--max-turns",     "--permission-mode", "--port",	       "--sandbox",
					    "--approval-mode", "--log-level",	    "--color",	       "--profile"};

	return in_list(option, names, ARRAY_SIZE(names));
}

static bool is_subcommand(struct sv s)
{
	static const char *const names[] = {"exec", "run",   "ask", "chat",   "session", "resume",  "mcp",  "serve",
					    "e",    "agent", "web", "github", "suggest", "explain", "login"};

	return in_list(s, names, ARRAY_SIZE(names));
}

/* --- what is shown ----------------------------------------------------------------------------------------------- */

static int hide(struct buf *out, struct sv s)
{
	return s.len ? buf_printf(out, "<%zu bytes>", s.len) : 0;
}

/* A value that shows nothing: of a setting that every client has, or a small number. */
static bool shows_parameter(struct sv key, struct sv value)
{
	static const char *const keys[] = {"beta", "alt", "api-version", "model", "stream"};

	if (in_list(key, keys, ARRAY_SIZE(keys)))
		return is_plain_word(value);
	return value.len <= 4 && is_number(value) && !sv_ieq(key, SV("key")) && !sv_ieq(key, SV("pin")) &&
	       !sv_ieq(key, SV("code"));
}

static int put_query(struct buf *out, struct sv query)
{
	int err = buf_putc(out, '?');

	while (query.ptr && !err) {
		struct sv value, parameter = sv_cut(query, '&', &query), key = sv_cut(parameter, '=', &value);
		bool show = key.len <= (value.ptr ? 32u : 8u) && only_of(key, "_-.");

		err = show ? buf_push(out, key.ptr, key.len) : buf_putc(out, '*');
		if (!err && value.ptr)
			err = buf_putc(out, '=');
		if (!err && value.ptr)
			err = show && shows_parameter(key, value) ? buf_push(out, value.ptr, value.len)
								  : buf_putc(out, '*');
		if (!err && query.ptr)
			err = buf_putc(out, '&');
	}
	return err;
}

/* Length of "scheme://" at the front, 0: no URL. */
static size_t scheme_len(struct sv s)
{
	size_t n = 0;

	while (n < s.len && n < 16 && only_of((struct sv){s.ptr + n, 1}, "+.-"))
		n++;
	return n && s.len - n > 3 && memcmp(s.ptr + n, "://", 3) == 0 ? n + 3 : 0;
}

/* User, query values and fragment of the URL as asterisks. */
static int put_url(struct buf *out, struct sv url, size_t scheme)
{
	struct sv fragment, query, host, user = SV_NONE, rest = {url.ptr + scheme, url.len - scheme};
	size_t slash = 0, at;
	int err = buf_push(out, url.ptr, scheme);

	rest = sv_cut(rest, '#', &fragment);
	rest = sv_cut(rest, '?', &query);
	while (slash < rest.len && rest.ptr[slash] != '/')
		slash++;
	host = (struct sv){rest.ptr, slash};
	rest = (struct sv){rest.ptr + slash, rest.len - slash};
	for (at = host.len; at > 0 && host.ptr[at - 1] != '@'; at--)
		;
	if (at) {
		user = (struct sv){host.ptr, at};
		host = (struct sv){host.ptr + at, host.len - at};
	}
	if (!err && user.ptr)
		err = buf_puts(out, "***@");
	if (!err)
		err = only_of(host, ".-_:[]%") ? buf_push(out, host.ptr, host.len) : hide(out, host);
	if (!err)
		err = is_plain_word(rest) ? buf_push(out, rest.ptr, rest.len) : hide(out, rest);
	if (!err && query.ptr)
		err = put_query(out, query);
	return err || !fragment.ptr ? err : buf_puts(out, "#*");
}

/* A value by itself. plain: a word may be shown. */
static int put_value(struct buf *out, struct sv s, bool plain)
{
	struct sv value, name = sv_cut(s, '=', &value);
	size_t scheme = scheme_len(s);
	int err;

	if (scheme)
		return put_url(out, s, scheme);
	if (value.ptr && plain && is_environment_name(name) && is_plain_word(name)) { /* --env=NAME=value */
		err = buf_push(out, name.ptr, name.len + 1);
		return err ? err : hide(out, value);
	}
	if (is_number(s) || is_path(s) || (plain && is_plain_word(s)))
		return buf_push(out, s.ptr, s.len);
	return hide(out, s);
}

/* NAME=value, and docker's -eNAME=value */
static bool sets_environment(struct sv name, bool option)
{
	if (!option)
		return is_environment_name(name);
	return name.len > 3 && name.ptr[1] != '-' && is_environment_name((struct sv){name.ptr + 2, name.len - 2});
}

/* --opt, --opt=value, -dVALUE, NAME=value, word */
static int put_arg(struct reader *r, struct sv arg)
{
	struct sv value, name = sv_cut(arg, '=', &value);
	bool option = is_option_name(name) && !r->free_text, plain = true;
	int err;

	if (r->attached && !r->free_text && arg.len > 2 && arg.ptr[0] == '-' && arg.ptr[1] != '-') {
		size_t letter = is_option_name((struct sv){arg.ptr, 2}) ? 2 : 0; /* or a text that begins with a dash */

		err = buf_push(r->out, arg.ptr, letter);
		return err ? err : hide(r->out, (struct sv){arg.ptr + letter, arg.len - letter});
	}
	if (!value.ptr)
		return option ? buf_push(r->out, arg.ptr, arg.len) : put_value(r->out, arg, !r->agent);
	if (!option && (r->agent || !name.len || !is_plain_word(name) || scheme_len(arg)))
		return put_value(r->out, arg, false);
	if (option)
		plain = r->agent ? takes_plain(name) : !takes_prompt(name);
	err = buf_push(r->out, name.ptr, name.len + 1);
	if (err)
		return err;
	return sets_environment(name, option) ? hide(r->out, value) : put_value(r->out, value, plain);
}

/* --- the vector -------------------------------------------------------------------------------------------------- */

static void enter_program(struct reader *r, struct sv arg)
{
	struct sv name = file_name(arg);

	r->first = false;
	r->program = name;
	r->agent = r->subcommand = is_agent_name(name);
	r->attached = r->agent || attaches_values(name);
	r->wrapper = !r->agent && is_wrapper(name);
}

static int read_arg(struct reader *r, struct sv arg)
{
	int value = r->value;

	if (r->first) {
		enter_program(r, arg);
		return put_value(r->out, arg, true);
	}
	r->value = VALUE_NONE;
	if (sv_eq(arg, SV("--")) && !r->free_text) {
		r->free_text = r->agent;
		r->first = !r->agent;
		return buf_puts(r->out, "--");
	}
	if (r->wrapper && !sv_starts(arg, SV("-")) && is_agent_path(arg) && is_plain_word(arg)) {
		r->agent = r->subcommand = r->attached = true;
		return buf_push(r->out, arg.ptr, arg.len);
	}
	/* An option is no value, unless somebody's prompt looks like one. */
	if (value == VALUE_PROMPT && !sv_starts(arg, SV("-")))
		return put_value(r->out, arg, false);
	if (value == VALUE_PLAIN && !sv_starts(arg, SV("-")))
		return put_value(r->out, arg, true);
	if (r->subcommand && is_subcommand(arg)) {
		r->subcommand = false;
		return buf_push(r->out, arg.ptr, arg.len);
	}
	r->subcommand = r->subcommand && sv_starts(arg, SV("-"));
	if (is_option_name(arg) &&
	    (takes_prompt(arg) || takes_program(r->program, arg) || takes_secret(r->program, arg)))
		r->value = VALUE_PROMPT;
	else if (is_option_name(arg) && r->agent && takes_plain(arg))
		r->value = VALUE_PLAIN;
	return put_arg(r, arg);
}

int args_hide_prompts(struct buf *out, struct sv args)
{
	struct reader r = {.out = out, .first = true};
	struct sv rest = args;
	bool begun = false;
	int err = 0;

	while (rest.ptr && !err) {
		struct sv arg = sv_cut(rest, '\0', &rest);

		if (begun)
			err = buf_putc(out, '\0');
		if (!err)
			err = read_arg(&r, arg);
		begun = true;
	}
	return err;
}
