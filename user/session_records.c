/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "session_parts.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/sockaddr.h"
#include "bpf/event.h"
#include "bpf/limits.h"

void session_keep(void *ctx, const void *record, size_t len)
{
	struct session *s = ctx;

	if (s->capture)
		capture_file_push(s->capture, record, len);
	pipeline_push(s->pipeline, record, len);
}

static void keep_files(struct session *s, uint32_t tgid)
{
	const struct target_files *f = targets_files(s->targets, tgid);

	if (f && (f->probed_ns || f->refused))
		capture_make_files(tgid, f->probed_ns, f->refused, f->again, f->reason, clock_boot_ns(), session_keep,
				   s);
}

static void keep_tool_call(struct session *s, const struct proc_key *key)
{
	char id[LIMIT_TOOL_CALL_BYTES + 1];

	if (!target_tool_call((pid_t)key->tgid, key->start_ns, id, sizeof(id)))
		capture_make_tool_call(key, id, clock_boot_ns(), session_keep, s);
}

void session_on_record(void *ctx, const void *record, size_t len)
{
	struct session *s = ctx;
	uint32_t tgid = record_tgid(record, len);

	/* tgid 0: a socket's event, tied to a connection by its cookie. */
	s->ours = tgid == 0 || s->o->all || targets_has(s->targets, tgid) ||
		  (record_is_late(record, len) && targets_had(s->targets, tgid));
	s->told = 0;
	s->execed.tgid = 0;
	record_push(&s->tap, record, len);
	if (s->ours)
		session_keep(s, record, len);
	tgid = s->told;
	s->told = 0;
	if (tgid)
		keep_files(s, tgid);
	if (s->execed.tgid)
		keep_tool_call(s, &s->execed);
}

void session_on_soon(void *ctx, const struct sv *records, unsigned count)
{
	pipeline_soon(((struct session *)ctx)->pipeline, records, count);
}

void session_on_symbol(void *ctx, const struct rec_frame *f)
{
	capture_make_frame(f, clock_boot_ns(), session_keep, ctx);
}

/* Names first: whoever reads the sample knows them. */
static void tap_sample(void *ctx, const struct rec_sample *r)
{
	struct session *s = ctx;

	if (s->ours && s->symbols)
		symbols_push_sample(s->symbols, r);
}

void session_on_interest(void *ctx, const struct conn_key *conn, uint32_t answers, enum interest_word word)
{
	static const char *const text[] = {[INTEREST_WANTED] = "read again",
					   [INTEREST_IGNORED] = "ignored",
					   [INTEREST_NEVER] = "ignored for good"};
	struct session *s = ctx;

	if (!probes_ignore(s->probes, conn->gen, answers, word != INTEREST_WANTED, word == INTEREST_NEVER))
		log_debug("pid %u: connection %u is %s", conn->tgid, conn->gen, text[word]);
}

void session_on_pass(void *ctx, const struct conn_key *conn, enum dir dir, uint64_t until)
{
	struct session *s = ctx;

	probes_pass(s->probes, conn->gen, dir, until);
}

void session_count_untraced(struct session *s, const struct discover_result *r)
{
	s->untraced += r->refused;
}

/* What was found in a process, or a mapping of it. */
static void note_files(struct session *s, uint32_t tgid, const struct discover_result *r)
{
	struct target_files *f = targets_files(s->targets, tgid);

	if (!f || (f->probed_ns >= r->probed_ns && (f->refused || !r->refused)))
		return;
	if (r->probed_ns > f->probed_ns)
		f->probed_ns = r->probed_ns;
	f->refused |= r->refused > 0;
	f->reason = r->reason ? r->reason : f->reason;
	if (s->told != tgid)
		keep_files(s, tgid);
}

