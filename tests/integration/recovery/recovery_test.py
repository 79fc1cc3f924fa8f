"""Daemons of a job with `recovery { mode: REPLACE }` die, hang and are cut off: the job goes on, and
ends with the bits of one that nothing happened to."""

import os
import random
import re
import shutil
import signal
import time

import cluster
import lenet
from told import tests_of, untold_iterations

ITERATIONS = 160
# Worker 0 tests so often, and each test is a line that tells how far the training is.
TEST_INTERVAL = 20
WORKERS, SERVERS = 3, 2
NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")
# The iteration to which all go back, and the next one, which some may have begun.
MOST_REDONE = 2


class RecoveryTest(lenet.LenetTest):
    """Trains a small LeNet deterministically."""

    small = True
    iterations = ITERATIONS
    results = ("iterations", "test_accuracy", "test_loss")
    # By policy, iterations and size: the summary of a training that nothing happens to, for all cases.
    undisturbed = {}

    def setUp(self):
        super().setUp()
        # At three times that rate, the demo's, one training of some hundred diverges with batches this small.
        self.copy_solver(
            ("base_lr: .*", "base_lr: 0.01"),
            ("test_interval: .*", f"test_interval: {TEST_INTERVAL}"),
            ("test_iter: .*", "test_iter: 1"),
        )

    def config(self, policy="BYTES", *, recovery="", cluster_fields=""):
        return f"""
            cluster {{ workers: {WORKERS} servers: {SERVERS} {cluster_fields} }}
            recovery {{ mode: REPLACE {recovery} }}
            communication {{
              policy: {policy} deterministic: true
              heartbeat_interval_seconds: {cluster.scaled(cluster.HEARTBEAT_INTERVAL)}
              heartbeat_deadline_seconds: {cluster.scaled(cluster.HEARTBEAT_DEADLINE)}
            }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {self.iterations}
              batch_per_worker: 8 seed: 3 threads: 1
            }}"""

    def reference(self, policy):
        """The summary of a training under the policy that nothing happens to, and what it has said of its tests."""
        key = (policy, self.iterations, self.small)
        if key not in self.undisturbed:
            path = self.write("undisturbed.prototxt", self.config(policy))
            out = self.path("undisturbed")
            run = self.start("poseidon", "run", f"--config={path}", f"--out={out}")
            self.assertEqual(run.wait(), cluster.SUCCESS)
            summary = self.read_json("undisturbed/summary.json")
            self.assertEqual(summary["recoveries"], [])
            self.undisturbed[key] = summary | {"tests": tests_of(run.output())}
        return self.undisturbed[key]

    def assert_as_undisturbed(self, policy, *lost):
        """The job has done what it does when nothing happens, but for these recoveries: the names of the
        nodes that each was for."""
        self.assert_nothing_left(cluster.ENDING)
        summary, undisturbed = self.read_json("out/summary.json"), self.reference(policy)
        self.assertEqual(
            self.assert_same_parameters(summary, WORKERS),
            self.assert_same_parameters(undisturbed, WORKERS),
        )
        for sums in ("loss", "duration_ms", "exposed_ms"):
            self.assertEqual(len(summary[sums]), self.iterations, sums)
        # The last ones that all had done, up to where the job went back to.
        untold = untold_iterations(summary, undisturbed)
        for iteration in untold - {recovery["iteration"] - 1 for recovery in summary["recoveries"]}:
            self.assertIn(iteration + 1, untold, "it told of the next one")
        for iteration, expected in enumerate(undisturbed["loss"]):
            if iteration in untold:
                continue
            # The workers' losses are added in the order in which they come, in float64.
            self.assertAlmostEqual(
                summary["loss"][iteration],
                expected,
                delta=WORKERS * 2.0**-52 * abs(expected),
                msg=f"iteration {iteration}",
            )
        for result in self.results:
            self.assertEqual(summary[result], undisturbed[result], result)
        self.assertEqual([worker["images"] for worker in summary["workers"]].count(0), 0)
        self.assert_recoveries(summary["recoveries"], lost)

    def assert_recoveries(self, recoveries, lost):
        self.assertEqual(len(recoveries), len(lost), recoveries)
        for recovery, names in zip(recoveries, lost):
            found = [re.sub(r" \(.*", "", node).replace(" ", "-") for node in recovery["lost"]]
            self.assertEqual(sorted(found), sorted(names), recovery)
            self.assert_makes_sense(recovery)

    def assert_makes_sense(self, recovery, iterations=None):
        self.assertNotEqual(recovery["cause"], "")
        self.assertTrue(0 <= recovery["iteration"] <= (iterations or self.iterations), recovery)
        self.assertTrue(0 <= recovery["redone_iterations"] <= MOST_REDONE, recovery)
        self.assertGreaterEqual(recovery["detected_ms"], 0, recovery)
        self.assertGreater(recovery["restored_ms"], 0, recovery)
        self.assertGreaterEqual(recovery["still_ms"], recovery["restored_ms"], recovery)
        total = recovery["detected_ms"] + recovery["restored_ms"]
        self.assertAlmostEqual(recovery["total_ms"], total, msg=recovery)

    def kill(self, name):
        """One that `poseidon run` has started, or has started again."""
        role, _, rank = name.partition("-")
        pid = self.pid_of(role, rank or None)
        os.kill(pid, signal.SIGKILL)
        return pid

    def start_killing(self, policy, *names):
        run = self.start_run(self.config(policy))
        run.await_output(tested_at(TEST_INTERVAL))
        for name in names:
            self.kill(name)
        return run

    def check(self, policy, *names):
        run = self.start_killing(policy, *names)
        self.assertEqual(run.wait(), cluster.SUCCESS)
        for name in names:
            self.assertIn(
                f"{name} was killed by signal 9 (SIGKILL); it is started again\n", run.output()
            )
        for name in names:
            # That the process has ended, or, if a new one needs long to start, its silence.
            self.assertRegex(run.output(), rf"lost .*{name.replace('-', ' ')} \(.*\).*: ")
        self.assert_as_undisturbed(policy, names)


