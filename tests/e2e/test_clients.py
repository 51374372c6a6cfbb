#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every client, attached to in every way it allows: all calls are there and exact, and nothing is lost."""
import json
import os
import re
import shutil
import signal
import subprocess

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost, request

# Attaching to a process whose TLS library is not even loaded yet costs it the first traps.
COLD_MS = 25.0


def usual_calls(prefix):
    return [
        *e2e.usual_calls(prefix),
        request("openai.responses", f"{prefix}-6", "hidden_reasoning=50&chunk=100&tokens=5", stream=False),
        request("anthropic", f"{prefix}-7", "tokens=8&reasoning=4&gap_ms=1&pings=1&deflate=1&tool=1"),
    ]


def curl_config(server, calls):
    """curl reads this from its standard input, which is how it waits for perfbpf."""
    lines = []
    for call in calls:
        if lines:
            lines.append("next")
        body = json.dumps(json.dumps(call["body"]))
        lines += [
            f'url = "https://127.0.0.1:{server.port}{call["path"]}"',
            "http1.1",
            "silent",
            "no-buffer",
            "compressed",
            f'cacert = "{server.cert}"',
            'header = "content-type: application/json"',
            f"data-binary = {body}",
            'output = "/dev/null"',
        ]
    return "\n".join(lines) + "\n"


def command_of(name, server, calls, **cfg):
    if name == "curl":
        if not shutil.which("curl"):
            raise Skip("no curl")
        return ["curl", "-K", "-"], {}
    return e2e.client_command(name, server, calls, **cfg)


def finish(perfbpf, server, count, slack=COLD_MS, skip=()):
    return e2e.finish(perfbpf, server, count, slack, skip)


def feed_curl(client, server, calls):
    client.child.stdin.write(curl_config(server, calls))
    client.child.stdin.flush()


@cases([(n, n) for n in ("urllib", "requests", "session", "http", "node", "curl")])
def attach_before(name):
    """-p before the first connection"""
    server = Server()
    calls = usual_calls(name)
    argv, env = command_of(name, server, calls, wait=True)
    client = Client(argv, env, waits=name != "curl")
    if name == "curl":
        e2e.until(lambda: "libssl" in e2e.read_text(f"/proc/{client.pid}/maps"), what="curl is loaded")
    perfbpf = Perfbpf("-p", client.pid)
    feed_curl(client, server, calls) if name == "curl" else client.go()
    assert client.finish() == 0
    pairs = finish(perfbpf, server, len(calls))
    for call, _ in pairs:
        assert call["mid_attach"] is False, call
    # The first call pays for its connection.
    first = pairs[0][0]
    e2e.check_paid(first)
    assert first["peer"] and first["peer"]["port"] == server.port, first["peer"]


@cases([(n, n) for n in ("session", "http", "node")])
def attach_open(name):
    """-p on an open keep-alive connection"""
    server = Server()
    calls = usual_calls(name)
    first = request("anthropic", "first")
    argv, env = command_of(name, server, calls, open=True, first=first)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    opened = server.truth()["/first/v1/messages"]["conn"]
    pairs = finish(perfbpf, server, len(calls), skip=[first["path"]])
    kept = [c for c, t in pairs if t["conn"] == opened]
    # node opens a second connection when a call comes before the end of the last one has reached its pool.
    assert kept and (name == "node" or len(kept) == len(calls)), "the client did not keep its connection"
    for call in kept:
        assert call["connect_ms"] is None and call["tls_ms"] is None, f"this call paid for no connection: {call}"


