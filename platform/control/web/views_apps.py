"""The list of apps and making one."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from control.applications import services as applications
from control.errors import UserError
from control.web import pages
from control.web.access import SignedInRequest, signed_in
from control.web.forms import AppForm, refused
from control.web.fragments import answer_poll

UNPROCESSABLE = 422


@require_safe
@signed_in
def apps(request: SignedInRequest) -> HttpResponse:
    """All of a person's apps, or how to make the first."""
    cards = pages.cards_of(request.user)
    context: dict[str, object] = {"here": "apps", "cards": cards}
    if cards:
        context["live"] = {"app_list": pages.list_fragment(cards)}
    else:
        context["form"] = AppForm()
        context["push_example"] = f"git push {settings.PUBLIC_URL}/<name>.git main"
    return render(request, "web/apps.html", context)


@require_safe
@signed_in
def apps_live(request: SignedInRequest) -> HttpResponse:
    """What changed in the list."""
    return answer_poll(request, [pages.list_fragment(pages.cards_of(request.user))])


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new_app(request: SignedInRequest) -> HttpResponse:
    """Make an app; its page then shows how to push."""
    form = AppForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            app = applications.create_app(owner=request.user, name=form.cleaned_data["name"])
        except UserError as error:
            refused(form, error, "name")
        else:
            return redirect("web:app", app.slug)
    status = UNPROCESSABLE if form.is_bound else 200
    return render(request, "web/new_app.html", {"here": "apps", "form": form}, status=status)
