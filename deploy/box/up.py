"""`deploy/up`: from a fresh clone to a running box. Run again it changes only what is not as it should be."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.box import (
    forwarding,
    health,
    keys,
    packages,
    people,
    postgres,
    programs,
    reclaim,
    redis,
    resolver,
    sample,
    settings,
    virtualenv,
    volume,
)
from deploy.box.instance import Instance
from deploy.box.ports import Ports, configured_ports
from deploy.box.programs import Program, as_user
from deploy.box.say import Problem, Say
from deploy.box.supervision import Supervisor

GIB = 1024**3
FIRST_RUN_FREE_GIB = 6  # images 0.5, virtual environment 0.3, packages 1.5, and room for apps to be built in
LATER_FREE_GIB = 1
IMAGES_TIMEOUT_S = 1500
INITDB_TIMEOUT_S = 120
COMPILE_TIMEOUT_S = 300
SQL_TIMEOUT_S = 60
SERVERS = ("postgres", "redis")
SERVICES = ("web", "worker", "beat", "edge", "host")


def up(root: Path, say: Say) -> None:
    """Bring the box up and say how to reach it."""
    instance = Instance.of(root)
    packages.check_system(Path("/etc/os-release").read_text(encoding="utf-8"), platform.machine())
    check_disk(instance)
    instance.var.mkdir(exist_ok=True)
    with only_one(instance):
        log = instance.var / "log" / "up.log"
        log.parent.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        say.log = log
        access, url, ports = _up(instance, say)
    if health.accelerator(instance) == "tcg":
        say.line("")
        say.line(
            "This server has no working KVM: machines run under QEMU's translator, slowly, and are no isolation that"
        )
        say.line("anybody vouches for (README, Limits). Do not run strangers' code here if you care about this server.")
    say.line("")
    say.line(f"Burrow runs. Dashboard  {access.dashboard}   sign in as {access.email}, password {access.password}")
    say.line(f"Sample app   {url}")
    say.line("Your own app:  create it in the dashboard, then, in its git repository,")
    say.line(f"    git push {access.git_url.replace('{app}', '<app>')} main")
    say.line(f"Its password, and the API's token:  {access.token}   (any user name)")
    say.line(f"All of this is in var/burrow.json. From another computer:  {sample.reached_from_elsewhere(ports)}")


def _up(instance: Instance, say: Say) -> tuple[sample.Access, str, Ports]:
    supervisor = Supervisor(instance)
    packages.ensure(packages.listed(instance.root / "deploy/apt.txt"), say)
    virtualenv.ensure(instance.root / ".venv", [instance.root / "deploy/requirements.lock"], say)
    people.check_code_is_readable(instance.root)
    if not supervisor.pid():
        for leftover in reclaim.end_processes(lambda pid: reclaim.is_service(instance, pid)):
            say.line(f"    ended what an earlier run left: {leftover}")
    people.ensure_users(instance, say)
    people.make_folders(instance)
    volume.attach(instance, say)
    running = {name for name, state in supervisor.states().items() if state == "RUNNING"}
    ours = frozenset({"web"} & running | ({"edge", "link"} if "edge" in running else set()))
    ports = instance.settle_ports(configured_ports(), ours=ours)
    keys.ensure(instance)
    keys.write_private(instance.var / "builder.json", json.dumps(resolver.builder_settings(), indent=2) + "\n")
    build_images(instance, say)
    compile_code(instance, say)
    cluster = postgres.Cluster(instance.place / "var/postgres", instance.place / "var/run", instance.user)
    bin_dir = ensure_cluster(instance, cluster, say)
    described = describe(instance, ports, cluster, bin_dir)
    supervisor.config.write_text(programs.configuration(instance, described), encoding="utf-8")
    forwarding.remember()
    supervisor.ensure_running(say)
    with say.step("starting Postgres and Redis"):
        supervisor.bring_up(list(SERVERS), say)
        ensure_database(supervisor, cluster, bin_dir, say)
    with say.step("bringing the database up to date"):
        sample.manage(instance, ports, say, "migrate", "--no-input", failure="the database could not be migrated")
    with say.step("starting web, worker, beat, edge and host agent, and waiting until each answers"):
        supervisor.bring_up(list(SERVICES), say)
        health.wait_healthy(ports, supervisor, say)
    access = sample.ensure_access(instance, ports, say)
    return access, sample.ensure_sample(instance, access, say), ports


def check_disk(instance: Instance) -> None:
    """Room for what comes, or a Problem."""
    wanted = LATER_FREE_GIB if instance.record.exists() else FIRST_RUN_FREE_GIB
    free = shutil.disk_usage(instance.root).free
    if free < wanted * GIB:
        raise Problem(f"only {free / GIB:.1f} GiB free on the disk of {instance.root}: {wanted} GiB are needed")


@contextmanager
def only_one(instance: Instance) -> Iterator[None]:
    """Two runs at once on one checkout would undo each other's work."""
    with (instance.var / ".lock").open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Problem(f"another deploy/up or deploy/down is at work in {instance.root}") from None
        yield


