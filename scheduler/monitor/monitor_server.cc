#include "scheduler/monitor/monitor_server.h"

#include <atomic>
#include <limits>
#include <thread>

#include "core/http/http_server.h"
#include "core/http/metrics_writer.h"
#include "core/steady_now.h"
#include "scheduler/monitor/followers.h"
#include "scheduler/monitor/page.h"
#include "scheduler/monitor/rendered_status.h"

namespace poseidon {
namespace {

// Who follows the job hears of it at most so often.
constexpr Duration kStreamInterval = Seconds(1);
// A program that has published nothing for so long hangs.
constexpr double kHealthySeconds = 30;
// By which those who ask again and again name themselves.
constexpr const char* kFollower = "follower";

}  // namespace

class MonitorServer::Impl {
 public:
  Impl(const MonitorOptions& options, const StatusBoard& board)
      : board_(board),
        identity_(options.identity),
        server_({options.address, options.port, options.token, kThreads, "monitor.port"}) {
    server_.Get(
        "/", [this](const Request& request, Response& response) { ServePage(request, response); });
    server_.Get("/api/job", [this](const Request& request, Response& response) {
      ServeJob(request.get_param_value(kFollower), response);
    });
    server_.Get("/api/events", [this](const Request& request, Response& response) {
      ServeEvents(request.get_param_value(kFollower), response);
    });
    server_.Get("/metrics", [this](const Request&, Response& response) {
      Serve(response, &RenderedStatus::Metrics, MetricsWriter::kContentType);
    });
    server_.Get("/healthz", [this](const Request&, Response& response) { ServeHealth(response); });
    server_.Start();
  }

  ~Impl() {
    const Time end = SteadyNow();
    const auto follows = [&] { return streams_ > 0 || followers_.AnyAskedSince(end - kPatience); };
    while (board_.Latest().closed && SteadyNow() < end + kPatience && follows()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    server_.Stop();
  }

  int port() const { return server_.port(); }
  const std::string& url() const { return server_.url(); }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  void ServePage(const Request& request, Response& response) {
    if (request.has_param("token")) response.set_header("Set-Cookie", server_.Cookie());
    response.set_header("Content-Security-Policy", kPagePolicy);
    response.set_content(LivePage(), "text/html; charset=utf-8");
  }

  void ServeJob(const std::string& follower, Response& response) {
    followers_.Asked(follower, SteadyNow());
    const StatusBoard::Posted posted = board_.Latest();
    const bool ends = posted.version > 0 && (posted.closed || posted.status->end);
    if (follower.empty() || !ends) {
      return Serve(response, &RenderedStatus::Json, "application/json");
    }
    // It has been told once the answer is on its way, not before.
    const RenderedStatus::Text text = rendered_.Json(posted);
    response.set_content_provider(
        text->size(), "application/json",
        [text](size_t offset, size_t size, httplib::DataSink& sink) {
          return sink.write(text->data() + offset, size);
        },
        [this, follower](bool sent) {
          if (sent) followers_.Forget(follower);
        });
  }

  void Serve(Response& response,
             RenderedStatus::Text (RenderedStatus::*render)(const StatusBoard::Posted&),
             const char* type) {
    const StatusBoard::Posted posted = board_.Latest();
    if (posted.version == 0) return Say(response, 503, "the job is about to begin; ask again");
    response.set_content(*(rendered_.*render)(posted), type);
  }

  void ServeHealth(Response& response) {
    if (!identity_.empty()) response.set_header(kIdentityHeader, identity_);
    const StatusBoard::Posted posted = board_.Latest();
    if (posted.version > 0) {
      const double still = ToSeconds(SteadyNow() - posted.status->now);
      if (!posted.closed && still > kHealthySeconds) {
        return Say(response, 503,
                   "the scheduler has done nothing for " +
                       std::to_string(static_cast<int64_t>(still)) + " s");
      }
    }
    Say(response, 200, "ok");
  }

  void ServeEvents(const std::string& follower, Response& response) {
    if (++streams_ > kStreams) {
      --streams_;
      response.set_header("Retry-After", "5");
      return Say(response, 503,
                 std::to_string(kStreams) +
                     " others follow the job already; ask for /api/job now and then instead");
    }
    followers_.Forget(follower);  // it hears of the end by the stream
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, told = uint64_t{0}, begun = Time{}](size_t, httplib::DataSink& sink) mutable {
          return SendNext(told, begun, sink);
        },
        [this](bool) { --streams_; });
  }

  // Sends the next status, or a sign of life. False: the client is gone.
  bool SendNext(uint64_t& told, Time& begun, httplib::DataSink& sink) {
    const Duration rest = begun + kStreamInterval - SteadyNow();
    if (rest > Duration::zero()) WaitForClose(rest);
    const StatusBoard::Posted posted = board_.WaitForNewer(told, kPatience);
    begun = SteadyNow();
    std::string event = ":\n\n";
    if (posted.version > told) {
      event = "data: " + *rendered_.Json(posted) + "\n\n";
      told = posted.version;
    }
    if (!sink.write(event.data(), event.size())) return false;
    if (posted.closed) sink.done();
    return true;
  }

  void WaitForClose(Duration patience) {
    board_.WaitForNewer(std::numeric_limits<uint64_t>::max(), patience);
  }

  const StatusBoard& board_;
  const std::string identity_;
  RenderedStatus rendered_;
  std::atomic<int> streams_{0};
  Followers followers_;
  HttpServer server_;
};

MonitorServer::MonitorServer(const MonitorOptions& options, const StatusBoard& board)
    : impl_(std::make_unique<Impl>(options, board)) {}

MonitorServer::~MonitorServer() = default;

int MonitorServer::port() const { return impl_->port(); }

const std::string& MonitorServer::url() const { return impl_->url(); }

}  // namespace poseidon
