#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Replays folders of cases and compares what comes out with what each case expects. Speaks TAP.

    check_cases.py --build BUILD [--skip ID,ID] [--only ID,ID] DIR...

A case is a folder with events.jsonl (see tests/tools/jsonl2cap.c) and expected.json:
  calls      list in order of start; only the keys that are there are asserted. null: unknown. Two numbers: a range. *_ms: to
             0.001. complete "any": not asserted. optional: the call may be missing.
  group      the calls are attempts of one logical call: attempts, retry_wait_ms, ttft_from_first_attempt_ms
  counters   of metadata.lost of the trace
  db         records of database commands in order of start (then replay gets --db); likewise
  http       records of HTTP requests that are no calls in order of start (then replay gets --http); likewise
  mcp        slices of MCP requests in order of start, each as its name, start_ms, dur_ms and args; likewise
  sweep      the answer cut in two at every offset must give the same calls, times aside
Cases without loss, truncation or disorder also run with every event split into single bytes, and with neighbours of equal
time merged: the calls must not change. Every trace file is checked for its format.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tracecheck  # noqa: E402

SPLIT_MAX = 400000  # bytes of a case: beyond it single bytes only take long
SWEEP_MAX = 3000
NOT_COMPARED = ("optional",)
OTHERS = {"db": "database command", "http": "HTTP request"}  # records that an option asks for


class Case:
    def __init__(self, path):
        self.id = os.path.basename(os.path.normpath(path))
        with open(os.path.join(path, "expected.json")) as f:
            self.expected = json.load(f)
        with open(os.path.join(path, "events.jsonl")) as f:
            self.events = [json.loads(line) for line in f if line.strip()]


# --- running ----------------------------------------------------------------------------------------------------------


class Failure(Exception):
    pass


def run(args, stdin=b""):
    try:
        p = subprocess.run(args, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    except subprocess.TimeoutExpired:
        raise Failure("%s: still running after 60 s" % args[0])
    if p.returncode:
        text = p.stderr.decode("utf-8", "replace").strip()[-600:]
        raise Failure("%s: exit status %d: %s" % (args[0], p.returncode, text))
    return p.stdout


def by_start(records, kind):
    return sorted((r for r in records if r.get("type", "call") == kind), key=lambda r: (r["start_ms"] or 0, r.get("id") or 0))


def replay(build, events, trace_wanted, options=()):
    """The call records, by start; the others, by kind; and the trace, or None."""
    text = "".join(json.dumps(e, separators=(",", ":")) + "\n" for e in events).encode()
    with tempfile.TemporaryDirectory() as work:
        capture, trace = os.path.join(work, "x.cap"), os.path.join(work, "trace.json")
        with open(capture, "wb") as f:
            f.write(run([os.path.join(build, "tests/jsonl2cap")], text))
        args = [os.path.join(build, "perfbpf"), "replay", capture, "-c", "-", "--content", *options]
        out = run(args + (["-o", trace] if trace_wanted else []))
        loaded = None
        if trace_wanted:
            with open(trace, "rb") as f:
                raw = f.read()
            problems = tracecheck.check(raw)
            if problems:
                raise Failure("trace file: " + "; ".join(problems[:5]))
            loaded = json.loads(raw)
    records = [json.loads(line) for line in out.decode("utf-8").splitlines() if line.strip()]
    return by_start(records, "call"), {kind: by_start(records, kind) for kind in OTHERS}, loaded


# --- comparing --------------------------------------------------------------------------------------------------------


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def compare(want, have, key, path, out, times=True):
    if not times and (key.endswith("_ms") or key in ("decode_tok_s", "itps", "otps")):
        return
    if key == "complete" and want == "any":
        return
    if isinstance(want, dict):
        if not isinstance(have, dict):
            out.append("%s: want %s, have %s" % (path, json.dumps(want), json.dumps(have)))
            return
        for k, v in want.items():
            compare(v, have.get(k), k, path + "." + k, out, times)
    elif isinstance(want, list) and len(want) == 2 and all(map(is_number, want)) and not isinstance(have, list):
        if not is_number(have) or not want[0] <= have <= want[1]:
            out.append("%s: want %s to %s, have %s" % (path, want[0], want[1], json.dumps(have)))
    elif isinstance(want, list):
        if not isinstance(have, list) or len(have) != len(want):
            out.append("%s: want %s, have %s" % (path, json.dumps(want), json.dumps(have)))
            return
        for i, v in enumerate(want):
            compare(v, have[i], key, "%s[%d]" % (path, i), out, times)
    elif is_number(want) and is_number(have):
        exact = isinstance(want, int) and not key.endswith("_ms")
        allowed = 0 if exact else 0.001 if key.endswith("_ms") else 0.00005
        if abs(want - have) > allowed + 1e-9:
            out.append("%s: want %s, have %s" % (path, want, have))
    elif want is not have and (want != have or isinstance(want, bool) != isinstance(have, bool)):
        out.append("%s: want %s, have %s" % (path, json.dumps(want), json.dumps(have)))


def match_calls(want, have, times=True):
    """The problems of the best way to leave out optional calls."""
    if len(want) > len(have):
        ways = [want[:i] + want[i + 1 :] for i, w in enumerate(want) if w.get("optional")]
        if ways:
            return min((match_calls(w, have, times) for w in ways), key=len)
    out = []
    if len(want) != len(have):
        shown = ["%s %s" % (c.get("status"), c.get("path")) for c in have]
        out.append("want %d calls, have %d: %s" % (len(want), len(have), "; ".join(shown)))
    for i, (w, h) in enumerate(zip(want, have)):
        for k, v in w.items():
            if k not in NOT_COMPARED:
                compare(v, h.get(k), k, "call %d: %s" % (i, k), out, times)
    return out


def check_sanity(calls, out):
    """What holds for every call, whatever the case."""
    ids = [c.get("id") for c in calls]
    if len(set(ids)) != len(ids):
        out.append("ids are not unique: %s" % ids)
    for i, c in enumerate(calls):
        for k, v in c.items():
            if k.endswith("_ms") and is_number(v) and v < 0:
                out.append("call %d: %s is negative: %s" % (i, k, v))
        if c.get("complete") is True and c.get("end_reason") is not None:
            out.append("call %d: complete, but end_reason %s" % (i, c["end_reason"]))
        if c.get("complete") is False and c.get("end_reason") is None:
            out.append("call %d: not complete, but no end_reason" % i)


def check_group(group, calls, out):
    if len(calls) != group["attempts"]:
        out.append("group: want %d attempts, have %d calls" % (group["attempts"], len(calls)))
        return
    if [c.get("attempt") for c in calls] != list(range(1, len(calls) + 1)):
        out.append("group: attempt is %s" % [c.get("attempt") for c in calls])
    if any(c.get("retry_of") != calls[0]["id"] for c in calls[1:]):
        out.append("group: retry_of is %s" % [c.get("retry_of") for c in calls])
    if "retry_wait_ms" in group:
        compare(group["retry_wait_ms"], [c.get("retry_wait_ms") for c in calls[1:]], "retry_wait_ms", "group", out)
    if "ttft_from_first_attempt_ms" in group:
        last = calls[-1]
        have = None
        if last.get("ttft_ms") is not None:
            have = last["start_ms"] + last["ttft_ms"] - calls[0]["start_ms"]
        compare(group["ttft_from_first_attempt_ms"], have, "ttft_ms", "group: ttft from the first attempt", out)


def check_mcp(want, trace, out):
    spans = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "mcp"]
    have = [dict(e["args"], name=e["name"], start_ms=e["ts"] / 1000, dur_ms=e["dur"] / 1000) for e in spans]
    have.sort(key=lambda s: (s["start_ms"], s["request_id"]))
    if len(want) != len(have):
        out.append("want %d MCP requests, have %d: %s" % (len(want), len(have), [s["name"] for s in have]))
    for i, (w, h) in enumerate(zip(want, have)):
        for k, v in w.items():
            compare(v, h.get(k), k, "MCP request %d: %s" % (i, k), out)


