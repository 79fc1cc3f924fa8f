#include "client/sync/adam_push_syncer.h"

namespace poseidon {

AdamPushSyncer::AdamPushSyncer(std::shared_ptr<SyncContext> context, int bucket)
    : context_(std::move(context)),
      bucket_(bucket),
      values_(context_, bucket, context_->bucket(bucket).lane()) {}

FrameStatus AdamPushSyncer::Send(int64_t iteration, Outbox& outbox) {
  const BucketPlan& plan = context_->bucket(bucket_);
  const InnerProductSpec& product =
      context_->plan.model().layers(plan.first_layer()).inner_product();
  const FactorStack& stack = context_->memory->bucket(bucket_).stacks[iteration % 2];
  for (int factor = 0; factor < 2; ++factor) {
    const int64_t width = factor == 0 ? product.outputs() : product.inputs();
    // Without a copy: this stack is written again two iterations later, after the server's answer.
    Envelope envelope = context_->MakeFrame(
        MessageKind::kFactors, context_->Server(plan.chunks(0).server()), plan.lane(), bucket_,
        factor, iteration,
        context_->ViewOf(factor == 0 ? stack.u : stack.v, 0, product.rows() * width));
    context_->CountSent(bucket_, envelope);
    outbox.Send(std::move(envelope));
  }
  values_.Await();
  return FrameStatus::kAccepted;
}

}  // namespace poseidon
