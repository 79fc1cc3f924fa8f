"""Who takes the place of a daemon that dies, where daemons are started by hand: another process that
`poseidon keep` starts, or a spare."""

import glob
import os
import re
import signal
import subprocess
import time

import cluster
from frozen_thread import await_end, frozen_thread
from recovery_test import (
    ITERATIONS,
    NODES,
    SERVERS,
    TEST_INTERVAL,
    WORKERS,
    RecoveryTest,
    tested_at,
)
from told import tests_of

# Longer than another process needs to start on the busiest machine: what is noticed before is not a silence.
LONG_DEADLINE = 30.0
# A tenth of the usual one: nobody waits for a silence where the scheduler is told.
TOLD_MS = cluster.HEARTBEAT_DEADLINE * 1e3 / 10

# Another process needs a second to start, on a busy machine several.
LONG = 3 * ITERATIONS


class StoppedTest(RecoveryTest):
    """A job that ends when its test has seen all, however long another process needs to start."""

    def assert_stopped_as_undisturbed(self, said, policy, *lost):
        """As assert_as_undisturbed, of a job of ENDLESS iterations that a signal has stopped, which is held
        against one of as many as it has done. `said`: by its scheduler."""
        self.iterations = self.read_json("out/summary.json")["iterations"]
        # Who stops a training does not test at its end.
        self.results = ("iterations",)
        self.assert_as_undisturbed(policy, *lost)
        self.assertIn(tests_of(said)[-1], self.reference(policy)["tests"])


class KeptTest(StoppedTest):
    """Each daemon is kept by a `poseidon keep` of its own."""

    def start_kept(self, *, stall_deadline=300):
        """Keepers of a job that has begun to train."""
        text = self.config(cluster_fields=f"scheduler_port: {cluster.free_port_pair()}").replace(
            "communication {",
            f"communication {{ stall_deadline_seconds: {cluster.scaled(stall_deadline)}",
        )
        keepers = self.start_keepers(text)
        keepers["scheduler"].await_output(tested_at(TEST_INTERVAL))
        return keepers

    def start_keepers(self, text):
        path = self.write(
            "config.prototxt", cluster.with_heartbeat_deadline(text, cluster.scaled(LONG_DEADLINE))
        )
        keepers = {}
        for name in NODES:
            role, _, rank = name.partition("-")
            daemon = [f"poseidon_{role}", f"--config={path}", f"--out={self.path('out')}"]
            daemon.append(f"--rank={rank}" if rank else "--sigint_effect=stop")
            keepers[name] = self.start("poseidon", "keep", "--", *daemon, name=name)
        return keepers

    def test_each_is_started_again(self):
        self.iterations = cluster.ENDLESS
        keepers = self.start_kept()
        for name in ("worker-0", "server-1", "scheduler"):
            self.kill(name)
            keepers[name].await_output(
                rf"poseidon_{name.partition('-')[0]} was killed by signal 9 \(SIGKILL\); it is "
                "started again\n"
            )
            if name != "scheduler":
                lost = name.replace("-", " ")
                keepers["scheduler"].await_output(rf"lost {lost} \(.*\): its process has ended")
                keepers["scheduler"].await_output(rf"lost {lost} (.*\n)+goes on from iteration")
        scheduler = keepers.pop("scheduler")
        scheduler.await_output(rf"training went on without a scheduler(.*\n)+{tested_at('.*')}")
        os.kill(self.pid_of("scheduler"), signal.SIGINT)
        self.assertEqual(scheduler.wait(), cluster.INTERRUPTED)
        self.assert_all_succeed(keepers)
        self.assert_stopped_as_undisturbed(scheduler.output(), "BYTES", ["worker-0"], ["server-1"])
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["scheduler_restarts"], 1)
        for recovery in summary["recoveries"]:
            self.assertLess(recovery["detected_ms"], cluster.scaled(TOLD_MS))

    @cluster.slow
    def test_one_that_hangs_is_started_again(self):
        """Its heartbeats go on, and its keeper learns of it by its end."""
        self.iterations = LONG
        keepers = self.start_kept(stall_deadline=5)
        pid = self.pid_of("worker", "1")
        with frozen_thread(self, pid, "poseidon_torch_") as thread:
            # It stops the exchange by other threads, unless the frozen one has what they need.
            hangs = "did not (get ready to train|stop the exchange)"
            keepers["scheduler"].await_output(f"lost worker 1 .* {hangs}")
            await_end(self, thread, cluster.HANGING + cluster.ENDING)
        self.assert_all_succeed(keepers)
        self.assertRegex(
            keepers["worker-1"].output(),
            "; this process was told so 30s ago and hangs, so it is ended\n"
            "(.*\n)*.*poseidon_worker exited with code 8.*; it is started again",
        )
        self.assert_as_undisturbed("BYTES", ["worker-1"])

    def test_a_signal_is_the_daemons(self):
        """A keeper that is asked to end ends its daemon, and the job with it in an orderly way."""
        config = cluster.replay_config(
            workers=WORKERS,
            iterations=cluster.ENDLESS,
            cluster=f"scheduler_port: {cluster.free_port_pair()}",
        )
        keepers = self.start_keepers(config + "recovery { mode: REPLACE }")
        keepers["scheduler"].await_output("iteration ")
        keepers["scheduler"].signal(signal.SIGTERM)
        for name, keeper in keepers.items():
            self.assertNotEqual(keeper.wait(cluster.END_TIME), cluster.SUCCESS, name)
            self.assertNotIn("it is started again", keeper.output())
        self.assert_nothing_left(cluster.ENDING)

    def assert_refused(self, *arguments, text):
        kept = self.start("poseidon", "keep", *arguments)
        self.assertEqual(kept.wait(), cluster.CONFIG_ERROR)
        self.assertIn(text, kept.output())

    def test_what_can_not_be_kept(self):
        self.assert_refused(text="there is no daemon to keep; name it and its flags behind")
        self.assert_refused("--", text='there is no program behind "--"')
        self.assert_refused("--", "sleep", "5", text='"sleep" is none of them')
        self.assert_refused(
            "--", "poseidon_worker", "--incarnation=5", text="leave --incarnation out"
        )
        # A word that only looks like one of them is the daemon's affair.
        self.assert_refused(
            "--", "poseidon_worker", "a/replaces.prototxt", text="--config is missing"
        )
        # What the daemon refuses it would refuse again.
        self.assert_refused("--", "poseidon_worker", "--config=/nowhere", text="/nowhere")


