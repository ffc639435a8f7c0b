"""The Celery application: `celery -A control.worker worker -P threads` and `celery -A control.worker beat`.

Threads have no hard time limit of Celery's, so each task bounds itself far below the broker's visibility timeout
(`deploys.tasks` takes a slice and hands on); a test holds the constants to that.
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

app = Celery("burrow")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
