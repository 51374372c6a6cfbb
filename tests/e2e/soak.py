#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""soak.py BUILD MINUTES [FILE]: perfbpf under churn: processes that come and go, connections that are opened, kept, reset and left
in the middle, calls that are evicted, libraries whose last user ends. What it holds is fitted by a line: memory, descriptors,
BPF objects and what lies in its maps must not grow. FILE: the samples as JSON. Speaks TAP."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import e2e
from e2e import CLIENT, Client, Perfbpf, Server

# What a line over the whole run may rise by, and why it is not zero: an allocator's next arena; what is open, which swings by 2 MiB
# of what is in use; a sample in a process's life.
BOUNDS = {"anon_kib": 1024, "heap_kib": 1024, "fds": 4, "links": 4, "maps": 0.5, "programs": 0.5, "entries": 100, "map_kib": 512}
# Rings and caps of user/flow fill for a quarter of an hour; a shorter run only shows that it is no more than that.
LONG_MINUTES, WARMING_KIB = 30, 8192
HEAP_EVERY_S, LOWEST_OF = 30, 8
MAX_EVENTS = 4000  # the ring of spans is full soon, and no growth
# What is remembered of processes that ended has caps (PROC_MAX, FAMILY_MAX in user/flow): they are reached before it is measured,
# by processes that made a call and by such that made none; their arguments are as long as those of the others, which take their
# places.
CALLERS, FORKS = 17000, 3000
WORDS = "--port 65535 --cacert /tmp/perfbpf-e2e.abcdefgh/cert.pem --quiet --dialect mixed --id soak12345678901 -n 10 --threads 8 --knobs tokens=20"
WARM_SHARE = 0.3  # of the run
BPFTOOL = shutil.which("bpftool", path=os.environ["PATH"] + ":/usr/sbin")


