#!/usr/bin/env python3
"""Whatever happens to a rank or a daemon, every process ends soon, says why, and none stays."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from torch.distributed import TCPStore

import timed_tests
from ranks import HERE, PATIENCE, ROOT, Ranks

# What is seen at once, and what the heartbeat (10 s) or the program's deadline (8 s) shows, beside an
# interpreter's start and end.
SOON = PATIENCE
AT_DEADLINE = 20 + PATIENCE


class Faults(unittest.TestCase):
    def expect_end(self, ranks: Ranks, seconds: float, said: str, by: int = 0) -> list:
        results = ranks.wait(seconds)
        self.assertIn(said, results[by].output)
        self.assertNotEqual(results[by].code, 0)
        end = time.monotonic() + 20
        while ranks.daemons() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(ranks.daemons(), [], "daemons are left")
        return results

    def test_an_exception_is_named_by_the_others(self):
        with Ranks("faulty.py", 2, ["exception"], whole_end=True) as ranks:
            self.expect_end(ranks, SOON, "ValueError: record 4711 is broken")

    @timed_tests.slow
    def test_an_exception_is_named_where_shutdown_is_called_in_a_finally(self):
        with Ranks("faulty.py", 2, ["finally"]) as ranks:
            results = self.expect_end(ranks, SOON, "ValueError: record 4711 is broken")
        self.assertTrue(results[1].output.endswith("\nValueError: record 4711 is broken\n"))
        self.assertNotIn("During handling", results[0].output + results[1].output)

    @timed_tests.slow
    def test_an_exception_that_is_logged_is_named(self):
        with Ranks("faulty.py", 2, ["logged"]) as ranks:
            results = self.expect_end(ranks, SOON, "ValueError: record 4711 is broken")
        self.assertEqual(results[1].code, 6)

    def test_an_exception_is_named_where_the_thread_of_copies_hears_of_it(self):
        with Ranks("faulty_device.py", 2, ["heard"]) as ranks:
            results = self.expect_end(ranks, SOON, "ValueError: record 4711 is broken")
        self.assertNotIn("uses its session wrongly", results[0].output)

    def test_an_exception_is_named_before_a_device_has_ended_its_copies(self):
        with Ranks("faulty_device.py", 2, ["slow"]) as ranks:
            ranks.processes[0].wait(SOON)
            (ranks.out / "ended").touch()
            self.expect_end(ranks, SOON, "ValueError: record 4711 is broken")

    @timed_tests.slow
    def test_an_exception_in_a_process_of_torch_multiprocessing_is_named(self):
        with Ranks("faulty.py", 2, ["spawned"]) as ranks:
            said = "ended by ValueError: record 4711 is broken"
            self.expect_end(ranks, SOON, said)

    def test_a_rank_that_exits_is_named(self):
        with Ranks("faulty.py", 2, ["exit"]) as ranks:
            results = self.expect_end(ranks, SOON, "its program was ended by SystemExit: 5")
        self.assertEqual(results[1].code, 5)

    def test_fewer_batches_on_one_rank_are_named(self):
        with Ranks("faulty.py", 2, ["uneven"]) as ranks:
            results = self.expect_end(ranks, SOON, "are their data of the same length?")
        self.assertNotEqual(results[1].code, 0, results[1].output)

    def test_what_shutdown_would_say_at_exit_is_said_and_is_the_exit_code(self):
        with Ranks("faulty.py", 2, ["differ"]) as ranks:
            results = self.expect_end(ranks, SOON, "PoseidonError: ")
        for result in results:
            self.assertEqual(result.code, 9, result.output)
            self.assertEqual(result.output.count("Traceback"), 1, result.output)
            self.assertNotIn("Exception ignored", result.output)

    def test_an_exception_before_the_model_is_distributed_is_named(self):
        with tempfile.TemporaryDirectory(prefix="poseidon_torch_test.") as scratch:
            out = pathlib.Path(scratch)
            config = out / "config.prototxt"
            config.write_text("cluster { workers: 2 servers: 1 }")
            command = [ROOT / "build/bin/poseidon", "run", f"--config={config}", f"--out={out}"]
            command += ["--", sys.executable, HERE / "programs/unready.py"]
            done = subprocess.run(
                [str(word) for word in command],
                env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn(
                "ended by ValueError: record 4711 is broken",
                (out / "logs/scheduler.log").read_text(),
                done.stdout + done.stderr,
            )

    def test_a_killed_rank_is_named(self):
        with Ranks("faulty.py", 2, ["kill"]) as ranks:
            self.expect_end(ranks, AT_DEADLINE, "worker 1")

    def test_a_hanging_rank_is_named(self):
        with Ranks("faulty.py", 2, ["hang"]) as ranks:
            ranks.wait_for_line(1, "trains")
            ranks.processes[0].wait(AT_DEADLINE)
            self.assertIn("worker 1", ranks.output(0))
            ranks.send(1, signal.SIGKILL)
            self.expect_end(ranks, SOON, "worker 1")

    def test_rank_0_killed_takes_its_daemons_along(self):
        with Ranks("faulty.py", 2, ["none"]) as ranks:
            ranks.wait_for_line(1, "trains")
            ranks.send(0, signal.SIGKILL)
            self.expect_end(ranks, AT_DEADLINE, "scheduler", by=1)

    def test_a_killed_server_is_named(self):
        with Ranks("faulty.py", 2, ["none"]) as ranks:
            ranks.wait_for_line(1, "trains")
            servers = [
                pid
                for pid in ranks.daemons()
                if "poseidon_server" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()
            ]
            self.assertEqual(len(servers), 1)
            os.kill(servers[0], signal.SIGKILL)
            self.expect_end(ranks, AT_DEADLINE, "the server-0 was killed by signal 9")

    def test_interrupted_by_control_c(self):
        with Ranks("faulty.py", 2, ["hang"]) as ranks:
            ranks.wait_for_line(0, "trains")
            time.sleep(1)  # rank 0 waits for rank 1's gradient, in C
            ranks.send(0, signal.SIGINT)
            ranks.processes[0].wait(SOON)
            self.assertTrue(ranks.output(0).endswith("\nKeyboardInterrupt\n"), ranks.output(0))
            self.assertNotIn("Exception ignored", ranks.output(0))
            ranks.send(1, signal.SIGINT)
            self.expect_end(ranks, SOON, "KeyboardInterrupt")

    def test_a_handler_that_ends_the_training_while_a_call_waits_is_refused(self):
        with Ranks("faulty.py", 2, ["handler"]) as ranks:
            ranks.processes[1].wait(SOON)
            (ranks.out / "ended").touch()
            results = self.expect_end(ranks, SOON, "failed: interrupted by a signal")
        self.assertEqual(results[1].code, 1, results[1].output)
        said = (
            "PoseidonError: called by a signal's handler while another call is under way; let the"
        )
        self.assertIn(said, results[1].output)

    def test_different_models(self):
        with Ranks("faulty.py", 2, ["other model"]) as ranks:
            self.expect_end(ranks, SOON, '"Linear" (5 x 16, 5)')

    def test_different_frozen_parameters(self):
        said = "frozen parameters are not as on rank 0: 0.weight, 0.bias;"
        with Ranks("faulty.py", 2, ["other frozen"]) as ranks:
            results = self.expect_end(ranks, SOON, said, by=1)
        self.assertIn(said, results[0].output)

    def test_optimizers_that_begin_differently(self):
        said = "the optimizer is not as on rank 0: weight: step, weight: exp_avg, weight: exp_avg_sq and"
        with Ranks("faulty.py", 2, ["other optimizer"]) as ranks:
            results = self.expect_end(ranks, SOON, said, by=1)
        self.assertIn(said, results[0].output)

    def test_ranks_that_are_started_anew_do_not_hear_of_the_dead_ones(self):
        """As torchrun's agent starts them, which keeps the store."""
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        with Ranks("faulty.py", 2, ["kill"], agent_port=store.port) as ranks:
            self.expect_end(ranks, AT_DEADLINE, "worker 1")
        with Ranks("faulty.py", 2, ["late"], agent_port=store.port) as ranks:
            for result in ranks.wait(PATIENCE):
                self.assertEqual(result.code, 0, result.output)

    @timed_tests.slow
    def test_different_options(self):
        with Ranks("faulty.py", 2, ["other policy"]) as ranks:
            self.expect_end(ranks, SOON, "policy", by=1)


if __name__ == "__main__":
    timed_tests.main()
