#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every wire: HTTP/2, WebSocket, the codings, the dialects, by the clients that speak them. All calls are there and
exact, and nothing is lost."""
import json
import os
import shutil
import time

import e2e
from e2e import Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost, check_trace
from e2e import expect, key_of, need_module, request, server_ttft_ms

# Attaching to a process whose TLS library is not even loaded yet costs it the first traps.
COLD_MS = 25.0


# --- what every case ends with -------------------------------------------------------------------------------------------


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else 0.0


def check_ttft(what, pairs):
    """Each call by itself is checked against COLD_MS; most are not cold, whatever else this machine does."""
    pairs = [(c, t) for c, t in pairs if t["tokens_ns"] and c["ttft_ms"] is not None]
    errors = [abs(c["ttft_ms"] - server_ttft_ms(t)) for c, t in pairs]
    middle = percentile([e2e.ttft_error_ms(c, t) for c, t in pairs], 0.5)
    assert len(pairs) <= 9 or middle <= e2e.usual_slack(), f"TTFT of half the calls is off by {middle:.3f} ms"
    if errors:
        e2e.note(
            f"{what}: |TTFT - server| p50 {percentile(errors, 0.5):.3f} ms, p95 {percentile(errors, 0.95):.3f} ms, "
            f"max {max(errors):.3f} ms, {len(errors)} calls"
        )


def end(perfbpf, count):
    """The target has ended, and so perfbpf ends by itself; its trace holds count calls."""
    status = perfbpf.end()
    assert status == 0, f"exit status {status}; stderr:\n{perfbpf.err()}"
    check_nothing_lost(perfbpf)
    trace = check_trace(perfbpf)
    assert len(e2e.call_slices(trace)) == count, f"{len(e2e.call_slices(trace))} call slices, not {count}"
    assert trace["metadata"]["call_count"] == count, trace["metadata"]


def finish(what, perfbpf, server, count, slack=COLD_MS, mid_attach=False):
    end(perfbpf, count)
    pairs = check_calls(perfbpf, server, count, slack)
    for call, _ in pairs:
        expect(call, "mid_attach", mid_attach)
    check_ttft(what, pairs)
    return pairs


def trace_client(mode, server, calls, **cfg):
    """Attached before the client's first connection; the client has made its calls."""
    argv, env = e2e.client_command(mode, server, calls, wait=True, **cfg)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    for line in client.lines:
        if "error" in line:
            e2e.note("client:", line.strip())
    return perfbpf


def wire_calls(prefix):
    """Streams and documents, frames of every kind."""
    return [
        request("anthropic", f"{prefix}-1", "tokens=12&delay_ms=20&gap_ms=2&cache_read=40&cache_write=10&interim=2"),
        request("openai.chat", f"{prefix}-2", "tokens=6&reasoning=3&delay_ms=10&gap_ms=1&utf8=1&utf8_cut=1&split=50"),
        request("openai.responses", f"{prefix}-3", "tokens=9&tool=1&burst=3&delay_ms=10&gap_ms=1&padding=200"),
        request("anthropic", f"{prefix}-4", "tokens=20&delay_ms=15&trailers=1", stream=False),
        request("openai.chat", f"{prefix}-5", "tokens=10&delay_ms=10&gap_ms=1&gzip=1&cache_read=64&tool=2&trailers=1"),
        request("openai.responses", f"{prefix}-6", "hidden_reasoning=50&tokens=5", stream=False),
        request("anthropic", f"{prefix}-7", "tokens=8&reasoning=4&gap_ms=1&pings=1&tool=1", prompt="x" * 100000),
    ]


# --- HTTP/2 --------------------------------------------------------------------------------------------------------------


def curl_config(server, calls, parallel=False, *options):
    """curl reads this from its standard input, which is how it waits for perfbpf."""
    plain = "--plain" in server.child.args
    lines = ["parallel", "parallel-immediate"] if parallel else []
    for index, call in enumerate(calls):
        if index:
            lines.append("next")
        body = json.dumps(json.dumps(call["body"]))
        lines += [
            f'url = "{"http" if plain else "https"}://127.0.0.1:{server.port}{call["path"]}"',
            "silent",
            "no-buffer",
            "compressed",
            f'cacert = "{server.cert}"',
            'header = "content-type: application/json"',
            f"data-binary = {body}",
            'output = "/dev/null"',
            *options,
        ]
    return "\n".join(lines) + "\n"


