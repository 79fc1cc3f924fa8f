"""Results that are made up, and what experiments/report/report.py makes of them, for its tests."""

import csv
import functools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import cluster
import report_html

REPORT = os.path.join(cluster.REPOSITORY, "experiments", "report", "report.py")
COLUMNS = (
    "system,model,workers,servers,devices,gpus,bandwidth_gbps,latency_us,condition,mtbf_hours,sweep,"
    "mode,policy,batch,parameters,goodput_gbps,message_cost_us,flops,reduction_rate,update_rate,"
    "iteration_seconds,compute_seconds,images_per_second,speedup,"
    "efficiency,gpu_busy,bytes_out,bytes_in,bytes_mean,imbalance,predicted_seconds,schemes,"
    "accuracy,goodput,published,difference,fitted,source,point,key"
).split(",")
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
# Answers, in an interpreter with Matplotlib, whose loading takes longer than any answer:
# ["pixels", FILE, COLOR...]: how many pixels of a picture have each of the colors;
# ["drawn", DIR]: draws the first figure of a directory, and what it says.
ANSWER = """
import json, sys
from matplotlib import image
import report_data, report_figures

def pixels(file, *colors):
    drawn = (255 * image.imread(file)[..., :3]).round().astype(int)
    wanted = [[int(color[i:i + 2], 16) for i in (1, 3, 5)] for color in colors]
    return [int((drawn == color).all(axis=-1).sum()) for color in wanted]

def drawn(directory):
    results = report_data.Results(directory)
    said = []
    def say(plot, figure, grid, *others):
        finish(plot, figure, grid, *others)
        ideal = plot.legend.get("ideal")
        said.append({
            "label": grid[0].get_ylabel(),
            "numbers": [text.get_text() for axes in grid for text in axes.texts],
            "legend": list(plot.legend),
            "ideal": None if ideal is None else list(map(float, ideal.get_ydata())),
        })
    report_figures.finish = say
    report_figures.draw(results, report_figures.Styles(results), results.experiment["figure"][0], 1)
    return said[0]

finish = report_figures.finish
for line in sys.stdin:
    kind, *arguments = json.loads(line)
    print(json.dumps({"pixels": pixels, "drawn": drawn}[kind](*arguments)), flush=True)
"""


@functools.lru_cache(maxsize=None)
def interpreter():
    """One that has Matplotlib, or None."""
    for name in (sys.executable, "/usr/bin/python3"):
        command = [name, "-c", "import matplotlib"]
        if (
            os.path.exists(name)
            and subprocess.run(command, capture_output=True, check=False).returncode == 0
        ):
            return name
    return None


def point(system, workers, iteration=0.5, **cells):
    """A row of results.csv."""
    devices, compute = cells.get("devices", 1), 0.4
    row = {
        "system": system,
        "model": "VGG19",
        "workers": workers,
        "servers": workers,
        "devices": devices,
        "gpus": workers * devices,
        "bandwidth_gbps": 10,
        "latency_us": 50,
        "sweep": "1",
        "mode": "simulate",
        "policy": "wfbp",
        "batch": 32,
        "parameters": 143667240,
        "goodput_gbps": 9,
        "message_cost_us": 20,
        "flops": 4.2e12,
        "reduction_rate": 4e9,
        "update_rate": 2e9,
        "iteration_seconds": iteration,
        "compute_seconds": compute,
        "images_per_second": workers * 32 / iteration,
        "speedup": workers * devices * compute / iteration,
        "efficiency": compute / iteration,
        "gpu_busy": compute / iteration,
        "bytes_out": 1e8 * workers,
        "bytes_in": 1e8 * workers,
        "bytes_mean": 2e8 * workers,
        "imbalance": 1,
        "predicted_seconds": 1.02 * iteration,
        "schemes": "PS 20.0M, SFB 123.6M",
        "key": f"{random.getrandbits(64):016x}",
    }
    row.update(cells)
    return row


class ReportTest(unittest.TestCase):
    """A directory of results of its own, and what report.py makes of it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        random.seed(5)

    def path(self, name):
        """Of a file in the directory."""
        return os.path.join(self.directory, name)

    def write(self, rows, experiment=None, losses=None):
        """losses: {key: list}."""
        with open(self.path("results.csv"), "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        if experiment is not None:
            with open(self.path("experiment.json"), "w", encoding="utf-8") as file:
                json.dump(experiment, file)
        os.makedirs(self.path("points"), exist_ok=True)
        for key, values in (losses or {}).items():
            with open(self.path(f"points/{key}.json"), "w", encoding="utf-8") as file:
                json.dump({"loss": values}, file)

    def run_report(self, *flags, code=0, **environment):
        """The script's output."""
        done = subprocess.run(
            [sys.executable, REPORT, self.directory, *flags],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env={**os.environ, **environment},
            timeout=cluster.scaled(120),
        )
        self.assertEqual(done.returncode, code, done.stdout)
        self.assertNotIn("Traceback", done.stdout)
        return done.stdout

    def page(self):
        """The report, which must be well-formed."""
        with open(self.path("report.html"), encoding="utf-8") as file:
            page = report_html.Page(file.read())
        self.assertFalse([link for link in page.links if "//" in link], "nothing from the network")
        return page

    def report(self, *flags):
        """Runs it and returns the page."""
        self.run_report(*flags)
        return self.page()


class FiguresTest(ReportTest):
    """Likewise with pictures, which need Matplotlib."""

    answerer = None

    @classmethod
    def tearDownClass(cls):
        if cls.answerer is not None:
            cls.answerer.communicate()

    def answer(self, *question):
        """What the one process of all cases says to it."""
        if self.answerer is None:
            # pylint: disable=consider-using-with  (it answers until tearDownClass)
            type(self).answerer = subprocess.Popen(
                [self.python, "-c", ANSWER],
                cwd=os.path.dirname(REPORT),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self.answerer.stdin.write(json.dumps(question) + "\n")
        self.answerer.stdin.flush()
        line = self.answerer.stdout.readline()
        self.assertNotEqual(line, "", f"no answer to {question}")
        return json.loads(line)

    def setUp(self):
        super().setUp()
        self.python = interpreter()
        if self.python is None:
            self.skipTest("no interpreter here has Matplotlib (python3-matplotlib)")

    def draw(self, rows, figures, losses=None):
        """The page, after a look at every picture's file."""
        self.write(rows, {"name": "test", "figure": figures}, losses)
        page = self.report()
        self.assertEqual(
            [one["src"] for one in page.pictures], [f"{figure['name']}.png" for figure in figures]
        )
        for picture in page.pictures:
            with open(self.path(picture["src"]), "rb") as file:
                head = file.read(24)
            self.assertEqual(head[:8], PNG_MAGIC)
            width, height = struct.unpack(">II", head[16:])
            self.assertGreater(width, 1.5 * int(picture["width"]), "sharp in print")
            self.assertGreater(height, 400)
        return page

    def pixels(self, name, *colors):
        """How many a picture has of each color."""
        return self.answer("pixels", self.path(name), *colors)

    def drawn(self, rows, figure):
        """What a figure says: {"label": of the y axis, "numbers": in the panels, "legend": its
        entries, "ideal": values of that line}."""
        self.write(rows, {"name": "test", "figure": [figure]})
        return self.answer("drawn", self.directory)
