#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A client whose event loop is blocked for a while in the middle of an answer. late.py CONFIG: host, port, ca (none: plain),
path, body, block_ms, how ("blocking", "asyncio": TLS in memory). Says when it was blocked, by the boot clock, and its
processor time in that; and, if
blocking, how long it heard nothing. between_ms: it is busy for so long, and calls again. again: it
calls again at once, in the same TLS session. same: it connects and calls twice over the same socket, after an attempt at
a port where nobody listens."""
import asyncio
import ctypes
import json
import os
import socket
import ssl
import sys
import time

BUSY_AFTER = 20  # reads
SILENCE_NS = 10000000


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def burn(ms):
    begin, spent = boot_ns(), time.process_time_ns()
    while boot_ns() - begin < ms * 1e6:
        pass
    print("blocked", begin, boot_ns(), time.process_time_ns() - spent, flush=True)


def request(cfg):
    body = json.dumps(cfg["body"]).encode()
    head = f"POST {cfg['path']} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return (head + f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n").encode() + body


def receive(s):
    try:
        return s.recv(16384)
    except ConnectionResetError:
        print("reset", boot_ns(), flush=True)
        return b""


def blocking(cfg, context, session=None, made=None):
    """The session that a later connection may go on with."""
    s = made or socket.create_connection((cfg.get("host", "127.0.0.1"), cfg["port"]))
    if context:
        s = context.wrap_socket(s, server_hostname="localhost", session=session)
    s.sendall(request(cfg))
    reads, last = 0, None
    while receive(s):
        reads += 1
        now = boot_ns()
        if last and now - last > SILENCE_NS:
            print("silence", (now - last) / 1e6, flush=True)
        if reads == BUSY_AFTER and cfg["block_ms"]:
            burn(cfg["block_ms"])
        last = boot_ns()
    if context:
        print("resumed", s.session_reused, flush=True)
    return s.session if context else None


def one_socket(cfg, context):
    fd = socket.socket().detach()
    for port in (1, cfg["port"], cfg["port"]):
        s = socket.socket(fileno=os.dup(fd))
        if not s.connect_ex(("127.0.0.1", port)):
            blocking(cfg, context, made=s)
            ctypes.CDLL(None).connect(fd, bytes(16), 16)  # AF_UNSPEC


async def in_memory(cfg, context):
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", cfg["port"], ssl=context, server_hostname="localhost" if context else None
    )
    writer.write(request(cfg))
    reads = 0
    while await reader.read(16384):
        reads += 1
        if reads == BUSY_AFTER:
            burn(cfg["block_ms"])


with open(sys.argv[1], encoding="utf-8") as f:
    config = json.load(f)
tls = None
if config.get("ca"):
    tls = ssl.create_default_context(cafile=config["ca"])
    tls.check_hostname = False
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
if config["how"] == "asyncio":
    asyncio.run(in_memory(config, tls))
elif config.get("same"):
    one_socket(config, tls)
else:
    kept = blocking(config, tls)
    if config.get("again"):
        blocking(config, tls, kept)
    if config.get("between_ms"):
        burn(config["between_ms"])
        blocking(config, tls)
