// Session: makes a program of yours one of a job's workers. The program computes gradients; layer
// by layer, while the ones below still compute, they are brought together with those of the other
// workers, over whichever way the job's plan found cheapest, and come back as new parameters.
//
// Two or more of this program, started by `poseidon run --config=job.prototxt -- ./line`, fit a
// line to points:
//
//   #include <poseidon/session.h>
//
//   int main() {
//     poseidon::Session session(poseidon::SessionOptions::FromEnvironment());
//     session.Declare({.layers = {{.name = "line", .blobs = {{.shape = {2}}}}},
//                      .optimizer = {.base_lr = 0.1F},
//                      .iterations = 500});
//     session.Begin();
//     while (session.iteration() < 500) {
//       session.WaitFresh(0);  // the layer has this iteration's parameters
//       const float x = static_cast<float>((session.iteration() + session.rank()) % 3) - 1;
//       const float error = session.values(0)[0] * x + session.values(0)[1] - (2 * x + 1);
//       session.gradient(0).dense[0] = error * x;
//       session.gradient(0).dense[1] = error;
//       session.GradientReady(0);  // it leaves; the program goes on
//       session.EndIteration({.loss = error * error});
//     }
//     session.Finish();  // waits for the other workers
//   }
//
// A program with several layers goes, in each iteration, through
//
//   for each layer l, ascending:   WaitFresh(l), forward pass of l with values(l)
//   for each layer l, descending:  backward pass of l into gradient(l), GradientReady(l)
//   EndIteration
//
// and the parameters' exchange is hidden behind whatever is computed between GradientReady(l) and
// the next WaitFresh(l). Between these two l's memory belongs to the library; else to the program.
//
// All workers declare the same model. Worker 0's values are everybody's first ones. The job's other
// nodes, a scheduler and servers, are this project's daemons.
//
// Errors are poseidon::Error (poseidon/error.h): a job config that can't work (ConfigError), a node
// that is gone (PeerLost), a wait that takes too long (DeadlineExceeded), what the scheduler says
// of another node. Calls out of order throw Error with what is missing, and models that can't work
// ConfigError; these change nothing, and if the session is destroyed before a call that is in
// order, the other nodes hear of the mistake. After another error the session can only be
// destroyed, which tells the other nodes, so that they end at once; another call throws the same
// error again. Left is one of them by its type only: this worker may end, and the job is well.
//
// In a job with `recovery` a program that sets SessionOptions::goes_back survives the loss of other
// workers and of servers, and another process may take its own place: see poseidon/rewound.h.
//
// A child that the program forks, as data loaders are, has a copy of the session without its
// threads: it can read what is there (rank, iteration, values), other calls throw Error in it, and
// its destructor does nothing.
//
// Thread safety: one thread, at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "poseidon/error.h"
#include "poseidon/model.h"
#include "poseidon/parameter_group.h"
#include "poseidon/rewound.h"

namespace poseidon {

struct SessionOptions {
  // Path of the job config (docs/configuration.md); all nodes of a job use the same.
  std::string job = {};
  // The config itself, in place of a path.
  std::string job_text = {};
  int rank = -1;          // that this worker wants, from 0; -1: whichever is free
  std::string host = {};  // that other nodes reach this machine at; empty: found out
  // Where Finish writes worker-RANK.trace.json if the job config has `trace: true`; made if it is
  // not there. Empty: nowhere.
  std::string trace_directory = {};
  // Asked a few times a second while a call waits; if true, the call throws Error with
  // ExitCode::kInterrupted. What it throws itself leaves the call, too, as an error. May be empty.
  std::function<bool()> interrupted = {};
  // The program catches Rewound and calls GoBack. Without it a job with `recovery` is refused.
  bool goes_back = false;
  // A number of this process's own, 0: drawn; and that of the dead process whose place it takes, 0:
  // none. Of use to who starts processes again: nobody then waits until the dead one is missed.
  uint64_t incarnation = 0;
  uint64_t replaces = 0;
  // Where the model's memory comes from, in a few blocks of many megabytes: zeros, aligned for any
  // use, such as memory that a GPU copies from and to by itself. Called by a thread of the
  // session's after Declare, and when the plan changes; a block is freed with its pointer's last
  // copy. Empty, or for the blocks of which it returns null: the heap.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate = {};

  // Of a program that `poseidon run -- PROGRAM` has started: `job` is the environment's
  // POSEIDON_JOB, `rank` its POSEIDON_RANK, and traces go to the job's output directory, where that
  // config is; `host` is POSEIDON_HOST, if that is there; with `recovery`, `incarnation` and
  // `replaces` are POSEIDON_INCARNATION and POSEIDON_REPLACES. Throws ConfigError if the first two
  // are not there, or one is no number.
  static SessionOptions FromEnvironment();
};

// What a worker says of an iteration; the scheduler shows it and writes it to summary.json.
struct IterationResult {
  std::optional<float> loss = std::nullopt;  // mean over the worker's samples
  // Of a test before this iteration's update, where there was one.
  std::optional<float> test_accuracy = std::nullopt;  // 0 to 1
  std::optional<float> test_loss = std::nullopt;
};

class Session {
 public:
  // Where a layer's gradient of the current iteration is written. Either `dense` is set, floats of
  // all the layer's blobs in their order; or, for an inner product whose factors the plan sends, u
  // (rows x outputs, the gradient at its top) and v (rows x inputs, the data at its bottom), both
  // row-major: then the product is taken elsewhere.
  struct Gradient {
    std::span<float> dense;
    std::span<float> u;
    std::span<float> v;
  };

