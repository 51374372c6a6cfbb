#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Agents that play a script: sessions, turns, tools, sub-agents and the verdict against what really happened."""
import json
import os
import subprocess

import e2e
from e2e import HERE, Client, Perfbpf, Server, case, cases, check_nothing_lost, check_trace

# A part of the verdict may be off by so much of itself, or by so many milliseconds.
PART_SHARE = 0.02
PART_MS = 5.0
STALL_NS = 1_000_000_000


# --- one run ---------------------------------------------------------------------------------------------------------------


class Run:
    """A script, played under perfbpf; what it and the server say that happened, and what perfbpf says."""

    def __init__(self, sessions, *options, attach=False):
        self.server = Server()
        directory = e2e.directory()
        self.script_truth = os.path.join(directory, "agent.jsonl")
        config = e2e.write_config(port=self.server.port, ca=self.server.cert, truth=self.script_truth, sessions=sessions)
        # The program's name is the client's: of Codex perfbpf knows what its children's environment says.
        agent = os.path.join(directory, sessions[0]["client"])
        os.symlink(os.path.join(HERE, "clients", "agent.py"), agent)
        if attach:
            client = Client([agent, config])
            self.perfbpf = Perfbpf("-p", client.pid, *options)
            client.go()
            assert client.finish() == 0
        else:
            self.perfbpf = Perfbpf(*options, command=[agent, config])
        status = self.perfbpf.end(seconds=60)
        assert status == 0, f"{status}: {self.perfbpf.err()}"
        self.trace = check_trace(self.perfbpf)
        check_nothing_lost(self.perfbpf)
        self.lines = [json.loads(line) for line in e2e.read_text(self.script_truth).splitlines()]
        self.lines.sort(key=lambda line: line.get("begin_ns") or line["end_ns"])
        self.start_ns = int(self.trace["metadata"]["start_boot_ns"])

    def said(self, what, **keys):
        return [t for t in self.lines if t["what"] == what and all(t.get(k) == v for k, v in keys.items())]

    def spans(self, cat, **args):
        found = [e for e in self.trace["traceEvents"] if e["ph"] == "X" and e.get("cat") == cat]
        found = [e for e in found if all(e["args"].get(k) == v for k, v in args.items())]
        return sorted(found, key=lambda e: e["ts"])

    def served(self):
        """The server's truth by the name of the call; of a call that was repeated the last attempt."""
        lines = [json.loads(line) for line in e2e.read_text(self.server.truth_path).splitlines()]
        out = {}
        for line in lines:
            out.setdefault(line["id"], []).append(line)
        return out


# --- where wall time went, by the truth ----------------------------------------------------------------------------------

# The lowest rank that covers an instant has it: a main lane's calls, those of others, tools, waits, gaps, the user.
LATE, STALL, CONNECT, PHASE, LANE, TOOL, RETRY_WAIT, BUSY, GAP, USER = 0, 1, 2, 3, 10, 20, 21, 22, 23, 24


class Ledger:
    def __init__(self):
        self.intervals = []

    def add(self, rank, part, begin_ns, end_ns):
        if begin_ns is not None and end_ns is not None and end_ns > begin_ns:
            self.intervals.append((begin_ns, end_ns, rank, part))

    def add_call(self, line, served, lane):
        """What the agent and the server did, and when."""
        tokens = served["tokens_ns"]
        first_ns = tokens[0] if tokens else line["end_ns"]
        self.add(lane + CONNECT, "connect", line.get("connect_ns"), line.get("connected_ns"))
        self.add(lane + CONNECT, "connect", line.get("handshake_ns"), line.get("tls_ns"))
        self.add(lane + PHASE, "first_token", line["begin_ns"], first_ns)
        self.add(lane + PHASE, "generation", first_ns, line["end_ns"])
        for before, after in zip(tokens, tokens[1:]):
            if after - before > STALL_NS:
                self.add(lane + STALL, "stall", before, after)
        if "late_ns" in line:
            waiting = [t for t in tokens + [served["end_ns"]] if line["late_ns"][0] <= t <= line["late_ns"][1]]
            if waiting:
                self.add(lane + LATE, "client", waiting[0], line["late_ns"][1])

    def charge(self, begin_ns, end_ns):
        edges = sorted({begin_ns, end_ns, *(t for i in self.intervals for t in i[:2] if begin_ns < t < end_ns)})
        parts = {}
        for a, b in zip(edges, edges[1:]):
            over = [(rank, part) for begin, end, rank, part in self.intervals if begin <= a and end >= b]
            part = min(over)[1] if over else "unknown"
            parts[part] = parts.get(part, 0) + (b - a) / 1e6
        return parts


