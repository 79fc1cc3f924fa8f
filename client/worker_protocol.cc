#include "client/worker_protocol.h"

#include <glog/logging.h>

#include <utility>

#include "client/sync/gradient_buffers.h"
#include "core/arithmetic/codec.h"
#include "core/error.h"
#include "core/text/utf8.h"
#include "proto/plan_members.h"
#include "proto/update_rule_message.h"
#include "transport/monitor/own_seconds.h"

namespace poseidon {
namespace {

constexpr Address kScheduler{{Role::kScheduler, 0}, kControlLane};

// Iterations that a worker can tell another scheduler of: a minute's of a net that takes 15 ms, in
// less than a megabyte.
constexpr size_t kMostRemembered = 4096;

Envelope SameAgain(MessageKind kind, const Payload& body) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = kScheduler;
  envelope.body = body;
  return envelope;
}

// The wire's texts are UTF-8, and so are logs and results. Files are checked when they are read;
// programs declare whatever their net has.
void CheckName(const std::string& name, const std::string& what) {
  if (!FindNotUtf8(name)) return;
  throw ConfigError("the " + what + " \"" + Printable(name) +
                    "\" is no UTF-8; give it one that is");
}

}  // namespace

void CheckModelNames(const ModelSpec& model) {
  CheckName(model.name(), "name of the model");
  for (const LayerSpec& layer : model.layers()) {
    CheckName(layer.name(), "name of the layer");
    CheckName(layer.type(), "type of the layer");
  }
}

bool WorkerProtocol::AllFresh() const {
  for (int layer = 0; layer < model().layers_size(); ++layer) {
    if (!IsFresh(layer, iteration_)) return false;
  }
  return true;
}

void WorkerProtocol::Receive(const Envelope& envelope, Outbox& outbox) {
  switch (envelope.kind) {
    case MessageKind::kJoined:
      return OnJoined(envelope, outbox);
    case MessageKind::kPlan:
      return OnPlan();
    case MessageKind::kStart:
      return OnStart(envelope, outbox);
    case MessageKind::kHold:
      return OnHold(envelope);
    case MessageKind::kBucketFresh:
      if (!IsOfPresentPlan(envelope)) return;
      return BucketFresh(static_cast<int>(envelope.bucket), envelope.iteration, envelope.happened);
    case MessageKind::kOptimizerState:
      if (!IsOfPresentPlan(envelope)) return;
      return OnOptimizerState(envelope, outbox);
    case MessageKind::kStatistics:
      if (IsOfPresentPlan(envelope)) statistics_ = envelope.body;
      return;
    case MessageKind::kPauseRequest:
      return OnPauseRequest(outbox);
    case MessageKind::kPauseAt:
      pause_.Agree(envelope.iteration);
      stops_there_ = envelope.step == kStopThere;
      if (phase_ == Phase::kAgreeing) EnterIteration();
      return;
    case MessageKind::kWriteSnapshot:
      snapshot_wanted_ = true;
      return;
    default:
      return;
  }
}

bool WorkerProtocol::IsOfPresentPlan(const Envelope& envelope) const {
  return context_ != nullptr && envelope.epoch == context_->epoch;
}

void WorkerProtocol::OnJoined(const Envelope& envelope, Outbox& outbox) {
  wire::View view;
  CHECK(view.ParseFromString(envelope.body.ToString()));
  const bool is_later = phase_ != Phase::kJoining && view.epoch() != epoch_;
  rank_ = view.your_rank();
  epoch_ = view.epoch();
  if (phase_ == Phase::kJoining) phase_ = Phase::kDeclaring;
  if (is_later) awaits_start_ = true;
  // Under a later view all say by themselves that they are ready.
  if (phase_ != Phase::kFinished || !is_later) SayAgain(outbox);
}

