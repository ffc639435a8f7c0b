"""Every URL of the control plane: the API, the internal API, git, and the dashboard last, because it takes the rest."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from control.api.urls import api_urlpatterns
from control.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    # Operators sign in where everyone does: that login is throttled, the admin's own is not.
    path("admin/login/", RedirectView.as_view(pattern_name="web:login", query_string=True)),
    path("admin/", admin.site.urls),
    *api_urlpatterns,
    path("", include("control.sources.urls")),
    path("", include("control.web.urls")),
]
