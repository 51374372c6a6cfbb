/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which file it is that probes see: a mapping's inode. On overlayfs every mount has a view of its own, with other
 * numbers in stat(2) and in /proc/PID/maps, of the one file below that is mapped and that carries the probes
 * (ovl_mmap).
 */
#include "emit.bpf.h"

/* Read by fileid_read(), of perfbpf itself. */
SEC("iter/task_vma")
int file_list(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct file_identity id = {};
	struct inode *inode;

	if (!task || !vma || (__u32)task->tgid != cfg.self_tgid || !vma->vm_file)
		return 0;
	inode = vma->vm_file->f_inode;
	id.begin = vma->vm_start;
	id.end = vma->vm_end;
	id.ino = inode->i_ino;
	id.dev = inode->i_sb->s_dev;
	bpf_seq_write(ctx->meta->seq, &id, sizeof(id));
	return 0;
}
