#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_day.py BUILD: an agent that worked for 24 hours, 50,000 model calls and 247,500 processes. Memory is bounded, the newest spans
are kept and the dropped ones counted, and the verdict is that of the whole day. Speaks TAP."""
import json
import os
import subprocess
import sys
import tempfile
import time

from check_many import peak_anonymous

CALLS, PROCESSES = 50000, 5
LIMIT_KIB = 64 * 1024
SHARE = 0.001  # of each part: times of the replay are exact


def replay(build, folder):
    """(trace, truth, exit status, highest anonymous memory in KiB)"""
    cap, trace, truth = (os.path.join(folder, n) for n in ("day.cap", "trace.json", "truth.json"))
    with open(cap, "wb") as o, open(truth, "wb") as e:
        subprocess.run([f"{build}/tests/daycap", str(CALLS), str(PROCESSES)], stdout=o, stderr=e, check=True)
    started = time.monotonic()
    child = subprocess.Popen([f"{build}/perfbpf", "replay", cap, "-q", "-o", trace], stderr=subprocess.DEVNULL)
    peak = peak_anonymous(child)
    print(f"# {os.path.getsize(cap) / 1e6:.0f} MB of capture in {time.monotonic() - started:.2f} s, {peak / 1024:.1f} MiB")
    with open(trace, encoding="utf-8") as t, open(truth, encoding="utf-8") as w:
        return json.load(t), json.load(w), child.returncode, peak


def wrong_parts(found, true):
    parts = {**dict.fromkeys(true, 0), **found}
    return {p: (v, true.get(p, 0)) for p, v in parts.items() if abs(v - true.get(p, 0)) > SHARE * true.get(p, 0) + 1}


def main():
    with tempfile.TemporaryDirectory() as folder:
        doc, truth, status, peak = replay(sys.argv[1], folder)
    meta, slices = doc["metadata"], [e for e in doc["traceEvents"] if e["ph"] == "X"]
    verdict, lost = meta["verdict"], meta["lost"]
    calls = [e for e in slices if e["cat"] == "llm"]
    newest_ms = (max(e["ts"] + e["dur"] for e in calls)) / 1e3
    kept = {c: len([e for e in slices if e["cat"] == c]) for c in ("llm", "turn", "tool")}
    checks = [
        ("ends well", status == 0, status),
        ("every call is counted", meta["call_count"] == verdict["steps"] == truth["calls"], (meta["call_count"], verdict)),
        ("every turn and tool, too", (verdict["turns"], verdict["tools"]) == (truth["turns"], truth["tools"]), verdict),
        ("one agent", meta["agent_count"] == 1, meta["agent_count"]),
        ("the whole day", verdict["wall_ms"] == truth["wall_ms"], verdict),
        ("every part of the verdict", not wrong_parts(verdict["parts_ms"], truth["parts_ms"]), (verdict, truth)),
        ("the parts add up", abs(sum(verdict["parts_ms"].values()) - verdict["wall_ms"]) < 0.01, verdict),
        ("dropped spans are counted", sum(kept.values()) + lost["spans_dropped"] == truth["calls"] + truth["turns"] + truth["tools"],
         (kept, lost)),
        ("some were dropped", lost["spans_dropped"] > truth["calls"] / 2, lost),
        ("the newest are kept", newest_ms > truth["wall_ms"] * 0.9999, newest_ms),
        ("nothing else is lost", not any(v for k, v in lost.items() if k not in ("spans_dropped", "events_dropped")), lost),
        (f"anonymous memory is under {LIMIT_KIB // 1024} MiB", 0 < peak < LIMIT_KIB, peak),
    ]
    for name, good, why in checks:
        print(f"{'ok' if good else 'not ok'} 24 hours: {name}")
        if not good:
            print(f"#   {why}"[:2000])
    return 0 if all(good for _, good, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
