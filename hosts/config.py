"""The host agent's settings, parsed strictly from the environment: a bad variable refuses the start by name.

Nothing else in `hosts` reads `os.environ`. A secret comes from the file its `..._FILE` variable names, never from a
variable's value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

Accelerator = Literal["auto", "tcg", "kvm"]

MIN_TOKEN_CHARS = 16
# A Unix socket's path must fit sockaddr_un, and machine folders hold QMP sockets under this one.
MAX_HOST_DIR_CHARS = 50  # BURROW_HOST_DIR

_INSTANCE = re.compile(r"[0-9a-f]{6}")
_HOST_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_MIB = re.compile(r"[1-9][0-9]{0,8}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConfigError(Exception):
    """The environment is not one this agent starts with; the text names the variable."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class HostConfig:
    """Everything the agent is told by its operator."""

    instance: str  # six hex digits that keep two checkouts on one machine apart
    var: Path
    host_id: str
    folder: Path  # BURROW_HOST_DIR
    edge_links: tuple[Address, ...]
    link_token: str
    control_url: str
    host_token: str
    images: Path
    nameservers: tuple[str, ...]
    ca_bundle: Path
    builder_env: tuple[tuple[str, str], ...]
    accelerator: Accelerator
    machine_memory_mib: int  # what machines and builders may have of this host's memory; 0: all but a reserve
    metrics: Address | None = None  # where they are served, on loopback; None: they are not

    @property
    def api_socket(self) -> Path:
        """Where the agent serves its API; streams the edge opens to this host end here."""
        return self.folder / "agent.sock"

    @property
    def machines(self) -> Path:
        """One folder per machine."""
        return self.folder / "machines"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> HostConfig:
        """Parse the environment, or ConfigError."""
        read = _Reader(env)
        return cls(
            instance=read.matching("BURROW_INSTANCE", _INSTANCE, "six lower-case hex digits"),
            var=read.folder("BURROW_VAR"),
            host_id=read.matching(
                "BURROW_HOST_ID", _HOST_ID, "lower-case letters, digits and inner dashes, at most 40"
            ),
            folder=read.host_dir(),
            edge_links=read.edge_links(),
            link_token=read.secret("BURROW_LINK_TOKEN_FILE"),
            control_url=read.url("BURROW_CONTROL_URL"),
            host_token=read.secret("BURROW_HOST_TOKEN_FILE"),
            images=read.folder("BURROW_IMAGES"),
            nameservers=read.nameservers(),
            ca_bundle=read.folder("BURROW_CA_BUNDLE"),
            builder_env=read.builder_env(),
            accelerator=read.accelerator(),
            machine_memory_mib=read.machine_memory_mib(),
            metrics=read.loopback("BURROW_HOST_METRICS"),
        )


class _Reader:
    """One environment, read variable by variable; every complaint names the variable."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def text(self, name: str) -> str:
        value = self._env.get(name, "")
        if not value:
            raise ConfigError(f"{name} is not set")
        return value

    def matching(self, name: str, pattern: re.Pattern[str], rule: str) -> str:
        value = self.text(name)
        if not pattern.fullmatch(value):
            raise ConfigError(f"{name}={value!r}: wanted {rule}")
        return value

    def folder(self, name: str) -> Path:
        value = Path(self.text(name))
        if not value.is_absolute():
            raise ConfigError(f"{name}={value}: wanted an absolute path")
        return value

    def host_dir(self) -> Path:
        value = self.folder("BURROW_HOST_DIR")
        if len(str(value)) > MAX_HOST_DIR_CHARS:
            raise ConfigError(
                f"BURROW_HOST_DIR={value}: longer than {MAX_HOST_DIR_CHARS} characters; its sockets would not fit"
            )
        return value

    def secret(self, name: str) -> str:
        path = self.folder(name)
        try:
            value = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{name}={path}: {e}") from None
        if len(value) < MIN_TOKEN_CHARS or any(c.isspace() for c in value):
            raise ConfigError(f"{name}={path}: wanted one token of at least {MIN_TOKEN_CHARS} characters")
        return value

    def url(self, name: str) -> str:
        value = self.text(name)
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{name}={value!r}: wanted http://host or https://host")
        return value.rstrip("/")

    def loopback(self, name: str) -> Address | None:
        value = self._env.get(name, "")
        if not value:
            return None
        address = self._address(name, value)
        try:
            good = ip_address(address.host).is_loopback
        except ValueError:
            good = False
        if not good:
            raise ConfigError(f"{name}={value!r}: wanted an address of loopback and a port, such as 127.0.0.1:9102")
        return address

    def edge_links(self) -> tuple[Address, ...]:
        return tuple(self._address("BURROW_EDGE_LINKS", item) for item in self._items("BURROW_EDGE_LINKS"))

    def _address(self, name: str, item: str) -> Address:
        host, colon, port = item.rpartition(":")
        # isascii as well: isdigit alone takes Unicode digits, and int() would take them too
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ConfigError(f"{name}: {item!r} is not host:port")
        return Address(host.strip("[]"), int(port))

    def nameservers(self) -> tuple[str, ...]:
        servers = self._items("BURROW_NAMESERVERS")
        for server in servers:
            try:
                ip_address(server)
            except ValueError:
                raise ConfigError(f"BURROW_NAMESERVERS: {server!r} is not an IP address") from None
        return servers

    def _items(self, name: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in self.text(name).split(","))
        if not all(items):
            raise ConfigError(f"{name}: an empty item between commas")
        return items

    def builder_env(self) -> tuple[tuple[str, str], ...]:
        path = self.folder("BURROW_BUILDER_ENV")
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError) as e:
            raise ConfigError(f"BURROW_BUILDER_ENV={path}: {e}") from None
        if not isinstance(value, dict) or not all(
            _VARIABLE.fullmatch(k) and isinstance(v, str) for k, v in value.items()
        ):
            raise ConfigError(f"BURROW_BUILDER_ENV={path}: wanted a JSON object of variables, all strings")
        return tuple(sorted(value.items()))

    def machine_memory_mib(self) -> int:
        value = self.text("BURROW_MACHINE_MEMORY")
        if value == "auto":
            return 0
        if not _MIB.fullmatch(value):
            raise ConfigError(f"BURROW_MACHINE_MEMORY={value!r}: wanted auto, or a number of MiB")
        return int(value)

    def accelerator(self) -> Accelerator:
        value = self.text("BURROW_ACCELERATOR")
        if value not in {"auto", "tcg", "kvm"}:
            raise ConfigError(f"BURROW_ACCELERATOR={value!r}: wanted auto, tcg or kvm")
        return cast("Accelerator", value)
