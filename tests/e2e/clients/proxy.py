#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A gateway on one event loop: what comes in over plain TCP goes out over TLS, which asyncio does in memory. proxy.py CONFIG:
port and ca of the server behind it, pairs (connections that come in at once, each with a connection of its own going out),
calls (on each, one after the other). The clients are in this process too, on a thread; so all sockets are this program's."""
import asyncio
import json
import os
import socket
import ssl
import sys
import threading


def exchange(port, number, cfg):
    """The outer client: calls over one connection, each when the one before it is answered."""
    s = socket.create_connection(("127.0.0.1", port))
    body = json.dumps(cfg["body"]).encode()
    for i in range(cfg["calls"]):
        path = f"/pair{number}x{i}/v1/messages?{cfg['knobs']}"
        s.sendall(b"%d %s " % (len(body), path.encode()) + body)
        while not s.recv(65536).endswith(b"\0"):
            pass
    s.close()


async def forward(reader, writer, cfg, context):
    """Not HTTP on the inner side: the calls are those of the outer connections alone."""
    out_reader, out_writer = await asyncio.open_connection("127.0.0.1", cfg["port"], ssl=context, server_hostname="localhost")
    while True:
        try:
            length, path = [await reader.readuntil(b" ") for _ in range(2)]
        except asyncio.IncompleteReadError:
            break
        body = await reader.readexactly(int(length))
        head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        out_writer.write(head % (path.strip(), len(body)) + body)
        tail = b""
        while not tail.endswith(b"0\r\n\r\n"):
            piece = await out_reader.read(65536)
            if not piece:
                raise SystemExit("the server closed")
            tail = (tail + piece)[-16:]
            writer.write(piece)
            await writer.drain()
        writer.write(b"\0")
        await writer.drain()
    out_writer.close()
    writer.close()


async def main(cfg):
    context = ssl.create_default_context(cafile=cfg["ca"])
    context.check_hostname = False
    proxy = await asyncio.start_server(lambda r, w: forward(r, w, cfg, context), "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    print("port", port, flush=True)
    outer = [threading.Thread(target=exchange, args=(port, n, cfg)) for n in range(cfg["pairs"])]
    for thread in outer:
        thread.start()
    await asyncio.get_running_loop().run_in_executor(None, lambda: [thread.join() for thread in outer])
    proxy.close()


with open(sys.argv[1], encoding="utf-8") as f:
    config = json.load(f)
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
asyncio.run(main(config))
