#include "cli/verbs.h"

#include "cli/convert.h"
#include "cli/plan.h"
#include "cli/run.h"

namespace poseidon {
namespace {

const Verb kRun{
    .name = "run",
    .summary = "train a job on this machine: scheduler, servers and workers",
    .usage = "run --config=FILE [--workers=N] [--servers=N] [--out=DIR]",
    .text =
        "Starts the daemons that the job config asks for as processes of this machine, shows how "
        "training goes, and ends with all of them, however it ends. The output directory gets "
        "summary.json, job.prototxt (the config as it was run), logs and, if the config wants "
        "them, traces.",
    .flags = {{"config", "FILE", ""},
              {"workers", "N", "Number of workers, instead of the config's."},
              {"servers", "N", "Number of parameter servers, instead of the config's."},
              {"out", "DIR", "Directory to write to; out/NAME of the job by default."}},
    .example = "poseidon run --config=configs/lenet_digits.prototxt",
    .run = RunVerb};

const Verb kPlan{
    .name = "plan",
    .summary = "show how a net's layers would be synchronised on a cluster",
    .usage = "plan --net=FILE|--solver=FILE --workers=P --servers=S [flags]",
    .text =
        "Prices every layer that learns, in floats that a node which is worker and server sends "
        "and receives in an iteration: through parameter servers (PS) and, for inner-product "
        "layers, by broadcasting sufficient factors (SFB). Then plans as the scheduler would, and "
        "predicts when each bucket of layers is ready, sent, fresh and needed, how long an "
        "iteration takes, and which other scheme comes closest. docs/cost_model.md has the "
        "formulas. Nothing is trained, and no data is needed if --input says its shape.",
    .flags = {{"net", "FILE", ""},
              {"solver", "FILE", ""},
              {"workers", "P", ""},
              {"servers", "S", ""},
              {"batch", "K", ""},
              {"policy", "NAME", ""},
              {"input", "CxHxW", ""},
              {"bandwidth", "RATE", ""},
              {"goodput_share", "X", ""},
              {"latency", "TIME", ""},
              {"colocated", "", ""},
              {"flops", "X", ""},
              {"images_per_second", "X", ""},
              {"grid", "XxY", ""},
              {"codec", "NAME", ""},
              {"bucket_bytes", "N", ""},
              {"lanes", "N", ""},
              {"kv_pair_bytes", "N", ""},
              {"format", "NAME", ""}},
    .example =
        "poseidon plan --net=configs/models/lenet/net.prototxt --input=1x28x28 \\\n"
        "    --workers=4 --servers=2 --batch=16",
    .run = PlanVerb};

const Verb kConvertCsv{
    .name = "convert csv",
    .summary = "make LMDBs of a table: an image and its label a line",
    .usage = "convert csv --source=FILE --out=DIR [flags]",
    .text =
        "Reads lines of numbers, the pixels of an image of one channel row by row and a label, "
        "and writes LMDBs of Caffe's Datum: DIR/train_lmdb and, if images are left over, "
        "DIR/test_lmdb.",
    .flags = {{"source", "FILE", "The table; values are parted by commas."},
              {"out", "DIR", ""},
              {"label_column", "N", ""},
              {"height", "N", ""},
              {"width", "N", ""},
              {"max_value", "X", ""},
              {"scale_height", "N", ""},
              {"scale_width", "N", ""},
              {"shuffle", "", ""},
              {"shuffle_seed", "N", ""},
              {"train_records", "N", ""},
              {"replace", "", ""}},
    .example =
        "poseidon convert csv --source=configs/data/digits.csv --out=out/digits \\\n"
        "    --max_value=16 --scale_height=28 --scale_width=28 --train_records=1500",
    .run = ConvertCsvVerb};

const Verb kConvertMnist{
    .name = "convert mnist",
    .summary = "make LMDBs of MNIST's idx files",
    .usage = "convert mnist --source=DIR --out=DIR [--replace]",
    .text =
        "Reads train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte as published, decompressed, and writes LMDBs of Caffe's Datum: "
        "DIR/train_lmdb and DIR/test_lmdb.",
    .flags = {{"source", "DIR", "Directory of the four files."},
              {"out", "DIR", ""},
              {"replace", "", ""}},
    .example = "poseidon convert mnist --source=downloads/mnist --out=out/mnist",
    .run = ConvertMnistVerb};

const Verb kConvertCifar10{
    .name = "convert cifar10",
    .summary = "make LMDBs of CIFAR-10's binary version",
    .usage = "convert cifar10 --source=DIR --out=DIR [--replace]",
    .text =
        "Reads data_batch_1.bin to data_batch_5.bin and test_batch.bin as published, unpacked, "
        "and writes LMDBs of Caffe's Datum, DIR/train_lmdb and DIR/test_lmdb, and the mean of "
        "the images to train on, DIR/mean.binaryproto.",
    .flags = {{"source", "DIR", "Directory of the six files."},
              {"out", "DIR", ""},
              {"replace", "", ""}},
    .example =
        "poseidon convert cifar10 --source=downloads/cifar-10-batches-bin \\\n"
        "    --out=out/cifar10",
    .run = ConvertCifar10Verb};

}  // namespace

const std::vector<Verb>& Verbs() {
  static const std::vector<Verb> verbs = {kRun, kPlan, kConvertCsv, kConvertMnist, kConvertCifar10};
  return verbs;
}

}  // namespace poseidon
