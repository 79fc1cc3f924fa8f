// WorkerSession: what a training program holds to take part in a job: WorkerProtocol
// (client/worker_protocol.h) on real sockets, with waits that have deadlines. GradientReady and
// WaitFresh are the whole contract during training.
//
//   WorkerSession session(options);         // joins; blocks until all nodes are there
//   session.Declare(model);                 // returns when the plan and all buffers are there
//   ... make the engine use session.values(l); on worker 0 fill them, from a snapshot perhaps ...
//   session.Begin();                        // all nodes are ready; worker 0's values go out
//   for each iteration:
//     for each layer l, ascending:   session.WaitFresh(l);  forward of l
//     for each layer l, descending:  backward of l into session.gradient(l);
//     session.GradientReady(l)
//     if (session.EndIteration(progress)) {
//       session.ChangePlan(); ... use session.values(l) anew
//     }
//   for each layer l: session.WaitFresh(l);
//   session.Finish(report);                 // returns when all workers have finished
//
// WaitFresh(l) returns when the layer has the parameters for the current iteration's forward pass;
// values(l) may be read from then until GradientReady(l), and gradient(l) written. Between
// GradientReady(l) and the next WaitFresh(l) the buffers belong to the lanes. Layers that the plan
// has put into one bucket are sent together, when the last of them is ready.
//
// If the model's update rule is deferred (core/arithmetic/update_rule.h), WaitFresh(l) in iteration
// t + 1 says that the mean gradient of iteration t is in optimizer_state(l), and nobody has changed
// the values: the program makes the update before it goes on (client/deferred/deferred_layers.h),
// and before it leaves the plan. Between GradientReady(l) and WaitFresh(l) the state belongs to the
// lanes, too.
//
// A program whose gradients and parameters are in the memory of devices has DeviceStaging
// (client/staging/device_staging.h) between them and exchange(). What devices have changed is in
// the host's memory only after DeviceStaging::SyncToHost.
//
// Thread safety: one thread, the training thread; of exchange() Wake any. Every call that waits has
// a deadline and throws an Error that names the cause: PeerLost, DeadlineExceeded, or what the
// scheduler said. In a job with `recovery` all calls that wait from Begin to Finish, and
// GradientReady, throw Rewound, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/exchange_times.h"
#include "client/session_patience.h"
#include "client/staging/layer_exchange.h"
#include "client/timeline_recorder.h"
#include "client/worker_protocol.h"
#include "core/arithmetic/gradient_buffers.h"
#include "core/awake_clock.h"
#include "core/error.h"
#include "core/steady_now.h"
#include "core/trace.h"
#include "device/pinned_pool.h"
#include "poseidon/rewound.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "transport/membership/event_writer.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

struct WorkerSessionOptions {
  Job job;                       // checked (proto/job_config.h)
  uint64_t job_fingerprint = 0;  // of the config file
  int wanted_rank = -1;          // -1: whichever is free
  std::string host;              // that other nodes reach this one at; empty: found out
  // Where Finish writes worker-RANK.trace.json, if the job wants a trace; and where the last events
  // are written (worker-RANK.events.json), if it does or ends badly. Made if it is not there.
  // Empty: nowhere.
  std::string trace_directory;
  // Asked a few times a second while a call waits; if true, the call throws Interrupted(). May be
  // empty.
  std::function<bool()> interrupted;
  // Asked likewise, and in each iteration; if true, the worker asks to leave the job. One that has
  // not joined yet throws Interrupted(). May be empty.
  std::function<bool()> wants_to_leave;
  // Where the model's memory comes from, such as PinnedFor(the device that copies); called by a
  // thread of the session's. Empty, or where it makes nothing: from the heap.
  AllocateBlock allocate = {};
  // What the plan has workers update is updated by the program's devices, through DeviceStaging:
  // layers under SFB from all workers' factors (client/staging/factor_staging.h), others from the
  // gradient that has been reduced (client/staging/dense_staging.h). All devices of all workers do
  // it, or none, and their arithmetic has the same bits. Not under a deferred rule, but for factors
  // under MeanGradient; and not in a job with `recovery`, whose lanes keep on the host what it may
  // go back to.
  bool devices_update = false;
  // Gradients that go to servers in a codec are packed by the program's devices, through
  // DeviceStaging (client/staging/pack_staging.h, client/staging/feedback_staging.h). In a job with
  // `recovery` not by one with error feedback.
  bool devices_pack = false;
  // Told, by a thread of the session's and before any call throws it, that the job has ended badly
  // or goes on without this worker: the program may hang, and never call again. Told, too, of what
  // the program itself gives up for, and perhaps more than once. May be empty.
  std::function<void(const Error&)> job_failed = {};
  // The program can go back (Rewound). Without it a job with `recovery` is refused.
  bool goes_back = false;
  // The program asks stops() after each iteration. Without it EndIteration throws Interrupted()
  // where the job stops.
  bool stops = false;
  // The program takes the part of the batch that plan() gives it. Without it a job with
  // training.batch BALANCED is refused.
  bool shares_batch = false;
  // What the program calls an iteration is communication.local_steps of its steps. Without it a job
  // with more than one is refused.
  bool trains_locally = false;
  // The incarnation of this process, 0: drawn; and of the dead one whose place it takes, 0: none.
  uint64_t incarnation = 0;
  uint64_t replaces = 0;
};

