"""The table of trials: what is damaged or taken away, the command that meets it, and how it may end.

A trial's `make` gets a Workshop and returns the command's arguments after `poseidon`. Whatever it draws, it
draws from the workshop's random numbers, whose seed a failure prints. hostile_test.py says what holds for
every trial beside what stands here.
"""

import csv
import dataclasses
import json
import os
import shutil
import signal
import typing

import damage
import surroundings

SUCCESS, FAILURE, CONFIG_ERROR, DATA_ERROR = 0, 1, 2, 6
INTERRUPTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM)
# A signal may come while the libraries of a program are loaded.
BEFORE_MAIN = tuple(-number for number in ENDING)


@dataclasses.dataclass(frozen=True)
class Trial:
    name: str
    make: typing.Callable
    codes: tuple  # that the command may end with
    words: str = ""  # a regular expression that its output has
    rounds: int = 1  # of the quick run
    slow_rounds: int = 0  # of the slow one
    seconds: float = 20.0
    computes: bool = False  # it needs a build with an engine
    # A regular expression of its output, the signals of which it then gets one, and the most seconds in
    # between.
    signal_after: tuple = ()
    environment: typing.Callable = lambda workshop: {}
    prefix: typing.Callable = lambda workshop: []  # of the command
    beside: typing.Callable = lambda test, process: None  # is called while it runs
    check: typing.Callable = lambda test, workshop: None  # is called when it has ended


