"""A solver that knows nothing of other workers, made distributed: LeNet learns digits on 4 workers x 16
images and on 1 worker x 64, with every solver type and scheme, and the losses agree.

This is the code that patches a real Caffe (docs/caffe.md), around a solver of the tests' own, and around a real
Caffe's where the build has one."""

import os

import cluster
import lenet
import rounding

ITERATIONS = 20
WORKERS = 4
BATCH = 16
# As low as rounding asks for: equivalence_test.py says why.
SOLVERS = {
    "SGD": "base_lr: 0.0003 momentum: 0.9 weight_decay: 0.0005",
    "Nesterov": "base_lr: 0.0003 momentum: 0.9 weight_decay: 0.0005",
    "AdaGrad": "base_lr: 0.00003 weight_decay: 0.0005",
    "RMSProp": "base_lr: 0.00003 rms_decay: 0.98",
    "AdaDelta": "base_lr: 0.005 momentum: 0.95 delta: 1e-6",
    "Adam": "base_lr: 0.00005 momentum: 0.9 momentum2: 0.999",
}

SFB = ["PS", "PS", "SFB", "SFB"]
CAFFE_PROGRAM = "../tests/caffe_user_program"


class PatchTest(lenet.LenetTest):
    def losses(self, solver_type, policy, workers, batch, iter_size=1, move=0):
        self.write(
            "solver.prototxt",
            f"""
            net: "{self.path("net.prototxt")}" type: "{solver_type}" lr_policy: "fixed"
            {SOLVERS[solver_type]} max_iter: {ITERATIONS} iter_size: {iter_size}""",
        )
        port = cluster.free_port_pair()
        config = self.write(
            "config.prototxt",
            f"""
            cluster {{ workers: {workers} servers: 2 scheduler_port: {port} }}
            communication {{ policy: {policy} deterministic: true }}
            training {{ threads: 1 }}""",
        )
        common = [f"--config={config}", f"--out={self.path('out')}"]
        daemons = {"scheduler": self.start("poseidon_scheduler", *common)}
        for rank in range(2):
            daemons[f"server-{rank}"] = self.start("poseidon_server", *common, f"--rank={rank}")
        for rank in range(workers):
            daemons[f"worker-{rank}"] = self.start(
                "../tests/patched_program",
                *common,
                f"--rank={rank}",
                f"--batch={batch}",
                f"--move={move}",
                f"--solver={self.path('solver.prototxt')}",
                name=f"worker-{rank}-{len(self.processes)}",
                prefix=("env", "OPENBLAS_NUM_THREADS=1"),  # else idle threads spin at its start
            )
        self.assert_all_succeed(daemons)
        summary = self.read_json("out/summary.json")
        self.assert_same_parameters(summary, workers)
        self.assertEqual(len(summary["loss"]), ITERATIONS)
        return summary["loss"], [layer["scheme"] for layer in summary["layers"]]

    def check(self, solver_type, policies, iter_size=1, moves=3):
        """Trainings with each policy, whose schemes are given, are one worker's."""

        def train_alone(move):
            return self.losses(solver_type, "ALL_PS", 1, WORKERS * BATCH, iter_size, move)[0]

        alone = rounding.Rounding(train_alone, moves)
        self.assertLess(alone.reference[-1], alone.reference[0], "it learns nothing")
        for policy, schemes in policies.items():
            with self.subTest(policy):
                losses, found = self.losses(solver_type, policy, WORKERS, BATCH, iter_size)
                self.assertEqual(found, schemes)
                alone.assert_same(self, losses)
        # Half of the images: a mistake.
        alone.assert_differs(
            self, self.losses(solver_type, "ALL_PS", 1, WORKERS * BATCH // 2, iter_size)[0]
        )

    def test_rmsprop(self):
        self.small = True
        self.copy_net()
        self.check("RMSProp", {"ALL_SFB": SFB}, moves=1)

    @cluster.slow
    def test_rmsprop_of_the_whole_net(self):
        self.check("RMSProp", {"ALL_SFB": SFB})

    @cluster.slow
    def test_nesterov(self):
        self.check("Nesterov", {"ALL_PS": ["PS"] * 4, "ALL_RING": ["ring"] * 4})

    @cluster.slow
    def test_other_solver_types(self):
        for solver_type in set(SOLVERS) - {"RMSProp"}:
            with self.subTest(solver_type):
                self.check(solver_type, {"ALL_SFB": SFB})

    @cluster.slow
    def test_several_passes(self):
        self.check("SGD", {"ALL_PS": ["PS"] * 4, "ALL_SFB": SFB}, iter_size=2)


class CaffeTest(lenet.LenetTest):
    small = True

    def setUp(self):
        if not os.path.exists(os.path.join(cluster.programs(), CAFFE_PROGRAM)):
            self.skipTest("this build has no Caffe")
        super().setUp()

    def first_loss(self, batch, iter_size):
        """That is reported of iteration 0, whose values are the same whatever is read."""
        self.copy_net(("batch_size: 16", f"batch_size: {batch}"))
        solver = self.write(
            "solver.prototxt",
            f"""
            net: "{self.path("net.prototxt")}" lr_policy: "fixed" base_lr: 0.0003
            random_seed: 1 max_iter: 2 iter_size: {iter_size}""",
        )
        config = self.write(
            "config.prototxt",
            f"""
            cluster {{ workers: 1 servers: 1 scheduler_port: {cluster.free_port_pair()} }}
            training {{ threads: 1 }}""",
        )
        common = [f"--config={config}", f"--out={self.path('out')}"]
        daemons = {
            "scheduler": self.start("poseidon_scheduler", *common),
            "server-0": self.start("poseidon_server", *common, "--rank=0"),
            "worker-0": self.start(
                CAFFE_PROGRAM, solver, config, "0", name=f"worker-0-{len(self.processes)}"
            ),
        }
        self.assert_all_succeed(daemons)
        return self.read_json("out/summary.json")["loss"][0]

    def test_the_loss_of_several_passes_is_their_mean(self):
        of_both = self.first_loss(4, iter_size=1)
        of_first = self.first_loss(2, iter_size=1)
        # The last pass's alone, a mistake, is as far off as the first one's.
        mistake = abs(of_first - of_both)
        self.assertGreater(mistake, 0)
        self.assertLess(abs(self.first_loss(2, iter_size=2) - of_both), mistake / 100)


if __name__ == "__main__":
    cluster.main()
