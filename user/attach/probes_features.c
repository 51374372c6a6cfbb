/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What this kernel can do. */
#include "probes_parts.h"

#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>

#include "base/err.h"
#include "links.h"

/* Whether a link of this type can be made: tries it on a directory, which a kernel that knows the type refuses as such.
 */
static bool link_type_works(uint32_t attach_type)
{
	struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = (enum bpf_attach_type)attach_type);
	uint64_t offset = 0;
	struct link_create attr = {
		.attach_type = attach_type, .path = (uintptr_t) "/", .offsets = (uintptr_t)&offset, .count = 1};
	int err, fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "perfbpf_try", "GPL", insns, ARRAY_SIZE(insns), &opts);

	if (fd < 0)
		return false;
	attr.prog_fd = (uint32_t)fd;
	err = link_create(&attr);
	close(fd);
	if (err >= 0)
		close(err);
	return err == -EBADF || err >= 0;
}

static bool btf_has(const struct btf *btf, const char *name, uint32_t kind)
{
	return btf__find_by_name_kind(btf, name, kind) > 0;
}

static bool has_tracepoint(const struct btf *btf, const char *name)
{
	char type[96];

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	return btf_has(btf, type, BTF_KIND_TYPEDEF);
}

static void find_mode(struct probes *p, const struct btf *btf)
{
	p->features.mode = PROBES_PERF;
	if (p->cfg.mode_max == PROBES_SESSION && btf_has(btf, "bpf_session_is_return", BTF_KIND_FUNC) &&
	    link_type_works(ATTACH_UPROBE_SESSION))
		p->features.mode = PROBES_SESSION;
	else if (p->cfg.mode_max <= PROBES_MULTI && link_type_works(ATTACH_UPROBE_MULTI))
		p->features.mode = PROBES_MULTI;
}

/* Linked in place of libbpf's (--wrap). libbpf 1.1 looks for a weak kernel function that this kernel lacks in the
 * types of all modules, which takes CAP_SYS_ADMIN, and gives up loading without it; it goes on where there are no
 * modules. */
int __real_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id);
int __wrap_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id);
int __wrap_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id)
{
	int err = __real_bpf_btf_get_next_id(start_id, next_id);

	if (!err || errno != EPERM)
		return err;
	errno = ENOENT;
	return -ENOENT;
}

static void add_degraded(struct probes_features *f, const char *what)
{
	size_t len = strlen(f->degraded);

	snprintf(f->degraded + len, sizeof(f->degraded) - len, "%s%s", len ? "; " : "", what);
}

void probes_find_features(struct probes *p, const struct btf *btf)
{
	struct probes_features *f = &p->features;

	find_mode(p, btf);
	f->alloc = f->mode == PROBES_SESSION ? PROBES_ALLOC_FOLLOWED
		   : f->mode == PROBES_MULTI ? PROBES_ALLOC_COUNTED
					     : PROBES_ALLOC_NONE;
	f->read_dynptr = !p->cfg.force_no_dynptr && btf_has(btf, "bpf_probe_read_user_dynptr", BTF_KIND_FUNC);
	f->finds_thread = btf_has(btf, "bpf_task_storage_get_recur", BTF_KIND_FUNC);
	f->sock_length = !p->cfg.force_no_sock_length && has_tracepoint(btf, "sock_send_length") &&
			 has_tracepoint(btf, "sock_recv_length");
	f->prepare_exec = has_tracepoint(btf, "sched_prepare_exec");
	f->tcp_rtt = f->sock_length || has_tracepoint(btf, "tcp_rcv_space_adjust");
	f->tcp_retransmit = has_tracepoint(btf, "tcp_retransmit_skb");
	f->tcp_reset = has_tracepoint(btf, "tcp_send_reset") && has_tracepoint(btf, "tcp_receive_reset");
	f->tcp_late = f->sock_length && has_tracepoint(btf, "sk_data_ready");
	f->tcp_hole = f->tcp_late && has_tracepoint(btf, "tcp_probe");
	f->tcp_resent = f->sock_length && f->tcp_retransmit && has_tracepoint(btf, "tcp_cong_state_set");
	if (f->mode == PROBES_PERF)
		add_degraded(f, "no uprobe_multi links: attaching and detaching are slow");
	if (p->cfg.alloc_bytes && f->alloc == PROBES_ALLOC_NONE)
		add_degraded(f, "no uprobe_multi links: of --alloc only page faults are seen");
	if (p->cfg.alloc_bytes && f->alloc == PROBES_ALLOC_COUNTED)
		add_degraded(f, "no uprobe session links: what is freed of allocations is not seen");
	if (!f->sock_length)
		add_degraded(f,
			     "no sock_send_length: system calls are traced in its place, while a target may use "
			     "plain HTTP; TLS that cannot be read, sessions that go on and look-ups of names are not "
			     "seen");
	if (!f->tcp_rtt)
		add_degraded(f, "no TCP round trip times");
	if (!f->tcp_retransmit)
		add_degraded(f, "no TCP retransmits");
	if (!f->tcp_late)
		add_degraded(f, "no sk_data_ready: what a program reads late is not told from what comes late");
	if (!f->tcp_hole || !f->tcp_resent)
		add_degraded(f, "how long lost segments delayed a connection is not seen");
	if (!f->tcp_reset)
		add_degraded(f, "no TCP resets");
}
