#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the kernel knows of a call's way: who was late, what the network delayed, what came before the connection."""
import ctypes
import fcntl
import os
import queue
import socket
import struct
import subprocess
import threading
import time

import e2e
from e2e import PYTHON, Client, Perfbpf, Server, Skip, call_slices, case, cases, check_nothing_lost, check_trace, request

CLIENTS = os.path.join(e2e.HERE, "clients")
BLOCK_MS = 300


def late_call(how, plain, knobs):
    server = Server(*(["--plain"] if plain else []))
    call = request("anthropic", "late", knobs)
    config = e2e.write_config(
        port=server.port, ca=None if plain else server.cert, block_ms=BLOCK_MS, how=how, **call
    )
    client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    check_nothing_lost(perfbpf)
    blocked = [line.split() for line in client.lines if line.startswith("blocked")]
    assert len(blocked) == 1, client.lines
    (args,) = [e["args"] for e in call_slices(check_trace(perfbpf))]
    return args, (int(blocked[0][2]) - int(blocked[0][1])) / 1e6


@cases([(f"{how}, {'plain' if plain else 'TLS'}", how, plain) for how in ("blocking", "asyncio") for plain in (True, False)])
def late(how, plain):
    """A blocked event loop is the client's time"""
    gap_ms = 2
    for _ in range(3):  # of a loaded machine's the best
        args, truth_ms = late_call(how, plain, f"tokens=250&gap_ms={gap_ms}")
        # From the first byte that came while it was blocked, which is a gap of the server later at most.
        error_ms = truth_ms - args.get("client_late_ms", 0)
        e2e.note(f"blocked {truth_ms:.3f} ms, late {args.get('client_late_ms')} ms, verdict {args['verdict']}")
        if -e2e.slack() <= error_ms - gap_ms <= max(e2e.slack(), 0.02 * truth_ms):
            break
    else:
        raise AssertionError(f"error {error_ms:.3f} ms")


@case
def not_late():
    """A client that reads at once is never late"""
    server = Server()
    call = request("anthropic", "prompt", "tokens=100&gap_ms=4&delay_ms=300")
    argv, env = e2e.client_command("session", server, [call], wait=True)
    client = Client(argv, env)
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    (args,) = [e["args"] for e in call_slices(check_trace(perfbpf))]
    # What the machine itself takes to run it again, where that is long.
    assert args.get("client_late_ms", 0) <= 2 * e2e.slack(), args


def busy_run():
    server = Server("--plain")
    call = request("anthropic", "busy", "tokens=5")
    config = e2e.write_config(port=server.port, ca=None, block_ms=0, between_ms=2500, how="blocking", **call)
    client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    (words,) = [line.split() for line in client.lines if line.startswith("blocked")]
    return check_trace(perfbpf), int(words[3]) / (int(words[2]) - int(words[1]))