def trace_curl(server, calls, *args, **options):
    if not shutil.which("curl"):
        raise Skip("no curl")
    client = Client(["curl", "-K", "-"], waits=False)
    e2e.until(lambda: "libssl" in e2e.read_text(f"/proc/{client.pid}/maps"), what="curl is loaded")
    perfbpf = Perfbpf("-p", client.pid)
    client.child.stdin.write(curl_config(server, calls, *args, **options))
    client.child.stdin.flush()
    assert client.finish() == 0
    return perfbpf


def check_protocol(pairs, protocol):
    for call, _ in pairs:
        expect(call, "protocol", protocol)


@cases([("one after another", False), ("in parallel", True)])
def curl_http2(parallel):
    """HTTP/2, curl"""
    server = Server()
    calls = wire_calls("curl")
    # In parallel each call has its own connection: the server accepts seven before it reads the first request.
    slack = 4 * COLD_MS if parallel else COLD_MS
    pairs = finish("curl, http/2", trace_curl(server, calls, parallel), server, len(calls), slack)
    check_protocol(pairs, "http/2")
    if not parallel:
        e2e.check_paid(pairs[0][0])


def many_streams(count, prefix="s"):
    """All are open before the first one ends, whatever their order; their tokens interleave."""
    apis = list(e2e.PATHS)
    return [
        request(
            apis[i % 3],
            f"{prefix}-{i}",
            f"tokens={5 + i % 7}&reasoning={i % 3}&delay_ms={3 * count + 3 * (i * 37 % count)}&gap_ms={2 + i % 5}&padding={(i % 4) * 20}"
            f"&input_tokens={100 + i}&cache_read={i}&trailers={i % 2}&interim={i % 2}",
            model=f"model-{i}",
        )
        for i in range(count)
    ]


@cases([("20 streams", 20, ()), ("100 streams", 100, ()), ("20 streams, plain", 20, ("--plain",))])
def node_http2(count, options):
    """HTTP/2, node, one session"""
    server = Server(*options)
    calls = [request("anthropic", "warm"), *many_streams(count)]
    perfbpf = trace_client("http2", server, calls, warm=True, stagger_ms=2)
    pairs = finish(f"node, {count} streams of http/2", perfbpf, server, len(calls))
    check_protocol(pairs, "http/2")
    assert len({t["conn"] for _, t in pairs}) == 1, "one session"


# One after another: threads that share an httpx client break its HTTP/2 connection by themselves, traced or not. Concurrent
# streams are node's and curl's.
@cases([("one after another", ()), ("plain", ("--plain",))])
def httpx_http2(options):
    """HTTP/2, python3-httpx"""
    need_module("httpx")
    need_module("h2")
    server = Server(*options)
    calls = wire_calls("x")
    perfbpf = trace_client("httpx", server, calls)
    pairs = finish("httpx, http/2", perfbpf, server, len(calls))
    check_protocol(pairs, "http/2")


@case
def http2_upgraded():
    """HTTP/2, upgraded from HTTP/1.1 by the first request"""
    need_module("h2")
    server = Server("--plain")
    calls = wire_calls("up")[:6]
    perfbpf = trace_client("h2c", server, calls)
    end(perfbpf, len(calls))
    truth = server.truth()
    pairs = [(c, truth[key_of(c["path"])]) for c in perfbpf.calls()]
    assert len(pairs) == len(calls) and len({t["conn"] for _, t in pairs}) == 1, "one connection"
    for call, said in pairs:
        # the first one's request was HTTP/1.1, its answer is HTTP/2
        if "/up-1/" in call["path"]:
            said["protocol"] = call["protocol"]
            assert call["protocol"] in ("http/1.1", "http/2"), call
        e2e.check_call(call, said, COLD_MS)
    check_ttft("python3-h2, h2c", pairs)


