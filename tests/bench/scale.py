#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tracing costs beside other tools, and as there is more of it. scale.py --build DIR [--rounds N] [--out scale.json]

Other tools: the ping-pong and bulk of bench.py with perfbpf, with the distribution's sslsniff-bpfcc and with bpftrace that only
counts, each in every round, in random order; what each adds to a TLS call. More streams: the same number of events a second
over 1 to 1,000 connections, and what a connection costs. More processes: a ping-pong, and perfbpf itself, while it traces up to 200 others as well. More
events: how long a trace of 100,000 takes to write. Socket calls (sockcost.py), and how fast a capture is read (replay.py)."""
import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import time

import bench
import replay
import sockcost

# As bench.STREAMS: the same 1,000 calls of 200 events, at one rate of events, more and more of them at once; and calls that
# are over at once: what a connection and a call cost.
STREAMS = {
    "1 stream": (1, 1000, 0.15, 200),
    "10 streams": (10, 100, 2, 200),
    "100 streams": (100, 10, 20, 200),
    "1,000 streams": (1000, 1, 200, 200),
}
SETUPS = {"calls of 1 event, 10 at once": (10, 100, 40, 1), "calls of 1 event, 1,000 at once": (1000, 1, 2000, 1)}
CALL_SIZES = (512, 2048, 8192, 16384)
CALLS = 4000
PROCESSES = (1, 10, 50, 200)
WRITE_EVENTS = 100000
REPLAY_MIB = 256


# --- other tools ------------------------------------------------------------------------------------------------------------


class NotReady(Exception):
    """Why a tool does not run here."""


class Other:
    """A tool that is ready when it says so, and ends with SIGINT."""

    def __init__(self, argv, ready, folder, env=None):
        self.out = os.path.join(folder, "other")
        with open(self.out, "w", encoding="utf-8") as out:
            self.child = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        deadline = time.monotonic() + 60
        while ready not in self.said() and self.child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)  # it says so before it has attached everything
        if ready not in self.said() or self.child.poll() is not None:
            self.stop()
            raise NotReady(self.said().strip().split("\n")[-1])

    def said(self):
        with open(self.out, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self):
        self.child.send_signal(signal.SIGINT)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


# bcc 0.26 leaves out the last argument, a reference counter: the kernel refuses two probes of one place with different ones.
WHOLE_CALL = """
import ctypes
from bcc import libbcc
attach = libbcc.lib.bpf_attach_uprobe
if len(attach.argtypes) == 6:
    attach.argtypes = [*attach.argtypes, ctypes.c_uint32]
    libbcc.lib.bpf_attach_uprobe = lambda *arguments: attach(*arguments, 0)
"""


def kernel_headers(folder):
    """bcc compiles against them: those of the running kernel, or any of the distribution's (sslsniff needs no struct of it)."""
    if os.path.exists("/sys/kernel/kheaders.tar.xz") or os.path.isdir(f"/lib/modules/{os.uname().release}/build"):
        return {}
    common = sorted(glob.glob("/usr/src/linux-headers-*-common"))
    if not common:
        return None
    tree = os.path.join(folder, "headers")
    os.makedirs(tree, exist_ok=True)
    for part in (common[-1], common[-1].replace("-common", "-amd64")):
        subprocess.run(["cp", "-rsf", part + "/.", tree], check=False, stderr=subprocess.DEVNULL)
    makefile = os.path.join(tree, "Makefile")  # includes others by absolute paths
    if os.path.lexists(makefile):
        os.unlink(makefile)
    return {"BCC_KERNEL_SOURCE": tree}


def sslsniff(folder, pid):
    """How to start it, or None and why it cannot run."""
    program = shutil.which("sslsniff-bpfcc", path=os.environ["PATH"] + ":/usr/sbin")
    env = kernel_headers(folder)
    if not program or env is None:
        return None, "is not installed" if not program else "finds no kernel headers"
    copy = os.path.join(folder, "sslsniff.py")
    with open(program, encoding="utf-8") as f:
        text = f.read()
    # min() of newer headers is no expression that it may use.
    text = re.sub(r"(#include <linux/sched\.h>.*)", r"\1\n#undef min\n#define min(a, b) ((a) < (b) ? (a) : (b))", text, count=1)
    with open(copy, "w", encoding="utf-8") as f:
        f.write(text.replace("from bcc import BPF", WHOLE_CALL + "from bcc import BPF", 1))
    return lambda: Other(["/usr/bin/python3", "-u", copy, "-p", str(pid)], "COMM", folder, env), None


def bpftrace(folder, path):
    program = shutil.which("bpftrace")
    if not program:
        return None, "is not installed"
    probes = ",".join(f"uprobe:{path}:{f},uretprobe:{path}:{f}" for f in ("SSL_read", "SSL_write"))
    argv = [program, "-e", probes + ' { @ = count(); } BEGIN { printf("ready\\n"); }']
    return lambda: Other(argv, "ready", folder), None