class WorkerSession {
 public:
  explicit WorkerSession(const WorkerSessionOptions& options);
  ~WorkerSession();
  WorkerSession(const WorkerSession&) = delete;
  WorkerSession& operator=(const WorkerSession&) = delete;

  int rank() const { return protocol_.rank(); }
  int workers() const { return options_.job.cluster().workers(); }
  // Whether this worker is the first of the plan's; worker 0, if that has not been lost.
  bool leads() const { return protocol_.leads(); }
  // Of the job, as its first scheduler has drawn it; once there is a plan.
  uint64_t job_number() const { return protocol_.base(); }
  int64_t iteration() const { return protocol_.iteration(); }
  // The same, and what has crossed the network, for any thread while this lives.
  const std::atomic<int64_t>& shown_iteration() const { return shown_iteration_; }
  const TransportCounters& counters() const { return runtime_->counters(); }
  const Plan& plan() const { return protocol_.plan(); }
  // That was declared; once there is a plan.
  const ModelSpec& model() const { return protocol_.model(); }
  const UpdateRule& rule() const { return protocol_.context().rule; }
  // Null unless the job wants a trace.
  Trace* trace() { return trace_.get(); }
  // Notes what the program does from now on, for those who ask why the job has ended. The session
  // itself notes when it waits, and that the program computes when it has waited.
  void Note(Activity activity);

  // `inputs`: what this worker has found on its machine; the job ends where workers have what does
  // not fit together. Of first_iteration, which is not 0 if training goes on from a snapshot,
  // worker 0's counts. Throws ConfigError for a layer's name that is no UTF-8.
  void Declare(const ModelSpec& model, const wire::TrainingInputs& inputs = {});

  // The layer's parameters.
  std::span<float> values(int layer) const;
  // For the current iteration.
  GradientBuffers gradient(int layer) const;
  // Deferred rules: the layer's optimizer state with its mean gradient,
  // OptimizerStatePerParameter(rule) floats a parameter. Of a rule of type MeanGradient, whose
  // state is nothing else: where the scheme and the number of workers allow it, it is the memory of
  // gradient(layer), which then never changes within a plan; the program may write over it until
  // the next GradientReady, its own or with the next gradient.
  std::span<float> optimizer_state(int layer) const;

  // Worker 0, before Begin, if training goes on from a snapshot: the optimizer state of all
  // parameters in the model's order, OptimizerStatePerParameter(rule) floats for each.
  void RestoreOptimizerState(std::vector<float> state);
  // Worker 0, when all layers are fresh and before its first GradientReady of the iteration: the
  // same, as it is now; fetched from the servers where they keep it.
  std::vector<float> CollectOptimizerState();

  void Begin();
  // Of an update rule of torch.optim's, before the first GradientReady: see WorkerProtocol.
  void SetGroups(std::vector<ParameterGroup> groups) { protocol_.SetGroups(std::move(groups)); }
  void GradientReady(int layer);
  void WaitFresh(int layer) { WaitFresh(layer, iteration()); }
  // Likewise for an iteration's forward pass, the current one or the next. For the next only after
  // GradientReady of this one, and of all layers of the bucket.
  void WaitFresh(int layer, int64_t of);
  // Those of its bucket, itself among them.
  std::vector<int> layers_sent_with(int layer) const;
  bool exchanges_end_together() const { return protocol_.progress().ends_together(); }
  // Sends the iteration's progress and moves to the next. Times are filled in here; those of the
  // exchange are the previous iteration's, the newest that is complete. True, with all layers
  // fresh, if the job goes over to another plan now: ChangePlan is next. Waits only for that.
  bool EndIteration(wire::Progress progress);
  // Whether somebody has asked for the training's end, and it is before iteration(): all workers
  // are there, and go on as after the last iteration.
  bool stops() const { return protocol_.stops(); }
  // Whether somebody has asked for a snapshot, and AnswerSnapshotRequest is still to be called: one
  // is written, or can't be. Of worker 0.
  bool snapshot_is_wanted() const { return protocol_.snapshot_is_wanted(); }
  void AnswerSnapshotRequest() { protocol_.AnswerSnapshotRequest(); }
  // After it spans from values(), gradient() and optimizer_state() no longer hold.
  void ChangePlan();
  // After Rewound: waits until the lost nodes' places are taken and training goes on, from
  // iteration(), with the values of that. Spans, as after ChangePlan. Throws no Rewound.
  void GoBack();
  // Whether Rewound has been thrown and GoBack is not done.
  bool rewound() const { return rewound_; }

