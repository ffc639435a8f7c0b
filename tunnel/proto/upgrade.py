"""Upgrades: which protocols may be asked for, and whether a 101 is the answer to what was asked.

Any token passes except those that would put another HTTP inside the pipe, past every check of this edge.
"""

from __future__ import annotations

import base64
import hashlib
import re

from tunnel.proto.errors import RequestRefused
from tunnel.proto.fields import OWS, TOKEN

_PROTOCOL = re.compile(TOKEN + rb"+(?:/" + TOKEN + rb"+)?")
_WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def allowed_tokens(value: bytes) -> list[bytes]:
    """The protocols named in an Upgrade field that may be asked for, as they were written."""
    found = []
    for part in value.split(b","):
        token = part.strip(OWS)
        if not token:
            continue
        if not _PROTOCOL.fullmatch(token):
            raise RequestRefused(400, "request:upgrade", "The Upgrade header is malformed.")
        if not token.lower().startswith((b"h2", b"http/", b"tls/")):
            found.append(token)
    return found


def is_answer(asked: bytes, answered: bytes, websocket_key: bytes, websocket_accept: bytes) -> bool:
    """Whether a 101 that names `answered` may be believed."""
    answer = answered.strip(OWS).lower()
    if answer not in {token.strip(OWS).lower() for token in asked.split(b",")}:
        return False
    if answer != b"websocket":
        return True
    digest = hashlib.sha1(websocket_key + _WEBSOCKET_GUID, usedforsecurity=False).digest()  # RFC 6455 names SHA-1
    return bool(websocket_key) and base64.b64encode(digest) == websocket_accept.strip(OWS)
