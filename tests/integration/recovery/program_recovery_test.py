"""Programs that use the front door go back when their job has lost a node, and end with the bits of one that nothing
happened to."""

import os
import pathlib
import re
import shutil
import signal
import time

import cluster

ITERATIONS = 300
WORKERS, SERVERS = 3, 2
KILL_AT = 50  # with the pauses of going_back.cc the training goes on for a second and a half
PROGRAM = "../tests/going_back"


class ProgramRecoveryTest(cluster.ClusterTest):
    # By communication: the hash of the parameters that a training ends with.
    undisturbed = {}

    def config(self, communication, *, recovery="mode: REPLACE"):
        return f"""
            cluster {{ workers: {WORKERS} servers: {SERVERS} }}
            recovery {{ {recovery} }}
            communication {{ {communication} deterministic: true kv_pair_bytes: 1024 }}"""

    def program(self, *arguments):
        return ("--", os.path.join(cluster.programs(), PROGRAM), str(ITERATIONS), *arguments)

    def reference(self, communication):
        if communication not in self.undisturbed:
            config = self.config(communication, recovery="mode: NONE")
            path = self.write("undisturbed.prototxt", config)
            out = self.path("undisturbed")
            run = self.start("poseidon", "run", f"--config={path}", f"--out={out}", *self.program())
            self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
            summary = self.read_json("undisturbed/summary.json")
            # Told with the last iteration, which counts as done all the same.
            self.assertEqual(summary["test_accuracy"], 0.5)
            self.assertEqual(len(summary["loss"]), ITERATIONS)
            self.assertNotIn(None, summary["loss"])
            self.undisturbed[communication] = self.assert_same_parameters(summary, WORKERS)
        return self.undisturbed[communication]

    def log(self, name):
        """Empty while there is none."""
        path = pathlib.Path(self.path(f"out/logs/{name}.log"))
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def pid_of_node(self, name):
        """Of a daemon, or of the program that worker-0, ... is."""
        role, _, rank = name.partition("-")
        if role != "worker":
            return self.pid_of(role, rank or None)
        return int(re.search(r"is process (\d+)", self.log(name)).group(1))

    def await_iteration(self):
        end = time.monotonic() + cluster.PATIENCE
        while f"iteration {KILL_AT}\n" not in self.log("worker-0"):
            self.assertLess(time.monotonic(), end, self.log("worker-0"))
            time.sleep(0.01)

    def check(self, communication, *names):
        expected = self.reference(communication)
        shutil.rmtree(self.path("out"), ignore_errors=True)  # of the case before
        run = self.start_run(self.config(communication), *self.program())
        self.await_iteration()
        # At once: all are looked up before, which takes longer than replacing one does.
        for process in [self.pid_of_node(name) for name in names]:
            os.kill(process, signal.SIGKILL)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assert_nothing_left(cluster.ENDING)
        summary = self.read_json("out/summary.json")
        self.assertEqual(self.assert_same_parameters(summary, WORKERS), expected)
        self.assertEqual(summary["iterations"], ITERATIONS)
        self.assertEqual(len(summary["recoveries"]), 1, run.output())
        for name in names:
            if name.startswith("worker"):
                begin = re.search(r"at iteration (\d+)", self.log(f"{name}.restart-1"))
                self.assertEqual(int(begin.group(1)), summary["recoveries"][0]["iteration"])

    def test_worker(self):
        self.check("policy: ALL_RING", "worker-1")

    def test_worker_0_and_a_server_where_servers_update(self):
        self.check("policy: ALL_PS update_at: SERVERS", "worker-0", "server-1")

    @cluster.slow
    def test_worker_that_hangs_while_it_is_heard(self):
        """Its heartbeats go on, and it never hears that it was given up. The others wait for a minute until
        it is, as when nodes get ready for a plan."""
        communication = "policy: ALL_PS"
        expected = self.reference(communication)
        deadline = f"stall_deadline_seconds: {cluster.scaled(2)}"
        run = self.start_run(self.config(f"{communication} {deadline}"), *self.program("hang"))
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assert_nothing_left(cluster.ENDING)
        self.assertRegex(
            run.output(), r"worker-1 has been given up by the scheduler \(.*\) and does not end"
        )
        summary = self.read_json("out/summary.json")
        self.assertEqual(self.assert_same_parameters(summary, WORKERS), expected)
        lost = [name for recovery in summary["recoveries"] for name in recovery["lost"]]
        self.assertEqual([re.sub(r" \(.*", "", name) for name in lost], ["worker 1"])

    def test_mistakes_in_going_back_are_named(self):
        """And harm nothing: what has to come next can come then."""
        run = self.start_run(
            self.config("policy: ALL_PS update_at: SERVERS"), *self.program("careless")
        )
        self.await_iteration()
        os.kill(self.pid_of_node("worker-1"), signal.SIGKILL)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assert_nothing_left(cluster.ENDING)
        self.assert_same_parameters(self.read_json("out/summary.json"), WORKERS)
        mistake = "the program uses its session wrongly: "
        for name in ("worker-0", "worker-2"):
            said = self.log(name)
            self.assertNotIn("nothing is refused", said)
            for call in "Begin SetGroups WaitFresh GradientReady EndIteration Finish".split():
                self.assertIn(f"{mistake}{call} was called after Rewound; GoBack is next\n", said)
            self.assertIn(
                f"{mistake}GoBack was called between Begin and Finish, its place is after a call that has thrown "
                "Rewound\n",
                said,
            )
            # First after Begin, then after GoBack.
            self.assertGreaterEqual(
                said.count(f"{mistake}GradientReady was called before SetGroups\n"), 2
            )

    def test_a_spare_that_is_not_needed_ends_well(self):
        config = self.config("policy: ALL_PS", recovery="mode: REPLACE spare_workers: 1")
        run = self.start_run(config, *self.program())
        run.await_output("all .* nodes have joined")
        _, program, *arguments = self.program("spare")
        spare = self.spawn(
            "spare",
            [
                "env",
                f"POSEIDON_JOB={self.path('out/job.prototxt')}",
                "POSEIDON_RANK=0",
                program,
                *arguments,
            ],
        )
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        self.assertEqual(spare.wait(), cluster.SUCCESS, spare.output())
        self.assertRegex(spare.output(), "(?m)^this worker was not needed: ")
        self.assert_nothing_left(cluster.ENDING)

    def test_program_that_only_goes_forward_is_refused(self):
        run = self.start_run(self.config("policy: ALL_PS"), *self.program("only-forward"))
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR, run.output())
        self.assertIn("recovery.mode: this program can't go back", run.output())
        self.assert_nothing_left(cluster.ENDING)

    def test_going_on_with_fewer_is_refused(self):
        run = self.start_run(
            self.config("policy: ALL_PS", recovery="mode: SHRINK"), *self.program()
        )
        self.assertEqual(run.wait(), cluster.CONFIG_ERROR, run.output())
        self.assertIn("a program of yours reads its data itself", run.output())
        self.assert_nothing_left(cluster.ENDING)

    @cluster.slow
    def test_every_node_under_every_scheme(self):
        for communication in (
            "policy: ALL_PS",
            "policy: ALL_PS update_at: SERVERS",
            "policy: ALL_HALVING_DOUBLING",
        ):
            for names in (("worker-0",), ("worker-2",), ("server-0",), ("worker-0", "worker-1")):
                with self.subTest(communication=communication, names=names):
                    self.check(communication, *names)


if __name__ == "__main__":
    cluster.main()
