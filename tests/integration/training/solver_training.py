"""LeNet's solver with changes, trained deterministically, for tests of snapshots and of a solver's fields."""

import glob
import os
import time

import cluster
import lenet

ITERATIONS = 60
INTERVAL = 10


class SolverTest(lenet.LenetTest):
    """Runs LeNet's solver with changes, deterministically."""

    def solver_with_snapshots(self, *replacements, interval=INTERVAL):
        self.copy_solver(*replacements)
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write(
                f'\nsnapshot: {interval} snapshot_prefix: "{self.path("snapshots")}/lenet"\n'
            )

    def config(self, communication, training="", *, workers=2, iterations=ITERATIONS, batch=16):
        return f"""
            cluster {{ workers: {workers} servers: 2 }}
            communication {{
              deterministic: true {communication}
              heartbeat_interval_seconds: {cluster.scaled(cluster.HEARTBEAT_INTERVAL)}
              heartbeat_deadline_seconds: {cluster.scaled(cluster.HEARTBEAT_DEADLINE)}
            }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {iterations}
              batch_per_worker: {batch} seed: 3 threads: 1 {training}
            }}"""

    def train_hash(self, *arguments, flags=(), **options):
        workers = options.get("workers", 2)
        summary = self.run_job(self.config(*arguments, **options), *flags)
        return self.assert_same_parameters(summary, workers)

    def remove_snapshots(self):
        for path in glob.glob(self.path("snapshots/*")):
            os.remove(path)

    def kill_after_snapshot(self, config):
        """Kills every process of a job as soon as there is a second snapshot."""
        run = self.start_run(config)
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while len(glob.glob(self.path("snapshots/*.solverstate"))) < 2:
            self.assertLess(time.monotonic(), deadline, "no snapshots")
            self.assertIsNone(run.popen.poll(), "the job ended before it could be killed")
            time.sleep(0.001)
        self.kill_survivors()
        run.popen.wait()
        self.assert_nothing_left(cluster.ENDING)

    def assert_resumed(self):
        """The last training was not begun anew, which comes to the same values, too."""
        self.assertRegex(self.log("worker-0"), "going on from iteration [1-9]")

    def log(self, daemon):
        with open(self.path(f"out/logs/{daemon}.log"), encoding="utf-8") as file:
            return file.read()

    def assert_refused(self, config, *texts, code=cluster.DATA_ERROR):
        run = self.start_run(config)
        self.assertNotEqual(run.wait(), cluster.SUCCESS)
        for text in texts:
            self.assertIn(text, run.output())
        self.assert_nothing_left(cluster.ENDING)
