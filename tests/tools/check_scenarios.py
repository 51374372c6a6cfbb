#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Does what tests/scenarios.md names exist? Every row has a test, or a reason why there is none. Speaks TAP.

A test is `FILE` or `FILE: NAME`, FILE below tests/. NAME of a unit test is one that its main() runs; of a live test a function
behind @case; in quotes it is a string of the file (the title of one of many). Other words in the column are for people.
"""
import os
import re
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROW = re.compile(r"^\| (BR-\d+[A-Z]?) \| (.+?) \| (.+?) \| (.*?)\|$")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def registered(text, name):
    """As a test that runs, not as a function that is only there."""
    case = r"^@cases?\b(?:(?!^def ).)*?^def %s\(" % re.escape(name)
    return f"cmocka_unit_test({name})" in text or re.search(case, text, re.M | re.S)


def problem(reference):
    path, _, name = reference.partition(": ")
    path = os.path.join(TESTS, path)
    if not os.path.exists(path):
        return "no such file"
    if os.path.isdir(path):
        return None if os.path.exists(os.path.join(path, "expected.json")) else "no case"
    if not name:
        runs = os.access(path, os.X_OK) or f"/{os.path.basename(path)}" in read(os.path.join(TESTS, "golden", "run"))
        return None if runs else "nothing runs it, and no test of it is named"
    found = name in read(path) if name.startswith('"') else registered(read(path), name)
    return None if found else "no such test in it"


def check(text):
    """[(what is wrong)] of the table; how many rows it has."""
    wrong, seen = [], []
    for line in text.splitlines():
        row = ROW.match(line)
        if not row:
            if line.startswith("| BR-"):
                wrong.append(f"not a row of four columns: {line[:60]}")
            continue
        number, _, tests, missing = row.groups()
        seen.append(number)
        references = re.findall(r"`([^`]+)`", tests)
        if not references and not missing.strip():
            wrong.append(f"{number}: neither a test nor a reason")
        wrong += [f"{number}: {r}: {problem(r)}" for r in references if problem(r)]
    if len(set(seen)) != len(seen):
        wrong.append("a number twice")
    return wrong, len(seen)


def main():
    wrong, rows = check(read(os.path.join(TESTS, "scenarios.md")))
    if not rows:
        wrong.append("no rows")
    print(f"{'not ok' if wrong else 'ok'} the tests of {rows} scenarios exist")
    for line in wrong:
        print("#  ", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
