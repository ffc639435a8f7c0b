"""`/healthz`: 200 once the database answers.

Redis is only told about, because the dashboard and the API work without it.
"""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

REDIS_TIMEOUT_S = 1.0


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Whether this process can do its work."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        database = True
    except DatabaseError:
        database = False
    return JsonResponse({"database": database, "redis": _redis_answers()}, status=200 if database else 503)


def _redis_answers() -> bool:
    client = redis.Redis(unix_socket_path=settings.REDIS_SOCKET, socket_timeout=REDIS_TIMEOUT_S)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
