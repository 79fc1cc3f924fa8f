"""`poseidon doctor` on hosts that are this machine, fit or not, and on ones that are network namespaces."""

import glob
import itertools
import json
import os
import shutil
import signal
import socket
import time
import unittest

import remote
from remote import cluster


class DoctorTest(remote.HostsTest):
    def doctor(self, *arguments):
        """Its process, when it has ended."""
        process = self.start(
            "poseidon",
            "doctor",
            *arguments,
            name=f"doctor-{len(self.processes)}",
            prefix=self.enter_home(),
        )
        process.wait()
        self.assert_nothing_left(cluster.ENDING)
        return process

    def on_hosts(self, config, *arguments):
        path = self.write("config.prototxt", config)
        return self.doctor(
            f"--config={path}",
            f"--hosts={self.hosts}",
            f"--remote_shell={self.shell}",
            *arguments,
        )


@unittest.skipUnless(os.geteuid() == 0, "a network of its own needs root")
class NoNetworkTest(DoctorTest):
    """On a machine that has no addresses but those of its loopback device."""

    def enter_home(self):
        return ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")

    def test_finds_itself(self):
        doctor = self.on_hosts(cluster.replay_config())
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        self.assertRegex(doctor.output(), "(?m)^good +links +a to b: ")


class SoundHostsTest(DoctorTest):
    NETWORK = 'network { bandwidth: "1Mbps" latency: "100ms" }'

    def test_each_check_is_made_and_each_pair_is_measured(self):
        self.write("hosts", "".join(f"{name} 127.0.0.1\n" for name in "abc"))
        config = cluster.replay_config(workers=3, servers=1, cluster=self.NETWORK)
        doctor = self.on_hosts(config, "--format=json")
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        result = json.loads(doctor.output())
        self.assertEqual(result["errors"], 0)
        checks = {finding["check"] for finding in result["findings"]}
        self.assertLessEqual(
            {
                *("reach", "versions", "names", "clocks", "limits", "memory", "disks", "data"),
                *("gpus", "queues", "mtu", "ports", "links", "plan"),
            },
            checks,
        )
        texts = [finding["text"] for finding in result["findings"]]
        pairs = list(itertools.permutations("abc", 2))
        for pair in pairs:
            found = [text for text in texts if text.startswith("{} to {}: ".format(*pair))]
            self.assertEqual(len(found), 1, texts)
            self.assertRegex(found[0], r"ms, .*b/s; the config says 100\.000 ms, 0\.9 Mb/s")
        self.assertEqual(len([text for text in texts if "with the measured one" in text]), 1)
        links = result["links"]
        self.assertEqual(sorted((link["from"], link["to"]) for link in links), pairs)
        for link in links:
            self.assertGreater(link["latency_ms"], 0)
            self.assertGreater(link["goodput_bytes_per_second"], 0)

    def test_a_job_that_runs_now_has_the_schedulers_port(self):
        port = cluster.free_port_pair()
        with socket.create_server(("127.0.0.1", port + 1)):
            doctor = self.on_hosts(cluster.replay_config(cluster=f"scheduler_port: {port}"))
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        self.assertRegex(
            doctor.output(),
            f"(?m)^warning +ports +port {port} of this machine, .* or the next one is taken",
        )
        self.assertRegex(doctor.output(), r"(?m)^good +links +a to b: .*b/s$")

    def test_a_signal_ends_the_planning(self):
        """The plans that are compared at last take seconds for so many workers."""
        self.write("hosts", "a 127.0.0.1 slots=32\nb 127.0.0.1 slots=32\n")
        layers = [(f"fc{i}", (1024, 1024), 2) for i in range(8)]
        policy = "policy: TIME"
        config = cluster.replay_config(workers=64, servers=8, layers=layers, communication=policy)
        path = self.write("config.prototxt", config)
        doctor = self.start(
            *("poseidon", "doctor", f"--config={path}", f"--hosts={self.hosts}"),
            f"--remote_shell={self.shell}",
            prefix=("env", f"TMPDIR={self.directory}"),
        )
        # When the links have been measured, and the directory with what was is gone.
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        for measures in (True, False):
            while bool(glob.glob(self.path("poseidon-scratch-*/job.prototxt"))) != measures:
                self.assertLess(time.monotonic(), deadline, doctor.output())
                time.sleep(0.01)
        doctor.signal(signal.SIGINT)
        self.assertEqual(doctor.wait(cluster.ENDING), cluster.INTERRUPTED, doctor.output())

    @remote.needs_ipv6
    def test_hosts_at_ipv6_addresses(self):
        self.write("hosts", "a ::1\nb ::1\n")
        doctor = self.on_hosts(cluster.replay_config())
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        self.assertRegex(doctor.output(), r"(?m)^good +ports .* the scheduler at ::1$")
        self.assertRegex(doctor.output(), r"(?m)^good +links +a to b: .*b/s$")
        self.assertRegex(doctor.output(), r"(?m)^good +links +b to a: .*b/s$")

    def test_what_is_wrong_is_an_error_with_what_mends_it(self):
        self.write("hosts", "a 127.0.0.1\ndead1 127.0.0.1\nb 127.0.0.1\n")
        config = cluster.replay_config(workers=3, servers=1)
        doctor = self.on_hosts(config, "--remote_programs=/there/is/none")
        self.assertEqual(doctor.popen.returncode, cluster.CONFIG_ERROR, doctor.output())
        self.assertRegex(
            doctor.output(),
            r"(?m)^error +reach +dead1 can't be reached: ssh: .*refused; mend: make `.* dead1 true` work",
        )
        self.assertRegex(
            doctor.output(), r"(?m)^error +versions +there is no poseidon_worker on b; mend: copy"
        )
        self.assertRegex(doctor.output(), r"(?m)^warning +links +have not been measured")
        self.assertRegex(doctor.output(), r"\n\d errors, 1 warning\n$")

    def silent_names(self):
        """What goes before a shell's command, so that no name server answers for the name "silent"."""
        os.makedirs(self.path("slow"))
        path = self.write(
            "slow/getent",
            f'#!/bin/sh\n[ "$2" != silent ] || exec sleep 1000\nexec {shutil.which("getent")} "$@"\n',
        )
        os.chmod(path, 0o755)
        return f"PATH={os.path.dirname(path)}:$PATH"

    @cluster.slow
    def test_a_name_whose_name_server_is_silent(self):
        path = self.silent_names()
        self.shell = self.write_shell(path)
        self.write("hosts", "a 192.0.2.1\nb silent\n")
        here = self.write("doctor", f'#!/bin/sh\n{path} exec "$@"\n')
        config = self.write("config.prototxt", cluster.replay_config())
        doctor = self.start(
            *("poseidon", "doctor", f"--config={config}", f"--hosts={self.hosts}"),
            f"--remote_shell={self.shell}",
            prefix=("sh", here),
        )
        self.assertEqual(doctor.wait(), cluster.CONFIG_ERROR, doctor.output())
        for host in "ab":
            self.assertIn(
                f"{host} does not find silent; mend: write the address of b", doctor.output()
            )
        self.assertNotIn(" can't be ", doctor.output())

    def test_fewer_nodes_than_the_config_has(self):
        self.write("hosts", "a 127.0.0.1\n")
        config = cluster.replay_config(workers=2, servers=1)
        doctor = self.on_hosts(config)
        self.assertEqual(doctor.popen.returncode, cluster.CONFIG_ERROR, doctor.output())
        self.assertRegex(doctor.output(), r"room for 1 worker.*, or take --workers=1\n")
        doctor = self.on_hosts(config, "--workers=1")
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())

    def test_hosts_of_a_variable_that_is_not_set(self):
        doctor = self.doctor("--hosts=")
        self.assertEqual(doctor.popen.returncode, cluster.CONFIG_ERROR)
        self.assertIn("--hosts is empty; name a file, or leave it out", doctor.output())

    def test_this_machine(self):
        doctor = self.doctor("--config=configs/lenet_digits.prototxt")
        self.assertRegex(doctor.output(), r"(?m)^\w+ +data .*")
        self.assertRegex(doctor.output(), r"(?m)^good +versions .* on this machine")


