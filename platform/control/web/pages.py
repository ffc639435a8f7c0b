"""What the pages show, gathered from the queries of the other apps and put into words. Reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from control.accounts.models import User
from control.applications import queries as applications
from control.applications.models import App
from control.billing import queries as billing
from control.billing.rates import CURRENCY, rate_micros_per_s
from control.deploys import queries as deploys
from control.deploys.states import Outcome, Phase
from control.machines.states import EMPTY, LOST
from control.metering import wakes
from control.routes import queries as routes
from control.web import words
from control.web.fragments import Fragment, fragment
from control.web.words import StateWord
from hosts.wire.states import MachineState
from hosts.wire.wakes import Step

if TYPE_CHECKING:
    from control.billing.queries import BilledSession
    from control.deploys.queries import DeployView
    from control.metering.wakes import WakeView
    from control.routes.queries import AppView

DEPLOYS_SHOWN = 10
SESSIONS_SHOWN = 15
WAKES_SHOWN = 8
LOG_TAIL_LINES = 300
LOG_PAGE_LINES = 1_000
COMMIT_CHARS = 8


@dataclass(frozen=True, slots=True)
class AppCard:
    """One app in the list."""

    name: str
    url: str
    state: StateWord
    deploying: bool
    release: int | None
    released_at: dt.datetime | None
    cost_micros: int

    @property
    def address(self) -> str:
        """The URL without what everybody knows."""
        return shown_address(self.url)


@dataclass(frozen=True, slots=True)
class PhaseItem:
    """One phase of a deploy: done, now, broke or later."""

    word: str
    tone: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class DeployRow:
    """A deploy as shown, in the list and on its own page."""

    number: int
    commit: str
    subject: str
    pushed_at: dt.datetime
    release: int | None
    outcome_word: str
    tone: str
    phases: tuple[PhaseItem, ...]
    doing: str
    why: str
    code: str

    @property
    def unfinished(self) -> bool:
        """It still goes on."""
        return self.tone == "now"

    @property
    def failed(self) -> bool:
        """It ended badly."""
        return self.tone == "bad"


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as shown."""

    started_at: dt.datetime
    ended_at: dt.datetime | None
    seconds: float
    cause_word: str
    until_word: str
    cost_micros: int


@dataclass(frozen=True, slots=True)
class WakeRow:
    """A wake as shown. The bar's parts are shares of a hundred: waiting, starting, the app's answer."""

    asked_at: dt.datetime
    cause_word: str
    start_word: str
    request: str
    kept: bool
    waited: int
    reason: str
    code: str
    phase: str
    took_ms: float
    queue_ms: float
    start_ms: float
    answer_ms: float | None
    steps: tuple[Step, ...]

    @property
    def start_at(self) -> float:
        """Where the start's part of the bar begins."""
        return self._share(self.queue_ms)

    @property
    def start_share(self) -> float:
        """How wide it is."""
        return self._share(self.start_ms)

    @property
    def answer_at(self) -> float:
        """Where the answer's part begins."""
        return self._share(self.queue_ms + self.start_ms)

    @property
    def answer_share(self) -> float:
        """How wide that is."""
        return self._share(self.answer_ms or 0.0)

    def _share(self, ms: float) -> float:
        return round(100 * ms / self.took_ms, 2) if self.took_ms > 0 else 0.0


def shown_address(url: str) -> str:
    """An app's URL without scheme and final slash."""
    return url.split("://", 1)[-1].rstrip("/")


def word_of(view: AppView, *, deploying: bool) -> StateWord:
    """The state of an app as a word with its price."""
    state = words.DEPLOYING if deploying and view.state == EMPTY else view.state
    return words.state_word(state, rate_micros_per_s=rate_micros_per_s(view.app.size), currency=CURRENCY)


def cards_of(user: User) -> list[AppCard]:
    """Everything in the list of apps."""
    apps = list(applications.apps_of(user))
    costs = billing.costs(apps)
    deploying = deploys.unfinished(apps)
    return [
        AppCard(
            name=view.app.slug,
            url=view.url,
            state=word_of(view, deploying=view.app.id in deploying),
            deploying=view.app.id in deploying,
            release=view.release.number if view.release else None,
            released_at=view.release.created_at if view.release else None,
            cost_micros=costs.get(view.app.id, 0),
        )
        for view in routes.app_views(apps)
    ]


def list_fragment(cards: list[AppCard]) -> Fragment:
    """The live list of apps."""
    return fragment("app-list", "app_list", {"cards": cards, "currency": CURRENCY})


def deploy_row(view: DeployView, *, live_release: int | None) -> DeployRow:
    """A deploy in words."""
    live = view.outcome == Outcome.SUCCEEDED and view.release is not None and view.release == live_release
    return DeployRow(
        number=view.number,
        commit=view.commit[:COMMIT_CHARS],
        subject=view.subject,
        pushed_at=view.started_at,
        release=view.release,
        outcome_word=words.LIVE_NOW if live else words.OUTCOMES[view.outcome],
        tone="ok" if live else words.OUTCOME_TONES[view.outcome],
        phases=phase_items(view),
        doing=doing(view),
        why=view.message if view.outcome != Outcome.SUCCEEDED else "",
        code=view.code,
    )


