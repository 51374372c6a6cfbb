/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "dns_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_BYTES     12
#define LABEL_MAX      63
#define POINTER	       0xc0 /* of a length byte: the rest of the name is elsewhere */
#define RECORD_BYTES   10   /* type, class, time to live, length */
#define QUESTION_BYTES 4
#define TYPE_A	       1
#define TYPE_AAAA      28
#define CLASS_IN       1
#define FLAG_TRUNCATED 0x02 /* of the third byte */
#define CODE_MASK      0x0f /* of the fourth byte */
#define CODE_NO_ERROR  0
#define CODE_NO_NAME   3

struct cursor {
	const uint8_t *ptr;
	size_t len, at;
};

static unsigned get16(const struct cursor *c, size_t off)
{
	return (unsigned)c->ptr[c->at + off] << 8 | c->ptr[c->at + off + 1];
}

static bool has(const struct cursor *c, size_t n)
{
	return n <= c->len - c->at;
}

static char host_char(uint8_t b)
{
	if (b >= 'A' && b <= 'Z')
		return (char)(b + ('a' - 'A'));
	if ((b >= 'a' && b <= 'z') || (b >= '0' && b <= '9') || b == '-' || b == '_')
		return (char)b;
	return '?';
}

/* The name of the question is the first of the message: there is nothing it could point to. */
static bool take_name(struct cursor *c, char out[DNS_NAME_MAX + 1])
{
	size_t n = 0;

	while (has(c, 1)) {
		size_t label = c->ptr[c->at++];

		if (!label) {
			out[n] = '\0';
			return n > 0;
		}
		if (label > LABEL_MAX || !has(c, label) || n + label + 1 > DNS_NAME_MAX)
			return false;
		if (n)
			out[n++] = '.';
		for (size_t i = 0; i < label; i++)
			out[n++] = host_char(c->ptr[c->at++]);
	}
	return false;
}

static bool skip_name(struct cursor *c)
{
	while (has(c, 1)) {
		size_t label = c->ptr[c->at++];

		if (!label)
			return true;
		if (label >= POINTER) {
			if (!has(c, 1))
				return false;
			c->at++;
			return true;
		}
		if (label > LABEL_MAX || !has(c, label))
			return false;
		c->at += label;
	}
	return false;
}

static void take_address(struct dns_message *m, const struct cursor *c, unsigned type, size_t len)
{
	struct sock_addr *a = &m->addrs[m->addr_count];

	if (m->addr_count == DNS_ADDRS_MAX)
		return;
	if (!(type == TYPE_A && len == 4) && !(type == TYPE_AAAA && len == 16))
		return;
	*a = (struct sock_addr){.family = type == TYPE_A ? AF_INET : AF_INET6};
	memcpy(a->ip, c->ptr + c->at, len);
	m->addr_count++;
}

static bool take_record(struct dns_message *m, struct cursor *c)
{
	unsigned type, class;
	size_t len;

	if (!skip_name(c) || !has(c, RECORD_BYTES))
		return false;
	type = get16(c, 0);
	class = get16(c, 2);
	len = get16(c, 8);
	c->at += RECORD_BYTES;
	if (!has(c, len))
		return false;
	if (class == CLASS_IN)
		take_address(m, c, type, len);
	c->at += len;
	return true;
}

int dns_parse(struct dns_message *out, const uint8_t *ptr, size_t len)
{
	struct cursor c = {ptr, len, 0};
	unsigned answers, code;

	*out = (struct dns_message){0};
	if (len < HEAD_BYTES || get16(&c, 4) != 1)
		return -EBADMSG;
	out->id = (uint16_t)get16(&c, 0);
	out->response = (ptr[2] & 0x80) != 0;
	code = ptr[3] & CODE_MASK;
	out->truncated = (ptr[2] & FLAG_TRUNCATED) != 0;
	out->settles = !out->truncated && (code == CODE_NO_ERROR || code == CODE_NO_NAME);
	answers = get16(&c, 6);
	c.at = HEAD_BYTES;
	if (!take_name(&c, out->name) || !has(&c, QUESTION_BYTES))
		return -EBADMSG;
	out->type = (uint16_t)get16(&c, 0);
	c.at += QUESTION_BYTES;
	while (out->response && answers-- && take_record(out, &c))
		;
	return 0;
}
