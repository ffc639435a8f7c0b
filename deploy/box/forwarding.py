"""The kernel's IPv4 forwarding switch: the last box to go down puts it back as the first one found it.

Host agents turn it on for machines that may reach the internet. It is one switch for the whole machine, so what was
found is remembered for the machine, not for a box.
"""

from __future__ import annotations

from pathlib import Path

SWITCH = Path("/proc/sys/net/ipv4/ip_forward")
WAS_OFF = Path("/run/burrow-found-forwarding-off")


def remember(switch: Path = SWITCH, was_off: Path = WAS_OFF) -> None:
    """Before the first host agent starts: note it if forwarding is off."""
    if switch.read_text(encoding="ascii").strip() == "0":
        was_off.touch()


def restore(run: Path = Path("/run"), switch: Path = SWITCH, was_off: Path = WAS_OFF) -> bool:
    """After a box is gone: off again if we found it so and no other box is left. Whether it was done."""
    if not was_off.exists() or any(path.is_dir() for path in run.glob("burrow-??????")):
        return False
    switch.write_text("0\n", encoding="ascii")
    was_off.unlink()
    return True
