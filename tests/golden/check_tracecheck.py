#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Does tracecheck.py find what it is for? One good trace, and that trace with one thing wrong at a time. Speaks TAP."""

import copy
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
import tracecheck  # noqa: E402

LANE = 5000001
GOOD = {
    "displayTimeUnit": "ms",
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 7, "args": {"name": "agent"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": LANE, "args": {"name": "LLM requests"}},
        {"ph": "X", "name": "LLM m", "cat": "llm", "pid": 7, "tid": LANE, "ts": 10.5, "dur": 100.125, "args": {"model": "m"}},
        {"ph": "X", "name": "send", "cat": "llm,phase", "pid": 7, "tid": LANE, "ts": 10.5, "dur": 19.999},
        {"ph": "X", "name": "wait", "cat": "llm,phase", "pid": 7, "tid": LANE, "ts": 30.5, "dur": 80.124},
        {"ph": "i", "name": "retransmit", "cat": "net", "s": "t", "pid": 7, "tid": LANE, "ts": 40},
        {"ph": "C", "name": "tokens/s", "pid": 7, "tid": 7, "ts": 40, "args": {"n": 5}},
        {"ph": "s", "name": "spawn", "cat": "spawn", "id": 1, "pid": 7, "tid": LANE, "ts": 50},
        {"ph": "f", "name": "spawn", "cat": "spawn", "id": 1, "bp": "e", "pid": 7, "tid": LANE, "ts": 50},
    ],
    "metadata": {"agent_count": 1, "call_count": 1, "version": "0", "start_time": "", "host": "h", "kernel": "k", "command": "c",
                 "lost": {"lost_events": 0}},
}


def event(trace, i, **fields):
    trace["traceEvents"][i].update(fields)


BAD = {
    "a slice that overlaps in part": lambda t: event(t, 4, dur=90),
    "a slice that ends where the next one begins": lambda t: event(t, 3, dur=20),
    "a negative time": lambda t: event(t, 2, ts=-1),
    "a negative length": lambda t: event(t, 3, dur=-1),
    "four decimals": lambda t: event(t, 3, ts=10.5001),
    "a pid of 33 bits": lambda t: event(t, 2, pid=2**32),
    "pid 0": lambda t: event(t, 5, pid=0),
    "a phase nobody knows": lambda t: event(t, 3, ph="B"),
    "no length": lambda t: t["traceEvents"][3].pop("dur"),
    "empty args": lambda t: event(t, 3, args={}),
    "a colour name": lambda t: event(t, 3, cname="good"),
    "args on a phase": lambda t: event(t, 3, args={"a": 1}),
    "a phase with another name": lambda t: event(t, 3, name="sending"),
    "an empty name": lambda t: event(t, 0, args={"name": ""}),
    "no name of the process": lambda t: t["traceEvents"].pop(0),
    "no name of the lane": lambda t: t["traceEvents"].pop(1),
    "a counter that is text": lambda t: event(t, 6, args={"n": "5"}),
    "an instant without scope": lambda t: t["traceEvents"][5].pop("s"),
    "a large integer": lambda t: event(t, 2, args={"id": 2**53}),
    "an arrow without an end": lambda t: t["traceEvents"].pop(8),
    "an arrow with two beginnings": lambda t: t["traceEvents"].append(t["traceEvents"][7]),
    "an arrow that ends before it begins": lambda t: event(t, 8, ts=49),
    "an arrow whose end is first in the file": lambda t: t["traceEvents"].append(t["traceEvents"].pop(7)),
    "an arrow from nowhere": lambda t: event(t, 7, ts=5),
    "a wrong number of calls": lambda t: t["metadata"].update(call_count=2),
    "no lost counters": lambda t: t["metadata"].pop("lost"),
    "a lost counter that is null": lambda t: t["metadata"]["lost"].update(lost_events=None),
    "no host": lambda t: t["metadata"].pop("host"),
    "a unit nobody knows": lambda t: t.update(displayTimeUnit="us"),
}
BAD_TEXT = {
    "a cut file": lambda s: s[:-2],
    "NaN": lambda s: s.replace("100.125", "NaN"),
    "a surrogate escape": lambda s: s.replace('"agent"', '"\\ud83d\\ude00"'),
    "a raw DEL": lambda s: s.replace('"agent"', '"a\x7f"'),
    "a byte order mark": lambda s: "\ufeff" + s,
    "a trailing comma": lambda s: s.replace("}]", "},]"),
    "a key twice": lambda s: s.replace('"dur": 19.999', '"dur": 19.999, "dur": 19.999'),
}


def main():
    failed = 0

    def report(ok, name, problems):
        nonlocal failed
        failed += not ok
        print("%s tracecheck: %s" % ("ok" if ok else "not ok", name))
        for p in problems if not ok else ():
            print("#   " + p)

    problems = tracecheck.check(json.dumps(GOOD).encode())
    report(not problems, "a good trace", problems)
    for name, spoil in BAD.items():
        trace = copy.deepcopy(GOOD)
        spoil(trace)
        report(bool(tracecheck.check(json.dumps(trace).encode())), "finds " + name, ["nothing found"])
    for name, spoil in BAD_TEXT.items():
        report(bool(tracecheck.check(spoil(json.dumps(GOOD)).encode())), "finds " + name, ["nothing found"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
