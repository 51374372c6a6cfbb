#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls of the Responses API over one WebSocket, frames made by hand.

ws.py CALLS.json: as client.py; "path", "deflate": offer permessage-deflate, "no_takeover": offer it so, "fragment":
bytes a frame, "calls": the messages (each one's events are read to the last before the next one is sent), "open": the
first message is answered before the client waits. One JSON line a message on stdout.
"""
import base64
import json
import os
import socket
import ssl
import struct
import sys
import zlib

LAST = ("response.completed", "response.incomplete", "response.failed", "error")


def open_socket(cfg):
    plain = socket.create_connection(("127.0.0.1", cfg["port"]))
    # Frames behind one that is not acknowledged would wait for it.
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if cfg.get("plain"):
        return plain
    return ssl.create_default_context(cafile=cfg["ca"]).wrap_socket(plain, server_hostname="127.0.0.1")


class WebSocket:
    def __init__(self, cfg, connection=None):
        self.socket = connection or open_socket(cfg)
        self.fragment = cfg.get("fragment") or 1 << 30
        self.data = b""
        lines = [
            f"GET {cfg['path']} HTTP/1.1",
            f"host: 127.0.0.1:{cfg['port']}",
            "upgrade: websocket",
            "connection: Upgrade",
            f"sec-websocket-key: {base64.b64encode(os.urandom(16)).decode()}",
            "sec-websocket-version: 13",
            *(f"{name}: {value}" for name, value in cfg.get("headers", {}).items()),
        ]
        if cfg.get("deflate"):
            extra = "; client_no_context_takeover" if cfg.get("no_takeover") else ""
            lines.append("sec-websocket-extensions: permessage-deflate; client_max_window_bits" + extra)
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode())
        while b"\r\n\r\n" not in self.data:
            self.more()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101"), head
        self.deflate = b"permessage-deflate" in head
        self.no_takeover = b"client_no_context_takeover" in head
        self.packer = zlib.compressobj(wbits=-15)
        self.unpacker = zlib.decompressobj(wbits=-15)

    def more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise EOFError
        self.data += piece

    def take(self, count):
        while len(self.data) < count:
            self.more()
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def send_frame(self, first, payload):
        mask = os.urandom(4)
        if len(payload) < 126:
            head = struct.pack("!BB", first, 0x80 | len(payload))
        elif len(payload) < 65536:
            head = struct.pack("!BBH", first, 0x80 | 126, len(payload))
        else:
            head = struct.pack("!BBQ", first, 0x80 | 127, len(payload))
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        self.socket.sendall(head + mask + masked)

    def send(self, text):
        payload, bits = text.encode(), 1
        if self.deflate:
            payload = (self.packer.compress(payload) + self.packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
            bits |= 0x40
            if self.no_takeover:
                self.packer = zlib.compressobj(wbits=-15)
        at = 0
        while True:
            piece = payload[at : at + self.fragment]
            last = at + len(piece) == len(payload)
            self.send_frame((bits if at == 0 else 0) | (0x80 if last else 0), piece)
            at += len(piece)
            if last:
                return

    def receive(self):
        """The next message; None when the server closes."""
        message, compressed = b"", False
        while True:
            first, length = self.take(2)
            length &= 0x7F
            if length >= 126:
                length = struct.unpack("!H" if length == 126 else "!Q", self.take(2 if length == 126 else 8))[0]
            payload = self.take(length)
            opcode = first & 0x0F
            if opcode == 9:
                self.send_frame(0x8A, payload)
            if opcode == 8:
                self.send_frame(0x88, payload)
                return None
            if opcode >= 8:
                continue
            compressed = compressed or bool(first & 0x40)
            message += payload
            if first & 0x80:
                if compressed:
                    message = self.unpacker.decompress(message + b"\x00\x00\xff\xff")
                return json.loads(message)


def make_call(ws, message):
    answer = {"events": 0}
    try:
        ws.send(json.dumps(message))
        while True:
            event = ws.receive()
            if event is None:
                answer["error"] = "closed"
                break
            answer["events"] += 1
            if event["type"] in LAST:
                answer["last"] = event["type"]
                break
    except (OSError, EOFError) as error:
        answer["error"] = type(error).__name__
    print(json.dumps(answer), flush=True)


def wait_for_line():
    print("pid", os.getpid(), flush=True)
    if not sys.stdin.readline():
        sys.exit(3)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cfg = json.load(f)
    if cfg.get("wait"):
        wait_for_line()
    ws = WebSocket(cfg)
    calls = cfg["calls"]
    if cfg.get("open"):
        make_call(ws, calls.pop(0))
        wait_for_line()
    for message in calls:
        make_call(ws, message)


if __name__ == "__main__":
    main()
