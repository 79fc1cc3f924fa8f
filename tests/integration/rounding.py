"""What rounding does to a training, found in the same run: no constant says how far two trainings may
differ that take their sums in another order.

Such trainings differ in the last bits of their gradients. Max pooling and ReLU turn that now and then
into another maximum or sign, and a rule that divides by the root of a gradient's square into a whole
step; how far it goes depends on the processor's arithmetic. The same training, once more, with each of
its first values moved by one unit in the last place shows how far that is here.
"""

import os

import cluster

# A training that takes its sums otherwise rounds anew in every iteration, where a moved one is moved
# but once; a real mistake is far beyond (each test tries one).
ALLOWANCE = 10
# A loss is a sum of its own, of so many rounded terms: units in the last place of a float.
LOSS_ROUNDING = 16 * 2.0**-23


def largest_difference(losses, reference):
    """Of two trainings' losses in one iteration, relative to the mean of the reference's. Relative to that
    iteration's own it would be without bounds where a net has learnt its samples by heart, and a loss of
    0.1 comes between others of 0.001."""
    assert len(losses) == len(reference)
    mean = sum(map(abs, reference)) / len(reference)
    return max(abs(loss - of_reference) for loss, of_reference in zip(losses, reference)) / mean


class Rounding:
    """A reference training and what it comes to when its first values are moved.

    train(seed) trains and returns the losses by iteration; seed 0 moves nothing, each other one moves
    every first value by one unit in the last place, up or down as the seed says.
    """

    def __init__(self, train, moves=3):
        self.reference = train(0)
        differences = [
            largest_difference(train(seed), self.reference) for seed in range(1, 1 + moves)
        ]
        self.moved = max(differences)
        self.bound = ALLOWANCE * max(self.moved, LOSS_ROUNDING)

    def assert_same(self, test, losses):
        """`losses` differ from the reference's by no more than rounding does."""
        difference = largest_difference(losses, self.reference)
        test.assertLessEqual(
            difference,
            self.bound,
            f"the losses differ by {difference:.2g}, a moved training's by {self.moved:.2g}: "
            f"{losses} instead of {self.reference}",
        )

    def assert_differs(self, test, losses):
        """`losses` of a training with a mistake, of the first iterations at least, are beyond what rounding
        does."""
        reference = self.reference[: len(losses)]
        test.assertGreater(largest_difference(losses, reference), self.bound)


class MovedTraining:
    """Of a cluster.ClusterTest whose directory has a solver.prototxt."""

    def first_values(self, move):
        """A model for trainings to start from; and it with each value moved by one unit in the last place,
        as the seed `move` says, if that is not 0."""
        model = self.path("first_iter_1.caffemodel")
        if not os.path.exists(model):
            with open(self.path("solver.prototxt"), encoding="utf-8") as file:
                solver = file.read()
            first = self.write(
                "first.prototxt",
                solver
                + f"""
                snapshot: 1 snapshot_prefix: "{self.path("first")}" """,
            )
            self.run_job(
                f"""
                cluster {{ workers: 1 servers: 1 }}
                training {{
                  solver: "{first}" iterations: 1 seed: 3 threads: 1
                  shuffle: false  # recurrent nets are to say it
                }}"""
            )
        if move == 0:
            return model
        moved = self.path(f"first_moved_{move}.caffemodel")
        if not os.path.exists(moved):
            mover = self.start(
                "../tests/move_values",
                f"--from={model}",
                f"--to={moved}",
                f"--seed={move}",
                name=f"move-{move}",
            )
            self.assertEqual(mover.wait(), cluster.SUCCESS)
        return moved
