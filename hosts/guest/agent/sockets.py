"""Which TCP ports the app listens on, read from /proc/net/tcp and tcp6, and which of them is the web server.

Pure but for `read_tables`. Apps are found by looking: they bind 127.0.0.1, ignore PORT, or open a second port for
metrics.
"""

from __future__ import annotations

LISTEN = "0A"
# Debuggers and metrics that frameworks open beside the web server: the last choice.
SIDE_PORTS = frozenset({9229, 9230, 5678, 9090, 9464, 24678})


class Listener:
    """One listening socket."""

    __slots__ = ("address", "port")

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port

    @property
    def loopback(self) -> bool:
        return self.address == "::1" or self.address.startswith("127.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listener) and (self.address, self.port) == (other.address, other.port)

    def __hash__(self) -> int:
        return hash((self.address, self.port))

    def __repr__(self) -> str:
        return f"{self.address}:{self.port}"


def read_tables() -> list[str]:
    """The kernel's tables, IPv4 first."""
    tables = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                tables.append(file.read())
        except FileNotFoundError:  # a kernel without IPv6
            tables.append("")
    return tables


def listeners(tables: list[str], uid: int) -> list[Listener]:
    """What `uid` listens on, in order of port, each address and port once."""
    found: set[Listener] = set()
    for table in tables:
        for row in table.split("\n")[1:]:
            fields = row.split(None, 8)
            # sl local remote state queues timer retransmits uid ...
            if len(fields) > 8 and fields[3] == LISTEN and fields[7] == str(uid):
                address, _, port = fields[1].partition(":")
                found.add(Listener(_address(address), int(port, 16)))
    return sorted(found, key=lambda s: (s.port, s.address))


def choose(found: list[Listener], wanted: int) -> Listener | None:
    """The web server among them: PORT if it is there, else the lowest port that others can reach, else the lowest."""
    if not found:
        return None

    def rank(socket: Listener) -> tuple[bool, bool, bool, int]:
        return socket.port != wanted, socket.port in SIDE_PORTS, socket.loopback, socket.port

    return min(found, key=rank)


def loopback_only(found: list[Listener]) -> dict[int, str]:
    """Ports that are reachable on loopback alone, and at which address."""
    outside = {s.port for s in found if not s.loopback}
    return {s.port: s.address for s in found if s.port not in outside}


def _address(raw: str) -> str:
    """The kernel prints addresses as 32-bit words in host (little-endian) order."""
    data = b"".join(bytes.fromhex(raw[i : i + 8])[::-1] for i in range(0, len(raw), 8))
    if len(data) == 4:
        return ".".join(str(b) for b in data)
    if data[:12] == b"\0" * 10 + b"\xff\xff":
        return ".".join(str(b) for b in data[12:])
    if data == b"\0" * 16:
        return "::"
    if data == b"\0" * 15 + b"\1":
        return "::1"
    return ":".join(data[i : i + 2].hex() for i in range(0, 16, 2))
