// Which nets can be trained with parts of a batch that differ between workers (training.batch:
// BALANCED), so that the update is that of the whole batch.
#pragma once

#include <string>

#include "caffe_adapter/net/net.h"
#include "proto/job.pb.h"

namespace poseidon {

// Why this train net can't, with the layer; empty if it can. A pure function.
//
// It can where each blob has a row a sample, no row depends on another's sample, and the losses
// are means over samples.
std::string WhyNotBalanced(const NetDescription& net);

// Throws ConfigError if the job asks for that and its train net can't.
void CheckBalance(const Job& job, const NetDescription& net);

}  // namespace poseidon
