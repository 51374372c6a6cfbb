/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "base/err.h"
#include "flow/db/shape.h"

static char text_of[SHAPE_MAX + 1];

static const char *shape_of(enum shape_dialect dialect, enum shape_backslash backslash, const char *sql, size_t len,
			    size_t cut1, size_t cut2)
{
	struct guard guard = {0};
	static struct shape s;
	struct sv out;

	shape_init(&s, dialect, backslash);
	shape_push(&s, guard_copy(&guard, sql, cut1), cut1);
	shape_push(&s, guard_copy(&guard, sql + cut1, cut2 - cut1), cut2 - cut1);
	shape_push(&s, guard_copy(&guard, sql + cut2, len - cut2), len - cut2);
	out = shape_finish(&s);
	memcpy(text_of, out.ptr, out.len);
	text_of[out.len] = '\0';
	guard_free(&guard);
	return text_of;
}

struct row {
	enum shape_dialect dialect;
	enum shape_backslash backslash;
	const char *sql, *shape;
};

static void cut_row(void *ctx, size_t cut1, size_t cut2)
{
	const struct row *r = ctx;

	assert_string_equal(shape_of(r->dialect, r->backslash, r->sql, strlen(r->sql), cut1, cut2), r->shape);
}

static void check(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		every_cut(strlen(rows[i].sql), 40, cut_row, (void *)&rows[i]);
}

#define PG     SHAPE_POSTGRES, SHAPE_BACKSLASH_PLAIN
#define PG_ANY SHAPE_POSTGRES, SHAPE_BACKSLASH_UNKNOWN
#define MY     SHAPE_MYSQL, SHAPE_BACKSLASH_ESCAPES
#define MY_ANY SHAPE_MYSQL, SHAPE_BACKSLASH_UNKNOWN
#define LITE   SHAPE_SQLITE, SHAPE_BACKSLASH_PLAIN

static void test_literals(void **state)
{
	static const struct row rows[] = {
		{PG, "SELECT name FROM users WHERE id=$1", "SELECT name FROM users WHERE id=$1"},
		{PG, "select  *\n\tfrom T1 where a = 'x''y' and b=12.5e-3;", "select * from T1 where a = ? and b=?"},
		{PG, "SELECT 'a\\', 'secret'", "SELECT ?, ?"},
		{PG, "SELECT E'a\\'secret', n'x', B'01', X'1F', U&'d'", "SELECT ?, ?, ?, ?, U&?"},
		{PG, "SELECT date '2020-01-01', date'2020-01-01'", "SELECT date ?, date?"},
		{PG, "SELECT $$secret$$, $t$ $$ $t $tt$ secret $t$, $2, a$1", "SELECT ?, ?, $2, a$1"},
		{PG, "SELECT \"Weird name\" FROM \"s\".\"t\" WHERE x::int = -5",
		 "SELECT \"Weird name\" FROM \"s\".\"t\" WHERE x::int = ?"},
		{PG, "SELECT a[1:2], a - 5, a -5, (-5), -5, .5 WHERE t IS TRUE",
		 "SELECT a[?:?], a - ?, a -?, (?), ?, .? WHERE t IS ?"},
		{PG, "SELECT j->>'key', a::text || 'b' 'c'", "SELECT j->>?, a::text || ? ?"},
		{PG, "SELECT 'open", "SELECT ?"},
		{PG, "SELECT \"open secret", "SELECT ?"},
		{PG, "SELECT $x$ open secret", "SELECT ?"},
		{MY, "SELECT \"sec'ret\", 'a\\'secret', `a b`.`c` # secret\nFROM t", "SELECT ?, ?, `a b`.`c` FROM t"},
		{MY, "SELECT 5--3, 1 -- secret\n, @a, @@b, 0x1F, _utf8'x', N'x'", "SELECT ?-?, ? , @a, @@b, ?, ?, ?"},
		{MY, "SELECT 5---3", "SELECT ?--?"},
		{LITE, "SELECT \"a\".\"b\" FROM \"t\" WHERE \"a\".\"b\" = \"secret\" AND \"c\"=\"t\".\"d\"",
		 "SELECT \"a\".\"b\" FROM \"t\" WHERE \"a\".\"b\" = ? AND \"c\"=\"t\".\"d\""},
		{LITE, "SELECT * FROM t WHERE a = \"x y\" OR b LIKE \"z\" OR \"it's odd\" = ?2 OR [c] = :p OR $q = @r",
		 "SELECT * FROM t WHERE a = ? OR b LIKE ? OR ? = ?2 OR [c] = :p OR $q = @r"},
		{LITE, "INSERT INTO \"t\" (\"a\", \"b\") VALUES (\"secret\", \"x\")",
		 "INSERT INTO \"t\" (\"a\", \"b\") VALUES (?, ?)"},
		{LITE, "SELECT 'a\\', 'b'", "SELECT ?, ?"},
		{LITE, "SELECT [it's], 'secret ' FROM t[-- x] WHERE [a\"b] = 'sec'",
		 "SELECT [it's], ? FROM t[-- x] WHERE [a\"b] = ?"},
		{PG, "ALTER USER u PASSWORD 'secret'", "ALTER USER u PASSWORD ?"},
		{PG, "", ""},
		{PG, " ; ", ""},
	};

	(void)state;
	check(rows, ARRAY_SIZE(rows));
}

