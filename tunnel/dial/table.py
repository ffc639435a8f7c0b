"""One table of every limit and time-out, read from the code itself: the name of a constant, its value, its comment.

So there is no second list to forget: a limit that a module defines is in the table, in `--help` and, held by a test, in
README. A constant is a limit by its name (`..._S`, `MAX_...`, `..._BYTES` and so on); sizes that bound nothing, such as
how much is read at a time, are named here.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r"^(?P<indent> {4})?(?P<name>[A-Za-z][A-Za-z0-9_]*)(?:: \w+)? = (?P<value>.+?)(?:  # (?P<words>.+))?$"
)
_LIMIT = re.compile(
    r"(?:.*_)?MAX(?:_.*)?|.*_(?:S|MS|BYTES|KIB|MIB|LIMIT|COUNT|ATTEMPTS|TRIES|THREADS|CONNECTIONS|AT_ONCE|LINES)"
    r"|AT_ONCE|BACKLOG|TASKS|BURST|OPEN_FILES|[A-Z]+_PER_MACHINE"
)
# Sizes and numbers that bound nothing anybody could meet.
_NO_LIMITS = re.compile(
    r"(?:READ|BLOCK|CHUNK|ENTROPY|NONCE|PUNCH|HOLE|EROFS_BLOCK|WHOLE|MEMO|CONSOLE_TAIL)_(?:BYTES|LINES)|.*_BOUNDS_S"
)
EX_USAGE = 64
_KIB, _MIB = 1 << 10, 1 << 20
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400

Settings = tuple[str, str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Row:
    """One limit."""

    module: str
    name: str
    value: str  # as people write it
    words: str
    setting: str  # the variable that changes it; empty if none does


def rows(package: str, *, settings: Settings | None = None) -> list[Row]:
    """The limits of every module of a package, or of one module, in the order of their files.

    `settings` names a module, a dataclass in it whose fields the operator may set, and the variable of each field.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"no package {package}")
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    return [row for file in files for row in _of_file(package, origin, file, settings)]


def _of_file(package: str, origin: Path, file: Path, settings: Settings | None) -> list[Row]:
    inside = file.relative_to(origin.parent).with_suffix("").parts if file != origin else ()
    module = ".".join((package, *inside)).removesuffix(".__init__")
    found = []
    in_settings = False
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("class "):
            in_settings = settings is not None and (module, line) == (settings[0], f"class {settings[1]}:")
        match = _LINE.match(line)
        if match is None or not (in_settings if match["indent"] else _is_limit(match["name"])):
            continue
        name, words = match["name"], match["words"] or ""
        owner = importlib.import_module(module)
        if in_settings and settings is not None:
            value = getattr(getattr(owner, settings[1])(), name)
            found.append(Row(module, name, in_words(name, value), words, settings[2][name]))
        else:
            found.append(Row(module, name, in_words(name, getattr(owner, name)), words, ""))
    return found


def _is_limit(name: str) -> bool:
    return bool(_LIMIT.fullmatch(name)) and not _NO_LIMITS.fullmatch(name)


def in_words(name: str, value: object) -> str:
    """A value with its unit."""
    unit = name.upper().removesuffix("_IN_ALL").rpartition("_")[2]
    if isinstance(value, range):
        return f"{value.start} to {value.stop - 1}{_unit(unit)}"
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("_PER_S"):
        return f"{value:g} a second"
    if value == 2**63 - 1:
        return "2^63 - 1"
    if "BYTES" in name.upper().split("_"):
        for size, word in ((_MIB, "MiB"), (_KIB, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size:,} {word}"
        return f"{value:,} bytes"
    if unit == "S":
        for size, word in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
            if value >= 2 * size and value % size == 0:
                return f"{value / size:g} {word}"
        return f"{value:g} s" if value >= 1 or not value else f"{value * 1000:g} ms"
    return f"{value:,g}{_unit(unit)}" if isinstance(value, float) else f"{value:,}{_unit(unit)}"


def _unit(unit: str) -> str:
    return {"S": " s", "MS": " ms", "MIB": " MiB", "KIB": " KiB"}.get(unit, "")


def answer(arguments: list[str], usage: str, found: Callable[[], list[Row]]) -> int:
    """What a program of ours says to its arguments, for it takes none that change what it does: an exit status."""
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(f"{usage}\n\nEvery limit and time-out, with its default:\n{as_text(found())}")
    elif arguments == ["--limits"]:
        sys.stdout.write(as_markdown(found()))
    else:
        sys.stderr.write(f"{usage}\n")
        return EX_USAGE
    return 0


def as_text(found: list[Row]) -> str:
    """For a terminal: one limit a line, grouped by module."""
    lines = []
    module = ""
    width = max(len(row.setting or row.name) for row in found)
    for row in found:
        if row.module != module:
            module = row.module
            lines.append(f"\n{module}")
        lines.append(f"  {row.setting or row.name:<{width}}  {row.value:<12}  {row.words}".rstrip())
    return "\n".join(lines) + "\n"


def as_markdown(found: list[Row]) -> str:
    """For README: the rows of one table."""
    lines = ["| limit | default | |", "|---|---|---|"]
    module = ""
    for row in found:
        if row.module != module:
            module = row.module
            lines.append(f"| **{module}** | | |")
        words = row.words.replace("|", "\\|")
        lines.append(f"| `{row.setting or row.name}` | {row.value} | {words} |")
    return "\n".join(lines) + "\n"
