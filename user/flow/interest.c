/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "interest.h"

void interest_init(struct interest *i, const struct interest_sink *sink)
{
	*i = (struct interest){.sink = *sink};
}

static void say(struct interest *i, enum interest_word word)
{
	i->word = word;
	i->bytes[DIR_TX] = i->bytes[DIR_RX] = 0;
	if (i->sink.on_word)
		i->sink.on_word(i->sink.ctx, word);
}

static bool is_much(const struct interest *i)
{
	return i->bytes[DIR_RX] >= INTEREST_READ_BYTES || i->bytes[DIR_TX] >= INTEREST_WRITTEN_BYTES;
}

static bool is_enough(const struct interest *i, const struct interest_view *v)
{
	if (v->for_good && i->word != INTEREST_NEVER)
		return true;
	if (i->word != INTEREST_WANTED) /* and yet they come: the kernel took it back */
		return i->bytes[DIR_RX] >= INTEREST_AGAIN_BYTES || i->bytes[DIR_TX] >= INTEREST_WRITTEN_BYTES;
	return v->hopeless || is_much(i);
}

void interest_push(struct interest *i, const struct interest_view *v, enum dir dir, uint64_t len)
{
	bool began = v->calls > i->calls;

	i->calls = v->calls;
	i->bytes[dir] += len;
	if (began || v->open_calls) {
		i->bytes[DIR_TX] = i->bytes[DIR_RX] = 0;
		i->no_bodies = false;
		if (i->word != INTEREST_WANTED)
			say(i, INTEREST_WANTED);
		return;
	}
	if (v->messages && v->calls)
		return;
	i->no_bodies |= v->heads && (v->hopeless || is_much(i));
	if (v->heads && i->word != INTEREST_WANTED)
		say(i, INTEREST_WANTED);
	else if (!v->heads && is_enough(i, v))
		say(i, v->for_good ? INTEREST_NEVER : INTEREST_IGNORED);
}

void interest_finish(struct interest *i)
{
	if (i->word != INTEREST_WANTED)
		say(i, INTEREST_WANTED);
}
