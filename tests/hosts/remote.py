"""Hosts for the tests of this folder: a remote shell that runs everything here, and an sshd of this
machine's own on loopback addresses."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))

import cluster  # noqa: E402

# What stands for ssh where there is no server. Hosts called dead refuse, hosts called silent never
# answer.
SHELL = """#!/bin/sh
host=$1; shift
case $host in
  dead*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
  silent*) exec sleep 1000 ;;
esac
{before}
exec sh -c "$*"
"""

SSHD = "/usr/sbin/sshd"


class HostsTest(cluster.ClusterTest):
    """Base of the tests of `poseidon run --hosts`."""

    def setUp(self):
        super().setUp()
        self.shell = self.write_shell("")
        self.hosts = self.write("hosts", "a 127.0.0.1\nb 127.0.0.1\n")

    def write_shell(self, before):
        """A remote shell that does `before` first; what it gets is in $host and $*."""
        path = self.write("shell", SHELL.format(before=before))
        os.chmod(path, 0o755)
        return path

    def start_on_hosts(self, config, *arguments):
        return self.start_run(
            config, f"--hosts={self.hosts}", f"--remote_shell={self.shell}", *arguments
        )

    def log(self, name):
        with open(self.path(f"out/logs/{name}.log"), encoding="utf-8") as file:
            return file.read()

    def remote_directories(self):
        """What the daemons had on their hosts, as their logs tell."""
        found = []
        for name in os.listdir(self.path("out/logs")):
            with open(self.path(f"out/logs/{name}"), encoding="utf-8") as file:
                found += re.findall("^poseidon: started in (.*)$", file.read(), re.MULTILINE)
        return found

    def daemons_left(self):
        """Daemons and scripts there, which are known by their directories."""
        directories = self.remote_directories()
        left = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                    command = file.read().replace("\0", " ")
            except OSError:
                continue
            if any(directory in command for directory in directories):
                left.append((int(entry), command))
        return left

    def assert_nothing_there(self, seconds=0.0):
        """Nothing is left on the hosts: no process, no directory."""
        deadline = time.monotonic() + cluster.scaled(seconds)
        while True:
            left = self.daemons_left()
            left += list(filter(os.path.exists, self.remote_directories()))
            if not left:
                return
            self.assertLess(time.monotonic(), deadline, f"left there: {left}")
            time.sleep(0.05)

    def pid_there(self, name):
        """The process of a daemon on its host: "worker-1"."""
        role, _, rank = name.partition("-")
        for pid, command in self.daemons_left():
            words = command.split()
            if words[0].endswith(f"poseidon_{role}") and f"--rank={rank}" in words:
                return pid
        raise AssertionError(f"no {name} runs: {self.daemons_left()}")


def has_sshd():
    return os.path.exists(SSHD) and shutil.which("ssh") is not None


class SshTest(HostsTest):
    """Hosts are loopback addresses at which an sshd of the test's own listens."""

    ADDRESSES = ("127.0.0.2", "127.0.0.3")

    def setUp(self):
        if not has_sshd():
            raise unittest.SkipTest("there is no sshd; Debian's package is openssh-server")
        super().setUp()
        self.hosts = self.write("hosts", "".join(f"{host}\n" for host in self.ADDRESSES))
        port = cluster.free_port_pair()
        for key in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(key)], check=True
            )
        shutil.copy(self.path("user_key.pub"), self.path("authorized_keys"))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where it gives up its rights; always empty
        listen = "".join(f"ListenAddress {host}\n" for host in self.ADDRESSES)
        server = self.write(
            "sshd_config",
            f"Port {port}\n{listen}HostKey {self.path('host_key')}\n"
            f"AuthorizedKeysFile {self.path('authorized_keys')}\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n",
        )
        client = self.write(
            "ssh_config",
            f"Host *\n  Port {port}\n  IdentityFile {self.path('user_key')}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.path('known_hosts')}\n"
            "  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n",
        )
        self.sshd = self.spawn("sshd", [SSHD, "-D", "-e", "-f", server])
        for host in self.ADDRESSES:
            self.sshd.await_output(f"Server listening on {host}")
        self.shell = (
            f"ssh -F {client} -o BatchMode=yes -o ConnectTimeout=10 "
            "-o ServerAliveInterval=1 -o ServerAliveCountMax=2"
        )

    def ssh_clients(self):
        """The ssh processes of a job, by the daemon whose script they carry."""
        clients = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
            except OSError:
                continue
            if words[0].endswith("ssh") and self.path("ssh_config") in words:
                clients.append((int(entry), " ".join(words)))
        return clients
