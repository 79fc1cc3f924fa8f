#include "planner/cost/cost_model.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>

#include "proto/compatibility.h"

namespace poseidon {
namespace {

// Of any layer on any cluster: an int64 does not hold these products.
__int128 FactorFloats(int64_t outputs, int64_t inputs, int64_t rows, int64_t workers) {
  return __int128{2} * rows * (workers - 1) * (__int128{outputs} + inputs);
}

// Shares of a layer, of which there are as many as servers, that the busiest node sends.
int64_t SharesSent(int64_t workers, int64_t servers, bool colocated) {
  return colocated ? workers + servers - 2 : std::max(workers, servers);
}

}  // namespace

int64_t FloatsParameterServer(int64_t parameters, int64_t workers, int64_t servers,
                              bool colocated) {
  return (2 * parameters * SharesSent(workers, servers, colocated) + servers / 2) / servers;
}

int64_t FloatsFactorBroadcast(int64_t outputs, int64_t inputs, int64_t rows, int64_t workers) {
  const __int128 most = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(FactorFloats(outputs, inputs, rows, workers), most));
}

Scheme BestScheme(const InformationBook& book, int layer) {
  const LayerFacts facts = book.Query(layer);
  if (!facts.factorable) return PS;
  const int64_t workers = book.Query(Property::kWorkers);
  const int64_t servers = book.Query(Property::kServers);
  const __int128 factors = FactorFloats(facts.outputs, facts.inputs, facts.rows, workers);
  const __int128 dense_times_servers =
      __int128{2} * facts.outputs * facts.inputs * SharesSent(workers, servers, book.colocated());
  return factors * servers <= dense_times_servers ? SFB : PS;
}

Scheme ChooseScheme(const InformationBook& book, int layer, Communication::Policy policy) {
  if (OnlyScheme(policy) != SCHEME_UNSPECIFIED) return OnlyScheme(policy);
  switch (policy) {
    case Communication::BYTES:
      return BestScheme(book, layer);
    case Communication::ALL_SFB:
      return book.Query(layer).factorable ? SFB : PS;
    case Communication::ALL_ADAM:
      return book.Query(layer).factorable ? ADAM : PS;
    default:
      LOG(FATAL) << "policy TIME does not choose a layer at a time";
  }
  return PS;
}

}  // namespace poseidon
