#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whom perfbpf follows, and that it stops nobody: CMD's own exec, children, names, numbers that are used again."""
import glob
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import e2e
from e2e import CLIENT, PYTHON, Client, Perfbpf, Server, Skip, case, cases, check_calls, check_nothing_lost, check_trace, request

# A program that is attached to while it starts pays for the first traps.
COLD_MS = 50


def run(*argv, options=(), env=None, **popen):
    perfbpf = Perfbpf(*options, command=[str(a) for a in argv], env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                      text=True, **popen)
    out, _ = perfbpf.child.communicate(timeout=e2e.HANGS_S)
    return perfbpf, perfbpf.child.returncode, out


def client_of(server, *options):
    return [CLIENT, "--port", str(server.port), "--cacert", server.cert, "--quiet", *options]


# --- CMD is held in its exec, and nobody else anywhere --------------------------------------------------------------------


@case
def held():
    """CMD is held in its exec, and that is told"""
    server = Server()
    perfbpf, status, _ = run(*client_of(server, "--id", "held"))
    assert status == 0, perfbpf.err()
    check_calls(perfbpf, server, 1, COLD_MS)
    check_nothing_lost(perfbpf)
    ms = perfbpf.trace()["metadata"]["self"]["exec_held_ms"]
    assert 0 < ms < 500, ms
    assert f"was held {ms:.1f} ms in its exec" in perfbpf.err(), perfbpf.err()


@case
def untraced_by_ptrace():
    """neither CMD nor its children have a tracer once CMD runs"""
    script = "grep TracerPid /proc/$$/status; grep TracerPid /proc/self/status; (sleep 0; grep TracerPid /proc/self/status)"
    perfbpf, status, out = run("sh", "-c", script)
    assert status == 0, perfbpf.err()
    assert out.split() == ["TracerPid:", "0"] * 3, out


@cases(
    [
        ("gdb", ["gdb", "-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "run", "--args"]),
        ("strace", ["strace", "-f", "-o", "/dev/null"]),
        ("below a shell", ["sh", "-c", 'strace -f -o /dev/null "$@"; exit $?', "sh"]),
    ]
)
def debuggers(argv):
    """a debugger in the tree works, and what it runs is traced"""
    tool = argv[0] if argv[0] != "sh" else "strace"
    if not shutil.which(tool):
        raise Skip(f"no {tool}")
    server = Server()
    perfbpf, status, out = run(*argv, *client_of(server, "--id", "debugged"))
    assert status == 0, (out, perfbpf.err())
    # Single steps of the debugged program are slow: the times are its own.
    check_calls(perfbpf, server, 1, 2000)


@case
def privileged_program():
    """a set-user-ID program keeps its privileges under the hold"""
    folder = e2e.directory()
    program = os.path.join(folder, "id")
    shutil.copy(shutil.which("id"), program)
    os.chmod(program, 0o4755)
    os.chown(folder, 65534, 65534)
    perfbpf, status, out = run(program, "-u", env={"SUDO_UID": "65534", "SUDO_GID": "65534"}, owner=65534)
    assert status == 0, perfbpf.err()
    assert out.strip() == "0", f"effective user {out.strip()}"
    assert "exec_held_ms" in perfbpf.trace()["metadata"]["self"], perfbpf.err()


@case
def ptrace_refused():
    """without ptrace CMD runs unheld, and that is told"""
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    server = Server()
    folder = e2e.directory()
    trace = os.path.join(folder, "t.json")
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", e2e.PERFBPF, "-o", trace, "--",
         *client_of(server, "--id", "unheld")],
        capture_output=True, text=True, timeout=e2e.HANGS_S, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not held in its exec" in done.stderr, done.stderr


# --- children ------------------------------------------------------------------------------------------------------------

DAEMON = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.argv[1], sys.argv[1:])
    os._exit(0)