@case
def http2_endings():
    """HTTP/2: streams that end early end alone"""
    server = Server()
    calls = [
        request("anthropic", "whole-1", "tokens=30&gap_ms=10"),
        request("anthropic", "reset", "tokens=30&gap_ms=5&rst_at=5"),
        request("openai.chat", "cut", "tokens=30&gap_ms=5&fin_at=5"),
        request("anthropic", "error", "tokens=30&gap_ms=5&error_at=5"),
        {**request("anthropic", "cancel", "tokens=1000&gap_ms=5"), "cancel_ms": 100},
        request("anthropic", "limit", "status=429&retry_after=7"),
        request("anthropic", "whole-2", "tokens=30&gap_ms=10"),
    ]
    perfbpf = trace_client("http2", server, calls)
    end(perfbpf, len(calls))
    truth = server.truth()
    records = {key_of(c["path"]).split("/")[1]: c for c in perfbpf.calls()}
    assert len(records) == len(calls), sorted(records)
    for name in ("whole-1", "whole-2"):
        e2e.check_call(records[name], truth[f"/{name}/v1/messages"], COLD_MS)
    for name, why in (("reset", "server_abort"), ("cancel", "client_abort")):
        expect(records[name], "end_reason", why)
        expect(records[name], "complete", False)
        expect(records[name], "stop_reason", None)
    expect(records["cut"], "complete", True)
    expect(records["cut"], "stop_reason", None)
    expect(records["error"], "error", "overloaded_error")
    expect(records["limit"], "status", 429)
    expect(records["limit"], "error", "rate_limit_error")
    for name in ("reset", "cut", "error"):
        expect(records[name], "chunks", 5)
    for record in records.values():
        expect(record, "lossy", False)


@case
def http2_goaway():
    """HTTP/2: calls before and after a GOAWAY"""
    server = Server()
    calls = [request("anthropic", f"c-{i}", "tokens=5&gap_ms=1" + ("&goaway=1" if i % 3 == 1 else "")) for i in range(7)]
    pairs = finish("curl, goaway", trace_curl(server, calls), server, len(calls))
    assert len({t["conn"] for _, t in pairs}) == 3, "each GOAWAY ends a connection"


# What a record of a call may hold whose beginning was not seen: nothing, or what is true.
STATED = ("api", "model", "request_model", "stop_reason", "error", "status", "method", "stream")


@case
def http2_mid_attach():
    """HTTP/2, attached with 50 streams open: no wrong value, every later stream is right"""
    server = Server()
    opened = many_streams(50, "open")
    starts_ms = 1500 * min(4.0, e2e.crowd())  # until perfbpf is there
    for i, call in enumerate(opened):
        call["path"] += f"&stall_at=2&stall_ms={starts_ms + 10 * i:.0f}"
    later = many_streams(50, "later")
    argv, env = e2e.client_command("http2", server, later, open=True, first=opened, stagger_ms=2)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    traced_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    client.go()
    assert client.finish() == 0
    status = perfbpf.end()
    assert status == 0, perfbpf.err()
    check_nothing_lost(perfbpf)
    check_trace(perfbpf)
    truth = server.truth()
    calls = perfbpf.calls()
    known = [c for c in calls if c["path"]]
    pairs = [(c, truth[key_of(c["path"])]) for c in known if "/later-" in c["path"]]
    assert len(pairs) == 50, f"{len(pairs)} records of later streams; all: {[c['path'] for c in calls]}"
    assert len({c["path"] for c, _ in pairs}) == 50
    for call, said in pairs:
        e2e.check_call(call, said, COLD_MS)
    check_ttft("node, 50 later streams", pairs)
    check_opened([c for c in calls if not c["path"] or "/open-" in c["path"]], truth, traced_ns)


def check_opened(calls, truth, traced_ns):
    """What they read from the cache is unique, and so tells which stream a record is of. Those that ended while perfbpf started
    are none of its."""
    streams = {t["usage"]["cache_read"]: t for t in truth.values() if "/open-" in t["path"]}
    still_open = sum(t["last_token_ns"] > traced_ns for t in streams.values())
    assert 0 < still_open <= len(calls) <= 50, f"{len(calls)} records of {still_open} streams that were open"
    told = set()
    for call in calls:
        expect(call, "mid_attach", True)
        assert call["ttft_ms"] is None and call["ttfb_ms"] is None, f"measured from a start that was not seen: {call}"
        if not call["usage"] or call["usage"]["cache_read"] is None:
            continue
        said = streams[call["usage"]["cache_read"]]
        told.add(call["usage"]["cache_read"])
        for key in STATED:
            assert call[key] in (None, said[key]), f"{key} is {call[key]!r}, not {said[key]!r}: {call}"
        for field in ("input_uncached", "cache_write", "input_total", "output_total"):
            assert call["usage"][field] in (None, said["usage"][field]), (call["usage"], said["usage"])
    named = sum(c["model"] is not None for c in calls)
    e2e.note(f"open streams: {named} of {len(calls)} tell their model, {len(told)} their usage")
    assert len(told) >= still_open, "the ends of all streams were seen, and all of these say their usage"


