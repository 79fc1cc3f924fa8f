"""`poseidon run` says how to make data that are not there, and leaves nothing behind, however the job or
it itself ends."""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess

import cluster

# What `poseidon run` leaves a scheduler for telling the others, in seconds (launch/daemon_watch.cc); who has not joined
# is ended afterwards.
NEWS_TIME = 2.0


class TwoJobsTest(cluster.ClusterTest):
    """Jobs that are started with the same directory or the same port."""

    CONFIG = """
        cluster { workers: 2 servers: 1 %s }
        training { engine: REPLAY replay { iterations: 100
          layers { name: "ip" parameters: 1000 forward_ms: 20 backward_ms: 20 } } }"""

    def start_job(self, out, cluster_fields=""):
        config = self.write(f"{out}.prototxt", self.CONFIG % cluster_fields)
        return self.start("poseidon", "run", f"--config={config}", f"--out={self.path(out)}")

    def test_same_directory(self):
        first = self.start_job("out")
        first.await_output("all 3 nodes have joined")
        second = self.start_job("out")
        self.assertEqual(second.wait(), cluster.CONFIG_ERROR)
        self.assertRegex(
            second.output(), r'out is in use by the job "job", process \d+ on .*; wait for'
        )
        self.assertEqual(first.wait(), cluster.SUCCESS)
        self.assertEqual(self.start_job("out").wait(), cluster.SUCCESS)

    def test_same_port(self):
        port = cluster.free_port_pair()
        first = self.start_job("one", f"scheduler_port: {port}")
        first.await_output("all 3 nodes have joined")
        second = self.start_job("two", f"scheduler_port: {port}")
        self.assertEqual(second.wait(), cluster.CONFIG_ERROR)
        self.assertIn("another program listens on this port", second.output())
        self.assertEqual(first.wait(), cluster.SUCCESS, first.output())
        # The second one's nodes have asked the first one's scheduler, and were told why not; but for a worker that was
        # ended while it still loaded its libraries.
        for node in ("server-0", "worker-0"):
            with open(self.path(f"two/logs/{node}.log"), encoding="utf-8") as log:
                said = log.read()
            if node == "server-0" or said:
                self.assertIn("it was started for another run", said)

    def test_same_port_at_the_same_time(self):
        port = cluster.free_port_pair()
        jobs = [self.start_job(out, f"scheduler_port: {port}") for out in ("one", "two")]
        self.assertEqual(
            sorted(job.wait() for job in jobs), [cluster.SUCCESS, cluster.CONFIG_ERROR]
        )


class ConfigTest(cluster.ClusterTest):
    """OUT/job.prototxt, which is the config as it was run."""

    def test_the_users_own_file_is_not_written_over(self):
        config = cluster.replay_config(workers=1, servers=1, iterations=3)
        own = self.write("job.prototxt", config)
        for verb in (("run",), ("launch", "slurm", "--nosubmit")):
            refused = self.start("poseidon", *verb, f"--config={own}", f"--out={self.directory}")
            self.assertEqual(refused.wait(), cluster.CONFIG_ERROR)
            self.assertIn(
                f"{own} would be written over by the config as it is run", refused.output()
            )
        with open(own, encoding="utf-8") as file:
            self.assertEqual(file.read(), config)
        # One that it has written itself is run again where it is.
        out = self.path("out")
        for path in (own, f"{out}/job.prototxt"):
            run = self.start("poseidon", "run", f"--config={path}", f"--out={out}")
            self.assertEqual(run.wait(), cluster.SUCCESS, run.output())


