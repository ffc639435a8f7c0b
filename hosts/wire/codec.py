"""Wire dataclasses to JSON and back, strictly: unknown enum values and wrong types are refused, unknown fields ignored.

Ignoring unknown fields is what lets a newer control talk to an older agent and back (SPEC.md, versions).
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from functools import cache
from typing import TypeVar

T = TypeVar("T")

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class WireError(ValueError):
    """The bytes are not a message of this type; the text names the field."""


def encode(message: object) -> bytes:
    """A wire dataclass as compact UTF-8 JSON."""
    return json.dumps(to_json(message), separators=(",", ":"), ensure_ascii=False).encode()


def decode(cls: type[T], data: bytes | str) -> T:
    """JSON bytes as an instance of `cls`, or WireError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise WireError(f"not JSON: {e}") from None
    return from_json(cls, value)


def to_json(value: object) -> Json:
    """A wire value as plain JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} does not go on the wire")


def from_json(cls: type[T], value: object) -> T:
    """Plain JSON types as an instance of `cls`, or WireError."""
    return typing.cast(T, _convert(cls, value, cls.__name__))


@cache
def _hints(cls: type) -> dict[str, object]:
    return typing.get_type_hints(cls)


def _convert(hint: object, value: object, path: str) -> object:
    if isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        (other,) = (o for o in options if o is not type(None))
        return _convert(other, value, path)
    if origin is tuple:
        return _convert_tuple(typing.get_args(hint), value, path)
    if not isinstance(hint, type):
        raise TypeError(f"{path}: {hint!r} does not go on the wire")
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(hint, value, path)
    if issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            raise WireError(f"{path}: {value!r} is not one of {[m.value for m in hint]}") from None
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise WireError(f"{path}: wanted {hint.__name__}, got {type(value).__name__}")
    return value


def _convert_tuple(args: tuple[object, ...], value: object, path: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise WireError(f"{path}: wanted a list, got {type(value).__name__}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_convert(args[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if len(args) != len(value):
        raise WireError(f"{path}: wanted {len(args)} items, got {len(value)}")
    return tuple(_convert(a, v, f"{path}[{i}]") for i, (a, v) in enumerate(zip(args, value, strict=True)))


def _convert_dataclass(hint: type, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise WireError(f"{path}: wanted an object, got {type(value).__name__}")
    given = {}
    for field in dataclasses.fields(hint):
        if field.name in value:
            given[field.name] = _convert(_hints(hint)[field.name], value[field.name], f"{path}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise WireError(f"{path}.{field.name}: missing")
    return hint(**given)
