"""Verbs on apps, short of what touches machines: `deploys.services` deletes apps and makes changed variables live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import IntegrityError, transaction

from control import clock
from control.accounts.models import User
from control.applications import names, vault
from control.applications.models import App, Environment, Variable
from control.errors import Kind, UserError
from hosts.wire import allowlist
from hosts.wire.spec import Egress

APPS_PER_USER_MAX = 200
IDLE_PERIOD_MIN_S = 1
IDLE_PERIOD_MAX_S = 24 * 3600
SUSPEND_AFTER_MAX_S = 7 * 24 * 3600


def create_app(*, owner: User, name: str) -> App:
    """An app with its production environment."""
    if not names.SLUG.match(name):
        raise UserError("app:name_invalid", f"An app's name is {names.SLUG_RULE}.")
    if name in names.RESERVED or name.startswith(names.RESERVED_PREFIX):
        raise UserError("app:name_reserved", f"The name {name} is reserved.")
    try:
        with transaction.atomic():
            # The owner's row is locked so that two requests at once cannot both be the last that fits.
            User.objects.select_for_update(of=("self",), no_key=True).get(id=owner.id)
            if App.objects.filter(owner=owner, deleted_at=None).count() >= APPS_PER_USER_MAX:
                raise UserError("app:too_many", f"You have {APPS_PER_USER_MAX} apps: delete one first.", Kind.CONFLICT)
            app = App.objects.create(owner=owner, slug=name)
            Environment.objects.create(app=app, label=name)
    except IntegrityError:
        raise UserError("app:name_taken", f"The name {name} is taken.", Kind.CONFLICT) from None
    return app


def set_policy(
    *,
    app: App,
    idle_period_s: int | None = None,
    suspend_after_s: int | None = None,
    egress: Egress | None = None,
    egress_allow: Sequence[str] | None = None,
) -> App:
    """Change when the app sleeps and what it may reach."""
    changed = []
    if egress_allow is not None:
        if (egress or Egress(app.egress)) is not Egress.ALLOWLIST:
            raise UserError(
                "app:policy_invalid",
                'egress_allow counts only with egress "allowlist": set that, too, or leave it out.',
            )
        app.egress_allow = _allow_list(egress_allow)
        changed.append("egress_allow")
    if egress is not None:
        app.egress = egress.value
        changed.append("egress")
    if idle_period_s is not None:
        if not IDLE_PERIOD_MIN_S <= idle_period_s <= IDLE_PERIOD_MAX_S:
            raise UserError(
                "app:policy_invalid", f"idle_period_s is {IDLE_PERIOD_MIN_S} to {IDLE_PERIOD_MAX_S} seconds."
            )
        app.idle_period_s = idle_period_s
        changed.append("idle_period_s")
    if suspend_after_s is not None:
        if not 0 <= suspend_after_s <= SUSPEND_AFTER_MAX_S:
            raise UserError("app:policy_invalid", f"suspend_after_s is 0 to {SUSPEND_AFTER_MAX_S} seconds.")
        app.suspend_after_s = suspend_after_s
        changed.append("suspend_after_s")
    if changed:
        app.save(update_fields=changed)
    return app


def _allow_list(entries: Sequence[str]) -> list[str]:
    """The entries in normal form; two of one name become one with the ports of both."""
    ports: dict[str, tuple[int, ...]] = {}
    if len(entries) > allowlist.ALLOW_MAX:
        raise UserError("app:policy_invalid", f"egress_allow has at most {allowlist.ALLOW_MAX} names.")
    try:
        for entry in entries:
            allowed = allowlist.parse(entry)
            ports[allowed.name] = tuple(dict.fromkeys((*ports.get(allowed.name, ()), *allowed.ports)))
        return [allowlist.write(allowlist.checked(allowlist.AllowedName(*item))) for item in ports.items()]
    except ValueError as e:
        raise UserError("app:policy_invalid", f"egress_allow: {e}.") from None


def set_wake_policy(
    *,
    app: App,
    robots_wake: bool | None = None,
    no_wake_methods: Sequence[str] | None = None,
    no_wake_paths: Sequence[str] | None = None,
    waiting_page: bool | None = None,
) -> bool:
    """Change which requests leave the app asleep, and what a browser sees while it wakes; whether anything is other
    than before. `routes.services` tells the edges.
    """
    wanted: dict[str, object] = {}
    if robots_wake is not None:
        wanted["robots_wake"] = robots_wake
    if waiting_page is not None:
        wanted["waiting_page"] = waiting_page
    if no_wake_methods is not None:
        wanted["no_wake_methods"] = names.checked_patterns(no_wake_methods, names.METHOD, "method", names.METHOD_RULE)
    if no_wake_paths is not None:
        wanted["no_wake_paths"] = names.checked_patterns(no_wake_paths, names.PATH, "path", names.PATH_RULE)
    changed = [name for name, value in wanted.items() if getattr(app, name) != value]
    for name in changed:
        setattr(app, name, wanted[name])
    if changed:
        app.save(update_fields=changed)
    return bool(changed)


def store_variables(*, environment: Environment, values: Mapping[str, str | None]) -> bool:
    """Set the named variables, or remove those that are None. Says whether anything changed."""
    for name, value in values.items():
        _check_variable(name, value)
    with transaction.atomic():
        Environment.objects.select_for_update().get(id=environment.id)
        stored = {v.name: v for v in environment.variables.all()}
        changed = False
        for name, value in values.items():
            known = stored.get(name)
            if value is None:
                if known is not None:
                    known.delete()
                    changed = True
            elif known is None:
                Variable.objects.create(environment=environment, name=name, ciphertext=vault.seal(value))
                changed = True
            elif vault.unseal(known.ciphertext) != value:
                known.ciphertext, known.updated_at = vault.seal(value), clock.now()
                known.save(update_fields=["ciphertext", "updated_at"])
                changed = True
        if environment.variables.count() > names.VARIABLES_MAX:
            raise UserError("variable:too_many", f"An environment has at most {names.VARIABLES_MAX} variables.")
    return changed


def mark_deleted(*, app: App) -> bool:
    """The app is gone for its owner and its name is free; False where it was so already."""
    return bool(App.objects.filter(id=app.id, deleted_at=None).update(deleted_at=clock.now()))


def _check_variable(name: str, value: str | None) -> None:
    if not names.VARIABLE.match(name):
        raise UserError("variable:name_invalid", f"A variable's name is {names.VARIABLE_RULE}.")
    if name in names.RESERVED_VARIABLES or name.startswith(names.RESERVED_VARIABLE_PREFIX):
        raise UserError("variable:name_reserved", f"{name} is set by the platform.")
    if value is not None and not _fits(value):
        raise UserError(
            "variable:value_invalid",
            f"A variable's value is UTF-8 of at most {names.VARIABLE_MAX_BYTES} bytes, no NUL.",
        )


def _fits(value: str) -> bool:
    try:
        return "\0" not in value and len(value.encode()) <= names.VARIABLE_MAX_BYTES
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can say and nothing can store
        return False
