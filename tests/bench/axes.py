#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each axis of attribution costs a service. axes.py --build DIR [--rounds N] [--out axes.json]

The service with planted costs (tests/tools/planted) answers requests as fast as it can, untraced and with each axis, in
random order in each round; the ratios are of runs of the same round: time a request takes (1.02: 2 % fewer requests a
second), and processor time that the service takes for it, which others on the machine do not move. A ratio is the median
of the rounds with a 95 % bootstrap interval."""
import argparse
import os
import random
import statistics
import subprocess
import sys
import time

import bench
from bench import Tracer, ratio

# Connections, requests, routes.
LOADS = {
    "planted mix": (16, 5600, "health,health,health,health,hot,alloc,nplus1"),
    "empty requests": (4, 40000, "health"),
    # Some million allocations a second, all of them at the same place.
    "allocations": (4, 8000, "health,alloc"),
}
# What is asked of each on an idle machine, of the mix.
AXES = {
    "calls only": ([], None),
    "--cpu": (["--cpu"], 1.02),
    "--off-cpu": (["--off-cpu"], 1.05),
    "--db": (["--db"], 1.05),
    "--http": (["--http"], None),
    "--alloc": (["--alloc"], 1.10),
    "all": (["--cpu", "--off-cpu", "--db", "--http", "--alloc"], 1.20),
}


def built(perfbpf):
    """The axes that this version has."""
    text = subprocess.run([perfbpf, "--help"], capture_output=True, text=True, check=True).stdout
    axes = {}
    for name, (options, wanted) in AXES.items():
        have = [o for o in options if o in text]
        if have or not options:
            axes[name] = (have, wanted)
    return axes


def cpu_ns(pid):
    """Of a process, threads that ended included: the clock of its number (clock_getcpuclockid)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


class Planted:
    def __init__(self, program):
        self.program = program
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        words = dict(self.child.stdout.readline().split() for _ in range(3))
        self.port, self.pid = words["listening"], int(words["pid"])

    def run(self, connections, requests, routes):
        """ns a request, and of the service's processor time."""
        before = cpu_ns(self.pid)
        done = subprocess.run(
            [self.program, "drive", self.port, str(connections), str(requests), routes],
            stdout=subprocess.PIPE, text=True, check=False,
        )
        if done.returncode:
            sys.exit(f"bench: {self.program} drive: {done.returncode}")
        return int(done.stdout.split()[2]) / requests, (cpu_ns(self.pid) - before) / requests

    def end(self):
        self.child.kill()
        self.child.wait()


def measure(args, folder):
    perfbpf = os.path.join(args.build, "perfbpf")
    axes = built(perfbpf)
    service = Planted(os.path.join(args.build, "tests", "planted"))
    order = ["untraced", *axes]
    runs = {load: {state: [] for state in order} for load in LOADS}
    lost, chooser = {}, random.Random(7)
    try:
        for _ in range(args.rounds):
            chooser.shuffle(order)
            for state in order:
                tracer = None
                if state != "untraced":
                    tracer = Tracer(perfbpf, ["-p", str(service.pid), *axes[state][0]], folder)
                for load, (connections, requests, routes) in LOADS.items():
                    service.run(connections, requests // 4, routes)  # names are read once, with the first samples
                    runs[load][state].append(service.run(connections, requests, routes))
                for name, value in (tracer.stop()["lost"] if tracer else {}).items():
                    if value:
                        lost[name] = lost.get(name, 0) + value
    finally:
        service.end()
    return {
        "kernel": os.uname().release,
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "rounds": args.rounds,
        "lost": lost,
        "loads": {load: summarise(states, axes) for load, states in runs.items()},
    }


def summarise(states, axes):
    base = states["untraced"]
    row = {
        "requests_s_untraced": round(1e9 / statistics.median(t for t, _ in base)),
        "cpu_us_untraced": round(statistics.median(c for _, c in base) / 1e3, 2),
    }
    for name, (options, wanted) in axes.items():
        row[name] = {
            "options": options,
            "wanted": wanted,
            "time": ratio([t for t, _ in states[name]], [t for t, _ in base]),
            "cpu": ratio([c for _, c in states[name]], [c for _, c in base]),
        }
    return row


def cell(r):
    return f"{r['ratio']:.3f} ({r['ratio_95'][0]:.3f}..{r['ratio_95'][1]:.3f})"


def table(report):
    for load, row in report["loads"].items():
        print(f"{load}: {row['requests_s_untraced']} requests/s untraced, {row['cpu_us_untraced']:g} us of CPU each")
        print(f"  {'':12} {'time a request':>26} {'CPU of the service':>26}  wanted")
        for name, r in row.items():
            if isinstance(r, dict):
                wanted = f"{r['wanted']:.2f}" if r["wanted"] and load == "planted mix" else "-"
                print(f"  {name:12} {cell(r['time']):>26} {cell(r['cpu']):>26}  {wanted:>6}")
    if report["lost"]:
        print(f"lost (summed over {report['rounds']} rounds): {report['lost']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", default="axes.json")
    bench.run(parser.parse_args(), measure, table)


if __name__ == "__main__":
    main()
