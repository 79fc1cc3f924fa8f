// DeviceStaging: stands between a training program whose gradients and parameters are in the memory
// of devices and the exchange between the hosts. It has the training program's two calls, and makes
// of them
//
//   GradientReady(l)   the device's gradient -> the host's buffers, then the exchange hears of it
//   WaitFresh(l)       when l is fresh: the host's values -> the device's parameters; what the
//                      program then puts in its stream comes after them
//
// The layers of a bucket leave together, when the last of their gradients is there, and come back
// together. Copies are ordered by events behind what the program has in its streams, and nothing in
// a stream calls back: a thread of the staging's own waits until a gradient is on the host
// (client/staging/arrival_thread.h), and on the device nobody waits but streams. A bucket's new
// values leave for the device as soon as the training thread hears of them, in any call of the
// staging, lowest layer first. So one bucket's way to the host, another's over the wire and a
// third's back go on at the same time.
//
// With several devices, replicas of one net, a layer's gradients are added up among them first,
// each copies its own share, and the shares of new values are gathered again
// (device/local_reduction.h). Factors are not added up: each device's rows stand below those of the
// one before.
//
//   for each iteration:
//     for each layer l, ascending:   staging.WaitFresh(l, streams);  forward of l, in the streams
//     for each layer l, descending:  backward of l, in the streams;
//                                    staging.GradientReady(l, streams)
//     staging.EndIteration();
//     if (session.EndIteration(...)) {
//       staging.SyncToHost();  session.ChangePlan();  staging.PlanChanged();
//     }
//
// What workers update may be updated by the devices themselves: layers under SFB from factors
// (LayerExchange::product_update), which all go to each device when they are on the host, others
// from what has been reduced of all workers' gradients (LayerExchange::dense_update). Where the
// worker is alone its gradient never leaves the devices, and the staging only tells the exchange of
// it. The host has the values only after SyncToHost.
//
// Gradients may be packed by the devices, behind the reduction: each device packs its share
// (LayerExchange::packed_gradient), or, with error feedback, the first one packs KV pairs
// (LayerExchange::packed_chunks), whose residuals it keeps until SyncToHost.
//
// How long the program's work stands still for values is measured by events before and behind its
// wait, for layers whose values are not on the device when WaitFresh is called: the first replica's
// is told to the exchange (LayerExchange::AddExposed) when the events have come, and nobody waits
// for them.
//
// With a trace (LayerExchange::trace) each layer's copies are entries on it, "copy to host" and
// "copy to device", from when the stream began to when it was done; so are reductions,
// "reduce-scatter" and "all-gather", in the rows of the streams in which they are, and "update" by
// a device. An entry's iteration is that of the gradient, or that for which the values are.
//
// Thread safety: one thread, the training thread. Every call that waits throws what the exchange
// throws, at its deadlines; if a device fails, Error with the layers whose copies are not done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "client/staging/arrival_thread.h"
#include "client/staging/dense_staging.h"
#include "client/staging/device_replica.h"
#include "client/staging/factor_staging.h"
#include "client/staging/feedback_staging.h"
#include "client/staging/layer_exchange.h"
#include "client/staging/pack_staging.h"
#include "client/staging/share_copy.h"
#include "client/staging/staged_bucket.h"
#include "client/staging/stream_trace.h"
#include "core/time.h"
#include "device/device.h"
#include "device/local_reduction.h"

namespace poseidon {

class DeviceStaging {
 public:
  // Asked when the exchange calls a layer fresh for `iteration`: whether its values may leave for
  // the devices. It may make them first what they are to be, as a deferred update does.
  using Admission = std::function<bool(int layer, int64_t iteration)>;

