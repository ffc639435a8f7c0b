from __future__ import annotations

import subprocess
from pathlib import Path

from hosts.vmm import jail as module
from hosts.vmm.jail import prepare


def test_the_jail_holds_qemu_and_what_it_loads_and_is_made_once(tmp_path: Path) -> None:
    jail = prepare(tmp_path)
    files = {path.name for path in jail.root.rglob("*") if path.is_file()}
    assert {"qemu-system-x86_64", "setpriv", "bios-microvm.bin"} <= files
    assert not {"sh", "bash", "bwrap", "python3"} & files
    (tmp_path / "of-an-older-qemu").mkdir()
    assert prepare(tmp_path) == jail
    assert [path.name for path in tmp_path.iterdir()] == [jail.root.name]
    assert all(path.stat().st_mode & 0o005 for path in jail.root.rglob("*"))
    assert (
        jail.qemu_version
        in subprocess.run([module.QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    )