def begin_of(line):
    return line.get("connect_ns", line["begin_ns"])


class Truth:
    def __init__(self, run):
        self.run = run
        self.sessions = {s["id"]: s for s in run.said("session")}
        served = run.served()
        for line in run.said("call"):
            line["served"] = served[line["name"]].pop(0)
        self.calls = run.said("call")

    def steps(self, session, turn=None):
        found = [c for c in self.calls if c["session"] == session and not c["helper"]]
        return [c for c in found if turn is None or c["turn"] == turn]

    def turns(self, session):
        return sorted({c["turn"] for c in self.steps(session)})

    def subs(self, session):
        return [s["id"] for s in self.sessions.values() if s["parent"] == session]

    def below(self, session):
        """Its sub-agents, and theirs."""
        return [s for sub in self.subs(session) for s in (sub, *self.below(sub))]

    def tools(self, session, turn=None):
        return [t for t in self.run.said("tool", session=session) if turn is None or t["turn"] == turn]

    def add_lane(self, ledger, session, turn, lane):
        for line in self.steps(session, turn):
            ledger.add_call(line, line["served"], lane)
        for tool in self.tools(session, turn):
            if "child" in tool:
                ledger.add(TOOL, "tool", tool["begin_ns"], tool["end_ns"])
            if tool["kind"] == "compute":
                ledger.add(BUSY, "client", tool["begin_ns"], tool["end_ns"])
        for wait in self.run.said("retry_wait", session=session):
            if turn is None or wait["turn"] == turn:
                ledger.add(RETRY_WAIT, "retry_wait", wait["begin_ns"], wait["end_ns"])
        # Between the answer that asked for tools and the next request; without one the whole session waited.
        steps = self.steps(session, turn)
        for asked, following in zip(steps, steps[1:]):
            if asked["turn"] == following["turn"] and asked["status"] == 200:
                ledger.add(GAP, "agent_gap", asked["end_ns"], begin_of(following))

    def turn(self, session, turn):
        """(begin, end, parts)"""
        ledger = Ledger()
        self.add_lane(ledger, session, turn, 0)
        for sub in self.below(session):
            self.add_lane(ledger, sub, None, LANE)
        steps = self.steps(session, turn)
        begin_ns, end_ns = begin_of(steps[0]), steps[-1]["end_ns"]
        return begin_ns, end_ns, ledger.charge(begin_ns, end_ns)

    def whole(self, idle="user"):
        """The parts of the run. idle: what a pause between turns is."""
        ledger = Ledger()
        for session in self.sessions.values():
            self.add_lane(ledger, session["id"], None, LANE if session["parent"] else 0)
            ends = [(self.steps(session["id"], t)[-1]["end_ns"], begin_of(self.steps(session["id"], t + 1)[0]))
                    for t in self.turns(session["id"]) if t + 1 in self.turns(session["id"])]
            for begin_ns, end_ns in ends if not session["parent"] else ():
                ledger.add(USER, idle, begin_ns, end_ns)
        for line in self.calls:
            if line["helper"]:
                ledger.add_call(line, line["served"], LANE)
        return ledger.charge(min(begin_of(c) for c in self.calls), self.run.said("end")[-1]["end_ns"])


# --- comparison ------------------------------------------------------------------------------------------------------------


