#!/usr/bin/env python3
"""The wheel, built by tools/wheel and installed into a bare environment away from the source tree, has
all it needs beside a PyTorch: libraries, programs, the command."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import unittest

import ranks
import timed_tests

TRAINING = """
import sys
{imports}
import torch
torch.set_num_threads(1)
poseidon_torch.init({start})
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = poseidon_torch.distribute(model, optimizer, update="{update}")
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
poseidon_torch.shutdown()
print("trained with", poseidon_torch.__file__)
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([ranks.ROOT / "tools/wheel"], check=True, cwd=ranks.ROOT)
        (wheel,) = (ranks.ROOT / "out/wheel").glob("*.whl")
        scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.environment = cls.folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", cls.environment], check=True)
        cls.python = cls.environment / "bin/python"
        pip = [cls.python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-index", wheel], check=True)
        # A PyTorch beside it: this one's.
        site_packages = next(cls.environment.glob("lib/python3*/site-packages"))
        (site_packages / "torch.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def test_two_ranks_train_whatever_is_imported_first(self):
        for number, imports in enumerate(
            ("import torch, poseidon_torch", "import poseidon_torch, torch")
        ):
            program = self.folder / f"training-{number}.py"
            program.write_text(
                TRAINING.format(imports=imports, start="out=sys.argv[1]", update="worker")
            )
            port = ranks.free_port()
            processes = []
            for rank in range(2):
                environment = ranks.environment_of(rank, 2, port)
                del environment["PYTHONPATH"]
                processes.append(
                    subprocess.Popen(
                        [self.python, program, self.folder / f"out-{number}"],
                        env=environment,
                        cwd=self.folder,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                )
            for process in processes:
                said = process.communicate(timeout=60)[0]
                self.assertEqual(process.returncode, 0, said)
                self.assertIn(f"trained with {self.environment}", said)

    def test_the_command_starts_a_program(self):
        program = self.folder / "started.py"
        program.write_text(
            TRAINING.format(imports="import poseidon_torch", start="", update="server")
        )
        (self.folder / "job.prototxt").write_text(
            """name: "wheel" cluster { workers: 2 servers: 1 }
            communication { policy: ALL_PS update_at: SERVERS }"""
        )
        command = [self.environment / "bin/poseidon", "run", "--config=job.prototxt"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [*command, "--", self.python, program],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=ranks.PATIENCE,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in range(2):
            said = (self.folder / f"out/wheel/logs/worker-{rank}.log").read_text()
            self.assertIn(f"trained with {self.environment}", said)

    def test_the_command(self):
        command = self.environment / "bin/poseidon"
        done = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
        self.assertRegex(done.stdout, r"^poseidon \d+\.\d+\.\d+\+[0-9a-f]{12}\n$")

    def test_nothing_of_this_machine_is_needed(self):
        package = next(self.environment.glob("lib/python3*/site-packages/poseidon_torch"))
        for path in [*package.glob("lib/*.so*"), *package.glob("bin/*")]:
            needed = subprocess.run(
                ["ldd", path], check=True, capture_output=True, text=True
            ).stdout
            self.assertNotIn("not found", needed, path)
            self.assertNotIn(str(ranks.ROOT), needed, path)
            for name in ("libprotobuf", "libzmq", "libglog"):
                line = next((line for line in needed.splitlines() if name in line), "")
                if line:
                    self.assertIn("poseidon_torch.libs", line)


if __name__ == "__main__":
    timed_tests.main()
