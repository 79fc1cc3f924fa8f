"""A worker that becomes slow while a net is trained gets a smaller part of the batch, until it is as fast
as before, and training is that of one worker with the whole batch all the same."""

import contextlib
import os
import re
import signal
import sys
import time

import cluster
import lenet
import rounding

WORKERS, SLOW, BATCH = 2, 1, 32
# As in equivalence_test.py: steps so small that a rounding does not grow into a difference.
SMALL_BASE_LR = "base_lr: 0.0003"
# Iterations with parts that a test has waited for: a mistake in them would be seen in the losses.
ITERATIONS_AFTER = 10
# Of the training with a mistake, which is seen in the first ones.
WITH_MISTAKE = 20

# Lets a process run for a moment now and then. Its stops become longer: on a busy machine the other workers
# are slow, too, and who was stopped is served first. With 0.4 s it is slower than these ever are, and its
# iterations, of some stops each, still end while the test waits for them.
SLOW_DOWN = """
import os, signal, sys, time
process, stop = int(sys.argv[1]), 0.05
while True:
    os.kill(process, signal.SIGSTOP)
    time.sleep(stop)
    os.kill(process, signal.SIGCONT)
    time.sleep(0.01)
    stop = min(0.4, 1.02 * stop)
"""

# The scheduler's decision, and from when on it counts; other lines may stand between them.
CHANGE = (
    r"these parts of the batch, by worker: (.*)\n(?:.*\n)*?another plan from iteration (\d+) on\n"
)


class BalancedTest(lenet.LenetTest):
    # One tells less than several of how far a smooth net's rounding goes: no larger bound than theirs.
    moves = 1

    def setUp(self):
        super().setUp()
        # One that is smooth: over hundreds of iterations some maximum or sign is always another one for a
        # rounding, and what that does to the losses is as rare in a moved training as it is large.
        self.copy(
            "net",
            ("out/digits", self.path("digits")),
            ("pool: MAX", "pool: AVE"),
            ('type: "ReLU"', 'type: "TanH"'),
        )
        no_tests = f"test_interval: {cluster.ENDLESS} test_initialization: false"
        self.copy_solver(("base_lr: .*", SMALL_BASE_LR), ("test_interval: .*", no_tests))

    def start_balanced(self, policy):
        """`poseidon run` of a job that does not end by itself, when it has begun."""
        run = self.start_run(
            f"""
            cluster {{ workers: {WORKERS} servers: 1 }}
            communication {{ policy: {policy} }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {cluster.ENDLESS}
              batch_per_worker: {BATCH} batch: BALANCED
              seed: 3 threads: 1 weights: "{self.first_values(0)}"
            }}"""
        )
        run.await_output(r"\niteration \d")
        return run

    @contextlib.contextmanager
    def slowed(self, process):
        slower = self.spawn("slower", [sys.executable, "-c", SLOW_DOWN, str(process)])
        try:
            yield
        finally:
            slower.signal(signal.SIGKILL)
            slower.wait()
            os.kill(process, signal.SIGCONT)

    def parts_in_turn(self, run):
        """Which parts the workers had, and from which iteration on."""
        changes = re.findall(CHANGE, run.output())
        return [(0, [BATCH] * WORKERS)] + [
            (int(start), [int(part) for part in parts.split(",")]) for parts, start in changes
        ]

    def await_part(self, run, least=1, most=WORKERS * BATCH):
        """Waits until the slow worker has so many samples, and all have trained with it."""
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while True:
            start, parts = self.parts_in_turn(run)[-1]
            done = int(re.findall(r"\niteration (\d+)/", run.output())[-1])
            if least <= parts[SLOW] <= most and done >= start + ITERATIONS_AFTER:
                return
            self.assertLess(time.monotonic(), deadline, f"{parts} from iteration {start} on")
            time.sleep(0.05)

    def check_training(self, run):
        """Ends the job and holds it against one worker with the whole batch."""
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assert_nothing_left()
        summary = self.read_json("out/summary.json")
        iterations = summary["iterations"]
        self.assert_same_parameters(summary, WORKERS)

        turns = self.parts_in_turn(run)
        ends = [start for start, _ in turns[1:]] + [iterations]
        images = [0] * WORKERS
        for (start, parts), end in zip(turns, ends):
            self.assertEqual(sum(parts), WORKERS * BATCH)
            images = [seen + part * (end - start) for seen, part in zip(images, parts)]
        self.assertEqual([worker["images"] for worker in summary["workers"]], images)

        def losses_of_one(batch, move, iterations=iterations):
            return self.train("", workers=1, batch=batch, iterations=iterations, move=move)["loss"]

        alone = rounding.Rounding(lambda move: losses_of_one(WORKERS * BATCH, move), self.moves)
        self.assertLess(alone.reference[-1], 0.95 * alone.reference[0], "it learns nothing")
        alone.assert_same(self, summary["loss"])
        # A sample too few in each batch: a mistake.
        alone.assert_differs(self, losses_of_one(WORKERS * BATCH - 1, 0, WITH_MISTAKE))

    def check_slow_worker(self, policy):
        run = self.start_balanced(policy)
        with self.slowed(self.pid_of("worker", SLOW)):
            # What a busy machine alone does to equal workers is less.
            self.await_part(run, most=BATCH // 2)
        # Not at once: with few samples it seems slower than it is, and gets more step by step.
        self.await_part(run, least=BATCH // 2)
        self.check_training(run)

    def test_a_worker_that_becomes_slow_has_a_smaller_part_as_long_as_it_is(self):
        self.check_slow_worker("BYTES")

    def test_an_iteration_of_several_passes_has_as_many_batches(self):
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as solver:
            solver.write("iter_size: 3\n")
        summary = self.train("", workers=2, batch=8, iterations=4, training="batch: BALANCED")
        self.assertEqual([worker["images"] for worker in summary["workers"]], [8 * 3 * 4] * 2)

    @cluster.slow
    def test_other_policies(self):
        # The iterations are as many as a busy machine lets the job do, and the more there are the more
        # depends on whether a moved training meets another maximum.
        self.moves = 3
        for policy in ("ALL_RING", "TIME"):
            with self.subTest(policy):
                self.check_slow_worker(policy)


if __name__ == "__main__":
    cluster.main()
