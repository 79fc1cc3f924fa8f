#!/usr/bin/env python3
"""The commands of docs/pytorch.md for one and for two machines, as they stand there. Needs root for the
namespaces that are the two machines."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import ranks
import timed_tests
from namespaces import two_machines

SKIPPED = 77
ADDRESSES = ["10.0.0.1", "10.0.0.2"]  # the page's
SECONDS = 300


def commands() -> list:
    """Of the page's first steps, in their order."""
    page = (ranks.ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
    section = page.split("## From nothing to two machines\n")[1].split("\n## ")[0]
    return re.findall(r"^    (torchrun .*)$", section, re.M)


class Commands(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "python").symlink_to(ranks.ROOT / "python")
        self.environment = {
            **os.environ,
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": scratch.name,
            "OMP_NUM_THREADS": "1",
        }

    def start(self, command, machine=None):
        words = command.split()
        return subprocess.Popen(
            ["ip", "netns", "exec", machine, *words] if machine else words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def expect(self, process, said):
        try:
            output = process.communicate(timeout=SECONDS)[0]
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, output)
        self.assertTrue(re.search(said, output), f"no {said} in:\n{output}")
        return output

    def test_on_one_machine(self):
        alone = [command for command in commands() if "--nnodes" not in command]
        self.assertEqual(len(alone), 4)
        digits, gpt, more_gpt, resnet = alone
        self.expect(self.start(digits), r"mlp, processes: 4, accuracy 0\.[89]\d+, .* images/s")
        self.expect(self.start(gpt), r"step 100/100  test loss [\d.]+ (.|\n)*GPT, processes: 2, ")
        output = self.expect(self.start(more_gpt), "GPT, processes: 2, test loss")
        self.assertNotIn("step 100/", output)  # it goes on from there
        self.assertIn("step 200/200", output)
        self.expect(self.start(resnet), r"ResNet-50, processes: 2, [\d.]+ images/s")

    def test_on_two_machines(self):
        both = [command for command in commands() if "--nnodes" in command]
        self.assertEqual(len(both), 2)
        machines = two_machines(self, ADDRESSES)
        processes = [self.start(command, machine) for command, machine in zip(both, machines)]
        try:
            self.expect(processes[0], "mlp, processes: 4, accuracy")
            self.assertNotIn("accuracy", self.expect(processes[1], ""))  # rank 0's is told once
        finally:
            for process in processes:
                process.kill()


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)
    timed_tests.main()
