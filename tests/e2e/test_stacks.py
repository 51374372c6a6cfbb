#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TLS stacks that are not f(object, buffer, length), and those that work in memory: Go, rustls over its ciphers, asyncio.
All calls are there and exact, alone and all programs at once, and no program notices."""
import os
import signal
import subprocess

import e2e
from e2e import Client, Perfbpf, Server, Skip, case, cases, check_nothing_lost, expect, request

# Runtimes start threads of their own; the first trap in each costs more.
COLD_MS = 50.0
# Programs share the processors with each other here: each call is checked, but its times say less.
CROWD_MS = 500.0
LOAD_SECONDS = float(os.environ.get("PERFBPF_E2E_LOAD_SECONDS", "8"))


def calls_of(name):
    return [
        *e2e.usual_calls(name),
        request("anthropic", f"{name}-6", "tokens=8&reasoning=4&gap_ms=1&pings=1&tool=1", prompt="x" * 300000),
        request("openai.responses", f"{name}-7", "hidden_reasoning=50&chunk=100&tokens=5", stream=False),
        request("anthropic", f"{name}-8", "tokens=4000&delay_ms=15", stream=False),
    ]


# NAME: (program, its settings, protocol, method by which it is found)
STACKS = {
    "go": ("go client", {}, "http/1.1", "gopclntab"),
    "go, HTTP/2": ("go client", {"http2": True}, "http/2", "gopclntab"),
    "go, stripped": ("go client-stripped", {}, "http/1.1", "gopclntab"),
    "go, stripped, HTTP/2": ("go client-stripped", {"http2": True}, "http/2", "gopclntab"),
    "go, position-independent": ("go client-pie", {"http2": True}, "http/2", "gopclntab"),
    "deno": ("deno", {}, "http/2", "aws-lc strings"),
    "bun": ("bun", {}, "http/1.1", "boringssl strings"),
    "aiohttp": ("aiohttp", {}, "http/1.1", "symbols"),
    "node": ("node", {}, "http/1.1", "symbols"),
}


def command_of(stack, server, calls, at_once=1, **cfg):
    program, settings, *_ = STACKS[stack]
    cfg.update(settings, concurrency=at_once)
    if program == "deno":  # it may reset a stream whose body has ended by its coding, before it hears the end
        calls = [{**call, "path": call["path"].replace("&gzip=1", "")} for call in calls]
    if at_once > 1:
        cfg["threads"] = at_once
    if program == "aiohttp" and subprocess.run([e2e.PYTHON, "-c", "import aiohttp"], capture_output=True, check=False).returncode:
        raise Skip("no python3-aiohttp")
    if program.startswith("go "):
        path = e2e.write_config(port=server.port, ca=server.cert, calls=calls, **cfg)
        return [e2e.go_program(program[3:]), path], {}
    return e2e.client_command(program, server, calls, **cfg)


def check_stack(perfbpf, stack, pairs, server):
    *_, protocol, method = STACKS[stack]
    e2e.check_method(perfbpf, method)
    for call, _ in pairs:
        expect(call, "protocol", protocol)
        expect(call, "mid_attach", False)
        assert call["peer"] and call["peer"]["port"] == server.port, f"no peer of {call['path']}: {call['peer']}"
    errors = sorted(e2e.ttft_error_ms(c, t) for c, t in pairs if c["ttft_ms"] is not None)
    e2e.note(f"{stack}: |TTFT - server| p50 {errors[len(errors) // 2]:.3f} ms, max {errors[-1]:.3f} ms, {len(errors)} calls")
    return errors[len(errors) // 2]


def attach(stack, *options, how="before", at_once=1, rounds=1):
    server = Server()
    calls = [c for i in range(rounds) for c in calls_of(f"{stack.replace(', ', '-').replace('/', '')}{i}")]
    argv, env = command_of(stack, server, calls, at_once, wait=how == "before")
    if how == "command":
        perfbpf = Perfbpf(*options, command=argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    else:
        client = Client(argv, env)
        perfbpf = Perfbpf(*options, "-p", client.pid)
        client.go()
        assert client.finish() == 0, client.lines
    pairs = e2e.finish(perfbpf, server, len(calls), COLD_MS if at_once == 1 else CROWD_MS)
    error = check_stack(perfbpf, stack, pairs, server)
    assert at_once > 1 or error <= e2e.usual_slack(), f"TTFT of half the calls is off by {error:.3f} ms"
    return pairs


@cases([(stack, stack) for stack in STACKS if stack not in ("bun", "node")])
def before(stack):
    """-p before the first connection"""
    first = attach(stack)[0][0]
    e2e.check_paid(first)


@cases([(stack, stack) for stack in ("go, stripped", "deno", "aiohttp")])
def by_command(stack):
    """-- CMD"""
    first = attach(stack, how="command")[0][0]
    e2e.check_paid(first)


@cases([(stack, stack) for stack in ("go, stripped", "go, stripped, HTTP/2", "deno", "aiohttp", "node")])
def at_once(stack):
    """many calls at a time"""
    attach(stack, at_once=12, rounds=8)


@case
def alike():
    """connections of one event loop that send and receive the same sizes at once: no call has another one's socket"""
    e2e.need_module("httpx")
    servers = [Server("--http1") for _ in range(6)]
    script = os.path.join(e2e.HERE, "clients", "alike.py")
    ports = [str(server.port) for server in servers]
    perfbpf = Perfbpf(command=[e2e.PYTHON, script, "20", *ports])
    assert perfbpf.end(seconds=60) == 0, perfbpf.err()
    calls = perfbpf.calls()
    assert len(calls) == 20 * len(servers), f"{len(calls)} records"
    wrong = [c for c in calls if c["peer"] and f":{c['peer']['port']}" not in c["host"]]
    assert not wrong, f"{len(wrong)} have another server's socket: {wrong[0]}"
    known = [c for c in calls if c["peer"]]
    e2e.note(f"of {len(calls)} calls the sockets of {len(known)} are known")
    assert not any(c["connect_ms"] is not None for c in calls if not c["peer"]), "who has no socket has no connect"
    for call in known:
        e2e.check_paid(call)


