"""Verbs on accounts: signing up, passwords, tokens."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from control import clock
from control.accounts import tokens
from control.accounts.models import ApiToken, User
from control.errors import Kind, UserError

TOKENS_MAX = 50
TOKEN_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made. This is the only time its secret exists outside its owner's hands."""

    token: ApiToken
    secret: str


def sign_up(*, email: str, password: str) -> User:
    """A new user."""
    email = email.strip().lower()
    try:
        validate_email(email)
    except ValidationError:
        raise UserError("account:email_invalid", "That is not an e-mail address.") from None
    _check_password(password, User(email=email))
    try:
        with transaction.atomic():
            return User.objects.create_user(email, password)
    except IntegrityError:
        raise UserError(
            "account:email_taken", "There is an account with that e-mail address already.", Kind.CONFLICT
        ) from None


def change_password(*, user: User, old_password: str, new_password: str) -> None:
    """Set a new password for someone who knows the old one."""
    if not user.check_password(old_password):
        raise UserError("account:password_wrong", "The old password is not right.")
    _check_password(new_password, user)
    user.set_password(new_password)
    user.save(update_fields=["password"])


def create_token(*, user: User, name: str) -> NewToken:
    """A new API token."""
    name = name.strip()
    if not name or len(name) > TOKEN_NAME_CHARS:
        raise UserError("token:name_invalid", f"Give the token a name of 1 to {TOKEN_NAME_CHARS} characters.")
    if user.tokens.filter(revoked_at=None).count() >= TOKENS_MAX:
        raise UserError("token:too_many", f"You have {TOKENS_MAX} tokens: revoke one first.", Kind.CONFLICT)
    secret = tokens.new_secret()
    token = ApiToken.objects.create(user=user, name=name, prefix=tokens.prefix(secret), digest=tokens.digest(secret))
    return NewToken(token=token, secret=secret)


def revoke_token(*, user: User, token_id: int) -> None:
    """End a token of this user, at once."""
    changed = ApiToken.objects.filter(id=token_id, user=user, revoked_at=None).update(revoked_at=clock.now())
    if not changed:
        raise UserError("token:unknown", "You have no such token.", Kind.NOT_FOUND)


def _check_password(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as e:
        raise UserError("account:password_weak", " ".join(e.messages)) from None
