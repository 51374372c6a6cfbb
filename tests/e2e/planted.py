# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The services with planted costs (tests/tools/planted, clients/planted.mjs), and who drives them."""
import http.client
import json
import os
import random
import shutil
import ssl
import threading

import e2e
from e2e import BUILD, HERE, Client, Server, Skip

PLANTED = os.path.join(BUILD, "tests", "planted")
ROUTES = ("hot", "alloc", "nplus1", "slow", "lock", "model", "relay", "tool", "mixed", "large", "health")
NPLUS1 = 12  # commands of one request


class Service(Client):
    """The one in C, a thread a connection. truth(): a line a request, by its own clocks, by path."""

    def __init__(self, argv=None, model=True):
        self.model = Server("--plain") if model else None
        self.truth_path = os.path.join(e2e.directory(), "truth.jsonl")
        options = ["--model-port", str(self.model.port)] if model else []
        super().__init__(argv or [PLANTED, "--truth", self.truth_path, *options])
        self.port, self.database_port = (self.word(name) for name in ("listening", "database"))
        self.tls = self.http2 = False

    def word(self, name):
        found = [int(line.split()[1]) for line in self.lines if line.startswith(name + " ")]
        return found[0] if found else None

    def truth(self):
        return [json.loads(line) for line in e2e.read_text(self.truth_path).splitlines()]

    def connect(self):
        if not self.tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        context = ssl._create_unverified_context()  # pylint: disable=protected-access
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)

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
    """Each name `count` times (/NAME/N, every path once), over so many connections that stay open. All were answered."""
    paths = [f"/{name}/{n}" for n in range(1, count + 1) for name in names]
    random.Random(seed).shuffle(paths)
    failures, lock = [], threading.Lock()

    def work():
        connection = service.connect()
        while True:
            with lock:
                if not paths:
                    break
                path = paths.pop()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
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
