// Which settings of a job can work together, and why others cannot. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// A setting that cannot work, and why. `field` is dotted, from the Job: where the user can change
// it.
struct Refusal {
  std::string field;
  std::string reason;
};

// Everything about scheme, codec, precision, staleness, place of the update, LARS, summation order,
// grid, recovery, division of the batch and replays that cannot work as the job asks for it; empty
// if all can. Looks at no other setting.
std::vector<Refusal> Refusals(const Job& job);

// Whether the job asks for updates by servers: in so many words, or by a policy that has no others.
bool UpdatesAtServers(const Job& job);

// The scheme of every layer under the policy; unspecified if layers may differ.
Scheme OnlyScheme(Communication::Policy policy);

// Why buckets under `scheme` cannot use `codec`; empty if they can.
std::string WhyNotCodec(Scheme scheme, WireCodec codec);

// The grid of workers under TORUS where the job gives none: two dimensions, as equal as can be, the
// smaller first; one where `workers` has no divisor but 1 and itself.
std::vector<int> SquareGrid(int workers);

}  // namespace poseidon
