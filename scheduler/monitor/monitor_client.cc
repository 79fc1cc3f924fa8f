#include "scheduler/monitor/monitor_client.h"

#include <httplib.h>

#include <charconv>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/net/host_address.h"
#include "scheduler/monitor/monitor_server.h"

namespace poseidon {
namespace {

constexpr int kPatienceSeconds = 5;

int ParsePort(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && port > 0 && port <= 65535 ? port : 0;
}

std::string NameOf(const MonitorAddress& address) {
  return "http://" + HostAndPort{address.host, address.port}.ToString() + "/";
}

void SetPatience(httplib::Client& client) {
  client.set_connection_timeout(kPatienceSeconds);
  client.set_read_timeout(kPatienceSeconds);
}

bool IsAnother(const MonitorAddress& meant, const httplib::Response& health) {
  return !meant.identity.empty() &&
         health.get_header_value(MonitorServer::kIdentityHeader) != meant.identity;
}

void CheckAnswered(const MonitorAddress& address, const httplib::Result& result) {
  if (result) return;
  throw Error(ExitCode::kFailure, "no monitor answers at " + NameOf(address) + " (" +
                                      httplib::to_string(result.error()) +
                                      "); has the job ended, or does it run without a monitor?");
}

}  // namespace

MonitorAddress ParseMonitorAddress(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  MonitorAddress address;
  const size_t colon = rest.rfind(':');
  const bool has_host = colon != std::string_view::npos;
  address.host = has_host ? std::string(rest.substr(0, colon)) : "127.0.0.1";
  address.port = ParsePort(has_host ? rest.substr(colon + 1) : rest);
  if (address.port == 0 || address.host.empty() || address.host.find('/') != std::string::npos) {
    throw ConfigError("\"" + text +
                      "\" is no address of a monitor; give it as the scheduler says it, such as "
                      "http://127.0.0.1:9780/, or the job's output directory");
  }
  return address;
}

MonitorFile ParseMonitorFile(const std::string& text) {
  std::istringstream lines(text);
  MonitorFile file;
  std::getline(lines, file.url);
  std::getline(lines, file.token_file);
  std::getline(lines, file.identity);
  return file;
}

std::string FormatMonitorFile(const MonitorFile& file) {
  return file.url + "\n" + file.token_file + "\n" + file.identity + "\n";
}

bool HasGone(const MonitorAddress& address) {
  httplib::Client client(WithoutBrackets(address.host), address.port);
  SetPatience(client);
  const httplib::Result health = client.Get("/healthz");
  return health ? IsAnother(address, *health) : health.error() == httplib::Error::Connection;
}

std::string FetchStatus(const MonitorAddress& address, const std::string& follower) {
  httplib::Client client(WithoutBrackets(address.host), address.port);
  SetPatience(client);
  if (!address.identity.empty()) {
    const httplib::Result health = client.Get("/healthz");
    CheckAnswered(address, health);
    if (IsAnother(address, *health)) {
      throw Error(ExitCode::kFailure, "another program answers at " + NameOf(address) +
                                          " than this job's monitor; has the job ended, or was "
                                          "its scheduler killed?");
    }
  }
  httplib::Headers headers;
  if (!address.token.empty()) headers.emplace("Authorization", "Bearer " + address.token);
  const std::string path = "/api/job" + (follower.empty() ? "" : "?follower=" + follower);
  const httplib::Result result = client.Get(path, headers);
  CheckAnswered(address, result);
  if (result->status != 200) {
    const std::string said = result->body.substr(0, result->body.find('\n'));
    throw Error(ExitCode::kRefused, "the monitor at " + NameOf(address) + " refuses (HTTP status " +
                                        std::to_string(result->status) + "): " + said);
  }
  return result->body;
}

}  // namespace poseidon
