"""Template filters over control.web.humane: times with their exact title, lengths, money from integer micros."""

from __future__ import annotations

import datetime as dt

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from control.web import humane

register = template.Library()


@register.simple_tag
def ago(moment: dt.datetime | None) -> SafeString:
    """A <time> that reads "3 min ago" and says the exact moment on hover."""
    if moment is None:
        return SafeString("")
    return _time(moment, humane.ago(moment, timezone.now()))


@register.simple_tag
def lasting(moment: dt.datetime | None) -> SafeString:
    """A <time> that reads "for 3 min" and says on hover since when exactly."""
    if moment is None:
        return SafeString("")
    return _time(moment, humane.lasting(moment, timezone.now()))


def _time(moment: dt.datetime, text: str) -> SafeString:
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.astimezone(dt.UTC).isoformat(timespec="milliseconds"),
        humane.exact(moment),
        text,
    )


@register.filter
def length_of_time(seconds: float) -> str:
    """Seconds as "3 min 20 s"."""
    return humane.length(seconds)


@register.filter
def milliseconds(ms: float) -> str:
    """Milliseconds as "612 ms" or "1.4 s"."""
    return humane.milliseconds(ms)


@register.filter
def money(micros: int) -> str:
    """Integer micros as an exact decimal."""
    return humane.money(micros)


@register.filter
def size(count: int) -> str:
    """Bytes as "1.4 MiB"."""
    return humane.size(count)


@register.filter
def money_column(micros: int) -> str:
    """Integer micros with all six decimals, so that a column of them lines up."""
    return humane.money(micros, decimals=humane.MICRO_DECIMALS)
