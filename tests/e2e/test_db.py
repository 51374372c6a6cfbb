#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--db: commands to real databases, held against the servers' own logs. What is not installed is skipped (tests/tools/deps
--databases)."""
import glob
import json
import os
import pwd
import re
import shutil
import socket
import subprocess

import e2e
from e2e import HERE, PYTHON, Perfbpf, Skip, case, cases

DRIVERS = os.path.join(HERE, "clients", "database.py")
CANARY = "VALUECANARY"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def program(*names):
    for name in names:
        found = sorted(glob.glob(name)) if "*" in name else [shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
        if found and found[-1]:
            return found[-1]
    raise Skip(f"no {os.path.basename(names[0])}")


def make_certificate(path, owner):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-keyout", path + "/key.pem", "-out", path + "/cert.pem"],
        check=True,
        capture_output=True,
    )
    for name in ("key.pem", "cert.pem"):
        os.chown(os.path.join(path, name), owner.pw_uid, owner.pw_gid)
        os.chmod(os.path.join(path, name), 0o600 if name == "key.pem" else 0o644)


class Database:
    """A server of the distribution, on loopback, with a directory of its own."""

    user = None

    def __init__(self):
        self.dir = e2e.directory()
        self.port = free_port()
        self.log_path = os.path.join(self.dir, "log")
        try:
            self.owner = pwd.getpwnam(self.user)
        except KeyError as error:
            raise Skip(f"no user {self.user}") from error
        os.chown(self.dir, self.owner.pw_uid, self.owner.pw_gid)
        make_certificate(self.dir, self.owner)
        self.begin()
        e2e.until(self.answers, 60, f"{self.user} answers; {e2e.read_text(self.log_path)[-800:]}")

    def run(self, argv, **options):
        return subprocess.run(["setpriv", *self.as_user(), *argv], check=True, capture_output=True, cwd=self.dir, **options)

    def as_user(self):
        return [f"--reuid={self.owner.pw_uid}", f"--regid={self.owner.pw_gid}", "--clear-groups"]

    def start(self, argv):
        with open(self.log_path, "wb") as log:
            return e2e.start(["setpriv", *self.as_user(), *argv], stdout=log, stderr=log, cwd=self.dir)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False


class Postgres(Database):
    user = "postgres"

    def begin(self):
        server = program("/usr/lib/postgresql/*/bin/postgres")
        data = os.path.join(self.dir, "data")
        self.run([os.path.join(os.path.dirname(server), "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"])
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.dir,
            "fsync": "off",
            "ssl": "on",
            "ssl_cert_file": self.dir + "/cert.pem",
            "ssl_key_file": self.dir + "/key.pem",
            "log_min_duration_statement": 0,
            "log_line_prefix": "~%p ",
        }
        self.start([server, "-D", data] + [f"--{k}={v}" for k, v in settings.items()])

    def connect(self, tls):
        return {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": "postgres", "sslmode": "require" if tls else "disable"}

    def durations(self):
        """Of what was executed, in milliseconds, in order."""
        found = re.findall(r"duration: ([0-9.]+) ms  (?:statement|execute)", e2e.read_text(self.log_path))
        return [float(ms) for ms in found]


class MariaDb(Database):
    user = "mysql"

    def begin(self):
        server, install = program("mariadbd", "mysqld"), program("mariadb-install-db", "mysql_install_db")
        data = os.path.join(self.dir, "data")
        self.run([install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"])
        self.slow = os.path.join(self.dir, "slow.log")
        options = [f"--datadir={data}", f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.dir}/socket"]
        options += [f"--ssl-cert={self.dir}/cert.pem", f"--ssl-key={self.dir}/key.pem"]
        options += ["--slow-query-log=1", f"--slow-query-log-file={self.slow}", "--long-query-time=0", "--skip-name-resolve"]
        self.start([server, "--no-defaults", *options])

    def connect(self):
        return {"host": "127.0.0.1", "port": self.port, "user": "root", "database": "mysql"}

    def durations(self):
        return [1000 * float(s) for s in re.findall(r"# Query_time: ([0-9.]+)", e2e.read_text(self.slow))]


class Redis(Database):
    user = "redis"

    def begin(self):
        self.tls_port = free_port()
        options = ["--port", self.port, "--bind", "127.0.0.1", "--save", "", "--tls-port", self.tls_port, "--tls-auth-clients", "no"]
        options += ["--tls-cert-file", self.dir + "/cert.pem", "--tls-key-file", self.dir + "/key.pem"]
        options += ["--unixsocket", self.dir + "/socket", "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000"]
        self.start([program("redis-server"), *map(str, options)])


# --- running --------------------------------------------------------------------------------------------------------------


def trace(driver, connect, steps, *options, modules=()):
    for module in modules:
        e2e.need_module(module)
    return trace_program(f"{PYTHON} {DRIVERS} {driver}", connect, steps, *options)


def trace_program(program, connect, steps, *options):
    todo = os.path.join(e2e.directory(), "todo.json")
    with open(todo, "w", encoding="utf-8") as f:
        json.dump({"connect": connect, "steps": steps}, f)
    os.chmod(todo, 0o644)
    perfbpf = Perfbpf("--db", *options, command=["sh", "-c", f"exec {program} < {todo}"])
    assert perfbpf.end() == 0, perfbpf.err()
    for path in (perfbpf.trace_path, perfbpf.calls_path, perfbpf.err_path):
        assert CANARY not in e2e.read_text(path), f"a value is in {os.path.basename(path)}"
    return perfbpf


def check(perfbpf, want, system):
    """(shape, rows, error) of each, in order; nothing else, nothing lost."""
    have = perfbpf.db()
    assert [(r["shape"], r["rows"], r["error"]) for r in have] == want, "\n".join(map(json.dumps, have)) + "\n" + perfbpf.err()
    assert {r["system"] for r in have} == {system} and all(r["complete"] for r in have), have
    assert not perfbpf.lost(), perfbpf.lost()
    spans = [e for e in perfbpf.trace()["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "db"]
    assert sorted(e["args"].get("db.query.text", "-") for e in spans) == sorted((s or "-")[:1024] for s, _, _ in want)
    assert all(e["args"]["db.system.name"] == system for e in spans), spans
    return have


def check_durations(have, server_ms):
    """The client waits for what the server spends: never less, and as a rule no more than 5 % or 0.2 ms; what a busy machine
    adds, it adds to single ones."""
    assert len(have) == len(server_ms), (len(have), server_ms)
    over = [r["dur_ms"] - ms for r, ms in zip(have, server_ms)]
    for r, ms, more in zip(have, server_ms, over):
        assert -max(0.05 * ms, 0.2) <= more <= 20 * e2e.slack(), f"{r}: by the server {ms} ms"
    beyond = sorted(more - max(0.05 * ms, 0.2) for more, ms in zip(over, server_ms))
    e2e.note("the client waits", " ".join(f"{ms:+.3f}" for ms in over), "ms more than the server says")
    assert beyond[(len(beyond) - 1) // 2] <= e2e.usual_slack() / 5, over


# --- PostgreSQL -------------------------------------------------------------------------------------------------------------

SIMPLE = [
    ["query", "CREATE TABLE t (a int, b text)"],
    ["query", f"INSERT INTO t VALUES (1, '{CANARY}'), (2, 'x''{CANARY}'), (3, E'y\\'{CANARY}')"],
    ["query", f"SELECT * FROM t WHERE a IN (1, 2, 3) AND b LIKE '%{CANARY}' -- {CANARY}"],
    ["query", "SELECT pg_sleep(0.05)"],
    ["query", "UPDATE t SET a = a + 10 WHERE a > 1"],
    ["query", f"SELECT '{CANARY}' FROM missing"],
    ["copy_in", "COPY t FROM STDIN", f"7\t{CANARY}\n8\tz\n"],
    ["copy_out", "COPY t TO STDOUT"],
    ["query", f"SELECT g, '{CANARY}' || repeat('x', 100) FROM generate_series(1, 5000) g"],
    ["query", f"BEGIN; SELECT {4711}; DELETE FROM t; COMMIT"],
]
SIMPLE_WANT = [
    ("CREATE TABLE t (a int, b text)", None, None),
    ("INSERT INTO t VALUES (?, ?)", 3, None),
    ("SELECT * FROM t WHERE a IN (?) AND b LIKE ?", 3, None),
    ("SELECT pg_sleep(?)", 1, None),
    ("UPDATE t SET a = a + ? WHERE a > ?", 2, None),
    ("SELECT ? FROM missing", None, "42P01"),
    ("COPY t FROM STDIN", 2, None),
    ("COPY t TO STDOUT", 5, None),
    ("SELECT g, ? || repeat(?, ?) FROM generate_series(?, ?) g", 5000, None),
    ("BEGIN; SELECT ?; DELETE FROM t; COMMIT", 6, None),
]


@case
def postgres_large():
    """PostgreSQL: a statement and a COPY that are longer than what is captured of a request"""
    server = Postgres()
    steps = [
        ["query", "CREATE TABLE t (a text)"],
        ["query", f"INSERT INTO t VALUES ('{CANARY * 200000}')"],
        ["copy_in", "COPY t FROM STDIN", f"{CANARY}\n" * 200000],
        ["query", "SELECT count(*) FROM t"],
    ]
    want = [
        ("CREATE TABLE t (a text)", None, None),
        (None, 1, None),
        ("COPY t FROM STDIN", 200000, None),
        ("SELECT count(*) FROM t", 1, None),
    ]
    check(trace("psycopg2", server.connect(False), steps, modules=["psycopg2"]), want, "postgresql")


def without_errors(have):
    """What a server that failed does not log the time of."""
    return [r for r in have if not r["error"]]


@cases([("plain", False), ("TLS", True)])
def postgres_simple(tls):
    """psycopg2 and PostgreSQL's simple protocol"""
    server = Postgres()
    perfbpf = trace("psycopg2", server.connect(tls), SIMPLE, modules=["psycopg2"])
    check_durations(without_errors(check(perfbpf, SIMPLE_WANT, "postgresql")), server.durations())


