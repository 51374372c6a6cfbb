/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROFILE_WAIT_H
#define FLOW_PROFILE_WAIT_H

/* What a blocked thread waits for. Private to the profile stage. */

#include "profile.h"

/* By the name of one of the kernel's functions on the stack; PROFILE_KINDS: it says nothing. */
enum profile_kind profile_wait_of_function(struct sv name);
/* How a thread leaves its processor, and how that is watched: the same on every stack. */
bool profile_is_scheduler(struct sv name);
/* Where no function tells: by the system call, and by how the kernel counts the wait. */
enum profile_kind profile_wait_of_call(const struct rec_sample *r);

#endif