  // Joins; waits until all nodes are there (cluster.join_deadline_seconds).
  explicit Session(const SessionOptions& options);
  // Tells the other nodes that this one gives up unless Finish has returned.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const;     // from 0
  int workers() const;  // of the job
  // That which is computed, or is next.
  int64_t iteration() const;

  // Waits for the plan; then the layers' memory is there. `first_iteration`: where training goes on
  // from; worker 0's counts.
  void Declare(const Model& model, int64_t first_iteration = 0);
  // Waits until all nodes are ready; worker 0's values, as they are now, set out for the others.
  void Begin();

  // The layer's parameters, from Declare on; zeros at first. The span is good until EndIteration
  // returns true.
  std::span<float> values(int layer);
  // Likewise. With staleness or all-reduces the memory alternates: ask in every iteration.
  Gradient gradient(int layer);
  // OptimizerType::kMeanGradient: when the layer is fresh, the mean of all workers' gradients of
  // the iteration before. The program updates values(layer) with it.
  std::span<float> mean_gradient(int layer);

  // Optimizers kPyTorchSgd and kPyTorchAdamW: the numbers by which the servers update the
  // parameters of each group (Blob::group) from this iteration on, on all workers the same; a job
  // whose workers do not agree ends with their ranks. Before the iteration's first GradientReady,
  // at least once.
  void SetGroups(std::vector<ParameterGroup> groups);
  // The layer's gradient of this iteration is in its memory, once an iteration for each layer,
  // after WaitFresh for it. Returns at once.
  void GradientReady(int layer);
  // Waits until the layer has the parameters for this iteration's forward pass. After the layer's
  // GradientReady: until it has those for the next one's, which a program may do that exchanges
  // some layers much earlier in an iteration than others; all layers that the plan has put into one
  // bucket with it must be ready, and all there are with communication.wait_for_all or without
  // overlap.
  void WaitFresh(int layer);
  // The layers that the plan has put into one bucket with this one, which is one of them, ascending
  // and without gaps: they become fresh together. From Declare on; others after EndIteration has
  // returned true.
  std::vector<int> layers_sent_with(int layer) const;
  // All layers' gradients are ready. True: the job went over to another plan and the layers' memory
  // is elsewhere; ask for values(l) anew. Waits only for that.
  bool EndIteration(const IterationResult& result = {});

  // Policy TIME plans by how long layers compute. Where Model::layers do not say it, or wrongly, a
  // program that has measured it may say so once, in any iteration: all layers' times of one
  // batch's passes, in milliseconds, in the model's order. When all workers have, the job goes over
  // to another plan if that is much better (EndIteration).
  bool WantsLayerTimes() const;
  void ReportLayerTimes(std::span<const double> forward_ms, std::span<const double> backward_ms);

  // Worker 0, before Begin, where training goes on from a snapshot (Declare's first_iteration is
  // above 0): the optimizer's state of all parameters, in the model's order, as
  // CollectOptimizerState returned it. Where it is not called the state begins as zeros.
  void RestoreOptimizerState(std::vector<float> state);
  // Worker 0, for a snapshot: between the last layer's WaitFresh and the first GradientReady.
  std::vector<float> CollectOptimizerState();

  // As the job says (docs/configuration.md, communication): after how many steps of its own the
  // program exchanges a fragment, of how many, and for how many steps it goes on before it waits.
  // 1, 1 and 0 in a job that exchanges gradients in every step.
  int local_steps() const;
  int fragments() const;
  int overlap_steps() const;

  // After the last iteration: waits until all layers are fresh and the job has ended well.
  void Finish();

  // Whether the job goes back after a loss. Then all calls from Begin to Finish may throw Rewound,
  // but for those that only read; GoBack is next, and any other call an error.
  bool recovers() const;
  // After Rewound: waits until the lost nodes' places are taken and the job goes on. iteration() is
  // the one that was left or the one before it, and all gradients of it are to be computed anew;
  // all layers' memory is elsewhere. Throws no Rewound.
  void GoBack();
  // What the program has beside the model and training changes, as statistics of normalization:
  // after Begin or GoBack, before the first WaitFresh, one worker is to send its own, and those
  // that have taken a lost one's place await them. Every worker's program does so, or none.
  // AwaitStatistics waits; it throws Error if what comes has another size, and Rewound.
  bool SendsStatistics() const;
  bool AwaitsStatistics() const;
  void SendStatistics(std::span<const float> statistics);
  std::vector<float> AwaitStatistics(size_t floats);
  // Ends the job for all nodes, which say `reason`.
  void Fail(const std::string& reason);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace poseidon
