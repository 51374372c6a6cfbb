#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --by op, of services with planted costs: shares against what each request says by its own clocks."""
import collections
import json
import math
import subprocess

import e2e
from e2e import PERFBPF, Perfbpf, case, cases, check_nothing_lost, check_trace, note
from planted import NPLUS1, Lives, NodeService, Service, drive

COUNT = 20  # requests of each route
POINTS = 2  # of a hundred
HZ = 499
SURE = 4  # standard deviations: of three that are looked at, one is beyond that once in 5,000 runs
ALLOC_COUNT = 600  # requests of each route with --alloc, which looks at a program now and then
THREADED = ("hot", "nplus1", "slow", "lock", "model", "tool", "mixed")
KINDS = ("db", "model", "tool", "http")


def report(trace, *options):
    done = subprocess.run(
        [PERFBPF, "report", trace, "--json", "--top", "1000", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=e2e.HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["tables"]


def rows_of(table):
    """By the first word of the route: hot, slow, …"""
    return {r["name"].split(" @ ")[0].split("/")[1]: r for r in table["rows"] if r["kind"] == "request"}


class Truth:
    """Sums of one route, each as (least, most). Every wait is timed on both of its sides, and what the kernel saw lies between:
    of a request by the service, which reads it late, and by who asked; of a command or a model by who answered, and by the
    service. What either side waited for its turn makes the two differ. Of a child process the stamps are the kernel's."""

    def __init__(self, requests, asked, models):
        self.count = len(requests)
        self.sums = collections.Counter()
        for t in requests:
            self.sums.update({k: v for k, v in t.items() if isinstance(v, int)})
            self.sums["asked_ns"] += asked[t["path"]]
            if t["model"]:
                m = models[f"/planted-{t['path'].split('/')[-1]}/v1/chat/completions"]
                self.sums["model_served_ns"] += m["last_token_ns"] - m["first_byte_ns"]
        self.wall = (self.sums["end_ns"] - self.sums["begin_ns"], self.sums["asked_ns"])

    def time(self, key):
        if key == "downstream":
            less = sum(self.time(kind)[1] - self.time(kind)[0] for kind in ("db", "model"))
            return self.sums["downstream_ns"] - less, self.sums["downstream_ns"]
        most = self.sums[key + "_ns"]
        return self.sums[key + "_served_ns"] if key in ("db", "model") else most, most

    def share(self, key):
        """Of a hundred."""
        least, most = self.time(key)
        return 100 * least / self.wall[1], 100 * min(1.0, most / self.wall[0])

    def off(self, key, have, rough=0.0):
        """How far a share is from what can be true, in parts of what is allowed."""
        least, most = self.share(key)
        return max(0.0, least - have, have - most) / (POINTS + rough)


def truths(service, lives, asked):
    by_route = collections.defaultdict(list)
    for t in lives.correct(service.truth()):
        if t["path"] in asked:  # and not by the service itself
            by_route[t["route"].split("/")[1]].append(t)
    models = service.model.truth()
    return {route: Truth(requests, asked, models) for route, requests in by_route.items()}


def check_shares(rows, truth, routes):
    """Calls by kind and count, and what is left for the process itself."""
    worst = []
    for route in routes:
        row, want = rows[route], truth[route]
        assert row["calls"] == want.count and row["refused"] == 0 and row["partial"] == 0, (route, row)
        for kind in KINDS:
            have = row["downstream"].get(kind, {"count": 0, "share": 0})
            assert have["count"] == want.sums[kind], (route, kind, have, want.sums[kind])
            worst.append((want.off(kind, 100 * have["share"]), route, kind, have["share"], want.share(kind)))
        share = 100 - 100 * row["in_proc_share"]
        worst.append((want.off("downstream", share), route, "all of it", share, want.share("downstream")))
    wide = max((most - least, route, kind) for _, route, kind, _, (least, most) in worst)
    note(f"worst against truth: {max(worst)[1:]}, {100 * max(worst)[0]:.0f} % of what is allowed; least sure: {wide}")
    assert max(worst)[0] <= 1, sorted(worst)[-3:]


def said(share):
    return f"{share[0]:.1f} to {share[1]:.1f} %"


def check_split(rows, truth):
    """In the process: on a processor, waiting for one, or blocked. Samples are as rough as their number."""
    hot, lock = rows["hot"], rows["lock"]
    rough = SURE * 100 * math.sqrt(hot["samples"] + 1) * 1000 / HZ / hot["told_ms"]
    have, want = 100 * hot["on_cpu_ms"] / hot["told_ms"], truth["hot"].share("cpu")
    note(f"/hot: on a processor {have:.1f} %, by its own clock {said(want)} ({hot['samples']} samples)")
    assert truth["hot"].off("cpu", have, rough) <= 1, (have, want, rough, hot)
    assert hot["blocked_ms"] < 0.01 * POINTS * hot["told_ms"], hot
    have = 100 * (lock["blocked_ms"] + lock["run_queue_ms"]) / lock["told_ms"]
    note(f"/lock: blocked or in the run queue {have:.1f} %, by its own clock {said(truth['lock'].share('lock'))}")
    assert truth["lock"].off("lock", have) <= 1, (have, truth["lock"].share("lock"), lock)
    for row in rows.values():
        if row["told_ms"]:
            parts = row["on_cpu_ms"] + row["blocked_ms"] + row["run_queue_ms"] + row["not_seen_ms"]
            assert abs(parts - row["in_proc_ms"]) < 0.1, row
            parts = sum(d["union_ms"] for d in row["downstream"].values()) + row["in_proc_ms"] - row["overlap_ms"]
            assert abs(parts - row["told_ms"]) < 0.1, row


def run(service, names, concurrency, count=COUNT):
    perfbpf = Perfbpf("--http", "--db", f"--cpu={HZ}", "--off-cpu", "-p", service.pid)
    asked = drive(service, names, count, concurrency)
    service.end()
    assert perfbpf.end() == 0, perfbpf.err()
    return perfbpf, asked


@case
def threaded():
    """a threaded service, 16 at a time: told by thread"""
    lives, service = Lives(), Service()
    perfbpf, asked = run(service, THREADED, 16)
    check_nothing_lost(perfbpf)
    check_trace(perfbpf)
    table, truth = report(perfbpf.trace_path, "--by", "op")["op"], truths(service, lives, asked)
    # A model that a request asks is a call of that, and no turn of an agent.
    assert all(r["kind"] == "request" for r in table["rows"]), table["rows"]
    rows, charged = rows_of(table), table["charged"]["request"]
    check_shares(rows, truth, THREADED)
    check_split(rows, truth)
    want = sum(t.sums["db"] + t.sums["model"] + t.sums["tool"] for t in truth.values())
    assert charged["by_thread"] == want and charged["by_time"] == 0, (charged, want)
    for route in ("nplus1", "mixed"):
        patterns = rows[route]["n_plus_1"]
        assert [(p["kind"], p["operations"], p["most"], p["count"]) for p in patterns] == [
            ("db", COUNT, NPLUS1, COUNT * NPLUS1)
        ], patterns
        assert patterns[0]["shape"] == "GET ? @ redis", patterns
    assert not any(rows[route]["n_plus_1"] for route in THREADED if route not in ("nplus1", "mixed"))


@case
def functions():
    """functions of one operation, by --op"""
    service = Service(model=False)
    perfbpf, _ = run(service, ("hot", "tool", "health"), 2, count=60)
    tables = report(perfbpf.trace_path, "--op", "^/hot/")
    assert [r["name"] for r in tables["op"]["rows"]] == ["GET /hot/:id @ planted"] and "model" not in tables, tables
    table = tables["op-function"]
    assert table["operation"] == "GET /hot/:id @ planted", table["operation"]
    # Of the program: a sample may find it in the kernel, where others want the processor more often than not.
    samples = {r["function"]: r["self_samples"] for r in table["rows"] if r["file"] != "[kernel]"}
    mine = sum(samples.get("planted_" + name, 0) for name in ("hot", "warm", "cold"))
    assert mine >= 0.9 * sum(samples.values()) and mine > 50, samples
    assert table["rows"][0]["function"].startswith("planted_"), table["rows"][:3]
    rough = SURE * 100 * math.sqrt(0.24 / mine)
    truth = collections.Counter()
    for t in service.truth():
        truth.update({name: t[name + "_ns"] for name in ("hot", "warm", "cold")})
    for name, ns in truth.items():
        have, want = 100 * samples["planted_" + name] / mine, 100 * ns / truth.total()
        note(f"planted_{name}: {have:.1f} % of {mine} samples, planted {want:.1f} %")
        assert abs(have - want) <= POINTS + rough, (name, have, mine)
    one = report(perfbpf.trace_path, "--by", "op", "--op", "^/hot/7$")["op"]["rows"]
    assert len(one) == 1 and one[0]["calls"] == 1, one


def innermost(row):
    return row["frames"][0]["function"] if row["frames"] else None


def seconds_of_half(trace):
    """How long before the trace's end half of the samples of allocations were over."""
    times = []
    for row in trace["otherData"]["profile"]["allocations"]:
        at = 0
        for us in row[::5]:
            at += us
            times.append(at)
    return trace["metadata"]["duration_ms"] / 1e3 - times[len(times) // 2] / 1e6


@case
def allocations():
    """what the most expensive operation allocates, and the last seconds of it: the storm first"""
    service = Service(model=False)
    perfbpf = Perfbpf("--http", "--alloc", "-p", service.pid)
    drive(service, ("alloc", "hot", "health"), ALLOC_COUNT, 2)
    service.end()
    assert perfbpf.end() == 0, perfbpf.err()
    check_trace(perfbpf)
    tables = report(perfbpf.trace_path, "--op", "^/alloc/")
    table, all_of_it = tables["op-alloc"], report(perfbpf.trace_path, "--by", "alloc")["alloc"]
    storm = sum(t["alloc_bytes"] for t in service.truth())
    note(f"{table['operation_samples']} samples in its time; {table['rows'][:1] and table['rows'][0]['bytes'] / 1e6} MB, "
         f"--by alloc {all_of_it['rows'][0]['bytes'] / 1e6} MB, in truth {storm / 1e6} MB")
    assert table["operation"] == "GET /alloc/:id @ planted" and not table["too_few"], table
    assert innermost(table["rows"][0]) == "planted_storm" and table["rows"][0]["share"] > 0.9, table["rows"][:3]
    # All of the storm is in the operation's time.
    whole = sum(r["bytes"] for r in all_of_it["rows"] if innermost(r) == "planted_storm")
    mine = sum(r["bytes"] for r in table["rows"] if innermost(r) == "planted_storm")
    assert 0.95 * whole <= mine <= 1.01 * whole, (mine, whole)
    last = f"{seconds_of_half(perfbpf.trace()):.6f}"
    late = report(perfbpf.trace_path, "--by", "alloc", "--last", last)["alloc"]["rows"]
    assert innermost(late[0]) == "planted_storm" and late[0]["bytes"] > 0, late[:3]
    assert late[0]["error_bytes"] is None and late[0]["samples"] < all_of_it["rows"][0]["samples"], late[0]
    # Of one request there are few, but of one that a window fell on.
    ones = [report(perfbpf.trace_path, "--by", "op-alloc", "--op", f"^/alloc/{n}$")["op-alloc"] for n in (7, 8, 9)]
    assert all(t["too_few"] == (not t["rows"]) == (t["operation_samples"] < 20) for t in ones), ones
    assert any(t["too_few"] for t in ones), ones


@case
def connecting():
    """set-ups of connections are charged to the thread that connected"""
    service = Service(model=False)
    perfbpf, _ = run(service, ("relay",), 4, count=5)
    table = report(perfbpf.trace_path, "--by", "op")["op"]
    down, charged = rows_of(table)["relay"]["downstream"], table["charged"]["request"]
    assert down["connect"]["count"] == down["http"]["count"] == 5, down
    assert charged["by_thread"] == 10 and charged["by_time"] == charged["unclear"] == 0, charged
    slices = [e for e in perfbpf.trace()["traceEvents"] if e["ph"] == "X" and e["name"] == "connection"]
    relaying = {t["tid"] for t in service.truth() if t["http"]}
    assert len([e for e in slices if e["args"]["os_tid"] in relaying]) >= 5, slices


def overlapping(perfbpf):
    """How many requests were served beside another one, of each route."""
    served = [e for e in perfbpf.trace()["traceEvents"] if e["ph"] == "X" and e.get("cat") == "http"]
    served = [(e["ts"], e["ts"] + e["dur"], e["name"]) for e in served if e["args"]["side"] == "server"]
    have = collections.Counter()
    for i, (begin, end, name) in enumerate(served):
        have[name.split("/")[1]] += any(b < end and begin < e for k, (b, e, _) in enumerate(served) if k != i)
    return have


@cases([("one at a time", 1), ("16 at a time", 16)])
def node(concurrency):
    """a service in node: what overlaps is refused"""
    lives, service = Lives(), NodeService()
    names = ("hot", "nplus1", "slow", "model", "tool", "relay", "mixed")
    perfbpf, asked = run(service, names, concurrency, count=8)
    table = report(perfbpf.trace_path, "--by", "op")["op"]
    rows, beside = rows_of(table), overlapping(perfbpf)
    assert {route: r["refused"] for route, r in rows.items() if r["refused"]} == +beside, (rows, beside)
    if concurrency == 1:
        # A relay asks the process itself.
        assert +beside == {"relay": 8, "health": 8}, beside
        check_shares(rows, truths(service, lives, asked), [n for n in names if n != "relay"])
        return
    refused = sum(beside.values())
    note(f"{refused} of {sum(r['calls'] for r in rows.values())} requests refused")
    assert refused >= 6 * len(names), beside
    for row in rows.values():
        if row["refused"] == row["calls"]:
            assert row["downstream"] is None and row["in_proc_share"] is None and row["p50_ms"] > 0, row
    # Which of them a call is of nobody can tell, and nobody says so.
    charged = table["charged"]["request"]
    assert charged["by_thread"] == 0 and charged["unclear"] + charged["refused"] > 100, charged


if __name__ == "__main__":
    e2e.run_cases()
