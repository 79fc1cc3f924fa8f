"""Daemons started by hand: in any order, with and without ranks, at several addresses."""

import os
import signal
import stat
import subprocess
import time
import unittest

import cluster

NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1")


class ByHandTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        self.config = cluster.replay_config(
            cluster=f"scheduler_port: {cluster.free_port_pair()}", communication="lanes: 2"
        )

    def train(self, order, *, ranks):
        daemons = self.start_by_hand(self.config, order, ranks=ranks)
        self.assert_all_succeed(daemons)
        self.assert_same_parameters(self.read_json("out/summary.json"), workers=2)

    def test_scheduler_first(self):
        self.train(NODES, ranks=True)

    def test_summary_of_an_earlier_job(self):
        """It tells nobody of the end of a job that has no summary yet."""
        self.train(NODES, ranks=True)
        daemons = self.start_by_hand(self.config, NODES[:1])
        daemons["scheduler"].await_output("waiting for 2 worker")
        os.kill(daemons["scheduler"].pid, signal.SIGKILL)
        daemons["scheduler"].wait()
        self.assertFalse(os.path.exists(self.path("out/summary.json")))

    def test_scheduler_last(self):
        self.train(NODES[::-1], ranks=True)

    @unittest.skipUnless(os.geteuid() == 0, "an /etc/hosts of its own needs root")
    def test_the_schedulers_name_is_known_later(self):
        """DNS may not answer in a machine's or a container's first seconds."""
        files = {"hosts": "127.0.0.1 localhost\n", "nsswitch.conf": "hosts: files\n"}
        mount = " && ".join(
            f"mount --bind {self.write(name, text)} /etc/{name}" for name, text in files.items()
        )
        prefix = ("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh")
        config = self.config.replace("scheduler_port", 'scheduler_host: "late.test" scheduler_port')
        config += 'security { mode: NONE allow: "127.0.0.0/8" }'
        daemons = self.start_by_hand(config, NODES[:1], prefix=prefix)
        daemons["scheduler"].await_output(
            'can\'t resolve cluster.scheduler_host "late.test".* trying'
        )
        self.write("hosts", "127.0.0.1 localhost late.test\n")
        daemons.update(self.start_by_hand(config, NODES[1:], prefix=prefix))
        self.assert_all_succeed(daemons)

    def test_without_ranks(self):
        self.train(("worker-0", "server-0", "scheduler", "worker-1", "server-1"), ranks=False)

    def test_late_nodes(self):
        """The scheduler and a worker are started long after the others."""
        daemons = self.start_by_hand(self.config, NODES[1:4])
        time.sleep(2)
        daemons.update(self.start_by_hand(self.config, NODES[:1]))
        daemons["scheduler"].await_output("worker 0 .* joined")
        time.sleep(2)
        daemons.update(self.start_by_hand(self.config, NODES[4:]))
        self.assert_all_succeed(daemons)
        self.assert_same_parameters(self.read_json("out/summary.json"), workers=2)

    def test_same_parameters_in_any_order(self):
        """Which process gets which rank does not matter, nor how many servers share the work."""
        hashes = set()
        for servers in (1, 3):
            config = cluster.replay_config(
                cluster=f"scheduler_port: {cluster.free_port_pair()}", servers=servers
            )
            order = ["scheduler", "worker-1", "worker-0"] + [f"server-{i}" for i in range(servers)]
            self.assert_all_succeed(self.start_by_hand(config, order))
            hashes.add(self.assert_same_parameters(self.read_json("out/summary.json"), workers=2))
        self.assertEqual(len(hashes), 1)

    def test_several_addresses(self):
        """All of the loopback network is one machine, but its addresses differ as machines' do."""
        config = self.write(
            "config.prototxt",
            cluster.replay_config(
                cluster=f'scheduler_host: "127.0.0.2" scheduler_port: {cluster.free_port_pair()}'
            ),
        )
        flag = f"--config={config}"
        daemons = {"scheduler": self.start("poseidon_scheduler", flag)}
        for i, role in enumerate(("server", "server", "worker", "worker")):
            daemons[f"{role}-{i % 2}"] = self.start(
                f"poseidon_{role}", flag, f"--rank={i % 2}", f"--host=127.0.0.{3 + i}"
            )
        self.assert_all_succeed(daemons)
        for i, node in enumerate(NODES[1:]):
            self.assertIn(
                f"{node.replace('-', ' ')} (127.0.0.{3 + i}, process {daemons[node].pid}) joined",
                daemons["scheduler"].output(),
            )

    @unittest.skipUnless(os.path.exists("/proc/net/if_inet6"), "this machine has no IPv6")
    def test_ipv6(self):
        self.config = cluster.replay_config(
            cluster=f'scheduler_host: "::1" scheduler_port: {cluster.free_port_pair()}'
        )
        daemons = self.start_by_hand(self.config, NODES)
        self.assert_all_succeed(daemons)
        self.assert_same_parameters(self.read_json("out/summary.json"), workers=2)
        for node in NODES[1:]:
            joined = f"{node.replace('-', ' ')} (::1, process {daemons[node].pid}) joined"
            self.assertIn(joined, daemons["scheduler"].output())

    def test_interrupted_scheduler_ends_the_job(self):
        self.config = cluster.replay_config(
            cluster=f"scheduler_port: {cluster.free_port_pair()}", iterations=cluster.ENDLESS
        )
        daemons = self.start_by_hand(self.config, NODES)
        daemons["scheduler"].await_output("iteration ")
        daemons["scheduler"].signal(signal.SIGINT)
        for daemon in daemons.values():
            self.assertEqual(daemon.wait(cluster.ENDING), cluster.INTERRUPTED, daemon.name)
            self.assertIn("the scheduler was interrupted by a signal", daemon.output())


