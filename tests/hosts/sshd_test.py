"""`poseidon run --hosts` over a real ssh, to an sshd that listens on addresses of this machine."""

import os
import signal

import remote
from remote import cluster


class SshdTest(remote.SshTest):
    def train(self, config):
        run = self.start_on_hosts(config)
        run.await_output("iteration ")
        return run

    def endless(self):
        return cluster.replay_config(iterations=cluster.ENDLESS)

    def hang_up(self, name):
        """Kills the ssh that a daemon is started by: its connection is gone, and it lives on."""
        role, _, rank = name.partition("-")
        for pid, command in self.ssh_clients():
            if f"poseidon_{role}" in command and f"--rank={rank}" in command:
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError(f"no ssh to {name}: {self.ssh_clients()}")

    def test_trains_and_ends_with_a_connection(self):
        run = self.train(self.endless())
        self.hang_up("worker-1")
        self.assertEqual(run.wait(), cluster.PEER_LOST, run.output())
        self.assertIn("worker-1 on 127.0.0.3 was killed by signal 9 (SIGKILL)", run.output())
        self.assert_nothing_there(cluster.ENDING + 5)

    @cluster.slow
    def test_trains_to_the_end(self):
        run = self.start_on_hosts(cluster.replay_config(training="trace: true"))
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertTrue(self.read_json("out/worker-1.trace.json"))
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
        self.assert_nothing_there(cluster.ENDING + 5)

    @cluster.slow
    def test_a_connection_that_is_lost_is_made_again(self):
        run = self.train(self.endless() + "recovery { mode: REPLACE }")
        for pid in self.session_of("worker-1"):
            os.kill(pid, signal.SIGKILL)
        run.await_output("worker-1 on 127.0.0.3 has lost its connection.*; it is started again")
        run.await_output("lost worker 1 .*\n(.*\n)*iteration ")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assert_nothing_there(cluster.ENDING + 5)

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
        self.assert_nothing_there(cluster.ENDING + 5)
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


if __name__ == "__main__":
    cluster.main()
