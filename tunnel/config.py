"""The edge's settings, parsed strictly from the environment: a wrong one stops the start with a line that names it.

Nothing else in tunnel reads the environment. A secret comes from VAR, or from the file named by VAR_FILE.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunnel.edge.limits import Limits

MIN_TOKEN_CHARS = 32
SAMPLE_TOKENS = re.compile(r"(?i)change.?me|example|sample|secret|password|(.)\1{15}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# Of each field of `Limits`: its variable, the least and the most.
LIMITS = {
    "wake_timeout_s": ("BURROW_EDGE_WAKE_TIMEOUT_S", 30, 600),
    "max_waiters": ("BURROW_EDGE_MAX_WAITERS", 1, 100_000),
    "max_waiters_in_all": ("BURROW_EDGE_MAX_WAITERS_IN_ALL", 1, 100_000),
    "waiting_mib": ("BURROW_EDGE_WAITING_MIB", 1, 65_536),
    "waiting_mib_in_all": ("BURROW_EDGE_WAITING_MIB_IN_ALL", 1, 65_536),
    "max_connections": ("BURROW_EDGE_MAX_CONNECTIONS", 1, 1_000_000),
    "head_deadline_s": ("BURROW_EDGE_HEAD_DEADLINE_S", 1, 600),
    "client_idle_s": ("BURROW_EDGE_CLIENT_IDLE_S", 1, 3600),
    "body_silence_s": ("BURROW_EDGE_BODY_SILENCE_S", 1, 86_400),
    "write_stall_s": ("BURROW_EDGE_WRITE_STALL_S", 1, 86_400),
    "response_head_s": ("BURROW_EDGE_RESPONSE_HEAD_S", 1, 86_400),
    "drain_s": ("BURROW_EDGE_DRAIN_S", 0, 3600),
}
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class ConfigError(ValueError):
    """A setting is missing or wrong; the text names it."""


@dataclass(frozen=True, slots=True)
class EdgeConfig:
    """One edge worker's settings."""

    name: str
    http: tuple[str, int]
    link: tuple[str, int]
    control_socket: Path
    state: Path
    link_token: str = field(repr=False)
    preview_domain: str = "localhost"
    public_ports: frozenset[int] = frozenset()
    trusted_proxies: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    metrics: tuple[str, int] | None = None  # on loopback; None: not served


def edge_config(environ: Mapping[str, str]) -> EdgeConfig:
    """The settings in this environment, or ConfigError."""
    name = environ.get("BURROW_EDGE_NAME", "edge-0")
    if not _NAME.fullmatch(name):
        raise ConfigError("BURROW_EDGE_NAME: wanted lower-case letters, digits and hyphens")
    domain = environ.get("BURROW_PREVIEW_DOMAIN", "localhost").lower()
    if not _DOMAIN.fullmatch(domain):
        raise ConfigError("BURROW_PREVIEW_DOMAIN: wanted a domain name")
    http = _address(environ, "BURROW_EDGE_HTTP")
    return EdgeConfig(
        name=name,
        http=http,
        link=_address(environ, "BURROW_EDGE_LINK"),
        control_socket=_path(environ, "BURROW_EDGE_CONTROL_SOCKET"),
        state=_path(environ, "BURROW_EDGE_STATE"),
        link_token=_secret(environ, "BURROW_LINK_TOKEN"),
        preview_domain=domain,
        public_ports=frozenset(_numbers(environ, "BURROW_EDGE_PUBLIC_PORTS", at_most=65535)),
        trusted_proxies=frozenset(_ip(part) for part in _parts(environ, "BURROW_EDGE_TRUSTED_PROXIES")),
        limits=_limits(environ),
        metrics=_loopback(environ, "BURROW_EDGE_METRICS"),
    )


def _limits(environ: Mapping[str, str]) -> Limits:
    limits = Limits()
    for name, (variable, least, most) in LIMITS.items():
        default = getattr(limits, name)
        limits = replace(limits, **{name: type(default)(_number(environ, variable, int(default), least, most))})
    return limits


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise ConfigError(f"{name}: missing")
    return value


def _address(environ: Mapping[str, str], name: str) -> tuple[str, int]:
    host, colon, port = _required(environ, name).rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ConfigError(f"{name}: wanted ADDRESS:PORT")
    try:
        return str(ipaddress.ip_address(host.strip("[]"))), int(port)
    except ValueError:
        raise ConfigError(f"{name}: {host!r} is not an address") from None


def _loopback(environ: Mapping[str, str], name: str) -> tuple[str, int] | None:
    if not environ.get(name):
        return None
    host, port = _address(environ, name)
    if not ipaddress.ip_address(host).is_loopback:
        raise ConfigError(f"{name}: {host} is not an address of loopback")
    return host, port


def _path(environ: Mapping[str, str], name: str) -> Path:
    path = Path(_required(environ, name))
    if not path.is_absolute():
        raise ConfigError(f"{name}: wanted an absolute path")
    return path


def _secret(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    file = environ.get(f"{name}_FILE", "")
    if value and file:
        raise ConfigError(f"{name} and {name}_FILE are both set")
    if file:
        try:
            value = Path(file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{name}_FILE: {e}") from None
    if len(value) < MIN_TOKEN_CHARS:
        raise ConfigError(f"{name}: wanted at least {MIN_TOKEN_CHARS} characters, in it or in the file {name}_FILE")
    if SAMPLE_TOKENS.search(value):
        raise ConfigError(f"{name}: this is a sample, not a secret")
    return value


def _parts(environ: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in environ.get(name, "").split(",") if part.strip()]


def _numbers(environ: Mapping[str, str], name: str, *, at_most: int) -> list[int]:
    found = []
    for part in _parts(environ, name):
        if not re.fullmatch(r"[0-9]{1,9}", part) or not 0 < int(part) <= at_most:
            raise ConfigError(f"{name}: {part!r} is not a number from 1 to {at_most}")
        found.append(int(part))
    return found


def _number(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = environ.get(name, "")
    if not value:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
        raise ConfigError(f"{name}: wanted a whole number from {least} to {most}")
    return int(value)


def _ip(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise ConfigError(f"BURROW_EDGE_TRUSTED_PROXIES: {value!r} is not an address") from None