void WorkerProtocol::SayAgain(Outbox& outbox) const {
  if (phase_ == Phase::kFinished) return SayFinished(outbox);
  if (const auto offer = pause_.unanswered()) SayOffer(*offer, outbox);
  // In a view of other workers it is said when their training begins.
  if (leaves_ && phase_ == Phase::kTraining) SendLeave(outbox);
  if (phase_ != Phase::kPlanning) return;
  if (context_ != nullptr) return SayPaused(outbox);
  // The scheduler of this view may be another one.
  SendToScheduler(SameAgain(MessageKind::kDeclareModel, declaration_), outbox);
}

void WorkerProtocol::Declare(const ModelSpec& model, const wire::TrainingInputs& inputs,
                             Outbox& outbox) {
  CHECK(phase_ == Phase::kDeclaring);
  CheckModelNames(model);
  wire::Declaration declaration;
  declaration.set_model(model.SerializeAsString());
  *declaration.mutable_inputs() = inputs;
  Envelope envelope = MakeEnvelope(MessageKind::kDeclareModel, kScheduler, declaration);
  declaration_ = envelope.body;
  first_iteration_ = inputs.first_iteration();
  SendToScheduler(std::move(envelope), outbox);
  phase_ = Phase::kPlanning;
  if (plan_waits_) OnPlan();
}

void WorkerProtocol::OnPlan() {
  plan_waits_ = phase_ == Phase::kDeclaring;
  if (phase_ != Phase::kPlanning && phase_ != Phase::kHeld) return;
  // Of several that have come only the last counts.
  std::shared_ptr<SyncContext> next;
  while (std::shared_ptr<SyncContext> later = plans_->Take()) next = std::move(later);
  if (next == nullptr) return;
  const bool first = context_ == nullptr;
  if (!first && !left_) AddToPastPlans();
  const std::shared_ptr<SyncContext> before = std::exchange(context_, std::move(next));
  progress_.emplace(plan(), context().rule.type != "MeanGradient" && plan().local_steps() <= 1);
  if (!first) {
    TakeStart(before);
    RestoreStart();
  }
  iteration_ = plan().start_iteration();
  if (first) CheckStart();
  if (context_->kept != nullptr) context_->kept->SetAwaitsStatistics(awaits_statistics());
  declaration_ = {};
  report_ = {};
  statistics_.reset();
  while (!done_.empty() && done_.back().iteration() >= iteration_) done_.pop_back();
  left_ = false;
  phase_ = Phase::kPreparing;
}

// Somebody else may have declared under this worker's name.
void WorkerProtocol::CheckStart() const {
  const bool own = context_->publishes_start() && plan().holders().empty();
  if (!own || iteration_ == first_iteration_) return;
  throw Error(
      ExitCode::kProtocolError,
      "the plan starts at iteration " + std::to_string(iteration_) +
          ", but this worker, from which all get what it starts with, has said that it has "
          "that of iteration " +
          std::to_string(first_iteration_) +
          "; see that no other process has its rank or, if it came in a lost one's place, that "
          "it finds the same snapshot, and start the job again");
}

void WorkerProtocol::TakeStart(const std::shared_ptr<SyncContext>& before) {
  if (context_->memory != before->memory) {
    if (phase_ == Phase::kHeld) return TakeStartAfterHold(before);
    transition_.LoadInto(context_);
    const bool holds = !plan().holders().empty() && context_->publishes_start();
    if (holds && context_->kept != nullptr) context_->kept->AllArrived(plan().start_iteration());
    return;
  }
  transition_.GoBack(plan().start_iteration());
  // Before the job's first iteration only worker 0 has something, which is in its memory already.
  if (context_->publishes_start() && !plan().holders().empty()) {
    context_->kept->GoBack(plan().start_iteration());
  } else {
    context_->kept->Forget(plan().start_iteration());
  }
}

