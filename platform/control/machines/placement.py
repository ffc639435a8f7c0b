"""Chooses the host for a new machine or build. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host and how many machines control wants on it."""

    host: str
    machines: int


def choose(candidates: Sequence[Candidate]) -> str | None:
    """The host with the fewest machines, by name where equal, so that the same question has the same answer."""
    if not candidates:
        return None
    return min(candidates, key=lambda c: (c.machines, c.host)).host
