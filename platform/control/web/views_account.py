"""Signing in and up, tokens, and the account."""

from __future__ import annotations

from django.conf import settings
from django.contrib import auth, messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from control.accounts import queries, services
from control.errors import Kind, UserError
from control.web.access import SignedInRequest, signed_in
from control.web.forms import PasswordForm, SignInForm, SignUpForm, TokenForm, refused
from control.web.humane import length
from control.web.throttle import Throttle

UNPROCESSABLE = 422
TOO_MANY = 429
FAILURES_WINDOW_S = 15 * 60
FAILURES_PER_PAIR = 8  # one address guessing at one account
FAILURES_PER_ACCOUNT = 40  # many addresses guessing at one account
SIGN_UPS_PER_ADDRESS = 30
SIGN_UP_WINDOW_S = 60 * 60
WRONG = "That e-mail and password do not belong together."

pair_throttle = Throttle(limit=FAILURES_PER_PAIR, window_s=FAILURES_WINDOW_S)
account_throttle = Throttle(limit=FAILURES_PER_ACCOUNT, window_s=FAILURES_WINDOW_S)
sign_up_throttle = Throttle(limit=SIGN_UPS_PER_ADDRESS, window_s=SIGN_UP_WINDOW_S)


def after_sign_in(request: HttpRequest) -> str:
    """Where they wanted to go, if that is here; else their apps."""
    wanted = request.POST.get("next", "")
    here = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if here else resolve_url(settings.LOGIN_REDIRECT_URL)


def address(request: HttpRequest) -> str:
    """Who asks, as the socket says; headers can say anything."""
    return str(request.META.get("REMOTE_ADDR", ""))


def too_many(request: HttpRequest, template: str, context: dict[str, object], wait_s: int) -> HttpResponse:
    """Refused for now, and until when."""
    response = render(request, template, context, status=TOO_MANY)
    response.headers["Retry-After"] = str(wait_s)
    return response


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """Sign in; guessing is slowed down before the password is even looked at."""
    if request.user.is_authenticated:
        return redirect("web:apps")
    form = SignInForm(request.POST if request.method == "POST" else None)
    context = {"here": "login", "form": form, "next": request.POST.get("next", request.GET.get("next", ""))}
    if not form.is_valid():
        return render(request, "web/login.html", context, status=UNPROCESSABLE if form.is_bound else 200)
    account = form.cleaned_data["email"].strip().lower()
    pair = f"{address(request)} {account}"
    wait_s = max(pair_throttle.wait_s(pair), account_throttle.wait_s(account))
    if wait_s:
        form.add_error(None, f"Too many wrong passwords. Try again in {length(wait_s)}.")
        return too_many(request, "web/login.html", context, wait_s)
    user = auth.authenticate(request, username=account, password=form.cleaned_data["password"])
    if user is None:
        pair_throttle.count(pair)
        account_throttle.count(account)
        form.add_error(None, WRONG)
        return render(request, "web/login.html", context, status=UNPROCESSABLE)
    pair_throttle.forget(pair)
    auth.login(request, user)
    return redirect(after_sign_in(request))


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """Sign out: the session and all it held are gone."""
    auth.logout(request)
    return redirect("web:login")


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Make an account and be signed in."""
    if request.user.is_authenticated:
        return redirect("web:apps")
    form = SignUpForm(request.POST if request.method == "POST" else None)
    context: dict[str, object] = {"here": "sign-up", "form": form}
    if form.is_valid():
        wait_s = sign_up_throttle.wait_s(address(request))
        if wait_s:
            form.add_error(None, f"Too many new accounts from here. Try again in {length(wait_s)}.")
            return too_many(request, "web/sign_up.html", context, wait_s)
        sign_up_throttle.count(address(request))
        email, password = form.cleaned_data["email"], form.cleaned_data["password"]
        try:
            user = services.sign_up(email=email, password=password)
        except UserError as error:
            refused(form, error, "password" if error.code == "account:password_weak" else "email")
        else:
            auth.login(request, user)
            return redirect("web:apps")
    return render(request, "web/sign_up.html", context, status=UNPROCESSABLE if form.is_bound else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def tokens(request: SignedInRequest) -> HttpResponse:
    """The tokens one has; a new one's secret is on this one answer and nowhere else."""
    form = TokenForm(request.POST if request.method == "POST" else None)
    context: dict[str, object] = {"here": "tokens", "form": form}
    status = 200
    if form.is_valid():
        try:
            made = services.create_token(user=request.user, name=form.cleaned_data["name"])
        except UserError as error:
            refused(form, error, "name")
        else:
            context |= {"secret": made.secret, "secret_name": made.token.name, "form": TokenForm()}
    if form.errors:
        status = UNPROCESSABLE
    context["tokens"] = queries.tokens_of(request.user)
    return render(request, "web/tokens.html", context, status=status)


@require_POST
@signed_in
def revoke_token(request: SignedInRequest, token_id: int) -> HttpResponse:
    """From now on this token opens nothing."""
    try:
        services.revoke_token(user=request.user, token_id=token_id)
    except UserError as error:
        if error.kind is Kind.NOT_FOUND:
            raise Http404 from None
        messages.error(request, error.message)
    else:
        messages.success(request, "The token is revoked.")
    return redirect("web:tokens")


@sensitive_post_parameters("old_password", "new_password")
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def account(request: SignedInRequest) -> HttpResponse:
    """Who one is here, and another password."""
    form = PasswordForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        old, new = form.cleaned_data["old_password"], form.cleaned_data["new_password"]
        try:
            services.change_password(user=request.user, old_password=old, new_password=new)
        except UserError as error:
            refused(form, error, "old_password" if error.code == "account:password_wrong" else "new_password")
        else:
            auth.update_session_auth_hash(request, request.user)  # other sessions end, this one stays
            messages.success(request, "The password is changed.")
            return redirect("web:account")
    status = UNPROCESSABLE if form.is_bound else 200
    return render(request, "web/account.html", {"here": "account", "form": form}, status=status)
