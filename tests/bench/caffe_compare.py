"""Images per second of training on one core: stock BVLC Caffe, our worker, and that Caffe as a worker.

  caffe_compare.py --caffe=PATH --bin=DIR [--rounds=3] [--core=0] [--nets=lenet,resnet50,...]
  caffe_compare.py --caffe=PATH --bin=DIR --pairs=0,1 [--longer=8] [--rounds=6] ...

--caffe is a `caffe` program (that uses libcaffe.so, or the last column stays empty), --bin the programs of
a build with that Caffe. Every program trains the same net with the same solver on blobs of constants,
so no time goes into reading, and is bound to one core with all its threads; ours with its
scheduler and server, too. The programs take turns, so that whatever else the machine does meets all
of them. A rate is that between the second and the last line "Iteration N ... loss =" of a program's
log, each of which ends the same part of an iteration; shown are medians over the rounds. What stock
Caffe computes after its last iteration, a loss without training, does not count.

Where rates change from minute to minute, --pairs=CORE,CORE compares what runs at the same time: stock
Caffe on one core, the other program on the other one, which they swap each round, with --longer times the
iterations. A ratio is that of the iterations in the time in which both trained; shown are its geometric
mean and its range, and, as a measure of what is chance, those of stock Caffe beside itself.
"""

import argparse
import concurrent.futures
import datetime
import itertools
import os
import re
import statistics
import subprocess
import tempfile

# The layers of a net: (type, top, fields) on the top of the layer before; "=" works in place.
CONVOLUTION = (
    "convolution_param {{ num_output: {} kernel_size: {} pad: {} stride: {} group: {} "
    "weight_filler {{ type: 'gaussian' std: 0.01 }} }}"
)
INNER_PRODUCT = (
    "inner_product_param {{ num_output: {} weight_filler {{ type: 'gaussian' std: 0.005 }} }}"
)
POOLING = "pooling_param {{ pool: {} kernel_size: {} stride: {} }}"


def convolution(top, outputs, kernel, pad=0, stride=1, group=1):
    return ("Convolution", top, CONVOLUTION.format(outputs, kernel, pad, stride, group))


def inner_product(top, outputs):
    return ("InnerProduct", top, INNER_PRODUCT.format(outputs))


def pooling(top, method, kernel, stride):
    return ("Pooling", top, POOLING.format(method, kernel, stride))


RELU = ("ReLU", "=", "")
DROPOUT = ("Dropout", "=", "")


def norm(top):
    return ("LRN", top, "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")


# name: (batch, record, iterations, layers). LeNet and CIFAR-10 quick as in Caffe's examples; AlexNet:
# Krizhevsky, Sutskever, Hinton, NIPS 2012, in Caffe's order of pooling and normalization. A net without
# layers here is that of configs/models.
NETS = {
    "lenet": (
        64,
        (1, 28, 28),
        60,
        [
            convolution("conv1", 20, 5),
            pooling("pool1", "MAX", 2, 2),
            convolution("conv2", 50, 5),
            pooling("pool2", "MAX", 2, 2),
            inner_product("ip1", 500),
            RELU,
            inner_product("scores", 10),
        ],
    ),
    "cifar10_quick": (
        100,
        (3, 32, 32),
        20,
        [
            convolution("conv1", 32, 5, pad=2),
            pooling("pool1", "MAX", 3, 2),
            RELU,
            convolution("conv2", 32, 5, pad=2),
            RELU,
            pooling("pool2", "AVE", 3, 2),
            convolution("conv3", 64, 5, pad=2),
            RELU,
            pooling("pool3", "AVE", 3, 2),
            inner_product("ip1", 64),
            inner_product("scores", 10),
        ],
    ),
    "alexnet": (
        16,
        (3, 227, 227),
        6,
        [
            convolution("conv1", 96, 11, stride=4),
            RELU,
            norm("norm1"),
            pooling("pool1", "MAX", 3, 2),
            convolution("conv2", 256, 5, pad=2, group=2),
            RELU,
            norm("norm2"),
            pooling("pool2", "MAX", 3, 2),
            convolution("conv3", 384, 3, pad=1),
            RELU,
            convolution("conv4", 384, 3, pad=1, group=2),
            RELU,
            convolution("conv5", 256, 3, pad=1, group=2),
            RELU,
            pooling("pool5", "MAX", 3, 2),
            inner_product("fc6", 4096),
            RELU,
            DROPOUT,
            inner_product("fc7", 4096),
            RELU,
            DROPOUT,
            inner_product("scores", 1000),
        ],
    ),
    "googlenet": (8, (3, 224, 224), 4, []),
    "resnet50": (8, (3, 224, 224), 4, []),
}

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/models")
DATA_LAYER = re.compile(r'^layer \{\n  name: "data"\n.*?^\}\n', re.MULTILINE | re.DOTALL)