OLDER = ("--attach=multi", "--attach=perf", "--no-sock-length")


@cases([(f"{stack}, {option}", stack, option) for stack in ("go, stripped, HTTP/2", "deno") for option in OLDER])
def older_kernel(stack, option):
    """as on an older kernel"""
    attach(stack, option)


@cases([("deno", "deno")])
def opened_before(stack):
    """-p on a connection that is open already"""
    server = Server()
    calls = calls_of("open")
    argv, env = command_of(stack, server, calls, open=True, first=request("anthropic", "first"))
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err()
    truth = server.truth()
    records = perfbpf.calls()
    assert len(records) == len(calls), [r["path"] for r in records]
    for record in records:
        assert record["path"] is None or e2e.key_of(record["path"]) in truth, record
        assert record["tls_ms"] is None and record["connect_ms"] is None, f"this call paid for no connection: {record}"
    check_nothing_lost(perfbpf)


# --- all of them, at once --------------------------------------------------------------------------------------------------


def start_all(server):
    """One client of each stack that there is, waiting; how many calls they will make."""
    clients, count = {}, 0
    for stack in STACKS:
        calls = calls_of("all-" + stack.replace(", ", "-").replace("/", ""))
        try:
            argv, env = command_of(stack, server, calls, wait=True)
        except Skip as skip:
            e2e.note(f"without {stack}: {skip}")
            continue
        clients[stack] = Client(argv, env)
        count += len(calls)
    return clients, count


