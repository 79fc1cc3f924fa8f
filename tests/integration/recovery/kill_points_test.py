"""`kill -9` of real daemons of a job with `recovery { mode: REPLACE }` at named points, alone and in pairs:
the job ends with the bits of one that nothing happened to.

Nobody could aim at these points by the clock. A daemon that is stopped (SIGSTOP) keeps all others where they
can't go on without it, until it is let go on; a preloaded library (stop_at.cc) stops one at a system call."""

import glob
import os
import signal
import time

import cluster
from recovery_test import TEST_INTERVAL, WORKERS, RecoveryTest, tested_at

# Nobody who is stopped for a while is to be given up for it.
DEADLINE = 40.0
# Until all others have done what they can do without the one that is stopped: an iteration takes some
# hundredths of a second, on a busy machine some tenths.
SETTLING = 1.5
# Records that the scheduler writes for one loss: that it is lost, the view, the plan, and the start.
RECORDS = 4


class KillPointsTest(RecoveryTest):
    def config(self, policy="BYTES", *, recovery="", cluster_fields=""):
        short = f"heartbeat_deadline_seconds: {cluster.scaled(cluster.HEARTBEAT_DEADLINE)}"
        text = super().config(policy, recovery=recovery, cluster_fields=cluster_fields)
        self.assertIn(short, text)
        return text.replace(short, f"heartbeat_deadline_seconds: {cluster.scaled(DEADLINE)}")

    def start_stoppable(self, policy="BYTES"):
        """`poseidon run`, whose daemons stop at points that are wanted."""
        path = self.write("config.prototxt", self.config(policy))
        os.makedirs(self.path("points"), exist_ok=True)
        library = os.path.join(cluster.programs(), "../tests/libstop_at.so")
        return self.start(
            "poseidon",
            "run",
            f"--config={path}",
            f"--out={self.path('out')}",
            name="run",
            prefix=("env", f"LD_PRELOAD={library}", f"STOP_AT={self.path('points')}"),
        )

    def start_training(self, policy="BYTES", order=()):  # pylint: disable=arguments-renamed
        run = self.start_stoppable(policy)
        run.await_output(tested_at(TEST_INTERVAL))
        return run

    def pid(self, name):
        role, _, rank = name.partition("-")
        return self.pid_of(role, rank or None)

    def stop(self, name):
        """Nothing goes on any more that needs this daemon."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(cluster.scaled(SETTLING))
        return pid

    def await_stop(self, name, pid=None):
        """Until the daemon stands at a point; its process."""
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while True:
            found = pid or self.find_pid(*self.role_and_rank(name))
            if found is not None:
                with open(f"/proc/{found}/stat", encoding="ascii") as file:
                    if file.read().rpartition(")")[2].split()[0] == "T":
                        return found
            self.assertLess(time.monotonic(), deadline, f"{name} does not come to the point")
            time.sleep(0.01)

    @staticmethod
    def role_and_rank(name):
        role, _, rank = name.partition("-")
        return role, rank or None

    def want(self, point, wanted=True):
        path = self.path(f"points/{point}")
        if wanted:
            self.write(f"points/{point}", "")
        else:
            os.remove(path)

    def finish(self, run, policy="BYTES", recoveries=1):
        """Ends as if nothing had happened, after so many recoveries at least."""
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assert_nothing_left(cluster.ENDING)
        summary, undisturbed = self.read_json("out/summary.json"), self.reference(policy)
        self.assertEqual(
            self.assert_same_parameters(summary, WORKERS),
            self.assert_same_parameters(undisturbed, WORKERS),
        )
        self.assertEqual(len(summary["loss"]), self.iterations)
        self.assertGreaterEqual(len(summary["recoveries"]), recoveries)
        for recovery in summary["recoveries"]:
            # Who was stopped may end its iteration in the recovery: not all of it is without any.
            recovery["still_ms"] = max(recovery["still_ms"], recovery["restored_ms"])
            self.assert_makes_sense(recovery)

    def kill_while_stopped(self, policy, stopped, *victims, before=()):
        """Stops one, kills those of `before`, waits until that is known, kills the victims, and lets the one
        that was stopped go on."""
        with self.subTest(policy=policy, stopped=stopped, before=before, victims=victims):
            run = self.start_training(policy)
            pid = self.stop(stopped)
            for name in before:
                self.kill(name)
                run.await_output(f"lost {name.replace('-', ' ')} ")
                time.sleep(cluster.scaled(SETTLING))
                self.assertNotIn("goes on from iteration", run.output())
            for name in victims:
                self.kill(name)
            os.kill(pid, signal.SIGCONT)
            recoveries = any(name != "scheduler" for name in (*before, *victims))
            self.finish(run, policy, int(recoveries))

    @cluster.slow
    def test_after_sending(self):
        """They have sent their gradients, and wait for those of one that is stopped."""
        for victims in (
            ("worker-1",),
            ("worker-0", "server-0"),
            ("scheduler", "worker-1"),
        ):
            self.kill_while_stopped("BYTES", "worker-2", *victims)

    @cluster.slow
    def test_before_the_acknowledgement(self):
        """An owner has sent its sums to the backup, which is stopped."""
        policy = "ALL_PS update_at: SERVERS"
        for victims in (("server-0",), ("server-0", "worker-1")):
            self.kill_while_stopped(policy, "server-1", *victims)

    @cluster.slow
    def test_in_holding(self):
        """One survivor can't answer that it has stopped."""
        for victims in (("worker-0",), ("worker-1",), ("server-0",), ("scheduler",)):
            self.kill_while_stopped("BYTES", "worker-2", *victims, before=("worker-1",))

    @cluster.slow
    def test_in_restoring(self):
        """All have the next plan, but a server can't say that it is ready."""
        for victims in (("worker-0",), ("worker-1",), ("server-0",), ("scheduler",)):
            self.kill_while_stopped("BYTES", "server-1", *victims, before=("worker-1",))

    @cluster.slow
    def test_scheduler_between_the_journal_and_the_message(self):
        """After each record of a recovery: nobody has heard of what is written."""
        for record in range(1, 1 + RECORDS):
            with self.subTest(record=record):
                run = self.start_training()
                self.want("fsync")
                self.kill("worker-1")
                for _ in range(record - 1):
                    os.kill(self.await_stop("scheduler"), signal.SIGCONT)
                    time.sleep(0.02)  # until it goes on
                pid = self.await_stop("scheduler")
                self.want("fsync", False)
                os.kill(pid, signal.SIGKILL)
                self.finish(run)

    def with_snapshots(self, more):
        prefix = self.path("lenet")
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as solver:
            solver.write(f'snapshot_prefix: "{prefix}" {more}\n')
        # It writes there, too.
        self.reference("BYTES")
        for path in glob.glob(f"{prefix}_iter_*"):
            os.remove(path)

    @cluster.slow
    def test_in_the_rename_of_a_snapshot(self):
        self.with_snapshots("snapshot: 50 snapshot_after_train: true")
        run = self.start_training()
        self.want("rename")
        pid = self.await_stop("worker-0")
        self.want("rename", False)
        self.assertFalse(os.path.exists(self.path("lenet_iter_50.solverstate")))
        os.kill(pid, signal.SIGKILL)
        self.finish(run)
        for iteration in (100, self.iterations):
            self.assertTrue(os.path.exists(self.path(f"lenet_iter_{iteration}.solverstate")))

    @cluster.slow
    def test_who_has_finished(self):
        """Worker 0 writes the last snapshot, for which the others, who have finished, wait."""
        self.with_snapshots("snapshot_after_train: true")
        for victims in (
            ("worker-1",),
            ("worker-0",),
            ("worker-1", "server-0"),
            ("scheduler",),
        ):
            with self.subTest(victims=victims):
                run = self.start_training()
                self.want("rename")
                pid = self.await_stop("worker-0")
                self.want("rename", False)
                time.sleep(cluster.scaled(SETTLING))
                for name in victims:
                    self.kill(name)
                if "worker-1" in victims:
                    run.await_output("lost worker 1 ")
                if "worker-0" not in victims:
                    os.kill(pid, signal.SIGCONT)
                self.finish(run, recoveries=int("worker-1" in victims or "worker-0" in victims))
                # Also if whoever writes it has come only for that.
                for end in ("solverstate", "caffemodel"):
                    os.remove(self.path(f"lenet_iter_{self.iterations}.{end}"))


if __name__ == "__main__":
    cluster.main()
