#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Signals, outputs that cannot be written, targets that are not there, missing privileges: the exit status, one clear line,
and the previous output file intact."""
import fcntl
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import e2e
from e2e import CLIENT, PERFBPF, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_trace

OLD = '{"traceEvents":[],"old":true}\n'


def idle_target():
    return e2e.start(["sleep", "60"])


def streaming(server, calls=50):
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", str(calls), "--wait", "--quiet"]
    return Client([*argv, "--knobs", "tokens=20&gap_ms=2&delay_ms=5"])


def run(*argv, **options):
    """A run that should fail by itself: (status, standard error)."""
    done = subprocess.run(
        [PERFBPF, *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=e2e.HANGS_S,
        check=False,
        **options,
    )
    return done.returncode, done.stderr


def check_one_line(err, *words):
    """One line says what and why, at most one more is a hint."""
    lines = err.strip().split("\n")
    hints = [line for line in lines if line.startswith(("hint:", "perfbpf: hint:"))]
    assert len(lines) - len(hints) == 1 and len(hints) <= 1, f"not one line and a hint:\n{err}"
    assert any(word in err for word in words), f"none of {words} in:\n{err}"


@cases([("SIGINT", signal.SIGINT), ("SIGTERM", signal.SIGTERM)])
def stops(which):
    """stops, drains and writes"""
    server = Server()
    client = streaming(server)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    e2e.until(lambda: len(perfbpf.calls()) > 5, what="some calls are recorded")
    assert perfbpf.end(which) == 0, perfbpf.err()
    assert client.child.poll() is None, "the traced program goes on"
    trace = check_trace(perfbpf)
    records = perfbpf.calls()
    assert len(records) > 5 and len(e2e.call_slices(trace)) == len(records), len(records)
    open_calls = [r for r in records if r["end_reason"] == "capture_end"]
    assert len(open_calls) <= 1, open_calls
    assert client.finish() == 0, "the traced program is unharmed"


@case
def twice():
    """a second SIGINT ends at once and leaves a valid file"""
    server = Server()
    client = streaming(server)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    e2e.until(perfbpf.calls, what="a call is recorded")
    perfbpf.child.send_signal(signal.SIGINT)
    perfbpf.child.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    status = perfbpf.end()
    assert time.monotonic() - begin < e2e.patience(2), "at once"
    assert status in (0, -signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM), status
    check_trace(perfbpf)
    client.child.kill()


@case
def twice_over_old():
    """signals at any moment of the end leave the old file or a whole new one"""
    target = idle_target()
    for delay in (0.0, 0.001, 0.003, 0.01, 0.03):
        perfbpf = Perfbpf("-p", target.pid)
        perfbpf.child.send_signal(signal.SIGINT)
        time.sleep(delay)
        perfbpf.child.send_signal(signal.SIGINT)
        perfbpf.end()
        if os.path.exists(perfbpf.trace_path):
            json.loads(e2e.read_text(perfbpf.trace_path))
        left = [n for n in os.listdir(perfbpf.dir) if n not in ("trace.json", "calls.jsonl", "stderr")]
        assert not left, f"temporary files are left: {left}"


@case
def by_itself():
    """a first SIGINT while it ends by itself is no second one: all is told"""
    for delay in (0.0, 0.02, 0.05, 0.1, 0.15):
        target = idle_target()
        perfbpf = Perfbpf("-p", target.pid)
        target.kill()
        target.wait()
        time.sleep(delay)
        if perfbpf.child.poll() is None:
            perfbpf.child.send_signal(signal.SIGINT)
        assert perfbpf.end() == 0, (delay, perfbpf.err())
        assert " model calls in " in perfbpf.err() and "tracing cost" in perfbpf.err(), (delay, perfbpf.err())


@case
def usr1():
    """SIGUSR1 writes the trace now"""
    server = Server()
    client = streaming(server)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    e2e.until(perfbpf.calls, what="a call is recorded")
    assert not os.path.exists(perfbpf.trace_path)
    perfbpf.child.send_signal(signal.SIGUSR1)
    e2e.until(lambda: os.path.exists(perfbpf.trace_path), 5, "the trace is written")
    snapshot = check_trace(perfbpf)
    assert e2e.call_slices(snapshot), "calls are in it"
    assert perfbpf.child.poll() is None, "and tracing goes on"
    assert client.finish() == 0
    assert perfbpf.end() == 0
    final = check_trace(perfbpf)
    assert len(e2e.call_slices(final)) == 50 > len(e2e.call_slices(snapshot)) - 1


@case
def one_trace_on_standard_output():
    """SIGUSR1 writes no trace in front of the one that standard output gets at the end"""
    target = idle_target()
    perfbpf = Perfbpf("-o", "-", "-p", target.pid, output=False, stdout=subprocess.PIPE)
    perfbpf.child.send_signal(signal.SIGUSR1)
    e2e.until(lambda: "SIGUSR1" in perfbpf.err(), what="that is said")
    perfbpf.child.send_signal(signal.SIGINT)
    out, _ = perfbpf.child.communicate(timeout=e2e.HANGS_S)
    assert perfbpf.end() == 0 and json.loads(out)["traceEvents"], out


@cases([("calls", "-c", "stdout"), ("the trace", "-o", "stdout"), ("live lines", None, "stderr")])
def nobody_reads(option, stream):
    """a pipe that nobody reads keeps no second signal from ending it"""
    server = Server()
    client = Client([CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", "100", "--wait", "--quiet"])
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    path = os.path.join(e2e.directory(), "trace.json")
    argv = [PERFBPF, "-p", str(client.pid), *(() if option == "-o" else ("-o", path)), *((option, "-") if option else ())]
    child = e2e.start(argv, **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: write_end})
    os.close(write_end)
    if stream == "stderr":
        assert b"tracing" in os.read(read_end, 4096)
    else:
        time.sleep(e2e.patience(1.5))
    client.go()
    assert client.finish() == 0, "the traced program is not held up"

    def stuck():
        with open(f"/proc/{child.pid}/status", encoding="ascii") as f:
            return "State:\tS" in f.read() and select.select([read_end], [], [], 0)[0]

    e2e.until(stuck, what="it has something to say")
    time.sleep(0.5)
    assert child.poll() is None, "it waits for its reader"
    child.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert child.poll() is None, "it still waits: the reader may be slow"
    child.send_signal(signal.SIGINT)
    status = child.wait(e2e.patience(5))
    assert status == (0 if stream == "stderr" else 1), status
    if option != "-o":
        with open(path, encoding="utf-8") as f:
            assert json.load(f)["metadata"]["call_count"] > 0
    os.close(read_end)


@case
def interval():
    """--write-interval rewrites the trace"""
    target = idle_target()
    perfbpf = Perfbpf("--write-interval", "0.3", "-p", target.pid)
    e2e.until(lambda: os.path.exists(perfbpf.trace_path), 5, "the trace is written")
    first = os.stat(perfbpf.trace_path).st_ino
    e2e.until(lambda: os.stat(perfbpf.trace_path).st_ino != first, 5, "the trace is written again, by rename")
    assert perfbpf.end(signal.SIGINT) == 0


@case
def closed_output():
    """standard output that is closed is refused before anything is traced"""
    for options in (("-o", "-"), ("-c", "-", "-o", os.path.join(e2e.directory(), "t.json"))):
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", PERFBPF, "-p", str(os.getpid()), *options], stderr=subprocess.PIPE,
                              text=True, timeout=e2e.HANGS_S, check=False)
        assert done.returncode == 1 and "standard output" in done.stderr, (options, done.returncode, done.stderr)


@case
def closed_pipe():
    """standard output that nobody reads does not kill it"""
    server = Server()
    client = streaming(server, 20)
    out = os.path.join(e2e.directory(), "trace.json")
    err = open(os.path.join(os.path.dirname(out), "err"), "w+", encoding="utf-8")
    read_end, write_end = os.pipe()
    child = e2e.start([PERFBPF, "-o", out, "-c", "-", "-p", str(client.pid)], stdout=write_end, stderr=err)
    os.close(write_end)
    e2e.until(lambda: "tracing " in e2e.read_text(err.name), what="perfbpf traces")
    os.close(read_end)
    client.go()
    assert client.finish() == 0
    status = child.wait(e2e.HANGS_S)
    err.close()
    assert status in (0, 1), f"status {status}: {e2e.read_text(err.name)}"
    with open(out, encoding="utf-8") as f:
        assert len(e2e.call_slices(json.load(f))) == 20


@case
def closed_stderr():
    """standard error that nobody reads does not kill it"""
    server = Server()
    client = streaming(server, 20)
    folder = e2e.directory()
    out, calls = os.path.join(folder, "trace.json"), os.path.join(folder, "calls")
    child = e2e.start([PERFBPF, "-o", out, "-c", calls, "-p", str(client.pid)], stderr=subprocess.PIPE, text=True)
    while "tracing " not in child.stderr.readline():
        pass
    child.stderr.close()
    child.stderr = None
    client.go()
    assert client.finish() == 0
    assert child.wait(e2e.HANGS_S) in (0, 1)
    with open(out, encoding="utf-8") as f:
        assert len(e2e.call_slices(json.load(f))) == 20


# --- outputs -------------------------------------------------------------------------------------------------------------


@case
def disk_full():
    """no space for the trace: status 1, the old file intact"""
    server = Server()
    client = streaming(server, 60)
    mount = e2e.directory()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", mount], check=False).returncode:
        raise Skip("cannot mount a tmpfs")
    try:
        out = os.path.join(mount, "trace.json")
        with open(out, "w", encoding="utf-8") as f:
            f.write(OLD)
        # the second target goes on: it is the signal that ends the run, when the disk is full
        perfbpf = Perfbpf("-o", out, "-p", f"{client.pid},{idle_target().pid}", output=False)
        client.go()
        assert client.finish() == 0
        with open(os.path.join(mount, "filler"), "wb") as f:
            try:
                f.write(b"x" * 100_000)
            except OSError:
                pass
        status = perfbpf.end(signal.SIGINT)
        assert status == 1, f"status {status}: {perfbpf.err()}"
        assert "No space left" in perfbpf.err() and out in perfbpf.err(), perfbpf.err()
        assert e2e.read_text(out) == OLD, "the old file is intact"
        assert sorted(os.listdir(mount)) == ["filler", "trace.json"], os.listdir(mount)
        check_calls(perfbpf, server, 60, 50)
    finally:
        subprocess.run(["umount", "-l", mount], check=False)


@case
def bad_outputs():
    """outputs that are refused before anything is traced"""
    target = idle_target()
    folder = e2e.directory()
    elsewhere = os.path.join(folder, "elsewhere")
    with open(elsewhere, "w", encoding="utf-8") as f:
        f.write(OLD)
    link, fifo, shared = (os.path.join(folder, n) for n in ("link.json", "fifo.json", "shared"))
    os.symlink(elsewhere, link)
    os.mkfifo(fifo)
    os.mkdir(shared)
    os.chmod(shared, 0o777)
    for option in ("-o", "-c"):
        for path in (
            link,
            fifo,
            folder,
            os.path.join(shared, "trace.json"),
            os.path.join(folder, "missing", "trace.json"),
            "/proc/trace.json",
        ):
            rest = ["-o", os.path.join(folder, "ok.json")] if option == "-c" else []
            status, err = run(option, path, *rest, "-p", target.pid)
            assert status == 1, f"{option} {path}: status {status}: {err}"
            check_one_line(err, path)
    assert e2e.read_text(elsewhere) == OLD and os.path.islink(link), "the link and its file are untouched"
    assert stat.S_ISFIFO(os.stat(fifo).st_mode) and not os.listdir(shared)


@case
def replaces():
    """an old output is replaced by rename; its mode is the user's alone"""
    target = idle_target()
    folder = e2e.directory()
    out = os.path.join(folder, "trace.json")
    with open(out, "w", encoding="utf-8") as f:
        f.write(OLD)
    old = os.stat(out).st_ino
    perfbpf = Perfbpf("-o", out, "-p", target.pid, output=False)
    assert e2e.read_text(out) == OLD, "the old file stays until the new one is whole"
    assert perfbpf.end(signal.SIGINT) == 0
    assert os.stat(out).st_ino != old and "old" not in json.loads(e2e.read_text(out))


