#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How true the times are, and what many calls at once look like."""
import signal

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, cases, case, check_calls, check_nothing_lost, check_trace, request

GOOD_MS = 1.0
WARM_CALLS = 100


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def state(name, values):
    e2e.note(
        f"{name}: |TTFT - server| p50 {percentile(values, 0.5):.3f} ms, p95 {percentile(values, 0.95):.3f} ms,"
        f" max {max(values):.3f} ms, {len(values)} calls"
    )
    return percentile(values, 0.95)


def measure(mode, opened):
    server = Server()
    first = request("anthropic", "first")
    calls = [
        request(list(e2e.PATHS)[i % 3], f"{mode}-{i}", "tokens=3&delay_ms=8&gap_ms=2")
        for i in range(WARM_CALLS if opened else 20)
    ]
    if mode == "C":
        argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "-n", str(len(calls))]
        argv += ["--knobs", "tokens=3&delay_ms=8&gap_ms=2", "--open-first" if opened else "--wait"]
        argv += [] if opened else ["--new-connections"]
        client = Client(argv)
        skip = ["/call-0/v1/messages"]
    else:
        argv, env = e2e.client_command(
            mode, server, calls, **({"open": True, "first": first} if opened else {"wait": True})
        )
        client = Client(argv, env)
        skip = [first["path"]]
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    pairs = check_calls(perfbpf, server, len(calls), 50, skip if opened else ())
    check_nothing_lost(perfbpf)
    return [e2e.ttft_error_ms(call, truth) for call, truth in pairs]


@cases([("C", "C"), ("python requests", "session"), ("node", "node")])
def warm(mode):
    """TTFT of 100 warm calls is the server's"""
    for _ in range(3):
        p95 = state(f"{mode}, warm", measure(mode, True))
        if p95 <= GOOD_MS:
            return
    bound = e2e.slack() if e2e.loaded() else GOOD_MS
    assert p95 <= bound, f"p95 is {p95:.3f} ms, over {bound} ms"


@cases([("C, new connections", "C"), ("python urllib", "urllib")])
def cold(mode):
    """TTFT of cold calls is the server's"""
    p95 = state(f"{mode}, cold", measure(mode, False))
    assert p95 <= 4 * e2e.slack(), f"p95 is {p95:.3f} ms"


@case
def short():
    """node, one short call on a new connection: its socket and its set-up are known"""
    shares = []
    # On a busy machine the server's accept comes long before node begins to talk TLS: of more calls the nearest.
    while len(shares) < 5 or (max(shares) <= 0.4 and len(shares) < 20):
        server = Server()
        argv, env = e2e.client_command("node", server, [request("anthropic", "short", "tokens=2")], wait=True)
        client = Client(argv, env)
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
        assert perfbpf.end() == 0, perfbpf.err()
        ((call, truth),) = check_calls(perfbpf, server, 1, 50)
        assert call["peer"] and call["peer"]["port"] == server.port, call["peer"]
        assert call["srtt_us"] is not None, call
        shares.append((call["tls_ms"] if e2e.check_paid(call) else 0) * 1e6 / (truth["established_ns"] - truth["accept_ns"]))
    e2e.note("tls_ms / the server's handshake:", ", ".join(f"{s:.2f}" for s in shares))
    assert 0.4 < max(shares) < 1.5, shares


def most_at_once(intervals):
    edges = sorted([(b, 1) for b, e in intervals] + [(e, -1) for b, e in intervals])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


@cases([("node", "node", 1 << 23), ("node, a ring of 256 KiB", "node", 1 << 18)])
def concurrent(mode, ring_bytes):
    """20 concurrent streams in one process"""
    server = Server()
    calls = [
        request(
            list(e2e.PATHS)[i % 3], f"many-{i}", f"tokens={30 + i}&delay_ms={20 + 3 * i}&gap_ms=4&reasoning={i % 4}&utf8=1"
        )
        for i in range(60)
    ]
    argv, env = e2e.client_command(mode, server, calls, wait=True, concurrency=20)
    client = Client(argv, env)
    perfbpf = Perfbpf("--ring-bytes", ring_bytes, "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    pairs = check_calls(perfbpf, server, len(calls), 40)
    check_nothing_lost(perfbpf)
    slices = e2e.call_slices(check_trace(perfbpf))
    assert len(slices) == len(calls), len(slices)
    most = most_at_once([(c["start_ms"], c["start_ms"] + c["end_ms"]) for c, _ in pairs])
    assert most >= 18, f"only {most} calls were in flight at once"
    lanes = {s["tid"] for s in slices}
    assert min(lanes) > 5_000_000, "calls are drawn on lanes, never on a real thread"
    # A slice may begin before its call, at the connection that it paid for.
    most_drawn = most_at_once([(s["ts"], s["ts"] + s["dur"]) for s in slices])
    assert len(lanes) == most_drawn, f"{len(lanes)} lanes for {most_drawn} calls at once"


@case
def threads():
    """50 threads with a connection each"""
    server = Server()
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--dialect", "mixed", "--threads", "50", "-n", "4"]
    argv += ["--knobs", "tokens=20&delay_ms=30&gap_ms=2", "--wait"]
    client = Client(argv)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 200, 60)
    check_nothing_lost(perfbpf)
    check_trace(perfbpf)


@case
def gaps():
    """stalls and the longest gap are those of the server"""
    server = Server()
    calls = [
        request("anthropic", "stall", "tokens=10&gap_ms=5&stall_at=6&stall_ms=1300"),
        request("openai.chat", "even", "tokens=10&gap_ms=30"),
    ]
    argv, env = e2e.client_command("http", server, calls, wait=True)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    for call, truth in check_calls(perfbpf, server, 2):
        stamps = truth["tokens_ns"]
        longest = max(b - a for a, b in zip(stamps, stamps[1:])) / 1e6
        assert abs(call["max_gap_ms"] - longest) <= e2e.slack(), (call["max_gap_ms"], longest)
        e2e.expect(call, "stalls", sum(b - a > 1_000_000_000 for a, b in zip(stamps, stamps[1:])))
        window = (truth["last_token_ns"] - truth["first_token_ns"]) / 1e9
        rate = (truth["usage"]["output_total"] - 1) / window
        assert abs(call["decode_tok_s"] / rate - 1) < 0.1, (call["decode_tok_s"], rate)
        assert abs(call["tpot_ms"] * call["decode_tok_s"] - 1000) < 1, call
        assert abs(call["otps"] - truth["usage"]["output_total"] / (call["end_ms"] / 1e3)) < 0.5, call


@case
def duration():
    """--duration ends the trace, and an open call is drawn as unfinished"""
    server = Server()
    argv, env = e2e.client_command("http", server, [request("anthropic", "slow", "tokens=100&gap_ms=100")], wait=True)
    client = Client(argv, env)
    perfbpf = Perfbpf("-d", "2", "-p", client.pid)
    client.go()
    assert perfbpf.end(seconds=10) == 0, perfbpf.err()
    calls = perfbpf.calls()
    assert len(calls) == 1, calls
    e2e.expect(calls[0], "complete", False)
    e2e.expect(calls[0], "end_reason", "capture_end")
    slices = e2e.call_slices(check_trace(perfbpf))
    assert [s["args"].get("unfinished") for s in slices] == [True], slices
    client.child.send_signal(signal.SIGKILL)


e2e.run_cases()
