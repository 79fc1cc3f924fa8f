"""Hosts for the tests of this folder: a remote shell that runs everything here, and an sshd of this
machine's own on loopback addresses."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

import cluster
import leftovers

# What stands for ssh where there is no server. Hosts called dead refuse, hosts called silent never
# answer. Like csh, which a user's login shell there may be, it takes no newline in a command.
SHELL = """#!/bin/sh
host=$1; shift
case "$*" in
  *"
"*) echo "Unmatched '''." >&2; exit 1 ;;
esac
case $host in
  dead*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
  silent*) {hang} ;;
esac
{before}
exec sh -c "$*"
"""

SSHD = "/usr/sbin/sshd"


def has_ipv6():
    """Whether this machine's loopback device has its IPv6 address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = unittest.skipUnless(has_ipv6(), "this machine's loopback device has no IPv6")


class HostsTest(cluster.ClusterTest):
    """Base of the tests of `poseidon run --hosts`."""

    def setUp(self):
        super().setUp()
        # What a remote shell does that never ends: one process, as ssh is, that survivors() knows by its file.
        self.hang = f"exec tail -n 0 -f {self.path('shell')}"
        self.shell = self.write_shell("")
        self.hosts = self.write("hosts", "a 127.0.0.1\nb 127.0.0.1\n")

    def write_shell(self, before):
        """A remote shell that does `before` first; what it gets is in $host and $*."""
        path = self.write("shell", SHELL.format(before=before, hang=self.hang))
        os.chmod(path, 0o755)
        return path

    def enter_home(self):
        """What goes before a command that is to run on the machine of the user."""
        return ()

    def start_on_hosts(self, config, *arguments, prefix=()):
        path = self.write("config.prototxt", config)
        return self.start(
            "poseidon",
            "run",
            f"--config={path}",
            f"--out={self.path('out')}",
            f"--hosts={self.hosts}",
            *((f"--remote_shell={self.shell}",) if self.shell else ()),
            *arguments,
            name="run",
            prefix=(*self.enter_home(), *prefix),
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


class Sshd:
    """Keys and files of ssh servers, and of clients that know no others."""

    def __init__(self, test, port):
        if not os.path.exists(SSHD) or shutil.which("ssh") is None:
            raise unittest.SkipTest("there is no sshd; Debian's package is openssh-server")
        self.test = test
        self.port = port
        for key in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", test.path(key)], check=True
            )
        shutil.copy(test.path("user_key.pub"), test.path("authorized_keys"))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where it gives up its rights; always empty
        self.client = test.write(
            "ssh_config",
            f"Host *\n  Port {port}\n  IdentityFile {test.path('user_key')}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {test.path('known_hosts')}\n"
            "  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n",
        )

    def shell(self):
        """What --remote_shell gets: as the default, but sooner to notice that a host is gone."""
        return (
            f"ssh -F {self.client} -o BatchMode=yes -o ConnectTimeout=10 "
            "-o ServerAliveInterval=1 -o ServerAliveCountMax=2"
        )

    def default_shell(self):
        """What goes before a command that is to find this client where it looks for ssh."""
        path = self.test.path("programs/ssh")
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.client} "$@"\n')
        os.chmod(path, 0o755)
        return ("env", f"PATH={os.path.dirname(path)}:{os.environ['PATH']}")

    def start(self, addresses, prefix=()):
        """A server's process, which listens."""
        listen = "".join(f"ListenAddress {address}\n" for address in addresses)
        config = self.test.write(
            f"sshd_config-{addresses[0]}",
            f"Port {self.port}\n{listen}HostKey {self.test.path('host_key')}\n"
            f"AuthorizedKeysFile {self.test.path('authorized_keys')}\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n",
        )
        server = self.test.spawn(f"sshd-{addresses[0]}", [*prefix, SSHD, "-D", "-e", "-f", config])
        for address in addresses:
            server.await_output(f"Server listening on {address}")
        return server

    def clients(self):
        """The processes of ssh with these keys, and their command lines."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
            except OSError:
                continue
            if words[0].endswith("ssh") and self.client in words:
                found.append((int(entry), " ".join(words)))
        return found


def remove_leftovers():
    """The namespaces of tests that were killed."""
    leftovers.remove_leftovers(r"phosts(\d+)n\d+")


class NamespacesTest(HostsTest):
    """Hosts are network namespaces, joined by a bridge on which the user's own machine is, too."""

    HOSTS = 2
    # What addresses begin with, and how many bits of theirs are the network's.
    NETWORK = "10.97.0."
    PREFIX_LENGTH = 24

    @property
    def home(self):
        """The address of the user's own machine."""
        return f"{self.NETWORK}100"

    def setUp(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("network namespaces need root")
        super().setUp()
        remove_leftovers()
        self.names = [f"phosts{os.getpid()}n{number}" for number in range(self.HOSTS + 1)]
        self.addresses = [f"{self.NETWORK}{number}" for number in range(1, self.HOSTS + 1)]
        home = self.names[0]
        for name in self.names:
            self.ip("netns", "add", name)
            self.addCleanup(self.remove, name)
            self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("-n", home, "link", "add", "bridge", "type", "bridge")
        self.give_address(home, self.home, "bridge")
        self.ip("-n", home, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(zip(self.names[1:], self.addresses), 1):
            port = self.port_of(number)
            self.ip(
                *("-n", home, "link", "add", port, "type", "veth"),
                *("peer", "name", "eth0", "netns", name),
            )
            self.ip("-n", home, "link", "set", port, "master", "bridge", "up")
            self.give_address(name, address, "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
        hosts = zip(self.names[1:], self.addresses)
        self.write("hosts", "".join(f"{name} {address}\n" for name, address in hosts))
        # The remote shell enters the namespace whose name it gets.
        path = self.write(
            "enter", '#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host sh -c "$*"\n'
        )
        os.chmod(path, 0o755)
        self.shell = path

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def give_address(self, name, address, interface):
        # An IPv6 address could be used only a second later, when no neighbor has objected to it.
        settled = ("nodad",) if ":" in address else ()
        self.ip(
            *("-n", name, "addr", "add", f"{address}/{self.PREFIX_LENGTH}"),
            *("dev", interface, *settled),
        )

    def remove(self, name):
        """A namespace, with what is left in it: a server that waits for a client that is cut off."""
        left = subprocess.run(
            ["ip", "netns", "pids", name], check=True, capture_output=True, text=True
        )
        for pid in left.stdout.split():
            with contextlib.suppress(ProcessLookupError):  # it has ended with another one
                os.kill(int(pid), signal.SIGKILL)
        self.ip("netns", "del", name)

    @staticmethod
    def enter(name):
        return ("ip", "netns", "exec", name)

    def enter_home(self):
        return self.enter(self.names[0])

    def write_own_names(self):
        """Each machine finds the others by name, and its own name at a loopback address."""
        addresses = dict(zip(self.names, (self.home, *self.addresses)))
        for name in self.names:
            folder = f"/etc/netns/{name}"
            os.makedirs(folder)
            self.addCleanup(shutil.rmtree, folder)
            with open(f"{folder}/hosts", "w", encoding="ascii") as file:
                for other, address in addresses.items():
                    file.write(f"{'127.0.1.1' if other == name else address} {other}\n")

    @staticmethod
    def port_of(number):
        """The bridge's port to a host, from 1."""
        return f"port{number}"

    def cut(self, number):
        """The cable to a host, from 1."""
        self.ip("-n", self.names[0], "link", "set", self.port_of(number), "down")

    def mend(self, number):
        """The same cable."""
        self.ip("-n", self.names[0], "link", "set", self.port_of(number), "up")


@needs_ipv6
class Ipv6NamespacesTest(NamespacesTest):
    """Hosts have no addresses but those of IPv6."""

    NETWORK = "fd97::"
    PREFIX_LENGTH = 64
