#include "planner/cost/overlap_estimate.h"

#include <algorithm>
#include <limits>
#include <map>

#include "collectives/traffic.h"
#include "planner/cost/bucket_costs.h"
#include "planner/cost/device_copy_cost.h"
#include "planner/cost/exchange_tables.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// Bytes with headers, of one bucket.
struct ServerBytes {
  double up = 0;  // of one worker's message or messages
  double down = 0;
};

// Of one bucket, through one machine's link.
struct DirectedBytes {
  double sent = 0;
  double received = 0;
  double most() const { return std::max(sent, received); }
};

// What one bucket puts on the links, with everything needed to say what a given machine gets of it.
struct BucketTraffic {
  bool with_servers = false;
  ServerBytes total;
  std::map<int, ServerBytes> by_machine;  // of the servers
  double peer_bytes = 0;                  // without servers: each worker's, in each direction
  double fill = 0;     // bytes that pass before the two directions run side by side
  double waiting = 0;  // seconds of latency and processing
  // Seconds of a node's lanes, servers' on average; messages and what there is to do with them.
  double worker_lanes = 0;
  double server_lanes = 0;
};

class Loads {
 public:
  Loads(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster)
      : plan_(plan), model_(model), cluster_(cluster), workers_(plan.workers()) {}

  std::vector<BucketLoad> Make() {
    std::vector<BucketTraffic> buckets;
    for (const BucketPlan& bucket : plan_.buckets()) buckets.push_back(TrafficOf(bucket));
    const int most_loaded = MostLoaded(buckets);
    std::vector<BucketLoad> loads;
    for (const BucketTraffic& bucket : buckets) {
      const BucketPlan& plan = plan_.buckets(static_cast<int>(loads.size()));
      BucketLoad load = LinkLoad(bucket, most_loaded);
      double most = load.link();
      for (const auto& [machine, bytes] : bucket.by_machine) {
        most = std::max(most, LinkLoad(bucket, machine).link());
      }
      for (const auto& [machine, deviation] : cluster_.deviations) {
        most = std::max(most, LinkLoad(bucket, machine).link());
      }
      load.worker_lane = bucket.worker_lanes / plan_.lanes();
      load.server_lane = bucket.server_lanes / plan_.lanes();
      const double exchange = most + bucket.fill / cluster_.goodput + bucket.waiting;
      load.alone = LocalSeconds(plan) + std::max(exchange, load.lane());
      loads.push_back(load);
    }
    return loads;
  }

 private:
  double header() const { return static_cast<double>(cluster_.header_bytes); }
  double hop() const { return cluster_.latency + cluster_.message_cost; }

  bool on_devices(const BucketPlan& bucket) const {
    return DevicesUpdate(bucket, model_, cluster_);
  }
  // None where devices make it.
  double LaneUpdateSeconds(const BucketPlan& bucket) const {
    return on_devices(bucket) ? 0 : UpdateSeconds(FloatCount(bucket), cluster_);
  }

  // Between the worker's devices and its host, both ways, and what the devices do.
  double LocalSeconds(const BucketPlan& bucket) const {
    double seconds = SecondsToDevices(bucket, FloatCount(bucket), model_, cluster_);
    for (int l = 0; l < bucket.layer_count(); ++l) {
      seconds += SecondsToHost(bucket, model_.layers(bucket.first_layer() + l), model_, cluster_);
    }
    return seconds;
  }

  BucketTraffic TrafficOf(const BucketPlan& bucket) const {
    if (bucket.scheme() == PS) return ParameterServer(bucket);
    if (bucket.scheme() == ADAM) return Adam(bucket);
    if (bucket.scheme() == SFB) return Broadcast(bucket);
    BucketTraffic traffic;
    const int rounds = AllReduceRounds(bucket.scheme(), plan_, workers_);
    const double floats = static_cast<double>(FloatCount(bucket));
    const double bytes = static_cast<double>(CodedBytes(plan_, bucket, FloatCount(bucket)));
    // Where workers have unequal shares, a machine that differs may have the least: it sends what
    // it has once, and gets what becomes of that.
    const bool equal = cluster_.deviations.empty() || InStep(bucket, plan_);
    traffic.peer_bytes = bytes * (equal ? 2.0 * (workers_ - 1) / workers_ : 1) +
                         (equal ? rounds : 1) * bucket.chunks_size() * header();
    traffic.waiting = rounds * hop() + floats * sizeof(float) / cluster_.reduction_rate;
    traffic.worker_lanes = rounds * bucket.chunks_size() * cluster_.message_cost +
                           AddSeconds(FloatCount(bucket), cluster_) * (workers_ - 1) / workers_ +
                           (workers_ > 1 ? LaneUpdateSeconds(bucket) : 0);
    return traffic;
  }

