#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A server, and clients, of traffic that is mostly no model's.

other.py serve-unix PATH            answers model calls on a Unix socket
other.py call-unix PATH COUNT       makes COUNT of them on one connection
other.py serve-tls|serve-plain DIR  GET /blob/MIB: so many MiB; POST: a model's answer. TLS: makes DIR/cert.pem
other.py fetch-tls|fetch-plain DIR PORT MIB
                                    a call, MIB MiB of blobs, a call; all on one connection. Waits for a line first.
"""
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time

EVENTS = [
    ("message_start", {"message": {"id": "m", "model": "claude-t", "usage": {"input_tokens": 25, "output_tokens": 1}}}),
    ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "one "}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "two "}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "three"}}),
    ("content_block_stop", {"index": 0}),
    ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
    ("message_stop", {}),
]


def read_head(reader):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return None
        head += line
    return head.decode()


def answer_call(writer, pause=0.002):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    writer.flush()
    for name, data in EVENTS:
        time.sleep(pause)
        text = f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(text), text))
        writer.flush()
    writer.write(b"0\r\n\r\n")
    writer.flush()


def answer_blob(writer, mib):
    piece = bytes(range(256)) * 4096
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {mib << 20}\r\n\r\n".encode())
    for _ in range(mib):
        writer.write(piece)
    writer.flush()


def serve(connection):
    reader, writer = connection.makefile("rb"), connection.makefile("wb")
    while True:
        head = read_head(reader)
        if not head:
            break
        length = [int(h.split(":")[1]) for h in head.split("\r\n") if h.lower().startswith("content-length:")]
        if length:
            reader.read(length[0])
        if head.startswith("GET /blob/"):
            answer_blob(writer, int(head.split()[1].split("/")[2]))
        else:
            answer_call(writer)
    connection.close()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def call(connection, path):
    body = {"model": "claude-t", "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    assert b"message_stop" in response.read()


def fetch(connection, mib):
    part = min(mib, 64)
    buffer = bytearray(1 << 20)
    for _ in range(mib // part):
        connection.request("GET", f"/blob/{part}")
        response = connection.getresponse()
        got = 0
        while True:
            n = response.readinto(buffer)
            if not n:
                break
            got += n
        assert got == part << 20, got


def make_certificate(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        + ["-keyout", os.path.join(folder, "key.pem"), "-out", os.path.join(folder, "cert.pem")],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def main():
    what, where = sys.argv[1:3]
    if what == "serve-unix":
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(where)
        listener.listen()
        print("listening", flush=True)
        while True:
            serve(listener.accept()[0])
    elif what == "call-unix":
        connection = UnixConnection(where)
        for i in range(int(sys.argv[3])):
            call(connection, f"/{i}/v1/messages")
    elif what.startswith("serve-"):
        listener = socket.create_server(("127.0.0.1", 0))
        if what == "serve-tls":
            make_certificate(where)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(os.path.join(where, "cert.pem"), os.path.join(where, "key.pem"))
        print("listening", listener.getsockname()[1], flush=True)
        while True:
            connection = listener.accept()[0]
            serve(context.wrap_socket(connection, server_side=True) if what == "serve-tls" else connection)
    elif what.startswith("fetch-"):
        port, mib = int(sys.argv[3]), int(sys.argv[4])
        connection = http.client.HTTPConnection("127.0.0.1", port)
        if what == "fetch-tls":
            context = ssl.create_default_context(cafile=os.path.join(where, "cert.pem"))
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        print("pid", os.getpid(), flush=True)
        if not sys.stdin.readline():
            sys.exit(3)
        call(connection, "/before/v1/messages")
        start = time.monotonic()
        fetch(connection, mib)
        print(f"{mib} MiB in {time.monotonic() - start:.2f} s", flush=True)
        call(connection, "/after/v1/messages")


main()
