// The detector counts the completed actions of all ranks of this process. If the count stands still
// for too long, it first asks all processes whether one of them is slow for a known reason (data,
// functions between steps); only otherwise does it report a hang.
#include "engine/runtime/watch/watchdog.h"

#include <algorithm>
#include <exception>
#include <future>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/runtime/watch/stack.h"

namespace strata {
namespace {

using Words = std::vector<std::string>;

/// Returns the answer of `question`, or nothing if it takes longer than kPatience. The question
/// runs in a thread of its own, which is left behind in that case: the answer may have to come from
/// a rank that is dead.
template <class Question>
Words Ask(Question question) {
  constexpr auto kPatience = std::chrono::seconds(2);
  std::promise<Words> answer;
  std::future<Words> words = answer.get_future();
  std::thread([question = std::move(question), answer = std::move(answer)]() mutable {
    try {
      answer.set_value(question());
    } catch (const std::exception&) {
      answer.set_value({});  // the rank that keeps the statuses is gone
    }
  }).detach();
  if (words.wait_for(kPatience) != std::future_status::ready) return {};
  return words.get();
}

}  // namespace

double HangSeconds(double asked, bool in_row, std::optional<double> median_step) {
  constexpr double kPatient = 120, kLeast = 10, kSteps = 5;
  if (asked > 0) return asked;
  return in_row && median_step ? std::max(kLeast, kSteps * *median_step) : kPatient;
}

HangDetector::HangDetector(std::vector<WatchedRank> ranks, double hang_timeout, Actions actions)
    : ranks_(std::move(ranks)), hang_timeout_(hang_timeout), actions_(std::move(actions)) {}

void HangDetector::Check(Time now) {
  const uint64_t completed = Completed();
  const bool at_work = AnyAtWork();
  if (completed != seen_ || at_work != was_at_work_ || since_ == Time()) {
    if (told_others_) SetStatuses("");
    seen_ = completed;
    was_at_work_ = at_work;
    since_ = now;
    told_others_ = told_slow_data_ = false;
    return;
  }
  const double limit = Limit();
  const double silent = std::chrono::duration<double>(now - since_).count();
  if (silent >= limit / 2 && !told_others_) {
    const std::vector<std::string> slow = SlowHere();
    if (!slow.empty()) SetStatuses(Join(slow, "; "));
    told_others_ = !slow.empty();
  }
  if (at_work && silent >= limit && !spoke_) Speak(limit);
}

uint64_t HangDetector::Completed() const {
  uint64_t completed = 0;
  for (const WatchedRank& rank : ranks_) completed += rank.progress->completed();
  return completed;
}

bool HangDetector::AnyAtWork() const {
  return std::ranges::any_of(ranks_,
                             [](const WatchedRank& rank) { return !rank.progress->resting(); });
}

/// The longest limit of all ranks. A resting rank may keep others from their rows, so it counts as
/// in a row.
double HangDetector::Limit() const {
  double limit = 0;
  for (const WatchedRank& rank : ranks_) {
    const bool in_row = rank.progress->in_row() || rank.progress->resting();
    limit = std::max(limit, HangSeconds(hang_timeout_, in_row, rank.progress->median_step()));
  }
  return limit;
}

/// Positions of ranks that are slow for a reason that is no hang: data that take long, and
/// functions of the script between two steps. A rank that rests while others of this process work
/// has only finished early and is not listed.
std::vector<std::string> HangDetector::SlowHere() const {
  std::vector<std::string> slow;
  const bool all_rest = !AnyAtWork();
  for (const WatchedRank& rank : ranks_) {
    const Progress& progress = *rank.progress;
    const bool between_steps = all_rest && !progress.failed() && progress.median_step();
    if (progress.reading_data() || between_steps) slow.push_back(progress.Position());
  }
  return slow;
}

void HangDetector::SetStatuses(const std::string& words) const {
  Ask([transport = ranks_.front().transport, words] {
    transport->SetStatus(words);
    return Words();
  });
}

void HangDetector::Speak(double seconds) {
  const std::string silence = Str("no action was completed for ", FormatSeconds(seconds), ": ");
  std::vector<std::string> slow = SlowHere();
  if (slow.empty()) {
    slow = Ask([transport = ranks_.front().transport] { return transport->Statuses(); });
  }
  if (!slow.empty()) {
    if (!told_slow_data_) actions_.on_slow_data(silence + Join(slow, "; "));
    told_slow_data_ = true;
    return;
  }
  spoke_ = true;
  std::vector<std::string> positions;
  for (const WatchedRank& rank : ranks_) positions.push_back(rank.progress->Position());
  actions_.on_hang(silence + Join(positions, "; "));
}

Watchdog::Watchdog(std::vector<WatchedRank> ranks, double hang_timeout,
                   std::function<void(const std::string& report)> on_hang)
    : ranks_(ranks),
      detector_(ranks, hang_timeout,
                {.on_hang =
                     [ranks, on_hang](const std::string& report) {
                       for (const WatchedRank& rank : ranks) {
                         rank.progress->flight().set_hung();
                         NoteStack(*rank.progress);
                       }
                       for (const WatchedRank& rank : ranks) rank.transport->Abort(report);
                       if (on_hang) on_hang(report);
                     },
                 .on_slow_data =
                     [](const std::string& report) {
                       const std::string script = ScriptStack(0);
                       STRATA_LOG(kWarning)
                           << report << (script.empty() ? "" : "\nthe script is at:\n" + script);
                     }}),
      thread_([this, hang_timeout] {
        constexpr double kLongest = 1e9;  // a longer period would overflow the clock
        Watch(std::chrono::duration<double>(
            std::min(HangSeconds(hang_timeout, true, 0.0) / 8, kLongest)));
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void Watchdog::Watch(std::chrono::duration<double> period) {
  using Clock = std::chrono::steady_clock;
  auto looked = Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period, [this] { return stop_; })) {
    lock.unlock();
    // If the process was stopped or the machine slept, the time that passed says nothing.
    if (Clock::now() - looked > 4 * period) detector_.Forget();
    detector_.Check(Clock::now());
    for (const WatchedRank& rank : ranks_) rank.transport->AbortIfBroken();
    looked = Clock::now();
    lock.lock();
  }
}

}  // namespace strata
