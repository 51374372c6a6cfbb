#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""-- CMD: its exit status, its user, its environment, its descriptors."""
import os
import signal
import subprocess

import e2e
from e2e import CLIENT, Perfbpf, Server, case, cases, check_calls


def run(*argv, env=None, options=(), **popen):
    perfbpf = Perfbpf(*options, command=[str(a) for a in argv], env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                      text=True, **popen)
    out, _ = perfbpf.child.communicate(timeout=e2e.HANGS_S)
    return perfbpf, perfbpf.child.returncode, out


@cases(
    [
        ("0", 0, ["true"]),
        ("7", 7, ["sh", "-c", "exit 7"]),
        ("3", 3, ["sh", "-c", "exit 3"]),
        ("killed by SIGTERM", 128 + 15, ["sh", "-c", "kill -TERM $$"]),
        ("killed by SIGKILL", 128 + 9, ["sh", "-c", "kill -KILL $$"]),
        ("not found", 127, ["/nonexistent/program"]),
        ("not found on PATH", 127, ["no-such-program-here"]),
        ("not executable", 126, ["/etc/passwd"]),
        ("a directory", 126, ["/etc"]),
    ]
)
def status_of(status, argv):
    """the exit status is CMD's"""
    perfbpf, got, _ = run(*argv)
    assert got == status, f"{got}, not {status}: {perfbpf.err()}"
    if status in (126, 127):
        assert argv[0] in perfbpf.err(), perfbpf.err()


@case
def strict_status():
    """with --strict CMD's own status wins over 3"""
    server = Server()
    flood = f"{CLIENT} --port {server.port} --cacert {server.cert} --threads 16 -n 6 --quiet --knobs 'tokens=3000&burst=300'"
    for own, want in ((0, 3), (5, 5)):
        _, got, _ = run("sh", "-c", f"{flood}; exit {own}", options=["--strict", "--ring-bytes", 4096])
        assert got == want, (own, got)


@case
def given_descriptors():
    """CMD gets the descriptors that perfbpf was given, and none that it was not; under another user it gets none"""
    for env, want in (({}, {"0", "1", "2", "9", "40"}), ({"SUDO_UID": "65534", "SUDO_GID": "65534"}, {"0", "1", "2"})):
        folder, owner = e2e.directory(), int(env.get("SUDO_UID", 0))
        os.chown(folder, owner, owner)
        done = subprocess.run(
            ["bash", "-c", 'exec 9</dev/null 40</dev/null; exec "$@"', "bash", e2e.PERFBPF, "-q", "-o", os.path.join(folder, "t.json"),
             "--", "sh", "-c", "ls /proc/$$/fd"],
            env={**os.environ, **env}, capture_output=True, text=True, timeout=e2e.HANGS_S, check=False)
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.split()) == want, done.stdout


@case
def as_user():
    """CMD runs as the user behind sudo, without capabilities"""
    folder = e2e.directory()
    os.chown(folder, 65534, 65534)
    script = (
        'id -u; id -g; id -G; echo "$HOME|$USER|$KEEP|${PERFBPF_TRACE-unset}|${PERFBPF_OTHER-unset}";'
        "grep -E '^(CapPrm|CapEff|CapInh|CapAmb):' /proc/self/status; ls /proc/self/fd"
    )
    env = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody", "KEEP": "kept", "PERFBPF_OTHER": "x"}
    env["PERFBPF_TRACE"] = os.path.join(folder, "t.json")
    out_path = os.path.join(folder, "mine.json")
    child = subprocess.run(
        [e2e.PERFBPF, "-o", out_path, "--", "sh", "-c", script],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=e2e.HANGS_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    lines = child.stdout.split("\n")
    assert lines[0] == "65534" and lines[1] == "65534", lines[:3]
    assert "0" not in lines[2].split(), f"root's groups are kept: {lines[2]}"
    home, user, keep, trace, other = lines[3].split("|")
    assert user == "nobody" and home != os.environ.get("HOME"), lines[3]
    assert keep == "kept" and trace == other == "unset", lines[3]
    for line in lines[4:8]:
        assert int(line.split()[1], 16) == 0, f"a capability is left: {line}"
    descriptors = [int(d) for d in lines[8:] if d]
    assert set(descriptors) <= {0, 1, 2, 3}, f"descriptors of perfbpf's: {descriptors}"
    owner = os.stat(out_path)
    assert (owner.st_uid, owner.st_gid) == (65534, 65534), "the trace belongs to the user"


@case
def signals_reach_cmd():
    """Ctrl-C ends the trace and CMD's end is waited for or told"""
    perfbpf = Perfbpf(command=["sleep", "30"], start_new_session=True, ready=False)
    e2e.until(lambda: subprocess.run(["pgrep", "-P", str(perfbpf.child.pid), "sleep"], stdout=subprocess.DEVNULL,
                                     check=False).returncode == 0, what="CMD runs")
    os.killpg(perfbpf.child.pid, signal.SIGINT)
    status = perfbpf.end(seconds=10)
    assert status in (0, 128 + signal.SIGINT), f"{status}: {perfbpf.err()}"
    perfbpf.trace()


@case
def background():
    """a daemon that CMD leaves behind does not keep the trace open"""
    perfbpf, got, out = run("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!; exit 4")
    left = e2e.read_text(f"/proc/{int(out)}/comm")
    os.kill(int(out), signal.SIGKILL)
    assert got == 4 and left == "sleep\n", (got, left, perfbpf.err())


@case
def short_lived():
    """the first call of a short CMD is traced: its libraries are attached before it starts"""
    for number in range(5):
        server = Server()
        perfbpf, got, _ = run(CLIENT, "--port", server.port, "--cacert", server.cert, "--id", f"short{number}")
        assert got == 0, perfbpf.err()
        check_calls(perfbpf, server, 1, 25)


@case
def script_interpreter():
    """a script behind #! and env is traced as well"""
    server = Server()
    path = os.path.join(e2e.directory(), "agent")
    with open(path, "w", encoding="utf-8") as f:
        f.write(
            "#!/usr/bin/env python3\nimport ssl, urllib.request\n"
            f"c = ssl.create_default_context(cafile={server.cert!r})\n"
            "b = b'{\"model\":\"m\",\"stream\":true,\"messages\":[]}'\n"
            f"r = urllib.request.Request('https://127.0.0.1:{server.port}/script/v1/messages', data=b)\n"
            "urllib.request.urlopen(r, context=c).read()\n"
        )
    os.chmod(path, 0o755)
    env = {"PATH": "/usr/bin:/bin"}
    perfbpf, got, _ = run(path, env=env)
    assert got == 0, perfbpf.err()
    check_calls(perfbpf, server, 1, 25)


e2e.run_cases()
