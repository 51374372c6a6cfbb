#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""alike.py ROUNDS PORT...: to each server a call at a time, each on a connection of its own, all at once and all of one size, by
httpx on asyncio, as agents' SDKs do: it encrypts for many connections before it sends, and receives for many before it decrypts."""
import asyncio
import json
import ssl
import sys

import httpx

KNOBS = "tokens=10&burst=10&delay_ms=5"


async def calls(context, port):
    body = json.dumps({"model": "gpt-test-1", "stream": True, "messages": [{"role": "user", "content": "hello" * 40}]})
    for i in range(int(sys.argv[1])):
        async with httpx.AsyncClient(verify=context, timeout=60) as client:
            path = f"/alike-{i:03}-{port}/v1/chat/completions?{KNOBS}"
            async with client.stream("POST", f"https://localhost:{port}{path}", content=body) as response:
                async for _ in response.aiter_raw():
                    pass


async def main():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    await asyncio.gather(*[calls(context, port) for port in sys.argv[2:]])


asyncio.run(main())
