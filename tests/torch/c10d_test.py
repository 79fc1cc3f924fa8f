#!/usr/bin/env python3
"""DistributedDataParallel and FSDP2 train by the backend "poseidon" as they do by gloo."""

import concurrent.futures
import contextlib
import datetime
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import torch
import torch.distributed as dist

import timed_tests
from ranks import PATIENCE, ROOT, Ranks

sys.path.insert(0, str(ROOT / "python"))

# pylint: disable=wrong-import-position
from poseidon_torch import PoseidonError, _job, _library, c10d


class C10d(unittest.TestCase):
    def test_ddp_and_fsdp_by_another_name(self):
        self.assert_equal(3)

    @timed_tests.slow
    def test_two_ranks_ddp_and_fsdp_by_another_name(self):
        self.assert_equal(2, "others")

    @timed_tests.slow
    def test_ddp_and_fsdp_by_another_name_for_longer(self):
        self.assert_equal(3, "others")

    def assert_equal(self, ranks, *arguments):
        # A crash or a hang while PyTorch is taken apart would be seen, too.
        with Ranks("c10d.py", ranks, list(arguments), whole_end=True) as processes:
            for result in processes.wait(PATIENCE):
                self.assertEqual(result.code, 0, result.output)
                self.assertIn("equal", result.output.splitlines())
            print(processes.output(0))

    def test_a_rank_that_fails_ends_at_once_though_an_all_reduce_is_under_way(self):
        with Ranks("c10d_pending.py", 2, whole_end=True) as processes:
            self.assertEqual(processes.processes[0].wait(PATIENCE), 1, processes.output(0))
            self.assertIn("ValueError: record 4711 is broken", processes.output(0))

    def test_an_all_reduce_that_fails_is_an_error_however_it_is_waited_for(self):
        for how in ("work", "ddp"):
            with self.subTest(how), Ranks("c10d_ended.py", 2, [how]) as processes:
                self.assertEqual(processes.processes[0].wait(PATIENCE), 1, processes.output(0))
                self.assertRegex(processes.output(0), r"PeerLost: rank 1 \(.*\)")

    def test_a_handler_that_destroys_the_group_while_an_all_reduce_waits_ends_it(self):
        with Ranks("c10d_ended.py", 2, ["handler"]) as processes:
            self.assertEqual(processes.processes[1].wait(PATIENCE), 0, processes.output(1))
            (processes.out / "ended").touch()
            self.assertEqual(processes.processes[0].wait(PATIENCE), 1, processes.output(0))
            self.assertRegex(processes.output(0), r"PoseidonError: rank 1 \(.*\) gave up: ")

    def test_a_group_that_is_destroyed_ends(self):
        with Ranks("c10d_groups.py", 2) as processes:
            # Far from the group's timeout, which is half an hour.
            self.assertEqual(processes.processes[0].wait(PATIENCE), 0, processes.output(0))
            self.assertRegex(processes.output(0), r"missed after .* s: rank 1 \(.*\)")

    def test_a_key_keeps_others_out(self):
        # In a directory whose name is no UTF-8.
        with tempfile.TemporaryDirectory(prefix=os.fsdecode(b"\xe9")) as folder:
            program = _library.find_program("poseidon")
            subprocess.run([program, "keys", f"--out={folder}"], check=True, capture_output=True)
            key = str(pathlib.Path(folder) / "job.key")
            with Ranks("c10d_key.py", 3, [key]) as processes:
                for result in processes.wait(PATIENCE):
                    self.assertEqual(result.code, 0, result.output)
                    self.assertIn("kept out", result.output.splitlines())

    def test_tensors_on_another_device_are_warned_of_once(self):
        group = mock.Mock(_devices=c10d._DeviceWarning())
        calls = (c10d.PoseidonProcessGroup.broadcast, c10d.PoseidonProcessGroup.allreduce)
        warned = []
        for tensor in (torch.ones(4), torch.ones(4, device="meta")):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for call in calls:
                    call(group, [tensor])
            warned.append([str(one.message) for one in said])
        self.assertEqual(warned[0], [])
        self.assertEqual(len(warned[1]), 1, warned)
        self.assertIn('tensors on meta go to gloo: the backend "poseidon" can\'t', warned[1][0])

    def test_an_all_reduce_after_the_end_of_its_group_is_refused(self):
        group = c10d.PoseidonProcessGroup(dist.HashStore(), 0, 1, datetime.timedelta(seconds=60))
        tensor = torch.ones(1 << 16)
        self.assertTrue(group.allreduce([tensor]).wait())
        group.shutdown()
        # A deadline, as it would wait for ever else.
        with self.assertRaisesRegex(PoseidonError, "before destroy_process_group"):
            group.allreduce([tensor]).wait(datetime.timedelta(seconds=20))
        # As dist.all_reduce calls it where nobody asks for async_op.
        with self.assertRaisesRegex(PoseidonError, "before destroy_process_group"):
            group.allreduce([tensor], mock.Mock(asyncOp=False, reduceOp=dist.ReduceOp.SUM)).wait()

    def test_a_name_that_means_loopback_on_its_own_machine(self):
        """As that of node0 does in node0's /etc/hosts, by Debian's installer."""
        store = dist.HashStore()
        found = ("127.0.1.1", "10.0.0.1")  # by rank, for the same name
        stores = [mock.Mock(host=host, set=store.set, get=store.get) for host in found]
        with mock.patch.object(c10d, "own_address", lambda other: other):
            with concurrent.futures.ThreadPoolExecutor() as pool:
                of_ranks = list(pool.map(c10d._endpoints, stores, (0, 1), (2, 2)))
        for endpoints in of_ranks:
            self.assertEqual([end.split(":")[0] for end in endpoints], ["10.0.0.1"] * 2)

    def test_ranks_of_a_machine_draw_ports_of_their_own(self):
        """Each has let its port go before the next one draws, and binds it for good later."""
        with self.first_port_drawn(), concurrent.futures.ThreadPoolExecutor() as pool:
            stores = [dist.HashStore()] * 3
            of_ranks = list(pool.map(c10d._endpoints, stores, range(3), [3] * 3))
        for endpoints in of_ranks:
            self.assertEqual(len(set(endpoints)), 3, endpoints)

    def test_groups_that_are_made_at_the_same_time_draw_ports_of_their_own(self):
        found = set()
        for rank in range(3):
            world = {"is_initialized": True, "get_rank": rank, "get_world_size": 3}
            calls = {name: mock.Mock(return_value=value) for name, value in world.items()}
            with self.first_port_drawn(), mock.patch.multiple(dist, **calls):
                found.update(c10d._endpoints(dist.HashStore(), 0, 1))
        self.assertEqual(len(found), 3, found)

    @staticmethod
    @contextlib.contextmanager
    def first_port_drawn():
        """Who draws a port gets the first one that may be drawn."""
        with mock.patch.object(random.SystemRandom, "choice", lambda self, ports: ports[0]):
            with mock.patch.object(_job, "_is_free", lambda port: True):
                yield


if __name__ == "__main__":
    timed_tests.main()