def differences(name, found, true):
    out = []
    for part in sorted(set(found) | set(true)):
        is_ms, was_ms = found.get(part, 0), true.get(part, 0)
        if abs(is_ms - was_ms) > max(PART_MS, PART_SHARE * was_ms):
            out.append(f"{name}: {part} is {is_ms:.1f} ms, was {was_ms:.1f} ms")
    return out


def check_sum(args):
    total = sum(args["parts_ms"].values())
    assert abs(total - args["wall_ms"]) < 0.001 * len(args["parts_ms"]), f"the parts are {total} ms of {args}"


def near(what, found_us, true_ns, start_ns):
    found_ms, true_ms = found_us / 1e3, (true_ns - start_ns) / 1e6
    return [] if abs(found_ms - true_ms) <= PART_MS else [f"{what}: at {found_ms:.1f} ms, was at {true_ms:.1f} ms"]


def check_turns(run, truth, session, spans):
    """Returns what is off in time; counts are asserted."""
    turns = truth.turns(session)
    assert len(spans) == len(turns), f"{len(spans)} turns, not {len(turns)}: {[s['args'] for s in spans]}"
    off = []
    for number, span in zip(turns, spans):
        begin_ns, end_ns, parts = truth.turn(session, number)
        name = f"turn {number} of {session[:8]}"
        args = span["args"]
        assert args["steps"] == len(truth.steps(session, number)), (name, args)
        assert args["tools"] == len(truth.tools(session, number)), (name, args)
        finished = truth.steps(session, number)[-1]["status"] == 200
        assert "partial" not in args and args.get("unfinished") == (None if finished else True), (name, args)
        check_sum(args)
        off += near(f"{name} begins", span["ts"], begin_ns, run.start_ns)
        off += near(f"{name} ends", span["ts"] + span["dur"], end_ns, run.start_ns)
        off += differences(name, args["parts_ms"], parts)
    return off


def check_tool(run, truth, tool, span):
    args = span["args"]
    name = f"tool {tool['name']} {tool['kind']} of {tool['call']}"
    assert args["tool"] == tool["name"], (name, args)
    assert args.get("tool_call_id") == tool["id"], (name, args)
    codex = truth.sessions[tool["session"]]["client"] == "codex"
    if args.get("ambiguous"):  # others ran at the same time, and nothing names them
        alike = [t for t in run.said("tool") if "child" in t and t["begin_ns"] < tool["end_ns"] and t["end_ns"] > tool["begin_ns"]]
        assert not codex and len(alike) > 1 and args["joined"] == "upper bound" and "child_pid" not in args, (name, args)
        return []
    assert args["joined"] == ("upper bound" if "child" not in tool else "id" if codex else "time"), (name, args)
    assert args["result_bytes"] > 0 and "result_call_id" in args, (name, args)
    if "child" not in tool:
        return []
    assert args["child_pid"] == tool["child"], (name, args)
    assert args.get("exit_code") == tool["code"], (name, args)
    assert args.get("running") == (True if tool["kind"] == "serve" else None), (name, args)
    off = near(f"{name} begins", span["ts"], tool["begin_ns"], run.start_ns)
    off += near(f"{name} ends", span["ts"] + span["dur"], tool["end_ns"], run.start_ns)
    if tool["kind"] == "burn":
        off += differences(name, {"cpu": args.get("cpu_ms", 0)}, {"cpu": tool["cpu_ms"]})
    return off


def check_tools(run, truth):
    tools, spans = run.said("tool"), run.spans("tool")
    assert len(spans) == len(tools), f"{len(spans)} tools, not {len(tools)}: {[s['args'] for s in spans]}"
    off = []
    for tool in tools:
        asked = [s for s in spans if s["args"].get("tool_call_id") == tool["id"] and s["args"]["tool"] == tool["name"]]
        # without an id in the order of the calls
        same = [t for t in tools if t["id"] == tool["id"] and t["name"] == tool["name"]]
        assert len(asked) == len(same), (tool, [s["args"] for s in spans])
        span = asked[same.index(tool)]
        off += check_tool(run, truth, tool, span)
    return off


