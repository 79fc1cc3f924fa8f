"""`poseidon run --hosts` over a real ssh, to an sshd that listens on addresses of this machine."""

import glob
import os
import re
import signal
import time

import remote
from remote import cluster


class SshdTest(remote.HostsTest):
    """Hosts are loopback addresses at which one sshd listens."""

    ADDRESSES = ("127.0.0.2", "127.0.0.3")

    def setUp(self):
        super().setUp()
        self.ssh = remote.Sshd(self, cluster.free_port_pair())
        self.sshd = self.ssh.start(self.ADDRESSES)
        self.shell = self.ssh.shell()
        self.write("hosts", "".join(f"{host}\n" for host in self.ADDRESSES))

    def train(self, config):
        run = self.start_on_hosts(config)
        run.await_output("iteration ")
        return run

    def endless(self):
        return cluster.replay_config(iterations=cluster.ENDLESS)

    def hang_up(self, name):
        """Kills the ssh that a daemon is started by: its connection is gone, and it lives on."""
        role, _, rank = name.partition("-")
        for pid, command in self.ssh.clients():
            if f"poseidon_{role}" in command and f"--rank={rank}" in command:
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError(f"no ssh to {name}: {self.ssh.clients()}")

    def test_trains_and_ends_with_a_connection(self):
        run = self.train(self.endless())
        self.hang_up("worker-1")
        self.assertEqual(run.wait(), cluster.PEER_LOST, run.output())
        self.assertIn("worker-1 on 127.0.0.3 was killed by signal 9 (SIGKILL)", run.output())
        self.assert_nothing_there(cluster.PATIENCE)

    @cluster.slow
    def test_trains_to_the_end(self):
        run = self.start_on_hosts(cluster.replay_config(training="trace: true"))
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertTrue(self.read_json("out/worker-1.trace.json"))
        self.assert_nothing_there()

    @cluster.slow
    def test_connections_are_not_shared(self):
        """In a shared one the options of whoever was the first are those of all."""
        with open(self.ssh.client, "a", encoding="utf-8") as file:
            file.write(
                f"  ControlMaster auto\n  ControlPath {self.path('shared')}-%h\n  ControlPersist 60\n"
            )
        self.shell = None
        run = self.start_on_hosts(cluster.replay_config(), prefix=self.ssh.default_shell())
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertEqual(glob.glob(self.path("shared-*")), [])
        self.assert_nothing_there()

    @cluster.slow
    def test_interruption(self):
        run = self.train(self.endless())
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assert_nothing_there()

    @cluster.slow
    def test_all_ends_with_the_command(self):
        run = self.train(self.endless())
        run.signal(signal.SIGKILL)
        run.wait()
        self.assert_nothing_there(cluster.PATIENCE)

    @cluster.slow
    def test_a_connection_that_is_lost_is_made_again(self):
        run = self.train(self.endless() + "recovery { mode: REPLACE }")
        for pid in self.session_of("worker-1"):
            os.kill(pid, signal.SIGKILL)
        run.await_output("worker-1 on 127.0.0.3 has lost its connection.*; it is started again")
        run.await_output("lost worker 1 .*\n(.*\n)*iteration ")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assert_nothing_there(cluster.PATIENCE)

    def session_of(self, name):
        """The sshd that serves a daemon's connection."""
        pid = self.pid_there(name)
        while True:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().strip().startswith("sshd"):
                    return [pid]

    @cluster.slow
    def test_a_server_that_ends(self):
        """A host that has gone: connections break, and new ones are refused."""
        run = self.train(self.endless())
        self.sshd.signal(signal.SIGKILL)
        for pid in self.session_of("worker-0") + self.session_of("worker-1"):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(run.wait(), cluster.PEER_LOST, run.output())
        self.assertRegex(run.output(), r"worker-\d on 127.0.0.\d has lost its connection")
        self.assert_nothing_there(cluster.PATIENCE)
        run = self.start_on_hosts(self.endless())
        self.assertEqual(run.wait(), 1)
        self.assertRegex(run.output(), "127.0.0.2 can't be reached: .*Connection refused")

    @cluster.slow
    def test_many_slots(self):
        """More connections at once than sshd admits (MaxStartups)."""
        self.write("hosts", "127.0.0.2 slots=12\n")
        run = self.start_on_hosts(cluster.replay_config(workers=12, servers=12, iterations=5))
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assert_nothing_there()


