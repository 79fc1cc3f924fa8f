"""Takes the pictures of docs/monitoring.md: a training of LeNet whose worker 2 is slow.

  PYTHONPATH=tests/integration python3 tests/integration/watching/monitor_pictures.py --bin=build/bin [--into=docs]

From the repository root, where tools/demo has made the data. Needs Debian's chromium and chromium-driver. Worker 2 is
stopped for three quarters of the time, which is what a busy neighbor does to it. The job is the demo's under policy
TIME, which predicts exchanges, and the planner knows that worker 2 is slow: it predicts that the others wait for it.
"""

import argparse
import base64
import json
import os
import signal
import sys
import threading
import time

import cluster
import monitor_test

CONFIG = "configs/lenet_digits.prototxt"
# What the pictures' job has instead. The plan of TIME depends on what is measured, so it is not deterministic.
EDITS = (
    ("# iterations: 400", "iterations: 1500"),
    ("policy: BYTES", "policy: TIME"),
    ("deterministic: true", "deterministic: false"),
    ("servers: 2 ", "servers: 2 deviation { worker: 2 compute_factor: 4 } "),
)
SLOW = "worker 2"
PICTURES = (("light", 1000, "light"), ("dark", 1000, "dark"), ("phone", 400, "light"))


class Camera(monitor_test.Browser):
    """A browser whose page can be pictured as another device would show it."""

    def picture(self, path, width, colors):
        self.set_width(width)
        scheme = {"name": "prefers-color-scheme", "value": colors}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        height = self.evaluate("(show(kept), Math.ceil(document.body.scrollHeight))")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        taken = self.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(taken["data"]))

    def keep(self):
        """Takes what is shown for the pictures, and returns whether it has a slow node and predictions."""
        self.evaluate("show(kept = shown)")
        return self.evaluate(
            "kept.nodes.some((node) => node.slow)"
            " && kept.buckets.every((bucket) => bucket.predicted_ms > 0)"
        )


class Neighbor(threading.Thread):
    """Stops a process for three quarters of the time, until it is told to end."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.005):
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.015)
            os.kill(self.pid, signal.SIGCONT)


class Pictures(cluster.ClusterTest):
    into = "docs"

    def test_pictures(self):
        with open(CONFIG, encoding="utf-8") as file:
            config = file.read()
        for before, after in EDITS:
            self.assertEqual(config.count(before), 1, before)
            config = config.replace(before, after)
        run = self.start_run(config)
        url = run.await_output(r"monitor: (http://127\.0\.0\.1:\d+/)")[1]

        def nodes():
            job = json.loads(monitor_test.ask(url, "api/job"))
            return {f"{node['role']} {node['rank']}": node for node in job["nodes"]}

        neighbor = Neighbor(monitor_test.wait_for(lambda: nodes()[SLOW]["pid"], "process"))
        # With the plan, when links have been measured and layers have not.
        run.await_output("(?m)^bucket ")
        neighbor.start()
        self.addCleanup(neighbor.ended.set)
        camera = Camera(self)
        camera.open(url)

        def only_that_is_slow():
            slow = [name for name, node in nodes().items() if node.get("slow")]
            return slow == [SLOW]

        monitor_test.wait_for(only_that_is_slow, "slow worker")
        monitor_test.wait_for(
            lambda: camera.evaluate("shown.iteration") > 150
            and only_that_is_slow()
            and camera.keep(),
            "page to take a picture of",
        )
        for name, width, colors in PICTURES:
            camera.picture(os.path.join(self.into, f"monitoring_{name}.png"), width, colors)
        neighbor.ended.set()
        neighbor.join()
        run.signal(signal.SIGTERM)
        run.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--into", default=Pictures.into)
    options, sys.argv[1:] = parser.parse_known_args()
    Pictures.into = options.into
    cluster.main()
