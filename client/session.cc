#include "client/session.h"

#include <glog/logging.h>

#include <algorithm>

#include "client/sync/factor_broadcast_syncer.h"
#include "core/error.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "proto/job_config.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// Somebody else's deadline names the culprit better; this one is for when nobody did.
constexpr int kPatienceBeyondOthers = 2;
// How many stall deadlines all workers together may take to pause: the latest has three iterations
// before it when they agree, and worker 0 then fetches the optimizer state.
constexpr int kDeadlinesToPause = 4;
// A layer of a big net has a few events an iteration; 20 iterations of 200 layers fit.
constexpr size_t kTraceEvents = 100000;

// How often a waiting call looks for an interruption.
constexpr Duration kTick = std::chrono::milliseconds(100);

constexpr Address kScheduler{{Role::kScheduler, 0}, kControlLane};

[[noreturn]] void ThrowEnd(const wire::End& end) {
  switch (static_cast<ExitCode>(end.exit_code())) {
    case ExitCode::kPeerLost:
      throw PeerLost(end.reason());
    case ExitCode::kDeadlineExceeded:
      throw DeadlineExceeded(end.reason());
    case ExitCode::kSuccess:
      throw Error(ExitCode::kFailure, "the job ended before this worker had finished");
    default:
      throw Error(static_cast<ExitCode>(end.exit_code()), end.reason());
  }
}

wire::End ParseEnd(const Envelope& envelope) {
  wire::End end;
  CHECK(end.ParseFromString(envelope.body.ToString()));
  return end;
}

// Throws what an actor of this node has thrown.
void Check(const Envelope& envelope) {
  if (envelope.kind != MessageKind::kFailed) return;
  const wire::End end = ParseEnd(envelope);
  throw Error(static_cast<ExitCode>(end.exit_code()), end.reason());
}

}  // namespace

Session::Session(const SessionOptions& options)
    : options_(options), state_(std::make_shared<WorkerState>()) {
  const Job& job = options_.job;
  const std::string host =
      options_.host.empty() ? FindPublicHost(job.cluster().scheduler_host()) : options_.host;
  if (job.training().trace()) trace_ = std::make_unique<Trace>("worker", kTraceEvents);
  runtime_ = std::make_unique<ZmqRuntime>(NodeId{Role::kWorker, -1}, NodeZmqOptions(job, host));
  WorkerOptions worker;
  worker.member = NodeMemberOptions(job, options_.job_fingerprint, Role::kWorker,
                                    options_.wanted_rank, host, *runtime_);
  worker.stall_deadline = Seconds(job.communication().stall_deadline_seconds());
  worker.trace = trace_.get();
  worker.device = options_.device;
  worker.devices_pack = options_.devices_pack;
  worker.devices_update_factors = options_.devices_update_factors;
  worker.measure_links = MeasuresLinks(job);
  worker.workers = job.cluster().workers();
  runtime_->Attach(kControlLane, std::make_unique<WorkerControl>(std::move(worker), state_));
  runtime_->Start();

  // The control actor keeps the joining deadlines; this one only guards against its own failure.
  const Duration timeout = kPatienceBeyondOthers * (Seconds(job.cluster().join_deadline_seconds()) +
                                                    TimingOf(job).deadline);
  wire::View view;
  CHECK(view.ParseFromString(
      Await(MessageKind::kJoined, timeout, "all nodes to join").body.ToString()));
  rank_ = view.your_rank();
  epoch_ = view.epoch();
  if (trace_ != nullptr) trace_->set_process("worker " + std::to_string(rank_));
}

Session::~Session() { runtime_->Stop(); }

std::optional<Envelope> Session::NextInTick(Time deadline, const std::string& waiting_for) {
  if (options_.interrupted && options_.interrupted()) throw Interrupted();
  if (SteadyNow() >= deadline) {
    throw DeadlineExceeded("worker " + std::to_string(rank_) + " gave up waiting for " +
                           waiting_for);
  }
  std::optional<Envelope> envelope =
      runtime_->mailbox().Take(std::min(kTick, deadline - SteadyNow()));
  if (envelope) Check(*envelope);
  return envelope;
}

