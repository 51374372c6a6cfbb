#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Of everything something, in two runs: what tests/kernels repeats on other kernels, where the numbers are the same."""
import os
import sys

import e2e
from e2e import CLIENT, PYTHON, Client, Perfbpf, Server, case, check_calls, request

CLIENTS = os.path.join(e2e.HERE, "clients")
# Many programs at once: each call is checked, its times say less.
CROWD_MS = 100.0


class Part:
    """The calls of one server, of all that were traced."""

    def __init__(self, perfbpf, server):
        self.perfbpf, self.port = perfbpf, server.port

    def calls(self):
        return [c for c in self.perfbpf.calls() if c["peer"] and c["peer"]["port"] == self.port]

    def err(self):
        return self.perfbpf.err()


def c_client(server, name, *options):
    argv = [CLIENT, "--port", str(server.port), "--dialect", "mixed", "--id", name, "-n", "3", "--wait", "--quiet", *options]
    return Client([*argv, "--knobs", "tokens=12&gap_ms=1&delay_ms=10&reasoning=2&cache_read=7&interim=2"])


def go_client(server, calls):
    path = os.path.join(e2e.BUILD, "tests", "go", "client-stripped")
    if not os.access(path, os.X_OK):
        return []
    return [Client([path, e2e.write_config(port=server.port, ca=server.cert, calls=calls, wait=True)])]


def reset_client(server):
    call = request("anthropic", "reset", "tokens=50&gap_ms=4&rst_at=20")
    config = e2e.write_config(port=server.port, ca=server.cert, block_ms=0, how="blocking", **call)
    return Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])


def check_reset(perfbpf, server):
    (call,) = Part(perfbpf, server).calls()
    assert not call["complete"] and call["status"] == 200 and call["chunks"] == 20, call
    slices = [e for e in e2e.call_slices(perfbpf.trace()) if e["args"].get("reset")]
    assert [s["args"]["reset"] for s in slices] == ["received"], slices


def check_pipes(perfbpf):
    spans = [e for e in perfbpf.trace()["traceEvents"] if e.get("args", {}).get("transport") == "stdio"]
    told = [(s["name"], s["args"].get("server")) for s in spans]
    assert told == [(f"tools/call tool{i}", "s") for i in range(1, 6)], told


@case
def running():
    """-p: TLS, plain HTTP, Go, a reset and pipes at once, each as it was"""
    tls, plain, resets = Server(), Server("--plain"), Server()
    python_calls, go_calls = e2e.usual_calls("python"), e2e.usual_calls("go")
    argv, env = e2e.client_command("http", tls, python_calls, wait=True)
    clients = [
        c_client(tls, "read", "--cacert", tls.cert, "--threads", "2"),
        c_client(tls, "ex", "--cacert", tls.cert, "--ex", "--new-connections"),
        c_client(plain, "plain", "--plain", "--new-connections"),
        Client(argv, env),
        reset_client(resets),
        Client([PYTHON, os.path.join(CLIENTS, "stdio.py"), "pipes", "6"]),
        *(go := go_client(tls, go_calls)),
    ]
    perfbpf = Perfbpf("-p", ",".join(str(c.pid) for c in clients))
    for client in clients:
        client.go()
    for client in clients:
        assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err()
    count = 2 * 3 + 3 + len(python_calls) + (len(go_calls) if go else 0)
    for server, number, secure in ((tls, count, True), (plain, 3, False)):
        calls = [call for call, _ in check_calls(Part(perfbpf, server), server, number, CROWD_MS)]
        assert not any(call["mid_attach"] for call in calls), calls
        assert all((call["tls_ms"] is not None) == secure for call in calls if call["connect_ms"] is not None), calls
        alone = [call for call in calls if call["path"].startswith("/ex-" if secure else "/plain-")]
        assert len(alone) == 3, calls
        for call in alone:
            e2e.check_paid(call, plain=not secure)
    check_reset(perfbpf, resets)
    check_pipes(perfbpf)
    e2e.check_trace(perfbpf)
    lost = {k: v for k, v in perfbpf.lost().items() if k != "untraced_targets"}  # stdio.py has no TLS
    assert not lost, lost
    assert ("no sock_send_length" in perfbpf.err()) != e2e.kernel_has("sock_send_length"), perfbpf.err()


AGENT = f"""#!{sys.executable}
import os, subprocess, sys
env = dict(os.environ, CODEX_TOOL_CALL_ID="call_abc123", SECRET_OF_MINE="never-shown")
subprocess.run(sys.argv[1:], check=True)
subprocess.run(["sh", "-c", "exec env sleep 0.1"], env=env)
sys.exit(7)
"""


@case
def command():
    """-- CMD: its child's first call, its tree of processes, its status"""
    server = Server()
    path = os.path.join(e2e.directory(), "codex")
    with open(path, "w", encoding="utf-8") as f:
        f.write(AGENT)
    os.chmod(path, 0o755)
    perfbpf = Perfbpf(command=[path, CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet"])
    assert perfbpf.end() == 7, perfbpf.err()
    ((call, _),) = check_calls(perfbpf, server, 1, CROWD_MS)
    e2e.check_paid(call)
    lives = {e["name"]: e["args"] for e in e2e.check_trace(perfbpf)["traceEvents"] if e["ph"] == "X" and e.get("cat") == "process"}
    assert lives["exec sleep"]["exec_chain"] == ["sh", "env", "sleep"], lives
    assert lives["exec sleep"]["tool_call_id"] == "call_abc123", lives
    assert "never-shown" not in e2e.read_text(perfbpf.trace_path)


e2e.run_cases()
