"""Nets with layers that the user has written in Python: several workers train as one does, and a layer
that throws ends the job with its name and its traceback."""

import os
import shutil

import cluster
import rounding

ITERATIONS = 80

# Samples of two classes by a line that a seed draws; a worker takes every workers-th batch.
LAYERS = '''
import caffe
import numpy as np


class Points(caffe.Layer):
    """Batches of param_str points and what a line says of them."""

    def setup(self, bottom, top):
        self.batch = int(self.param_str)
        print(f"this is worker {self.rank} of {self.workers}")

    def reshape(self, bottom, top):
        top[0].reshape(self.batch, 6)
        top[1].reshape(self.batch, 1)

    def forward(self, bottom, top):
        for i in range(self.batch):
            sample = (self.iteration * self.workers + self.rank) * self.batch + i
            point = np.random.RandomState(sample).uniform(-1, 1, 6)
            top[0].data[i] = point
            top[1].data[i] = point @ [1, -2, 3, -1, 2, 0.5]

    def backward(self, top, propagate_down, bottom):
        pass


class Euclidean(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.difference = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference**2) / bottom[0].num / 2
        FAILS

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.difference / bottom[0].num
'''

# Counts its batches in a blob.
COUNTER = """

class Counter(caffe.Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(1)

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.blobs[0].data[...] += 1
        top[0].data[...] = self.blobs[0].data
"""

# A loss that ends the processes that it starts, in setup and in each pass.
PARENT = """

import multiprocessing
import signal
import subprocess
import time


def end_processes():
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    forked.start()
    other = subprocess.Popen(["sleep", "600"])
    try:
        forked.terminate()
        other.terminate()
        forked.join(30)
        assert forked.exitcode == -signal.SIGTERM, f"the fork ended with {forked.exitcode}"
        assert other.wait(30) == -signal.SIGTERM, f"sleep ended with {other.returncode}"
    finally:
        forked.kill()
        other.kill()


class Parent(Euclidean):
    def setup(self, bottom, top):
        end_processes()

    def forward(self, bottom, top):
        end_processes()
        super().forward(bottom, top)
"""

PYTHON_LOSS = (
    """type: "Python" loss_weight: 1 python_param { module: "points" layer: "Euclidean" }"""
)

SOLVER = """
    net: "%s" base_lr: 0.2 lr_policy: "fixed" max_iter: 100 test_iter: %d test_interval: 1000 display: 1
    test_initialization: false """