class BuildTest(cluster.ClusterTest):
    """Programs of two builds meet, as where a package is upgraded while a job runs."""

    def setUp(self):
        super().setUp()
        self.config = cluster.replay_config(
            cluster=f"scheduler_port: {cluster.free_port_pair()}", communication="lanes: 2"
        )
        version = self.start("poseidon", "--version", name="version")
        self.assertEqual(version.wait(), cluster.SUCCESS)
        self.build = version.output().split()[1]
        # The hash backwards: as long, and another one.
        self.other = self.build[:-12] + self.build[:-13:-1]

    def start_other(self, program, *arguments):
        """A program that is of another build by all that it says."""
        with open(os.path.join(cluster.programs(), program), "rb") as file:
            code = file.read()
        self.assertIn(self.build.encode(), code)
        path = self.path(program)
        with open(path, "wb") as file:
            file.write(code.replace(self.build.encode(), self.other.encode()))
        os.chmod(path, 0o755)
        flag = f"--config={self.write('config.prototxt', self.config)}"
        return self.spawn(f"other-{program}", [path, flag, *arguments])

    def test_a_node_of_another_is_refused_and_its_place_stays_free(self):
        daemons = self.start_by_hand(self.config, NODES[:-1])
        daemons["scheduler"].await_output("worker 0 .* joined")
        for role in ("worker", "server"):
            refused = self.start_other(f"poseidon_{role}")
            self.assertEqual(refused.wait(), cluster.REFUSED)
            self.assertIn(
                f"the scheduler refused this {role}: it is of build {self.other}, the scheduler of "
                f"{self.build}; install the same build on every machine",
                refused.output(),
            )
        daemons.update(self.start_by_hand(self.config, NODES[-1:]))
        self.assert_all_succeed(daemons)

    def test_a_scheduler_of_another_does_not_go_on_with_the_job(self):
        self.config += "recovery { mode: REPLACE }"
        first = self.start_by_hand(self.config, NODES[:1])["scheduler"]
        first.await_output("waiting for 2 worker")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        refused = self.start_other("poseidon_scheduler", f"--out={self.path('out')}")
        self.assertEqual(refused.wait(), cluster.CONFIG_ERROR)
        self.assertIn(
            f"scheduler.journal is of a scheduler of build {self.build}, and this is build "
            f"{self.other};",
            refused.output(),
        )
        self.assert_all_succeed(self.start_by_hand(self.config, NODES))


def make_key(test, name):
    """The path of a new key."""
    keys = test.start("poseidon", "keys", f"--out={test.path(name)}")
    test.assertEqual(keys.wait(), cluster.SUCCESS)
    return os.path.join(test.path(name), "job.key")


