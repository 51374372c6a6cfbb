#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Losses and stale calls: they are told, and what is not lost stays exact."""
import os
import shlex
import signal
import time

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, case, cases, check_call, check_trace, request


def late(trace):
    metadata = trace["metadata"]
    return metadata.get("late_bytes", metadata["lost"].get("late_bytes", 0))


@cases(
    [
        ("never answered in time", "head_delay_ms=4500&tokens=30"),
        ("silent in mid-stream", "tokens=30&stall_at=4&stall_ms=4500&gap_ms=1"),
        ("silent in mid-stream, gzip", "tokens=30&stall_at=4&stall_ms=4500&gap_ms=1&gzip=1"),
    ]
)
def stale(knobs):
    """--stale 2 --sweep 1 against a server that hangs"""
    server = Server()
    calls = [
        request("anthropic", "hangs", knobs),
        request("openai.chat", "next", "tokens=7&gap_ms=2"),
        request("anthropic", "after", "tokens=8&gzip=1"),
    ]
    argv, env = e2e.client_command("http", server, calls, wait=True)
    client = Client(argv, env)
    perfbpf = Perfbpf("--stale", 2, "--sweep", 1, "-p", client.pid)
    client.go()
    e2e.until(lambda: len(perfbpf.calls()) == 1, 4.2, "the record is written at the eviction, not at the end")
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    records = perfbpf.calls()
    assert len(records) == 3, [r["path"] for r in records]
    truth = server.truth()
    evicted = [r for r in records if r["end_reason"] == "evicted"]
    assert [e2e.key_of(r["path"]) for r in evicted] == ["/hangs/v1/messages"], evicted
    e2e.expect(evicted[0], "complete", False)
    e2e.expect(evicted[0], "request_model", "claude-test-1")
    assert 1900 <= evicted[0]["end_ms"] <= 4300, evicted[0]["end_ms"]
    if "stall_at" in knobs:  # what hangs never sends the chunk that would end the silence
        e2e.expect(evicted[0], "stalls", 1)
    for record in records[1:]:
        check_call(record, truth[e2e.key_of(record["path"])])
    trace = check_trace(perfbpf)
    drawn = [s for s in e2e.call_slices(trace) if s["args"].get("evicted") is True]
    assert len(drawn) == 1, f"{len(drawn)} evicted slices"
    assert late(trace) > 0, "late bytes are counted"
    real = {k: v for k, v in perfbpf.lost().items() if k not in ("late_bytes", "evicted_calls")}
    assert not real, real


def no_wrong_number(record, truth):
    """Of a call that lost bytes: what it still says must be true, or unknown."""
    for key in ("api", "model", "request_model", "method", "stop_reason"):
        assert record[key] in (None, truth[key]), f"{key} {record[key]!r} of lossy {record['path']}, not {truth[key]!r}"
    assert record["status"] in (None, truth["status"]), record
    usage = record["usage"] or {}
    for field in ("cache_read", "cache_write", "input_uncached", "input_total", "reasoning"):
        assert usage.get(field) in (None, truth["usage"][field]), (field, usage, truth["usage"])
    if usage.get("source") == "reported":
        assert usage["output_total"] in (None, truth["usage"]["output_total"]), (usage, truth["usage"])
    if record["ttft_ms"] is not None and truth["first_token_ns"]:
        server_ms = e2e.server_ttft_ms(truth)
        assert record["ttft_ms"] >= server_ms - 1, f"ttft {record['ttft_ms']} before the first token {server_ms}"
    if record["complete"]:
        assert record["chunks"] in (None, len(truth["tokens_ns"])) or record["lossy"], record


