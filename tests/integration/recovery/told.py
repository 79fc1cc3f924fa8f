"""What the workers of a job have told of its iterations."""

import re


def untold_iterations(summary, undisturbed):
    """Those that a lost worker had done and not told of yet. Whoever takes its place does not tell of them:
    their means are the others', which have fewer samples than those of a job that nothing happened to.
    """
    samples = zip(summary["images"], undisturbed["images"])
    return {iteration for iteration, (told, done) in enumerate(samples) if (told or 0) < done}


def tests_of(said):
    """The lines of all tests in what a scheduler has said."""
    return re.findall(r"test at iteration \d+:.*", said)
