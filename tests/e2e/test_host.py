#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perfbpf finds around itself: clocks that were moved, rights and limits that are missing, no list of libraries; and what
it leaves behind when it is killed."""
import datetime
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

import e2e
from e2e import CLIENT, PERFBPF, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost, check_trace

# Attached while the program is on its way to its first call: that call pays for the first traps.
COLD_MS = 50


def waiting_client(server, name, count=3):
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", str(count), "--quiet", "--id", name, "--wait"]
    return Client(argv)


def need(program):
    if not shutil.which(program):
        raise Skip(f"no {program}")


def works(*argv):
    """What must work here for a test to say anything."""
    need(argv[0])
    done = subprocess.run([*argv, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip(f"{argv[0]}: {done.stderr.strip()}")


# --- beside others -------------------------------------------------------------------------------------------------------


def traced_by(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"TracerPid:\t(\d+)", f.read()).group(1))


def has_perf_events(pid):
    links = []
    for link in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            links.append(os.readlink(link))
        except OSError:  # it was closed meanwhile
            pass
    return "anon_inode:[perf_event]" in links


def in_poll(pid):
    """In poll(2): 7 on x86-64; ppoll(2) elsewhere."""
    return e2e.read_text(f"/proc/{pid}/syscall").split(" ")[0] in ("7", "271", "73")


def start_perf(client, data):
    """perf record of every switch of the client's threads; None: it does not work here, and why is noted."""
    if not shutil.which("perf"):
        e2e.note("perf record is left out: not installed")
        return None
    perf = e2e.start(["perf", "record", "-q", "-e", "context-switches", "-c", "1", "-o", data, "-p", str(client.pid)],
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # It enables its events after it has opened them all, and waits for samples then.
    e2e.until(lambda: perf.poll() is not None or (has_perf_events(perf.pid) and in_poll(perf.pid)), 20, "perf record is attached")
    if perf.poll() is not None:
        e2e.note("perf record is left out: it does not work on this kernel")
        return None
    return perf


@case
def beside_others():
    """two perfbpf, perf record and strace of one process at once: each sees what it would alone"""
    need("strace")
    server = Server()
    folder = e2e.directory()
    log, data = os.path.join(folder, "strace"), os.path.join(folder, "perf.data")
    client = waiting_client(server, "beside", 6)
    one = Perfbpf("-p", client.pid, "--cpu", "--off-cpu")
    strace = e2e.start(["strace", "-f", "-o", log, "-p", str(client.pid)], stderr=subprocess.DEVNULL)
    e2e.until(lambda: traced_by(client.pid), 20, "strace is attached")
    perf = start_perf(client, data)
    two = Perfbpf("-p", client.pid)  # comes when all others are there
    client.go()
    assert client.finish() == 0, client.lines
    for perfbpf in (one, two):
        assert perfbpf.end() == 0, perfbpf.err()
        # strace stops the client at every system call: its times are not the server's.
        assert sorted(e2e.key_of(c["path"]) for c in perfbpf.calls()) == sorted(server.truth()), perfbpf.calls()
        assert all(c["complete"] and c["status"] == 200 for c in perfbpf.calls()), perfbpf.calls()
        check_nothing_lost(perfbpf)
        check_trace(perfbpf)
    assert one.trace()["otherData"]["profile"]["off_cpu"]["samples"], "no sample beside strace"
    assert strace.wait(e2e.HANGS_S) == 0
    assert "exit_group(0)" in e2e.read_text(log), "strace saw no end"
    if perf:
        perf.wait(e2e.HANGS_S)
        done = subprocess.run(["perf", "report", "-i", data, "--stdio", "-s", "comm"], capture_output=True, text=True, check=False)
        assert "100.00%" in done.stdout, done.stdout + done.stderr


# --- clocks --------------------------------------------------------------------------------------------------------------


def seconds_of(text):
    """Unix time of RFC 3339 with nanoseconds."""
    whole, rest = text.rstrip("Z").split(".")
    when = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.timezone.utc)
    return when.timestamp() + int(rest) / 1e9