def build_images(instance: Instance, say: Say) -> None:
    """Kernel, initramfs and base image; cached by content, so a second checkout is quick."""
    with say.step("building the guest images (minutes on a first run, cached afterwards)"):
        say.run(
            [virtualenv.SYSTEM_PYTHON, instance.root / "deploy/images/build", instance.var / "images"],
            failure="the guest images could not be built", timeout_s=IMAGES_TIMEOUT_S, show=True,
            env={**os.environ, "PATH": settings.PATH, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip


def compile_code(instance: Instance, say: Say) -> None:
    """Byte-compile once, as root: the services cannot write into the checkout and would compile at every start."""
    folders = [instance.root / name for name in ("platform", "hosts", "tunnel")]
    say.run(
        [instance.python, "-m", "compileall", "-q", *folders], failure="the code does not compile",
        timeout_s=COMPILE_TIMEOUT_S, env={"PATH": settings.PATH, "LANG": "C.UTF-8"},
    )  # fmt: skip


def ensure_cluster(instance: Instance, cluster: postgres.Cluster, say: Say) -> Path:
    """The cluster's files; the programs of its version."""
    version = instance.var / "postgres/PG_VERSION"
    if version.exists():
        return postgres.programs(version.read_text(encoding="ascii").strip())
    bin_dir = postgres.programs()
    with say.step("making the Postgres cluster"):
        say.run(
            as_user(instance, tuple(cluster.initdb(bin_dir))), failure="initdb failed", timeout_s=INITDB_TIMEOUT_S,
            env={"PATH": settings.PATH, "LANG": "C.UTF-8"},
        )  # fmt: skip
    return bin_dir


def ensure_database(supervisor: Supervisor, cluster: postgres.Cluster, bin_dir: Path, say: Say) -> None:
    """Wait for Postgres and Redis, and make the database if it is missing."""
    instance = supervisor.instance
    env = {"PATH": settings.PATH, "LANG": "C.UTF-8"}

    def succeeds(*argv: str) -> bool:
        try:
            say.run(as_user(instance, argv), failure="not ready", timeout_s=SQL_TIMEOUT_S, env=env)
        except Problem:
            return False
        return True

    at = ("-h", str(cluster.sockets))
    loud, say = say, Say(log=say.log, out=io.StringIO())  # that a server is not ready yet is no news for a person
    health.wait("postgres", lambda: succeeds(str(bin_dir / "pg_isready"), "-q", *at), supervisor, loud)
    health.wait(
        "redis", lambda: succeeds("redis-cli", "-s", str(cluster.sockets / "redis.sock"), "ping"), supervisor, loud
    )
    if not succeeds(str(bin_dir / "psql"), *at, "-q", "-d", postgres.DATABASE, "-c", "select 1"):
        loud.run(
            as_user(instance, (str(bin_dir / "createdb"), *at, postgres.DATABASE)),
            failure="the database could not be made", timeout_s=SQL_TIMEOUT_S, env=env,
        )  # fmt: skip


def describe(instance: Instance, ports: Ports, cluster: postgres.Cluster, bin_dir: Path) -> list[Program]:
    """Every program of the box, each with the fingerprint of what it runs on."""
    root = instance.root
    lock = (root / "deploy/requirements.lock", root / "deploy/box/enter.sh")
    for_control = fingerprint([root / "platform", root / "templates", root / "hosts/wire", root / "tunnel", *lock])
    for_edge = fingerprint([root / "tunnel", root / "templates/edge", *lock])
    images = instance.var / "images/current/digest"
    for_host = fingerprint([root / "hosts", root / "tunnel", *lock, images, instance.var / "builder.json"])
    control, place = settings.control(instance, ports), instance.place
    clean = {"PATH": settings.PATH, "LANG": "C.UTF-8"}
    host = settings.host(
        instance,
        ports,
        nameservers=resolver.nameservers(),
        accelerator=os.environ.get("BURROW_ACCELERATOR", "auto"),
        machine_memory=os.environ.get("BURROW_MACHINE_MEMORY", "auto"),
        metrics=os.environ.get("BURROW_HOST_METRICS", ""),
    )
    edge = settings.edge(instance, ports, metrics=os.environ.get("BURROW_EDGE_METRICS", ""))
    redis_argv = redis.serve(data=place / "var/redis", socket=place / "var/run/redis.sock")
    return [
        # SIGINT is Postgres's fast shutdown: it does not wait for clients to leave by themselves.
        Program("postgres", as_user(instance, tuple(cluster.serve(bin_dir))), clean, 10, "", stop_signal="INT",
                stop_wait_s=60, whole_group=False),
        Program("redis", as_user(instance, tuple(redis_argv)), clean, 10, ""),
        Program("edge", as_user(instance, (str(place / ".venv/bin/python"), "-m", "tunnel"), user=instance.edge_user),
                edge, 20, for_edge, stop_wait_s=35),  # it drains for up to 30 s
        # Only the agent itself is stopped: its machines run on, and the next agent takes them over.
        Program("host", (str(instance.python), "-m", "hosts"), host, 30, for_host, whole_group=False, folder=root),
        Program("web", as_user(instance, programs.web(instance, ports)), control, 40, for_control,
                stop_wait_s=programs.WEB_GRACE_S + 5),
        Program("worker", as_user(instance, programs.worker(instance)), control, 50, for_control, stop_wait_s=30),
        Program("beat", as_user(instance, programs.beat(instance)), control, 60, for_control),
    ]  # fmt: skip


def fingerprint(paths: list[Path]) -> str:
    """One digest over these files and folders, compiled files left out."""
    total = hashlib.sha256()
    for top in paths:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(f"{path.relative_to(top)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:32]
