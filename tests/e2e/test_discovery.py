#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Libraries that come late, or from where perfbpf cannot look: probed when they are mapped, before their first call."""
import glob
import os
import shutil
import subprocess

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost

# Attached while the program is on its way to its first call: that call pays for the first traps.
COLD_MS = 50

LATE = """
import sys, time
sys.stdin.readline()
time.sleep(float(sys.argv[2]))
import http.client, ssl
time.sleep(0.1)  # setting a probe takes the kernel up to 15 ms, a real connection to a server more
c = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=ssl._create_unverified_context())
for i in range(4):
    c.request("POST", f"/late{i}/v1/messages?tokens=4&gap_ms=1", '{"model":"m","stream":true,"messages":[]}')
    c.getresponse().read()
"""


def private_libraries():
    """A folder with copies of the TLS library: another inode than the system's, which is probed beforehand."""
    folder = e2e.directory()
    found = [p for name in ("libssl.so.3", "libcrypto.so.3") for p in glob.glob(f"/usr/lib/*/{name}")]
    if len(found) != 2:
        raise Skip("no libssl.so.3")
    for path in found:
        shutil.copy(os.path.realpath(path), os.path.join(folder, os.path.basename(path)))
    return folder


def late_program():
    path = os.path.join(e2e.directory(), "late.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(LATE)
    return path


@cases([("at once", 0), ("after a second", 1)])
def late_import(pause):
    """a library that is loaded after the attach"""
    server = Server()
    env = {**os.environ, "LD_LIBRARY_PATH": private_libraries()}
    client = Client(["/usr/bin/python3", late_program(), str(server.port), str(pause)], env, waits=False)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    perfbpf.end()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)


def small_root():
    """A root folder with the client, its own copies of the libraries, and nothing else."""
    root = e2e.directory()
    os.chmod(root, 0o755)
    libraries = [w for w in subprocess.run(["ldd", CLIENT], capture_output=True, text=True, check=True).stdout.split() if w[0] == "/"]
    for path in libraries:
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        shutil.copy(os.path.realpath(path), root + path)
    shutil.copy(CLIENT, os.path.join(root, "client"))
    return root


@case
def other_root():
    """a program in another root, and a short one, from its first call on"""
    root = small_root()
    for count in (12, 1):
        server = Server()
        argv = ["chroot", root, "/client", "--port", str(server.port), "-n", str(count), "--quiet"]
        perfbpf = Perfbpf(command=argv, ready=False)
        assert perfbpf.child.wait(30) == 0, perfbpf.err()
        check_calls(perfbpf, server, count, COLD_MS)
        check_nothing_lost(perfbpf)


@case
def other_mounts():
    """a library at a path that is empty in perfbpf's mount namespace"""
    server = Server()
    place = e2e.directory()
    libraries = private_libraries()
    script = f"mount -t tmpfs t {place} && cp {libraries}/* {place} && LD_LIBRARY_PATH={place} exec {CLIENT} --port {server.port} -n 5 --quiet"
    perfbpf = Perfbpf(command=["unshare", "-m", "sh", "-c", script], ready=False)
    assert perfbpf.child.wait(30) == 0, perfbpf.err()
    assert not os.listdir(place)
    check_calls(perfbpf, server, 5, COLD_MS)
    check_nothing_lost(perfbpf)


e2e.run_cases()
