"""Names an app may reach with egress `allowlist`: how one is written, and its one normal form.

Control turns what people write into the normal form, the host refuses any other: `pypi.org` is that name alone,
`*.example.org` every name below example.org and not example.org itself. Lower-case ASCII (IDNA), no dot at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ALLOW_MAX = 100  # entries of an app's egress_allow
PORTS_MAX = 10  # of one entry
DEFAULT_PORTS = (443, 80)
NAME_MAX = 253  # characters of its name
TEXT_MAX = 300  # of one entry as people write it

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
# Python's IDNA 2003 makes other names of these than browsers do (IDNA 2008): the wrong name would be let out.
_DEVIATING = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")


@dataclass(frozen=True, slots=True)
class AllowedName:
    """A name, or every name below one, and the TCP ports that may be reached there."""

    name: str
    ports: tuple[int, ...] = DEFAULT_PORTS

    def covers(self, name: str) -> bool:
        """Whether a name in normal form is this one."""
        if self.name.startswith("*."):
            return name.endswith(self.name[1:])
        return name == self.name


def parse(text: str) -> AllowedName:
    """`name`, `*.name`, `name:443` or `name:443,8443` as people write it; ValueError says what is wrong with it."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"an entry has at most {TEXT_MAX} characters")
    written, colon, ports = text.strip().partition(":")
    if not colon:
        return AllowedName(normal(written))
    numbers = [part.strip() for part in ports.split(",")]
    if not all(number.isascii() and number.isdigit() and len(number) <= 5 for number in numbers):
        raise ValueError(f"{text!r}: after the colon come ports, such as example.org:443 or example.org:443,8443")
    return checked(AllowedName(normal(written), tuple(dict.fromkeys(int(number) for number in numbers))))


def write(allowed: AllowedName) -> str:
    """The way people write it."""
    if allowed.ports == DEFAULT_PORTS:
        return allowed.name
    return f"{allowed.name}:{','.join(str(port) for port in allowed.ports)}"


def checked(allowed: AllowedName) -> AllowedName:
    """The same, or ValueError if it is not in normal form."""
    if normal(allowed.name) != allowed.name:
        raise ValueError(f"{allowed.name[:80]!r}: its normal form is {normal(allowed.name)!r}")
    if not 1 <= len(allowed.ports) <= PORTS_MAX or len(set(allowed.ports)) != len(allowed.ports):
        raise ValueError(f"{allowed.name}: 1 to {PORTS_MAX} different ports")
    if not all(1 <= port <= 65_535 for port in allowed.ports):
        raise ValueError(f"{allowed.name}: a port is 1 to 65535")
    return allowed


def normal(written: str) -> str:
    """The normal form of a name or suffix, or ValueError."""
    shown = repr(written[:80])
    wildcard, name = written.startswith("*."), written.removeprefix("*.").removesuffix(".")
    if not name:
        raise ValueError(f"{shown} is no name: write a host name such as pypi.org, or *.example.org")
    if _DEVIATING & set(name):
        raise ValueError(f"{shown}: this name is read in two ways; write it in its xn-- form")
    try:
        ascii_name = name.encode("idna").decode("ascii").lower() if not name.isascii() else name.lower()
    except UnicodeError:
        raise ValueError(f"{shown} is no host name") from None
    labels = ascii_name.split(".")
    if "*" in ascii_name:
        raise ValueError(f"{shown}: a star stands alone and first, as in *.example.org")
    if len(ascii_name) > NAME_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{shown} is no host name: write a name such as pypi.org, without scheme and path")
    if labels[-1].isdigit() or re.fullmatch(r"0x[0-9a-f]*", labels[-1]):
        raise ValueError(f"{shown} is an address: only names can be allowed")
    if wildcard and len(labels) < 2:
        raise ValueError(f"{shown} would allow a whole top-level domain: name at least two labels, as in *.example.org")
    return f"*.{ascii_name}" if wildcard else ascii_name
