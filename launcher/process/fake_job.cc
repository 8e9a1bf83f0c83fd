// A job without training, for supervisor_test. The command line says what its processes do:
//
//   fake_job grace=1 prepare=5 ranks=2 starter:print=x 0:say=hello 0:wait 1:exit=3
//
// Each rank executes its verbs in order; then its work is done. The launcher prints everything that
// it hears as a line, and the cause at the end. Its exit code is the job's. In arguments an
// underscore stands for a space. host=COMMAND runs a shell command in the place of a worker and its
// ranks; job=100 gives it a job of 100 bytes. `fake_job worker ...` is such a worker. `record`
// keeps flight records, as a line with the ranks' positions.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/peer_error.h"
#include "launcher/process/output_queue.h"
#include "launcher/process/supervisor.h"
#include "launcher/process/worker.h"

namespace strata::launcher {
namespace {

struct Step {
  std::string who;
  std::string verb;
  std::string argument;
};

/// What all ranks know about one rank.
struct Shared {
  std::atomic<pid_t> pid;  // 0 = not started yet
  std::atomic<bool> asleep;
};

/// A wait that another thread ends.
class Sleep {
 public:
  void Wake(const std::string& why) {
    std::lock_guard lock(mutex_);
    why_ = why;
    woken_.notify_all();
  }
  void WaitForNews() {
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [&] { return !why_.empty(); });
  }
  [[noreturn]] void Wait() {
    WaitForNews();
    throw WorldError(why_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  std::string why_;
};

class FakeJob : public JobProgram {
 public:
  FakeJob(const RankRange& range, std::vector<Step> steps)
      : range_(range), steps_(std::move(steps)) {}

  RankRange Prepare(Reporter& reporter) override {
    const size_t bytes = sizeof(Shared) * static_cast<size_t>(range_.first + range_.count);
    shared_ = static_cast<Shared*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (const Step& step : steps_) {
      if (step.who == "starter") Do(step, reporter);
    }
    return range_;
  }

  void Run(int rank, RankReporter& reporter) override {
    rank_ = rank;
    rank_reporter_ = &reporter;
    shared_[rank].pid = ::getpid();
    if (!Has(rank, "unready")) MakeReady(rank, reporter);
    for (const Step& step : steps_) {
      if (step.who == std::to_string(rank)) Do(step, reporter);
    }
  }

 private:
  bool Has(int rank, const std::string& verb) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
      return step.who == std::to_string(rank) && step.verb == verb;
    });
  }

  void MakeReady(int rank, RankReporter& reporter) {
    reporter.OnAbort([this](const std::string& why) { sleep_.Wake(why); },
                     [rank] { return Str("rank ", rank, ": asleep"); });
  }

  void Do(const Step& step, Reporter& reporter) {
    const auto& [who, verb, argument] = step;
    if (verb == "print") std::printf("%s\n", argument.c_str());
    if (verb == "part") std::printf("%s", argument.c_str());
    if (verb == "count") CountTo(std::stoi(argument));
    if (verb == "long") Say(reporter, std::string(std::stoul(argument), 'x'));
    if (verb == "touch") WriteFile(argument, "");
    if (verb == "warn") std::fprintf(stderr, "%s\n", argument.c_str());
    if (verb == "say") Say(reporter, argument);
    if (verb == "pid") Say(reporter, Str("pid ", ::getpid()));
    if (verb == "starter_pid") Say(reporter, Str("pid ", ::getppid()));
    if (verb == "read") Say(reporter, std::getchar() == EOF ? "nothing" : "something");
    if (verb == "exit") std::_Exit(std::stoi(argument));
    if (verb == "world") throw WorldError(argument);
    if (verb == "config") throw ConfigError(argument);
    if (verb == "bug") throw std::runtime_error(argument);
    if (verb == "signal") ::raise(std::stoi(argument));
    if (verb == "wait") shared_[rank_].asleep = true, sleep_.Wait();
    if (verb == "stoppable") AwaitStop(argument.empty() ? verb : argument);
    if (verb == "after") WaitForSleepOf(std::stoi(argument));
    if (verb == "outlive") WaitForEndOf(std::stoi(argument));
    if (verb == "peer") WaitForEndOf(std::stoi(argument)), Lose(argument);
    if (verb == "lose") Lose(argument);
    if (verb == "late") sleep_.WaitForNews(), throw ConfigError(argument);
    if (verb == "fill") Fill(std::stoul(argument));
    if (verb == "deaf") IgnoreSignals();
    if (verb == "raw") WriteRaw(argument);
    if (verb == "send") reporter.Send(Value::FromJson(argument));
    if (verb == "busy") Compute();
    if (verb == "stopped") rank_reporter_->Stopped();
    if (verb == "savable") {
      rank_reporter_->OnStop([] {}, [this] { Say(*rank_reporter_, "saved"); });
    }
    if (verb == "slow") {  // delays the answer until a file of this name exists
      rank_reporter_->OnAbort(nullptr, [argument] {
        while (::access(argument.c_str(), F_OK) != 0) ::sched_yield();
        return std::string("late");
      });
    }
    if (verb == "meeting") rank_reporter_->OnAbort(nullptr, [argument] { return argument; });
  }

