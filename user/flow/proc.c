/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/buf.h"
#include "base/credential.h"
#include "base/err.h"
#include "base/hash.h"
#include "proc_args.h"
#include "proc_catalogue.h"

struct node_key {
	uint64_t start_ns;
	uint32_t tgid, zero;
};

struct node {
	struct proc p; /* first: what downstream sees */
	struct node_key key;
	uint64_t cpu_at_ns, cpu_ns, wait_ns; /* as it was asked last; cpu_at_ns 0: never */
	bool program;			     /* it was seen to run one of its own, not its parent's */
	bool used;			     /* somebody asked for it: it owns connections */
	struct node *older;		     /* the process that had this tgid before, NULL: none that is remembered */
	struct node *newer;
	struct node *all_prev, *all_next;     /* in order of appearance */
	struct node *ended_prev, *ended_next; /* exited longest ago first; one list for used, one for the rest */
	UT_hash_handle hh;		      /* by key */
	UT_hash_handle hh_tgid;		      /* the newest of a tgid */
};

struct procs {
	struct lost *lost;
	struct proc_sink sink;
	bool content;
	struct node *by_key, *by_tgid, *all;
	struct node *ended[2]; /* [used] */
	unsigned ended_unused;
	unsigned next_order;
	uint32_t synthetic; /* pids given out above PROC_SYNTHETIC_PID */
};

/* --- secrets in argument vectors --------------------------------------------------------------------------------- */

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
	       c == '.';
}

static bool ends_word(struct sv name, const char *word)
{
	size_t n = strlen(word);

	return name.len >= n && strncasecmp(name.ptr + name.len - n, word, n) == 0;
}

/* OPENAI_API_KEY, --auth-token, apiKey, DB_PASSWORD, x-api-key, Authorization. Not max_tokens or monkey_count. */
static bool is_secret_name(struct sv name)
{
	static const char *const suffix[] = {"key",	      "token",	"secret",     "password",    "passwd",
					     "passphrase",    "pwd",	"credential", "credentials", "auth",
					     "authorization", "cookie", "pass",	      "secrets",     "authentication",
					     "bearer",	      "jwt",	"otp",	      "pw"};

	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++)
		if (ends_word(name, suffix[i]))
			return true;
	return false;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(struct sv s, size_t i)
{
	while (i < s.len && is_space(s.ptr[i]))
		i++;
	return i;
}

static size_t name_end(struct sv s, size_t i)
{
	while (i < s.len && is_name(s.ptr[i]))
		i++;
	return i;
}

static bool is_scheme_word(struct sv w)
{
	return sv_ieq(w, SV("bearer")) || sv_ieq(w, SV("basic")) || sv_ieq(w, SV("digest"));
}

/* One value from i on: quoted, or up to a character that ends words. *open is where its text begins. */
static size_t value_end(struct sv s, size_t i, size_t *open)
{
	char quote = 0;

	if (i < s.len && (s.ptr[i] == '"' || s.ptr[i] == '\''))
		quote = s.ptr[i++];
	*open = i;
	while (i < s.len && (quote ? s.ptr[i] != quote : !is_space(s.ptr[i]) && !strchr("&;|\"',)}", s.ptr[i])))
		i++;
	return i;
}

/* "Bearer x": the word stays, *i moves behind it. */
static void skip_scheme(struct sv s, size_t *i)
{
	size_t end = name_end(s, *i);

	if (end < s.len && is_space(s.ptr[end]) && is_scheme_word((struct sv){s.ptr + *i, end - *i}))
		*i = skip_space(s, end);
}

/*
 * The secret that a name which ends at i introduces: [*open, return). 0: none. `whole`: the name began the argument, so
 * that its value is all the rest. A blank separates an option from its value: "--token x".
 */
static size_t secret_after(struct sv s, size_t i, bool whole, bool option, size_t *open)
{
	size_t at = i;

	if (at < s.len && (s.ptr[at] == '"' || s.ptr[at] == '\'')) /* "key": "value" */
		at++;
	at = skip_space(s, at);
	if (at < s.len && (s.ptr[at] == '=' || s.ptr[at] == ':')) {
		at = skip_space(s, at + 1);
		if (whole) {
			*open = at;
			return s.len;
		}
	} else if (!option || at == i) {
		return 0;
	}
	skip_scheme(s, &at);
	return value_end(s, at, open);
}

/* scheme://user:password@host: [*open, return) is what lies between; 0: no such thing at i (just behind "://"). */
static size_t userinfo_end(struct sv s, size_t i)
{
	for (; i < s.len && s.ptr[i] != '/' && s.ptr[i] != '?' && s.ptr[i] != '#' && !is_space(s.ptr[i]); i++)
		if (s.ptr[i] == '@')
			return i;
	return 0;
}

