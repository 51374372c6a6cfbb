#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plays a script as an agent would: calls, tools, sub-agents, pauses, in the request shapes of real agents.

agent.py SCRIPT.json: {"port", "ca", "truth": file that lines are appended to, "sessions": [{"client": one of SHAPES,
"id", "steps", "process": play it in a child process}, …]}. Sessions run at once. Steps:

  {"do": "human" | "notice", "text"}: the newest item of the next request
  {"do": "call", "name", "knobs", "tools": [TOOL…], "parallel", "retries": [{"knobs", "wait_ms"}…],
   "late": {"after_ms", "ms"}, "abort_ms"}: asked again after each retry's wait; reads nothing for a while; the person
   breaks it off after so long
  {"do": "helper", "name", "knobs"}: a call beside the conversation, at the same time
  {"do": "prewarm", "name"}: codex alone
  {"do": "pause", "ms"}
  {"do": "ready"}: prints its pid and waits for a line

  TOOL: {"name", "kind", "ms"}: sleep, burn and run ("command") are children (bash -c, a session of their own), serve one that goes
  on while the tool returns, inner is a pause of this process, compute its own work; agent is a sub-agent in a thread ("steps", "type"; with "async" the tool
  returns at once and the session waits
  for it at its end, or at {"do": "join"}), agent_process one in a child process ("client": of another kind).

The truth: a line for each thing done, times CLOCK_BOOTTIME, beside what the model server writes of the same calls.
"""
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from http.client import HTTPConnection

import ws

CFG = {}
FAILED = []


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def tell(what, **line):
    text = json.dumps({"what": what, "pid": os.getpid(), **line}) + "\n"
    fd = os.open(CFG["truth"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, text.encode())
    os.close(fd)


def sleep(ms):
    time.sleep(ms / 1e3)


# --- connections ---------------------------------------------------------------------------------------------------------


def connect(line):
    """A TLS connection; its set-up goes into the line."""
    context = ssl.create_default_context(cafile=CFG["ca"])
    line["connect_ns"] = now()
    plain = socket.create_connection(("127.0.0.1", CFG["port"]))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line["connected_ns"] = now()
    tls = context.wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=False)
    line["handshake_ns"] = now()
    tls.do_handshake()
    line["tls_ns"] = now()
    return tls


def documents(data):
    """The JSON texts of an answer: events of a stream, or one document."""
    if data.lstrip()[:1] == b"{":
        return [json.loads(data)]
    lines = [line[5:].strip() for line in data.split(b"\n") if line.startswith(b"data:")]
    return [json.loads(line) for line in lines if line[:1] == b"{"]


def tools_of(docs):
    """[(id, name)], in order; an id may be None."""
    found = []

    def look(value):
        if isinstance(value, list):
            for v in value:
                look(v)
        if not isinstance(value, dict):
            return
        if value.get("type") == "tool_use" and value.get("id"):
            found.append((value["id"], value["name"]))
        elif value.get("type") == "function_call":
            found.append((value["call_id"], value["name"]))
        elif "functionCall" in value:
            found.append((value["functionCall"].get("id"), value["functionCall"]["name"]))
        elif isinstance(value.get("function"), dict) and value["function"].get("name") and value.get("id"):
            found.append((value["id"], value["function"]["name"]))
        else:
            for v in value.values():
                look(v)

    look(docs)
    return [t for i, t in enumerate(found) if t[0] is None or t not in found[:i]]


class Http:
    def __init__(self):
        self.connection = None

    def call(self, line, path, headers, body, late, abort_ms=None):
        if not self.connection:
            self.connection = HTTPConnection("127.0.0.1", CFG["port"])
            self.connection.sock = connect(line)
        line["begin_ns"] = now()
        self.connection.request("POST", path, body, headers)
        response = self.connection.getresponse()
        data = b""
        while True:
            piece = response.read1(65536)
            if not piece:
                break
            data += piece
            if abort_ms and now() - line["begin_ns"] >= abort_ms * 1e6:
                response.close()
                self.connection.close()
                self.connection = None
                line["end_ns"] = now()
                return 0, []
            if late and now() - line["begin_ns"] >= late["after_ms"] * 1e6:
                line["late_ns"] = [now()]
                sleep(late["ms"])
                line["late_ns"].append(now())
                late = None
        response.read()
        line["end_ns"] = now()
        return response.status, documents(data) if response.status == 200 else []


class Socket:
    """Codex's WebSocket: one message a call."""

    def __init__(self):
        self.ws = None

    def call(self, line, path, headers, message, late):
        if not self.ws:
            self.ws = ws.WebSocket({"port": CFG["port"], "path": path, "headers": headers}, connect(line))
        docs = []
        line["begin_ns"] = now()
        self.ws.send(message)
        while True:
            event = self.ws.receive()
            docs.append(event)
            if event["type"] in ws.LAST:
                break
            if late and now() - line["begin_ns"] >= late["after_ms"] * 1e6:
                line["late_ns"] = [now()]
                sleep(late["ms"])
                line["late_ns"].append(now())
                late = None
        line["end_ns"] = now()
        return docs[-1].get("status", 200), [d for d in docs if d["type"] != "response.output_item.added"]


