#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""socks_proxy.py MS: a proxy that speaks SOCKS 4a and 5, without names of users, on a port of its own, which it prints. Wherever it
is asked to go, it goes to 127.0.0.1, and says so that much later."""
import socket
import struct
import sys
import threading
import time

WAIT_S = int(sys.argv[1]) / 1000


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def text(stream):
    while stream.read(1) not in (b"\0", b""):
        pass


def asked_port(client, stream):
    """Reads the request, answers it."""
    if stream.read(1) == b"\4":
        _, port, address = struct.unpack("!BHL", stream.read(7))
        text(stream)
        if address < 256:
            text(stream)
        time.sleep(WAIT_S)
        client.sendall(b"\0\x5a" + bytes(6))
        return port
    stream.read(stream.read(1)[0])
    client.sendall(b"\5\0")
    kind = stream.read(4)[3]
    stream.read({1: 4, 4: 16}.get(kind) or stream.read(1)[0])
    (port,) = struct.unpack("!H", stream.read(2))
    time.sleep(WAIT_S)
    client.sendall(b"\5\0\0\1" + bytes(6))
    return port


def serve(client):
    with client, client.makefile("rb", buffering=0) as stream:
        with socket.create_connection(("127.0.0.1", asked_port(client, stream))) as server:
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pump, args=(client, server), daemon=True).start()
            pump(server, client)


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print("listening", listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


main()
