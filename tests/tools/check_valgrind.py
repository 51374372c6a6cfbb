#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_valgrind.py BUILD [CASE...]: the replay cases (all of tests/golden/cases, or those) and the reports of what they left, under
valgrind: no byte is read that was not written, and none is leaked. Speaks TAP."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(os.path.dirname(HERE), "golden", "cases")
BAD = 99
VALGRIND = ["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all", f"--error-exitcode={BAD}"]


def run(name, argv):
    done = subprocess.run([*VALGRIND, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    good = done.returncode in (0, 3)
    print(f"{'ok' if good else 'not ok'} valgrind {name}", flush=True)
    if not good:
        lines = [line for line in done.stderr.splitlines() if line.startswith("==")]
        print("\n".join("# " + line for line in lines[:30] or done.stderr.splitlines()[-10:]))
    return good


def main():
    build, names = sys.argv[1], sys.argv[2:] or sorted(os.listdir(CASES))
    perfbpf, good = f"{build}/perfbpf", True
    if not shutil.which("valgrind"):
        print("ok valgrind # SKIP no valgrind")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (events,) = glob.glob(os.path.join(CASES, name, "*.jsonl"))
            capture, trace = os.path.join(folder, "x.cap"), os.path.join(folder, "x.json")
            with open(events, "rb") as text, open(capture, "wb") as out:
                subprocess.run([f"{build}/tests/jsonl2cap"], stdin=text, stdout=out, check=True)
            # valgrind makes system calls of its own
            good &= run(name, [perfbpf, "replay", capture, "--no-sandbox", "--content", "--db", "--http", "-o", trace, "-c",
                               os.path.join(folder, "calls")])
        good &= run("report", [perfbpf, "report", "--no-sandbox", trace])
        good &= run("diff", [perfbpf, "diff", "--no-sandbox", trace, trace])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
