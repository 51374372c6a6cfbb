#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perfbpf check: what would be probed and where, what is refused and why, and an exit status that says it."""
import glob
import os
import re
import shutil
import subprocess

import e2e
from e2e import CLIENT, PERFBPF, Client, Server, Skip, case


def check(*options):
    done = subprocess.run([PERFBPF, "check", *map(str, options)], capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    return done.returncode, done.stdout


def check_process(pid):
    status, out = check("-p", pid)
    return status, re.split(r"(?m)^pid ", out)[1]


def waiting_client(env=None):
    server = Server()
    return Client([CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet", "--wait"], env)


def shape(name):
    path = os.path.join(e2e.BUILD, "tests", "shapes", f"{name}.so")
    if not os.access(path, os.R_OK):
        raise Skip(f"{path} is not built")
    return path


@case
def traceable():
    """every stack can be traced: 0; file, method, functions, sites"""
    client = waiting_client()
    status, out = check_process(client.pid)
    assert status == 0, out
    assert re.match(rf"{client.pid}: {re.escape(CLIENT)}\n", out), out
    found = re.search(r"(?m)^  (/\S+/libssl\.so\S+): openssl \S+, named by symbols\n((?:    .*\n)+)", out)
    assert found, out
    functions = found.group(2)
    for name in ("SSL_read", "SSL_write", "SSL_do_handshake", "SSL_free"):
        assert name in functions, functions
    for line in functions.splitlines():
        assert re.search(r" at 0x[0-9a-f]+ +(emulated|single-stepped|entry) ", line), line


@case
def nothing():
    """a process without TLS: 1"""
    sleeper = e2e.start(["sleep", "60"])
    status, out = check_process(sleeper.pid)
    assert status == 1, out
    assert "no TLS functions in the files that it maps now" in out, out


@case
def gone():
    """no such process: 1"""
    child = e2e.start(["true"])
    child.wait()
    assert check("-p", child.pid)[0] == 1


@case
def hidden():
    """a process that /proc does not show is not one that there is not"""
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    sleeper, gone_child = e2e.start(["sleep", "60"]), e2e.start(["true"])
    gone_child.wait()
    script = 'mount -t proc -o hidepid=4 proc /proc && exec setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace "$@"'
    for command in ("check",), ("record", "-o", os.path.join(e2e.directory(), "x.json")):
        for pid, why in (sleeper.pid, "it is there, but /proc does not show it"), (gone_child.pid, "no such process"):
            done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", PERFBPF, *command, "-p", str(pid)],
                                  capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
            assert done.returncode == 1 and f"pid {pid}: {why}" in done.stderr, done


@case
def few_descriptors():
    """the soft limit of open files is raised; a hard one that is too low is named, with what is needed"""
    sleeper = e2e.start(["sleep", "60"])
    for command in ("check",), ("record", "-d", "1", "-o", os.path.join(e2e.directory(), "x.json")):
        for kind in "S", "H":
            argv = [PERFBPF, *command, "-p", str(sleeper.pid)]
            done = subprocess.run(["sh", "-c", f'ulimit -Sn 20; [ {kind} = S ] || ulimit -Hn 20; exec "$@"', "sh", *argv],
                                  capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
            said = re.search(r"RLIMIT_NOFILE allows 20 open files: perfbpf needs \d\d\d+,.*\n.*hint: ", done.stdout + done.stderr)
            assert bool(said) == (kind == "H"), done
            assert done.returncode == (0 if kind == "S" and command[0] == "record" else 1), done


@case
def some_refused():
    """one stack of two is refused: 3, with the file, its build id and the reason"""
    path = shape("half")
    client = waiting_client({"LD_PRELOAD": path})
    status, out = check_process(client.pid)
    assert status == 3, out
    assert re.search(r"/libssl\.so\S+: openssl \S+, named by symbols", out), out
    assert re.search(rf"(?m)^  {re.escape(path)}: openssl: refused: no function that writes \(build id [0-9a-f]+\)$", out), out


@case
def all_refused():
    """the only stack is refused: 1"""
    sleeper = e2e.start(["sleep", "60"], env={**os.environ, "LD_PRELOAD": shape("half")})
    e2e.until(lambda: "half.so" in e2e.read_text(f"/proc/{sleeper.pid}/maps"), what="sleep is loaded")
    status, out = check_process(sleeper.pid)
    assert status == 1, out
    assert "refused: no function that writes" in out, out


@case
def deleted():
    """a library that was deleted while it is mapped"""
    path = os.path.join(e2e.directory(), "libssl.so.3")
    found = glob.glob("/usr/lib/*/libssl.so.3")
    if not found:
        raise Skip("no libssl.so.3")
    with open(found[0], "rb") as f, open(path, "wb") as copy:
        copy.write(f.read())
    client = waiting_client({"LD_LIBRARY_PATH": os.path.dirname(path)})
    os.unlink(path)
    status, out = check_process(client.pid)
    assert status == 0, out
    assert f"  {path}: openssl 3, named by symbols\n" in out, out


@case
def go():
    """a stripped Go program: entries and returns by its function table"""
    path = e2e.write_config(port=1, wait=True, calls=[])
    client = Client([e2e.go_program("client-stripped"), path])
    status, out = check_process(client.pid)
    assert status == 0, out
    assert f"  {e2e.go_program('client-stripped')}: go crypto/tls, named by gopclntab\n" in out, out
    for name in ("Read", "Write", "clientHandshake"):
        lines = re.search(rf"    crypto/tls\.\(\*Conn\)\.{name} .*\n.*returns +at((?: 0x[0-9a-f]+)+) single-stepped\n", out)
        assert lines, out
        assert len(set(lines.group(1).split())) > 3, lines.group(1)
    client.go()
    assert client.finish() == 0


e2e.run_cases()