def check_lossy_run(perfbpf, server, status):
    truth = server.truth()
    records = perfbpf.calls()
    lost = perfbpf.lost()
    assert status == 3, f"--strict ended with {status}; stderr:\n{perfbpf.err()}"
    assert lost.get("ring_records", 0) > 0 and lost.get("ring_bytes", 0) > 0, lost
    assert "ring buffer full" in perfbpf.err(), perfbpf.err()
    exact = 0
    for record in records:
        # A call whose own request was lost may not know its path; it must say so then.
        if e2e.key_of(record["path"]) not in truth:
            assert record["lossy"] or record["mid_attach"], record
            continue
        known = truth[e2e.key_of(record["path"])]
        if record["lossy"] or record["mid_attach"] or not record["complete"]:
            no_wrong_number(record, known)
        else:
            check_call(record, known, 400)  # the machine is busy losing
            exact += 1
    for record in records:
        assert record["complete"] or record["lossy"], f"cut off, and does not say by what: {record}"
        # What told its beginning may be among what was lost.
        assert record["lossy"] or not record["mid_attach"], f"every connection was seen from its start: {record}"
    assert len(records) <= len(truth), f"{len(records)} records of {len(truth)} calls"
    lossy = sum(r["lossy"] for r in records)
    e2e.note(f"{len(truth)} calls, {len(records)} records: {exact} exact, {lossy} lossy; lost {lost}")
    assert lossy > 0, "the calls that were hit say so"
    return exact


@case
def stopped_reader():
    """--ring-bytes 65536 while perfbpf is stopped"""
    server = Server()
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "6", "-n", "40"]
    argv += ["--knobs", "tokens=60&gap_ms=1&delay_ms=5", "--wait", "--quiet"]
    client = Client(argv)
    perfbpf = Perfbpf("--strict", "--ring-bytes", 65536, "-p", client.pid)
    client.go()
    time.sleep(0.7)
    perfbpf.child.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    perfbpf.child.send_signal(signal.SIGCONT)
    assert client.finish() == 0
    exact = check_lossy_run(perfbpf, server, perfbpf.end())
    assert exact > 0, "the calls before and after the stop are exact"
    check_trace(perfbpf)


@case
def flood():
    """--ring-bytes 65536 under more traffic than it holds"""
    server = Server()
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "16", "-n", "12"]
    argv += ["--knobs", "tokens=3000&burst=200", "--wait", "--quiet", "--body-bytes", "200000"]
    client = Client(argv)
    perfbpf = Perfbpf("--strict", "--ring-bytes", 65536, "-p", client.pid)
    client.go()
    assert client.finish(120) == 0
    check_lossy_run(perfbpf, server, perfbpf.end(seconds=60))
    check_trace(perfbpf)


@case
def overload():
    """more comes than perfbpf is given time to read: it copies less, says so, and recovers by itself"""
    server = Server()
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "16"]
    many = Client([*argv, "-n", "60", "--knobs", "tokens=2000&burst=100", "--body-bytes", "100000", "--wait", "--quiet"])
    calls = [request("anthropic", "after", "tokens=20&gap_ms=2"), request("openai.chat", "last", "tokens=7")]
    later_argv, env = e2e.client_command("http", server, calls, wait=True)
    later = Client(later_argv, env)
    perfbpf = Perfbpf("-v", "--ring-bytes", 262144, "-p", f"{many.pid},{later.pid}")
    many.go()
    runs_s = 0.015
    while many.child.poll() is None:  # its share of a processor: less, until it is too little on this machine
        perfbpf.child.send_signal(signal.SIGSTOP)
        time.sleep(0.06)
        perfbpf.child.send_signal(signal.SIGCONT)
        time.sleep(runs_s)
        if "more comes than is drained" not in perfbpf.err():
            runs_s = max(0.003, 0.9 * runs_s)
    assert many.finish() == 0
    e2e.until(lambda: "less comes: everything is copied again" in perfbpf.err(), 20, f"it recovers: {perfbpf.err()}")
    later.go()
    assert later.finish() == 0
    assert perfbpf.end(seconds=60) == 0, perfbpf.err()
    lost, own, truth = perfbpf.lost(), perfbpf.trace()["metadata"]["self"], server.truth()
    e2e.note(f"level {own['overload_level']} for {own['overload_ms']:.0f} ms in all; lost {lost}")
    assert "more comes than is drained: of large requests" in perfbpf.err(), perfbpf.err()
    assert lost["overload_bytes"] > 0 and own["overload_level"] >= 1 and own["overload_ms"] > 0, (lost, own)
    for record in perfbpf.calls():
        known = truth.get(e2e.key_of(record["path"])) if record["path"] else None
        if known and record["pid"] == later.pid:
            check_call(record, known)
        elif known:
            no_wrong_number(record, known)
    assert [r["lossy"] for r in perfbpf.calls() if r["pid"] == later.pid] == [False, False], perfbpf.calls()


