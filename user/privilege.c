/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "privilege.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "sandbox.h"

#define BIT(capability) (1ull << (capability))
/* Newer than some distributions' headers. */
#define PERFMON		   38
#define BPF		   39
#define CHECKPOINT_RESTORE 40

#define LATE_PROBES (BIT(BPF) | BIT(PERFMON) | BIT(CAP_SYS_PTRACE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CHECKPOINT_RESTORE))

static uint64_t overridden; /* CAP_DAC_OVERRIDE, where it turned out to be needed */

struct caps {
	uint64_t effective, permitted, inheritable;
};

static int get_caps(struct caps *c)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	*c = (struct caps){0};
	if (syscall(SYS_capget, &header, data))
		return -errno;
	c->effective = (uint64_t)data[1].effective << 32 | data[0].effective;
	c->permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
	c->inheritable = (uint64_t)data[1].inheritable << 32 | data[0].inheritable;
	return 0;
}

static int set_caps(const struct caps *c)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{(uint32_t)c->effective, (uint32_t)c->permitted, (uint32_t)c->inheritable},
		{(uint32_t)(c->effective >> 32), (uint32_t)(c->permitted >> 32), (uint32_t)(c->inheritable >> 32)},
	};

	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

/* --- the invoking user ------------------------------------------------------------------------------------------- */

static bool parse_id(const char *text, unsigned *out)
{
	char *end;
	unsigned long n;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || *end || n >= UINT_MAX)
		return false;
	*out = (unsigned)n;
	return true;
}

void privilege_user(uid_t *uid, gid_t *gid)
{
	unsigned u, g;

	*uid = getuid();
	*gid = getgid();
	/* Only root can have been made root by sudo: anybody may set the variables. */
	if (geteuid() == 0 && parse_id(getenv("SUDO_UID"), &u) && parse_id(getenv("SUDO_GID"), &g)) {
		*uid = u;
		*gid = g;
	}
}

int privilege_groups(uid_t uid, gid_t gid, struct passwd **pw)
{
	*pw = getpwuid(uid);
	return (*pw ? initgroups((*pw)->pw_name, gid) : setgroups(1, &gid)) ? -errno : 0;
}

/* Files are made with the user's rights only: with root's groups he could have them made where he may not write. A
 * saved id is what setfsuid(2) goes to and back from without CAP_SETUID. */
static int act_for(uid_t uid, gid_t gid)
{
	struct passwd *pw;
	int err;

	if (uid == getuid() && gid == getgid())
		return 0;
	err = privilege_groups(uid, gid, &pw);
	if (err)
		return err;
	return setresgid((gid_t)-1, (gid_t)-1, gid) || setresuid((uid_t)-1, (uid_t)-1, uid) ? -errno : 0;
}

int privilege_begin(void)
{
	struct caps c;
	uid_t uid;
	gid_t gid;
	int err;

	privilege_user(&uid, &gid);
	err = act_for(uid, gid);
	if (err) {
		log_error("cannot act for the invoking user (uid %u): %s", (unsigned)uid, strerror(-err));
		return err;
	}
	if (!get_caps(&c)) {
		c.effective &= ~BIT(CAP_DAC_OVERRIDE);
		set_caps(&c);
	}
	return 0;
}

/* --- capabilities ------------------------------------------------------------------------------------------------ */

bool privilege_has(int capability)
{
	struct caps c;

	return !get_caps(&c) && c.effective & BIT(capability);
}

bool privilege_override(void)
{
	struct caps c;
	uid_t uid;
	gid_t gid;

	privilege_user(&uid, &gid);
	if (overridden || uid != geteuid() || get_caps(&c) || !(c.permitted & BIT(CAP_DAC_OVERRIDE)))
		return false;
	overridden = BIT(CAP_DAC_OVERRIDE);
	c.effective |= overridden;
	return !set_caps(&c);
}

static void keep(uint64_t kept)
{
	struct caps c;
	int err = get_caps(&c);

	kept |= overridden;
	if (!err) {
		c.permitted &= kept;
		c.effective &= kept;
		c.inheritable = 0;
		err = set_caps(&c);
	}
	if (err)
		log_warn("privileges are not given up: %s", strerror(-err));
	/* Those that only ambient capabilities and new programs could have. */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void privilege_trace(bool perf_probes, bool sandbox)
{
	keep(LATE_PROBES | (perf_probes ? BIT(CAP_SYS_ADMIN) : 0));
	log_verbose("privileges are given up%s",
		    perf_probes ? ", but for CAP_SYS_ADMIN: new perf uprobes need it" : "");
	if (sandbox)
		sandbox_enter();
}

void privilege_thread(void)
{
	keep(LATE_PROBES);
}

void privilege_read(bool sandbox)
{
	keep(BIT(CAP_DAC_READ_SEARCH));
	if (sandbox)
		sandbox_enter();
}

void privilege_write(void)
{
	keep(0);
}

void privilege_keep_stats(void)
{
	keep(BIT(CAP_SYS_ADMIN));
}

int privilege_own(void)
{
	struct caps c;
	int err;

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		return -errno;
	err = get_caps(&c);
	if (!geteuid())
		c.effective = c.permitted;
	c.inheritable = 0;
	return err ? err : set_caps(&c);
}