  // Of the job, as the scheduler has it, too.
  const Communication& communication() const { return options_.job.communication(); }
  // Whether the job goes back after a loss.
  bool recovers() const { return options_.job.recovery().mode() != Recovery::NONE; }
  // What the net has beside the model and training changes, where it has something: after Begin or
  // GoBack and before the next iteration the worker that sends them does so, and those that await
  // them have theirs set. Every worker's program does it, or none. AwaitStatistics waits; it throws
  // Error if what comes are no `floats` floats. TookStatistics is next, when they are set, or at
  // once where the net has none (WorkerProtocol::TookStatistics).
  bool sends_statistics() const { return protocol_.sends_statistics(); }
  bool awaits_statistics() const { return protocol_.awaits_statistics(); }
  void SendStatistics(std::span<const float> statistics);
  std::vector<float> AwaitStatistics(size_t floats);
  void TookStatistics() { protocol_.TookStatistics(); }

  // Tells whoever watches the job a sentence, on the scheduler's terminal.
  void Notify(const std::string& text);
  // Sends the result of a test phase.
  void ReportTest(const wire::Progress& progress);
  // Whether the scheduler makes use of ReportLayerTimes, once.
  bool wants_layer_times() const;
  void ReportLayerTimes(const wire::LayerTimes& times);

  // Fills in layers, seconds of exchange, and dropped frames; waits for the job's end, and then
  // writes the trace.
  void Finish(wire::WorkerReport report);
  // Tells the scheduler that this worker can't go on, so that the others end at once.
  void Fail(const Error& error);
  // Tells nobody, so that the others, in a job that recovers, take the worker for lost. Only its
  // last events are written.
  void GiveUp(const Error& error) { events_->Write(error.exit_code(), error.what()); }

  // Sends what is still to be sent, and takes no part in the job any more: after Fail or GiveUp,
  // where the session can't be destroyed.
  void Stop() { runtime_->Stop(); }

  // For DeviceStaging; from Declare on.
  LayerExchange& exchange();
  // For DeferredLayers (client/deferred/deferred_layers.h); from Declare on.
  const WorkerProtocol& protocol() const { return protocol_; }

 private:
  class Exchange;

  WorkerSession(const WorkerSessionOptions& options, const std::shared_ptr<PlanHandover>& plans);

  // The end of a wait that begins now and may take so long.
  Time DeadlineIn(Duration patience) const { return clock_.At(SteadyNow()) + patience; }
  // The next envelope from the node's actors, or none if a tick has passed without one. Throws at
  // the deadline, a time of clock_, with what `waiting_for` says.
  std::optional<Envelope> NextInTick(Time deadline, const std::string& waiting_for);
  // The next envelope. Throws if the job has ended, too.
  Envelope Next(Time deadline, const std::string& waiting_for);
  // Likewise, but the end of the job is an envelope like any other.
  Envelope NextOrEnd(Time deadline, const std::string& waiting_for);
  // Throws Rewound if the job goes back, unless the program `knows` it.
  void Handle(const Envelope& envelope, bool knows = false);
  // What the job's end, or this worker's, is to the program.
  [[noreturn]] void ThrowEnd(const Envelope& envelope);
  // Training begins under the present plan.
  void BeginIterations();
  // Asks the program whether it wants to leave.
  void TryLeave();
  // Handles what has come, without waiting.
  void Poll();
  // Handles what comes while `waiting()`.
  void HandleWhile(const std::function<bool()>& waiting, Time deadline,
                   const std::string& waiting_for);
  // Until the protocol has left the phase.
  void AwaitEndOf(WorkerProtocol::Phase phase, Duration timeout, const std::string& waiting_for);
  // Handles what comes until done() says so: asks first, after whatever has come, after a Wake, and
  // ten times a second.
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for);
  // When a wait for the values of iteration `of` that begins now must end.
  Time FreshDeadline(int64_t of) const;
  // Has the protocol do something, and sends what it wants sent.
  template <typename Call>
  void Do(const Call& call);
  void TraceSpan(const char* name, int layer, Time begin);
  void NoteWait(int layer);
  void WriteTrace() const;

  WorkerSessionOptions options_;
  const SessionPatience patience_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<ZmqRuntime> runtime_;
  std::shared_ptr<EventWriter> events_;  // with the lanes, which end later
  WorkerProtocol protocol_;
  std::unique_ptr<Exchange> exchange_;
  ExchangeTimes exchange_times_;
  std::optional<TimelineRecorder> timeline_;  // in a job with a monitor
  Outbox outbox_;                             // empty between calls
  AwakeClock clock_;                          // while a call waits
  bool going_back_ = false;
  bool rewound_ = false;
  bool finished_ = false;
  Time iteration_begin_{};
  std::atomic<int64_t> shown_iteration_{0};
};

}  // namespace poseidon
