#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The calls of a JSON file, made the way a Python agent makes them.

client.py CALLS.json: {"mode": "urllib" | "requests" | "session" | "http" | "httpx" | "aiohttp", "port", "ca", "plain",
"wait": before the first connection, "open": after a first call on the connection, "calls": [{"path", "body", "headers"}],
"first": the first call of "open"}. urllib and requests open a connection a call; session, http, httpx and aiohttp keep one.
httpx speaks HTTP/2. "threads": so many calls at a time, of httpx and aiohttp. "coding" of a call: gzip, br or zstd, of its
body. One JSON line a call on stdout.
"""
import atexit
import ctypes
import gzip
import http.client
import json
import os
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor


class Urllib:
    def __init__(self, cfg):
        import urllib.request

        self.module = urllib.request
        self.base = cfg["base"]
        self.context = None if cfg.get("plain") else ssl.create_default_context(cafile=cfg["ca"])

    def call(self, path, body, headers):
        request = self.module.Request(self.base + path, data=body, headers=headers)
        try:
            with self.module.urlopen(request, context=self.context, timeout=60) as response:
                return response.status, response.read()
        except self.module.HTTPError as error:
            return error.code, error.read()


class Requests:
    def __init__(self, cfg):
        import requests

        self.base = cfg["base"]
        self.verify = cfg.get("ca")
        self.target = requests.Session() if cfg["mode"] == "session" else requests

    def call(self, path, body, headers):
        response = self.target.post(
            self.base + path, data=body, headers=headers, verify=self.verify, stream=True, timeout=60
        )
        return response.status_code, b"".join(response.iter_content(None))


class Http:
    def __init__(self, cfg):
        if cfg.get("plain"):
            self.connection = http.client.HTTPConnection("127.0.0.1", cfg["port"], timeout=60)
        else:
            context = ssl.create_default_context(cafile=cfg["ca"])
            self.connection = http.client.HTTPSConnection("127.0.0.1", cfg["port"], timeout=60, context=context)

    def call(self, path, body, headers):
        self.connection.request("POST", path, body, headers)
        response = self.connection.getresponse()
        data = b""
        while True:
            piece = response.read1(65536)
            if not piece:
                break
            data += piece
        # read1() leaves the response open at its end, and the connection unusable.
        response.read()
        return response.status, data


class Httpx:
    def __init__(self, cfg):
        import httpx

        self.module = httpx
        self.base = cfg["base"]
        # Without TLS there is no ALPN: HTTP/2 has to be known.
        options = {"http1": False} if cfg.get("plain") else {"verify": ssl.create_default_context(cafile=cfg["ca"])}
        self.client = httpx.Client(http2=True, timeout=60, **options)

    def call(self, path, body, headers):
        try:
            with self.client.stream("POST", self.base + path, content=body, headers=headers) as response:
                return response.status_code, b"".join(response.iter_raw())
        except self.module.HTTPError as error:
            raise ConnectionError(str(error)) from error


class Aiohttp:
    """One session on an event loop of its own; its TLS is done in memory."""

    def __init__(self, cfg):
        import asyncio
        import threading

        import aiohttp

        self.module = aiohttp
        self.run = asyncio.run_coroutine_threadsafe
        self.loop = asyncio.new_event_loop()
        self.base = cfg["base"]
        self.context = False if cfg.get("plain") else ssl.create_default_context(cafile=cfg["ca"])
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.session = None
        atexit.register(self.close)

    async def post(self, path, body, headers):
        if not self.session:
            self.session = self.module.ClientSession(timeout=self.module.ClientTimeout(total=60))
        url = self.base + path
        async with self.session.post(url, data=body, headers=headers, ssl=self.context) as response:
            return response.status, b"".join([piece async for piece in response.content.iter_any()])

    def close(self):
        if self.session:
            self.run(self.session.close(), self.loop).result()

    def call(self, path, body, headers):
        try:
            return self.run(self.post(path, body, headers), self.loop).result()
        except self.module.ClientError as error:
            raise ConnectionError(str(error)) from error


def compress(coding, body):
    if coding == "gzip":
        return gzip.compress(body)
    out, room = ctypes.create_string_buffer(len(body) + 1024), ctypes.c_size_t(len(body) + 1024)
    if coding == "zstd":
        pack = ctypes.CDLL("libzstd.so.1").ZSTD_compress
        pack.restype = ctypes.c_size_t
        size = pack(out, room, body, ctypes.c_size_t(len(body)), 3)
        return out.raw[:size]
    pack = ctypes.CDLL("libbrotlienc.so.1").BrotliEncoderCompress
    assert pack(5, 22, 0, ctypes.c_size_t(len(body)), body, ctypes.byref(room), out)
    return out.raw[: room.value]


def make_call(client, call):
    body = json.dumps(call["body"]).encode()
    headers = {"content-type": "application/json", **call.get("headers", {})}
    if call.get("coding"):
        body = compress(call["coding"], body)
        headers["content-encoding"] = call["coding"]
    start = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    try:
        status, data = client.call(call["path"], body, headers)
        answer = {"status": status, "bytes": len(data)}
    except OSError as error:
        answer = {"error": type(error).__name__}
    except http.client.HTTPException as error:
        answer = {"error": type(error).__name__}
    answer.update(start_ns=start, end_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    print(json.dumps(answer), flush=True)


def wait_for_line():
    print("pid", os.getpid(), flush=True)
    if not sys.stdin.readline():
        sys.exit(3)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cfg = json.load(f)
    cfg["base"] = f"{'http' if cfg.get('plain') else 'https'}://127.0.0.1:{cfg['port']}"
    kinds = {"urllib": Urllib, "requests": Requests, "session": Requests, "http": Http, "httpx": Httpx, "aiohttp": Aiohttp}
    client = kinds[cfg["mode"]](cfg)
    if cfg.get("wait"):
        wait_for_line()
    if cfg.get("open"):
        make_call(client, cfg["first"])
        wait_for_line()
    if cfg.get("threads"):
        with ThreadPoolExecutor(cfg["threads"]) as pool:
            list(pool.map(lambda call: make_call(client, call), cfg["calls"]))
        return
    for call in cfg["calls"]:
        make_call(client, call)


main()
