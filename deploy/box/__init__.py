"""One Burrow box: everything that runs on one Debian machine for one checkout. Standard library only.

It runs with the system's own Python before the virtual environment exists. Every name it makes on the machine carries
the instance id, so two checkouts never meet. `deploy/up`, `deploy/down`, `deploy/ctl` and `deploy/manage` are its front
doors.
"""