os.wait()
"""


@case
def double_fork():
    """a grandchild that made itself a session of its own belongs to the tree"""
    server = Server()
    perfbpf, status, _ = run(PYTHON, "-c", DAEMON, *client_of(server, "--id", "daemon", "--knobs", "delay_ms=300"))
    assert status == 0, perfbpf.err()
    check_calls(perfbpf, server, 1, COLD_MS)
    check_nothing_lost(perfbpf)


# --- names ---------------------------------------------------------------------------------------------------------------


@case
def short_lived():
    """-n: programs that live some milliseconds, one after the other"""
    server = Server()
    program = e2e.named_client()
    perfbpf = Perfbpf("-n", f"^{os.path.basename(program)}$")
    for number in range(30):
        argv = [program, *client_of(server, "--id", f"short{number}", "--knobs", "tokens=1")[1:]]
        done = subprocess.run(argv, check=False, timeout=e2e.HANGS_S)
        assert done.returncode == 0
    e2e.until(lambda: len(perfbpf.calls()) >= 30, 5, "all calls are recorded")
    assert perfbpf.end(signal.SIGINT) == 0
    check_calls(perfbpf, server, 30, COLD_MS)
    check_nothing_lost(perfbpf)


def wrapped(server, program, number):
    """A shell script of the program's name starts it and waits, as launchers of packages do."""
    script = program + ".sh"
    with open(script, "w", encoding="ascii") as f:
        f.write(f'"{program}" "$@"\nexit $?\n')
    return Client(["sh", script, *client_of(server, "--wait", "--id", f"wrapped{number}", "--knobs", "tokens=1")[1:]])


@case
def wrappers():
    """-n: of a script and the program that it starts, the program is meant; several are all traced"""
    server = Server()
    program = e2e.named_client()
    clients = [wrapped(server, program, number) for number in range(2)]
    perfbpf = Perfbpf("-n", os.path.basename(program), output=False, cwd=e2e.directory())
    for client in clients:
        line = (f"-n: {os.path.basename(program)}[{client.pid}], by its program's name; "
                f"it is started by {os.path.basename(program)}.sh[{client.child.pid}] (a shell)")
        assert line in perfbpf.err(), perfbpf.err()
        client.go()
    for client in clients:
        assert client.finish() == 0, client.lines
    assert perfbpf.end(signal.SIGINT) == 0
    assert {c["pid"] for c in perfbpf.calls()} == {client.pid for client in clients}, perfbpf.calls()
    name = os.path.basename(re.search(r"perfbpf-client\S+\.json", perfbpf.err()).group())
    assert any(name.startswith(f"perfbpf-{os.path.basename(program)}-{c.pid}-") for c in clients), name


@case
def later_wrappers():
    """-n: of those that start later it is told who is meant too"""
    server = Server()
    program = e2e.named_client()
    name = os.path.basename(program)
    perfbpf = Perfbpf("-n", name)
    client = wrapped(server, program, 0)
    line = f"-n: {name}[{client.pid}], by its program's name; it is started by {name}.sh[{client.child.pid}] (a shell)"
    e2e.until(lambda: line in perfbpf.err(), 10, "it is told")
    client.go()
    assert client.finish() == 0, client.lines
    argv = [program, *client_of(server, "--id", "gone", "--knobs", "tokens=1")[1:]]
    assert subprocess.run(argv, check=False, timeout=e2e.HANGS_S).returncode == 0
    assert perfbpf.end(signal.SIGINT) == 0
    assert re.findall(r"-n: (.*?)\[", perfbpf.err()) == [name, name], perfbpf.err()


RENAMED = """
import ctypes, http.client, ssl, sys, threading
sys.stdin.readline()
def work():
    ctypes.CDLL(None).prctl(15, b"HTTP Client", 0, 0, 0)
    c = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=ssl._create_unverified_context())
    c.request("POST", "/renamed0/v1/messages?tokens=2", '{"model":"m","stream":true,"messages":[]}')
    c.getresponse().read()
    print("tid", threading.get_native_id(), flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@case
def renamed_thread():
    """-n: the name is the program's; the thread that calls has another one"""
    server = Server()
    script = os.path.join(e2e.directory(), f"agent{os.getpid()}")
    with open(script, "w", encoding="ascii") as f:
        f.write(RENAMED)
    client = Client([PYTHON, script, str(server.port)], waits=False)
    perfbpf = Perfbpf("-n", f"^{os.path.basename(script)}$")
    client.go()
    assert client.finish() == 0, client.lines
    e2e.until(perfbpf.calls, 10, "the call is recorded")
    assert perfbpf.end(signal.SIGINT) == 0
    (call,) = perfbpf.calls()
    assert f"tid {call['tid']}" in client.lines and call["pid"] == client.pid != call["tid"], (call, client.lines)
    assert call["process"].startswith("python3"), call["process"]
    assert not any("HTTP Client" in json.dumps(e) for e in check_trace(perfbpf)["traceEvents"])


