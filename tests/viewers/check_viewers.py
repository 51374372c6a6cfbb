#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_viewers.py BUILD [TRACE PICTURE]: does a trace open in viewers, without an error or a warning, and with everything in it?

The trace is that of session.py's session, replayed; and what `report --folded` makes of a profile. The viewers run in headless Chromium: the trace viewer that Go ships, and
speedscope. Speaks TAP; skips what is not installed. With TRACE and PICTURE: draws that trace in the first of them, checks nothing.
"""
import functools
import glob
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "tools")]
import chromium  # noqa: E402
import session  # noqa: E402
import tracecheck  # noqa: E402

CATAPULT = ("/usr/share/go-*/src/cmd/trace/static", "/usr/share/go-*/src/internal/trace/traceviewer/static")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json"}


class Site(http.server.BaseHTTPRequestHandler):
    """`places`: what a path, or the directory in front of its last part, is on disk."""

    def __init__(self, places, *rest):
        self.places = places
        super().__init__(*rest)

    def do_GET(self):
        asked = self.path.split("?")[0]
        folder, name = os.path.split(asked)
        path = self.places.get(asked) or os.path.join(self.places.get(folder) or "/nowhere", name)
        try:
            with open(path, "rb") as f:
                body = f.read()
        except OSError:
            self.send_error(404)
            return
        if path.endswith("speedscope.html"):  # the script's name has a hash in it
            script = os.path.basename(glob.glob(os.path.join(self.places["/speedscope"], "speedscope-*.js"))[0])
            body = body.replace(b"SCRIPT", script.encode())
        self.send_response(200)
        self.send_header("content-type", TYPES.get(os.path.splitext(path)[1], "application/octet-stream"))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass


def serve(places):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, places))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d" % server.server_port


def catapult_dir():
    found = [d for pattern in CATAPULT for d in sorted(glob.glob(pattern)) if os.path.exists(d + "/trace_viewer_full.html")]
    return found[0] if found else None


def replay(build, folder):
    capture, trace = os.path.join(folder, "session.cap"), os.path.join(folder, "trace.json")
    events = "".join(json.dumps(line) + "\n" for line in session.session())
    with open(capture, "wb") as f:
        subprocess.run([os.path.join(build, "tests", "jsonl2cap")], input=events.encode(), stdout=f, check=True)
    subprocess.run([os.path.join(build, "perfbpf"), "replay", capture, "-q", "-o", trace], stderr=subprocess.DEVNULL, check=True)
    return trace


def slices_of(events, phases):
    """As both pages count them: by name, how many, and their time in microseconds."""
    out = {}
    for e in events:
        if e["ph"] in phases:
            count, us = out.get(e["name"], (0, 0))
            out[e["name"]] = (count + 1, us + e.get("dur", 0))
    return out


def differences(want, have):
    for name in sorted(set(want) | set(have)):
        w, h = want.get(name, (0, 0)), have.get(name, (0, 0))
        if w[0] != h[0] or abs(w[1] - h[1]) > 0.001 * (w[0] + 1):
            yield "%r: written %d, %.3f us; shown %d, %.3f us" % (name, *w, *h)


class Report:
    def __init__(self):
        self.number = self.failed = 0

    def say(self, good, name, why=(), skip=None):
        self.number += 1
        self.failed += not good
        print("%sok %d - viewers: %s%s" % ("" if good else "not ", self.number, name, " # SKIP " + skip if skip else ""), flush=True)
        for line in list(why)[:10] if not good else ():
            print("#   " + str(line)[:300])


def check_session(report, events, raw):
    problems = tracecheck.check(raw)
    report.say(not problems, "the session's trace has the format", problems)
    calls = [e for e in events if e["ph"] == "X" and e["cat"] == "llm"]
    edges = sorted([(e["ts"], 1) for e in calls] + [(e["ts"] + e["dur"], -1) for e in calls])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    have = {e["name"].split(" ")[0] for e in events} | {e.get("cat") for e in events}
    wanted = {"turn", "tool:", "mcp", "exec", "retransmit", "stall:", "thinking", "connection", "spawn", "tokens/s"}
    report.say(len(calls) == session.CALLS and most == session.AT_ONCE and wanted <= have,
               "%d calls, %d at once, and all kinds of slices are in it" % (session.CALLS, session.AT_ONCE),
               [len(calls), most, wanted - have])


def bad_trace(folder):
    """What both viewers complain about: slices that overlap in part, an arrow without its beginning."""
    path = os.path.join(folder, "bad.json")
    lane = {"pid": 7, "tid": 7}
    events = [dict(lane, ph="X", name="a", cat="c", ts=0, dur=10), dict(lane, ph="X", name="b", cat="c", ts=5, dur=10),
              dict(lane, ph="f", name="x", cat="c", id=1, bp="e", ts=6)]
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"displayTimeUnit": "ms", "traceEvents": events}, f)
    return path


def outcome(page, url, ready=None):
    page.open("about:blank")  # else another fragment of the same page loads nothing
    page.complaints.clear()
    page.open(url)
    if ready:
        page.until(ready, "the page is ready")
        page.value("save()")
    return page.until("window.outcome", "the viewer has the trace")


def check_catapult(report, page, site, events):
    bad = outcome(page, site + "/catapult.html?/bad.json")
    report.say(bool(bad["warnings"]), "catapult warns of a bad trace")
    got = outcome(page, site + "/catapult.html?/trace.json")
    report.say(not got.get("failed") and not page.complaints and not got.get("warnings"), "catapult opens it without error or warning",
               [got.get("failed"), *page.complaints, *got.get("warnings", [])])
    wrong = list(differences(slices_of(events, "Xi"), got.get("slices", {})))
    report.say(not wrong, "catapult shows every slice as written (%d)" % sum(c for c, _ in got["slices"].values()), wrong)
    flows, samples = sum(e["ph"] == "s" for e in events), sum(e["ph"] == "C" for e in events)
    report.say(got["flows"] == flows > 0 and got["samples"] == samples > 0, "catapult shows %d arrows and %d samples" % (flows, samples),
               [got["flows"], got["samples"]])


# A profile as perfbpf writes it (doc/trace-format.md), with names that mean something in the folded form.
PROFILE = {
    "threads": [[7, 7, "agent", "agent"], [7, 8, "agent", "worker; 2"]],
    "frames": [["hot", "agent"], ["main", "agent"], ["operator new(unsigned long)", "libstdc++.so.6"], ["", "libc.so.6"],
               ["a;b c", "[jit]"], ["do_futex", "[kernel]"]],
    "stacks": [["cpu", 0, 40000000, 40, "whole", [0, 1]], ["cpu", 1, 25000000, 25, "whole", [2, 4, 0, 0, 1]],
               ["cpu", 1, 7000000, 7, "broken", [3]], ["futex", 1, 900000000, 3, "whole", [5, 3, 1]],
               ["run queue", 0, 11000000, 4, "whole", []]],
}


def folded(build, folder, *options):
    """Input of flame graphs, as a file for the viewer; how long each name is in it."""
    trace, path = os.path.join(folder, "profile.json"), os.path.join(folder, f"folded{len(options)}.txt")
    axes = '"window_ns":1000000000,"cpu":{"period_ns":1000000},"off_cpu":{"min_ns":1000000}'
    rows = {name: ",\n".join(json.dumps(row, separators=(",", ":")) for row in PROFILE[name]) for name in PROFILE}
    with open(trace, "w", encoding="utf-8") as f:
        f.write('{"displayTimeUnit":"ms","traceEvents":[\n],"otherData":{"profile":{"format":1,%s,"threads":[\n%s\n],"frames":[\n'
                '%s\n],"stacks":[\n%s\n]}},"metadata":{"duration_ms":1000.0}}\n'
                % (axes, rows["threads"], rows["frames"], rows["stacks"]))
    with open(path, "wb") as f:
        subprocess.run([os.path.join(build, "perfbpf"), "report", trace, "--folded", *options], stdout=f, check=True)
    want = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            names, ns = line.rsplit(" ", 1)
            for name in names.split(";"):
                want[name] = want.get(name, 0) + int(ns)
    return path, want


def check_flame_graph(report, page, site, want, name):
    url = site + "/speedscope.html#profileURL=" + site + "/" + name
    got = outcome(page, url, "document.title.includes('%s')" % name)
    report.say(not page.complaints, "speedscope opens %s" % name, page.complaints)
    have = {frame: own[1] for frame, own in got["slices"].items()}
    report.say(want == have, "speedscope shows every frame of %s with its time (%d)" % (name, len(want)), [want, have])


def check_flame_graphs(report, page, site, folds):
    for path, want in folds:
        check_flame_graph(report, page, site, want, os.path.basename(path))


def check_speedscope(report, page, site, events):
    url, ready = site + "/speedscope.html#profileURL=" + site, "document.title.includes('.json')"
    outcome(page, url + "/bad.json", ready)
    report.say(bool(page.complaints), "speedscope warns of a bad trace")
    said = len(page.said)
    got = outcome(page, url + "/trace.json", ready)
    report.say(not page.complaints, "speedscope opens it without error or warning", page.complaints + page.said[said:])
    wrong = list(differences(slices_of(events, "X"), got["slices"]))
    report.say(not wrong, "speedscope shows every slice as written (%d)" % sum(c for c, _ in got["slices"].values()), wrong)


def with_page(report, name, program, missing, check):
    """check(page) in a browser of its own, unless something is missing."""
    if missing:
        report.say(True, name, skip=missing)
        return
    page = None
    try:
        page = chromium.Page(program)
        check(page)
    except (chromium.Failed, KeyError, OSError) as error:
        report.say(False, name, [repr(error), *(page.complaints[-5:] if page else [])])
    finally:
        if page:
            page.close()


# The turns of the first agent in full width, the first of them selected, and nothing around that is the viewer's own.
POSE = """(() => {
  const viewer = document.getElementById('trace-viewer');
  const turns = [];
  for (const thread of viewer.model.getAllThreads())
    turns.push(...thread.sliceGroup.slices.filter(s => s.title === 'turn'));
  turns.sort((a, b) => a.start - b.start);
  const own = turns.filter(t => t.parentContainer.parent === turns[0].parentContainer.parent);
  const begin = turns[0].start, end = Math.max(...own.map(t => t.end)), margin = (end - begin) / 40;
  const viewport = viewer.trackView.viewport, view = viewport.currentDisplayTransform.clone();
  view.xSetWorldBounds(begin - margin, end + margin, innerWidth - 250); // less the names
  viewport.setDisplayTransformImmediately(view);
  viewer.brushingStateController.changeSelectionFromTimeline(new tr.model.EventSet(turns[0]));
  const hide = node => {
    if (/mouse-mode-selector|side-panel-container|polymer-notification/i.test(node.localName || ''))
      node.style.display = 'none';
    for (const child of Array.from(node.childNodes || []).concat(Array.from(node.shadowRoot ? node.shadowRoot.childNodes : [])))
      hide(child);
  };
  hide(document.body);
  const button = Array.from(document.body.querySelectorAll('button')).find(b => b.textContent.trim() === 'Hide');
  if (button)
    button.click();
})()"""


def draw(trace, picture):
    site = serve({"/catapult": catapult_dir(), "/catapult.html": HERE + "/catapult.html", "/trace.json": trace})
    page = chromium.Page(chromium.find(), (1280, 900))
    try:
        outcome(page, site + "/catapult.html?/trace.json")
        for script in (POSE, "0"):
            page.value("new Promise(done => setTimeout(done, 1500))")  # it draws when it has nothing else to do
            page.value(script)
        page.picture(picture, (0, 24, 1280, 582))
    finally:
        page.close()


def main():
    if len(sys.argv) == 4:
        draw(sys.argv[2], sys.argv[3])
        return 0
    build, report = sys.argv[1], Report()
    speedscope = os.path.join(build, "clients", "speedscope")
    with tempfile.TemporaryDirectory(prefix="perfbpf-viewers.") as folder:
        trace = replay(build, folder)
        with open(trace, "rb") as f:
            raw = f.read()
        events = json.loads(raw)["traceEvents"]
        check_session(report, events, raw)
        folds = [folded(build, folder), folded(build, folder, "--by", "wait")]
        program, catapult = chromium.find(), catapult_dir()
        site = serve({"/catapult": catapult, "/speedscope": speedscope, "/trace.json": trace, "/bad.json": bad_trace(folder),
                      "/catapult.html": HERE + "/catapult.html", "/speedscope.html": HERE + "/speedscope.html", **{"/" + os.path.basename(path): path for path, _ in folds}})
        none = None if program else "no Chromium is installed"
        with_page(report, "catapult", program, none or (None if catapult else "Go's sources with their trace viewer are not installed"),
                  lambda page: check_catapult(report, page, site, events))
        none = none or (None if os.path.isdir(speedscope) else "'make clients' could not fetch speedscope")
        with_page(report, "speedscope", program, none, lambda page: check_speedscope(report, page, site, events))
        with_page(report, "flame graphs", program, none, lambda page: check_flame_graphs(report, page, site, folds))
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
