"""Daemons of a job with `recovery { mode: REPLACE }` die whose updates need the whole gradient (clipping,
LARS), or whose codec has error feedback."""

import cluster
from recovery_test import TEST_INTERVAL, WORKERS, RecoveryTest

# Of a norm that the gradients of the first iterations have, and not those of the last.
CLIP = 0.5
LARS = "large_batch { lars { trust_coefficient: 0.05 } }"


class DeferredUpdatesTest(RecoveryTest):
    """A job ends with the bits of one that nothing happens to."""

    large_batch = ""
    # Another one than of the trainings without: what one update is decides the result.
    undisturbed = {}

    def config(self, policy="BYTES", **fields):
        return super().config(policy, **fields).replace("seed: 3", f"seed: 3 {self.large_batch}")

    def clip(self, norm):
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write(f"clip_gradients: {norm}\n")

    def test_clipped_gradients_with_lars(self):
        self.clip(CLIP)
        self.large_batch = LARS
        self.check("BYTES", "worker-1")

    @cluster.slow
    def test_clipped_gradients(self):
        self.clip(CLIP)
        self.check("ALL_PS", "worker-0")

    @cluster.slow
    def test_lars(self):
        self.large_batch = LARS
        self.check("ALL_RING", "worker-2", "server-0")

    @cluster.slow
    def test_both_under_each_scheme(self):
        self.clip(CLIP)
        self.large_batch = LARS
        self.undisturbed = {}
        for policy in ("ALL_PS", "ALL_SFB", "ALL_RING"):
            for names in (("worker-0",), ("worker-2", "server-0")):
                with self.subTest(policy=policy, names=names):
                    self.check(policy, *names)


class ErrorFeedbackTest(RecoveryTest):
    """What a lost node had not sent is lost: all workers end with the same parameters, and these are as good
    as those of a training that nothing happens to."""

    small = False  # it learns more
    undisturbed = {}

    def check_codec(self, codec, *names):
        policy = f"ALL_PS codec: {codec}"
        expected = self.reference(policy)
        run = self.start_killing(policy, *names)
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assert_nothing_left(cluster.ENDING)
        summary = self.read_json("out/summary.json")
        self.assertGreaterEqual(len(summary["recoveries"]), 1)
        self.assert_same_parameters(summary, WORKERS)
        # Until the loss nothing is other than in the undisturbed training.
        first = min(recovery["iteration"] for recovery in summary["recoveries"])
        self.assertGreaterEqual(first, TEST_INTERVAL)
        for iteration in range(first - 1):
            # The workers' losses are added in the order in which they come, in float64.
            loss = expected["loss"][iteration]
            self.assertAlmostEqual(
                summary["loss"][iteration], loss, delta=WORKERS * 2.0**-52 * abs(loss)
            )
        # A twentieth of what training has gained is more than a gradient's share of it.
        gained = expected["loss"][0] - expected["test_loss"]
        self.assertGreater(gained, 0)
        self.assertLess(summary["test_loss"], expected["test_loss"] + gained / 20)

    @cluster.slow
    def test_one_bit(self):
        self.check_codec("ONE_BIT", "worker-1")

    @cluster.slow
    def test_top_k(self):
        self.check_codec("TOP_K", "server-0")

    @cluster.slow
    def test_each_codec_and_role(self):
        for codec in ("ONE_BIT", "TOP_K"):
            for names in (("worker-0",), ("server-1",), ("worker-2", "server-0")):
                with self.subTest(codec=codec, names=names):
                    self.check_codec(codec, *names)

    @cluster.slow
    def test_a_scheduler_changes_nothing(self):
        """Nobody goes back for it."""
        policy = "ALL_PS codec: ONE_BIT"
        run = self.start_killing(policy, "scheduler")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assert_as_undisturbed(policy)


if __name__ == "__main__":
    cluster.main()
