"""Trainings on a GPU against the same on CPUs: LeNet and CIFAR-10 quick, four workers that share the
GPU; every scheme; codecs; snapshots; changes of plan and losses; half precision.

tools/test-gpu runs it: python3 tests/gpu/training_test.py --bin=DIR [--device=CPU]. With CPU, where
there is no GPU, it only shows that the test itself works.
"""

import argparse
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

# pylint: disable=wrong-import-position
import cluster
import lenet

WORKERS = 4
ITERATIONS = 20
# A GPU adds up in another order and with other convolutions than a CPU, so last bits differ, and at
# this rate no step is beyond 1e-5 (equivalence_test.py); a wrong gradient shows at once.
SMALL_BASE_LR = "base_lr: 0.0003"
RELATIVE_TOLERANCE = 1e-3
LEARNING_ITERATIONS = 200
# LeNet's after as many iterations of the demo's solver is 0.96 and more with single precision.
ACCURACY = 0.9

# Indices from 0 to 9 are in range.
OUT_OF_RANGE = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 1 } shape { dim: 8 }
  data_filler { type: "constant" value: 12 } data_filler { type: "constant" } } }
layer { name: "embed" type: "Embed" bottom: "data" top: "embed"
  embed_param { input_dim: 10 num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "embed" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
_options = argparse.Namespace(device="CUDA")


class TrainingTest(lenet.LenetTest):
    def train_on(
        self,
        device,
        solver,
        communication,
        *,
        workers=WORKERS,
        batch=16,
        iterations=ITERATIONS,
        training="",
    ):
        config = self.config(device, solver, communication, workers, batch, iterations, training)
        summary = self.run_job(config, seconds=300)
        self.assert_same_parameters(summary, workers)
        return summary

    def config(self, device, solver, communication, workers, batch, iterations, training=""):
        return f"""
            cluster {{ workers: {workers} servers: 2 }}
            communication {{ {communication} }}
            training {{
              solver: "{self.path(solver)}" iterations: {iterations} device: {device}
              batch_per_worker: {batch} seed: 3 threads: 1 {training}
            }}"""

    def assert_like_the_cpu(self, solver, communication, **options):
        expected = self.train_on("CPU", solver, communication, **options)["loss"]
        losses = self.train_on(_options.device, solver, communication, **options)["loss"]
        self.assertEqual(len(losses), ITERATIONS)
        worst = max(abs(a - b) / b for a, b in zip(losses, expected))
        print(f"{solver}, {communication}: losses differ by {worst:.1e} at most", flush=True)
        self.assertLess(worst, RELATIVE_TOLERANCE)

    def test_lenet_by_every_scheme(self):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        for policy in ("BYTES", "ALL_PS", "ALL_SFB", "ALL_RING"):
            with self.subTest(policy):
                self.assert_like_the_cpu("solver.prototxt", f"policy: {policy}")

    def test_two_workers_on_one_gpu(self):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        for policy in ("ALL_PS", "ALL_SFB", "ALL_RING"):
            with self.subTest(policy):
                self.assert_like_the_cpu(
                    "solver.prototxt", f"policy: {policy}", workers=2, batch=32
                )

    def test_passes_and_updates_on_the_host(self):
        """Gradients of several passes are added up on the device; clipped values go back to it."""
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write("\niter_size: 2 clip_gradients: 1\n")
        for policy in ("ALL_PS", "ALL_SFB"):
            with self.subTest(policy):
                self.assert_like_the_cpu("solver.prototxt", f"policy: {policy}", workers=2)

    def test_cifar10_quick(self):
        """On colored digits, whose maker needs numpy; torch's Python has it."""
        digits = self.path("color_digits")
        subprocess.run(
            [sys.executable, f"{lenet.CONFIGS}/data/color_digits.py", digits], check=True
        )
        convert = self.start(
            "poseidon", "convert", "cifar10", f"--source={digits}", f"--out={self.path('cifar10')}"
        )
        self.assertEqual(convert.wait(), cluster.SUCCESS)
        self.copy_model("cifar10_quick", "net", ("out/cifar10", self.path("cifar10")))
        self.copy_model(
            "cifar10_quick",
            "solver",
            ("configs/models/cifar10_quick/net.prototxt", self.path("cifar10_quick_net.prototxt")),
            ("test_iter: .*", "test_iter: 1"),
            ("base_lr: .*", "base_lr: 0.0001"),
        )
        self.assert_like_the_cpu("cifar10_quick_solver.prototxt", "policy: BYTES", batch=25)

    def copy_model(self, model, name, *replacements):
        with open(f"{lenet.CONFIGS}/models/{model}/{name}.prototxt", encoding="utf-8") as file:
            text = file.read()
        for old, new in replacements:
            text, count = re.subn(old, new, text)
            self.assertGreater(count, 0, old)
        self.write(f"{model}_{name}.prototxt", text)

    def learn(self, communication="policy: BYTES", training="", *, small_steps=False):
        """The demo's training, or twice as many smaller steps; returns what the workers have logged."""
        self.copy_solver(*([("base_lr: .*", "base_lr: 0.01")] if small_steps else []))
        summary = self.train_on(
            _options.device,
            "solver.prototxt",
            communication,
            iterations=LEARNING_ITERATIONS * (2 if small_steps else 1),
            training=training,
        )
        accuracy = summary["test_accuracy"]
        print(f"{communication} {training}: accuracy {accuracy:.3f}", flush=True)
        self.assertGreater(accuracy, ACCURACY)
        return "".join(self.log(worker) for worker in range(WORKERS))

    def log(self, worker):
        with open(self.path(f"out/logs/worker-{worker}.log"), encoding="utf-8") as file:
            return file.read()

    def test_half_precision_learns(self):
        for precision in ("FLOAT16", "BFLOAT16", "TF32"):
            if precision != "BFLOAT16" and _options.device == "CPU":
                continue  # refused
            with self.subTest(precision):
                self.learn(training=f"precision: {precision}")

    def test_float16_overflows_and_learns(self):
        """From a scale at which every gradient is infinite; it is halved until they are finite."""
        if _options.device == "CPU":
            self.skipTest("CPUs compute no FLOAT16")
        log = self.learn(training="precision: FLOAT16 loss_scale { initial: 1e12 }")
        self.assertIn("gradients were not finite at loss scale", log)

    def test_fp16_gradients(self):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        for codec in ("FP16", "BF16"):
            with self.subTest(codec):
                self.assert_like_the_cpu("solver.prototxt", f"policy: ALL_PS codec: {codec}")

    def test_codecs_with_error_feedback_learn(self):
        """What they send depends on each gradient's last bit, in which a GPU and a CPU differ. What a frame leaves
        out comes late, in lumps, which wants smaller steps."""
        for codec in ("INT8", "ONE_BIT", "TOP_K top_k_share: 0.1"):
            with self.subTest(codec):
                self.learn(f"policy: ALL_PS codec: {codec}", small_steps=codec != "INT8")

    def test_an_index_out_of_range_is_named(self):
        """A kernel that it came to would stop, and the GPU's memory would be lost with it."""
        self.write("net.prototxt", OUT_OF_RANGE)
        self.write(
            "solver.prototxt",
            f'net: "{self.path("net.prototxt")}" base_lr: 0.1 lr_policy: "fixed" max_iter: 20',
        )
        config = self.config(_options.device, "solver.prototxt", "policy: ALL_PS", 2, 8, ITERATIONS)
        run = self.start_run(config)
        self.assertEqual(run.wait(60), cluster.DATA_ERROR)
        self.assertIn('layer "embed": the index of sample 0 of the batch is 12', run.output())
        self.assert_nothing_left()

    def test_snapshot_is_gone_on_from(self):
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        prefix = self.path("snapshots/lenet")
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write(f'\nsnapshot: {ITERATIONS // 2} snapshot_prefix: "{prefix}"\n')
        for policy in ("ALL_PS", "ALL_RING"):
            with self.subTest(policy):
                device, communication = _options.device, f"policy: {policy}"
                whole = self.train_on(device, "solver.prototxt", communication)["loss"]
                state = f"{prefix}_iter_{ITERATIONS // 2}.solverstate"
                rest = self.train_on(
                    device, "solver.prototxt", communication, training=f'snapshot: "{state}"'
                )["loss"]
                self.assertEqual(len(rest), ITERATIONS - ITERATIONS // 2)
                worst = max(abs(a - b) / b for a, b in zip(rest, whole[ITERATIONS // 2 :]))
                self.assertLess(worst, RELATIVE_TOLERANCE)

    def change_members(self, communication, number, mode, members):
        """Sends worker 2 of three a signal in the middle, after which the job has `members`."""
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR))
        elastic = "elastic { min_workers: 2 max_workers: 3 }" if mode == "SHRINK" else ""
        run = self.start_run(
            self.config(
                *(_options.device, "solver.prototxt", communication),
                *(3, 16, LEARNING_ITERATIONS),
            )
            + f"recovery {{ mode: {mode} }} {elastic}"
        )
        run.await_output("iteration [1-9]", seconds=300)
        os.kill(self.pid_of("worker", 2), number)
        self.assertEqual(run.wait(seconds=300), cluster.SUCCESS)
        self.assert_nothing_left(cluster.ENDING)
        summary = self.read_json("out/summary.json")
        self.assertEqual(len(summary["recoveries"]), 1)
        self.assertEqual(len(summary["workers"]), members)
        self.assertEqual(len({worker["parameter_hash"] for worker in summary["workers"]}), 1)
        self.assertLess(summary["loss"][-1], 0.9 * summary["loss"][0])

    def test_plan_changes_when_a_worker_leaves(self):
        for policy in ("ALL_PS", "ALL_RING", "ALL_SFB"):
            with self.subTest(policy):
                self.change_members(f"policy: {policy}", signal.SIGTERM, "SHRINK", 2)

    def test_lost_worker_is_replaced(self):
        for policy in ("ALL_PS", "ALL_SFB"):
            with self.subTest(policy):
                self.change_members(f"policy: {policy}", signal.SIGKILL, "REPLACE", 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("CPU", "CUDA"), default="CUDA")
    _, rest = parser.parse_known_args(namespace=_options)
    sys.argv = [sys.argv[0], *rest]
    cluster.main()
