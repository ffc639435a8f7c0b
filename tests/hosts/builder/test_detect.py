"""What kind of app a tree is: the file names and contents people really push."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hosts.builder.detect import Detected, NothingToRunError, detect
from hosts.builder.tree import listing, read_small

APPS = Path(__file__).resolve().parents[2] / "apps"


def of(files: dict[str, str]) -> Detected:
    return detect(files, files.get)


def package(**fields: object) -> str:
    return json.dumps(fields)


def refused(files: dict[str, str]) -> str:
    with pytest.raises(NothingToRunError) as error:
        of(files)
    return str(error.value)


@pytest.mark.parametrize(
    ("app", "kind", "web"),
    [
        ("flask-counter", "python", "python app.py"),
        ("node-http", "node", "node server.js"),
        ("node-express", "node", "node index.js"),
        ("static", "static", "burrow-static ."),
        ("python-loopback", "python", "python main.py"),
        ("procfile", "procfile", 'python serve.py --greeting "hello from a Procfile"'),
        ("never-listens", "python", "python main.py"),
    ],
)
def test_sample_apps(app: str, kind: str, web: str) -> None:
    found = detect(listing(APPS / app), lambda name: read_small(APPS / app, name))
    assert (found.kind, found.web) == (kind, web)


def test_procfile_wins_over_every_guess() -> None:
    found = of({"Procfile": "web: gunicorn site:app\n", "app.py": "", "requirements.txt": "", "index.html": ""})
    assert (found.kind, found.web, found.requirements) == ("python", "gunicorn site:app", "requirements.txt")


def test_procfile_over_node_still_installs() -> None:
    found = of({"Procfile": "web: node x.js", "package.json": package(dependencies={"a": "1"})})
    assert found.kind == "node"
    assert found.node is not None
    assert found.node.has_dependencies


def test_procfile_without_web_names_what_it_has() -> None:
    assert "it names worker, clock" in refused({"Procfile": "worker: a\nclock: b\n"})


def test_flask_without_a_main_block_is_started_by_flask() -> None:
    found = of({"requirements.txt": "flask", "app.py": "from flask import Flask\nsite = Flask(__name__)\n"})
    assert found.web == "flask --app app:site run --host 0.0.0.0 --port $PORT"


def test_flask_that_runs_itself_is_left_to_it() -> None:
    assert of({"app.py": "app = Flask(__name__)\napp.run(port=5000)\n"}).web == "python app.py"


def test_fastapi_is_started_by_uvicorn() -> None:
    found = of({"requirements.txt": "fastapi", "main.py": "import fastapi\napi: FastAPI = fastapi.FastAPI()\n"})
    assert found.web == "uvicorn main:api --host 0.0.0.0 --port $PORT"


def test_django_is_started_by_manage() -> None:
    assert of({"manage.py": "", "requirements.txt": ""}).web.startswith("python manage.py runserver")


def test_pyproject_counts_only_with_a_project() -> None:
    assert of({"pyproject.toml": "[project]\nname='x'\n", "app.py": ""}).requirements == "pyproject.toml"
    assert of({"pyproject.toml": "[tool.ruff]\n", "app.py": ""}).requirements == ""


def test_start_script_runs_without_npm_around_it() -> None:
    assert of({"package.json": package(scripts={"start": "next start"})}).web == "next start"


def test_start_script_with_hooks_needs_npm() -> None:
    assert of({"package.json": package(scripts={"start": "x", "prestart": "y"})}).web == "npm start"


def test_node_main_file() -> None:
    assert of({"package.json": package(main="./lib/web.js"), "lib/web.js": ""}).web == "node ./lib/web.js"


def test_node_with_a_build_only_is_served_as_files() -> None:
    found = of({"package.json": package(scripts={"build": "vite build"}), "index.html": ""})
    assert (found.kind, found.web) == ("node", "burrow-static dist build out public _site .")


def test_static_site_in_a_folder() -> None:
    assert of({"public/index.html": ""}).web == "burrow-static public"


def test_nothing_to_run_names_what_was_looked_for_and_found() -> None:
    said = refused({"README.md": "", "notes/one.txt": "", "notes/two.txt": ""})
    for word in ("Procfile", "requirements.txt", "package.json", "index.html", "at the top there is README.md, notes/"):
        assert word in said


def test_an_app_in_a_folder_is_pointed_at() -> None:
    assert "web/package.json is in a folder" in refused({"web/package.json": "{}", "README.md": ""})


def test_requirements_without_a_file_to_start_says_so() -> None:
    assert "found requirements.txt but none of app.py" in refused({"requirements.txt": "flask"})


def test_package_without_a_start_says_so() -> None:
    assert "no `start` or `build` script" in refused({"package.json": "{}"})


def test_an_empty_push_says_so() -> None:
    assert "the push holds no file" in refused({})


@pytest.mark.parametrize("text", ["{", "[]", "null", ""])
def test_a_broken_package_json_is_named(text: str) -> None:
    assert "package.json is not" in refused({"package.json": text})


def test_a_version_file_is_answered_in_the_log() -> None:
    assert ".nvmrc asks for 18" in of({"index.html": "", ".nvmrc": "18\n"}).notes[0]
