// Session: what a training program holds to take part in a job. GradientReady and WaitFresh are the
// whole contract during training.
//
//   Session session(options);               // joins; blocks until all nodes are there
//   session.Declare(model);                 // returns when the plan and all buffers are there
//   ... make the engine use session.values(l); on worker 0 fill them, from a snapshot perhaps ...
//   session.Begin();                        // all nodes are ready; worker 0's values go out
//   for each iteration:
//     for each layer l, ascending:   session.WaitFresh(l);  forward of l
//     for each layer l, descending:  backward of l into session.gradient(l);
//     session.GradientReady(l)
//     if (session.EndIteration(progress)) ... use session.values(l) anew
//   for each layer l: session.WaitFresh(l);
//   session.Finish(report);                 // returns when all workers have finished
//
// WaitFresh(l) returns when the layer has the parameters for the current iteration's forward pass;
// values(l) may be read from then until GradientReady(l), and gradient(l) written. Between
// GradientReady(l) and the next WaitFresh(l) the buffers belong to the lanes. Layers that the plan
// has put into one bucket are sent together, when the last of them is ready.
//
// At the end of an iteration the whole job may go over to another plan, and values and gradients to
// other memory.
//
// If the model's update rule is deferred (core/arithmetic/update_rule.h), WaitFresh(l) in iteration
// t + 1 says that the mean gradient of iteration t is in state(l), and nobody has changed the
// values: the program makes the update before it goes on. Between GradientReady(l) and WaitFresh(l)
// the state belongs to the lanes, too.
//
// Thread safety: one thread, the training thread; Wake any. Every call that waits has a deadline
// and throws an Error that names the cause: PeerLost, DeadlineExceeded, or what the scheduler said.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/bucket_progress.h"
#include "client/sync/gradient_buffers.h"
#include "client/sync/plan_transition.h"
#include "client/worker_control.h"
#include "core/trace.h"
#include "device/device.h"
#include "device/factor_update.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

struct SessionOptions {
  Job job;                       // checked (proto/job_config.h)
  uint64_t job_fingerprint = 0;  // of the config file
  int wanted_rank = -1;          // -1: whichever is free
  std::string host;              // that other nodes reach this one at; empty: found out
  // Asked a few times a second while a call waits; if true, the call throws Interrupted(). May be
  // empty.
  std::function<bool()> interrupted;
  // Whose copies all buffers are pinned for; outlives the session. May be null.
  Device* device = nullptr;
  // Layers under SFB are updated by the program's devices, through DeviceStaging
  // (client/staging/factor_staging.h): all devices of all workers do it, or none, and their
  // arithmetic has the same bits. Not those of a deferred rule other than MeanGradient.
  bool devices_update_factors = false;
  // Gradients that go to servers in a codec are packed by the program's devices, through
  // DeviceStaging (client/staging/pack_staging.h, client/staging/feedback_staging.h).
  bool devices_pack = false;
};

class Session {
 public:
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int workers() const { return options_.job.cluster().workers(); }

  // `first_iteration`: of the training, not 0 if it goes on from a snapshot; only worker 0's
  // counts.
  void Declare(const ModelSpec& model, int64_t first_iteration = 0);
  const Plan& plan() const { return state_->context->plan.plan(); }
  // With devices_update_factors they may have to come from a device first; that waits as WaitFresh
  // does.
  std::span<float> values(int layer) const;
  // For the current iteration.
  GradientBuffers gradient(int layer) const;
  // Deferred rules: the layer's optimizer state with its mean gradient,
  // OptimizerStatePerParameter(rule) floats a parameter.
  std::span<float> state(int layer) const;
  // Of a rule of type MeanGradient, whose state is nothing else. Where the scheme and the number of
  // workers allow it, it is the memory of gradient(layer), which then never changes within a plan;
  // the program may write over it until the next GradientReady, its own or with the next gradient.
  std::span<const float> mean_gradient(int layer) const { return state(layer); }

  // Worker 0, before Begin, if training goes on from a snapshot: the optimizer state of all
  // parameters in the model's order, OptimizerStatePerParameter(rule) floats for each.
  void RestoreOptimizerState(std::vector<float> state);
  // Worker 0, when all layers are fresh and before its first GradientReady of the iteration: the
  // same, as it is now; fetched from the servers where they keep it.
  std::vector<float> CollectOptimizerState();

  void Begin();
  void GradientReady(int layer);
  void WaitFresh(int layer);