# --- content codings -----------------------------------------------------------------------------------------------------

CODINGS = ["gzip=1", "deflate=1", "deflate=2", "br=1", "zstd=1", "gzip=1&br=1", "deflate=1&zstd=1", "br=1&zstd=1&gzip=1"]


def coded_calls(prefix):
    calls = []
    for i, coding in enumerate(CODINGS):
        knobs = f"tokens=12&delay_ms=5&gap_ms=1&reasoning=2&cache_read=9&{coding}"
        calls.append(request("anthropic", f"{prefix}-s{i}", knobs + "&chunk=7" * (i % 2)))
        calls.append(request("openai.chat", f"{prefix}-u{i}", f"tokens=400&{coding}", stream=False))
    return calls


@case
def codings_curl():
    """content codings, curl over HTTP/2"""
    server = Server()
    calls = coded_calls("c")
    finish("curl, codings", trace_curl(server, calls), server, len(calls))


@cases([("http/1.1", "http"), ("http/2", "httpx")])
def codings_python(mode):
    """content codings, python, requests too"""
    server = Server()
    calls = coded_calls(mode)
    for i, call in enumerate(calls):
        call["coding"] = (None, "gzip", "br", "zstd")[i % 4]
        call["body"]["metadata"] = {"padding": "y" * 3000}
    perfbpf = trace_client(mode, server, calls)
    finish(f"python, codings, {mode}", perfbpf, server, len(calls))


# --- dialects ------------------------------------------------------------------------------------------------------------


def dialect_call(name, path, body, knobs, stream):
    """stream: the body's member; None: the path, or the API, says."""
    body = dict(body)
    if stream is not None:
        body["stream"] = stream
    mark = "&" if "?" in path else "?"
    return {"path": f"/{name}{path}{mark}{knobs}", "body": body, "headers": {}}


MESSAGES = [{"role": "user", "content": "hello"}]
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
CONVERSE = {"messages": [{"role": "user", "content": [{"text": "hello"}]}], "inferenceConfig": {"maxTokens": 100}}
INVOKE = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 100, "messages": MESSAGES}
CLAUDE = "/model/anthropic.claude-test-1%3A0"

# name, streaming (path, "stream" of the body), unary, body
DIALECTS = {
    "gemini, SSE": (("/v1beta/models/gemini-test-1:streamGenerateContent?alt=sse", None), None, CONTENTS),
    "gemini, JSON array": (
        ("/v1beta/models/gemini-test-1:streamGenerateContent", None),
        ("/v1beta/models/gemini-test-1:generateContent", None),
        CONTENTS,
    ),
    "ollama chat": (("/api/chat", None), ("/api/chat", False), {"model": "llama-test", "messages": MESSAGES}),
    "ollama generate": (("/api/generate", True), ("/api/generate", False), {"model": "llama-test", "prompt": "hello"}),
    "bedrock converse": ((CLAUDE + "/converse-stream", None), (CLAUDE + "/converse", None), CONVERSE),
    "bedrock invoke": ((CLAUDE + "/invoke-with-response-stream", None), (CLAUDE + "/invoke", None), INVOKE),
    "cohere v2": (("/v2/chat", True), ("/v2/chat", False), {"model": "command-test", "messages": MESSAGES}),
    "openai completions": (
        ("/v1/completions", True),
        ("/v1/completions", False),
        {"model": "gpt-test-1", "prompt": "hello", "max_tokens": 100, "stream_options": {"include_usage": True}},
    ),
    "openai embeddings": (None, ("/v1/embeddings", None), {"model": "embed-test", "input": ["hello", "you"]}),
    "anthropic": (("/v1/messages", True), ("/v1/messages", False), {"model": "claude", "max_tokens": 9, "messages": MESSAGES}),
    "openai chat": (
        ("/v1/chat/completions", True),
        ("/v1/chat/completions", False),
        {"model": "gpt", "messages": MESSAGES, "stream_options": {"include_usage": True}},
    ),
    "openai responses": (("/v1/responses", True), ("/v1/responses", False), {"model": "gpt", "input": "hello"}),
}
TEXT_ONLY = ("ollama generate", "openai completions", "openai embeddings")


