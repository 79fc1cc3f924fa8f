#include "planner/cost/cost_model.h"

#include <glog/logging.h>

#include "proto/compatibility.h"

namespace poseidon {

int64_t FloatsParameterServer(int64_t parameters, int64_t workers, int64_t servers) {
  return (2 * parameters * (workers + servers - 2) + servers / 2) / servers;
}

int64_t FloatsFactorBroadcast(int64_t outputs, int64_t inputs, int64_t rows, int64_t workers) {
  return 2 * rows * (workers - 1) * (outputs + inputs);
}

Scheme BestScheme(const InformationBook& book, int layer) {
  const LayerFacts facts = book.Query(layer);
  if (!facts.factorable) return PS;
  const int64_t workers = book.Query(Property::kWorkers);
  const int64_t servers = book.Query(Property::kServers);
  const int64_t factors = FloatsFactorBroadcast(facts.outputs, facts.inputs, facts.rows, workers);
  const int64_t dense_times_servers = 2 * facts.outputs * facts.inputs * (workers + servers - 2);
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
