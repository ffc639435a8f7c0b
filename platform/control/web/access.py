"""Who may see a page: a signed-in person, and only what is theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django_htmx.http import HttpResponseClientRefresh
from django_htmx.middleware import HtmxDetails

from control.accounts.models import User
from control.applications import queries as applications
from control.applications.models import App

P = ParamSpec("P")


class SignedInRequest(HttpRequest):
    """A request of which we know who sent it."""

    user: User  # narrower than in Django: the decorator has checked
    htmx: HtmxDetails


def signed_in(
    view: Callable[Concatenate[SignedInRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Send others to sign in; a poll of a page whose session ended reloads that page, which then does so."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if request.user.is_authenticated:
            return view(cast(SignedInRequest, request), *args, **kwargs)
        if cast(SignedInRequest, request).htmx:
            return HttpResponseClientRefresh()
        return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")

    return checked


def own_app(request: SignedInRequest, name: str) -> App:
    """The app of this name if it is theirs; a foreign one looks like one that does not exist."""
    try:
        return applications.app_of(request.user, name)
    except App.DoesNotExist:
        raise Http404 from None
