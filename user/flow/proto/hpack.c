/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "hpack.h"

#include <stdlib.h>

#include <nghttp2/nghttp2.h>

#include "base/err.h"

#define STATIC_ENTRIES 61
#define INTEGER_MAX    (1u << 28) /* more is no length or index of anything that we take */

/* A name that no field can have. Literal with indexing, new name of one byte: the value's string follows. */
#define PLACEHOLDER '\1'
static const uint8_t placeholder_insert[] = {0x40, 0x01, PLACEHOLDER};
static const uint8_t table_size_max[] = {0x3f, 0xe1, 0xff, 0x03}; /* size update to HPACK_TABLE_MAX */

struct hpack {
	nghttp2_hd_inflater *inflater; /* NULL: to be made with the next block */
	bool known;		       /* our table is the peer's */
};

enum instruction_kind { INDEXED, LITERAL_INSERT, LITERAL, SIZE_UPDATE };

struct instruction {
	enum instruction_kind kind;
	uint32_t index;	 /* of entry or name; 0: the name is in it. Or the size */
	size_t value_at; /* where the value's string begins (literals) */
	size_t len;
};

enum { FIELD_METHOD, FIELD_PATH, FIELD_SCHEME, FIELD_AUTHORITY, FIELD_PROTOCOL, FIELD_STATUS, FIELD_PSEUDO_COUNT };
static const struct sv pseudo_names[FIELD_PSEUDO_COUNT] = {
	{":method", 7}, {":path", 5}, {":scheme", 7}, {":authority", 10}, {":protocol", 9}, {":status", 7},
};

/* Text moves while it grows: places are resolved at the end. len 0 with set false: not there. */
struct place {
	size_t at, len;
	bool set;
};

struct builder {
	struct hpack_head *head;
	struct place pseudo[FIELD_PSEUDO_COUNT];
	struct place names[HTTP_HEADERS_MAX], values[HTTP_HEADERS_MAX];
	size_t count;
	size_t bytes; /* of all fields, kept or not */
	bool fields;  /* one was seen: no size update may follow */
};

/* --- the grammar of instructions (RFC 7541 sections 5 and 6) ----------------------------------------------------- */

/* Bytes of the integer whose first byte shares `bits` bits; 0: cut short or too large. */
static size_t read_integer(const uint8_t *ptr, size_t len, unsigned bits, uint32_t *value)
{
	uint32_t mask = (1u << bits) - 1;
	uint64_t v;

	if (!len)
		return 0;
	v = ptr[0] & mask;
	*value = (uint32_t)v;
	if (v < mask)
		return 1;
	for (size_t i = 1; i < len && i < 6; i++) {
		v += (uint64_t)(ptr[i] & 0x7f) << (7 * (i - 1));
		if (v > INTEGER_MAX)
			return 0;
		*value = (uint32_t)v;
		if (!(ptr[i] & 0x80))
			return i + 1;
	}
	return 0;
}

static size_t read_string(const uint8_t *ptr, size_t len)
{
	uint32_t n;
	size_t used = read_integer(ptr, len, 7, &n);

	return used && n <= len - used ? used + n : 0;
}

static bool read_instruction(const uint8_t *ptr, size_t len, struct instruction *in)
{
	unsigned bits = 4;
	size_t used, n;

	in->kind = LITERAL;
	if (ptr[0] & 0x80) {
		in->kind = INDEXED;
		bits = 7;
	} else if (ptr[0] & 0x40) {
		in->kind = LITERAL_INSERT;
		bits = 6;
	} else if (ptr[0] & 0x20) {
		in->kind = SIZE_UPDATE;
		bits = 5;
	}
	used = read_integer(ptr, len, bits, &in->index);
	if (used && in->kind != INDEXED && in->kind != SIZE_UPDATE) {
		n = in->index ? 0 : read_string(ptr + used, len - used);
		if (!in->index && !n)
			return false;
		in->value_at = used + n;
		n = read_string(ptr + in->value_at, len - in->value_at);
		used = n ? in->value_at + n : 0;
	}
	in->len = used;
	return used != 0;
}

