#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How fast perfbpf reads. replay.py BUILD [MIB]

A streamed answer of MIB MiB (1024), of events of some 170 bytes, four to a read, in chunks of HTTP/1.1 and in frames of
HTTP/2: MB of plaintext a second of processor time. With valgrind: instructions a byte, of 8 MiB, and where most of them go."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
from check_hostile import DATA, END_HEADERS, END_STREAM, H2_ANSWER, HEADERS, Http2, frame, replay_lines  # noqa: E402
from make_cases import LAST, Case, block_start, chunk, message_end, message_start, request, stream_head, text_delta  # noqa: E402

WORDS = "the quick brown fox jumps over a lazy dog and says so to whoever listens".split()
EVENTS = 4000
PER_READ = 4


def reads():
    deltas = [text_delta(" %s %s" % (WORDS[i % len(WORDS)], WORDS[i * 7 % len(WORDS)])) for i in range(EVENTS)]
    return [b"".join(deltas[i:i + PER_READ]) for i in range(0, EVENTS, PER_READ)]


def http1():
    c = Case("")
    c.send(0, request())
    c.receive(1, stream_head() + chunk(message_start() + block_start()))
    for i, data in enumerate(reads()):
        c.receive(2 + i * 0.01, chunk(data))
    c.receive(100, chunk(message_end(EVENTS)) + LAST)
    return c, 2


def http2():
    c = Http2()
    c.ask(0, 1)
    c.receive(1, frame(HEADERS, END_HEADERS, 1, H2_ANSWER) + frame(DATA, 0, 1, message_start() + block_start()))
    for i, data in enumerate(reads()):
        c.receive(2 + i * 0.01, frame(DATA, 0, 1, data))
    c.receive(100, frame(DATA, END_STREAM, 1, message_end(EVENTS)))
    return c, 4


def capture(build, case, first, mib, path):
    """Bytes of plaintext in it."""
    body = sum(len(d) for d in reads())
    rounds = max(1, (mib << 20) // body)
    one = subprocess.run([f"{build}/tests/jsonl2cap"], input=replay_lines(case), stdout=subprocess.PIPE, check=True).stdout
    with open(path, "wb") as out:
        subprocess.run([f"{build}/tests/repeatcap", str(rounds), str(first), str(EVENTS // PER_READ)], input=one, stdout=out, check=True)
    return rounds * body


def command(build, path, folder):
    return [f"{build}/perfbpf", "replay", path, "-q", "-o", os.path.join(folder, "trace.json")]


def instructions(build, path, folder):
    out = os.path.join(folder, "callgrind")
    subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command(build, path, folder)],
                   check=True, stderr=subprocess.DEVNULL)
    text = subprocess.run(["callgrind_annotate", out], stdout=subprocess.PIPE, text=True, check=True).stdout
    total = int(re.search(r"([\d,]+) .*PROGRAM TOTALS", text).group(1).replace(",", ""))
    top = re.findall(r"^\s*([\d,]+) \(.*?\)\s+(\S+)", text.split("PROGRAM TOTALS", 1)[1], re.M)
    return total, [(int(n.replace(",", "")), re.sub(r"^\S*/|\?+:", "", name)) for n, name in top[:12]]


def measure(build, mib, rounds=3):
    """By protocol, the fastest of the rounds."""
    rows = {}
    for name, make in (("HTTP/1.1", http1), ("HTTP/2", http2)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.cap")
            size = capture(build, *make(), mib, path)
            spent = []
            for _ in range(rounds):
                before = os.times()
                subprocess.run(command(build, path, folder), check=True, stderr=subprocess.DEVNULL)
                after = os.times()
                spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
            rows[name] = {"mb": round(size / 1e6), "cpu_s": [round(min(spent), 2), round(max(spent), 2)], "mb_s": round(size / 1e6 / min(spent))}
    return rows


def table(rows):
    for name, r in rows.items():
        print(f"replay of {name}: {r['mb']} MB in {r['cpu_s'][0]:.2f}..{r['cpu_s'][1]:.2f} s of processor time: {r['mb_s']} MB/s", flush=True)


def main():
    build, mib = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1024
    table(measure(build, mib))
    if not shutil.which("valgrind"):
        return
    for name, make in (("HTTP/1.1", http1), ("HTTP/2", http2)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.cap")
            size = capture(build, *make(), 8, path)
            total, top = instructions(build, path, folder)
            print(f"{name}: {total / size:.1f} instructions a byte", flush=True)
            for n, where in top:
                print(f"  {n / size:6.2f}  {where}", flush=True)


if __name__ == "__main__":
    main()
