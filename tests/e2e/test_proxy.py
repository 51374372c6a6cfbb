#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program that is a server on one side and a client on the other, in one thread; and answers of some size."""
import contextlib
import json
import os
import socket
import subprocess
import threading
import time

import e2e
from e2e import CLIENT, PYTHON, Client, Perfbpf, Server, case, cases, check_calls, request

PROXY = os.path.join(e2e.HERE, "clients", "proxy.py")
# One event loop and ten threads share an interpreter: it reads late by so much.
LOOP_MS = 60


@case
def gateway():
    """a gateway whose TLS is done in memory: the peer of a call is its server, never who asked the gateway"""
    server = Server()
    body = request("anthropic", "", "")["body"]
    path = e2e.write_config(port=server.port, ca=server.cert, pairs=10, calls=10, knobs="tokens=3&gap_ms=1", body=body)
    client = Client([PYTHON, PROXY, path])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    (inner,) = [int(line.split()[1]) for line in client.lines if line.startswith("port ")]
    assert perfbpf.end() == 0, perfbpf.err()
    pairs = check_calls(perfbpf, server, 100, LOOP_MS)
    peers = [c["peer"]["port"] if c["peer"] else None for c, _ in pairs]
    assert inner not in peers and set(peers) <= {server.port, None}, peers
    e2e.note(f"{peers.count(server.port)} of 100 calls know their peer")
    assert peers.count(server.port) > 90, peers


PASSES_ON = """
import http.client, http.server, os, sys
class Gateway(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words):
        pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        up = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
        up.request("POST", self.path, body, {"content-type": "application/json"})
        answer = up.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        up.close()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
print("port", server.server_port)
print("pid", os.getpid(), flush=True)
server.serve_forever()
"""


@case
def counted_twice():
    """a gateway that is traced as well as who asks it: the summary says that it counts calls twice; not those of its port later"""
    server = Server("--plain")
    gateway = Client([PYTHON, "-c", PASSES_ON, str(server.port)])
    (port,) = [line.split()[1] for line in gateway.lines if line.startswith("port ")]
    argv = [CLIENT, "--plain", "--port", port, "-n", "4", "--knobs", "tokens=5&gap_ms=1", "--wait", "--quiet"]
    client, later = Client(argv), Client(argv)
    perfbpf = Perfbpf("-p", f"{gateway.pid},{client.pid},{later.pid}")
    client.go()
    assert client.finish() == 0, client.lines
    e2e.until(lambda: len(perfbpf.calls()) == 8, 10, f"all calls of both: {perfbpf.err()}")
    gateway.child.kill()
    gateway.child.wait()
    Server("--plain", "--port", port)
    later.go()
    assert later.finish() == 0, later.lines
    assert perfbpf.end() == 0, perfbpf.err()  # all have ended
    assert len(perfbpf.calls()) == 12, perfbpf.err()
    for call in perfbpf.calls():
        assert call["complete"] and call["usage"]["output_total"] == 5, call
        assert call["peer"]["port"] == (server.port if call["pid"] == gateway.pid else int(port)), call
    assert "  4 of the calls went to a process that is traced too" in perfbpf.err(), perfbpf.err()
    e2e.check_nothing_lost(perfbpf)


def tunnel_proxy(wait_s):
    """The port of a proxy that knows CONNECT, and takes so long for it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source, sink):
        with contextlib.suppress(OSError):  # who closes first
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve():
        while True:
            client, _ = listener.accept()
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            assert head.startswith(b"CONNECT "), head
            upstream = socket.create_connection(("127.0.0.1", int(head.split()[1].rpartition(b":")[2])))
            time.sleep(wait_s)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for pair in ((client, upstream), (upstream, client)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


TUNNELED = """
import http.client, json, ssl, sys
proxy, port, certificate, calls = sys.argv[1:]
if certificate == "-":
    connection = http.client.HTTPConnection("127.0.0.1", int(proxy))
else:
    context = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", int(proxy), context=context)
connection.set_tunnel("localhost", int(port))
for call in json.loads(calls):
    connection.request("POST", call["path"], json.dumps(call["body"]), call["headers"])
    connection.getresponse().read()
