"""A machine's form: equal every time, and bound to the base image its memory was made with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hosts.agent.parts import BaseImage
from hosts.agent.shape import ImageMissing, Shape
from hosts.vmm.protocol import Boot, Disk
from hosts.wire.spec import ImageDigest
from tests.hosts.agent.rig import Rig, spec

OLD, NEW = "1" * 64, "2" * 64


class TwoBases:
    """The newest base image, and an old one until it is removed."""

    def __init__(self) -> None:
        self.digests = {OLD, NEW}

    def find(self, digest: str) -> BaseImage | None:
        digest = NEW if digest == "current" else digest
        if digest not in self.digests:
            return None
        folder = Path("/images") / digest
        return BaseImage(
            digest, Boot(folder / "vmlinuz", folder / "initramfs", ""), Disk("base", folder, read_only=True)
        )


async def test_it_is_the_same_every_time(rig: Rig) -> None:
    machine = await rig.machine()
    namespace = await machine.network()
    assert machine.vm_config(namespace) == machine.vm_config(namespace)
    config = machine.vm_config(namespace)
    assert machine.identity(config) == machine.identity(config)
    assert [(d.serial, d.read_only) for d in config.disks] == [("base", True), ("release", True), ("data", False)]
    assert config.folder == machine.files.folder


async def test_a_machine_keeps_the_base_image_it_began_with_while_there_is_one(rig: Rig) -> None:
    bases = TwoBases()
    machine = await rig.machine()
    shape = Shape(spec(), machine.files, replace(rig.parts, base_images=bases))
    assert shape.base_image("").digest == NEW
    assert shape.base_image(OLD).digest == OLD
    bases.digests.remove(OLD)
    assert shape.base_image(OLD).digest == NEW


async def test_without_an_image_it_says_which(rig: Rig) -> None:
    machine = await rig.machine()
    bases = TwoBases()
    parts = replace(rig.parts, base_images=bases)
    with pytest.raises(ImageMissing, match="f" * 64):
        Shape(spec(image=ImageDigest("f" * 64)), machine.files, parts).base_image("")
    bases.digests.clear()
    with pytest.raises(ImageMissing, match="no guest image") as missing:
        Shape(spec(), machine.files, parts).base_image(OLD)
    assert missing.value.code == "boot:no_base_image"
