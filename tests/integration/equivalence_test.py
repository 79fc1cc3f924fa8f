"""Training on several workers is training on one: LeNet learns digits on 4 workers x 16 images and on
1 worker x 64, and the losses agree."""

import cluster
import lenet

ITERATIONS = 100
WORKERS = 4
BATCH = 16
RELATIVE_TOLERANCE = 1e-4
# Sums in another order differ in their last bit. Max pooling and ReLU turn that, once in some dozen
# iterations, into another maximum or sign, a step that the learning rate multiplies: at the demo's
# rate, one worker with two threads differs by a percent from itself with one. At this rate, whose
# steps stay below 1e-5, whatever is beyond the tolerance is a mistake.
SMALL_BASE_LR = "base_lr: 0.0003"


class EquivalenceTest(lenet.LenetTest):
    def losses(self, workers, batch, policy, deterministic=False):
        summary = self.train(
            f"policy: {policy} deterministic: {str(deterministic).lower()}",
            workers=workers,
            batch=batch,
            iterations=ITERATIONS,
        )
        parameters = self.assert_same_parameters(summary, workers)
        self.assertEqual(len(summary["loss"]), ITERATIONS)
        self.assertEqual(
            sum(worker["images"] for worker in summary["workers"]), ITERATIONS * WORKERS * BATCH
        )
        return summary["loss"], [layer["scheme"] for layer in summary["layers"]], parameters

    def test_four_workers_are_one(self):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        expected, _, _ = self.losses(1, WORKERS * BATCH, "ALL_PS")
        self.assertLess(expected[-1], 0.9 * expected[0], "it learns nothing")
        for policy, schemes in (
            ("ALL_PS", ["PS", "PS", "PS", "PS"]),
            ("ALL_SFB", ["PS", "PS", "SFB", "SFB"]),
            ("BYTES", ["PS", "PS", "SFB", "PS"]),
            ("ALL_RING", ["ring"] * 4),
            ("ALL_HALVING_DOUBLING", ["halving-doubling"] * 4),
            ("ALL_TORUS", ["torus"] * 4),
            ("ALL_ADAM", ["PS", "PS", "Adam", "Adam"]),
        ):
            with self.subTest(policy):
                losses, found, _ = self.losses(WORKERS, BATCH, policy)
                self.assertEqual(found, schemes)
                for iteration, (loss, reference) in enumerate(zip(losses, expected)):
                    self.assertAlmostEqual(
                        loss,
                        reference,
                        msg=f"iteration {iteration}",
                        delta=RELATIVE_TOLERANCE * reference,
                    )

    def test_deterministic(self):
        """Two runs end with the same bits, at the demo's rate, where one bit makes a difference."""
        self.copy_solver()
        first = self.losses(WORKERS, BATCH, "BYTES", deterministic=True)
        self.assertEqual(first, self.losses(WORKERS, BATCH, "BYTES", deterministic=True))


if __name__ == "__main__":
    cluster.main()