struct cut {
	size_t open, end;
};

/* The next secret of s at or after i; false: none. *next: where to look on when there is no secret in this word. */
static bool secret_at(struct sv s, size_t i, size_t *next, struct cut *cut)
{
	size_t end = name_end(s, i), dashes = i, open = 0, to;
	struct sv word, name;

	if (end == i) {
		*next = i + 1;
		if (s.len - i > 3 && memcmp(s.ptr + i, "://", 3) == 0) {
			*next = i + 3;
			to = userinfo_end(s, i + 3);
			*cut = (struct cut){i + 3, to};
			return to > i + 3;
		}
		return false;
	}
	*next = end;
	while (dashes < end && s.ptr[dashes] == '-')
		dashes++;
	word = (struct sv){s.ptr + i, end - i};
	name = (struct sv){s.ptr + dashes, end - dashes};
	if (credential_is_token(name)) {
		*cut = (struct cut){dashes, end};
		return true;
	}
	if (is_scheme_word(word)) {
		size_t at = skip_space(s, end);

		to = value_end(s, at, &open);
		*cut = (struct cut){open, to};
		return at > end && to > open && sv_ieq(word, SV("bearer"));
	}
	if (!is_secret_name(name))
		return false;
	to = secret_after(s, end, i == 0, dashes > i, &open);
	*cut = (struct cut){open, to};
	return to > open;
}

/* One argument with its secrets as ***. 0 or -errno of the buffer. */
static int redact_arg(struct buf *out, struct sv s)
{
	size_t i = 0, done = 0;
	int err = 0;

	while (i < s.len && !err) {
		struct cut cut;
		size_t next;

		if (!secret_at(s, i, &next, &cut)) {
			i = next;
			continue;
		}
		err = buf_push(out, s.ptr + done, cut.open - done);
		if (!err)
			err = buf_puts(out, "***");
		done = i = cut.end;
	}
	return err ? err : buf_push(out, s.ptr + done, s.len - done);
}

/* How long an option with the value USER:PASSWORD (--cert: FILE:PASSWORD) is, with its '=': -u, --user, --proxy-user=.
 * curl's may stand behind flags (-sSu). 0: it is none. */
#define CURL_FLAGS "012346BGIJLNORSZafgijklnpqsv" /* curl(1): options of one letter without a value */
static size_t user_option(struct sv arg, bool curl)
{
	struct sv value, name = sv_cut(arg, '=', &value);
	size_t i = 1;

	if (sv_starts(arg, SV("--")))
		return sv_ends(name, SV("user")) || sv_eq(name, SV("--cert")) ? name.len + (value.ptr != NULL) : 0;
	if (arg.len < 2 || arg.ptr[0] != '-')
		return 0;
	while (curl && i + 1 < arg.len && strchr(CURL_FLAGS, arg.ptr[i]))
		i++;
	return strchr("uUE", arg.ptr[i]) ? i + 1 : 0;
}

static bool has_password(struct sv user)
{
	return user.len && memchr(user.ptr, ':', user.len);
}

/* One argument, with what is attached to such an option as ***. */
static int redact_option(struct buf *out, struct sv arg, bool curl)
{
	size_t at = user_option(arg, curl);
	int err;

	if (!at || !has_password((struct sv){arg.ptr + at, arg.len - at}))
		return redact_arg(out, arg);
	err = buf_push(out, arg.ptr, at);
	return err ? err : buf_puts(out, "***");
}

/* Is the argument after this one a secret? --api-key VALUE, -u USER:PASSWORD, set api_key VALUE */
static bool announces_secret(struct sv arg, struct sv following, bool curl)
{
	size_t dashes = 0;

	if (arg.len && user_option(arg, curl) == arg.len)
		return has_password(following);
	if (is_scheme_word(arg))
		return sv_ieq(arg, SV("bearer"));
	while (dashes < arg.len && arg.ptr[dashes] == '-')
		dashes++;
	if ((!dashes && !memchr(arg.ptr, '_', arg.len)) || name_end(arg, 0) != arg.len ||
	    sv_starts(following, SV("--")))
		return false;
	return is_secret_name((struct sv){arg.ptr + dashes, arg.len - dashes});
}

