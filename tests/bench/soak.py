"""One app through many sleeps: what the box holds more afterwards, and whether count and disk are what they must be."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from deploy.box.instance import Instance
from tests.bench.box import ROOT, Box
from tests.bench.footprint import Footprint
from tests.bench.report import figure

NAME = "bench-soak"
WARM_UP = 20  # cycles before the first count: pools fill and modules are imported once
ANSWER_TIMEOUT_S = 60
TOOL_TIMEOUT_S = 120
# Counts in memory, and in a file that it waits for; /lines says what the file has come to.
APP = {
    "Procfile": "web: python3 app.py\n",
    "app.py": """
import http.server, itertools, os
count = itertools.count(1)
class Counter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/lines":
            with open("counts") as file:
                answer = sum(1 for _ in file)
        else:
            answer = next(count)
            with open("counts", "a") as file:
                file.write(f"{answer}\\n")
                file.flush()
                os.fsync(file.fileno())
        body = str(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
open("counts", "w").close()
http.server.HTTPServer(("0.0.0.0", int(os.environ["PORT"])), Counter).serve_forever()
""",
}


def run(box: Box, *, cycles: int) -> None:
    """Pause, suspend and wake it that often."""
    footprint = Footprint(Instance.of(ROOT))
    with box.app(NAME, idle_period_s=3600, suspend_after_s=3600) as app, tempfile.TemporaryDirectory() as folder:
        for name, text in APP.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        push = box.push(app["git_url"], Path(folder))
        if not push.ok:
            sys.exit(f"bench: the app did not deploy:\n{push.output}")
        url, wrong = app["url"], 0
        expected = _ask(url, "/")
        for _ in range(min(WARM_UP, cycles)):
            expected += 1
            wrong += _cycle(box, url) != expected
        held, memory, seconds = footprint.held_at_rest(), footprint.agent_memory_kib(), []
        for _ in range(cycles):
            expected += 1
            began = time.monotonic()
            wrong += _cycle(box, url) != expected
            seconds.append(time.monotonic() - began)
        figure("soak.cycle", "s", seconds, note="pause, suspend, first byte of the wake; two API calls and a request")
        for kind, more in footprint.held_at_rest().since(held).items():
            figure(f"soak.leaked.{kind}", "count", [more], before=getattr(held, kind))
        figure("soak.leaked.agent_memory", "KiB", [footprint.agent_memory_kib() - memory], before=memory)
        figure("soak.count_wrong", "count", [wrong], wakes=cycles + min(WARM_UP, cycles))
        figure("soak.lines_lost", "count", [expected - _ask(url, "/lines")])
        box.sleep(NAME, "suspended")
        problems = [problem for machine in footprint.machine_folders(NAME) for problem in check_disk(machine / "disk")]
        figure("soak.file_system_errors", "count", [len(problems)], said=problems[:5])


def check_disk(disk: Path) -> list[str]:
    """What e2fsck has to say of a copy of a disk whose guest was stopped in the middle of its life, its journal
    replayed as the next mount would.
    """
    with tempfile.TemporaryDirectory(dir=disk.parent) as folder:
        copy = Path(folder, "disk")
        for argv, good in (
            (["cp", "--reflink=auto", "--sparse=always", str(disk), str(copy)], {0}),
            (["e2fsck", "-p", "-E", "journal_only", str(copy)], {0, 1}),
            (["e2fsck", "-f", "-n", str(copy)], {0}),
        ):
            done = subprocess.run(argv, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
            if done.returncode not in good:
                return (done.stdout + done.stderr).splitlines() or [f"{argv[0]} ended with {done.returncode}"]
    return []


def _cycle(box: Box, url: str) -> int:
    box.sleep(NAME, "paused")
    box.sleep(NAME, "suspended")
    return _ask(url, "/")


def _ask(url: str, path: str) -> int:
    """The number the app answers with; -1 for any other answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"Host": parts.netloc})
        answer = connection.getresponse()
        body = answer.read()
        return int(body) if answer.status == http.client.OK else -1
    except (OSError, http.client.HTTPException, ValueError):
        return -1
    finally:
        connection.close()