/* --- fields ------------------------------------------------------------------------------------------------------ */

static bool is_clean(struct sv value)
{
	for (size_t i = 0; i < value.len; i++)
		if (value.ptr[i] == '\0' || value.ptr[i] == '\r' || value.ptr[i] == '\n')
			return false;
	return true;
}

static int place_text(struct hpack_head *head, struct sv text, struct place *place)
{
	*place = (struct place){head->text.len, text.len, true};
	return buf_push(&head->text, text.ptr, text.len);
}

static int add_pseudo(struct builder *b, unsigned which, struct sv value)
{
	return b->pseudo[which].set ? 0 : place_text(b->head, value, &b->pseudo[which]);
}

static int add_field(struct builder *b, struct sv name, struct sv value)
{
	int err;

	b->bytes += name.len + value.len;
	if (b->bytes > HTTP_HEAD_BYTES_MAX)
		b->head->too_long = true;
	if (b->head->too_long || !is_clean(value))
		return 0;
	for (unsigned i = 0; i < FIELD_PSEUDO_COUNT; i++)
		if (sv_eq(name, pseudo_names[i]))
			return add_pseudo(b, i, value);
	if (b->count == HTTP_HEADERS_MAX || !http_is_token(name))
		return 0;
	err = place_text(b->head, name, &b->names[b->count]);
	if (!err)
		err = place_text(b->head, value, &b->values[b->count]);
	b->count += !err;
	return err;
}

static struct sv resolve(const struct hpack_head *head, struct place place)
{
	if (!place.set)
		return SV_NONE;
	return place.len ? (struct sv){head->text.ptr + place.at, place.len} : SV("");
}

static int status_of(struct sv text)
{
	int status = 0;

	if (text.len != 3)
		return 0;
	for (size_t i = 0; i < 3; i++) {
		if (text.ptr[i] < '0' || text.ptr[i] > '9')
			return 0;
		status = status * 10 + (text.ptr[i] - '0');
	}
	return status >= 100 ? status : 0;
}

static void build(struct builder *b)
{
	struct hpack_head *head = b->head;

	head->method = resolve(head, b->pseudo[FIELD_METHOD]);
	head->path = resolve(head, b->pseudo[FIELD_PATH]);
	head->scheme = resolve(head, b->pseudo[FIELD_SCHEME]);
	head->authority = resolve(head, b->pseudo[FIELD_AUTHORITY]);
	head->protocol = resolve(head, b->pseudo[FIELD_PROTOCOL]);
	head->status = status_of(resolve(head, b->pseudo[FIELD_STATUS]));
	if (!http_is_token(head->method))
		head->method = SV_NONE;
	if (!head->path.len)
		head->path = SV_NONE;
	for (size_t i = 0; i < b->count; i++)
		head->headers[i] = (struct http_header){resolve(head, b->names[i]), resolve(head, b->values[i])};
	head->header_count = b->count;
}

/* --- the inflater ------------------------------------------------------------------------------------------------ */

/* Bytes of one instruction, or its first part. A field that comes out is added; b NULL: none is expected. */
static int feed(struct hpack *p, const uint8_t *ptr, size_t len, bool final, struct builder *b)
{
	int flags;

	do {
		nghttp2_nv nv;
		ssize_t n;
		int err;

		flags = 0;
		n = nghttp2_hd_inflate_hd2(p->inflater, &nv, &flags, ptr, len, final);
		if (n < 0)
			return n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
		if (!n && len && !flags)
			return -EPROTO;
		ptr += n;
		len -= (size_t)n;
		if (!(flags & NGHTTP2_HD_INFLATE_EMIT) || !b)
			continue;
		if (nv.namelen == 1 && nv.name[0] == PLACEHOLDER) {
			b->head->unknown++;
			continue;
		}
		err = add_field(b, (struct sv){(const char *)nv.name, nv.namelen},
				(struct sv){(const char *)nv.value, nv.valuelen});
		if (err)
			return err;
	} while (len || (final && !(flags & NGHTTP2_HD_INFLATE_FINAL)));
	if (final)
		nghttp2_hd_inflate_end_headers(p->inflater);
	return 0;
}

