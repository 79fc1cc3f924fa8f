#include "cli/input/flags.h"

#include <gflags/gflags.h>

#include "launch/remote_shell.h"

DEFINE_string(config, "", "Job config (docs/configuration.md).");
DEFINE_string(net, "", "Caffe net prototxt.");
DEFINE_string(solver, "", "Caffe solver prototxt; its net is taken.");
DEFINE_string(profile, "", "Profile that `poseidon time` has written, instead of a net.");
DEFINE_string(job, "", "Output directory of a job that has ended.");
DEFINE_bool(json, false, "For programs instead of people.");
DEFINE_string(weights, "", ".caffemodel files to start from, comma separated.");
DEFINE_string(snapshot, "",
              ".solverstate file to go on from; \"latest\" is the newest whole one with the "
              "solver's snapshot_prefix.");
DEFINE_int32(
    restarts, 0,
    "When the job fails for a reason that may pass, such as a process that was killed, run "
    "it again, up to so many times: from the newest snapshot that it has written, or else "
    "as it was started. A program of yours has to find its checkpoint itself.");
DEFINE_int32(limit_notice, 120,
             "So many seconds before Slurm's time limit training stops with a snapshot, and the "
             "job is queued again to go on from there; 0: it is ended at the limit. Where the "
             "solver writes no snapshot at its end it is 0 if not given. Slurm may be a minute "
             "early, so --time is to be much longer.");
DEFINE_string(sigint_effect, "stop",
              "What Ctrl-C does: stop ends training after an iteration, with the snapshot of its "
              "end; snapshot has one written and goes on; none; or end, at once. A second one ends "
              "the job at once. As Caffe's, but for end.");
DEFINE_string(sighup_effect, "snapshot",
              "Likewise of SIGHUP, as when the terminal is closed. Where the solver has no "
              "snapshot_prefix it is end if not given.");
DEFINE_bool(monitor, true,
            "Do without the monitor, which shows the job on a page. By default it listens on a "
            "free port of the loopback device, or as the config says.");
DEFINE_int32(iterations, 0, "Batches.");
DEFINE_int32(threads, 1, "Threads of the arithmetic.");

DEFINE_int32(workers, 0, "Number of workers.");
DEFINE_int32(servers, 0, "Number of parameter servers.");
DEFINE_int64(batch, 0,
             "Samples of a worker's batch, instead of the net's; with a solver's iter_size it "
             "processes as many batches per iteration.");
DEFINE_string(policy, "BYTES",
              "BYTES: the paper's Algorithm 1, whichever moves fewer floats; TIME: whatever makes "
              "the predicted iteration shortest; or one scheme for all layers that can use it: "
              "ALL_PS, ALL_SFB, ALL_RING, ALL_HALVING_DOUBLING, ALL_TORUS, ALL_ADAM.");
DEFINE_int32(lanes, 0,
             "Data lanes of every node. Not given: as few, up to a quarter of --cores, as come "
             "within a hundredth of what most would make.");
DEFINE_int32(cores, 16,
             "Cores of a machine, for its worker and server; their lanes get at most half.");
DEFINE_int64(kv_pair_bytes, 2097152,
             "Largest size of a KV pair, in bytes. Policy TIME decides itself, and tries this one, "
             "too.");
DEFINE_int64(bucket_bytes, 0,
             "Merge consecutive layers of one scheme up to so many bytes; 0: not. Policy TIME "
             "decides itself.");
DEFINE_bool(wait_for_all, false,
            "The next forward pass begins when all layers are up to date, instead of each layer's "
            "when that layer is. Not given: as the policy has it.");
DEFINE_string(grid, "",
              "Grid of workers under the torus, such as 4x8; planned if it is not given.");
DEFINE_string(codec, "fp32",
              "How floats are packed on the wire where the scheme can use it: fp32, fp16, bf16, "
              "int8, 1bit, topk. Policy TIME uses it where it pays.");
DEFINE_int32(
    local_steps, 1,
    "Steps that workers train on their own between two exchanges of a layer (DiLoCo), under "
    "TIME, ALL_PS or an all-reduce. simulate says what a step takes, plan what all of them "
    "do.");
