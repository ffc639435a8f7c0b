"""What tests of deploys share: an app, and ways to work on a deploy step by step."""

from __future__ import annotations

import pytest

from control.applications.models import App
from control.deploys import pipeline
from control.machines import services as machines
from tests.platform import rows


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time between polls is no part of what is tested here."""
    monkeypatch.setattr(pipeline, "BUILD_PAUSE_S", 0)
    monkeypatch.setattr(pipeline, "SWITCH_PAUSE_S", 0)
    monkeypatch.setattr(machines, "DRAIN_S", 0)


@pytest.fixture
def app() -> App:
    return rows.app()
