"""The WSGI entry point for gunicorn."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

# Web processes send tasks: the Celery application must be the current one before any task is called.
from control import worker  # noqa: F401

application = get_wsgi_application()