class SpareTest(StoppedTest):
    """Processes that wait take lost ranks when the heartbeat says so."""

    def config(self, policy="BYTES", *, recovery="", cluster_fields=""):
        return super().config(
            policy,
            recovery=recovery + " spare_workers: 1 spare_servers: 1",
            cluster_fields=cluster_fields,
        )

    def start_with_spares(self):
        text = self.config(cluster_fields=f"scheduler_port: {cluster.free_port_pair()}")
        daemons = self.start_by_hand(text, NODES, flags={"scheduler": ["--sigint_effect=stop"]})
        # Whoever is there when the job begins may be needed for it.
        daemons["scheduler"].await_output("all .* nodes have joined")
        for role in ("worker", "server"):
            spare = f"spare-{role}"
            daemons[spare] = self.start(
                f"poseidon_{role}", f"--config={self.path('config.prototxt')}", name=spare
            )
        for role in ("worker", "server"):
            daemons["scheduler"].await_output(
                rf"{role} .*, process {daemons[f'spare-{role}'].pid}\) waits as a spare"
            )
        return daemons

    def test_spares_take_lost_ranks(self):
        self.iterations = cluster.ENDLESS
        daemons = self.start_with_spares()
        for name in ("worker-2", "server-0"):
            daemons.pop(name).signal(signal.SIGKILL)
        scheduler = daemons["scheduler"]
        for taken in ("worker 2", "server 0"):
            scheduler.await_output(
                rf"{taken} \(.*, a spare, takes the place(.*\n)+goes on from (.*\n)+{tested_at('.*')}"
            )
        scheduler.signal(signal.SIGINT)
        self.assertEqual(scheduler.wait(), cluster.INTERRUPTED)
        del daemons["scheduler"]
        self.assert_all_succeed(daemons)
        for role, rank in (("worker", 2), ("server", 0)):
            spare = daemons[f"spare-{role}"]
            self.assertRegex(
                scheduler.output(),
                rf"{role} {rank} \(127.0.0.1, process {spare.pid}\), a spare, takes the place",
            )
        lost = [["server-0", "worker-2"]]
        if len(self.read_json("out/summary.json")["recoveries"]) == 2:
            # One of them was not silent for long enough when the other was given up.
            lost = sorted([["server-0"], ["worker-2"]], key=self.position)
        self.assert_stopped_as_undisturbed(scheduler.output(), "BYTES", *lost)

    def position(self, names):
        """Of a loss in what the scheduler has said."""
        output = self.processes[0].output()
        return re.search(f"lost {names[0].replace('-', ' ')} ", output).start()

    @cluster.slow
    def test_not_needed(self):
        self.small = False  # spares are there before the training ends
        self.copy_net()
        daemons = self.start_with_spares()
        self.assert_all_succeed(daemons)
        for role in ("worker", "server"):
            self.assertIn("was not needed: ", daemons[f"spare-{role}"].output())
        self.assert_as_undisturbed("BYTES")

    def test_only_where_ranks_are_given_again(self):
        path = self.write("config.prototxt", self.config().replace("mode: REPLACE", "mode: SHRINK"))
        planned = subprocess.run(
            [f"{cluster.programs()}/poseidon", "run", f"--config={path}"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(planned.returncode, cluster.CONFIG_ERROR)
        self.assertIn(
            "recovery.spare_workers: only recovery.mode REPLACE gives a lost one's rank to another "
            "process",
            planned.stdout + planned.stderr,
        )


class SnapshotsTest(RecoveryTest):
    """A job looks for its newest snapshot when it begins, and whoever takes a place later does not begin it."""

    iterations = LONG
    INTERVAL = 40

    def setUp(self):
        super().setUp()
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as solver:
            solver.write(f'snapshot: {self.INTERVAL} snapshot_prefix: "{self.path("lenet")}"\n')
        self.reference("BYTES")
        for path in self.snapshots():
            os.remove(path)

    def snapshots(self):
        return glob.glob(self.path("lenet_iter_*"))

    @cluster.slow
    def test_were_written_since(self):
        latest = self.config().replace("training {", 'training { snapshot: "latest"')
        run = self.start_run(latest)
        for number, name in enumerate(("worker-1", "worker-0"), start=1):
            end = time.monotonic() + cluster.PATIENCE
            while len(self.snapshots()) < 4 * number:
                self.assertLess(time.monotonic(), end, run.output())
                time.sleep(0.02)
            self.kill(name)
            run.await_output(f"lost {name.replace('-', ' ')} ")
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertEqual(len(self.snapshots()), 2 * self.iterations // self.INTERVAL)
        self.assert_as_undisturbed("BYTES", ["worker-1"], ["worker-0"])


class StatisticsTest(RecoveryTest):
    """Those of BatchNorm go back with their worker, and come to whoever takes a lost one's place; what is not
    trained comes to it, too."""

    undisturbed = {}
    BEGUN = 10  # iterations
    snapshot = ""

    def setUp(self):
        super().setUp()
        with open(self.path("net.prototxt"), encoding="utf-8") as file:
            net = file.read()
        norm = """
            layer {
              name: "norm" type: "BatchNorm" bottom: "conv1" top: "conv1"
              param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }
            }
            """
        # Behind the layer that it normalizes.
        head, conv1, tail = net.partition('name: "conv1"')
        end = tail.index("\nlayer")
        self.write("net.prototxt", head + conv1 + tail[:end] + norm + tail[end:])
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as solver:
            solver.write(f'snapshot_prefix: "{self.path("normalized")}"\n')

    def model(self):
        with open(self.path(f"normalized_iter_{ITERATIONS}.caffemodel"), "rb") as file:
            return file.read()

    @cluster.slow
    def test_another_workers(self):
        """Tests and snapshots are with worker 0's, which has been in all iterations once."""
        self.reference("BYTES")
        undisturbed = self.model()
        self.check("BYTES", "worker-1")
        self.assertEqual(self.model(), undisturbed)

    def test_worker_0s(self):
        """Its place is another's, which goes on with the statistics of another worker. Before, that of worker 1
        is taken by one that lacks the snapshot of the start, which has the values of what is not trained.
        """
        self.begin()
        reference = self.reference("BYTES")
        run = self.start_run(self.config())
        run.await_output(tested_at(TEST_INTERVAL))
        snapshot = glob.glob(self.path(f"normalized_iter_{self.BEGUN}.*"))
        for path in snapshot:
            os.rename(path, path + ".moved")
        self.kill("worker-1")
        run.await_output(r"lost worker 1 (.*\n)+goes on from iteration")
        for path in snapshot:
            os.rename(path + ".moved", path)
        self.kill("worker-0")
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        summary = self.read_json("out/summary.json")
        self.assertEqual(
            self.assert_same_parameters(summary, WORKERS),
            self.assert_same_parameters(reference, WORKERS),
        )
        for name, replaced in (
            ("worker-1", "values of what is not trained, "),
            ("worker-0", "statistics, of "),
        ):
            with open(self.path(f"out/logs/{name}.restart-1.log"), encoding="utf-8") as log:
                self.assertRegex(log.read(), rf"has another worker's {replaced}\d+ numbers")
        # Each worker's statistics are of other samples of the same data.
        self.assertAlmostEqual(summary["test_loss"], reference["test_loss"], delta=0.1)

    def test_who_lacks_the_weights(self):
        """Whoever takes a place gets their values from the others, whether it has no file or a damaged one."""
        self.begin()
        weights = self.path(f"normalized_iter_{self.BEGUN}.caffemodel")
        self.snapshot = f'weights: "{weights}"'
        run = self.start_run(self.config())
        run.await_output(tested_at(TEST_INTERVAL))
        os.truncate(weights, os.path.getsize(weights) // 2)
        self.kill("worker-1")
        run.await_output(r"lost worker 1 (.*\n)+goes on from iteration")
        os.remove(weights)
        self.kill("worker-0")
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assert_same_parameters(self.read_json("out/summary.json"), WORKERS)
        for name in ("worker-1", "worker-0"):
            with open(self.path(f"out/logs/{name}.restart-1.log"), encoding="utf-8") as log:
                self.assertRegex(
                    log.read(), r"has another worker's values of what is not trained, \d+ numbers"
                )

    def begin(self):
        """Has trainings begin at a snapshot, with a layer that is not trained and values of another seed in it."""
        with open(self.path("net.prototxt"), encoding="utf-8") as file:
            head, ip1, tail = file.read().partition('name: "ip1"')
        for rate in (1, 2):
            tail = tail.replace(f"lr_mult: {rate}", "lr_mult: 0", 1)
        self.write("net.prototxt", head + ip1 + tail)
        begun = self.config().replace("seed: 3", "seed: 4")
        for old, new in (
            (f"iterations: {self.iterations}", f"iterations: {self.BEGUN}"),
            (f"workers: {WORKERS}", "workers: 1"),
        ):
            self.assertIn(old, begun)
            begun = begun.replace(old, new)
        self.run_job(begun)
        self.snapshot = f'snapshot: "{self.path(f"normalized_iter_{self.BEGUN}.solverstate")}"'
        self.undisturbed = {}  # of other cases, which begin otherwise

    def config(self, policy="BYTES", **options):
        return (
            super().config(policy, **options).replace("training {", f"training {{ {self.snapshot}")
        )


class AnotherNetTest(RecoveryTest):
    """Somebody has changed the net's file since the others read it."""

    iterations = LONG

    def test_who_takes_the_place_is_refused(self):
        run = self.start_run(self.config())
        run.await_output(tested_at(TEST_INTERVAL))
        with open(self.path("net.prototxt"), encoding="utf-8") as file:
            net = file.read()
        # Both inner products are of other sizes then.
        changed = re.sub(r'(name: "ip1".*?num_output: )\d+', r"\g<1>77", net, flags=re.DOTALL)
        self.assertNotEqual(changed, net)
        self.write("net.prototxt", changed)
        self.kill("worker-1")
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR)
        self.assertRegex(
            run.output(), "must (read the same net and solver files|train the same one)"
        )
        self.assert_nothing_left(cluster.ENDING)
        with open(self.path("out/logs/worker-1.restart-1.log"), encoding="utf-8") as log:
            self.assertNotIn("Check failed", log.read())


class NobodyTest(RecoveryTest):
    """Nobody takes the place, and the others go on without."""

    def test_the_others_go_on(self):
        text = self.config(
            recovery="replacement_deadline_seconds: 0.5 otherwise: SHRINK",
            cluster_fields=f"scheduler_port: {cluster.free_port_pair()}",
        )
        daemons = self.start_by_hand(text, NODES)
        daemons["scheduler"].await_output(tested_at(TEST_INTERVAL))
        daemons.pop("worker-0").signal(signal.SIGKILL)
        daemons["scheduler"].await_output("waiting for another process to be worker 0")
        self.assert_all_succeed(daemons)
        self.assertIn(
            f"goes on with {WORKERS - 1} of {WORKERS} workers and {SERVERS} of {SERVERS} servers",
            daemons["scheduler"].output(),
        )
        summary = self.read_json("out/summary.json")
        self.assertEqual([worker["rank"] for worker in summary["workers"]], [1, 2])
        self.assertEqual(len({worker["parameter_hash"] for worker in summary["workers"]}), 1)
        self.assertEqual([tenure["workers"] for tenure in summary["tenures"]], [3, 2])
        # It has tested with what worker 0 can do no more.
        daemons["scheduler"].await_output(tested_at(ITERATIONS))


if __name__ == "__main__":
    cluster.main()
