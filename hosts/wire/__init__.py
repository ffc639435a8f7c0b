"""What the host agent and its callers say to each other: frozen dataclasses and StrEnums, standard library only.

SPEC.md beside this file is the page; `codec` turns these types into JSON and back, strictly.
"""