# Not Caffe's "Iteration N, lr = ", which comes after the update.
STAMP = re.compile(r"^I(\d{8} \d\d:\d\d:\d\d\.\d+) .*\] Iteration (\d+)\b.*, loss = ", re.MULTILINE)


def net_text(name):
    batch, record, _, layers = NETS[name]
    shapes = " ".join(
        f"shape {{ {' '.join(f'dim: {extent}' for extent in shape)} }}"
        for shape in ((batch, *record), (batch,))
    )
    text = (
        f"name: '{name}' layer {{ name: 'data' type: 'DummyData' top: 'data' top: 'label' "
        f"dummy_data_param {{ {shapes} data_filler {{ type: 'constant' value: 0.5 }} "
        "data_filler { type: 'constant' value: 0 } } }\n"
    )
    if not layers:
        with open(f"{MODELS}/{name}/net.prototxt", encoding="utf-8") as file:
            shipped, removed = DATA_LAYER.subn(
                "", re.sub(r"^name:.*\n", "", file.read(), flags=re.M)
            )
        assert removed == 2, f"{removed} data layers"
        return text + shipped
    bottom = "data"
    for number, (kind, top, fields) in enumerate(layers):
        top = bottom if top == "=" else top
        text += (
            f"layer {{ name: '{kind}{number}' type: '{kind}' bottom: '{bottom}' top: '{top}' "
            f"{fields} }}\n"
        )
        bottom = top
    return text + (
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'label' "
        "top: 'loss' }\n"
    )


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def stamps_of(log, iterations):
    """[(second, iteration)] of a log's lines up to that iteration; the first one warms up."""
    return [
        (datetime.datetime.strptime(stamp, "%Y%m%d %H:%M:%S.%f").timestamp(), int(iteration))
        for stamp, iteration in STAMP.findall(log)
        if int(iteration) <= iterations
    ][1:]


def rate(log, batch, iterations):
    """Images per second up to that iteration of a log."""
    stamps = stamps_of(log, iterations)
    (begin, first), (end, last) = stamps[0], stamps[-1]
    return (last - first) * batch / (end - begin)


def iteration_at(stamps, second):
    for (begin, first), (end, last) in itertools.pairwise(stamps):
        if begin <= second <= end:
            return first + (last - first) * (second - begin) / max(end - begin, 1e-6)
    raise ValueError(f"the log says nothing of second {second}")


def ratio_of(log, other, iterations):
    """How many iterations the first log's program did for one of the other's, at the same time."""
    first, second = stamps_of(log, iterations), stamps_of(other, iterations)
    begin = max(first[0][0], second[0][0])
    end = min(first[-1][0], second[-1][0])
    if end <= begin:
        raise SystemExit("the two programs did not train at the same time; try --longer")
    done = [iteration_at(stamps, end) - iteration_at(stamps, begin) for stamps in (first, second)]
    return done[0] / done[1]


