"""What the machines' builders take over from this server: its DNS servers and its package index settings."""

from __future__ import annotations

import configparser
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from deploy.box.say import Problem

RESOLV_CONF = Path("/etc/resolv.conf")
RESOLVED_CONF = Path("/run/systemd/resolve/resolv.conf")  # systemd-resolved's real servers, behind its loopback stub
PIP_CONF = (Path("/etc/pip.conf"), Path("/root/.config/pip/pip.conf"), Path("/root/.pip/pip.conf"))
NPM_CONF = (Path("/etc/npmrc"), Path("/root/.npmrc"))
BUILDER_VARIABLES = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "UV_INDEX_URL", "UV_DEFAULT_INDEX",
    "NPM_CONFIG_REGISTRY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip


def nameservers(
    env: Mapping[str, str] = os.environ, files: tuple[Path, ...] = (RESOLV_CONF, RESOLVED_CONF)
) -> tuple[str, ...]:
    """The IPv4 DNS servers that a machine's namespace can reach: those of this server that are not on its loopback."""
    if configured := env.get("BURROW_NAMESERVERS"):
        return tuple(part.strip() for part in configured.split(","))
    for path in files:
        found = tuple(filter(_reachable, _named_in(path)))
        if found:
            return found
    raise Problem(
        "no DNS server that a machine could reach (only loopback ones in /etc/resolv.conf): "
        "name one with BURROW_NAMESERVERS=address deploy/up"
    )


def _named_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [w[1] for w in words if len(w) > 1 and w[0] == "nameserver"]


def _reachable(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return isinstance(address, ipaddress.IPv4Address) and not address.is_loopback


def builder_settings(
    env: Mapping[str, str] = os.environ, pip: tuple[Path, ...] = PIP_CONF, npm: tuple[Path, ...] = NPM_CONF
) -> dict[str, str]:
    """Package index variables for the builder.

    Indexes on this server's own disk mean nothing inside a machine: left out.
    """
    found: dict[str, str] = {}
    for path in pip:
        found |= _pip_settings(path)
    for path in npm:
        found |= _npm_settings(path)
    for name in BUILDER_VARIABLES:
        if value := env.get(name) or env.get(name.lower()):
            found[name] = value
    kept = {}
    for name, value in found.items():
        words = [word for word in value.split() if not word.startswith(("file:", "/"))]
        if words:
            kept[name] = " ".join(words)
    return kept


def _pip_settings(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}
    found = {}
    for option in ("index-url", "extra-index-url", "trusted-host"):
        name = f"PIP_{option.upper().replace('-', '_')}"
        if value := parser.get("global", option, fallback=""):
            found[name] = " ".join(value.split())
    return found


def _npm_settings(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        key, equals, value = line.partition("=")
        if equals and key.strip() == "registry" and "$" not in value:
            return {"NPM_CONFIG_REGISTRY": value.strip().strip('"')}
    return {}
