/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kernel_parse_line(struct symtab *t, struct sv line)
{
	struct sv rest, type, name, module;
	uint64_t addr = 0;
	int err;

	for (size_t i = 0; i < line.len && line.ptr[i] != ' '; i++) {
		char c = line.ptr[i];
		unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
			     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
						    : 16;

		if (d > 15 || i == 16)
			return 0;
		addr = addr << 4 | d;
	}
	sv_cut(line, ' ', &rest);
	type = sv_cut(rest, ' ', &rest);
	name = sv_cut(rest, '\t', &module);
	if (type.len != 1 || !strchr("tTwW", type.ptr[0]) || !name.len)
		return 0;
	if (!addr)
		return -EPERM;
	err = symtab_add(t, addr, 0, name);
	return err ? err : 1;
}

FILE *kernel_open(void)
{
	return fopen("/proc/kallsyms", "re");
}

int kernel_symbols(struct symtab *t, FILE *f)
{
	size_t size = 0;
	char *line = NULL;
	ssize_t len;
	int err = 0;

	if (!f)
		return -ENOENT;
	while (err >= 0 && (len = getline(&line, &size, f)) > 0)
		err = kernel_parse_line(t, (struct sv){line, (size_t)len - (line[len - 1] == '\n')});
	free(line);
	fclose(f);
	if (err == -EPERM)
		symtab_clear(t);
	symtab_sort(t);
	return err < 0 && err != -ENOSPC ? err : 0;
}
