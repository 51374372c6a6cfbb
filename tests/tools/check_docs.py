#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Do the documents name what the code has? Speaks TAP.

Every option that is not hidden is in the man page and in the completion, and the completion has no other; so are the words of
--by. Every member of a record, a span, the metadata and a report is in its format's document, by the literal key it is written
with. The words that report reads in a trace are those that the trace is written with. Files of this tree that comments and
documents name are there.
"""
import glob
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTION = re.compile(r"""^\s*\{"([a-z][a-z-]*)", (KEY_\w+|'.'), (?:"[^"]*"|NULL), ([A-Z_0-9]+)""", re.M)
# put_text(j, "key", …), json_int(&j, "key", …), span_put_number(j, "key", …): one name for the object, then a literal.
KEY = re.compile(r'\b(?!json_get)(?:json|put|span_put|report)_\w+\(\s*&?\w+,\s*"([a-z][\w.]*)"')
COLUMN = re.compile(r'\{(?:NULL|"[^"]*"), "([a-z]\w*)", REPORT_')  # of a table of report
FORMATS = {
    "doc/calls-format.md": ("user/view/calls.c",),
    "doc/trace-format.md": (
        "user/flow/span*.c",
        "user/flow/trace*.c",
        "user/flow/profile_write.c",
        "user/flow/agent/verdict.c",
        "user/flow/functions.c",
        "user/selfcost.c",
    ),
    # but report_read.c and report_event.c, which read a trace
    "doc/report-format.md": ("user/view/report_[!re]*.c", "user/view/report_render.c", "user/view/report_rows.c"),
}
# Files of this tree, by the beginning of their path; those of kernels and libraries begin otherwise.
OURS = re.compile(r"(?<![\w/.<-])((?:user|bpf|vmlinux|tests|doc|base|flow|attach|view|symbol)/[\w/.-]*\w\.(?:bpf\.[ch]|[ch]|py|md))\b(?!\.)")
ROOTS = ("", "user/")
SYSTEM = ("bpf/bpf.h", "bpf/libbpf.h", "bpf/btf.h", "bpf/bpf_helpers.h", "bpf/bpf_core_read.h", "bpf/bpf_tracing.h")


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def options():
    """(long name, is it hidden) of all commands."""
    return [(m[1], m[3] == "OPTION_HIDDEN") for m in OPTION.finditer(read("user/options.c"))]


def undocumented_options():
    shown = {name for name, hidden in options() if not hidden}
    man, completion = read("doc/perfbpf.8.md"), read("doc/completion.bash")
    completed = set(re.findall(r"--([a-z][a-z-]*)", completion))
    if len(shown) < 10:
        yield "no options found in user/options.c"
    for name in sorted(shown - {"version"}):
        if f"**--{name}**" not in man:
            yield f"--{name} is not in doc/perfbpf.8.md"
    for name in sorted(shown - completed):
        yield f"--{name} is not in doc/completion.bash"
    for name in sorted(completed - shown - {"help"}):
        yield f"doc/completion.bash has --{name}, and user/options.c has not"
    tables = re.findall(r'^\tX\([A-Z_]+, "([a-z-]+)"\)', read("user/view/report.h"), re.M)
    if f'"{" ".join(tables)}"' not in completion:
        yield f"the words of --by in doc/completion.bash are not: {' '.join(tables)}"


def quoted(text):
    """The words of a document that stand in `backticks` or in a block of code."""
    block = re.compile(r"^```\n(.*?)^```", re.S | re.M)
    marked = block.findall(text) + re.findall(r"`([^`]+)`", block.sub("", text))
    return {word for m in marked for word in re.findall(r"[\w.-]+", m)}


def undocumented_keys(document, patterns):
    words = quoted(read(document))
    for path in sorted(p for pattern in patterns for p in glob.glob(os.path.join(TOP, pattern))):
        keys = set(KEY.findall(read(path))) | set(COLUMN.findall(read(path)))
        for key in sorted(keys - words):
            yield f"{os.path.relpath(path, TOP)} writes {key}, and {document} does not say what that is"


def undocumented_apis():
    words = quoted(read("doc/calls-format.md"))
    for path in sorted(glob.glob(os.path.join(TOP, "user/flow/llm/dialect_*.c"))):
        for api in re.findall(r'\.api = "([^"]+)"', read(path)):
            if api not in words:
                yield f"{os.path.relpath(path, TOP)}: the api {api} is not in doc/calls-format.md"


def misread_words():
    """report_read.c has its own lists: it reads files, and includes no stage."""
    reader = read("user/view/report_read.c")
    for array, path, row in (
        ("report_part_names", "user/flow/agent/walltime.c", r'\[PART_\w+\] = "([^"]+)"'),
        ("report_kind_names", "user/flow/profile.c", r'\[PROFILE_(?!ALLOC|FAULT)\w+\] = "([^"]+)"'),  # those are in `memory`
    ):
        body = re.search(r"\b%s\[\w+\] = \{(.*?)\};" % array, reader, re.S)
        have, want = re.findall(r'"([^"]+)"', body[1]) if body else [], re.findall(row, read(path))
        if have != want or not want:
            yield f"{array} of user/view/report_read.c: {have}, and {path} has {want}"


def tree():
    """All files, but those of build directories."""
    found = {f for f in os.listdir(TOP) if os.path.isfile(os.path.join(TOP, f))}
    for place in ("user", "bpf", "vmlinux", "tests", "doc"):
        for folder, _, names in os.walk(os.path.join(TOP, place)):
            found |= {os.path.relpath(os.path.join(folder, n), TOP) for n in names}
    return found


def stale_paths():
    files = tree()
    for path in sorted(files):
        if not re.search(r"\.(c|h|md|py)$|^Makefile$|^tests/tools/check-", path):
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            for name in OURS.findall(line):
                beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
                if "NAME" in name or name in SYSTEM or beside in files or any(root + name in files for root in ROOTS):
                    continue
                yield f"{path}:{number}: there is no {name}"


def verdict(name, wrong):
    wrong = list(wrong)
    print(f"{'not ok' if wrong else 'ok'} {name}")
    for line in wrong:
        print("#  ", line)
    return not wrong


def main():
    fine = verdict("options are in the man page and the completion", undocumented_options())
    for document, patterns in FORMATS.items():
        fine &= verdict(f"{document} names every member", undocumented_keys(document, patterns))
    fine &= verdict("doc/calls-format.md names every api", undocumented_apis())
    fine &= verdict("report reads the words that a trace is written with", misread_words())
    fine &= verdict("files that are named exist", stale_paths())
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