def check_verdict(run, truth, idle):
    verdict = run.trace["metadata"]["verdict"]
    check_sum(verdict)
    assert verdict["steps"] == len([c for c in truth.calls if not c["helper"]]), verdict
    assert verdict["tools"] == len(run.said("tool")), verdict
    return differences("the run", verdict["parts_ms"], truth.whole(idle))


def check_classes(run, truth):
    records = {}
    for call in run.perfbpf.calls():
        records.setdefault(call["class"], []).append(call)
    wanted = {}
    for line in truth.calls:
        sub = truth.sessions[line["session"]]["parent"] is not None
        kind = "prewarm" if line["helper"] == "prewarm" else "aux" if line["helper"] else "subagent" if sub else "main"
        wanted[kind] = wanted.get(kind, 0) + 1
    return {k: len(v) for k, v in records.items()}, wanted


def turns_of_lane(run, session):
    """Turns of the lane whose calls name the session as their own; all, where the client says none."""
    told = [c for c in run.perfbpf.calls() if session == (c["agent_id"] or c["session_id"])]
    lanes = {c["agent_index"] for c in told}
    return [s for s in run.spans("turn") if not lanes or s["args"]["agent_index"] in lanes]


def turn_spans(run, truth, session):
    """By the time at which they begin: spans do not say whose they are where the client does not."""
    begins = [truth.turn(session, t)[0] for t in truth.turns(session)]
    out = []
    for begin_ns in begins:
        nearest = min(turns_of_lane(run, session), key=lambda s: abs(s["ts"] - (begin_ns - run.start_ns) / 1e3), default=None)
        if nearest:
            out.append(nearest)
    return out


def check_run(run, idle="user"):
    truth = Truth(run)
    off = []
    total = sum(len(truth.turns(s)) for s in truth.sessions)
    assert len(run.spans("turn")) == total, f"{len(run.spans('turn'))} turns, not {total}: {[s['args'] for s in run.spans('turn')]}"
    for session in truth.sessions:
        off += check_turns(run, truth, session, turn_spans(run, truth, session))
    off += check_tools(run, truth)
    off += check_verdict(run, truth, idle)
    return truth, off


def play(sessions, check, idle="user", attempts=3):
    """Counts and names must be right at once; times on an idle machine, or in one of several attempts."""
    for _ in range(attempts):
        run = Run(sessions)
        truth, off = check_run(run, idle)
        check(run, truth)
        if not off:
            return
        e2e.note(*off[:4])
    assert e2e.loaded() and all(is_small(line) for line in off), "\n".join(off)


def is_small(line):
    """On a loaded machine, where the agent itself reads late: off by less than so many milliseconds."""
    numbers = [float(word) for word in line.replace(" ms", "").replace(",", "").split() if word.replace(".", "", 1).isdigit()]
    return abs(numbers[-1] - numbers[-2]) < 100 * PART_MS


# --- the cases -----------------------------------------------------------------------------------------------------------

CLIENTS = [
    ("Claude Code", "claude"),
    ("Codex over a WebSocket", "codex"),
    ("Gemini CLI", "gemini"),
    ("Copilot CLI", "copilot"),
    ("opencode", "opencode"),
    ("an SDK without ids", "sdk"),
]
SESSIONS = ("11111111-2222-4333-8444-555555555501", "11111111-2222-4333-8444-555555555502")
SPEED = "tokens=6&gap_ms=15"


def tool(name, kind, ms, **more):
    return {"name": name, "kind": kind, "ms": ms, **more}


def call(name, delay_ms=100, *tools, knobs=SPEED, **more):
    return {"do": "call", "name": name, "knobs": f"{knobs}&delay_ms={delay_ms}", "tools": list(tools), **more}


HUMAN = {"do": "human"}


def idle_of(client):
    # A pause of a script is nobody's: Codex says that none but a script drives it.
    return "unknown" if client == "codex" else "user"


