#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perfbpf, run as root, can be made to do: whose rights outputs are made with, and what is left of root's while it runs."""
import fcntl
import os
import signal
import stat
import subprocess

import e2e
from e2e import CLIENT, PERFBPF, Client, Perfbpf, Server, case, cases

USER = 65534
BY_SUDO = {**os.environ, "SUDO_UID": str(USER), "SUDO_GID": str(USER), "SUDO_USER": "nobody"}

CAPABILITIES = {"dac_override": 1, "dac_read_search": 2, "sys_ptrace": 19, "sys_admin": 21, "perfmon": 38, "bpf": 39,
                "checkpoint_restore": 40}
LATE = {"bpf", "perfmon", "sys_ptrace", "dac_read_search", "checkpoint_restore"}
SECCOMP_FILTER = 2


def status_of(pid):
    lines = e2e.read_text(f"/proc/{pid}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def bits(names):
    return sum(1 << CAPABILITIES[n] for n in names)


def sleeper():
    return e2e.start(["sleep", "60"])


def streaming(server, calls=20):
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", str(calls), "--wait", "--quiet"]
    return Client([*argv, "--knobs", "tokens=5&delay_ms=1"])


def folder_of(uid, mode=0o755):
    path = e2e.directory()
    os.chmod(path, mode)
    os.chown(path, uid, uid)
    return path


def run(*argv, env=None):
    done = subprocess.run([PERFBPF, *map(str, argv)], env=env, capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    return done.returncode, done.stderr


# --- outputs --------------------------------------------------------------------------------------------------------------


@case
def his_files():
    """under sudo the outputs are the user's, mode 0600, made with his rights"""
    server = Server()
    client = streaming(server)
    folder = folder_of(USER, 0o700)
    paths = [os.path.join(folder, n) for n in ("trace.json", "calls.jsonl", "run.cap")]
    perfbpf = Perfbpf("-o", paths[0], "-c", paths[1], "--record", paths[2], "--content", "-p", client.pid, output=False,
                      calls=False, env=BY_SUDO)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    for path in paths:
        st = os.stat(path)
        assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (USER, USER, 0o600), (path, st)
    assert sorted(os.listdir(folder)) == sorted(os.path.basename(p) for p in paths), os.listdir(folder)
    again = os.path.join(folder, "again.json")
    status, err = run("replay", paths[2], "-o", again, env=BY_SUDO)
    assert status == 0 and os.stat(again).st_uid == USER, (status, err)


@cases([("a folder of root's", 0o755), ("one that he cannot even enter", 0o700), ("one of root's group", 0o775)])
def not_his_folders(mode):
    """under sudo nothing is made or replaced where the user could not"""
    target = sleeper()
    folder, his = folder_of(0, mode), folder_of(USER)
    old = os.path.join(folder, "old.json")
    with open(old, "w", encoding="utf-8") as f:
        f.write("old")
    os.chown(old, USER, USER)
    for path in (os.path.join(folder, "new.json"), old):
        for argv in (["-o", path], ["-o", os.path.join(his, "t.json"), "-c", path]):
            status, err = run(*argv, "-p", target.pid, env=BY_SUDO)
            assert status == 1 and f"cannot write {path}" in err, (argv, status, err)
    assert os.listdir(folder) == ["old.json"] and e2e.read_text(old) == "old", os.listdir(folder)


@case
def no_longer_his_folder():
    """a folder that ceases to be the user's while it traces gets no file"""
    target = sleeper()
    folder = folder_of(USER)
    path = os.path.join(folder, "trace.json")
    perfbpf = Perfbpf("-o", path, "-p", target.pid, output=False, calls=False, env=BY_SUDO)
    os.chown(folder, 0, 0)
    assert perfbpf.end(signal.SIGINT) == 1, perfbpf.err()
    assert f"cannot write {path}" in perfbpf.err() and not os.listdir(folder), (perfbpf.err(), os.listdir(folder))


@case
def root_for_himself():
    """root writes for himself where a mode would keep him from it, and only then keeps the right to"""
    target = sleeper()
    folder = folder_of(0, 0o555)
    path = os.path.join(folder, "trace.json")
    perfbpf = Perfbpf("-o", path, "-p", target.pid, output=False, calls=False)
    e2e.until(lambda: status_of(perfbpf.child.pid)["Seccomp"] == str(SECCOMP_FILTER), what="privileges are given up")
    assert int(status_of(perfbpf.child.pid)["CapPrm"], 16) == bits(LATE | {"dac_override"}), status_of(perfbpf.child.pid)
    assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
    assert os.listdir(folder) == ["trace.json"], os.listdir(folder)


# --- privileges -----------------------------------------------------------------------------------------------------------


@cases([("session", ["--attach", "session"], set()), ("multi", ["--attach", "multi"], set()),
        ("perf", ["--attach", "perf"], {"sys_admin"}), ("system-wide", ["-a"], set())])
def while_it_traces(options, more):
    """while it traces it has what later probes need, and few system calls"""
    server = Server()
    client = streaming(server, 2)
    target = [] if options == ["-a"] else ["-p", client.pid]
    perfbpf = Perfbpf(*options, *target)
    pid = perfbpf.child.pid
    e2e.until(lambda: status_of(pid)["Seccomp"] == str(SECCOMP_FILTER), what="the system calls are restricted")
    left = status_of(pid)
    if "no uprobe_multi" in perfbpf.err():
        more = {"sys_admin"}
    assert int(left["CapPrm"], 16) == int(left["CapEff"], 16) == bits(LATE | more), left
    assert int(left["CapInh"], 16) == int(left["CapAmb"], 16) == 0 and left["NoNewPrivs"] == "1", left
    # and it is enough for what is loaded after that
    for one in (client, streaming(server, 2)):
        one.go()
        assert one.finish() == 0
    assert perfbpf.end(signal.SIGINT if options == ["-a"] else None) == 0, perfbpf.err()
    assert len(perfbpf.calls()) >= (4 if options == ["-a"] else 2), perfbpf.calls()


@case
def the_keeper():
    """the account of probes is asked for by a process that can do nothing else, and ends with perfbpf"""
    target = sleeper()
    perfbpf = Perfbpf("-p", target.pid)
    pid = perfbpf.child.pid
    (keeper,) = e2e.read_text(f"/proc/{pid}/task/{pid}/children").split()
    e2e.until(lambda: int(status_of(keeper)["CapPrm"], 16) == bits({"sys_admin"}), what="it has given up the rest")
    left = status_of(keeper)
    assert left["Name"] == "perfbpf-keeper" and left["Seccomp"] == str(SECCOMP_FILTER), left
    assert os.listdir(f"/proc/{keeper}/fd") == ["3"], os.listdir(f"/proc/{keeper}/fd")
    e2e.until(lambda: "bpf" in snapshot(perfbpf)["metadata"]["self"], what="the account")
    pidfd = os.pidfd_open(int(keeper))
    perfbpf.child.kill()
    perfbpf.child.wait()
    e2e.until(lambda: ended(keeper), what="the keeper ends")
    os.close(pidfd)


def snapshot(perfbpf):
    if os.path.exists(perfbpf.trace_path):
        os.unlink(perfbpf.trace_path)
    perfbpf.child.send_signal(signal.SIGUSR1)
    e2e.until(lambda: os.path.exists(perfbpf.trace_path), what="a trace")
    return perfbpf.trace()


def ended(pid):
    return status_of(pid).get("State", "Z")[0] in "ZX"


@cases([("root", 0, os.environ), ("a user", USER, BY_SUDO)])
def while_it_writes(owner, env):
    """when it writes, after the last probe, no capability is left"""
    server = Server()
    client = streaming(server)
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)  # it waits in the middle of the trace until it is read
    perfbpf = Perfbpf("-o", "-", "-p", client.pid, output=False, stdout=write_end, owner=owner, env=env)
    os.close(write_end)
    client.go()
    assert client.finish() == 0
    with os.fdopen(read_end, "rb") as out:
        first = out.read(1)
        left = status_of(perfbpf.child.pid)
        rest = out.read()
    assert int(left["CapPrm"], 16) == int(left["CapEff"], 16) == 0, left
    assert perfbpf.end() == 0 and len(first + rest) > 8192, (perfbpf.err(), len(rest))


@case
def replay_has_none():
    """replay has no capability and few system calls when it reads the capture"""
    server = Server()
    client = streaming(server)
    capture = os.path.join(e2e.directory(), "run.cap")
    perfbpf = Perfbpf("--content", "--record", capture, "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    fifo = capture + ".fifo"
    os.mkfifo(fifo)
    child = e2e.start([PERFBPF, "replay", fifo, "-q", "-o", capture + ".json"], stderr=subprocess.PIPE, text=True)
    with open(fifo, "wb") as to, open(capture, "rb") as whole:
        data = whole.read()
        to.write(data[:1000])
        to.flush()
        e2e.until(lambda: int(status_of(child.pid)["CapPrm"], 16) == 0, what="no capability")
        assert status_of(child.pid)["Seccomp"] == str(SECCOMP_FILTER), status_of(child.pid)
        to.write(data[1000:])
    said = child.stderr.read()
    assert child.wait(e2e.HANGS_S) == 0 and "own filter" not in said, said


e2e.run_cases()
