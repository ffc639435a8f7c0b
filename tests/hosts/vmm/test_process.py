from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hosts.vmm.process import reap_when_done, record_of, watch
from hosts.vmm.protocol import ProcessRecord, VmmError


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def record(process: subprocess.Popen[bytes]) -> ProcessRecord:
    found = record_of(process.pid)
    assert found is not None
    return found


async def test_an_end_is_noticed_whoever_caused_it(sleeper: subprocess.Popen[bytes]) -> None:
    watched = watch(record(sleeper))
    assert watched is not None
    assert not watched.exited.is_set()
    sleeper.kill()
    await watched.wait(5)
    watched.kill()
    assert record_of(sleeper.pid) is None, "a zombie is no process"


async def test_it_can_be_ended_through_the_watch(sleeper: subprocess.Popen[bytes]) -> None:
    watched = watch(record(sleeper))
    assert watched is not None
    watched.kill()
    await watched.wait(5)
    assert watch(watched.record) is None


async def test_another_process_with_the_same_pid_is_not_taken_for_it(sleeper: subprocess.Popen[bytes]) -> None:
    right = record(sleeper)
    assert watch(replace(right, start_ticks=right.start_ticks - 1)) is None
    assert watch(replace(right, boot_id="the boot before")) is None
    assert watch(replace(right, pid=2**22 - 1)) is None


async def test_a_wait_has_an_end_and_watching_may_stop(sleeper: subprocess.Popen[bytes]) -> None:
    watched = watch(record(sleeper))
    assert watched is not None
    with pytest.raises(VmmError, match="did not end"):
        await watched.wait(0.01)
    watched.close()
    watched.close()
    watched.kill()
    assert sleeper.poll() is None


async def test_a_child_is_collected_when_it_ends() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})  # noqa: ASYNC221 - and this too
    reap_when_done(pid)
    await asyncio.sleep(0.3)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)  # noqa: ASYNC222 - returns at once
