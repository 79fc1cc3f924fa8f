"""What a user can do wrong: every mistake ends in one line that says what and where, and in the
documented exit code."""

import os
import shutil
import socket

import cluster

REPLAY = 'training { engine: REPLAY replay { layers { name: "a" parameters: 10 } } }'

SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10\n'

NET = """name: "small"
layer {{ name: "data" type: "Data" top: "data" top: "label"
  include {{ phase: TRAIN }} data_param {{ source: "{data}/train_lmdb" batch_size: 4 backend: LMDB }} }}
layer {{ name: "data" type: "Data" top: "data" top: "label"
  include {{ phase: TEST }} data_param {{ source: "{data}/test_lmdb" batch_size: 4 backend: LMDB }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


class BadInputTest(cluster.ClusterTest):
    def assert_ends(self, process, code, text):
        """The process ends with the code; `text` is in its last line."""
        self.assertEqual(process.wait(), code)
        lines = process.output().splitlines()
        self.assertTrue(lines, "it says nothing")
        self.assertIn(text, lines[-1])

    def run_config(self, config, code, text, *arguments):
        self.assert_ends(self.start_run(config, *arguments), code, text)
        self.assert_nothing_left()

    def refuse(self, config, text, *flags):
        """`poseidon run` refuses the config before it starts anything."""
        self.run_config(config, cluster.CONFIG_ERROR, text, *flags)
        self.assertFalse(os.path.exists(self.path("out")))


class BadConfigTest(BadInputTest):
    def test_unknown_field(self):
        self.refuse(
            f"cluster {{\n  workres: 2\n}}\n{REPLAY}",
            f'{self.path("config.prototxt")}:2:3: Cluster has no field "workres"; '
            'did you mean "workers"?',
        )

    def test_unknown_field_of_nested_message(self):
        self.refuse(
            "training { engine: REPLAY replay { layers {\n"
            ' name: "a" parameters: 10 backwards_ms: 1 } } }',
            'config.prototxt:2:27: ReplayLayer has no field "backwards_ms"; '
            'did you mean "backward_ms"?',
        )

    def test_bad_enumeration_value(self):
        self.refuse(
            f"communication {{ policy: FASTEST }} {REPLAY}",
            'config.prototxt:1:33: Unknown enumeration value of "FASTEST" for field '
            '"policy". Allowed: BYTES, ALL_PS, ALL_SFB, TIME, ',
        )

    def test_values_out_of_range(self):
        for field, text in (
            ("cluster { workers: 0 }", "cluster.workers is 0; it must be between 1 and 1000000"),
            ("cluster { servers: -1 }", "cluster.servers is -1; it must be between 1 and"),
            (
                "cluster { scheduler_port: 65535 }",
                "cluster.scheduler_port is 65535; it must be between 1 and 65534",
            ),
            (
                "communication { kv_pair_bytes: 10 }",
                "communication.kv_pair_bytes is 10; it must be a multiple of 4",
            ),
            ("communication { lanes: 0 }", "communication.lanes is 0; it must be between"),
            (
                "communication { heartbeat_deadline_seconds: 1 }",
                "communication.heartbeat_deadline_seconds is 1; it must be at least three "
                "heartbeat intervals, 3",
            ),
        ):
            with self.subTest(field):
                column = field.index("{") + 3
                self.refuse(f"{field}\n{REPLAY}", f"config.prototxt:1:{column}: {text}")

    def test_batch_of_zero(self):
        self.refuse(
            REPLAY.replace("replay {", "replay {\nbatch: 0"),
            "config.prototxt:2:1: training.replay.batch is 0; it must be between 1 and",
        )
        self.refuse(
            'training { solver: "solver.prototxt"\nbatch_per_worker: 0 }',
            "config.prototxt:2:1: training.batch_per_worker is 0; it must be at least 1",
        )

    def test_bad_replay(self):
        for layer in ("parameters: -1", "parameters: 1 forward_ms: -4"):
            self.refuse(REPLAY.replace("parameters: 10", layer), "; expected 0 to ")

    def test_missing_files(self):
        missing = self.path("missing.prototxt")
        for program in ("poseidon_scheduler", "poseidon_server", "poseidon_worker"):
            self.assert_ends(
                self.start(program, f"--config={missing}"),
                cluster.CONFIG_ERROR,
                f"{program}: can't read {missing}: No such file or directory",
            )
            self.assert_ends(
                self.start(program), cluster.CONFIG_ERROR, "--config is missing; name a job config"
            )
        self.assert_ends(
            self.start("poseidon", "run"),
            cluster.CONFIG_ERROR,
            "--config is missing; name a job config",
        )
        self.refuse(
            "training { }",
            "config.prototxt:1:1: training.solver is missing; name a "
            "Caffe solver prototxt, or set engine: REPLAY",
        )
        self.refuse(
            'training { solver: "nets/solver.prototxt" }',
            "config.prototxt: training.solver: there is no file nets/solver.prototxt in the working "
            f"directory, {cluster.REPOSITORY}, nor {self.path('nets/solver.prototxt')}",
        )

    def test_files_that_are_none(self):
        """A pipe that nobody writes would be read for ever."""
        os.mkfifo(self.path("pipe"))
        os.symlink(self.path("loop"), self.path("loop"))
        for name, text in (
            ("pipe", "it is a pipe, and only regular files are read"),
            ("loop", "Too many levels of symbolic links"),
        ):
            self.assert_ends(
                self.start("poseidon", "run", f"--config={self.path(name)}"),
                cluster.CONFIG_ERROR,
                f"can't read {self.path(name)}: {text}",
            )

    def test_text_that_is_no_utf8(self):
        with open(self.path("config.prototxt"), "wb") as file:
            file.write(b'\xef\xbb\xbfname: "caf\xe9"\n' + REPLAY.encode())
        run = self.start("poseidon", "run", f"--config={self.path('config.prototxt')}")
        self.assert_ends(
            run,
            cluster.CONFIG_ERROR,
            'config.prototxt:1:1: name is "caf\\xe9", which is no UTF-8; write the file in UTF-8',
        )

    def test_directories_that_cannot_be_made(self):
        config = self.write("config.prototxt", REPLAY)
        self.assert_ends(
            self.start("poseidon", "run", f"--config={config}", f"--out={config}"),
            cluster.CONFIG_ERROR,
            f"can't make the directory {config}/logs: Not a directory; choose another one",
        )

    def test_a_name_that_leads_elsewhere(self):
        config = self.write("job.prototxt", 'name: "a/../../b"' + REPLAY)
        run = self.start("poseidon", "run", f"--config={config}")
        text = (
            f'{config}: name is "a/../../b", and results would go to b; choose a name without ".."'
        )
        self.assert_ends(run, cluster.CONFIG_ERROR, text)

    def test_flags_out_of_range(self):
        table = self.write("table.csv", "1,2,3,4,0\n")
        for flags, text in (
            (("--max_value=0",), "max_value is 0; it must be above 0"),
            (("--height=-3", "--width=2"), "height is -3; it must be between 1 and"),
            (
                ("--scale_height=1000000", "--scale_width=28"),
                "scale_height is 1000000; it must be between 1 and 16384",
            ),
            (("--height=2",), "give both height and width, or neither"),
        ):
            with self.subTest(flags):
                csv = ("convert", "csv", f"--source={table}", f"--out={self.path('data')}", *flags)
                self.assert_ends(self.start("poseidon", *csv), cluster.CONFIG_ERROR, text)
        for flag, value in (("snapshot", ""), ("weights", " ,"), ("hosts", "")):
            text = f"--{flag} is empty; name a file"
            self.run_config(REPLAY, cluster.CONFIG_ERROR, text, f"--{flag}={value}")
        for flag in ("--snapshot=latest", "--weights=net.caffemodel"):
            self.refuse(REPLAY, "has training.engine REPLAY, which computes nothing", flag)

    def test_flags_that_do_not_fit(self):
        slowed = f"cluster {{ workers: 4 deviation {{ worker: 3 }} }} {REPLAY}"
        text = "cluster.deviation.0.worker is 3; it must be between 0 and 1"
        self.refuse(slowed, text, "--workers=2")
        for verb in (["doctor"], ["launch", "slurm"]):
            command = (*verb, f"--config={self.path('config.prototxt')}", "--workers=2")
            self.assert_ends(self.start("poseidon", *command), cluster.CONFIG_ERROR, text)

    def test_bad_flags(self):
        for value in (-1, 0):
            text = f"--workers is {value}; it must be at least 1"
            self.refuse(REPLAY, text, f"--workers={value}")
        self.run_config(REPLAY, cluster.CONFIG_ERROR, "did you mean --servers?", "--sevrers=1")
        effects = (
            ("--sighup_effect=halt", 'halt"; it must be snapshot, stop, none or end'),
            ("--sigint_effect=snapshot", "needs a solver with a snapshot_prefix"),
        )
        for flag, text in effects:
            self.run_config(REPLAY, cluster.CONFIG_ERROR, text, flag)
        config = self.write("config.prototxt", REPLAY)
        run = ("run", f"--config={config}", "--sigint_effect=stop", "--", "/bin/true")
        self.assert_ends(
            self.start("poseidon", *run),
            cluster.CONFIG_ERROR,
            "--sigint_effect=stop is for this project's own workers",
        )
        self.assert_ends(
            self.start("poseidon_worker", f"--config={config}", "--rank=-2"),
            cluster.CONFIG_ERROR,
            "--rank is -2; ranks count from 0",
        )


class MissingPartTest(BadInputTest):
    """Programs that have been copied without what they load or become."""

    def start_alone(self, program, *arguments):
        os.makedirs(self.path("bin"), exist_ok=True)
        copy = shutil.copy(os.path.join(cluster.programs(), program), self.path("bin"))
        return self.spawn(f"alone-{len(self.processes)}", [copy, *arguments])

    def test_a_worker_without_libtorch(self):
        self.write("solver.prototxt", SOLVER)
        config = self.write("config.prototxt", 'training { solver: "solver.prototxt" }')
        self.assert_ends(
            self.start_alone("poseidon_worker", f"--config={config}"),
            cluster.CONFIG_ERROR,
            f"{config}: training.engine is TORCH, but "
            + (
                f"{self.path('bin/poseidon_torch_worker')} can't be run: No such file or directory"
                if cluster.has_torch()
                else "this build has no libtorch"
            ),
        )

    def test_images_without_opencv(self):
        images = os.path.join(cluster.REPOSITORY, "tests/golden/data/inputs/images")
        command = (
            "poseidon",
            "convert",
            "imageset",
            f"--source={self.write('list.txt', 'alpha.png 0')}",
            f"--root_folder={images}/",
            f"--out={self.path('database')}",
        )
        library = self.path("bin/libposeidon_images.so")
        self.assert_ends(
            self.start_alone(*command),
            cluster.DATA_ERROR,
            f"needs OpenCV, which this build lacks ({library} is not there); install "
            "libopencv-imgcodecs-dev and build again",
        )
        self.write("bin/libposeidon_images.so", "")  # as where OpenCV is not installed
        self.assert_ends(self.start_alone(*command), cluster.DATA_ERROR, "can't be loaded: ")


class BadNetTest(BadInputTest):
    def setUp(self):
        super().setUp()
        table = "".join(f"{i % 256},{i % 7},{i % 5},{9 - i % 10},{i % 3}\n" for i in range(400))
        convert = self.start(
            "poseidon",
            "convert",
            "csv",
            f"--source={self.write('table.csv', table)}",
            f"--out={self.path('data')}",
            "--train_records=300",
        )
        self.assertEqual(convert.wait(), cluster.SUCCESS)
        self.net = NET.format(data=self.path("data"))
        self.job = 'training { solver: "solver.prototxt" }'

    def write_net(self, *replacements, solver=SOLVER):
        self.write("solver.prototxt", solver)
        net = self.net
        for old, new in replacements:
            self.assertIn(old, net)
            net = net.replace(old, new)
        self.write("net.prototxt", net)

    def truncate(self, database):
        path = self.path(f"data/{database}/data.mdb")
        size = os.path.getsize(path)
        os.truncate(path, size - 4096)
        return f"{path}: truncated: its header says {size} bytes, the file has {size - 4096}"

    def test_good_net(self):
        """The others are wrong in one thing each, and so not for another reason."""
        self.write_net()
        plan = self.start(
            "poseidon", "plan", f"--net={self.path('net.prototxt')}", "--workers=2", "--servers=1"
        )
        self.assertEqual(plan.wait(), cluster.SUCCESS)

    def test_only_a_replay_can_be_slowed(self):
        if not cluster.has_torch():
            self.skipTest("this build has no libtorch")
        self.write_net()
        config = self.write("config.prototxt", self.job)
        for factor in ("2", "0", "nan"):
            self.assert_ends(
                self.start("poseidon_worker", f"--config={config}", f"--compute_factor={factor}"),
                cluster.CONFIG_ERROR,
                "training.engine is TORCH, which computes as fast as it can; --compute_factor is for REPLAY",
            )

    def test_missing_net_file(self):
        self.write_net(solver="\n" + SOLVER.replace("net.prototxt", "nets/lenet.prototxt"))
        self.refuse(
            self.job,
            "solver.prototxt:2:1: no net file nets/lenet.prototxt in the working "
            f"directory, nor {self.path('nets/lenet.prototxt')}",
        )

    def test_net_that_does_not_fit_its_solver(self):
        self.write_net(
            solver=SOLVER
            + """
            test_iter: 1 test_iter: 1 test_interval: 5 test_state { stage: "a" }"""
        )
        self.refuse(
            self.job, "there are 1 test_state entries for 2 test nets; expected one for each"
        )
        self.write_net(
            (" include { phase: TRAIN }", " include { phase: TEST }"),
            ('"label" top: "loss"', '"label" top: "loss" include { phase: TEST }'),
        )
        self.refuse(self.job, "the net does not fit its solver")

    def test_batch_of_zero(self):
        self.write_net(("batch_size: 4", "batch_size: 0"))
        self.refuse(self.job, "net.prototxt:3:")

    def test_unknown_fields(self):
        self.write_net(solver=SOLVER + "momentun: 0.9")
        self.refuse(
            self.job,
            'solver.prototxt:2:1: SolverParameter has no field "momentun"; '
            'did you mean "momentum"?',
        )
        self.write_net(("num_output", "num_outputs"))
        self.refuse(
            self.job,
            'InnerProductParameter has no field "num_outputs"; did you mean ' '"num_output"?',
        )

    def test_missing_data(self):
        self.write_net(("train_lmdb", "trian_lmdb"))
        self.run_config(self.job, cluster.DATA_ERROR, "trian_lmdb: no LMDB database here")

    def test_truncated_data(self):
        self.write_net()
        text = self.truncate("train_lmdb")
        self.run_config(self.job, cluster.DATA_ERROR, text)

    def test_truncated_test_data(self):
        """`run` looks at it before anything starts, though only worker 0 will read it."""
        self.write_net(solver=SOLVER + "test_iter: 1 test_interval: 5")
        text = self.truncate("test_lmdb")
        run = self.start_run("cluster { workers: 2 } " + self.job)
        self.assertEqual(run.wait(), cluster.DATA_ERROR)
        self.assertIn(text, run.output())
        self.assertNotIn("worker 0", run.output())
        self.assert_nothing_left()


class BadStartTest(BadInputTest):
    """Daemons started by hand that do not fit together."""

    def setUp(self):
        super().setUp()
        self.port = cluster.free_port_pair()
        self.config = cluster.replay_config(cluster=f"scheduler_port: {self.port}", servers=1)

    def start_worker(self, name, *arguments, config=None):
        path = self.write(f"{name}.prototxt", config or self.config)
        return self.start("poseidon_worker", f"--config={path}", *arguments, name=name)

    def test_port_in_use(self):
        for port in (self.port, self.port + 1):
            with socket.create_server(("", port)):
                scheduler = self.start_by_hand(self.config, ["scheduler"])["scheduler"]
                self.assert_ends(scheduler, cluster.CONFIG_ERROR, f"cannot listen on port {port}")
                self.assertIn(
                    "Address already in use; another program listens on this port",
                    scheduler.output(),
                )

    def test_refused_nodes_do_not_disturb_the_others(self):
        daemons = self.start_by_hand(self.config, ("scheduler", "worker-0"))
        daemons["scheduler"].await_output("worker 0 .* joined")
        first = f"127.0.0.1, process {daemons['worker-0'].pid}"
        prefix = "the scheduler refused this worker: "
        self.assert_ends(
            self.start_worker("rival", "--rank=0"),
            cluster.REFUSED,
            f"{prefix}rank 0 is already taken by worker 0 ({first}); give each worker "
            "a rank of its own",
        )
        self.assert_ends(
            self.start_worker("too-high", "--rank=2"),
            cluster.REFUSED,
            f"{prefix}there is no worker rank 2: the config has 2 worker(s), ranks count from 0",
        )
        self.assert_ends(
            self.start_worker(
                "stranger", "--rank=1", config=self.config.replace("batch: 8", "batch: 9")
            ),
            cluster.REFUSED,
            f"{prefix}its job config differs from the scheduler's: training.replay.batch is 9, the "
            "scheduler's is 8; every node of a job must be started from the same file",
        )
        daemons.update(self.start_by_hand(self.config, ["worker-1"]))
        daemons["scheduler"].await_output("worker 1 .* joined")
        self.assert_ends(
            self.start_worker("surplus"),
            cluster.REFUSED,
            f"{prefix}the config has 2 worker(s) and all of them are here already",
        )
        daemons.update(self.start_by_hand(self.config, ["server-0"]))
        self.assert_all_succeed(daemons)

    def test_comments_and_order_make_no_other_config(self):
        daemons = self.start_by_hand(self.config, ("scheduler", "server-0", "worker-0"))
        other = "# a comment\n" + self.config.replace('name: "test"\n', "") + 'name: "test"'
        daemons["worker-1"] = self.start_worker("worker-1", "--rank=1", config=other)
        self.assert_all_succeed(daemons)

    def test_missing_scheduler(self):
        worker = self.start_worker(
            "worker-0",
            config=cluster.replay_config(
                cluster=f"""
            scheduler_host: "127.0.0.9" scheduler_port: {self.port} join_deadline_seconds: 1"""
            ),
        )
        self.assert_ends(
            worker,
            cluster.DEADLINE_EXCEEDED,
            f"the scheduler at tcp://127.0.0.9:{self.port} did not answer within 1 s; "
            "is it running, and does the config's cluster.scheduler_host name it?",
        )
        self.assertIn(
            f"asking the scheduler at tcp://127.0.0.9:{self.port} to join", worker.output()
        )

    def test_scheduler_host_of_another_machine(self):
        """192.0.2.0/24 is nobody's."""
        config = self.config.replace(
            "scheduler_port", 'scheduler_host: "192.0.2.1" join_deadline_seconds: 1 scheduler_port'
        )
        config += 'security { mode: NONE allow: "192.0.2.0/24" }'
        scheduler = self.start_by_hand(config, ["scheduler"])["scheduler"]
        self.assert_ends(
            scheduler,
            cluster.DEADLINE_EXCEEDED,
            'cluster.scheduler_host, "192.0.2.1", is not this machine, so they may look for the '
            "scheduler elsewhere",
        )
        self.assertIn('"192.0.2.1", is no address of this machine', scheduler.output())
        self.assertNotIn("at tcp://192.0.2.1", scheduler.output())

    def test_missing_nodes(self):
        config = cluster.replay_config(
            workers=4,
            servers=1,
            cluster=(f"scheduler_port: {self.port} join_deadline_seconds: {cluster.scaled(6):g}"),
        )
        daemons = self.start_by_hand(config, ("scheduler", "worker-2"))
        text = (
            f"still missing 3 workers (ranks 0, 1, 3) and server 0 after {cluster.scaled(6):g} s "
            "(cluster.join_deadline_seconds)"
        )
        for daemon in daemons.values():
            self.assert_ends(daemon, cluster.DEADLINE_EXCEEDED, text)

    def test_unknown_scheduler_host(self):
        worker = self.start_worker(
            "worker-0",
            config=f"""
            cluster {{ scheduler_host: "no-such-host.invalid" }} {REPLAY}""",
        )
        self.assert_ends(
            worker,
            cluster.CONFIG_ERROR,
            'can\'t resolve cluster.scheduler_host "no-such-host.invalid"',
        )


if __name__ == "__main__":
    cluster.main()
