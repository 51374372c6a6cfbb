# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the live tests share: TAP, the model server, perfbpf as a child, and the comparison of a call record with the
server's truth. Standard library only."""
import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
PERFBPF = os.path.join(BUILD, "perfbpf")
SERVER = os.path.join(BUILD, "tests", "modelserver")
CLIENT = os.path.join(BUILD, "tests", "modelclient")
PYTHON = "/usr/bin/python3"
# What a loaded machine (a CI runner) may add to a time; the reports print the figures themselves.
SLACK_MS = float(os.environ.get("PERFBPF_E2E_SLACK_MS", "5"))
# How much longer than usual may pass until something happens (an emulated machine).
PATIENCE = float(os.environ.get("PERFBPF_E2E_PATIENCE", "1"))


class Pulse:
    """How late who sleeps gets its turn on this machine, since start(): as many processes as there are processors, each of which
    sleeps a moment again and again. The load average says nothing of a burst that is over, nor of a machine below this one."""

    PAUSE_S = 0.01

    def __init__(self):
        self.late = []  # memory shared with each process, which writes in seconds how late it was at most and in all; how often

    def beat(self, parent, shared):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        while os.getppid() == parent:
            due = time.monotonic() + self.PAUSE_S
            time.sleep(self.PAUSE_S)
            late = time.monotonic() - due
            shared[0] = max(shared[0], late)
            shared[1] += late
            shared[2] += 1

    def start(self):
        parent = os.getpid()
        if not self.late:
            for _ in range(min(8, os.cpu_count() or 1)):
                self.late.append(memoryview(mmap.mmap(-1, 3 * 8)).cast("d"))
                if not os.fork():
                    try:
                        self.beat(parent, self.late[-1])
                    finally:
                        os._exit(1)
        for shared in self.late:
            shared[0] = shared[1] = shared[2] = 0.0

    def late_ms(self):
        return max((1e3 * shared[0] for shared in self.late), default=0.0)

    def usual_ms(self):
        return max((1e3 * shared[1] / max(1.0, shared[2]) for shared in self.late), default=0.0)


pulse = Pulse()


def crowd(late_ms=None):
    """How many runnable programs there are for each processor, 1 where there are enough; or, in parts of SLACK_MS, how late this
    test's pulse was. The server's stamps are the truth, and on a crowded machine the client reads by so much later: what it
    waited for its turn is in its times, and right."""
    with open("/proc/loadavg", encoding="ascii") as f:
        words = f.read().split()
    running = int(words[3].split("/")[0]) - 1  # now, without this one; the average is a minute old
    crowded = min(8.0, max(1.0, max(float(words[0]), running) / (os.cpu_count() or 1)))
    return max(crowded, min(100.0, 1 + (pulse.late_ms() if late_ms is None else late_ms) / SLACK_MS))


def usual_crowd():
    """The same for what half of many calls are held to: one late turn is not that of each."""
    return crowd(pulse.usual_ms())


def slack():
    return SLACK_MS * crowd()


def usual_slack():
    return SLACK_MS * usual_crowd()


def patience(seconds):
    """How long something is waited for that takes so long at most where nobody else wants the processor."""
    return seconds * PATIENCE * min(20.0, crowd())


HANGS_S = 120  # what has not ended by then hangs, however busy the machine is
LATE_MS = 3.0  # a turn of another program, where there is a processor for everybody


def loaded():
    return os.getloadavg()[0] > 0.75 * (os.cpu_count() or 1) or pulse.late_ms() > LATE_MS


class Skip(Exception):
    pass


# --- TAP ---------------------------------------------------------------------------------------------------------------

_cases = []


def case(function):
    """A test: its docstring is its name. A function with `cases` yields (name, arguments) instead."""
    _cases.append((function.__doc__.strip().split("\n")[0], function, ()))
    return function


def cases(parameters):
    def register(function):
        for name, *arguments in parameters:
            _cases.append((f"{function.__doc__.strip()}: {name}", function, tuple(arguments)))
        return function

    return register


def note(*words):
    print("#", *words, flush=True)


def diagnose(text):
    lines = text.rstrip().split("\n")
    if len(lines) > 46:  # what is wrong is said first, what perfbpf said last
        lines[6:-40] = ["[...]"]
    for line in lines:
        print("#", line[:2000])


