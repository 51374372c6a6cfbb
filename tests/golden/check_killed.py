#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_killed.py BUILD: SIGKILL at 100 random moments or more. The trace file is the old one or a whole new one, always strict JSON, and
nothing but it is left in a place where somebody would take it for a trace. Speaks TAP."""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

KILLS = 100
OLD = '{"traceEvents":[]}\n'


def refuse(word):
    raise ValueError(f"{word} is no JSON")


def run(argv, seconds=None):
    """True: it was killed. seconds None: it may end by itself."""
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if seconds is None:
        assert child.wait() == 0
        return False
    time.sleep(seconds)
    child.kill()
    return child.wait() != 0


def main():
    build = sys.argv[1]
    random.seed(1)
    kinds, broken = {"old": 0, "new": 0}, []
    with tempfile.TemporaryDirectory() as folder:
        cap, trace = os.path.join(folder, "day.cap"), os.path.join(folder, "trace.json")
        with open(cap, "wb") as out:
            subprocess.run([f"{build}/tests/daycap", "600", "3"], stdout=out, stderr=subprocess.DEVNULL, check=True)
        argv = [f"{build}/perfbpf", "replay", cap, "-q", "-o", trace]
        began = time.monotonic()
        run(argv)
        # Around the moment at which the new trace takes its place, however fast the machine is just now.
        around = time.monotonic() - began
        for number in range(3 * KILLS):
            if number >= KILLS and min(kinds.values()) >= KILLS // 20:
                break  # else it became faster or slower meanwhile
            with open(trace, "w", encoding="utf-8") as out:
                out.write(OLD)
            killed = run(argv, around * random.uniform(0.7, 1.3))
            with open(trace, encoding="utf-8") as f:
                text = f.read()
            try:
                doc = json.loads(text, parse_constant=refuse)
                new = text != OLD
                kinds["new" if new else "old"] += 1
                around *= 0.95 if new else 1.05
                if new and not doc["metadata"]["call_count"] or not new and not killed:
                    broken.append("half a trace" if new else "it ended by itself and left the old trace")
            except ValueError as error:
                broken.append(str(error))
        names = [n for n in os.listdir(folder) if n.endswith(".json") and n != "trace.json" and not n.startswith(".")]
    print(f"# killed after some {around * 1000:.0f} ms: {kinds['old']} old traces, {kinds['new']} new ones")
    if min(kinds.values()) < KILLS // 20:
        broken.append("the moments were not around the end")
    print(f"{'not ok' if broken else 'ok'} killed at {sum(kinds.values())} moments: the trace is the old one or a whole new one")
    for line in broken[:5]:
        print("#  ", line)
    print(f"{'not ok' if names else 'ok'} killed: nothing else looks like a trace")
    return 1 if broken or names else 0


if __name__ == "__main__":
    sys.exit(main())