@cases([("an hour ahead", "3600"), ("behind", "-7")])
def moved_clock(seconds):
    """perfbpf in a time namespace: times are those of the world"""
    prefix = ["unshare", "-T", "--boottime", seconds]
    works(*prefix)
    server = Server()
    client = waiting_client(server, "moved")
    before = time.time()
    perfbpf = Perfbpf("-p", client.pid, prefix=prefix)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    after = time.time()
    for call, truth in check_calls(perfbpf, server, 3, COLD_MS):
        assert before < seconds_of(call["start_time"]) < after, (before, call["start_time"], after)
        wall = truth["first_byte_ns"] / 1e9 + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        assert abs(seconds_of(call["start_time"]) - wall) < 0.01 * e2e.slack(), (call["start_time"], wall)
    check_nothing_lost(perfbpf)
    end_us = (after - before) * 1e6
    for event in check_trace(perfbpf)["traceEvents"]:
        assert event["ph"] != "X" or event["ts"] + event["dur"] < end_us, f"in the future: {event}"


@case
def moved_clock_everybody():
    """perfbpf -a in a time namespace: processes that run already are known by when they began"""
    prefix = ["unshare", "-T", "--boottime", "3600", "--kill-child"]
    works(*prefix)
    server = Server()
    client = waiting_client(server, "listed")
    perfbpf = Perfbpf("-a", prefix=prefix)
    client.go()
    assert client.finish() == 0
    e2e.until(lambda: len([c for c in perfbpf.calls() if c["peer"] and c["peer"]["port"] == server.port]) >= 3, 10, perfbpf.err())
    (inner,) = e2e.read_text(f"/proc/{perfbpf.child.pid}/task/{perfbpf.child.pid}/children").split()  # of unshare
    os.kill(int(inner), signal.SIGINT)
    assert perfbpf.end() == 0, perfbpf.err()
    calls = [c for c in perfbpf.calls() if c["peer"] and c["peer"]["port"] == server.port]
    assert [c["process"] for c in calls] == ["modelclient"] * 3, calls
    assert {c["exe"] for c in calls} == {CLIENT}, calls


# --- files, rights, limits -------------------------------------------------------------------------------------------------


@case
def no_library_list():
    """a root without ld.so.conf and ld.so.cache"""
    hide = "for f in /etc/ld.so.conf /etc/ld.so.cache; do mount --bind /dev/null $f || exit; done; exec \"$@\""
    prefix = ["unshare", "-m", "sh", "-c", hide, "sh"]
    works(*prefix)
    server = Server()
    client = waiting_client(server, "unlisted")
    perfbpf = Perfbpf("-p", client.pid, prefix=prefix)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 3, COLD_MS)
    check_nothing_lost(perfbpf)
    assert "ld.so" not in perfbpf.err(), perfbpf.err()


def with_rights(*names):
    rights = "-all" + "".join(f",+{name}" for name in names)
    return ["setpriv", "--bounding-set", rights, "--inh-caps", rights]


@case
def four_rights():
    """with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH alone: every call, nothing missing, or one line that says why not"""
    # what the test writes into belongs to root, and so does perfbpf: no right is needed for that
    prefix = with_rights("bpf", "perfmon", "sys_ptrace", "dac_read_search")
    works(*prefix)
    server = Server()
    client = waiting_client(server, "rights")
    if "no uprobe_multi links" in subprocess.run([PERFBPF, "check"], capture_output=True, text=True, check=False).stdout:
        refused = subprocess.run([*prefix, PERFBPF, "-p", str(client.pid)], capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "perf events" in refused.stderr and refused.stderr.count("\n") == 2, refused
        return
    perfbpf = Perfbpf("--strict", "-p", client.pid, prefix=prefix)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 3, COLD_MS)
    check_nothing_lost(perfbpf)


def as_user(*rights):
    names = ",".join(f"+{right}" for right in rights)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    return [*user, "--inh-caps", names, "--ambient-caps", names] if rights else user