@cases([(n, n) for n in ("urllib", "requests", "session", "node", "curl")])
def attach_command(name):
    """-- CMD"""
    server = Server()
    calls = usual_calls(name)
    argv, env = command_of(name, server, calls)
    if name == "curl":
        path = os.path.join(e2e.directory(), "curl.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(curl_config(server, calls))
        argv = ["curl", "-K", path]
    perfbpf = Perfbpf(command=argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    pairs = finish(perfbpf, server, len(calls))
    first = pairs[0][0]
    e2e.check_paid(first)
    for call, _ in pairs:
        assert call["mid_attach"] is False, call


@cases(
    [
        (f"{api}, {how}", api, how)
        for api in ("SSL_read", "SSL_read_ex")
        for how in ("before", "open", "command", "new connections", "partial writes")
    ]
)
def c_client(api, how):
    """C client"""
    server = Server()
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "2", "-n", "6"]
    argv += ["--knobs", "tokens=12&gap_ms=1&delay_ms=10&reasoning=2&cache_read=7&interim=2"]
    argv += ["--ex"] if api == "SSL_read_ex" else []
    argv += {
        "open": ["--open-first"],
        "new connections": ["--new-connections", "--wait"],
        "partial writes": ["--partial", "--wait", "--body-bytes", "300000"],
        "command": [],
    }.get(how, ["--wait"])
    if how == "command":
        finish(Perfbpf(command=argv, stdout=subprocess.DEVNULL), server, 12)
        return
    client = Client(argv)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    skip = [f"/call-{i}{a}" for a in e2e.PATHS.values() for i in range(2)]
    finish(perfbpf, server, 12, skip=skip if how == "open" else ())


@cases(
    [
        ("multi", "--attach=multi"),
        ("perf", "--attach=perf"),
        ("no dynptr", "--no-dynptr"),
        ("no sock_send_length", "--no-sock-length"),
    ]
)
def degraded(option):
    """as on an older kernel"""
    server = Server()
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "-n", "6", "--wait"]
    argv += ["--body-bytes", "40000", "--knobs", "tokens=12&gap_ms=1&delay_ms=10&chunk=3000"]
    client = Client(argv)
    perfbpf = Perfbpf(option, "-p", client.pid)
    client.go()
    assert client.finish() == 0
    finish(perfbpf, server, 6)


@case
def by_name():
    """-n: programs that run, and those that start later"""
    server = Server()
    calls = usual_calls("now")
    argv, env = command_of("session", server, calls, wait=True)
    client = Client(argv, env)
    program = e2e.named_client()
    perfbpf = Perfbpf("-n", re.escape(os.path.dirname(argv[-1])) + "|" + os.path.basename(program))
    client.go()
    assert client.finish() == 0
    later = subprocess.run(
        [program, "--port", str(server.port), "--cacert", server.cert, "-n", "3", "--quiet"], check=False, timeout=e2e.HANGS_S
    )
    assert later.returncode == 0
    e2e.until(lambda: len(perfbpf.calls()) >= len(calls) + 3, 5, f"all calls are recorded; stderr:\n{perfbpf.err()}")
    status = perfbpf.end(signal.SIGINT)
    assert status == 0, perfbpf.err()
    check_calls(perfbpf, server, len(calls) + 3, COLD_MS)
    check_nothing_lost(perfbpf)


@case
def children():
    """the children of -p's process, and theirs"""
    server = Server()
    one = f"{CLIENT} --port {server.port} --cacert {server.cert} -n 2 --quiet --id"
    shell = Client(["sh", "-c", f"echo pid $$; read line; {one} a; sh -c '{one} b; {one} c'; exit 0"])
    perfbpf = Perfbpf("-p", shell.pid)
    shell.go()
    assert shell.finish() == 0
    pairs = finish(perfbpf, server, 6)
    assert len({c["pid"] for c, _ in pairs}) == 3, "three processes made these calls"
    assert {c["process"] for c, _ in pairs} == {"modelclient"}, "a process is named after its program"


def wget_command(server, calls):
    """wget, which is linked with GnuTLS; all calls have one body. Without addresses: those come on its standard input."""
    if not shutil.which("wget"):
        raise Skip("no wget")
    argv = ["wget", "-q", "-O", "/dev/null", f"--ca-certificate={server.cert}", "--header=content-type: application/json"]
    argv.append("--post-data=" + json.dumps(calls[0]["body"]))
    return argv, [f"https://127.0.0.1:{server.port}{call['path']}" for call in calls]


@cases([("-p", True), ("-- CMD", False)])
def gnutls(attached):
    """GnuTLS (wget)"""
    server = Server()
    calls = [request("anthropic", f"wget-{i}", f"tokens={5 + i}&gap_ms=2&delay_ms=5") for i in range(4)]
    argv, addresses = wget_command(server, calls)
    if attached:
        client = Client([*argv, "-i", "-"], waits=False)
        e2e.until(lambda: "libgnutls" in e2e.read_text(f"/proc/{client.pid}/maps"), what="wget is loaded")
        perfbpf = Perfbpf("-p", client.pid)
        client.child.stdin.write("\n".join(addresses) + "\n")
        assert client.finish() == 0
    else:
        perfbpf = Perfbpf(command=[*argv, *addresses])
    pairs = finish(perfbpf, server, len(calls))
    first = pairs[0][0]
    assert first["process"] == "wget", first
    e2e.check_paid(first)
    assert first["tls_approximate"] is False, "gnutls_handshake is seen"


e2e.run_cases()