Envelope Session::NextOrEnd(Time deadline, const std::string& waiting_for) {
  while (true) {
    if (std::optional<Envelope> envelope = NextInTick(deadline, waiting_for))
      return std::move(*envelope);
  }
}

Envelope Session::Next(Time deadline, const std::string& waiting_for) {
  Envelope envelope = NextOrEnd(deadline, waiting_for);
  if (envelope.kind == MessageKind::kEnd) ThrowEnd(ParseEnd(envelope));
  return envelope;
}

Envelope Session::Await(MessageKind kind, Duration timeout, const std::string& waiting_for) {
  const Time deadline = SteadyNow() + timeout;
  while (true) {
    Envelope envelope = Next(deadline, waiting_for);
    if (envelope.kind == kind) return envelope;
    Handle(envelope);
  }
}

void Session::Handle(const Envelope& envelope) {
  switch (envelope.kind) {
    case MessageKind::kBucketFresh:
      progress_->Report(static_cast<int>(envelope.bucket), envelope.iteration, envelope.happened);
      exchange_.end = std::max(exchange_.end, envelope.happened);
      return;
    case MessageKind::kOptimizerState:
      return (collected_ != nullptr ? *collected_ : transition_).Receive(envelope);
    case MessageKind::kPauseRequest: {
      Envelope offer;
      offer.kind = MessageKind::kPauseOffer;
      offer.to = kScheduler;
      offer.iteration = pause_.Offer(iteration_);
      return PostToScheduler(std::move(offer));
    }
    case MessageKind::kPauseAt:
      return pause_.Agree(envelope.iteration);
    default:
      return;
  }
}

void Session::Poll() {
  while (std::optional<Envelope> envelope = runtime_->mailbox().Take({})) {
    Check(*envelope);
    if (envelope->kind == MessageKind::kEnd) ThrowEnd(ParseEnd(*envelope));
    Handle(*envelope);
  }
}

void Session::Declare(const ModelSpec& model, int64_t first_iteration) {
  Envelope declaration = MakeEnvelope(MessageKind::kDeclareModel, kScheduler, model);
  declaration.iteration = first_iteration;
  PostToScheduler(std::move(declaration));
  const Duration timeout =
      kPatienceBeyondOthers * Seconds(options_.job.cluster().join_deadline_seconds());
  Await(MessageKind::kPlan, timeout, "the plan");
  progress_ = std::make_unique<BucketProgress>(plan());
  iteration_ = plan().start_iteration();
}

std::span<float> Session::values(int layer) const {
  if (bring_) bring_(layer);
  return host_values(layer);
}

std::span<float> Session::host_values(int layer) const {
  return state_->context->memory->values(layer);
}

PackedBuffer Session::packed_gradient(int layer) const {
  return PackedBufferOf(*state_->context, layer);
}

std::vector<PackedChunk> Session::packed_chunks() const { return PackedChunksOf(*state_->context); }

std::optional<ProductUpdate> Session::product_update(int layer) const {
  return ProductUpdateOf(*state_->context, layer);
}

FactorStack Session::factors(int layer, int64_t iteration) const {
  const ModelMemory& memory = *state_->context->memory;
  return memory.bucket(memory.place(layer).bucket).stacks[iteration % 2];
}

void Session::BringAll() const {
  if (!bring_) return;
  for (int layer = 0; layer < state_->context->plan.model().layers_size(); ++layer) bring_(layer);
}

GradientBuffers Session::gradient(int layer) const {
  return GradientBuffersOf(*state_->context, layer, iteration_);
}

std::span<float> Session::state(int layer) const {
  const ModelMemory& memory = *state_->context->memory;
  const LayerPlace& place = memory.place(layer);
  const int64_t floats = OptimizerStatePerParameter(state_->context->rule);
  return memory.bucket(place.bucket)
      .optimizer_state.subspan(place.offset * floats, place.size * floats);
}

void Session::RestoreOptimizerState(std::vector<float> state) {
  transition_.LoadSnapshot(state_->context, std::move(state));
}

std::vector<float> Session::CollectOptimizerState() {
  BringAll();
  collected_ = std::make_unique<PlanTransition>();
  collected_->SaveFrom(state_->context);
  FetchOptimizerState(*collected_);
  return std::exchange(collected_, nullptr)->TakeOptimizerState();
}

