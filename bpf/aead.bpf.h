/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_AEAD_BPF_H
#define PERFBPF_AEAD_BPF_H

/*
 * Ciphers under TLS (TLS_ABI_AEAD): rustls keeps the connection to itself, but each record goes through
 * EVP_AEAD_CTX_seal() or EVP_AEAD_CTX_open() of aws-lc. Which of their calls are TLS, the additional data says:
 *   TLS 1.3 (RFC 8446 section 5.2): the header of the record, 17 03 03 and the length of what is sealed; the plaintext
 *     is the content, its type, and zeros.
 *   TLS 1.2 (RFC 5246 section 6.2.3.3): sequence number, type, 03 03, length of the plaintext; which is the content.
 * All other users (QUIC, tickets, tokens) are let through unseen. Only application data is passed on.
 *
 * A cipher has one direction and one key, and nobody says when it goes: another key in the same memory has another IV,
 * whose first 4 bytes no sequence number touches (RFC 8446 section 5.3; RFC 5288 section 3).
 *
 * Its socket: a program that does its TLS by itself seals some records and sends them, or receives and opens what is
 * complete, on one thread. When the lengths agree to the byte, these were those.
 */

#include "calls.bpf.h"
#include "run.bpf.h"

#define RECORD_HEADER	 5
#define RECORD_MAX	 (16384 + 256) /* RFC 8446 section 5.2 */
#define RECORD_TAG_MAX	 32
#define RECORD_HANDSHAKE 22
#define RECORD_DATA	 23
#define RECORD_NONCE	 8 /* explicit, TLS 1.2 with AES-GCM */
#define RECORD_CCS	 6 /* change_cipher_spec, which no cipher sees (RFC 8446 appendix D.4) */
#define AD_TLS13	 5
#define AD_TLS12	 13

struct aead_args { /* arguments 7 to 10 */
	__u64 in, in_len, ad, ad_len;
};

static __always_inline bool aead_args_read(struct pt_regs *ctx, struct aead_args *a)
{
#if defined(__TARGET_ARCH_x86)
	return !bpf_probe_read_user(a, sizeof(*a), (const void *)(PT_REGS_SP(ctx) + 8));
#elif defined(__TARGET_ARCH_arm64)
	a->in = ((const struct user_pt_regs *)ctx)->regs[6];
	a->in_len = ((const struct user_pt_regs *)ctx)->regs[7];
	return !bpf_probe_read_user(&a->ad, 2 * sizeof(a->ad), (const void *)PT_REGS_SP(ctx));
#endif
}

/* Whether these two lengths of one record are plaintext (inner type included) and ciphertext. */
static __always_inline bool is_sealed_len(__u64 plain, __u64 sealed)
{
	return sealed <= RECORD_MAX && plain < sealed && sealed - plain <= RECORD_TAG_MAX;
}

/* The record that the call works on, into call->wire, type, flags. false: it is no TLS record. */
static __always_inline bool record_read(const struct aead_args *a, struct tls_call *call)
{
	bool seals = call->role == TLS_ROLE_WRITE;
	__u8 ad[AD_TLS12];
	__u32 len;

	if (a->ad_len == AD_TLS13) {
		if (bpf_probe_read_user(ad, AD_TLS13, (const void *)a->ad))
			return false;
		len = ad[3] << 8 | ad[4];
		if (ad[0] != RECORD_DATA || ad[1] != 3 || ad[2] != 3)
			return false;
		call->flags |= CALL_INNER;
		call->wire = RECORD_HEADER + len;
		return seals ? is_sealed_len(a->in_len, len) : a->in_len == len && len <= RECORD_MAX;
	}
	if (a->ad_len != AD_TLS12 || bpf_probe_read_user(ad, AD_TLS12, (const void *)a->ad))
		return false;
	len = ad[11] << 8 | ad[12];
	call->type = ad[8];
	if (ad[8] < 20 || ad[8] > 24 || ad[9] != 3 || ad[10] != 3)
		return false;
	call->wire = RECORD_HEADER + (seals ? len + 16 : a->in_len); /* 16: every AEAD cipher that is in use */
	return seals ? a->in_len == len && len <= RECORD_MAX : is_sealed_len(len, a->in_len);
}

/* --- whose socket ------------------------------------------------------------------------------------------------ */

/* The thread received `len` bytes. */
static __always_inline void records_received(struct opened *o, __u64 cookie, __u32 len)
{
	if (o->cookie != cookie) {
		__builtin_memset(o, 0, sizeof(*o));
		o->cookie = cookie;
	}
	if (o->opening)
		__builtin_memset(&o->turn, 0, sizeof(o->turn));
	o->opening = 0;
	o->turn.wire += len;
	o->total.wire += len;
}

/* The thread sent `len` bytes: what it sealed before, or not. */
int records_sent(struct thread *t, struct sock_info *info, __u32 len);

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* A plaintext is in its place only until it is sealed: now. */
int record_sealed(struct tls_call *call, __u64 len);
/* EVP_AEAD_CTX_open() has returned, and has opened one. */
int record_opened(struct thread *t, struct tls_call *call);

/* At the entry. true: the return is wanted. */
static __always_inline bool aead_entered(struct pt_regs *ctx, struct tls_call *call)
{
	struct aead_args a;

	if (!aead_args_read(ctx, &a)) {
		stat_add(ST_FAULT, 1);
		return false;
	}
	call->flags |= CALL_HALF | CALL_UNFREED;
	if (!record_read(&a, call))
		return false;
	if (!cfg.sock_length) /* its socket has to be seen */
		sockets_ns = call->entry_ns;
	if (bpf_probe_read_user(&call->salt, sizeof(call->salt), (const void *)PT_REGS_PARM5(ctx)))
		stat_add(ST_FAULT, 1);
	if (call->role == TLS_ROLE_READ)
		return true;
	call->obj = PT_REGS_PARM1(ctx);
	call->buf = a.in;
	record_sealed(call, a.in_len);
	return false;
}

#endif
