"""Log lines are JSON, whatever is in them."""

from __future__ import annotations

import io
import json
import logging

import pytest

from control import log


def test_a_line_cannot_be_forged_or_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    log.configure()
    log.get("test").warning("pushed", ref="main\n{} \x1b]52;c;x\x07")
    logging.getLogger("test").warning("plain %s", "\x1b[2J")
    first, second = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert json.loads(first)["ref"] == "main\n{} \x1b]52;c;x\x07"
    assert json.loads(second)["event"] == "plain \x1b[2J"
    monkeypatch.undo()
    log.configure()