class MachinesTest(remote.NamespacesTest):
    """Hosts are network namespaces, each with an sshd of its own."""

    def setUp(self):
        super().setUp()
        self.ssh = remote.Sshd(self, 22)
        for name, address in zip(self.names[1:], self.addresses):
            self.ssh.start([address], self.enter(name))
        self.shell = self.ssh.shell()
        self.write("hosts", "".join(f"{address}\n" for address in self.addresses))

    @cluster.slow
    def test_as_the_page_says(self):
        """docs/deploy.md: the doctor, then the job."""
        config = os.path.join(cluster.REPOSITORY, "configs", "lenet_digits.prototxt")
        self.write("hosts", "".join(f"{address} slots=2\n" for address in self.addresses))
        data = self.path("digits")
        made = self.start(
            *("poseidon", "convert", "csv", "--source=configs/data/digits.csv", f"--out={data}"),
            *("--max_value=16", "--scale_height=28", "--scale_width=28", "--train_records=1500"),
        )
        self.assertEqual(made.wait(), cluster.SUCCESS, made.output())
        models = os.path.join(cluster.REPOSITORY, "configs", "models", "lenet")
        with open(os.path.join(models, "net.prototxt"), encoding="utf-8") as file:
            net = self.write("net.prototxt", file.read().replace("out/digits", data))
        with open(os.path.join(models, "solver.prototxt"), encoding="utf-8") as file:
            text = re.sub('net: ".*"', f'net: "{net}"', file.read())
        solver = self.write("solver.prototxt", text)
        with open(config, encoding="utf-8") as file:
            job = re.sub('solver: ".*"', f'solver: "{solver}"', file.read())
        path = self.write("config.prototxt", job)
        flags = (f"--config={path}", f"--hosts={self.hosts}", f"--remote_shell={self.shell}")
        doctor = self.start("poseidon", "doctor", *flags, prefix=self.enter_home())
        self.assertEqual(doctor.wait(), cluster.SUCCESS, doctor.output())
        self.assertRegex(doctor.output(), "(?m)^good +data +can be read on all 2 hosts")
        if not cluster.has_torch():
            self.skipTest("this build can't train nets")
        run = self.start_on_hosts(job)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertGreater(self.read_json("out/summary.json")["test_accuracy"], 0.9)
        self.assert_nothing_there()

    @cluster.slow
    def test_a_host_that_is_cut_off(self):
        """Nobody is told: connections are silent."""
        run = self.start_on_hosts(cluster.replay_config(iterations=cluster.ENDLESS))
        run.await_output("iteration ")
        self.cut(2)
        self.assertEqual(run.wait(), cluster.PEER_LOST, run.output())
        self.assertRegex(
            run.output(), f"worker-1 on {self.addresses[1]} has lost its connection|lost "
        )
        self.assert_nothing_there(cluster.END_TIME + cluster.ENDING)
        run = self.start_on_hosts(cluster.replay_config(iterations=cluster.ENDLESS))
        self.assertEqual(run.wait(), 1)
        self.assertRegex(run.output(), f"{self.addresses[1]} can't be reached: ")

    def start_by_default_shell(self):
        self.shell = None
        config = cluster.replay_config(iterations=cluster.ENDLESS) + "recovery { mode: REPLACE }"
        run = self.start_on_hosts(config, prefix=self.ssh.default_shell())
        run.await_output("iteration ")
        return run

    def end(self, run):
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assert_nothing_there(cluster.PATIENCE)

    @cluster.slow
    def test_a_network_that_fails_for_longer_than_a_connection_waits_otherwise(self):
        """Nobody has died, and the job goes on with the same processes."""
        run = self.start_by_default_shell()
        names = ("server-0", "server-1", "worker-0", "worker-1")
        before = [self.pid_there(name) for name in names]
        for number in (1, 2):
            self.cut(number)
        run.await_output("no other machine has been heard for", cluster.END_TIME)
        time.sleep(30)  # twice what a silent connection is waited for without recovery
        for number in (1, 2):
            self.mend(number)
        run.await_output("the scheduler was cut off from .*\n(.*\n)*iteration ")
        self.assertEqual([self.pid_there(name) for name in names], before)
        self.assertNotIn("started again", run.output())
        self.end(run)

    @cluster.slow
    def test_a_host_that_is_beyond_reach_for_a_while(self):
        """The others are heard, so it is given up. When it is back it gets other processes."""
        run = self.start_by_default_shell()
        before = self.pid_there("worker-1")
        self.cut(2)
        run.await_output(
            f"worker-1 on {self.addresses[1]} has been given up by the scheduler .* it is killed"
        )
        self.mend(2)
        run.await_output("goes on from iteration .*\n(.*\n)*iteration ")
        deadline = time.monotonic() + cluster.PATIENCE
        while self.pid_there("worker-1") == before:  # until it hears that it was given up
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.end(run)


if __name__ == "__main__":
    cluster.main()
