"""Which pushes are accepted. Pure, and the only place that decides: every way in asks `judge`.

A ref's name is data for a message at most. It is compared with an allow-list, shown escaped, and never becomes part
of a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

OBJECT_ID = re.compile(r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
BRANCH_REF = re.compile(r"\Arefs/heads/([A-Za-z0-9_](?:[A-Za-z0-9._/-]{0,98}[A-Za-z0-9_-])?)\Z")
UPDATES_MAX = 64
SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Update:
    """One line that git gave the hook."""

    old: str
    new: str
    ref: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a push is refused, and what to do instead."""

    code: str
    message: str


def is_zero(object_id: str) -> bool:
    """git's way to say "no object"."""
    return not object_id.strip("0")


def branch_of(ref: str) -> str | None:
    """The branch a well-formed ref names, or None."""
    match = BRANCH_REF.match(ref)
    if match is None:
        return None
    name = match.group(1)
    if ".." in name or "//" in name or any(p.startswith(".") or p.endswith(".lock") for p in name.split("/")):
        return None
    return name


def judge(updates: Sequence[Update], *, options: int, branch: str, git_url: str) -> Refusal | None:
    """None if the push is exactly one update of the environment's branch."""
    right_way = f"git push {git_url} {branch}"
    if options:
        return Refusal("push:options_refused", f"Push options are not used here; push without -o: {right_way}")
    if len(updates) != 1:
        return Refusal("push:many_refs", f"Push one branch at a time: {right_way}")
    (update,) = updates
    if not OBJECT_ID.match(update.old) or not OBJECT_ID.match(update.new):
        return Refusal("push:object_invalid", "That is not a git object id.")
    if update.ref.startswith("refs/tags/"):
        return Refusal("push:tag_refused", f"Tags are not deployed; push the branch: {right_way}")
    name = branch_of(update.ref)
    if name is None:
        return Refusal("push:ref_refused", f"The ref {_shown(update.ref)} is not accepted; push a branch: {right_way}")
    if is_zero(update.new):
        return Refusal("push:delete_refused", "Branches are not deleted by a push; delete the app to stop it.")
    if name != branch:
        return Refusal(
            "push:other_branch",
            f"This app deploys the branch {branch}, not {name}. To deploy {name}: git push {git_url} {name}:{branch}",
        )
    return None


def _shown(ref: str) -> str:
    return ascii(ref[:SHOWN_CHARS])