def two_turns(prefix=""):
    return [
        HUMAN,
        {"do": "helper", "name": f"{prefix}title", "knobs": "tokens=2&delay_ms=30"},
        call(f"{prefix}a", 200, tool("Bash", "sleep", 300, code=3), tool("Read", "inner", 120)),
        call(f"{prefix}b", 80, tool("Bash", "burn", 200)),
        call(f"{prefix}c", 80),
        {"do": "pause", "ms": 250},
        HUMAN,
        call(f"{prefix}d", 150),
    ]


def check_two_turns(client):
    has_session = client in ("claude", "codex", "opencode")

    def check(run, truth):
        found, wanted = check_classes(run, truth)
        assert found == wanted, (found, wanted)
        assert run.trace["metadata"]["agent_count"] == 1, run.trace["metadata"]["agent_count"]
        for record in run.perfbpf.calls():
            assert record["session_id"] == (SESSIONS[0] if has_session else None), record
        for span in run.spans("turn"):
            assert span["args"].get("session_id") == (SESSIONS[0] if has_session else None), span
            assert span["args"]["trigger"] == "human", span
            assert ("turn_id" in span["args"]) == (client == "codex"), span

    return check


@cases(CLIENTS)
def session(client):
    """two turns with tools"""
    steps = two_turns()
    if client == "codex":  # warms up at its start, and asks nobody for a title
        steps = [{"do": "prewarm", "name": "warm"}, steps[0], *steps[2:]]
    play([{"client": client, "id": SESSIONS[0], "steps": steps}], check_two_turns(client), idle_of(client))


def arrows(run):
    """[(slice that an arrow leaves, slice that it enters)]"""
    ends = {}
    slices = [e for e in run.trace["traceEvents"] if e["ph"] == "X"]
    for e in run.trace["traceEvents"]:
        if e["ph"] in "sf":
            over = [x for x in slices if (x["pid"], x["tid"]) == (e["pid"], e["tid"]) and x["ts"] <= e["ts"] <= x["ts"] + x["dur"]]
            ends.setdefault((e["cat"], e["id"]), {})[e["ph"]] = max(over, key=lambda x: x["dur"])
    return [(both["s"], both["f"]) for both in ends.values()]


def lane_names(run):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in run.trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}


def first_call_of(truth, run, sub):
    """The slice of a sub-agent's first call: by its client's id, where it says one, else by when it began."""
    (step,) = truth.steps(sub)[:1]
    named = [s for s in run.spans("llm") if sub in (s["args"].get("agent_id"), s["args"].get("session_id"))]
    return min(named or run.spans("llm"), key=lambda s: abs(s["ts"] - (begin_of(step) - run.start_ns) / 1e3))


def check_subs(joined):
    """Every sub-agent has its lanes, its arrow from the tool that asked for it, and is counted."""

    def check(run, truth):
        subs = [s for s in truth.sessions.values() if s["parent"]]
        assert run.trace["metadata"]["agent_count"] == len(truth.sessions), run.trace["metadata"]["agent_count"]
        found, wanted = check_classes(run, truth)
        if joined == "id":
            assert found == wanted, (found, wanted)
        names, drawn = lane_names(run), arrows(run)
        asked = {t["spawned"]: t for t in run.said("tool") if t.get("spawned")}
        for sub in subs:
            first = first_call_of(truth, run, sub["id"])
            sources = [s for s, f in drawn if f is first]
            # Which tool asked for it only the order tells; a machine that is busy may start the second one first.
            alike = [s["id"] for s in subs if s["parent"] == sub["parent"]]
            by_tool = sorted(alike, key=lambda s: asked[s]["id"] or asked[s]["begin_ns"])
            first_of = {s: truth.steps(s)[0] for s in alike}
            in_order = all(by_tool == sorted(alike, key=lambda s, at=at: at(first_of[s])) for at in (begin_of, lambda c: c["begin_ns"]))
            may_be = [asked[s]["id"] for s in ([sub["id"]] if in_order else alike)]
            assert [s["args"].get("tool_call_id") in may_be for s in sources] == [True], (sub, sources)
            index = sources[0]["args"]["spawned_agent_index"]
            assert names[first["pid"], first["tid"]].startswith(f"agent {index}"), names
        return truth

    return check