@cases([("by number", False), ("system-wide", True)])
def together(system_wide):
    """all stacks at once"""
    server = Server()
    clients, count = start_all(server)
    perfbpf = Perfbpf(*(["-v", "-a", "--ring-bytes", 64 << 20] if system_wide else ["-p", ",".join(str(c.pid) for c in clients.values())]))
    # Large programs that run already are looked through one after the other, when the tracing has begun.
    e2e.until(lambda: not system_wide or "all that runs already is looked through" in perfbpf.err(), 60, "all programs are looked through")
    for client in clients.values():
        client.go()
    for stack, client in clients.items():
        assert client.finish() == 0, f"{stack}: {client.lines}"
    mine = {c.pid for c in clients.values()}
    try:
        e2e.until(lambda: sum(c["pid"] in mine for c in perfbpf.calls()) >= count, 10)
    except AssertionError as error:
        had = {stack: sum(c["pid"] == client.pid for c in perfbpf.calls()) for stack, client in clients.items()}
        raise AssertionError(f"calls by stack: {had}; {perfbpf.err()[-2000:]}") from error
    assert perfbpf.end(signal.SIGINT if system_wide else None) == 0, perfbpf.err()
    truth = server.truth()
    records = [c for c in perfbpf.calls() if c["pid"] in mine]
    assert sorted(e2e.key_of(c["path"]) for c in records) == sorted(truth), "each call once"
    for record in records:
        e2e.check_call(record, truth[e2e.key_of(record["path"])], CROWD_MS)
        expect(record, "mid_attach", False)
    by_pid = {c.pid: stack for stack, c in clients.items()}
    for record in records:
        expect(record, "protocol", STACKS[by_pid[record["pid"]]][2])
    if system_wide:  # other programs of this machine may fill the ring: that no call of ours lost a byte is checked above
        assert not set(perfbpf.lost()) & {"missed_returns", "state_full", "unpaired_bytes"}, perfbpf.lost()
    else:
        check_nothing_lost(perfbpf)


# --- load ------------------------------------------------------------------------------------------------------------------


def load_command(name, server):
    body = request("openai.chat", "x", prompt="y" * 600)["body"]
    # A long load is a slower one: each call leaves a record that is compared.
    path = f"/{name}-%/v1/chat/completions?tokens=5&gap_ms=1&delay_ms={1 if LOAD_SECONDS < 60 else 100}"
    if name == "go":
        cfg = {"goroutines": 64, "path": path, "body": body}
        return [e2e.go_program("load-stripped"), e2e.write_config(port=server.port, ca=server.cert, wait=True, seconds=LOAD_SECONDS, **cfg)], {}
    calls = [{"path": path, "body": body, "headers": {}}]
    return e2e.client_command(name, server, calls, wait=True, seconds=LOAD_SECONDS, concurrency=8)


@case
def load():
    """load: goroutines whose stacks move, and JavaScript runtimes: nobody crashes, nothing is lost"""
    server = Server()
    clients = {name: Client(*load_command(name, server)) for name in ("go", "deno", "bun")}
    # All processors are busy, with more than any agent does: perfbpf may have to wait for its turn, with 30 MiB and more in the
    # ring. It copies less when half of the ring is full, which is none of what is looked at here.
    perfbpf = Perfbpf("--ring-bytes", 256 << 20, "--max-events", 1000, "-p", ",".join(str(c.pid) for c in clients.values()))
    for client in clients.values():
        client.go()
    for name, client in clients.items():
        assert client.finish(LOAD_SECONDS + 120) == 0, f"{name}: {client.lines[-5:]}"
    status = perfbpf.end(seconds=60)
    assert status == 0, f"exit status {status}; stderr:\n{perfbpf.err()}"
    lost = {k: v for k, v in perfbpf.lost().items() if k not in ("spans_dropped", "events_dropped")}
    assert not lost, lost
    truth, seen = server.truth(), {}
    for record in perfbpf.calls():
        key = e2e.key_of(record["path"])
        assert key not in seen, f"two records of one call: {dict(seen[key])}, {dict(record)}"
        seen[key] = record
        e2e.check_call(record, truth[key], 1e6)
        expect(record, "mid_attach", False)
    assert len(seen) == len(truth), f"{len(seen)} records of {len(truth)} calls"
    cpu = perfbpf.trace()["metadata"]["self"]
    e2e.note(f"{len(seen)} calls in {LOAD_SECONDS:.0f} s; {cpu}")


e2e.run_cases()