DEFINE_int32(fragments, 1, "With --local_steps: parts of the model that are exchanged in turn.");
DEFINE_int32(overlap_steps, 0, "With --local_steps: steps that go on while a part is exchanged.");

DEFINE_string(bandwidth, "10Gbps", "Line rate of a machine's link, each direction.");
DEFINE_string(
    goodput, "",
    "What of the bandwidth payload can reach: a share, 0.9, or a rate, 9Gbps; 0.94 if not "
    "given.");
DEFINE_string(latency, "50us", "One way, from program to program.");
DEFINE_string(message_cost, "20us",
              "What a message costs the threads that send and receive it, whatever its size.");
DEFINE_string(disturbance, "",
              "How much machines vary from one iteration to the next: none, or measured, as real "
              "trainings did (docs/cost_model.md). If not given: what the profile says of the "
              "machine it is of, else measured.");
DEFINE_string(deviations, "",
              "Machines that are known not to be as the others: how many times as long a worker "
              "computes, or what its machine's link carries. 3:2x,5:1Gbps: worker 3 computes half "
              "as fast, and worker 5's link is one of 1 Gb/s.");
DEFINE_bool(
    colocated, true,
    "Give every server a machine, and a link, of its own. By default server i shares worker "
    "i's.");
DEFINE_double(flops, 0,
              "Floating-point operations a second of a worker, for the times of layers and for "
              "rebuilding gradients from factors. If not given: what --images_per_second makes "
              "of the net, else --gpu's, else what the profile says, else 4e12.");
DEFINE_string(
    gpu, "",
    "titanx, p100, v100, a100, h100 or h200: its published peak rate of single precision as "
    "--flops, and updates that are the workers' are made by it. Nets reach a half of the "
    "rate or less; --images_per_second says more.");
DEFINE_double(update_rate, 0,
              "Bytes of parameters that a lane updates a second, at servers and, without --gpu, "
              "at workers; 2e9 if not given, as one core.");
DEFINE_double(reduction_rate, 0,
              "Bytes of gradients that a lane adds up a second; 4e9 if not given, as one core.");
DEFINE_double(images_per_second, 0,
              "Samples a second of one worker alone, instead of --flops for the times of layers.");

DEFINE_int32(
    gpus_per_node, 1,
    "GPUs of a worker, each with a batch of its own; they add up their gradients before the "
    "network sees them.");
DEFINE_string(gpu_bandwidth, "100Gbps", "Between a worker's GPUs, each direction of each.");
DEFINE_string(copy_bandwidth, "",
              "Between a GPU and its host's memory, each direction; not given: nothing is copied.");

DEFINE_string(failures, "",
              "Nodes fail: the mean time until a worker or server does, and the time until another "
              "process is in its place: 720h:1min.");
DEFINE_string(recovery, "replace",
              "With --failures: replace, another process takes the place; shrink, the others go on "
              "without; snapshot:INTERVAL, all starts again from the newest snapshot, one every "
              "INTERVAL of training; snapshot, at the best interval.");
DEFINE_int32(losses, 20,
             "With --failures: how many losses are simulated; more take longer and say more.");
DEFINE_uint64(seed, 1, "With --failures: of when nodes fail, and which.");
DEFINE_string(snapshot_cost, "",
              "With --failures: how long training stands still for a snapshot, and reading one "
              "takes. If not given: the parameters and the optimizer state at 1 GB/s.");
DEFINE_double(heartbeat_interval_seconds, 0,
              "With --failures: of the job config's communication; its default if not given.");
DEFINE_double(heartbeat_deadline_seconds, 0,
              "With --failures: likewise; a node that is silent for so long is lost.");

DEFINE_string(experiment, "", "Experiment file (docs/experiments.md).");
DEFINE_string(
    mode, "simulate",
    "simulate: in virtual time; emulate: real daemons on a network of namespaces of this "
    "machine, each link shaped (needs root, ip and tc); run: on the machines of --hosts.");
DEFINE_string(hosts, "",
              "File with a host a line: what the remote shell calls it, then, where they are "
              "needed, the address at which the others reach it, slots=N, roles=worker,server.");