def sub_steps(prefix):
    number = int(prefix[1:])  # who begins first is done first
    pause = {"do": "pause", "ms": 40 * number}
    return [pause, HUMAN, call(f"{prefix}1", 100 + 80 * number, tool("Bash", "sleep", 150)), call(f"{prefix}2", 90)]


def with_sub_agents(*kinds):
    """A turn with sub-agents of these kinds at the same time, beside a tool that sleeps."""
    tools = [tool("Task", kind, 0, steps=sub_steps(f"s{i}"), type=f"helper {i}") for i, kind in enumerate(kinds)]
    return [HUMAN, call("a", 100, *tools, parallel=True), call("b", 120)]


@cases([c for c in CLIENTS if c[1] in ("claude", "codex", "copilot", "opencode")])
def stated_sub_agent(client):
    """a sub-agent that the client names"""
    play([{"client": client, "id": SESSIONS[0], "steps": with_sub_agents("agent")}], check_subs("id"), idle_of(client))


@cases([c for c in CLIENTS if c[1] in ("gemini", "sdk")])
def guessed_sub_agents(client):
    """two sub-agents at once of which only the time tells"""
    steps = with_sub_agents("agent", "agent")
    play([{"client": client, "id": SESSIONS[0], "steps": steps}], check_subs("time"), idle_of(client))


@case
def sub_agent_that_goes_on():
    """a sub-agent whose tool returns at once, and whose end is told in a turn of its own"""
    steps = [
        HUMAN,
        call("a", 100, tool("Task", "agent", 50, **{"async": True}, steps=sub_steps("s1"), type="Explore")),
        call("b", 80),
        {"do": "join"},
        {"do": "notice"},
        call("c", 80),
    ]

    def check(run, truth):
        check_subs("id")(run, truth)
        triggers = [s["args"]["trigger"] for s in turn_spans(run, truth, SESSIONS[0])]
        assert triggers == ["human", "notice"], triggers

    play([{"client": "claude", "id": SESSIONS[0], "steps": steps}], check)


@cases([("an SDK", "sdk"), ("a hook of Claude Code that asks another model", "claude")])
def child_process(client):
    """a tool's child makes calls of its own"""
    steps = [HUMAN, call("a", 80, tool("Bash", "agent_process", 0, client="sdk", steps=sub_steps("s1"), code=0)), call("b", 60)]

    def check(run, truth):
        (child,) = [s for s in truth.sessions.values() if s["parent"]]
        assert run.trace["metadata"]["agent_count"] == 2
        first = first_call_of(truth, run, child["id"])
        assert first["pid"] == child["pid"] != run.spans("tool", tool_call_id=asked_id(run))[0]["pid"]
        asked = run.spans("tool", tool_call_id=asked_id(run))[0]
        for step in truth.steps(child["id"]):
            begin_us = (step["begin_ns"] - run.start_ns) / 1e3
            assert asked["ts"] <= begin_us <= asked["ts"] + asked["dur"], (asked, step)
        assert first in [f for _, f in arrows(run)], arrows(run)
        # The child's model is what was waited for.
        turn = turn_spans(run, truth, SESSIONS[0])[0]["args"]["verdict"]
        assert client == "sdk" or "of gpt-test-1" in turn or "largest part gpt-test-1" in turn, turn

    def asked_id(run):
        return [t["id"] for t in run.said("tool") if t["kind"] == "agent_process"][0]

    play([{"client": client, "id": SESSIONS[0], "steps": steps}], check)