def phase_items(view: DeployView) -> tuple[PhaseItem, ...]:
    """Every phase of work, with how long it took once it is over. A phase that was skipped is left out."""
    took: dict[str, float] = {}
    for step in view.steps:
        name = step.phase.partition(".")[0]
        took[name] = took.get(name, 0.0) + (step.seconds or 0.0)
    order = [Phase.QUEUED, Phase.BUILD, Phase.BOOT, Phase.CHECKPOINT, Phase.SWITCH]
    reached = len(order) if view.phase == Phase.LIVE else order.index(Phase(view.phase))
    items = []
    for at, phase in enumerate(order):
        if at < reached and phase not in took:
            continue
        if at < reached:
            tone = "done"
        elif at == reached:
            tone = "now" if not view.outcome else "broke"
        else:
            tone = "later"
        items.append(PhaseItem(words.PHASES[phase], tone, took.get(phase) if tone == "done" else None))
    return tuple(items)


def doing(view: DeployView) -> str:
    """What the builder does just now, if one is at work."""
    if view.outcome or view.phase != Phase.BUILD or not view.steps:
        return ""
    name, _, detail = view.steps[-1].phase.partition(".")
    return words.BUILD_PHASES.get(detail, detail) if name == Phase.BUILD else ""


def session_row(session: BilledSession) -> SessionRow:
    """A session in words."""
    return SessionRow(
        started_at=session.started_at,
        ended_at=session.ended_at,
        seconds=session.seconds,
        cause_word=words.CAUSES.get(session.cause, session.cause),
        until_word=words.UNTIL.get(session.end_cause, session.end_cause),
        cost_micros=session.cost_micros,
    )


def wake_row(wake: WakeView) -> WakeRow:
    """A wake in words."""
    queue_ms = min(wake.queue_ms, wake.ready_ms)
    took_ms = max(wake.ready_ms, wake.first_byte_ms or 0.0)
    return WakeRow(
        asked_at=wake.asked_at,
        cause_word=words.CAUSES.get(wake.cause, wake.cause),
        start_word=words.STARTS.get(wake.start, ""),
        request=wake.request,
        kept=wake.kept,
        waited=wake.waited,
        reason=wake.reason,
        code=wake.code,
        phase=wake.phase,
        took_ms=took_ms,
        queue_ms=queue_ms,
        start_ms=wake.ready_ms - queue_ms,
        answer_ms=None if wake.first_byte_ms is None else took_ms - wake.ready_ms,
        steps=tuple(Step(words.WAKE_STEPS.get(step.name, step.name), step.ms) for step in wake.steps),
    )


@dataclass(frozen=True, slots=True)
class LogPart:
    """Lines of a deploy's log from `first`; ask for `next_after` to go on, until it is no longer `unfinished`."""

    lines: list[str]
    next_after: int
    unfinished: bool


def log_part(view: DeployView, *, after: int, limit: int = LOG_PAGE_LINES) -> LogPart:
    """A page of a deploy's log."""
    page = deploys.log_page(view.deploy, after=after, limit=limit)
    return LogPart(lines=list(page.lines), next_after=page.next, unfinished=not page.done)


@dataclass(frozen=True, slots=True)
class AppPage:
    """An app's page: the live parts by name, and what the fixed parts need."""

    view: AppView
    state: StateWord
    latest: DeployRow | None
    live: dict[str, Fragment]

    @property
    def moving(self) -> bool:
        """Something on it changes by itself just now."""
        return self.state.moving or (self.latest is not None and self.latest.unfinished)


def app_page(app: App) -> AppPage:
    """Gather and render the live parts of an app's page."""
    view = routes.app_view(app)
    live_release = view.release.number if view.release else None
    found = deploys.deploys_of(app, limit=DEPLOYS_SHOWN)
    rows = [deploy_row(item, live_release=live_release) for item in found]
    sessions = billing.sessions_of(app, limit=SESSIONS_SHOWN + 1)
    latest = rows[0] if rows else None
    state = word_of(view, deploying=latest is not None and latest.unfinished)
    shown: dict[str, object] = {
        "app": view.app,
        "url": view.url,
        "address": shown_address(view.url),
        "state": state,
        "state_since": view.machine.state_since if view.machine else None,
        "failure": failure_of(view),
        "start_note": start_note(view),
        "release": view.release,
        "totals": billing.totals(app),
        "currency": CURRENCY,
        "deploy": latest,
        "deploys": rows,
        "sessions": [session_row(session) for session in sessions[:SESSIONS_SHOWN]],
        "more_sessions": len(sessions) > SESSIONS_SHOWN,
        "wakes": [wake_row(wake) for wake in wakes.wakes_of(app, limit=WAKES_SHOWN)],
    }
    parts = [
        fragment(name, name, shown)
        for name in ("state", "controls", "meaning", "facts", "deploy", "deploys", "sessions", "wakes")
    ]
    if latest is None:
        parts.append(Fragment("log", fragment("log", "log", {}).html, "none"))
    else:
        tail = max(0, found[0].deploy.log_lines - LOG_TAIL_LINES)
        shown["log"] = log_part(found[0], after=tail)
        # The log goes on by itself from where it is: only another deploy replaces it.
        parts.append(fragment("log", "log", shown, mark=str(latest.number)))
    return AppPage(view=view, state=state, latest=latest, live={part.name: part for part in parts})


def live_release(app: App) -> int | None:
    """The number of the release that serves."""
    release = routes.app_view(app).release
    return release.number if release else None


def failure_of(view: AppView) -> str:
    """Why the machine is broken, if it is."""
    if view.machine is None or view.state not in {MachineState.FAILED, LOST}:
        return ""
    return view.machine.detail or view.machine.code


def start_note(view: AppView) -> str:
    """Why the machine's memory was not kept, where its host said so at the last start."""
    report = view.machine.report if view.machine is not None else None
    if not isinstance(report, dict):
        return ""
    start = report.get("last_start")
    reason = start.get("reason") if isinstance(start, dict) else None
    return reason if isinstance(reason, str) else ""
