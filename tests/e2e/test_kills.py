#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SIGKILL at random moments of a live run: while it starts, traces, stops and writes. KILLS=N (8) moments; `make check-kills` takes 200.
SEED=N repeats a run."""
import ctypes
import glob
import json
import os
import random
import re
import signal
import subprocess
import time

import e2e
from e2e import CLIENT, PYTHON, Client, Perfbpf, Server, case

KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
OUTPUTS = {"trace.json", "calls.jsonl"}
TEMPORARY = {f".{name}.perfbpf-tmp" for name in OUTPUTS}
# Whom it traces and how; {client}: the number of a program that makes calls all the time.
WAYS = [["-p", "{client}"], ["-p", "{client}"], ["--attach=multi", "-p", "{client}"], ["--attach=perf", "-p", "{client}"],
        ["--cpu", "--off-cpu", "-p", "{client}"], ["-n", "modelclient"], ["-a"], ["--"]]
CMD = "import sys, time; time.sleep(0.2); open(sys.argv[1], 'w').close()"

BPF_COMMANDS = {"prog": 13, "map": 14, "link": 30}  # BPF_*_GET_FD_BY_ID
BPF_CALL = {"x86_64": 321, "aarch64": 280}[os.uname().machine]


def kernel_objects(pid):
    """(kind, id) of what a process holds in the kernel."""
    found = set()
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        found |= {(kind, int(number)) for kind, number in re.findall(r"^(map|link|prog)_id:\s+(\d+)", e2e.read_text(path), flags=re.M)}
    return found


def exists(what):
    kind, number = what
    attr = (ctypes.c_uint32 * 32)(number)
    fd = ctypes.CDLL(None, use_errno=True).syscall(BPF_CALL, BPF_COMMANDS[kind], ctypes.byref(attr), ctypes.sizeof(attr))
    if fd >= 0:
        os.close(fd)
    return fd >= 0


def children(pid):
    return [int(n) for n in e2e.read_text(f"/proc/{pid}/task/{pid}/children").split()]


def state(pid):
    found = re.search(r"^State:\s+(\S)", e2e.read_text(f"/proc/{pid}/status"), flags=re.M)
    return found.group(1) if found else "X"


def kill(perfbpf):
    """What it held. It is stopped first, so that what is looked at is what it dies with."""
    pid = perfbpf.child.pid
    perfbpf.child.send_signal(signal.SIGSTOP)
    e2e.until(lambda: state(pid) in "TZX", what="perfbpf is stopped")
    held, below = kernel_objects(pid), children(pid)
    perfbpf.child.kill()
    perfbpf.child.wait()
    return held, below


def check_outputs(folder):
    names = set(os.listdir(folder)) - {"stderr", "done"}
    assert names <= OUTPUTS | TEMPORARY, f"something else is left: {names}"
    if "trace.json" in names:
        json.loads(e2e.read_text(os.path.join(folder, "trace.json")))
    text = e2e.read_text(os.path.join(folder, "calls.jsonl"))
    assert not text or text.endswith("\n"), f"half a line: {text[-200:]!r}"
    for line in text.splitlines():
        json.loads(line)
    return names


def once(client, folder, way, span, pids):
    """One run into the folder that all share, and its end. Returns what was left, and whether it was still at work."""
    options = [w.format(client=client.pid) for w in way]
    command = [PYTHON, "-c", CMD, os.path.join(folder, "done")] if options == ["--"] else None
    outputs = ["-o", os.path.join(folder, "trace.json"), "-c", os.path.join(folder, "calls.jsonl"), "--write-interval", "0.1"]
    perfbpf = Perfbpf(*outputs, *([] if command else options), command=command, output=False, calls=False, ready=False)
    pids.append(perfbpf.child.pid)
    time.sleep(random.uniform(0, span))
    if random.random() < 0.4:
        perfbpf.child.send_signal(signal.SIGINT)
        time.sleep(random.uniform(0, 0.15 * span))
    working = perfbpf.child.poll() is None
    held, below = kill(perfbpf) if working else (set(), [])
    e2e.until(lambda: not any(map(exists, held)), 20, f"nothing is left in the kernel: {options}, {held}")
    e2e.until(lambda: all(state(pid) in "ZX" for pid in below), 20, f"nobody is left: {options}, {below}")
    return check_outputs(folder), working, held


@case
def at_random_moments():
    """SIGKILL leaves no link, map, program, tracefs entry, process or half a file, and who is traced goes on"""
    random.seed(SEED)
    server = Server()
    client = Client([CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", "1000000", "--wait", "--quiet", "--pause-ms", "20",
                     "--knobs", "tokens=3"])
    client.go()
    folder, events = e2e.directory(), e2e.named_probes()
    begin = time.monotonic()
    whole = Perfbpf("-o", os.path.join(folder, "trace.json"), "-d", "0.3", "-p", client.pid, output=False, calls=False)
    assert whole.end() == 0, whole.err()
    span = time.monotonic() - begin
    killed, left, held, pids = 0, 0, 0, []
    for number in range(KILLS):
        names, working, objects = once(client, folder, WAYS[number % len(WAYS)], span, pids)
        killed += working
        held += bool(objects)
        left += bool(names & TEMPORARY)
        assert client.child.poll() is None and state(client.pid) in "RSD", f"the traced program: {state(client.pid)}"
    # Names of probes in tracefs hold the number of who made them; other tools of this machine may leave some.
    named = [line for line in e2e.named_probes() or [] if line not in (events or []) and any(f"_{pid}_" in line for pid in pids)]
    assert not named, named
    e2e.note(f"seed {SEED}: {killed} of {KILLS} were at work, {held} held kernel objects, a temporary file was left {left} times")
    assert killed * 4 >= KILLS, "most runs ended by themselves"
    calls = len(server.truth())
    e2e.until(lambda: len(server.truth()) > calls, what="the traced program goes on")
    # The next run takes away what was left.
    last = Perfbpf("-o", os.path.join(folder, "trace.json"), "-c", os.path.join(folder, "calls.jsonl"), "-p", client.pid, output=False,
                   calls=False)
    assert last.end(signal.SIGINT) == 0, last.err()
    assert check_outputs(folder) == OUTPUTS, os.listdir(folder)


e2e.run_cases()
