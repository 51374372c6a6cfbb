#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tracing costs. bench.py --build DIR [--rounds N] [--out bench.json]

A client and a server do nothing but TLS over loopback (tlsbench): 512-byte ping-pong, and 16 KiB records in bulk, each on a
connection that is no HTTP (which is soon ignored) and as calls of a model, which are decoded and told. Each round runs them
untraced, with the floors of floorbench at the places that perfbpf probes (empty programs; a record of each call; the same with
empty programs at the socket), and with perfbpf, in random order; the ratios are of runs of the same round. A ratio is the median
of the rounds with a 95 % bootstrap interval. Then: a program that only downloads (its server is on this machine, and traced too
by system-wide tracing); an untraced one that shares its library with a traced one; model calls that stream; memory, processor
time and start-up of perfbpf itself."""
import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SHAPES = {"ping 512 B": ("ping", 512, 6000), "bulk 16 KiB": ("bulk", 16384, 12000)}
DECODED = {"decoded ping 512 B": ("call", 512, 4000), "decoded bulk 16 KiB": ("stream", 16384, 3200)}
ALL_SHAPES = {**SHAPES, **DECODED}
# The last one: perfbpf's own process is stopped while the client runs. What is left is what its programs in the kernel cost; with
# two processors, and client and server on one each, perfbpf itself takes its time from one of them.
STATES = ("untraced", "empty", "record", "socket", "perfbpf", "programs")
# What is told of each call is a floor where perfbpf tells it, too; a stopped perfbpf is measured with what the ring holds.
STATE_SHAPES = {
    "record": ("ping 512 B", *DECODED),
    "socket": ("ping 512 B", *DECODED),
    "programs": ("ping 512 B", "decoded ping 512 B"),
}
DRAINED_S = 0.2  # after a stop
# Model calls that stream: connections at once, calls one after the other, each on a connection of its own, milliseconds
# between the events of a call, events of a call.
IDLE_STREAM = (1, 1, 4000, 1)  # a call that does nothing for 4 s: what perfbpf costs all the same
STREAMS = {
    "100 events/s": (1, 1, 10, 400),
    "1,000 events/s": (1, 1, 1, 4000),
    "10,000 events/s": (10, 1, 1, 4000),
}
TICK = os.sysconf("SC_CLK_TCK")


class Peer:
    """The bench client: one connection, one timed run a line."""

    def __init__(self, program, port, cpu):
        env = {**os.environ, **({"TLSBENCH_CPU": "0"} if cpu else {})}
        self.child = subprocess.Popen(
            [program, "client", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.pid = int(self.child.stdout.readline().split()[1])

    def cpu_ns(self):
        """Of all its threads: what other programs take of the machine does not move it."""
        total = 0
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{thread}/schedstat", encoding="utf-8") as f:
                total += int(f.read().split()[0])
        return total

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


def yields():
    """Of a bench at a real-time priority: what it measures does not wait for the tracer, which is below it. (By default
    scheduling it hardly does either: it sleeps often, and is preferred when it wakes.)"""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    if priority > 1:
        os.sched_setscheduler(0, policy, os.sched_param(priority - 1))


class Tracer:
    def __init__(self, perfbpf, target, folder):
        self.trace = os.path.join(folder, "trace.json")
        err_path = os.path.join(folder, "stderr")
        begin = time.monotonic()
        with open(err_path, "w", encoding="utf-8") as err:
            self.child = subprocess.Popen(
                [perfbpf, "-o", self.trace, *target], stderr=err, stdin=subprocess.DEVNULL, preexec_fn=yields
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


class Floor:
    """floorbench: kind is empty, record or socket."""

    def __init__(self, program, kind, pid, path, places):
        self.child = subprocess.Popen(
            [program, kind, str(pid), path, *places], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self.child.stdout.readline().split()
        if line[:1] != ["attached"]:
            sys.exit("bench: cannot attach the floor's probes")
        self.how = line[1]

    def stop(self):
        """Records that were told, and lost."""
        self.child.stdin.close()
        told = self.child.stdout.readline().split()
        self.child.wait(30)
        return {"call_count": int(told[1]), "lost": {"floor_records": int(told[3])}}


def sites(perfbpf, pid):
    """The file and the places of its read and write functions, as perfbpf chose them. ":memory": the length is there."""
    text = subprocess.run([perfbpf, "check", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False).stdout
    path, offsets, classes = None, [], []
    for line in text.splitlines():
        head = re.match(r"  (/\S*libssl\S*): ", line)
        path = head.group(1) if head else path
        place = re.match(r"    (.*\S)\s+at (0x[0-9a-f]+)\s+(\S+)", line)
        if place and path and re.search(r"read|write", place.group(1), re.I):
            offsets.append(place.group(2) + (":memory" if re.search(r"^\S*(internal|_ex)\b", place.group(1)) else ""))
            classes.append(f"{place.group(1)}: {place.group(3)}")
    if not offsets:
        sys.exit(f"bench: no read and write functions in:\n{text}")
    return path, offsets, classes


def interval(values, seed=1):
    """Median and its 95 % bootstrap interval."""
    chooser = random.Random(seed)
    medians = sorted(statistics.median(chooser.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[1949]


def one_run(peer, tracer, state, shape, times):
    mode, size, count = ALL_SHAPES[shape]
    peer.run(mode, size, count // 10)
    if state == "programs":
        tracer.child.send_signal(signal.SIGSTOP)
    before = tracer.cpu_s() if state == "perfbpf" else 0
    begin, cpu_ns = time.monotonic(), peer.cpu_ns()
    us, calls = peer.run(mode, size, count)
    times["client_cpu"][state].setdefault(shape, []).append((peer.cpu_ns() - cpu_ns) / 1e3 / calls)
    if state == "perfbpf":
        times["cpu"][shape].append((tracer.cpu_s() - before) / (time.monotonic() - begin))
    if state == "programs":
        tracer.child.send_signal(signal.SIGCONT)
        time.sleep(DRAINED_S)
    times[state][shape].append(us / count)
    times["calls"][shape] = calls / count


def one_round(peer, make, order, times):
    for state in order:
        tracer = make[state]()
        for shape in STATE_SHAPES.get(state, ALL_SHAPES):
            if shape in times["shapes"]:
                one_run(peer, tracer, state, shape, times)
        if state == "perfbpf":
            times["rss_kib"].append(tracer.status("RssAnon"))
        if tracer:
            metadata = tracer.stop()
            for name, value in (*metadata["lost"].items(), ("calls told", metadata["call_count"])):
                sums = times["lost"].setdefault(state, {})
                if value:
                    sums[name] = sums.get(name, 0) + value


def against(values, base):
    """The ratio's median and interval over the rounds."""
    return [round(math.exp(v), 3) for v in interval([math.log(a / b) for a, b in zip(values, base)])]