@cases([("plain", False), ("TLS", True)])
def postgres_extended(tls):
    """libpq and PostgreSQL's extended protocol"""
    server = Postgres()
    steps = [
        ["params", "SELECT $1::text, 4711", CANARY],
        ["prepare", "s1", "SELECT pg_sleep($1), 4711"],
        ["execute", "s1", 0.02],
        ["execute", "s1", CANARY],
        ["pipeline", "s1", 0, 0.01],
        ["prepare", "s2", "SELECT FROM WHERE"],
        ["execute", "s3", CANARY],
    ]
    want = [
        ("SELECT $1::text, ?", 1, None),
        ("SELECT pg_sleep($1), ?", 1, None),
        ("SELECT pg_sleep($1), ?", None, "22P02"),
        ("SELECT pg_sleep($1), ?", 1, None),
        ("SELECT pg_sleep($1), ?", 1, None),
        ("SELECT FROM WHERE", None, "42601"),
        (None, None, "26000"),
    ]
    have = check(trace("libpq", server.connect(tls), steps), want, "postgresql")
    assert have[1]["dur_ms"] >= 20, have[1]
    check_durations(without_errors(have), server.durations())


@case
def postgres_commit():
    """what is committed at the end of a round trip of PostgreSQL's extended protocol, and fails there"""
    steps = [
        ["query", "CREATE TEMP TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)"],
        ["params", "INSERT INTO d VALUES ($1), ($1)", 1],
        ["params", "INSERT INTO d VALUES ($1)", 1],
    ]
    want = [
        ("CREATE TEMP TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)", None, None),
        ("INSERT INTO d VALUES ($1)", None, "23505"),
        ("INSERT INTO d VALUES ($1)", 1, None),
    ]
    check(trace("libpq", Postgres().connect(False), steps), want, "postgresql")


