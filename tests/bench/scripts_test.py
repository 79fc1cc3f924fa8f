"""What benchmarks in Python make of what they have measured."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "network"))
import all_reduce  # pylint: disable=wrong-import-position
import caffe_compare  # pylint: disable=wrong-import-position

ITERATIONS = 4


def log_of(lines):
    """lines: (second, text)."""
    return "".join(
        f"I20261129 10:00:{second:09.6f}  4242 solver.cpp:239] {text}\n" for second, text in lines
    )


def stock_log(seconds):
    """Of BVLC Caffe with display: 1 and an iteration more than are counted, each of so many seconds:
    it says the loss before the update, then the rate of learning, and after the last update it
    computes one more loss, in a third of an iteration."""
    lines = []
    for number in range(ITERATIONS + 1):
        end = seconds * (number + 1)
        speed = f"({1 / seconds:.4g} iter/s, {seconds}s/1 iters)"
        lines.append((end, f"Iteration {number} {speed}, loss = 2.3"))
        lines.append((end, "    Train net output #0: loss = 2.3 (* 1 = 2.3 loss)"))
        lines.append((end + 0.1 * seconds, f"Iteration {number}, lr = 0.01"))
    end = seconds * (ITERATIONS + 1 + 1 / 3)
    return log_of([*lines, (end, f"Iteration {ITERATIONS + 1}, loss = 2.2")])


def our_log(seconds):
    """Of our worker."""
    return log_of(
        (seconds * (number + 1), f"Iteration {number}, loss = 2.3")
        for number in range(ITERATIONS + 1)
    )


class CaffeCompare(unittest.TestCase):
    """tests/bench/caffe_compare.py."""

    def test_a_rate_is_of_whole_iterations(self):
        for log in (stock_log(0.5), our_log(0.5)):
            self.assertAlmostEqual(caffe_compare.rate(log, 64, ITERATIONS), 64 / 0.5)

    def test_a_ratio_is_of_whole_iterations(self):
        self.assertAlmostEqual(
            caffe_compare.ratio_of(our_log(0.5), stock_log(1), ITERATIONS), 2, delta=1e-6
        )


class AllReduce(unittest.TestCase):
    """tests/bench/network/all_reduce.py."""

    def test_few_values_have_no_percentiles(self):
        """What would be called the 99th of them is the greatest."""
        self.assertEqual(all_reduce.tail(range(1, 9), digits=0), "8 (max of 8)")
        self.assertEqual(all_reduce.tail(range(1, 100)), "99.00 (max of 99)")
        self.assertEqual(all_reduce.tail(range(1, 201)), "199.00")
        sample = all_reduce.Samples(1024)
        sample.add([0.003, 0.001, 0.002, 0.004], 0)
        self.assertEqual(sample.milliseconds, ["1.00", "2.50", "4.00 (max of 4)"])

    def test_the_automatic_choice_is_measured_in_every_round(self):
        """As the table shows it and compares others with it, however slow it was at first."""
        samples = {}
        for algorithm, seconds in (("automatic", 3), ("ring", 1), ("halving_doubling", 2)):
            sample = samples["Poseidon", algorithm, 1024] = all_reduce.Samples(1024)
            sample.add([seconds], 0)
        hopeful = [
            algorithm
            for algorithm in all_reduce.POSEIDON
            if all_reduce.hopeful(samples, "Poseidon", algorithm, 1024)
        ]
        self.assertEqual(hopeful, ["automatic", "ring"])


if __name__ == "__main__":
    unittest.main()
