#include "scheduler/monitor/rendered_status.h"

#include <nlohmann/json.hpp>

#include "scheduler/monitor/metrics_text.h"
#include "scheduler/monitor/status_json.h"

namespace poseidon {

std::string RenderedStatus::RenderJson(const JobStatus& status) {
  return JsonText(StatusJson(status));
}

std::string RenderedStatus::RenderMetrics(const JobStatus& status) { return MetricsText(status); }

RenderedStatus::Text RenderedStatus::Rendering::Get(const StatusBoard::Posted& posted) {
  const std::lock_guard lock(mutex_);
  // An older version is asked for by who has waited; the newer one is as good.
  if (text_ == nullptr || posted.version > version_) {
    text_ = std::make_shared<const std::string>(render_(*posted.status));
    version_ = posted.version;
  }
  return text_;
}

}  // namespace poseidon
