#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program that is a server on one side and a client on the other, in one thread; and answers of some size."""
import os

import e2e
from e2e import CLIENT, PYTHON, Client, Perfbpf, Server, case, check_calls, request

PROXY = os.path.join(e2e.HERE, "clients", "proxy.py")
# One event loop and ten threads share an interpreter: it reads late by so much.
LOOP_MS = 60


@case
def gateway():
    """a gateway whose TLS is done in memory: the peer of a call is its server, never who asked the gateway"""
    server = Server()
    body = request("anthropic", "", "")["body"]
    path = e2e.write_config(port=server.port, ca=server.cert, pairs=10, calls=10, knobs="tokens=3&gap_ms=1", body=body)
    client = Client([PYTHON, PROXY, path])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    (inner,) = [int(line.split()[1]) for line in client.lines if line.startswith("port ")]
    assert perfbpf.end() == 0, perfbpf.err()
    pairs = check_calls(perfbpf, server, 100, LOOP_MS)
    peers = [c["peer"]["port"] if c["peer"] else None for c, _ in pairs]
    assert inner not in peers and set(peers) <= {server.port, None}, peers
    e2e.note(f"{peers.count(server.port)} of 100 calls know their peer")
    assert peers.count(server.port) > 90, peers


@case
def large_answers():
    """an answer of megabytes, as a stream and as a document: one call, with its last byte"""
    server = Server()
    for name, options in (("stream", []), ("document", ["--unary"])):
        argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet", "--wait", "-n", "1", *options]
        client = Client([*argv, "--id", name, "--knobs", "tokens=12000&burst=100&gap_ms=0"])
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
        assert perfbpf.end() == 0, perfbpf.err()
        check = [t for t in server.truth().values() if name in t["path"]]
        for call, truth in zip(sorted(perfbpf.calls(), key=lambda c: c["start_ms"]), check, strict=True):
            e2e.check_call(call, truth, LOOP_MS)
            assert call["response_bytes"] > 1 << 20 or name == "document", call
        e2e.check_nothing_lost(perfbpf)


e2e.run_cases()
