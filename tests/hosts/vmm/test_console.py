from __future__ import annotations

import asyncio
import socket

from hosts.vmm.console import CONSOLE_BYTES, Console


async def test_only_the_end_of_a_flood_is_kept() -> None:
    ours, guests = socket.socketpair()
    ours.setblocking(False)
    console = Console(ours)
    for number in range(40):
        await asyncio.to_thread(guests.sendall, f"line {number}\n".encode() * 1000)
        await asyncio.sleep(0.001)
    assert console.tail().endswith("line 39\n")
    assert len(console.tail()) == CONSOLE_BYTES
    guests.close()
    console.close()


async def test_what_a_dead_guest_said_last_is_still_there() -> None:
    ours, guests = socket.socketpair()
    ours.setblocking(False)
    console = Console(ours)
    guests.sendall(b"Kernel panic \xff\n")
    guests.close()
    assert console.tail() == "Kernel panic \ufffd\n"
    await asyncio.sleep(0.01)
    console.close()
    assert console.tail() == "Kernel panic \ufffd\n"
