"""How fast this host's time stamp counter runs, because a guest under TCG cannot find out.

Under TCG the guest's counter is the host's. A microVM has no other clock to compare it with than the PIT, and that
comparison fails whenever the host is busy: the guest then has no timer interrupt at all and hangs in its first 100 ms
(seen in 8 of 10 boots with QEMU 7.2). Told on the command line, it need not measure.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from pathlib import Path

# rdtsc; shl rdx, 32; or rax, rdx; ret
READ_COUNTER = bytes.fromhex("0f3148c1e2204809d0c3")
MEASURE_S = 0.1  # measuring the processor's counter, once a boot of the host
SAMPLES = 50
# The command line is part of what a snapshot must match, so a fresh measurement this close to the kept one changes
# nothing.
SAME_PER_MILLION = 50


def host_tsc_khz(remembered: Path) -> int:
    """The counter's rate in kHz: as kept in `remembered` while that holds, else as measured now. Takes 0.1 s."""
    measured = _measure_khz()
    try:
        kept = int(remembered.read_text())
    except (FileNotFoundError, ValueError):
        kept = 0
    if abs(measured - kept) * 1_000_000 <= measured * SAME_PER_MILLION:
        return kept
    fresh = remembered.with_name(remembered.name + ".new")
    fresh.write_text(f"{measured}\n")
    fresh.rename(remembered)
    return measured


def _measure_khz() -> int:
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(READ_COUNTER)
        place = ctypes.c_char.from_buffer(code)
        counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(place))
        ticks_before, ns_before = _pair(counter)
        time.sleep(MEASURE_S)
        ticks_after, ns_after = _pair(counter)
        del place  # a mapping with a live view cannot be closed
    return round((ticks_after - ticks_before) * 1_000_000 / (ns_after - ns_before))


def _pair(counter: ctypes._CFunctionType) -> tuple[int, float]:
    """Counter and clock of one instant: the tightest of several readings, as any of them may be interrupted."""
    readings = []
    for _ in range(SAMPLES):
        before = time.monotonic_ns()
        ticks = counter()
        after = time.monotonic_ns()
        readings.append((after - before, ticks, (before + after) / 2))
    _, ticks, ns = min(readings)
    return ticks, ns
