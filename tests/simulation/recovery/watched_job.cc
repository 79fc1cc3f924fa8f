#include "tests/simulation/recovery/watched_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "client/sync/sync_lane.h"
#include "client/worker_control.h"
#include "proto/bucket.h"
#include "proto/model_size.h"
#include "proto/plan_members.h"
#include "server/server_control.h"
#include "server/shard_actor.h"
#include "simulation/simulated_trainer.h"
#include "tests/simulation/recovery/around.h"

namespace poseidon {
namespace {

// What a server or a worker's lane gets from its own node is of no plan.
bool IsLocal(const Envelope& envelope) { return !IsWireKind(envelope.kind); }

// Iterations of an undisturbed job take microseconds to some tenths of a second in these tests.
constexpr Duration kIterations = Seconds(2);

// The longest that a job may do nothing when the last fault is over: whoever is silent is noticed,
// a second time if the first verdict had to wait for another scheduler, which looks around for as
// long itself; what has been lost is said again; a frame that is lost keeps its lane waiting for
// the stall deadline and half of it, and twice if the exchange begins anew; and nobody comes.
Duration PatienceOf(const Job& job) {
  const Communication& communication = job.communication();
  const double verdict =
      communication.heartbeat_deadline_seconds() + 2 * communication.heartbeat_interval_seconds();
  return Seconds(3 * verdict + 2 * 1.8 * communication.stall_deadline_seconds() +
                 job.recovery().replacement_deadline_seconds()) +
         kIterations;
}

}  // namespace

// Around any of a job's actors.
class WatchedJob::Watch : public Around {
 public:
  Watch(WatchedJob* job, std::unique_ptr<Actor> inner) : Around(std::move(inner)), job_(*job) {}

 protected:
  WatchedJob& job() { return job_; }

 private:
  WatchedJob& job_;
};

// A data lane, under one plan.
class WatchedJob::LaneWatch : public Watch {
 public:
  LaneWatch(WatchedJob* job, std::unique_ptr<Actor> inner, const ShardActor* shard, uint64_t epoch)
      : Watch(job, std::move(inner)), shard_(shard), epoch_(epoch) {}

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    if (IsLocal(envelope) || envelope.epoch == epoch_) {
      return inner().OnMessage(envelope, outbox);
    }
    const int64_t dropped = shard_ == nullptr ? 0 : shard_->dropped_frames();
    inner().OnMessage(envelope, outbox);
    EXPECT_TRUE(outbox.messages.empty() && outbox.work.empty() && outbox.timers.empty())
        << envelope.to.ToString() << " has used a frame of another plan";
    if (shard_ == nullptr) return;
    EXPECT_EQ(shard_->dropped_frames(), dropped + 1);
  }
  void Sent(Outbox& outbox) override {
    for (const Envelope& envelope : outbox.messages) {
      if (IsLocal(envelope)) continue;
      EXPECT_EQ(envelope.epoch, epoch_) << "a lane sends under another plan than its own";
      job().OnDataSent(envelope);
    }
  }

 private:
  const ShardActor* shard_;  // null: a worker's lane
  uint64_t epoch_;
};

// The control lane of a worker or a server.
class WatchedJob::ControlWatch : public Watch {
 public:
  ControlWatch(WatchedJob* job, std::unique_ptr<Actor> inner, SimNode node)
      : Watch(job, std::move(inner)), node_(node) {}

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.kind == MessageKind::kPlan) {
      const auto plan = ParsePlan(envelope.body, &job().parsed_);
      if (plan != nullptr) job().plan_of_[node_] = plan->plan().number();
    }
    inner().OnMessage(envelope, outbox);
  }

 private:
  SimNode node_;
};

class WatchedJob::SchedulerWatch : public Watch {
 public:
  using Watch::Watch;