NET = """
name: "small"
layer {{ name: "data" type: "Data" top: "data" top: "label"
        data_param {{ source: "{source}" backend: {backend} batch_size: 4 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""

EXPERIMENT = """name: "small"
title: "A small experiment"
net {{ name: "n" replay {{ batch: 32 layers {{ name: "a" parameters: {parameters} forward_ms: 1 backward_ms: 2 }} }} }}
system {{ name: "s" policy: "CAFFE_PS" cluster {{ servers: 1 }} }}
sweep {{ system: "s" {axes} cluster {{ network {{ bandwidth: "1Gbps" latency: "10us" }} }} }}
figure {{ name: "f" title: "Speedup" }}
"""


def profile(layers):
    text = "".join(
        f'layers {{ name: "l{i}" parameters: 100 forward_ms: 0.01 backward_ms: 0.01 }}\n'
        for i in range(layers)
    )
    return (
        'name: "p"\ncluster { workers: 2 servers: 2 }\n'
        f"training {{ engine: REPLAY replay {{ iterations: 3 batch: 4\n{text} }} }}\n"
    )


def plan_of_damaged_profile(workshop):
    bad = workshop.write("bad.profile", damage.draw(workshop.random, profile(5).encode()))
    verb = workshop.random.choice(("plan", "simulate"))
    return [verb, f"--profile={bad}", "--workers=2", "--servers=2"]


def run_of_damaged_profile(workshop):
    bad = workshop.write("bad.profile", damage.draw(workshop.random, profile(2).encode()))
    return ["run", f"--config={bad}", f"--out={workshop.path('out')}"]


def plan_of_many_layers(workshop):
    path = workshop.write("many.profile", profile(10000))
    return ["plan", f"--profile={path}", "--workers=4", "--servers=4"]


def experiment(workshop, axes, *, damaged=False, parameters=1000):
    text = EXPERIMENT.format(axes=axes, parameters=parameters).encode()
    path = workshop.write("e.prototxt", damage.draw(workshop.random, text) if damaged else text)
    return ["experiment", path, "--mode=simulate", f"--out={workshop.path('out')}"]


def damaged_experiment(workshop):
    return experiment(workshop, "workers: 1", damaged=True)


def experiment_of_a_million_points(workshop):
    workers = " ".join(f"workers: {number}" for number in range(1, 1001))
    return experiment(
        workshop, workers + "".join(f' latency: "{number}us"' for number in range(1000))
    )


def experiment_with_damaged_results(workshop):
    """It has been done before, and one of the files that it would go on from is damaged."""
    command = experiment(workshop, "workers: 1 workers: 2")
    workshop.succeed(*command)
    out = workshop.path("out")
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(out)
        for name in names
        if name.endswith((".json", ".csv"))
    ]
    damage.damage_file(workshop.random, workshop.random.choice(sorted(files)))
    return command


def experiment_without_matplotlib(workshop):
    return experiment(workshop, "workers: 1")


def hides_matplotlib(workshop):
    workshop.write("hidden/matplotlib.py", 'raise ImportError("No module named matplotlib")\n')
    return {"PYTHONPATH": workshop.path("hidden")}


def no_room_for_temporary_files(workshop):
    return {"TMPDIR": workshop.path("nowhere")}


def long_experiment(workshop):
    workers = " ".join(f"workers: {number}" for number in range(1, 1001))
    return experiment(workshop, workers)


def check_results(test, workshop):
    """Points that were done before an interruption are kept, and the table is whole."""
    with open(workshop.path("out/results.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    test.assertGreaterEqual(len(rows), 2)
    test.assertEqual({None in row or None in row.values() for row in rows}, {False})
    for name in os.listdir(workshop.path("out/points")):
        with open(workshop.path(f"out/points/{name}"), encoding="utf-8") as file:
            json.load(file)


def processes_experiment(mode, *flags):
    """One whose points are trained by processes, which together takes longer than the interruption."""
    most = 8

    def make(workshop):
        surroundings.need_root("an experiment with processes")
        shell = workshop.write("shell", '#!/bin/sh\nshift\nexec sh -c "$*"\n')
        os.chmod(shell, 0o755)
        workshop.write("hosts", "127.0.0.1\n" * (most + 1))
        workers = " ".join(f"workers: {number}" for number in range(1, most + 1))
        command = experiment(workshop, workers, parameters=300000)
        command[command.index("--mode=simulate")] = f"--mode={mode}"
        return command + [flag.format(folder=workshop.path("")) for flag in flags]

    return make


def large_table(workshop):
    row = ",".join(str(workshop.random.randrange(256)) for _ in range(45 * 45)) + ",1\n"
    path = workshop.write("table.csv", row * 3000)
    return ["convert", "csv", f"--source={path}", f"--out={workshop.path('data')}"]


def run_on_small_disk(workshop):
    disk = workshop.small_disk(workshop.random.choice((4, 8, 16, 32, 64, 128, 256)) << 10)
    text = profile(2).replace("training {", "training { trace: true", 1)
    path = workshop.write("job.prototxt", text.replace("iterations: 3", "iterations: 300"))
    return ["run", f"--config={path}", f"--out={disk}/out"]


def full_temporary_directory(workshop):
    return {"TMPDIR": workshop.full_disk()}


def short_run(workshop):
    path = workshop.write("job.prototxt", profile(2))
    return ["run", f"--config={path}", f"--out={workshop.path('out')}"]


def run_among_drips(workshop):
    text = profile(2).replace("iterations: 3", "iterations: 60")
    path = workshop.write("job.prototxt", text.replace("ms: 0.01", "ms: 10"))
    return ["run", f"--config={path}", f"--out={workshop.path('out')}"]


def few_threads(workshop):
    return workshop.with_few_threads(workshop.random.randrange(1, 40))


def long_run(workshop):
    text = profile(2).replace("iterations: 3", "iterations: 100000000")
    path = workshop.write("job.prototxt", text)
    return ["run", f"--config={path}", f"--out={workshop.path('out')}"]


def damaged_leveldb(workshop):
    """A directory with the names of a LevelDB's files, and what may be in them."""
    draw = workshop.random
    for name in ("CURRENT", "LOCK", "LOG", "MANIFEST-000002", "000003.log", "000005.ldb"):
        if draw.random() < 0.8:
            workshop.write(f"db/{name}", draw.randbytes(draw.randrange(300)))
    if draw.random() < 0.7:
        workshop.write("db/CURRENT", "MANIFEST-000002\n")
    net = workshop.write("net.prototxt", NET.format(source=workshop.path("db"), backend="LEVELDB"))
    return ["time", f"--net={net}", "--iterations=1"]


