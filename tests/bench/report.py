"""One figure as one JSON line: name, unit, p50, p99, n and the machine it was measured on."""

from __future__ import annotations

import json
import math
import os
import platform
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """What the figures were measured on, in a few words."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return f"{os.cpu_count()} x {models[0] if models else platform.machine()}, Linux {platform.release()}"


def percentile(samples: list[float], q: float) -> float:
    """The nearest-rank percentile, `q` from 0 to 1."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def figure(name: str, unit: str, samples: list[float], **more: object) -> None:
    """Print the figure; a name without samples says so instead of being left out."""
    line: dict[str, object] = {"name": name, "unit": unit, "n": len(samples)}
    if samples:
        line["p50"] = round(percentile(samples, 0.50), 2)
        line["p99"] = round(percentile(samples, 0.99), 2)
    print(json.dumps({**line, **more, "machine": machine()}), flush=True)
