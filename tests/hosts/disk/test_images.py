from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from hosts.disk.images import ImageStore
from hosts.wire.spec import ImageDigest


async def test_an_image_is_found_by_its_content(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content" * 1_000_000)
    store = ImageStore(tmp_path / "images")
    digest = await store.add(source)
    assert digest == hashlib.sha256(source.read_bytes()).hexdigest()
    assert await store.add(source) == digest
    assert store.has(digest)
    assert store.digests() == {digest}
    assert store.path(digest).read_bytes() == source.read_bytes()
    assert store.path(digest).stat().st_mode & 0o777 == 0o444
    assert source.exists()

    store.remove(digest)
    store.remove(digest)
    assert not store.has(digest)


@pytest.mark.parametrize("digest", ["", "../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_what_is_no_digest_is_no_path(tmp_path: Path, digest: str) -> None:
    with pytest.raises(ValueError, match="not a sha256"):
        ImageStore(tmp_path).has(ImageDigest(digest))


async def test_an_image_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(b"content")
    store = ImageStore(tmp_path / "images")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        await store.add(tmp_path / "source")
    assert list((tmp_path / "images").iterdir()) == []


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    (tmp_path / "output").symlink_to("secret")
    with pytest.raises(OSError, match="symbolic"):
        await ImageStore(tmp_path / "images").add(tmp_path / "output")


async def test_what_a_dead_agent_left_half_written_is_removed(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    (tmp_path / "source").write_bytes(b"content")
    digest = await store.add(tmp_path / "source")
    (tmp_path / "images" / ".new-abc").write_bytes(b"half")
    store.reclaim()
    assert os.listdir(tmp_path / "images") == [digest]  # noqa: PTH208
