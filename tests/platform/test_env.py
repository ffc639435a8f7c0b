"""The environment is read strictly: nothing unsafe starts."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from control.env import Environment

GOOD = "4f0c9d1b7e2a83655d0f1e9a7c3b2846"


def test_a_missing_secret_stops_the_start() -> None:
    with pytest.raises(ImproperlyConfigured, match="neither SECRET nor SECRET_FILE"):
        Environment({}).secret("SECRET")


@pytest.mark.parametrize(
    "value",
    ["tiny", "a" * 64, "django-insecure-" + GOOD, "changeme" * 8, "my-secret-key-" + GOOD, "example" + GOOD],
)
def test_an_unsafe_secret_stops_the_start_without_being_repeated(value: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        Environment({"SECRET": value}).secret("SECRET")
    assert value not in str(refused.value)


def test_a_good_secret_is_taken_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(GOOD + "\n")
    assert Environment({"SECRET_FILE": str(file)}).secret("SECRET") == GOOD


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="cannot be read"):
        Environment({"SECRET_FILE": str(tmp_path / "none")}).secret("SECRET")


def test_made_up_secrets_pass() -> None:
    for _ in range(200):
        Environment({"SECRET": secrets.token_hex(32)}).secret("SECRET")


@pytest.mark.parametrize("value", ["+1", "1_0", " 5", "٣", "-1", "0x1", "99999"])
def test_numbers_are_plain_and_within_bounds(value: str) -> None:
    with pytest.raises(ImproperlyConfigured):
        Environment({"N": value}).integer("N", low=1, high=65535)


@pytest.mark.parametrize("value", ["true", "yes", "2", "on"])
def test_a_flag_is_0_or_1(value: str) -> None:
    with pytest.raises(ImproperlyConfigured):
        Environment({"F": value}).flag("F", default=False)


def test_a_folder_is_absolute() -> None:
    with pytest.raises(ImproperlyConfigured):
        Environment({"D": "var/repos"}).folder("D")


def test_a_list_has_no_empty_item() -> None:
    with pytest.raises(ImproperlyConfigured):
        Environment({"L": "a,,b"}).items("L")