int proc_redact_args(struct buf *out, struct sv args)
{
	struct sv arg, rest = args, following;
	bool secret = false, first = true, curl = false;
	int err = 0;

	while (rest.ptr && !err) {
		arg = sv_cut(rest, '\0', &rest);
		curl |= first && (sv_eq(arg, SV("curl")) || sv_ends(arg, SV("/curl")));
		if (!rest.ptr && !arg.len && !first) /* the NUL was a terminator */
			break;
		if (!first)
			err = buf_putc(out, '\0');
		first = false;
		if (!err)
			err = secret ? buf_puts(out, "***") : redact_option(out, arg, curl);
		following = SV_NONE;
		if (rest.ptr) {
			struct sv unused;

			following = sv_cut(rest, '\0', &unused);
		}
		secret = !secret && following.ptr && announces_secret(arg, following, curl);
	}
	return err;
}

int proc_public_args(struct buf *out, struct sv args, bool content)
{
	struct buf hidden;
	int err;

	if (content)
		return proc_redact_args(out, args);
	buf_init(&hidden, 0);
	err = args_hide_prompts(&hidden, args);
	if (!err)
		err = proc_redact_args(out, (struct sv){hidden.ptr, hidden.len});
	buf_release(&hidden);
	return err;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static struct sv basename_of(struct sv path)
{
	struct sv s = path;

	if (sv_ends(s, SV(" (deleted)")))
		s.len -= 10;
	for (size_t i = s.len; i > 0; i--)
		if (s.ptr[i - 1] == '/')
			return (struct sv){s.ptr + i, s.len - i};
	return s;
}

static void copy(char *out, size_t size, struct sv s)
{
	size_t n = s.len < size - 1 ? s.len : size - 1;

	if (n)
		memcpy(out, s.ptr, n);
	out[n] = '\0';
}

/* The program's name. A path below /proc or /dev/fd names a descriptor, not a program. */
static void set_name(struct proc *p, const struct rec_exec *r)
{
	struct sv name = basename_of(r->filename);

	if (!name.len || sv_starts(r->filename, SV("/proc/")) || sv_starts(r->filename, SV("/dev/fd/")))
		name = r->comm;
	if (name.len)
		copy(p->name, sizeof(p->name), name);
	if (r->filename.len)
		copy(p->exe, sizeof(p->exe), r->filename);
}

/* In no more memory than they take: thousands of processes are remembered. */
static void keep_args(struct procs *t, struct proc *p, const char *args, size_t len)
{
	if (!len)
		return;
	p->args = malloc(len);
	if (!p->args) {
		t->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	memcpy(p->args, args, len);
	p->args_len = len;
}

static void set_args(struct procs *t, struct proc *p, struct sv args)
{
	struct buf out;

	free(p->args);
	p->args = NULL;
	p->args_len = 0;
	if (!args.len)
		return;
	buf_init(&out, PROC_ARGS_BYTES);
	if (!proc_public_args(&out, args, t->content))
		keep_args(t, p, out.ptr, out.len);
	else /* half a vector could end in half a redaction */
		t->lost->n[LOST_NO_MEMORY]++;
	buf_release(&out);
}

/* --- table ------------------------------------------------------------------------------------------------------- */

static struct node *find(struct procs *t, uint32_t tgid, uint64_t start_ns)
{
	struct node_key k = {.start_ns = start_ns, .tgid = tgid};
	struct node *n;

	HASH_FIND(hh, t->by_key, &k, sizeof(k), n);
	return n;
}

static struct node *newest(struct procs *t, uint32_t tgid)
{
	struct node *n;

	HASH_FIND(hh_tgid, t->by_tgid, &tgid, sizeof(tgid), n);
	return n;
}

static void ended_add(struct procs *t, struct node *n)
{
	DL_APPEND2(t->ended[n->used], n, ended_prev, ended_next);
	t->ended_unused += !n->used;
}

static void ended_remove(struct procs *t, struct node *n)
{
	DL_DELETE2(t->ended[n->used], n, ended_prev, ended_next);
	t->ended_unused -= !n->used;
}

static void forget(struct procs *t, struct node *n)
{
	if (n->newer) {
		n->newer->older = n->older;
	} else if (n->hh_tgid.tbl) {
		HASH_DELETE(hh_tgid, t->by_tgid, n);
		n->hh_tgid.tbl = NULL;
		if (n->older)
			HASH_ADD(hh_tgid, t->by_tgid, key.tgid, sizeof(n->older->key.tgid), n->older);
	}
	if (n->older)
		n->older->newer = n->newer;
	if (n->p.end_ns != UNKNOWN_NS)
		ended_remove(t, n);
	DL_DELETE2(t->all, n, all_prev, all_next);
	HASH_DELETE(hh, t->by_key, n);
	free(n->p.args);
	free(n->p.tool_call_id);
	free(n->p.chain);
	free(n);
}

/* Room for one more: of those that exited, the ones nobody asked for go first; but the latest of them stay, because
 * what a process did is told after its end, too. */
static bool make_room(struct procs *t)
{
	bool used = t->ended[1] && t->ended_unused <= PROC_LATE;

	if (HASH_COUNT(t->by_key) < PROC_MAX)
		return true;
	if (!t->ended[used])
		return false;
	forget(t, t->ended[used]);
	return true;
}

static bool enter(struct procs *t, struct node *n)
{
	struct node *old = newest(t, n->key.tgid);

	HASH_ADD(hh, t->by_key, key, sizeof(n->key), n);
	if (!n->hh.tbl)
		return false;
	if (old) {
		HASH_DELETE(hh_tgid, t->by_tgid, old);
		old->hh_tgid.tbl = NULL;
	}
	HASH_ADD(hh_tgid, t->by_tgid, key.tgid, sizeof(n->key.tgid), n);
	if (!n->hh_tgid.tbl) {
		if (old)
			HASH_ADD(hh_tgid, t->by_tgid, key.tgid, sizeof(old->key.tgid), old);
		HASH_DELETE(hh, t->by_key, n);
		return false;
	}
	n->older = old;
	if (old)
		old->newer = n;
	DL_APPEND2(t->all, n, all_prev, all_next);
	return true;
}

/* NULL: no memory or no room, counted. */
static struct node *get(struct procs *t, uint32_t tgid, uint64_t start_ns, uint64_t ts_ns)
{
	struct node *n = find(t, tgid, start_ns);

	if (n)
		return n;
	if (!make_room(t))
		goto none;
	n = calloc(1, sizeof(*n));
	if (!n)
		goto none;
	n->key = (struct node_key){.start_ns = start_ns, .tgid = tgid};
	n->p.key = (struct proc_key){.tgid = tgid, .start_ns = start_ns};
	n->p.begin_ns = start_ns ? start_ns : ts_ns;
	n->p.end_ns = UNKNOWN_NS;
	if (!enter(t, n)) {
		free(n);
		goto none;
	}
	n->p.order = t->next_order++;
	n->p.shown_pid = n->older ? PROC_SYNTHETIC_PID + t->synthetic++ : tgid;
	return n;
none:
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* --- verbs ------------------------------------------------------------------------------------------------------- */

struct procs *procs_new(struct lost *lost, const struct proc_sink *sink)
{
	struct procs *t = calloc(1, sizeof(*t));

	if (!t) {
		errno = ENOMEM;
		return NULL;
	}
	t->lost = lost;
	if (sink)
		t->sink = *sink;
	return t;
}

void procs_set_content(struct procs *t, bool content)
{
	t->content = content;
}

void procs_free(struct procs *t)
{
	if (!t)
		return;
	while (t->all)
		forget(t, t->all);
	free(t);
}

static void tell(const struct procs *t, const struct node *n)
{
	if (t->sink.on_change)
		t->sink.on_change(t->sink.ctx, &n->p);
}

/* The program that it has been so far is one of the chain. */
static void chain_name(struct procs *t, struct proc *p)
{
	size_t name = strlen(p->name) + 1, drop = 0, count = 0;
	char *chain;

	for (size_t i = 0; i < p->chain_len; i++)
		count += !p->chain[i];
	if (count == PROC_CHAIN_MAX)
		drop = strlen(p->chain) + 1;
	if (drop)
		memmove(p->chain, p->chain + drop, p->chain_len - drop);
	p->chain_len -= drop;
	chain = realloc(p->chain, p->chain_len + name);
	if (!chain) {
		t->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	memcpy(chain + p->chain_len, p->name, name);
	p->chain = chain;
	p->chain_len += name;
}

void procs_push_exec(struct procs *t, const struct rec_exec *r)
{
	struct node *n = get(t, r->proc.tgid, r->proc.start_ns, r->ts_ns);

	/* What /proc said at the start may arrive after an exec that was seen: the later program counts. */
	if (!n || (r->proc.exec_id < n->p.key.exec_id && n->p.name[0]))
		return;
	/* What a child inherited until its first exec is its parent's program. */
	if (n->program && n->p.name[0] && r->proc.exec_id > n->p.key.exec_id)
		chain_name(t, &n->p);
	n->program = true;
	n->p.key.exec_id = r->proc.exec_id;
	if (r->ppid)
		n->p.ppid = r->ppid;
	n->p.exe[0] = '\0';
	set_name(&n->p, r);
	set_args(t, &n->p, r->args);
	n->p.agent = catalogue_agent(r->filename, r->args);
	tell(t, n);
}

/* Until its own exec a child is the program that its parent is. */
static void inherit_program(struct procs *t, struct proc *child, const struct proc *parent)
{
	memcpy(child->name, parent->name, sizeof(child->name));
	memcpy(child->exe, parent->exe, sizeof(child->exe));
	child->agent = parent->agent;
	keep_args(t, child, parent->args, parent->args_len);
}

void procs_push_fork(struct procs *t, const struct rec_fork *r)
{
	const struct node *parent;
	struct node *n = get(t, r->child_tgid, r->child_start_ns, r->ts_ns);

	if (!n)
		return;
	if (!n->p.ppid)
		n->p.ppid = r->parent_tgid;
	n->p.parent_tid = r->parent_tid;
	parent = newest(t, r->parent_tgid);
	if (parent && parent != n && !n->p.name[0])
		inherit_program(t, &n->p, &parent->p);
	tell(t, n);
}

void procs_push_exit(struct procs *t, const struct rec_exit *r)
{
	struct node *n = find(t, r->proc.tgid, r->proc.start_ns);

	if (!n || n->p.end_ns != UNKNOWN_NS) /* nobody spoke of it, or told twice */
		return;
	n->p.end_ns = r->ts_ns;
	n->p.code = r->code;
	n->p.signal = r->signal;
	n->p.cpu_ns = r->cpu_ns;
	n->p.max_rss_bytes = r->max_rss_bytes;
	ended_add(t, n);
	tell(t, n);
}

void procs_push_gone(struct procs *t, const struct rec_gone *r)
{
	struct node *n = find(t, r->proc.tgid, r->proc.start_ns);

	if (!n || n->p.end_ns == UNKNOWN_NS || r->ts_ns < n->p.end_ns)
		return;
	n->p.end_ns = r->ts_ns;
	if (r->cpu_ns > n->p.cpu_ns)
		n->p.cpu_ns = r->cpu_ns;
	tell(t, n);
}

void procs_push_cpu(struct procs *t, const struct rec_cpu *r)
{
	struct node *n = find(t, r->proc.tgid, r->proc.start_ns);
	struct interval at;

	if (!n || r->ts_ns <= n->cpu_at_ns || r->cpu_ns < n->cpu_ns || r->wait_ns < n->wait_ns)
		return;
	at = (struct interval){n->cpu_at_ns, r->ts_ns};
	if (n->cpu_at_ns && t->sink.on_load)
		t->sink.on_load(t->sink.ctx, &n->p, &at, r->cpu_ns - n->cpu_ns, r->wait_ns - n->wait_ns);
	n->cpu_at_ns = r->ts_ns;
	n->cpu_ns = r->cpu_ns;
	n->wait_ns = r->wait_ns;
}

void procs_push_tool_call(struct procs *t, const struct rec_tool_call *r)
{
	struct node *n = find(t, r->proc.tgid, r->proc.start_ns);
	char *id;

	if (!n || n->p.key.exec_id > r->proc.exec_id) /* another program by now */
		return;
	id = strndup(r->id.ptr, r->id.len);
	if (!id) {
		t->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	free(n->p.tool_call_id);
	n->p.tool_call_id = id;
	tell(t, n);
}

const struct proc *procs_get(struct procs *t, const struct conn_key *k)
{
	struct node *n = get(t, k->tgid, k->start_ns, k->start_ns);

	if (!n)
		return NULL;
	if (!n->used) {
		if (n->p.end_ns != UNKNOWN_NS)
			ended_remove(t, n);
		n->used = true;
		if (n->p.end_ns != UNKNOWN_NS)
			ended_add(t, n);
	}
	if (k->exec_id > n->p.key.exec_id)
		n->p.key.exec_id = k->exec_id;
	return &n->p;
}

const struct proc *procs_newest(struct procs *t, uint32_t tgid)
{
	struct node *n = newest(t, tgid);

	return n ? &n->p : NULL;
}

void procs_call_made(struct procs *t, const struct conn_key *k)
{
	struct node *n = find(t, k->tgid, k->start_ns);

	if (n)
		n->p.caller = n->p.shown = true;
}

void procs_show(struct procs *t, const struct proc_key *k)
{
	struct node *n = find(t, k->tgid, k->start_ns);

	if (n)
		n->p.shown = true;
}

void procs_each(struct procs *t, void (*fn)(void *ctx, const struct proc *p), void *ctx)
{
	const struct node *n;

	DL_FOREACH2(t->all, n, all_next)
	fn(ctx, &n->p);
}
