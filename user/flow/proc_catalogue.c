/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc_catalogue.h"

#include <string.h>

#include "base/err.h"

#define ARGS_LOOKED_AT 4 /* interpreter, options, script */

/* `programs`: names of the executable, or of the script that an interpreter runs, separated by blanks; `places`: pieces
 * of their path; `module`: of "python -m". NULL: none. */
static const struct row {
	const char *agent, *programs, *places[2], *module;
} table[] = {
	{"Claude Code", "claude", {"/@anthropic-ai/claude-code/", "/claude/versions/"}, NULL},
	{"Codex", "codex codex-exec", {"/@openai/codex/", NULL}, NULL},
	{"Gemini CLI", "gemini", {"/@google/gemini-cli/", NULL}, NULL},
	{"Copilot CLI", "copilot", {"/@github/copilot/", NULL}, NULL},
	{"opencode", "opencode", {"/opencode-ai/", "/.opencode/bin/"}, NULL},
	{"Aider", "aider", {NULL}, "aider"},
	{"goose", "goose goosed", {NULL}, NULL},
	{"Cursor", "cursor-agent", {"/cursor-agent/versions/", NULL}, NULL},
	{"Qwen Code", "qwen", {"/@qwen-code/qwen-code/", NULL}, NULL},
	{"Amp", "amp", {"/@sourcegraph/amp/", NULL}, NULL},
	{"Crush", "crush", {"/@charmland/crush/", NULL}, NULL},
	{"OpenHands", "openhands", {NULL}, "openhands"},
	{"Ollama", "ollama", {NULL}, NULL},
	{"vLLM", "vllm", {NULL}, "vllm"},
	{"llama.cpp", "llama-server llama-cli", {NULL}, NULL},
};

static struct sv basename_of(struct sv path)
{
	const char *slash = path.len ? memrchr(path.ptr, '/', path.len) : NULL;

	return slash ? (struct sv){slash + 1, path.len - (size_t)(slash + 1 - path.ptr)} : path;
}

static bool has_word(const char *words, struct sv word)
{
	struct sv rest = sv_of(words);

	while (word.len && rest.ptr)
		if (sv_eq(sv_cut(rest, ' ', &rest), word))
			return true;
	return false;
}

/* A file's path against a row. */
static bool is_file_of(const struct row *r, struct sv path)
{
	if (!path.len)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(r->places); i++)
		if (r->places[i] && memmem(path.ptr, path.len, r->places[i], strlen(r->places[i])))
			return true;
	return has_word(r->programs, basename_of(path));
}

/* "vllm" or "vllm.entrypoints.api_server" */
static bool is_module_of(const struct row *r, struct sv name)
{
	struct sv rest;

	return r->module && sv_eq(sv_cut(name, '.', &rest), sv_of(r->module));
}

/* What the program runs: options are skipped, and its script comes before its own arguments. */
static bool is_run_by(const struct row *r, struct sv args)
{
	struct sv rest = args, arg;
	bool module = false;

	for (unsigned i = 0; i < ARGS_LOOKED_AT && rest.ptr; i++) {
		arg = sv_cut(rest, '\0', &rest);
		if (module)
			return is_module_of(r, arg);
		module = sv_eq(arg, SV("-m"));
		if (i && arg.len && arg.ptr[0] != '-')
			return is_file_of(r, arg) && memchr(arg.ptr, '/', arg.len);
		if (!i && is_file_of(r, arg))
			return true;
	}
	return false;
}

const char *catalogue_agent(struct sv exe, struct sv args)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (is_file_of(&table[i], exe) || is_run_by(&table[i], args))
			return table[i].agent;
	return NULL;
}