def check_others(case, records, out, times=True):
    for kind, title in OTHERS.items():
        want, have = case.expected.get(kind, []), records[kind]
        if len(want) != len(have):
            out.append("want %d of %s, have %d: %s" % (len(want), title, len(have), [r.get("shape") or r.get("path") for r in have]))
        for i, (w, h) in enumerate(zip(want, have)):
            for k, v in w.items():
                compare(v, h.get(k), k, "%s %d: %s" % (title, i, k), out, times)


def options_of(case):
    return ["--" + kind for kind in OTHERS if kind in case.expected]


def check_whole(case, build):
    calls, others, trace = replay(build, case.events, True, options_of(case))
    out = match_calls(case.expected.get("calls", []), calls)
    check_others(case, others, out)
    check_sanity(calls, out)
    if "group" in case.expected:
        check_group(case.expected["group"], calls, out)
    check_mcp(case.expected.get("mcp", []), trace, out)
    lost = trace["metadata"]["lost"]
    for k, v in case.expected.get("counters", {}).items():
        if lost.get(k) != v:
            out.append("metadata.lost.%s: want %s, have %s" % (k, v, lost.get(k)))
    return out


# --- other cuts of the same bytes ---------------------------------------------------------------------------------------


def stream_of(e):
    return (e["pid"], e["ssl"], e["dir"])


def is_whole(events):
    """No loss, no truncation, no disorder: cuts may be moved."""
    expected = {}
    for e in events:
        if "deliver_at_ns" in e:
            return False
        if e["ev"] in ("ssl_free", "exit", "exec"):
            expected = {k: v for k, v in expected.items() if k[0] != e["pid"] or ("ssl" in e and k[1] != e["ssl"])}
        if e["ev"] != "data":
            continue
        seq, t_ns = expected.get(stream_of(e), (0, 0))
        if e["seq"] != seq or e["t_ns"] < t_ns or len(base64.b64decode(e["b64"])) != e["len"]:
            return False
        expected[stream_of(e)] = (seq + 1, e["t_ns"])
    return True


