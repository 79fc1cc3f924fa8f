"""The solver's fields that change an update, and what is said where an update makes no numbers."""

import glob
import os
import pathlib
import re

import cluster
import rounding
import solver_training
from solver_training import ITERATIONS

COMPARED_ITERATIONS = 30  # of losses that must be the same but for rounding
SMALL_BASE_LR = "base_lr: 0.0003"  # see equivalence_test.py


class SolverFieldsTest(solver_training.SolverTest):
    small = True
    # What several cases begin with: the first values, and losses by solver, communication and the like.
    first = None
    trained = {}

    def first_values(self, move):
        path = self.path("first_iter_1.caffemodel")
        if SolverFieldsTest.first is not None and not os.path.exists(path):
            pathlib.Path(path).write_bytes(SolverFieldsTest.first)
        model = super().first_values(move)
        SolverFieldsTest.first = SolverFieldsTest.first or pathlib.Path(path).read_bytes()
        return model

    def losses(self, communication, *, move=0, **options):
        key = (self.changes, communication, move, *sorted(options.items()))
        if key not in self.trained:
            weights = f'weights: "{self.first_values(move)}"'
            config = self.config(communication, weights, iterations=COMPARED_ITERATIONS, **options)
            self.trained[key] = self.run_job(config)["loss"]
        return self.trained[key]

    def rounding_of(self, communication, moves=1, **options):
        return rounding.Rounding(
            lambda move: self.losses(communication, move=move, **options), moves
        )

    def solver(self, text=""):
        self.changes = text
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR + " " + text))

    def check_iter_size(self, policies, moves=1):
        self.solver()
        expected = self.rounding_of("policy: ALL_PS", moves, workers=1, batch=64)
        self.solver("iter_size: 2")
        for policy in policies:
            with self.subTest(policy):
                expected.assert_same(self, self.losses(f"policy: {policy}", workers=2, batch=16))
        expected.assert_differs(self, self.losses("policy: ALL_PS", workers=1, batch=16))

    def test_iter_size_is_a_larger_batch(self):
        self.check_iter_size(("ALL_SFB",))

    @cluster.slow
    def test_iter_size_is_a_larger_batch_with_other_schemes(self):
        self.check_iter_size(("ALL_PS", "ALL_RING"), moves=2)

    def check_clipping_that_never_clips(self, policy):
        self.solver()
        expected = self.train_hash(f"policy: {policy}", iterations=COMPARED_ITERATIONS)
        self.solver("clip_gradients: 1e9")
        self.assertEqual(
            self.train_hash(f"policy: {policy}", iterations=COMPARED_ITERATIONS), expected
        )

    def test_clipping_that_never_clips_changes_no_bit(self):
        self.check_clipping_that_never_clips("ALL_PS")

    @cluster.slow
    def test_clipping_that_never_clips_changes_no_bit_of_a_ring(self):
        self.check_clipping_that_never_clips("ALL_RING")

    @cluster.slow
    def test_clipping_that_never_clips_changes_adams_factors_by_rounding(self):
        """Their layers are then updated at the workers, not where their factors are rebuilt."""
        self.solver()
        expected = self.rounding_of("policy: ALL_ADAM", moves=2)
        self.solver("clip_gradients: 1e9")
        expected.assert_same(self, self.losses("policy: ALL_ADAM"))

    def test_clipping_is_by_the_norm_of_all_workers(self):
        self.solver("clip_gradients: 0.5")
        expected = self.rounding_of("policy: ALL_PS", workers=1, batch=64)
        expected.assert_same(self, self.losses("policy: BYTES", workers=2, batch=32))
        self.solver()
        expected.assert_differs(self, self.losses("policy: ALL_PS", workers=1, batch=64))

    def test_deferred_updates_resume(self):
        self.solver_with_snapshots(
            (r"base_lr: .*", 'type: "Adam" base_lr: 0.001 clip_gradients: 1')
        )
        lars = (
            "large_batch { lars {} warmup_iterations: 30 warmup_base_lr: 0.0001 "
            "momentum_correction: false }"
        )
        expected = self.train_hash("policy: BYTES", lars)
        self.remove_snapshots()
        self.kill_after_snapshot(self.config("policy: BYTES", lars))
        self.assertEqual(self.train_hash("policy: BYTES", lars + ' snapshot: "latest"'), expected)
        self.assert_resumed()

    def test_recipe_trains(self):
        """Rates are scaled and warmed up, the batch grows: the loss still falls, images count."""
        self.copy_solver()
        recipe = (
            "large_batch { reference_batch: 64 warmup_iterations: 20 warmup_base_lr: 0.001 "
            "momentum_correction: true label_smoothing: 0.1 "
            "batch_growth { iteration: 40 factor: 2 } }"
        )
        summary = self.run_job(self.config("policy: BYTES", recipe))
        self.assertLess(summary["loss"][-1], 0.7 * summary["loss"][0])
        self.assertEqual(
            sum(worker["images"] for worker in summary["workers"]),
            2 * 16 * (40 + 2 * (ITERATIONS - 40)),
        )

    def assert_refused_first(self, text, communication="", training="", iterations=ITERATIONS):
        config = self.config(communication, training, iterations=iterations)
        # With it staleness would be refused for another reason.
        run = self.start_run(config.replace("deterministic: true", ""))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR, run.output())
        self.assertIn(text, run.output())
        self.assertFalse(os.path.exists(self.path("out")))

    def test_what_does_not_fit_the_solver_or_the_net_is_refused_before_anything_starts(self):
        self.copy_solver((r"lr_policy: .*", 'lr_policy: "poly"'))
        self.assert_refused_first('with lr_policy "poly" the solver\'s rate', iterations=401)
        self.copy_solver((r"base_lr: .*", 'type: "Adam" base_lr: 0.001'))
        self.assert_refused_first(
            "works with SGD and Nesterov", training="large_batch { momentum_correction: true }"
        )
        self.copy_solver((r"base_lr: .*", "base_lr: 0.01 clip_gradients: 1"))
        self.assert_refused_first(
            "communication.staleness must be 0: the training program makes the updates itself",
            "policy: ALL_PS staleness: 1",
        )
        self.assert_refused_first(
            "communication.update_at must not be SERVERS: ", "policy: ALL_PS update_at: SERVERS"
        )
        self.copy_solver()
        self.copy_net((r'"ReLU"', '"BatchNorm"'), (r'"SoftmaxWithLoss"', '"HingeLoss"'))
        self.assert_refused_first(
            "training.large_batch.label_smoothing has no effect",
            training="large_batch { label_smoothing: 0.1 }",
        )
        self.assert_refused_first("training.batch can't be BALANCED: ", training="batch: BALANCED")

    def test_not_a_number_names_the_layer(self):
        self.copy_solver((r"base_lr: .*", "base_lr: 1e30"))
        run = self.start_run(self.config("policy: ALL_PS"))
        self.assertNotEqual(run.wait(), cluster.SUCCESS)
        self.assertRegex(
            run.output(),
            r"loss of worker \d is .* in iteration \d+; the first layer "
            r'with such numbers is "\w+"',
        )
        self.assert_nothing_left(cluster.ENDING)
        # Both may have seen it; whoever the scheduler heard first is in the summary.
        reason = self.read_json("out/summary.json")["reason"]
        culprit = re.search(r"worker (\d)", reason)[1]
        self.assert_explained("diverged", "worker-" + culprit)

    def test_parameters_that_the_last_gradient_has_made_no_numbers(self):
        """The loss of the only iteration is a number, its gradient at 0 is not."""
        self.write(
            "net.prototxt",
            """
            layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param {
              shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 }
              data_filler { value: 0 } data_filler { value: 1 } } }
            layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
              inner_product_param { num_output: 1 } }
            layer { name: "root" type: "Power" bottom: "ip" top: "root" power_param { power: 0.5 } }
            layer { name: "loss" type: "EuclideanLoss" bottom: "root" bottom: "y" top: "loss" }
            """,
        )
        for solver in (self.solver_with_snapshots, self.copy_solver):
            with self.subTest(solver.__name__):
                solver()
                self.assert_refused(
                    self.config("", workers=1, iterations=1),
                    'in iteration 1 parameters of layer "ip" are no numbers any more; no snapshot of '
                    "them is written; a smaller base_lr usually helps",
                )
                self.assertEqual(glob.glob(self.path("snapshots/*caffe*")), [])


if __name__ == "__main__":
    cluster.main()