# --- targets and privileges --------------------------------------------------------------------------------------------------


@case
def no_target():
    """a pid that is not there"""
    gone = e2e.start(["true"])
    gone.wait()
    out = os.path.join(e2e.directory(), "trace.json")
    for pid in (gone.pid, 4194303):
        status, err = run("-o", out, "-p", pid)
        assert status == 1, (status, err)
        check_one_line(err, f"pid {pid}")
        assert "no such process" in err, err
    zombie = e2e.start(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    thread = threading.Thread(target=time.sleep, args=(5,), daemon=True)
    thread.start()
    wrong = [(zombie.pid, "it has ended"), (thread.native_id, "that is a thread, not a process")]
    if e2e.read_text("/proc/2/comm") == "kthreadd\n":
        wrong.append((2, "that is a kernel thread"))
    for pid, why in wrong:
        status, err = run("-o", out, "-p", pid)
        assert status == 1 and f"pid {pid}: {why}" in err, (pid, why, status, err)
        check = subprocess.run([PERFBPF, "check", "-p", str(pid)], capture_output=True, text=True, timeout=20, check=False)
        assert check.returncode == 1 and f"pid {pid}: {why}" in check.stderr, check
        assert "\npid " not in check.stdout, check.stdout
    assert not os.path.exists(out)


@case
def target_ends():
    """a target that ends ends the trace"""
    target = e2e.start(["sleep", "60"])
    perfbpf = Perfbpf("-p", target.pid)
    target.terminate()
    target.wait()
    assert perfbpf.end(seconds=5) == 0, perfbpf.err()
    assert check_trace(perfbpf)["metadata"]["call_count"] == 0


@case
def no_privileges():
    """without privileges"""
    target = idle_target()
    folder = e2e.directory()
    os.chown(folder, 65534, 65534)
    copy = os.path.join(folder, "perfbpf")
    shutil.copy(PERFBPF, copy)
    done = subprocess.run(
        ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", copy, "-o", f"{folder}/t", "-p", str(target.pid)],
        capture_output=True,
        text=True,
        timeout=e2e.HANGS_S,
        check=False,
    )
    assert done.returncode == 1, (done.returncode, done.stderr)
    check_one_line(done.stderr, "root", "privilege", "permitted", "CAP_")
    assert "sudo" in done.stderr or "root" in done.stderr, done.stderr


@case
def no_btf():
    """a kernel without BTF"""
    target = idle_target()
    out = os.path.join(e2e.directory(), "t")
    script = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", PERFBPF, "-o", out, "-p", str(target.pid)],
        capture_output=True,
        text=True,
        timeout=e2e.HANGS_S,
        check=False,
    )
    assert done.returncode == 1, (done.returncode, done.stderr)
    check_one_line(done.stderr, "BTF")


