"""What an API token looks like and how it is compared. Pure but for the randomness."""

from __future__ import annotations

import hashlib
import secrets

MARK = "burrow_"
RANDOM_BYTES = 32
PREFIX_CHARS = len(MARK) + 5
MAX_CHARS = 200


def new_secret() -> str:
    """256 random bits, recognisable in a leak."""
    return MARK + secrets.token_urlsafe(RANDOM_BYTES)


def digest(secret: str) -> str:
    """What is stored. One unsalted hash is enough for 256 random bits, and lets a token be found by an index."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def prefix(secret: str) -> str:
    """What may be shown afterwards."""
    return secret[:PREFIX_CHARS]