"""


@cases([("TLS", ()), ("plain", ("--plain",))])
def tunneled(options):
    """calls in a tunnel that a proxy was asked for: to connect takes up to its answer"""
    server = Server(*options)
    calls = [request("anthropic", f"tunnel-{i}", "tokens=5&gap_ms=1") for i in range(3)]
    certificate = "-" if options else server.cert
    argv = [PYTHON, "-c", TUNNELED, str(tunnel_proxy(0.3)), str(server.port), certificate, json.dumps(calls)]
    perfbpf = Perfbpf(command=argv)
    assert perfbpf.end() == 0, perfbpf.err()
    pairs = check_calls(perfbpf, server, len(calls), LOOP_MS)
    first, second = (pair[0] for pair in pairs[:2])
    if e2e.check_paid(first, plain=bool(options)):
        assert 300 <= first["connect_ms"] <= 300 + LOOP_MS * e2e.crowd(), pairs
    assert second["connect_ms"] is None, pairs
    e2e.check_nothing_lost(perfbpf)


@case
def tunneled_deno():
    """the same of a program whose TLS is seen by its ciphers: it writes record by record then"""
    server = Server()
    calls = [request("anthropic", f"deno-{i}", "tokens=5&gap_ms=1") for i in range(3)]
    argv, env = e2e.client_command("deno", server, calls, wait=True)
    proxy = {"HTTPS_PROXY": f"http://127.0.0.1:{tunnel_proxy(0.3)}", "NO_PROXY": "", "DENO_NO_UPDATE_CHECK": "1"}
    client = Client(argv, {**os.environ, **env, **proxy})
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err()
    first, second = sorted(perfbpf.calls(), key=lambda c: c["start_ms"])[:2]
    assert 300 <= (first["connect_ms"] or 0) <= 300 + LOOP_MS * e2e.crowd() and (first["tls_ms"] or 0) > 0, first
    assert second["connect_ms"] is None and second["tls_ms"] is None, second


def useless_proxy(answer):
    """The port of a proxy that says so to whoever asks for a tunnel, and closes; None: that says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_for_ever = []

    def serve():
        while True:
            client, _ = listener.accept()
            client.recv(65536)
            if answer is None:
                open_for_ever.append(client)
                continue
            client.sendall(answer)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


ASKS_IN_VAIN = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=1.5)
connection.set_tunnel("api.test", 443, {"proxy-authorization": "Basic SECRETPROXY"})
try:
    connection.request("GET", "/")
except OSError as e:
    print(e)
"""


@cases([
    ("refused", b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "proxy answered 407"),
    ("closed", b"", "proxy closed without an answer"),
    ("silent", None, "proxy did not answer"),
])
def no_tunnel(answer, error):
    """a proxy that makes no tunnel: the connection is told as not made, with whom it was asked for and why"""
    port = useless_proxy(answer)
    perfbpf = Perfbpf(command=[PYTHON, "-c", ASKS_IN_VAIN, str(port)], stdout=subprocess.DEVNULL)
    perfbpf.end()
    e2e.check_nothing_lost(perfbpf)
    (told,) = [s for s in e2e.check_trace(perfbpf)["traceEvents"] if s.get("name") == "connection not made"]
    assert told["args"] == {"host": "api.test", "peer": f"127.0.0.1:{port}", "error": error}, told
    assert answer is not None or 1.5e6 <= told["dur"] <= 1.7e6 * e2e.crowd(), told
    assert f"{error} api.test 127.0.0.1:{port}" in perfbpf.err() and "SECRETPROXY" not in perfbpf.err(), perfbpf.err()


@case
def large_answers():
    """an answer of megabytes, as a stream and as a document: one call, with its last byte"""
    server = Server()
    for name, options in (("stream", []), ("document", ["--unary"])):
        argv = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet", "--wait", "-n", "1", *options]
        client = Client([*argv, "--id", name, "--knobs", "tokens=12000&burst=100&gap_ms=0"])
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
        assert perfbpf.end() == 0, perfbpf.err()
        check = [t for t in server.truth().values() if name in t["path"]]
        for call, truth in zip(sorted(perfbpf.calls(), key=lambda c: c["start_ms"]), check, strict=True):
            e2e.check_call(call, truth, LOOP_MS)
            assert call["response_bytes"] > 1 << 20 or name == "document", call
        e2e.check_nothing_lost(perfbpf)


e2e.run_cases()
