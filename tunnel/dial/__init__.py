"""The dialing side of the tunnel, for the host agent: links to edges, and streams from them to machines."""

from __future__ import annotations

from tunnel.dial.dialer import Dialer
from tunnel.dial.target import Gate, Handler, Target, Watcher

__all__ = ["Dialer", "Gate", "Handler", "Target", "Watcher"]
