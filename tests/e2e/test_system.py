#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whom perfbpf follows, and that it stops nobody: CMD's own exec, children, names, numbers that are used again."""
import os
import shutil
import signal
import subprocess

import e2e
from e2e import CLIENT, PYTHON, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost, check_trace, request

# A program that is attached to while it starts pays for the first traps.
COLD_MS = 50


def run(*argv, options=(), env=None, **popen):
    perfbpf = Perfbpf(*options, command=[str(a) for a in argv], env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                      text=True, **popen)
    out, _ = perfbpf.child.communicate(timeout=60)
    return perfbpf, perfbpf.child.returncode, out


def client_of(server, *options):
    return [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet", *options]


# --- CMD is held in its exec, and nobody else anywhere --------------------------------------------------------------------


@case
def held():
    """CMD is held in its exec, and that is told"""
    server = Server()
    perfbpf, status, _ = run(*client_of(server, "--id", "held"))
    assert status == 0, perfbpf.err()
    check_calls(perfbpf, server, 1, COLD_MS)
    check_nothing_lost(perfbpf)
    ms = perfbpf.trace()["metadata"]["self"]["exec_held_ms"]
    assert 0 < ms < 500, ms
    assert f"was held {ms:.1f} ms in its exec" in perfbpf.err(), perfbpf.err()


@case
def untraced_by_ptrace():
    """neither CMD nor its children have a tracer once CMD runs"""
    script = "grep TracerPid /proc/$$/status; grep TracerPid /proc/self/status; (sleep 0; grep TracerPid /proc/self/status)"
    perfbpf, status, out = run("sh", "-c", script)
    assert status == 0, perfbpf.err()
    assert out.split() == ["TracerPid:", "0"] * 3, out


@cases(
    [
        ("gdb", ["gdb", "-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "run", "--args"]),
        ("strace", ["strace", "-f", "-o", "/dev/null"]),
        ("below a shell", ["sh", "-c", 'strace -f -o /dev/null "$@"; exit $?', "sh"]),
    ]
)
def debuggers(argv):
    """a debugger in the tree works, and what it runs is traced"""
    tool = argv[0] if argv[0] != "sh" else "strace"
    if not shutil.which(tool):
        raise Skip(f"no {tool}")
    server = Server()
    perfbpf, status, out = run(*argv, *client_of(server, "--id", "debugged"))
    assert status == 0, (out, perfbpf.err())
    # Single steps of the debugged program are slow: the times are its own.
    check_calls(perfbpf, server, 1, 2000)


@case
def privileged_program():
    """a set-user-ID program keeps its privileges under the hold"""
    folder = e2e.directory()
    program = os.path.join(folder, "id")
    shutil.copy(shutil.which("id"), program)
    os.chmod(program, 0o4755)
    os.chown(folder, 65534, 65534)
    perfbpf, status, out = run(program, "-u", env={"SUDO_UID": "65534", "SUDO_GID": "65534"})
    assert status == 0, perfbpf.err()
    assert out.strip() == "0", f"effective user {out.strip()}"
    assert "exec_held_ms" in perfbpf.trace()["metadata"]["self"], perfbpf.err()


@case
def ptrace_refused():
    """without ptrace CMD runs unheld, and that is told"""
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    server = Server()
    folder = e2e.directory()
    trace = os.path.join(folder, "t.json")
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", e2e.PERFBPF, "-o", trace, "--",
         *client_of(server, "--id", "unheld")],
        capture_output=True, text=True, timeout=30, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not held in its exec" in done.stderr, done.stderr


# --- children ------------------------------------------------------------------------------------------------------------

DAEMON = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.argv[1], sys.argv[1:])
    os._exit(0)
os.wait()
"""


@case
def double_fork():
    """a grandchild that made itself a session of its own belongs to the tree"""
    server = Server()
    perfbpf, status, _ = run(PYTHON, "-c", DAEMON, *client_of(server, "--id", "daemon", "--knobs", "delay_ms=300"))
    assert status == 0, perfbpf.err()
    check_calls(perfbpf, server, 1, COLD_MS)
    check_nothing_lost(perfbpf)


# --- names ---------------------------------------------------------------------------------------------------------------


@case
def short_lived():
    """-n: programs that live some milliseconds, one after the other"""
    server = Server()
    perfbpf = Perfbpf("-n", "^modelclient$")
    for number in range(30):
        done = subprocess.run(client_of(server, "--id", f"short{number}", "--knobs", "tokens=1"), check=False, timeout=20)
        assert done.returncode == 0
    e2e.until(lambda: len(perfbpf.calls()) >= 30, 5, "all calls are recorded")
    assert perfbpf.end(signal.SIGINT) == 0
    check_calls(perfbpf, server, 30, COLD_MS)
    check_nothing_lost(perfbpf)


@case
def number_used_again():
    """two programs with one process id stay two"""
    last = "/proc/sys/kernel/ns_last_pid"
    if not os.access(last, os.W_OK):
        raise Skip("process ids cannot be chosen here")
    server = Server()
    perfbpf = Perfbpf("-n", "^modelclient$")
    first = subprocess.Popen(client_of(server, "--id", "again0"))
    first.wait(20)
    for attempt in range(1, 50):
        with open(last, "w", encoding="ascii") as f:
            f.write(str(first.pid - 1))
        second = subprocess.Popen(client_of(server, "--id", f"again{attempt}"))
        second.wait(20)
        if second.pid == first.pid:
            break
    else:
        raise Skip("another program took the number each time")
    e2e.until(lambda: len(perfbpf.calls()) >= attempt + 1, 5, "all calls are recorded")
    assert perfbpf.end(signal.SIGINT) == 0
    calls = check_calls(perfbpf, server, attempt + 1, COLD_MS)
    assert sum(c["pid"] == first.pid for c, _ in calls) == 2
    trace = check_trace(perfbpf)
    tracks = {e["pid"] for e in e2e.call_slices(trace)}
    assert len(tracks) == attempt + 1, f"{len(tracks)} tracks of {attempt + 1} programs: {tracks}"
    assert trace["metadata"]["agent_count"] == attempt + 1, trace["metadata"]


e2e.run_cases()
