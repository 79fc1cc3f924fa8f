"""A job in containers of the image of deploy/container, as docs/deploy.md starts it. Slow; the image must be there."""

import json
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
# In the order of their start: the scheduler's name is known last.
NODES = {"server0": "server", "worker0": "worker", "worker1": "worker", "scheduler": "scheduler"}


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

    def name_of(self, name):
        return f"{self.network}-{name}"

    def run_container(self, name, *words, options=()):
        container = self.name_of(name)
        self.addCleanup(podman, "rm", "--force", "--ignore", container)
        return self.spawn(
            name,
            [
                *("podman", "run", f"--name={container}", f"--network={self.network}", *options),
                *(f"--network-alias={name}", f"--volume={self.path('job')}:/work", IMAGE, *words),
            ],
        )

    def start_job(self, config):
        """The job's containers, by the names of its nodes."""
        os.mkdir(self.path("job"))
        os.chmod(self.directory, 0o755)
        self.write("job/job.prototxt", config)
        keys = f"poseidon keys --out=keys && chown -R {USER} ."
        made = self.run_container("keys", "sh", "-c", keys, options=("--user=0",))
        self.assertEqual(made.wait(), cluster.SUCCESS)
        data = self.run_container(
            *("data", "poseidon", "convert", "csv", "--out=out/digits"),
            *("--source=/usr/share/poseidon/configs/data/digits.csv", "--max_value=16"),
            *("--scale_height=28", "--scale_width=28", "--train_records=1500"),
        )
        self.assertEqual(data.wait(), cluster.SUCCESS)
        containers = {}
        for name, role in NODES.items():
            own = "--out=results" if role == "scheduler" else f"--rank={name[-1]}"
            containers[name] = self.run_container(
                name, f"poseidon_{role}", "--config=job.prototxt", own
            )
            if role != "scheduler":
                containers[name].await_output('resolve cluster.scheduler_host "scheduler"')
        return containers

    def address_of(self, name):
        container = json.loads(podman("inspect", self.name_of(name)).stdout)[0]
        return container["NetworkSettings"]["Networks"][self.network]["IPAddress"]

    def take(self, address):
        """So that the container which had it gets another one when it is started again."""
        other = self.name_of(address)
        self.addCleanup(podman, "rm", "--force", "--ignore", other)
        place = (f"--network={self.network}", f"--ip={address}")
        podman("run", "--detach", f"--name={other}", *place, IMAGE, "sleep", "infinity")

    @cluster.slow
    def test_a_job_with_a_key_trains(self):
        containers = self.start_job(CONFIG)
        for name, container in containers.items():
            self.assertEqual(container.wait(), cluster.SUCCESS, name)
        summary = self.read_json("job/results/summary.json")
        self.assertGreater(summary["test_accuracy"], 0.95)
        self.assert_same_parameters(summary, 2)

    @cluster.slow
    def test_containers_that_are_started_again(self):
        job = CONFIG.replace("threads: 1", f"threads: 1 iterations: {cluster.ENDLESS}")
        containers = self.start_job(job + "recovery { mode: REPLACE }")
        containers["scheduler"].await_output("iteration ")
        for name, again in (
            ("worker1", "goes on from iteration .*\n(.*\n)*iteration "),
            ("scheduler", "training went on without a scheduler\n(.*\n)*iteration "),
        ):
            address = self.address_of(name)
            podman("kill", self.name_of(name))
            containers[name].wait()
            self.take(address)
            words = ["podman", "start", "--attach", self.name_of(name)]
            containers[name] = self.spawn(f"{name}-again", words)
            containers["scheduler"].await_output(again)
            self.assertNotEqual(self.address_of(name), address)
        podman("kill", "--signal=TERM", self.name_of("scheduler"))
        for name, container in containers.items():
            self.assertEqual(container.wait(), cluster.INTERRUPTED, name)


if __name__ == "__main__":
    cluster.main()
