"""Training on several workers is training on one: LeNet learns digits on 4 workers x 16 images and on
1 worker x 64, and the losses agree."""

import cluster
import lenet
import rounding

ITERATIONS = 60
WORKERS = 4
BATCH = 16
PARTS = "part: 5 part: 20 part: 31 part: 8"  # of WORKERS * BATCH samples
# At the demo's rate, one worker with two threads differs by a percent from itself with one: steps
# multiply what a rounding has begun. At this rate, whose steps stay below 1e-5, mistakes are seen.
SMALL_BASE_LR = "base_lr: 0.0003"

QUICK = {
    "ALL_PS": ["PS", "PS", "PS", "PS"],
    "BYTES": ["PS", "PS", "SFB", "PS"],
    "ALL_RING": ["ring"] * 4,
}
OTHERS = {
    "ALL_SFB": ["PS", "PS", "SFB", "SFB"],
    "ALL_HALVING_DOUBLING": ["halving-doubling"] * 4,
    "ALL_TORUS": ["torus"] * 4,
    "ALL_ADAM": ["PS", "PS", "Adam", "Adam"],
}


class EquivalenceTest(lenet.LenetTest):
    def train_hash(self, workers, batch, policy, iterations=ITERATIONS, **options):
        """A deterministic training: its losses, schemes, and parameters."""
        summary = self.train(
            f"policy: {policy} deterministic: true",
            workers=workers,
            batch=batch,
            iterations=iterations,
            **options,
        )
        parameters = self.assert_same_parameters(summary, workers)
        self.assertEqual(len(summary["loss"]), iterations)
        self.assertEqual(
            sum(worker["images"] for worker in summary["workers"]), iterations * workers * batch
        )
        return summary["loss"], [layer["scheme"] for layer in summary["layers"]], parameters

    def check(self, policies):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        alone = rounding.Rounding(
            lambda move: self.train_hash(1, WORKERS * BATCH, "ALL_PS", move=move)[0]
        )
        self.assertLess(alone.reference[-1], 0.95 * alone.reference[0], "it learns nothing")
        for policy, schemes in policies.items():
            with self.subTest(policy):
                losses, found, _ = self.train_hash(WORKERS, BATCH, policy, move=0)
                self.assertEqual(found, schemes)
                alone.assert_same(self, losses)
        with self.subTest("unequal parts of the batch"):
            losses, _, _ = self.train_hash(
                WORKERS, BATCH, "ALL_PS", move=0, training=f"batch: BALANCED {PARTS}"
            )
            alone.assert_same(self, losses)
        # Without one worker's images: a mistake.
        alone.assert_differs(self, self.train_hash(WORKERS - 1, BATCH, "ALL_PS", move=0)[0])

    def test_four_workers_are_one(self):
        self.check(QUICK)

    @cluster.slow
    def test_four_workers_are_one_with_other_schemes(self):
        self.check(OTHERS)

    def test_deterministic(self):
        """Two runs end with the same bits, at the demo's rate, where one bit makes a difference."""
        self.copy_solver()
        first = self.train_hash(WORKERS, BATCH, "BYTES")
        self.assertEqual(first, self.train_hash(WORKERS, BATCH, "BYTES"))


if __name__ == "__main__":
    cluster.main()
