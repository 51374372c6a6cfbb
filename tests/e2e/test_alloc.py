#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--alloc against programs that say, and against an allocator that counts, what is allocated."""
import glob
import os
import re
import struct
import subprocess

import e2e
from e2e import BUILD, PERFBPF, Client, Perfbpf, Skip, case, directory, note

LOAD = os.path.join(BUILD, "tests", "allocload")
COUNT = os.path.join(BUILD, "tests", "countalloc.so")
# Of processor time. By hand 30, on a machine that does nothing else: then the bound of the top stack is at most 10 %.
SECONDS = float(os.environ.get("PERFBPF_ALLOC_SECONDS", "3"))
SPIN = os.environ.get("PERFBPF_ALLOC_SPIN", "2500")
# What is stated holds 95 times of 100: a test that fails one time in twenty is none.
SURE = 2
# Of short runs: three windows or four are the time of each, and many samples are wanted in them.
PERIOD = 16384
# Bytes a round, as allocload says it.
ROUND = {"storm": 6400, "steady": 3200, "grow": 800, "made": 800, "keep": 100}


class Load(Client):
    """truth: bytes, count, freed by the allocator that counts; bytes by function by the program's own account."""

    def __init__(self, preload=None, seconds=SECONDS, program=LOAD):
        self.truth_path = os.path.join(directory(), "truth")
        env = {"COUNTALLOC": self.truth_path, **({"LD_PRELOAD": preload} if preload else {})}
        super().__init__([program, str(seconds), SPIN], env=env)
        self.truth, self.by_name = {}, {}

    def finish(self, seconds=180):
        status = super().finish(seconds)
        rounds = next(int(line.split()[1]) for line in self.lines if line.startswith("rounds"))
        self.by_name = {name: rounds * size for name, size in ROUND.items()}
        if os.path.exists(self.truth_path):
            with open(self.truth_path, encoding="ascii") as f:
                self.truth = {line.split()[0]: int(line.split()[1]) for line in f}
        return status


def run(*options, preload=None, seconds=SECONDS):
    load = Load(preload, seconds)
    perfbpf = Perfbpf("--alloc", *options, "-p", load.pid, calls=False)
    load.go()
    assert load.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert not perfbpf.lost(), perfbpf.lost()
    return load, perfbpf


def profile_of(perfbpf):
    return perfbpf.trace()["otherData"]["profile"]


def by_function(profile, kind="alloc", pid=None):
    """{function: [bytes, error, count, kept bytes]} of stacks that it is the innermost function of."""
    sums = {}
    for row in profile["memory"]:
        if row[0] != kind or not row[9] or pid not in (None, profile["threads"][row[1]][0]):
            continue
        sums.setdefault(profile["frames"][row[9][0]][0], [0, 0, 0, 0])
        for i, at in enumerate((2, 3, 4, 6)):
            sums[profile["frames"][row[9][0]][0]][i] += row[at] or 0
    return sums


def assert_near(what, got, want, error):
    note(f"{what}: {got / 1e6:.1f} MB ± {error / 1e6:.1f}, in truth {want / 1e6:.1f}")
    assert abs(got - want) <= SURE * error + 0.01 * want, f"{what}: {got} ± {error}, in truth {want}"


def calls_trapped(capture):
    """(probes that were hit, allocations, whether what is freed was seen) of each window of a capture (bpf/event.h)."""
    with open(capture, "rb") as f:
        data = f.read()
    at = struct.unpack_from("<I", data, 12)[0]
    windows = []
    while at + 24 <= len(data):
        size, kind = struct.unpack_from("<IH", data, at)
        if kind == 29:  # EV_ALLOC_WINDOW
            count, hits = struct.unpack_from("<QQ", data, at + 72)
            windows.append((hits, count, struct.unpack_from("<I", data, at + 140)[0]))
        at += size
    return windows


def check_layers(capture):
    """The allocator that counts hands on all of its calls, and what it hands on to is soon probed now and then only."""
    windows = [w for w in calls_trapped(capture) if w[1] >= 200]
    all_of_them = [hits / count for hits, count, follows in windows if follows]
    others = [hits / count for hits, count, follows in windows if not follows]
    note(f"probes an allocation: {all_of_them or others}, then {others[-3:]}")
    if not all_of_them:  # before Linux 6.13 nothing tells which ones saw all of the functions
        all_of_them = [max(others)]
    assert 1.9 < min(all_of_them) and max(all_of_them) < 2.2, all_of_them
    assert 1 <= min(others) < 1.5, others