static void test_comments(void **state)
{
	static const struct row rows[] = {
		{PG, "/* a /* nested */ 'secret */ SELECT/**/1 -- x 'y\n+ 2 - 3 / 4", "SELECT ? + ? - ? / ?"},
		{MY, "/* a /* not nested */ SELECT 1 /*!40001 SQL_NO_CACHE */ FROM t", "SELECT ? FROM t"},
		{LITE, "SELECT 1 --secret", "SELECT ?"},
		{LITE, "SELECT 1 --a\rsecret\n+2", "SELECT ? +?"},
		{MY, "SELECT 1 --\rsecret\n, 2 #a\rsecret\n, 3", "SELECT ? , ? , ?"},
		{PG, "SELECT 1 --secret\r+2", "SELECT ? +?"},
		{PG, "SELECT 1 /* open secret", "SELECT ?"},
	};

	(void)state;
	check(rows, ARRAY_SIZE(rows));
}

static void test_lists(void **state)
{
	static const struct row rows[] = {
		{PG, "SELECT 1 WHERE a IN (1, 2,3) AND b in ('x') AND c NOT IN($1,$2)",
		 "SELECT ? WHERE a IN (?) AND b in (?) AND c NOT IN($1)"},
		{PG, "x IN (SELECT a, b FROM t WHERE c IN (1,2)) AND f(1, 2)",
		 "x IN (SELECT a, b FROM t WHERE c IN (?)) AND f(?, ?)"},
		{PG, "(a,b) IN ((1,2), (3,4)) OR q", "(a,b) IN ((?,?)) OR q"},
		{PG, "INSERT INTO t (a, b) VALUES (1, 'x'), (2, f(3, 4)) , (5,6) ON CONFLICT (a, b) DO NOTHING",
		 "INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT (a, b) DO NOTHING"},
		{PG, "INSERT INTO t VALUES($1,$2),($3,$4)", "INSERT INTO t VALUES($1,$2)"},
		{MY, "INSERT INTO t VALUES (1,2) ON DUPLICATE KEY UPDATE a=VALUES(a), b=VALUES(b)",
		 "INSERT INTO t VALUES (?,?) ON DUPLICATE KEY UPDATE a=VALUES(a), b=VALUES(b)"},
		{PG, "SELECT i.in, values FROM in_t", "SELECT i.in, values FROM in_t"},
		{PG, "SELECT * FROM (VALUES (1, 2), (3, 4)) v, w", "SELECT * FROM (VALUES (?, ?)) v, w"},
		{PG, "a IN (((((1", "a IN (((((?"},
		{PG, ")))a IN (1,2)", ")))a IN (?)"},
	};

	(void)state;
	check(rows, ARRAY_SIZE(rows));
}

/* Where the server's setting is not known, nothing behind the place that it decides about is told. */
static void test_backslash(void **state)
{
	static const struct row rows[] = {
		{PG_ANY, "SELECT 'a\\b', 'c', 'd\\', 'secret', x", "SELECT ?, ?, ?..."},
		{MY_ANY, "SELECT 'a\\'secret', x", "SELECT ?..."},
		{PG_ANY, "SELECT E'a\\'b', x", "SELECT ?, x"},
		{MY_ANY, "SELECT 'a\\\\', x", "SELECT ?..."},
		/* of GBK a character, of UTF-8 half of one and an escaped quote */
		{MY, "SELECT '\xbf\\', 'secret'", "SELECT ?..."},
		{MY, "SELECT '\xbf\\\\', 'secret'", "SELECT ?..."},
		{MY, "SELECT '\xc3\xa9\\n\\'a', x", "SELECT ?, x"},
		/* so of the client's encoding of PostgreSQL, which is another than the server's */
		{PG, "SELECT E'\xbf\\', 'secret'", "SELECT ?..."},
		{PG, "SELECT E'\xc3\xa9\\n\\'a', x", "SELECT ?, x"},
		{PG, "SELECT '\xbf\\', x", "SELECT ?, x"},
	};

	(void)state;
	check(rows, ARRAY_SIZE(rows));
}

