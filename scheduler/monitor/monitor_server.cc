#include "scheduler/monitor/monitor_server.h"

#include <atomic>
#include <limits>
#include <thread>

#include "core/http/http_server.h"
#include "core/http/metrics_writer.h"
#include "core/steady_now.h"
#include "scheduler/monitor/page.h"
#include "scheduler/monitor/rendered_status.h"

namespace poseidon {
namespace {

// Who follows the job hears of it at most so often.
constexpr Duration kStreamInterval = Seconds(1);
// A program that has published nothing for so long hangs.
constexpr double kHealthySeconds = 30;
// What those who follow the job have to take its end.
constexpr Duration kParting = std::chrono::milliseconds(500);
// Who has asked for the job's state so lately does so again and again, as `poseidon status --watch`
// does each second, and is to hear of the end, too.
constexpr Duration kAskedLately = std::chrono::milliseconds(1500);

}  // namespace

class MonitorServer::Impl {
 public:
  Impl(const MonitorOptions& options, const StatusBoard& board)
      : board_(board),
        server_({options.address, options.port, options.token, kThreads, "monitor.port"}) {
    server_.Get(
        "/", [this](const Request& request, Response& response) { ServePage(request, response); });
    server_.Get("/api/job", [this](const Request&, Response& response) {
      asked_ = SteadyNow();
      Serve(response, &RenderedStatus::Json, "application/json");
    });
    server_.Get("/api/events",
                [this](const Request&, Response& response) { ServeEvents(response); });
    server_.Get("/metrics", [this](const Request&, Response& response) {
      Serve(response, &RenderedStatus::Metrics, MetricsWriter::kContentType);
    });
    server_.Get("/healthz", [this](const Request&, Response& response) { ServeHealth(response); });
    server_.Start();
  }

  ~Impl() {
    const Time end_of_streams = SteadyNow() + kParting;
    const Time end_of_asking = asked_.load() + kAskedLately;
    const auto follows = [&](Time now) {
      return (streams_ > 0 && now < end_of_streams) || now < end_of_asking;
    };
    while (board_.Latest().closed && follows(SteadyNow())) {
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

  void Serve(Response& response,
             RenderedStatus::Text (RenderedStatus::*render)(const StatusBoard::Posted&),
             const char* type) {
    const StatusBoard::Posted posted = board_.Latest();
    if (posted.version == 0) return Say(response, 503, "the job is about to begin; ask again");
    response.set_content(*(rendered_.*render)(posted), type);
  }

  void ServeHealth(Response& response) {
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

  void ServeEvents(Response& response) {
    if (++streams_ > kStreams) {
      --streams_;
      response.set_header("Retry-After", "5");
      return Say(response, 503,
                 std::to_string(kStreams) +
                     " others follow the job already; ask for /api/job now and then instead");
    }
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
  RenderedStatus rendered_;
  std::atomic<int> streams_{0};
  std::atomic<Time> asked_{Time{}};  // for the state, last
  HttpServer server_;
};

MonitorServer::MonitorServer(const MonitorOptions& options, const StatusBoard& board)
    : impl_(std::make_unique<Impl>(options, board)) {}

MonitorServer::~MonitorServer() = default;

int MonitorServer::port() const { return impl_->port(); }

const std::string& MonitorServer::url() const { return impl_->url(); }

}  // namespace poseidon
