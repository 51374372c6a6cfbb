#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_many.py BUILD: a day's worth of calls in bounded memory. 60,000 calls are replayed with the default caps: the newest whole
spans are kept, the dropped ones are counted, and the anonymous memory stays under 64 MiB. Speaks TAP."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

CALLS = 60000
LIMIT_KIB = 64 * 1024
HERE = os.path.dirname(os.path.abspath(__file__))


def peak_anonymous(child):
    """RssAnon of a running process, its highest reading."""
    peak = 0
    while child.poll() is None:
        try:
            with open(f"/proc/{child.pid}/status", encoding="ascii", errors="replace") as f:
                peak = max([peak, *(int(n) for n in re.findall(r"RssAnon:\s+(\d+)", f.read()))])
        except OSError:
            break
        time.sleep(0.005)
    return peak


def main():
    build = sys.argv[1]
    events = os.path.join(HERE, "cases", "keepalive-two-calls", "events.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        one, many, trace = (os.path.join(folder, n) for n in ("one.cap", "many.cap", "trace.json"))
        with open(events, "rb") as i, open(one, "wb") as o:
            subprocess.run([f"{build}/tests/jsonl2cap"], stdin=i, stdout=o, check=True)
        with open(one, "rb") as i, open(many, "wb") as o:
            subprocess.run([f"{build}/tests/repeatcap", str(CALLS // 2)], stdin=i, stdout=o, check=True)
        started = time.monotonic()
        with open(os.path.join(folder, "err"), "w+", encoding="utf-8") as err:
            child = subprocess.Popen([f"{build}/perfbpf", "replay", many, "-o", trace], stderr=err)
            peak = peak_anonymous(child)
            seconds = time.monotonic() - started
            err.seek(0)
            text = err.read()
        strict = [f"{build}/perfbpf", "replay", one, "--strict", "--max-events", "1"]
        few, none = (subprocess.run([*strict, *more], capture_output=True, text=True, check=False) for more in (["-o", trace + "1"], []))
        size = os.path.getsize(many)
        with open(trace, encoding="utf-8") as f:
            doc = json.load(f)
    slices = [e for e in doc["traceEvents"] if e["ph"] == "X" and e["cat"] == "llm"]
    meta = doc["metadata"]
    turns = sum(e["ph"] == "X" and e["cat"] == "turn" for e in doc["traceEvents"])
    dropped = meta["lost"]["spans_dropped"]
    last = max(e["ts"] + e["dur"] for e in slices)
    first_kept = min(e["ts"] for e in slices)
    checks = [
        ("ends well", child.returncode == 0, text),
        (f"all {CALLS} calls are counted", meta["call_count"] == CALLS, meta["call_count"]),
        ("kept and dropped spans add up", len(slices) + turns + dropped == CALLS + meta["verdict"]["turns"] and dropped > 0,
         (len(slices), turns, dropped)),
        ("the newest are kept, without a hole", last - first_kept <= (len(slices) + 1) / CALLS * last * 1.01, (first_kept, last)),
        ("the events kept are at most the cap", len([e for e in doc["traceEvents"] if e["ph"] in "Xi"]) <= 100001, ""),
        ("nothing else is lost", not any(v for k, v in meta["lost"].items() if k not in ("spans_dropped", "events_dropped")), meta),
        (f"anonymous memory {peak / 1024:.1f} MiB is under 64 MiB", 0 < peak < LIMIT_KIB, peak),
    ]
    checks += [
        ("what a trace has no room for is a loss", few.returncode == 3 and "--max-events" in few.stderr, few.stderr),
        ("where no trace is written there is none", none.returncode == 0 and "nothing lost" in none.stderr, none.stderr),
    ]
    print(f"# {size / 1e6:.0f} MB of capture in {seconds:.2f} s")
    for name, good, why in checks:
        print(f"{'ok' if good else 'not ok'} {CALLS} calls: {name}")
        if not good:
            print(f"#   {why}"[:2000])
    return 0 if all(good for _, good, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