SLEEPERS = """
import threading, time
def nap():
    while True:
        time.sleep(0.002)
for _ in range(50):
    threading.Thread(target=nap, daemon=True).start()
print("pid", __import__("os").getpid(), flush=True)
input()
"""


@case
def samples_leave_room():
    """--off-cpu of many threads that wait, while perfbpf is stopped: samples are lost, and of calls nothing"""
    server = Server()
    sleepers = Client([e2e.PYTHON, "-c", SLEEPERS])
    client = Client([CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", "6", "--wait", "--quiet"])
    perfbpf = Perfbpf("--off-cpu", "--ring-bytes", 262144, "-p", f"{sleepers.pid},{client.pid}")
    perfbpf.child.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    client.go()
    assert client.finish() == 0
    perfbpf.child.send_signal(signal.SIGCONT)
    sleepers.go()
    assert sleepers.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    lost, known = perfbpf.lost(), server.truth()
    assert set(lost) == {"samples"}, lost
    assert "more comes than is drained" not in perfbpf.err(), perfbpf.err()
    calls = perfbpf.calls()
    assert len(calls) == len(known) == 6, (calls, known)
    for call in calls:
        assert call["complete"] and not call["lossy"], call
        truth = known[e2e.key_of(call["path"])]
        no_wrong_number(call, truth)
        assert call["usage"]["output_total"] == truth["usage"]["output_total"], (call, truth)


@case
def lost_tails():
    """--ring-bytes 65536 and a client that ends while it is full"""
    for i in range(6):
        server = Server()
        argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "4"]
        client = Client([*argv, "-n", "16", "--knobs", "tokens=300", "--wait", "--quiet"])
        perfbpf = Perfbpf("--strict", "--ring-bytes", 65536, "-p", client.pid)
        client.go()
        # On an idle machine it would keep up: from somewhere on it gets no time for a while, or until the end.
        time.sleep(0.015 * i)
        perfbpf.child.send_signal(signal.SIGSTOP)
        if i % 2:
            time.sleep(0.1)
            perfbpf.child.send_signal(signal.SIGCONT)
        finished = client.finish()
        perfbpf.child.send_signal(signal.SIGCONT)
        assert finished == 0
        check_lossy_run(perfbpf, server, perfbpf.end())


@case
def lost_exits():
    """processes that end while the ring is full have ended, though nobody told how"""
    start, fill = "for i in $(seq 30); do sleep 1000 & done", "for i in $(seq 200); do /bin/true; done"
    script = f"echo pid $$; read line; {start}; read line; {fill}; echo full; read line; exit 0"
    client = Client(["sh", "-c", script])
    perfbpf = Perfbpf("--ring-bytes", 65536, "-p", client.pid)
    client.go()

    def sleeping():
        pids = e2e.read_text(f"/proc/{client.pid}/task/{client.pid}/children").split()
        return pids if len(pids) == 30 and all(e2e.read_text(f"/proc/{pid}/comm") == "sleep\n" for pid in pids) else None

    def lives():
        perfbpf.child.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        try:
            return [e["args"] for e in perfbpf.trace()["traceEvents"] if e["ph"] == "X" and e["name"] == "exec sleep"]
        except (OSError, ValueError):
            return []  # not written yet

    children = e2e.until(sleeping, 20, "the children run")
    e2e.until(lambda: len(lives()) == 30, 20, "perfbpf knows them")
    perfbpf.child.send_signal(signal.SIGSTOP)
    client.go()
    assert client.child.stdout.readline() == "full\n"
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    e2e.until(lambda: not any(e2e.read_text(f"/proc/{pid}/cmdline") for pid in children), 20, "they have ended")
    perfbpf.child.send_signal(signal.SIGCONT)
    e2e.until(lambda: not any("unfinished" in args for args in lives()), 20, "their ends are found")
    untold = sum("exit_code" not in args for args in lives())
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    e2e.note(f"{untold} of 30 ends were found; lost {perfbpf.lost()}")
    assert untold > 10, lives()


@cases([("a child", "forked"), ("another program", "run")])
def lost_births(how):
    """born while the ring is full, and traced all the same"""
    server = Server()
    argv, env = e2e.client_command("http", server, [request("anthropic", "born", "tokens=20")], wait=True)
    fill = "for i in $(seq 200); do /bin/true; done"
    program = " ".join(map(shlex.quote, argv))
    if how == "forked":  # what it runs comes when there is room again
        program = f"(echo born; read line; exec {program})"
    client = Client(["sh", "-c", f"echo pid $$; read line; {fill}; {program}; read line; exit 0"], env)
    perfbpf = Perfbpf("--ring-bytes", 65536, "-p", client.pid)
    perfbpf.child.send_signal(signal.SIGSTOP)
    client.go()
    first = "born" if how == "forked" else "pid "
    assert client.child.stdout.readline().startswith(first)
    perfbpf.child.send_signal(signal.SIGCONT)
    time.sleep(3 * e2e.PATIENCE)  # the losses are told, and looked into, once a second
    client.go()
    if how == "forked":
        assert client.child.stdout.readline().startswith("pid ")
        client.go()
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert perfbpf.lost()["ring_records"] > 0, perfbpf.lost()
    (record,) = perfbpf.calls()
    check_call(record, server.truth()[e2e.key_of(record["path"])])


@cases([("anthropic", "anthropic"), ("chat", "openai.chat"), ("responses", "openai.responses")])
def failures(api):
    """errors, resets and closes are told as what they are"""
    server = Server()
    expected = {
        "status": ("status=529&retry_after=2", {"status": 529, "complete": True, "end_reason": None}),
        "limit": ("status=429&error_type=rate_limit_error", {"status": 429, "error": "rate_limit_error", "complete": True}),
        "event": ("error_at=3&error_type=overloaded_error", {"status": 200, "error": "overloaded_error", "complete": True}),
        "rst": ("rst_at=3", {"status": 200, "complete": False, "error": None}),
        "fin": ("fin_at=3", {"status": 200, "complete": False, "error": None}),
        "after": ("tokens=3", {"status": 200, "complete": True, "error": None}),
    }
    calls = [request(api, name, knobs) for name, (knobs, _) in expected.items()]
    argv, env = e2e.client_command("requests", server, calls, wait=True)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    truth = server.truth()
    records = perfbpf.calls()
    assert len(records) == len(calls), [r["path"] for r in records]
    for record, name in zip(sorted(records, key=lambda r: r["start_ms"]), expected):
        for key, value in expected[name][1].items():
            e2e.expect(record, key, value)
        known = truth[e2e.key_of(record["path"])]
        if name in ("status", "limit", "event"):
            e2e.expect(record, "error", known["error"])
        if name in ("rst", "fin"):
            e2e.expect(record, "chunks", 3)
            assert record["end_reason"] in ("server_abort", "connection_closed"), record["end_reason"]
        if name == "after":
            check_call(record, known)
    lost = perfbpf.lost()
    assert not lost, lost


@case
def client_leaves():
    """a client that closes in mid-stream, and one that is killed"""
    server = Server()
    base = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--knobs", "tokens=500&gap_ms=5", "--wait"]
    leaver = Client([*base, "--id", "leaves", "--stop-after", "2000"])
    killed = Client([*base, "--id", "killed"])
    perfbpf = Perfbpf("-p", f"{leaver.pid},{killed.pid}")
    leaver.go()
    killed.go()
    leaver.finish()
    time.sleep(0.3)
    killed.child.kill()
    killed.finish()
    assert perfbpf.end() == 0, perfbpf.err()
    by_path = {r["path"][1:].split("-")[0]: r for r in perfbpf.calls()}
    assert set(by_path) == {"leaves", "killed"}, by_path.keys()
    e2e.expect(by_path["leaves"], "complete", False)
    assert by_path["leaves"]["end_reason"] in ("client_abort", "connection_closed"), by_path["leaves"]["end_reason"]
    e2e.expect(by_path["killed"], "complete", False)
    e2e.expect(by_path["killed"], "end_reason", "process_exit")
    e2e.expect(by_path["killed"], "exit", {"code": None, "signal": 9} if by_path["killed"]["exit"] and
               by_path["killed"]["exit"].get("code") is None else {"code": 0, "signal": 9})
    assert not perfbpf.lost(), perfbpf.lost()


e2e.run_cases()
