"""Training on several workers is training on one: LeNet learns digits on 4 workers x 16 images and on
1 worker x 64, and the losses agree."""

import math
import os

import cluster
import lenet
import rounding

ITERATIONS = 60
FEW_ITERATIONS = 20
WORKERS = 4
BATCH = 16
# By worker, of WORKERS * BATCH samples.
PARTS = (5, 20, 31, 8)
QUICK_PARTS = (44, 20)
# At the demo's rate, one worker with two threads differs by a percent from itself with one: steps
# multiply what a rounding has begun. At this rate, whose steps stay below 1e-5, mistakes are seen.
SMALL_BASE_LR = "base_lr: 0.0003"

QUICK = {
    "BYTES": ["PS", "PS", "SFB", "PS"],
}
OTHERS = {
    "ALL_PS": ["PS"] * 4,
    "ALL_RING": ["ring"] * 4,
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

    def check(self, policies, parts, moves):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))

        def losses_of(workers, batch, policy, **options):
            return self.train_hash(workers, batch, policy, **options)

        alone = rounding.Rounding(
            lambda move: losses_of(1, WORKERS * BATCH, "ALL_PS", move=move)[0], moves
        )
        self.assertLess(alone.reference[-1], 0.95 * alone.reference[0], "it learns nothing")
        for policy, schemes in policies.items():
            with self.subTest(policy):
                losses, found, _ = losses_of(WORKERS, BATCH, policy, move=0)
                self.assertEqual(found, schemes)
                alone.assert_same(self, losses)
        with self.subTest("unequal parts of the batch"):
            losses, _, _ = losses_of(
                len(parts),
                WORKERS * BATCH // len(parts),
                "ALL_PS",
                move=0,
                training=f"batch: BALANCED {' '.join(f'part: {part}' for part in parts)}",
            )
            alone.assert_same(self, losses)
        # Without one worker's images: a mistake.
        mistaken = losses_of(WORKERS - 1, BATCH, "ALL_PS", iterations=FEW_ITERATIONS, move=0)
        alone.assert_differs(self, mistaken[0])

    def test_four_workers_are_one(self):
        self.make_small()
        self.check(QUICK, QUICK_PARTS, moves=1)

    @cluster.slow
    def test_four_workers_are_one_with_other_schemes(self):
        self.check(QUICK | OTHERS, PARTS, moves=3)

    def make_small(self):
        self.small = True
        self.copy_net()

    def test_deterministic(self):
        self.make_small()
        # Sums of two do not depend on their order, those of three do.
        self.check_deterministic(3)

    @cluster.slow
    def test_the_large_one_is_deterministic(self):
        self.check_deterministic(WORKERS)

    def check_deterministic(self, workers):
        """Two runs end with the same bits, at the demo's rate, where one bit makes a difference."""
        self.copy_solver()
        first, second = (self.train_hash(workers, BATCH, "BYTES", FEW_ITERATIONS) for _ in range(2))
        self.assertEqual(first, second)


