"""What goes in and out of the public API, version 1. Fields are only ever added."""

from __future__ import annotations

from datetime import datetime

from ninja import Schema
from pydantic import StrictBool, StrictInt

from control import clock
from control.billing.queries import BilledSession
from control.deploys.queries import DeployView
from control.metering.wakes import WakeView
from control.routes.queries import AppView
from hosts.wire.commands import OutboundName, SleepDepth
from hosts.wire.spec import Egress


class Strict(Schema, extra="forbid"):
    """A request body: a field that is not known is a mistake to tell about, not to ignore."""


class NewApp(Strict):
    name: str


class AppChange(Strict):
    idle_period_s: StrictInt | None = None
    suspend_after_s: StrictInt | None = None
    egress: Egress | None = None
    egress_allow: list[str] | None = None
    robots_wake: StrictBool | None = None
    no_wake_methods: list[str] | None = None
    no_wake_paths: list[str] | None = None
    waiting_page: StrictBool | None = None
    env: dict[str, str | None] | None = None


class SleepOrder(Strict):
    to: SleepDepth = SleepDepth.PAUSED


class AppOut(Schema):
    name: str
    state: str
    url: str
    git_url: str
    idle_period_s: int
    suspend_after_s: int
    egress: str
    egress_allow: list[str]
    robots_wake: bool
    no_wake_methods: list[str]
    no_wake_paths: list[str]
    waiting_page: bool
    release: int | None

    @classmethod
    def of(cls, view: AppView) -> AppOut:
        return cls(
            name=view.app.slug,
            state=view.state,
            url=view.url,
            git_url=view.git_url,
            idle_period_s=view.app.idle_period_s,
            suspend_after_s=view.app.suspend_after_s,
            egress=view.app.egress,
            egress_allow=view.app.egress_allow,
            robots_wake=view.app.robots_wake,
            no_wake_methods=view.app.no_wake_methods,
            no_wake_paths=view.app.no_wake_paths,
            waiting_page=view.app.waiting_page,
            release=view.release.number if view.release else None,
        )


class SessionOut(Schema):
    id: str
    started_at: datetime
    ended_at: datetime | None
    seconds: float
    cause: str
    end_cause: str | None
    cost_micros: int

    @classmethod
    def of(cls, view: BilledSession) -> SessionOut:
        return cls(
            id=view.id,
            started_at=view.started_at,
            ended_at=view.ended_at,
            seconds=view.seconds,
            cause=view.cause,
            end_cause=view.end_cause or None,
            cost_micros=view.cost_micros,
        )


class OutboundOut(Schema):
    name: str
    allowed: bool
    count: int
    last_seen: datetime

    @classmethod
    def of(cls, one: OutboundName) -> OutboundOut:
        return cls(name=one.name, allowed=one.allowed, count=one.count, last_seen=clock.from_ms(one.last_ms))


class WakeStepOut(Schema):
    name: str
    ms: float


class WakeOut(Schema):
    id: str
    asked_at: datetime
    cause: str
    request: str | None
    kept: bool
    waited: int
    start: str | None
    reason: str | None
    queue_ms: float
    ready_ms: float
    first_byte_ms: float | None
    code: str | None
    phase: str | None
    steps: list[WakeStepOut]

    @classmethod
    def of(cls, view: WakeView) -> WakeOut:
        return cls(
            id=view.id,
            asked_at=view.asked_at,
            cause=view.cause,
            request=view.request or None,
            kept=view.kept,
            waited=view.waited,
            start=view.start or None,
            reason=view.reason or None,
            queue_ms=view.queue_ms,
            ready_ms=view.ready_ms,
            first_byte_ms=view.first_byte_ms,
            code=view.code or None,
            phase=view.phase or None,
            steps=[WakeStepOut(name=s.name, ms=s.ms) for s in view.steps],
        )


class StepOut(Schema):
    phase: str
    seconds: float


class DeployOut(Schema):
    number: int
    commit: str
    subject: str
    phase: str
    outcome: str | None
    code: str | None
    message: str | None
    release: int | None
    started_at: datetime
    ended_at: datetime | None
    phases: list[StepOut]

    @classmethod
    def of(cls, view: DeployView) -> DeployOut:
        return cls(
            number=view.number,
            commit=view.commit,
            subject=view.subject,
            phase=view.phase,
            outcome=view.outcome or None,
            code=view.code or None,
            message=view.message or None,
            release=view.release,
            started_at=view.started_at,
            ended_at=view.ended_at,
            phases=[StepOut(phase=s.phase, seconds=s.seconds) for s in view.steps],
        )


class LogOut(Schema):
    lines: list[str]
    next: int
    done: bool


class ErrorOut(Schema):
    code: str
    message: str