class Contest:
    def __init__(self, options, name, directory):
        self.options = options
        self.batch, _, iterations, _ = NETS[name]
        self.iterations = iterations * options.longer
        self.directory = directory
        net = write(f"{directory}/net.prototxt", net_text(name))
        self.solver = write(
            f"{directory}/solver.prototxt",
            f"net: '{net}' base_lr: 0.0001 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed' "
            f"max_iter: {self.iterations + 1} display: 1 random_seed: 1 solver_mode: CPU "
            "snapshot_after_train: false",
        )
        self.job_file = write(
            f"{directory}/job.prototxt",
            "cluster { workers: 1 servers: 1 } communication { policy: ALL_RING } "
            f"training {{ solver: '{self.solver}' threads: 1 }}",
        )

    def run(self, command, core):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "GLOG_logtostderr": "1"}
        done = subprocess.run(
            ["taskset", "-c", str(core), *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(
                f"{' '.join(command)} failed:\n{done.stdout[-500:]}{done.stderr[-2000:]}"
            )
        return done.stderr

    def stock(self, core):
        """The log."""
        return self.run([self.options.caffe, "train", f"--solver={self.solver}"], core)

    def job(self, core, *program):
        out = f"{self.directory}/out"
        self.run(
            [
                f"{self.options.bin}/poseidon",
                "run",
                f"--config={self.job_file}",
                f"--out={out}",
                *program,
            ],
            core,
        )
        with open(f"{out}/logs/worker-0.log", encoding="utf-8") as file:
            return file.read()

    def ours(self, core):
        return self.job(core)

    def patched(self, core):
        return self.job(core, "--", self.options.caffe, "train", f"--solver={self.solver}")

    def of(self, column):
        return {"stock": self.stock, "ours": self.ours, "patched": self.patched}[column]


def take_turns(contest, columns, options):
    """A line of rates, and of their ratios to the first column's."""
    rates = {column: [] for column in columns}
    for _ in range(options.rounds):
        for column in columns:
            log = contest.of(column)(options.core)
            rates[column].append(rate(log, contest.batch, contest.iterations))
    medians = [statistics.median(rates[column]) for column in columns]
    return (
        "".join(f"{median:>10.1f}" for median in medians)
        + "   "
        + ", ".join(
            f"{column} {median / medians[0]:.2f}"
            for column, median in zip(columns[1:], medians[1:])
        )
    )


def run_in_pairs(contest, columns, options):
    """A line of ratios to stock Caffe at the same time."""
    cores = [int(core) for core in options.pairs.split(",")]
    cells = []
    for column in columns:
        ratios = []
        for turn in range(options.rounds):
            one, other = cores if turn % 2 == 0 else reversed(cores)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                logs = [pool.submit(contest.of(column), one), pool.submit(contest.stock, other)]
                ratios.append(ratio_of(*(log.result() for log in logs), contest.iterations))
        mean, low, high = statistics.geometric_mean(ratios), min(ratios), max(ratios)
        cells.append(f"{column} {mean:.2f} ({low:.2f} to {high:.2f})")
    return "  ".join(cells)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--caffe", required=True)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--skip", default="", help="columns to leave out: ours, patched")
    parser.add_argument("--pairs", help="two cores, such as 0,1")
    parser.add_argument("--longer", type=int, default=1, help="times the iterations")
    options = parser.parse_args()
    columns = [
        column for column in ("stock", "ours", "patched") if column not in options.skip.split(",")
    ]
    method = run_in_pairs if options.pairs else take_turns
    if not options.pairs:
        print(f"{'images/s':<16}" + "".join(f"{column:>10}" for column in columns) + "   to stock")
    for name in options.nets.split(","):
        with tempfile.TemporaryDirectory() as directory:
            line = method(Contest(options, name, directory), columns, options)
        print(f"{name:<16}{line}", flush=True)


if __name__ == "__main__":
    main()
