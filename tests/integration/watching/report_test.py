"""experiments/report/report.py: figures and tables from results that were made up, whole and not."""

import csv
import functools
import json
import os
import random
import re
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
    "system,model,workers,servers,devices,gpus,bandwidth_gbps,latency_us,condition,mtbf_hours,mode,"
    "policy,batch,parameters,goodput_gbps,message_cost_us,flops,reduction_rate,update_rate,"
    "iteration_seconds,compute_seconds,images_per_second,speedup,"
    "efficiency,gpu_busy,bytes_out,bytes_in,bytes_mean,imbalance,predicted_seconds,schemes,"
    "accuracy,goodput,published,difference,fitted,source,key"
).split(",")
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
# Prints how many pixels of a picture have each of the colors, in an interpreter with Matplotlib.
COUNT_COLORS = """
import sys
from matplotlib import image
pixels = (255 * image.imread(sys.argv[1])[..., :3]).round().astype(int)
for color in sys.argv[2:]:
    wanted = [int(color[i:i + 2], 16) for i in (1, 3, 5)]
    print((pixels == wanted).all(axis=-1).sum())
"""
COLORS = {"ps": "#E69F00", "wfbp": "#009E73", "poseidon": "#0072B2", "time": "#D55E00"}


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


class Figures(ReportTest):
    """Pictures, which need Matplotlib."""

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
        done = subprocess.run(
            [self.python, "-c", COUNT_COLORS, self.path(name), *colors],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return [int(line) for line in done.stdout.split()]

    def test_a_system_has_one_color_in_all_figures(self):
        rows = [
            point(system, workers, 0.4 + delay * workers)
            for system, delay in [("ps", 0.1), ("wfbp", 0.02), ("mine", 0.004), ("time", 0)]
            for workers in (1, 2, 4, 8)
        ]
        self.draw(
            rows,
            [
                {"name": "all", "kind": "LINES"},
                {"name": "two", "kind": "BARS", "system": ["wfbp", "mine"], "y": "bytes_out"},
                {"name": "busy", "kind": "STACKED", "system": ["time"]},
            ],
        )
        known = [COLORS[name] for name in ("ps", "wfbp", "poseidon", "time")]
        for name, expected in [
            ("all.png", [True, True, False, True]),
            ("two.png", [False, True, False, False]),
            ("busy.png", [False, False, False, True]),
        ]:
            self.assertEqual([count > 300 for count in self.pixels(name, *known)], expected, name)

    def test_points_with_spare_servers_leave_the_lines_of_the_others(self):
        """A line's pixels are many more than those of its marks alone."""
        rows = [point("wfbp", workers, 0.4 + 0.02 * workers) for workers in (1, 2, 4, 8)]
        figure = [{"name": "curve"}]
        self.draw(rows, figure)
        (alone,) = self.pixels("curve.png", COLORS["wfbp"])
        spare = [point("wfbp", 8, 0.41, servers=8 + more) for more in (4, 8)]
        self.draw(rows + spare, figure)
        self.assertGreater(self.pixels("curve.png", COLORS["wfbp"])[0], 0.9 * alone)
        # Only those with so many workers, of which the caption then speaks.
        page = self.draw(rows + spare, [{"name": "curve", "x": "servers", "workers": [8]}])
        self.assertIn("8 workers", page.text)

    def test_published_values_are_drawn(self):
        """Hollow marks far from the line, so the picture has more of the color, and says so."""
        rows = [point("wfbp", workers, 0.45) for workers in (1, 2, 4, 8)]
        figure = [{"name": "curve", "ideal": True}]
        self.assertNotIn("Hollow", self.draw(rows, figure).text)
        (without,) = self.pixels("curve.png", COLORS["wfbp"])
        rows[2].update(published=1.5, fitted="true")
        rows[3].update(published=2, fitted="false")
        page = self.draw(rows, figure)
        self.assertIn(
            "Hollow marks are published values; a parameter was fitted to the half-filled ones.",
            page.text,
        )
        self.assertGreater(self.pixels("curve.png", COLORS["wfbp"])[0], without + 50)

    def test_every_kind_with_panels_and_logarithms(self):
        rows = [
            point(
                system,
                workers,
                0.4 + 1 / bandwidth,
                model=model,
                bandwidth_gbps=bandwidth,
                latency_us=latency,
                schemes=f"PS {bandwidth}.0M, SFB 9.5M",
                mode=mode,
                condition=condition,
                bytes_out=0 if workers == 1 else 1e6,
            )
            for system in ("wfbp", "time")
            for workers in (1, 16, 4096)
            for bandwidth in (1, 10)
            for latency in (5, 500)
            for model in ("VGG19", "Net, 2")
            for mode in ("simulate", "emulate")
            for condition in ("", "slow link")
        ]
        field = {
            "kind": "MAP",
            "x": "bandwidth_gbps",
            "y": "latency_us",
            "log_x": True,
            "log_y": True,
        }
        page = self.draw(
            rows,
            [
                {"name": "lines", "kind": "LINES", "panel": "model", "log_x": True, "log_y": True},
                {"name": "by_condition", "kind": 0, "x": "condition", "y": "iteration_seconds"},
                {"name": "bars", "kind": "BARS", "x": "model", "y": "bytes_out", "log_y": True},
                {"name": "stacked", "kind": "STACKED", "x": "system", "panel": "workers"},
                {"name": "schemes", "color": "schemes", "panel": "workers", **field},
                {"name": "systems", "color": "system", **field},
                {"name": "number", "color": "iteration_seconds", **field},
                {"name": "names", **field, "kind": "MAP", "x": "condition", "y": "model"},
            ],
        )
        self.assertIn("the scheme that has most of the parameters", page.text)

    def test_losses(self):
        rows = [point(system, 4, model="CIFAR-10") for system in ("wfbp", "time")]
        rows.append(point("ps", 4))  # Its file is not there.
        losses = {row["key"]: [2 + random.random() for _ in range(400)] for row in rows[:2]}
        losses[rows[1]["key"]][7] = None
        page = self.draw(rows, [{"name": "loss", "kind": "LOSSES", "log_y": True}], losses)
        self.assertIn("means over 10", page.text)
        drawn = self.pixels("loss.png", *COLORS.values())
        self.assertEqual([count > 100 for count in drawn], [False, True, False, True])

    def test_what_is_missing_breaks_nothing(self):
        rows = [
            point("wfbp", 2),
            point("wfbp", 4, speedup="", efficiency="nan"),
            point("time", 2, iteration_seconds="", predicted_seconds="", speedup=""),
            point("time", 8, published="", imbalance="", schemes=""),
        ]
        self.write(
            rows,
            {
                "figure": [
                    {"name": "curve", "panel": "model"},
                    {"name": "none", "title": "Nobody", "net": ["x"]},
                    {"name": "wrong", "title": "Wrong", "y": "beauty"},
                    {"name": "loss", "title": "Losses", "kind": "LOSSES"},
                    {"name": "a/../b", "kind": "MAP", "x": "workers", "y": "bandwidth_gbps"},
                ]
            },
        )
        page = self.report("--points=6")
        self.assertEqual([one["src"] for one in page.pictures], ["curve.png", "a____b.png"])
        for text in (
            "Nobody. Not drawn: none of its points is there yet.",
            "Wrong. Not drawn: results.csv has no column beauty.",
            "Losses. Not drawn: none",
            "Points: 3 simulated, of 6 that the experiment has.",
            "1 row of results.csv has no result.",
            "The experiment is not finished",
        ):
            self.assertIn(text, page.text)

    def test_names_of_any_letters(self):
        """Neither HTML nor Matplotlib's formulas nor its hidden labels."""
        names = ['<b>&"', "_hidden", "$x^", "a,b\nc", "Größe"]
        self.draw(
            [point(name, workers, model=name) for name in names for workers in (1, 2)],
            [{"name": "curve"}, {"name": "bars", "kind": "BARS", "panel": "model"}],
        )


class Tables(ReportTest):
    """What report.html says."""

    SECTION = "Published against ours"

    def test_published_against_ours(self):
        rows, expected, good, worst = [], [], 0, (0, "")
        for workers in range(2, 40):
            row = point(random.choice(["wfbp", "ps"]), workers, random.uniform(0.4, 0.6))
            published = row["speedup"] * random.uniform(0.8, 1.25)
            fitted = random.random() < 0.2
            row.update(published=published, fitted=str(fitted).lower(), source="a paper")
            rows.append(row)
            percent = 100 * (workers * 0.4 / row["iteration_seconds"] - published) / published
            expected.append(
                (workers, f"{percent:+.1f}%".replace("-", "−"), abs(percent) > 10, fitted)
            )
            if not fitted:
                good += abs(percent) <= 10
                worst = max(worst, (abs(percent), f"{workers} workers, 10 Gb/s: {expected[-1][1]}"))
        self.write(rows + [point("wfbp", 100)])
        page = self.report()
        shown = [
            (
                int(row["workers"][0]),
                row["difference"][0],
                "off" in row["difference"][1],
                row["fitted"][0] == "yes",
            )
            for row in page.rows(self.SECTION)
        ]
        self.assertEqual(shown, expected)
        proofs = sum(not fitted for _, _, _, fitted in expected)
        self.assertIn(
            f"{good} of {proofs} published values to which nothing was fitted are within 10%.",
            page.text,
        )
        self.assertIn(worst[1], page.text)

    def test_published_values_without_a_result(self):
        rows = [point("wfbp", 8, published=6, fitted="false", bandwidth_gbps=40, devices=4)]
        published = [
            {
                "net": "VGG19",
                "system": "wfbp",
                "workers": 8,
                "bandwidth": "40000Mbps",
                "devices_per_worker": 4,
                "speedup": 6,
                "efficiency": 0,
            },
            {
                "net": "VGG19",
                "system": "wfbp",
                "workers": 16,
                "efficiency": 0.5,
                "speedup": 0,
                "bandwidth": "",
                "source": "elsewhere",
            },
        ]
        self.write(rows, {"published": published})
        page = self.report()
        first, second = page.rows(self.SECTION)
        self.assertEqual(first["published"][0], "6.00 (19%)")
        self.assertEqual(first["devices per worker"][0], "4")
        self.assertEqual(
            [second[name][0] for name in ("workers", "published", "ours", "source")],
            ["16", "(50%)", "no result yet", "elsewhere"],
        )
        self.assertIn("1 published value has no result yet.", page.text)

    def test_modes_against_each_other(self):
        rows = []
        for workers, factor, extra in [(2, 1.05, 0), (4, 1.2, 0), (8, 0.95, 4)]:
            row = point("wfbp", workers)
            rows += [
                row,
                {
                    **row,
                    "mode": "emulate",
                    "iteration_seconds": 0.5 * factor,
                    "bytes_out": row["bytes_out"] + extra,
                    "key": "other",
                },
            ]
        rows.append({**rows[0], "mode": "run", "iteration_seconds": 0.5})
        self.write(rows)
        page = self.report()
        self.assertIn(
            "Of 3 points both simulated and emulated, 2 agree to 10% in iteration time "
            "(the largest difference: −16.7%, wfbp, VGG19, 4 workers",
            page.text,
        )
        self.assertIn("and 2 exactly in bytes.", page.text)
        self.assertIn("Of 1 point both simulated and run, all agree", page.text)
        rows = page.rows("The modes against each other")
        against, moved = "simulated against emulated", "bytes as emulated"
        self.assertEqual([row[against][0] for row in rows], ["−4.8%", "−16.7%", "+5.3%"])
        self.assertEqual(["off" in row[against][1] for row in rows], [False, True, False])
        self.assertEqual(
            [row[moved][0] for row in rows],
            ["equal", "equal", "out 800,000,000 against 800,000,004"],
        )
        self.assertEqual([row["run (ms)"][0] for row in rows], ["500", "", ""])

    def test_escapes(self):
        evil = '<script>alert("&")</script>'
        row = point(evil, 2, model='a, "b"', published=1, source="<i>&amp;</i>")
        self.write(
            [row],
            {
                "name": evil,
                "title": evil,
                "about": ["1 < 2 & 3", evil],
                "figure": [{"name": "none", "title": evil, "net": ["none"]}],
            },
        )
        page = self.report()
        with open(self.path("report.html"), encoding="utf-8") as file:
            self.assertNotIn("<script", file.read())
        self.assertIn("1 < 2 & 3", page.text)
        (shown,) = page.rows("All results")
        self.assertEqual(
            [shown[name][0] for name in ("system", "model", "source")],
            [evil, 'a, "b"', "<i>&amp;</i>"],
        )

    def test_without_matplotlib(self):
        os.mkdir(self.path("path"))
        with open(self.path("path/matplotlib.py"), "w", encoding="ascii") as file:
            file.write('raise ImportError("not here")\n')
        self.write([point("wfbp", 2, published=1)], {"figure": [{"name": "curve"}]})
        output = self.run_report(PYTHONPATH=self.path("path"))
        self.assertIn("python3-matplotlib", output)
        page = self.page()
        self.assertIn("python3-matplotlib", page.text)
        self.assertEqual(page.pictures, [])
        self.assertFalse(os.path.exists(self.path("curve.png")))
        self.assertEqual(len(page.rows(self.SECTION)), 1)

    def test_no_results(self):
        self.assertIn("there is no", self.run_report(code=1))
        self.write([], {"title": "Empty"})
        self.assertIn("There is no result yet.", self.report().text)
        with open(self.path("experiment.json"), "w", encoding="ascii") as file:
            file.write("{")
        self.assertTrue(re.search(r"experiment.json is no JSON", self.run_report(code=1)))


if __name__ == "__main__":
    cluster.main()
