"""The URLs of git over HTTP."""

from __future__ import annotations

from django.urls import re_path

from control.applications.names import SLUG_PATTERN
from control.sources import views

urlpatterns = [
    re_path(rf"^(?P<slug>{SLUG_PATTERN})\.git/info/refs\Z", views.info_refs, name="git-info-refs"),
    re_path(
        rf"^(?P<slug>{SLUG_PATTERN})\.git/(?P<service>git-upload-pack|git-receive-pack)\Z", views.rpc, name="git-rpc"
    ),
]
