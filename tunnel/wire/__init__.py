"""What hosts, edges and control say on a connection before it is a plain byte pipe.

Standard library only; SPEC.md is the protocol, this is one implementation of it.
"""

from __future__ import annotations

from tunnel.wire.codes import Code, Refused
from tunnel.wire.hello import (
    HostHello,
    Kind,
    OpenHello,
    RoutesHello,
    ToHost,
    ToMachine,
    Welcome,
    decode_control_hello,
    decode_host_hello,
    decode_welcome,
    encode_refusal,
)
from tunnel.wire.line import MAX_LINE_BYTES, PROTOCOL_VERSION, WireError
from tunnel.wire.link import Activity, Message, Need, Ping, Pong, decode_message
from tunnel.wire.routes import (
    MAX_TABLE_BYTES,
    NoWake,
    Route,
    RouteTable,
    decode_published,
    decode_table,
    encode_published,
)
from tunnel.wire.stream import CAUSED, OPENED_OK, RAN, WAITED, Open, Opened, check_opened, decode_open

__all__ = [
    "CAUSED",
    "MAX_LINE_BYTES",
    "MAX_TABLE_BYTES",
    "OPENED_OK",
    "PROTOCOL_VERSION",
    "RAN",
    "WAITED",
    "Activity",
    "Code",
    "HostHello",
    "Kind",
    "Message",
    "Need",
    "NoWake",
    "Open",
    "OpenHello",
    "Opened",
    "Ping",
    "Pong",
    "Refused",
    "Route",
    "RouteTable",
    "RoutesHello",
    "ToHost",
    "ToMachine",
    "Welcome",
    "WireError",
    "check_opened",
    "decode_control_hello",
    "decode_host_hello",
    "decode_message",
    "decode_open",
    "decode_published",
    "decode_table",
    "decode_welcome",
    "encode_published",
    "encode_refusal",
]
