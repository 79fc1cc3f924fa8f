"""`poseidon run --hosts` does on other machines what `poseidon run` does on this one, and however it
ends, nothing is left there."""

import os
import re
import shutil
import signal
import subprocess
import time
import unittest

import lenet
import remote
from remote import cluster

RECOVERY = "recovery { mode: REPLACE }"


def endless(**options):
    """A job that computes little, and so leaves the cores to others."""
    return cluster.replay_config(
        iterations=cluster.ENDLESS, layers=(("layer", 1000, 20),), servers=1, **options
    )


class TrainingTest(remote.HostsTest):
    """Base of those that train to the end."""

    CONFIG = cluster.replay_config(
        training="trace: true threads: 1", communication="deterministic: true"
    )

    def train(self, security=""):
        run = self.start_on_hosts(self.CONFIG + security)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertRegex(run.output(), r"2 server\(s\) and 2 worker\(s\) on 2 host\(s\)")
        self.assertRegex(run.output(), r"iteration 30/30 ")
        self.assertEqual(len(self.remote_directories()), 4)
        self.assert_nothing_there()
        return self.read_json("out/summary.json")

    def assert_trains_at(self, home, addresses, security, mode):
        """The nodes reach each other at these addresses, in this mode of security."""
        self.assert_same_parameters(self.train(security), 2)
        with open(self.path("out/job.prototxt"), encoding="utf-8") as file:
            job = file.read()
        self.assertIn(f'scheduler_host: "{home}"', job)
        self.assertIn(f"mode: {mode}", job)
        for rank, address in enumerate(addresses):
            for role in ("server", "worker"):
                self.assertRegex(
                    self.log(f"{role}-{rank}"),
                    rf"the scheduler at tcp://\[{home}\]:\d+ .* reaches this {role} at {address}\n",
                )


