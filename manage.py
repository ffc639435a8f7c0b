#!/usr/bin/env python3
"""Django's command line. `platform/` is a source root, not a package, so it is put on the path here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    sys.path.insert(1, str(ROOT / "platform"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - needs the path set just above

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
