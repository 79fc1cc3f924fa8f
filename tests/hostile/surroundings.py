"""What a machine may be like around a command: connections that drip, disks without room, users who may
start few threads."""

import os
import shutil
import subprocess
import time
import unittest

import cluster
import zmtp

NOBODY = 65534
# Connections to each port.
DRIPS = 40
# Between two bytes of a connection: so slow that no handshake is done before the command has ended, and
# so fast that it is.
PACES = (1.0, 0.02)


def need_root(why):
    if os.geteuid() != 0:
        raise unittest.SkipTest(f"{why} needs root")


def small_disk(test, path, size):
    """Mounts a disk of so many bytes at a new directory, until the test has ended."""
    need_root("a small disk")
    os.mkdir(path)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise unittest.SkipTest(f"can't mount a small disk: {done.stderr.strip()}")
    test.addCleanup(subprocess.run, ["umount", "--lazy", path], check=False)
    return path


def full_disk(test, path):
    small_disk(test, path, 4096)
    with open(os.path.join(path, "full"), "wb") as file:
        file.write(bytes(4096))
    return path


def with_few_threads(program, threads):
    """What to put before a command that is to run for a user who may have so many threads."""
    need_root("another user")
    prefix = [
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("prlimit", f"--nproc={threads}:{threads}"),
    ]
    if shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        raise unittest.SkipTest("there is no setpriv or prlimit")
    may = subprocess.run([*prefix[:4], "test", "-x", program], check=False)
    if may.returncode != 0:
        raise unittest.SkipTest(f"another user may not start {program}")
    return prefix


def drip(test, process):
    """Keeps connections open to all ports of a job until its command ends, each of which gets a byte now
    and then."""
    process.await_output("iteration ")
    text = zmtp.GREETING + bytes(4000)
    connections = []
    for pid in test.survivors():
        for port in cluster.listening_ports(pid):
            for number in range(DRIPS):
                connection = zmtp.connect(port)
                test.addCleanup(connection.close)
                connections.append([connection, PACES[number % len(PACES)], 0, time.monotonic()])
    test.assertGreater(len(connections), 3 * DRIPS)
    while process.popen.poll() is None:
        for entry in connections:
            connection, pace, sent, due = entry
            if time.monotonic() < due or sent == len(text):
                continue
            try:
                connection.send(text[sent : sent + 1])
            except OSError:
                sent = len(text) - 1  # it has had enough
            entry[2:] = [sent + 1, due + pace]
        time.sleep(0.01)
