#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MCP over streamable HTTP, both ends.

    mcp_http.py server DIR [CERT]  prints "listening PORT"; truth: DIR/truth.jsonl. CERT holds certificate and key: TLS
    mcp_http.py CONFIG             {"port", "ca", "legacy", "calls": [{"method", "params"}]}
"""
import http.client
import http.server
import json
import os
import queue
import ssl
import sys
import threading
import time

SESSION = "SESSIONCANARY"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    truth = None
    streams = {}

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def reply(self, status, content_type="", body=b"", session=False):
        self.send_response(status)
        if content_type:
            self.send_header("content-type", content_type)
        if session:
            self.send_header("mcp-session-id", SESSION)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def event(self, data, name=None):
        text = (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()

    def stream_head(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def do_GET(self):  # pylint: disable=invalid-name
        """The older transport's stream: it names where to post, and brings the answers."""
        self.stream_head()
        self.streams["x"] = queue.Queue()
        self.event("/messages?sessionId=x", "endpoint")
        while True:
            self.event(self.streams["x"].get(), "message")

    def answer(self, message):
        begin = time.perf_counter()
        method, params = message["method"], message.get("params") or {}
        result = {}
        if method == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "bench", "version": "3"}}
        elif method == "tools/call":
            time.sleep(params["arguments"].get("ms", 0) / 1000)
            result = {"content": [{"type": "text", "text": "RESULTCANARY"}], "isError": params["name"] == "fail"}
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if method == "tools/unknown":
            del reply["result"]
            reply["error"] = {"code": -32601, "message": "ERRORCANARY"}
        line = {"method": method, "tool": params.get("name"), "id": message["id"]}
        line["ms"] = (time.perf_counter() - begin) * 1000
        self.truth.write(json.dumps(line) + "\n")
        self.truth.flush()
        return json.dumps(reply)

    def do_POST(self):  # pylint: disable=invalid-name
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.startswith("/messages"):
            self.reply(202)
            if "id" in message:
                self.streams["x"].put(self.answer(message))
            return
        if "id" not in message:
            self.reply(202)
            return
        if message["method"] == "tools/call" and message["params"]["name"] == "stream":
            self.stream_head()
            self.event(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress",
                                   "params": {"progressToken": message["id"], "progress": 1}}))
            self.event(self.answer(message))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.reply(200, "application/json", self.answer(message).encode(), message["method"] == "initialize")


def serve(directory, cert=None):
    with open(os.path.join(directory, "truth.jsonl"), "w", encoding="utf-8") as truth:
        Handler.truth = truth
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        print(f"listening {server.server_address[1]}", flush=True)
        server.serve_forever()


class Client:
    def __init__(self, config):
        self.config, self.number, self.session = config, 0, None
        self.target = "/mcp"
        self.connection = self.connect()

    def connect(self):
        port = self.config["port"]
        if not self.config.get("ca"):
            return http.client.HTTPConnection("127.0.0.1", port)
        context = ssl.create_default_context(cafile=self.config["ca"])
        return http.client.HTTPSConnection("localhost", port, context=context)

    def post(self, message):
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self.session:
            headers["mcp-session-id"] = self.session
        self.connection.request("POST", self.target, json.dumps(message), headers)
        response = self.connection.getresponse()
        self.session = response.getheader("mcp-session-id") or self.session
        response.read()

    def request(self, method, params):
        if method == "tools/call":
            params = {**params, "_meta": {"progressToken": self.number}}
        self.post({"method": method, "params": params, "jsonrpc": "2.0", "id": self.number})
        self.number += 1

    def listen(self):
        """The older transport. Returns what the stream brings, one by one."""
        connection = self.connect()
        connection.request("GET", "/sse", headers={"accept": "text/event-stream"})
        response = connection.getresponse()
        data = None
        for line in response:
            if line.startswith(b"data: "):
                data = line[6:].decode().strip()
            elif not line.strip() and data is not None:
                yield data
                data = None


def run(path):
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    print(f"pid {os.getpid()}", flush=True)
    sys.stdin.readline()
    client, answers = Client(config), None
    if config.get("legacy"):
        answers = client.listen()
        client.target = next(answers)
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
    for call in [{"method": "initialize", "params": info}, *config["calls"]]:
        client.request(call["method"], call["params"])
        if answers:
            next(answers)
    client.post({"method": "notifications/initialized", "jsonrpc": "2.0"})


if sys.argv[1] == "server":
    threading.excepthook = lambda *_: None  # a client that goes away
    serve(*sys.argv[2:])
else:
    run(sys.argv[1])