def report(trace, *options, status=0):
    done = subprocess.run(
        [PERFBPF, "report", trace, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=e2e.HANGS_S
    )
    assert done.returncode == status, f"{done.returncode}: {done.stderr}"
    return done.stdout


@case
def counted():
    """as much as an allocator counts that is called first, by stack; what is kept; calls that hand on count once"""
    capture = os.path.join(directory(), "x.cap")
    load, perfbpf = run("--content", "--record", capture, preload=COUNT)
    profile = profile_of(perfbpf)
    process = profile["alloc"]["processes"][0]
    note(f"{process['windows']} windows on {100 * process['share']:.1f} % of its processor time, "
         f"traps {process['traps_ns'] / 1e6:.0f} ms")
    assert process["error_bytes"] <= 0.5 * process["bytes"], process
    assert_near("all", process["bytes"], load.truth["bytes"], process["error_bytes"])
    functions = by_function(profile)
    for name in ("storm", "steady"):
        got, error, _, _ = functions[name]
        assert_near(name, got, load.by_name[name], error)
    if SECONDS >= 30:
        assert functions["storm"][1] <= 0.1 * functions["storm"][0], functions["storm"]
    check_layers(capture)
    # Windows that see returns and those that see entries alone have the same stacks.
    stacks = {tuple(row[9]) for row in profile["memory"] if row[0] == "alloc" and row[9] and
              profile["frames"][row[9][0]][0] == "storm"}
    assert len(stacks) == 1, [[profile["frames"][f][0] for f in stack] for stack in stacks]
    for name in ("grow", "made"):  # few samples; operator new hands on to malloc(), and counts once
        note(f"{name}: {functions[name][0] / 1e6:.1f} MB, in truth {load.by_name[name] / 1e6:.1f}")
        assert 0.3 < functions[name][0] / load.by_name[name] < 3, functions[name]
    assert functions.get("operator new", [0])[0] < 0.02 * process["bytes"], functions
    assert abs(functions["storm"][2] * 800 / functions["storm"][0] - 1) < 0.01, functions["storm"]
    assert max(functions, key=lambda f: functions[f][0]) == "storm", functions
    # What is freed at once is not kept, what stays is.
    assert functions["storm"][3] < 0.05 * functions["storm"][0], functions["storm"]
    kept = [(row[2], row[6]) for row in profile["memory"] if row[0] == "alloc" and row[6] is not None
            and row[9] and profile["frames"][row[9][0]][0] == "keep"]  # where a window that sees free() had a sample
    assert all(bytes_ == kept_ for bytes_, kept_ in kept), kept
    table = report(perfbpf.trace_path, "--by", "alloc")
    assert "storm [allocload]" in table.splitlines()[2], table
    folded = report(perfbpf.trace_path, "--by", "alloc", "--folded").splitlines()
    assert folded and all(re.fullmatch(r"[^;]+(;[^;]+)* [0-9]+", line) for line in folded), folded
    assert folded[0].startswith("allocload;") and ";run [allocload];storm [allocload] " in folded[0], folded[0]
    assert perfbpf.trace()["metadata"]["axes"][-1].startswith("alloc="), perfbpf.trace()["metadata"]["axes"]
    # A capture holds all of it.
    again = os.path.join(perfbpf.dir, "again.json")
    done = subprocess.run([PERFBPF, "replay", capture, "-q", "--alloc", "-o", again], timeout=e2e.HANGS_S,
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    assert report(again, "--by", "alloc", "--json").split('"tables"')[1] == \
        report(perfbpf.trace_path, "--by", "alloc", "--json").split('"tables"')[1]


def preloads():
    """(allocator, its file) of those that stand in for the C library's."""
    for name, pattern in (("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.[0-9]"),
                          ("tcmalloc", "libtcmalloc_minimal.so.4")):
        found = sorted(glob.glob(f"/usr/lib/*/{pattern}") + glob.glob(f"/usr/lib64/{pattern}"))
        if found:
            yield name, found[0]


def variants():
    """name: (the program, what is preloaded, whose functions hand out memory)."""
    hands_on = {"operator new"}
    linked = {
        "cxx": {"glibc"} | hands_on,
        "static": {"glibc"},  # operator new is in the same file
        "jemalloc": {"jemalloc"},
        "tcmalloc_minimal": {"tcmalloc"},
        "musl": {"musl"},
        "musl-static": {"musl"},
    }
    found = {name: (f"{LOAD}-{name}", None, whose) for name, whose in linked.items()}
    for name, library in preloads():
        # jemalloc's and tcmalloc's operator new are the program's; libstdc++'s, which is asked for by its name, hands on.
        found[f"preloaded {name}"] = (LOAD, library, {name} | hands_on)
        found[f"preloaded {name}, C++"] = (f"{LOAD}-cxx", library, {name})
    return {name: v for name, v in found.items() if os.access(v[0], os.R_OK)}


def check_variant(name, load, profile, allocators):
    process = next(p for p in profile["alloc"]["processes"] if p["pid"] == load.pid)
    functions = by_function(profile, pid=load.pid)
    want = sum(load.by_name.values())
    assert set(process["allocators"]) == allocators, f"{name}: {process['allocators']}"
    error = process["error_bytes"] if process["error_bytes"] is not None else 0.5 * process["bytes"]
    assert_near(f"{name}, {process['windows']} windows", process["bytes"], want, max(error, 0.05 * want))
    each = want / load.by_name["keep"] * ROUND["keep"] / (12 + 1 / 64)
    # Of so many as its windows saw: on a crowded machine some hundred.
    rough = max(0.02, 1.5 / process["seen_count"] ** 0.5)
    assert abs(process["bytes"] / process["count"] / each - 1) < rough, f"{name}: {each} bytes each: {process}"
    assert not [f for f in functions if f.startswith("operator new") and functions[f][0] > 0.02 * process["bytes"]], \
        f"{name}: counted twice: {functions}"
    if process["seen_bytes"] > 100 * PERIOD:
        assert max(functions, key=lambda f: functions[f][0]) == "storm", f"{name}: {functions}"
    assert functions["storm"][3] < 0.05 * functions["storm"][0], f"{name}: freed at once, and kept: {functions}"


@case
def allocators():
    """every allocator, preloaded, linked, static: as much as the program says, once, and whose it is"""
    loads = {name: Load(preload, SECONDS / 2, program) for name, (program, preload, _) in variants().items()}
    if len(loads) < 2:
        raise Skip("no other allocator")
    perfbpf = Perfbpf(f"--alloc={PERIOD}", *[w for load in loads.values() for w in ("-p", load.pid)], calls=False)
    for load in loads.values():
        load.go()
    for load in loads.values():
        assert load.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert not perfbpf.lost(), perfbpf.lost()
    profile = profile_of(perfbpf)
    windows = {p["pid"]: p["allocators"] for p in profile["alloc"]["processes"]}
    seen = {name: v for name, v in variants().items() if windows.get(loads[name].pid)}
    # Windows take turns: in so short a run none may have met a program while it had the processor.
    assert len(seen) >= 0.5 * len(loads), f"{sorted(seen)} of {sorted(loads)}"
    for name, (_, _, whose) in seen.items():
        check_variant(name, loads[name], profile, whose)
    assert " allocations of operator new, mimalloc, by " in report(perfbpf.trace_path, "--by", "alloc") or \
        "preloaded mimalloc" not in seen


@case
def grows():
    """memory that is touched for the first time, by page faults, all the time"""
    load, perfbpf = run("--alloc=65536", seconds=SECONDS / 2)
    profile = profile_of(perfbpf)
    got = profile["alloc"]["faults"] * 4096
    note(f"{got / 1e6:.1f} MB touched, {load.by_name['keep'] / 1e6:.1f} MB kept")
    assert 0.7 * load.by_name["keep"] < got < 1.3 * load.by_name["keep"] + 4e6, got
    assert "keep [allocload]" in report(perfbpf.trace_path, "--by", "fault")
    other = Perfbpf("--alloc=4096", calls=False, command=["true"])
    assert other.end() == 0, other.err()
    done = subprocess.run([PERFBPF, "diff", perfbpf.trace_path, other.trace_path], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=e2e.HANGS_S)
    assert done.returncode == 1 and "--alloc" in done.stderr, done


if __name__ == "__main__":
    for path in (LOAD, COUNT):
        if not os.access(path, os.R_OK):
            raise SystemExit(f"Bail out! {path} is not built")
    e2e.run_cases()
