"""A job in containers of the image of deploy/container, as docs/deploy.md starts it. Slow; the image must be there."""

import os
import shutil
import subprocess
import unittest

from remote import cluster

USER = 10001
IMAGE = "poseidon"
CONFIG = """
name: "digits"
cluster { workers: 2 servers: 1 scheduler_host: "scheduler" }
security { key_file: "keys/job.key" }
training { solver: "/usr/share/poseidon/configs/models/lenet/solver.prototxt" threads: 1 }
"""
NODES = {"scheduler": "scheduler", "server0": "server", "worker0": "worker", "worker1": "worker"}


def podman(*words, check=True):
    return subprocess.run(["podman", *words], check=check, capture_output=True, text=True)


class ContainerTest(cluster.ClusterTest):
    def setUp(self):
        if shutil.which("podman") is None or os.geteuid() != 0:
            raise unittest.SkipTest("there is no podman, Debian's package of that name, or no root")
        if podman("image", "exists", IMAGE, check=False).returncode != 0:
            raise unittest.SkipTest(
                f"there is no image {IMAGE}: buildah build -t {IMAGE} -f deploy/container/Containerfile ."
            )
        super().setUp()
        self.network = f"poseidon-test-{os.getpid()}"
        podman("network", "create", self.network)
        self.addCleanup(podman, "network", "rm", "--force", self.network)

    def run_container(self, name, *words):
        container = f"{self.network}-{name}"
        self.addCleanup(podman, "rm", "--force", "--ignore", container)
        return self.spawn(
            name,
            [
                *("podman", "run", "--rm", f"--name={container}", f"--network={self.network}"),
                *(f"--network-alias={name}", f"--volume={self.path('job')}:/work", IMAGE, *words),
            ],
        )

    @cluster.slow
    def test_a_job_with_a_key_trains(self):
        os.mkdir(self.path("job"))
        os.chmod(self.directory, 0o755)
        made = self.start("poseidon", "keys", f"--out={self.path('job/keys')}")
        self.assertEqual(made.wait(), cluster.SUCCESS)
        self.write("job/job.prototxt", CONFIG)
        for folder, _, files in os.walk(self.path("job")):
            for name in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(name, USER, USER)
        data = self.run_container(
            *("data", "poseidon", "convert", "csv", "--out=out/digits"),
            *("--source=/usr/share/poseidon/configs/data/digits.csv", "--max_value=16"),
            *("--scale_height=28", "--scale_width=28", "--train_records=1500"),
        )
        self.assertEqual(data.wait(), cluster.SUCCESS)
        containers = {}
        for name, role in NODES.items():
            words = [f"poseidon_{role}", "--config=job.prototxt"]
            if role == "scheduler":
                words.append("--out=results")
            else:
                words.append(f"--rank={name[-1]}")
            containers[name] = self.run_container(name, *words)
            if role == "scheduler":
                containers[name].await_output("waiting for 2 worker")
        for name, container in containers.items():
            self.assertEqual(container.wait(), cluster.SUCCESS, name)
        summary = self.read_json("job/results/summary.json")
        self.assertGreater(summary["test_accuracy"], 0.95)
        self.assert_same_parameters(summary, 2)


if __name__ == "__main__":
    cluster.main()
