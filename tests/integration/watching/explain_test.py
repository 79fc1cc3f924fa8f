"""`poseidon explain` names each cause of a job's end rightly, ten times of ten. What needs root (a network
that is cut, a disk that hangs or is full, memory that runs out) is skipped with its reason without it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import cluster
import lenet
from stall_test import frozen_thread

sys.path.append(os.path.join(cluster.REPOSITORY, "tests", "bench", "network"))
import testbed  # noqa: E402  pylint: disable=wrong-import-position

# Of each case, as one that is right most of the time is of little use.
RUNS = 10

NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")
# As in a job by default, longer than cluster.HEARTBEAT_DEADLINE: else who is dead or cut off would be found
# waited for first, at times.
STALL_DEADLINE = 4

# Hierarchies of control groups: where the memory of processes can be limited, by which file.
GROUPS = (
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
)


def endless(cluster_fields=""):
    return cluster.replay_config(
        workers=3,
        servers=2,
        iterations=cluster.ENDLESS,
        cluster=f"scheduler_port: {cluster.free_port_pair()} {cluster_fields}",
        communication=f"policy: ALL_PS stall_deadline_seconds: {cluster.scaled(STALL_DEADLINE)}",
    )


def as_root(test, *command):
    """Runs a command that root may, or skips the test with what it said."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        test.skipTest(f"needs {' '.join(command[:2])}: {done.stderr.strip()}")
    return done.stdout.strip()


class RepeatedTest(cluster.ClusterTest):
    def each_time(self):
        """Yields RUNS times, each with nothing left of the one before."""
        for number in range(RUNS):
            with self.subTest(run=number):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                yield
                self._end_all()


class DaemonsTest(RepeatedTest):
    def end_of(self, daemons, *without):
        for name, daemon in daemons.items():
            if name not in without:
                self.assertNotEqual(daemon.wait(cluster.END_TIME + STALL_DEADLINE), 0, name)

    def check_signal(self, number, cause):
        for victim in ("worker-1", "server-1", "scheduler"):
            for _ in self.each_time():
                daemons = self.start_training(endless(), NODES)
                daemons[victim].signal(number)
                self.end_of(daemons, victim)
                self.assert_explained(cause, victim)

    @cluster.slow
    def test_killed(self):
        self.check_signal(signal.SIGKILL, "killed")

    @cluster.slow
    def test_stopped(self):
        self.check_signal(signal.SIGSTOP, "stopped process")

    @cluster.slow
    def test_slow_worker(self):
        for _ in self.each_time():
            daemons = self.start_training(endless(), NODES)
            with frozen_thread(self, daemons["worker-2"].pid, "poseidon_worker"):
                self.end_of(daemons, "worker-2")
            self.assertEqual(daemons["worker-2"].wait(), cluster.DEADLINE_EXCEEDED)
            self.assert_explained("slow worker", "worker-2")

    @cluster.slow
    def test_out_of_memory(self):
        root, limit = next(
            (group for group in GROUPS if os.path.exists(f"{group[0]}/cgroup.procs")), (None, None)
        )
        if os.geteuid() != 0 or root is None:
            self.skipTest("needs root and control groups")
        for _ in self.each_time():
            daemons = self.start_training(endless(), NODES)
            group = f"{root}/{os.path.basename(self.directory)}"
            os.mkdir(group)
            self.addCleanup(lambda path=group: os.path.isdir(path) and os.rmdir(path))
            if not os.path.exists(f"{group}/{limit}"):
                self.skipTest(f"control groups here have no {limit}")
            for name, text in ((limit, "4096"), ("cgroup.procs", str(daemons["worker-1"].pid))):
                with open(f"{group}/{name}", "w", encoding="ascii") as file:
                    file.write(text)
            self.assertEqual(daemons["worker-1"].wait(), -signal.SIGKILL)
            self.end_of(daemons, "worker-1")
            self.assert_explained("out of memory", "worker-1")
            os.rmdir(group)


