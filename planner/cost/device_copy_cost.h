// The local stage: how long a layer takes between a worker's devices (GPUs) and its host's memory,
// where the exchange begins and ends. Of G devices, each with a replica of the net and its part of
// the worker's batch, b bytes between two devices a second and c bytes between a device and its
// host, each direction (cluster.device_bandwidth, copy_bandwidth); n bytes
//
//   of gradient are reduced and scattered over the devices, which then copy a share each to the
//   host:  (G - 1)/G n / b + n / (G c);
//   of factors (K rows of M + N floats, K being the worker's batch) are copied by each device for
//   its own part of the batch, nothing is added:  n / (G c);
//   of values that have arrived, or of all workers' factors under SFB, are copied to the devices, a
//   share each, and gathered:  n / (G c) + (G - 1)/G n / b.
//
// Where devices make the update (DevicesUpdate of planner/cost/bucket_costs.h) what is copied to
// them is the gradient, and each updates its share before all is gathered: n bytes of parameters
// take n / (G d) with d = device_update_rate. Under SFB each rebuilds the gradient (its
// floating-point operations, at `flops`) and updates all: n / d. A worker that is alone, under an
// all-reduce in FP32, copies nothing. Where devices do not update, though they are GPUs, the host
// rebuilds, and values are copied under SFB, too.
//
// A device's link carries (G - 1)/G n in a reduce-scatter or all-gather whatever the algorithm.
// Floats are float32 here: codecs pack on the host. Everything a direction does is one stream of
// work, layer after layer; the two directions do not hinder each other. Without several devices and
// without a copy_bandwidth it is no time.
//
// Pure functions of their arguments; seconds.
#pragma once

#include <cstdint>

#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"

namespace poseidon {

// How long one layer's gradient, or factors, take from the end of its backward pass on.
double SecondsToHost(const BucketPlan& bucket, const LayerSpec& layer, const ModelSpec& model,
                     const ClusterModel& cluster);
// How long `floats` floats of a bucket take that have arrived: all of it under SFB, else any part.
double SecondsToDevices(const BucketPlan& bucket, int64_t floats, const ModelSpec& model,
                        const ClusterModel& cluster);

}  // namespace poseidon
