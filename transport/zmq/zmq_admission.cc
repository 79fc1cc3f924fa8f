#include "transport/zmq/zmq_admission.h"

#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <iterator>
#include <vector>
#include <zmq_addon.hpp>

namespace poseidon {
namespace {

constexpr const char* kVersion = "1.0";

// A question is version, request id, domain, address, routing id, mechanism and what the mechanism
// has to say: with CURVE the public key.
struct Question {
  std::string request;
  std::string address;
  std::string public_key;
};

Question Parse(const std::vector<zmq::message_t>& frames) {
  Question question;
  if (frames.size() > 1) question.request = frames[1].to_string();
  if (frames.size() > 3) question.address = frames[3].to_string();
  if (frames.size() > 6 && frames[5].to_string() == "CURVE") {
    question.public_key = frames[6].to_string();
  }
  return question;
}

std::string Decode(const std::string& key) {
  std::array<uint8_t, 32> bytes;
  if (zmq_z85_decode(bytes.data(), key.c_str()) == nullptr) return "";
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

ZmqAdmission::ZmqAdmission(zmq::context_t& context, const ZmqOptions& options,
                           TransportCounters& counters)
    : context_(context),
      counters_(counters),
      allowed_(options.allowed),
      questions_(context, zmq::socket_type::rep) {
  if (options.key) public_key_ = Decode(options.key->public_key);
  questions_.set(zmq::sockopt::linger, 0);
  questions_.bind("inproc://zeromq.zap.01");
  thread_ = std::thread([this] { Run(); });
}

ZmqAdmission::~ZmqAdmission() { Stop(); }

void ZmqAdmission::Stop() {
  if (!thread_.joinable()) return;
  context_.shutdown();
  thread_.join();
  questions_.close();
}

std::string ZmqAdmission::FindFault(const std::string& address,
                                    const std::string& public_key) const {
  if (!allowed_.empty() && !allowed_.Contains(address) && !IsLoopbackName(address)) {
    return "its address is not in security.allow";
  }
  if (public_key != public_key_) return "it does not have this job's key";
  return "";
}

void ZmqAdmission::Refuse(const std::string& address, const std::string& fault) {
  ++counters_.refused_connections;
  if (!refused_.IsNew(address)) return;
  LOG(WARNING) << "refused a connection from " << address << ": " << fault
               << "; further ones from there are only counted";
}

void ZmqAdmission::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  pthread_setname_np(pthread_self(), "admission");
  try {
    for (;;) {
      std::vector<zmq::message_t> frames;
      if (!zmq::recv_multipart(questions_, std::back_inserter(frames))) continue;
      const Question question = Parse(frames);
      const std::string fault = FindFault(question.address, question.public_key);
      if (!fault.empty()) Refuse(question.address, fault);
      const std::array<std::string, 6> answer = {
          kVersion, question.request, fault.empty() ? "200" : "400", fault, "", ""};
      zmq::send_multipart(
          questions_, std::array<zmq::const_buffer, 6>{
                          zmq::buffer(answer[0]), zmq::buffer(answer[1]), zmq::buffer(answer[2]),
                          zmq::buffer(answer[3]), zmq::buffer(answer[4]), zmq::buffer(answer[5])});
    }
  } catch (const zmq::error_t& error) {
    // Stop() has shut the context down; nothing else makes this socket fail.
    if (error.num() != ETERM) LOG(ERROR) << "admission of connections ended: " << error.what();
  }
}

}  // namespace poseidon
