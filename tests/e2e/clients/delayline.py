#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""delayline.py NAMESPACE ADDRESS NAMESPACE ADDRESS MS: a cable between two network namespaces on which a packet takes MS each way.

A TUN device "line" in each namespace, so that TCP itself sees the round trip (a relay would end the connection). Prints "ready".
"""
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN_NO_PI, CLONE_NEWNET = 0x400454CA, 0x1001, 0x40000000


def enter(path):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), path)
    os.close(fd)


def open_end(namespace, address):
    enter("/run/netns/" + namespace)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", b"line", IFF_TUN_NO_PI))
    for command in (f"addr add {address} dev line", "link set line mtu 1500 up"):
        subprocess.run(["ip", *command.split()], check=True)
    return fd


def main():
    ends = [open_end(sys.argv[1], sys.argv[2]), open_end(sys.argv[3], sys.argv[4])]
    other, delay, waiting, number = {ends[0]: ends[1], ends[1]: ends[0]}, float(sys.argv[5]) / 1e3, [], 0
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, fd, packet = heapq.heappop(waiting)
            os.write(fd, packet)
        readable, _, _ = select.select(ends, [], [], waiting[0][0] - now if waiting else None)
        for fd in readable:
            number += 1  # of equal times the first one first
            heapq.heappush(waiting, (time.monotonic() + delay, number, other[fd], os.read(fd, 65536)))


main()