/* Bytes move and nothing of them is read. What is probed is probed anew, once: probes have been seen to fall silent. */
void session_on_silent(void *ctx, const struct wire_conn *c, const struct proc *p, const char *why)
{
	struct target_files *f = targets_files(((struct session *)ctx)->targets, c->proc.tgid);
	char name[64], host[96], reason[192];
	struct session *s = ctx;
	unsigned again;

	log_safe(name, sizeof(name), sv_of(p ? p->name : ""));
	log_safe(host, sizeof(host), sv_of(*c->host ? c->host : "a server"));
	log_safe(reason, sizeof(reason), sv_of(why));
	if (!c->probed || !f || f->again) {
		s->untraced++;
		log_warn("pid %u (%s): TLS to %s is not read: %s", c->proc.tgid, name, host, reason);
		return;
	}
	again = discover_again(s->discover, (pid_t)c->proc.tgid);
	log_warn("pid %u (%s): TCP bytes without plaintext to %s, although TLS functions of it are probed%s",
		 c->proc.tgid, name, host, again ? ": probed again" : "");
	f->again = true;
	keep_files(s, c->proc.tgid);
}

void session_scan_process(struct session *s, pid_t pid)
{
	struct discover_result r = discover_process(s->discover, pid);

	if (r.err == -EACCES) {
		log_warn("pid %d: maps unreadable (EACCES), TLS not traced", pid);
		s->untraced++;
	} else if (r.unreadable) {
		log_warn("pid %d: %u mapped file%s unreadable (EACCES), TLS in there not traced", pid, r.unreadable,
			 r.unreadable == 1 ? "" : "s");
		s->untraced++;
	}
	session_count_untraced(s, &r);
	note_files(s, (uint32_t)pid, &r);
}

/* Records first: the exec that made the process ours comes before its mappings. */
void session_on_map(void *ctx, pid_t pid, const struct map_entry *m)
{
	struct session *s = ctx;
	struct discover_result r;

	probes_consume(s->probes);
	if (!s->o->all && !targets_has(s->targets, (uint32_t)pid))
		return;
	if (s->symbols)
		symbols_map(s->symbols, pid, m);
	r = discover_mapping(s->discover, pid, m);
	session_count_untraced(s, &r);
	note_files(s, (uint32_t)pid, &r);
}

static void scan_target(void *ctx, uint32_t tgid)
{
	session_scan_process(ctx, (pid_t)tgid);
}

void session_scan_all(struct session *s, uint64_t now_ns)
{
	s->maps_lost = false;
	s->scanned_ns = now_ns;
	targets_each(s->targets, scan_target, s);
}

/* A storm of mappings must not become one of scans. */
void session_on_maps_lost(void *ctx)
{
	((struct session *)ctx)->maps_lost = true;
}

/* An interpreter of JavaScript runs a script: what that is going to start is probed while the interpreter starts. */
static void look_at_script(struct session *s, const struct rec_exec *r)
{
	char path[PATH_MAX];
	struct sv rest = r->args, word;

	if (!sv_ends(r->filename, SV("/node")) && !sv_ends(r->filename, SV("/nodejs")) &&
	    !sv_ends(r->filename, SV("/bun")))
		return;
	sv_cut(rest, '\0', &rest);
	do
		word = sv_cut(rest, '\0', &rest);
	while (rest.ptr && word.len && word.ptr[0] == '-');
	if (!word.len || word.ptr[0] != '/' || word.len >= sizeof(path))
		return; /* one that is not absolute is looked at when its program is mapped, as any other */
	memcpy(path, word.ptr, word.len);
	path[word.len] = '\0';
	discover_script(s->discover, (pid_t)r->proc.tgid, path);
}

static void tap_exit(void *ctx, const struct rec_exit *r)
{
	struct session *s = ctx;

	targets_remove(s->targets, r->proc.tgid);
	discover_forget(s->discover, (pid_t)r->proc.tgid);
	if (s->symbols)
		symbols_exit(s->symbols, &r->proc);
}

/* Its end was lost. Nothing of it may stay: connections, conversations, mappings. */
void session_end_untold(struct session *s, uint32_t tgid, uint64_t by_ns)
{
	struct rec_exit r = {.proc = {.tgid = tgid, .start_ns = targets_start(s->targets, tgid)}};

	capture_make_exit(&r.proc, by_ns, session_keep, s);
	tap_exit(s, &r);
}

