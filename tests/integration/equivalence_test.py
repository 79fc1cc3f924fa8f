"""Training on several workers is training on one: LeNet learns digits on 4 workers x 16 images and on
1 worker x 64, and the losses agree."""

import os

import cluster

ITERATIONS = 100
WORKERS = 4
BATCH = 16
RELATIVE_TOLERANCE = 1e-4  # float32, summed in another order, over 100 iterations

CONFIGS = os.path.join(cluster.REPOSITORY, "configs")


class EquivalenceTest(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        convert = self.start(
            "poseidon", "convert", "csv", f"--source={CONFIGS}/data/digits.csv",
            f"--out={self.path('digits')}", "--max_value=16", "--scale_height=28",
            "--scale_width=28", "--train_records=1500")
        self.assertEqual(convert.wait(), cluster.SUCCESS)
        self.copy_with("net", "out/digits", self.path("digits"))
        self.copy_with("solver", "configs/models/lenet/net.prototxt", self.path("net.prototxt"))

    def copy_with(self, name, old, new):
        with open(f"{CONFIGS}/models/lenet/{name}.prototxt", encoding="utf-8") as file:
            text = file.read()
        self.assertIn(old, text)
        self.write(f"{name}.prototxt", text.replace(old, new))

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
        expected, _, _ = self.train(1, WORKERS * BATCH, "ALL_PS")
        self.assertLess(expected[-1], expected[0] / 2, "it learns nothing")
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
        """Two runs end with the same bits."""
        first = self.train(WORKERS, BATCH, "BYTES", deterministic=True)
        self.assertEqual(first, self.train(WORKERS, BATCH, "BYTES", deterministic=True))


if __name__ == "__main__":
    cluster.main()
