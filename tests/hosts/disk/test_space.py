from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hosts.disk.space import RESERVE_BYTES, NoSpace, free_bytes, require_free, usage_bytes


def test_usage_is_what_is_allocated(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with (tmp_path / "below" / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.write(b"x" * 8192)
    (tmp_path / "dangling").symlink_to("nowhere")
    assert 8192 <= usage_bytes(tmp_path) < 65536


def test_room_is_refused_before_the_reserve_is_touched(tmp_path: Path) -> None:
    require_free(tmp_path, 0)
    stat = os.statvfs(tmp_path)
    with pytest.raises(NoSpace) as refused:
        require_free(tmp_path, stat.f_bavail * stat.f_frsize - RESERVE_BYTES // 2)
    assert refused.value.errno == errno.ENOSPC
    assert free_bytes(tmp_path) < stat.f_bavail * stat.f_frsize