def tested_at(iteration):
    return rf"test at iteration {iteration}:"


class RestartedJobTest(RecoveryTest):
    """What is not recovered is run again from its newest snapshot."""

    def test_scheduler(self):
        prefix = self.path("lenet")
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as solver:
            solver.write(f'snapshot: 25 snapshot_prefix: "{prefix}" snapshot_after_train: false\n')
        config = self.config().replace("recovery { mode: REPLACE  }", "")
        # What ends here is killed. On a busy machine a job may gather for longer than heartbeats of
        # these tests may be late.
        config = cluster.with_heartbeat_deadline(config, cluster.scaled(30))
        run = self.start_run(config, "--restarts=1")
        run.await_output(tested_at(3 * TEST_INTERVAL))
        os.kill(self.pid_of("scheduler"), signal.SIGKILL)
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertRegex(
            run.output(), r"the job starts again from .*lenet_iter_[0-9]+\.solverstate"
        )
        self.assertIn("(restart 1 of 1); the logs are in", run.output())
        self.assertTrue(os.path.exists(self.path("out/logs.1/worker-0.log")))
        self.assertEqual(
            self.assert_same_parameters(self.read_json("out/summary.json"), WORKERS),
            self.assert_same_parameters(self.reference("BYTES"), WORKERS),
        )


