#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a bad network does to calls, between two network namespaces: delay, loss, an address that refuses."""
import functools
import json
import os
import signal
import subprocess
import time

import e2e
from e2e import PYTHON, Client, Perfbpf, Server, call_slices, case, cases, check_nothing_lost, check_trace, request

CLIENTS = os.path.join(e2e.HERE, "clients")
AGENT, SERVER, REFUSING = "10.77.0.1", "10.77.0.2", "10.77.0.3"


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise e2e.Skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Net:
    """Two namespaces, joined by a veth pair, or by a cable with a delay."""

    def __init__(self, delay_ms=None):
        self.names = [f"perfbpf-{os.getpid()}-{end}" for end in ("agent", "server")]
        self.delay_ms = delay_ms

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.join_late() if self.delay_ms else self.join()
            ip("-n", self.names[1], "addr", "add", REFUSING + "/24", "dev", "line")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def join(self):
        ip("link", "add", "name", "line", "netns", self.names[0], "type", "veth", "peer", "name", "line", "netns", self.names[1])
        for name, address in zip(self.names, (AGENT, SERVER)):
            ip("-n", name, "addr", "add", address + "/24", "dev", "line")
            ip("-n", name, "link", "set", "line", "up")

    def join_late(self):
        line = e2e.start([PYTHON, os.path.join(CLIENTS, "delayline.py"), self.names[0], AGENT + "/24", self.names[1], SERVER + "/24",
                          str(self.delay_ms)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if line.stdout.readline() != "ready\n":
            raise e2e.Skip("no delayed cable: " + line.communicate()[1][-200:])

    def lose(self, end, which):
        """Of what comes in at that end (0 the agent's, 1 the server's), packets with something in them: nftables' numgen."""
        rules = f"""table inet loss {{
            chain in {{
                type filter hook prerouting priority 0;
                meta length > 100 numgen {which} counter drop
            }}
        }}"""
        done = subprocess.run([*self.inside(end), "nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
        if done.returncode:
            raise e2e.Skip("nft: " + done.stderr.strip().split("\n")[0])

    def inside(self, end):
        return ["ip", "netns", "exec", self.names[end]]


def at_best(function):
    """A case that measures: on a machine that is busy the best of three tries counts."""

    @functools.wraps(function)
    def tries(*arguments):
        for left in (2, 1, 0):
            try:
                return function(*arguments)
            except AssertionError as error:
                if not left:
                    raise
                e2e.note("again:", str(error)[:200])

    return tries


def trace_calls(net, calls, addresses=(SERVER,)):
    """[(args of the slice, what the agent knows, what the server knows)] in order."""
    server = Server("--address", SERVER, prefix=net.inside(1))
    config = e2e.write_config(addresses=addresses, port=server.port, ca=server.cert, calls=calls)
    client = Client([*net.inside(0), PYTHON, os.path.join(CLIENTS, "faults.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_nothing_lost(perfbpf)
    trace, truth = check_trace(perfbpf), server.truth()
    slices = {e2e.key_of(s["args"]["path"]): s for s in call_slices(trace)}
    knows = [json.loads(line) for line in client.lines if line.startswith("{")]
    assert len(knows) == len(calls) == len(slices), (len(knows), len(slices))
    return [(slices[e2e.key_of(k["path"])], k, truth[e2e.key_of(k["path"])]) for k in knows], trace


def between(values, a, b):
    return (values[b] - values[a]) / 1e6


def allowed(ms):
    return max(e2e.slack(), 0.02 * ms)


def network_ms(agent, server):
    """The true time that request and first token were on their way."""
    return (server["complete_ns"] - agent["sent_ns"] + agent["tokens_ns"][0] - server["first_token_ns"]) / 1e6


def parts(slice_):
    return {**dict.fromkeys(("connect", "network", "first_token", "unknown"), 0), **slice_["args"]["parts_ms"]}


def check_parts(results):
    for s, agent, server in results:
        have = parts(s)
        want = {
            "network": network_ms(agent, server),
            "first_token": between(server, "complete_ns", "first_token_ns"),
            "connect": between(agent, "connect_ns", "secure_ns") if "connect_ns" in agent else 0,
        }
        e2e.note({k: (round(have[k], 1), round(v, 1)) for k, v in want.items()}, "of", s["args"]["wall_ms"], "retransmits",
                 s["args"].get("retransmits", 0), agent["retransmits"], s["args"]["parts_ms"])
        for part, ms in want.items():
            assert abs(have[part] - ms) <= allowed(ms), f"{part}: {have[part]} ms, truth {ms:.3f} ms, of {agent['path']}: {s}"


def calls(count, knobs="tokens=3&gap_ms=2&delay_ms=60", **more):
    return [dict(request("anthropic", f"call-{i}", knobs), **more) for i in range(count)]


@cases([("30 ms each way", 30), ("5 ms each way", 5)])
@at_best
def delay(ms):
    """Added delay is the network's, and a new connection's is connecting"""
    with Net(delay_ms=ms) as net:
        results, _ = trace_calls(net, calls(4) + [dict(request("anthropic", "again", "tokens=3&delay_ms=60"), new=True)])
        check_parts(results)
        for s, _, _ in results:
            assert abs(s["args"]["srtt_us"] / 1000 - 2 * ms) <= allowed(2 * ms), s["args"]


@case
@at_best
def loss():
    """Lost packets of requests: retransmits sit on the right call, at their times, and their delay is the network's"""
    with Net() as net:
        net.lose(1, "random mod 5 == 0")
        results, trace = trace_calls(net, calls(40, "tokens=2&delay_ms=20"))
        first, results = results[0], results[1:]
        hit = [agent for _, agent, _ in results if agent["retransmits"]]
        e2e.note(f"{len(hit)} of {len(results)} calls lost packets")
        assert 2 <= len(hit) < len(results), len(hit)
        instants = [e for e in trace["traceEvents"] if e["name"] == "retransmit"]
        for s, agent, _ in results:
            seen = s["args"].get("retransmits", 0)
            assert seen == agent["retransmits"], f"{seen} retransmits, by the kernel {agent['retransmits']}, of {agent['path']}"
            own = [e for e in instants if e["tid"] == s["tid"] and s["ts"] <= e["ts"] <= s["ts"] + s["dur"]]
            assert len(own) == seen, (own, agent['path'])
        check_parts(results)
        # The first one pays for the set-up, in which packets were lost too: at the border either part may have it.
        s, agent, server = first
        have, want = parts(s), network_ms(agent, server) + between(agent, "connect_ns", "secure_ns")
        assert abs(have["connect"] + have["network"] - want) <= allowed(want), (have, want)
        assert s["args"].get("retransmits", 0) == agent["retransmits"], (s["args"], agent)


def waited_ms(agent, server):
    """How long tokens that had been sent were missing here, from when the one after a missing one came. A lost packet costs a round
    trip of 40 ms; much less is a machine that was busy."""
    sent = server["tokens_ns"] + [server["end_ns"]]
    read = agent["tokens_ns"] + [agent["end_ns"]]
    trip = min(r - s for s, r in zip(sent, read))
    total = end = 0
    for i, s in enumerate(sent[:-1]):
        since = max(end, sent[i + 1] + trip)
        if read[i] - since > 10_000_000:  # a later one was here before
            total += read[i] - since
            end = read[i]
    return (server["complete_ns"] - agent["sent_ns"] + trip + total) / 1e6


@case
@at_best
def lost_answers():
    """Lost packets inside of answers are the network's, from when it can be known"""
    with Net(delay_ms=20) as net:
        net.lose(0, "inc mod 97 == 50")
        results, _ = trace_calls(net, calls(6, "tokens=120&gap_ms=2&delay_ms=60"))
        waits = [waited_ms(agent, server) for _, agent, server in results]
        for (s, agent, _), ms in list(zip(results, waits))[1:]:
            have = parts(s)["network"]
            e2e.note(f"network {have:.1f} ms, truth {ms:.1f} ms, of {s['args']['wall_ms']} ms")
            assert abs(have - ms) <= allowed(ms), f"network: {have} ms, truth {ms:.3f} ms, of {agent['path']}: {s['args']}"
        assert sum(ms > 60 for ms in waits) >= 3, waits


@case
@at_best
def refused():
    """An address that refuses before one that answers: its time is connecting"""
    with Net(delay_ms=30) as net:
        results, _ = trace_calls(net, calls(2, new=True), [REFUSING, SERVER])
        check_parts(results)



KNOCK = """
import socket, sys
sys.stdin.readline()
for port, patience in ((int(sys.argv[1]), 5), (4444, 1.2), (4444, 9)):
    s = socket.socket()
    s.settimeout(patience)
    try:
        s.connect(("127.0.0.1", port))
    except OSError as e:
        print(e, flush=True)
    s.close()
"""


@case
def in_vain():
    """Connections that are refused, given up and unanswered: in the trace and the summary, with the reason"""
    with Net() as net:
        done = subprocess.run([*net.inside(0), "nft", "-f", "-"], capture_output=True, text=True, check=False,
                              input="table inet vain {\nchain out {\ntype filter hook output priority 0\ntcp dport 4444 drop\n}\n}\n")
        if done.returncode:
            raise e2e.Skip("nft: " + done.stderr.strip().split("\n")[0])
        child = e2e.start([*net.inside(0), PYTHON, "-c", KNOCK, "9"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        e2e.until(lambda: os.readlink(f"/proc/{child.pid}/exe").endswith(os.path.basename(os.path.realpath(PYTHON))), 10, "it runs")
        perfbpf = Perfbpf("-p", child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() and child.stdout.readline()
        time.sleep(1.5)
        assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
        child.kill()
        slices = [(s["args"], s["dur"] / 1e3) for s in check_trace(perfbpf)["traceEvents"] if s.get("name") == "connection not made"]
        assert [a for a, _ in slices] == [{"peer": "127.0.0.1:9", "error": "ECONNREFUSED"}, {"peer": "127.0.0.1:4444"},
                                          {"peer": "127.0.0.1:4444", "unfinished": True}], slices
        assert slices[0][1] < 100 and abs(slices[1][1] - 1200) < 100 and slices[2][1] > 1400, slices
        for row in ("3 connections not made\n", "ECONNREFUSED 127.0.0.1:9\n", "given up 127.0.0.1:4444\n",
                    "unanswered 127.0.0.1:4444\n"):
            assert row in perfbpf.err(), (row, perfbpf.err())


e2e.run_cases()
