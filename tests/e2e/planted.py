# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The services with planted costs (tests/tools/planted, clients/planted.mjs), and who drives them."""
import http.client
import os
import random
import shutil
import socket
import ssl
import struct
import threading
import time

import e2e
from e2e import BUILD, HERE, Client, Server, Skip

PLANTED = os.path.join(BUILD, "tests", "planted")
ROUTES = ("hot", "alloc", "nplus1", "slow", "lock", "model", "relay", "tool", "mixed", "large", "health")
NPLUS1 = 12  # commands of one request
GET_US = 2000  # each of them: several times what a wake-up takes in a virtual machine


class Lives:
    """From when to when the kernel says that processes were there: its process connector (CONFIG_PROC_EVENTS), which has
    nothing to do with tracing. A service's own clocks say less: what they see of a child is when somebody was asked to
    make it, and when it was noticed that it had ended."""

    LISTEN, FORK, EXIT = 1, 1, 0x80000000

    def __init__(self):
        try:
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 11)  # NETLINK_CONNECTOR
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            self.socket.bind((0, 1))  # CN_IDX_PROC
            # A message that is a struct cn_msg from CN_IDX_PROC, of 4 bytes.
            self.socket.send(struct.pack("=IHHII IIIIHH I", 40, 3, 0, 0, 0, 1, 1, 0, 0, 4, 0, self.LISTEN))
        except OSError as error:
            raise Skip(f"this kernel tells nobody of processes: {error}") from None
        self.socket.settimeout(0.2)
        self.begin, self.end, self.over = {}, {}, False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while not self.over:
            try:
                message = self.socket.recv(1024)
            except OSError:  # none, or there were more than it can hold
                continue
            if len(message) < 68:
                continue
            # struct proc_event, behind both heads. Of a fork: parent's pid, tgid, child's; of an exit: pid, tgid.
            what, _, at_ns, pid, tgid, child_pid, child_tgid = struct.unpack_from("=IIQIIII", message, 36)
            if what == self.FORK and child_pid == child_tgid:
                self.begin[child_tgid] = at_ns
            elif what == self.EXIT and pid == tgid:
                self.end[tgid] = at_ns

    def correct(self, requests):
        """Requests of a service, each with at most one child, beside which it does nothing. Once."""
        for t in requests:
            pid = t["tool_pid"]
            if pid:
                e2e.until(lambda pid=pid: pid in self.begin and pid in self.end, 10, f"the kernel told of {pid}")
                life_ns = self.end[pid] - self.begin[pid]
                # What the kernel still does after it woke the parent is nothing to wait for.
                life_ns = min(life_ns, t["tool_end_ns"] - self.begin[pid])
                t["downstream_ns"] += life_ns - t["tool_ns"]
                t["tool_ns"] = life_ns
        self.over = True
        return requests


class Service(Client):
    """The one in C, a thread a connection. truth(): a line a request, by its own clocks, by path."""

    def __init__(self, argv=None, model=True):
        self.model = Server("--plain") if model else None
        self.truth_path = os.path.join(e2e.directory(), "truth.jsonl")
        options = ["--model-port", str(self.model.port)] if model else []
        super().__init__(argv or [PLANTED, "--truth", self.truth_path, "--get-us", str(GET_US), *options])
        self.port, self.database_port = (self.word(name) for name in ("listening", "database"))
        self.tls = self.http2 = False

    def word(self, name):
        found = [int(line.split()[1]) for line in self.lines if line.startswith(name + " ")]
        return found[0] if found else None

    def truth(self):
        return e2e.whole_lines(self.truth_path)

    def connect(self):
        if not self.tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=e2e.HANGS_S)
        context = ssl._create_unverified_context()  # pylint: disable=protected-access
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=e2e.HANGS_S, context=context)

    def end(self):
        self.go()
        assert self.finish() == 0, self.lines


class NodeService(Service):
    """The same routes in one process of node. Its database is the C service's, which serves nothing."""

    def __init__(self, tls=False, http2=False):
        node = shutil.which("node")
        if not node:
            raise Skip("no node")
        self.helper = Service(model=False)
        folder = e2e.directory()
        model = Server("--plain")
        self.truth_path = os.path.join(folder, "truth.jsonl")
        cfg = {"truth": self.truth_path, "model_port": model.port, "database_port": self.helper.database_port, "http2": http2}
        if tls or http2:
            cfg["tls"] = certificate(folder)
        path = e2e.write_config(**cfg)
        truth_path = self.truth_path
        # --perf-basic-prof also leaves a log where it runs.
        argv = ["env", "-C", folder, node, "--perf-basic-prof", os.path.join(HERE, "clients", "planted.mjs"), path]
        super().__init__(argv, model=False)
        self.model, self.truth_path, self.tls, self.http2 = model, truth_path, tls, http2

    def end(self):
        super().end()
        self.helper.end()
        remove_map(self.pid)


def remove_map(pid):
    try:
        os.unlink(f"/tmp/perf-{pid}.map")
    except FileNotFoundError:
        pass


def certificate(folder):
    """Paths of a key and a certificate for it."""
    e2e.subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-keyout", folder + "/key.pem", "-out", folder + "/cert.pem"],
        check=True,
        capture_output=True,
    )
    return {"key": folder + "/key.pem", "cert": folder + "/cert.pem"}


def drive(service, names, count, concurrency, seed=1):
    """Each name `count` times (/NAME/N, every path once), over so many connections that stay open. All were answered.
    By path, how long that took, in ns."""
    paths = [f"/{name}/{n}" for n in range(1, count + 1) for name in names]
    random.Random(seed).shuffle(paths)
    failures, lock, asked = [], threading.Lock(), {}

    def work():
        connection = service.connect()
        while True:
            with lock:
                if not paths:
                    break
                path = paths.pop()
            began = time.monotonic_ns()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            asked[path] = time.monotonic_ns() - began
            if answer.status != 200:
                failures.append((path, answer.status))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    expected = count * (len(names) + ("relay" in names))  # a relay asks /health
    e2e.until(lambda: len(service.truth()) >= expected, 10, "the service has told all")
    return asked
