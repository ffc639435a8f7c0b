"""The CGI child, fed with bodies that end early, late or never."""

from __future__ import annotations

import contextlib
import io
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.sources import repositories
from control.sources.backend import Backend, BadAnswer
from tests.platform import rows

pytestmark = pytest.mark.django_db
END_S = 10


class Never:
    """A client that sends nothing until it is let go."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def read(self, size: int, /) -> bytes:
        self.gone.wait(END_S)
        raise ConnectionResetError


@pytest.fixture
def repository() -> Iterator[Path]:
    app = rows.app()
    yield repositories.ensure(app)
    repositories.remove(app)


def environment(repository: Path, **more: str) -> dict[str, str]:
    return repositories.git_environment(repository) | {
        "GIT_PROJECT_ROOT": str(repository.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{repository.name}/git-receive-pack",
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": "application/x-git-receive-pack-request",
        "REMOTE_USER": "1",
        **more,
    }


def start(repository: Path, body: object, length: int | None, **options: object) -> tuple[Backend, threading.Event]:
    done = threading.Event()
    backend = Backend(
        environment(repository),
        body,  # type: ignore[arg-type]  # whatever can be read from
        length,
        client=options.get("client"),  # type: ignore[arg-type]
        limit_s=float(str(options.get("limit_s", END_S))),
        done=done.set,
    )
    return backend, done


def test_an_answer_has_a_status_headers_and_a_body(repository: Path) -> None:
    done = threading.Event()
    info = {"PATH_INFO": f"/{repository.name}/info/refs", "QUERY_STRING": "service=git-upload-pack"}
    backend = Backend(
        environment(repository, REQUEST_METHOD="GET", **info),
        io.BytesIO(),
        0,
        client=None,
        limit_s=END_S,
        done=done.set,
    )
    status, headers = backend.head()
    assert status == 200
    assert ("Content-Type", "application/x-git-upload-pack-advertisement") in headers
    assert b"".join(backend).startswith(b"001e# service=git-upload-pack")
    backend.close()
    assert done.is_set()


def test_half_a_body_is_no_push(repository: Path) -> None:
    backend, done = start(repository, io.BytesIO(b"00a4" + b"0" * 40), 1000)  # the first half of a command
    # Git may have opened its answer by the time the body turns out to be short: then it ends there.
    with contextlib.suppress(BadAnswer):
        assert backend.head()[0] == 200
    assert b"".join(backend) == b""
    backend.close()
    assert backend._process.returncode == -signal.SIGTERM
    assert done.is_set()


def test_a_client_that_sends_nothing_is_ended_by_the_limit(repository: Path) -> None:
    client = Never()
    backend, done = start(repository, client, 100, limit_s=0.2)
    began = time.monotonic()
    backend.head()
    assert b"".join(backend) == b""
    client.gone.set()
    backend.close()
    assert done.wait(END_S)
    assert time.monotonic() - began < END_S


def test_a_client_that_hangs_up_is_noticed_though_nothing_is_written(repository: Path) -> None:
    here, there = socket.socketpair()
    with here, there:
        backend, done = start(repository, io.BytesIO(), None, client=here)
        backend._upload_complete.wait(END_S)
        there.close()
        began = time.monotonic()
        assert backend._client_has_gone()
        backend.close()
        assert done.wait(END_S)
        assert time.monotonic() - began < END_S


def test_it_may_be_closed_again_and_again(repository: Path) -> None:
    backend, done = start(repository, io.BytesIO(b"0000"), 4)
    backend.close()
    backend.close()
    assert done.is_set()
