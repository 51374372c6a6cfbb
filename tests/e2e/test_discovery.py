#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Libraries that come late, or from where perfbpf cannot look: probed when they are mapped, before their first call."""
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import e2e
from e2e import CLIENT, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost

# Attached while the program is on its way to its first call: that call pays for the first traps.
COLD_MS = 50

# Into a client that waits: loaded, and then its first call. On a busy machine an attach takes its time.
SETTLE_SECONDS = 0.3
AFTER_A_WHILE = f"(sleep {SETTLE_SECONDS}; echo)"

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


@cases([("none to name a file", 0), ("one, and none to read it", 1)])
def short_of_descriptors(left):
    """A library that no descriptor is left for is looked at again when it is mapped again"""
    server = Server()
    env = {**os.environ, "LD_LIBRARY_PATH": private_libraries()}
    first, second = (
        Client(["/usr/bin/python3", late_program(), str(server.port), "0"], env, waits=False) for _ in range(2)
    )
    perfbpf = Perfbpf("-p", f"{first.pid},{second.pid}")
    taken = {int(d) for d in os.listdir(f"/proc/{perfbpf.child.pid}/fd")}
    free = min(set(range(len(taken) + 1)) - taken)
    usual = resource.prlimit(perfbpf.child.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(perfbpf.child.pid, resource.RLIMIT_NOFILE, (free + left, usual[1]))
    first.go()
    assert first.finish() == 0
    e2e.until(lambda: "libssl.so.3: not traced: Too many open files" in perfbpf.err(), what="a refusal")
    resource.prlimit(perfbpf.child.pid, resource.RLIMIT_NOFILE, usual)
    second.go()
    assert second.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert [c["pid"] for c in perfbpf.calls()].count(second.pid) == 4, perfbpf.err()


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


def call_from_root(root, count):
    server = Server()
    argv = ["chroot", root, "/client", "--port", str(server.port), "-n", str(count), "--quiet"]
    perfbpf = Perfbpf(command=argv, ready=False)
    assert perfbpf.child.wait(e2e.HANGS_S) == 0, perfbpf.err()
    return server, perfbpf


def came_late(perfbpf):
    """Its files are known when a program maps them: perfbpf has to win that race. Where it lost, it says so."""
    return perfbpf.lost().get("late_attach") or any(c["mid_attach"] for c in perfbpf.calls())


@case
def other_root():
    """a program in another root, and a short one, from its first call on"""
    root = small_root()
    for count in (12, 1):
        server, perfbpf = call_from_root(root, count)
        for _ in range(3):
            if not came_late(perfbpf):
                break
            e2e.note("perfbpf did not come in time, and that is said: once more")
            server, perfbpf = call_from_root(root, count)
        if came_late(perfbpf) and e2e.loaded():
            e2e.note("nor ever: this machine has no turn for it while the program runs")
            continue
        check_calls(perfbpf, server, count, COLD_MS)
        check_nothing_lost(perfbpf)


@case
def other_mounts():
    """a library at a path that is empty in perfbpf's mount namespace"""
    server = Server()
    place = e2e.directory()
    libraries = private_libraries()
    client = f"LD_LIBRARY_PATH={place} {CLIENT} --port {server.port} -n 5 --quiet --wait"
    script = f"mount -t tmpfs t {place} && cp {libraries}/* {place} && {AFTER_A_WHILE} | {client}"
    perfbpf = Perfbpf(command=["unshare", "-m", "sh", "-c", script], ready=False, stdout=subprocess.DEVNULL)
    assert perfbpf.child.wait(e2e.HANGS_S) == 0, perfbpf.err()
    assert not os.listdir(place)
    check_calls(perfbpf, server, 5, COLD_MS)
    check_nothing_lost(perfbpf)


# --- one file under several names, several files under one name ------------------------------------------------------------


def mount(*argv):
    done = subprocess.run(["mount", *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip(f"mount: {done.stderr.strip()}")


@case
def overlays():
    """two overlay mounts of one layer, as of two containers of one image: each call once"""
    layer, views, upper = private_libraries(), [e2e.directory(), e2e.directory()], e2e.directory()
    server = Server()
    mounted = []
    try:
        # An upper layer on another file system: the numbers of stat(2) and of /proc/PID/maps differ.
        mount("-t", "tmpfs", "t", upper)
        mounted.append(upper)
        for i, view in enumerate(views):
            for name in ("upper", "work"):
                os.mkdir(f"{upper}/{name}{i}")
            mount("-t", "overlay", "o", "-o", f"lowerdir={layer},upperdir={upper}/upper{i},workdir={upper}/work{i}", view)
            mounted.append(view)
        places = [*views, layer]
        one = f"{CLIENT} --port {server.port} --cacert {server.cert} -n 4 --quiet --wait --id"
        script = "; ".join(f"{AFTER_A_WHILE} | LD_LIBRARY_PATH={place} {one} view{i}" for i, place in enumerate(places))
        perfbpf = Perfbpf(command=["sh", "-c", script], stdout=subprocess.DEVNULL)
        assert perfbpf.end() == 0, perfbpf.err()
        check_calls(perfbpf, server, 12, COLD_MS)
        check_nothing_lost(perfbpf)
        files = [f for f in perfbpf.trace()["metadata"]["attach"] if f["file"].endswith("libssl.so.3")]
        assert len([f for f in files if os.path.dirname(f["file"]) in places]) == 1, files
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", place], check=False)


@case
def same_numbers():
    """two files with one inode number, on two file systems"""
    server = Server()
    libraries = private_libraries()
    places = [e2e.directory(), e2e.directory()]
    try:
        for place in places:
            mount("-t", "tmpfs", "t", place)
            shutil.copy(f"{libraries}/libssl.so.3", place)
        if len({os.stat(f"{place}/libssl.so.3").st_ino for place in places}) != 1:
            raise Skip("tmpfs does not count its inodes anew here")
        clients = [waiting_client(server, f"place{i}", 3, env={"LD_LIBRARY_PATH": place}) for i, place in enumerate(places)]
        perfbpf = Perfbpf("-p", ",".join(str(c.pid) for c in clients))
        for client in clients:
            client.go()
            assert client.finish() == 0
        assert perfbpf.end() == 0, perfbpf.err()
        check_calls(perfbpf, server, 6, COLD_MS)
        check_nothing_lost(perfbpf)
    finally:
        for place in places:
            subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)


def waiting_client(server, name, count, program=CLIENT, env=None):
    """The model client behind a shell that waits: its exec comes after go()."""
    argv = [program, "--port", str(server.port), "--cacert", server.cert, "-n", str(count), "--quiet", "--id", name]
    return Client(argv + ["--wait"], env)


def with_few_rights(*options):
    """perfbpf with what BPF needs and no more: neither ptrace nor map_files."""
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    rights = "-all,+bpf,+perfmon,+dac_override"
    trace = os.path.join(e2e.directory(), "trace.json")
    argv = ["setpriv", "--bounding-set", rights, "--inh-caps", rights, e2e.PERFBPF, "-o", trace, "--strict", *options]
    return e2e.start(argv, stderr=subprocess.PIPE, text=True)


@case
def few_rights():
    """without ptrace: a file that is here by the same name is probed, another one is told, and --strict fails"""
    server = Server()
    hidden = private_libraries()
    here = waiting_client(server, "here", 2)
    there = waiting_client(server, "there", 2, env={"LD_LIBRARY_PATH": hidden})
    shutil.rmtree(hidden)
    perfbpf = with_few_rights("-p", f"{here.pid},{there.pid}")
    lines = [perfbpf.stderr.readline()]
    while "tracing " not in lines[-1] and lines[-1]:
        lines.append(perfbpf.stderr.readline())
    for client in (here, there):
        client.go()
        assert client.finish() == 0
    lines += perfbpf.communicate(timeout=e2e.HANGS_S)[1].splitlines()
    text = "\n".join(lines)
    assert re.search(rf"pid {there.pid}: \d+ mapped files? unreadable \(EACCES\), TLS in there not traced", text), text
    assert f"pid {here.pid}: " not in text, text
    assert "2 model calls" in text, text
    assert perfbpf.returncode == 3, (perfbpf.returncode, text)


MAPS_AT_ONCE = """
import ctypes, os, sys
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
ctypes.CDLL(sys.argv[1])
"""


@case
def unread_library():
    """a library that is too large to be looked through is told, and --strict fails"""
    path = os.path.join(private_libraries(), "libssl.so.3")
    os.truncate(path, 5 << 30)
    client = Client(["/usr/bin/python3", "-c", MAPS_AT_ONCE, path])
    perfbpf = Perfbpf("--strict", "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 3, perfbpf.err()
    assert perfbpf.err().count("libssl.so.3: not traced: File too large") == 1, perfbpf.err()
    assert perfbpf.lost() == {"untraced_targets": 1}, perfbpf.lost()


def client_in(folder):
    path = os.path.join(folder, "agent")
    shutil.copy(CLIENT, path)
    return path


def replace(path):
    """As updaters do: another file is renamed over it."""
    shutil.copy(path, path + ".new")
    os.rename(path + ".new", path)


@case
def replaced():
    """the library is replaced while programs run: the old one, the new one and the next one"""
    libraries = private_libraries()
    env = {"LD_LIBRARY_PATH": libraries}
    library = os.path.join(libraries, "libssl.so.3")
    server = Server()
    agent = client_in(e2e.directory())
    clients = [waiting_client(server, "old", 3, agent, env)]
    replace(library)
    replace(agent)
    clients.append(waiting_client(server, "new", 3, agent, env))
    perfbpf = Perfbpf("-n", f"^{agent} ", "--duration", "30")
    replace(library)
    clients.append(waiting_client(server, "next", 3, agent, env))
    os.unlink(library)
    time.sleep(SETTLE_SECONDS)
    for client in clients:
        client.go()
    for client in clients:
        assert client.finish() == 0, client.lines
    e2e.until(lambda: len(perfbpf.calls()) >= 9, what="9 calls")
    perfbpf.end(signal.SIGINT)
    check_calls(perfbpf, server, 9, COLD_MS)
    check_nothing_lost(perfbpf)
    files = [f["file"] for f in perfbpf.trace()["metadata"]["attach"] if f["file"].startswith(libraries)]
    assert len(files) == 3, files


@cases([("a newline", "a\nb"), ("blanks", "a  b "), ("deleted", "x (deleted)"), ("backslashes", "a\\012b"), ("no UTF-8", "a\udcff\x1bb")])
def odd_names(name):
    """a library in a folder with an odd name"""
    folder = os.path.join(e2e.directory(), name)
    os.rename(private_libraries(), folder)
    server = Server()
    client = waiting_client(server, "odd", 4, env={"LD_LIBRARY_PATH": folder})
    # Not by the events of mappings: by the maps file.
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)
    assert "\x1b" not in perfbpf.err(), "control characters reach the terminal"


MEMFD = """
import os, sys
fds = []
for path in sys.argv[1].split(":"):
    fd = os.memfd_create(os.path.basename(path), 0)
    with open(path, "rb") as f:
        os.write(fd, f.read())
    fds.append(f"/proc/self/fd/{fd}")
os.environ["LD_PRELOAD"] = ":".join(fds)
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
os.execv(sys.argv[2], sys.argv[2:])
"""


@case
def memory_file():
    """a library that is in no file system (memfd)"""
    libraries = private_libraries()
    server = Server()
    path = f"{libraries}/libcrypto.so.3:{libraries}/libssl.so.3"
    argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "-n", "4", "--quiet", "--wait"]
    client = Client(["/usr/bin/python3", "-c", MEMFD, path, *argv])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.child.stdout.readline() == f"pid {client.pid}\n"
    time.sleep(SETTLE_SECONDS)
    client.go()
    assert client.finish() == 0, client.lines
    perfbpf.end()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)
    assert any("memfd:" in f["file"] for f in perfbpf.trace()["metadata"]["attach"]), "it was the library of the system"


