// Limits of memory and time, and interrupts.
#include "lua/core/limits.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::lua {
namespace {

/// The calling thread's processor time in seconds.
double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds that a script may exceed its time before its process ends.
constexpr double kGrace = 1;

std::string TooLong(double seconds) {
  return Str("the script takes longer than ", FormatSeconds(seconds),
             " of a processor's time before any training; --script_timeout=SECONDS gives it more");
}

timespec ToTime(double seconds) {
  seconds = std::min(seconds, 1e9);  // the kernel refuses times that it cannot count
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
}

}  // namespace

Limits::Limits(size_t memory_limit) : memory_limit_(memory_limit) { sem_init(&wake_, 0, 0); }

Limits::~Limits() {
  EndTimeLimit();
  sem_destroy(&wake_);
}

void* Limits::Reallocate(void* block, size_t old_size, size_t new_size) {
  if (block == nullptr) old_size = 0;
  if (new_size == 0) {
    std::free(block);
    memory_used_ -= old_size;
    return nullptr;
  }
  const size_t most = memory_limit_ + lent_;
  if (new_size > old_size && memory_used_ + (new_size - old_size) > most) return nullptr;
  void* result = std::realloc(block, new_size);
  if (result != nullptr) memory_used_ += new_size - old_size;
  return result;
}

bool Limits::Take(size_t bytes) {
  if (bytes > memory_limit_ || memory_used_ > memory_limit_ - bytes) return false;
  memory_used_ += bytes;
  return true;
}

void Limits::Begin(double seconds, const std::string* place) {
  End();
  interrupted_ = false;
  overdue_ = false;
  running_ = true;
  seconds_ = seconds;
  clock_runs_ = true;
  taken_ = 0;
  begin_ = ThreadSeconds();
  place_ = place;
  if (seconds > 0) SetTimer();
}

/// Starts a timer of this thread's processor time. Its first signal marks the script as overdue;
/// the second one, kGrace later, ends the process.
void Limits::SetTimer() {
  last_words_ = TooLong(seconds_) + "\n";
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(SIGXCPU, &action, nullptr);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  event.sigev_signo = SIGXCPU;
  event.sigev_value.sival_ptr = this;
  const bool is_made = ::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_.emplace()) == 0;
  STRATA_CHECK(is_made) << "no timer limits the script";
  ArmTimer(seconds_);
}

/// Lets the timer send its first signal after so many seconds; 0 stops it.
void Limits::ArmTimer(double seconds) {
  const itimerspec when = {.it_interval = ToTime(kGrace), .it_value = ToTime(seconds)};
  const bool is_set = ::timer_settime(*timer_, 0, &when, nullptr) == 0;
  STRATA_CHECK(is_set) << "no timer limits the script";
}

double Limits::TakenSeconds() const {
  return taken_ + (clock_runs_ ? ThreadSeconds() - begin_ : 0);
}

bool Limits::RunClock(bool runs) {
  if (runs == clock_runs_) return runs;
  taken_ = TakenSeconds();
  begin_ = ThreadSeconds();
  clock_runs_ = runs;
  if (!timer_) return !runs;
  // An overdue script keeps its grace, since the hook may not have run since the first signal.
  constexpr double kLeast = 1e-3;
  const double left = overdue_ ? kGrace : std::max(kLeast, seconds_ - taken_);
  ArmTimer(runs ? left : 0);
  return !runs;
}

void Limits::End() {
  EndTimeLimit();
  running_ = false;
}

void Limits::EndTimeLimit() {
  seconds_ = 0;
  if (timer_) ::timer_delete(*timer_);
  timer_.reset();
}

void Limits::OnSignal(int, siginfo_t* info, void*) {
  auto* limits = static_cast<Limits*>(info->si_value.sival_ptr);
  if (limits->overdue_.exchange(true)) limits->EndWithProcess();
}

/// Runs in a signal handler on the script's thread. That thread has been in a single C function
/// since the time was up, so the texts that are read here are not being changed.
void Limits::EndWithProcess() const {
  const auto part = [](std::string_view text) {
    return iovec{const_cast<char*>(text.data()), text.size()};
  };
  const bool has_place = place_ && !place_->empty();
  const iovec words[] = {part("strata: "), part(has_place ? *place_ : std::string_view()),
                         part(has_place ? ": " : ""), part(last_words_)};
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, words, std::size(words));
  constexpr int kWrongScript = 2;
  ::_exit(kWrongScript);
}

bool Limits::Interrupt() {
  const bool was_told = interrupted_.exchange(true);
  sem_post(&wake_);
  return !(running_ && was_told);
}

void Limits::AwaitInterrupt() {
  while (sem_wait(&wake_) != 0) {  // EINTR: a signal interrupted the wait
  }
}

void Limits::Wake() { sem_post(&wake_); }

std::string Limits::Reason() const {
  if (interrupted()) return "interrupted";
  if (seconds_ == 0 || TakenSeconds() < seconds_) return "";
  return TooLong(seconds_);
}

void Limits::Poll() const {
  if (std::string reason = Reason(); !reason.empty()) throw ConfigError(reason);
}

}  // namespace strata::lua
