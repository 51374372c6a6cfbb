/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The BPF side, for real: loads the object in one flavour, probes functions of this very program (whose return values
 * are scripted) and of libssl, lets child processes call them, and compares the records with golden texts.
 *
 *   bpftest session|multi|perf [no-dynptr] [no-sock-length]
 *
 * Speaks TAP. Needs root and BPF; says SKIP where there is none, or where the kernel has no such flavour.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "bpftest.h"

static struct probes_config config = {.ring_bytes = 8 << 20, .on_record = on_record};

static void skip_all(const char *why)
{
	printf("ok 1 - %s # SKIP %s\n1..1\n", flavour, why);
	exit(0);
}

static enum probes_mode parse_flavour(int argc, char **argv)
{
	static char name[64];

	for (int i = 2; i < argc; i++) {
		config.force_no_dynptr |= strcmp(argv[i], "no-dynptr") == 0;
		config.force_no_sock_length |= strcmp(argv[i], "no-sock-length") == 0;
	}
	snprintf(name, sizeof(name), "%s%s%s", argc > 1 ? argv[1] : "session",
		 config.force_no_dynptr ? " without dynptr" : "",
		 config.force_no_sock_length ? " without sock_send_length" : "");
	flavour = name;
	if (argc > 1 && strcmp(argv[1], "multi") == 0)
		return PROBES_MULTI;
	if (argc > 1 && strcmp(argv[1], "perf") == 0)
		return PROBES_PERF;
	return PROBES_SESSION;
}

static void run_all_tests(void)
{
	data_tests();
	limit_tests();
	connection_tests();
	process_tests();
	listen_somewhere();
	cipher_tests();
	go_tests();
	socket_tests();
	plain_tests();
	unix_tests();
	stdio_tests();
	ignored_tests();
	libssl_tests();
}

static void run_http_tests(void)
{
	listen_somewhere();
	limit_tests_with_http();
}

/* What one in some hundred threads meets where a kernel preempts itself. */
static void run_unstored_tests(void)
{
	data_tests_unstored();
	process_tests_unstored();
	cipher_tests_unstored();
	listen_somewhere();
	socket_tests_unstored();
	verdict(entries_of("unstored") == 0, "unstored: nothing of them is left");
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "serve-stdio") == 0)
		return serve_stdio();
	setvbuf(stdout, NULL, _IOLBF, 0);
	config.mode_max = parse_flavour(argc, argv);
	if (getenv("BPFTEST_VERBOSE"))
		log_set_level(LOG_VERBOSE);
	if (geteuid() != 0)
		skip_all("needs root");
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		skip_all("this kernel has no BTF");
	make_bytes();
	if (!open_probes(&config)) {
		if (probes)
			probes_close(probes);
		verdict(false, "load and attach");
		return 1;
	}
	if (probes_features(probes)->mode != config.mode_max)
		skip_all("this kernel does not have it");
	verdict(probes_features(probes)->read_dynptr || config.force_no_dynptr || config.mode_max != PROBES_SESSION,
		"load and attach");
	if (probes_features(probes)->degraded[0])
		printf("# degraded: %s\n", probes_features(probes)->degraded);
	run_all_tests();
	probes_close(probes);
	config.ring_bytes = 65536;
	verdict(open_probes(&config), "load again, with a small ring");
	ring_tests();
	probes_close(probes);
	config.ring_bytes = 1 << 20;
	config.follow_exec = true;
	verdict(open_probes(&config), "load again, to follow every exec");
	follow_exec_tests();
	probes_close(probes);
	config.ring_bytes = 8 << 20;
	config.follow_exec = false;
	config.http = true;
	verdict(open_probes(&config), "load again, for all HTTP");
	run_http_tests();
	probes_close(probes);
	config.http = false;
	config.force_no_storage = true;
	verdict(open_probes(&config), "load again, as if no thread were given storage");
	if (probes_features(probes)->finds_thread)
		run_unstored_tests();
	probes_close(probes);
	free(big);
	free(got);
	return print_plan();
}
