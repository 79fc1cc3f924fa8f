#include "cli/verbs.h"

#include "cli/convert.h"
#include "cli/diagnosis/explain.h"
#include "cli/diagnosis/timeline.h"
#include "cli/input/flags.h"
#include "cli/jobs/doctor.h"
#include "cli/jobs/keep.h"
#include "cli/jobs/keys.h"
#include "cli/jobs/launch_slurm.h"
#include "cli/jobs/leave.h"
#include "cli/jobs/run.h"
#include "cli/jobs/status.h"
#include "cli/net_verbs.h"
#include "cli/planning/experiment.h"
#include "cli/planning/plan.h"
#include "cli/planning/simulate.h"

namespace poseidon {
namespace {

const Verb kRun{
    .name = "run",
    .summary = "train a job: scheduler, servers, workers, here or on hosts",
    .usage = "run --config=FILE [flags] [-- PROGRAM ...]",
    .text =
        "Starts the daemons that the job config asks for as processes of this machine, shows how "
        "training goes, and ends with all of them, however it ends. The output directory gets "
        "summary.json, job.prototxt (the config as it was run), logs and, if the config wants "
        "them, traces. Ctrl-Z stops this command alone, and the daemons train on.\n\n"
        "With --hosts, the servers and workers are processes of the hosts in that file, over ssh; "
        "the scheduler stays on this machine. docs/deploy.md goes through it, and `poseidon "
        "doctor` looks at the hosts before.\n\n"
        "With -- PROGRAM, each worker is that program: your own build of BVLC Caffe or a script "
        "that uses it, unmodified, such as `-- caffe train --solver=solver.prototxt`. "
        "docs/caffe.md says which builds it works for.",
    .flags = {{"config", "FILE", ""},
              {"workers", "N", "Number of workers, instead of the config's."},
              {"servers", "N", "Number of parameter servers, instead of the config's."},
              {"hosts", "FILE", ""},
              {"remote_shell", "COMMAND", ""},
              {"remote_programs", "DIR", ""},
              {"weights", "FILES", ""},
              {"snapshot", "FILE", ""},
              {"restarts", "N", ""},
              {"monitor", "", ""},
              {"sigint_effect", "WHAT", ""},
              {"sighup_effect", "WHAT", ""},
              {"out", "DIR", "Directory to write to; out/NAME of the job by default."}},
    .example = "poseidon run --config=configs/lenet_digits.prototxt",
    .run = RunVerb,
    .run_program = RunProgramVerb};

const Verb kDoctor{
    .name = "doctor",
    .summary = "look whether machines are fit for a job, before it runs",
    .usage = "doctor [--config=FILE] [--hosts=FILE] [flags]",
    .text =
        "Looks at the hosts of a job, or at this machine if there are none, and shows a line a "
        "finding: good, warning or error, with what mends it. It asks the hosts over ssh for "
        "programs, files, data, names, clocks, limits, memory, disks, GPUs and the settings of the "
        "network. Then daemons on all of them measure the links between each other, which also "
        "shows whether the ports are open, and the planner says what the job would be like with "
        "the network that the config describes and with the measured one. Ends with 2 if there is "
        "an error. docs/deploy.md tells of each finding.",
    .flags = {{"config", "FILE",
               "Job config that is to run; without it the machines are looked at."},
              {"workers", "N", "Number of workers, instead of the config's."},
              {"servers", "N", "Number of parameter servers, instead of the config's."},
              {"hosts", "FILE", ""},
              {"remote_shell", "COMMAND", ""},
              {"remote_programs", "DIR", ""},
              {"format", "NAME", ""}},
    .example = "poseidon doctor --config=configs/lenet_digits.prototxt",
    .run = DoctorVerb};

const Verb kExplain{
    .name = "explain",
    .summary = "why a job has ended: who was first, and the likely cause",
    .usage = "explain DIR [--json]",
    .text =
        "Reads what a job has left in its output directory: summary.json, logs, and the last "
        "events that its nodes have written when it ended badly. Says which node was first, the "
        "likely cause (killed, out of memory, network cut, stopped process, slow disk, full disk, "
        "diverged, slow worker, ...) with its evidence, the last message exchanged, and what the "
        "others waited for. docs/explain.md has examples.",
    .flags = {{"job", "DIR", "Output directory of the job."}, {"json", "", ""}},
    .word_flag = "job",
    .example = "poseidon explain out/lenet_digits",
    .run = [] { return ExplainJob(FLAGS_job, FLAGS_json); }};

const Verb kTimeline{
    .name = "timeline",
    .summary = "what all nodes of a job did when, on one clock, for Perfetto",
    .usage = "timeline DIR [--out=FILE]",
    .text =
        "Merges the traces and events that a job with `trace: true` has left in its output "
        "directory, or the events of one that ended badly, into one file in Chrome's trace format. "
        "How the machines' clocks differ is estimated from the frames that they have exchanged, "
        "and shown with its error. Arrows lead from each frame's send to its arrival, and counters "
        "say how many bytes are on their way. docs/explain.md has an example.",
    .flags = {{"job", "DIR", "Output directory of the job."},
              {"out", "FILE", "The file to write; DIR/timeline.json if not given."}},
    .word_flag = "job",
    .example = "poseidon timeline out/lenet_digits",
    .run = [] { return WriteTimeline(FLAGS_job, FLAGS_out); }};

const Verb kLaunchSlurm{
    .name = "launch slurm",
    .summary = "submit a job to Slurm",
    .usage = "launch slurm --config=FILE [flags]",
    .text =
        "Writes a batch script, OUT/job.sbatch, and submits it: the scheduler on the first node, "
        "servers and workers as tasks with ranks from SLURM_PROCID. When Slurm queues the job "
        "again, as after the failure of a node, it goes on from its newest snapshot. Nodes need "
        "the programs, the job's files and the output directory at the same paths, as on a shared "
        "file system. docs/deploy.md has an example.",
    .flags = {{"config", "FILE", ""},
              {"workers", "N", "Number of workers, instead of the config's."},
              {"servers", "N", "Number of parameter servers, instead of the config's."},
              {"nodes", "N", ""},
              {"restarts", "N",
               "When the job fails for a reason that may pass, queue it again, up to so many "
               "times."},
              {"limit_notice", "SECONDS", ""},
              {"remote_programs", "DIR",
               "Where the programs are on the nodes; where they are here, if not given."},
              {"sbatch_flags", "FLAGS", ""},
              {"submit", "", ""},
              {"out", "DIR", "Directory to write to; out/NAME of the job by default."}},
    .example = "poseidon launch slurm --config=configs/lenet_digits.prototxt --nosubmit",
    .run = LaunchSlurmVerb};

const Verb kStatus{
    .name = "status",
    .summary = "show what a job does, or what has become of it",
    .usage = "status [ADDRESS|DIR] [flags]",
    .text =
        "Asks the monitor of a job that runs: which iteration it is at, loss, throughput, what "
        "each node does and waits for, and each bucket's predicted and measured exchange. ADDRESS "
        "is "
        "what the scheduler has said at its start; DIR is the job's output directory, from which a "
        "job that has ended is shown, too. Without either it is the one job that runs with its "
        "output in out/. docs/monitoring.md tells about the monitor's page and what programs can "
        "ask it.",
    .flags = {{"watch", "", ""},
              {"page", "FILE", ""},
              {"token_file", "FILE", ""},
              {"format", "NAME", ""}},
    .word_flag = "address",
    .example = "poseidon status out/lenet_digits --page=out/lenet_digits.html",
    .run = StatusVerb};

const Verb kKeys{
    .name = "keys",
    .summary = "make the key that admits machines to a job",
    .usage = "keys --out=DIR",
    .text =
        "Writes a new key to DIR/job.key, which only you can read. With `security { mode: CURVE "
        "key_file: \"DIR/job.key\" }` in the job config, all of the job's connections are "
        "encrypted and only nodes with this key get in. Copy the file to all machines of the job; "
        "each makes sure that nobody but its owner may read it. docs/security.md says what that "
        "protects "
        "against, and what not.",
    .flags = {{"out", "DIR", "Directory to write to; made if it is not there."}},
    .example = "poseidon keys --out=keys",
    .run = KeysVerb};

const Verb kLeave{
    .name = "leave",
    .summary = "let a worker leave a job that goes on",
    .usage = "leave --config=FILE|--scheduler=HOST:PORT --worker=R",
    .text =
        "Asks the scheduler of a job with `elastic { }` to let a worker go. All workers finish "
        "the iteration that they are at, and the next; then the worker's process ends with code "
        "0, and the others go on without it. Ends with 2 and the reason if it can't leave, "
        "as where fewer workers than elastic.min_workers would be left. SIGTERM to the worker does "
        "the same. A job with a key wants it here, too: from the config, or --key_file. "
        "docs/recovery.md tells more.",
    .flags = {{"config", "FILE",
               "The job's config; of a job of `poseidon run`, job.prototxt in its output "
               "directory."},
              {"scheduler", "HOST:PORT", ""},
              {"worker", "R", ""},
              {"key_file", "FILE", ""}},
    .example = "poseidon leave --scheduler=node0:29000 --key_file=keys/job.key --worker=2",
    .run = LeaveVerb};

const Verb kKeep{
    .name = "keep",
    .summary = "start a daemon, and start it again when it dies",
    .usage = "keep -- DAEMON ...",
    .text =
        "For daemons that are started by hand, one on each machine, of a job with `recovery { "
        "mode: REPLACE }`: runs poseidon_scheduler, poseidon_server or poseidon_worker, and starts "
        "another process of it when it is killed or the job has gone on without it, at once at "
        "first, then ever less soon. The scheduler hears whom a server or worker takes the place "
        "of, so that nobody waits. Give a scheduler its --out. Signals are passed on to the "
        "daemon; after SIGINT or SIGTERM it is not started again. Ends with the code of the last "
        "process; docs/recovery.md tells what the job does meanwhile.",
    .flags = {},
    .example = "poseidon keep -- poseidon_worker --config=configs/several_machines.prototxt",
    .run = KeepVerb,
    .run_program = KeepProgramVerb};

const Verb kPlan{
    .name = "plan",
    .summary = "show how a net's layers would be synchronized on a cluster",
    .usage =
        "plan --net=FILE|--solver=FILE|--profile=FILE \\\n      --workers=P --servers=S [flags]",
    .text =
        "Prices every layer that learns, in floats that a node which is worker and server (with "
        "--nocolocated the busier of the two) sends and receives in an iteration: through "
        "parameter servers (PS) and, for inner-product layers, by broadcasting sufficient factors "
        "(SFB). Then plans as the scheduler would, and "
        "predicts when each bucket of layers is ready, sent, fresh and needed, how long an "
        "iteration takes, which other scheme comes closest, what limits the iteration and what "
        "would change most. docs/cost_model.md has the "
        "formulas. Nothing is trained and no data are needed: where the net's database is not "
        "there, the net mostly tells the shape of its samples, and else --input does.",
    .flags = {{"net", "FILE", ""},         {"solver", "FILE", ""},
              {"profile", "FILE", ""},     {"workers", "P", ""},
              {"servers", "S", ""},        {"batch", "K", ""},
              {"policy", "NAME", ""},      {"input", "CxHxW", ""},
              {"bandwidth", "RATE", ""},   {"goodput", "X", ""},
              {"latency", "TIME", ""},     {"message_cost", "TIME", ""},
              {"colocated", "", ""},       {"deviations", "LIST", ""},
              {"flops", "X", ""},          {"images_per_second", "X", ""},
              {"gpu", "NAME", ""},         {"update_rate", "X", ""},
              {"reduction_rate", "X", ""}, {"grid", "XxY", ""},
              {"codec", "NAME", ""},       {"bucket_bytes", "N", ""},
              {"lanes", "N", ""},          {"cores", "N", ""},
              {"kv_pair_bytes", "N", ""},  {"local_steps", "N", ""},
              {"fragments", "N", ""},      {"overlap_steps", "N", ""},
              {"wait_for_all", "", ""},    {"format", "NAME", ""}},
    .example =
        "poseidon plan --net=configs/models/vgg19/net.prototxt \\\n"
        "    --workers=8 --servers=8 --batch=32",
    .run = PlanVerb};

const Verb kSimulate{
    .name = "simulate",
    .summary = "train on a cluster in virtual time, to see how it does",
    .usage =
        "simulate --net=FILE|--solver=FILE|--profile=FILE \\\n      --workers=P --servers=S "
        "[flags]",
    .text =
        "Runs the scheduler, servers and workers of a job in virtual time, with messages that have "
        "sizes but no data and layers that take as long as the profile says or as they take at "
        "--flops. Answers how long an iteration takes, what speedup and efficiency that is, how "
        "busy the GPUs are, and how much the machine that moves most sends and receives. No data "
        "are needed, as for `poseidon plan`. "
        "docs/experiments.md, \"Your own net and cluster\", goes through an example; "
        "docs/cost_model.md says what is not simulated.\n\n"
        "With --failures, nodes die, and the answer has the goodput: the share of the time that "
        "goes "
        "into iterations that stay done, beside that of a job that is started again from "
        "snapshots. "
        "docs/recovery.md, \"What failures cost\", says how.",
    .flags =
        {{"net", "FILE", ""},
         {"solver", "FILE", ""},
         {"profile", "FILE", ""},
         {"workers", "P", ""},
         {"servers", "S", ""},
         {"batch", "K", "Samples a GPU processes per iteration, instead of the net's."},
         {"gpus_per_node", "G", ""},
         {"gpu_bandwidth", "RATE", ""},
         {"copy_bandwidth", "RATE", ""},
         {"input", "CxHxW", ""},
         {"policy", "NAME",
          "The paper's: CAFFE_PS, parameter servers with a whole layer on one server, after the "
          "backward pass; WFBP, KV pairs sent during the backward pass; POSEIDON, that with "
          "Algorithm 1. These wait for all layers at the end of an iteration. As in `poseidon "
          "plan`, waiting for each layer before its own forward pass: BYTES, TIME, ALL_PS, "
          "ALL_SFB, ALL_RING, ALL_HALVING_DOUBLING, ALL_TORUS, ALL_ADAM."},
         {"iterations", "N",
          "Iterations; the first two do not count. Under policies that take longer to be "
          "steady more come before: 4 under ALL_TORUS, 18 under TIME, ALL_HALVING_DOUBLING and "
          "with --deviations. 5 if not given."},
         {"bandwidth", "RATE", ""},
         {"goodput", "X", ""},
         {"latency", "TIME", ""},
         {"message_cost", "TIME", ""},
         {"disturbance", "NAME", ""},
         {"deviations", "LIST", ""},
         {"colocated", "", ""},
         {"flops", "X",
          "Floating-point operations a second of a GPU, for the times of layers and for "
          "rebuilding gradients from factors. If not given: what --images_per_second makes of "
          "the net, else --gpu's, else what the profile says, else 4e12."},
         {"gpu", "NAME", ""},
         {"update_rate", "X", ""},
         {"reduction_rate", "X", ""},
         {"images_per_second", "X",
          "Samples a second of one GPU alone, instead of --flops for the times of layers."},
         {"grid", "XxY", ""},
         {"codec", "NAME", ""},
         {"bucket_bytes", "N", ""},
         {"lanes", "N", ""},
         {"cores", "N", ""},
         {"kv_pair_bytes", "N", ""},
         {"local_steps", "N", ""},
         {"fragments", "N", ""},
         {"overlap_steps", "N", ""},
         {"wait_for_all", "", ""},
         {"failures", "MTBF:DURATION", ""},
         {"recovery", "WHAT", ""},
         {"losses", "N", ""},
         {"seed", "N", ""},
         {"snapshot_cost", "TIME", ""},
         {"heartbeat_interval_seconds", "X", ""},
         {"heartbeat_deadline_seconds", "X", ""},
         {"format", "NAME", ""}},
    .example =
        "poseidon simulate --net=configs/models/lenet/net.prototxt \\\n"
        "    --workers=4 --servers=4 --batch=64 --bandwidth=1Gbps",
    .run = SimulateVerb};

const Verb kExperiment{
    .name = "experiment",
    .summary = "many trainings on many clusters, and figures of them",
    .usage = "experiment FILE --mode=simulate|emulate|run [flags]",
    .text =
        "Executes the points of an experiment file (configs/experiments/*.prototxt, "
        "docs/experiments.md): "
        "in virtual time, as real daemons on a network of this machine's own, or on your machines. "
        "The output directory gets results.csv, report.html and its pictures; points that it has "
        "already are not repeated, so a command that was interrupted goes on when it is given "
        "again, and results of several modes in one directory are compared.",
    .flags = {{"mode", "MODE", ""},
              {"out", "DIR", "Directory to write to; out/NAME of the experiment by default."},
              {"threads", "N",
               "simulate: points at a time; as many as there are cores if not given."},
              {"slow_motion", "N", ""},
              {"hosts", "FILE", ""},
              {"remote_shell", "COMMAND", ""},
              {"remote_programs", "DIR", ""}},
    .word_flag = "experiment",
    .example =
        "poseidon experiment configs/experiments/vgg19_22k_40gbe.prototxt \\\n"
        "    --out=out/vgg19_22k",
    .run = ExperimentVerb};

const Verb kTime{
    .name = "time",
    .summary = "measure how long each layer of a net computes",
    .usage = "time --solver=FILE|--net=FILE [--out=FILE] [flags]",
    .text =
        "Runs forward and backward passes of the net's training phase on this machine's CPU, as "
        "`caffe time` does, and shows the median time of each layer. With --out writes a profile: "
        "a job config that `poseidon run` replays without computing, and that `poseidon plan "
        "--profile=FILE` predicts with. GPUs are not measured: for those give `poseidon plan` and "
        "`poseidon simulate` the samples that one trains a second (--images_per_second).",
    .flags = {{"solver", "FILE", ""},
              {"net", "FILE", ""},
              {"batch", "K", "Samples of a batch, instead of the net's."},
              {"iterations", "N",
               "Batches to measure, at most 1,000,000, after three that do not count; 50 if not "
               "given."},
              {"threads", "N",
               "Threads of the arithmetic, 1 if not given; the workers of `poseidon run` take all "
               "cores unless the job says `threads`."},
              {"out", "FILE", "The profile to write."}},
    .example =
        "poseidon time --solver=configs/models/lenet/solver.prototxt \\\n    "
        "--out=out/lenet.profile",
    .run = TimeVerb};

const Verb kTest{
    .name = "test",
    .summary = "score a trained model",
    .usage = "test --solver=FILE|--net=FILE --weights=FILE [flags]",
    .text =
        "Runs the net's test phase on this machine with the values of a .caffemodel and shows the "
        "mean of every blob that no layer reads: accuracies and losses. So it does with each of a "
        "solver's test nets. Where a net has several losses, or one with a weight, the total loss "
        "is their weighted sum.",
    .flags = {{"solver", "FILE", ""},
              {"net", "FILE", ""},
              {"weights", "FILES", ".caffemodel files, comma separated."},
              {"iterations", "N",
               "Batches to score; if not given, the solver's test_iter, or 50 of --net."},
              {"threads", "N", ""}},
    .example =
        "poseidon test --solver=configs/models/lenet/solver.prototxt \\\n"
        "    --weights=out/lenet/lenet_iter_400.caffemodel",
    .run = TestVerb};

const Verb kConvertCsv{
    .name = "convert csv",
    .summary = "make LMDBs of a table: an image and its label a line",
    .usage = "convert csv --source=FILE --out=DIR [flags]",
    .text =
        "Reads lines of numbers, the pixels of an image of one channel row by row and a label, "
        "and writes LMDBs of Caffe's Datum: DIR/train_lmdb and, if images are left over, "
        "DIR/test_lmdb. If none are, an old test_lmdb is refused, or removed with --replace: its "
        "images may be trained on now.",
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
        "the images to train on, DIR/mean.binaryproto. What is there already needs --replace.",
    .flags = {{"source", "DIR", "Directory of the six files."},
              {"out", "DIR", ""},
              {"replace", "", ""}},
    .example =
        "poseidon convert cifar10 --source=downloads/cifar-10-batches-bin \\\n"
        "    --out=out/cifar10",
    .run = ConvertCifar10Verb};

const Verb kConvertImageset{
    .name = "convert imageset",
    .summary = "make an LMDB of image files that a list names",
    .usage = "convert imageset --source=LIST --out=DB [flags]",
    .text =
        "Reads a list with the path of an image (JPEG, PNG, whatever OpenCV reads), a blank and a "
        "label, a whole number, on each line, and writes an LMDB of Caffe's Datum, as Caffe's "
        "convert_imageset does. One image that can't be read ends it, named with its line; then "
        "nothing is written. The list goes in a random order, because lists are mostly sorted by "
        "class; training shuffles, too, but tests read in order.",
    .flags = {{"source", "LIST", "The list."},
              {"out", "DB", "The database, a directory."},
              {"root_folder", "DIR/", ""},
              {"resize_height", "N", ""},
              {"resize_width", "N", ""},
              {"gray", "", ""},
              {"shuffle", "", "Leave the images in the list's order."},
              {"shuffle_seed", "N", ""},
              {"encoded", "", ""},
              {"encode_type", "TYPE", ""},
              {"check_size", "", ""},
              {"replace", "", ""}},
    .example =
        "poseidon convert imageset --source=train.txt --root_folder=images/ \\\n"
        "    --out=out/train_lmdb --resize_height=256 --resize_width=256",
    .run = ConvertImagesetVerb};

const Verb kConvertMean{
    .name = "convert mean",
    .summary = "compute the mean image of a database, for mean_file",
    .usage = "convert mean --source=DB --out=FILE",
    .text =
        "Reads all records of an LMDB or LevelDB of Caffe's Datum, which must be of one size, and "
        "writes their mean image as Caffe's compute_image_mean does: for mean_file of "
        "transform_param. Shows the mean of each channel: for mean_value.",
    .flags = {{"source", "DB", "The database, a directory."},
              {"out", "FILE", "The mean image; replaced if it is there."}},
    .example = "poseidon convert mean --source=out/train_lmdb --out=out/mean.binaryproto",
    .run = ConvertMeanVerb};

}  // namespace

const std::vector<Verb>& Verbs() {
  static const std::vector<Verb> verbs = {
      kRun,        kStatus,       kExplain,        kTimeline,        kDoctor,     kKeys, kKeep,
      kLeave,      kLaunchSlurm,  kPlan,           kSimulate,        kExperiment, kTime, kTest,
      kConvertCsv, kConvertMnist, kConvertCifar10, kConvertImageset, kConvertMean};
  return verbs;
}

}  // namespace poseidon
