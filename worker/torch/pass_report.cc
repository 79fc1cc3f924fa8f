#include "worker/torch/pass_report.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <glog/logging.h>

namespace poseidon {

PassReport::PassReport(EngineDevice& device) : device_(device), arrived_(device.MakeEvent()) {}

void PassReport::Send(const std::vector<at::Tensor>& numbers) {
  sent_ = true;
  if (numbers.empty()) {
    on_host_ = at::empty({0}, at::kDouble);
    return;
  }
  std::vector<at::Tensor> alike;
  for (const at::Tensor& number : numbers) alike.push_back(number.to(at::kDouble).reshape({}));
  const at::Tensor all = at::stack(alike);
  if (!on_host_.defined() || on_host_.numel() != all.numel()) {
    on_host_ = at::empty(all.sizes(),
                         at::TensorOptions(at::kDouble).pinned_memory(!all.device().is_cpu()));
  }
  on_host_.copy_(all, /*non_blocking=*/true);
  device_.RecordComputed(*arrived_);
}

std::span<const double> PassReport::Read() {
  CHECK(sent_);
  device_.WaitOnHost(*arrived_);
  return {on_host_.data_ptr<double>(), static_cast<size_t>(on_host_.numel())};
}

}  // namespace poseidon
