#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What must not come out, and the capture file that holds it all."""
import json
import os
import re
import signal
import stat
import subprocess

import e2e
from e2e import CLIENT, PERFBPF, Client, Perfbpf, Server, case, cases, check_calls

SECRETS = {
    "prompt": "PROMPTCANARY",
    "answer": "ANSWERCANARY",
    "authorization": "BEARERCANARY",
    "x-api-key": "APIKEYCANARY",
    "cookie": "COOKIECANARY",
    "query": "QUERYCANARY",
    "environment": "ENVCANARY",
    "arguments": "ARGCANARY",
}


BY = ("process", "function", "stack", "wait", "model", "tool", "mcp", "db")


def secretive(server, waits=True):
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "-n", "6"]
    argv += ["--prompt", SECRETS["prompt"], "--header", f"x-test-word: {SECRETS['answer']}"]
    argv += ["--header", f"authorization: Bearer {SECRETS['authorization']}"]
    argv += ["--header", f"x-api-key: {SECRETS['x-api-key']}", "--header", f"cookie: s={SECRETS['cookie']}"]
    argv += ["--knobs", f"tokens=5&reasoning=1&tool=1&key={SECRETS['query']}&api_key={SECRETS['query']}"]
    argv += ["--model", "test-model-1", "--id", "p"]
    return argv + (["--wait"] if waits else [])


def check_absent(text, where, but=()):
    for name, word in SECRETS.items():
        assert name in but or word not in text, f"{name} is in {where}"


