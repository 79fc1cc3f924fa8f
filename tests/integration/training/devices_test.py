"""Several devices in a worker are several workers: LeNet learns digits on 2 workers with 2 CPU replicas
each as on 4 workers and on 1, with the same losses. And what is said where devices can't be had."""

import os
import unittest

import cluster
import lenet
import rounding

ITERATIONS = 30
SAMPLES = 64  # of an iteration, all workers together
SMALL_BASE_LR = "base_lr: 0.0003"  # see equivalence_test.py


class DevicesTest(lenet.LenetTest):
    def config(self, communication, training="", *, workers, devices=1, iterations=ITERATIONS):
        return f"""
            cluster {{ workers: {workers} servers: 2 devices_per_worker: {devices} }}
            communication {{ {communication} }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {iterations}
              batch_per_worker: {SAMPLES // workers} seed: 3 threads: 1 {training}
            }}"""

    def losses(self, policy, *, workers, devices=1, iterations=ITERATIONS, move=0):
        weights = f'weights: "{self.first_values(move)}"'
        summary = self.run_job(
            self.config(
                f"policy: {policy} deterministic: true",
                weights,
                workers=workers,
                devices=devices,
                iterations=iterations,
            )
        )
        self.assert_same_parameters(summary, workers)
        self.assertEqual(
            sum(worker["images"] for worker in summary["workers"]), iterations * SAMPLES
        )
        self.assertGreater(summary["test_accuracy"], 0.1)
        if workers > 1:  # one worker alone may find everything there before it needs it
            self.assertGreater(summary["communication_not_hidden"], 0)
        self.assertLessEqual(summary["communication_not_hidden"], 1)
        return summary["loss"], [layer["scheme"] for layer in summary["layers"]]

    def check(self, cases, moves):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        alone = rounding.Rounding(
            lambda move: self.losses("ALL_PS", workers=1, move=move)[0], moves
        )
        self.assertLess(alone.reference[-1], 0.97 * alone.reference[0], "it learns nothing")
        for policy, workers, devices, schemes in cases:
            with self.subTest(policy, workers=workers, devices=devices):
                losses, found = self.losses(policy, workers=workers, devices=devices)
                self.assertEqual(found, schemes)
                alone.assert_same(self, losses)

    def test_replicas_are_workers(self):
        self.check((("ALL_SFB", 2, 2, ["PS", "PS", "SFB", "SFB"]),), moves=1)

    @cluster.slow
    def test_replicas_are_workers_with_other_schemes(self):
        self.check(
            (
                ("ALL_PS", 2, 2, ["PS"] * 4),
                ("ALL_PS", 4, 1, ["PS"] * 4),
                ("ALL_RING", 2, 2, ["ring"] * 4),
                ("ALL_PS", 1, 4, ["PS"] * 4),
            ),
            moves=3,
        )

    def test_resumed_is_never_interrupted(self):
        """Passes of several batches, values clipped on the host, a snapshot: to the same bits."""
        self.copy_solver()
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write(
                f"\niter_size: 2 clip_gradients: 1 snapshot: 8 "
                f'snapshot_prefix: "{self.path("snapshots")}/lenet"\n'
            )

        def train_hash(training="", iterations=12):
            summary = self.run_job(
                self.config(
                    "policy: BYTES deterministic: true",
                    training,
                    workers=2,
                    devices=2,
                    iterations=iterations,
                )
            )
            return self.assert_same_parameters(summary, 2)

        expected = train_hash()
        snapshot = self.path("snapshots/lenet_iter_8.solverstate")
        self.assertEqual(train_hash(f'snapshot: "{snapshot}"'), expected)

    def refuse_worker(self, config, text):
        """A worker ends before it joins; there is no scheduler that it could join."""
        worker = self.start_by_hand(config, ["worker-0"])["worker-0"]
        self.assertEqual(worker.wait(), cluster.CONFIG_ERROR)
        self.assertIn(text, worker.output().splitlines()[-1])

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_no_gpu(self):
        self.copy_solver()
        text = "training.device is cuda, but "
        self.refuse_worker(self.config("", "device: CUDA", workers=1, devices=2), text)
        run = self.start_run(self.config("", "device: CUDA", workers=1))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertIn(text, run.output())

    @cluster.slow
    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_no_gpu_for_one_device(self):
        self.copy_solver()
        config = self.config("", "device: CUDA", workers=1)
        self.refuse_worker(config, "training.device is cuda, but ")

    def test_programs_decide_themselves(self):
        self.copy_solver()
        for field, training, devices in (
            ("cluster.devices_per_worker", "", 2),
            ("training.device", "device: CUDA", 1),
            ("training.precision", "precision: BFLOAT16", 1),
        ):
            run = self.start_run(
                self.config("", training, workers=1, devices=devices), "--", "true"
            )
            self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
            self.assertIn(f"config.prototxt: {field} is for this project's own", run.output())

    def test_batch_that_devices_cannot_share(self):
        self.copy_solver()
        config = self.config("", workers=1, devices=3).replace(f"batch_per_worker: {SAMPLES}", "")
        self.refuse_worker(
            config,
            "the net's batch size, 16, is what the 3 devices of a worker "
            "(cluster.devices_per_worker) share, but they can't share it equally; set "
            "training.batch_per_worker to a multiple",
        )

    def test_batches_that_differ_are_not_shared(self):
        self.copy_solver()
        self.copy_net(
            (
                r'layer \{\s+name: "conv1"',
                'layer { name: "few" type: "DummyData" top: "few" '
                'dummy_data_param { shape { dim: 4 } } } layer { name: "conv1"',
            )
        )
        config = self.config("", workers=1, devices=2).replace(f"batch_per_worker: {SAMPLES}", "")
        self.refuse_worker(
            config,
            'layer "few": has 4 samples of "few" in a batch, and the net\'s batch size, which the 2 '
            "devices of a worker (cluster.devices_per_worker) share, is 16; start a worker for each "
            "device instead",
        )
        self.refuse_worker(
            self.config("", workers=1),
            'layer "few": has 4 samples in a batch, and layer "data" has 16, but '
            "training.batch_per_worker would give all layers the same; leave it out, so that each has "
            "what the net says",
        )

    def test_steps_in_time_are_not_shared(self):
        self.write(
            "net.prototxt",
            """
            layer { name: "data" type: "DummyData" top: "x" top: "cont" dummy_data_param {
              shape { dim: 16 dim: 2 dim: 3 } shape { dim: 16 dim: 2 } } }
            layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
              recurrent_param { num_output: 3 } }
            layer { name: "loss" type: "EuclideanLoss" bottom: "lstm" bottom: "x" top: "loss" }
            """,
        )
        self.copy_solver()
        config = self.config("", workers=1, devices=2).replace(f"batch_per_worker: {SAMPLES}", "")
        self.refuse_worker(
            config,
            'layer "lstm" (LSTM): the first axis of its blobs is that of steps in time, and the net\'s '
            "batch, which the 2 devices of a worker (cluster.devices_per_worker) share, would be cut "
            "along it; set training.batch_per_worker to 2 times the net's batch size, 32, or start a "
            "worker for each device",
        )


if __name__ == "__main__":
    cluster.main()