class RecurrentTest(lenet.LenetTest):
    """An LSTM on two workers with two streams each and on one with all four. Every sequence goes on for
    ever, so that each iteration begins with what the one before has left."""

    STEPS = 5
    STREAMS = 4
    INPUTS = 6
    BATCHES = 12  # and as many iterations

    def setUp(self):
        cluster.ClusterTest.setUp(self)
        self.write_solver()
        steps = range(self.STEPS * self.BATCHES)
        self.convert("whole", [self.record(step, range(self.STREAMS)) for step in steps])
        half = self.STREAMS // 2
        blocks = [steps[begin : begin + self.STEPS] for begin in steps[:: self.STEPS]]
        self.convert(
            "halves",
            [
                self.record(step, streams)
                for block in blocks
                for streams in (range(half), range(half, self.STREAMS))
                for step in block
            ],
        )

    def record(self, step, streams):
        """A time step of some streams, as numbers up to 255; then a label that nothing reads."""
        values = [
            round(127 + 100 * math.sin((1 + stream) * (step + 3 * place)))
            for stream in streams
            for place in range(self.INPUTS)
        ]
        return ",".join(map(str, [*values, 0]))

    def convert(self, name, records):
        convert = self.start(
            "poseidon",
            "convert",
            "csv",
            f"--source={self.write(f'{name}.csv', chr(10).join(records))}",
            f"--out={self.path(name)}",
            f"--height={len(records[0].split(',')) // self.INPUTS}",
            f"--width={self.INPUTS}",
            "--noshuffle",
            name=f"convert-{name}",
        )
        self.assertEqual(convert.wait(), cluster.SUCCESS)

    def write_solver(self):
        self.write(
            "solver.prototxt",
            f"""net: "{self.path('net.prototxt')}" base_lr: 0.3 momentum: 0.9 lr_policy: "fixed"
            max_iter: {self.BATCHES} display: 1""",
        )

    def write_net(self, name, streams, loss_weight, goes_on):
        """Which reconstructs its inputs. The loss is of a time step, however many streams that has."""
        shape = f"dim: {self.STEPS} dim: {streams}"
        self.write(
            "net.prototxt",
            f"""
            layer {{ name: "data" type: "Data" top: "data"
              data_param {{ source: "{self.path(name)}/train_lmdb" batch_size: {self.STEPS} backend: LMDB }}
              transform_param {{ scale: 0.0078 mean_value: 127 }} }}
            layer {{ name: "x" type: "Reshape" bottom: "data" top: "x"
              reshape_param {{ shape {{ dim: 0 dim: {streams} dim: {self.INPUTS} }} }} }}
            layer {{ name: "goes_on" type: "DummyData" top: "goes_on"
              dummy_data_param {{ shape {{ {shape} }} data_filler {{ value: {goes_on} }} }} }}
            layer {{ name: "lstm" type: "LSTM" bottom: "x" bottom: "goes_on" top: "lstm"
              recurrent_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}
            layer {{ name: "output" type: "InnerProduct" bottom: "lstm" top: "output"
              inner_product_param {{ num_output: {self.INPUTS} axis: 2
                                     weight_filler {{ type: "xavier" }} }} }}
            layer {{ name: "loss" type: "EuclideanLoss" bottom: "output" bottom: "x" top: "loss"
              loss_weight: {loss_weight} }}""",
        )

    def test_whether_time_steps_are_shuffled_is_said(self):
        self.write_net("whole", self.STREAMS, 1, 1)
        run = self.start_run(f'training {{ solver: "{self.path("solver.prototxt")}" }}')
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR, run.output())
        self.assertIn('layer "lstm" (LSTM) steps through time', run.output())
        self.assertIn("write shuffle: false into the job's training, or", run.output())
        self.assertFalse(os.path.exists(self.path("out")))

    def train_losses(self, workers, move, goes_on=1):
        if workers == 1:
            self.write_net("whole", self.STREAMS, 1 / self.STREAMS, goes_on)
        else:
            self.write_net("halves", self.STREAMS // workers, workers / self.STREAMS, goes_on)
        summary = self.run_job(
            f"""
            cluster {{ workers: {workers} servers: 1 }}
            communication {{ deterministic: true }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {self.BATCHES}
              seed: 3 threads: 1 shuffle: false weights: "{self.first_values(move)}"
            }}"""
        )
        self.assert_same_parameters(summary, workers)
        return summary["loss"]

    def test_two_workers_are_one(self):
        alone = rounding.Rounding(lambda move: self.train_losses(1, move), moves=1)
        self.assertLess(alone.reference[-1], 0.8 * alone.reference[0], "it learns nothing")
        alone.assert_same(self, self.train_losses(2, 0))
        # Sequences that end with each batch: a mistake.
        alone.assert_differs(self, self.train_losses(1, 0, goes_on=0))


if __name__ == "__main__":
    cluster.main()
