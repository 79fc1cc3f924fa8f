// Declarations: what the workers of a job have said before its first plan: the model that they
// train, what they have found on their machines, and, if the job wants it, how fast the links are
// that they measured.
//
// A value; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/wire.pb.h"
#include "transport/address.h"

namespace poseidon {

class Declarations {
 public:
  // Returns the worker that declared another model, if one did.
  std::optional<NodeId> AddModel(const NodeId& worker, wire::Declaration declaration);
  void AddLinks(const NodeId& worker, wire::LinkReport links);
  // The worker is lost: who takes its place may have other files, and declares what it has itself.
  // Nothing is known of the links to that machine.
  void Forget(const NodeId& worker);
  bool Has(const NodeId& worker, bool with_links) const;

  const std::string& model() const { return model_; }
  // The first of the training, as worker 0 says; not 0 if it goes on from a snapshot.
  int64_t first_iteration() const;
  // Of the workers that have declared a model, by rank.
  const std::map<NodeId, wire::TrainingInputs>& inputs() const { return inputs_; }
  // In the order of workers.
  std::vector<wire::LinkReport> links() const;

 private:
  std::string model_;
  std::map<NodeId, wire::TrainingInputs> inputs_;
  std::map<NodeId, wire::LinkReport> links_;
};

}  // namespace poseidon
