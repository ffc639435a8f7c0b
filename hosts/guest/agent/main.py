"""Puts the agent together and runs it until the machine ends."""

from __future__ import annotations

import gc

from hosts.guest.agent.app import App
from hosts.guest.agent.kernel import Kernel
from hosts.guest.agent.loop import Loop
from hosts.guest.agent.operations import Operations
from hosts.guest.agent.server import Server

ADDRESS = "172.31.255.2"
GATEWAY = "172.31.255.1"
PORT = 1
START_FILE = "/run/burrow/start.json"
HOOK_MARK = "/run/burrow/hook"


def main() -> None:
    """The agent of a real guest."""
    loop = Loop()
    kernel = Kernel()
    app = App(loop, kernel, ADDRESS, START_FILE, HOOK_MARK)
    Server(loop, (ADDRESS, PORT), GATEWAY, Operations(loop, kernel, app).handle)
    app.start_again()
    gc.freeze()  # a collection in the middle of a resume then has little to look at
    loop.run()
