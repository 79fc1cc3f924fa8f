"""Trainings on a GPU against the same on CPUs: LeNet and CIFAR-10 quick, four workers that share the
GPU; every scheme; half precision.

tools/test-gpu runs it: python3 tests/gpu/training_test.py --bin=DIR [--device=CPU]. With CPU, where
there is no GPU, it only shows that the test itself works.
"""

import argparse
import os
import re
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
# LeNet's after 200 iterations of the demo's solver is 0.96 and more with single precision.
ACCURACY = 0.9

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
        summary = self.run_job(
            f"""
            cluster {{ workers: {workers} servers: 2 }}
            communication {{ {communication} }}
            training {{
              solver: "{self.path(solver)}" iterations: {iterations} device: {device}
              batch_per_worker: {batch} seed: 3 threads: 1 {training}
            }}""",
            seconds=300,
        )
        self.assert_same_parameters(summary, workers)
        return summary

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
        """On coloured digits, whose maker needs numpy; torch's Python has it."""
        digits = self.path("colour_digits")
        subprocess.run(
            [sys.executable, f"{lenet.CONFIGS}/data/colour_digits.py", digits], check=True
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

    def test_half_precision_learns(self):
        self.copy_solver()
        for precision in ("FLOAT16", "BFLOAT16"):
            if precision == "FLOAT16" and _options.device == "CPU":
                continue  # refused
            with self.subTest(precision):
                summary = self.train_on(
                    _options.device,
                    "solver.prototxt",
                    "policy: BYTES",
                    iterations=200,
                    training=f"precision: {precision}",
                )
                print(f"{precision}: accuracy {summary['test_accuracy']:.3f}", flush=True)
                self.assertGreater(summary["test_accuracy"], ACCURACY)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("CPU", "CUDA"), default="CUDA")
    _, rest = parser.parse_known_args(namespace=_options)
    sys.argv = [sys.argv[0], *rest]
    cluster.main()