class PythonLayerTest(rounding.MovedTraining, cluster.ClusterTest):
    # Of a training by two workers with a batch of 16 each: its summary and worker 1's log.
    by_two = None

    def write_net(self, batch, loss=PYTHON_LOSS, fails="pass"):
        self.write("points.py", LAYERS.replace("FAILS", fails))
        net = self.write(
            "net.prototxt",
            f"""
            layer {{ name: "data" type: "Python" top: "x" top: "y"
                    python_param {{ module: "points" layer: "Points" param_str: "{batch}" }} }}
            layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
                    inner_product_param {{ num_output: 1 weight_filler {{ type: "xavier" }} }} }}
            layer {{ name: "loss" bottom: "ip" bottom: "y" top: "loss" {loss} }}""",
        )
        self.write("solver.prototxt", SOLVER % (net, 64 // batch))

    def log(self, daemon):
        with open(self.path(f"out/logs/{daemon}.log"), encoding="utf-8") as file:
            return file.read()

    def config(self, workers, iterations=ITERATIONS, devices=1, training=""):
        return f"""
            cluster {{ workers: {workers} servers: 1 devices_per_worker: {devices} }}
            communication {{ policy: ALL_PS deterministic: true }}
            training {{ solver: "{self.path("solver.prototxt")}" iterations: {iterations}
                       seed: 3 threads: {devices} {training} }}"""

    def train(self, workers, devices=1, training=""):
        summary = self.run_job(self.config(workers, devices=devices, training=training))
        self.assert_same_parameters(summary, workers)
        return summary

    def train_moved(self, move, workers=1, **options):
        """From a model's values, moved as rounding.MovedTraining says: the losses."""
        weights = f'weights: "{self.first_values(move)}" {options.pop("training", "")}'
        return self.train(workers, training=weights, **options)["loss"]

    def trained_by_two(self):
        """One training that several cases look at."""
        if PythonLayerTest.by_two is None:
            self.write_net(batch=16)
            PythonLayerTest.by_two = self.train(workers=2), self.log("worker-1")
        return PythonLayerTest.by_two

    def test_several_train_as_one_with_the_whole_batch(self):
        """Workers, devices of one, which have layers of their own, and those of a net with a built-in loss."""
        two, _ = self.trained_by_two()
        self.assertLess(two["test_loss"], 1e-3)
        self.write_net(batch=32)
        alone = rounding.Rounding(self.train_moved, moves=1)
        self.write_net(batch=16)
        alone.assert_same(self, self.train_moved(0, workers=2))
        alone.assert_same(self, self.train_moved(0, devices=2, training="batch_per_worker: 32"))
        # Another batch: a mistake.
        alone.assert_differs(self, self.train_moved(0))
        self.write_net(
            batch=16, loss='type: "EuclideanLoss" propagate_down: true propagate_down: false'
        )
        alone.assert_same(self, self.train_moved(0, workers=2))

    def test_what_only_test_nets_have_is_their_layers_to_change(self):
        """Also where no param says lr_mult: 0."""
        self.write_net(batch=16)
        for name, text in [
            ("points.py", COUNTER),
            (
                "net.prototxt",
                """
                layer { name: "count" type: "Python" top: "count" include { phase: TEST }
                        python_param { module: "points" layer: "Counter" } }""",
            ),
            ("solver.prototxt", f'snapshot_prefix: "{self.path("points")}"'),
        ]:
            with open(self.path(name), "a", encoding="utf-8") as file:
                file.write(text)
        self.train(workers=2)
        test = self.start(
            "poseidon",
            "test",
            f"--net={self.path('net.prototxt')}",
            "--weights=" + self.path(f"points_iter_{ITERATIONS}.caffemodel"),
            "--iterations=4",
        )
        self.assertEqual(test.wait(), cluster.SUCCESS, test.output())
        self.assertIn("\ncount: 2.5\n", test.output())  # the mean of 1 to 4

    def test_what_a_layer_prints_is_in_the_workers_log(self):
        _, log = self.trained_by_two()
        self.assertIn("this is worker 1 of 2", log)

    def test_a_layer_that_throws_ends_the_job(self):
        self.write_net(
            batch=4,
            fails="if self.rank == 1 and self.iteration == 3: raise RuntimeError('no more')",
        )
        run = self.start_run(self.config(workers=2))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assert_nothing_left(cluster.ENDING)
        said = 'layer "loss" (Python): forward of points.Euclidean: RuntimeError: no more'
        self.assertIn("worker-1 exited with code 2", run.output())
        self.assertIn(said, run.output())
        self.assertIn(said, self.read_json("out/summary.json")["reason"])
        log = self.log("worker-1")
        self.assertIn("Traceback (most recent call last):", log)
        self.assertRegex(log, r'File ".*points.py", line \d+, in forward')
        self.assertIn(said, self.log("worker-0"))

    def test_processes_that_a_layer_starts_are_ended_by_sigterm(self):
        """By the main thread, which sets up, as by those of two devices, which compute."""
        self.write_net(batch=4, loss=PYTHON_LOSS.replace("Euclidean", "Parent"))
        with open(self.path("points.py"), "a", encoding="utf-8") as file:
            file.write(PARENT)
        run = self.start_run(
            self.config(workers=1, devices=2, iterations=2, training="batch_per_worker: 8")
        )
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())

    def test_a_module_that_is_not_there_is_said_before_anything_starts(self):
        self.write_net(batch=4)
        os.remove(self.path("points.py"))
        run = self.start_run(self.config(workers=2))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertIn(
            'layer "data" (Python): setup of points.Points: there is no module', run.output()
        )
        self.assertFalse(os.path.exists(self.path("out/logs/worker-0.log")))

    def plan(self, program="poseidon", **environment):
        """What planning says, in which no layer computes; and its exit code."""
        prefix = ["env", *(f"{name}={value}" for name, value in environment.items())]
        solver = f"--solver={self.path('solver.prototxt')}"
        plan = self.start(
            program,
            "plan",
            solver,
            "--workers=2",
            "--servers=1",
            prefix=prefix,
            name=f"plan-{len(self.processes)}",
        )
        return plan.wait(), plan.output()

    def test_a_module_may_be_in_pythonpath(self):
        self.write_net(batch=4)
        os.mkdir(self.path("modules"))
        os.rename(self.path("points.py"), self.path("modules/points.py"))
        self.assertEqual(self.plan()[0], cluster.CONFIG_ERROR)
        code, said = self.plan(PYTHONPATH=self.path("modules"))
        self.assertEqual(code, cluster.SUCCESS, said)

    def test_without_numpy_such_a_net_is_refused(self):
        self.write_net(batch=4)
        os.mkdir(self.path("modules"))
        self.write("modules/numpy.py", "raise ImportError('none here')")
        code, said = self.plan(PYTHONPATH=self.path("modules"))
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertRegex(said, r"Python layers need NumPy, .* \(none here\); .* python3-numpy")

    def test_without_the_library_such_a_net_is_refused(self):
        self.write_net(batch=4)
        os.mkdir(self.path("bin"))
        program = shutil.copy(os.path.join(cluster.programs(), "poseidon"), self.path("bin"))
        code, said = self.plan(program)
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertIn(
            'layer "data" (Python): setup of points.Points: this build has no Python', said
        )
        self.assertIn("install python3-dev and python3-numpy", said)
        # As where the library's own libraries are missing.
        self.write("bin/libposeidon_python.so", "")
        code, said = self.plan(program)
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertRegex(said, r"Python can't be loaded: .*; install the libpython")


if __name__ == "__main__":
    cluster.main()
