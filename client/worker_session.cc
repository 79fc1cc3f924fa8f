#include "client/worker_session.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "client/staging/exchange_buckets.h"
#include "client/sync/dense_update.h"
#include "client/sync/factor_broadcast_syncer.h"
#include "client/sync/gradient_buffers.h"
#include "client/worker_control.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "proto/job_config.h"
#include "proto/model_size.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

using Phase = WorkerProtocol::Phase;

// A layer of a big net has a few events an iteration; 20 iterations of 200 layers fit.
constexpr size_t kTraceEvents = 100000;

// Where it is not known, or there are several, that are waited for.
constexpr int kAnyLayer = -1;

// How often a waiting call looks for an interruption.
constexpr Duration kTick = std::chrono::milliseconds(100);

constexpr Address kScheduler{{Role::kScheduler, 0}, kControlLane};

wire::End ParseEnd(const Envelope& envelope) {
  wire::End end;
  CHECK(end.ParseFromString(envelope.body.ToString()));
  return end;
}

// Whoever takes a lost one's place may have read other files than the others did: buffers are of
// the size that they train.
void CheckSizes(const ModelSpec& own, const ModelSpec& planned) {
  const auto same = [](const LayerSpec& a, const LayerSpec& b) {
    return FloatCount(a) == FloatCount(b);
  };
  if (std::equal(own.layers().begin(), own.layers().end(), planned.layers().begin(),
                 planned.layers().end(), same)) {
    return;
  }
  throw ConfigError(
      "this worker's model has layers of other sizes than the one that the job trains; every "
      "worker must read the same net and solver files");
}

}  // namespace

// The port that devices use: the protocol's buffers, and the session's ways to wait.
class WorkerSession::Exchange : public LayerExchange {
 public:
  explicit Exchange(WorkerSession& session) : session_(session), protocol_(session.protocol_) {}

  int64_t iteration() const override { return protocol_.iteration(); }
  const std::string& LayerName(int layer) const override {
    return protocol_.model().layers(layer).name();
  }
  std::vector<Bucket> buckets() const override { return ExchangeBuckets(protocol_.context()); }
  Buffers buffers(int layer) const override {
    const bool mean = protocol_.context().rule.type == "MeanGradient";
    return {mean ? session_.optimizer_state(layer) : session_.values(layer),
            session_.gradient(layer), protocol_.context().memory};
  }
  void GradientReady(int layer) override { session_.GradientReady(layer); }
  bool IsFresh(int layer, int64_t iteration) const override {
    return protocol_.IsFresh(layer, iteration);
  }
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) override {
    session_.WaitUntil(done, waiting_for);
  }
  // An envelope of no kind, which nobody handles.
  void Wake() override { session_.runtime_->mailbox().Put({}); }
  std::optional<ProductUpdate> product_update(int layer) const override {
    return ProductUpdateOf(protocol_.context(), layer);
  }
  FactorStack factors(int layer, int64_t iteration) const override {
    const ModelMemory& memory = *protocol_.context().memory;
    return memory.bucket(memory.place(layer).bucket).stacks[iteration % 2];
  }
  std::optional<DenseUpdate> dense_update(int layer) const override {
    return DenseUpdateOf(protocol_.context(), layer);
  }
  bool gradient_stays(int layer) const override {
    // What an earlier plan has not sent is added on the host.
    return IsAlone(protocol_.context(), layer) && !protocol_.HasResidual(layer);
  }
  std::span<float> reduced_gradient(int layer, int64_t iteration) const override {
    return protocol_.context().memory->gradient(layer, iteration);
  }
  std::span<float> optimizer_state(int layer) const override {
    return session_.optimizer_state(layer);
  }
  PackedGradient packed_gradient(int layer) const override {
    return PackedGradientOf(protocol_.context(), layer);
  }
  std::vector<PackedChunk> packed_chunks() const override {
    return PackedChunksOf(protocol_.context());
  }
  void AddExposed(Duration stood_still) override {
    session_.exchange_times_.AddExposed(stood_still);
  }
  Trace* trace() override { return session_.trace(); }

 private:
  WorkerSession& session_;
  const WorkerProtocol& protocol_;
};

WorkerSession::WorkerSession(const WorkerSessionOptions& options)
    : WorkerSession(options, std::make_shared<PlanHandover>()) {}

