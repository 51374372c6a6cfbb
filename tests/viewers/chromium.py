# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A page in headless Chromium, over the DevTools protocol on a pair of pipes (file descriptors 3 and 4 of the browser, messages end
with a NUL). Standard library only."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server",
         "--remote-debugging-pipe", "--force-device-scale-factor=1")


def find():
    """Path of a Chromium, None without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Failed(Exception):
    pass


class Page:
    """`complaints`: errors and warnings of the page so far, whatever it said them with."""

    def __init__(self, program, size=(1600, 1000), seconds=120):
        self.deadline, self.complaints, self.said, self.rest, self.number = time.monotonic() + seconds, [], [], b"", 0
        self.profile = tempfile.mkdtemp(prefix="perfbpf-chromium.")
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        self.read_fd, self.write_fd = ours_read, ours_write

        def take_pipes():
            # Above 4 first: each may be the number of the other.
            fds = [os.dup2(theirs_read, 100), os.dup2(theirs_write, 101)]
            os.dup2(fds[0], 3)
            os.dup2(fds[1], 4)

        self.log = tempfile.TemporaryFile()
        self.child = subprocess.Popen(  # pylint: disable=consider-using-with,subprocess-popen-preexec-fn
            [program, *FLAGS, f"--user-data-dir={self.profile}", "--window-size=%d,%d" % size, "about:blank"], preexec_fn=take_pipes,
            close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        os.close(theirs_read)
        os.close(theirs_write)
        self.session = None
        target = next(t["targetId"] for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)

    def close(self):
        try:
            os.killpg(self.child.pid, 9)  # its own session: the browser and what it started, nothing else
        except ProcessLookupError:
            pass
        self.child.wait()
        for fd in (self.read_fd, self.write_fd):
            os.close(fd)
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self):
        while b"\0" not in self.rest:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                raise Failed("no answer of the browser in time")
            data = os.read(self.read_fd, 1 << 20)
            if not data:
                self.log.seek(0)
                raise Failed("the browser ended: " + self.log.read().decode("utf-8", "replace")[-1500:])
            self.rest += data
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            text = " ".join(str(a.get("value", a.get("description", ""))) for a in params["args"])
            self.said.append(text)
            if params["type"] in ("warning", "error", "assert"):
                self.complaints.append(f"{params['type']}: {text}")
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            if params["entry"]["source"] in ("deprecation", "rendering"):
                return  # of the page's style sheets and graphics, whatever it shows
            self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append("dialog: " + params["message"])
            self.call("Page.handleJavaScriptDialog", accept=True)

    def call(self, method, **params):
        self.number += 1
        number, message = self.number, {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, url):
        """What the page before said no longer counts: it is gone when this returns."""
        self.call("Page.navigate", url=url)

    def value(self, script):
        """Of an expression, a promise awaited; as JSON carries it."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failed(result["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return result["result"].get("value")

    def until(self, script, what):
        while True:
            value = self.value(script)
            if value:
                return value
            if time.monotonic() > self.deadline:
                raise Failed(f"not in time: {what}; the page said {self.said[-3:] + self.complaints[-5:]}")
            time.sleep(0.1)

    def picture(self, path, clip=None):
        box = {"clip": dict(zip(("x", "y", "width", "height"), clip), scale=1)} if clip else {}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **box)["data"]))
