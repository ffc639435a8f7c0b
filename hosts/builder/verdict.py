"""What a builder machine may say at its end, checked: how long its image is and what starts it, or a known failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hosts.wire.commands import BuildPhase, Failure

KINDS = frozenset({"python", "node", "static", "procfile"})
CODES = frozenset(
    {
        "build:boot",
        "build:lost",
        "build:nothing_to_run",
        "build:bad_source",
        "build:lfs_pointer",
        "build:submodule",
        "build:step_failed",
        "build:timeout",
        "build:disk_full",
        "build:out_of_memory",
        "build:pack",
    }
)
EROFS_BLOCK_BYTES = 4096
UNSENDABLE = re.compile("[\0\ud800-\udfff]")  # no command line holds the one, no UTF-8 the other
MAX_COMMAND_CHARS = 4096  # a built app's command
MAX_MESSAGE_CHARS = 2000  # a builder's reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """A finished build."""

    kind: str
    command: str
    size_bytes: int

    @classmethod
    def read(cls, done: Mapping[str, object]) -> Verdict | None:
        """None when it makes no sense."""
        match done:
            case {"kind": str(kind), "command": str(command), "bytes": int(size)} if (
                kind in KINDS
                and 0 < len(command) <= MAX_COMMAND_CHARS
                and not UNSENDABLE.search(command)
                and size >= EROFS_BLOCK_BYTES
                and size % EROFS_BLOCK_BYTES == 0
            ):
                return cls(kind, command, size)
        return None


def failed(code: str, phase: BuildPhase, message: str) -> Failure:
    """A Failure with a code of ours: what a builder machine calls it is a stranger's word."""
    return Failure(code if code in CODES else "build:lost", str(phase), message[:MAX_MESSAGE_CHARS])
