"""A real Chromium for the dashboard's tests, driven over the DevTools protocol.

One browser per `Chromium` block, with a profile of its own that goes away with it; every wait has an end.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import connect

START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 20.0
WAIT_TIMEOUT_S = 15.0
POLL_S = 0.05
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
STDERR = "stderr.txt"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


class Chromium:
    """One page of one browser. Use it as a context manager."""

    def __init__(self) -> None:
        self._way_back = ExitStack()
        self._next_id = 0
        self._session = ""
        self.console: list[str] = []  # what the page complained of: script errors, refused inline code

    def __enter__(self) -> Self:
        with ExitStack() as way_back:
            self._profile = Path(
                way_back.enter_context(tempfile.TemporaryDirectory(prefix="bwc-", ignore_cleanup_errors=True))
            )
            errors = way_back.enter_context((self._profile / STDERR).open("wb"))
            self._process = subprocess.Popen(
                ["chromium", *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            way_back.callback(self._end_process)
            self._socket = way_back.enter_context(
                connect(self._address(), max_size=MAX_MESSAGE_BYTES, open_timeout=CALL_TIMEOUT_S)
            )
            target = self._call("Target.createTarget", url="about:blank", session=False)["targetId"]
            attached = self._call("Target.attachToTarget", targetId=target, flatten=True, session=False)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._call(f"{domain}.enable")
            self._way_back = way_back.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._way_back.close()

    def _end_process(self) -> None:
        """The browser and every process it started: they share one group."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT_S)

    def _address(self) -> str:
        port_file = self._profile / "DevToolsActivePort"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if port_file.exists() and len(lines := port_file.read_text().splitlines()) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            if self._process.poll() is not None:
                break
            time.sleep(POLL_S)
        said = (self._profile / STDERR).read_text(errors="replace")[-2000:]
        raise RuntimeError(f"chromium did not start within {START_TIMEOUT_S} s; it said: {said}")

    def _call(self, method: str, *, session: bool = True, **params: object) -> dict[str, Any]:
        self._next_id += 1
        wanted = self._next_id
        message: dict[str, object] = {"id": wanted, "method": method, "params": params}
        if session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            answer = json.loads(self._socket.recv(timeout=max(0.01, deadline - time.monotonic())))
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer.get("result", {})
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            entry = params["entry"]
            self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif event.get("method") == "Runtime.exceptionThrown":
            self.console.append(
                f"exception: {params['exceptionDetails'].get('exception', {}).get('description', params)}"
            )

    def screen(self, width: int, height: int, *, dark: bool = False, script: bool = True) -> None:
        """Be this large, light or dark, with scripts or without."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._call("Emulation.setScriptExecutionDisabled", value=not script)

    def forget(self) -> None:
        """No cookies, no complaints: a browser as new."""
        self._call("Network.clearBrowserCookies")
        self.console.clear()

    def complaints(self) -> list[str]:
        """What the pages' own code was told off for: exceptions, and what the content security policy refused."""
        marks = ("exception:", "Content Security Policy", "Refused to")
        return [line for line in self.console if any(mark in line for mark in marks)]

    def offline(self, *, yes: bool) -> None:
        """Nothing reaches the server any more; or it does again."""
        self._call(
            "Network.emulateNetworkConditions", offline=yes, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def hide(self, *, hidden: bool) -> None:
        """Make the page believe that nobody looks at it (or that someone does again)."""
        state = "hidden" if hidden else "visible"
        self.run(
            f"Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {str(hidden).lower()}}});"
            f"Object.defineProperty(document, 'visibilityState', {{configurable: true, get: () => '{state}'}});"
            "document.dispatchEvent(new Event('visibilitychange'));"
        )

    def go(self, url: str) -> None:
        """Open an address and wait until it is there."""
        self._call("Page.navigate", url=url)
        # evaluation belongs to the tester, not to the page: it works with the page's scripts off as well
        self.until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url.split('#')[0])})")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait for an expression to become true."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if self.run(f"Boolean({expression})"):
                    return
            except RuntimeError:
                pass  # the page is being replaced just now
            time.sleep(POLL_S)
        page = self.run("document.body ? document.body.innerText : ''")
        raise AssertionError(f"after {timeout_s} s still not: {expression}\n{self.console}\n{page}")

    def text(self) -> str:
        """What a person reads on the page."""
        return str(self.run("document.body.innerText"))

    def until_text(self, text: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the page shows this."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})", timeout_s)

    def fill(self, selector: str, value: str) -> None:
        """Type into a field."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self._call("Input.insertText", text=value)

    def click(self, selector: str) -> None:
        """Press the mouse where the element is, as a hand would."""
        quoted = json.dumps(selector)
        self.until(f"document.querySelector({quoted})")
        self.run(f"document.querySelector({quoted}).scrollIntoView({{block: 'center'}})")
        box = self.run(
            f"(() => {{const b = document.querySelector({quoted}).getBoundingClientRect();"
            " return {x: b.x + b.width / 2, y: b.y + b.height / 2, size: b.width * b.height}})()"
        )
        assert box["size"] > 0, f"{selector} is not to be seen"
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)

    def press_enter(self) -> None:
        """Press and let go of the Enter key."""
        for kind, text in (("keyDown", "\r"), ("keyUp", "")):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text=text
            )

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot; `whole` takes the page down to its end."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
