from __future__ import annotations

import os
from pathlib import Path

import pytest

from hosts.snapshots.hashing import BLOCK_BYTES, HOLE_BYTES, Stopped, memory_sha256, punch


def test_the_hash_does_not_depend_on_where_the_holes_are(tmp_path: Path) -> None:
    dense, sparse = tmp_path / "dense", tmp_path / "sparse"
    content = bytes(3 * BLOCK_BYTES) + b"words" + bytes(2 * BLOCK_BYTES)
    dense.write_bytes(content)
    with sparse.open("wb") as file:
        file.truncate(len(content))
        file.seek(3 * BLOCK_BYTES)
        file.write(b"words")
    assert sparse.stat().st_blocks < dense.stat().st_blocks
    assert memory_sha256(dense).sha256 == memory_sha256(sparse).sha256
    zeros = memory_sha256(dense).zeros
    assert zeros == memory_sha256(sparse).zeros
    assert zeros == ((0, 3 * BLOCK_BYTES), (3 * BLOCK_BYTES + HOLE_BYTES, len(content)))


def test_a_hole_may_be_smaller_than_what_is_hashed_at_once(tmp_path: Path) -> None:
    word = b"word" + bytes(HOLE_BYTES - 4)
    (tmp_path / "memory").write_bytes(word + bytes(HOLE_BYTES) + word + bytes(HOLE_BYTES - 1) + b"w")
    assert memory_sha256(tmp_path / "memory").zeros == ((HOLE_BYTES, 2 * HOLE_BYTES),)


def test_content_its_place_and_the_size_all_count(tmp_path: Path) -> None:
    hashes = set()
    for number, (offset, size) in enumerate([(0, 4), (1, 4), (BLOCK_BYTES, 4), (0, 5)]):
        path = tmp_path / str(number)
        path.write_bytes(bytes(offset) + b"word" + bytes(size * BLOCK_BYTES - offset - 4))
        hashes.add(memory_sha256(path).sha256)
    assert len(hashes) == 4


def test_it_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(b"x" * 10)
    with pytest.raises(Stopped):
        memory_sha256(tmp_path / "memory", lambda: True)


def test_a_hole_changes_neither_content_nor_times(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    content = b"kept" + bytes((1 << 20) - 4)
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with path.open("r+b") as file:
        punch(file.fileno(), BLOCK_BYTES, 1 << 20)
    assert path.stat().st_mtime_ns == 1
    assert path.stat().st_blocks * 512 <= BLOCK_BYTES
    assert path.read_bytes() == content
