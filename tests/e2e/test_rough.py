#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a machine does to a program that runs for long: it is stopped, its clock is set, its disk becomes read-only, its memory
is limited. Each call is told as it was."""
import os
import signal
import subprocess
import time

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost

SLACK_MS = 100
OLD = "something old\n"


def waiting_client(server, name, count, *options):
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", str(count), "--quiet", "--id", name, "--wait"]
    return Client([*argv, *options])


@case
def stopped_and_continued():
    """stopped while programs make calls and end: all of it is told afterwards"""
    server = Server()
    clients = [waiting_client(server, f"stopped{i}", 3) for i in range(8)]
    idle = waiting_client(server, "idle", 1)
    perfbpf = Perfbpf("-p", ",".join(str(c.pid) for c in [*clients, idle]))
    for client in clients:
        perfbpf.child.send_signal(signal.SIGSTOP)
        client.go()
        assert client.finish() == 0
        time.sleep(0.15)  # whatever is done each second is overdue now and then
        perfbpf.child.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    perfbpf.child.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    idle.go()
    assert idle.finish() == 0
    perfbpf.child.send_signal(signal.SIGCONT)
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 8 * 3 + 1, SLACK_MS)
    check_nothing_lost(perfbpf)


@cases([("forwards", 3600), ("backwards", -86400)])
def clock_set(seconds):
    """the clock is set by hours while a call is under way: its times are what passed"""
    if not os.environ.get("PERFBPF_E2E_OWN_MACHINE"):
        raise Skip("this machine is not ours alone: tests/kernels does it")
    server = Server()
    client = waiting_client(server, "clock", 3, "--knobs", "tokens=20&gap_ms=20")
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    time.sleep(0.3)
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 3, SLACK_MS)
    check_nothing_lost(perfbpf)
    for event in e2e.check_trace(perfbpf)["traceEvents"]:
        assert event["ph"] != "X" or event["ts"] + event["dur"] < 600e6, f"hours long: {event}"


def mounted(options):
    folder = e2e.directory()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=False).returncode:
        raise Skip("cannot mount a tmpfs")
    return folder


@case
def read_only_disk():
    """a disk that becomes read-only while it traces: status 1, one line, the old file intact; before: refused at once"""
    server, folder = Server(), mounted("size=1m,mode=755")
    try:
        out = os.path.join(folder, "trace.json")
        with open(out, "w", encoding="utf-8") as f:
            f.write(OLD)
        client = waiting_client(server, "readonly", 3)
        perfbpf = Perfbpf("-o", out, "-p", client.pid, output=False)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=False)
        writable = os.access(folder, os.W_OK)
        client.go()
        assert client.finish() == 0
        status = perfbpf.end()
        if writable:  # what is open for writing keeps it so
            assert status == 0, perfbpf.err()
        else:
            assert status == 1 and "read-only" in perfbpf.err() and out in perfbpf.err(), perfbpf.err()
            assert e2e.read_text(out) == OLD, "the old file is intact"
        check_calls(perfbpf, server, 3, SLACK_MS)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        done = subprocess.run([e2e.PERFBPF, "-o", out, "-p", str(os.getpid())], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "read-only" in done.stderr, done
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


class Memory:
    """A control group with a limit; of version 2 or 1, whichever there is."""

    def __init__(self, limit):
        name = f"perfbpf-e2e-{os.getpid()}"
        for root, file in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            self.path = os.path.join(root, name)
            try:
                os.mkdir(self.path)
                with open(os.path.join(self.path, file), "w", encoding="ascii") as f:
                    f.write(str(limit))
                return
            except OSError:
                self.remove()
        raise Skip("no control group for memory can be made")

    def killed(self):
        events = [e2e.read_text(os.path.join(self.path, name)) for name in ("memory.events", "memory.oom_control")]
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in "\n".join(events).splitlines())

    def remove(self):
        try:
            os.rmdir(self.path)
        except OSError:
            pass


@case
def memory_limit():
    """a control group of 64 MiB for perfbpf, ring and all: hundreds of calls, and none is missing"""
    group = Memory(64 << 20)
    try:
        server = Server()
        client = waiting_client(server, "limited", 40, "--threads", "8", "--body-bytes", "20000")
        enter = f"echo $$ >{group.path}/cgroup.procs && exec \"$@\""
        perfbpf = Perfbpf("-p", client.pid, prefix=["sh", "-c", enter, "sh"])
        client.go()
        assert client.finish() == 0
        assert perfbpf.end() == 0 and not group.killed(), perfbpf.err()
        check_calls(perfbpf, server, 320, SLACK_MS * 4)
        check_nothing_lost(perfbpf)
    finally:
        group.remove()


e2e.run_cases()
