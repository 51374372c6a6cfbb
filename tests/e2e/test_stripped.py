#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that carry their TLS library inside, without symbols: what the finder infers is right only if every call of a
live program is there, exact and once."""
import os
import subprocess

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, cases, check_calls, check_nothing_lost, check_trace, request

# JavaScript runtimes start threads of their own; the first trap in each costs more.
SLACK_MS = 25.0


def finish(perfbpf, server, count):
    status = perfbpf.end()
    assert status == 0, f"exit status {status}; stderr:\n{perfbpf.err()}"
    pairs = check_calls(perfbpf, server, count, SLACK_MS)
    check_nothing_lost(perfbpf)
    check_trace(perfbpf)
    return pairs


def check_method(perfbpf, method):
    methods = {f["method"] for f in perfbpf.trace()["metadata"]["attach"] if f["functions"]}
    assert method in methods, f"attached by {methods}; stderr:\n{perfbpf.err()}"


@cases([(f"{kind}, {how}", kind, how) for kind in ("pie", "nopie") for how in ("before", "command", "partial writes")])
def openssl(kind, how):
    """OpenSSL 3 in a stripped program"""
    server = Server()
    argv = [f"{CLIENT}_{kind}", "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "2"]
    argv += ["-n", "6", "--knobs", "tokens=12&gap_ms=1&delay_ms=10&reasoning=2&cache_read=7"]
    argv += ["--partial", "--body-bytes", "300000"] if how == "partial writes" else []
    if how == "command":
        perfbpf = Perfbpf(command=argv, stdout=subprocess.DEVNULL)
    else:
        client = Client([*argv, "--wait"])
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
    finish(perfbpf, server, 12)
    check_method(perfbpf, "openssl strings")


def calls_of(name):
    return [
        request("anthropic", f"{name}-1", "tokens=12&delay_ms=20&gap_ms=2&cache_read=40&cache_write=10"),
        request("openai.chat", f"{name}-2", "tokens=6&reasoning=3&delay_ms=10&gap_ms=1&utf8=1&utf8_cut=1&split=50"),
        request("openai.responses", f"{name}-3", "tokens=9&tool=1&burst=3&delay_ms=10&gap_ms=1&reasoning=2"),
        request("anthropic", f"{name}-4", "tokens=20&delay_ms=15", stream=False),
        request("openai.chat", f"{name}-5", "tokens=10&delay_ms=10&gap_ms=1&gzip=1&cache_read=64&tool=2"),
        request("anthropic", f"{name}-6", "tokens=5", prompt="x" * 200000),
    ]


@cases([(f"{name}, {how}", name, how) for name in ("bun", "bun-1.3", "bun-1.1") for how in ("before", "command")])
def boringssl(name, how):
    """BoringSSL in a stripped program"""
    server = Server()
    calls = calls_of(name)
    argv, env = e2e.client_command(name, server, calls, wait=how == "before")
    if how == "command":
        perfbpf = Perfbpf(command=argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    else:
        client = Client(argv, env)
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
    pairs = finish(perfbpf, server, len(calls))
    check_method(perfbpf, "boringssl strings")
    for call, _ in pairs:
        assert call["mid_attach"] is False, call
    first = pairs[0][0]
    assert first["tls_ms"] is not None and first["tls_approximate"] is False, "SSL_do_handshake is seen"


e2e.run_cases()