def damaged_lmdb(workshop):
    shutil.copytree(workshop.material("lmdb"), workshop.path("db"))
    damage.damage_file(workshop.random, workshop.path("db/data.mdb"))
    net = workshop.write("net.prototxt", NET.format(source=workshop.path("db"), backend="LMDB"))
    return ["time", f"--net={net}", "--iterations=1"]


def damaged_model(extension):
    def make(workshop):
        model = workshop.path("model.caffemodel" + extension)
        shutil.copy(workshop.material("model" + extension), model)
        damage.damage_file(workshop.random, model)
        return ["test", f"--net={workshop.material('net')}", f"--weights={model}", "--iterations=1"]

    return make


def half_written_snapshot(workshop):
    """Of two snapshots, the newer one's solver state is cut off before the end of its model's name, which
    comes first; training goes on from the other one."""
    os.makedirs(workshop.path("snapshots"))
    for iteration in (1, 2):
        for extension in (".caffemodel", ".solverstate"):
            name = f"small_iter_{iteration}{extension}"
            shutil.copy(
                os.path.join(workshop.material("snapshots"), name), workshop.path("snapshots")
            )
    newest = workshop.path("snapshots/small_iter_2.solverstate")
    os.truncate(newest, workshop.random.randrange(20))
    return workshop.training(3, workshop.path("snapshots")) + ["--snapshot=latest"]


def snapshot_cut_between_fields(workshop):
    """What is left is a message that can be read."""
    os.makedirs(workshop.path("snapshots"))
    for extension in (".caffemodel", ".solverstate"):
        shutil.copy(
            os.path.join(workshop.material("snapshots"), f"small_iter_1{extension}"),
            workshop.path("snapshots"),
        )
    path = workshop.path(
        "snapshots/small_iter_1" + workshop.random.choice((".caffemodel", ".solverstate"))
    )
    with open(path, "rb") as file:
        places = damage.boundaries(file.read())
    os.truncate(path, workshop.random.choice(places[1:]))
    command = workshop.training(3, workshop.path("snapshots"))
    return command + [f"--snapshot={workshop.path('snapshots/small_iter_1.solverstate')}"]


ANY_END = (SUCCESS, FAILURE, CONFIG_ERROR, DATA_ERROR)

