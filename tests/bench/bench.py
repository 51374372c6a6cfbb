#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tracing costs. bench.py --build DIR [--rounds N] [--out bench.json]

A client and a server do nothing but TLS over loopback (tlsbench): 512-byte ping-pong, and 16 KiB records in bulk. Each round
runs them untraced, with empty programs at entry and return of the places that perfbpf probes, and with perfbpf, in random
order; the ratios are of runs of the same round. A ratio is the median of the rounds with a 95 % bootstrap interval. Then:
a program that only downloads, under system-wide tracing (its server is on this machine, and traced too); memory, processor
time and start-up of perfbpf itself."""
import argparse
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SHAPES = {"ping 512 B": ("ping", 512, 6000), "bulk 16 KiB": ("bulk", 16384, 12000)}
STATES = ("untraced", "bare", "perfbpf")
TICK = os.sysconf("SC_CLK_TCK")


class Peer:
    """The bench client: one connection, one timed run a line."""

    def __init__(self, program, port, cpu):
        env = {**os.environ, **({"TLSBENCH_CPU": "0"} if cpu else {})}
        self.child = subprocess.Popen(
            [program, "client", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.pid = int(self.child.stdout.readline().split()[1])

    def run(self, mode, size, count):
        self.child.stdin.write(f"{mode} {count} {size}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline().split()
        if not line:
            sys.exit("bench: the client ended")
        return int(line[1]) / 1e3, int(line[2])


def wait_for_text(path, text, child, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with open(path, encoding="utf-8", errors="replace") as f:
            have = f.read()
        if text in have:
            return have
        if child.poll() is not None:
            break
        time.sleep(0.001)
    child.kill()
    sys.exit(f"bench: perfbpf does not trace:\n{have}")


class Tracer:
    def __init__(self, perfbpf, target, folder):
        self.trace = os.path.join(folder, "trace.json")
        err_path = os.path.join(folder, "stderr")
        begin = time.monotonic()
        with open(err_path, "w", encoding="utf-8") as err:
            self.child = subprocess.Popen(
                [perfbpf, "-o", self.trace, *target], stderr=err, stdin=subprocess.DEVNULL
            )
        wait_for_text(err_path, "tracing ", self.child)
        self.attach_ms = (time.monotonic() - begin) * 1e3

    def status(self, name):
        with open(f"/proc/{self.child.pid}/status", encoding="utf-8") as f:
            return int(re.search(rf"^{name}:\s*(\d+) kB", f.read(), re.M).group(1))

    def cpu_s(self):
        with open(f"/proc/{self.child.pid}/stat", encoding="utf-8") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def stop(self):
        begin = time.monotonic()
        self.child.send_signal(signal.SIGINT)
        status = self.child.wait(60)
        if status:
            sys.exit(f"bench: perfbpf ended with status {status}")
        self.stop_ms = (time.monotonic() - begin) * 1e3
        with open(self.trace, encoding="utf-8") as f:
            return json.load(f)["metadata"]


class Bare:
    def __init__(self, program, path, offsets):
        self.child = subprocess.Popen(
            [program, "bare", "0", path, *offsets], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self.child.stdout.readline().split()
        if line[:1] != ["attached"]:
            sys.exit("bench: cannot attach bare probes")
        self.how = line[1]

    def stop(self):
        self.child.stdin.close()
        self.child.wait(30)
        return None


def sites(perfbpf, pid):
    """The file and the places of its read and write functions, as perfbpf chose them."""
    text = subprocess.run([perfbpf, "check", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False).stdout
    path, offsets, classes = None, [], []
    for line in text.splitlines():
        head = re.match(r"  (/\S*libssl\S*): ", line)
        path = head.group(1) if head else path
        place = re.match(r"    (.*\S)\s+at (0x[0-9a-f]+)\s+(\S+)", line)
        if place and path and re.search(r"read|write", place.group(1), re.I):
            offsets.append(place.group(2))
            classes.append(f"{place.group(1)}: {place.group(3)}")
    if not offsets:
        sys.exit(f"bench: no read and write functions in:\n{text}")
    return path, offsets, classes


def interval(values, seed=1):
    """Median and its 95 % bootstrap interval."""
    chooser = random.Random(seed)
    medians = sorted(statistics.median(chooser.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[1949]


def one_round(peer, make, order, times):
    for state in order:
        tracer = make[state]()
        for shape, (mode, size, count) in SHAPES.items():
            peer.run(mode, size, count // 10)
            before = tracer.cpu_s() if state == "perfbpf" else 0
            us, calls = peer.run(mode, size, count)
            if state == "perfbpf":
                times["cpu"][shape].append((tracer.cpu_s() - before) / (us / 1e6))
            times[state][shape].append(us / count)
            times["calls"][shape] = calls / count
        if state == "perfbpf":
            times["rss_kib"].append(tracer.status("RssAnon"))
        metadata = tracer.stop() if tracer else None
        if metadata:
            lost = {k: v for k, v in metadata["lost"].items() if v}
            times["lost"].append(lost)


def summarise(times):
    result = {}
    for shape in SHAPES:
        base = times["untraced"][shape]
        row = {"us_untraced": round(statistics.median(base), 3), "tls_calls": times["calls"][shape]}
        for state in STATES[1:]:
            logs = [math.log(a / b) for a, b in zip(times[state][shape], base)]
            middle, low, high = (math.exp(v) for v in interval(logs))
            added = [(a - b) / times["calls"][shape] for a, b in zip(times[state][shape], base)]
            a_middle, a_low, a_high = interval(added)
            row[state] = {
                "us": round(statistics.median(times[state][shape]), 3),
                "ratio": round(middle, 3),
                "ratio_95": [round(low, 3), round(high, 3)],
                "added_us_per_tls_call": round(a_middle, 3),
                "added_us_95": [round(a_low, 3), round(a_high, 3)],
            }
        row["perfbpf"]["cpu_share"] = round(statistics.median(times["cpu"][shape]), 3)
        result[shape] = row
    return result


def download(peer, make, rounds, gib):
    """Throughput of `gib` GiB in 16 KiB records, against that of the untraced run of the same round."""
    count = int(gib * 2**30) // 16384
    speed = {state: [] for state in make}
    chooser = random.Random(11)
    order = list(make)
    for _ in range(rounds):
        chooser.shuffle(order)
        for state in order:
            tracer = make[state]()
            peer.run("bulk", 16384, count // 50)
            us, _ = peer.run("bulk", 16384, count)
            speed[state].append(gib * 1024 / (us / 1e6))
            if tracer:
                tracer.stop()
    row = {"gib": gib, "mib_s_untraced": round(statistics.median(speed["untraced"]), 1)}
    for state in order:
        if state != "untraced":
            middle, low, high = interval([a / b for a, b in zip(speed[state], speed["untraced"])])
            row[state] = {"throughput": round(middle, 3), "throughput_95": [round(low, 3), round(high, 3)]}
    return row


def footprint(perfbpf, pid, folder):
    """Of a perfbpf that traces a process which does nothing."""
    attach, stop, rss, total, cpu = [], [], [], [], []
    for _ in range(5):
        tracer = Tracer(perfbpf, ["-p", str(pid)], folder)
        attach.append(tracer.attach_ms)
        before = tracer.cpu_s()
        time.sleep(1.5)
        cpu.append((tracer.cpu_s() - before) / 1.5)
        rss.append(tracer.status("RssAnon"))
        total.append(tracer.status("VmRSS"))
        metadata = tracer.stop()
        stop.append(tracer.stop_ms)
    return {
        "attach_ms": round(statistics.median(attach), 1),
        "stop_ms": round(statistics.median(stop), 1),
        "rss_anon_kib": statistics.median(rss),
        "vm_rss_kib": statistics.median(total),
        "idle_cpu_share": round(statistics.mean(cpu), 4),
        "ring_bytes": metadata.get("self", {}).get("ring_bytes"),
        "attach_kind": metadata.get("self", {}).get("attach"),
    }


def table(report):
    print(f"{'':14} {'untraced':>10} {'bare entry+return':>26} {'perfbpf':>26} {'added a TLS call':>20} {'CPU':>6}")
    for shape, row in report["shapes"].items():
        cells = []
        for state in STATES[1:]:
            r = row[state]
            cells.append(f"{r['ratio']:.3f} ({r['ratio_95'][0]:.3f}..{r['ratio_95'][1]:.3f})")
        added = row["perfbpf"]["added_us_per_tls_call"]
        print(
            f"{shape:14} {row['us_untraced']:>7.2f} us {cells[0]:>26} {cells[1]:>26} {added:>17.3f} us"
            f" {100 * row['perfbpf']['cpu_share']:>5.0f}%"
        )
    d = report["download"]
    print(f"download of {d['gib']:g} GiB, {d['mib_s_untraced']:.0f} MiB/s untraced; throughput of that:", end="")
    for state in ("bare", "system-wide"):
        low, high = d[state]["throughput_95"]
        print(f" {state} {d[state]['throughput']:.3f} ({low:.3f}..{high:.3f})", end="")
    print()
    f = report["footprint"]
    print(
        f"perfbpf idle: {f['rss_anon_kib'] / 1024:.1f} MiB anonymous, ring {(f['ring_bytes'] or 0) / 2**20:.0f} MiB, CPU"
        f" {100 * f['idle_cpu_share']:.1f}%; after the bench {report['rss_anon_kib_loaded'] / 1024:.1f} MiB anonymous"
    )
    print(f"start to attached {f['attach_ms']:.0f} ms, stop {f['stop_ms']:.0f} ms; {f['attach_kind']}")
    if report["lost"]:
        print(f"lost in the bulk runs (summed over {report['rounds']} rounds): {report['lost']}")


def measure(args, folder):
    perfbpf, tlsbench = (os.path.join(args.build, p) for p in ("perfbpf", "tests/tlsbench"))
    pinned = (os.cpu_count() or 1) > 1
    env = {**os.environ, **({"TLSBENCH_CPU": "1"} if pinned else {})}
    server = subprocess.Popen([tlsbench, "server"], stdout=subprocess.PIPE, text=True, env=env)
    try:
        peer = Peer(tlsbench, server.stdout.readline().split()[1], pinned)
        path, offsets, classes = sites(perfbpf, peer.pid)
        make = {
            "untraced": lambda: None,
            "bare": lambda: Bare(tlsbench, path, offsets),
            "perfbpf": lambda: Tracer(perfbpf, ["-p", str(peer.pid)], folder),
        }
        times = {s: {shape: [] for shape in SHAPES} for s in (*STATES, "cpu")}
        times.update(calls={}, lost=[], rss_kib=[])
        order = list(STATES)
        chooser = random.Random(7)
        for _ in range(args.rounds):
            chooser.shuffle(order)
            one_round(peer, make, order, times)
        lost = {}
        for one in times["lost"]:
            for name, value in one.items():
                lost[name] = lost.get(name, 0) + value
        return {
            "kernel": os.uname().release,
            "machine": os.uname().machine,
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "rounds": args.rounds,
            "sites": classes,
            "shapes": summarise(times),
            "rss_anon_kib_loaded": statistics.median(times["rss_kib"]),
            "lost": lost,
            "download": download(
                peer,
                {"untraced": make["untraced"], "bare": make["bare"], "system-wide": lambda: Tracer(perfbpf, ["-a"], folder)},
                args.download_rounds,
                args.download_gib,
            ),
            "footprint": footprint(perfbpf, peer.pid, folder),
        }
    finally:
        if "peer" in locals():
            peer.child.kill()
        server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--download-rounds", type=int, default=5)
    parser.add_argument("--download-gib", type=float, default=2)
    parser.add_argument("--out", default="bench.json")
    args = parser.parse_args()
    if os.geteuid():
        sys.exit("bench: tracing needs root; run 'sudo make bench'")
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print(f"bench: the machine is busy (load {os.getloadavg()[0]:.1f}): the figures will be too", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="perfbpf-bench.") as folder:
        report = measure(args, folder)
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    table(report)


main()
