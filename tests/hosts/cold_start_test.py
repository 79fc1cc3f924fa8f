"""docs/deploy.md, "From nothing to a running job", as a new user follows it: the commands come from
the page itself, in its order, and are typed into a terminal of node0.

Each machine is a network namespace with a root of its own: Debian as it is here, but without a
build, a repository, a user or a key of ours, and with an sshd as Debian configures it."""

import errno
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from remote import SSHD, NamespacesTest, cluster

PAGE = os.path.join(cluster.REPOSITORY, "docs", "deploy.md")
HEADING = "## From nothing to a running job\n"
USER, PASSWORD = "newcomer", "a password of this test only"

# Where node0 has what stands for the world outside; see STAND_INS.
OUTSIDE = "/mnt/outside"
# All that the test does instead of what the page says, each with its reason. The page must have the
# words of each row, or the row is out of date.
STAND_INS = (
    # No mirror of Debian can be reached. The machines have this machine's packages, and this fails
    # where one is missing. tools/setup runs as it is: it finds its packages and needs no network.
    ("apt-get install ", "dpkg-query --show "),
    # The page leaves the repository's address to the reader: here it is that of a server in the
    # network, which has this working tree.
    ("git clone POSEIDON ", "git clone git://{home}/poseidon.git "),
    # Compiling all takes two idle cores ten minutes. What this would make is the build under test.
    ("cmake --build build", f"cp -R {OUTSIDE}/bin build"),
)

# What a terminal asks, and what the page has the reader answer.
QUESTIONS = (
    (r"Enter file in which to save the key .*: $", ""),
    (r"Enter (same )?passphrase .*: $", ""),
    (r"Are you sure you want to continue connecting \(yes/no/\[fingerprint\]\)\? $", "yes"),
    (rf"{USER}@node\d's password: $", PASSWORD),
)
# Nobody is asked anything by commands other than these.
ASKING = r"ssh-keygen|ssh-copy-id"

# A machine with its root in $1, the name $2, the /etc/hosts $3 and, where the page builds, the
# programs $4 that stand for those of its own build. Directories that follow can't be seen there.
MACHINE = f"""
set -e
root=$1; name=$2; hosts=$3; programs=$4; shift 4
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/temporary" "$root/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/temporary" "$root/root"
root=$root/root
mkdir -p "$root{OUTSIDE}/bin"
[ -z "$programs" ] || mount --bind "$programs" "$root{OUTSIDE}/bin"
cp --remove-destination "$hosts" "$root/etc/hosts"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for hidden in /tmp /home /root "$@"; do
  [ ! -d "$root$hidden" ] || mount -t tmpfs -o mode=755 tmpfs "$root$hidden"
done
chmod 1777 "$root/tmp"
hostname "$name"
exec chroot "$root" sh -c '
  set -e
  useradd --create-home --shell /bin/bash {USER}
  echo "{USER}:{PASSWORD}" | chpasswd
  rm -rf /etc/ssh/ssh_host_* /etc/ssh/sshd_config.d/*
  cp /usr/share/openssh/sshd_config /etc/ssh/sshd_config
  ssh-keygen -A
  mkdir -p /run/sshd
  exec {SSHD} -D -e'
"""


def read_steps():
    """The page's steps: (title, blocks). A block is (file, lines); without a file, commands."""
    with open(PAGE, encoding="utf-8") as file:
        section = file.read().partition(HEADING)[2].partition("\n## ")[0]
    steps = []
    for text in re.split(r"^\d+\. (?=\*\*)", section, flags=re.MULTILINE)[1:]:
        title = re.match(r"\*\*(.*?)\*\*", text, re.DOTALL).group(1)
        blocks, before = [], ""
        for part in re.split(r"((?:^ {8}.*\n)+)", text, flags=re.MULTILINE):
            if part.startswith(" " * 8):
                named = re.search(r"in a file `([^`]+)`", before)
                lines = [line[8:] for line in part.splitlines()]
                blocks.append((named and named.group(1), lines))
            before = part
        steps.append((title, blocks))
    return steps


def commands_of(lines):
    """The lines of a block as a shell reads them: a command may have several."""
    command = ""
    for line in lines:
        command += line + "\n"
        complete = subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False)
        if complete.returncode == 0 and not line.endswith("\\"):
            yield command.rstrip("\n")
            command = ""
    if command:
        raise ValueError(f"no whole command: {command}")


