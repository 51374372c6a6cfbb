/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_CALLREGS_BPF_H
#define PERFBPF_CALLREGS_BPF_H

/* What a system call was called with, by the registers that its thread entered the kernel with. */

#include "emit.bpf.h"

#define ENOSYS 38

#if defined(__TARGET_ARCH_x86)

#define NR_READ	    0
#define NR_WRITE    1
#define NR_READV    19
#define NR_WRITEV   20
#define NR_SENDTO   44
#define NR_RECVFROM 45
#define NR_SENDMSG  46
#define NR_RECVMSG  47
#define NR_RECVMMSG 299
#define NR_SENDMMSG 307
#define NR_PREADV2  327
#define NR_PWRITEV2 328

#define TS_COMPAT 2
#define USER32_CS 0x23

static __always_inline bool is_32_bit(struct task_struct *task, struct pt_regs *regs)
{
	return regs->cs == USER32_CS || (task->thread_info.status & TS_COMPAT);
}

/* The result register holds this from the entry until there is a result: work that runs on the way back to the user
 * (io_uring's) is not the call's. Kernel workers have a stack pointer of 0. */
static __always_inline bool in_call(struct task_struct *task, struct pt_regs *regs)
{
	return (long)regs->ax == -ENOSYS && regs->sp && !is_32_bit(task, regs);
}

static __always_inline __u64 call_number(struct pt_regs *regs)
{
	return regs->orig_ax;
}

#define CALL_ARG1(regs) ((regs)->di)
#define CALL_ARG2(regs) ((regs)->si)
#define CALL_ARG3(regs) ((regs)->dx)
#define CALL_ARG4(regs) ((regs)->r10)
#define CALL_ARG5(regs) ((regs)->r8)

#elif defined(__TARGET_ARCH_arm64)

#define NR_READ	    63
#define NR_WRITE    64
#define NR_READV    65
#define NR_WRITEV   66
#define NR_SENDTO   206
#define NR_RECVFROM 207
#define NR_SENDMSG  211
#define NR_RECVMSG  212
#define NR_RECVMMSG 243
#define NR_SENDMMSG 269
#define NR_PREADV2  286
#define NR_PWRITEV2 287

#define PSTATE_32_BIT 0x10

static __always_inline bool is_32_bit(struct task_struct *task, struct pt_regs *regs)
{
	return (regs->pstate & PSTATE_32_BIT) != 0;
}

static __always_inline bool in_call(struct task_struct *task, struct pt_regs *regs)
{
	return regs->sp && !is_32_bit(task, regs);
}

static __always_inline __u64 call_number(struct pt_regs *regs)
{
	return (__u32)regs->syscallno;
}

#define CALL_ARG1(regs) ((regs)->orig_x0) /* regs[0] is the result */
#define CALL_ARG2(regs) ((regs)->regs[1])
#define CALL_ARG3(regs) ((regs)->regs[2])
#define CALL_ARG4(regs) ((regs)->regs[3])
#define CALL_ARG5(regs) ((regs)->regs[4])

#endif

#endif