  BucketTraffic ParameterServer(const BucketPlan& bucket) const {
    BucketTraffic traffic;
    traffic.with_servers = true;
    double largest = 0;
    for (const Chunk& chunk : bucket.chunks()) {
      const double up = static_cast<double>(CodedBytes(plan_, bucket, chunk.size())) + header();
      const double down = static_cast<double>(AnswerBytes(plan_, bucket, chunk.size())) + header();
      Add(chunk.server(), up, down, traffic);
      largest = std::max(largest, up);
    }
    const int64_t first = bucket.chunks(0).size();
    // The first chunk's answer can't leave before all workers have sent it.
    traffic.fill = largest * (workers_ - 1);
    // Of which the server's lane takes one after the other.
    traffic.waiting = 2 * hop() + (workers_ - 1) * cluster_.message_cost +
                      AddSeconds(first, cluster_) +
                      (on_devices(bucket) ? 0 : UpdateSeconds(first, cluster_));
    const double add = AddSeconds(FloatCount(bucket), cluster_);
    const double update = LaneUpdateSeconds(bucket);
    const double messages = bucket.chunks_size() * cluster_.message_cost;
    const bool at_workers = bucket.update_at_workers();
    traffic.worker_lanes = messages + (at_workers ? update : 0);
    traffic.server_lanes =
        (workers_ * (messages + add) + (at_workers ? 0 : update)) / plan_.servers();
    return traffic;
  }

  BucketTraffic Adam(const BucketPlan& bucket) const {
    BucketTraffic traffic;
    traffic.with_servers = true;
    const FactorBytes factors = FactorBytesOf(plan_, bucket, model_);
    const double up = static_cast<double>(factors.u + factors.v) + 2 * header();
    const double down =
        static_cast<double>(FloatCount(bucket)) * sizeof(float) + header() * bucket.chunks_size();
    Add(bucket.chunks(0).server(), up, down, traffic);
    traffic.fill = up * (workers_ - 1);
    traffic.waiting = 2 * hop() + (2 * workers_ - 1) * cluster_.message_cost +
                      RebuildSeconds(plan_, bucket, model_, cluster_);
    traffic.worker_lanes = bucket.chunks_size() * cluster_.message_cost;
    traffic.server_lanes =
        (2 * workers_ * cluster_.message_cost + RebuildSeconds(plan_, bucket, model_, cluster_)) /
        plan_.servers();
    return traffic;
  }

  BucketTraffic Broadcast(const BucketPlan& bucket) const {
    BucketTraffic traffic;
    const FactorBytes factors = FactorBytesOf(plan_, bucket, model_);
    const double one = static_cast<double>(factors.u + factors.v) + 2 * header();
    traffic.peer_bytes = one * (workers_ - 1);
    const int hops = bucket.factor_ring() ? workers_ - 1 : 1;
    const double rebuild = on_devices(bucket) ? 0 : RebuildSeconds(plan_, bucket, model_, cluster_);
    traffic.waiting = hops * hop() + rebuild;
    traffic.worker_lanes = 2 * (workers_ - 1) * cluster_.message_cost + rebuild;
    return traffic;
  }

  void Add(int server, double up, double down, BucketTraffic& traffic) const {
    ServerBytes& owned = traffic.by_machine[cluster_.MachineOfServer(server)];
    owned.up += up;
    owned.down += down;
    traffic.total.up += up;
    traffic.total.down += down;
  }

  // Only what the machine's link is busy for.
  BucketLoad LinkLoad(const BucketTraffic& bucket, int machine) const {
    const auto found = bucket.by_machine.find(machine);
    const DirectedBytes bytes =
        OnLink(bucket, machine < workers_,
               found == bucket.by_machine.end() ? ServerBytes() : found->second);
    BucketLoad load;
    load.sent = bytes.sent / cluster_.GoodputOf(machine);
    load.received = bytes.received / cluster_.GoodputOf(machine);
    return load;
  }

  // Bytes through a machine's link.
  DirectedBytes OnLink(const BucketTraffic& bucket, bool has_worker,
                       const ServerBytes& owned) const {
    if (!bucket.with_servers) {
      const double bytes = has_worker ? bucket.peer_bytes : 0;
      return {bytes, bytes};
    }
    const int others = workers_ - (has_worker ? 1 : 0);
    DirectedBytes bytes{others * owned.down, others * owned.up};
    if (has_worker) {
      bytes.sent += bucket.total.up - owned.up;
      bytes.received += bucket.total.down - owned.down;
    }
    return bytes;
  }

  int MostLoaded(const std::vector<BucketTraffic>& buckets) const {
    // Machines without a server of a bucket are all alike, but for having a worker or not.
    std::vector<double> extra(cluster_.machines());
    double at_worker = 0;
    double elsewhere = 0;
    for (const BucketTraffic& bucket : buckets) {
      const double worker_bytes = OnLink(bucket, true, ServerBytes()).most();
      const double other_bytes = OnLink(bucket, false, ServerBytes()).most();
      at_worker += worker_bytes;
      elsewhere += other_bytes;
      for (const auto& [machine, owned] : bucket.by_machine) {
        const bool has_worker = machine < workers_;
        extra[machine] +=
            OnLink(bucket, has_worker, owned).most() - (has_worker ? worker_bytes : other_bytes);
      }
    }
    int most_loaded = 0;
    double most = -1;
    for (int machine = 0; machine < cluster_.machines(); ++machine) {
      const double bytes = extra[machine] + (machine < workers_ ? at_worker : elsewhere);
      const double seconds = bytes / cluster_.GoodputOf(machine);
      if (seconds > most) most_loaded = machine;
      most = std::max(most, seconds);
    }
    return most_loaded;
  }

