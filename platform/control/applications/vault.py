"""Encrypts users' variables at rest, with a key derived from the installation's secret.

A database dump alone gives nothing away.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

KEY_PURPOSE = b"burrow variables v1"  # another purpose, another key
KEY_BYTES = 32


@lru_cache(maxsize=4)
def _box(secret: str) -> Fernet:
    key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=KEY_PURPOSE).derive(secret.encode())
    return Fernet(base64.urlsafe_b64encode(key))


def seal(text: str) -> str:
    """Text as ciphertext."""
    return _box(settings.SECRET_KEY).encrypt(text.encode()).decode("ascii")


def unseal(ciphertext: str) -> str:
    """Ciphertext as text."""
    return _box(settings.SECRET_KEY).decrypt(ciphertext.encode("ascii")).decode()


def seal_map(values: dict[str, str]) -> str:
    """A set of variables as one ciphertext."""
    return seal(json.dumps(values, sort_keys=True))


def unseal_map(ciphertext: str) -> dict[str, str]:
    """The set of variables again."""
    values: dict[str, str] = json.loads(unseal(ciphertext))
    return values
