#include "client/staging/staged_bucket.h"

namespace poseidon {
namespace {

StagedBucket::Events MakeEvents(const std::vector<DeviceReplica>& replicas) {
  StagedBucket::Events events;
  for (const DeviceReplica& replica : replicas) events.push_back(replica.device->MakeEvent());
  return events;
}

}  // namespace

StagedBucket::StagedBucket(const LayerExchange& exchange, const LayerExchange::Bucket& planned,
                           const std::vector<DeviceReplica>& replicas)
    : name(planned.name),
      gradient_name("gradient of " + planned.name),
      values_name("values of " + planned.name),
      gradient_ready(MakeEvents(replicas)),
      on_host(MakeEvents(replicas)),
      reduced(MakeEvents(replicas)),
      values_there(MakeEvents(replicas)),
      wait_begins(replicas[0].device->MakeTimedEvent()),
      wait_ends(replicas[0].device->MakeTimedEvent()),
      wanted(exchange.iteration()),
      moved(wanted - 1) {
  for (int l = 0; l < planned.layers; ++l) layers.push_back(planned.first_layer + l);
}

std::vector<ArrivalThread::Moment> MomentsOf(const std::vector<DeviceReplica>& replicas,
                                             const StagedBucket::Events& events) {
  std::vector<ArrivalThread::Moment> moments;
  for (size_t r = 0; r < replicas.size(); ++r) {
    moments.push_back({replicas[r].device, events[r].get()});
  }
  return moments;
}

}  // namespace poseidon
