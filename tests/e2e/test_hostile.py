#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A traced program that means harm: what it does costs a bounded amount, is told right, and reaches no terminal as it is. Its last
call is exact. PERFBPF_HOSTILE=full: as many as a real attacker would take; otherwise fewer, for CI. (Numbers of processes that are used
again: test_system.py; bytes that are made to cost a lot: tests/golden/check_hostile.py.)"""
import json
import os
import re
import signal
import stat
import subprocess
import threading
import time

import e2e
from e2e import PERFBPF, PYTHON, Client, Perfbpf, Server, case, check_calls

FULL = os.environ.get("PERFBPF_HOSTILE") == "full"
CHILDREN = 10_000 if FULL else 500
CONNECTIONS = 10_000 if FULL else 500
STREAM_MIB = 1024 if FULL else 32
MEMORY_MIB = 64
COLD_MS = 50

# It waits, does its worst (the argument after the port), and makes a call that has to come out right.
PROLOGUE = """
import ctypes, http.client, json, os, socket, sys
port, folder = int(sys.argv[1]), sys.argv[2]
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
def call(name, model="m", headers={}):
    c = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"model": model, "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]})
    c.request("POST", name + "/v1/messages?tokens=3", body, headers)
    c.getresponse().read()
    c.close()
"""


def attacker(server, script, folder="-", env=None, program=PYTHON):
    return Client([program, "-c", PROLOGUE + script + '\ncall("/last")\n', str(server.port), folder], env)


def memory_mib(pid):
    """Of its own, at its peak so far: the ring is no part of it."""
    found = re.search(r"^RssAnon:\s+(\d+)", e2e.read_text(f"/proc/{pid}/status"), flags=re.M)
    return int(found.group(1)) / 1024 if found else 0


class Watch:
    """What it takes while it runs."""

    def __init__(self, pid):
        self.memory, self.files, self.done = 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.look, args=(pid,), daemon=True)
        self.thread.start()

    def look(self, pid):
        while not self.done.wait(0.02):
            try:
                self.files = max(self.files, len(os.listdir(f"/proc/{pid}/fd")))
                self.memory = max(self.memory, memory_mib(pid))
            except OSError:
                return

    def end(self):
        self.done.set()
        self.thread.join()
        e2e.note(f"at most {self.memory:.1f} MiB, {self.files} descriptors")
        assert 0 < self.memory < MEMORY_MIB, f"{self.memory:.1f} MiB"
        assert self.files < 256, f"{self.files} descriptors"


CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def check_terminal(data, where):
    """No control byte but newline and tab, no C1, no bidi override."""
    found = CONTROL.search(data)
    assert not found, f"{where}: {data[max(0, found.start() - 80):found.end() + 40]!r}"


def check_harmless(perfbpf):
    """What a terminal got, and would get from the reports; and the files are JSON without a raw control byte."""
    with open(perfbpf.err_path, "rb") as f:
        check_terminal(f.read(), "standard error")
    for command in (["report", perfbpf.trace_path], ["report", "--by", "process", perfbpf.trace_path],
                    ["diff", perfbpf.trace_path, perfbpf.trace_path]):
        done = subprocess.run([PERFBPF, *command], capture_output=True, timeout=e2e.HANGS_S, check=False)
        check_terminal(done.stdout + done.stderr, command[0])
    for path in (perfbpf.trace_path, perfbpf.calls_path):
        with open(path, "rb") as f:
            check_terminal(f.read(), path)
    perfbpf.trace()
    return perfbpf.calls()


def survive(client):
    """Traces what the attacker does to its end; its memory is watched meanwhile."""
    perfbpf = Perfbpf("-p", client.pid)
    watch = Watch(perfbpf.child.pid)
    client.go()
    assert client.finish(300) == 0
    assert perfbpf.end(seconds=60) == 0, perfbpf.err()
    watch.end()
    return perfbpf


def last_call(perfbpf, server):
    """The one after the attack is exact."""
    (last,) = [c for c in perfbpf.calls() if e2e.key_of(c["path"]) == "/last/v1/messages"]
    e2e.check_call(last, server.truth()["/last/v1/messages"], COLD_MS)
    return last


# --- many ------------------------------------------------------------------------------------------------------------------


@case
def many_children():
    """a fork bomb, well-behaved: each child is followed and forgotten"""
    server = Server("--plain")
    client = attacker(server, f"""
for i in range({CHILDREN}):
    child = os.fork()
    if not child:
        if i % 50 == 0:
            os.execv("/bin/true", ["/bin/true"])
        os._exit(0)
    os.waitpid(child, 0)
