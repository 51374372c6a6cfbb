#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perfbpf adds to socket calls of programs that it traces, and of those that it does not. sockcost.py BUILD [ROUNDS]
(root). syscalls: untraced, while the end of every system call is traced (for pipes, or on kernels before 6.3).

Each line: nanoseconds of one write and one read of 100 bytes: the best of interleaved rounds, the median in brackets."""
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

KINDS = ("other", "unix", "http")
HOW = ("off", "untraced", "traced", "syscalls")


def run(build, kind, how):
    bench = subprocess.Popen(
        [os.path.join(build, "tests", "sockbench"), kind, "100000", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pid = bench.stdout.readline().split()[1]
    other = tracer = None
    with tempfile.TemporaryDirectory() as folder:
        if how != "off":
            if how != "traced":
                other = subprocess.Popen(["sleep", "1000"])
            target = str(other.pid if other else pid)
            err = os.path.join(folder, "err")
            with open(err, "w", encoding="utf-8") as f:
                tracer = subprocess.Popen(
                    [os.path.join(build, "perfbpf"), "-o", os.path.join(folder, "t.json"), "-p", target]
                    + (["--no-sock-length"] if how == "syscalls" else []),
                    stderr=f,
                )
            while "tracing" not in open(err, encoding="utf-8").read():
                time.sleep(0.02)
        out, _ = bench.communicate("\n")
        if tracer:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
            tracer.wait()
        if other:
            other.kill()
            other.wait()
    rows = [[float(n) for n in line.split()] for line in out.splitlines()]
    return [min(column) for column in zip(*rows)]


def measure(build, rounds):
    """Nanoseconds, of "KIND HOW": the best and the median of the rounds, and what a call costs more than untraced."""
    cells = [(kind, how) for kind in KINDS for how in HOW]
    found = {cell: [] for cell in cells}
    for _ in range(rounds):
        for cell in cells:
            found[cell].append(run(build, *cell))
    rows = {}
    for kind, how in cells:
        pair, plain = zip(*found[kind, how])
        off = found[kind, "off"]
        more = statistics.median((p - o[0]) / 2 for p, o in zip(pair, off))
        rows[f"{kind} {how}"] = {
            "pair_ns": [round(min(pair)), round(statistics.median(pair))],
            "added_ns_a_call": [round((min(pair) - min(o[0] for o in off)) / 2), round(more)],
            "getppid_ns": [round(min(plain), 1), round(statistics.median(plain), 1)],
            "getppid_added_ns": round(min(plain) - min(o[1] for o in off), 1),
        }
    return rows


def table(rows):
    print("socket calls (the best of the rounds, [the median])")
    for name, r in rows.items():
        (pair, pair_median), (more, more_median), (plain, plain_median) = r["pair_ns"], r["added_ns_a_call"], r["getppid_ns"]
        print(
            f"  {name:15} {pair:6} ns a pair [{pair_median}] {more:+6} a call [{more_median:+}]"
            f"   getppid {plain:5.1f} ns [{plain_median:.1f}] {r['getppid_added_ns']:+.1f}"
        )


if __name__ == "__main__":
    table(measure(sys.argv[1] if len(sys.argv) > 1 else "build", int(sys.argv[2]) if len(sys.argv) > 2 else 9))
