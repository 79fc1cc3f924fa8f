"""LeNet and the handwritten digits of configs/, for tests that train them."""

import os
import re

import cluster
import rounding

CONFIGS = os.path.join(cluster.REPOSITORY, "configs")

# Outputs of conv1, conv2 and ip1, and those of the small net.
SMALLER = {20: 8, 50: 20, 500: 160}


class LenetTest(rounding.MovedTraining, cluster.ClusterTest):
    """Makes the data bases; copies the net and solver, with changes, to the test's directory."""

    # Whether the net has a third of its outputs, for what does not depend on its size: an iteration takes a
    # quarter of the time.
    small = False

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
        self.copy_net()

    def copy(self, name, *replacements):
        """Copies a file of LeNet's with changes, which are regular expressions."""
        with open(f"{CONFIGS}/models/lenet/{name}.prototxt", encoding="utf-8") as file:
            text = file.read()
        for old, new in replacements:
            text, count = re.subn(old, new, text)
            self.assertGreater(count, 0, old)
        self.write(f"{name}.prototxt", text)

    def copy_net(self, *replacements, digits=None):
        """`digits`: where the data bases are, if it is not where they were made."""
        fewer = [(f"num_output: {old}\n", f"num_output: {new}\n") for old, new in SMALLER.items()]
        self.copy(
            "net",
            ("out/digits", digits or self.path("digits")),
            *(fewer if self.small else ()),
            *replacements,
        )

    def copy_solver(self, *replacements):
        self.copy(
            "solver",
            ("configs/models/lenet/net.prototxt", self.path("net.prototxt")),
            *replacements,
        )

    def train(
        self, communication, *, workers, batch, servers=2, iterations, move=None, training=""
    ):
        """Trains and returns summary.json. `move`: from first_values(move)."""
        weights = f'weights: "{self.first_values(move)}"' if move is not None else ""
        return self.run_job(
            f"""
            cluster {{ workers: {workers} servers: {servers} }}
            communication {{ {communication} }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {iterations}
              batch_per_worker: {batch} seed: 3 threads: 1 {weights} {training}
            }}"""
        )
