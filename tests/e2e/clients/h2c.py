#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The calls of a JSON file over one plain connection that is upgraded from HTTP/1.1 to HTTP/2 by the first of them; the
others are streams, one after another. The format is that of client.py; frames by python3-h2."""
import json
import os
import socket
import sys

import h2.connection
import h2.events


class Upgraded:
    def __init__(self, cfg):
        self.host = f"127.0.0.1:{cfg['port']}"
        self.socket = socket.create_connection(("127.0.0.1", cfg["port"]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection()

    def first(self, path, body):
        settings = self.h2.initiate_upgrade_connection().decode()
        lines = [
            f"POST {path} HTTP/1.1",
            f"host: {self.host}",
            "connection: Upgrade, HTTP2-Settings",
            "upgrade: h2c",
            f"http2-settings: {settings}",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode() + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(65536)
        head, rest = data.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101"), head
        self.socket.sendall(self.h2.data_to_send())
        return self.answer(1, rest)

    def call(self, path, body):
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", self.host)]
        self.h2.send_headers(stream, head + [("content-type", "application/json")])
        self.h2.send_data(stream, body, end_stream=True)
        self.socket.sendall(self.h2.data_to_send())
        return self.answer(stream)

    def answer(self, stream, data=b""):
        answer = {"bytes": 0}
        while True:
            for event in self.h2.receive_data(data) if data else ():
                if isinstance(event, h2.events.ResponseReceived):
                    answer["status"] = int(dict(event.headers).get(b":status") or dict(event.headers)[":status"])
                if isinstance(event, h2.events.DataReceived):
                    answer["bytes"] += len(event.data)
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                if isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                    answer["ended"] = True
            out = self.h2.data_to_send()
            if out:
                self.socket.sendall(out)
            if answer.get("ended"):
                return answer
            data = self.socket.recv(65536)
            if not data:
                return {**answer, "error": "closed"}


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cfg = json.load(f)
    if cfg.get("wait"):
        print("pid", os.getpid(), flush=True)
        if not sys.stdin.readline():
            sys.exit(3)
    client = Upgraded(cfg)
    for index, call in enumerate(cfg["calls"]):
        make = client.call if index else client.first
        print(json.dumps(make(call["path"], json.dumps(call["body"]).encode())), flush=True)


main()
