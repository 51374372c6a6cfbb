#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Children on standard input and output: what speaks JSON-RPC is seen from its first message on, over whatever it is
carried; what does not is not copied, and system calls are left alone again."""
import os
import sys
import time

import e2e
from e2e import PYTHON, Client, Perfbpf, cases, until

SCRIPT = os.path.join(e2e.HERE, "clients", "stdio.py")
TRACED, LEFT = "system calls are traced", "system calls are not traced any more"


def spans(perfbpf):
    return [e for e in perfbpf.trace()["traceEvents"] if e.get("args", {}).get("transport") == "stdio"]


def trace(kind, count, how, *options):
    client = Client([PYTHON, SCRIPT, kind, str(count), *how])
    if how:
        time.sleep(0.3)  # its child runs
    perfbpf = Perfbpf(*options, "-v", "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    lost = {k: v for k, v in perfbpf.lost().items() if k != "untraced_targets"}
    assert not lost, lost
    return perfbpf


@cases(
    [
        ("pipes", "pipes"),
        ("Unix sockets", "sockets"),
        ("asyncio", "asyncio"),
        ("pipes, as on an older kernel", "pipes", "--no-sock-length"),
        ("Unix sockets, as on an older kernel", "sockets", "--no-sock-length"),
    ]
)
def from_the_start(kind, *options):
    """JSON-RPC from the first message on"""
    perfbpf = trace(kind, 6, [], *options)
    told = [(s["name"], s["args"].get("server")) for s in spans(perfbpf)]
    # The name is in the answer to the first message, which is no span.
    assert told == [(f"tools/call tool{i}", "s") for i in range(1, 6)], f"{told}; {perfbpf.err()}"
    assert (TRACED in perfbpf.err()) == (kind != "sockets" or "--no-sock-length" in options or not e2e.kernel_has("sock_send_length")), perfbpf.err()


@cases([("pipes", "pipes"), ("Unix sockets", "sockets")])
def in_the_middle(kind):
    """JSON-RPC with a child that was there before"""
    perfbpf = trace(kind, 6, ["early"])
    names = [s["name"] for s in spans(perfbpf)]
    assert names == [f"tools/call tool{i}" for i in range(1, 6)], f"{names}; {perfbpf.err()}"


@cases([("pipes", "pipes"), ("Unix sockets", "sockets")])
def other_words(kind):
    """children that speak something else are not copied"""
    client = Client([PYTHON, SCRIPT, kind, "3", "cat"])
    perfbpf = Perfbpf("-v", "-p", client.pid)
    client.go()
    if kind == "pipes":
        until(lambda: LEFT in perfbpf.err(), 10, "system calls are left alone")
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert (TRACED in perfbpf.err()) == (kind == "pipes"), perfbpf.err()
    assert not spans(perfbpf)
    assert not [line for line in perfbpf.err().splitlines() if line.startswith("  python3[")], perfbpf.err()


if __name__ == "__main__":
    sys.exit(e2e.run_cases())
