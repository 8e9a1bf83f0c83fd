#include "engine/base/tensors/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <exception>
#include <thread>
#include <vector>

namespace strata {
namespace {

constexpr int kThreads = 8;

/// Calls SetThreads() on all threads at once and returns the number of threads on which it failed.
int SetOnAll() {
  std::barrier start(kThreads);
  std::vector<int> failed(kThreads);
  std::vector<std::thread> threads;
  for (int& mine : failed) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      try {
        SetThreads(1);
      } catch (const std::exception&) {
        mine = 1;
      }
    });
  }
  int count = 0;
  for (int i = 0; i < kThreads; ++i) {
    threads[static_cast<size_t>(i)].join();
    count += failed[static_cast<size_t>(i)];
  }
  return count;
}

TEST(SetThreads, WorksOnManyThreadsOfAForkedProcess) {
  SetThreads(1);
  for (int round = 0; round < 200; ++round) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(SetOnAll());
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    ASSERT_EQ(WEXITSTATUS(status), 0) << "threads that failed, in round " << round;
  }
}

}  // namespace
}  // namespace strata