void WorkerProtocol::TakeStartAfterHold(const std::shared_ptr<SyncContext>& before) {
  if (!context_->publishes_start()) return transition_.GoBack(plan().start_iteration());
  // Where nobody has begun, what the program has filled in is all there is.
  const bool begun = !plan().holders().empty();
  // Nobody uses the memory of the plan before any more: neither a lane nor the program.
  if (begun) before->kept->GoBack(plan().start_iteration());
  // A worker that had paused there has all, and what the servers' codecs had not sent, too.
  if (iteration_ != plan().start_iteration() || !transition_.has(before)) {
    transition_.GoBack(plan().start_iteration());
    transition_.SaveFrom(before, plan().start_iteration());
  }
  transition_.LoadInto(context_);
  if (begun) context_->kept->AllArrived(plan().start_iteration());
}

void WorkerProtocol::RestoreStart() {
  if (restored_.empty() || !plan().holders().empty() || !context_->publishes_start()) return;
  transition_.LoadSnapshot(context_, restored_);
}

void WorkerProtocol::OnHold(const Envelope& envelope) {
  // It is about a plan that the program has not taken, or has gone on from.
  if (context_ == nullptr || envelope.iteration < plan().number()) return;
  pause_ = {};
  stops_there_ = stops_ = false;  // the scheduler asks again
  collected_.reset();
  phase_ = Phase::kHeld;
}

void WorkerProtocol::RestoreOptimizerState(std::vector<float> state) {
  if (context_->kept != nullptr) restored_ = state;
  transition_.LoadSnapshot(context_, std::move(state));
}

void WorkerProtocol::Begin(Outbox& outbox) {
  CHECK(phase_ == Phase::kPreparing);
  SayReady(outbox);
  phase_ = Phase::kStarting;
}

void WorkerProtocol::SayReady(Outbox& outbox) const {
  Envelope ready;
  ready.kind = MessageKind::kLocalReady;
  ready.step = static_cast<uint32_t>(plan().number());
  ready.to = Here(kControlLane);
  outbox.Send(std::move(ready));
}

void WorkerProtocol::OnStart(const Envelope& envelope, Outbox& outbox) {
  if (context_ == nullptr || envelope.step != static_cast<uint32_t>(plan().number())) return;
  awaits_start_ = false;
  ReportAgain(envelope.iteration, outbox);
  if (leaves_) SendLeave(outbox);  // it may be another scheduler
  if (phase_ != Phase::kStarting) return;
  for (int bucket = 0; context_->publishes_start() && bucket < plan().buckets_size(); ++bucket) {
    PostToLanes(MessageKind::kPublishInitial, bucket, iteration_,
                transition_.optimizer_state(bucket), outbox);
  }
  transition_.Release();
  phase_ = Phase::kTraining;
}

void WorkerProtocol::ReportAgain(int64_t from, Outbox& outbox) const {
  for (const wire::Progress& progress : done_) {
    if (progress.iteration() < from) continue;
    SendToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress), outbox);
  }
  if (phase_ == Phase::kFinished) SayFinished(outbox);
}

void WorkerProtocol::SayFinished(Outbox& outbox) const {
  // What it did comes first, and with the start: once all have finished, the scheduler hears nobody
  // any more. It may have started the others already, and what it sent to this worker may be lost.
  if (awaits_start_) return SayReady(outbox);
  SendToScheduler(SameAgain(MessageKind::kFinished, report_), outbox);
}

void WorkerProtocol::BucketFresh(int bucket, int64_t iteration, Time happened) {
  progress_->Report(bucket, iteration, happened);
}

void WorkerProtocol::GradientReady(int layer, int64_t iteration, Time now, Outbox& outbox) {
  TookStatistics();
  AddResidual(layer, iteration);
  for (const int bucket : progress_->LayerReady(layer, now)) {
    Envelope ready;
    ready.kind = MessageKind::kGradientReady;
    ready.iteration = iteration;
    ready.bucket = static_cast<uint32_t>(bucket);
    ready.settings = SettingsOf(bucket);
    PostToLanes(std::move(ready), outbox);
  }
}

