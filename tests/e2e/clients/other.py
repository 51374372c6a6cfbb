#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A server, and clients, of traffic that is mostly no model's.

other.py serve-unix PATH            answers model calls on a Unix socket
other.py call-unix PATH COUNT       makes COUNT of them on one connection
other.py serve-tls|serve-plain DIR  GET /blob/MIB: so many MiB; POST: a model's answer. TLS: makes DIR/cert.pem
other.py fetch-tls|fetch-plain DIR PORT MIB
                                    a call, MIB MiB of blobs, a call; all on one connection. Waits for a line first.
other.py serve-h2|fetch-h2 …        the same over HTTP/2 and TLS, by python3-h2
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


BODY = {"model": "claude-t", "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "hi"}]}


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


# --- HTTP/2 ---------------------------------------------------------------------------------------------------------------

WINDOW = 1 << 24


class Http2:
    """One end of a connection: what comes in goes to take(event)."""

    def __init__(self, connection, client):
        import h2.config  # pylint: disable=import-outside-toplevel
        import h2.connection  # pylint: disable=import-outside-toplevel
        import h2.settings  # pylint: disable=import-outside-toplevel

        self.socket = connection
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
        self.h2.increment_flow_control_window(WINDOW)
        self.flush()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.socket.sendall(data)

    def turn(self):
        """The events of one read; None at the end."""
        data = self.socket.recv(1 << 18)
        return self.h2.receive_data(data) if data else None


class Http2Server(Http2):
    def send(self, stream, data):
        """Within the window; what is read meanwhile are its updates."""
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room:
                self.h2.send_data(stream, data[:room])
                data = data[room:]
            else:
                self.flush()
                self.turn()
        self.flush()

    def blob(self, stream, mib):
        piece = bytes(range(256)) * 4096
        self.h2.send_headers(stream, [(":status", "200"), ("content-length", str(mib << 20))])
        for _ in range(mib):
            self.send(stream, piece)
        self.h2.end_stream(stream)

    def call(self, stream, pause=0.002):
        self.h2.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream"), ("request-id", f"r{stream}")])
        self.flush()
        for name, data in EVENTS:
            time.sleep(pause)
            self.send(stream, f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())
        self.h2.end_stream(stream)

    def run(self):
        heads = {}
        while True:
            events = self.turn()
            if events is None:
                return
            for event in events:
                kind = type(event).__name__
                if kind == "RequestReceived":
                    heads[event.stream_id] = dict(event.headers)
                elif kind == "DataReceived":
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif kind == "StreamEnded":
                    path = heads.pop(event.stream_id)[":path"]
                    if path.startswith("/blob/"):
                        self.blob(event.stream_id, int(path.split("/")[2]))
                    else:
                        self.call(event.stream_id)
            self.flush()


class Http2Client(Http2):
    def ask(self, method, path, body=None):
        """The answer's end (as bytes) and its length."""
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "localhost"), ("x-client", "other.py")]
        self.h2.send_headers(stream, head + ([("content-type", "application/json")] if body else []), end_stream=not body)
        while body:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(body))
            if room:
                self.h2.send_data(stream, body[:room], end_stream=room == len(body))
                body = body[room:]
            if not room or len(body) % (1 << 17) < room:
                self.flush()
            if not room:
                self.turn()
        self.flush()
        length, last = 0, b""
        while True:
            for event in self.turn():
                kind = type(event).__name__
                if kind == "DataReceived":
                    length += len(event.data)
                    last = (last + event.data[-1024:])[-1024:]
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                elif kind == "StreamEnded":
                    self.flush()
                    return last, length
            self.flush()

    def call(self, path):
        assert b"message_stop" in self.ask("POST", path, json.dumps(BODY).encode())[0]

    def fetch(self, mib):
        part = min(mib, 64)
        for _ in range(mib // part):
            assert self.ask("GET", f"/blob/{part}")[1] == part << 20
        # And up again: of such a write only the beginning is copied, so that the table of request headers is not known after it.
        assert self.ask("POST", "/blob/1", bytes(3 << 20))[1] == 1 << 20


# --- clients --------------------------------------------------------------------------------------------------------------


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def call(connection, path):
    connection.request("POST", path, json.dumps(BODY), {"content-type": "application/json"})
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


def fetch_between_calls(how, where, port, mib):
    context = None if how == "plain" else ssl.create_default_context(cafile=os.path.join(where, "cert.pem"))
    print("pid", os.getpid(), flush=True)
    if not sys.stdin.readline():
        sys.exit(3)
    if how == "h2":
        context.set_alpn_protocols(["h2"])
        wrapped = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
        wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Http2Client(wrapped, True)
        make, get = connection.call, connection.fetch
    else:
        kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
        connection = kind("127.0.0.1", port, **({"context": context} if context else {}))
        make, get = lambda path: call(connection, path), lambda n: fetch(connection, n)
    make("/before/v1/messages")
    start = time.monotonic()
    get(mib)
    print(f"{mib} MiB in {time.monotonic() - start:.2f} s", flush=True)
    make("/after/v1/messages")


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
        if what != "serve-plain":
            make_certificate(where)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(os.path.join(where, "cert.pem"), os.path.join(where, "key.pem"))
            context.set_alpn_protocols(["h2"] if what == "serve-h2" else ["http/1.1"])
        print("listening", listener.getsockname()[1], flush=True)
        while True:
            connection = listener.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if what != "serve-plain":
                connection = context.wrap_socket(connection, server_side=True)
            if what == "serve-h2":
                Http2Server(connection, False).run()
            else:
                serve(connection)
    elif what.startswith("fetch-"):
        fetch_between_calls(what[len("fetch-"):], where, int(sys.argv[3]), int(sys.argv[4]))


main()
