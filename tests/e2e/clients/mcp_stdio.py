#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The same as mcp_stdio.mjs in Python: subprocess gives the child real pipes. mcp_stdio.py CONFIG NODE"""
import json
import os
import subprocess
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    config = json.load(f)
print(f"pid {os.getpid()}", flush=True)
sys.stdin.readline()
server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mcp_server.mjs")
child = subprocess.Popen(  # pylint: disable=consider-using-with
    [sys.argv[2], server, config["truth"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)


def send(**message):
    child.stdin.write(json.dumps({**message, "jsonrpc": "2.0"}).encode() + b"\n")
    child.stdin.flush()


def request(number, method, params):
    send(method=method, params=params, id=number)
    while True:
        message = json.loads(child.stdout.readline())
        if "method" in message:
            send(result={"roots": []}, id=message["id"])
        elif message["id"] == number:
            return


INFO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
request(0, "initialize", INFO)
send(method="notifications/initialized")
for i, call in enumerate(config["calls"], 1):
    request(i, call["method"], call["params"])
child.stdin.close()
child.wait()