@case
def busy():
    """An agent that is busy between two calls: its own time, and a counter of it"""
    trace, share = busy_run()
    verdict = trace["metadata"]["verdict"]
    e2e.note(f"{share:.2f} of a processor, it waited for one else;", verdict["verdict"], verdict["parts_ms"])
    # Whole samples of 250 ms: the first is taken after the first call, the last before the second. What a program waited for its
    # turn the kernel tells when it gets one: of one that hardly ever does, samples between say nothing.
    least_ms = 2500 - 2 * 250 - 100 if share > 0.5 else 1000
    assert least_ms <= verdict["parts_ms"]["client"] <= 2500 + e2e.slack(), verdict
    loads = [e["args"]["percent"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == "cpu"]
    assert loads and 0.5 * share <= max(loads) / 100 <= 1.1, (loads, share)


@cases([("TLS 1.3", []), ("TLS 1.2", ["--tls12"])])
def resumed(options):
    """A TLS session that goes on is told from a new one"""
    server = Server(*options)
    call = request("anthropic", "resume", "tokens=5")
    config = e2e.write_config(port=server.port, ca=server.cert, block_ms=0, again=True, how="blocking", **call)
    client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    truth = [line.split()[1] == "True" for line in client.lines if line.startswith("resumed")]
    found = [e["args"].get("tls_resumed") for e in call_slices(check_trace(perfbpf))]
    assert truth == [False, True], truth
    if not e2e.kernel_has("sock_send_length"):
        truth = [None, None]
    # On an emulated machine a call may come so late that the connection was not made for it.
    assert all(f == t or (f is None and e2e.PATIENCE > 1) for f, t in zip(found, truth, strict=True)), found


@cases([("plain", True), ("TLS", False)])
def reset(plain):
    """A connection that the server resets"""
    server = Server(*(["--plain"] if plain else []))
    call = request("anthropic", "reset", "tokens=50&gap_ms=4&rst_at=20")
    config = e2e.write_config(port=server.port, ca=None if plain else server.cert, block_ms=0, how="blocking", **call)
    client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines  # over TLS python takes it for an end
    assert perfbpf.end() == 0, perfbpf.err()
    trace = check_trace(perfbpf)
    (slice_,) = call_slices(trace)
    (instant,) = [e for e in trace["traceEvents"] if e["ph"] == "i" and e["name"] == "reset"]
    assert slice_["args"]["reset"] == "received", slice_
    assert slice_["ts"] <= instant["ts"] <= slice_["ts"] + slice_["dur"] and instant["tid"] == slice_["tid"], instant


@cases([("plain", True), ("TLS", False)])
def same_socket(plain):
    """A socket that connects again carries another connection"""
    server = Server(*(["--plain"] if plain else []))
    call = request("anthropic", "same", "tokens=50&gap_ms=4&delay_ms=100")
    config = e2e.write_config(
        port=server.port, ca=None if plain else server.cert, block_ms=0, same=True, how="blocking", **call
    )
    client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
    perfbpf = Perfbpf("-p", client.pid)
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err()
    check_nothing_lost(perfbpf)
    check_trace(perfbpf)
    records = perfbpf.calls()
    assert len(records) == 2 and all(r["complete"] and not r["lossy"] for r in records), records
    assert all(0 < (r["connect_ms"] or 0) <= e2e.slack() for r in records), records


# --- a network of our own --------------------------------------------------------------------------------------------


CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
_alone = []


def own_network():
    """This process, and what it starts, in network and mount namespaces of its own."""
    if _alone:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS):
        raise Skip(f"no namespaces: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _alone.append(True)


def drop(rule):
    table = f"table inet test {{\nchain in {{\ntype filter hook input priority 0;\n{rule} drop\n}}\n}}\n"
    done = subprocess.run(["nft", "-f", "-"], input=table, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Skip(f"no nftables: {done.stderr.strip()[:120]}")


class NameServer:
    """Of libc's resolver, at 127.0.0.1: answers for every name `addresses`, after delay_s. cut: so many of them fit into a
    datagram, all of them are told over TCP."""

    def __init__(self, addresses, delay_s, silent=(), cut=None):
        self.addresses, self.delay_s, self.silent, self.cut = addresses, delay_s, silent, cut
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 53))
        path = os.path.join(e2e.directory(), "resolv.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        os.chmod(path, 0o644)
        subprocess.run(["mount", "--bind", path, "/etc/resolv.conf"], check=True)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        self.listener = socket.create_server(("127.0.0.1", 53))
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def serve(self):
        while True:
            query, peer = self.sock.recvfrom(2048)
            if not query:
                return
            threading.Timer(self.delay_s, self.answer, (query, peer)).start()

    def serve_tcp(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            with s:
                while size := s.recv(2, socket.MSG_WAITALL):
                    query = s.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
                    time.sleep(self.delay_s)
                    found = self.answer_to(query, None)
                    s.sendall(len(found).to_bytes(2, "big") + found)

    def answer(self, query, peer):
        found = self.answer_to(query, self.cut)
        if found:
            self.sock.sendto(found, peer)

    def answer_to(self, query, cut):
        end = query.index(b"\0", 12) + 5
        (kind,) = struct.unpack(">H", query[end - 4 : end - 2])
        if kind in self.silent:
            return None
        found = [a for a in self.addresses if (":" in a) == (kind == 28)]
        flags = 0x8180 if cut is None or cut >= len(found) else 0x8380  # TC
        found = found[:cut]
        records = b""
        for a in found:
            ip = socket.inet_pton(socket.AF_INET6 if kind == 28 else socket.AF_INET, a)
            records += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(ip)) + ip
        head = query[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
        return head + query[12:end] + records

    def close(self):
        self.sock.sendto(b"", self.sock.getsockname())
        self.thread.join()
        self.sock.close()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        subprocess.run(["umount", "/etc/resolv.conf"], check=True)


def looked_up(addresses, attempt_s=None, silent=(), before=None, delay_s=0.12, cut=None, ipv4=False):
    """Slice args, phases and the client's own times in ms of a call to a name."""
    own_network()
    names = NameServer(addresses, delay_s, silent, cut)
    try:
        server = Server("--plain")
        if before:
            before(server)
        call = request("anthropic", "lookup", "tokens=5")
        config = e2e.write_config(host="api.model.test", port=server.port, attempt_s=attempt_s, ipv4=ipv4, **call)
        client = Client([PYTHON, os.path.join(CLIENTS, "lookup.py"), config])
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0, client.lines
        assert perfbpf.end() == 0, perfbpf.err()
    finally:
        names.close()
    check_nothing_lost(perfbpf)
    trace = check_trace(perfbpf)
    (record,) = perfbpf.calls()
    times = {line.split()[0]: [int(n) for n in line.split()[1:3]] for line in client.lines if line[:4] in ("look", "conn")}
    truth = {name: (end - begin) / 1e6 for name, (begin, end) in times.items()}
    e2e.note(f"truth {truth}, dns_ms {record['dns_ms']}, connect_ms {record['connect_ms']}")
    phases = {e["name"]: e["dur"] / 1e3 for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] in ("dns", "connect")}
    if record["dns_ms"] is not None:  # else it is told beside the call
        assert abs(phases["dns"] - record["dns_ms"]) < 0.01, phases
    assert abs(phases["connect"] - record["connect_ms"]) < 0.01, phases
    (args,) = [e["args"] for e in call_slices(trace)]
    return args, record, truth


def near(found, truth):
    return abs(found - truth) <= max(e2e.slack(), 0.02 * truth)


@case
def names():
    """libc's resolver: the look-up is the call's"""
    args, record, truth = looked_up(["127.0.0.1", "::1"], silent=())
    assert near(record["dns_ms"], truth["looked"]), (record, truth)
    assert near(args["parts_ms"]["connect"], truth["looked"] + truth["connected"]), (args, truth)


@case
def half_answered():
    """An answer that never comes is waited for too"""
    _, record, truth = looked_up(["127.0.0.1"], silent=(28,))
    assert truth["looked"] > 900 and near(record["dns_ms"], truth["looked"]), (record, truth)


@cases([("in part", 1, 0.02, False), ("in part, of one kind", 1, 0.12, True), ("not at all", 0, 0.02, False)])
def truncated(cut, delay_s, ipv4):
    """An answer that goes on over TCP is waited for to its end, if it is known to be the call's"""
    _, record, truth = looked_up(["127.0.0.1", "127.0.0.2", "127.0.0.3"], delay_s=delay_s, cut=cut, ipv4=ipv4)
    assert truth["looked"] > 1900 * delay_s
    assert record["dns_ms"] is None if not cut else near(record["dns_ms"], truth["looked"]), (record, truth)


@case
def first_address_silent():
    """An address that does not answer before the one that does"""
    args, record, truth = looked_up(
        ["127.0.0.1", "::1"], attempt_s=0.4, before=lambda s: drop(f"ip6 daddr ::1 tcp dport {s.port}")
    )
    assert truth["connected"] > 390 and near(record["connect_ms"], truth["connected"]), (record, truth)
    assert near(record["dns_ms"], truth["looked"]), (record, truth)
    assert near(args["parts_ms"]["connect"], truth["looked"] + truth["connected"]), (args, truth)


class Relay:
    """A network behind a tun device: what is sent to FAR comes back as if from there, delay_s later. Segments that
    lose(number, from_server) chooses, of those with data in each direction, are lost; once."""

    NEAR, FAR = "10.9.0.1", "10.9.0.2"

    def __init__(self, delay_s, port, lose):
        own_network()
        self.delay_s, self.port, self.lose, self.seen, self.count = delay_s, port, lose, set(), [0, 0]
        try:
            self.fd = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(self.fd, 0x400454CA, struct.pack("16sH", b"relay", 0x1001))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
        except OSError as error:
            raise Skip(f"no tun device: {error}") from error
        for words in ("addr add 10.9.0.1/24 dev relay", "link set relay up"):
            subprocess.run(["ip", *words.split()], check=True)
        self.waiting = queue.Queue()
        threading.Thread(target=self.receive, daemon=True).start()
        threading.Thread(target=self.send, daemon=True).start()

    def is_lost(self, packet):
        head = (packet[0] & 15) * 4
        source, target, sequence = struct.unpack(">HHI", packet[head : head + 8])
        data = len(packet) - head - (packet[head + 12] >> 4) * 4
        if packet[9] != socket.IPPROTO_TCP or self.port not in (source, target) or not data:
            return False
        key = (source, sequence)
        if key in self.seen:
            return False
        self.seen.add(key)
        side = int(source == self.port)
        self.count[side] += 1
        return self.lose(self.count[side], bool(side))

    def receive(self):
        while True:
            try:
                packet = os.read(self.fd, 65536)
            except OSError:
                return
            if packet[0] >> 4 == 4 and not self.is_lost(packet):
                # Both addresses in each other's place: the checksums stay right.
                self.waiting.put((time.monotonic() + self.delay_s, packet[:12] + packet[16:20] + packet[12:16] + packet[20:]))

    def send(self):
        while True:
            at, packet = self.waiting.get()
            time.sleep(max(0, at - time.monotonic()))
            try:
                os.write(self.fd, packet)
            except OSError:
                return

    def close(self):
        subprocess.run(["ip", "link", "del", "relay"], check=True)
        os.close(self.fd)


def far_call(delay_s, lose, knobs, size):
    """Args of a call over a network with that delay and loss, what its client says, and the server's stamps."""
    own_network()
    server = Server("--plain", "--address", "0.0.0.0")
    relay = Relay(delay_s, server.port, lose)
    try:
        call = request("anthropic", "far", knobs, prompt="x" * size)
        config = e2e.write_config(host=relay.FAR, port=server.port, ca=None, block_ms=0, how="blocking", **call)
        client = Client([PYTHON, os.path.join(CLIENTS, "late.py"), config])
        perfbpf = Perfbpf("-p", client.pid)
        client.go()
        assert client.finish() == 0
        assert perfbpf.end() == 0, perfbpf.err()
    finally:
        relay.close()
    check_nothing_lost(perfbpf)
    (args,) = [e["args"] for e in call_slices(check_trace(perfbpf))]
    e2e.note(args["verdict"], args["parts_ms"], "delay", args.get("network_delay_ms"))
    (stamps,) = server.truth().values()
    return args, client.lines, stamps


@case
def lost_answer():
    """Segments of an answer that are lost hold up those behind them: the network's time"""
    args, lines, _ = far_call(0.04, lambda n, from_server: from_server and n % 50 == 20, "tokens=200&gap_ms=4", 100)
    silences = [float(line.split()[1]) for line in lines if line.startswith("silence")]
    # Each begins two gaps of the server before what came out of order: with what came before the lost one.
    truth = sum(ms - 8 for ms in silences if ms > 80)  # the others: too few segments on the way
    e2e.note(f"silences {silences}: {truth:.3f} ms behind a hole")
    assert len(silences) >= 4 and near(args["network_delay_ms"], truth), (args, silences)
    assert near(args["parts_ms"]["network"], args["network_delay_ms"] + 80), args


@case
def large_request():
    """A request that the network takes in several round trips: its way is the network's, and not the model's"""
    args, _, server = far_call(0.05, lambda n, from_server: False, "tokens=3&gap_ms=2&delay_ms=60", 300000)
    truth = (server["first_token_ns"] - server["complete_ns"]) / 1e6
    e2e.note(f"first token {truth:.3f} ms after the whole request, of {args['ttft_ms']} ms")
    assert args["parts_ms"]["network"] > 250 and near(args["parts_ms"]["first_token"], truth), (args, server)


GREETER = """
import socket, ssl, sys
context = ssl.create_default_context()
context.minimum_version = ssl.TLSVersion.TLSv1_3
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.settimeout(1.2)
try:
    context.wrap_socket(connection, server_hostname="api.test")
except OSError as e:
    print(e)
"""


def greeted_in_vain(who, command, env=None):
    """The slices of connections that were not made, of a program that cannot complete its TLS; it is in no other table."""
    perfbpf = Perfbpf(command=command, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL)
    perfbpf.end()
    check_nothing_lost(perfbpf)
    trace = check_trace(perfbpf)
    assert not call_slices(trace)
    slices = [s for s in trace["traceEvents"] if s.get("name") == "connection not made"]
    assert slices and f"{len(slices)} connection{'s' * (len(slices) > 1)} not made\n" in perfbpf.err(), (who, slices, perfbpf.err())
    assert not [s for s in trace["traceEvents"] if s.get("name") == "connection"], who
    return slices


@cases([(name, name) for name in ("session", "go", "bun")])
def untrusted(name):
    """A certificate that the client does not trust: its connections are told as not made, with TLS as the reason"""
    server = Server()
    server.cert = Server().cert  # another one's
    calls = [request("anthropic", "untrusted")]
    if name == "go":
        argv, env = [e2e.go_program("client-stripped"), e2e.write_config(port=server.port, ca=server.cert, calls=calls)], {}
    else:
        argv, env = e2e.client_command(name, server, calls)
    for told in greeted_in_vain(name, argv, env):
        assert told["args"]["error"] == "TLS not completed by the client", told
        assert told["args"]["peer"].endswith(f":{server.port}"), told


@case
def refused_and_unanswered():
    """TLS that the server refuses, or never answers"""
    (told,) = greeted_in_vain("refused", [PYTHON, "-c", GREETER, str(Server("--tls12").port)])
    assert told["args"]["error"] == "TLS not completed by the server" and told["args"]["host"] == "api.test", told
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (told,) = greeted_in_vain("unanswered", [PYTHON, "-c", GREETER, str(silent.getsockname()[1])])
    assert told["args"]["error"] == "TLS not answered" and abs(told["dur"] - 1.2e6) < 1e5, told


e2e.run_cases()
