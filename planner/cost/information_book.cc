#include "planner/cost/information_book.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/message_limit.h"
#include "core/units.h"
#include "proto/lanes.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

void Check(const LayerSpec& layer) {
  const std::string where = "layer " + layer.name() + ": ";
  if (layer.blobs_size() == 0) throw ConfigError(where + "has no learnable blobs");
  for (const BlobSpec& blob : layer.blobs()) {
    if (FloatCount(blob) <= 0) throw ConfigError(where + "has a blob without elements");
  }
  if (!layer.has_inner_product()) return;
  const InnerProductSpec& product = layer.inner_product();
  if (product.rows() <= 0) throw ConfigError(where + "its factors have no rows");
  const bool bias_fits =
      layer.blobs_size() == 1 ||
      (layer.blobs_size() == 2 && FloatCount(layer.blobs(1)) == product.outputs());
  if (FloatCount(layer.blobs(0)) != product.outputs() * product.inputs() || !bias_fits) {
    throw ConfigError(where + "declared as an inner product of " +
                      std::to_string(product.inputs()) + " inputs and " +
                      std::to_string(product.outputs()) +
                      " outputs, but its blobs do not fit that");
  }
}

}  // namespace

InformationBook::InformationBook(ModelSpec model, int workers, int servers)
    : model_(std::move(model)),
      workers_(workers),
      servers_(servers),
      lanes_(MostPlannedLanes(Cluster().cores())) {
  if (model_.layers_size() == 0) throw ConfigError("the model has no layers with parameters");
  for (const LayerSpec& layer : model_.layers()) Check(layer);
}

InformationBook::InformationBook(ModelSpec model, const Cluster& cluster)
    : InformationBook(std::move(model), cluster.workers(), cluster.servers()) {
  lanes_ = MostPlannedLanes(cluster.cores());
  colocated_ = !cluster.has_network() || cluster.network().colocated();
  if (!cluster.has_network() || !colocated_) return;
  spare_servers_ = std::max(servers_ - workers_, 0);
  const auto bandwidth = static_cast<double>(ParseBitRate(cluster.network().bandwidth()));
  for (const Deviation& deviation : cluster.deviation()) {
    if (!deviation.has_bandwidth() || deviation.worker() >= servers_) continue;
    const auto own = static_cast<double>(ParseBitRate(deviation.bandwidth()));
    link_shares_[deviation.worker()] = own / bandwidth;
  }
}

int64_t InformationBook::Query(Property property) const {
  switch (property) {
    case Property::kWorkers:
      return workers_;
    case Property::kServers:
      return servers_;
    case Property::kSpareServers:
      return spare_servers_;
    case Property::kLanes:
      return lanes_;
    case Property::kBatch:
      return model_.batch();
    case Property::kLayers:
      return model_.layers_size();
    case Property::kParameters: {
      int64_t parameters = 0;
      for (const LayerSpec& layer : model_.layers()) parameters += FloatCount(layer);
      return parameters;
    }
  }
  LOG(FATAL) << "unknown property";
  return 0;
}

double InformationBook::LinkShareOf(int server) const {
  const auto found = link_shares_.find(server);
  return found == link_shares_.end() ? 1 : found->second;
}

bool InformationBook::updates_at_workers() const {
  const UpdateRuleSpec& rule = model_.update_rule();
  return servers_keep_nothing_ || rule.deferred() || rule.type() == "MeanGradient";
}

InformationBook InformationBook::WithLanes(int lanes) const {
  InformationBook book = *this;
  book.lanes_ = lanes;
  return book;
}

InformationBook InformationBook::WithoutFactors() const {
  InformationBook book = *this;
  for (LayerSpec& layer : *book.model_.mutable_layers()) layer.clear_inner_product();
  return book;
}

InformationBook InformationBook::WithUpdatesAtWorkers() const {
  InformationBook book = *this;
  book.servers_keep_nothing_ = true;
  return book;
}

LayerFacts InformationBook::Query(int layer) const {
  CHECK(layer >= 0 && layer < model_.layers_size());
  const LayerSpec& spec = model_.layers(layer);
  LayerFacts facts;
  facts.name = spec.name();
  facts.type = spec.type();
  facts.parameters = FloatCount(spec);
  facts.outputs = spec.inner_product().outputs();
  facts.inputs = spec.inner_product().inputs();
  facts.rows = spec.inner_product().rows();
  // The longer one of its factors fits in a message.
  const __int128 floats = __int128{facts.rows} * std::max(facts.outputs, facts.inputs);
  facts.factorable = spec.has_inner_product() && floats * sizeof(float) <= kMostBodyBytes;
  return facts;
}

}  // namespace poseidon