class RestartedByRunTest(RecoveryTest):
    """`poseidon run` starts what is killed again."""

    @cluster.slow
    def test_worker(self):
        self.check("ALL_RING", "worker-1")

    def test_worker_0_and_a_server_at_once(self):
        self.check("BYTES", "worker-0", "server-1")

    @cluster.slow
    def test_server_that_updates(self):
        """What it owned its backup has, and what it backed up its owner."""
        self.check("BYTES update_at: SERVERS", "server-1")
        with open(self.path("out/logs/scheduler.log"), encoding="utf-8") as log:
            self.assertIn("servers of one machine back each other up", log.read())

    @cluster.slow
    def test_nodes_of_a_job_whose_servers_update(self):
        for policy in ("ALL_PS update_at: SERVERS", "ALL_ADAM"):
            for names in (("server-0",), ("worker-0",), ("server-1", "worker-2")):
                with self.subTest(policy=policy, names=names):
                    self.check(policy, *names)

    @cluster.slow
    def test_both_servers_that_update(self):
        run = self.start_killing("ALL_PS update_at: SERVERS", "server-0", "server-1")
        self.assertEqual(run.wait(), cluster.PEER_LOST)
        self.assertIn("lost both servers that kept a part of the parameters", run.output())
        self.assert_nothing_left(cluster.ENDING)

    def test_scheduler_twice(self):
        """Nobody stops for it, and the last one tells what all have seen."""
        self.iterations = 3 * ITERATIONS  # so that training is under way when the next one is there
        run = self.start_killing("BYTES", "scheduler")
        run.await_output("training went on without a scheduler")
        self.kill("scheduler")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        for text in ("9 (SIGKILL); it is started again", "training went on without a scheduler"):
            self.assertEqual(run.output().count(text), 2, text)
        self.assert_as_undisturbed("BYTES")
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["scheduler_restarts"], 2)
        # Of a job that has ended another one says what the last has said.
        arguments = [f"--config={self.path('out/job.prototxt')}", f"--out={self.path('out')}"]
        again = self.start("poseidon_scheduler", *arguments, name="again")
        self.assertEqual(again.wait(), cluster.SUCCESS)
        self.assertIn("has ended already: training is finished; to run it anew", again.output())
        summary["scheduler_restarts"] = 3
        self.assertEqual(self.read_json("out/summary.json"), summary)

    @cluster.slow
    def test_each_alone(self):
        for policy in ("ALL_PS", "ALL_SFB"):
            for name in ("worker-0", "worker-2", "server-0", "server-1"):
                with self.subTest(policy=policy, name=name):
                    self.check(policy, name)

    @cluster.slow
    def test_all_but_one_worker_at_once(self):
        """The servers have nothing that the workers lack, and one worker has all."""
        self.check("BYTES", *(name for name in NODES[1:] if name != "worker-2"))

    @cluster.slow
    def test_same_rank_twice_in_a_row(self):
        for name in ("worker-1", "worker-0", "server-0"):
            with self.subTest(name):
                run = self.start_killing("BYTES", name)
                run.await_output(tested_at(3 * TEST_INTERVAL))
                self.kill(name)
                self.assertEqual(run.wait(), cluster.SUCCESS)
                self.assert_as_undisturbed("BYTES", [name], [name])

    @cluster.slow
    def test_replacement_killed_while_it_starts(self):
        run = self.start_killing("BYTES", "worker-1")
        run.await_output("it is started again")
        self.await_restart("worker-1", 1)
        self.kill("worker-1")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertIn("it is started again in 0.5", run.output())
        self.assertIn("worker 1", self.read_json("out/summary.json")["recoveries"][0]["lost"][0])
        self.assert_as_undisturbed("BYTES", *[["worker-1"]] * self.recoveries())

    @cluster.slow
    def test_another_killed_at_any_moment_of_a_recovery(self):
        """Between a death and the moment when training goes on."""
        self.iterations = 3 * ITERATIONS  # so that training is not done by then
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        for attempt in range(12):
            first, second = draw.sample(NODES[1:], 2)
            delay = draw.uniform(0, 1.5)
            with self.subTest(seed=seed, attempt=attempt, kills=(first, second), delay=delay):
                run = self.start_killing("BYTES", first)
                time.sleep(delay)  # the moment is what is tried
                self.kill(second)
                self.assertEqual(run.wait(), cluster.SUCCESS)
                lost = [[first, second]] if self.recoveries() == 1 else [[first], [second]]
                self.assert_as_undisturbed("BYTES", *lost)

    def recoveries(self):
        return len(self.read_json("out/summary.json")["recoveries"])

    def await_restart(self, name, number):
        """Until another process of this name has its log and runs its program."""
        path = self.path(f"out/logs/{name}.restart-{number}.log")
        role, _, rank = name.partition("-")
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while not os.path.exists(path) or self.find_pid(role, rank) is None:
            self.assertLess(time.monotonic(), deadline, f"{name} was not started again")
            time.sleep(0.01)

    @cluster.slow
    def test_all_workers(self):
        run = self.start_killing("BYTES", "worker-0", "worker-1", "worker-2")
        self.assertEqual(run.wait(), cluster.PEER_LOST)
        self.assertIn("lost every node that had the parameters", run.output())
        self.assert_nothing_left(cluster.ENDING)