@case
def number_used_again():
    """two programs with one process id stay two"""
    last = "/proc/sys/kernel/ns_last_pid"
    if not os.access(last, os.W_OK):
        raise Skip("process ids cannot be chosen here")
    server = Server()
    program = e2e.named_client()
    perfbpf = Perfbpf("-n", f"^{os.path.basename(program)}$")
    first = subprocess.Popen([program, *client_of(server, "--id", "again0")[1:]])
    first.wait(e2e.HANGS_S)
    for attempt in range(1, 50):
        with open(last, "w", encoding="ascii") as f:
            f.write(str(first.pid - 1))
        second = subprocess.Popen([program, *client_of(server, "--id", f"again{attempt}")[1:]])
        second.wait(e2e.HANGS_S)
        if second.pid == first.pid:
            break
    else:
        raise Skip("another program took the number each time")
    e2e.until(lambda: len(perfbpf.calls()) >= attempt + 1, 5, "all calls are recorded")
    assert perfbpf.end(signal.SIGINT) == 0
    calls = check_calls(perfbpf, server, attempt + 1, COLD_MS)
    assert sum(c["pid"] == first.pid for c, _ in calls) == 2
    trace = check_trace(perfbpf)
    tracks = {e["pid"] for e in e2e.call_slices(trace)}
    assert len(tracks) == attempt + 1, f"{len(tracks)} tracks of {attempt + 1} programs: {tracks}"
    assert trace["metadata"]["agent_count"] == attempt + 1, trace["metadata"]


# --- system-wide ---------------------------------------------------------------------------------------------------------


def ours(perfbpf, server):
    """Other programs of this machine may call models too while these tests run."""
    return [c for c in perfbpf.calls() if c["peer"] and c["peer"]["port"] == server.port]


OTHERS_MANY = 1000  # calls of other programs: what is lost then may be ours


def wait_for_calls(perfbpf, server, count):
    try:
        e2e.until(lambda: len(ours(perfbpf, server)) >= count, 10, f"{count} calls")
    except AssertionError as error:
        others = len(perfbpf.calls()) - len(ours(perfbpf, server))
        if others > OTHERS_MANY:
            raise e2e.Skip(f"other programs of this machine made {others} calls meanwhile") from error
        raise AssertionError(f"{error}; {perfbpf.err()}") from error