@cases([
    ("one process, with ids", "opencode", False), ("one process, without ids", "sdk", False),
    ("one process, without ids and with the same prompts", "gemini", False, True),
    ("two processes, with ids", "claude", True), ("two processes, without ids", "gemini", True),
])
def two_sessions(client, processes, alike=False):
    """two sessions at once"""
    sessions = []
    for i, session in enumerate(SESSIONS):
        steps = [{"do": "pause", "ms": 60 * i}, HUMAN, call(f"{i}a", (600 if alike else 120) + 60 * i, tool("Bash", "sleep", 200 + 150 * i)), call(f"{i}b", 80), {"do": "pause", "ms": 100}, HUMAN, call(f"{i}c", 90)]
        sessions.append({"client": client, "id": session, "steps": steps, "type": "agent" if alike else f"agent {i}", "process": processes})

    def check(run, truth):
        assert run.trace["metadata"]["agent_count"] == (1 if client == "sdk" or alike else 2), run.trace["metadata"]["agent_count"]
        found, wanted = check_classes(run, truth)
        assert found == wanted, (found, wanted)

    play(sessions, check)


@case
def slow_everywhere():
    """a retry with back-off, a stall in mid-stream, tools in parallel"""
    steps = [
        HUMAN,
        call("a", 100, tool("Bash", "sleep", 350), tool("Bash", "sleep", 200), tool("Read", "inner", 100), parallel=True,
             retries=[{"knobs": "status=529&head_delay_ms=60", "wait_ms": 400}, {"knobs": "status=529&head_delay_ms=40", "wait_ms": 700}]),
        call("b", 120, knobs="tokens=8&gap_ms=20&stall_at=4&stall_ms=1200"),
    ]

    def check(run, truth):
        attempts = [(c["status"], c["attempt"]) for c in run.perfbpf.calls()]
        assert attempts == [(529, 1), (529, 2), (200, 3), (200, 1)], attempts
        shells = run.spans("tool", tool="Bash")
        assert all(s["args"]["ambiguous"] for s in shells), shells

    play([{"client": "claude", "id": SESSIONS[0], "steps": steps}], check)


