#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_report.py BUILD: what report and diff say of replayed cases: of a capture the same as of its trace, every table, and
nothing about a trace compared with itself. Speaks TAP."""
import bz2
import gzip
import json
import lzma
import os
import re
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ("retry-group", "tool-call-first", "mcp-stdio", "db-postgres", "concurrent")
failed = 0


def say(good, name, why=""):
    global failed
    failed += not good
    print("%sok report: %s" % ("" if good else "not ", name), flush=True)
    if not good:
        print("#   " + str(why)[:500])


def run(*argv, status=0, error=False, **options):
    """What it prints; error: on standard error."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60, **options)
    if done.returncode != status:
        raise OSError("%s: status %d: %s" % (" ".join(argv), done.returncode, done.stderr.decode()))
    return done.stderr if error else done.stdout


def words(perfbpf):
    """Of --by, as the help names them."""
    text = " ".join(run(perfbpf, "report", "--help").decode().split())
    return text.split("only one table: ")[1].split(" --")[0].split()


# Beside names with a unit: counts.
COUNTS = ("count", "errors", "calls", "samples", "tokens", "lost", "status", "pid", "_id", "format", "charged", "partial", "refused", "clouded", "dropped")
UNITS = ("ms", "share", "bytes", "tok_s", "per_s")


def without_unit(value, path=()):
    """Paths of numbers in whose names no unit is, and which are no counts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from without_unit(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from without_unit(inner, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not any(key.split("_")[-1] in UNITS or key.endswith("tok_s") or any(c in key for c in COUNTS) for key in path):
            yield ".".join(path)


def other_knobs(perfbpf, capture, trace, case):
    """A capture knows what it was taken with; one whose header ends before that may hold anything."""
    with open(capture, "rb") as f:
        content = f.read()
    (size,) = struct.unpack_from("<I", content, 12)
    for name, header in (("without --db", content[:160] + bytes(size - 160)), ("of old", content[:12] + struct.pack("<I", 160) + content[16:160])):
        with open(capture + ".other", "wb") as f:
            f.write(header + content[size:])
        run(perfbpf, "diff", trace, capture + ".other", status=name == "without --db")
        say(True, f"{case}: and a capture {name}")


def check(build, folder, case):
    perfbpf, capture, trace = os.path.join(build, "perfbpf"), os.path.join(folder, case + ".cap"), os.path.join(folder, case + ".json")
    with open(os.path.join(HERE, "cases", case, "events.jsonl"), "rb") as events, open(capture, "wb") as f:
        subprocess.run([os.path.join(build, "tests", "jsonl2cap")], stdin=events, stdout=f, check=True)
    run(perfbpf, "replay", capture, "-q", "--db", "--http", "-o", trace)
    for options in ((), ("--json",), ("--by", "call", "--last", "0.1"), ("--json", "--last", "0.1")):
        of_trace, of_capture = run(perfbpf, "report", trace, *options), run(perfbpf, "report", capture, *options)
        say(of_trace == of_capture, " ".join((case, "of its trace and of its capture", *options)), (of_trace, of_capture))
    whole = json.loads(run(perfbpf, "report", trace, "--json"))
    for word in words(perfbpf):
        one = json.loads(run(perfbpf, "report", trace, "--json", "--by", word))
        good = list(one["tables"]) == [word] and one["tables"][word] == whole["tables"].get(word)
        say(good, f"{case}: --by {word} alone and among all", (one["tables"], whole["tables"].get(word)))
        run(perfbpf, "report", trace, "--by", word)
    say(not list(without_unit(whole)), case + ": units are in the names", sorted(set(without_unit(whole))))
    same = json.loads(run(perfbpf, "diff", trace, capture, "--json", "--fail-on", "0"))
    rows = [row for rows in same["tables"].values() for row in rows or []]
    other_knobs(perfbpf, capture, trace, case)
    say(rows and not any(r["beyond_chance"] or r["regressed"] or r["change_share"] for r in rows), case + ": as itself", rows)


def documented(perfbpf):
    """Every option, and every word of --by, is in the manual page and completed."""
    texts = {}
    for name in ("perfbpf.8.md", "completion.bash"):
        with open(os.path.join(HERE, "..", "..", "doc", name), encoding="utf-8") as f:
            texts[name] = f.read()
    helps = "".join(run(perfbpf, *command, "--help").decode() for command in ((), ("report",), ("diff",), ("replay",)))
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", helps, flags=re.M)) - {"--usage", "--version"}
    for name, text in texts.items():
        missing = [o for o in options if not re.search(re.escape(o) + r"(?![a-z-])", text)]
        missing += [w for w in words(perfbpf) if not re.search(r"(?<![a-z-])%s(?![a-z-])" % w, text)]
        say(len(options) > 20 and not missing, "options and words of --by are in " + name, sorted(missing))


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="perfbpf-report.") as folder:
        for case in CASES:
            check(build, folder, case)
        odd = os.path.join(folder, "odd")
        alien, packed = "neither a trace nor a capture of perfbpf", "it is compressed: unpack it first"
        for content, why in (
            (b"", "it is empty"),
            (b"perf", "not a perfbpf capture"),
            (b"perfbpf\n", "not a perfbpf capture"),
            (b"perfbpf\n" + bytes(200), "a capture of another version"),
            (b"\0", alien),
            (b"[]", alien),
            (b"{", "not a trace of perfbpf"),
            (b"\xff" * 4096, alien),
            (gzip.compress(b"{}"), packed),
            (bz2.compress(b"{}"), packed),
            (lzma.compress(b"{}"), packed),
        ):
            with open(odd, "wb") as f:
                f.write(content)
            for argv in (("report", odd), ("diff", odd, odd)):
                told = run(os.path.join(build, "perfbpf"), *argv, status=1, error=True).decode()
                say(told == f"perfbpf: {odd}: {why}\n", "%s: %r" % (argv[0], content[:9]), told)
    documented(os.path.join(build, "perfbpf"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