Payload WorkerProtocol::SettingsOf(int bucket) const {
  if (!IsTorchType(context_->rule.type)) return {};
  std::vector<ParameterGroup> groups;
  for (const int group : GroupsOf(model(), context_->bucket(bucket))) {
    groups.push_back(groups_.at(group));
  }
  return Payload::FromString(PackSettings(groups));
}

void WorkerProtocol::AddResidual(int layer, int64_t iteration) {
  if (!transition_.HasResidual(layer)) return;
  const std::span<float> dense = GradientBuffersOf(*context_, layer, iteration).dense;
  const PackedGradient packed = PackedGradientOf(*context_, layer);
  if (packed.bytes.empty()) return transition_.AddResidual(layer, iteration, dense);
  Decode(packed.codec, packed.bytes, dense);  // whose memory nobody uses
  transition_.AddResidual(layer, iteration, dense);
  Encode(packed.codec, dense, {}, packed.bytes);
}

void WorkerProtocol::OnPauseRequest(Outbox& outbox) {
  if (phase_ != Phase::kFinished) SayOffer(pause_.Offer(iteration_), outbox);
}

void WorkerProtocol::SayOffer(int64_t iteration, Outbox& outbox) const {
  Envelope offer;
  offer.kind = MessageKind::kPauseOffer;
  offer.to = kScheduler;
  offer.iteration = iteration;
  SendToScheduler(std::move(offer), outbox);
}

void WorkerProtocol::EndIteration(wire::Progress progress, Outbox& outbox) {
  CHECK(phase_ == Phase::kTraining) << "an iteration ends while another plan is awaited";
  progress.set_iteration(iteration_);
  // Where the program does not say how many samples an iteration has, all have equally many.
  const int64_t samples = model().batch() > 0 ? progress.images() : 1;
  spread_.Add(ComputeSeconds(progress), samples);
  SendToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress), outbox);
  if (context_->kept != nullptr) {
    // Of no use later, and large; a copy of what was cleared has none of its memory.
    progress.clear_timeline();
    done_.push_back(progress);
    if (done_.size() > kMostRemembered) done_.pop_front();
  }
  ++iteration_;
  // Whoever is slowest may lack values of the iteration that is done here, and with it all go back
  // to the one before.
  transition_.Forget(iteration_ - 2);
  restored_ = {};
  // After the last iteration nobody pauses.
  if (iteration_ != progress.total_iterations()) EnterIteration();
}

void WorkerProtocol::EnterIteration() {
  if (pause_.MustWait(iteration_)) {
    phase_ = Phase::kAgreeing;
  } else {
    stops_ = stops_there_ && pause_.MustPause(iteration_);
    phase_ = pause_.MustPause(iteration_) && !stops_ ? Phase::kPausing : Phase::kTraining;
  }
}

void WorkerProtocol::LeavePlan(Outbox& outbox) {
  CHECK(phase_ == Phase::kPausing && AllFresh());
  AddToPastPlans();
  left_ = true;
  transition_.SaveFrom(context_, iteration_);
  FetchOptimizerState(transition_, outbox);
  phase_ = Phase::kFetching;
  TryPause(outbox);
}

void WorkerProtocol::FetchOptimizerState(const PlanTransition& transition, Outbox& outbox) const {
  for (const int bucket : transition.BucketsToFetch()) {
    PostToLanes(MessageKind::kCollectOptimizerState, bucket, iteration_, {}, outbox);
  }
}

void WorkerProtocol::OnOptimizerState(const Envelope& envelope, Outbox& outbox) {
  if (collected_ != nullptr) return collected_->Receive(envelope);
  // A hold ends a collection, of which a lane may have passed on a part just before it heard.
  if (!transition_.awaits(context_)) return;
  transition_.Receive(envelope);
  TryPause(outbox);
}