static int make_inflater(struct hpack *p)
{
	int err;

	if (p->inflater)
		return 0;
	if (nghttp2_hd_inflate_new(&p->inflater)) {
		p->inflater = NULL;
		return -ENOMEM;
	}
	err = nghttp2_hd_inflate_change_table_size(p->inflater, HPACK_TABLE_MAX) ? -ENOMEM : 0;
	if (!err && !p->known)
		err = feed(p, table_size_max, sizeof(table_size_max), true, NULL);
	if (err) {
		nghttp2_hd_inflate_del(p->inflater);
		p->inflater = NULL;
	}
	return err;
}

static bool entry_known(const struct hpack *p, uint32_t index)
{
	return index <= STATIC_ENTRIES || index <= nghttp2_hd_inflate_get_num_table_entries(p->inflater);
}

static int apply_size(struct hpack *p, const uint8_t *ptr, const struct instruction *in, const struct builder *b)
{
	if (b->fields)
		return -EPROTO;
	if (in->index > HPACK_TABLE_MAX) {
		p->known = false;
		return feed(p, table_size_max, sizeof(table_size_max), false, NULL);
	}
	if (in->index == 0)
		p->known = true;
	return feed(p, ptr, in->len, false, NULL);
}

static int apply(struct hpack *p, const uint8_t *ptr, const struct instruction *in, struct builder *b)
{
	int err;

	if (in->kind == SIZE_UPDATE)
		return apply_size(p, ptr, in, b);
	b->fields = true;
	if (in->kind == INDEXED && !in->index)
		return -EPROTO;
	if (entry_known(p, in->index))
		return feed(p, ptr, in->len, false, b);
	p->known = false;
	if (in->kind != LITERAL_INSERT) {
		b->head->unknown++;
		return 0;
	}
	err = feed(p, placeholder_insert, sizeof(placeholder_insert), false, NULL);
	return err ? err : feed(p, ptr + in->value_at, in->len - in->value_at, false, b);
}

struct hpack *hpack_new(bool known)
{
	struct hpack *p = calloc(1, sizeof(*p));

	if (p)
		p->known = known;
	return p;
}

void hpack_free(struct hpack *p)
{
	if (!p)
		return;
	if (p->inflater)
		nghttp2_hd_inflate_del(p->inflater);
	free(p);
}

void hpack_lose(struct hpack *p)
{
	if (p->inflater)
		nghttp2_hd_inflate_del(p->inflater);
	p->inflater = NULL;
	p->known = false;
}

bool hpack_is_known(const struct hpack *p)
{
	return p->known;
}

static void head_clear(struct hpack_head *head)
{
	*head = (struct hpack_head){.header_count = 0};
	buf_init(&head->text, HTTP_HEAD_BYTES_MAX);
}

int hpack_decode(struct hpack *p, const uint8_t *block, size_t len, struct hpack_head *head)
{
	struct builder b = {.head = head};
	int err = make_inflater(p);

	head_clear(head);
	while (len && !err) {
		struct instruction in;

		if (!read_instruction(block, len, &in)) {
			err = -EPROTO;
			break;
		}
		err = apply(p, block, &in, &b);
		block += in.len;
		len -= in.len;
	}
	if (!err)
		err = feed(p, (const uint8_t *)"", 0, true, NULL);
	if (!err) {
		build(&b);
		return 0;
	}
	hpack_lose(p);
	hpack_head_release(head);
	return err;
}

void hpack_head_release(struct hpack_head *head)
{
	buf_release(&head->text);
	head_clear(head);
}
