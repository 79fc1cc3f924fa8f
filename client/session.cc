#include "client/session.h"

#include <glog/logging.h>

#include "core/error.h"
#include "transport/node_setup.h"
#include "transport/program.h"

namespace poseidon {
namespace {

// Somebody else's deadline names the culprit better; this one is for when nobody did.
constexpr int kPatienceBeyondOthers = 2;
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

Time Session::Now() const {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

Envelope Session::NextOrEnd(Time deadline, const std::string& waiting_for) {
  std::optional<Envelope> envelope;
  while (!envelope) {
    if (options_.interrupted && options_.interrupted()) throw Interrupted();
    if (Now() >= deadline) {
      throw DeadlineExceeded("worker " + std::to_string(rank_) + " gave up waiting for " +
                             waiting_for);
    }
    envelope = runtime_->mailbox().Take(std::min(kTick, deadline - Now()));
  }
  if (envelope->kind == MessageKind::kFailed) {
    const wire::End end = ParseEnd(*envelope);
    throw Error(static_cast<ExitCode>(end.exit_code()), end.reason());
  }
  return std::move(*envelope);
}

Envelope Session::Next(Time deadline, const std::string& waiting_for) {
  Envelope envelope = NextOrEnd(deadline, waiting_for);
  if (envelope.kind == MessageKind::kEnd) ThrowEnd(ParseEnd(envelope));
  return envelope;
}

Envelope Session::Await(MessageKind kind, Duration timeout, const std::string& waiting_for) {
  const Time deadline = Now() + timeout;
  while (true) {
    Envelope envelope = Next(deadline, waiting_for);
    if (envelope.kind == kind) return envelope;
    Handle(envelope);
  }
}

void Session::Handle(const Envelope& envelope) {
  if (envelope.kind != MessageKind::kLayerFresh) return;
  freshness_->Report(static_cast<int>(envelope.bucket), envelope.iteration);
  exchange_.end = std::max(exchange_.end, envelope.happened);
}

void Session::Declare(const ModelSpec& model) {
  PostToScheduler(MakeEnvelope(MessageKind::kDeclareModel, kScheduler, model));
  const Duration timeout =
      kPatienceBeyondOthers * Seconds(options_.job.cluster().join_deadline_seconds());
  Await(MessageKind::kPlan, timeout, "the plan");
  freshness_ = std::make_unique<Freshness>(plan());
}

std::span<float> Session::values(int layer) const {
  return state_->context->memory->layer(layer).values;
}

GradientBuffers Session::gradient(int layer) const {
  return GradientBuffersOf(*state_->context, layer, iteration_);
}

void Session::PostToLanes(MessageKind kind, int layer) {
  for (int lane = 0; lane < plan().lanes(); ++lane) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = Here(kFirstDataLane + lane);
    envelope.epoch = epoch_;
    envelope.iteration = iteration_;
    envelope.bucket = static_cast<uint32_t>(layer);
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
  iteration_begin_ = Now();
  if (rank_ != 0) return;
  for (int layer = 0; layer < plan().layers_size(); ++layer) {
    PostToLanes(MessageKind::kPublishInitial, layer);
  }
}

void Session::GradientReady(int layer) {
  if (exchange_.iteration != iteration_) {
    CloseExchange();
    exchange_ = {iteration_, Now(), Now(), {}};
  }
  PostToLanes(MessageKind::kGradientReady, layer);
}

void Session::WaitFresh(int layer) {
  if (freshness_->IsFresh(layer, iteration_)) return;
  const Time begin = Now();
  const Time deadline = begin + Seconds(kPatienceBeyondOthers *
                                        options_.job.communication().stall_deadline_seconds());
  const std::string waiting_for = "the values of layer " + plan().layers(layer).name() +
                                  ", iteration " + std::to_string(iteration_);
  while (!freshness_->IsFresh(layer, iteration_)) Handle(Next(deadline, waiting_for));
  exchange_.exposed += Now() - begin;
  TraceSpan("wait", layer, begin);
}

void Session::TraceSpan(const char* name, int layer, Time begin) {
  if (trace_ == nullptr) return;
  trace_->Add({name, plan().layers(layer).name(), "compute", iteration_, begin, Now()});
}

void Session::CloseExchange() {
  if (exchange_.iteration < 0) return;  // the initial values are no exchange
  last_exchange_seconds_ = ToSeconds(exchange_.end - exchange_.begin);
  last_exposed_seconds_ = ToSeconds(exchange_.exposed);
  total_exchange_seconds_ += last_exchange_seconds_;
  total_exposed_seconds_ += last_exposed_seconds_;
}

void Session::EndIteration(wire::Progress progress) {
  const Time now = Now();
  progress.set_exchange_seconds(last_exchange_seconds_);
  progress.set_exposed_seconds(last_exposed_seconds_);
  progress.set_iteration(iteration_);
  progress.set_iteration_seconds(ToSeconds(now - iteration_begin_));
  iteration_begin_ = now;
  PostToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress));
  ++iteration_;
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
  AddTraffic(*state_->context, report);
  report.set_exchange_seconds(total_exchange_seconds_);
  report.set_exposed_seconds(total_exposed_seconds_);
  report.set_dropped_frames(report.dropped_frames() + runtime_->counters().malformed_frames);
  PostToScheduler(MakeEnvelope(MessageKind::kFinished, kScheduler, report));
  const Time deadline = Now() + Seconds(kPatienceBeyondOthers *
                                        options_.job.communication().stall_deadline_seconds());
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
