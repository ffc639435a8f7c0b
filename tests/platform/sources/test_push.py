"""`git push` with the real client against a running control plane; only the host's machines are made up."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings

from control.applications.models import App
from control.deploys import queries
from control.deploys.models import Deploy
from control.deploys.states import Outcome
from control.routes import queries as routes
from control.sources import repositories
from hosts.wire.commands import Failure
from tests.platform import rows
from tests.platform.fakehost import FakeEdge, FakeHost
from tests.platform.sources.conftest import Control, Repository, free_port, make_repository, running_web, status_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
WAIT_S = 60
NOTICED_TIMEOUT_S = 30


@pytest.fixture
def app() -> App:
    return rows.app()


@pytest.fixture
def token(app: App) -> str:
    return rows.token(app.owner)


@pytest.fixture
def repository(control: Control, app: App, token: str, tmp_path: Path) -> Repository:
    remote = f"{control.url.replace('://', f'://token:{token}@')}/{app.slug}.git"
    return make_repository(tmp_path / "work", remote)


def head(app: App) -> str:
    """What the app's main branch points at, on the server."""
    path = repositories.path_of(app)
    arguments = ["git", "-C", str(path), "rev-parse", "--verify", "--quiet", "refs/heads/main"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip()


def wait_for_outcome(app: App) -> Deploy:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        deploy = Deploy.objects.filter(environment__app=app).order_by("-number").first()
        if deploy is not None and deploy.outcome:
            return deploy
        time.sleep(0.1)
    raise AssertionError("the deploy did not end")


def test_a_push_shows_the_build_and_ends_with_the_url(
    repository: Repository, app: App, edge: FakeEdge, host: FakeHost
) -> None:
    done = repository.push()
    assert done.returncode == 0, done.stderr
    assert "remote:        Installing flask" in done.stderr
    assert f"http://{app.slug}.localhost:8080/" in done.stderr.split("remote:")[-2] + done.stderr.split("remote:")[-1]
    assert routes.app_view(app).state == "running"
    assert head(app) == repository.git("rev-parse", "HEAD").stdout.strip()
    assert edge.machine_of(f"{app.slug}.localhost")


def test_lines_come_while_the_build_runs(repository: Repository, app: App, edge: FakeEdge, host: FakeHost) -> None:
    plan = host.plan(app.slug)
    plan.hold_build = True
    with subprocess.Popen(
        ["git", "push", repository.remote, "main"],
        cwd=repository.path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(repository.path), "GIT_TERMINAL_PROMPT": "0"},
        stderr=subprocess.PIPE,
        text=True,
    ) as push:
        assert push.stderr is not None
        for line in push.stderr:
            if "Installing flask" in line:
                break
        assert push.poll() is None
        plan.hold_build = False
        assert push.wait(WAIT_S) == 0


def test_a_failed_build_declines_the_push_and_says_why(
    repository: Repository, app: App, edge: FakeEdge, host: FakeHost
) -> None:
    assert repository.push().returncode == 0
    before = head(app)
    host.plan(app.slug).build_failure = Failure("build:nothing_to_run", "detecting", "Looked for a Procfile.")
    repository.commit()
    done = repository.push()
    assert done.returncode != 0
    assert "Looked for a Procfile. (build:nothing_to_run)" in done.stderr
    assert "Release 1 stays live." in done.stderr
    assert "pre-receive hook declined" in done.stderr
    assert head(app) == before
    assert routes.app_view(app).state == "running"


def test_another_branch_is_refused_with_the_command_to_use(
    repository: Repository, app: App, control: Control, edge: FakeEdge
) -> None:
    repository.git("checkout", "-qb", "feature")
    done = repository.push("feature")
    assert done.returncode != 0
    assert f"git push {control.url}/{app.slug}.git feature:main" in done.stderr
    assert not Deploy.objects.exists()


def test_main_is_not_deleted(repository: Repository, app: App, edge: FakeEdge) -> None:
    assert repository.push().returncode == 0
    done = repository.push(":main")
    assert done.returncode != 0
    assert head(app)


@pytest.mark.parametrize(
    "ref", ["refs/heads/x;touch${IFS}pwn", "refs/heads/--upload-pack=x", "refs/for/main", "refs/heads/$(id)"]
)
def test_hostile_refs_are_refused(repository: Repository, edge: FakeEdge, ref: str) -> None:
    done = repository.push(f"HEAD:{ref}")
    assert done.returncode != 0
    assert "is not accepted" in done.stderr
    assert not Deploy.objects.exists()


@pytest.mark.parametrize("option", ["a;b=$(id)", "x" * 65_000])
def test_push_options_are_refused(repository: Repository, edge: FakeEdge, option: str) -> None:
    done = repository.git("push", "-o", option, repository.remote, "main")
    assert done.returncode != 0
    assert not Deploy.objects.exists()


def test_hostile_output_of_a_build_is_shown_escaped(
    repository: Repository, app: App, edge: FakeEdge, host: FakeHost
) -> None:
    host.plan(app.slug).lines = (
        "\x1b]52;c;cm0gLXJm\x07",
        "a\rb",
        "\x1b[2Jgone",
        "\u202etxt.exe",
        "\x1b[32mgreen\x1b[0m",
    )
    done = repository.push()
    assert done.returncode == 0, done.stderr
    shown = [line for line in done.stderr.splitlines() if line.startswith("remote:")]
    assert not any(c in "".join(shown) for c in "\x07\u202e")
    assert "\\x1b]52" in done.stderr
    assert any("green" in line and "\\x1b" not in line for line in shown)


