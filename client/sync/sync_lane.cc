#include "client/sync/sync_lane.h"

#include <algorithm>

#include "client/sync/send_span.h"
#include "device/profiler_range.h"

namespace poseidon {
namespace {

constexpr TimerId kStallScan = 1;
// A stall is noticed at most this share of the deadline late.
constexpr int kScansPerDeadline = 10;
// Who waits for a server waits longer than the server waits for its workers, whose report is the
// one that names the culprit.
constexpr double kPatienceWithServers = 1.5;
// What the log says of a frame that no correct peer would send.
constexpr std::string_view kMisfit = "that does not fit";

std::string_view Awaited(Scheme scheme) {
  if (UsesServers(scheme)) return "values";
  return scheme == SFB ? "factors" : "part in the all-reduce";
}

bool OnlyServers(const std::vector<NodeId>& nodes) {
  return !nodes.empty() && std::all_of(nodes.begin(), nodes.end(), [](const NodeId& node) {
    return node.role == Role::kServer;
  });
}

bool LeavesNode(const Envelope& envelope) { return envelope.to.node.role != Role::kThisNode; }

void AddSettings(const Payload& settings, Outbox& outbox) {
  for (Envelope& sent : outbox.messages) {
    if (sent.kind == MessageKind::kGradient) sent.settings = settings;
  }
}

// What has come is the program's.
void Forward(const Envelope& envelope, Outbox& outbox) {
  Envelope forward = envelope;
  forward.to = Here(kApplicationLane);
  outbox.Send(std::move(forward));
}

// Bodies of what a handler sends to other nodes.
int64_t BytesToNodes(const Outbox& outbox) {
  int64_t bytes = 0;
  for (const Envelope& envelope : outbox.messages) {
    if (LeavesNode(envelope)) bytes += static_cast<int64_t>(envelope.body.size());
  }
  return bytes;
}

}  // namespace

SyncLane::SyncLane(std::shared_ptr<SyncContext> context, int lane, Trace* trace)
    : context_(std::move(context)), lane_(lane), trace_(trace), dropped_(context_->dropped_frames) {
  const Plan& plan = context_->plan.plan();
  buckets_.resize(plan.buckets_size());
  for (int bucket = 0; bucket < plan.buckets_size(); ++bucket) {
    if (!HasPart(plan, bucket, lane_)) continue;
    buckets_[bucket].syncer = MakeSyncer(context_, bucket, lane_);
  }
}

Duration SyncLane::ScanInterval() const { return context_->stall_deadline / kScansPerDeadline; }

Time SyncLane::AwakeNow(const Outbox& outbox) { return clock_.Look(outbox.now, ScanInterval()); }

void SyncLane::OnStart(Outbox& outbox) {
  AwakeNow(outbox);
  outbox.SetTimer(kStallScan, ScanInterval());
}

void SyncLane::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kTraining) return AwaitInitialValues(outbox);
  const bool here = envelope.bucket < buckets_.size() && buckets_[envelope.bucket].syncer;
  const bool local = envelope.kind == MessageKind::kGradientReady ||
                     envelope.kind == MessageKind::kPublishInitial ||
                     envelope.kind == MessageKind::kCollectOptimizerState;
  if (envelope.epoch != context_->epoch) {
    // What the program posts may be overtaken by a hold and by the plan after it.
    if (!local) dropped_.AddStale();
    return;
  }
  if (envelope.kind == MessageKind::kStatistics) return OnStatistics(envelope, outbox);
  if (!here) {
    if (!local) dropped_.AddInvalid(envelope, kMisfit);
    return;  // the application tells all lanes; this one has no part of the bucket
  }
  const ProfilerRange range(context_->bucket(static_cast<int>(envelope.bucket)).name().c_str());
  Entry& entry = buckets_[envelope.bucket];
  if (envelope.kind == MessageKind::kCollectOptimizerState)
    return FetchOptimizerState(envelope, entry, outbox);
  if (envelope.kind == MessageKind::kOptimizerState)
    return OnOptimizerState(envelope, entry, outbox);
  FrameStatus status = FrameStatus::kAccepted;
  if (envelope.kind == MessageKind::kPublishInitial) {
    status = entry.syncer->PublishInitial(envelope.body, outbox);
  } else if (envelope.kind == MessageKind::kGradientReady) {
    entry.waiting_since = AwakeNow(outbox);
    entry.began = outbox.now;
    entry.bytes = 0;
    status = entry.syncer->Send(envelope.iteration, outbox);
    if (envelope.settings.size() > 0) AddSettings(envelope.settings, outbox);
    TraceSend(outbox);
  } else {
    status = entry.syncer->Receive(envelope, outbox);
    const auto received = static_cast<int64_t>(envelope.body.size());
    const bool taken = status == FrameStatus::kAccepted || status == FrameStatus::kComplete;
    if (taken) TraceMoment("arrived", envelope, received, outbox);
    if (taken) entry.bytes += received;
    TraceSend(outbox);
  }
  entry.bytes += BytesToNodes(outbox);
  FollowWork(static_cast<int>(envelope.bucket), outbox);
  OnFrame(status, envelope, outbox);
}

