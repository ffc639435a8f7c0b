"""One JSON object a line: how every connection of the tunnel starts (SPEC.md).

Strict where a mistake would be dangerous (length, types, required fields, duplicate keys), lenient where versions must
meet (unknown fields). It never sees more than one line at a time and does no IO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NoReturn

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 16 * 1024  # of any message but a route table
MAX_TEXT_CHARS = 1024  # of any one string field: ids, codes, messages

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can say half a pair; no encoding can


class WireError(ValueError):
    """The bytes are not the message asked for; the text names the field."""


def dump_line(message: Mapping[str, object]) -> bytes:
    """A JSON object as one line, compact and pure ASCII, so that no separator of any kind can hide in it."""
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise WireError(f"line of {len(line)} bytes, at most {MAX_LINE_BYTES} are allowed")
    return line


def load_line(line: bytes) -> dict[str, object]:
    """The object of one line (with or without its newline)."""
    if len(line) > MAX_LINE_BYTES:
        raise WireError(f"line of more than {MAX_LINE_BYTES} bytes")
    return load_object(line)


def load_object(data: bytes) -> dict[str, object]:
    """A JSON object without duplicate keys, NaN or infinities."""
    try:
        value = json.loads(data, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except WireError:
        raise
    except (ValueError, RecursionError):
        raise WireError("not a JSON object") from None
    if not isinstance(value, dict):
        raise WireError("not a JSON object")
    return value


def text(message: Mapping[str, object], name: str) -> str:
    """The string field `name`, not empty."""
    value = message.get(name)
    if type(value) is not str or not value or len(value) > MAX_TEXT_CHARS or _SURROGATE.search(value):
        raise WireError(f"{name}: wanted a string of 1 to {MAX_TEXT_CHARS} characters")
    return value


def text_or_empty(message: Mapping[str, object], name: str) -> str:
    """The string field `name`, or "" where it is missing."""
    value = message.get(name, "")
    if type(value) is not str or len(value) > MAX_TEXT_CHARS or _SURROGATE.search(value):
        raise WireError(f"{name}: wanted a string of at most {MAX_TEXT_CHARS} characters")
    return value


def number(message: Mapping[str, object], name: str, *, at_most: int) -> int:
    """The whole number `name`, from 0 to `at_most`."""
    value = message.get(name)
    if type(value) is not int or not 0 <= value <= at_most:
        raise WireError(f"{name}: wanted a whole number from 0 to {at_most}")
    return value


def truth(message: Mapping[str, object], name: str) -> bool:
    """The boolean field `name`."""
    value = message.get(name)
    if type(value) is not bool:
        raise WireError(f"{name}: wanted true or false")
    return value


def truth_or_false(message: Mapping[str, object], name: str) -> bool:
    """The boolean field `name`, or False where an older peer left it out."""
    return name in message and truth(message, name)


def child(message: Mapping[str, object], name: str) -> dict[str, object]:
    """The object field `name`."""
    value = message.get(name)
    if not isinstance(value, dict):
        raise WireError(f"{name}: wanted an object")
    return value


def check_version(message: Mapping[str, object]) -> None:
    """Refuse another protocol version than ours."""
    value = message.get("v")
    if type(value) is not int or value != PROTOCOL_VERSION:
        raise WireError(f"v: this side speaks version {PROTOCOL_VERSION}")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise WireError("a key is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise WireError(f"{name} is not JSON")
