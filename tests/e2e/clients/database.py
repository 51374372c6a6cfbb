# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs statements against a database and says nothing: database.py DRIVER, JSON on standard input:
{"connect": {...}, "steps": [[verb, argument…], …]}. Errors of the server are expected. One way of speaking to it a driver."""
import ctypes
import io
import json
import sys


def run(steps, verbs, errors):
    for verb, *arguments in steps:
        try:
            verbs[verb](*arguments)
        except errors as error:
            print(verb, type(error).__name__, file=sys.stderr)


def psycopg2(connect, steps):
    import psycopg2 as driver  # pylint: disable=import-outside-toplevel

    connection = driver.connect(**connect)
    connection.autocommit = True
    cursor = connection.cursor()
    verbs = {
        "query": cursor.execute,
        "copy_in": lambda sql, data: cursor.copy_expert(sql, io.StringIO(data)),
        "copy_out": lambda sql: cursor.copy_expert(sql, io.StringIO()),
    }
    run(steps, verbs, driver.Error)
    connection.close()


def libpq(connect, steps):
    """The extended protocol, and a pipeline."""
    pq = ctypes.CDLL("libpq.so.5")
    pq.PQconnectdb.restype = pq.PQexec.restype = pq.PQexecParams.restype = ctypes.c_void_p
    pq.PQprepare.restype = pq.PQexecPrepared.restype = pq.PQgetResult.restype = ctypes.c_void_p
    pq.PQclear.argtypes = [ctypes.c_void_p]
    c = ctypes.c_void_p(pq.PQconnectdb(" ".join(f"{k}='{v}'" for k, v in connect.items()).encode()))
    assert pq.PQstatus(c) == 0

    def values(arguments):
        return len(arguments), (ctypes.c_char_p * len(arguments))(*(str(a).encode() for a in arguments))

    def pipeline(name, *arguments):
        assert pq.PQenterPipelineMode(c) == 1
        for argument in arguments:
            n, array = values([argument])
            assert pq.PQsendQueryPrepared(c, name.encode(), n, array, None, None, 0) == 1
        assert pq.PQpipelineSync(c) == 1
        synced = False
        while not synced:
            result = pq.PQgetResult(c)
            synced = result and pq.PQresultStatus(ctypes.c_void_p(result)) == 10
            pq.PQclear(result)
        assert pq.PQexitPipelineMode(c) == 1

    def params(sql, *arguments):
        n, array = values(arguments)
        pq.PQclear(pq.PQexecParams(c, sql.encode(), n, None, array, None, None, 0))

    def execute(name, *arguments):
        n, array = values(arguments)
        pq.PQclear(pq.PQexecPrepared(c, name.encode(), n, array, None, None, 0))

    verbs = {
        "query": lambda sql: pq.PQclear(pq.PQexec(c, sql.encode())),
        "params": params,
        "prepare": lambda name, sql: pq.PQclear(pq.PQprepare(c, name.encode(), sql.encode(), 0, None)),
        "execute": execute,
        "pipeline": pipeline,
    }
    run(steps, verbs, ())
    pq.PQfinish(c)


def pymysql(connect, steps):
    import pymysql as driver  # pylint: disable=import-outside-toplevel

    connection = driver.connect(**connect)
    cursor = connection.cursor()
    run(steps, {"query": cursor.execute}, driver.Error)
    connection.close()


def libmariadb(connect, steps):
    """Prepared statements, in the binary protocol."""
    my = ctypes.CDLL("libmariadb.so.3")
    my.mysql_init.restype = my.mysql_real_connect.restype = my.mysql_stmt_init.restype = ctypes.c_void_p
    for name in ("prepare", "execute", "store_result", "free_result", "close"):
        getattr(my, "mysql_stmt_" + name).argtypes = [ctypes.c_void_p] + (
            [ctypes.c_char_p, ctypes.c_ulong] if name == "prepare" else []
        )
    my.mysql_stmt_init.argtypes = my.mysql_close.argtypes = [ctypes.c_void_p]
    my.mysql_real_query.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulong]
    my.mysql_real_connect.argtypes = [ctypes.c_void_p] + 4 * [ctypes.c_char_p] + [ctypes.c_uint, ctypes.c_char_p, ctypes.c_ulong]
    c = my.mysql_init(None)
    # Nobody knows the certificate; MYSQL_OPT_SSL_VERIFY_SERVER_CERT, MYSQL_OPT_SSL_ENFORCE
    for option, value in ((21, 0), (38, connect["tls"])):
        my.mysql_optionsv(ctypes.c_void_p(c), option, ctypes.byref(ctypes.c_char(value)))
    assert my.mysql_real_connect(
        c, connect["host"].encode(), connect["user"].encode(), b"", connect["database"].encode(), connect["port"], None, 0
    )
    statements = {}

    def prepare(name, sql):
        statements[name] = my.mysql_stmt_init(c)
        my.mysql_stmt_prepare(statements[name], sql.encode(), len(sql.encode()))

    def execute(name):
        my.mysql_stmt_execute(statements[name])
        my.mysql_stmt_store_result(statements[name])
        my.mysql_stmt_free_result(statements[name])

    verbs = {
        "query": lambda sql: my.mysql_real_query(c, sql.encode(), len(sql.encode())),
        "prepare": prepare,
        "execute": execute,
        "close": lambda name: my.mysql_stmt_close(statements.pop(name)),
    }
    run(steps, verbs, ())
    my.mysql_close(c)


def redis(connect, steps):
    import redis as driver  # pylint: disable=import-outside-toplevel

    client = driver.Redis(**connect)

    def pipeline(*commands):
        with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            pipe.execute(raise_on_error=False)

    run(steps, {"command": client.execute_command, "pipeline": pipeline}, driver.RedisError)
    client.close()


def sqlite(connect, steps):
    import sqlite3  # pylint: disable=import-outside-toplevel

    connection = sqlite3.connect(connect["path"], isolation_level=None)
    verbs = {"query": lambda sql, *values: connection.execute(sql, values).fetchall()}
    run(steps, verbs, sqlite3.Error)
    connection.close()


def main():
    todo = json.load(sys.stdin)
    globals()[sys.argv[1]](todo["connect"], todo["steps"])


main()
