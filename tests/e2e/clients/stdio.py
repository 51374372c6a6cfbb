#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program with a child on its standard input and output: stdio.py KIND COUNT [early|serve|cat].

KIND: pipes, sockets, asyncio (what the release of Python makes of it). Waits for a line before it speaks; early: its child
runs by then. serve: it is the child. cat: the child is cat, and what is said is no JSON-RPC."""
import asyncio
import json
import os
import socket
import subprocess
import sys

KIND, COUNT, HOW = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
CHILD = ["cat"] if HOW == "cat" else [sys.executable, os.path.abspath(__file__), KIND, "0", "serve"]


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "serverInfo": {"name": "s"}}}
            print(json.dumps(answer), flush=True)


def line_of(number):
    if HOW == "cat":
        return b"words, and more of them\n"
    method = "tools/call" if number else "initialize"
    params = {"name": f"tool{number}", "arguments": {"secret": "x" * 500}}
    return json.dumps({"method": method, "params": params, "jsonrpc": "2.0", "id": number}).encode() + b"\n"


def wait_for_word():
    print(f"pid {os.getpid()}", flush=True)
    sys.stdin.readline()


def start():
    if KIND == "pipes":
        child = subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return child, child.stdin, child.stdout
    to, child_in = socket.socketpair()
    back, child_out = socket.socketpair()
    child = subprocess.Popen(CHILD, stdin=child_in, stdout=child_out)
    child_in.close()
    child_out.close()
    files = to.makefile("wb"), back.makefile("rb")
    to.close()
    back.close()
    return child, *files


def speak():
    if HOW != "early":
        wait_for_word()
    child, to, back = start()
    if HOW == "early":
        to.write(line_of(0))
        to.flush()
        back.readline()
        wait_for_word()
    for number in range(1 if HOW == "early" else 0, COUNT):
        to.write(line_of(number))
        to.flush()
        assert back.readline()
    to.close()
    assert not back.read()
    back.close()
    child.wait()


async def speak_async():
    wait_for_word()
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*CHILD, stdin=pipe, stdout=pipe)
    for number in range(COUNT):
        child.stdin.write(line_of(number))
        await child.stdin.drain()
        assert await child.stdout.readline()
    child.stdin.close()
    await child.stdout.read()
    await child.wait()


if HOW == "serve":
    serve()
elif KIND == "asyncio":
    asyncio.run(speak_async())
else:
    speak()
if HOW == "cat":
    subprocess.run("ls / | cat | wc -l >/dev/null", shell=True, check=True)
    sys.stdin.readline()
