"""summary.json: its keys, bytes equal to the cost model's formulas, and hashes."""

import signal

import cluster

# Two layers that can only use parameter servers, two that can use either.
LAYERS = (("conv1", 1000, 0), ("conv2", 60001, 0), ("fc1", (800, 120), 0), ("fc2", (120, 10), 0))
BATCH = 8
ITERATIONS = 7
BYTES_A_FLOAT = 4


class SummaryTest(cluster.ClusterTest):
    def train(self, *, workers=3, servers=2, policy="BYTES", lanes=2, extra="", seed=1):
        return self.run_job(
            cluster.replay_config(
                workers=workers,
                servers=servers,
                layers=LAYERS,
                batch=BATCH,
                iterations=ITERATIONS,
                communication=f"policy: {policy} lanes: {lanes} {extra}",
                training=f"seed: {seed}",
            )
        )

    def assert_bytes(self, summary, workers, schemes):
        """All workers together, all iterations: 2MN a worker and direction over PS becomes MN sent
        and MN received; SFB sends K (M + N) to each of the other workers."""
        self.assertEqual([layer["scheme"] for layer in summary["layers"]], list(schemes))
        for (name, size, _), layer in zip(LAYERS, summary["layers"]):
            with self.subTest(name):
                self.assertEqual(layer["name"], name)
                if layer["scheme"] == "PS":
                    floats = size if isinstance(size, int) else size[0] * size[1] + size[1]
                else:
                    floats = (workers - 1) * BATCH * (size[0] + size[1])
                expected = workers * ITERATIONS * floats * BYTES_A_FLOAT
                self.assertEqual(layer["bytes_sent"], expected)
                self.assertEqual(layer["bytes_received"], expected)

    def test_keys(self):
        summary = self.train()
        for key in (
            "job",
            "exit_code",
            "reason",
            "iterations",
            "images_per_second",
            "loss",
            "layers",
            "workers",
            "communication_not_hidden",
        ):
            self.assertIn(key, summary)
        self.assertEqual((summary["job"], summary["exit_code"]), ("test", 0))
        self.assertEqual(summary["iterations"], ITERATIONS)
        self.assertEqual(len(summary["loss"]), ITERATIONS)
        self.assertGreater(summary["images_per_second"], 0)
        for worker in summary["workers"]:
            self.assertEqual(worker["images"], ITERATIONS * BATCH)
            self.assertRegex(worker["parameter_hash"], "^[0-9a-f]{32}$")
            self.assertEqual(worker["dropped_frames"], 0)

    def test_planned_lanes_train(self):
        """The plan has more lanes than one, of those that nodes have opened, and says why."""
        config = """name: "lanes"
            cluster { workers: 2 servers: 2 cores: 16 update_rate: 2e8 network { bandwidth: "100Gbps" } }
            communication { policy: ALL_PS kv_pair_bytes: 65536 LANES }
            training { engine: REPLAY replay { iterations: 3 batch: 4
              layers { name: "a" parameters: 400000 forward_ms: 1 backward_ms: 1 }
              layers { name: "b" parameters: 400000 forward_ms: 1 backward_ms: 1 } } }"""
        for lanes, expected in (
            ("", "4 data lanes, planned: 1 would take"),
            ("lanes: 3", "3 data lanes, as given"),
        ):
            with self.subTest(lanes):
                summary = self.run_job(config.replace("LANES", lanes))
                self.assert_same_parameters(summary, workers=2)
                self.assertIn(expected, self.processes[-1].output())

    def test_bytes_are_the_formulas(self):
        for policy, schemes in (
            ("ALL_PS", ("PS", "PS", "PS", "PS")),
            ("ALL_SFB", ("PS", "PS", "SFB", "SFB")),
            # fc2 has too few floats for factors of 8 samples to be fewer.
            ("BYTES", ("PS", "PS", "SFB", "PS")),
        ):
            with self.subTest(policy):
                summary = self.train(policy=policy)
                self.assert_same_parameters(summary, workers=3)
                self.assert_bytes(summary, 3, schemes)

    def test_one_worker(self):
        """It has nobody to broadcast to."""
        summary = self.train(workers=1, servers=1, policy="ALL_SFB")
        self.assert_bytes(summary, 1, ("PS", "PS", "SFB", "SFB"))
        self.assertEqual(summary["layers"][2]["bytes_sent"], 0)

    def test_deterministic(self):
        """The same bits in every run, whatever carries them; other bits from another seed."""
        deterministic = {"extra": "deterministic: true", "workers": 4}
        hashes = [
            self.assert_same_parameters(self.train(**fields, **deterministic), workers=4)
            for fields in ({}, {}, {"lanes": 1, "servers": 3}, {"seed": 2})
        ]
        self.assertEqual(hashes[0], hashes[1])
        self.assertEqual(hashes[0], hashes[2])
        self.assertNotEqual(hashes[0], hashes[3])

    def test_after_a_failure(self):
        """A job that ends badly says why in its summary, too."""
        run = self.start_run(cluster.replay_config(iterations=cluster.ENDLESS))
        run.await_output("iteration ")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["exit_code"], cluster.INTERRUPTED)
        self.assertIn("interrupted", summary["reason"])
        self.assertGreater(summary["iterations"], 0)
        self.assertEqual(summary["workers"], [])
        self.assertIsNone(summary["images_per_second"])

    def test_of_a_program_that_fails_before_it_joins(self):
        """The reason is its last line, or, where it has said nothing, how it ended."""
        cluster.needs_preloading(self)
        config = cluster.replay_config(workers=1, servers=1)
        for script, reason in (
            ("exit 9", "worker-0: it exited with code 9"),
            ("echo no such option >&2; exit 9", "worker-0: no such option"),
        ):
            with self.subTest(script):
                self.start_run(config, "--", "/bin/sh", "-c", script).wait()
                self.assertEqual(self.read_json("out/summary.json")["reason"], reason)


if __name__ == "__main__":
    cluster.main()
