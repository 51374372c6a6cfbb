/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_CLOCK_BPF_H
#define PERFBPF_CLOCK_BPF_H

/*
 * The socket's clock, tcp_sock.tcp_mstamp: CLOCK_MONOTONIC in microseconds (tcp_clock_us() in the kernel), standing
 * still between the packets and calls that set it. Records tell CLOCK_BOOTTIME in nanoseconds.
 */

#include "emit.bpf.h"

/* What it would say if it were set now. */
static __always_inline __u64 socket_clock_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/* The moment `us` of it, as records tell it. Asks for the time twice: for what is told, not for each packet. */
static __always_inline __u64 socket_clock_boot_ns(__u64 us)
{
	return bpf_ktime_get_boot_ns() - (bpf_ktime_get_ns() - us * 1000);
}

#endif