def summarise(times):
    result, cpu = {}, times["client_cpu"]
    for shape in times["shapes"]:
        base = times["untraced"][shape]
        row = {"us_untraced": round(statistics.median(base), 3), "tls_calls": times["calls"][shape]}
        for state in STATES[1:]:
            values = times[state][shape]
            if not values:
                continue
            middle, low, high = against(values, base)
            a_middle, a_low, a_high = interval([(a - b) / times["calls"][shape] for a, b in zip(values, base)])
            row[state] = {
                "us": round(statistics.median(values), 3),
                "ratio": middle,
                "ratio_95": [low, high],
                "added_us_per_tls_call": round(a_middle, 3),
                "added_us_95": [round(a_low, 3), round(a_high, 3)],
                "added_cpu_us": [round(v, 3) for v in interval([a - b for a, b in zip(cpu[state][shape], cpu["untraced"][shape])])],
            }
        row["perfbpf"]["against"] = {
            state: against(times["perfbpf"][shape], times[state][shape]) for state in STATES[1:4] if times[state][shape]
        }
        row["perfbpf"]["cpu_share"] = round(statistics.median(times["cpu"][shape]), 3)
        result[shape] = row
    return result


def ratio(values, base):
    middle, low, high = interval([a / b for a, b in zip(values, base)])
    return {"ratio": round(middle, 3), "ratio_95": [round(low, 3), round(high, 3)]}


