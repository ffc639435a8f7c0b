"""The app's last lines, kept on the host so that they can be read while the machine sleeps or after it died."""

from __future__ import annotations

from collections import deque

from hosts.agent.parts import Guest
from hosts.guest.client import GuestError

MAX_LINES = 2000  # of an app's log that are kept
TAIL_LINES = 40  # of it in a report


class LogRing:
    """A ring of lines with running numbers. The guest's own numbers start anew with each boot; these do not."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._next = 0
        self._guest_next = 0

    def rebooted(self) -> None:
        """The guest counts from nought again."""
        self._guest_next = 0

    async def pull(self, guest: Guest) -> None:
        """Take what is new from the guest; a guest that does not answer has nothing new."""
        try:
            page = await guest.logs(self._guest_next)
        except GuestError:
            return
        self._guest_next = page.next
        self._lines.extend(page.lines)
        self._next += len(page.lines)

    def page(self, after: int) -> tuple[tuple[str, ...], int]:
        """The lines from number `after` on that are still kept, and the number to ask for next."""
        first = self._next - len(self._lines)
        return tuple(self._lines)[max(0, after - first) :] if after < self._next else (), self._next

    def tail(self) -> tuple[str, ...]:
        """The last few."""
        return tuple(self._lines)[-TAIL_LINES:]