@case
def helpers():
    """80 small helper calls and 33 steps of the conversation in one process are told apart"""
    steps = []
    for i in range(33):
        steps += [HUMAN] if i % 11 == 0 else []
        asked = [tool("Read", "inner", 1)] if i % 11 != 10 else []
        steps.append(call(f"m{i}", 5, *asked, knobs="tokens=2"))
        steps += [{"do": "helper", "name": f"h{j}", "knobs": "tokens=1"} for j in range(i * 80 // 33, (i + 1) * 80 // 33)]

    # So many handshakes at once keep the agent busy: where its time went is not the question here.
    run = Run([{"client": "sdk", "id": SESSIONS[0], "steps": steps}])
    truth, _ = check_run(run)
    found, wanted = check_classes(run, truth)
    assert found == wanted == {"main": 33, "aux": 80}, (found, wanted)
    assert run.trace["metadata"]["call_count"] == 113
    assert [s["args"]["steps"] for s in run.spans("turn")] == [11, 11, 11]


@cases([("HTTP", "claude"), ("a WebSocket", "codex")])
def late_reads(client):
    """a blocked event loop does not read what came"""
    late = {"after_ms": 180, "ms": 400}
    steps = [HUMAN, call("a", 100, knobs="tokens=30&gap_ms=20", late=late), {"do": "human"}, call("b", 100)]

    def check(run, truth):
        turn = turn_spans(run, truth, SESSIONS[0])[0]
        assert turn["args"]["parts_ms"]["client"] > 300, turn

    play([{"client": client, "id": SESSIONS[0], "steps": steps}], check, idle_of(client))


@cases([("Claude Code", "claude"), ("Codex", "codex")])
def nested_sub_agents(client):
    """three sub-agents at once, each with a shell of its own, one with a sub-agent below"""
    below = {"name": "Task", "kind": "agent", "ms": 0, "steps": [HUMAN, call("n1", 90)], "type": "nested"}
    tools = []
    for i in range(3):
        steps = [{"do": "pause", "ms": 50 * i}, HUMAN, call(f"s{i}a", 60, tool("Bash", "sleep", 150 + 120 * i))]
        steps += [call(f"s{i}b", 50, below)] if i == 1 else []
        tools.append(tool("Task", "agent", 0, type=f"kind {i}", steps=[*steps, call(f"s{i}c", 60)]))
    steps = [HUMAN, call("a", 80, *tools, parallel=True), call("b", 70)]
    play([{"client": client, "id": SESSIONS[0], "steps": steps}], check_subs("id"), idle_of(client))


@cases([("Claude Code", "claude"), ("an SDK without ids", "sdk")])
def broken_off(client):
    """a person who breaks off, and a server that a tool leaves behind"""
    steps = [
        HUMAN,
        call("a", 80, tool("Bash", "serve", 900)),
        call("b", 100, knobs="tokens=100&gap_ms=20", abort_ms=400),
        {"do": "pause", "ms": 150},
        HUMAN,
        call("c", 100),
    ]

    def check(run, truth):
        reasons = [c["end_reason"] for c in run.perfbpf.calls()]
        assert reasons == [None, "client_abort", None], reasons

    play([{"client": client, "id": SESSIONS[0], "steps": steps}], check)


@cases([("Claude Code", "claude"), ("Codex, whose WebSocket was met in the middle", "codex")])
def met_in_the_middle(client):
    """an agent that is met inside of a turn"""
    steps = [HUMAN, call("a", 80), HUMAN, call("b", 80, tool("Bash", "sleep", 100)), {"do": "ready"}, call("c", 100, tool("Bash", "sleep", 200)),
             call("d", 100), {"do": "pause", "ms": 100}, HUMAN, call("e", 100)]
    run = Run([{"client": client, "id": SESSIONS[0], "steps": steps}], attach=True)
    first, second = run.spans("turn")
    assert first["args"]["partial"] and "unfinished" not in first["args"] and first["args"]["steps"] == 2, first
    assert "partial" not in second["args"] and second["args"]["steps"] == 1, second
    (shell,) = run.spans("tool")
    assert shell["args"]["tool_call_id"].endswith("_c_01") and shell["args"]["program"] == "bash", shell
    assert run.trace["metadata"]["agent_count"] == 1
    for span in (first, second):
        check_sum(span["args"])


@case
def busy_agent():
    """an agent that works itself between two calls"""
    steps = [HUMAN, call("a", 100, tool("Edit", "inner", 400), tool("Edit", "compute", 1700), tool("Read", "inner", 300)), call("b", 100)]
    play([{"client": "claude", "id": SESSIONS[0], "steps": steps}], lambda run, truth: None)


@cases([("Claude Code", "claude"), ("Codex", "codex")])
def replayed(client):
    """a replay of the capture says the same"""
    capture = os.path.join(e2e.directory(), "agent.cap")
    steps = [*two_turns(), HUMAN, *with_sub_agents("agent")[1:]]
    names = {"a": "x", "b": "y"}
    steps[-2:] = [{**step, "name": names[step["name"]]} for step in steps[-2:]]
    run = Run([{"client": client, "id": SESSIONS[0], "steps": steps}], "--record", capture, "--content")
    path = os.path.join(e2e.directory(), "again.json")
    subprocess.run([e2e.PERFBPF, "replay", capture, "-q", "-o", path], check=True, stderr=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as f:
        again = json.load(f)
    live, replay = run.trace["metadata"], again["metadata"]
    assert live["agent_count"] == replay["agent_count"] == 2
    assert [live["verdict"][k] for k in ("turns", "steps", "tools")] == [replay["verdict"][k] for k in ("turns", "steps", "tools")]
    off = differences("the replay", replay["verdict"]["parts_ms"], live["verdict"]["parts_ms"])
    assert not off, off
    for cat in ("turn", "tool"):
        told = sorted((e["ts"], json.dumps(e["args"])) for e in again["traceEvents"] if e["ph"] == "X" and e.get("cat") == cat)
        assert told == sorted((e["ts"], json.dumps(e["args"])) for e in run.spans(cat)), (cat, told, run.spans(cat))


if __name__ == "__main__":
    e2e.run_cases()
