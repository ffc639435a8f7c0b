"""Which box this checkout is: its id, its user, its folders and its ports.

The id follows from the checkout's real path, so it needs no registry and two checkouts differ. What cannot be derived
(the ports that were free on the first run) is recorded in `var/instance.json` and never changes unless it is configured
anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.box.ports import Ports, choose
from deploy.box.say import Problem

ID_LENGTH = 6
UID_RANGE_START = 700_000_000
UIDS_PER_INSTANCE = 10_000
INSTANCES_OF_UIDS = 100_000
READABLE_BY_ALL = 0o755


@dataclass(frozen=True, slots=True)
class Instance:
    """One checkout's box on this machine."""

    root: Path  # the checkout, as the operator and the host agent see it

    @classmethod
    def of(cls, checkout: Path) -> Instance:
        """The box of the checkout at this path."""
        root = checkout.resolve()
        if odd := re.search(r"[^A-Za-z0-9._+@=,~/-]", str(root)):
            raise Problem(
                f"the path of this checkout has a {odd[0]!r}, which not every program here takes: move it ({root})"
            )
        return cls(root)

    @property
    def id(self) -> str:
        """Six hex digits that every name of this box carries."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:ID_LENGTH]

    @property
    def user(self) -> str:
        """The unprivileged system user of web, worker, beat, Postgres and Redis; also the database's role."""
        return f"burrow-{self.id}"

    @property
    def edge_user(self) -> str:
        """The edge's own: it parses what strangers send, and reaches neither the database nor a secret of control's."""
        return f"{self.user}-edge"

    @property
    def var(self) -> Path:
        """Everything this box keeps."""
        return self.root / "var"

    @property
    def run(self) -> Path:
        """This box's folder under /run: gone after a reboot."""
        return Path("/run") / f"burrow-{self.id}"

    @property
    def place(self) -> Path:
        """Where the unprivileged services see the checkout, each in a mount namespace of its own (deploy/box/enter.sh).

        They need not be able to walk the folders above the checkout, and Unix socket paths stay below the kernel's 107
        bytes.
        """
        return self.run / "root"

    @property
    def python(self) -> Path:
        """The interpreter of the virtual environment."""
        return self.root / ".venv/bin/python"

    @property
    def machine_uids(self) -> range:
        """The numeric users that this box's machines run as."""
        start = UID_RANGE_START + (int(self.id, 16) % INSTANCES_OF_UIDS) * UIDS_PER_INSTANCE
        return range(start, start + UIDS_PER_INSTANCE)

    @property
    def record(self) -> Path:
        """Where the ports are kept."""
        return self.var / "instance.json"

    def ports(self) -> Ports | None:
        """The recorded ports; None before the first run. A Problem if the record is not this checkout's."""
        try:
            recorded = json.loads(self.record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as e:
            raise Problem(f"{self.record} cannot be read ({e}); mend it or run deploy/down --purge") from e
        if recorded.get("root") != str(self.root):
            raise Problem(
                f"var/ was made by a checkout at {recorded.get('root')}, and this one is at {self.root}: "
                "move it back, or start anew with deploy/down --purge"
            )
        return Ports(**recorded["ports"])

    def settle_ports(self, configured: dict[str, int], *, ours: frozenset[str]) -> Ports:
        """The ports to use from now on, recorded. `ours` are those a running service of this box holds already."""
        ports = choose(configured=configured, recorded=self.ports(), ours=ours)
        self.var.mkdir(exist_ok=True)
        self.var.chmod(READABLE_BY_ALL)
        text = json.dumps({"id": self.id, "root": str(self.root), "ports": asdict(ports)}, indent=2)
        scratch = self.record.with_suffix(".new")
        scratch.write_text(text + "\n", encoding="utf-8")
        scratch.replace(self.record)
        return ports
