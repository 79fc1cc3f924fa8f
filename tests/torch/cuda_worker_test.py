"""The worker with CUDA and the libtorch of a PyTorch that has CUDA, as tools/test-gpu builds it on a machine with a
GPU: that it links, computes what Caffe does and trains, on the CPU. Skipped where there is no nvcc."""

import os
import shutil
import subprocess
import sys
import unittest

import timed_tests

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class CudaWorker(unittest.TestCase):
    def setUp(self):
        if shutil.which("nvcc") is None:
            raise unittest.SkipTest("there is no nvcc on the PATH")
        # tools/test-gpu asks python3 for its torch.
        self.environment = dict(os.environ)
        self.environment["PATH"] = os.pathsep.join(
            (os.path.dirname(sys.executable), os.environ["PATH"])
        )

    def run_here(self, *command):
        subprocess.run(command, check=True, cwd=REPOSITORY, env=self.environment)

    def test_it_links_and_trains_on_the_cpu(self):
        self.run_here("tools/test-gpu", "--torch", "build", "tests")
        # CUDA's libraries, as tools/test-gpu has programs find them.
        folders = [os.path.join(path, "nvidia") for path in sys.path]
        libraries = [
            os.path.join(folder, name, "lib")
            for folder in folders
            if os.path.isdir(folder)
            for name in os.listdir(folder)
        ]
        self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        self.run_here(
            *(sys.executable, "tests/gpu/training_test.py", "--bin=build-gpu/bin", "--torch"),
            *("--device=CPU", "TrainingTest.test_lenet_by_every_scheme"),
        )


if __name__ == "__main__":
    timed_tests.main()