@cases([("plain", False), ("TLS", True)])
def postgres_node(tls):
    """postgres.js in node: simple and extended protocol, prepared statements, many before the first answer"""
    node, driver = shutil.which("node"), e2e.npm_program("postgres")
    if not node:
        raise Skip("no node")
    server = Postgres()
    steps = [
        ["query", f"SELECT '{CANARY}', 4711"],
        ["params", "SELECT $1::text, 4711", CANARY],
        ["params", "SELECT $1::text, 4711", CANARY],
        ["params", "SELECT pg_sleep($1)", "0.02"],
        ["together", "SELECT g, $1::text FROM generate_series(1, 100) g", *[CANARY] * 5],
        ["query", "SELECT FROM WHERE"],
    ]
    want = [
        ("SELECT ?, ?", 1, None),
        *[("SELECT $1::text, ?", 1, None)] * 2,
        ("SELECT pg_sleep($1)", 1, None),
        *[("SELECT g, $1::text FROM generate_series(?, ?) g", 100, None)] * 5,
        ("SELECT FROM WHERE", None, "42601"),
    ]
    have = check(trace_program(f"{node} {DRIVERS[:-3]}.mjs {driver}/src/index.js", server.connect(tls), steps), want, "postgresql")
    assert 20 <= have[3]["dur_ms"] <= server.durations()[3] + 20 + e2e.slack(), (have[3], server.durations())


