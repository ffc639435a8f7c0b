"""The edge's settings: a wrong one is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tunnel.world import TOKEN
from tunnel.config import ConfigError, edge_config

GOOD = {
    "BURROW_EDGE_HTTP": "127.0.0.1:8080",
    "BURROW_EDGE_LINK": "[::1]:8443",
    "BURROW_EDGE_CONTROL_SOCKET": "/run/b/edge.sock",
    "BURROW_EDGE_STATE": "/var/b/edge",
    "BURROW_LINK_TOKEN": TOKEN,
}


def test_good_settings_are_read() -> None:
    config = edge_config(
        GOOD
        | {
            "BURROW_EDGE_PUBLIC_PORTS": "80, 443",
            "BURROW_EDGE_TRUSTED_PROXIES": "127.0.0.1,::1",
            "BURROW_EDGE_WAKE_TIMEOUT_S": "90",
            "BURROW_PREVIEW_DOMAIN": "Apps.Example",
        }
    )
    assert config.http == ("127.0.0.1", 8080)
    assert config.link == ("::1", 8443)
    assert config.public_ports == {80, 443}
    assert config.trusted_proxies == {"127.0.0.1", "::1"}
    assert config.limits.wake_timeout_s == 90.0
    assert config.preview_domain == "apps.example"
    assert TOKEN not in repr(config)


def test_the_token_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    environ = {k: v for k, v in GOOD.items() if k != "BURROW_LINK_TOKEN"}
    assert edge_config(environ | {"BURROW_LINK_TOKEN_FILE": str(tmp_path / "token")}).link_token == TOKEN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BURROW_EDGE_HTTP", ""),
        ("BURROW_EDGE_HTTP", "8080"),
        ("BURROW_EDGE_HTTP", "127.0.0.1:+80"),
        ("BURROW_EDGE_HTTP", "127.0.0.1:99999"),
        ("BURROW_EDGE_HTTP", "localhost:80"),
        ("BURROW_EDGE_CONTROL_SOCKET", "run/edge.sock"),
        ("BURROW_LINK_TOKEN", ""),
        ("BURROW_LINK_TOKEN", "short"),
        ("BURROW_LINK_TOKEN", "change-me-change-me-change-me-change-me"),
        ("BURROW_LINK_TOKEN", "a" * 40),
        ("BURROW_LINK_TOKEN_FILE", "/both/are/set"),
        ("BURROW_EDGE_PUBLIC_PORTS", "80,x"),
        ("BURROW_EDGE_PUBLIC_PORTS", "0"),
        ("BURROW_EDGE_TRUSTED_PROXIES", "caddy"),
        ("BURROW_EDGE_WAKE_TIMEOUT_S", "5"),
        ("BURROW_EDGE_WAKE_TIMEOUT_S", "1_00"),
        ("BURROW_EDGE_MAX_WAITERS", "0"),
        ("BURROW_EDGE_MAX_WAITERS_IN_ALL", "-1"),
        ("BURROW_EDGE_WAITING_MIB", "1.5"),
        ("BURROW_EDGE_WAITING_MIB_IN_ALL", "0"),
        ("BURROW_EDGE_NAME", "Edge 0"),
        ("BURROW_PREVIEW_DOMAIN", "a..b"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        edge_config(GOOD | {name: value})


def test_metrics_are_served_on_loopback_or_not_at_all() -> None:
    assert edge_config(GOOD).metrics is None
    assert edge_config(GOOD | {"BURROW_EDGE_METRICS": ""}).metrics is None
    assert edge_config(GOOD | {"BURROW_EDGE_METRICS": "127.0.0.1:9101"}).metrics == ("127.0.0.1", 9101)
    for wrong in ("0.0.0.0:9101", "192.0.2.1:9101", "9101", "[::]:9101"):
        with pytest.raises(ConfigError, match="BURROW_EDGE_METRICS"):
            edge_config(GOOD | {"BURROW_EDGE_METRICS": wrong})