def calls_of(name):
    streamed, unary, body = DIALECTS[name]
    tools = 0 if name in TEXT_ONLY else 2
    reasons = "" if name in ("openai completions", "openai embeddings") else "&reasoning=3"
    knobs = [
        "tokens=12&delay_ms=10&gap_ms=1",
        f"tokens=9&delay_ms=15&gap_ms=2&cache_read=40{reasons}&tool={tools}&pings=1",
        f"tokens=20&delay_ms=5&gap_ms=1&burst=4&split=33&utf8=1&utf8_cut=1{reasons}",
        "tokens=6&delay_ms=5&gap_ms=1&zstd=1",
    ]
    calls = []
    for i, k in enumerate(knobs):
        if streamed:
            calls.append(dialect_call(f"s{i}", streamed[0], body, k, streamed[1]))
        if unary:
            calls.append(dialect_call(f"u{i}", unary[0], body, k, unary[1]))
    return calls


@cases([(f"{name}, {mode}", name, mode) for name in DIALECTS for mode in ("http", "httpx")])
def dialects(name, mode):
    """dialect"""
    if mode == "httpx":
        need_module("h2")
    server = Server()
    calls = calls_of(name)
    perfbpf = trace_client(mode, server, calls)
    finish(f"{name}, {mode}", perfbpf, server, len(calls))


@cases([(name, name) for name in DIALECTS])
def dialect_errors(name):
    """errors of a dialect"""
    server = Server()
    streamed, unary, body = DIALECTS[name]
    path, stream = unary or streamed
    calls = [dialect_call("status", path, body, "status=429", stream)]
    if streamed:
        calls.append(dialect_call("event", streamed[0], body, "tokens=9&gap_ms=1&error_at=4", streamed[1]))
    perfbpf = trace_client("http", server, calls)
    end(perfbpf, len(calls))
    truth = server.truth()
    for call in perfbpf.calls():
        said = truth[key_of(call["path"])]
        for key in ("api", "status", "error", "stop_reason", "request_model", "protocol"):
            if key == "stop_reason" and name == "cohere v2":
                continue  # its finish reason is the error
            expect(call, key, said[key])
        if "/event" in call["path"]:
            expect(call, "chunks", 4)


# --- WebSocket -----------------------------------------------------------------------------------------------------------


def message(knobs, **more):
    return {
        "type": "response.create",
        "model": "gpt-test-1",
        "input": [{"type": "message", "role": "user", "content": "hello " * 40}],
        "metadata": {"test": knobs},
        **more,
    }


def ws_messages():
    return [
        message("tokens=12&delay_ms=20&gap_ms=2&cache_read=40&id=m1"),
        message("tokens=6&reasoning=3&delay_ms=10&gap_ms=1&id=m2&utf8=1&split=30"),
        message("tokens=9&tool=2&delay_ms=10&gap_ms=1&pings=1&id=m3&model=gpt-other"),
        message("tokens=4&delay_ms=10&stop=max_output_tokens&id=m4"),
        message("tokens=300&burst=20&id=m5", instructions="z" * 70000),
    ]


def in_order(perfbpf, server):
    """Calls of one WebSocket share its path: the server's order is theirs."""
    calls = sorted(perfbpf.calls(), key=lambda c: c["start_ms"])
    truth = [json.loads(line) for line in e2e.read_text(server.truth_path).splitlines()]
    assert len(calls) == len(truth), f"{len(calls)} records of {len(truth)} calls; stderr:\n{perfbpf.err()}"
    return list(zip(calls, sorted(truth, key=lambda t: t["first_byte_ns"])))


WEBSOCKETS = [
    ("plain frames", {}, ""),
    ("permessage-deflate", {"deflate": True}, ""),
    ("permessage-deflate without takeover", {"deflate": True, "no_takeover": True}, "ws_no_takeover=1"),
    ("offered and declined", {"deflate": True}, "ws_deflate=0"),
    ("fragments and pings", {"fragment": 50}, "ws_fragment=90&pings=1"),
    ("compressed fragments and pings", {"deflate": True, "fragment": 20}, "ws_fragment=40&pings=1"),
]