@cases([("-a", ["-a"]), ("without a target", [])])
def everything(options):
    """programs that run already, and those that start later, whatever they are"""
    server = Server()
    calls = [request("anthropic", "now-1", "tokens=5&delay_ms=20"), request("openai.chat", "now-2", "tokens=4")]
    argv, env = e2e.client_command("session", server, calls, wait=True)
    client = Client(argv, env)
    silent = Client([PYTHON, "-c", "import os, ssl, sys; print('pid', os.getpid(), flush=True); sys.stdin.readline()"])
    perfbpf = Perfbpf(*options)
    client.go()
    assert client.finish() == 0
    for number in range(10):
        assert subprocess.run(client_of(server, "--id", f"later{number}"), check=False, timeout=e2e.HANGS_S).returncode == 0
    with subprocess.Popen(["curl", "-sk", f"https://127.0.0.1:{server.port}/no-model"], stdout=subprocess.DEVNULL) as fetched:
        fetched.wait(e2e.HANGS_S)
    wait_for_calls(perfbpf, server, 12)
    silent.go()
    silent.finish()
    assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
    truth = server.truth()
    for call in ours(perfbpf, server):
        e2e.check_call(call, truth[e2e.key_of(call["path"])], COLD_MS)
    assert len(ours(perfbpf, server)) == 12, len(ours(perfbpf, server))  # what programs of others lost is counted too
    trace = check_trace(perfbpf)
    callers = {e["pid"] for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") == "llm"}
    shown = {e["pid"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
    # Others' programs may be shown for what they do: one that talks to a model's host, and cannot be read.
    assert callers <= shown and not shown & {silent.pid, fetched.pid}, (callers, shown)
    assert {c["pid"] for c in ours(perfbpf, server)} <= callers, (shown, callers)
    assert trace["metadata"]["agent_count"] >= 11, trace["metadata"]
    if fetched.returncode == 0:
        assert "(others)" in perfbpf.err(), perfbpf.err()


@case
def known_agent():
    """a known agent is shown by the name that people call it"""
    server = Server()
    program = os.path.join(e2e.directory(), "opencode")
    shutil.copy(CLIENT, program)
    perfbpf = Perfbpf("-a")
    assert subprocess.run([program, *client_of(server, "--id", "agent")[1:]], check=False, timeout=e2e.HANGS_S).returncode == 0
    wait_for_calls(perfbpf, server, 1)
    assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
    (call,) = ours(perfbpf, server)
    assert (call["process"], call["agent"]) == ("opencode", "opencode"), call
    assert call["exe"] == program, call


def anonymous_kib(pid):
    for line in e2e.read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon")


@case
def many_processes():
    """starting and stopping among 300 processes: less than 2 s, less than 64 MiB"""
    server = Server()
    script = "import ssl, time; print('ready', flush=True); time.sleep(300)"
    crowd = [e2e.start([PYTHON, "-c", script], stdout=subprocess.PIPE) for _ in range(60)]
    crowd += [e2e.start(["sleep", "300"]) for _ in range(240)]
    for child in crowd[:60]:
        child.stdout.readline()
    begin = time.monotonic()
    perfbpf = Perfbpf("-a")
    started = time.monotonic() - begin
    assert subprocess.run(client_of(server, "--id", "crowd"), check=False, timeout=e2e.HANGS_S).returncode == 0
    wait_for_calls(perfbpf, server, 1)
    kib = anonymous_kib(perfbpf.child.pid)
    begin = time.monotonic()
    assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
    stopped = time.monotonic() - begin
    e2e.note(f"start {started * 1e3:.0f} ms, stop {stopped * 1e3:.0f} ms, {kib / 1024:.1f} MiB anonymous")
    slow = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # of a machine that has other work
    assert started + stopped < 2 * slow and kib < 64 * 1024, (started, stopped, kib, slow)


# --- what nobody can read --------------------------------------------------------------------------------------------------

STRANGER = os.path.join(e2e.BUILD, "tests", "strangerclient")
HOST = "api.stranger.example"


def stranger(server, *options, calls=3, pause_ms=200):
    knobs = "delay_ms=60&tokens=5&gap_ms=20"
    return [STRANGER, "--port", str(server.port), "--host", HOST, "-n", str(calls), "--pause-ms", str(pause_ms),
            "--knobs", knobs, *options]


def turns_of(trace):
    """Undecoded turns with their phases, by begin."""
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    turns = sorted((e for e in slices if e["name"] == "undecoded"), key=lambda e: e["ts"])
    for turn in turns:
        end = turn["ts"] + turn["dur"]
        turn["phases"] = {
            e["name"]: e for e in slices
            if e.get("cat") == "net,phase" and e["tid"] == turn["tid"] and turn["ts"] <= e["ts"] <= end
        }
    return turns


def check_turns(trace, lines, reason, slack_ms=20):
    """Against what the client saw of its calls."""
    seen = [dict(zip(line.split()[2::2], map(int, line.split()[3::2]))) for line in lines if line.startswith("call ")]
    turns = turns_of(trace)
    assert len(turns) == len(seen), f"{len(turns)} turns of {len(seen)} calls: {turns}"
    start_ns = int(trace["metadata"]["start_boot_ns"])
    for turn, call in zip(turns, seen):
        args = turn["args"]
        assert reason in args["undecoded"] and args["host"] == HOST, args
        end_ms = (turn["ts"] + turn["dur"]) / 1e3
        wait = turn["phases"]["wait"]
        for got_ms, want_ns in ((wait["ts"] / 1e3, call["send_ns"]), ((wait["ts"] + wait["dur"]) / 1e3, call["first_ns"]),
                                (end_ms, call["last_ns"])):
            want_ms = (want_ns - start_ns) / 1e6
            assert abs(got_ms - want_ms) < slack_ms, (got_ms, want_ms, turn)
        assert args["sent_bytes"] > 200 and args["received_bytes"] > 500 and args["max_gap_ms"] > 55, args
    opened = "connect" in turns[0]["phases"] and "tls" in turns[0]["phases"]
    assert opened or e2e.opened_earlier(trace, turns[0]["ts"] / 1e3), turns[0]
    assert "connect" not in turns[1]["phases"], turns[1]


@case
def fallback():
    """a TLS stack that nobody knows: turns by TCP alone, with the reason"""
    server = Server()
    perfbpf, status, out = run(*stranger(server))
    assert status == 0, perfbpf.err()
    check_turns(check_trace(perfbpf), out.splitlines(), "no TLS functions found in " + STRANGER)
    assert "1          0" in perfbpf.err() or "undecoded: no TLS functions" in perfbpf.err(), perfbpf.err()
    assert not perfbpf.calls(), "a turn is no call"


@case
def fallback_warned():
    """and a warning within 10 s; --strict ends with 3"""
    server = Server()
    perfbpf, status, _ = run(*stranger(server, calls=2, pause_ms=5000), options=["--strict"])
    assert status == 3, (status, perfbpf.err())
    assert f"TLS to {HOST} is not read: no TLS functions found" in perfbpf.err(), perfbpf.err()
    assert perfbpf.lost() == {"untraced_targets": 1}, perfbpf.lost()


@case
def watchdog():
    """probed functions that never run: a warning within 10 s, one attach anew, and the coverage tells"""
    server = Server()
    client = Client(["sh", "-c", 'echo pid $$; read line; exec "$@"', "sh", *stranger(server, "--decoy", calls=3, pause_ms=5000)])
    perfbpf = Perfbpf("-p", client.pid)
    begin = time.monotonic()
    client.go()
    e2e.until(lambda: "TCP bytes without plaintext" in perfbpf.err(), 10, f"a warning; {perfbpf.err()}")
    e2e.note(f"warned after {time.monotonic() - begin:.1f} s")
    assert client.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    assert perfbpf.err().count("are probed: probed again") == 1, perfbpf.err()
    assert "nor did they when they were probed again" in perfbpf.err().split("coverage")[1], perfbpf.err()
    check_turns(check_trace(perfbpf), client.lines, "TLS functions that are probed did not run")


HASTY = """
import sys
sys.stdin.readline()
import http.client, ssl
for i in range(3):
    c = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=ssl._create_unverified_context())
    c.request("POST", f"/hasty{i}/v1/messages?tokens=2", '{"model":"m","stream":true,"messages":[]}')
    c.getresponse().read()
    c.close()
    if not i:
        sys.stdin.readline()
"""


WAITING = """
import http.client, ssl, sys, time
c = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=ssl._create_unverified_context())
c.connect()
time.sleep(0.05)  # the kernel knows the latest bytes of both directions to a tick
for i in range(2):
    c.request("POST", f"/waiting{i}/v1/messages", '{"model":"m","messages":[]}')
    if not i:
        print("asked", flush=True)
    c.getresponse().read()
    sys.stdin.readline()
"""


ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 200\r\n\r\n{"usage":{"output_tokens":7}' + b" " * 171 + b"}"


def one_write_server(certificate, waits):
    """Its port: one TLS connection on 8443, each answer one record, after that many seconds."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    try:
        listener = socket.create_server(("127.0.0.1", 8443))
    except OSError as e:
        raise Skip(f"port 8443: {e}") from None

    def serve():
        with listener, context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            for wait in waits:
                connection.recv(65536)
                time.sleep(wait)
                connection.sendall(ANSWER)
            connection.recv(1)

    threading.Thread(target=serve, daemon=True).start()


@case
def waited_for_at_the_start():
    """an answer that a program waits for in a read when tracing begins: that read is not heard, its wait is told all the same"""
    one_write_server(e2e.make_certificate(e2e.directory()), [2, 0])
    client = Client([PYTHON, "-c", WAITING, "8443"], waits=False)
    assert client.child.stdout.readline() == "asked\n"
    asked = time.monotonic()
    perfbpf = Perfbpf("-p", client.pid)
    assert time.monotonic() - asked < 1.9, "it was answered before"
    time.sleep(2.3)
    client.go()
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err() or "?"
    assert [e2e.key_of(c["path"]) for c in perfbpf.calls()] == ["/waiting1/v1/messages"], perfbpf.err()
    assert perfbpf.lost() == {"late_attach": 1}, (perfbpf.lost(), perfbpf.err())
    assert re.search(rf"pid {client.pid} \(python.*\): 127.0.0.1:8443 has sent nothing since it was sent something [01]\.\d s ago",
                     perfbpf.err()), perfbpf.err()
    (turn,) = turns_of(check_trace(perfbpf))
    assert 1900 < turn["args"]["first_byte_ms"] < 2100 and "sent_bytes" not in turn["args"], turn


@case
def missed_calls_are_counted():
    """a call that was answered before its library was probed is counted"""
    server = Server()
    folder = e2e.directory()
    for name in ("libssl.so.3", "libcrypto.so.3"):
        shutil.copy(os.path.realpath(glob.glob(f"/usr/lib/*/{name}")[0]), os.path.join(folder, name))
    client = Client([PYTHON, "-c", HASTY, str(server.port)], {"LD_LIBRARY_PATH": folder}, waits=False)
    perfbpf = Perfbpf("-p", client.pid)
    perfbpf.child.send_signal(signal.SIGSTOP)  # nobody can be so slow otherwise
    client.go()
    e2e.until(server.truth, 10, "the first call")
    perfbpf.child.send_signal(signal.SIGCONT)
    e2e.until(lambda: folder in subprocess.run([e2e.PERFBPF, "check", "-p", str(client.pid)], capture_output=True, text=True,
                                               check=False).stdout, 10, "the library is mapped")
    time.sleep(0.5)
    client.go()
    assert client.finish() == 0, client.lines
    assert perfbpf.end() == 0, perfbpf.err() or "?"
    paths = sorted(e2e.key_of(c["path"]) for c in perfbpf.calls())
    assert paths == ["/hasty1/v1/messages", "/hasty2/v1/messages"], (paths, perfbpf.err())
    assert perfbpf.lost() == {"late_attach": 1}, (perfbpf.lost(), turns_of(perfbpf.trace()), perfbpf.err())
    assert "requests made before they could be seen" in perfbpf.err(), perfbpf.err()
    (turn,) = turns_of(check_trace(perfbpf))
    reason = turn["args"]["undecoded"]
    assert "probed after it began" in reason or "did not run" in reason, turn


@case
def attach_anew_keeps_the_others():
    """what is probed anew goes on for programs that use it"""
    server = Server()
    argv, env = e2e.client_command("session", server, [request("anthropic", f"other-{i}") for i in range(2)], wait=True)
    client = Client(argv, env)
    strange = Client(["sh", "-c", 'echo pid $$; read line; exec "$@"', "sh", *stranger(server, "--decoy", calls=2, pause_ms=5000)])
    perfbpf = Perfbpf("-p", f"{client.pid},{strange.pid}")
    strange.go()
    e2e.until(lambda: "probed again" in perfbpf.err(), 10, f"a warning; {perfbpf.err()}")
    client.go()
    assert client.finish() == 0
    assert strange.finish() == 0
    assert perfbpf.end() == 0, perfbpf.err()
    calls = perfbpf.calls()
    assert sorted(e2e.key_of(c["path"]) for c in calls) == ["/other-0/v1/messages", "/other-1/v1/messages"], calls


@case
def only_whom_it_concerns():
    """system-wide an unreadable program is shown when its host is a model's, else counted"""
    server = Server()
    perfbpf = Perfbpf("-a")
    for host in ("api.openai.com", "files.example.org"):
        argv = stranger(server, calls=1)
        argv[argv.index("--host") + 1] = host
        assert subprocess.run(argv, stdout=subprocess.DEVNULL, check=False, timeout=e2e.HANGS_S).returncode == 0
    time.sleep(0.3)
    assert perfbpf.end(signal.SIGINT) == 0, perfbpf.err()
    hosts = [t["args"].get("host") for t in turns_of(check_trace(perfbpf))]
    assert hosts.count("api.openai.com") == 1 and "files.example.org" not in hosts, hosts
    assert "files.example.org" not in e2e.read_text(perfbpf.trace_path)


@case
def default_name():
    """the trace of a system-wide run is called so"""
    folder = e2e.directory()
    done = subprocess.run([e2e.PERFBPF, "-a", "-d", "0.3"], cwd=folder, capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
    assert done.returncode == 0, done.stderr
    (name,) = os.listdir(folder)
    assert re.fullmatch(r"perfbpf-system-\d+-\d{8}T\d{6}\.json", name), name


e2e.run_cases()
