#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""-f: a span for every call of a function."""
import json
import os
import subprocess

import e2e
from e2e import BUILD, PERFBPF, Client, Perfbpf, Skip, case, cases, directory, note

PLAIN = os.path.join(BUILD, "tests", "functarget")
UNWINDING = os.path.join(BUILD, "tests", "functarget-unwinding")
GO = os.path.join(BUILD, "tests", "go", "client")


def run(program, *work, functions=(), options=(), status=0):
    target = Client([program, *work])
    flags = [word for f in functions for word in ("-f", f)]
    perfbpf = Perfbpf("-p", target.pid, *flags, *options, calls=False)
    target.go()
    assert target.finish() == 0, "the program did not survive"
    assert perfbpf.end() == status, perfbpf.err()
    return json.loads(target.lines[-1]), perfbpf


def named(program, *symbols):
    return [f"{os.path.basename(program)}:{s}" for s in symbols]


def spans(perfbpf, name):
    return [e for e in perfbpf.trace()["traceEvents"] if e.get("cat") == "function" and e["name"] == name]


def facts(perfbpf):
    return {f["function"].split(":", 1)[1]: f for f in perfbpf.trace()["metadata"]["functions"]}


def check_spans(perfbpf, program, truth):
    recursions, works = spans(perfbpf, "recurse"), spans(perfbpf, "work")
    assert sorted(e["args"]["depth"] for e in recursions) == list(range(20)), recursions
    widest = max(recursions, key=lambda e: e["dur"])
    assert widest["args"]["depth"] == 0 and all(e["ts"] >= widest["ts"] for e in recursions), recursions
    assert len(works) == 41 and len({e["args"]["os_tid"] for e in works}) == 5, len(works)
    told = sum(e["dur"] for e in works) / 1000
    note(f"work: {told:.3f} ms, by the program itself {truth['work_ms']:.3f} ms")
    assert truth["work_ms"] - 0.5 <= told <= truth["work_ms"] * 1.1 + e2e.slack(), (told, truth)
    # outer ends with a jump into inner: a return probe sees both end, where ends are probed it has ended by then.
    (outer,), (inner,) = spans(perfbpf, "outer"), spans(perfbpf, "inner")
    assert inner["dur"] >= 5000, inner
    over_us = (inner["ts"] + inner["dur"]) - (outer["ts"] + outer["dur"])
    assert (over_us > 4000) == (program == UNWINDING), (outer, inner)
    assert all(e["args"]["binary"] == os.path.basename(program) for e in works + recursions)


@cases([(f"{kind}, {mode}", program, mode) for kind, program in (("plain", PLAIN), ("code that may be unwound", UNWINDING))
        for mode in ("session", "multi", "perf")])
def calls(program, mode):
    """recursion, threads, tail calls"""
    truth, perfbpf = run(program, "recurse", "tail", "threads",
                         functions=named(program, "recurse", "work", "outer", "inner"), options=("--attach", mode))
    assert truth["recursions"] == 20, truth
    check_spans(perfbpf, program, truth)
    assert {k: (f["state"], f["calls"], f["calls_without_span"]) for k, f in facts(perfbpf).items()} == {
        "recurse": ("traced", 20, 0), "work": ("traced", 41, 0), "outer": ("traced", 1, 0), "inner": ("traced", 1, 0)}
    assert not perfbpf.lost(), perfbpf.lost()


@case
def unwound():
    """a thread that unwinds its stack through a traced function lives, and its calls are not told as ended"""
    truth, perfbpf = run(UNWINDING, "unwind", "recurse", functions=named(UNWINDING, "unwound", "leave", "recurse"))
    assert truth["left"] == 10, truth
    assert facts(perfbpf)["unwound"]["calls"] == 10 and facts(perfbpf)["leave"]["calls"] == 10
    assert not spans(perfbpf, "unwound") and not spans(perfbpf, "leave"), "they never returned"
    assert len(spans(perfbpf, "recurse")) == 20


@case
def another_program():
    """an exec within a traced function: what the next program calls is not inside of it"""
    _, perfbpf = run(PLAIN, *["again"] * 20, "recurse", functions=named(PLAIN, "again", "recurse"))
    assert facts(perfbpf)["again"]["calls"] == 20
    assert not spans(perfbpf, "again"), "they never returned"
    assert sorted(e["args"]["depth"] for e in spans(perfbpf, "recurse")) == list(range(20)), spans(perfbpf, "recurse")
    assert not perfbpf.lost(), perfbpf.lost()


