#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that carry their TLS library inside, without symbols: what the finder infers is right only if every call of a
live program is there, exact and once."""
import os
import shlex
import subprocess

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, cases, request

# JavaScript runtimes start threads of their own; the first trap in each costs more.
SLACK_MS = 25.0


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
    e2e.finish(perfbpf, server, 12, SLACK_MS)
    e2e.check_method(perfbpf, "openssl strings")


def calls_of(name):
    return [
        *e2e.usual_calls(name),
        request("anthropic", f"{name}-6", "tokens=5", prompt="x" * 200000),
    ]


@cases([(f"{name}, {how}", name, how) for name in ("bun", "bun-1.3", "bun-1.1") for how in ("before", "command", "by a shell")])
def boringssl(name, how):
    """BoringSSL in a stripped program"""
    server = Server()
    calls = calls_of(name)
    argv, env = e2e.client_command(name, server, calls, wait=how == "before")
    if how != "before":
        argv = ["sh", "-c", shlex.join(argv) + "; true"] if how == "by a shell" else argv
        perfbpf = Perfbpf(command=argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    else:
        client = Client(argv, env)
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
    pairs = e2e.finish(perfbpf, server, len(calls), SLACK_MS)
    e2e.check_method(perfbpf, "boringssl strings")
    for call, _ in pairs:
        assert call["mid_attach"] is False, call
    first = pairs[0][0]
    e2e.check_paid(first)
    assert first["tls_approximate"] is False, "SSL_do_handshake is seen"


e2e.run_cases()
