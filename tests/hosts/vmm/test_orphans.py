from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hosts.net.addresses import machine_uid
from hosts.vmm.orphans import vmm_processes

pytestmark = pytest.mark.root

Start = tuple[int, str]


@pytest.fixture
def processes(instance: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """By uid and name: ours, one that only says so, and another instance's."""
    starts: list[Start] = [
        (machine_uid(instance, 7), f"{instance}:mine"),
        (12345, f"{instance}:only-says-so"),
        (machine_uid(instance, 8), "0f0f0f:theirs"),
    ]
    with ExitStack() as stack:
        running = []
        for uid, name in starts:
            # Two commands, so that the shell stays and keeps the words after its script.
            argv = ["setpriv", "--reuid", str(uid), "--clear-groups", "sh", "-c", "sleep 20; :", "qemu", "-name", name]
            process = stack.enter_context(subprocess.Popen(argv, start_new_session=True))
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            running.append(process)
        yield running


def test_only_this_instances_own_are_found(instance: str, processes: list[subprocess.Popen[bytes]]) -> None:
    for _ in range(100):
        found = vmm_processes(instance)
        if found:
            break
        time.sleep(0.02)
    assert [(one.name, one.record.pid) for one in found] == [("mine", processes[0].pid)]
