"""Processes that live and answer heartbeats but do not get on: the stall deadline ends the job."""

import contextlib
import ctypes
import os

import cluster

NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


@contextlib.contextmanager
def frozen_thread(test, process, name):
    """Stops one thread of a process; the others, the heartbeat's among them, go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 3
    libc.ptrace.restype = ctypes.c_long
    threads = {}
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{thread}/comm", encoding="utf-8") as file:
            threads.setdefault(file.read().strip(), int(thread))
    thread = threads[name]
    if libc.ptrace(_PTRACE_SEIZE, thread, None, None) != 0:
        test.skipTest(f"may not ptrace: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(_PTRACE_INTERRUPT, thread, None, None)
    os.waitpid(thread, _WALL)
    try:
        yield
    finally:
        libc.ptrace(_PTRACE_DETACH, thread, None, None)


class StallTest(cluster.ClusterTest):
    STALL_DEADLINE = 2

    def freeze(self, victim, thread, *, text, policy, layers=cluster.LAYERS):
        daemons = self.start_training(
            cluster.replay_config(
                workers=3,
                servers=2,
                iterations=cluster.ENDLESS,
                layers=layers,
                cluster=f"scheduler_port: {cluster.free_port_pair()}",
                communication=f"policy: {policy} "
                f"stall_deadline_seconds: {cluster.scaled(self.STALL_DEADLINE)}",
            ),
            NODES,
        )
        with frozen_thread(self, daemons[victim], thread):
            # Twice the deadline: who waits for a server waits longer than the server itself.
            self.assert_others_end(
                daemons,
                victim,
                code=cluster.DEADLINE_EXCEEDED,
                text=f"from {self.describe(daemons, victim)}, whose heartbeat still arrives",
                seconds=2 * self.STALL_DEADLINE + cluster.ENDING,
            )
        self.assertRegex(daemons["scheduler"].output(), text)
        self.assertEqual(daemons[victim].wait(cluster.END_TIME), cluster.DEADLINE_EXCEEDED)
        self.assert_explained("slow worker", victim)

    def test_worker_with_parameter_servers(self):
        self.freeze(
            "worker-1",
            "poseidon_worker",
            policy="ALL_PS",
            text=r"server \d .* has waited \d+ s for the gradient of layer \w+, iteration",
        )

    def test_worker_with_factor_broadcast(self):
        self.freeze(
            "worker-1",
            "poseidon_worker",
            policy="ALL_SFB",
            layers=(("fc1", (64, 32), 1), ("fc2", (32, 10), 1)),
            text=r"worker [02] .* has waited \d+ s for the factors of layer fc\d, iteration",
        )

    def test_server(self):
        self.freeze(
            "server-1",
            "lane 2",
            policy="ALL_PS",
            text=r"worker \d .* has waited \d+ s for the values of layer \w+, iteration",
        )


if __name__ == "__main__":
    cluster.main()