void Session::FetchOptimizerState(PlanTransition& state) {
  for (const int bucket : state.BucketsToFetch())
    PostToLanes(MessageKind::kCollectOptimizerState, bucket);
  const Time deadline = SteadyNow() + StallPatience();
  while (!state.complete()) Handle(Next(deadline, "the servers' optimizer state"));
}

void Session::PostToLanes(MessageKind kind, int bucket, const Payload& body) {
  for (int lane = 0; lane < plan().lanes(); ++lane) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = Here(kFirstDataLane + lane);
    envelope.epoch = epoch_;
    envelope.iteration = iteration_;
    envelope.bucket = static_cast<uint32_t>(bucket);
    envelope.body = body;
    runtime_->Post(std::move(envelope));
  }
}

void Session::Begin() {
  Envelope ready;
  ready.kind = MessageKind::kLocalReady;
  ready.to = Here(kControlLane);
  runtime_->Post(std::move(ready));
  const Duration timeout =
      kPatienceBeyondOthers * Seconds(options_.job.cluster().join_deadline_seconds());
  Await(MessageKind::kStart, timeout, "all nodes to get ready");
  iteration_begin_ = SteadyNow();
  for (int bucket = 0; rank_ == 0 && bucket < plan().buckets_size(); ++bucket) {
    PostToLanes(MessageKind::kPublishInitial, bucket, transition_.optimizer_state(bucket));
  }
  transition_.Release();
}

void Session::GradientReady(int layer) {
  if (exchange_.iteration != iteration_) {
    CloseExchange();
    exchange_ = {iteration_, SteadyNow(), SteadyNow(), {}};
  }
  AddResidual(layer);
  for (const int bucket : progress_->LayerReady(layer, SteadyNow())) {
    PostToLanes(MessageKind::kGradientReady, bucket);
  }
}

void Session::AddResidual(int layer) {
  const std::span<float> dense = gradient(layer).dense;
  const PackedBuffer packed = packed_gradient(layer);
  if (packed.bytes.empty()) return transition_.AddResidual(layer, dense);
  if (!transition_.HasResidual(layer)) return;
  Decode(packed.codec, packed.bytes, dense);  // whose memory nobody uses
  transition_.AddResidual(layer, dense);
  Encode(packed.codec, dense, {}, packed.bytes);
}

void Session::WaitFresh(int layer) {
  if (progress_->IsFresh(layer, iteration_)) return;
  const Time begin = SteadyNow();
  const Time deadline = FreshDeadline();
  const std::string waiting_for =
      "the values of layer " + LayerName(layer) + ", iteration " + std::to_string(iteration_);
  while (!progress_->IsFresh(layer, iteration_)) Handle(Next(deadline, waiting_for));
  exchange_.exposed += SteadyNow() - begin;
  TraceSpan("wait", layer, begin);
}

bool Session::IsFresh(int layer, int64_t iteration) const {
  return progress_->IsFresh(layer, iteration);
}

void Session::WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) {
  const Time deadline = FreshDeadline();
  while (!done()) {
    const std::optional<Envelope> envelope = NextInTick(deadline, waiting_for);
    if (!envelope) continue;
    if (envelope->kind == MessageKind::kEnd) ThrowEnd(ParseEnd(*envelope));
    Handle(*envelope);
  }
}

// An envelope of no kind, which nobody handles.
void Session::Wake() { runtime_->mailbox().Put({}); }

Time Session::FreshDeadline() const {
  // With staleness the last exchange takes as long as the slowest worker has left to compute; the
  // servers notice who hangs.
  const bool awaits_the_slowest =
      plan().staleness() != 0 && iteration_ == state_->context->plan.model().iterations();
  return awaits_the_slowest ? Time::max() : SteadyNow() + StallPatience();
}

Duration Session::StallPatience() const {
  return Seconds(kPatienceBeyondOthers * options_.job.communication().stall_deadline_seconds());
}

const std::string& Session::LayerName(int layer) const {
  return state_->context->plan.model().layers(layer).name();
}

