"""The secret of one push: what the hook shows to prove that it runs for a push which web has let in.

Signed, not stored: it names the push, the app and the user, and lapses. Only the hook's environment ever holds it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.core import signing

from control.errors import Kind, UserError

SALT = "burrow.push"
MAX_AGE_S = 3600


@dataclass(frozen=True, slots=True)
class Ticket:
    """Who pushes to what."""

    push_id: uuid.UUID
    app_id: uuid.UUID
    user_id: int


def issue(ticket: Ticket) -> str:
    """The secret for a hook's environment."""
    return signing.dumps([ticket.push_id.hex, ticket.app_id.hex, ticket.user_id], salt=SALT)


def read(secret: str) -> Ticket:
    """What it says, or UserError."""
    try:
        push_id, app_id, user_id = signing.loads(secret, salt=SALT, max_age=MAX_AGE_S)
    except signing.BadSignature:
        raise UserError("push:ticket_invalid", "This push has no valid ticket.", Kind.DENIED) from None
    return Ticket(uuid.UUID(push_id), uuid.UUID(app_id), user_id)