""")
    perfbpf = survive(client)
    last_call(perfbpf, server)
    e2e.check_nothing_lost(perfbpf)
    lives = [e for e in perfbpf.trace()["traceEvents"] if e["ph"] == "X" and e.get("cat") == "process"]
    assert len(lives) >= CHILDREN // 50, f"{len(lives)} lives of processes"


@case
def children_at_once():
    """children that all live at once are followed, up to the stated number"""
    count = 5000 if FULL else 200
    server = Server("--plain")
    client = attacker(server, f"""
r, w = os.pipe()
for i in range({count}):
    if not os.fork():
        os.close(w)
        os.read(r, 1)
        os._exit(0)
os.close(w)
for i in range({count}):
    os.wait()
""")
    perfbpf = survive(client)
    last_call(perfbpf, server)
    lost = perfbpf.lost()
    assert not lost or set(lost) <= {"state_full", "no_memory"} and FULL, lost


@case
def many_connections():
    """connections without end, some with a request, some without a word"""
    server = Server("--plain")
    client = attacker(server, f"""
for i in range({CONNECTIONS}):
    s = socket.create_connection(("127.0.0.1", port))
    if i % 10 == 0:
        s.sendall(b"GET /no-model HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        s.recv(100)
    if i % 10 == 1:
        s.sendall(os.urandom(100))
    s.close()
""")
    perfbpf = survive(client)
    last_call(perfbpf, server)
    (row,) = [r for r in perfbpf.err().split("coverage")[1].splitlines() if client_row(r, client.pid)]
    assert int(row.split()[1]) == CONNECTIONS // 10 + 1, row  # those that carried something that is read
    e2e.check_nothing_lost(perfbpf)


def client_row(line, pid):
    return f"[{pid}]" in line


@case
def endless_line():
    """a stream without a newline, where an HTTP request would be"""
    server = Server("--plain")
    client = attacker(server, f"""
import threading
sink = socket.create_server(("127.0.0.1", 0))
def drain():
    s, _ = sink.accept()
    while s.recv(1 << 20):
        pass
t = threading.Thread(target=drain)
t.start()
s = socket.create_connection(sink.getsockname())
s.sendall(b"POST /v1/messages")
piece = b"x" * (1 << 20)
for i in range({STREAM_MIB}):
    s.sendall(piece)
s.close()
t.join()
""")
    perfbpf = survive(client)
    assert {e2e.key_of(c["path"]) for c in check_harmless(perfbpf)} >= {"/last/v1/messages"}, perfbpf.calls()
    if not perfbpf.lost():
        last_call(perfbpf, server)
    else:
        assert set(perfbpf.lost()) <= {"ring_records", "ring_bytes", "lost_events", "lost_bytes", "parse_errors"}, perfbpf.lost()


# --- names -----------------------------------------------------------------------------------------------------------------

ESC = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202egnp.exe\r\n\x7f"


@case
def names_with_escapes():
    """escape bytes in names of programs, threads, arguments, models, headers and paths reach no terminal"""
    server = Server("--plain")
    folder = e2e.directory()
    program = os.path.join(folder, ESC.replace("/", "_"))
    os.symlink(PYTHON, program)
    client = attacker(server, """
ESC = "\\x1b]0;owned\\x07\\x1b[31m\\x9b2J\\u202egnp.exe\\r\\n\\x7f"
raw = ESC.encode()
ctypes.CDLL(None).prctl(15, raw[:15])
for i in range(3):
    call("/escape%d" % i, ESC + str(i))
def rude(request):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(request)
    s.shutdown(socket.SHUT_WR)
    while s.recv(65536):
        pass
    s.close()
body = json.dumps({"model": ESC, "messages": [{"role": "user", "content": "x"}]}).encode()
for head in (b"Host: " + raw[:-4], b"User-Agent: " + raw[:-4], b"session_id: " + raw[:-4]):
    rude(b"POST /\\x1b[31m\\x9b/v1/messages HTTP/1.1\\r\\n" + head + b"\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
if not os.fork():
    os.execv(folder, [ESC, "-c", "import time; time.sleep(0.2)", ESC])
os.wait()
""", program, program=program)
    perfbpf = Perfbpf("-vv", "-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err()
    calls = check_harmless(perfbpf)
    assert any(ESC[:5] in (c["request_model"] or "") for c in calls), "the file says what it was, escaped"
    last_call(perfbpf, server)


@case
def rewritten_arguments():
    """arguments that the program writes over while it runs are told as they are, and harmless"""
    server = Server("--plain")
    client = attacker(server, """
fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
start, end = int(fields[45]), int(fields[46])
ctypes.memset(start, 0x1b, end - start)
if not os.fork():
    os.execv("/bin/sleep", ["sleep", "0.3"])
os.wait()
""")
    perfbpf = Perfbpf("-vv", "-p", client.pid)
    late = Client(client.child.args)
    late.go()
    late.finish()
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err()
    check_harmless(perfbpf)
    again = attacker(server, """
fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
start, end = int(fields[45]), int(fields[46])
ctypes.memset(start, 0x1b, end - start)
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
""")
    again.go()
    e2e.until(lambda: b"\x1b\x1b" in open(f"/proc/{again.pid}/cmdline", "rb").read(), what="the arguments are written over")
    perfbpf = Perfbpf("-vv", "-p", again.pid)
    again.go()
    assert again.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_harmless(perfbpf)


# --- files -----------------------------------------------------------------------------------------------------------------


@case
def library_becomes_a_fifo():
    """a library whose name becomes a FIFO, a device, a folder or a loop after it was mapped holds nobody up"""
    server = Server("--plain")
    folder = e2e.directory()
    client = attacker(server, """
import glob, mmap, shutil, subprocess
lib = os.path.realpath(glob.glob("/usr/lib/*/libssl.so.3")[0])
kept = []
for i, put in enumerate((os.mkfifo, os.mkdir, lambda p: os.symlink(p, p), lambda p: os.mknod(p, 0o600 | 0o020000, os.makedev(1, 5)))):
    path = os.path.join(folder, "libssl.so.%d" % i)
    shutil.copy(lib, path)
    fd = os.open(path, os.O_RDONLY)
    kept.append(mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    os.unlink(path)
    put(path)
    with open("/proc/self/maps") as f:
        assert "libssl.so.%d (deleted)" % i in f.read()
""", folder)
    perfbpf = Perfbpf("-v", "-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end(seconds=20) == 0, perfbpf.err()
    last_call(perfbpf, server)
    assert stat.S_ISFIFO(os.stat(os.path.join(folder, "libssl.so.0")).st_mode)


@case
def huge_sparse_library():
    """a library of a terabyte of nothing, and one that is cut while it is read"""
    server = Server("--plain")
    folder = e2e.directory()
    client = attacker(server, """
import glob, mmap, shutil
lib = os.path.realpath(glob.glob("/usr/lib/*/libssl.so.3")[0])
kept = []
for name, size in (("libssl.so.8", 1 << 40), ("libssl.so.9", 5000)):
    path = os.path.join(folder, name)
    shutil.copy(lib, path)
    fd = os.open(path, os.O_RDWR)
    kept.append(mmap.mmap(fd, 1 << 16, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    try:
        os.ftruncate(fd, size)
    except OSError:
        pass
""", folder)
    perfbpf = Perfbpf("-v", "-p", client.pid)
    watch = Watch(perfbpf.child.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end(seconds=20) == 0, perfbpf.err()
    watch.end()
    last_call(perfbpf, server)


SWAPS = """
import glob, mmap, os, shutil, time
IN_OPEN = 0x20
libc = ctypes.CDLL(None, use_errno=True)
source = glob.glob("/lib/*-linux-gnu/libc.so.6")[0]
for i in range(20):
    path, other = folder + "/liballoc%d.so" % i, folder + "/other.so"
    shutil.copy(source, path)
    shutil.copy(source, other)
    fd = os.open(path, os.O_RDONLY)
    looks = libc.inotify_init1(0)
    libc.inotify_add_watch(looks, path.encode(), IN_OPEN)
    mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()  # it is found by its name alone
    os.close(fd)
    os.read(looks, 4096)
    os.rename(other, path)
time.sleep(0.5)
open(folder + "/swapped", "w").close()
time.sleep(1)
"""


@case
def swapped_files():
    """files that take others' names while these are looked through: no probe is set in them"""
    server = Server("--plain")
    folder = e2e.directory()
    client = attacker(server, SWAPS, folder)
    perfbpf = Perfbpf("--alloc", "-p", client.pid)
    client.go()
    e2e.until(lambda: os.path.exists(folder + "/swapped"), 30, "the swaps")
    fds = f"/proc/{perfbpf.child.pid}/fd"
    names = [os.readlink(os.path.join(fds, fd)) for fd in os.listdir(fds)]
    assert client.finish() == 0
    assert perfbpf.end(seconds=20) == 0, perfbpf.err()
    e2e.note(f"{sum('liballoc' in name for name in names)} files are kept")
    assert any("/liballoc" in name for name in names), names
    assert all(name.endswith(" (deleted)") for name in names if "/liballoc" in name), names
    last_call(perfbpf, server)


e2e.run_cases()
