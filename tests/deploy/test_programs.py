"""The supervisor's configuration, read back with the supervisor's own parser."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]
from supervisor.options import ServerOptions

from deploy.box import postgres
from deploy.box.instance import Instance
from deploy.box.ports import Ports
from deploy.box.programs import LOG_BYTES, Program, configuration
from deploy.box.say import Problem
from deploy.box.up import describe

ROOT = Path(__file__).resolve().parents[2]


def read_back(text: str, folder: Path) -> dict[str, Any]:
    """Each program as the supervisor understands it. It wants the folders it will write to there already."""
    text = text.replace(f"{Instance.of(folder).run}/supervis", f"{folder}/var/supervis")
    file = folder / "supervisord.conf"
    file.write_text(text, encoding="utf-8")
    (folder / "var/log").mkdir(parents=True, exist_ok=True)
    options = ServerOptions()
    options.configfile = str(file)
    options.process_config(do_usage=False)
    return {program.name: program for group in options.process_group_configs for program in group.process_configs}


@pytest.fixture
def box(tmp_path: Path) -> Instance:
    """A box; its code is this checkout's."""
    folder = tmp_path / "my-box_1.0+a@b"
    folder.mkdir()
    (folder / "deploy").symlink_to(ROOT / "deploy")
    for name in ("platform", "hosts", "tunnel", "templates"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "var/log").mkdir(parents=True)
    return Instance.of(folder)


@pytest.fixture
def programs(box: Instance, monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """What deploy/up describes for it."""
    monkeypatch.setenv("BURROW_NAMESERVERS", "192.0.2.53")
    for file in ("images/current/digest", "builder.json"):
        (box.var / file).parent.mkdir(parents=True, exist_ok=True)
        (box.var / file).write_text("{}")
    cluster = postgres.Cluster(box.place / "var/postgres", box.place / "var/run", box.user)
    return describe(box, Ports(), cluster, Path("/usr/lib/postgresql/15/bin"))


def test_the_supervisor_reads_every_program_as_it_was_meant(box: Instance, programs: list[Program]) -> None:
    read = read_back(configuration(box, programs), box.root)
    assert set(read) == {"postgres", "redis", "web", "worker", "beat", "edge", "host"}
    for program in programs:
        understood = read[program.name]
        assert tuple(shlex.split(understood.command)) == program.argv
        assert {k: v for k, v in understood.environment.items() if k != "RESTART_WHEN_CHANGED"} == program.environment
        assert understood.stdout_logfile == str(box.var / "log" / f"{program.name}.log")
        assert understood.stdout_logfile_maxbytes == LOG_BYTES


def test_what_the_supervisors_parser_would_read_otherwise_is_refused(box: Instance, programs: list[Program]) -> None:
    for odd in ("100%", 'say "no"', "a ;comment", "a #comment", "two\nlines", "it's", "back\\slash"):
        with pytest.raises(Problem, match="cannot be written"):
            configuration(box, [replace(programs[0], environment={"ODD": odd})])


def test_stopping_the_host_agent_leaves_its_machines_running(box: Instance, programs: list[Program]) -> None:
    host = read_back(configuration(box, programs), box.root)["host"]
    assert not host.stopasgroup
    assert not host.killasgroup


def test_only_the_host_agent_runs_as_root(box: Instance, programs: list[Program]) -> None:
    enter = ("/bin/sh", str(box.root / "deploy/box/enter.sh"))
    users = {p.name: p.argv[2] for p in programs if p.argv[:2] == enter}
    assert {p.name for p in programs} - set(users) == {"host"}
    assert {name for name, user in users.items() if user == box.edge_user} == {"edge"}
    assert {user for name, user in users.items() if name != "edge"} == {box.user}


def test_everything_that_dies_is_started_again_for_ever(box: Instance, programs: list[Program]) -> None:
    for program in read_back(configuration(box, programs), box.root).values():
        assert program.autorestart
        assert program.startretries >= 1_000_000


def test_a_program_is_restarted_only_when_what_it_runs_changed(box: Instance, programs: list[Program]) -> None:
    (box.root / "tunnel").unlink()
    (box.root / "tunnel").mkdir()
    (box.root / "tunnel/new.py").write_text("x = 1\n")
    before = {p.name: p.fingerprint for p in programs}
    cluster = postgres.Cluster(box.place / "var/postgres", box.place / "var/run", box.user)
    after = {p.name: p.fingerprint for p in describe(box, Ports(), cluster, Path("/usr/lib/postgresql/15/bin"))}
    assert {name for name in after if after[name] != before[name]} == {"edge", "host", "web", "worker", "beat"}
    assert after["postgres"] == before["postgres"]


def test_no_secret_stands_in_the_configuration(box: Instance, programs: list[Program]) -> None:
    names = {name for program in programs for name in program.environment}
    secretive = {n for n in names if any(word in n for word in ("TOKEN", "SECRET", "PASSWORD"))}
    assert secretive
    assert all(name.endswith("_FILE") for name in secretive)


def test_web_takes_no_path_from_a_header(programs: list[Program]) -> None:
    (web,) = (program for program in programs if program.name == "web")
    config = Config()
    given = config.parser().parse_args([part for part in web.argv if part.startswith("--forwarder")])
    config.set("forwarder_headers", given.forwarder_headers)
    assert config.forwarder_headers == []


def test_metrics_are_served_only_where_the_operator_said(
    box: Instance, programs: list[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"edge": ("BURROW_EDGE_METRICS", "127.0.0.1:9101"), "host": ("BURROW_HOST_METRICS", "127.0.0.1:9102")}
    assert [p.name for p in programs if asked.get(p.name, ("", ""))[0] in p.environment] == []
    for name, value in asked.values():
        monkeypatch.setenv(name, value)
    cluster = postgres.Cluster(box.place / "var/postgres", box.place / "var/run", box.user)
    again = describe(box, Ports(), cluster, Path("/usr/lib/postgresql/15/bin"))
    assert {p.name: p.environment[asked[p.name][0]] for p in again if p.name in asked} == {
        program: value for program, (_, value) in asked.items()
    }
