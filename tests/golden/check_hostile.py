#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_hostile.py BUILD [NAME...]: bytes made to cost a lot. Decompression bombs, endless lines, huge documents, thousands of
streams, header floods: each is replayed in two sizes, the second four times the first. The peak of the memory is under the bound
that doc/design.md states, the processor time grows with the input and not with its square, what could not be read is said, and a
call that follows on the same connection is exact. Speaks TAP."""
import ctypes
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import check_cases  # noqa: E402
from make_cases import (GOOD, LAST, MODEL, Case, anthropic_usage, block_start, chunk, expect_simple, head,  # noqa: E402
                        message_end, message_start, request, simple_stream, stream_head, text_delta)

MIB = 1 << 20
RECORD = 16384  # LIMIT_CHUNK_BYTES: what the kernel puts into one record
GROWTH = 4
NEXT_MS = 60000


# --- compressors: Python has no brotli and no zstd of its own, but perfbpf is linked with both --------------------------


def brotli(data):
    lib = ctypes.CDLL("libbrotlienc.so.1")
    lib.BrotliEncoderMaxCompressedSize.restype = ctypes.c_size_t
    size = ctypes.c_size_t(lib.BrotliEncoderMaxCompressedSize(ctypes.c_size_t(len(data))))
    out = ctypes.create_string_buffer(size.value)
    if not lib.BrotliEncoderCompress(5, 24, 0, ctypes.c_size_t(len(data)), data, ctypes.byref(size), out):
        raise RuntimeError("brotli")
    return out.raw[:size.value]


def zstd(data):
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_compressBound.restype = lib.ZSTD_compress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(lib.ZSTD_compressBound(ctypes.c_size_t(len(data))))
    n = lib.ZSTD_compress(out, ctypes.c_size_t(len(out)), data, ctypes.c_size_t(len(data)), 3)
    return out.raw[:n]


def gzipped(data):
    return gzip.compress(data, 6, mtime=0)


CODERS = {"gzip": gzipped, "deflate": zlib.compress, "br": brotli, "zstd": zstd}


def encode(codings, data):
    for name in codings.split(", "):
        data = CODERS[name](data)
    return data


# --- one case -----------------------------------------------------------------------------------------------------------


class Hostile(Case):
    """The call that is expected last is the next one on the connection: it must be exact."""

    def pieces(self, direction, ms, data):
        for i in range(0, len(data), RECORD):
            self.move(direction, ms, data[i:i + RECORD])

    def answer(self, body, ms=0, **fields):
        """A call whose answer is `body`."""
        self.send(ms, request())
        self.pieces("s2c", ms + 100, head(content_length=len(body), **fields) + body)

    def next_call(self):
        simple_stream(self, NEXT_MS, "next")
        expect_simple(self, NEXT_MS, "next")
        return self


def bomb(codings, undecoded):
    def build(scale):
        c = Hostile("")
        body = encode(codings, b'{"a":"' + bytes(scale * 16 * MIB))
        c.answer(body, content_type="application/json", content_encoding=codings)
        c.expect(status=200, complete=True, undecoded=undecoded, usage=None, lossy=False, end_ms=100)
        return c.next_call()
    return build


def slow_bomb(coding):
    """Under the ratio that gives bombs away: what counts is how much came out. Members, or frames, follow each other."""
    def build(scale):
        c = Hostile("")
        line = b": " + b"x" * 400
        block = encode(coding, b"".join(line + b"%016x\n" % (i * 0x9e3779b97f4a7c15 % (1 << 64)) for i in range(10000)) + b"\n")
        body = encode(coding, message_start() + block_start() + text_delta("slow")) + 18 * scale * block
        body += encode(coding, message_end(3))
        c.answer(body, content_type="text/event-stream", content_encoding=coding)
        whole = scale == 1  # 72 MiB; else over DECODE_OUT_MAX
        c.expect(status=200, complete=True, undecoded=None if whole else coding, ttft_ms=100, text="slow",
                 usage=anthropic_usage(21, 3 if whole else 1, source="reported" if whole else "partial"))
        return c.next_call()
    return build


def long_lines(scale):
    """SSE events of 1 MiB: all are read."""
    c = Hostile("")
    n = 6 * scale
    body = message_start() + block_start() + n * text_delta("x" * MIB) + message_end(77)
    c.answer(body, content_type="text/event-stream")
    c.expect(status=200, complete=True, undecoded=None, ttft_ms=100, chunks=n, usage=anthropic_usage(21, 77), lossy=False)
    return c.next_call()


def endless(content_type, begin, fill, mib=9):
    """One line, element or document that does not end: passed over."""
    def build(scale):
        c = Hostile("")
        c.answer(begin + fill * (mib * scale * MIB // len(fill)), content_type=content_type)
        c.expect(status=200, complete=True, usage=None,
                 undecoded="json over 8 MiB" if content_type == "application/json" and begin[:1] == b"{" else "event over 8 MiB")
        return c.next_call()
    return build


def long_request(scale):
    """A request of 25 and 100 MiB (where no kernel cuts it): what it asks for is read all the same, for it is not kept."""
    c = Hostile("")
    turns = 25 * scale
    body = {"model": MODEL, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "y" * MIB}] * turns}
    c.pieces("c2s", 0, request(body=body))
    c.receive(100, stream_head() + chunk(message_start() + block_start() + text_delta("ok") + message_end(2)) + LAST)
    c.expect(**dict(GOOD, text="ok", usage=anthropic_usage(21, 2), request={"messages": turns, "max_tokens": 9}))
    return c.next_call()


def many_nodes(scale):
    """Documents under every limit of bytes that are as dear as can be in memory."""
    c = Hostile("")
    body = b'{"type":"message","usage":{"input_tokens":1,"output_tokens":2},"content":[' + b"0," * 900000 + b"0]}"
    for i in range(2 * scale):
        c.answer(body, ms=1000 * i, content_type="application/json")
        c.expect(status=200, complete=True, undecoded=None, usage=anthropic_usage(1, 2))
    return c.next_call()


def deep(scale):
    c = Hostile("")
    c.answer(b'{"content":' + b"[" * (2 * scale * MIB - 100), content_type="application/json")
    c.expect(status=200, complete=True, usage=None)
    return c.next_call()


def long_head(scale):
    """A head over 64 KiB ends the connection for us; the next call is on another one."""
    c = Hostile("")
    c.pieces("c2s", 0, request(x_long="h" * (4 * scale * MIB)))
    c.pieces("s2c", 100, stream_head(x_long="h" * (4 * scale * MIB)) + chunk(message_start() + message_end(1)) + LAST)
    c.ssl += 16
    return c.next_call()


def no_protocol(scale):
    """Met in the middle, bytes of no protocol: what is looked for in them costs no more than looking."""
    c = Hostile("")
    noise = random.Random(1).randbytes(4 * scale * MIB)
    c.pieces("c2s", 0, noise[:len(noise) // 4])
    c.pieces("s2c", 10, noise[len(noise) // 4:])
    return c.next_call()


# --- HTTP/2 ---------------------------------------------------------------------------------------------------------------

DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
H2_GOOD = dict(GOOD, protocol="http/2")


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def string(data):
    n = len(data)
    if n < 127:
        return bytes([n]) + data
    out, n = b"\x7f", n - 127
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n]) + data


def fields(first=b"\0", **pairs):
    """Literals; `first` says whether they are kept in the table. pseudo_x is :x."""
    return b"".join(first + string(k.replace("pseudo_", ":").replace("_", "-").encode()) + string(v) for k, v in pairs.items())


H2_OPEN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
H2_REQUEST = fields(pseudo_method=b"POST", pseudo_scheme=b"https", pseudo_path=b"/v1/messages",
                    pseudo_authority=b"api.anthropic.com", content_type=b"application/json")
H2_BODY = request().split(b"\r\n\r\n", 1)[1]
H2_ANSWER = fields(pseudo_status=b"200", content_type=b"text/event-stream")


class Http2(Hostile):
    def __init__(self, title=""):
        super().__init__(title)
        self.send(0, H2_OPEN)
        self.receive(0, frame(SETTINGS, 0, 0))

    def ask(self, ms, stream):
        self.send(ms, frame(HEADERS, END_HEADERS, stream, H2_REQUEST) + frame(DATA, END_STREAM, stream, H2_BODY))

    def begin(self, ms, stream):
        self.receive(ms, frame(HEADERS, END_HEADERS, stream, H2_ANSWER) +
                     frame(DATA, 0, stream, message_start() + block_start() + text_delta("two")))

    def end(self, ms, stream):
        self.receive(ms, frame(DATA, END_STREAM, stream, message_end(5)))

    def call(self, ms, stream):
        self.ask(ms, stream)
        self.begin(ms + 50, stream)
        self.end(ms + 90, stream)

    def expect_call(self, ms, ttft=50, end=90):
        self.expect(**dict(H2_GOOD, start_ms=ms, ttft_ms=ttft, end_ms=end, text="two", usage=anthropic_usage(21, 5)))

    def next_call(self):
        self.call(NEXT_MS, 999999)
        self.expect_call(NEXT_MS)
        return self


def streams_in_turn(scale):
    """2,500 and 10,000 streams, 100 at a time, all interleaved: each is exact."""
    c = Http2()
    for first in range(0, 2500 * scale, 100):
        ids = [2 * n + 1 for n in range(first, first + 100)]
        for part, do in enumerate((c.ask, c.begin, c.end)):
            for i, stream in enumerate(ids):
                do(first + part * 30 + i * 0.001, stream)
        for i in range(100):
            c.expect_call(first + i * 0.001, 30, 60)
    return c.next_call()


def streams_open(scale):
    """2,500 and 10,000 streams open at once: 4,096 of them are told; and when they are gone the next one is."""
    c = Http2()
    ids = range(1, 2 * 2500 * scale, 2)
    for i, stream in enumerate(ids):
        c.ask(i * 0.001, stream)
    for stream in ids:
        c.send(1000, frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
    for i in range(min(len(ids), 4096)):
        c.expect(protocol="http/2", start_ms=i * 0.001, complete=False, usage=None)
    return c.next_call()


def half_answers(scale):
    """Streams whose documents come in, compressed, and do not end: what all of them hold together is bounded."""
    c = Http2()
    body = gzipped(b'{"content":"' + b"".join(b"%08x" % i + b"z" * 400 for i in range(17000)))
    answer = fields(pseudo_status=b"200", content_type=b"application/json", content_encoding=b"gzip")
    for n in range(60 * scale):
        c.ask(n, 2 * n + 1)
        c.receive(n + 0.5, frame(HEADERS, END_HEADERS, 2 * n + 1, answer))
        for i in range(0, len(body), RECORD):
            c.pieces("s2c", n + 0.5, frame(DATA, 0, 2 * n + 1, body[i:i + RECORD]))
        c.expect(status=200, usage=None, complete=False)
    for n in range(60 * scale):
        c.receive(20000, frame(RST_STREAM, 0, 2 * n + 1, b"\0\0\0\x08"))
    return c.next_call()


def table_flood(scale):
    """One field of 2 KiB in the table, and header blocks that name it 60,000 times: 120 MB of fields each."""
    c = Http2()
    c.send(1, frame(HEADERS, END_HEADERS | END_STREAM, 1, H2_REQUEST + fields(b"\x40", n=b"v" * 2000)))
    c.receive(2, frame(HEADERS, END_HEADERS | END_STREAM, 1, fields(pseudo_status=b"204")))
    for n in range(3 * scale):
        c.pieces("c2s", 3 + n, frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 3, b"\xbe" * 60000))
        c.receive(3.5 + n, frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 3, fields(pseudo_status=b"204")))
    return c.next_call()


def size_flood(scale):
    """Header blocks that change the size of the table, and nothing else."""
    c = Http2()
    for n in range(10 * scale):
        c.pieces("c2s", 1 + n, frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, b"\x20\x3f\xe1\x1f" * 15000))
        c.receive(1.5 + n, frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, fields(pseudo_status=b"204")))
    return c.next_call()


def continuation_flood(scale):
    """A header block that goes on and on; what follows it is read."""
    c = Http2()
    part = frame(CONTINUATION, 0, 1, b"\0\1a\1b")
    c.send(1, frame(HEADERS, END_STREAM, 1, H2_REQUEST))
    c.pieces("c2s", 2, part * (50000 * scale))
    c.send(3, frame(CONTINUATION, END_HEADERS, 1))
    c.receive(4, frame(RST_STREAM, 0, 1, b"\0\0\0\x0b"))
    return c.next_call()


# --- WebSocket ------------------------------------------------------------------------------------------------------------


def ws_frame(payload, client=False, compressed=False):
    """A text message. The mask is all zeros."""
    n, mask = len(payload), 0x80 if client else 0
    size = bytes([mask | n]) if n < 126 else bytes([mask | 126]) + n.to_bytes(2, "big") if n < 65536 else bytes([mask | 127]) + n.to_bytes(8, "big")
    return bytes([0xC1 if compressed else 0x81]) + size + bytes(4 if client else 0) + payload


class Socket(Hostile):
    """Responses over a WebSocket with permessage-deflate, of which what is no bomb makes no use."""

    def __init__(self):
        super().__init__("")
        self.send(0, b"GET /v1/responses HTTP/1.1\r\nHost: api.openai.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        self.receive(5, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")

    def say(self, ms, **document):
        self.receive(ms, ws_frame(json.dumps(document).encode()))

    def call(self, ms, between=b""):
        create = {"type": "response.create", "model": "gpt-x", "input": [{"role": "user", "content": "hi"}]}
        self.send(ms, ws_frame(json.dumps(create).encode(), client=True))
        self.say(ms + 10, type="response.created", response={"id": "r", "model": "gpt-x", "status": "in_progress"})
        self.pieces("s2c", ms + 20, between)
        self.say(ms + 50, type="response.output_text.delta", delta="two")
        self.say(ms + 90, type="response.completed", response={
            "id": "r", "status": "completed",
            "usage": {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 6}})

    def next_call(self):
        self.call(NEXT_MS)
        self.expect(protocol="websocket", status=200, start_ms=NEXT_MS, ttft_ms=50, end_ms=90, text="two", complete=True, chunks=1,
                    undecoded=None, usage={"input_uncached": 12, "cache_read": 8, "output_total": 6, "source": "reported"})
        return self


def socket_bomb(scale):
    c = Socket()
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = z.compress(bytes(16 * scale * MIB)) + z.flush(zlib.Z_SYNC_FLUSH)
    c.call(100, ws_frame(packed[:-4], compressed=True))
    c.expect(protocol="websocket", complete=True, undecoded="permessage-deflate", ttft_ms=None, chunks=None)
    return c.next_call()


def socket_message(scale):
    c = Socket()
    c.call(100, ws_frame(b'{"type":"' + b"x" * (9 * scale * MIB) + b'"}'))
    c.expect(protocol="websocket", complete=True, undecoded="websocket", ttft_ms=None, chunks=None)
    return c.next_call()


# --- running --------------------------------------------------------------------------------------------------------------

# name, how it is built, and the most memory that it may take, in MiB; doc/design.md has the reasons.
ALL = [
    ("gzip bomb", bomb("gzip", "gzip"), 24),
    ("deflate bomb", bomb("deflate", "deflate"), 24),
    ("br bomb", bomb("br", "br"), 40),
    ("zstd bomb", bomb("zstd", "zstd"), 40),
    ("gzip in gzip bomb", bomb("gzip, gzip", "gzip"), 24),
    ("gzip in br bomb", bomb("gzip, br", "gzip"), 40),
    ("br in gzip bomb", bomb("br, gzip", "br"), 40),
    ("zstd in br bomb", bomb("zstd, br", "zstd"), 40),
    ("zstd in gzip in zstd bomb", bomb("zstd, gzip, zstd", "zstd"), 40),
    ("slow gzip bomb", slow_bomb("gzip"), 24),
    ("slow zstd bomb", slow_bomb("zstd"), 40),
    ("SSE events of 1 MiB", long_lines, 40),
    ("endless SSE line", endless("text/event-stream", b"data: ", b"x"), 40),
    ("endless SSE event", endless("text/event-stream", b"data: {\n", b"data: [1,2,3\n", 16), 40),
    ("endless JSON line", endless("application/x-ndjson", b'{"a":"', b"x"), 40),
    ("endless JSON element", endless("application/json", b'[{"a":"', b"x"), 40),
    ("JSON document of 100 MiB", endless("application/json", b'{"a":[', b"1,", 25), 40),
    ("JSON request of 100 MiB", long_request, 24),
    ("JSON of a million values", many_nodes, 128),
    ("deep JSON", deep, 40),
    ("heads of megabytes", long_head, 24),
    ("bytes of no protocol", no_protocol, 24),
    ("10,000 HTTP/2 streams in turn", streams_in_turn, 64),
    ("10,000 HTTP/2 streams at once", streams_open, 64),
    ("half answers on 240 streams", half_answers, 160),
    ("HPACK table flood", table_flood, 24),
    ("HPACK size flood", size_flood, 24),
    ("CONTINUATION flood", continuation_flood, 24),
    ("WebSocket bomb", socket_bomb, 40),
    ("WebSocket messages of 9 and 36 MiB", socket_message, 40),
]


def peak_resident(child):
    """VmHWM of a running process, in MiB: its peak so far, looked at until it ends."""
    peak = 0
    while child.poll() is None:
        try:
            with open(f"/proc/{child.pid}/status", encoding="ascii", errors="replace") as f:
                peak = max([peak, *(int(n) for n in re.findall(r"VmHWM:\s+(\d+)", f.read()))])
        except OSError:
            break
        time.sleep(0.002)
    return peak / 1024


def replay_lines(case):
    return "".join(json.dumps(line) + "\n" for line in case.lines).encode()


def replay(build, case, folder):
    """What came out, processor seconds, peak in MiB."""
    capture, calls, trace = (os.path.join(folder, n) for n in ("x.cap", "calls", "trace.json"))
    with open(capture, "wb") as out:
        subprocess.run([f"{build}/tests/jsonl2cap"], input=replay_lines(case), stdout=out, check=True)
    before = os.times()
    with open(os.path.join(folder, "err"), "w+b") as err:
        child = subprocess.Popen([f"{build}/perfbpf", "replay", capture, "-q", "--content", "-c", calls, "-o", trace], stderr=err)
        peak = peak_resident(child)
        after = os.times()
        err.seek(0)
        text = err.read().decode(errors="replace")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    if child.returncode:
        return [f"exit status {child.returncode}: {text[-600:]}"], spent, peak
    with open(calls, encoding="utf-8") as f:
        have = [json.loads(line) for line in f]
    os.unlink(capture)
    have = sorted((c for c in have if c.get("type", "call") == "call"), key=lambda c: (c["start_ms"], c["id"]))
    problems = check_cases.match_calls(case.calls, have)
    check_cases.check_sanity(have, problems)
    return problems, spent, peak


def check(build, name, make, limit, folder):
    spent, peaks, problems = [], [], []
    for scale in (1, GROWTH):
        found, seconds, peak = replay(build, make(scale), folder)
        problems += [f"size {scale}: {p}" for p in found]
        spent.append(seconds)
        peaks.append(peak)
    if max(peaks) > limit:
        problems.append(f"{max(peaks):.1f} MiB of memory, more than {limit}")
    # What a run takes however small it is counts for nothing; the square of 4 is 16.
    if spent[1] > 2 * GROWTH * max(spent[0], 0.05):
        problems.append(f"{spent[0]:.2f} s, then {spent[1]:.2f} s for {GROWTH} times as much: not linear")
    print(f"{'not ok' if problems else 'ok'} {name}: {peaks[0]:.0f} and {peaks[1]:.0f} MiB, {spent[0]:.2f} and {spent[1]:.2f} s")
    for p in problems[:10]:
        print("#   " + p[:600])
    sys.stdout.flush()
    return not problems


def main():
    build, names = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        good = [check(build, *row, folder) for row in ALL if not names or row[0] in names]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