void SyncLane::FollowWork(int bucket, Outbox& outbox) {
  for (Work& work : outbox.work) {
    work.done = [this, bucket, done = std::move(work.done)](Outbox& later) {
      const Syncer& syncer = *buckets_[bucket].syncer;
      const int64_t before = syncer.fresh_iteration();
      done(later);
      if (syncer.fresh_iteration() > before) Complete(bucket, later);
    };
  }
}

void SyncLane::AwaitInitialValues(const Outbox& outbox) {
  for (Entry& entry : buckets_) {
    if (entry.syncer && entry.syncer->fresh_iteration() < context_->start())
      entry.waiting_since = AwakeNow(outbox);
  }
}

void SyncLane::FetchOptimizerState(const Envelope& envelope, Entry& entry, Outbox& outbox) {
  const int bucket = static_cast<int>(envelope.bucket);
  entry.waiting_since = AwakeNow(outbox);
  for (const int chunk : ChunksOnLane(context_->bucket(bucket), lane_)) {
    fetching_[bucket].insert(chunk);
    outbox.Send(
        context_->MakeFrame(MessageKind::kFetchOptimizerState,
                            context_->Server(context_->bucket(bucket).chunks(chunk).server()),
                            lane_, bucket, chunk, envelope.iteration, {}));
  }
}

void SyncLane::OnOptimizerState(const Envelope& envelope, Entry& entry, Outbox& outbox) {
  const int bucket = static_cast<int>(envelope.bucket);
  const BucketPlan& plan = context_->bucket(bucket);
  const auto fetching = fetching_.find(bucket);
  if (fetching == fetching_.end()) return dropped_.AddStale();
  const auto chunk = fetching->second.find(static_cast<int>(envelope.chunk));
  if (chunk == fetching->second.end()) return dropped_.AddStale();
  const size_t floats = plan.chunks(*chunk).size() * FloatsKeptByServers(*context_, plan);
  if (envelope.from.node != context_->Server(plan.chunks(*chunk).server()) ||
      envelope.body.size() != floats * sizeof(float)) {
    return dropped_.AddInvalid(envelope, kMisfit);
  }
  fetching->second.erase(chunk);
  if (fetching->second.empty()) {
    fetching_.erase(fetching);
    entry.waiting_since.reset();
  }
  Forward(envelope, outbox);
}

void SyncLane::OnStatistics(const Envelope& envelope, Outbox& outbox) {
  const auto& holders = context_->plan.plan().holders();
  if (holders.empty() || envelope.from.node != context_->Worker(holders[0])) {
    return dropped_.AddInvalid(envelope, kMisfit);
  }
  Forward(envelope, outbox);
}

void SyncLane::OnFrame(FrameStatus status, const Envelope& envelope, Outbox& outbox) {
  switch (status) {
    case FrameStatus::kAccepted:
      return;
    case FrameStatus::kDuplicate:
      return dropped_.AddStale();
    case FrameStatus::kInvalid:
      return dropped_.AddInvalid(envelope, kMisfit);
    case FrameStatus::kComplete:
      return Complete(static_cast<int>(envelope.bucket), outbox);
  }
}

void SyncLane::Complete(int bucket, Outbox& outbox) {
  Entry& entry = buckets_[bucket];
  const int64_t iteration = entry.syncer->fresh_iteration();
  if (iteration == context_->start()) KeepStart(bucket);
  Envelope fresh;
  fresh.kind = MessageKind::kBucketFresh;
  fresh.to = Here(kApplicationLane);
  fresh.epoch = context_->epoch;
  fresh.bucket = static_cast<uint32_t>(bucket);
  fresh.iteration = iteration;
  fresh.happened = outbox.now;
  TraceMoment("fresh", fresh, 0, outbox);
  TraceExchange(fresh, entry);
  entry.waiting_since.reset();
  outbox.Send(std::move(fresh));
}

void SyncLane::KeepStart(int bucket) {
  if (context_->kept == nullptr) return;
  for (const int chunk : ChunksOnLane(context_->bucket(bucket), lane_)) {
    context_->kept->Arrived(bucket, chunk, context_->start());
  }
}

