#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""faults.py CALLS.json: calls over a bad network, with what this end knows of it.

{"addresses": tried in this order, "port", "ca", "calls": [{"path", "body", "new": on a new connection}]}. It prints its pid, waits for
a line, and prints a JSON line a call: times on CLOCK_BOOTTIME, retransmitted segments by the kernel's own count, name of an error.
"""
import http.client
import json
import os
import socket
import ssl
import struct
import sys
import time


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def retransmits(sock):
    return struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]  # tcpi_total_retrans


class Agent:
    def __init__(self, cfg):
        self.cfg, self.connection, self.before = cfg, None, 0
        self.context = ssl.create_default_context(cafile=cfg["ca"])
        self.context.check_hostname = False  # the certificate is for loopback

    def connect(self, out):
        out["connect_ns"] = now()
        for address in self.cfg["addresses"]:
            sock = socket.socket()
            try:
                sock.connect((address, self.cfg["port"]))
                break
            except ConnectionRefusedError:
                sock.close()
        out["connected_ns"] = now()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = http.client.HTTPConnection(address, self.cfg["port"])
        self.connection.sock = self.context.wrap_socket(sock)
        out["secure_ns"] = now()
        self.before = 0

    def call(self, call):
        out = {"path": call["path"]}
        if call.get("new") or not self.connection:
            self.connect(out)
        out["begin_ns"] = now()
        self.connection.request("POST", call["path"], json.dumps(call["body"]).encode(), {"content-type": "application/json"})
        out["sent_ns"] = now()
        response = self.connection.getresponse()
        data, tokens = b"", []
        while True:
            piece = response.read1(65536)
            if not piece:
                break
            data += piece
            tokens += [now()] * (data.count(b'"text_delta"') - len(tokens))
        response.read()
        after = retransmits(self.connection.sock)
        out.update(end_ns=now(), tokens_ns=tokens, status=response.status, retransmits=after - self.before)
        self.before = after
        print(json.dumps(out), flush=True)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cfg = json.load(f)
    agent = Agent(cfg)
    print("pid", os.getpid(), flush=True)
    sys.stdin.readline()
    for call in cfg["calls"]:
        agent.call(call)


main()
