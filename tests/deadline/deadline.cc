#include "tests/deadline/deadline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace strata {
namespace {

/// Of Bazel's limit; its own end of a test says nothing and is waited for.
constexpr double kShare = 0.9;

/// Runs in a signal's handler, where little is allowed; but the program hangs, and ends.
void End(int) {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  for (FILE* const file : {stderr, stdout}) {  // the test may have taken one of them
    std::fprintf(file, "\n[  HANGS   ] %s.%s\n", test ? test->test_suite_name() : "no test",
                 test ? test->name() : "");
    std::fflush(file);
  }
  _exit(1);
}

timer_t MakeTimer() {
  timer_t timer;
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGRTMAX - 1;  // SIGALRM is the tests'
  struct sigaction action = {};
  action.sa_handler = End;
  if (sigaction(event.sigev_signo, &action, nullptr) != 0 ||
      timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
    std::perror("no deadline for tests");
    std::abort();
  }
  return timer;
}

/// Bazel says how many seconds a test may take.
const bool has_begun = [] {
  const char* const limit = std::getenv("TEST_TIMEOUT");
  if (limit) EndTestsAfter(kShare * std::atof(limit));
  return true;
}();

}  // namespace

void EndTestsAfter(double seconds) {
  static pid_t owner = 0;
  static timer_t timer;
  if (std::exchange(owner, ::getpid()) != ::getpid()) timer = MakeTimer();  // a fork has none
  itimerspec end = {};
  end.it_value.tv_sec = static_cast<time_t>(seconds);
  end.it_value.tv_nsec = static_cast<long>(1e9 * (seconds - std::floor(seconds)));
  timer_settime(timer, 0, &end, nullptr);
}

}  // namespace strata
