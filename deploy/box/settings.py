"""The environment of each service. `deploy/env` documents every variable; a test holds the two together.

The unprivileged services see the checkout at `Instance.place`, the host agent sees it where it is: a path from one
world is never handed to the other.
"""

from __future__ import annotations

from pathlib import Path

from deploy.box.instance import Instance
from deploy.box.ports import LOOPBACK, Ports
from deploy.box.postgres import DATABASE

HOST_ID = "host-0"
EDGE_NAME = "edge-0"
PREVIEW_DOMAIN = "localhost"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def _common(instance: Instance, root: Path) -> dict[str, str]:
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{root}:{root / 'platform'}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # deploy/up has compiled the code already, and the services cannot write there
        "BURROW_INSTANCE": instance.id,
        "BURROW_VAR": str(root / "var"),
    }


def control(instance: Instance, ports: Ports) -> dict[str, str]:
    """web, worker, beat and manage.py."""
    var = instance.place / "var"
    return _common(instance, instance.place) | {
        "HOME": str(var / "home"),
        "DJANGO_SETTINGS_MODULE": "control.settings",
        "BURROW_PRODUCTION": "0",
        "BURROW_SECRET_KEY_FILE": str(var / "secrets/secret_key"),
        "BURROW_DB_HOST": str(var / "run"),
        "BURROW_DB_NAME": DATABASE,
        "BURROW_DB_USER": instance.user,
        "BURROW_REDIS_SOCKET": str(var / "run/redis.sock"),
        "BURROW_EDGE_CONTROL_SOCKETS": str(var / "edge-run/edge.sock"),
        "BURROW_HOST_ID": HOST_ID,
        "BURROW_HOST_TOKEN_FILE": str(var / "secrets/host_token"),
        "BURROW_REPOS": str(var / "repos"),
        "BURROW_SPOOL": str(var / "spool"),
        "BURROW_PUBLIC_URL": public_url(ports),
        "BURROW_INTERNAL_URL": public_url(ports),
        "BURROW_PREVIEW_DOMAIN": PREVIEW_DOMAIN,
        "BURROW_PREVIEW_PORT": str(ports.edge),
        "BURROW_PREVIEW_SCHEME": "http",
        "BURROW_ALLOWED_HOSTS": f"{LOOPBACK},localhost",
    }


def edge(instance: Instance, ports: Ports, *, metrics: str = "") -> dict[str, str]:
    """The edge."""
    var = instance.place / "var"
    return (
        _common(instance, instance.place)
        | {
            "HOME": str(var / "edge"),
            "BURROW_EDGE_NAME": EDGE_NAME,
            "BURROW_EDGE_HTTP": f"{LOOPBACK}:{ports.edge}",
            "BURROW_EDGE_LINK": f"{LOOPBACK}:{ports.link}",
            "BURROW_EDGE_CONTROL_SOCKET": str(var / "edge-run/edge.sock"),
            "BURROW_EDGE_STATE": str(var / "edge"),
            "BURROW_LINK_TOKEN_FILE": str(var / "edge/link_token"),
            "BURROW_PREVIEW_DOMAIN": PREVIEW_DOMAIN,
        }
        | ({"BURROW_EDGE_METRICS": metrics} if metrics else {})
    )


def host(
    instance: Instance,
    ports: Ports,
    *,
    nameservers: tuple[str, ...],
    accelerator: str,
    machine_memory: str,
    metrics: str = "",
) -> dict[str, str]:
    """The host agent: root, and so in the real file system."""
    return (
        _common(instance, instance.root)
        | {
            "HOME": str(instance.var / "host"),
            "BURROW_HOST_ID": HOST_ID,
            "BURROW_HOST_DIR": str(instance.run / "host"),
            "BURROW_EDGE_LINKS": f"{LOOPBACK}:{ports.link}",
            "BURROW_LINK_TOKEN_FILE": str(instance.var / "edge/link_token"),
            "BURROW_CONTROL_URL": public_url(ports),
            "BURROW_HOST_TOKEN_FILE": str(instance.var / "secrets/host_token"),
            "BURROW_IMAGES": str(instance.var / "images"),
            "BURROW_NAMESERVERS": ",".join(nameservers),
            "BURROW_CA_BUNDLE": str(CA_BUNDLE),
            "BURROW_BUILDER_ENV": str(instance.var / "builder.json"),
            "BURROW_ACCELERATOR": accelerator,
            "BURROW_MACHINE_MEMORY": machine_memory,
        }
        | ({"BURROW_HOST_METRICS": metrics} if metrics else {})
    )


def public_url(ports: Ports) -> str:
    """Where the dashboard, the API and git answer."""
    return f"http://{LOOPBACK}:{ports.web}"
