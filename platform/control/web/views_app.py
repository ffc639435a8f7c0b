"""One app: its page, its deploys, and what can be done to it."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from control.applications.models import App
from control.deploys import queries as deploys
from control.deploys import services as deploying
from control.deploys.models import Deploy
from control.deploys.queries import DeployView
from control.errors import UserError
from control.routes import services as routing
from control.web import pages
from control.web.access import SignedInRequest, own_app, signed_in
from control.web.forms import DeleteForm, PolicyForm, refused
from control.web.fragments import Fragment, answer_poll, fragment

UNPROCESSABLE = 422
MAX_LINE = 10_000_000  # no log is longer; a larger number is not one of ours


@require_safe
@signed_in
def app(request: SignedInRequest, name: str) -> HttpResponse:
    """An app's page."""
    return show(request, own_app(request, name))


def show(
    request: SignedInRequest,
    found: App,
    *,
    policy_form: PolicyForm | None = None,
    delete_form: DeleteForm | None = None,
    status: int = 200,
) -> HttpResponse:
    """The page, with forms as they were sent where they were refused."""
    page = pages.app_page(found)
    policy = {
        "idle_period_s": found.idle_period_s,
        "suspend_after_s": found.suspend_after_s,
        "waiting_page": found.waiting_page,
        "robots_wake": found.robots_wake,
        "no_wake_paths": "\n".join(found.no_wake_paths),
        "no_wake_methods": " ".join(found.no_wake_methods),
    }
    context = {
        "here": "apps",
        "app": found,
        "url": page.view.url,
        "address": pages.shown_address(page.view.url),
        "live": page.live,
        "moving": page.moving,
        "pushed": page.latest is not None,
        "push_command": f"git push {page.view.git_url} {page.view.environment.branch}",
        "policy_form": policy_form or PolicyForm(initial=policy),
        "delete_form": delete_form or DeleteForm(prefix="delete"),
    }
    return render(request, "web/app.html", context, status=status)


@require_safe
@signed_in
def app_live(request: SignedInRequest, name: str) -> HttpResponse:
    """What changed on an app's page."""
    return answer_poll(request, pages.app_page(own_app(request, name)).live.values())


@require_POST
@signed_in
def sleep(request: SignedInRequest, name: str) -> HttpResponse:
    """Put the app to sleep."""
    found = own_app(request, name)
    try:
        routing.sleep_app(app=found)
    except UserError as error:
        messages.error(request, error.message)
    return after_action(request, found)


@require_POST
@signed_in
def wake(request: SignedInRequest, name: str) -> HttpResponse:
    """Wake the app."""
    found = own_app(request, name)
    try:
        routing.wake_app(app=found)
    except UserError as error:
        messages.error(request, error.message)
    return after_action(request, found)


def after_action(request: SignedInRequest, found: App) -> HttpResponse:
    """Show what is now: on the spot where a script asked, else by loading the page anew."""
    if request.htmx:
        return answer_poll(request, pages.app_page(found).live.values())
    return redirect("web:app", found.slug)


@require_POST
@signed_in
def policy(request: SignedInRequest, name: str) -> HttpResponse:
    """Change when the app sleeps."""
    found = own_app(request, name)
    form = PolicyForm(request.POST)
    if form.is_valid():
        try:
            deploying.apply_policy(
                app=found,
                idle_period_s=form.cleaned_data["idle_period_s"],
                suspend_after_s=form.cleaned_data["suspend_after_s"],
            )
            routing.set_wake_policy(
                app=found,
                robots_wake=form.cleaned_data["robots_wake"],
                no_wake_methods=form.cleaned_data["no_wake_methods"].split(),
                no_wake_paths=form.cleaned_data["no_wake_paths"].split(),
                waiting_page=form.cleaned_data["waiting_page"],
            )
        except UserError as error:
            refused(form, error)
        else:
            messages.success(request, "Saved.")
            return redirect("web:app", found.slug)
    return show(request, own_app(request, name), policy_form=form, status=UNPROCESSABLE)


@require_POST
@signed_in
def delete(request: SignedInRequest, name: str) -> HttpResponse:
    """Delete the app, if its name was typed."""
    found = own_app(request, name)
    form = DeleteForm(request.POST, prefix="delete")
    if form.is_valid():
        if form.cleaned_data["name"] == found.slug:
            try:
                deploying.delete_app(app=found)
            except UserError as error:
                refused(form, error)
            else:
                messages.success(request, f"{found.slug} is deleted.")
                return redirect("web:apps")
        else:
            form.add_error("name", f"That is not {found.slug}: nothing was deleted.")
    return show(request, found, delete_form=form, status=UNPROCESSABLE)


def own_deploy(request: SignedInRequest, name: str, number: int) -> tuple[App, DeployView]:
    """A deploy of one's own app, or 404."""
    found = own_app(request, name)
    try:
        return found, deploys.deploy_of(found, number)
    except Deploy.DoesNotExist:
        raise Http404 from None


def deploy_fragment(found: App, row: pages.DeployRow) -> Fragment:
    """The live part of a deploy's own page."""
    return fragment("deploy", "deploy", {"app": found, "deploy": row, "own_page": True})


def line_number(text: str | None) -> int:
    """A line number from a query string; anything else reads as the beginning."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < len(str(MAX_LINE))):
        return 0
    return int(text)


@require_safe
@signed_in
def deploy(request: SignedInRequest, name: str, number: int) -> HttpResponse:
    """A deploy's page: its phases and its log from `?after=`."""
    found, view = own_deploy(request, name, number)
    row = pages.deploy_row(view, live_release=pages.live_release(found))
    context = {
        "here": "apps",
        "app": found,
        "deploy": row,
        "log": pages.log_part(view, after=line_number(request.GET.get("after"))),
        "live": {"deploy": deploy_fragment(found, row)},
    }
    return render(request, "web/deploy.html", context)


@require_safe
@signed_in
def deploy_live(request: SignedInRequest, name: str, number: int) -> HttpResponse:
    """What changed about a deploy."""
    found, view = own_deploy(request, name, number)
    row = pages.deploy_row(view, live_release=pages.live_release(found))
    return answer_poll(request, [deploy_fragment(found, row)])


@require_safe
@signed_in
def deploy_log(request: SignedInRequest, name: str, number: int) -> HttpResponse:
    """The log's next lines, and from where to ask again."""
    found, view = own_deploy(request, name, number)
    after = line_number(request.GET.get("after"))
    log = pages.log_part(view, after=after)
    if not log.lines and log.unfinished:
        return HttpResponse(status=204)
    context = {"app": found, "deploy": {"number": number}, "log": log}
    return render(request, "web/parts/log_lines.html", context)
