from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hosts.disk.space import usage_bytes
from hosts.disk.volumes import VolumeError, VolumeMaker

MIB = 1 << 20


@pytest.mark.root
def test_a_volume_is_a_sound_sparse_file_system_of_its_owner(tmp_path: Path) -> None:
    maker = VolumeMaker(tmp_path / "templates")
    for name in ("one", "two"):
        path = tmp_path / name
        maker.make(path, 1024, 12345)
        stat = path.stat()
        assert (stat.st_size, stat.st_uid, stat.st_gid, stat.st_mode & 0o777) == (1024 * MIB, 12345, 12345, 0o600)
        assert stat.st_blocks * 512 < 2 * MIB
        subprocess.run(["e2fsck", "-f", "-n", str(path)], check=True, capture_output=True)
    assert len(list((tmp_path / "templates").iterdir())) == 1
    assert usage_bytes(tmp_path) < 40 * MIB


@pytest.mark.root
def test_a_volume_that_is_there_is_never_made_anew(tmp_path: Path) -> None:
    maker = VolumeMaker(tmp_path / "templates")
    (tmp_path / "disk").write_bytes(b"all of someone's data")
    with pytest.raises(FileExistsError):
        maker.make(tmp_path / "disk", 16, 12345)
    assert (tmp_path / "disk").read_bytes() == b"all of someone's data"
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "templates"}


def test_a_size_that_is_none_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    maker = VolumeMaker(tmp_path / "templates")
    for size_mib in (0, -1, 1 << 40):
        with pytest.raises(VolumeError):
            maker.make(tmp_path / "disk", size_mib, 12345)
    assert list((tmp_path / "templates").iterdir()) == []