WorkerSession::WorkerSession(const WorkerSessionOptions& options,
                             const std::shared_ptr<PlanHandover>& plans)
    : options_(options),
      patience_(options.job),
      protocol_(plans),
      exchange_(std::make_unique<Exchange>(*this)) {
  const Job& job = options_.job;
  if (job.recovery().mode() != Recovery::NONE && !options_.goes_back) {
    throw ConfigError(
        "recovery.mode: this program can't go back to an earlier iteration, as recovery asks for; "
        "leave recovery out, and let `poseidon run --restarts=N` start the job again; the program "
        "itself has to find its newest checkpoint then");
  }
  if (job.training().batch() == Training::BALANCED && !options_.shares_batch) {
    throw ConfigError(
        "training.batch: this program reads its data itself, so nobody can give it another part of "
        "the batch, as BALANCED asks for; leave training.batch out");
  }
  if (job.communication().local_steps() > 1 && !options_.trains_locally) {
    throw ConfigError(
        "communication.local_steps: this program exchanges gradients in every step; use 1, or a "
        "program of your own with poseidon_torch.DiLoCo");
  }
  AwaitSchedulerName(job.cluster(), [this] {
    if (options_.interrupted && options_.interrupted()) throw Interrupted();
  });
  const std::string host =
      options_.host.empty() ? FindPublicHost(job.cluster().scheduler_host()) : options_.host;
  if (job.has_monitor()) timeline_.emplace();
  if (job.training().trace()) trace_ = std::make_unique<Trace>("worker", kTraceEvents);
  const ZmqOptions sockets = NodeZmqOptions(job, host);
  ClaimFilesOf(job, sockets.data_lanes);
  runtime_ = std::make_unique<ZmqRuntime>(NodeId{Role::kWorker, -1}, sockets);
  WorkerOptions worker;
  worker.member = NodeMemberOptions(job, options_.job_fingerprint, Role::kWorker,
                                    options_.wanted_rank, host, *runtime_);
  if (options_.incarnation != 0) worker.member.incarnation = options_.incarnation;
  worker.member.replaces = options_.replaces;
  worker.recovers = worker.member.scheduler_deadline.has_value();
  worker.stall_deadline = StallDeadline(job);
  worker.trace = trace_.get();
  worker.allocate = options_.allocate;
  worker.devices_pack = options_.devices_pack;
  worker.devices_update = options_.devices_update;
  worker.measured_distances = MeasuredDistances(job);
  worker.workers = job.cluster().workers();
  runtime_->Attach(kControlLane, std::make_unique<WorkerControl>(std::move(worker), plans));
  events_ =
      std::make_shared<EventWriter>(*runtime_, host, options_.trace_directory, options_.job_failed);
  runtime_->Observe([events = events_](const Envelope& envelope) { events->Observe(envelope); });
  runtime_->Note(Activity::kPreparing, 0);
  runtime_->Start();

  AwaitEndOf(Phase::kJoining, patience_.ForAllToJoin(), "all nodes to join");
  if (trace_ != nullptr) trace_->set_process("worker " + std::to_string(rank()));
}

LayerExchange& WorkerSession::exchange() { return *exchange_; }

WorkerSession::~WorkerSession() {
  if (!finished_) events_->Write(ExitCode::kFailure, "the program has left the job before its end");
  runtime_->Stop();
}

void WorkerSession::Note(Activity activity) { runtime_->Note(activity, iteration()); }

void WorkerSession::NoteWait(int layer) { runtime_->Note(Activity::kWaiting, iteration(), layer); }

template <typename Call>
void WorkerSession::Do(const Call& call) {
  outbox_.now = SteadyNow();
  call(outbox_);
  for (Envelope& envelope : outbox_.messages) runtime_->Post(std::move(envelope));
  outbox_.Clear();
}

std::optional<Envelope> WorkerSession::NextInTick(Time deadline, const std::string& waiting_for) {
  if (options_.interrupted && options_.interrupted()) throw Interrupted();
  TryLeave();
  const Time begin = SteadyNow();
  const Duration left = std::max(Duration::zero(), deadline - clock_.At(begin));
  std::optional<Envelope> envelope = runtime_->mailbox().Take(std::min(kTick, left));
  clock_.Took(SteadyNow() - begin, kTick);
  if (!envelope && left == Duration::zero()) {
    throw DeadlineExceeded("worker " + std::to_string(rank()) + " gave up waiting for " +
                           waiting_for);
  }
  if (envelope && envelope->kind == MessageKind::kFailed) {
    const wire::End end = ParseEnd(*envelope);  // what an actor of this node has thrown
    ThrowAs(static_cast<ExitCode>(end.exit_code()), end.reason());
  }
  return envelope;
}