void Session::TraceSpan(const char* name, int layer, Time begin) {
  if (trace_ == nullptr) return;
  trace_->Add({name, LayerName(layer), "compute", iteration_, begin, SteadyNow()});
}

void Session::CloseExchange() {
  if (exchange_.iteration < 0) return;  // the initial values are no exchange
  // What devices stand still for ends with a copy, after the exchange between the hosts.
  const Duration took = std::max(exchange_.end - exchange_.begin, exchange_.exposed);
  last_exchange_seconds_ = ToSeconds(took);
  last_exposed_seconds_ = ToSeconds(exchange_.exposed);
  total_exchange_seconds_ += last_exchange_seconds_;
  total_exposed_seconds_ += last_exposed_seconds_;
}

bool Session::EndIteration(wire::Progress progress) {
  const bool last = iteration_ + 1 == progress.total_iterations();
  const Time now = SteadyNow();
  progress.set_exchange_seconds(last_exchange_seconds_);
  progress.set_exposed_seconds(last_exposed_seconds_);
  progress.set_iteration(iteration_);
  progress.set_iteration_seconds(ToSeconds(now - iteration_begin_));
  iteration_begin_ = now;
  PostToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress));
  ++iteration_;
  Poll();
  if (last) return false;
  const Time deadline = SteadyNow() + StallPatience();
  while (pause_.MustWait(iteration_)) {
    Handle(Next(deadline, "the iteration to pause before for another plan"));
  }
  if (!pause_.MustPause(iteration_)) return false;
  SwitchPlan();
  return true;
}

void Session::SwitchPlan() {
  for (int layer = 0; layer < state_->context->plan.model().layers_size(); ++layer) {
    WaitFresh(layer);
  }
  BringAll();
  CloseExchange();
  exchange_ = {};  // what becomes fresh from now on are initial values
  AddTraffic(*state_->context, past_plans_);
  progress_->AddTimes(past_plans_);
  transition_.SaveFrom(state_->context);
  FetchOptimizerState(transition_);
  Envelope paused;
  paused.kind = MessageKind::kPaused;
  paused.step = static_cast<uint32_t>(plan().number());
  paused.to = kScheduler;
  PostToScheduler(std::move(paused));
  Await(MessageKind::kPlan, kDeadlinesToPause * StallPatience(),
        "the other workers to pause for another plan");
  progress_ = std::make_unique<BucketProgress>(plan());
  transition_.LoadInto(state_->context);
  Begin();
}

bool Session::wants_layer_times() const {
  return options_.job.communication().policy() == Communication::TIME;
}

void Session::ReportLayerTimes(const wire::LayerTimes& times) {
  PostToScheduler(MakeEnvelope(MessageKind::kLayerTimes, kScheduler, times));
}

void Session::ReportTest(const wire::Progress& progress) {
  PostToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress));
}

void Session::PostToScheduler(Envelope envelope) {
  envelope.epoch = epoch_;
  runtime_->Post(std::move(envelope));
}

void Session::Finish(wire::WorkerReport report) {
  CloseExchange();
  wire::WorkerReport& plans = past_plans_;
  AddTraffic(*state_->context, plans);
  progress_->AddTimes(plans);
  report.mutable_buckets()->Swap(plans.mutable_buckets());
  report.mutable_peers()->Swap(plans.mutable_peers());
  report.set_dropped_frames(report.dropped_frames() + plans.dropped_frames());
  report.set_exchange_seconds(total_exchange_seconds_);
  report.set_exposed_seconds(total_exposed_seconds_);
  report.set_dropped_frames(report.dropped_frames() + runtime_->counters().malformed_frames);
  PostToScheduler(MakeEnvelope(MessageKind::kFinished, kScheduler, report));
  const Time deadline = SteadyNow() + StallPatience();
  while (true) {
    const Envelope next = NextOrEnd(deadline, "the other workers to finish");
    if (next.kind != MessageKind::kEnd) continue;
    const wire::End end = ParseEnd(next);
    if (end.exit_code() != 0) ThrowEnd(end);
    return;
  }
}

void Session::Fail(const Error& error) {
  PostToScheduler(
      MakeEnvelope(MessageKind::kFailed, kScheduler, MakeEnd(error.exit_code(), error.what())));
}

}  // namespace poseidon