class DataTest(cluster.ClusterTest):
    """The shipped job away from the repository, where its data are not there."""

    CONFIG = os.path.join(cluster.REPOSITORY, "configs", "lenet_digits.prototxt")

    def poseidon(self, *arguments, program=None):
        program = program or os.path.abspath(os.path.join(cluster.programs(), "poseidon"))
        return subprocess.run(
            [program, *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=cluster.scaled(cluster.PATIENCE),
        )

    def test_message_has_the_command_that_makes_them(self):
        run = self.poseidon("run", f"--config={self.CONFIG}")
        self.assertEqual(run.returncode, cluster.DATA_ERROR)
        self.assertEqual(run.stdout, "")
        self.assertRegex(
            run.stderr, r"^poseidon: out/digits/train_lmdb: no LMDB database here .*\n$"
        )
        self.assertIn(f"in the working directory, {self.directory}, this makes it: ", run.stderr)
        command = run.stderr.split("this makes it: ")[1]
        made = subprocess.run(
            command, shell=True, cwd=self.directory, check=False, capture_output=True, text=True
        )
        self.assertEqual(made.returncode, cluster.SUCCESS, made.stderr)
        self.assertEqual(
            sorted(os.listdir(os.path.join(self.directory, "out", "digits"))),
            ["test_lmdb", "train_lmdb"],
        )
        planned = self.poseidon(
            "plan",
            f"--net={cluster.REPOSITORY}/configs/models/lenet/net.prototxt",
            "--workers=4",
            "--servers=2",
        )
        self.assertIn('"data": 1x28x28, as in out/digits/train_lmdb\n', planned.stdout)

    def test_data_to_test_on_count_too(self):
        self.test_message_has_the_command_that_makes_them()
        shutil.rmtree(os.path.join(self.directory, "out", "digits", "test_lmdb"))
        run = self.poseidon("run", f"--config={self.CONFIG}")
        self.assertEqual(run.returncode, cluster.DATA_ERROR)
        self.assertIn("out/digits/test_lmdb: no LMDB database here", run.stderr)
        self.assertIn("--replace", run.stderr)

    def test_job_without_a_command(self):
        with open(self.CONFIG, encoding="utf-8") as file:
            text = re.sub(r'data_command: ("[^"]*"\s*)+', "", file.read())
        solver = f"{cluster.REPOSITORY}/configs/models/lenet/solver.prototxt"
        self.write("job.prototxt", text.replace("configs/models/lenet/solver.prototxt", solver))
        run = self.poseidon("run", "--config=job.prototxt")
        self.assertEqual(run.returncode, cluster.DATA_ERROR)
        self.assertIn("poseidon convert --help", run.stderr)

    def test_config_that_is_not_under_the_working_directory(self):
        self.check_meant_config(self.CONFIG)

    def test_config_of_an_installation(self):
        """Where the program is in bin, its configs are in share/poseidon."""
        program = self.path("usr/bin/poseidon")
        configs = self.path("usr/share/poseidon/configs")
        for path in (program, configs):
            os.makedirs(os.path.dirname(path))
        shutil.copy(os.path.join(cluster.programs(), "poseidon"), program)
        os.symlink(os.path.join(cluster.REPOSITORY, "configs"), configs)
        self.check_meant_config(os.path.join(configs, "lenet_digits.prototxt"), program)

    def check_meant_config(self, config, program=None):
        """The path from the repository's root is refused with that of the config, and with the command that makes
        its data until they are here."""

        def message():
            run = self.poseidon("run", "--config=configs/lenet_digits.prototxt", program=program)
            self.assertEqual(run.returncode, cluster.CONFIG_ERROR)
            return run.stderr

        place = f"(the working directory is {self.directory}); did you mean {config}?"
        refusal, command = message().split("this makes it: ")
        self.assertIn(f"{place} Its data can't be read, either: out/digits/train_lmdb: ", refusal)
        made = subprocess.run(
            command, shell=True, cwd=self.directory, check=False, capture_output=True, text=True
        )
        self.assertEqual(made.returncode, cluster.SUCCESS, made.stderr)
        self.assertTrue(message().endswith(f"{place}\n"))


class OutputTest(cluster.ClusterTest):
    """Standard output that is full, closed, or that nobody reads to its end."""

    NET = os.path.join(cluster.REPOSITORY, "configs", "models", "lenet", "net.prototxt")
    PLAN = ("plan", f"--net={NET}", "--workers=2", "--servers=2", "--input=1x28x28")

    def limited(self, limits, arguments):
        command = [os.path.abspath(os.path.join(cluster.programs(), "poseidon")), *arguments]
        return subprocess.run(
            ["/bin/bash", "-c", f"{limits}; exec {shlex.join(command)}"],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=cluster.scaled(cluster.PATIENCE),
        )

    def poseidon(self, arguments, redirection):
        command = [os.path.join(cluster.programs(), "poseidon"), *arguments]
        return subprocess.run(
            f"{shlex.join(command)} {redirection}",
            shell=True,
            executable="/bin/bash",
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=cluster.scaled(cluster.PATIENCE),
        )

    def run_arguments(self):
        config = cluster.replay_config(workers=1, servers=1, iterations=3)
        return ("run", f"--config={self.write('job.prototxt', config)}", "--out=out")

    def test_output_that_cannot_be_written(self):
        for arguments in (self.PLAN, ("--help",), ("plan", "--help")):
            with self.subTest(arguments[0]):
                ended = self.poseidon(arguments, ">/dev/full")
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertIn(
                    "can't write to standard output: No space left on device\n", ended.stderr
                )
        closed = self.poseidon(self.PLAN, ">&-")
        self.assertEqual(closed.returncode, 1)
        self.assertIn("can't write to standard output: Bad file descriptor\n", closed.stderr)
        self.assert_nothing_left()

    def test_a_training_whose_progress_cannot_be_written_ends_well(self):
        ended = self.poseidon(self.run_arguments(), ">/dev/full")
        self.assertEqual(ended.returncode, cluster.SUCCESS, ended.stderr)
        self.assertRegex(
            ended.stderr,
            r"can't write to standard output: \d+ bytes were not written: No space left on device",
        )
        self.assertEqual(self.read_json("out/summary.json")["exit_code"], 0)
        self.assert_nothing_left()

    def test_limits_that_are_too_small_are_named(self):
        for flag, value, text in (
            ("-n", 20, "the limit of open files is 20; this program needs at least 64"),
            ("-s", 64, "the limit of a stack in KiB is 64; this program needs at least 1024"),
        ):
            ended = self.limited(f"ulimit {flag} {value}", self.PLAN)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            self.assertIn(text, ended.stderr)

    def test_a_job_that_needs_more_open_files_than_there_may_be_starts_nothing(self):
        config = cluster.replay_config(workers=1, servers=40, iterations=3)
        run = ("run", f"--config={self.write('many.prototxt', config)}", "--out=out")
        ended = self.limited("ulimit -n 200", run)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(
            ended.stderr,
            r"^poseidon: a process may open no more than 200 files, and the scheduler of this "
            r"job needs \d+: raise the hard limit \(ulimit -Hn\)",
        )
        self.assertFalse(os.path.exists(self.path("out")))

    def test_output_beyond_the_limit_of_files(self):
        cluster.needs_no_sanitizer(
            self, "ThreadSanitizer's runtime writes a file as it starts", "thread"
        )
        ended = self.limited("ulimit -f 0", self.run_arguments())
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stderr, r"poseidon: can't write .*: File too large")
        self.assertEqual([name for name in os.listdir(self.path("out")) if "tmp" in name], [])

    def test_own_code_comes_before_that_of_the_output(self):
        ended = self.poseidon(("plan", "--policy=best"), ">/dev/full")
        self.assertEqual(ended.returncode, cluster.CONFIG_ERROR)

    def test_training_goes_on_when_nobody_reads(self):
        ended = self.poseidon(self.run_arguments(), '| head -1; exit "${PIPESTATUS[0]}"')
        self.assertEqual(ended.returncode, cluster.SUCCESS, ended.stderr)
        self.assertRegex(ended.stdout, r"\Astarting a scheduler, .*\n\Z")
        self.assertEqual(self.read_json("out/summary.json")["exit_code"], 0)
        for reader in ("true", "head -c 1"):
            planned = self.poseidon(self.PLAN, f'| {reader}; exit "${{PIPESTATUS[0]}}"')
            self.assertEqual((planned.returncode, planned.stderr), (cluster.SUCCESS, ""))
        self.assert_nothing_left()

    def test_a_watch_ends_when_nobody_reads(self):
        config = cluster.replay_config(workers=1, servers=1, iterations=cluster.ENDLESS)
        self.start_run(config).await_output("iteration ")
        for where, code in (('| head -1; exit "${PIPESTATUS[0]}"', 0), (">/dev/full", 1)):
            watch = self.poseidon(("status", "out", "--watch"), where)
            self.assertEqual(watch.returncode, code, watch.stderr)