def tools(peer, perfbpf, path, folder, rounds):
    make = {"perfbpf": lambda: bench.Tracer(perfbpf, ["-p", str(peer.pid)], folder)}
    missing = {}
    for name, (maker, why) in {"sslsniff-bpfcc": sslsniff(folder, peer.pid), "bpftrace count": bpftrace(folder, path)}.items():
        try:
            if maker:
                maker().stop()
                make[name] = maker
        except NotReady as error:
            why = str(error)
        if name not in make:
            missing[name] = why
    times = {state: {shape: [] for shape in bench.SHAPES} for state in ("untraced", *make)}
    calls = {}
    chooser = random.Random(5)
    order = ["untraced", *make]
    for _ in range(rounds):
        chooser.shuffle(order)
        for state in order:
            tracer = make[state]() if state != "untraced" else None
            for shape, (mode, size, count) in bench.SHAPES.items():
                count //= 4  # the slowest takes long
                peer.run(mode, size, count // 10)
                us, n = peer.run(mode, size, count)
                times[state][shape].append(us / count)
                calls[shape] = n / count
            if tracer:
                tracer.stop()
    rows = {}
    for shape in bench.SHAPES:
        base = times["untraced"][shape]
        for state in make:
            middle, low, high = bench.interval([(a - b) / calls[shape] for a, b in zip(times[state][shape], base)])
            rows.setdefault(state, {})[shape] = {
                **bench.ratio(times[state][shape], base),
                "added_us_per_tls_call": round(middle, 3),
                "added_us_95": [round(low, 3), round(high, 3)],
            }
    return {"rounds": rounds, "rows": rows, "missing": missing}


# --- more bytes -------------------------------------------------------------------------------------------------------------


def calls(perfbpf, tlsbench, folder, rounds):
    """Calls of a model, each with its answer of 512 bytes, back to back on one connection: every one is decoded and told.
    Client and server share a processor: that it sleeps in between, and who wakes up where, would be more than what is measured."""
    rows = {}
    env = {**os.environ, "TLSBENCH_CPU": "0"}
    server = subprocess.Popen([tlsbench, "server"], stdout=subprocess.PIPE, text=True, env=env)
    port = server.stdout.readline().split()[1]
    chooser = random.Random(17)
    for size in CALL_SIZES:
        base, traced, own, told, lost = [], [], [], [], []
        for _ in range(rounds):
            peer = bench.Peer(tlsbench, port, True)
            peer.run("call", size, CALLS)
            order = [(base, False), (traced, True)]
            chooser.shuffle(order)
            for values, on in order:
                tracer = bench.Tracer(perfbpf, ["-p", str(peer.pid)], folder) if on else None
                peer.run("call", size, CALLS // 10)
                before = tracer.cpu_s() if tracer else 0
                cpu_ns = peer.cpu_ns()
                _, n = peer.run("call", size, CALLS)
                values.append((peer.cpu_ns() - cpu_ns) / 1e3 / n)
                if tracer:
                    own.append((tracer.cpu_s() - before) * 1e6 / CALLS)
                    metadata = tracer.stop()
                    told.append(metadata["call_count"])
                    lost.append({k: v for k, v in metadata["lost"].items() if v})
            peer.child.kill()
        middle, low, high = bench.interval([a - b for a, b in zip(traced, base)])
        rows[size] = {
            **bench.ratio(traced, base),
            "cpu_us_untraced": round(statistics.median(base), 2),
            "added_us_per_tls_call": round(middle, 3),
            "added_us_95": [round(low, 3), round(high, 3)],
            "perfbpf_cpu_us_a_model_call": round(statistics.median(own), 1),
            "calls_told": told,
            "lost": lost,
        }
    server.kill()
    return rows


# --- more of it -------------------------------------------------------------------------------------------------------------


def processes(peer, perfbpf, folder, rounds):
    """While perfbpf traces the peer and others that sleep: CPU time a ping-pong, against the same round without perfbpf."""
    _, size, count = bench.SHAPES["ping 512 B"]
    rows = {}
    for n in PROCESSES:
        sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(n - 1)]
        pids = ",".join(str(p) for p in (peer.pid, *(s.pid for s in sleepers)))
        cost, base, attach, stop, rss = [], [], [], [], []
        for _ in range(rounds):
            for values, traced in ((base, False), (cost, True)):
                tracer = bench.Tracer(perfbpf, ["-p", pids], folder) if traced else None
                peer.run("ping", size, count // 10)
                before = peer.cpu_ns()
                peer.run("ping", size, count)
                values.append((peer.cpu_ns() - before) / count)
                if tracer:
                    attach.append(tracer.attach_ms)
                    rss.append(tracer.status("RssAnon"))
                    tracer.stop()
                    stop.append(tracer.stop_ms)
        for s in sleepers:
            s.kill()
            s.wait()
        rows[n] = {
            **bench.ratio(cost, base),
            "attach_ms": round(statistics.median(attach), 1),
            "stop_ms": round(statistics.median(stop), 1),
            "rss_anon_kib": statistics.median(rss),
        }
    return rows


def writing(build, folder, rounds):
    """A capture of a day with many calls, replayed with and without a trace file."""
    capture = os.path.join(folder, "many.cap")
    with open(capture, "wb") as out:
        subprocess.run(
            [os.path.join(build, "tests", "daycap"), str(WRITE_EVENTS // 4), "2"], check=True, stdout=out, stderr=subprocess.DEVNULL
        )
    perfbpf, trace = os.path.join(build, "perfbpf"), os.path.join(folder, "many.json")
    took, events = [], 0
    for _ in range(rounds):
        seconds = []
        for options in ([], ["-o", trace]):
            begin = time.monotonic()
            subprocess.run(
                [perfbpf, "replay", capture, "-q", "--max-events", str(WRITE_EVENTS), *options], check=True, stderr=subprocess.DEVNULL
            )
            seconds.append(time.monotonic() - begin)
        took.append(seconds[1] - seconds[0])
        with open(trace, encoding="utf-8") as f:
            events = len(json.load(f)["traceEvents"])
    return {
        "events": events,
        "bytes": os.path.getsize(trace),
        "write_s": round(statistics.median(took), 3),
        "write_s_range": [round(min(took), 3), round(max(took), 3)],
    }


def table(report):
    print("added to a TLS call, us                " + "".join(f"{shape:>32}" for shape in bench.SHAPES))
    for tool, shapes in report["tools"]["rows"].items():
        cells = [
            f"{r['added_us_per_tls_call']:.2f} ({r['added_us_95'][0]:.2f}..{r['added_us_95'][1]:.2f}), {r['ratio']:.3f}"
            for r in shapes.values()
        ]
        print(f"  {tool:36} " + "".join(f"{cell:>32}" for cell in cells))
    for tool, why in report["tools"]["missing"].items():
        print(f"  {tool}: {why}")
    for size, r in report["calls"].items():
        (low, high), (a_low, a_high) = r["ratio_95"], r["added_us_95"]
        print(
            f"{size:5} bytes a model's call: {r['cpu_us_untraced']:.1f} us of CPU a TLS call untraced, {r['ratio']:.3f} ({low:.3f}..{high:.3f}),"
            f" added {r['added_us_per_tls_call']:.2f} us ({a_low:.2f}..{a_high:.2f}); perfbpf's own {r['perfbpf_cpu_us_a_model_call']:.0f} us a model call"
        )
    for n, r in report["streams"].items():
        (low, high), against = r["cpu_us_an_event_range"], r["against"]
        print(
            f"{n:>13}: {r['events_per_s']:.0f} events/s, {r['cpu_us_an_event']:.1f} us an event ({low:.1f}..{high:.1f}), {r['busy_us_an_event']:.1f}"
            f" beside being there, {against['ratio']:.2f} ({against['ratio_95'][0]:.2f}..{against['ratio_95'][1]:.2f}) of 1 stream,"
            f" {r['rss_anon_kib'] / 1024:.1f} MiB anonymous"
        )
    for n, r in report["setups"].items():
        low, high = r["busy_us_a_call_range"]
        print(f"{n}: {r['busy_us_a_call']:.0f} us a connection and its call ({low:.0f}..{high:.0f})")
    for n, r in report["processes"].items():
        low, high = r["ratio_95"]
        print(
            f"{n:5} processes: {r['ratio']:.3f} ({low:.3f}..{high:.3f}), attached in {r['attach_ms']:.0f} ms, stopped in {r['stop_ms']:.0f} ms,"
            f" {r['rss_anon_kib'] / 1024:.1f} MiB anonymous"
        )
    w = report["writing"]
    print(f"{w['events']} trace events: {w['write_s']:.2f} s ({w['write_s_range'][0]:.2f}..{w['write_s_range'][1]:.2f}), {w['bytes'] / 2**20:.0f} MiB")
    sockcost.table(report["socket calls"])
    replay.table(report["replay"])


def measure(args, folder):
    perfbpf, tlsbench = (os.path.join(args.build, p) for p in ("perfbpf", "tests/tlsbench"))
    server = subprocess.Popen([tlsbench, "server"], stdout=subprocess.PIPE, text=True)
    peer = None
    try:
        peer = bench.Peer(tlsbench, server.stdout.readline().split()[1], False)
        path, _, _ = bench.sites(perfbpf, peer.pid)
        return {
            "kernel": os.uname().release,
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "tools": tools(peer, perfbpf, path, folder, args.rounds),
            "calls": calls(perfbpf, tlsbench, folder, args.rounds),
            "streams": bench.streams(args.build, folder, args.stream_rounds, STREAMS),
            "setups": bench.streams(args.build, folder, args.stream_rounds, SETUPS),
            "processes": processes(peer, perfbpf, folder, args.rounds),
            "writing": writing(args.build, folder, args.rounds),
            "socket calls": sockcost.measure(args.build, args.rounds),
            "replay": replay.measure(args.build, REPLAY_MIB),
        }
    finally:
        if peer:
            peer.child.kill()
        server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stream-rounds", type=int, default=3)
    parser.add_argument("--out", default="scale.json")
    bench.run(parser.parse_args(), measure, table)


if __name__ == "__main__":
    main()
