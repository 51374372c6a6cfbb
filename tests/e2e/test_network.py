#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the kernel knows of a call's way: who was late, what the network delayed, what came before the connection."""
import os

import e2e
from e2e import PYTHON, Client, Perfbpf, Server, call_slices, case, cases, check_nothing_lost, check_trace, request

CLIENTS = os.path.join(e2e.HERE, "clients")
BLOCK_MS = 300


def late_call(how, plain, knobs):
    server = Server(*(["--plain"] if plain else []))
    call = request("anthropic", "late", knobs)
    config = e2e.write_config(
        port=server.port, ca=None if plain else server.cert, block_ms=BLOCK_MS, how=how, **call
    )
    client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_nothing_lost(perfbpf)
    blocked = [line.split() for line in client.lines if line.startswith("blocked")]
    assert len(blocked) == 1, client.lines
    (args,) = [e["args"] for e in call_slices(check_trace(perfbpf))]
    return args, (int(blocked[0][2]) - int(blocked[0][1])) / 1e6


@cases([(f"{how}, {'plain' if plain else 'TLS'}", how, plain) for how in ("blocking", "asyncio") for plain in (True, False)])
def late(how, plain):
    """A blocked event loop is the client's time"""
    gap_ms = 2
    for _ in range(3):  # of a loaded machine's the best
        args, truth_ms = late_call(how, plain, f"tokens=250&gap_ms={gap_ms}")
        # From the first byte that came while it was blocked, which is a gap of the server later at most.
        error_ms = truth_ms - args.get("client_late_ms", 0)
        e2e.note(f"blocked {truth_ms:.3f} ms, late {args.get('client_late_ms')} ms, verdict {args['verdict']}")
        if -e2e.SLACK_MS <= error_ms - gap_ms <= max(e2e.SLACK_MS, 0.02 * truth_ms):
            break
    else:
        raise AssertionError(f"error {error_ms:.3f} ms")


@case
def not_late():
    """A client that reads at once is never late"""
    server = Server()
    call = request("anthropic", "prompt", "tokens=100&gap_ms=4&delay_ms=300")
    argv, env = e2e.client_command("session", server, [call], wait=True)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    (args,) = [e["args"] for e in call_slices(check_trace(perfbpf))]
    # What the machine itself takes to run it again, where that is long.
    assert args.get("client_late_ms", 0) <= 2 * e2e.SLACK_MS, args


e2e.run_cases()