  // For gradients and parameters that go to a device and back between the two
  // (client/staging/session_exchange.h). Whether the layer may be used in the forward pass of
  // `iteration`:
  bool IsFresh(int layer, int64_t iteration) const;
  // Handles what comes until done() says so: asks first, after whatever has come, after a Wake, and
  // ten times a second. Throws as WaitFresh does.
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for);
  // The same memory as values(), whatever is in it.
  std::span<float> host_values(int layer) const;
  // LayerExchange's functions of the same names.
  PackedBuffer packed_gradient(int layer) const;
  std::vector<PackedChunk> packed_chunks() const;
  std::optional<ProductUpdate> product_update(int layer) const;
  FactorStack factors(int layer, int64_t iteration) const;
  void BringBeforeReading(std::function<void(int layer)> bring) { bring_ = std::move(bring); }
  // From any thread: has a WaitUntil, or the next one, ask.
  void Wake();
  // LayerExchange's.
  void AddExposed(Duration exposed) { exchange_.exposed += exposed; }
  // Of all that spans point into, until the last copy is gone.
  std::shared_ptr<const void> memory() const { return state_->context->memory; }
  const std::string& LayerName(int layer) const;

  // Sends the iteration's progress and moves to the next. Times are filled in here; those of the
  // exchange are the previous iteration's, the newest that is complete. True if the job has gone
  // over to another plan: spans from values() and gradient() no longer hold. Waits only for that.
  bool EndIteration(wire::Progress progress);
  int64_t iteration() const { return iteration_; }
  // Sends the result of a test phase.
  void ReportTest(const wire::Progress& progress);
  // Whether the scheduler makes use of ReportLayerTimes, once.
  bool wants_layer_times() const;
  void ReportLayerTimes(const wire::LayerTimes& times);

  // Fills in layers, seconds of exchange, and dropped frames; waits for the job's end.
  void Finish(wire::WorkerReport report);
  // Tells the scheduler that this worker can't go on, so that the others end at once.
  void Fail(const Error& error);

  // Null unless the job wants a trace.
  Trace* trace() { return trace_.get(); }

 private:
  // The next envelope from the node's actors, or none if a tick has passed without one. Throws at
  // the deadline, with what `waiting_for` says.
  std::optional<Envelope> NextInTick(Time deadline, const std::string& waiting_for);
  // The next envelope. Throws if the job has ended, too.
  Envelope Next(Time deadline, const std::string& waiting_for);
  // Likewise, but the end of the job is an envelope like any other.
  Envelope NextOrEnd(Time deadline, const std::string& waiting_for);
  // Takes envelopes until one of `kind` comes.
  Envelope Await(MessageKind kind, Duration timeout, const std::string& waiting_for);
  void Handle(const Envelope& envelope);
  // Handles what has come, without waiting.
  void Poll();
  // Until all that the servers keep of `state` is here.
  void FetchOptimizerState(PlanTransition& state);
  // All workers have come here: takes what training needs from the old plan to the next.
  void SwitchPlan();
  // Adds to a gradient what the plan before has not sent.
  void AddResidual(int layer);
  // Brings all layers' values and state that devices have.
  void BringAll() const;
  Duration StallPatience() const;
  // Of a wait for new values that begins now.
  Time FreshDeadline() const;
  void CloseExchange();
  void PostToScheduler(Envelope envelope);
  void PostToLanes(MessageKind kind, int bucket, const Payload& body = {});
  void TraceSpan(const char* name, int layer, Time begin);

  SessionOptions options_;
  std::unique_ptr<Trace> trace_;
  std::shared_ptr<WorkerState> state_;
  std::unique_ptr<ZmqRuntime> runtime_;
  std::unique_ptr<BucketProgress> progress_;
  PauseAgreement pause_;
  PlanTransition transition_;
  std::function<void(int layer)> bring_;       // from devices to the host; may be empty
  std::unique_ptr<PlanTransition> collected_;  // while CollectOptimizerState waits
  wire::WorkerReport past_plans_;  // buckets and dropped frames of the plans before this one
  uint64_t epoch_ = 0;
  int rank_ = -1;
  int64_t iteration_ = 0;

  // The exchange of an iteration: from its first gradient ready to the last layer fresh, which is
  // in the next iteration's forward pass. `exposed` is how long computing stood still because a
  // layer was not fresh where it computes: in the host's memory, or on the device.
  struct Exchange {
    int64_t iteration = -1;
    Time begin{};
    Time end{};
    Duration exposed{};
  };
  Exchange exchange_;
  Time iteration_begin_{};
  double last_exchange_seconds_ = 0;
  double last_exposed_seconds_ = 0;
  double total_exchange_seconds_ = 0;
  double total_exposed_seconds_ = 0;
};

}  // namespace poseidon