/* So may a backtick of MySQL be half of a character: what may be inside of a name or behind it is not told. */
static void test_half_of_a_character(void **state)
{
	static const struct row rows[] = {
		{MY, "SELECT `\x81`x`, 'secret', `b` FROM t", "SELECT `\x81`x..."},
		{MY, "SELECT `\x81`'`, secret, '`b'", "SELECT `\x81`..."},
		{MY, "SELECT `\x81`#`\n, 'secret', '#'", "SELECT `\x81`..."},
		{MY, "SELECT `\x81`-- `\n, 'secret', '#'", "SELECT `\x81`..."},
		{MY, "SELECT `\x81`/*`, 'secret', '*/'", "SELECT `\x81`..."},
		{MY, "SELECT `\x81``, 'secret', `b`", "SELECT `\x81``..."},
		{MY, "SELECT \x81`x, 'secret', y\x81`", "SELECT \x81..."},
		{MY, "SELECT 1\x81`x, 'secret', y\x81`", "SELECT ?..."},
		/* where nothing depends on it */
		{MY, "SELECT `\xc3\xa9` FROM t WHERE a IN (1, 2)", "SELECT `\xc3\xa9` FROM t WHERE a IN (?)"},
		{MY, "SELECT `\xc3\xa9t`, 'a' FROM `u`", "SELECT `\xc3\xa9t`, ? FROM `u`"},
		{LITE, "SELECT `\xc3\xa9`, 'a' FROM `u`", "SELECT `\xc3\xa9`, ? FROM `u`"},
	};

	(void)state;
	check(rows, ARRAY_SIZE(rows));
}

/* What is assigned is a value, though it is no literal. */
static void test_assigned(void **state)
{
	static const struct row rows[] = {
		{PG, "SET app.tenant = acme", "SET app.tenant = ?"},
		{PG, "SET LOCAL app.tenant TO acme, 'x', other; select a from b",
		 "SET LOCAL app.tenant TO ?; select a from b"},
		{PG, "set x=on;SET y TO DEFAULT ; SELECT 1", "set x=?;SET y TO ? ; SELECT ?"},
		{PG, "SET NAMES utf8", "SET NAMES ?"},
		{PG, "SET TIME ZONE Europe/Berlin", "SET TIME ZONE ?"},
		{PG, "SET SESSION AUTHORIZATION bob", "SET SESSION AUTHORIZATION ?"},
		{PG, "SET ROLE \"bob\"; SET my.role = alice", "SET ROLE ?; SET my.role = ?"},
		{PG, "SET role = bob", "SET role = ?"},
		{PG, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
		 "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"},
		{PG, "SET x = $1", "SET x = ?"},
		{PG, "SET x = (SELECT secret FROM t WHERE a IN (b, c)), d", "SET x = ?"},
		{PG, "SET x =", "SET x ="},
		{PG, "ALTER USER u PASSWORD hunter2 VALID UNTIL 'x'", "ALTER USER u PASSWORD ? VALID UNTIL ?"},
		{PG, "CREATE ROLE r LOGIN PASSWORD 'x' ROLE a", "CREATE ROLE r LOGIN PASSWORD ? ROLE a"},
		{PG, "ALTER ROLE bob IN DATABASE d SET search_path TO acme, b",
		 "ALTER ROLE bob IN DATABASE d SET search_path TO ?"},
		{PG, "ALTER DATABASE d SET x = word", "ALTER DATABASE d SET x = ?"},
		{PG, "ALTER SYSTEM SET x = word", "ALTER SYSTEM SET x = ?"},
		{PG, "ALTER TABLE t ALTER c SET NOT NULL", "ALTER TABLE t ALTER c SET NOT NULL"},
		{PG, "GRANT SELECT (password, a) ON t TO u GRANTED BY bob",
		 "GRANT SELECT (password, a) ON t TO u GRANTED BY ?"},
		{PG, "SELECT password FROM t ORDER BY name", "SELECT password FROM t ORDER BY name"},
		{PG, "UPDATE t SET a = b, c = d + 1 WHERE e = f", "UPDATE t SET a = b, c = d + ? WHERE e = f"},
		{PG, "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = excluded.a",
		 "INSERT INTO t VALUES (?) ON CONFLICT (a) DO UPDATE SET a = excluded.a"},
		{PG, "BEGIN; SET LOCAL x = y", "BEGIN; SET LOCAL x = ?"},
		{MY, "SET @a := word, GLOBAL b = ON, @@session.c = CONCAT(@@x, y, 'z'), d = -5",
		 "SET @a := ?, GLOBAL b = ?, @@session.c = ?, d = ?"},
		{MY, "SET NAMES utf8mb4 COLLATE x, a = b", "SET NAMES ?, a = ?"},
		{MY, "SET CHARACTER SET latin1", "SET CHARACTER SET ?"},
		{MY, "SET CHARSET latin1", "SET CHARSET ?"},
		{MY, "SET PASSWORD FOR bob = hunter2", "SET PASSWORD FOR bob = ?"},
		{MY, "SET PASSWORD FOR bob = PASSWORD(hunter2)", "SET PASSWORD FOR bob = ?"},
		{MY, "SET DEFAULT ROLE admin TO bob", "SET DEFAULT ROLE ?"},
		{MY, "SET STATEMENT a = word, b = c FOR SELECT d FROM e WHERE f = 1",
		 "SET STATEMENT a = ?, b = ? FOR SELECT d FROM e WHERE f = ?"},
		{MY, "CREATE OR REPLACE USER u IDENTIFIED BY hunter2 PASSWORD EXPIRE",
		 "CREATE OR REPLACE USER u IDENTIFIED BY ? PASSWORD ?"},
		{MY, "GRANT ALL ON d.* TO u IDENTIFIED BY PASSWORD 'x'", "GRANT ALL ON d.* TO u IDENTIFIED BY ? ?"},
		{MY, "UPDATE t SET a = b WHERE c = on", "UPDATE t SET a = b WHERE c = on"},
		{LITE, "PRAGMA key = hunter2", "PRAGMA key = ?"},
		{LITE, "PRAGMA main.key=\"hunter2\"; SELECT a", "PRAGMA main.key=?; SELECT a"},
		{LITE, "PRAGMA rekey(hunter2) ; PRAGMA cache_size(-2000)", "PRAGMA rekey(?) ; PRAGMA cache_size(?)"},
		{LITE, "PRAGMA journal_mode", "PRAGMA journal_mode"},
		{LITE, "ATTACH DATABASE customer AS c KEY hunter2", "ATTACH DATABASE ? AS c KEY ?"},
		{LITE, "ATTACH DATABASE [customer x] AS c KEY [hunter 2]", "ATTACH DATABASE ? AS c KEY ?"},
		{LITE, "UPDATE \"t\" SET \"a\" = \"t\".\"b\"", "UPDATE \"t\" SET \"a\" = \"t\".\"b\""},
	};

	(void)state;
	check(rows, ARRAY_SIZE(rows));
}

