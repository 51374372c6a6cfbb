#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""session.py >events.jsonl: a coding agent's session of 200 calls, as event lines for jsonl2cap.

Ten turns of 20 calls. In each the agent thinks, runs two tools in parallel (one through a child process), asks an MCP server, starts
seven sub-agents that work while a title is made for the session (so that eight calls are open at once), and answers. Connections are
set up, some lose packets, some answers stall for over a second, one refusal is tried again.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden"))
import make_cases as wire  # noqa: E402

TURNS, HELPERS = 10, 7
CALLS, AT_ONCE = TURNS * (4 + 2 * HELPERS + 2), HELPERS + 1
SESSION = "6f1d2f6e-0000-4000-8000-00000000a001"
AGENT, SERVER_OBJECT = 700, 0x7001
TOOLS = ("cargo", "git", "rg", "npm")


def usage(tokens):
    return {"input_tokens": tokens // 8, "cache_read_input_tokens": tokens - tokens // 8, "cache_creation_input_tokens": 0, "output_tokens": 1}


class Session(wire.Case):
    def __init__(self):
        super().__init__("", AGENT, "claude")
        self.next_object, self.next_pid, self.next_tool, self.set_up = 0x10000, 800, 0, set()
        self.histories = {}

    def at(self, ms):
        """No whole microseconds, as in life: viewers add times as doubles."""
        return wire.START_NS + round(ms * 1000037)

    # --- connections ---------------------------------------------------------------------------------------------------------

    def connect(self, ms):
        """A new connection; when it can be used."""
        self.next_object += 0x100
        self.ssl = self.next_object
        self.other("ssl_new", ms, ssl=hex(self.ssl))
        self.other("connected", ms + 21, ssl=hex(self.ssl), t_call_ns=self.at(ms + 1), srtt_us=20400)
        self.other("handshake", ms + 64, ssl=hex(self.ssl), t_call_ns=self.at(ms + 22))
        return ms + 65

    def retransmit(self, ms):
        self.other("retransmit", ms, ssl=hex(self.ssl), srtt_us=31000)

    # --- model calls ---------------------------------------------------------------------------------------------------------

    def ask(self, ms, agent, message, **headers):
        """A request of the main agent (0) or a sub-agent, whose conversation goes on with `message`."""
        history = self.histories.setdefault(agent, [])
        history.append(message)
        if agent:
            headers.update(x_claude_code_agent_id="agent-%d" % agent, x_claude_code_agent_type="explorer",
                           x_claude_code_request_class="subagent")
        body = {"model": "claude-golden-2" if not agent else "claude-golden-mini", "max_tokens": 4000, "stream": True,
                "system": "You are %s." % ("an agent" if not agent else "helper %d" % agent),
                "tools": [{"name": n, "input_schema": {}} for n in ("Bash", "Read", "Task")], "messages": history[-6:]}
        self.send(ms + 1, wire.request(body=body, x_claude_code_session_id=SESSION, user_agent="claude-cli/2 (external, cli)", **headers),
                  call_ms=ms)

    def answer(self, ms, agent, blocks, stall_ms=0, tokens=20000):
        """The answer's blocks, as (kind, chunks) or ("tool", name, id); when it is over."""
        say = lambda data: self.receive(ms, wire.chunk(data))  # noqa: E731
        self.receive(ms, wire.stream_head())
        start = wire.message_start(**usage(tokens)).replace(wire.MODEL.encode(), self.model(agent))
        say(start)
        content, total = [], 0
        for index, block in enumerate(blocks):
            kind = block[0]
            chunks = 4 if kind == "tool" else block[1]
            shape = {"type": "tool_use", "id": block[2], "name": block[1], "input": {}} if kind == "tool" else {"type": kind, kind: ""}
            delta = {"tool": ("input_json_delta", "partial_json"), "thinking": ("thinking_delta", "thinking"), "text": ("text_delta", "text")}[kind]
            ms += 15
            say(wire.block_start(index, shape))
            for n in range(chunks):
                ms += 14
                say(wire.anthropic_event("content_block_delta", index=index, delta={"type": delta[0], delta[1]: '{"a":1}'[n:n + 2] or "word "}))
                if n == chunks // 2 and stall_ms:
                    ms, stall_ms = ms + stall_ms, 0
            say(wire.anthropic_event("content_block_stop", index=index))
            total += chunks * 3
            content.append(dict(shape, **({} if kind == "tool" else {kind: "words"})))
        stop = "tool_use" if any(b[0] == "tool" for b in blocks) else "end_turn"
        self.receive(ms + 4, wire.chunk(wire.anthropic_event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": total})
                                        + wire.anthropic_event("message_stop")) + wire.LAST)
        self.histories[agent].append({"role": "assistant", "content": content})
        return ms + 4

    @staticmethod
    def model(agent):
        return b"claude-golden-mini" if agent else b"claude-golden-2"

    def tool_id(self):
        self.next_tool += 1
        return "toolu_%04d" % self.next_tool

    @staticmethod
    def results(*ids):
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "x" * 400} for i in ids]}

    def aside(self, ms, ssl, length_ms):
        """What the client asks for its own ends, beside the conversation: no stream."""
        keep, self.ssl = self.ssl, ssl
        body = {"model": "claude-golden-mini", "max_tokens": 50, "messages": [{"role": "user", "content": "title"}]}
        self.send(ms, wire.request(body=body, x_claude_code_session_id=SESSION, x_claude_code_request_class="auxiliary"))
        self.receive(ms + length_ms, wire.json_answer({"type": "message", "role": "assistant", "model": "claude-golden-mini",
                                                       "stop_reason": "end_turn", "content": [{"type": "text", "text": "t"}],
                                                       "usage": {"input_tokens": 90, "output_tokens": 9}}))
        self.ssl = keep

    # --- what runs here ------------------------------------------------------------------------------------------------------

    def process(self, ms, length_ms, program, code=0):
        self.next_pid += 1
        own, self.pid = self.pid, self.next_pid
        self.other("exec", ms, comm=program, exe="/usr/bin/" + program, ppid=own, argv=[program, "test", "--quiet"])
        self.other("exit", ms + length_ms, code=code, signal=0)
        self.pid = own

    def mcp(self, ms, length_ms, number, name):
        keep, self.ssl = self.ssl, SERVER_OBJECT
        self.send(ms, wire.lines(wire.rpc_tool(number, name)))
        self.receive(ms + length_ms, wire.lines(wire.rpc(id=number, result={"content": []})))
        self.ssl = keep

    def start(self):
        self.other("exec", 0, comm="claude", exe="/usr/bin/claude", ppid=1, argv=["claude"])
        self.ssl = SERVER_OBJECT
        self.other("ssl_new", 5, ssl=hex(self.ssl), stdio=True)
        self.send(6, wire.lines(wire.INITIALIZE))
        self.receive(46, wire.lines(wire.INITIALIZED))


