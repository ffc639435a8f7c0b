"""Wake policy: which requests of a route that may wake do not wake its machine.

A running machine serves them like any other, but they do not begin its idle period anew: whoever asks every minute
whether an app is up must not be why it is. The User-Agent is only what a client says of itself; to lie costs it the
wake, or gets it what everybody else gets. Paths are compared byte for byte, for a miss only wakes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tunnel.proto.request import RequestHead
from tunnel.wire import Route

# Monitors and health checkers, crawlers of search engines and of models, scanners of the whole internet. Not here:
# what fetches once because a person has just asked (link previews, assistants that browse).
ROBOTS = (
    # monitors
    "uptimerobot",
    "uptime-kuma",
    "pingdom",
    "statuscake",
    "better stack better uptime",
    "better uptime bot",
    "site24x7",
    "datadogsynthetics",
    "datadog/synthetics",
    "newrelicpinger",
    "googlestackdrivermonitoring",
    "hetrixtools",
    "freshping",
    "nodeping",
    "updown.io",
    "checkly/",
    "kube-probe/",
    "elb-healthchecker/",
    "googlehc/",
    "blackbox exporter/",
    "blackbox-exporter/",
    # crawlers
    "googlebot",
    "google-inspectiontool",
    "googleother",
    "bingbot",
    "duckduckbot",
    "baiduspider",
    "yandexbot",
    "applebot",
    "petalbot",
    "sogou web spider",
    "seznambot",
    "ahrefsbot",
    "semrushbot",
    "mj12bot",
    "dotbot",
    "dataforseobot",
    "bytespider",
    "gptbot",
    "oai-searchbot",
    "claudebot",
    "perplexitybot",
    "ccbot",
    "amazonbot",
    "meta-externalagent",
    "archive.org_bot",
    # scanners
    "censysinspect",
    "expanse",
    "zgrab",
    "masscan",
    "internetmeasurement",
    "leakix",
)
_ROBOT = re.compile("|".join(re.escape(name) for name in ROBOTS).encode(), re.IGNORECASE)
MAX_AGENT_BYTES = 512  # of a User-Agent that are looked at for the name of a robot


@lru_cache(maxsize=1024)
def is_robot(agent: bytes) -> bool:
    """Whether a User-Agent (its first 512 bytes) is a known monitor's, crawler's or scanner's."""
    return _ROBOT.search(agent) is not None


def leaves_asleep(route: Route, head: RequestHead) -> str:
    """Why this request does not wake the route's machine, for whoever sent it; empty if it does."""
    policy = route.no_wake
    if policy.robots and is_robot(head.fields.user_agent[:MAX_AGENT_BYTES]):
        return "The app is asleep. Monitors and crawlers do not wake it."
    if policy.methods and head.method.decode() in policy.methods:
        return f"The app is asleep. Its settings say that {head.method.decode()} does not wake it."
    if policy.paths and _is_listed(head.target.partition(b"?")[0].decode(), policy.paths):
        return "The app is asleep. Its settings say that this path does not wake it."
    return ""


def _is_listed(path: str, patterns: tuple[str, ...]) -> bool:
    return any(path.startswith(p[:-1]) if p.endswith("*") else path == p for p in patterns)