/* Nothing of what is assigned is in the shape, wherever it is cut off. */
static void test_assigned_cut(void **state)
{
	static const struct {
		enum shape_dialect dialect;
		const char *sql;
	} rows[] = {
		{SHAPE_POSTGRES,
		 "SET LOCAL a.b TO hunter2, \"hunter2\", E'hunter2', $x$hunter2$x$, hunter2.h(hunter2) - 1"},
		{SHAPE_MYSQL,
		 "SET @a := hunter2, @b = `hunter2`, @c = \"hunter2\", @d = hunter2.hunter2(1), NAMES hunter2"},
		{SHAPE_SQLITE, "PRAGMA key(hunter2)"},
		{SHAPE_SQLITE, "PRAGMA key = \"hunter2\""},
		{SHAPE_POSTGRES, "ALTER USER u PASSWORD hunter2"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t len = 0; len <= strlen(rows[i].sql); len++) {
			const char *shape =
				shape_of(rows[i].dialect, SHAPE_BACKSLASH_UNKNOWN, rows[i].sql, len, 0, len);

			if (strstr(shape, "hu"))
				fail_msg("%.*s: %s", (int)len, rows[i].sql, shape);
		}
}

static void test_long(void **state)
{
	size_t len = 2 * SHAPE_MAX;
	char *sql = malloc(len);

	(void)state;
	memset(sql, 'a', len);
	shape_of(PG, sql, len, 10, 20);
	assert_int_equal(strlen(text_of), SHAPE_MAX);
	assert_string_equal(text_of + SHAPE_MAX - 4, "a...");
	for (size_t i = 0; i + 1 < len; i += 2)
		memcpy(sql + i, "\xc3\xa4", 2);
	shape_of(PG, sql, len, 11, 20);
	assert_int_equal(strlen(text_of) % 2, 1);
	/* A value of any length costs nothing. */
	memset(sql, 'x', len);
	sql[0] = sql[len - 1] = '\'';
	assert_string_equal(shape_of(PG, sql, len, 10, 20), "?");
	free(sql);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_literals),
		cmocka_unit_test(test_comments),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_backslash),
		cmocka_unit_test(test_half_of_a_character),
		cmocka_unit_test(test_assigned),
		cmocka_unit_test(test_assigned_cut),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
