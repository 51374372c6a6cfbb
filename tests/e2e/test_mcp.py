#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MCP: what an agent asks of its tool servers, over the standard input and output of a child and over HTTP."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import e2e
from e2e import HERE, PYTHON, Client, Perfbpf, Skip, case, cases

CLIENTS = os.path.join(HERE, "clients")
CANARIES = ("ARGUMENTCANARY", "RESULTCANARY", "ERRORCANARY", "SESSIONCANARY")


def tool(name, **arguments):
    return {"method": "tools/call", "params": {"name": name, "arguments": {"secret": "ARGUMENTCANARY", **arguments}}}


CALLS = [
    {"method": "tools/list", "params": {}},
    tool("sleep", ms=120),
    tool("sleep", ms=5),
    tool("fail"),
    {"method": "tools/unknown", "params": {}},
]


def spans(perfbpf):
    return [e for e in perfbpf.trace()["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "mcp"]


def read_truth(path):
    return {str(t["id"]): t for t in map(json.loads, e2e.read_text(path).splitlines())}


def check_span(span, truth):
    args = span["args"]
    target = f" {truth['tool']}" if truth["tool"] else ""
    assert span["name"] == truth["method"] + target, span
    assert args["method"] == truth["method"] and args.get("tool") == truth["tool"], span
    assert args["kind"] == "client" and "end_reason" not in args and "lossy" not in args, span
    assert args["server"] == "bench" and args["server_version"] == "3" and args["protocol_version"] == "2025-06-18", span
    error = {"fail": "tool_error"}.get(truth["tool"]) or {"tools/unknown": "-32601"}.get(truth["method"])
    assert args.get("error") == error, span
    # What the server spent lies inside what the client waited; at first for its program to start.
    over_ms = span["dur"] / 1000 - truth["ms"]
    starts = truth["method"] == "initialize" and args["transport"] == "stdio"
    # Of one that a busy machine let wait nobody knows how long; the middle of all says whether it is the server's time.
    assert -0.5 <= over_ms <= (5000 if starts or e2e.loaded() else 200), f"{span['dur'] / 1000} ms, by the server {truth['ms']:.3f} ms: {span}"
    return over_ms


def check_private(perfbpf):
    for path in (perfbpf.trace_path, perfbpf.calls_path, perfbpf.err_path):
        for word in CANARIES:
            assert word not in e2e.read_text(path), f"{word} is in {os.path.basename(path)}"


def check_all(perfbpf, truth_path, pid, count, more=()):
    truth, told = read_truth(truth_path), spans(perfbpf)
    assert len(truth) == count, truth
    rest = [s for s in told if s["name"] not in more]
    ids = [s["args"]["request_id"] for s in rest]
    assert set(ids) == set(truth), f"missing {set(truth) - set(ids)}, nobody's {set(ids) - set(truth)}; {perfbpf.err()}"
    assert len(ids) == len(truth), f"told twice: {sorted(ids)}"
    assert all(s["pid"] == pid for s in told), told
    over = sorted(check_span(s, truth[s["args"]["request_id"]]) for s in rest)
    middle = over[len(over) // 2]
    e2e.note(f"{len(over)} requests; over the server's own time by {over[0]:.3f} to {over[-1]:.3f} ms, as a rule {middle:.3f}")
    assert middle <= 5 + e2e.usual_slack(), over
    # They are no model calls.
    assert not perfbpf.calls() and perfbpf.trace()["metadata"]["call_count"] == 0
    assert perfbpf.trace()["metadata"]["agent_count"] == 0
    assert re.search(rf"\b{len(told)} MCP requests", perfbpf.err()), perfbpf.err()
    # A server may have ended before its own TLS library could be probed.
    lost = {k: v for k, v in perfbpf.lost().items() if k != "untraced_targets"}
    assert not lost, lost
    check_private(perfbpf)


def stdio_client(kind, **config):
    node = shutil.which("node")
    if not node:
        raise Skip("no node")
    directory = e2e.directory()
    truth = os.path.join(directory, "truth.jsonl")
    path = e2e.write_config(truth=truth, **config)
    script = os.path.join(CLIENTS, f"mcp_stdio.{'mjs' if kind == 'node' else 'py'}")
    return ([node, script, path] if kind == "node" else [PYTHON, script, path, node]), truth


@cases([("node, whose children have Unix sockets", "node"), ("python, whose children have pipes", "python")])
def stdio(kind):
    """a child's standard input and output, one span a request though both ends are traced"""
    argv, truth = stdio_client(kind, calls=[*CALLS, tool("big", bytes=300000), tool("ask")])
    client = Client(argv)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_all(perfbpf, truth, client.pid, 8, ("roots/list",))
    (roots,) = [s for s in spans(perfbpf) if s["name"] == "roots/list"]
    assert roots["args"]["kind"] == "server" and roots["args"]["transport"] == "stdio", roots


@case
def concurrent():
    """many at once over one child"""
    argv, truth = stdio_client("node", calls=[tool("sleep", ms=20 + 7 * (i % 5)) for i in range(60)], concurrency=12)
    client = Client(argv)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_all(perfbpf, truth, client.pid, 61)


@case
def unanswered():
    """a server that is killed: its request says that nobody answered"""
    argv, _ = stdio_client("node", calls=[], hang=True)
    client = Client(argv)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    (span,) = [s for s in spans(perfbpf) if s["name"] == "tools/call sleep"]
    assert span["args"]["end_reason"] in ("server_abort", "connection_closed"), span
    assert 150 <= span["dur"] / 1000 <= 1000 * e2e.patience(0.6), span


def http_server(tls):
    directory = e2e.directory()
    argv = [PYTHON, os.path.join(CLIENTS, "mcp_http.py"), "server", directory]
    cert = e2e.make_certificate(directory) if tls else None
    child = e2e.start(argv + ([cert] if tls else []), stdout=subprocess.PIPE, text=True)
    line = child.stdout.readline()
    assert line.startswith("listening "), line
    config = {"port": int(line.split()[1]), **({"ca": cert + ".crt"} if tls else {})}
    return child, config, os.path.join(directory, "truth.jsonl")


@cases([("plain", False, False), ("TLS", True, False), ("the older transport, plain", False, True),
        ("the older transport, TLS", True, True)])
def over_http(tls, legacy):
    """HTTP"""
    server, config, truth = http_server(tls)
    path = e2e.write_config(legacy=legacy, calls=[*CALLS, *([] if legacy else [tool("stream", ms=30)])], **config)
    client = Client([PYTHON, os.path.join(CLIENTS, "mcp_http.py"), path])
    # Both ends are traced; what is answered is not told again.
    perfbpf = Perfbpf("-p", f"{client.pid},{server.pid}")
    client.go()
    assert client.finish() == 0
    perfbpf.child.send_signal(signal.SIGINT)
    assert perfbpf.end() == 0, perfbpf.err()
    check_all(perfbpf, truth, client.pid, 6 if legacy else 7)
    for span in spans(perfbpf):
        args = span["args"]
        assert args["transport"] == "http" and args["status"] == (202 if legacy else 200), span
        assert args["host"] == ("localhost" if tls else "127.0.0.1") + f":{config['port']}", span
        assert args["peer"] == f"127.0.0.1:{config['port']}", span
        assert args.get("progress") == (1 if span["name"] == "tools/call stream" else None), span


@case
def content():
    """with --content: the message of an error, and still neither arguments nor results"""
    argv, _ = stdio_client("python", calls=CALLS)
    client = Client(argv)
    perfbpf = Perfbpf("--content", "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    (span,) = [s for s in spans(perfbpf) if s["name"] == "tools/unknown"]
    assert span["args"]["error_message"] == "ERRORCANARY", span
    text = e2e.read_text(perfbpf.trace_path)
    assert "ARGUMENTCANARY" not in text and "RESULTCANARY" not in text


if __name__ == "__main__":
    sys.exit(e2e.run_cases())
