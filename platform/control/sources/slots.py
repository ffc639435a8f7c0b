"""How many git processes may run at once in this web process: in all, and for one user.

Full means "try again", never a queue.
"""

from __future__ import annotations

import threading
from collections import Counter

SLOTS_MAX = 24
SLOTS_PER_USER = 6


class Slots:
    """A counter per user with two limits. `take` never waits."""

    def __init__(self, most: int, most_per_user: int) -> None:
        self._most = most
        self._most_per_user = most_per_user
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()

    def take(self, user_id: int) -> bool:
        """A slot for this user, if there is one."""
        with self._lock:
            if self._taken.total() >= self._most or self._taken[user_id] >= self._most_per_user:
                return False
            self._taken[user_id] += 1
            return True

    def give_back(self, user_id: int) -> None:
        """Once for each `take` that was True."""
        with self._lock:
            self._taken[user_id] -= 1
            if not self._taken[user_id]:
                del self._taken[user_id]


SLOTS = Slots(SLOTS_MAX, SLOTS_PER_USER)