void WorkerProtocol::TryPause(Outbox& outbox) {
  if (phase_ != Phase::kFetching || !transition_.complete()) return;
  SayPaused(outbox);
  phase_ = Phase::kPlanning;
}

void WorkerProtocol::SayPaused(Outbox& outbox) const {
  Envelope paused;
  paused.kind = MessageKind::kPaused;
  paused.step = static_cast<uint32_t>(plan().number());
  paused.to = kScheduler;
  SendToScheduler(std::move(paused), outbox);
}

void WorkerProtocol::BeginCollecting(Outbox& outbox) {
  collected_ = std::make_unique<PlanTransition>();
  collected_->SaveFrom(context_, iteration_);
  FetchOptimizerState(*collected_, outbox);
}

std::vector<float> WorkerProtocol::TakeCollected() {
  return std::exchange(collected_, nullptr)->TakeOptimizerState();
}

void WorkerProtocol::AddToPastPlans() {
  AddTraffic(*context_, past_plans_);
  progress_->AddTimes(past_plans_);
}

void WorkerProtocol::Leave(Outbox& outbox) {
  leaves_ = true;
  // Before there is a plan nobody can leave; it is said again when the training begins.
  if (context_ != nullptr) SendLeave(outbox);
}

void WorkerProtocol::SendLeave(Outbox& outbox) const {
  Envelope leave;
  leave.kind = MessageKind::kLeave;
  leave.to = kScheduler;
  SendToScheduler(std::move(leave), outbox);
}

void WorkerProtocol::Finish(wire::WorkerReport report, Outbox& outbox) {
  TookStatistics();  // it may have come when nothing was left to compute
  AddToPastPlans();
  left_ = true;
  *report.mutable_buckets() = past_plans_.buckets();
  *report.mutable_peers() = past_plans_.peers();
  report.set_dropped_frames(report.dropped_frames() + past_plans_.dropped_frames());
  if (const auto pace = spread_.Pace()) *report.mutable_pace() = *pace;
  report_ = Payload::FromString(report.SerializeAsString());
  SayFinished(outbox);
  phase_ = Phase::kFinished;
}

bool WorkerProtocol::sends_statistics() const {
  const auto& holders = plan().holders();
  return !holders.empty() && holders[0] == context_->place;
}

bool WorkerProtocol::awaits_statistics() const {
  return !plan().holders().empty() && !context_->publishes_start();
}

void WorkerProtocol::SendStatistics(std::span<const float> statistics, Outbox& outbox) const {
  const std::span<const std::byte> bytes = std::as_bytes(statistics);
  const Payload body =
      Payload::FromString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  for (const int place : PlacesBesideHolders(plan())) {
    outbox.Send(context_->MakeFrame(MessageKind::kStatistics, context_->Worker(place), /*lane=*/0,
                                    /*bucket=*/0, /*chunk=*/0, iteration_, body));
  }
}

void WorkerProtocol::TookStatistics() {
  if (context_->kept != nullptr) context_->kept->SetAwaitsStatistics(false);
}

void WorkerProtocol::SendToScheduler(Envelope envelope, Outbox& outbox) const {
  envelope.epoch = epoch_;
  outbox.Send(std::move(envelope));
}

void WorkerProtocol::PostToLanes(MessageKind kind, int bucket, int64_t iteration,
                                 const Payload& body, Outbox& outbox) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.iteration = iteration;
  envelope.bucket = static_cast<uint32_t>(bucket);
  envelope.body = body;
  PostToLanes(std::move(envelope), outbox);
}

void WorkerProtocol::PostToLanes(Envelope envelope, Outbox& outbox) const {
  envelope.epoch = context_->epoch;
  for (int lane = 0; lane < plan().lanes(); ++lane) {
    envelope.to = Here(kFirstDataLane + lane);
    outbox.Send(envelope);
  }
}

}  // namespace poseidon
