/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "check.h"
#include "options.h"
#include "privilege.h"
#include "replay.h"
#include "report.h"
#include "session.h"
#include "spawn.h"

/* A closed standard descriptor would become the next file that we open, and diagnostics would go into it. What is
 * written to a closed standard output fails, as it would without this. */
static int open_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int how = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;

		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", how | O_CLOEXEC) != fd)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options o;
	int status;

	if (open_standard_descriptors())
		return 1;
	spawn_note_descriptors();
	/* A reader that went away shows as EPIPE, a file size limit as EFBIG, where it matters. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	if (options_parse(&o, argc, argv, &status)) {
		options_release(&o);
		return status;
	}
	log_set_level(o.verbose >= 2 ? LOG_DEBUG : o.verbose ? LOG_VERBOSE : o.quiet ? LOG_WARN : LOG_INFO);
	if (privilege_begin()) {
		options_release(&o);
		return 1;
	}
	if (o.command == COMMAND_REPLAY || o.command == COMMAND_REPORT || o.command == COMMAND_DIFF)
		privilege_read(!o.no_sandbox);
	switch (o.command) {
	case COMMAND_RECORD:
		status = session_run(&o, argc, argv);
		break;
	case COMMAND_REPLAY:
		status = replay_run(&o, argc, argv);
		break;
	case COMMAND_REPORT:
		status = report_run(&o);
		break;
	case COMMAND_DIFF:
		status = diff_run(&o);
		break;
	case COMMAND_CHECK:
		status = check_run(&o);
		break;
	}
	options_release(&o);
	return status;
}
