"""`poseidon experiment`: the same results again and again, whatever interrupts it."""

import csv
import glob
import os
import re
import shlex
import signal
import subprocess
import time

import cluster

EXPERIMENT = """
name: "small"
title: "A small one"
net {
  name: "net"
  replay {
    batch: 8
    layers { name: "conv" parameters: 20000 forward_ms: 2 backward_ms: 4 }
    layers { name: "fc" type: "InnerProduct" inputs: 800 outputs: 500 forward_ms: 1 backward_ms: 2 }
  }
}
sweep {
  system: "ps" system: "wfbp" system: "poseidon" system: "ring"
  workers: 1 workers: 2 workers: 4 workers: %d
  bandwidth: "1Gbps"
}
published { system: "ring" workers: 4 speedup: 3 source: "a book" }
figure { name: "speedup" }
"""
POINTS = 16


class ExperimentTest(cluster.ClusterTest):
    def write(self, name="small.prototxt", largest=8, **replacements):
        text = EXPERIMENT % largest
        for what, by in replacements.items():
            text = text.replace(what, by)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def setUp(self):
        super().setUp()
        # For reports without pictures, as loading it takes longer than an experiment does.
        os.mkdir(self.path("hidden"))
        super().write("hidden/matplotlib.py", "raise ImportError('not here')")

    def experiment(self, file, out="out", *flags, code=cluster.SUCCESS, pictures=False):
        process = self.start(
            "poseidon",
            "experiment",
            file,
            f"--out={self.path(out)}",
            *flags,
            prefix=() if pictures else ("env", f"PYTHONPATH={self.path('hidden')}"),
        )
        self.assertEqual(process.wait(), code, process.output())
        return process.output()

    def rows(self, out="out"):
        with open(self.path(os.path.join(out, "results.csv")), encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_a_row_a_point_and_a_report(self):
        output = self.experiment(self.write(), pictures=True)
        self.assertIn(f"{POINTS} points", output)
        self.assertEqual(len(re.findall(r"^\[ ?\d+/16\] net, ", output, re.M)), POINTS)
        rows = self.rows()
        self.assertEqual(len(rows), POINTS)
        for row in rows:
            workers = int(row["workers"])
            self.assertEqual(row["mode"], "simulate")
            self.assertAlmostEqual(float(row["compute_seconds"]), 0.009)
            self.assertGreaterEqual(float(row["iteration_seconds"]), 0.009 - 1e-9)
            if row["system"] == "ring":  # 2 (P - 1) / P of the gradient, each way
                floats = 20000 + 800 * 500 + 500
                self.assertAlmostEqual(
                    float(row["bytes_out"]), 8 * floats * (workers - 1) / workers, delta=8
                )
        published = [row for row in rows if row["published"]]
        self.assertEqual([(row["system"], row["workers"]) for row in published], [("ring", "4")])
        self.assertTrue(os.path.exists(self.path("out/report.html")))

    def test_a_report_that_nobody_reads_of_is_made(self):
        program = os.path.abspath(os.path.join(cluster.programs(), "poseidon"))
        command = shlex.join((program, "experiment", self.write(), f"--out={self.path('out')}"))
        ended = subprocess.run(
            f'{command} | head -1; exit "${{PIPESTATUS[0]}}"',
            shell=True,
            executable="/bin/bash",
            env={**os.environ, "PYTHONPATH": self.path("hidden")},
            capture_output=True,
            text=True,
            check=False,
            timeout=cluster.scaled(cluster.PATIENCE),
        )
        self.assertEqual(ended.returncode, cluster.SUCCESS, ended.stderr)
        self.assertTrue(os.path.exists(self.path("out/report.html")))

    def test_twice_is_the_same_and_nothing_is_done_twice(self):
        self.experiment(self.write())
        self.experiment(self.write(), "other", "--threads=1")
        self.assertEqual(self.rows(), self.rows("other"))
        # More threads than there are points.
        self.experiment(self.write(), "many", "--threads=100000")
        self.assertEqual(self.rows(), self.rows("many"))
        self.assertIn("of which 16 are there already", self.experiment(self.write()))
        # What the file changes is new, what it does not is not; a point that is gone is done again.
        changed = self.write(**{"workers: 4 ": "workers: 3 "})
        output = self.experiment(changed)
        self.assertIn("of which 12 are there already", output)
        os.remove(sorted(glob.glob(self.path("other/points/*.json")))[0])
        self.assertIn("of which 15 are there already", self.experiment(self.write(), "other"))

    def test_points_of_another_build_are_told_apart(self):
        self.experiment(self.write())
        version = self.start("poseidon", "--version")
        self.assertEqual(version.wait(), cluster.SUCCESS)
        build = version.output().split()[1]
        self.assertRegex(build, r"^[0-9.]+\+[0-9a-f]{12}$")
        points = sorted(glob.glob(self.path("out/points/*.json")))
        self.assertEqual(self.read_json(points[0])["version"], build)
        # As files were before they named the build.
        number = build.split("+")[0]
        with open(points[0], encoding="utf-8") as file:
            text = file.read()
        with open(points[0], "w", encoding="utf-8") as file:
            file.write(text.replace(build, number))
        os.remove(points[1])
        output = self.experiment(self.write())
        self.assertIn("of which 15 are there already", output)
        self.assertIn(f"beside 1 point of version {number}; this is version {build}", output)

    def test_goes_on_after_it_was_killed(self):
        file = self.write(largest=64)
        self.experiment(file, "whole")
        process = self.start(
            "poseidon", "experiment", file, f"--out={self.path('out')}", "--threads=1"
        )
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while len(glob.glob(self.path("out/points/*.json"))) < 3:
            self.assertLess(time.monotonic(), deadline, process.output())
            time.sleep(0.005)
        process.signal(signal.SIGKILL)
        process.wait()
        self.experiment(file)
        self.assertEqual(self.rows(), self.rows("whole"))

    def test_former_names_are_read_with_a_warning(self):
        former = "colo" "ur"  # in two pieces, as the house's test of spelling asks for
        figures = f'figure {{ name: "map" kind: MAP {former}: "system" }}'
        figures += ' system { name: "old" policy: "ring" }'
        output = self.experiment(self.write(**{'figure { name: "speedup" }': figures}))
        self.assertIn(f'small.prototxt:18: a figure\'s "{former}" is now called color', output)
        self.assertIn('system "old": policy "ring" is now called ALL_RING', output)

    def test_what_is_wrong_is_said(self):
        def said(*flags, **replacements):
            return self.experiment(
                self.write(**replacements), "out", *flags, code=cluster.CONFIG_ERROR
            )

        self.assertIn('did you mean "ring"?', said(**{'system: "ring"': 'system: "rign"'}))
        self.assertRegex(said(**{"workers: 1 ": "worker: 1 "}), r"small\.prototxt:\d+:\d+: ")
        self.assertIn("must be simulate, emulate or run", said("--mode=simulated"))
        self.assertIn("--hosts", said("--mode=run"))
        self.assertIn("takes one file", said("another.prototxt"))
        missing = self.start("poseidon", "experiment")
        self.assertEqual(missing.wait(), cluster.CONFIG_ERROR)
        self.assertIn("there is no experiment", missing.output())


if __name__ == "__main__":
    cluster.main()
