"""Counts its visits in memory: after a sleep the count goes on where it was."""

import os
import time

from flask import Flask

app = Flask(__name__)
started = time.time()
visits = 0


@app.get("/")
def index():
    global visits
    visits += 1
    return {"visits": visits, "pid": os.getpid(), "started": started, "now": time.time()}


@app.get("/random")
def random():
    with open("/dev/urandom", "rb") as source:
        return source.read(16).hex()


@app.get("/healthz")
def healthz():
    return "ok\n"


if __name__ == "__main__":
    app.run(host="0.0.0.0", port=int(os.environ["PORT"]))
