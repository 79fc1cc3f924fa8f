// What the scheduler's program does with what the job tells it: shows it, writes it down, and goes
// over to a better plan. Of one thread, the program's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/process/input_lines.h"
#include "core/program.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "scheduler/journal/journal.h"
#include "scheduler/journal/journal_writer.h"
#include "scheduler/monitor/job_monitor.h"
#include "scheduler/report/job_report.h"
#include "scheduler/stragglers/batch_balancer.h"
#include "simulation/background_replan.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

// A line for whoever looks at the scheduler's output.
void Show(const std::string& text);

// What the scheduler's control lane is to hear when a signal has interrupted the program.
Envelope InterruptedStop();

//   JobWatch watch(runtime, job, false, nullptr, nullptr);
//   runtime.Start();
//   const wire::End end = watch.Run(interruption);
class JobWatch {
 public:
  // `journal` and `monitor` may be null; all have to outlive this. `launched`: standard input is
  // the launcher's, each line a wire::LostProcess in text format, and its end ends the job.
  JobWatch(ZmqRuntime& runtime, const Job& job, bool launched, Journal* journal,
           JobMonitor* monitor);

  const JobReport& report() const { return report_; }

  // Until the job ends; returns why it did.
  wire::End Run(Interruption& interruption);

 private:
  JobReport MakeReport();
  void PassOn(SignalEffect effect);
  void HearLauncher();
  void Stop(const wire::End& end);
  // What messages have brought, and what could not be written before.
  void WriteJournal();
  void SayWritten(std::optional<int64_t> question);
  void OnJournal(const Envelope& envelope);
  // Everybody who watches the job.
  void Tell(const std::string& sentence);
  // Returns the job's end, if it is the message of that.
  std::optional<wire::End> OnMessage(const Envelope& envelope);
  void OnJoined(const std::string& body);
  void OnNotice(const std::string& body);
  void OnJobPhase(const std::string& body);
  void OnOverdue(const std::string& body);
  void OnPlan(const std::string& body);
  void OnLayerTimes(const std::string& body);
  // Goes over to another plan if the measured times make one much better.
  void OnReplanned(const Replanned& replanned);
  void OnLinkReport(const std::string& body);
  void OnProgress(const std::string& body);
  void OnPace(const wire::Progress& progress);
  // Goes over to other parts of the batch if they pay.
  void Rebalance(const wire::Progress& progress);
  void OnRecovered(const std::string& body);
  void OnFinished(const std::string& body);

  ZmqRuntime& runtime_;
  const Job& job_;
  JournalWriter journal_;
  JobMonitor* monitor_;  // null: there is none
  JobReport report_;
  BatchBalancer balancer_;
  BackgroundReplan replan_;
  std::optional<InputLines> launcher_;
  wire::PlanAndModel plan_;  // the latest
  bool shows_joining_ = true;
};

}  // namespace poseidon
