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

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 9


def run(kind, how):
    bench = subprocess.Popen(
        [os.path.join(BUILD, "tests", "sockbench"), kind, "100000", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
                    [os.path.join(BUILD, "perfbpf"), "-o", os.path.join(folder, "t.json"), "-p", target]
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


def main():
    cells = [(kind, how) for kind in ("other", "unix", "http") for how in ("off", "untraced", "traced", "syscalls")]
    found = {cell: [] for cell in cells}
    for _ in range(ROUNDS):
        for cell in cells:
            found[cell].append(run(*cell))
    for kind, how in cells:
        pair, plain = zip(*found[kind, how])
        off = min(p for p, _ in found[kind, "off"])
        print(
            f"{kind:6} {how:9} {min(pair):8.0f} ns a pair [{statistics.median(pair):.0f}] "
            f"{(min(pair) - off) / 2:+6.0f} a call   getppid {min(plain):5.1f} ns [{statistics.median(plain):.0f}]"
        )


main()