TRIALS = (
    Trial("damaged profile", plan_of_damaged_profile, ANY_END, rounds=8, slow_rounds=300),
    Trial("damaged job", run_of_damaged_profile, ANY_END + (4,), slow_rounds=30, seconds=90),
    Trial("10,000 layers", plan_of_many_layers, (SUCCESS,), "l9999"),
    Trial("damaged experiment", damaged_experiment, ANY_END, rounds=3, slow_rounds=200),
    Trial(
        "a million points",
        experiment_of_a_million_points,
        (CONFIG_ERROR,),
        r"e\.prototxt:\d+:\d+: .*the sweep has 1000000 points, and a sweep may have 100000; leave",
    ),
    Trial("damaged results", experiment_with_damaged_results, ANY_END, slow_rounds=60),
    Trial(
        "no matplotlib",
        experiment_without_matplotlib,
        (SUCCESS,),
        "there is no Matplotlib, so the report has tables only",
        environment=hides_matplotlib,
    ),
    Trial(
        "no temporary directory",
        experiment_without_matplotlib,
        (SUCCESS, FAILURE),
        environment=no_room_for_temporary_files,
        rounds=0,
        slow_rounds=1,
    ),
    Trial(
        "interrupted experiment",
        long_experiment,
        (INTERRUPTED,),
        "the same command goes on with what is missing",
        signal_after=(r"\[ *2/1000\]", ENDING, 0.3),
        check=check_results,
        slow_rounds=40,
    ),
    Trial(
        "interrupted report",
        experiment_without_matplotlib,
        (SUCCESS, INTERRUPTED),
        signal_after=("results: ", ENDING, 2.5),
        rounds=0,
        slow_rounds=15,
    ),
    Trial(
        "interrupted emulation",
        processes_experiment("emulate"),
        (INTERRUPTED,),
        "the same command goes on with what is missing",
        signal_after=("points", ENDING, 3),
        slow_rounds=8,
        rounds=0,
        seconds=40,
    ),
    Trial(
        "interrupted experiment on hosts",
        processes_experiment("run", "--hosts={folder}hosts", "--remote_shell={folder}shell"),
        (INTERRUPTED,),
        "the same command goes on with what is missing",
        signal_after=("points", ENDING, 3),
        slow_rounds=8,
        rounds=0,
        seconds=40,
    ),
    Trial(
        "interrupted conversion",
        large_table,
        (SUCCESS, INTERRUPTED, *BEFORE_MAIN),
        signal_after=("", ENDING, 1.5),
        slow_rounds=20,
    ),
    Trial(
        "small disk",
        run_on_small_disk,
        (SUCCESS, FAILURE),
        "No space left|room on its disk|summary: ",
        rounds=0,
        slow_rounds=6,
        seconds=90,  # 60 of which the summary waits for room
    ),
    Trial(
        "full temporary directory, run",
        short_run,
        (SUCCESS,),
        environment=full_temporary_directory,
        rounds=0,
        slow_rounds=1,
    ),
    Trial(
        "full temporary directory, experiment",
        experiment_without_matplotlib,
        (SUCCESS, FAILURE),
        environment=full_temporary_directory,
        rounds=0,
        slow_rounds=1,
    ),
    Trial(
        "few threads",
        short_run,
        # OpenBLAS starts a thread for each core before main, and interrupts the program if it can't.
        (FAILURE, -signal.SIGINT),
        r"this user may start no more than \d+ threads.*\(ulimit -u\); raise it|RLIMIT_NPROC",
        prefix=few_threads,
        slow_rounds=20,
    ),
    Trial(
        "connections that drip",
        run_among_drips,
        (SUCCESS,),
        "iteration 60/60",
        beside=surroundings.drip,
        slow_rounds=3,
        seconds=60,
    ),
    Trial(
        "run whose terminal is closed",
        long_run,
        (INTERRUPTED,),
        signal_after=("iteration ", (signal.SIGHUP,), 0),
    ),
    Trial(
        "damaged LevelDB",
        damaged_leveldb,
        (CONFIG_ERROR, DATA_ERROR),
        "LevelDB|db",
        rounds=2,
        slow_rounds=100,
        computes=True,
    ),
    Trial("damaged LMDB", damaged_lmdb, ANY_END, rounds=1, slow_rounds=60, computes=True),
    Trial("damaged model", damaged_model(""), ANY_END, rounds=1, slow_rounds=100, computes=True),
    Trial(
        "damaged HDF5 model",
        damaged_model(".h5"),
        ANY_END,
        rounds=2,
        slow_rounds=200,
        computes=True,
    ),
    Trial(
        "snapshot cut between fields",
        snapshot_cut_between_fields,
        (SUCCESS, DATA_ERROR),
        r"has values for no layer|lacks the values of ip|names no model|going on from"
        r'|first that it lacks is of layer "ip"',
        slow_rounds=20,
        seconds=60,
        computes=True,
    ),
    Trial(
        "half-written snapshot",
        half_written_snapshot,
        (SUCCESS,),
        "going on from iteration 1",
        slow_rounds=15,
        seconds=60,
        computes=True,
    ),
)
