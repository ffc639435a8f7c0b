"""What a visitor waits for: first byte when the app runs, is paused, suspended; a storm; a plain process beside it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.box import ROOT, Box, first_byte
from tests.bench.report import figure

SAMPLE = ROOT / "tests/apps/flask-counter"
# The storm asks whether twenty wakes at once are all answered; an app without packages keeps twenty builds short.
STORM_APP = {
    "Procfile": "web: python3 app.py\n",
    "app.py": (
        "import http.server, os\n\n\nclass Hi(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n        self.send_response(200)\n        self.send_header('Content-Length', '3')\n"
        "        self.end_headers()\n        self.wfile.write(b'hi\\n')\n\n\n"
        "http.server.ThreadingHTTPServer(('0.0.0.0', int(os.environ['PORT'])), Hi).serve_forever()\n"
    ),
}
PLAIN_START_TIMEOUT_S = 30


def run(box: Box, *, rounds: int, storm: int) -> None:
    """Print every figure of the wake path."""
    with box.app("bench-wake", idle_period_s=3600, suspend_after_s=3600) as app:
        push = box.push(app["git_url"], SAMPLE)
        if not push.ok:
            sys.exit(f"bench: the sample app did not deploy:\n{push.output}")
        url = app["url"]
        for _ in range(5):
            first_byte(url)
        figure("first_byte.running", "ms", [first_byte(url) * 1000 for _ in range(rounds)])
        for depth, verb in (("paused", "pause"), ("suspended", "suspend")):
            slept, woken = [], []
            for _ in range(rounds):
                slept.append(box.sleep("bench-wake", depth) * 1000)
                woken.append(first_byte(url) * 1000)
            figure(f"{verb}.api", "ms", slept, note="the sleep call through web, edge and host, from running")
            figure(f"first_byte.{depth}", "ms", woken)
    plain(rounds)
    if storm:
        _storm(box, storm)


def plain(rounds: int) -> None:
    """The peer: the same app as a plain process on this machine, started cold, and running."""
    running: list[float] = []
    started: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        python = _environment(Path(folder))
        for _ in range(max(3, rounds // 4)):
            with contextlib.ExitStack() as stack:
                port = _free_port()
                begin = time.monotonic()
                process = stack.enter_context(
                    subprocess.Popen(
                        [python, "app.py"],
                        cwd=SAMPLE,
                        env={**os.environ, "PORT": str(port)},
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
                stack.callback(process.kill)
                url = f"http://127.0.0.1:{port}/"
                started.append(_until_answered(url, begin) * 1000)
                running.extend(first_byte(url) * 1000 for _ in range(5))
    figure("peer.plain_process.cold_start", "ms", started)
    figure("peer.plain_process.running", "ms", running)


def _environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    python = str(folder / "bin/python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-r", str(SAMPLE / "requirements.txt")], check=True, timeout=300
    )
    return python


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _until_answered(url: str, begin: float) -> float:
    while True:
        try:
            first_byte(url)
        except OSError:
            if time.monotonic() - begin > PLAIN_START_TIMEOUT_S:
                raise
            time.sleep(0.005)
        else:
            return time.monotonic() - begin


def _storm(box: Box, count: int) -> None:
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for name, text in STORM_APP.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        urls = []
        for i in range(count):
            app = stack.enter_context(box.app(f"bench-storm-{i}", idle_period_s=3600, suspend_after_s=3600))
            push = box.push(app["git_url"], Path(folder))
            if not push.ok:
                sys.exit(f"bench: storm app {i} did not deploy:\n{push.output}")
            box.sleep(f"bench-storm-{i}", "suspended")
            urls.append(app["url"])
        answered: list[float] = []
        lost: list[str] = []

        def wake(url: str) -> None:
            try:
                answered.append(first_byte(url) * 1000)
            except (OSError, http.client.HTTPException) as e:
                lost.append(str(e))

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(wake, urls))
        figure(f"storm.{count}_suspended", "ms", answered, lost=len(lost), errors=lost[:3])
