"""The right to work on a deploy. One worker holds it at a time; it lapses by itself if that worker dies.

The lease keeps two workers from doing the same waiting. It is not what keeps the data right: that is the
compare-and-set in `change`, and hosts whose commands may be repeated.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q, QuerySet

from control import clock
from control.deploys.models import Deploy
from control.deploys.states import Phase

LEASE_S = 60


class LeaseLost(Exception):  # noqa: N818 - reads as the fact it states
    """Someone else works on the deploy now, or it has ended: nothing was changed, stop."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease."""

    deploy_id: uuid.UUID
    key: uuid.UUID

    def renew(self) -> None:
        """Keep it a while longer, or LeaseLost."""
        until = clock.now() + timedelta(seconds=LEASE_S)
        if not self._mine().update(lease_until=until):
            raise LeaseLost

    def change(self, expected: Phase, **fields: object) -> None:
        """Change the row if the deploy is still in the expected phase, unfinished and ours; or LeaseLost."""
        if not self._mine().filter(phase=expected.value).update(**fields):
            raise LeaseLost

    def release(self) -> None:
        """Let go; harmless if it was lost."""
        Deploy.objects.filter(id=self.deploy_id, lease=self.key).update(lease=None, lease_until=None)

    def _mine(self) -> QuerySet[Deploy]:
        return Deploy.objects.filter(id=self.deploy_id, lease=self.key, outcome="")


def take(deploy_id: uuid.UUID) -> Lease | None:
    """The lease, unless someone has it or the deploy has ended."""
    now = clock.now()
    key = uuid.uuid4()
    free = Q(lease=None) | Q(lease_until=None) | Q(lease_until__lt=now)
    taken = Deploy.objects.filter(free, id=deploy_id, outcome="").update(
        lease=key, lease_until=now + timedelta(seconds=LEASE_S)
    )
    return Lease(deploy_id, key) if taken else None
