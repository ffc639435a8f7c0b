"""Real builds in real builder machines, and the images booted: what a push goes through."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from hosts.guest.client import Listening
from hosts.wire.commands import BuildPhase, BuiltImage, Failure
from hosts.wire.spec import Process
from tests.environment import ROOT
from tests.hosts.guest.test_boot import fetch
from tests.hosts.real_host import RealHost, real_host

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

APPS = ROOT / "tests/apps"
SLOT = 42


async def answer_of(host: RealHost, image: BuiltImage) -> bytes:
    """Boot a built image and fetch its first page."""
    async with host.machine(host.images.path(image.digest), slot=SLOT + 1) as machine:
        await machine.guest.hello(120)
        await machine.guest.start(
            Process(command=image.command, cwd=image.cwd),
            hostname="sample",
            clock_ms=lambda: time.time_ns() // 1_000_000,
            entropy=os.urandom(32),
        )
        found = await machine.guest.await_listening(120)
        assert isinstance(found, Listening), found
        return await fetch(machine, found.port)


async def test_a_flask_app_is_built_and_served(tmp_path: Path) -> None:
    async with real_host(tmp_path) as host:
        image, watch = await host.build(APPS / "flask-counter", slot=SLOT)
        assert isinstance(image, BuiltImage), (image, watch.lines)
        assert (image.kind, image.command) == ("python", "python app.py")
        assert watch.phases == [
            BuildPhase.BOOTING,
            BuildPhase.DETECTING,
            BuildPhase.INSTALLING,
            BuildPhase.PACKING,
        ]
        assert any("flask==" in line for line in watch.lines)
        assert not (tmp_path / f"build-{SLOT}").exists()
        assert json.loads(await answer_of(host, image))["visits"] == 1


async def test_a_node_app_is_installed_built_and_served(tmp_path: Path) -> None:
    # One small package instead of express's 68: npm under TCG takes about a second for each.
    app = tmp_path / "app"
    app.mkdir()
    package = {"main": "server.js", "scripts": {"build": "echo built >built.txt"}, "dependencies": {"ms": "2.1.3"}}
    (app / "package.json").write_text(json.dumps(package))
    (app / "server.js").write_text(
        "const page = require('ms')(60000) + ' ' + require('fs').readFileSync('built.txt', 'utf8');\n"
        "require('http').createServer((q, a) => a.end(page)).listen(process.env.PORT);\n"
    )
    async with real_host(tmp_path) as host:
        image, watch = await host.build(app, slot=SLOT)
        assert isinstance(image, BuiltImage), (image, watch.lines)
        assert (image.kind, image.command) == ("node", "node server.js")
        assert await answer_of(host, image) == b"1m built\n"


async def test_nothing_to_run_is_a_failure_that_names_what_is_there(tmp_path: Path) -> None:
    async with real_host(tmp_path) as host:
        failure, _ = await host.build(APPS / "nothing-to-run", slot=SLOT)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.phase) == ("build:nothing_to_run", "detecting")
    assert "at the top there is EXPECT_FAILURE, README.md, notes/" in failure.message


def app_that_builds_by(folder: Path, command: str) -> Path:
    """An app whose build does only that."""
    app = folder / "app"
    app.mkdir()
    (app / "package.json").write_text(json.dumps({"scripts": {"start": "x", "build": command}}))
    return app


async def test_a_full_disk_is_called_that(tmp_path: Path) -> None:
    app = app_that_builds_by(tmp_path, "head -c 900M /dev/zero >filling")
    async with real_host(tmp_path) as host:
        failure, watch = await host.build(app, slot=SLOT, disk_mib=128)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.phase) == ("build:disk_full", "building"), (failure, watch.lines)


async def test_memory_that_does_not_suffice_is_called_that(tmp_path: Path) -> None:
    app = app_that_builds_by(tmp_path, "tail /dev/zero")  # keeps the last line, which never ends
    async with real_host(tmp_path) as host:
        failure, watch = await host.build(app, slot=SLOT, memory_mib=320)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.phase) == ("build:out_of_memory", "building"), (failure, watch.lines)
    assert failure.message == "the builder's memory did not suffice for: tail /dev/zero"


async def test_time_that_ran_out_is_called_that_with_the_command_it_went_to(tmp_path: Path) -> None:
    app = app_that_builds_by(tmp_path, "echo begun; sleep 600")
    began = time.monotonic()
    async with real_host(tmp_path) as host:
        failure, watch = await host.build(app, slot=SLOT, timeout_s=40)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.phase) == ("build:timeout", "building"), (failure, watch.lines)
    assert "begun" in watch.lines
    assert failure.message == "the build ran out of time in: echo begun; sleep 600"
    assert time.monotonic() - began < 60