def anonymous_kib(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", e2e.read_text(f"/proc/{pid}/status"))[1])


def owned(pid):
    """Descriptors, and the ids and memory of the BPF objects among them."""
    found = {"fds": 0, "link": set(), "map": set(), "prog": set(), "map_kib": 0}
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        text = e2e.read_text(f"/proc/{pid}/fdinfo/{fd}")
        found["fds"] += 1
        for kind in ("link", "map", "prog"):
            number = re.search(rf"^{kind}_id:\s+(\d+)$", text, re.M)
            if number:
                found[kind].add(int(number[1]))
                break
        else:
            continue
        memory = re.search(r"^memlock:\s+(\d+)$", text, re.M)
        found["map_kib"] += int(memory[1]) // 1024 if kind == "map" and memory else 0
    return found


def entries(maps):
    """What lies in the hash tables. bpftool lists them while they change, which now and then ends early."""
    total = 0
    for number in maps:
        shown = subprocess.run([BPFTOOL, "-j", "map", "show", "id", str(number)], capture_output=True, text=True, check=False)
        if shown.returncode or json.loads(shown.stdout)["type"] != "hash":
            continue
        dump = subprocess.run([BPFTOOL, "-j", "map", "dump", "id", str(number)], capture_output=True, text=True, check=False)
        total += dump.stdout.count('"key":') // (2 if '"formatted"' in dump.stdout else 1)
    return total


def sample(pid, begin):
    own = owned(pid)
    return {
        "seconds": time.monotonic() - begin, "anon_kib": anonymous_kib(pid), "fds": own["fds"], "links": len(own["link"]),
        "maps": len(own["map"]), "programs": len(own["prog"]), "map_kib": own["map_kib"],
        "entries": entries(own["map"]) if BPFTOOL else 0, "ids": {k: sorted(own[k]) for k in ("link", "map", "prog")},
    }


def heap_kib(perfbpf):
    """What of its memory is in use, by itself: memory that grows while this does not is but scattered."""
    before = os.stat(perfbpf.trace_path).st_ino if os.path.exists(perfbpf.trace_path) else 0
    perfbpf.child.send_signal(signal.SIGUSR1)
    e2e.until(lambda: os.path.exists(perfbpf.trace_path) and os.stat(perfbpf.trace_path).st_ino != before, 60, "a snapshot")
    return perfbpf.trace()["metadata"]["self"]["heap_bytes"] // 1024


def lowest(samples, key):
    """The lowest of each LOWEST_OF: what is in use whatever is open. A stream in flight takes as much as a hundred that ended."""
    found = [s for s in samples if key in s]
    return [min(found[i:i + LOWEST_OF], key=lambda s: s[key]) for i in range(0, len(found), LOWEST_OF)]


def rise(samples, key):
    """(the fitted line's rise from the first to the last sample, its slope a minute)"""
    xs, ys = zip(*((s["seconds"], s[key]) for s in samples if key in s))
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / spread
    return slope * (xs[-1] - xs[0]), slope * 60


def own_library(folder, number):
    """A process whose TLS library is a file of its own: probed, and let go of when it ends."""
    real = next(line.split()[2] for line in subprocess.run(["ldd", CLIENT], capture_output=True, text=True, check=True)
                .stdout.splitlines() if "libssl" in line)
    place = os.path.join(folder, str(number % 3))
    os.makedirs(place, exist_ok=True)
    path = os.path.join(place, os.path.basename(real))
    shutil.copy(real, path + ".new")
    os.rename(path + ".new", path)
    return {**os.environ, "LD_LIBRARY_PATH": place}


def churn(server, plain, folder, number):
    """One round of clients, at random; the round's number makes their calls' names."""
    tls = [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet", "--dialect", "mixed", "--id", f"soak{number}"]
    open_http = [CLIENT, "--port", str(plain.port), "--plain", "--quiet", "--dialect", "mixed", "--id", f"soak{number}"]
    kinds = [
        [*tls, "-n", "6", "--new-connections"],
        [*tls, "-n", "10", "--threads", "8", "--knobs", "tokens=20"],
        [*tls, "-n", "2", "--knobs", "tokens=300&gap_ms=2", "--stop-after", "1500"],
        [*tls, "-n", "4", "--new-connections", "--knobs", "rst_at=3"],
        [*tls, "-n", "3", "--ex", "--body-bytes", "200000"],
        [*open_http, "-n", "6", "--new-connections"],
        [*open_http, "-n", "10", "--threads", "8"],
        ["sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do /bin/true {WORDS}; done"],
    ]
    children = [subprocess.Popen(argv, stderr=subprocess.DEVNULL) for argv in random.sample(kinds, 4)]
    if number % 5 == 0:
        children.append(subprocess.Popen([*tls, "-n", "2"], env=own_library(folder, number)))
    if number % 7 == 0:  # never answered to its end, then killed: what it left is evicted
        children.append(subprocess.Popen([*tls, "--threads", "4", "--knobs", "tokens=100000&gap_ms=50"]))
        threading.Timer(3, children[-1].kill).start()
    for child in children:
        child.wait()


def repeated(command, times):
    return subprocess.Popen(["sh", "-c", f"i=0; while [ $i -lt {times} ]; do {command}; i=$((i+1)); done"])


def fill(server):
    caller = f"{CLIENT} --port {server.port} --cacert {server.cert} --quiet --dialect mixed --id soak12345678901 -n 1 --knobs tokens=5"
    for child in [repeated(caller, CALLERS // 4) for _ in range(4)]:
        child.wait()
    repeated(f"/bin/true {WORDS}", FORKS).wait()


def churn_until(end, server, plain, folder):
    number = os.getpid() * 100000
    if end - time.monotonic() > 240:
        fill(server)
    while time.monotonic() < end:
        churn(server, plain, folder, number)
        number += 1
        for s in (server, plain):
            if os.path.getsize(s.truth_path) > 1 << 22:
                os.truncate(s.truth_path, 0)


def run(minutes, samples):
    random.seed(1)
    server, plain, folder = Server(), Server("--plain"), e2e.directory()
    idle = Client([CLIENT, "--port", str(server.port), "--cacert", server.cert, "--open-first", "--id", "idle"])
    end = time.monotonic() + minutes * 60
    worker = os.fork()
    if worker == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        churn_until(end, server, plain, folder)
        os._exit(0)
    os.waitpid(worker, os.WUNTRACED)
    perfbpf = Perfbpf("-q", "-p", f"{worker},{idle.pid}", "--max-events", MAX_EVENTS, "--stale", 5, "--sweep", 2, calls=False, quiet=True)
    begin, heap_due = time.monotonic(), 0
    e2e.until(lambda: len(owned(perfbpf.child.pid)["link"]) > 0, 30, "perfbpf has set its probes")
    os.kill(worker, signal.SIGCONT)
    while time.monotonic() < end - 1:
        time.sleep(max(0.5, min(5, minutes)))
        samples.append(sample(perfbpf.child.pid, begin))
        if samples[-1]["seconds"] >= heap_due:
            samples[-1]["heap_kib"] = heap_kib(perfbpf)
            heap_due += min(HEAP_EVERY_S, minutes)
    os.waitpid(worker, 0)
    idle.go()  # a connection that was idle for the whole run
    assert idle.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    return perfbpf


def table(samples):
    """What it held on its way: the medians around some moments."""
    end = samples[-1]["seconds"]
    print("# minutes  anonymous KiB  in use KiB  descriptors  links  maps  entries")
    for share in (1 / 12, 1 / 4, 1 / 2, 3 / 4, 1):
        near = sorted(samples, key=lambda s: abs(s["seconds"] - share * end))
        middle = {key: sorted([s[key] for s in near if key in s][:5])[2] for key in BOUNDS}
        print(f"# {share * end / 60:7.1f}  {middle['anon_kib']:13}  {middle['heap_kib']:10}  {middle['fds']:11}  {middle['links']:5}"
              f"  {middle['maps']:4}  {middle['entries']:7}")


def still_there(ids):
    left = []
    for kind, numbers in ids.items():
        for number in numbers:
            shown = subprocess.run([BPFTOOL, kind, "show", "id", str(number)], capture_output=True, check=False)
            left += [f"{kind} {number}"] if shown.returncode == 0 else []
    return left


def main():
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    reason = e2e.cannot_run()
    if reason:
        print(f"1..1\nok 1 - soak # SKIP {reason}")
        return 0
    samples = []
    try:
        perfbpf = run(minutes, samples)
        fitted = [s for s in samples if s["seconds"] >= WARM_SHARE * samples[-1]["seconds"]]
        number = failed = 0
        for key, bound in BOUNDS.items():
            if key in ("anon_kib", "heap_kib") and minutes < LONG_MINUTES:
                bound = WARMING_KIB
            total, slope = rise(lowest(fitted, key) if key == "heap_kib" else fitted, key)
            number += 1
            good = total <= bound
            failed += not good
            values = [s[key] for s in fitted if key in s]
            print(f"{'ok' if good else 'not ok'} {number} - {key} of {fitted[-1]['seconds'] / 60:.1f} minutes: "
                  f"{min(values)} to {max(values)}, {slope:+.2f} a minute, {total:+.1f} in all, at most {bound}", flush=True)
        table(samples)
        calls = perfbpf.trace()["metadata"]["call_count"]
        left = still_there(samples[-1]["ids"]) if BPFTOOL else []
        print(f"{'not ok' if left else 'ok'} {number + 1} - nothing of it is left in the kernel {left or ''}")
        good = calls > 10 * minutes
        print(f"{'ok' if good else 'not ok'} {number + 2} - {calls} calls were told; lost: {perfbpf.lost()}")
        print(f"1..{number + 2}")
        return 1 if failed or left or not good else 0
    finally:
        if len(sys.argv) > 3:
            with open(sys.argv[3], "w", encoding="utf-8") as f:
                json.dump(samples, f)
        e2e.cleanup()


sys.exit(main())
