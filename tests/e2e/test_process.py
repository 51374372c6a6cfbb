#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is known of the processes of a tree: what they were, what they took, which tool call they ran for."""
import json
import os
import sys

import e2e
from e2e import Perfbpf, case, note

AGENT = f"""#!{sys.executable}
import os, subprocess
env = dict(os.environ, CODEX_TOOL_CALL_ID="call_abc123", SECRET_OF_MINE="never-shown")
subprocess.run(["sh", "-c", "exec env sleep 0.3"], env=env)
subprocess.run(["sleep", "0.2"])
subprocess.run(["python3", "-c", "x = bytearray(96 << 20); import sys; sys.exit(3)"], env=env)
"""


def agent(name):
    path = os.path.join(e2e.directory(), name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(AGENT)
    os.chmod(path, 0o755)
    os.chmod(os.path.dirname(path), 0o755)
    return path


def run(name):
    perfbpf = Perfbpf(command=[agent(name)])
    assert perfbpf.end() == 0, perfbpf.err()
    e2e.check_trace(perfbpf)
    assert "never-shown" not in e2e.read_text(perfbpf.trace_path)
    return [e for e in perfbpf.trace()["traceEvents"] if e["ph"] == "X" and e.get("cat") == "process"]


@case
def codex():
    """Children of Codex: tool call, chain of programs, peak memory"""
    lives = {e["name"]: e["args"] for e in run("codex") if "tool_call_id" in e["args"]}
    assert all(a["tool_call_id"] == "call_abc123" for a in lives.values()), lives
    assert lives["exec sleep"]["exec_chain"] == ["sh", "env", "sleep"], lives
    (big,) = [a for name, a in lives.items() if "python" in name]
    assert big["exit_code"] == 3 and 96 << 20 <= big["max_rss_bytes"] <= 160 << 20, big


@case
def others():
    """The environment of other programs' children is not looked at"""
    lives = run("agent")
    assert lives and not any("tool_call_id" in e["args"] for e in lives), lives
    assert [e for e in lives if e["args"].get("exec_chain") == ["sh", "env", "sleep"]], lives


# Each child says when it ran its last instruction; pages are small, so that there is much to take away.
LARGE = f"""
import json, subprocess, sys, time
now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
child = '''
import contextlib, mmap, os, time
m = mmap.mmap(-1, 256 << 20)
with contextlib.suppress(OSError):  # a kernel without huge pages, as PREEMPT_RT
    m.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(0, len(m), 4096):
    m[i] = 1
print(time.clock_gettime_ns(time.CLOCK_BOOTTIME), flush=True)
os._exit(0)
'''
lives = []
for _ in range(3):
    asked = now()
    p = subprocess.Popen(["{sys.executable}", "-c", child], stdout=subprocess.PIPE)
    made = now()
    last = int(p.stdout.readline())
    p.wait()
    lives.append([p.pid, asked, made, last, now()])
json.dump(lives, open(sys.argv[1], "w"))
"""


@case
def ends():
    """A child is there until its parent is told: what the kernel takes away is its time"""
    path = os.path.join(e2e.directory(), "lives.json")
    perfbpf = Perfbpf("--http", command=[sys.executable, "-c", LARGE, path])
    assert perfbpf.end() == 0, perfbpf.err()
    trace = e2e.check_trace(perfbpf)
    zero = int(trace["metadata"]["start_boot_ns"])
    spans = {e["pid"]: e for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") == "process"}
    seen = []
    for pid, asked, made, last, told in json.loads(e2e.read_text(path)):
        begin = zero + spans[pid]["ts"] * 1000
        end = begin + spans[pid]["dur"] * 1000
        assert asked <= begin <= made and last <= end <= told, (asked, begin, made, last, end, told)
        seen.append((end - last) / (told - last))
    note(f"from its last instruction until its parent knew of it: {100 * max(seen):.0f} % are told as its own")
    assert max(seen) > 0.7 or e2e.PATIENCE > 1, seen  # a busy parent may hear of it late


@case
def who_started_us():
    """perfbpf that traces the shell which started it: no process of its own is among the targets"""
    shell = 'program=$1; shift; "$program" -p $$ "$@"; true'
    perfbpf = Perfbpf("-d", "0.5", prefix=("sh", "-c", shell, "sh"))
    assert perfbpf.end() == 0 and "tracing 1 process," in perfbpf.err(), perfbpf.err()
    names = [e["args"]["name"] for e in perfbpf.trace()["traceEvents"] if e["name"] == "process_name"]
    assert len(names) == 1 and "perfbpf" not in names, names


e2e.run_cases()
