// When the actions of all ranks of this process stand still, somebody is asked, then blamed.
#include "engine/runtime/watch/watchdog.h"

#include <algorithm>
#include <exception>
#include <future>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using Words = std::vector<std::string>;

/// What `question` answers within kPatience, else nothing. It runs on a thread of its own, which
/// stays behind when there is no answer: words travel through a rank that may be dead.
template <class Question>
Words Ask(Question question) {
  constexpr auto kPatience = std::chrono::seconds(2);
  std::promise<Words> answer;
  std::future<Words> words = answer.get_future();
  std::thread([question = std::move(question), answer = std::move(answer)]() mutable {
    try {
      answer.set_value(question());
    } catch (const std::exception&) {
      answer.set_value({});  // nobody keeps the words any more
    }
  }).detach();
  if (words.wait_for(kPatience) != std::future_status::ready) return {};
  return words.get();
}

}  // namespace

HangDetector::HangDetector(std::vector<WatchedRank> ranks,
                           std::chrono::duration<double> hang_timeout, Actions actions)
    : ranks_(std::move(ranks)), hang_timeout_(hang_timeout), actions_(std::move(actions)) {}

void HangDetector::Check(Time now) {
  const uint64_t completed = Completed();
  if (completed != seen_ || !AnyAtWork() || since_ == Time()) {
    if (told_slow_data_) TakeWordsBack();
    seen_ = completed;
    since_ = now;
    told_slow_data_ = false;
  } else if (now - since_ >= hang_timeout_ && !spoke_) {
    Speak();
  }
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

void HangDetector::TakeWordsBack() const {
  for (const WatchedRank& rank : ranks_) {
    Ask([transport = rank.transport] {
      transport->SetStatus("");
      return std::vector<std::string>();
    });
  }
}

std::vector<std::string> HangDetector::SlowData() const {
  std::vector<std::string> slow;
  for (const WatchedRank& rank : ranks_) {
    if (!rank.progress->reading_data()) continue;
    slow.push_back(rank.progress->Position());
    Ask([transport = rank.transport, position = slow.back()] {
      transport->SetStatus(position);
      return std::vector<std::string>();
    });
  }
  if (!slow.empty()) return slow;
  return Ask([transport = ranks_.front().transport] { return transport->Statuses(); });
}

void HangDetector::Speak() {
  const std::string silence =
      Str("no action was completed for ", FormatSeconds(hang_timeout_.count()), ": ");
  const std::vector<std::string> slow_data = SlowData();
  if (!slow_data.empty()) {
    if (!told_slow_data_) actions_.on_slow_data(silence + Join(slow_data, "; "));
    told_slow_data_ = true;
    return;
  }
  spoke_ = true;
  std::vector<std::string> positions;
  for (const WatchedRank& rank : ranks_) positions.push_back(rank.progress->Position());
  actions_.on_hang(silence + Join(positions, "; "));
}

Watchdog::Watchdog(std::vector<WatchedRank> ranks, std::chrono::duration<double> hang_timeout,
                   std::function<void(const std::string& report)> on_hang)
    : detector_(
          ranks, hang_timeout,
          {.on_hang =
               [ranks, on_hang](const std::string& report) {
                 for (const WatchedRank& rank : ranks) rank.transport->Abort(report);
                 if (on_hang) on_hang(report);
               },
           .on_slow_data = [](const std::string& report) { STRATA_LOG(kWarning) << report; }}),
      thread_([this, hang_timeout] { Watch(hang_timeout / 8); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void Watchdog::Watch(std::chrono::duration<double> period) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period, [this] { return stop_; })) {
    lock.unlock();
    detector_.Check(std::chrono::steady_clock::now());
    lock.lock();
  }
}

}  // namespace strata