# --- other namespaces ------------------------------------------------------------------------------------------------------


@case
def other_pids():
    """a program in its own pid and mount namespace, with the library at a path that is not here: pids are ours"""
    server = Server()
    place = e2e.directory()
    libraries = private_libraries()
    inner = f"echo inner $$; exec {CLIENT} --port {server.port} --cacert {server.cert} -n 4 --quiet --wait"
    script = f"mount -t tmpfs t {place} && cp {libraries}/* {place} && mount -t proc p /proc && echo ready && read l && LD_LIBRARY_PATH={place} exec sh -c '{inner}'"
    client = Client(["unshare", "-pfm", "--kill-child", "sh", "-c", script], waits=False)
    assert client.child.stdout.readline() == "ready\n"
    children = e2e.read_text(f"/proc/{client.pid}/task/{client.pid}/children").split()
    assert len(children) == 1, children
    perfbpf = Perfbpf("-p", children[0])
    client.go()
    client.lines += [client.child.stdout.readline().strip() for _ in range(2)]
    assert client.lines[1] == "pid 1", client.lines
    time.sleep(SETTLE_SECONDS)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    pairs = check_calls(perfbpf, server, 4, COLD_MS)
    assert {c["pid"] for c, _ in pairs} == {int(children[0])}, "not the number that the process has here"
    check_nothing_lost(perfbpf)