  const Plan& plan_;
  const ModelSpec& model_;
  const ClusterModel& cluster_;
  int workers_;
};

// The link's work, as it comes and is done.
class Link {
 public:
  explicit Link(const Plan& plan) : plan_(plan) {}

  // Works until `time`, then gets one more bucket.
  void Add(double time, int bucket, double work) {
    Work(time);
    now_ = std::max(now_, time);
    const int priority = plan_.fifo() ? arrivals_++ : bucket;
    waiting_[priority] = {bucket, work};
  }
  // When each bucket is through.
  std::vector<double> Finish(int buckets) {
    done_.resize(buckets);
    Work(std::numeric_limits<double>::infinity());
    return std::move(done_);
  }

 private:
  void Work(double until) {
    while (!waiting_.empty()) {
      auto& [bucket, work] = waiting_.begin()->second;
      if (now_ + work > until) {
        work -= std::max(until - now_, 0.0);
        now_ = std::max(now_, until);
        return;
      }
      now_ += work;
      if (done_.size() <= static_cast<size_t>(bucket)) done_.resize(bucket + 1);
      done_[bucket] = now_;
      waiting_.erase(waiting_.begin());
    }
  }

  const Plan& plan_;
  double now_ = 0;
  int arrivals_ = 0;
  std::map<int, std::pair<int, double>> waiting_;
  std::vector<double> done_;
};

// Sets when buckets are ready, sent and fresh. Time 0 is the start of a backward pass, which takes
// `backward`.
void SendDuringBackward(const Plan& plan, const std::vector<BucketLoad>& loads,
                        const std::vector<LayerTime>& layers, double backward,
                        std::vector<BucketTimes>& times) {
  Link link(plan);
  double time = 0;
  for (int b = plan.buckets_size() - 1; b >= 0; --b) {
    const BucketPlan& bucket = plan.buckets(b);
    for (int i = 0; i < bucket.layer_count(); ++i)
      time += layers[bucket.first_layer() + i].backward;
    times[b].ready = time;
    link.Add(plan.no_overlap() ? backward : time, b, std::max(loads[b].link(), loads[b].lane()));
  }
  const std::vector<double> sent = link.Finish(plan.buckets_size());
  for (int b = 0; b < plan.buckets_size(); ++b) {
    times[b].sent = sent[b];
    times[b].fresh = sent[b] + loads[b].alone - std::max(loads[b].link(), loads[b].lane());
    times[b].exchange = times[b].fresh - times[b].ready;
  }
}

// Sets when the next forward pass, which starts at `backward` at the earliest, needs the buckets;
// returns when it is done.
double TakeInForward(const Plan& plan, const std::vector<LayerTime>& layers, double backward,
                     std::vector<BucketTimes>& times) {
  const bool waits = plan.staleness() == 0;
  double time = backward;
  if (waits && plan.wait_for_all()) {
    for (const BucketTimes& bucket : times) time = std::max(time, bucket.fresh);
  }
  for (int b = 0; b < plan.buckets_size(); ++b) {
    times[b].needed = time;
    if (waits) time = std::max(time, times[b].fresh);
    const BucketPlan& bucket = plan.buckets(b);
    for (int i = 0; i < bucket.layer_count(); ++i) time += layers[bucket.first_layer() + i].forward;
  }
  return time;
}

}  // namespace

std::vector<BucketLoad> BucketLoads(const Plan& plan, const ModelSpec& model,
                                    const ClusterModel& cluster) {
  return Loads(plan, model, cluster).Make();
}

PredictedTimes EstimateIteration(const Plan& plan, const std::vector<BucketLoad>& loads,
                                 const std::vector<LayerTime>& layers) {
  PredictedTimes times;
  times.buckets.resize(plan.buckets_size());
  double backward = 0;
  for (const LayerTime& layer : layers) backward += layer.backward;
  SendDuringBackward(plan, loads, layers, backward, times.buckets);
  const double end = TakeInForward(plan, layers, backward, times.buckets);
  times.seconds = end;
  // From the start of this iteration's forward pass, which takes, with its stalls, what the
  // backward pass leaves of the iteration.
  const double before = times.seconds - backward;
  for (BucketTimes& bucket : times.buckets) {
    bucket.ready += before;
    bucket.sent += before;
    bucket.fresh += before;
    bucket.needed += before;
  }
  return times;
}

double LeastSeconds(const std::vector<BucketLoad>& loads, const std::vector<LayerTime>& layers) {
  double compute = 0;
  for (const LayerTime& layer : layers) compute += layer.forward + layer.backward;
  BucketLoad all;
  for (const BucketLoad& load : loads) {
    all.sent += load.sent;
    all.received += load.received;
    all.worker_lane += load.worker_lane;
    all.server_lane += load.server_lane;
  }
  return std::max({compute, all.link(), all.lane()});
}

}  // namespace poseidon