Envelope WorkerSession::NextOrEnd(Time deadline, const std::string& waiting_for) {
  std::optional<Envelope> envelope;
  while (!envelope) envelope = NextInTick(deadline, waiting_for);
  return std::move(*envelope);
}

Envelope WorkerSession::Next(Time deadline, const std::string& waiting_for) {
  Envelope envelope = NextOrEnd(deadline, waiting_for);
  if (envelope.kind == MessageKind::kEnd) ThrowEnd(envelope);
  return envelope;
}

void WorkerSession::Handle(const Envelope& envelope, bool knows) {
  if (envelope.kind == MessageKind::kBucketFresh) exchange_times_.Fresh(envelope.happened);
  Do([&](Outbox& outbox) { protocol_.Receive(envelope, outbox); });
  if (protocol_.phase() == Phase::kHeld && !going_back_ && !knows) {
    rewound_ = true;
    throw Rewound();
  }
}

void WorkerSession::ThrowEnd(const Envelope& envelope) {
  const wire::End end = ParseEnd(envelope);
  if (end.left()) {
    finished_ = true;
    throw Left("this worker " + end.reason());
  }
  if (end.exit_code() == 0) {
    throw Error(ExitCode::kFailure, "the job ended before this worker had finished");
  }
  ThrowAs(static_cast<ExitCode>(end.exit_code()), end.reason());
}

void WorkerSession::TryLeave() {
  if (!options_.wants_to_leave || !options_.wants_to_leave()) return;
  // All others would pause to take it in, and again to let it go.
  if (protocol_.phase() == Phase::kJoining) throw Interrupted();
  Do([&](Outbox& outbox) { protocol_.Leave(outbox); });
}

void WorkerSession::Poll() {
  TryLeave();
  while (std::optional<Envelope> envelope = runtime_->mailbox().Take({})) {
    if (envelope->kind == MessageKind::kFailed || envelope->kind == MessageKind::kEnd) {
      ThrowEnd(*envelope);
    }
    Handle(*envelope);
  }
}

void WorkerSession::HandleWhile(const std::function<bool()>& waiting, Time deadline,
                                const std::string& waiting_for) {
  while (waiting()) Handle(Next(deadline, waiting_for));
}

void WorkerSession::AwaitEndOf(Phase phase, Duration timeout, const std::string& waiting_for) {
  HandleWhile([&] { return protocol_.phase() == phase; }, DeadlineIn(timeout), waiting_for);
}

void WorkerSession::WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) {
  // Whoever goes back is given up by the scheduler before that.
  const Time deadline = rewound_ ? DeadlineIn(patience_.Recovery()) : FreshDeadline(iteration());
  if (done()) return;
  NoteWait(kAnyLayer);
  while (!done()) {
    const std::optional<Envelope> envelope = NextInTick(deadline, waiting_for);
    if (!envelope) continue;
    if (envelope->kind == MessageKind::kEnd) ThrowEnd(*envelope);
    Handle(*envelope, /*knows=*/rewound_);
  }
  Note(Activity::kComputing);
}

Time WorkerSession::FreshDeadline(int64_t of) const {
  // With staleness the last exchange takes as long as the slowest worker has left to compute;
  // servers notice who hangs, and the scheduler when all workers wait.
  const bool awaits_the_slowest = plan().staleness() != 0 && of == protocol_.model().iterations();
  return awaits_the_slowest ? Time::max() : DeadlineIn(patience_.Stall());
}

void WorkerSession::Declare(const ModelSpec& model, const wire::TrainingInputs& inputs) {
  Do([&](Outbox& outbox) { protocol_.Declare(model, inputs, outbox); });
  AwaitEndOf(Phase::kPlanning, patience_.Join(), "the plan");
  CheckSizes(model, protocol_.model());
}

std::span<float> WorkerSession::values(int layer) const {
  return protocol_.context().memory->values(layer);
}