class NamespacesTest(remote.NamespacesTest, DoctorTest):
    """Hosts are network namespaces, joined by a bridge on which the doctor's own machine is, too."""

    @cluster.slow
    def test_sound(self):
        doctor = self.on_hosts(cluster.replay_config())
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        self.assertRegex(doctor.output(), r"(?m)^good +mtu +1500 bytes on all 2 hosts")
        self.assertRegex(doctor.output(), r"(?m)^good +ports .* the scheduler at 10\.97\.0\.100")

    @cluster.slow
    def test_hosts_that_do_not_reach_each_other(self):
        """Each reaches the scheduler, and they don't reach each other."""
        self.ip("-n", self.names[1], "route", "add", "blackhole", "10.97.0.2/32")
        port = cluster.free_port_pair()
        doctor = self.on_hosts(cluster.replay_config(cluster=f"scheduler_port: {port}"))
        self.assertEqual(doctor.popen.returncode, cluster.CONFIG_ERROR, doctor.output())
        self.assertRegex(doctor.output(), r"(?m)^error +ports +daemons on the hosts could not meet")
        self.assertIn(
            f"; mend: let the hosts reach ports {port} and {port + 1} of this", doctor.output()
        )

    @cluster.slow
    def test_own_names_at_loopback_addresses(self):
        """As Debian's installer writes them into /etc/hosts. The user's machine is a host, too."""
        self.write_own_names()
        home, other = self.names[:2]
        self.write("hosts", f"{home}\n{other}\n")
        doctor = self.on_hosts(cluster.replay_config())
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        self.assertRegex(
            doctor.output(), f"(?m)^warning +names +{home} takes its own name for 127.0.1.1"
        )
        self.assertRegex(doctor.output(), r"(?m)^good +ports .* the scheduler at 10\.97\.0\.100")
        run = self.start_on_hosts(cluster.replay_config())
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assert_nothing_there()
        run = self.start_on_hosts(cluster.replay_config(cluster=f'scheduler_host: "{home}"'))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertIn(f'"{home}", which is 127.0.1.1 on this machine', run.output())
        self.assertIn(f"write {self.home}, or leave the field out", run.output())

    @cluster.slow
    def test_different_mtus(self):
        self.ip("-n", self.names[2], "link", "set", "eth0", "mtu", "1400")
        doctor = self.on_hosts(cluster.replay_config())
        self.assertRegex(doctor.output(), r"(?m)^warning +mtu +differs: 1400 on .*; 1500 on")