class RunOnHostsTest(TrainingTest):
    """With a remote shell that runs everything here."""

    def results(self):
        """The names of what is in the output directory."""
        return set(os.listdir(self.path("out")))

    def skip_without_preloaded_library(self):
        if not os.path.exists(os.path.join(cluster.programs(), "libposeidon_caffe_preload.so")):
            self.skipTest("the library that makes a program a worker is not built")

    def test_trains(self):
        summary = self.train()
        self.assertEqual(summary["exit_code"], 0)
        self.assertEqual(summary["iterations"], 30)
        self.assert_same_parameters(summary, 2)
        traces = {f"{role}-{rank}.trace.json" for role in ("server", "worker") for rank in (0, 1)}
        local = {"run.key", "job.prototxt", "logs", "summary.json", "scheduler.events.json"}
        self.assertEqual(self.results(), {*local, *traces})
        self.assertTrue(self.read_json("out/worker-1.trace.json"))

    @remote.needs_ipv6
    def test_trains_at_ipv6_addresses(self):
        self.write("hosts", "a ::1\nb ::1\n")
        # Without a word about security a run on hosts has a key of its own.
        for security, mode in (("", "CURVE"), ('security { mode: NONE allow: "::1" }', "NONE")):
            with self.subTest(mode):
                self.assert_trains_at("::1", ["::1", "::1"], security, mode)

    @cluster.slow
    def test_is_as_on_one_machine(self):
        here = self.run_job(self.CONFIG)
        results = self.results()
        os.rename(self.path("out"), self.path("alone"))
        there = self.train()
        # With traces these are what is brought of a node, and one machine alone needs no key.
        events = {name for name in results if re.match(r"(server|worker)-\d+\.events", name)}
        self.assertEqual(len(events), 4)
        self.assertEqual(self.results(), results - events | {"run.key"})
        self.assertEqual(
            self.assert_same_parameters(there, 2), self.assert_same_parameters(here, 2)
        )

    @unittest.skipUnless(os.geteuid() == 0, "a network of its own needs root")
    def test_a_network_that_is_down_is_named(self):
        self.write("hosts", "a 10.0.0.1\nb 10.0.0.2\n")
        run = self.start_on_hosts(endless(), prefix=("unshare", "--net"))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertIn(
            "no route leads from this machine to a (10.0.0.1); is the network up?", run.output()
        )

    def test_hosts_that_can_not_be_used_are_named(self):
        self.write("hosts", "dead1 127.0.0.1\nb 127.0.0.2 slots=2\n")
        run = self.start_on_hosts(endless(), "--remote_programs=/there/is/none")
        self.assertEqual(run.wait(), 1)
        self.assertRegex(run.output(), "dead1 can't be reached: ssh: .* Connection refused; make `")
        self.assertIn("no program /there/is/none/poseidon_worker on b; copy", run.output())

    def test_a_program_does_not_start_where_nothing_makes_it_a_worker(self):
        """It would train alone there."""
        self.skip_without_preloaded_library()
        os.mkdir(self.path("there"))
        shutil.copy(os.path.join(cluster.programs(), "poseidon_server"), self.path("there"))
        script = self.write("program", f"#!/bin/sh\ntouch {self.path('trained_alone')}\n")
        os.chmod(script, 0o755)
        run = self.start_on_hosts(
            "cluster { workers: 2 servers: 1 }",
            f"--remote_programs={self.path('there')}",
            "--",
            script,
        )
        self.assertEqual(run.wait(), 1, run.output())
        for host in "ab":
            self.assertRegex(
                run.output(),
                "there is no library .*/there/.*libposeidon_caffe_preload.so, which makes a program "
                f"a worker, on {host}; copy the programs there, or say where they are by --remote",
            )
        self.assertFalse(os.path.exists(self.path("trained_alone")))

    def test_hosts_that_ssh_does_not_let_in(self):
        """What ssh would ask for, and can't, as nobody is there to answer."""
        self.shell = self.write_shell(
            'case $host in\n  a) echo "Host key verification failed." >&2; exit 255 ;;\n'
            '  *) echo "$host: Permission denied (publickey)." >&2; exit 255 ;;\nesac'
        )
        run = self.start_on_hosts(endless())
        self.assertEqual(run.wait(), 1)
        self.assertIn(
            "a can't be reached: Host key verification failed; `ssh a`, with the port and files of "
            "your --remote_shell, shows its key",
            run.output(),
        )
        self.assertIn("Permission denied (publickey); `ssh-copy-id b`, with the port", run.output())

    def test_files_that_can_not_be_used_are_named(self):
        self.write("hosts", "a 127.0.0.1\nb 127.0.0.1 roles=server\n")
        run = self.start_on_hosts(endless())
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertRegex(run.output(), r"hosts: there is room for 1 worker\(s\), and the job has 2")
        self.write("hosts", "a 127.0.0.1 slots=2\n")
        run = self.start_on_hosts(endless(cluster='scheduler_host: "192.0.2.1"'))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertIn('cluster.scheduler_host is "192.0.2.1", and with --hosts', run.output())
        run = self.start_on_hosts('training { solver: "solver.prototxt" }', "--restarts=1")
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertIn("--restarts with --hosts needs --snapshot=latest", run.output())

    def test_a_node_that_does_not_join(self):
        self.shell = self.write_shell(f'case "$*" in *--rank=1*) {self.hang} ;; esac')
        # Within this the others join, on a busy machine, too.
        run = self.start_on_hosts(endless(cluster="join_deadline_seconds: 8"))
        self.assertEqual(run.wait(), cluster.DEADLINE_EXCEEDED, run.output())
        self.assertRegex(
            run.output(), "missing worker 1 after 8 s .*; they have been started, so their logs"
        )
        self.assert_nothing_left(cluster.ENDING)

    def test_interruption_ends_all(self):
        run = self.start_on_hosts(endless())
        run.await_output("iteration ")
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assertIn("training has ended early", run.output())
        self.assert_nothing_there()

    def test_all_ends_with_the_command(self):
        run = self.start_on_hosts(endless())
        run.await_output("iteration ")
        run.signal(signal.SIGKILL)
        run.wait()
        # Who watches a daemon there asks it to end for five seconds, on a busy machine for longer.
        self.assert_nothing_there(cluster.PATIENCE)

    def test_a_shell_that_is_killed_as_it_ends_leaves_nothing(self):
        # The first `rm` ends the shell that has started it before anything is removed.
        os.mkdir(self.path("first"))
        remover = self.write(
            "first/rm",
            f"#!/bin/sh\nmkdir {self.path('once')} 2>/dev/null && kill -KILL $PPID && exit 1\n"
            f'exec {shutil.which("rm")} "$@"\n',
        )
        os.chmod(remover, 0o755)
        # As on another machine it is in no process group that ends with the connection.
        self.shell = self.write_shell(
            f"PATH={self.path('first')}:$PATH; export PATH\n" 'setsid --wait sh -c "$*"; exit $?'
        )
        run = self.start_on_hosts(endless())
        run.await_output("iteration ")
        run.signal(signal.SIGINT)
        self.assertNotEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertTrue(os.path.exists(self.path("once")))
        self.assert_nothing_there(cluster.PATIENCE)

    @cluster.slow
    def test_killed_there(self):
        run = self.start_on_hosts(endless())
        run.await_output("iteration ")
        os.kill(self.pid_there("worker-1"), signal.SIGABRT)
        self.assertEqual(run.wait(), cluster.PEER_LOST, run.output())
        self.assertIn("worker-1 on b was killed by signal 6 (SIGABRT)", run.output())
        self.assertRegex(self.read_json("out/summary.json")["reason"], "worker 1 .*SIGABRT")
        self.assert_nothing_there()

    def test_killed_there_with_recovery(self):
        run = self.start_on_hosts(endless() + RECOVERY)
        run.await_output("iteration ")
        os.kill(self.pid_there("worker-1"), signal.SIGKILL)
        run.await_output("worker-1 on b was killed by signal 9 .*; it is started again")
        run.await_output("lost worker 1 .*\n(.*\n)*iteration ")
        os.kill(self.pid_of("scheduler"), signal.SIGKILL)
        run.await_output("goes on with the job .*\n(.*\n)*iteration ")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED, run.output())
        self.assert_nothing_there(cluster.ENDING)

    @cluster.slow
    def test_a_host_that_does_not_answer(self):
        self.write("hosts", "a 127.0.0.1\nsilent1 127.0.0.1\n")
        run = self.start_on_hosts(endless())
        self.assertEqual(run.wait(), 1)
        self.assertIn("silent1 can't be reached: has not answered within 20 s", run.output())
        self.assert_nothing_left(cluster.ENDING)

    @cluster.slow
    def test_a_program_of_the_users(self):
        self.skip_without_preloaded_library()
        script = self.write(
            "program",
            "#!/bin/sh\n"
            "echo rank $POSEIDON_RANK at $POSEIDON_HOST of $POSEIDON_JOB, $OPENBLAS_NUM_THREADS "
            "threads, behind $LD_PRELOAD >&2; exit 6\n",
        )
        os.chmod(script, 0o755)
        config = "cluster { workers: 2 servers: 1 } training { threads: 3 }"
        run = self.start_on_hosts(config, "--", script)
        self.assertEqual(run.wait(), cluster.DATA_ERROR, run.output())
        self.assertRegex(
            self.log("worker-1"),
            "rank 1 at 127.0.0.1 of /tmp/poseidon-.*/job.prototxt, 3 threads, "
            "behind .*libposeidon_caffe_preload.so",
        )
        self.assert_nothing_there()

    def test_a_program_is_run_again_as_it_was_started(self):
        """Where it goes on is its own affair, so nobody has to say it."""
        cluster.needs_preloading(self)
        once, worker = self.path("once"), os.path.join(cluster.programs(), "poseidon_worker")
        script = self.write(
            "program",
            f"#!/bin/sh\n[ $POSEIDON_RANK = 0 ] && mkdir {once} 2> /dev/null && kill -KILL $$\n"
            f"exec {os.path.abspath(worker)} --config=$POSEIDON_JOB --rank=$POSEIDON_RANK\n",
        )
        os.chmod(script, 0o755)
        run = self.start_on_hosts(self.CONFIG, "--restarts=1", "--", script)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertRegex(run.output(), r"worker-0 on a was killed by signal 9 ")
        self.assertIn(
            "the job starts again as it was started; its program has to find its checkpoint "
            "(restart 1 of 1); the logs are in ",
            run.output(),
        )
        self.assert_nothing_there(cluster.ENDING)


