"""Nodes that hang, of a job that recovers: `poseidon run` kills what the scheduler has given up and does not
end, and starts another process in its place."""

import os
import signal

import cluster
from recovery_test import TEST_INTERVAL, RecoveryTest, tested_at


class GivenUpTest(RecoveryTest):
    """A process that is stopped is as one that hangs: it is silent, does not end, and no wait for its end
    does either."""

    def check(self, *names):
        run = self.start_run(self.config())
        run.await_output(tested_at(TEST_INTERVAL))
        for name in names:
            role, _, rank = name.partition("-")
            os.kill(self.pid_of(role, rank), signal.SIGSTOP)
        self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
        for name in names:
            self.assertRegex(
                run.output(),
                rf"{name} has been given up by the scheduler \(no heartbeat for \d+ s\) and does not end; it is "
                "killed\n",
            )
        self.assert_as_undisturbed("BYTES", names)

    def test_worker(self):
        self.check("worker-1")

    @cluster.slow
    def test_worker_0_and_a_server(self):
        self.check("worker-0", "server-1")


if __name__ == "__main__":
    cluster.main()
