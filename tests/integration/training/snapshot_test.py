"""Snapshots: LeNet killed and resumed ends with the bits of LeNet never killed; fine-tuning; what is
said about files that do not fit."""

import glob
import os
import random
import re
import shutil
import signal
import subprocess
import unittest

import cluster
import lenet
import solver_training
from solver_training import INTERVAL, ITERATIONS


# Of conv1, which is not trained then.
FROZEN = (r'(top: "conv1"\s+param \{ lr_mult:) 1( \}\s+param \{ lr_mult:) 2', r"\1 0\2 0")


class SnapshotTest(solver_training.SolverTest):
    def test_resumed_is_never_killed(self):
        self.check_resumed((("SGD", "policy: BYTES"),))

    @cluster.slow
    def test_resumed_is_never_killed_with_other_rules(self):
        self.check_resumed((("Adam", "policy: ALL_ADAM"), ("AdaDelta", "policy: ALL_RING")))

    def check_resumed(self, cases):
        for solver, communication in cases:
            with self.subTest(solver=solver, communication=communication):
                momentum = "momentum: 0.95" if solver == "AdaDelta" else "momentum: 0.9"
                self.solver_with_snapshots(
                    (r"momentum: .*", momentum),
                    (r"base_lr: .*", f'type: "{solver}" base_lr: 0.001'),
                )
                self.remove_snapshots()
                expected = self.train_hash(communication)
                self.remove_snapshots()
                self.kill_after_snapshot(self.config(communication))
                resumed = self.train_hash(communication, flags=["--snapshot=latest"])
                self.assertEqual(resumed, expected)
                self.assert_resumed()

    def interrupt(self, iterations):
        """A training that SIGHUP and then Ctrl-C reach, whose effects are Caffe's: the first has a snapshot
        written, the second ends training with one. Returns the iterations of both."""
        self.solver_with_snapshots((r"test_interval: .*", "test_interval: 1000"), interval=1000000)
        run = self.start_run(self.config("policy: BYTES", iterations=iterations))
        run.await_output("test at iteration 0:")
        run.signal(signal.SIGHUP)
        first = run.await_output(r"wrote the snapshot of iteration (\d+)").group(1)
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        self.assert_nothing_left()
        last = re.search(r"a signal stopped it before iteration (\d+)", run.output()).group(1)
        for iteration in (first, last):
            self.assertIn(f"lenet_iter_{iteration}.solverstate", os.listdir(self.path("snapshots")))
        self.assertLess(int(first), int(last))
        return int(first), int(last)

    def test_signals_write_snapshots(self):
        self.interrupt(cluster.ENDLESS)
        self.assertEqual(self.read_json("out/summary.json")["exit_code"], cluster.INTERRUPTED)

    def test_a_second_job_with_the_prefix_is_refused(self):
        self.solver_with_snapshots((r"test_interval: .*", "test_interval: 1000"), interval=1000000)
        run = self.start_run(self.config_of_one("", iterations=cluster.ENDLESS))
        run.await_output("test at iteration 0:")
        flags = (f"--config={self.path('config.prototxt')}", f"--out={self.path('second')}")
        second = self.start("poseidon", "run", *flags, name="second")
        self.assertEqual(second.wait(), cluster.CONFIG_ERROR, second.output())
        self.assertRegex(
            second.output(),
            r'/snapshots/lenet" is in use by the job "job" of the scheduler at \S+:\d+ '
            rf"\(number \d+\), process {self.pid_of('worker', 0)} on .*; wait for its end, or give another prefix",
        )
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        self.assertFalse(glob.glob(self.path("snapshots/*.lock")))

    @cluster.slow
    def test_who_goes_on_after_an_interruption_ends_as_if_there_had_been_none(self):
        iterations = 600
        for number in range(2):
            iteration = self.interrupt(iterations)[number]
            self.assertLess(iteration, iterations)
            name = self.path(f"snapshots/lenet_iter_{iteration}.solverstate")
            resumed = self.train_hash(
                "policy: BYTES", iterations=iterations, flags=[f"--snapshot={name}"]
            )
            self.assert_resumed()
            self.remove_snapshots()
            self.assertEqual(self.train_hash("policy: BYTES", iterations=iterations), resumed)

    def test_latest_passes_over_what_is_not_whole(self):
        self.check_latest(workers=1)

    @cluster.slow
    def test_latest_passes_over_what_is_not_whole_with_two_workers(self):
        self.check_latest(workers=2)

    def check_latest(self, workers):
        self.solver_with_snapshots()
        expected = self.train_hash("policy: ALL_PS", workers=workers)
        newest = self.path(f"snapshots/lenet_iter_{ITERATIONS}.solverstate")
        os.truncate(newest, os.path.getsize(newest) // 2)
        os.remove(self.path(f"snapshots/lenet_iter_{ITERATIONS - INTERVAL}.caffemodel"))
        resumed = self.train_hash("policy: ALL_PS", 'snapshot: "latest"', workers=workers)
        self.assertEqual(resumed, expected)
        self.assertIn(f"iteration {ITERATIONS - 2 * INTERVAL}", self.log("worker-0"))
        self.assertIn("passed over a snapshot", self.log("worker-0"))
        # Whoever runs a job again until it ends well comes to an end.
        config = self.config("policy: ALL_PS", workers=workers)
        run = self.start_run(config, "--snapshot=latest")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertIn(f"nothing is left to do: {newest} is of iteration {ITERATIONS}", run.output())
        self.assertNotIn("starting", run.output())

    def test_snapshots_of_two_trainings_with_one_prefix_are_told_apart(self):
        self.solver_with_snapshots((r"test_interval: .*", "test_interval: 1000"))
        self.train_hash("policy: ALL_PS", iterations=2 * INTERVAL)
        highest = self.path(f"snapshots/lenet_iter_{2 * INTERVAL}.solverstate")
        there = f"there are snapshots of an earlier one with its snapshot_prefix, up to {highest}: "
        run = self.start_run(self.config_of_one("", iterations=INTERVAL))
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertEqual(run.output().count(there), 1)
        self.assertIn(there, self.log("worker-0"))
        lower = self.path(f"snapshots/lenet_iter_{INTERVAL}.solverstate")
        doubt = (
            f"{highest} is of the highest iteration, but {lower} was written after it, so they may "
            f"be of two trainings, unless they were copied; to go on from that one, give --snapshot={lower}"
        )
        for more in (0, 1):
            latest = self.config_of_one('snapshot: "latest"', iterations=2 * INTERVAL + more)
            run = self.start_run(latest)
            self.assertEqual(run.wait(), cluster.SUCCESS)
            self.assertEqual(run.output().count(doubt), 1)
            self.assertEqual("nothing is left to do" in run.output(), more == 0)

    def test_a_failure_behind_the_last_snapshot_is_told_and_not_run_again(self):
        self.solver_with_snapshots(
            (r"test_iter: .*", "test_iter: 10000000 test_initialization: false")
        )
        config = self.config("policy: ALL_PS", iterations=INTERVAL)
        run = self.start_run(config, "--restarts=3")
        last = self.path(f"snapshots/lenet_iter_{INTERVAL}.solverstate")
        run.await_output(f"wrote the snapshot of iteration {INTERVAL},")
        os.kill(self.pid_of("worker", 0), signal.SIGKILL)
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertIn(f"nothing is left to do: {last} is of iteration {INTERVAL}", run.output())
        self.assertIn("The job failed after that", run.output())
        self.assertNotIn("starts again", run.output())
        self.assertEqual(self.read_json("out/summary.json")["exit_code"], cluster.PEER_LOST)

    def test_a_job_with_snapshots_is_not_begun_anew_where_they_are_out_of_reach(self):
        self.check_out_of_reach(workers=1)

    @cluster.slow
    def test_snapshots_are_out_of_reach_when_a_worker_is_lost_that_does_not_write_them(self):
        self.check_out_of_reach(workers=2)

    def check_out_of_reach(self, workers):
        """A link to itself, and an empty directory, are what a file server may leave that has gone. The last worker
        is lost."""
        self.solver_with_snapshots((r"test_interval: .*", "test_interval: 1000"), interval=1000000)
        config = self.config("policy: ALL_PS", workers=workers, iterations=cluster.ENDLESS)
        run = self.start_run(config, "--restarts=2")
        run.await_output("test at iteration 0:")
        run.signal(signal.SIGHUP)
        run.await_output("wrote the snapshot of iteration ")
        directory, away = self.path("snapshots"), self.path("away")
        # One that is asked for and can't be written is no reason to end.
        os.rename(directory, away)
        self.write("snapshots", "")
        run.signal(signal.SIGHUP)
        run.await_output("no snapshot is written: ")
        os.remove(directory)
        os.rename(away, directory)
        for restart, leave, remove, why in (
            (1, lambda: os.symlink(directory, directory), os.remove, f"can't read {directory}: "),
            (2, lambda: os.mkdir(directory), os.rmdir, r"lenet_iter_\d+\.solverstate is gone, "),
        ):
            pid = self.pid_of("worker", workers - 1)
            os.rename(directory, away)
            leave()
            os.kill(pid, signal.SIGKILL)
            run.await_output(why)
            remove(directory)
            os.rename(away, directory)
            wait = "" if restart == 1 else r" in 1\d\.\d s"
            own = rf"from {directory}/lenet_iter_\d+\.solverstate{wait} \(restart {restart} of 2\)"
            run.await_output(f"the job starts again {own}", seconds=2 * cluster.PATIENCE)
            run.await_output(rf"(?s)\(restart {restart} of 2\).*\niteration ")
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)

    def test_fine_tuning_starts_from_the_weights(self):
        self.solver_with_snapshots()
        first = self.run_job(self.config_of_one("", batch=32))
        model = self.path(f"snapshots/lenet_iter_{ITERATIONS}.caffemodel")
        # Beside the config, by a field; anywhere, by a flag.
        shutil.copy(model, self.path("beside.caffemodel"))
        beside = 'weights: "beside.caffemodel, beside.caffemodel"'
        for training, flags in ((beside, []), ("", [f"--weights={model}"])):
            config = self.config_of_one(training, iterations=5)
            second = self.run_job(config, *flags)
            self.assertLess(second["loss"][0], 0.5 * first["loss"][0])

    def test_the_solvers_weights_are_for_the_start_alone(self):
        self.copy_solver()
        weights = self.first_values(0)
        self.copy_net(FROZEN)
        self.solver_with_snapshots(("max_iter", f'weights: "{weights}" max_iter'))
        expected = self.train_hash("", iterations=2 * INTERVAL, workers=1)
        self.assertIn(f"starting from the values of {weights}", self.log("worker-0"))
        os.remove(weights)
        first = self.path(f"snapshots/lenet_iter_{INTERVAL}.solverstate")
        resumed = self.train_hash(
            "", iterations=2 * INTERVAL, workers=1, flags=[f"--snapshot={first}"]
        )
        self.assertEqual(resumed, expected)
        self.assert_resumed()
        self.assertNotIn("starting from the values", self.log("worker-0"))

    def config_of_one(self, training, **options):
        return self.config("", training, workers=1, **options)

    def test_files_that_do_not_fit(self):
        """Of weights one at random: whoever reads them says what is wrong with them."""
        self.check_files(lambda weights: [random.choice(weights)])

    @cluster.slow
    def test_all_files_that_do_not_fit(self):
        self.check_files(lambda weights: weights)

    def check_files(self, chosen):
        self.solver_with_snapshots()
        self.run_job(self.config("policy: ALL_PS", workers=1, iterations=INTERVAL))
        state = self.path(f"snapshots/lenet_iter_{INTERVAL}.solverstate")
        model = self.path(f"snapshots/lenet_iter_{INTERVAL}.caffemodel")
        self.copy_solver((r"base_lr", 'type: "Adam" base_lr'))
        self.assert_refused(
            self.config_of_one(f'snapshot: "{state}"', iterations=INTERVAL + 1),
            state,
            "another type of solver",
        )
        self.copy_solver()
        fewer = (("num_output: 500", "num_output: 400"),)
        for net, size, *texts in chosen(
            [
                (fewer, None, model, "ip1", "500 x 800"),
                ((), 1000, model, "truncated"),
                ((), None, "nowhere.caffemodel"),
            ]
        ):
            with self.subTest(texts):
                self.copy_net(*net)
                if size:
                    os.truncate(model, size)
                self.assert_refused(self.config_of_one(f'weights: "{texts[0]}"'), *texts)
        self.copy_net()
        self.assert_refused(
            self.config_of_one(f'snapshot: "{state}"', iterations=1), "nothing is left"
        )

    def test_where_nothing_is_kept_or_no_gpu_is_used_it_is_said(self):
        directory = self.path("kept")
        gpu = "solver_mode: GPU"
        for fields, training, nothing_kept, no_gpu in (
            ("", "", True, False),
            (f"{gpu} snapshot_after_train: false", "", False, True),
            (f'{gpu} snapshot_prefix: "{directory}/"', "device: CPU", False, False),
        ):
            self.copy_solver(("max_iter", f"{fields} max_iter"))
            run = self.start_run(self.config_of_one(training, iterations=1))
            self.assertEqual(run.wait(), cluster.SUCCESS)
            for news, said in (
                ("values will not be kept: the solver has no snapshot_prefix\n", nothing_kept),
                ("computed on the CPU, though the solver has solver_mode: GPU", no_gpu),
            ):
                self.assertEqual(run.output().count(news), said, fields)
        self.assertTrue(os.path.exists(f"{directory}/solver_iter_1.caffemodel"))

    def test_without_test_iter_nothing_is_tested_and_it_is_said(self):
        self.copy_solver(("test_iter: .*", ""))
        run = self.start_run(self.config_of_one("", iterations=1))
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertIn("nothing is tested: the solver has test_interval, but no", run.output())
        self.assertNotIn("test at iteration", run.output())

    def test_what_is_not_expected_is_said_by_daemons_by_hand_too(self):
        self.copy_solver(("max_iter", "solver_mode: GPU max_iter"))
        config = self.config_of_one("", iterations=1).replace(
            "cluster {", f"cluster {{ scheduler_port: {cluster.free_port_pair()}"
        )
        daemons = self.start_by_hand(config, ("scheduler", "server-0", "server-1", "worker-0"))
        self.assert_all_succeed(daemons)
        for news in ("the trained values will not be kept: ", "the net is computed on the CPU, "):
            self.assertIn(f"worker 0: {news}", daemons["scheduler"].output())

    def test_the_latest_snapshot_of_a_solver_that_writes_none(self):
        self.copy_solver()
        config = self.write("job.prototxt", self.config_of_one('snapshot: "latest"', iterations=1))
        for program, *arguments in (
            ("poseidon", "run"),
            ("poseidon", "launch", "slurm", "--nosubmit"),
            ("poseidon_worker", "--rank=0"),
        ):
            arguments += [f"--config={config}", f"--out={self.path('out')}"]
            process = self.start(program, *arguments, name=f"refused-{len(self.processes)}")
            self.assertEqual(process.wait(), cluster.CONFIG_ERROR, arguments)
            self.assertIn(
                f"{self.path('solver.prototxt')}: there is no snapshot_prefix, so there is no "
                "latest snapshot",
                process.output(),
            )

    def test_what_caffe_passes_over_in_hdf5_files_is_said(self):
        self.copy_net(("conv1", "conv/1"))
        self.solver_with_snapshots(("max_iter", "snapshot_format: HDF5 max_iter"))
        run = self.start_run(self.config_of_one("", iterations=1))
        code = run.wait()
        if "HDF5, which needs its library, and this build lacks it" in run.output():
            self.skipTest("this build has no HDF5")
        self.assertEqual(code, cluster.SUCCESS)
        self.assertRegex(run.output(), 'worker 0: snapshot_format is HDF5, .*"conv/1" has a /')

    def test_machines_with_other_files(self):
        """Two working directories are two machines: one has the last training's snapshot, the other
        not; and other digits."""
        self.copy_net(digits="digits")
        self.copy_solver()
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write('\nsnapshot_prefix: "lenet"\n')
        for machine in ("old", "new"):
            os.makedirs(self.path(machine))
        os.symlink(self.path("digits"), self.path("old/digits"))
        convert = self.start(
            "poseidon",
            "convert",
            "csv",
            f"--source={lenet.CONFIGS}/data/digits.csv",
            f"--out={self.path('new/digits')}",
            "--max_value=16",
            "--scale_height=28",
            "--scale_width=28",
            "--train_records=300",
        )
        self.assertEqual(convert.wait(), cluster.SUCCESS)
        first = self.write("first.prototxt", self.config("", workers=1, iterations=1))
        run = self.on_machine("old", "run", "poseidon", "run", f"--config={first}")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertRegex(
            run.output(), r"worker 0: wrote the snapshot of iteration 1, lenet_iter_1\."
        )

        self.assert_machines_differ(
            'snapshot: "latest"',
            "whose snapshot the job goes on from, has none, but worker 1 (127.0.0.1, process ",
            "has that of iteration 1, ./lenet_iter_1.solverstate: start worker 0 there",
        )
        self.assert_machines_differ(
            "",
            'layer "data" reads 300 records on worker 0 (127.0.0.1, process ',
            "and 1500 on worker 1 (127.0.0.1, process ",
        )

    def test_machines_with_other_nets(self):
        """Each of two machines has files of its own. Nothing would tell at the end: workers get the same
        values of what is trained."""
        seed, net, values = self.other_files()
        self.check_machines([random.choice([seed, net]), values])

    @cluster.slow
    def test_machines_with_all_other_nets(self):
        self.check_machines(self.other_files())

    def other_files(self):
        """What makes files of the old machine and of the new one others, a field for the config, and what is
        said of either."""
        self.copy_solver()
        models = [self.first_values(move) for move in (0, 1)]
        return (
            ({}, {"solver": [("random_seed: 1", "random_seed: 2")]}, "", "the seed is 2", "1"),
            ({}, {"net": [("scale: ", "scale: 1")]}, "", "the train net are not the same", "and"),
            (
                {"net": [FROZEN], "model": models[0]},
                {"net": [FROZEN], "model": models[1]},
                'weights: "base.caffemodel"',
                "the values that are not trained (lr_mult: 0, BatchNorm's statistics) are not the same",
                "and",
            ),
        )

    def check_machines(self, table):
        worker = "{} on worker {} (127.0.0.1, process "
        for of_old, of_new, training, said, said_of_old in table:
            with self.subTest(said):
                self.make_machine("old", **of_old)
                self.make_machine("new", **of_new)
                self.assert_machines_differ(
                    training, worker.format(said, 0), worker.format(said_of_old, 1), own_files=True
                )

    def make_machine(self, machine, *, net=(), solver=(), model=None):
        os.makedirs(self.path(machine), exist_ok=True)
        self.copy_net(*net)
        self.copy_solver((self.path("net.prototxt"), "net.prototxt"), *solver)
        for file in ("net.prototxt", "solver.prototxt"):
            os.replace(self.path(file), self.path(f"{machine}/{file}"))
        if model:
            shutil.copy(model, self.path(f"{machine}/base.caffemodel"))

    def on_machine(self, machine, name, program, *arguments):
        path = os.path.join(cluster.programs(), program)
        return self.spawn(name, ["env", "-C", self.path(machine), path, *arguments])

    def assert_machines_differ(self, training, *texts, own_files=False):
        port = f"cluster {{ scheduler_port: {cluster.free_port_pair()} servers: 1"
        config = self.config("", training).replace("cluster {", port).replace("servers: 2", "")
        if own_files:
            config = config.replace(self.path("solver.prototxt"), "solver.prototxt")
            config = config.replace("seed: 3", "")
        flag = f"--config={self.write('job.prototxt', config)}"
        nodes = [self.on_machine("old", f"scheduler-{len(texts[0])}", "poseidon_scheduler", flag)]
        nodes.append(self.on_machine("old", f"server-{len(texts[0])}", "poseidon_server", flag))
        for rank, machine in enumerate(("new", "old")):
            nodes.append(
                self.on_machine(
                    machine,
                    f"worker-{rank}-{len(texts[0])}",
                    "poseidon_worker",
                    flag,
                    f"--rank={rank}",
                )
            )
        for node in nodes:
            self.assertEqual(node.wait(), cluster.DATA_ERROR)
            for text in texts:
                self.assertIn(text, node.output())

    @unittest.skipIf(os.geteuid() != 0, "needs root to mount a small file system")
    def test_full_disk_leaves_the_old_snapshot(self):
        self.solver_with_snapshots()
        directory = self.path("snapshots")
        os.makedirs(directory, exist_ok=True)
        # Room for one snapshot (LeNet's values and momentum are 1.7 MB each) and a half.
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", directory],
            check=False,
            capture_output=True,
        )
        if mounted.returncode != 0:
            self.skipTest("can't mount a small file system here: " + mounted.stderr.decode())
        self.addCleanup(subprocess.run, ["umount", directory], check=False)
        run = self.start_run(self.config_of_one(""))
        self.assertNotEqual(run.wait(), cluster.SUCCESS)
        self.assertIn("No space left", run.output())
        self.assert_explained("full disk", "worker-0")
        self.assert_nothing_left(cluster.ENDING)
        # The next model may have found room, its state has not; nothing is there in part.
        self.assertEqual(
            [name for name in sorted(os.listdir(directory)) if "_20.caffe" not in name],
            [f"lenet_iter_{INTERVAL}.caffemodel", f"lenet_iter_{INTERVAL}.solverstate"],
        )
        os.makedirs(self.path("elsewhere"))
        for path in glob.glob(directory + "/*"):
            subprocess.run(["cp", path, self.path("elsewhere")], check=True)
        state = self.path(f"elsewhere/lenet_iter_{INTERVAL}.solverstate")
        self.copy_solver()
        self.run_job(self.config_of_one(f'snapshot: "{state}"', iterations=2 * INTERVAL))


if __name__ == "__main__":
    cluster.main()
