/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The object is loaded, and functions of this very program are probed: bpftest.h. */
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bpftest.h"

static int find_offset(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint64_t *address = ctx; /* in: address; out: file offset */
	int i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uint64_t begin = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD && *address >= begin && *address < begin + ph->p_filesz) {
			*address = *address - begin + ph->p_offset;
			return 1;
		}
	}
	return 0;
}

static void add_function(struct tls_find *found, uint32_t role, uint32_t len_arg, void *function)
{
	struct tls_func *f = &found->funcs[found->count];
	uint64_t at = (uintptr_t)function;

	if (!function || !dl_iterate_phdr(find_offset, &at))
		return;
	found->count++;
	f->role = role;
	f->len_arg = len_arg;
	f->site.off = f->site.func_off = at;
}

static int attach(const char *path, const struct tls_find *found)
{
	struct elf e = {.fd = -1};
	struct stat st;

	if (stat(path, &st))
		return -errno;
	e.dev = st.st_dev;
	e.ino = st.st_ino;
	return probes_attach_file(probes, path, path, &e, found);
}

void add_probe(struct tls_find *found, uint32_t role, uint32_t abi, void *function)
{
	add_function(found, role, 0, function);
	found->funcs[found->count - 1].abi = abi;
}

/* Those that are not f(object, buffer, length), as further "files". */
static int attach_stacks(void)
{
	struct tls_find ciphers = {.stack = "ciphers"};
	struct elf e = {.fd = -1, .dev = 1, .ino = 2};
	int err;

	add_probe(&ciphers, TLS_ROLE_READ, TLS_ABI_AEAD, fake_open);
	add_probe(&ciphers, TLS_ROLE_WRITE, TLS_ABI_AEAD, fake_seal);
	err = probes_attach_file(probes, "/proc/self/exe", "ciphers", &e, &ciphers);
	return err ? err : attach_go();
}

static int attach_self(void)
{
	struct tls_find found = {.stack = "test"};
	struct tls_find zero = {.stack = "gnutls"};
	int err;

	add_function(&found, TLS_ROLE_READ, 0, fake_read);
	add_function(&found, TLS_ROLE_READ, 4, fake_read_ex);
	add_function(&found, TLS_ROLE_WRITE, 0, fake_write);
	add_function(&found, TLS_ROLE_WRITE, 0, fake_write_all);
	add_function(&found, TLS_ROLE_WRITE, 4, fake_write_ex);
	add_function(&found, TLS_ROLE_WRITE, 5, fake_write_ex2);
	add_function(&found, TLS_ROLE_HANDSHAKE, 0, fake_handshake);
	add_function(&found, TLS_ROLE_NEW, 0, fake_new);
	add_function(&found, TLS_ROLE_FREE, 0, fake_free);
	err = attach("/proc/self/exe", &found);
	if (err)
		return err;
	/* GnuTLS's convention, as a second "file" */
	add_function(&zero, TLS_ROLE_HANDSHAKE, 0, fake_handshake_zero);
	{
		struct elf e = {.fd = -1, .dev = 1, .ino = 1};

		probes_attach_file(probes, "/proc/self/exe", "gnutls", &e, &zero); /* -ENOENT: no read, no write */
	}
	return attach_stacks();
}

bool open_probes(const struct probes_config *config)
{
	int err;

	forget_generations(); /* they are counted from 1 again */
	probes = probes_open(config);
	if (!probes) {
		printf("# %s (%s)\n", probes_why(), probes_hint() ? probes_hint() : "no hint");
		return false;
	}
	err = attach_self();
	if (err) {
		printf("# attach: %s\n", strerror(-err));
		return false;
	}
	return true;
}
