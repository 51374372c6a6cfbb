#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A client that looks a name up and tries its addresses in order. lookup.py CONFIG: host, port, path, body, attempt_s (of
each address), ipv4: asks for such addresses only. Says what took from when to when, by the boot clock."""
import json
import os
import socket
import sys
import time


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def connect(cfg):
    begin = boot_ns()
    family = socket.AF_INET if cfg.get("ipv4") else socket.AF_UNSPEC
    found = socket.getaddrinfo(cfg["host"], cfg["port"], family, socket.SOCK_STREAM)
    print("looked", begin, boot_ns(), len(found), flush=True)
    begin = boot_ns()
    for family, kind, proto, _, address in found:
        s = socket.socket(family, kind, proto)
        s.settimeout(cfg.get("attempt_s"))
        try:
            s.connect(address)
        except OSError as error:
            print("failed", address[0], error, flush=True)
            s.close()
            continue
        print("connected", begin, boot_ns(), flush=True)
        s.settimeout(None)
        return s
    sys.exit("no address answers")


with open(sys.argv[1], encoding="utf-8") as f:
    config = json.load(f)
print("pid", os.getpid(), flush=True)
sys.stdin.readline()
body = json.dumps(config["body"]).encode()
head = f"POST {config['path']} HTTP/1.1\r\nhost: {config['host']}\r\ncontent-type: application/json\r\n"
sock = connect(config)
sock.sendall((head + f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n").encode() + body)
while sock.recv(65536):
    pass
