// The columns of results.csv, in their order; docs/experiments.md says what each is. Figures are
// drawn of them.
#pragma once

#include <string_view>

namespace poseidon {

inline constexpr std::string_view kResultColumns[] = {"system",
                                                      "model",
                                                      "workers",
                                                      "servers",
                                                      "devices",
                                                      "gpus",
                                                      "bandwidth_gbps",
                                                      "latency_us",
                                                      "condition",
                                                      "mtbf_hours",
                                                      "sweep",
                                                      "mode",
                                                      "policy",
                                                      "batch",
                                                      "parameters",
                                                      "goodput_gbps",
                                                      "message_cost_us",
                                                      "flops",
                                                      "reduction_rate",
                                                      "update_rate",
                                                      "iteration_seconds",
                                                      "compute_seconds",
                                                      "images_per_second",
                                                      "speedup",
                                                      "efficiency",
                                                      "gpu_busy",
                                                      "bytes_out",
                                                      "bytes_in",
                                                      "bytes_mean",
                                                      "imbalance",
                                                      "predicted_seconds",
                                                      "schemes",
                                                      "accuracy",
                                                      "goodput",
                                                      "published",
                                                      "difference",
                                                      "fitted",
                                                      "source",
                                                      "point",
                                                      "key"};

}  // namespace poseidon
