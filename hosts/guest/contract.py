"""The resume contract as two datagrams, asked of `responder.c` inside the guest: its layout, and the asking.

Request: magic, a nonce, the time (ns since 1970, u64), 32 random bytes. Answer: magic, the same nonce, then five u32:
outcome, errno, microseconds for the clock and for the randomness, and whether the app has a hook. Little-endian. A
request that is not answered is sent again under the same nonce, which the guest answers and does not carry out twice.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from hosts.guest.answers import GuestError
from hosts.wire.commands import Step

RESPONDER_PORT = 1  # UDP
MAGIC = b"BRWRSM\0\1"
NONCE_BYTES = 16
ENTROPY_BYTES = 32
RESEND_S = 0.25  # a resume without an answer is asked again; doubled each time
RESEND_CAP_S = 2.0  # and no longer than this between two of them
NOBODY_S = 5.0  # a responder that ended is back in a fifth of a second; a guest of before there was one has none
CLOCK_TOLERANCE_S = 0.1  # a request this long under way brought an old time: the clock is set once more

_REQUEST = struct.Struct(f"<8s{NONCE_BYTES}sQ{ENTROPY_BYTES}s")
_ANSWER = struct.Struct(f"<8s{NONCE_BYTES}sIIIII")
_FAILED = {1: "the clock could not be set", 2: "the random numbers could not be renewed"}


@dataclass(frozen=True, slots=True)
class Met:
    """The contract is met: what was done, and whether the app wants to be told."""

    steps: tuple[Step, ...]
    hook: bool


async def meet(sock: socket.socket, *, clock_ms: Callable[[], int], entropy: bytes, timeout_s: float) -> Met:
    """Have the guest behind a connected datagram socket meet the contract.

    GuestError when it could not, or did not say so in time: no request may reach the app.
    """
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"the contract wants {ENTROPY_BYTES} random bytes")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            began = loop.time()
            met = await _ask(sock, clock_ms, entropy)
            if loop.time() - began > CLOCK_TOLERANCE_S:
                await _ask(sock, clock_ms, entropy)
            return met
    except TimeoutError:
        raise GuestError("guest:timeout", f"the resume contract was not answered within {timeout_s:g} s") from None


async def _ask(sock: socket.socket, clock_ms: Callable[[], int], entropy: bytes) -> Met:
    loop = asyncio.get_running_loop()
    nonce = os.urandom(NONCE_BYTES)
    wait_s = RESEND_S
    given_up_at = loop.time() + NOBODY_S
    while True:
        try:
            await loop.sock_sendall(sock, _REQUEST.pack(MAGIC, nonce, clock_ms() * 1_000_000, entropy))
            async with asyncio.timeout(wait_s):
                return await _answer_to(sock, nonce)
        except TimeoutError:
            pass
        except OSError as e:
            # Nobody has the port just now (it is being started again), or the host is short of buffers for a moment.
            if e.errno not in (errno.ECONNREFUSED, errno.ENOBUFS) or loop.time() > given_up_at:
                raise GuestError("guest:unreachable", f"the guest cannot be reached: {e.strerror or e}") from None
            await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, RESEND_CAP_S)


async def _answer_to(sock: socket.socket, nonce: bytes) -> Met:
    loop = asyncio.get_running_loop()
    while True:
        data = await loop.sock_recv(sock, _ANSWER.size + 1)
        if len(data) != _ANSWER.size:
            continue
        magic, echoed, outcome, error, clock_us, random_us, hook = _ANSWER.unpack(data)
        if magic != MAGIC or echoed != nonce:  # to an earlier request
            continue
        if outcome != 0:
            said = _FAILED.get(outcome, f"outcome {outcome}")
            raise GuestError("guest:failed", f"{said}: {os.strerror(error & 0xFFF)}")
        return Met((Step("clock", clock_us / 1000), Step("random", random_us / 1000)), hook=hook == 1)