@cases([("", []), ("with every axis", ["--http", "--db", "--cpu", "--off-cpu", "-f", f"{CLIENT}:main"])])
def nothing_leaks(axes):
    """without --content: no prompt, answer, credential or environment value in any output"""
    server = Server()
    client = Client(secretive(server), {"SECRET_TOKEN": SECRETS["environment"], "ANTHROPIC_API_KEY": SECRETS["environment"]})
    perfbpf = Perfbpf("-vv", *axes, "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert len(perfbpf.calls()) == 6, perfbpf.calls()
    truth = " ".join(t["text"] for t in server.truth().values())
    assert SECRETS["answer"] in truth, "it is in the answers"
    # The program's own arguments hold the headers; what perfbpf shows of them is redacted.
    for path in (perfbpf.trace_path, perfbpf.calls_path, perfbpf.err_path):
        check_absent(e2e.read_text(path), os.path.basename(path))
    for command in (["report", perfbpf.trace_path], *(["report", "--by", by, perfbpf.trace_path] for by in BY),
                    ["diff", perfbpf.trace_path, perfbpf.trace_path], ["check", "-p", str(os.getpid())]):
        done = subprocess.run([PERFBPF, *command], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
        assert done.stdout, (command, done)
        check_absent(done.stdout + done.stderr, command[0])


@case
def command_is_redacted():
    """-- CMD: secrets in its arguments are redacted in metadata and slices"""
    server = Server()
    argv = secretive(server, False)
    perfbpf = Perfbpf("-vv", command=["env", f"MY_TOKEN={SECRETS['arguments']}", *argv], stdout=subprocess.DEVNULL)
    assert perfbpf.end() == 0, perfbpf.err()
    for path in (perfbpf.trace_path, perfbpf.calls_path, perfbpf.err_path):
        check_absent(e2e.read_text(path), os.path.basename(path))


@case
def content():
    """with --content: the answer's text, and still no credential"""
    server = Server()
    client = Client(secretive(server))
    perfbpf = Perfbpf("--content", "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    truth = server.truth()
    calls = perfbpf.calls()
    assert len(calls) == 6
    for call in calls:
        e2e.expect(call, "text", truth[e2e.key_of(call["path"])]["text"])
    for path in (perfbpf.trace_path, perfbpf.calls_path, perfbpf.err_path):
        check_absent(e2e.read_text(path), os.path.basename(path), but=("prompt", "answer"))


def same_call(live, again):
    differ = {k for k in set(live) | set(again) if live.get(k) != again.get(k)}
    assert not differ, {k: (live.get(k), again.get(k)) for k in differ}


@cases([("a C client with threads", "threads"), ("node", "node")])
def record_and_replay(kind):
    """--record, and replay gives the same calls"""
    server = Server()
    if kind == "node":
        calls = [e2e.request(list(e2e.PATHS)[i % 3], f"r-{i}", "tokens=9&gap_ms=1&gzip=1&utf8=1&split=9") for i in range(12)]
        argv, env = e2e.client_command("node", server, calls, wait=True, concurrency=4)
        client = Client(argv, env)
    else:
        argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "-n", "4", "--threads", "3"]
        client = Client([*argv, "--wait", "--knobs", "tokens=9&gap_ms=1&utf8=1&reasoning=2&tool=1"])
    capture = os.path.join(e2e.directory(), "run.cap")
    perfbpf = Perfbpf("--content", "--record", capture, "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    mode = stat.S_IMODE(os.stat(capture).st_mode)
    assert mode == 0o600, oct(mode)
    assert "credentials" in perfbpf.err(), "it says so once"
    trace = os.path.join(e2e.directory(), "again.json")
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-all", PERFBPF, "replay", capture, "-c", "-", "-o", trace, "--content"],
        capture_output=True,
        text=True,
        timeout=e2e.HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    live = {c["path"]: c for c in perfbpf.calls()}
    again = {c["path"]: c for c in map(json.loads, done.stdout.splitlines())}
    assert len(live) == 12 and set(live) == set(again), (len(live), len(again))
    for path, call in live.items():
        same_call(call, again[path])
    with open(trace, encoding="utf-8") as f:
        replayed = json.load(f)
    assert not e2e.trace_problems(replayed)
    first, second = (
        sorted((s["name"], s["ts"], s["dur"]) for s in e2e.call_slices(t)) for t in (perfbpf.trace(), replayed)
    )
    assert first == second, "the slices differ"
    quiet = subprocess.run([PERFBPF, "replay", capture, "-c", "-"], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert '"text":"' not in quiet.stdout, "text without --content"


@case
def replay_ends_alike():
    """a call that is open when recording ends has the same end in the replay"""
    server = Server()
    argv, env = e2e.client_command("http", server, [e2e.request("anthropic", "open", "tokens=100&gap_ms=100")], wait=True)
    client = Client(argv, env)
    capture = os.path.join(e2e.directory(), "run.cap")
    perfbpf = Perfbpf("--content", "--record", capture, "-d", "2", "-p", client.pid)
    client.go()
    assert perfbpf.end() == 0, perfbpf.err()
    done = subprocess.run([PERFBPF, "replay", capture, "-q", "-c", "-"], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 0, done.stderr
    live, again = perfbpf.calls(), [json.loads(line) for line in done.stdout.splitlines()]
    assert [c["end_reason"] for c in live] == ["capture_end"] and len(again) == 1, (live, again)
    same_call({**live[0], "text": None}, {**again[0], "text": None})
    client.child.kill()


@case
def record_wants_content():
    """--record without --content is a usage error, and leaves no file"""
    path = os.path.join(e2e.directory(), "x.cap")
    done = subprocess.run([PERFBPF, "--record", path, "-p", "1"], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 2 and not os.path.exists(path), (done.returncode, done.stderr)


@case
def bad_captures():
    """replay of what is no capture, and of half of one"""
    server = Server()
    client = Client(secretive(server))
    folder = e2e.directory()
    capture = os.path.join(folder, "run.cap")
    perfbpf = Perfbpf("--content", "--record", capture, "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    with open(capture, "rb") as f:
        whole = f.read()
    for name, data in (("empty", b""), ("text", b"hello\n" * 100), ("zeros", bytes(4096))):
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(data)
        done = subprocess.run([PERFBPF, "replay", path], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
        assert done.returncode == 1 and path in done.stderr, (name, done.returncode, done.stderr)
    for share in (0.3, 0.6, 0.95):
        path = os.path.join(folder, "cut")
        with open(path, "wb") as f:
            f.write(whole[: int(len(whole) * share)])
        done = subprocess.run([PERFBPF, "replay", path, "-c", "-"], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
        assert done.returncode in (0, 1), (share, done.returncode, done.stderr)
        for line in done.stdout.splitlines():
            json.loads(line)


e2e.run_cases()