class DevicesTest(RecoveryTest):
    """Workers with two devices each."""

    undisturbed = {}

    def config(self, policy="BYTES", **fields):
        return super().config(policy, cluster_fields="devices_per_worker: 2", **fields)

    @cluster.slow
    def test_under_each_scheme(self):
        for policy in ("ALL_PS", "ALL_SFB", "ALL_RING"):
            for names in (("worker-0",), ("worker-2", "server-0")):
                with self.subTest(policy=policy, names=names):
                    self.check(policy, *names)


class RefusedTest(RecoveryTest):
    """What can't go back is told so before anybody trains."""

    def assert_refused(self, *arguments, text, config=None):
        run = self.start_run(config or self.config(), *arguments)
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR, run.output())
        self.assertIn(text, run.output())
        self.assert_nothing_left(cluster.ENDING)

    def test_updates_by_the_only_server(self):
        self.assert_refused(
            config=self.config("ALL_PS update_at: SERVERS").replace(
                f"servers: {SERVERS}", "servers: 1"
            ),
            text="communication.update_at: the only server keeps the optimizer state",
        )

    def test_patched_program(self):
        config = self.write(
            "config.prototxt",
            self.config(cluster_fields=f"scheduler_port: {cluster.free_port_pair()}"),
        )
        program = self.start(
            "../tests/patched_program",
            f"--config={config}",
            f"--out={self.path('out')}",
            "--rank=0",
            "--batch=8",
            f"--solver={self.path('solver.prototxt')}",
            name="patched",
        )
        self.assertEqual(program.wait(), cluster.CONFIG_ERROR)
        self.assertIn("recovery.mode: this program can't go back", program.output())