def renumbered(events):
    seqs, out = {}, []
    for e in events:
        if e["ev"] in ("ssl_free", "exit", "exec"):
            seqs = {k: v for k, v in seqs.items() if k[0] != e["pid"] or ("ssl" in e and k[1] != e["ssl"])}
        if e["ev"] == "data":
            e = dict(e, seq=seqs.get(stream_of(e), 0))
            seqs[stream_of(e)] = e["seq"] + 1
        out.append(e)
    return out


def piece(e, data):
    return dict(e, len=len(data), b64=base64.b64encode(data).decode())


def single_bytes(events):
    out = []
    for e in events:
        data = base64.b64decode(e["b64"]) if e["ev"] == "data" else b""
        out += [piece(e, data[i : i + 1]) for i in range(len(data))] if data else [e]
    return renumbered(out)


def merged(events):
    """Neighbours of one direction with equal time become one event; None: there are none."""
    out, count = [], 0
    for e in events:
        last = out[-1] if out else None
        if (
            last
            and e["ev"] == last["ev"] == "data"
            and stream_of(e) == stream_of(last)
            and e["t_ns"] == last["t_ns"]
            and e.get("t_call_ns") == last.get("t_call_ns")
        ):
            out[-1] = piece(last, base64.b64decode(last["b64"]) + base64.b64decode(e["b64"]))
            count += 1
        else:
            out.append(e)
    return renumbered(out) if count else None


def sweeps(events):
    """The answer in two pieces, cut at every offset."""
    answer = [e for e in events if e["ev"] == "data" and e["dir"] == "s2c"]
    data = b"".join(base64.b64decode(e["b64"]) for e in answer)
    if not answer or len({stream_of(e) for e in answer}) > 1:
        return
    at = events.index(answer[0])
    before, after = events[:at], [e for e in events[at + 1 :] if e not in answer]
    for cut in range(1, min(len(data), SWEEP_MAX)):
        pieces = [piece(answer[0], data[:cut]), piece(answer[-1], data[cut:])]
        yield cut, renumbered(before + pieces + after)


def check_variant(case, build, events, times=True):
    calls, others, trace = replay(build, events, "mcp" in case.expected, options_of(case))
    out = match_calls(case.expected.get("calls", []), calls, times)
    check_others(case, others, out, times)
    check_sanity(calls, out)
    if trace:
        check_mcp(case.expected["mcp"], trace, out)
    return out


def check_sweep(case, build):
    for cut, events in sweeps(case.events):
        out = check_variant(case, build, events, times=False)
        if out:
            return ["cut at %d: %s" % (cut, p) for p in out]
    return []


def variants(case):
    """(name, function of build) of every run of a case."""
    yield "", lambda build: check_whole(case, build)
    if not is_whole(case.events):
        return
    if sum(e.get("len", 0) for e in case.events) <= SPLIT_MAX:
        yield " in single bytes", lambda build: check_variant(case, build, single_bytes(case.events))
    together = merged(case.events)
    if together:
        yield " merged", lambda build: check_variant(case, build, together)
    if "sweep" in case.expected:
        yield " cut everywhere", lambda build: check_sweep(case, build)


# --- the test program -----------------------------------------------------------------------------------------------------


def folders(roots):
    for root in roots:
        if os.path.exists(os.path.join(root, "events.jsonl")):
            yield root
            continue
        for name in sorted(os.listdir(root)):
            if os.path.exists(os.path.join(root, name, "events.jsonl")):
                yield os.path.join(root, name)


def report(name, check, build):
    try:
        problems = check(build)
    except (Failure, ValueError, KeyError) as e:
        problems = ["%s: %s" % (type(e).__name__, e)]
    print("%s %s" % ("not ok" if problems else "ok", name))
    for p in problems:
        print("#   " + p)
    sys.stdout.flush()
    return not problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--skip", default="", help="ids of cases whose protocol is not built yet")
    parser.add_argument("--only", default="", help="ids of the only cases to run")
    parser.add_argument("dirs", nargs="+")
    args = parser.parse_args()
    skip, only = set(filter(None, args.skip.split(","))), set(filter(None, args.only.split(",")))
    failed = count = 0
    for path in folders(args.dirs):
        case = Case(path)
        if only and case.id not in only:
            continue
        count += 1
        title = "%s %s" % (case.id, case.expected.get("title", ""))
        if case.id in skip:
            print("ok %s # SKIP not built yet" % title)
        elif not any(kind in case.expected for kind in ("calls", *OTHERS)):
            print("ok %s # SKIP expects no model calls" % title)
        else:
            for name, check in variants(case):
                failed += not report(case.id + name + ": " + case.expected.get("title", ""), check, args.build)
    if not count:
        print("not ok no cases in %s" % " ".join(args.dirs))
        failed = 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