  static void Say(Reporter& reporter, const std::string& text) {
    reporter.Send(Value::MakeMap({{"type", Value("said")}, {"text", Value(text)}}));
  }

  /// Writes bytes straight into the rank's channel, which is its only socket.
  static void WriteRaw(const std::string& bytes) {
    for (int fd = 3; fd < 100; ++fd) {
      struct stat what;
      if (::fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode)) {
        WriteAll(fd, bytes + "\n", "the channel");
      }
    }
  }

  /// Writes a line without an end, bypassing stdio's buffer.
  static void Fill(size_t bytes) {
    WriteAll(STDOUT_FILENO, std::string(bytes, 'x'), "standard output");
  }

  static void IgnoreSignals() {
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) ::signal(signal, SIG_IGN);
  }

  static void CountTo(int end) {
    for (int i = 0; i < end; ++i) std::printf("%d\n", i);
  }

  /// Reports that it can be stopped, says `text`, and waits until it is asked to stop or aborted.
  void AwaitStop(const std::string& text) {
    rank_reporter_->OnStop([this] { stopped_.Wake("stop"); });
    Say(*rank_reporter_, text);
    try {
      stopped_.Wait();
    } catch (const WorldError&) {
      rank_reporter_->OnStop(nullptr);
    }
  }

  void WaitForSleepOf(int peer) {
    while (!shared_[peer].asleep) ::sched_yield();
  }

  /// Throws the error of a lost connection, which is only a consequence of another failure.
  [[noreturn]] void Lose(const std::string& peer) const {
    throw PeerError(Str("rank ", rank_, " lost rank ", peer));
  }

  void WaitForEndOf(int peer) const {
    while (shared_[peer].pid == 0) ::sched_yield();
    const long fd = ::syscall(SYS_pidfd_open, shared_[peer].pid.load(), 0);
    pollfd process = {static_cast<int>(fd), POLLIN, 0};
    if (process.fd >= 0) ::poll(&process, 1, -1);
  }

  /// Computes endlessly and cannot be woken.
  [[noreturn]] static void Compute() {
    volatile bool for_ever = true;
    while (for_ever) continue;
    std::abort();
  }

  RankRange range_;
  std::vector<Step> steps_;
  Shared* shared_ = nullptr;  // one for each rank
  int rank_ = -1;
  RankReporter* rank_reporter_ = nullptr;
  Sleep sleep_, stopped_;
};

class Printer : public JobListener {
 public:
  void OnMessage(int rank, const Value& message) override {
    const std::string& text = message["text"].as_string();
    if (text == "refuse") throw WorldError("the listener refuses");
    Print(Str("said ", rank, ": ", text));
  }
  void OnOutput(int rank, bool is_error, std::string_view line) override {
    Print(Str(is_error ? "stderr " : "stdout ", rank, ": ", line));
  }
  void StopFiles() override { Print("no more files"); }
  void Print(const std::string& line) { output.Write(STDOUT_FILENO, line + "\n", "the output"); }

  OutputQueue output;
};

std::string PositionsIn(const Value& record) {
  std::string text = "positions:";
  for (const Value& rank : record["ranks"].as_list()) {
    text += Str(" ", rank.Has("position") ? rank["position"].as_string() : "unknown");
  }
  return text;
}

int Main(int argc, char** argv) {
  RankRange range;
  bool is_worker = false;
  SupervisorOptions options;
  std::vector<Step> steps;
  RemoteHost remote = {.name = "host", .command = {}, .job = Value::MakeMap()};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string argument = word.substr(std::min(word.size(), word.find('=') + 1));
    std::replace(argument.begin(), argument.end(), '_', ' ');
    const std::string head = word.substr(0, word.find('='));
    const size_t colon = head.find(':');
    if (head == "worker") is_worker = true;
    if (head == "record") {
      options.keep_record = [](const Value& record, bool) { return PositionsIn(record); };
    }
    if (head == "ranks") range.count = range.world_size = std::stoi(argument);
    if (head == "first") range.first = std::stoi(argument);
    if (head == "world") range.world_size = std::stoi(argument);
    if (head == "roles") range.roles = Split(argument, ',');
    if (head == "grace") options.grace_seconds = std::stod(argument);
    if (head == "prepare") options.prepare_seconds = std::stod(argument);
    if (head == "job") remote.job.Set("arguments", std::string(std::stoul(argument), 'x'));
    if (head == "host") remote.command = {"/bin/sh", "-c", word.substr(5)};
    if (colon == std::string::npos || head == "host") continue;
    const bool has_argument = word.find('=') != std::string::npos;
    steps.push_back({head.substr(0, colon), head.substr(colon + 1), has_argument ? argument : ""});
  }
  if (is_worker) {
    return RunWorker([&](const Value&, int&) { return std::make_unique<FakeJob>(range, steps); });
  }
  FakeJob job(range, std::move(steps));
  Printer printer;
  options.output = &printer.output;
  const Outcome outcome = remote.command.empty() ? Supervise(job, printer, options)
                                                 : Supervise({remote}, 0, printer, options);
  printer.Print("cause: " + outcome.cause);
  return outcome.exit_code;
}

}  // namespace
}  // namespace strata::launcher

int main(int argc, char** argv) {
  try {
    return strata::launcher::Main(argc, argv);
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