def test_the_same_push_again_changes_nothing(repository: Repository, app: App, edge: FakeEdge) -> None:
    assert repository.push().returncode == 0
    assert repository.push().returncode == 0
    assert Deploy.objects.count() == 1


def git_at_work(app: App) -> bool:
    """Whether a git process of the server works in the app's repository."""
    repository = repositories.path_of(app).resolve()
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if path.readlink().is_relative_to(repository):
                return True
    return False


def ended(is_over: Callable[[], bool]) -> bool:
    """Whether it is over within the time a server takes to notice."""
    deadline = time.monotonic() + NOTICED_TIMEOUT_S
    while not is_over():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_pusher_who_hangs_up_loses_nothing(repository: Repository, app: App, edge: FakeEdge, host: FakeHost) -> None:
    host.plan(app.slug).hold_build = True
    with subprocess.Popen(
        ["git", "push", repository.remote, "main"],
        cwd=repository.path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(repository.path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as push:
        assert push.stderr is not None
        next(line for line in push.stderr if "Installing flask" in line)
        assert git_at_work(app)
        os.killpg(push.pid, signal.SIGTERM)  # Ctrl-C would do too, but a test may run with SIGINT ignored
    # Else the git of before may set the branch while the one of the next push is about to.
    assert ended(lambda: not git_at_work(app)), "the server's git outlives its pusher"
    host.plan(app.slug).hold_build = False
    assert wait_for_outcome(app).outcome == Outcome.SUCCEEDED
    again = repository.push()
    assert again.returncode == 0, again.stderr
    assert Deploy.objects.count() == 1
    assert head(app) == repository.git("rev-parse", "HEAD").stdout.strip()


def test_a_clone_gives_back_what_was_pushed(repository: Repository, app: App, edge: FakeEdge, tmp_path: Path) -> None:
    assert repository.push().returncode == 0
    done = repository.git("clone", "-q", repository.remote, str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy" / "app.py").exists()


def test_a_large_push_streams_through(repository: Repository, app: App, edge: FakeEdge, host: FakeHost) -> None:
    (repository.path / "blob").write_bytes(random.Random(1).randbytes(12 * 1024 * 1024))
    repository.commit()
    done = repository.push()
    assert done.returncode == 0, done.stderr


def test_who_may(control: Control, app: App, token: str) -> None:
    service = "info/refs?service=git-receive-pack"
    other = rows.app()
    assert status_of(f"{control.url}/{app.slug}.git/{service}") == 401
    assert status_of(f"{control.url}/{app.slug}.git/{service}", user="token", password="wrong") == 401
    assert status_of(f"{control.url}/{app.slug}.git/{service}", user="token", password=token) == 200
    assert status_of(f"{control.url}/{other.slug}.git/{service}", user="token", password=token) == 404
    assert status_of(f"{control.url}/no-such-app.git/{service}", user="token", password=token) == 404
    assert status_of(f"{control.url}/no-such-app.git/{service}") == 401
    for path in ("HEAD", "objects/info/packs", "config", "hooks/pre-receive", "..%2fconfig"):
        assert status_of(f"{control.url}/{app.slug}.git/{path}", user="token", password=token) == 404


def test_many_at_once_are_bounded_not_queued(control: Control, app: App, token: str) -> None:
    url = f"{control.url}/{app.slug}.git/info/refs?service=git-upload-pack"
    found: list[int] = []

    def ask() -> None:
        found.append(status_of(url, user="token", password=token))

    threads = [threading.Thread(target=ask) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 60
    assert set(found) <= {200, 503}
    assert found.count(200) >= 6
    assert status_of(url, user="token", password=token) == 200


def test_the_spool_is_empty_in_the_end(repository: Repository, app: App, edge: FakeEdge) -> None:
    before = set(Path(settings.SPOOL).iterdir())  # other tests' pushes that were never built
    assert repository.push().returncode == 0
    end = time.monotonic() + WAIT_S
    while set(Path(settings.SPOOL).iterdir()) - before and time.monotonic() < end:
        time.sleep(0.1)
    assert not set(Path(settings.SPOOL).iterdir()) - before
    assert queries.deploys_of(app)[0].outcome == Outcome.SUCCEEDED


def test_web_that_is_killed_in_mid_push_loses_nothing(
    control: Control, app: App, token: str, edge: FakeEdge, host: FakeHost, tmp_path: Path
) -> None:
    port = free_port()
    remote = f"http://token:{token}@127.0.0.1:{port}/{app.slug}.git"
    repository = make_repository(tmp_path / "work", remote)
    host.plan(app.slug).hold_build = True
    with running_web(port) as web:
        push = subprocess.Popen(
            ["git", "push", remote, "main"],
            cwd=repository.path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(repository.path), "GIT_TERMINAL_PROMPT": "0"},
            stderr=subprocess.PIPE,
            text=True,
        )
        with push:
            assert push.stderr is not None
            next(line for line in push.stderr if "Installing flask" in line)
            for process in (worker_of(web), web.pid):
                os.kill(process, signal.SIGKILL)
            assert push.wait(WAIT_S) != 0
    host.plan(app.slug).hold_build = False
    assert wait_for_outcome(app).outcome == Outcome.SUCCEEDED
    with running_web(port):
        again = repository.push()
    assert again.returncode == 0, again.stderr
    assert Deploy.objects.count() == 1
    assert head(app) == repository.git("rev-parse", "HEAD").stdout.strip()


def worker_of(web: subprocess.Popen[bytes]) -> int:
    """gunicorn's one worker process."""
    children = Path(f"/proc/{web.pid}/task/{web.pid}/children").read_text().split()
    return int(children[0])