@case
def bad_usage():
    """usage errors are status 2"""
    for argv in (
        ["--no-such-option"],
        ["-a", "-p", "1"],
        ["-p", "x"],
        ["-p", "-1"],
        ["-p", ""],
        ["--ring-bytes", "1000", "-p", "1"],
        ["--ring-bytes", "-4096", "-p", "1"],
        ["-o", "-", "-c", "-", "-p", "1"],
        ["-o", "-", "--write-interval", "1", "-p", "1"],
        ["--record", "x.cap", "-p", "1"],
        ["-n", "(", "-o", "/tmp/perfbpf-e2e-none.json"],
        ["-n", ""],
        ["-d", "soon", "-p", "1"],
        ["--stale", "nan", "-p", "1"],
        ["--max-events", "0", "-p", "1"],
        ["-p", "1", "-n", "x"],
        ["--"],
        ["replay"],
        ["replay", "a", "b"],
        ["frobnicate"],
    ):
        status, err = run(*argv)
        assert status == 2, f"{argv}: status {status}: {err}"
        assert err.strip(), f"{argv}: nothing is said"
    for argv in (["--help"], ["--version"], ["record", "--help"], ["replay", "--help"], ["check", "--help"]):
        status, err = run(*argv)
        assert status == 0, (argv, status, err)


@case
def check_command():
    """check says what can be traced"""
    server = Server()
    client = streaming(server, 1)
    done = subprocess.run([PERFBPF, "check", "-p", str(client.pid)], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert "libssl" in done.stdout and "SSL_read" in done.stdout and "SSL_write" in done.stdout, done.stdout
    target = idle_target()
    done = subprocess.run([PERFBPF, "check", "-p", str(target.pid)], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 1, (done.returncode, done.stdout)
    done = subprocess.run([PERFBPF, "check"], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PERFBPF, "check"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 1 and "cannot write standard output" in done.stderr, (done.returncode, done.stderr)


e2e.run_cases()
