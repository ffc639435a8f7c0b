"""Reads this process's environment strictly: a variable that is missing, malformed or unsafe stops the start with one
clear line.

There is no fallback for any secret, in any mode: a default secret is how control panels get taken over. A secret
comes from `NAME` or, better, from the file named by `NAME_FILE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

MIN_SECRET_CHARS = 32
MIN_SECRET_DISTINCT_CHARS = 10
SAMPLE_MARKS = (
    "insecure",
    "changeme",
    "change-me",
    "change_me",
    "example",
    "sample",
    "secret-key",
    "secretkey",
    "password",
    "placeholder",
)


class Environment:
    """Typed reads of one mapping of environment variables."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, name: str, default: str | None = None) -> str:
        """A non-empty string."""
        value = self._variables.get(name, "")
        if value:
            return value
        if default is None:
            raise ImproperlyConfigured(f"{name} is not set")
        return default

    def flag(self, name: str, *, default: bool) -> bool:
        """`1` or `0`, nothing else."""
        value = self.text(name, "1" if default else "0")
        if value not in ("0", "1"):
            raise ImproperlyConfigured(f"{name} must be 0 or 1, not {value!r}")
        return value == "1"

    def integer(self, name: str, default: int | None = None, *, low: int, high: int) -> int:
        """A plain decimal number within bounds."""
        value = self.text(name, None if default is None else str(default))
        if not (value.isascii() and value.isdigit()) or not low <= int(value) <= high:
            raise ImproperlyConfigured(f"{name} must be a number from {low} to {high}, not {value!r}")
        return int(value)

    def folder(self, name: str) -> Path:
        """An absolute path; it need not exist yet."""
        path = Path(self.text(name))
        if not path.is_absolute():
            raise ImproperlyConfigured(f"{name} must be an absolute path, not {str(path)!r}")
        return path

    def items(self, name: str, default: str | None = None) -> tuple[str, ...]:
        """A comma-separated list without empty items."""
        values = tuple(v.strip() for v in self.text(name, default).split(","))
        if not all(values):
            raise ImproperlyConfigured(f"{name} has an empty item")
        return values

    def secret(self, name: str) -> str:
        """A secret of sufficient length that is not a sample, from `name` or the file named by `{name}_FILE`."""
        file = self._variables.get(f"{name}_FILE", "")
        if file:
            try:
                value = Path(file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as e:
                raise ImproperlyConfigured(f"{name}_FILE cannot be read: {e}") from None
        else:
            value = self._variables.get(name, "")
        if not value:
            raise ImproperlyConfigured(f"neither {name} nor {name}_FILE gives a secret")
        check_secret(name, value)
        return value


def check_secret(name: str, value: str) -> None:
    """Refuse a secret that is short, repetitive or looks like one copied from documentation.

    Never repeats the value.
    """
    if len(value) < MIN_SECRET_CHARS:
        raise ImproperlyConfigured(f"{name} is too short: at least {MIN_SECRET_CHARS} characters")
    if len(set(value)) < MIN_SECRET_DISTINCT_CHARS:
        raise ImproperlyConfigured(f"{name} is too repetitive to be a secret")
    lowered = value.lower()
    if any(mark in lowered for mark in SAMPLE_MARKS):
        raise ImproperlyConfigured(
            f"{name} looks like a sample from documentation; make one with `openssl rand -hex 32`"
        )
