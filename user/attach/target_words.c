/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/sv.h"
#include "elf.h"

#define TEXT_MAX 16384 /* bytes of a script: what a longer one starts first is near its beginning */

struct walk {
	void (*fn)(void *ctx, const char *word);
	void *ctx;
	unsigned count;
};

static void tell(struct walk *w, struct sv word)
{
	char text[PATH_MAX];

	if (!word.len || word.ptr[0] == '-' || word.len >= sizeof(text) || w->count == TARGET_WORDS_MAX)
		return;
	memcpy(text, word.ptr, word.len);
	text[word.len] = '\0';
	w->count++;
	w->fn(w->ctx, text);
}

/* What could name a program, of a text in the language of a shell or any other. */
static bool is_of_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("/._+-@", c);
}

static void tell_text(struct walk *w, struct sv text)
{
	size_t begin = 0;

	for (size_t i = 0; i <= text.len; i++) {
		if (i < text.len && text.ptr[i] && is_of_name(text.ptr[i]))
			continue;
		tell(w, (struct sv){text.ptr + begin, i - begin});
		begin = i + 1;
	}
}

static void tell_script(struct walk *w, const char *path)
{
	char text[TEXT_MAX];
	struct stat st;
	ssize_t len;
	int fd = elf_open_regular(path, &st);

	if (fd < 0)
		return;
	len = read(fd, text, sizeof(text));
	close(fd);
	if (len > 0 && !memchr(text, '\0', (size_t)len))
		tell_text(w, (struct sv){text, (size_t)len});
}

/* -c, -lc, -ec: what follows is a text. */
static bool takes_text(const char *option)
{
	size_t len = strlen(option);

	return option[0] == '-' && option[1] != '-' && len < 5 && option[len - 1] == 'c';
}

void target_words(char *const argv[], void (*fn)(void *ctx, const char *word), void *ctx)
{
	struct walk w = {fn, ctx, 0};
	char path[PATH_MAX];

	if (!argv[0])
		return;
	if (!target_find_program(argv[0], path, sizeof(path)))
		tell_script(&w, path);
	for (unsigned i = 1; argv[i]; i++) {
		if (takes_text(argv[i - 1])) {
			tell_text(&w, sv_of(argv[i]));
			continue;
		}
		tell(&w, sv_of(argv[i]));
		if (argv[i][0] != '-')
			tell_script(&w, argv[i]);
	}
}