@case
def own_pids():
    """perfbpf in a pid namespace of its own says so, and does not start CMD"""
    path = os.path.join(e2e.directory(), "trace.json")
    argv = ["unshare", "-pfm", "--mount-proc", e2e.PERFBPF, "-o", path, "--", "echo", "started"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 1, done
    assert "pid namespace" in done.stderr and "hint: " in done.stderr, done.stderr
    assert "started" not in done.stdout, "CMD ran untraced"


# --- probes come and go ----------------------------------------------------------------------------------------------------


def links_of(perfbpf):
    """How many BPF links of uprobes this perfbpf holds."""
    folder = f"/proc/{perfbpf.child.pid}/fdinfo"
    return sum("link_type:\tuprobe_multi" in e2e.read_text(f"{folder}/{fd}") for fd in os.listdir(folder))


@case
def last_one_gone():
    """probes of a file are shared, and removed when the last process that maps it is gone"""
    server = Server()
    libraries = private_libraries()
    stays = Client(["sh", "-c", "echo pid $$; read line"])
    alone = Perfbpf("-p", stays.pid)
    before = links_of(alone)
    if not before:
        raise Skip("this kernel has no uprobe_multi links")
    clients = [waiting_client(server, f"user{i}", 2, env={"LD_LIBRARY_PATH": libraries}) for i in range(2)]
    perfbpf = Perfbpf("-v", "--sweep", "0.5", "-p", ",".join(str(c.pid) for c in [stays, *clients]))
    assert links_of(perfbpf) == before + 1, "one link for both"
    for client in clients:
        assert "probes are removed" not in perfbpf.err(), perfbpf.err()
        client.go()
        assert client.finish() == 0
        time.sleep(1)
    e2e.until(lambda: f"{libraries}/libssl.so.3: no traced process maps it" in perfbpf.err(), what="the probes are removed")
    assert links_of(perfbpf) == before
    stays.go()
    assert perfbpf.end() == 0, perfbpf.err()
    assert alone.end() == 0, alone.err()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)


