#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--cpu and --off-cpu against a program with planted costs, and what report and diff make of the traces."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import e2e
from e2e import BUILD, PERFBPF, Client, Perfbpf, Skip, case, directory, note

HOTSPOT = os.path.join(BUILD, "tests", "hotspot")
BARE = os.path.join(BUILD, "tests", "hotspot-bare")
SECONDS = 3
POINTS = 3  # of a hundred
HZ = "--cpu=999"


class Hotspot(Client):
    """truth: what it says it spent, ns by name."""

    def __init__(self, program=HOTSPOT, *options, prefix=()):
        super().__init__([*prefix, program, str(SECONDS), *options])
        self.truth = {}

    def finish(self, seconds=60):
        status = super().finish(seconds)
        words = [line.split() for line in self.lines if not line.startswith("pid")]
        self.truth = {name: int(ns) for name, ns in words}
        return status


def run(*options, program=HOTSPOT):
    hotspot = Hotspot(program)
    perfbpf = Perfbpf(*options, "-p", hotspot.pid, calls=False)
    hotspot.go()
    assert hotspot.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    return hotspot, perfbpf


def report(trace, *options, status=0):
    done = subprocess.run(
        [PERFBPF, "report", trace, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=e2e.HANGS_S
    )
    assert done.returncode == status, f"{done.returncode}: {done.stderr}"
    return done.stdout


def stacks(trace, *options):
    """[(frames outermost first, ns)], without the process."""
    lines = [line.rsplit(" ", 1) for line in report(trace, "--folded", *options).splitlines()]
    return [(names.split(";")[1:], int(ns)) for names, ns in lines]


def share_of(folded, name):
    total = sum(ns for _, ns in folded)
    return 100 * sum(ns for frames, ns in folded if any(f.startswith(name + " ") for f in frames)) / total


def assert_shares(trace, truth, points=POINTS):
    folded = stacks(trace)
    spent = {n: truth[n] for n in ("hot", "warm", "cold")}
    for name, ns in spent.items():
        want, got = 100 * ns / sum(spent.values()), share_of(folded, name)
        note(f"{name}: {got:.1f} %, by its own clock {want:.1f} %")
        assert abs(got - want) <= points, f"{name}: {got:.1f} % for {want:.1f} %"


@case
def planted():
    """a hot function has its share, and its caller is known"""
    hotspot, perfbpf = run(HZ)
    assert not perfbpf.lost(), perfbpf.lost()
    assert_shares(perfbpf.trace_path, hotspot.truth)
    callers = [f for f, _ in stacks(perfbpf.trace_path) if f[-1].startswith("hot ")]
    assert callers and all(any(x.startswith("main ") or x.startswith("work") for x in f) for f in callers), callers
    profile = perfbpf.trace()["otherData"]["profile"]
    sampled, spent = profile["cpu"]["total_ns"], sum(hotspot.truth[n] for n in ("hot", "warm", "cold"))
    note(f"sampled {sampled / 1e6:.0f} ms, spent {spent / 1e6:.0f} ms")
    assert 0.8 * spent < sampled < 1.1 * spent
    assert profile["cpu"]["broken_ns"] < 0.05 * sampled, profile["cpu"]
    first = report(perfbpf.trace_path, "--by", "function", "--top", "1").splitlines()[3]
    assert " hot [hotspot]" in first, first


@case
def without_frame_pointers():
    """without frame pointers: stacks are called broken, and their time is counted"""
    hotspot, perfbpf = run(HZ, program=BARE)
    assert_shares(perfbpf.trace_path, hotspot.truth)
    cpu = perfbpf.trace()["otherData"]["profile"]["cpu"]
    note(f"broken: {100 * cpu['broken_ns'] / cpu['total_ns']:.0f} %")
    assert cpu["broken_ns"] > 0.5 * cpu["total_ns"], cpu
    assert any(f[0] == "[broken stack]" for f, _ in stacks(perfbpf.trace_path))


@case
def waiting():
    """blocked time by reason, as the program measures it"""
    hotspot, perfbpf = run("--off-cpu")
    assert not perfbpf.lost(), perfbpf.lost()
    profile = perfbpf.trace()["otherData"]["profile"]
    threads = [thread[3] for thread in profile["threads"]]
    for reason, thread in (("futex", "for-lock"), ("socket", "for-socket")):
        got = sum(s[2] for s in profile["stacks"] if s[0] == reason and threads[s[1]] == thread)
        want = hotspot.truth[reason]
        note(f"{reason}: {got / 1e6:.0f} ms, by the program's clock {want / 1e6:.0f} ms")
        # It measures until it runs again: what it waited for a processor is told apart.
        assert 0.85 * want <= got <= 1.02 * want + 5e6, f"{reason}: {got} for {want}"
    # Its caller has a frame, the library's function has none: whoever called that is not known.
    folded = stacks(perfbpf.trace_path, "--by", "wait")
    assert any(f[0] == "[sleep]" for f, _ in folded), folded
    assert "futex" in report(perfbpf.trace_path, "--by", "wait")


@case
def asleep_at_once():
    """-n: programs that fall asleep before perfbpf has decided on them: their time is told, and that of no others"""
    folder = directory()
    name = "asleep" + os.path.basename(folder)[-8:]
    program = os.path.join(folder, name)
    shutil.copy(shutil.which("sleep"), program)
    perfbpf = Perfbpf("-n", f"^{name}$", "--off-cpu")
    for argv in ([program, "0.3"], ["sleep", "0.3"]):
        for child in [e2e.start(argv) for _ in range(5)]:
            assert child.wait(e2e.HANGS_S) == 0
    assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
    assert perfbpf.trace()["metadata"]["axes"] == ["off-cpu"]
    profile = perfbpf.trace()["otherData"]["profile"]
    assert {t[2] for t in profile["threads"]} == {name}, profile["threads"]
    slept = sorted(s[2] / 1e6 for s in profile["stacks"] if s[0] == "sleep")
    assert len(slept) == 5 and slept[0] >= 299, slept


@case
def together():
    """two perfbpf and perf record of one process at once"""
    hotspot = Hotspot()
    tracers = [Perfbpf(HZ, "--off-cpu", "-p", hotspot.pid, calls=False) for _ in range(2)]
    data = os.path.join(directory(), "perf.data")
    perf = None
    if shutil.which("perf"):
        perf = subprocess.Popen(
            ["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "-o", data, "-p", str(hotspot.pid)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        time.sleep(0.5)
    hotspot.go()
    assert hotspot.finish() == 0
    for tracer in tracers:
        assert tracer.end() == 0, tracer.err()
        assert_shares(tracer.trace_path, hotspot.truth)
    if not perf:
        note("perf is not installed")
        return
    perf.wait(e2e.HANGS_S)
    done = subprocess.run(
        ["perf", "report", "-i", data, "--stdio", "--no-children", "-s", "symbol", "-g", "none"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=e2e.HANGS_S,
    )
    # perf gives the kernel's time to the kernel, and on a busy machine a program is switched often: the rest is compared.
    shares = dict(map(reversed, re.findall(r"([0-9.]+)%\s+\[\.\] (hot|warm|cold)\b", done.stdout)))
    if len(shares) < 3:
        note("perf record saw nothing: it does not work on this kernel")
        return
    folded, whole = stacks(tracers[0].trace_path), sum(map(float, shares.values()))
    by_us = {name: share_of(folded, name) for name in shares}
    for name, share in shares.items():
        got, want = 100 * by_us[name] / sum(by_us.values()), 100 * float(share) / whole
        note(f"{name}: perfbpf {got:.1f} %, perf {want:.1f} %")
        assert abs(want - got) <= POINTS, f"{name}: perfbpf {got:.1f} %, perf {want:.1f} %"


@case
def made_code():
    """code that the program made: named by its map, in its own pid and mount namespaces"""
    prefix = ["unshare", "--pid", "--mount", "--fork", "sh", "-c",
              'exec 9<"$0" && mount -t tmpfs tmpfs /tmp && exec /proc/self/fd/9 "$@"']
    hotspot = Client([*prefix, HOTSPOT, str(SECONDS), "jit"])
    assert hotspot.pid == 1, hotspot.pid
    perfbpf = Perfbpf(HZ, "-p", hotspot.child.pid, calls=False)
    hotspot.go()
    assert hotspot.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    got = share_of(stacks(perfbpf.trace_path), "made_function")
    note(f"made_function: {got:.1f} %")
    assert got > 90


@case
def many_stacks():
    """a program in 32,768 stacks: every one that is shown is one of them, and no sample is without"""
    hotspot = Client([HOTSPOT, "1", "many"])
    perfbpf = Perfbpf("--cpu=3999", "-p", hotspot.pid, calls=False)
    hotspot.go()
    assert hotspot.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    profile = perfbpf.trace()["otherData"]["profile"]
    names = [frame[0] for frame in profile["frames"]]
    samples = shown = short = 0
    for kind, _, _, count, state, frames in profile["stacks"]:
        outermost_first = [names[f] for f in reversed(frames)]
        samples += count
        if "work_in_many_stacks" not in outermost_first:  # on its way there
            continue
        shown += 1
        path = outermost_first[outermost_first.index("work_in_many_stacks") + 1:]
        forks = [f for f in path if f in ("left", "right")]
        assert kind == "cpu" and state == "whole" and path[:len(forks)] == forks, path
        # In its first instructions a function has no frame of its own yet: its caller is passed over.
        assert 14 <= len(forks) <= 15 if "leaf" in path else len(forks) <= 15, path
        short += count if "leaf" in path and len(forks) == 14 else 0
    note(f"{shown} stacks of {samples} samples")
    assert samples == profile["cpu"]["samples"] and not profile["samples_without_stack"], profile["cpu"]
    assert shown > 0.5 * samples > 500 and short < 0.02 * samples, (shown, samples, short)


@case
def node():
    """node: code of its compiler, named by the map that it writes when it is asked to"""
    if not shutil.which("node"):
        raise Skip("no node")
    script = os.path.join(e2e.HERE, "clients", "hot.mjs")
    for option, name in (("--perf-basic-prof", "plantedHot"), ("--no-warnings", "[jit]")):
        perfbpf = Perfbpf(HZ, calls=False, command=["node", option, script], cwd=directory(), stdout=subprocess.DEVNULL)
        assert perfbpf.end() == 0, perfbpf.err()
        for pid in {thread[0] for thread in perfbpf.trace()["otherData"]["profile"]["threads"]}:
            if os.path.exists(f"/tmp/perf-{pid}.map"):
                os.unlink(f"/tmp/perf-{pid}.map")
        folded = stacks(perfbpf.trace_path)
        got = 100 * sum(ns for f, ns in folded if name in f[-1]) / sum(ns for _, ns in folded)
        note(f"{option}: {name} {got:.1f} %")
        assert got > 70, folded[:20]


@case
def replayed():
    """a capture holds the samples and their names, and can be reported, all of it or its second half"""
    capture = os.path.join(directory(), "x.cap")
    _, perfbpf = run(HZ, "--off-cpu", "--content", "--record", capture)
    again = os.path.join(perfbpf.dir, "again.json")
    done = subprocess.run([PERFBPF, "replay", capture, "-q", "--cpu", "--off-cpu", "-o", again], timeout=e2e.HANGS_S,
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    for by in ("function", "wait"):
        assert sorted(stacks(perfbpf.trace_path, "--by", by)) == sorted(stacks(again, "--by", by))
        assert stacks(capture, "--by", by) == stacks(again, "--by", by)
    options = ("--json", "--by", "function", "--top", "100000")
    half = str(json.loads(report(capture, *options))["trace"]["duration_ms"] / 2000)
    late, whole = (
        {(row["function"], row["file"]): row["self_ms"]
         for row in json.loads(report(capture, *options, *last))["tables"]["function"]["rows"]}
        for last in (("--last", half), ())
    )
    assert late and all(ms <= whole[function] for function, ms in late.items()), (late, whole)
    assert late["hot", "hotspot"] < whole["hot", "hotspot"], (late, whole)


@case
def compared():
    """diff: the same knobs are compared, others refused"""
    _, one = run("--cpu=199")
    _, two = run("--cpu=199", program=BARE)
    _, other = run("--cpu=99")

    def diff(*arguments):
        return subprocess.run([PERFBPF, "diff", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=e2e.HANGS_S)

    same = diff("--fail-on", "50", one.trace_path, one.trace_path)
    assert same.returncode == 0 and "hot [hotspot]" in same.stdout, same
    renamed = diff("--fail-on", "50%", one.trace_path, two.trace_path)  # other functions: new ones
    assert renamed.returncode == 4 and "new" in renamed.stdout, renamed
    refused = diff(one.trace_path, other.trace_path)
    assert refused.returncode == 1 and "--cpu 199" in refused.stderr and refused.stderr.count("\n") == 1, refused


@case
def no_trace():
    """report refuses what is no trace, and does not wait for a FIFO"""
    fifo = os.path.join(directory(), "fifo")
    os.mkfifo(fifo)
    for path in (fifo, PERFBPF, "/dev/zero", "/nonexistent", os.path.join(e2e.HERE, "test_cpu.py")):
        done = subprocess.run([PERFBPF, "report", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=e2e.HANGS_S)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and not done.stdout, done


if __name__ == "__main__":
    if not os.access(HOTSPOT, os.X_OK):
        raise SystemExit(f"Bail out! {HOTSPOT} is not built")
    e2e.run_cases()