@cases([("as this kernel attaches", []), ("as one before Linux 6.6 does", ["--attach=perf"])])
def user_with_rights(options):
    """a user with CAP_BPF and CAP_PERFMON alone: every call of a program of that user, or one line that says why not"""
    prefix = as_user("bpf", "perfmon")
    works(*prefix)
    folder = e2e.directory()
    program, client_program = (shutil.copy(path, folder) for path in (PERFBPF, CLIENT))
    own = os.path.join(folder, "own")
    os.mkdir(own)
    os.chown(own, 65534, 65534)
    server = Server()
    client = Client([*as_user(), client_program, "--port", str(server.port), "--cacert", server.cert, "-n", "3", "--quiet", "--wait"])
    outputs = [os.path.join(own, name) for name in ("trace", "calls")]
    child = e2e.start([*prefix, program, *options, "-o", outputs[0], "-c", outputs[1], "-p", str(client.pid)],
                      stderr=subprocess.PIPE, text=True)
    lines = []
    for line in child.stderr:
        lines.append(line)
        if "tracing 1 process" in line:
            break
    client.go()
    assert client.finish() == 0
    rest = child.stderr.read()
    text = "".join(lines) + rest
    if child.wait():
        assert child.returncode == 1 and len(lines) == 2 and "perf events" in lines[0] and "hint: run as root" in lines[1], text
        assert options or "no uprobe_multi links" in subprocess.run([PERFBPF, "check"], capture_output=True, text=True, check=False).stdout
        return
    calls = [json.loads(line) for line in e2e.read_text(outputs[1]).splitlines()]
    assert [(c["status"], c["complete"], c["lossy"]) for c in calls] == [(200, True, False)] * 3, text


@case
def small_memlock():
    """a limit of 64 KiB for locked memory: works, or says so, and the limit stays what it was"""
    prefix = ["prlimit", "--memlock=65536:65536", "--"]
    works(*prefix)
    server = Server()
    client = waiting_client(server, "locked")
    perfbpf = Perfbpf("-p", client.pid, prefix=prefix)
    limits = e2e.read_text(f"/proc/{perfbpf.child.pid}/limits")
    assert re.search(r"Max locked memory +65536 +65536 ", limits), limits
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 3, COLD_MS)


LOCKED_DOWN = "mount -t tmpfs t /sys/kernel/security && echo '[confidentiality]' >/sys/kernel/security/lockdown && exec \"$@\""


@cases([
    ("root without CAP_BPF, as in a container", [], "CAP_BPF", "--privileged"),
    ("a kernel that is locked down", ["unshare", "-m", "sh", "-c", LOCKED_DOWN, "sh"], "lockdown", "lockdown=integrity"),
])
def refused(before, word, hint):
    """no BPF: one line with the cause and a hint"""
    prefix = [*before, *with_rights("sys_ptrace")]
    works(*prefix)
    target = e2e.start(["sleep", "60"])
    done = subprocess.run([*prefix, PERFBPF, "-o", os.path.join(e2e.directory(), "t"), "-p", str(target.pid)],
                          capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 1, done
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and "hint: " in lines[1] and hint in lines[1] and word in done.stderr, done.stderr


# --- killed outright -------------------------------------------------------------------------------------------------------


@cases([("links of many, 4 times", "--attach=multi", 4), ("perf events, twice", "--attach=perf", 2)])
def killed_outright(how, times):
    """SIGKILL: no probe is left, the traced program goes on, and the next run sees its calls"""
    server = Server()
    client = waiting_client(server, "survivor", 4)
    events = e2e.named_probes()
    for _ in range(times):
        perfbpf = Perfbpf(how, "-p", client.pid)
        folder = f"/proc/{perfbpf.child.pid}/fd"
        mine = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)]
        assert any("bpf" in name or "perf_event" in name for name in mine), mine
        perfbpf.child.kill()
        perfbpf.child.wait()
        assert not os.path.exists(perfbpf.trace_path)
    assert e2e.named_probes() == events
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)


e2e.run_cases()