class RunTest(cluster.ClusterTest):
    def start_endless(self):
        return self.start_run(
            cluster.replay_config(
                workers=3, servers=2, iterations=cluster.ENDLESS, layers=cluster.LONG_LAYERS
            )
        )

    def start_training_run(self):
        run = self.start_endless()
        run.await_output("iteration ")
        return run

    def kill(self, daemon, rank, text):
        """The launcher sees it at once, and nobody waits for the heartbeat deadline."""
        config = cluster.replay_config(
            workers=3, servers=2, iterations=cluster.ENDLESS, layers=cluster.LONG_LAYERS
        )
        run = self.start_run(cluster.with_heartbeat_deadline(config, 100))
        run.await_output("iteration ")
        pid = self.pid_of(daemon, rank)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(run.wait(cluster.ENDING), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertIn(text.format(pid=pid), run.output())
        self.assert_explained("killed", daemon if rank is None else f"{daemon}-{rank}")

    def test_killed_worker(self):
        lost = "lost worker 1 (127.0.0.1, process {pid}): it was killed by signal 9 (SIGKILL)"
        self.kill("worker", 1, lost)
        with open(self.path("out/logs/server-0.log"), encoding="utf-8") as log:
            self.assertIn("worker 1", log.read(), "the others do not know whom they have lost")

    def test_killed_server(self):
        lost = "lost server 0 (127.0.0.1, process {pid}): it was killed by signal 9 (SIGKILL)"
        self.kill("server", 0, lost)

    def test_killed_scheduler(self):
        self.kill("scheduler", None, "scheduler was killed by signal 9 (SIGKILL)")

    def test_crash_before_all_have_joined(self):
        """What the program itself has said of it is on the terminal and in the summary."""
        cluster.needs_preloading(self)
        said = "F1122 10:00:00.000000 7 net.cpp:1] Check failed: a == b"
        crash = f"echo '{said}' >&2; kill -ABRT $$"
        config = cluster.replay_config(workers=2, servers=1)
        run = self.start_run(config, "--", "/bin/sh", "-c", crash)
        # Whoever has not joined is told by a signal when the news has had its time.
        run.await_output("was killed by signal 6")
        self.assertEqual(run.wait(NEWS_TIME + cluster.ENDING), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertRegex(
            run.output(), "lost worker [01]: it was killed by signal 6 .SIGABRT.: F1122"
        )
        self.assertIn(said, self.read_json("out/summary.json")["reason"])
        first = re.search("lost (worker [01])", run.output())[1]
        self.assert_explained("crashed", first.replace(" ", "-"))

    def test_signals(self):
        for number, text in (
            (signal.SIGINT, "training has ended early: a signal stopped it before iteration"),
            (signal.SIGTERM, "interrupted"),
        ):
            with self.subTest(number):
                run = self.start_training_run()
                run.signal(number)
                self.assertEqual(run.wait(cluster.ENDING), cluster.INTERRUPTED)
                self.assert_nothing_left()
                self.assertIn(text, run.output())
                summary = self.read_json("out/summary.json")
                self.assertEqual(summary["exit_code"], cluster.INTERRUPTED)
                # Who was asked to stop has said what came of the training.
                workers = 3 if number == signal.SIGINT else 0
                self.assertEqual(len(summary["workers"]), workers)
                if number == signal.SIGTERM:
                    explain = self.start("poseidon", "explain", self.path("out"), "--json")
                    self.assertEqual(explain.wait(), cluster.SUCCESS)
                    told = json.loads(explain.output())
                    self.assertEqual((told["cause"], told["first"]), ("interrupted", None))

    @cluster.slow
    def test_a_second_control_c_ends_it_at_once(self):
        """Where the first one waits for a worker that does not come to the end of its iteration."""
        config = cluster.replay_config(workers=1, servers=1, iterations=cluster.ENDLESS)
        run = self.start_run(cluster.with_heartbeat_deadline(config, 100))
        run.await_output("iteration ")
        os.kill(self.pid_of("worker", 0), signal.SIGSTOP)
        run.signal(signal.SIGINT)
        run.await_output("training ends after an iteration; once more ends it at once")
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        self.assert_nothing_left()
        self.assertNotIn("training has ended early", run.output())
        self.assertEqual(self.read_json("out/summary.json")["exit_code"], cluster.INTERRUPTED)

    def test_signal_before_all_have_joined(self):
        run = self.start_endless()
        run.await_output("starting")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(cluster.ENDING), cluster.INTERRUPTED)
        self.assert_nothing_left()

    def test_killed_run(self):
        run = self.start_training_run()
        self.assertEqual(len(self.survivors()), 1 + 1 + 2 + 3)
        run.signal(signal.SIGKILL)
        run.wait()
        self.assert_nothing_left(seconds=2)

    def test_stopped_worker(self):
        """It can't end by itself; run ends it."""
        run = self.start_training_run()
        pid = self.pid_of("worker", 1)
        os.kill(pid, signal.SIGSTOP)
        # It waits 5 s for those that are left, asks them to end, and kills them 5 s later.
        self.assertEqual(run.wait(cluster.END_TIME + 10), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertIn(f"lost worker 1 (127.0.0.1, process {pid})", run.output())
        self.assert_explained("stopped process", "worker-1")

    def test_killed_while_training_stops(self):
        """Whoever has stopped a job does not want it to be started again."""
        config = cluster.replay_config(
            workers=3, servers=2, iterations=cluster.ENDLESS, layers=cluster.LONG_LAYERS
        )
        run = self.start_run(cluster.with_heartbeat_deadline(config, 100), "--restarts=3")
        run.await_output("iteration ")
        pid = self.pid_of("worker", 1)
        os.kill(pid, signal.SIGSTOP)  # the others can't stop without it
        run.signal(signal.SIGINT)
        run.await_output("training ends after an iteration")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(run.wait(cluster.ENDING), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertNotIn("starts again", run.output())

    def test_a_job_that_fails_again_is_not_run_again_at_once(self):
        config = cluster.replay_config(iterations=cluster.ENDLESS, layers=cluster.LONG_LAYERS)
        run = self.start_run(config, "--restarts=2")
        for progress in (
            "iteration ",
            r"the job starts again from its beginning \(restart 1 of 2\)(.*\n)*iteration ",
        ):
            run.await_output(progress)
            os.kill(self.pid_of("worker", 1), signal.SIGKILL)
        run.await_output(
            r"the job starts again from its beginning in 1[45]\.\d s \(restart 2 of 2\)"
        )
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(cluster.ENDING), cluster.INTERRUPTED)
        self.assert_nothing_left()

    def test_output_that_nobody_reads(self):
        """A pager that is not scrolled, or a terminal after Ctrl-S, holds no training up."""
        layers = tuple((f"a_layer_with_a_name_that_fills_its_line_{n}", 10, 0.1) for n in range(80))
        path = self.write("config.prototxt", cluster.replay_config(layers=layers, iterations=20))
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        program = os.path.join(cluster.programs(), "poseidon")
        run = self.spawn(
            "run",
            [
                *("sh", "-c", 'exec "$@" > "$0" 2>&1', fifo),
                *(program, "run", f"--config={path}", f"--out={self.path('out')}"),
            ],
        )
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertEqual(self.read_json("out/summary.json")["iterations"], 20)
        self.assert_nothing_left()

    def test_process_that_does_not_end(self):
        """The job is done, but a process hangs: a server that has nothing to do, as there is just one
        KV pair."""
        config = cluster.replay_config(servers=2, layers=(("conv", 10, 4),), iterations=300)
        run = self.start_run(cluster.with_heartbeat_deadline(config, 100), "--restarts=1")
        run.await_output("iteration ")
        pid = self.pid_of("server", 1)
        os.kill(pid, signal.SIGSTOP)
        self.assertEqual(run.wait(), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertIn("all workers ended with the same parameters", run.output())
        self.assertIn("server-1 was killed by signal 9", run.output())
        self.assertIn("its workers have ended well, so the job is not run again", run.output())

    def test_the_monitor_of_an_earlier_job_is_forgotten(self):
        """Whoever looks at that one is not to see this one."""
        left = f"http://127.0.0.1:{cluster.free_port_pair()}/"
        os.mkdir(self.path("out"))
        self.write("out/monitor.url", f"{left}\n")
        run = self.start_run(cluster.replay_config())
        self.assertNotEqual(run.await_output(r"monitor: (http://\S+)\n").group(1), left)
        self.assertEqual(run.wait(), cluster.SUCCESS)

    def test_summary_without_room(self):
        """A directory that is not there yet, to which summary.json leads, is for a full disk."""
        config = cluster.replay_config(iterations=300)
        run = self.start_run(config, "--restarts=1")
        run.await_output("iteration ")
        os.symlink("gone/summary.json", self.path("out/summary.json"))
        run.await_output(
            "all workers ended with the same parameters(.*\n)*"
            ".*can't create .*gone/summary.json.*; this is tried again every second, "
        )
        os.mkdir(self.path("out/gone"))
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertEqual(self.read_json("out/summary.json")["iterations"], 300)


if __name__ == "__main__":
    cluster.main()