def run_cases():
    only = sys.argv[2] if len(sys.argv) > 2 else None
    chosen = [c for c in _cases if not only or re.search(only, c[0])]
    failed = 0
    print(f"1..{len(chosen)}", flush=True)
    reason = cannot_run()
    for number, (name, function, arguments) in enumerate(chosen, 1):
        if reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
            continue
        before = time.monotonic()
        pulse.start()
        try:
            function(*arguments)
            check_sandbox()
            check_secrets()
            print(f"ok {number} - {name} ({time.monotonic() - before:.1f} s)", flush=True)
        except Skip as skip:
            print(f"ok {number} - {name} # SKIP {skip}", flush=True)
        except BaseException as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {number} - {name}")
            diagnose(str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc())
            diagnose(f"load {os.getloadavg()[0]:.2f}, a sleeper was {pulse.late_ms():.1f} ms late, as a rule {pulse.usual_ms():.1f}, crowd {crowd():.1f}")
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            cleanup()
    sys.exit(1 if failed else 0)


def bpf_refused():
    """Why the kernel refuses BPF programs, tried with two instructions and without perfbpf; None when it does not."""
    number = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
    if not number:
        return "unknown machine"
    libc = ctypes.CDLL(None, use_errno=True)
    # r0 = 0; exit
    code = ctypes.create_string_buffer(bytes([0xB7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    attr = (ctypes.c_uint64 * 16)()
    attr[0] = 2 | (2 << 32)  # kprobe; two instructions
    attr[1] = ctypes.addressof(code)
    attr[2] = ctypes.addressof(licence)
    fd = libc.syscall(number, 5, ctypes.byref(attr), ctypes.sizeof(attr))
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    os.close(fd)
    return None


def kernel_has(tracepoint):
    """Whether this kernel has it, by its type information."""
    with open("/sys/kernel/btf/vmlinux", "rb") as f:
        return b"\0btf_trace_" + tracepoint.encode() + b"\0" in f.read()


def cannot_run():
    if os.geteuid():
        return "needs root"
    for program in (PERFBPF, SERVER, CLIENT):
        if not os.access(program, os.X_OK):
            raise SystemExit(f"Bail out! {program} is not built")
    if os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC:
        return "this pid namespace is not the initial one"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    refused = bpf_refused()
    return f"this kernel refuses BPF: {refused}" if refused else None


# --- what is started is ended --------------------------------------------------------------------------------------------

_children = []
_directories = []
_runs = []


# What no output of any test may hold: planted in the environment of all that is started, in prompts, answers and headers.
CONTENT = {"prompt": "PROMPTCANARY", "answer": "ANSWERCANARY"}
CREDENTIALS = {"environment": "ENVCANARY", "header": "HEADERCANARY"}
# What tests write is root's, also where they are run by sudo; tests of that set them.
for _name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
    os.environ.pop(_name, None)
os.environ.update(E2E_SECRET_TOKEN=CREDENTIALS["environment"], MODELCLIENT_PROMPT=CONTENT["prompt"],
                  MODELCLIENT_CREDENTIAL=CREDENTIALS["header"], MODELSERVER_WORD=CONTENT["answer"])


def check_secrets():
    """Every output of every run of the test."""
    for perfbpf in _runs:
        options = perfbpf.argv[: perfbpf.argv.index("--")] if "--" in perfbpf.argv else perfbpf.argv
        named = [options[i + 1] for i, o in enumerate(options) if o in ("-o", "-c")]
        words = CREDENTIALS if "--content" in options else {**CREDENTIALS, **CONTENT}
        for path in (perfbpf.err_path, perfbpf.trace_path, perfbpf.calls_path, *named):
            text = read_text(path) if os.path.isfile(path) else ""
            for name, word in words.items():
                assert word not in text, f"{name} is in {os.path.basename(path)}: {text[max(0, text.index(word) - 200):][:300]}"


def check_sandbox():
    """Whatever was tested: perfbpf made no system call that it forbids itself."""
    for perfbpf in _runs:
        assert "by perfbpf's own filter" not in perfbpf.err(), perfbpf.err()


def cleanup():
    for child in reversed(_children):
        if child.poll() is None:
            try:
                os.kill(child.pid, signal.SIGCONT)
                child.kill()
            except ProcessLookupError:
                pass
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe:
                pipe.close()
    _children.clear()
    _runs.clear()
    while _directories:
        shutil.rmtree(_directories.pop(), ignore_errors=True)


def start(argv, **options):
    child = subprocess.Popen(argv, **options)  # pylint: disable=consider-using-with
    _children.append(child)
    return child


def directory():
    path = tempfile.mkdtemp(prefix="perfbpf-e2e.")
    os.chmod(path, 0o755)
    _directories.append(path)
    return path


def until(condition, seconds=10, what="condition"):
    seconds = patience(seconds)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def whole_lines(path):
    """Of JSON, in a file that somebody may be writing."""
    text = read_text(path)
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def named_probes():
    """Lines of uprobe_events: what is left in there outlives its maker."""
    folder = directory()
    if subprocess.run(["mount", "-t", "tracefs", "t", folder], capture_output=True, check=False).returncode:
        return None
    text = read_text(os.path.join(folder, "uprobe_events"))
    subprocess.run(["umount", folder], check=False)
    return text.splitlines()


def key_of(path):
    return path.split("?")[0] if path else None


class Server:
    """prefix: what runs the program, as `ip netns exec NAME`."""

    def __init__(self, *options, prefix=()):
        self.dir = directory()
        self.plain = "--plain" in options
        self.cert = os.path.join(self.dir, "cert.pem")
        self.truth_path = os.path.join(self.dir, "truth.jsonl")
        self.child = start(
            [*prefix, SERVER, "--cert-out", self.cert, "--truth", self.truth_path, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.child.stdout.readline()
        assert line.startswith("listening "), f"model server: {line!r}"
        self.port = int(line.split()[1])

    def truth(self):
        """By path without query: every test gives each of its calls another first part of it."""
        return {key_of(t["path"]): t for t in whole_lines(self.truth_path)}


class Client:
    """A traced program. wait: it prints its pid and waits for go()."""

    def __init__(self, argv, env=None, waits=True):
        self.child = start(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self.lines = []
        self.pid = self.child.pid
        if waits:
            for line in self.child.stdout:
                if line.startswith("pid "):
                    self.pid = int(line.split()[1])
                    break
                self.lines.append(line)
            else:
                raise AssertionError(f"{argv[0]} ended before it was ready: {self.child.wait()}")

    def go(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def finish(self, seconds=60):
        out, _ = self.child.communicate(timeout=patience(seconds))
        self.lines += out.splitlines()
        return self.child.returncode


class Call(dict):
    """A call's record. late_ms: how long its bytes lay there before the program read them, as the trace tells it."""

    late_ms = 0.0


class Perfbpf:
    """prefix: what runs the program, as `unshare -m`. owner: the user whose folder the outputs are in."""

    def __init__(self, *options, command=None, ready=True, calls=True, output=True, quiet=False, prefix=(), owner=0, **popen):
        self.dir = directory()
        os.chown(self.dir, owner, owner)
        _runs.append(self)
        self.trace_path = os.path.join(self.dir, "trace.json")
        self.calls_path = os.path.join(self.dir, "calls.jsonl")
        self.err_path = os.path.join(self.dir, "stderr")
        self.argv = [*prefix, PERFBPF]
        if output:
            self.argv += ["-o", self.trace_path]
        if calls:
            self.argv += ["-c", self.calls_path]
        self.argv += [str(o) for o in options]
        if command:
            self.argv += ["--", *command]
        with open(self.err_path, "wb") as err:
            self.child = start(self.argv, stderr=err, stdin=subprocess.DEVNULL, **popen)
        if ready and not command and not quiet:
            until(self.is_ready, 20, "perfbpf says that it traces")
            assert self.child.poll() is None, f"perfbpf ended: {self.err()}"

    def is_ready(self):
        return self.child.poll() is not None or "tracing " in self.err()

    def err(self):
        return read_text(self.err_path)

    def end(self, how=None, seconds=30):
        """Its exit status, after a signal or by itself."""
        if how:
            self.child.send_signal(how)
        seconds = patience(seconds)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"perfbpf did not end within {seconds} s; stderr:\n{self.err()}") from error

    def records(self, kind):
        text = read_text(self.calls_path)
        if self.child.poll() is None:  # the last line may not be whole yet
            text = text[: text.rfind("\n") + 1]
        records = [json.loads(line) for line in text.splitlines()]
        return [r for r in records if r.get("type", "call") == kind]

    def calls(self):
        late, found = self.late_reads(), []
        for record in self.records("call"):
            found.append(Call(record))
            found[-1].late_ms = late.get(record["id"], 0.0)
        return found

    def late_reads(self):
        """By call, in ms; of a run that has ended."""
        if self.child.poll() is None or not os.path.isfile(self.trace_path):
            return {}
        return {s["args"]["call_id"]: s["args"].get("client_late_ms", 0.0) for s in call_slices(self.trace())}

    def others(self, kind):
        return sorted(self.records(kind), key=lambda r: r["start_ms"])

    def db(self):
        return self.others("db")

    def http(self):
        return self.others("http")

    def trace(self):
        with open(self.trace_path, encoding="utf-8") as f:
            return json.load(f)

    def lost(self):
        return {k: v for k, v in self.trace()["metadata"]["lost"].items() if v}


# --- requests ------------------------------------------------------------------------------------------------------------

PATHS = {
    "anthropic": "/v1/messages",
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
}


def request(api, name, knobs="", stream=True, model=None, headers=None, prompt=CONTENT["prompt"]):
    model = model or {"anthropic": "claude-test-1"}.get(api, "gpt-test-1")
    message = [{"role": "user", "content": prompt}]
    body = {"model": model, "stream": stream}
    if api == "openai.responses":
        body.update(input=message, max_output_tokens=100)
    else:
        body.update(messages=message, max_tokens=100)
    if api == "openai.chat" and stream:
        body["stream_options"] = {"include_usage": True}
    path = f"/{name}{PATHS[api]}" + (f"?{knobs}" if knobs else "")
    return {"path": path, "body": body, "headers": {"authorization": f"Bearer {CREDENTIALS['header']}", **(headers or {})}}


def make_certificate(directory):
    path = os.path.join(directory, "cert.pem")
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", path, "-out", path + ".crt"]
    subprocess.run(argv, check=True, capture_output=True)
    with open(path, "a", encoding="utf-8") as out:
        out.write(read_text(path + ".crt"))
    return path


def need_module(name):
    done = subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True, check=False)
    if done.returncode:
        raise Skip(f"no python3-{name}")


def usual_calls(prefix):
    """Of each kind one: three dialects, streams and a document, reasoning, tools, gzip, cuts inside characters."""
    return [
        request("anthropic", f"{prefix}-1", "tokens=12&delay_ms=20&gap_ms=2&cache_read=40&cache_write=10"),
        request("openai.chat", f"{prefix}-2", "tokens=6&reasoning=3&delay_ms=10&gap_ms=1&utf8=1&utf8_cut=1&split=50"),
        request("openai.responses", f"{prefix}-3", "tokens=9&tool=1&burst=3&delay_ms=10&gap_ms=1&reasoning=2"),
        request("anthropic", f"{prefix}-4", "tokens=20&delay_ms=15", stream=False),
        request("openai.chat", f"{prefix}-5", "tokens=10&delay_ms=10&gap_ms=1&gzip=1&cache_read=64&tool=2"),
    ]


def write_config(**cfg):
    path = os.path.join(directory(), "calls.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(cfg, f)
    os.chmod(path, 0o644)
    return path


def client_command(mode, server, calls, **cfg):
    """argv and environment of a client of clients/ that makes these calls."""
    plain = server.child.args.count("--plain") > 0
    if not plain:
        cfg["ca"] = server.cert
    path = write_config(mode=mode, port=server.port, plain=plain, calls=calls, **cfg)
    if mode in ("node", "http2"):
        node = shutil.which("node")
        if not node:
            raise Skip("no node")
        script = os.path.join(HERE, "clients", "client.mjs" if mode == "node" else "http2.mjs")
        return [node, script, path], {} if plain else {"NODE_EXTRA_CA_CERTS": server.cert}
    if mode.startswith(("bun", "deno")):
        script = [os.path.join(HERE, "clients", "client.mjs"), path]
        options = ["run", "--allow-all", "--no-config", "--no-lock", "--unsafely-ignore-certificate-errors"] if mode == "deno" else ["run"]
        return [npm_program(mode), *options, *script], {"NODE_EXTRA_CA_CERTS": server.cert}
    if mode.startswith("websocket "):
        name = mode.split()[1]
        script = [os.path.join(HERE, "clients", "websocket.mjs"), path]
        options = {"deno": ["run", "--allow-all", "--no-config", "--no-lock"], "bun": ["run"]}.get(name.split("-")[0], [])
        return [npm_program(name), *options, *script], {"NODE_EXTRA_CA_CERTS": server.cert}
    if mode in ("ws", "h2c"):
        return [PYTHON, os.path.join(HERE, "clients", f"{mode}.py"), path], {}
    return [PYTHON, os.path.join(HERE, "clients", "client.py"), path], {}


def named_client():
    """The client under a name that nobody else's programs have, for what follows names."""
    program = os.path.join(directory(), f"client{os.getpid()}")
    shutil.copy(CLIENT, program)
    return program


def npm_program(name):
    """A program that `make clients` fetched: "bun", "bun-1.1", "deno" …"""
    path = os.path.join(BUILD, "clients", name)
    if not os.access(path, os.X_OK):
        raise Skip(f"no {name}: 'make clients' could not fetch it")
    return os.path.realpath(path)


def go_program(name):
    """A program of clients/ in Go, as `make tools` built it: "client", "client-stripped", "client-pie", "load" …"""
    path = os.path.join(BUILD, "tests", "go", name)
    if not os.access(path, os.X_OK):
        raise Skip("no go" if not shutil.which("go") else f"{path} is not built")
    return path


# --- comparison ------------------------------------------------------------------------------------------------------------


def server_ttft_ms(truth):
    return (truth["first_token_ns"] - truth["first_byte_ns"]) / 1e6


def ttft_error_ms(call, truth):
    """How far it is from the server's, without what lay there because the client did not read."""
    error = call["ttft_ms"] - server_ttft_ms(truth)
    return max(-error, error - call.late_ms, 0.0)


def expect(call, key, value):
    assert key in call, f"{key} is missing in the record of {call.get('path')}"
    assert call[key] == value, f"{key} is {call[key]!r}, not {value!r}, in the record {call}"


def check_usage(call, truth):
    usage = truth["usage"]
    if usage is None or not usage["final"]:
        return
    assert call["usage"], f"no usage in the record of {call['path']}"
    for field in ("input_uncached", "cache_read", "cache_write", "input_total", "output_total", "reasoning"):
        assert call["usage"][field] == usage[field], (
            f"usage.{field} is {call['usage'][field]!r}, not {usage[field]!r}, of {call['path']}"
        )
    assert call["usage"]["source"] == "reported", call["usage"]
    if usage["cache_read"] is None:
        expect(call, "cache_hit_rate", None)
    elif usage["input_total"]:
        assert abs(call["cache_hit_rate"] - usage["cache_read"] / usage["input_total"]) < 1e-3, call


def check_times(call, truth, slack_ms):
    """By the server's stamps. What was there and not read is the client's own delay: of a crowded machine, or a busy program."""
    slack_ms = max(slack_ms, SLACK_MS) * crowd()
    late_ms = getattr(call, "late_ms", 0.0)
    for key in ("ttfb_ms", "end_ms"):
        assert call[key] is not None and call[key] >= 0, f"{key} is {call[key]} of {call['path']}"
    assert call["send_ms"] is None or 0 < call["send_ms"] <= call["ttfb_ms"], call
    assert call["ttfb_ms"] <= call["end_ms"], call
    if not truth["tokens_ns"]:
        expect(call, "ttft_ms", None)
        return
    expect(call, "chunks", len(truth["tokens_ns"]))
    expect(call, "ttft_kind", truth["kind"])
    assert -slack_ms <= call["ttft_ms"] - server_ttft_ms(truth) <= slack_ms + late_ms, (
        f"ttft {call['ttft_ms']} ms, by the server {server_ttft_ms(truth):.3f} ms, of {call['path']}"
    )
    last_ms = (truth["last_token_ns"] - truth["first_byte_ns"]) / 1e6
    assert -slack_ms <= call["last_token_ms"] - last_ms <= slack_ms + late_ms, (
        f"last token {call['last_token_ms']} ms, by the server {last_ms:.3f} ms, of {call['path']}"
    )
    assert call["ttfb_ms"] <= call["ttft_ms"] <= call["last_token_ms"] <= call["end_ms"], call


def check_call(call, truth, slack_ms=SLACK_MS):
    """A record of a call that went well, against what the server did."""
    for key in ("api", "model", "request_model", "method", "status", "stream", "stop_reason", "error"):
        expect(call, key, truth[key])
    expect(call, "protocol", truth["protocol"])
    expect(call, "complete", True)
    expect(call, "end_reason", None)
    expect(call, "lossy", False)
    expect(call, "undecoded", None)
    expect(call, "request_bytes", truth["request_bytes"])
    # of a WebSocket it is the payload alone, which is less than what was written
    assert call["response_bytes"] >= (1 if truth["protocol"] == "websocket" else truth["body_bytes"]), call
    assert len(call["tool_calls"] or []) == truth["tools"], call
    assert "text" not in call or call["text"] is None, "text without --content"
    check_usage(call, truth)
    check_times(call, truth, slack_ms)


def check_calls(perfbpf, server, count, slack_ms=SLACK_MS, skip=()):
    """Every call of the server's truth has one record, and each is exact. Returns the pairs."""
    skip = [key_of(path) for path in skip]

    def told():
        return {k: t for k, t in server.truth().items() if k not in skip}

    # It tells of a call when that is answered: everybody else may have gone by then.
    until(lambda: len(told()) >= count, 10, f"the server saw {len(told())} calls, not {count}")
    truth = told()
    calls = perfbpf.calls()
    paths = [key_of(c["path"]) for c in calls]
    assert len(truth) == count, f"the server saw {len(truth)} calls, not {count}"
    missing = sorted(set(truth) - set(paths))
    assert not missing, f"no record of {missing}; stderr:\n{perfbpf.err()}"
    assert len(paths) == len(set(paths)), f"two records of one call: {sorted(paths)}"
    assert len(calls) == count, f"{len(calls)} records, not {count}: {sorted(set(paths) - set(truth))}"
    for call in calls:
        check_call(call, truth[key_of(call["path"])], slack_ms)
        # the entry of a write to a plain socket is not seen
        assert server.plain or call["send_ms"] is not None, call
    return [(c, truth[key_of(c["path"])]) for c in calls]


SETUP_WAIT_MS = 50  # from a connection that is ready to its first call: after more than that it was not opened for it


def opened_earlier(trace, start_ms, peer=None):
    """Whether there is a connection (to this "IP:PORT") that counts as opened for nothing: it was there so long before a call
    that began then, whose program got no turn meanwhile (a crowded machine). It is drawn by itself."""
    alone = [e for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") == "net" and e["name"] == "connection"]
    alone = [e for e in alone if peer in (None, e["args"].get("peer"))]
    return any(start_ms - SETUP_WAIT_MS > (e["ts"] + e["dur"]) / 1e3 for e in alone)


def check_paid(call, plain=False):
    """The first call of the latest run's connection paid for it, or it was opened earlier. Whether it paid."""
    if call["connect_ms"] is not None and (plain or call["tls_ms"] is not None):
        return True
    assert call["connect_ms"] is None and call["tls_ms"] is None, call
    address = call["peer"] and ("[{ip}]:{port}" if ":" in call["peer"]["ip"] else "{ip}:{port}").format(**call["peer"])
    assert opened_earlier(_runs[-1].trace(), call["start_ms"], address), f"the first call pays for its connection: {call}"
    return False


def check_nothing_lost(perfbpf):
    assert not perfbpf.lost(), f"lost: {perfbpf.lost()}"


def trace_problems(trace):
    """What no viewer takes: partial overlap on a lane, negative or missing times."""
    problems = []
    lanes = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
            if event["ts"] < 0 or event.get("dur", -1) < 0:
                problems.append(f"bad time: {event}")
    for lane, events in lanes.items():
        stack = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            while stack and stack[-1] <= begin:
                stack.pop()
            if stack and end > stack[-1]:
                problems.append(f"overlap on {lane}: {event['name']} at {event['ts']}")
            stack.append(end)
    return problems


def check_trace(perfbpf):
    trace = perfbpf.trace()
    problems = trace_problems(trace)
    assert not problems, "\n".join(problems[:10])
    checker = os.path.join(os.path.dirname(HERE), "tools", "tracecheck.py")
    if os.path.exists(checker):
        done = subprocess.run(
            [PYTHON, checker, perfbpf.trace_path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"tracecheck: {done.stdout[-2000:]}{done.stderr[-500:]}"
    return trace


def call_slices(trace):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") == "llm"]


def finish(perfbpf, server, count, slack_ms, skip=()):
    """The target has ended, and so perfbpf ends by itself: all calls are there and exact. Returns the pairs."""
    status = perfbpf.end()
    assert status == 0, f"exit status {status}; stderr:\n{perfbpf.err()}"
    pairs = check_calls(perfbpf, server, count, slack_ms, skip)
    check_nothing_lost(perfbpf)
    trace = check_trace(perfbpf)
    assert len(call_slices(trace)) == count, f"{len(call_slices(trace))} call slices, not {count}"
    assert trace["metadata"]["call_count"] == count, trace["metadata"]
    return pairs


def check_method(perfbpf, method):
    methods = {f["method"] for f in perfbpf.trace()["metadata"]["attach"] if f["functions"]}
    assert method in methods, f"attached by {methods}; stderr:\n{perfbpf.err()}"
