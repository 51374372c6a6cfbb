#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_names.py BUILD: does doc/trace-format.md name what is in traces, and nothing else? Speaks TAP.

Three ways: every name in real traces (the replay cases, and a session of tests/viewers) is in the page, in the section of its slice;
every name that the code can write is; and every name of the page is one that the code can write.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "viewers"))
import session  # noqa: E402

PAGE = os.path.join(ROOT, "doc", "trace-format.md")
# Section of the page, by how its heading begins: the sources that write its args.
SECTIONS = {
    "`LLM MODEL`": ["user/flow/span_call.c", "user/flow/span_args.c", "user/flow/agent/verdict.c"],
    "`tools/call NAME`": ["user/flow/span_other.c:mcp_args", "user/flow/span_args.c"],
    "`postgresql SELECT`": ["user/flow/span_other.c:db_args"],
    "`GET /users/:id`": ["user/flow/span_http.c", "user/flow/span_args.c"],
    "`SYMBOL`": ["user/flow/span_other.c:function_args"],
    "`connection`": ["user/flow/span_other.c:setup_args", "user/flow/span_args.c"],
    "`connection not made`": ["user/flow/span_other.c:attempt_args", "user/flow/span_args.c"],
    "`dns`": ["user/flow/span_other.c:lookup_args"],
    "`turn`": ["user/flow/span_agent.c:turn_args", "user/flow/agent/verdict.c"],
    "`tool: NAME`": ["user/flow/span_agent.c:tool_args"],
    "`undecoded`": ["user/flow/span_other.c:unread_args", "user/flow/span_args.c"],
    "`exec NAME`": ["user/flow/trace_names.c:put_process_args", "user/flow/trace_names.c:put_argv", "user/flow/trace_names.c:put_chain"],
    "`metadata`": ["user/flow/trace.c:put_metadata", "user/flow/trace.c:put_axes", "user/flow/trace.c:put_lost"],
}
KEY = re.compile(r'\b(?:json_\w+|span_put_\w+|put_meta_text)\(\s*&?j,\s*(?:\n\s*)?"([a-z0-9_.]+)"')
EITHER = re.compile(r'span_put_\w+\(&?j, [^;]*?\? "([a-z_]+)" : "([a-z_]+)", ')
NAME = re.compile(r"`([a-z][a-z0-9_]*|db(?:\.[a-z_]+)+)`")
MAKER = re.compile(r"^static int (\w+_args)\(struct span ", flags=re.M)


def sections_of(text):
    """Heading -> the text below it, down to the next heading."""
    parts = re.split(r"^##+ (.*)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def section(sections, begin):
    return next(text for heading, text in sections.items() if heading.startswith(begin))


def names_in(text):
    """Everything in backticks that looks like a name: values too."""
    return set(NAME.findall(text))


def args_in(text):
    """The names of args alone: first column of tables, and what "Args:" lists, less what is said of each in brackets."""
    out, table = set(), ""
    for line in text.split("\n"):
        table = (table or line) if line.startswith("|") else ""
        if table and not table.startswith("| phase"):
            out |= names_in(line.split("|")[1])
    for listed in re.findall(r"\bArgs:(.*?)(?:\n\n|\Z)", text, flags=re.S):
        while re.search(r"\([^()]*\)", listed):
            listed = re.sub(r"\([^()]*\)", "", listed)
        out |= names_in(listed)
    return out


def written_by(places):
    out = set()
    for place in places:
        path, _, function = place.partition(":")
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
        if function:
            text = re.search(r"^static \w+ \*?%s\(.*?^}" % function, text, flags=re.M | re.S).group()
        out |= set(KEY.findall(text)).union(*EITHER.findall(text))
    return out


def makers():
    """Functions that write the args of a kind of slice, as SECTIONS has them."""
    for path in sorted(glob.glob(os.path.join(ROOT, "user", "flow", "span_*.c"))):
        with open(path, encoding="utf-8") as f:
            for name in MAKER.findall(f.read()):
                yield os.path.relpath(path, ROOT), name


def section_of(e):
    return {"llm": "`LLM MODEL`", "db": "`postgresql SELECT`", "mcp": "`tools/call NAME`", "turn": "`turn`", "tool": "`tool: NAME`", "process": "`exec NAME`",
            "http": "`GET /users/:id`", "function": "`SYMBOL`",
            "net": "`%s`" % e["name"]}[e["cat"]]


def traces(build):
    with tempfile.TemporaryDirectory() as folder:
        capture, trace = os.path.join(folder, "x.cap"), os.path.join(folder, "x.json")
        events = [open(p, "rb").read() for p in sorted(glob.glob(os.path.join(HERE, "cases", "*", "events.jsonl")))]
        events.append("".join(json.dumps(line) + "\n" for line in session.session()).encode())
        for each in events:
            with open(capture, "wb") as f:
                subprocess.run([os.path.join(build, "tests", "jsonl2cap")], input=each, stdout=f, check=True)
            subprocess.run([os.path.join(build, "perfbpf"), "replay", capture, "-q", "-o", trace], stderr=subprocess.DEVNULL, check=True)
            with open(trace, encoding="utf-8") as f:
                yield json.load(f)


def check_traces(build, sections, out):
    """Returns how many kinds of slices there were."""
    names, kinds = set().union(*map(names_in, sections.values())), set()
    for trace in traces(build):
        out += ["metadata.%s" % k for k in trace["metadata"] if k not in args_in(section(sections, "`metadata`"))]
        for e in trace["traceEvents"]:
            if e["ph"] == "M" and e["name"] not in names:
                out.append(e["name"])
            if e["ph"] in "iCsf" and "`%s`" % e["name"] not in "".join(sections.values()):
                out.append(e["name"])
            if e["ph"] != "X":
                continue
            if "," in e["cat"]:  # phases and contents: no args
                if not re.search("`%s[`:]" % re.escape(e["name"].split(":")[0]), "".join(sections.values())):
                    out.append(e["name"])
                continue
            begin = section_of(e)
            kinds.add(begin)
            out += ["%s: %s" % (begin, k) for k in e.get("args", {}) if k not in names_in(section(sections, begin))]
            out += ["parts_ms.%s" % k for k in e.get("args", {}).get("parts_ms", {}) if k not in names]
    return len(kinds)


def main():
    with open(PAGE, encoding="utf-8") as f:
        sections = sections_of(f.read())
    results = []
    missing = []
    kinds = check_traces(sys.argv[1], sections, missing)
    results.append(("the page names what is in traces", missing))
    results.append(("slices of 6 kinds were looked at", [] if kinds >= 6 else [kinds]))
    places = {place for all_of_it in SECTIONS.values() for place in all_of_it}
    results.append(("every kind of slice has its section",
                    ["%s: %s" % m for m in makers() if "%s:%s" % m not in places and m[0] not in places]))
    for begin, places in SECTIONS.items():
        text, keys = section(sections, begin), written_by(places)
        # "As in metadata.verdict": their names are explained there.
        shared = written_by(["user/flow/agent/verdict.c"]) if "metadata.verdict" in text or begin == "`metadata`" else set()
        known = names_in(text)
        results.append(("the page names what the code writes: %s" % begin, sorted(keys - known)))
        results.append(("the code writes what the page names: %s" % begin, sorted(args_in(text) - keys - shared)))
    failed = 0
    for name, wrong in results:
        failed += bool(wrong)
        print("%s names: %s" % ("not ok" if wrong else "ok", name))
        for w in sorted(set(map(str, wrong)))[:20]:
            print("#   " + w)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
