#!/usr/bin/env python3
"""Django's command line. `deploy/manage` runs it with the settings of this checkout's box."""

import os
import sys
from pathlib import Path


def main() -> None:
    # After the script's own folder: what must never be shadowed (the standard library's `platform`) is not ours.
    sys.path.insert(1, str(Path(__file__).resolve().parent / "platform"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - not before the path is right

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
