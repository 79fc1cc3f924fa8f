"""Machines that find their own names at a loopback address, as Debian's installer writes them into
/etc/hosts: jobs whose daemons are started by hand there, and experiments. What `poseidon run` and
`poseidon doctor` make of them is in doctor_test.py."""

import csv
import re

import remote
from remote import cluster

EXPERIMENT = """
name: "small"
net {
  name: "net"
  replay { batch: 8 layers { name: "conv" parameters: 20000 forward_ms: 2 backward_ms: 4 } }
}
sweep { system: "ps" workers: 2 bandwidth: "1Gbps" }
"""


class OwnNamesTest(remote.NamespacesTest):
    def setUp(self):
        super().setUp()
        self.write_own_names()

    def run_experiment(self, hosts):
        process = self.start(
            "poseidon",
            "experiment",
            self.write("small.prototxt", EXPERIMENT),
            "--mode=run",
            f"--hosts={self.write('hosts', hosts)}",
            f"--remote_shell={self.shell}",
            f"--out={self.path('out')}",
            prefix=self.enter_home(),
            name="experiment",
        )
        self.assertEqual(process.wait(), cluster.SUCCESS, process.output())
        with open(self.path("out/results.csv"), encoding="utf-8") as file:
            self.assertEqual([row["mode"] for row in csv.DictReader(file)], ["run"])

    @cluster.slow
    def test_an_experiment_on_others(self):
        self.run_experiment("\n".join(self.names[1:]))

    @cluster.slow
    def test_an_experiment_on_this_machine_too(self):
        self.run_experiment("\n".join(self.names[:2]))

    def start_by_hand(self, config, flags=()):
        """The scheduler, a server and a worker on the first host, and a worker on the second."""
        path = self.write("config.prototxt", config)
        places = (
            ("scheduler", 1, ()),
            ("server", 1, flags),
            ("worker", 1, flags),
            ("worker", 2, ()),
        )
        return [
            self.start(
                f"poseidon_{role}",
                f"--config={path}",
                *extra,
                name=f"{role}-{place}",
                prefix=self.enter(self.names[place]),
            )
            for role, place, extra in places
        ]

    @cluster.slow
    def test_a_job_by_hand_says_who_is_not_reached(self):
        first = self.names[1]
        config = cluster.replay_config(
            servers=1,
            cluster=f'scheduler_host: "{first}" join_deadline_seconds: {cluster.scaled(5)}',
            communication=f"stall_deadline_seconds: {cluster.scaled(5)}",
            security='mode: NONE allow: "10.97.0.0/24"',
        )
        daemons = self.start_by_hand(config)
        named = (
            f"nodes on other machines do not reach server 0 (127.0.0.1, process {daemons[1].pid}), "
        )
        for daemon in daemons:
            self.assertEqual(daemon.wait(), cluster.DEADLINE_EXCEEDED, daemon.output())
            self.assertIn(named, daemon.output())
        self.assertRegex(daemons[0].output(), f"(?m)^{re.escape(named)}")  # before it is waited for
        for daemon in self.start_by_hand(config, (f"--host={self.addresses[0]}",)):
            self.assertEqual(daemon.wait(), cluster.SUCCESS, daemon.output())


if __name__ == "__main__":
    cluster.main()