@case
def set_again():
    """a program that ends and is started again: the second time its probes are set again"""
    server = Server()
    one = f"LD_LIBRARY_PATH={private_libraries()} {CLIENT} --port {server.port} --cacert {server.cert} -n 2 --quiet --wait --id"
    script = f"for name in a b; do {AFTER_A_WHILE} | {one} $name; sleep 1.5; done"
    perfbpf = Perfbpf("-v", "--sweep", "0.2", command=["sh", "-c", script], stdout=subprocess.DEVNULL)
    assert perfbpf.end() == 0, perfbpf.err()
    assert perfbpf.err().count("its probes are removed") == 2, perfbpf.err()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)


def copy_as(inode, path):
    """A new file at `path` that got the number of a file that is gone; False: others took it."""
    folder = tempfile.mkdtemp(dir=os.path.dirname(path))
    for number in range(50):
        copy = shutil.copy(path, os.path.join(folder, str(number)))
        if os.stat(copy).st_ino == inode:
            os.rename(copy, path)
            return True
    return False


@case
def same_inode():
    """a library that got the inode number of one that is gone is another one, and probed"""
    server = Server()
    folder = private_libraries()
    path = os.path.join(folder, "libssl.so.3")
    one = f"LD_LIBRARY_PATH={folder} {CLIENT} --port {server.port} --cacert {server.cert} -n 2 --quiet --wait --id"
    client = Client(["sh", "-c", f"echo pid $$; i=0; while read line; do i=$((i+1)); {AFTER_A_WHILE} | {one} r$i; done"])
    perfbpf = Perfbpf("-v", "--sweep", "0.2", "-p", client.pid)
    client.go()
    e2e.until(lambda: f"{path}: no traced process maps it" in perfbpf.err(), 20, "the probes are removed")
    inode = os.stat(path).st_ino
    shutil.copy(path, path + ".new")
    os.rename(path + ".new", path)  # the first one is gone, and its number free
    if not copy_as(inode, path):
        raise Skip("this file system gives no number twice")
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 4, COLD_MS)
    check_nothing_lost(perfbpf)


