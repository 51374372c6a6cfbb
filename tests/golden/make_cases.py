#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes tests/golden/cases/NAME/{events.jsonl,expected.json}: what an agent's TLS calls moved, and what must come out.

    make_cases.py [--check]     write them; or only say whether the files are what would be written
"""

import base64
import gzip
import json
import os
import struct
import sys
import zlib

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
START_NS = 5_000_000_000_000
MODEL = "claude-golden-2"
GPT = "gpt-golden-1"


# --- what goes over the wire --------------------------------------------------------------------------------------------


def event(data, name=None, end="\n\n"):
    head = "event: %s\n" % name if name else ""
    return (head + "data: " + (data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)) + end).encode()


def anthropic_event(kind, **fields):
    return event(dict(type=kind, **fields), kind)


def message_start(input_tokens=21, **usage):
    usage = dict(dict(input_tokens=input_tokens, cache_read_input_tokens=0, cache_creation_input_tokens=0, output_tokens=1), **usage)
    return anthropic_event(
        "message_start",
        message={"id": "msg_g", "type": "message", "role": "assistant", "model": MODEL, "content": [],
                 "stop_reason": None, "usage": usage},
    )


def block_start(index=0, block=None):
    return anthropic_event("content_block_start", index=index, content_block=block or {"type": "text", "text": ""})


def text_delta(text, index=0):
    return anthropic_event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})


def message_end(output_tokens, stop="end_turn", **usage):
    return (
        anthropic_event("content_block_stop", index=0)
        + anthropic_event("message_delta", delta={"stop_reason": stop, "stop_sequence": None},
                          usage=dict(output_tokens=output_tokens, **usage))
        + anthropic_event("message_stop")
    )


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def head(status="200 OK", **fields):
    lines = "".join("%s: %s\r\n" % (k.replace("_", "-"), v) for k, v in fields.items())
    return ("HTTP/1.1 %s\r\n%s\r\n" % (status, lines)).encode()


def stream_head(**fields):
    return head(content_type="text/event-stream", transfer_encoding="chunked", **fields)


def request(path="/v1/messages", body=None, method="POST", host="api.anthropic.com", **fields):
    if body is None and method == "POST":
        body = {"model": MODEL, "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "count to three"}]}
    payload = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        fields = dict(fields, content_type="application/json", content_length=len(payload))
    lines = "".join("%s: %s\r\n" % (k.replace("_", "-"), v) for k, v in fields.items())
    return ("%s %s HTTP/1.1\r\nhost: %s\r\n%s\r\n" % (method, path, host, lines)).encode() + payload


def chat_request(**more):
    body = dict({"model": GPT, "stream": True, "messages": [{"role": "user", "content": "hello"}]}, **more)
    return request("/v1/chat/completions", body, host="api.openai.com")


def chat_chunk(delta=None, finish=None, **more):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return event(dict({"id": "c1", "object": "chat.completion.chunk", "model": GPT, "choices": choices}, **more))


def json_answer(body, status="200 OK", **fields):
    payload = json.dumps(body).encode()
    return head(status, content_type="application/json", content_length=len(payload), **fields) + payload


# --- one case -------------------------------------------------------------------------------------------------------------


class Case:
    """Events in the order of delivery; times in ms since the start."""

    def __init__(self, title, pid=700, comm="agent"):
        self.title, self.lines, self.calls, self.more = title, [], [], {}
        self.pid, self.comm, self.ssl, self.seqs = pid, comm, 0x5500, {}

    def at(self, ms):
        return START_NS + round(ms * 1000000)

    def move(self, direction, ms, data, call_ms=None, lost=False, kept=None, deliver_ms=None, seq=None):
        key = (self.pid, self.ssl, direction)
        if seq is None:
            seq = self.seqs.get(key, 0)
            self.seqs[key] = seq + 1
        if lost:
            return
        line = {"ev": "data", "t_ns": self.at(ms), "pid": self.pid, "tid": self.pid, "comm": self.comm, "ssl": hex(self.ssl),
                "dir": direction, "seq": seq, "len": len(data), "b64": base64.b64encode(data[:kept]).decode()}
        if call_ms is not None:
            line["t_call_ns"] = self.at(call_ms)
        if deliver_ms is not None:
            line["deliver_at_ns"] = self.at(deliver_ms)
        self.lines.append(line)

    def send(self, ms, data, **more):
        self.move("c2s", ms, data, **more)

    def receive(self, ms, data, **more):
        self.move("s2c", ms, data, **more)

    def other(self, ev, ms, **fields):
        self.lines.append(dict({"ev": ev, "t_ns": self.at(ms), "pid": self.pid}, **fields))
        if ev in ("exit", "exec"):
            self.seqs = {k: v for k, v in self.seqs.items() if k[0] != self.pid}

    def object(self, ev, ms):
        self.other(ev, ms, ssl=hex(self.ssl))
        if ev == "ssl_free":
            self.seqs = {k: v for k, v in self.seqs.items() if k[:2] != (self.pid, self.ssl)}

    def expect(self, **fields):
        self.calls.append(fields)


def anthropic_usage(inp, out, read=0, write=0, source="reported"):
    return {"input_uncached": inp, "cache_read": read, "cache_write": write, "input_total": inp + read + write,
            "output_total": out, "source": source}


GOOD = {"protocol": "http/1.1", "method": "POST", "path": "/v1/messages", "status": 200, "complete": True, "end_reason": None,
        "error": None, "lossy": False, "host": "api.anthropic.com", "provider": "anthropic", "model": MODEL, "stream": True}


def simple_stream(c, ms, text, out=4):
    """A whole call in four reads, first token 150 ms after ms, last byte 250 ms after it."""
    c.send(ms, request())
    c.receive(ms + 80, stream_head() + chunk(message_start()))
    c.receive(ms + 100, chunk(block_start() + anthropic_event("ping")))
    c.receive(ms + 150, chunk(text_delta(text)))
    c.receive(ms + 250, chunk(message_end(out)) + LAST)


def expect_simple(c, ms, text, out=4, **more):
    c.expect(**dict(GOOD, start_ms=ms, ttfb_ms=80, ttft_ms=150, ttft_visible_ms=150, ttft_kind="text", end_ms=250, text=text,
                    usage=anthropic_usage(21, out), stop_reason="end_turn", **more))


def keepalive_two_calls():
    c = Case("two calls on one connection, the second after a pause")
    simple_stream(c, 0, "one two three")
    simple_stream(c, 3000, "four", 2)
    expect_simple(c, 0, "one two three")
    expect_simple(c, 3000, "four", 2)
    return c


def send_in_pieces():
    c = Case("a request in three writes: its start is the entry of the first, response_bytes as carried")
    r = request()
    c.send(12, r[:40], call_ms=0)
    c.send(20, r[40:90], call_ms=13)
    c.send(30, r[90:], call_ms=21)
    answer = [stream_head() + chunk(message_start()), chunk(block_start() + text_delta("x")), chunk(message_end(1)) + LAST]
    for ms, data in zip((100, 140, 180), answer):
        c.receive(ms, data, call_ms=31)
    c.expect(**dict(GOOD, start_ms=0, send_ms=30, ttfb_ms=100, ttft_ms=140, end_ms=180, request_bytes=len(r),
                    response_bytes=sum(map(len, answer)), decode_tok_s=None))
    return c


def lost_chunk():
    c = Case("a lost read in a body: that call says so, the next one is exact")
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start()))
    c.receive(60, chunk(block_start() + text_delta("gone")), lost=True)
    c.receive(90, chunk(text_delta("rest")))
    c.receive(99, chunk(message_end(9)) + LAST)
    simple_stream(c, 1000, "whole")
    c.expect(method="POST", status=200, path="/v1/messages", lossy=True, complete="any")
    expect_simple(c, 1000, "whole")
    c.more["counters"] = {"lost_events": 1}
    return c


def ws_frame(body, masked=False):
    payload = json.dumps(body).encode()
    size = len(payload)
    start = bytes([0x81, (0x80 if masked else 0) | min(size, 126)]) + (struct.pack(">H", size) if size >= 126 else b"")
    key = b"\x12\x34\x56\x78" if masked else b""
    return start + key + bytes(b ^ key[i % 4] for i, b in enumerate(payload)) if masked else start + payload


def responses_create():
    return ws_frame({"type": "response.create", "model": GPT, "input": [{"role": "user", "content": "hello"}]}, masked=True)


def responses_events(name, text, out):
    done = {"id": name, "status": "completed", "model": GPT, "usage": {"input_tokens": 30, "output_tokens": out}}
    return (ws_frame({"type": "response.created", "response": {"id": name, "model": GPT, "status": "in_progress"}}),
            ws_frame({"type": "response.output_text.delta", "delta": text}),
            ws_frame({"type": "response.completed", "response": done}))


def websocket_open(c, lost=False):
    c.send(0, request("/v1/responses", method="GET", host="api.openai.com", connection="Upgrade", upgrade="websocket",
                      sec_websocket_key="a2V5a2V5a2V5a2V5a2V5a2U=", sec_websocket_version="13"))
    c.receive(20, head("101 Switching Protocols", connection="Upgrade", upgrade="websocket"), lost=lost)


def websocket_call(c, ms, name, text, out, lost=()):
    c.send(ms, responses_create(), lost="ask" in lost)
    for i, data in enumerate(responses_events(name, text, out)):
        c.receive(ms + 10 * (i + 1), data, lost=i in lost)


WEBSOCKET = {"protocol": "websocket", "method": "POST", "path": "/v1/responses", "status": 200, "complete": True, "lossy": False,
             "end_reason": None, "ttfb_ms": 10, "ttft_ms": 20, "end_ms": 30}


def websocket_lost():
    c = Case("messages of a WebSocket are lost, of one side and of both: what is asked behind that is whole again")
    websocket_open(c)
    websocket_call(c, 100, "r1", "one", 11)
    websocket_call(c, 200, "r2", "two", 12, lost=(0, 1, 2))
    websocket_call(c, 300, "r3", "three", 13)
    websocket_call(c, 400, "r4", "four", 14)
    websocket_call(c, 500, "r5", "five", 15, lost=("ask", 0, 1))
    websocket_call(c, 600, "r6", "six", 16)
    websocket_call(c, 700, "r7", "seven", 17)
    c.expect(**dict(WEBSOCKET, start_ms=100, text="one"))
    c.expect(protocol="websocket", start_ms=200, lossy=True, complete=False, end_reason="capture_loss", usage=None)
    c.expect(**dict(WEBSOCKET, start_ms=300, text="three", ttft_ms=None, lossy=True))
    c.expect(**dict(WEBSOCKET, start_ms=400, text="four"))
    c.expect(**dict(WEBSOCKET, start_ms=600, text="six"))
    c.expect(**dict(WEBSOCKET, start_ms=700, text="seven"))
    c.more["counters"] = {"lost_events": 6}
    return c


def websocket_handshake_lost():
    c = Case("the answer to the handshake of a WebSocket is lost: only the first call lost something")
    websocket_open(c, lost=True)
    websocket_call(c, 100, "r1", "one", 11)
    websocket_call(c, 200, "r2", "two", 12)
    c.expect(**dict(WEBSOCKET, start_ms=100, text="one", ttft_ms=None, lossy=True))
    c.expect(**dict(WEBSOCKET, start_ms=200, text="two"))
    c.more["counters"] = {"lost_events": 1}
    return c


def two_lost_in_a_row():
    c = Case("two neighbours lost: two gaps")
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start()))
    c.receive(60, chunk(block_start() + text_delta("a")), lost=True)
    c.receive(70, chunk(text_delta("b")), lost=True)
    c.receive(99, chunk(message_end(9)) + LAST)
    c.expect(method="POST", status=200, lossy=True, complete="any")
    simple_stream(c, 1000, "whole")
    expect_simple(c, 1000, "whole")
    c.more["counters"] = {"lost_events": 2}
    return c


def reordered():
    c = Case("reads of one answer delivered in the wrong order, one much later")
    pieces = [stream_head() + chunk(message_start()), chunk(block_start()), chunk(text_delta("uno ")), chunk(text_delta("dos ")),
              chunk(text_delta("tres")), chunk(message_end(6)) + LAST]
    times = (40, 60, 80, 100, 120, 140)
    c.send(0, request())
    for i in (2, 0, 1, 5, 4, 3):
        c.receive(times[i], pieces[i], seq=i)
    c.expect(**dict(GOOD, ttfb_ms=40, ttft_ms=80, last_token_ms=120, end_ms=140, text="uno dos tres", chunks=3,
                    decode_tok_s=125, usage=anthropic_usage(21, 6)))
    c.more["counters"] = {"lost_events": 0}
    return c


def late_delivery():
    c = Case("an event that user space gets 170 ms late, after its connection's later ones")
    c.send(0, request(), deliver_ms=170)
    c.receive(60, stream_head() + chunk(message_start()))
    c.receive(80, chunk(block_start() + text_delta("late")))
    c.receive(90, chunk(message_end(3)) + LAST)
    c.expect(**dict(GOOD, start_ms=0, ttfb_ms=60, ttft_ms=80, end_ms=90, text="late"))
    return c


def response_first():
    c = Case("the write returns only after the answer was read on another thread")
    c.receive(70, stream_head() + chunk(message_start() + block_start() + text_delta("early")))
    c.send(75, request(), call_ms=0)
    c.receive(110, chunk(message_end(2)) + LAST)
    c.expect(**dict(GOOD, start_ms=0, ttfb_ms=70, ttft_ms=70, end_ms=110, text="early"))
    return c


def mid_attach():
    c = Case("attached in the middle of an answer: no numbers for it, exact ones for the next")
    c.receive(0, chunk(text_delta("tail of something"))[9:])
    c.receive(30, chunk(message_end(50)) + LAST)
    simple_stream(c, 500, "next")
    c.expect(mid_attach=True, ttft_ms=None, path=None, complete="any", optional=True)
    expect_simple(c, 500, "next", mid_attach=False)
    return c


def gzipped():
    c = Case("gzip with a flush per event: the token counts when its read returns; deflate of a unary body")
    z = zlib.compressobj(wbits=31)

    def flush(data, how=zlib.Z_SYNC_FLUSH):
        return chunk(z.compress(data) + z.flush(how))

    c.send(0, request(accept_encoding="gzip"))
    c.receive(50, stream_head(content_encoding="gzip") + flush(message_start()))
    c.receive(90, flush(block_start() + text_delta("zip ")))
    c.receive(130, flush(text_delta("zap")))
    c.receive(170, flush(message_end(8), zlib.Z_FINISH) + LAST)
    c.expect(**dict(GOOD, ttfb_ms=50, ttft_ms=90, last_token_ms=130, end_ms=170, text="zip zap", usage=anthropic_usage(21, 8)))
    body = gzip.compress(json.dumps({"type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
                                     "content": [{"type": "text", "text": "packed"}],
                                     "usage": {"input_tokens": 5, "output_tokens": 6}}).encode(), mtime=0)
    c.send(1000, request(body={"model": MODEL, "max_tokens": 5, "messages": []}))
    c.receive(1200, head(content_type="application/json", content_encoding="gzip", content_length=len(body)) + body)
    c.expect(**dict(GOOD, stream=False, ttft_ms=None, end_ms=200, text="packed",
                    usage={"input_uncached": 5, "cache_read": 0, "output_total": 6, "source": "reported"}))
    return c


def coding_cut():
    c = Case("a body that ends, framed, before its gzip does: what came stays, what may be missing is not known")
    z = zlib.compressobj(wbits=31)
    c.send(0, request(accept_encoding="gzip"))
    c.receive(50, stream_head(content_encoding="gzip") + chunk(z.compress(message_start()) + z.flush(zlib.Z_SYNC_FLUSH)))
    c.receive(90, chunk(z.compress(block_start() + text_delta("half")) + z.flush(zlib.Z_SYNC_FLUSH)) + LAST)
    c.expect(**dict(GOOD, undecoded="gzip", ttft_ms=90, chunks=None, last_token_ms=None, otps=None, decode_tok_s=None,
                    stop_reason=None, text="half", usage=anthropic_usage(21, 1, source="partial")))
    simple_stream(c, 400, "plain")
    expect_simple(c, 400, "plain", undecoded=None)
    return c


def unknown_coding():
    c = Case("a coding nobody knows: said by name, no tokens invented, the next call is exact")
    c.send(0, request())
    c.receive(50, head(content_type="text/event-stream", content_encoding="x-odd", content_length=5) + b"\0\1\2\3\4")
    c.expect(method="POST", status=200, undecoded="x-odd", usage=None, ttft_ms=None, complete=True)
    simple_stream(c, 400, "plain")
    expect_simple(c, 400, "plain", undecoded=None)
    return c


def pipelined():
    c = Case("three requests in one write, their answers in one read")
    asks, answers = b"", b""
    for i in range(1, 4):
        asks += request(body={"model": MODEL, "max_tokens": i, "messages": []})
        answers += json_answer({"type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
                                "content": [{"type": "text", "text": "n%d" % i}],
                                "usage": {"input_tokens": i, "output_tokens": 10 * i}})
        c.expect(**dict(GOOD, stream=False, start_ms=0, end_ms=300, text="n%d" % i,
                        usage={"input_uncached": i, "input_total": i, "output_total": 10 * i, "source": "reported"}))
    c.send(0, asks)
    c.receive(300, answers)
    return c


def interim():
    c = Case("100, 102 and 103 come before the answer: the answer's head counts")
    c.send(0, request(expect="100-continue"))
    c.receive(10, head("100 Continue"))
    c.receive(20, head("102 Processing") + head("103 Early Hints", link="</x>; rel=preload"))
    c.receive(90, stream_head() + chunk(message_start()))
    c.receive(120, chunk(block_start() + text_delta("y")))
    c.receive(150, chunk(message_end(2)) + LAST)
    c.expect(**dict(GOOD, ttfb_ms=90, ttft_ms=120, end_ms=150, text="y"))
    return c


def bodiless():
    c = Case("answers to HEAD, and 304 and 204, have no body whatever they announce")
    c.send(0, request(method="HEAD", path="/v1/models"))
    c.receive(20, head(content_length=4711, content_type="application/json"))
    c.send(100, request(method="GET", path="/v1/models", if_none_match='"a"'))
    c.receive(120, head("304 Not Modified", content_length=4711))
    simple_stream(c, 500, "body")
    for ms, method, status in ((0, "HEAD", 200), (100, "GET", 304)):
        c.expect(method=method, path="/v1/models", status=status, start_ms=ms, complete=True, end_ms=20, optional=True)
    expect_simple(c, 500, "body")
    return c


def pid_reuse():
    c = Case("a pid and an object's address used again by another program: two processes, two names")
    simple_stream(c, 0, "first")
    expect_simple(c, 0, "first", process="agent", pid=700)
    c.other("exit", 400, code=0, signal=0)
    c.comm = "helper"
    c.other("exec", 500, comm="helper", start_boottime_ns=c.at(490), argv=["helper", "--fast"])
    simple_stream(c, 600, "second")
    expect_simple(c, 600, "second", process="helper")
    return c


def exec_in_flight():
    c = Case("a program that runs another one with a call open: the call ends there, the new one's is its own")
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start() + block_start() + text_delta("cut")))
    c.other("exec", 200, comm="worker", argv=["worker"])
    c.comm = "worker"
    simple_stream(c, 500, "new program")
    c.expect(method="POST", status=200, complete=False, ttft_ms=50, text="cut", usage=anthropic_usage(21, 1, source="partial"))
    expect_simple(c, 500, "new program", process="worker")
    return c


def exit_pending():
    c = Case("killed with one call half answered, one unanswered, one done")
    simple_stream(c, 0, "done")
    expect_simple(c, 0, "done", exit=None)
    c.send(300, request())
    c.receive(350, stream_head() + chunk(message_start() + block_start() + text_delta("half")))
    c.ssl = 0x6600
    c.send(400, request())
    c.other("exit", 1000, code=0, signal=15)
    gone = {"complete": False, "end_reason": "process_exit", "exit": {"code": 0, "signal": 15}, "error": None}
    c.expect(status=200, ttft_ms=50, end_ms=700, text="half", usage=anthropic_usage(21, 1, source="partial"), **gone)
    c.expect(status=None, ttft_ms=None, end_ms=600, usage=None, **gone)
    return c


def object_reuse():
    c = Case("an object freed with a call open, and its address used again: the old call ends there")
    c.object("ssl_new", 0)
    c.send(10, request())
    c.receive(60, stream_head() + chunk(message_start() + block_start() + text_delta("left")))
    c.object("ssl_free", 90)
    c.object("ssl_new", 95)
    simple_stream(c, 100, "fresh")
    c.expect(status=200, complete=False, end_reason="connection_closed", ttft_ms=50, end_ms=80, text="left")
    expect_simple(c, 100, "fresh", mid_attach=False)
    return c


def local_shutdown():
    c = Case("the program shuts the connection down in the middle of an answer")
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start() + block_start() + text_delta("enough")))
    c.object("ssl_shutdown_by_local", 80)
    c.object("ssl_free", 81)
    c.expect(status=200, complete=False, end_reason="client_abort", ttft_ms=50, end_ms=80, error=None, text="enough")
    return c


def capped_request():
    c = Case("a request longer than the capture keeps: a choice, not a loss")
    body = {"model": MODEL, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "z" * 200000}]}
    r = request(body=body)
    c.send(0, r, kept=65536)
    c.receive(80, stream_head() + chunk(message_start(50000)))
    c.receive(150, chunk(block_start() + text_delta("ok")))
    c.receive(250, chunk(message_end(3)) + LAST)
    simple_stream(c, 900, "small")
    c.expect(**dict(GOOD, request_truncated=True, request_bytes=len(r), ttft_ms=150, text="ok", usage=anthropic_usage(50000, 3)))
    expect_simple(c, 900, "small", request_truncated=False)
    c.more["counters"] = {"lost_events": 0, "lost_bytes": 0}
    return c


def sse_line_endings():
    c = Case("CR, LF and CRLF ends of lines, cut in their middle; comments and a byte order mark")
    body = (b"\xef\xbb\xbf: hello\r\r" + chat_chunk({"role": "assistant", "content": ""}).replace(b"\n", b"\r")
            + chat_chunk({"content": "a"}).replace(b"\n\n", b"\r\n\r\n") + chat_chunk({"content": "b"}).replace(b"\n\n", b"\n\r\n")
            + chat_chunk({"content": "c"}).replace(b"\n\n", b"\r\n\n") + chat_chunk({}, "stop")
            + chat_chunk(usage={"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
                                "prompt_tokens_details": {"cached_tokens": 0}}) + event("[DONE]"))
    data = stream_head() + chunk(body) + LAST
    c.send(0, chat_request())
    cuts = [0] + [i + 1 for i, b in enumerate(data) if b == 13] + [len(data)]
    for a, b in zip(cuts, cuts[1:]):
        if a < b:
            c.receive(100, data[a:b])
    c.expect(**dict(GOOD, path="/v1/chat/completions", host="api.openai.com", provider="openai", model=GPT, ttft_ms=100,
                    end_ms=100, text="abc", stop_reason="stop",
                    usage={"input_uncached": 9, "cache_read": 0, "input_total": 9, "output_total": 4, "source": "reported"}))
    return c


def utf8_cut():
    c = Case("characters of two, three and four bytes cut between reads and between chunks")
    text = "né→🦊→é"
    data = chunk(block_start()) + chunk(text_delta(text)[:-20]) + chunk(text_delta(text)[-20:])
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start()))
    for i in range(0, len(data), 5):
        c.receive(100, data[i : i + 5])
    c.receive(140, chunk(message_end(7)) + LAST)
    c.expect(**dict(GOOD, ttft_ms=100, end_ms=140, text=text))
    return c


def unary_usage():
    c = Case("answers that are no streams: usage, no first token, cache shares; OpenAI counts the cache in, Anthropic does not")
    c.send(0, request(body={"model": MODEL, "max_tokens": 5, "messages": []}))
    c.receive(400, json_answer({"type": "message", "role": "assistant", "model": MODEL, "stop_reason": "max_tokens",
                                "content": [{"type": "text", "text": "uh"}],
                                "usage": {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10,
                                          "output_tokens": 2}}))
    c.expect(**dict(GOOD, stream=False, ttft_ms=None, decode_tok_s=None, end_ms=400, stop_reason="max_tokens",
                    usage=anthropic_usage(10, 2, 80, 10), cache_hit_rate=0.8, otps=5.0))
    c.ssl = 0x6600
    c.send(1000, chat_request(stream=False))
    c.receive(1500, json_answer({"object": "chat.completion", "model": GPT,
                                 "choices": [{"index": 0, "finish_reason": "stop",
                                              "message": {"role": "assistant", "content": "well"}}],
                                 "usage": {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130,
                                           "prompt_tokens_details": {"cached_tokens": 75},
                                           "completion_tokens_details": {"reasoning_tokens": 20}}}))
    c.expect(**dict(GOOD, path="/v1/chat/completions", host="api.openai.com", provider="openai", model=GPT, stream=False,
                    ttft_ms=None, end_ms=500, text="well", stop_reason="stop", cache_hit_rate=0.75,
                    usage={"input_uncached": 25, "cache_read": 75, "input_total": 100, "output_total": 30, "reasoning": 20,
                           "source": "reported"}))
    return c


def retry_group():
    c = Case("refused twice, on different connections, then answered: one logical call of three attempts")
    refused = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    for i, ms in enumerate((0, 700)):
        c.ssl = 0x6600 + i * 256
        c.send(ms, request(x_stainless_retry_count=i))
        c.receive(ms + 100, json_answer(refused, "529 Site Overloaded"))
        c.expect(status=529, error="overloaded_error", complete=True, end_ms=100, usage=None)
    c.ssl = 0x7700
    c.send(2000, request(x_stainless_retry_count=2))
    c.receive(2080, stream_head() + chunk(message_start() + block_start() + text_delta("at last")))
    c.receive(2100, chunk(message_end(5)) + LAST)
    c.expect(**dict(GOOD, ttft_ms=80, text="at last", usage=anthropic_usage(21, 5)))
    c.more["group"] = {"attempts": 3, "retry_wait_ms": [600, 1200], "ttft_from_first_attempt_ms": 2080}
    return c


def retry_at_once():
    c = Case("the connection goes without an answer, the next attempt is over before bytes of it could still come")
    c.ssl = 0x6600
    c.send(0, request())
    c.object("ssl_free", 50)
    c.ssl = 0x7700
    c.send(60, request())
    c.receive(90, json_answer({"type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
                               "content": [{"type": "text", "text": "there"}], "usage": {"input_tokens": 1, "output_tokens": 2}}))
    c.expect(status=None, complete=False, end_reason="connection_closed", end_ms=50, attempt=1, retry_of=None)
    c.expect(**dict(GOOD, start_ms=60, end_ms=30, text="there", attempt=2, retry_wait_ms=10))
    return c


def error_event():
    c = Case("an error inside a stream with status 200, then the object goes")
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start() + block_start() + text_delta("so f")))
    c.receive(90, chunk(anthropic_event("error", error={"type": "api_error", "message": "broke"})))
    c.object("ssl_free", 95)
    c.expect(status=200, complete=False, error="api_error", ttft_ms=50, text="so f", end_ms=[90, 95],
             usage=anthropic_usage(21, 1, source="partial"))
    return c


def tool_call_first():
    c = Case("a tool's arguments are tokens too, and no visible ones")
    tool = {"type": "tool_use", "id": "toolu_g", "name": "Read", "input": {}}
    c.send(0, request())
    c.receive(50, stream_head() + chunk(message_start() + block_start(0, tool)))
    for ms, part in ((100, ""), (120, '{"path": '), (160, '"x"}')):
        c.receive(ms, chunk(anthropic_event("content_block_delta", index=0,
                                            delta={"type": "input_json_delta", "partial_json": part})))
    c.receive(200, chunk(message_end(12, "tool_use")) + LAST)
    c.expect(**dict(GOOD, ttft_ms=120, ttft_visible_ms=None, ttft_kind="tool", last_token_ms=160, decode_tok_s=275,
                    stop_reason="tool_use", tool_calls=[{"id": "toolu_g", "name": "Read"}]))
    return c


def concurrent():
    c = Case("three calls at once on three connections of one thread")
    for i in range(3):
        c.ssl = 0x6600 + 256 * i
        c.send(10 * i, request())
    for i in (1, 2, 0):
        c.ssl = 0x6600 + 256 * i
        c.receive(100 + 10 * i, stream_head() + chunk(message_start() + block_start() + text_delta("n%d" % i)))
    for i in (2, 0, 1):
        c.ssl = 0x6600 + 256 * i
        c.receive(200 + 10 * i, chunk(message_end(2)) + LAST)
    for i in range(3):
        c.expect(**dict(GOOD, start_ms=10 * i, ttft_ms=100, end_ms=200, text="n%d" % i))
    return c


def close_delimited():
    c = Case("an answer without a length ends with the connection, and is then complete")
    c.send(0, request())
    c.receive(50, head(content_type="text/event-stream", connection="close") + message_start() + block_start())
    c.receive(80, text_delta("to the end"))
    c.receive(120, message_end(4))
    c.object("ssl_free", 130)
    c.expect(status=200, ttft_ms=80, text="to the end", complete="any", usage=anthropic_usage(21, 4), error=None)
    return c


def empty_reads():
    c = Case("calls that moved nothing are neither bytes nor an end")
    c.send(0, request())
    c.receive(20, b"")
    c.receive(80, stream_head() + chunk(message_start()))
    c.receive(85, b"")
    c.receive(100, chunk(block_start() + text_delta("on")))
    c.receive(101, b"")
    c.receive(120, chunk(message_end(3)) + LAST)
    c.expect(**dict(GOOD, ttfb_ms=80, ttft_ms=100, end_ms=120, text="on"))
    c.more["counters"] = {"lost_events": 0}
    return c


def hostile_names():
    c = Case("terminal escapes and bidi overrides in names: data, not commands", comm="ev\x1b[2Jil")
    simple_stream(c, 0, "x\x1b]0;title\x07\u202ey")
    expect_simple(c, 0, "x\x1b]0;title\x07\u202ey", process="ev\x1b[2Jil")
    c.send(500, request(path="/v1/messages?a\x1b[1m", x_note="b\x1b[5mc"))
    c.receive(600, json_answer({"type": "error", "error": {"type": "bad\x1b[8m", "message": "\rOK"}}, "400 No\x1b[2K"))
    c.expect(method="POST", status=400, error="bad\x1b[8m", complete=True, end_ms=100, usage=None)
    return c


def rpc(**message):
    return dict(message, jsonrpc="2.0")


def rpc_tool(number, name, **more):
    return rpc(method="tools/call", params=dict({"name": name, "arguments": {"text": "secret"}}, **more), id=number)


INITIALIZE = rpc(method="initialize", id=0, params={"protocolVersion": "2025-11-25", "capabilities": {},
                                                     "clientInfo": {"name": "agent", "version": "1"}})
INITIALIZED = rpc(id=0, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "files", "version": "2"}})
FILES = {"server": "files", "server_version": "2", "protocol_version": "2025-06-18", "kind": "client", "error_message": None,
         "end_reason": None, "lossy": None}


def lines(*messages):
    return b"".join(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages)


def mcp_stdio():
    c = Case("MCP over a child's standard input and output: answers out of order, an error, one without an answer")
    c.ssl = 0x7001
    c.other("ssl_new", 0, ssl=hex(c.ssl), stdio=True)
    c.send(0, lines(INITIALIZE))
    c.receive(40, b"starting\n" + lines(INITIALIZED)[:30])
    c.receive(41, lines(INITIALIZED)[30:])
    c.send(50, lines(rpc(method="notifications/initialized"), rpc_tool(1, "read"), rpc_tool("2", "write")))
    c.receive(70, lines(rpc(id="2", result={"content": [{"type": "text", "text": "secret"}], "isError": True})))
    c.receive(95, lines(rpc(id=9, method="roots/list"), rpc(id=1, result={"content": []})))
    c.send(96, lines(rpc(id=9, result={"roots": []}), rpc_tool(3, "hang")))
    c.object("ssl_shutdown_by_local", 300)
    c.object("ssl_free", 301)
    stdio = dict(FILES, transport="stdio", host=None, status=None)
    c.more["mcp"] = [
        dict(stdio, name="initialize", start_ms=0, dur_ms=41, error=None, request_id="0"),
        dict(stdio, name="tools/call read", tool="read", start_ms=50, dur_ms=45, error=None, request_id="1"),
        dict(stdio, name="tools/call write", tool="write", start_ms=50, dur_ms=20, error="tool_error", request_id="2"),
        # told a while later, when nobody was seen to ask
        dict(stdio, name="roots/list", start_ms=95, dur_ms=1, kind="server"),
        dict(stdio, name="tools/call hang", start_ms=96, dur_ms=204, end_reason="client_abort"),
    ]
    return c


def mcp_post(message, session=None):
    more = {"mcp_session_id": session} if session else {}
    return request("/mcp", message, host="tools.test", accept="application/json, text/event-stream", **more)


def mcp_http():
    c = Case("MCP over HTTP: no model calls; answers as a document, as events, and with an HTTP error")
    c.send(0, mcp_post(INITIALIZE))
    c.receive(10, stream_head(mcp_session_id="s1") + chunk(event(INITIALIZED, "message")))
    c.receive(11, LAST)
    c.send(20, mcp_post(rpc(method="notifications/initialized"), "s1"))
    c.receive(21, head("202 Accepted", content_length=0))
    c.send(30, mcp_post(rpc_tool(1, "slow", _meta={"progressToken": 1}), "s1"))
    c.receive(31, stream_head())
    progress = rpc(method="notifications/progress", params={"progressToken": 1, "progress": 1})
    c.receive(60, chunk(event(progress)))
    c.receive(230, chunk(event(rpc(id=1, result={"content": [{"type": "text", "text": "secret"}]}))))
    c.receive(240, LAST)
    c.send(250, mcp_post(rpc(method="tools/list", id=2), "s1"))
    c.receive(260, json_answer(rpc(id=2, error={"code": -32603, "message": "broken"})))
    c.send(270, mcp_post(rpc_tool(3, "gone"), "s1"))
    c.receive(280, head("404 Not Found", content_length=0))
    simple_stream(c, 1000, "a model's")
    expect_simple(c, 1000, "a model's")
    http = dict(FILES, transport="http", host="tools.test", status=200)
    c.more["mcp"] = [
        dict(http, name="initialize", start_ms=0, dur_ms=10, error=None),
        dict(http, name="tools/call slow", tool="slow", start_ms=30, dur_ms=200, error=None, progress=1),
        # --content, as the cases are replayed
        dict(http, name="tools/list", start_ms=250, dur_ms=10, error="-32603", error_message="broken"),
        dict(http, name="tools/call gone", tool="gone", start_ms=270, dur_ms=10, error="404", status=404),
    ]
    return c


def long_pings():
    c = Case("eleven minutes of pings before the first token: one whole call")
    c.send(0, request())
    c.receive(80, stream_head() + chunk(message_start()) + chunk(block_start()))
    for i in range(44):
        c.receive(15000 * (i + 1), chunk(anthropic_event("ping")))
    c.receive(665000, chunk(text_delta("at last")))
    c.receive(665100, chunk(message_end(7)) + LAST)
    c.expect(**dict(GOOD, ttfb_ms=80, ttft_ms=665000, end_ms=665100, text="at last", usage=anthropic_usage(21, 7)))
    return c


def silent_too_long():
    c = Case("silent for longer than --stale: told as evicted, and the next call of the connection is exact")
    c.send(0, request())
    c.receive(80, stream_head() + chunk(message_start() + block_start() + text_delta("so f")))
    late = 2000000
    c.receive(late, chunk(text_delta("ar")))
    c.receive(late + 100, chunk(message_end(9)) + LAST)
    simple_stream(c, late + 1000, "next")
    c.expect(**dict(GOOD, start_ms=0, ttft_ms=80, complete=False, end_reason="evicted", evicted=True))
    expect_simple(c, late + 1000, "next")
    return c


def running_counts():
    c = Case("counts so far in every event: the last ones count, never their sum; a stream that says none has none")
    c.send(0, chat_request(stream_options={"include_usage": True, "continuous_usage_stats": True}))
    c.receive(50, stream_head())
    for i, word in enumerate(("one ", "two ", "three"), 1):
        counts = {"prompt_tokens": 30, "completion_tokens": 7 * i, "total_tokens": 30 + 7 * i}
        c.receive(50 + 50 * i, chunk(chat_chunk({"content": word}, "stop" if i == 3 else None, usage=counts)))
    c.receive(220, chunk(event("[DONE]")) + LAST)
    c.expect(**dict(GOOD, path="/v1/chat/completions", host="api.openai.com", provider="openai", model=GPT, ttft_ms=100,
                    last_token_ms=200, text="one two three", usage={"input_total": 30, "output_total": 21, "source": "reported"}))
    path, host = "/v1beta/models/gemini-golden:streamGenerateContent?alt=sse", "generativelanguage.googleapis.com"
    c.ssl = 0x6600
    c.send(1000, request(path, {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}, host=host))
    c.receive(1050, stream_head())
    for ms, text, thought, said, thoughts in ((1200, "hm", True, 0, 90), (1300, "so", False, 2, 210), (1400, " be it", False, 6, 210)):
        part = {"text": text, "thought": True} if thought else {"text": text}
        counts = {"promptTokenCount": 50, "cachedContentTokenCount": 40, "thoughtsTokenCount": thoughts,
                  "candidatesTokenCount": said, "totalTokenCount": 50 + said + thoughts}
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if ms == 1400:
            candidate["finishReason"] = "STOP"
        c.receive(ms, chunk(event({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-golden"}, end="\r\n\r\n")))
    c.receive(1410, LAST)
    c.expect(**dict(GOOD, path=path, host=host, provider="gcp.gemini", model="gemini-golden", ttft_ms=200, ttft_visible_ms=300,
                    text="so be it", usage={"input_uncached": 10, "cache_read": 40, "input_total": 50, "output_total": 216,
                                            "reasoning": 210, "source": "reported"}))
    c.ssl = 0x7700
    c.send(2000, chat_request())
    c.receive(2100, stream_head() + chunk(chat_chunk({"role": "assistant", "content": ""}) + chat_chunk({"content": "hi"})))
    c.receive(2200, chunk(chat_chunk({}, "stop") + event("[DONE]")) + LAST)
    c.expect(**dict(GOOD, path="/v1/chat/completions", host="api.openai.com", provider="openai", model=GPT, ttft_ms=100,
                    text="hi", usage=None))
    return c


def large_last_event():
    c = Case("the event that ends a stream repeats the whole answer before the counts, and is larger than a read")
    c.send(0, request("/v1/responses", {"model": GPT, "stream": True, "input": "tell me all"}, host="api.openai.com"))
    c.receive(40, stream_head() + chunk(event({"type": "response.created", "response": {"model": GPT, "status": "in_progress"}},
                                              "response.created")))
    c.receive(150, chunk(event({"type": "response.output_text.delta", "delta": "all"}, "response.output_text.delta")))
    said = {"type": "message", "content": [{"type": "output_text", "text": "é all" * 4500}]}
    answer = {"model": GPT, "status": "completed", "output": [said],
              "usage": {"input_tokens": 80, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 40,
                        "output_tokens_details": {"reasoning_tokens": 15}}}
    last = chunk(event({"type": "response.completed", "response": answer}, "response.completed")) + LAST
    for i in range(0, len(last), 8192):
        c.receive(250, last[i : i + 8192])
    c.expect(**dict(GOOD, path="/v1/responses", host="api.openai.com", provider="openai", model=GPT, ttft_ms=150, end_ms=250,
                    text="all", stop_reason="completed",
                    usage={"input_uncached": 20, "cache_read": 60, "input_total": 80, "output_total": 40, "reasoning": 15,
                           "source": "reported"}))
    return c


# --- databases --------------------------------------------------------------------------------------------------------------


def pg(kind, body=b""):
    return kind + struct.pack(">I", len(body) + 4) + body


PG_READY = pg(b"Z", b"I")


def pg_bind(name, value):
    return pg(b"B", b"\0" + name + b"\0" + struct.pack(">HHI", 0, 1, len(value)) + value + b"\0\0") + pg(b"E", b"\0" * 5) + pg(b"S")


def db_postgres():
    c = Case("PostgreSQL: startup, simple and extended protocol; a lost piece costs what was prepared, and no more")
    c.object("ssl_new", 0)
    c.send(1, struct.pack(">II", 17, 0x30000) + b"user\0me\0\0")
    c.receive(2, pg(b"R", b"\0" * 4) + pg(b"S", b"standard_conforming_strings\0on\0") + PG_READY)
    c.send(10, pg(b"Q", b"SELECT * FROM t WHERE a IN (1, 2) AND b = 'VALUE\\' -- VALUE\0"))
    c.receive(15, pg(b"T", b"\0\0") + pg(b"D", b"\0\0"))
    c.receive(17, pg(b"C", b"SELECT 1\0") + PG_READY)
    c.send(20, pg(b"P", b"s1\0UPDATE t SET a = $1\0\0\0") + pg_bind(b"s1", b"VALUE"))
    c.receive(26, pg(b"1") + pg(b"2") + pg(b"C", b"UPDATE 7\0") + PG_READY)
    c.send(30, pg_bind(b"s1", b"VALUE"))
    c.receive(33, pg(b"2") + pg(b"E", b"SERROR\0C22P02\0MVALUE\0\0") + PG_READY)
    c.send(40, pg_bind(b"s1", b"VALUE"), lost=True)
    c.receive(44, pg(b"2") + pg(b"C", b"UPDATE 1\0") + PG_READY)
    c.send(50, pg_bind(b"s1", b"VALUE"))
    c.receive(52, pg(b"2") + pg(b"C", b"UPDATE 2\0") + PG_READY)
    c.send(60, pg_bind(b"s1", b"VALUE"))
    c.receive(65, pg(b"2") + pg(b"C", b"UPDATE 3\0") + PG_READY)
    c.more["db"] = [
        {"system": "postgresql", "shape": "SELECT * FROM t WHERE a IN (?) AND b = ?", "start_ms": 10, "dur_ms": 7, "rows": 1, "error": None},
        {"shape": "UPDATE t SET a = $1", "start_ms": 20, "dur_ms": 6, "rows": 7, "error": None},
        {"shape": "UPDATE t SET a = $1", "start_ms": 30, "dur_ms": 3, "rows": None, "error": "22P02", "complete": True},
        # Whether the client spoke before the lost piece or behind it was not seen until now.
        {"shape": None, "start_ms": 60, "dur_ms": 5, "rows": 3, "error": None},
    ]
    return c


def my(number, body):
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def db_mariadb():
    c = Case("MariaDB, met in the middle: a query, a prepared statement, an error, and an end during a command")
    end = b"\xfe\0\0\2\0"
    c.send(0, my(0, b"\3SELECT \"VALUE\", `a` FROM t LIMIT 10"))
    c.receive(4, my(1, b"\1") + my(2, b"\3def") + my(3, end) + my(4, b"\1x"))
    c.receive(5, my(5, b"\1y") + my(6, end))
    c.send(10, my(0, b"\x16DELETE FROM t WHERE a = ?"))
    c.receive(11, my(1, b"\0\5\0\0\0\0\0\1\0\0\0\0") + my(2, b"\3def") + my(3, end))
    c.send(20, my(0, b"\x17\5\0\0\0\0\1\0\0\0\0\1\xfe\0\5VALUE"))
    c.receive(23, my(1, b"\0\x0c\0\2\0\0\0"))
    c.send(30, my(0, b"\3SELECT VALUE("))
    c.receive(31, my(1, b"\xff\x28\x04#42000near 'VALUE('"))
    c.send(40, my(0, b"\3SELECT SLEEP(9)"))
    c.other("exit", 60, code=0, signal=9)
    c.more["db"] = [
        {"system": "mysql", "shape": "SELECT ?, `a` FROM t LIMIT ?", "start_ms": 0, "dur_ms": 5, "rows": 2, "error": None},
        {"shape": "DELETE FROM t WHERE a = ?", "start_ms": 20, "dur_ms": 3, "rows": 12, "error": None},
        {"shape": "SELECT VALUE(", "start_ms": 30, "dur_ms": 1, "rows": None, "error": "1064"},
        {"shape": "SELECT SLEEP(?)", "start_ms": 40, "dur_ms": 20, "rows": None, "error": None, "complete": False},
    ]
    return c


def resp(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def db_redis():
    c = Case("Redis: a pipeline, an error, a nested answer; a lost piece makes it one that is met in the middle")
    c.object("ssl_new", 0)
    c.send(1, resp(b"SET", b"VALUE", b"VALUE") + resp(b"client", b"info") + resp(b"GET", b"VALUE"))
    c.receive(3, b"+OK\r\n$5\r\nVA")
    c.receive(5, b"LUE\r\n-WRONGTYPE VALUE\r\n")
    c.send(10, resp(b"XREAD", b"VALUE"))
    c.receive(12, b"*1\r\n*2\r\n+a\r\n*1\r\n:1\r\n")
    c.send(20, resp(b"PING"))
    c.receive(21, b"+PONG\r\n", lost=True)
    c.send(30, resp(b"PING"))
    c.receive(31, b"+PONG\r\n")
    c.send(40, resp(b"PING"))
    c.receive(41, b"+PONG\r\n")
    c.send(50, resp(b"INCR", b"VALUE"))
    c.receive(52, b":1\r\n")
    c.more["db"] = [
        {"system": "redis", "shape": "SET ?", "start_ms": 1, "dur_ms": 2, "rows": None, "error": None},
        {"shape": "CLIENT INFO", "start_ms": 1, "dur_ms": 4},
        {"shape": "GET ?", "start_ms": 1, "dur_ms": 4, "error": "WRONGTYPE"},
        {"shape": "XREAD ?", "start_ms": 10, "dur_ms": 2, "error": None},
        {"shape": "PING", "start_ms": 20, "complete": False},
        {"shape": "PING", "start_ms": 30, "complete": False},
        {"shape": "INCR ?", "start_ms": 50, "dur_ms": 2, "error": None},
    ]
    return c


def http_called():
    c = Case("HTTP requests beside a model's call: routes, GraphQL, what was left out, and one that nobody answered")
    c.object("ssl_new", 0)
    c.send(10, request("/users/42.json?key=VALUE&op=Show", method="GET", host="api.test"), call_ms=9)
    c.receive(20, head(content_length=5) + b"he")
    c.receive(25, b"llo")
    simple_stream(c, 100, "one two three")
    c.send(400, request("/graphql", {"query": "query Feed($x: Int) { a }", "variables": {"x": "VALUE"}}, host="api.test"))
    c.receive(420, head("201 Created", transfer_encoding="chunked") + chunk(b"{}"))
    c.receive(430, LAST)
    c.send(500, request("/o/6ba7b810-9dad-11d1-80b4-00c04fd430c8", method="GET", host="api.test"))
    c.other("exit", 600, code=0, signal=9)
    expect_simple(c, 100, "one two three")
    common = {"side": "client", "protocol": "http/1.1", "host": "api.test", "lossy": False, "mid_attach": False}
    c.more["http"] = [
        dict(common, method="GET", path="/users/42.json?key=*&op=*", route="/users/:id.json", operation="Show", status=200,
             start_ms=9, ttfb_ms=11, dur_ms=16, request_bytes=65, response_bytes=43, complete=True, end_reason=None, tid=700),
        dict(common, method="POST", path="/graphql", route="/graphql", operation="Feed", status=201, start_ms=400, ttfb_ms=20,
             dur_ms=30, complete=True),
        dict(common, method="GET", route="/o/:id", operation=None, status=None, start_ms=500, ttfb_ms=None, dur_ms=100,
             response_bytes=None, complete=False, end_reason="process_exit", response_tid=None),
    ]
    return c


def http_served():
    c = Case("HTTP requests that are served, a model's call too: from the read's return to the write's; a lost piece; a client that goes")
    c.object("ssl_new", 0)
    c.receive(50, request("/users/42", method="GET", host="me"), call_ms=1)
    c.send(60, head(content_length=2) + b"ok", call_ms=59)
    c.receive(100, request(host="me"), call_ms=61)
    c.send(120, stream_head() + chunk(message_start() + block_start() + text_delta("hi")))
    c.send(140, chunk(message_end(2)) + LAST)
    c.receive(200, request("/a/b?op=42", method="GET", host="me"), call_ms=150)
    c.send(210, head("500 No", content_length=4))
    c.send(214, b"l")
    c.send(215, b"os", lost=True)
    c.send(216, b"t")
    c.receive(300, request("/large", method="GET", host="me"), call_ms=290)
    c.other("exit", 400, code=0, signal=0)
    common = {"side": "server", "protocol": "http/1.1", "host": "me", "mid_attach": False}
    c.more["http"] = [
        dict(common, path="/users/42", route="/users/:id", status=200, start_ms=50, ttfb_ms=10, dur_ms=10, complete=True, lossy=False),
        dict(common, method="POST", path="/v1/messages", status=200, start_ms=100, ttfb_ms=20, dur_ms=40, complete=True),
        dict(common, path="/a/b?op=42", route="/a/b", operation=None, status=500, start_ms=200, ttfb_ms=10, complete=False,
             end_reason="capture_loss", lossy=True, response_bytes=None),
        dict(common, path="/large", status=None, start_ms=300, dur_ms=100, complete=False, end_reason="process_exit"),
    ]
    return c


ALL = {
    "keepalive-two-calls": keepalive_two_calls, "send-in-pieces": send_in_pieces, "lost-chunk": lost_chunk,
    "websocket-lost": websocket_lost, "websocket-handshake-lost": websocket_handshake_lost,
    "two-lost-in-a-row": two_lost_in_a_row, "reordered": reordered, "late-delivery": late_delivery,
    "response-first": response_first, "mid-attach": mid_attach, "gzip": gzipped, "coding-cut": coding_cut,
    "unknown-coding": unknown_coding,
    "pipelined": pipelined, "interim-1xx": interim, "head-304": bodiless, "pid-reuse": pid_reuse,
    "exec-in-flight": exec_in_flight, "exit-pending": exit_pending, "object-reuse": object_reuse,
    "local-shutdown": local_shutdown, "capped-request": capped_request, "sse-line-endings": sse_line_endings,
    "utf8-cut": utf8_cut, "unary-usage": unary_usage, "retry-group": retry_group, "retry-at-once": retry_at_once, "error-event": error_event,
    "tool-call-first": tool_call_first, "concurrent": concurrent, "close-delimited": close_delimited,
    "empty-reads": empty_reads, "hostile-names": hostile_names, "mcp-stdio": mcp_stdio,
    "mcp-http": mcp_http, "long-pings": long_pings, "silent-too-long": silent_too_long,
    "running-counts": running_counts, "large-last-event": large_last_event,
    "db-postgres": db_postgres, "db-mariadb": db_mariadb, "db-redis": db_redis,
    "http-called": http_called, "http-served": http_served,
}


def files(name, case):
    lines = "".join(json.dumps(line) + "\n" for line in case.lines)
    expected = dict({"id": name, "title": case.title, "calls": case.calls}, **case.more)
    yield os.path.join(CASES, name, "events.jsonl"), lines
    yield os.path.join(CASES, name, "expected.json"), json.dumps(expected, indent=1) + "\n"


def main():
    stale = 0
    for name, build in ALL.items():
        for path, text in files(name, build()):
            if "--check" in sys.argv[1:]:
                with open(path) as f:
                    if f.read() != text:
                        print("%s is not what make_cases.py writes" % path)
                        stale = 1
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
