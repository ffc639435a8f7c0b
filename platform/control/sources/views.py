"""git over smart HTTP: who may, then a bounded `git http-backend`.

The token is the password; the user name is ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
import socket
import uuid
from collections.abc import Mapping
from typing import cast

from django.conf import settings
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from control.accounts.models import User
from control.accounts.queries import user_of_token
from control.applications.models import App
from control.applications.queries import app_of
from control.sources import repositories, spool, tickets
from control.sources.backend import CLONE_LIMIT_S, PUSH_LIMIT_S, Backend, BadAnswer, Body
from control.sources.slots import SLOTS

SERVICES = frozenset({"git-upload-pack", "git-receive-pack"})
PROTOCOL = re.compile(r"\Aversion=[0-2]\Z")
RETRY_AFTER_S = 10
IO_TIMEOUT_S = 120.0  # a client that neither sends nor reads for so long is cut off
ARCHIVE_BYTES_MAX = 1024 * 1024 * 1024
MAX_BASIC_CHARS = 1000


@csrf_exempt
def info_refs(request: HttpRequest, slug: str) -> HttpResponseBase:
    """GET /<app>.git/info/refs?service=..."""
    service = request.GET.get("service", "")
    if request.method != "GET" or service not in SERVICES:
        raise Http404
    return _serve(request, slug, service, "info/refs")


@csrf_exempt
def rpc(request: HttpRequest, slug: str, service: str) -> HttpResponseBase:
    """POST /<app>.git/git-upload-pack or git-receive-pack."""
    if request.method != "POST" or service not in SERVICES:
        raise Http404
    if request.headers.get("Content-Type") != f"application/x-{service}-request":
        return HttpResponse("this is for git\n", status=415, content_type="text/plain")
    return _serve(request, slug, service, service)


def _serve(request: HttpRequest, slug: str, service: str, path: str) -> HttpResponseBase:
    user = _user(request)
    if user is None:
        response = HttpResponse("a valid API token is needed as the password\n", status=401, content_type="text/plain")
        response["WWW-Authenticate"] = 'Basic realm="Burrow", charset="UTF-8"'
        return response
    try:
        app = app_of(user, slug)
    except App.DoesNotExist:
        return HttpResponse("no such app\n", status=404, content_type="text/plain")
    if not SLOTS.take(user.id):
        response = HttpResponse("too many git requests at once\n", status=503, content_type="text/plain")
        response["Retry-After"] = str(RETRY_AFTER_S)
        return response
    try:
        backend = _start(request, app, user, service, path)
    except BaseException:
        SLOTS.give_back(user.id)
        raise
    if not connection.in_atomic_block:
        connection.close()  # what follows may take minutes and needs no database
    try:
        status, headers = backend.head()
    except BadAnswer:
        backend.close()
        return HttpResponse("git failed\n", status=500, content_type="text/plain")
    answer = StreamingHttpResponse(backend, status=status)
    for name, value in headers:
        answer[name] = value
    answer["X-Accel-Buffering"] = "no"  # for proxies that would hold back the build's log
    return answer


def _start(request: HttpRequest, app: App, user: User, service: str, path: str) -> Backend:
    repository = repositories.ensure(app)
    environ = cast("Mapping[str, object]", request.META)
    client = environ.get("gunicorn.socket")  # another server has none: then a hang-up is noticed at the next write
    if not isinstance(client, socket.socket):
        client = None
    else:
        client.settimeout(IO_TIMEOUT_S)
    length = None if "HTTP_TRANSFER_ENCODING" in environ else int(str(environ.get("CONTENT_LENGTH") or 0))
    return Backend(
        _cgi_environment(request, app, user, repository.name, service, path, length),
        cast("Body", environ["wsgi.input"]),
        length,
        client=client,
        limit_s=PUSH_LIMIT_S if service == "git-receive-pack" else CLONE_LIMIT_S,
        done=lambda: SLOTS.give_back(user.id),
    )


def _cgi_environment(
    request: HttpRequest, app: App, user: User, repository: str, service: str, path: str, length: int | None
) -> dict[str, str]:
    """Built from nothing: no header and no variable of web's reaches git but those named here."""
    environment = repositories.git_environment(repositories.path_of(app)) | {
        "GIT_PROJECT_ROOT": str(settings.REPOS),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{repository}/{path}",
        "QUERY_STRING": f"service={service}" if path == "info/refs" else "",
        "REQUEST_METHOD": str(request.method),
        "CONTENT_TYPE": f"application/x-{service}-request" if path != "info/refs" else "",
        "REMOTE_USER": str(user.id),
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "GATEWAY_INTERFACE": "CGI/1.1",
    }
    if length is not None and path != "info/refs":
        environment["CONTENT_LENGTH"] = str(length)
    if request.headers.get("Content-Encoding") == "gzip":
        environment["HTTP_CONTENT_ENCODING"] = "gzip"
    protocol = request.headers.get("Git-Protocol", "")
    if PROTOCOL.match(protocol):
        environment["HTTP_GIT_PROTOCOL"] = protocol
    if path == "git-receive-pack":
        push_id = uuid.uuid4()
        environment |= {
            "PUSH_URL": f"{settings.INTERNAL_URL}/internal/v1/push",
            "PUSH_TICKET": tickets.issue(tickets.Ticket(push_id, app.id, user.id)),
            "PUSH_SOURCE": str(spool.source_path(push_id)),
            "PUSH_ARCHIVE_BYTES_MAX": str(ARCHIVE_BYTES_MAX),
        }
    return environment


def _user(request: HttpRequest) -> User | None:
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic" or len(encoded) > MAX_BASIC_CHARS:
        return None
    try:
        _, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return user_of_token(password)
