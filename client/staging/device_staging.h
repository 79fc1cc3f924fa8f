// DeviceStaging: stands between a training program whose gradients and parameters are in the memory
// of devices and the exchange between the hosts. It has the training program's two calls, and makes
// of them
//
//   GradientReady(l)   the device's gradient -> the host's buffers, then the exchange hears of it
//   WaitFresh(l)       when l is fresh: the host's values -> the device's parameters; what the
//                      program then puts in its stream comes after them
//
// Copies are ordered by events behind what the program has in its streams; neither a stream nor a
// device is ever waited for on the host. A layer's new values leave for the device as soon as this
// thread hears of them, in any call of the stage, lowest layer first. So one layer's way to the
// host, another's over the wire and a third's back go on at the same time.
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
// Layers under SFB may be updated by the devices themselves (LayerExchange::product_update): when
// all factors are on the host they go to each device, which rebuilds the gradient and updates its
// parameters. The host has their values only after SyncToHost.
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
#include <span>
#include <string>
#include <vector>

#include "client/staging/copy_arrivals.h"
#include "client/staging/factor_staging.h"
#include "client/staging/feedback_staging.h"
#include "client/staging/layer_exchange.h"
#include "client/staging/pack_staging.h"
#include "client/staging/stream_trace.h"
#include "device/device.h"
#include "device/local_reduction.h"

namespace poseidon {

// A layer in a device's memory: parameters and gradient in the order and the sizes of the layer's
// blobs. Under a scheme of factors u and v are sent instead of the gradient; each device has
// 1 / devices of the rows.
struct DeviceLayer {
  std::vector<std::span<float>> values;
  std::vector<std::span<float>> gradient;
  std::span<const float> u;
  std::span<const float> v;
};

// A device with its replica of the net.
struct DeviceReplica {
  Device* device = nullptr;
  std::vector<DeviceLayer> layers;
  // For layers that the exchange leaves to devices; unless the rule is MeanGradient their values
  // lie one blob behind the other.
  FactorUpdate* factor_update = nullptr;
  // For gradients that the exchange wants packed.
  GradientPacker* packer = nullptr;
};

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
  // Waits for copies that are under way, unless their device has failed.
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // The layer's gradient of this iteration is there when all that is in `compute` (a stream for
  // each replica) is done, and its parameters are no longer read. Returns at once.
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
  struct Layer;

  bool IsOnDevices(int layer) const;
  // Hands on what has come, either way.
  void Pump();
  void SendToHost(int layer, std::span<const DeviceStream> compute);
  void SendFactors(int layer, const GradientBuffers& host);
  void SendGradient(int layer, std::span<float> host);
  void SendToDevice(int layer);
  void CopyValues(int layer, std::span<float> host);
  // What the stage has for the exchange's plan.
  void MakeFactorStaging();
  void MakePackStaging();
  void MakeFeedbackStaging();
  // Something that is no layer's gradient or values is in the replica's stream of copies to the
  // host.
  void ExpectOther(const DeviceReplica& replica);
  void SyncToHost(int layer);
  // Whether the exchange and the admission let the layer's next values go to the devices.
  bool MayLeave(int layer);
  // Has `work` put work in the streams, and these write down when they did it.
  void Traced(const char* name, int layer, CopyDirection direction,
              const std::function<void()>& work);
  // Calls `reduce` with each of the layer's blobs in members_.
  void EachBlob(int layer, std::vector<std::span<float>> DeviceLayer::*blobs,
                CopyDirection direction, const std::function<void()>& reduce);
  // Between the replica's share of each blob and its place in the layer.
  void CopyShare(const DeviceReplica& replica, std::span<const std::span<float>> blobs,
                 std::span<float> host, CopyDirection direction);
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for);
  void CheckDevices() const;
  // Layers whose copies are not done, for messages.
  std::string Unfinished() const;

  LayerExchange& exchange_;
  std::vector<DeviceReplica> replicas_;
  LocalReduction* reduction_;
  Admission admission_;
  StreamTrace trace_;
  std::optional<FactorStaging> factors_;
  std::optional<PackStaging> packing_;
  std::optional<FeedbackStaging> feedback_;
  std::shared_ptr<CopyArrivals> arrivals_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<int> waits_;                       // layers whose wait has not been booked
  std::vector<int> arrived_;                     // of this Pump
  std::vector<LocalReduction::Member> members_;  // of this reduction
  std::vector<StreamTrace::Moment> begins_;      // a replica each, of what Traced has put there
};

}  // namespace poseidon
