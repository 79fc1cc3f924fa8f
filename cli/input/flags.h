// The flags of all verbs. Each is defined once, in flags.cc; verbs.cc says which verb takes which.
//
// A flag's default is its own only where that is a sensible value for every verb that takes it;
// otherwise it is empty or 0 and the verb looks whether the flag was given.
#pragma once

#include <gflags/gflags_declare.h>

// Job: what to run or to plan.
DECLARE_string(config);
DECLARE_string(net);
DECLARE_string(solver);
DECLARE_string(profile);
DECLARE_string(job);
DECLARE_bool(json);
DECLARE_string(weights);
DECLARE_string(snapshot);
DECLARE_int32(limit_notice);
DECLARE_int32(restarts);
DECLARE_string(sigint_effect);
DECLARE_string(sighup_effect);
DECLARE_bool(monitor);
DECLARE_int32(iterations);
DECLARE_int32(threads);

// Cluster and communication.
DECLARE_int32(workers);
DECLARE_int32(servers);
DECLARE_int64(batch);
DECLARE_string(policy);
DECLARE_int32(lanes);
DECLARE_int32(cores);
DECLARE_int64(kv_pair_bytes);
DECLARE_int64(bucket_bytes);
DECLARE_bool(wait_for_all);
DECLARE_string(grid);
DECLARE_string(codec);
DECLARE_int32(local_steps);
DECLARE_int32(fragments);
DECLARE_int32(overlap_steps);

// The machines, for predictions.
DECLARE_string(bandwidth);
DECLARE_string(goodput);
DECLARE_string(latency);
DECLARE_string(message_cost);
DECLARE_string(disturbance);
DECLARE_string(deviations);
DECLARE_bool(colocated);
DECLARE_double(flops);
DECLARE_string(gpu);
DECLARE_double(update_rate);
DECLARE_double(reduction_rate);
DECLARE_double(images_per_second);
DECLARE_int32(gpus_per_node);
DECLARE_string(gpu_bandwidth);
DECLARE_string(copy_bandwidth);

// Nodes that fail, for predictions.
DECLARE_string(failures);
DECLARE_string(recovery);
DECLARE_int32(losses);
DECLARE_uint64(seed);
DECLARE_string(snapshot_cost);
DECLARE_double(heartbeat_interval_seconds);
DECLARE_double(heartbeat_deadline_seconds);

// Other machines.
DECLARE_string(hosts);
DECLARE_string(remote_shell);
DECLARE_string(remote_programs);
DECLARE_int32(nodes);
DECLARE_string(sbatch_flags);
DECLARE_bool(submit);

// Experiments.
DECLARE_string(experiment);
DECLARE_string(mode);
DECLARE_int32(slow_motion);

// Data.
DECLARE_string(input);
DECLARE_string(source);
DECLARE_int32(label_column);
DECLARE_int64(height);
DECLARE_int64(width);
DECLARE_double(max_value);
DECLARE_int64(scale_height);
DECLARE_int64(scale_width);
DECLARE_bool(shuffle);
DECLARE_uint64(shuffle_seed);
DECLARE_int64(train_records);
DECLARE_string(root_folder);
DECLARE_int64(resize_height);
DECLARE_int64(resize_width);
DECLARE_bool(gray);
DECLARE_bool(encoded);
DECLARE_string(encode_type);
DECLARE_bool(check_size);

// Status of a job.
DECLARE_string(address);
DECLARE_bool(watch);
DECLARE_string(token_file);
DECLARE_string(page);

// A worker of it.
DECLARE_int32(worker);
DECLARE_string(scheduler);
DECLARE_string(key_file);

// Output.
DECLARE_string(out);
DECLARE_string(format);
DECLARE_bool(replace);

namespace poseidon {

// Whether the command line has the flag, even if with its default value.
bool FlagGiven(const char* name);

}  // namespace poseidon
