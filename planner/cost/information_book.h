// The information book: what the scheduler knows about the model and the cluster (the paper,
// section 4.1). The cost model and the planner ask it; nothing else decides on schemes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// What a question to the book can be about.
enum class Property {
  kWorkers,       // P1, number of worker nodes
  kServers,       // P2, number of server nodes
  kSpareServers,  // of these, the last ones, on machines without a worker, while each of the others
                  // shares one's; 0 where the network is not known
  kLanes,         // the most data lanes that a plan may give a node
  kBatch,         // K, samples a worker processes per iteration
  kLayers,        // number of layers with parameters
  kParameters     // floats of the whole model
};

// What the cost model needs to know of one layer.
struct LayerFacts {
  std::string name;
  std::string type;
  int64_t parameters = 0;   // floats of all its blobs
  bool factorable = false;  // its gradient is u^T v, each of which is one message: SFB is possible
  int64_t outputs = 0;      // M, if factorable
  int64_t inputs = 0;       // N, if factorable
  int64_t rows = 0;         // K, rows of a worker's factors, if factorable
};

// Immutable; safe to share between threads.
class InformationBook {
 public:
  // Throws ConfigError if the model makes no sense: a layer without blobs, an inner product whose
  // blobs are not outputs x inputs (and outputs).
  InformationBook(ModelSpec model, int workers, int servers);
  InformationBook(ModelSpec model, const Cluster& cluster);

  int64_t Query(Property property) const;
  // `layer` is an index into the model's layers.
  LayerFacts Query(int layer) const;
  const ModelSpec& model() const { return model_; }
  // What the link of a server's machine carries, against the others'; 1 where no worker shares it,
  // or that is not known.
  double LinkShareOf(int server) const;
  // Whether servers share workers' machines; true where the network is not known.
  bool colocated() const { return colocated_; }
  // Whether all updates are the workers' own, whatever the scheme: where the training program makes
  // them itself, from the mean gradient, and in WithUpdatesAtWorkers().
  bool updates_at_workers() const;
  // The same book for nodes that offer so many data lanes.
  InformationBook WithLanes(int lanes) const;
  // The same book for a job whose servers must keep nothing.
  InformationBook WithUpdatesAtWorkers() const;
  // The same book for a job whose workers have different numbers of samples, so that no layer's
  // gradient can be sent as factors of as many rows at all workers.
  InformationBook WithoutFactors() const;

 private:
  ModelSpec model_;
  int workers_;
  int servers_;
  int spare_servers_ = 0;
  bool colocated_ = true;
  int lanes_;
  std::map<int, double> link_shares_;  // by server; of the others 1
  bool servers_keep_nothing_ = false;
};

}  // namespace poseidon
