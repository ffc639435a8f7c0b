"""`manage.py bootstrap`: the first user and a token, for deploy/up. JSON on standard input, JSON on standard output;
again changes nothing.

Reads `{"email":..., "password":..., "token": <an earlier token or null>}`. The password is set only when the user is
made. The token is kept if it is still good, else a new one is made.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control.accounts.models import User
from control.accounts.queries import user_of_token
from control.accounts.services import create_token, sign_up
from control.errors import UserError

TOKEN_NAME = "deploy/up"  # noqa: S105 - a name, not a secret


class Command(BaseCommand):
    help = __doc__ or ""

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            wanted = json.load(sys.stdin)
            email, password, token = wanted["email"], wanted["password"], wanted.get("token")
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CommandError(f'standard input must be {{"email": ..., "password": ..., "token": ...}}: {e}') from None
        try:
            user = User.objects.filter(email=email.strip().lower()).first() or sign_up(email=email, password=password)
            if not token or user_of_token(token) != user:
                token = create_token(user=user, name=TOKEN_NAME).secret
        except UserError as e:
            raise CommandError(f"{e.code}: {e.message}") from None
        self.stdout.write(json.dumps({"email": user.email, "token": token}))
