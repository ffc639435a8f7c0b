"""The machine sizes on offer.

Prices are in `billing.rates`, which has one for each of these; a test holds them together.
"""

from __future__ import annotations

from enum import StrEnum

from hosts.wire.spec import Size


class SizeName(StrEnum):
    """A machine size by name."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


SIZES: dict[SizeName, Size] = {
    SizeName.SMALL: Size(name="small", memory_mib=256, vcpus=1, disk_mib=1024),
    SizeName.MEDIUM: Size(name="medium", memory_mib=512, vcpus=1, disk_mib=2048),
    SizeName.LARGE: Size(name="large", memory_mib=1024, vcpus=2, disk_mib=4096),
}