void SyncLane::TraceSend(Outbox& outbox) {
  const int64_t bytes = BytesToNodes(outbox);
  if (trace_ == nullptr || bytes == 0) return;
  const Envelope& first = *std::ranges::find_if(outbox.messages, LeavesNode);
  const auto span = std::make_shared<SendSpan>(
      *trace_, Trace::Event{"send", context_->bucket(static_cast<int>(first.bucket)).name(),
                            "lane " + std::to_string(lane_), first.iteration, outbox.now,
                            outbox.now, bytes});
  for (Envelope& envelope : outbox.messages) {
    if (LeavesNode(envelope)) envelope.departure = span;
  }
}

void SyncLane::TraceMoment(const char* name, const Envelope& envelope, int64_t bytes,
                           const Outbox& outbox) {
  if (trace_ == nullptr) return;
  trace_->Add({name, context_->bucket(static_cast<int>(envelope.bucket)).name(),
               "lane " + std::to_string(lane_), envelope.iteration, outbox.now, outbox.now, bytes});
}

void SyncLane::TraceExchange(const Envelope& fresh, const Entry& entry) {
  if (trace_ == nullptr || !entry.began) return;
  // Exchanges of several buckets overlap, so that each bucket has a row.
  const std::string& name = context_->bucket(static_cast<int>(fresh.bucket)).name();
  trace_->Add({"exchange", name, "lane " + std::to_string(lane_) + ", " + name, fresh.iteration,
               *entry.began, fresh.happened, entry.bytes});
}

std::set<int> SyncLane::Fetching(int bucket) const {
  const auto found = fetching_.find(bucket);
  return found == fetching_.end() ? std::set<int>() : found->second;
}

std::vector<NodeId> SyncLane::Missing(int bucket, const Entry& entry) const {
  const std::set<int> fetching = Fetching(bucket);
  if (fetching.empty()) return entry.syncer->missing();
  std::set<NodeId> servers;
  for (const int chunk : fetching) {
    servers.insert(context_->Server(context_->bucket(bucket).chunks(chunk).server()));
  }
  return {servers.begin(), servers.end()};
}

wire::Stalled SyncLane::StallOf(int bucket, const Entry& entry) const {
  const BucketPlan& plan = context_->bucket(bucket);
  const int64_t fresh = entry.syncer->fresh_iteration();
  wire::Stalled stalled;
  if (!Fetching(bucket).empty()) {
    stalled.set_waiting_for("the optimizer state of layer " + plan.name());
  } else if (fresh < context_->start()) {
    stalled.set_waiting_for("the initial values of layer " + plan.name());
  } else {
    stalled.set_waiting_for("the " + std::string(Awaited(plan.scheme())) + " of layer " +
                            plan.name() + ", iteration " + std::to_string(fresh) + ",");
  }
  for (const NodeId& node : Missing(bucket, entry)) {
    wire::Node* missing = stalled.add_missing();
    missing->set_role(static_cast<uint32_t>(node.role));
    missing->set_rank(node.rank);
  }
  stalled.set_last_exchange(AwaitsTheSlowest(bucket, entry));
  return stalled;
}

bool SyncLane::AwaitsTheSlowest(int bucket, const Entry& entry) const {
  const wire::PlanAndModel& plan = context_->plan;
  const int64_t fresh = entry.syncer->fresh_iteration();
  return plan.plan().staleness() != 0 && fresh >= context_->start() &&
         fresh + 1 == plan.model().iterations() && Fetching(bucket).empty();
}

bool SyncLane::IsStalled(int bucket, const Entry& entry, Time now) const {
  if (!entry.waiting_since) return false;
  const double patience = OnlyServers(Missing(bucket, entry)) ? kPatienceWithServers : 1;
  return ToSeconds(now - *entry.waiting_since) >= patience * ToSeconds(context_->stall_deadline);
}

void SyncLane::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  const Time now = AwakeNow(outbox);
  // Who awaits the slowest may wait for nothing else but time.
  const auto rank = [this](int bucket) {
    const Entry& entry = buckets_[bucket];
    return std::pair(AwaitsTheSlowest(bucket, entry), *entry.waiting_since);
  };
  std::optional<int> first;
  for (int bucket = 0; bucket < static_cast<int>(buckets_.size()); ++bucket) {
    if (!IsStalled(bucket, buckets_[bucket], now)) continue;
    if (!first || rank(bucket) < rank(*first)) first = bucket;
  }
  outbox.SetTimer(kStallScan, ScanInterval());
  if (!first) return;
  // Again and again: the scheduler may have died before it did anything about it.
  outbox.Send(MakeEnvelope(MessageKind::kLaneStalled, Here(kControlLane),
                           StallOf(*first, buckets_[*first])));
}

}  // namespace poseidon