GradientBuffers WorkerSession::gradient(int layer) const {
  return GradientBuffersOf(protocol_.context(), layer, iteration());
}

std::span<float> WorkerSession::optimizer_state(int layer) const {
  const SyncContext& context = protocol_.context();
  const LayerPlace& place = context.memory->place(layer);
  const int64_t floats = OptimizerStatePerParameter(context.rule);
  return context.memory->bucket(place.bucket)
      .optimizer_state[iteration() % 2]
      .subspan(place.offset * floats, place.size * floats);
}

void WorkerSession::RestoreOptimizerState(std::vector<float> state) {
  protocol_.RestoreOptimizerState(std::move(state));
}

std::vector<float> WorkerSession::CollectOptimizerState() {
  Do([&](Outbox& outbox) { protocol_.BeginCollecting(outbox); });
  HandleWhile([&] { return protocol_.collecting(); }, DeadlineIn(patience_.Stall()),
              "the servers' optimizer state");
  return protocol_.TakeCollected();
}

void WorkerSession::Begin() {
  Do([&](Outbox& outbox) { protocol_.Begin(outbox); });
  AwaitEndOf(Phase::kStarting, patience_.Join(), "all nodes to get ready");
  BeginIterations();
}

void WorkerSession::BeginIterations() {
  events_->SetNames(LayerNames(protocol_.model()), BucketNames(plan()));
  Note(Activity::kComputing);
  shown_iteration_ = iteration();
  iteration_begin_ = SteadyNow();
}

void WorkerSession::GoBack() {
  exchange_times_.Close();
  going_back_ = true;
  const Duration patience = patience_.Recovery();
  // Another node may be lost on the way: then everything begins anew.
  while (protocol_.phase() != Phase::kTraining) {
    AwaitEndOf(Phase::kHeld, patience, "the lost nodes' places to be taken");
    if (protocol_.phase() == Phase::kPreparing) {
      Do([&](Outbox& outbox) { protocol_.Begin(outbox); });
    }
    AwaitEndOf(Phase::kStarting, patience, "all nodes to get ready");
  }
  going_back_ = rewound_ = false;
  BeginIterations();
}

void WorkerSession::SendStatistics(std::span<const float> statistics) {
  Do([&](Outbox& outbox) { protocol_.SendStatistics(statistics, outbox); });
}

std::vector<float> WorkerSession::AwaitStatistics(size_t floats) {
  HandleWhile([&] { return !protocol_.statistics(); }, DeadlineIn(patience_.Stall()),
              "another worker's statistics");
  const std::span<const std::byte> bytes = protocol_.statistics()->bytes();
  if (bytes.size() != floats * sizeof(float)) {
    throw Error(ExitCode::kProtocolError,
                "another worker's net has statistics of " + std::to_string(bytes.size()) +
                    " bytes, this worker's of " + std::to_string(floats * sizeof(float)) +
                    "; every worker must read the same net");
  }
  std::vector<float> statistics(floats);
  std::memcpy(statistics.data(), bytes.data(), bytes.size());
  return statistics;
}

void WorkerSession::GradientReady(int layer) {
  if (options_.goes_back) Poll();
  exchange_times_.GradientReady(iteration(), SteadyNow());
  Do([&](Outbox& outbox) { protocol_.GradientReady(layer, iteration(), outbox.now, outbox); });
}

std::vector<int> WorkerSession::layers_sent_with(int layer) const {
  const BucketPlan& bucket = plan().buckets(protocol_.progress().bucket(layer));
  std::vector<int> layers(bucket.layer_count());
  std::iota(layers.begin(), layers.end(), bucket.first_layer());
  return layers;
}

void WorkerSession::WaitFresh(int layer, int64_t of) {
  if (protocol_.IsFresh(layer, of)) return;
  const Time begin = SteadyNow();
  NoteWait(layer);
  HandleWhile(
      [&] { return !protocol_.IsFresh(layer, of); }, FreshDeadline(of),
      "the values of layer " + exchange_->LayerName(layer) + ", iteration " + std::to_string(of));
  const Time end = SteadyNow();
  exchange_times_.AddExposed(end - begin);
  if (timeline_) timeline_->Wait(layer, begin, end);
  TraceSpan("wait", layer, begin);
  Note(Activity::kComputing);
}