 protected:
  void Receive(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.kind == MessageKind::kHoldings) job().OnHoldings(envelope);
    if (envelope.kind == MessageKind::kReady) {
      const auto plan = job().plans_.find(static_cast<int>(envelope.step));
      if (plan != job().plans_.end()) plan->second.ready.insert(envelope.from.node);
    }
    inner().OnMessage(envelope, outbox);
  }
  void Sent(Outbox& outbox) override {
    for (const Envelope& envelope : outbox.messages) {
      if (IsLocal(envelope)) continue;
      if (envelope.kind == MessageKind::kPlan) job().OnPlan(envelope);
      if (envelope.kind == MessageKind::kStart) job().OnStart(static_cast<int>(envelope.step));
    }
  }
};

// A worker's program.
class WatchedJob::TrainerWatch : public Watch {
 public:
  TrainerWatch(WatchedJob* job, std::unique_ptr<Actor> inner, int rank)
      : Watch(job, std::move(inner)), rank_(rank) {}

 protected:
  void Expire(TimerId timer, Outbox& outbox) override {
    const SyncContext* context = job().cluster_->context(rank_);
    if (context != nullptr) job().computing_ = context->plan.plan().number();
    inner().OnTimer(timer, outbox);
    job().computing_.reset();
  }

 private:
  int rank_;  // that it asked for
};

WatchedJob::WatchedJob(SimulatedClusterOptions options)
    : base_(options.epoch),
      iterations_(options.work.iterations),
      layers_(options.work.model.layers_size()),
      patience_(PatienceOf(options.job)),
      join_deadline_(Seconds(options.job.cluster().join_deadline_seconds())) {
  for (const NodeSpec& node : options.layout.nodes) asked_.push_back(node.id);
  // What is promised is promised of disks that keep what they say they have.
  watches_ = !options.disk.lies;
  if (watches_) options = Watched(std::move(options));
  cluster_ = std::make_unique<SimulatedCluster>(std::move(options));
}

WatchedJob::~WatchedJob() {
  const std::optional<wire::End>& end = cluster_->node({Role::kScheduler, 0}).end;
  if (!end || !watches_) return;  // it hangs, or has not run
  for (const wire::Recovered& recovered : cluster_->scheduler().recoveries) {
    EXPECT_GE(recovered.reached(), recovered.iteration());
    EXPECT_LE(recovered.reached(), recovered.iteration() + 2);
  }
  ExpectNothingBeyond();
  ExpectGoesOn();
  if (end->exit_code() == 0) ExpectGradientsOnce();
}

SimulatedClusterOptions WatchedJob::Watched(SimulatedClusterOptions options) {
  options.network.wrap = [this, around = options.network.wrap](SimNode node, int lane,
                                                               std::unique_ptr<Actor> actor) {
    return Wrap(node, lane, around, std::move(actor));
  };
  auto& gradient = options.work.arithmetic.gradient;
  if (!gradient) return options;
  computes_ = true;
  gradient = [this, compute = gradient](int place, int64_t iteration, int layer,
                                        std::span<const float> values,
                                        const GradientBuffers& buffers) {
    compute(place, iteration, layer, values, buffers);
    if (!computing_) return;
    std::vector<int>& counts = plans_[*computing_].gradients[iteration];
    const size_t index =
        static_cast<size_t>(place) * static_cast<size_t>(layers_) + static_cast<size_t>(layer);
    if (counts.size() <= index) counts.resize(index + 1);
    ++counts[index];
  };
  return options;
}

std::unique_ptr<Actor> WatchedJob::Wrap(SimNode node, int lane, const ActorWrap& around,
                                        std::unique_ptr<Actor> actor) {
  const Actor* const inner = actor.get();
  const auto* const shard = dynamic_cast<const ShardActor*>(inner);
  const bool data = shard != nullptr || dynamic_cast<const SyncLane*>(inner) != nullptr;
  const bool control = dynamic_cast<const WorkerControl*>(inner) != nullptr ||
                       dynamic_cast<const ServerControl*>(inner) != nullptr;
  const bool trainer = dynamic_cast<const SimulatedTrainer*>(inner) != nullptr;
  const bool scheduler = lane == kControlLane && node == cluster_->process({Role::kScheduler, 0});
  if (around) actor = around(node, lane, std::move(actor));
  if (data) {
    return std::make_unique<LaneWatch>(this, std::move(actor), shard, EpochOf(plan_of_.at(node)));
  }
  if (control) return std::make_unique<ControlWatch>(this, std::move(actor), node);
  if (scheduler) return std::make_unique<SchedulerWatch>(this, std::move(actor));
  if (!trainer) return actor;
  const auto asked =
      std::ranges::find_if(asked_, [&](const NodeId& id) { return cluster_->process(id) == node; });
  return std::make_unique<TrainerWatch>(this, std::move(actor), asked->rank);
}

