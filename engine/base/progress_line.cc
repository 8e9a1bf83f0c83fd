// One silence of the process is measured for all of its lines: it begins when a line is said, and
// when work begins after a pause.
#include "engine/base/progress_line.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <utility>

#include "engine/base/text.h"

namespace strata {
namespace {

/// Work that begins within so many seconds after other work counts as the same silence.
constexpr double kPauseSeconds = 0.5;

thread_local int mutes = 0;  // MutedProgress objects on this thread

std::mutex mutex;  // guards what follows
ProgressOutput output;
double silent_since = 0;
double last_work = 0;  // when some work began, went on or ended
std::atomic<bool> has_output = false;

double Now() {
  if (output.now) return output.now();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

void SetProgressOutput(ProgressOutput next) {
  const std::lock_guard lock(mutex);
  output = std::move(next);
  last_work = -std::numeric_limits<double>::infinity();
  has_output = output.say != nullptr;
}

bool IsProgressHeard() { return mutes == 0 && has_output; }

void SayProgress(const std::string& line) {
  if (!IsProgressHeard()) return;
  const std::lock_guard lock(mutex);
  silent_since = last_work = Now();
  if (output.say) output.say(line);
}

MutedProgress::MutedProgress() { ++mutes; }
MutedProgress::~MutedProgress() { --mutes; }

ProgressLine::ProgressLine(std::string what, int64_t total, ProgressForm form)
    : what_(std::move(what)), total_(total), form_(form), is_muted_(mutes > 0) {
  if (is_muted_ || !has_output) return;
  const std::lock_guard lock(mutex);
  const double now = Now();
  if (now - last_work > kPauseSeconds) silent_since = now;
  last_work = now;
}

ProgressLine::~ProgressLine() {
  if (is_muted_ || !has_output) return;
  const std::lock_guard lock(mutex);
  last_work = Now();
}

void ProgressLine::Advance(int64_t count) {
  const int64_t done = done_ += count;
  if (is_muted_ || !has_output) return;
  const std::lock_guard lock(mutex);
  last_work = Now();
  if (!output.say || last_work - silent_since < kEverySeconds) return;
  silent_since = last_work;
  output.say(Text(done));
}

std::string ProgressLine::Text(int64_t done) const {
  if (form_ == ProgressForm::kPercent && total_ <= 0) return what_;
  if (form_ == ProgressForm::kPercent) {
    return Str(what_, ", ", std::min<int64_t>(100 * done / total_, 100), " %");
  }
  return total_ > 0 ? Str(what_, ", ", done, " of ", total_) : Str(what_, ", ", done);
}

}  // namespace strata
