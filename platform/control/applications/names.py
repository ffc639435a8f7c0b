"""The rules for what users name, in one place: an app's name is a hostname label and a path segment, and is never
anything else; variables; methods and paths of a wake policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from control.errors import UserError

SLUG_MAX = 40
SLUG_PATTERN = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
SLUG = re.compile(rf"\A{SLUG_PATTERN}\Z")
SLUG_RULE = "1 to 40 lower-case letters, digits and hyphens, with a letter or digit at both ends"
VARIABLE = re.compile(r"\A[A-Z_][A-Z0-9_]{0,99}\Z")
VARIABLE_RULE = "capital letters, digits and underscores, not starting with a digit, at most 100"
VARIABLE_MAX_BYTES = 32 * 1024
VARIABLES_MAX = 200
METHOD = re.compile(r"\A[A-Z][A-Z-]{0,31}\Z")
METHOD_RULE = "1 to 32 capital letters, such as HEAD"
PATH = re.compile(r"\A/[!\"$-)+-\x3e@-~]{0,198}\*?\Z")  # visible ASCII but # ? and *
PATH_RULE = "at most 200 visible ASCII characters: it begins with /, has no ? or #, and * only at its end"
PATTERNS_MAX = 32  # of either kind; every request is compared with them

# Names a visitor would take for the platform itself, or that it may want one day.
RESERVED = frozenset(
    [
        "account",
        "accounts",
        "admin",
        "api",
        "app",
        "apps",
        "assets",
        "auth",
        "billing",
        "blog-admin",
        "burrow",
        "cdn",
        "console",
        "control",
        "dashboard",
        "dev",
        "docs",
        "edge",
        "git",
        "health",
        "healthz",
        "help",
        "host",
        "hosts",
        "imap",
        "internal",
        "live",
        "localhost",
        "login",
        "logout",
        "machine",
        "mail",
        "metrics",
        "mx",
        "ns",
        "ns1",
        "ns2",
        "pop",
        "preview",
        "root",
        "security",
        "settings",
        "sign-up",
        "signup",
        "smtp",
        "static",
        "status",
        "support",
        "system",
        "test-internal",
        "tokens",
        "web",
        "www",
    ]
)
# A browser shows what such a label decodes to: somebody else's name in look-alike letters.
RESERVED_PREFIX = "xn--"
# Set inside the machine by the platform; a variable of the same name would be a trap (and no program found with another
# PATH: a value is taken as it is, so it cannot add to the one that is there).
RESERVED_VARIABLES = frozenset({"PORT", "HOST", "PATH"})
RESERVED_VARIABLE_PREFIX = "BURROW_"


def checked_patterns(found: Iterable[str], rule: re.Pattern[str], what: str, words: str) -> list[str]:
    """Methods or paths that leave an app asleep, each once and in order."""
    kept = sorted(set(found))
    for value in kept:
        if not rule.match(value):
            raise UserError("app:policy_invalid", f"{value[:60]!r} is no {what} of a wake policy: {words}.")
    if len(kept) > PATTERNS_MAX:
        raise UserError("app:policy_invalid", f"A wake policy has at most {PATTERNS_MAX} {what}s.")
    return kept