WatchedJob::PlanRecord* WatchedJob::PlanOf(uint64_t epoch) {
  const auto found = plans_.find(static_cast<int>(epoch - base_));
  return found == plans_.end() ? nullptr : &found->second;
}

void WatchedJob::OnPlan(const Envelope& envelope) {
  const auto parsed = ParsePlan(envelope.body, &parsed_);
  const auto [record, is_new] = plans_.try_emplace(parsed->plan().number());
  if (!is_new) return;
  record->second.plan = parsed->plan();
  ExpectPlanMakesSense(*parsed);
}

void WatchedJob::ExpectPlanMakesSense(const wire::PlanAndModel& plan) const {
  int next_layer = 0;
  for (const BucketPlan& bucket : plan.plan().buckets()) {
    EXPECT_EQ(bucket.first_layer(), next_layer);
    int64_t floats = 0;
    for (int i = 0; i < bucket.layer_count(); ++i) {
      floats += FloatCount(plan.model().layers(next_layer++));
    }
    int64_t next = 0;
    for (const Chunk& chunk : bucket.chunks()) {
      EXPECT_EQ(chunk.offset(), next);
      next += chunk.size();
      if (!UsesServers(bucket.scheme())) continue;
      EXPECT_LT(chunk.server(), plan.plan().servers());
      EXPECT_EQ(chunk.has_backup(), !bucket.update_at_workers()) << bucket.name();
      EXPECT_FALSE(chunk.has_backup() && chunk.backup() == chunk.server()) << bucket.name();
    }
    EXPECT_EQ(next, floats) << bucket.name();
  }
  EXPECT_EQ(next_layer, plan.model().layers_size());
}

void WatchedJob::OnHoldings(const Envelope& envelope) {
  wire::Holdings holdings;
  ASSERT_TRUE(holdings.ParseFromString(envelope.body.ToString()));
  std::vector<int64_t> versions;
  if (holdings.complete() && holdings.has_iteration()) versions.push_back(holdings.iteration());
  // A server that has come since has nothing, and its layout is another's.
  const bool keeps = !plans_.empty() && holdings.layout() == plans_.rbegin()->second.plan.layout();
  for (const wire::HeldChunk& chunk : holdings.chunks()) {
    if (keeps) versions.push_back(chunk.iteration());
  }
  for (const int64_t version : versions) {
    auto& [oldest, newest] = holds_.try_emplace(envelope.step, version, version).first->second;
    oldest = std::min(oldest, version);
    newest = std::max(newest, version);
    EXPECT_LE(newest, oldest + 1) << "no iteration that all can go back to, says "
                                  << envelope.from.node.ToString();
  }
}

void WatchedJob::OnStart(int number) {
  const PlanRecord& record = plans_.at(number);
  const auto expect_ready = [&](const NodeId& node) {
    EXPECT_TRUE(record.ready.contains(node))
        << "plan " << number << " starts without " << node.ToString();
  };
  for (const int rank : RanksOfWorkers(record.plan)) expect_ready({Role::kWorker, rank});
  for (const int rank : RanksOfServers(record.plan)) expect_ready({Role::kServer, rank});
  bool planned = false;
  bool starts = false;
  for (const wire::JournalRecord& written : cluster_->scheduler().journal) {
    if (written.has_plan()) planned = written.plan().plan().number() == number;
    if (written.has_start()) starts = planned;
  }
  EXPECT_TRUE(starts) << "plan " << number << " starts, and nobody would know";
}

