// ProgressLine: says how far a piece of work is that may take longer than a user waits in silence,
// "drawing initial values, 30 %". Work that ends within two seconds says nothing. The lines are the
// same in a log and on a terminal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace strata {

/// Receives the progress lines of this process, and gives the time by which they are said.
struct ProgressOutput {
  /// Gets one line without its end. It is called on the thread that works, by one thread at a time.
  /// If it is null, nothing is said.
  std::function<void(const std::string& line)> say = nullptr;
  std::function<double()> now = nullptr;  ///< seconds; null: the machine's steady clock
};

/// Replaces the output. At first a process says nothing, so of several ranks only the one that sets
/// an output is heard.
void SetProgressOutput(ProgressOutput output);

/// Says a line at once, unless nobody hears this thread.
void SayProgress(const std::string& line);
/// False if nothing is said: there is no output, or this thread is muted.
bool IsProgressHeard();

/// While an object lives, the ProgressLines of its thread say nothing. For ranks that are threads
/// of one process: all but the first one are muted.
class MutedProgress {
 public:
  MutedProgress();
  ~MutedProgress();
  MutedProgress(const MutedProgress&) = delete;
  MutedProgress& operator=(const MutedProgress&) = delete;
};

enum class ProgressForm {
  kPercent,  ///< "reading weights, 40 %"
  kCount,    ///< "evaluating, 40 of 400"
};

/// One piece of work. Advance() says a line if nothing was said for kEverySeconds. Pieces that
/// follow one another without a pause count as one silence, so many short pieces are heard too.
class ProgressLine {
 public:
  static constexpr double kEverySeconds = 2;

  /// `what`: the work, as "reading weights". `total`: how many Advance() counts to; 0 if unknown,
  /// then the line has no share, or the number alone.
  ProgressLine(std::string what, int64_t total, ProgressForm form = ProgressForm::kPercent);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Notes that `count` more are done. Any thread may call it. It takes about as long as reading
  /// the clock, so call it for pieces of at least some microseconds.
  void Advance(int64_t count = 1);
  int64_t done() const { return done_; }

 private:
  std::string Text(int64_t done) const;

  const std::string what_;
  const int64_t total_;
  const ProgressForm form_;
  const bool is_muted_;
  std::atomic<int64_t> done_ = 0;
};

}  // namespace strata
