"""Which pushes are accepted."""

from __future__ import annotations

import pytest

from control.sources.policy import Update, branch_of, judge

OLD, NEW, ZERO = "1" * 40, "2" * 40, "0" * 40
URL = "http://127.0.0.1:8000/blog.git"


def code_of(*updates: Update, options: int = 0) -> str | None:
    refusal = judge(updates, options=options, branch="main", git_url=URL)
    return refusal.code if refusal else None


def test_one_update_of_the_branch_is_accepted() -> None:
    assert code_of(Update(OLD, NEW, "refs/heads/main")) is None
    assert code_of(Update(ZERO, NEW, "refs/heads/main")) is None
    assert code_of(Update("1" * 64, "2" * 64, "refs/heads/main")) is None


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("refs/heads/feature", "push:other_branch"),
        ("refs/tags/v1", "push:tag_refused"),
        ("refs/heads/main;id", "push:ref_refused"),
        ("refs/heads/--upload-pack=x", "push:ref_refused"),
        ("refs/heads/-h", "push:ref_refused"),
        ("refs/heads/x;touch${IFS}pwn", "push:ref_refused"),
        ("refs/heads/../../x", "push:ref_refused"),
        ("refs/heads/main\n", "push:ref_refused"),
        ("refs/heads/a.lock", "push:ref_refused"),
        ("refs/heads/", "push:ref_refused"),
        ("refs/notes/x", "push:ref_refused"),
        ("HEAD", "push:ref_refused"),
        ("refs/heads/" + "x" * 200, "push:ref_refused"),
    ],
)
def test_everything_else_is_refused(ref: str, code: str) -> None:
    assert code_of(Update(OLD, NEW, ref)) == code


def test_another_branch_is_answered_with_the_command_to_use() -> None:
    refusal = judge([Update(OLD, NEW, "refs/heads/fix/login")], options=0, branch="main", git_url=URL)
    assert refusal is not None
    assert f"git push {URL} fix/login:main" in refusal.message


def test_deletions_many_refs_and_options_are_refused() -> None:
    main = Update(OLD, NEW, "refs/heads/main")
    assert code_of(Update(OLD, ZERO, "refs/heads/main")) == "push:delete_refused"
    assert code_of(main, Update(OLD, NEW, "refs/heads/x")) == "push:many_refs"
    assert code_of() == "push:many_refs"
    assert code_of(main, options=1) == "push:options_refused"


@pytest.mark.parametrize("oid", ["", "HEAD", "--help", "2" * 39, "G" * 40, "2" * 40 + "\n"])
def test_what_is_no_object_id_is_refused(oid: str) -> None:
    assert code_of(Update(OLD, oid, "refs/heads/main")) == "push:object_invalid"


@pytest.mark.parametrize("name", ["main", "fix/login", "v1.2", "a_b-c", "x" * 100])
def test_ordinary_branches_are_well_formed(name: str) -> None:
    assert branch_of(f"refs/heads/{name}") == name
