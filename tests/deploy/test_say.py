"""What a person sees while something long runs, and when it fails."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from deploy.box.say import Problem, Say


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


def test_a_failure_shows_the_end_of_the_output_and_where_the_rest_is(tmp_path: Path, said: io.StringIO) -> None:
    say = Say(log=tmp_path / "log", out=said)
    script = "import sys; [print('line', n) for n in range(50)]; print('out of disk', file=sys.stderr); sys.exit(3)"
    with pytest.raises(Problem, match=r"it broke \(exit code 3; all of its output: .*log\)"):
        say.run([sys.executable, "-c", script], failure="it broke", timeout_s=30)
    assert "| out of disk" in said.getvalue()
    assert "line 0\n" not in said.getvalue()
    assert "line 0\n" in (tmp_path / "log").read_text()


def test_a_command_that_never_ends_is_ended(said: io.StringIO) -> None:
    with pytest.raises(Problem, match="no end after"):
        Say(out=said).run(["sleep", "60"], failure="it hangs", timeout_s=0.2)


def test_a_quick_command_says_nothing(said: io.StringIO) -> None:
    assert Say(out=said).run(["cat"], failure="cat", timeout_s=10, stdin="hello\n") == "hello"
    assert said.getvalue() == ""


def test_a_step_is_announced_before_it_is_done(said: io.StringIO) -> None:
    with Say(out=said).step("making tea"):
        assert said.getvalue() == "• making tea\n"