class Terminal:
    """A user's shell on a machine, in whose terminal commands are typed."""

    PROMPT = r"<(\d+)>\$ $"

    def __init__(self, machine):
        self.said = ""
        self.mark = 0
        enter = ("nsenter", f"--target={machine}", "--mount", "--uts", "--net", "--root", "--wd")
        become = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--reset-env")
        shell = "cd && PS1='<$?>$ ' exec bash --noprofile --norc --noediting -i"
        pid, self.descriptor = pty.fork()
        if pid == 0:
            os.execvp(enter[0], [*enter, *become, "sh", "-c", shell])
        self.pid = pid
        self.await_prompt(cluster.PATIENCE)

    def read(self, seconds):
        """Whether more has been said."""
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return True
        try:
            more = os.read(self.descriptor, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # what a terminal says that nobody has open
                raise
            more = b""
        self.said += more.decode(errors="replace")
        return bool(more)

    def await_prompt(self, seconds):
        """The last command's exit code, and whether it has asked anything."""
        deadline = time.monotonic() + cluster.scaled(seconds)
        asked = False
        while True:
            new = self.said[self.mark :]
            if match := re.search(self.PROMPT, new):
                self.mark = len(self.said)
                return int(match.group(1)), asked
            for question, answer in QUESTIONS:
                if re.search(question, new):
                    self.mark = len(self.said)
                    asked = True
                    os.write(self.descriptor, f"{answer}\n".encode())
                    break
            if not self.read(0.1):
                raise AssertionError("the terminal is closed")
            if time.monotonic() > deadline:
                raise AssertionError(f"no end after {cluster.scaled(seconds)} s")

    def enter(self, command):
        os.write(self.descriptor, f"{command}\n".encode())
        return self.await_prompt(2 * cluster.PATIENCE)

    def shown(self, begin=0):
        """What is seen from a place of `said` on: of lines that were written over, the last."""
        return re.sub(r"[^\r\n]*\r+(?!\n)", "", self.said[begin:].replace("\r\n", "\n"))

    def close(self):
        """As one closes a window: what runs in it is hung up."""
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


class ColdStartTest(NamespacesTest):
    NETWORK = "10.0.0."  # as the page's hosts file has it
    MACHINES = ("node0", "node1")

    def setUp(self):
        for program, package in ((SSHD, "openssh-server"), ("rsync", "rsync"), ("git", "git")):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"there is no {program}; Debian's package is {package}")
        if not cluster.has_torch():
            raise unittest.SkipTest("this build can't train nets, as the page's job does")
        super().setUp()
        self.serve_repository()
        self.servers = {}
        for name, namespace in zip(self.MACHINES, self.names[1:]):
            self.start_machine(name, namespace)

    def serve_repository(self):
        """What stands for the repository's own place: a server that has this working tree."""
        repository = self.path("served/poseidon.git")
        git = ["git", f"--git-dir={repository}", f"--work-tree={cluster.REPOSITORY}"]
        author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        for words in (
            ["git", "init", "--quiet", "--bare", "--initial-branch=main", repository],
            [*git, "add", "--all"],
            [*git, *author, "commit", "--quiet", "--message=all"],
        ):
            subprocess.run(words, check=True, cwd=cluster.REPOSITORY)
        base = self.path("served")
        words = ["git", "daemon", "--export-all", f"--base-path={base}", f"--listen={self.home}"]
        served = self.spawn("git", [*self.enter_home(), *words, "--verbose"])
        served.await_output("Ready to rumble")

    def start_machine(self, name, namespace):
        # Debian's installer gives a machine's own name a loopback address.
        hosts = "127.0.0.1 localhost\n"
        for other, address in zip(self.MACHINES, self.addresses):
            hosts += f"{'127.0.1.1' if other == name else address} {other}\n"
        root = self.path(f"root-{name}")
        os.mkdir(root)
        programs = cluster.programs() if name == self.MACHINES[0] else ""
        command = [
            *(*self.enter(namespace), "unshare", "--mount", "--uts", "sh", "-c", MACHINE, "sh"),
            *(root, name, self.write(f"hosts-{name}", hosts), programs),
            *(cluster.REPOSITORY, os.path.dirname(cluster.programs())),
        ]
        self.servers[name] = self.spawn(name, command)
        self.servers[name].await_output("Server listening on 0.0.0.0 port 22")

    def follow(self, steps):
        """Types all commands of the page; each must succeed. Returns what the last one has said."""
        terminal = Terminal(self.servers[self.MACHINES[0]].pid)
        try:
            for title, command in self.commands(steps):
                begin = len(terminal.said)
                code, asked = terminal.enter(command)
                self.assertEqual(code, 0, f"{title}: {command}")
                self.assertEqual(asked, bool(re.search(ASKING, command)), command)
            return terminal.shown(begin)
        except BaseException:
            print(terminal.shown())
            raise
        finally:
            terminal.close()

    def commands(self, steps):
        """What to type, with the title of its step."""
        unused = {words for words, _ in STAND_INS}
        for title, blocks in steps:
            for file, lines in blocks:
                if file:
                    text = "\n".join(lines)
                    yield title, f"cat > {file} << 'END'\n{text}\nEND"
                    continue
                for command in commands_of(lines):
                    for words, instead in STAND_INS:
                        if words in command:
                            unused.discard(words)
                            command = command.replace(words, instead.format(home=self.home))
                    yield title, command
        self.assertEqual(unused, set(), "the page no longer says this")

    def pids_in(self, namespace):
        inside = subprocess.run(
            ["ip", "netns", "pids", namespace], check=True, capture_output=True, text=True
        )
        return {int(pid) for pid in inside.stdout.split()}

    def assert_nothing_left_there(self):
        """Nothing runs on the machines but sshd, and nothing once that has ended."""
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        for server, namespace in zip(self.servers.values(), self.names[1:]):
            while (left := self.pids_in(namespace)) != {server.pid}:
                self.assertLess(time.monotonic(), deadline, f"left there: {left}")
                time.sleep(0.05)
            server.signal(signal.SIGTERM)
            server.wait()
            self.assertEqual(self.pids_in(namespace), set())

    def inside(self, name, path):
        """A user's file on a machine."""
        return os.path.join(f"/proc/{self.servers[name].pid}/root/home/{USER}", path)

    @cluster.slow
    def test_the_page_leads_to_a_job_that_ends_well(self):
        for name in self.MACHINES:
            self.assertFalse(os.path.exists(self.inside(name, ".ssh")))
            self.assertFalse(os.path.exists(self.inside(name, "poseidon")))
        said = self.follow(read_steps())
        summary = self.read_json(self.inside("node0", "poseidon/out/lenet_digits/summary.json"))
        self.assertEqual(summary["exit_code"], cluster.SUCCESS)
        self.assert_same_parameters(summary, 4)
        self.assertGreater(summary["test_accuracy"], 0.95)
        self.assertIn("2 server(s) and 4 worker(s) on 2 host(s)", said)
        self.assertIn("\nsummary: out/lenet_digits/summary.json\n", said)
        self.assert_nothing_left_there()


if __name__ == "__main__":
    cluster.main()
