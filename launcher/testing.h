// Helpers for the launcher's tests: a Terminal whose output a test can read, and a step to report.
#pragma once

#include <string>

#include "engine/runtime/results.h"
#include "launcher/process/child.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {

/// Captures the output of a Terminal in a pipe, so at most 64 KiB.
class CapturedTerminal {
 public:
  Terminal& terminal() { return terminal_; }
  /// All that was written to standard output and standard error, together. Nothing can be written
  /// afterwards.
  std::string Text() { return Drain(pipe_); }

 private:
  Pipe pipe_ = MakePipe();
  Terminal terminal_{pipe_.write.get(), pipe_.write.get()};
};

/// A step as rank 0 reports it.
inline StepResult ReportedStep(int64_t step, double loss) {
  StepResult result;
  result.step = step;
  result.loss = loss;
  result.grad_norm = 1.25;
  result.lr = 0.05;
  result.samples = 32;
  result.seconds = 0.25;
  result.data_seconds = 0.03125;
  result.peak_memory = 3 << 20;
  return result;
}

}  // namespace strata::launcher