void WatchedJob::OnDataSent(const Envelope& envelope) {
  PlanRecord* const plan = PlanOf(envelope.epoch);
  if (plan == nullptr) return;  // links are measured
  plan->furthest = std::max(plan->furthest.value_or(envelope.iteration), envelope.iteration);
  const ChunkOfPlan key{envelope.epoch, envelope.bucket, envelope.chunk};
  if (envelope.kind == MessageKind::kReplicated) backed_up_[key] = envelope.iteration;
  if (envelope.kind != MessageKind::kValues) return;
  if (envelope.iteration <= plan->plan.start_iteration()) return;
  const Chunk& chunk = plan->plan.buckets(static_cast<int>(envelope.bucket))
                           .chunks(static_cast<int>(envelope.chunk));
  if (!chunk.has_backup()) return;
  const auto backup = backed_up_.find(key);
  EXPECT_TRUE(backup != backed_up_.end() && backup->second >= envelope.iteration)
      << "an answer for iteration " << envelope.iteration << " that its backup has not";
}

void WatchedJob::ExpectNothingBeyond() const {
  std::optional<int64_t> start;  // the earliest of all later plans
  for (auto plan = plans_.rbegin(); plan != plans_.rend(); ++plan) {
    const PlanRecord& record = plan->second;
    if (start && record.furthest) {
      EXPECT_LE(*record.furthest, *start + 1) << "sent under plan " << plan->first;
    }
    // Where all who had any values are dead the job begins once more: what was before is no part
    // of it.
    const bool once_more = record.plan.holders().empty() && record.plan.start_iteration() == 0;
    if (once_more) return;
    start = std::min(start.value_or(record.plan.start_iteration()), record.plan.start_iteration());
  }
}

void WatchedJob::ExpectGradientsOnce() const {
  if (!computes_) return;
  // The plan under which each iteration was trained last.
  std::vector<const PlanRecord*> last(static_cast<size_t>(iterations_));
  for (const auto& [number, record] : plans_) {
    for (int64_t t = record.plan.start_iteration(); t < iterations_; ++t) last[t] = &record;
  }
  for (int64_t iteration = 0; iteration < iterations_; ++iteration) {
    ASSERT_NE(last[iteration], nullptr) << "nobody has trained iteration " << iteration;
    const auto gradients = last[iteration]->gradients.find(iteration);
    ASSERT_NE(gradients, last[iteration]->gradients.end()) << "iteration " << iteration;
    const auto all =
        static_cast<size_t>(last[iteration]->plan.workers()) * static_cast<size_t>(layers_);
    EXPECT_EQ(gradients->second, std::vector<int>(all, 1))
        << "gradients of iteration " << iteration << ", by place and layer";
  }
}

void WatchedJob::KillAt(Time when, const NodeId& id) {
  DisturbedUntil(when);
  cluster_->KillAt(when, id);
}

void WatchedJob::RestartAt(Time when, const NodeId& id, bool supervised) {
  DisturbedUntil(when);
  cluster_->RestartAt(when, id, supervised);
}

Duration WatchedJob::IdleAfterFaults() const {
  const NodeRecord& scheduler = cluster_->node({Role::kScheduler, 0});
  Time first = scheduler.ended;
  if (first <= last_fault_) return {};
  for (const NodeId& id : asked_) {
    if (id.role != Role::kWorker) continue;
    for (const IterationTimes& times : cluster_->trainer(id.rank).iterations) {
      if (times.end > last_fault_) first = std::min(first, times.end);
    }
  }
  return first - last_fault_;
}

void WatchedJob::ExpectGoesOn() const {
  // A job that has not begun waits for who is missing as one without recovery.
  const bool begun = std::ranges::any_of(
      plans_, [](const auto& plan) { return plan.second.furthest.has_value(); });
  const Duration most = patience_ + (begun ? Duration::zero() : join_deadline_);
  EXPECT_LE(ToSeconds(IdleAfterFaults()), ToSeconds(most))
      << "after the last fault nothing happens";
}

}  // namespace poseidon