class SecurityTest(cluster.ClusterTest):
    def config(self, key):
        return cluster.replay_config(
            cluster=f"scheduler_port: {self.port} join_deadline_seconds: {self.deadline}",
            security=f'key_file: "{key}"' if key else "",
        )

    def test_only_who_has_the_key_takes_part(self):
        """Strangers try in vain to take a rank of a job, which then is whole without them."""
        self.port = cluster.free_port_pair()
        self.deadline = 60
        config = self.config(make_key(self, "keys"))
        daemons = self.start_by_hand(config, NODES[:-1])
        daemons["scheduler"].await_output("worker 0 .* joined")
        self.deadline = 2
        strangers = {}
        for name, key in (("other", make_key(self, "others")), ("none", None)):
            path = self.write(f"{name}.prototxt", self.config(key))
            strangers[name] = self.start("poseidon_worker", f"--config={path}", "--rank=1")
        for name, stranger in strangers.items():
            self.assertEqual(stranger.wait(), cluster.DEADLINE_EXCEEDED)
            self.assertIn("did not answer within 2 s; is it running", stranger.output())
            asks = "Has it the same security.key_file?" in stranger.output()
            self.assertEqual(asks, name == "other")
        self.assertNotIn("worker 1", daemons["scheduler"].output())
        self.assertIn("turned away", daemons["scheduler"].output())
        daemons.update(self.start_by_hand(config, NODES[-1:]))
        for name, daemon in daemons.items():
            self.assertEqual(daemon.wait(), cluster.SUCCESS, name)
        self.assert_same_parameters(self.read_json("out/summary.json"), workers=2)
        with open(self.path("keys/job.key"), encoding="ascii") as file:
            secret = file.read().split()[-1]
        for daemon in daemons.values():
            self.assertNotIn(secret, daemon.output())

    def test_a_node_that_others_reach_says_who_may_connect(self):
        config = cluster.replay_config(cluster='scheduler_host: "192.0.2.1"')
        scheduler = self.start_by_hand(config, ["scheduler"])["scheduler"]
        self.assertEqual(scheduler.wait(), cluster.CONFIG_ERROR)
        self.assertIn("the job config has no `security`", scheduler.output())
        self.assertIn("poseidon keys --out=DIR", scheduler.output())

    def test_a_key_in_a_directory_of_any_name_can_be_named_as_is_said(self):
        path = make_key(self, 'ü "k" \\d')
        escaped = path.replace("\\", "\\\\").replace('"', '\\"')
        self.assertIn(
            f'\n  security {{ mode: CURVE key_file: "{escaped}" }}\n', self.processes[-1].output()
        )

    def test_a_key_in_the_config_is_written_where_its_owner_alone_can_read_it(self):
        with open(make_key(self, "keys"), encoding="ascii") as file:
            key = file.read().strip()
        self.run_job(cluster.replay_config(security=f'key: "{key}\\n"'))
        holders = []
        for folder, _, names in os.walk(self.path("out")):
            for path in (os.path.join(folder, name) for name in names):
                with open(path, encoding="utf-8", errors="replace") as file:
                    if key.split()[-1] in file.read():
                        holders.append(path)
        self.assertEqual(holders, [self.path("out/config.key")])
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out/config.key")).st_mode), 0o600)

    def test_a_key_that_others_can_read(self):
        key = make_key(self, "keys")
        os.chmod(key, 0o644)
        self.port, self.deadline = cluster.free_port_pair(), 60
        scheduler = self.start_by_hand(self.config(key), ["scheduler"])["scheduler"]
        self.assertEqual(scheduler.wait(), cluster.CONFIG_ERROR)
        self.assertIn(f"chmod 600 {key}", scheduler.output())


class Network:
    """Network namespaces ("machines") with the addresses 10.77.0.1, ..., joined by a bridge in one
    more namespace. They have no names and so end with the processes that hold them."""

    def __init__(self, test, machines):
        holders = [
            test.spawn(f"machine-{i}", ["unshare", "--net", "sleep", "600"])
            for i in range(machines + 1)
        ]
        for holder in holders:
            self._await_namespace(test, holder)
        self.holders = [holder.pid for holder in holders]
        self._ip(machines, "link add bridge type bridge")
        self._ip(machines, "link set bridge up")
        for machine in range(machines):
            self._ip(
                machine,
                f"link add eth0 type veth peer name eth{machine} "
                f"netns {self.holders[machines]}",
            )
            self._ip(machine, f"address add 10.77.0.{machine + 1}/24 dev eth0")
            for device in ("lo", "eth0"):
                self._ip(machine, f"link set {device} up")
            self._ip(machines, f"link set eth{machine} master bridge up")

    @staticmethod
    def _await_namespace(test, holder):
        """Until the process has a network of its own; the test is skipped where the kernel refuses it one."""
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while holder.popen.poll() is None:
            if os.readlink(f"/proc/{holder.pid}/ns/net") != own:
                return
            test.assertLess(time.monotonic(), deadline, "no namespace is made")
            time.sleep(0.02)
        if "Operation not permitted" in holder.output():
            test.skipTest(holder.output().strip())
        test.fail(holder.output())

    def prefix(self, machine):
        """What runs a command on this machine."""
        return ("nsenter", f"--net=/proc/{self.holders[machine]}/ns/net", "--")

    def _ip(self, machine, command):
        subprocess.run([*self.prefix(machine), "ip", *command.split()], check=True, timeout=10)


class SeveralMachinesTest(cluster.ClusterTest):
    @unittest.skipIf(os.geteuid() != 0, "only root makes network namespaces")
    def test_one_config_on_five_machines(self):
        """One file, no flags but --rank: every node finds its own address."""
        network = Network(self, len(NODES))
        config = self.write(
            "config.prototxt",
            cluster.replay_config(
                cluster='scheduler_host: "10.77.0.1"',
                communication="lanes: 2",
                security=f'key_file: "{make_key(self, "keys")}"',
            ),
        )
        daemons = {}
        for machine, node in enumerate(NODES):
            role, _, rank = node.partition("-")
            rank_flag = [f"--rank={rank}"] if rank else []
            daemons[node] = self.start(
                f"poseidon_{role}",
                f"--config={config}",
                f"--out={self.path('out')}",
                *rank_flag,
                name=node,
                prefix=network.prefix(machine),
            )
        self.assert_all_succeed(daemons)
        self.assert_same_parameters(self.read_json("out/summary.json"), workers=2)
        for machine, node in enumerate(NODES[1:], start=2):
            self.assertIn(
                f"{node.replace('-', ' ')} (10.77.0.{machine},", daemons["scheduler"].output()
            )


if __name__ == "__main__":
    cluster.main()
