#include "transport/events/event_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/net/host_address.h"
#include "core/text/utf8.h"

namespace poseidon {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

constexpr std::array<const char*, 4> kStates = {"established", "connecting", "closing", "none"};

// Columns of an event, which are named in the file.
Json Columns() {
  return {"time_ns", "type",  "kind",      "role",   "rank",  "lane",
          "number",  "bytes", "iteration", "bucket", "chunk", "step"};
}

Json RowOf(const NodeEvent& event) {
  return {event.time.count(), static_cast<int>(event.type),
          event.kind,         event.role,
          event.rank,         event.lane,
          event.number,       event.bytes,
          event.iteration,    event.bucket,
          event.chunk,        event.step};
}

NodeEvent EventOf(const Json& row) {
  NodeEvent event;
  event.time = Time(row.at(0).get<int64_t>());
  event.type = static_cast<NodeEvent::Type>(row.at(1).get<uint8_t>());
  event.kind = row.at(2).get<int32_t>();
  event.role = row.at(3).get<uint8_t>();
  event.rank = row.at(4).get<int32_t>();
  event.lane = row.at(5).get<int16_t>();
  event.number = row.at(6).get<uint64_t>();
  event.bytes = row.at(7).get<int64_t>();
  event.iteration = row.at(8).get<int64_t>();
  event.bucket = row.at(9).get<uint32_t>();
  event.chunk = row.at(10).get<uint32_t>();
  event.step = row.at(11).get<uint32_t>();
  return event;
}

Json NodeJson(const NodeId& node) {
  return {{"role", static_cast<int>(node.role)}, {"rank", node.rank}};
}

NodeId NodeOf(const Json& json) {
  return {static_cast<Role>(json.at("role").get<int>()), json.at("rank").get<int>()};
}

Json LanesJson(const EventFile& file) {
  Json lanes = Json::array();
  for (const EventFile::Lane& lane : file.lanes) {
    Json rows = Json::array();
    for (const NodeEvent& event : lane.events) rows.push_back(RowOf(event));
    lanes.push_back({{"lane", lane.lane}, {"events", std::move(rows)}});
  }
  return lanes;
}

Json ConnectionsJson(const EventFile& file) {
  Json list = Json::array();
  for (const EventFile::Connection& one : file.connections) {
    Json json = NodeJson(one.to.node);
    json["lane"] = one.to.lane;
    json["state"] = kStates.at(static_cast<size_t>(one.state));
    json["unconfirmed_bytes"] = one.unconfirmed_bytes;
    json["retransmissions"] = one.retransmissions;
    json["window_closed"] = one.window_closed;
    list.push_back(std::move(json));
  }
  return list;
}

EventFile::Connection ConnectionOf(const Json& json) {
  EventFile::Connection connection;
  connection.to = {NodeOf(json), json.at("lane").get<int>()};
  const auto state = std::ranges::find(kStates, json.at("state").get<std::string>());
  if (state != kStates.end()) {
    connection.state = static_cast<EventFile::Connection::State>(state - kStates.begin());
  }
  connection.unconfirmed_bytes = json.at("unconfirmed_bytes").get<int64_t>();
  connection.retransmissions = json.at("retransmissions").get<int>();
  connection.window_closed = json.at("window_closed").get<bool>();
  return connection;
}

std::vector<std::string> PrintableAll(std::vector<std::string> names) {
  for (std::string& name : names) name = Printable(name);
  return names;
}

EventFile FileOf(const Json& json) {
  EventFile file;
  file.node = NodeOf(json);
  file.process = json.at("process").get<int64_t>();
  file.host = json.at("host").get<std::string>();
  file.clock = json.at("clock").get<std::string>();
  file.wall_clock = Duration(json.at("wall_clock_ns").get<int64_t>());
  file.written = Time(json.at("written_ns").get<int64_t>());
  file.exit_code = json.at("exit_code").get<int>();
  file.reason = json.at("reason").get<std::string>();
  file.layers = json.at("layers").get<std::vector<std::string>>();
  file.buckets = json.at("buckets").get<std::vector<std::string>>();
  for (const Json& lane : json.at("lanes")) {
    EventFile::Lane& read = file.lanes.emplace_back();
    read.lane = lane.at("lane").get<int>();
    for (const Json& row : lane.at("events")) read.events.push_back(EventOf(row));
  }
  for (const Json& one : json.at("connections")) file.connections.push_back(ConnectionOf(one));
  file.available_memory = json.at("available_memory").get<int64_t>();
  file.resident_memory = json.at("resident_memory").get<int64_t>();
  file.out_of_memory_kills = json.at("out_of_memory_kills").get<int64_t>();
  return file;
}

}  // namespace

std::string EventFileName(const NodeId& node) {
  const std::string role = RoleName(node.role);
  if (node.role == Role::kScheduler) return role + ".events.json";
  return role + "-" + std::to_string(node.rank) + ".events.json";
}

std::string EventFileText(const EventFile& file) {
  Json json = NodeJson(file.node);
  json["version"] = kVersion;
  json["process"] = file.process;
  json["host"] = Printable(file.host);
  json["clock"] = file.clock;
  json["wall_clock_ns"] = file.wall_clock.count();
  json["written_ns"] = file.written.count();
  json["exit_code"] = file.exit_code;
  json["reason"] = Printable(file.reason);
  json["layers"] = PrintableAll(file.layers);
  json["buckets"] = PrintableAll(file.buckets);
  json["columns"] = Columns();
  json["lanes"] = LanesJson(file);
  json["connections"] = ConnectionsJson(file);
  json["available_memory"] = file.available_memory;
  json["resident_memory"] = file.resident_memory;
  json["out_of_memory_kills"] = file.out_of_memory_kills;
  return json.dump() + "\n";
}

EventFile ParseEventFile(const std::string& text, const std::string& path) {
  try {
    const Json json = Json::parse(text);
    if (json.at("version").get<int>() != kVersion) {
      throw Error(ExitCode::kDataError, path + ": of version " + json.at("version").dump() +
                                            ", this program reads version " +
                                            std::to_string(kVersion));
    }
    return FileOf(json);
  } catch (const Json::exception&) {
    throw Error(ExitCode::kDataError,
                path + ": not a node's events, or cut off; leave it out, or run the job again");
  }
}

EventFile::Connection FindConnection(const Address& to, const std::string& endpoint,
                                     const std::vector<TcpConnection>& all) {
  EventFile::Connection found;
  found.to = to;
  constexpr std::string_view kScheme = "tcp://";
  const auto there = endpoint.starts_with(kScheme)
                         ? HostAndPort::Parse(endpoint.substr(kScheme.size()))
                         : std::nullopt;
  if (!there) return found;
  // A name instead of an address: the port has to do.
  const bool by_name = !IsIpAddress(there->host);
  const auto leads_there = [&](const TcpConnection& one) {
    return one.port == there->port && (by_name || one.address == CanonicalAddress(there->host));
  };
  for (const TcpConnection& one : all) {
    if (!leads_there(one)) continue;
    // What ZeroMQ closes and opens anew is there twice for a moment.
    if (found.state == EventFile::Connection::State::kEstablished) continue;
    found.state = static_cast<EventFile::Connection::State>(one.state);
    found.unconfirmed_bytes = one.unconfirmed_bytes;
    found.retransmissions = one.retransmissions;
    found.window_closed = one.window_closed;
  }
  return found;
}

}  // namespace poseidon