@case
def forked_users():
    """a child still maps what its parent mapped when that one is gone"""
    server = Server()
    folder = private_libraries()
    script = (
        "import os, sys, time, ssl, http.client\n"
        "if os.fork(): os._exit(0)\n"
        "time.sleep(2)\n"
        f"c = http.client.HTTPSConnection('127.0.0.1', {server.port}, context=ssl._create_unverified_context())\n"
        "c.request('POST', '/forked/v1/messages?tokens=4', '{\"model\":\"m\",\"stream\":true,\"messages\":[]}')\n"
        "c.getresponse().read()\n"
    )
    command = ["sh", "-c", 'LD_LIBRARY_PATH=$0 /usr/bin/python3 -c "$1"; sleep 4', folder, script]
    perfbpf = Perfbpf("-v", "--sweep", "0.2", command=command)
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 1, COLD_MS)
    check_nothing_lost(perfbpf)
    assert perfbpf.err().count("its probes are removed") == 1, perfbpf.err()


# --- what it costs ---------------------------------------------------------------------------------------------------------


@case
def few_reads():
    """a maps file is read once an exec, and not at all for a library that comes later"""
    strace = shutil.which("strace")
    if not strace:
        raise Skip("no strace")
    server = Server()
    log = os.path.join(e2e.directory(), "strace")
    client = waiting_client(server, "read", 2)
    shell = Client(["sh", "-c", f"echo pid $$; read l; LD_LIBRARY_PATH={private_libraries()} exec /usr/bin/python3 {late_program()} {server.port} 0.1"])
    perfbpf = Perfbpf("-p", f"{client.pid},{shell.pid}")
    tracer = e2e.start([strace, "-f", "-e", "trace=openat,open", "-o", log, "-p", str(perfbpf.child.pid)], stderr=subprocess.PIPE)
    tracer.stderr.readline()
    client.go()
    shell.go()
    shell.child.stdin.write("\n")
    shell.child.stdin.flush()
    assert client.finish() == 0
    assert shell.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    tracer.wait(e2e.HANGS_S)
    check_calls(perfbpf, server, 6, 2000)
    reads = re.findall(r'"/proc/(\d+)/maps"', e2e.read_text(log))
    assert reads.count(str(client.pid)) == 0, f"the client neither executed nor loaded anything: {reads}"
    assert reads.count(str(shell.pid)) == 1, f"one exec: {reads}"


@case
def vanishing():
    """processes that are gone before they can be looked at: no word about them, and the others are traced"""
    server = Server()
    libraries = private_libraries()
    one = f"LD_LIBRARY_PATH={libraries} {CLIENT} --port {server.port} --cacert {server.cert} -n 1 --quiet --wait --id"
    script = f"for i in 1 2 3 4 5 6 7 8; do {AFTER_A_WHILE} | {one} a$i; for k in 1 2 3 4 5 6 7 8 9; do /bin/true & done; done; wait"
    perfbpf = Perfbpf(command=["sh", "-c", script], stdout=subprocess.DEVNULL)
    assert perfbpf.end() == 0, perfbpf.err()
    check_calls(perfbpf, server, 8, COLD_MS)
    check_nothing_lost(perfbpf)
    assert not re.search("warning|error", perfbpf.err()), perfbpf.err()


e2e.run_cases()