/* The pid is another process's now. */
static void end_other(struct session *s, uint32_t tgid, uint64_t start_ns, uint64_t by_ns)
{
	uint64_t known_ns = targets_start(s->targets, tgid);

	if (known_ns && start_ns && known_ns != start_ns)
		session_end_untold(s, tgid, by_ns);
}

static void tap_exec(void *ctx, const struct rec_exec *r)
{
	struct session *s = ctx;
	enum targets_verdict v;

	end_other(s, r->proc.tgid, r->proc.start_ns, r->ts_ns);
	v = targets_exec(s->targets, r);
	/* Its birth was lost, or it would be one of them. */
	if (v == TARGETS_OTHER && probes_has_target(s->probes, r->proc.tgid, r->proc.start_ns) &&
	    !targets_add(s->targets, r->proc.tgid, r->proc.start_ns))
		v = TARGETS_OLD;
	s->ours = v != TARGETS_OTHER;
	if (r->already_running)
		return;
	discover_forget(s->discover, (pid_t)r->proc.tgid);
	s->told = s->ours ? r->proc.tgid : 0;
	if (s->symbols && s->ours)
		symbols_exec(s->symbols, &r->proc, r->ts_ns);
	if (v == TARGETS_OTHER) {
		probes_drop_target(s->probes, (pid_t)r->proc.tgid);
		return;
	}
	s->execed = r->proc;
	if (v == TARGETS_NEW && !s->o->all)
		probes_confirm_target(s->probes, (pid_t)r->proc.tgid);
	if (v == TARGETS_NEW && s->meant)
		meant_exec(s->meant, r, clock_boot_ns());
	look_at_script(s, r);
	/* System-wide the mappings of a new program are looked at as they come. */
	if (!s->o->all || !s->mapwatch)
		session_scan_process(s, (pid_t)r->proc.tgid);
}

static void tap_fork(void *ctx, const struct rec_fork *r)
{
	struct session *s = ctx;

	end_other(s, r->child_tgid, r->child_start_ns, r->ts_ns);
	s->ours = targets_fork(s->targets, r);
	discover_fork(s->discover, (pid_t)r->parent_tgid, (pid_t)r->child_tgid);
	s->told = s->ours ? r->child_tgid : 0;
	if (s->symbols && s->ours)
		symbols_fork(s->symbols, r);
}

void session_tap(struct session *s)
{
	struct record_sink tap = {
		.ctx = s, .on_exec = tap_exec, .on_fork = tap_fork, .on_exit = tap_exit, .on_sample = tap_sample};

	record_init(&s->tap, &s->tap_lost, &tap);
}

#define ASKED_TOLD_MAX 8

struct asked {
	struct session *s;
	unsigned count;
};

static void on_asked(void *ctx, const struct ev_wire *wire)
{
	struct sock_addr to = {.family = wire->addr.family, .port = wire->addr.rport};
	char peer[SOCK_ADDR_TEXT_BYTES], name[64];
	struct asked *a = ctx;
	struct proc_stat p;

	session_on_record(a->s, wire, wire->h.size);
	if (!a->s->ours || !wire_is_tls_port(to.port) || a->count++ >= ASKED_TOLD_MAX ||
	    target_read((pid_t)wire->h.tgid, &p))
		return;
	memcpy(to.ip, wire->addr.raddr, sizeof(to.ip));
	log_safe(name, sizeof(name), sv_of(p.comm));
	log_info("pid %u (%s): %s has sent nothing since it was sent something %.1f s ago: an answer may be awaited",
		 wire->h.tgid, name, sock_addr_text(peer, &to),
		 (double)(clock_boot_ns() - wire->h.ts_ns) / (double)NS_PER_SEC);
}

/* Who attaches to a program that hangs wants to know this first. On other ports nothing tells who asks whom. */
void session_tell_asked(struct session *s)
{
	struct asked a = {.s = s};

	probes_asked(s->probes, on_asked, &a);
	if (a.count > ASKED_TOLD_MAX)
		log_info("… and %u more connections of that kind", a.count - ASKED_TOLD_MAX);
}
