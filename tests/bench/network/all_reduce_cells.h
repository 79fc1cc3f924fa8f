// What the all-reduce programs of the different systems have in common: which calls to time, and
// the file that says how long they took. Every program is one rank; run.py starts them.
//
//   --cells=ring:1048576:2:10,...  algorithm, bytes, untimed calls (at least 1), timed calls
//   --out=FILE                     where this rank's results go, as JSON
//
// The first call of a cell is checked: with a wrong sum a program ends with exit code 1. Calls
// follow each other without a barrier, as the steps of a training do: an all-reduce is one.
// Processor time is this process's, user and kernel, over the timed calls.
//
// Thread safety: none needed. Errors: std::exception, which Main prints.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace poseidon::network {

class System {
 public:
  virtual ~System() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // A function that replaces the floats by the sums of all ranks' floats. It is called until the
  // next Prepare, and the floats live as long.
  virtual std::function<void()> Prepare(const std::string& algorithm, std::span<float> floats) = 0;
};

// Measures all of --cells, in their order, and writes --out.
void MeasureCells(System& system);

// `body` as a program: prints what it throws. Parses the flags first.
int Main(int argc, char** argv, const std::function<void()>& body);

// User and kernel time of this process, in seconds.
double CpuSeconds();
// Of the steady clock.
double Seconds();

}  // namespace poseidon::network
