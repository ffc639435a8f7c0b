"""The last lines an app printed, numbered from 0 for as long as the machine's memory lives.

Bounded in lines and in bytes per line, whatever the app does; a line without an end counts once it is too long.
"""

from __future__ import annotations

MAX_LINES = 2000  # of an app's log that a guest keeps
MAX_LINE_BYTES = 2000  # of a line of it
MAX_PAGE_BYTES = 512 * 1024  # of it, read at a time


class LogRing:
    """Bytes in, numbered lines out."""

    __slots__ = ("_lines", "_partial", "next")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = b""
        self.next = 0  # the number the next line will get

    def feed(self, data: bytes) -> None:
        """Take what was read from the app's output."""
        *whole, self._partial = (self._partial + data).split(b"\n")
        for line in whole:
            self._add(line)
        while len(self._partial) > MAX_LINE_BYTES:
            self._add(self._partial[:MAX_LINE_BYTES])
            self._partial = self._partial[MAX_LINE_BYTES:]

    def flush(self) -> None:
        """The output ended: what stands without a line end is a line too."""
        if self._partial:
            self._add(self._partial)
            self._partial = b""

    def note(self, text: str) -> None:
        """A line of the agent's own, such as that the app was restarted."""
        self.flush()
        self._add(text.encode())

    def page(self, after: int) -> tuple[list[str], int]:
        """Lines from number `after` on, as many as fit one answer, and the number to ask for next."""
        first = self.next - len(self._lines)
        start = max(after, first)
        lines: list[str] = []
        size = 0
        for line in self._lines[start - first :]:
            size += len(line)
            if lines and size > MAX_PAGE_BYTES:
                break
            lines.append(line)
        return lines, min(self.next, start + len(lines)) if lines else self.next

    def tail(self, count: int) -> list[str]:
        """The last lines, an unfinished one included: a prompt or a crash often ends without a line end."""
        partial = [self._partial.decode("utf-8", "replace")] if self._partial else []
        return [*self._lines, *partial][-count:]

    def _add(self, line: bytes) -> None:
        text = line.rstrip(b"\r").decode("utf-8", "replace")
        self._lines.append(text if len(line) <= MAX_LINE_BYTES else text[:MAX_LINE_BYTES] + "…")
        self.next += 1
        if len(self._lines) > MAX_LINES:
            del self._lines[: len(self._lines) - MAX_LINES]