class Ipv6Test(remote.Ipv6NamespacesTest, DoctorTest):
    @cluster.slow
    def test_sound(self):
        doctor = self.on_hosts(cluster.replay_config())
        self.assertEqual(doctor.popen.returncode, cluster.SUCCESS, doctor.output())
        self.assertRegex(doctor.output(), r"(?m)^good +names +every name means the same address")
        self.assertRegex(doctor.output(), r"(?m)^good +mtu +1500 bytes on all 2 hosts")
        self.assertRegex(doctor.output(), rf"(?m)^good +ports .* the scheduler at {self.home}$")
        first, second = self.names[1:]
        for link in (f"{first} to {second}", f"{second} to {first}"):
            self.assertRegex(doctor.output(), rf"(?m)^good +links +{link}: .*b/s$")

    @cluster.slow
    def test_hosts_that_do_not_reach_each_other(self):
        """Each reaches the scheduler, and they don't reach each other."""
        self.ip("-n", self.names[1], "route", "add", "blackhole", f"{self.addresses[1]}/128")
        doctor = self.on_hosts(cluster.replay_config())
        self.assertEqual(doctor.popen.returncode, cluster.CONFIG_ERROR, doctor.output())
        self.assertRegex(doctor.output(), r"(?m)^error +ports +daemons on the hosts could not meet")


if __name__ == "__main__":
    cluster.main()
