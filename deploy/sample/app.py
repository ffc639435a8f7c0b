"""The sample app of deploy/up: a counter that lives in memory only, to show that sleeping does not lose it."""

import os
import threading
import time

import flask

app = flask.Flask(__name__)
started = time.time()
lock = threading.Lock()
visits = 0

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Hello from Burrow</title>
<style>
  body {{ font: 18px/1.6 system-ui, sans-serif; max-width: 34em; margin: 12vh auto; padding: 0 1.2em; color: #2b2622;
         background: #faf7f2 }}
  b {{ font-size: 3.2em; display: block; line-height: 1.2; color: #a4552b }}
  p {{ margin: .8em 0 }} small {{ color: #6f665d }}
</style>
<h1>Hello from a burrow</h1>
<p>This page was counted <b>{visits}</b> times.
The number is a variable in this app's memory, in a microVM of its own.</p>
<p>Leave it alone for a while: it falls asleep and costs nothing but disk.
Load it again: it wakes and goes on counting.</p>
<p><small>The process started {age} ago, by its own clock. Push your own code to replace this.</small></p>
</html>"""


@app.get("/")
def hello() -> str:
    global visits
    with lock:
        visits += 1
        now = visits
    return PAGE.format(visits=now, age=f"{time.time() - started:,.0f} s")


if __name__ == "__main__":
    app.run("0.0.0.0", int(os.environ.get("PORT", "8080")), threaded=True)
