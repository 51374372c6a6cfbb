#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--alloc against programs that say, and against an allocator that counts, what is allocated."""
import glob
import os
import re
import subprocess

import e2e
from e2e import BUILD, PERFBPF, Client, Perfbpf, Skip, case, directory, note

LOAD = os.path.join(BUILD, "tests", "allocload")
COUNT = os.path.join(BUILD, "tests", "countalloc.so")
SECONDS = float(os.environ.get("PERFBPF_ALLOC_SECONDS", "3"))  # of processor time
SPIN = os.environ.get("PERFBPF_ALLOC_SPIN", "2500")
# What is stated holds 95 times of 100: a test that fails one time in twenty is none.
SURE = 2
# Bytes a round, as allocload says it.
ROUND = {"storm": 6400, "steady": 3200, "grow": 800, "made": 800, "keep": 100}


class Load(Client):
    """truth: bytes, count, freed by the allocator that counts; bytes by function by the program's own account."""

    def __init__(self, preload=None, seconds=SECONDS):
        self.truth_path = os.path.join(directory(), "truth")
        env = {"COUNTALLOC": self.truth_path, **({"LD_PRELOAD": preload} if preload else {})}
        super().__init__([LOAD, str(seconds), SPIN], env=env)
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


def by_function(profile, kind="alloc"):
    """{function: [bytes, error, count, kept bytes]} of stacks that it is the innermost function of."""
    sums = {}
    for row in profile["memory"]:
        if row[0] != kind or not row[9]:
            continue
        sums.setdefault(profile["frames"][row[9][0]][0], [0, 0, 0, 0])
        for i, at in enumerate((2, 3, 4, 6)):
            sums[profile["frames"][row[9][0]][0]][i] += row[at] or 0
    return sums


def assert_near(what, got, want, error):
    note(f"{what}: {got / 1e6:.1f} MB ± {error / 1e6:.1f}, in truth {want / 1e6:.1f}")
    assert abs(got - want) <= SURE * error + 0.01 * want, f"{what}: {got} ± {error}, in truth {want}"


def report(trace, *options, status=0):
    done = subprocess.run(
        [PERFBPF, "report", trace, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
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
    done = subprocess.run([PERFBPF, "replay", capture, "-q", "--alloc", "-o", again], timeout=60,
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    assert report(again, "--by", "alloc", "--json").split('"tables"')[1] == \
        report(perfbpf.trace_path, "--by", "alloc", "--json").split('"tables"')[1]


@case
def jemalloc():
    """an allocator that stands in for the C library's"""
    found = glob.glob("/usr/lib/*/libjemalloc.so.2") + glob.glob("/usr/lib64/libjemalloc.so.2")
    if not found:
        raise Skip("no jemalloc")
    load, perfbpf = run(preload=found[0])
    functions = by_function(profile_of(perfbpf))
    assert_near("storm", functions["storm"][0], load.by_name["storm"], functions["storm"][1] or functions["storm"][0])
    # Its own operator new, which hands on to nobody: seen, and once. There are few samples of it.
    note(f"made: {functions['made'][0] / 1e6:.1f} MB, in truth {load.by_name['made'] / 1e6:.1f}")
    assert 0.3 < functions["made"][0] / load.by_name["made"] < 3, functions["made"]


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
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "--alloc" in done.stderr, done


if __name__ == "__main__":
    for path in (LOAD, COUNT):
        if not os.access(path, os.R_OK):
            raise SystemExit(f"Bail out! {path} is not built")
    e2e.run_cases()