class MissingFilesTest(lenet.LenetTest, remote.HostsTest):
    """What a job needs is at relative paths, and host b's copy of the working directory lacks some of it."""

    CONFIG = """
        cluster { workers: 2 servers: 1 }
        training {
          solver: "solver.prototxt" iterations: 5 batch_per_worker: 16 threads: 1
          data_command: "poseidon convert csv --csv=net.prototxt --out=digits" }"""

    def setUp(self):
        if not cluster.has_torch():
            self.skipTest("this build can't train nets")
        super().setUp()
        self.copy_net(digits="digits")
        self.copy_solver((re.escape(self.path("net.prototxt")), "net.prototxt"))
        os.mkdir(self.path("here"))
        for name in ("digits", "net.prototxt", "solver.prototxt"):
            shutil.move(self.path(name), self.path("here"))
        shutil.copytree(self.path("here"), self.path("there"))
        change = f"sed 's|{self.path('here')}|{self.path('there')}|g'"
        self.shell = self.write_shell(
            f'case $host in b) set -- "$(printf %s "$*" | {change})" ;; esac'
        )

    def enter_home(self):
        return ("env", f"--chdir={self.path('here')}")

    def check(self, code, message):
        """What the command has said."""
        run = self.start_on_hosts(self.CONFIG)
        self.assertEqual(run.wait(), code, run.output())
        self.assertRegex(
            run.output(),
            rf"poseidon run: worker-1 on b exited with code {code} \(log: .*/worker-1\.log\)\n"
            rf"  poseidon_worker: {message}\n",
        )
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["exit_code"], code)
        self.assertRegex(summary["reason"], f"^worker.1 .*: {message}")
        self.assert_nothing_there()
        self.assert_nothing_left()
        return run.output()

    def test_a_missing_solver_is_named(self):
        os.remove(self.path("there/solver.prototxt"))
        self.check(
            cluster.CONFIG_ERROR,
            r".*: there is no file solver\.prototxt in the working directory, "
            + re.escape(self.path("there"))
            + ".*",
        )

    @cluster.slow
    def test_a_missing_net_is_named(self):
        os.remove(self.path("there/net.prototxt"))
        self.check(
            cluster.CONFIG_ERROR,
            r"solver\.prototxt:\d+:1: no net file net\.prototxt in the working directory.*",
        )

    def test_missing_data_are_named_and_how_they_are_made(self):
        shutil.rmtree(self.path("there/digits/train_lmdb"))
        said = self.check(
            cluster.DATA_ERROR,
            r"digits/train_lmdb: no LMDB database here \(a directory with a file data\.mdb\).*",
        )
        self.assertIn(
            "\nposeidon run: where a host lacks the data, in the working directory, "
            f"{self.path('here')}, this makes it: {os.path.abspath(cluster.programs())}/poseidon "
            "convert csv --csv=net.prototxt --out=digits\n",
            said,
        )

    @cluster.slow
    def test_where_it_goes_on_is_for_worker_0_to_say(self):
        """Snapshots that lie here say nothing of a job whose worker 0 is elsewhere."""
        for directory in ("here", "there"):
            with open(self.path(f"{directory}/solver.prototxt"), "a", encoding="utf-8") as solver:
                solver.write('snapshot_prefix: "net"\n')
        self.assertEqual(self.start_on_hosts(self.CONFIG).wait(), cluster.SUCCESS)
        self.hosts = self.write("hosts", "b 127.0.0.1 slots=2\n")
        run = self.start_on_hosts(self.CONFIG, "--snapshot=latest")
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertNotIn("nothing is left", run.output())
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["iterations"], 5)
        # Whoever runs a job again until it ends well comes to an end.
        run = self.start_on_hosts(self.CONFIG, "--snapshot=latest")
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertRegex(
            run.output(),
            r"worker 0: nothing is left to do: \S*net_iter_5\.solverstate is of iteration 5, and "
            r"training ends at 5 \(max_iter, .*; the job ends after its last test",
        )
        again = self.read_json("out/summary.json")
        self.assertEqual(again["iterations"], 0)
        self.assertEqual(again["test_accuracy"], summary["test_accuracy"])
        self.assertEqual(
            self.assert_same_parameters(again, 2), self.assert_same_parameters(summary, 2)
        )

    def write_snapshots(self):
        for directory in ("here", "there"):
            with open(self.path(f"{directory}/solver.prototxt"), "a", encoding="utf-8") as solver:
                solver.write('snapshot: 20 snapshot_prefix: "net"\n')

    def shell_of_a_machine_that_goes_down(self):
        """Nobody reaches host b while the file that this returns is there."""
        down = self.path("down")
        self.shell = self.write_shell(
            f'[ -e {down} ] && case $host in b) echo "ssh: connect to host b port 22: No route to host" '
            ">&2; exit 255 ;; esac"
        )
        return down

    def test_a_restart_waits_for_a_host_that_comes_back(self):
        """Else a machine that is started again would use up all restarts within seconds. This one goes down with
        the worker on it, before that has trained."""
        self.write_snapshots()
        down, once = self.shell_of_a_machine_that_goes_down(), self.path("once")
        programs = os.path.abspath(cluster.programs())
        os.mkdir(self.path("programs"))
        for name in os.listdir(programs):
            os.symlink(os.path.join(programs, name), self.path(f"programs/{name}"))
        worker = self.path("programs/poseidon_worker")
        os.remove(worker)
        self.write(
            "programs/poseidon_worker",
            f'#!/bin/sh\ncase "$*" in *--rank=1*) mkdir {once} 2> /dev/null && touch {down} && kill -KILL $$ ;;'
            f' esac\nexec {programs}/poseidon_worker "$@"\n',
        )
        os.chmod(worker, 0o755)
        run = self.start_on_hosts(
            self.CONFIG,
            "--snapshot=latest",
            "--restarts=1",
            f"--remote_programs={self.path('programs')}",
        )
        self.assert_waits(run, down)
        self.assertEqual(self.read_json("out/summary.json")["iterations"], 5)

    @cluster.slow
    def test_a_restart_from_a_snapshot_waits_for_a_host_that_comes_back(self):
        self.write_snapshots()
        down = self.shell_of_a_machine_that_goes_down()
        config = self.CONFIG.replace("iterations: 5", "iterations: 400")
        run = self.start_on_hosts(config, "--snapshot=latest", "--restarts=1")
        run.await_output("iteration ")
        self.write("down", "")
        os.kill(self.pid_there("worker-1"), signal.SIGKILL)
        self.assert_waits(run, down)
        self.assertEqual(self.read_json("out/summary.json")["iterations"], 400)

    def assert_waits(self, run, down):
        run.await_output(
            r"the job starts again from the newest snapshot that worker 0 finds \(restart 1 of 1\).*\n"
            "waiting until all hosts answer, for at most 600 s:\n"
            "  b can't be reached: ssh: connect to host b port 22: No route to host; make `"
        )
        time.sleep(cluster.scaled(3))  # longer than from one look to the next
        os.remove(down)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertEqual(run.output().count("waiting until"), 1)


@unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
class LeftoversTest(cluster.ClusterTest):
    """What a test leaves that was killed goes with the next one."""

    def test_namespaces_of_processes_that_are_gone_are_removed(self):
        with subprocess.Popen(["true"]) as gone:
            gone.wait()
        names = [f"phosts{pid}n0" for pid in (gone.pid, os.getpid())]
        folders = [f"/etc/netns/{name}" for name in names]
        for name, folder in zip(names, folders):
            remote.NamespacesTest.ip("netns", "add", name)
            os.makedirs(folder)
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.addCleanup(remote.NamespacesTest.ip, "netns", "del", names[1])
        remote.remove_leftovers()
        self.assertEqual([os.path.exists(f"/run/netns/{name}") for name in names], [False, True])
        self.assertEqual([os.path.exists(folder) for folder in folders], [False, True])


class Ipv6Test(remote.Ipv6NamespacesTest, TrainingTest):
    @cluster.slow
    def test_trains_with_keys_and_without(self):
        keys = self.start("poseidon", "keys", f"--out={self.path('keys')}")
        self.assertEqual(keys.wait(), cluster.SUCCESS)
        for name, security, mode in (
            ("a key of the run's own", "", "CURVE"),
            ("a key", f'security {{ key_file: "{self.path("keys/job.key")}" }}', "CURVE"),
            ("a network", f'security {{ mode: NONE allow: "{self.NETWORK}/64" }}', "NONE"),
        ):
            with self.subTest(name):
                self.assert_trains_at(self.home, self.addresses, security, mode)

    @cluster.slow
    def test_a_network_that_the_hosts_are_not_in(self):
        """Who is kept out is who connects from another one: the addresses are looked at."""
        run = self.start_on_hosts(
            endless(cluster="join_deadline_seconds: 3", security='mode: NONE allow: "fd98::/64"')
        )
        self.assertEqual(run.wait(), cluster.DEADLINE_EXCEEDED, run.output())
        self.assertIn("still missing 2 workers (ranks 0, 1) and server 0 after 3 s", run.output())
        self.assert_nothing_there(cluster.ENDING)


if __name__ == "__main__":
    cluster.main()