class CutTest(RepeatedTest):
    """Each node is a network namespace; the cable of one is pulled out for good."""

    PLACES = {
        "scheduler": 0,
        "server-0": 0,
        "worker-0": 0,
        "worker-1": 1,
        "worker-2": 2,
        "server-1": 2,
    }

    def start_on(self, bed):
        host = f'scheduler_host: "{bed.addresses[0]}"'
        config = self.write("config.prototxt", endless(host) + testbed.OPEN)
        daemons = {}
        for name, node in self.PLACES.items():
            role, _, rank = name.partition("-")
            flags = (f"--rank={rank}", f"--host={bed.addresses[node]}") if rank else ()
            daemons[name] = self.start(
                f"poseidon_{role}",
                f"--config={config}",
                f"--out={self.path('out')}",
                *flags,
                name=name,
                prefix=("ip", "netns", "exec", bed.namespace(node)),
            )
        daemons["scheduler"].await_output("iteration ")
        return daemons

    @cluster.slow
    def test_network_cut(self):
        bed = testbed.Testbed(3)
        try:
            self.enterContext(bed)
        except testbed.Unavailable as reason:
            self.skipTest(reason)

        def plug(state):
            switch = bed.namespace("switch")
            subprocess.run(["ip", "-n", switch, "link", "set", "port1", state], check=True)

        for _ in self.each_time():
            plug("up")
            daemons = self.start_on(bed)
            plug("down")
            for name, daemon in daemons.items():
                self.assertEqual(daemon.wait(), cluster.PEER_LOST, name)
            self.assert_explained("network cut", "worker-1")
            # On hosts that share no disk what it has seen itself is missing.
            os.remove(self.path("out/worker-1.events.json"))
            self.assert_explained("network cut", "worker-1")


class DiskTest(RepeatedTest, lenet.LenetTest):
    """A LeNet that writes snapshots."""

    def config(self):
        return f"""
            cluster {{ workers: 2 servers: 2 }}
            communication {{
              policy: ALL_PS stall_deadline_seconds: {cluster.scaled(STALL_DEADLINE)}
              heartbeat_interval_seconds: {cluster.scaled(cluster.HEARTBEAT_INTERVAL)}
              heartbeat_deadline_seconds: {cluster.scaled(cluster.HEARTBEAT_DEADLINE)}
            }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {cluster.ENDLESS}
              batch_per_worker: 16 seed: 3 threads: 1
            }}"""

    def with_snapshots(self):
        self.copy_solver()
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write(f'\nsnapshot: 10 snapshot_prefix: "{self.path("snapshots")}/lenet"\n')

    @contextlib.contextmanager
    def mounted(self, *what):
        directory = self.path("snapshots")
        os.makedirs(directory, exist_ok=True)
        as_root(self, "mount", *what, directory)
        try:
            yield directory
        finally:
            self._end_all()
            subprocess.run(["umount", directory], check=True)

    @cluster.slow
    def test_full_disk(self):
        self.with_snapshots()
        for _ in self.each_time():
            with self.mounted("-t", "tmpfs", "-o", "size=5m", "tmpfs"):
                self.assertNotEqual(self.start_run(self.config()).wait(), cluster.SUCCESS)
                self.assert_explained("full disk", "worker-0")

    @cluster.slow
    def test_slow_disk(self):
        """A disk that takes nothing for a while, as one does that is broken or far away."""
        self.with_snapshots()
        image = self.path("disk.img")
        for _ in self.each_time():
            as_root(self, "truncate", "--size=64M", image)
            as_root(self, "mkfs.ext4", "-q", "-F", image)
            with self.mounted("-o", "loop", image) as directory:
                run = self.start_run(self.config())
                run.await_output("wrote the snapshot")
                subprocess.run(["fsfreeze", "--freeze", directory], check=True)
                try:
                    time.sleep(cluster.scaled(2 * STALL_DEADLINE + cluster.ENDING))
                finally:
                    subprocess.run(["fsfreeze", "--unfreeze", directory], check=True)
                self.assertEqual(run.wait(), cluster.DEADLINE_EXCEEDED)
                self.assert_explained("slow disk", "worker-0")

    @cluster.slow
    def test_diverged(self):
        self.copy_solver((r"base_lr: .*", "base_lr: 1e30"))
        for _ in self.each_time():
            run = self.start_run(self.config())
            self.assertNotEqual(run.wait(), cluster.SUCCESS)
            # Both may have seen it; whoever the scheduler heard first is in the summary.
            culprit = re.search(r"worker (\d)", self.read_json("out/summary.json")["reason"])[1]
            self.assert_explained("diverged", "worker-" + culprit)


if __name__ == "__main__":
    cluster.main()
