"""LeNet and the handwritten digits of configs/, for tests that train them."""

import os
import re

import cluster

CONFIGS = os.path.join(cluster.REPOSITORY, "configs")


class LenetTest(cluster.ClusterTest):
    """Makes the data bases; copies the net and solver, with changes, to the test's directory."""

    def setUp(self):
        super().setUp()
        convert = self.start(
            "poseidon",
            "convert",
            "csv",
            f"--source={CONFIGS}/data/digits.csv",
            f"--out={self.path('digits')}",
            "--max_value=16",
            "--scale_height=28",
            "--scale_width=28",
            "--train_records=1500",
        )
        self.assertEqual(convert.wait(), cluster.SUCCESS)
        self.copy("net", ("out/digits", self.path("digits")))

    def copy(self, name, *replacements):
        """Copies a file of LeNet's with changes, which are regular expressions."""
        with open(f"{CONFIGS}/models/lenet/{name}.prototxt", encoding="utf-8") as file:
            text = file.read()
        for old, new in replacements:
            text, count = re.subn(old, new, text)
            self.assertGreater(count, 0, old)
        self.write(f"{name}.prototxt", text)

    def copy_solver(self, *replacements):
        self.copy(
            "solver",
            ("configs/models/lenet/net.prototxt", self.path("net.prototxt")),
            *replacements,
        )

    def train(self, communication, *, workers, batch, servers=2, iterations):
        """Trains and returns summary.json."""
        return self.run_job(
            f"""
            cluster {{ workers: {workers} servers: {servers} }}
            communication {{ {communication} }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {iterations}
              batch_per_worker: {batch} seed: 3 threads: 1
            }}"""
        )