  // `reduction` is needed for several replicas. All that is pointed to outlives the staging, and so
  // do the exchange's buffers, but for those it has given up for another plan's. Without
  // `admission` all values that are fresh leave.
  DeviceStaging(LayerExchange& exchange, std::vector<DeviceReplica> replicas,
                LocalReduction* reduction = nullptr, Admission admission = nullptr);
  // Waits for what is under way, unless its device has failed.
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // The layer's gradient of this iteration is there when all that is in `compute` (a stream for
  // each replica, always the same) is done, and its parameters are no longer read. Returns at once.
  void GradientReady(int layer, std::span<const DeviceStream> compute);
  // What is put in `compute` after this finds the layer's parameters for the current iteration.
  // Waits until they have come over the wire, not for their way to the device.
  void WaitFresh(int layer, std::span<const DeviceStream> compute);
  // Returns when all gradients of the iteration have been handed to the exchange, whose iteration
  // may then end.
  void EndIteration();
  // The exchange has gone over to another plan: host memory is another, and it must say anew that
  // layers are fresh, before which they may not be ready.
  void PlanChanged();
  // Returns when the host's memory has the values and the optimizer state of all layers that
  // devices update, and what has not been sent of those that they pack: needed before anybody reads
  // these there, collects the optimizer state, or changes the plan.
  void SyncToHost();
  // Returns when all copies are done.
  void Drain();
  // Tells the exchange how long the devices have stood still until now: needed after the last
  // iteration, when they have done their work.
  void RecordExposedTime();

 private:
  // Which stream of a device.
  using StreamOf = DeviceStream (*)(Device& device);

  StagedBucket& BucketOf(int layer) { return *buckets_[bucket_of_layer_[layer]]; }
  // Whether the values that are needed next are there, on the first device; those moved last.
  bool IsOnDevices(StagedBucket& bucket);
  bool LastMoveIsDone(StagedBucket& bucket);
  // Hands on what has come, either way.
  void Pump();
  // What has come from the devices since the last call; false if nothing has.
  bool TakeArrived();
  void Leave(size_t number, std::span<const DeviceStream> compute);
  void SendToHost(size_t number);
  void SendFactors(int layer, const GradientBuffers& host);
  void SendGradients(const StagedBucket& bucket);
  void ReduceGradients(const StagedBucket& bucket);
  // The gradient of the present iteration is where the exchange needs it.
  void HandOver(StagedBucket& bucket);
  void SendToDevice(StagedBucket& bucket);
  void CopyValues(StagedBucket& bucket);
  void UpdateOnDevices(StagedBucket& bucket);
  // Whether devices update the bucket's layers.
  bool HasUpdates(const StagedBucket& bucket) const;
  void MakeBuckets();
  // What the staging has for the exchange's plan.
  void MakeFactorStaging();
  void MakeFeedbackStaging();
  // Returns when all that is in the devices' own streams now is done.
  void AwaitStreams(const std::string& waiting_for);
  // Puts what the host lacks of the bucket in the streams; false if it lacks nothing.
  bool CopyToHost(StagedBucket& bucket);
  // Whether the exchange and the admission let the bucket's next values go to the devices.
  bool MayLeave(const StagedBucket& bucket);
  // Has `work` put work in the streams, and these write down when they did it.
  void Traced(const char* name, const std::string& track, const StagedBucket& bucket,
              int64_t iteration, StreamOf stream_of, const std::function<void()>& work);
  // Calls `step` with each of the bucket's blobs.
  using Step = void (LocalReduction::*)(std::span<const LocalReduction::Member>);
  void EachBlob(const StagedBucket& bucket, std::vector<std::span<float>> DeviceLayer::*blobs,
                StreamOf stream_of, Step step);
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for);
  void CheckDevices();
  [[noreturn]] void ThrowFailed(const Error& error);
  // What is on its way, for messages.
  std::string Unfinished();

  LayerExchange& exchange_;
  std::vector<DeviceReplica> replicas_;
  LocalReduction* reduction_;
  Admission admission_;
  StreamTrace trace_;
  std::optional<FactorStaging> factors_;
  std::optional<DenseStaging> dense_;
  std::optional<PackStaging> packing_;
  std::optional<FeedbackStaging> feedback_;
  std::vector<std::unique_ptr<StagedBucket>> buckets_;
  std::vector<size_t> bucket_of_layer_;
  std::set<size_t> wanting_;          // buckets whose next values have not left for the devices
  std::vector<StagedBucket*> waits_;  // whose wait has not been booked
  StagedBucket::Events ends_;         // of AwaitStreams, each device's streams
  bool awaits_streams_ = false;
  Time checked_{};                               // when the devices were asked last
  std::vector<int> arrived_;                     // of this Pump
  std::vector<CopyRun> runs_;                    // of this copy
  std::vector<LocalReduction::Member> members_;  // of this reduction
  std::vector<StreamTrace::Moment> begins_;      // a replica each, of what Traced has put there
  std::optional<ArrivalThread> arrivals_;        // ends before what it waits for
};

}  // namespace poseidon