def download(peer, make, rounds, gib):
    """An answer of HTTP/1.1 of `gib` GiB in 16 KiB records, against the untraced run of the same round: throughput, and work
    per second of the program's own CPU time (which other programs on the machine do not move)."""
    count = int(gib * 2**30) // 16384
    speed, work = {state: [] for state in make}, {state: [] for state in make}
    chooser = random.Random(11)
    order = list(make)
    for _ in range(rounds):
        chooser.shuffle(order)
        for state in order:
            tracer = make[state]()
            peer.run("get", 16384, max(count // 50, 100))
            before = peer.cpu_ns()
            us, _ = peer.run("get", 16384, count)
            work[state].append(count / (peer.cpu_ns() - before))
            speed[state].append(gib * 1024 / (us / 1e6))
            if tracer:
                tracer.stop()
    row = {
        "gib": gib,
        "mib_s_untraced": round(statistics.median(speed["untraced"]), 1),
        "cpu_ns_a_record_untraced": round(1 / statistics.median(work["untraced"])),
    }
    for state in make:
        if state == "untraced":
            continue
        through, done = (ratio(values[state], values["untraced"]) for values in (speed, work))
        row[state] = {
            "throughput": through["ratio"],
            "throughput_95": through["ratio_95"],
            "work_per_cpu": done["ratio"],
            "work_per_cpu_95": done["ratio_95"],
        }
    return row


def neighbour(peer, make, rounds):
    """The peer is traced by nobody, and uses the library of a process that is: CPU time a ping-pong."""
    cost = {state: [] for state in make}
    chooser = random.Random(13)
    order = list(make)
    _, size, count = SHAPES["ping 512 B"]
    for _ in range(rounds):
        chooser.shuffle(order)
        for state in order:
            tracer = make[state]()
            peer.run("ping", size, count // 10)
            before = peer.cpu_ns()
            peer.run("ping", size, count)
            cost[state].append((peer.cpu_ns() - before) / count)
            if tracer:
                tracer.stop()
    row = {"cpu_ns_untraced": round(statistics.median(cost["untraced"]))}
    row.update({state: ratio(cost[state], cost["untraced"]) for state in make if state != "untraced"})
    return row


def stream(build, folder, cert, port, connections, calls, gap_ms, events):
    """perfbpf's own CPU while a client's model calls stream, what it writes at the end included: share of a CPU, and time
    an event and a call."""
    client = subprocess.Popen(
        [os.path.join(build, "tests", "modelclient"), "--port", port, "--cacert", cert, "--threads", str(connections)]
        + ["-n", str(calls), "--new-connections", "--wait", "--quiet", "--knobs", f"tokens={events}&gap_ms={gap_ms}&delay_ms={gap_ms}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = client.stdout.readline().split()[1]
    tracer = Tracer(os.path.join(build, "perfbpf"), ["-p", pid], folder)
    begin = time.monotonic()
    client.stdin.write("\n")
    client.stdin.flush()
    time.sleep(calls * events * gap_ms / 1e3 * 0.9)
    rss = tracer.status("RssAnon")
    client.communicate(timeout=120)
    seconds = time.monotonic() - begin
    if tracer.child.wait(60):
        sys.exit("bench: perfbpf failed")
    with open(tracer.trace, encoding="utf-8") as f:
        metadata = json.load(f)["metadata"]
    cpu_ms = metadata["self"]["cpu_ms"] - metadata["self"]["start_cpu_ms"]
    return {
        "events_per_s": connections * calls * events / seconds,
        "cpu_share": cpu_ms / 1e3 / seconds,
        "cpu_us_an_event": cpu_ms * 1e3 / (connections * calls * events),
        "cpu_us_a_call": cpu_ms * 1e3 / (connections * calls),
        "rss_anon_kib": rss,
        "calls": metadata["call_count"],
        "lost": {k: v for k, v in metadata["lost"].items() if v},
    }


def streams(build, folder, rounds, shapes):
    """shapes: as STREAMS. The lowest and the highest of the rounds beside each median. "busy": without what perfbpf costs
    in the same time when nothing happens; "against": an event's cost as a ratio to the first shape's in the same round."""
    cert = os.path.join(folder, "cert.pem")
    server = subprocess.Popen(
        [os.path.join(build, "tests", "modelserver"), "--cert-out", cert], stdout=subprocess.PIPE, text=True
    )
    found = {name: [] for name in shapes}
    try:
        port = server.stdout.readline().split()[1]
        for _ in range(rounds):
            idle = stream(build, folder, cert, port, *IDLE_STREAM)["cpu_share"]
            for name, shape in shapes.items():
                one = stream(build, folder, cert, port, *shape)
                busy = 1 - idle / one["cpu_share"]
                found[name].append({**one, "busy_us_an_event": one["cpu_us_an_event"] * busy, "busy_us_a_call": one["cpu_us_a_call"] * busy})
    finally:
        server.kill()
    rows = {}
    first = [r["cpu_us_an_event"] for r in next(iter(found.values()))]
    for name, runs in found.items():
        rows[name] = {"connections": shapes[name][0], "calls": [r["calls"] for r in runs], "lost": [r["lost"] for r in runs]}
        rows[name]["against"] = ratio([r["cpu_us_an_event"] for r in runs], first)
        for key in ("events_per_s", "cpu_share", "cpu_us_an_event", "busy_us_an_event", "busy_us_a_call", "rss_anon_kib"):
            values = [r[key] for r in runs]
            rows[name][key] = round(statistics.median(values), 4)
            rows[name][key + "_range"] = [round(min(values), 4), round(max(values), 4)]
    return rows


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


IDLE = {
    "node": ["node", "-e", "require('tls'); setTimeout(() => {}, 1e9)"],
    "python": ["/usr/bin/python3", "-c", "import ssl, time; time.sleep(1e6)"],
    "C": ["/bin/sleep", "1000000"],
}


def starts(perfbpf, folder, rounds=9):
    """From the start of perfbpf until it says that it traces, and from the signal to its end, by what is traced: a program
    of 100 MB, one with libraries, one that is nothing; and the whole machine. The kinds take turns."""
    children = {k: subprocess.Popen(argv) for k, argv in IDLE.items() if shutil.which(argv[0])}
    kinds = {**{k: ["-p", str(c.pid)] for k, c in children.items()}, "system-wide": ["-a"]}
    seen = {k: {"attach_ms": [], "stop_ms": [], "start_cpu_ms": []} for k in kinds}
    try:
        time.sleep(1)
        for _ in range(rounds):
            for kind, target in kinds.items():
                tracer = Tracer(perfbpf, target, folder)
                time.sleep(0.1)
                metadata = tracer.stop()
                seen[kind]["attach_ms"].append(tracer.attach_ms)
                seen[kind]["stop_ms"].append(tracer.stop_ms)
                seen[kind]["start_cpu_ms"].append(metadata["self"]["start_cpu_ms"])
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    return {
        kind: {
            **{key: round(statistics.median(v), 1) for key, v in row.items()},
            **{f"{key}_range": [round(min(v), 1), round(max(v), 1)] for key, v in row.items()},
        }
        for kind, row in seen.items()
    }


def table(report):
    for shape, row in report["shapes"].items():
        print(f"{shape}: {row['us_untraced']:.2f} us untraced, {row['tls_calls']:g} TLS calls; perfbpf's process {100 * row['perfbpf']['cpu_share']:.0f} % of a CPU")
        for state in STATES[1:]:
            if state not in row:
                continue
            r = row[state]
            (low, high), (a_low, a_high), (c, c_low, c_high) = r["ratio_95"], r["added_us_95"], r["added_cpu_us"]
            more = "".join(f"; of {name} {m:.3f} ({l:.3f}..{h:.3f})" for name, (m, l, h) in r.get("against", {}).items())
            print(
                f"  {state:9} {r['ratio']:.3f} ({low:.3f}..{high:.3f}), added {r['added_us_per_tls_call']:.2f} us"
                f" ({a_low:.2f}..{a_high:.2f}) a TLS call, of the client's CPU {c:.2f} ({c_low:.2f}..{c_high:.2f}){more}"
            )
    print(f"told and lost in the runs above, summed over {report['rounds']} rounds: {report['lost']}")
    if "download" not in report:
        return
    d = report["download"]
    print(f"download of {d['gib']:g} GiB that calls no model, {d['mib_s_untraced']:.0f} MiB/s untraced; of that:")
    for state in ("empty", "one process", "system-wide"):
        r = d[state]
        (low, high), (w_low, w_high) = r["throughput_95"], r["work_per_cpu_95"]
        print(
            f"  {state:12} throughput {r['throughput']:.3f} ({low:.3f}..{high:.3f}), work per CPU second"
            f" {r['work_per_cpu']:.3f} ({w_low:.3f}..{w_high:.3f})"
        )
    n = report["neighbour"]["another process"]
    low, high = n["ratio_95"]
    print(f"an untraced process beside one with the same library: CPU {n['ratio']:.3f} ({low:.3f}..{high:.3f})")
    for name, r in report["streams"].items():
        low, high = r["cpu_us_an_event_range"]
        print(
            f"{name:22} {r['events_per_s']:6.0f}/s, perfbpf's CPU {100 * r['cpu_share']:.2f}%, {r['cpu_us_an_event']:.1f} us an event ({low:.1f}..{high:.1f}),"
            f" {r['rss_anon_kib'] / 1024:.1f} MiB anonymous"
        )
    f = report["footprint"]
    print(
        f"perfbpf idle: {f['rss_anon_kib'] / 1024:.1f} MiB anonymous, ring {(f['ring_bytes'] or 0) / 2**20:.0f} MiB, CPU"
        f" {100 * f['idle_cpu_share']:.1f}%; after the bench {report['rss_anon_kib_loaded'] / 1024:.1f} MiB anonymous"
    )
    print(f"start to attached {f['attach_ms']:.0f} ms, stop {f['stop_ms']:.0f} ms; {f['attach_kind']}")
    for kind, r in report["starts"].items():
        cells = [f"{r[k]:.0f} ms ({r[k + '_range'][0]:.0f}..{r[k + '_range'][1]:.0f})" for k in ("attach_ms", "start_cpu_ms", "stop_ms")]
        print(f"  {kind:12} attached after {cells[0]}, of processor time {cells[1]}; stopped after {cells[2]}")


def measure(args, folder):
    perfbpf, tlsbench, floorbench = (os.path.join(args.build, p) for p in ("perfbpf", "tests/tlsbench", "tests/floorbench"))
    pinned = (os.cpu_count() or 1) > 1
    env = {**os.environ, **({"TLSBENCH_CPU": "1"} if pinned else {})}
    server = subprocess.Popen([tlsbench, "server"], stdout=subprocess.PIPE, text=True, env=env)
    peers = []
    try:
        port = server.stdout.readline().split()[1]
        peers.extend(Peer(tlsbench, port, pinned) for _ in range(2))
        peer, other = peers
        path, offsets, classes = sites(perfbpf, peer.pid)
        make = {
            "untraced": lambda: None,
            **{kind: lambda kind=kind: Floor(floorbench, kind, peer.pid, path, offsets) for kind in STATES[1:4]},
            "perfbpf": lambda: Tracer(perfbpf, ["-p", str(peer.pid)], folder),
            "programs": lambda: Tracer(perfbpf, ["-p", str(peer.pid)], folder),
        }
        times = {s: {shape: [] for shape in ALL_SHAPES} for s in (*STATES, "cpu")}
        times.update(shapes=[s for s in ALL_SHAPES if re.search(args.only, s)], calls={}, lost={}, rss_kib=[], client_cpu={s: {} for s in STATES})
        order = list(STATES)
        chooser = random.Random(7)
        for _ in range(args.rounds):
            chooser.shuffle(order)
            one_round(peer, make, order, times)
        report = {
            "kernel": os.uname().release,
            "machine": os.uname().machine,
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "rounds": args.rounds,
            "sites": classes,
            "shapes": summarise(times),
            "rss_anon_kib_loaded": statistics.median(times["rss_kib"]),
            "lost": times["lost"],
        }
        if args.calls_only or args.only:
            return report
        return {
            **report,
            "download": download(
                peer,
                {
                    "untraced": make["untraced"],
                    "empty": make["empty"],
                    "one process": make["perfbpf"],
                    "system-wide": lambda: Tracer(perfbpf, ["-a"], folder),
                },
                args.download_rounds,
                args.download_gib,
            ),
            "neighbour": neighbour(
                peer,
                {
                    "untraced": make["untraced"],
                    "another process": lambda: Tracer(perfbpf, ["-p", str(other.pid)], folder),
                },
                args.rounds,
            ),
            "streams": streams(args.build, folder, args.stream_rounds, STREAMS),
            "footprint": footprint(perfbpf, peer.pid, folder),
            "starts": starts(perfbpf, folder),
        }
    finally:
        for client in peers:
            client.child.kill()
        server.kill()


def run(args, measure_all, show):
    """Measures, keeps what was found in args.out, and shows it."""
    if os.geteuid():
        sys.exit("bench: tracing needs root; run 'sudo make bench'")
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print(f"bench: the machine is busy (load {os.getloadavg()[0]:.1f}): the figures will be too", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="perfbpf-bench.") as folder:
        report = measure_all(args, folder)
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    show(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--download-rounds", type=int, default=5)
    parser.add_argument("--download-gib", type=float, default=2)
    parser.add_argument("--stream-rounds", type=int, default=3)
    parser.add_argument("--calls-only", action="store_true", help="only the TLS calls")
    parser.add_argument("--only", default="", metavar="REGEX", help="only TLS calls, of shapes that match: more rounds in the same time")
    parser.add_argument("--out", default="bench.json")
    run(parser.parse_args(), measure, table)


if __name__ == "__main__":
    main()