# --- what each client sends ------------------------------------------------------------------------------------------------
# The history is a list of ("human" | "notice", text), ("answer", text, [(id, name)]) and ("results", [(id, name)]).

RESULT = "result " * 20


def messages_anthropic(history):
    out = []
    for kind, *rest in history:
        if kind == "answer":
            blocks = [{"type": "text", "text": rest[0]}]
            blocks += [{"type": "tool_use", "id": i, "name": n, "input": {}} for i, n in rest[1]]
            out.append({"role": "assistant", "content": blocks})
        elif kind == "results":
            blocks = [{"tool_use_id": i, "type": "tool_result", "content": RESULT, "is_error": False} for i, _ in rest[0]]
            out.append({"role": "user", "content": blocks})
        elif kind == "notice":
            out.append({"role": "user", "content": f"<task-notification>\n{rest[0]}\n</task-notification>"})
        else:
            reminder = {"type": "text", "text": "<system-reminder>\nToday is a day.\n</system-reminder>"}
            out.append({"role": "user", "content": [reminder, {"type": "text", "text": rest[0]}]})
    return out


def messages_chat(history):
    out = []
    for kind, *rest in history:
        if kind == "answer":
            calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in rest[1]]
            out.append({"role": "assistant", "content": rest[0], **({"tool_calls": calls} if calls else {})})
        elif kind == "results":
            out += [{"role": "tool", "tool_call_id": i, "content": RESULT} for i, _ in rest[0]]
        else:
            out.append({"role": "user", "content": rest[0]})
    return out


def items_responses(history):
    out = []
    for kind, *rest in history:
        if kind == "answer":
            continue
        if kind == "results":
            out += [{"type": "function_call_output", "call_id": i, "output": RESULT} for i, _ in rest[0]]
        else:
            out.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": rest[0]}]})
    return out


def contents_gemini(history):
    out = []
    for kind, *rest in history:
        if kind == "answer":
            calls = [{"functionCall": {"name": n, "args": {}, **({"id": i} if i else {})}} for i, n in rest[1]]
            out.append({"role": "model", "parts": [{"text": rest[0]}, *calls]})
        elif kind == "results":
            parts = [{"functionResponse": {"name": n, "response": {"output": RESULT}, **({"id": i} if i else {})}} for i, n in rest[0]]
            out.append({"role": "user", "parts": parts})
        else:
            out.append({"role": "user", "parts": [{"text": rest[0]}]})
    return out


FUNCTIONS = [{"name": n, "description": "a tool", "parameters": {"type": "object"}} for n in ("Bash", "Read", "Task")]
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}


