"""Training on several workers is training on one: LeNet learns digits on 4 workers x 16 images and on
1 worker x 64, and the losses agree."""

import os
import re

import cluster

ITERATIONS = 100
WORKERS = 4
BATCH = 16
RELATIVE_TOLERANCE = 1e-4
# Sums in another order differ in their last bit. Max pooling and ReLU turn that, once in some dozen
# iterations, into another maximum or sign, a step that the learning rate multiplies: at the demo's
# rate, one worker with two threads differs by a percent from itself with one. At this rate, whose
# steps stay below 1e-5, whatever is beyond the tolerance is a mistake.
SMALL_BASE_LR = "base_lr: 0.0003"

CONFIGS = os.path.join(cluster.REPOSITORY, "configs")


class EquivalenceTest(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        convert = self.start(
            "poseidon", "convert", "csv", f"--source={CONFIGS}/data/digits.csv",
            f"--out={self.path('digits')}", "--max_value=16", "--scale_height=28",
            "--scale_width=28", "--train_records=1500")
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
        self.copy("solver", ("configs/models/lenet/net.prototxt", self.path("net.prototxt")),
                  *replacements)

    def train(self, workers, batch, policy, deterministic=False):
        summary = self.run_job(f"""
            cluster {{ workers: {workers} servers: 2 }}
            communication {{ policy: {policy} deterministic: {str(deterministic).lower()} }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {ITERATIONS}
              batch_per_worker: {batch} seed: 3 threads: 1
            }}""")
        parameters = self.assert_same_parameters(summary, workers)
        self.assertEqual(len(summary["loss"]), ITERATIONS)
        self.assertEqual(sum(worker["images"] for worker in summary["workers"]),
                         ITERATIONS * WORKERS * BATCH)
        return summary["loss"], [layer["scheme"] for layer in summary["layers"]], parameters

    def test_four_workers_are_one(self):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        expected, _, _ = self.train(1, WORKERS * BATCH, "ALL_PS")
        self.assertLess(expected[-1], 0.9 * expected[0], "it learns nothing")
        for policy, schemes in (("ALL_PS", ["PS", "PS", "PS", "PS"]),
                                ("ALL_SFB", ["PS", "PS", "SFB", "SFB"]),
                                ("BYTES", ["PS", "PS", "SFB", "PS"])):
            with self.subTest(policy):
                losses, found, _ = self.train(WORKERS, BATCH, policy)
                self.assertEqual(found, schemes)
                for iteration, (loss, reference) in enumerate(zip(losses, expected)):
                    self.assertAlmostEqual(loss, reference, msg=f"iteration {iteration}",
                                           delta=RELATIVE_TOLERANCE * reference)

    def test_deterministic(self):
        """Two runs end with the same bits, at the demo's rate, where one bit makes a difference."""
        self.copy_solver()
        first = self.train(WORKERS, BATCH, "BYTES", deterministic=True)
        self.assertEqual(first, self.train(WORKERS, BATCH, "BYTES", deterministic=True))


if __name__ == "__main__":
    cluster.main()
