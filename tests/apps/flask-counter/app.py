"""Counts its visits in memory: after a sleep the count goes on where it was."""

import itertools
import os
import time

from flask import Flask

app = Flask(__name__)
started = time.time()
visits = itertools.count(1)  # one step, where Flask's threads would need two for `visits += 1`


@app.get("/")
def index():
    return {"visits": next(visits), "pid": os.getpid(), "started": started, "now": time.time()}


@app.get("/random")
def random():
    with open("/dev/urandom", "rb") as source:
        return source.read(16).hex()


@app.get("/healthz")
def healthz():
    return "ok\n"


if __name__ == "__main__":
    app.run(host="0.0.0.0", port=int(os.environ["PORT"]))