@case
def too_often():
    """a function that is called too often is let alone, and that is said"""
    _, perfbpf = run(PLAIN, *["hot"] * 20, "recurse", functions=named(PLAIN, "hot", "recurse"))
    hot = facts(perfbpf)["hot"]
    note(f"of 4,000,000 calls {hot['calls']} were counted, {len(spans(perfbpf, 'hot'))} told")
    assert hot["state"] == "stopped" and "times a second" in perfbpf.err(), (hot, perfbpf.err())
    assert perfbpf.lost().get("missed_returns", 0) <= 1, ("only of what was open when the probes went", perfbpf.lost())
    told = [e["ts"] for e in spans(perfbpf, "hot")]
    # 100 in each tenth of a second, until perfbpf had a turn to see how often it is called.
    assert len(told) <= 100 * ((max(told) - min(told)) // 100_000 + 2) and hot["calls"] < 400_000, (len(told), hot)
    assert len(spans(perfbpf, "recurse")) == 20
    assert hot["calls_without_span"] >= hot["calls"] - len(spans(perfbpf, "hot")) - 1 or perfbpf.lost(), hot


@case
def refused():
    """no such function, no such file, usage"""
    _, perfbpf = run(PLAIN, "tail", functions=[*named(PLAIN, "nothing", "inner"), "no.such.file:f"],
                     options=("--strict",), status=3)
    assert [facts(perfbpf)[k]["state"] for k in ("nothing", "inner", "f")] == ["refused", "traced", "not_mapped"]
    assert "no symbol of the file has that name" in perfbpf.err()
    assert "no traced process maps a file of that name" in perfbpf.err()
    assert perfbpf.lost() == {"untraced_targets": 2}, perfbpf.lost()
    for bad in ("main", ":main", "a:", "dir/:f"):
        done = subprocess.run([PERFBPF, "-f", bad, "-d", "1"], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
        assert done.returncode == 2 and "BINARY:SYMBOL" in done.stderr, (bad, done)


@case
def two_names():
    """a function that is asked for by two names is told once, and nothing is lost"""
    _, perfbpf = run(PLAIN, "threads", functions=[*named(PLAIN, "work"), f"{PLAIN}:work", *named(PLAIN, "work")])
    assert len(spans(perfbpf, "work")) == 40 and perfbpf.lost() == {"untraced_targets": 1}, perfbpf.lost()
    assert f"it is the function of -f {named(PLAIN, 'work')[0]}" in perfbpf.err(), perfbpf.err()
    assert [f["calls"] for f in perfbpf.trace()["metadata"]["functions"]] == [40, 0]


@case
def of_go():
    """functions of Go programs are refused"""
    if not os.path.exists(GO):
        raise Skip("no Go compiler")
    perfbpf = Perfbpf("-f", "client:main.main", calls=False, command=[GO])
    perfbpf.end()
    assert "it is a Go program" in perfbpf.err(), perfbpf.err()


@case
def replayed():
    """by its path; a capture shows the same"""
    capture = os.path.join(directory(), "x.cap")
    _, perfbpf = run(PLAIN, "threads", functions=[f"{PLAIN}:work", "no.such.file:f"], options=("--record", capture, "--content"))
    again = os.path.join(directory(), "again.json")
    done = subprocess.run([PERFBPF, "replay", capture, "-o", again, "--strict"], check=False, capture_output=True, timeout=e2e.HANGS_S)
    with open(again, encoding="utf-8") as f:
        trace = json.load(f)
    assert trace["metadata"]["functions"] == perfbpf.trace()["metadata"]["functions"]
    assert done.returncode == 3 and trace["metadata"]["lost"]["untraced_targets"] == 1 == perfbpf.lost()["untraced_targets"], done.stderr
    found = sorted((e["ts"], e["dur"]) for e in trace["traceEvents"] if e.get("cat") == "function")
    assert found == sorted((e["ts"], e["dur"]) for e in spans(perfbpf, "work")) and len(found) == 40


if __name__ == "__main__":
    e2e.run_cases()
