from __future__ import annotations

import asyncio
import socket

import pytest

from hosts.vmm.console import CONSOLE_BYTES, READ_INTERVAL_S, Console


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


async def test_a_flood_of_single_bytes_wakes_the_agent_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, guests = socket.socketpair()
    ours.setblocking(False)
    console = Console(ours)
    reads = 0
    read = console._read

    def counted() -> None:
        nonlocal reads
        reads += 1
        read()

    monkeypatch.setattr(console, "_read", counted)
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(2000):
        await asyncio.to_thread(guests.send, b".")
    while not console.tail().endswith("." * 2000):
        await asyncio.sleep(READ_INTERVAL_S)
    tails = 2 + (loop.time() - started) / READ_INTERVAL_S
    assert reads <= 2 * tails, "as often as the interval has it, and each look at its end"
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