@case
def postgres_psql():
    """psql over TCP and over a Unix socket, and one that is attached to in the middle"""
    server = Postgres()
    sql = f"SELECT '{CANARY}';SELECT 1 WHERE false"
    for host in ("127.0.0.1", server.dir):
        perfbpf = Perfbpf(
            "--db", command=["psql", "-X", "-q", "-h", host, "-p", str(server.port), "-U", "postgres", "-c", sql],
            stdout=subprocess.DEVNULL,
        )
        assert perfbpf.end() == 0, perfbpf.err()
        check(perfbpf, [("SELECT ?;SELECT ? WHERE ?", 1, None)], "postgresql")
    child = e2e.start(
        ["psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child.stdin.write("SELECT 42;\n")
    child.stdin.flush()
    while "row" not in child.stdout.readline():
        pass
    perfbpf = Perfbpf("--db", "-p", child.pid)
    child.stdin.write("SELECT 43, 44;\n")
    child.stdin.close()
    child.wait(e2e.HANGS_S)
    assert perfbpf.end() == 0, perfbpf.err()
    check(perfbpf, [("SELECT ?, ?", 1, None)], "postgresql")


# --- MariaDB ----------------------------------------------------------------------------------------------------------------


@cases([("plain", False), ("TLS", True)])
def mariadb_text(tls):
    """pymysql and MariaDB's text protocol"""
    server = MariaDb()
    connect = {**server.connect(), "autocommit": True}
    if tls:
        connect["ssl"] = {"check_hostname": False}
    steps = [
        ["query", "CREATE DATABASE d"],
        ["query", "CREATE TABLE d.t (a int, b text)"],
        ["query", f"INSERT INTO d.t VALUES (1, '{CANARY}'), (2, \"x\\\"{CANARY}\"), (3, 'y''{CANARY}')"],
        ["query", f"SELECT * FROM d.t WHERE a IN (1, 2, 3) AND b LIKE '%{CANARY}' # {CANARY}"],
        ["query", "SELECT SLEEP(0.05)"],
        ["query", "UPDATE d.t SET a = a + 10 WHERE a > 1"],
        ["query", f"SELECT '{CANARY}' FROM missing"],
        ["query", f"SELECT seq, '{CANARY}', REPEAT('x', 100) FROM seq_1_to_5000"],
    ]
    want = [
        ("CREATE DATABASE d", 1, None),
        ("CREATE TABLE d.t (a int, b text)", 0, None),
        ("INSERT INTO d.t VALUES (?, ?)", 3, None),
        ("SELECT * FROM d.t WHERE a IN (?) AND b LIKE ?", 3, None),
        ("SELECT SLEEP(?)", 1, None),
        ("UPDATE d.t SET a = a + ? WHERE a > ?", 2, None),
        ("SELECT ? FROM missing", None, "1146"),
        ("SELECT seq, ?, REPEAT(?, ?) FROM seq_1_to_5000", 5000, None),
    ]
    perfbpf = trace("pymysql", connect, steps, modules=["pymysql"])
    # Who the server is, it says outside of TLS.
    have = check(perfbpf, want, "mysql" if tls else "mariadb")
    check_durations(have[:-1], server.durations()[-8:-1])  # many rows: the driver is slower than the server


@cases([("plain", False), ("TLS", True)])
def mariadb_prepared(tls):
    """libmariadb and prepared statements"""
    server = MariaDb()
    connect = server.connect()
    steps = [
        ["prepare", "s", f"SELECT seq, '{CANARY}' FROM seq_1_to_100"],
        ["execute", "s"],
        ["execute", "s"],
        ["close", "s"],
        ["prepare", "bad", "SELECT FROM"],
        ["prepare", "slow", "SELECT SLEEP(0.03)"],
        ["execute", "slow"],
        ["query", "DO 1"],
    ]
    want = [
        ("SELECT seq, ? FROM seq_1_to_100", 100, None),
        ("SELECT seq, ? FROM seq_1_to_100", 100, None),
        ("SELECT FROM", None, "1064"),
        ("SELECT SLEEP(?)", 1, None),
        ("DO ?", 0, None),
    ]
    connect["tls"] = int(tls)
    have = check(trace("libmariadb", connect, steps), want, "mariadb")
    assert 30 <= have[3]["dur_ms"] <= max(server.durations()) + 1 + e2e.slack(), (have[3], server.durations())


# --- Redis ------------------------------------------------------------------------------------------------------------------


@cases([("plain", False), ("TLS", True)])
def redis_commands(tls):
    """Redis: one by one, pipelined, errors"""
    server = Redis()
    connect = {"host": "127.0.0.1", "port": server.tls_port if tls else server.port}
    if tls:
        connect.update(ssl=True, ssl_cert_reqs="none")
    steps = [
        ["command", "SET", "k", CANARY],
        ["command", "GET", "k"],
        ["command", "LPUSH", "k", CANARY],
        ["command", "BLPOP", "none", "0.1"],
        ["command", CANARY, "x"],
        ["pipeline", ["MGET", "k", "l"], ["CONFIG", "GET", CANARY], ["INCR", "k"]],
    ]
    want = [
        ("SET ?", None, None),
        ("GET ?", None, None),
        ("LPUSH ?", None, "WRONGTYPE"),
        ("BLPOP ?", None, None),
        (None, None, "ERR"),
        ("MGET ?", None, None),
        ("CONFIG GET ?", None, None),
        ("INCR ?", None, "ERR"),
    ]
    have = check(trace("redis", connect, steps, modules=["redis"]), want, "redis")
    assert 100 <= have[3]["dur_ms"] <= 210 + e2e.slack(), have[3]  # the server looks for timeouts ten times a second
    cli = [program("redis-cli"), "-p", str(server.port), "--json", "SLOWLOG", "GET", "-1"]
    log = json.loads(subprocess.run(cli, check=True, capture_output=True, text=True).stdout)
    server_ms = {e[3][0].upper(): e[2] / 1000 for e in log if e[3]}
    check_durations(
        [r for r in have if r["shape"] in ("SET ?", "GET ?", "MGET ?")],
        [server_ms[name] for name in ("SET", "GET", "MGET")],
    )


# --- SQLite -----------------------------------------------------------------------------------------------------------------

RECURSIVE = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 300000) SELECT count(*) FROM r"


@cases([("session", []), ("perf events", ["--attach", "perf"])])
def sqlite_python(options):
    """python's sqlite3"""
    steps = [
        ["query", "CREATE TABLE t (a integer, b text UNIQUE)"],
        ["query", f"INSERT INTO t VALUES (1, '{CANARY}'), (2, 'x')"],
        ["query", f"SELECT * FROM t WHERE a IN (1, 2, 3) AND b <> ? -- {CANARY}", CANARY],
        ["query", f"SELECT * FROM t WHERE a IN (1, 2, 3) AND b <> ? -- {CANARY}", CANARY],
        ["query", f'SELECT "a" FROM "t" WHERE "b" = "{CANARY}"'],
        ["query", "INSERT INTO t VALUES (3, 'x')"],
        ["query", f"SELEC '{CANARY}'"],
        ["query", RECURSIVE],
    ]
    select = "SELECT * FROM t WHERE a IN (?) AND b <> ?"
    want = [
        ("CREATE TABLE t (a integer, b text UNIQUE)", 0, None),
        ("INSERT INTO t VALUES (?, ?)", 0, None),
        (select, 1, None),
        (select, 1, None),
        ('SELECT "a" FROM "t" WHERE "b" = ?', 1, None),
        ("INSERT INTO t VALUES (?, ?)", None, "19"),
        ("SELEC ?", None, "1"),
        (re.sub(r"\b\d+\b", "?", RECURSIVE), 1, None),
    ]
    path = os.path.join(e2e.directory(), "x.sqlite")
    have = check(trace("sqlite", {"path": path}, steps, *options), want, "sqlite")
    assert have[-1]["dur_ms"] > 5, have[-1]


LEAVING = """
import os, sqlite3, sys
db = sqlite3.connect(":memory:")
if len(sys.argv) > 1:
    db.execute("SELECT 1").fetchall()
    sys.exit()
lower = {**os.environ, "LOWER": "x" * 100000}  # its stack begins deeper than this one is now
db.create_function("leave", 0, lambda: os.execve(sys.executable, [sys.executable, __file__, "again"], lower))
db.execute("SELECT leave()")
"""


@case
def sqlite_exec():
    """an exec inside of a statement: what the next program runs is not a part of that"""
    path = os.path.join(e2e.directory(), "leaving.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(LEAVING)
    os.chmod(path, 0o644)
    perfbpf = Perfbpf("--db", command=["setarch", "-R", PYTHON, path])
    assert perfbpf.end() == 0, perfbpf.err()
    check(perfbpf, [("SELECT ?", 1, None)], "sqlite")


@case
def sqlite_cli():
    """sqlite3 says itself how long a statement took"""
    sql = f".timer on\n{RECURSIVE};\nSELECT '{CANARY}' UNION ALL SELECT 'x';\n"
    path = os.path.join(e2e.directory(), "sql")
    with open(path, "w", encoding="utf-8") as f:
        f.write(sql)
    perfbpf = Perfbpf(
        "--db", command=["sh", "-c", f"exec {program('sqlite3')} :memory: < {path}"], stdout=subprocess.PIPE, text=True
    )
    out, _ = perfbpf.child.communicate(timeout=e2e.HANGS_S)
    assert perfbpf.child.returncode == 0, perfbpf.err()
    for name in (perfbpf.trace_path, perfbpf.calls_path, perfbpf.err_path):
        assert CANARY not in e2e.read_text(name)
    want = [(re.sub(r"\b\d+\b", "?", RECURSIVE), 1, None), ("SELECT ? UNION ALL SELECT ?", 2, None)]
    have = check(perfbpf, want, "sqlite")
    said = [1000 * float(s) for s in re.findall(r"Run Time: real ([0-9.]+)", out)]
    # What it says includes the time to prepare and to print, and is rounded to a millisecond.
    assert len(said) == 2 and abs(have[0]["dur_ms"] - said[0]) <= 0.05 * said[0] + 1 + e2e.slack(), (have, said)
    e2e.note(f"a statement of {have[0]['dur_ms']:.3f} ms, by sqlite3 itself {said[0]:.0f}")


e2e.run_cases()