@cases([(f"{name}, {wire}", *rest, wire) for name, *rest in WEBSOCKETS for wire in ("TLS", "plain")])
def websocket(cfg, knobs, wire):
    """WebSocket"""
    server = Server(*(["--plain"] if wire == "plain" else []))
    messages = ws_messages()
    perfbpf = trace_client("ws", server, messages, path=f"/w/v1/responses?{knobs}", **cfg)
    end(perfbpf, len(messages))
    pairs = in_order(perfbpf, server)
    for call, truth in pairs:
        e2e.check_call(call, truth, COLD_MS)
        expect(call, "protocol", "websocket")
        expect(call, "class", "main")
    check_ttft("websocket", pairs)


@cases([("TLS", ()), ("plain", ("--plain",))])
def websocket_past_the_limit(options):
    """WebSocket, a message of which not all is copied, in fragments"""
    server = Server(*options)
    messages = [message(f"tokens=4&id=m{n}", **({"instructions": "z" * 1500000} if n == 2 else {})) for n in (1, 2, 3)]
    perfbpf = trace_client("ws", server, messages, path="/w/v1/responses?", fragment=65000)
    end(perfbpf, len(messages))
    calls = [call for call, _ in in_order(perfbpf, server)]
    sent = [len(json.dumps(m)) for m in messages]
    assert [c["request_truncated"] for c in calls] == [False, True, False], calls
    assert [c["request_bytes"] for c in calls] == sent, ([c["request_bytes"] for c in calls], sent)


@cases(
    [
        (f"{runtime}, {wire}, {name}", runtime, wire, knobs)
        for runtime, wires in (("node-24", ("TLS", "plain")), ("bun", ("plain",)), ("deno", ("plain",)))
        for wire in wires
        for name, knobs in (("compressed where it can", ""), ("not compressed", "ws_deflate=0"))
    ]
)
def websocket_of_a_runtime(runtime, wire, knobs):
    """WebSocket of a runtime"""
    server = Server(*(["--plain"] if wire == "plain" else []))
    messages = ws_messages()
    perfbpf = trace_client(f"websocket {runtime}", server, messages, path=f"/w/v1/responses?{knobs}")
    end(perfbpf, len(messages))
    for call, truth in in_order(perfbpf, server):
        e2e.check_call(call, truth, COLD_MS)
        expect(call, "protocol", "websocket")


@case
def websocket_prewarm():
    """WebSocket: generate:false is a prewarm, the next one a call"""
    server = Server()
    messages = [message("id=warm", generate=False), message("tokens=5&gap_ms=1&id=call")]
    perfbpf = trace_client("ws", server, messages, path="/w/v1/responses", deflate=True)
    end(perfbpf, 2)
    (warm, _), (call, truth) = in_order(perfbpf, server)
    expect(warm, "class", "prewarm")
    expect(warm, "ttft_ms", None)
    expect(call, "class", "main")
    e2e.check_call(call, truth, COLD_MS)


@cases([("error event", "error_at=3"), ("close frame", "fin_at=3"), ("reset", "rst_at=3")])
def websocket_endings(knob):
    """WebSocket ends in mid-response"""
    server = Server()
    messages = [message("tokens=5&gap_ms=1"), message(f"tokens=9&gap_ms=2&{knob}")]
    perfbpf = trace_client("ws", server, messages, path="/w/v1/responses", deflate=True)
    end(perfbpf, 2)
    (first, said), (last, _) = in_order(perfbpf, server)
    e2e.check_call(first, said, COLD_MS)
    expect(last, "chunks", 3)
    expect(last, "stop_reason", None)
    if knob.startswith("error"):
        expect(last, "error", "server_error")
        expect(last, "status", 500)
    else:
        expect(last, "complete", False)
        assert last["end_reason"] in ("server_abort", "connection_closed"), last


def attach_between_calls(messages, mode="ws", **cfg):
    """perfbpf is there when the first message has been answered."""
    server = Server()
    argv, env = e2e.client_command(mode, server, messages, open=True, **cfg)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    status = perfbpf.end()
    assert status == 0, perfbpf.err()
    check_nothing_lost(perfbpf)
    check_trace(perfbpf)
    truth = [json.loads(line) for line in e2e.read_text(server.truth_path).splitlines()]
    calls = sorted(perfbpf.calls(), key=lambda c: c["start_ms"])
    assert len(calls) == len(messages) - 1 == len(truth) - 1, f"{calls}; stderr:\n{perfbpf.err()}"
    row = [line for line in perfbpf.err().splitlines() if f"[{client.pid}]" in line and "undecoded:" in line]
    return list(zip(calls, truth[1:])), row


