// RenderedStatus: a job's status in words, made once a version, whoever and however many ask.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "scheduler/monitor/status_board.h"

namespace poseidon {

// Thread-safe.
class RenderedStatus {
 public:
  using Text = std::shared_ptr<const std::string>;

  // Of /api/job.
  Text Json(const StatusBoard::Posted& posted) { return json_.Get(posted); }
  // Of /metrics.
  Text Metrics(const StatusBoard::Posted& posted) { return metrics_.Get(posted); }

 private:
  class Rendering {
   public:
    using Render = std::string (*)(const JobStatus&);
    explicit Rendering(Render render) : render_(render) {}
    Text Get(const StatusBoard::Posted& posted);

   private:
    Render render_;
    std::mutex mutex_;
    uint64_t version_ = 0;
    Text text_;
  };

  static std::string RenderJson(const JobStatus& status);
  static std::string RenderMetrics(const JobStatus& status);

  Rendering json_{RenderJson};
  Rendering metrics_{RenderMetrics};
};

}  // namespace poseidon
