#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Is this a trace file that every viewer loads?  tracecheck.py FILE...

check(text) returns a list of problems, empty when there is none. What is checked, and why, is in doc/trace-format.md.
"""

import json
import re
import sys

MAX_PID = 2**31 - 1
METADATA = ("agent_count", "call_count", "version", "start_time", "host", "kernel", "command", "lost")
PHASES = ("dns", "connect", "tls", "send", "wait", "stream")
NAMING = ("process_name", "thread_name", "process_labels")
SORTING = ("process_sort_index", "thread_sort_index")


class Problems(list):
    def add(self, where, what):
        if len(self) < 50:
            self.append("%s: %s" % (where, what))


def refuse_constant(word):
    raise ValueError("%s is no JSON" % word)


def refuse_doubles(pairs):
    keys = [k for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key twice in one object: %s" % keys)
    return dict(pairs)


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def to_ns(us):
    return round(us * 1000)


def check_text(raw, out):
    """The bytes, before JSON: what some parsers choke on although others do not."""
    if raw.startswith(b"\xef\xbb\xbf"):
        out.add("file", "byte order mark")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        out.add("file", "not UTF-8: %s" % e)
        return None
    if re.search(r"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]", text):
        out.add("file", "surrogate escape")
    if "\x7f" in text:
        out.add("file", "raw DEL")
    if not text.startswith('{"displayTimeUnit":'):
        out.add("file", "displayTimeUnit is not the first key")
    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_doubles)
    except ValueError as e:
        out.add("file", "not JSON: %s" % e)
        return None


def check_values(where, value, out):
    if isinstance(value, dict):
        for k, v in value.items():
            check_values("%s.%s" % (where, k), v, out)
    elif isinstance(value, list):
        for v in value:
            check_values(where, v, out)
    elif isinstance(value, int) and abs(value) > 2**53 - 1:
        out.add(where, "integer above 2^53 - 1 must be a string")
    elif isinstance(value, str) and "\0" in value:
        out.add(where, "NUL in a string")


def check_metadata(trace, out):
    meta = trace.get("metadata")
    if not isinstance(meta, dict):
        out.add("metadata", "missing")
        return
    for key in METADATA:
        if key not in meta:
            out.add("metadata", "no %s" % key)
    lost = meta.get("lost")
    if not isinstance(lost, dict) or not lost:
        out.add("metadata.lost", "missing or empty")
    else:
        for k, v in lost.items():
            if not isinstance(v, int) or v < 0:
                out.add("metadata.lost.%s" % k, "%r is no count" % (v,))
    if not isinstance(meta.get("call_count"), int) or not isinstance(meta.get("agent_count"), int):
        out.add("metadata", "call_count and agent_count are counts")


def check_stamp(where, e, out):
    for key in ("ts", "dur"):
        v = e.get(key, 0 if key == "dur" and e["ph"] != "X" else None)
        if not is_number(v):
            out.add(where, "%s is no number: %r" % (key, v))
            return False
        if v < 0:
            out.add(where, "negative %s" % key)
        if abs(v * 1000 - round(v * 1000)) > 1e-3:
            out.add(where, "%s has more than 3 decimals: %r" % (key, v))
    return True


def check_counter(where, e, out):
    if not e.get("args"):
        out.add(where, "counter without a value")
    for k, v in e.get("args", {}).items():
        if not is_number(v):
            out.add(where, "counter value %s is no number" % k)


def check_naming(where, e, out):
    args = e.get("args", {})
    if e["name"] in NAMING:
        value = args.get("labels" if e["name"] == "process_labels" else "name")
        if not isinstance(value, str) or not value:
            out.add(where, "%s without a name" % e["name"])
    elif e["name"] in SORTING:
        if not isinstance(args.get("sort_index"), int):
            out.add(where, "no sort_index")
    else:
        out.add(where, "unknown metadata event %s" % e["name"])


def check_event(where, e, out):
    """True: its times can be relied on."""
    if not isinstance(e, dict) or not isinstance(e.get("name"), str) or not e["name"]:
        out.add(where, "event without a name")
        return False
    if e.get("ph") not in ("X", "i", "C", "M", "s", "f"):
        out.add(where, "phase %r" % (e.get("ph"),))
        return False
    for key in ("pid", "tid"):
        meta = key == "tid" and e["ph"] in "CM"  # of a whole process: tid is 0, or is left out
        v = e.get(key, 0 if meta else None)
        if not isinstance(v, int) or isinstance(v, bool) or not (0 if meta else 1) <= v <= MAX_PID:
            out.add(where, "%s %r" % (key, v))
            return False
    if "cname" in e:
        out.add(where, "cname")
    if "args" in e and (not isinstance(e["args"], dict) or not e["args"]):
        out.add(where, "args must be an object that is not empty")
        return False
    check_values(where, e.get("args", {}), out)
    if e["ph"] == "M":
        check_naming(where, e, out)
        return False
    if e["ph"] == "C":
        check_counter(where, e, out)
    if e["ph"] == "i" and e.get("s") not in ("t", "p", "g"):
        out.add(where, "instant without a scope")
    if e["ph"] in "sf" and ("id" not in e or not e.get("cat")):
        out.add(where, "flow without id or cat")
    if e["ph"] == "f" and e.get("bp") != "e":
        out.add(where, "flow end without bp e")
    if e["ph"] == "X" and not e.get("cat"):
        out.add(where, "slice without cat")
    return check_stamp(where, e, out)


def check_lane(lane, slices, out):
    """Slices of one (pid, tid) nest or follow each other: in nanoseconds, and as doubles too."""
    stack = []
    for e in sorted(slices, key=lambda e: (to_ns(e["ts"]), -to_ns(e["dur"]))):
        begin, end = to_ns(e["ts"]), to_ns(e["ts"]) + to_ns(e["dur"])
        while stack and to_ns(stack[-1]["ts"]) + to_ns(stack[-1]["dur"]) <= begin:
            before = stack.pop()
            if before["dur"] and to_ns(before["ts"]) + to_ns(before["dur"]) == begin:
                out.add(lane, "%r ends where %r begins: as doubles maybe inside of it" % (before["name"], e["name"]))
        if stack:
            outer = stack[-1]
            if end > to_ns(outer["ts"]) + to_ns(outer["dur"]):
                out.add(lane, "%r overlaps %r in part" % (e["name"], outer["name"]))
            elif e["ts"] + e["dur"] > outer["ts"] + outer["dur"]:
                out.add(lane, "%r ends after %r as doubles" % (e["name"], outer["name"]))
        stack.append(e)


def check_calls(trace, slices, out):
    calls = [e for e in slices if e["cat"] == "llm"]
    dropped = trace["metadata"].get("lost", {}).get("spans_dropped", 0)
    count = trace["metadata"].get("call_count")
    unfinished = sum(1 for e in calls if e.get("args", {}).get("unfinished"))
    if isinstance(count, int) and not dropped and not len(calls) - unfinished <= count <= len(calls):
        out.add("metadata.call_count", "%d, but there are %d call spans" % (count, len(calls)))
    for e in calls:
        if not e["name"].startswith("LLM"):
            out.add("call", "span named %r" % e["name"])
    for e in slices:
        if "phase" in e["cat"].split(",") and (e["name"] not in PHASES or "args" in e):
            out.add("phase", "%r, or it has args" % e["name"])


def check_named(events, slices, out):
    processes = {e["pid"] for e in events if e.get("ph") == "M" and e.get("name") == "process_name"}
    threads = {(e["pid"], e.get("tid")) for e in events if e.get("ph") == "M" and e.get("name") == "thread_name"}
    for pid in sorted({e["pid"] for e in slices} - processes):
        out.add("pid %d" % pid, "no process_name")
    for lane in sorted({(e["pid"], e["tid"]) for e in slices} - threads):
        out.add("lane %d/%d" % lane, "no thread_name")


def check_flows(events, lanes, out):
    """One beginning and one end each. Viewers go by time, and among equal times by the order of the file."""
    ends = {}
    for e in events:
        if e.get("ph") not in ("s", "f"):
            continue
        at = to_ns(e["ts"])
        if not any(to_ns(x["ts"]) <= at <= to_ns(x["ts"]) + to_ns(x["dur"]) for x in lanes.get((e["pid"], e["tid"]), ())):
            out.add("flow %r" % e["name"], "no slice around it")
        ends.setdefault((e["cat"], e["name"], e["id"]), []).append((at, e["ph"]))
    for key, each in ends.items():
        if [ph for _, ph in sorted(each, key=lambda one: one[0])] != ["s", "f"]:
            out.add("flow %r" % (key,), "not a beginning and then an end: %s" % each)


def check(raw):
    out = Problems()
    trace = check_text(raw, out)
    if not isinstance(trace, dict):
        return out or ["file: no object"]
    if trace.get("displayTimeUnit") not in ("ms", "ns"):
        out.add("file", "displayTimeUnit %r" % (trace.get("displayTimeUnit"),))
    check_metadata(trace, out)
    events = trace.get("traceEvents")
    if not isinstance(events, list):
        out.add("traceEvents", "missing")
        return out
    timed = [e for i, e in enumerate(events) if check_event("event %d" % i, e, out)]
    if out:
        return out
    slices = [e for e in timed if e["ph"] == "X"]
    lanes = {}
    for e in slices:
        lanes.setdefault((e["pid"], e["tid"]), []).append(e)
    for lane, members in lanes.items():
        check_lane("lane %d/%d" % lane, members, out)
    check_calls(trace, slices, out)
    check_named(events, slices, out)
    check_flows(timed, lanes, out)
    return out


def main():
    bad = 0
    for path in sys.argv[1:]:
        with open(path, "rb") as f:
            problems = check(f.read())
        for p in problems:
            print("%s: %s" % (path, p))
        bad += bool(problems)
    return 1 if bad or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
