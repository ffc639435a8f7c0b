"""Host, as strictly as it must be where a hostname decides whose machine gets the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tunnel.proto.errors import RequestRefused

_LABEL = rb"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_AUTHORITY = re.compile(rb"(" + _LABEL + rb"(?:\." + _LABEL + rb")*)\.?(?::([0-9]{1,5}))?")
_ADDRESS = re.compile(rb"[0-9]+(?:\.[0-9]+)*|\[.*")
MAX_HOSTNAME_CHARS = 253  # in Host


@dataclass(frozen=True, slots=True)
class Authority:
    """A normalised Host: lower case, without the root's dot."""

    text: bytes  # as it goes on to the app
    hostname: str
    port: int | None


@lru_cache(maxsize=4096)
def parse_authority(value: bytes) -> Authority:
    """The value of Host, or RequestRefused."""
    lower = value.lower()
    match = _AUTHORITY.fullmatch(lower)
    if _ADDRESS.match(lower) and (match is None or _ADDRESS.fullmatch(match[1])):
        raise RequestRefused(421, "host:address", "Apps are reached by name, not by address.")
    if match is None or len(match[1]) > MAX_HOSTNAME_CHARS:
        raise RequestRefused(400, "host:invalid", "The Host header is not a host name.")
    name, digits = match.groups()
    if digits is None:
        return Authority(name, name.decode(), None)
    port = int(digits)
    if not 0 < port < 65536:
        raise RequestRefused(400, "host:invalid", "The Host header's port is not a port number.")
    return Authority(b"%b:%d" % (name, port), name.decode(), port)