DEFINE_int32(nodes, 0, "Machines; as many as there are workers, or servers, if not given.");
DEFINE_string(sbatch_flags, "",
              "What else sbatch is given, parted by blanks: \"--partition=gpu --time=8:00:00\".");
DEFINE_bool(submit, true, "Only write the script.");
DEFINE_string(remote_shell, poseidon::DefaultRemoteShell(),
              "With --hosts: what a host's name and a command are put behind. In a job with "
              "recovery the default waits longer for a host that is silent.");
DEFINE_int32(
    slow_motion, 1,
    "emulate: computing and links take so many times as long, and the result is divided by "
    "it, so that few cores can stand for many machines. Not of nets that are trained. At most "
    "1,000,000, and so many that rates and times stay what a job config may have.");
DEFINE_string(remote_programs, "",
              "With --hosts: where the programs are there; where they are here, if not given.");

DEFINE_string(input, "",
              "Shape of the data's records, such as 3x32x32 (channels, height, width). Without it "
              "the first record tells; where there are no data, an Input layer of the net for "
              "another stage, new_height and new_width, or crop_size with three channels (one "
              "with force_gray). What was taken is shown.");
DEFINE_string(source, "", "What to convert.");
DEFINE_int32(label_column, -1, "Column of the label, from 0; negative counts from the end.");
DEFINE_int64(height, 0, "Height of an image in the file; 0: images are square.");
DEFINE_int64(width, 0, "Width of an image in the file; 0: images are square.");
DEFINE_double(max_value, 255, "The pixel value that becomes 255.");
DEFINE_int64(scale_height, 0, "Height to scale images to (bilinear); 0: as they are.");
DEFINE_int64(scale_width, 0, "Width to scale images to; 0: as they are.");
DEFINE_bool(shuffle, true,
            "Leave the images in the file's order. By default they are put in a random one before "
            "they are parted, because files are often sorted.");
DEFINE_uint64(shuffle_seed, 1,
              "Seed of the random order; the same seed gives the same order on every machine.");
DEFINE_string(root_folder, "",
              "Put before each path of the list as it is, so end it with a slash.");
DEFINE_int64(resize_height, 0, "Height to resize images to (bilinear, OpenCV's); 0: as they are.");
DEFINE_int64(resize_width, 0, "Width to resize images to; 0: as they are.");
DEFINE_bool(gray, false, "One channel, gray; by default three, blue, green and red.");
DEFINE_bool(encoded, false,
            "Store compressed images instead of pixels: the files as they are where nothing about "
            "them changes.");
DEFINE_string(encode_type, "",
              "Store compressed images of this type, jpg or png; alone it means --encoded. By "
              "default that of each file.");
DEFINE_bool(check_size, false,
            "Refuse images that are not of the first one's size. Without --resize_height and "
            "--resize_width the net must crop (crop_size) or all be of one size.");
DEFINE_int64(train_records, 0, "Images to train on; the others are to test. 0: all.");

DEFINE_string(address, "",
              "Where the job's monitor is, as its scheduler says it, or the job's output "
              "directory.");
DEFINE_bool(watch, false, "Show it again every second, until the job ends.");
DEFINE_string(token_file, "", "File whose first line is the monitor's token, if it asks for one.");
DEFINE_string(page, "", "Write a page that shows it to this file, instead.");

DEFINE_int32(worker, -1, "Rank of the worker, from 0.");
DEFINE_string(scheduler, "",
              "HOST:PORT of the job's scheduler; by default cluster.scheduler_host and "
              "scheduler_port of the config.");
DEFINE_string(key_file, "", "The job's key; by default security.key_file of the config.");

DEFINE_string(out, "", "Directory to write to; made if it is not there.");
DEFINE_string(format, "table", "table: for people; json: for programs.");
DEFINE_bool(replace, false,
            "Replace databases that are there already, instead of refusing to. Nothing else is "
            "replaced.");

namespace poseidon {

bool FlagGiven(const char* name) { return !gflags::GetCommandLineFlagInfoOrDie(name).is_default; }

}  // namespace poseidon