def helpers(s, begin_ms, turn, connections):
    """Seven sub-agents of two calls each; when the last one is ready."""
    over = begin_ms
    for n in range(HELPERS):
        agent, ms = turn * HELPERS + n + 1, begin_ms + 15 * n
        s.ssl = connections[n + 1]
        s.ask(ms, agent, {"role": "user", "content": "look at part %d" % n})
        read = s.tool_id()
        ms = s.answer(ms + 300 + 25 * n, agent, [("text", 6 + n), ("tool", "Read", read)])
        s.ask(ms + 12, agent, s.results(read))
        if n == 3:
            s.retransmit(ms + 90)
        ms = s.answer(ms + 200 + 20 * n, agent, [("text", 12 + 2 * n)], stall_ms=1250 if n == 5 else 0)
        over = max(over, ms)
    return over


def turn_of(s, ms, turn, connections):
    main = connections[0]
    s.ssl = main
    s.ask(ms, 0, {"role": "user", "content": "please do number %d" % turn})
    if turn == 2:  # refused, and tried again: one call more
        refused = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
        s.receive(ms + 80, wire.json_answer(refused, "529 Site Overloaded"))
        s.histories[0].pop()
        ms += 880
        s.ask(ms, 0, {"role": "user", "content": "please do number %d" % turn}, x_stainless_retry_count=1)
    else:
        s.aside(ms + 30, connections[-1], 410)
    run, read = s.tool_id(), s.tool_id()
    ms = s.answer(ms + 640, 0, [("thinking", 20), ("text", 8), ("tool", "Bash", run), ("tool", "Read", read)])
    s.process(ms + 20, 700 + 40 * turn, TOOLS[turn % len(TOOLS)], code=turn % 2)
    s.ask(ms + 760 + 40 * turn, 0, s.results(run, read))
    ask = s.tool_id()
    ms = s.answer(ms + 1240 + 40 * turn, 0, [("text", 10), ("tool", "mcp__files__read", ask)])
    s.mcp(ms + 10, 120, turn + 1, "read")
    s.ask(ms + 150, 0, s.results(ask))
    tasks = [s.tool_id() for _ in range(HELPERS)]
    ms = s.answer(ms + 700, 0, [("thinking", 12)] + [("tool", "Task", t) for t in tasks], stall_ms=1400 if turn == 4 else 0)
    s.aside(ms + 60, connections[-1], 800)
    over = helpers(s, ms + 25, turn, connections)
    s.ssl = main
    s.ask(over + 30, 0, s.results(*tasks))
    if turn % 3 == 1:
        s.retransmit(over + 120)
    return s.answer(over + 800, 0, [("text", 60)])


def session():
    s = Session()
    s.start()
    connections, ready = [], 200
    for i in range(HELPERS + 2):
        ready = s.connect(200 + 3 * i)
        connections.append(s.ssl)
    ms = ready + 5
    for turn in range(TURNS):
        ms = turn_of(s, ms, turn, connections) + 2500
    s.other("exit", ms, code=0, signal=0)
    s.lines.sort(key=lambda line: line["t_ns"])
    return s.lines


def main():
    for line in session():
        print(wire.json.dumps(line, separators=(",", ":"), ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