class Claude:
    environment = {"CLAUDECODE": "1"}

    def path(self, _helper):
        return "/v1/messages?beta=true"

    def headers(self, s):
        out = {
            "user-agent": "claude-cli/2.1.332 (external, cli)",
            "x-app": "cli",
            "anthropic-version": "2023-06-01",
            "x-stainless-retry-count": "0",
            "x-claude-code-session-id": s.root.id,
        }
        if s.parent:
            out["x-claude-code-agent-id"] = s.id
            if s.parent.parent:
                out["x-claude-code-parent-agent-id"] = s.parent.id
        return out

    def body(self, s, helper):
        user = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": s.root.id})
        out = {"model": "claude-test-1", "max_tokens": 32000, "stream": True, "metadata": {"user_id": user}}
        if helper:
            out["messages"] = [{"role": "user", "content": "Name this."}]
            out["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
            return out
        out["system"] = [{"type": "text", "text": f"You are {s.role}."}]
        out["tools"] = [{"name": f["name"], "description": "a tool", "input_schema": {"type": "object"}} for f in FUNCTIONS]
        return {**out, "messages": messages_anthropic(s.history)}


class Chat:
    """A plain SDK: no ids."""

    environment = {}
    agent = "OpenAI/Python 2.8.0"

    def path(self, _helper):
        return "/v1/chat/completions"

    def headers(self, s):  # pylint: disable=unused-argument
        return {"user-agent": self.agent}

    def body(self, s, helper):
        out = {"model": "gpt-test-1", "stream": True, "stream_options": {"include_usage": True}}
        system = {"role": "system", "content": "You write titles." if helper else f"You are {s.role}."}
        if helper:
            return {**out, "messages": [system, {"role": "user", "content": f"Name this: {helper}"}]}
        out["tools"] = [{"type": "function", "function": f} for f in FUNCTIONS]
        return {**out, "messages": [system, *messages_chat(s.history)]}


class Copilot(Chat):
    environment = {"COPILOT_CLI": "1"}
    agent = "OpenAI/JS 5.20.1"

    def headers(self, s):
        person = s.history and s.history[-1][0] == "human" and not s.parent
        out = {"user-agent": self.agent, "x-initiator": "user" if person else "agent"}
        if s.parent:
            out["x-interaction-type"] = "conversation-subagent"
        return out


class Opencode(Chat):
    environment = {"OPENCODE": "1", "AGENT": "1"}
    agent = "opencode/1.18.34 ai-sdk/provider-utils/4.0.1 runtime/bun/1.3.1"

    def headers(self, s):
        out = {"user-agent": self.agent, "x-session-id": s.id, "x-opencode-session-id": s.id}
        if s.parent:
            out["x-parent-session-id"] = out["x-opencode-parent-session-id"] = s.parent.id
        return out


class Gemini:
    environment = {"GEMINI_CLI": "1"}

    def path(self, helper):
        if helper:
            return "/v1beta/models/gemini-test-flash-lite:generateContent"
        return "/v1beta/models/gemini-test-pro:streamGenerateContent?alt=sse&tool_ids=0"

    def headers(self, s):  # pylint: disable=unused-argument
        return {"user-agent": "GeminiCLI-tui/0.61.0/gemini-test-pro (linux; x64; terminal)"}

    def body(self, s, helper):
        if helper:
            out = {"contents": [{"role": "user", "parts": [{"text": "Route this."}]}]}
            return {**out, "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}}
        out = {"systemInstruction": {"role": "user", "parts": [{"text": f"You are {s.role}."}]}}
        return {**out, "tools": [{"functionDeclarations": FUNCTIONS}], "contents": contents_gemini(s.history)}


class Codex:
    """Over a WebSocket; after the first answer only what is new is sent."""

    environment = {}

    def __init__(self):
        self.previous = None
        self.sent = 0
        self.turn = 0

    def metadata(self, s, kind):
        out = {"session_id": s.root.id, "thread_id": s.id, "turn_id": f"{s.id}-{self.turn}", "request_kind": kind}
        if s.parent:
            out.update(parent_thread_id=s.parent.id, subagent_kind="collab_spawn")
        return json.dumps(out)

    def path(self, _helper):
        return "/v1/responses"

    def headers(self, s):
        out = {
            "user-agent": "codex_exec/0.171.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.171.0)",
            "originator": "codex_exec",
            "openai-beta": "responses_websockets=2026-02-06",
            "session-id": s.root.id,
            "thread-id": s.id,
            "x-codex-turn-metadata": self.metadata(s, "turn"),
        }
        if s.parent:
            out.update({"x-openai-subagent": "collab_spawn", "x-codex-parent-thread-id": s.parent.id})
        return out

    def body(self, s, kind):
        fresh = s.history[self.sent :]
        self.turn += any(item[0] == "human" for item in fresh) and kind != "prewarm"
        out = {
            "type": "response.create",
            "model": "gpt-test-1",
            "instructions": f"You are {s.role}.",
            "input": items_responses(fresh),
            "tools": [{"type": "function", **f} for f in FUNCTIONS],
            "stream": True,
            "store": False,
            "prompt_cache_key": s.root.id,
            "client_metadata": {"session_id": s.root.id, "x-codex-turn-metadata": self.metadata(s, kind or "turn")},
        }
        if self.previous:
            out["previous_response_id"] = self.previous
        if kind == "prewarm":
            out["generate"] = False
        return out

    def answered(self, s, docs):
        self.previous = docs[-1]["response"]["id"]
        self.sent = len(s.history)


SHAPES = {"claude": Claude, "codex": Codex, "gemini": Gemini, "copilot": Copilot, "opencode": Opencode, "sdk": Chat}


# --- playing -----------------------------------------------------------------------------------------------------------------


class Session:
    def __init__(self, script, parent=None):
        self.client = script.get("client") or parent.client
        self.shape = SHAPES[self.client]()
        self.id = script.get("id") or str(uuid.uuid4())
        self.parent = parent
        self.parent_id = parent.id if parent else script.get("parent")
        self.root = parent.root if parent else self
        self.role = script.get("type") or ("a helper" if parent else "an agent")
        self.history = []
        self.steps = script["steps"]
        self.prompt = script.get("prompt", "Do it.")  # of whoever asked for a sub-agent
        self.connection = Socket() if self.client == "codex" else Http()
        self.threads = []
        self.turn = 0

    def play(self):
        tell("session", id=self.id, client=self.client, parent=self.parent_id, begin_ns=now())
        for step in self.steps:
            getattr(self, step["do"])(step)
        self.join({})

    def human(self, step):
        self.turn += 1
        self.history.append(("human", step.get("text", self.prompt)))

    def notice(self, step):
        self.turn += 1
        self.history.append(("notice", step.get("text", "The task is done.")))

    def pause(self, step):
        begin = now()
        sleep(step["ms"])
        tell("pause", session=self.id, begin_ns=begin, end_ns=now())

    def ready(self, _step):
        print("pid", os.getpid(), flush=True)
        sys.stdin.readline()

    def join(self, _step):
        while self.threads:
            self.threads.pop().join()

    def beside(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        self.threads.append(thread)

    # --- calls ---

    def exchange(self, connection, name, knobs, kind=None, late=None, **more):
        line = {"name": name, "session": self.id, "turn": self.turn, "helper": kind}
        path = self.shape.path(kind)
        body = self.shape.body(self, kind)
        headers = {"content-type": "application/json", **self.shape.headers(self)}
        knobs = f"{knobs}&id={name}"
        if self.client == "codex":
            body["metadata"] = {"test": knobs}
        else:
            headers.update({"x-test-" + key: value for key, value in (knob.split("=") for knob in knobs.split("&"))})
        status, docs = connection.call(line, path, headers, json.dumps(body), late, **more)
        tell("call", status=status, **line)
        if status == 200 and self.client == "codex":
            self.shape.answered(self, docs)
        return status, docs

    def helper(self, step):
        self.beside(self.exchange, Http(), step["name"], step.get("knobs", "tokens=3"), step.get("kind", "helper"))

    def prewarm(self, step):
        self.exchange(self.connection, step["name"], "tokens=0", "prewarm")

    def call(self, step):
        tools = step.get("tools", [])
        knobs = step.get("knobs", "tokens=3")
        if tools:
            prefix = {"claude": "toolu", "codex": "call", "gemini": "fn"}.get(self.client, "call")
            names = ":".join(t["name"] for t in tools)
            if any(t["kind"] == "agent" for t in tools):
                knobs += "&tool_argument=description:a-task:prompt:Do-part-#-of-it."
            knobs += f"&tool={len(tools)}&tool_name={names}&tool_id={prefix}_{step['name']}&tool_chunks={step.get('tool_chunks', 1)}"
        for attempt in step.get("retries", []):
            status, _ = self.exchange(self.connection, step["name"], attempt["knobs"])
            assert status != 200, status
            begin = now()
            sleep(attempt["wait_ms"])
            tell("retry_wait", session=self.id, turn=self.turn, begin_ns=begin, end_ns=now())
        if "abort_ms" in step:
            self.exchange(self.connection, step["name"], knobs, abort_ms=step["abort_ms"])
            self.history.append(("answer", "tok", []))
            return
        status, docs = self.exchange(self.connection, step["name"], knobs, late=step.get("late"))
        assert status == 200, (status, step)
        asked = tools_of(docs)
        assert len(asked) == len(tools), (asked, tools)
        self.history.append(("answer", "tok", asked))
        if self.client == "codex":
            self.shape.sent = len(self.history)
        if tools:
            self.run_tools(tools, asked, step)

    # --- tools ---

    def run_tools(self, tools, asked, step):
        threads = []
        for number, (tool, (ident, _)) in enumerate(zip(tools, asked), 1):
            tool = {**tool, "prompt": f"Do-part-{number}-of-it."}
            if not step.get("parallel"):
                self.run_tool(tool, ident, step["name"])
                continue
            thread = threading.Thread(target=self.run_tool, args=(tool, ident, step["name"]))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        self.history.append(("results", asked))

    def run_tool(self, tool, ident, call):
        line = {"name": tool["name"], "kind": tool["kind"], "id": ident, "session": self.id, "turn": self.turn, "call": call}
        line["begin_ns"] = now()
        getattr(self, f"tool_{tool['kind']}")(tool, ident, line)
        tell("tool", end_ns=now(), **line)

    def run_child(self, argv, ident, line):
        extra = dict(self.shape.environment)
        if self.client == "codex":
            extra = {"CODEX_SESSION_ID": self.root.id, "CODEX_THREAD_ID": self.id, "CODEX_TOOL_CALL_ID": ident}
        child = subprocess.Popen(argv, start_new_session=True, env={**os.environ, **extra})  # pylint: disable=consider-using-with
        line["child"] = child.pid
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        line["code"] = child.returncode
        line["cpu_ms"] = (usage.ru_utime + usage.ru_stime) * 1e3

    def tool_sleep(self, tool, ident, line):
        self.run_child(["/bin/bash", "-c", f"sleep {tool['ms'] / 1e3}; exit {tool.get('code', 0)}"], ident, line)

    def tool_burn(self, tool, ident, line):
        # in microseconds since the epoch, whatever the locale's decimal sign
        burn = f"t=${{EPOCHREALTIME//[^0-9]/}}; while (( ${{EPOCHREALTIME//[^0-9]/}} < t + {tool['ms'] * 1000} )); do :; done"
        self.run_child(["/bin/bash", "-c", burn], ident, line)

    def tool_serve(self, tool, _ident, line):
        argv = ["/bin/bash", "-c", f"sleep {tool['ms'] / 1e3}; exit 0"]
        line["child"] = subprocess.Popen(argv, start_new_session=True).pid  # pylint: disable=consider-using-with
        line["code"] = None
        sleep(100)

    def tool_run(self, tool, ident, line):
        self.run_child(["/bin/bash", "-c", tool["command"]], ident, line)

    def tool_compute(self, tool, _ident, _line):
        until_ns = now() + tool["ms"] * 1000000
        while now() < until_ns:
            pass

    def tool_inner(self, tool, _ident, _line):
        sleep(tool["ms"])

    def tool_agent(self, tool, _ident, line):
        sub = Session(tool, self)
        line["spawned"] = sub.id
        if tool.get("async"):
            self.beside(sub.play)
            sleep(tool.get("ms", 60))
        else:
            sub.play()

    def tool_agent_process(self, tool, ident, line):
        self.run_child(child_argv({**tool, "parent": self.id}), ident, line)


def child_argv(session):
    alone = {key: session[key] for key in ("client", "steps", "id", "type", "parent") if key in session}
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=os.path.dirname(CFG["truth"]), delete=False) as f:
        json.dump({**CFG, "sessions": [alone]}, f)
    return [sys.executable, os.path.abspath(__file__), f.name]


def main():
    "localhost".encode("idna")  # is imported late, inside of the first handshake
    threading.excepthook = lambda args: (FAILED.append(args), sys.__excepthook__(*args[:3]))
    with open(sys.argv[1], encoding="utf-8") as f:
        CFG.update(json.load(f))
    sessions = CFG.pop("sessions")
    children = [subprocess.Popen(child_argv(s)) for s in sessions if s.get("process")]  # pylint: disable=consider-using-with
    threads = [threading.Thread(target=Session(s).play) for s in sessions if not s.get("process")]
    if len(threads) == 1:
        threads[0].run()
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if FAILED or any([child.wait() for child in children]):
        os._exit(1)
    tell("end", end_ns=now())
    sys.stdout.flush()
    os._exit(0)  # what takes time behind the end is nobody's


if __name__ == "__main__":
    main()