class StartedByHandTest(RecoveryTest):
    """Nobody starts anything again but the test, and nobody says who is dead but the heartbeat."""

    def start_daemons(self, recovery=""):
        self.text = self.config(
            recovery=recovery, cluster_fields=f"scheduler_port: {cluster.free_port_pair()}"
        )
        shutil.rmtree(self.path("out"), ignore_errors=True)  # with an earlier job's journal
        daemons = self.start_by_hand(self.text, NODES)
        daemons["scheduler"].await_output(tested_at(TEST_INTERVAL))
        return daemons

    def replace(self, daemons, name, *arguments):
        """Another process takes the rank; the one before stays under another name."""
        before = daemons[name]
        role, _, rank = name.partition("-")
        daemons[name] = self.start(
            f"poseidon_{role}",
            f"--config={self.path('config.prototxt')}",
            f"--out={self.path('out')}",
            f"--rank={rank}",
            *arguments,
            name=f"{name}-after-{before.pid}",
        )
        return before

    def await_loss(self, daemons, *names):
        lost = ", ".join(self.describe(daemons, name) for name in names)
        daemons["scheduler"].await_output(
            re.escape(f"lost {lost}: no heartbeat for "), cluster.END_TIME
        )

    def test_stopped_worker(self):
        """What was believed dead and is not changes nothing, and is told that it is over."""
        daemons = self.start_daemons()
        daemons["worker-1"].signal(signal.SIGSTOP)
        self.await_loss(daemons, "worker-1")
        zombie = self.replace(daemons, "worker-1")
        zombie.signal(signal.SIGCONT)
        self.assertEqual(zombie.wait(cluster.END_TIME), cluster.GIVEN_UP)
        self.assertRegex(
            zombie.output(),
            r"the job goes on without this node \(no heartbeat for \d s\); start it again",
        )
        self.assert_all_succeed(daemons)
        self.assert_as_undisturbed("BYTES", ["worker-1"])

    @cluster.slow
    def test_stopped_nodes_that_go_on_later(self):
        """They go on when the others do, with another in their place."""
        for name in ("worker-0", "worker-2", "server-1"):
            with self.subTest(name):
                daemons = self.start_daemons()
                daemons[name].signal(signal.SIGSTOP)
                self.await_loss(daemons, name)
                zombie = self.replace(daemons, name)
                daemons["scheduler"].await_output("goes on from iteration")
                zombie.signal(signal.SIGCONT)
                self.assert_all_succeed(daemons)
                self.assertIn(zombie.wait(cluster.END_TIME), (cluster.GIVEN_UP, cluster.PEER_LOST))
                self.assert_as_undisturbed("BYTES", [name])

    @cluster.slow
    def test_killed(self):
        for names in (["worker-0"], ["worker-1"], ["server-0"], ["worker-2", "server-1"]):
            with self.subTest(names):
                daemons = self.start_daemons()
                for name in names:
                    daemons[name].signal(signal.SIGKILL)
                daemons["scheduler"].await_output("no heartbeat for", cluster.END_TIME)
                for name in names:
                    self.replace(daemons, name)
                self.assert_all_succeed(daemons)
                self.assert_as_undisturbed("BYTES", names)

    @cluster.slow
    def test_another_killed_while_the_others_wait(self):
        for first, second in (
            ("worker-1", "worker-0"),
            ("server-0", "worker-2"),
            ("worker-0", "server-1"),
        ):
            with self.subTest(first=first, second=second):
                daemons = self.start_daemons()
                daemons[first].signal(signal.SIGKILL)
                self.await_loss(daemons, first)
                daemons[second].signal(signal.SIGKILL)
                self.replace(daemons, first)
                self.await_loss(daemons, second)
                self.replace(daemons, second)
                self.assert_all_succeed(daemons)
                self.assert_as_undisturbed("BYTES", [first, second])

    @cluster.slow
    def test_replacement_that_is_there_before_the_verdict(self):
        """It waits until the heartbeat says that its rank is free."""
        daemons = self.start_daemons()
        daemons["worker-1"].signal(signal.SIGKILL)
        self.replace(daemons, "worker-1")
        self.assert_all_succeed(daemons)
        self.assert_as_undisturbed("BYTES", ["worker-1"])

    @cluster.slow
    def test_nobody_takes_the_place(self):
        daemons = self.start_daemons("replacement_deadline_seconds: 1")
        daemons["server-1"].signal(signal.SIGKILL)
        self.assert_others_end(
            daemons,
            "server-1",
            text=f"lost {self.describe(daemons, 'server-1')}",
            code=cluster.DEADLINE_EXCEEDED,
            seconds=cluster.END_TIME + cluster.scaled(1),
        )
        self.assertIn("recovery.replacement_deadline_seconds", daemons["scheduler"].output())


class ManyServersTest(cluster.ClusterTest):
    """A machine with several servers is started again: they come back one after the other."""

    SERVERS = 5

    def start_server(self, rank, incarnation, *arguments):
        return self.start(
            "poseidon_server",
            f"--config={self.path('config.prototxt')}",
            f"--rank={rank}",
            f"--incarnation={incarnation}",
            *arguments,
        )

    @cluster.slow
    def test_each_is_replaced_alone(self):
        config = cluster.replay_config(
            workers=1,
            servers=self.SERVERS,
            iterations=400,
            cluster=f"scheduler_port: {cluster.free_port_pair()}",
        )
        config += "recovery { mode: REPLACE }"
        daemons = self.start_by_hand(config, ("scheduler", "worker-0"))
        old = [self.start_server(rank, 1 + rank) for rank in range(self.SERVERS)]
        daemons["scheduler"].await_output("iteration ")
        for server in old:
            server.signal(signal.SIGKILL)
        for rank in range(self.SERVERS):
            daemons[f"server-{rank}"] = self.start_server(
                rank, 100 + rank, f"--replaces={1 + rank}"
            )
            daemons["scheduler"].await_output(rf"lost server {rank} \(")
        self.assert_all_succeed(daemons)
        self.assertEqual(len(self.read_json("out/summary.json")["recoveries"]), 1)


if __name__ == "__main__":
    cluster.main()
