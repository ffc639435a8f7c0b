"""The folder of guest images."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.guest.image import GuestImageMissingError, load_image

DIGEST = "ab" * 32


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / DIGEST
    folder.mkdir()
    for name in ("vmlinuz", "initramfs", "base.erofs"):
        (folder / name).touch()
    (folder / "digest").write_text(f"{DIGEST}\n")
    (tmp_path / "current").symlink_to(DIGEST)
    return tmp_path


def test_current_is_resolved_to_its_digest(images: Path) -> None:
    image = load_image(images)
    assert (image.digest, image.folder) == (DIGEST, images / DIGEST)
    assert image.base_disk().serial == "base"


def test_an_older_image_is_found_by_digest(images: Path) -> None:
    assert load_image(images, DIGEST).kernel == images / DIGEST / "vmlinuz"


def test_no_image_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(GuestImageMissingError, match="deploy/images/build"):
        load_image(tmp_path)


def test_half_an_image_is_none(images: Path) -> None:
    (images / DIGEST / "initramfs").unlink()
    with pytest.raises(GuestImageMissingError, match="initramfs"):
        load_image(images)


def test_a_digest_that_is_none_is_refused(images: Path) -> None:
    (images / DIGEST / "digest").write_text("../../etc\n")
    with pytest.raises(GuestImageMissingError):
        load_image(images)