def later_messages():
    return [message("tokens=5&gap_ms=1")] + [
        message("tokens=40&gap_ms=2&delay_ms=10&cache_read=5"),
        message("tokens=9&gap_ms=1&delay_ms=30&tool=1", instructions="y" * 3000),
        message("tokens=5&gap_ms=1&reasoning=3"),
    ]


@cases(
    [
        ("not compressed", {"deflate": False}, "/w/v1/responses"),
        ("compressed without takeover", {"deflate": True, "no_takeover": True}, "/w/v1/responses?ws_no_takeover=1"),
    ]
)
def websocket_mid_attach(cfg, path):
    """WebSocket, attached between two calls"""
    pairs, undecoded = attach_between_calls(later_messages(), path=path, **cfg)
    assert not undecoded, undecoded
    for call, truth in pairs:
        for key in ("api", "model", "request_model", "stop_reason", "error", "status", "request_bytes", "stream"):
            expect(call, key, truth[key])
        expect(call, "mid_attach", True)
        expect(call, "undecoded", None)
        e2e.check_usage(call, truth)
        e2e.check_times(call, truth, COLD_MS)


# What may be told of a call that cannot be read: who spoke and when, and the slice of a turn that it is drawn under.
UNREAD = ("type", "id", "pid", "tid", "process", "exe", "ppid", "start_ms", "start_time", "protocol", "method", "class", "peer")
UNREAD += ("send_ms", "ttfb_ms", "end_ms", "complete", "lossy", "mid_attach", "undecoded", "request_truncated", "attempt")
UNREAD += ("turn", "request_bytes", "response_bytes", "retransmits", "srtt_us", "lost_bytes", "request", "tool_calls")


@case
def websocket_mid_attach_unread():
    """WebSocket, attached to compressed messages: sizes and times of each call, and nothing else"""
    pairs, undecoded = attach_between_calls(later_messages(), path="/w/v1/responses", deflate=True)
    assert undecoded and "permessage-deflate" in undecoded[0], undecoded
    for call, truth in pairs:
        expect(call, "protocol", "websocket")
        expect(call, "undecoded", "permessage-deflate")
        expect(call, "mid_attach", True)
        expect(call, "complete", True)
        expect(call, "request_bytes", truth["request_bytes"])
        assert call["response_bytes"] >= len(truth["tokens_ns"]), call
        told = {k for k, v in call.items() if v not in (None, False, [], {}) and k not in UNREAD}
        assert not told, f"{told} of a call that cannot be read: {call}"
        assert not call["tool_calls"] and not any(v for v in (call["request"] or {}).values()), call
        # its first event comes at once, or with the first token
        assert (call["send_ms"] or 0) <= call["ttfb_ms"] <= server_ttft_ms(truth) + COLD_MS, call
        last_ms = (truth["last_token_ns"] - truth["first_byte_ns"]) / 1e6
        assert abs(call["end_ms"] - last_ms) <= COLD_MS, (call, last_ms)


@case
def websocket_mid_attach_half():
    """WebSocket, attached where only the server compresses: what was asked is known, of the answers sizes and times"""
    pairs, _ = attach_between_calls(later_messages(), "websocket node-24", path="/w/v1/responses")
    for call, truth in pairs:
        for key in ("api", "request_model", "request_bytes"):
            expect(call, key, truth[key])
        expect(call, "undecoded", "permessage-deflate")
        expect(call, "mid_attach", True)
        expect(call, "complete", True)
        for key in ("usage", "ttft_ms", "stop_reason", "chunks", "status"):
            expect(call, key, None)
        last_ms = (truth["last_token_ns"] - truth["first_byte_ns"]) / 1e6
        assert abs(call["end_ms"] - last_ms) <= COLD_MS, (call, last_ms)


# --- Go ------------------------------------------------------------------------------------------------------------------


@cases([("one after another", 1), ("10 at a time", 10)])
def go_plain(concurrency):
    """Go's net/http, plain HTTP/1.1"""
    binary = e2e.go_program("client")
    server = Server("--plain")
    calls = wire_calls("go") if concurrency == 1 else many_streams(30, "go")
    path = e2e.write_config(port=server.port, calls=calls, wait=True, concurrency=concurrency)
    client = Client([binary, path])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    finish("go, plain", perfbpf, server, len(calls))


e2e.run_cases()