void WorkerSession::TraceSpan(const char* name, int layer, Time begin) {
  if (trace_ == nullptr) return;
  trace_->Add({name, exchange_->LayerName(layer), "compute", iteration(), begin, SteadyNow()});
}

bool WorkerSession::EndIteration(wire::Progress progress) {
  const Time now = SteadyNow();
  progress.set_exchange_seconds(ToSeconds(exchange_times_.last().exchange));
  progress.set_exposed_seconds(ToSeconds(exchange_times_.last().exposed));
  progress.set_iteration_seconds(ToSeconds(now - iteration_begin_));
  if (timeline_) {
    std::optional<wire::IterationTimeline> timeline = timeline_->EndIteration(
        {iteration(), iteration_begin_, now}, plan().number(), protocol_.progress());
    if (timeline) *progress.mutable_timeline() = std::move(*timeline);
  }
  iteration_begin_ = now;
  Do([&](Outbox& outbox) { protocol_.EndIteration(std::move(progress), outbox); });
  Note(Activity::kComputing);
  shown_iteration_ = iteration();
  Poll();
  AwaitEndOf(Phase::kAgreeing, patience_.Stall(), "the iteration to pause before for another plan");
  if (protocol_.stops() && !options_.stops) throw Interrupted();
  if (protocol_.phase() != Phase::kPausing) return false;
  for (int layer = 0; layer < protocol_.model().layers_size(); ++layer) WaitFresh(layer);
  return true;
}

void WorkerSession::ChangePlan() {
  exchange_times_.Close();  // what becomes fresh from now on are initial values
  Do([&](Outbox& outbox) { protocol_.LeavePlan(outbox); });
  AwaitEndOf(Phase::kFetching, patience_.Stall(), "the servers' optimizer state");
  AwaitEndOf(Phase::kPlanning, patience_.Pause(), "the other workers to pause for another plan");
  Begin();
}

bool WorkerSession::wants_layer_times() const {
  return options_.job.communication().policy() == Communication::TIME;
}

void WorkerSession::ReportLayerTimes(const wire::LayerTimes& times) {
  Do([&](Outbox& outbox) {
    protocol_.SendToScheduler(MakeEnvelope(MessageKind::kLayerTimes, kScheduler, times), outbox);
  });
}

void WorkerSession::Notify(const std::string& text) {
  wire::Notice notice;
  notice.set_text(text);
  Do([&](Outbox& outbox) {
    protocol_.SendToScheduler(MakeEnvelope(MessageKind::kNotice, kScheduler, notice), outbox);
  });
}

void WorkerSession::ReportTest(const wire::Progress& progress) {
  Do([&](Outbox& outbox) {
    protocol_.SendToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress), outbox);
  });
}

void WorkerSession::Finish(wire::WorkerReport report) {
  exchange_times_.Close();
  report.set_exchange_seconds(ToSeconds(exchange_times_.total().exchange));
  report.set_exposed_seconds(ToSeconds(exchange_times_.total().exposed));
  report.set_dropped_frames(report.dropped_frames() + runtime_->counters().malformed_frames);
  Note(Activity::kFinishing);
  Do([&](Outbox& outbox) { protocol_.Finish(std::move(report), outbox); });
  const Time deadline = DeadlineIn(patience_.Stall());
  const auto next = [&] { return NextOrEnd(deadline, "the other workers to finish"); };
  Envelope last = next();
  for (; last.kind != MessageKind::kEnd; last = next()) Handle(last);
  if (ParseEnd(last).exit_code() != 0) ThrowEnd(last);
  finished_ = true;
  WriteTrace();
}

void WorkerSession::WriteTrace() const {
  if (trace_ == nullptr || options_.trace_directory.empty()) return;
  events_->Write(ExitCode::kSuccess, "");
  events_->WriteTrace(*trace_, "worker-" + std::to_string(rank()));
}

void WorkerSession::Fail(const Error& error) {
  if (finished_) return;  // Left is an Error, too, and nothing to tell anybody
  wire::End end = MakeEnd(error.exit_code(), error.what());
  end.set_left(protocol_.leaves());
  Do([&](Outbox& outbox) {
    protocol_.SendToScheduler(MakeEnvelope(MessageKind::kFailed, kScheduler, end), outbox);
  });
  GiveUp(error);
}

}  // namespace poseidon
