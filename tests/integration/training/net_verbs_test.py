"""`poseidon time` and `poseidon test` on LeNet: the profile is planned and replayed, the score is the one
that training reported."""

import os
import re

import cluster
import lenet


class NetVerbsTest(lenet.LenetTest):
    def verb(self, *arguments, code=cluster.SUCCESS):
        process = self.start("poseidon", *arguments)
        self.assertEqual(process.wait(), code, process.output())
        return process.output()

    def test_profile_is_planned_and_replayed(self):
        self.copy_solver()
        profile = self.path("lenet.profile")
        output = self.verb(
            "time",
            f"--solver={self.path('solver.prototxt')}",
            "--iterations=12",
            "--batch=8",
            f"--out={profile}",
        )
        self.assertRegex(output, r"(?m)^disturbance of this machine: \S")
        for layer in ("conv1", "pool1", "ip1", "loss"):
            self.assertRegex(output, rf"(?m)^{layer} +\w+ +\d+\.\d+ +\d+\.\d+$")
        images = re.search(r"batch 8: .*?([\d.]+) images/s", output)
        self.assertGreater(float(images.group(1)), 1)
        self.assertIn("iteration 15/15", output)
        self.assertIn("\nmeasured on the CPU with 1 thread\n", output)

        plan = self.verb(
            "plan",
            f"--profile={profile}",
            "--workers=4",
            "--servers=4",
            "--policy=TIME",
            "--format=json",
        )
        self.assertIn('"parameters": 431080', plan)

        def simulate(*flags):
            return self.verb(
                "simulate", f"--profile={profile}", "--workers=4", "--servers=4", *flags
            )

        told = re.search(r"disturbance of this machine: (.*)", output).group(1)
        self.assertIn(f"disturbance of machines: {told}; without any", simulate())
        self.assertIn("disturbance of machines: none; without", simulate("--disturbance=none"))
        self.assertIn(
            "disturbance of machines: iterations spread by 2%, layers by 3%; without",
            simulate("--disturbance=measured"),
        )

        with open(profile, encoding="utf-8") as file:
            text = file.read()
        with open(profile, "w", encoding="utf-8") as file:
            file.write(text.replace("replay {", "replay {\n    iterations: 20", 1))
        run = self.start(
            "poseidon", "run", f"--config={profile}", "--workers=2", f"--out={self.path('out')}"
        )
        self.assertEqual(run.wait(), cluster.SUCCESS)
        summary = self.read_json("out/summary.json")
        self.assertEqual(
            {layer["name"]: layer["parameters"] for layer in summary["layers"]},
            {"conv1": 520, "conv2": 25050, "ip1": 400500, "ip2": 5010},
        )
        for worker in summary["workers"]:
            computing = worker["computing"]
            self.assertGreater(computing["iteration_ms"], 0)
            self.assertGreaterEqual(computing["spread"], 0)
            self.assertGreaterEqual(computing["iterations"], 10)

    def test_score_is_that_of_training(self):
        self.copy_solver()
        with open(self.path("solver.prototxt"), "a", encoding="utf-8") as file:
            file.write(f'\nsnapshot_prefix: "{self.path("lenet")}"\n')
        summary = self.train("policy: ALL_PS", workers=1, batch=32, iterations=30)
        output = self.verb(
            "test",
            f"--solver={self.path('solver.prototxt')}",  # whose test_iter is 3
            f"--weights={self.path('lenet_iter_30.caffemodel')}",
        )
        accuracy = float(re.search(r"(?m)^accuracy: ([\d.]+)$", output).group(1))
        self.assertAlmostEqual(accuracy, summary["test_accuracy"], places=4)
        (loss,) = (float(shown) for shown in re.findall(r"(?m)^loss: ([\d.]+)$", output))
        self.assertAlmostEqual(loss, summary["test_loss"], places=3)
        same = self.verb(
            "test",
            f"--net={self.path('net.prototxt')}",
            "--iterations=3",
            f"--weights={self.path('lenet_iter_30.caffemodel')}",
        )
        self.assertEqual(same, output)
        self.assertIn("lenet_iter_30.caffemodel: copied conv1, conv2, ip1, ip2\n", output)
        self.assertNotIn("warning: ", output)
        self.copy_net(('name: "ip2"', 'name: "new"'))
        other = self.verb(
            "test",
            f"--net={self.path('net.prototxt')}",
            "--iterations=3",
            f"--weights={self.path('lenet_iter_30.caffemodel')}",
        )
        self.assertIn(
            "lenet_iter_30.caffemodel: copied conv1, conv2, ip1; not in the file: new; "
            "not in the net: ip2\n",
            other,
        )
        self.assertIn("warning: no file has values for new, so the score is that of", other)

    def test_each_of_several_test_nets_is_scored(self):
        states = 'test_state { stage: "all" } test_state { stage: "few" }'
        self.copy_solver(("test_iter: .*", f"test_iter: 3 test_iter: 1 {states}"))
        weights = self.first_values(0)
        with open(self.path("out/logs/worker-0.log"), encoding="utf-8") as log:
            self.assertIn(
                "the results of tests are those of test net 0 (stage all); those of", log.read()
            )
        output = self.verb(
            "test", f"--solver={self.path('solver.prototxt')}", f"--weights={weights}"
        )
        first, second = output.split("test net 1 (stage few):\n")
        self.assertIn("test net 0 (stage all):\n", first)
        scores = [re.findall(r"(?m)^(accuracy|loss): ([\d.]+)$", net) for net in (first, second)]
        for score in scores:
            self.assertEqual([name for name, _ in score], ["accuracy", "loss"])
        self.assertNotEqual(scores[0], scores[1])

    def test_profile_of_a_solver_with_passes_and_of_layers_with_one_name(self):
        twice = """layer { name: "relu1" type: "ReLU" bottom: "ip2" top: "ip2" }\n"""
        self.copy_net((r'layer {\n  name: "accuracy"', twice + r'layer {\n  name: "accuracy"'))
        self.copy_solver(("max_iter", "iter_size: 3 max_iter"))
        profile = self.path("new/lenet.profile")
        output = self.verb(
            "time",
            f"--solver={self.path('solver.prototxt')}",
            "--iterations=1",
            "--batch=8",
            f"--out={profile}",
        )
        self.assertIn(f"made the directory {self.path('new')}\n", output)
        self.assertIn("batch 8: ", output)
        with open(profile, encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, r"\A#.*\n# Batch and times .* an iteration, which has 3 passes")
        self.assertIn("batch: 24\n", text)
        self.assertIn('name: "relu1 (2)"', text)
        plan = self.verb("plan", f"--profile={profile}", "--workers=2", "--servers=2")
        self.assertIn("ip2", plan)

    def test_memory_that_lacks_is_said_in_a_sentence(self):
        net = self.write(
            "large.prototxt",
            'layer { name: "one" type: "DummyData" top: "one"'
            " dummy_data_param { shape { dim: 1 dim: 1 } } }\n"
            'layer { name: "many" type: "Tile" bottom: "one" top: "many"'
            " tile_param { axis: 1 tiles: 2000000000 } }\n",
        )
        process = self.start(
            "poseidon",
            "test",
            f"--net={net}",
            f"--weights={self.write('none.caffemodel', '')}",
            "--iterations=1",
            prefix=("prlimit", "--as=4000000000"),  # libtorch itself needs a half of it
        )
        self.assertEqual(process.wait(), cluster.FAILURE, process.output())
        self.assertRegex(
            process.output(),
            r"^poseidon test: the host has no memory left: .*allocate 8000000000 bytes.*"
            "; use a smaller batch\n$",
        )

    def test_what_can_not_be_written_or_measured_is_said_before(self):
        self.copy_solver()

        def time(*flags):
            output = self.verb(
                "time",
                f"--solver={self.path('solver.prototxt')}",
                "--batch=8",
                *flags,
                code=cluster.CONFIG_ERROR,
            )
            self.assertNotIn("iteration 1/", output)
            return output

        here = self.path(".")
        self.assertIn(
            f"can't write {here}: it is a directory; name a file",
            time("--iterations=1", f"--out={here}"),
        )
        for iterations in ("1000001", "2147483647"):
            self.assertIn(
                f"--iterations is {iterations}; it must be at most 1000000",
                time(f"--iterations={iterations}"),
            )
        self.assertIn("--threads is 4097; it must be at most 4096", time("--threads=4097"))
        threads = os.cpu_count() + 1
        self.assertIn(
            f"warning: --threads is {threads}, where this process may use ",
            time(f"--threads={threads}", f"--out={here}"),
        )

    def test_what_is_missing_is_said(self):
        self.assertIn("--solver", self.verb("time", code=cluster.CONFIG_ERROR))
        self.copy_solver()
        self.assertIn(
            "--weights",
            self.verb("test", f"--net={self.path('net.prototxt')}", code=cluster.CONFIG_ERROR),
        )
        self.assertIn(
            "nowhere.caffemodel",
            self.verb(
                "test",
                f"--net={self.path('net.prototxt')}",
                "--weights=nowhere.caffemodel",
                code=cluster.DATA_ERROR,
            ),
        )
        self.assertIn(
            "is no profile",
            self.verb(
                "plan",
                f"--profile={cluster.REPOSITORY}/configs/lenet_digits.prototxt",
                "--workers=2",
                "--servers=2",
                code=cluster.CONFIG_ERROR,
            ),
        )


if __name__ == "__main__":
    cluster.main()
