"""The environment is parsed strictly, and every complaint names its variable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hosts.config import Address, ConfigError, HostConfig


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "link").write_text("link-token-0123456789\n")
    (tmp_path / "host").write_text("host-token-0123456789\n")
    (tmp_path / "builder.json").write_text(json.dumps({"PIP_INDEX_URL": "https://pypi.example/simple"}))
    return {
        "BURROW_INSTANCE": "0a1b2c",
        "BURROW_VAR": "/srv/var",
        "BURROW_HOST_ID": "host-0",
        "BURROW_HOST_DIR": "/srv/var/host",
        "BURROW_EDGE_LINKS": "127.0.0.1:7000, edge.example:7001",
        "BURROW_LINK_TOKEN_FILE": str(tmp_path / "link"),
        "BURROW_CONTROL_URL": "http://127.0.0.1:8000/",
        "BURROW_HOST_TOKEN_FILE": str(tmp_path / "host"),
        "BURROW_IMAGES": "/srv/var/images",
        "BURROW_NAMESERVERS": "192.0.2.1,2001:db8::1",
        "BURROW_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt",
        "BURROW_BUILDER_ENV": str(tmp_path / "builder.json"),
        "BURROW_ACCELERATOR": "auto",
        "BURROW_MACHINE_MEMORY": "auto",
    }


def test_a_whole_environment_is_a_config(env: dict[str, str]) -> None:
    config = HostConfig.from_env(env)
    assert config.edge_links == (Address("127.0.0.1", 7000), Address("edge.example", 7001))
    assert config.link_token == "link-token-0123456789"
    assert config.control_url == "http://127.0.0.1:8000"
    assert config.nameservers == ("192.0.2.1", "2001:db8::1")
    assert config.builder_env == (("PIP_INDEX_URL", "https://pypi.example/simple"),)
    assert config.machine_memory_mib == 0
    assert HostConfig.from_env({**env, "BURROW_MACHINE_MEMORY": "3000"}).machine_memory_mib == 3000
    assert config.api_socket == Path("/srv/var/host/agent.sock")


@pytest.mark.parametrize(
    "name", ["BURROW_INSTANCE", "BURROW_VAR", "BURROW_EDGE_LINKS", "BURROW_BUILDER_ENV", "BURROW_ACCELERATOR"]
)
def test_a_missing_or_empty_variable_is_named(env: dict[str, str], name: str) -> None:
    for broken in ({k: v for k, v in env.items() if k != name}, {**env, name: ""}):
        with pytest.raises(ConfigError, match=f"{name} is not set"):
            HostConfig.from_env(broken)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BURROW_INSTANCE", "xyzxyz"),
        ("BURROW_INSTANCE", "0A1B2C"),
        ("BURROW_INSTANCE", "0a1b2c\n"),
        ("BURROW_HOST_ID", "Host_0"),
        ("BURROW_HOST_DIR", "var/host"),
        ("BURROW_HOST_DIR", "/srv/" + "x" * 60),
        ("BURROW_EDGE_LINKS", "127.0.0.1"),
        ("BURROW_EDGE_LINKS", "127.0.0.1:"),
        ("BURROW_EDGE_LINKS", "127.0.0.1:70000"),
        ("BURROW_EDGE_LINKS", "127.0.0.1:+80"),
        ("BURROW_EDGE_LINKS", "127.0.0.1:٨٠"),
        ("BURROW_EDGE_LINKS", "a:1,,b:2"),
        ("BURROW_CONTROL_URL", "ftp://x"),
        ("BURROW_CONTROL_URL", "http://"),
        ("BURROW_CONTROL_URL", "http://x/?a=b"),
        ("BURROW_NAMESERVERS", "dns.example"),
        ("BURROW_NAMESERVERS", "1.2.3"),
        ("BURROW_ACCELERATOR", "xen"),
        ("BURROW_MACHINE_MEMORY", "0"),
        ("BURROW_MACHINE_MEMORY", "4G"),
        ("BURROW_LINK_TOKEN_FILE", "/nonexistent/token"),
        ("BURROW_BUILDER_ENV", "/nonexistent/env"),
    ],
)
def test_a_malformed_value_is_refused_by_name(env: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        HostConfig.from_env({**env, name: value})


@pytest.mark.parametrize("token", ["", "short", "two words here, long enough"])
def test_a_token_that_is_short_or_not_one_word_is_refused(env: dict[str, str], tmp_path: Path, token: str) -> None:
    (tmp_path / "link").write_text(token)
    with pytest.raises(ConfigError, match="BURROW_LINK_TOKEN_FILE"):
        HostConfig.from_env(env)


@pytest.mark.parametrize("text", ["[]", '{"A": 1}', '{"not a name": "x"}', "{"])
def test_builder_variables_that_are_not_an_object_of_strings_are_refused(
    env: dict[str, str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "builder.json").write_text(text)
    with pytest.raises(ConfigError, match="BURROW_BUILDER_ENV"):
        HostConfig.from_env(env)


def test_metrics_are_served_on_loopback_or_not_at_all(env: dict[str, str]) -> None:
    assert HostConfig.from_env(env).metrics is None
    assert HostConfig.from_env(env | {"BURROW_HOST_METRICS": ""}).metrics is None
    assert HostConfig.from_env(env | {"BURROW_HOST_METRICS": "127.0.0.1:9102"}).metrics == Address("127.0.0.1", 9102)
    for wrong in ("0.0.0.0:9102", "192.0.2.1:9102", "localhost:9102", "127.0.0.1", "127.0.0.1:0"):
        with pytest.raises(ConfigError, match="BURROW_HOST_METRICS"):
            HostConfig.from_env(env | {"BURROW_HOST_METRICS": wrong})
